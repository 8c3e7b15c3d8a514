"""Every summary of scores and values that can be asked under noise, at a trusted server."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedassay.audit.cases import (
    MIXED,
    Case,
    attack,
    farthest,
    grouped,
    largest,
    scored,
    valued,
    versus,
    without,
)
from fedassay.estimation.heterogeneity import SMALLEST_CLASS
from fedassay.protocol.vocabulary import Neighbours, Protection, Sum
from fedassay.summaries.bounded_sums import AllGroupStatistics, GroupStatistics, PairedMoments, packed
from fedassay.summaries.coverage_counts import CoverageCounts
from fedassay.summaries.distribution.path import ScorePath, ValuePath
from fedassay.summaries.distribution.roots import ValueRoots
from fedassay.summaries.distribution.tree import ValueTree
from fedassay.summaries.grouped_histogram import GroupedHistogram
from fedassay.summaries.score_histogram import PairedHistograms, VersusHistogram
from fedassay.summaries.site_sums import EligibleSites, SiteSums

REPLACED = Protection(neighbours=Neighbours.REPLACE_ONE)
ANOTHER, ADDED = "another row", "one row, or none"


def _histograms() -> list[Case]:
    bins: dict[str, Any] = {"transform": "uniform", "height": 2, "widths": (1, 2)}
    one, other = versus((0.1, 0.1, 0)), versus((0.9, 0.9, 1))
    return [
        attack(
            "grouped-histogram",
            "score histograms of two groups",
            GroupedHistogram(groups=("a", "b"), **bins),
            (grouped((0.1, 0, "a")), grouped((0.1, 0, "b"))),
            neighbours="the same row in another group",
            protection=REPLACED,
        ),
        attack(
            "versus-histogram",
            "score histogram of a second model",
            VersusHistogram(**bins),
            (one, without(one)),
            neighbours=ADDED,
        ),
        attack(
            "paired-histograms",
            "score histograms of two models",
            PairedHistograms(**bins),
            (one, other),
            neighbours=ANOTHER,
            protection=REPLACED,
        ),
        attack(
            "coverage-counts",
            "rows inside and outside of prediction sets",
            CoverageCounts(quantity="value", thresholds=(0.5,)),
            (valued(0.1), valued(0.9)),
            neighbours="a value on the other side of the threshold",
            protection=REPLACED,
        ),
    ]


def _moments() -> list[Case]:
    none, every = np.zeros(8), np.ones(8)
    paired = PairedMoments(transform="uniform", height=2, placements=packed(none, every), capacity=4)
    rows = [versus((s, t, y)) for s in (0.0, 1.0) for t in (0.0, 1.0) for y in (0, 1)]
    edges = (0.0, 0.5, 0.75, 1.0)
    groups = [scored((score, label)) for score in (0.0, 0.5, 0.75, 1.0) for label in (0, 1)]
    plain, both = GroupStatistics(edges=edges, capacity=4), AllGroupStatistics(edges=edges, capacity=4)
    return [
        attack(
            "paired-moments",
            "moments of two models' difference",
            paired,
            farthest(paired, rows, l1=True),
            neighbours=ANOTHER,
            protection=REPLACED,
        ),
        attack(
            "group-statistics",
            "observed and expected outcomes, asked twice",
            (Sum(of=plain, share=0.5),) * 2,
            farthest(plain, groups),
            neighbours=ANOTHER,
            protection=REPLACED,
            budget=MIXED,
        ),
        attack(
            "all-group-statistics",
            "observed and expected outcomes, all four",
            both,
            largest(both, groups, l1=True),
            neighbours=ADDED,
        ),
    ]


def _values() -> list[Case]:
    span: dict[str, Any] = {"lower": 0.0, "upper": 1.0, "points": 4}
    first, last = valued(0.0), valued(1.0)
    tree, roots = ValueTree(**span, widths=(1, 2)), ValueRoots(**span)
    path, fine = ValuePath(**span), ValuePath(**span, multiplier=1 << 16)
    worst = [valued(value) for value in (0.0, 0.3, 0.6, 1.0)]
    steps = [scored((score, 0)) for score in (0.0, 0.3, 0.6, 1.0)]
    return [
        attack("value-tree", "value tree, two levels", tree, (first, valued()), neighbours=ADDED),
        attack(
            "value-path",
            "value path",
            path,
            (worst[1], valued()),
            neighbours="one row in the second leaf, or none",
        ),
        attack(
            "value-path/gaussian",
            "value path in fine units, asked twice",
            (Sum(of=fine, share=0.5),) * 2,
            (worst[1], valued()),
            neighbours="one row in the second leaf, or none",
            budget=MIXED,
        ),
        attack(
            "value-roots",
            "value roots",
            roots,
            farthest(roots, worst, l1=True),
            neighbours=ANOTHER,
            protection=REPLACED,
        ),
        attack(
            "value-roots/gaussian",
            "value roots, asked twice",
            (Sum(of=roots, share=0.5),) * 2,
            largest(roots, [first, last]),
            neighbours=ADDED,
            budget=MIXED,
        ),
        attack(
            "score-path",
            "score path",
            ScorePath(points=4),
            (steps[1], without(steps[1])),
            neighbours="one row in the second leaf, or none",
        ),
    ]


def _sites() -> list[Case]:
    """What a site estimates from all its rows: one row decides whether it has an estimate at all."""
    half = [(0.2, 0), (0.4, 1), (0.6, 0), (0.8, 1)]
    enough = scored(*half * (SMALLEST_CLASS // 2))
    less = {name: column[:-1] for name, column in enough.items()}
    return [
        attack(
            name,
            mechanism,
            summary,
            (enough, less),
            neighbours="one row less, and too few for an estimate",
        )
        for name, mechanism, summary in (
            ("eligible-sites", "how many sites have an estimate", EligibleSites(height=4)),
            ("site-sums", "weighted sums over sites", SiteSums(height=4)),
        )
    ]


def summary_cases() -> list[Case]:
    """All of them."""
    return [*_histograms(), *_moments(), *_values(), *_sites()]
