"""What becomes of a write: one pure function over the caller's own view of the key.

The order of the questions is the rule. A statement about the past is history before it is anything else; one
that says what is known already changes nothing; only then may it be refused, held or kept beside another
client's; and what is left replaces what the same client said before.
Messages are for agents and never repeat content.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from memory.canon import canonical_text, same_value, value_forms
from memory.model import Decision, Known, KnownFact, Proposal

STORED: Final = "Stored."
STORED_MANY: Final = "Stored beside the other values of this key; retract one to remove it."
STORED_FUTURE: Final = (
    "Stored for later: it becomes current at its valid_from, and the present record stands until then."
)
SUPERSEDED: Final = "Stored as the current record of this key; what it replaces is kept as history."
REAFFIRMED: Final = "Stored as the current record of this key, as reaffirmed; this stays marked."
AGREED: Final = "Nothing changed: the current record of this key says the same already."
AGREED_TEXT: Final = "Nothing changed: a record says the same already."
AGREED_OPEN: Final = (
    "Nothing changed: one side of an open conflict says the same already. Settle it with resolve."
)
AGREED_RESTATEMENT: Final = (
    "Nothing changed: a restatement puts the current record in other words and stores no value. "
    "If the value is another one now, write it again without restatement."
)
HISTORY: Final = (
    "Kept as history: it is dated before the current record of this key, which stays as it is. "
    "If it holds now, write it again without valid_from."
)
HISTORY_SAME: Final = (
    "Kept as history: the current record of this key says the same from a later time on, and stays as it is."
)
HISTORY_ENDED: Final = "Kept as history: it says itself that it no longer holds (valid_until has passed)."
HISTORY_RETIRED: Final = (
    "Kept as history: this key has moved on from this value, which stays retired. "
    "If it holds again now, write it without valid_from and have that reaffirmed."
)
CONFLICT: Final = (
    "Kept beside another client's record of this key, which says something else; until the conflict is resolved "
    "the key has no current value. Settle it with resolve."
)
CONFLICT_COMING: Final = (
    "Stored as the current record of this key; another client has written something else ahead, and from its "
    "valid_from on the two disagree. Settle it with resolve."
)
CONFLICT_FUTURE: Final = (
    "Kept for later beside another client's record of this key; from its valid_from on the two disagree, and the "
    "present record stands until then. Settle it with resolve."
)
REFUSED_ECHO: Final = (
    "Refused, nothing changed: this key has moved on from this value, so it looks like a stale copy. "
    "If it is true again, it needs a reaffirmation: this write again with the reaffirm token of this answer and "
    "a reason, or a person in review."
)
REFUSED_VALUELESS: Final = (
    "Refused, nothing changed: the current record of this key has a value and this write has none. "
    "Write it with the value it states, or without the key if it is about something else."
)
HELD_PROVISIONAL: Final = (
    "Held and not served, because it is provisional, until it is confirmed or discarded in review."
)
HELD_ECHO: Final = (
    "Held and not served: it seems to state a value that the record it is about has moved on from. "
    "A person can confirm or discard it in review; to correct a record, write with its key and value."
)


def decide(proposal: Proposal, known: Known) -> Decision:
    """The outcome of a write, with the commitments it retires, stands beside or agrees with."""
    if proposal.key is None:
        return _decide_unkeyed(proposal, known, known.names_retired)
    if known.is_nothing and proposal.is_plain:
        return _STORED
    view = _view(proposal, known)
    return _past(view) or _agreement(view) or _echo(view) or _refusable(view) or _landed(view)


def decide_unguarded(proposal: Proposal, known: Known) -> Decision:
    """As `decide`, where the owner has switched the guard off: nothing is refused, or held as an echo."""
    if proposal.key is None:
        return _decide_unkeyed(proposal, known, suspect=False)
    view = _view(proposal, known)
    return _past(view) or _agreement(view) or _restatement(view) or _provisional(view) or _landed(view)


def decide_confirmed(proposal: Proposal, known: Known) -> Decision:
    """The outcome of a held write that a person confirms: it lands, unless its value has been retired since.

    A confirmation says which record holds, so it leaves no conflict behind. `proposal.valid_from` is None
    unless the writer declared one: a confirmed write holds from its confirmation on.
    """
    settled = proposal._replace(provisional=False, restatement=False)
    if settled.key is None:
        return _decide_unkeyed(settled, known, suspect=False)
    view = _view(settled, known)
    return _past(view) or _agreement(view) or _echo(view) or _valueless(view) or _settled(view, SUPERSEDED)


def is_many(proposal: Proposal, known: Known) -> bool:
    """Whether a write is one of many values of its key: it says so, or what stands there does."""
    return proposal.many or (bool(known.facts) and proposal.key is not None and _view(proposal, known).many)


def history_end(proposal: Proposal, known: Known) -> int | None:
    """When a write whose outcome is `history` stopped to hold: its valid_until, or the start of what followed.

    It belongs into the content as `valid_until`: the record it stands behind may be erased, and the older
    one must not come back for that.
    """
    view = _view(proposal, known)
    ends = [fact.valid_from for fact in view.current if fact.valid_from > view.start and not fact.many]
    ends += [fact.valid_from for fact in _said_since(view)]
    if proposal.valid_until is not None:
        ends.append(proposal.valid_until)
    return min(ends, default=None)


def held_end(proposal: Proposal, known: Known) -> int | None:
    """The same of a write that is held, where it would be history if it were not; else its own valid_until.

    It is known when it is written alone: by the time somebody confirms it, what it stands behind may be erased.
    """
    if proposal.key is None or _past(_view(proposal, known)) is None:
        return proposal.valid_until
    return history_end(proposal, known)


_STORED: Final = Decision("stored", STORED)


class _View(NamedTuple):
    """A proposal beside the facts of its key, sorted by what time has made of them."""

    proposal: Proposal
    known: Known
    start: int
    current: tuple[KnownFact, ...]
    displaced: tuple[KnownFact, ...]
    coming: tuple[KnownFact, ...]
    many: bool


def _view(proposal: Proposal, known: Known) -> _View:
    start = known.now if proposal.valid_from is None else proposal.valid_from
    if not known.facts:
        return _View(proposal, known, start, (), (), (), proposal.many)
    standing = [fact for fact in known.facts if fact.status in ("active", "conflict")]
    current, displaced = _standing_at(standing, known.now)
    return _View(
        proposal=proposal,
        known=known,
        start=start,
        current=current,
        displaced=displaced,
        coming=tuple(fact for fact in standing if fact.valid_from > known.now),
        many=proposal.many or any(fact.many for fact in current),
    )


def _standing_at(
    facts: Sequence[KnownFact], time: int
) -> tuple[tuple[KnownFact, ...], tuple[KnownFact, ...]]:
    """The facts that hold at a time, and those that would if the same client's later one had not begun.

    A later one that was written ahead retires nothing when it is written; once it begins, it displaces.
    """
    within = [
        fact
        for fact in facts
        if fact.valid_from <= time and (fact.valid_until is None or fact.valid_until > time)
    ]
    latest: dict[str, int] = {}
    for fact in within:
        if not fact.many:
            latest[fact.client] = max(fact.valid_from, latest.get(fact.client, fact.valid_from))
    displaced = [fact for fact in within if not fact.many and fact.valid_from < latest[fact.client]]
    return tuple(fact for fact in within if fact not in displaced), tuple(displaced)


def _decide_unkeyed(proposal: Proposal, known: Known, suspect: bool) -> Decision:
    start = known.now if proposal.valid_from is None else proposal.valid_from
    told = canonical_text(proposal.text)
    same = [fact for fact in known.facts if canonical_text(fact.text) == told]
    ended = _has_ended(proposal, known.now)
    if suspect and not ended:
        return Decision("held", HELD_ECHO, reason="possible_echo")
    for fact in same:
        if fact.status in ("active", "conflict") and _spans_alike(proposal, start, fact):
            return Decision("agreed", AGREED_TEXT, agrees_with=fact.commitment)
    if ended and known.blind:
        return Decision("refused", REFUSED_ECHO, reason="echo")
    if ended:
        return Decision("history", HISTORY_ENDED)
    if proposal.provisional:
        return Decision("held", HELD_PROVISIONAL, reason="provisional")
    return Decision("stored", STORED)


def _past(view: _View) -> Decision | None:
    """History: what has ended, or begins before the record it would replace."""
    proposal = view.proposal
    ended = _has_ended(proposal, view.known.now)
    own = [fact for fact in view.current if fact.client == view.known.client]
    replaced = [fact for fact in own or view.current if not fact.many and not view.many]
    # A reaffirmation says that the value holds now, since whenever that was.
    behind = [fact for fact in replaced if fact.valid_from > view.start and view.known.lifted is None]
    behind += _said_since(view)
    if not ended and not behind:
        return None
    for fact in view.known.facts:
        if (
            fact.status == "history"
            and fact.valid_from == view.start
            and _says_the_same(proposal, fact)
            and fact.valid_until == history_end(proposal, view.known)
        ):
            return Decision("agreed", AGREED_TEXT, agrees_with=fact.commitment)
    if view.known.blind:
        return Decision("refused", REFUSED_ECHO, reason="echo")
    if proposal.provisional:
        return Decision("held", HELD_PROVISIONAL, reason="provisional")
    if view.known.value_retired:
        return Decision("history", HISTORY_RETIRED)
    if ended:
        return Decision("history", HISTORY_ENDED)
    return Decision("history", HISTORY_SAME if _says_the_same(proposal, behind[0]) else HISTORY)


def _said_since(view: _View) -> list[KnownFact]:
    """Of many values, those that say the same from a later time on: one value does not stand twice."""
    facts = view.current if view.many and view.known.lifted is None else ()
    later = [fact for fact in facts if fact.many and fact.valid_from > view.start]
    return [fact for fact in later if _says_the_same(view.proposal, fact)]


def _agreement(view: _View) -> Decision | None:
    """Nothing to do where the key says the same at the time the proposal speaks of."""
    if _takes_a_side(view):
        return None
    for fact in _holding(view):
        # What is retired again once it has ended is as true now for whoever says it without the end.
        alike = view.known.value_retired or _spans_alike(view.proposal, view.start, fact)
        if alike and _says_the_same(view.proposal, fact):
            others = {one.client for one in view.current if one.status == "conflict"} - {fact.client}
            message = AGREED_OPEN if fact.status == "conflict" and others else AGREED
            return Decision("agreed", message, agrees_with=fact.commitment)
    return None


def _echo(view: _View) -> Decision | None:
    """A retired value comes back through a reaffirmation alone, whatever its flags and its valid_from say."""
    if view.known.lifted is not None:
        return _provisional(view) or _settled(view, REAFFIRMED)
    if view.known.value_retired or any(_says_the_same(view.proposal, fact) for fact in view.displaced):
        return Decision("refused", REFUSED_ECHO, reason="echo")
    return None


def _refusable(view: _View) -> Decision | None:
    return _restatement(view) or _valueless(view) or _suspect(view) or _provisional(view)


def _restatement(view: _View) -> Decision | None:
    """A restatement agrees with the record that its words fit best, and never retires one."""
    if not view.proposal.restatement:
        return None
    holding = _holding(view)
    if not holding:
        return None
    told = canonical_text(f"{view.proposal.value or ''} {view.proposal.text}")
    best = max(holding, key=lambda fact: (canonical_text(fact.value or fact.text) in told, fact.valid_from))
    return Decision("agreed", AGREED_RESTATEMENT, agrees_with=best.commitment)


def _valueless(view: _View) -> Decision | None:
    """Prose cannot be compared, so it may not take the place of a value."""
    if view.proposal.value is None and any(fact.value is not None for fact in view.current):
        return Decision("refused", REFUSED_VALUELESS, reason="valueless")
    return None


def _suspect(view: _View) -> Decision | None:
    """Prose without a value that states one which its key has moved on from."""
    if view.proposal.value is None and view.known.names_retired:
        return Decision("held", HELD_ECHO, reason="possible_echo")
    return None


def _provisional(view: _View) -> Decision | None:
    return Decision("held", HELD_PROVISIONAL, reason="provisional") if view.proposal.provisional else None


def _settled(view: _View, message: str) -> Decision:
    """The write of somebody who may say what holds: it takes the place of every client's record."""
    if view.many or view.start > view.known.now:
        return _landed(view)
    retires = _with_plans(view, (*view.displaced, *view.current))
    return Decision("superseded" if retires else "stored", message if retires else STORED, retires=retires)


def _landed(view: _View) -> Decision:
    """What the same client said before is replaced; what another client says stands beside it."""
    if view.many:
        return Decision("stored", STORED_MANY)
    future = view.start > view.known.now
    if future:
        replaced = [fact for fact in view.coming if fact.valid_from == view.start and not fact.many]
    else:
        replaced = [*view.displaced, *view.current]
    retires = _with_plans(view, [fact for fact in replaced if fact.client == view.known.client])
    conflicts = tuple(
        fact.commitment
        for fact in (*view.current, *view.coming)
        if fact.client != view.known.client
        and not fact.many
        and _overlaps(view, fact)
        and not _says_the_same(view.proposal, fact)
    )
    # Nobody disagrees any more where all that is left in conflict says the same.
    keeps = tuple(
        fact.commitment
        for fact in view.current
        if fact.client != view.known.client and fact.status == "conflict" and _takes_a_side(view)
    )
    if conflicts:
        now = any(fact.commitment in conflicts for fact in view.current)
        message = CONFLICT_FUTURE if future else CONFLICT if now else CONFLICT_COMING
        return Decision("conflict", message, retires=retires, conflicts=conflicts)
    if retires:
        return Decision("superseded", SUPERSEDED, retires=retires, keeps=keeps)
    return Decision("stored", STORED_FUTURE if future else STORED)


def _with_plans(view: _View, replaced: Sequence[KnownFact]) -> tuple[bytes, ...]:
    """What is replaced, and what the same clients wrote ahead that would bring the same value back."""
    stated = {form for fact in replaced for form in value_forms(_stated(fact))} if view.coming else set()
    clients = {fact.client for fact in replaced}
    plans = [
        fact
        for fact in view.coming
        if fact not in replaced
        and fact.client in clients
        and not stated.isdisjoint(value_forms(_stated(fact)))
    ]
    return tuple(fact.commitment for fact in (*replaced, *plans))


def _holding(view: _View) -> tuple[KnownFact, ...]:
    """The facts that hold when the proposal begins: now, or later."""
    if view.start <= view.known.now:
        return view.current
    return _standing_at((*view.current, *view.displaced, *view.coming), view.start)[0]


def _overlaps(view: _View, fact: KnownFact) -> bool:
    ends = view.proposal.valid_until
    begins_before = ends is None or fact.valid_from < ends
    return begins_before and (fact.valid_until is None or fact.valid_until > view.start)


def _spans_alike(proposal: Proposal, start: int, fact: KnownFact) -> bool:
    """Whether a fact holds when a proposal begins and ends when that does: one with another end says another thing."""
    holds = fact.valid_from <= start and (fact.valid_until is None or fact.valid_until > start)
    return holds and fact.valid_until == proposal.valid_until


def _takes_a_side(view: _View) -> bool:
    """Whether a client that disagreed says now what another one does: that ends its own record, and the conflict."""
    if view.many or view.known.value_retired or view.proposal.restatement or view.proposal.provisional:
        return False
    disputed = [fact for fact in view.current if fact.status == "conflict"]
    own = [fact for fact in disputed if fact.client == view.known.client]
    return (
        view.start <= view.known.now
        and any(not _says_the_same(view.proposal, fact) for fact in own)
        and any(_says_the_same(view.proposal, fact) for fact in disputed if fact not in own)
    )


def _has_ended(proposal: Proposal, now: int) -> bool:
    return proposal.valid_until is not None and proposal.valid_until <= now


def _says_the_same(proposal: Proposal, fact: KnownFact) -> bool:
    if proposal.value is None:
        return canonical_text(proposal.text) == canonical_text(fact.text)
    if fact.value is None:
        return False
    return same_value(proposal.value, fact.value)


def _stated(fact: KnownFact) -> str:
    return fact.text if fact.value is None else fact.value
