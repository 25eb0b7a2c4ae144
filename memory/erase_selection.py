"""What an erasure is about: the request as it was made, the records it selects, and who else mentions them.

A selection is exact: a key or subject matches in all its spellings and in nothing that merely contains it, so
`user-1` never takes `user-10`. With the selected facts go the copies that were refused or held, and what was
done to them and to nothing else: the reason somebody gave for a retraction speaks about what was retracted.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from memory import canon, store_erase
from memory.manifest_fields import BASES
from memory.model import parse_fact_id
from memory.times import parse_time
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
MAX_NEEDLES: Final = 64


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


@dataclass(frozen=True)
class Selection:
    """The records an erasure takes: the facts asked for, copies of them, and acts on them alone."""

    facts: tuple[SelectedFact, ...]
    copies: tuple[SelectedFact, ...] = ()
    acts: tuple[EventRow, ...] = ()

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
        """A digest of which statements these are and of the status of each fact."""
        facts = [[fact.commitment, fact.status] for fact in self.facts]
        copies = [[fact.commitment, fact.status] for fact in self.copies]
        return hashlib.sha256(cbor.encode([facts, copies, [act.commitment for act in self.acts]])).digest()


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
    return Disposition("expire", expires_at)


def select(view: Snapshot, scope: Scope, request: Request) -> Selection:
    """The records that the request takes; RefusedError with code `nothing_matched` if there are none."""
    if request.kind == "id":
        facts = _select_ids(view, scope, request.references)
    elif request.kind == "key":
        facts = store_erase.select_key(view, scope.tenant_id, scope.key_tag(request.name))
    elif request.kind == "subject":
        facts = store_erase.select_subject(view, scope.tenant_id, scope.subject_tag(request.name))
    else:
        facts = store_erase.select_everything(view, scope.tenant_id, scope.agent_tag)
    if not facts:
        raise nothing_matched()
    return complete(view, scope, facts)


def complete(view: Snapshot, scope: Scope, facts: tuple[SelectedFact, ...]) -> Selection:
    """The selection of these facts, with their copies and with the acts on any of them and nothing else."""
    copies = _copies(view, scope, facts)
    seqs = {fact.seq for fact in (*facts, *copies)}
    acting = store_erase.acting_seqs(view, scope.tenant_id, seqs)
    events = (view.event_by_seq(seq) for seq in acting)
    return Selection(facts, copies, tuple(event for event in events if event is not None))


def nothing_matched() -> RefusedError:
    """The answer to an erasure of nothing, which is never a success."""
    return RefusedError(
        "nothing matched in this scope, so nothing was erased; check the spelling and the scope",
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
    return " ".join(str(content.get("text", "")).casefold().split())


def mentioned(
    view: Snapshot, scope: Scope, request: Request, selection: Selection
) -> tuple[SelectedFact, ...]:
    """Facts outside the selection that name its subject as words of their own; else ones that repeat its values.

    A subject is looked for in every spelling that its facts have; of values, the first MAX_NEEDLES are.
    """
    needles = _identifiers(request, selection)
    if not needles:
        return ()
    found = store_erase.mentions(view, scope.tenant_id, scope.agent_tag, needles, set(selection.seqs))
    return tuple(fact for fact in found if any(names(fact.content, needle) for needle in needles))


def _identifiers(request: Request, selection: Selection) -> list[str]:
    if request.kind == "all":
        return []
    if request.kind == "subject":
        subjects = {str(fact.content["subject"]) for fact in selection.facts if fact.content.get("subject")}
        return sorted({request.name, *subjects})[:MAX_NEEDLES]
    values = {str(fact.content["value"]) for fact in selection.facts if fact.content.get("value")}
    return [value for value in sorted(values) if len(value.strip()) >= _SHORTEST_MENTION][:MAX_NEEDLES]


def names(content: Any, name: str) -> bool:
    """Whether a content has `name` in it as words of its own: user-1 is not in user-10."""
    wanted = name.strip().casefold()
    fields = (str(content.get(field) or "").casefold() for field in ("text", "key", "value", "subject"))
    return any(_has_word(field, wanted) for field in fields)


def _has_word(text: str, wanted: str) -> bool:
    at = text.find(wanted)
    while at >= 0:
        end = at + len(wanted)
        before = at == 0 or not _joined(text[at - 1], wanted[0])
        if before and (end == len(text) or not _joined(wanted[-1], text[end])):
            return True
        at = text.find(wanted, at + 1)
    return False


def _joined(left: str, right: str) -> bool:
    """Whether two neighbours are of one word. Scripts without spaces have no bounds, so none is asked for."""
    unspaced = "Lo" in (unicodedata.category(left), unicodedata.category(right))
    return left.isalnum() and right.isalnum() and not unspaced
