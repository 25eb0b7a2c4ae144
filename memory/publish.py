"""From the outbox to a public checkpoint, in steps of which each may be the last before a crash.

    outbox → log.append (once, by issuer and commitment) → entry index back to the store → log.publish

A statement leaves the outbox only with the index that the log durably gave it. Asked again, the log gives the
same index, so the next publication repairs a crash between the two and nothing stands in the log twice.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from memory.layout import CHECKPOINT
from memory.state_statement import add_state_if_due
from tlog.ascii import encode_base64
from tlog.errors import RefusedError, VerificationError

if TYPE_CHECKING:
    from memory.store import Store
    from memory.wiring import Home
    from tlog.log import Log

BATCH: Final = 1024
_LOCK: Final = "outbox"
_TURN: Final = "turn"


def publish(home: Home, deadline_seconds: float) -> dict[str, Any]:
    """Size, root and state of the checkpoint that covers every statement made before the call.

    One process at a time empties the outbox; others wait. Raises UnavailableError with code
    `witness_quorum_not_met` if the policy's witnesses did not cosign in time: the statements are then in the
    log, and the public checkpoint is the one it was.
    """
    home.state.settle()
    log = home.log()
    try:
        return _publish(home, deadline_seconds)
    except RefusedError as error:
        # Another process let a new log take this one's place while we waited for our turn.
        if error.code != "frozen":
            raise
        home.state.follow()
        if home.log() is log:
            raise RefusedError(
                "the log is frozen, and the one that takes its place is not the home's yet: what ended before that"
                " goes on with muniment log succeed",
                code="frozen",
            ) from None
        return _publish(home, deadline_seconds)


def _publish(home: Home, deadline_seconds: float) -> dict[str, Any]:
    deadline = time.monotonic() + deadline_seconds
    store, log = home.parts().store, home.log()
    if home.config.root is not None:
        from memory.key_rotation import announce

        announce(home)
    with log.private.lock(_LOCK, deadline_seconds):
        log.require_not_rolled_back()
        add_state_if_due(home)
        drain(store, log, home.first_position)
    published = log.publish(max(deadline - time.monotonic(), 0.001))
    return {"size": published.size, "root": encode_base64(published.root), "state": published.state}


def drain(store: Store, log: Log, first_position: int = 0) -> int:
    """How many statements went from the outbox to the log: at least all that were there at the beginning.

    The log's first entry has `first_position` in the store: there are logs before it.
    """
    _require_same_log(store, log, first_position)
    moved = 0
    while True:
        with store.read_whole() as view:
            rows = view.unlogged(BATCH)
        if not rows:
            return moved
        indexes = log.append([row.entry for row in rows])
        with store.write_whole() as txn:
            places = (first_position + index for index in indexes)
            txn.set_entry_indexes([(row.seq, place) for row, place in zip(rows, places, strict=True)])
        moved += len(rows)
        if len(rows) < BATCH:
            return moved


def publish_if_needed(home: Home, deadline_seconds: float) -> dict[str, Any] | None:
    """What `publish` answers, None if there is nothing new. Some facts get their vectors, if the settings want any,
    whether there was anything to publish or not, and also where the witnesses did not answer.

    Raises VerificationError with code `rolled_back` where the database lacks an erasure that the log tells of: then
    the home is closed, and who uses it next is told the same.
    """
    _require_not_put_back(home)
    try:
        if is_published(home):
            return None
        # Of many that publish at one cadence one does; the others find it done when their turn comes.
        with home.log().private.lock(_TURN, deadline_seconds):
            return None if is_published(home) else publish(home, deadline_seconds)
    finally:
        if home.config.semantic != "off":
            from memory.semantic_index import AT_A_TURN, catch_up

            catch_up(home.parts(), AT_A_TURN)


def _require_not_put_back(home: Home) -> None:
    if home.config.database is None:
        return
    from memory.assembly import require_not_put_back

    # Also of a home whose bucket did not answer when it was opened, and of one that was open meanwhile.
    try:
        require_not_put_back(home.parts())
    except VerificationError:
        home.close()
        raise


def is_published(home: Home) -> bool:
    """Whether the outbox is empty and the public checkpoint covers the whole log."""
    from tlog.checkpoint import parse_checkpoint
    from tlog.note import parse_note

    with home.parts().store.read_whole() as view:
        if view.unlogged(1):
            return False
        logged = view.last_logged_index() + 1 - home.first_position
    data = home.public_storage().read(CHECKPOINT)
    if data is None:
        # A log that took over has its first entry to show, before any statement is in it.
        return logged <= 0 and not home.config.frozen
    return parse_checkpoint(parse_note(data).text).size >= logged


def _require_same_log(store: Store, log: Log, first_position: int) -> None:
    """Returns if the log still has every entry that the store knows to be in it."""
    with store.read_whole() as view:
        last = view.last_logged_index()
    size = log.head().size
    if last >= first_position + size:
        # An older copy of the log's folders beside a newer store: what comes next would fork the log.
        raise VerificationError(
            "the log is shorter than the store knows it; nothing is added to it",
            code="rolled_back",
            size=size,
        )
