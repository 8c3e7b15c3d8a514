"""Figures 3 to 6 and 11 to 15 of the paper, and the cells of their tables, from what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from experiments import conformal_plots as boxes
from experiments.bands import Drawing
from experiments.common import Floats
from experiments.conformal_data import SOURCES
from experiments.conformal_models import LEVEL
from experiments.conformal_plots import Boxes, Interval
from experiments.conformal_runs import (
    AVERAGE,
    FEW,
    MANY,
    OURS,
    PAPER,
    POOLED,
    PRIVATE_OURS,
    PRIVATE_PUBLISHED,
    PRIVATE_SHARPER,
    WITHOUT,
    Example,
    Outcome,
    Runs,
)
from experiments.plots import DEFAULT_STYLE, PLAIN_STYLE, PUBLISHED_STYLE, SECOND_PUBLISHED_STYLE, Style

STYLES: Mapping[str, Style] = {
    POOLED: PLAIN_STYLE,
    AVERAGE: SECOND_PUBLISHED_STYLE,
    PAPER: PUBLISHED_STYLE,
    OURS: DEFAULT_STYLE,
}
PRIVATE_STYLES: Mapping[str, Style] = {
    WITHOUT: PLAIN_STYLE,
    PRIVATE_PUBLISHED: PUBLISHED_STYLE,
    PRIVATE_SHARPER: SECOND_PUBLISHED_STYLE,
    PRIVATE_OURS: DEFAULT_STYLE,
}
NUMBERS = {"bio": "Figures 5 and 6", "star": "Figures 11 and 12", "concrete": "Figures 13 and 14"}


def figure_3(example: Example, *, shown: int = 300) -> Drawing:
    """Points and intervals over X."""
    test = example.split.test
    order = np.argsort(test.features[:shown, 0], kind="stable")
    low, high = (end[:shown][order] for end in example.seen.test.ends())
    bands = {
        name: Interval(low=low - outcome.threshold, high=high + outcome.threshold)
        for name, outcome in reversed(list(example.outcomes.items()))
        if math.isfinite(outcome.threshold)
    }
    return boxes.intervals(
        test.features[:shown, 0][order],
        test.target[:shown][order],
        bands,
        STYLES,
        title="Figure 3: intervals on the synthetic data",
        reach=(-3.0, 6.0),
    )


def figure_4(found: Mapping[str, Runs]) -> Drawing:
    """Coverages over all data sets and splits together."""
    frames = []
    for title in (MANY, FEW):
        together: Runs = {}
        for several in found.values():
            for key, outcomes in _of(several, title).items():
                together.setdefault(key, []).extend(outcomes)
        frames.append(_coverages(title, together))
    return boxes.page([frames], STYLES, "Figure 4: coverage over all data sets and splits")


def figure_of(name: str, found: Runs) -> Drawing:
    """Coverage and length on one data set."""
    where = SOURCES[name]
    rows = []
    for title, (clients, n) in ((MANY, where.many), (FEW, where.few)):
        said, chosen = f"m = {clients}, n = {n}", _of(found, title)
        rows.append([_coverages(said, chosen), _lengths(said, chosen)])
    return boxes.page(rows, STYLES, f"{NUMBERS[name]}: {name}")


def figure_15(found: Mapping[str, Runs]) -> Drawing:
    """Private coverage and length: one row for each data set."""
    rows = []
    for name, several in found.items():
        clients, n = SOURCES[name].private
        said = f"{name}, m = {clients}, n = {n}"
        rows.append([_coverages(said, several), _lengths(said, several)])
    return boxes.page(rows, PRIVATE_STYLES, "Figure 15: with local differential privacy")


def _of(found: Runs, title: str) -> Runs:
    return {key[1:]: outcomes for key, outcomes in found.items() if key[0] == title}


def _coverages(title: str, found: Runs) -> Boxes:
    runs = {(key[0], key[1]): [one.coverage for one in outcomes] for key, outcomes in found.items()}
    return Boxes(title=title, y_title="coverage", runs=runs, level=LEVEL)


def _lengths(title: str, found: Runs) -> Boxes:
    runs = {(key[0], key[1]): [one.length for one in outcomes] for key, outcomes in found.items()}
    return Boxes(title=title, y_title="length, where finite", runs=runs)


# --- cells of tables ------------------------------------------------------------------------------------


def coverage_cell(outcomes: Sequence[Outcome]) -> str:
    """Mean (standard deviation)."""
    return _cell(np.array([one.coverage for one in outcomes]))


def length_cell(outcomes: Sequence[Outcome]) -> str:
    """The same, over those that are finite."""
    lengths = np.array([one.length for one in outcomes])
    finite = lengths[np.isfinite(lengths)]
    if len(finite) == 0:
        return "infinite"
    lost = len(lengths) - len(finite)
    return f"{_cell(finite)}, {lost} of {len(lengths)} infinite" if lost else _cell(finite)


def _cell(values: Floats) -> str:
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return f"{values.mean():.3f} ({spread:.3f})"
