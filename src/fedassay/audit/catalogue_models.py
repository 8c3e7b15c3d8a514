"""Every summary of class probabilities and of regressions that can be asked under noise, at a trusted server.

Which rows are worst is not obvious here: the attacker tries some hundreds, logits at their bounds among them.
"""

from __future__ import annotations

import itertools

from fedassay.audit.cases import (
    MIXED,
    Case,
    CaseColumns,
    attack,
    classed,
    farthest,
    largest,
    regressed,
    repeated,
    without,
)
from fedassay.audit.catalogue_trust import SHARED
from fedassay.protocol.vocabulary import Neighbours, Protection, Sample, Sum, Unit
from fedassay.summaries.multiclass.calibrator_sums import ClippedUpdates, ScalingSums
from fedassay.summaries.multiclass.class_statistics import ClassStatistics
from fedassay.summaries.multiclass.histograms import ClassHistograms, ProbabilityHistograms
from fedassay.summaries.multiclass.loss_curves import ClientProfiles, LossCurves
from fedassay.summaries.multiclass.map_changes import MapChanges
from fedassay.summaries.regression.rounds import ClippedRound

REPLACED = Protection(neighbours=Neighbours.REPLACE_ONE)
WHOLE = Protection(unit=Unit.CLIENT, rows_per_client=10)
SWAPPED = Protection(unit=Unit.CLIENT, rows_per_client=10, neighbours=Neighbours.REPLACE_ONE)
ANOTHER = "the two worst of some hundred rows"
ADDED = "the worst of some hundred rows, or none"
CLIENT_GONE = "all rows of a client, or none"
CLIENT_SWAPPED = "a client with rows that pull the other way"
ROUNDS = 2


def _rows() -> list[CaseColumns]:
    """One row each: logits of three classes, small, large and at the bounds, and every class."""
    ends = (-(2.0**20), -6.0, -1.0, 0.0, 1.0, 2.0**20)
    logits = [(a, b, 0.0) for a, b in itertools.product(ends, ends)]
    return [classed((z, y)) for z in logits for y in range(3)]


def _statistics() -> list[Case]:
    rows = _rows()
    statistics = ClassStatistics(classes=3, bins=2, digits=1, most_rows=4)
    changes = MapChanges(
        classes=3,
        kind="temperature",
        theta=(4.0,),
        digits=1,
        moments=2,
        loss_bound=1.0,
        brier_bound=0.1,
        most_rows=4,
    )
    histograms = ClassHistograms(classes=3, height=2, transform="uniform")
    counts = ProbabilityHistograms(classes=3, height=1)
    scaling = ScalingSums(method="temperature", classes=3, theta=(1.0,))
    return [
        attack(
            "class-statistics",
            "sums over rows and bins, asked twice",
            (Sum(of=statistics, share=0.5),) * 2,
            largest(statistics, rows),
            neighbours=ADDED,
            budget=MIXED,
        ),
        attack(
            "map-changes",
            "what a temperature changes, asked twice",
            (Sum(of=changes, share=0.5),) * 2,
            farthest(changes, rows),
            neighbours=ANOTHER,
            protection=REPLACED,
            budget=MIXED,
        ),
        attack(
            "class-histograms",
            "histograms of three classes",
            histograms,
            largest(histograms, rows, l1=True),
            neighbours=ADDED,
        ),
        attack(
            "probability-histograms",
            "counts by class and bin",
            counts,
            farthest(counts, rows, l1=True),
            neighbours=ANOTHER,
            protection=REPLACED,
        ),
        attack(
            "scaling-sums",
            "sums of a Newton step",
            scaling,
            largest(scaling, rows),
            neighbours=ADDED,
        ),
    ]


def _clipped() -> list[Case]:
    rows = [repeated(one, 10) for one in _rows()[::2]]
    counts = ProbabilityHistograms(classes=3, height=1, positive_clip=2.0, negative_clip=2.0)
    curves = LossCurves(classes=3, grid=(0.25, 1.0, 4.0), bound="client")
    by_row = LossCurves(classes=3, grid=(0.25, 1.0, 4.0), bound="row", most_rows=10)
    profiles = ClientProfiles(classes=3, grid=(0.25, 1.0, 4.0))
    updates = ClippedUpdates(method="temperature", classes=3, theta=(1.0,), clip=0.1)
    return [
        attack(
            "probability-histograms/clipped",
            "histograms of a client, clipped, asked twice",
            (Sum(of=counts, share=0.5),) * 2,
            farthest(counts, rows),
            neighbours=CLIENT_SWAPPED,
            protection=SWAPPED,
            budget=MIXED,
        ),
        attack(
            "loss-curves/client",
            "loss curves of clients, asked twice",
            (Sum(of=curves, share=0.5),) * 2,
            farthest(curves, rows),
            neighbours=CLIENT_SWAPPED,
            protection=SWAPPED,
            budget=MIXED,
        ),
        attack(
            "loss-curves/row",
            "loss curves of rows, asked twice",
            (Sum(of=by_row, share=0.5),) * 2,
            farthest(by_row, _rows()),
            neighbours=ANOTHER,
            protection=REPLACED,
            budget=MIXED,
        ),
        attack(
            "client-profiles",
            "curves and moments of clients, asked twice",
            (Sum(of=profiles, share=0.5),) * 2,
            farthest(profiles, rows),
            neighbours=CLIENT_SWAPPED,
            protection=SWAPPED,
            budget=MIXED,
        ),
        attack(
            "clipped-updates",
            "a client's update of a calibrator, asked twice",
            (Sum(of=updates, share=0.5),) * 2,
            farthest(updates, rows[::6]),
            neighbours=CLIENT_SWAPPED,
            protection=SWAPPED,
            budget=MIXED,
        ),
    ]


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
    up = repeated(regressed(((1.0,), 8.0)), 10)
    rounds = (Sum(of=step, share=1 / ROUNDS, cohort=Sample(rate=0.5)),) * ROUNDS
    noisy = tuple(Sum(of=step, share=1 / ROUNDS) for _ in range(ROUNDS))
    return [
        attack(
            "clipped-round/sampled",
            f"{ROUNDS} rounds of a regression, clients take part by a coin",
            rounds,
            (up, without(up)),
            neighbours=CLIENT_GONE,
            protection=WHOLE,
            budget=MIXED,
        ),
        attack(
            "clipped-round/shared",
            f"{ROUNDS} rounds of a regression, shares of noise",
            noisy,
            (up, without(up)),
            neighbours=CLIENT_GONE,
            trust=SHARED,
            protection=WHOLE,
            budget=MIXED,
            clients=5,
            silent=1,
            lost=1,
        ),
    ]


def model_cases() -> list[Case]:
    """All of them."""
    return [*_statistics(), *_clipped(), *_regressions()]
