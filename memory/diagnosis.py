"""What a check of `muniment doctor` says.

`ok`, `warn` (works now, but will not for ever, or promises less than it could), `fail` (something does not work) or
`skipped` (could not be looked at, and why).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Result = Literal["ok", "warn", "fail", "skipped"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. `do` is empty where there is nothing to do."""

    check: str
    result: Result
    text: str
    do: str = ""


def ok(check: str, text: str) -> Finding:
    """A check that found all in order."""
    return Finding(check, "ok", text)


def warn(check: str, text: str, do: str) -> Finding:
    """A check that found something to mend before it matters."""
    return Finding(check, "warn", text, do)


def fail(check: str, text: str, do: str) -> Finding:
    """A check that found something that does not work."""
    return Finding(check, "fail", text, do)


def skipped(check: str, why: str) -> Finding:
    """A check that could not be made."""
    return Finding(check, "skipped", why)


def describe(found: Sequence[Finding]) -> dict[str, Any]:
    """The answer of `muniment doctor`: the worst result of all, and each check."""
    results = {one.result for one in found}
    verdict = next((name for name in ("fail", "warn") if name in results), "ok")
    return {"verdict": verdict, "checks": [asdict(one) for one in found]}
