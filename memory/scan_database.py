"""What the process apart looks at where the store of a home is a database: its rows, its pages and its log.

All of it is the auditor's code, over connections that the settings of the home name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, Final

_AUDITOR: Final = "auditor"
_CONTROLS: Final = ("origin", "issuer", "subject")


def database_of(folder: Path) -> str | None:
    """The settings of the connection to the database of a home; None where its store is a file."""
    found: str | None = import_module(f"{_AUDITOR}.settings").place_in_settings(folder, "database")
    return found


def scan(folder: Path, dsn: str, needles: Sequence[str | bytes], canary: str) -> dict[str, Any]:
    """What is found of the needles in the files of a home and in the rows of its database.

    The canary stands in a row. What has to be found in the files is what the settings say of the home itself.
    """
    settings, residue, words = (
        import_module(f"{_AUDITOR}.{name}") for name in ("settings", "residue", "pg_words")
    )
    told = [settings.place_in_settings(folder, name) or "" for name in _CONTROLS]
    files = residue.scan_files(folder, needles, canary=max(told, key=len))
    rows = words.scan_rows(dsn, needles, canary=canary)
    return asdict(files) | {
        "files": files.files + rows.files,
        "bytes_scanned": files.bytes_scanned + rows.bytes_scanned,
        "hits": [asdict(hit) for hit in (*files.hits, *rows.hits)],
        "control_found": files.control_found and rows.control_found,
    }


def look(request: Mapping[str, Any], texts: Sequence[bytes], files_not_known: int) -> dict[str, Any]:
    """What is left of an erasure: in rows, and where a checker may look, in pages and in the log."""
    folder = Path(request["folder"])
    gone, looked, probe, settings = (
        import_module(f"{_AUDITOR}.{name}") for name in ("pg_gone", "pg_looked", "pg_probe", "settings")
    )
    dsn = database_of(folder)
    numbers = {name: tuple(request[name]) for name in ("seqs", "ledger", "requests")}
    erased = gone.Erased(request["tenant"], texts=tuple(texts), **numbers)
    rows = gone.count_rows(dsn, erased)
    checker = settings.place_in_settings(folder, "database_checker")
    seen, may_look = looked.Looked(), checker is not None
    if checker is not None:
        try:
            seen = looked.look_for(checker, dsn, erased, request["since"])
        except probe.NotAllowedError:
            may_look = False
    answer: dict[str, Any] = looked.as_answer(seen)
    return answer | {
        "remaining": rows.remaining,
        "rows_planted": rows.planted,
        "rows_found": rows.found,
        "looked": may_look,
        "files_not_known": files_not_known,
    }
