"""A home: the folder of one memory, and the one place where its parts are put together.

Everything is opened when it is first needed; a command that only writes a fact loads no log and no witness
client. What the files of a home are, and how it is made, is in `layout`.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from memory import log_places
from memory.chain import first_position, frozen_logs, log_number, origin_of
from memory.config import Config, Guard, format_config, parse_config, resolve_guard
from memory.cosigning import OnWitness, cosign_when_asked, tell_nobody
from memory.home_names import log_key_file
from memory.last_heads import witnessed_heads as _witnessed_heads
from memory.layout import (
    CONFIG,
    COSE_KEYS,
    KEYS,
    POLICY,
    TRUST,
    complete_if_older,
    home_path,
    make_home,
    own_policy,
    require_home,
    require_private,
    unfinished_if_it_fails,
    write_policy,
    write_trust,
)
from tlog.errors import MalformedError, RefusedError
from tlog.keys import load_log_key
from tlog.storage import DirectoryStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from auditor.residue import ScanResult
    from memory.model import Principal
    from memory.parts import Parts
    from memory.service import Memory
    from tlog.cose_keys import CoseSigner
    from tlog.keys import Ed25519NoteSigner
    from tlog.log import CosignFunction, Log
    from tlog.mirror import Mirror
    from tlog.policy import Policy
    from tlog.storage import Storage
    from tlog.trust import Trust

PUBLISH_SECONDS: Final = 10.0


class Home:
    """An open home. It may be used from any thread; close it, or use it in a `with`."""

    def __init__(self, path: Path, config: Config, guard: Guard, clock: Callable[[], int]) -> None:
        self.path = path
        self._config_path = str(path / CONFIG)
        self._config, self._config_stamp = config, _stamp(self._config_path)
        self.guard = guard
        self.clock = clock
        self.files = DirectoryStorage(path)
        self.cosign_of: Callable[[Policy], CosignFunction] = lambda policy: cosign_when_asked(self, policy)
        self.on_witness: OnWitness = tell_nobody
        self._opening = threading.RLock()
        self._log_made_for: tuple[str, str | None] = ("", None)

    def __enter__(self) -> Home:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def config(self) -> Config:
        """The settings, read again once another process has changed them."""
        stamp = _stamp(self._config_path)
        if stamp != self._config_stamp:
            with self._opening:
                self._config, self._config_stamp = _read_config(self.path), stamp
        return self._config

    @config.setter
    def config(self, config: Config) -> None:
        self._config = config

    def write_config(self, config: Config) -> None:
        """Returns once these are the settings, durably."""
        self.files.replace(CONFIG, format_config(config))
        self._config, self._config_stamp = config, _stamp(self._config_path)

    def close(self) -> None:
        """Closes what was opened. The home may be used again."""
        with self._opening:
            self._close_log()
            if "_parts" in self.__dict__:
                self._parts.store.close()
                del self.__dict__["_parts"]

    def _close_log(self) -> None:
        if "_log" in self.__dict__:
            self._log.close()
            del self.__dict__["_log"]

    def memory(self, principal: Principal) -> Memory:
        """The facade over this home, for one caller."""
        from memory.service import Memory

        return Memory(self.parts(), principal)

    def parts(self) -> Parts:
        """Store, vault and signer, opened; an erasure that a crash cut short is finished first."""
        with self._opening:
            return self._parts

    @cached_property
    def _parts(self) -> Parts:
        from memory.assembly import open_parts

        return open_parts(self)

    # The log

    def log(self) -> Log:
        """The log of this home, opened, whatever a crash left undone completed."""
        with self._opening:
            made_for = (self.config.origin, self.config.mirror)
            if "_log" in self.__dict__ and made_for != self._log_made_for:
                self._close_log()
            self._log_made_for = made_for
            return self._log

    @cached_property
    def _log(self) -> Log:
        from tlog.log import Log, LogSettings

        policy, origin = self.policy(), self.config.origin
        settings = LogSettings(
            origin,
            (self.log_signer(),),
            cosign=self.cosign_of(policy) if policy.witnesses else None,
            policy=policy,
            clock=lambda: self.clock() // 1_000_000,
            known_heads=(lambda: _witnessed_heads(policy, origin)) if policy.witnesses else None,
            mirror=self.mirror(),
        )
        log_places.prepare(self.config)
        log = Log(self.public_storage(), self.private_storage(), settings)
        log.recover()
        return log

    def log_at(self, number: int) -> Log:
        """The home's log of this number, which only the newest may be appended to; close it if it is another."""
        from tlog.log import Log, LogSettings

        if number == log_number(self.config):
            return self.log()
        settings = LogSettings(origin_of(self.config, number), ())
        return Log(self.public_storage(number), self.private_storage(number), settings)

    def frozen_logs(self) -> Iterator[Log]:
        """The logs that the newest took the place of, the oldest first."""
        return (self.log_at(number) for number in range(1, log_number(self.config)))

    @property
    def first_position(self) -> int:
        """The position in the store of the first entry of the log that grows."""
        return first_position(self.config)

    def public_storage(self, number: int | None = None) -> Storage:
        """The files that the log serves as they are: tiles, checkpoint, key list, deletion manifests."""
        return log_places.public_storage(self.path, self.config, number)

    def private_storage(self, number: int | None = None) -> Storage:
        """What the log keeps to itself."""
        return log_places.private_storage(self.path, self.config, number)

    def has_public_file(self, path: str) -> bool:
        """Whether a log of this home serves a file of this name."""
        numbers = range(1, log_number(self.config) + 1)
        return any(self.public_storage(number).read(path) is not None for number in numbers)

    def create_public_file(self, path: str, data: bytes) -> None:
        """Returns once the mirror has the file, if there is a mirror, and then the public."""
        mirror = self.mirror()
        if mirror is not None:
            mirror.create(path, data)
        self.public_storage().create(path, data)

    def mirror(self) -> Mirror | None:
        """The mirror of the log that grows, None if none is configured."""
        if self.config.mirror is None:
            return None
        from memory.mirroring import mirror_at

        return mirror_at(self.config.mirror, log_number(self.config), self.log_signer().verifier_key)

    def log_signer(self) -> Ed25519NoteSigner:
        """What signs checkpoints."""
        return load_log_key(self.path / KEYS / log_key_file(log_number(self.config)))

    def issuer_signer(self) -> CoseSigner:
        """What signs statements."""
        return self._cose_signer("issuer")

    def receipt_signer(self) -> CoseSigner:
        """What signs receipts: roots of published checkpoints alone."""
        return self._cose_signer("receipt")

    def manifest_signer(self) -> CoseSigner:
        """What signs deletion manifests."""
        return self._cose_signer("manifest")

    def has_issuer_key(self) -> bool:
        """Whether the key that signs statements lies in the home, beside what it signs for."""
        return (self.path / KEYS / COSE_KEYS["issuer"]).exists()

    def _cose_signer(self, use: str) -> CoseSigner:
        from memory.key_check import load_listed

        return load_listed(self.path, self.config, use)

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
        """What `publish` answers, None if there is nothing new to publish; then vectors of what lacks them."""
        from memory.publish import publish_if_needed

        return publish_if_needed(self, deadline_seconds)

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
        from memory.key_list import make_trust_of

        return make_trust_of(self.path, self.config, self.policy())

    def set_policy(self, text: str, same_operator: tuple[str, ...] | None = None) -> Policy:
        """The policy that holds from now on, durable; `trust.toml` follows it.

        The log's own line may be left out. `same_operator` names those of its witnesses that the operator of
        the log runs. Another process that runs keeps the policy it started with.
        """
        vkeys = [self.log_vkey(), *(log.vkey for log in reversed(frozen_logs(self.config)))]
        policy = own_policy(text, *vkeys)
        if same_operator is not None:
            if not set(same_operator) <= {witness.name for witness in policy.witnesses}:
                raise MalformedError("expected same_operator to name witnesses of the policy")
            self.write_config(replace(self.config, same_operator=tuple(same_operator)))
        write_policy(self.files, self.path, self.config, policy)
        with self._opening:
            self._close_log()
        return policy

    def write_trust(self) -> None:
        """Returns once `trust.toml` says what `trust` does."""
        write_trust(self.files, self.path, self.config, self.policy())

    # Erasure

    def scan(self, needles: Sequence[str | bytes], *, canary: str) -> ScanResult:
        """What is found of the needles in the files of this home, by the auditor's code and not by our own."""
        from memory.scan_process import scan_apart

        return scan_apart(self.path, needles, canary=canary)

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
    database: str | None = None,
    log_storage: str | None = None,
) -> Home:
    """A new home in `path`, open. RefusedError if there is one already: its settings would not be these."""
    folder = home_path(path)
    resolved = resolve_guard(guard, None)
    if not make_home(folder, origin, policy_text, resolved, database=database, log_storage=log_storage):
        raise RefusedError("expected a folder without a home in it; there is one already", code="home_exists")
    with unfinished_if_it_fails(folder):
        home = open_home(folder)
        if database is not None:
            home.parts()  # makes the schema, or says why it cannot
            home.log()  # tries the bucket, if there is to be one
    return home


def open_existing_home(path: str | os.PathLike[str] | None = None, *, guard: str | None = None) -> Home:
    """The home in `path`, found as `open_home` finds it; MalformedError with code `no_home` if there is none.

    For what reads: a name that is misspelt is not answered with "nothing found" in a home made for it.
    """
    folder = home_path(path)
    require_home(folder)
    return open_home(folder, guard=guard)


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
        make_home(folder, None, None, resolve_guard(None, None), clock() // 1_000_000)
    require_private(folder)
    config = _read_config(folder)
    complete_if_older(folder, config)
    return Home(folder, config, resolve_guard(guard, config.guard), clock)


def _read_config(folder: Path) -> Config:
    data = DirectoryStorage(folder).read(CONFIG)
    if data is None:
        raise MalformedError(f"expected {CONFIG} in the home")
    return parse_config(data)


def _stamp(path: str) -> tuple[int, int]:
    """What tells one file of settings from the one that takes its place."""
    status = os.stat(path)
    return status.st_ino, status.st_ctime_ns
