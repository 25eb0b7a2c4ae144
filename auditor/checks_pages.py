"""Structural residue: what the pages of a store hold beside its rows, judged without knowing what to look for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from auditor.findings import Finding, Note, Outcome
from auditor.hits import Hit
from auditor.progress import Tell, silent
from auditor.sqlite_file import Pages, leaf_rows, old_pages
from auditor.sqlite_format import HEADER_BYTES
from auditor.sqlite_pages import Flaw, PageReport, check_pages
from tlog.errors import MalformedError

MAIN: Final = "store.db"
WAL: Final = "store.db-wal"
# The record of a row of `contents`: the row number's NULL, the content, a salt of 32 bytes. That of `facts`: 15
# columns, the tags of agent and text among them.
_BYTES_SERIAL: Final = 12
_TAG_SERIAL: Final = 12 + 2 * 32
_FACT_COLUMNS: Final = 15
_FACT_TAGS: Final = (2, 5)
_WORDS: Final = "search"
# Payload fractions; the schema format, no cache size and no
# vacuum by itself, and the text encoding; then what is reserved (the SQLite file format, 1.3).
_CONSTANT: Final = {
    0: b"SQLite format 3\x00",
    20: b"\x00\x40\x20\x20",
    44: b"\x00\x00\x00\x04" + bytes(8) + b"\x00\x00\x00\x01",
    64: bytes(4),
}
_RESERVED: Final = slice(72, 92)
_CHANGES: Final = slice(24, 28)
_CHANGES_AGAIN: Final = slice(92, 96)
"""How often the file was changed, and what that was when it was written by the version behind it."""
_SCHEMA_CHANGES: Final = slice(40, 44)
_MAX_SCHEMA_CHANGES: Final = 1 << 16
_JOURNAL: Final = slice(18, 20)
_JOURNALS: Final = frozenset({b"\x01\x01", b"\x02\x02"})
"""Of a copy in a bundle, which nobody writes to, and of a store, which has a write-ahead log."""
_WAL_MAGIC: Final = frozenset(bytes.fromhex(each) for each in ("377f0682002de218", "377f0683002de218"))
_WAL_LOOKED_AT: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Live:
    """Row numbers that are there now, by table; only tables that an erasure deletes from."""

    contents: Collection[int] = field(default_factory=frozenset)
    facts: Collection[int] = field(default_factory=frozenset)
    last: int = 0
    """Number of the last statement: a row of a later one is not gone, but not there yet."""


def check_structure(pages: Pages, live: Live, tell: Tell = silent) -> tuple[Outcome, PageReport | None]:
    """Every byte that belongs to no row is zero, and no old page holds a row that is gone."""
    try:
        report = check_pages(pages, tell)
    except MalformedError as error:
        page = error.fields.get("page")
        where = f"{MAIN} page {page}" if isinstance(page, int) else MAIN
        return Outcome((Finding("FACT_ALTERED", where, f"The file is damaged: {error.message}."),)), None
    findings = [*_check_header(pages), *(_finding(flaw, pages) for flaw in report.flaws)]
    old, gone = _check_old_pages(pages, report.owners, live)
    findings += gone
    checked = (
        Note("free space", "bytes of the store that belong to no row", report.free_bytes),
        Note("pages", "pages of the store followed from the schema to their owner", report.page_count),
        Note(
            "old pages", "superseded pages in the write-ahead log, looked through for rows that are gone", old
        ),
    )
    not_checked = []
    if report.gaps_in_wal:
        text = "pages still in the write-ahead log: their gaps are zeroed on the way into the main file"
        not_checked.append(Note("gaps", text, report.gaps_in_wal))
    if old:
        text = "word index pages among the superseded pages: what they hold can only be searched for"
        not_checked.append(Note("old index pages", text))
    counts = {"pages": report.page_count, "flaws_left_out": report.flaws_left_out}
    return Outcome(tuple(findings), checked, tuple(not_checked), counts), report


def _check_header(pages: Pages) -> Iterator[Finding]:
    """The fields of the file's header that no store changes, and a write-ahead log that is none."""
    data = pages.read(1)[:HEADER_BYTES]
    constant = all(data[at : at + len(value)] == value for at, value in _CONSTANT.items())
    schema_changes = int.from_bytes(data[_SCHEMA_CHANGES], "big")
    counted = data[_CHANGES] == data[_CHANGES_AGAIN] and schema_changes < _MAX_SCHEMA_CHANGES
    if not constant or not counted or data[_JOURNAL] not in _JOURNALS:
        what = "The header of the file has a field that no store has."
        yield Finding("FACT_ALTERED", f"{MAIN} file header", what)
    if any(data[_RESERVED]):
        what = "Bytes that belong to no row are not zero (reserved in the header)."
        yield Finding("RESIDUE_FREE_SPACE", f"{MAIN} file header", what)
    if pages.wal is not None and pages.wal.size_bytes and not pages.newest:
        beginning, size = pages.wal.read(0, 8), int.from_bytes(pages.wal.read(8, 4), "big")
        is_one = beginning in _WAL_MAGIC and size == pages.header.page_bytes
        if not is_one and any(pages.wal.read(0, _WAL_LOOKED_AT)):
            what = "The write-ahead log is none, and holds something."
            yield Finding("RESIDUE_WAL", WAL, what, {"bytes": pages.wal.size_bytes})


def place_hits(hits: Collection[Hit], pages: Pages | None, report: PageReport | None) -> tuple[Finding, ...]:
    """A finding for each needle found; in the store file with the table or index that the page serves."""
    return tuple(_placed(hit, pages, report) for hit in hits)


def _placed(hit: Hit, pages: Pages | None, report: PageReport | None) -> Finding:
    what = f"A text that was searched for is there, {hit.count} times, as {hit.encoding}."
    evidence: dict[str, str | int] = {"needle": hit.needle, "count": hit.count, "offset": hit.first_offset}
    code, where = hit.class_code, hit.file
    if hit.file == WAL:
        code = "RESIDUE_WAL"
    elif hit.file == MAIN and pages is not None and report is not None:
        number = hit.first_offset // pages.header.page_bytes + 1
        owner = report.owners.get(number, "nobody")
        evidence["page"] = number
        where = f"{MAIN} page {number} ({owner})"
        code = _class_of(owner) if hit.class_code == "RESIDUE_FILE" else hit.class_code
    return Finding(code, where, what, evidence)


def _class_of(owner: str) -> str:
    if owner in ("free", "nobody"):
        return "RESIDUE_FREE_SPACE"
    return "RESIDUE_INDEX" if owner.startswith(_WORDS) else "RESIDUE_ROW"


def _finding(flaw: Flaw, pages: Pages) -> Finding:
    file = WAL if flaw.in_wal else MAIN
    where = f"{file} page {flaw.page} ({flaw.owner})"
    evidence: dict[str, str | int] = {"page": flaw.page, "offset": flaw.offset}
    if flaw.kind == "broken":
        return Finding("FACT_ALTERED", where, f"The page is damaged: {flaw.region}.", evidence)
    evidence |= {
        "bytes": flaw.size_bytes,
        "file_offset": (flaw.page - 1) * pages.header.page_bytes + flaw.offset,
    }
    what = f"Bytes that belong to no row are not zero ({flaw.region})."
    return Finding("RESIDUE_FREE_SPACE", where, what, evidence)


def _check_old_pages(pages: Pages, owners: Mapping[int, str], live: Live) -> tuple[int, list[Finding]]:
    """How many old pages there are, and a finding for each that holds a row which is gone."""
    findings = []
    count = 0
    for old in old_pages(pages):
        count += 1
        owner = owners.get(old.page, "nobody")
        gone = 0
        for rowid, types in leaf_rows(old.data, pages.header, old.page):
            if old.in_flight and rowid > live.last:
                continue
            # By their shape: the page may have served another table when it was written.
            if _is_content(types):
                gone += rowid not in live.contents
            elif _is_fact(types):
                gone += rowid not in live.facts
        if gone:
            what = "A superseded page holds rows that are gone from the store."
            where = f"{old.place}, page {old.page} ({owner})"
            findings.append(Finding("RESIDUE_WAL", where, what, {"rows": gone}))
    return count, findings


def _is_content(types: tuple[int, ...]) -> bool:
    return (
        len(types) == 3
        and types[0] == 0
        and types[1] >= _BYTES_SERIAL
        and types[1] % 2 == 0
        and types[2] == _TAG_SERIAL
    )


def _is_fact(types: tuple[int, ...]) -> bool:
    return len(types) == _FACT_COLUMNS and all(types[at] == _TAG_SERIAL for at in _FACT_TAGS)
