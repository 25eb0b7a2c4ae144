"""One write, from the arguments of a caller to a durable statement: a single transaction.

The guard decides inside it, on the caller's own view of the key, so that no other write comes in between. What
is stored, retired, refused or held is a statement; what agrees changes nothing, and is one where somebody else says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memory import beginning, canon, canon_versions, edge, guard, ledger, requests
from memory.admission import admit
from memory.answers import Answer, current_shape, pending, receipts
from memory.corroboration import corroborate
from memory.key_view import STANDING, key_now, standing_now
from memory.model import Decision, Known, Principal, Proposal, Status, fact_id, own_name
from memory.principal import require
from memory.quarantine import is_plain, present
from memory.rows import NewFact
from memory.scope import Scope, open_for_write
from memory.search import make_document, scope_token
from memory.store_holds import held_contents, is_disputed
from memory.waiting import check_witnesses, waited
from tlog.errors import RefusedError

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.rows import EventRow, FactRow, LedgerHit
    from memory.store_write import Txn

# Statuses that no read finds by words; such facts are indexed once a person lets them through.
WITHHELD: Final = frozenset({"held", "refused"})
_CURRENT: Final = frozenset({"stored", "superseded", "conflict"})
# A reaffirmed value that another client contradicts is not current: its refusal stands until that is settled.
_LIFTING: Final = frozenset({"stored", "superseded"})
_STATUS_OF: Final[Mapping[str, Status]] = {
    "stored": "active",
    "superseded": "active",
    "history": "history",
    "conflict": "conflict",
    "held": "held",
    "refused": "refused",
}


class _Write(NamedTuple):
    """A write on its way: who writes what, in which scope and transaction, and the caller's view of the key."""

    parts: Parts
    principal: Principal
    txn: Txn
    scope: Scope
    now: int
    proposal: Proposal
    key_tag: bytes | None
    text_tag: bytes
    facts: tuple[FactRow, ...]
    read: ledger.Statable | None = None
    is_first: bool = False
    """Nothing was ever said of its key that is still known."""

    @property
    def said(self) -> str:
        """What the write says: its value, or its text where it has none."""
        return self.proposal.text if self.proposal.value is None else self.proposal.value

    @property
    def standing(self) -> tuple[FactRow, ...]:
        """The facts of the key that a read could serve now."""
        return tuple(fact for fact in self.facts if fact.status in STANDING)


class Written(NamedTuple):
    """What a write came to: the statement that it made or agrees with, and that statement's place in the log."""

    answer: Answer
    seq: int
    entry_index: int | None = None
    known: bool = False
    """The same request was answered before."""


def remember(parts: Parts, principal: Principal, arguments: Mapping[str, Any]) -> Answer:
    """What became of a write, once it is durable. `arguments` are those of `Memory.remember`.

    Raises MalformedError for bad input, RefusedError for a token or an idempotency key that does not hold.
    """
    wait = edge.check_wait(arguments.get("wait"))
    check_witnesses(parts, wait)
    written = parts.store.write_together(prepare(parts, principal, arguments))
    if wait is not None:
        return waited(parts, written.answer, written.seq, wait)
    return answered(parts, written)


def answered(parts: Parts, written: Written) -> Answer:
    """The answer to a write that is durable."""
    index = written.entry_index
    written.answer["receipt"] = pending() if index is None else receipts(parts).shape(index)
    return written.answer


def prepare(parts: Parts, principal: Principal, arguments: Mapping[str, Any]) -> Callable[[Txn], Written]:
    """The write as a function of a transaction; whatever is wrong with the arguments alone is raised now."""
    require(principal, "memory:write")
    requests.check_reaffirm(principal, arguments)
    # Bad input is answered before anybody waits for the lock.
    proposal = edge.make_proposal(parts.clock(), arguments)
    idempotency_key = arguments.get("idempotency_key")
    if idempotency_key is not None:
        edge.check_idempotency_key(idempotency_key)
    guarded = proposal.value is None and parts.guard == "on"
    read = ledger.read_ahead(parts, principal, proposal.text) if guarded else None

    def work(txn: Txn) -> Written:
        scope = open_for_write(parts, txn, principal)
        now = txn.stamp(parts.clock())
        # "now" is the time of the stamp, which may lie behind a clock that has gone back.
        dated = proposal.valid_from is not None or proposal.valid_until is not None
        proposed = edge.make_proposal(now, arguments) if dated else proposal
        write = _open(parts, principal, txn, scope, now, proposed, read)
        if idempotency_key is None:
            return _write(write, arguments.get("reaffirm"))
        request = requests.make_request(scope, principal, idempotency_key, arguments)
        return _write_once(write, request, arguments.get("reaffirm"))

    return work


def _write_once(write: _Write, request: requests.Request, token: str | None) -> Written:
    """The write, or what the same request came to before."""
    found = requests.replay(write.txn.view, write.scope, request)
    if found is None:
        written = _write(write, token)
        requests.note(write.txn, write.scope, request, written.answer, written.seq)
        return written
    kept, made = found
    current = None
    if write.key_tag is not None and _may_read(write):
        current = current_shape(
            standing_now(write.txn.view, write.scope.tenant_id, write.key_tag, write.standing, write.now)
        )
    key = None if write.proposal.key is None else present(write.proposal.key, kept["id"]).text
    answer = {**kept, "key": key, "current": current, "reaffirm": None}
    return Written(answer, made.seq, made.entry_index, known=True)


def _open(
    parts: Parts,
    principal: Principal,
    txn: Txn,
    scope: Scope,
    now: int,
    proposal: Proposal,
    read: ledger.Statable | None,
) -> _Write:
    beginning.state_begun(parts, principal, txn, scope, now)
    key_tag = None if proposal.key is None else scope.key_tag(proposal.key)
    text_tag = scope.text_tag(proposal.text)
    if key_tag is None:
        facts = txn.view.facts_of_text(scope.tenant_id, text_tag, (*STANDING, "retracted"))
    elif not txn.knows_key(scope.tenant_id, key_tag):
        return _Write(parts, principal, txn, scope, now, proposal, key_tag, text_tag, (), read, is_first=True)
    else:
        # What speaks of the past is compared with what is known of the past.
        dated = proposal.valid_from is not None or proposal.valid_until is not None
        statuses: tuple[Status, ...] = (*STANDING, "history") if dated else STANDING
        facts = txn.view.facts_of_key(scope.tenant_id, key_tag, statuses)
    return _Write(parts, principal, txn, scope, now, proposal, key_tag, text_tag, facts, read)


def _write(write: _Write, token: str | None) -> Written:
    lifted = None
    if token is not None:
        lifted = requests.redeem_token(
            write.txn, write.scope, write.principal, token, write.proposal, write.standing, write.now
        )
    known = _known(write, lifted)
    decide = guard.decide if write.parts.guard == "on" else guard.decide_unguarded
    decision = decide(write.proposal, known)
    if decision.outcome == "agreed":
        return _agreed(write, decision)
    if lifted is None:
        touched = (*decision.retires, *decision.conflicts)
        against = [fact.content for fact in write.facts if fact.commitment in touched]
        decision = admit(
            decision, write.proposal, write.principal, against, write.txn.once(write.parts.terms)
        )
    if lifted is not None and decision.outcome not in _CURRENT:
        raise RefusedError(
            "a reaffirmation says that the value holds now, and this write would not be current: "
            "write it without valid_from and without provisional",
            code="token_invalid",
        )
    return _land(write, decision, known)


def _known(write: _Write, lifted: bytes | None) -> Known:
    view, scope, proposal = write.txn.view, write.scope, write.proposal
    guarded = write.parts.guard == "on"
    retired = blind = False
    stated: tuple[LedgerHit, ...] = ()
    unsaid = False
    if guarded and write.key_tag is not None and not write.is_first:
        retired = ledger.is_retired(view, scope, write.key_tag, write.said, write.now)
        # What stands beside a record on hold has taken its place: that one does not come back by another's mouth.
        retired = retired or (bool(write.standing) and _says_held(write, write.key_tag))
        if proposal.value is None and not retired:
            stated = ledger.key_states_retired(
                view, scope, write.key_tag, proposal.text, write.read, write.now
            )
        blind = retired and ledger.outlives_erasure(view, scope, write.key_tag, write.said)
    elif guarded and write.key_tag is None and not any(fact.key_tag for fact in write.standing):
        stated = ledger.names_retired(view, scope, proposal.text, write.read, write.now)
        # What was taken back is not said again by whoever still has it in so many words.
        unsaid = bool(write.facts) and not write.standing
    return Known(
        write.now,
        own_name(write.principal.client, write.principal.reported),
        tuple([fact.as_known for fact in write.facts]),
        retired,
        bool(stated) or unsaid,
        blind or any(hit.blind for hit in stated),
        lifted,
    )


def _says_held(write: _Write, key_tag: bytes) -> bool:
    held = held_contents(write.txn.view, write.scope.tenant_id, key_tag)
    return any(canon.same_value(ledger.said(content), write.said) for content in held)


def _agreed(write: _Write, decision: Decision) -> Written:
    fact = next(fact for fact in write.facts if fact.commitment == decision.agrees_with)
    corroborate(write.parts, write.principal, write.txn, write.scope, write.now, (fact, write.proposal))
    return Written(_answer(write, decision, fact.commitment), fact.seq, fact.entry_index)


def _land(write: _Write, decision: Decision, known: Known) -> Written:
    """The statement of everything but an agreement, with all that follows from it."""
    txn, scope, proposal = write.txn, write.scope, write.proposal
    status = _STATUS_OF[decision.outcome]
    content = _content(write, decision, known)
    lifts = () if known.lifted is None or decision.outcome not in _LIFTING else (known.lifted,)
    made = txn.add_event(
        scope.tenant,
        "write",
        content,
        sign=txn.once(write.parts.signer),
        acts=_acts(decision, lifts),
        details={"outcome": decision.outcome, "reason": decision.reason},
    )
    subject = content.get("subject")
    row = NewFact(
        agent_tag=scope.agent_tag,
        key_tag=write.key_tag,
        subject_tag=None if subject is None else scope.subject_tag(subject),
        text_tag=write.text_tag if content["text"] else scope.text_tag(""),
        status=status,
        valid_from=content["valid_from"],
        declared=proposal.valid_from is not None,
        valid_until=content["valid_until"],
        recorded_at=write.now,
    )
    txn.add_fact(made, row)
    if status not in WITHHELD:
        txn.index_fact(made.seq, make_document(scope_token(scope.agent_tag), content))
    if write.key_tag is not None and not write.is_first:
        _settle_key(write, decision, lifts, made, "many" in content["flags"])
    answer = _answer(write, decision, made.commitment)
    if decision.reason == "echo" and "memory:reaffirm" in write.principal.scopes:
        answer["reaffirm"] = requests.issue_token(
            txn, scope, write.principal, made, proposal, write.standing, write.now
        )
    return Written(answer, made.seq)


def _acts(decision: Decision, lifts: Sequence[bytes]) -> dict[str, Sequence[bytes]]:
    acts = {
        "retires": decision.retires,
        "conflicts": decision.conflicts,
        "lifts": lifts,
        "keeps": decision.keeps,
    }
    return {act: targets for act, targets in acts.items() if targets}


def _settle_key(
    write: _Write, decision: Decision, lifts: Sequence[bytes], made: EventRow, many: bool
) -> None:
    """Ledger and conflicts of a key after a write."""
    txn, scope, key_tag, proposal = write.txn, write.scope, write.key_tag, write.proposal
    assert key_tag is not None
    retired = [fact for fact in write.facts if fact.commitment in decision.retires]
    kept = ledger.still_said((fact for fact in write.standing if fact not in retired), write.now)
    kept.append(write.said)
    if retired:
        ledger.retire(txn, scope, retired, kept, proposal.valid_until)
    begun = (proposal.valid_from or 0) <= write.now
    if lifts and begun and proposal.valid_until is None:
        ledger.unretire(txn, scope, key_tag, write.said)
    if decision.outcome in _CURRENT and begun and not many:
        ledger.settle(txn, scope, key_tag, kept, proposal.valid_until)
    if decision.conflicts:
        txn.open_conflict(made, scope.agent_tag, key_tag)
    elif any(fact.status == "conflict" for fact in retired):
        close_settled_conflict(txn, scope, key_tag, made)


def close_settled_conflict(txn: Txn, scope: Scope, key_tag: bytes, made: EventRow) -> None:
    """Closes the conflict of a key once no fact of it is in conflict any more."""
    if not is_disputed(txn.view, scope.tenant_id, key_tag):
        txn.close_conflict(scope.tenant_id, key_tag, made.seq)


def _content(write: _Write, decision: Decision, known: Known) -> dict[str, Any]:
    proposal, principal = write.proposal, write.principal
    until = proposal.valid_until
    many = proposal.many if decision.outcome == "history" else guard.is_many(proposal, known)
    if decision.outcome == "history":
        until = guard.history_end(proposal, known)
    if decision.outcome == "held":
        until = guard.held_end(proposal, known)
    flags = {
        "provisional": proposal.provisional,
        "many": many,
        "restatement": proposal.restatement,
        "reaffirmed": known.lifted is not None,
        "unguarded": write.parts.guard != "on",
        "valid_from_declared": proposal.valid_from is not None,
        "authenticated": principal.authenticated,
        "reported": principal.reported,
    }
    content: dict[str, Any] = {
        "tenant": principal.tenant,
        "agent": principal.agent,
        "client": principal.client,
        "subject": proposal.subject,
        "key": proposal.key,
        "value": proposal.value,
        "text": proposal.text,
        "valid_from": write.now if proposal.valid_from is None else proposal.valid_from,
        "valid_until": until,
        "recorded_at": write.now,
        "source": proposal.source,
        "reason": proposal.reason,
        "flags": sorted(name for name, holds in flags.items() if holds),
        "canon": canon_versions.current().version,
    }
    if known.blind and decision.outcome in WITHHELD:
        ledger.count_blind_refusal(write.txn, write.scope, write.now)
        # The value was erased and stays refused; to keep this copy of it for review would bring it back.
        content |= {"text": "", "value": None, "subject": None, "source": None}
        content["flags"] = sorted([*content["flags"], "redacted"])
    return content


def _answer(write: _Write, decision: Decision, commitment: bytes) -> Answer:
    key, name = write.proposal.key, fact_id(commitment)
    # Key and value are looked at together, as nearly always both are plain.
    plain = is_plain(f"{key} {write.said}")
    return {
        "outcome": decision.outcome,
        "reason": decision.reason,
        "message": decision.message,
        "id": name,
        "key": key if key is None or plain else present(key, name).text,
        "retired": [fact_id(retired) for retired in decision.retires],
        "conflict_with": [fact_id(other) for other in decision.conflicts],
        "current": _current_after(write, decision, name, plain),
        "reaffirm": None,
    }


def _current_after(write: _Write, decision: Decision, name: str, plain: bool) -> Answer | None:
    """What the key says now: this write, if it took the place of all there was."""
    if write.key_tag is None or not _may_read(write):
        return None
    view, scope, proposal = write.txn.view, write.scope, write.proposal
    if decision.outcome in ("agreed", "held", "refused"):
        standing = standing_now(view, scope.tenant_id, write.key_tag, write.standing, write.now)
        return current_shape(standing)
    alone = decision.outcome != "history" and len(decision.retires) == len(write.facts)
    begun = proposal.valid_from is None or proposal.valid_from <= write.now
    if not (alone and begun and not proposal.many):
        return current_shape(key_now(view, scope.tenant_id, write.key_tag, write.now))
    return {"id": name, "value": write.said if plain else present(write.said, name).text}


def _may_read(write: _Write) -> bool:
    return "memory:read" in write.principal.scopes
