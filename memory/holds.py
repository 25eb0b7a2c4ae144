"""Legal holds: records that may be neither erased nor used until a named authority lets them go.

A hold takes the records that there are. Each is kept, out of every read and out of what the guard compares with;
what somebody writes afterwards is a record of its own. By whom and until when it is to be looked at again is
content: it is erased with the records once they may go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from memory import edge, store_holds
from memory.answers import Answer, receipts
from memory.erase_request import parse_request
from memory.erase_selection import nothing_matched, select
from memory.model import Principal, fact_id, parse_fact_id
from memory.principal import require
from memory.quarantine import present
from memory.scope import open_scope
from memory.times import format_time, parse_time
from tlog.errors import MalformedError

if TYPE_CHECKING:
    from memory.parts import Parts

MAX_AUTHORITY_BYTES: Final = 4096
_RIGHT: Final = "memory:purge"


def hold(
    parts: Parts, principal: Principal, authority: object, review_by: object, selector: dict[str, Any]
) -> Answer:
    """The hold that keeps from now on what the selector matches, and how many records that are."""
    require(principal, _RIGHT)
    who = edge.check_text(authority, "authority", MAX_AUTHORITY_BYTES)
    request = parse_request(parts.clock(), **selector)
    with parts.store.write() as txn:
        scope = open_scope(txn.view, parts.vault, principal)
        if scope is None:
            raise nothing_matched()
        now = txn.stamp(parts.clock())
        until = parse_time(review_by, now, name="review_by")
        if until <= now:
            raise MalformedError("expected review_by to lie in the future")
        selection = select(txn.view, scope, request)
        facts = sorted((*selection.facts, *selection.copies, *selection.held), key=lambda fact: fact.seq)
        if not facts:
            raise nothing_matched()
        made = txn.add_event(
            scope.tenant,
            "hold",
            _said_by(principal, now) | {"authority": who, "review_by": until},
            sign=parts.sign_entry,
            acts={"holds": [fact.commitment for fact in facts]},
        )
        receipt = receipts(parts).shape(made.entry_index)
    return {
        "id": made.id,
        "held": len(facts),
        "ids": [fact.id for fact in facts],
        "review_by": format_time(until),
        "receipt": receipt,
    }


def release(parts: Parts, principal: Principal, reference: object, authority: object) -> Answer:
    """The end of a hold: what no other hold keeps is served again, and may be erased."""
    require(principal, _RIGHT)
    who = edge.check_text(authority, "authority", MAX_AUTHORITY_BYTES)
    if not isinstance(reference, str):
        raise MalformedError("expected the id of a hold")
    commitment = parse_fact_id(reference.strip())
    with parts.store.write() as txn:
        scope = open_scope(txn.view, parts.vault, principal)
        found = () if scope is None else store_holds.holds_of(txn.view, scope)
        held = next((one for one in found if one.commitment[:16] == commitment), None)
        if scope is None or held is None:
            raise MalformedError(
                "expected the id of a hold that is in force in this scope", code="unknown_id"
            )
        now = txn.stamp(parts.clock())
        made = txn.add_event(
            scope.tenant,
            "release",
            _said_by(principal, now) | {"authority": who},
            sign=parts.sign_entry,
            acts={"releases": [held.commitment]},
        )
        receipt = receipts(parts).shape(made.entry_index)
    return {"id": fact_id(held.commitment), "status": "released", "statement": made.id, "receipt": receipt}


def holds(parts: Parts, principal: Principal) -> Answer:
    """The holds that are in force in the caller's scope, each with its authority and when it is to be reviewed."""
    require(principal, _RIGHT)
    with parts.store.read() as view:
        scope = open_scope(view, parts.vault, principal)
        found = () if scope is None else store_holds.holds_of(view, scope)
    now = parts.clock()
    return {
        "holds": [
            {
                "id": fact_id(one.commitment),
                # Whoever named it may have written it for a model that lists holds.
                "authority": present(one.authority, fact_id(one.commitment)).text,
                "review_by": format_time(one.review_by),
                "overdue": one.review_by <= now,
                "facts": one.facts,
                "since": format_time(one.recorded_at),
            }
            for one in found
        ]
    }


def _said_by(principal: Principal, now: int) -> dict[str, Any]:
    return {
        "tenant": principal.tenant,
        "agent": principal.agent,
        "client": principal.client,
        "recorded_at": now,
    }
