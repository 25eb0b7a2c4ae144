"""A store of which the contents of one tenant alone are there, or of nobody: all links, and what they prove.

The links of all say that no statement is missing, in the store or in the log, and that each was signed. What only a
content can tell is asked of the one tenant.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from auditor import checks_store
from auditor.act_targets import check_acts
from auditor.chain import AuditedLog
from auditor.checks import check_store
from auditor.checks_pages import Live
from auditor.checks_signatures import check_signatures
from auditor.evidence import ActRow, Asked, Statement, StoreRows
from auditor.exhibits import Exhibits, exhibits_of_store
from auditor.findings import Finding, Note, Outcome, merge
from auditor.opening import check_salts, judge_opened, opened
from auditor.registrations import check_registrations
from auditor.statement_form import check_forms
from auditor.statements import Statements
from auditor.store_rows import read_rows, row_numbers
from tlog.bundles import Bundle

if TYPE_CHECKING:
    import apsw


def audit_part(
    connection: apsw.Connection, log: AuditedLog, asked: Asked, bundle: Bundle, cosigned_at: int | None
) -> tuple[list[Outcome], Live, Exhibits]:
    """What a bundle with the contents of one tenant, or none, shows; the rows it has, and what it has to show."""
    many = bundle.many_writers
    everybody = replace(read_rows(connection, None), many_writers=many)
    links, statements = _check_links(everybody, log, asked)
    outcomes = [links]
    rows, own = everybody, statements
    named = [
        tenant for tenant in everybody.tenants if bundle.tenant is not None and tenant.number == bundle.tenant
    ]
    if bundle.tenant is not None and (not named or not named[0].name):
        what = "The tenant that the bundle is of is not in its store."
        outcomes.append(Outcome((Finding("FACT_ALTERED", "store.db tenants", what),)))
    elif named:
        rows = replace(read_rows(connection, named[0].name), many_writers=many)
        found, own = check_store(rows, log.files, log.entries, cosigned_at, asked)
        known = list(links.findings)
        outcomes.append(replace(found, findings=tuple(one for one in found.findings if one not in known)))
    closed = len(statements) - len(own) if named else len(statements)
    text = "statements of which the bundle has no content: whether each is opened or tombstoned was not looked at"
    outcomes.append(Outcome(not_checked=(Note("contents of others", text, closed),)))
    root = b"" if log.verified is None else log.verified.checkpoint.root
    exhibits = exhibits_of_store(rows, own, log.files, root, asked.trust.policy)
    live = Live(
        contents=frozenset(row_numbers(connection, "contents")),
        facts=frozenset(row_numbers(connection, "facts")),
        last=max(row_numbers(connection, "events"), default=0),
    )
    return outcomes, live, exhibits


def _check_links(rows: StoreRows, log: AuditedLog, asked: Asked) -> tuple[Outcome, tuple[Statement, ...]]:
    """Every link opened, signed, in its place, in order, and none missing."""
    registered, entries = check_registrations(log.entries, rows, log.files, asked)
    opening, rows = opened(rows, log.entries)
    statements = Statements(opening.statements)
    # The cache of acts is there for one tenant alone; here it is made from the links, so that only they count.
    derived = replace(rows, acts=tuple(_acts(statements)))
    outcomes = [
        registered,
        judge_opened(rows, opening),
        check_signatures(statements, entries, asked),
        checks_store.check_places(rows, statements, entries),
        checks_store.check_sequences(rows, statements),
        checks_store.check_order(derived, statements),
        check_salts(opening),
        check_forms(statements),
        check_acts(statements),
    ]
    return merge(outcomes), statements


def _acts(statements: tuple[Statement, ...]) -> list[ActRow]:
    seqs = {statement.row.commitment: statement.row.seq for statement in statements}
    return [
        ActRow(statement.row.tenant_id, seqs[target], statement.row.seq, act)
        for statement in statements
        if statement.link is not None
        for act, targets in statement.link.acts.items()
        for target in targets
        if target in seqs
    ]
