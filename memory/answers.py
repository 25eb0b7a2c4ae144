"""The shapes of answers (docs/reference): facts, receipts and scopes as plain values for JSON."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from memory.model import Principal
from memory.times import format_optional, format_time

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.rows import FactRow
    from memory.wiring import Home

Answer = dict[str, Any]


@dataclass(frozen=True)
class Receipts:
    """The state of receipts right now. The public checkpoint is looked at once, and only if something is logged."""

    home: Home

    def shape(self, entry_index: int | None) -> Answer:
        """`pending` until the log has the statement, `witnessed` once a checkpoint that its policy's witnesses
        cosigned covers it, `logged` in between and where the policy asks for no witness."""
        if entry_index is None:
            return {"state": "pending", "entry": None}
        covered, witnessed = self.published
        return {
            "state": "witnessed" if witnessed and entry_index < covered else "logged",
            "entry": entry_index,
        }

    @cached_property
    def published(self) -> tuple[int, bool]:
        """Size of the public checkpoint, and whether its policy asks for witnesses; 0 without one."""
        from tlog.checkpoint import parse_checkpoint
        from tlog.note import parse_note

        data = self.home.public_storage().read("checkpoint")
        if data is None:
            return 0, False
        # The log makes a checkpoint public only once the policy's quorum has cosigned it.
        return parse_checkpoint(parse_note(data).text).size, self.home.policy().quorum not in (None, "none")


def receipts(parts: Parts) -> Receipts:
    """The state of receipts of an open home."""
    return Receipts(parts.home)


def scope_shape(principal: Principal) -> Answer:
    """Which scope an answer is about."""
    return {"tenant": principal.tenant, "agent": principal.agent}


def fact_shape(fact: FactRow, states: Receipts, *, score: float | None = None) -> Answer:
    """A fact as every read gives it, with its status now."""
    content = fact.content
    return {
        "id": fact.id,
        "key": content.get("key"),
        "value": content.get("value"),
        "text": content.get("text"),
        "subject": content.get("subject"),
        "status": fact.status,
        "valid_from": format_time(fact.valid_from),
        "valid_until": format_optional(fact.valid_until),
        "recorded_at": format_time(fact.recorded_at),
        "replaced_at": format_optional(fact.replaced_at),
        "tenant": content.get("tenant"),
        "agent": content.get("agent"),
        "client": content.get("client"),
        "source": content.get("source"),
        "flags": list(content.get("flags", ())),
        "score": score,
        "trust": trust_of(fact),
        "receipt": states.shape(fact.entry_index),
    }


def trust_of(fact: FactRow) -> str:
    """Whose word a fact is: `authenticated` if the client proved who it is, else `asserted`."""
    return "authenticated" if "authenticated" in fact.content.get("flags", ()) else "asserted"


def value_of(fact: FactRow) -> str | None:
    """What a fact says: its value, or its text where it has none."""
    value = fact.content.get("value")
    return value if value is not None else fact.content.get("text")
