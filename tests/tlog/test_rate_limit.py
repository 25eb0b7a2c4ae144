from __future__ import annotations

from typing import Any

import pytest

from tlog.errors import MalformedError
from tlog.rate_limit import Rate, RateLimiter, forwarded_for, peer_of


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_grants_a_burst_and_then_the_rate(clock: Clock) -> None:
    limiter = RateLimiter(Rate(2.0, 3), clock)
    assert [limiter.wait_seconds("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    clock.now += 0.5
    assert [limiter.wait_seconds("a") for _ in range(2)] == [0.0, 0.5]
    clock.now += 3600
    assert [limiter.wait_seconds("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


def test_whoever_keeps_asking_is_not_kept_waiting_for_longer(clock: Clock) -> None:
    limiter = RateLimiter(Rate(1.0, 1), clock)
    limiter.wait_seconds("a")
    for _ in range(10):
        assert 0 < limiter.wait_seconds("a") <= 1
        clock.now += 0.09
    clock.now += 0.1
    assert limiter.wait_seconds("a") == 0.0


def test_clients_do_not_share(clock: Clock) -> None:
    limiter = RateLimiter(Rate(1.0, 1), clock)
    assert [limiter.wait_seconds(client) for client in "abab"] == [0.0, 0.0, 1.0, 1.0]


def test_what_was_refused_costs_more_and_debt_is_bounded(clock: Clock) -> None:
    limiter = RateLimiter(Rate(1.0, 10), clock)
    assert limiter.wait_seconds("a") == 0.0
    limiter.charge("a", 9)
    assert limiter.wait_seconds("a") == 1.0
    for _ in range(100):
        limiter.charge("a", 9)
    assert limiter.wait_seconds("a") == 11.0
    limiter.charge("b", 5)  # nobody that was granted anything
    assert limiter.wait_seconds("b") == 0.0


def test_memory_is_bounded_and_the_quietest_is_forgotten(clock: Clock) -> None:
    limiter = RateLimiter(Rate(1.0, 1), clock, max_clients=2)
    for client in "abc":
        limiter.wait_seconds(client)
    assert limiter.wait_seconds("c") > 0
    assert limiter.wait_seconds("a") == 0.0


@pytest.mark.parametrize(
    ("per_second", "burst"), [(0, 1), (-1, 1), (float("nan"), 1), (1, 0), (1e9, 1), (1, 10**9)]
)
def test_refuses_what_is_no_rate(per_second: float, burst: int) -> None:
    with pytest.raises(MalformedError):
        Rate(per_second, burst)


def scope(client: str | None, *forwarded: str) -> Any:
    headers = [(b"x-forwarded-for", value.encode("latin-1")) for value in forwarded]
    return {"client": (client, 1) if client is not None else None, "headers": headers}


def test_a_client_is_its_address_and_of_ipv6_its_network() -> None:
    assert peer_of(scope("192.0.2.7")) == "192.0.2.7"
    assert peer_of(scope("::ffff:192.0.2.7")) == "192.0.2.7"
    assert peer_of(scope("2001:db8:1:2:3::4")) == peer_of(scope("2001:db8:1:2:ffff::")) == "2001:db8:1:2::"
    assert peer_of(scope("2001:db8:1:3::")) != peer_of(scope("2001:db8:1:2::"))
    assert peer_of(scope(None)) == ""


def test_only_the_last_word_is_the_proxys() -> None:
    assert forwarded_for(scope("10.0.0.1", "192.0.2.7")) == "192.0.2.7"
    assert forwarded_for(scope("10.0.0.1", "forged, 198.51.100.9, 192.0.2.7")) == "192.0.2.7"
    assert forwarded_for(scope("10.0.0.1", "198.51.100.9", "192.0.2.7")) == "192.0.2.7"
    for nothing in ((), ("",), ("unknown",), ("192.0.2.7,",), ("\xff",)):
        assert forwarded_for(scope("10.0.0.1", *nothing)) == "10.0.0.1"
