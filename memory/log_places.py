"""Where a home's log lies: in folders of the home, or, for many nodes, in a bucket and the database of the store.

Where the store is in a database, so is what the log keeps to itself, whether it has a bucket or not: a node with a copy
of the home finds there what was committed, and cannot begin a second history. Without a bucket it then lacks the tiles,
and says so. A bucket without a database is refused: it has no locks.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memory.chain import log_number, origin_of
from memory.config import Config
from memory.home_names import private_log, public_log
from tlog.errors import MalformedError, RefusedError
from tlog.storage import DirectoryStorage, Storage

if TYPE_CHECKING:
    from memory.pg_log import PgLogStorage
    from memory.shared_public import SharedPublic

_BUCKET: Final = "bucket"


def public_storage(folder: Path, config: Config, number: int | None = None) -> Storage:
    """What the log of this number serves, of the one that grows by default."""
    number = number or log_number(config)
    if config.log_storage is None:
        return DirectoryStorage(folder / public_log(number))
    return _shared(*_places(config, number))[0]


def private_storage(folder: Path, config: Config, number: int | None = None) -> Storage:
    """What that log keeps to itself."""
    number = number or log_number(config)
    return private_of(folder, config, number, origin_of(config, number))


def private_of(folder: Path, config: Config, number: int, origin: str) -> Storage:
    """What the log of this number and origin keeps to itself, also where that is not a log of the home yet."""
    if config.database is None:
        return DirectoryStorage(folder / private_log(number))
    return _private(config.database, origin)


def public_name(folder: Path, config: Config, path: str) -> str:
    """Where people find a public file of the log that grows."""
    if config.log_storage is None:
        return str(folder / public_log(log_number(config)) / path)
    return f"{config.log_storage}/{path}"


def prepare(config: Config) -> None:
    """Returns once the bucket was found to keep to conditions, and is noted to be that of this log.

    RefusedError with code `another_bucket` if the database knows the log in another one.
    """
    if config.log_storage is None:
        return
    from tlog.bucket import require_conditional

    public, private = _shared(*_places(config, log_number(config)))
    noted, url = private.read(_BUCKET), config.log_storage.encode()
    if noted is None:
        require_conditional(public.objects.bucket)
        private.create(_BUCKET, url)
    elif noted != url:
        raise RefusedError(
            "the log of this home lies in another bucket, as the database knows: copy it, then have the settings of"
            " all nodes changed while none runs",
            code="another_bucket",
        )


def prepare_private(config: Config) -> None:
    """Returns once the database has the tables of what the log keeps to itself, also if it has lost them since."""
    if config.database is not None:
        _private(config.database, origin_of(config, log_number(config))).prepare()


def require_own_log(config: Config, what: str) -> None:
    """Returns if the log is that of one machine; MalformedError saying what there is not yet for a shared one."""
    if config.log_storage is not None:
        raise MalformedError(f"{what} is not there yet for a log in a bucket", code="not_on_shared_log")


def _places(config: Config, number: int) -> tuple[str, str, str]:
    if config.log_storage is None or config.database is None:
        raise MalformedError(
            "expected a database in the settings: a log in a bucket has its state there (muniment init --database)"
        )
    if number != 1:
        raise MalformedError("a log in a bucket has no successor yet", code="not_on_shared_log")
    return config.log_storage, config.database, origin_of(config, number)


@lru_cache(maxsize=64)
def _shared(url: str, dsn: str, origin: str) -> tuple[SharedPublic, PgLogStorage]:
    """Both storages of a log, once a process: they share connections, and what is locked."""
    from memory.shared_public import SharedPublic
    from tlog.bucket import open_bucket
    from tlog.object_storage import ObjectStorage

    private = _private(dsn, origin)
    return SharedPublic(ObjectStorage(open_bucket(url)), private), private


@lru_cache(maxsize=64)
def _private(dsn: str, origin: str) -> PgLogStorage:
    from memory.pg_link import Link
    from memory.pg_log import PgLogStorage

    private = PgLogStorage(Link(dsn), origin)
    private.prepare()
    return private
