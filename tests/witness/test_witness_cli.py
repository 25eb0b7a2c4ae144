from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tlog.errors import Error, MalformedError, RefusedError, UnavailableError
from tlog.note import open_note, parse_note, parse_vkey
from witness.cli import add_witness_commands, run_witness
from witness.wire import parse_cosignatures

# What the main command does around ours.
COMMAND = """
import argparse, sys
from witness.cli import add_witness_commands, run_witness
parser = argparse.ArgumentParser()
add_witness_commands(parser.add_subparsers())
sys.exit(run_witness(parser.parse_args(sys.argv[1:])))
"""


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_witness_commands(parser.add_subparsers(required=True))
    return run_witness(parser.parse_args(["witness", *arguments]))


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command with --json and gives the document that it printed."""

    def call(*arguments: str) -> Any:
        assert run(*arguments, "--json") == 0
        out = capsys.readouterr().out
        assert out.count("\n") == 1
        return json.loads(out)

    return call


def test_init_makes_a_witness_and_tells_its_key(answer: Any, tmp_path: Path) -> None:
    state = str(tmp_path / "a" / "state")
    made = answer("init", "--state", state, "--name", "witness.example/w")
    key = parse_vkey(made["vkey"])
    assert (made["name"], key.name, key.kind, made["vkeys"]) == (
        "witness.example/w",
        made["name"],
        4,
        [key.vkey],
    )
    keys = [{"vkey": key.vkey, "kind": "ed25519", "held_by": "file", "cosigns": True}]
    assert answer("status", "--state", state) == {**made, "keys": keys, "logs": []}
    for file in Path(state).rglob("*"):
        assert file.stat().st_mode & 0o077 == 0, file


def test_init_with_mldsa_makes_a_second_key(answer: Any, tmp_path: Path) -> None:
    made = answer("init", "--state", str(tmp_path / "state"), "--name", "w", "--mldsa")
    assert [parse_vkey(vkey).kind for vkey in made["vkeys"]] == [4, 6]
    assert made["vkey"] == made["vkeys"][0]


@pytest.mark.parametrize("name", ["", "two words", "plus+sign", "x" * 256])
def test_init_refuses_a_name_that_no_key_can_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(MalformedError):
        run("init", "--state", str(tmp_path / "state"), "--name", name)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    "lost", [(), ("witness.json",), ("witness.db",), ("witness.json", "witness.db"), ("keys",)]
)
def test_init_never_starts_over_in_a_folder_that_was_used(tmp_path: Path, lost: tuple[str, ...]) -> None:
    state = tmp_path / "state"
    run("init", "--state", str(state), "--name", "w")
    for name in lost:
        (state / name).rename(tmp_path / name)
    before = sorted(state.rglob("*"))
    with pytest.raises(RefusedError) as caught:
        run("init", "--state", str(state), "--name", "w")
    assert caught.value.code == "exists"
    assert sorted(state.rglob("*")) == before


@pytest.fixture
def state(answer: Any, tmp_path: Path) -> str:
    folder = str(tmp_path / "state")
    answer("init", "--state", folder, "--name", "witness.example/w")
    return folder


def test_add_log_is_told_once(answer: Any, state: str, log: Any) -> None:
    vkey = log.signer.verifier_key.vkey
    added = {"origin": log.origin, "vkey": vkey, "added": True}
    assert answer("add-log", "--state", state, "--vkey", vkey) == added
    assert answer("add-log", "--state", state, "--vkey", vkey) == {**added, "added": False}
    other = answer("add-log", "--state", state, "--vkey", vkey, "--origin", "another origin")
    assert other["origin"] == "another origin"
    logs = answer("status", "--state", state)["logs"]
    unseen = {"vkeys": [vkey], "size": None, "root": None, "time": None, "evidence": 0}
    unseen |= {"requests_per_day": None, "contact": None}
    assert logs == [{"origin": "another origin", **unseen}, {"origin": log.origin, **unseen}]


@pytest.mark.parametrize("vkey", ["", "nonsense", "log.example/one+00000000+AQ=="])
def test_add_log_refuses_what_is_no_key(state: str, vkey: str) -> None:
    with pytest.raises(MalformedError):
        run("add-log", "--state", state, "--vkey", vkey)


@pytest.mark.parametrize("command", [("status",), ("evidence",), ("serve", "--listen", "127.0.0.1:0")])
def test_nothing_runs_without_a_state(tmp_path: Path, command: tuple[str, ...]) -> None:
    with pytest.raises(RefusedError) as caught:
        run(*command, "--state", str(tmp_path / "none"))
    assert caught.value.code == "not_initialised"
    assert not (tmp_path / "none").exists()


def test_serve_refuses_a_state_without_its_database(state: str) -> None:
    Path(state, "witness.db").unlink()
    with pytest.raises(RefusedError, match="set up a new witness") as caught:
        run("serve", "--state", state, "--listen", "127.0.0.1:0")
    assert caught.value.code == "state_lost"


def test_serve_refuses_the_key_of_another_witness(state: str, tmp_path: Path) -> None:
    run("init", "--state", str(tmp_path / "other"), "--name", "witness.example/w")
    (tmp_path / "other" / "keys" / "ed25519.key").replace(Path(state, "keys", "ed25519.key"))
    with pytest.raises(MalformedError, match="not the keys"):
        run("serve", "--state", state, "--listen", "127.0.0.1:0")


def test_serve_refuses_a_key_that_others_can_read(state: str) -> None:
    Path(state, "keys", "ed25519.key").chmod(0o644)
    with pytest.raises(Error):
        run("serve", "--state", state, "--listen", "127.0.0.1:0")


@pytest.mark.parametrize(
    "listen", ["", "8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "::1:80", "a b:1"]
)
def test_serve_refuses_what_is_no_address(state: str, listen: str) -> None:
    with pytest.raises(MalformedError):
        run("serve", "--state", state, "--listen", listen)


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "witness", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_serves_says_where_shows_evidence_and_stops(answer: Any, state: str, log: Any) -> None:
    process = start("serve", "--state", state, "--listen", "127.0.0.1:0", "--json")
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    url = said["listening"]
    assert url.startswith("http://127.0.0.1:")
    # A log that is added while the witness runs is known at once.
    assert httpx.post(f"{url}/add-checkpoint", content=log.body(0, 5)).status_code == 404
    answer("add-log", "--state", state, "--vkey", log.signer.verifier_key.vkey)
    given = httpx.post(f"{url}/add-checkpoint", content=log.body(0, 5))
    (line,) = parse_cosignatures(given.content)
    assert line.key_id == parse_vkey(said["vkey"]).key_id
    with pytest.raises(UnavailableError):  # the address is taken
        run("serve", "--state", state, "--listen", url.removeprefix("http://"))
    assert httpx.post(f"{url}/add-checkpoint", content=log.fork_at(3).body(5, 5)).status_code == 422
    (one,) = answer("evidence", "--state", state)["evidence"]
    assert (one["kind"], one["origin"]) == ("fork", log.origin)
    assert one["cosigned"]["size"] == one["refused"]["size"] == 5
    assert one["cosigned"]["root"] != one["refused"]["root"]
    for side in ("cosigned", "refused"):
        assert open_note(parse_note(one[side]["note"].encode()), [log.signer.verifier_key])
    (described,) = answer("status", "--state", state)["logs"]
    assert (described["size"], described["evidence"]) == (5, 1)
    process.terminate()
    rest, errors = process.communicate(timeout=10)
    assert (process.returncode, rest) == (0, "")
    assert errors == f"listening on {url}\n"


def test_what_people_read_has_no_control_characters(
    answer: Any, state: str, log: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    answer("add-log", "--state", state, "--vkey", log.signer.verifier_key.vkey, "--origin", "a\u202eb")
    for command in ("status", "evidence"):
        assert run(command, "--state", state) == 0
    out = capsys.readouterr().out
    assert "\u202e" not in out
    assert "a\\u202eb" in out
    assert out.endswith("none\n")


def test_the_command_line_loads_no_web_stack() -> None:
    heavy = "{'fastapi', 'starlette', 'uvicorn', 'httpx', 'pydantic', 'anyio', 'asyncio', 'mcp'}"
    code = f"import sys, witness.cli, witness.client, witness.store; print(*({heavy} & set(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout == "\n"
