"""The deletion manifest: what one erasure did and did not do, signed, numbered and chained, with no content.

A manifest is a COSE_Sign1 whose payload is a deterministic CBOR map. Each field of the map is a number, a
random or salted byte string of fixed length, a whole hour, or a word of a closed list, so nothing that was erased
can stand in it; `memory.manifest_fields` is that promise and docs/formats/manifest.md explains the fields. The only
free bytes are those of the tombstone, and they are opened and compared field by field before they are kept. Its
link opens it; its content, which is the exact time, stays in the store.

    protected  {1: alg, 4: kid, 15: {1: iss, 2: sub}, 16: TYP}        unprotected  {}

`previous` is the SHA-256 of the whole manifest before it, so a manifest can't be left out or replaced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from memory import event
from memory import manifest_text as text
from memory.manifest_fields import FIRST_SCHEMA, check_document
from tlog import cbor
from tlog.cose import (
    ALG,
    CWT_CLAIMS,
    CWT_ISS,
    CWT_SUB,
    KID,
    CoseKey,
    CoseSigner,
    decode_sign1,
    encode_sign1,
    sig_structure,
    verify_sign1,
)
from tlog.cose import TYP as TYP_LABEL
from tlog.errors import MalformedError, VerificationError
from tlog.merkle import leaf_hash
from tlog.statement import parse_statement, require_kid, require_name

TYP: Final = "application/vnd.muniment.manifest+cose"
SCHEMA: Final = 2
MAX_MANIFEST_BYTES: Final = event.MAX_LINK_BYTES + (4 << 20)
_HEADERS: Final = frozenset((ALG, KID, CWT_CLAIMS, TYP_LABEL))


@dataclass(frozen=True)
class Tombstone:
    """The erase statement that a manifest is about, opened: `commitment` is that of its entry."""

    commitment: bytes
    entry: bytes
    link: event.Link

    @property
    def targets(self) -> tuple[bytes, ...]:
        """The commitments of the statements it erased."""
        return self.link.acts.get("erases", ())


@dataclass(frozen=True)
class Manifest:
    """A manifest of the right form, its tombstone opened; `verify_manifest` alone checks who signed it."""

    issuer: str
    subject: str
    kid: bytes
    document: Mapping[str, Any]
    tombstone: Tombstone
    raw: bytes

    @property
    def number(self) -> int:
        """Its place in the chain, from 1."""
        return int(self.document["number"])

    @property
    def previous(self) -> bytes | None:
        """The digest of the manifest before it; None for the first."""
        return self.document.get("previous")

    @property
    def state(self) -> str:
        """How far the erasure got."""
        return str(self.document["state"])

    @property
    def digest(self) -> bytes:
        """SHA-256 of its bytes: what the log and the next manifest know it by."""
        return manifest_digest(self.raw)


def manifest_digest(data: bytes) -> bytes:
    """SHA-256 of the bytes of a manifest."""
    return hashlib.sha256(data).digest()


def sign_manifest(signer: CoseSigner, issuer: str, subject: str, document: Mapping[str, Any]) -> bytes:
    """The bytes of the manifest; MalformedError if the document says more, or other, than a manifest may."""
    if document.get("schema") != SCHEMA:
        raise MalformedError(f"expected a new manifest to be of schema {SCHEMA}")
    payload = encode_document(document)
    protected = cbor.encode(
        {
            ALG: signer.algorithm,
            KID: signer.kid,
            CWT_CLAIMS: {CWT_ISS: require_name(issuer), CWT_SUB: require_name(subject)},
            TYP_LABEL: TYP,
        }
    )
    signature = signer.sign(sig_structure(protected, payload))
    return encode_sign1(protected, {}, payload, signature)


def encode_document(document: Mapping[str, Any]) -> bytes:
    """The payload of a manifest, checked like one that is read."""
    _check(document)
    return cbor.encode(dict(document))


def decode_document(payload: bytes) -> dict[str, Any]:
    """The document in a manifest's payload; MalformedError if it says more, or other, than one may."""
    document = cbor.decode(payload, max_bytes=MAX_MANIFEST_BYTES)
    _check(document)
    assert isinstance(document, dict)
    return document  # type: ignore[return-value]  # `_check` saw that its keys are texts


def decode_manifest(data: bytes) -> Manifest:
    """The manifest in `data`, its tombstone opened; who signed it is not known yet."""
    message = decode_sign1(data, max_bytes=MAX_MANIFEST_BYTES)
    headers = message.headers
    if headers.keys() != _HEADERS or message.unprotected or headers[TYP_LABEL] != TYP:
        raise MalformedError("expected the headers of a manifest: alg, kid, claims and its type")
    claims, kid = headers[CWT_CLAIMS], headers[KID]
    if not isinstance(claims, dict) or claims.keys() != {CWT_ISS, CWT_SUB} or not isinstance(kid, bytes):
        raise MalformedError("expected a manifest to have a kid and the claims iss and sub")
    if message.payload is None:
        raise MalformedError("expected a manifest with its document attached")
    document = decode_document(message.payload)
    issuer, subject = require_name(claims[CWT_ISS]), require_name(claims[CWT_SUB])
    return Manifest(issuer, subject, kid, document, open_tombstone(document), data)


def verify_manifest(data: bytes, key: CoseKey) -> Manifest:
    """The manifest in `data`, signed by `key`. Whether its tombstone is in a log is another question."""
    manifest = decode_manifest(data)
    require_kid(manifest.kid, key)
    verify_sign1(decode_sign1(data, max_bytes=MAX_MANIFEST_BYTES), key)
    return manifest


@dataclass(frozen=True)
class Announcement:
    """The statement that puts the digest of a manifest into the log, made again from the manifest: its link, opened."""

    commitment: bytes
    link: event.Link
    link_salt: bytes
    content_hash: bytes


def announcement_of(manifest: Manifest) -> Announcement | None:
    """What announces a manifest in the log; its commitment is in the log exactly if these bytes were announced.

    None for one of schema 1 that does not tell.
    """
    parts, tombstone = manifest.document.get("announcement"), manifest.tombstone
    if parts is None:
        return None
    link = event.Link(
        kind="manifest",
        seq=parts["seq"],
        tenant=tombstone.link.tenant,
        tenant_seq=parts["tenant_seq"],
        details={"number": manifest.number, "erasure": tombstone.commitment, "digest": manifest.digest},
    )
    link_digest = event.link_hash(link.encode(), parts["link_salt"])
    commitment = event.commitment(link_digest, parts["content_hash"])
    return Announcement(commitment, link, parts["link_salt"], parts["content_hash"])


def verify_successor(manifest: Manifest, previous: Manifest | None) -> None:
    """Returns if `manifest` is the one right after `previous`, or the first; VerificationError otherwise."""
    number, digest = (0, None) if previous is None else (previous.number, previous.digest)
    if previous is not None and manifest.document["schema"] < previous.document["schema"]:
        raise VerificationError("the manifest is of an older form than the one before it", code="chain")
    if manifest.number != number + 1 or manifest.previous != digest:
        raise VerificationError("the manifest does not continue the chain of manifests", code="chain")


def describe(payload: bytes) -> dict[str, Any]:
    """What the document in a manifest's payload says, in sentences, for a caller that checked its signature.

    `proved` follows from the document alone; `said` is the signer's word; `not_proved` is what remains.
    """
    document = decode_document(payload)
    tombstone = open_tombstone(document)
    count = len(tombstone.targets)
    scope, guard = document["scope"], document["guard"]["disposition"]
    opened = f"The erase statement in it is opened by it, and names {count} statements as erased."
    erased = (
        f"{scope['count']} records chosen by {scope['kind']} were erased, and {scope['derived']} with them;"
        f" {document['guard']['entries']} entries of the value ledger were concerned."
    )
    not_proved = [{"code": "erasure_itself", "text": text.SIGNED_WORD}]
    return {
        "number": document["number"],
        "state": document["state"],
        "request": document["request"].hex(),
        "commitment": tombstone.commitment.hex(),
        "leaf_hash": leaf_hash(tombstone.entry).hex(),
        "proved": [{"code": "tombstone_opened", "text": opened}],
        "said": [
            {"code": document["state"], "text": text.STATES[document["state"]]},
            {"code": "erased", "text": erased},
            {"code": f"guard_{guard}", "text": text.DISPOSITIONS[guard]},
        ],
        "not_proved": not_proved
        + text.sentences(text.REASONS, document["why"])
        + text.sentences(text.LIMITS, document["limits"]),
    }


def describe_signed(data: bytes) -> dict[str, Any]:
    """What `describe` says of a manifest file, with what a log has to have of it, and the heads that it names."""
    manifest = decode_manifest(data)
    log, announced = manifest.document["log"], announcement_of(manifest)
    logged = [
        {"code": "tombstone_logged", "commitment": manifest.tombstone.commitment, "text": text.TOMBSTONE}
    ]
    described = describe(encode_document(manifest.document))
    if announced is None:
        described["not_proved"].append({"code": "manifest_logged", "text": text.NOT_ANNOUNCED})
    else:
        logged.append(
            {"code": "manifest_logged", "commitment": announced.commitment, "text": text.ANNOUNCEMENT}
        )
    return described | {
        "logged": logged,
        "heads": [log[name] for name in ("before", "checkpoint") if name in log],
    }


def describe_file(data: bytes) -> dict[str, Any]:
    """What a manifest says, for a person to read as JSON; nothing about its signature is known."""
    manifest = decode_manifest(data)
    fields = ("basis", "scope", "guard", "systems", "checks")
    return describe(encode_document(manifest.document)) | {
        "kid": manifest.kid.hex(),
        "digest": manifest.digest.hex(),
        "previous": None if manifest.previous is None else manifest.previous.hex(),
        **{name: manifest.document[name] for name in fields},
    }


def open_tombstone(document: Mapping[str, Any]) -> Tombstone:
    """The tombstone in a checked document; VerificationError unless it opens its entry and says the same."""
    parts = document["tombstone"]
    link = event.decode_link(parts["link"])
    commitment = parse_statement(parts["entry"]).payload_hash
    event.open_link(commitment, parts["link"], parts["link_salt"], parts["content_hash"])
    if "content" in parts or "content_salt" in parts:
        _open_time(parts)
    _check_same(document, link)
    return Tombstone(commitment, parts["entry"], link)


def _open_time(parts: Mapping[str, Any]) -> None:
    """Returns if the content of a tombstone, which schema 1 may carry, is the one that was logged: a time alone."""
    content, salt = parts.get("content"), parts.get("content_salt")
    if content is None or salt is None or event.content_hash(content, salt) != parts["content_hash"]:
        raise VerificationError("the manifest does not open the content of its tombstone", code="tombstone")
    if event.decode_content(content).keys() != {"recorded_at"}:
        raise MalformedError("expected the content of a tombstone to be its time")


def _check(document: object) -> None:
    check_document(document)
    assert isinstance(document, Mapping)
    if not FIRST_SCHEMA <= document["schema"] <= SCHEMA:
        raise MalformedError(f"expected a manifest of schema {FIRST_SCHEMA} to {SCHEMA}")
    if (document["number"] == 1) != ("previous" not in document):
        raise MalformedError("expected each manifest but the first to name the one before it")
    if (document["guard"]["disposition"] == "expire") != ("expires_at" in document["guard"]):
        raise MalformedError("expected an expiry of the guard exactly where its entries expire")
    if document["state"] == "closed_complete":
        _check_complete(document)


def _check_complete(document: Mapping[str, Any]) -> None:
    """The one rule of `closed_complete`: a scope that is not empty, and nothing but what is gone."""
    scope, guard = document["scope"], document["guard"]
    hashes = guard["entries"] + guard.get("requests", 0) if guard["disposition"] == "erase" else 0
    if scope["count"] + scope["derived"] + hashes < 1:
        raise MalformedError("an erasure of nothing is never complete")
    if any(not key["destroyed"] for key in document.get("keys", ())):
        raise MalformedError("an erasure is complete only when every key of it is destroyed")
    if not document["systems"] or any(system["result"] != "verified" for system in document["systems"]):
        raise MalformedError("an erasure is complete only when every system is verified")
    if not document["checks"] or any(check["result"] != "clean" for check in document["checks"]):
        raise MalformedError("an erasure is complete only when every check is clean")
    if document["why"] or document.get("exceptions"):
        raise MalformedError("an erasure with a reason against it is not complete")


def _check_same(document: Mapping[str, Any], link: event.Link) -> None:
    """The document says of the erasure what the logged statement says: an edited scope does not pass."""
    scope = document["scope"]
    erased = link.acts.get("erases", ())
    said = {
        "request": document["request"],
        "guard": document["guard"]["disposition"],
        "basis": document["basis"],
        "count": scope["count"] + scope["derived"],
    }
    same = link.kind == "erase" and len(set(erased)) == len(erased) == said["count"]
    if not same or any(link.details.get(name) != value for name, value in said.items()):
        raise VerificationError("the manifest and its tombstone do not say the same", code="tombstone")
