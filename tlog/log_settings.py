"""What a log is told when it is opened, and what it answers when it has published."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from tlog.mirror import Mirror
from tlog.note import NoteSigner, SignatureLine
from tlog.policy import Policy
from tlog.staging import Head
from tlog.statement import entry_identity

CosignFunction = Callable[[bytes, Callable[[int], tuple[bytes, ...]], int, float], tuple[SignatureLine, ...]]
"""(note, prove(old_size) -> consistency proof, previous_size, deadline_seconds) -> cosignature lines."""


def _no_failure(_: str) -> None:
    return None


def _nothing_else() -> None:
    return None


@dataclass(frozen=True)
class LogSettings:
    """What a log is and who signs for it.

    `known_heads` are asked before the first signature after opening: the heads of this log that witnesses hold.
    The iteration raises UnavailableError at its end if too few of them answered. `identify` says by what an entry
    is known to be in the log already. `failpoint` is called with the name of each step done, for tests that stop
    there. `mirror` gets everything before it is public. `still` is called once a publication has its lock, before
    anything is signed, and raises if the log was told something else meanwhile.
    """

    origin: str
    note_signers: tuple[NoteSigner, ...]
    cosign: CosignFunction | None = None
    policy: Policy | None = None
    clock: Callable[[], int] = lambda: int(time.time())
    known_heads: Callable[[], Iterable[Head]] | None = None
    identify: Callable[[bytes], bytes] = entry_identity
    failpoint: Callable[[str], None] = _no_failure
    mirror: Mirror | None = None
    still: Callable[[], None] = _nothing_else


@dataclass(frozen=True)
class Published:
    """What was made public: `witnessed` if the policy asks for a quorum, which then has cosigned."""

    note: bytes
    size: int
    root: bytes
    state: Literal["logged", "witnessed"]
    published_at: int = field(default=0)
