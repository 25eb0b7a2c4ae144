"""Whether the value ledger still has what the statements say must be in it: who thins it lets old values back in.

The ledger's rows are keyed hashes, and the keys are not the auditor's. So rows are compared with what the statements
imply about how many there are, of which fact, and until when they count: a value that was replaced by another has a
row that names the fact which held it; what an erasure kept, or let expire, has rows that name no fact. Where two
spellings might be one value to the guard, nothing is concluded from a row that is not there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from auditor.evidence import ErasureRow, FactRow, Statement, StoreRows
from auditor.findings import Finding, Note, Outcome
from auditor.fold import Fold, at_writing
from auditor.manifests import MAX_MANIFEST_BYTES, hour_of, map_in, map_of, number_in
from auditor.statements import by_commitment
from tlog import cbor
from tlog.errors import MalformedError

CODE: Final = "RETIREMENT_FORGOTTEN"
_STANDING: Final = frozenset({"active", "conflict"})
_ENDED: Final = frozenset({"superseded", "retracted"})
_MANY: Final = "many"
_MAY_RETURN: Final = frozenset({"lifts", "confirms", "keeps"})
_FIRST: Final = 1_600_000_000_000_000
"""No store is older."""
_UNGUARDED: Final = frozenset({"unguarded", "reaffirmed"})
Slot = tuple[int, bytes]
"""Tenant and the tag of a key."""


class Loose(NamedTuple):
    """Facts of a key whose values it had retired when some came back, and how many did at most."""

    facts: frozenset[int] | set[int] = frozenset()
    returned: int = 0


def check_ledger(rows: StoreRows, statements: Sequence[Statement], folded: Fold, now: int) -> Outcome:
    """Each retired value that must be refused has a row, and none counts for shorter than an erasure said."""
    required, loose = _required(rows, statements, folded)
    there = {(row.tenant_id, row.source) for row in rows.ledger if row.source is not None}
    findings = [
        Finding(CODE, "store.db ledger", "A retired value has no row in the value ledger.", {"fact": seq})
        for tenant, seq in sorted(required)
        if (tenant, seq) not in there
    ]
    findings += _check_loose(loose, there)
    findings += _check_sources(rows, folded)
    findings += _check_until(rows, required)
    findings += _check_versions(rows, statements)
    erasures = _by_tenant(rows.erasures)
    findings += _check_expiries(rows, erasures)
    findings += _check_kept(rows, statements, erasures, now)
    checked = Note(
        "ledger", "retired values that must have a row in the value ledger, and have one", len(required)
    )
    return Outcome(tuple(findings), (checked,))


def _required(
    rows: StoreRows, statements: Sequence[Statement], folded: Fold
) -> tuple[set[tuple[int, int]], Mapping[Slot, Loose]]:
    """Tenant and number of each fact whose value the ledger must have a row for that names it; and by key those of
    which all but a few must have one.
    """
    facts = {fact.seq: fact for fact in rows.facts}
    seqs = by_commitment(statements)
    standing: dict[Slot, tuple[bytes, ...]] = {}
    required: dict[Slot, list[int]] = {}
    loose: dict[Slot, Loose] = {}
    on_hold: set[int] = set()
    for statement, changed in zip(statements, folded.changes, strict=True):
        link = statement.link
        if link is None:
            continue
        ended = _ended(statement) if changed else ()
        before = {target: status for target, status, _ in changed if target in ended}
        if link.kind == "write":
            _stand(standing, _slot(statement, facts), statement.row.commitment, at_writing(link))
            if not link.acts and not (statement.content or {}).get("flags"):
                continue  # as nearly all do, it changes nothing else
        for target, _, status in changed:
            acted_on = seqs.get(target)
            if acted_on is not None:
                _stand(standing, _slot(acted_on, facts), target, status)
        for target in link.acts.get("holds", ()):
            on_hold |= {seqs[target].row.seq} if target in seqs else set()
        if _may_return(statement):
            about = _slots(statement, facts, seqs)
            about = about or {one for one in (*required, *loose) if one[0] == statement.row.tenant_id}
            _loosen(required, loose, about, _count_plain(statement, seqs))
        for slot, gone in _newly_ended(before, facts, seqs) if before else ():
            if _is_sure(statement, gone, standing.get(slot, ()), seqs):
                required.setdefault(slot, []).extend(one.row.seq for one in gone)
    # What is on hold is compared with nothing, so such a key may have one value twice.
    unsure = {(facts[seq].tenant_id, facts[seq].key_tag) for seq in on_hold if seq in facts}
    sure = {
        (slot[0], seq)
        for slot, found in required.items()
        for seq in found
        if seq in facts and slot not in unsure
    }
    left = {slot: Loose(one.facts & facts.keys(), one.returned) for slot, one in loose.items()}
    return sure, {slot: one for slot, one in left.items() if slot not in unsure}


def _stand(
    standing: dict[Slot, tuple[bytes, ...]], slot: Slot | None, commitment: bytes, status: str
) -> None:
    """Notes whether a write stands among those of its key, of which few do."""
    if slot is None:
        return
    known = standing.get(slot, ())
    if status in _STANDING:
        if commitment not in known:
            standing[slot] = (*known, commitment)
    elif commitment in known:
        standing[slot] = tuple(one for one in known if one != commitment)


def _may_return(statement: Statement) -> bool:
    """Whether a value that was retired may have become current with this statement, or the guard was off."""
    assert statement.link is not None
    flags = (statement.content or {}).get("flags")
    if flags and not _UNGUARDED.isdisjoint(flags):
        return True
    return bool(statement.link.acts) and not _MAY_RETURN.isdisjoint(statement.link.acts)


def _count_returned(statement: Statement) -> int:
    """How many values at most a statement has taken out of the ledger: each that it makes current is one row."""
    assert statement.link is not None
    return max(1, sum(len(statement.link.acts.get(act, ())) for act in _MAY_RETURN))


def _count_plain(statement: Statement, seqs: Mapping[bytes, Statement]) -> int | None:
    """The same, where each of them is written in one way alone; None where one may stand for several values.

    Dates and numbers may: a reader of 3/4 can't tell which, so the guard knows it as either.
    """
    assert statement.link is not None
    acts = statement.link.acts
    targets = [target for act in _MAY_RETURN for target in acts.get(act, ())]
    about = [statement] if statement.link.kind == "write" else [seqs.get(target) for target in targets]
    told = [None if one is None or one.content is None else _said(one) for one in about]
    plain = all(isinstance(one, str) and not any(map(str.isnumeric, one)) for one in told)
    return _count_returned(statement) if told and plain else None


def _loosen(
    required: dict[Slot, list[int]], loose: dict[Slot, Loose], slots: Collection[Slot], returned: int | None
) -> None:
    """Of what these keys have retired so far, that many more may be in the ledger no longer, or by another fact."""
    for slot in slots:
        known, more = loose.pop(slot, Loose()), required.pop(slot, [])
        if returned is not None and (known.facts or more):
            loose[slot] = Loose(known.facts | set(more), known.returned + returned)


def _check_loose(loose: Mapping[Slot, Loose], there: Collection[tuple[int, int]]) -> Iterator[Finding]:
    """Of the values that a key retired before one came back, no more than came back are missing."""
    for (tenant, _), one in loose.items():
        found = sum((tenant, seq) in there for seq in one.facts)
        if found < len(one.facts) - one.returned:
            what = (
                "The value ledger has fewer rows of a key than it has retired values that have not come back."
            )
            evidence = {"retired": len(one.facts), "returned": one.returned, "found": found}
            yield Finding(CODE, "store.db ledger", what, {"fact": min(one.facts), **evidence})


def _slots(statement: Statement, facts: Mapping[int, FactRow], seqs: Mapping[bytes, Statement]) -> set[Slot]:
    assert statement.link is not None
    about = [statement, *(seqs.get(t) for targets in statement.link.acts.values() for t in targets)]
    return {slot for one in about if (slot := _slot(one, facts)) is not None}


def _slot(statement: Statement | None, facts: Mapping[int, FactRow]) -> Slot | None:
    fact = None if statement is None else facts.get(statement.row.seq)
    return None if fact is None or fact.key_tag is None else (fact.tenant_id, fact.key_tag)


def _ended(statement: Statement) -> tuple[bytes, ...]:
    assert statement.link is not None
    return (*statement.link.acts.get("retires", ()), *statement.link.acts.get("retracts", ()))


def _newly_ended(
    before: Mapping[bytes, str],
    facts: Mapping[int, FactRow],
    seqs: Mapping[bytes, Statement],
) -> Iterator[tuple[Slot, list[Statement]]]:
    """By key, the facts that stood until a statement; `before` is what those were that it ended."""
    by_slot: dict[Slot, list[Statement]] = {}
    for target, status in before.items():
        slot = _slot(seqs.get(target), facts) if status in _STANDING else None
        if slot is not None:
            by_slot.setdefault(slot, []).append(seqs[target])
    yield from by_slot.items()


def _is_sure(
    statement: Statement,
    ended: Sequence[Statement],
    standing: Collection[bytes],
    seqs: Mapping[bytes, Statement],
) -> bool:
    """Whether what was ended is another value than what stands now: the guard would have called them equal."""
    assert statement.link is not None
    acts = statement.link.acts
    others: Sequence[Statement | None] = (statement,)
    instead: Collection[bytes] = (statement.row.commitment,)
    if statement.link.kind != "write":
        instead = {target for act in _MAY_RETURN for target in acts.get(act, ())}
        others = [seqs.get(one) for one in instead]
    for one in standing:
        if one not in instead:
            return False
    for plain in (*ended, *others):
        if not _is_plain(plain):
            return False
    return len(ended) == 1 or len({_said(one) for one in ended}) == len(ended)


def _is_plain(statement: Statement | None) -> bool:
    """Whether a write's value held as it was written, without an end: the guard has compared it with all that stood."""
    content = None if statement is None else statement.content
    if content is None:
        return False
    starts_at, recorded_at = content.get("valid_from"), content.get("recorded_at")
    if type(starts_at) is not int or type(recorded_at) is not int or starts_at > recorded_at:
        return False
    return _MANY not in (content.get("flags") or ()) and content.get("valid_until") is None


def _said(statement: Statement) -> object:
    content = statement.content or {}
    return content.get("text") if content.get("value") is None else content.get("value")


def _check_sources(rows: StoreRows, folded: Fold) -> Iterator[Finding]:
    """A row names a fact that was ended: no other value is retired."""
    ended = {write.seq for write in folded.writes.values() if write.status in _ENDED}
    wrong = {fact.seq for fact in rows.facts} - ended
    for row in rows.ledger:
        # One that names no fact that is there is residue, and found as such.
        if row.source in wrong and row.source is not None:
            what = "A row of the value ledger names a fact that nobody has retired."
            yield Finding("FACT_ALTERED", f"store.db ledger row {row.id}", what, {"fact": row.source})


def _check_until(rows: StoreRows, required: Collection[tuple[int, int]]) -> Iterator[Finding]:
    """A row counts for a time only where a record of its key named that time, and none since holds for good."""
    said: dict[Slot, set[int]] = {}
    for fact in rows.facts:
        if fact.key_tag is not None and fact.valid_until is not None:
            said.setdefault((fact.tenant_id, fact.key_tag), set()).add(fact.valid_until)
    # The record that said it may be erased, and its row stays.
    thinned = {row.tenant_id for row in rows.erasures}
    ended = {fact.seq: fact.replaced_at for fact in rows.facts}
    for row in rows.ledger:
        if row.until is None:
            continue
        known = said.get((row.tenant_id, row.key_tag), set())
        if row.source is not None and (row.tenant_id, row.source) in required:
            what = "A retired value is to be refused for a time only, and what replaced it holds for good."
        elif row.until not in known and (row.tenant_id not in thinned or hour_of(row.until) != row.until):
            what = "A retired value is to be refused until a time that no record of its key has named."
        elif row.until <= (ended.get(row.source or 0) or _FIRST):
            what = "A retired value is to be refused until a time before it was retired."
        else:
            continue
        yield Finding(CODE, f"store.db ledger row {row.id}", what)


def _check_versions(rows: StoreRows, statements: Sequence[Statement]) -> Iterator[Finding]:
    """No row is under rules for spellings that no write has named: nothing would be compared with it."""
    contents = (statement.content for statement in statements if statement.content is not None)
    newest = max(
        (version for content in contents if type(version := content.get("canon")) is int), default=None
    )
    for row in rows.ledger:
        if newest is not None and row.canon_version > newest:
            what = "A retired value is filed under rules that no write has used."
            yield Finding(CODE, f"store.db ledger row {row.id}", what, {"version": row.canon_version})


def _by_tenant(erasures: Sequence[ErasureRow]) -> Mapping[int, list[Mapping[str, Any]]]:
    """What the store noted of the guard in each erasure, by tenant, with the number of its tombstone."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for row in erasures:
        try:
            detail = map_of(cbor.decode(row.detail, max_bytes=MAX_MANIFEST_BYTES))
        except MalformedError:
            continue  # check_erasures names it
        guard = dict(map_in(detail, "guard"))
        if row.tombstone is not None:
            found.setdefault(row.tenant_id, []).append({**guard, "tombstone": row.tombstone})
    return found


def _check_expiries(rows: StoreRows, erasures: Mapping[int, list[Mapping[str, Any]]]) -> Iterator[Finding]:
    """A row that names no fact, or ends, was made so by an erasure that says it."""
    for row in rows.ledger:
        known = erasures.get(row.tenant_id, [])
        where = f"store.db ledger row {row.id}"
        if row.expires_at is not None and row.expires_at not in {one.get("expires_at") for one in known}:
            what = "A retired value is to be forgotten at a time that no erasure has named."
            yield Finding(CODE, where, what)
        elif row.expires_at is not None and row.source is not None:
            what = "A retired value is to be forgotten at a time, and the fact that held it was not erased."
            yield Finding(CODE, where, what)
        elif row.source is None and not any(one.get("disposition") in ("keep", "expire") for one in known):
            what = "A retired value names no fact, and no erasure of the tenant has kept any."
            yield Finding("FACT_ALTERED", where, what)


def _check_kept(
    rows: StoreRows,
    statements: Sequence[Statement],
    erasures: Mapping[int, list[Mapping[str, Any]]],
    now: int,
) -> Iterator[Finding]:
    """What an erasure kept is there, but for what came after it and may have taken it out again."""
    returns = _returns(statements) if erasures else {}
    kept = Counter((row.tenant_id, row.expires_at) for row in rows.ledger if row.source is None)
    for (tenant, expires_at), count in sorted(kept.items(), key=str):
        noted = erasures.get(tenant, ())
        keeping = [one for one in noted if one.get("disposition") in ("keep", "expire")]
        entries = sum(number_in(one, "entries") for one in keeping if one.get("expires_at") == expires_at)
        # A time that none has named is found as such.
        if keeping and count > entries and (entries or expires_at is None):
            what = "The value ledger has more rows without a fact than erasures have kept."
            evidence = {"kept": entries, "found": count}
            yield Finding("FACT_ALTERED", "store.db ledger", what, evidence)
    for tenant, known in erasures.items():
        for one in known:
            expires_at = one.get("expires_at")
            ended = isinstance(expires_at, int) and expires_at <= now
            if one.get("disposition") not in ("keep", "expire") or ended:
                continue
            after = [each for each in known if each["tombstone"] > one["tombstone"]]
            taken = sum(number_in(each, "entries") for each in after if each.get("disposition") != "keep")
            taken += sum(count for seq, count in returns.get(tenant, ()) if seq > one["tombstone"])
            expected, found = number_in(one, "entries"), kept[tenant, expires_at]
            if found + taken < expected:
                what = "The value ledger has fewer rows without a fact than an erasure kept."
                evidence = {"kept": expected, "found": found, "tombstone": one["tombstone"]}
                yield Finding(CODE, "store.db ledger", what, evidence)


def _returns(statements: Sequence[Statement]) -> Mapping[int, list[tuple[int, int]]]:
    """By tenant, each statement that may have taken values out of the ledger, and how many at most."""
    found: dict[int, list[tuple[int, int]]] = {}
    for statement in statements:
        if statement.link is not None and _may_return(statement):
            returned = (statement.row.seq, _count_returned(statement))
            found.setdefault(statement.row.tenant_id, []).append(returned)
    return found
