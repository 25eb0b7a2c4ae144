"""What a read may serve, and what it may tell: the one list of statuses, asked first on every path.

`serve` is what counts as a fact: `get`, `recall`, `conflicts`. `tell` is the story of a key and of a fact: `history`,
`provenance`, `opening`, `recall` with history. A status that is on neither list is given to nobody, a new one too.
Legal holds are below this: no read of the store gives out a row that one keeps.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from memory.model import Status
from memory.timeline import SERVED_NOW, SERVED_THEN, may_serve

__all__ = ["REVIEW", "SERVED_NOW", "TOLD", "may_serve", "may_tell", "told_to"]

REVIEW: Final = "memory:review"
TOLD: Final[tuple[Status, ...]] = tuple(sorted(SERVED_THEN))  # type: ignore[arg-type]
_TOLD_IN_REVIEW: Final[tuple[Status, ...]] = ("held", "refused", "discarded")


def told_to(scopes: Set[str]) -> tuple[Status, ...]:
    """The statuses of which a caller with these scopes may be told the content."""
    return (*TOLD, *_TOLD_IN_REVIEW) if REVIEW in scopes else TOLD


def may_tell(status: Status, scopes: Set[str], end_erased: bool) -> bool:
    """Whether a caller with these scopes may be told what a fact says.

    One whose end is erased is told to nobody: it would seem to hold still.
    """
    return status in told_to(scopes) and not end_erased
