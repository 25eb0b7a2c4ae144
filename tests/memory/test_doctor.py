"""`muniment doctor`: each thing that can be wrong with a home is found, and what to do is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

from memory import cli, doctor, vfs
from memory.model import Principal
from memory.wiring import open_home

SECRET = "Zebrafinch-0451"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    with open_home(path) as opened:
        opened.memory(Principal("acme", "bot", "c")).remember(text=f"the bird is {SECRET}")
        opened.publish()
    return path


def results(path: Path, deep: bool = False) -> dict[str, str]:
    """The worst result by check."""
    order = ["ok", "skipped", "warn", "fail"]
    found: dict[str, str] = {}
    for one in doctor.examine(path, deep):
        assert one.text and (one.do or one.result in ("ok", "skipped"))
        assert SECRET not in one.text + one.do and "acme" not in one.text
        found[one.check] = max(found.get(one.check, "ok"), one.result, key=order.index)
    return found


def change(path: Path, **settings: Any) -> None:
    with open_home(path) as opened:
        opened.write_config(replace(opened.config, **settings))


def test_a_sound_home(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = results(home)
    assert "fail" not in found.values()
    assert {name for name, result in found.items() if result == "warn"} <= {"witnesses", "command", "disk"}
    assert cli.main(["doctor", "--home", str(home), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["verdict"] == "warn" and {"check", "result", "text", "do"} == set(answer["checks"][0])
    assert cli.main(["doctor", "--home", str(home)]) == 0
    assert "do: name witnesses" in capsys.readouterr().out


def test_no_home(tmp_path: Path) -> None:
    assert results(tmp_path / "nowhere")["home"] == "fail"
    assert not (tmp_path / "nowhere").exists()
    assert cli.main(["doctor", "--home", str(tmp_path / "nowhere")]) == 1


def _open_mode(home: Path) -> None:
    home.chmod(0o755)


def _readable_key(home: Path) -> None:
    (home / "keys" / "guard").mkdir(exist_ok=True)
    (home / "store.db").chmod(0o644)


def _broken_settings(home: Path) -> None:
    (home / "config.toml").write_text("version = ?", "utf-8")


def _guard_off(home: Path) -> None:
    change(home, guard="off")


def _swapped_key(home: Path) -> None:
    (home / "keys" / "issuer.key").write_bytes((home / "keys" / "receipt.key").read_bytes())


def _damaged_store(home: Path) -> None:
    with open_home(home) as opened:
        opened.parts().store.checkpoint_truncate()
    data = bytearray((home / "store.db").read_bytes())
    for at in range(4096 * 3, len(data), 4096):
        data[at : at + 8] = b"\xff" * 8
    (home / "store.db").write_bytes(data)


def _late_outbox(home: Path) -> None:
    with open_home(home, clock=lambda: 1_700_000_000_000_000) as opened:
        connection = apsw.Connection(str(home / "store.db"), vfs=vfs.register())
        connection.execute("UPDATE meta SET value = 0 WHERE name = 'recorded_at'")
        connection.close()
        opened.memory(Principal("acme", "bot", "c")).remember(text="something from long ago")


def _clock_back(home: Path) -> None:
    ahead = 4_000_000_000_000_000
    with open_home(home, clock=lambda: ahead) as opened:
        opened.memory(Principal("acme", "bot", "c")).remember(text="from a clock ahead")


def _no_checkpoint(home: Path) -> None:
    (home / "log" / "checkpoint").unlink()


def _damaged_checkpoint(home: Path) -> None:
    (home / "log" / "checkpoint").write_bytes(b"nothing\n")


def _gone_system(home: Path) -> None:
    change(home, systems=("cache /nowhere/flush | /nowhere/count",))


def _lone_system(home: Path) -> None:
    change(home, systems=("cache /bin/true",))


def _lost_mirror(home: Path) -> None:
    mirror = home.parent / "mirror"
    assert cli.main(["log", "mirror", "--to", str(mirror), "--home", str(home)]) == 0
    for path in sorted(mirror.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def _silent_witness(home: Path, capsys: pytest.CaptureFixture[str], quorum: str) -> None:
    capsys.readouterr()
    state = home.parent / "witness"
    assert cli.main(["witness", "init", "--state", str(state), "--name", "w.example", "--json"]) == 0
    vkey = json.loads(capsys.readouterr().out)["vkey"]
    with open_home(home) as opened:
        opened.set_policy(f"witness w {vkey} http://127.0.0.1:9/\nquorum {quorum}\n")


BROKEN = [
    (_open_mode, "home_mode", "fail"),
    (_readable_key, "file_modes", "warn"),
    (_broken_settings, "settings", "fail"),
    (_guard_off, "guard", "warn"),
    (_swapped_key, "keys", "fail"),
    (_damaged_store, "store", "fail"),
    (_late_outbox, "outbox", "fail"),
    (_clock_back, "clock", "fail"),
    (_no_checkpoint, "checkpoint", "warn"),
    (_damaged_checkpoint, "checkpoint", "fail"),
    (_gone_system, "systems", "fail"),
    (_lone_system, "systems", "warn"),
    (_lost_mirror, "mirror", "fail"),
]


@pytest.mark.parametrize(("damage", "check", "result"), BROKEN, ids=[one[0].__name__ for one in BROKEN])
def test_what_is_wrong_is_found(home: Path, damage: Any, check: str, result: str) -> None:
    damage(home)
    assert results(home)[check] == result
    assert (cli.main(["doctor", "--home", str(home)]) == 1) == (result == "fail")


@pytest.mark.parametrize(("quorum", "result"), [("w", "fail"), ("none", "warn")])
def test_a_silent_witness_is_found(
    home: Path, capsys: pytest.CaptureFixture[str], quorum: str, result: str
) -> None:
    _silent_witness(home, capsys, quorum)
    found = results(home)
    assert found["witnesses"] == result
    assert found["checkpoint"] == ("fail" if quorum == "w" else "ok")


def test_a_pinned_write_ahead_log_is_found(home: Path) -> None:
    with open_home(home) as opened:
        reader = apsw.Connection(str(home / "store.db"), vfs=vfs.register())
        reader.execute("BEGIN").fetchall()
        reader.execute("SELECT count(*) FROM events").fetchall()
        opened.memory(Principal("acme", "bot", "c")).remember(text="one more")
        assert results(home)["wal"] == "warn"
        reader.close()
        assert results(home)["wal"] == "ok"


def test_a_large_store_is_read_only_when_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from memory import doctor_store

    monkeypatch.setattr(doctor_store, "_DEEP_ABOVE_BYTES", 1000)
    assert results(home)["store"] == "skipped"
    assert results(home, deep=True)["store"] == "ok"


def test_a_full_disk_is_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=1))
    assert results(home)["disk"] == "warn"
