"""The texts that the caller gave, looked for in every file of a home and of other places."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from auditor.checks_pages import place_hits
from auditor.controls import control_scanner
from auditor.findings import Finding, Note, Outcome, merge
from auditor.residue import ScanResult, scan_files
from auditor.sqlite_file import Pages
from auditor.sqlite_pages import PageReport
from tlog.errors import MalformedError

CANARY: Final = "CREATE TABLE contents"
"""Stands in every store, in the schema: a scan that does not find it has not read the store."""


def scan_home(
    home: Path,
    also: Sequence[Path],
    needles: Sequence[str] | None,
    pages: Pages,
    report: PageReport | None,
) -> Outcome:
    """The texts that the caller gave, looked for in every file of the home and of the other places."""
    if needles is None:
        text = "no texts to search for were given: residue was judged by its structure alone"
        notes = [Note("needles", text)]
        if also:
            if not all(place.exists() for place in also):
                raise MalformedError("expected an existing file or folder to scan")
            notes.append(Note("also", "other places, which only texts can be searched for in", len(also)))
        return Outcome(not_checked=tuple(notes))
    control = control_scanner()
    result = scan_files([home, *also], needles, canary=CANARY)
    findings = list(place_hits(result.hits, pages, report))
    if not result.control_found:
        what = "The scan did not find a text that stands in every store."
        findings.append(Finding("CONTROL_FAILED", "control of the scan", what))
    checked = Note(
        "needles", f"files searched for {len(needles) - result.not_searchable} texts", result.files
    )
    not_checked = _not_searched(result)
    if not_checked:
        what = "Something was not searched, so that a text was not found in the rest shows nothing."
        findings.append(Finding("CONTROL_FAILED", "scan for texts", what, {"gaps": len(not_checked)}))
    counts = {"files": result.files, "bytes_scanned": result.bytes_scanned}
    return merge([control, Outcome(tuple(findings), (checked,), not_checked, counts)])


def _not_searched(result: ScanResult) -> tuple[Note, ...]:
    notes = []
    if result.not_searchable:
        text = "texts too short to be searched for"
        notes.append(Note("needles", text, result.not_searchable))
    notes += [Note("files", f"{name} could not be read, or is a link") for name in result.not_read]
    notes += [
        Note("files", f"{name} holds something packed that was not opened, or not to its end")
        for name in result.not_opened
    ]
    return tuple(notes)
