"""Draws the rates of Aspira and its peers as bars, in SVG by hand: it needs no library."""

from collections.abc import Sequence
from html import escape

from peers_report import GROUPS, Row, Run

_WIDTH = 760
_LABEL_WIDTH = 170
_BAR_HEIGHT = 16
_ROW_HEIGHT = 22
_TITLE_HEIGHT = 40
_MARGIN = 16
_VALUE_WIDTH = 150
_OURS = "#1f6feb"
_THEIRS = "#9aa4af"


def draw_rates(run: Run) -> str:
    """A panel for each group that has figures, each with its own scale from 0."""
    panels: list[str] = []
    top = _MARGIN
    for group in GROUPS:
        rows = run.rank(group)
        if rows:
            panels += _draw_panel(group.title, rows=rows, top=top)
            top += _TITLE_HEIGHT + len(rows) * _ROW_HEIGHT + _MARGIN
    frame = f'viewBox="0 0 {_WIDTH} {top}" width="{_WIDTH}" height="{top}"'
    style = 'font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#24292f"'
    background = f'<rect width="{_WIDTH}" height="{top}" fill="#ffffff"/>'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {frame} {style}>', background, *panels]
    return "\n".join([*lines, "</svg>", ""])


def _draw_panel(title: str, *, rows: Sequence[Row], top: int) -> list[str]:
    most = max(row.rate.middle for row in rows)
    heading = (
        f'<text x="{_MARGIN}" y="{top + 18}" font-weight="bold">{escape(title)}: requests/s</text>'
    )
    bars = []
    for index, row in enumerate(rows):
        bars += _draw_bar(row, most=most, top=top + _TITLE_HEIGHT - 10 + index * _ROW_HEIGHT)
    return [heading, *bars]


def _draw_bar(row: Row, *, most: float, top: int) -> list[str]:
    room = _WIDTH - _LABEL_WIDTH - _VALUE_WIDTH - _MARGIN
    width = max(1.0, row.rate.middle / most * room)
    colour = _OURS if row.contender.is_aspira else _THEIRS
    baseline = top + 12
    left = _LABEL_WIDTH + 6
    value = f"{row.rate.middle:,.0f}, p99 {row.p99_ms.middle:,.1f} ms"
    title = escape(row.contender.title)
    return [
        f'<text x="{_LABEL_WIDTH}" y="{baseline}" text-anchor="end">{title}</text>',
        f'<rect x="{left}" y="{top}" width="{width:.1f}" height="{_BAR_HEIGHT}" fill="{colour}"/>',
        f'<text x="{left + width + 6:.1f}" y="{baseline}">{value}</text>',
    ]
