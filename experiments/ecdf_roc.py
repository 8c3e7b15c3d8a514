"""Figures 5, 8, 9 and 1: private ROC curves of logistic regressions, and the area between them and the true ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from sklearn.metrics import roc_curve as exact_roc_curve

from experiments import bands, plots
from experiments.bands import Axis, Drawing, Frame, Spot
from experiments.ecdf_mechanisms import (
    ADD,
    MECHANISMS,
    PUBLISHED,
    REPLACE,
    STYLES,
    TREE,
    Counts,
    Floats,
    Mechanism,
)
from experiments.ecdf_synthetic import ISOTONIC, L1, L2, SMOOTHINGS, Runs, curve
from experiments.models import Scored
from fedassay.estimation.curves import roc_curve
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Neighbours
from fedassay.summaries.distribution.tree import ValueTree
from fedassay.tasks.distribution.curve import area_between

TITLES = {REPLACE: "replace-one", ADD: "add-remove"}
Rates = tuple[Floats, Floats]
"""False and true positive rates, from (0, 0) to (1, 1)."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """How much is measured."""

    points: int = 1024
    epsilons: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
    runs: int = 60
    seed: int = 20231115


def counts_of(scored: Scored, points: int) -> Counts:
    """Positives and negatives per leaf."""
    total, _ = ValueTree(lower=0, upper=1, points=points, labelled=True).measure(scored, {})
    return total.reshape(2, -1)


def true_curve(scored: Scored) -> Rates:
    """The ROC curve of the rows themselves."""
    fpr, tpr, _ = exact_roc_curve(scored.labels, scored.scores)
    return fpr, tpr


def rates(positives: Floats, negatives: Floats, tops: Sequence[float]) -> Rates:
    """The ROC curve that belongs to two distribution functions: a value above a point predicts positive."""
    tpr, fpr = (
        np.concatenate([[0.0], np.clip(1 - sums[::-1] / top, 0.0, 1.0), [1.0]])
        for sums, top in zip((positives, negatives), tops, strict=True)
    )
    return fpr, tpr


def smoothed(mechanism: Mechanism, sums: Floats, smoothing: str) -> Floats:
    """The two curves, of positives and of negatives, after smoothing."""
    return np.stack([SMOOTHINGS[smoothing](one, top=mechanism.top(one, 0)) for one in sums])


def drawn(mechanism: Mechanism, sums: Floats, shown: Floats) -> Rates:
    """The ROC curve of a release, from its two curves as they are shown (smoothed, or the same again)."""
    return rates(shown[0], shown[1], [mechanism.top(one, 0) for one in sums])


def crosses_itself(mechanism: Mechanism, sums: Floats) -> bool:
    """Whether the curve without smoothing turns back, so that no area between it and another is defined."""
    return any((np.diff(side) < 0).any() for side in drawn(mechanism, sums, sums))


# --- Figure 5 -----------------------------------------------------------------------------------------------------

NONE = "none"
RATIO = "squared error after / before"


def errors(scored: Scored, scope: Scope, neighbours: Neighbours) -> Runs:
    """By mechanism and smoothing: areas between the true and the private curve, and `RATIO` of the two distributions.

    Under `NONE`: whether the ROC curve that is not smoothed crosses itself.
    """
    counts, truth, found = counts_of(scored, scope.points), true_curve(scored), Runs()
    exact = np.cumsum(counts, axis=1).astype(np.float64)
    for name in MECHANISMS:
        for epsilon in scope.epsilons:
            mechanism = _mechanism(name, epsilon, scope, neighbours)
            for run in range(scope.runs):
                path = (scored.name, name, neighbours, str(epsilon), str(run))
                sums = mechanism.curves(counts, SimulatedRandomness(scope.seed, *path))
                seen: dict[tuple[str, ...], float] = {(name, NONE): float(crosses_itself(mechanism, sums))}
                for which in SMOOTHINGS:
                    shown = smoothed(mechanism, sums, which)
                    ratio = ((shown - exact) ** 2).sum() / ((sums - exact) ** 2).sum()
                    seen[name, which, RATIO] = float(ratio)
                    seen[name, which] = area_between(*truth, *drawn(mechanism, sums, shown))
                for what, value in seen.items():
                    found.setdefault(what, {}).setdefault(epsilon, []).append(value)
    return found


def floor(scored: Scored, scope: Scope) -> float:
    """The area between the true curve and the one of the grid, without noise."""
    sums = np.cumsum(counts_of(scored, scope.points), axis=1).astype(np.float64)
    return area_between(*true_curve(scored), *rates(sums[0], sums[1], [float(top) for top in sums[:, -1]]))


def figure_5(found: Mapping[Neighbours, Runs], scored: Scored, scope: Scope) -> Drawing:
    """The area against epsilon."""
    rows = [
        [
            Frame(
                title=f"{smoothing} ({TITLES[neighbours]})",
                x=Axis(title="ε", ticks=(0.02, 0.1, 0.5, 2.0)),
                y=Axis(title="area between the curves"),
                curves={name: curve(runs, name, smoothing) for name in MECHANISMS},
                width=245,
            )
            for smoothing in (L1, L2, ISOTONIC)
        ]
        for neighbours, runs in found.items()
    ]
    title = f"Area between the true and the private ROC curve: {scored.name}, {len(scored):,} rows, N = {scope.points}"
    return bands.page(rows, STYLES, title)


# --- Figures 8, 9 and 1 -------------------------------------------------------------------------------------------

TRUTH, NOISY = "true curve", "as published, not smoothed"
PAPER_L1, PAPER_L2, OURS = "as published, l1", "as published, l2", "tree, isotonic, with 95 % band"
EXAMPLE_STYLES = {
    TRUTH: plots.Style(colour="#000000"),
    NOISY: plots.Style(colour="#C4C4C4"),
    PAPER_L1: plots.PUBLISHED_STYLE,
    PAPER_L2: plots.SECOND_PUBLISHED_STYLE,
    OURS: plots.DEFAULT_STYLE,
}


def examples(several: Mapping[float, Scored], scope: Scope) -> Drawing:
    """One release of each kind, replace-one: above as published, below ours."""
    above, below = [], []
    for epsilon, scored in several.items():
        truth = _spots(true_curve(scored))
        title = f"{scored.name}, ε = {epsilon:g}"
        noisy, l1, l2 = _published_example(scored, epsilon, scope)
        theirs = {NOISY: noisy, PAPER_L1: l1, PAPER_L2: l2, TRUTH: truth}
        above.append(_roc_frame(title, theirs))
        below.append(_roc_frame("", {OURS: _our_example(scored, epsilon, scope), TRUTH: truth}))
    return bands.page(
        [above, below], EXAMPLE_STYLES, f"Examples of private ROC curves, N = {scope.points}", columns=5
    )


def _published_example(scored: Scored, epsilon: float, scope: Scope) -> list[list[Spot]]:
    mechanism = _mechanism(PUBLISHED, epsilon, scope, REPLACE)
    sums = mechanism.curves(counts_of(scored, scope.points), _source(scored, PUBLISHED, scope))
    several = (sums, *(smoothed(mechanism, sums, which) for which in (L1, L2)))
    return [_spots(drawn(mechanism, sums, shown)) for shown in several]


def _our_example(scored: Scored, epsilon: float, scope: Scope) -> list[Spot]:
    mechanism = _mechanism(TREE, epsilon, scope, REPLACE)
    evidence = mechanism.evidence(counts_of(scored, scope.points), _source(scored, TREE, scope))
    found = roc_curve(evidence)
    columns = (found[name] for name in ("fpr", "tpr", "lower", "upper"))
    return [Spot(x=x, y=y, low=low, high=high) for x, y, low, high in zip(*columns, strict=True)]


def _source(scored: Scored, name: str, scope: Scope) -> SimulatedRandomness:
    return SimulatedRandomness(scope.seed, "example", scored.name, name)


def _roc_frame(title: str, curves: Mapping[str, Sequence[Spot]]) -> Frame:
    ticks = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    x = Axis(title="false positive rate", ticks=ticks, log=False, domain=(0.0, 1.0), form=".1f")
    y = Axis(title="true positive rate", ticks=ticks, log=False, domain=(0.0, 1.0), form=".1f")
    return Frame(title=title, x=x, y=y, curves=curves, width=245, height=245)


def _spots(curve: Rates, step: float = 0.002) -> list[Spot]:
    """The curve without points that nobody can tell apart."""
    spots, last = [], (-1.0, -1.0)
    for x, y in zip(*curve, strict=True):
        if abs(x - last[0]) + abs(y - last[1]) >= step or (x, y) == (1.0, 1.0):
            spots.append(Spot(x=float(x), y=float(y)))
            last = (float(x), float(y))
    return spots


@lru_cache(maxsize=1024)
def _mechanism(name: str, epsilon: float, scope: Scope, neighbours: Neighbours) -> Mechanism:
    return Mechanism(name=name, epsilon=epsilon, points=scope.points, labelled=True, neighbours=neighbours)
