"""A log's public files as they are at one checkpoint, from a folder, a bucket or a URL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tlog.bucket_reader import BucketReader, is_bucket
from tlog.claims import LogCopy
from tlog.client import UrlReader, folder_reader, limit_of
from tlog.errors import UnavailableError

_CHECKPOINT: Final = "checkpoint"


def read_copy(place: str) -> LogCopy:
    """The log at a place, whatever it publishes meanwhile; the folder may be that of a home, whose log it then is."""
    read: Callable[[str], bytes | None]
    if is_bucket(place):
        read = BucketReader(place, limit_of)
    elif "://" in place:
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
