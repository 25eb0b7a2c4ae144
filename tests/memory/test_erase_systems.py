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
elif what == "count": print(json.dumps({"count": len(hit)} | ({"ids": len(told["ids"])} if mode == "by-ids" else {})))
else: print(json.dumps({"found": len(hit)} if mode in ("scans", "by-ids") else {}))
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


def declare(
    home: wiring.Home,
    tmp_path: Path,
    mode: str = "good",
    counter: str | None = "counter",
    counting: str = "scans",
) -> None:
    line = f"cache:sessions {tmp_path}/adapter {tmp_path}/cache.json {mode}"
    if counter is not None:
        line += f" | {tmp_path}/{counter} {tmp_path}/cache.json {counting}"
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
    declare(home, tmp_path, counting="by-ids")
    again = home.memory(ME).look_again(answer["request"], [DANA, "Elm Street"])
    assert (again["state"], cache(tmp_path)) == ("closed_complete", ["fox: basement"])
    assert "needles_unconfirmed" in manifest_of(home, again).document["limits"]


def test_words_that_were_given_again_do_not_verify_a_system(home: wiring.Home, tmp_path: Path) -> None:
    """An unrelated word: the adapter erases nothing, the counter counts nothing, and the cache has it all."""
    declare(home, tmp_path, "broken")
    answer = forget(home, subject=DANA)
    declare(home, tmp_path)
    again = home.memory(ME).look_again(answer["request"], ["umbrella"])
    assert len(cache(tmp_path)) == 2
    assert (again["state"], [one["code"] for one in again["why"]]) == (
        "inconclusive",
        ["needles_unconfirmed"],
    )
    system = system_of(home, again)
    assert (system["result"], system["before"]) == ("not_verified", 0)


def test_a_system_is_told_the_ids_again(home: wiring.Home, tmp_path: Path) -> None:
    declare(home, tmp_path, "down")
    ids = home.memory(ME).forget_preview(subject=DANA)["preview"]["ids"]
    answer = forget(home, subject=DANA)
    told = tmp_path / "told"
    keep = tmp_path / "keep"
    keep.write_text(f'#!/bin/sh\ncat > {told}\necho \'{{"before": 0, "erased": 0}}\'\n')
    keep.chmod(0o700)
    home.write_config(replace(home.config, systems=(f"cache:sessions {keep}",)))
    home.memory(ME).look_again(answer["request"], ["umbrella"])
    said = json.loads(told.read_text())
    assert (said["ids"], said["names"]) == (ids, ["umbrella"])


def test_a_system_that_is_not_declared_any_more_stays_as_it_was(home: wiring.Home, tmp_path: Path) -> None:
    declare(home, tmp_path, "broken")
    answer = forget(home, subject=DANA)
    home.write_config(replace(home.config, systems=()))
    for _ in range(2):
        again = home.memory(ME).look_again(answer["request"], [DANA, "Elm Street"])
        assert (again["state"], system_of(home, again)["result"]) == ("inconclusive", "failed")
        assert check_of(manifest_of(home, again), "independent_count")["result"] == "not_run"
    declare(home, tmp_path, counting="by-ids")
    again = home.memory(ME).look_again(answer["request"], [DANA, "Elm Street"])
    assert (again["state"], cache(tmp_path)) == ("closed_complete", ["fox: basement"])


def test_a_system_that_was_verified_is_so_when_another_is_looked_after_again(
    home: wiring.Home, tmp_path: Path
) -> None:
    declare(home, tmp_path)
    good = home.config.systems[0]
    other = f"processor:mail {tmp_path}/adapter {tmp_path}/cache.json"
    home.write_config(replace(home.config, systems=(good, f"{other} down")))
    answer = forget(home, subject=DANA)
    assert system_of(home, answer)["result"] == "verified"
    counter = f"{tmp_path}/counter {tmp_path}/cache.json by-ids"
    home.write_config(replace(home.config, systems=(f"{other} good | {counter}",)))
    again = home.memory(ME).look_again(answer["request"], [DANA])
    assert (again["state"], system_of(home, again)["result"]) == ("closed_complete", "verified")


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
        with opened.parts().store.read_whole() as view:
            (row,) = view.erasures()
        assert row.state == "inconclusive" and len(cache(tmp_path)) == 2
        opened.write_config(replace(opened.config, systems=()))
        again = opened.memory(ME).look_again(row.request.hex(), [DANA])
        assert (again["state"], system_of(opened, again)["result"]) == ("inconclusive", "not_verified")
        declare(opened, tmp_path, counting="by-ids")
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
    named = [
        parse_systems((line,), "urn:uuid:1")[0]
        for line in ("cache:a /bin/x", "cache:a /bin/y | /bin/c", "cache:b /bin/x")
    ]
    assert named[0].reference == named[1].reference != named[2].reference
    counted = parse_systems(("cache /bin/erase --host one | /bin/another",), "urn:uuid:1")[0]
    assert counted.reference == first.reference
    assert (first.command, first.counter) == (("/bin/erase", "--host", "one"), ("/bin/count",))
