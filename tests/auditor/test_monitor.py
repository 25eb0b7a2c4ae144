"""The monitor: a log that forks, goes back, falls silent or loses its witnesses is told of, with the notes."""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from auditor.cli import add_audit_command
from auditor.cli_monitor import parse_seconds
from auditor.monitor import Alarm, Look, Watched, look
from auditor.monitor_metrics import CODES, MonitorMetrics
from auditor.monitor_state import MAX_KEPT, open_state
from memory import cli
from memory.demo_witnesses import running_witnesses
from memory.model import SCOPES, Principal
from memory.wiring import Home, init_home, open_home
from tlog.checkpoint import Checkpoint, open_checkpoint
from tlog.client import folder_reader
from tlog.cosignature import Cosigner
from tlog.errors import MalformedError, UnavailableError
from tlog.keys import make_cosigner_key
from tlog.metrics import Metrics
from tlog.note import Note, format_note, parse_note
from tlog.policy import verify_cosignatures
from tlog.trust import Trust, parse_trust
from witness.client import WitnessedHead

REPOSITORY = Path(__file__).resolve().parent.parent.parent
ME = Principal("acme", "bot", "one", SCOPES)
WHEN = 1_790_000_000


@dataclass
class World:
    """A log with a witness of its policy, whose cosignatures are made here at a set time."""

    home: Path
    trust: Trust
    cosigner: Cosigner
    time: int = WHEN

    @property
    def watched(self) -> Watched:
        return Watched(self.trust, self.trust.policy.logs[0].key.name)

    def publish(self, home: Path | None = None, facts: int = 3) -> bytes:
        """Some facts more, published with the witness's cosignature; the note."""
        with open_home(home or self.home) as opened:
            opened.cosign_of = self._cosign_of
            memory = opened.memory(ME)
            for number in range(facts):
                memory.remember(f"note {number} of {home or self.home} at {self.time}")
            with patch("memory.wiring._witnessed_heads", lambda policy, origin: []):
                opened.publish()
        return self.served(home)

    def _cosign_of(self, _: object) -> Any:
        return lambda note, *_: (self.cosigner.cosign(parse_note(note).text, self.time),)

    def served(self, home: Path | None = None) -> bytes:
        return ((home or self.home) / "log" / "checkpoint").read_bytes()

    def head(self, note: bytes) -> WitnessedHead:
        """What the witness would serve of this note."""
        origin = self.watched.origin
        opened = open_checkpoint(note, [log.key for log in self.trust.policy.logs], origin)
        return WitnessedHead(("one",), opened, verify_cosignatures(self.trust.policy, opened.note))

    def look(
        self, kept: bytes | None = None, *heads: WitnessedHead, home: Path | None = None, **more: Any
    ) -> Look:
        watched = replace(self.watched, **{name: more.pop(name) for name in list(more) if name != "now"})
        reader = folder_reader((home or self.home) / "log")
        return look(watched, reader, heads, kept, more.get("now", self.time + 1))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("monitored")
    cosigner = make_cosigner_key(folder / "witness.key", "witness.example/one")
    with init_home(folder / "home") as home:
        home.set_policy(f"witness one {cosigner.verifier_key.vkey} http://127.0.0.1:9\nquorum one\n")
        trust = home.trust()
    world = World(folder / "home", trust, cosigner)
    world.publish()
    return world


@pytest.fixture
def world(made: World, tmp_path: Path) -> World:
    shutil.copytree(made.home, tmp_path / "home")
    return World(tmp_path / "home", made.trust, made.cosigner)


@pytest.fixture
def fork(world: World, tmp_path: Path) -> Path:
    """A copy of the home as it is, which may go another way: the operator has all the keys."""
    shutil.copytree(world.home, tmp_path / "fork")
    return tmp_path / "fork"


def codes(found: Look) -> list[str]:
    return [alarm.code for alarm in found.alarms]


def test_a_log_that_grows_is_no_alarm(world: World) -> None:
    first = world.look()
    assert (codes(first), first.keep) == ([], world.served())
    note = world.publish()
    second = world.look(first.keep, world.head(note))
    assert (codes(second), second.keep) == ([], note)
    assert second.head is not None and second.head.size == 6
    assert (second.cosigned_at, second.heard, second.silent) == (WHEN, ("one",), ())


def test_a_fork_since_the_last_look_is_told_with_both_notes(world: World, fork: Path) -> None:
    kept = world.publish()
    other = world.publish(fork, 5)
    found = world.look(kept, home=fork)
    (alarm,) = found.alarms
    assert (alarm.code, alarm.severity) == ("LOG_FORK", "critical")
    assert {note for _, note in alarm.notes} == {kept, other}
    assert found.keep is None, "the head that was kept stays"


def test_a_fork_of_one_size_needs_no_tiles(world: World, fork: Path) -> None:
    kept = world.publish()
    world.publish(fork)
    shutil.rmtree(fork / "log" / "tile")
    assert codes(world.look(kept, home=fork)) == ["LOG_FORK"]


def test_a_fork_that_only_a_witness_was_shown_is_told(world: World, fork: Path) -> None:
    other = world.publish(fork)
    world.publish(facts=5)
    found = world.look(None, world.head(other))
    assert codes(found) == ["LOG_FORK"]
    assert dict(found.alarms[0].notes).keys() == {"one", "the log"}
    assert found.keep is None


@pytest.mark.parametrize("serves", [None, b"no note", b""])
def test_a_log_that_shows_nothing_hides_no_fork(world: World, fork: Path, serves: bytes | None) -> None:
    """What a witness has, and what was kept, are two heads of one size without a word of the log's."""
    kept, other = world.publish(), world.head(world.publish(fork))
    path = world.home / "log" / "checkpoint"
    path.unlink() if serves is None else path.write_bytes(serves)
    found = world.look(kept, other)
    assert len(found.alarms) == 2 and found.keep is None
    fork_alarm = found.alarms[1]
    assert fork_alarm.code == "LOG_FORK" and {name for name, _ in fork_alarm.notes} == {
        "one",
        "an earlier look",
    }


def test_a_fork_is_the_same_whoever_cosigns_it_later(world: World, fork: Path) -> None:
    kept = world.publish()
    world.publish(fork)
    first = world.look(kept, home=fork).alarms[0]
    later = parse_note(kept)
    again = format_note(Note(later.text, (*later.signatures, world.cosigner.cosign(later.text, WHEN + 60))))
    assert world.look(again, home=fork).alarms[0].key == first.key


def test_a_log_that_went_back_is_told(world: World, fork: Path) -> None:
    kept = world.publish()
    found = world.look(kept, home=fork)
    assert codes(found) == ["LOG_ROLLED_BACK"]
    assert [note for _, note in found.alarms[0].notes] == [kept, world.served(fork)]
    assert found.keep is None


def test_a_witness_may_be_ahead_for_a_while_and_no_longer(world: World, fork: Path) -> None:
    ahead = world.head(world.publish())
    assert codes(world.look(None, ahead, home=fork, now=WHEN + 60)) == []
    late = world.look(None, ahead, home=fork, now=WHEN + 3600)
    assert codes(late) == ["LOG_ROLLED_BACK"]


def test_a_log_that_lost_its_checkpoint_went_back(world: World) -> None:
    kept = world.served()
    (world.home / "log" / "checkpoint").unlink()
    assert codes(world.look(kept)) == ["LOG_ROLLED_BACK"]
    assert codes(world.look(None)) == ["LOG_UNREACHABLE"]


def test_too_few_witnesses_are_told(world: World) -> None:
    note = parse_note(world.served())
    (world.home / "log" / "checkpoint").write_bytes(format_note(Note(note.text, note.signatures[:1])))
    found = world.look()
    assert codes(found) == ["QUORUM_NOT_MET"]
    assert found.alarms[0].notes[0][1] == (world.home / "log" / "checkpoint").read_bytes()


def test_a_head_that_nobody_cosigned_lately_is_told(world: World) -> None:
    assert codes(world.look(now=WHEN + 100, max_age_seconds=100)) == []
    found = world.look(now=WHEN + 101, max_age_seconds=100)
    assert codes(found) == ["CHECKPOINT_STALE"]
    assert found.alarms[0].evidence["age_seconds"] == 101
    assert codes(world.look(now=WHEN + 10**9)) == [], "nobody said how old it may be"


def test_a_cosignature_dated_years_ahead_makes_no_head_fresh(world: World) -> None:
    world.time = WHEN + 10**8
    world.publish()
    found = world.look(now=WHEN + 10_000, max_age_seconds=100)
    assert codes(found) == ["CHECKPOINT_STALE"]
    assert found.cosigned_at is None
    assert codes(world.look(now=WHEN + 10**8, max_age_seconds=100)) == []


def test_the_bound_of_the_trust_file_counts(world: World) -> None:
    world.trust = replace(world.trust, max_checkpoint_age_seconds=100)
    assert codes(world.look(now=WHEN + 101)) == ["CHECKPOINT_STALE"]
    assert codes(world.look(now=WHEN + 101, max_age_seconds=1000)) == []


def test_a_head_that_the_log_did_not_sign_is_told(world: World) -> None:
    path = world.home / "log" / "checkpoint"
    path.write_bytes(path.read_bytes().replace(b"\n3\n", b"\n4\n"))
    assert codes(world.look()) == ["LOG_SIGNATURE"]
    path.write_bytes(b"not a note")
    assert codes(world.look()) == ["LOG_SIGNATURE"]


def test_growth_that_is_not_shown_is_told(world: World) -> None:
    kept = world.served()
    world.publish()
    shutil.rmtree(world.home / "log" / "tile")
    found = world.look(kept)
    assert codes(found) == ["LOG_TRUNCATED"]
    assert found.keep is None


def test_a_log_that_is_away_is_no_fork(world: World) -> None:
    kept = world.served()
    world.publish()
    inner = folder_reader(world.home / "log")

    def away(path: str) -> bytes | None:
        raise UnavailableError("log: cannot be reached", code="unreachable")

    def half(path: str) -> bytes | None:
        return inner(path) if path == "checkpoint" else away(path)

    for reader in (away, half):
        found = look(world.watched, reader, (), kept, WHEN)
        assert codes(found) == ["LOG_UNREACHABLE"]
        assert found.keep is None


def test_a_frozen_log_that_goes_on_is_told(world: World) -> None:
    head = open_checkpoint(world.served(), [log.key for log in world.trust.policy.logs], world.watched.origin)
    world.trust = replace(
        world.trust, frozen=(Checkpoint(world.watched.origin, head.checkpoint.size, head.checkpoint.root),)
    )
    assert codes(world.look()) == []
    world.publish()
    assert codes(world.look()) == ["LOG_FORK"]


def test_evidence_is_kept_once_for_the_same_notes(tmp_path: Path) -> None:
    state = open_state(tmp_path / "state")
    alarm = Alarm("LOG_FORK", "Two.", (("a", b"one"), ("b", b"two")), {"size": 3})
    place = Path(state.keep_alarm("log", alarm, 1))
    assert Path(state.keep_alarm("log", alarm, 2)) == place
    assert json.loads((place / "alarm.json").read_bytes())["seen_at"] == 1
    assert ((place / "1.note").read_bytes(), (place / "2.note").read_bytes()) == (b"one", b"two")
    other = replace(alarm, notes=(("a", b"one"), ("b", b"three")))
    assert Path(state.keep_alarm("log", other, 3)) != place
    assert alarm.key != other.key
    cosigned = replace(alarm, notes=(("a", b"one\n\nmore"), ("b", b"two\n\nmore")))
    assert Path(state.keep_alarm("log", cosigned, 4)) == place
    quiet = Alarm("CHECKPOINT_STALE", "Old.", (("a", b"one"),))
    assert quiet.key == replace(quiet, notes=(("a", b"two"),)).key


# Served


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@dataclass
class Served:
    """A server whose folder may be changed for another, as an operator could."""

    url: str
    folder: Path


@pytest.fixture
def serve() -> Iterator[Callable[[Path], Served]]:
    servers: list[http.server.ThreadingHTTPServer] = []

    def start(folder: Path) -> Served:
        served = Served("", folder)

        def handler(*arguments: Any) -> Any:
            return functools.partial(Quiet, directory=str(served.folder))(*arguments)

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        served.url = f"http://127.0.0.1:{server.server_address[1]}"
        return served

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def witnessed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A home whose log two running witnesses cosign, published once, and a trust file of it."""
    folder = tmp_path_factory.mktemp("witnessed")
    with init_home(folder / "home") as home:
        vkey, origin = home.log_vkey(), home.origin
    with running_witnesses(folder / "witnesses", vkey, origin) as witnesses:
        with open_home(folder / "home") as home:
            lines = [f"witness w{n} {one.vkey} {one.url}\n" for n, one in enumerate(witnesses)]
            home.set_policy("".join(lines) + "group both all w0 w1\nquorum both\n")
            home.memory(ME).remember("first")
            home.publish()
        (folder / "trust.toml").write_text((folder / "home" / "trust.toml").read_text())
        yield folder / "home", folder / "trust.toml"


def follow(url: str, trust: Path, state: Path, capsys: Any, *more: str) -> tuple[int, list[dict[str, Any]]]:
    arguments = ["audit", "--follow", url, "--trust", str(trust), "--state", str(state), "--once", "--json"]
    code = cli.main([*arguments, *more])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_served_log_forks_before_the_monitor(
    witnessed: tuple[Path, Path], serve: Callable[[Path], Served], tmp_path: Path, capsys: Any
) -> None:
    home, trust = witnessed
    fork = tmp_path / "fork"
    shutil.copytree(home, fork)
    served = serve(home / "log")
    state = tmp_path / "state"
    assert follow(served.url, trust, state, capsys) == (0, [])
    with open_home(home) as opened:
        publish(opened, "as everybody sees it")
    assert follow(served.url, trust, state, capsys) == (0, [])
    honest = (home / "log" / "checkpoint").read_bytes()
    with open_home(fork) as opened:
        # No witness cosigns the other way, and the log itself would not sign what it finds them ahead of.
        opened.set_policy("quorum none\n")
        publish(opened, "as one auditor is to see it")
    served.folder = fork / "log"
    code, alarms = follow(served.url, trust, state, capsys)
    assert code == 1
    assert {one["alarm"] for one in alarms} == {"LOG_FORK", "QUORUM_NOT_MET"}
    (told,) = [one for one in alarms if one["alarm"] == "LOG_FORK"]
    heads = {parse_note(path.read_bytes()).text for path in Path(told["evidence"]).glob("*.note")}
    assert heads == {parse_note(one).text for one in (honest, (fork / "log" / "checkpoint").read_bytes())}
    assert (told["over"], told["severity"]) == (False, "critical")
    # What convicts the log convicts it for whoever has its key, too.
    for path in Path(told["evidence"]).glob("*.note"):
        vkey = opened.log_vkey()
        assert cli.main(["verify", str(path), "--log-key", vkey]) == 0
    capsys.readouterr()
    # It shows the one head again, and more: that it has signed the other stays so, until somebody takes it away.
    served.folder = home / "log"
    for _ in range(2):
        code, (again,) = follow(served.url, trust, state, capsys)
        assert code == 1
        assert again == {**told, "at": again["at"]}
        with open_home(home) as opened:
            publish(opened, "and on it goes")
    assert {one.name for one in (state / "alarms").glob("log-fork-*")} == {Path(told["evidence"]).name}
    Path(told["evidence"]).rename(tmp_path / "dealt with")
    assert follow(served.url, trust, state, capsys) == (0, [])


@pytest.mark.parametrize("said", ["{}", "[]", '{"shown_by": 1, "origin": "x"}', "no JSON"])
def test_evidence_of_a_fork_that_was_damaged_is_not_passed_over(tmp_path: Path, said: str) -> None:
    folder = tmp_path / "alarms" / "log-fork-1"
    folder.mkdir(parents=True)
    (folder / "alarm.json").write_text(said)
    with pytest.raises(MalformedError, match="evidence of a fork"):
        open_state(tmp_path).fork("x")


def test_a_log_that_shows_another_head_at_every_look_does_not_fill_the_disk(tmp_path: Path) -> None:
    state = open_state(tmp_path / "state")
    places = []
    for turn in range(MAX_KEPT + 3):
        alarm = Alarm("LOG_FORK", "Two.", (("a", b"one"), ("b", b"head %d" % turn)), {"size": turn})
        places.append(Path(state.keep_alarm("log", alarm, turn)))
    stale = Path(state.keep_alarm("log", Alarm("CHECKPOINT_STALE", "Old.", (("a", b"one"),)), 1))
    folders = set((tmp_path / "state" / "alarms").iterdir())
    assert folders == {*places[:MAX_KEPT], places[-1], stale}
    assert places[-1].name == "log-fork-newest"
    assert (places[-1] / "2.note").read_bytes() == b"head %d" % (MAX_KEPT + 2)
    first = state.fork("log")
    assert first is not None
    assert first.notes[1][1] == b"head 0"


def publish(home: Home, text: str) -> None:
    home.memory(ME).remember(text)
    home.publish()


def test_a_served_log_goes_back_before_the_monitor(
    witnessed: tuple[Path, Path], serve: Callable[[Path], Served], tmp_path: Path, capsys: Any
) -> None:
    home, trust = witnessed
    shutil.copytree(home / "log", tmp_path / "old")
    with open_home(home) as opened:
        publish(opened, "one more")
    served = serve(home / "log")
    state = tmp_path / "state"
    assert follow(served.url, trust, state, capsys) == (0, [])
    served.folder = tmp_path / "old"
    code, alarms = follow(served.url, trust, state, capsys)
    assert (code, [one["alarm"] for one in alarms]) == (1, ["LOG_ROLLED_BACK"])
    assert len(list(Path(alarms[0]["evidence"]).glob("*.note"))) == 2
    # A full audit that is given the same folder knows the head, too.
    code = cli.main(
        ["audit", "--log", str(tmp_path / "old"), "--trust", str(trust), "--state", str(state), "--json"]
    )
    assert code == 1
    assert "LOG_ROLLED_BACK" in {one["code"] for one in json.loads(capsys.readouterr().out)["findings"]}


def test_a_log_that_is_away_may_be_tried_again(
    witnessed: tuple[Path, Path], tmp_path: Path, capsys: Any
) -> None:
    code, alarms = follow("http://127.0.0.1:9", witnessed[1], tmp_path / "state", capsys)
    assert (code, [one["alarm"] for one in alarms]) == (3, ["LOG_UNREACHABLE"])


def test_a_running_monitor_tells_begin_and_end_and_serves_metrics(
    witnessed: tuple[Path, Path], serve: Callable[[Path], Served], tmp_path: Path
) -> None:
    home, trust = witnessed
    shutil.copytree(home / "log", tmp_path / "cut")
    note = parse_note((tmp_path / "cut" / "checkpoint").read_bytes())
    (tmp_path / "cut" / "checkpoint").write_bytes(format_note(Note(note.text, note.signatures[:1])))
    served = serve(home / "log")
    command = [sys.executable, "-m", "memory.cli", "audit", "--follow", served.url, "--trust", str(trust)]
    command += ["--state", str(tmp_path / "state"), "--interval", "1s", "--metrics", "127.0.0.1:0", "--json"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stderr is not None
        told: queue.SimpleQueue[str] = queue.SimpleQueue()
        reader = threading.Thread(target=_read_lines, args=(process, told), daemon=True)
        reader.start()
        match = re.search(r"metrics on (\S+)", process.stderr.readline())
        assert match is not None
        served.folder = tmp_path / "cut"
        began = json.loads(told.get(timeout=30))
        assert (began["alarm"], began["over"]) == ("QUORUM_NOT_MET", False)
        with urllib.request.urlopen(match[1], timeout=10) as answer:
            text = answer.read().decode()
        assert 'muniment_monitor_alarms{code="QUORUM_NOT_MET"} 1' in text
        assert 'muniment_monitor_alarms_total{code="QUORUM_NOT_MET"} 1' in text
        assert 'muniment_monitor_witness_answers_total{witness="w0",outcome="head"}' in text
        served.folder = home / "log"
        ended = json.loads(told.get(timeout=30))
        assert (ended["alarm"], ended["over"]) == ("QUORUM_NOT_MET", True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.wait()
        reader.join(10)
        process.stderr.close()


def _read_lines(process: subprocess.Popen[str], told: queue.SimpleQueue[str]) -> None:
    """Hands on each line, so that one that never comes fails the test and does not hold it up."""
    assert process.stdout is not None
    with process.stdout as stdout:
        for line in stdout:
            told.put(line)


@pytest.mark.parametrize(
    "more",
    [
        ["--interval", "0s"],
        ["--interval", "soon"],
        ["--max-age", "-1h"],
        ["--origin", "another.example/log"],
    ],
)
def test_what_a_monitor_is_told_is_checked(
    witnessed: tuple[Path, Path], tmp_path: Path, capsys: Any, more: list[str]
) -> None:
    assert follow("http://127.0.0.1:9", witnessed[1], tmp_path / "state", capsys, *more)[0] == 2


def test_a_monitor_needs_trust_and_a_folder(witnessed: tuple[Path, Path], tmp_path: Path) -> None:
    base = ["audit", "--follow", "http://127.0.0.1:9", "--once"]
    assert cli.main([*base, "--state", str(tmp_path)]) == 2
    assert cli.main([*base, "--trust", str(witnessed[1])]) == 2
    assert parse_trust(witnessed[1].read_text()).policy.quorum == "both"


def test_the_unit_runs_a_command_that_there_is() -> None:
    unit = (REPOSITORY / "deploy" / "muniment-monitor.service").read_text()
    (line,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    command = line.removeprefix("ExecStart=").replace("${URL}", "https://log.example").split()
    assert command[:2] == ["/usr/local/bin/muniment", "audit"]
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_audit_command(parser.add_subparsers())
    args = parser.parse_args(command[1:])
    assert args.follow == "https://log.example"
    assert str(args.state) == "/var/lib/muniment-monitor"
    assert parse_seconds(args.interval, "the interval") == 60
    assert "StateDirectory=muniment-monitor" in unit


def test_the_page_about_watching_names_every_alarm_and_metric() -> None:
    page = (REPOSITORY / "docs" / "MONITOR.md").read_text()
    assert [code for code in CODES if f"`{code}`" not in page] == []
    metrics = Metrics()
    MonitorMetrics(metrics)
    names = [family.name for family in metrics._families.values()]
    assert len(names) > 5
    assert [name for name in names if name not in page] == []
