"""What came after a backup, made again from what lies beside the tiles: erasures, their announcements, their targets.

A manifest opens its tombstone and says what announces it. What it erased from past the backup is sealed without its
content (memory.sealed), so that it does to older records what it did. Each of these is a statement of the store again,
as any is whose content an erasure took. What is then left of the log is lost, and has to be declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memory import erase_tenant, ledger, sealed, store_backup, store_erase
from memory.chain import log_number
from memory.erase_document import encode_detail
from memory.event import Link, decode_link
from memory.key_view import STANDING
from memory.manifest import Announcement, Manifest, announcement_of
from memory.recovery import LAST_MANIFEST
from memory.rows import EventRow, FactRow
from memory.scope import make_scope
from memory.state_statement import LAST_STATE
from memory.vault import Vault, new_salt
from tlog import cbor
from tlog.errors import RefusedError, UnavailableError
from tlog.statement import sign_statement

if TYPE_CHECKING:
    from memory.sealed import SealedStatement
    from memory.store import Store
    from memory.store_write import Txn
    from memory.wiring import Home


@dataclass(frozen=True)
class Past:
    """A statement of ours in the log that the backup does not have."""

    position: int
    commitment: bytes
    entry: bytes


@dataclass(frozen=True)
class Missing:
    """What stays lost: statements of the log that nobody opens, and how many there were that never came so far.

    `last_seq` is the number of the last statement there ever was, as far as anything tells.
    """

    logged: tuple[bytes, ...]
    unlogged: int
    last_seq: int

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.logged) + self.unlogged


def read_public(home: Home, path: str) -> bytes | None:
    """A file that one of the logs of a home serves; None if none has it."""
    folders = (home.public_storage(number) for number in range(log_number(home.config), 0, -1))
    return next((data for folder in folders if (data := folder.read(path)) is not None), None)


def replay(
    home: Home, vault: Vault, txn: Txn, past: Sequence[Past], manifests: Sequence[Manifest]
) -> Missing:
    """What is missing, once the store has all that manifests and sealed files tell, and nothing that they erased."""
    work = _Replay(home, vault, txn, {one.commitment: one for one in past})
    last, unused = store_backup.last_seq(txn.view), store_backup.unused_numbers(txn.view)
    targets = {target for manifest in manifests for target in manifest.tombstone.targets}
    found = {}
    for name in dict.fromkeys([*(one.tombstone.commitment for one in manifests), *work.past]):
        found[name] = work.unseal(name)
        for statement in found[name].statements:
            if statement.commitment in work.past or statement.commitment in targets:
                work.statements[statement.commitment] = statement
    for statement in sorted(work.statements.values(), key=lambda one: decode_link(one.link).seq):
        work.recreate(statement)
    for manifest in manifests:
        work.erase_again(manifest, found[manifest.tombstone.commitment].ledger)
    if home.config.database is None:
        return _missing(txn, past, last)
    return _missing_of_tenants(txn, past, last, unused)


def destroy_keys(store: Store, manifests: Sequence[Manifest]) -> None:
    """Destroys the keys of tenants again of which these manifests say that they were, unless more is left of one."""
    told = {key["key"] for manifest in manifests for key in manifest.document.get("keys", ())}
    with store.read_whole() as view:
        nameless = store_backup.nameless(view)
    for number in sorted(told & nameless):
        store.vault.destroy_tenant_key(number)


def declare_lost(home: Home, txn: Txn, missing: Missing) -> None:
    """The statement that says which entries of the log nobody can open any more, numbered after all of them."""
    tenant = store_backup.first_tenant(txn.view)
    if tenant is None:
        raise UnavailableError("the backup has no tenant to declare anything lost for", code="restore_failed")
    store_backup.skip_numbers(txn, missing.count)
    txn.continue_after(missing.last_seq)
    row = txn.view.tenant_by_id(tenant)
    now = txn.stamp(home.clock())
    txn.add_event(
        row,
        "lost",
        {"recorded_at": now},
        sign=_signer(home),
        details={"count": missing.count, "statements": list(missing.logged)},
    )


def _missing(txn: Txn, past: Sequence[Past], last: int) -> Missing:
    known = store_backup.seqs_after(txn.view, last)
    logged = tuple(one.commitment for one in past if one.commitment not in known)
    # The log has our statements in the order of their numbers.
    end = last
    for one in past:
        end = known.get(one.commitment, end + 1)
    end = max(end, store_backup.last_seq(txn.view))
    return Missing(logged, end - last - len(known) - len(logged), end)


def _missing_of_tenants(txn: Txn, past: Sequence[Past], last: int, unused: int) -> Missing:
    """The same where numbers of the store have gaps: those of a tenant have none but for what is missing."""
    known = {one for (one,) in txn.view.rows("SELECT commitment FROM events")}
    logged = tuple(one.commitment for one in past if one.commitment not in known)
    gaps = store_backup.unused_numbers(txn.view) - unused
    count = max(gaps, len(logged))
    return Missing(logged, count - len(logged), max(last, store_backup.last_seq(txn.view)) + count)


def _signer(home: Home) -> Any:
    signer = home.issuer_signer()
    return lambda commitment: sign_statement(signer, home.config.issuer, home.config.subject, commitment)


class _Replay:
    """One replay into one transaction; `past` by commitment."""

    def __init__(self, home: Home, vault: Vault, txn: Txn, past: dict[bytes, Past]) -> None:
        self.home, self.vault, self.txn, self.past = home, vault, txn, past
        self.statements: dict[bytes, SealedStatement] = {}
        self._sign = _signer(home)

    def unseal(self, commitment: bytes) -> sealed.Sealed:
        """What is sealed for a statement; nothing where nothing is."""
        path = sealed.path_of(self.vault, commitment)
        data = read_public(self.home, path)
        return sealed.Sealed() if data is None else sealed.open_sealed(self.vault, commitment, data)

    def recreate(self, statement: SealedStatement) -> None:
        """A sealed statement is one of the store again, with what it did to others."""
        link = decode_link(statement.link)
        made = self._insert(link, Announcement(statement.commitment, link, *statement[1:3]))
        if made is None:
            return
        acts = {
            act: [target for target in targets if self._is_known(made, target)]
            for act, targets in link.acts.items()
        }
        ended = [fact for target in acts.get("retires", ()) for fact in self._fact(made, target)]
        disputed = [fact for target in acts.get("conflicts", ()) for fact in self._fact(made, target)]
        self.txn.apply_acts(made, link.kind, acts, statement.hour)
        store_erase.lose_ends(self.txn, made.tenant_id, made.seq)
        for fact in ended:
            self._retire(fact)
        for fact in disputed:
            if fact.key_tag is not None:
                self.txn.open_conflict(made, fact.agent_tag, fact.key_tag)
        if link.kind == "state":
            self.txn.set_meta(LAST_STATE, cbor.encode([made.seq, statement.hour]))

    def erase_again(self, manifest: Manifest, entries: Iterable[tuple[int, bytes]]) -> None:
        """What a manifest tells of is erased, its tombstone and what announces it are there, and what it kept is."""
        tombstone, txn = manifest.tombstone, self.txn
        parts = manifest.document["tombstone"]
        opened = Announcement(tombstone.commitment, tombstone.link, parts["link_salt"], parts["content_hash"])
        made = self._insert(tombstone.link, opened, parts["entry"])
        tenant_id = store_backup.tenant_numbered(txn, tombstone.link.tenant, new_salt())
        txn.view.enter(tenant_id)
        targets = [(target, txn.view.seq_of(tenant_id, target)) for target in tombstone.targets]
        seqs = [seq for _, seq in targets if seq is not None]
        if made is not None:
            known = [target for target, seq in targets if seq is not None]
            txn.apply_acts(made, "erase", {"erases": known}, 0)
        self._dispose(tenant_id, seqs, manifest)
        store_erase.erase_contents(txn, tenant_id, seqs, tombstone.link.seq)
        for row_id, secret in entries:
            row = sealed.open_entry(self.home, tombstone.commitment, row_id, secret)
            if row is not None:
                store_backup.insert_entry(txn, row | {"tenant": tenant_id})
        announced = announcement_of(manifest)
        if announced is not None:
            self._insert(announced.link, announced)
        self._list(tenant_id, manifest)
        if manifest.document.get("keys"):
            # A store that was put back has the name again, of which nothing is left.
            erase_tenant.forget_if_empty(txn, txn.view.tenant_by_id(tenant_id))
        for one in manifest.document.get("backups", ()):
            # How far it goes nobody knows: at the most to what was erased.
            noted = (one["backup"], one.get("made_at", 0), one.get("expires_at", 0))
            store_backup.note_backup(txn, *noted, tombstone.link.seq - 1)
        txn.set_meta(LAST_MANIFEST, cbor.encode([manifest.number, manifest.digest]))

    def _insert(self, link: Link, opened: Announcement, entry: bytes | None = None) -> EventRow | None:
        """The row of a statement without its content; None if the store has it already."""
        tenant_id = store_backup.tenant_numbered(self.txn, link.tenant, new_salt())
        if self.txn.view.seq_of(tenant_id, opened.commitment) is not None:
            return None
        if store_backup.has_number(self.txn.view, tenant_id, link.seq, link.tenant_seq):
            raise RefusedError(
                "the store was written to since it was put back, where the log has other statements: put it back"
                " again, and keep every node stopped until this is done",
                code="written_since",
            )
        past = self.past.get(opened.commitment)
        made = EventRow(
            seq=link.seq,
            tenant_id=tenant_id,
            tenant_seq=link.tenant_seq,
            commitment=opened.commitment,
            link=link.encode(),
            link_salt=opened.link_salt,
            content_hash=opened.content_hash,
            # What the log does not have yet is signed again: it is known by its commitment.
            entry=past.entry if past is not None else entry or self._sign(opened.commitment),
            entry_index=None if past is None else past.position,
            content=None,
            content_salt=None,
        )
        self.txn.view.enter(tenant_id)
        store_backup.insert_past(self.txn, made[:9])
        return made

    def _is_known(self, made: EventRow, target: bytes) -> bool:
        seq = self.txn.view.seq_of(made.tenant_id, target)
        return seq is not None and seq < made.seq

    def _fact(self, made: EventRow, target: bytes) -> Iterator[FactRow]:
        """The fact that an act reaches, whose ever it is, if its content is there."""
        seq = self.txn.view.seq_of(made.tenant_id, target)
        agent = None if seq is None else store_backup.agent_of(self.txn.view, seq)
        found = None if agent is None else self.txn.view.fact(made.tenant_id, agent, target)
        return iter(() if found is None else (found,))

    def _retire(self, fact: FactRow) -> None:
        tenant = self.txn.view.tenant_by_id(fact.tenant_id)
        scope = make_scope(self.vault, tenant, str(fact.content["agent"]))
        if fact.key_tag is not None:
            standing = self.txn.view.facts_of_key(fact.tenant_id, fact.key_tag, STANDING)
            ledger.retire(self.txn, scope, [fact], [ledger.said(one.content) for one in standing])

    def _dispose(self, tenant_id: int, seqs: Sequence[int], manifest: Manifest) -> None:
        """What the request decided about the hashes of retired values, and about those of requests."""
        txn, guard = self.txn, manifest.document["guard"]
        requests = store_erase.requests_of(txn.view, tenant_id, seqs)
        entries = store_erase.ledger_of(txn.view, tenant_id, seqs=seqs)
        if guard["disposition"] == "keep":
            store_erase.keep_ledger(txn, entries)
            store_erase.keep_requests(txn, requests)
            return
        store_erase.erase_requests(txn, requests)
        if guard["disposition"] == "expire":
            store_erase.expire_ledger(txn, entries, guard["expires_at"])
        else:
            store_erase.erase_ledger(txn, entries)

    def _list(self, tenant_id: int, manifest: Manifest) -> None:
        """The erasure in the store's own list, as its last manifest tells of it."""
        document, link = manifest.document, manifest.tombstone.link
        names = ("basis", "scope", "guard", "erased", "claim", "exceptions")
        detail = {name: document[name] for name in names if name in document}
        asked = ("started_at", "received_at", "due_at")
        detail |= {name: document["times"][name] for name in asked if name in document["times"]}
        detail |= {name: document["log"][name] for name in ("before",) if name in document["log"]}
        row = {
            "number": link.details["number"],
            "tenant": tenant_id,
            "request": document["request"],
            "state": document["state"],
            "tombstone": link.seq,
            "detail": encode_detail(detail),
            "manifest": manifest.raw,
        }
        store_backup.replace_erasure(self.txn, row)
