"""A request to erase, or to hold, in the words of the surfaces, checked once.

What it selects by is exact: a key or subject matches in all its spellings and in nothing that merely contains it.
Several selectors narrow each other: a subject and a time take what is about the one within the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from memory.manifest_fields import ASKED_FOR, BASES
from memory.model import Principal, parse_fact_id
from memory.principal import require
from memory.times import HOUR, month_after, parse_time
from tlog.errors import MalformedError

if TYPE_CHECKING:
    from memory.scope import Scope

MAX_IDS: Final = 10_000
MAX_NAME_BYTES: Final = 4096
MAX_IDENTIFIERS: Final = 64
SELECTORS: Final = ("id", "key", "subject", "all", "tenant", "value", "recorded_from", "recorded_until")
_EXPIRE: Final = "expire="
_TIME: Final = frozenset({"recorded_from", "recorded_until"})
_WHOLE: Final = frozenset({"all", "tenant"})
# Whoever asks for these asks for what nobody named: it takes the right to purge.
_SWEEPING: Final = frozenset({"all", "tenant", "value", "time"})
_LIFTING: Final = frozenset({"memory:purge", "memory:reaffirm"})


@dataclass(frozen=True)
class Disposition:
    """What becomes of the values that the erased records retired: `keep`, `erase`, or `expire` at a time."""

    name: str
    expires_at: int | None = None


@dataclass(frozen=True)
class Request:
    """A request, checked. `guard` is None where the caller left it open; `kind` is `combined` for several selectors.

    `identifiers` are other names, numbers and addresses of the subject, to look for elsewhere.
    """

    kind: str
    references: tuple[bytes, ...] = ()
    key: str | None = None
    subject: str | None = None
    value: str | None = None
    recorded_from: int | None = None
    recorded_until: int | None = None
    whole: str | None = None
    identifiers: tuple[str, ...] = ()
    guard: Disposition | None = None
    basis: str = "operator"
    received_at: int | None = None
    due_at: int | None = None

    @property
    def times(self) -> dict[str, int]:
        """When somebody asked for it, and when it has to be answered, if that is known."""
        known = {"received_at": self.received_at, "due_at": self.due_at}
        return {name: at for name, at in known.items() if at is not None}

    @property
    def default_guard(self) -> Disposition:
        """A person's request takes the hashes too; removing single facts leaves them refused."""
        return Disposition("erase" if self.subject is not None or self.whole else "keep")

    @property
    def names(self) -> tuple[str, ...]:
        """What the caller calls it by: a scan looks for these words, too."""
        given = (self.key, self.subject, self.value, *self.identifiers)
        return tuple(dict.fromkeys(name for name in given if name))

    @property
    def needed_scope(self) -> str:
        """The right that it takes."""
        return "memory:purge" if self.kind in _SWEEPING or self.whole else "memory:forget"

    def permitted(self, principal: Principal) -> Request:
        """The request as this caller may make it; RefusedError with the right that it lacks.

        To give up the hashes of retired values is to let those values come back, as a reaffirmation does: who may
        neither purge nor reaffirm forgets, and what was retired stays refused.
        """
        require(principal, self.needed_scope)
        if not _LIFTING.isdisjoint(principal.scopes):
            return self
        if self.guard is not None and self.guard.name != "keep":
            require(principal, "memory:reaffirm")
        return replace(self, guard=Disposition("keep"))

    def ledger(self, scope: Scope) -> dict[str, Any]:
        """What of the ledger it concerns beside the selected facts: also what outlived facts of its scope."""
        if self.kind == "key" and self.key is not None:
            return {"key_tag": scope.key_tag(self.key)}
        if self.kind == "subject" and self.subject is not None:
            return {"subject_tag": scope.subject_tag(self.subject)}
        if self.kind == "all":
            return {"agent_tag": scope.agent_tag}
        return {"tenant": scope.tenant_id} if self.kind == "tenant" else {}


def parse_request(  # noqa: PLR0913 -- the options of one command, each of them by name
    now: int,
    *,
    id: str | Sequence[str] | None = None,
    key: str | None = None,
    subject: str | None = None,
    all: bool | None = None,
    tenant: bool | None = None,
    value: str | None = None,
    recorded_from: object = None,
    recorded_until: object = None,
    identifiers: Sequence[str] | None = None,
    guard: str | None = None,
    reason: str | None = None,
    received_at: object = None,
    due_at: object = None,
) -> Request:
    """The request in the words of the surfaces; MalformedError unless it names a scope."""
    if any(flag not in (None, False, True) for flag in (all, tenant)):
        raise MalformedError("expected all and tenant to be true or false")
    given = {
        "id": id,
        "key": key,
        "subject": subject,
        "all": all or None,
        "tenant": tenant or None,
        "value": value,
        "recorded_from": recorded_from,
        "recorded_until": recorded_until,
    }
    names = {name for name, one in given.items() if one is not None}
    _check_combination(names, identifiers)
    start = None if recorded_from is None else parse_time(recorded_from, now, name="recorded_from")
    end = None if recorded_until is None else parse_time(recorded_until, now, name="recorded_until")
    if start is not None and end is not None and start >= end:
        raise MalformedError("expected recorded_from to lie before recorded_until")
    basis = reason if reason is not None else ("data_subject" if subject is not None else "operator")
    if basis not in BASES:
        # A reason in free text would be a record about somebody that no erasure reaches.
        raise MalformedError(f"expected the reason to be one of {', '.join(sorted(BASES))}")
    received, due = _parse_deadline(received_at, due_at, now, basis)
    return Request(
        kind=_kind(names),
        references=() if id is None else _parse_ids(id),
        key=None if key is None else _parse_name("key", key),
        subject=None if subject is None else _parse_name("subject", subject),
        value=None if value is None else _parse_name("value", value),
        recorded_from=start,
        recorded_until=end,
        whole=next(iter(sorted(names & _WHOLE)), None),
        identifiers=_parse_identifiers(identifiers),
        guard=_parse_guard(guard, now),
        basis=basis,
        received_at=received,
        due_at=due,
    )


def _parse_deadline(
    received_at: object, due_at: object, now: int, basis: str
) -> tuple[int | None, int | None]:
    """When a request was received, and until when it has to be answered: within a month, if a person asked for it.

    GDPR, 12(3). What the operator does unasked has no such time, unless one is given.
    """
    received = None if received_at is None else parse_time(received_at, now, name="received_at")
    due = None if due_at is None else parse_time(due_at, now, name="due_at")
    if received is None and (basis in ASKED_FOR or due is not None):
        received = now
    if received is not None and not 0 <= received <= now:
        raise MalformedError("expected received_at to lie in the past")
    if due is None and received is not None:
        due = month_after(received)
    if received is not None and due is not None and due <= received:
        raise MalformedError("expected due_at to lie after received_at")
    return received, due


def _kind(names: set[str]) -> str:
    named = {"time" if name in _TIME else name for name in names}
    return named.pop() if len(named) == 1 else "combined"


def _check_combination(names: set[str], identifiers: Sequence[str] | None) -> None:
    if not names:
        raise MalformedError(f"expected one or more of {', '.join(SELECTORS)} to say what is meant")
    if ("id" in names and len(names) > 1) or names >= _WHOLE:
        raise MalformedError("expected id alone, and one of all and tenant")
    if names & _WHOLE and names & {"key", "subject"}:
        # A key and a subject are those of one agent.
        raise MalformedError("expected all or tenant without key and subject, which say less")
    if identifiers is not None and "subject" not in names:
        raise MalformedError("expected identifiers with a subject, whose other names they are")


def _parse_ids(value: object) -> tuple[bytes, ...]:
    ids = [value] if isinstance(value, str) else value
    if not isinstance(ids, list | tuple) or not 1 <= len(ids) <= MAX_IDS:
        raise MalformedError(f"expected id to be an id, or a list of 1 to {MAX_IDS} ids")
    return tuple(dict.fromkeys(parse_fact_id(one) for one in ids))


def _parse_identifiers(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MAX_IDENTIFIERS:
        raise MalformedError(f"expected identifiers to be a list of 1 to {MAX_IDENTIFIERS} texts")
    return tuple(dict.fromkeys(_parse_name("identifiers", one) for one in value))


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
