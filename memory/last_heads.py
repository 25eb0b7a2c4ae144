"""The heads of a home's log that its witnesses hold, and whether enough of them were heard to believe in no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tlog.errors import UnavailableError

if TYPE_CHECKING:
    from tlog.policy import Policy
    from tlog.staging import Head

WAIT_SECONDS: Final = 3.0


def witnessed_heads(policy: Policy, origin: str) -> Iterator[Head]:
    """The heads of the log that its witnesses serve: one that we do not extend would make our next a fork.

    Raises UnavailableError after the last if those that were silent could have made the quorum by themselves: a
    head that was published may then be known to none that answered. If they could not, each quorum that ever
    cosigned a head under this policy has a member that did answer.
    """
    from tlog.policy import satisfied_by
    from tlog.staging import Head
    from witness.client import hear_heads

    heard = hear_heads(policy, origin, WAIT_SECONDS)
    for one in heard.heads:
        yield Head(one.opened.checkpoint.size, one.opened.checkpoint.root)
    if policy.quorum is not None and satisfied_by(policy, heard.silent):
        raise UnavailableError(
            "log: too few of the policy's witnesses say what they last saw of it; nothing is signed before they do",
            code="witness_quorum_not_met",
            silent=len(heard.silent),
            retry_after_seconds=10,
        )
