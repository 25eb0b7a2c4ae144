"""Acts on what is there: retract, resolve, confirm, discard, reaffirm. Each is a statement of its own.

What an act does to a fact follows from the statement (the fold); what it does to the ledger and to conflicts is
done here, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memory import edge, guard, ledger
from memory.answers import Answer, receipts
from memory.key_view import STANDING
from memory.model import MAX_NAME_CHARACTERS, Known, Principal, Proposal, fact_id, parse_fact_id
from memory.principal import require
from memory.remember import close_settled_conflict, known_fact
from memory.scope import Scope, open_scope
from memory.search import make_document, scope_token
from tlog.errors import MalformedError, RefusedError

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.rows import EventRow, FactRow
    from memory.store_write import Txn
