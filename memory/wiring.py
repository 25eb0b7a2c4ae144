"""A home: the folder of one memory, and the one place where its parts are put together.

    config.toml   settings            policy.txt   C2SP policy        trust.toml   to hand out to verifiers
    keys/         log, issuer, receipt, manifest, index.key, guard/   store.db     facts and statements
    log/          what the log serves log-state/   what it keeps to itself

The folder is for its owner alone (0700). The first use makes it: under a lock, the configuration last, so
that a crash on the way is completed by the next use and two first uses make one home. Everything else is
opened when it is first needed; a command that only writes a fact loads no log and no witness client.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from memory.config import (
    Config,
    Guard,
    format_config,
    new_config,
    parse_config,
    random_origin,
    resolve_guard,
)
from tlog.errors import MalformedError, RefusedError, UnavailableError
from tlog.keys import load_cose_key, load_log_key, make_cose_key, make_log_key, make_secret
from tlog.storage import DirectoryStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from auditor.residue import ScanResult
    from memory.model import Principal
    from memory.parts import Parts
    from memory.service import Memory
    from tlog.cose_keys import CoseSigner
    from tlog.keys import Ed25519NoteSigner
    from tlog.log import CosignFunction, Log
    from tlog.note import SignatureLine
    from tlog.policy import Policy
    from tlog.trust import Trust

HOME_VARIABLE: Final = "MUNIMENT_HOME"
CONFIG: Final = "config.toml"
POLICY: Final = "policy.txt"
TRUST: Final = "trust.toml"
STORE: Final = "store.db"
KEYS: Final = "keys"
PUBLIC_LOG: Final = "log"
PRIVATE_LOG: Final = "log-state"
PUBLISH_SECONDS: Final = 10.0
_LOG_KEY: Final = "log.key"
_COSE_KEYS: Final = {"issuer": "issuer.key", "receipt": "receipt.key", "manifest": "manifest.key"}
_INDEX_KEY: Final = "index.key"
# What an unfinished first use may have left; a folder with anything else in it is somebody else's.
_OWN_NAMES: Final = frozenset({KEYS, POLICY, TRUST, PUBLIC_LOG, PRIVATE_LOG, ".locks", ".tmp"})


class Home:
    """An open home. It may be used from any thread; close it, or use it in a `with`."""

    def __init__(self, path: Path, config: Config, guard: Guard, clock: Callable[[], int]) -> None:
        self.path = path
        self.config = config
        self.guard = guard
        self.clock = clock
        self.files = DirectoryStorage(path)

    def __enter__(self) -> Home:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes what was opened. The home may be used again."""
        opened = self.__dict__
        if "_log" in opened:
            self._log.close()
        if "_parts" in opened:
            self._parts.store.close()
        for name in ("_log", "_parts"):
            opened.pop(name, None)

    # Parts

    def memory(self, principal: Principal) -> Memory:
        """The facade over this home, for one caller."""
        from memory.service import Memory

        return Memory(self.parts(), principal)

    def parts(self) -> Parts:
        """Store, vault and signer, opened; an erasure that a crash cut short is finished first."""
        return self._parts

    @cached_property
    def _parts(self) -> Parts:
        from memory.erase_record import recover_if_needed
        from memory.parts import Parts
        from memory.store import open_store
        from memory.vault import Vault

        vault = Vault(self.path / KEYS)
        parts = Parts(
            store=open_store(self.path / STORE, vault),
            vault=vault,
            sign_entry=self._sign_entry(),
            guard=self.guard,
            issuer=self.config.issuer,
            subject=self.config.subject,
            home=self,
            clock=self.clock,
        )
        recover_if_needed(parts)
        return parts

    def _sign_entry(self) -> Callable[[bytes], bytes]:
        from tlog.statement import sign_statement

        signer, issuer, subject = self._cose_signer("issuer"), self.config.issuer, self.config.subject
        return lambda commitment: sign_statement(signer, issuer, subject, commitment)

    # The log

    def log(self) -> Log:
        """The log of this home, opened, whatever a crash left undone completed."""
        return self._log

    @cached_property
    def _log(self) -> Log:
        from tlog.log import open_log

        policy = self.policy()
        return open_log(
            self.public_storage(),
            DirectoryStorage(self.path / PRIVATE_LOG),
            self.config.origin,
            (self.log_signer(),),
            cosign=_cosign_when_asked(policy) if policy.witnesses else None,
            policy=policy,
            clock=lambda: self.clock() // 1_000_000,
        )

    def public_storage(self) -> DirectoryStorage:
        """The files that the log serves as they are: tiles, checkpoint, deletion manifests."""
        return DirectoryStorage(self.path / PUBLIC_LOG)

    def has_public_file(self, path: str) -> bool:
        """Whether the log serves a file of this name."""
        return (self.path / PUBLIC_LOG / path).is_file()

    def log_signer(self) -> Ed25519NoteSigner:
        """What signs checkpoints."""
        return load_log_key(self.path / KEYS / _LOG_KEY)

    def receipt_signer(self) -> CoseSigner:
        """What signs receipts: roots of published checkpoints alone."""
        return self._cose_signer("receipt")

    def manifest_signer(self) -> CoseSigner:
        """What signs deletion manifests."""
        return self._cose_signer("manifest")

    def _cose_signer(self, use: str) -> CoseSigner:
        return load_cose_key(self.path / KEYS / _COSE_KEYS[use])

    @property
    def origin(self) -> str:
        """What the log calls itself, and its key."""
        return self.config.origin

    def log_vkey(self) -> str:
        """The public key of the log, as C2SP writes it."""
        return self.log_signer().verifier_key.vkey

    def publish(self, deadline_seconds: float = PUBLISH_SECONDS) -> dict[str, Any]:
        """Size, root and state of the log once all statements are in it and its checkpoint is public."""
        from memory.publish import publish

        return publish(self, deadline_seconds)

    def publish_if_needed(self, deadline_seconds: float = PUBLISH_SECONDS) -> dict[str, Any] | None:
        """What `publish` answers, None if there is nothing new to publish."""
        from memory.publish import is_published

        return None if is_published(self) else self.publish(deadline_seconds)

    # Policy and trust

    def policy(self) -> Policy:
        """The policy that the log's checkpoints have to satisfy."""
        from tlog.policy import parse_policy

        data = self.files.read(POLICY)
        if data is None:
            raise MalformedError(f"expected {POLICY} in the home")
        return parse_policy(data)

    def trust(self) -> Trust:
        """What a verifier who believes this home would write down: its keys and its policy."""
        return _trust(self.path, self.config, self.policy())

    def set_policy(self, text: str, same_operator: tuple[str, ...] | None = None) -> Policy:
        """The policy that holds from now on, durable; `trust.toml` follows it.

        The log's own line may be left out. `same_operator` names those of its witnesses that the operator of
        the log runs. Another process that runs keeps the policy it started with.
        """
        policy = _own_policy(text, self.log_vkey())
        if same_operator is not None:
            if not set(same_operator) <= {witness.name for witness in policy.witnesses}:
                raise MalformedError("expected same_operator to name witnesses of the policy")
            self.config = replace(self.config, same_operator=tuple(same_operator))
            self.files.replace(CONFIG, format_config(self.config))
        _write_policy(self.files, self.path, self.config, policy)
        if "_log" in self.__dict__:
            self._log.close()
            del self.__dict__["_log"]
        return policy

    # Erasure

    def scan(self, needles: Sequence[str | bytes], *, canary: str) -> ScanResult:
        """What is found of the needles in the files of this home, by the auditor's code and not by our own."""
        from auditor.residue import scan_files

        return scan_files(self.path, needles, canary=canary)

    def describe(self) -> dict[str, Any]:
        """Where the home is and what its log is called; nothing about what is remembered."""
        policy = self.policy()
        return {
            "home": str(self.path),
            "origin": self.origin,
            "vkey": self.log_vkey(),
            "guard": self.guard,
            "witnesses": [witness.name for witness in policy.witnesses],
            "quorum": policy.quorum,
            "trust": str(self.path / TRUST),
        }


def init_home(
    path: str | os.PathLike[str] | None = None,
    *,
    origin: str | None = None,
    policy_text: str | None = None,
    guard: str | None = None,
) -> Home:
    """A new home in `path`, open. RefusedError if there is one already: its settings would not be these."""
    folder = home_path(path)
    resolved = resolve_guard(guard, None)
    if not _make(folder, origin, policy_text, resolved):
        raise RefusedError("expected a folder without a home in it; there is one already", code="home_exists")
    return open_home(folder)


def open_home(
    path: str | os.PathLike[str] | None = None,
    *,
    guard: str | None = None,
    clock: Callable[[], int] = lambda: time.time_ns() // 1000,
) -> Home:
    """The home in `path`, else in MUNIMENT_HOME, else in the user's data folder; made if it is not there yet.

    `guard` goes before what the configuration says. `clock` gives microseconds since 1970.
    """
    folder = home_path(path)
    if not (folder / CONFIG).is_file():
        _make(folder, None, None, resolve_guard(None, None))
    _require_private(folder)
    data = DirectoryStorage(folder).read(CONFIG)
    if data is None:
        raise MalformedError(f"expected {CONFIG} in the home")
    config = parse_config(data)
    return Home(folder, config, resolve_guard(guard, config.guard), clock)


def home_path(path: str | os.PathLike[str] | None) -> Path:
    """The folder meant: the argument before the environment before the platform's user data folder."""
    if path is not None and not os.fspath(path):
        raise MalformedError("expected the home to be the name of a folder")
    given = path if path is not None else os.environ.get(HOME_VARIABLE)
    if given:
        return Path(given).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("muniment", appauthor=False)


def _make(folder: Path, origin: str | None, policy_text: str | None, guard: Guard) -> bool:
    """True once this call has made the home; False if there is one. It is there once its config.toml is."""
    _make_folder(folder)
    files = DirectoryStorage(folder)
    with files.lock("home"):
        if files.read(CONFIG) is not None:
            return False
        with suppress(FileNotFoundError):
            if not {entry.name for entry in os.scandir(folder)} <= _OWN_NAMES:
                raise MalformedError("expected an empty folder, or a home, but other files are in it")
        os.chmod(folder, 0o700)
        signer = _log_signer(folder, origin)
        for name in _COSE_KEYS.values():
            make_cose_key(folder / KEYS / name)
        make_secret(folder / KEYS / _INDEX_KEY)
        config = new_config(signer.verifier_key.name, guard, int(time.time()))
        text = "quorum none\n" if policy_text is None else policy_text
        _write_policy(files, folder, config, _own_policy(text, signer.verifier_key.vkey))
        files.replace(CONFIG, format_config(config))
        return True


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise MalformedError("expected the home to be a folder, but it is a file or below one") from None
    except OSError as error:
        raise UnavailableError(
            f"the home cannot be made: {error.strerror}", code="home_unavailable"
        ) from None


def _log_signer(folder: Path, origin: str | None) -> Ed25519NoteSigner:
    """The log key; one left by an unfinished first use is kept, and names the origin unless one is given."""
    path = folder / KEYS / _LOG_KEY
    if origin is None and path.exists():
        return load_log_key(path)
    return make_log_key(path, random_origin() if origin is None else origin)


def _require_private(folder: Path) -> None:
    """Returns if nobody but the owner may enter the home."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o077:
        raise RefusedError(
            f"expected a home for its owner alone, but its mode is {mode:04o} (chmod 700)", code="home_mode"
        )


def _own_policy(text: str, vkey: str) -> Policy:
    """The policy in `text`, with the line of our own log before it if it names no log."""
    from tlog.policy import parse_policy

    policy = parse_policy(text)
    if not policy.logs:
        return parse_policy(f"log {vkey}\n{text}")
    if vkey not in {log.key.vkey for log in policy.logs}:
        raise MalformedError("expected the policy to list the log of this home, or no log")
    return policy


def _write_policy(files: DirectoryStorage, folder: Path, config: Config, policy: Policy) -> None:
    files.replace(POLICY, policy.text.encode("utf-8", "surrogateescape"))
    files.replace(TRUST, _trust(folder, config, policy).text.encode("utf-8", "surrogateescape"))


def _trust(folder: Path, config: Config, policy: Policy) -> Trust:
    from tlog.trust import TrustedKey, make_trust

    witnesses = {witness.name for witness in policy.witnesses}
    keys = tuple(
        TrustedKey(use, load_cose_key(folder / KEYS / name).key, config.created_at)
        for use, name in _COSE_KEYS.items()
    )
    return make_trust(
        policy.text,
        keys,
        config.merge_delay_seconds,
        config.max_checkpoint_age_seconds,
        tuple(name for name in config.same_operator if name in witnesses),
    )


def _cosign_when_asked(policy: Policy) -> CosignFunction:
    """Asks the policy's witnesses; the HTTP client is loaded when it is first needed."""

    def cosign(
        note: bytes, prove: Callable[[int], tuple[bytes, ...]], previous_size: int, deadline_seconds: float
    ) -> tuple[SignatureLine, ...]:
        from witness.client import make_cosign

        return make_cosign(policy)(note, prove, previous_size, deadline_seconds)

    return cosign
