"""Two checks of a whole store that SQL alone can make: its soundness, and its word index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from auditor.evidence import Statement, StoreRows
from auditor.findings import Finding, Note, Outcome
from auditor.fold import WITHHELD
from auditor.statements import by_seq
from auditor.store_rows import check_soundness, unknown_tables
from auditor.words import Indexed, check_words

if TYPE_CHECKING:
    import apsw


def check_word_index(
    connection: apsw.Connection, rows: StoreRows, statements: Sequence[Statement]
) -> Outcome:
    """The word index has the words of each fact that may be found."""
    known = by_seq(statements)
    facts = [
        Indexed(fact.seq, fact.agent_tag, content)
        for fact in rows.facts
        if fact.status not in WITHHELD
        and fact.seq in known
        and (content := known[fact.seq].content) is not None
    ]
    return check_words(connection, facts)


def check_sound(connection: apsw.Connection) -> Outcome:
    """Tables and indexes agree, and there are no others than those of a store."""
    findings = [Finding("FACT_ALTERED", flaw.where, flaw.what) for flaw in check_soundness(connection)]
    findings += [
        Finding(
            "RESIDUE_ROW",
            f"store.db sqlite_schema row {row}",
            "The store has a table, view or trigger that no store has.",
        )
        for row in unknown_tables(connection)
    ]
    return Outcome(tuple(findings), (Note("soundness", "SQLite's own check of tables against indexes"),))
