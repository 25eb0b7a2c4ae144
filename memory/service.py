"""The facade: one handle on one home for one caller. Every surface speaks to this and to nothing below it.

Each method gives a dict that is ready for JSON; `receipt` and `opening` give bytes. Who asks is bound when the
handle is made: no argument widens it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from memory import reads
from memory.answers import Answer
from memory.edge import check_flag
from memory.model import Principal
from memory.times import parse_duration

if TYPE_CHECKING:
    from memory.give_opening import Given
    from memory.parts import Parts

PUBLISH_SECONDS: Final = 10.0


class Memory:
    """What one caller can do with one home."""

    def __init__(self, parts: Parts, principal: Principal) -> None:
        self._parts = parts
        self._principal = principal

    @property
    def principal(self) -> Principal:
        """Who asks."""
        return self._principal

    # Writing

    def remember(  # noqa: PLR0913 -- the options of one command, each of them by name
        self,
        text: str,
        *,
        key: str | None = None,
        value: str | None = None,
        subject: str | None = None,
        valid_from: str | int | None = None,
        valid_until: str | int | None = None,
        provisional: bool = False,
        many: bool = False,
        restatement: bool = False,
        source: str | None = None,
        idempotency_key: str | None = None,
        reaffirm: str | None = None,
        reason: str | None = None,
        wait: str | None = None,
    ) -> Answer:
        """What became of a write, once it is durable: its outcome, id, what it retired, and its receipt."""
        arguments = {
            "text": text,
            "key": key,
            "value": value,
            "subject": subject,
            "valid_from": valid_from,
            "valid_until": valid_until,
            "provisional": provisional,
            "many": many,
            "restatement": restatement,
            "source": source,
            "idempotency_key": idempotency_key,
            "reaffirm": reaffirm,
            "reason": reason,
            "wait": wait,
        }
        from memory.remember import remember

        return remember(self._parts, self._principal, arguments)

    def retract(self, id: str) -> Answer:
        """The fact is no longer true, and nothing stands in its place."""
        from memory import review

        return review.retract(self._parts, self._principal, id)

    # Reading

    def recall(
        self,
        query: str,
        *,
        limit: int = 10,
        as_of: str | int | None = None,
        as_recorded: str | int | None = None,
        include_history: bool = False,
    ) -> Answer:
        """The facts that fit the words of a query best, and how many were left out."""
        return reads.recall(
            self._parts,
            self._principal,
            query,
            limit=limit,
            as_of=as_of,
            as_recorded=as_recorded,
            include_history=include_history,
        )

    def get(
        self, key: str, *, as_of: str | int | None = None, as_recorded: str | int | None = None
    ) -> Answer:
        """The current value of a key, and every fact that is served of it."""
        return reads.get(self._parts, self._principal, key, as_of, as_recorded)

    def history(self, key: str, *, as_recorded: str | int | None = None) -> Answer:
        """Everything that was said about a key, each with what became of it."""
        return reads.history(self._parts, self._principal, key, as_recorded)

    def provenance(self, id: str) -> Answer:
        """Where a fact comes from, how far it is proved, and the limits of that."""
        from memory import provenance

        return provenance.provenance(self._parts, self._principal, id)

    def status(self) -> Answer:
        """Counts of the caller's scope and of the store, and how the log stands."""
        return reads.status(self._parts, self._principal)

    # Disagreement and review

    def conflicts(self) -> Answer:
        """The disagreements between clients that nobody has settled yet."""
        return reads.conflicts(self._parts, self._principal)

    def resolve(self, conflict: str, keep: str) -> Answer:
        """One fact of a conflict holds; the others are superseded."""
        from memory import review

        return review.resolve(self._parts, self._principal, conflict, keep)

    def review(self) -> Answer:
        """What is held or was refused and waits for a person."""
        return reads.review(self._parts, self._principal)

    def confirm(self, id: str) -> Answer:
        """A held fact is served from now on."""
        from memory import review

        return review.confirm(self._parts, self._principal, id)

    def discard(self, id: str) -> Answer:
        """A held or refused write is dropped."""
        from memory import review

        return review.discard(self._parts, self._principal, id)

    def reaffirm(self, id: str, reason: str | None = None) -> Answer:
        """A refused value holds again, says a person with that right."""
        from memory import review

        return review.reaffirm(self._parts, self._principal, id, reason)

    # Erasing

    def forget_preview(
        self,
        *,
        id: str | Sequence[str] | None = None,
        key: str | None = None,
        subject: str | None = None,
        all: bool | None = None,
        guard: str | None = None,
        reason: str | None = None,
    ) -> Answer:
        """What an erasure would take, and the token that confirms it; nothing is deleted."""
        from memory import erase

        return erase.preview(
            self._parts,
            self._principal,
            id=id,
            key=key,
            subject=subject,
            all=all,
            guard=guard,
            reason=reason,
        )

    def forget(
        self,
        *,
        confirm: str,
        id: str | Sequence[str] | None = None,
        key: str | None = None,
        subject: str | None = None,
        all: bool | None = None,
        guard: str | None = None,
        reason: str | None = None,
    ) -> Answer:
        """What was erased, with its manifest; `confirm` is the token of the preview of the same request."""
        from memory import erase

        return erase.execute(
            self._parts,
            self._principal,
            confirm,
            id=id,
            key=key,
            subject=subject,
            all=all,
            guard=guard,
            reason=reason,
        )

    def look_again(self, request: str, needles: Sequence[str]) -> Answer:
        """What a further scan of an inconclusive erasure finds of words that are given again, as a further manifest."""
        from memory.erase_again import look_again

        return look_again(self._parts, self._principal, request, needles)

    def retention(self, superseded_older_than: str, apply: bool = False) -> Answer:
        """How many facts were superseded so long ago; with `apply` they are erased, their values stay refused."""
        from memory.retention import retention

        older = parse_duration(superseded_older_than, name="superseded_older_than")
        return retention(self._parts, self._principal, older, check_flag(apply, "apply"))

    # Log

    def receipt(self, id: str, format: str = "cose") -> bytes:
        """The receipt of a fact as a file: a transparent statement (cose) or a tlog-proof."""
        from memory import provenance

        return provenance.receipt(self._parts, self._principal, id, format)

    def opening(self, id: str) -> bytes:
        """What proves the content of a fact's entry to whoever holds it, also after an erasure."""
        return self.give_opening(id).file

    def give_opening(self, id: str) -> Given:
        """The same, with the reference under which it is noted that somebody has it."""
        from memory.give_opening import give_opening

        return give_opening(self._parts, self._principal, id)

    def publish(self) -> Answer:
        """Size, root and state of the log once every statement up to now is in it."""
        return self._parts.home.publish(PUBLISH_SECONDS)
