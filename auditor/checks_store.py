"""Checks of the store's statements: each stands where it says, and none is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from auditor.evidence import Asked, Entries, EventRow, Statement, StoreRows
from auditor.findings import Finding, Note, Outcome
from auditor.lost import count_lost, lost_of
from auditor.statements import by_commitment
from tlog.errors import MalformedError
from tlog.statement import payload_hash_of

CLOCK_SKEW_SECONDS: Final = 300
_SECOND: Final = 1_000_000
_MAX_LISTED: Final = 1000


def check_places(rows: StoreRows, statements: Sequence[Statement], entries: Entries) -> Outcome:
    """Row for row and entry for entry: the log holds what the store says, where it says, and nothing else."""
    findings: list[Finding] = []
    places, doubled = _places(entries)
    findings += [
        Finding("ORDER_ALTERED", f"log entry {index}", "The same statement stands in the log a second time.")
        for index in doubled
    ]
    claimed: dict[int, int] = {}
    known = set()
    for statement in statements:
        row = statement.row
        known.add(row.commitment)
        found = places.get(row.commitment)
        if row.entry_index is None:
            if found is not None and found < entries.size:
                what = "The log holds this statement, and the store says that it was never logged."
                findings.append(Finding("FACT_ALTERED", row.place, what, {"index": found}))
            continue
        if claimed.setdefault(row.entry_index, row.seq) != row.seq:
            what = "Two statements say that they stand at one index of the log."
            findings.append(Finding("ORDER_ALTERED", row.place, what, {"index": row.entry_index}))
        findings += _compare(row, found, entries)
    if rows.tenant_id is None:
        findings += _unknown_entries(places, known | lost_of(statements), entries.successions)
    compared = sum(1 for index in claimed if index < len(entries.entries))
    checked = Note("store and log", "statements compared with the entry at their index, both ways", compared)
    return Outcome(tuple(findings), (checked,), counts={"entries": entries.size})


def check_sequences(rows: StoreRows, statements: Sequence[Statement]) -> Outcome:
    """The numbers of statements are dense, in the store and in each tenant."""
    findings: list[Finding] = []
    lost, declared = lost_of(statements), count_lost(statements)
    # Those that never reached the log are counted, and have no name.
    missing = declared
    if lost:
        missing -= len(lost & {statement.row.commitment for statement in statements})
    if rows.tenant_id is None and not rows.many_writers:
        numbers = [statement.row.seq for statement in statements]
        # A lost one may stand between others, or have its number taken again by what was written after a restore.
        holes = (numbers[-1] if numbers else 0) - len(numbers)
        if not missing or not 0 <= holes <= missing or len(set(numbers)) < len(numbers):
            findings += _gaps(numbers, "store.db events", len(numbers))
    by_tenant: dict[int, list[int]] = {}
    for row, _, _ in statements:
        by_tenant.setdefault(row.tenant_id, []).append(row.tenant_seq)
    for tenant in rows.tenants:
        numbers = by_tenant.get(tenant.id, [])
        # Whose the lost ones were, nobody knows: a restore leaves room for all of them behind the last number that
        # it knows, and some of them may stand before that.
        distinct = len(set(numbers)) == len(numbers)
        if declared and distinct and 0 <= tenant.last_seq - len(numbers) <= 2 * declared:
            continue
        findings += _gaps(sorted(numbers), f"store.db events of tenant {tenant.id}", tenant.last_seq)
    known = {tenant.id for tenant in rows.tenants}
    strangers = statements if by_tenant.keys() - known else ()
    findings += [
        Finding("FACT_ALTERED", statement.row.place, "The statement belongs to a tenant that is not there.")
        for statement in strangers
        if statement.row.tenant_id not in known
    ]
    checked = Note("sequences", "tenants whose statements are numbered without a gap", len(rows.tenants))
    return Outcome(tuple(findings), (checked,))


def check_order(rows: StoreRows, statements: Sequence[Statement]) -> Outcome:
    """Whatever a statement acts on came before it, in its own tenant; the cache of acts says the same."""
    known = by_commitment(statements)
    lost = lost_of(statements)
    findings: list[Finding] = []
    acts: set[tuple[int, int, int, str]] = set()
    for statement in statements:
        if statement.link is None:
            continue
        for act, targets in statement.link.acts.items():
            for target in targets:
                found = known.get(target)
                fault = _order_fault(statement, found, act)
                if fault is not None and (found is not None or target not in lost):
                    code, what = fault
                    findings.append(Finding(code, statement.row.place, what, {"act": act}))
                if found is not None:
                    acts.add((statement.row.tenant_id, found.row.seq, statement.row.seq, act))
    cached = {(row.tenant_id, row.target, row.seq, row.act) for row in rows.acts}
    differing = sorted(acts ^ cached)
    for _, target_seq, seq, _ in differing[:_MAX_LISTED]:
        what = "The cache of acts differs from what the link of the statement says."
        findings.append(Finding("FACT_ALTERED", f"store.db acts seq {seq} target {target_seq}", what))
    if len(differing) > _MAX_LISTED:
        what = "The cache of acts differs from the links in more places than are listed."
        findings.append(Finding("FACT_ALTERED", "store.db acts", what, {"places": len(differing)}))
    if len(rows.acts) > len(cached):
        what = "The cache of acts says something more often than once."
        findings.append(
            Finding("FACT_ALTERED", "store.db acts", what, {"rows": len(rows.acts) - len(cached)})
        )
    checked = Note("order", "acts on earlier statements followed to their target", len(acts))
    return Outcome(tuple(findings), (checked,))


def check_times(
    rows: StoreRows, statements: Sequence[Statement], cosigned_at: int | None, entries: Entries, asked: Asked
) -> Outcome:
    """Recorded times never go back, never lie ahead, and none in the log is later than its cosignatures."""
    findings = []
    latest: dict[int, int] = {}
    count = 0
    skew = CLOCK_SKEW_SECONDS * _SECOND
    for statement in statements:
        at = statement.recorded_at
        if at is None:
            continue
        count += 1
        index = statement.row.entry_index
        bound = asked.now
        if cosigned_at is not None and index is not None and index < entries.size:
            bound = min(bound, cosigned_at * _SECOND)
        # Where many nodes write, only the statements of one tenant are written one after the other.
        order = statement.row.tenant_id if rows.many_writers else 0
        if at < latest.get(order, 0):
            what = "It says that it was recorded before a statement that came earlier."
            findings.append(Finding("TIME_IMPLAUSIBLE", statement.row.place, what))
        elif at > bound + skew:
            what = "It says that it was recorded later than a checkpoint that holds it, or than now."
            findings.append(Finding("TIME_IMPLAUSIBLE", statement.row.place, what))
        latest[order] = max(latest.get(order, 0), at)
    last = statements[-1].recorded_at if statements else None
    stated = rows.meta.get("recorded_at")
    wrong = type(stated) is not int or stated < latest.get(0, 0) or last not in (None, stated)
    if rows.tenant_id is None and not rows.many_writers and statements and wrong:
        what = "The latest time that the store keeps is not that of its last statement."
        findings.append(Finding("FACT_ALTERED", "store.db meta recorded_at", what))
    return Outcome(tuple(findings), (Note("times", "recorded times compared in order", count),))


def check_promises(statements: Sequence[Statement], entries: Entries, asked: Asked) -> Outcome:
    """Statements that no public checkpoint covers: promises while they are young, broken ones afterwards."""
    findings = []
    promises = 0
    # An erased statement has lost its time; it is at least as old as the next one that still has one.
    at: int | None = None
    oldest = asked.now - asked.trust.merge_delay_seconds * _SECOND
    for statement in reversed(statements):
        known = statement.recorded_at
        at = known if known is not None else at
        index = statement.row.entry_index
        if index is not None and index < entries.size:
            continue
        if at is not None and at < oldest:
            what = "It is older than the merge delay, and no public checkpoint covers it."
            findings.append(Finding("PROMISE_BROKEN", statement.row.place, what))
        else:
            promises += 1
    note = Note(
        "promises", "statements younger than the merge delay and not yet in a public checkpoint", promises
    )
    not_checked = (note,) if promises else ()
    return Outcome(tuple(reversed(findings)), not_checked=not_checked, counts={"promises": promises})


def _places(entries: Entries) -> tuple[dict[bytes, int], list[int]]:
    """The index of each commitment in the log, and the indexes at which one comes a second time."""
    places: dict[bytes, int] = {}
    doubled = []
    for index, entry in enumerate(entries.entries):
        if entry is None or index in entries.others:
            continue
        try:
            commitment = payload_hash_of(entry)
        except MalformedError:
            continue  # check_signatures names it
        if places.setdefault(commitment, index) != index:
            doubled.append(index)
    return places, doubled


def _compare(row: EventRow, found: int | None, entries: Entries) -> Iterator[Finding]:
    index = row.entry_index
    if index is None or not 0 <= index < len(entries.entries):
        if found is not None:
            what = "The statement stands at another index of the log than the store says."
            yield Finding("ORDER_ALTERED", row.place, what, {"index": found})
        return
    entry = entries.entries[index]
    if entry is None or entry == row.entry:
        return
    if found is not None and found != index:
        what = "The statement stands at another index of the log than the store says."
        yield Finding("ORDER_ALTERED", row.place, what, {"stated": index, "index": found})
        return
    what = "The log holds another entry than the row at its index."
    # Where the entries lead to the signed root, it is the store that differs from what was logged.
    where = row.place if entries.proved else f"log entry {index}"
    yield Finding("FACT_ALTERED" if entries.proved else "ENTRY_ALTERED", where, what, {"index": index})


def _unknown_entries(
    places: dict[bytes, int], known: set[bytes], successions: frozenset[int]
) -> Iterator[Finding]:
    for commitment, index in places.items():
        if commitment not in known and index not in successions:
            what = "The log holds a statement that the store neither opens nor has a tombstone for."
            evidence = {"commitment": commitment.hex()}
            yield Finding("WRITE_MISSING", f"log entry {index}", what, evidence)


def _gaps(numbers: Sequence[int], where: str, last: int) -> Iterator[Finding]:
    expected = 1
    for number in numbers:
        if number != expected:
            what = "The numbers of statements have a gap or a number twice."
            yield Finding("SEQUENCE_GAP", where, what, {"expected": expected, "found": number})
        expected = number + 1
    if numbers and numbers[-1] != last:
        what = "The numbers do not end where the store says."
        yield Finding("SEQUENCE_GAP", where, what, {"stated": last, "found": numbers[-1]})


def _order_fault(statement: Statement, found: Statement | None, act: str) -> tuple[str, str] | None:
    if found is None:
        return "ORDER_ALTERED", "It acts on a statement that is not there."
    if found.row.seq >= statement.row.seq:
        return "ORDER_ALTERED", "It acts on a statement that did not come before it."
    if found.row.tenant_id != statement.row.tenant_id:
        return "ORDER_ALTERED", "It acts on a statement of another tenant."
    before, after = found.row.entry_index, statement.row.entry_index
    if before is not None and after is not None and before >= after:
        return "ORDER_ALTERED", "It stands in the log before a statement that it acts on."
    if act == "erases" and found.link is not None and found.link.kind == "erase":
        return "ERASURE_STATE_FALSE", "A tombstone is erased by another tombstone."
    return None
