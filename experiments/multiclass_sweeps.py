"""What Figures 2, 3, 4, 10 and 11 and Table 9 of the paper vary: rounds, skew, epsilon, bins and clips."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from experiments import multiclass_runs as runs
from experiments.multiclass_data import BETA, CLIENTS, SEED, Split, load
from experiments.multiclass_runs import (
    AUTO,
    BASE,
    BBQ,
    BBQ_ALL,
    EXACT_TEMPERATURE,
    FEDTEMP,
    OURS,
    PUBLISHED,
    WAYS,
    Outcome,
    Runs,
    Terms,
    Way,
    judged,
)
from fedassay.summaries.multiclass.local_fits import local_fit

CIFAR_10, CIFAR_100 = "cifar10_resnet18", "cifar100_lenet5"
"""The models of the figures: for CIFAR-100 a small network, as in the paper."""

Loader = Callable[..., Split]
Curves = dict[str, dict[float, list[Outcome]]]
"""Name of a curve to x to the outcomes of all repetitions."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """How much is measured."""

    repeats: int = 10
    seed: int = SEED
    rounds: tuple[int, ...] = (1, 2, 4, 8, 12, 20, 30, 50)
    betas: tuple[float, ...] = (0.05, 0.1, 0.3, 0.5, 0.8, 2.0, 10.0, 100.0)
    epsilons: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)
    few_rounds: tuple[int, ...] = (1, 3, 6, 12, 30)
    few_epsilons: tuple[float, ...] = (1.0, 3.0)
    heights: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    few_heights: tuple[int, ...] = (4, 7, 10)
    few_repeats: int = 5
    clips: tuple[float | None, ...] = (None, 1.0, 0.5, 0.25, 0.1)
    small: str = CIFAR_10
    large: str = CIFAR_100
    loader: Loader = field(default=load, repr=False)

    def of(self, name: str, beta: float | None = BETA) -> Callable[[int], Split]:
        """Repetitions of one data set, by number."""
        return partial(self.loader, name, clients=CLIENTS, beta=beta)


def over(
    x: Iterable[float],
    asked: Callable[[float], Mapping[str, tuple[Way, Terms]]],
    splits: Callable[[float], Callable[[int], Split]],
    numbers: Sequence[int],
    seed: int,
) -> Curves:
    """Curves over x: at each the methods, and the repetitions that they are asked about."""
    found: Curves = {}
    for at in x:
        several: Runs = runs.outcomes(splits(at), asked(at), numbers, seed=seed)
        for name, outcomes in several.items():
            found.setdefault(name, {})[at] = outcomes
    return found


def by_rounds(scope: Scope) -> Curves:
    """Figure 2a and 2b, and 10a and 10b: without privacy."""

    def asked(rounds: float) -> Mapping[str, tuple[Way, Terms]]:
        return {name: (way, Terms(rounds=int(rounds))) for name, way in PUBLISHED.items()}

    found = over(scope.rounds, asked, lambda _: scope.of(scope.small), range(scope.repeats), scope.seed)
    return {**found, **_without_rounds(scope)}


def _without_rounds(scope: Scope) -> Curves:
    """Ours, which asks everybody once, and the pooled temperature: the same at every number of rounds."""
    ways = {name: (WAYS[name], Terms()) for name in (AUTO, EXACT_TEMPERATURE)}
    found = runs.outcomes(scope.of(scope.small), ways, range(scope.repeats), seed=scope.seed)
    ends = (float(scope.rounds[0]), float(scope.rounds[-1]))
    return {name: dict.fromkeys(ends, found[name]) for name in ways}


def by_skew(scope: Scope) -> Curves:
    """Figure 2c."""
    ways = {name: (WAYS[name], Terms()) for name in (*PUBLISHED, AUTO, EXACT_TEMPERATURE)}
    return over(
        scope.betas,
        lambda _: ways,
        lambda beta: scope.of(scope.small, beta),
        range(scope.repeats),
        scope.seed,
    )


def by_epsilon(scope: Scope, *, amplified: bool) -> Curves:
    """Figure 3a and 3b, and 10c and 10d; with noise as published, or as the library ships it."""

    def asked(epsilon: float) -> Mapping[str, tuple[Way, Terms]]:
        theirs = Terms(epsilon=epsilon, amplified=amplified, joint=amplified)
        ours = Terms(epsilon=epsilon, amplified=True)
        return {
            **{name: (way, theirs) for name, way in PUBLISHED.items()},
            **{name: (way, ours) for name, way in OURS.items()},
        }

    return over(scope.epsilons, asked, lambda _: scope.of(scope.small), range(scope.repeats), scope.seed)


def by_rounds_under_noise(scope: Scope, epsilon: float, *, amplified: bool) -> Curves:
    """Figure 3c."""

    def asked(rounds: float) -> Mapping[str, tuple[Way, Terms]]:
        terms = Terms(rounds=int(rounds), epsilon=epsilon, amplified=amplified, joint=amplified)
        return {name: (WAYS[name], terms) for name in (BBQ, BBQ_ALL, FEDTEMP)}

    numbers = range(scope.few_repeats)
    found = over(scope.few_rounds, asked, lambda _: scope.of(scope.large), numbers, scope.seed)
    once = {AUTO: (WAYS[AUTO], Terms(epsilon=epsilon, amplified=True))}
    ours = runs.outcomes(scope.of(scope.large), once, numbers, seed=scope.seed)[AUTO]
    return {**found, AUTO: dict.fromkeys(map(float, scope.few_rounds), ours)}


def by_height(scope: Scope) -> Curves:
    """Figure 4a: one round."""

    def asked(height: float) -> Mapping[str, tuple[Way, Terms]]:
        return {name: (WAYS[name], Terms(rounds=1, height=int(height))) for name in (BBQ, BBQ_ALL)}

    return over(scope.heights, asked, lambda _: scope.of(scope.large), range(scope.repeats), scope.seed)


def by_rounds_and_height(scope: Scope, epsilon: float | None) -> Curves:
    """Figure 4b, and 4c with an epsilon: as published."""

    def asked(rounds: float) -> Mapping[str, tuple[Way, Terms]]:
        terms = Terms(rounds=int(rounds), epsilon=epsilon)
        return {
            f"{name}, M = {height}": (WAYS[name], replace(terms, height=height))
            for height in scope.few_heights
            for name in (BBQ, BBQ_ALL)
        }

    numbers = range(scope.few_repeats)
    return over(scope.few_rounds, asked, lambda _: scope.of(scope.large), numbers, scope.seed)


def by_clip(scope: Scope) -> Curves:
    """Figure 11: clips without noise."""

    def asked(rounds: float) -> Mapping[str, tuple[Way, Terms]]:
        return {
            clip_name(clip): (WAYS[FEDTEMP], Terms(rounds=int(rounds), clip=clip)) for clip in scope.clips
        }

    found = over(scope.rounds, asked, lambda _: scope.of(scope.small), range(2 * scope.repeats), scope.seed)
    del found[BASE]
    return found


def clip_name(clip: float | None) -> str:
    """In the legend."""
    return "no clip" if clip is None else f"C = {clip:g}"


# --- table 9 ------------------------------------------------------------------------------------------------------


class Local(NamedTuple):
    """How clients differ: variances of classwise errors (in points) and of temperatures, distance from the pooled one.

    Each client's temperature is the one that its own rows ask for, its error that of its own rows at this temperature.
    """

    errors: float
    temperatures: float
    distance: float


def local(split: Split) -> Local:
    """Over the clients that have rows."""
    clients = [(logits, labels) for logits, labels in split.by_client() if len(labels)]
    start = np.ones(1)
    found = np.array([local_fit("temperature", logits, labels, start)[0] for logits, labels in clients])
    together = local_fit("temperature", split.logits_fit, split.labels_fit, start)[0]
    errors = [
        100 * judged(softmax(logits / one, axis=1), labels).classwise
        for one, (logits, labels) in zip(found, clients, strict=True)
    ]
    return Local(
        errors=float(np.var(errors)),
        temperatures=float(np.var(found)),
        distance=float(np.abs(found - together).mean()),
    )


def differences(scope: Scope) -> dict[float, list[Local]]:
    """Table 9, over the skew."""
    return {
        beta: [local(scope.of(scope.small, beta)(number)) for number in range(scope.repeats)]
        for beta in scope.betas
    }
