"""What an audit of what is new has to say and to show: what was said of the rest before, and what came to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from auditor import pins
from auditor.chain import AuditedLog
from auditor.evidence import Asked, Entries, Statement
from auditor.exhibits import Backup, Exhibits, Sampled, sampled
from auditor.findings import Note, Outcome
from auditor.narrow_checks import NOTHING, Base
from auditor.opening import Opening
from auditor.row_marks import KINDS
from auditor.store_rows import read_some
from auditor.touched import is_in

if TYPE_CHECKING:
    import apsw

_COUNTED_ON: Final = ("unguarded_writes",)
_AS_BEFORE: Final = ("tombstoned", "tombstones", "manifests", "holds", "on_hold")
"""No statement came that could change them."""
_TEXT: Final = "statements that nothing new touches: their rows are those that an earlier audit judged"


def told(
    outcome: Outcome, base: Base, new: Sequence[Statement], statuses: Mapping[str, int], touched: int
) -> Outcome:
    """The outcome of a store of which what is new was judged, with the counts of all of it."""
    said, last = base.said["counts"], base.last + len(new)
    counts = dict(outcome.counts)
    counts |= {name: said.get(name, 0) + counts.get(name, 0) for name in _COUNTED_ON}
    counts |= {name: said[name] for name in _AS_BEFORE if name in said}
    counts |= {"statements": last, "opened": said["opened"] + len(new), "facts": sum(statuses.values())}
    counts = {name: count for name, count in counts.items() if not name.startswith("facts_")}
    counts |= {f"facts_{status}": count for status, count in statuses.items()}
    known = {(note.check, note.text) for note in outcome.not_checked}
    before = (Note(*note) for note in base.said["not_checked"] if tuple(note[:2]) not in known)
    return replace(
        outcome,
        checked=(*outcome.checked, Note("unchanged", _TEXT, last - touched)),
        not_checked=(*outcome.not_checked, *before),
        counts=counts,
    )


def exhibits_now(
    connection: apsw.Connection,
    base: Base,
    new: Sequence[Statement],
    shown: Exhibits,
    statuses: Mapping[str, int],
    drawn: Sequence[int],
) -> Exhibits:
    """What the whole store has to show, beside what its log shows."""
    kinds = Counter(base.said["kinds"]) + Counter(one.link.kind for one in new if one.link is not None)
    return replace(
        shown,
        kinds=dict(sorted(kinds.items())),
        statuses=dict(sorted(statuses.items())),
        sample=_sample(connection, drawn),
        backups=tuple(Backup(**one) for one in base.said["backups"]),
    )


def digests_now(connection: apsw.Connection, log: AuditedLog, base: Base) -> tuple[bytes, ...]:
    """The digests of blocks of rows, of which the first are those that an earlier audit has kept."""
    whole = min(base.last // pins.BLOCK, len(log.before.rows))
    opening = Opening(Entries(0), earlier=())
    read_some(connection, {**NOTHING, "events": f"e.seq > {whole * pins.BLOCK}"}, opening.take)
    return (*log.before.rows[:whole], *opening.digests)


def until_now(base: Base, new: Sequence[Statement], asked: Asked) -> int:
    """The first moment at which the same bytes may be judged otherwise: now, if a new statement is not in the log."""
    until: int = base.said["until"]
    return asked.now if any(one.row.entry_index is None for one in new) else until


def tips_now(tips: Sequence[int], new: Sequence[Statement]) -> tuple[int, ...]:
    """The number of the last statement of each of a few kinds."""
    found = dict(zip(KINDS, tips, strict=True))
    for one in new:
        if one.link is not None and one.link.kind in found:
            found[one.link.kind] = one.row.seq
    return tuple(found.values())


def tips_of(statements: Sequence[Statement]) -> tuple[int, ...]:
    """The same of all statements of a store."""
    return tips_now((0,) * len(KINDS), statements)


def retired_values(connection: apsw.Connection) -> int:
    """How many rows the value ledger has."""
    rows: list[Any] = connection.execute("SELECT count(*) FROM ledger").fetchall()
    count: int = rows[0][0]
    return count


def _sample(connection: apsw.Connection, drawn: Sequence[int]) -> tuple[Sampled, ...]:
    opening = Opening(Entries(0))
    read_some(connection, {**NOTHING, "events": is_in("e.seq", drawn)}, opening.take)
    sql = f"SELECT target FROM acts WHERE act = 'erases' AND {is_in('target', drawn)}"
    gone = {seq for (seq,) in connection.execute(sql)}
    erased = frozenset(one.row.commitment for one in opening.statements if one.row.seq in gone)
    return tuple(sampled(one, erased) for one in opening.statements)
