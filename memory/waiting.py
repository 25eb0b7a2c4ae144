"""Writes that wait until they are published: what they can wait for, and how their answer then reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from memory.answers import Answer, receipts
from tlog.errors import MalformedError, UnavailableError

if TYPE_CHECKING:
    from memory import edge
    from memory.parts import Parts

WAIT_SECONDS: Final = 30.0


def check_witnesses(parts: Parts, wait: edge.Wait | None) -> None:
    """Returns if the policy can give what is waited for."""
    if wait == "witnessed" and parts.home.policy().quorum is None:
        raise MalformedError(
            "expected a policy with a quorum to wait for: this home asks no witness; wait for logged, or set a policy"
        )


def waited(parts: Parts, answer: Answer, seq: int, wait: edge.Wait) -> Answer:
    """The answer to a write once it is published. The write stands whatever becomes of that.

    Raises UnavailableError if it waits for witnesses, and they have not cosigned in time.
    """
    try:
        parts.home.publish(WAIT_SECONDS)
        answer["waited"] = "published"
    except UnavailableError as error:
        answer["waited"] = error.code
    with parts.store.read_whole() as view:
        made = view.event_by_seq(seq)
    answer["receipt"] = receipts(parts).shape(None if made is None else made.entry_index)
    if wait == "witnessed" and answer["receipt"]["state"] != "witnessed":
        code = "witness_quorum_not_met" if answer["waited"] == "published" else str(answer["waited"])
        raise UnavailableError(
            f"the write is stored ({answer['id']}, {answer['outcome']}) and not witnessed yet; publish again later",
            code=code,
        )
    return answer
