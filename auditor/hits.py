"""What a scan for needles finds, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hit:
    """One needle in one form in one file. `needle` is its place in the list that was handed in."""

    class_code: str
    file: str
    count: int
    encoding: str
    first_offset: int
    needle: int


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What was looked at and what was found; clean only if the control was found and nothing went unread."""

    files: int
    bytes_scanned: int
    hits: tuple[Hit, ...]
    control_found: bool
    not_searchable: int
    not_read: tuple[str, ...] = ()
    not_opened: tuple[str, ...] = ()
    """Files of whose compressed streams only a part was looked at."""
