"""One audit from end to end: reads the evidence in the order that a running store needs, and asks every check.

The log's head is read first and the store copied afterwards: whatever the head covers was in the store before.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from auditor import erasure
from auditor.ageing import check_confirmable
from auditor.ahead import verified_ahead
from auditor.bundle import ReadBundle, is_bundle, read_bundle
from auditor.chain import AuditedLog, audit_logs, logs_in, logs_of_home, with_key_list
from auditor.checks import check_store
from auditor.checks_pages import Live, check_structure, place_hits
from auditor.checks_signatures import check_signatures
from auditor.checks_vectors import check_vectors, read_vectors
from auditor.controls import control_scanner, control_structure
from auditor.evidence import Asked, LogFiles, Statement, StoreRows
from auditor.exhibits import (
    Exhibits,
    check_heads,
    exhibits_of_log,
    exhibits_of_store,
    head_of,
)
from auditor.findings import Finding, Note, Outcome, merge
from auditor.home_files import Belongs, check_guard_keys, check_home_files, sizes_of_logs, staged_policies
from auditor.log_files import FOLDER, url_files
from auditor.monitor_state import earlier_heads
from auditor.own_heads import check_own_heads, read_own_heads
from auditor.page_map import page_maps
from auditor.part import audit_part
from auditor.pg_audit import audit_database
from auditor.pg_copy import database_of
from auditor.pins import digests_of, known_blocks
from auditor.progress import Tell, silent
from auditor.promises import Held, check_promises_held, read_held
from auditor.registrations import check_registrations, policies_in
from auditor.residue import ScanResult, scan_files
from auditor.settings import check_settings
from auditor.snapshot import STORE, copy_store, read_only
from auditor.sqlite_file import Pages
from auditor.sqlite_pages import PageReport
from auditor.state import keep_verified
from auditor.store_rows import check_soundness, missing_tables, read_rows, row_numbers, unknown_tables
from auditor.strays import check_strays
from auditor.words import Indexed, check_words
from tlog.errors import MalformedError

if TYPE_CHECKING:
    import apsw

    from tlog.policy import VerifiedCheckpoint

CANARY: Final = "CREATE TABLE contents"
"""Stands in every store, in the schema: a scan that does not find it has not read the store."""
# Held back from the start, or dropped from there: found by nobody.
_WITHHELD: Final = frozenset({"held", "refused", "discarded"})


@dataclass(frozen=True, slots=True)
class Places:
    """Where the evidence lies. `log` is a folder or a URL; without it the log is in the home."""

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
        elif places.log is not None:
            logs = logs_in(Path(places.log))
        elif places.home is not None:
            logs = logs_of_home(places.home)
        else:
            raise MalformedError("expected a home or a log to audit")
        keys, asked = with_key_list(logs[-1][1], asked, places.state)
        with_notes = places.home is not None and places.log is None and bundle is None
        own = read_own_heads(places.home, [name for name, _ in logs]) if with_notes and places.home else ()
        # Before this audit puts its own head in the place of theirs.
        earlier = () if places.state is None else earlier_heads(places.state, asked.trust.policy)
        places.tell("the log")
        log = audit_logs(logs, asked, places.state)
        ahead = verified_ahead(log.entries, asked.trust, places.processes, places.tell)
        log = replace(log, entries=stack.enter_context(ahead))
        outcomes = [keys, log.outcome] if bundle is None else [bundle.outcome, keys, log.outcome]
        database = None if places.home is None or bundle is not None else database_of(places.home)
        if places.home is not None and database is not None:
            if needles is not None:
                raise MalformedError("expected no texts to search for: a database is not searched for them")
            found, exhibits = audit_database(places.home, database, log, asked, tenant, held)
            rows: tuple[bytes, ...] = ()
        elif places.home is not None and (places.home / STORE).exists():
            found, exhibits, rows = _audit_store(places, log, asked, tenant, needles, bundle, held)
        else:
            (found, exhibits), rows = _audit_log_alone(log, places, asked, held), ()
        outcomes += found
        if places.home is not None:
            # What lies in a bundle, its own list says.
            outcomes += [] if bundle is not None else [_check_home(places, places.home, logs, log, asked.now)]
            head = None if log.verified is None else log.verified.checkpoint
            outcomes.append(check_own_heads(own, log.entries, head))
            outcomes.append(check_settings(places.home, asked, places.state))
        outcomes.append(check_heads(exhibits.heads, log.entries))
        if needles is not None:
            outcomes.append(check_confirmable(log.entries, needles))
        outcomes += [_compare_manifest(path, log.files) for path in places.manifests]
    if log.verified is not None:
        heads = (*earlier, *exhibits.heads, head_of(log.verified, "checkpoint"))
        exhibits = replace(exhibits, heads=heads)
    whole = merge(outcomes)
    every = tenant is None and bundle is None
    if every and places.state is not None and log.verified is not None and not whole.findings:
        keep_verified(places.state, log.verified, asked.trust, rows)
    return Audited(whole, log.verified, exhibits)


def _check_home(
    places: Places, home: Path, logs: Sequence[tuple[str, LogFiles]], log: AuditedLog, now: int
) -> Outcome:
    names = [] if places.log is not None else [name for name, _ in logs]
    policies = policies_in(log.entries) | staged_policies(home, names) if names else None
    return check_home_files(home, now, Belongs(frozenset(names), sizes_of_logs(home, names), policies))


def _audit_log_alone(
    log: AuditedLog, places: Places, asked: Asked, held: Sequence[Held]
) -> tuple[list[Outcome], Exhibits]:
    """What can be said of a log whose store is not at hand."""
    if places.home is not None and places.log is None:
        raise MalformedError("expected a store in the home")
    note = Note("store", "no store was given: whether each entry is opened or tombstoned was not looked at")
    registered, entries = check_registrations(log.entries, None, log.files, asked)
    outcomes = [registered, check_signatures((), entries, asked), Outcome(not_checked=(note,))]
    outcomes += _promises(held, log, None, asked)
    return outcomes, exhibits_of_log(log.files, asked.trust.policy)


def _audit_store(
    places: Places,
    log: AuditedLog,
    asked: Asked,
    tenant: str | None,
    needles: Sequence[str] | None,
    bundle: ReadBundle | None,
    held: Sequence[Held],
) -> tuple[list[Outcome], Exhibits, tuple[bytes, ...]]:
    """What there is to say of a store, to show of it, and the digests of its rows."""
    home = places.home
    assert home is not None
    pages: Pages | None = None
    report: PageReport | None = None
    places.tell("the store")
    with copy_store(home) as snapshot:
        try:
            pages = snapshot.pages()
        except MalformedError as error:
            damaged = Finding("FACT_ALTERED", STORE, f"The file is damaged: {error.message}.")
            return [Outcome((damaged,))], Exhibits(), ()
        outcomes, live, exhibits, digests = _audit_rows(pages, log, asked, tenant, bundle, held, places)
        places.tell("pages")
        structure, report = check_structure(pages, live, places.tell)
        outcomes += [structure, control_structure()]
        places.tell("files")
        outcomes.append(_scan(home, places.also, needles, pages, report))
        if report is not None:
            maps = page_maps(pages, report, merge(outcomes).findings)
            exhibits = replace(exhibits, maps=maps)
    return outcomes, exhibits, digests


def _audit_rows(
    pages: Pages,
    log: AuditedLog,
    asked: Asked,
    tenant: str | None,
    bundle: ReadBundle | None,
    held: Sequence[Held],
    places: Places,
) -> tuple[list[Outcome], Live, Exhibits, tuple[bytes, ...]]:
    """Every check of rows, the numbers of the rows that are there now, what they have to show, and their digests."""
    with read_only(pages) as connection:
        if missing_tables(connection):
            what = "A table of the store is not there, or is none: nothing of the store was read."
            return (
                [Outcome((Finding("FACT_ALTERED", "store.db sqlite_schema", what),))],
                Live(),
                Exhibits(),
                (),
            )
        if bundle is not None and bundle.bundle.scope != "all":
            part, live, exhibits = audit_part(
                connection, log, asked, bundle.bundle, _cosigned_at(log.verified)
            )
            sound = [_check_soundness(connection), check_strays(connection)]
            return [*part, *sound, *_promises(held, log, None, asked)], live, exhibits, ()
        rows = read_rows(connection, tenant)
        tell = places.tell
        tell("statements")
        whole = tenant is None and bundle is None and places.state is not None
        digests = tuple(digests_of(rows.events)) if whole else ()
        known = known_blocks(digests, log.rows)
        outcome, statements = check_store(
            rows, log.files, log.entries, _cosigned_at(log.verified), asked, tell, known
        )
        outcomes = [outcome, *_promises(held, log, rows, asked)]
        if tenant is None:
            outcomes.append(_check_words(connection, rows, statements))
            outcomes += [_check_soundness(connection), check_strays(connection)]
            # One whose last content was erased has lost its name, and its key.
            numbers = {each.number for each in rows.tenants if each.name}
            if bundle is None and places.home is not None:
                outcomes.append(check_guard_keys(places.home, numbers, asked.now))
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
    return outcomes, live, exhibits, digests


def _promises(held: Sequence[Held], log: AuditedLog, rows: StoreRows | None, asked: Asked) -> list[Outcome]:
    """What clients were given, if anything was."""
    if held:
        return [check_promises_held(held, log.entries, rows, asked)]
    text = "no receipts of clients were given: a write that was hidden with all its traces is not noticed"
    return [Outcome(not_checked=(Note("receipts", text),))]


def _cosigned_at(verified: VerifiedCheckpoint | None) -> int | None:
    cosignatures = () if verified is None else verified.cosignatures
    return max((each.timestamp for each in cosignatures), default=None)


def _check_words(connection: apsw.Connection, rows: StoreRows, statements: Sequence[Statement]) -> Outcome:
    contents = {statement.row.seq: statement.content for statement in statements}
    facts = [
        Indexed(fact.seq, fact.agent_tag, content)
        for fact in rows.facts
        if fact.status not in _WITHHELD and (content := contents.get(fact.seq)) is not None
    ]
    return check_words(connection, facts)


def _check_soundness(connection: apsw.Connection) -> Outcome:
    findings = [Finding("FACT_ALTERED", flaw.where, flaw.what) for flaw in check_soundness(connection)]
    findings += [
        Finding(
            "RESIDUE_ROW",
            f"store.db sqlite_schema row {row}",
            "The store has a table, view or trigger that no store has.",
        )
        for row in unknown_tables(connection)
    ]
    return Outcome(tuple(findings), (Note("soundness", "SQLite's own check of tables against indexes"),))


def _scan(
    home: Path,
    also: Sequence[Path],
    needles: Sequence[str] | None,
    pages: Pages,
    report: PageReport | None,
) -> Outcome:
    """The texts that the caller gave, looked for in every file of the home and of the other places."""
    if needles is None:
        text = "no texts to search for were given: residue was judged by its structure alone"
        notes = [Note("needles", text)]
        if also:
            if not all(place.exists() for place in also):
                raise MalformedError("expected an existing file or folder to scan")
            notes.append(Note("also", "other places, which only texts can be searched for in", len(also)))
        return Outcome(not_checked=tuple(notes))
    control = control_scanner()
    result = scan_files([home, *also], needles, canary=CANARY)
    findings = list(place_hits(result.hits, pages, report))
    if not result.control_found:
        what = "The scan did not find a text that stands in every store."
        findings.append(Finding("CONTROL_FAILED", "control of the scan", what))
    checked = Note(
        "needles", f"files searched for {len(needles) - result.not_searchable} texts", result.files
    )
    not_checked = _not_searched(result)
    if not_checked:
        what = "Something was not searched, so that a text was not found in the rest shows nothing."
        findings.append(Finding("CONTROL_FAILED", "scan for texts", what, {"gaps": len(not_checked)}))
    counts = {"files": result.files, "bytes_scanned": result.bytes_scanned}
    return merge([control, Outcome(tuple(findings), (checked,), not_checked, counts)])


def _not_searched(result: ScanResult) -> tuple[Note, ...]:
    notes = []
    if result.not_searchable:
        text = "texts too short to be searched for"
        notes.append(Note("needles", text, result.not_searchable))
    notes += [Note("files", f"{name} could not be read, or is a link") for name in result.not_read]
    notes += [
        Note("files", f"{name} holds something packed that was not opened, or not to its end")
        for name in result.not_opened
    ]
    return tuple(notes)


def _compare_manifest(path: Path, files: LogFiles) -> Outcome:
    """A manifest that somebody was given, against the one that the log has under its number."""
    try:
        data = path.read_bytes()
        manifest = erasure.decode_manifest(data)
    except OSError:
        raise MalformedError("expected a manifest that can be read") from None
    where = f"log {erasure.FOLDER}{manifest.number}.cose"
    if files.read(f"{erasure.FOLDER}{manifest.number}.cose") == data:
        return Outcome(checked=(Note("manifest", "given manifest that the log has, byte for byte", 1),))
    what = "The manifest that was given is not the one that the log has under its number."
    return Outcome((Finding("MANIFEST_ALTERED", where, what),))
