"""The checks of what is new in a store, and of what it touches, where all else is as an earlier audit judged it.

A statement that nothing new touches has the verdict that it had. Of those that are, every check of statements is asked,
with all statements and rows that it may look at; what is said of the store as a whole is counted on from where it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import cbor2

from auditor import checks_caches, checks_facts, checks_guard, checks_ledger, checks_store
from auditor.act_targets import check_acts
from auditor.ageing import check_age
from auditor.chain import AuditedLog
from auditor.checks_conflicts import check_conflicts
from auditor.checks_grants import check_grants
from auditor.checks_signatures import check_signatures
from auditor.evidence import Asked, Entries, Statement, StoreRows
from auditor.findings import Outcome
from auditor.fold import fold
from auditor.given import check_given
from auditor.holds import check_holds
from auditor.opening import Opening, check_salts, judge_opened
from auditor.row_marks import KINDS, Keyed, RowMarks, settings_of
from auditor.statement_form import check_forms
from auditor.states import Recount, check_states
from auditor.store_rows import read_some
from auditor.touched import is_in
from tlog.errors import MalformedError

if TYPE_CHECKING:
    import apsw

NOTHING: Final = {"facts": "0", "acts": "0", "conflicts": "0", "ledger": "0", "idempotency": "0"}
_KINDS: Final = frozenset(
    {"write", "state", "retract", "confirm", "discard", "resolve", "begin", "corroborate", "reaffirm"}
)
"""What may come: anything else changes what is said of the store as a whole."""
_MAX_UNDATED: Final = 1024
_MAX_SAMPLED: Final = 32
_SEQUENCES: Final = """
    SELECT tenant, max(iif(seq <= ?, tenant_seq, 0)), max(tenant_seq), min(tenant_seq), count(*)
    FROM events INDEXED BY sqlite_autoindex_events_2 GROUP BY tenant
"""
_OF_TENANT: Final = """
    SELECT c.seq, c.content FROM events e CROSS JOIN contents c ON c.seq = e.seq
    WHERE e.tenant = ? AND e.seq <= ? ORDER BY e.tenant_seq DESC LIMIT ?
"""


@dataclass(frozen=True, slots=True)
class Base:
    """What an earlier audit kept: of rows, and what it said."""

    marks: RowMarks
    said: Mapping[str, Any]

    @property
    def last(self) -> int:
        """The number of the last statement that was there then."""
        return self.marks.last


def always(connection: apsw.Connection, base: Base, last: int) -> set[int]:
    """Statements that are looked at whatever is new: the new ones, the last that tells a time, and for each tenant one
    that says its name."""
    found = set(range(base.last + 1, last + 1)) | {1}
    sql = "SELECT coalesce(max(seq), 0) FROM contents WHERE seq <= ?"
    (dated,) = _one(connection, sql, base.last)
    if base.last - dated > _MAX_UNDATED:
        raise MalformedError("expected statements that tell their time")
    found |= set(range(max(dated, 1), base.last + 1))
    for (tenant,) in connection.execute("SELECT id FROM tenants").fetchall():
        contents = list(connection.execute(_OF_TENANT, (tenant, base.last, _MAX_SAMPLED)))
        named = [seq for seq, content in contents if "tenant" in cbor2.loads(content)]
        sql = "SELECT EXISTS (SELECT 1 FROM events WHERE tenant = ? AND seq <= ?)"
        if not named and _one(connection, sql, tenant, base.last) != (0,):
            raise MalformedError("expected a statement that says the name of its tenant")
        found |= set(named[:1])
    return found


def read_touched(connection: apsw.Connection, seqs: set[int], base: Base, opening: Opening) -> StoreRows:
    """The rows of these statements, and those of the caches that speak of them."""
    of_keys = f"""id IN (SELECT l.id FROM facts f CROSS JOIN ledger l ON l.tenant = f.tenant AND l.key_tag = f.key_tag
                  WHERE {is_in("f.seq", seqs)})"""
    chosen = {
        "events": is_in("e.seq", seqs),
        "facts": is_in("seq", seqs),
        "acts": is_in("seq", seqs),
        "conflicts": is_in("seq", seqs),
        # Those that name no fact an erasure has left: it is counted how many.
        "ledger": f"{is_in('source', seqs)} OR source IS NULL OR {of_keys}",
        "idempotency": f"id > {base.marks.tables['idempotency'].last}",
    }
    return read_some(connection, chosen, opening.take)


def check_touched(
    rows: StoreRows, statements: Sequence[Statement], opening: Opening, asked: Asked
) -> tuple[list[Outcome], list[Outcome]]:
    """Every check that a statement, with all that it has to do with, can be asked for alone: those that look at
    nothing else, and those that may miss what is elsewhere, so that their findings have to be asked of everything.
    """
    folded = fold(statements)
    alone = [
        checks_facts.check_facts(rows, statements, folded),
        checks_caches.check_caches(rows, statements),
        check_conflicts(rows, statements),
        check_holds(rows, statements, asked),
    ]
    together = [
        judge_opened(rows, opening),
        check_salts(opening),
        checks_store.check_order(rows, statements),
        check_forms(statements),
        check_acts(statements, folded),
        check_grants(rows, statements),
        checks_facts.check_opened(statements, folded),
        checks_ledger.check_ledger(rows, statements, folded, asked.now),
        checks_guard.check_returned(statements, folded),
        check_given(rows, statements, asked),
        check_age(rows, asked),
    ]
    return alone, together


def check_grown(
    connection: apsw.Connection,
    rows: StoreRows,
    statements: Sequence[Statement],
    log: AuditedLog,
    asked: Asked,
    base: Base,
) -> list[Outcome]:
    """The whole counted on: numbers, places in the log, times, promises, state statements, signatures.

    Raises MalformedError where that is not what came of nothing but new statements.
    """
    new = [one for one in statements if one.row.seq > base.last]
    _require_grown(new, log.entries, base)
    tips = _require_dense(connection, rows, base)
    cosigned = () if log.verified is None else log.verified.cosignatures
    cosigned_at = max((each.timestamp for each in cosigned), default=None)
    dated = max(
        (one.row.seq for one in statements if one.row.seq <= base.last and one.recorded_at), default=0
    )
    recent = [one for one in statements if one.row.seq >= dated]
    return [
        checks_store.check_times(rows, recent, cosigned_at, log.entries, asked),
        checks_store.check_promises(new, log.entries, asked),
        check_states(rows, new, _recount(connection, base, tips)),
        checks_guard.count_unguarded(new),
        check_signatures(new, Entries(0), asked, log.entries),
    ]


def require_settings(rows: StoreRows, marks: RowMarks, keyed: Keyed) -> None:
    """Returns if the settings of the store are those that it had; MalformedError otherwise."""
    if keyed.of(settings_of(rows.meta)) != marks.settings:
        raise MalformedError("expected the settings that the store had")


def _require_grown(new: Sequence[Statement], entries: Entries, base: Base) -> None:
    """Returns if these follow the ones that were there, and the entries that came are theirs, one for one."""
    if [one.row.seq for one in new] != list(range(base.last + 1, base.last + 1 + len(new))):
        raise MalformedError("expected statements that follow the last one")
    for one in new:
        if one.link is None or one.content is None or one.link.kind not in _KINDS:
            raise MalformedError("expected statements that were only added")
    indexes = [one.row.entry_index for one in new if one.row.entry_index is not None]
    first = base.said["counts"]["entries"]
    if sorted(indexes) != list(range(first, entries.size)) or len(entries.entries) != entries.size:
        raise MalformedError("expected entries of these statements alone")
    if any(
        entries.entries[one.row.entry_index] != one.row.entry
        for one in new
        if one.row.entry_index is not None
    ):
        raise MalformedError("expected each entry where its statement says")


def _require_dense(connection: apsw.Connection, rows: StoreRows, base: Base) -> dict[bytes, int]:
    """Where the sequence of each tenant ended then, by its number, if all of them are dense; MalformedError else."""
    tenants = {tenant.id: tenant for tenant in rows.tenants}
    ends = {}
    found = list(connection.execute(_SEQUENCES, (base.last,)))
    for tenant, before, end, first, count in found:
        if (first, count) != (1, end) or tenants[tenant].last_seq != end:
            raise MalformedError("expected sequences without a gap")
        if before:
            ends[tenants[tenant].number] = before
    if len(found) != len(tenants):
        raise MalformedError("expected statements of each tenant")
    return ends


def _recount(connection: apsw.Connection, base: Base, tips: dict[bytes, int]) -> Recount:
    """What the statements of then add up to."""
    ends = [(kind, seq) for kind, seq in zip(KINDS, base.marks.tips, strict=True) if seq]
    opening = Opening(Entries(0))
    read_some(connection, {**NOTHING, "events": is_in("e.seq", (seq for _, seq in ends))}, opening.take)
    by_seq = {one.row.seq: one for one in opening.statements}
    recount = Recount()
    for kind, seq in ends:
        link = by_seq[seq].link
        if link is None or link.kind != kind:
            raise MalformedError("expected the last statement of each kind where it was")
        recount.take(by_seq[seq])
    recount.counts, recount.number, recount.tips = (
        Counter(base.said["kinds"]),
        base.said["counts"]["states"],
        tips,
    )
    return recount


def _one(connection: apsw.Connection, sql: str, *values: Any) -> tuple[Any, ...]:
    rows: list[tuple[Any, ...]] = connection.execute(sql, values).fetchall()
    return rows[0]
