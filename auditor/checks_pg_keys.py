"""Checks of the keys that the contents of a database hang on: something hangs on each, and of one subject alone.

A key that nothing hangs on is what an erasure has to destroy, left behind. A key that records of two subjects hang on
would outlive the erasure of either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from auditor.findings import Finding, Note, Outcome

if TYPE_CHECKING:
    import apsw

_ALONE: Final = """
    SELECT count(*) FROM subject_keys s WHERE NOT EXISTS (
      SELECT 1 FROM content_keys k WHERE k.tenant = s.tenant AND k.subject = s.subject)
"""
_WITHOUT_CONTENT: Final = """
    SELECT k.seq FROM content_keys k WHERE NOT EXISTS (SELECT 1 FROM contents c WHERE c.seq = k.seq) ORDER BY 1
"""
_CLOSED: Final = "SELECT count(*) FROM subject_keys WHERE NOT opens"
# What is filed under one agent and subject hangs on one key, and the other way round.
_SHARED: Final = """
    SELECT min(k.seq) FROM content_keys k JOIN facts f ON f.seq = k.seq AND f.tenant = k.tenant
    WHERE k.subject IS NOT NULL GROUP BY k.tenant, k.subject
    HAVING count(DISTINCT hex(f.agent_tag) || coalesce(hex(f.subject_tag), '')) > 1
    UNION SELECT min(k.seq) FROM content_keys k JOIN facts f ON f.seq = k.seq AND f.tenant = k.tenant
    WHERE f.subject_tag IS NOT NULL GROUP BY f.tenant, f.agent_tag, f.subject_tag
    HAVING count(DISTINCT coalesce(hex(k.subject), '')) > 1 ORDER BY 1
"""
_MOST: Final = 100


def check_keys(copy: apsw.Connection) -> Outcome:
    """What is wrong with the keys of subjects and contents, as rows of a copy have them."""
    keys = _number(copy, "SELECT count(*) FROM subject_keys")
    checked = Note(
        "subject keys",
        "keys of subjects, each of one subject of one agent, with records that hang on it",
        keys,
    )
    return Outcome(tuple(_findings(copy)), (checked,))


def _number(copy: apsw.Connection, sql: str) -> int:
    rows: list[Any] = copy.execute(sql).fetchall()
    return int(rows[0][0])


def _findings(copy: apsw.Connection) -> Iterator[Finding]:
    where = "database subject_keys"
    for sql, code, place, what in (
        (_ALONE, "RESIDUE_ROW", where, "A key of a subject is there that no record hangs on."),
        (_CLOSED, "FACT_ALTERED", where, "A key of a subject does not open under the key of its tenant."),
    ):
        count = _number(copy, sql)
        if count:
            yield Finding(code, place, what, {"keys": count})
    for (seq,) in copy.execute(_WITHOUT_CONTENT).fetchall()[:_MOST]:
        yield Finding(
            "RESIDUE_ROW", f"database content_keys seq {seq}", "A key is there whose content is gone."
        )
    for (seq,) in copy.execute(_SHARED).fetchall()[:_MOST]:
        what = "A key of a subject is also that of another, or a subject has two: an erasure would miss one."
        yield Finding("FACT_ALTERED", f"database content_keys seq {seq}", what)
