"""What a manifest says of a database: what a vacuum took out, and what its log, standbys and archives may still hold.

Nothing of ours looks into those. What they keep of an erased record is its sealed content and its wrapped key, and the
operator says for how long (`database_copies` of the settings): that is told, and counts as verified by nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from memory.times import HOUR, parse_duration

if TYPE_CHECKING:
    from memory.config import Config

_KINDS: Final = ("wal", "replica")


def systems_of_database(config: Config, now: int, vacuumed: bool) -> tuple[dict[str, Any], ...]:
    """The lines of a manifest about the tables of a database, its write-ahead log, and its standbys and archives."""
    heap: dict[str, Any] = {"kind": "heap", "method": "vacuum", "erased": 0}
    heap |= {"result": "verified"} if vacuumed else {"result": "inconclusive", "why": ["rows_pinned"]}
    until: dict[str, Any] = {}
    if config.database_copies is not None:
        end = now + parse_duration(config.database_copies, name="database_copies")
        until = {"until": -(-end // HOUR) * HOUR}
    copies = (
        {
            "kind": kind,
            "method": "none",
            "erased": 0,
            "result": "not_verified",
            "why": ["copies_remain"],
            **until,
        }
        for kind in _KINDS
    )
    return (heap, *copies)
