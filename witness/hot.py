"""A short way for the one request that a busy witness answers all day.

A POST of add-checkpoint that arrives whole, in one piece and in the plainest form, goes from the socket to the
batch and back without an HTTP parser, a task or a framework. Whatever is not exactly that, a header that could
change where the request ends among it, is left untouched to uvicorn, whose limits hold for it as for any other.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar, Final

import h11

from tlog.listener import MAX_HEADER_BYTES, Limits
from witness.answers import HttpAnswer, problem_answer
from witness.wire import MAX_BODY_BYTES

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as _Base
else:
    _Base = object

PATH: Final = "/add-checkpoint"
MAX_WAITING_BYTES: Final = 64 * 1024

_START: Final = f"POST {PATH} HTTP/1.1\r\n".encode()
_HEADERS: Final = re.compile(rb"(?:[A-Za-z0-9-]+:[\x20-\x7e]*\r\n)+")
_LENGTH: Final = re.compile(rb" ?([1-9][0-9]{0,6}) ?")
_LEFT_TO_UVICORN: Final = frozenset((b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer"))
_EVERY_ANSWER: Final = b"x-content-type-options: nosniff\r\ncache-control: no-store\r\n"
_REASONS: Final = {status.value: status.phrase.encode() for status in HTTPStatus}

Put = Callable[[bytes, Callable[[HttpAnswer], None]], None]
"""(body, deliver): has the body answered; `deliver` is called in the event loop, once."""


def whole_request(data: bytes) -> bytes | None:
    """The body, if the data is one such request and nothing else; None leaves it to others."""
    end = data.find(b"\r\n\r\n", len(_START), MAX_HEADER_BYTES)
    if end < 0 or not data.startswith(_START):
        return None
    block = data[len(_START) : end + 2]
    if not _HEADERS.fullmatch(block):
        return None
    lengths, hosts = [], 0
    for line in block[:-2].split(b"\r\n"):
        name, _, value = line.partition(b":")
        name = name.lower()
        if name == b"content-length":
            lengths.append(_LENGTH.fullmatch(value))
        elif name == b"host":
            hosts += 1
        elif name in _LEFT_TO_UVICORN or (name == b"connection" and value.strip().lower() != b"keep-alive"):
            return None
    if hosts != 1 or len(lengths) != 1 or lengths[0] is None:
        return None
    body = data[end + 4 :]
    return body if len(body) == int(lengths[0][1]) <= MAX_BODY_BYTES else None


class HotRoute(_Base):
    """Laid over a connection of uvicorn's: one request is under way at a time, whichever way it takes."""

    put: ClassVar[Put]
    limits: ClassVar[Limits]
    _asked: object | None = None  # stands for the request under way, None when there is none
    _waiting: bytes = b""
    _late: asyncio.TimerHandle | None = None
    _stopping = False

    def data_received(self, data: bytes) -> None:
        if self._asked is not None:
            self._waiting += data
            if len(self._waiting) > MAX_WAITING_BYTES:
                self.flow.pause_reading()
            return
        body = whole_request(data) if self._is_idle() else None
        if body is None:
            super().data_received(data)
        else:
            self._ask(body)

    def connection_lost(self, exc: Exception | None) -> None:
        self._answered()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        if self._asked is None:
            super().shutdown()
        else:
            self._stopping = True

    def _is_idle(self) -> bool:
        return (
            (self.cycle is None or self.cycle.response_complete)
            and self.conn.our_state is h11.IDLE
            and self.conn.their_state is h11.IDLE
            and not self.conn.trailing_data[0]
            and not self.flow.write_paused
            and len(self.connections) <= self.limits.connections
        )

    def _ask(self, body: bytes) -> None:
        self._unset_keepalive_if_required()
        self._cancel_headers_due()
        asked = self._asked = object()

        def deliver(answer: HttpAnswer) -> None:
            if self._asked is asked:  # else it came too late, or the client has gone
                self._answer(answer)

        self._late = self.loop.call_later(self.limits.answer_seconds, self._give_up)
        type(self).put(body, deliver)

    def _give_up(self) -> None:
        self._answer(problem_answer(503, "busy", "no answer in time; try again", [(b"retry-after", b"1")]))

    def _answer(self, answer: HttpAnswer) -> None:
        self._answered()
        closing = b"connection: close\r\n" if self._stopping else b""
        headers = [*self.server_state.default_headers, *answer.all_headers()]
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        start = b"HTTP/1.1 %d %b\r\n" % (answer.status, _REASONS[answer.status])
        self.transport.write(b"".join((start, lines, _EVERY_ANSWER, closing, b"\r\n", answer.body)))
        if self._stopping:
            self.transport.close()
            return
        self.on_response_complete()
        if self._waiting:
            waiting, self._waiting = self._waiting, b""
            self.data_received(waiting)

    def _answered(self) -> None:
        self._asked = None
        if self._late is not None:
            self._late.cancel()
            self._late = None

    if TYPE_CHECKING:

        def _cancel_headers_due(self) -> None: ...


def lay_over(protocol: Any, put: Put, limits: Limits) -> Any:
    """The class of a server's connections, with the short way laid over it."""
    return type("HotProtocol", (HotRoute, protocol), {"put": staticmethod(put), "limits": limits})


def counted(put: Put, count: Callable[[HttpAnswer, float], None]) -> Put:
    """`put`, with each answer and the seconds that it took told to `count`."""

    def counting(body: bytes, deliver: Callable[[HttpAnswer], None]) -> None:
        began = time.monotonic()

        def tell(answer: HttpAnswer) -> None:
            count(answer, time.monotonic() - began)
            deliver(answer)

        put(body, tell)

    return counting
