"""One log under measurement, in a process of its own: commands as JSON lines in, answers as JSON lines out.

    python benchmarks/log_drivers.py muniment|pymerkle|aics-tlog|inspeximus FOLDER

Runs under whatever Python has the implementation, and needs nothing else but cryptography. Each signs its entries
itself, with one key, and the entries are the same bytes for all: the first line says what is in front of the
commitment in an entry and in what is signed. Commands after it:

    {"do": "append", "batch": 1024, "count": 10240}   how long that took
    {"do": "prove", "count": 1000}                    how long each proof took to make, and to verify
    {"do": "memory"}                                  the most that was ever resident
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ORIGIN = "bench.invalid/log"
TOO_SMALL = {"proved": [], "verified": []}


class Driver(Protocol):
    """An implementation: entries are numbered from 0, and a proof is for the tree as it is."""

    def size(self) -> int:
        """How many entries there are."""

    def append(self, first: int, count: int) -> None:
        """Returns once so many new signed entries are durable; `first` is the number of the first."""

    def ready(self) -> None:
        """Returns once entries can be read and proved."""

    def entry(self, index: int) -> bytes:
        """An entry."""

    def prove(self, index: int) -> Any:
        """Its inclusion proof."""

    def verify(self, index: int, entry: bytes, proof: Any) -> None:
        """Returns if the proof holds."""


class Statements:
    """Signed entries as Muniment lays them out, each with a commitment of its own."""

    def __init__(self, said: dict[str, str]) -> None:
        self.private_key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(said["key"]))
        self.issuer, self.subject = said["issuer"], said["subject"]
        self._entry_prefix = bytes.fromhex(said["entry_prefix"])
        self._signed_prefix = bytes.fromhex(said["signed_prefix"])

    def make(self, number: int) -> bytes:
        """The entry of this number."""
        commitment = commitment_of(number)
        signature = self.private_key.sign(self._signed_prefix + commitment)
        return self._entry_prefix + commitment + b"\x58\x40" + signature


def commitment_of(number: int) -> bytes:
    return sha256(b"%d" % number).digest()


class Muniment:
    """Ours, all of it: statements, identity index, committed head, tiles."""

    def __init__(self, folder: Path, statements: Statements) -> None:
        sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
        from tlog import merkle
        from tlog.cose_keys import make_signer
        from tlog.keys import Ed25519NoteSigner
        from tlog.log import open_log
        from tlog.note import SignatureType, make_verifier_key
        from tlog.statement import sign_statement
        from tlog.storage import DirectoryStorage

        key = statements.private_key
        public_key = key.public_key().public_bytes_raw()
        verifier_key = make_verifier_key(ORIGIN, SignatureType.ED25519, public_key)
        storages = DirectoryStorage(folder / "log", 0o644), DirectoryStorage(folder / "log-state")
        self._log = open_log(*storages, ORIGIN, [Ed25519NoteSigner(verifier_key, key.sign)])
        self._signer, self._sign, self._merkle = make_signer(key), sign_statement, merkle
        self._statements = statements

    def size(self) -> int:
        return self._log.head().size

    def append(self, first: int, count: int) -> None:
        signer, issuer, subject = self._signer, self._statements.issuer, self._statements.subject
        numbers = range(first, first + count)
        self._log.append([self._sign(signer, issuer, subject, commitment_of(number)) for number in numbers])

    def ready(self) -> None:
        self._log.publish(60)
        self._head = self._log.head()

    def entry(self, index: int) -> bytes:
        return self._log.read_entry(index)

    def prove(self, index: int) -> Any:
        return self._log.prove_inclusion(index, self._head.size)

    def verify(self, index: int, entry: bytes, proof: Any) -> None:
        leaf = self._merkle.leaf_hash(entry)
        self._merkle.verify_inclusion(index, self._head.size, leaf, proof, self._head.root)


class Pymerkle:
    """pymerkle's tree in an SQLite file, as it opens it: rollback journal, full synchronisation."""

    def __init__(self, folder: Path, statements: Statements) -> None:
        from pymerkle import SqliteTree, verify_inclusion

        self._tree, self._verify = SqliteTree(str(folder / "tree.db")), verify_inclusion
        self._make = statements.make

    def size(self) -> int:
        return int(self._tree.get_size())

    def append(self, first: int, count: int) -> None:
        self._tree.append_entries([self._make(number) for number in range(first, first + count)])

    def ready(self) -> None:
        self._root = self._tree.get_root()

    def entry(self, index: int) -> bytes:
        return bytes(self._tree.get_entry(index + 1))

    def prove(self, index: int) -> Any:
        return self._tree.prove_inclusion(index + 1)

    def verify(self, index: int, entry: bytes, proof: Any) -> None:
        self._verify(self._tree.hash_buff(entry), self._root, proof)


class AicsTlog:
    """aics-tlog's incremental writer of tiles, flushing: hashes and files, no head, nothing found again."""

    def __init__(self, folder: Path, statements: Statements) -> None:
        from aics_tlog import tiles, tree, writer

        self._store = writer.DirectoryTileStore(folder)
        self._writer, self._tiles, self._tree = writer.IncrementalTileWriter(self._store), tiles, tree
        self._make = statements.make

    def size(self) -> int:
        return int(self._writer.size)

    def append(self, first: int, count: int) -> None:
        self._writer.append([self._make(number) for number in range(first, first + count)])

    def ready(self) -> None:
        self._root = self._writer.root()

    def entry(self, index: int) -> bytes:
        return bytes(self._tiles.read_entry(self._store, index, self.size()))

    def prove(self, index: int) -> Any:
        return self._tiles.inclusion_proof_from_tiles(self._store, index, self.size())

    def verify(self, index: int, entry: bytes, proof: Any) -> None:
        if not self._tree.verify_leaf_inclusion(entry, index, self.size(), proof, self._root):
            raise SystemExit("aics-tlog: a proof does not hold")


class Inspeximus:
    """inspeximus' register: one statement at a time, verified, its digest a line of a file, a receipt returned."""

    def __init__(self, folder: Path, statements: Statements) -> None:
        from inspeximus.transparency import RegistrationPolicy, TransparencyService

        key, self._make = statements.private_key, statements.make
        public = key.public_key().public_bytes_raw().hex()
        self._service = TransparencyService(
            str(folder / "register.jsonl"),
            RegistrationPolicy("bench"),
            key.sign,
            lambda message, signature: False,
            issuer_keys={statements.issuer: public},
        )

    def size(self) -> int:
        return int(self._service.size())

    def append(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            self._service.register(self._make(number))

    def ready(self) -> None:
        raise NotImplementedError  # it makes a proof by hashing the whole register again

    entry = prove = verify = ready  # type: ignore[assignment]


DRIVERS = {
    "muniment": Muniment,
    "pymerkle": Pymerkle,
    "aics-tlog": AicsTlog,
    "inspeximus": Inspeximus,
}


def append(driver: Driver, batch: int, count: int) -> dict[str, Any]:
    """How long so many entries took, in batches."""
    size = driver.size()
    began, cpu = time.perf_counter(), time.process_time()
    for first in range(size, size + count, batch):
        driver.append(first, min(batch, size + count - first))
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "count": count, "size": driver.size()}


def prove(driver: Driver, count: int) -> dict[str, Any]:
    """How long each of so many proofs took, of entries anywhere in the log."""
    driver.ready()
    chance = random.Random(7)
    size = driver.size()
    proved, verified = [], []
    for _ in range(count):
        index = chance.randrange(size)
        entry = driver.entry(index)
        began = time.perf_counter()
        proof = driver.prove(index)
        between = time.perf_counter()
        driver.verify(index, entry, proof)
        proved.append(between - began)
        verified.append(time.perf_counter() - between)
    return {"proved": proved, "verified": verified, "size": size}


def peak_bytes() -> int:
    """The most memory that this process ever had resident."""
    try:
        # Not ru_maxrss, which begins with what the parent had resident when it made this process.
        lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def main() -> int:
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    driver: Driver = DRIVERS[sys.argv[1]](folder, Statements(json.loads(sys.stdin.readline())))
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "append":
            answer = append(driver, command["batch"], command["count"])
        elif command["do"] == "prove":
            answer = prove(driver, command["count"])
        else:
            answer = {"peak_bytes": peak_bytes()}
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
