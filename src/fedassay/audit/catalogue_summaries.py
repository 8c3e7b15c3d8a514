"""Every summary that can be asked under noise, at a trusted server.

Of class probabilities and regressions it is not obvious which rows are worst: the attacker tries some hundreds, logits
at their bounds among them.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np

from fedassay.audit.cases import (
    REPLACED,
    Case,
    CaseColumns,
    attack,
    farthest,
    largest,
    repeated,
    rows_with,
    scored,
    twice,
    valued,
    without,
)
from fedassay.estimation.heterogeneity import SMALLEST_CLASS
from fedassay.protocol.vocabulary import Neighbours, Protection, Sample, Sum, Unit
from fedassay.summaries.bounded_sums import AllGroupStatistics, GroupStatistics, PairedMoments, packed
from fedassay.summaries.coverage_counts import CoverageCounts
from fedassay.summaries.distribution.path import ScorePath, ValuePath
from fedassay.summaries.distribution.roots import ValueRoots
from fedassay.summaries.distribution.tree import ValueTree
from fedassay.summaries.grouped_histogram import GroupedHistogram, fingerprints
from fedassay.summaries.multiclass.calibrator_sums import ClippedUpdates, ScalingSums
from fedassay.summaries.multiclass.class_statistics import ClassStatistics
from fedassay.summaries.multiclass.histograms import ClassHistograms, ProbabilityHistograms
from fedassay.summaries.multiclass.loss_curves import ClientProfiles, LossCurves
from fedassay.summaries.multiclass.map_changes import MapChanges
from fedassay.summaries.regression.rounds import ClippedRound
from fedassay.summaries.score_histogram import PairedHistograms, VersusHistogram
from fedassay.summaries.site_sums import EligibleSites, SiteSums
from fedassay.trust import DistributedDP

SHARED = DistributedDP(dropout=0.2, collusion=0.2)
"""Trust model in which one of five clients may be silent and one collude: three shares of the noise are left."""

WHOLE = Protection(unit=Unit.CLIENT, rows_per_client=10)
SWAPPED = Protection(unit=Unit.CLIENT, rows_per_client=10, neighbours=Neighbours.REPLACE_ONE)

_another = partial(attack, protection=REPLACED, neighbours="another row")
_added = partial(attack, neighbours="one row, or none")
_worst_two = partial(_another, neighbours="the two worst of some hundred rows")
_worst_added = partial(attack, neighbours="the worst of some hundred rows, or none")
_swapped = partial(attack, protection=SWAPPED, neighbours="a client with rows that pull the other way")
_gone = partial(attack, protection=WHOLE, neighbours="all rows of a client, or none")


def summary_cases() -> list[Case]:
    """Return all cases of summaries."""
    return [*_histograms(), *_moments(), *_values(), *_sites(), *_statistics(), *_clipped(), *_regressions()]


# --- scores and values --------------------------------------------------------------------------------------

_versus = rows_with("score", "versus", "label")


def _histograms() -> list[Case]:
    bins: dict[str, Any] = {"transform": "uniform", "height": 2, "widths": (1, 2)}
    one, other = _versus((0.1, 0.1, 0)), _versus((0.9, 0.9, 1))
    first, second = ({**scored((0.1, 0)), "group": fingerprints([group])} for group in "ab")
    return [
        _another(
            "grouped-histogram",
            "score histograms of two groups",
            GroupedHistogram(groups=("a", "b"), **bins),
            (first, second),
            neighbours="the same row in another group",
        ),
        _added(
            "versus-histogram",
            "score histogram of a second model",
            VersusHistogram(**bins),
            (one, without(one)),
        ),
        _another(
            "paired-histograms", "score histograms of two models", PairedHistograms(**bins), (one, other)
        ),
        _another(
            "coverage-counts",
            "rows inside and outside of prediction sets",
            CoverageCounts(quantity="value", thresholds=(0.5,)),
            (valued(0.1), valued(0.9)),
            neighbours="a value on the other side of the threshold",
        ),
    ]


def _moments() -> list[Case]:
    none, every = np.zeros(8), np.ones(8)
    paired = PairedMoments(transform="uniform", height=2, placements=packed(none, every), capacity=4)
    rows = [_versus(row) for row in itertools.product((0.0, 1.0), (0.0, 1.0), (0, 1))]
    edges = (0.0, 0.5, 0.75, 1.0)
    groups = [scored(row) for row in itertools.product(edges, (0, 1))]
    plain, both = GroupStatistics(edges=edges, capacity=4), AllGroupStatistics(edges=edges, capacity=4)
    return [
        _another(
            "paired-moments", "moments of two models' difference", paired, farthest(paired, rows, l1=True)
        ),
        _another(
            "group-statistics",
            "observed and expected outcomes, asked twice",
            twice(plain),
            farthest(plain, groups),
        ),
        _added(
            "all-group-statistics",
            "observed and expected outcomes, all four",
            both,
            largest(both, groups, l1=True),
        ),
    ]


def _values() -> list[Case]:
    span: dict[str, Any] = {"lower": 0.0, "upper": 1.0, "points": 4}
    tree, roots = ValueTree(**span, widths=(1, 2)), ValueRoots(**span)
    path, fine = ValuePath(**span), ValuePath(**span, multiplier=1 << 16)
    worst = [valued(value) for value in (0.0, 0.3, 0.6, 1.0)]
    second_leaf = partial(attack, neighbours="one row in the second leaf, or none")
    step = scored((0.3, 0))
    return [
        _added("value-tree", "value tree, two levels", tree, (worst[0], valued())),
        second_leaf("value-path", "value path", path, (worst[1], valued())),
        second_leaf(
            "value-path/gaussian", "value path in fine units, asked twice", twice(fine), (worst[1], valued())
        ),
        _another("value-roots", "value roots", roots, farthest(roots, worst, l1=True)),
        _added(
            "value-roots/gaussian",
            "value roots, asked twice",
            twice(roots),
            largest(roots, [worst[0], worst[-1]]),
        ),
        second_leaf("score-path", "score path", ScorePath(points=4), (step, without(step))),
    ]


def _sites() -> list[Case]:
    """Return cases of a site's estimates from all its rows: one row decides whether there is an estimate at all."""
    half = [(0.2, 0), (0.4, 1), (0.6, 0), (0.8, 1)]
    enough = scored(*half * (SMALLEST_CLASS // 2))
    less = {name: column[:-1] for name, column in enough.items()}
    few = partial(attack, pair=(enough, less), neighbours="one row less, and too few for an estimate")
    return [
        few("eligible-sites", "how many sites have an estimate", EligibleSites(height=4)),
        few("site-sums", "weighted sums over sites", SiteSums(height=4)),
    ]


# --- class probabilities ------------------------------------------------------------------------------------

_classed = rows_with("logits", "class")


def _rows() -> list[CaseColumns]:
    """Return columns of one row each: logits of three classes, small, large and at the bounds, and every class."""
    ends = (-(2.0**20), -6.0, -1.0, 0.0, 1.0, 2.0**20)
    logits = [(a, b, 0.0) for a, b in itertools.product(ends, ends)]
    return [_classed((z, y)) for z in logits for y in range(3)]


def _statistics() -> list[Case]:
    rows = _rows()
    statistics = ClassStatistics(classes=3, bins=2, digits=1, most_rows=4)
    temperature: dict[str, Any] = {
        "kind": "temperature",
        "theta": (4.0,),
        "loss_bound": 1.0,
        "brier_bound": 0.1,
    }
    changes = MapChanges(classes=3, digits=1, moments=2, most_rows=4, **temperature)
    histograms = ClassHistograms(classes=3, height=2, transform="uniform")
    counts = ProbabilityHistograms(classes=3, height=1)
    scaling = ScalingSums(method="temperature", classes=3, theta=(1.0,))
    return [
        _worst_added(
            "class-statistics",
            "sums over rows and bins, asked twice",
            twice(statistics),
            largest(statistics, rows),
        ),
        _worst_two(
            "map-changes", "what a temperature changes, asked twice", twice(changes), farthest(changes, rows)
        ),
        _worst_added(
            "class-histograms", "histograms of three classes", histograms, largest(histograms, rows, l1=True)
        ),
        _worst_two(
            "probability-histograms", "counts by class and bin", counts, farthest(counts, rows, l1=True)
        ),
        _worst_added("scaling-sums", "sums of a Newton step", scaling, largest(scaling, rows)),
    ]


def _clipped() -> list[Case]:
    rows = [repeated(one, 10) for one in _rows()[::2]]
    grid = (0.25, 1.0, 4.0)
    counts = ProbabilityHistograms(classes=3, height=1, positive_clip=2.0, negative_clip=2.0)
    curves = LossCurves(classes=3, grid=grid, bound="client")
    by_row = LossCurves(classes=3, grid=grid, bound="row", most_rows=10)
    profiles = ClientProfiles(classes=3, grid=grid)
    updates = ClippedUpdates(method="temperature", classes=3, theta=(1.0,), clip=0.1)
    return [
        _swapped(
            "probability-histograms/clipped",
            "histograms of a client, clipped, asked twice",
            twice(counts),
            farthest(counts, rows),
        ),
        _swapped(
            "loss-curves/client", "loss curves of clients, asked twice", twice(curves), farthest(curves, rows)
        ),
        _worst_two(
            "loss-curves/row", "loss curves of rows, asked twice", twice(by_row), farthest(by_row, _rows())
        ),
        _swapped(
            "client-profiles",
            "curves and moments of clients, asked twice",
            twice(profiles),
            farthest(profiles, rows),
        ),
        _swapped(
            "clipped-updates",
            "a client's update of a calibrator, asked twice",
            twice(updates),
            farthest(updates, rows[::6]),
        ),
    ]


# --- regressions --------------------------------------------------------------------------------------------

ROUNDS = 2


def _regressions() -> list[Case]:
    # A gradient of just the clip's length, with its derivative: both parts have the largest norm.
    step = ClippedRound(
        features=1,
        model="linear",
        theta=(0.0,),
        step=0.1,
        intercept=False,
        clip=8.0,
        slopes_clip=0.5,
        weights="clients",
    )
    up = repeated(rows_with("features", "target")(((1.0,), 8.0)), 10)
    pair = up, without(up)
    sampled = (Sum(of=step, share=1 / ROUNDS, cohort=Sample(rate=0.5)),) * ROUNDS
    shared = (Sum(of=step, share=1 / ROUNDS),) * ROUNDS
    asked = f"{ROUNDS} rounds of a regression,"
    return [
        _gone("clipped-round/sampled", f"{asked} clients take part by a coin", sampled, pair),
        _gone(
            "clipped-round/shared",
            f"{asked} shares of noise",
            shared,
            pair,
            trust=SHARED,
            clients=5,
            silent=1,
            lost=1,
        ),
    ]
