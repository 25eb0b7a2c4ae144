"""One small history of one home, made by the real code: every key a seed, every random byte counted, time set.

Two facts, a correction, a stale copy that is refused; published and cosigned. Then an erasure of one key, published
again. docs/formats shows the bytes that this leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from auditor.residue import ScanResult
from memory import layout, wiring
from memory.config import Config, format_config
from memory.home_names import KEY_LIST
from memory.key_list import first_key_list
from memory.principal import owner_from_environment
from memory.rows import EventRow
from memory.scan_process import PagesResult
from tlog.keys import KeyCosigner, format_skey
from tlog.note import SignatureLine, SignatureType, make_verifier_key, parse_note
from tlog.storage import DirectoryStorage
from witness.decide import Refuse
from witness.service import Witness
from witness.store import Store, create_store, open_store
from witness.wire import format_add_checkpoint, format_conflict, format_cosignatures, origin_digest

SECOND = 1_000_000
START = 1_790_000_000 * SECOND
ORIGIN = "muniment/000102030405060708090a0b0c0d0e0f"
WITNESS = "witness.example.org"
OWNER = owner_from_environment({})
CONFIG = Config(
    origin=ORIGIN,
    issuer="urn:uuid:00000000-0000-4000-8000-000000000001",
    subject="urn:uuid:00000000-0000-4000-8000-000000000002",
    created_at=START // SECOND - 60,
)
SEEDS = {
    "log": b"\xa1" * 32,
    "issuer": b"\xa2" * 32,
    "receipt": b"\xa3" * 32,
    "manifest": b"\xa4" * 32,
    "witness": b"\xa5" * 32,
}
SECRETS = {"index": b"\xb1" * 32, "tenant": b"\xb2" * 32}
TENANT = b"\x01" * 16
TOOLS = {"muniment": "0.1.0", "sqlite": "3.50.0", "apsw": "3.50.0.0"}
KEY = "checkout-api/region"

Table = list[dict[str, Any]]


@dataclass
class World:
    """The home, open, after the history. `rows` are the statements as they were before anything was erased."""

    home: wiring.Home
    state: Path
    rows: tuple[EventRow, ...] = ()
    tables: dict[str, Table] = field(default_factory=dict)
    """Tables of the store before the erasure."""
    requests: list[bytes] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)
    conflict: bytes = b""
    witnessed: bytes = b""


class _Draws:
    """In place of `os` in memory.vault: the n-th draw of random bytes is n, in every byte."""

    def __init__(self) -> None:
        self.count = 0

    def urandom(self, size_bytes: int) -> bytes:
        self.count += 1
        return bytes([self.count]) * size_bytes


@contextmanager
def make_world(folder: Path) -> Iterator[World]:
    """The history, lived through in an empty folder."""
    cosigner = _witness_key()
    now = [START]
    with ExitStack() as stack:
        stack.enter_context(patch("memory.vault.os", _Draws()))
        stack.enter_context(patch("memory.erase_document._tools", lambda: dict(TOOLS)))
        stack.enter_context(patch("memory.wiring._witnessed_heads", lambda policy, origin: []))
        pages = PagesResult(58, 151_552, 0, 0, 2, 2, 0, {})
        stack.enter_context(patch("memory.scan_process.pages_apart", lambda folder: pages))
        home_folder, state = folder / "home", folder / "witness"
        _make_home(home_folder, cosigner)
        store = stack.enter_context(closing(_make_witness(state, cosigner)))
        home = stack.enter_context(wiring.open_home(home_folder, clock=lambda: now[0]))
        store.add_log(ORIGIN, home.log_signer().verifier_key)
        witness = Witness(store, [cosigner], clock=lambda: now[0] // SECOND)
        world = World(home, state)
        home.cosign_of = lambda policy: _asking(world, witness)
        home.scan = lambda needles, canary: ScanResult(24, 262_144, (), True, 0)  # type: ignore[method-assign]
        _write(world, now)
        _erase(world, now)
        late = witness.add_checkpoint(format_add_checkpoint(0, (), _note(world.requests[-1])))
        assert isinstance(late, Refuse) and late.known_size is not None
        world.conflict = format_conflict(late.known_size)
        world.witnessed = witness.checkpoint(origin_digest(ORIGIN)) or b""
        yield world


def cosigner_vkey() -> str:
    return _witness_key().verifier_key.vkey


def _write(world: World, now: list[int]) -> None:
    memory = world.home.memory(OWNER)
    memory.remember("Mara Lindqvist leads the team.", key="team/lead", value="Mara Lindqvist")
    for text, value in (
        ("checkout-api runs in eu-west-1", "eu-west-1"),
        ("Correction: it runs in us-east-2", "us-east-2"),
        ("checkout-api runs in EU-WEST-1", "EU-WEST-1"),
    ):
        now[0] += SECOND
        memory.remember(text, key=KEY, value=value)
    now[0] += 6 * SECOND
    world.home.publish()
    world.rows = _rows(world.home)
    with world.home.parts().store.read() as view:
        for table in ("meta", "tenants", "acts", "facts", "ledger"):
            columns = [row[1] for row in view.rows(f"PRAGMA table_info({table})")]
            found = view.rows(f"SELECT * FROM {table}")
            world.tables[table] = [dict(zip(columns, row, strict=True)) for row in found]


def _erase(world: World, now: list[int]) -> None:
    memory = world.home.memory(OWNER)
    now[0] += SECOND
    preview = memory.forget_preview(key=KEY)
    memory.forget(key=KEY, confirm=preview["confirm"])
    now[0] += 9 * SECOND
    world.home.publish()
    kept = {row.seq: row for row in world.rows}
    world.rows = tuple(
        kept.get(row.seq, row)._replace(entry_index=row.entry_index) for row in _rows(world.home)
    )


def _rows(home: wiring.Home) -> tuple[EventRow, ...]:
    with home.parts().store.read() as view:
        found = (view.event_by_seq(seq) for seq in range(1, view.counts()["statements"] + 1))
        return tuple(row for row in found if row is not None)


def _make_home(folder: Path, cosigner: KeyCosigner) -> None:
    _write_keys(folder / "keys")
    layout.make_home(folder, ORIGIN, None, "on")
    vkey = layout.load_log_key(folder / "keys" / "log.key").verifier_key.vkey
    policy = (
        f"log {vkey} https://log.example.org/\n"
        f"witness w1 {cosigner.verifier_key.vkey} http://127.0.0.1:7380/\n"
        "quorum w1\n"
    )
    files = DirectoryStorage(folder)
    files.replace(layout.CONFIG, format_config(CONFIG))
    files.replace(KEY_LIST, first_key_list(folder, CONFIG))
    layout.write_policy(files, folder, CONFIG, layout.own_policy(policy, vkey))


def _write_keys(folder: Path) -> None:
    files = {
        "log.key": f"{format_skey(ORIGIN, SignatureType.ED25519, SEEDS['log'])}\n".encode(),
        "index.key": SECRETS["index"],
        f"guard/{TENANT.hex()}.key": SECRETS["tenant"],
    }
    for use in ("issuer", "receipt", "manifest"):
        key = Ed25519PrivateKey.from_private_bytes(SEEDS[use])
        files[f"{use}.key"] = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o600)


def _make_witness(state: Path, cosigner: KeyCosigner) -> Store:
    state.mkdir(mode=0o700)
    with patch("witness.store.secrets", SimpleNamespace(token_hex=lambda size_bytes: "0f" * size_bytes)):
        create_store(state, WITNESS, [cosigner.verifier_key.vkey])
    return open_store(state)


def _witness_key() -> KeyCosigner:
    key = Ed25519PrivateKey.from_private_bytes(SEEDS["witness"])
    public_key = key.public_key().public_bytes_raw()
    return KeyCosigner(make_verifier_key(WITNESS, SignatureType.COSIGNATURE_ED25519, public_key), key.sign)


def _asking(world: World, witness: Witness) -> Any:
    """Asks the witness without HTTP, and keeps what goes over the wire."""

    def cosign(
        note: bytes, prove: Callable[[int], Sequence[bytes]], previous_size: int, _: float
    ) -> tuple[SignatureLine, ...]:
        proof = prove(previous_size) if previous_size else ()
        world.requests.append(format_add_checkpoint(previous_size, proof, parse_note(note)))
        lines = witness.add_checkpoint(world.requests[-1])
        assert not isinstance(lines, Refuse)
        world.answers.append(format_cosignatures(lines))
        return lines

    return cosign


def _note(request: bytes) -> Any:
    return parse_note(request.partition(b"\n\n")[2])
