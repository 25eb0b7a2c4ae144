"""The mirror of a home: nothing is announced that it does not have, and a home that is behind it signs nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from memory.home_names import CONFIG
from memory.model import SCOPES, Principal
from memory.operator import Operator
from memory.wiring import Home, init_home, open_home
from tlog.errors import MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.fsck import fsck
from tlog.keys import make_root_key
from tlog.storage import DirectoryStorage

WHO = Principal("acme", "bot", "one", SCOPES)


@pytest.fixture
def home(tmp_path: Path) -> Any:
    with init_home(tmp_path / "home") as made:
        yield made


def remember(home: Home, text: str) -> str:
    fact_id: str = home.memory(WHO).remember(text)["id"]
    return fact_id


def forget(home: Home, fact_id: str) -> dict[str, Any]:
    memory = home.memory(WHO)
    preview = memory.forget_preview(id=fact_id)
    answer: dict[str, Any] = memory.forget(id=fact_id, confirm=preview["confirm"])
    return answer


def mirrored(path: Path) -> DirectoryStorage:
    return DirectoryStorage(path / "mirror" / "log")


def test_a_mirror_gets_all_there_is_and_all_there_will_be(home: Home, tmp_path: Path) -> None:
    home.memory(WHO)
    gone = remember(home, "one")
    home.publish()
    forget(home, gone)
    Operator(home).certify(make_root_key(tmp_path / "usb" / "root.key"), 10**8, 5)
    assert Operator(home).describe_mirror()["mirror"] is None
    home.publish()
    found = Operator(home).set_mirror(str(tmp_path / "mirror"))
    assert (found["mirror"], found["size"]) == (str(tmp_path / "mirror"), home.log().head().size)
    remember(home, "two")
    forget(home, remember(home, "three"))
    home.publish()
    public, mirror = home.public_storage(), mirrored(tmp_path)
    assert fsck(mirror).size == home.log().head().size
    names = set(public.names(""))
    assert {"erasures/1.cose", "erasures/2.cose", "keys.cose", "checkpoint"} <= names
    for name in names:
        # Partial tiles of before the mirror are of no head that it ever announced.
        if ".p/" not in name:
            assert mirror.read(name) == public.read(name), name


def test_the_mirror_lies_outside_the_home(home: Home) -> None:
    for inside in (home.path, home.path / "mirror", home.path / "log"):
        with pytest.raises(MalformedError):
            Operator(home).set_mirror(str(inside))


def test_without_its_mirror_nothing_is_announced(home: Home, tmp_path: Path) -> None:
    root = make_root_key(tmp_path / "usb" / "root.key")
    Operator(home).certify(root, 10**8, 5)
    fact_id = remember(home, "one")
    home.publish()
    Operator(home).set_mirror(str(tmp_path / "mirror"))
    public = home.public_storage()
    checkpoint, key_list = public.read("checkpoint"), public.read("keys.cose")
    shutil.move(tmp_path / "mirror", tmp_path / "unplugged")
    remember(home, "two")
    for announce in (
        home.publish,
        lambda: Operator(home).rotate("issuer", root, 5),
        lambda: forget(home, fact_id),
    ):
        with pytest.raises(UnavailableError) as caught:
            announce()
        assert caught.value.code == "mirror_unavailable"
        assert (public.read("checkpoint"), public.read("keys.cose")) == (checkpoint, key_list)
        assert public.names("erasures/") == ()
        assert not (tmp_path / "mirror").exists()
    home.close()
    # Facts are still written and read; and once the mirror is back, all that waited is announced.
    home = open_home(home.path)
    remember(home, "three")
    assert public.names("erasures/") == ()
    shutil.move(tmp_path / "unplugged", tmp_path / "mirror")
    home.close()
    home = open_home(home.path)
    home.parts()
    assert Operator(home).rotate("issuer", root, 5)["state"] == "rotated"
    home.publish()
    mirror = mirrored(tmp_path)
    for name in ("checkpoint", "keys.cose", "erasures/1.cose"):
        assert mirror.read(name) == public.read(name) is not None, name
    home.close()


def test_a_restored_home_that_is_behind_its_mirror_signs_nothing(home: Home, tmp_path: Path) -> None:
    remember(home, "one")
    home.publish()
    Operator(home).set_mirror(str(tmp_path / "mirror"))
    home.close()
    shutil.copytree(home.path, tmp_path / "backup", symlinks=True)
    home = open_home(home.path)
    remember(home, "two")
    home.publish()
    home.close()
    shutil.rmtree(home.path)
    shutil.copytree(tmp_path / "backup", home.path)
    with open_home(home.path) as restored:
        remember(restored, "another past")
        with pytest.raises(VerificationError) as caught:
            restored.publish()
        assert caught.value.code == "rolled_back"
        assert fsck(mirrored(tmp_path)).size == 2


def test_a_cloned_home_signs_nothing_beside_the_original(home: Home, tmp_path: Path) -> None:
    remember(home, "one")
    home.publish()
    Operator(home).set_mirror(str(tmp_path / "mirror"))
    home.close()
    shutil.copytree(home.path, tmp_path / "clone")
    with open_home(home.path) as one, open_home(tmp_path / "clone") as two:
        one.log(), two.log()
        remember(one, "here")
        remember(two, "there")
        one.publish()
        checkpoint = one.public_storage().read("checkpoint")
        with pytest.raises(VerificationError) as caught:
            two.publish()
        assert caught.value.code == "rolled_back"
        assert mirrored(tmp_path).read("checkpoint") == checkpoint


def test_the_mirror_of_another_home_is_refused(home: Home, tmp_path: Path) -> None:
    remember(home, "one")
    home.publish()
    Operator(home).set_mirror(str(tmp_path / "mirror"))
    with init_home(tmp_path / "other") as other:
        before = (other.path / CONFIG).read_bytes()
        with pytest.raises(RefusedError) as caught:
            Operator(other).set_mirror(str(tmp_path / "mirror"))
        assert caught.value.code == "mirror_of_another"
        assert (other.path / CONFIG).read_bytes() == before


def test_a_mirror_that_is_ahead_is_not_overwritten(home: Home, tmp_path: Path) -> None:
    remember(home, "one")
    home.publish()
    home.close()
    shutil.copytree(home.path, tmp_path / "backup")
    home = open_home(home.path)
    Operator(home).set_mirror(str(tmp_path / "mirror"))
    remember(home, "two")
    home.publish()
    home.close()
    with open_home(tmp_path / "backup") as old:
        with pytest.raises(VerificationError) as caught:
            Operator(old).set_mirror(str(tmp_path / "mirror"))
        assert caught.value.code == "rolled_back"
        assert old.config.mirror is None
