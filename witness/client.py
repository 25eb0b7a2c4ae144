"""Asking the witnesses of a policy for cosignatures: all at once, until the quorum is reached or time is up.

A witness is believed in nothing but its signature: a line counts once it verifies, a size in a conflict only
serves to make a proof, and a witness that hangs, lies or talks on is left behind at the deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tlog.checkpoint import Checkpoint, OpenedCheckpoint, open_checkpoint, parse_checkpoint
from tlog.cosignature import Cosignature, verify_cosignature
from tlog.errors import Error, MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.note import Note, SignatureLine, format_note, known_lines, parse_note
from tlog.policy import Policy, satisfied_by, verify_cosignatures
from witness.exchange import Exchanges, Reply
from witness.remembered import Kind, Known, Lie, Remembered, cosigned_note, find_lie
from witness.wire import (
    MAX_ANSWER_BYTES,
    MAX_BODY_BYTES,
    format_add_checkpoint,
    origin_digest,
    parse_conflict,
    parse_cosignatures,
)

MAX_RETRIES = 2

Prove = Callable[[int], tuple[bytes, ...]]
"""The consistency proof from an older size to that of the checkpoint being cosigned."""

CosignFunction = Callable[[bytes, Prove, int, float], tuple[SignatureLine, ...]]
"""(note, prove, previous size, deadline in seconds) to the cosignatures that were had."""


@dataclass(frozen=True)
class Failure:
    """Why a witness, named as the policy names it, gave no cosignature.

    `code`: unreachable, late, malformed, not_verified, refused (with `status`), fork (it says that it has
    cosigned another root of this size), ahead (that it has cosigned a larger head than ours: `size`),
    conflict (it names one size after another) or lied (evidence is kept).
    """

    names: tuple[str, ...]
    code: str
    status: int | None = None
    size: int | None = None


@dataclass(frozen=True)
class Heard:
    """How it ended for one witness of the policy, and how long it took from the first request on.

    `outcome` is `cosigned`, the code of a `Failure`, or `missing`, without a time, where the quorum was had
    before it had answered.
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
class WitnessedHead:
    """A log's last head as a witness serves it, signed by the log; the cosignatures are those by the policy's keys."""

    names: tuple[str, ...]
    opened: OpenedCheckpoint
    cosignatures: tuple[Cosignature, ...]


@dataclass(frozen=True)
class HeardHeads:
    """The heads that witnesses serve, and the witnesses, as the policy names them, that gave no answer."""

    heads: tuple[WitnessedHead, ...]
    silent: tuple[str, ...]


def make_cosign(
    policy: Policy,
    on_failure: Callable[[Failure], None] = lambda failure: None,
    remembered: Remembered | None = None,
    on_heard: Callable[[Heard], None] = lambda heard: None,
) -> CosignFunction:
    """The function with which a log has its heads cosigned by the witnesses of `policy`.

    With `remembered` each witness is asked from the size it was last heard at, and its lies are kept. In each
    round `on_heard` is told once of every witness that is asked, `on_failure` of those that failed or lied.
    """

    def cosign(
        note: bytes, prove: Prove, previous_size: int, deadline_seconds: float
    ) -> tuple[SignatureLine, ...]:
        answers = collect_cosignatures(policy, note, prove, previous_size, deadline_seconds, remembered)
        for failure in (*answers.failures, *(Failure(lie.names, "lied") for lie in answers.lies)):
            on_failure(failure)
        for heard in (*answers.heard, *(Heard(name, "lied") for lie in answers.lies for name in lie.names)):
            on_heard(heard)
        return tuple(cosignature.line for cosignature in answers.cosignatures)

    return cosign


def ask_witnesses(
    policy: Policy, note: bytes, prove: Prove, previous_size: int, deadline_seconds: float
) -> tuple[SignatureLine, ...]:
    """The verified cosignature lines had in time; the caller checks whether they make the quorum."""
    return make_cosign(policy)(note, prove, previous_size, deadline_seconds)


def collect_cosignatures(
    policy: Policy,
    note: bytes,
    prove: Prove,
    previous_size: int,
    deadline_seconds: float,
    remembered: Remembered | None = None,
) -> Answers:
    """The cosignatures of a log's signed checkpoint, had from all witnesses of the policy in parallel.

    Ends at the quorum (with none: when all have answered) or at the deadline. `previous_size` is what the
    witnesses of which nothing is remembered are thought to have cosigned last; `prove` is called in this
    thread only. Those slower than the quorum go on until the deadline in the background, so that they too have
    seen the head.
    """
    parsed = parse_note(note)
    checkpoint = parse_checkpoint(parsed.text)
    known = remembered.load(checkpoint.origin) if remembered else Known()
    round_ = _Round(policy, parsed, checkpoint, prove, known)
    if not 0 <= previous_size <= checkpoint.size:
        raise MalformedError("witnesses: expected a previous size from 0 to the checkpoint's size")
    exchanges: Exchanges[_Asked] = Exchanges(deadline_seconds, MAX_ANSWER_BYTES)
    try:
        for url, names in _names_by_url(policy).items():
            old_size = min(known.sizes.get(url, previous_size), checkpoint.size)
            round_.ask(exchanges, _Asked(url, names, old_size, began=time.monotonic()))
        while not round_.satisfied() and (ended := exchanges.next()) is not None:
            round_.hear(exchanges, *ended)
    finally:
        exchanges.close()
        if remembered:
            remembered.save(checkpoint.origin, known, Known(round_.sizes, round_.notes))
            for lie in round_.lies:
                remembered.keep(lie)
    satisfied, waiting = round_.satisfied(), exchanges.waiting()
    for asked in waiting:
        round_.ended(asked, "missing" if satisfied else "late")
    failures = (*round_.failures, *(Failure(asked.names, "late") for asked in waiting if not satisfied))
    return Answers(tuple(round_.cosignatures.values()), failures, tuple(round_.lies), tuple(round_.heard))


def fetch_heads(policy: Policy, origin: str, deadline_seconds: float) -> tuple[WitnessedHead, ...]:
    """What the witnesses of the policy serve as a log's last head, as far as they answer and it verifies.

    A log that finds here a head larger than its own, or inconsistent with it, was rolled back or forked: the
    log's own signature says so, whatever the witness is worth.
    """
    return hear_heads(policy, origin, deadline_seconds).heads


def hear_heads(policy: Policy, origin: str, deadline_seconds: float) -> HeardHeads:
    """The same, and who said nothing that can be believed.

    To say that there is no such log (404) is an answer. A head that only the log signed counts too: who holds it
    has it from the log, whatever became of the cosignatures on it.
    """
    log_keys = [log.key for log in policy.logs if log.key.name == origin]
    exchanges: Exchanges[_Asked] = Exchanges(deadline_seconds, MAX_BODY_BYTES)
    heads = []
    silent = {name for names in _names_by_url(policy).values() for name in names}
    try:
        for url, names in _names_by_url(policy).items():
            path = f"{url}/{origin_digest(origin).hex()}/checkpoint"
            exchanges.start(_Asked(url, names, 0), "GET", path)
        while (ended := exchanges.next()) is not None:
            asked, reply = ended
            if isinstance(reply, Reply) and reply.status == 404:
                silent.difference_update(asked.names)
            if isinstance(reply, Reply) and reply.status == 200:
                try:
                    opened = open_checkpoint(reply.body, log_keys, origin)
                except (MalformedError, VerificationError):
                    continue
                heads.append(WitnessedHead(asked.names, opened, _cosignatures(policy, opened.note)))
                silent.difference_update(asked.names)
    finally:
        exchanges.close()
    return HeardHeads(tuple(heads), tuple(sorted(silent)))


def _cosignatures(policy: Policy, note: Note) -> tuple[Cosignature, ...]:
    try:
        return verify_cosignatures(policy, note)
    except VerificationError:
        return ()


@dataclass(frozen=True)
class _Asked:
    """One request to the witness behind one URL, under the names that the policy has for its keys."""

    url: str
    names: tuple[str, ...]
    old_size: int
    retries: int = 0
    began: float = 0.0


def _names_by_url(policy: Policy) -> dict[str, tuple[str, ...]]:
    """The witnesses to ask. One that has a key of each type stands in a policy twice, and is asked once."""
    urls: dict[str, tuple[str, ...]] = {}
    for witness in policy.witnesses:
        if witness.url:
            url = witness.url.rstrip("/")
            urls[url] = (*urls.get(url, ()), witness.name)
    return urls


class _Round:
    """The asking for one checkpoint: what was had so far, and what the next reply means."""

    def __init__(
        self, policy: Policy, note: Note, checkpoint: Checkpoint, prove: Prove, known: Known
    ) -> None:
        self.checkpoint = checkpoint
        self.sizes = dict(known.sizes)
        self.notes = dict(known.notes)
        self.lies: list[Lie] = []
        self.cosignatures: dict[str, Cosignature] = {}
        self.failures: list[Failure] = []
        self.heard: list[Heard] = []
        self._policy = policy
        self._note = note
        self._prove = prove
        self._names = {witness.key: witness.name for witness in policy.witnesses}

    def satisfied(self) -> bool:
        return self._policy.quorum is not None and satisfied_by(self._policy, self.cosignatures)

    def ask(self, exchanges: Exchanges[_Asked], asked: _Asked) -> None:
        # From size 0, and from the size itself, the proof is empty. tlog-witness, add-checkpoint.
        proof = self._prove(asked.old_size) if 0 < asked.old_size < self.checkpoint.size else ()
        body = format_add_checkpoint(asked.old_size, proof, self._note)
        exchanges.start(asked, "POST", f"{asked.url}/add-checkpoint", body)

    def hear(self, exchanges: Exchanges[_Asked], asked: _Asked, reply: Reply | UnavailableError) -> None:
        """Take in how one request ended, and ask again where another old size may help."""
        try:
            if isinstance(reply, UnavailableError):
                raise reply
            if reply.status != 409:
                self._take(asked, reply)
                self.ended(asked, "missing")
                return
            old_size = self._conflict_size(asked, reply)
        except Error as error:
            if isinstance(reply, Reply) and isinstance(error, VerificationError):
                self._caught("not_verified", asked, format_note(self._note), reply.body)
            failure = _failure(asked.names, error)
            self.failures.append(failure)
            self.ended(asked, failure.code)
            return
        # Outside the try: an error of our own log is not the witness's failure.
        self.ask(exchanges, replace(asked, old_size=old_size, retries=asked.retries + 1))

    def ended(self, asked: _Asked, otherwise: str) -> None:
        """Note how it ended: as said, but for those keys of the witness that cosigned."""
        seconds = None if otherwise == "missing" else time.monotonic() - asked.began
        for name in asked.names:
            if name in self.cosignatures:
                self.heard.append(Heard(name, "cosigned", time.monotonic() - asked.began))
            else:
                self.heard.append(Heard(name, otherwise, seconds))

    def _conflict_size(self, asked: _Asked, reply: Reply) -> int:
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

    def _take(self, asked: _Asked, reply: Reply) -> None:
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
        for cosignature in had:
            self.cosignatures.setdefault(self._names[cosignature.key], cosignature)
            vkey = cosignature.key.vkey
            earlier = self.notes.get(vkey)
            found = find_lie(earlier.encode() if earlier else None, cosignature, self._note)
            if found:
                self._caught(found[0], asked, *found[1:])
            else:
                self.notes[vkey] = cosigned_note(self._note, [cosignature])

    def _notice_forgotten(self, asked: _Asked, size: int, body: bytes) -> None:
        """A witness that names a smaller size than that of a head it cosigned has lost its state, or lies."""
        for key, name in self._names.items():
            note = self.notes.get(key.vkey)
            if note and name in asked.names and parse_checkpoint(parse_note(note.encode()).text).size > size:
                self._caught("forgot", asked, note.encode(), body)

    def _caught(self, kind: Kind, asked: _Asked, earlier: bytes, later: bytes) -> None:
        self.lies.append(Lie(kind, asked.names, asked.url, earlier, later))


def _failure(names: tuple[str, ...], error: Error) -> Failure:
    code = error.code
    if isinstance(error, MalformedError):
        code = "malformed"
    elif isinstance(error, VerificationError):
        code = "not_verified"
    status, size = error.fields.get("status"), error.fields.get("size")
    return Failure(
        names, code, status if isinstance(status, int) else None, size if isinstance(size, int) else None
    )
