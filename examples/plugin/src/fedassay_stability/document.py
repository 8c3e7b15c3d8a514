"""What a report shows of the population stability index. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import altair as alt

from fedassay.documents import figures
from fedassay.documents.blocks import (
    CurveBlock,
    Document,
    DocumentBlock,
    KeyNumber,
    Results,
    SentenceBlock,
    metric_cell,
    metric_number,
    table,
)
from fedassay.documents.kind import INDEPENDENT_ROWS, ON_ALL_ROWS, KindDocument
from fedassay.documents.palette import BLUE, ORANGE

TITLE = "population stability index"

STABLE, CHANGED = 0.1, 0.25
"""Usual limits of the index: stable below the first, changed above the second."""


class StabilityDocument(KindDocument):
    """Population stability between two periods."""

    titles: ClassVar[Mapping[str, str]] = {"stability_index": TITLE}

    def blocks(self, document: Document) -> Iterator[DocumentBlock]:
        """The shares of both periods as a plot, and the index with its bins."""
        results = document["results"]
        index = results["stability_index"]
        if index["value"] is None:
            yield SentenceBlock(text=f"There is no {TITLE}: {index['reason']}.")
            return
        yield CurveBlock(
            draw=lambda: shares(results),
            alternative=f"Shares of rows by score in both periods; {TITLE} {figures.told(index)}",
        )
        rows = (
            (f"{row['lower']:.3g} to {row['upper']:.3g}", f"{row['base']:.3f}", f"{row['current']:.3f}")
            for row in results["bins"]
        )
        yield table(
            "Population stability",
            ("scores", "base period", "current period"),
            (*rows, (TITLE, "", metric_cell(index))),
            notes=(
                f"{in_words(index['interval']).capitalize()} (below {STABLE} stable, above {CHANGED} changed).",
            ),
        )

    def key_numbers(self, results: Results) -> Iterator[KeyNumber]:
        """The index."""
        yield metric_number(f"{TITLE} {ON_ALL_ROWS}", results["stability_index"])

    def assumptions(self, results: Results) -> Iterator[str]:
        """Independent rows, and sites that say rightly which period a row belongs to."""
        yield INDEPENDENT_ROWS
        yield "Sites mark the period of each row in the same way."

    def sentences(self, results: Results) -> Iterator[str]:
        """The index in a study's verdict."""
        index = results["stability_index"]
        if index["value"] is not None:
            yield f"Between the periods {in_words(index['interval'])}: the {TITLE} is {figures.with_interval(index)}."


def shares(results: Results) -> alt.Chart:
    """Bars of the shares of rows, period by period."""
    values = [
        {"scores": f"{row['lower']:.3g} to {row['upper']:.3g}", "share": row[period], "period": period}
        for row in results["bins"]
        for period in ("base", "current")
    ]
    return (
        alt.Chart(alt.Data(values=values))
        .mark_bar()
        .encode(
            x=alt.X("scores:N", sort=None, title="score"),
            xOffset="period:N",
            y=alt.Y("share:Q", title="share of rows"),
            color=alt.Color("period:N", scale=alt.Scale(range=[BLUE, ORANGE]), title=None),
        )
    )


def in_words(index: Sequence[float] | None) -> str:
    """The population that an interval of the index tells of, by the usual limits.

    Examples
    --------
    >>> in_words((0.0, 0.05)), in_words((0.3, 0.5)), in_words((0.05, 0.4))
    ('the population is stable', 'the population has changed', 'it cannot be told whether the population has changed')
    """
    if index is not None and index[1] < STABLE:
        return "the population is stable"
    if index is not None and index[0] > CHANGED:
        return "the population has changed"
    return "it cannot be told whether the population has changed"
