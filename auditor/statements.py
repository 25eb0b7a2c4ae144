"""The statements of a store, and what many checks ask of all of them, found once.

To go through a hundred thousand statements costs more than what is done with most of them. A check takes any sequence
of statements; where it is given these, nothing is gone through twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

from auditor.evidence import Statement

_RETIRES: Final = frozenset({"retires"})


class Statements(tuple[Statement, ...]):
    """Statements in order. What is found of them stays as long as they do."""

    @cached_property
    def by_commitment(self) -> Mapping[bytes, Statement]:
        """Each by its commitment; the last, if several have one."""
        return {statement.row.commitment: statement for statement in self}

    @cached_property
    def unusual(self) -> Sequence[Statement]:
        """Those that are no write, or do more than to retire others."""
        return tuple(_unusual(self))


def by_commitment(statements: Sequence[Statement]) -> Mapping[bytes, Statement]:
    """Each statement by its commitment; the last, if several have one."""
    return _found(statements).by_commitment


def by_seq(statements: Sequence[Statement]) -> Mapping[int, Statement]:
    """Each statement by its number; the last, if several have one."""
    # Asked for twice, and not kept in between: what is in memory at its fullest counts, too.
    return {statement.row.seq: statement for statement in statements}


def unusual(statements: Sequence[Statement]) -> Sequence[Statement]:
    """Those of them, in order, that are no write or do more than to retire others: few of a store are."""
    return _found(statements).unusual


def of_kind(statements: Sequence[Statement], kind: str) -> Sequence[Statement]:
    """Those of them, in order, that are of a kind other than `write`."""
    return [one for one in unusual(statements) if one.link is not None and one.link.kind == kind]


def _found(statements: Sequence[Statement]) -> Statements:
    return statements if isinstance(statements, Statements) else Statements(statements)


def _unusual(statements: Iterable[Statement]) -> Iterable[Statement]:
    for statement in statements:
        link = statement.link
        if link is not None and (link.kind != "write" or (link.acts and link.acts.keys() != _RETIRES)):
            yield statement
