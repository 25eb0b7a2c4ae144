"""Checks of erasures: each tombstone has its manifest and each manifest its tombstone, and both tell the truth.

A manifest is read here without the code that writes it: a COSE_Sign1 over a deterministic CBOR map, kept beside
the tiles as erasures/N.cose. What it may say at all is the writer's business; here it is compared, field by
field, with the logged tombstone and with what the store still holds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from auditor.erasure_states import Case, check_detail, check_state
from auditor.evidence import Asked, Entries, LogFiles, Statement, StoreRows
from auditor.findings import Finding, Note, Outcome
from auditor.manifest_claims import Erased, check_claims
from auditor.manifest_form import check_form, is_first_form
from auditor.manifest_heads import check_heads
from auditor.manifests import FOLDER as FOLDER
from auditor.manifests import MAX_MANIFEST_BYTES, Manifest, brief_of, list_in, map_in, map_of, number_in
from auditor.manifests import decode_manifest as decode_manifest
from auditor.statements import of_kind
from tlog import cbor
from tlog.certificates import Logged
from tlog.cose import decode_sign1, verify_sign1
from tlog.errors import Error, MalformedError, VerificationError

NO_ENTRIES: Final = Entries(0)
_NAME: Final = re.compile(r"erasures/([1-9][0-9]{0,17})\.cose")
_NOTHING_ERASED: Final = frozenset({"executing", "abandoned"})
_SECOND: Final = 1_000_000
_ANNOUNCED: Final = ("seq", "tenant_seq", "link_salt", "content_hash")
_PARTS: Final = ("entry", "link", "link_salt", "content_hash")


def check_erasures(
    rows: StoreRows,
    statements: Sequence[Statement],
    files: LogFiles,
    asked: Asked,
    entries: Entries = NO_ENTRIES,
) -> Outcome:
    """Tombstones, manifests, the statements that announce them and the store's own list, all four agreeing."""
    cases = _cases(rows, statements, files.names)
    findings = [
        *_check_list(rows, statements),
        *_check_chain(rows, statements),
        *_check_tip(rows, cases),
    ]
    # Of a store in which nothing was erased, nothing is asked of all its statements.
    asked_of = statements if cases else ()
    present = {statement.row.commitment for statement in asked_of if statement.row.content is not None}
    seqs = {statement.row.commitment: statement.row.seq for statement in asked_of}
    holds = {one.row.commitment for one in asked_of if one.link is not None and one.link.acts.get("holds")}
    manifests: dict[int, Manifest] = {}
    for each in cases:
        case = each if each.path is None else replace(each, data=files.read(each.path))
        findings += _check_case(case, asked)
        if case.data is None:
            continue
        try:
            manifest = decode_manifest(case.data)
        except MalformedError:
            findings.append(Finding("MANIFEST_ALTERED", case.place, "The file is not a manifest."))
            continue
        manifests[case.number] = brief_of(manifest)
        findings += _check_signature(case, manifest, asked, entries)
        findings += check_form(manifest.document, case.place, asked.now, holds)
        findings += _check_document(case, manifest, present)
        if case.last:
            # Where logs followed each other, the policy may know the last alone.
            origins = set() if entries.successions else {log.key.name for log in asked.trust.policy.logs}
            findings += _check_claims(case, manifest, rows, seqs, origins)
    findings += _check_previous(manifests)
    findings += check_heads([manifest for _, manifest in sorted(manifests.items())], entries)
    tombstoned = sum(case.tombstone is not None and case.last for case in cases)
    checked = Note("erasures", "tombstones compared with their manifests, both ways", tombstoned)
    not_checked = []
    if cases and not asked.trust.has("manifest"):
        text = "no manifest key is trusted: that the manifests are the operator's is not proved"
        not_checked.append(Note("manifests", text))
    counts = {"tombstones": tombstoned, "manifests": len(manifests)}
    return Outcome(tuple(findings), (checked,), tuple(not_checked), counts)


def _cases(rows: StoreRows, statements: Sequence[Statement], names: Sequence[str] | None) -> list[Case]:
    """One for each manifest that there is or should be, and one for each tombstone that has none."""
    tombstones = _numbered(statements, "erase")
    announced = _numbered(statements, "manifest")
    listed = {row.tombstone: row for row in rows.erasures}
    named = set()
    if names is not None and rows.tenant_id is None:
        named = {int(match[1]) for name in names if (match := _NAME.fullmatch(name))}
    by_commitment = {one.row.commitment: one for one in tombstones.values()}
    about = {
        # The tombstone that it was announced for, else the one of its number.
        number: by_commitment.get(_announced_for(announced.get(number))) or tombstones.get(number)
        for number in named | announced.keys()
    }
    newest = {id(tombstone): number for number, tombstone in sorted(about.items())}
    cases = [
        Case(
            number,
            tombstone is None or newest[id(tombstone)] == number,
            tombstone,
            announced.get(number),
            None if tombstone is None else listed.get(tombstone.row.seq),
            f"{FOLDER}{number}.cose",
        )
        for number, tombstone in sorted(about.items())
    ]
    without = ((number, one) for number, one in tombstones.items() if id(one) not in newest)
    cases += [Case(number, True, one, None, listed.get(one.row.seq), None) for number, one in without]
    return cases


def _announced_for(announced: Statement | None) -> bytes:
    link = None if announced is None else announced.link
    told = b"" if link is None else link.details.get("erasure")
    return told if isinstance(told, bytes) else b""


def _numbered(statements: Sequence[Statement], kind: str) -> dict[int, Statement]:
    found: dict[int, Statement] = {}
    for statement in of_kind(statements, kind):
        if statement.link is not None:
            number = statement.link.details.get("number")
            if type(number) is int and 0 < number < 10**18:
                found.setdefault(number, statement)
    return found


def _check_list(rows: StoreRows, statements: Sequence[Statement]) -> Iterator[Finding]:
    """The store's own list names tombstones that are there, each once, or says that nothing was erased."""
    tombstones = {statement.row.seq for statement in of_kind(statements, "erase")}
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
    for statement in of_kind(statements, "erase"):
        if statement.link is None:
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


def _check_case(case: Case, asked: Asked) -> Iterator[Finding]:
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
    digest = None if case.data is None else hashlib.sha256(case.data).digest()
    if case.last and not _under_way(case, asked) and case.row.manifest_digest != digest:
        what = "The manifest in the store is not the one beside the tiles."
        yield Finding("MANIFEST_ALTERED", case.row.place, what)


def _under_way(case: Case, asked: Asked) -> bool:
    """An erasure that is being executed: its manifest is not written before its files are scanned."""
    at = None if case.tombstone is None else case.tombstone.recorded_at
    executing = case.row is not None and case.row.state == "executing"
    return executing and at is not None and asked.now - at < 3600 * _SECOND


def _check_announced(
    case: Case, tombstone: Statement, announced: Statement, data: bytes
) -> Iterator[Finding]:
    assert announced.link is not None
    if announced.link.details.get("digest") != hashlib.sha256(data).digest():
        what = "The manifest is not the one whose digest was logged."
        yield Finding("MANIFEST_ALTERED", case.place, what)
    if announced.link.details.get("erasure") != tombstone.row.commitment:
        what = "The statement about the manifest names another tombstone."
        yield Finding("MANIFEST_ALTERED", announced.row.place, what)
    try:
        document = decode_manifest(data).document
    except MalformedError:
        return  # named elsewhere
    told = map_in(document, "announcement")
    if "announcement" not in document and is_first_form(document):
        return
    if any(told.get(name) != getattr(announced.row, name) for name in _ANNOUNCED):
        what = "The manifest says that another statement puts its digest into the log."
        yield Finding("MANIFEST_ALTERED", case.place, what)


def _check_signature(case: Case, manifest: Manifest, asked: Asked, entries: Entries) -> Iterator[Finding]:
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


def _check_document(case: Case, manifest: Manifest, present: set[bytes]) -> Iterator[Finding]:
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
    is_store = (map_of(system).get("kind") == "store" for system in list_in(document, "systems"))
    if not any(is_store) and targets:
        what = "The manifest does not say what became of the store itself."
        yield Finding("MANIFEST_INCOMPLETE", case.place, what)
    yield from check_detail(case, document)
    yield from check_state(case, document, targets, present)


def _check_claims(
    case: Case, manifest: Manifest, rows: StoreRows, seqs: Mapping[bytes, int], origins: set[str]
) -> Iterator[Finding]:
    if case.tombstone is None or case.tombstone.link is None:
        return
    targets = case.tombstone.link.acts.get("erases", ())
    took = frozenset(seqs[target] for target in targets if target in seqs)
    # What a restore took from its manifest has no time of its own, and knows its surroundings from there alone.
    restored = case.tombstone.row.content is None
    erased = Erased(case.tombstone.row.tenant_id, took, case.tombstone.row.seq, restored)
    yield from check_claims(manifest.document, case.place, origins, rows, erased)


def _check_previous(manifests: Mapping[int, Manifest]) -> Iterator[Finding]:
    """Each manifest names the digest of the one before it."""
    for number, manifest in sorted(manifests.items()):
        before = manifests.get(number - 1)
        if before is not None and is_first_form(manifest.document) and not is_first_form(before.document):
            what = "The manifest is of an older form than the one before it."
            yield Finding("MANIFEST_ALTERED", f"log {FOLDER}{number}.cose", what)
        expected = None if number == 1 else before.digest if before is not None else b""
        # Where the one before is missing, that is a finding of its own.
        if expected != b"" and manifest.document.get("previous") != expected:
            what = "The manifest does not name the digest of the one before it."
            yield Finding("MANIFEST_ALTERED", f"log {FOLDER}{number}.cose", what)


def _check_tip(rows: StoreRows, cases: Sequence[Case]) -> Iterator[Finding]:
    """What the store would chain the next manifest to is the last one that was announced."""
    if rows.tenant_id is not None:
        return
    links = [(case.number, case.announced.link) for case in cases if case.announced is not None]
    tips = [[number, link.details.get("digest")] for number, link in links if link is not None]
    if rows.meta.get("erasure.manifest") != (cbor.encode(tips[-1]) if tips else None):
        what = "The store would chain the next manifest to another than the last one."
        yield Finding("FACT_ALTERED", "store.db meta erasure.manifest", what)
