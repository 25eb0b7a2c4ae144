"""A base backup of the database, put back to before an erasure, is found and follows; documents, on two nodes."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory import wiring
from memory.documents import Documents
from memory.operator import Operator
from memory.pg_link import Link
from tlog.errors import UnavailableError, VerificationError

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import ME, forget, write
from postgres_server import Server, pg_home, run, running, start
from ticking import Clock

pytestmark = pytest.mark.postgres


@pytest.fixture
def home(postgres: Server, tmp_path: Path, clock: Clock) -> Iterator[wiring.Home]:
    with pg_home(postgres, tmp_path / "home", clock) as opened:
        yield opened
    postgres.drop_databases()


def test_a_base_backup_that_is_put_back_is_not_served_before_its_erasures_are_done_again(
    tmp_path: Path, clock: Clock
) -> None:
    with (
        running(("fsync=off", "wal_level=replica")) as server,
        pg_home(server, tmp_path / "home", clock) as home,
    ):
        write(home, "Fox has the basement.", key="fox/office", value="basement", subject="Fox Mulder")
        write(home, "Dana has a dog.", key="dana/dog", value="Queequeg", subject="Dana Scully")
        home.publish()
        copy = server.folder.parent / "copy"
        run_backup(server, copy)
        forget(home, subject="Fox Mulder")
        home.publish()
        home.close()
        wiring.log_places.private_storage(home.path, home.config).close()
        stop(server)
        server.process = start(copy, server.port)
        try:
            with pytest.raises(VerificationError) as caught:
                home.memory(ME).get("fox/office")
            assert caught.value.code == "rolled_back"
            Operator(home).restore_log(None)
            assert home.memory(ME).get("fox/office")["active"] == []
            assert home.memory(ME).get("dana/dog")["current"] == "Queequeg"
            assert home.publish()["size"] == 4
        finally:
            stop(server)


def stop(server: Server) -> None:
    """Ends the server, whoever is connected to it."""
    server.process.send_signal(signal.SIGINT)
    server.process.wait(20)


def run_backup(server: Server, folder: Path) -> None:
    """A copy of the whole server, taken while it runs, as its administrator takes one."""
    folder.mkdir(mode=0o700)
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody")
    from postgres_server import binaries

    options = ("-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", "-c", "fast", "--no-sync")
    run(binaries() / "pg_basebackup", "-D", str(folder), *options)


def test_documents_are_edited_on_one_node_at_a_time(home: wiring.Home, tmp_path: Path) -> None:
    """Two nodes have folders of their own, so no file keeps them apart: each adds one to what it has read."""
    home.parts()
    shutil.copytree(home.path, tmp_path / "node")
    with wiring.open_home(tmp_path / "node", clock=home.clock) as node:
        both = [Documents(one.parts(), ME, "files") for one in (home, node)]
        both[0].put("count", "0")

        def count(documents: Documents) -> None:
            for _ in range(5):
                with documents.editing():
                    found = documents.get("count")
                    assert found is not None
                    documents.put("count", str(int(found.text) + 1))

        threads = [threading.Thread(target=count, args=(one,)) for one in both]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = both[1].get("count")
        assert found is not None and found.text == "10"


def test_documents_of_others_are_edited_meanwhile(home: wiring.Home) -> None:
    store, vault = home.parts().store, home.parts().vault
    tags = [vault.index_tag("documents", "default", name) for name in ("files", "notes")]
    with store.alone_editing(tags[0], 1.0), store.alone_editing(tags[1], 1.0):
        with pytest.raises(UnavailableError) as caught, store.alone_editing(tags[0], 0.05):
            raise AssertionError("nobody else may have this")
        assert caught.value.code == "busy"


def test_a_link_that_goes_closes_its_connections(postgres: Server) -> None:
    link = Link(postgres.dsn("postgres"))
    connection = link.run(lambda raw: raw)
    assert not connection.closed
    del link
    assert connection.closed
