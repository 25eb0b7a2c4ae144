"""An evidence bundle: a folder with everything that somebody needs to audit this home without it.

Public files of its logs, its manifests and key lists, the store as a copy that pins nothing, policy, trust file and
settings, and a signed list of all of them. Whoever has contents with their salts can prove them for ever, so the
store notes them as a recipient, under a random reference, before the list that makes the folder a bundle is written.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memory import store_bundle
from memory.backup_places import BUCKET_FOLDER
from memory.chain import log_number
from memory.config import Config, format_config
from memory.erase_record import alone
from memory.home_names import CHECKPOINT, CONFIG, KEY_LIST, POLICY, STORE, TRUST, public_log
from memory.layout import make_private_file
from memory.store_openings import add_openings
from memory.times import whole_hour
from memory.vault import new_number
from tlog.bundles import NAME, Bundle, BundleFile, Scope, sign_bundle
from tlog.errors import MalformedError, UnavailableError

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.wiring import Home
    from tlog.storage import Storage

_FILES: Final = (POLICY, TRUST, KEY_LIST)
# Other settings name clients, folders, commands and systems, and are nobody's to have.
_SETTINGS: Final = (
    "origin",
    "issuer",
    "subject",
    "created_at",
    "guard",
    "merge_delay_seconds",
    "max_checkpoint_age_seconds",
    "same_operator",
    "root",
    "frozen",
    "identity",
    "instruction_shaped",
    "unknown_tenants",
)
# Of the objects in the bucket of a log: what is for nodes alone.
_NOT_PUBLIC: Final = (f"{BUCKET_FOLDER}/", "probe/")
_CHUNK_BYTES: Final = 1 << 20
_TRIES: Final = 5


@dataclass(frozen=True)
class Exported:
    """What was written: how many files, statements and openings, and who was noted to have the latter."""

    files: int
    statements: int
    openings: int
    recipient: str | None


def export_evidence(home: Home, folder: Path, scope: Scope, tenant: str | None) -> Exported:
    """Returns once `folder`, new or empty, is a bundle; it is as it was if anything fails.

    With the scope `tenant` the contents of that tenant alone are in it. No erasure goes on meanwhile: what is in
    the bundle is noted as given before anything of it could be erased.
    """
    made = _make_folder(folder)
    try:
        with alone(home.parts()):
            return _export(home, folder, scope, tenant)
    except BaseException:
        _remove(folder, made)
        raise


def _export(home: Home, folder: Path, scope: Scope, tenant: str | None) -> Exported:
    parts = home.parts()
    # Heads first, the store after them: whatever a head covers is in the copy.
    heads = list(_read_heads(home))
    make_private_file(folder / STORE)
    number = None
    if home.config.database is not None:
        number = _copy_database(parts, folder, scope, tenant)
    elif scope == "all":
        parts.store.copy_to(folder / STORE)
        store_bundle.take_out_access(folder / STORE)
    else:
        with parts.store.read() as view:
            tenant_id = None
            if scope == "tenant":
                tenant_id, number = store_bundle.tenant_of_name(view, tenant or "")
            store_bundle.copy_part(view, tenant_id, folder / STORE)
    _copy_logs(home, folder, heads)
    told = {name: getattr(home.config, name) for name in _SETTINGS}
    _write(folder / CONFIG, format_config(Config(**told)))
    for name in _FILES:
        data = home.files.read(name)
        if data is not None:
            _write(folder / name, data)
    given = store_bundle.contents_in(folder / STORE)
    recipient = None if scope == "links" else new_number()
    if recipient is not None:
        with parts.store.write_whole() as txn:
            add_openings(txn, given, recipient, whole_hour(parts.clock()))
    bundle = Bundle(
        made_at=whole_hour(parts.clock()),
        origin=home.origin,
        scope=scope,
        statements=store_bundle.count_events(folder / STORE),
        files=tuple(_listed(folder)),
        tenant=number,
        recipient=recipient,
        many_writers=home.config.database is not None,
    )
    _write(folder / NAME, sign_bundle(home.manifest_signer(), parts.issuer, parts.subject, bundle))
    return Exported(
        len(bundle.files), bundle.statements, len(given), None if recipient is None else recipient.hex()
    )


def _copy_database(parts: Parts, folder: Path, scope: Scope, tenant: str | None) -> bytes | None:
    """The number of the tenant whose contents alone are in the copy, if there is one."""
    from memory.pg_bundle import copy_rows

    number, tenant_id = None, None
    with parts.store.read_whole() as view:
        if scope == "tenant":
            found = view.tenant(parts.vault.index_tag("tenant", tenant or ""))
            if found is None or not found.name:
                raise MalformedError("expected the name of a tenant of this home", code="unknown_tenant")
            number, tenant_id = found.number, found.id
        copy_rows(view, scope, tenant_id, folder / STORE)
    return number


def _make_folder(folder: Path) -> bool:
    """True if the folder was made by this call; MalformedError if it has anything in it."""
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        if not folder.is_dir() or any(folder.iterdir()):
            raise MalformedError("expected the folder of the bundle to be new or empty") from None
        return False
    except OSError as error:
        raise UnavailableError(f"the folder of the bundle can't be made: {error.strerror}") from None
    return True


def _remove(folder: Path, made: bool) -> None:
    with suppress(OSError):
        for entry in list(folder.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        if made:
            folder.rmdir()


def _read_heads(home: Home) -> Iterator[tuple[int, bytes | None]]:
    """The number of each log with its public checkpoint of now."""
    for number in range(1, log_number(home.config) + 1):
        yield number, home.public_storage(number).read(CHECKPOINT)


def _copy_logs(home: Home, folder: Path, heads: list[tuple[int, bytes | None]]) -> None:
    for number, head in heads:
        target = folder / public_log(number)
        for _ in range(_TRIES):
            if _copy_folder(home.public_storage(number), target):
                break
        else:
            raise UnavailableError("the log changed each time while it was copied", retry_after_seconds=5)
        target.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):
            (target / CHECKPOINT).unlink()
        if head is not None:
            _write(target / CHECKPOINT, head)


def _copy_folder(source: Storage, target: Path) -> bool:
    """Whether every public file could be copied; a log in use may drop a tile once a wider one stands."""
    for name in source.names(""):
        if name.startswith(_NOT_PUBLIC):
            continue
        data = source.read(name)
        if data is None:
            return False
        _write(target.joinpath(*name.split("/")), data)
    return True


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _listed(folder: Path) -> Iterator[BundleFile]:
    paths = ((path.relative_to(folder).as_posix(), path) for path in folder.rglob("*") if path.is_file())
    for name, path in sorted(paths):
        digest, size = hashlib.sha256(), 0
        with path.open("rb") as file:
            while data := file.read(_CHUNK_BYTES):
                digest.update(data)
                size += len(data)
        yield BundleFile(name, size, digest.digest())
