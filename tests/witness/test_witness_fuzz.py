"""The fuzzing of the parser and of `decide`: that it holds for a while here, and that it would find something."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SCRIPT = Path(__file__).with_name("witness_fuzz.py")
_SPEC = importlib.util.spec_from_file_location("witness_fuzz", SCRIPT)
assert _SPEC is not None and _SPEC.loader is not None
fuzz: Any = importlib.util.module_from_spec(_SPEC)
sys.modules["witness_fuzz"] = fuzz
_SPEC.loader.exec_module(fuzz)

target = fuzz.Target()
SEEDS = fuzz.seeds(target)


def run_seeds() -> None:
    for one in SEEDS:
        target(one)


def test_the_seeds_come_to_every_status() -> None:
    target.statuses.clear()
    run_seeds()
    assert set(target.statuses) == {200, 400, 403, 404, 409, 422}


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SEEDS), st.integers(0, 700), st.binary(max_size=4), st.integers(0, 4))
def test_changed_seeds_are_answered_as_the_reference_does(
    one: bytes, place: int, middle: bytes, skipped: int
) -> None:
    target(one[:place] + middle + one[place + skipped :])


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_answered_as_the_reference_does(data: bytes) -> None:
    target(data)


def lenient(text: str, what: str) -> int:
    return int(text)


def any_line(note: Any, *_: object) -> list[Any]:
    return [SimpleNamespace(line=note.signatures[0])]


WEAKENED = {
    "proofs are not checked": ("witness.decide.verify_consistency", lambda *_: None),
    "signatures are not checked": (
        "witness.decide.verify_log_lines",
        any_line,
    ),
    "sizes are read leniently": ("witness.wire.parse_decimal", lenient),
    "64 proof lines are taken": ("witness.wire.MAX_PROOF_HASHES", 64),
}


@pytest.mark.parametrize("how", WEAKENED)
def test_a_weaker_witness_is_found_out(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """By the seeds alone, or by a body that a lenient parser takes or falls over."""
    where, what = WEAKENED[how]
    monkeypatch.setattr(where, what)
    body = target.pair.request(0, [], target.pair.note(3, target.pair.HONEST))
    tricky = [body.replace(b"old 0", spelt) for spelt in (b"old 00", b"old +0", b"old \xd9\xa3", b"old x")]
    many = target.pair.request(0, [b"\1" * 32] * 64, target.pair.note(3, target.pair.HONEST))
    with pytest.raises((AssertionError, ValueError)):
        run_seeds()
        for one in (*tricky, many):
            target(b"\0\0" + one)


def test_the_script_runs_for_its_time_and_says_what_it_did(tmp_path: Path) -> None:
    counts = tmp_path / "counts.json"
    subprocess.run(
        [sys.executable, str(SCRIPT), "--seconds", "1", "--counts", str(counts), "--engine", "hypothesis"],
        check=True,
        timeout=120,
        cwd=tmp_path,
    )
    found = json.loads(counts.read_text())
    assert found["engine"] == "hypothesis"
    assert found["inputs"] == sum(found["statuses"].values()) > len(SEEDS)
