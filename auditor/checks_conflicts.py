"""Whether each conflict was opened and closed by the statements that the links say did it.

The key of a conflict is a keyed hash. Which statements are of one key is told by their acts on each other, and by the
facts that are left; of a key whose facts are all gone the store has nothing that could be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from auditor.evidence import Statement, StoreRows
from auditor.findings import Finding, Note, Outcome
from auditor.fold import Folded, advance
from auditor.statements import unusual

_TIES: Final = frozenset(
    {"retires", "retracts", "conflicts", "confirms", "dates", "keeps", "begins", "lifts", "corroborates"}
)
Key = bytes | tuple[int, bytes]
"""A statement, by its commitment; or the tag of a key, with its tenant."""


def check_conflicts(rows: StoreRows, statements: Sequence[Statement]) -> Outcome:
    """Each row of `conflicts` has the opener and the closer that the statements have, and none is missing."""
    disputes = [one for one in unusual(statements) if one.link is not None and "conflicts" in one.link.acts]
    if not disputes and not rows.conflicts:
        return Outcome()
    groups = _Groups()
    commitments = {statement.row.seq: statement.row.commitment for statement in statements}
    for fact in rows.facts:
        if fact.key_tag is not None and fact.seq in commitments:
            groups.join(commitments[fact.seq], (fact.tenant_id, fact.key_tag))
    present = {commitments[fact.seq] for fact in rows.facts if fact.seq in commitments}
    for statement in statements:
        for act, targets in {} if statement.link is None else statement.link.acts.items():
            for target in targets if act in _TIES else ():
                groups.join(statement.row.commitment, target)
    told = dict(_told(statements, groups))
    # Where no fact of its key is left, its row has gone with the last of them.
    kept = {groups.of(commitment) for commitment in present}
    found = {row.seq: row.closed_by for row in rows.conflicts}
    findings = list(_compare(told, found, {seq for seq, (_, key) in told.items() if key in kept}))
    for row in rows.conflicts:
        opener = groups.of(commitments.get(row.seq, b""))
        if opener in kept and opener != groups.of((row.tenant_id, row.key_tag)):
            what = "A conflict is filed under another key than what was said in it."
            findings.append(Finding("FACT_ALTERED", f"store.db conflicts seq {row.seq}", what))
    checked = Note("disagreements", "conflicts opened and closed by the statements that say so", len(found))
    return Outcome(tuple(findings), (checked,))


def _compare(
    told: dict[int, tuple[int | None, Key]], found: dict[int, int | None], needed: set[int]
) -> Iterator[Finding]:
    for seq, closed_by in sorted(found.items()):
        where = f"store.db conflicts seq {seq}"
        if seq not in told:
            what = "A conflict names a statement that opened none."
            yield Finding("FACT_ALTERED", where, what)
        elif told[seq][0] != closed_by:
            what = "A conflict is noted as closed by another statement than the one that settled it."
            yield Finding("FACT_ALTERED", where, what, {"stated": told[seq][0] or 0, "noted": closed_by or 0})
    for seq in sorted(needed - found.keys()):
        what = "A statement opened a conflict, and the store has no note of it."
        yield Finding("FACT_ALTERED", f"store.db conflicts seq {seq}", what)


def _told(statements: Sequence[Statement], groups: _Groups) -> Iterator[tuple[int, tuple[int | None, Key]]]:
    """The number of each statement that opened a conflict, with that of the one that closed it, and its key."""
    writes: dict[bytes, Folded] = {}
    disputed: dict[Key, set[bytes]] = {}
    opened: dict[Key, int] = {}
    for statement in statements:
        if statement.link is None:
            continue
        before = len(writes)
        advance(writes, statement)
        acts = statement.link.acts
        if not acts and len(writes) == before:
            continue
        gone = acts.get("erases", ())
        by_key: dict[Key, set[bytes]] = {}
        for one in (statement.row.commitment, *chain(*acts.values())):
            by_key.setdefault(groups.of(one), set()).add(one)
        for key, touched in by_key.items():
            members = disputed.setdefault(key, set())
            members |= touched
            members -= touched.intersection(gone)
            members -= {one for one in members if not _is_disputed(one, writes)}
            if "conflicts" in acts and members and key not in opened:
                opened[key] = statement.row.seq
            elif not members and key in opened:
                yield opened.pop(key), (statement.row.seq, key)
    yield from ((seq, (None, key)) for key, seq in opened.items())


def _is_disputed(commitment: bytes, writes: dict[bytes, Folded]) -> bool:
    return commitment in writes and writes[commitment].status == "conflict"


class _Groups:
    """What belongs together, by a union of what is tied."""

    def __init__(self) -> None:
        self._above: dict[Key, Key] = {}

    def of(self, one: Key) -> Key:
        """What stands for all that is tied to this."""
        above = self._above
        while (upper := above.get(one, one)) != one:
            above[one] = one = above.get(upper, upper)
        return one

    def join(self, one: Key, other: Key) -> None:
        """From now on these two belong together."""
        self._above[self.of(one)] = self.of(other)
