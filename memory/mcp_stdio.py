"""The MCP server over standard input and output, for one client, as a host starts it.

Scope comes from the environment of the process. Standard output carries the protocol alone: whatever else is printed
goes to standard error. The first request is answered before the store is opened, and nothing is published before
PUBLISH_SECONDS have passed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import anyio
import anyio.to_thread

from memory.mcp_lines import MAX_LINE_BYTES, Unreadable, read_message
from memory.mcp_server import Binding, error_message, is_message, make_server, serve_lines
from tlog.errors import Error

if TYPE_CHECKING:
    from memory.wiring import Home

PUBLISH_SECONDS: Final = 10.0


def serve_stdio(home: Home, binding: Binding) -> None:
    """Serves one client on standard input and output until it goes away; publishes meanwhile."""
    # A buffered print would land in the protocol stream at exit.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)
    anyio.run(_serve, home, binding)


async def _serve(home: Home, binding: Binding) -> None:
    async def publish() -> None:
        await publish_regularly(home)

    server = make_server(home, binding)
    with _standard_input() as stream:
        await serve_lines(server, _Lines(stream), publish)


@contextmanager
def _standard_input() -> Iterator[BinaryIO]:
    """Standard input for the protocol alone: whatever else reads descriptor 0 meets its end at once."""
    kept = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        # A thread may still wait on it when the server ends, so it stays open for the process to close.
        yield os.fdopen(kept, "rb", closefd=False)
    finally:
        os.dup2(kept, 0)


class _Lines:
    """The lines of a client that the SDK may read; each other one is answered here, for the SDK would drop it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._writer: Any = None
        self._can_answer = anyio.Event()

    def answer_on(self, writer: Any) -> None:
        """From now on there is a way to answer."""
        self._writer = writer
        self._can_answer.set()

    async def __aiter__(self) -> AsyncIterator[str]:
        while raw := await anyio.to_thread.run_sync(self._next_line):
            message = read_message(raw, is_message)
            if isinstance(message, Unreadable):
                await self._answer(message)
            elif message is not None:
                yield message

    def _next_line(self) -> bytes:
        """The next line, of one that is too long as much as shows that it is."""
        line = self._stream.readline(MAX_LINE_BYTES + 2)
        more = line
        while more and not more.endswith(b"\n"):
            more = self._stream.readline(MAX_LINE_BYTES)
            if len(line) <= MAX_LINE_BYTES:
                line += more
        return line

    async def _answer(self, problem: Unreadable) -> None:
        if problem.silent:
            print(f"muniment: {problem.message}", file=sys.stderr)  # noqa: T201
            return
        await self._can_answer.wait()
        # The client may have gone away meanwhile.
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._writer.send(error_message(problem))


async def publish_regularly(home: Home) -> None:
    """Publishes on a fixed cadence; a failure is said on standard error and tried again."""
    while True:
        await anyio.sleep(PUBLISH_SECONDS)
        try:
            await anyio.to_thread.run_sync(home.publish_if_needed, abandon_on_cancel=True)
        except Error as error:
            print(f"muniment: publishing: {error.message}", file=sys.stderr)  # noqa: T201
