"""The key files of a home against its own list of keys: a damaged or swapped one signs nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from memory.home_names import COSE_KEYS, KEY_LIST, KEYS
from memory.key_list import read_key_list
from memory.principal import make_principal, with_all_scopes
from memory.wiring import init_home, open_home
from tlog.errors import Error, MalformedError, UnavailableError
from tlog.keys import load_cose_key, make_cose_key

CALLER = with_all_scopes(make_principal("acme", "agent", "desk"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with init_home(tmp_path / "home"):
        return tmp_path / "home"


def remember(home: Path) -> None:
    with open_home(home) as opened:
        opened.memory(CALLER).remember("it runs in eu-west-1")


def flipped(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x01
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("use", COSE_KEYS)
def test_a_key_of_which_any_byte_was_changed_signs_nothing(home: Path, use: str) -> None:
    path = home / KEYS / COSE_KEYS[use]
    sound, kid = path.read_bytes(), load_cose_key(path).kid
    caught = 0
    for place in range(0, len(sound), 2):
        flipped(path, place)
        try:
            same = load_cose_key(path).kid == kid  # spare bits of base64, the case of the frame
        except MalformedError:
            same = False
        if same:
            remember(home)
        else:
            with pytest.raises(UnavailableError) as raised:
                remember(home)
            assert raised.value.code == "key_mismatch"
            assert f"{KEYS}/{COSE_KEYS[use]}" in raised.value.message and "backup" in raised.value.message
            caught += 1
        path.write_bytes(sound)
    assert caught > 30
    remember(home)


@pytest.mark.parametrize("use", COSE_KEYS)
def test_another_key_in_the_place_of_one_signs_nothing(home: Path, use: str, tmp_path: Path) -> None:
    make_cose_key(tmp_path / "other.key")
    shutil.copy(tmp_path / "other.key", home / KEYS / COSE_KEYS[use])
    with pytest.raises(UnavailableError, match="list of keys") as raised:
        remember(home)
    assert raised.value.code == "key_mismatch"


def test_a_key_that_the_home_has_for_another_use_is_not_accepted(home: Path) -> None:
    shutil.copy(home / KEYS / COSE_KEYS["receipt"], home / KEYS / COSE_KEYS["issuer"])
    with pytest.raises(UnavailableError, match="issuer key"):
        remember(home)


def test_a_key_that_changes_while_the_home_is_open_signs_nothing_more(home: Path, tmp_path: Path) -> None:
    make_cose_key(tmp_path / "other.key")
    with open_home(home) as opened:
        memory = opened.memory(CALLER)
        memory.remember("it runs in eu-west-1")
        for use in COSE_KEYS:
            (home / KEYS / COSE_KEYS[use]).unlink()
            shutil.copy(tmp_path / "other.key", home / KEYS / COSE_KEYS[use])
        with pytest.raises(UnavailableError) as raised:
            memory.remember("it runs in us-east-2")
        assert raised.value.code == "key_mismatch"
        for load in (opened.issuer_signer, opened.receipt_signer, opened.manifest_signer):
            with pytest.raises(UnavailableError):
                load()
        assert memory.status()["facts"] == {"active": 1}


def test_a_damaged_key_never_reaches_the_trust_file(home: Path, tmp_path: Path) -> None:
    make_cose_key(tmp_path / "other.key")
    before = (home / "trust.toml").read_bytes()
    shutil.copy(tmp_path / "other.key", home / KEYS / COSE_KEYS["issuer"])
    with open_home(home) as opened:
        opened.write_trust()
    assert (home / "trust.toml").read_bytes() == before


def test_a_rotation_ends_no_key_for_a_damaged_file(home: Path, tmp_path: Path) -> None:
    from memory.operator import Operator

    make_cose_key(tmp_path / "other.key")
    shutil.copy(tmp_path / "other.key", home / KEYS / COSE_KEYS["issuer"])
    with open_home(home) as opened:
        before = read_key_list(home, opened.config)
        for act in (
            lambda: Operator(opened).rotate("issuer", None, 5.0),
            lambda: Operator(opened).request_key_list(1000, 5.0),
            lambda: Operator(opened).describe_keys(),
        ):
            with pytest.raises(UnavailableError):
                act()
        assert read_key_list(home, opened.config) == before


@pytest.mark.parametrize("damage", [b"", b"junk"])
def test_a_home_whose_list_is_damaged_or_gone_says_so(home: Path, damage: bytes) -> None:
    (home / KEY_LIST).write_bytes(damage)
    with pytest.raises(Error):
        remember(home)
    (home / KEY_LIST).unlink()
    with pytest.raises(UnavailableError, match="backup") as raised:
        remember(home)
    assert raised.value.code == "key_mismatch"
