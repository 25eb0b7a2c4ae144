"""The report as one page: for a lawyer to read, and for an engineer to check again. It needs nothing but itself.

No script, no image, no font, no link is loaded; the page forbids it to the browser. Every text is escaped, and none
of them is content.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from auditor.exhibits import Head
from auditor.findings import Finding, Note
from auditor.report import (
    LIMITS,
    MAX_FINDINGS_PER_CODE,
    OWN_TRUST,
    Report,
    ageing,
    listed_findings,
)
from auditor.report_cards import cards_html, exceptions_html, moment
from auditor.report_style import STYLE
from auditor.report_svg import COLOURS, KIND_WORDS, page_map, timeline
from auditor.report_words import SEVERITIES, VERDICTS, meaning

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
MAX_WORD: Final = 20
"""Longer texts may be broken between lines."""
Cell = str | int | None


def to_html(report: Report) -> str:
    """The whole page, ending in a line feed."""
    title = f"Muniment audit: {VERDICTS[report.verdict][0]}"
    body = "\n".join(
        part
        for part in (
            _verdict(report),
            _findings(report),
            _checked(report),
            _log(report),
            _population(report),
            _requests(report),
            _pages(report),
            _again(report),
        )
        if part
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[Cell]], numbers: Iterable[int] = ()) -> str:
    """A table of escaped texts; columns in `numbers` are set to the right, short words kept whole. "" without rows."""
    right = frozenset(numbers)

    def cell(tag: str, at: int, value: Cell) -> str:
        is_word = tag == "td" and isinstance(value, str) and len(value) <= MAX_WORD
        mark = ' class="number"' if at in right else ' class="word"' if is_word else ""
        return f"<{tag}{mark}>{escape('' if value is None else str(value))}</{tag}>"

    lines = [
        "<tr>" + "".join(cell("td", at, value) for at, value in enumerate(row)) + "</tr>" for row in rows
    ]
    if not lines:
        return ""
    heads = "".join(cell("th", at, value) for at, value in enumerate(head))
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _verdict(report: Report) -> str:
    word, text = VERDICTS[report.verdict]
    subject = report.subject
    rows: list[tuple[str, Cell]] = [("Made at", report.made_at)]
    rows += [
        (name.capitalize(), subject[name])
        for name in ("evidence", "origin", "size", "root")
        if name in subject
    ]
    counts = report.outcome.counts
    names = {
        "statements": "Statements in the memory",
        "opened": "of which the content is there and opens",
        "tombstones": "Erasures",
        "promises": "Not yet in the log",
    }
    rows += [(label, counts[name]) for name, label in names.items() if name in counts]
    facts = "".join(
        f'<dt>{escape(name)}</dt><dd class="hash">{escape(str(value))}</dd>' for name, value in rows
    )
    return (
        f'<h1>Audit of an agent memory and its log</h1>\n<div class="verdict {report.verdict}">'
        f"<strong>{escape(word)}</strong>{escape(text)}{_own_trust(report)}</div>\n<dl>{facts}</dl>"
    )


def _own_trust(report: Report) -> str:
    if report.trust != "home":
        return ""
    says = "Whom to trust was taken from the home itself, and not from whoever made this audit: "
    means = "a home that was changed, with all its keys, would look the same."
    return f"<p><b>This is {escape(OWN_TRUST)}.</b> {escape(says + means)}</p>"


def _findings(report: Report) -> str:
    findings, left_out = listed_findings(report)
    if not findings:
        return "<h2>Findings</h2>\n<p>None.</p>"
    counts = {name: sum(one.severity == name for one in report.outcome.findings) for name in SEVERITIES}
    keys = "".join(
        f'<li><span class="{name}">{name}</span> ({counts[name]}): {escape(text)}</li>'
        for name, text in SEVERITIES.items()
    )
    first = {one.code: at for at, one in reversed(list(enumerate(findings)))}
    rows = "".join(
        _finding(one, meaning(one.code) if first[one.code] == at else "") for at, one in enumerate(findings)
    )
    more = (
        f"<p>{left_out} more are counted, and not listed: at most {MAX_FINDINGS_PER_CODE} of a code are.</p>"
    )
    return (
        f"<h2>Findings ({len(report.outcome.findings)})</h2>\n<ul>{keys}</ul>\n"
        '<div class="scroll"><table><thead><tr><th>Severity</th><th>What is wrong</th><th>Where</th><th>Evidence</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>" + (more if left_out else "")
    )


def _finding(one: Finding, says: str) -> str:
    """A row; `says` is what the code means, told where it comes first."""
    evidence = "<br>".join(f"{escape(name)}: {escape(str(value))}" for name, value in one.evidence.items())
    return (
        f'<tr><td class="{one.severity}">{one.severity}</td><td><code>{escape(one.code)}</code><br>{escape(one.what)}'
        f'<br><span class="soft">{escape(says)}</span></td><td class="hash">{escape(one.where)}</td>'
        f'<td class="hash">{evidence}</td></tr>'
    )


def _checked(report: Report) -> str:
    limits = tuple(Note(check, text) for check, text in LIMITS)
    return (
        "<h2>What was checked</h2>\n"
        + (_notes(report.outcome.checked) or "<p>Nothing.</p>")
        + "\n<h2>What was not checked</h2>\n<p>None of this is proved, in either direction.</p>\n"
        + _notes((*report.outcome.not_checked, *limits))
    )


def _notes(notes: Iterable[Note]) -> str:
    return table(("Check", "Count", "What"), ((one.check, one.count, one.text) for one in notes), (1,))


def _log(report: Report) -> str:
    heads = report.exhibits.heads
    if not heads:
        return "<h2>The log</h2>\n<p>No head of the log holds under the trust that was given.</p>"
    picture = timeline(heads, report.exhibits.cards)
    keys = (
        "<p>Each dot is a head that the log signed, at the time of its newest cosignature; below, when each witness"
        " cosigned it, and when erasures were made.</p>"
    )
    rows = ((head.size, head.root, _cosigned(head), head.found_in) for head in _distinct(heads))
    return (
        "<h2>The log over time</h2>\n"
        + (keys + picture if picture else "<p>No witness dates any head of this log.</p>")
        + table(("Entries", "Root", "Cosigned by, at", "Found in"), rows, (0,))
    )


def _distinct(heads: Iterable[Head]) -> list[Head]:
    return sorted(set(heads), key=lambda head: (head.origin, head.size, head.found_in))


def _cosigned(head: Head) -> str:
    return "; ".join(f"{name} {moment(at)}" for name, at in head.cosigned) or "nobody"


def _population(report: Report) -> str:
    shown = report.exhibits
    if not shown.kinds and not shown.sample:
        return ""
    text = (
        "<p>Every statement was checked, none was left to chance. The sample is for checking by hand: it holds the"
        " statements of which SHA-256(root of the head, commitment) is lowest, so nobody chose it.</p>"
    )
    sample = ((one.seq, one.kind, one.index, one.content, one.commitment, one.leaf) for one in shown.sample)
    return (
        "<h2>Population and sample</h2>\n"
        + table(("Statements, by kind", "Count"), sorted(shown.kinds.items()), (1,))
        + table(("Facts, by status", "Count"), sorted(shown.statuses.items()), (1,))
        + text
        + table(("Number", "Kind", "Entry", "Content", "Commitment", "Leaf hash"), sample, (0, 2))
    )


def _requests(report: Report) -> str:
    cards = report.exhibits.cards
    if not cards:
        return "<h2>Erasures</h2>\n<p>None is recorded.</p>\n" + _residual(report)
    rows = ageing(cards, report.now)
    table_of_ages = table(
        ("Age, from request to end or to now", "Open", "Closed"),
        ((str(row["age"]), int(row["open"]), int(row["closed"])) for row in rows),
        (1, 2),
    )
    return (
        f"<h2>Erasures ({len(cards)})</h2>\n{table_of_ages}\n"
        + exceptions_html(cards, table)
        + _residual(report)
        + cards_html(cards, report.outcome.findings, report.now, table)
    )


def _residual(report: Report) -> str:
    """Each backup that the store knows of, then what manifests say of backups that it does not."""
    shown = report.exhibits
    known = {one.backup for one in shown.backups}
    named = [
        (number[:16], "", "no end is told" if at is None else moment(at // 1_000_000), "by a manifest", "")
        for card in shown.cards
        for number, at in card.backups
        if number not in known
    ]
    rows = [
        (one.backup[:16], moment(one.made_at), _expiry(one.expires_at, report.now), one.held, one.beyond_use)
        for one in shown.backups
    ]
    said = "<h3>Backups, and what they still hold of what was erased</h3>\n"
    heads = ("Backup", "Made", "Kept until", "Holds, of what was erased since", "of that, beyond use")
    listed = (
        table(heads, [*rows, *named], (3, 4)) or "<p>The store knows of none, and no manifest names one.</p>"
    )
    return (
        f"{said}{listed}\n<p>Beyond use is what can't be read there any more, since its keys are destroyed. Copies"
        " that the home does not know of were not looked at.</p>\n"
    )


def _expiry(at: int, now: int) -> str:
    return moment(at) + (", which has passed" if at < now else "")


def _pages(report: Report) -> str:
    if not report.exhibits.maps:
        return ""
    keys = "".join(
        '<span class="key"><svg viewBox="0 0 8 8" width="13" height="13">'
        f'<rect class="{kind}" fill="{COLOURS[kind]}" width="8" height="8"/></svg>{escape(text)}</span>'
        for kind, text in KIND_WORDS.items()
    )
    parts = [f"<h2>The files of the memory, page by page</h2>\n<p>{keys}</p>"]
    for one in report.exhibits.maps:
        picture, share = page_map(one)
        totals = ", ".join(f"{count} {KIND_WORDS[kind]}" for kind, count in sorted(one.totals.items()))
        each = (
            ""
            if share == 1
            else f" Each square stands for {share} {one.unit}s, and has the colour of the worst."
        )
        parts.append(
            f"<h3>{escape(one.file)}: {sum(one.totals.values())} {one.unit}s of {one.unit_bytes} bytes</h3>\n"
            f"<p>{escape(totals)}.{each}</p>\n{picture}"
        )
    return "\n".join(parts)


def _again(report: Report) -> str:
    """How to check this page again, with the head that everything was judged by."""
    places = {"bundle": "--bundle DIR", "log": "--log URL"}
    place = places.get(str(report.subject.get("evidence")), "--home DIR")
    notes = [head.note for head in report.exhibits.heads if head.found_in == "checkpoint" and head.note]
    note = (
        f"<p>The head that everything was judged by, as the log signed it:</p>\n<pre>{escape(notes[-1])}</pre>"
        if notes
        else ""
    )
    return (
        "<h2>How to check this again</h2>\n"
        "<p>This page proves nothing by itself: it is what the auditor says. Whoever has the home, or a bundle of"
        " evidence, and a trust file of their own, comes to the same findings with</p>\n"
        f"<pre>muniment audit {place} --trust trust.toml --json</pre>\n"
        "<p>A statement of the sample is in the log if an inclusion proof leads from its leaf hash to the root above"
        " (RFC 9162); its commitment is in the entry (docs/formats/statement.md). The signed form of this report,"
        " <code>.cose</code>, is checked with <code>muniment verify</code>.</p>\n" + note
    )
