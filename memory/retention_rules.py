"""How long a record is kept: rules for patterns of keys, and a term for what was refused, held or discarded.

A rule is a line of the settings, a pattern and a duration: `sensor/* 30d`. The first pattern that a key matches
holds for it; `*` is for every key, and for what has none. What is past its time is served to nobody from that
moment on; the next sweep erases it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from memory.canon import canonical_key
from memory.times import parse_duration
from tlog.errors import MalformedError

if TYPE_CHECKING:
    from memory.config import Config
    from memory.model import Status

WITHHELD: Final[tuple[Status, ...]] = ("refused", "held", "discarded")
ALL: Final = "*"
NEVER: Final = "never"
MAX_RULES: Final = 256


@dataclass(frozen=True)
class Rule:
    """Keys that match are kept for so long; `term` is in microseconds."""

    pattern: re.Pattern[str]
    any_key: bool
    term: int


@dataclass(frozen=True)
class Rules:
    """The rules in force, the first that matches holds; `withheld` is None where that is kept until it is erased."""

    rules: tuple[Rule, ...] = ()
    withheld: int | None = None

    def has_ended(self, status: Status, content: Mapping[str, Any], now: int) -> bool:
        """Whether a record of this status and content is past its time."""
        terms = [self._term(content.get("key"))]
        if status in WITHHELD:
            terms.append(self.withheld)
        term = min((one for one in terms if one is not None), default=None)
        return term is not None and int(content["recorded_at"]) + term <= now

    def _term(self, key: str | None) -> int | None:
        if not self.rules:
            return None
        name = None if key is None else canonical_key(key)
        for rule in self.rules:
            if rule.any_key or (name is not None and rule.pattern.fullmatch(name)):
                return rule.term
        return None


@lru_cache(maxsize=8)
def parse_rules(lines: tuple[str, ...], withheld: str) -> Rules:
    """The rules of the settings; MalformedError for a line that is none."""
    if len(lines) > MAX_RULES:
        raise MalformedError(f"config.toml: expected at most {MAX_RULES} lines of retention")
    term = None if withheld == NEVER else parse_duration(withheld, name="config.toml: withheld_retention")
    return Rules(tuple(_parse(line) for line in lines), term)


def rules_of(config: Config) -> Rules:
    """The rules of a home."""
    return parse_rules(config.retention, config.withheld_retention)


def _parse(line: str) -> Rule:
    pattern, _, duration = line.strip().rpartition(" ")
    pattern = pattern.strip()
    if not pattern:
        raise MalformedError(
            'config.toml: expected retention as lines of a pattern and a duration: "sensor/* 30d"'
        )
    term = parse_duration(duration, name="config.toml: a duration in retention")
    # A pattern is matched with keys as they are compared: each part between stars in that form.
    parts = [re.escape(_canonical(part)) for part in pattern.split("*")]
    return Rule(re.compile(".*".join(parts), re.DOTALL), pattern == ALL, term)


def _canonical(part: str) -> str:
    """A part of a pattern as keys are compared, with the separators that it begins and ends with."""
    if not part:
        return ""
    core = canonical_key(f"x{part}x")
    return core[1:-1]
