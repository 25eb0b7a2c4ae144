"""The facade: one handle on one home for one caller. Every surface speaks to this and to nothing below it.

Each method gives a dict that is ready for JSON; `receipt` and `opening` give bytes. Who asks is bound when the
handle is made: no argument widens it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

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
        explain: bool = False,
        owner: str | None = None,
    ) -> Answer:
        """The facts that fit the words of a query best, and how many were left out; `explain` tells why each ranks.

        Here and below, `owner` is the agent whose memory is read, by its grant; the caller's own without it.
        """
        from memory.recall import recall

        return recall(
            self._parts,
            self._principal,
            query,
            reads.Asked(as_of, as_recorded, owner),
            limit=limit,
            include_history=include_history,
            explain=explain,
        )

    def recent(self, limit: int = 10) -> Answer:
        """The facts that hold now and were recorded last, newest first."""
        from memory import recent

        return recent.recent(self._parts, self._principal, limit)

    def get(
        self,
        key: str,
        *,
        as_of: str | int | None = None,
        as_recorded: str | int | None = None,
        owner: str | None = None,
    ) -> Answer:
        """The current value of a key, and every fact that is served of it."""
        return reads.get(self._parts, self._principal, key, reads.Asked(as_of, as_recorded, owner))

    def history(
        self,
        key: str,
        *,
        as_of: str | int | None = None,
        as_recorded: str | int | None = None,
        owner: str | None = None,
    ) -> Answer:
        """Everything that was said about a key, each with what became of it."""
        return reads.history(self._parts, self._principal, key, reads.Asked(as_of, as_recorded, owner))

    def provenance(self, id: str, *, owner: str | None = None) -> Answer:
        """Where a fact comes from, how far it is proved, and the limits of that."""
        from memory import provenance

        return provenance.provenance(self._parts, self._principal, id, owner)

    def has_request(self, idempotency_key: str) -> bool:
        """Whether a write of this caller with this idempotency key was answered before."""
        return reads.has_request(self._parts, self._principal, idempotency_key)

    def status(self) -> Answer:
        """Counts of the caller's scope and of the store, and how the log stands."""
        return reads.status(self._parts, self._principal)

    # Reading rights

    def grant(self, reader: str) -> Answer:
        """The grant by which another agent of the tenant may read what this one remembers."""
        from memory import grants

        return grants.grant(self._parts, self._principal, reader)

    def revoke(self, id: str) -> Answer:
        """The end of a grant."""
        from memory import grants

        return grants.revoke(self._parts, self._principal, id)

    def grants(self) -> Answer:
        """The grants in force that this agent made, and those it was given."""
        from memory import grants

        return grants.grants(self._parts, self._principal)

    # Disagreement and review

    def conflicts(self, *, owner: str | None = None) -> Answer:
        """The disagreements between clients that nobody has settled yet."""
        return reads.conflicts(self._parts, self._principal, owner)

    def resolve(self, conflict: str, keep: str) -> Answer:
        """One fact of a conflict holds; the others are superseded."""
        from memory import review

        return review.resolve(self._parts, self._principal, conflict, keep)

    def review(self) -> Answer:
        """What is held or was refused and waits for a person."""
        from memory import review_list

        return review_list.review(self._parts, self._principal)

    def confirm(self, id: str) -> Answer:
        """A held fact is served from now on."""
        from memory import review

        return review.confirm(self._parts, self._principal, id)

    def promote(self, id: str) -> Answer:
        """A guess, or what a client said that is not known well enough, becomes a record like any other."""
        from memory import review

        return review.promote(self._parts, self._principal, id)

    def discard(self, id: str) -> Answer:
        """A held or refused write is dropped."""
        from memory import review

        return review.discard(self._parts, self._principal, id)

    def reaffirm(self, id: str, reason: str | None = None, shown: str | None = None) -> Answer:
        """A refused value holds again, says a person with that right; `shown` is the code of it in `review`."""
        from memory import review

        return review.reaffirm(self._parts, self._principal, id, reason, shown)

    # Erasing

    def forget_preview(self, **selector: Any) -> Answer:
        """What an erasure would take, and the token that confirms it; nothing is deleted.

        `selector` has the names of `memory.erase_request.parse_request`: id, key, subject, all, tenant, value,
        recorded_from, recorded_until, identifiers, guard, reason.
        """
        from memory import erase

        return erase.preview(self._parts, self._principal, **selector)

    def forget(self, *, confirm: str, **selector: Any) -> Answer:
        """What was erased, with its manifest; `confirm` is the token of the preview of the same request."""
        from memory import erase

        return erase.execute(self._parts, self._principal, confirm, **selector)

    def require_token(self, *, confirm: str, **selector: Any) -> None:
        """Returns if `forget` would take this token for this selection now; nothing is erased."""
        from memory import erase

        erase.require_token(self._parts, self._principal, confirm, **selector)

    def request(self, request: str) -> Answer:
        """How a request for erasure stands, what is left of it, and the token that lets go what may go now."""
        from memory import erase_follow

        return erase_follow.show_request(self._parts, self._principal, request)

    def manifest(self, request: str, number: int | str | None = None) -> Answer:
        """The bytes of a manifest of a request for erasure, in base64: the one of this number, or the last."""
        from memory.erase_manifest import read_manifest

        return read_manifest(self._parts, self._principal, request, number)

    def forget_rest(self, request: str, *, confirm: str, identifiers: Sequence[str] = ()) -> Answer:
        """What was erased of what a hold had kept of a request; `confirm` is the token that `request` gave."""
        from memory import erase_follow

        return erase_follow.go_on(self._parts, self._principal, request, confirm, identifiers=identifiers)

    def told(self, request: str, recipients: Sequence[str]) -> Answer:
        """The request once it is noted that these recipients were told of the erasure."""
        from memory import erase_follow

        return erase_follow.tell(self._parts, self._principal, request, recipients)

    def deny(self, code: str, **selector: Any) -> Answer:
        """A request, as of `forget_preview`, that is denied for a reason of the list: nothing is erased."""
        from memory import erase_follow

        return erase_follow.deny(self._parts, self._principal, code, **selector)

    def deny_rest(self, request: str, code: str) -> Answer:
        """The request once what a hold has kept of it is denied."""
        from memory import erase_follow

        return erase_follow.deny_rest(self._parts, self._principal, request, code)

    def withdraw(self, request: str) -> Answer:
        """The request once whoever asked has withdrawn it."""
        from memory import erase_follow

        return erase_follow.withdraw(self._parts, self._principal, request)

    def hold(self, *, authority: str, review_by: str | int, **selector: Any) -> Answer:
        """The legal hold that keeps from now on what the selector, as of `forget_preview`, matches."""
        from memory import holds

        return holds.hold(self._parts, self._principal, authority, review_by, selector)

    def release(self, id: str, authority: str) -> Answer:
        """The end of a legal hold."""
        from memory import holds

        return holds.release(self._parts, self._principal, id, authority)

    def holds(self) -> Answer:
        """The legal holds in force."""
        from memory import holds

        return holds.holds(self._parts, self._principal)

    def look_again(self, request: str, needles: Sequence[str]) -> Answer:
        """What a further scan of an inconclusive erasure finds of words that are given again, as a further manifest."""
        from memory.erase_again import look_again

        return look_again(self._parts, self._principal, request, needles)

    def retention(
        self,
        superseded_older_than: str | None = None,
        apply: bool = False,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Answer:
        """How many facts are past the retention of the settings, or were superseded so long ago; `apply` erases them.

        Their values stay refused. `progress` is told how many are done, of how many.
        """
        from memory.retention import retention

        given = superseded_older_than
        older = None if given is None else parse_duration(given, name="superseded_older_than")
        return retention(self._parts, self._principal, older, check_flag(apply, "apply"), progress)

    def export_subject(self, subject: str) -> Answer:
        """What is held on a person, for that person; it is noted as given."""
        from memory.export_subject import export_subject

        return export_subject(self._parts, self._principal, subject)

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
        answer: Answer = self._parts.home.publish(PUBLISH_SECONDS)
        if self._parts.home.config.semantic != "off":
            from memory.semantic_index import catch_up

            catch_up(self._parts)
        return answer
