"""What a memory should answer, written down plainly: no canonical forms, no hashes, no tables, no statements.

A value is a number here. Each fact is of one client and holds until it ends; what a key has moved on from is a
dictionary. It knows single values and keys of many, replacements that end, what several clients write ahead, dates in
the past, and what persons decide.
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
    many: bool = False
    """One of many values of its key."""

    @property
    def start(self) -> int:
        """Since when it holds."""
        return self.begun if self.starts is None else self.starts

    def overlaps(self, start: int, ends: int | None) -> bool:
        """Whether it holds at any time of these."""
        return (ends is None or self.start < ends) and _open(self.ends, start)


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

    def holding(self, time: int) -> list[Fact]:
        """What will hold at a time if nothing more is said: of each client the latest, and the many."""
        there = [one for one in self.standing(time) if one.start <= time]
        latest = {one.client: one for one in sorted(there, key=lambda one: one.start) if not one.many}
        return [one for one in there if one.many or one.start == latest[one.client].start]

    def is_many(self, now: int) -> bool:
        """Whether the key has many values now."""
        return any(one.many for one in self.now(now))

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
                and not (one.many or plan.many)
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
        return said.pop() if len(said) == 1 and not self.is_many(now) else None

    def is_retired(self, value: int, now: int) -> bool:
        return value in self.retired and _open(self.retired[value][0], now)

    def states(self, value: int, now: int) -> bool:
        """Whether prose that states a value states what the key has moved on from."""
        return self.is_retired(value, now) and value not in {one.value for one in self.now(now)}

    def expect(self, made: Fact, now: int, how: str) -> str:
        """The outcome of a write; `how` is plain, past, provisional or restatement, `made` says the rest."""
        standing, client, value = self.now(now), made.client, made.value
        retired = self.is_retired(value, now)
        many = made.many or self.is_many(now)
        single = [one for one in standing if not one.many]
        # Of many values one that is there since later on is no second one, and of one value it is history.
        since = [one for one in standing if one.many and one.value == value and one.start > made.start]
        if how == "past" and (since if many else single):
            told = [one for one in self.facts.values() if one.status == "history" and one.value == value]
            # Of what was erased and stays refused, nothing is kept again, not as the past either.
            blind = retired and self.retired[value][1] is None
            return "agreed" if told else "refused" if blind else "history"
        if self._agrees(made, now, how, many):
            return "agreed"
        if retired:
            return "refused"
        if how == "restatement" and (self.holding(made.start) if made.start > now else standing):
            return "agreed"
        if how == "provisional":
            return "held"
        if many:
            return "stored"
        if self.against(made, now):
            return "conflict"
        if made.start > now:
            own = [one for one in self.ahead(now) if one.client == client and one.start == made.start]
        else:
            own = [one for one in single if one.client == client]
        return "superseded" if own else "stored"

    def _agrees(self, made: Fact, now: int, how: str, many: bool) -> bool:
        """Whether the key says the same already, for as long, when the write begins to hold."""
        value, retired = made.value, self.is_retired(made.value, now)
        # Who disagreed and comes round to the other side says something new.
        sides = [one for one in self.now(now) if one.status == "conflict"]
        own = [one for one in sides if one.client == made.client and one.value != value]
        others = [one for one in sides if one.client != made.client and one.value == value]
        if own and others and made.start <= now and how == "plain" and not (many or retired):
            return False
        then = self.holding(made.start) if made.start > now else self.now(now)
        return any(one.value == value and (retired or self._spans_alike(made, one)) for one in then)

    def _spans_alike(self, made: Fact, one: Fact) -> bool:
        return one.start <= made.start and one.ends == made.ends

    def against(self, made: Fact, now: int) -> list[Fact]:
        """What other clients say, now or from later on, that can't be so if this is."""
        return [
            one
            for one in self.standing(now)
            if one.client != made.client
            and one.value != made.value
            and one.overlaps(made.start, made.ends)
            and not one.many
        ]

    def land(self, made: Fact, now: int, outcome: str) -> None:
        """What a write with this outcome changes."""
        against = self.against(made, now) if outcome == "conflict" else []
        many = made.many or self.is_many(now)
        made.many = many and outcome != "history"
        self.facts[made.id] = made
        made.status = {"stored": "active", "superseded": "active"}.get(outcome, outcome)
        if made.status not in STANDING or many:
            return
        if made.start > now:
            own = [one for one in self.ahead(now) if one.start == made.start and one.client == made.client]
        else:
            own = [one for one in self.now(now) if one.client == made.client and not one.many]
        own = [one for one in own if one is not made]
        came_round = made.start <= now and any(one.status == "conflict" for one in own) and not against
        said = {one.value for one in own}
        own += [
            one
            for one in self.ahead(now)
            if one.value in said and one.client == made.client and one is not made and one not in own
        ]
        self.retire(own, now, made.ends, "superseded", made)
        for one in against:
            one.status = "conflict"
        if came_round:
            for one in self.now(now):
                one.status = "active"
        if made.start <= now:
            self.settle(made.value, now, made.ends)

    def take(self, kept: Fact, now: int, lift: bool, until: int | None = None) -> None:
        """A person says that this one holds: it takes the place of everybody's, or comes beside the many."""
        many = kept.many or self.is_many(now)
        ahead = kept.start > now
        kept.status = "active"
        if kept.starts is None:
            kept.begun = now
        if lift and kept.ends is None and not ahead:
            self.retired.pop(kept.value, None)
        if many or ahead:
            kept.many = many
            return
        others = [one for one in self.now(now) if one is not kept]
        said, clients = {one.value for one in others}, {one.client for one in others}
        others += [
            one
            for one in self.ahead(now)
            if one.value in said and one.client in clients and one is not kept and one not in others
        ]
        self.retire(others, now, until, "superseded", kept)
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
            known = self.retired.get(one.value, (until, None))[0]
            self.retired[one.value] = None if known is None or until is None else max(known, until), one.id

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
