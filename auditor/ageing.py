"""Two questions about erasures that no comparison of bytes answers: is one late, and does the log confirm a guess?"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

from auditor.evidence import Asked, Entries, StoreRows
from auditor.findings import Finding, Note, Outcome
from auditor.manifests import MAX_MANIFEST_BYTES, map_of, number_in
from tlog import cbor
from tlog.errors import Error, MalformedError
from tlog.statement import parse_signed_statement, parse_statement

OVERDUE_DAYS: Final = 30
"""A month, in which a request for erasure has to be answered in most places."""
_WAITING: Final = frozenset(
    {"executing", "inconclusive", "failed", "awaiting_backups", "awaiting_recipients"}
)
_DAY: Final = 86_400_000_000
_ALGORITHMS: Final = ("sha256", "sha1", "md5", "sha512", "sha3_256", "blake2b")


def check_age(rows: StoreRows, asked: Asked) -> Outcome:
    """Whether each request that was begun came to an end by the time it was due; within a month, where it has none."""
    findings = []
    for row in rows.erasures:
        started_at, due_at = _times(row.detail)
        if row.state in _WAITING and started_at and asked.now > due_at:
            what = (
                "A request for erasure was to be answered by a time that is over, and has not come to an end."
            )
            evidence: dict[str, str | int] = {"days": (asked.now - started_at) // _DAY, "state": row.state}
            findings.append(Finding("REQUEST_OVERDUE", row.place, what, evidence))
    text = f"erasures that are closed, or not yet due: {OVERDUE_DAYS} days, where no time is set"
    checked = Note("requests", text, len(rows.erasures) - len(findings))
    return Outcome(tuple(findings), (checked,))


def due_times(rows: StoreRows) -> Iterator[int]:
    """When each request that has not come to an end was to be answered."""
    for row in rows.erasures:
        if row.state in _WAITING:
            yield _times(row.detail)[1]


def check_confirmable(entries: Entries, needles: Sequence[str]) -> Outcome:
    """Whether an entry of the log states a plain hash of a text: that confirms a guess, for ever."""
    payloads = {payload for entry in entries.entries if (payload := _payload(entry)) is not None}
    findings = []
    for number, needle in enumerate(needles, start=1):
        names = sorted({name for name, digest in _digests(needle) if digest in payloads})
        if names:
            what = "The log holds a hash without a salt of a text that was searched for: it confirms a guess."
            evidence: dict[str, str | int] = {"needle": number, "algorithms": ", ".join(names)}
            findings.append(Finding("RESIDUE_LOG_CONFIRMABLE", "log", what, evidence))
    checked = Note(
        "log hashes", "texts whose plain hashes no entry of the log states", len(needles) - len(findings)
    )
    return Outcome(tuple(findings), (checked,))


def _times(detail: bytes) -> tuple[int, int]:
    """When somebody asked for it, or it was begun, and when it is due; zeros where the store's note can't be read."""
    try:
        noted = map_of(cbor.decode(detail, max_bytes=MAX_MANIFEST_BYTES))
    except MalformedError:
        return 0, 0  # check_erasures names it
    started_at = number_in(noted, "received_at") or number_in(noted, "started_at")
    return started_at, number_in(noted, "due_at") or started_at + OVERDUE_DAYS * _DAY


def _payload(entry: bytes | None) -> bytes | None:
    """What an entry states, whoever made it."""
    try:
        return None if entry is None else parse_statement(entry).payload_hash
    except MalformedError:
        pass
    try:
        return None if entry is None else parse_signed_statement(entry).message.payload
    except Error:
        return None


def _digests(needle: str) -> Iterator[tuple[str, bytes]]:
    """Digests of the ways in which a text is written, each with its name."""
    forms = {needle, needle.strip(), needle.casefold(), unicodedata.normalize("NFC", needle)}
    for form in forms:
        data = form.encode("utf-8", "surrogatepass")
        for algorithm in _ALGORITHMS:
            yield algorithm, hashlib.new(algorithm, data, usedforsecurity=False).digest()
