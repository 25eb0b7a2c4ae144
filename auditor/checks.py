"""Every check of values, asked in order: a store's statements against a log, and what both say was erased."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from auditor import (
    checks_caches,
    checks_facts,
    checks_guard,
    checks_ledger,
    checks_signatures,
    checks_store,
    erasure,
)
from auditor.act_targets import check_acts
from auditor.ageing import check_age
from auditor.checks_conflicts import check_conflicts
from auditor.checks_grants import check_grants
from auditor.evidence import Asked, Entries, LogFiles, Statement, StoreRows
from auditor.findings import Outcome, merge
from auditor.fold import fold
from auditor.given import check_given
from auditor.holds import check_holds
from auditor.lost import check_lost
from auditor.opening import Opening, check_salts, judge_opened, opened
from auditor.registrations import check_registrations
from auditor.restored import check_restored
from auditor.statement_form import check_forms
from auditor.statements import Statements
from auditor.states import check_states


def check_store(
    rows: StoreRows, files: LogFiles, entries: Entries, cosigned_at: int | None, asked: Asked
) -> tuple[Outcome, tuple[Statement, ...]]:
    """What the rows of a store are found to be, and its statements, decoded.

    `cosigned_at` is the newest time, in seconds, at which a witness saw the checkpoint that covers `entries`.
    """
    opening, rows = opened(rows, entries)
    outcome, statements, signatures = check_rows(rows, files, entries, cosigned_at, asked, opening)
    return merge([outcome, signatures()]), statements


def check_rows(
    rows: StoreRows,
    files: LogFiles,
    entries: Entries,
    cosigned_at: int | None,
    asked: Asked,
    opening: Opening,
) -> tuple[Outcome, tuple[Statement, ...], Callable[[], Outcome]]:
    """The same of rows that were opened as they were read, and what judges the signatures: to be asked last, since
    they may be verified meanwhile.
    """
    registered, entries = check_registrations(entries, rows, files, asked)
    statements, known = Statements(opening.statements), opening.known
    outcomes = [registered, judge_opened(rows, opening), check_salts(opening)]
    outcomes += _check_statements(rows, statements, entries, cosigned_at, asked, known)
    outcomes.append(erasure.check_erasures(rows, statements, files, asked, entries))
    outcomes.append(check_age(rows, asked))
    # With one tenant's rows alone, an entry that is not among them says nothing.
    alone = entries if rows.tenant_id is None else Entries(0)

    def signatures() -> Outcome:
        return checks_signatures.check_signatures(statements, alone, asked, entries)

    return merge(outcomes), statements, signatures


def _check_statements(
    rows: StoreRows,
    statements: Sequence[Statement],
    entries: Entries,
    cosigned_at: int | None,
    asked: Asked,
    known: Container[int],
) -> list[Outcome]:
    folded = fold(statements)
    return [
        checks_store.check_places(rows, statements, entries),
        checks_store.check_sequences(rows, statements),
        checks_store.check_order(rows, statements),
        check_forms(statements, known),
        check_acts(statements, folded),
        check_grants(rows, statements),
        checks_store.check_times(rows, statements, cosigned_at, entries, asked),
        checks_store.check_promises(statements, entries, asked),
        checks_facts.check_opened(statements, folded),
        check_restored(rows, statements),
        checks_facts.check_facts(rows, statements, folded),
        checks_caches.check_caches(rows, statements),
        check_conflicts(rows, statements),
        checks_ledger.check_ledger(rows, statements, folded, asked.now),
        checks_guard.check_returned(statements, folded),
        checks_guard.count_unguarded(statements),
        check_holds(rows, statements, asked),
        check_given(rows, statements, asked),
        check_states(rows, statements),
        check_lost(rows, statements, entries),
    ]
