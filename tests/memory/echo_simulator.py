"""A store in memory: the pure rules joined as the real one joins them, and nothing else.

It runs the lines of a guard case, `{"op": …}` as `muniment batch` takes them, and answers in its shapes as far
as a case can ask. Time moves one second with each line, so no two writes are recorded at once.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from memory import canon, guard, naming, timeline
from memory.model import Decision, Known, KnownFact, Proposal
from tlog.errors import MalformedError

SECOND = 1_000_000
START = int(datetime.fromisoformat("2026-06-01T09:00:00+00:00").timestamp()) * SECOND
Scope = tuple[str, str]
Decide = Callable[[Proposal, Known], Decision]


@dataclass
class Ledger:
    """What a scope has retired: plain here, keyed hashes in the real one."""

    values: dict[tuple[str, canon.Canonical], int] = field(default_factory=dict)

    def add(self, key: str, value: str) -> None:
        for form in canon.value_forms(value):
            self.values[canon.canonical_key(key), form] = canon.word_count(form)

    def drop(self, key: str, value: str) -> None:
        for form in canon.value_forms(value):
            self.values.pop((canon.canonical_key(key), form), None)

    def holds(self, key: str, value: str) -> bool:
        return any((canon.canonical_key(key), form) in self.values for form in canon.value_forms(value))


@dataclass
class Written:
    """A write with its content, as long as retention leaves it."""

    event: timeline.TimelineEvent
    scope: Scope
    key: str | None
    text: str
    value: str | None
    client: str


class Simulator:
    """One empty store. `decide` is `guard.decide`, or the same with the guard off."""

    def __init__(self, decide: Decide = guard.decide) -> None:
        self.decide = decide
        self.now = START
        self.events: list[timeline.TimelineEvent] = []
        self.written: dict[bytes, Written] = {}
        self.ledgers: dict[Scope, Ledger] = defaultdict(Ledger)
        self.tokens: dict[str, tuple[bytes, canon.Canonical]] = {}

    def run(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one line; {"outcome": "error"} where the input is refused."""
        self.now += SECOND
        if line["op"] == "wait":
            self.now += line["seconds"] * SECOND
            return {"ok": True}
        arguments = {name: value for name, value in line.items() if name not in ("op", "as", "want")}
        tenant, agent, client = line["as"].split("/", 2)
        operation = getattr(self, f"_op_{line['op']}")
        try:
            result: dict[str, Any] = operation((tenant, agent), client, **arguments)
        except MalformedError:
            return {"ok": False, "outcome": "error"}
        return {"ok": True, **result}

    def _op_remember(
        self, scope: Scope, client: str, text: str, reaffirm: str | None = None, **given: Any
    ) -> dict[str, Any]:
        for name in ("valid_from", "valid_until"):
            if name in given:
                given[name] = self._time(given[name])
        proposal = Proposal(text=text, **given)
        if proposal.value is not None and not canon.canonical_value(proposal.value).form:
            raise MalformedError("expected a value that is not blank")
        known = self._known(scope, client, proposal, reaffirm)
        decision = self.decide(proposal, known)
        answer: dict[str, Any] = {
            "outcome": decision.outcome,
            "reason": decision.reason,
            "message": decision.message,
        }
        if decision.outcome == "agreed":
            return answer
        commitment = self._record(scope, client, proposal, decision, known)
        answer["id"] = commitment.hex()
        if decision.outcome == "refused":
            answer["reaffirm"] = f"token {len(self.tokens)}"
            self.tokens[answer["reaffirm"]] = (
                commitment,
                canon.canonical_value(proposal.value or proposal.text),
            )
        return answer

    def _op_get(
        self, scope: Scope, client: str, key: str, as_of: Any = "now", as_recorded: Any = "now"
    ) -> dict[str, Any]:
        recorded = self._time(as_recorded)
        facts = self._states(scope, key, recorded)
        told = timeline.answer(facts, recorded if as_of == "now" else self._time(as_of), recorded)
        served = [self.written[fact.commitment] for fact in told.served]
        single = None if told.conflict or any(fact.many for fact in told.served) or not served else served[-1]
        return {
            "current": None if single is None else single.value if single.value is not None else single.text,
            "active": len(served),
            "conflict": told.conflict,
            "content_erased": told.content_erased,
        }

    def _op_conflicts(self, scope: Scope, client: str) -> dict[str, Any]:
        keys = {
            canon.canonical_key(w.key)
            for w in self.written.values()
            if w.key is not None and w.scope == scope
        }
        states = timeline.fold(self.events)
        open_keys = [
            key
            for key in keys
            if any(
                states[c].status == "conflict"
                for c, w in self.written.items()
                if w.scope == scope and w.key is not None and canon.canonical_key(w.key) == key
            )
        ]
        return {"count": len(open_keys)}

    def _op_retention(
        self, scope: Scope, client: str, superseded_older_than: str, apply: bool = False
    ) -> dict[str, Any]:
        assert superseded_older_than == "0s"
        states = timeline.fold(self.events)
        gone = [c for c, w in self.written.items() if w.scope == scope and states[c].status == "superseded"]
        if apply:
            for commitment in gone:
                self._erase(commitment)
        return {"matched": len(gone), "removed": len(gone) if apply else 0}

    def _op_retract(self, scope: Scope, client: str, id: str) -> dict[str, Any]:
        commitment = bytes.fromhex(id)
        written = self.written[commitment]
        if timeline.fold(self.events)[commitment].status not in timeline.SERVED_NOW:
            raise MalformedError("expected the id of a current record")
        self._append("retract", {"retracts": (commitment,)})
        if written.key is not None:
            self._retire(scope, written.key, written)
        return {"status": "retracted"}

    def _known(self, scope: Scope, client: str, proposal: Proposal, token: str | None) -> Known:
        if proposal.key is None:
            return Known(
                now=self.now,
                client=client,
                facts=self._facts_of_text(scope, proposal.text),
                names_retired=self._names_retired(scope, proposal.text),
            )
        stated = proposal.value if proposal.value is not None else proposal.text
        lifted = None
        if token is not None:
            lifted, bound = self.tokens.pop(token)
            assert bound == canon.canonical_value(stated)
        return Known(
            now=self.now,
            client=client,
            facts=self._facts(scope, proposal.key),
            value_retired=self.ledgers[scope].holds(proposal.key, stated),
            lifted=lifted,
        )

    def _facts(self, scope: Scope, key: str) -> tuple[KnownFact, ...]:
        return tuple(
            self._known_fact(state) for state in self._states(scope, key, self.now) if _stands(state)
        )

    def _facts_of_text(self, scope: Scope, text: str) -> tuple[KnownFact, ...]:
        return tuple(
            self._known_fact(state)
            for commitment, state in timeline.fold(self.events).items()
            if self.written[commitment].scope == scope
            and _stands(state)
            and canon.canonical_text(self.written[commitment].text) == canon.canonical_text(text)
        )

    def _known_fact(self, state: timeline.FactState) -> KnownFact:
        written = self.written[state.commitment]
        return KnownFact(
            commitment=state.commitment,
            status=state.status,
            client=state.client,
            text=written.text,
            value=written.value,
            valid_from=state.valid_from,
            valid_until=state.valid_until,
            recorded_at=state.recorded_at,
            many=state.many,
        )

    def _names_retired(self, scope: Scope, text: str) -> bool:
        rows = self.ledgers[scope].values
        stated = set(canon.spans(text, {*rows.values()}))
        return any(
            value in stated and naming.states(text, value, key, self._active(scope, key))
            for key, value in rows
        )

    def _active(self, scope: Scope, key: str) -> list[tuple[str, str | None]]:
        return [(fact.text, fact.value) for fact in self._facts(scope, key)]

    def _record(
        self, scope: Scope, client: str, proposal: Proposal, decision: Decision, known: Known
    ) -> bytes:
        acts = {"retires": decision.retires, "conflicts": decision.conflicts}
        if known.lifted is not None and decision.outcome in ("stored", "superseded"):
            acts["lifts"] = (known.lifted,)
        until = proposal.valid_until
        if decision.outcome == "history":
            until = guard.history_end(proposal, known)
        event = self._append(
            "write",
            acts,
            outcome=decision.outcome,
            client=client,
            valid_from=self.now if proposal.valid_from is None else proposal.valid_from,
            valid_until=until,
            valid_from_declared=proposal.valid_from is not None,
            many=proposal.many,
        )
        self.written[event.commitment] = Written(
            event, scope, proposal.key, proposal.text, proposal.value, client
        )
        if proposal.key is not None:
            for target in decision.retires:
                self._retire(scope, proposal.key, self.written[target])
            if "lifts" in acts:
                self.ledgers[scope].drop(
                    proposal.key, proposal.value if proposal.value is not None else proposal.text
                )
        return event.commitment

    def _retire(self, scope: Scope, key: str, loser: Written) -> None:
        """A value enters the ledger with the last of the key's standing facts that says it."""
        value = loser.text if loser.value is None else loser.value
        standing = [fact.value or fact.text for fact in self._facts(scope, key)]
        if not any(canon.same_value(value, other) for other in standing):
            self.ledgers[scope].add(key, value)

    def _append(
        self, kind: str, acts: Mapping[str, Sequence[bytes]], **content: Any
    ) -> timeline.TimelineEvent:
        seq = len(self.events) + 1
        event = timeline.TimelineEvent(
            seq=seq,
            commitment=hashlib.sha256(str(seq).encode()).digest(),
            kind=kind,
            acts=acts,
            recorded_at=self.now,
            **content,
        )
        self.events.append(event)
        return event

    def _erase(self, commitment: bytes) -> None:
        del self.written[commitment]
        for place, event in enumerate(self.events):
            if event.commitment == commitment:
                self.events[place] = timeline.TimelineEvent(
                    seq=event.seq,
                    commitment=commitment,
                    kind=event.kind,
                    outcome=event.outcome,
                    acts=event.acts,
                )
        self._append("erase", {"erases": (commitment,)})

    def _states(self, scope: Scope, key: str, recorded: int) -> list[timeline.FactState]:
        wanted = canon.canonical_key(key)
        return [
            state
            for commitment, state in timeline.status_at(self.events, recorded).items()
            if self.written[commitment].scope == scope
            and (found := self.written[commitment].key) is not None
            and canon.canonical_key(found) == wanted
        ]

    def _time(self, given: str) -> int:
        relative = re.fullmatch(r"\$now([+-]\d+)", given)
        if relative is not None:
            return self.now + int(relative[1]) * SECOND
        if given == "now":
            return self.now
        if re.fullmatch(r"\d{4}-.*Z", given) is None:
            raise MalformedError("expected a time with a zone")
        return int(datetime.fromisoformat(given.replace("Z", "+00:00")).timestamp()) * SECOND


def failures(steps: Sequence[Mapping[str, Any]], decide: Decide = guard.decide) -> list[str]:
    """What a store answered otherwise than a case wants; empty where it holds.

    In a case "$last" stands for the token that the refusal before it answered, "$id0" for the id that step 0
    answered, "$now+60" for a minute from now, and the operation `wait` for time that passes.
    """
    store = Simulator(decide)
    given = {"$last": ""}
    found = []
    for number, step in enumerate(steps):
        line = {
            name: given.get(value, value) if isinstance(value, str) else value for name, value in step.items()
        }
        try:
            answer = store.run(line)
        except KeyError:  # a token or an id that no step before has answered
            answer = {"ok": False, "outcome": "error"}
        given["$last"] = answer.get("reaffirm", given["$last"])
        given[f"$id{number}"] = answer.get("id", "")
        for name, wanted in step.get("want", {}).items():
            if answer.get(name) != wanted:
                found.append(f"step {number}: {name} is {answer.get(name)!r}, not {wanted!r}")
    return found


def _stands(state: timeline.FactState) -> bool:
    return state.status in timeline.SERVED_NOW
