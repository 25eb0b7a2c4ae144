"""Homes of several nodes on one database and one bucket, made from one folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from memory import wiring


def make_homes(folder: Path, count: int, dsn: str, bucket: str) -> list[Path]:
    """The folders of that many nodes: each has the keys and the settings, and nothing else."""
    folder.mkdir()
    with wiring.init_home(folder / "0", database=dsn, log_storage=bucket):
        pass
    for number in range(1, count):
        shutil.copytree(folder / "0", folder / str(number))
        os.chmod(folder / str(number), 0o700)
    return [folder / str(number) for number in range(count)]


def dsn(ports: list[int]) -> str:
    hosts = ",".join("127.0.0.1" for _ in ports)
    listed = ",".join(map(str, ports))
    return f"host={hosts} port={listed} dbname=memory user=muniment target_session_attrs=read-write"
