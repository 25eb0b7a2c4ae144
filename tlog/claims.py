"""What a checkpoint, a statement or a receipt lets anybody claim, given whom the caller trusts.

A claim is *proved* by signatures and hashes alone; what a reader might wrongly take for proved is named as
*not proved*; a check that was made and failed is *failed*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tlog import cose, merkle
from tlog import policy as policies
from tlog import receipt as receipts
from tlog import statement as statements
from tlog.ascii import encode_base64
from tlog.certificates import Logged
from tlog.checkpoint import parse_checkpoint
from tlog.cosignature import MAX_CLOCK_SKEW_SECONDS
from tlog.errors import Error, VerificationError
from tlog.note import parse_note
from tlog.policy import VerifiedCheckpoint
from tlog.trust import Trust

OpenContent = Callable[[bytes, bytes], Mapping[str, Any]]
"""(opening file, commitment) -> what the opening proves; VerificationError if it is of another statement."""
DescribeManifest = Callable[[bytes], Mapping[str, Any]]
"""(manifest file) -> its "proved", "said" and "not_proved", each a list of code and text.

Also "logged", what has to be in the log with its commitment, and "heads", the checkpoints that it names.
"""


@dataclass(frozen=True)
class Claim:
    """One sentence about a file, with the short name that programs act on."""

    code: str
    text: str


@dataclass(frozen=True)
class LogCopy:
    """The public files of a log at one checkpoint: the note, and a reader of the others by their paths."""

    checkpoint: bytes
    read: Callable[[str], bytes | None]


@dataclass(frozen=True)
class Caller:
    """What the caller brings: whom to trust, the time in seconds, how contents and manifests are read, and a log."""

    trust: Trust | None
    now: int
    opening: bytes | None = None
    open_content: OpenContent | None = None
    describe_manifest: DescribeManifest | None = None
    log: LogCopy | None = None


@dataclass(frozen=True)
class Seen:
    """When a witness of the policy saw something signed, and the tree of a verified checkpoint it was found in.

    Both None: nobody but the signer says when it was signed.
    """

    at: int | None = None
    logged: Logged | None = None


UNDATED = Seen()


@dataclass
class Findings:
    """What was found about one file so far; `holds` once what such a file is for is proved."""

    proved: list[Claim] = field(default_factory=list)
    not_proved: list[Claim] = field(default_factory=list)
    failed: list[Claim] = field(default_factory=list)
    holds: bool = False
    opened: bool = False

    def prove(self, code: str, text: str) -> None:
        """Adds, once, a claim that signatures and hashes prove."""
        claim = Claim(code, text)
        if claim not in self.proved:
            self.proved.append(claim)

    def leave(self, code: str, text: str) -> None:
        """Adds, once, what is not proved."""
        claim = Claim(code, text)
        if claim not in self.not_proved:
            self.not_proved.append(claim)

    def fail(self, error: Error) -> None:
        """Adds a check that failed."""
        code = "witness_quorum_not_met" if error.code == "quorum_not_met" else error.code
        self.failed.append(Claim(code, error.message))


def receipt_claims(data: bytes, entry: bytes, caller: Caller, findings: Findings) -> Seen:
    """When and where the entry of a receipt was seen; the findings say what the receipt proves."""
    parsed = receipts.parse_receipt(data)
    if parsed.kind != receipts.INCLUSION:
        raise VerificationError("receipt: expected an inclusion receipt", code="receipt_kind")
    leaf = merkle.leaf_hash(entry)
    roots = [merkle.inclusion_root(one.second, one.first, leaf, one.path) for one in parsed.proofs]
    checkpoint, index = None, parsed.proofs[0].second
    if parsed.checkpoint is None:
        findings.leave(
            "receipt_without_checkpoint", "The receipt carries no checkpoint that witnesses signed."
        )
    else:
        checkpoint = checkpoint_claims(parsed.checkpoint, caller, findings)
        _require_same_tree(parsed, roots, parsed.checkpoint)
        if checkpoint is not None:
            included(index, parsed.proofs[0].first, findings)
    # What a receipt key signs is a tree, so it is the size of the tree that says whether its time was over.
    tree = UNDATED if checkpoint is None else seen(checkpoint, checkpoint.checkpoint.size, caller)
    key = trusted_key("receipt", parsed.kid, tree, parsed.issuer, caller, findings)
    if key is not None:
        _receipt_signature(receipts.verify_receipt(data, entry, key), caller, findings)
    return UNDATED if checkpoint is None else seen(checkpoint, index + 1, caller)


def _receipt_signature(verified: receipts.VerifiedReceipt, caller: Caller, findings: Findings) -> None:
    findings.prove(
        "receipt_signature",
        f"A receipt key of the trust file signed that the entry is in the log's tree of {verified.size}.",
    )
    if not verified.size_signed:
        findings.leave("receipt_size", "The receipt's signature does not cover the tree size.")
    assert caller.trust is not None
    if verified.checkpoint is None and caller.trust.policy.quorum is not None:
        # Or else whoever takes the checkpoint out of a receipt would be rid of the witnesses.
        findings.leave("witness_quorum_not_met", "The policy asks for witnesses, and the receipt shows none.")
    else:
        findings.holds = True


def _require_same_tree(parsed: receipts.Receipt, roots: Sequence[bytes], checkpoint: bytes) -> None:
    size, root = size_and_root(checkpoint)
    sizes = {proof.first for proof in parsed.proofs} | ({parsed.size} - {None})
    if sizes != {size} or set(roots) != {root}:
        raise VerificationError("receipt: leads to another tree than its checkpoint is of", code="checkpoint")


def included(index: int, size: int, findings: Findings) -> None:
    """Adds that an entry was proved to be in the tree of a checkpoint that was proved."""
    findings.prove(
        "inclusion", f"The entry is in the log, at index {index} of the {size} that the checkpoint covers."
    )
    findings.holds = True


def checkpoint_claims(data: bytes, caller: Caller, findings: Findings) -> VerifiedCheckpoint | None:
    """The checkpoint once it satisfies the caller's policy; None without one."""
    trust = caller.trust
    if trust is None:
        findings.leave(
            "no_trust", "No policy, trust file or log key was given, so nobody's signature counts."
        )
        return None
    verified = policies.verify_checkpoint(trust.policy, data)
    checkpoint = verified.checkpoint
    trust.check_frozen(checkpoint)
    findings.prove(
        "log_signature",
        f"The log {checkpoint.origin} signed a tree of {checkpoint.size} entries"
        f" with the root {encode_base64(checkpoint.root)}.",
    )
    times = [cosignature.timestamp for cosignature in verified.cosignatures]
    names = ", ".join(verified.witnesses)
    if trust.policy.quorum is None:
        findings.leave(
            "logged_unwitnessed", "The policy asks for no witness, so the log may show others another tree."
        )
        if times:
            findings.prove("cosigned", f"It was cosigned by {names}, last at {_time(max(times))}.")
    else:
        findings.prove(
            "witnessed", f"The policy's quorum cosigned it ({names}), last at {_time(max(times))}."
        )
    _limits(trust, verified, caller.now, findings)
    return verified


def _limits(trust: Trust, verified: VerifiedCheckpoint, now: int, findings: Findings) -> None:
    others = set(verified.witnesses) - set(trust.same_operator)
    if trust.policy.quorum is not None and not policies.satisfied_by(trust.policy, others):
        findings.leave(
            "witness_same_operator", "Without witnesses of the log's own operator there is no quorum."
        )
    times = [cosignature.timestamp for cosignature in verified.cosignatures]
    if any(at > now + MAX_CLOCK_SKEW_SECONDS for at in times):
        # It would make an old head look fresh for as long as it is ahead.
        findings.fail(VerificationError("A cosignature is dated in the future.", code="time_implausible"))
    age = trust.max_checkpoint_age_seconds
    if age is None:
        return
    if not times:
        findings.leave("checkpoint_stale", "No witness says when the checkpoint was made.")
    elif now - max(times) > age:
        findings.leave("checkpoint_stale", "The checkpoint is older than the trust file allows.")


def statement_claims(entry: bytes, caller: Caller, when: Seen, findings: Findings) -> bool:
    """Whether the statement's signature was proved; also tries the opening."""
    message = statements.parse_signed_statement(entry).message
    signed = signature_claim("issuer", message, when, caller, findings)
    findings.leave("not_truth", "What was recorded is proved, not that it is true, nor that it still stands.")
    _open(message.payload or b"", caller, findings)
    return signed


def signature_claim(use: str, message: cose.Sign1, when: Seen, caller: Caller, findings: Findings) -> bool:
    """Whether a key of the caller's for this use signed the message, which carries its payload."""
    issuer, _, kid = statements.issuer_headers(message.headers)
    key = trusted_key(use, kid, when, issuer, caller, findings)
    if key is None:
        return False
    assert message.payload is not None
    # The direct path: loading a COSE library would cost more than all the rest.
    algorithm = cose.require_algorithm(key, message.headers.get(cose.ALG))
    signed = cose.sig_structure(message.protected, message.payload)
    cose.verify_signature(key, algorithm, signed, message.signature)
    findings.prove(f"{use}_signature", f"Signed by a key that the trust file has for the use {use}.")
    return True


def _open(commitment: bytes, caller: Caller, findings: Findings) -> None:
    not_opened = "Its content is not shown: the log holds a commitment to it."
    if caller.opening is None or caller.open_content is None:
        findings.leave("content_not_opened", not_opened)
        return
    try:
        opened = caller.open_content(caller.opening, commitment)
    except VerificationError:
        findings.leave("content_not_opened", not_opened)
        return
    findings.opened = True
    findings.prove(
        "content_opened",
        "The opening shows the content that the statement commits to"
        f" (kind {opened['kind']}, number {opened['seq']}).",
    )


def trusted_key(
    use: str, kid: bytes, when: Seen, issuer: str, caller: Caller, findings: Findings
) -> cose.CoseKey | None:
    """The caller's key for a signature; None, with the reason left, where the caller knows none for this use.

    What no witness dates counts as signed now: a key whose time is over could have signed it since. What stands
    in a tree that the log had before the key was ended counts all the same.
    """
    trust = caller.trust
    if trust is None or not trust.has(use):
        findings.leave(f"{use}_key_unknown", f"No {use} key was given, so who signed as {use} is not proved.")
        return None
    return trust.key(use, kid, caller.now if when.at is None else when.at, issuer, when.logged)


def seen(checkpoint: VerifiedCheckpoint, size: int, caller: Caller) -> Seen:
    """When the witnesses of the caller's policy saw what a verified checkpoint shows in its first `size` entries."""
    assert caller.trust is not None
    at = policies.seen_at(caller.trust.policy, checkpoint)
    return Seen(at, Logged(checkpoint.checkpoint.origin, size))


def size_and_root(checkpoint: bytes) -> tuple[int, bytes]:
    """What a checkpoint says, nothing of it verified."""
    parsed = parse_checkpoint(parse_note(checkpoint).text)
    return parsed.size, parsed.root


def _time(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"second {seconds}"
