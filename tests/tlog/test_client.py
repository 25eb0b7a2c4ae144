"""What a client believes of a log that somebody else serves."""

from __future__ import annotations

import gzip
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tlog import merkle
from tlog.client import LogClient, UrlReader, folder_reader
from tlog.errors import MalformedError, UnavailableError, VerificationError
from tlog.log import Log, LogSettings
from tlog.note import NoteSigner, SignatureType, parse_vkey
from tlog.policy import LogEntry, Policy, make_policy
from tlog.storage import MemoryStorage
from tlog.tile_reader import VerifiedTiles

ORIGIN = "example.org/log"
TESSERA_VKEY = "example.com/log/testdata+33d7b496+AeHTu4Q3hEIMHNqc6fASMsq3rKNx280NI+oO5xCFkkSx"


@pytest.fixture(scope="module")
def signer(seed_signer: Callable[[str, int, int], Any]) -> NoteSigner:
    made: NoteSigner = seed_signer(ORIGIN, SignatureType.ED25519, 1)
    return made


@pytest.fixture(scope="module")
def policy(signer: NoteSigner) -> Policy:
    return make_policy([LogEntry(signer.verifier_key)], [], [], None)


def entries(start: int, end: int, tag: str = "entry") -> list[bytes]:
    return [b"%s-%d" % (tag.encode(), number) for number in range(start, end)]


def new_log(signer: NoteSigner, size: int, tag: str = "entry") -> Log:
    made = LogSettings(ORIGIN, (signer,), identify=lambda entry: sha256(entry).digest())
    log = Log(MemoryStorage(), MemoryStorage(), made)
    log.append(entries(0, size, tag))
    log.publish(5)
    return log


@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 700, 65535 + 2])
def test_reads_and_proves_every_entry(signer: NoteSigner, policy: Policy, size: int) -> None:
    log = new_log(signer, size)
    client = LogClient(log.public.read, policy)
    assert client.checkpoint().checkpoint.size == size
    assert list(client.entries(0, size)) == entries(0, size)
    for index in {0, 1, 255, 256, size // 2, size - 1} & set(range(size)):
        assert client.entry(index) == b"entry-%d" % index
        leaf = merkle.leaf_hash(client.entry(index))
        merkle.verify_inclusion(index, size, leaf, client.prove_inclusion(index), log.head().root)


@pytest.mark.parametrize(
    ("start", "end"), [(0, 0), (0, 1), (3, 300), (255, 257), (256, 512), (699, 700), (700, 700)]
)
def test_reads_any_range(signer: NoteSigner, policy: Policy, start: int, end: int) -> None:
    client = LogClient(new_log(signer, 700).public.read, policy)
    assert list(client.entries(start, end)) == entries(start, end)


@pytest.mark.parametrize(("start", "end"), [(-1, 1), (2, 1), (0, 701), (701, 701)])
def test_refuses_ranges_outside(signer: NoteSigner, policy: Policy, start: int, end: int) -> None:
    client = LogClient(new_log(signer, 700).public.read, policy)
    with pytest.raises(MalformedError):
        client.entries(start, end)


def test_an_empty_log_has_a_checkpoint_and_nothing_else(signer: NoteSigner, policy: Policy) -> None:
    client = LogClient(new_log(signer, 0).public.read, policy)
    assert client.checkpoint().checkpoint.size == 0
    assert list(client.entries(0, 0)) == []
    assert client.root_at(0) == merkle.EMPTY_ROOT
    with pytest.raises(MalformedError):
        client.entry(0)
    with pytest.raises(MalformedError):
        client.prove_inclusion(0)


def test_earlier_roots_and_consistency_follow_from_the_checkpoint(signer: NoteSigner, policy: Policy) -> None:
    log = new_log(signer, 700)
    client = LogClient(log.public.read, policy)
    for old in (1, 255, 256, 257, 512, 699, 700):
        root = merkle.Frontier().extend(map(merkle.leaf_hash, entries(0, old))).root()
        assert client.root_at(old) == root
        merkle.verify_consistency(old, 700, root, log.head().root, client.prove_consistency(old))
    with pytest.raises(MalformedError):
        client.root_at(701)


def test_follows_a_log_that_grows(signer: NoteSigner, policy: Policy) -> None:
    log = new_log(signer, 250)
    client = LogClient(log.public.read, policy)
    client.checkpoint()
    log.append(entries(250, 600))
    log.publish(5)
    assert client.entry(249) == b"entry-249"  # of the old size, whose partial tiles are gone by now
    with pytest.raises(MalformedError):
        client.entry(599)
    assert client.checkpoint().checkpoint.size == 600
    assert client.entry(599) == b"entry-599"


def test_tells_a_log_that_rolled_back_or_forked(signer: NoteSigner, policy: Policy) -> None:
    log = new_log(signer, 300)
    served = log.public
    client = LogClient(lambda path: served.read(path), policy)
    client.checkpoint()
    for other, code in ((new_log(signer, 299), "rolled_back"), (new_log(signer, 400, "other"), "fork")):
        served = other.public
        with pytest.raises(VerificationError) as caught:
            client.checkpoint()
        assert caught.value.code == code
    served = log.public
    assert client.entry(299) == b"entry-299"
    assert client.checkpoint().checkpoint.size == 300


def test_the_policy_decides(signer: NoteSigner, policy: Policy, seed_signer: Callable[..., Any]) -> None:
    log = new_log(signer, 3)
    other = make_policy([LogEntry(seed_signer(ORIGIN, SignatureType.ED25519, 2).verifier_key)], [], [], None)
    with pytest.raises(VerificationError):
        LogClient(log.public.read, other).checkpoint()
    with pytest.raises(VerificationError):
        LogClient(log.public.read, policy, "another.example").checkpoint()
    with pytest.raises(UnavailableError):
        LogClient(MemoryStorage().read, policy).entry(0)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


SIZE = 256 * 257 + 3  # three levels, and a partial tile at each


@pytest.fixture(scope="module")
def large(signer: NoteSigner) -> Log:
    return new_log(signer, SIZE)


@pytest.mark.parametrize(
    ("path", "at"),
    [
        ("tile/0/000", 0),
        ("tile/0/000", 8191),
        ("tile/0/257.p/3", 0),
        ("tile/0/257.p/3", 95),
        ("tile/1/000", 4000),
        ("tile/1/001.p/1", 31),
        ("tile/2/000.p/1", 0),
        ("tile/entries/000", 2),
        ("tile/entries/000", 0),
        ("tile/entries/257.p/3", -1),
    ],
)
def test_one_altered_bit_anywhere_is_noticed(large: Log, policy: Policy, path: str, at: int) -> None:
    whole = large.public.read(path)
    assert whole is not None
    altered = {path: flipped(whole, at % len(whole))}
    client = LogClient(lambda one: altered.get(one, large.public.read(one)), policy)
    with pytest.raises(VerificationError):
        for index in (5, SIZE - 1):
            client.entry(index)
            client.prove_inclusion(index)
    altered.clear()
    assert client.entry(5) == b"entry-5"


@pytest.mark.parametrize("path", ["tile/0/000", "tile/0/257.p/3", "tile/1/000", "tile/entries/000"])
@pytest.mark.parametrize(
    "answer", [b"", b"<!doctype html><title>404</title>", b"\0" * 8192, b"\0" * (1 << 14)]
)
def test_a_page_in_place_of_a_tile_is_noticed(large: Log, policy: Policy, path: str, answer: bytes) -> None:
    client = LogClient(lambda one: answer if one == path else large.public.read(one), policy)
    with pytest.raises(VerificationError):
        for index in (5, SIZE - 1):
            client.prove_inclusion(index)
            client.entry(index)


@pytest.mark.parametrize("path", ["tile/0/000", "tile/0/257.p/3", "tile/1/000", "tile/entries/257.p/3"])
def test_a_missing_tile_is_an_error(large: Log, policy: Policy, path: str) -> None:
    client = LogClient(lambda one: None if one == path else large.public.read(one), policy)
    with pytest.raises(VerificationError) as caught:
        for index in (5, SIZE - 1):
            client.prove_inclusion(index)
            client.entry(index)
    assert caught.value.code == "tile_missing"
    assert caught.value.fields["path"] == path


def test_a_partial_tile_that_is_gone_is_read_from_the_full_one(signer: NoteSigner, policy: Policy) -> None:
    log = new_log(signer, 600)
    old = log.checkpoint()
    log.append(entries(600, 800))
    log.publish(5)
    assert log.public.read("tile/0/002.p/88") is None
    asked: list[str] = []

    def read(path: str) -> bytes | None:
        asked.append(path)
        return old if path == "checkpoint" else log.public.read(path)

    client = LogClient(read, policy)
    assert client.entry(599) == b"entry-599"
    assert "tile/0/002.p/88" in asked
    assert "tile/0/002" in asked
    whole = log.public.read("tile/0/002") or b""
    cut = {"tile/0/002": whole[: 88 * 32]}  # enough for the partial tile, but not a tile
    with pytest.raises(VerificationError):
        LogClient(lambda path: cut.get(path, read(path)), policy).entry(599)


def test_reading_costs_few_files(large: Log, policy: Policy) -> None:
    asked: list[str] = []

    def read(path: str) -> bytes | None:
        asked.append(path)
        return large.public.read(path)

    client = LogClient(read, policy)
    client.prove_inclusion(1234)
    assert len(asked) <= 6
    asked.clear()
    client.entry(1300)
    assert asked == ["tile/entries/005"]


def test_reads_the_tessera_log(vectors: Path) -> None:
    policy = make_policy([LogEntry(parse_vkey(TESSERA_VKEY))], [], [], None)
    folder = vectors / "tessera" / "log"
    client = LogClient.from_folder(folder, policy, "example.com/log/testdata")
    newest = client.checkpoint().checkpoint
    assert newest.size == 15
    held = list(client.entries(0, 15))
    for index, one in enumerate(held):
        merkle.verify_inclusion(index, 15, merkle.leaf_hash(one), client.prove_inclusion(index), newest.root)
    read = folder_reader(folder)
    for size in range(16):
        checkpoint = (folder / f"checkpoint.{size}").read_bytes()
        files = {"checkpoint": checkpoint}
        earlier = LogClient(lambda path, files=files: files.get(path) or read(path), policy)  # type: ignore[misc]
        assert list(earlier.entries(0, size)) == held[:size]
        assert client.root_at(size) == earlier.checkpoint().checkpoint.root


# Folders and URLs


def test_a_folder_is_read_and_bounded(tmp_path: Path, signer: NoteSigner, policy: Policy) -> None:
    log = new_log(signer, 300)
    for name in log.public.names(""):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(log.public.read(name) or b"")
    client = LogClient.from_folder(tmp_path, policy)
    assert list(client.entries(0, 300)) == entries(0, 300)
    (tmp_path / "checkpoint").write_bytes(b"x" * (1 << 21))
    with pytest.raises(VerificationError) as caught:
        client.checkpoint()
    assert caught.value.code == "too_large"
    for odd in ("tile/0/005", "tile/0/006"):
        (os.mkdir if odd.endswith("5") else os.mkfifo)(tmp_path / odd)
        assert folder_reader(tmp_path)(odd) is None
    with pytest.raises(MalformedError):
        folder_reader(tmp_path)("../outside")
    with pytest.raises(MalformedError):
        LogClient.from_folder(tmp_path / "nothing", policy)


@contextmanager
def served(answer: Callable[[str], tuple[int, dict[str, str], bytes]]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answer(self.path)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(ConnectionError):  # a client that has heard enough goes away
                self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_url_is_read_with_and_without_compression(signer: NoteSigner, policy: Policy) -> None:
    log = new_log(signer, 300)

    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        data = log.public.read(path.removeprefix("/log/"))
        if data is None:
            return 404, {}, b"<html>not found</html>"
        if "entries" in path:
            return 200, {"Content-Encoding": "gzip"}, gzip.compress(data)
        return 200, {}, data

    with served(answer) as url, LogClient.from_url(f"{url}/log/", policy) as client:
        assert list(client.entries(0, 300)) == entries(0, 300)
        assert client._read("tile/0/999") is None


@pytest.mark.parametrize(
    "body",
    [
        gzip.compress(b"\0" * 32) + b"junk",
        gzip.compress(b"\0" * 32) + gzip.compress(b"\0" * 32),
        gzip.compress(b"\0" * 32)[:-4],
    ],
    ids=["junk behind", "two members", "cut"],
)
def test_an_answer_is_one_whole_gzip_member(body: bytes) -> None:
    with (
        served(lambda path: (200, {"Content-Encoding": "gzip"}, body)) as url,
        closing(UrlReader(url)) as read,
        pytest.raises(UnavailableError, match="damaged gzip"),
    ):
        read("tile/0/000.p/1")


def test_a_hostile_server_cannot_fill_the_memory(policy: Policy) -> None:
    bomb = gzip.compress(b"\0" * (64 << 20))

    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        if path == "/checkpoint":
            return 200, {"Content-Encoding": "gzip"}, bomb
        if path == "/tile/0/000":
            return 302, {"Location": "/checkpoint"}, b""
        return 500, {}, b""

    with served(answer) as url, closing(UrlReader(url)) as read:
        with pytest.raises(VerificationError) as caught:
            read("checkpoint")
        assert caught.value.code == "too_large"
        for path in ("tile/0/000", "tile/1/000"):
            with pytest.raises(UnavailableError):
                read(path)


def test_a_server_that_is_not_there_damaged_or_slow_is_unavailable() -> None:
    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        if path == "/checkpoint":
            return 200, {"Content-Encoding": "gzip"}, b"not gzip"
        if path == "/tile/0/001":
            return 200, {"Content-Encoding": "br"}, b"not asked for"
        time.sleep(0.4)
        return 200, {}, b""

    with served(answer) as url, closing(UrlReader(url, timeout_seconds=0.2)) as read:
        for path in ("checkpoint", "tile/0/001", "tile/0/000"):
            with pytest.raises(UnavailableError) as caught:
                read(path)
            assert caught.value.code == "unreachable"
    with closing(UrlReader(url)) as read, pytest.raises(UnavailableError):
        read("checkpoint")


def test_a_header_that_comes_byte_by_byte_holds_up_nobody() -> None:
    """Each byte comes in time, and the answer never does; what is asked next is asked on another connection."""
    gone = threading.Event()

    def drip(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Wait: ")
            for _ in range(200):
                connection.sendall(b"a")
                time.sleep(0.05)
            return
        gone.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with closing(UrlReader(url, timeout_seconds=0.2)) as read:
            for _ in range(2):
                gone.clear()
                thread = threading.Thread(target=lambda: drip(server.accept()[0]))
                thread.start()
                with pytest.raises(UnavailableError, match="too slowly"):
                    read("checkpoint")
                thread.join(5)
                assert gone.wait(5), "the connection was let go"


@pytest.mark.parametrize("url", ["", "ftp://example.org", "example.org", "file:///etc/passwd"])
def test_refuses_what_is_not_a_url_of_the_web(url: str) -> None:
    with pytest.raises(MalformedError):
        UrlReader(url)


def test_verified_tiles_never_read_beyond_their_size(signer: NoteSigner) -> None:
    log = new_log(signer, 300)
    tiles = VerifiedTiles(log.public.read, 300, log.head().root)
    with pytest.raises(MalformedError):
        list(tiles.entries(0, 301))
