"""Keyed hashes: one for each tenant and domain, the same after a restart, and keys in private files."""

from __future__ import annotations

import hmac
import stat
import threading
from pathlib import Path

import pytest

from memory.vault import Vault, new_number, new_salt
from tlog import cbor
from tlog.errors import MalformedError
from tlog.keys import load_secret

ACME = bytes(15) + b"\x01"
OTHER = bytes(15) + b"\x02"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    keys = tmp_path / "keys"
    keys.mkdir(mode=0o700)
    return keys


def test_same_input_same_tag_also_from_a_second_vault(folder: Path) -> None:
    tag = Vault(folder).tag(ACME, "key", "ops", "region")
    assert len(tag) == 32
    assert Vault(folder).tag(ACME, "key", "ops", "region") == tag


def test_a_tag_is_a_keyed_hash_of_deterministic_cbor(folder: Path) -> None:
    vault = Vault(folder)
    parts = ("ops", "", "é" * 300, b"", b"x" * 70_000)
    tag = vault.tag(ACME, "key", *parts)
    assert hmac.digest(load_secret(vault.key_path(ACME)), cbor.encode(["key", *parts]), "sha256") == tag


@pytest.mark.parametrize("text", ["", "é" * 300, "x" * 70_000])
def test_a_tag_under_a_name_is_the_tag_of_both(folder: Path, text: str) -> None:
    vault = Vault(folder)
    assert vault.tag_under(ACME, "key", "ops", text) == vault.tag(ACME, "key", "ops", text)
    assert vault.tag_under(ACME, "key", "ops", text) == vault.tag(ACME, "key", "ops", text)
    vault.destroy_tenant_key(ACME)
    assert vault.tag_under(ACME, "key", "ops", text) == Vault(folder).tag(ACME, "key", "ops", text)


def test_tags_differ_by_tenant_domain_and_parts(folder: Path) -> None:
    vault = Vault(folder)
    tags = {
        vault.tag(ACME, "key", "a", "b:c"),
        vault.tag(OTHER, "key", "a", "b:c"),
        vault.tag(ACME, "value", "a", "b:c"),
        vault.tag(ACME, "key", "a", "b", "c"),
        vault.tag(ACME, "key", "a:b", "c"),
        vault.tag(ACME, "key", "ab:c"),
        vault.tag(ACME, "key", b"a", "b:c"),
        vault.index_tag("key", "a", "b:c"),
    }
    assert len(tags) == 8


def test_keys_are_private_files_of_their_own(folder: Path) -> None:
    vault = Vault(folder)
    vault.tag(ACME, "key", "x")
    vault.index_tag("tenant", "acme")
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.key"))
    assert files == [f"guard/{ACME.hex()}.key", "index.key"]
    for path in folder.rglob("*.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_vaults_that_make_one_key_at_once_agree(folder: Path) -> None:
    tags: list[bytes] = []
    start = threading.Barrier(8)

    def make() -> None:
        start.wait()
        tags.append(Vault(folder).tag(ACME, "key", "x"))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tags) == 8
    assert len(set(tags)) == 1


def test_a_destroyed_key_gives_other_tags(folder: Path) -> None:
    vault = Vault(folder)
    before = vault.tag(ACME, "key", "x")
    assert vault.destroy_tenant_key(ACME)
    assert not vault.key_path(ACME).exists()
    assert vault.destroy_tenant_key(ACME), "it is gone already"
    assert vault.tag(ACME, "key", "x") != before


def test_refuses_what_is_no_tenant_number(folder: Path) -> None:
    with pytest.raises(MalformedError):
        Vault(folder).tag(b"../../x", "key", "x")


def test_salts_and_numbers_are_fresh() -> None:
    assert len(new_salt()) == 32
    assert len(new_number()) == 16
    assert len({new_salt() for _ in range(100)}) == 100
