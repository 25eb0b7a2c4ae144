"""What a checkpoint, a statement or a receipt lets anybody claim, given whom the caller trusts.

A claim is *proved* by signatures and hashes alone; what a reader might wrongly take for proved is named as
*not proved*; a check that was made and failed is *failed*.
"""

from __future__ import annotations

OpenContent = Callable[[bytes, bytes], Mapping[str, Any]]
"""(opening file, commitment) -> what the opening proves; VerificationError if it is of another statement."""
DescribeManifest = Callable[[bytes], Mapping[str, Any]]
"""(manifest payload) -> its "proved", "said" and "not_proved", each a list of code and text."""


@dataclass(frozen=True)
class Claim:
    """One sentence about a file, with the short name that programs act on."""

    code: str
    text: str


@dataclass(frozen=True)
class Caller:
    """What the caller brings: whom to trust, the time in seconds, and how contents and manifests are read."""

    trust: Trust | None
    now: int
    opening: bytes | None = None
    open_content: OpenContent | None = None
    describe_manifest: DescribeManifest | None = None


@dataclass
class Findings:
    proved: list[Claim] = field(default_factory=list)
    not_proved: list[Claim] = field(default_factory=list)
    failed: list[Claim] = field(default_factory=list)
    holds: bool = False
    opened: bool = False

    def prove(self, code: str, text: str) -> None:
        self.proved.append(Claim(code, text))

    def leave(self, code: str, text: str) -> None:
        claim = Claim(code, text)
        if claim not in self.not_proved:
            self.not_proved.append(claim)

    def fail(self, error: Error) -> None:
        code = "witness_quorum_not_met" if error.code == "quorum_not_met" else error.code
        self.failed.append(Claim(code, error.message))




def receipt_claims(data: bytes, entry: bytes, caller: Caller, findings: Findings) -> VerifiedCheckpoint | None:
    """The verified checkpoint beside a receipt for `entry`, if there is one; the findings say what it proves."""
    parsed = receipts.parse_receipt(data)
    if parsed.kind != receipts.INCLUSION:
        raise VerificationError("receipt: expected an inclusion receipt", code="receipt_kind")
    leaf = merkle.leaf_hash(entry)
    roots = [merkle.inclusion_root(one.second, one.first, leaf, one.path) for one in parsed.proofs]
    checkpoint = None
    if parsed.checkpoint is None:
        findings.leave(
            "receipt_without_checkpoint", "The receipt carries no checkpoint that witnesses signed."
        )
    else:
        checkpoint = checkpoint_claims(parsed.checkpoint, caller, findings)
        _require_same_tree(parsed, roots, parsed.checkpoint)
        if checkpoint is not None:
            included(parsed.proofs[0].second, parsed.proofs[0].first, findings)
    key = trusted_key("receipt", parsed.kid, witnessed_at(checkpoint), parsed.issuer, caller, findings)
    if key is not None:
        verified = receipts.verify_receipt(data, entry, key)
        findings.prove(
            "receipt_signature", f"A receipt key of the trust file says so for tree size {verified.size}."
        )
        if not verified.size_signed:
            findings.leave("receipt_size", "The receipt's signature does not cover the tree size.")
        findings.holds = True
    return checkpoint


def _require_same_tree(parsed: receipts.Receipt, roots: Sequence[bytes], checkpoint: bytes) -> None:
    size, root = size_and_root(checkpoint)
    sizes = {proof.first for proof in parsed.proofs} | ({parsed.size} - {None})
    if sizes != {size} or set(roots) != {root}:
        raise VerificationError("receipt: leads to another tree than its checkpoint is of", code="checkpoint")


def included(index: int, size: int, findings: Findings) -> None:
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
    age = trust.max_checkpoint_age_seconds
    if age is None:
        return
    times = [cosignature.timestamp for cosignature in verified.cosignatures]
    if not times:
        findings.leave("checkpoint_stale", "No witness says when the checkpoint was made.")
    elif now - max(times) > age:
        findings.leave("checkpoint_stale", "The checkpoint is older than the trust file allows.")


def statement_claims(entry: bytes, caller: Caller, at: int | None, findings: Findings) -> bool:
    """Whether the statement's signature was proved; also tries the opening."""
    parsed = statements.parse_signed_statement(entry)
    key = trusted_key("issuer", parsed.kid, at, parsed.issuer, caller, findings)
    if key is not None:
        message = parsed.message
        assert message.payload is not None
        algorithm = cose.require_algorithm(key, message.headers.get(cose.ALG))
        cose.verify_signature(
            key, algorithm, cose.sig_structure(message.protected, message.payload), message.signature
        )
        findings.prove("statement_signature", "An issuer key of the trust file signed the statement.")
    findings.leave("not_truth", "What was recorded is proved, not that it is true, nor that it still stands.")
    _open(parsed.message.payload or b"", caller, findings)
    return key is not None


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
        f"The opening shows the content that the statement commits to (kind {opened['kind']}, number {opened['seq']}).",
    )


def trusted_key(
    use: str, kid: bytes, at: int | None, issuer: str, caller: Caller, findings: Findings
) -> cose.CoseKey | None:
    """The caller's key for a signature; None, with the reason left, where the caller knows none for this use.

    What no witness dates counts as signed now: a key whose time is over could have signed it since.
    """
    trust = caller.trust
    if trust is None or not any(one.use == use for one in trust.keys):
        findings.leave(f"{use}_key_unknown", f"No {use} key was given, so who signed as {use} is not proved.")
        return None
    return trust.key(use, kid, caller.now if at is None else at, issuer)


def witnessed_at(checkpoint: VerifiedCheckpoint | None) -> int | None:
    """The earliest time at which a witness of the policy saw the checkpoint."""
    if checkpoint is None:
        return None
    return min((cosignature.timestamp for cosignature in checkpoint.cosignatures), default=None)


def size_and_root(checkpoint: bytes) -> tuple[int, bytes]:
    parsed = parse_checkpoint(parse_note(checkpoint).text)
    return parsed.size, parsed.root


def _time(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"second {seconds}"
