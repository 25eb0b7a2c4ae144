"""Signatures verified ahead: nothing is said to hold that does not, and a process that is ended costs time alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from auditor import ahead
from auditor.ahead import verified_ahead
from auditor.evidence import Entries, Span
from tlog.cose_keys import make_signer
from tlog.statement import sign_statement
from tlog.trust import Trust, TrustedKey, make_trust

ONE = make_signer(Ed25519PrivateKey.from_private_bytes(b"\x01" * 32))
TWO = make_signer(ec.derive_private_key(7, ec.SECP256R1()))
STRANGER = make_signer(Ed25519PrivateKey.from_private_bytes(b"\x03" * 32))
TRUST: Trust = make_trust(
    "quorum none\n", tuple(TrustedKey("issuer", each.key, 1_000_000) for each in (ONE, TWO))
)


def statement(number: int, signer: Any = ONE) -> bytes:
    return sign_statement(signer, "issuer", "subject", sha256(b"%d" % number).digest())


def log_of(*entries: bytes | None, verified: int = 0) -> Entries:
    return Entries(len(entries), entries, True, (Span(0, len(entries), "log", None, verified),))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ahead, "PIECE", 4)
    monkeypatch.setattr(ahead, "MIN_ENTRIES", 1)
    yield


def test_what_holds_is_told_with_its_key_and_nothing_else_is() -> None:
    spoiled = statement(3)[:-1] + bytes((statement(3)[-1] ^ 1,))
    entries = (statement(0), statement(1, TWO), spoiled, statement(4, STRANGER), b"none", None, statement(6))
    told: list[tuple[str, int, int]] = []
    with verified_ahead(log_of(*entries), TRUST, 2, lambda *said: told.append(said)) as log:
        held = [
            [log.holds(index, log.span_of(index, entry or b""), each.key) for each in (ONE, TWO, STRANGER)]
            for index, entry in enumerate(entries)
        ]
        assert not log.holds(1, log.span_of(1, entries[0] or b""), ONE.key)
        assert not log.holds(None, log.spans[0], ONE.key)
    nothing = [False, False, False]
    assert held == [[True, False, False], [False, True, False], *[nothing] * 4, [True, False, False]]
    assert told[-1] == ("signatures", 6, 6)


def test_what_was_verified_before_is_not_verified_again() -> None:
    entries = tuple(map(statement, range(6)))
    with verified_ahead(log_of(*entries, verified=5), TRUST, 2, lambda *_: None) as log:
        assert [
            log.holds(index, log.span_of(index, entry), ONE.key) for index, entry in enumerate(entries)
        ] == [False] * 5 + [True]


@pytest.mark.filterwarnings("error")
def test_what_an_ended_process_had_is_left_to_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = tuple(map(statement, range(40)))
    with verified_ahead(log_of(*entries), TRUST, 2, lambda *_: None) as log:
        assert log.ahead is not None
        first: Any = log.ahead._handed.futures[0]  # type: ignore[attr-defined]
        first.result()
        for child in multiprocessing_children():
            os.kill(child, signal.SIGKILL)
        held = [log.holds(index, log.span_of(index, entry), ONE.key) for index, entry in enumerate(entries)]
    assert held[:4] == [True] * 4
    # None but what was on its way to a process is left: the rest is done here.
    assert held.count(False) <= 4 * 5


def multiprocessing_children() -> list[int]:
    import multiprocessing

    return [child.pid for child in multiprocessing.active_children() if child.pid is not None]


@pytest.mark.parametrize("trust", [make_trust("quorum none\n"), TRUST])
def test_without_keys_or_others_to_do_it_nothing_is_begun(trust: Trust) -> None:
    processes = 1 if trust is TRUST else 2
    with verified_ahead(log_of(statement(0)), trust, processes, lambda *_: None) as log:
        assert log.ahead is None
