"""The public checkpoint of a log as its own service reads it, and receipts from it.

Every process may publish, so the file is read again each time; what it says is verified once, under the log's
own policy and against the log's own tree. The receipt key signs nothing else than such a root.
"""

from __future__ import annotations

from dataclasses import dataclass

from tlog import policy as policies
from tlog.cose_keys import CoseSigner
from tlog.errors import MalformedError, UnavailableError, VerificationError
from tlog.log import Log
from tlog.receipt import Inclusion, sign_receipt
from tlog.statement import parse_signed_statement


@dataclass(frozen=True)
class PublishedHead:
    """A checkpoint that is public, and holds: its size, root, bytes and cosignature times by witness name."""

    size: int
    root: bytes
    note: bytes
    cosigned_at: tuple[tuple[str, int], ...]


NOTHING_PUBLISHED = PublishedHead(0, b"", b"", ())


class Published:
    """The public checkpoint of one log and the receipts under it. Threads may share one."""

    def __init__(self, log: Log, receipt_signer: CoseSigner) -> None:
        self._log = log
        self._signer = receipt_signer
        self._policy = log.settings.policy or policies.make_policy(
            [policies.LogEntry(signer.verifier_key) for signer in log.settings.note_signers], [], [], None
        )
        self._known = NOTHING_PUBLISHED

    def head(self) -> PublishedHead:
        """What is public now, NOTHING_PUBLISHED before the first publication.

        Raises UnavailableError if the checkpoint is not of this log's tree, or its policy does not accept it.
        """
        data = self._log.checkpoint()
        known = self._known
        if data is None:
            return NOTHING_PUBLISHED
        if data != known.note:
            known = self._verified(data)
            self._known = known
        return known

    def receipt(self, index: int, head: PublishedHead) -> bytes:
        """A receipt for the entry at `index`, which the head must cover (RFC 9942)."""
        path = self._log.prove_inclusion(index, head.size)
        subject = parse_signed_statement(self._log.read_entry(index)).subject
        inclusion = Inclusion(index, head.size, head.root, path)
        return sign_receipt(self._signer, self._log.settings.origin, subject, inclusion, head.note)

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
        return PublishedHead(checkpoint.size, checkpoint.root, data, cosigned_at)
