"""Puts a store back from a backup, as far as it may be: whatever was erased since stays erased.

The log says what there is to know: its newest head, here, in the mirror or with the witnesses, bounds what the
backup may lack. Manifests that were made since are replayed on it. A statement of ours that the log has and
that is then neither opened nor tombstoned keeps the store out of its place, and nothing is served, until the
operator declares it lost: that is a statement too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from memory import store_backup
from memory.backup_format import decrypt, read_frames, verify_file
from memory.backup_keys import KeyRing
from memory.chain import log_number
from memory.engines import require_file_store
from memory.erase_record import LOCK
from memory.home_names import KEYS, STORE
from memory.manifest import Manifest, verify_manifest
from memory.recovery import manifest_path
from memory.replay import Past, declare_lost, read_public, replay
from memory.vault import Vault, new_salt
from tlog.errors import MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.statement import parse_statement

if TYPE_CHECKING:
    from memory.store import Store
    from memory.store_write import Txn
    from memory.wiring import Home

UNFINISHED: Final = "restoring.db"
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
    require_file_store(home.config.database, "restoring a backup")
    _require_no_store(home)
    try:
        with file.open("rb") as opened, home.files.lock(LOCK):
            verify_file(opened, lambda kid: home.trust().key("manifest", kid))
            opened.seek(0)
            _remove(home)
            done = _restore(home, opened, on_missing, failpoint)
            failpoint("filled")
            os.replace(home.path / UNFINISHED, home.path / STORE)
            _remove(home)
    except OSError as error:
        raise UnavailableError(
            f"the backup cannot be restored: {error.strerror}", code="restore_failed"
        ) from None
    return done


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


def _require_no_store(home: Home) -> None:
    store = home.path / STORE
    if store.exists() and store.stat().st_size:
        raise RefusedError("expected a home whose store is gone; this one has one", code="store_exists")


def _remove(home: Home) -> None:
    """What an attempt that was cut short left."""
    for end in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            path = home.path / f"{UNFINISHED}{end}"
            size = path.stat().st_size
            with path.open("r+b") as opened:
                opened.write(bytes(size))
                os.fsync(opened.fileno())
            path.unlink()


def _restore(
    home: Home, file: IO[bytes], on_missing: Callable[[int], None], failpoint: Callable[[str], None]
) -> dict[str, Any]:
    from memory.layout import make_private_file
    from memory.store import open_store

    frames = read_frames(file)
    head = _head(home, next(frames))
    entries = list(own_entries(home))
    manifests = list(manifests_since(home, head))
    vault = Vault(home.path / KEYS)
    make_private_file(home.path / UNFINISHED)
    store = open_store(home.path / UNFINISHED, vault)
    try:
        with store.write() as txn:
            ring = KeyRing(home.path / KEYS)
            counts = _fill(txn, vault, ring, head, frames)
            failpoint("rows")
            _note_backups(txn, ring, head)
            past = place(txn, entries)
            missing = replay(home, vault, txn, past, manifests)
            if missing.count:
                on_missing(missing.count)
                declare_lost(home, txn, missing)
        if not store.checkpoint_truncate():
            raise UnavailableError("the restored store cannot be completed", code="restore_failed")
    finally:
        store.close()
    _require_sound(store)
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
            row_id, tenant, last_seq, name = fields
            name = opened("tenant", row_id, name)
            tag = new_salt() if name is None else vault.index_tag("tenant", name)
            store_backup.insert_tenant(txn, (row_id, tenant, name or "", last_seq), tag)
        elif kind == "record":
            event, secret = fields
            store_backup.insert_event(txn, event)
            counts["statements"] += 1
            said = opened("record", event[0], secret)
            if said is not None:
                store_backup.insert_secret(txn, event[0], *said)
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


def place(txn: Txn, entries: list[tuple[int, bytes, bytes]]) -> list[Past]:
    """The statements of ours that come after the backup; those in it get the place that the log has them at."""
    known = store_backup.positions(txn.view)
    past: list[Past] = []
    for position, commitment, entry in entries:
        if commitment not in known:
            past.append(Past(position, commitment, entry))
        elif known[commitment] is None:
            store_backup.set_entry_index(txn, commitment, position)
        elif known[commitment] != position:
            raise VerificationError(
                "the log has a statement of the backup at another place", code="rolled_back"
            )
    logged = sum(1 for index in known.values() if index is not None)
    if logged > len(entries):
        raise VerificationError(
            "the log lacks statements that the backup knows to be in it", code="rolled_back"
        )
    return past


def _require_sound(store: Store) -> None:
    faults = store.check()
    store.close()
    if faults:
        raise VerificationError("the restored store is not sound", code="store_damaged")
