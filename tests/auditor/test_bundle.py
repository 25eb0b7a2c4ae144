"""Evidence bundles: whole they are audited without the home, spoiled they are found out, and none has too much."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from auditor.audit import Places, audit
from auditor.bundle import read_bundle
from auditor.evidence import Asked
from memory import cli, tokens, vfs
from memory.export_evidence import export_evidence
from memory.model import SCOPES, Principal
from memory.store_access import all_access
from memory.wiring import open_home
from tlog.bundles import NAME, Bundle, BundleFile, parse_bundle, sign_bundle
from tlog.errors import MalformedError, RefusedError
from tlog.keys import load_cose_key, make_cose_key
from tlog.trust import Trust, parse_trust

ACME = ("Berlin", "garden", "k8s", "office/city", "acme")
GLOBEX = ("their secret plan", "globex")
NOW = 2_000_000_000_000_000


@pytest.fixture(scope="module")
def bundles(original: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A bundle of each scope, of one copy of the home."""
    folder = tmp_path_factory.mktemp("bundles")
    shutil.copytree(original, folder / "home")
    with open_home(folder / "home") as home:
        for agent in ("garden", "shed"):
            tokens.create(home, Principal("acme", agent, "desk", SCOPES, authenticated=True), None)
        export_evidence(home, folder / "all", "all", None)
        export_evidence(home, folder / "tenant", "tenant", "globex")
        export_evidence(home, folder / "links", "links", None)
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture
def trust(bundles: dict[str, Path]) -> Trust:
    return parse_trust((bundles["home"] / "trust.toml").read_text())


@pytest.fixture
def spoil(bundles: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of the bundle of a scope."""

    def copy(scope: str) -> Path:
        shutil.copytree(bundles[scope], tmp_path / scope)
        return tmp_path / scope

    return copy


def run(folder: Path, trust: Trust, **options: Any) -> Any:
    import time

    asked = Asked(trust, time.time_ns() // 1000)
    return audit(Places(folder), asked, tenant=None, needles=None, **options)


def altered(folder: Path, trust: Trust) -> list[tuple[str, str]]:
    """Code and place of what is found about the bundle itself."""
    found = read_bundle(folder, Asked(trust, NOW)).outcome.findings
    return [(one.code, one.where) for one in found]


def own_findings(folder: Path, trust: Trust, home: Path) -> set[tuple[str, str]]:
    """What is found in a bundle and not in the home that it was made from."""
    there = {(one.code, one.what) for one in run(home, trust).outcome.findings}
    return {(one.code, one.what) for one in run(folder, trust).outcome.findings} - there


@pytest.mark.parametrize("scope", ["all", "tenant", "links"])
def test_an_untouched_bundle_is_as_clean_as_its_home(
    bundles: dict[str, Path], trust: Trust, scope: str
) -> None:
    assert own_findings(bundles[scope], trust, bundles["home"]) == set()
    counts = run(bundles[scope], trust).outcome.counts
    assert counts["statements"] >= run(bundles["home"], trust).outcome.counts["statements"]


def test_a_tenant_that_a_bundle_does_not_tell_of_is_refused(bundles: dict[str, Path], trust: Trust) -> None:
    """Or somebody reads that all is well with a tenant of which the bundle has nothing."""
    asked = Asked(trust, 1)
    assert audit(Places(bundles["tenant"]), asked, tenant="globex", needles=None).outcome.checked
    for scope, name in (("tenant", "acme"), ("tenant", "nobody"), ("links", "globex")):
        with pytest.raises(MalformedError, match="name of a tenant"):
            audit(Places(bundles[scope]), asked, tenant=name, needles=None)


def test_it_has_every_statement_and_the_contents_of_its_scope(bundles: dict[str, Path]) -> None:
    def count(scope: str, table: str) -> int:
        connection = apsw.Connection(str(bundles[scope] / "store.db"), vfs=vfs.register())
        number = int(connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])
        connection.close()
        return number

    assert count("all", "events") == count("tenant", "events") == count("links", "events")
    assert count("all", "contents") > count("tenant", "contents") == 1
    assert count("links", "contents") == count("links", "facts") == count("links", "erasures") == 0


@pytest.mark.parametrize(("scope", "absent"), [("tenant", ACME), ("links", ACME + GLOBEX)])
def test_no_byte_of_the_others_is_in_it(
    bundles: dict[str, Path], scope: str, absent: tuple[str, ...]
) -> None:
    data = b"".join(path.read_bytes() for path in bundles[scope].rglob("*") if path.is_file())
    assert [text for text in absent if text.encode() in data] == []
    whole = b"".join(path.read_bytes() for path in bundles["all"].rglob("*") if path.is_file())
    assert all(text.encode() in whole for text in ACME)


def test_no_key_is_in_it(bundles: dict[str, Path]) -> None:
    assert not (bundles["all"] / "keys").exists()
    secrets = [path.read_bytes() for path in (bundles["home"] / "keys").rglob("*.key")]
    data = b"".join(path.read_bytes() for path in bundles["all"].rglob("*") if path.is_file())
    assert secrets
    assert not [secret for secret in secrets if secret in data]


def test_no_access_token_is_in_it(bundles: dict[str, Path]) -> None:
    """Not even its hash: a bundle has the salts with which whoever holds it could look for the tenant of each."""
    for name in ("all", "tenant", "links"):
        store = apsw.Connection(str(bundles[name] / "store.db"), flags=apsw.SQLITE_OPEN_READONLY)
        assert store.execute("SELECT count(*) FROM access").fetchall() == [(0,)], name
        assert store.execute("PRAGMA freelist_count").fetchall() == [(0,)]
        store.close()
    with open_home(bundles["home"]) as home, home.parts().store.read() as view:
        hashes = [row.token_hash for row in all_access(view)]
    assert len(hashes) == 2
    assert not any(digest in (bundles["all"] / "store.db").read_bytes() for digest in hashes)


def test_settings_that_name_somebody_stay_at_home(copy: Any, tmp_path: Path) -> None:
    with open_home(copy.home) as home:
        told = replace(home.config, authority=("Zoe",), mirror="/srv/Zoe", retention=("Zoe/* 30d",))
        home.write_config(told)
        assert b"Zoe" in (copy.home / "config.toml").read_bytes()
        export_evidence(home, tmp_path / "bundle", "links", None)
    data = b"".join(path.read_bytes() for path in (tmp_path / "bundle").rglob("*") if path.is_file())
    assert b"Zoe" not in data
    assert home.config.origin.encode() in (tmp_path / "bundle" / "config.toml").read_bytes()


def test_who_has_contents_is_noted_and_named_by_an_erasure(copy: Any, tmp_path: Path) -> None:
    with open_home(copy.home) as home:
        exported = export_evidence(home, tmp_path / "bundle", "all", None)
        export_evidence(home, tmp_path / "links", "links", None)
        memory = home.memory(Principal("acme", "bot", "one", SCOPES))
        preview = memory.forget_preview(subject="garden")
        done = memory.forget(subject="garden", confirm=preview["confirm"])
        manifest = done["manifest"]
    _, bundle = parse_bundle((tmp_path / "bundle" / NAME).read_bytes())
    assert bundle.recipient is not None
    assert exported.recipient == bundle.recipient.hex()
    assert copy.ask("SELECT count(DISTINCT recipient) FROM openings")[0][0] == 1
    contents = apsw.Connection(str(tmp_path / "bundle" / "store.db"))
    assert exported.openings == contents.execute("SELECT count(*) FROM contents").fetchall()[0][0]
    contents.close()
    (data,) = [path.read_bytes() for path in copy.home.rglob("2.cose")]
    assert bundle.recipient in data
    assert manifest


def test_a_bundle_pins_nothing(copy: Any, tmp_path: Path) -> None:
    with open_home(copy.home) as home:
        export_evidence(home, tmp_path / "bundle", "tenant", "acme")
        assert home.parts().store.checkpoint_truncate(0.5)


# Spoiled


def test_a_changed_file_is_named(spoil: Callable[[str], Path], trust: Trust) -> None:
    folder = spoil("all")
    path = folder / "config.toml"
    path.write_bytes(path.read_bytes().replace(b"guard", b"gaurd"))
    assert altered(folder, trust) == [("BUNDLE_ALTERED", "config.toml")]
    assert "BUNDLE_ALTERED" in {one.code for one in run(folder, trust).outcome.findings}


def test_a_missing_file_is_named(spoil: Callable[[str], Path], trust: Trust) -> None:
    folder = spoil("all")
    (folder / "log" / "erasures" / "1.cose").unlink()
    assert altered(folder, trust) == [("BUNDLE_ALTERED", "log/erasures/1.cose")]


def test_an_added_file_is_counted_and_not_named(spoil: Callable[[str], Path], trust: Trust) -> None:
    folder = spoil("all")
    (folder / "log" / "Kumquat.txt").write_text("x")
    assert altered(folder, trust) == [("BUNDLE_ALTERED", "bundle")]


def test_an_added_folder_is_counted_and_not_named(spoil: Callable[[str], Path], trust: Trust) -> None:
    folder = spoil("all")
    (folder / "log" / "Kumquat").mkdir()
    (folder / "log" / "tile" / "Uji").mkdir()
    (found,) = read_bundle(folder, Asked(trust, NOW)).outcome.findings
    assert (found.code, found.where, dict(found.evidence)) == ("BUNDLE_ALTERED", "bundle", {"folders": 2})


def test_a_list_signed_by_somebody_else_is_refused(
    spoil: Callable[[str], Path], trust: Trust, tmp_path: Path
) -> None:
    folder = spoil("all")
    _, bundle = parse_bundle((folder / NAME).read_bytes())
    stranger = make_cose_key(tmp_path / "stranger.key")
    (folder / NAME).write_bytes(sign_bundle(stranger, "urn:x", "urn:y", bundle))
    assert altered(folder, trust) == [("KEY_NOT_VALID", NAME)]


def test_a_list_changed_after_it_was_signed_is_refused(spoil: Callable[[str], Path], trust: Trust) -> None:
    folder = spoil("all")
    data = bytearray((folder / NAME).read_bytes())
    data[-1] ^= 1
    (folder / NAME).write_bytes(bytes(data))
    assert altered(folder, trust) == [("BUNDLE_ALTERED", NAME)]


def test_a_bundle_of_one_tenant_hides_no_statement_of_another(
    spoil: Callable[[str], Path], trust: Trust, bundles: dict[str, Path]
) -> None:
    """The operator signs the list anew over a store in which a statement of another tenant is gone."""
    folder = spoil("tenant")
    connection = apsw.Connection(str(folder / "store.db"), vfs=vfs.register())
    connection.execute("PRAGMA secure_delete = ON; PRAGMA foreign_keys = OFF")
    connection.execute("DELETE FROM events WHERE seq = 3")
    connection.close()
    found = {one.code for one in run(folder, trust).outcome.findings}
    assert {"SEQUENCE_GAP", "WRITE_MISSING"} <= found


@pytest.mark.parametrize("what", ["link", "fifo", "folder link"])
def test_what_is_no_file_is_refused(spoil: Callable[[str], Path], trust: Trust, what: str) -> None:
    folder = spoil("links")
    if what == "link":
        (folder / "policy.txt").unlink()
        (folder / "policy.txt").symlink_to("/etc/hostname")
    elif what == "fifo":
        os.mkfifo(folder / "pipe")
    else:
        shutil.move(folder / "log", folder.parent / "elsewhere")
        (folder / "log").symlink_to(folder.parent / "elsewhere")
    with pytest.raises(MalformedError):
        run(folder, trust)


def test_a_file_of_holes_is_refused_before_it_is_read(spoil: Callable[[str], Path], trust: Trust) -> None:
    folder = spoil("links")
    os.truncate(folder / "policy.txt", 1 << 40)
    with pytest.raises(MalformedError):
        run(folder, trust)


def test_folders_in_folders_are_refused(spoil: Callable[[str], Path], trust: Trust) -> None:
    folder = spoil("links")
    folder.joinpath(*("a" for _ in range(14))).mkdir(parents=True)
    with pytest.raises(MalformedError):
        run(folder, trust)


@pytest.mark.parametrize("data", [b"", b"\xd2", b"\xd2\x84" + b"\x9f" * 100, b"\x00" * 5000, b"[" * 100_000])
def test_a_list_that_is_none_is_refused(spoil: Callable[[str], Path], trust: Trust, data: bytes) -> None:
    folder = spoil("links")
    (folder / NAME).write_bytes(data)
    with pytest.raises(MalformedError):
        run(folder, trust)


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "a//b", "a/../b", ".hidden", "a/.b", "", "a\x00b", NAME, "a" * 201, "-rf"]
)
def test_a_list_names_plain_paths_alone(tmp_path: Path, path: str) -> None:
    signer = make_cose_key(tmp_path / "a.key")
    bundle = Bundle(0, "log", "links", 1, (BundleFile(path, 0, bytes(32)),))
    with pytest.raises(MalformedError):
        sign_bundle(signer, "urn:x", "urn:y", bundle)


def test_a_list_reads_back_and_has_one_form(tmp_path: Path) -> None:
    signer = make_cose_key(tmp_path / "a.key")
    files = (BundleFile("a/b", 3, bytes(32)), BundleFile("c", 0, bytes(32)))
    bundle = Bundle(3_600_000_000, "log", "tenant", 7, files, bytes(16), b"\x01" * 16)
    assert parse_bundle(sign_bundle(signer, "urn:x", "urn:y", bundle))[1] == bundle
    for wrong in (
        Bundle(1, "log", "links", 7, files),
        Bundle(0, "log", "all", 7, files),
        Bundle(0, "log", "links", 7, files[::-1]),
        Bundle(0, "log", "links", 7, (files[0], files[0])),
        Bundle(0, "log", "tenant", 7, files, None, bytes(16)),
        Bundle(0, "log", "links", 7, ()),
    ):
        with pytest.raises(MalformedError):
            sign_bundle(signer, "urn:x", "urn:y", wrong)


# The commands


def test_the_commands_write_and_audit_a_bundle(copy: Any, tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "bundle"
    base = ["export", "--home", str(copy.home), "--json", "--evidence", str(folder)]
    assert cli.main([*base, "--tenant", "globex"]) == 0
    said = capsys.readouterr()
    answer = json.loads(said.out)
    assert (answer["scope"], answer["openings"]) == ("tenant", 1)
    assert answer["recipient"] in said.err
    code = cli.main(["audit", "--bundle", str(folder), "--trust", str(copy.home / "trust.toml"), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert code == (0 if document["verdict"] == "clean" else 1)
    assert "bundle" in {note["check"] for note in document["checked"]}
    assert cli.main(["verify", str(folder / NAME), "--trust", str(copy.home / "trust.toml"), "--json"]) == 0
    (verdict,) = json.loads(capsys.readouterr().out)["files"]
    assert (verdict["kind"], verdict["holds"]) == ("bundle", True)
    assert cli.main([*base, "--tenant", "globex"]) == 2, "the folder is not empty"
    capsys.readouterr()
    assert cli.main([*base[:-1], str(tmp_path / "none"), "--tenant", "nobody"]) == 2
    assert not (tmp_path / "none").exists()
    (folder / NAME).unlink()
    assert cli.main(["audit", "--bundle", str(folder), "--trust", str(copy.home / "trust.toml")]) == 2


def test_a_failed_export_leaves_nothing(copy: Any, tmp_path: Path) -> None:
    key = copy.home / "keys" / "manifest.key"
    with open_home(copy.home) as home:
        home.parts()
        kept = load_cose_key(key)
        key.unlink()
        with pytest.raises((MalformedError, RefusedError, Exception)):
            export_evidence(home, tmp_path / "bundle", "all", None)
    assert kept
    assert not (tmp_path / "bundle").exists()
