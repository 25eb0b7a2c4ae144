"""How a home asks the witnesses of its policy: the HTTP client is loaded when it is first needed.

What is learnt of a witness is kept beside the log that learnt it: the size it was last heard at, the last head it
cosigned, and the evidence of its lies, of which a restart must make nobody innocent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from memory.chain import log_number
from memory.home_names import private_log
from tlog.storage import DirectoryStorage

if TYPE_CHECKING:
    from pathlib import Path

    from memory.config import Config
    from tlog.log import CosignFunction
    from tlog.note import SignatureLine
    from tlog.policy import Policy
    from witness.client import Failure, Heard

WITNESSES: Final = "witnesses"

OnWitness = Callable[[str, str, float | None], None]
"""(witness as the policy names it, outcome, seconds where known): told how it ended for each that was asked.

Of one that was slower than the quorum it is told `waiting`, and how it ended later, in another thread.
"""


class AskingHome(Protocol):
    """What asking witnesses needs of a home."""

    path: Path
    on_witness: OnWitness

    @property
    def config(self) -> Config: ...


def tell_nobody(witness: str, outcome: str, seconds: float | None) -> None:
    """Nothing: nobody counts what witnesses answer."""


def cosign_when_asked(home: AskingHome, policy: Policy) -> CosignFunction:
    """What asks the policy's witnesses, each time, until the quorum or the deadline."""

    def cosign(
        note: bytes, prove: Callable[[int], tuple[bytes, ...]], previous_size: int, deadline_seconds: float
    ) -> tuple[SignatureLine, ...]:
        from witness.client import make_cosign
        from witness.remembered import Remembered

        def heard(one: Heard) -> None:
            home.on_witness(one.name, one.outcome, one.seconds)

        remembered = Remembered(DirectoryStorage(witness_folder(home)))
        return make_cosign(policy, _say_failure, remembered, heard)(
            note, prove, previous_size, deadline_seconds
        )

    return cosign


def witness_folder(home: AskingHome) -> Path:
    """Where the log that grows keeps what it knows of its witnesses."""
    return home.path / private_log(log_number(home.config)) / WITNESSES


def _say_failure(failure: Failure) -> None:
    """Says which witness did not cosign and why: the quorum may be met without it, and it is still amiss."""
    import logging

    status = "" if failure.status is None else f", status {failure.status}"
    logging.getLogger("muniment").warning("witness %s: %s%s", ", ".join(failure.names), failure.code, status)
