"""The state of a home that has many nodes: one value in the database, and a copy of it in the folder of each.

A change is one comparison and one write in the database: of two that race one is done, and what a node does that stood
still meanwhile is refused, whatever it believes. Each node takes over what stands there before it signs: within the
transaction that has the statement, under the lock of erasures, before a publication and again once it has the lock of
it. So a key that was replaced signs nothing more, on no node; and the folders need no restart and no copying.

    database: one value, swapped   →   key list → keys → policy → settings → trust file, in the folder of each node

A crash between any two is completed by the next look.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from memory import agreed
from memory.agreed import Agreed
from memory.chain import log_number
from memory.config import random_origin
from memory.home_names import (
    CERTIFIED,
    COSE_KEYS,
    KEY_LIST,
    KEYS,
    POLICY,
    log_key_file,
    next_key_file,
)
from memory.home_state import require_named
from memory.log_places import home_storage
from memory.pg_lease import lost
from memory.pg_locks import ERASURES, WRITERS
from tlog.errors import UnavailableError, VerificationError
from tlog.keys import load_cose_key, load_log_key, new_cose_key, new_log_key, remove_key

if TYPE_CHECKING:
    from memory.pg_log import PgLogStorage
    from memory.wiring import Home
    from tlog.cose_keys import CoseKey
    from tlog.keys import Ed25519NoteSigner

AGREED: Final = "agreed"
_FOLDER_LOCK: Final = "keys"
_ALONE: Final[Mapping[str, tuple[int, ...]]] = {"issuer": (WRITERS,), "manifest": (ERASURES,)}
"""What may not be under way while the key for a use is replaced: a receipt is of a tree that either key may sign."""


class SharedState:
    """What the nodes of a home agreed on, as one of them sees it. Any thread may use it."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._mutex = threading.RLock()
        self._data: bytes | None = None
        self._looked_at = 0.0

    @cached_property
    def _storage(self) -> PgLogStorage:
        return home_storage(self._home.config)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """A lock between all nodes; of one that dies or stops, another takes it."""
        self._home.parts()
        with self._storage.lock(name):
            self.settle()
            yield

    def follow(self, within_seconds: float = 0.0) -> None:
        """Returns once this folder has what all nodes agreed on.

        UnavailableError with code `nodes_differ` where the folder knows more than the database: that was put back.
        """
        now = time.monotonic()
        if now - self._looked_at < within_seconds:
            return
        stamp = self._storage.read_start(AGREED, agreed.STAMP_BYTES)
        if stamp is not None and stamp != self.mark():
            self._take_over()
        self._looked_at = now

    def settle(self) -> None:
        """Returns once database and folder have one state: where there is none yet, or it was put back, this one."""
        with self._mutex:
            stamp = self._storage.read_start(AGREED, agreed.STAMP_BYTES)
            if stamp is not None and stamp == self.mark():
                return
            data, own = self._storage.read(AGREED), self._own()
            if data is None:
                self._storage.swap(AGREED, None, agreed.without_copied(own).encode())
            elif _is_behind(agreed.decode(data), own):
                self._bring_up(data, own)
            self.follow()

    def mark(self) -> object:
        """The stamp of the state that this folder has; None before it was looked for."""
        return None if self._data is None else self._data[: agreed.STAMP_BYTES]

    def still(self) -> Callable[[], None]:
        """What raises UnavailableError once another state stands in the database."""
        mark = self.mark()

        def require_same() -> None:
            if self._storage.read_start(AGREED, agreed.STAMP_BYTES) != mark:
                raise UnavailableError(
                    "log: keys, policy or settings were changed on another node; nothing was signed, try again",
                    code="busy",
                    retry_after_seconds=1,
                )

        return require_same

    def without_publications(self) -> AbstractContextManager[None]:
        """A block under the lock of publications: whoever had it before announces nothing any more."""
        return self._home.log().private.lock("publish")

    def replace(self, files: Mapping[str, bytes], **settings: Any) -> None:
        """Returns once these are the files and settings of all nodes."""
        self._change(lambda state: state.changed(settings, files))

    def make_key(self, use: str) -> CoseKey:
        """The next key for this use, in the folder of this node and for all others to take over."""
        name = next_key_file(use)

        def add(state: Agreed) -> Agreed:
            if name in state.keys:
                return state
            made = agreed.sealed(self._home.path, name, new_cose_key())
            return state.with_keys({**state.keys, name: made})

        self._change(add)
        return load_cose_key(self._home.path / KEYS / name).key

    def activate(self, use: str) -> None:
        """Returns once no node signs with the key that was in use, nor has what it signed to commit."""

        def move(state: Agreed) -> Agreed:
            keys, path = dict(state.keys), self._home.path
            box = keys.pop(next_key_file(use), None)
            if box is None:
                raise lost()  # another node took it into use while this one stood still
            key = agreed.opened(path, next_key_file(use), box)
            keys[COSE_KEYS[use]] = agreed.sealed(path, COSE_KEYS[use], key)
            return state.with_keys(keys)

        self._change(move, _ALONE.get(use, ()))

    def make_log_key(self, number: int, origin: str | None) -> Ed25519NoteSigner:
        """The key of the log of this number, in the folder of this node and for all others to take over."""
        name = log_key_file(number)

        def add(state: Agreed) -> Agreed:
            if name in state.keys:
                return state
            made = new_log_key(random_origin() if origin is None else origin)
            return state.with_keys({**state.keys, name: agreed.sealed(self._home.path, name, made)})

        self._change(add)
        return require_named(load_log_key(self._home.path / KEYS / name), origin)

    def remove_log_key(self, number: int) -> None:
        """Returns at once: it went with the settings that say that its log ended."""

    def _change(self, make: Callable[[Agreed], Agreed], alone: tuple[int, ...] = ()) -> None:
        with self._mutex:
            self.follow()
            if self._data is None:
                raise UnavailableError("the nodes of this home agreed on nothing yet; try again", code="busy")
            before = agreed.decode(self._data)
            after = make(before)
            if after is before:
                return
            if not self._storage.swap_alone(AGREED, self._data, after.encode(), alone):
                raise lost()
            self.follow()

    def _bring_up(self, data: bytes, own: Agreed) -> None:
        """Has the database know again what it was told and lost, as this folder knows it."""
        before = agreed.decode(data)
        _require_continues(own, before)
        after = before.changed(own.settings, own.files).with_keys(own.keys)
        self._storage.swap(AGREED, data, after.encode())

    def _own(self) -> Agreed:
        return agreed.of_folder(self._home.path, self._home.config)

    def _take_over(self) -> None:
        with self._mutex, self._home.files.lock(_FOLDER_LOCK):
            data = self._storage.read(AGREED)
            if data is None or data == self._data:
                return
            state, own = agreed.decode(data), self._own()
            if _is_behind(state, own):
                raise UnavailableError(
                    "the database knows less of this home's keys than this node: it was put back. Nothing is signed"
                    " until it was told again, which the next publication does",
                    code="nodes_differ",
                    retry_after_seconds=10,
                )
            _require_continues(state, own)
            self._write(state)
            self._data = data

    def _write(self, state: Agreed) -> None:
        home = self._home
        for name in (KEY_LIST, CERTIFIED):
            self._write_file(name, state.files.get(name))
        for name, box in state.keys.items():
            self._write_file(f"{KEYS}/{name}", agreed.opened(home.path, name, box))
        for use in COSE_KEYS:
            if next_key_file(use) not in state.keys:
                remove_key(home.path / KEYS / next_key_file(use))
        self._write_file(POLICY, state.files.get(POLICY))
        config = state.config(home.config)
        if config != home.config:
            home.write_config(config)
        home.write_trust()
        for number in range(1, log_number(config)):
            remove_key(home.path / KEYS / log_key_file(number))

    def _write_file(self, name: str, data: bytes | None) -> None:
        if data is not None and self._home.files.read(name) != data:
            self._home.files.replace(name, data)


def _require_continues(newer: Agreed, older: Agreed) -> None:
    if not newer.continues(older):
        raise VerificationError(
            "keys or logs of this node are others than those that the database knows: it was put back, and then"
            " changed. Nothing is signed here: take this node out, and copy the folder of another",
            code="rolled_back",
        )


def _is_behind(state: Agreed, own: Agreed) -> bool:
    """Whether a folder knows of a log that ended, or of a key, that this state does not."""
    pairs = zip(state.progress(), own.progress(), strict=True)
    return any(theirs < ours for theirs, ours in pairs)
