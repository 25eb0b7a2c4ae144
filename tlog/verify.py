"""What `muniment verify` says of files that somebody handed over: what they prove, what they do not, what fails.

All trust is the caller's: a policy, or a trust file with keys. Nothing is looked up, nothing is fetched. Each
file is judged for itself, save that a receipt or proof finds the statement it is for among the other files, and
that the keys of a key list, which a root of the caller's trust certified, count for all of them.
A file with a check that failed does not hold, nor does one of which nothing that matters was proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from tlog import cbor, certificates, cose, merkle
from tlog import receipt as receipts
from tlog import statement as statements
from tlog.checkpoint import parse_checkpoint
from tlog.claims import (
    UNDATED,
    Caller,
    Claim,
    Findings,
    Seen,
    checkpoint_claims,
    included,
    receipt_claims,
    seen,
    signature_claim,
    size_and_root,
    statement_claims,
)
from tlog.errors import Error, MalformedError, VerificationError
from tlog.note import MAX_NOTE_BYTES, parse_note
from tlog.proof import HEADER, TlogProof, parse_proof

MANIFEST_TYP: Final = "application/vnd.muniment.manifest+cose"
MAX_FILE_BYTES: Final = 72 << 20  # the largest erasure's manifest


@dataclass(frozen=True)
class Verdict:
    """What was found about one file; `holds` if what such a file is for was proved and nothing failed."""

    name: str
    kind: str
    holds: bool
    proved: tuple[Claim, ...]
    not_proved: tuple[Claim, ...]
    failed: tuple[Claim, ...]


@dataclass(frozen=True)
class Evidence:
    """A file and what it is."""

    name: str
    kind: str
    data: bytes


def recognize(name: str, data: bytes) -> Evidence:
    """The file with its kind; `unknown` if it is none of those that can be verified."""
    if data.startswith(HEADER.encode()):
        return Evidence(name, "tlog_proof", data)
    if data.startswith(b"\xd2"):
        return Evidence(name, _cose_kind(data), data)
    if len(data) <= MAX_NOTE_BYTES and b"\n\n\xe2\x80\x94 " in data:
        return Evidence(name, "checkpoint", data)
    return Evidence(name, "unknown", data)


def _cose_kind(data: bytes) -> str:
    try:
        parts = cbor.decode_tagged(18, data, max_bytes=MAX_FILE_BYTES)
        protected, unprotected = parts[:2] if isinstance(parts, list) else (None, None)
        headers = cbor.decode(protected, max_bytes=MAX_FILE_BYTES) if isinstance(protected, bytes) else None
    except (MalformedError, ValueError):  # ValueError: an array of less than two
        return "statement"  # whose strict reader says what is wrong
    if not isinstance(headers, dict) or not isinstance(unprotected, dict):
        return "statement"
    if cose.RECEIPTS in unprotected:
        return "transparent_statement"
    if cose.VDP in unprotected or cose.VDS in headers:
        return "receipt"
    # What only few files need is imported where it is needed, here and below: most of the time goes into that.
    from tlog.bundles import TYP as BUNDLE_TYP
    from tlog.reports import REPORT_TYP

    kinds = {
        MANIFEST_TYP: "manifest",
        certificates.TYP: "key_list",
        REPORT_TYP: "report",
        BUNDLE_TYP: "bundle",
    }
    typ = headers.get(cose.TYP)
    return kinds.get(typ, "statement") if isinstance(typ, str) else "statement"


def verify_files(files: Sequence[Evidence], caller: Caller, opening_name: str = "opening") -> list[Verdict]:
    """The verdict on each file, in order; and one on the opening, if it opens none of them."""
    entries = list(_entries(files))
    caller = _with_key_lists(files, caller)
    findings = [_verify(one, caller, entries) for one in files]
    verdicts = [
        Verdict(
            one.name,
            one.kind,
            found.holds and not found.failed,
            tuple(found.proved),
            tuple(found.not_proved),
            tuple(found.failed),
        )
        for one, found in zip(files, findings, strict=True)
    ]
    if caller.opening is not None and not any(found.opened for found in findings):
        failed = Claim("opening", "The opening opens none of the statements in these files.")
        verdicts.append(Verdict(opening_name, "opening", False, (), (), (failed,)))
    return verdicts


def _with_key_lists(files: Sequence[Evidence], caller: Caller) -> Caller:
    """The caller, who also believes the keys that a trusted root certified in one of the files."""
    for one in files:
        if one.kind == "key_list" and caller.trust is not None:
            with suppress(Error):  # the verdict on that file says what is wrong with it
                caller = replace(caller, trust=caller.trust.with_key_list(one.data))
    return caller


def _entries(files: Sequence[Evidence]) -> Iterator[bytes]:
    """The entries in the files: what a receipt or proof without its own may be for."""
    for one in files:
        try:
            if one.kind == "transparent_statement":
                yield receipts.split_transparent(one.data)[0]
            elif one.kind == "statement":
                yield statements.entry_of(one.data)
        except Error:
            continue  # the verdict on that file says what is wrong with it


def _verify(one: Evidence, caller: Caller, entries: Sequence[bytes]) -> Findings:
    findings = Findings()
    verifiers: dict[str, Callable[[bytes, Caller, Findings, Sequence[bytes]], None]] = {
        "checkpoint": _verify_checkpoint,
        "tlog_proof": _verify_proof,
        "transparent_statement": _verify_transparent,
        "statement": _verify_statement,
        "receipt": _verify_receipt,
        "manifest": _verify_manifest,
        "report": _verify_report,
        "bundle": _verify_bundle,
        "key_list": _verify_key_list,
        "unknown": _refuse,
    }
    try:
        verifiers[one.kind](one.data, caller, findings, entries)
    except Error as error:
        findings.fail(error)
    return findings


# One function a kind of file


def _verify_checkpoint(data: bytes, caller: Caller, findings: Findings, _: Sequence[bytes]) -> None:
    parse_checkpoint(parse_note(data).text)
    findings.holds = checkpoint_claims(data, caller, findings) is not None
    findings.leave("entries", "Which entries are in the log is not seen from a checkpoint.")


def _verify_proof(data: bytes, caller: Caller, findings: Findings, entries: Sequence[bytes]) -> None:
    proof = parse_proof(data)
    checkpoint = checkpoint_claims(proof.checkpoint, caller, findings)
    entry = _proved_entry(proof, entries)
    if entry is None:
        findings.leave(
            "statement_missing", "The proof carries no entry, and no file is the statement it is for."
        )
        return
    if checkpoint is not None:
        included(proof.index, checkpoint.checkpoint.size, findings)
    try:
        when = UNDATED if checkpoint is None else seen(checkpoint, proof.index + 1, caller)
        statement_claims(entry, caller, when, findings)
    except MalformedError:
        findings.leave("statement_unknown", "What the entry says is not known: it is no signed statement.")


def _proved_entry(proof: TlogProof, entries: Sequence[bytes]) -> bytes | None:
    """The entry that the proof is for: the one it carries, which must be it, or one of the files'."""
    size, root = size_and_root(proof.checkpoint)
    if proof.extra is not None:
        merkle.verify_inclusion(proof.index, size, merkle.leaf_hash(proof.extra), proof.hashes, root)
        return proof.extra
    for entry in entries:
        with suppress(VerificationError):
            merkle.verify_inclusion(proof.index, size, merkle.leaf_hash(entry), proof.hashes, root)
            return entry
    return None


def _verify_transparent(data: bytes, caller: Caller, findings: Findings, _: Sequence[bytes]) -> None:
    entry, carried = receipts.split_transparent(data)
    shown = [receipt_claims(receipt, entry, caller, findings) for receipt in carried]
    statement_claims(entry, caller, min(shown, key=_date), findings)


def _date(when: Seen) -> tuple[bool, int, bool]:
    """A key that puts what a witness saw first before what it saw later, and what nobody saw last."""
    return when.at is None, when.at or 0, when.logged is None


def _verify_statement(data: bytes, caller: Caller, findings: Findings, _: Sequence[bytes]) -> None:
    entry = statements.entry_of(data)
    if entry != data:
        # Nobody signed them; and a transparent statement whose label is damaged must not pass for this.
        raise MalformedError("statement: expected no unprotected headers but receipts")
    findings.holds = statement_claims(entry, caller, UNDATED, findings)
    findings.leave(
        "pending",
        "That the statement is in a log is not shown. It is a promise that its issuer can be held to.",
    )


def _verify_receipt(data: bytes, caller: Caller, findings: Findings, entries: Sequence[bytes]) -> None:
    receipts.parse_receipt(data)
    tried = []
    for entry in entries:
        attempt = Findings()
        try:
            receipt_claims(data, entry, caller, attempt)
        except Error:
            continue
        tried.append(attempt)
    best = next((one for one in tried if one.holds), tried[0] if tried else None)
    if best is None:
        findings.leave("statement_missing", "No file is the statement that the receipt, as it is, is for.")
        return
    findings.proved, findings.not_proved, findings.holds = best.proved, best.not_proved, best.holds


def _verify_manifest(data: bytes, caller: Caller, findings: Findings, _: Sequence[bytes]) -> None:
    message = cose.decode_sign1(data, max_bytes=MAX_FILE_BYTES)
    if message.payload is None:
        raise MalformedError("manifest: expected its document attached")
    if caller.describe_manifest is None:
        findings.holds = signature_claim("manifest", message, UNDATED, caller, findings)
        findings.leave("erasure_itself", "That the content is gone is the word of whoever signed this.")
        return
    described = caller.describe_manifest(data)
    if caller.log is not None:
        _look_in_log(described, message, caller, findings)
    else:
        findings.holds = signature_claim("manifest", message, UNDATED, caller, findings)
        if described.get("logged"):
            findings.leave(
                "logged", "Whether a log has its erase statement and its digest is not seen from this file."
            )
    for claim in described["proved"]:
        findings.prove(claim["code"], claim["text"])
    for claim in described["said"]:
        findings.leave(f"said_{claim['code']}", f"It says: {claim['text']}")
    for claim in described["not_proved"]:
        findings.leave(claim["code"], claim["text"])


def _look_in_log(
    described: Mapping[str, Any], message: cose.Sign1, caller: Caller, findings: Findings
) -> None:
    """What the caller's log says of a manifest, and its signature, which is as old as the log shows it to be."""
    from tlog.logged import Wanted, compare_heads, look_in_log

    author = statements.issuer_headers(message.headers)[:2]
    wanted = [Wanted(one["code"], one["commitment"], one["text"]) for one in described.get("logged", ())]
    logged, when = look_in_log(wanted, author, caller, findings)
    signed = signature_claim("manifest", message, when, caller, findings)
    findings.holds = signed and logged
    compare_heads(described.get("heads", ()), caller, findings)


def _verify_report(data: bytes, caller: Caller, findings: Findings, _: Sequence[bytes]) -> None:
    from tlog.reports import parse_report

    signed = parse_report(data)
    findings.prove("report_hash", "The report in it is the one whose hash was signed.")
    findings.holds = signature_claim("report", signed.message, UNDATED, caller, findings)
    told = f"It says: {signed.verdict}, {signed.findings} findings, made at {signed.made_at}"
    origin, size = signed.subject.get("origin"), signed.subject.get("size")
    about = f" about the log {origin} of {size} entries" if isinstance(origin, str) else " about no log"
    findings.leave(f"said_{signed.verdict}", f"{told}{about}.")
    if signed.trust != "caller":
        findings.leave(
            "independence",
            "The audit took whom to trust from the home itself: it shows consistency, not independence.",
        )
    findings.leave(
        "audit_itself", "That the audit was made, and found this, is the word of whoever signed the report."
    )
    findings.leave("now", "What became of the memory and its log since is not seen from a report.")


def _verify_bundle(data: bytes, caller: Caller, findings: Findings, _: Sequence[bytes]) -> None:
    from tlog.bundles import parse_bundle

    message, bundle = parse_bundle(data)
    findings.holds = signature_claim("manifest", message, UNDATED, caller, findings)
    words = {"all": "all contents", "tenant": "the contents of one tenant", "links": "no contents"}
    findings.leave(
        f"said_{bundle.scope}",
        f"It says: {len(bundle.files)} files, with {bundle.statements} statements and {words[bundle.scope]}.",
    )
    findings.leave("files", "Whether the files beside it are those it names, `muniment audit --bundle` says.")


def _verify_key_list(data: bytes, caller: Caller, findings: Findings, _: Sequence[bytes]) -> None:
    key_list = certificates.peek_key_list(data)[1]
    if caller.trust is None or not caller.trust.roots:
        findings.leave("root_unknown", "No root was given, so nobody certifies the keys in the list.")
        return
    caller.trust.with_key_list(data)
    findings.prove(
        "keys_certified",
        f"A root of the trust file certified the {len(key_list.keys)} keys of list {key_list.number}.",
    )
    findings.leave(
        "newer_list", "Whether there is a newer list, which ends a key, is not seen from this one."
    )
    findings.holds = True


def _refuse(*_: object) -> None:
    raise MalformedError(
        "expected a tlog-proof, a checkpoint, or a COSE statement, receipt, manifest, report, bundle or key list"
        " (an opening goes with --opening)"
    )
