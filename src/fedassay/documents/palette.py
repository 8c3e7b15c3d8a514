"""Colours of plots: real colours in files, and names in a page, which has a light and a dark side.

Plots are drawn in the light colours. In a page each becomes ``var(--plot-blue, #2166ac)`` and so on, and the page's
style decides; it is made from `LIGHT` and `DARK`. Within a side no two names have the same colour, because a name is
recognised by its colour.

Lines, dots and words have a contrast of at least 3 (words 4.5) to the paper of their side (WCAG 2.2, 1.4.3 and
1.4.11); the grid is deliberately faint.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

INK, MUTED, GRID, PAPER = "#1a1a1a", "#5f6670", "#e2e5e9", "#ffffff"
BLUE, ORANGE, GREEN, RED, PURPLE = "#2166ac", "#c2570c", "#1b7837", "#b2182b", "#762a83"
BAND = "#4393c3"
"""Fill of a band around a single curve, with `BAND_OPACITY`."""

BAND_OPACITY = 0.28

_SIDES = {
    "ink": (INK, "#e8eaed"),
    "muted": (MUTED, "#a6adb7"),
    "grid": (GRID, "#3a4048"),
    "paper": (PAPER, "#16181c"),
    "blue": (BLUE, "#7ab8f5"),
    "orange": (ORANGE, "#f2a65a"),
    "green": (GREEN, "#74cf94"),
    "red": (RED, "#f48b85"),
    "purple": (PURPLE, "#cba6ee"),
    "band": (BAND, "#5aa2e0"),
}
LIGHT, DARK = (
    MappingProxyType({f"--plot-{name}": colours[side] for name, colours in _SIDES.items()}) for side in (0, 1)
)

SEVERAL = (BLUE, ORANGE, INK, GREEN, PURPLE, RED)
"""Colours that distinguish several curves, the most important first."""

FONT = "system-ui, sans-serif"

THEME: Mapping[str, Any] = MappingProxyType(
    {
        "background": PAPER,
        "font": FONT,
        "view": {"stroke": MUTED, "strokeOpacity": 0.5},
        "axis": {
            "labelColor": INK,
            "titleColor": INK,
            "domainColor": MUTED,
            "tickColor": MUTED,
            "gridColor": GRID,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "labelSeparation": 6,
            "labelFlush": False,  # the labels at the ends would be moved towards their neighbours
        },
        "legend": {"labelColor": INK, "titleColor": INK, "labelFontSize": 12, "titleFontSize": 12},
        "header": {"labelColor": INK, "titleColor": INK},
        "title": {"color": INK, "subtitleColor": MUTED, "fontSize": 14, "subtitleFontSize": 12},
        "text": {"color": INK, "fontSize": 12},
        "line": {"color": BLUE},
        "point": {"color": BLUE},
        "bar": {"color": BLUE},
        "rule": {"color": MUTED},
    }
)
"""Theme of Altair; without it these parts would have Altair's own colours."""
