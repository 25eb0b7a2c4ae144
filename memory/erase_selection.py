"""What a request is about: the records it selects, those a hold keeps from it, and who else mentions them.

A selection is exact: a key or subject matches in all its spellings and in nothing that merely contains it, so
`user-1` never takes `user-10`. With the selected facts go the copies that were refused or held, and what was
done to them and to nothing else: the reason somebody gave for a retraction speaks about what was retracted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from memory import canon, store_erase, store_mentions
from memory.erase_mentions import Mentions, mentions_of_subjects, mentions_of_values
from memory.erase_request import Disposition, Request, parse_request
from memory.ledger import said
from memory.store_grants import grant_seqs
from tlog import cbor
from tlog.errors import MalformedError, RefusedError

if TYPE_CHECKING:
    from memory.rows import EventRow, SelectedFact
    from memory.scope import Scope
    from memory.store_read import Snapshot

__all__ = ["Disposition", "Request", "parse_request"]

_SHORTEST_MENTION: Final = 4
MAX_VALUES: Final = 64


@dataclass(frozen=True)
class Mentioned:
    """Records outside a selection that mention it: those of the caller's memory, and how many there are of others."""

    facts: tuple[SelectedFact, ...] = ()
    others: int = 0

    def __len__(self) -> int:
        return len(self.facts) + self.others

    def shape(self) -> dict[str, Any]:
        """As answers have them: what is of others is a number."""
        named = [{"id": fact.id, "status": fact.status} for fact in self.facts]
        return {"mentions": named, **({"mentions_not_shown": self.others} if self.others else {})}


@dataclass(frozen=True)
class Selection:
    """The records an erasure takes: the facts asked for, copies of them, and acts on them alone.

    `entries` are the row ids of the value ledger that it concerns; they may be all that is left. `held` are the
    facts asked for, and the copies, that a legal hold keeps. `requests` is how many requests of a tenant
    that goes as a whole there are.
    """

    facts: tuple[SelectedFact, ...]
    copies: tuple[SelectedFact, ...] = ()
    acts: tuple[EventRow, ...] = ()
    entries: tuple[int, ...] = ()
    held: tuple[SelectedFact, ...] = ()
    requests: int = 0

    @property
    def statements(self) -> tuple[tuple[int, bytes], ...]:
        """The number and the commitment of each statement in it, in order."""
        rows: tuple[SelectedFact | EventRow, ...] = (*self.facts, *self.copies, *self.acts)
        return tuple(sorted((row.seq, row.commitment) for row in rows))

    @property
    def seqs(self) -> tuple[int, ...]:
        """The numbers of all statements in it, in order."""
        return tuple(seq for seq, _ in self.statements)

    @property
    def commitments(self) -> tuple[bytes, ...]:
        """The commitments of all statements in it, in the order of the statements."""
        return tuple(commitment for _, commitment in self.statements)

    @property
    def derived(self) -> int:
        """How many go along though nobody named them."""
        return len(self.copies) + len(self.acts)

    def by_status(self) -> dict[str, int]:
        """How many of the facts asked for have each status."""
        found: dict[str, int] = {}
        for fact in self.facts:
            found[fact.status] = found.get(fact.status, 0) + 1
        return dict(sorted(found.items()))

    def digest(self) -> bytes:
        """A digest of which statements these are, of the status of each fact, of entries, and of what is on hold."""
        facts, copies, held = (
            [[fact.commitment, fact.status] for fact in group]
            for group in (self.facts, self.copies, self.held)
        )
        acts = [act.commitment for act in self.acts]
        return hashlib.sha256(cbor.encode([facts, copies, acts, list(self.entries), held])).digest()

    def require_something(self, guard: Disposition) -> None:
        """Returns unless nothing would be done: where only hashes are left, they can be erased and no more."""
        if self.facts or ((self.entries or self.requests) and guard.name == "erase"):
            return
        if self.held:
            raise RefusedError(
                "everything that matched is under a legal hold, so nothing was erased; release the hold first",
                code="on_hold",
                held=len(self.held),
            )
        raise only_hashes() if self.entries or self.requests else nothing_matched()


def select(view: Snapshot, scope: Scope, request: Request) -> Selection:
    """The records that the request takes, or what the ledger has of them.

    Raises RefusedError with code `nothing_matched` if there is neither, and `ambiguous_subject` where a subject
    is a part of the names of several and the whole of none.
    """
    facts = _matching(view, scope, request)
    selection = complete(view, scope, facts, request.ledger(scope))
    if request.whole and not _conditions(request):
        selection = replace(selection, acts=(*selection.acts, *_grants(view, scope, request.whole)))
    if request.kind == "tenant":
        requests = store_erase.requests_of_tenant(view, scope.tenant_id)
        selection = replace(selection, requests=len(requests))
    if not facts and not selection.entries and not selection.requests:
        _refuse_ambiguous(view, scope, request)
        raise nothing_matched()
    return selection


def complete(
    view: Snapshot, scope: Scope, facts: tuple[SelectedFact, ...], ledger: Mapping[str, Any]
) -> Selection:
    """The selection of these facts, with their copies, the acts on any of them and nothing else, and the ledger's.

    What is on hold stays out of it, with its retired values.
    """
    copies = _copies(view, scope, facts)
    held = tuple(fact for fact in (*facts, *copies) if fact.on_hold)
    free, beside = (tuple(fact for fact in group if not fact.on_hold) for group in (facts, copies))
    seqs = {fact.seq for fact in (*free, *beside)}
    acting = store_erase.acting_seqs(view, scope.tenant_id, seqs)
    events = (view.event_by_seq(seq) for seq in acting)
    entries = store_erase.ledger_of(view, scope.tenant_id, seqs=sorted({*seqs, *acting}), **ledger)
    kept = store_erase.ledger_of(view, scope.tenant_id, seqs=[fact.seq for fact in held]) if held else ()
    entries = tuple(sorted(set(entries) - set(kept)))
    return Selection(free, beside, tuple(event for event in events if event is not None), entries, held)


def _grants(view: Snapshot, scope: Scope, whole: str) -> tuple[EventRow, ...]:
    """Who may read the memory that goes as a whole, and what became of that: it names agents."""
    owner = None if whole == "tenant" else scope.agent_tag
    events = (view.event_by_seq(seq) for seq in grant_seqs(view, scope.tenant_id, owner))
    return tuple(event for event in events if event is not None and event.content is not None)


def nothing_matched() -> RefusedError:
    """The answer to an erasure of nothing, which is never a success."""
    return RefusedError(
        "nothing matched in this scope, so nothing was erased; check the spelling and the scope",
        code="nothing_matched",
    )


def only_hashes() -> RefusedError:
    """The answer where the facts are gone already and the request would leave what is left."""
    return RefusedError(
        "no fact matched, only keyed hashes of retired values are left, and this request keeps them; to remove"
        " them, too, say guard erase",
        code="nothing_matched",
    )


def _matching(view: Snapshot, scope: Scope, request: Request) -> tuple[SelectedFact, ...]:
    """The facts that meet every selector of the request, on hold or not."""
    if request.references:
        return _select_ids(view, scope, request.references)
    if request.key is not None:
        facts = store_erase.select_key(view, scope.tenant_id, scope.key_tag(request.key))
    elif request.subject is not None:
        facts = store_erase.select_subject(view, scope.tenant_id, scope.subject_tag(request.subject))
    elif request.whole == "tenant":
        facts = store_erase.select_tenant(view, scope.tenant_id)
    else:
        facts = store_erase.select_everything(view, scope.tenant_id, scope.agent_tag)
    conditions = _conditions(request)
    return tuple(fact for fact in facts if all(holds(fact.content) for holds in conditions))


def _conditions(request: Request) -> list[Callable[[Mapping[str, Any]], bool]]:
    """What a fact has to meet beside the selector that it was looked up by."""
    found: list[Callable[[Mapping[str, Any]], bool]] = []
    subject, value = request.subject, request.value
    start, end = request.recorded_from, request.recorded_until
    if request.key is not None and subject is not None:
        name = canon.canonical_key(subject)
        found.append(lambda content: canon.canonical_key(content.get("subject") or "") == name)
    if value is not None:
        found.append(lambda content: canon.same_value(said(content), value))
    if start is not None:
        found.append(lambda content: int(content["recorded_at"]) >= start)
    if end is not None:
        found.append(lambda content: int(content["recorded_at"]) < end)
    return found


def _refuse_ambiguous(view: Snapshot, scope: Scope, request: Request) -> None:
    """Returns unless the subject is a part of other subjects: which of them is meant is not for us to guess."""
    if request.subject is None:
        return
    names = mentions_of_subjects([request.subject])
    found = store_mentions.mentioning(view, scope.tenant_id, scope.agent_tag, names).own
    subjects = (fact.content.get("subject") for fact in found)
    several = {canon.canonical_key(str(one)) for one in subjects if one and names({"subject": one})}
    if several and canon.canonical_key(request.subject) not in several:
        raise RefusedError(
            f"no record has exactly this subject, and it is a part of the names of {len(several)} others, so"
            " nothing was erased; say the whole name, or ids",
            code="ambiguous_subject",
            subjects=len(several),
        )


def _select_ids(view: Snapshot, scope: Scope, references: tuple[bytes, ...]) -> tuple[SelectedFact, ...]:
    facts = store_erase.select_ids(view, scope.tenant_id, scope.agent_tag, references)
    missing = set(references) - {fact.commitment[:16] for fact in facts}
    for reference in missing:
        event = view.event(scope.tenant_id, reference)
        if event is not None and event.content is None:
            raise RefusedError("one of the ids is of a statement that is erased already", code="erased")
        raise MalformedError("expected ids of facts in this scope; one of them is not", code="unknown_id")
    return facts


def _copies(view: Snapshot, scope: Scope, facts: tuple[SelectedFact, ...]) -> tuple[SelectedFact, ...]:
    """What was refused or held in this scope and says the same as one of the facts."""
    taken = {fact.seq for fact in facts}
    told = {_text(fact.content) for fact in facts} - {""}
    values: dict[str, list[str]] = {}
    for fact in facts:
        key, value = fact.content.get("key"), fact.content.get("value")
        if key is not None and value is not None:
            values.setdefault(canon.canonical_key(key), []).append(value)
    withheld = store_erase.select_withheld(view, scope.tenant_id, scope.agent_tag)
    return tuple(row for row in withheld if row.seq not in taken and _says_same(row.content, told, values))


def _says_same(content: Any, told: set[str], values: dict[str, list[str]]) -> bool:
    if _text(content) in told:
        return True
    key, value = content.get("key"), content.get("value")
    if key is None or value is None:
        return False
    return any(canon.same_value(value, other) for other in values.get(canon.canonical_key(key), ()))


def _text(content: Any) -> str:
    return canon.canonical_text(str(content.get("text", "")))


def mentioned(view: Snapshot, scope: Scope, request: Request, selection: Selection) -> Mentioned:
    """Facts outside the selection that name its subject as words of their own; else ones that repeat its values.

    All agents of the tenant are looked at: what is said of somebody there is held, too.

    A subject is looked for in every spelling that its facts have, and by each identifier that was given; of values,
    the first MAX_VALUES are. What is on hold is counted as that.
    """
    mentions = _sought(request, selection)
    if not mentions:
        return Mentioned()
    known = {*selection.seqs, *(fact.seq for fact in selection.held)}
    found = store_mentions.mentioning(view, scope.tenant_id, scope.agent_tag, mentions, known)
    return Mentioned(found.own, found.others)


def _sought(request: Request, selection: Selection) -> Mentions:
    if request.whole is not None and request.kind == request.whole:
        return mentions_of_subjects(())
    if request.subject is not None:
        facts = (*selection.facts, *selection.held)
        subjects = {str(fact.content["subject"]) for fact in facts if fact.content.get("subject")}
        return mentions_of_subjects(sorted({request.subject, *subjects, *request.identifiers}))
    values = {str(fact.content["value"]) for fact in selection.facts if fact.content.get("value")}
    long_enough = [value for value in sorted(values) if len(value.strip()) >= _SHORTEST_MENTION]
    asked = () if request.value is None else (request.value,)
    return mentions_of_values([*asked, *long_enough[:MAX_VALUES]])
