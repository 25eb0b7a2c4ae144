"""Other systems are told to erase and counted by somebody else; none that was not keeps a request open."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory import erase, erase_systems, wiring
from memory.erase_systems import parse_systems
from tlog.errors import MalformedError

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import ME, check_of, forget, found_in, manifest_of, write

DANA = "Dana Scully"
# A cache of one JSON list on disk: the adapter erases from it, the counter reads it by itself.
ADAPTER = """
import json, sys
path, mode, what = sys.argv[1:4]
told = json.load(sys.stdin)
assert what == told["op"]
held = json.load(open(path))
words = [w.lower() for name in ("subjects", "values", "names") for w in told.get(name, [])]
hit = [one for one in held if any(w in one.lower() for w in words)]
if mode == "down": sys.exit(3)
if mode == "broken": sys.exit(1)
if mode == "babble": print("I did " + hit[0]); sys.exit(0)
if what == "erase":
    if mode != "lie": json.dump([one for one in held if one not in hit], open(path, "w"))
    print(json.dumps({"before": len(hit), "erased": len(hit)}))
elif what == "count": print(json.dumps({"count": len(hit)}))
else: print(json.dumps({"found": len(hit)} if mode == "scans" else {}))
"""


class Killed(BaseException):
    """A kill -9, seen from inside."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[wiring.Home]:
    (tmp_path / "cache.json").write_text(json.dumps(["dana scully: Elm Street", "fox: basement"]))
    for name in ("adapter", "counter"):
        program = tmp_path / name
        program.write_text(f"#!{sys.executable}\n{ADAPTER}")
        program.chmod(0o700)
    with wiring.open_home(tmp_path / "home") as opened:
        write(opened, "Dana is in Elm Street.", key="dana/address", value="Elm Street", subject=DANA)
        write(opened, "Fox has the basement.", key="fox/office", value="basement", subject="Fox")
        yield opened


def declare(home: wiring.Home, tmp_path: Path, mode: str = "good", counter: str | None = "counter") -> None:
    line = f"cache {tmp_path}/adapter {tmp_path}/cache.json {mode}"
    if counter is not None:
        line += f" | {tmp_path}/{counter} {tmp_path}/cache.json scans"
    home.write_config(replace(home.config, systems=(line,)))


def cache(tmp_path: Path) -> list[str]:
    held: list[str] = json.loads((tmp_path / "cache.json").read_text())
    return held


def system_of(home: wiring.Home, answer: Any) -> Any:
    (one,) = [one for one in manifest_of(home, answer).document["systems"] if one["kind"] == "cache"]
    return one


def test_a_system_that_erased_and_was_counted_is_verified(home: wiring.Home, tmp_path: Path) -> None:
    declare(home, tmp_path)
    answer = forget(home, subject=DANA)
    assert (answer["state"], cache(tmp_path)) == ("closed_complete", ["fox: basement"])
    system = system_of(home, answer)
    assert (system["method"], system["before"], system["erased"], system["result"]) == (
        "external",
        1,
        1,
        "verified",
    )
    counted = check_of(manifest_of(home, answer), "independent_count")
    assert (counted["result"], counted["counts"]["systems_counted"]) == ("clean", 1)
    assert found_in(home, "Elm Street", DANA) == set()


@pytest.mark.parametrize(
    ("mode", "counter", "result", "why"),
    [
        ("good", None, "not_verified", "system_not_verified"),
        ("good", "missing", "not_verified", "system_not_verified"),
        ("lie", "counter", "failed", "system_failed"),
        ("down", "counter", "not_reachable", "system_not_reachable"),
        ("broken", "counter", "failed", "system_failed"),
        ("babble", "counter", "failed", "system_failed"),
    ],
)
def test_one_that_is_not_verified_keeps_the_request_open(
    home: wiring.Home, tmp_path: Path, mode: str, counter: str | None, result: str, why: str
) -> None:
    declare(home, tmp_path, mode, counter)
    answer = forget(home, subject=DANA)
    assert answer["state"] == "inconclusive"
    assert why in {one["code"] for one in answer["why"]}
    assert system_of(home, answer)["result"] == result
    assert check_of(manifest_of(home, answer), "independent_count")["result"] != "clean"
    # Nothing of what it printed is anywhere.
    assert found_in(home, "Elm Street") == set()


def test_a_system_that_came_back_closes_the_request(home: wiring.Home, tmp_path: Path) -> None:
    declare(home, tmp_path, "down")
    answer = forget(home, subject=DANA)
    declare(home, tmp_path)
    again = home.memory(ME).look_again(answer["request"], [DANA, "Elm Street"])
    assert (again["state"], cache(tmp_path)) == ("closed_complete", ["fox: basement"])


def test_after_a_crash_no_system_was_asked(home: wiring.Home, tmp_path: Path) -> None:
    declare(home, tmp_path)
    token = home.memory(ME).forget_preview(subject=DANA)["confirm"]

    def kill(step: str) -> None:
        if step == "erased":
            raise Killed

    with pytest.raises(Killed):
        erase.execute(home.parts(), ME, token, failpoint=kill, subject=DANA)
    home.close()
    with wiring.open_home(home.path) as opened:
        opened.parts()
        with opened.parts().store.read() as view:
            (row,) = view.erasures()
        assert row.state == "inconclusive" and len(cache(tmp_path)) == 2
        assert opened.memory(ME).look_again(row.request.hex(), [DANA])["state"] == "closed_complete"
    assert cache(tmp_path) == ["fox: basement"]


def test_a_system_that_hangs_is_not_waited_for(
    home: wiring.Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erase_systems, "TIMEOUT_SECONDS", 0.2)
    hang = tmp_path / "hang"
    hang.write_text("#!/bin/sh\nexec sleep 30\n")
    hang.chmod(0o700)
    home.write_config(replace(home.config, systems=(f"processor {hang} | {tmp_path}/counter x scans",)))
    answer = forget(home, subject=DANA)
    assert "system_not_reachable" in {one["code"] for one in answer["why"]}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "cache",
        "store /bin/x",
        "nonsense /bin/x",
        "cache /bin/x |",
        "cache 'x",
        "cache /bin/x | /bin/x count",
    ],
)
def test_a_line_that_declares_no_system_is_an_error(line: str) -> None:
    with pytest.raises(MalformedError):
        parse_systems((line,), "urn:uuid:1")


def test_a_system_is_known_by_a_reference_that_tells_nothing() -> None:
    lines = ("cache /bin/erase --host one | /bin/count", "cache /bin/erase --host two | /bin/count")
    first, second = parse_systems(lines, "urn:uuid:1")
    assert len({first.reference, second.reference, parse_systems(lines, "urn:uuid:2")[0].reference}) == 3
    assert (first.command, first.counter) == (("/bin/erase", "--host", "one"), ("/bin/count",))
