"""Whether a write that the guard lets land may be served at once, or waits for a person: whose word is it?

The guard looks at what is said; this looks at who says it, under terms that the owner of a home sets:

- `identity`: who is known less well than this is a candidate (`low_confidence`);
- `authority`: clients in the order in which they go before each other; a write that would replace or contradict one
  of somebody who goes before waits (`authority`);
- `instruction_shaped`: whether text that reads like instructions waits too, instead of being wrapped when it is read.

What waits is held: a statement like any other, served to nobody until somebody with that right confirms it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from memory.model import IDENTITIES, Decision, Principal, Proposal
from memory.quarantine import rules_of

HELD_IDENTITY: Final = (
    "Held: this home serves at once only what clients write that it knows better than this one. "
    "A person can confirm it (muniment review)."
)
HELD_AUTHORITY: Final = (
    "Held: it would change what a source has said that goes before this one. "
    "A person can confirm it (muniment review)."
)
HELD_INSTRUCTIONS: Final = (
    "Held: it reads like instructions to whoever reads it. A person can confirm it (muniment review)."
)
_LANDING: Final = frozenset({"stored", "superseded", "conflict", "history"})


class Terms(Protocol):
    """What the owner of a home asks of writers; the settings of the home are one."""

    @property
    def identity(self) -> str:
        """The identity from which on a write is served at once."""
        ...

    @property
    def authority(self) -> tuple[str, ...]:
        """Names of clients, who goes before the others first; who is not named comes last."""
        ...

    @property
    def instruction_shaped(self) -> str:
        """What becomes of text that reads like instructions: `serve` or `hold`."""
        ...


def admit(
    decision: Decision,
    proposal: Proposal,
    principal: Principal,
    against: Iterable[Mapping[str, Any]],
    terms: Terms,
) -> Decision:
    """The decision, or that the write is held. `against` are the contents of the facts it retires or contradicts."""
    if decision.outcome not in _LANDING:
        return decision
    if IDENTITIES.index(principal.identity) < IDENTITIES.index(terms.identity):
        return Decision("held", HELD_IDENTITY, reason="low_confidence")
    if terms.authority and _is_outranked(principal, against, terms.authority):
        return Decision("held", HELD_AUTHORITY, reason="authority")
    if terms.instruction_shaped == "hold" and _reads_like_instructions(proposal):
        return Decision("held", HELD_INSTRUCTIONS, reason="instruction_shaped")
    return decision


def _is_outranked(
    principal: Principal, against: Iterable[Mapping[str, Any]], authority: tuple[str, ...]
) -> bool:
    own = _rank(principal.client, principal.reported, authority)
    return any(
        _rank(content.get("client", ""), "reported" in content.get("flags", ()), authority) < own
        for content in against
    )


def _rank(client: str, reported: bool, authority: tuple[str, ...]) -> int:
    # Who names itself may name itself after anybody.
    return authority.index(client) if not reported and client in authority else len(authority)


def _reads_like_instructions(proposal: Proposal) -> bool:
    told = (proposal.text, proposal.key, proposal.value, proposal.subject, proposal.source)
    return any(rules_of(text) for text in told if text is not None)
