"""The heads of a log that its own files, its mirror and its witnesses know: what comes next has to extend them all.

A copy of a log that was rolled back, or that grows beside the original, does not know it. Whoever has seen more
does; so they are asked before anything is signed, and before anything is written where the public reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tlog import merkle, staging
from tlog.errors import MalformedError, UnavailableError, VerificationError
from tlog.note import parse_note
from tlog.staging import Head, State
from tlog.storage import Storage

if TYPE_CHECKING:
    from tlog.log_settings import LogSettings
    from tlog.mirror import Mirrored

CHECKPOINT: Final = "checkpoint"
SIGNED: Final = "signed"


class KnownHeads:
    """What is known of one log, through one opening of it."""

    def __init__(self, public: Storage, private: Storage, settings: LogSettings) -> None:
        self._public = public
        self._private = private
        self._settings = settings
        self._witnesses_asked = False

    def published(self) -> Head:
        """The head of the public checkpoint; the empty one before the first publication."""
        data = self._public.read(CHECKPOINT)
        try:
            text = None if data is None else parse_note(data).text.encode()
        except MalformedError:
            raise VerificationError("log: the public checkpoint is not readable", code="log_state") from None
        return staging.parse_head(text, self._settings.origin)

    def signed(self) -> Head:
        """The head that was signed last; the empty one before the first signature."""
        return staging.parse_head(self._private.read(SIGNED), self._settings.origin)

    def mirrored(self) -> Mirrored | None:
        """What the mirror holds, asked each time: another copy of this log may have written to it since."""
        return None if self._settings.mirror is None else self._settings.mirror.seen()

    def require_extended(self, state: State, mirrored: Mirrored | None) -> None:
        """Returns if the state extends every head that was signed, published or seen elsewhere.

        The witnesses are asked until enough of them have answered, once each opening. Raises UnavailableError
        where too few do: the head that would show a fork may be one that only the silent have seen.
        """
        for head in (self.signed(), self.published(), *(() if mirrored is None else (mirrored.head,))):
            _require_extends(state, head)
        if not self._witnesses_asked:
            for head in self._settings.known_heads() if self._settings.known_heads else ():
                _require_extends(state, head)
            self._witnesses_asked = True

    def settled_size(self, size: int) -> int:
        """How much of a committed log of `size` may be written where the public reads, without asking anybody."""
        if self._witnesses_asked or not (self._settings.known_heads or self._settings.mirror):
            return size
        return min(size, max(self.signed().size, self.published().size))

    def require_not_rolled_back(self, state: State) -> None:
        """Returns unless somebody who answers knows a head that the state does not extend.

        For what comes before a signature: that entries are taken in does not wait for witnesses.
        """
        try:
            self.require_extended(state, self.mirrored())
        except UnavailableError:
            return


def _require_extends(state: State, head: Head) -> None:
    if head.size > state.head.size or merkle.tree_root(head.size, state.read_hashes) != head.root:
        raise VerificationError(
            "log: does not extend a head of it that its witnesses, its mirror or its own files know; nothing is"
            " signed. Bring the newer files back: muniment log restore --from the mirror, or a later copy",
            code="rolled_back",
            size=head.size,
        )
