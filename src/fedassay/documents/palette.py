"""The colours of plots: real ones in files, and names in a page, which has a light and a dark side.

Plots are drawn in the light colours. In a page each becomes ``var(--plot-blue, #2166ac)`` and so on, and the page's
style decides; `LIGHT` and `DARK` are what it is made of. Within a side no two names have the same colour: the
colour is how a name is recognised.

Lines, dots and words have a contrast of at least 3 (words 4.5) to the paper of their side (WCAG 2.2, 1.4.3 and
1.4.11); the grid is there to be overlooked.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

INK, MUTED, GRID, PAPER = "#1a1a1a", "#5f6670", "#e2e5e9", "#ffffff"
BLUE, ORANGE, GREEN, RED, PURPLE = "#2166ac", "#c2570c", "#1b7837", "#b2182b", "#762a83"
BAND = "#4393c3"
"""The fill of a band around a single curve, with `BAND_OPACITY`."""

BAND_OPACITY = 0.28

LIGHT: Mapping[str, str] = MappingProxyType(
    {
        "--plot-ink": INK,
        "--plot-muted": MUTED,
        "--plot-grid": GRID,
        "--plot-paper": PAPER,
        "--plot-blue": BLUE,
        "--plot-orange": ORANGE,
        "--plot-green": GREEN,
        "--plot-red": RED,
        "--plot-purple": PURPLE,
        "--plot-band": BAND,
    }
)

DARK: Mapping[str, str] = MappingProxyType(
    {
        "--plot-ink": "#e8eaed",
        "--plot-muted": "#a6adb7",
        "--plot-grid": "#3a4048",
        "--plot-paper": "#16181c",
        "--plot-blue": "#7ab8f5",
        "--plot-orange": "#f2a65a",
        "--plot-green": "#74cf94",
        "--plot-red": "#f48b85",
        "--plot-purple": "#cba6ee",
        "--plot-band": "#5aa2e0",
    }
)

SEVERAL = (BLUE, ORANGE, INK, GREEN, PURPLE, RED)
"""Colours of curves that are told apart, the most important first."""

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
"""What Altair would draw in colours of its own."""
