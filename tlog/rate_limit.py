"""How many requests a client may make: a token bucket for each, in bounded memory."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tlog.errors import MalformedError

if TYPE_CHECKING:
    from starlette.types import Scope

MAX_CLIENTS: Final = 20_000
_IPV6_SITE_BITS: Final = 64


@dataclass(frozen=True)
class Rate:
    """A steady rate, and how many requests may come at once after a pause."""

    per_second: float
    burst: int

    def __post_init__(self) -> None:
        if not (0 < self.per_second <= 1e6 and 1 <= self.burst <= 10**6):
            raise MalformedError("rate: expected more than 0 requests a second and a burst of 1 or more")


class RateLimiter:
    """Grants each client the same rate. Used from one event loop, or one thread at a time.

    Of more than `max_clients` the one that asked longest ago is forgotten: it has its full burst again.
    """

    def __init__(
        self, rate: Rate, clock: Callable[[], float] = time.monotonic, max_clients: int = MAX_CLIENTS
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._max_clients = max_clients
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and when

    def wait_seconds(self, client: str) -> float:
        """0.0 if the client may go on, which takes one of its tokens; else how long until it may."""
        now = self._clock()
        tokens, then = self._buckets.pop(client, (float(self._rate.burst), now))
        tokens = min(tokens + (now - then) * self._rate.per_second, float(self._rate.burst))
        granted = tokens >= 1.0
        self._buckets[client] = (tokens - 1.0 if granted else tokens, now)
        while len(self._buckets) > self._max_clients:
            self._buckets.popitem(last=False)
        return 0.0 if granted else (1.0 - tokens) / self._rate.per_second

    def charge(self, client: str, tokens: float) -> None:
        """Takes more tokens for what the client was granted already; it may owe up to one burst."""
        if client in self._buckets:
            had, then = self._buckets[client]
            self._buckets[client] = (max(had - tokens, -float(self._rate.burst)), then)


ClientOf = Callable[["Scope"], str]
"""Returns the name by which a client is counted."""


def peer_of(scope: Scope) -> str:
    """The address at the other end of the connection; of IPv6 the network that one site has."""
    peer = scope.get("client")
    return _site(peer[0]) if peer else ""


def forwarded_for(scope: Scope) -> str:
    """The address that the nearest proxy says it forwards for, else the proxy's own.

    Only the last entry of X-Forwarded-For is the proxy's word; all before it is the client's. To be used only
    where no client reaches the service without that proxy.
    """
    headers = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
    last = headers[-1].decode("latin-1").rpartition(",")[2].strip() if headers else ""
    try:
        ipaddress.ip_address(last)
    except ValueError:
        return peer_of(scope)
    return _site(last)


def _site(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    # One customer has at least 2**64 addresses; counted one by one they would have no limit.
    return str(ipaddress.ip_network((int(parsed), _IPV6_SITE_BITS), strict=False).network_address)
