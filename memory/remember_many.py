"""Many writes of one caller of the program, as an import has them: in order, and as many to a commit as one holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from memory.remember import answered, prepare
from tlog.errors import Error

if TYPE_CHECKING:
    from memory.answers import Answer
    from memory.model import Principal
    from memory.parts import Parts


class Kept(NamedTuple):
    """What became of a write; `known` if the same request had been answered before, and nothing was added."""

    answer: Answer
    known: bool


def remember_many(
    parts: Parts, writes: Iterable[tuple[Principal, Mapping[str, Any]]]
) -> tuple[Kept | Error, ...]:
    """What became of each write, in order, once all of them are durable: as `remember` of it, or its error.

    One that is refused, or bad input, leaves the others as they are.
    """
    found: list[Kept | Error | None] = []
    works = []
    for principal, arguments in writes:
        try:
            works.append(prepare(parts, principal, arguments))
            found.append(None)
        except Error as error:
            found.append(error)
    made = iter(parts.store.write_all_together(works))
    return tuple(_kept(parts, next(made)) if one is None else one for one in found)


def _kept(parts: Parts, made: Any) -> Kept | Error:
    if isinstance(made, Error):
        return made
    if isinstance(made, BaseException):
        raise made
    return Kept(answered(parts, made), made.known)
