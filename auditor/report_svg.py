"""The two pictures of a report as SVG: the log over time, and the pages of a file. Text in them is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from auditor.exhibits import KINDS, Card, Head, PageMap

WIDTH: Final = 960
MAX_CELLS: Final = 16_384
COLUMNS: Final = 128
FEW_CELLS: Final = 4096
_LEFT: Final = 190
_LANE: Final = 24
_PLOT: Final = 150
_MAP_WIDTH: Final = 896
# Colours stand in the picture, too: what prints a page may not apply its style to pictures.
COLOURS: Final = {
    "live": "#6e9ecf",
    "zero": "#e3e8ee",
    "old": "#c9b458",
    "broken": "#7b3fa0",
    "residue": "#c8102e",
}
_MARKS: Final = {"cosigned": "#1a7f37", "erased": "#b3261e"}
_END: Final = 'class="end" text-anchor="end" fill="#57606a" font-size="13"'
_TEXT: Final = 'fill="#57606a" font-size="13"'
KIND_WORDS: Final = {
    "live": "in use",
    "zero": "free, and every byte of it zero",
    "old": "a superseded version, with no row that is gone",
    "broken": "not sound",
    "residue": "bytes that should not be there",
}


def timeline(heads: Sequence[Head], cards: Iterable[Card]) -> str:
    """The log's growth over its dated heads, a lane for each witness, and one for erasures; "" without a date."""
    dated = sorted(
        (head for head in heads if head.at is not None), key=lambda head: (head.at or 0, head.size)
    )
    if not dated:
        return ""
    erased = [card.erased_at // 1_000_000 for card in cards if card.erased_at is not None]
    witnesses = sorted({name for head in dated for name, _ in head.cosigned})
    times = [at for head in dated for _, at in head.cosigned] + erased
    scale = _Scale(min(times), max(times))
    largest = max(head.size for head in dated) or 1
    height = _PLOT + _LANE * (len(witnesses) + bool(erased)) + 56
    parts = [
        f'<svg class="wide" role="img" viewBox="0 0 {WIDTH} {height}" xmlns="http://www.w3.org/2000/svg">',
        f"<title>{len(dated)} heads of the log, {len(witnesses)} witnesses, {len(erased)} erasures</title>",
        *_axis(scale, largest, height),
        *_growth(dated, scale, largest),
    ]
    y = _PLOT + 34
    for name in witnesses:
        ticks = [at for head in dated for who, at in head.cosigned if who == name]
        parts += _lane(y, name, "cosigned", ticks, scale)
        y += _LANE
    if erased:
        parts += _lane(y, "erasures (to the hour)", "erased", erased, scale)
    return "".join([*parts, "</svg>"])


class _Scale:
    """Places on the time axis."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last

    def x(self, at: int) -> float:
        span = self.last - self.first
        share = 0.5 if span == 0 else (at - self.first) / span
        return round(_LEFT + 12 + share * (WIDTH - _LEFT - 36), 1)


def _axis(scale: _Scale, largest: int, height: int) -> Iterable[str]:
    yield f'<line class="axis" stroke="#d0d7de" x1="{_LEFT}" y1="{_PLOT + 10}" x2="{WIDTH - 8}" y2="{_PLOT + 10}"/>'
    yield f'<text {_END} x="{_LEFT - 8}" y="24">{largest} entries</text>'
    yield f'<text {_END} x="{_LEFT - 8}" y="{_PLOT + 14}">0</text>'
    yield f'<text {_TEXT} x="{_LEFT}" y="{height - 8}">{_moment(scale.first)}</text>'
    if scale.last != scale.first:
        yield f'<text {_END} x="{WIDTH - 8}" y="{height - 8}">{_moment(scale.last)}</text>'


def _growth(heads: Sequence[Head], scale: _Scale, largest: int) -> Iterable[str]:
    points = [
        (scale.x(head.at or 0), round(_PLOT + 10 - head.size / largest * (_PLOT - 10), 1)) for head in heads
    ]
    # A log that took the place of another begins anew: a line each.
    for origin in dict.fromkeys(head.origin for head in heads):
        of_log = [point for head, point in zip(heads, points, strict=True) if head.origin == origin]
        steps = " ".join(f"{x},{y}" for x, y in of_log)
        yield f'<polyline class="growth" fill="none" stroke="#0b5cad" stroke-width="2" points="{steps}"/>'
    for head, (x, y) in zip(heads, points, strict=True):
        label = f"{head.size} entries, root {head.root[:16]}…, {len(head.cosigned)} cosignatures, in {head.found_in}"
        yield f'<circle class="head" fill="#0b5cad" cx="{x}" cy="{y}" r="5"><title>{escape(label)}</title></circle>'


def _lane(y: int, name: str, kind: str, ticks: Iterable[int], scale: _Scale) -> Iterable[str]:
    shown = name if len(name) <= 28 else name[:27] + "…"
    yield f'<text {_END} x="{_LEFT - 8}" y="{y + 5}">{escape(shown)}</text>'
    yield f'<line class="lane" stroke="#d0d7de" x1="{_LEFT}" y1="{y}" x2="{WIDTH - 8}" y2="{y}"/>'
    for at in sorted(set(ticks)):
        x = scale.x(at)
        place = f'x="{x - 2:.1f}" y="{y - 7}" width="4" height="14" fill="{_MARKS[kind]}"'
        yield f'<rect class="{kind}" {place}><title>{_moment(at)}</title></rect>'


def page_map(one: PageMap) -> tuple[str, int]:
    """The picture of a file, row by row from its first page, and how many pages a cell stands for."""
    total = sum(count for _, count in one.runs)
    share = max(1, -(-total // MAX_CELLS))
    cells = _cells(one.runs, share)
    columns = COLUMNS if len(cells) > FEW_CELLS else COLUMNS // 2
    side = _MAP_WIDTH // columns
    width, height = _MAP_WIDTH, max(-(-len(cells) // columns), 1) * side
    counts = ", ".join(
        f"{count} {KIND_WORDS[kind]}" for kind, count in sorted(one.totals.items()) if kind in KIND_WORDS
    )
    parts = [
        f'<svg class="map" role="img" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">',
        f"<title>{escape(one.file)}: {escape(counts)}</title>",
    ]
    for start, length, kind in _stripes(cells, columns):
        x, y = start % columns * side, start // columns * side
        first = start * share + 1
        last = min(total, (start + length) * share)
        label = f"{one.unit}s {first} to {last}: {KIND_WORDS[kind]}"
        parts.append(
            f'<rect class="{kind}" fill="{COLOURS[kind]}" x="{x}" y="{y}" width="{length * side - 1}"'
            f' height="{side - 1}">'
            f"<title>{label}</title></rect>"
        )
    return "".join([*parts, "</svg>"]), share


def _cells(runs: Iterable[tuple[str, int]], share: int) -> list[str]:
    """The kind of each cell: the worst of the pages that it stands for."""
    ranks: list[int] = []
    position = 0
    for kind, count in runs:
        rank = KINDS.index(kind)
        first, last = position // share, (position + count - 1) // share
        position += count
        for cell in range(first, last + 1):
            if cell == len(ranks):
                ranks.append(rank)
            else:
                ranks[cell] = max(ranks[cell], rank)
    return [KINDS[rank] for rank in ranks]


def _stripes(cells: Sequence[str], columns: int) -> Iterable[tuple[int, int, str]]:
    """Start, length and kind of equal neighbours, none of them over the end of a row."""
    start = 0
    for at in range(1, len(cells) + 1):
        if at == len(cells) or cells[at] != cells[start] or at % columns == 0:
            yield start, at - start, cells[start]
            start = at


def _moment(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return f"second {seconds}"
