"""Signed audit reports as a verifier reads them: a statement whose payload is the hash of the report beside it.

Written by `auditor.report_cose`; docs/formats/report.md has the bytes. What a report says is JSON of its own, of
which only the verdict and the head that it speaks of are looked at here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tlog.cose import (
    PAYLOAD_HASH_ALG,
    PREIMAGE_CONTENT_TYPE,
    SHA_256,
    TYP,
    Sign1,
    decode_sign1,
)
from tlog.errors import MalformedError, VerificationError
from tlog.statement import issuer_headers

REPORT_TYP: Final = "application/vnd.muniment.report+cose"
REPORT_LABEL: Final = -70003
"""Private use, unprotected: the JSON report whose hash was signed."""
JSON_TYPE: Final = "application/json"
MAX_REPORT_BYTES: Final = 16 << 20
VERDICTS: Final = ("clean", "findings", "inconclusive")
TRUSTED: Final = ("caller", "home")


@dataclass(frozen=True)
class SignedReport:
    """A signed report of the right form, the report beside it being the one that was signed."""

    message: Sign1
    report: bytes
    verdict: str
    findings: int
    made_at: str
    subject: Mapping[str, Any]
    trust: str
    """Whose word it was whom to trust: `caller` or `home`."""


def parse_report(data: bytes) -> SignedReport:
    """The signed report in `data`; who signed it is not known yet.

    Raises MalformedError if it is none, VerificationError if the report beside it is not the one signed.
    """
    message = decode_sign1(data, max_bytes=MAX_REPORT_BYTES + 4096)
    headers, report = message.headers, message.unprotected.get(REPORT_LABEL)
    issuer_headers(headers)
    if headers.get(TYP) != REPORT_TYP or headers.get(PAYLOAD_HASH_ALG) != SHA_256:
        raise MalformedError("report: expected the type of a report, and a SHA-256 hash as payload")
    if headers.get(PREIMAGE_CONTENT_TYPE) != JSON_TYPE:
        raise MalformedError("report: expected a report in JSON")
    if message.unprotected.keys() != {REPORT_LABEL} or not isinstance(report, bytes):
        raise MalformedError("report: expected the report itself beside its signature, and nothing else")
    if message.payload != hashlib.sha256(report).digest():
        raise VerificationError("report: is not the one whose hash was signed", code="report")
    return _read(message, report)


def _read(message: Sign1, report: bytes) -> SignedReport:
    try:
        document = json.loads(report)
    except (ValueError, RecursionError):
        raise MalformedError("report: expected a JSON document") from None
    said = document if isinstance(document, dict) else {}
    counts, made_at, subject = said.get("counts"), said.get("made_at"), said.get("subject")
    findings = counts.get("findings") if isinstance(counts, dict) else None
    if said.get("verdict") not in VERDICTS or type(findings) is not int or not isinstance(subject, dict):
        raise MalformedError("report: expected a verdict, counts and a subject")
    if not isinstance(made_at, str) or len(made_at) > 32:
        raise MalformedError("report: expected the time that it was made at")
    origin, size = subject.get("origin", ""), subject.get("size", 0)
    if not isinstance(origin, str) or len(origin) > 255 or type(size) is not int:
        raise MalformedError("report: expected the origin and the size of a log")
    if said.get("trust") not in TRUSTED:
        raise MalformedError("report: expected to be told whose trust it was made under")
    return SignedReport(message, report, said["verdict"], findings, made_at, subject, said["trust"])
