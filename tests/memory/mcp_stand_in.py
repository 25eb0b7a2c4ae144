"""What `memory.http_server` asks of the MCP application, and no more: for tests of what stands before it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio.to_thread
from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from memory.model import Principal
from tlog.errors import Error

LOOPBACK_HOSTS: Final = ("127.0.0.1:*",)
LOOPBACK_ORIGINS: Final = ("http://127.0.0.1:*",)


def make_asgi(
    home: Any,
    authenticate: Callable[[Mapping[str, str]], Principal],
    *,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    challenged: Callable[[Error], Mapping[str, str]],
) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            ask = functools.partial(authenticate, Headers(scope=scope))
            principal = await anyio.to_thread.run_sync(ask)
            response = JSONResponse({"agent": principal.agent, "path": scope["path"], "hosts": hosts})
        except Error as error:
            told = {"www-authenticate": str(error.fields.get("www_authenticate"))}
            response = JSONResponse({"code": error.code}, 401 if error.code == "unauthorized" else 429, told)
        await response(scope, receive, send)

    return app
