"""A home on several nodes: what one writes another publishes, proves and erases; what is not there yet is said."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from auditor.audit import Places, audit
from auditor.evidence import Asked
from memory import key_rotation, mirroring, succession, wiring
from memory.config import format_config, parse_config
from memory.principal import owner_from_environment
from tlog.bucket import ObstoreBucket, open_bucket
from tlog.errors import Error, MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.fsck import fsck


def refused(work: Any) -> str:
    with pytest.raises(Error) as caught:
        work()
    return caught.value.code


def test_what_one_node_writes_the_other_publishes_proves_and_erases(homes: list[wiring.Home]) -> None:
    first, second = homes
    ours, theirs = (home.memory(owner_from_environment({})) for home in homes)
    written = ours.remember("Anna lives in Bern", key="anna/city", value="Bern", subject="Anna")
    theirs.remember("Anna lives in Basel", key="anna/city", value="Basel", subject="Anna")
    assert second.publish()["size"] == 2
    assert first.publish_if_needed() is None
    told = theirs.provenance(written["id"])
    assert told["receipt"]["state"] == "logged" and ours.get("anna/city")["current"] == "Basel"
    preview = theirs.forget_preview(subject="Anna")
    answer = ours.forget(subject="Anna", confirm=preview["confirm"])
    assert answer["manifest"].startswith("s3://") and answer["erased"] == 2
    assert theirs.history("anna/city")["facts"] == []
    assert second.has_public_file("erasures/1.cose")
    size = second.publish()["size"]
    log = first.log()
    assert (log.head().size, fsck(log.public, log.private).size) == (size, size)
    clean = audit(Places(first.path), Asked(first.trust(), first.clock()), tenant=None, needles=None)
    assert clean.outcome.findings == ()
    assert clean.verified is not None and clean.verified.checkpoint.size == size
    # Nothing of the log lies in the folder of a node.
    for home in homes:
        assert [
            path for name in ("log", "log-state") for path in (home.path / name).rglob("*") if path.is_file()
        ] == []


def test_a_node_that_is_opened_while_the_bucket_is_away_writes_all_the_same(
    homes: list[wiring.Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = homes[0].memory(owner_from_environment({}))
    ours.remember("Anna lives in Bern", key="anna/city", value="Bern", subject="Anna")
    ours.forget(subject="Anna", confirm=ours.forget_preview(subject="Anna")["confirm"])

    def away(*_: object) -> None:
        raise UnavailableError("object store: did not answer", code="storage_failed")

    with monkeypatch.context() as patch, wiring.open_existing_home(homes[1].path) as opened:
        patch.setattr(ObstoreBucket, "get", away)
        memory = opened.memory(owner_from_environment({}))
        written = memory.remember("Otto lives in Ulm", key="otto/city", value="Ulm")
        assert written["outcome"] == "stored"
        with pytest.raises(UnavailableError):
            opened.publish()
    homes[0].publish()
    assert ours.provenance(written["id"])["receipt"]["state"] == "logged"


def test_what_is_not_there_yet_is_said(homes: list[wiring.Home], tmp_path: Path) -> None:
    home = homes[0]
    assert {
        refused(lambda: mirroring.set_mirror(home, str(tmp_path / "mirror"))),
        refused(lambda: succession.prepare(home, None)),
        refused(lambda: succession.succeed(home, None, 1)),
        refused(lambda: key_rotation.rotate(home, "issuer", None, 1)),
        refused(lambda: key_rotation.install_key_list(home, b"", None, 1)),
    } == {"not_on_shared_log"}


def test_a_node_with_another_bucket_is_refused(homes: list[wiring.Home], place: Any) -> None:
    folder = homes[1].path
    config = parse_config((folder / "config.toml").read_bytes())
    other = replace(config, log_storage=f"{config.log_storage}/other")
    (folder / "config.toml").write_bytes(format_config(other))
    with wiring.open_existing_home(folder) as home, pytest.raises(RefusedError) as caught:
        home.log()
    assert caught.value.code == "another_bucket"


def test_without_a_bucket_a_second_node_begins_no_second_history(tmp_path: Path, dsn: str) -> None:
    first = tmp_path / "first"
    wiring.init_home(first, database=dsn).close()
    second = tmp_path / "second"
    shutil.copytree(first, second)
    os.chmod(second, 0o700)
    with wiring.open_existing_home(first) as ours, wiring.open_existing_home(second) as theirs:
        memory = ours.memory(owner_from_environment({}))
        memory.remember("one", key="a", value="1")
        size = ours.publish()["size"]
        assert theirs.private_storage().read("head") == ours.private_storage().read("head") is not None
        memory.remember("two", key="b", value="2")
        with pytest.raises(VerificationError):
            theirs.publish()
        assert not list((second / "log").rglob("checkpoint"))
        assert ours.publish()["size"] == size + 1


def test_a_bucket_without_a_database_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedError):
        wiring.init_home(tmp_path / "home", log_storage="s3://bucket")
    assert not (tmp_path / "home").exists()


def test_a_log_on_disk_goes_on_in_a_bucket_once_its_files_are_copied(
    tmp_path: Path, dsn: str, place: Any, object_store: Any
) -> None:
    folder, url = tmp_path / "home", place()["bucket"]
    with wiring.init_home(folder, database=dsn) as home:
        memory = home.memory(owner_from_environment({}))
        written = memory.remember("one", key="a", value="1")
        home.publish()
    bucket = open_bucket(url)
    for path in (folder / "log").rglob("*"):
        if path.is_file():
            bucket.put(str(path.relative_to(folder / "log")), path.read_bytes())
    config = parse_config((folder / "config.toml").read_bytes())
    (folder / "config.toml").write_bytes(format_config(replace(config, log_storage=url)))
    shutil.copytree(folder, tmp_path / "second", ignore=shutil.ignore_patterns("log"))
    os.chmod(tmp_path / "second", 0o700)
    with wiring.open_existing_home(tmp_path / "second") as second:
        memory = second.memory(owner_from_environment({}))
        memory.remember("two", key="b", value="2")
        assert second.publish()["size"] == 2
        assert memory.provenance(written["id"])["receipt"]["state"] == "logged"
