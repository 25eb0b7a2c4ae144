"""Makes a backup of the store: what is free of content as it is, everything else encrypted, each record by its own key.

Keys are made durable first, then the store notes that there is a backup, then the file gets its name: a crash
leaves keys without a backup, or a note of one that nobody has, and never a file that no erasure knows of. It
carries neither a key nor the head of the log: what it is restored to is what the log says then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memory import store_backup
from memory.backup_format import Writer, encrypt
from memory.backup_keys import KeyRing, new_subject, ring_of
from memory.engines import engine_of
from memory.erase_record import alone, recover
from memory.recovery import last_manifest
from memory.store import SCHEMA_VERSION
from memory.times import HOUR, format_time, whole_hour
from memory.vault import new_number
from tlog.errors import MalformedError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory.store import Store
    from memory.store_read import Snapshot
    from memory.wiring import Home

KEEP_DAYS: Final = 90
SUFFIX: Final = ".backup"


class _Source(NamedTuple):
    """What a backup is made of: the home, one view of its store, and the keys that records are encrypted under."""

    home: Home
    view: Snapshot
    ring: KeyRing


def _no_failure(_: str) -> None:
    return None


def backup(
    home: Home, target: Path, keep_microseconds: int, *, failpoint: Callable[[str], None] = _no_failure
) -> dict[str, Any]:
    """The backup that was made, in a file of this name or, in a folder, of a random one.

    Holds the lock of erasures, so that what it has is not erased meanwhile. `failpoint` is called after each step.
    """
    parts = home.parts()
    number = new_number()
    path = target / f"{number.hex()}{SUFFIX}" if target.is_dir() else target
    _require_outside(home, path)
    if home.config.log_storage is not None:
        from memory.backup_places import require_no_versions
        from tlog.bucket import open_bucket

        require_no_versions(open_bucket(home.config.log_storage))
    with alone(parts):
        recover(parts)
        ring = ring_of(home)
        made_at = whole_hour(parts.clock())
        expires_at = -(-(parts.clock() + keep_microseconds) // HOUR) * HOUR
        with _settled(parts.store) as (view, last_seq):
            _make_keys(view, ring)
            ring.list_backup(number, made_at, expires_at, last_seq)
            ring.flush()
            failpoint("keys")
            with parts.store.write_whole() as txn:
                store_backup.add_backup(txn, number, made_at, expires_at, last_seq)
            failpoint("noted")
            head = {"number": number, "made_at": made_at, "expires_at": expires_at}
            count = _write(_Source(home, view, ring), path, head, failpoint)
    return {
        "file": str(path),
        "backup": number.hex(),
        "statements": count,
        "made_at": format_time(made_at),
        "expires_at": format_time(expires_at),
    }


@contextmanager
def _settled(store: Store) -> Iterator[tuple[Snapshot, int]]:
    """A view of the store and the number of its last statement: every smaller number that there will be is in it."""
    with ExitStack() as stack:
        with store.write_alone():
            view = stack.enter_context(store.read_whole())
            last_seq = store_backup.last_seq(view)
        yield view, last_seq


def _require_outside(home: Home, path: Path) -> None:
    if path.resolve().is_relative_to(home.path.resolve()):
        raise MalformedError("expected a backup to go outside the home that it is a backup of")
    if path.exists():
        raise MalformedError("expected the name of a file that is not there yet")
    if not path.parent.is_dir():
        raise MalformedError("expected a backup to go to a folder that is there")


def _make_keys(view: Snapshot, ring: KeyRing) -> None:
    """A key for each record; those of one subject are wrapped under one key, by a name that says nothing."""
    subjects: dict[tuple[int, bytes], bytes] = {}
    fresh = []
    for record in store_backup.records(view):
        if record.secret is None:
            continue
        tag = None if record.subject_tag is None else (record.event[1], record.subject_tag)
        known = ring.subject("record", record.seq)
        if tag is not None and known is not None:
            subjects.setdefault(tag, known)
        if ring.key("record", record.seq) is None:
            fresh.append((record.seq, tag))
    for seq, tag in fresh:
        ring.make("record", seq, None if tag is None else subjects.setdefault(tag, new_subject()))
    for space in store_backup.HASHED:
        for row_number in store_backup.hashed_numbers(view, space):
            ring.make(space, row_number)
    for row_number in store_backup.hashed_numbers(view, "tenant"):
        ring.make("tenant", row_number)
    ring.make("meta", 0)


def _write(source: _Source, path: Path, head: dict[str, Any], failpoint: Callable[[str], None]) -> int:
    """How many statements the file has, which stands under its name once all of it is durable."""
    unfinished = path.with_name(path.name + ".part")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            count = _write_frames(source, Writer(file), head)
            failpoint("written")
            file.flush()
            os.fsync(file.fileno())
        os.rename(unfinished, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise UnavailableError(
            f"the backup cannot be written: {error.strerror}", code="backup_unwritable"
        ) from None
    return count


def _write_frames(source: _Source, writer: Writer, head: dict[str, Any]) -> int:
    home, view, ring = source
    number: bytes = head["number"]

    def sealed(space: str, place: int, secret: object) -> bytes:
        key = ring.key(space, place)
        assert key is not None  # made above, under the lock of erasures
        return encrypt(key, number, space, place, secret)

    manifests, digest = last_manifest(view)
    vault = home.parts().vault
    writer.frame(
        "head",
        head
        | {
            "schema": SCHEMA_VERSION,
            "issuer": home.config.issuer,
            "subject": home.config.subject,
            "manifests": manifests,
            "manifest": digest,
            **({} if home.config.database is None else {"engine": engine_of(home.config.database)}),
        },
    )
    for row_id, tenant, name, last_seq in store_backup.tenants(view):
        keys = vault.keys_of(tenant) if name else None
        rest = [] if keys is None else [sealed("tenant", row_id, keys)]
        writer.frame(
            "tenant", row_id, tenant, last_seq, sealed("tenant", row_id, name) if name else None, *rest
        )
    count = 0
    for record in store_backup.records(view):
        secret = None if record.secret is None else sealed("record", record.seq, list(record.secret))
        writer.frame("record", list(record.event), secret)
        count += 1
    for table in store_backup.OPEN:
        for row in store_backup.whole_rows(view, table):
            writer.frame("row", table, row)
    for space, (table, number_name) in store_backup.HASHED.items():
        for row in store_backup.whole_rows(view, table):
            writer.frame("hashed", space, row[number_name], sealed(space, row[number_name], row))
    writer.frame("meta", sealed("meta", 0, [list(row) for row in store_backup.meta(view)]))
    writer.end(home.manifest_signer())
    return count
