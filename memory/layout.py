"""The files of a home, and how one is made.

    config.toml   settings            policy.txt   C2SP policy        trust.toml   to hand out to verifiers
    keys/         log, issuer, receipt, manifest, index.key, guard/   store.db     facts and statements
    log/          what the log serves log-state/   what it keeps to itself
    keys.cbor     keys there are and were, keys.cose  the same, certified by a root, where there is one

A log that takes the place of another has folders and a key file with its number: log-2/, log-state-2/, log-2.key.

The folder is for its owner alone (0700). The first use makes it: under a lock, the configuration last, so that
a crash on the way is completed by the next use, and two first uses make one home.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memory.config import (
    Config,
    Guard,
    format_config,
    new_config,
    parse_config,
    random_origin,
    require_no_password,
)
from memory.home_names import (
    CHECKPOINT,
    CONFIG,
    COSE_KEYS,
    INDEX_KEY,
    KEY_LIST,
    KEYS,
    LOG_KEY,
    POLICY,
    PRIVATE_LOG,
    PUBLIC_LOG,
    STORE,
    TRUST,
)
from tlog.errors import MalformedError, RefusedError, UnavailableError
from tlog.keys import load_log_key, make_cose_key, make_log_key, make_secret
from tlog.storage import DirectoryStorage

if TYPE_CHECKING:
    from tlog.keys import Ed25519NoteSigner
    from tlog.policy import Policy

__all__ = [
    "CHECKPOINT",
    "CONFIG",
    "COSE_KEYS",
    "INDEX_KEY",
    "KEYS",
    "LOG_KEY",
    "POLICY",
    "PRIVATE_LOG",
    "PUBLIC_LOG",
    "STORE",
    "TRUST",
    "complete_if_older",
    "home_path",
    "make_home",
    "make_private_file",
    "own_policy",
    "require_home",
    "require_private",
    "write_policy",
    "write_trust",
]

HOME_VARIABLE: Final = "MUNIMENT_HOME"
# What an unfinished first use may have left; a folder with anything else in it is somebody else's.
_OWN_NAMES: Final = frozenset({KEYS, KEY_LIST, POLICY, TRUST, PUBLIC_LOG, PRIVATE_LOG, ".locks", ".tmp"})


def home_path(path: str | os.PathLike[str] | None) -> Path:
    """The folder meant: the argument before the environment before the platform's user data folder."""
    if path is not None and not os.fspath(path):
        raise MalformedError("expected the home to be the name of a folder")
    given = path if path is not None else os.environ.get(HOME_VARIABLE)
    if given:
        return Path(given).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("muniment", appauthor=False)


def require_home(folder: Path) -> None:
    """Returns if there is a home in the folder."""
    if not (folder / CONFIG).is_file():
        raise MalformedError(
            f"expected --home (or {HOME_VARIABLE}) to name a home, and there is none in that folder: "
            "muniment init makes one, and so does the first remember",
            code="no_home",
        )


def make_home(
    folder: Path,
    origin: str | None,
    policy_text: str | None,
    guard: Guard,
    created_at: int | None = None,
    database: str | None = None,
    log_storage: str | None = None,
) -> bool:
    """True once this call has made the home; False if there is one. It is there once its config.toml is.

    `created_at` are seconds since 1970, now by default.
    """
    require_no_password(database or "")
    if log_storage is not None and database is None:
        raise MalformedError(
            "expected --database beside --log-storage: a log in a bucket has its state there"
        )
    _make_folder(folder)
    _require_no_other_files(folder)
    files = DirectoryStorage(folder)
    with files.lock("home"):
        if files.read(CONFIG) is not None:
            return False
        os.chmod(folder, 0o700)
        for name in (PUBLIC_LOG, PRIVATE_LOG):
            (folder / name).mkdir(mode=0o700, exist_ok=True)
        signer = _log_signer(folder, origin)
        for name in COSE_KEYS.values():
            make_cose_key(folder / KEYS / name)
        make_secret(folder / KEYS / INDEX_KEY)
        made_at = int(time.time()) if created_at is None else created_at
        settings = new_config(signer.verifier_key.name, guard, made_at)
        config = replace(settings, database=database, log_storage=log_storage)
        parse_config(format_config(config))
        from memory.key_list import first_key_list

        files.replace(KEY_LIST, first_key_list(folder, config))
        text = "quorum none\n" if policy_text is None else policy_text
        write_policy(files, folder, config, own_policy(text, signer.verifier_key.vkey))
        files.replace(CONFIG, format_config(config))
        return True


@contextmanager
def unfinished_if_it_fails(folder: Path) -> Iterator[None]:
    """Has a home that was just made be none if the block fails: the next attempt makes it, with the keys it has."""
    try:
        yield
    except BaseException:
        DirectoryStorage(folder).remove([CONFIG])
        raise


def _require_no_other_files(folder: Path) -> None:
    """Returns if the folder is empty, a home, or an unfinished one: nothing is put among somebody's files."""
    names = {entry.name for entry in os.scandir(folder)}
    if CONFIG not in names and not names <= _OWN_NAMES:
        raise MalformedError("expected an empty folder, or a home, but other files are in it")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise MalformedError("expected the home to be a folder, but it is a file or below one") from None
    except OSError as error:
        raise UnavailableError(
            f"the home cannot be made: {error.strerror}", code="home_unavailable", errno=error.errno
        ) from None


def _log_signer(folder: Path, origin: str | None) -> Ed25519NoteSigner:
    """The log key; one left by an unfinished first use is kept, and names the origin unless one is given."""
    path = folder / KEYS / LOG_KEY
    if origin is None and path.exists():
        return load_log_key(path)
    return make_log_key(path, random_origin() if origin is None else origin)


def complete_if_older(folder: Path, config: Config) -> None:
    """Returns once a home that an older version made has the files that every home has."""
    if not (folder / KEY_LIST).exists():
        from memory.older_home import complete_key_list

        complete_key_list(folder, config)


def require_private(folder: Path) -> None:
    """Returns if nobody but the owner may enter the home."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o077:
        raise RefusedError(
            f"expected a home for its owner alone, but its mode is {mode:04o} (chmod 700)", code="home_mode"
        )


def require_store(folder: Path) -> None:
    """Returns unless the log has entries and the store is gone: a new one would deny what was logged."""
    store = folder / STORE
    if (not store.exists() or store.stat().st_size == 0) and (folder / PRIVATE_LOG / "head").exists():
        raise UnavailableError(
            "the store is missing or empty although the log has entries: put store.db back from a backup",
            code="store_missing",
        )


def make_private_file(path: Path) -> None:
    """Returns once the file exists, empty and for its owner alone if it did not. SQLite keeps its mode.

    One that exists is not opened: closing it would take the locks of the connections that this process has.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise UnavailableError(
            f"a file of the home cannot be written: {error.strerror}",
            code="home_unavailable",
            errno=error.errno,
        ) from None


def own_policy(text: str, *vkeys: str) -> Policy:
    """The policy in `text`, with the lines of our own logs before it if it names no log. The newest is first."""
    from tlog.policy import parse_policy

    policy = parse_policy(text)
    if not policy.logs:
        return parse_policy("".join(f"log {vkey}\n" for vkey in vkeys) + text)
    if not {log.key.vkey for log in policy.logs}.issuperset(vkeys):
        raise MalformedError("expected the policy to list every log of this home, or no log")
    return policy


def write_policy(files: DirectoryStorage, folder: Path, config: Config, policy: Policy) -> None:
    """Returns once the policy, and the trust file that follows from it, are durable."""
    files.replace(POLICY, policy.text.encode("utf-8", "surrogateescape"))
    write_trust(files, folder, config, policy)


def write_trust(files: DirectoryStorage, folder: Path, config: Config, policy: Policy) -> None:
    """Returns once the trust file is durable."""
    from memory.key_list import make_trust_of

    files.replace(TRUST, make_trust_of(folder, config, policy).text.encode("utf-8", "surrogateescape"))
