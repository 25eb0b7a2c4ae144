"""Every line a client sends over stdio is answered if it asks for something, also where nothing can be made of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.mcp_lines import MAX_LINE_BYTES, Unreadable, read_message

REPOSITORY = Path(__file__).resolve().parent.parent.parent
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def call(id: Any, text: str) -> bytes:
    params = {"name": "remember", "arguments": {"text": text}}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).encode()


# line, code of the answer (None: no answer), its id
CASES = [
    (call(7, "lone \udc9d surrogate"), -32602, 7),
    (call("seven", "lone \ud83d surrogate"), -32602, "seven"),
    (call("\ud800", "a text"), -32602, None),
    (call(8, "latin").replace(b"latin", b"caf\xe9"), -32700, 8),
    (b"\xff\xfe\x00", -32700, None),
    (b'{"jsonrpc": "2.0", "id": 9, "method": ', -32700, None),
    (b'{"jsonrpc": "2.0", "id": 10, "method": "ping", "params": {"n": NaN}}', -32700, None),
    (b"[" * 100_000, -32700, None),
    (b"[]", -32600, None),
    (b'"text"', -32600, None),
    (b"{}", -32600, None),
    (b'{"id": 11, "method": "ping"}', -32600, 11),
    (b'{"jsonrpc": "2.0", "id": 12, "method": 3}', -32600, 12),
    (b'{"jsonrpc": "2.0", "id": 13, "method": "ping", "params": [1]}', -32600, 13),
    (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600, None),
    (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600, None),
    (b'{"jsonrpc": "2.0", "id": {"a": 1}, "method": "ping"}', -32600, None),
    (b" " * (MAX_LINE_BYTES + 5) + b"{}", -32600, None),
    (b'{"jsonrpc": "2.0", "method": "notifications/x", "params": {"a": "\\udc00"}}', None, None),
    (b"", None, None),
    (b"   ", None, None),
]


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_a_real_server_answers_each_of_them_and_goes_on(tmp_path: Path, newline: bytes) -> None:
    asked = [json.dumps(HELLO).encode(), json.dumps(READY).encode()]
    asked += [line for line, _, _ in CASES] + [call("last", "a sound line")]
    with subprocess.Popen(
        [sys.executable, "-m", "memory.cli", "mcp", "--home", str(tmp_path / "home")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"".join(line + newline for line in asked))
        process.stdin.flush()
        lines = []
        while not lines or b'"last"' not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], "the server ended"
        rest, _ = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, b"")
    answers = [json.loads(line) for line in lines]
    errors = [(one["error"]["code"], one["id"]) for one in answers if "error" in one]
    assert sorted(errors, key=str) == sorted(
        [(code, id) for _, code, id in CASES if code is not None], key=str
    )
    results = {one["id"]: one["result"] for one in answers if "result" in one}
    assert set(results) == {1, "last"}
    assert results["last"]["structuredContent"]["outcome"] == "stored"
    # What could not be read is not repeated.
    said = b"".join(lines)
    assert b"surrogate" not in said.replace(b"lone surrogates", b"") and b"caf" not in said


@pytest.mark.parametrize(("line", "code", "id"), CASES)
def test_what_a_line_comes_to(line: bytes, code: int | None, id: object) -> None:
    found = read_message(line, lambda text: "jsonrpc" in text and '": 3' not in text and "[1]" not in text)
    if code is None:
        assert found is None or (isinstance(found, Unreadable) and found.silent)
    else:
        assert isinstance(found, Unreadable)
        assert (found.code, found.id, found.silent) == (code, id, False)


def test_a_sound_message_goes_on_as_it_is() -> None:
    line = call(3, "ein schöner Tag 🌤 und \u202e mehr")
    assert read_message(line + b"\n", lambda _: True) == line.decode() + "\n"


@given(st.binary(max_size=200))
def test_any_bytes_have_an_answer(line: bytes) -> None:
    found = read_message(line, lambda _: False)
    assert found is None or isinstance(found, Unreadable)
