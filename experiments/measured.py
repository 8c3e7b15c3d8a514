"""Everything that is measured on one data set, and the curves in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from experiments import calibrating as cal
from experiments.common import (
    DEFAULT,
    DISTRIBUTED,
    FEDERATED,
    LOCAL,
    MODELS,
    PUBLISHED,
    SAME_BINS,
    Case,
    Judge,
    Model,
    Point,
    Points,
    Sample,
    measure,
)
from experiments.judges import BUCKETS, of_buckets, of_calibration_error, of_metrics
from experiments.plots import Dot

VARIANTS = (PUBLISHED, SAME_BINS, DEFAULT)


@dataclass(frozen=True, kw_only=True)
class Scope:
    """How much is measured.

    `rows` are drawn where their number is not what is varied; bytes are counted for `messengers` clients.
    """

    heights: tuple[int, ...] = tuple(range(4, 15))
    sizes: tuple[int, ...] = (1_000, 3_162, 10_000, 31_623, 100_000, 316_228, 1_000_000)
    epsilons: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    rows: int = 100_000
    messengers: int = 100
    repetitions: int = 30
    seed: int = 20231115


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Everything that was measured on one data set."""

    sample: Sample
    scope: Scope
    by_height: Points
    by_size: Points
    by_epsilon: Points
    by_buckets: Points
    estimated: Points
    held_out: Mapping[tuple[str, str, int], Point]
    distances: Mapping[tuple[int, Model, str], Point]


def run(sample: Sample, scope: Scope) -> Measured:
    """Measure everything."""

    def points(cases: Mapping[int, Iterable[Case]], judge: Callable[[Sample], Judge] = of_metrics) -> Points:
        return measure(sample, cases, judge, repetitions=scope.repetitions, seed=scope.seed)

    rows, everything = scope.rows, len(sample)
    distances = dict.fromkeys(scope.sizes, MODELS) | {
        rows: (*MODELS, *with_epsilons(DISTRIBUTED, scope.epsilons), *with_epsilons(LOCAL, scope.epsilons))
    }
    return Measured(
        sample=sample,
        scope=scope,
        by_height=points({everything: [*_by_height(scope.heights)]}),
        by_size=points({size: [*_by_size(size)] for size in scope.sizes}),
        by_epsilon=points({rows: [*_by_epsilon(scope.epsilons)]}),
        by_buckets=points({rows: [Case(model=m, variant=v) for m in MODELS for v in VARIANTS]}, of_buckets),
        estimated=points(
            {rows: [Case(model=m, variant=v) for m in MODELS for v in VARIANTS]}, of_calibration_error
        ),
        held_out=cal.held_out_errors(sample, MODELS, repetitions=scope.repetitions, seed=scope.seed),
        distances=cal.distances(sample, distances, repetitions=scope.repetitions, seed=scope.seed),
    )


def with_epsilons(model: Model, epsilons: Iterable[float]) -> list[Model]:
    """The model with other epsilons than its own."""
    return [replace(model, epsilon=epsilon) for epsilon in epsilons if epsilon != model.epsilon]


def balanced_height(model: Model, rows: int) -> int:
    """The height whose number of bins balances binning and noise in Theorem 2, without constants."""
    assert model.epsilon is not None
    bins = (model.epsilon * rows) ** (2 / 3)
    if model.name == LOCAL.name:
        bins = model.epsilon ** (2 / 3) * rows ** (1 / 3)
    return min(14, max(2, round(math.log2(bins))))


def _by_height(heights: Sequence[int]) -> Iterable[Case]:
    for model in MODELS:
        yield Case(model=model, variant=DEFAULT)
        for height in heights:
            yield Case(model=model, variant=PUBLISHED, height=height)
            if model is not FEDERATED:  # without noise the same bins say the same
                yield Case(model=model, variant=SAME_BINS, height=height)


def _by_size(size: int) -> Iterable[Case]:
    for model in MODELS:
        yield from (Case(model=model, variant=variant) for variant in VARIANTS)
        if model is not FEDERATED and balanced_height(model, size) != 10:
            yield Case(model=model, variant=PUBLISHED, height=balanced_height(model, size))


def _by_epsilon(epsilons: Sequence[float]) -> Iterable[Case]:
    for model in (DISTRIBUTED, LOCAL):
        for epsilon in epsilons:
            yield from (Case(model=replace(model, epsilon=epsilon), variant=variant) for variant in VARIANTS)


# --- curves --------------------------------------------------------------------------------------------------------


def size_curve(seen: Measured, case: Case, metric: str) -> list[Dot]:
    """Error against the number of clients."""
    return [
        Dot(x=size, point=seen.by_size[size, case, (metric,)], hollow=size > len(seen.sample))
        for size in seen.scope.sizes
    ]


def balanced_curve(seen: Measured, model: Model, metric: str) -> list[Dot]:
    """The same as published, at the height that Theorem 2 balances."""
    return [
        Dot(
            x=size,
            point=seen.by_size[
                size,
                Case(model=model, variant=PUBLISHED, height=balanced_height(model, size)),
                (metric,),
            ],
        )
        for size in seen.scope.sizes
    ]


def height_curve(seen: Measured, case: Case, metric: str) -> list[Dot]:
    """Error against the height."""
    key = len(seen.sample)
    return [
        Dot(x=height, point=seen.by_height[key, replace(case, height=height), (metric,)])
        for height in seen.scope.heights
    ]


def epsilon_curve(seen: Measured, case: Case, metric: str) -> list[Dot]:
    """Error against epsilon."""
    rows = seen.scope.rows
    return [
        Dot(
            x=epsilon,
            point=seen.by_epsilon[rows, replace(case, model=replace(case.model, epsilon=epsilon)), (metric,)],
        )
        for epsilon in seen.scope.epsilons
    ]


def distance_curve(seen: Measured, model: Model, name: str) -> list[Dot]:
    """Distance from the truth against the number of clients."""
    keys = [(size, model, name) for size in seen.scope.sizes]
    return [Dot(x=key[0], point=seen.distances[key]) for key in keys if key in seen.distances]


def distance_by_epsilon(seen: Measured, model: Model, name: str) -> list[Dot]:
    """Distance from the truth against epsilon."""
    rows = seen.scope.rows
    keys = {epsilon: (rows, replace(model, epsilon=epsilon), name) for epsilon in seen.scope.epsilons}
    return [
        Dot(x=epsilon, point=seen.distances[key]) for epsilon, key in keys.items() if key in seen.distances
    ]


def bucket_curve(seen: Measured, case: Case, kind: str) -> list[Dot]:
    """Error of the AUC against the number of buckets."""
    rows = seen.scope.rows
    return [Dot(x=buckets, point=seen.by_buckets[rows, case, (kind, buckets)]) for buckets in BUCKETS]
