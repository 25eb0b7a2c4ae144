"""One audit from end to end: reads the evidence in the order that a running store needs, and asks every check.

The log's head is read first and the store copied afterwards: whatever the head covers was in the store before.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auditor.ageing import check_confirmable
from auditor.ahead import verified_ahead
from auditor.bundle import ReadBundle, is_bundle, read_bundle
from auditor.chain import AuditedLog, audit_logs, logs_in, logs_of_home
from auditor.checks import check_rows
from auditor.checks_pages import Live, check_structure
from auditor.checks_signatures import check_signatures
from auditor.checks_vectors import check_vectors, read_vectors
from auditor.checks_whole import check_sound, check_word_index
from auditor.controls import control_structure
from auditor.evidence import Asked, LogFiles, StoreRows
from auditor.exhibits import (
    Exhibits,
    check_heads,
    exhibits_of_log,
    exhibits_of_store,
    head_of,
)
from auditor.findings import Finding, Note, Outcome, merge
from auditor.home_files import Belongs, check_guard_keys, check_home_files, sizes_of_logs, staged_policies
from auditor.kept import keep_verified
from auditor.key_lists import check_key_lists
from auditor.log_files import FOLDER, given_bucket_logs, url_files
from auditor.manifest_given import compare_given
from auditor.monitor_state import earlier_heads
from auditor.narrow import Narrow, judge_new, marks_of
from auditor.narrow_said import tips_of
from auditor.opening import Opening
from auditor.own_heads import check_own_heads, read_own_heads
from auditor.page_map import page_maps
from auditor.part import audit_part
from auditor.pg_audit import audit_database
from auditor.pg_copy import database_of
from auditor.progress import Tell, silent
from auditor.promises import Held, check_promises_held, read_held
from auditor.registrations import check_registrations, policies_in
from auditor.row_marks import RowMarks, encode, keep_marks
from auditor.scan import scan_home
from auditor.settings import check_settings
from auditor.snapshot import STORE, copy_store, read_only
from auditor.sqlite_file import Pages
from auditor.stale_tiles import check_stale_tiles
from auditor.store_rows import (
    missing_tables,
    read_few,
    read_rows,
    require_this_version,
    row_numbers,
    tenant_id_of,
)
from auditor.strays import check_strays
from auditor.unchanged import Said, base_of, beside_of, holds_until, mark_of, recall, seen_at, to_keep
from tlog.errors import MalformedError

if TYPE_CHECKING:
    from tlog.policy import VerifiedCheckpoint


@dataclass(frozen=True, slots=True)
class Places:
    """Where the evidence lies. `log` is a folder, a URL or a bucket; without it the log is in the home."""

    home: Path | None
    log: str | None = None
    also: tuple[Path, ...] = ()
    manifests: tuple[Path, ...] = ()
    state: Path | None = None
    receipts: Path | None = None
    """A folder of what clients were given."""
    tell: Tell = silent
    """Is told how far the audit has come."""
    processes: int = 1
    """How many may verify signatures meanwhile; with one, nobody but the audit itself does."""
    pages: str | None = None
    """A connection to the database of the home that may look at its pages."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found of a store, or without one."""

    outcomes: list[Outcome]
    """What follows from the bytes of the store and its log alone, and from the trust."""
    anew: list[Outcome] = field(default_factory=list)
    """What else there is to say: the next audit asks it anew, whatever the bytes are."""
    exhibits: Exhibits = field(default_factory=Exhibits)
    rows: tuple[bytes, ...] = ()
    """The digests of blocks of rows."""
    until: int = 0
    mark: str | None = None
    said: Mapping[str, Any] = field(default_factory=dict)
    """What an earlier audit kept, where the bytes are those that it saw."""
    beside: str = ""
    """A digest of what lies beside the tiles."""
    marks: RowMarks | None = None
    """What rows are known by later, if there is nothing to find."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    tips: tuple[int, ...] = ()
    live: Live = field(default_factory=Live)
    signatures: Callable[[], Outcome] = Outcome
    """Judges the signatures, which may be on their way meanwhile: asked last."""


@dataclass(frozen=True, slots=True)
class Audited:
    """The outcome, the checkpoint that everything was judged against, if there is one, and what a report shows."""

    outcome: Outcome
    verified: VerifiedCheckpoint | None
    exhibits: Exhibits = field(default_factory=Exhibits)


def audit(places: Places, asked: Asked, *, tenant: str | None, needles: Sequence[str] | None) -> Audited:
    """What every check has to say about the evidence. Raises MalformedError for places that are none."""
    with _without_collector():
        return _audit(places, asked, tenant=tenant, needles=needles)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Nothing is looked through for cycles meanwhile: millions of values are made, and hardly one is in any."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _audit(places: Places, asked: Asked, *, tenant: str | None, needles: Sequence[str] | None) -> Audited:
    bundle = read_bundle(places.home, asked) if places.home is not None and is_bundle(places.home) else None
    # Before the log, which may grow meanwhile: whatever a client was given by now is in what is read after it.
    held = () if places.receipts is None else read_held(places.receipts)
    with ExitStack() as stack:
        if places.log is not None and places.log.startswith(("http://", "https://")):
            logs = [(FOLDER, stack.enter_context(url_files(places.log)))]
        elif places.log is not None and places.log.startswith("s3://"):
            logs = given_bucket_logs(places.log)
        elif places.log is not None:
            logs = logs_in(Path(places.log))
        elif places.home is not None:
            logs = logs_of_home(places.home)
        else:
            raise MalformedError("expected a home or a log to audit")
        keys, asked = check_key_lists(logs, asked, places.state)
        with_notes = places.home is not None and places.log is None and bundle is None
        own = read_own_heads(places.home, [name for name, _ in logs]) if with_notes and places.home else ()
        # Before this audit puts its own head in the place of theirs.
        earlier = () if places.state is None else earlier_heads(places.state, asked.trust.policy)
        places.tell("the log")
        log = audit_logs(logs, asked, places.state)
        ahead = verified_ahead(log.entries, asked.trust, places.processes, places.tell)
        log = replace(log, entries=stack.enter_context(ahead))
        outcomes = [keys, log.outcome] if bundle is None else [bundle.outcome, keys, log.outcome]
        found = _audit_what_is_there(places, log, asked, tenant, needles, bundle, held)
        outcomes += [*found.outcomes, *found.anew]
        exhibits = found.exhibits
        if places.home is not None:
            # What lies in a bundle, its own list says.
            outcomes += [] if bundle is not None else [_check_home(places, places.home, logs, log, asked.now)]
            head = None if log.verified is None else log.verified.checkpoint
            outcomes.append(check_own_heads(own, log.entries, head))
            outcomes.append(check_settings(places.home, asked, places.state))
        outcomes.append(check_heads(exhibits.heads, log.entries))
        sizes = [head.size for head in (*earlier, *exhibits.heads)]
        outcomes.append(check_stale_tiles(log.files, log.entries, sizes))
        if needles is not None:
            outcomes.append(check_confirmable(log.entries, needles))
        outcomes += [compare_given(path, log.files) for path in places.manifests]
    if log.verified is not None:
        heads = (*earlier, *exhibits.heads, head_of(log.verified, "checkpoint"))
        exhibits = replace(exhibits, heads=heads)
    whole = merge(outcomes)
    every = tenant is None and bundle is None
    if every and places.state is not None and log.verified is not None and not whole.findings:
        outcome, seen = merge(found.outcomes), seen_at(log)
        said = found.said or to_keep(
            found.mark, found.beside, seen, outcome, found.exhibits, asked, found.until
        )
        if said and found.marks is not None and found.mark is not None:
            keep_marks(places.state, log.verified.checkpoint.origin, encode(found.marks, found.mark))
        # An audit of the log alone, or of more than the home, leaves what was said of the store as it was.
        rows, said = found.rows or log.before.rows, said or log.before.store
        keep_verified(places.state, log.verified.checkpoint, asked.trust, rows, said)
    return Audited(whole, log.verified, exhibits)


def _check_home(
    places: Places, home: Path, logs: Sequence[tuple[str, LogFiles]], log: AuditedLog, now: int
) -> Outcome:
    names = [] if places.log is not None else [name for name, _ in logs]
    policies = policies_in(log.entries) | staged_policies(home, names) if names else None
    return check_home_files(home, now, Belongs(frozenset(names), sizes_of_logs(home, names), policies))


def _audit_what_is_there(
    places: Places,
    log: AuditedLog,
    asked: Asked,
    tenant: str | None,
    needles: Sequence[str] | None,
    bundle: ReadBundle | None,
    held: Sequence[Held],
) -> _Found:
    """What there is to say of the store, be it a file, a database or not at hand."""
    database = None if places.home is None or bundle is not None else database_of(places.home)
    if places.home is not None and database is not None:
        if needles is not None:
            raise MalformedError("expected no texts to search for: a database is not searched for them")
        outcomes, shown = audit_database(places.home, database, log, asked, tenant, held, places.pages)
        return _Found(outcomes, exhibits=shown)
    if places.home is not None and (places.home / STORE).exists():
        return _audit_store(places, log, asked, tenant, needles, bundle, held)
    return _audit_log_alone(log, places, asked, held)


def _audit_log_alone(log: AuditedLog, places: Places, asked: Asked, held: Sequence[Held]) -> _Found:
    """What can be said of a log whose store is not at hand."""
    if places.home is not None and places.log is None:
        raise MalformedError("expected a store in the home")
    note = Note("store", "no store was given: whether each entry is opened or tombstoned was not looked at")
    registered, entries = check_registrations(log.entries, None, log.files, asked)
    outcomes = [registered, check_signatures((), entries, asked), Outcome(not_checked=(note,))]
    outcomes += _promises(held, log, None, asked)
    return _Found(outcomes, exhibits=exhibits_of_log(log.files, asked.trust.policy))


def _audit_store(
    places: Places,
    log: AuditedLog,
    asked: Asked,
    tenant: str | None,
    needles: Sequence[str] | None,
    bundle: ReadBundle | None,
    held: Sequence[Held],
) -> _Found:
    """What there is to say of a store, and to show of it."""
    home = places.home
    assert home is not None
    places.tell("the store")
    with copy_store(home) as snapshot:
        try:
            pages = snapshot.pages()
        except MalformedError as error:
            damaged = Finding("FACT_ALTERED", STORE, f"The file is damaged: {error.message}.")
            return _Found([Outcome((damaged,))])
        plain = tenant is None and bundle is None and needles is None and not (held or places.also)
        mark = mark_of(snapshot, log) if plain and places.state else None
        said = recall(log.before.store, mark, seen_at(log), asked)
        if said is not None:
            return _say_again(said, pages, log, asked, home)
        base = None if mark is None or places.state is None else base_of(places.state, log, asked)
        new = None if base is None else judge_new(pages, log, asked, base, places.tell)
        if new is not None:
            return replace(_say_new(new, pages, log, asked, home), mark=mark, beside=beside_of(log))
        found = _audit_rows(pages, log, asked, tenant, bundle, held, places)
        places.tell("pages")
        structure, report = check_structure(pages, found.live, places.tell)
        outcomes = [*found.outcomes, structure]
        places.tell("files")
        anew = [*found.anew, control_structure(), scan_home(home, places.also, needles, pages, report)]
        exhibits = found.exhibits
        if report is not None:
            maps = page_maps(pages, report, merge([*outcomes, *anew]).findings)
            exhibits = replace(exhibits, maps=maps)
        marks = None
        wrong = merge([*outcomes, *anew]).findings
        if mark is not None and report is not None and found.until > asked.now and not wrong:
            marks = marks_of(pages, report, found.meta, found.tips)
    places.tell("signatures")
    outcomes.append(found.signatures())
    found = replace(found, mark=mark, marks=marks, beside=beside_of(log))
    return replace(found, outcomes=outcomes, anew=anew, exhibits=exhibits)


def _say_again(said: Said, pages: Pages, log: AuditedLog, asked: Asked, home: Path) -> _Found:
    """What an earlier audit said of this very store, and what has to be asked each time."""
    with read_only(pages) as connection:
        rows = read_few(connection)
    anew = [*_promises((), log, rows, asked), check_guard_keys(home, _with_names(rows), asked.now)]
    anew += [control_structure(), scan_home(home, (), None, pages, None)]
    shown = exhibits_of_log(log.files, asked.trust.policy, rows.erasures)
    exhibits = replace(said.exhibits, heads=shown.heads, cards=shown.cards)
    text = "pages of the store, and all of its log, that are the bytes which an earlier audit has judged"
    anew.append(Outcome(checked=(Note("unchanged", text, pages.page_count),)))
    return _Found([said.outcome], anew, exhibits, log.before.rows, said=log.before.store)


def _say_new(new: Narrow, pages: Pages, log: AuditedLog, asked: Asked, home: Path) -> _Found:
    """What there is to say of a store that has more rows than an earlier audit saw, and is the same beside."""
    anew = [*_promises((), log, new.rows, asked), check_guard_keys(home, _with_names(new.rows), asked.now)]
    anew += [control_structure(), scan_home(home, (), None, pages, new.report)]
    exhibits = replace(new.exhibits, maps=page_maps(pages, new.report, merge(anew).findings))
    return _Found([new.outcome], anew, exhibits, new.digests, new.until, marks=new.marks)


def _audit_rows(
    pages: Pages,
    log: AuditedLog,
    asked: Asked,
    tenant: str | None,
    bundle: ReadBundle | None,
    held: Sequence[Held],
    places: Places,
) -> _Found:
    """Every check of rows, the numbers of the rows that are there now, what they have to show, and their digests."""
    with read_only(pages) as connection:
        require_this_version(connection)
        if missing_tables(connection):
            what = "A table of the store is not there, or is none: nothing of the store was read."
            return _Found([Outcome((Finding("FACT_ALTERED", "store.db sqlite_schema", what),))])
        if bundle is not None and bundle.bundle.scope != "all":
            if tenant is not None:
                tenant_id_of(connection, tenant)  # whose contents are not in it has no name in it, either
            part, live, exhibits = audit_part(
                connection, log, asked, bundle.bundle, _cosigned_at(log.verified)
            )
            sound = [check_sound(connection), check_strays(connection)]
            outcomes = [*part, *sound, *_promises(held, log, None, asked)]
            return _Found(outcomes, exhibits=exhibits, live=live)
        places.tell("statements")
        whole = tenant is None and bundle is None and places.state is not None
        opening = Opening(
            log.entries, places.tell, log.before.rows if whole else None, ("link",) if held else ()
        )
        rows = read_rows(connection, tenant, opening.take)
        if bundle is not None and bundle.bundle.many_writers:
            rows = replace(rows, many_writers=True)
        outcome, statements, signatures = check_rows(
            rows, log.files, log.entries, _cosigned_at(log.verified), asked, opening
        )
        outcomes, anew = [outcome], _promises(held, log, rows, asked)
        if tenant is None:
            outcomes.append(check_word_index(connection, rows, statements))
            outcomes += [check_sound(connection), check_strays(connection)]
            if bundle is None and places.home is not None:
                anew.append(check_guard_keys(places.home, _with_names(rows), asked.now))
        else:
            note = Note("other tenants", "statements of other tenants, and the word index, which all share")
            text = (
                "whether the last statements of the tenant were hidden with all their rows: the log does not say whose "
                "an entry is, so an audit of the whole store shows it, or receipts of the tenant's clients"
            )
            outcomes.append(Outcome(not_checked=(note, Note("last statements", text))))
        live = Live(
            contents=frozenset(row_numbers(connection, "contents")),
            facts=frozenset(row_numbers(connection, "facts")),
            last=max(row_numbers(connection, "events"), default=0),
        )
        vectors = read_vectors(connection)
        if vectors is not None:
            outcomes.append(check_vectors(vectors, live.contents, live.facts))
        root = b"" if log.verified is None else log.verified.checkpoint.root
        exhibits = exhibits_of_store(rows, statements, log.files, root, asked.trust.policy)
        until = holds_until(rows, statements, log.entries, asked)
    digests = tuple(opening.digests)
    tips = tips_of(statements)
    return _Found(
        outcomes, anew, exhibits, digests, until, live=live, signatures=signatures, meta=rows.meta, tips=tips
    )


def _with_names(rows: StoreRows) -> set[bytes]:
    """The numbers of the tenants that have a name: one whose last content was erased has lost it, and its key."""
    return {each.number for each in rows.tenants if each.name}


def _promises(held: Sequence[Held], log: AuditedLog, rows: StoreRows | None, asked: Asked) -> list[Outcome]:
    """What clients were given, if anything was."""
    if held:
        return [check_promises_held(held, log.entries, rows, asked)]
    text = "no receipts of clients were given: a write that was hidden with all its traces is not noticed"
    return [Outcome(not_checked=(Note("receipts", text),))]


def _cosigned_at(verified: VerifiedCheckpoint | None) -> int | None:
    cosignatures = () if verified is None else verified.cosignatures
    return max((each.timestamp for each in cosignatures), default=None)
