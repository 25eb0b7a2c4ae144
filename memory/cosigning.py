"""How a home asks the witnesses of its policy: the HTTP client is loaded when it is first needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tlog.log import CosignFunction
    from tlog.note import SignatureLine
    from tlog.policy import Policy
    from witness.client import Failure


def cosign_when_asked(policy: Policy) -> CosignFunction:
    """What asks the policy's witnesses, each time, until the quorum or the deadline."""

    def cosign(
        note: bytes, prove: Callable[[int], tuple[bytes, ...]], previous_size: int, deadline_seconds: float
    ) -> tuple[SignatureLine, ...]:
        from witness.client import make_cosign

        return make_cosign(policy, _say_failure)(note, prove, previous_size, deadline_seconds)

    return cosign


def _say_failure(failure: Failure) -> None:
    """Says which witness did not cosign and why: the quorum may be met without it, and it is still amiss."""
    import logging

    status = "" if failure.status is None else f", status {failure.status}"
    logging.getLogger("muniment").warning("witness %s: %s%s", ", ".join(failure.names), failure.code, status)
