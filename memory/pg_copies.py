"""What a manifest says of a database before anybody looked: what a vacuum took out, and where copies may be.

Copies are the write-ahead log, standbys and archives. What they keep of an erased record is its sealed content and its
wrapped key, and the operator says for how long (`database_copies` of the settings): that is told, and counts as
verified by nobody. memory.pg_look says more, where somebody may look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from memory.times import HOUR, parse_duration

if TYPE_CHECKING:
    from memory.config import Config
    from memory.pg_vacuum import Cleared

_KINDS: Final = ("wal", "replica")


def declared_until(config: Config, now: int) -> int | None:
    """The hour from which on no copy of the database has what it has now, by the operator's word, if there is one."""
    if config.database_copies is None:
        return None
    return -(-(now + parse_duration(config.database_copies, name="database_copies")) // HOUR) * HOUR


def systems_of_database(config: Config, now: int, cleared: Cleared) -> tuple[dict[str, Any], ...]:
    """The lines of a manifest about the tables of a database, its write-ahead log, and its standbys and archives."""
    # Where somebody looks afterwards, all that an erasure takes from is written anew.
    method = "vacuum" if config.database_checker is None else "rewrite"
    heap: dict[str, Any] = {"kind": "heap", "method": method, "erased": 0}
    if cleared.pinned:
        heap |= {"result": "inconclusive", "why": ["rows_pinned"]}
    elif cleared.not_rewritten:
        heap |= {"result": "not_verified", "why": ["not_rewritten"]}
    else:
        heap |= {"result": "verified"}
    end = declared_until(config, now)
    until = {} if end is None else {"until": end}
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
