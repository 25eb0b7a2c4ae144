"""Which files hold partial tiles that have become full, found in few looks however many tiles there are.

A look at a bucket is a request that costs as much as ten reads, so a folder of up to a thousand tiles is listed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tlog.storage import Storage

LISTED_SINGLY: Final = 4
_PARTIAL: Final = ".p/"


def partials_of(public: Storage, full: Sequence[str]) -> list[str]:
    """The paths of all partial tiles and bundles of the full ones at these paths."""
    if len(full) <= LISTED_SINGLY:
        return [name for path in full for name in public.names(f"{path}{_PARTIAL}")]
    wanted = set(full)
    folders = sorted({path.rpartition("/")[0] for path in full})
    names = (name for folder in folders for name in public.names(f"{folder}/"))
    return [name for name in names if _PARTIAL in name and name.partition(_PARTIAL)[0] in wanted]
