"""Threshold explorer of a page: the meaning of each threshold, with intervals. Reads only a task's results.

All texts are made here, one per threshold; the page's script only looks them up. Raw numbers are stored with them, so
that the page can be compared with the result to the last digit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fedassay.documents import figures, markup
from fedassay.documents.blocks import Cell, Results, table
from fedassay.protocol.metrics import METRICS, of_part

ENDS = ("value", "lower", "upper")
PER = 1000
"""Number of rows to which numbers of rows refer."""

_START, _STEP = 0.5, 5
"""Initial threshold, and the step between the thresholds of the table."""


def explorer(points: Results, *, place: str) -> str:
    """Return a slider over all thresholds with its numbers, and a table for pages without scripts and for paper."""
    start = min(range(len(points["thresholds"])), key=lambda at: abs(points["thresholds"][at] - _START))
    shown = embedded(points)
    slider, data = f"{place}-slider", f"{place}-data"
    level = f"{100 * points['level']:g}%"
    return (
        f"<section class='explorer' data-explorer='{data}' aria-labelledby='{place}'>"
        f"<h3 id='{place}'>Threshold explorer</h3>"
        f"<p>From which score on should a row count as positive? Each number has its {level} interval, which holds "
        "for one threshold by itself, not for the best of many.</p>"
        "<div class='live' hidden>"
        f"<label for='{slider}'>threshold <output for='{slider}' data-shown='at'>{shown['at'][start]}</output></label>"
        f"<input id='{slider}' type='range' min='0' max='{len(points['thresholds']) - 1}' step='1' value='{start}'>"
        f"<dl class='tiles'>{''.join(_tile(name, shown, start) for name in names(points))}</dl>"
        f"<p class='told' role='status' aria-live='polite' data-shown='sentence'>{escape(shown['sentence'][start])}</p>"
        "</div>"
        f"<details open><summary>Some thresholds as a table</summary>{_table(points, shown, place)}</details>"
        f"<script type='application/json' id='{data}'>{as_data(shown)}</script></section>"
    )


def is_known(points: Results | None) -> bool:
    """Return whether there is a number at any threshold."""
    return points is not None and any(
        value is not None for name in names(points) for value in points[name]["value"]
    )


def names(points: Results) -> list[str]:
    """Return the metrics that are shown at each threshold."""
    return [record.name for record in of_part("operating-point") if record.name in points]


def as_data(value: object) -> str:
    """Return JSON that cannot end the element that holds it, for any texts.

    Examples
    --------
    >>> "</script>" in as_data({"text": "</script>"}), json.loads(as_data("</script><!-- & -->"))
    (False, '</script><!-- & -->')
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def embedded(points: Results) -> dict[str, Any]:
    """Return the data of the script: for each threshold the raw numbers, their texts, and a sentence."""
    count = len(points["thresholds"])
    metrics = {name: _texts(name, points[name]) for name in names(points)}
    return {
        "applied": list(points["applied"]),
        "at": [_at(points, place) for place in range(count)],
        "sentence": [_sentence(points, metrics, place) for place in range(count)],
        "metrics": metrics,
    }


def _texts(name: str, curve: Mapping[str, Sequence[float | None]]) -> dict[str, Any]:
    texts = [told(name, *numbers) for numbers in zip(*(curve[end] for end in ENDS), strict=True)]
    text, interval = (list(column) for column in zip(*texts, strict=True))
    return {**{end: list(curve[end]) for end in ENDS}, "text": text, "interval": interval}


def told(name: str, value: float | None, lower: float | None, upper: float | None) -> tuple[str, str]:
    """Format a number and its interval; they are rounded here only.

    Examples
    --------
    >>> told("precision", 0.6234, 0.581, 0.66)
    ('62.3%', '58.1 to 66.0%')
    >>> told("predicted_positives", 0.2541, 0.245, 0.263)
    ('25.41%', '24.50 to 26.30%; of 1,000 rows 254 (245 to 263)')
    >>> told("net_benefit", 0.0812, 0.07, 0.09)[0], told("recall", None, None, None)
    ('0.081', ('undefined', ''))
    """
    if value is None:
        return "undefined", ""
    width = None if lower is None or upper is None else upper - lower
    if not METRICS[name].is_share:
        ends = "" if width is None else figures.interval({"interval": (lower, upper)})
        return figures.number(value, width=width), ends
    text = f"{_percent(value, width)}%"
    if lower is None or upper is None:
        return text, ""
    ends = f"{_percent(lower, width)} to {_percent(upper, width)}%"
    if name == "predicted_positives":
        ends += f"; of {PER:,} rows {PER * value:,.0f} ({PER * lower:,.0f} to {PER * upper:,.0f})"
    return text, ends


def _percent(value: float, width: float | None) -> str:
    """Format a percentage to the second digit of the half-width, with at most two decimals."""
    digits = 1
    if width is not None and width > 0:
        digits = min(2, max(0, 1 - math.floor(math.log10(100 * width / 2))))
    return f"{100 * value:.{digits}f}"


def _at(points: Results, place: int) -> str:
    threshold, applied = points["thresholds"][place], points["applied"][place]
    return f"{threshold:.2f}" + ("" if abs(applied - threshold) < 5e-4 else f" (applied at {applied:.3f})")


def _sentence(points: Results, metrics: Mapping[str, Any], place: int) -> str:
    """Describe the meaning of a threshold, for screen readers and all others."""
    share, found, right = (
        metrics[name]["value"][place] for name in ("predicted_positives", "recall", "precision")
    )
    if share is None:
        return f"At {_at(points, place)} nothing is known."
    said = f"At {_at(points, place)}, {PER * share:,.0f} of {PER:,} rows are called positive"
    said += "" if right is None else f", {100 * right:.0f}% of them rightly"
    return said + ("." if found is None else f"; {100 * found:.0f}% of all positive rows are among them.")


def _tile(name: str, found: Mapping[str, Any], start: int) -> str:
    metric, record = found["metrics"][name], METRICS[name]
    title, meaning = escape(record.title), escape(record.sentence, quote=False)
    return (
        f"<div class='tile' data-metric='{name}'><dt>{title}<small>{meaning}</small></dt>"
        f"<dd><b>{escape(metric['text'][start])}</b><small>{escape(metric['interval'][start])}</small></dd></div>"
    )


def _table(points: Results, shown: Mapping[str, Any], place: str) -> str:
    """Return the table; its narrow cells leave out the number of rows."""
    metrics = shown["metrics"]
    rows = (
        (
            shown["at"][at],
            *(Cell(one["text"][at], one["interval"][at].partition(";")[0]) for one in metrics.values()),
        )
        for at in range(_STEP - 1, len(points["thresholds"]), _STEP)
    )
    head = ("threshold", *(METRICS[name].title for name in metrics))
    return markup.table(table("Some thresholds", head, rows), labelled=place)
