"""Draws a run of log_rates.py: appends beside peers, and the rate of the log as it grows.

    python benchmarks/log_plot.py RESULTS.json [docs/benchmarks/log_rates.svg]

Writes an SVG by hand, so that nothing has to be installed for it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from log_report import signing_rate

WIDTH, HEIGHT = 920, 430
PANEL_WIDTH, PANEL_HEIGHT, TOP, LEFT = 330, 250, 70, 75
COLOURS = {"muniment": "#1b6e53", "pymerkle": "#b0682c", "aics-tlog": "#5b5fa8", "inspeximus": "#8a8f94"}
GREY, INK = "#c9ced2", "#23282c"


class Drawing:
    """Shapes, in the order they are drawn."""

    def __init__(self) -> None:
        self._shapes: list[str] = []

    def rectangle(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        self._shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'
        )

    def line(
        self, points: Iterable[tuple[float, float]], colour: str, width: float = 1, dash: str = ""
    ) -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._shapes.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>'
        )

    def text(self, x: float, y: float, words: str, size: int = 12, anchor: str = "start") -> None:
        self._shapes.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{INK}">'
            f"{escape(words)}</text>"
        )

    def svg(self) -> str:
        """The whole file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
            f' height="{HEIGHT}" font-family="sans-serif">'
        )
        return "\n".join(
            (head, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>', *self._shapes, "</svg>\n")
        )


def axis(drawing: Drawing, left: float, highest: float, ticks: int = 4) -> float:
    """Draws the lines of a panel; returns how high one unit is."""
    step = _round_up(highest / ticks)
    for number in range(ticks + 1):
        y = TOP + PANEL_HEIGHT - number * PANEL_HEIGHT / ticks
        drawing.line([(left, y), (left + PANEL_WIDTH, y)], GREY)
        drawing.text(left - 8, y + 4, f"{number * step:,.0f}", 11, "end")
    return PANEL_HEIGHT / (step * ticks)


def _round_up(value: float) -> float:
    power = 10.0 ** max(len(f"{value:.0f}") - 1, 0)
    return next(power * one for one in (1, 2, 2.5, 5, 10) if power * one >= value)


def bars(drawing: Drawing, left: float, rows: Sequence[dict[str, Any]], signing: float) -> None:
    """Entries a second of each system by batch size, under the line that signing alone would reach."""
    batches = sorted({row["batch"] for row in rows})
    systems = [name for name in COLOURS if any(row["system"] == name for row in rows)]
    unit = axis(drawing, left, max([signing, *(row["per_second"] for row in rows)]))
    group = PANEL_WIDTH / len(batches)
    bar = min(group / (len(systems) + 1), 26)
    for place, batch in enumerate(batches):
        x = left + place * group + (group - bar * len(systems)) / 2
        for number, name in enumerate(systems):
            found = [row["per_second"] for row in rows if (row["system"], row["batch"]) == (name, batch)]
            if found:
                high = max(found[0] * unit, 0.5)
                corner = x + number * bar, TOP + PANEL_HEIGHT - high
                drawing.rectangle(*corner, bar - 3, high, COLOURS[name])
                drawing.text(corner[0] + bar / 2 - 1.5, corner[1] - 4, f"{found[0]:,.0f}", 9, "middle")
        drawing.text(
            left + (place + 0.5) * group, TOP + PANEL_HEIGHT + 18, f"batches of {batch:,}", 11, "middle"
        )
    y = TOP + PANEL_HEIGHT - signing * unit
    drawing.line([(left, y), (left + PANEL_WIDTH, y)], INK, 1.2, "5 4")
    drawing.text(left + 4, y - 5, "raw Ed25519 signing", 11)
    for number, name in enumerate(systems):
        x = left + number * 85
        drawing.rectangle(x, TOP + PANEL_HEIGHT + 34, 10, 10, COLOURS[name])
        drawing.text(x + 14, TOP + PANEL_HEIGHT + 43, name, 11)


def curve(drawing: Drawing, left: float, points: Sequence[dict[str, Any]]) -> None:
    """How much of the signing rate of the same moment the growing log reaches, in percent."""
    unit = axis(drawing, left, 100)
    last = points[-1]["size"]
    for name, colour, width in (
        ("share_of_signing", GREY, 1.2),
        ("share_of_signing_cpu", COLOURS["muniment"], 2.2),
    ):
        drawing.line(
            [
                (
                    left + PANEL_WIDTH * one["size"] / last,
                    TOP + PANEL_HEIGHT - min(100 * one[name], 100) * unit,
                )
                for one in points
            ],
            colour,
            width,
        )
    y = TOP + PANEL_HEIGHT - 50 * unit
    drawing.line([(left, y), (left + PANEL_WIDTH, y)], INK, 1.2, "5 4")
    for share in (0, 0.5, 1):
        x = left + PANEL_WIDTH * share
        drawing.text(x, TOP + PANEL_HEIGHT + 18, f"{share * last:,.0f}", 11, "middle")
    for x, colour, words in (
        (left, COLOURS["muniment"], "of CPU time"),
        (left + 110, GREY, "of time on the clock"),
        (left + 250, INK, "aim"),
    ):
        drawing.line([(x, TOP + PANEL_HEIGHT + 39), (x + 12, TOP + PANEL_HEIGHT + 39)], colour, 2.2)
        drawing.text(x + 17, TOP + PANEL_HEIGHT + 43, words, 11)


def draw(results: dict[str, Any]) -> str:
    """The picture of a run."""
    drawing = Drawing()
    where = results["machine"]
    drawing.text(20, 26, "Signed, durable appends", 17)
    drawing.text(
        20,
        HEIGHT - 14,
        f"{results['date'][:10]}, {where['processor']}, {where['cores']} cores, {where['file_system']},"
        f" Python {where['python']}, cryptography {where['packages']['cryptography']};"
        f" entries of {results['entry_bytes']} bytes; medians of rounds in turns",
        11,
    )
    drawing.text(LEFT, TOP - 18, "entries a second")
    bars(drawing, LEFT, results["append"], signing_rate(results, "signing_per_second"))
    second = LEFT + PANEL_WIDTH + 125
    drawing.text(second, TOP - 18, "percent of the raw signing rate, as a log grows")
    curve(drawing, second, results["growth"])
    return drawing.svg()


def main() -> int:
    default = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "log_rates.svg"
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", type=Path, help="what log_rates.py --json wrote")
    parser.add_argument("drawing", type=Path, nargs="?", default=default, help="the SVG to write")
    args = parser.parse_args()
    args.drawing.parent.mkdir(parents=True, exist_ok=True)
    args.drawing.write_text(draw(json.loads(args.results.read_text("utf-8"))), "utf-8")
    print(args.drawing)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
