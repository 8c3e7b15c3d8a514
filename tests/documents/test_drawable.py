"""Names of groups, sites and columns may hold anything; a character that no SVG can hold must not end the process."""

from __future__ import annotations

from pathlib import Path

import altair as alt

from fedassay.documents import plots


def chart(*names: str) -> alt.Chart:
    values = [{"name": name, "value": 1} for name in names]
    return alt.Chart(alt.Data(values=values)).mark_bar().encode(x="name:N", y="value:Q")


def test_characters_that_no_svg_can_hold_are_replaced_and_others_kept() -> None:
    drawn = plots.as_svg(chart("B\x1b", "C\ud800", "D\ufffe", "Ä 😀"))
    assert "Ä 😀" in drawn
    assert drawn.count("\ufffd") >= 3


def test_so_they_are_in_files(tmp_path: Path) -> None:
    plots.save(chart("B\x1b"), tmp_path / "plot.svg")
    assert "\ufffd" in (tmp_path / "plot.svg").read_text(encoding="utf-8")
