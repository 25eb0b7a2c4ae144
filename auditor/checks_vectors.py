"""Vectors of what is gone: a vector is as good as its text, so each has to belong to a fact that has its content.

It has to stand under the tenant and agent of that fact, too: a search by meaning finds what stands under its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import apsw

from auditor.findings import Finding, Note, Outcome

TABLE: Final = "vectors"
# What is held back is found by nobody.
_ROWS: Final = """
    SELECT v.seq, typeof(v.vector), length(v.vector), v.model,
           f.tenant IS v.tenant AND f.agent_tag IS v.agent_tag AND f.status NOT IN ('held', 'refused', 'discarded')
    FROM vectors v LEFT JOIN facts f ON f.seq = v.seq ORDER BY v.seq
"""
Vector = tuple[object, object, object, object, object]
"""Number, type and length of a vector, the model that made it, and whether it stands where its fact is found."""


def read_vectors(connection: apsw.Connection) -> tuple[Vector, ...] | None:
    """Every vector of a store; None if they can't be read."""
    try:
        return tuple(connection.execute(_ROWS))
    except (apsw.Error, UnicodeDecodeError):
        return None


def check_vectors(rows: Iterable[Vector], contents: Collection[int], facts: Collection[int]) -> Outcome:
    """A finding for each vector of a statement that has no content, or is no fact, and for what is no vector."""
    findings = []
    count = 0
    # One model after another may be making them anew.
    lengths: dict[object, set[object]] = {}
    for seq, kind, length, model, in_place in rows:
        count += 1
        where = f"store.db {TABLE} seq {seq}" if type(seq) is int else f"store.db {TABLE}"
        if seq not in contents or seq not in facts:
            what = "The vector of a statement whose content is gone is still there."
            findings.append(Finding("RESIDUE_VECTOR", where, what))
        elif not in_place:
            what = "A vector stands under another tenant or agent than its fact, or its fact is held back."
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
