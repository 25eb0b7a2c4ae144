"""A log's public files as they are at one checkpoint, from a folder or a URL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tlog.claims import LogCopy
from tlog.client import UrlReader, folder_reader
from tlog.errors import UnavailableError

_CHECKPOINT: Final = "checkpoint"


def read_copy(place: str) -> LogCopy:
    """The log at a place, whatever it publishes meanwhile; the folder may be that of a home, whose log it then is."""
    read: Callable[[str], bytes | None]
    if "://" in place:
        read = UrlReader(place)
    else:
        folder = Path(place)
        within = folder / "log"
        is_home = not (folder / _CHECKPOINT).exists() and within.is_dir()
        read = folder_reader(within if is_home else folder)
    note = read(_CHECKPOINT)
    if note is None:
        raise UnavailableError("log: has no checkpoint yet", code="no_checkpoint")
    return LogCopy(note, read)
