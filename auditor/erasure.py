"""Checks of erasures: each tombstone has its manifest and each manifest its tombstone, and both tell the truth.

A manifest is read here without the code that writes it: a COSE_Sign1 over a deterministic CBOR map, kept beside
the tiles as erasures/N.cose. What it may say at all is the writer's business; here it is compared, field by
field, with the logged tombstone and with what the store still holds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from auditor.evidence import Asked, Entries, ErasureRow, LogFiles, Statement, StoreRows
from auditor.findings import Finding, Note, Outcome
from auditor.lost import lost_of
from auditor.manifest_claims import Erased, check_claims
from auditor.manifest_form import check_form
from auditor.manifests import FOLDER as FOLDER
from auditor.manifests import MAX_MANIFEST_BYTES, Manifest, hour_of, list_in, map_in, map_of, number_in
from auditor.manifests import decode_manifest as decode_manifest
from tlog import cbor
from tlog.certificates import Logged
from tlog.cose import decode_sign1, verify_sign1
from tlog.errors import Error, MalformedError, VerificationError

NO_ENTRIES: Final = Entries(0)
COMPLETE: Final = "closed_complete"
_NAME: Final = re.compile(r"erasures/([1-9][0-9]{0,17})\.cose")
_NOTHING_ERASED: Final = frozenset({"executing", "abandoned"})
_SECOND: Final = 1_000_000
_NOTED: Final = ("claim", "exceptions")
"""What the store notes of some erasures alone."""
_PARTS: Final = ("entry", "link", "link_salt", "content_hash")


@dataclass(frozen=True, slots=True)
class _Case:
    """Everything there is about one manifest and its erasure, which may have several: the last one counts."""

    number: int
    """Of the manifest; of the tombstone where there is none."""
    last: bool
    tombstone: Statement | None
    announced: Statement | None
    """The statement that puts the digest of the manifest into the log."""
    row: ErasureRow | None
    data: bytes | None

    @property
    def place(self) -> str:
        """Where its manifest lies."""
        return f"log {FOLDER}{self.number}.cose"


def check_erasures(
    rows: StoreRows,
    statements: Sequence[Statement],
    files: LogFiles,
    asked: Asked,
    entries: Entries = NO_ENTRIES,
) -> Outcome:
    """Tombstones, manifests, the statements that announce them and the store's own list, all four agreeing."""
    cases = _cases(rows, statements, files)
    lost = lost_of(statements)
    findings = [
        *_check_list(rows, statements),
        *_check_chain(rows, statements),
        *_check_tip(rows, cases, lost),
    ]
    present = {statement.row.commitment for statement in statements if statement.row.content is not None}
    seqs = {statement.row.commitment: statement.row.seq for statement in statements}
    holds = {one.row.commitment for one in statements if one.link is not None and one.link.acts.get("holds")}
    manifests: dict[int, Manifest] = {}
    for case in cases:
        findings += [] if _is_announced_in_what_is_lost(case, lost) else _check_case(case, asked)
        if case.data is None:
            continue
        try:
            manifest = decode_manifest(case.data)
        except MalformedError:
            findings.append(Finding("MANIFEST_ALTERED", case.place, "The file is not a manifest."))
            continue
        manifests[case.number] = manifest
        findings += _check_signature(case, manifest, asked, entries)
        findings += check_form(manifest.document, case.place, asked.now, holds)
        findings += _check_document(case, manifest, present)
        if case.last and not lost:
            # What a restore brought back knows no more of its own surroundings than it did.
            # Where logs followed each other, the policy may know the last alone.
            origins = set() if entries.successions else {log.key.name for log in asked.trust.policy.logs}
            findings += _check_claims(case, manifest, rows, seqs, origins)
    findings += _check_previous(manifests)
    tombstoned = sum(case.tombstone is not None and case.last for case in cases)
    checked = Note("erasures", "tombstones compared with their manifests, both ways", tombstoned)
    not_checked = []
    if cases and not asked.trust.has("manifest"):
        text = "no manifest key is trusted: that the manifests are the operator's is not proved"
        not_checked.append(Note("manifests", text))
    counts = {"tombstones": tombstoned, "manifests": len(manifests)}
    return Outcome(tuple(findings), (checked,), tuple(not_checked), counts)


def _cases(rows: StoreRows, statements: Sequence[Statement], files: LogFiles) -> list[_Case]:
    """One for each manifest that there is or should be, and one for each tombstone that has none."""
    tombstones = _numbered(statements, "erase")
    announced = _numbered(statements, "manifest")
    listed = {row.tombstone: row for row in rows.erasures}
    named = set()
    if files.names is not None and rows.tenant_id is None:
        named = {int(match[1]) for name in files.names if (match := _NAME.fullmatch(name))}
    by_commitment = {one.row.commitment: one for one in tombstones.values()}
    about = {
        # The tombstone that it was announced for, else the one of its number.
        number: by_commitment.get(_announced_for(announced.get(number))) or tombstones.get(number)
        for number in named | announced.keys()
    }
    newest = {id(tombstone): number for number, tombstone in sorted(about.items())}
    cases = [
        _Case(
            number,
            tombstone is None or newest[id(tombstone)] == number,
            tombstone,
            announced.get(number),
            None if tombstone is None else listed.get(tombstone.row.seq),
            files.read(f"{FOLDER}{number}.cose"),
        )
        for number, tombstone in sorted(about.items())
    ]
    without = ((number, one) for number, one in tombstones.items() if id(one) not in newest)
    cases += [_Case(number, True, one, None, listed.get(one.row.seq), None) for number, one in without]
    return cases


def _announced_for(announced: Statement | None) -> bytes:
    link = None if announced is None else announced.link
    told = b"" if link is None else link.details.get("erasure")
    return told if isinstance(told, bytes) else b""


def _numbered(statements: Sequence[Statement], kind: str) -> dict[int, Statement]:
    found: dict[int, Statement] = {}
    for statement in statements:
        if statement.link is not None and statement.link.kind == kind:
            number = statement.link.details.get("number")
            if type(number) is int and 0 < number < 10**18:
                found.setdefault(number, statement)
    return found


def _check_list(rows: StoreRows, statements: Sequence[Statement]) -> Iterator[Finding]:
    """The store's own list names tombstones that are there, each once, or says that nothing was erased."""
    tombstones = {
        statement.row.seq
        for statement in statements
        if statement.link is not None and statement.link.kind == "erase"
    }
    seen = set()
    for row in rows.erasures:
        if row.tombstone is None:
            if row.state not in _NOTHING_ERASED:
                what = "The store lists an erasure as done, and names no tombstone for it."
                yield Finding("ERASURE_STATE_FALSE", row.place, what)
        elif row.tombstone not in tombstones or row.tombstone in seen:
            what = "The store lists an erasure with a tombstone that is not there, or that another has."
            yield Finding("ERASURE_STATE_FALSE", row.place, what)
        seen.add(row.tombstone)


def _check_chain(rows: StoreRows, statements: Sequence[Statement]) -> Iterator[Finding]:
    """Tombstones are numbered from 1 without a gap, and each names the one before it."""
    if rows.tenant_id is not None:
        return
    previous: bytes | None = None
    expected = 1
    for statement in statements:
        if statement.link is None or statement.link.kind != "erase":
            continue
        details = statement.link.details
        if details.get("number") != expected:
            what = "The numbers of tombstones have a gap or a number twice."
            yield Finding("SEQUENCE_GAP", statement.row.place, what, {"expected": expected})
        if details.get("previous") != previous:
            what = "The tombstone does not name the one before it."
            yield Finding("ORDER_ALTERED", statement.row.place, what)
        number = details.get("number")
        expected = number + 1 if type(number) is int else expected + 1
        previous = statement.row.commitment


def _check_case(case: _Case, asked: Asked) -> Iterator[Finding]:
    """The four things there are about an erasure are all there, and name each other."""
    if case.tombstone is None:
        if case.data is not None or case.announced is not None:
            what = "A manifest speaks of an erasure for which the store has no tombstone."
            yield Finding("ERASURE_STATE_FALSE", case.place, what)
        return
    if case.data is None or case.announced is None:
        if not _under_way(case, asked):
            lacks = "no manifest" if case.data is None else "no statement in the log for its manifest"
            what = f"There is {lacks}, though the erasure was executed."
            yield Finding(
                "TOMBSTONE_WITHOUT_MANIFEST", case.tombstone.row.place, what, {"number": case.number}
            )
    else:
        yield from _check_announced(case, case.tombstone, case.announced, case.data)
    if case.row is None:
        what = "The store's list of erasures lacks one that it has a tombstone for."
        yield Finding("ERASURE_STATE_FALSE", case.tombstone.row.place, what, {"number": case.number})
        return
    assert case.tombstone.link is not None
    details = case.tombstone.link.details
    noted = (case.row.number, case.row.request, case.row.tenant_id)
    if noted != (details.get("number"), details.get("request"), case.tombstone.row.tenant_id):
        what = "The store's list of erasures has another number, request or tenant than the tombstone."
        yield Finding("ERASURE_STATE_FALSE", case.row.place, what)
    if case.last and not _under_way(case, asked) and case.row.manifest != case.data:
        what = "The manifest in the store is not the one beside the tiles."
        yield Finding("MANIFEST_ALTERED", case.row.place, what)


def _under_way(case: _Case, asked: Asked) -> bool:
    """An erasure that is being executed: its manifest is not written before its files are scanned."""
    at = None if case.tombstone is None else case.tombstone.recorded_at
    executing = case.row is not None and case.row.state == "executing"
    return executing and at is not None and asked.now - at < 3600 * _SECOND


def _check_announced(
    case: _Case, tombstone: Statement, announced: Statement, data: bytes
) -> Iterator[Finding]:
    assert announced.link is not None
    if announced.link.details.get("digest") != hashlib.sha256(data).digest():
        what = "The manifest is not the one whose digest was logged."
        yield Finding("MANIFEST_ALTERED", case.place, what)
    if announced.link.details.get("erasure") != tombstone.row.commitment:
        what = "The statement about the manifest names another tombstone."
        yield Finding("MANIFEST_ALTERED", announced.row.place, what)


def _check_signature(case: _Case, manifest: Manifest, asked: Asked, entries: Entries) -> Iterator[Finding]:
    if not asked.trust.has("manifest"):
        return
    at, logged = _seen(case.announced, manifest, entries)
    when = asked.now // _SECOND if at is None else at
    try:
        key = asked.trust.key("manifest", manifest.kid, when, manifest.issuer, logged)
    except VerificationError:
        what = "The key that signed the manifest is not trusted for manifests at its time."
        yield Finding("KEY_NOT_VALID", case.place, what)
        return
    try:
        verify_sign1(decode_sign1(manifest.raw, max_bytes=MAX_MANIFEST_BYTES), key)
    except Error:
        yield Finding("MANIFEST_ALTERED", case.place, "The signature of the manifest does not hold.")


def _seen(
    announced: Statement | None, manifest: Manifest, entries: Entries
) -> tuple[int | None, Logged | None]:
    """When witnesses had seen the digest of the manifest in the log; a manifest does not date itself."""
    if announced is None or announced.link is None:
        return None, None
    if announced.link.details.get("digest") != manifest.digest:
        return None, None
    return entries.seen(announced.row.entry_index, announced.row.entry)


def _check_document(case: _Case, manifest: Manifest, present: set[bytes]) -> Iterator[Finding]:
    """What the manifest says against the logged tombstone and against what the store still holds."""
    document = manifest.document
    if manifest.number != case.number:
        yield Finding("MANIFEST_ALTERED", case.place, "The manifest has another number than its file.")
    if case.tombstone is None or case.tombstone.link is None:
        return
    row, link = case.tombstone.row, case.tombstone.link
    parts = map_in(document, "tombstone")
    if any(parts.get(name) != getattr(row, name) for name in _PARTS):
        what = "The tombstone in the manifest is not the one in the store."
        yield Finding("MANIFEST_ALTERED", case.place, what)
    said = {
        "request": document.get("request"),
        "basis": document.get("basis"),
        "guard": map_in(document, "guard").get("disposition"),
    }
    if any(link.details.get(name) != value for name, value in said.items()):
        what = "Request, basis or guard in the manifest are not those of the tombstone."
        yield Finding("MANIFEST_ALTERED", case.place, what)
    targets = link.acts.get("erases", ())
    scope = map_in(document, "scope")
    stated = number_in(scope, "count") + number_in(scope, "derived")
    if not stated == len(set(targets)) == link.details.get("count"):
        what = "The manifest counts other statements than the tombstone erases."
        evidence = {"manifest": stated, "tombstone": len(set(targets))}
        yield Finding("MANIFEST_INCOMPLETE", case.place, what, evidence)
    if not any(map_of(system).get("kind") == "store" for system in list_in(document, "systems")):
        what = "The manifest does not say what became of the store itself."
        yield Finding("MANIFEST_INCOMPLETE", case.place, what)
    yield from _check_detail(case, document)
    yield from _check_state(case, document, targets, present)


def _check_claims(
    case: _Case, manifest: Manifest, rows: StoreRows, seqs: Mapping[bytes, int], origins: set[str]
) -> Iterator[Finding]:
    if case.tombstone is None or case.tombstone.link is None:
        return
    targets = case.tombstone.link.acts.get("erases", ())
    took = frozenset(seqs[target] for target in targets if target in seqs)
    erased = Erased(case.tombstone.row.tenant_id, took, case.tombstone.row.seq)
    yield from check_claims(manifest.document, case.place, origins, rows, erased)


def _check_state(
    case: _Case, document: Mapping[str, Any], targets: Sequence[bytes], present: set[bytes]
) -> Iterator[Finding]:
    """`closed_complete` is said of an erasure only when everything was erased and every check was clean."""
    # Where retention has left nothing else, the hashes of retired values are what a request erases.
    hashes = (
        number_in(map_in(document, "guard"), "entries")
        if map_in(document, "guard").get("disposition") == "erase"
        else 0
    )
    if not targets and not hashes:
        what = "The erasure names no statement: it verified nothing."
        yield Finding("ERASURE_EMPTY_SCOPE", case.place, what)
    if case.last and case.row is not None and case.row.state != document.get("state"):
        what = "The store calls the erasure by another state than its manifest."
        yield Finding("ERASURE_STATE_FALSE", case.row.place, what)
    if document.get("state") != COMPLETE:
        return
    systems = [map_of(system).get("result") for system in list_in(document, "systems")]
    checks = [map_of(check).get("result") for check in list_in(document, "checks")]
    reasons = list_in(document, "why") or list_in(document, "exceptions")
    unsound = [result for result in systems if result != "verified"]
    unsound += [result for result in checks if result != "clean"]
    if not (targets or hashes) or not systems or not checks or unsound or reasons:
        what = "The erasure is called complete, and the manifest itself names what was not verified."
        yield Finding("ERASURE_STATE_FALSE", case.place, what, {"results": len(unsound)})
    left = sum(target in present for target in targets)
    if left:
        what = "The erasure is called complete, and contents of it are still there."
        yield Finding("ERASURE_STATE_FALSE", case.place, what, {"contents": left})


def _check_detail(case: _Case, document: Mapping[str, Any]) -> Iterator[Finding]:
    """What the store noted of the erasure before its manifest was made is what the manifest says, to the hour."""
    if case.row is None or not case.last:
        return
    try:
        detail = cbor.decode(case.row.detail, max_bytes=MAX_MANIFEST_BYTES)
    except MalformedError:
        detail = None
    times = map_in(document, "times")
    said = {
        "basis": document.get("basis"),
        "scope": document.get("scope"),
        "guard": document.get("guard"),
        "erased": document.get("erased"),
        "started_at": times.get("started_at"),
    }
    said |= {name: document[name] for name in _NOTED if name in document}
    noted = dict(map_of(detail))
    noted["started_at"] = hour_of(noted.get("started_at"))
    at = None if case.tombstone is None else case.tombstone.recorded_at
    if noted != said or (at is not None and times.get("erased_at", hour_of(at)) != hour_of(at)):
        what = "What the store noted of the erasure is not what its manifest says."
        yield Finding("ERASURE_STATE_FALSE", case.row.place, what)


def _check_previous(manifests: Mapping[int, Manifest]) -> Iterator[Finding]:
    """Each manifest names the digest of the one before it."""
    for number, manifest in sorted(manifests.items()):
        before = manifests.get(number - 1)
        expected = None if number == 1 else before.digest if before is not None else b""
        # Where the one before is missing, that is a finding of its own.
        if expected != b"" and manifest.document.get("previous") != expected:
            what = "The manifest does not name the digest of the one before it."
            yield Finding("MANIFEST_ALTERED", f"log {FOLDER}{number}.cose", what)


def _is_announced_in_what_is_lost(case: _Case, lost: frozenset[bytes]) -> bool:
    """Whether a restore took the erasure from its manifest alone: what announced that is lost, too, and declared so."""
    return case.tombstone is not None and case.announced is None and case.tombstone.row.commitment in lost


def _check_tip(rows: StoreRows, cases: Sequence[_Case], lost: frozenset[bytes]) -> Iterator[Finding]:
    """What the store would chain the next manifest to is the last one that was announced."""
    if rows.tenant_id is not None or any(_is_announced_in_what_is_lost(case, lost) for case in cases):
        return
    links = [(case.number, case.announced.link) for case in cases if case.announced is not None]
    tips = [[number, link.details.get("digest")] for number, link in links if link is not None]
    if rows.meta.get("erasure.manifest") != (cbor.encode(tips[-1]) if tips else None):
        what = "The store would chain the next manifest to another than the last one."
        yield Finding("FACT_ALTERED", "store.db meta erasure.manifest", what)
