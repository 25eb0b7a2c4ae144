"""What a peer was asked and what it said. A claim counts only with a control: something changed that it refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """One claim and what became of it: `passed`, `FAILED` or `skipped`."""

    claim: str
    result: str
    detail: str


class Judge:
    """The claims about one peer."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def both_ways(self, claim: str, accepts: Callable[[T], bool], good: T, changed: Mapping[str, T]) -> None:
        """Passed if `accepts` takes `good` and none of `changed`, which are named by what was changed in them."""
        self.story(
            claim,
            {"what we made": accepts(good)},
            {name: not accepts(one) for name, one in changed.items()},
        )

    def story(self, claim: str, accepted: Mapping[str, bool], refused: Mapping[str, bool]) -> None:
        """Passed if all that had to be accepted was, and all that had to be refused was."""
        if not accepted or not refused:
            raise ValueError(
                f"{claim}: a claim without something accepted and something refused proves nothing"
            )
        wrong = [f"not accepted: {name}" for name, was in accepted.items() if not was]
        wrong += [f"not refused: {name}" for name, was in refused.items() if not was]
        if wrong:
            self.rows.append(Row(claim, "FAILED", "; ".join(wrong)))
        else:
            self.rows.append(Row(claim, "passed", f"refused: {', '.join(refused)}"))

    def broke(self, claim: str, error: Exception) -> None:
        """A check that did not come to an end has failed."""
        self.rows.append(Row(claim, "FAILED", f"{type(error).__name__}: {error}"[:400]))


def flipped(data: bytes, at: int = -1) -> bytes:
    """The bytes with one bit of one byte changed."""
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)
