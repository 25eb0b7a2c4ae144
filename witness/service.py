"""A witness without its HTTP: requests' bytes in, cosignatures or the refusals out.

Requests that arrive together are judged one after another and stored in one commit, whichever logs they are of.
What is answered rests on what is stored, and on nothing that is about to be: a head of the same batch can be
built upon, but neither its signature nor its size leaves before the commit that holds it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from tlog.checkpoint import format_checkpoint
from tlog.cosignature import Cosigner
from tlog.errors import Error, MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.note import SignatureLine, SignatureType, add_signatures, format_note, parse_note
from witness.decide import Accept, Refuse, cosignature_time, decide
from witness.limits import NO_LIMIT, HeadLimit
from witness.records import Advance, Cosigned, LogRecord
from witness.store import Store
from witness.subtree import BytesSigner, parse_sign_subtree, refuse_subtree, sign_subtree
from witness.wire import AddCheckpoint, parse_add_checkpoint

MAX_ATTEMPTS = 5
SIGNING_THREADS = 16

Answer = tuple[SignatureLine, ...] | Refuse


@dataclass(frozen=True)
class _Waiting:
    """A request that is not answered yet; `granted` once its log's rate was charged for it."""

    position: int
    request: AddCheckpoint
    granted: bool = False


@dataclass(frozen=True)
class _Accepted:
    """A request to cosign, and the head it follows."""

    waiting: _Waiting
    decision: Accept
    last: Cosigned | None
    time: int


class Witness:
    """Cosigns what follows from what it cosigned before. Threads may share one, processes a state."""

    def __init__(
        self,
        store: Store,
        cosigners: Sequence[Cosigner],
        clock: Callable[[], int] = lambda: int(time.time()),
        failpoint: Callable[[str], None] = lambda name: None,
        limit: HeadLimit = NO_LIMIT,
    ) -> None:
        """`clock` gives seconds since 1970; `failpoint` is told `signed` and `stored`, to test crashes."""
        self._store = store
        self._cosigners = tuple(cosigners)
        self._clock = clock
        self._failpoint = failpoint
        self._limit = limit

    def add_checkpoint(self, body: bytes) -> Answer:
        """The cosignatures of the submitted checkpoint, durably recorded before they are returned.

        Raises MalformedError for a body that is not a request, UnavailableError where another try may help.
        """
        answer = self.add_checkpoints((body,))[0]
        if isinstance(answer, Error):
            raise answer
        return answer

    def add_checkpoints(self, bodies: Sequence[bytes]) -> list[Answer | Error]:
        """What `add_checkpoint` returns or raises for each body, with one commit for them all."""
        answers: dict[int, Answer | Error] = {}
        waiting = []
        for position, body in enumerate(bodies):
            try:
                waiting.append(_Waiting(position, parse_add_checkpoint(body)))
            except MalformedError as error:
                answers[position] = error
        # Heads of one log that were sent at once may have overtaken each other on the way.
        waiting.sort(key=lambda one: (one.request.checkpoint.origin, one.request.old_size))
        for _ in range(MAX_ATTEMPTS):
            if not waiting:
                break
            waiting = self._attempt(waiting, answers)
        for one in waiting:
            answers[one.position] = UnavailableError(
                "witness: too many requests for this log at once; try again"
            )
        return [answers[position] for position in range(len(bodies))]

    def checkpoint(self, digest: bytes) -> bytes | None:
        """The last cosigned checkpoint of the log whose origin hashes to `digest`, log's and own lines."""
        log = self._store.log_by_digest(digest)
        if log is None or log.cosigned is None:
            return None
        return format_note(add_signatures(parse_note(log.cosigned.note), log.cosigned.cosignatures))

    def sign_subtree(self, body: bytes) -> Answer:
        """A signature of a part of a checkpoint's tree, of a checkpoint that this witness cosigned.

        RefusedError with code `not_offered` where no key of this witness can sign one.
        """
        signers = [one for one in self._cosigners if _signs_subtrees(one)]
        if not signers:
            raise RefusedError("this witness has no ML-DSA-44 key, and signs no subtrees", code="not_offered")
        request = parse_sign_subtree(body)
        log = self._store.log(request.checkpoint.origin)
        if log is None or not log.keys:
            return Refuse(404, "unknown_origin", "this witness does not know the checkpoint's origin")
        refusal = refuse_subtree(request, [one.verifier_key for one in self._cosigners])
        return refusal or sign_subtree(request, signers)  # type: ignore[arg-type]

    def _attempt(self, waiting: Iterable[_Waiting], answers: dict[int, Answer | Error]) -> list[_Waiting]:
        """Answers what can be answered, and gives what has to be judged anew, on what is stored then."""
        logs: dict[str, LogRecord | None] = {}
        accepted: list[_Accepted] = []
        again: list[_Waiting] = []
        for one in waiting:
            try:
                judged = self._judge(one, logs, {step.waiting.request.checkpoint.origin for step in accepted})
            except (RefusedError, UnavailableError, VerificationError) as error:
                answers[one.position] = error
                continue
            if judged is None:
                again.append(one)
            elif isinstance(judged, _Accepted):
                accepted.append(judged)
            else:
                answers[one.position] = judged
        return again + self._store_heads(accepted, answers)

    def _judge(
        self, one: _Waiting, logs: dict[str, LogRecord | None], unstored: set[str]
    ) -> _Accepted | Answer | None:
        """The answer, or the acceptance, or None where it would rest on a head that is not stored yet.

        `logs` are those of this attempt, as they will be once the acceptances so far are stored.
        """
        origin = one.request.checkpoint.origin
        if origin not in logs:
            logs[origin] = self._store.log(origin)
        log = logs[origin]
        last = log.cosigned if log else None
        decision = decide(last.head if last else None, one.request, log.keys if log else ())
        now = self._clock()
        if isinstance(decision, Refuse):
            if origin in unstored:
                return None
            if last and decision.suspect:
                self._store.record_evidence(origin, last, decision.suspect, now)
            return decision
        assert log is not None
        timestamp = cosignature_time(now, last.time if last else None)
        if last and (last.head, last.time) == (decision.head, timestamp):
            # Signed in this very second: repeats of a public checkpoint cost neither signature nor flush.
            return None if origin in unstored else last.cosignatures
        if not one.granted and (last is None or last.head != decision.head):
            self._limit.charge(log)
        logs[origin] = replace(
            log, cosigned=Cosigned(decision.head, timestamp, format_note(decision.note), ())
        )
        return _Accepted(replace(one, granted=True), decision, last, timestamp)

    def _store_heads(
        self, accepted: Sequence[_Accepted], answers: dict[int, Answer | Error]
    ) -> list[_Waiting]:
        """Signs and stores; answers with the signatures of what was taken, gives what was not."""
        steps: list[tuple[_Accepted, Advance]] = []
        for one, lines in zip(accepted, self._sign_all(accepted), strict=True):
            if isinstance(lines, Error):
                answers[one.waiting.position] = lines
                continue
            new = Cosigned(one.decision.head, one.time, format_note(one.decision.note), lines)
            origin = one.waiting.request.checkpoint.origin
            steps.append((one, Advance(origin, one.last, new)))
        if not steps:
            return []
        self._failpoint("signed")
        try:
            taken = self._store.advance_all([step for _, step in steps])
        except (UnavailableError, VerificationError) as error:
            answers.update((one.waiting.position, error) for one, _ in steps)
            return []
        self._failpoint("stored")
        answers.update(
            (one.waiting.position, step.new.cosignatures)
            for (one, step), stored in zip(steps, taken, strict=True)
            if stored
        )
        # Another process was first: the signature is dropped, and the request judged anew.
        return [one.waiting for (one, _), stored in zip(steps, taken, strict=True) if not stored]

    def _sign_all(self, accepted: Sequence[_Accepted]) -> list[tuple[SignatureLine, ...] | Error]:
        if len(accepted) > 1 and any(getattr(one, "waits", False) for one in self._cosigners):
            with ThreadPoolExecutor(SIGNING_THREADS) as threads:
                return list(threads.map(self._sign, accepted))
        return [self._sign(one) for one in accepted]

    def _sign(self, one: _Accepted) -> tuple[SignatureLine, ...] | Error:
        # Signed is the checkpoint as parsed, never bytes that another parser might read otherwise.
        text = format_checkpoint(one.waiting.request.checkpoint)
        try:
            return tuple(cosigner.cosign(text, one.time) for cosigner in self._cosigners)
        except (UnavailableError, RefusedError, VerificationError) as error:
            return UnavailableError(f"witness: a key can't sign at the moment: {error.message}", code="key")


def _signs_subtrees(cosigner: Cosigner | BytesSigner) -> bool:
    return cosigner.verifier_key.kind == SignatureType.MLDSA44 and hasattr(cosigner, "sign_bytes")
