"""What the witnesses of a policy said of one checkpoint: taken in reply by reply, and judged.

A witness is believed in nothing but its signature: a line counts once it verifies and its time is plausible, a
size in a conflict only serves to make a proof.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tlog.checkpoint import parse_checkpoint
from tlog.cosignature import MAX_CLOCK_SKEW_SECONDS, Cosignature, verify_cosignature
from tlog.errors import Error, MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.note import Note, format_note, known_lines, parse_note
from tlog.policy import Policy, satisfied_by
from witness.exchange import Exchanges, Reply
from witness.remembered import Kind, Known, Lie, cosigned_note, find_lie
from witness.wire import format_add_checkpoint, parse_conflict, parse_cosignatures

MAX_RETRIES: Final = 2
MISDATED: Final = "misdated"
UNTIMED: Final = ("missing", "waiting")

Clock = Callable[[], int]
"""Seconds since 1970."""

Prove = Callable[[int], tuple[bytes, ...]]
"""The consistency proof from an older size to that of the checkpoint being cosigned."""


@dataclass(frozen=True)
class Failure:
    """Why a witness, named as the policy names it, gave no cosignature.

    `code`: unreachable, late, malformed, not_verified, refused (with `status`), fork (it says that it has
    cosigned another root of this size), ahead (that it has cosigned a larger head than ours: `size`),
    conflict (it names one size after another), misdated (its time is not that of this round, by our clock) or
    lied (evidence is kept).
    """

    names: tuple[str, ...]
    code: str
    status: int | None = None
    size: int | None = None


@dataclass(frozen=True)
class Heard:
    """How it ended for one witness of the policy, and how long it took from the first request on.

    `outcome` is `cosigned`, the code of a `Failure`, or, without a time, `missing` where it gave no line by
    this key and that is no failure, or `waiting` where the quorum was had before it had answered.
    """

    name: str
    outcome: str
    seconds: float | None = None


@dataclass(frozen=True)
class Answers:
    """What the witnesses said: each cosignature is verified, one at most for each key of the policy.

    A cosignature counts even where it shows that the witness lied (`lies`): to leave that witness out of the
    policy is for people to decide.
    """

    cosignatures: tuple[Cosignature, ...]
    failures: tuple[Failure, ...]
    lies: tuple[Lie, ...] = ()
    heard: tuple[Heard, ...] = ()


@dataclass(frozen=True)
class Asked:
    """One request to the witness behind one URL, under the names that the policy has for its keys."""

    url: str
    names: tuple[str, ...]
    old_size: int
    retries: int = 0
    began: float = 0.0


class Round:
    """The asking for one checkpoint: what was had so far, and what the next reply means. One thread at a time."""

    def __init__(self, policy: Policy, note: Note, prove: Prove, known: Known, clock: Clock) -> None:
        self.checkpoint = parse_checkpoint(note.text)
        self.began = clock()
        self.sizes = dict(known.sizes)
        self.notes = dict(known.notes)
        self.lies: list[Lie] = []
        self.cosignatures: dict[str, Cosignature] = {}
        self.failures: list[Failure] = []
        self.heard: list[Heard] = []
        self._policy = policy
        self._note = note
        self._prove = prove
        self._clock = clock
        self._names = {witness.key: witness.name for witness in policy.witnesses}

    def satisfied(self) -> bool:
        """Whether what was had makes the quorum."""
        return self._policy.quorum is not None and satisfied_by(self._policy, self.cosignatures)

    def known(self) -> Known:
        """What is known of the witnesses by now."""
        return Known(dict(self.sizes), dict(self.notes))

    def answers(self) -> Answers:
        """What was had so far."""
        return Answers(
            tuple(self.cosignatures.values()), tuple(self.failures), tuple(self.lies), tuple(self.heard)
        )

    def ask(self, exchanges: Exchanges[Asked], asked: Asked) -> None:
        """Send one request."""
        # From size 0, and from the size itself, the proof is empty. tlog-witness, add-checkpoint.
        proof = self._prove(asked.old_size) if 0 < asked.old_size < self.checkpoint.size else ()
        body = format_add_checkpoint(asked.old_size, proof, self._note)
        exchanges.start(asked, "POST", f"{asked.url}/add-checkpoint", body)

    def hear(self, exchanges: Exchanges[Asked], asked: Asked, reply: Reply | UnavailableError) -> None:
        """Take in how one request ended, and ask again where another old size may help."""
        old_size = self._understand(asked, reply)
        if old_size is not None:
            self.ask(exchanges, replace(asked, old_size=old_size, retries=asked.retries + 1))

    def hear_late(self, asked: Asked, reply: Reply | UnavailableError) -> Answers:
        """Take in an answer that nobody waits for any more, ask no more, and give what it alone came to."""
        self.failures, self.lies, self.heard, self.cosignatures = [], [], [], {}
        if self._understand(asked, reply) is not None:
            self.ended(asked, "missing")
        return self.answers()

    def late(self, asked: Asked) -> None:
        """Note that it gave no answer in time."""
        self.failures.append(Failure(asked.names, "late"))
        self.ended(asked, "late")

    def ended(self, asked: Asked, otherwise: str) -> None:
        """Note how it ended: as said, but for those keys of the witness that cosigned."""
        passed = time.monotonic() - asked.began
        for name in asked.names:
            if name in self.cosignatures:
                self.heard.append(Heard(name, "cosigned", passed))
            else:
                self.heard.append(Heard(name, otherwise, None if otherwise in UNTIMED else passed))

    def _understand(self, asked: Asked, reply: Reply | UnavailableError) -> int | None:
        """The old size to ask again from; None where this was the end."""
        try:
            if isinstance(reply, UnavailableError):
                raise reply
            if reply.status == 409:
                return self._conflict_size(asked, reply)
            self._take(asked, reply)
            self.ended(asked, "missing")
        except Error as error:
            failure = _failure(asked.names, error)
            if isinstance(reply, Reply) and isinstance(error, VerificationError):
                kind: Kind = "misdated" if error.code == MISDATED else "not_verified"
                self._caught(kind, asked, format_note(self._note), reply.body)
            self.failures.append(failure)
            self.ended(asked, failure.code)
        return None

    def _conflict_size(self, asked: Asked, reply: Reply) -> int:
        """The size to prove from at the next try; RefusedError where no further try can help.

        Without these rules a witness could keep the log busy with conflicts, or have it make proofs of sizes
        that it never had.
        """
        size = parse_conflict(reply.content_type, reply.body)
        self.sizes[asked.url] = size
        self._notice_forgotten(asked, size, reply.body)
        if size > self.checkpoint.size:
            raise RefusedError("the witness has cosigned a larger head", code="ahead", size=size)
        if size == asked.old_size == self.checkpoint.size:
            # Before tlog-witness 1.1 this was the answer to another root of the same size.
            raise RefusedError("the witness has cosigned another head of this size", code="fork", status=409)
        if size == asked.old_size or asked.retries == MAX_RETRIES:
            raise RefusedError("the witness names one size after another", code="conflict", size=size)
        return size

    def _take(self, asked: Asked, reply: Reply) -> None:
        """Keep the cosignatures of a 200. One line of a known key that fails spoils them all."""
        if reply.status == 422 and asked.old_size == self.checkpoint.size:
            raise RefusedError("the witness has cosigned another head of this size", code="fork", status=422)
        if reply.status != 200:
            raise RefusedError("the witness refused", code="refused", status=reply.status)
        lines = known_lines(Note(self._note.text, parse_cosignatures(reply.body)), self._names)
        if not lines:
            raise VerificationError("no cosignature by a key of the policy")
        had = [verify_cosignature(line.key, line.line, self._note.text) for line in lines]
        self.sizes[asked.url] = self.checkpoint.size
        # Contradictions first: a wrong time must be no way to keep them from being noticed.
        honest = [cosignature for cosignature in had if not self._contradicts(asked, cosignature)]
        for cosignature in had:
            self._require_plausible(cosignature)
        for cosignature in had:
            self.cosignatures.setdefault(self._names[cosignature.key], cosignature)
        for cosignature in honest:
            self.notes[cosignature.key.vkey] = cosigned_note(self._note, [cosignature])

    def _contradicts(self, asked: Asked, cosignature: Cosignature) -> bool:
        earlier = self.notes.get(cosignature.key.vkey)
        found = find_lie(earlier.encode() if earlier else None, cosignature, self._note)
        if found:
            self._caught(found[0], asked, *found[1:])
        return found is not None

    def _require_plausible(self, cosignature: Cosignature) -> None:
        """Returns if it was made between the question and now, as far as two clocks can agree on that."""
        earliest, latest = self.began - MAX_CLOCK_SKEW_SECONDS, self._clock() + MAX_CLOCK_SKEW_SECONDS
        if not earliest <= cosignature.timestamp <= latest:
            raise VerificationError("cosignature: expected the time at which it was asked for", code=MISDATED)

    def _notice_forgotten(self, asked: Asked, size: int, body: bytes) -> None:
        """A witness that names a smaller size than that of a head it cosigned has lost its state, or lies."""
        for key, name in self._names.items():
            note = self.notes.get(key.vkey)
            if note and name in asked.names and parse_checkpoint(parse_note(note.encode()).text).size > size:
                self._caught("forgot", asked, note.encode(), body)

    def _caught(self, kind: Kind, asked: Asked, earlier: bytes, later: bytes) -> None:
        self.lies.append(Lie(kind, asked.names, asked.url, earlier, later, self._clock()))


def _failure(names: tuple[str, ...], error: Error) -> Failure:
    code = error.code
    if isinstance(error, MalformedError):
        code = "malformed"
    elif isinstance(error, VerificationError) and code != MISDATED:
        code = "not_verified"
    status, size = error.fields.get("status"), error.fields.get("size")
    return Failure(
        names, code, status if isinstance(status, int) else None, size if isinstance(size, int) else None
    )
