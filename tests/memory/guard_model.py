"""What a memory should answer, written down plainly: no canonical forms, no hashes, no tables, no statements.

A value is a number here. Each fact is of one client and holds until it ends; what a key has moved on from is a
dictionary. It knows single values, replacements that end, dates in the past, and what persons decide.
"""

from __future__ import annotations

from dataclasses import dataclass, field

STANDING = ("active", "conflict")
HOUR = 3600 * 1_000_000


@dataclass
class Fact:
    """One write, as the model remembers it."""

    id: str
    client: str
    value: int
    status: str
    ends: int | None = None


@dataclass
class Key:
    """One key of one tenant. `retired`: value → (until when, which fact said it)."""

    facts: dict[str, Fact] = field(default_factory=dict)
    retired: dict[int, tuple[int | None, str | None]] = field(default_factory=dict)
    replaced_by: dict[str, str] = field(default_factory=dict)
    """Ids of facts → id of what took their place, for what an erasure of that makes unknowable."""

    def now(self, now: int) -> list[Fact]:
        """What stands and has not ended."""
        return [one for one in self.facts.values() if one.status in STANDING and _open(one.ends, now)]

    def current(self, now: int) -> int | None:
        """The one value, or None while there is none or clients disagree."""
        standing = self.now(now)
        return standing[0].value if len(standing) == 1 else None

    def is_retired(self, value: int, now: int) -> bool:
        return value in self.retired and _open(self.retired[value][0], now)

    def expect(self, client: str, value: int, now: int, how: str) -> str:
        """The outcome of a write; `how` is plain, past, provisional, restatement or brief."""
        standing = self.now(now)
        if how == "past" and standing:
            told = [one for one in self.facts.values() if one.status == "history" and one.value == value]
            return "agreed" if told else "history"
        if any(one.value == value for one in standing):
            return "agreed"
        if self.is_retired(value, now):
            return "refused"
        if how == "restatement" and standing:
            return "agreed"
        if how == "provisional":
            return "held"
        if any(one.client != client for one in standing):
            return "conflict"
        own = [one for one in self.facts.values() if one.status in STANDING and one.client == client]
        return "superseded" if any(one in standing for one in own) else "stored"

    def land(self, made: Fact, now: int, outcome: str) -> None:
        """What a write with this outcome changes."""
        self.facts[made.id] = made
        made.status = {"stored": "active", "superseded": "active"}.get(outcome, outcome)
        if made.status not in STANDING:
            return
        own = [one for one in self.now(now) if one.client == made.client and one is not made]
        self.retire(own, now, made.ends, "superseded", made)
        if outcome == "conflict":
            for one in self.now(now):
                one.status = "conflict"
        self.settle(made.value, now, made.ends)

    def take(self, kept: Fact, now: int, lift: bool) -> None:
        """A person says that this one holds: it takes the place of everybody's."""
        others = [one for one in self.now(now) if one is not kept]
        kept.status = "active"
        self.retire(others, now, None, "superseded", kept)
        if lift:
            self.retired.pop(kept.value, None)
        self.settle(kept.value, now, None)

    def retire(self, ended: list[Fact], now: int, until: int | None, status: str, by: Fact | None) -> None:
        for one in ended:
            one.status = status
            if by is not None:
                self.replaced_by[one.id] = by.id
        said = {one.value for one in self.now(now)}
        for one in ended:
            if one.value in said:
                continue
            if one.value in self.retired:
                known = self.retired[one.value][0]
                until = None if known is None or until is None else max(known, until)
            self.retired[one.value] = until, one.id

    def settle(self, value: int, now: int, until: int | None) -> None:
        said = {one.value for one in self.now(now)} | {value}
        for other, (ends, source) in self.retired.items():
            if ends is not None and other not in said:
                self.retired[other] = (None if until is None else max(ends, until)), source

    def erase(self, reference: str, keep: bool) -> None:
        """The fact is gone; what it said stays refused, or may be learnt again."""
        gone = self.facts.pop(reference, None)
        for value, (until, source) in self.retired.items():
            # What tells of an erased fact tells the hour alone.
            if gone is not None and until is not None and until == gone.ends:
                self.retired[value] = -(-until // HOUR) * HOUR, source
        for value, (until, source) in list(self.retired.items()):
            if source == reference:
                if keep:
                    self.retired[value] = until, None
                else:
                    del self.retired[value]


def _open(ends: int | None, now: int) -> bool:
    return ends is None or ends > now
