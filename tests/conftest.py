"""What every test folder shares: where the outside data lies, and the closing table of what ran and what did not."""

from __future__ import annotations

import datetime
import os
import secrets
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import settings

from memory import scan_process

# No deadlines: a shared machine is slow at times, and time is measured in benchmarks/ alone. The suite draws the same
# examples each time, so that a run can be repeated; `make soak` explores with others, and more of them.
settings.register_profile("project", deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "project")

REPOSITORY = Path(__file__).resolve().parent.parent
# How to start servers; nothing starts the real ones unless MUNIMENT_TEST_SERVERS is set (`make test-nodes`).
sys.path.insert(0, str(REPOSITORY / "tests" / "servers"))
ASK_ANEW = scan_process._ask
ALLOWED_SKIPS = Path(__file__).resolve().parent / "allowed_skips.txt"

MEMORY = "/dev/shm"
MEMORY_BYTES = 4 << 30  # far more than a run writes


def _outside(variable: str, default: str) -> Path:
    folder = Path(os.environ.get(variable) or REPOSITORY.parent / "shared" / default)
    if not folder.is_dir():
        pytest.skip(f"{variable}: no folder of outside {default} here")
    return folder


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of outside test vectors (MUNIMENT_TEST_VECTORS)."""
    return _outside("MUNIMENT_TEST_VECTORS", "vectors")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of outside benchmark data (MUNIMENT_TEST_DATA)."""
    return _outside("MUNIMENT_TEST_DATA", "data")


@pytest.fixture(scope="session")
def forks() -> Iterator[Any]:
    """What starts work in a process of its own without starting Python: a server of forks, once somebody asks it."""
    from fork_server import ForkServer

    server = ForkServer()
    yield server
    server.close()


@pytest.fixture(scope="session", autouse=True)
def scans_are_forked(forks: Any) -> Iterator[None]:
    """An erasure has its files looked at in a process apart; here that is a fork for each look.

    What starts by a command has its looks started anew, as in use. So have the tests that take `scans_anew`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_process, "_ask", forks.scan)
        yield


@pytest.fixture
def scans_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks of this test are by Python started anew."""
    monkeypatch.setattr(scan_process, "_ask", ASK_ANEW)


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real S3 server, for the whole run."""
    import seaweed

    with seaweed.running(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


@pytest.fixture
def make_bucket(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """Makes an empty bucket: of a real server in the run that has them, else of obstore's own, in memory."""
    from tlog.bucket import ObstoreBucket

    if os.environ.get("MUNIMENT_TEST_SERVERS"):
        import seaweed

        server = request.getfixturevalue("object_store")
        return lambda: seaweed.store_of(server, seaweed.BUCKET, secrets.token_hex(8))
    from obstore.store import MemoryStore

    return lambda: ObstoreBucket(MemoryStore())


@pytest.fixture(scope="session")
def database_server() -> Iterator[Any]:
    """A real PostgreSQL server, for the whole run."""
    import postgres_cluster

    with postgres_cluster.running() as server:
        yield server


@pytest.fixture(scope="session")
def log_database(database_server: Any) -> str:
    """A database for logs: each has its own rows."""
    dsn: str = database_server.new_database()
    return dsn


@pytest.fixture
def make_shared(log_database: str) -> Iterator[Callable[[], Any]]:
    """Opens the private files of a new log in PostgreSQL, with a connection of its own each time."""
    from memory.pg_link import Link
    from memory.pg_log import PgLogStorage

    made: list[PgLogStorage] = []
    name = secrets.token_hex(8)

    def make() -> PgLogStorage:
        storage = PgLogStorage(Link(log_database), name)
        storage.prepare()
        made.append(storage)
        return storage

    yield make
    for storage in made:
        storage.close()


class Tally:
    """What became of each test, by folder, and each skip with its reason."""

    def __init__(self) -> None:
        self.results: dict[str, Counter[str]] = defaultdict(Counter)
        self.skips: Counter[str] = Counter()

    def add(self, report: pytest.TestReport) -> None:
        """Counts a test once: by its call, or by the set-up that kept it from being called."""
        if report.when != "call" and report.outcome == "passed":
            return
        folder = "/".join(report.nodeid.split("::")[0].split("/")[:2])
        self.results[folder][report.outcome] += 1
        if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
            self.skips[report.longrepr[2].removeprefix("Skipped: ")] += 1

    def not_allowed(self) -> list[str]:
        """Reasons for skipping that are not on the repository's list."""
        lines = ALLOWED_SKIPS.read_text("utf-8").splitlines()
        allowed = [line for line in lines if line and not line.startswith("#")]
        return [why for why in self.skips if not any(why.startswith(one) for one in allowed)]


_TALLY = pytest.StashKey[Tally]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TALLY] = Tally()
    _write_to_memory(config)
    _trust_one_authority(config)
    # Commands start as they do where they are installed: with bytecode, and not compiled anew each time.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _write_to_memory(config: pytest.Config) -> None:
    """Homes, logs and stores are made in a file system that memory holds, where there is one with room for them.

    What is written is flushed to the disk before it is acknowledged; a test waits for that some forty times per home
    that it makes, and learns nothing: it kills processes, which loses no page that the system holds, and where power
    is to be lost it keeps a list of what was flushed. TMPDIR says otherwise.
    """
    if "TMPDIR" in os.environ or config.option.basetemp or not os.access(MEMORY, os.W_OK):
        return
    if shutil.disk_usage(MEMORY).free >= MEMORY_BYTES:
        os.environ["TMPDIR"] = tempfile.tempdir = MEMORY  # for commands, other test processes, and this one


def _trust_one_authority(config: pytest.Config) -> None:
    """Every server here is on loopback and speaks plain HTTP. A client that is made for one request reads the list of
    the world's certificate authorities all the same, 28 ms of CPU each time: here that list has one that signs nothing.
    """
    now = datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nobody")])
    key = Ed25519PrivateKey.generate()
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    file = Path(tempfile.mkdtemp(prefix="muniment-authority-")) / "one.pem"
    file.write_bytes(made.sign(key, None).public_bytes(Encoding.PEM))
    os.environ["SSL_CERT_FILE"] = str(file)
    config.add_cleanup(lambda: shutil.rmtree(file.parent, ignore_errors=True))


class _Collector:
    """Sees every report, those of other processes too."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tally.add(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        # A whole file that was skipped while it was read.
        if report.skipped and isinstance(report.longrepr, tuple):
            self.tally.skips[report.longrepr[2].removeprefix("Skipped: ")] = 1


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_Collector(session.config.stash[_TALLY]))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A test of our own that was skipped for a reason that nobody allowed fails the run."""
    if session.config.stash[_TALLY].not_allowed() and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    tally = config.stash[_TALLY]
    terminalreporter.section("what ran")
    for folder, counts in sorted(tally.results.items()):
        shown = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        terminalreporter.write_line(f"{folder:<24}{shown}")
    for why, count in sorted(tally.skips.items()):
        terminalreporter.write_line(f"skipped {count:>4}: {why}")
    for why in tally.not_allowed():
        terminalreporter.write_line(f"NOT ALLOWED to be skipped (tests/allowed_skips.txt): {why}")
