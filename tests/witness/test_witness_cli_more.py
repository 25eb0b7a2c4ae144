"""`muniment witness` for those who run one for years: keys, lists, following, comparing."""

from __future__ import annotations

import argparse
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tlog.cosignature import verify_cosignature
from tlog.errors import MalformedError, RefusedError, UnavailableError
from tlog.note import add_signatures, format_note, parse_note, parse_vkey
from tlog.tile import grow
from witness.cli import add_witness_commands, run_witness
from witness.signers import load_cosigners
from witness.store import open_store
from witness.wire import parse_cosignatures

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
    """Runs a command with --json; gives its exit code and the document."""

    def call(*arguments: str, code: int = 0) -> Any:
        assert run(*arguments, "--json") == code
        return json.loads(capsys.readouterr().out)

    return call


@pytest.fixture
def state(answer: Any, tmp_path: Path) -> str:
    folder = str(tmp_path / "state")
    answer("init", "--state", folder, "--name", "witness.example/w")
    return folder


def kinds_and_places(answer: Any, state: str) -> list[tuple[str, str | None, bool]]:
    return [
        (one["kind"], one["held_by"], one["cosigns"]) for one in answer("status", "--state", state)["keys"]
    ]


# Keys


def cosign(state: str, log: Any, size: int) -> dict[str, int]:
    """The times of the cosignatures that a witness on this state gives, by vkey; each has to hold."""
    store = open_store(Path(state))
    try:
        cosigners = load_cosigners(Path(state), store.marker)
    finally:
        store.close()
    text = log.note(size).text
    lines = [(one.verifier_key, one.cosign(text, 1_790_000_000)) for one in cosigners]
    return {key.vkey: verify_cosignature(key, line, text).timestamp for key, line in lines}


def test_a_key_is_rotated_with_both_cosigning_in_between(answer: Any, state: str, log: Any) -> None:
    old = answer("status", "--state", state)["vkey"]
    changed = answer("rotate-key", "--state", state)
    (new,) = changed["added"]
    assert changed["vkeys"] == [old, new]
    assert parse_vkey(new).name == parse_vkey(old).name
    assert set(cosign(state, log, 5)) == {old, new}
    retired = answer("rotate-key", "--state", state, "--retire", old)
    assert (retired["vkeys"], retired["retired"], retired["vkey"]) == ([new], [old], new)
    assert set(cosign(state, log, 5)) == {new}
    assert kinds_and_places(answer, state) == [("ed25519", "file", True), ("ed25519", None, False)]
    third = answer("rotate-key", "--state", state)["added"]
    assert set(cosign(state, log, 5)) == {new, *third}


def test_an_mldsa_key_is_added_later(answer: Any, state: str, log: Any) -> None:
    (added,) = answer("rotate-key", "--state", state, "--mldsa")["added"]
    assert parse_vkey(added).kind == 6
    assert added in cosign(state, log, 5)


def test_the_only_key_and_a_strange_one_are_not_retired(answer: Any, state: str, sim: Any) -> None:
    vkey = answer("status", "--state", state)["vkey"]
    with pytest.raises(RefusedError, match="only key"):
        run("rotate-key", "--state", state, "--retire", vkey)
    with pytest.raises(RefusedError) as caught:
        run("rotate-key", "--state", state, "--retire", sim.make_cosigner().verifier_key.vkey)
    assert caught.value.code == "unknown_key"


def test_a_rotated_key_keeps_what_the_witness_knows(answer: Any, state: str, log: Any) -> None:
    answer("add-log", "--state", state, "--vkey", log.signer.verifier_key.vkey)
    before = answer("status", "--state", state)["logs"]
    answer("rotate-key", "--state", state)
    assert answer("status", "--state", state)["logs"] == before != []


SIGN = """
import sys
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
key = Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32)
sys.stdout.buffer.write(key.sign(sys.stdin.buffer.read()))
"""
KEY = Ed25519PrivateKey.from_private_bytes(b"\7" * 32)
SSH_LINE = KEY.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


@pytest.fixture
def command(tmp_path: Path) -> str:
    script = tmp_path / "sign.py"
    script.write_text(SIGN)
    return f"{sys.executable} {script}"


def test_a_witness_whose_key_is_behind_a_command(
    answer: Any, tmp_path: Path, command: str, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = str(tmp_path / "kms")
    made = answer(
        "init", "--state", state, "--name", "w", "--key-command", command, "--public-key", SSH_LINE, "--mldsa"
    )
    assert parse_vkey(made["vkey"]).public_key == KEY.public_key().public_bytes_raw()
    assert [path.name for path in Path(state, "keys").iterdir()] == ["mldsa44.key"]
    assert kinds_and_places(answer, state) == [("ed25519", "command", True), ("mldsa44", "file", True)]
    monkeypatch.chdir(tmp_path)
    assert set(cosign(state, log, 5)) == set(made["vkeys"])


def test_a_command_that_signs_with_another_key_is_noticed_at_once(tmp_path: Path, command: str) -> None:
    other = Ed25519PrivateKey.from_private_bytes(b"\x08" * 32).public_key()
    line = other.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    with pytest.raises(UnavailableError, match="does not hold"):
        run(
            "init",
            "--state",
            str(tmp_path / "s"),
            "--name",
            "w",
            "--key-command",
            command,
            "--public-key",
            line,
        )
    assert not (tmp_path / "s" / "witness.json").exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--key-command", "true"),
        ("--key-command", "", "--public-key", SSH_LINE),
        ("--public-key", SSH_LINE),
        ("--key-command", "true", "--ssh-agent"),
        ("--key-command", "true", "--public-key", "ssh-ed25519 AAAA"),
        ("--key-command", "true", "--public-key", "nonsense"),
        ("--key-command", "true", "--public-key", "AAAA"),
    ],
)
def test_refuses_options_that_do_not_go_together(tmp_path: Path, options: tuple[str, ...]) -> None:
    with pytest.raises(MalformedError):
        run("init", "--state", str(tmp_path / "s"), "--name", "w", *options)
    assert not (tmp_path / "s").exists()


def test_a_witness_whose_key_is_in_an_ssh_agent(
    answer: Any, tmp_path: Path, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    if not (shutil.which("ssh-agent") and shutil.which("ssh-add")):
        pytest.skip("needs ssh-agent and ssh-add")
    socket_path, key = tmp_path / "a.sock", tmp_path / "id"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket_path)], stdout=subprocess.DEVNULL)
    try:
        while not socket_path.exists():
            threading.Event().wait(0.02)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket_path))
        state = str(tmp_path / "agent")
        with pytest.raises(RefusedError):  # it holds no key yet
            run("init", "--state", state, "--name", "w", "--ssh-agent")
        key.write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
        key.chmod(0o600)
        subprocess.run(["ssh-add", "-q", str(key)], check=True, stdin=subprocess.DEVNULL)
        made = answer("init", "--state", state, "--name", "w", "--ssh-agent")
        assert not Path(state, "keys").exists()
        assert set(cosign(state, log, 5)) == {made["vkey"]}
        subprocess.run(["ssh-add", "-q", "-D"], check=True, stdin=subprocess.DEVNULL)
        with pytest.raises(RefusedError):
            run("serve", "--state", state, "--listen", "127.0.0.1:0")
    finally:
        agent.terminate()
        agent.wait(10)


# Logs


def test_logs_are_imported_from_a_list_and_removed(answer: Any, state: str, tmp_path: Path, sim: Any) -> None:
    vkeys = [sim.make_log_signer(f"log.example/{number}").verifier_key.vkey for number in range(3)]
    listed = tmp_path / "logs"
    listed.write_text(
        "logs/v0\n" + "".join(f"vkey {vkey}\nqpd 1440\ncontact c {n}\n" for n, vkey in enumerate(vkeys))
    )
    assert answer("import-logs", "--state", state, str(listed)) == {"listed": 3, "added": 3}
    assert answer("import-logs", "--state", state, str(listed)) == {"listed": 3, "added": 0}
    logs = answer("status", "--state", state)["logs"]
    assert [(one["requests_per_day"], one["contact"]) for one in logs] == [(1440, f"c {n}") for n in range(3)]
    removed = answer("remove-log", "--state", state, "--origin", "log.example/1")
    assert removed == {"origin": "log.example/1", "removed": True}
    assert [one["vkeys"] for one in answer("status", "--state", state)["logs"]] == [
        [vkeys[0]],
        [],
        [vkeys[2]],
    ]
    with pytest.raises(RefusedError):
        run("remove-log", "--state", state, "--origin", "log.example/1")


def test_a_list_with_a_fault_changes_nothing(answer: Any, state: str, tmp_path: Path, sim: Any) -> None:
    vkey = sim.make_log_signer("log.example/0").verifier_key.vkey
    listed = tmp_path / "logs"
    listed.write_text(f"logs/v0\nvkey {vkey}\nqpd 1\ncontact c\nvkey {vkey}\n")
    with pytest.raises(MalformedError):
        run("import-logs", "--state", state, str(listed))
    assert answer("status", "--state", state)["logs"] == []
    with pytest.raises(MalformedError):
        run("import-logs", "--state", state, str(tmp_path / "none"))


def test_terms_are_given_to_one_log(answer: Any, state: str, log: Any) -> None:
    vkey = log.signer.verifier_key.vkey
    answer("add-log", "--state", state, "--vkey", vkey, "--requests-per-day", "24", "--contact", "me")
    (one,) = answer("status", "--state", state)["logs"]
    assert (one["requests_per_day"], one["contact"]) == (24, "me")
    for wrong in ("0", "-1", str(2**31)):
        with pytest.raises(MalformedError):
            run("add-log", "--state", state, "--vkey", vkey, "--requests-per-day", wrong)


# Sites that publish tiles


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the URL under which it is served."""
    folder = tmp_path / "site"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, directory=str(folder), **kwargs)

        def log_message(self, *_: object) -> None:
            pass

    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield folder, f"http://127.0.0.1:{listener.server_address[1]}"
    listener.shutdown()
    listener.server_close()


def publish(folder: Path, log: Any, size: int, *lines: Any) -> None:
    for tile, data in grow(0, log.leaves[:size], lambda tile: b""):
        path = folder / tile.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder / "checkpoint").write_bytes(format_note(add_signatures(log.note(size), lines)))


def test_follow_looks_once_and_says_how_it_went(
    answer: Any, state: str, site: Any, log: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, url = site
    publish(folder, log, 5)
    assert run("follow", "--state", state, "--once", url) == 1
    assert "add-log" in capsys.readouterr().err
    run("add-log", "--state", state, "--vkey", log.signer.verifier_key.vkey)
    capsys.readouterr()
    done = answer("follow", "--state", state, "--once", url)
    assert done == {"url": url, "outcome": "cosigned", "origin": log.origin, "size": 5}
    publish(folder, log, 40)
    assert answer("follow", "--state", state, "--once", url)["size"] == 40
    assert run("follow", "--state", state, "--once", "http://127.0.0.1:1") == 3
    assert run("follow", "--state", state, "--once", url, "http://127.0.0.1:1") == 3
    publish(folder, log.fork_at(3), 40)
    assert run("follow", "--state", state, "--once", url, "http://127.0.0.1:1") == 1
    capsys.readouterr()
    assert len(answer("evidence", "--state", state)["evidence"]) == 1


@pytest.mark.parametrize("options", [("--every", "0"), ("--heads-per-day", "0")])
def test_follow_refuses_options_out_of_bounds(state: str, options: tuple[str, ...]) -> None:
    with pytest.raises(MalformedError):
        run("follow", "--state", state, *options, "http://127.0.0.1:1")


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "witness", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_follow_goes_on_beside_a_witness_that_serves(answer: Any, state: str, site: Any, log: Any) -> None:
    folder, url = site
    run("add-log", "--state", state, "--vkey", log.signer.verifier_key.vkey)
    publish(folder, log, 5)
    server = start("serve", "--state", state, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--json")
    follower = start("follow", "--state", state, "--every", "1", "--json", url)
    try:
        assert server.stdout is not None and follower.stdout is not None
        said = json.loads(server.stdout.readline())
        assert json.loads(follower.stdout.readline())["size"] == 5
        publish(folder, log, 9)
        assert json.loads(follower.stdout.readline())["size"] == 9
        given = httpx.post(f"{said['listening']}/add-checkpoint", content=log.body(9, 9))
        assert given.status_code == 200
        assert parse_cosignatures(given.content)
        assert httpx.post(f"{said['listening']}/add-checkpoint", content=log.body(9, 20)).status_code == 200
        assert f'muniment_witness_log_size{{origin="{log.origin}"}} 20' in httpx.get(said["metrics"]).text
        # What the site has is behind now, until it grows on.
        assert json.loads(follower.stdout.readline())["code"] == "rolled_back"
        publish(folder, log, 30)
        assert json.loads(follower.stdout.readline())["size"] == 30
    finally:
        for process in (server, follower):
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20)
    assert (server.returncode, follower.returncode) == (0, 0)


# Comparing


@pytest.fixture
def witnesses(serve_peer: Callable[[Any], str], sim: Any, tmp_path: Path, log: Any) -> Any:
    """A policy of witnesses that serve what they are told, by name."""
    served: dict[str, bytes] = {}
    lines = [f"log {log.signer.verifier_key.vkey}"]

    def add(name: str) -> Any:
        cosigner = sim.make_cosigner(f"{name}.example/w", 30 + len(served))

        def reply(handler: Any, body: bytes) -> None:
            data = served[name]
            handler.send_response(200 if data else 404)
            handler.send_header("content-length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data)

        served[name] = b""
        lines.append(f"witness {name} {cosigner.verifier_key.vkey} {serve_peer(reply)}")
        return cosigner

    cosigners = {name: add(name) for name in ("a", "b", "c")}
    policy = tmp_path / "policy"
    policy.write_text("\n".join((*lines, "quorum none", "")))

    class Witnesses:
        path = str(policy)

        def serve(self, name: str, source: Any, size: int) -> None:
            note = source.note(size)
            served[name] = format_note(add_signatures(note, [cosigners[name].cosign(note.text, sim.TIME)]))

    return Witnesses()


def test_compare_finds_one_log(answer: Any, witnesses: Any, site: Any, log: Any) -> None:
    folder, url = site
    publish(folder, log, 40)
    for name, size in (("a", 9), ("b", 40), ("c", 33)):
        witnesses.serve(name, log, size)
    (found,) = answer("compare", "--policy", witnesses.path, "--log", url)["logs"]
    assert (found["split"], found["unproved"], found["silent"]) == (False, [], [])
    assert [(one["size"], one["seen_by"]) for one in found["consistent"]] == [
        (40, ["b", "itself"]),
        (33, ["c"]),
        (9, ["a"]),
    ]
    assert answer("compare", "--policy", witnesses.path, "--log", str(folder))["logs"] == [found]


@pytest.mark.parametrize("sizes", [(20, 20), (20, 30), (30, 20)])
def test_compare_raises_a_split_view_with_both_notes(
    answer: Any, witnesses: Any, site: Any, log: Any, tmp_path: Path, sizes: tuple[int, int]
) -> None:
    folder, url = site
    fork = log.fork_at(3)
    larger = log if sizes[0] >= sizes[1] else fork
    publish(folder, larger, max(sizes))
    witnesses.serve("a", log, sizes[0])
    witnesses.serve("b", fork, sizes[1])
    keep = tmp_path / "kept"
    (found,) = answer("compare", "--policy", witnesses.path, "--log", url, "--keep", str(keep), code=1)[
        "logs"
    ]
    assert found["split"]
    (split,) = found["splits"]
    notes = {split["smaller"]["note"], split["larger"]["note"]}
    assert {parse_note(note.encode()).text for note in notes} == {
        log.note(sizes[0]).text,
        fork.note(sizes[1]).text,
    }
    assert found["silent"] == ["c"]
    kept = {path.read_text() for path in keep.rglob("*.note")}
    assert notes == kept


def test_compare_remembers_what_it_saw_itself(
    answer: Any, witnesses: Any, site: Any, log: Any, tmp_path: Path
) -> None:
    folder, url = site
    options = ("compare", "--policy", witnesses.path, "--log", url, "--keep", str(tmp_path / "kept"))
    publish(folder, log, 20)
    witnesses.serve("a", log, 20)
    answer(*options)
    fork = log.fork_at(3)
    publish(folder, fork, 25)
    for name in "abc":
        witnesses.serve(name, fork, 25)
    (found,) = answer(*options, code=1)["logs"]
    (split,) = found["splits"]
    assert split["smaller"]["seen_by"] == ["itself (earlier)"]
    assert (split["kind"], split["smaller"]["size"]) == ("not_extended", 20)


def test_compare_takes_notes_that_others_have_seen(
    answer: Any, witnesses: Any, log: Any, tmp_path: Path
) -> None:
    note = tmp_path / "seen.note"
    note.write_bytes(format_note(log.fork_at(3).note(20)))
    witnesses.serve("a", log, 20)
    (found,) = answer("compare", "--policy", witnesses.path, "--note", str(note), code=1)["logs"]
    assert found["splits"][0]["kind"] == "same_size"


def test_compare_says_when_too_little_could_be_compared(
    answer: Any, witnesses: Any, log: Any, tmp_path: Path
) -> None:
    (found,) = answer("compare", "--policy", witnesses.path, code=3)["logs"]
    assert (found["seen_by"], found["silent"]) == ([], ["a", "b", "c"])
    witnesses.serve("a", log, 20)
    answer("compare", "--policy", witnesses.path, code=3)
    witnesses.serve("b", log, 30)
    (found,) = answer("compare", "--policy", witnesses.path, code=3)["logs"]
    assert [one["size"] for one in found["unproved"]] == [30, 20]
    witnesses.serve("a", log, 30)
    answer("compare", "--policy", witnesses.path)


def test_compare_in_words(witnesses: Any, log: Any, capsys: pytest.CaptureFixture[str]) -> None:
    witnesses.serve("a", log, 20)
    witnesses.serve("b", log.fork_at(3), 20)
    assert run("compare", "--policy", witnesses.path) == 1
    out = capsys.readouterr().out
    assert "SPLIT VIEW" in out
    assert log.note(20).text in out
    assert log.fork_at(3).note(20).text in out
    assert "nothing from c" in out
