"""Hammers one log: processes that write, read at random and follow, while it grows; everything they see is verified.

    python benchmarks/log_hammer.py [--seconds S] [--writers N] [--readers N] [--folder DIR]

Writers append batches of signed statements through log objects of their own, some of them statements that others
append too, and two publish. A reader takes one checkpoint and proves random entries against it for a while, whatever
the log has become. The follower takes every checkpoint, has it prove that it extends the one before, and hashes all
entries between. At the end every acknowledged index is compared with the log, and the log with itself (fsck).
Prints counts, then `hammer: N passed, M failed`; exit 1 if anything failed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: E402

from tlog import merkle  # noqa: E402
from tlog.client import LogClient  # noqa: E402
from tlog.cose_keys import make_signer  # noqa: E402
from tlog.errors import Error, UnavailableError  # noqa: E402
from tlog.fsck import fsck  # noqa: E402
from tlog.keys import Ed25519NoteSigner  # noqa: E402
from tlog.log import Log, open_log  # noqa: E402
from tlog.note import SignatureType, make_verifier_key  # noqa: E402
from tlog.policy import LogEntry, make_policy  # noqa: E402
from tlog.statement import parse_statement, sign_statement, verify_statement  # noqa: E402
from tlog.storage import DirectoryStorage  # noqa: E402

ORIGIN = "hammer.invalid/log"
KEY = Ed25519PrivateKey.from_private_bytes(b"\1" * 32)
SIGNER = make_signer(KEY)
NOTE_SIGNER = Ed25519NoteSigner(
    make_verifier_key(ORIGIN, SignatureType.ED25519, KEY.public_key().public_bytes_raw()), KEY.sign
)
POLICY = make_policy([LogEntry(NOTE_SIGNER.verifier_key)], [], [], None)
READS = 64  # against one checkpoint
SHARED = 500  # statements that every writer appends sooner or later
MOST_BATCH = 600


@dataclass
class Seen:
    """What a process did, by name, what went wrong, and the index that each of its commitments was given."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    acknowledged: dict[bytes, int] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Counts a step; one that raises an error of ours, or an assertion, is a failure."""
        try:
            yield
        except (Error, AssertionError) as error:
            self.failures.append(f"{name}: {type(error).__name__}: {error}")
        else:
            self.counts[name] += 1


def open_at(folder: Path) -> Log:
    return open_log(
        DirectoryStorage(folder / "log", 0o644), DirectoryStorage(folder / "log-state"), ORIGIN, [NOTE_SIGNER]
    )


def statement(number: int) -> tuple[bytes, bytes]:
    """A commitment and the entry that states it."""
    commitment = sha256(b"%d" % number).digest()
    return commitment, sign_statement(SIGNER, "hammer", "hammered", commitment)


def write(folder: Path, stop: Event, number: int) -> Seen:
    """Appends until it is stopped, and publishes if it is one of the first two."""
    seen, chance, log = Seen(), random.Random(number), open_at(folder)
    following = (number + 1) << 32
    publish_at = time.monotonic()
    while not stop.is_set():
        count = chance.choice((1, 2, 17, 255, 256, 257, MOST_BATCH))
        numbers = [*range(following, following + count), *chance.sample(range(SHARED), 2)]
        following += count
        chance.shuffle(numbers)
        commitments, entries = zip(*map(statement, numbers), strict=True)
        with seen.step("batches appended"):
            indexes = log.append(entries)
            for commitment, index in zip(commitments, indexes, strict=True):
                assert seen.acknowledged.setdefault(commitment, index) == index, "an index changed"
        if number < 2 and time.monotonic() >= publish_at:
            with seen.step("checkpoints published"):
                log.publish(30)
            publish_at = time.monotonic() + chance.uniform(0.02, 0.3)
    log.close()
    return seen


def read(folder: Path, stop: Event, number: int) -> Seen:
    """Proves random entries, many against one checkpoint each time."""
    seen, chance, client = Seen(), random.Random(number), LogClient.from_folder(folder / "log", POLICY)
    while not stop.is_set():
        try:
            checkpoint = client.checkpoint().checkpoint
        except UnavailableError:
            time.sleep(0.01)  # nothing is published yet
            continue
        except Error as error:
            seen.failures.append(f"checkpoints read: {error}")
            continue
        seen.counts["checkpoints read"] += 1
        for _ in range(READS):
            index = chance.randrange(checkpoint.size)
            with seen.step("inclusion proofs"):
                entry = client.entry(index)
                verify_statement(entry, SIGNER.key)
                proof = client.prove_inclusion(index)
                leaf = merkle.leaf_hash(entry)
                merkle.verify_inclusion(index, checkpoint.size, leaf, proof, checkpoint.root)
    return seen


def follow(folder: Path, stop: Event, number: int) -> Seen:
    """Takes each checkpoint as it comes: it has to extend the one before, and its entries to lead to it."""
    seen, client = Seen(), LogClient.from_folder(folder / "log", POLICY)
    frontier = merkle.Frontier()
    while not stop.is_set() or not frontier.size:
        try:
            checkpoint = client.checkpoint().checkpoint
        except UnavailableError:
            time.sleep(0.01)
            continue
        except Error as error:
            seen.failures.append(f"checkpoints followed: {error}")
            break
        if checkpoint.size == frontier.size:
            time.sleep(0.005)
            continue
        if frontier.size:
            with seen.step("consistency proofs"):
                proof = client.prove_consistency(frontier.size)
                sizes, roots = (frontier.size, checkpoint.size), (frontier.root(), checkpoint.root)
                merkle.verify_consistency(*sizes, *roots, proof)
        with seen.step("checkpoints followed"):
            frontier = frontier.extend(map(merkle.leaf_hash, client.entries(frontier.size, checkpoint.size)))
            assert frontier.root() == checkpoint.root, "the entries do not lead to the checkpoint"
    seen.counts["entries followed"] = frontier.size
    return seen


def run(work: Callable[[Path, Event, int], Seen], folder: Path, stop: Event, number: int, told: Any) -> None:
    """One process, from its beginning to what it has to tell."""
    try:
        told.put(work(folder, stop, number))
    except BaseException as error:
        told.put(Seen(failures=[f"{work.__name__} {number} ended: {type(error).__name__}: {error}"]))
        raise


def judge(folder: Path, seen: list[Seen]) -> Seen:
    """What of all that was acknowledged is true of the log at the end."""
    judged, log = Seen(), open_at(folder)
    with judged.step("last publication"):
        log.publish(60)
    with judged.step("fsck"):
        fsck(log.public, log.private)
    stands = [parse_statement(entry).payload_hash for entry in log.read_entries(0, log.head().size)]
    with judged.step("no entry twice"):
        assert len(set(stands)) == len(stands), "a statement stands in the log twice"
    for one in seen:
        for commitment, index in one.acknowledged.items():
            with judged.step("acknowledged entries"):
                assert stands[index] == commitment, f"entry {index} is not the one that was acknowledged"
    judged.counts["entries"] = len(stands)
    log.close()
    return judged


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the log is made")
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    stop, told = context.Event(), context.Queue()
    with tempfile.TemporaryDirectory(prefix="log-hammer-", dir=args.folder) as name:
        folder = Path(name)
        (folder / "log").mkdir()  # for readers that begin before the first writer does
        work = [(write, number) for number in range(args.writers)]
        work += [(read, number) for number in range(args.readers)] + [(follow, 0)]
        processes = [context.Process(target=run, args=(do, folder, stop, n, told)) for do, n in work]
        for process in processes:
            process.start()
        time.sleep(args.seconds)
        stop.set()
        seen = [told.get(timeout=120) for _ in processes]
        for process in processes:
            process.join(60)
        seen.append(judge(folder, seen))
    return show(seen)


def show(seen: list[Seen]) -> int:
    """The counts of all processes together, the failures, and the last line."""
    counts: Counter[str] = sum((one.counts for one in seen), Counter())
    facts = {name: counts.pop(name, 0) for name in ("entries", "entries followed")}
    failures = [failure for one in seen for failure in one.failures]
    for what, count in [*facts.items(), *counts.items()]:
        print(f"{what:<24}{count:>10,}")
    for failure in failures[:20]:
        print(f"FAILED {failure}")
    print(f"hammer: {sum(counts.values())} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
