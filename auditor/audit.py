"""One audit from end to end: reads the evidence in the order that a running store needs, and asks every check.

The log's head is read first and the store copied afterwards: whatever the head covers was in the store before.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from auditor import checks_store, erasure
from auditor.chain import AuditedLog, audit_logs, logs_of_home, with_key_list
from auditor.checks import check_store
from auditor.checks_pages import Live, check_structure, place_hits
from auditor.controls import control_scanner, control_structure
from auditor.evidence import Asked, LogFiles, Statement, StoreRows
from auditor.findings import Finding, Note, Outcome, merge
from auditor.log_files import FOLDER, folder_files, url_files
from auditor.residue import scan_files
from auditor.snapshot import STORE, copy_store, read_only
from auditor.sqlite_file import Pages
from auditor.sqlite_pages import PageReport
from auditor.store_rows import check_soundness, read_rows, row_numbers, unknown_tables
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


@dataclass(frozen=True, slots=True)
class Audited:
    """The outcome, and the checkpoint that everything was judged against, if there is one."""

    outcome: Outcome
    verified: VerifiedCheckpoint | None


def audit(places: Places, asked: Asked, *, tenant: str | None, needles: Sequence[str] | None) -> Audited:
    """What every check has to say about the evidence. Raises MalformedError for places that are none."""
    with ExitStack() as stack:
        if places.log is not None and places.log.startswith(("http://", "https://")):
            logs = [(FOLDER, stack.enter_context(url_files(places.log)))]
        elif places.log is not None:
            logs = [(FOLDER, folder_files(Path(places.log)))]
        elif places.home is not None:
            logs = logs_of_home(places.home)
        else:
            raise MalformedError("expected a home or a log to audit")
        keys, asked = with_key_list(logs[-1][1], asked, places.state)
        log = audit_logs(logs, asked, places.state)
        outcomes = [keys, log.outcome]
        if places.home is not None and (places.home / STORE).exists():
            outcomes += _audit_store(places.home, log, asked, tenant, needles, places.also)
        else:
            outcomes += _audit_log_alone(log, places, asked)
        outcomes += [_compare_manifest(path, log.files) for path in places.manifests]
    return Audited(merge(outcomes), log.verified)


def _audit_log_alone(log: AuditedLog, places: Places, asked: Asked) -> list[Outcome]:
    """What can be said of a log whose store is not at hand."""
    if places.home is not None and places.log is None:
        raise MalformedError("expected a store in the home")
    note = Note("store", "no store was given: whether each entry is opened or tombstoned was not looked at")
    return [checks_store.check_signatures((), log.entries, asked), Outcome(not_checked=(note,))]


def _audit_store(
    home: Path,
    log: AuditedLog,
    asked: Asked,
    tenant: str | None,
    needles: Sequence[str] | None,
    also: Sequence[Path],
) -> list[Outcome]:
    pages: Pages | None = None
    report: PageReport | None = None
    with copy_store(home) as snapshot:
        try:
            pages = snapshot.pages()
        except MalformedError as error:
            return [Outcome((Finding("FACT_ALTERED", STORE, f"The file is damaged: {error.message}."),))]
        outcomes, live = _audit_rows(pages, log, asked, tenant)
        structure, report = check_structure(pages, live)
        outcomes += [structure, control_structure()]
        outcomes.append(_scan(home, also, needles, pages, report))
    return outcomes


def _audit_rows(
    pages: Pages, log: AuditedLog, asked: Asked, tenant: str | None
) -> tuple[list[Outcome], Live]:
    """Every check of rows, and the numbers of the rows that are there now."""
    with read_only(pages) as connection:
        rows = read_rows(connection, tenant)
        outcome, statements = check_store(rows, log.files, log.entries, _cosigned_at(log.verified), asked)
        outcomes = [outcome]
        if tenant is None:
            outcomes.append(_check_words(connection, rows, statements))
            outcomes.append(_check_soundness(connection))
        else:
            note = Note("other tenants", "statements of other tenants, and the word index, which all share")
            outcomes.append(Outcome(not_checked=(note,)))
        live = Live(
            contents=frozenset(row_numbers(connection, "contents")),
            facts=frozenset(row_numbers(connection, "facts")),
            last=max(row_numbers(connection, "events"), default=0),
        )
    return outcomes, live


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
            "RESIDUE_ROW", f"store.db {name}", "The store has a table, view or trigger that no store has."
        )
        for name in unknown_tables(connection)
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
        note = Note("needles", "no texts to search for were given: residue was judged by its structure alone")
        return Outcome(not_checked=(note,))
    control = control_scanner()
    result = scan_files([home, *also], needles, canary=CANARY)
    findings = list(place_hits(result.hits, pages, report))
    if not result.control_found:
        what = "The scan did not find a text that stands in every store."
        findings.append(Finding("CONTROL_FAILED", "control of the scan", what))
    checked = Note(
        "needles", f"files searched for {len(needles) - result.not_searchable} texts", result.files
    )
    not_checked = []
    if result.not_searchable:
        text = "texts too short to be searched for"
        not_checked.append(Note("needles", text, result.not_searchable))
    not_checked += [Note("files", f"{name} could not be read, or is a link") for name in result.not_read]
    not_checked += [
        Note("files", f"{name} holds more compressed data than is opened") for name in result.not_opened
    ]
    counts = {"files": result.files, "bytes_scanned": result.bytes_scanned}
    return merge([control, Outcome(tuple(findings), (checked,), tuple(not_checked), counts)])


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
