"""A chart of the ordered case as SVG: bars on a logarithmic scale, because the contestants lie that far apart."""

from __future__ import annotations

from html import escape
from math import ceil, floor, log10

from tests.bench.board import Board
from tests.bench.table import number

CASE = "ordered"
BAR, GAP, LEFT, RIGHT, TOP, WIDTH, FOOT = 22, 8, 230, 120, 56, 860, 44
COLOURS = {"ours": "#2f6f4f", "ordered": "#b3541e", "unordered": "#8a8f98"}
FONT = 'font-family="system-ui, sans-serif"'


def draw(board: Board, caption: str) -> str:
    """The SVG text. Bars are medians, the line across each its spread; what could not run has its place and no bar."""
    rows = board.of(CASE)
    known = [rate for row in rows for rate in row.figures("rate") if rate > 0]
    low, high = floor(log10(min(known, default=1))), ceil(log10(max(known, default=10)))
    high = max(high, low + 1)
    height = TOP + len(rows) * (BAR + GAP) + FOOT

    def x(rate: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (log10(max(rate, 10**low)) - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" {FONT}>',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(16, 26, "Messages per second, one worker process (logarithmic)", size=16, weight="600"),
        _legend(),
    ]
    for power in range(low, high + 1):
        at = x(10**power)
        bottom = height - FOOT + 4
        parts.append(f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{bottom}" stroke="#e3e5e8"/>')
        parts.append(_text(at, bottom + 14, number(10**power), size=11, anchor="middle", colour="#5b616b"))
    for place, row in enumerate(rows):
        y = TOP + place * (BAR + GAP)
        middle, figures = row.median("rate"), row.figures("rate")
        parts.append(_text(LEFT - 10, y + 16, row.variant, size=13, anchor="end"))
        if not middle:
            parts.append(_text(LEFT + 6, y + 16, "could not run here", size=12, colour="#5b616b"))
            continue
        kind = "ours" if row.variant.startswith("Keyturn") else "unordered" if row.note else "ordered"
        parts.append(
            f'<rect x="{LEFT}" y="{y}" width="{max(x(middle) - LEFT, 1):.1f}" height="{BAR}" fill="{COLOURS[kind]}" rx="2"/>'
        )
        centre, left, right = y + BAR / 2, x(min(figures)), x(max(figures))
        parts.append(
            f'<line x1="{left:.1f}" y1="{centre}" x2="{right:.1f}" y2="{centre}" stroke="#1c1f23" stroke-width="2"/>'
        )
        parts.append(_text(max(right, x(middle)) + 8, y + 16, number(middle), size=12))
    parts.append(_text(16, height - 10, caption, size=11, colour="#5b616b"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend() -> str:
    parts, at = [], 16
    for kind, text in (("ours", "Keyturn"), ("ordered", "others with order"), ("unordered", "others without order")):
        parts.append(f'<rect x="{at}" y="36" width="10" height="10" fill="{COLOURS[kind]}"/>')
        parts.append(_text(at + 15, 45, text, size=12))
        at += 40 + 7 * len(text)
    return "\n".join(parts)


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int,
    anchor: str = "start",
    colour: str = "#1c1f23",
    weight: str = "400",
) -> str:
    style = f'font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
