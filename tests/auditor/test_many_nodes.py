"""An audit of a home whose store is in a database and whose log is in a bucket: what needs no server of either."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import apsw
import pytest

from auditor.pg_copy import _TABLES
from auditor.store_rows import read_rows
from tlog import bucket_reader


def test_what_is_copied_of_a_database_is_all_that_the_checks_read() -> None:
    copy = apsw.Connection(":memory:")
    for table, columns in {**_TABLES, "meta": "name, value", "contents": "seq, content, salt"}.items():
        copy.execute(f"CREATE TABLE {table} ({columns})")
    assert read_rows(copy, None).flaws == ()


@pytest.fixture
def moved(copy: Any, make_bucket: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The bucket that has the log of the home, whose folder has none of it any more."""
    bucket = make_bucket()
    folder = copy.home / "log"
    for path in folder.rglob("*"):
        if path.is_file():
            bucket.put(path.relative_to(folder).as_posix(), path.read_bytes())
    shutil.rmtree(folder)
    with (copy.home / "config.toml").open("a") as file:
        file.write('log_storage = "s3://memory-log/prod"\n')
    asked: list[str] = []

    def opened(url: str) -> Any:
        asked.append(url)
        return bucket._store

    monkeypatch.setattr(bucket_reader, "open_store", opened)
    yield bucket
    assert set(asked) == {"s3://memory-log/prod"}


def test_the_log_is_read_where_the_settings_say(copy: Any, moved: Any) -> None:
    audited = copy.audit()
    assert audited.outcome.findings == ()
    assert audited.verified is not None and audited.verified.checkpoint.size > 0


def test_other_bytes_in_the_bucket_are_found(copy: Any, moved: Any) -> None:
    name = next(name for name in moved.names("") if name.startswith("tile/entries/"))
    data = bytearray(moved.get(name).data)
    data[len(data) // 2] ^= 1
    moved.put(name, bytes(data))
    assert copy.audit().outcome.findings
