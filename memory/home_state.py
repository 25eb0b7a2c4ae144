"""How settings, policy and keys of a home are changed: in its folder, or, where it has many nodes, for all of them.

The order within a change is that of the steps a crash may come between: a list before a key that only it explains,
the settings after what they name, the trust file last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from memory.config import random_origin
from memory.home_names import CERTIFIED, COSE_KEYS, KEY_LIST, KEYS, POLICY, log_key_file, next_key_file
from memory.home_settings import stamp_of
from tlog.errors import RefusedError
from tlog.keys import load_log_key, make_cose_key, make_log_key, remove_key, replace_key

if TYPE_CHECKING:
    from memory.wiring import Home
    from tlog.cose_keys import CoseKey
    from tlog.keys import Ed25519NoteSigner

ERASE_LOCK = "erase"


class HomeState(Protocol):
    """Settings, policy, key list and keys of a home, for whoever changes them or signs."""

    def lock(self, name: str) -> AbstractContextManager[None]:
        """A lock between all that change the same, which see within it what was changed last."""

    def follow(self, within_seconds: float = 0.0) -> None:
        """Returns once the folder has what was changed last; looked for within so many seconds will do."""

    def settle(self) -> None:
        """The same, and what this folder alone knows is known to all."""

    def mark(self) -> object:
        """What is another once anything changed that an open log was told."""

    def still(self) -> Callable[[], None]:
        """What raises UnavailableError once anything was changed after this call."""

    def without_publications(self) -> AbstractContextManager[None]:
        """A block within which no checkpoint is announced."""

    def replace(self, files: Mapping[str, bytes], **settings: Any) -> None:
        """Returns once these files and settings are those of the home, and its trust file follows from them."""

    def make_key(self, use: str) -> CoseKey:
        """The key that was made to be the next for this use, made now if there is none."""

    def activate(self, use: str) -> None:
        """Returns once the next key for this use is the one that signs, and the one before signs nothing more."""

    def make_log_key(self, number: int, origin: str | None) -> Ed25519NoteSigner:
        """The key of the log of this number, made now if there is none."""

    def remove_log_key(self, number: int) -> None:
        """Returns once no folder of the home has the key of a log that ended."""


class OwnState:
    """The state of a home that has one folder: its files are the state."""

    def __init__(self, home: Home) -> None:
        self._home = home

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """A lock between all processes that have this folder."""
        with self._home.files.lock(name):
            yield

    def follow(self, within_seconds: float = 0.0) -> None:
        """Returns at once: what another process changed is in the files."""

    def settle(self) -> None:
        """Returns at once."""

    def mark(self) -> object:
        """What tells this policy from the one that takes its place."""
        return stamp_of(str(self._home.path / POLICY))

    def still(self) -> Callable[[], None]:
        """Nothing: whoever changes something here finds the lock taken that a publication has."""
        return lambda: None

    def without_publications(self) -> AbstractContextManager[None]:
        """A block like any other: here each publication reads settings and policy as they are."""
        return nullcontext()

    def replace(self, files: Mapping[str, bytes], **settings: Any) -> None:
        """Returns once files, settings and trust file are durable, in this order."""
        home = self._home
        for name in (KEY_LIST, CERTIFIED, POLICY):
            if name in files:
                home.files.replace(name, files[name])
        new = replace(home.config, **settings)
        if new != home.config:
            home.write_config(new)
        home.write_trust()

    def make_key(self, use: str) -> CoseKey:
        """The key in the file of the next for this use."""
        return make_cose_key(self._home.path / KEYS / next_key_file(use)).key

    def activate(self, use: str) -> None:
        """Returns once the file of the next key has taken the place of the one in use."""
        home = self._home
        # Nothing may be signed with the old key after this: statements are signed within a writing transaction,
        # manifests under the lock of erasures. A receipt that crosses is of a tree that the old key may sign.
        signing: dict[str, Callable[[], AbstractContextManager[object]]] = {
            "issuer": lambda: home.parts().store.write_alone(),
            "manifest": lambda: home.files.lock(ERASE_LOCK),
        }
        with signing.get(use, nullcontext)():
            replace_key(home.path / KEYS / next_key_file(use), home.path / KEYS / COSE_KEYS[use])

    def make_log_key(self, number: int, origin: str | None) -> Ed25519NoteSigner:
        """The key in the file of that log."""
        path = self._home.path / KEYS / log_key_file(number)
        if origin is None and path.exists():
            return load_log_key(path)
        return make_log_key(path, random_origin() if origin is None else origin)

    def remove_log_key(self, number: int) -> None:
        """Returns once there is no such file."""
        remove_key(self._home.path / KEYS / log_key_file(number))


def require_named(signer: Ed25519NoteSigner, origin: str | None) -> Ed25519NoteSigner:
    """The signer, if its log is called so; RefusedError with code `key_exists` if it is another."""
    if origin is not None and signer.verifier_key.name != origin:
        raise RefusedError("key file: holds the key of another name", code="key_exists")
    return signer
