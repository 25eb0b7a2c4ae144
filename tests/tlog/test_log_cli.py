"""`muniment log …` over a home that a test hands in."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tlog.ascii import encode_base64
from tlog.cli import add_log_commands, run_log
from tlog.cli_verify import add_verify_command, run_verify
from tlog.errors import MalformedError, UnavailableError, VerificationError
from tlog.log import Log, LogSettings
from tlog.note import SignatureType
from tlog.policy import LogEntry, Policy, make_policy, parse_policy
from tlog.storage import MemoryStorage
from tlog.trust import Trust, make_trust

ORIGIN = "example.org/log"


class TestHome:
    """A home of one log in memory."""

    __test__ = False

    def __init__(self, signer: Any) -> None:
        self._signer = signer
        self._policy = make_policy([LogEntry(signer.verifier_key)], [], [], None)
        settings = LogSettings(ORIGIN, (signer,), policy=self._policy, identify=lambda entry: entry)
        self._log = Log(MemoryStorage(), MemoryStorage(), settings)
        self.outbox = [b"one", b"two"]

    def log_vkey(self) -> str:
        vkey: str = self._signer.verifier_key.vkey
        return vkey

    def log(self) -> Log:
        return self._log

    def frozen_logs(self) -> tuple[Log, ...]:
        return ()

    def publish(self, deadline_seconds: float) -> Mapping[str, Any]:
        self._log.append(self.outbox)
        published = self._log.publish(deadline_seconds)
        return {"size": published.size, "root": encode_base64(published.root), "state": published.state}

    def policy(self) -> Policy:
        return self._policy

    def set_policy(self, text: str) -> Policy:
        self._policy = parse_policy(text)
        return self._policy

    def trust(self) -> Trust:
        return make_trust(self._policy.text)


@pytest.fixture
def home(seed_signer: Callable[[str, int, int], Any]) -> TestHome:
    return TestHome(seed_signer(ORIGIN, SignatureType.ED25519, 1))


Run = Callable[[str], tuple[str, Any]]


@pytest.fixture
def run(home: TestHome, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a `log` command; what it prints for people, and the document that it prints for programs."""

    def run(words: str) -> tuple[str, Any]:
        parser = argparse.ArgumentParser()
        add_log_commands(parser.add_subparsers())
        args = parser.parse_args(["log", *words.split()])
        printed = []
        for args.json in (False, True):
            assert run_log(args, home) == 0
            printed.append(capsys.readouterr().out)
        return printed[0], json.loads(printed[1])

    return run


def test_publishes_what_waits(run: Run, home: TestHome) -> None:
    text, document = run("publish")
    assert text.startswith("logged: 2 entries")
    assert document == {"size": 2, "root": encode_base64(home.log().head().root), "state": "logged"}
    for deadline in ("0", "-1", "nan", "1e9"):
        with pytest.raises(MalformedError):
            run(f"publish --deadline {deadline}")


def test_shows_the_checkpoint_as_it_is(run: Run, home: TestHome, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        run("checkpoint")
    run("publish")
    text, document = run("checkpoint")
    assert text.encode() == home.log().checkpoint()
    assert document["note"] == text
    assert (document["origin"], document["size"]) == (ORIGIN, 2)
    run_text, _ = run(f"checkpoint -o {tmp_path / 'checkpoint'}")
    assert run_text == ""
    assert (tmp_path / "checkpoint").read_bytes() == home.log().checkpoint()
    with pytest.raises(MalformedError):
        run(f"checkpoint -o {tmp_path / 'no' / 'folder'}")


def test_shows_key_policy_and_trust(run: Run, home: TestHome) -> None:
    assert run("vkey") == (f"{home.log_vkey()}\n", {"vkey": home.log_vkey(), "origin": ORIGIN})
    text, document = run("policy")
    assert text == home.policy().text
    assert document == {"policy": text, "quorum": None, "witnesses": []}
    text, document = run("trust")
    assert document == {"trust": text, "keys": "inline"}
    assert text == home.trust().text


def test_sets_the_policy(run: Run, home: TestHome, tmp_path: Path) -> None:
    changed = f"# mine\n{home.policy().text}"
    (tmp_path / "policy.txt").write_text(changed)
    assert run(f"policy --set {tmp_path / 'policy.txt'}")[0] == changed
    assert home.policy().text == changed
    with pytest.raises(MalformedError):
        run(f"policy --set {tmp_path / 'nothing'}")


def test_tells_what_is_committed_and_what_is_public(run: Run, home: TestHome) -> None:
    home.log().append([b"zero"])
    text, document = run("status")
    assert text == f"{ORIGIN}: 1 entries, of which 0 are published\n"
    assert (document["size"], document["published"], document["unpublished"]) == (1, None, 1)
    run("publish")
    _, document = run("status")
    assert (document["published"]["size"], document["unpublished"]) == (3, 0)


def test_fsck_names_a_damaged_file(run: Run, home: TestHome) -> None:
    run("publish")
    text, document = run("fsck")
    assert text == "whole: 2 entries, 2 files\n"
    assert (document["size"], document["published_size"]) == (2, 2)
    home.log().public.replace("tile/entries/000.p/2", b"\0\3one\0\3twO")
    with pytest.raises(VerificationError, match=r"tile/entries/000\.p/2") as caught:
        run("fsck")
    assert caught.value.fields["path"] == "tile/entries/000.p/2"


@pytest.mark.parametrize("command", ["publish", "status", "fsck"])
def test_says_that_no_witness_has_to_cosign(
    command: str,
    home: TestHome,
    seed_signer: Callable[[str, int, int], Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = argparse.ArgumentParser()
    add_log_commands(parser.add_subparsers())
    args = parser.parse_args(["log", command])
    args.json = False
    assert run_log(args, home) == 0
    assert "no witness has to cosign this log" in capsys.readouterr().err
    witness = seed_signer("witness.example/w", SignatureType.COSIGNATURE_ED25519, 2).verifier_key.vkey
    home._policy = parse_policy(f"log {home.log_vkey()}\nwitness w {witness}\nquorum w\n")
    if command == "status":
        assert run_log(args, home) == 0
        assert capsys.readouterr().err == ""


def test_fsck_looks_at_the_logs_before_this_one_and_names_which(
    run: Run, home: TestHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("publish")
    old = Log(MemoryStorage(), MemoryStorage(), home.log().settings)
    old.append([b"an older entry"])
    old.publish(5)
    monkeypatch.setattr(home, "frozen_logs", lambda: (old,))
    text, document = run("fsck")
    assert f"whole: 1 entries, 2 files ({ORIGIN}, ended)" in text
    assert document["frozen"][0]["size"] == 1
    old.public.remove(["tile/0/000.p/1"])
    with pytest.raises(VerificationError, match=r"tile/0/000\.p/1"):
        run("fsck")


def test_fsck_counts_what_stands_twice(
    home: TestHome, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    twice = Log(home.log().public, home.log().private, replace(home.log().settings, identify=fresh))
    twice.append([b"one", b"one", b"two"])
    home.log().publish(5)
    parser = argparse.ArgumentParser()
    add_log_commands(parser.add_subparsers())
    args = parser.parse_args(["log", "fsck"])
    args.json = False
    assert run_log(args, home) == 1
    assert "1 entries stand in the log twice" in capsys.readouterr().out


COUNTER = count()


def fresh(entry: bytes) -> bytes:
    """An identity that no entry had before: what a log forgot that it has."""
    return sha256(b"%d" % next(COUNTER)).digest()


def test_fsck_holds_the_checkpoint_against_the_policy(
    run: Run, home: TestHome, seed_signer: Callable[[str, int, int], Any]
) -> None:
    run("publish")
    other = seed_signer(ORIGIN, SignatureType.ED25519, 2)
    home.set_policy(make_policy([LogEntry(other.verifier_key)], [], [], None).text)
    with pytest.raises(VerificationError) as caught:
        run("fsck")
    assert caught.value.code == "log_signature"


def test_a_pipe_or_a_missing_file_keeps_no_other_from_its_verdict(
    home: TestHome, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.publish(5)
    (tmp_path / "checkpoint").write_bytes(home.log().checkpoint() or b"")
    os.mkfifo(tmp_path / "pipe")
    names = [str(tmp_path / name) for name in ("pipe", "checkpoint", "nothing")]
    parser = argparse.ArgumentParser()
    add_verify_command(parser.add_subparsers())
    args = parser.parse_args(["verify", *names, "--log-key", home.log_vkey()])
    args.json = True
    assert run_verify(args) == 2
    found = {one["file"]: one for one in json.loads(capsys.readouterr().out)["files"]}
    assert [found[name]["holds"] for name in names] == [False, True, False]
    assert "no regular file" in found[names[0]]["failed"][0]["text"]
    args = parser.parse_args(["verify", names[0], "--log-key", home.log_vkey()])
    args.json = True
    with pytest.raises(MalformedError, match="no regular file"):
        run_verify(args)
