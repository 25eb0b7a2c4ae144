"""HTTP exchanges in parallel, with one deadline for all of them that no server can stretch.

A timeout of an HTTP library bounds each read, not the exchange: a server that sends a byte now and then is
never late. So the caller waits on a queue, not on the exchanges, and at the deadline the connections are shut
down under those still under way. The threads are daemons: a name lookup, which nothing can interrupt, holds
up neither the caller nor the end of the process.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tlog.errors import UnavailableError

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")

_HEADERS = {"accept-encoding": "identity", "user-agent": "muniment"}
# A proxy of the environment can't reach this machine's own loopback.
_DIRECT = ("all://localhost", "all://127.0.0.1", "all://[::1]")


@dataclass(frozen=True)
class Reply:
    """What a server answered, its body whole and no longer than allowed."""

    status: int
    content_type: str
    body: bytes


class Exchanges(Generic[T]):
    """Exchanges under way; each is told apart by the `key` it was started with."""

    def __init__(self, deadline_seconds: float, max_reply_bytes: int) -> None:
        self._deadline = time.monotonic() + deadline_seconds
        self._max_reply_bytes = max_reply_bytes
        self._replies: queue.SimpleQueue[tuple[T, Reply | UnavailableError]] = queue.SimpleQueue()
        self._under_way: dict[T, _Exchange] = {}
        self._tls: ssl.SSLContext | None = None

    def start(self, key: T, method: str, url: str, body: bytes = b"") -> None:
        """Start one more; of one key only one is under way at a time."""
        exchange = _Exchange(self._deadline, self._max_reply_bytes, self._tls_context(url))

        def run() -> None:
            self._replies.put((key, exchange.run(method, url, body)))

        self._under_way[key] = exchange
        threading.Thread(target=run, daemon=True, name="muniment-exchange").start()

    def next(self) -> tuple[T, Reply | UnavailableError] | None:
        """The next exchange to end and how, None at the deadline or when none is under way."""
        if not self._under_way:
            return None
        try:
            key, reply = self._replies.get(timeout=max(0.0, self._deadline - time.monotonic()))
        except queue.Empty:
            return None
        del self._under_way[key]
        return key, reply

    def waiting(self) -> tuple[T, ...]:
        """The keys of the exchanges still under way."""
        return tuple(self._under_way)

    def close(self) -> None:
        """Leave those under way the time they have until the deadline, then end them; returns at once."""
        if self._under_way:
            left = max(0.0, self._deadline - time.monotonic())
            reaper = threading.Timer(left, _abort_all, args=(tuple(self._under_way.values()),))
            reaper.daemon = True
            reaper.start()

    def _tls_context(self, url: str) -> ssl.SSLContext:
        import ssl

        import httpx

        if not url.lower().startswith("https:"):
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody, and costs no reading of roots
        self._tls = self._tls or httpx.create_ssl_context()
        return self._tls


def _abort_all(exchanges: Iterable[_Exchange]) -> None:
    for exchange in exchanges:
        exchange.abort()


class _Exchange:
    """One request and its reply, in the thread that calls `run`; another thread may call `abort`."""

    def __init__(self, deadline: float, max_reply_bytes: int, tls: ssl.SSLContext) -> None:
        self._deadline = deadline
        self._max_reply_bytes = max_reply_bytes
        self._tls = tls
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._aborted = False

    def run(self, method: str, url: str, body: bytes) -> Reply | UnavailableError:
        import httpx

        left = self._deadline - time.monotonic()
        if left <= 0:
            return UnavailableError("no answer before the deadline", code="late")
        mounts: dict[str, None] = dict.fromkeys(_DIRECT)
        try:
            with (
                httpx.Client(verify=self._tls, timeout=left, headers=_HEADERS, mounts=mounts) as client,
                client.stream(method, url, content=body, extensions={"trace": self._trace}) as response,
            ):
                content_type = response.headers.get("content-type", "")
                return Reply(response.status_code, content_type, self._read(response.iter_raw()))
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
            return UnavailableError(f"no answer: {type(error).__name__}", code="unreachable")
        except UnavailableError as error:
            return error
        finally:
            self._forget()

    def abort(self) -> None:
        """End the exchange from outside: a read under way returns, a connection just made is of no use."""
        with self._lock:
            self._aborted = True
            self._shut_down()

    def _read(self, chunks: Any) -> bytes:
        body = bytearray()
        for chunk in chunks:
            body += chunk
            if len(body) > self._max_reply_bytes:
                raise UnavailableError(f"expected at most {self._max_reply_bytes} bytes", code="malformed")
            if time.monotonic() > self._deadline:
                raise UnavailableError("no answer before the deadline", code="late")
        self._forget()
        return bytes(body)

    def _forget(self) -> None:
        with self._lock:
            self._connection = None

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Told by the HTTP library of each of its steps; those that make a connection return it."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            with self._lock:
                self._connection = info["return_value"].get_extra_info("socket")
                if self._aborted:
                    self._shut_down()

    def _shut_down(self) -> None:
        if self._connection is not None:
            try:
                # Not close(): by the time the reader wakes up, another file could have its number.
                socket.socket.shutdown(self._connection, socket.SHUT_RDWR)
            except OSError:
                self._connection = None  # it was not connected any more
