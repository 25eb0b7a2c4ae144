"""Puts a store back from a backup, as far as it may be: whatever was erased since stays erased.

The log says what there is to know: its newest head, here, in the mirror or with the witnesses, bounds what the
backup may lack. Manifests that were made since are replayed on it. A statement of ours that the log has and
that is then neither opened nor tombstoned keeps the store out of its place, and nothing is served, until the
operator declares it lost: that is a statement too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from memory import store_backup
from memory.assembly import RESTORING
from memory.backup_format import decrypt, read_frames, verify_file
from memory.backup_keys import KeyRing, ring_of
from memory.chain import log_number
from memory.engines import engine_of
from memory.erase_record import LOCK
from memory.manifest import Manifest, verify_manifest
from memory.recovery import manifest_path
from memory.replay import Past, declare_lost, destroy_keys, read_public, replay
from memory.restore_places import in_database, in_file
from memory.store import FIRST_SCHEMA, SCHEMA_VERSION
from memory.store_upgrade import remake_tags
from memory.vault import Vault, new_salt
from tlog.errors import MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.statement import parse_statement

if TYPE_CHECKING:
    from memory.store import Store
    from memory.store_write import Txn
    from memory.wiring import Home

WITNESS_SECONDS: Final = 3.0


def _no_failure(_: str) -> None:
    return None


def restore(
    home: Home,
    file: Path,
    on_missing: Callable[[int], None],
    *,
    failpoint: Callable[[str], None] = _no_failure,
) -> dict[str, Any]:
    """What was restored; the store is in its place once this returns.

    `on_missing` is told how many statements past the backup are neither opened nor tombstoned: it raises, or lets
    them be declared lost. Raises RefusedError with code `store_exists` where there is a store.
    """
    filling = in_file if home.config.database is None else in_database
    try:
        with file.open("rb") as opened, home.files.lock(LOCK):
            verify_file(opened, lambda kid: home.trust().key("manifest", kid))
            opened.seek(0)
            with filling(home, failpoint) as store:
                return _restore((home, store), opened, on_missing, failpoint)
    except OSError as error:
        raise UnavailableError(
            f"the backup cannot be restored: {error.strerror}", code="restore_failed"
        ) from None


def refuse(missing: int) -> None:
    """Raises: the answer to a restore that nobody has declared anything lost for."""
    raise RefusedError(
        f"{missing} statements came after the backup, and neither it nor the manifests since open or tombstone them:"
        " nothing is served; restore a newer backup, or say --declare-lost",
        code="statements_missing",
        missing=missing,
    )


def declare(_: int) -> None:
    """Returns: what is missing is declared lost."""


def _restore(
    work: tuple[Home, Store],
    file: IO[bytes],
    on_missing: Callable[[int], None],
    failpoint: Callable[[str], None],
) -> dict[str, Any]:
    home, store = work
    frames = read_frames(file)
    head = _head(home, next(frames))
    manifests = list(manifests_since(home, head))
    with store.write_alone() as txn:
        ring = ring_of(home)
        counts = _fill(txn, store.vault, ring, head, frames)
        if head["schema"] < SCHEMA_VERSION:
            remake_tags(txn, store.vault)
        txn.go_on()
        failpoint("rows")
        if txn.view.meta(RESTORING):
            store_backup.drop_meta(txn, RESTORING)
        _note_backups(txn, ring, head)
        past = place(txn, own_entries(home))
        missing = replay(home, store.vault, txn, past, manifests)
        if missing.count:
            on_missing(missing.count)
            declare_lost(home, txn, missing)
        txn.go_on()
        failpoint("replayed")
    destroy_keys(store, manifests)
    return counts | {"manifests": len(manifests), "lost": missing.count}


def _note_backups(txn: Txn, ring: KeyRing, head: dict[str, Any]) -> None:
    """The backup, which was written before it was noted, and those made since are among what the store knows of."""
    last = store_backup.last_seq(txn.view)
    store_backup.add_backup(txn, head["number"], head["made_at"], head["expires_at"], last)
    for listed in ring.listed_backups():
        store_backup.note_backup(txn, *listed)


def _head(home: Home, frame: list[Any]) -> dict[str, Any]:
    head = frame[1] if frame[0] == "head" and len(frame) == 2 else None
    if not isinstance(head, dict):
        raise MalformedError("expected a backup to begin with its head")
    ours = (home.config.issuer, home.config.subject)
    if (head.get("issuer"), head.get("subject")) != ours:
        raise RefusedError("expected a backup of this home; it is of another", code="other_home")
    if head.setdefault("schema", FIRST_SCHEMA) not in range(FIRST_SCHEMA, SCHEMA_VERSION + 1):
        raise MalformedError(
            f"expected a backup of a store of version {SCHEMA_VERSION} at most: use the program that wrote it, or a "
            "newer one",
            code="newer_store",
        )
    if head.get("engine", engine_of(None)) != engine_of(home.config.database):
        raise RefusedError(
            "expected a backup of a store on this engine: the keys of its hashes are elsewhere on the other",
            code="other_engine",
        )
    return dict(head)


# The log


def own_entries(home: Home) -> Iterator[tuple[int, bytes, bytes]]:
    """Position, commitment and bytes of each statement of ours in the logs, up to the newest head there is."""
    newest = log_number(home.config)
    base = 0
    for number in range(1, newest + 1):
        log = home.log_at(number)
        try:
            size = log.head().size
            if number == newest:
                _require_newest(home, size)
            for index, entry in enumerate(log.read_entries(0, size)):
                try:
                    statement = parse_statement(entry)
                except MalformedError:
                    continue  # a registration policy, or the beginning of a log
                if (statement.issuer, statement.subject) == (home.config.issuer, home.config.subject):
                    yield base + index, statement.payload_hash, entry
        finally:
            if number != newest:
                log.close()
        base += size


def _require_newest(home: Home, size: int) -> None:
    """Returns unless mirror or witnesses have seen more of the log than lies here."""
    from witness.client import fetch_heads

    policy = home.policy()
    sizes = [0]
    if policy.witnesses:
        heads = fetch_heads(policy, home.origin, WITNESS_SECONDS)
        sizes += [one.opened.checkpoint.size for one in heads]
    mirror = home.mirror()
    if mirror is not None:
        sizes.append(mirror.seen().head.size)
    if max(sizes) > size:
        raise VerificationError(
            "the log here is shorter than its mirror or a witness knows it: put the log back first",
            code="rolled_back",
            size=size,
            known=max(sizes),
        )


def manifests_since(home: Home, head: dict[str, Any]) -> Iterator[Manifest]:
    """The manifests after those that the backup has, each signed by a key of this home and chained to the last."""
    number, previous = int(head["manifests"]), head["manifest"]
    trust = home.trust()
    while True:
        number += 1
        data = read_public(home, manifest_path(number))
        if data is None:
            return
        manifest = _verified(trust, data)
        if manifest.number != number or manifest.previous != previous:
            raise VerificationError("the manifests since the backup are not one chain", code="manifest")
        previous = manifest.digest
        yield manifest


def _verified(trust: Any, data: bytes) -> Manifest:
    from memory.manifest import decode_manifest

    return verify_manifest(data, trust.key("manifest", decode_manifest(data).kid))


# The store


def _fill(
    txn: Txn, vault: Vault, ring: KeyRing, head: dict[str, Any], frames: Iterator[list[Any]]
) -> dict[str, Any]:
    """The rows of the backup, without what no key is there for any more."""
    number: bytes = head["number"]
    counts = {"statements": 0, "unreadable": 0}

    def opened(space: str, place: int, data: bytes | None) -> Any:
        key = None if data is None else ring.key(space, place)
        if key is None or data is None:
            counts["unreadable"] += data is not None
            return None
        return decrypt(key, number, space, place, data)

    for frame in frames:
        kind, fields = frame[0], frame[1:]
        if kind == "tenant":
            row_id, tenant, last_seq, name, *keys = fields
            name = opened("tenant", row_id, name)
            tag = new_salt() if name is None else vault.index_tag("tenant", name)
            known = None if name is None or not keys else opened("tenant", row_id, keys[0])
            txn.put_tenant((row_id, tenant, name or "", last_seq), tag, known)
        elif kind == "record":
            event, secret = fields
            store_backup.insert_event(txn, event)
            counts["statements"] += 1
            said = opened("record", event[0], secret)
            if said is not None:
                store_backup.insert_secret(txn, event, *said)
        elif kind == "row" and fields[0] in store_backup.OPEN:
            store_backup.insert(txn, fields[0], fields[1])
        elif kind == "hashed" and fields[0] in store_backup.HASHED:
            row = opened(*fields)
            if row is not None:
                store_backup.insert(txn, store_backup.HASHED[fields[0]][0], row)
        elif kind == "meta":
            for name, value in opened("meta", 0, fields[0]) or ():
                txn.set_meta(name, value)
        else:
            raise MalformedError("expected only the frames that a backup has")
    return counts


def place(txn: Txn, entries: Iterable[tuple[int, bytes, bytes]]) -> list[Past]:
    """The statements of ours that come after the backup; those in it get the place that the log has them at."""
    known = store_backup.positions(txn.view)
    past: list[Past] = []
    count = 0
    for position, commitment, entry in entries:
        count += 1
        if commitment not in known:
            past.append(Past(position, commitment, entry))
        elif known[commitment] is None:
            store_backup.set_entry_index(txn, commitment, position)
        elif known[commitment] != position:
            raise VerificationError(
                "the log has a statement of the backup at another place", code="rolled_back"
            )
    logged = sum(1 for index in known.values() if index is not None)
    if logged > count:
        raise VerificationError(
            "the log lacks statements that the backup knows to be in it", code="rolled_back"
        )
    return past
