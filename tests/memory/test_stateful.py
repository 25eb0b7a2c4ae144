"""Any order of writes, decisions, erasures and crashes, compared with a plain model and with its own statements.

Two tenants, three clients, two keys each and one of many values. HYPOTHESIS_PROFILE=explore draws more of it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

sys.path.insert(0, str(Path(__file__).resolve().parent))
from guard_model import Fact, Key
from rebuilding import differences

from memory import wiring
from memory.model import SCOPES, Principal
from memory.service import Memory
from tlog.errors import MalformedError, RefusedError

SECOND = 1_000_000
LONG_AGO = "2001-01-01T00:00:00Z"
LONG_AGO_SECONDS = 978_307_200
SPELLINGS = (
    ("eu-west-1", "EU-WEST-1", '"eu-west-1"', " eu-west-1."),
    ("90 days", "90d", "ninety days", "2160 hours"),
    ("1,500", "1500", "1 500", "1500."),
    ("-5", "−5", " -5 ", "-5"),
)
TENANTS, CLIENTS, KEYS = (
    ("acme", "acme/evil"),
    ("desk", "ide", "cli"),
    ("svc/region", "svc.region/old", "box/labels"),
)
MANY = "box/labels"
KEY_SPELLINGS = {"svc/region": "SVC Region", "svc.region/old": "svc_region-old", MANY: "Box.Labels"}
PROSE = {"svc/region": "svc region old", "svc.region/old": "svc region old", MANY: "box labels"}
PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or "project"
ERASURES = 1 if PROFILE == "project" else 3

# Mostly one client on one key, or hardly any two operations would meet.
tenants, clients, keys = (st.sampled_from(names[:1] * 4 + names) for names in (TENANTS, CLIENTS, KEYS))
values, spelled = st.sampled_from([0, 0, 1, 1, 2, 3]), st.integers(0, 3)


class Crash(BaseException):
    """The process is gone."""


def crash(_: bytes) -> bytes:
    raise Crash


class Machine(RuleBasedStateMachine):
    """The store beside its model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="stateful-"))
        self.time = 1_900_000_000 * SECOND
        self.home = self.open()
        self.model: dict[tuple[str, str], Key] = {(t, k): Key() for t in TENANTS for k in KEYS}
        self.waiting: dict[tuple[str, str], list[Fact]] = {place: [] for place in self.model}
        self.told: list[tuple[int, tuple[str, str], str | None]] = []
        self.erased: set[tuple[str, str]] = set()
        self.erasures = 0
        self.number = 0

    def clock(self) -> int:
        self.time += 1
        return self.time

    def open(self) -> wiring.Home:
        return wiring.open_home(self.folder / "home", clock=self.clock)

    def memory(self, tenant: str, client: str = "desk") -> Memory:
        return self.home.memory(Principal(tenant, "ops", client, SCOPES))

    def teardown(self) -> None:
        self.home.close()
        shutil.rmtree(self.folder)

    # Writing

    @rule(
        tenant=tenants, client=clients, key=keys, value=values, spelling=spelled,
        how=st.sampled_from(
            ["plain"] * 4 + ["brief"] * 3 + ["ahead"] * 2 + ["ahead brief", "past", "provisional", "restatement"]
        ),
        other_key=st.booleans(), lift=st.sampled_from(["", "", "plain", "brief", "ahead"]), many=st.booleans(),
    )  # fmt: skip
    def remember(
        self,
        tenant: str,
        client: str,
        key: str,
        value: int,
        spelling: int,
        how: str,
        other_key: bool,
        lift: str,
        many: bool,
    ) -> None:
        """One write, as the model expects it; an echo may be lifted at once by its token."""
        known = self.model[tenant, key]
        # A fact that is dated in the past is a case of its own while nothing stands.
        how = "plain" if how == "past" and not known.now(self.time) else how
        known.begin(self.time)
        made = Fact("", client, value, "", begun=self.time, many=many and key == MANY)
        if how == "past" and (made.many or known.is_many(self.time)):
            made.starts = LONG_AGO_SECONDS * SECOND
        if how.startswith("ahead"):
            made.starts = (self.time // SECOND + 20) * SECOND
        if how.endswith("brief"):
            made.ends = (self.time // SECOND + 30) * SECOND
        expected = known.expect(
            made, self.time, how.split()[0].replace("ahead", "plain").replace("brief", "plain")
        )
        more: dict[str, Any] = {"provisional": how == "provisional", "restatement": how == "restatement"}
        if how == "past":
            more["valid_from"] = LONG_AGO
        elif made.starts is not None:
            more["valid_from"] = made.starts // SECOND
        if made.ends is not None:
            more["valid_until"] = made.ends // SECOND
        self.number += 1
        written = {"key": KEY_SPELLINGS[key] if other_key else key, "value": SPELLINGS[value][spelling]}
        memory = self.memory(tenant, client)
        more |= {"idempotency_key": f"{client} {self.number}", "many": made.many}
        answer = memory.remember(f"write {self.number}", **written, **more)
        assert answer["outcome"] == expected, (how, made, known, answer["message"])
        again = memory.remember(f"write {self.number}", **written, **more)
        assert (again["id"], again["outcome"]) == (answer["id"], expected)
        with pytest.raises(RefusedError):
            memory.remember("another body", **written, **more)
        made.id, made.status, made.begun = answer["id"], expected, self.time
        if expected in ("held", "refused"):
            made.many = made.many or known.is_many(self.time)
            self.waiting[tenant, key].append(made)
        if expected != "agreed":
            known.land(made, self.time, expected)
        if expected == "refused":
            assert answer["reason"] == "echo"
            if lift:
                self.lift(memory, known, answer, made, written, lift)

    def lift(
        self, memory: Memory, known: Key, refused: Any, made: Fact, written: dict[str, str], how: str
    ) -> None:
        """The refused value holds again: now, until soon, or from soon on. Only what holds for good is free."""
        standing = known.now(self.time)
        more: dict[str, Any] = {}
        taken = Fact("", made.client, made.value, "active", begun=self.time, many=known.is_many(self.time))
        if how == "brief":
            more["valid_until"] = self.time // SECOND + 30
            taken.ends = more["valid_until"] * SECOND
        if how == "ahead":
            more["valid_from"] = self.time // SECOND + 20
            taken.starts = more["valid_from"] * SECOND
            if any(
                one.start == taken.starts or one.value == taken.value for one in known.ahead(self.time)
            ) or known.against(taken, self.time):
                return
        answer = memory.remember(
            "it is so again", **written, **more, reaffirm=refused["reaffirm"], reason="it is"
        )
        taken.id, taken.begun = answer["id"], self.time
        known.facts[taken.id] = taken
        replaced = bool(standing) and not taken.many and taken.starts is None
        assert answer["outcome"] == ("superseded" if replaced else "stored")
        known.take(taken, self.time, lift=True, until=taken.ends)
        with pytest.raises(RefusedError):
            memory.remember("it is so again", **written, reaffirm=refused["reaffirm"], reason="it is")
        made.status = "lifted"

    @rule(tenant=tenants, client=clients, key=keys, first=values, second=values, other=st.none() | values)
    def replace_for_a_time(
        self, tenant: str, client: str, key: str, first: int, second: int, other: int | None
    ) -> None:
        """One value, another until soon, perhaps a third; once that has ended, the first again."""
        steps: list[tuple[int, str]] = [(first, "plain"), (second, "brief"), (first, "plain")]
        if other is not None:
            steps.insert(2, (other, "plain"))
        for number, (value, how) in enumerate(steps):
            if number == len(steps) - 1:
                self.time += 40 * SECOND
            self.remember(tenant, client, key, value, number, how, False, "", False)

    @rule(
        tenant=tenants,
        client=clients,
        key=keys,
        first=values,
        second=values,
        ended=st.sampled_from(["", "new"]),
    )
    def plan_and_say_the_old_one(
        self, tenant: str, client: str, key: str, first: int, second: int, ended: str
    ) -> None:
        """One value, another from soon on; once that has begun, and was perhaps taken back, the first again."""
        self.remember(tenant, client, key, first, 0, "plain", False, "", False)
        self.remember(tenant, client, key, second, 1, "ahead", False, "", False)
        self.time += 40 * SECOND
        if ended:
            self.model[tenant, key].begin(self.time)
            self.retract(tenant, key, 0)
        self.tell(tenant, key, first, True)
        self.tell(tenant, key, first, False)
        self.remember(tenant, client, key, first, 2, "plain", False, "", False)

    @rule(
        tenant=tenants,
        client=clients,
        key=keys,
        first=values,
        second=values,
        lift=st.sampled_from(["brief", "ahead"]),
    )
    def lift_for_a_time(self, tenant: str, client: str, key: str, first: int, second: int, lift: str) -> None:
        """A retired value is reaffirmed until soon, or from soon on; before and after, it is said again."""
        for value in (first, second):
            self.remember(tenant, client, key, value, 0, "plain", False, "", False)
        self.remember(tenant, client, key, first, 1, "plain", False, lift, False)
        self.tell(tenant, key, first, False)
        if lift == "ahead":
            self.remember(tenant, client, key, first, 2, "plain", False, "", False)
        self.time += 40 * SECOND
        self.tell(tenant, key, first, False)
        self.remember(tenant, client, key, first, 3, "plain", False, "", False)

    @rule(tenant=tenants, key=keys, value=values, keyed=st.booleans())
    def tell(self, tenant: str, key: str, value: int, keyed: bool) -> None:
        """Prose that states a value: it is held where the key has moved on from that, and else not stored here."""
        known = self.model[tenant, key]
        known.begin(self.time)
        if keyed and not known.now(self.time) and known.states(value, self.time):
            said = f"they say that it is {SPELLINGS[value][0]} there"
            answer = self.memory(tenant, "desk").remember(said, key=key)
            assert (answer["outcome"], answer["reason"]) == ("held", "possible_echo")
        elif not keyed and known.states(value, self.time):
            answer = self.memory(tenant, "desk").remember(f"{PROSE[key]}: {SPELLINGS[value][0]}.")
            assert (answer["outcome"], answer["reason"]) == ("held", "possible_echo")

    @rule(tenant=tenants, client=clients, key=keys, value=values)
    def crash_while_writing(self, tenant: str, client: str, key: str, value: int) -> None:
        """The process ends in the middle of a transaction, and another opens the home."""
        parts = replace(self.home.parts(), signer=lambda: crash)
        try:
            Memory(parts, Principal(tenant, "ops", client, SCOPES)).remember(
                "lost", key=key, value=SPELLINGS[value][0]
            )
        except Crash:
            self.home = self.open()

    @rule()
    def open_again(self) -> None:
        self.home.close()
        self.home = self.open()

    @rule(seconds=st.sampled_from([1, 40]))
    def pass_time(self, seconds: int) -> None:
        self.time += seconds * SECOND

    # Deciding

    @rule(tenant=tenants, key=keys, which=st.integers(0, 5))
    def retract(self, tenant: str, key: str, which: int) -> None:
        known = self.model[tenant, key]
        known.begin(self.time)
        standing = known.standing(self.time)
        if not standing:
            return
        fact = standing[which % len(standing)]
        others = [one for one in known.facts.values() if one.status == "conflict" and one is not fact]
        same = [
            one
            for one in known.facts.values()
            if one.status in ("active", "conflict") and one.value == fact.value and one is not fact
        ]
        self.memory(tenant).retract(fact.id)
        others = [one for one in others if one not in same]
        if fact.status == "conflict" and len({one.value for one in others}) == 1:
            for one in others:
                one.status = "active"
        known.retire([fact, *same], self.time, None, "retracted", None)

    @rule(tenant=tenants, key=keys, which=st.integers(0, 5))
    def resolve(self, tenant: str, key: str, which: int) -> None:
        known = self.model[tenant, key]
        known.begin(self.time)
        sides = [one for one in known.now(self.time) if one.status == "conflict"]
        memory = self.memory(tenant)
        listed = memory.conflicts()["conflicts"]
        open_here = [one for one in listed if {fact["id"] for fact in one["facts"]} & {s.id for s in sides}]
        if not open_here or not sides:
            return
        kept = sides[which % len(sides)]
        memory.resolve(open_here[0]["id"], kept.id)
        others = [one for one in known.facts.values() if one.status == "conflict" and one is not kept]
        kept.status = "active"
        known.retire(others, self.time, None, "superseded", kept)
        if kept.ends is None:
            known.retired.pop(kept.value, None)
        known.settle(kept.value, self.time, None)

    @rule(
        tenant=tenants,
        key=keys,
        which=st.integers(0, 5),
        what=st.sampled_from(["confirm", "discard", "reaffirm"]),
    )
    def decide(self, tenant: str, key: str, which: int, what: str) -> None:
        """A person looks at what waits."""
        known, waiting = self.model[tenant, key], self.waiting[tenant, key]
        known.begin(self.time)
        if not waiting:
            return
        fact = waiting[which % len(waiting)]
        if fact.start > self.time and (known.against(fact, self.time) or known.ahead(self.time)):
            return
        memory = self.memory(tenant)
        status = fact.status
        same = any(one.value == fact.value for one in known.standing(self.time))
        right = {"confirm": "held", "reaffirm": "refused"}.get(what, status)
        fits = status == right and fact.id in known.facts
        refused = what != "discard" and (
            same or (what == "confirm" and known.is_retired(fact.value, self.time)) or fact.ends is not None
        )
        try:
            if what == "reaffirm":
                seen = {one["id"]: one["shown"] for one in memory.review()["facts"]}
                memory.reaffirm(fact.id, "a person says so", seen.get(fact.id))
            else:
                getattr(memory, what)(fact.id)
        except (RefusedError, MalformedError):
            # What is erased, lifted or decided already; a value that ended by itself meanwhile.
            assert not fits or refused or status == "lifted" or (tenant, key) in self.erased
            return
        assert fits
        waiting.remove(fact)
        if what == "discard":
            fact.status = "discarded"
        elif what == "confirm" and fact.ends is not None and fact.ends <= self.time:
            fact.status = "history"
        else:
            known.take(fact, self.time, lift=what == "reaffirm")

    # Erasing

    @precondition(lambda self: self.erasures < ERASURES)
    @rule(tenant=tenants, key=keys, which=st.integers(0, 9), keep=st.booleans())
    def forget(self, tenant: str, key: str, which: int, keep: bool) -> None:
        known = self.model[tenant, key]
        known.begin(self.time)
        facts = [
            one
            for one in known.facts.values()
            if one.status not in ("held", "refused", "lifted", "discarded")
        ]
        if not facts:
            return
        self.erasures += 1
        self.erased.add((tenant, key))
        fact, guard = facts[which % len(facts)], "keep" if keep else "erase"
        memory = self.memory(tenant)
        asked = {"id": [fact.id], "guard": guard}
        answer = memory.forget(confirm=memory.forget_preview(**asked)["confirm"], **asked)
        assert answer["erased"] >= 1
        # Where nothing of a tenant is left, nobody can tell that this was there.
        with suppress(MalformedError):
            assert memory.provenance(fact.id)["fact"]["status"] == "erased"
        known.erase(fact.id, keep)

    @precondition(lambda self: self.erasures < ERASURES)
    @rule(tenant=tenants)
    def retention(self, tenant: str) -> None:
        for known in self.model.values():
            known.begin(self.time)
        superseded = {
            place: [one.id for one in known.facts.values() if one.status == "superseded"]
            for place, known in self.model.items()
            if place[0] == tenant
        }
        if not any(superseded.values()):
            return
        self.erasures += 1
        answer = self.memory(tenant).retention("0s", apply=True)
        assert answer["removed"] == sum(len(ids) for ids in superseded.values()), (superseded, self.model)
        for place, ids in superseded.items():
            for reference in ids:
                self.erased.add(place)
                self.model[place].erase(reference, keep=True)

    # Looking

    @invariant()
    def serves_what_the_model_says(self) -> None:
        for (tenant, key), known in self.model.items():
            known.begin(self.time)
            got = self.memory(tenant).get(key)
            said = {one.value for one in known.now(self.time)}
            served = {_number(fact["value"]) for fact in got["active"]}
            assert served <= said
            if (tenant, key) not in self.erased:
                assert served == said
                current = known.current(self.time)
                assert (None if got["current"] is None else _number(got["current"])) == current
                self.told.append((self.time, (tenant, key), got["current"]))
        self.time += SECOND

    @precondition(lambda self: self.told)
    @rule(which=st.integers(0, 10_000))
    def look_back(self, which: int) -> None:
        """What was believed at a time, as long as nothing of that key is erased."""
        time, (tenant, key), current = self.told[which % len(self.told)]
        if (tenant, key) not in self.erased:
            then = datetime.fromtimestamp(time // SECOND, UTC).replace(microsecond=time % SECOND).isoformat()
            assert self.memory(tenant).get(key, as_of=then, as_recorded=then)["current"] == current

    @rule()
    def rebuild(self) -> None:
        assert differences(self.home, [Principal(t, "ops", "desk", SCOPES) for t in TENANTS]) == []


def _number(value: str) -> int:
    return next(n for n, spellings in enumerate(SPELLINGS) if value in spellings)


def test_any_order_of_operations() -> None:
    examples, steps = (15, 20) if PROFILE == "project" else (300, 60)
    if os.environ.get("MUNIMENT_TEST_ENGINE") == "postgres":
        # The same examples, from the first on: an erasure vacuums a database.
        examples = -(-examples // 3)
    run_state_machine_as_test(
        Machine,
        settings=settings(settings.get_profile(PROFILE), max_examples=examples, stateful_step_count=steps),
    )
