"""A witness without its HTTP: a request's bytes in, cosignatures or the refusal out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tlog.checkpoint import format_checkpoint
from tlog.cosignature import Cosigner
from tlog.errors import UnavailableError
from tlog.note import SignatureLine, add_signatures, format_note, parse_note
from witness.decide import Refuse, cosignature_time, decide
from witness.store import Cosigned, Store
from witness.wire import parse_add_checkpoint

MAX_ATTEMPTS = 5


class Witness:
    """Cosigns what follows from what it cosigned before. Threads may share one, processes a state."""

    def __init__(
        self,
        store: Store,
        cosigners: Sequence[Cosigner],
        clock: Callable[[], int] = lambda: int(time.time()),
        failpoint: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`clock` gives seconds since 1970; `failpoint` is told `signed` and `stored`, to test crashes."""
        self._store = store
        self._cosigners = tuple(cosigners)
        self._clock = clock
        self._failpoint = failpoint

    def add_checkpoint(self, body: bytes) -> tuple[SignatureLine, ...] | Refuse:
        """The cosignatures of the submitted checkpoint, durably recorded before they are returned.

        Raises MalformedError for a body that is not a request, UnavailableError where another try may help.
        """
        request = parse_add_checkpoint(body)
        # Signed is the checkpoint as parsed, never bytes that another parser might read otherwise.
        text = format_checkpoint(request.checkpoint)
        for _ in range(MAX_ATTEMPTS):
            log = self._store.log(request.checkpoint.origin)
            last = log.cosigned if log else None
            decision = decide(last.head if last else None, request, log.keys if log else ())
            now = self._clock()
            if isinstance(decision, Refuse):
                if last and decision.suspect:
                    self._store.record_evidence(request.checkpoint.origin, last, decision.suspect, now)
                return decision
            timestamp = cosignature_time(now, last.time if last else None)
            if last and (last.head, last.time) == (decision.head, timestamp):
                # Signed in this very second: repeats of a public checkpoint cost neither signature nor flush.
                return last.cosignatures
            lines = tuple(cosigner.cosign(text, timestamp) for cosigner in self._cosigners)
            self._failpoint("signed")
            new = Cosigned(decision.head, timestamp, format_note(decision.note), lines)
            if self._store.advance(request.checkpoint.origin, last, new):
                self._failpoint("stored")
                return lines
            # Another request was stored first: the signature is dropped, and the request judged anew.
        raise UnavailableError("witness: too many requests for this log at once; try again")

    def checkpoint(self, digest: bytes) -> bytes | None:
        """The last cosigned checkpoint of the log whose origin hashes to `digest`, log's and own lines."""
        log = self._store.log_by_digest(digest)
        if log is None or log.cosigned is None:
            return None
        return format_note(add_signatures(parse_note(log.cosigned.note), log.cosigned.cosignatures))
