"""No option of `audit` is passed over: what would not count is said to be wrong, before anything is read."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from memory import cli

URL = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--once"], "--follow URL with --once"),
        (["--interval", "5m", "--metrics", "127.0.0.1:0"], "--interval, --metrics"),
        (["--max-age", "1h"], "--max-age"),
        (["--origin", "log"], "--origin"),
        (["--follow", URL, "--home", "x", "--report", "r.html"], "without --home, --report"),
        (["--follow", URL, "--log", "x", "--tenant", "acme"], "without --log, --tenant"),
        (["--follow", URL, "--needles", "-", "--also", "x"], "without --needles, --also"),
        (["--follow", URL, "--manifest", "x", "--receipts", "x"], "without --receipts, --manifest"),
        (["--log", "LOG", "--trust", "TRUST", "--tenant", "acme"], "a log has no tenants"),
        (["--log", "LOG", "--trust", "TRUST", "--also", "x"], "and no files"),
        (["--manifest", "x", "--trust", "TRUST"], "no home where one would be"),
        (["--log", "LOG", "--trust", "TRUST", "--manifest", "TRUST"], "a file that is a manifest"),
    ],
)
def test_an_option_that_would_not_count_is_an_error(
    copy: Any, given: list[str], said: str, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.delenv("MUNIMENT_HOME", raising=False)
    places = {"LOG": str(copy.home / "log"), "TRUST": str(copy.home / "trust.toml")}
    assert cli.main(["audit", *(places.get(one, one) for one in given)]) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_promises_nothing_is_not_taken_for_one_that_was_kept(copy: Any, tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    folder.mkdir()
    (folder / "one.json").write_text(json.dumps({"receipt": {"state": "pending", "entry": "x"}}))
    (folder / "two.json").write_text("{}")
    texts = {note.text: note.count for note in copy.audit(receipts=folder).outcome.not_checked}
    assert texts["files in which no promise or proof to a client is"] == 2


def test_a_promise_is_broken_once_it_is_older_than_the_delay(copy: Any, tmp_path: Path) -> None:
    """A log alone, a bundle's, or the home: whatever a client holds counts the same."""
    (commitment,) = copy.ask("SELECT commitment FROM events ORDER BY seq DESC LIMIT 1")[0]
    import base64

    named = base64.b32encode(commitment[:16]).decode().rstrip("=").lower()
    folder = tmp_path / "receipts"
    folder.mkdir()
    answer = folder / "answer.json"
    answer.write_text(json.dumps({"id": named, "receipt": {"state": "pending", "entry": None}}))
    assert copy.codes(receipts=folder) == set()
    old = time.time() - copy.trust.merge_delay_seconds - 60
    os.utime(answer, (old, old))
    assert copy.codes(receipts=folder) == {"PROMISE_BROKEN"}
