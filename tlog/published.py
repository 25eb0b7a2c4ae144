"""The public checkpoint of a log as its own service reads it, and receipts from it.

Every process may publish, so the file is read again each time; what it says is verified once, under the log's
own policy and against the log's own tree. The receipt key signs nothing else than such a root.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tlog import policy as policies
from tlog.cose_keys import CoseSigner
from tlog.errors import MalformedError, UnavailableError, VerificationError
from tlog.log import Log
from tlog.merkle import HashReader, leaf_hash, prove_inclusion, verify_inclusion
from tlog.receipt import Inclusion, sign_receipt
from tlog.statement import parse_signed_statement
from tlog.tile import hash_reader
from tlog.tile_reader import fetch_tile

# How long a head is taken for the newest. An older one is as good a head, so this costs nobody anything.
REREAD_SECONDS: Final = 0.05


def _no_hashes(_: object) -> tuple[bytes, ...]:
    return ()


@dataclass(frozen=True)
class PublishedHead:
    """A checkpoint that is public, and holds: its size, root, bytes and cosignature times by witness name."""

    size: int
    root: bytes
    note: bytes
    cosigned_at: tuple[tuple[str, int], ...] = ()
    read_hashes: HashReader = field(default=_no_hashes, repr=False, compare=False)


NOTHING_PUBLISHED: Final = PublishedHead(0, b"", b"")


class Published:
    """The public checkpoint of one log and the receipts under it. Threads may share one."""

    def __init__(
        self, log: Log, receipt_signer: Callable[[], CoseSigner], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._receipt_signer = receipt_signer
        self._clock = clock
        self._policy = log.settings.policy or policies.make_policy(
            [policies.LogEntry(signer.verifier_key) for signer in log.settings.note_signers], [], [], None
        )
        self._known = (NOTHING_PUBLISHED, float("-inf"))

    def head(self) -> PublishedHead:
        """What is public now, NOTHING_PUBLISHED before the first publication.

        Raises UnavailableError if the checkpoint is not of this log's tree, or its policy does not accept it.
        """
        known, read_at = self._known
        now = self._clock()
        if now - read_at < REREAD_SECONDS:
            return known
        data = self._log.checkpoint()
        if data is None:
            known = NOTHING_PUBLISHED
        elif data != known.note:
            known = self._verified(data)
        self._known = (known, now)
        return known

    def newest_head(self) -> PublishedHead:
        """What is public at this moment, for whoever has just published."""
        self._known = (self._known[0], float("-inf"))
        return self.head()

    def receipt(self, index: int, entry: bytes, head: PublishedHead) -> bytes:
        """A receipt for the entry at `index`, which the head must cover (RFC 9942)."""
        path = prove_inclusion(index, head.size, head.read_hashes)
        # A damaged tile must not become a receipt that nobody can verify.
        verify_inclusion(index, head.size, leaf_hash(entry), path, head.root)
        inclusion = Inclusion(index, head.size, head.root, path)
        subject = parse_signed_statement(entry).subject
        return sign_receipt(self._receipt_signer(), self._log.settings.origin, subject, inclusion, head.note)

    def _verified(self, data: bytes) -> PublishedHead:
        try:
            verified = policies.verify_checkpoint(self._policy, data, self._log.settings.origin)
            checkpoint = verified.checkpoint
            if self._log.root_at(checkpoint.size) != checkpoint.root:
                raise VerificationError("log: the public checkpoint is not of this log's tree")
        except (VerificationError, MalformedError) as error:
            # Not the client's fault, and another process may put it right: a policy changed since the start.
            raise UnavailableError(
                f"the public checkpoint is not accepted: {error.message}", code="checkpoint"
            ) from None
        times = {witness.key: witness.name for witness in self._policy.witnesses}
        cosigned_at = tuple((times[one.key], one.timestamp) for one in verified.cosignatures)
        # All tiles of a public size stand; this reader keeps the last of them.
        reader = hash_reader(checkpoint.size, lambda tile: fetch_tile(self._log.public.read, tile))
        return PublishedHead(checkpoint.size, checkpoint.root, data, cosigned_at, reader)
