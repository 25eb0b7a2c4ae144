"""The durable record of an erasure: what is known of it before, while and after content goes, and its manifest.

That an erasure is executing is durable before anything is deleted. The transaction that deletes turns it into a
numbered record with its tombstone, so numbers are dense and each stands for content that is gone. What a crash
leaves executing is finished by whoever opens the home next: the tombstone tells what is gone, and what could
not be checked any more is said in the manifest.

Manifests are numbered and chained across the store, so they are made under the lock of erasures, one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memory import erase_backups, erase_systems, erase_tenant, event, store_erase, store_openings
from memory.erase_checks import Check, check, check_free_space, check_structure
from memory.layout import CHECKPOINT
from memory.manifest import SCHEMA, decode_manifest, manifest_digest, sign_manifest
from memory.manifest_fields import MAX_ITEMS
from memory.recovery import EXECUTING, LAST_MANIFEST, last_manifest, manifest_path
from memory.times import whole_hour
from tlog import cbor
from tlog.errors import MalformedError, UnavailableError

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.rows import ErasureRow, EventRow
    from memory.store_read import Snapshot
    from memory.store_write import Txn

LOCK: Final = "erase"
CHECKPOINT_SECONDS: Final = 10.0
_CANARY: Final = "erasure.canary"  # random letters for the scan to find
_MAX_DETAIL_BYTES: Final = 1 << 20
_LIMITS: Final = (
    "file_system_free_space",
    "memory_and_swap",
    "other_systems",
    "paraphrases",
    "storage_hardware",
    "who_had_an_opening",
)


@dataclass(frozen=True)
class Outcome:
    """What was found after the content went: the systems and the checks of the manifest, and destroyed keys."""

    systems: tuple[dict[str, Any], ...]
    checks: tuple[Check, ...]
    keys: tuple[dict[str, Any], ...] = ()


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


# Steps of an erasure, each within the transaction that it is handed


def start(txn: Txn, draft: Draft, canary: str) -> None:
    """Makes it durable that an erasure is executing, once the transaction commits."""
    txn.set_meta(EXECUTING, cbor.encode([draft.request, dict(draft.detail)]))
    plant(txn, canary)


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
    previous = None if before is None else txn.view.event_by_seq(before.tombstone_seq or 0)
    made = txn.add_event(
        txn.view.tenant_by_id(tenant_id),
        "erase",
        {"recorded_at": txn.stamp(parts.clock())},
        sign=parts.sign_entry,
        acts={"erases": targets},
        details={
            "number": number,
            "previous": None if previous is None else previous.commitment,
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
    with parts.store.read() as view:
        row = view.erasure(number)
        if row is None or row.tombstone_seq is None:
            raise MalformedError("expected an erasure whose tombstone is written")
        tombstone = view.event_by_seq(row.tombstone_seq)
        manifest_number, previous = last_manifest(view)
        targets = targets_of(view, row)
        recipients = store_openings.recipients(view, row.tenant_id, targets)
    assert tombstone is not None
    backups = erase_backups.told(parts, targets, outcome.systems)
    document = _document(parts, row, tombstone, outcome) | {"number": manifest_number + 1}
    if recipients:
        document["recipients"] = [
            {"recipient": one, "told": False, "kind": kind, "count": count}
            for one, kind, count in recipients[:MAX_ITEMS]
        ]
    if backups:
        document["backups"] = backups
    if previous is not None:
        document["previous"] = previous
    home = parts.home
    signer = home.manifest_signer()
    with parts.store.write() as txn:
        tenant = txn.view.tenant_by_id(row.tenant_id)
        # The manifest says by what it will be announced, so that whoever has it can find that in the log.
        reserved = txn.reserve(tenant, {"recorded_at": txn.stamp(parts.clock())})
        document["announcement"] = {
            "seq": reserved.seq,
            "tenant_seq": reserved.tenant_seq,
            "link_salt": reserved.link_salt,
            "content_hash": reserved.content_hash,
        }
        data = sign_manifest(signer, parts.issuer, parts.subject, document)
        digest = manifest_digest(decode_manifest(data).raw)
        txn.add_reserved(
            reserved,
            "manifest",
            sign=parts.sign_entry,
            details={"number": manifest_number + 1, "erasure": tombstone.commitment, "digest": digest},
        )
        store_erase.update_erasure(txn, number, state=document["state"], manifest=data)
        txn.set_meta(LAST_MANIFEST, cbor.encode([manifest_number + 1, digest]))
        txn.set_meta(EXECUTING, 0)
    file = manifest_path(manifest_number + 1)
    home.create_public_file(file, data)
    if all(system["result"] == "verified" for system in outcome.systems):
        # Pages written since the scan carry no erased content, and leave the write-ahead log all the same.
        parts.store.checkpoint_truncate(0.0)
    return Finished(document, file)


def truncate_wal(parts: Parts) -> dict[str, Any]:
    """The write-ahead log as a system of the manifest: emptied, or pinned by a reader that did not end in time."""
    # Idle connections may have pages from before in their caches, which a later write would copy to the log.
    parts.store.close()
    emptied = parts.store.checkpoint_truncate(CHECKPOINT_SECONDS)
    # Every other connection sees that the log began anew, and drops its pages; that one does not.
    parts.store.close()
    system: dict[str, Any] = {"kind": "wal", "method": "truncate", "erased": 0}
    return system | ({"result": "verified"} if emptied else {"result": "inconclusive", "why": ["wal_pinned"]})


# After a crash


def recover_if_free(parts: Parts) -> None:
    """Finishes what a crash left of an erasure, unless another process is at it."""
    try:
        with parts.home.files.lock(LOCK, 0.0):
            recover(parts)
    except UnavailableError:
        # Another process is erasing, or cannot write now: whoever opens or erases next tries again.
        return


def recover(parts: Parts) -> None:
    """Finishes what a crash left of an erasure. The lock of erasures must be held."""
    with parts.store.read() as view:
        executing = bool(view.meta(EXECUTING))
        row = view.last_erasure()
    if executing and row is not None and row.state == store_erase.EXECUTING:
        finish(parts, row.number, _structural_outcome(parts, row))
    elif executing:
        with parts.store.write() as txn:
            abandon(txn)
    with parts.store.read() as view:
        last, digest = last_manifest(view)
        lost = last > 0 and not parts.home.has_public_file(manifest_path(last))
        data = _signed(view, digest) if lost else None
    if data is not None:
        parts.home.create_public_file(manifest_path(last), data)


def _signed(view: Snapshot, digest: bytes | None) -> bytes | None:
    """The manifest with this digest, if it is the last one of its request."""
    signed = (row.manifest for row in reversed(view.erasures()) if row.manifest is not None)
    return next((data for data in signed if manifest_digest(data) == digest), None)


def _structural_outcome(parts: Parts, row: ErasureRow) -> Outcome:
    """All that can be checked once the needles are lost: that the rows are gone, and nothing is between those left."""
    with parts.store.read() as view:
        targets = targets_of(view, row)
        structure = check_structure(view, targets)
    keys = erase_tenant.destroy_key(parts, row.tenant_id)
    residue = check("residue", "not_run", {}, ["crash_before_scan"])
    backups = erase_backups.destroy_keys(parts, row.tenant_id, targets)
    elsewhere = erase_systems.not_asked(parts.home)
    systems = (store_system(len(targets), len(targets), structure), truncate_wal(parts), *backups, *elsewhere)
    return Outcome(systems, (structure, residue, check_free_space(parts.home)), keys)


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


# The document


def _document(parts: Parts, row: ErasureRow, tombstone: EventRow, outcome: Outcome) -> dict[str, Any]:
    detail = decode_detail(row.detail)
    why = {reason for part in (*outcome.systems, *outcome.checks) for reason in part.get("why", ())}
    if detail["scope"].get("mentions"):
        why.add("mentions_elsewhere")
    if detail["scope"].get("held"):
        why.add("legal_hold")
    if any(not key["destroyed"] for key in outcome.keys):
        why.add("system_failed")
    assert tombstone.content is not None
    checkpoint = parts.home.public_storage().read(CHECKPOINT)
    return {
        "schema": SCHEMA,
        "request": row.request,
        "state": state_for(why),
        "why": sorted(why),
        "basis": detail["basis"],
        "scope": detail["scope"],
        "guard": detail["guard"],
        "erased": detail["erased"],
        "tombstone": {
            "entry": tombstone.entry,
            "link": tombstone.link,
            "link_salt": tombstone.link_salt,
            "content_hash": tombstone.content_hash,
        },
        "systems": list(outcome.systems),
        "checks": list(outcome.checks),
        "limits": sorted(_limits(detail, outcome)),
        # The exact times are in the store, for whoever may read it.
        "times": {
            "started_at": whole_hour(detail["started_at"]),
            "erased_at": whole_hour(event.decode_content(tombstone.content)["recorded_at"]),
            "closed_at": whole_hour(parts.clock()),
        },
        "log": {"origin": parts.home.origin} | ({} if checkpoint is None else {"checkpoint": checkpoint}),
        "tools": _tools(),
        **{name: detail[name] for name in ("claim", "exceptions") if name in detail},
        **({"keys": list(outcome.keys)} if outcome.keys else {}),
    }


def _limits(detail: Mapping[str, Any], outcome: Outcome) -> set[str]:
    """What was not looked at, cannot be, or was kept."""
    scope, guard = detail["scope"], detail["guard"]
    counted = {name for one in outcome.checks for name, count in one["counts"].items() if count}
    holds = {
        "ledger_kept": guard["disposition"] != "erase",
        "requests_kept": guard["disposition"] == "keep" and "requests" in guard,
        "mentions_elsewhere": bool(scope.get("mentions")),
        "openings_given": "openings" in scope,
        "needles_shared": "needles_shared" in counted,
        "needles_not_searchable": "records_not_covered" in counted,
        "needles_unconfirmed": "needles_given" in counted,
    }
    return {*_LIMITS, *(name for name, is_so in holds.items() if is_so)}


def state_for(why: set[str]) -> str:
    """The state that these reasons leave: complete without any, partial where something was kept on purpose."""
    if not why:
        return "closed_complete"
    return "closed_partial" if why <= {"mentions_elsewhere", "legal_hold"} else "inconclusive"


def encode_detail(detail: Mapping[str, Any]) -> bytes:
    """The bytes of what a record knows of its erasure, as `decode_detail` reads them."""
    return cbor.encode(dict(detail))


def decode_detail(data: bytes) -> dict[str, Any]:
    """What a record knows of its erasure."""
    detail = cbor.decode(data, max_bytes=_MAX_DETAIL_BYTES)
    assert isinstance(detail, dict)
    return detail  # type: ignore[return-value]  # written by `start`, with text keys


def _tools() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    import apsw

    try:
        own = version("muniment")
    except PackageNotFoundError:
        own = "0"
    return {"muniment": own, "sqlite": apsw.sqlite_lib_version(), "apsw": apsw.apsw_version()}
