"""A simulated log that can also fork, witnesses over real state, and HTTP peers that behave as told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey

from tlog import merkle
from tlog.checkpoint import Checkpoint, format_checkpoint
from tlog.cosignature import Cosigner
from tlog.keys import Ed25519NoteSigner, KeyCosigner
from tlog.note import Note, SignatureType, format_note, make_verifier_key, sign_note
from witness.service import Witness
from witness.store import Store, create_store, open_store
from witness.wire import format_add_checkpoint

ORIGIN = "log.example/one"
TIME = 1_790_000_000


def make_log_signer(name: str = ORIGIN, seed: int = 1) -> Ed25519NoteSigner:
    key = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
    public = key.public_key().public_bytes_raw()
    return Ed25519NoteSigner(make_verifier_key(name, SignatureType.ED25519, public), key.sign)


def make_cosigner(name: str = "witness.example/w", seed: int = 2, kind: int = 4) -> KeyCosigner:
    seed_bytes = bytes([seed]) * 32
    key: Ed25519PrivateKey | MLDSA44PrivateKey
    if kind == SignatureType.MLDSA44:
        key = MLDSA44PrivateKey.from_seed_bytes(seed_bytes)
    else:
        key = Ed25519PrivateKey.from_private_bytes(seed_bytes)
    return KeyCosigner(make_verifier_key(name, kind, key.public_key().public_bytes_raw()), key.sign)


class SimulatedLog:
    """A log over the given leaves; `fork_at` gives another one that shares only the first of them."""

    def __init__(self, leaves: Sequence[bytes], origin: str = ORIGIN, seed: int = 1) -> None:
        self.leaves = [merkle.leaf_hash(leaf) for leaf in leaves]
        self.entries = tuple(leaves)
        self.origin = origin
        self.signer = make_log_signer(origin, seed)

    @property
    def size(self) -> int:
        return len(self.leaves)

    def fork_at(self, size: int, label: bytes = b"fork") -> SimulatedLog:
        changed = [label + b" %d" % i for i in range(size, self.size)]
        fork = SimulatedLog((*self.entries[:size], *changed), self.origin)
        fork.signer = self.signer
        return fork

    def checkpoint(self, size: int) -> Checkpoint:
        return Checkpoint(self.origin, size, merkle.tree_root(size, self._read))

    def note(self, size: int) -> Note:
        return sign_note(format_checkpoint(self.checkpoint(size)), [self.signer])

    def prove(self, old_size: int, size: int) -> tuple[bytes, ...]:
        return merkle.prove_consistency(old_size, size, self._read) if 0 < old_size < size else ()

    def body(self, old_size: int, size: int) -> bytes:
        """An honest add-checkpoint request."""
        return format_add_checkpoint(old_size, self.prove(old_size, size), self.note(size))

    def _read(self, nodes: Sequence[merkle.Node]) -> Sequence[bytes]:
        return [self._node(level, index) for level, index in nodes]

    def _node(self, level: int, index: int) -> bytes:
        row = self.leaves[index << level : (index + 1) << level]
        while len(row) > 1:
            row = [merkle.node_hash(row[i], row[i + 1]) for i in range(0, len(row), 2)]
        return row[0]


def tampered(note: Note) -> bytes:
    """The note with one bit of its first signature turned."""
    line = note.signatures[0]
    wrong = bytes((line.signature[0] ^ 1, *line.signature[1:]))
    return format_note(Note(note.text, (type(line)(line.name, line.key_id, wrong), *note.signatures[1:])))


@pytest.fixture(scope="session")
def log() -> SimulatedLog:
    return SimulatedLog([b"entry %d" % i for i in range(40)])


@pytest.fixture
def state(tmp_path: Path, log: SimulatedLog) -> Path:
    """A state folder that knows `log`."""
    folder = tmp_path / "state"
    folder.mkdir()
    create_store(folder, "witness.example/w", [make_cosigner().verifier_key.vkey])
    store = open_store(folder)
    store.add_log(ORIGIN, log.signer.verifier_key)
    store.close()
    return folder


@pytest.fixture
def store(state: Path) -> Iterator[Store]:
    opened = open_store(state)
    yield opened
    opened.close()


class Clock:
    """A clock that stands until it is told otherwise."""

    def __init__(self) -> None:
        self.now = TIME

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cosigner() -> Cosigner:
    return make_cosigner()


@pytest.fixture
def witness(store: Store, cosigner: Cosigner, clock: Clock) -> Witness:
    return Witness(store, [cosigner], clock)


Answer = Callable[[BaseHTTPRequestHandler, bytes], None]


def reply(status: int, body: bytes = b"", content_type: str = "text/plain") -> Answer:
    """A peer that always gives this answer."""

    def answer(handler: BaseHTTPRequestHandler, _: bytes) -> None:
        handler.send_response(status)
        handler.send_header("content-type", content_type)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.fixture
def serve_peer() -> Iterator[Callable[[Answer], str]]:
    """Starts an HTTP peer that handles requests as told, and gives its URL."""
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                try:
                    answer(self, body)
                except OSError:  # whoever asked has hung up
                    self.close_connection = True

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        server.block_on_close = False
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="session")
def sim() -> SimpleNamespace:
    """The makers of this file; folders of tests import nothing from each other."""
    return SimpleNamespace(
        Log=SimulatedLog,
        make_log_signer=make_log_signer,
        make_cosigner=make_cosigner,
        tampered=tampered,
        reply=reply,
        TIME=TIME,
        ORIGIN=ORIGIN,
    )
