"""A store in which nothing but new rows came since an audit found nothing: what is new judged, and what it touches.

What it finds is told where it is a matter of the statements that it looked at alone. Where anything else is wrong, or
can't be told from what is new, there is no answer, and the audit looks at everything as if there had been none before.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import apsw

from auditor import narrow_checks as checks
from auditor import narrow_said as now_said
from auditor.chain import AuditedLog
from auditor.checks_facts import check_tags
from auditor.checks_pages import Live, check_structure
from auditor.checks_vectors import check_vectors, read_vectors
from auditor.checks_whole import check_sound
from auditor.evidence import Asked, Entries, Statement, StoreRows
from auditor.exhibits import Exhibits, exhibits_of_log
from auditor.findings import Outcome, merge
from auditor.leaves import Leaves, read_leaves
from auditor.narrow_checks import NOTHING, Base
from auditor.opening import Opening
from auditor.progress import Tell
from auditor.row_marks import (
    Keyed,
    RowMarks,
    Tags,
    keys_of,
    last_of,
    mark_table,
    roots_of,
    settings_of,
)
from auditor.snapshot import read_only
from auditor.sqlite_file import Pages
from auditor.sqlite_pages import PageReport
from auditor.store_rows import missing_tables, read_some, require_this_version, row_numbers
from auditor.strays import check_strays
from auditor.sweep import Facts, draw, fresh_salts
from auditor.touched import changed_facts, is_in, touched
from auditor.words import check_words
from tlog.errors import Error, MalformedError

_FAULTS: Final = (apsw.Error, Error, ValueError, LookupError, TypeError, OverflowError, struct.error)
"""What a store that is another one than it was may come to, read as if it were not: it is then looked at as a whole."""


@dataclass(frozen=True, slots=True)
class Narrow:
    """What there is to say of a store, and what a later audit is to know of it if nothing is wrong with it."""

    outcome: Outcome
    exhibits: Exhibits
    rows: StoreRows
    report: PageReport
    digests: tuple[bytes, ...]
    until: int
    marks: RowMarks


@dataclass(frozen=True, slots=True)
class _Store:
    """A store as it is now, read by SQL and by its pages."""

    connection: apsw.Connection
    report: PageReport
    structure: Outcome
    leaves: Mapping[str, Leaves]
    live: Live
    last: int


def judge_new(pages: Pages, log: AuditedLog, asked: Asked, base: Base, tell: Tell) -> Narrow | None:
    """Everything that is new in a store, judged; None where that does not tell all that is wrong with it."""
    try:
        with read_only(pages) as connection:
            require_this_version(connection)
            then, now = keys_of(connection, base.last)
            if then.check != base.marks.check or missing_tables(connection):
                return None  # an erasure, or a salt that is another one
            tell("what is new")
            store = _read_store(connection, pages, tell)
            return _judge(store, log, asked, base, (then, now))
    except _FAULTS:
        return None


def marks_of(
    pages: Pages, report: PageReport, meta: Mapping[str, Any], tips: Sequence[int]
) -> RowMarks | None:
    """What is kept of the rows of a store in which nothing was found; None where they can't be known again."""
    try:
        with read_only(pages) as connection:
            last = last_of(connection, "events")
            if last != sum(1 for _ in row_numbers(connection, "events")):
                return None
            _, keyed = keys_of(connection, last)
            facts = Facts(connection, last)
            facts.pass_by()
            facts.tags.end(last)
            leaves = read_leaves(pages, roots_of(connection), report.owners)
            return _marks(connection, keyed, leaves, facts.tags, meta, tips, last)
    except _FAULTS:
        return None


def _read_store(connection: apsw.Connection, pages: Pages, tell: Tell) -> _Store:
    live = Live(
        contents=frozenset(row_numbers(connection, "contents")),
        facts=frozenset(row_numbers(connection, "facts")),
        last=last_of(connection, "events"),
    )
    # Before anything counts up to the last number, which may be any.
    if (
        live.last != sum(1 for _ in row_numbers(connection, "events"))
        or max(live.facts, default=0) > live.last
    ):
        raise MalformedError("expected statements that are numbered without a gap")
    structure, report = check_structure(pages, live, tell)
    if report is None or structure.findings:
        raise MalformedError("expected a sound file")
    leaves = read_leaves(pages, roots_of(connection), report.owners)
    return _Store(connection, report, structure, leaves, live, live.last)


def _judge(
    store: _Store, log: AuditedLog, asked: Asked, base: Base, keys: tuple[Keyed, Keyed]
) -> Narrow | None:
    connection, last, (then, now) = store.connection, store.last, keys
    fresh = fresh_salts(connection, base.last)
    begun = changed_facts(connection, base.marks, store.leaves, then, last)
    if begun is None or fresh is None or last < base.last or last_of(connection, "facts") > last:
        return None
    seqs = touched(connection, begun | checks.always(connection, base, last), base.marks, last)
    if seqs is None:
        return None
    opening = Opening(log.entries)
    rows = checks.read_touched(connection, seqs, base, opening)
    statements = tuple(opening.statements)
    new = [one for one in statements if one.row.seq > base.last]
    checks.require_settings(rows, base.marks, then)
    sure = checks.check_grown(connection, rows, statements, log, asked, base)
    alone, together = checks.check_touched(rows, statements, opening, asked)
    facts = Facts(connection, base.last)
    facts.look_for(
        [one for one in rows.facts if one.seq > base.last], {one.row.seq: one.content for one in new}
    )
    alone += [check_words(connection, facts.indexed()), _check_vectors(store)]
    facts.tags.end(last)
    if tuple(map(then.of, facts.tags.then)) != base.marks.tags:
        return None
    sure += [*together, _check_peers(connection, facts.peers, rows, statements), store.structure]
    sure += [check_strays(connection), check_sound(connection)]
    root = b"" if log.verified is None else log.verified.checkpoint.root
    drawn = draw(connection, root, fresh, base.last)
    if drawn is None or merge(sure).findings:
        return None
    outcome = merge([*sure, *alone])
    counts = {
        **outcome.counts,
        "retired_values": now_said.retired_values(connection),
        "entries": log.entries.size,
    }
    outcome = replace(outcome, counts=counts)
    shown = exhibits_of_log(log.files, asked.trust.policy, rows.erasures)
    return Narrow(
        now_said.told(outcome, base, new, facts.statuses, len(statements)),
        now_said.exhibits_now(connection, base, new, shown, facts.statuses, drawn),
        rows,
        store.report,
        now_said.digests_now(connection, log, base),
        now_said.until_now(base, new, asked),
        _marks(
            connection,
            now,
            store.leaves,
            facts.tags,
            rows.meta,
            now_said.tips_now(base.marks.tips, new),
            last,
        ),
    )


def _check_vectors(store: _Store) -> Outcome:
    vectors = read_vectors(store.connection)
    if vectors is None:
        raise MalformedError("expected vectors that can be read")
    return check_vectors(vectors, store.live.contents, store.live.facts)


def _check_peers(
    connection: apsw.Connection, peers: set[int], rows: StoreRows, statements: Sequence[Statement]
) -> Outcome:
    """New facts are filed under the hashes that others of their names have, and under no others'."""
    opening = Opening(Entries(0))
    chosen = {**NOTHING, "events": is_in("e.seq", peers), "facts": is_in("seq", peers)}
    others = read_some(connection, chosen, opening.take)
    facts = {fact.seq: fact for fact in (*others.facts, *rows.facts)}
    writes = {one.row.seq: one for one in (*opening.statements, *statements)}
    return Outcome(tuple(check_tags((facts[seq] for seq in sorted(facts)), writes)))


def _marks(
    connection: apsw.Connection,
    keyed: Keyed,
    leaves: Mapping[str, Leaves],
    tags: Tags,
    meta: Mapping[str, Any],
    tips: Sequence[int],
    last: int,
) -> RowMarks:
    return RowMarks(
        last,
        keyed.check,
        {name: mark_table(connection, name, one, keyed) for name, one in leaves.items()},
        tuple(map(keyed.of, tags.now)),
        keyed.of(settings_of(meta)),
        tuple(tips),
    )
