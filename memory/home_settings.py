"""What an open home knows of itself: settings, policy and trust, and the keys that it signs with."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from memory.chain import frozen_logs, log_number
from memory.config import Config, format_config, parse_config
from memory.home_names import CONFIG, COSE_KEYS, KEYS, POLICY, log_key_file
from memory.layout import own_policy, write_trust
from tlog.errors import MalformedError
from tlog.keys import load_log_key
from tlog.storage import DirectoryStorage

if TYPE_CHECKING:
    from memory.home_state import HomeState
    from tlog.cose_keys import CoseSigner
    from tlog.keys import Ed25519NoteSigner
    from tlog.policy import Policy
    from tlog.trust import Trust


class HomeSettings:
    """The files of a home that say what it is. Any thread may use it."""

    state: HomeState
    """What settings, policy and keys are changed through, and followed where other nodes change them."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path = path
        self.files = DirectoryStorage(path)
        self._config_path = str(path / CONFIG)
        self._config, self._config_stamp = config, stamp_of(self._config_path)
        self._opening = threading.RLock()

    # Settings

    @property
    def config(self) -> Config:
        """The settings, read again once another process has changed them."""
        stamp = stamp_of(self._config_path)
        if stamp != self._config_stamp:
            with self._opening:
                self._config, self._config_stamp = read_config(self.path), stamp
        return self._config

    @config.setter
    def config(self, config: Config) -> None:
        self._config = config

    def write_config(self, config: Config) -> None:
        """Returns once these are the settings of this folder, durably."""
        self.files.replace(CONFIG, format_config(config))
        self._config, self._config_stamp = config, stamp_of(self._config_path)

    # Keys

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

        self.state.follow()
        return load_listed(self.path, self.config, use)

    @property
    def origin(self) -> str:
        """What the log calls itself, and its key."""
        return self.config.origin

    def log_vkey(self) -> str:
        """The public key of the log, as C2SP writes it."""
        return self.log_signer().verifier_key.vkey

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

    def write_trust(self) -> None:
        """Returns once `trust.toml` says what `trust` does."""
        write_trust(self.files, self.path, self.config, self.policy())

    def policy_of(self, text: str, same_operator: tuple[str, ...]) -> Policy:
        """The policy in a text that may leave out the logs of this home; these of its witnesses are the operator's."""
        vkeys = [self.log_vkey(), *(log.vkey for log in reversed(frozen_logs(self.config)))]
        policy = own_policy(text, *vkeys)
        if not set(same_operator) <= {witness.name for witness in policy.witnesses}:
            raise MalformedError("expected same_operator to name witnesses of the policy")
        return policy


def read_config(folder: Path) -> Config:
    """The settings in the folder of a home."""
    data = DirectoryStorage(folder).read(CONFIG)
    if data is None:
        raise MalformedError(f"expected {CONFIG} in the home")
    return parse_config(data)


def stamp_of(path: str) -> tuple[int, int]:
    """What tells a file from the one that takes its place."""
    status = os.stat(path)
    return status.st_ino, status.st_ctime_ns
