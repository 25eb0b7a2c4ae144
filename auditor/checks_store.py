"""Checks of the store's statements: each opens, stands where it says, and none is missing."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import cbor2

from auditor.evidence import Asked, Entries, EventRow, Statement, StoreRows, TenantRow
from auditor.findings import Finding, Note, Outcome
from auditor.lost import count_lost, lost_of
from auditor.pins import BLOCK
from auditor.progress import EVERY, Tell, silent
from memory import event
from tlog.errors import MalformedError, VerificationError
from tlog.statement import payload_hash_of

CLOCK_SKEW_SECONDS: Final = 300
_SECOND: Final = 1_000_000
_UNNAMED: Final = "default"
"""The tenant of callers that name none: it keeps its name."""


def open_statements(
    rows: StoreRows, tell: Tell = silent, known: Container[int] = ()
) -> tuple[Outcome, tuple[Statement, ...]]:
    """Every row of events decoded, its link and content re-hashed with their salts against C and its entry.

    `known` are the blocks of rows (`auditor.pins`) which an earlier audit has so opened: they are read alone.
    """
    findings: list[Finding] = []
    tenants = {tenant.id: tenant for tenant in rows.tenants}
    statements = []
    opened = reread = 0
    for count, row in enumerate(rows.events):
        if not count % EVERY:
            tell("statements", count, len(rows.events))
        tenant = tenants.get(row.tenant_id)
        again = count // BLOCK in known
        statement, faults = _open_again(row, tenant) if again else _open(row, tenant)
        reread += again
        statements.append(statement)
        opened += statement.content is not None
        findings += [Finding("FACT_ALTERED", where, what) for where, what in faults]
    findings += [
        Finding("FACT_UNLOGGED", f"store.db contents seq {seq}", "A content belongs to no statement.")
        for seq in rows.stray_contents
    ]
    findings += [Finding("FACT_ALTERED", flaw.where, flaw.what) for flaw in rows.flaws]
    findings += _check_names(tenants, statements)
    findings += _check_nameless(rows, statements)
    checked = [
        Note(
            "links",
            "links hashed with their salts up to the commitment that was signed",
            len(statements) - reread,
        ),
        Note("contents", "contents hashed with their salts up to the commitment that was signed", opened),
    ]
    if reread:
        text = "statements that an earlier audit opened under the same trust, in rows that are the same bytes"
        checked.append(Note("links", text, reread))
    counts = {"statements": len(statements), "opened": opened}
    return Outcome(tuple(findings), tuple(checked), counts=counts), tuple(statements)


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
    missing = declared - len(lost & {statement.row.commitment for statement in statements})
    if rows.tenant_id is None and not rows.many_writers:
        numbers = [statement.row.seq for statement in statements]
        # A lost one may stand between others, or have its number taken again by what was written after a restore.
        holes = (numbers[-1] if numbers else 0) - len(numbers)
        if not missing or not 0 <= holes <= missing or len(set(numbers)) < len(numbers):
            findings += _gaps(numbers, "store.db events", len(numbers))
    for tenant in rows.tenants:
        numbers = [each.row.tenant_seq for each in statements if each.row.tenant_id == tenant.id]
        # Whose the lost ones were, nobody knows: a restore leaves room for all of them behind the last number that
        # it knows, and some of them may stand before that.
        distinct = len(set(numbers)) == len(numbers)
        if declared and distinct and 0 <= tenant.last_seq - len(numbers) <= 2 * declared:
            continue
        findings += _gaps(sorted(numbers), f"store.db events of tenant {tenant.id}", tenant.last_seq)
    known = {tenant.id for tenant in rows.tenants}
    findings += [
        Finding("FACT_ALTERED", statement.row.place, "The statement belongs to a tenant that is not there.")
        for statement in statements
        if statement.row.tenant_id not in known
    ]
    checked = Note("sequences", "tenants whose statements are numbered without a gap", len(rows.tenants))
    return Outcome(tuple(findings), (checked,))


def check_order(rows: StoreRows, statements: Sequence[Statement]) -> Outcome:
    """Whatever a statement acts on came before it, in its own tenant; the cache of acts says the same."""
    by_commitment = {statement.row.commitment: statement for statement in statements}
    lost = lost_of(statements)
    findings: list[Finding] = []
    acts: set[tuple[int, int, int, str]] = set()
    for statement in statements:
        if statement.link is None:
            continue
        for act, targets in statement.link.acts.items():
            for target in targets:
                found = by_commitment.get(target)
                fault = _order_fault(statement, found, act)
                if fault is not None and (found is not None or target not in lost):
                    code, what = fault
                    findings.append(Finding(code, statement.row.place, what, {"act": act}))
                if found is not None:
                    acts.add((statement.row.tenant_id, found.row.seq, statement.row.seq, act))
    cached = {(row.tenant_id, row.target, row.seq, row.act) for row in rows.acts}
    for _, target_seq, seq, _ in sorted(acts ^ cached):
        what = "The cache of acts differs from what the link of the statement says."
        findings.append(Finding("FACT_ALTERED", f"store.db acts seq {seq} target {target_seq}", what))
    checked = Note("order", "acts on earlier statements followed to their target", len(acts))
    return Outcome(tuple(findings), (checked,))


def check_salts(statements: Iterable[Statement]) -> Outcome:
    """No salt is used twice: two openings under one salt would tell whether they are equal."""
    seen: dict[bytes, str] = {}
    findings = []
    for statement in statements:
        for name, salt in (("link", statement.row.link_salt), ("content", statement.row.content_salt)):
            if salt is None:
                continue
            place = f"{statement.row.place}, salt of the {name}"
            first = seen.setdefault(salt, place)
            if first != place:
                findings.append(Finding("SALT_REUSED", place, "A salt is used twice.", {"first": first}))
    return Outcome(tuple(findings), (Note("salts", "salts compared with each other", len(seen)),))


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


def _open(row: EventRow, tenant: TenantRow | None) -> tuple[Statement, list[tuple[str, str]]]:
    """The statement of a row and its faults, each with its place."""
    faults: list[tuple[str, str]] = []
    link = content = None
    try:
        if payload_hash_of(row.entry) != row.commitment:
            faults.append((row.place, "The signed entry states another commitment than the row."))
    except MalformedError:
        faults.append((row.place, "The signed entry is not one."))
    try:
        event.open_link(row.commitment, row.link, row.link_salt, row.content_hash)
        link = event.decode_link(row.link)
    except VerificationError:
        faults.append(
            (row.place, "Link, salt of the link and hash of the content do not open the commitment.")
        )
    except MalformedError:
        faults.append((row.place, "The link or its salt is not what a link can be."))
    if link is not None:
        named = None if tenant is None else tenant.number
        if (link.seq, link.tenant_seq) != (row.seq, row.tenant_seq) or named not in (None, link.tenant):
            faults.append((row.place, "The row has other numbers or another tenant than its signed link."))
    if row.content is not None and row.content_salt is not None:
        where = f"store.db contents seq {row.seq}"
        try:
            if event.content_hash(row.content, row.content_salt) != row.content_hash:
                faults.append((where, "The content or its salt is not the one that was promised."))
            else:
                content = event.decode_content(row.content)
        except MalformedError:
            faults.append((where, "The content or its salt is not what one can be."))
    return Statement(row, link, content), faults


def _open_again(row: EventRow, tenant: TenantRow | None) -> tuple[Statement, list[tuple[str, str]]]:
    """The same of a row in which an earlier audit found no fault: only what is not in the row itself is compared."""
    link = event.decode_link(row.link)
    content = None
    if row.content is not None:
        read = cbor2.loads(row.content)
        content = dict(zip(_same(tuple(read)), read.values(), strict=True))
    if tenant is not None and link.tenant != tenant.number:
        return _open(row, tenant)
    return Statement(row, link, content), []


@lru_cache(maxsize=256)
def _same(names: tuple[str, ...]) -> tuple[str, ...]:
    """The same texts each time: those of all contents are a few, and each is in memory once."""
    return names


def _check_names(tenants: Mapping[int, TenantRow], statements: Sequence[Statement]) -> Iterator[Finding]:
    """A tenant has the name that the contents of its statements say."""
    wrong = set()
    for statement in statements:
        tenant, content = tenants.get(statement.row.tenant_id), statement.content or {}
        if tenant is not None and content.get("tenant", tenant.name) != tenant.name:
            wrong.add(tenant.id)
    for number in sorted(wrong):
        what = "The tenant has another name than its statements say."
        yield Finding("FACT_ALTERED", f"store.db tenants row {number}", what)


def _check_nameless(rows: StoreRows, statements: Sequence[Statement]) -> Iterator[Finding]:
    """A tenant of which an erasure has left nothing has no name either."""
    kept = {row.tenant_id for table in (rows.facts, rows.ledger, rows.requests) for row in table}
    for statement in statements:
        unread = statement.content is None and statement.row.content is not None
        # What expires later leaves without an erasure that could take the name along.
        passing = statement.link is not None and statement.link.details.get("guard") == "expire"
        if unread or passing or "tenant" in (statement.content or {}):
            kept.add(statement.row.tenant_id)
    for tenant in rows.tenants:
        if tenant.name not in ("", _UNNAMED) and tenant.id not in kept:
            what = "The name of a tenant is there, of which nothing is left that could say it."
            yield Finding("RESIDUE_ROW", f"store.db tenants row {tenant.id}", what)


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
