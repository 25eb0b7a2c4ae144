"""Sequences of requests and their statuses, over a real process: our own, and litewitness's where they are at hand.

litewitness tests itself with request bodies in scripts (torchwood, cmd/litewitness/testdata). They are not ours and not
kept here; put into a folder `litewitness` of the outside vectors they are sent as they stand, and answered as there but
where the specification has changed since.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from memory import cli
from tlog.checkpoint import format_checkpoint
from tlog.cosignature import verify_cosignature
from tlog.note import Note, make_verifier_key, parse_vkey
from witness.wire import format_add_checkpoint, parse_add_checkpoint, parse_cosignatures

REPOSITORY = Path(__file__).resolve().parent.parent.parent
NAME = "example.com/witness"
# What the specification says since: (their status, a word of their answer) to the status.
CHANGED = {(403, "unknown log"): 404}


def muniment(*arguments: str) -> str:
    """What a command says, run in this process."""
    said = io.StringIO()
    with redirect_stdout(said):
        assert cli.main(["witness", *arguments]) == 0
    return said.getvalue()


@contextmanager
def serving(state: Path, logs: list[tuple[str, str]], keys: int = 1) -> Iterator[str]:
    """The URL of a witness process that knows these logs, by origin and vkey, and has so many Ed25519 keys."""
    muniment("init", "--state", str(state), "--name", NAME)
    for _ in range(keys - 1):
        muniment("rotate-key", "--state", str(state))
    for origin, vkey in logs:
        muniment("add-log", "--state", str(state), "--vkey", vkey, "--origin", origin)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "memory.cli", "witness", "serve", "--state", str(state), "--json"),
            *("--listen", "127.0.0.1:0"),
        ],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["listening"]
    finally:
        process.terminate()
        process.communicate(timeout=20)


def post(url: str, body: bytes) -> tuple[int, str, bytes]:
    """Status, content type and body."""
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/add-checkpoint", body)) as answer:
            return answer.status, answer.headers["content-type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["content-type"], error.read()


def check_cosigned(state: Path, body: bytes, answer: bytes) -> None:
    """One line for each key of the witness, each of which holds and has a time."""
    keys = json.loads(muniment("status", "--state", str(state), "--json"))["vkeys"]
    text = parse_add_checkpoint(body).note.text
    lines = parse_cosignatures(answer)
    assert len(lines) == len(keys)
    for vkey, line in zip(keys, lines, strict=True):
        assert verify_cosignature(parse_vkey(vkey), line, text).timestamp > 0


# Our own


def test_a_log_s_life_has_the_statuses_of_the_specification(tmp_path: Path, log: Any, sim: Any) -> None:
    """Heads of 1, 3 and 5 entries, what goes wrong between them, and what each answer leaves as it was."""
    state, fork = tmp_path / "state", log.fork_at(1)
    mended = log.prove(3, 5)
    stranger = sim.Log(log.entries, "log.example/stranger", 9)
    other_key = sim.Log(log.entries, log.origin, 9)
    steps: list[tuple[str, bytes, int, bytes | None]] = [
        ("not a request", b"old 0\n", 400, None),
        ("a log that nobody named", stranger.body(0, 1), 404, None),
        ("an old size before the first contact", log.body(1, 3), 409, b"0\n"),
        ("a proof from nothing", format_add_checkpoint(0, [b"\1" * 32], log.note(1)), 422, None),
        ("the first head", log.body(0, 1), 200, None),
        ("a signature with a bit turned", log.body(1, 3)[:-90] + sim.tampered(log.note(3))[-90:], 403, None),
        ("the key of somebody else", other_key.body(1, 3), 403, None),
        ("no proof", format_add_checkpoint(1, [], log.note(3)), 422, None),
        ("a proof with a hash changed", format_add_checkpoint(1, [b"\1" * 32] * 2, log.note(3)), 422, None),
        ("another history", format_add_checkpoint(1, log.prove(1, 3), fork.note(3)), 422, None),
        ("the second head", log.body(1, 3), 200, None),
        ("the old size of before", log.body(1, 5), 409, b"3\n"),
        ("an old size above the head", format_add_checkpoint(9, [], log.note(5)), 400, None),
        ("the third head", format_add_checkpoint(3, mended, log.note(5)), 200, None),
        ("as if for the first time", format_add_checkpoint(0, [], log.note(5)), 409, b"5\n"),
        ("the same head again", log.body(5, 5), 200, None),
        ("the same head with a proof", format_add_checkpoint(5, mended, log.note(5)), 422, None),
        ("another root of this size", fork.body(5, 5), 422, None),
        ("a smaller head", format_add_checkpoint(3, [], log.note(3)), 409, b"5\n"),
    ]
    with serving(state, [(log.origin, log.signer.verifier_key.vkey)]) as url:
        for what, body, status, said in steps:
            found, media_type, answer = post(url, body)
            assert (what, found) == (what, status)
            if said is not None:
                assert (media_type, answer) == ("text/x.tlog.size", said), what
            if status == 200:
                check_cosigned(state, body, answer)


def test_two_keys_of_one_name_give_two_lines(tmp_path: Path, log: Any) -> None:
    state, body = tmp_path / "state", log.body(0, 1)
    with serving(state, [(log.origin, log.signer.verifier_key.vkey)], keys=2) as url:
        status, _, answer = post(url, body)
    assert (status, len(answer.splitlines())) == (200, 2)
    check_cosigned(state, body, answer)


@pytest.mark.parametrize("timestamp", [0, 1_790_000_000])
def test_a_log_that_signs_with_mldsa_is_cosigned(tmp_path: Path, log: Any, sim: Any, timestamp: int) -> None:
    """Its line is timestamped like a cosignature; a log may leave the time at 0, and its name is not the origin."""
    state = tmp_path / "state"
    signer = sim.make_cosigner("key.example/pq", 7, 6)
    text = format_checkpoint(log.checkpoint(3))
    body = format_add_checkpoint(0, [], Note(text, (signer.cosign(text, timestamp),)))
    with serving(state, [(log.origin, signer.verifier_key.vkey)]) as url:
        status, _, answer = post(url, body)
        wrong = body[:-20] + (b"A" if body[-20:-19] != b"A" else b"B") + body[-19:]
        assert post(url, wrong)[0] == 403
    assert status == 200
    check_cosigned(state, body, answer)


# litewitness's


@dataclass(frozen=True)
class Step:
    """A request as it stands in a script, and what the script expects."""

    body: bytes
    status: int
    asserts: str


def logs_of(script: str) -> list[tuple[str, str]]:
    """Origin and vkey of the logs that a script adds."""
    logs = []
    for line in script.partition("\n-- ")[0].splitlines():
        words = shlex.split(line, comments=True)
        if words[1:3] == ["witnessctl", "add-sigsum-log"]:
            key = bytes.fromhex(words[3].removeprefix("-key="))
            origin = f"sigsum.org/v1/tree/{sha256(key).hexdigest()}"
            logs.append((origin, make_verifier_key(origin, 1, key).vkey))
        elif words[1:3] == ["witnessctl", "add-key"]:
            logs.append((words[4], words[6]))
    return logs


def steps_of(script: str) -> list[Step]:
    """The requests of its part in the language of hurl."""
    part = script.partition("-- add-checkpoint.hurl --\n")[2].partition("\n-- ")[0]
    found = re.findall(r"^POST \S+\n```\n(.*?)```\nHTTP (\d+)\n(.*?)(?=^POST |\Z)", part, re.S | re.M)
    return [Step(body.encode(), int(status), asserts) for body, status, asserts in found]


def keys_of(script: str) -> int:
    """With how many keys the witness of a script is started."""
    (line,) = re.findall(r"^exec litewitness .*$", script, re.M)
    return len(re.findall(r" -key[ =]", line))


def canonical(body: bytes) -> bytes:
    """The body with its last signature written as base64 has to be: bits that mean nothing are zero."""
    start, _, encoded = body.removesuffix(b"\n").rpartition(b" ")
    return start + b" " + base64.b64encode(base64.b64decode(encoded)) + b"\n"


def as_specified(step: Step) -> Iterator[Step]:
    """The step, or the steps, with the status of the specification as it is now."""
    if canonical(step.body) != step.body:
        # A signature changed in bits that no canonical base64 has: malformed; with another spelling it is wrong.
        yield replace(step, status=400)
        yield replace(step, body=canonical(step.body))
        return
    changed = [
        status for (old, word), status in CHANGED.items() if old == step.status and word in step.asserts
    ]
    yield replace(step, status=changed[0] if changed else step.status)


def replay(state: Path, script: str) -> list[tuple[int, int]]:
    """(status expected, status had) for each request, once what is said of the answers' bodies holds."""
    statuses = []
    with serving(state, logs_of(script), keys_of(script)) as url:
        for step in (one for written in steps_of(script) for one in as_specified(written)):
            found, media_type, answer = post(url, step.body)
            statuses.append((step.status, found))
            if size := re.search(r'body == "(\d+)\\n"', step.asserts):
                assert (media_type, answer) == ("text/x.tlog.size", f"{size[1]}\n".encode())
            if found == 200:
                check_cosigned(state, step.body, answer)
    return statuses


def test_the_bodies_of_litewitness_have_their_statuses(vectors: Path, tmp_path: Path) -> None:
    folder = vectors / "litewitness"
    scripts = sorted(folder.glob("*.txt"))
    if not scripts:
        pytest.skip("MUNIMENT_TEST_VECTORS: no folder of litewitness's scripts there")
    played = 0
    for number, path in enumerate(scripts):
        script = path.read_text("utf-8")
        if "add-checkpoint.hurl --\n" not in script or not logs_of(script):
            continue
        statuses = replay(tmp_path / f"{number}", script)
        assert [had for _, had in statuses] == [expected for expected, _ in statuses], path.name
        print(path.name, [had for _, had in statuses])
        played += len(statuses)
    assert played > 0


def test_a_script_is_read_as_it_is_meant(
    log: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a script of our own in that form, so that what is skipped elsewhere is tried here."""
    script = script_of(log, [(log.body(0, 1), 200, ""), (log.body(0, 5), 409, 'body == "1\\n"')])
    assert replay(tmp_path / "right", script) == [(200, 200), (409, 409)]
    wrong = script_of(log, [(log.body(0, 1), 409, "")])
    assert replay(tmp_path / "wrong", wrong) == [(409, 200)]
    with pytest.raises(AssertionError):
        replay(tmp_path / "size", script_of(log, [(log.body(7, 8), 409, 'body == "1\\n"')]))


def script_of(log: Any, steps: list[tuple[bytes, int, str]]) -> str:
    vkey = log.signer.verifier_key.vkey
    requests = "\n".join(
        f"POST http://localhost/add-checkpoint\n```\n{body.decode()}```\nHTTP {status}\n[Asserts]\n{asserts}\n"
        for body, status, asserts in steps
    )
    return (
        f"exec witnessctl add-log -origin '{log.origin}'\n"
        f"exec witnessctl add-key -origin '{log.origin}' -key {vkey}\n"
        f"exec litewitness -name={NAME} -key=00 &litewitness&\n\n-- key.pem --\nx\n"
        f"-- add-checkpoint.hurl --\n{requests}"
    )
