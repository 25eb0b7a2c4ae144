"""A home: the folder of one memory, and the one place where its parts are put together.

Everything is opened when it is first needed; a command that only writes a fact loads no log and no witness
client. What the files of a home are, and how it is made, is in `layout`.
"""

from __future__ import annotations

import os
import time
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from memory import log_places
from memory.chain import first_position, log_number, origin_of
from memory.config import Config, Guard, resolve_guard
from memory.cosigning import OnWitness, cosign_when_asked, tell_nobody
from memory.home_settings import HomeSettings, read_config
from memory.last_heads import witnessed_heads as _witnessed_heads
from memory.layout import (
    CONFIG,
    POLICY,
    TRUST,
    complete_if_older,
    home_path,
    make_home,
    require_home,
    require_private,
    unfinished_if_it_fails,
)
from tlog.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from auditor.residue import ScanResult
    from memory.home_state import HomeState
    from memory.model import Principal
    from memory.parts import Parts
    from memory.service import Memory
    from tlog.log import CosignFunction, Log
    from tlog.mirror import Mirror
    from tlog.policy import Policy
    from tlog.storage import Storage

PUBLISH_SECONDS: Final = 10.0
_LATELY_SECONDS: Final = 1.0
_KEYS_LOCK: Final = "keys"


class Home(HomeSettings):
    """An open home. It may be used from any thread; close it, or use it in a `with`."""

    def __init__(self, path: Path, config: Config, guard: Guard, clock: Callable[[], int]) -> None:
        super().__init__(path, config)
        self.state = _state_of(self)
        self.guard = guard
        self.clock = clock
        self.cosign_of: Callable[[Policy], CosignFunction] = lambda policy: cosign_when_asked(self, policy)
        self.on_witness: OnWitness = tell_nobody
        self._log_made_for: tuple[object, ...] = ()

    def __enter__(self) -> Home:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
        self.state.follow(_LATELY_SECONDS)
        with self._opening:
            made_for = (self.config.origin, self.config.mirror, self.state.mark())
            if "_log" in self.__dict__ and made_for != self._log_made_for:
                self._close_log()
            self._log_made_for = made_for
            return self._log

    @cached_property
    def _log(self) -> Log:
        from tlog.log import Log, LogSettings

        still = self.state.still()
        policy, origin = self.policy(), self.config.origin
        settings = LogSettings(
            origin,
            (self.log_signer(),),
            cosign=self.cosign_of(policy) if policy.witnesses else None,
            policy=policy,
            clock=lambda: self.clock() // 1_000_000,
            known_heads=(lambda: _witnessed_heads(policy, origin)) if policy.witnesses else None,
            mirror=self.mirror(),
            still=still,
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
        self.state.follow()
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

    def publish(self, deadline_seconds: float = PUBLISH_SECONDS) -> dict[str, Any]:
        """Size, root and state of the log once all statements are in it and its checkpoint is public."""
        from memory.publish import publish

        return publish(self, deadline_seconds)

    def publish_if_needed(self, deadline_seconds: float = PUBLISH_SECONDS) -> dict[str, Any] | None:
        """What `publish` answers, None if there is nothing new to publish; then vectors of what lacks them."""
        from memory.publish import publish_if_needed

        return publish_if_needed(self, deadline_seconds)

    def set_policy(self, text: str, same_operator: tuple[str, ...] | None = None) -> Policy:
        """The policy that holds from now on, durable, for whoever publishes next; `trust.toml` follows it.

        The log's own line may be left out. `same_operator` names those of its witnesses that the operator of
        the log runs.
        """
        with self.state.lock(_KEYS_LOCK), self.state.without_publications():
            policy = self.policy_of(text, same_operator or ())
            files = {POLICY: policy.text.encode("utf-8", "surrogateescape")}
            settings = {} if same_operator is None else {"same_operator": tuple(same_operator)}
            self.state.replace(files, **settings)
        with self._opening:
            self._close_log()
        return policy

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


def _state_of(home: Home) -> HomeState:
    if home.config.log_storage is None:
        from memory.home_state import OwnState

        return OwnState(home)
    from memory.shared_state import SharedState

    return SharedState(home)


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
    config = read_config(folder)
    complete_if_older(folder, config)
    return Home(folder, config, resolve_guard(guard, config.guard), clock)
