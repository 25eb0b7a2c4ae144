"""What an erasure is about: the request as it was made, the records it selects, and who else mentions them.

A selection is exact: a key or subject matches in all its spellings and in nothing that merely contains it, so
`user-1` never takes `user-10`. With the selected facts go the copies that were refused or held, and what was
done to them and to nothing else: the reason somebody gave for a retraction speaks about what was retracted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from memory import canon, store_erase
from memory.erase_mentions import Mentions, mentions_of_subjects, mentions_of_values
from memory.manifest_fields import BASES
from memory.model import parse_fact_id
from memory.times import HOUR, parse_time
from tlog import cbor
from tlog.errors import MalformedError, RefusedError

if TYPE_CHECKING:
    from memory.rows import EventRow, FactRow, SelectedFact
    from memory.scope import Scope
    from memory.store_read import Snapshot

Kind = Literal["id", "key", "subject", "all"]
MAX_IDS: Final = 10_000
MAX_NAME_BYTES: Final = 4096
_EXPIRE: Final = "expire="
_MAX_COPIES: Final = 100_000
_SHORTEST_MENTION: Final = 4
MAX_VALUES: Final = 64


@dataclass(frozen=True)
class Disposition:
    """What becomes of the values that the erased records retired: `keep`, `erase`, or `expire` at a time."""

    name: str
    expires_at: int | None = None


@dataclass(frozen=True)
class Request:
    """A request to erase, checked. `guard` is None where the caller left it open."""

    kind: Kind
    references: tuple[bytes, ...]
    name: str
    guard: Disposition | None
    basis: str

    @property
    def default_guard(self) -> Disposition:
        """A person's request takes the hashes too; removing single facts leaves them refused."""
        return Disposition("erase" if self.kind in ("subject", "all") else "keep")

    def ledger(self, scope: Scope) -> dict[str, bytes]:
        """What of the ledger it concerns beside the erased facts: also what outlived facts of its scope."""
        if self.kind == "key":
            return {"key_tag": scope.key_tag(self.name)}
        if self.kind == "subject":
            return {"subject_tag": scope.subject_tag(self.name)}
        return {"agent_tag": scope.agent_tag} if self.kind == "all" else {}


@dataclass(frozen=True)
class Selection:
    """The records an erasure takes: the facts asked for, copies of them, and acts on them alone.

    `entries` are the row ids of the value ledger that it concerns; they may be all that is left.
    """

    facts: tuple[SelectedFact, ...]
    copies: tuple[SelectedFact, ...] = ()
    acts: tuple[EventRow, ...] = ()
    entries: tuple[int, ...] = ()

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
        """A digest of which statements these are, of the status of each fact, and of which entries."""
        facts = [[fact.commitment, fact.status] for fact in self.facts]
        copies = [[fact.commitment, fact.status] for fact in self.copies]
        acts = [act.commitment for act in self.acts]
        return hashlib.sha256(cbor.encode([facts, copies, acts, list(self.entries)])).digest()

    def require_something(self, guard: Disposition) -> None:
        """Returns unless nothing would be done: where only hashes are left, they can be erased and no more."""
        if not self.facts and (not self.entries or guard.name != "erase"):
            raise nothing_matched() if not self.entries else only_hashes()


def parse_request(
    now: int,
    *,
    id: str | Sequence[str] | None = None,
    key: str | None = None,
    subject: str | None = None,
    all: bool | None = None,
    guard: str | None = None,
    reason: str | None = None,
) -> Request:
    """The request in the words of the surfaces; MalformedError unless it names one scope."""
    given = [name for name, value in (("id", id), ("key", key), ("subject", subject)) if value is not None]
    given += ["all"] if all else []
    if len(given) != 1 or all not in (None, False, True):
        raise MalformedError("expected exactly one of id, key, subject and all to say what to erase")
    kind: Kind = given[0]  # type: ignore[assignment]  # one of the four names above
    references = _parse_ids(id) if kind == "id" else ()
    name = _parse_name(kind, key if kind == "key" else subject) if kind in ("key", "subject") else ""
    basis = reason if reason is not None else ("data_subject" if kind == "subject" else "operator")
    if basis not in BASES:
        # A reason in free text would be a record about somebody that no erasure reaches.
        raise MalformedError(f"expected the reason to be one of {', '.join(sorted(BASES))}")
    return Request(kind, references, name, _parse_guard(guard, now), basis)


def _parse_ids(value: object) -> tuple[bytes, ...]:
    ids = [value] if isinstance(value, str) else value
    if not isinstance(ids, list | tuple) or not 1 <= len(ids) <= MAX_IDS:
        raise MalformedError(f"expected id to be an id, or a list of 1 to {MAX_IDS} ids")
    return tuple(dict.fromkeys(parse_fact_id(one) for one in ids))


def _parse_name(what: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise MalformedError(f"expected {what} to be a text that is not blank")
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise MalformedError(f"expected {what} to be valid Unicode") from None
    if size > MAX_NAME_BYTES:
        raise MalformedError(f"expected {what} to have at most {MAX_NAME_BYTES} bytes")
    return value


def _parse_guard(text: object, now: int) -> Disposition | None:
    if text is None:
        return None
    if text in ("keep", "erase"):
        return Disposition(str(text))
    if not isinstance(text, str) or not text.startswith(_EXPIRE):
        raise MalformedError("expected guard to be keep, erase, or expire= and a time")
    expires_at = parse_time(text.removeprefix(_EXPIRE), now, name="the time in guard")
    if expires_at <= now:
        raise MalformedError("expected the time in guard to lie in the future")
    # To the end of its hour: the manifest says it, and no time in a manifest is finer.
    return Disposition("expire", -(-expires_at // HOUR) * HOUR)


def select(view: Snapshot, scope: Scope, request: Request) -> Selection:
    """The records that the request takes, or what the ledger has of them.

    Raises RefusedError with code `nothing_matched` if there is neither.
    """
    if request.kind == "id":
        facts = _select_ids(view, scope, request.references)
    elif request.kind == "key":
        facts = store_erase.select_key(view, scope.tenant_id, scope.key_tag(request.name))
    elif request.kind == "subject":
        facts = store_erase.select_subject(view, scope.tenant_id, scope.subject_tag(request.name))
    else:
        facts = store_erase.select_everything(view, scope.tenant_id, scope.agent_tag)
    selection = complete(view, scope, facts, request.ledger(scope))
    if not facts and not selection.entries:
        raise nothing_matched()
    return selection


def complete(
    view: Snapshot, scope: Scope, facts: tuple[SelectedFact, ...], ledger: Mapping[str, bytes]
) -> Selection:
    """The selection of these facts, with their copies, the acts on any of them and nothing else, and the ledger's."""
    copies = _copies(view, scope, facts)
    seqs = {fact.seq for fact in (*facts, *copies)}
    acting = store_erase.acting_seqs(view, scope.tenant_id, seqs)
    events = (view.event_by_seq(seq) for seq in acting)
    entries = store_erase.ledger_of(view, scope.tenant_id, seqs=sorted({*seqs, *acting}), **ledger)
    return Selection(facts, copies, tuple(event for event in events if event is not None), entries)


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
    said = {_text(fact.content) for fact in facts} - {""}
    values: dict[str, list[str]] = {}
    for fact in facts:
        key, value = fact.content.get("key"), fact.content.get("value")
        if key is not None and value is not None:
            values.setdefault(canon.canonical_key(key), []).append(value)
    found: list[FactRow] = []
    for status in ("refused", "held"):
        rows = view.facts_of_status(scope.tenant_id, scope.agent_tag, status, _MAX_COPIES)
        found += [row for row in rows if row.seq not in taken and _says_same(row.content, said, values)]
    references = [row.commitment for row in found]
    return store_erase.select_ids(view, scope.tenant_id, scope.agent_tag, references)


def _says_same(content: Any, said: set[str], values: dict[str, list[str]]) -> bool:
    if _text(content) in said:
        return True
    key, value = content.get("key"), content.get("value")
    if key is None or value is None:
        return False
    return any(canon.same_value(value, other) for other in values.get(canon.canonical_key(key), ()))


def _text(content: Any) -> str:
    return canon.canonical_text(str(content.get("text", "")))


def mentioned(
    view: Snapshot, scope: Scope, request: Request, selection: Selection
) -> tuple[SelectedFact, ...]:
    """Facts outside the selection that name its subject as words of their own; else ones that repeat its values.

    A subject is looked for in every spelling that its facts have; of values, the first MAX_VALUES are.
    """
    mentions = _sought(request, selection)
    if not mentions:
        return ()
    return store_erase.select_where(view, scope.tenant_id, scope.agent_tag, mentions, set(selection.seqs))


def _sought(request: Request, selection: Selection) -> Mentions:
    if request.kind == "all":
        return mentions_of_subjects(())
    if request.kind == "subject":
        subjects = {str(fact.content["subject"]) for fact in selection.facts if fact.content.get("subject")}
        return mentions_of_subjects(sorted({request.name, *subjects}))
    values = {str(fact.content["value"]) for fact in selection.facts if fact.content.get("value")}
    long_enough = [value for value in sorted(values) if len(value.strip()) >= _SHORTEST_MENTION]
    return mentions_of_values(long_enough[:MAX_VALUES])
