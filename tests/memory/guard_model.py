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
    starts: int | None = None
    """Since when it holds, if it was written ahead."""
    begun: int = 0
    """When it was written."""


@dataclass
class Key:
    """One key of one tenant. `retired`: value → (until when, which fact said it)."""

    facts: dict[str, Fact] = field(default_factory=dict)
    retired: dict[int, tuple[int | None, str | None]] = field(default_factory=dict)
    replaced_by: dict[str, str] = field(default_factory=dict)
    """Ids of facts → id of what took their place, for what an erasure of that makes unknowable."""

    def now(self, now: int) -> list[Fact]:
        """What stands, has begun and has not ended."""
        return [one for one in self.standing(now) if (one.starts or 0) <= now]

    def standing(self, now: int) -> list[Fact]:
        """What stands and has not ended, be it only from a later time on."""
        return [one for one in self.facts.values() if one.status in STANDING and _open(one.ends, now)]

    def ahead(self, now: int) -> list[Fact]:
        """What stands from a later time on."""
        return [one for one in self.standing(now) if (one.starts or 0) > now]

    def begin(self, now: int) -> None:
        """What was written ahead and has begun takes the place of what its client said before."""
        plans = [one for one in self.facts.values() if one.starts is not None and one.starts <= now]
        for plan in sorted(plans, key=lambda one: one.starts or 0):
            old = [
                one
                for one in self.facts.values()
                if one.status in STANDING
                and one.client == plan.client
                and (one.starts or 0) < (plan.starts or 0)
                and one.begun < (plan.starts or 0)
                and _open(one.ends, plan.starts or 0)
            ]
            if plan.status in STANDING and old:
                self.retire(old, now, plan.ends, "superseded", plan)
                self.settle(plan.value, now, plan.ends)

    def current(self, now: int) -> int | None:
        """The one value, or None while there is none or clients disagree."""
        said = {one.value for one in self.now(now)}
        return said.pop() if len(said) == 1 else None

    def is_retired(self, value: int, now: int) -> bool:
        return value in self.retired and _open(self.retired[value][0], now)

    def states(self, value: int, now: int) -> bool:
        """Whether prose that states a value states what the key has moved on from."""
        return self.is_retired(value, now) and value not in {one.value for one in self.now(now)}

    def expect(
        self, client: str, value: int, now: int, how: str, ends: int | None, starts: int | None
    ) -> str:
        """The outcome of a write; `how` is plain, past, provisional, restatement, brief or ahead."""
        if starts is not None:
            return self._expect_ahead(client, value, now, starts)
        standing = self.now(now)
        if how == "past" and standing:
            told = [one for one in self.facts.values() if one.status == "history" and one.value == value]
            # Of what was erased and stays refused, nothing is kept again, not as the past either.
            blind = self.is_retired(value, now) and self.retired[value][1] is None
            return "agreed" if told else "refused" if blind else "history"
        retired = self.is_retired(value, now)
        own = [one for one in standing if one.client == client and one.status == "conflict"]
        aside = how in ("plain", "brief") and not retired and any(one.value != value for one in own)
        others = [one for one in standing if one.client != client and one.status == "conflict"]
        comes_round = aside and any(one.value == value for one in others)
        same = [one for one in standing if one.value == value and (retired or one.ends == ends)]
        if same and not comes_round:
            return "agreed"
        if retired:
            return "refused"
        if how == "restatement" and standing:
            return "agreed"
        if how == "provisional":
            return "held"
        if any(one.client != client and one.value != value for one in standing):
            return "conflict"
        own = [one for one in self.facts.values() if one.status in STANDING and one.client == client]
        return "superseded" if any(one in standing for one in own) else "stored"

    def _expect_ahead(self, client: str, value: int, now: int, starts: int) -> str:
        """What is written ahead by the only client of a key."""
        then = [one for one in self.standing(now) if (one.starts or 0) <= starts and _open(one.ends, starts)]
        holding = max(then, key=lambda one: (one.starts or 0, one.begun), default=None)
        if (
            holding is not None
            and holding.value == value
            and (holding.ends is None or self.is_retired(value, now))
        ):
            return "agreed"
        if self.is_retired(value, now):
            return "refused"
        return "superseded" if any(one.starts == starts for one in then) else "stored"

    def land(self, made: Fact, now: int, outcome: str) -> None:
        """What a write with this outcome changes."""
        self.facts[made.id] = made
        made.status = {"stored": "active", "superseded": "active"}.get(outcome, outcome)
        if made.status not in STANDING:
            return
        if made.starts is not None:
            own = [one for one in self.ahead(now) if one.starts == made.starts and one is not made]
            self.retire(own, now, made.ends, "superseded", made)
            return
        own = [one for one in self.now(now) if one.client == made.client and one is not made]
        said = {one.value for one in own}
        own += [one for one in self.ahead(now) if one.value in said]
        disputed = any(one.status == "conflict" for one in own)
        self.retire(own, now, made.ends, "superseded", made)
        if outcome == "conflict":
            for one in self.now(now):
                if one is made or one.client == made.client or one.value != made.value:
                    one.status = "conflict"
        elif disputed:
            for one in self.now(now):
                one.status = "active"
        self.settle(made.value, now, made.ends)

    def take(self, kept: Fact, now: int, lift: bool, until: int | None = None) -> None:
        """A person says that this one holds: it takes the place of everybody's."""
        others = [one for one in self.now(now) if one is not kept]
        kept.status = "active"
        self.retire(others, now, until, "superseded", kept)
        if lift and kept.ends is None:
            self.retired.pop(kept.value, None)
        self.settle(kept.value, now, until)

    def retire(self, ended: list[Fact], now: int, until: int | None, status: str, by: Fact | None) -> None:
        for one in ended:
            one.status = status
            if by is not None:
                self.replaced_by[one.id] = by.id
        said = {one.value for one in self.standing(now)}
        for one in ended:
            if one.value in said:
                continue
            if one.value in self.retired:
                known = self.retired[one.value][0]
                until = None if known is None or until is None else max(known, until)
            self.retired[one.value] = until, one.id

    def settle(self, value: int, now: int, until: int | None) -> None:
        said = {one.value for one in self.standing(now)} | {value}
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
