"""A home that was rolled back follows the message: it restores its log from the mirror, and goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from memory.cli import main
from memory.model import SCOPES, Principal
from memory.operator import Operator
from memory.wiring import Home, init_home, open_home
from tlog.errors import Error, RefusedError, VerificationError
from tlog.fsck import fsck
from tlog.storage import DirectoryStorage

WHO = Principal("acme", "bot", "one", SCOPES)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with a mirror and three published facts."""
    with init_home(tmp_path / "home") as made:
        remember(made, "one", "two", "three")
        made.publish()
        Operator(made).set_mirror(str(tmp_path / "mirror"))
    return made


def remember(home: Home, *texts: str) -> list[str]:
    return [home.memory(WHO).remember(text)["id"] for text in texts]


def forget(home: Home, fact_id: str) -> None:
    memory = home.memory(WHO)
    memory.forget(id=fact_id, confirm=memory.forget_preview(id=fact_id)["confirm"])


def keep(home: Home, folder: Path) -> None:
    shutil.copytree(home.path, folder, symlinks=True)


def put_back(home: Home, folder: Path) -> None:
    shutil.rmtree(home.path)
    shutil.copytree(folder, home.path, symlinks=True)


def tiles(path: Path) -> dict[str, bytes]:
    storage = DirectoryStorage(path / "log")
    return {name: storage.read(name) or b"" for name in storage.names("tile/")}


def findings(home: Home, capsys: pytest.CaptureFixture[str]) -> set[str]:
    capsys.readouterr()
    main(["audit", "--home", str(home.path), "--json"])
    return {one["code"] for one in json.loads(capsys.readouterr().out)["findings"]}


def code_of(call: Any) -> str:
    with pytest.raises(Error) as caught:
        call()
    return caught.value.code


def test_the_way_out_of_a_rolled_back_home(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(home, tmp_path / "backup")
    with open_home(home.path) as grown:
        remember(grown, "four", "five")
        grown.publish()
    put_back(home, tmp_path / "backup")
    before = tiles(home.path)
    with open_home(home.path) as back:
        remember(back, "another past")
    assert main(["log", "publish", "--home", str(home.path)]) == 1
    assert "muniment log restore --from" in capsys.readouterr().err
    # What the original published stands where the public reads, and nothing of the other past.
    assert tiles(home.path) == before
    assert main(["log", "restore", "--home", str(home.path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["size"], said["appended"], said["missing"]) == (5, 0, 2)
    assert main(["log", "publish", "--home", str(home.path)]) == 0
    with open_home(home.path) as back:
        assert fsck(back.log().public, back.log().private).published_size == 6
        assert fsck(DirectoryStorage(tmp_path / "mirror" / "log")).size == 6
    assert findings(home, capsys) == {"WRITE_MISSING"}


def test_what_was_appended_to_a_fork_unknowingly_stands_after_the_copy(home: Home, tmp_path: Path) -> None:
    from memory.publish import drain

    keep(home, tmp_path / "backup")
    with open_home(home.path) as grown:
        remember(grown, "four", "five")
        grown.publish()
    put_back(home, tmp_path / "backup")
    with open_home(home.path) as back:
        # As if the mirror's disk was away when it was appended.
        remember(back, "another past")
        drain(back.parts().store, back.log())
        assert code_of(back.publish) == "rolled_back"
    with open_home(home.path) as back:
        said = Operator(back).restore_log(str(tmp_path / "mirror"))
        assert (said["size"], said["appended"], said["missing"]) == (6, 1, 2)
        back.publish()
        with back.parts().store.read_whole() as view:
            (mine,) = view.rows("SELECT entry, entry_index FROM events ORDER BY seq DESC LIMIT 1")
        assert mine[1] == 5
        assert back.log().read_entry(5) == mine[0]
        assert fsck(back.log().public, back.log().private).size == 6


def test_a_log_that_is_gone_comes_back_whole(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = tiles(home.path)
    for name in ("log", "log-state"):
        shutil.rmtree(home.path / name)
    with open_home(home.path) as back:
        Operator(back).restore_log(None)
        assert back.publish()["size"] == 3
    assert tiles(home.path) == whole
    assert findings(home, capsys) == set()


def test_what_was_erased_since_the_copy_of_the_store_is_erased_again(home: Home, tmp_path: Path) -> None:
    with open_home(home.path) as grown:
        (gone,) = remember(grown, "the word is tarantella")
        grown.publish()
    keep(home, tmp_path / "backup")
    with open_home(home.path) as grown:
        forget(grown, gone)
        grown.publish()
    put_back(home, tmp_path / "backup")
    with open_home(home.path) as back:
        assert back.memory(WHO).recall("tarantella")["facts"]
        Operator(back).restore_log(None)
        assert not back.memory(WHO).recall("tarantella")["facts"]
        back.publish()
        (other,) = remember(back, "another")
        forget(back, other)  # its manifest follows the one that the store did not know
        assert back.has_public_file("erasures/2.cose")


def test_histories_that_differ_are_refused_and_nothing_is_changed(home: Home, tmp_path: Path) -> None:
    keep(home, tmp_path / "other")
    with open_home(home.path) as grown:
        remember(grown, "four")
        grown.publish()
    shutil.move(tmp_path / "mirror", tmp_path / "hidden")
    with open_home(tmp_path / "other") as other:
        other.write_config(replace_mirror(other))
        remember(other, "quatre", "cinq")
        other.publish()
    before = {path: path.read_bytes() for path in sorted(home.path.glob("log*/**/*")) if path.is_file()}
    with open_home(home.path) as here:
        with pytest.raises(VerificationError, match="two histories") as caught:
            Operator(here).restore_log(str(tmp_path / "other"))
        assert caught.value.code == "fork"
        with pytest.raises(RefusedError) as older:
            remember(here, "five")
            here.write_config(replace_mirror(here))
            here.publish()
            Operator(here).restore_log(str(tmp_path / "hidden"))
        assert older.value.code == "not_newer"
    assert all(path.read_bytes() == data for path, data in before.items() if "tile" in path.parts)


def replace_mirror(home: Home) -> Any:
    from dataclasses import replace

    return replace(home.config, mirror=None)
