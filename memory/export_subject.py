"""What is held on a person, for that person: every record about them, and every one that names them, as JSON or HTML.

That somebody has it is noted before it is given: an erasure of these records lists the reference. What is under a
legal hold is counted, and not shown. The HTML stands alone: no script, no link, nothing from elsewhere.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from memory import store_erase, store_mentions
from memory.answers import receipts
from memory.edge import check_text
from memory.erase_mentions import mentions_of_subjects
from memory.erase_request import MAX_NAME_BYTES
from memory.event import decode_content, decode_link
from memory.model import Principal, fact_id
from memory.principal import require
from memory.quarantine import present
from memory.scope import open_scope
from memory.store_openings import add_openings
from memory.times import format_optional, format_time, whole_hour
from memory.vault import new_number
from tlog.errors import RefusedError

if TYPE_CHECKING:
    from memory.answers import Receipts
    from memory.parts import Parts
    from memory.rows import ActRow, SelectedFact
    from memory.scope import Scope
    from memory.store_read import Snapshot

FORMAT: Final = "muniment-subject-export/1"
_TEXTS: Final = ("key", "value", "text", "subject", "client", "source")
_TOLD: Final = ("source", "reason", "authority")
_COLUMNS: Final = (
    ("key", "about"),
    ("value", "value"),
    ("text", "as it was said"),
    ("status", "status"),
    ("valid_from", "true from"),
    ("valid_until", "true until"),
    ("recorded_at", "recorded"),
    ("client", "by"),
    ("source", "source"),
    ("id", "id"),
)
_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#1b1b1b;"
    "background:#fff}h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}.wide{overflow-x:auto}"
    "table{border-collapse:collapse;width:100%}th,td{border-bottom:1px solid #ccc;padding:.4rem .6rem;"
    "text-align:left;vertical-align:top}th{background:#f2f2f2}td{overflow-wrap:anywhere}"
    "@media(prefers-color-scheme:dark){body{color:#eee;background:#161616}th{background:#262626}"
    "th,td{border-color:#444}}"
)


def export_subject(parts: Parts, principal: Principal, subject: object) -> dict[str, Any]:
    """Everything that is held on a subject in the caller's scope.

    Raises RefusedError with code `nothing_matched` if that is nothing.
    """
    require(principal, "memory:review")
    name = check_text(subject, "subject", MAX_NAME_BYTES)
    recipient = new_number()
    with parts.store.write() as txn:
        scope = open_scope(txn.view, parts.vault, principal)
        facts = () if scope is None else _about(txn.view, scope, name)
        if scope is None or not facts:
            raise RefusedError("nothing is held on this subject in this scope", code="nothing_matched")
        mentions = _mentions(txn.view, scope, name, facts)
        shown = [fact for fact in (*facts, *mentions) if not fact.on_hold]
        states = receipts(parts)
        document = {
            "format": FORMAT,
            "subject": name,
            "made_at": format_time(parts.clock()),
            "scope": {"tenant": principal.tenant, "agent": principal.agent},
            "recipient": recipient.hex(),
            "facts": [_shape(txn.view, scope, fact, states) for fact in facts if not fact.on_hold],
            "mentions": [_shape(txn.view, scope, fact, states) for fact in mentions if not fact.on_hold],
            "on_hold": len(facts) + len(mentions) - len(shown),
            "retired_values": _retired(txn.view, scope, name, facts),
        }
        given = ((scope.tenant_id, fact.seq) for fact in shown)
        add_openings(txn, given, recipient, whole_hour(parts.clock()), "export")
    return document


def _about(view: Snapshot, scope: Scope, name: str) -> tuple[SelectedFact, ...]:
    return store_erase.select_subject(view, scope.tenant_id, scope.subject_tag(name))


def _mentions(
    view: Snapshot, scope: Scope, name: str, facts: Iterable[SelectedFact]
) -> tuple[SelectedFact, ...]:
    """Other records that name the subject, in every spelling that its own have."""
    names = {name, *(str(fact.content["subject"]) for fact in facts)}
    known = {fact.seq for fact in facts}
    wanted = mentions_of_subjects(sorted(names))
    return store_mentions.mentioning(view, scope.tenant_id, scope.agent_tag, wanted, known).own


def _retired(view: Snapshot, scope: Scope, name: str, facts: Iterable[SelectedFact]) -> int:
    """How many keyed hashes of retired values there are of the subject."""
    seqs = [fact.seq for fact in facts]
    found = store_erase.ledger_of(view, scope.tenant_id, seqs=seqs, subject_tag=scope.subject_tag(name))
    return len(found)


def _shape(view: Snapshot, scope: Scope, fact: SelectedFact, states: Receipts) -> dict[str, Any]:
    """A record with its times, where it comes from, and what was done to it."""
    content, row = fact.content, view.event_by_seq(fact.seq)
    assert row is not None
    # As every other read: a file that a person gets is read by models, too.
    texts = {
        name: None if (said := content.get(name)) is None else present(str(said), fact.id) for name in _TEXTS
    }
    return {
        "id": fact.id,
        **{name: None if shown is None else shown.text for name, shown in texts.items()},
        "quarantine": sorted({rule for shown in texts.values() if shown is not None for rule in shown.rules}),
        "status": fact.status,
        "valid_from": format_time(content["valid_from"]),
        "valid_until": format_optional(content.get("valid_until")),
        "recorded_at": format_time(content["recorded_at"]),
        "agent": content.get("agent"),
        "flags": list(content.get("flags", ())),
        "statement": row.commitment.hex(),
        "receipt": states.shape(row.entry_index),
        "history": [
            {
                "act": act.act,
                "statement": fact_id(act.commitment),
                "recorded_at": format_optional(act.recorded_at),
                **_told(view, act),
            }
            for act in view.acts_on(scope.tenant_id, fact.seq)
        ],
    }


def _told(view: Snapshot, act: ActRow) -> dict[str, str]:
    """Where somebody else has the record from, why it holds again, or by whose order it is kept, in their words."""
    row = view.event_by_seq(act.seq)
    # What another record says of itself is no word about this one.
    if row is None or row.content is None or decode_link(row.link).kind == "write":
        return {}
    content = decode_content(row.content)
    return {
        name: present(str(content[name]), fact_id(act.commitment)).text for name in _TOLD if content.get(name)
    }


def format_html(document: dict[str, Any]) -> str:
    """The export as one page for a person."""
    name = html.escape(str(document["subject"]))
    held = document["on_hold"]
    notes = [
        f"Made {html.escape(document['made_at'])}; noted as given to recipient {document['recipient']}.",
        f"{document['retired_values']} keyed hashes of values that no longer hold are kept beside these records.",
    ]
    if held:
        notes.append(f"{held} more are under a legal hold: they are kept, not used, and not shown here.")
    body = [
        f"<h1>What is held on {name}</h1>",
        *(f"<p>{note}</p>" for note in notes),
        *_table("Records about you", document["facts"]),
        *_table("Other records that name you", document["mentions"]),
    ]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>What is held on {name}</title><style>{_STYLE}</style></head><body>",
            *body,
            "</body></html>",
            "",
        ]
    )


def _table(title: str, facts: list[dict[str, Any]]) -> Iterable[str]:
    yield f"<h2>{html.escape(title)} ({len(facts)})</h2>"
    if not facts:
        yield "<p>None.</p>"
        return
    yield '<div class="wide"><table><thead><tr>'
    yield "".join(f"<th>{html.escape(label)}</th>" for _, label in _COLUMNS) + "</tr></thead><tbody>"
    for fact in facts:
        cells = (fact.get(field) for field, _ in _COLUMNS)
        yield "<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in cells) + "</tr>"
    yield "</tbody></table></div>"


def _cell(value: object) -> str:
    return "" if value is None else html.escape(str(value))
