"""Asking the witnesses of a policy for cosignatures: all at once, until the quorum is reached or time is up.

A witness is believed in nothing but its signature: a line counts once it verifies, a size in a conflict only
serves to make a proof, and a witness that hangs, lies or talks on is left behind at the deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tlog.checkpoint import OpenedCheckpoint, open_checkpoint, parse_checkpoint
from tlog.cosignature import Cosignature
from tlog.errors import Error, MalformedError, UnavailableError, VerificationError
from tlog.note import Note, SignatureLine, parse_note
from tlog.policy import Policy, verify_cosignatures
from witness.exchange import Exchanges, Reply
from witness.go_on import go_on
from witness.remembered import Known, Lie, Remembered
from witness.round import MAX_RETRIES, Answers, Asked, Clock, Failure, Heard, Prove, Round
from witness.wire import MAX_ANSWER_BYTES, MAX_BODY_BYTES, origin_digest

__all__ = [
    "MAX_RETRIES",
    "Answers",
    "CosignFunction",
    "Failure",
    "Heard",
    "HeardHeads",
    "WitnessedHead",
    "ask_witnesses",
    "collect_cosignatures",
    "fetch_heads",
    "hear_heads",
    "make_cosign",
]

CosignFunction = Callable[[bytes, Prove, int, float], tuple[SignatureLine, ...]]
"""(note, prove, previous size, deadline in seconds) to the cosignatures that were had."""


def now_seconds() -> int:
    """Seconds since 1970."""
    return int(time.time())


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
    clock: Clock = now_seconds,
) -> CosignFunction:
    """The function with which a log has its heads cosigned by the witnesses of `policy`.

    With `remembered` each witness is asked from the size it was last heard at, and its lies are kept. In each
    round `on_heard` is told once how it ended for every witness that is asked, `on_failure` of those that
    failed or lied. Of those slower than the quorum `on_heard` is told that they are `waiting`, and of their end
    from another thread, which listens on until the deadline.
    """

    def tell(answers: Answers) -> None:
        for failure in (*answers.failures, *(Failure(lie.names, "lied") for lie in answers.lies)):
            on_failure(failure)
        for heard in (*answers.heard, *(Heard(name, "lied") for lie in answers.lies for name in lie.names)):
            on_heard(heard)

    def cosign(
        note: bytes, prove: Prove, previous_size: int, deadline_seconds: float
    ) -> tuple[SignatureLine, ...]:
        asking = _Asking(policy, note, prove, remembered, clock)
        answers = asking.collect(previous_size, deadline_seconds)
        tell(answers)
        if any(heard.outcome == "waiting" for heard in answers.heard):
            go_on(lambda: asking.hear_late(tell))
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
    clock: Clock = now_seconds,
) -> Answers:
    """The cosignatures of a log's signed checkpoint, had from all witnesses of the policy in parallel.

    Ends at the quorum (with none: when all have answered) or at the deadline. `previous_size` is what the
    witnesses of which nothing is remembered are thought to have cosigned last; `prove` is called in this
    thread only. Those slower than the quorum go on until the deadline in the background, so that they too have
    seen the head; what they say is not heard.
    """
    return _Asking(policy, note, prove, remembered, clock).collect(previous_size, deadline_seconds)


class _Asking:
    """One round over the network, and what of it is kept."""

    def __init__(
        self, policy: Policy, note: bytes, prove: Prove, remembered: Remembered | None, clock: Clock
    ) -> None:
        self._policy = policy
        self._remembered = remembered
        parsed = parse_note(note)
        self._origin = parse_checkpoint(parsed.text).origin
        self._kept = remembered.load(self._origin) if remembered else Known()
        self._round = Round(policy, parsed, prove, self._kept, clock)
        self._exchanges: Exchanges[Asked]

    def collect(self, previous_size: int, deadline_seconds: float) -> Answers:
        """What was had at the quorum or the deadline."""
        round_, size = self._round, self._round.checkpoint.size
        if not 0 <= previous_size <= size:
            raise MalformedError("witnesses: expected a previous size from 0 to the checkpoint's size")
        exchanges = self._exchanges = Exchanges(deadline_seconds, MAX_ANSWER_BYTES)
        try:
            for url, names in _names_by_url(self._policy).items():
                old_size = min(self._kept.sizes.get(url, previous_size), size)
                round_.ask(exchanges, Asked(url, names, old_size, began=time.monotonic()))
            while not round_.satisfied() and (ended := exchanges.next()) is not None:
                round_.hear(exchanges, *ended)
        finally:
            exchanges.close()
            self._keep(round_.lies)
        for asked in exchanges.waiting():
            if round_.satisfied():
                round_.ended(asked, "waiting")
            else:
                round_.late(asked)
        return round_.answers()

    def hear_late(self, tell: Callable[[Answers], None]) -> None:
        """Tells what those say that were waited for no longer, one after another, until the deadline.

        What cannot be kept is told none the less: it is nothing that a publication could fail of any more.
        """
        while (ended := self._exchanges.next()) is not None:
            answers = self._round.hear_late(*ended)
            with suppress(Error):
                self._keep(answers.lies)
            tell(answers)
        for asked in self._exchanges.waiting():
            tell(self._round.hear_late(asked, UnavailableError("no answer before the deadline", code="late")))

    def _keep(self, lies: Sequence[Lie]) -> None:
        if self._remembered:
            known = self._round.known()
            self._remembered.save(self._origin, self._kept, known)
            self._kept = known
            for lie in lies:
                self._remembered.keep(lie)


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
    exchanges: Exchanges[Asked] = Exchanges(deadline_seconds, MAX_BODY_BYTES)
    heads = []
    silent = {name for names in _names_by_url(policy).values() for name in names}
    try:
        for url, names in _names_by_url(policy).items():
            path = f"{url}/{origin_digest(origin).hex()}/checkpoint"
            exchanges.start(Asked(url, names, 0), "GET", path)
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


def _names_by_url(policy: Policy) -> dict[str, tuple[str, ...]]:
    """The witnesses to ask. One that has a key of each type stands in a policy twice, and is asked once."""
    urls: dict[str, tuple[str, ...]] = {}
    for witness in policy.witnesses:
        if witness.url:
            url = witness.url.rstrip("/")
            urls[url] = (*urls.get(url, ()), witness.name)
    return urls
