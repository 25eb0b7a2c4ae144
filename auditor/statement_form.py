"""Whether each statement has the form of its kind: a link keeps for good what it says, so it may say nothing freely.

The kinds, their details and their contents are those of docs/formats/statement.md, written down here a second time: a
signed link with a word of nobody's list is content that no erasure takes away.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final

from auditor import pins
from auditor.evidence import Statement
from auditor.findings import Finding, Note, Outcome
from tlog.errors import MalformedError
from tlog.statement import parse_statement

Is = Callable[[object], bool]


def _is_word(*words: str) -> Is:
    known = frozenset(words)
    return lambda value: isinstance(value, str) and value in known


def _is_bytes(size: int) -> Is:
    return lambda value: isinstance(value, bytes) and len(value) == size


def _is_number(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_time(value: object) -> bool:
    return type(value) is int


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_tip(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and _is_number(value[0]) and _HASH(value[1])


def _are_hashes(value: object) -> bool:
    return isinstance(value, list) and all(map(_HASH, value))


def _is_map(value: object) -> bool:
    return isinstance(value, dict)  # its kinds and counts were checked when the link was decoded


def _are_flags(value: object) -> bool:
    if value == []:
        return True
    return isinstance(value, list) and set(map(type, value)) <= {str} and value == sorted(set(value) & _FLAGS)


_HASH: Final = _is_bytes(32)
_FLAGS: Final = frozenset(
    {"authenticated", "many", "provisional", "reaffirmed", "redacted", "reported", "restatement"}
    | {"unguarded", "valid_from_declared"}
)
_NUMBERED: Final[dict[str, Is]] = {"number": _is_number}
_DETAILS: Final[Mapping[str, Mapping[str, Is]]] = {
    "write": {
        "outcome": _is_word("stored", "superseded", "history", "conflict", "held", "refused"),
        "reason": _is_word(
            *("echo", "valueless", "authority", "provisional", "low_confidence", "possible_echo"),
            "instruction_shaped",
        ),
    },
    "erase": _NUMBERED
    | {
        "previous": _HASH,
        "request": _is_bytes(16),
        "guard": _is_word("keep", "erase", "expire"),
        "basis": _is_word("data_subject", "operator", "retention", "consent", "contract", "legal", "other"),
        "count": _is_number,
    },
    "manifest": _NUMBERED | {"erasure": _HASH, "digest": _HASH},
    "state": _NUMBERED
    | {"previous": _HASH, "counts": _is_map, "sequences": _HASH, "tombstone": _is_tip, "manifest": _is_tip},
    "lost": {"count": _is_number, "statements": _are_hashes},
}
_WITH_REASON: Final = frozenset({"held", "refused"})
_is_landed: Final = _is_word("stored", "superseded", "history", "conflict")
_OWN: Final = frozenset({"erase", "manifest", "lost", "state"})
"""Kinds that the store makes by itself, and that tell nothing but their time."""
_SAID: Final[Mapping[str, Is]] = {
    "recorded_at": _is_number,
    "tenant": _is_text,
    "agent": _is_text,
    "client": _is_text,
    "flags": _are_flags,
}
_MORE: Final[Mapping[str, Mapping[str, Is]]] = {
    "write": {
        **dict.fromkeys(("text", "key", "value", "subject", "source", "reason"), _is_text),
        "valid_from": _is_time,
        "valid_until": _is_time,
        "canon": _is_number,
    },
    "reaffirm": {"reason": _is_text},
    "corroborate": {"source": _is_text},
    "hold": {"authority": _is_text, "review_by": _is_time},
    "release": {"authority": _is_text},
    "grant": {"reader": _is_text},
}
_DIFFERENT_BYTES: Final = 2 + 32 + 2 + 64
"""At the end of an entry: the payload, and a signature of the usual length."""
_BY_TYPE: Final[Mapping[Is, type]] = {_is_text: str, _is_time: int}
"""What the type of a value alone tells."""
_NEEDED: Final = frozenset({"recorded_at", "tenant", "agent", "client"})


def check_forms(statements: Sequence[Statement], known: Container[int] = ()) -> Outcome:
    """Whether links hold words of the lists, numbers and hashes alone, and contents the fields of their kind.

    `known` are the blocks of rows in which an earlier audit has looked at each.
    """
    findings: list[Finding] = []
    count = 0
    for place, statement in enumerate(statements):
        link, content = statement.link, statement.content
        if link is None:
            continue
        count += 1
        if place // pins.BLOCK in known:
            continue
        if not (link.kind == "write" and len(link.details) == 1 and _is_landed(link.details.get("outcome"))):
            findings += _check_link(statement)
        if content is not None and not _is_usual(link.kind, content):
            findings += _check_content(statement, content)
    findings += _check_subjects(statements)
    checked = Note("forms", "links that hold nothing but words of lists, numbers and hashes", count)
    return Outcome(tuple(findings), (checked,))


def _check_subjects(statements: Sequence[Statement]) -> Iterator[Finding]:
    """Every statement is signed as one of the store that the first is of."""
    # Those of one store and key begin alike, up to the payload: one of them is read for all.
    alike: dict[bytes, str | None] = {}
    store: str | None = None
    beginning, subject, size = b"", None, -1
    for statement in statements:
        entry = statement.row.entry
        if len(entry) != size or not entry.startswith(beginning):
            beginning, size = entry[:-_DIFFERENT_BYTES], len(entry)
            if beginning not in alike:
                alike[beginning] = _subject_of(entry)
            subject = alike[beginning]
        store = subject if store is None else store
        if subject is not None and subject != store:
            what = "It is signed as a statement of another store."
            yield Finding("FACT_ALTERED", statement.row.place, what)


def _subject_of(entry: bytes) -> str | None:
    try:
        return parse_statement(entry).subject
    except MalformedError:
        return None  # found as what it is elsewhere


def _check_link(statement: Statement) -> Iterator[Finding]:
    assert statement.link is not None
    kind, details = statement.link.kind, statement.link.details
    known = _DETAILS.get(kind, {})
    wrong = sum(name not in known or not known[name](value) for name, value in details.items())
    if kind == "write" and not wrong:
        outcome = details.get("outcome")
        wrong += outcome is None or ("reason" in details) != (outcome in _WITH_REASON)
    if wrong:
        what = "The link says what none of its kind says, and keeps it for good: content could stand there."
        yield Finding("RESIDUE_ROW", statement.row.place, what, {"details": wrong})


def _is_usual(kind: str, content: Mapping[str, Any]) -> bool:
    """Whether a content is what one of its kind can be: which fields of which types it may have is looked up once."""
    left = _left_to_check(kind, tuple(content), tuple(map(type, content.values())))
    if left is None:
        return False
    for name, is_right in left:  # noqa: SIM110  # half the time of a generator
        if not is_right(content[name]):
            return False
    return True


@lru_cache(maxsize=256)
def _left_to_check(
    kind: str, names: tuple[str, ...], types: tuple[type, ...]
) -> tuple[tuple[str, Is], ...] | None:
    """The fields of which the value has to tell; None if a content of these fields and types can't be right."""
    known, needed = _fields_of(kind)
    if not needed <= set(names):
        return None
    left = []
    for name, of in zip(names, types, strict=True):
        is_right = known.get(name)
        if is_right is None:
            return None
        if is_right not in _BY_TYPE:
            left.append((name, is_right))
        elif of is not _BY_TYPE[is_right]:
            return None
    return tuple(left)


@cache
def _fields_of(kind: str) -> tuple[Mapping[str, Is], frozenset[str]]:
    """The fields that a content of this kind may have, and those that it needs."""
    if kind in _OWN:
        return {"recorded_at": _is_number}, frozenset({"recorded_at"})
    return {**_SAID, **_MORE.get(kind, {})}, _NEEDED


def _check_content(statement: Statement, content: Mapping[str, Any]) -> Iterator[Finding]:
    assert statement.link is not None
    known, needed = _fields_of(statement.link.kind)
    wrong = sum(name not in known or not known[name](value) for name, value in content.items())
    if wrong or not needed <= content.keys():
        what = "The content has other fields than those of its kind, or values that they can't have."
        yield Finding("FACT_ALTERED", f"store.db contents seq {statement.row.seq}", what, {"fields": wrong})
