"""What a request has to be like before anybody looks at who sent it: the right host, no foreign page, plain JSON.

A web page anywhere can make its visitor's browser call a server on the visitor's own machine, by a name that it lets
point there (DNS rebinding) or by the address itself. So the Host has to be one that this server is reached by, and an
Origin, where a browser tells one, one that the owner named.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from memory.http_paging import check_page_limit
from memory.http_schemas import Schema
from tlog.errors import Error, MalformedError, RefusedError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

UNGUARDED: Final = ("/healthz", "/readyz")
"""Whoever watches a server knows it by its address."""
Refuse = Callable[[Error, str], "ASGIApp"]
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_FOREIGN: Final = ("cross-site", "same-site")


@dataclass(frozen=True)
class Reached:
    """By which hosts a server is reached, and which pages may call it. Ports count: another one is another site."""

    hosts: frozenset[str]
    origins: frozenset[str]

    def check(self, headers: Mapping[str, str]) -> None:
        """Returns if a request with these headers is meant for this server and from no foreign page."""
        if headers.get("host", "").lower() not in self.hosts:
            raise RefusedError("this server is not reached by that Host; see --url", code="wrong_host")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in self.origins:
            raise RefusedError(
                "pages of that origin may not call this server; see --origin", code="forbidden"
            )
        if origin is None and headers.get("sec-fetch-site") in _FOREIGN:
            raise RefusedError("pages of other sites may not call this server", code="forbidden")


def reached_by(listening: str, url: str | None, origins: Collection[str]) -> Reached:
    """What holds for a server that listens at one address and is reached by another, if `url` is given.

    On loopback all names of the machine itself are taken.
    """
    own = urlsplit(listening)
    hosts = {own.netloc}
    if own.hostname in ("127.0.0.1", "localhost", "::1"):
        hosts |= {f"{name}:{own.port}" for name in _LOOPBACK}
    allowed = {f"http://{host}" for host in hosts} if url is None else set()
    if url is not None:
        parts = urlsplit(url)
        default = {"https": 443, "http": 80}[parts.scheme]
        hosts.add(parts.netloc.lower())
        hosts.add(f"{parts.hostname}:{parts.port or default}")
        allowed.add(f"{parts.scheme}://{parts.netloc}".lower())
    return Reached(frozenset(hosts), frozenset(allowed | {_check_origin(one) for one in origins}))


def check_url(text: str) -> str:
    """`text`, if it is an address that clients may reach a server by, without a slash at its end."""
    parts = _split(text)
    if parts is None or parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise MalformedError("expected --url as https://HOST, or https://HOST:PORT, without a path")
    return f"{parts.scheme}://{parts.netloc}".lower()


def guard_hosts(app: ASGIApp, reached: Callable[[], Reached], refuse: Refuse) -> ASGIApp:
    """`app`, reached only by requests that are meant for it; `refuse(error, path)` answers the others."""
    from starlette.datastructures import Headers

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in UNGUARDED:
            headers = Headers(scope=scope)
            try:
                if any(len(headers.getlist(name)) > 1 for name in ("host", "origin", "authorization")):
                    raise MalformedError("expected Host, Origin and Authorization at most once each")
                reached().check(headers)
            except Error as error:
                await refuse(error, scope["path"])(scope, receive, send)
                return
        await app(scope, receive, send)

    return guarded


def parse_body(body: bytes, media_type: str) -> dict[str, Any]:
    """The arguments in a body: one JSON object without a name twice; nothing at all is an empty one."""
    if not body:
        return {}
    if media_type.partition(";")[0].strip().lower() != "application/json":
        raise MalformedError("expected a body of the type application/json", code="unsupported_media_type")
    try:
        found = json.loads(body, object_pairs_hook=_object, parse_float=_number, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise MalformedError("expected the body to be one JSON object") from None
    if not isinstance(found, dict):
        raise MalformedError("expected the body to be one JSON object")
    return found


def parse_query(pairs: Collection[tuple[str, str]], allowed: Schema) -> dict[str, Any]:
    """The arguments in a query, each once."""
    found = dict(pairs)
    if not found.keys() <= allowed.keys():
        names = ", ".join(sorted(allowed)) or "(none)"
        raise MalformedError(f"expected only the parameters {names}", code="unknown_argument")
    if len(found) != len(pairs):
        raise MalformedError("expected each parameter once")
    if "limit" in found:
        return found | {"limit": check_page_limit(found["limit"])}
    return found


def parse_idempotency_key(header: str) -> str:
    """The key in a header, as a structured string (draft-ietf-httpapi-idempotency-key-header) or as it is."""
    if len(header) >= 2 and header[0] == header[-1] == '"':
        inner = header[1:-1].replace("\\\\", "\\").replace('\\"', '"')
    else:
        inner = header
    if not inner.isascii() or not inner.isprintable():
        raise MalformedError("expected Idempotency-Key as printable ASCII")
    return inner


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise MalformedError("expected no name twice in an object")
    return found


def _number(text: str) -> float | int:
    """JSON knows one kind of number: 5.0 is the whole number 5."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _no_constant(_: str) -> None:
    raise MalformedError("expected no NaN and no Infinity: they are not JSON")


def _check_origin(text: str) -> str:
    parts = _split(text)
    if parts is None or parts.path or parts.query or parts.fragment:
        raise MalformedError("expected --origin as a browser sends it: https://HOST or https://HOST:PORT")
    return text.lower()


def _split(text: str) -> Any:
    try:
        parts = urlsplit(text)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return None
    return parts if sound and text.isascii() and text.isprintable() and " " not in text else None
