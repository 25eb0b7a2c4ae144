"""Where a home's log lies: in folders of the home, or, for many nodes, in a bucket and the database of the store.

Where the store is in a database, so is what the log keeps to itself, whether it has a bucket or not: a node with a copy
of the home finds there what was committed, and cannot begin a second history. Without a bucket it then lacks the tiles,
and says so. A bucket without a database is refused: it has no locks.
"""

from __future__ import annotations

import atexit
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
    if config.log_storage is not None and config.database is None:
        raise MalformedError(
            "expected a database in the settings: a log in a bucket has its state there (muniment init --database)"
        )
    return public_of(folder, config, number, origin_of(config, number))


def private_storage(folder: Path, config: Config, number: int | None = None) -> Storage:
    """What that log keeps to itself."""
    number = number or log_number(config)
    return private_of(folder, config, number, origin_of(config, number))


def private_of(folder: Path, config: Config, number: int, origin: str) -> Storage:
    """What the log of this number and origin keeps to itself, also where that is not a log of the home yet."""
    if config.database is None:
        return DirectoryStorage(folder / private_log(number))
    return _private(config.database, origin)


def public_of(folder: Path, config: Config, number: int, origin: str) -> Storage:
    """What the log of this number and origin serves, also where that is not a log of the home yet."""
    if config.log_storage is None or config.database is None:
        return DirectoryStorage(folder / public_log(number))
    return _shared(_url(config.log_storage, number), config.database, origin)[0]


def home_storage(config: Config) -> PgLogStorage:
    """What all nodes of a home have besides store and logs. No log can be called what it is called."""
    assert config.database is not None  # the settings of a home that has nodes name it
    return _private(config.database, f"+home/{config.subject}")


def public_name(folder: Path, config: Config, path: str) -> str:
    """Where people find a public file of the log that grows."""
    number = log_number(config)
    if config.log_storage is None:
        return str(folder / public_log(number) / path)
    return f"{_url(config.log_storage, number)}/{path}"


def prepare(config: Config, number: int | None = None, origin: str | None = None) -> None:
    """Returns once the bucket was found to keep to conditions, and is noted to be that of this log.

    RefusedError with code `another_bucket` if the database knows the log in another one.
    """
    if config.log_storage is None or config.database is None:
        return
    from tlog.bucket import require_conditional

    number = number or log_number(config)
    url = _url(config.log_storage, number)
    public, private = _shared(url, config.database, origin or origin_of(config, number))
    noted = private.read(_BUCKET)
    if noted is None:
        require_conditional(public.objects.bucket)
        private.create(_BUCKET, url.encode())
    elif noted != url.encode():
        raise RefusedError(
            "the log of this home lies in another bucket, as the database knows: copy it, then have the settings of"
            " all nodes changed while none runs",
            code="another_bucket",
        )


def prepare_private(config: Config) -> None:
    """Returns once the database has the tables of what the log keeps to itself, also if it has lost them since."""
    if config.database is not None:
        _private(config.database, origin_of(config, log_number(config))).prepare()


def _url(bucket: str, number: int) -> str:
    """Where the log of this number lies: the first where the settings say, the others below."""
    return bucket if number == 1 else f"{bucket.rstrip('/')}/{public_log(number)}"


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
    atexit.register(private.close)
    return private
