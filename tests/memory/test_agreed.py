"""What nodes agree on: one value, no two under one stamp, and keys that only the nodes open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memory import agreed
from memory.home_names import CERTIFIED, KEY_LIST, POLICY, next_key_file
from memory.operator import Operator
from memory.wiring import Home, init_home
from tlog.errors import UnavailableError, VerificationError
from tlog.keys import make_cose_key, make_root_key, make_secret


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = init_home(tmp_path / "home")
    make_secret(made.path / "keys" / "seal.key")
    return made


def test_a_state_is_read_back_and_no_two_have_one_stamp(home: Home) -> None:
    state = agreed.of_folder(home.path, home.config)
    data = state.encode()
    assert agreed.decode(data) == state and state.config(home.config) == home.config
    assert set(state.files) == {POLICY, KEY_LIST}
    assert data[: agreed.STAMP_BYTES] != state.encode()[: agreed.STAMP_BYTES]
    for broken in (data[:-1], data[:20], b"", data + b"\0"):
        with pytest.raises(VerificationError):
            agreed.decode(broken)


def test_a_state_that_begins_has_only_keys_that_are_not_in_use(home: Home) -> None:
    make_cose_key(home.path / "keys" / next_key_file("receipt"))
    state = agreed.of_folder(home.path, home.config)
    assert set(state.keys) == {"issuer.key", "receipt.key", "manifest.key", "receipt.next.key", "log.key"}
    assert set(agreed.without_copied(state).keys) == {"receipt.next.key"}
    # Of a log that ended there is no key.
    ended = state.changed({"frozen": ("old+00000000+AAAA 1 AAAA",)}, {})
    assert "log.key" not in ended.keys and ended.number == state.number + 1


def test_keys_open_in_their_place_and_under_the_key_of_the_home_alone(home: Home, tmp_path: Path) -> None:
    data = (home.path / "keys" / "issuer.key").read_bytes()
    box = agreed.sealed(home.path, "issuer.key", data)
    assert agreed.opened(home.path, "issuer.key", box) == data and data[30:60] not in box
    other = init_home(tmp_path / "other")
    make_secret(other.path / "keys" / "seal.key")
    for folder, name in ((home.path, "receipt.key"), (other.path, "issuer.key")):
        with pytest.raises(VerificationError):
            agreed.opened(folder, name, box)


def test_what_goes_on_from_what(home: Home, tmp_path: Path) -> None:
    first = agreed.of_folder(home.path, home.config)
    Operator(home).rotate("issuer", None, 10)
    second = agreed.of_folder(home.path, home.config)
    Operator(home).certify(make_root_key(tmp_path / "usb" / "root.key"), 10**8, 10)
    third = agreed.of_folder(home.path, home.config)
    assert first.progress() < second.progress() < third.progress() and CERTIFIED in third.files
    assert second.continues(first) and third.continues(second) and not first.continues(second)
    with pytest.raises(UnavailableError):
        replace(third, files={}).progress()
