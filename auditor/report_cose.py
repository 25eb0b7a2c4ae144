"""The report as one signed file: a SCITT statement about the JSON report, with the report beside it.

    protected    {1: alg, 4: kid, 15: {1: iss, 2: sub}, 16: TYP, 258: -16 (SHA-256), 259: "application/json"}
    unprotected  {REPORT: the bytes of the JSON report}
    payload      SHA-256 of those bytes

What is signed is a hash, so the statement has some 300 bytes whatever the report has, and any log takes it as an
entry: a log keeps what was signed, without unprotected headers (RFC 9943, 6.3; RFC 9995).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from tlog import cbor
from tlog.cose import (
    ALG,
    CWT_CLAIMS,
    CWT_ISS,
    CWT_SUB,
    KID,
    PAYLOAD_HASH_ALG,
    PREIMAGE_CONTENT_TYPE,
    SHA_256,
    TYP,
    CoseSigner,
    encode_sign1,
    sig_structure,
    sign_raw,
)
from tlog.reports import JSON_TYPE, REPORT_LABEL, REPORT_TYP, parse_report
from tlog.statement import require_name

NO_LOG: Final = "no-log"


def encode_report(document: dict[str, Any]) -> bytes:
    """The bytes of a JSON report, as every form of it has them; they end in a line feed."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def sign_report(signer: CoseSigner, report: bytes, origin: str | None) -> bytes:
    """The signed file of the report with these bytes, about the log of this origin. It can be read back."""
    headers = {
        ALG: signer.algorithm,
        KID: signer.kid,
        CWT_CLAIMS: {CWT_ISS: issuer_name(signer.kid), CWT_SUB: require_name(origin or NO_LOG)},
        TYP: REPORT_TYP,
        PAYLOAD_HASH_ALG: SHA_256,
        PREIMAGE_CONTENT_TYPE: JSON_TYPE,
    }
    protected = cbor.encode(headers)
    digest = hashlib.sha256(report).digest()
    signature = sign_raw(signer, sig_structure(protected, digest))
    data = encode_sign1(protected, {REPORT_LABEL: report}, digest, signature)
    parse_report(data)
    return data


def issuer_name(kid: bytes) -> str:
    """What an auditor is called in the statement: by the key alone, since nobody asked for a name."""
    return f"auditor-{kid.hex()[:32]}"
