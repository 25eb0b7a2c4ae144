"""Checks of what is served: each statement is opened or tombstoned, and the facts are what they add up to."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from auditor.evidence import FactRow, Statement, StoreRows
from auditor.findings import Finding, Note, Outcome
from auditor.fold import WITHHELD, Fold, Folded
from auditor.lost import lost_of
from auditor.statements import by_seq

_ENDED: Final = frozenset({"superseded", "retracted"})
_TIME_ALONE: Final = frozenset({"erase", "manifest", "state"})
_FILLERS: Final = "\u115f\u1160\u3164\uffa0"
"""Letters of Hangul that stand for none."""
_INSTEAD: Final = ("confirms", "keeps", "begins", "lifts")
Scope = tuple[int, str]
"""Tenant and agent."""
Named = tuple[Scope, str]
"""A name in its scope."""


class _Filed(NamedTuple):
    """Under which tag each name was first found, and the reverse."""

    name: str
    by_name: dict[Named, bytes]
    by_tag: dict[bytes, Named]


def check_opened(statements: Sequence[Statement], folded: Fold) -> Outcome:
    """Each statement is opened or tombstoned: exactly one of the two."""
    findings = []
    tombstoned = undated = 0
    lost = lost_of(statements)
    for statement in statements:
        row = statement.row
        erased = row.commitment in folded.erased_by
        tombstoned += erased
        if row.content is None and not erased and is_told_by_its_link(statement):
            undated += 1
        elif row.content is None and not erased and row.commitment not in lost:
            what = "The statement is neither opened nor tombstoned: its content is gone without an erasure."
            findings.append(Finding("WRITE_MISSING", row.place, what))
        elif row.content is not None and erased:
            # What no longer opens it may be a wiped content whose salt was left behind.
            present = statement.content is not None
            code = "ERASED_STILL_PRESENT" if present else "SALT_SURVIVES"
            kept = "content" if present else "salt"
            what = f"A tombstone says that the statement is erased, and its {kept} is still there."
            findings.append(Finding(code, f"store.db contents seq {row.seq}", what))
    checked = Note(
        "opened or tombstoned", "statements of which exactly one of the two holds", len(statements) - undated
    )
    text = "statements that a restore took from manifests: their links are opened, and when they were made is lost"
    not_checked = (Note("opened or tombstoned", text, undated),) if undated else ()
    return Outcome(tuple(findings), (checked,), not_checked, counts={"tombstoned": tombstoned})


def is_told_by_its_link(statement: Statement) -> bool:
    """Whether the link says all that a statement does: its content is the time alone, which a restore has not."""
    return statement.link is not None and statement.link.kind in _TIME_ALONE


def check_facts(rows: StoreRows, statements: Sequence[Statement], folded: Fold) -> Outcome:
    """The facts that are served are the fold of the statements, row by row, and no other rows are there."""
    findings: list[Finding] = []
    writes = {
        statement.row.seq: statement
        for statement in statements
        if statement.link is not None and statement.link.kind == "write"
    }
    facts = {fact.seq: fact for fact in rows.facts}
    for seq, fact in facts.items():
        statement = writes.get(seq)
        if statement is None:
            what = "A fact is served that no statement wrote."
            findings.append(Finding("FACT_UNLOGGED", fact.place, what))
        elif statement.row.commitment in folded.erased_by:
            what = "A tombstone says that the fact is erased, and its row is still there."
            findings.append(Finding("ERASED_STILL_PRESENT", fact.place, what))
        else:
            expected = folded.writes[statement.row.commitment]
            findings += [] if _agrees(fact, statement, expected) else _compare(fact, statement, expected)
    for seq, statement in writes.items():
        if seq not in facts and statement.row.content is not None:
            what = "A write whose content is there has no row among the facts: it is not served."
            if statement.row.commitment not in folded.erased_by:
                findings.append(Finding("FACT_ALTERED", f"store.db facts seq {seq}", what))
    findings += check_tags(facts.values(), writes)
    findings += _check_lost_ends(rows.facts, statements, by_seq(statements))
    checked = Note("facts", "facts compared with an own fold of the statements", len(facts))
    not_checked = Note(
        "tags",
        "keyed hashes of agents, keys and subjects: their keys are not the auditor's, so only that equal "
        "names have equal ones, and names of other letters and digits others",
    )
    counts = {"facts": len(facts), **_by_status(facts.values())}
    return Outcome(tuple(findings), (checked,), (not_checked,), counts)


def _agrees(fact: FactRow, statement: Statement, expected: Folded) -> bool:
    """Whether a fact is in every way what its statement and the fold say: nearly all are."""
    content = statement.content
    if content is None:
        return False
    _, status, starts_at, is_declared, ended_at, ended_by = expected
    _, tenant, _, key, subject, _, *stated, valid_until, recorded_at, replaced_at, replaced_by, _, _ = fact
    said = content.get
    return (
        stated == [status, starts_at, is_declared]
        and replaced_by == ended_by
        and replaced_at == ended_at
        and (ended_by is None or ended_at is not None)
        and recorded_at == said("recorded_at")
        and valid_until == said("valid_until")
        and tenant == statement.row.tenant_id
        and (key is None) == (said("key") is None)
        and (subject is None) == (said("subject") is None)
    )


def _compare(fact: FactRow, statement: Statement, expected: Folded) -> Iterator[Finding]:
    if fact.status != expected.status:
        yield _status_finding(fact, expected)
    elif fact.replaced_by != expected.replaced_by or not _same(
        fact.replaced_at, expected.replaced_at, expected
    ):
        what = "Who ended the fact, or when, is not what the statements say."
        yield Finding("FACT_ALTERED", fact.place, what, {"statement": expected.replaced_by or 0})
    if fact.tenant_id != statement.row.tenant_id:
        yield Finding("FACT_ALTERED", fact.place, "The fact stands under another tenant than its statement.")
    content = statement.content
    if content is None:
        return
    stated = (content.get("valid_until"), content.get("recorded_at"), int(expected.declared))
    starts = (expected.starts_at, fact.valid_from)
    if (fact.valid_until, fact.recorded_at, fact.declared) != stated or starts[0] not in (None, starts[1]):
        yield Finding(
            "FACT_ALTERED", fact.place, "The times of the fact are not those that its content states."
        )
    for tag, name in ((fact.key_tag, "key"), (fact.subject_tag, "subject")):
        if (tag is None) != (content.get(name) is None):
            what = f"The fact has a {name} where its content has none, or the reverse."
            yield Finding("FACT_ALTERED", fact.place, what)


def _same(found: int | None, expected: int | None, ended: Folded) -> bool:
    """Whether a time is the one expected; any will do where the statement that told it is erased."""
    if ended.replaced_by is not None and expected is None:
        return found is not None
    return found == expected


def _check_lost_ends(
    facts: Iterable[FactRow], statements: Sequence[Statement], by_seq: Mapping[int, Statement]
) -> Iterator[Finding]:
    """A fact whose end was told by a statement that is erased is marked so: it is never served again."""
    contents: set[bytes] | None = None
    for fact in facts:
        ender = None if fact.replaced_by is None else by_seq.get(fact.replaced_by)
        lost = ender is not None and ender.row.content is None
        if lost and not fact.end_erased:
            what = "What ended the fact is erased, and the fact is not marked so: it could be served again."
            yield Finding("RETIRED_RETURNED", fact.place, what)
        elif fact.end_erased and not lost:
            if contents is None:
                contents = {one.row.commitment for one in statements if one.row.content is not None}
            if ender is None or _replaced_by_what_is_there(ender, contents):
                what = "The fact is marked as if what ended it were erased, and it is not."
                yield Finding("FACT_ALTERED", fact.place, what)


def _replaced_by_what_is_there(ender: Statement, contents: set[bytes]) -> bool:
    """Whether everything that a statement put in place of what it ended still has its content."""
    acts = {} if ender.link is None else ender.link.acts
    return all(target in contents for act in _INSTEAD for target in acts.get(act, ()))


def _status_finding(fact: FactRow, expected: Folded) -> Finding:
    evidence: dict[str, str | int] = {
        "served": _word(fact.status),
        "stated": expected.status,
        "statement": expected.replaced_by or 0,
    }
    if fact.status == "active" and expected.status in WITHHELD:
        what = "A fact is served that the statements say is held back."
        return Finding("HELD_AND_SERVED", fact.place, what, evidence)
    if fact.status == "active" and expected.status in _ENDED:
        what = "A fact is served that the statements have retired."
        return Finding("RETIRED_RETURNED", fact.place, what, evidence)
    if fact.status in _ENDED and expected.status in ("active", "conflict"):
        what = "A fact is no longer served, and no statement retired it."
        return Finding("RETIREMENT_UNDECLARED", fact.place, what, evidence)
    what = "The status of the fact is not what the statements add up to."
    return Finding("FACT_ALTERED", fact.place, what, evidence)


def check_tags(facts: Iterable[FactRow], writes: Mapping[int, Statement]) -> Iterator[Finding]:
    """Equal names have equal tags within their scope; what can't be two spellings of one name has two."""
    filed = [_Filed(name, {}, {}) for name in ("agent", "key", "subject", "text")]
    agent_of: dict[tuple[int, bytes], object] = {}
    scopes: dict[Scope, Scope] = {}
    for fact in facts:
        statement = writes.get(fact.seq)
        content = None if statement is None else statement.content
        agent = None if content is None else content.get("agent")
        if content is None or not isinstance(agent, str):
            continue  # found as what it is by its form
        if agent_of.setdefault((fact.tenant_id, fact.agent_tag), agent) != agent:
            yield Finding("FACT_ALTERED", fact.place, "The fact is filed under the tag of another agent.")
        whose = (fact.tenant_id, agent)
        scope = scopes.setdefault(whose, whose)
        tags = (fact.agent_tag, fact.key_tag, fact.subject_tag, fact.text_tag)
        for (name, by_name, by_tag), tag in zip(filed, tags, strict=True):
            said = content.get(name)
            if tag is None or not isinstance(said, str):
                continue
            ours = (scope, said)
            if by_name.setdefault(ours, tag) != tag:
                what = f"The fact is filed under another tag than others of the same {name}."
                yield Finding("FACT_ALTERED", fact.place, what)
            like = by_tag.setdefault(tag, ours)
            if like is not ours and name != "agent" and not _are_alike(like, ours):
                what = f"The fact is filed under the tag of another {name}."
                yield Finding("FACT_ALTERED", fact.place, what)


def _are_alike(one: Named, other: Named) -> bool:
    """Whether two names may be spellings of one, in one scope."""
    if one == other:
        return True
    return one[0] == other[0] and _letters(one[1]) == _letters(other[1])


def _letters(name: str) -> str:
    """What every spelling of a name has in common, whatever the rules of spelling are: its letters and digits."""
    if name.isascii():
        return "".join(filter(str.isalnum, name)).lower()
    told = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", name).casefold())
    letters = []
    for each in told:
        category = unicodedata.category(each)
        if category == "Nd":
            letters.append(str(unicodedata.decimal(each)))
        elif category in ("Ll", "Lo") and each not in _FILLERS:
            letters.append(each)
    return "".join(letters)


def _by_status(facts: Iterable[FactRow]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for fact in facts:
        name = f"facts_{_word(fact.status)}"
        counts[name] = counts.get(name, 0) + 1
    return counts


def _word(status: str) -> str:
    """A status as a report may show it."""
    return status if status.isascii() and status.isalpha() and len(status) <= 16 else "unknown"
