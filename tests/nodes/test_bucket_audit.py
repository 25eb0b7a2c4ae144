"""An audit of a log in a bucket by somebody who has nothing but the right to read it, and a trust file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from auditor import log_files
from auditor.audit import Places, audit
from auditor.evidence import Asked
from memory.operator import Operator
from memory.principal import owner_from_environment
from memory.provenance import receipt
from memory.wiring import Home
from tlog import bucket_reader
from tlog.bucket import open_bucket
from tlog.bucket_reader import BucketReader
from tlog.client import limit_of
from tlog.errors import MalformedError, UnavailableError, VerificationError
from tlog.log_copy import read_copy

REPOSITORY = Path(__file__).resolve().parent.parent.parent
WHO = owner_from_environment({})


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "memory.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
    )


def filled(home: Home) -> str:
    """The home with two logs, an erasure and something that waits; where its log is."""
    memory = home.memory(WHO)
    gone = memory.remember("one")["id"]
    home.publish()
    memory.forget(id=gone, confirm=memory.forget_preview(id=gone)["confirm"])
    Operator(home).succeed("example.org/next", 10)
    memory.remember("two")
    home.publish()
    return home.config.log_storage or ""


def codes(where: str, home: Home) -> set[str]:
    found = audit(Places(None, where), Asked(home.trust(), time.time_ns() // 1000), tenant=None, needles=None)
    return {one.code for one in found.outcome.findings}


def test_a_log_in_a_bucket_is_audited_and_read_from_there_and_not_written(
    homes: list[Home], tmp_path: Path
) -> None:
    home = homes[0]
    where = filled(home)
    trust = str(home.path / "trust.toml")
    bucket = open_bucket(where)
    before = {name: bucket.get(name) for name in bucket.names("")}
    done = command("audit", "--json", "--log", where, "--trust", trust)
    report = json.loads(done.stdout)
    assert (done.returncode, report["findings"]) == (0, []), done.stderr
    assert report["subject"]["origin"] == "example.org/next"
    assert "logs" in {note["check"] for note in report["checked"]}
    manifest = tmp_path / "manifest.cose"
    manifest.write_bytes(home.public_storage(1).read("erasures/1.cose") or b"")
    checked = command("verify", str(manifest), "--trust", trust, "--log", where)
    assert checked.returncode == 0, checked.stderr
    assert {name: bucket.get(name) for name in bucket.names("")} == before
    # One byte of an entry is seen, in either log.
    for log in ("", "log-2/"):
        name = max(one for one in before if one.startswith(f"{log}tile/entries/000.p/"))
        stood = bucket.get(name)
        assert stood is not None
        bucket.put(name, stood.data[:-1] + bytes([stood.data[-1] ^ 1]))
        assert codes(where, home), name
        bucket.put(name, stood.data)
    assert codes(where, home) == set()


def test_who_may_read_but_not_list_audits_all_the_same(homes: list[Home], object_store: Any) -> None:
    home = homes[0]
    where = filled(home)
    reading = {"AWS_ACCESS_KEY_ID": object_store.reader[0], "AWS_SECRET_ACCESS_KEY": object_store.reader[1]}
    trust = str(home.path / "trust.toml")
    done = command("audit", "--json", "--log", where, "--trust", trust, **reading)
    report = json.loads(done.stdout)
    assert (done.returncode, report["findings"]) == (0, []), done.stderr
    assert report["subject"]["origin"] == "example.org/next"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in reading.items():
            patch.setenv(name, value)
        assert BucketReader(where, limit_of).names() is None
        with pytest.raises(UnavailableError):
            open_bucket(where).put("checkpoint", b"")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "credentials"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "did not answer"),
        ({"AWS_ALLOW_HTTP": ""}, "did not answer"),
    ],
)
def test_what_keeps_an_audit_from_a_bucket_is_said(
    homes: list[Home], change: dict[str, str], said: str
) -> None:
    home = homes[0]
    trust = str(home.path / "trust.toml")
    done = command("audit", "--log", home.config.log_storage or "", "--trust", trust, **change)
    assert done.returncode not in (0, 1) and said in done.stderr, (done.returncode, done.stderr)
    for secret in ("127.0.0.1", "wrong", os.environ["AWS_ACCESS_KEY_ID"], "<Error>"):
        assert secret not in done.stderr + done.stdout


def test_a_place_that_is_none_is_said(homes: list[Home], place: Any) -> None:
    home = homes[0]
    trust = str(home.path / "trust.toml")
    for where, said in (
        (f"{place()['bucket']}/nothing", "nothing in the bucket there"),
        ("s3://no-such-bucket-here", "that is there"),
        ("s3://Not A Bucket", "s3://bucket"),
    ):
        done = command("audit", "--log", where, "--trust", trust)
        assert done.returncode == 2 and said in done.stderr


def test_sizes_that_no_log_has_are_not_read(
    homes: list[Home], place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = homes[0]
    home.memory(WHO).remember("one")
    home.publish()
    where = home.config.log_storage or ""
    bucket = open_bucket(where)
    note = bucket.get("checkpoint")
    assert note is not None
    bucket.put("checkpoint", note.data + b"\n" * (1 << 22))
    with pytest.raises(VerificationError) as caught:
        BucketReader(where, limit_of)("checkpoint")
    assert caught.value.code == "too_large"
    with pytest.raises(VerificationError):
        read_copy(where)
    bucket.put("checkpoint", note.data)
    assert read_copy(where).checkpoint == note.data
    monkeypatch.setattr(log_files, "MAX_FILE_BYTES", 64)
    nothing = audit(Places(None, where), Asked(home.trust(), 0), tenant=None, needles=None)
    assert nothing.verified is None
    monkeypatch.setattr(log_files, "MAX_FILE_BYTES", 1 << 20)
    monkeypatch.setattr(bucket_reader, "MAX_NAMES", 2)
    with pytest.raises(MalformedError) as too_many:
        codes(where, home)
    assert too_many.value.code == "too_large"


def test_a_log_is_brought_back_from_a_copy_in_a_bucket(homes: list[Home], tmp_path: Path) -> None:
    from tlog.restore import open_source

    home = homes[0]
    memory = home.memory(WHO)
    gone = memory.remember("one")["id"]
    home.publish()
    memory.forget(id=gone, confirm=memory.forget_preview(id=gone)["confirm"])
    with open_source(home.config.log_storage or "") as source:
        assert source.read("checkpoint") == home.public_storage().read("checkpoint")
        assert [name for name, _ in source.documents] == ["erasures/1.cose"]
    assert receipt(home.parts(), WHO, gone)
