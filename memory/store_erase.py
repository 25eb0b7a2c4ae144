"""The SQL of erasures: what a selection holds, and the deletes that leave nothing of it.

A row of the word index is deleted by the very text that it was made of, which `memory.search` makes again from
the content; so the content goes last. What remains of a statement is free of content: link, K, signed entry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from memory.event import decode_content
from memory.rows import SelectedFact
from memory.search import make_document, scope_token
from tlog.errors import MalformedError

if TYPE_CHECKING:
    from memory.store_read import Snapshot
    from memory.store_write import Txn

EXECUTING: Final = "executing"
# By kind of statement: the act whose target takes the place of what the statement retires (memory.timeline).
_LETS_THROUGH: Final[Mapping[str, tuple[str, ...]]] = {
    "confirm": ("confirms",),
    "resolve": ("keeps",),
    "reaffirm": ("lifts",),
}
_SELECTED: Final = """
    SELECT f.seq, e.commitment, f.status, c.content
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


def select_superseded(
    view: Snapshot, tenant_id: int, agent_tag: bytes, replaced_until: int
) -> tuple[SelectedFact, ...]:
    """The facts of a scope that were superseded at or before a time, in order."""
    return _selected(
        view,
        "f.tenant = ? AND f.agent_tag = ? AND f.status = 'superseded' AND f.replaced_at <= ?",
        (tenant_id, agent_tag, replaced_until),
    )


def mentions(
    view: Snapshot, tenant_id: int, agent_tag: bytes, needles: Sequence[str], exclude: Collection[int]
) -> tuple[SelectedFact, ...]:
    """Other facts of a scope whose key, value, subject or text contains one of the needles, whatever its case.

    Reads every content of the scope: a preview may take its time, an index of substrings would be one more
    thing to erase.
    """
    wanted = tuple(needle.casefold() for needle in needles if needle.strip())
    if not wanted:
        return ()
    rows = view.rows(
        f"{_SELECTED} WHERE f.tenant = ? AND f.agent_tag = ? ORDER BY f.seq", tenant_id, agent_tag
    )
    found = []
    for seq, commitment, status, encoded in rows:
        # Texts stand in CBOR as their UTF-8: what does not occur in the bytes occurs in no field.
        whole = encoded.decode("utf-8", "replace").casefold()
        if seq not in exclude and any(needle in whole for needle in wanted):
            fact = SelectedFact(seq, commitment, status, decode_content(encoded))
            if _mentions(fact, wanted):
                found.append(fact)
    return tuple(found)


def acting_seqs(view: Snapshot, tenant_id: int, seqs: Collection[int]) -> tuple[int, ...]:
    """Statements that are no writes, act on facts in `seqs` alone, and still have a content: it goes with theirs.

    The reason that somebody gave for a retraction speaks about what was retracted.
    """
    found: set[int] = set()
    for seq in seqs:
        rows = view.rows(
            """SELECT a.seq FROM acts a CROSS JOIN contents c ON c.seq = a.seq
               WHERE a.tenant = ? AND a.target = ? AND a.act <> 'erases'
               AND NOT EXISTS (SELECT 1 FROM facts f WHERE f.seq = a.seq)""",
            tenant_id,
            seq,
        )
        found.update(row[0] for row in rows)
    return tuple(sorted(acting for acting in found if _surviving_targets(view, acting) <= set(seqs)))


def erase_contents(txn: Txn, tenant_id: int, seqs: Collection[int], closed_by: int) -> int:
    """How many contents are gone, with all that was derived from them, once the transaction commits.

    `closed_by` is the tombstone: it settles conflicts that it leaves without a fact.
    """
    erased = 0
    for seq in sorted(set(seqs)):
        erased += _erase_one(txn, tenant_id, seq)
    txn.connection.execute(
        """UPDATE conflicts SET closed_by = ?1 WHERE tenant = ?2 AND closed_by IS NULL AND NOT EXISTS
           (SELECT 1 FROM facts f WHERE f.tenant = ?2 AND f.key_tag = conflicts.key_tag AND f.status = 'conflict')""",
        (closed_by, tenant_id),
    )
    return erased


def ledger_of(
    view: Snapshot,
    tenant_id: int,
    *,
    seqs: Iterable[int] = (),
    key_tag: bytes | None = None,
    subject_tag: bytes | None = None,
    agent_tag: bytes | None = None,
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


def _erase_one(txn: Txn, tenant_id: int, seq: int) -> int:
    row = txn.view.one(
        """SELECT c.content, f.agent_tag, (SELECT 1 FROM search_docsize d WHERE d.id = e.seq)
           FROM events e CROSS JOIN contents c ON c.seq = e.seq LEFT JOIN facts f ON f.seq = e.seq
           WHERE e.seq = ? AND e.tenant = ?""",
        seq,
        tenant_id,
    )
    if row is None:
        return 0
    encoded, agent_tag, indexed = row
    if indexed:
        document = make_document(scope_token(agent_tag), decode_content(encoded))
        txn.connection.execute(
            "INSERT INTO search (search, rowid, scope, key, value, body, grams) VALUES ('delete', ?, ?, ?, ?, ?, ?)",
            (seq, *document.columns),
        )
    _lose_ends(txn, tenant_id, seq)
    txn.connection.execute("DELETE FROM facts WHERE seq = ?", (seq,))
    txn.connection.execute("DELETE FROM contents WHERE seq = ?", (seq,))
    txn.connection.execute("DELETE FROM tokens WHERE tenant = ? AND target = ?", (tenant_id, seq))
    # The key of the request stays, so that a retry is answered `erased` and not stored anew.
    txn.connection.execute(
        "UPDATE idempotency SET body_tag = x'', answer = '' WHERE tenant = ? AND seq = ?", (tenant_id, seq)
    )
    return 1


def _lose_ends(txn: Txn, tenant_id: int, seq: int) -> None:
    """Marks the facts that the fact `seq` took the place of: when they ended goes with its content.

    It did so by its own statement, or by the one that let it through: then that statement ended them.
    """
    acts = txn.view.acts_on(tenant_id, seq)
    links = txn.view.links(act.seq for act in acts)
    let_through = {act.seq for act in acts if act.act in _LETS_THROUGH.get(links[act.seq].kind, ())}
    for ended_by in {seq, *let_through}:
        txn.connection.execute(
            """UPDATE facts SET end_erased = 1 WHERE tenant = ?1 AND replaced_by = ?2 AND status = 'superseded'
               AND seq IN (SELECT target FROM acts WHERE seq = ?2)""",
            (tenant_id, ended_by),
        )


def _selected(view: Snapshot, where: str, values: tuple[object, ...]) -> tuple[SelectedFact, ...]:
    rows = view.rows(f"{_SELECTED} WHERE {where} ORDER BY f.seq", *values)
    return tuple(
        SelectedFact(seq, commitment, status, decode_content(content))
        for seq, commitment, status, content in rows
    )


def _mentions(fact: SelectedFact, wanted: Sequence[str]) -> bool:
    texts = [str(fact.content.get(name) or "").casefold() for name in ("text", "key", "value", "subject")]
    return any(needle in text for needle in wanted for text in texts)


def _surviving_targets(view: Snapshot, seq: int) -> set[int]:
    rows = view.rows(
        "SELECT a.target FROM acts a CROSS JOIN contents c ON c.seq = a.target WHERE a.seq = ?", seq
    )
    return {row[0] for row in rows}


def _each(txn: Txn, sql: str, ids: Iterable[int]) -> None:
    for row_id in ids:
        txn.connection.execute(sql, (row_id,))
