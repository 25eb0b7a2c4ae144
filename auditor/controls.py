"""Positive controls: each way of finding residue is shown to find some, in files made for that alone.

A judge that is broken looks like a pass. So the page reader has to find what a database without secure_delete
leaves behind, the reader of the write-ahead log a row that was deleted since, and the scanner every form of a
canary. Nothing of the evidence is used; what is planted means nothing.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import apsw

from auditor.checks_pages import Live, check_structure
from auditor.encodings import encodings_of
from auditor.findings import Finding, Note, Outcome
from auditor.residue import PACKED_FORMS, missed_forms
from auditor.sqlite_file import Bytes, open_pages

CANARY: Final = "Kontrolle Ünverwechselbar +49 30 5550 1234"
_ROWS: Final = 40
_TABLE: Final = "CREATE TABLE contents (seq INTEGER PRIMARY KEY, content BLOB NOT NULL, salt BLOB NOT NULL)"


def control_structure() -> Outcome:
    """Whether free space and old pages that hold something are found."""
    with tempfile.TemporaryDirectory() as folder:
        main, wal = _dirty_twin(Path(folder) / "twin.db")
        found = {finding.code for finding in check_structure(open_pages(main, None), Live())[0].findings}
        old = {finding.code for finding in check_structure(open_pages(main, wal), Live())[0].findings}
    missed = [
        code for code, seen in (("RESIDUE_FREE_SPACE", found), ("RESIDUE_WAL", old)) if code not in seen
    ]
    findings = tuple(
        Finding("CONTROL_FAILED", f"control of {code}", "What was planted for the check was not found by it.")
        for code in missed
    )
    return Outcome(
        findings, (Note("controls", "planted residue found by the structural checks", 2 - len(missed)),)
    )


def control_scanner() -> Outcome:
    """Whether the scanner finds every form of a canary."""
    with tempfile.TemporaryDirectory() as folder:
        missed = missed_forms(Path(folder), CANARY)
    findings = tuple(
        Finding("CONTROL_FAILED", "control of the scan", f"A canary planted as {form} was not found.")
        for form in sorted(set(missed))
    )
    found = len(encodings_of(CANARY)) + PACKED_FORMS - len(missed)
    return Outcome(findings, (Note("controls", "forms of a planted canary found by the scan", found),))


def _dirty_twin(path: Path) -> tuple[Bytes, Bytes]:
    """A database that deletes carelessly: free space in its main file, a deleted row in its log."""
    connection = apsw.Connection(str(path))
    try:
        for pragma in (
            "journal_mode = WAL",
            "synchronous = OFF",
            "secure_delete = OFF",
            "wal_autocheckpoint = 0",
        ):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        connection.execute(_TABLE)
        for seq in range(1, _ROWS):
            connection.execute(
                "INSERT INTO contents VALUES (?, ?, ?)", (seq, CANARY.encode() * 4, bytes([seq]) * 32)
            )
        connection.execute("DELETE FROM contents WHERE seq % 3 = 0")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        main = path.read_bytes()
        connection.execute("DELETE FROM contents WHERE seq % 2 = 0")
        wal = path.with_name(path.name + "-wal").read_bytes()
    finally:
        connection.close(True)
    return Bytes(main), Bytes(wal)
