"""A log replayed: the same root whatever the cut, and each bad entry named by its index."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tlog.client import folder_reader
from tlog.cose import CWT_CLAIMS, CWT_ISS, CWT_SUB, sign1
from tlog.cose_keys import CoseKey, PrivateKeySigner, make_signer
from tlog.errors import MalformedError, VerificationError
from tlog.log import Log, LogSettings
from tlog.merkle import EMPTY_ROOT, Frontier, leaf_hash
from tlog.replay import MAX_FAULTS, PIECE, Fault, Replayed, replay_log, replay_piece
from tlog.statement import sign_statement
from tlog.storage import DirectoryStorage
from tlog.tile import WIDTH, bundle_path

SIGNER = make_signer(Ed25519PrivateKey.from_private_bytes(b"\x01" * 32))
OTHER = make_signer(Ed25519PrivateKey.from_private_bytes(b"\x02" * 32))
ES256 = make_signer(ec.derive_private_key(7, ec.SECP256R1()))
STRANGER = make_signer(Ed25519PrivateKey.from_private_bytes(b"\x03" * 32))
Found = TypeVar("Found")
KEYS = (SIGNER.key, OTHER.key, ES256.key)


def statement(number: int, signer: PrivateKeySigner = SIGNER) -> bytes:
    return sign_statement(signer, "issuer", "subject", sha256(b"%d" % number).digest())


def foreign(signer: PrivateKeySigner = OTHER) -> bytes:
    """A statement of another shape than ours."""
    return sign1(signer, {CWT_CLAIMS: {CWT_ISS: "somebody", CWT_SUB: "something"}}, b"payload")


def flipped(entry: bytes) -> bytes:
    return entry[:-1] + bytes((entry[-1] ^ 1,))


def root_of(entries: Sequence[bytes]) -> bytes:
    return Frontier().extend(map(leaf_hash, entries)).root()


def test_statements_under_any_of_the_keys_hold() -> None:
    entries = [
        statement(0),
        statement(1, OTHER),
        foreign(),
        statement(2, ES256),
        foreign(ES256),
        statement(3),
    ]
    piece = replay_piece(entries, 0, KEYS)
    assert piece.faults == ()
    assert Frontier(6, piece.hashes).root() == root_of(entries)


def test_each_bad_entry_is_named() -> None:
    bad = {
        1: (flipped(statement(1)), "signature"),
        2: (flipped(foreign()), "signature"),
        3: (flipped(statement(3, OTHER)), "signature"),
        4: (statement(4, STRANGER), "key_unknown"),
        5: (foreign(STRANGER), "key_unknown"),
        6: (b"no statement", "bad_input"),
        7: (b"", "bad_input"),
    }
    entries = [bad[number][0] if number in bad else statement(number) for number in range(9)]
    piece = replay_piece(entries, 512, KEYS)
    assert piece.faults == tuple(Fault(512 + index, code) for index, (_, code) in bad.items())
    assert Frontier(9, piece.hashes).root() == root_of(entries)


def test_a_key_of_the_same_kid_and_another_algorithm_does_not_count() -> None:
    bound = CoseKey(SIGNER.key.kty, SIGNER.key.x, alg=-19)
    assert replay_piece([statement(0)], 0, [bound]).faults == (Fault(0, "algorithm"),)


def test_faults_are_bounded() -> None:
    entries = [b"no statement"] * (MAX_FAULTS + 50)
    piece = replay_piece(entries, 0, KEYS)
    assert len(piece.faults) == MAX_FAULTS
    assert Frontier(len(entries), piece.hashes).root() == root_of(entries)


@pytest.mark.parametrize("keys", [(), KEYS])
@pytest.mark.parametrize("size", [-1, 1 << 64])
def test_refuses_a_size_that_is_none(keys: Sequence[CoseKey], size: int) -> None:
    with pytest.raises(MalformedError):
        replay_log(partial(folder_reader, "."), size, keys)
    with pytest.raises(MalformedError):
        replay_log(partial(folder_reader, "."), 0, ())


SIZE = 2 * PIECE + WIDTH + 3
BAD = (3, PIECE - 1, PIECE, SIZE - 1)


@cache
def entries_with_bad_ones() -> list[bytes]:
    return [flipped(statement(number)) if number in BAD else statement(number) for number in range(SIZE)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The public files of a log of these entries."""
    place = tmp_path_factory.mktemp("replayed")
    settings = LogSettings("example.org/log", (), identify=lambda entry: sha256(entry).digest())
    log = Log(DirectoryStorage(place / "log"), DirectoryStorage(place / "state"), settings)
    log.append(entries_with_bad_ones())
    log.recover()
    log.close()
    return place / "log"


@pytest.mark.parametrize("size", [SIZE, 2 * PIECE, PIECE + 1])
def test_a_log_is_replayed_by_processes(folder: Path, size: int) -> None:
    replayed = replay_log(partial(folder_reader, folder), size, KEYS, 2)
    faults = tuple(Fault(index, "signature") for index in BAD if index < size)
    assert replayed == Replayed(size, root_of(entries_with_bad_ones()[:size]), faults)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="lists the children of a process in /proc")
def test_its_processes_end_with_a_process_that_is_killed() -> None:
    code = (
        "import time; from functools import partial; from tlog.replay import replay_log\n"
        "from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey\n"
        "from tlog.cose_keys import make_signer\n"
        "key = make_signer(Ed25519PrivateKey.generate()).key\n"
        "if __name__ == '__main__':\n"
        "    replay_log(partial(time.sleep, 600), 1 << 20, [key], 2)"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        begun = _awaited(
            lambda: begun if len(begun := _sleeping(children.read_text().split())) == 2 else None
        )
        parent.kill()
        parent.wait()
    assert _awaited(lambda: all(map(_ended, begun)))


def _sleeping(children: Sequence[str]) -> list[str]:
    """Those that have come to what `open_reader` does: they have a second thread by then."""
    return [child for child in children if len(list(Path(f"/proc/{child}/task").glob("*"))) > 1]


def _ended(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _awaited(found: Callable[[], Found | None]) -> Found:
    for _ in range(1500):
        result = found()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError("nothing came of it")


def test_an_empty_log_has_the_empty_root(tmp_path: Path) -> None:
    assert replay_log(partial(folder_reader, tmp_path), 0, KEYS, 1) == Replayed(0, EMPTY_ROOT, ())


def test_a_missing_bundle_ends_it_whatever_size_is_claimed(folder: Path) -> None:
    with pytest.raises(VerificationError) as caught:
        replay_log(partial(folder_reader, folder), 1 << 62, KEYS, 1)
    assert caught.value.code == "tile_missing"
    assert caught.value.fields["path"] == bundle_path(SIZE // WIDTH)
