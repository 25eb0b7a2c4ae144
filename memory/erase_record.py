"""The durable record of an erasure: what is known of it before, while and after content goes, and its manifest.

That an erasure is executing is durable before anything is deleted. The transaction that deletes turns it into a
numbered record with its tombstone, so numbers are dense and each stands for content that is gone. What a crash
leaves executing is finished by whoever opens the home next: the tombstone tells what is gone, and what could
not be checked any more is said in the manifest.

Manifests are numbered and chained across the store, so they are made under the lock of erasures, one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memory import erase_backups, erase_systems, erase_tenant, event, store_erase, store_openings
from memory.erase_checks import Check, check, check_structure
from memory.erase_document import Outcome, decode_detail, encode_detail, new_document
from memory.erase_look import Traces, look_at_store
from memory.manifest import decode_manifest, manifest_digest, sign_manifest
from memory.manifest_fields import DENIALS
from memory.recovery import EXECUTING, LAST_MANIFEST, last_manifest, manifest_path
from memory.times import whole_hour
from tlog import cbor
from tlog.errors import MalformedError, UnavailableError
from tlog.storage import LOCK_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.rows import ErasureRow, EventRow
    from memory.store_read import Snapshot
    from memory.store_write import Txn

LOCK: Final = "erase"
CHECKPOINT_SECONDS: Final = 10.0
_CANARY: Final = "erasure.canary"  # random letters for the scan to find


@dataclass(frozen=True)
class Finished:
    """An erasure with its manifest, which lies durable beside the tiles in `file`."""

    document: Mapping[str, Any]
    file: str


@dataclass(frozen=True)
class Draft:
    """What an erasure is going to be, free of content: its random reference and what is known of it."""

    request: bytes
    detail: Mapping[str, Any]


@contextmanager
def alone(parts: Parts, deadline_seconds: float = LOCK_TIMEOUT_SECONDS) -> Iterator[None]:
    """Returns once nobody else erases, in this home or on another node, and keeps it so."""
    with parts.home.files.lock(LOCK, deadline_seconds), parts.store.alone_erasing(deadline_seconds):
        yield


# Steps of an erasure, each within the transaction that it is handed


def start(txn: Txn, draft: Draft, canary: str) -> None:
    """Makes it durable that an erasure is executing, once the transaction commits."""
    mark_executing(txn, draft)
    plant(txn, canary)


def mark_executing(txn: Txn, draft: Draft) -> None:
    """Has whoever opens the home finish this, should it not be finished here."""
    txn.set_meta(EXECUTING, cbor.encode([draft.request, dict(draft.detail)]))


def plant(txn: Txn, canary: str) -> None:
    """Puts the letters that the next scan has to find where it has to find them."""
    txn.set_meta(_CANARY, canary)


def abandon(txn: Txn) -> None:
    """Ends an erasure that has deleted nothing."""
    txn.set_meta(EXECUTING, 0)


def add_tombstone(
    parts: Parts, txn: Txn, tenant_id: int, targets: Sequence[bytes], draft: Draft
) -> tuple[int, EventRow]:
    """The number of the erasure and its erase statement, which names these targets and the tombstone before it."""
    number = store_erase.start_erasure(txn, tenant_id, draft.request, encode_detail(draft.detail))
    before = txn.view.erasure(number - 1)
    previous = None if before is None else txn.view.commitment_of_any(before.tombstone_seq or 0)
    made = txn.add_event(
        txn.view.tenant_by_id(tenant_id),
        "erase",
        {"recorded_at": txn.stamp(parts.clock())},
        sign=parts.sign_entry,
        acts={"erases": targets},
        details={
            "number": number,
            "previous": previous,
            "request": draft.request,
            "guard": draft.detail["guard"]["disposition"],
            "basis": draft.detail["basis"],
            "count": len(targets),
        },
    )
    store_erase.update_erasure(txn, number, tombstone_seq=made.seq)
    return number, made


def set_detail(txn: Txn, number: int, detail: Mapping[str, Any]) -> None:
    """What is known of the erasure from now on."""
    store_erase.update_erasure(txn, number, detail=encode_detail(detail))


def finish(parts: Parts, number: int, outcome: Outcome) -> Finished:
    """The erasure closed: its manifest signed, in the store, announced in the outbox, and beside the tiles."""
    with parts.store.read_whole() as view:
        row = view.erasure(number)
        if row is None or row.tombstone_seq is None:
            raise MalformedError("expected an erasure whose tombstone is written")
        tombstone = view.event_by_seq(row.tombstone_seq)
        targets = targets_of(view, row)
        given = store_openings.recipients(view, row.tenant_id, targets)
    assert tombstone is not None
    known = {} if row.manifest is None else decode_manifest(row.manifest).document
    recipients = _recipients(given, known.get("recipients", ()))
    document = new_document(parts, row, tombstone, outcome, recipients)
    if tombstone.content is None and known:
        # A restore has the exact time no more.
        document["times"]["erased_at"] = whole_hour(known["times"]["erased_at"])
    backups = erase_backups.told(parts, targets, outcome.systems)
    if backups:
        document["backups"] = backups
    finished = close(parts, row, document)
    if parts.home.config.database is None and all(one["result"] == "verified" for one in outcome.systems):
        # Pages written since the scan carry no erased content, and leave the write-ahead log all the same.
        parts.store.checkpoint_truncate(0.0)
    return finished


def close(
    parts: Parts, row: ErasureRow, document: dict[str, Any], detail: Mapping[str, Any] | None = None
) -> Finished:
    """The next manifest of a request: signed, in the store, announced in the outbox, and beside the tiles.

    `detail` is what is known of the erasure from now on, if that is something else.
    """
    home, signer = parts.home, parts.home.manifest_signer()
    with parts.store.write_whole() as txn:
        number, previous = last_manifest(txn.view)
        tombstone = txn.view.event_by_seq(row.tombstone_seq or 0)
        assert tombstone is not None  # a record without one has no manifest
        # The manifest says by what it will be announced, so that whoever has it can find that in the log.
        tenant = txn.view.tenant_by_id(row.tenant_id)
        reserved = txn.reserve(tenant, {"recorded_at": txn.stamp(parts.clock())})
        document = {
            **document,
            "number": number + 1,
            **({} if previous is None else {"previous": previous}),
            "announcement": {
                "seq": reserved.seq,
                "tenant_seq": reserved.tenant_seq,
                "link_salt": reserved.link_salt,
                "content_hash": reserved.content_hash,
            },
        }
        data = sign_manifest(signer, parts.issuer, parts.subject, document)
        digest = manifest_digest(decode_manifest(data).raw)
        txn.add_reserved(
            reserved,
            "manifest",
            sign=parts.sign_entry,
            details={"number": number + 1, "erasure": tombstone.commitment, "digest": digest},
        )
        noted = None if detail is None else encode_detail(detail)
        store_erase.update_erasure(txn, row.number, state=document["state"], manifest=data, detail=noted)
        txn.set_meta(LAST_MANIFEST, cbor.encode([number + 1, digest]))
        txn.set_meta(EXECUTING, 0)
    file = manifest_path(number + 1)
    home.create_public_file(file, data)
    return Finished(document, file)


def close_denied(parts: Parts, number: int) -> Finished:
    """The manifest of a request that was denied as a whole: its tombstone erases nothing."""
    with parts.store.read_whole() as view:
        row = view.erasure(number)
        tombstone = None if row is None else view.event_by_seq(row.tombstone_seq or 0)
    if row is None or tombstone is None:
        raise MalformedError("expected an erasure whose tombstone is written")
    return close(parts, row, new_document(parts, row, tombstone, Outcome((), ()), ()))


def _recipients(
    given: Iterable[tuple[bytes, str, int]], before: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Who was given some of it; who was told since stays so, and whom a restore has forgotten stays listed."""
    told = {(one["recipient"], one["kind"]): one for one in before}
    lines = {
        (who, kind): {"recipient": who, "told": False, "kind": kind, "count": count}
        for who, kind, count in given
    }
    return [told.get(key, line) for key, line in lines.items()] + [
        one for key, one in told.items() if key not in lines
    ]


def clear_pages(parts: Parts, tenant_id: int | None = None) -> tuple[dict[str, Any], ...]:
    """What became of rows that are gone, as systems of the manifest: taken out, or pinned by a reader that went on.

    In a database those of one tenant, if that is given.
    """
    if parts.home.config.database is not None:
        from memory.pg_vacuum import MAX_REWRITTEN_BYTES

        return clear_database(parts, tenant_id, MAX_REWRITTEN_BYTES)
    # Idle connections may have pages from before in their caches, which a later write would copy to the log.
    parts.store.close()
    emptied = parts.store.checkpoint_truncate(CHECKPOINT_SECONDS)
    # Every other connection sees that the log began anew, and drops its pages; that one does not.
    parts.store.close()
    system: dict[str, Any] = {"kind": "wal", "method": "truncate", "erased": 0}
    return (
        system | ({"result": "verified"} if emptied else {"result": "inconclusive", "why": ["wal_pinned"]}),
    )


def clear_database(parts: Parts, tenant_id: int | None, most_bytes: int | None) -> tuple[dict[str, Any], ...]:
    """The same in a database, whose parts of more than `most_bytes` are not written anew."""
    from memory.pg_copies import systems_of_database
    from memory.pg_store import PgStore
    from memory.pg_vacuum import REWRITTEN, TAKEN_FROM

    assert isinstance(parts.store, PgStore)
    # All of it where somebody looks whether it was: without that it would cost and show nothing.
    rewritten = REWRITTEN if parts.home.config.database_checker is None else TAKEN_FROM
    cleared = parts.store.clear_pages(CHECKPOINT_SECONDS, rewritten, tenant_id, most_bytes)
    return systems_of_database(parts.home.config, parts.clock(), cleared)


# After a crash


def recover_if_free(parts: Parts) -> None:
    """Finishes what a crash left of an erasure, unless another process is at it."""
    try:
        with alone(parts, 0.0):
            recover(parts)
    except UnavailableError:
        # Another process is erasing, or cannot write now: whoever opens or erases next tries again.
        return


def recover(parts: Parts) -> None:
    """Finishes what a crash left of an erasure. The lock of erasures must be held."""
    with parts.store.read_whole() as view:
        executing = bool(view.meta(EXECUTING))
        row = view.last_erasure()
    if executing and row is not None and row.state == store_erase.EXECUTING and is_denied(row):
        close_denied(parts, row.number)
    elif executing and row is not None and row.state == store_erase.EXECUTING:
        finish(parts, row.number, _structural_outcome(parts, row))
    elif executing:
        with parts.store.write_whole() as txn:
            abandon(txn)
    with parts.store.read_whole() as view:
        last, digest = last_manifest(view)
        lost = last > 0 and not parts.home.has_public_file(manifest_path(last))
        data = _signed(view, digest) if lost else None
    if data is not None:
        parts.home.create_public_file(manifest_path(last), data)


def is_denied(row: ErasureRow) -> bool:
    """Whether this is a request that nothing was erased for, because it was denied."""
    detail = decode_detail(row.detail)
    denied = any(one["why"] in DENIALS for one in detail.get("exceptions", ()))
    return denied and not detail["scope"]["count"] + detail["scope"]["derived"]


def _signed(view: Snapshot, digest: bytes | None) -> bytes | None:
    """The manifest with this digest, if it is the last one of its request."""
    signed = (row.manifest for row in reversed(view.erasures()) if row.manifest is not None)
    return next((data for data in signed if manifest_digest(data) == digest), None)


def _structural_outcome(parts: Parts, row: ErasureRow) -> Outcome:
    """All that can be checked once the needles are lost: that the rows are gone, and nothing is between those left."""
    with parts.store.read_whole() as view:
        targets = targets_of(view, row)
        structure = check_structure(view, targets)
    keys = erase_tenant.destroy_key(parts, row.tenant_id)
    residue = check("residue", "not_run", {}, ["crash_before_scan"])
    backups = erase_backups.destroy_keys(parts, row.tenant_id, targets)
    elsewhere = erase_systems.not_asked(parts.home)
    cleared = clear_pages(parts, row.tenant_id)
    looked = look_at_store(parts, cleared, Traces(row.tenant_id, targets))
    systems = (store_system(len(targets), len(targets), structure), *looked.systems, *backups, *elsewhere)
    return Outcome(systems, (structure, *looked.others, residue, looked.free_space), keys)


def targets_of(view: Snapshot, row: ErasureRow) -> tuple[int, ...]:
    """The numbers of the statements that an erasure took."""
    tombstone = view.event_by_seq(row.tombstone_seq or 0)
    assert tombstone is not None
    targets = event.decode_link(tombstone.link).acts.get("erases", ())
    found = (view.seq_of(row.tenant_id, target) for target in targets)
    return tuple(seq for seq in found if seq is not None)


def store_system(before: int, erased: int, structure: Check) -> dict[str, Any]:
    """The store as a system of the manifest."""
    gone = structure["result"] == "clean" and before == erased
    system: dict[str, Any] = {
        "kind": "store",
        "method": "delete_and_zero",
        "before": before,
        "erased": erased,
    }
    return system | ({"result": "verified"} if gone else {"result": "failed", "why": ["content_present"]})
