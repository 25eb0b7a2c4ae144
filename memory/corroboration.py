"""Who else says what a record says: a statement for each further client, or source, that agrees with it.

An agreement changes nothing about the record: its id, its status, its text and its receipt stay. That somebody else
said the same, and where they have it from, is the record's lineage, told by `provenance`, and it is proved as
everything is: by a statement, that goes with the record when this is erased. Who repeats itself adds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from memory import canon
from memory.event import decode_content
from memory.model import own_name

if TYPE_CHECKING:
    from memory.model import Principal, Proposal
    from memory.parts import Parts
    from memory.rows import FactRow
    from memory.scope import Scope
    from memory.store_write import Txn

MAX_CORROBORATIONS: Final = 100
ACT: Final = "corroborates"
_Told = tuple[str, str | None]


def corroborate(
    parts: Parts, principal: Principal, txn: Txn, scope: Scope, now: int, agreement: tuple[FactRow, Proposal]
) -> None:
    """Notes that a proposal agrees with a record, if it is of a client or a source that has not said the same before.

    At most MAX_CORROBORATIONS are noted of one record: a client may call itself anything.
    """
    fact, proposal = agreement
    if proposal.provisional or not _says_the_same(proposal, fact):
        return
    author = _told(fact.content)
    told = own_name(principal.client, principal.reported), proposal.source
    # Nearly always it is the author that repeats itself, and nothing has to be looked up.
    if told == author or (told[0] == author[0] and told[1] is None):
        return
    before = _corroborations(txn, scope, fact)
    if len(before) >= MAX_CORROBORATIONS or told in before or (told[1] is None and told[0] in dict(before)):
        return
    flags = {"authenticated": principal.authenticated, "reported": principal.reported}
    content: dict[str, Any] = {
        "tenant": principal.tenant,
        "agent": principal.agent,
        "client": principal.client,
        "recorded_at": now,
        "source": proposal.source,
        "flags": sorted(name for name, holds in flags.items() if holds) or None,
    }
    txn.add_event(scope.tenant, "corroborate", content, sign=parts.sign_entry, acts={ACT: [fact.commitment]})


def _corroborations(txn: Txn, scope: Scope, fact: FactRow) -> list[_Told]:
    found = []
    for act in txn.view.acts_on(scope.tenant_id, fact.seq):
        made = txn.view.event_by_seq(act.seq) if act.act == ACT else None
        if made is not None and made.content is not None:
            found.append(_told(decode_content(made.content)))
    return found


def _told(content: Any) -> _Told:
    return own_name(content.get("client", ""), "reported" in content.get("flags", ())), content.get("source")


def _says_the_same(proposal: Proposal, fact: FactRow) -> bool:
    value = fact.content.get("value")
    if proposal.value is None or value is None:
        return canon.canonical_text(proposal.text) == canon.canonical_text(str(fact.content["text"]))
    return canon.same_value(proposal.value, value)
