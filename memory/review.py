"""Acts on what is there: retract, resolve, confirm, discard, reaffirm. Each is a statement of its own.

What an act does to a fact follows from the statement (the fold); what it does to the ledger, to conflicts and
to the word index is done here, in the same transaction.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from memory import beginning, canon, edge, guard, ledger, requests, store_holds
from memory.answers import Answer, receipts
from memory.key_view import STANDING, all_agree, states_of_key
from memory.model import Known, Principal, Proposal, own_name, parse_fact_id
from memory.principal import require
from memory.remember import close_settled_conflict
from memory.scope import Scope, open_scope
from memory.search import make_document, scope_token
from memory.store_holds import refuse_if_held
from tlog.errors import MalformedError, RefusedError

if TYPE_CHECKING:
    from memory.model import Status
    from memory.parts import Parts
    from memory.rows import EventRow, FactRow
    from memory.store_write import Txn

_RETRACTABLE: Final = ("active", "conflict", "history")
# Why a write waits that may be promoted: who said it, or how sure they were.
_PROMOTED: Final = frozenset({"provisional", "low_confidence", "authority"})


@dataclass(frozen=True)
class _Act:
    """An act under way: by whom, in which scope and transaction."""

    parts: Parts
    principal: Principal
    txn: Txn
    scope: Scope
    now: int

    def state(self, kind: str, acts: Mapping[str, Sequence[bytes]], reason: str | None = None) -> EventRow:
        """The statement of the act. A reason in free text is content, and can be erased."""
        principal = self.principal
        content = {
            "tenant": principal.tenant,
            "agent": principal.agent,
            "client": principal.client,
            "recorded_at": self.now,
            "reason": reason,
            "flags": ["authenticated"] if principal.authenticated else None,
        }
        return self.txn.add_event(self.scope.tenant, kind, content, sign=self.parts.sign_entry, acts=acts)

    def key_facts(self, fact: FactRow) -> tuple[FactRow, ...]:
        """The other facts of a fact's key that a read could serve now."""
        if fact.key_tag is None:
            return ()
        found = self.txn.view.facts_of_key(self.scope.tenant_id, fact.key_tag, STANDING)
        return tuple(other for other in found if other.seq != fact.seq)

    def retire(self, ended: Sequence[FactRow]) -> None:
        """Notes what facts of one key said, once the statement that ended them is made."""
        for key_tag in {fact.key_tag for fact in ended if fact.key_tag is not None}:
            standing = self.txn.view.facts_of_key(self.scope.tenant_id, key_tag, STANDING)
            ledger.retire(self.txn, self.scope, ended, ledger.still_said(standing, self.now))

    def unretire(self, fact: FactRow) -> None:
        """What a person says to hold may be said again, if it holds now and for good."""
        begun = fact.valid_from <= self.now or "valid_from_declared" not in fact.content.get("flags", ())
        if begun and fact.valid_until is None and fact.key_tag is not None:
            ledger.unretire(self.txn, self.scope, fact.key_tag, ledger.said(fact.content))

    def answer(self, fact: FactRow, status: str, made: EventRow) -> Answer:
        """What an act answers: the fact, its new status, and the receipt of the act."""
        receipt = receipts(self.parts).shape(made.entry_index)
        return {"id": fact.id, "status": status, "statement": made.id, "receipt": receipt}


def retract(parts: Parts, principal: Principal, reference: object) -> Answer:
    """A fact is no longer true, and nothing stands in its place."""
    require(principal, "memory:write")
    commitment = _parse_id(reference)
    with parts.store.write() as txn:
        act = _open(parts, principal, txn)
        fact = _fact(act, commitment)
        if fact.status not in _RETRACTABLE:
            raise _not_in_state("retract", "is current", fact.status)
        standing = act.key_facts(fact)
        past = fact.status == "history"  # what was said of then says nothing of now, and retires nothing
        ended = [fact] if past else [fact, *_said_ahead([fact], standing)]
        others = [other for other in standing if other.status == "conflict" and other not in ended]
        # What remains is no longer disputed once it all says the same.
        settled = fact.status == "conflict" and bool(others) and all_agree(one.content for one in others)
        keeps = [other.commitment for other in others] if settled else []
        made = act.state("retract", {"retracts": [one.commitment for one in ended], "keeps": keeps})
        if not past:
            act.retire(ended)
        _close_conflict(act, ended, made)
        return act.answer(fact, "retracted", made)


def resolve(parts: Parts, principal: Principal, conflict: object, keep: object) -> Answer:
    """One fact of a conflict holds; the others are superseded by this decision."""
    require(principal, "memory:review")
    opened, kept_id = _parse_id(conflict), _parse_id(keep)
    with parts.store.write() as txn:
        act = _open(parts, principal, txn)
        seq = txn.view.seq_of(act.scope.tenant_id, opened)
        row = None if seq is None else txn.view.conflict(act.scope.tenant_id, act.scope.agent_tag, seq)
        if row is None:
            raise MalformedError("expected the id of a conflict in this scope", code="unknown_id")
        if row.closed_by is not None:
            raise RefusedError("this conflict is settled already", code="not_open")
        facts = txn.view.facts_of_key(act.scope.tenant_id, row.key_tag, ("conflict",))
        if store_holds.is_disputed_on_hold(txn.view, act.scope.tenant_id, row.key_tag):
            raise RefusedError(
                "a side of this conflict is under a legal hold; it can be settled once that is released",
                code="on_hold",
            )
        kept = next((fact for fact in facts if fact.commitment[:16] == kept_id), None)
        if kept is None:
            raise MalformedError("expected keep to be the id of one of the facts in conflict")
        others = [fact for fact in facts if fact is not kept]
        if kept.valid_from > act.now and any(fact.valid_from <= act.now for fact in others):
            raise RefusedError(
                "the one to keep begins later, and what it would replace holds until then: keep that one, or wait "
                "until the other has begun",
                code="not_begun",
            )
        others += _said_ahead(others, [one for one in act.key_facts(kept) if one.status == "active"])
        made = act.state(
            "resolve", {"keeps": [kept.commitment], "retires": [fact.commitment for fact in others]}
        )
        act.retire(others)
        # Somebody with the right to settle it says that this one holds, whatever it was before.
        act.unretire(kept)
        ledger.settle(txn, act.scope, row.key_tag, [ledger.said(kept.content)], None)
        txn.close_conflict(act.scope.tenant_id, row.key_tag, made.seq)
        return act.answer(kept, "active", made)


def confirm(parts: Parts, principal: Principal, reference: object) -> Answer:
    """A held fact is served from now on; what it replaces of its key is superseded."""
    require(principal, "memory:review")
    commitment = _parse_id(reference)
    with parts.store.write() as txn:
        act = _open(parts, principal, txn)
        fact = _fact(act, commitment)
        if fact.status != "held":
            raise _not_in_state("confirm", "is held", fact.status)
        if "redacted" in fact.content.get("flags", ()):
            raise RefusedError("what this one says was erased and not kept", code="erased")
        admission = _admit(act, fact, lifted=None)
        made = act.state("confirm", {admission.act: [fact.commitment], "retires": admission.retires})
        _let_through(act, admission, made)
        return act.answer(fact, admission.status, made)


def promote(parts: Parts, principal: Principal, reference: object) -> Answer:
    """A guess, or a write of a client that is not known well enough, becomes a record like any other.

    As `confirm`, for what waits because of who said it or how sure they were, and for nothing else.
    """
    require(principal, "memory:review")
    commitment = _parse_id(reference)
    with parts.store.read() as view:
        scope = open_scope(view, parts.vault, principal)
        fact = None if scope is None else view.fact(scope.tenant_id, scope.agent_tag, commitment)
        reason = None if fact is None else view.links([fact.seq])[fact.seq].details.get("reason")
    if fact is not None and fact.status == "held" and reason not in _PROMOTED:
        raise RefusedError(
            f"expected a fact that waits for one of {', '.join(sorted(_PROMOTED))}; this one waits for what it says: "
            "confirm or discard it",
            code="wrong_status",
        )
    return confirm(parts, principal, reference)


def discard(parts: Parts, principal: Principal, reference: object) -> Answer:
    """A held or refused write is dropped: it waits for nobody and is served to nobody."""
    require(principal, "memory:review")
    commitment = _parse_id(reference)
    with parts.store.write() as txn:
        act = _open(parts, principal, txn)
        fact = _fact(act, commitment)
        if fact.status not in ("held", "refused"):
            raise _not_in_state("discard", "is held or refused", fact.status)
        made = act.state("discard", {"discards": [fact.commitment]})
        return act.answer(fact, "discarded", made)


def reaffirm(
    parts: Parts, principal: Principal, reference: object, reason: object, shown: object = None
) -> Answer:
    """A refused value holds again: the refused write takes the place of what its key says now.

    That has to be what it was when the write was refused, or when `review` gave the code `shown` with the refusal: who
    decides that a value holds again has seen what it takes the place of.
    """
    require(principal, "memory:reaffirm")
    why = edge.check_text(reason, "reason", edge.MAX_REASON_BYTES)
    commitment = _parse_id(reference)
    with parts.store.write() as txn:
        act = _open(parts, principal, txn)
        fact = _fact(act, commitment)
        code = txn.view.links([fact.seq])[fact.seq].details.get("reason")
        if fact.status != "refused" or code != "echo":
            raise _not_in_state("reaffirm", "was refused as an echo", fact.status)
        if any(done.act == "lifts" for done in txn.view.acts_on(act.scope.tenant_id, fact.seq)):
            raise RefusedError("this refusal is lifted already", code="not_open")
        if "redacted" in fact.content.get("flags", ()):
            raise RefusedError("the value of this refusal was erased and not kept", code="erased")
        _require_shown(act, fact, shown)
        admission = _admit(act, fact, lifted=fact.commitment)
        made = act.state("reaffirm", {"lifts": [fact.commitment], "retires": admission.retires}, reason=why)
        act.unretire(fact)
        _let_through(act, admission, made)
        return act.answer(fact, "active", made)


def _require_shown(act: _Act, refusal: FactRow, shown: object) -> None:
    """Returns if what the key of a refusal says has not changed since it was shown with it."""
    if refusal.key_tag is None:
        return
    if shown is None:
        then, now = (
            {
                state.commitment
                for state in states_of_key(act.txn.view, act.scope.tenant_id, refusal.key_tag, time).values()
                if state.status in STANDING
            }
            for time in (refusal.recorded_at, act.now)
        )
        same = then == now
    else:
        expected = requests.shown_code(act.scope, refusal.commitment, act.key_facts(refusal))
        same = isinstance(shown, str) and hmac.compare_digest(shown.encode(), expected.encode())
    if not same:
        raise RefusedError(
            "what this key says has changed since this was shown; look at review again, and give the code that it "
            "shows with this refusal",
            code="token_invalid",
        )


@dataclass(frozen=True)
class _Admission:
    """A withheld fact that may be let through, and the facts that it then replaces."""

    fact: FactRow
    replaced: tuple[FactRow, ...]
    past: bool = False

    @property
    def act(self) -> str:
        """What a confirmation does to it."""
        return "dates" if self.past else "confirms"

    @property
    def status(self) -> Status:
        """What it becomes."""
        return "history" if self.past else "active"

    @property
    def retires(self) -> tuple[bytes, ...]:
        """The commitments of what it replaces."""
        return tuple(fact.commitment for fact in self.replaced)


def _admit(act: _Act, fact: FactRow, lifted: bytes | None) -> _Admission:
    """The withheld fact, judged again on what its key says now; RefusedError if it may not be served."""
    content = fact.content
    flags = content.get("flags", ())
    proposal = Proposal(
        text=content["text"],
        key=content.get("key"),
        value=content.get("value"),
        subject=content.get("subject"),
        valid_from=fact.valid_from if "valid_from_declared" in flags else None,
        valid_until=fact.valid_until,
        many="many" in flags,
    )
    standing = act.key_facts(fact)
    retired = fact.key_tag is not None and ledger.is_retired(
        act.txn.view, act.scope, fact.key_tag, ledger.said(content), act.now
    )
    known = Known(
        now=act.now,
        client=own_name(content["client"], "reported" in flags),
        facts=tuple(other.as_known for other in standing),
        value_retired=retired,
        lifted=lifted,
    )
    decision = guard.decide_confirmed(proposal, known)
    if decision.outcome == "refused":
        raise RefusedError(decision.message, code=str(decision.reason))
    if decision.outcome == "agreed":
        raise RefusedError("a record says the same already; discard this one", code="agreed")
    if decision.outcome == "conflict":
        # It takes nobody's place before it begins, and then only that of its own client.
        raise RefusedError(
            "this one begins later, and another client's record says something else by then: let it through once it "
            "has begun, or discard it",
            code="not_begun",
        )
    if decision.outcome == "history" and (lifted is not None or fact.valid_until is None):
        # Nobody could tell when it ended once the record that it stands behind is erased.
        raise RefusedError(
            "this one is about the past, and would not be current: discard it, and write it again without provisional",
            code="history",
        )
    if decision.outcome == "history":
        return _Admission(fact, (), past=True)
    return _Admission(fact, tuple(other for other in standing if other.commitment in decision.retires))


def _let_through(act: _Act, admission: _Admission, made: EventRow) -> None:
    """What follows once a withheld fact is served: it is found by words, and what it replaced is retired."""
    fact = admission.fact
    act.txn.index_fact(fact.seq, make_document(scope_token(act.scope.agent_tag), fact.content))
    act.retire(admission.replaced)
    if fact.key_tag is not None and not admission.past:
        ledger.settle(act.txn, act.scope, fact.key_tag, [ledger.said(fact.content)], None)
    _close_conflict(act, admission.replaced, made)


def _said_ahead(ended: Sequence[FactRow], standing: Sequence[FactRow]) -> list[FactRow]:
    """Facts that would bring an ended value back by themselves: written ahead, they say it from a later time on."""
    values = [ledger.said(fact.content) for fact in ended]
    return [
        fact
        for fact in standing
        if fact not in ended and any(canon.same_value(ledger.said(fact.content), value) for value in values)
    ]


def _close_conflict(act: _Act, ended: Sequence[FactRow], made: EventRow) -> None:
    for key_tag in {fact.key_tag for fact in ended if fact.status == "conflict" and fact.key_tag is not None}:
        close_settled_conflict(act.txn, act.scope, key_tag, made)


def _open(parts: Parts, principal: Principal, txn: Txn) -> _Act:
    scope = open_scope(txn.view, parts.vault, principal)
    if scope is None:
        raise _unknown()
    now = txn.stamp(parts.clock())
    beginning.state_begun(parts, principal, txn, scope, now)
    return _Act(parts, principal, txn, scope, now)


def _fact(act: _Act, commitment: bytes) -> FactRow:
    """The fact of the caller's scope that an id stands for."""
    fact = act.txn.view.fact(act.scope.tenant_id, act.scope.agent_tag, commitment)
    if fact is not None:
        return fact
    refuse_if_held(act.txn.view, act.scope, commitment)
    made = act.txn.view.event(act.scope.tenant_id, commitment)
    if made is not None and made.content is None:
        raise RefusedError("this fact has been erased", code="erased")
    raise _unknown()


def _parse_id(reference: object) -> bytes:
    if not isinstance(reference, str):
        raise MalformedError("expected an id of 26 lower-case base32 characters")
    return parse_fact_id(reference.strip())


def _unknown() -> MalformedError:
    return MalformedError(
        "expected the id of a fact in this scope; it has none with this id", code="unknown_id"
    )


def _not_in_state(what: str, expected: str, status: str) -> RefusedError:
    return RefusedError(
        f"expected a fact to {what} that {expected}; this one is {status}", code="wrong_status", status=status
    )
