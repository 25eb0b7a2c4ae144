"""The log of a home brought up to a copy of it: its mirror, another folder or URL, or its own public files.

A database that is lost, or was put back, knows an older head than what it once published; the tiles know better.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from memory.chain import log_number
from memory.home_names import public_log
from memory.log_places import prepare_private
from tlog.errors import MalformedError, RefusedError
from tlog.known_heads import CHECKPOINT
from tlog.log_settings import LogSettings
from tlog.restore import Restored, Source, open_source, restore_log

if TYPE_CHECKING:
    from memory.wiring import Home

OUTBOX: Final = "outbox"


def bring_up(home: Home, place: str) -> Restored:
    """What the log is now that it holds all that the copy in a folder or at a URL does; nobody publishes meanwhile.

    Raises what `restore_log` raises, before anything is changed, where the histories differ.
    """
    with open_source(place) as source:
        return _bring_up(home, source)


def bring_up_to_public(home: Home) -> Restored:
    """The same of the log's own public files, which are as they are if nothing was put back."""
    prepare_private(home.config)
    public = home.public_storage()
    if public.read(CHECKPOINT) is None:
        return _unchanged(home)
    try:
        return _bring_up(home, Source(public.read, ()))
    except RefusedError as error:
        if error.code != "not_newer":
            raise
        return _unchanged(home)


def place_of(home: Home, place: str | None) -> str | None:
    """Where the copy is: the mirror where none is named, and None where there is no mirror either."""
    place = home.config.mirror if place is None else place
    if place is None or "://" in place:
        return place
    number = log_number(home.config)
    folder = Path(place).expanduser().absolute()
    if (folder / public_log(number + 1)).is_dir():
        raise RefusedError(
            "log restore: the copy has a log that took this one's place; its key is not in this home",
            code="frozen",
        )
    within = folder / public_log(number)
    return str(within if within.is_dir() else folder)


def no_copy() -> MalformedError:
    """What there is to say where no copy is named, and there is none."""
    return MalformedError("expected --from DIR|URL: this home has no mirror to restore from")


def _bring_up(home: Home, source: Source) -> Restored:
    prepare_private(home.config)
    private = home.private_storage()
    settings = LogSettings(home.origin, (home.log_signer(),), policy=home.policy())
    with private.lock(OUTBOX):
        return restore_log(source, home.public_storage(), private, settings)


def _unchanged(home: Home) -> Restored:
    head = home.log().head()
    return Restored(head, head.size, 0)
