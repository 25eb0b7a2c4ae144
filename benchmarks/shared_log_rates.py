"""What a shared log costs: entries a second of one publisher, requests to the bucket, statements to the database.

    python benchmarks/shared_log_rates.py [--entries 100000] [--batch 1024] [--publish-every 10000]

Starts a PostgreSQL and a SeaweedFS server of its own on loopback. CPU is that of this process alone; requests and
bytes are counted where they are made, so they do not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "servers")]

import postgres_cluster  # noqa: E402
import seaweed  # noqa: E402
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: E402

from memory.pg_link import Link  # noqa: E402
from memory.pg_log import PgLogStorage  # noqa: E402
from memory.shared_public import SharedPublic  # noqa: E402
from tlog.bucket import Bucket, Object  # noqa: E402
from tlog.log import Log, LogSettings  # noqa: E402
from tlog.note import SignatureLine, SignatureType, make_verifier_key  # noqa: E402
from tlog.object_storage import ObjectStorage  # noqa: E402

ORIGIN = "example.org/rates"
ENTRY_BYTES = 302  # what an entry of a memory has


class Counting:
    """A bucket whose requests are counted, with the bytes that went up."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.requests: Counter[str] = Counter()
        self.sent = 0

    def get(self, name: str) -> Object | None:
        self.requests["GET"] += 1
        return self.bucket.get(name)

    def put(self, name: str, data: bytes) -> None:
        self.requests["PUT"] += 1
        self.bucket.put(name, data)

    def put_new(self, name: str, data: bytes) -> bool:
        self.requests["PUT"] += 1
        self.sent += len(data)
        return self.bucket.put_new(name, data)

    def put_over(self, name: str, etag: str, data: bytes) -> bool:
        self.requests["PUT"] += 1
        return self.bucket.put_over(name, etag, data)

    def delete(self, names: Iterable[str]) -> None:
        together = list(names)
        self.requests["DELETE"] += bool(together)
        self.bucket.delete(together)

    def names(self, folder: str) -> tuple[str, ...]:
        self.requests["LIST"] += 1
        return self.bucket.names(folder)


class Signer:
    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        public = self._key.public_key().public_bytes_raw()
        self.verifier_key = make_verifier_key(ORIGIN, SignatureType.ED25519, public)

    def sign(self, text: str) -> SignatureLine:
        return SignatureLine(self.verifier_key.name, self.verifier_key.key_id, self._key.sign(text.encode()))


def measure(dsn: str, bucket: Counting, args: argparse.Namespace) -> None:
    private = PgLogStorage(Link(dsn), ORIGIN)
    private.prepare()
    statements = 0
    run = private._link.run

    def counted(work):  # type: ignore[no-untyped-def]
        nonlocal statements
        statements += 1
        return run(work)

    private._link.run = counted  # type: ignore[method-assign]
    settings = LogSettings(ORIGIN, (Signer(),), identify=lambda entry: sha256(entry).digest())
    log = Log(SharedPublic(ObjectStorage(bucket), private), private, settings)
    log.recover()
    appending = publishing = 0.0
    processor = time.process_time()
    publications = 0
    for first in range(0, args.entries, args.publish_every):
        last = min(first + args.publish_every, args.entries)
        began = time.perf_counter()
        for at in range(first, last, args.batch):
            numbers = range(at, min(at + args.batch, last))
            log.append([b"%d " % number + os.urandom(ENTRY_BYTES - 10) for number in numbers])
        appending += time.perf_counter() - began
        began = time.perf_counter()
        log.publish(60)
        publishing += time.perf_counter() - began
        publications += 1
    processor = time.process_time() - processor
    print(
        f"{args.entries} entries of about {ENTRY_BYTES} bytes, {publications} publications, batches of {args.batch}"
    )
    print(f"append   {args.entries / appending:10.0f} a second (wall)")
    print(f"publish  {publishing / publications:10.3f} s each (wall)")
    print(f"all      {args.entries / (appending + publishing):10.0f} a second (wall)")
    print(f"CPU      {processor / args.entries * 1e6:10.1f} µs an entry, of this process")
    print(f"bucket   {dict(bucket.requests)}, {bucket.sent / args.entries:.1f} bytes sent an entry")
    print(f"database {statements / publications:10.1f} statements a publication")
    with_sizes = (
        "SELECT sum(pg_total_relation_size('muniment_log.' || name)) FROM unnest(%s::text[]) AS names (name)"
    )
    ((size,),) = run(lambda connection: connection.execute(with_sizes, (["log_identities"],)).fetchall())
    print(f"         {int(size) / args.entries:10.1f} bytes an entry in log_identities")
    print(f"load     {os.getloadavg()[0]:.1f}")
    log.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--publish-every", type=int, default=10_000)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres_cluster.running("fsync=on", "full_page_writes=on") as database,
        seaweed.running(Path(folder)) as server,
    ):
        bucket = seaweed.store_of(server, seaweed.BUCKET, "rates")
        measure(database.new_database(), Counting(bucket), args)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
