"""The search for many byte strings at once: hyperscan where it is installed, else an automaton of Aho and Corasick.

Both tell every place where a pattern ends, so the answers are the same. Few patterns are made into an automaton that
takes one step a byte; many would not fit in memory that way, and take a smaller and slower one.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Final

Match = tuple[int, int]
"""The number of a pattern, and the place behind its last byte."""
Find = Callable[[bytes], list[Match]]

_FAST_BYTES: Final = 128 * 1024
"""Of patterns together: an automaton of one step a byte needs up to a kilobyte for each."""


def build_engine(patterns: Sequence[bytes]) -> Find:
    """What finds every place of the patterns, in the order of their ends."""
    return _hyperscan(patterns) if importlib.util.find_spec("hyperscan") else aho_corasick(patterns)


def aho_corasick(patterns: Sequence[bytes]) -> Find:
    """The same with ahocorasick_rs, which is always there."""
    from ahocorasick_rs import BytesAhoCorasick, Implementation

    few = sum(map(len, patterns)) <= _FAST_BYTES
    kind = Implementation.DFA if few else Implementation.ContiguousNFA
    automaton = BytesAhoCorasick(patterns, implementation=kind)

    def find(data: bytes) -> list[Match]:
        found = automaton.find_matches_as_indexes(data, overlapping=True)
        return [(pattern, end) for pattern, _, end in found]

    return find


def _hyperscan(patterns: Sequence[bytes]) -> Find:
    import hyperscan

    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[b"".join(b"\\x%02x" % byte for byte in pattern) for pattern in patterns],
        ids=list(range(len(patterns))),
        elements=len(patterns),
        flags=[hyperscan.HS_FLAG_DOTALL] * len(patterns),
    )

    def find(data: bytes) -> list[Match]:
        found: list[Match] = []

        def matched(pattern: int, _begin: int, end: int, _flags: int, _context: object) -> None:
            found.append((pattern, end))

        database.scan(data, match_event_handler=matched)
        return sorted(found, key=lambda match: match[1])

    return find
