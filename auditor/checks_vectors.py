"""Vectors of what is gone: a vector is as good as its text, so each has to belong to a fact that has its content.

A store with search by meaning has a table `vectors` of a number of a statement and bytes. Of one without it there is
nothing to check, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import apsw

from auditor.findings import Finding, Note, Outcome

TABLE: Final = "vectors"
_IS_THERE: Final = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'vectors' AND rootpage > 0"
_ROWS: Final = "SELECT seq, typeof(vector), length(vector), model FROM vectors ORDER BY seq"
Vector = tuple[object, object, object, object]
"""Number, type and length of a vector, and the model that made it."""


def read_vectors(connection: apsw.Connection) -> tuple[Vector, ...] | None:
    """Number, type, length and model of each vector; None if the store has no such table, or one with other columns."""
    if not connection.execute(_IS_THERE).fetchall():
        return None
    try:
        return tuple((seq, kind, length, model) for seq, kind, length, model in connection.execute(_ROWS))
    except apsw.Error:
        return None


def check_vectors(rows: Iterable[Vector], contents: Collection[int], facts: Collection[int]) -> Outcome:
    """A finding for each vector of a statement that has no content, or is no fact, and for what is no vector."""
    findings = []
    count = 0
    # One model after another may be making them anew.
    lengths: dict[object, set[object]] = {}
    for seq, kind, length, model in rows:
        count += 1
        where = f"store.db {TABLE} seq {seq}" if type(seq) is int else f"store.db {TABLE}"
        if seq not in contents or seq not in facts:
            what = "The vector of a statement whose content is gone is still there."
            findings.append(Finding("RESIDUE_VECTOR", where, what))
        elif kind != "blob" or not length:
            findings.append(Finding("FACT_ALTERED", where, "What stands for a vector is none."))
        else:
            lengths.setdefault(model, set()).add(length)
    most = max(map(len, lengths.values()), default=0)
    if most > 1:
        what = f"Vectors of one model are of {most} lengths: not all are what the model made."
        findings.append(Finding("FACT_ALTERED", f"store.db {TABLE}", what))
    return Outcome(
        tuple(findings), (Note("vectors", "vectors that belong to a fact with its content", count),)
    )
