"""The service of one log without its HTTP: statements in, receipts, keys and public files out.

It needs the log's two storages and its keys, nothing of whatever else appends to the log: a memory process may
write and publish at the same time. Each public answer is of a checkpoint that is public and was verified.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final

from tlog.entry_ids import EntryIds, Found
from tlog.errors import Error, MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.file_cache import FileCache
from tlog.intake import MAX_UNPUBLISHED, Accepted, Intake
from tlog.locator import decode_entry_id
from tlog.log import Log
from tlog.log_metrics import LogMetrics
from tlog.metrics import Metrics
from tlog.published import Published
from tlog.publisher import Cadence, Publish, Publisher, Turn
from tlog.receipt_keys import CreateFile, ReceiptKeys
from tlog.registrar import Registrar
from tlog.tile import HEIGHT, WIDTH, parse_path

# Beside tiles and checkpoint: what a log serves as it is, once it stands there.
_DOCUMENT: Final = re.compile(r"erasures/[1-9][0-9]{0,17}\.cose|registration/[0-9a-f]{64}\.toml")
KEY_LIST: Final = "keys.cose"
_PROBE: Final = "ready"
CACHED_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True)
class ServiceSettings:
    """How a log is served. `url` is what its clients reach it by, where that is not what they connect to."""

    cadence: Cadence = field(default_factory=Cadence)
    wait_seconds: float = 2.0  # how long a registration is held back for its receipt
    max_waiting: int = 64  # how many may be held back at once
    max_unpublished: int = MAX_UNPUBLISHED
    url: str | None = None


@dataclass(frozen=True)
class Pending:
    """An entry that no public checkpoint covers yet."""

    retry_after_seconds: int


@dataclass(frozen=True)
class Host:
    """What the host of a service may want done in its own way.

    `publish` is used where it has more to do than `log.publish`, `create_file` where public documents have to
    stand in other places too. `on_fatal` is told when the process has to be started anew: the storage failed
    in a way that it must not go on from, or another log has taken this one's place.
    """

    settings: ServiceSettings = field(default_factory=ServiceSettings)
    publish: Publish | None = None
    create_file: CreateFile | None = None
    on_fatal: Callable[[], None] = lambda: None


class LogService:
    """The service of one log. Any thread may ask; while it is `running` it takes statements and publishes."""

    def __init__(self, log: Log, keys: ReceiptKeys, metrics: Metrics, host: Host | None = None) -> None:
        """A service that is not running yet."""
        host = host or Host()
        self.settings = host.settings
        self.metrics = LogMetrics(metrics)
        self.keys = keys
        self.fatal: Error | None = None
        self._on_fatal = host.on_fatal
        self._log = _observed(log, self.metrics)
        self.registrar = Registrar(self._log, host.create_file)
        self._published = Published(self._log, keys.signer)
        self._ids = EntryIds(self._log)
        self._files = FileCache(CACHED_BYTES)
        self._intake = Intake(
            self._log,
            self.registrar,
            lambda: self._published.newest_head().size,
            self.settings.max_unpublished,
            self._on_death,
        )
        publish = host.publish or self._log.publish
        self._publisher = Publisher(
            publish, self._is_due, self.settings.cadence, self._on_turn, self._on_death
        )
        metrics.refresh_with(self._set_sizes)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Takes statements and publishes within the block; all that was taken is in the log after it."""
        self._intake.start()
        self._publisher.start()
        try:
            yield
        finally:
            self._intake.stop()
            self._publisher.stop()
            self._ids.close()
            self._log.close()

    # Registration

    def submit(self, statement: bytes) -> Future[Accepted]:
        """What becomes of a signed statement once it is durable; see `Intake.submit`."""
        try:
            accepted = self._intake.submit(statement)
        except Error as error:
            self.metrics.on_error(error)
            raise
        accepted.add_done_callback(self._count)
        return accepted

    def receipt(self, index: int, entry: bytes) -> bytes | Pending:
        """A fresh receipt of the entry, under the checkpoint that is public now."""
        head = self._published.head()
        return self._published.receipt(index, entry, head) if index < head.size else self.pending()

    def find_receipt(self, locator: str) -> bytes | Pending | None:
        """A fresh receipt of the entry that a locator names, None if the log has none."""
        found = self._find(locator)
        return None if found is None else self.receipt(found.index, found.entry)

    def find_entry(self, locator: str) -> bytes | Pending | None:
        """The entry that a locator names, once it is public; None if the log has none."""
        found = self._find(locator)
        if found is None:
            return None
        return found.entry if self.is_published(found.index) else self.pending()

    def _find(self, locator: str) -> Found | None:
        entry_id = decode_entry_id(locator)
        return None if entry_id is None else self._ids.find(entry_id)

    def is_published(self, index: int) -> bool:
        """Whether a public checkpoint covers the entry."""
        return index < self._published.head().size

    def pending(self) -> Pending:
        """That an entry is not public yet, and when to ask again."""
        return Pending(math.ceil(self._publisher.next_in_seconds()) + 1)

    # Files

    def checkpoint(self) -> bytes | None:
        """The public checkpoint, None before the first publication."""
        return self._published.head().note or None

    def tile(self, path: str) -> bytes | None:
        """The tile or bundle at a path, None if the public checkpoint does not imply it, or it is gone."""
        try:
            tile = parse_path(path)
        except MalformedError:
            return None
        leaves = (tile.index * WIDTH + tile.width) << (HEIGHT * (tile.level or 0))
        if leaves > self._published.head().size:
            return None
        data = self._log.public.read(path)
        if data is not None:
            self._files.put(path, data)
        return data

    def key_list(self) -> bytes | None:
        """The list of keys that a root has certified, None if there is none."""
        return self._log.public.read(KEY_LIST)

    def cached(self, path: str) -> bytes | None:
        """A file that was served before and is at hand; such files never change."""
        return self._files.get(path)

    def document(self, path: str) -> bytes | None:
        """A deletion manifest or a registration policy, None if there is none of this name."""
        return self._log.public.read(path) if _DOCUMENT.fullmatch(path) else None

    # Health

    def check_storage(self) -> None:
        """Returns if the private storage takes a file."""
        self._log.private.replace(_PROBE, b"")
        self._log.private.remove((_PROBE,))

    def check_checkpoint(self) -> None:
        """Returns if the public checkpoint, where there is one, is of this log and its policy accepts it."""
        self._published.head()

    def check_keys(self) -> None:
        """Returns if the log has a key to sign with, and the receipt key can be loaded."""
        self.keys.signer()
        if not self._log.settings.note_signers:
            raise UnavailableError("the log has no key to sign with", code="key_missing")

    def check_threads(self) -> None:
        """Returns if statements are taken and the log is published, or only its witnesses keep it from that."""
        if self.fatal is not None:
            raise UnavailableError(f"the process has to be started anew: {self.fatal.message}", code="fatal")
        if not (self._intake.running() and self._publisher.running()):
            raise UnavailableError("the service is starting or stopping", code="stopping")
        turn = self._publisher.last
        if turn is not None and isinstance(turn.error, VerificationError):
            raise UnavailableError(f"nothing is published: {turn.error.message}", code=turn.error.code)

    # Within

    def _is_due(self) -> bool:
        if self._log.frozen() is not None:
            # Also where nothing is left to publish: whoever serves on serves a log that no longer grows.
            raise RefusedError("log: is frozen; another log has taken its place", code="frozen")
        return self._log.head().size != self._published.head().size

    def _on_turn(self, turn: Turn | None) -> None:
        if turn is not None:
            self.metrics.on_turn(turn)
        try:
            self._intake.reload()
            self._ids.complete()
        except Error as error:
            turn = turn or Turn(0.0, 0.0, error)
        if turn is not None and turn.error is not None:
            self._end_if_fatal(turn.error)

    def _on_death(self) -> None:
        self._end(UnavailableError("a thread of the service ended of a fault", code="thread_ended"))

    def _count(self, accepted: Future[Accepted]) -> None:
        if accepted.cancelled():
            return
        error = accepted.exception()
        if error is None:
            self.metrics.on_statement("registered")
        elif isinstance(error, Error):
            self.metrics.on_error(error)
            self._end_if_fatal(error)

    def _end_if_fatal(self, error: Error) -> None:
        """Has the process ended where going on is of no use: the log is frozen, or its storage is.

        A flush that failed is not repeated: the storage says so, without a number of the operating system.
        """
        if error.code == "frozen" or (error.code == "storage_failed" and "errno" not in error.fields):
            self._end(error)

    def _end(self, error: Error) -> None:
        if self.fatal is None:
            self.fatal = error
            self._on_fatal()

    def _set_sizes(self) -> None:
        with suppress(Error):  # the gauges stay as they were; readiness says what is wrong
            self.metrics.on_sizes(self._log.head().size, self._published.head())


def _observed(log: Log, metrics: LogMetrics) -> Log:
    """The same log as an object of its own, its witnesses watched."""
    settings = log.settings
    if settings.cosign is not None and settings.policy is not None:
        settings = replace(settings, cosign=metrics.observed(settings.cosign, settings.policy))
    return Log(log.public, log.private, settings)
