"""The SQL of erasures: what a selection holds, and the deletes that leave nothing of it.

A row of the word index is deleted by the very text that it was made of, which `memory.search` makes again from
the content; so the content goes last. What remains of a statement is free of content: link, K, signed entry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from memory.event import decode_content
from memory.rows import SelectedFact
from memory.search import UNINDEXED, make_document, scope_token
from memory.times import HOUR
from tlog.errors import MalformedError

if TYPE_CHECKING:
    from memory.search import Document
    from memory.store_read import Snapshot
    from memory.store_write import Txn

EXECUTING: Final = "executing"
# By kind of statement: the act whose target takes the place of what the statement retires (memory.timeline).
_LETS_THROUGH: Final[Mapping[str, tuple[str, ...]]] = {
    "confirm": ("confirms",),
    "resolve": ("keeps",),
    "begin": ("begins",),
    "reaffirm": ("lifts",),
}
_LETTING_THROUGH: Final = frozenset(act for acts in _LETS_THROUGH.values() for act in acts)
_SELECTED: Final = """
    SELECT f.seq, e.commitment, f.status, c.content, f.on_hold
    FROM facts f CROSS JOIN events e ON e.seq = f.seq CROSS JOIN contents c ON c.seq = f.seq
"""


def select_ids(
    view: Snapshot, tenant_id: int, agent_tag: bytes, references: Iterable[bytes]
) -> tuple[SelectedFact, ...]:
    """The facts of a scope with these commitments or their first 16 bytes, in order; unknown ones are left out."""
    seqs = {seq for reference in references if (seq := view.seq_of(tenant_id, reference)) is not None}
    return tuple(
        fact
        for seq in sorted(seqs)
        for fact in _selected(
            view, "f.seq = ? AND f.tenant = ? AND f.agent_tag = ?", (seq, tenant_id, agent_tag)
        )
    )


def select_key(view: Snapshot, tenant_id: int, key_tag: bytes) -> tuple[SelectedFact, ...]:
    """The facts of a key, whatever their status, in order."""
    return _selected(view, "f.tenant = ? AND f.key_tag = ?", (tenant_id, key_tag))


def select_subject(view: Snapshot, tenant_id: int, subject_tag: bytes) -> tuple[SelectedFact, ...]:
    """The facts about a subject, whatever their status, in order."""
    return _selected(view, "f.tenant = ? AND f.subject_tag = ?", (tenant_id, subject_tag))


def select_everything(view: Snapshot, tenant_id: int, agent_tag: bytes) -> tuple[SelectedFact, ...]:
    """Every fact of a scope, in order."""
    return _selected(view, "f.tenant = ? AND f.agent_tag = ?", (tenant_id, agent_tag))


def select_tenant(view: Snapshot, tenant_id: int) -> tuple[SelectedFact, ...]:
    """Every fact of a tenant, in order."""
    return _selected(view, "f.tenant = ?", (tenant_id,))


def select_withheld(
    view: Snapshot, tenant_id: int, agent_tag: bytes, statuses: Collection[str] = ("refused", "held")
) -> tuple[SelectedFact, ...]:
    """What was refused or held in a scope and not let through since, or has one of these statuses, in order."""
    marks = ", ".join("?" * len(statuses))
    where = f"f.tenant = ? AND f.agent_tag = ? AND f.status IN ({marks})"
    return _selected(view, where, (tenant_id, agent_tag, *statuses))


def select_superseded(
    view: Snapshot, tenant_id: int, agent_tag: bytes, replaced_until: int
) -> tuple[SelectedFact, ...]:
    """The facts of a scope that were superseded at or before a time and are under no hold, in order.

    Of one whose successor is erased the hour alone is known: it counts from the end of it, yet not after now.
    """
    ended = "CASE WHEN f.end_erased THEN min(f.replaced_at + ?, ?) ELSE f.replaced_at END"
    return _selected(
        view,
        f"f.tenant = ? AND f.agent_tag = ? AND f.status = 'superseded' AND f.on_hold = 0 AND {ended} <= ?",
        (tenant_id, agent_tag, HOUR, view.last_recorded_at(), replaced_until),
    )


def acting_seqs(view: Snapshot, tenant_id: int, seqs: Collection[int]) -> tuple[int, ...]:
    """Statements that are no writes, act on nothing but these facts, and still have a content: it goes with theirs.

    The reason that somebody gave for a retraction speaks about what was retracted. What acts on such a statement
    alone, as a release does on its hold, goes as well.
    """
    going, taken = set(seqs), set(seqs)
    while going:
        found: set[int] = set()
        for seq in going:
            rows = view.rows(
                """SELECT a.seq FROM acts a CROSS JOIN contents c ON c.seq = a.seq
                   WHERE a.tenant = ? AND a.target = ? AND a.act <> 'erases'
                   AND NOT EXISTS (SELECT 1 FROM facts f WHERE f.seq = a.seq)""",
                tenant_id,
                seq,
            )
            found.update(row[0] for row in rows)
        going = {acting for acting in found - taken if _surviving_targets(view, acting) <= taken}
        taken |= going
    return tuple(sorted(taken - set(seqs)))


def erase_contents(txn: Txn, tenant_id: int, seqs: Collection[int], closed_by: int) -> int:
    """How many contents are gone, with all that was derived from them, once the transaction commits.

    `closed_by` is the tombstone: it settles conflicts that it leaves without a fact in conflict. What becomes of
    requests and of the ledger is for the caller to say.
    """
    key_tags = {tag for seq in seqs for (tag,) in _key_tags(txn.view, tenant_id, seq)}
    erased = 0
    txn.drop_words(_documents(txn.view, tenant_id, seqs))
    for seq in sorted(set(seqs)):
        # Until when an erased fact held is told to the hour alone by what it replaced for that time.
        txn.connection.execute(
            """UPDATE ledger SET until = (until + ?1 - 1) / ?1 * ?1 WHERE tenant = ?2 AND (key_tag, until) IN
               (SELECT key_tag, valid_until FROM facts WHERE tenant = ?2 AND seq = ?3 AND valid_until IS NOT NULL)""",
            (HOUR, tenant_id, seq),
        )
        erased += _erase_one(txn, tenant_id, seq)
    txn.connection.execute(
        """UPDATE conflicts SET closed_by = ?1 WHERE tenant = ?2 AND closed_by IS NULL AND NOT EXISTS
           (SELECT 1 FROM facts f WHERE f.tenant = ?2 AND f.key_tag = conflicts.key_tag AND f.status = 'conflict')""",
        (closed_by, tenant_id),
    )
    for key_tag in sorted(key_tags):
        # Without a fact of its key, the hash in such a row would confirm a guess of what it was.
        txn.connection.execute(
            """DELETE FROM conflicts WHERE tenant = ?1 AND key_tag = ?2
               AND NOT EXISTS (SELECT 1 FROM facts f WHERE f.tenant = ?1 AND f.key_tag = ?2)""",
            (tenant_id, key_tag),
        )
    return erased


def requests_of(view: Snapshot, tenant_id: int, seqs: Iterable[int]) -> tuple[int, ...]:
    """Row ids of the requests that made these statements or agreed with them."""
    return tuple(
        row[0]
        for seq in sorted(set(seqs))
        for row in view.rows("SELECT id FROM idempotency WHERE tenant = ? AND seq = ?", tenant_id, seq)
    )


def requests_of_tenant(view: Snapshot, tenant_id: int) -> tuple[int, ...]:
    """Row ids of all requests of a tenant, also of those whose statements are gone."""
    return tuple(row[0] for row in view.rows("SELECT id FROM idempotency WHERE tenant = ?", tenant_id))


def keep_requests(txn: Txn, ids: Iterable[int]) -> None:
    """A retry of these requests is answered `erased`: the keyed hash of each idempotency key stays."""
    _each(txn, "UPDATE idempotency SET body_tag = x'', answer = '' WHERE id = ?", ids)


def erase_requests(txn: Txn, ids: Iterable[int]) -> None:
    """A retry of these requests is a new write."""
    _each(txn, "DELETE FROM idempotency WHERE id = ?", ids)


def ledger_of(
    view: Snapshot,
    tenant_id: int,
    *,
    seqs: Iterable[int] = (),
    key_tag: bytes | None = None,
    subject_tag: bytes | None = None,
    agent_tag: bytes | None = None,
    tenant: int | None = None,
) -> tuple[int, ...]:
    """Row ids of the ledger that a selection concerns: tagged for its facts, its key, its subject or its scope.

    By subject or key it finds what retention has removed the facts of, too.
    """
    found: set[int] = set()
    for column, values in (
        ("source", tuple(seqs)),
        ("key_tag", (key_tag,)),
        ("subject_tag", (subject_tag,)),
        ("agent_tag", (agent_tag,)),
        ("tenant", (tenant,)),
    ):
        for value in values:
            if value is not None:
                found.update(
                    row[0]
                    for row in view.rows(
                        f"SELECT id FROM ledger WHERE tenant = ? AND {column} = ?", tenant_id, value
                    )
                )
    return tuple(sorted(found))


def keep_ledger(txn: Txn, ids: Iterable[int]) -> None:
    """The values stay refused; that their facts were erased on request is noted."""
    _each(txn, "UPDATE ledger SET source = NULL WHERE id = ?", ids)


def expire_ledger(txn: Txn, ids: Iterable[int], expires_at: int) -> None:
    """The values stay refused until a time."""
    for row_id in ids:
        txn.connection.execute(
            "UPDATE ledger SET source = NULL, expires_at = ? WHERE id = ?", (expires_at, row_id)
        )


def erase_ledger(txn: Txn, ids: Iterable[int]) -> None:
    """The values may be learnt again."""
    _each(txn, "DELETE FROM ledger WHERE id = ?", ids)


def drop_expired_ledger(txn: Txn, now: int) -> int:
    """How many ledger rows had expired and are gone."""
    txn.connection.execute("DELETE FROM ledger WHERE expires_at <= ?", (now,))
    return txn.connection.changes()


def whose(view: Snapshot) -> tuple[tuple[str, bytes], ...]:
    """The name of the tenant, and the content of a fact, of each agent that there is a fact of."""
    rows = view.rows(
        """SELECT t.number, t.name, c.content
           FROM (SELECT tenant, min(seq) AS seq FROM facts GROUP BY tenant, agent_tag) f
           CROSS JOIN events e ON e.seq = f.seq CROSS JOIN contents c ON c.seq = f.seq
           CROSS JOIN tenants t ON t.id = e.tenant ORDER BY f.seq"""
    )
    return tuple((view.open_name(number, name), content) for number, name, content in rows)


def row_numbers(view: Snapshot) -> tuple[frozenset[int], frozenset[int]]:
    """The numbers of the rows there are of contents and of facts, of every tenant."""
    contents, facts = (view.rows(f"SELECT seq FROM {table}") for table in ("contents", "facts"))
    return frozenset(seq for (seq,) in contents), frozenset(seq for (seq,) in facts)


def holds_anything(view: Snapshot, tenant_id: int) -> bool:
    """Whether a fact, a retired value or a request of a tenant is left."""
    return any(
        view.one(f"SELECT 1 FROM {table} WHERE tenant = ? LIMIT 1", tenant_id) is not None
        for table in ("facts", "ledger", "idempotency")
    )


def contents_of(view: Snapshot, tenant_id: int) -> tuple[bytes, ...]:
    """The contents that are left of a tenant, those of tombstones and manifests among them."""
    of_tenant = "SELECT c.content FROM events e CROSS JOIN contents c ON c.seq = e.seq WHERE e.tenant = ?"
    return tuple(content for (content,) in view.rows(of_tenant, tenant_id))


def forget_tenant(txn: Txn, tenant_id: int, name_tag: bytes) -> None:
    """The name of a tenant is gone, and it is found by none: `name_tag` is random."""
    txn.connection.execute("DELETE FROM tokens WHERE tenant = ?", (tenant_id,))
    txn.connection.execute("UPDATE tenants SET name = '', name_tag = ? WHERE id = ?", (name_tag, tenant_id))


def start_erasure(txn: Txn, tenant_id: int, request: bytes, detail: bytes) -> int:
    """The number of a new erasure, in the state `executing`."""
    number = txn.view.rows("SELECT coalesce(max(number), 0) + 1 FROM erasures")[0][0]
    txn.connection.execute(
        "INSERT INTO erasures (number, tenant, request, state, detail) VALUES (?, ?, ?, ?, ?)",
        (number, tenant_id, request, EXECUTING, detail),
    )
    return int(number)


def update_erasure(
    txn: Txn,
    number: int,
    *,
    state: str | None = None,
    tombstone_seq: int | None = None,
    detail: bytes | None = None,
    manifest: bytes | None = None,
) -> None:
    """Sets what is given of an erasure and leaves the rest."""
    txn.connection.execute(
        """UPDATE erasures SET state = coalesce(?, state), tombstone = coalesce(?, tombstone),
                               detail = coalesce(?, detail), manifest = coalesce(?, manifest)
           WHERE number = ?""",
        (state, tombstone_seq, detail, manifest, number),
    )
    if txn.connection.changes() != 1:
        raise MalformedError("expected the number of an erasure")


def _documents(view: Snapshot, tenant_id: int, seqs: Iterable[int]) -> Iterator[tuple[int, Document]]:
    """What the word index holds of these facts, of those that it holds."""
    for seq in sorted(set(seqs)):
        row = view.one(
            """SELECT c.content, f.agent_tag, f.status FROM facts f CROSS JOIN contents c ON c.seq = f.seq
               WHERE f.seq = ? AND f.tenant = ?""",
            seq,
            tenant_id,
        )
        if row is not None and row[2] not in UNINDEXED:
            yield seq, make_document(scope_token(row[1]), decode_content(row[0]))


def _erase_one(txn: Txn, tenant_id: int, seq: int) -> int:
    found = txn.view.one(
        "SELECT 1 FROM events e CROSS JOIN contents c ON c.seq = e.seq WHERE e.seq = ? AND e.tenant = ?",
        seq,
        tenant_id,
    )
    if found is None:
        return 0
    lose_ends(txn, tenant_id, seq)
    for table in ("facts", "vectors"):
        txn.connection.execute(f"DELETE FROM {table} WHERE seq = ?", (seq,))
    txn.drop_content(tenant_id, seq)
    txn.connection.execute("DELETE FROM tokens WHERE tenant = ? AND target = ?", (tenant_id, seq))
    txn.connection.execute("DELETE FROM grants WHERE seq = ? AND tenant = ?", (seq, tenant_id))
    return 1


def _key_tags(view: Snapshot, tenant_id: int, seq: int) -> list[tuple[bytes]]:
    return view.rows(
        "SELECT key_tag FROM facts WHERE seq = ? AND tenant = ? AND key_tag IS NOT NULL", seq, tenant_id
    )


def lose_ends(txn: Txn, tenant_id: int, seq: int) -> None:
    """Marks the facts that the fact `seq` took the place of: when they ended goes with its content.

    It did so by its own statement, or by the one that let it through: then that statement ended them, and tells
    the time of that itself. Of the fact's own time the hour stays, which retention counts from.
    """
    # Only the links of these are read: a tombstone's is as long as the erasure is large.
    acts = [act for act in txn.view.acts_on(tenant_id, seq) if act.act in _LETTING_THROUGH]
    links = txn.view.links(act.seq for act in acts)
    let_through = {act.seq for act in acts if act.act in _LETS_THROUGH.get(links[act.seq].kind, ())}
    for ended_by in {seq, *let_through}:
        grain = HOUR if ended_by == seq else 1
        # By the numbers of its few targets, and by no index of all that was superseded in a scope.
        txn.connection.execute(
            """UPDATE facts NOT INDEXED SET end_erased = 1, replaced_at = replaced_at - replaced_at % ?3
               WHERE tenant = ?1 AND replaced_by = ?2 AND status = 'superseded'
               AND seq IN (SELECT target FROM acts WHERE seq = ?2)""",
            (tenant_id, ended_by, grain),
        )


def _selected(view: Snapshot, where: str, values: tuple[object, ...]) -> tuple[SelectedFact, ...]:
    rows = view.rows(f"{_SELECTED} WHERE {where} ORDER BY f.seq", *values)
    return tuple(
        SelectedFact(seq, commitment, status, decode_content(content), on_hold)
        for seq, commitment, status, content, on_hold in rows
    )


def _surviving_targets(view: Snapshot, seq: int) -> set[int]:
    rows = view.rows(
        "SELECT a.target FROM acts a CROSS JOIN contents c ON c.seq = a.target WHERE a.seq = ?", seq
    )
    return {row[0] for row in rows}


def _each(txn: Txn, sql: str, ids: Iterable[int]) -> None:
    for row_id in ids:
        txn.connection.execute(sql, (row_id,))
