"""A backup can't be read for what was erased since, is refused once changed, and is restored to what the log says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from auditor.audit import Places, audit
from auditor.evidence import Asked
from memory import backup, cli, restore, store_backup, wiring
from memory.backup_keys import SLOT_BYTES, KeyRing
from tlog.errors import Error, MalformedError, RefusedError, VerificationError

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import ME, Clock, forget, is_closed, lose_store, manifest_of, write

DANA = "Dana Scully"
KEEP = 90 * 86_400_000_000
REPOSITORY = Path(__file__).resolve().parent.parent.parent


class Killed(BaseException):
    """A kill -9, seen from inside."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[wiring.Home]:
    with wiring.open_home(tmp_path / "home", clock=Clock(time.time_ns() // 1000)) as opened:
        yield opened


def fill(home: wiring.Home) -> dict[str, Any]:
    """Two addresses of Dana, who has a request of her own, an office of Fox, and a note about nobody."""
    made = {
        "old": write(home, "Dana is in Elm Street.", key="dana/address", value="Elm Street", subject=DANA),
        "new": write(
            home,
            "Dana is in Oak Lane.",
            key="dana/address",
            value="Oak Lane",
            subject=DANA,
            idempotency_key="r1",
        ),
        "fox": write(home, "Fox has the basement.", key="fox/office", value="basement", subject="Fox Mulder"),
        "note": write(home, "The kettle is broken again."),
    }
    home.publish()
    return made


def make(home: wiring.Home, folder: Path) -> Path:
    return Path(backup.backup(home, folder, KEEP)["file"])


def give_back(home: wiring.Home, file: Path, **more: Any) -> Any:
    return restore.restore(home, file, more.pop("on_missing", restore.refuse), **more)


def findings(home: wiring.Home) -> set[str]:
    """The codes that an audit of the home finds."""
    home.close()
    trust = home.trust()
    made = audit(Places(home.path), Asked(trust, home.clock() + 10_000_000), tenant=None, needles=None)
    return {one.code for one in made.outcome.findings}


def readable(ring: KeyRing, file: Path) -> str:
    """Everything that somebody with these keys can read in a backup."""
    from memory.backup_format import decrypt, read_frames

    said = []
    with file.open("rb") as opened:
        frames = read_frames(opened)
        number = next(frames)[1]["number"]
        for frame in frames:
            place = {
                "record": lambda f: ("record", f[1][0], f[2]),
                "hashed": lambda f: (f[1], f[2], f[3]),
                "tenant": lambda f: ("tenant", f[1], f[4]),
                "meta": lambda f: ("meta", 0, f[1]),
            }.get(frame[0])
            if place is None:
                continue
            space, at, data = place(frame)
            key = None if data is None else ring.key(space, at)
            if key is not None and data is not None:
                said.append(repr(decrypt(key, number, space, at, data)))
    return "\n".join(said)


# What is in a backup


def test_a_backup_has_no_content_no_key_and_no_head(home: wiring.Home, tmp_path: Path) -> None:
    fill(home)
    data = make(home, tmp_path).read_bytes()
    for word in (b"Dana", b"Elm", b"basement", b"kettle", b"default", b"dana/address"):
        assert word.lower() not in data.lower()
    for path in (home.path / "keys").rglob("*"):
        secret = path.read_bytes() if path.is_file() else b""
        assert not secret or secret not in data
    checkpoint = (home.path / "log" / "checkpoint").read_bytes()
    assert checkpoint not in data and checkpoint.splitlines()[2] not in data
    # The same words are there for whoever has the keys: what was looked for could have been found.
    assert "Elm Street" in readable(KeyRing(home.path / "keys"), next(tmp_path.glob("*.backup")))


def test_a_backup_tells_no_time_more_finely_than_the_hour(home: wiring.Home, tmp_path: Path) -> None:
    """Not of a write, nor of an erasure that was before it: whoever has no key learns what the log says."""
    from tlog import cbor

    fill(home)
    forget(home, subject="Fox Mulder")
    file = make(home, tmp_path)
    with home.parts().store.read_whole() as view:
        recorded_at = view.last_recorded_at()
    data, hour = file.read_bytes(), 3_600_000_000
    microseconds = range(recorded_at - 200, recorded_at + 200)
    assert not any(cbor.encode(at) in data for at in microseconds if at % hour)
    known = readable(KeyRing(home.path / "keys"), file)
    assert str(recorded_at) in known and "started_at" in known


def test_a_backup_restores_the_whole_store(home: wiring.Home, tmp_path: Path) -> None:
    made = fill(home)
    hold = home.memory(ME).hold(authority="Court", review_by="2100-01-01T00:00:00Z", id=made["fox"]["id"])
    home.publish()
    before = home.memory(ME).history("dana/address")["facts"]
    file = make(home, tmp_path)
    lose_store(home)
    with pytest.raises(Error):
        home.memory(ME).get("dana/address")
    done = give_back(home, file)
    assert (done["statements"], done["unreadable"], done["lost"]) == (5, 0, 0)
    memory = home.memory(ME)
    assert memory.history("dana/address")["facts"] == before
    assert memory.get("fox/office")["withheld"] is True
    assert [fact["id"] for fact in memory.recall("kettle")["facts"]] == [made["note"]["id"]]
    assert write(home, "It is Elm Street.", key="dana/address", value="Elm Street")["reason"] == "echo"
    assert memory.release(hold["id"], "Court")["status"] == "released"
    home.publish()
    assert findings(home) == set()


def test_no_table_is_forgotten(home: wiring.Home) -> None:
    """By the schema, not by a list: a table that a later version adds has to be thought of here."""
    with home.parts().store.read_whole() as view:
        there = store_backup.tables(view)
    hashed = {table for table, _ in store_backup.HASHED.values()}
    assert there == {*store_backup.OPEN, *hashed, *store_backup.LEFT_OUT, *store_backup.WHOLE}


def test_what_was_erased_since_can_t_be_read_in_any_backup(home: wiring.Home, tmp_path: Path) -> None:
    made = fill(home)
    first, second = make(home, tmp_path), make(home, tmp_path)
    stolen = first.read_bytes()
    answer = forget(home, subject=DANA)
    assert is_closed(home, answer) and answer["backups"] == 2
    document = manifest_of(home, answer).document
    assert [(one["count"], one["beyond_use"]) for one in document["backups"]] == [(2, True), (2, True)]
    assert {one["backup"].hex() for one in document["backups"]} == {first.stem, second.stem}
    (system,) = [one for one in document["systems"] if one["kind"] == "backup"]
    assert (system["method"], system["erased"], system["result"]) == ("destroy_key", 2, "verified")
    assert stolen == first.read_bytes()
    left = readable(KeyRing(home.path / "keys"), first)
    assert "basement" in left and "kettle" in left
    assert not any(word in left for word in ("Dana", "Elm", "Oak", "dana/address", "r1"))
    # Neither keys nor the name of her key are left in any file of the home.
    assert not list((home.path / "keys" / "backup").glob("subjects/*.key.*"))
    assert len(list((home.path / "keys" / "backup" / "subjects").iterdir())) == 1
    assert made


def test_a_single_record_goes_though_its_subject_stays(home: wiring.Home, tmp_path: Path) -> None:
    made = fill(home)
    file = make(home, tmp_path)
    forget(home, id=made["old"]["id"], guard="erase")
    left = readable(KeyRing(home.path / "keys"), file)
    assert "Oak Lane" in left and "Elm Street" not in left
    assert len(list((home.path / "keys" / "backup" / "subjects").iterdir())) == 2


def test_a_request_that_is_kept_can_t_be_read_in_a_backup_either(home: wiring.Home, tmp_path: Path) -> None:
    """The store keeps a keyed hash of the idempotency key alone; the backup had one of the whole request."""
    made = fill(home)
    file = make(home, tmp_path)
    assert "body_tag" in readable(KeyRing(home.path / "keys"), file)
    forget(home, id=made["new"]["id"], guard="keep")
    assert "body_tag" not in readable(KeyRing(home.path / "keys"), file)
    with home.parts().store.read_whole() as view:
        assert view.rows("SELECT length(body_tag) FROM idempotency") == [(0,)]


def test_a_crash_between_the_erasure_and_the_keys_is_made_up_for(home: wiring.Home, tmp_path: Path) -> None:
    from memory import erase

    fill(home)
    file = make(home, tmp_path)
    token = home.memory(ME).forget_preview(subject=DANA)["confirm"]

    def kill(step: str) -> None:
        if step == "erased":
            raise Killed

    with pytest.raises(Killed):
        erase.execute(home.parts(), ME, token, failpoint=kill, subject=DANA)
    assert "Oak Lane" in readable(KeyRing(home.path / "keys"), file)
    home.close()
    with wiring.open_home(home.path) as again:
        again.parts()
        assert "Oak Lane" not in readable(KeyRing(again.path / "keys"), file)


def test_a_key_that_can_t_be_destroyed_leaves_the_request_open(
    home: wiring.Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home)
    make(home, tmp_path)

    def fail(*_: Any) -> None:
        raise OSError(5, "input or output")

    monkeypatch.setattr(KeyRing, "_fill", fail)
    answer = forget(home, subject=DANA)
    assert is_closed(home, answer, "awaiting_backups")
    assert "backups_remain" in {why["code"] for why in answer["why"]}
    assert not any(one["beyond_use"] for one in manifest_of(home, answer).document["backups"])


# Restoring


def test_a_restore_erases_again_what_was_erased_since(home: wiring.Home, tmp_path: Path) -> None:
    fill(home)
    file = make(home, tmp_path)
    keys = {p: p.read_bytes() for p in (home.path / "keys" / "backup").rglob("*") if p.is_file()}
    forget(home, subject=DANA)
    home.publish()
    lose_store(home)
    # Whoever puts the keys back as well still gets nothing that the manifests say is erased.
    for path, data in keys.items():
        path.write_bytes(data)
    done = give_back(home, file)
    assert (done["manifests"], done["unreadable"], done["lost"]) == (1, 0, 0)
    assert home.memory(ME).get("dana/address")["active"] == []
    assert home.memory(ME).get("fox/office")["current"] == "basement"
    with home.parts().store.read_whole() as view:
        assert view.rows("SELECT count(*) FROM ledger") == [(0,)]
    from erasing import found_in

    assert found_in(home, "Oak Lane", "Elm Street", DANA) == set()
    home.publish()
    assert findings(home) == set()


def test_a_restore_after_an_erasure_has_no_key_for_it(home: wiring.Home, tmp_path: Path) -> None:
    fill(home)
    file = make(home, tmp_path)
    forget(home, subject=DANA)
    home.publish()
    lose_store(home)
    assert give_back(home, file)["unreadable"] > 1
    assert home.memory(ME).get("fox/office")["current"] == "basement"


def test_what_is_past_the_backup_is_served_by_nobody_until_it_is_declared_lost(
    home: wiring.Home, tmp_path: Path
) -> None:
    fill(home)
    file = make(home, tmp_path)
    write(home, "Dana is in Ash Road.", key="dana/address", value="Ash Road", subject=DANA)
    home.publish()
    lose_store(home)
    with pytest.raises(RefusedError) as caught:
        give_back(home, file)
    assert (caught.value.code, caught.value.fields["missing"]) == ("statements_missing", 1)
    with pytest.raises(Error):
        home.memory(ME).get("dana/address")
    assert give_back(home, file, on_missing=restore.declare)["lost"] == 1
    assert home.memory(ME).get("dana/address")["current"] == "Oak Lane"
    with home.parts().store.read_whole() as view:
        (link,) = view.links([6]).values()
    # The number of what is lost is not used again.
    assert (link.kind, link.seq, link.details["count"]) == ("lost", 6, 1)
    new = write(home, "Dana is in Fir Way.", key="dana/address", value="Fir Way", subject=DANA)
    home.publish()
    assert home.memory(ME).get("dana/address")["active"][0]["id"] == new["id"]
    assert findings(home) == {"WRITE_LOST"}


def test_a_log_that_lost_its_end_is_not_restored_to(home: wiring.Home, tmp_path: Path) -> None:
    from memory.mirroring import set_mirror

    set_mirror(home, str(tmp_path / "mirror"))
    fill(home)
    file = make(home, tmp_path)
    folders = [home.path / name for name in ("log", "log-state")]
    copy = {path: path.read_bytes() for one in folders for path in one.rglob("*") if path.is_file()}
    write(home, "Something more.")
    home.publish()
    lose_store(home)
    for name in ("log", "log-state"):
        for path in (home.path / name).rglob("*"):
            if path.is_file() and path not in copy:
                path.unlink()
    for path, data in copy.items():
        path.write_bytes(data)
    with pytest.raises(VerificationError) as caught:
        give_back(home, file)
    assert caught.value.code == "rolled_back"


def test_a_changed_backup_is_refused(home: wiring.Home, tmp_path: Path) -> None:
    fill(home)
    file = make(home, tmp_path)
    data = file.read_bytes()
    lose_store(home)
    changed = tmp_path / "changed"
    middle, end = len(data) // 2, len(data) - 20
    for bad in (
        data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        data[:end] + bytes([data[end] ^ 1]) + data[end + 1 :],
        data[:-1],
        data[:middle],
        data + b"x",
        b"",
        b"x" * 100,
    ):
        changed.write_bytes(bad)
        with pytest.raises((VerificationError, MalformedError)):
            give_back(home, changed)
        assert not (home.path / "restoring.db").exists()
    assert give_back(home, file)["statements"] == 4


def test_a_backup_of_another_home_and_a_store_that_is_there_are_refused(
    home: wiring.Home, tmp_path: Path
) -> None:
    fill(home)
    file = make(home, tmp_path)
    with pytest.raises(RefusedError) as caught:
        give_back(home, file)
    assert caught.value.code == "store_exists"
    with wiring.open_home(tmp_path / "other") as other, pytest.raises(Error):
        give_back(other, file)
    with pytest.raises(MalformedError):
        backup.backup(home, home.path / "inside", KEEP)
    with pytest.raises(MalformedError):
        backup.backup(home, file, KEEP)


@pytest.mark.parametrize("step", ["keys", "noted", "written"])
def test_a_backup_that_was_killed_leaves_no_file(home: wiring.Home, tmp_path: Path, step: str) -> None:
    fill(home)

    def kill(reached: str) -> None:
        if reached == step:
            os._exit(9)

    child = os.fork()
    if not child:
        backup.backup(home, tmp_path / "b", KEEP, failpoint=kill)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert not (tmp_path / "b").exists()
    assert "statements" in backup.backup(home, tmp_path / "b", KEEP)
    assert is_closed(home, forget(home, subject=DANA))
    assert "Oak Lane" not in readable(KeyRing(home.path / "keys"), tmp_path / "b")


@pytest.mark.parametrize("step", ["rows", "filled"])
def test_a_restore_that_was_killed_is_begun_again(home: wiring.Home, tmp_path: Path, step: str) -> None:
    if step == "filled" and home.config.database is not None:
        step = "replayed"  # the transaction is all there is of it: after that the store is there
    fill(home)
    file = make(home, tmp_path)
    lose_store(home)
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom memory import restore, wiring\n"
        "home = wiring.open_home(sys.argv[1])\n"
        "def kill(step):\n    if step == sys.argv[3]: os.kill(os.getpid(), 9)\n"
        "restore.restore(home, Path(sys.argv[2]), restore.refuse, failpoint=kill)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    arguments = [sys.executable, "-c", script, str(home.path), str(file), step]
    assert subprocess.run(arguments, env=environment, check=False).returncode == -9
    with pytest.raises(Error):
        home.memory(ME).get("dana/address")
    assert give_back(home, file)["statements"] == 4
    assert home.memory(ME).get("dana/address")["current"] == "Oak Lane"
    assert not list(home.path.glob("restoring*"))


def test_a_key_that_was_cut_short_is_none(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    ring.make("record", 5)
    ring.flush()
    path = tmp_path / "backup" / "record-0.keys"
    data = bytearray(path.read_bytes())
    assert KeyRing(tmp_path).key("record", 5) is not None
    data[5 * SLOT_BYTES + 40] ^= 1
    path.write_bytes(data)
    assert KeyRing(tmp_path).key("record", 5) is None
    again = KeyRing(tmp_path)
    made = again.make("record", 5)
    again.flush()
    assert KeyRing(tmp_path).key("record", 5) == made


def test_the_commands_back_up_and_restore(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--home", str(tmp_path / "home"), "--json"]

    def run(*words: str) -> Any:
        code = cli.main([*words, *where])
        return code, json.loads(capsys.readouterr().out)

    run("remember", "Dana has a dog.", "--key", "dana/dog", "--value", "Queequeg")
    run("log", "publish")
    code, made = run("backup", str(tmp_path), "--keep", "30d")
    assert (code, made["statements"]) == (0, 1)
    assert run("restore", made["file"])[1]["error"]["code"] == "store_exists"
    for name in ("store.db", "store.db-wal", "store.db-shm"):
        (tmp_path / "home" / name).unlink(missing_ok=True)
    assert run("restore", made["file"])[1]["statements"] == 1
    assert run("get", "dana/dog")[1]["current"] == "Queequeg"
