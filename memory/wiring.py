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

from memory.config import Config, Guard, format_config, parse_config, resolve_guard
from memory.layout import (
    CONFIG,
    COSE_KEYS,
    KEYS,
    LOG_KEY,
    POLICY,
    PRIVATE_LOG,
    PUBLIC_LOG,
    STORE,
    TRUST,
    make_home,
    make_private_file,
    make_trust_of,
    own_policy,
    require_private,
    write_policy,
)
from tlog.errors import MalformedError, RefusedError
from tlog.keys import load_cose_key, load_log_key
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
    from tlog.staging import Head
    from tlog.trust import Trust
    from witness.client import Failure

HOME_VARIABLE: Final = "MUNIMENT_HOME"
PUBLISH_SECONDS: Final = 10.0
KNOWN_HEADS_SECONDS: Final = 3.0


class Home:
    """An open home. It may be used from any thread; close it, or use it in a `with`."""

    def __init__(self, path: Path, config: Config, guard: Guard, clock: Callable[[], int]) -> None:
        self.path = path
        self.config = config
        self.guard = guard
        self.clock = clock
        self.files = DirectoryStorage(path)
        self.cosign_of: Callable[[Policy], CosignFunction] = _cosign_when_asked
        self._opening = threading.RLock()

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

    # Parts

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
        from memory.erase_record import recover_if_needed
        from memory.parts import Parts
        from memory.store import open_store
        from memory.vault import Vault

        vault = Vault(self.path / KEYS)
        make_private_file(self.path / STORE)
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
        with self._opening:
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
            known_heads=lambda: _witnessed_heads(policy, origin),
        )
        log = Log(self.public_storage(), DirectoryStorage(self.path / PRIVATE_LOG), settings)
        log.recover()
        return log

    def public_storage(self) -> DirectoryStorage:
        """The files that the log serves as they are: tiles, checkpoint, deletion manifests."""
        return DirectoryStorage(self.path / PUBLIC_LOG)

    def has_public_file(self, path: str) -> bool:
        """Whether the log serves a file of this name."""
        return (self.path / PUBLIC_LOG / path).is_file()

    def log_signer(self) -> Ed25519NoteSigner:
        """What signs checkpoints."""
        return load_log_key(self.path / KEYS / LOG_KEY)

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
        return load_cose_key(self.path / KEYS / COSE_KEYS[use])

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
        return make_trust_of(self.path, self.config, self.policy())

    def set_policy(self, text: str, same_operator: tuple[str, ...] | None = None) -> Policy:
        """The policy that holds from now on, durable; `trust.toml` follows it.

        The log's own line may be left out. `same_operator` names those of its witnesses that the operator of
        the log runs. Another process that runs keeps the policy it started with.
        """
        policy = own_policy(text, self.log_vkey())
        if same_operator is not None:
            if not set(same_operator) <= {witness.name for witness in policy.witnesses}:
                raise MalformedError("expected same_operator to name witnesses of the policy")
            self.config = replace(self.config, same_operator=tuple(same_operator))
            self.files.replace(CONFIG, format_config(self.config))
        write_policy(self.files, self.path, self.config, policy)
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
    if not make_home(folder, origin, policy_text, resolved):
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
        make_home(folder, None, None, resolve_guard(None, None))
    require_private(folder)
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


def _cosign_when_asked(policy: Policy) -> CosignFunction:
    """Asks the policy's witnesses; the HTTP client is loaded when it is first needed."""

    def cosign(
        note: bytes, prove: Callable[[int], tuple[bytes, ...]], previous_size: int, deadline_seconds: float
    ) -> tuple[SignatureLine, ...]:
        from witness.client import make_cosign

        return make_cosign(policy, _say_failure)(note, prove, previous_size, deadline_seconds)

    return cosign


def _say_failure(failure: Failure) -> None:
    """Says which witness did not cosign and why: the quorum may be met without it, and it is still amiss."""
    import logging

    status = "" if failure.status is None else f", status {failure.status}"
    logging.getLogger("muniment").warning("witness %s: %s%s", ", ".join(failure.names), failure.code, status)


def _witnessed_heads(policy: Policy, origin: str) -> list[Head]:
    """The heads of the log that its witnesses serve: one that we do not extend would make our next a fork."""
    if not policy.witnesses:
        return []
    from tlog.staging import Head
    from witness.client import fetch_heads

    heads = (one.opened.checkpoint for one in fetch_heads(policy, origin, KNOWN_HEADS_SECONDS))
    return [Head(head.size, head.root) for head in heads]
