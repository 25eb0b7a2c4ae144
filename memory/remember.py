"""One write, from the arguments of a caller to a durable statement: a single transaction.

The guard decides inside it, on the caller's own view of the key, so that no other write comes in between. What
is stored, retired, refused or held is a statement; what agrees writes nothing.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memory import canon, edge, guard
from memory.answers import Answer, receipts
from memory.key_view import STANDING, key_now
from memory.ledger import names_retired, retire, unretire, value_tags
from memory.model import Decision, Known, KnownFact, Principal, Proposal, fact_id
from memory.principal import require
from memory.scope import Scope, make_scope
from memory.search import make_document, scope_token
from memory.store_write import NewFact
from tlog import cbor
from tlog.errors import MalformedError, RefusedError, UnavailableError

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.rows import EventRow, FactRow
    from memory.store_write import Txn

ARGUMENTS: Final = frozenset(
    {
        "text",
        "key",
        "value",
        "subject",
        "valid_from",
        "valid_until",
        "provisional",
        "many",
        "restatement",
        "source",
        "idempotency_key",
        "reaffirm",
        "reason",
        "wait",
    }
)
TOKEN_SECONDS: Final = 900
TOKEN_PURPOSE: Final = "reaffirm"
WAIT_SECONDS: Final = 30.0
MAX_TOKEN_CHARACTERS: Final = 256
_WITHHELD: Final = frozenset({"held", "refused"})
_STATUS_OF: Final[Mapping[str, Any]] = {
    "stored": "active",
    "superseded": "active",
    "history": "history",
    "conflict": "conflict",
    "held": "held",
    "refused": "refused",
}


@dataclass(frozen=True)
class _Write:
    """A write on its way: who writes what, in which scope and transaction, and what the caller may see of the key."""

    parts: Parts
    principal: Principal
    txn: Txn
    scope: Scope
    now: int
    proposal: Proposal
    key_tag: bytes | None
    facts: tuple[FactRow, ...]
    lifted: FactRow | None


def remember(parts: Parts, principal: Principal, arguments: Mapping[str, Any]) -> Answer:
    """What became of a write. `arguments` are those of ARGUMENTS; times as a caller gives them."""
    require(principal, "memory:write")
    wait = edge.check_wait(arguments.get("wait"))
    request = _request(arguments)
    edge.make_proposal(parts.clock(), arguments)
    _check_reaffirm(principal, arguments)
    with parts.store.write() as txn:
        tenant = txn.make_tenant(principal.tenant, parts.vault.index_tag("tenant", principal.tenant))
        scope = make_scope(parts.vault, tenant, principal.agent)
        now = txn.stamp(parts.clock())
        request_tag = None if request is None else scope.request_tag(principal.client, request)
        body_tag = scope.bound_tag("body", _body(arguments))
        answer = None if request_tag is None else _replay(txn, scope, request_tag, body_tag, arguments)
        if answer is None:
            write = _open_write(parts, principal, txn, scope, now, arguments)
            answer, seq = _decide(write)
            if request_tag is not None:
                txn.add_idempotency(scope.tenant_id, request_tag, body_tag, seq, json.dumps(_noted(answer)))
        ...
