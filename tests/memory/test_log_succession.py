"""A new log takes the place of the home's log: what is in the old one stays proved, and nothing goes on in it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from auditor.audit import Places, audit
from auditor.evidence import Asked
from memory import home_state, succession
from memory.chain import locate
from memory.cli import main
from memory.model import SCOPES, Principal
from memory.operator import Operator
from memory.provenance import provenance, receipt
from memory.wiring import Home, init_home, open_home
from tlog.ascii import encode_base64
from tlog.claims import Caller
from tlog.errors import MalformedError, RefusedError, UnavailableError
from tlog.fsck import fsck
from tlog.keys import load_log_key
from tlog.log import Log, LogSettings
from tlog.note import parse_vkey
from tlog.policy import verify_checkpoint
from tlog.statement import sign_statement
from tlog.storage import DirectoryStorage
from tlog.succession import verify_succession
from tlog.tile import encode_bundle
from tlog.trust import parse_trust
from tlog.verify import recognize, verify_files

WHO = Principal("acme", "bot", "one", SCOPES)


@dataclass
class Made:
    """A home whose log was succeeded, the ids of a fact before and after, and the old log's stolen key."""

    home: Home
    before: str
    after: str
    stolen: Path

    @property
    def path(self) -> Path:
        return self.home.path

    def codes(self, **places: Any) -> set[str]:
        import time

        trust = parse_trust((self.path / "trust.toml").read_text())
        asked = Asked(trust, time.time_ns() // 1000)
        audited = audit(Places(self.path, **places), asked, tenant=None, needles=None)
        return {finding.code for finding in audited.outcome.findings}


def remember(home: Home, text: str) -> str:
    fact_id: str = home.memory(WHO).remember(text)["id"]
    return fact_id


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    home = init_home(tmp_path / "home")
    before = remember(home, "one")
    home.publish()
    remember(home, "two, not published")
    stolen = tmp_path / "stolen.key"
    shutil.copy(home.path / "keys" / "log.key", stolen)
    stolen.chmod(0o600)
    Operator(home).succeed(None, 5)
    after = remember(home, "three")
    home.publish()
    yield Made(home, before, after, stolen)
    home.close()


def test_the_new_log_begins_with_the_end_of_the_old(made: Made) -> None:
    policy = made.home.policy()
    (old,) = (entry.key for entry in policy.logs if entry.key.name != made.home.origin)
    end = verify_checkpoint(policy, (made.path / "log" / "checkpoint").read_bytes(), old.name).checkpoint
    assert end.size == 2, "what waited was published before the end"
    entry = made.home.log().read_entry(0)
    trust = made.home.trust()
    issuer = next(key.key for key in trust.keys if key.use == "issuer")
    verify_succession(entry, end, parse_vkey(made.home.log_vkey()), issuer)
    assert trust.frozen == (end,)
    assert made.home.log().head().size == 2
    assert not (made.path / "keys" / "log.key").exists()


def test_what_is_in_either_log_is_proved(made: Made) -> None:
    trust = parse_trust((made.path / "trust.toml").read_text())
    for fact_id in (made.before, made.after):
        for form in ("cose", "tlog-proof"):
            data = receipt(made.home.parts(), WHO, fact_id, form)
            (verdict,) = verify_files([recognize("f", data)], Caller(trust, 10**10))
            assert verdict.holds, verdict
    shapes = [provenance(made.home.parts(), WHO, one) for one in (made.before, made.after)]
    places = [(one["receipt"]["log"], one["receipt"]["entry"]) for one in shapes]
    assert places == [(trust.frozen[0].origin, 0), (made.home.origin, 1)]
    assert [one["checkpoint"]["origin"] for one in shapes] == [place[0] for place in places]
    assert made.codes() == set()


def test_the_old_log_takes_and_signs_nothing(made: Made) -> None:
    old, config = made.home.log_at(1), made.home.config
    entry = sign_statement(made.home.issuer_signer(), config.issuer, config.subject, b"c" * 32)
    for refused in (lambda: old.append([entry]), lambda: old.publish(5)):
        with pytest.raises(RefusedError) as caught:
            refused()
        assert caught.value.code == "frozen"
    old.close()
    assert fsck(made.home.public_storage(1)).size == 2


def test_a_process_that_was_open_goes_on_in_the_new_log(tmp_path: Path) -> None:
    with init_home(tmp_path / "home") as one, open_home(tmp_path / "home") as two:
        remember(two, "one")
        two.publish()
        Operator(one).succeed("example.org/new", 5)
        remember(two, "two")
        two.publish()
        assert two.origin == "example.org/new"
        assert fsck(two.public_storage()).size == 2
        assert fsck(two.public_storage(1)).size == 1


def test_a_publisher_that_waited_through_it_goes_on_in_the_new_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memory import publish

    with init_home(tmp_path / "home") as one, open_home(tmp_path / "home") as two:
        remember(two, "one")
        real = publish._publish
        monkeypatch.setattr(
            publish, "_publish", lambda home, deadline: overtaken(home, deadline) or real(home, deadline)
        )

        def overtaken(home: Home, deadline: float) -> None:
            if home is two and not one.config.frozen:
                old = home.log()
                Operator(one).succeed("example.org/new", 5)
                old.publish(deadline)

        assert two.publish()["size"] == 1
        assert two.origin == "example.org/new"


def test_logs_follow_one_another(made: Made) -> None:
    Operator(made.home).succeed("example.org/third", 5)
    last = remember(made.home, "four")
    made.home.publish()
    assert [locate(made.home.config, position).log for position in range(6)] == [1, 1, 2, 2, 3, 3]
    for fact_id in (made.before, made.after, last):
        receipt(made.home.parts(), WHO, fact_id)
    assert len(made.home.trust().frozen) == 2
    assert made.codes() == set()
    # Keys that change later end in all of the logs.
    Operator(made.home).rotate("issuer", None, 5)
    (ended,) = (key for key in made.home.trust().keys if key.until)
    assert sorted(size for _, size in ended.until) == [2, 2, 2]
    remember(made.home, "five")
    made.home.publish()
    assert made.codes() == set()


def test_an_erasure_across_logs(made: Made) -> None:
    memory = made.home.memory(WHO)
    for fact_id in (made.before, made.after):
        preview = memory.forget_preview(id=fact_id)
        memory.forget(id=fact_id, confirm=preview["confirm"])
        made.home.publish()
        if fact_id == made.before:
            Operator(made.home).succeed(None, 5)
            made.home.publish()
    assert (made.path / "log-2" / "erasures" / "1.cose").is_file()
    assert (made.path / "log-3" / "erasures" / "2.cose").is_file()
    assert made.codes() == set()
    made.home.close()
    with open_home(made.path) as again:
        again.parts()
        assert not (made.path / "log-3" / "erasures" / "1.cose").exists()


STEPS = {"drain": succession, "_begin": succession, "_take_over": succession, "remove_key": home_state}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_succession_that_was_cut_short_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    class Stop(Exception):
        pass

    home = init_home(tmp_path / "home")
    remember(home, "one")
    home.publish()
    remember(home, "two")
    real: Callable[..., Any] = getattr(STEPS[step], step)

    def stopping(*args: Any) -> Any:
        if after:
            real(*args)
        raise Stop

    with monkeypatch.context() as patched:
        patched.setattr(STEPS[step], step, stopping)
        with pytest.raises(Stop):
            Operator(home).succeed(None, 5)
        if home.log().frozen() is not None and not home.config.frozen:
            with pytest.raises(RefusedError, match="goes on with muniment log succeed"):
                home.publish()
    home.close()
    home = open_home(tmp_path / "home")
    three = remember(home, "three")
    if not home.config.frozen:
        Operator(home).succeed(None, 5)
    home.publish()
    assert len(home.config.frozen) == 1
    receipt(home.parts(), WHO, three)
    made = Made(home, "", "", tmp_path)
    assert made.codes() == set()
    sizes = [fsck(home.public_storage(number)).size for number in (1, 2)]
    assert sizes == ([3, 1] if step == "drain" else [2, 2]), "each statement once, in one of the two"
    home.close()


# Attacks


def go_on(made: Made, *entries: bytes) -> None:
    """The thief of the old key takes the mark of freezing away and goes on with the old log."""
    (made.path / "log-state" / "frozen").unlink()
    signer = load_log_key(made.stolen)
    public = DirectoryStorage(made.path / "log")
    private = DirectoryStorage(made.path / "log-state")
    log = Log(public, private, LogSettings(signer.verifier_key.name, (signer,)))
    log.recover()
    log.append(list(entries))
    log.publish(5)
    log.close()


def test_an_old_log_that_goes_on_is_found(made: Made) -> None:
    config, issuer = made.home.config, made.home.issuer_signer()
    go_on(made, sign_statement(issuer, config.issuer, config.subject, b"c" * 32))
    assert "LOG_FORK" in made.codes()
    data = (made.path / "log" / "checkpoint").read_bytes()
    trust = parse_trust((made.path / "trust.toml").read_text())
    (verdict,) = verify_files([recognize("c", data)], Caller(trust, 10**10))
    assert {claim.code for claim in verdict.failed} == {"frozen"}
    # Also by whoever looks at the old log alone: the trust file says where it ended.
    found = audit(Places(None, log=str(made.path / "log")), Asked(trust, 10**16), tenant=None, needles=None)
    assert "LOG_FORK" in {finding.code for finding in found.outcome.findings}


def test_entries_behind_the_end_of_an_old_log_are_found(made: Made) -> None:
    old = made.path / "log" / "tile" / "entries" / "000.p"
    entries = [made.home.log_at(1).read_entry(number) for number in (0, 1)]
    (old / "3").write_bytes(encode_bundle([*entries, made.home.log().read_entry(1)]))
    assert "LOG_FORK" in made.codes()


def test_a_log_without_the_link_is_found(made: Made, tmp_path: Path) -> None:
    """The operator puts a log in the new one's place that begins with something else, all of it signed."""
    signer = made.home.log_signer()
    config, issuer = made.home.config, made.home.issuer_signer()
    kept = made.home.log().read_entry(1)
    for folder in ("log-2", "log-state-2"):
        shutil.rmtree(made.path / folder)
    public = DirectoryStorage(made.path / "log-2")
    log = Log(public, DirectoryStorage(made.path / "log-state-2"), LogSettings(config.origin, (signer,)))
    log.append([sign_statement(issuer, config.issuer, config.subject, b"c" * 32), kept])
    log.publish(5)
    codes = made.codes()
    assert {"LOG_FORK", "WRITE_MISSING"} <= codes


def test_a_new_log_of_another_key_is_found(made: Made) -> None:
    """Somebody begins a log of his own with a copy of the first entry."""
    first = made.home.log().read_entry(0)
    with init_home(made.path.parent / "thief", origin="thief.example") as thief:
        thief.log().append([first])
        thief.log().publish(5)
        text = (made.path / "trust.toml").read_text()
        vkey = made.home.log_vkey()
        trust_text = text.replace(f"log {vkey}", f"log {thief.log_vkey()}")
        for folder in ("log-2",):
            shutil.rmtree(made.path / folder)
            shutil.copytree(thief.path / "log", made.path / folder)
    import time

    asked = Asked(parse_trust(trust_text), time.time_ns() // 1000)
    found = audit(Places(made.path), asked, tenant=None, needles=None).outcome.findings
    assert ("LOG_FORK", "log-2 entry 0") in {(one.code, one.where) for one in found}


def test_the_end_cannot_be_moved_back(made: Made, tmp_path: Path) -> None:
    """The operator shows an older checkpoint of the old log, so that a statement would fall between the logs."""
    signer = load_log_key(made.stolen)
    from tlog.checkpoint import Checkpoint, format_checkpoint
    from tlog.note import format_note, sign_note

    old = made.home.log_at(1)
    earlier = Checkpoint(signer.verifier_key.name, 1, old.root_at(1))
    (made.path / "log" / "checkpoint").write_bytes(
        format_note(sign_note(format_checkpoint(earlier), (signer,)))
    )
    assert "LOG_FORK" in made.codes()


# Edges


def test_the_last_checkpoint_of_the_old_log_needs_its_quorum(tmp_path: Path) -> None:
    from tlog.keys import make_cosigner_key
    from tlog.policy import LogEntry, WitnessEntry, make_policy

    with init_home(tmp_path / "home") as home:
        witness = make_cosigner_key(tmp_path / "w" / "key", "w.example").verifier_key
        logs = [LogEntry(home.log_signer().verifier_key)]
        home.set_policy(make_policy(logs, [WitnessEntry("w", witness)], [], "w").text)
        home.cosign_of = lambda policy: lambda *_: ()
        remember(home, "one")
        origin = home.origin
        with pytest.raises(UnavailableError) as caught:
            Operator(home).succeed(None, 1)
        assert caught.value.code == "witness_quorum_not_met"
        assert (home.origin, home.log().frozen()) == (origin, None)


def test_a_prepared_log_is_the_one_that_comes(tmp_path: Path) -> None:
    with init_home(tmp_path / "home") as home:
        prepared = Operator(home).prepare_succession("example.org/new")
        assert prepared == Operator(home).prepare_succession(None)
        assert home.origin != "example.org/new"
        with pytest.raises(RefusedError):
            Operator(home).prepare_succession("example.org/another")
        with pytest.raises(RefusedError):
            Operator(home).succeed(home.origin, 5)
        assert Operator(home).succeed(None, 5)["vkey"] == prepared["vkey"] == home.log_vkey()


def test_a_policy_keeps_every_log(made: Made) -> None:
    old = made.home.config.frozen[0].split(" ")[0]
    assert {entry.key.vkey for entry in made.home.set_policy("quorum none\n").logs} == {
        old,
        made.home.log_vkey(),
    }
    with pytest.raises(MalformedError):
        made.home.set_policy(f"log {made.home.log_vkey()}\nquorum none\n")
    assert made.codes() == set()


def test_the_mirror_has_both_logs(tmp_path: Path) -> None:
    with init_home(tmp_path / "home") as home:
        remember(home, "one")
        home.publish()
        Operator(home).set_mirror(str(tmp_path / "mirror"))
        Operator(home).succeed(None, 5)
        remember(home, "two")
        home.publish()
        for number, folder in ((1, "log"), (2, "log-2")):
            mirror = DirectoryStorage(tmp_path / "mirror" / folder)
            assert mirror.read("checkpoint") == home.public_storage(number).read("checkpoint")
            assert fsck(mirror).size == number
        shutil.rmtree(tmp_path / "mirror")
        Operator(home).set_mirror(str(tmp_path / "mirror"))
        assert fsck(DirectoryStorage(tmp_path / "mirror" / "log")).size == 1


# Commands


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = main([*words, "--json"])
    out = capsys.readouterr().out
    return code, json.loads(out) if out else None


def test_the_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MUNIMENT_HOME", raising=False)
    home = ["--home", "home"]
    (tmp_path / "pass").write_text("a long one\n")
    code, made = run(capsys, "log", "root", "init", "usb/root.key", "--passphrase-file", "pass")
    assert code == 0 and not (tmp_path / "home").exists(), "a machine with a root gets no home"
    assert run(capsys, "log", "root", "show", "usb/root.key", "--passphrase-file", "pass") == (0, made)
    (tmp_path / "wrong").write_text("another\n")
    assert run(capsys, "log", "root", "show", "usb/root.key", "--passphrase-file", "wrong")[0] == 2
    assert run(capsys, "log", "root", "show", "usb/root.key")[0] == 2
    assert run(capsys, "log", "root", "init", "usb/root.key")[0] == 1
    assert run(capsys, "init", *home)[0] == 0
    assert run(capsys, "log", "root", "init", "home/keys/root.key", *home)[0] == 1
    assert run(capsys, "log", "root", "init", "home/deeper/root.key", *home)[0] == 1
    assert run(capsys, "log", "trust", *home)[1]["keys"] == "inline"
    assert run(capsys, "log", "root", "request", "-o", "r.cbor", *home)[0] == 0
    signing = ["usb/root.key", "--passphrase-file", "pass", "--request", "r.cbor"]
    assert run(capsys, "log", "root", "sign", *signing, "-o", "k.cose")[0] == 0
    installing = ["log", "root", "install", "k.cose", *home]
    assert run(capsys, *installing)[0] == 2
    assert run(capsys, *installing, "--root-key", made["cose_key"])[1]["root"] == made["kid"]
    assert run(capsys, "log", "trust", *home)[1]["keys"] == "root"
    assert run(capsys, "log", "rotate", "issuer", *home)[1]["state"] == "prepared"
    rooted = ["--root", "usb/root.key", "--passphrase-file", "pass", *home]
    assert run(capsys, "log", "rotate", "issuer", *rooted)[1]["state"] == "rotated"
    found = run(capsys, "log", "keys", *home)[1]
    assert [key["in_use"] for key in found["keys"]] == [False, True, True, True]
    assert run(capsys, "log", "mirror", *home)[1]["mirror"] is None
    assert run(capsys, "log", "mirror", "--to", "mirror", *home)[0] == 0
    assert run(capsys, "log", "succeed", "--prepare", *home)[1]["state"] == "prepared"
    ended = run(capsys, "log", "succeed", *home)[1]
    assert ended["frozen"]["size"] == 0 and ended["frozen"]["root"] == encode_base64(
        bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    )
    assert run(capsys, "log", "status", *home)[1]["published"]["size"] == 1
    assert run(capsys, "log", "publish", *home)[1]["size"] == 1
    assert run(capsys, "log", "trust", "-o", "trust.toml", *home)[0] == 0
    code, verdict = run(capsys, "verify", "home/log-2/keys.cose", "--trust", "trust.toml")
    assert (code, verdict["files"][0]["kind"]) == (0, "key_list")
    for words in ("log root certify usb/root.key --life 0", "log rotate issuer --deadline 0"):
        assert run(capsys, *words.split(), *home)[0] == 2


def test_the_passphrase_may_come_from_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    for _ in range(2):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"secret\n")))
        command = "init" if not (tmp_path / "root.key").exists() else "show"
        words = ["log", "root", command, str(tmp_path / "root.key"), "--passphrase-file", "-"]
        assert run(capsys, *words)[0] == 0
