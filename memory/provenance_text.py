"""What a provenance means, in sentences: the limits that can hold, and the whole answer for a person to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

LIMITS: Final[Mapping[str, str]] = {
    "not_truth": "This proves what was recorded, when and in which order; not that it is true.",
    "pending": "The statement is signed but not in the log yet: until then only its issuer's promise stands.",
    "logged_unwitnessed": "The statement is in the log, but no witness has cosigned a head that covers it: the"
    " operator could still show others another log.",
    "witness_quorum_not_met": "The policy asks for cosignatures, and no public checkpoint that covers the"
    " statement has enough of them.",
    "witness_same_operator": "Without the witnesses that the log's own operator runs, the cosignatures would not"
    " be enough.",
    "checkpoint_stale": "No cosignature shows that the checkpoint is younger than the trust file's bound.",
    "issuer_key_in_process": "The key that signs statements lies beside the store: whoever has the home can sign.",
    "client_unauthenticated": "The name of the client is its own word.",
    "agent_asserted": "Tenant and agent were set by the environment of the process; nobody proved who they are.",
    "agent_authenticated": "The caller proved who it is to this store; a third party has the store's word for it.",
    "no_source": "No source was given for it: nothing beyond the caller stands behind it.",
    "value_inferred": "No value was given: what is served as the current value is the text.",
    "declared_valid_time": "Since when, or until when, it holds is what the caller declared.",
    "content_erased": "Content was erased: what the statement, or the one that replaced it, said can't be shown.",
    "content_not_opened": "The content is withheld from this caller, so nothing here shows what it says.",
    "held": "The fact waits for a person and is not served.",
    "conflict_open": "Another client says otherwise, and nobody has settled it.",
    "reaffirmed": "The value had been retired and was let through again on somebody's word.",
}


def provenance_text(answer: Mapping[str, Any]) -> str:
    """The answer of `provenance` as lines for a person."""
    fact, statement = answer["fact"], answer["statement"]
    shown = fact.get("value") if fact.get("value") is not None else fact.get("text")
    lines = [
        f"fact        {fact['id']}  {fact['status']}",
        f"says        {shown if shown is not None else '(content not shown)'}",
        *_origin(answer.get("origin")),
        *_history(answer["history"]),
        f"statement   {statement['commitment']}",
        f"signed by   {statement['kid']} as {statement['issuer']}",
        *_receipt(answer["receipt"], answer["checkpoint"]),
        *(f"cosigned    {one['witness']} at {one['time']}" for one in answer["cosignatures"]),
        "limits",
        *(f"  {one['code']}: {one['text']}" for one in answer["limits"]),
    ]
    return "\n".join(lines)


def _origin(origin: Mapping[str, Any] | None) -> list[str]:
    if origin is None:
        return []
    source = "" if origin["source"] is None else f", source {origin['source']}"
    who = f"{origin['tenant']}/{origin['agent']}/{origin['client']}"
    return [f"from        {who} at {origin['recorded_at']}{source}"]


def _history(history: list[Mapping[str, Any]]) -> list[str]:
    return [
        f"history     {one['recorded_at'] or '(time erased)'}  {one['act']}  {one['id']}" for one in history
    ]


def _receipt(receipt: Mapping[str, Any], checkpoint: Mapping[str, Any] | None) -> list[str]:
    lines = [f"receipt     {receipt['state']}"]
    if receipt["state"] != "pending":
        lines[0] += f", entry {receipt['entry']} of the log"
    if receipt.get("path") is not None:
        lines.append(f"inclusion   proved by {len(receipt['path'])} hashes under root {receipt['root']}")
    if checkpoint is not None:
        lines.append(f"checkpoint  {checkpoint['origin']}, {checkpoint['size']} entries")
    return lines
