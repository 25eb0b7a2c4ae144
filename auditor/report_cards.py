"""The part of a report's page about requests: a card for each erasure, and the exceptions of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from auditor.exhibits import Card
from auditor.findings import Finding

MAX_SHOWN: Final = 200
DAY: Final = 86_400
DIGEST: Final = 64
Table = Callable[..., str]
_STATES: Final = {
    "closed_complete": "complete: everything in scope is gone, and every check of it was clean",
    "closed_partial": "closed, with exceptions",
    "inconclusive": "not proved: a check could not be made, or found something",
    "executing": "begun, and not ended",
    "failed": "failed",
    "awaiting_backups": "waits for backups to run out",
    "awaiting_recipients": "waits for recipients to answer",
    "closed_denied": "refused",
    "withdrawn": "withdrawn by whoever asked",
}


def moment(seconds: int) -> str:
    """A time in words that sort."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return f"second {seconds}"


def cards_html(cards: Sequence[Card], findings: Iterable[Finding], now: int, table: Table) -> str:
    """A card for each erasure, the open ones first; of very many, the newest."""
    about: dict[str, list[str]] = {}
    for one in findings:
        about.setdefault(one.where, []).append(one.code)
    ordered = sorted(cards, key=lambda card: (not card.is_open, -(card.number or 0)))
    parts = [
        _card(card, about.get(f"log erasures/{card.number}.cose", []), now, table)
        for card in ordered[:MAX_SHOWN]
    ]
    if len(ordered) > MAX_SHOWN:
        parts.append(f"<p>{len(ordered) - MAX_SHOWN} more are in the JSON report.</p>")
    return "\n".join(parts)


def exceptions_html(cards: Iterable[Card], table: Table) -> str:
    """What speaks against erasures: exceptions that manifests declare, and reasons why some are not complete."""
    rows: list[tuple[str, str, int | None]] = [
        (card.request[:16], why.replace("_", " "), count) for card in cards for why, count in card.exceptions
    ]
    rows += [
        (card.request[:16], why.replace("_", " "), None)
        for card in cards
        for why in card.why
        if why not in {name for name, _ in card.exceptions}
    ]
    shown = table(("Request", "Reason", "Records"), rows, (2,)) or "<p>None.</p>"
    return f"<h3>Exceptions, and reasons why an erasure is not complete</h3>\n{shown}\n"


def _card(card: Card, codes: Sequence[str], now: int, table: Table) -> str:
    age = card.age_seconds(now)
    lines = [
        ("State", f"{card.state}: {_STATES[card.state]}" if card.state in _STATES else card.state),
        ("Asked for by", card.basis.replace("_", " ")),
        ("Chosen by", card.scope),
        ("Statements erased", str(card.erased)),
        (
            "Hashes of old values",
            {"erase": "erased", "keep": "kept, as asked", "expire": "kept until they expire"}.get(
                card.guard, ""
            ),
        ),
        ("Begun", _hour(card.started_at)),
        ("Erased", _hour(card.erased_at)),
        ("Closed", _hour(card.closed_at)),
        ("Due", _hour(card.due_at)),
        ("Age", "" if age is None else f"{age // DAY} days"),
        ("Openings given out before", str(card.recipients) if card.recipients else ""),
        ("Not looked at", ", ".join(limit.replace("_", " ") for limit in card.limits)),
        ("Findings about it", ", ".join(sorted(set(codes)))),
        ("Manifest, SHA-256", card.digest),
        ("Tombstone, leaf hash", card.tombstone),
    ]
    facts = "".join(
        f"<dt>{escape(name)}</dt><dd{_face(text)}>{escape(text)}</dd>" for name, text in lines if text
    )
    systems = table(
        ("Where it was", "Method", "Erased", "Result"),
        (
            (one.kind, one.method.replace("_", " "), one.erased, one.result.replace("_", " "))
            for one in card.systems
        ),
        (2,),
    )
    checks = table(
        ("Check afterwards", "Result"), ((name.replace("_", " "), result) for name, result in card.checks)
    )
    number = "no manifest yet" if card.number is None else f"manifest {card.number}"
    return (
        f'<div class="card"><h3>Request <span class="hash">{escape(card.request)}</span> ({number})</h3>\n'
        f"<dl>{facts}</dl>{systems}{checks}</div>"
    )


def _face(text: str) -> str:
    """Digests are set so that they can be compared letter by letter."""
    return ' class="hash"' if len(text) == DIGEST and " " not in text else ""


def _hour(microseconds: int | None) -> str:
    return "" if microseconds is None else f"{moment(microseconds // 1_000_000)} (to the hour)"
