"""Bands of curves hold at all their points at once, at least as often as stated; narrower ones do not."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import logit
from scipy.stats import binom, norm

from binormal import NoisyServer, Population, release
from fedassay.estimation import curves
from fedassay.estimation.calibration_error import Buckets, equi_depth_edges
from fedassay.estimation.evidence import Evidence
from fedassay.protocol.vocabulary import Sum
from fedassay.tasks.evaluation import Evaluate

POPULATION = Population(0.3, shift=0.2, stretch=1.1)
FALSE_ALARM = 1e-4


def true_rates(threshold: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    cut = (logit(np.clip(threshold, 0, 1)) - POPULATION.offset) / POPULATION.slope
    return norm.sf(cut - POPULATION.delta), norm.sf(cut)


def true_roc(curve: curves.CurveValues) -> np.ndarray:
    fpr = np.clip(curve["fpr"], 1e-300, 1)
    return norm.sf(norm.isf(fpr) - POPULATION.delta)


def true_precision(curve: curves.CurveValues) -> np.ndarray:
    tpr, fpr = true_rates(np.array(curve["thresholds"]))
    return POPULATION.prevalence * tpr / (POPULATION.prevalence * tpr + (1 - POPULATION.prevalence) * fpr)


def true_net_benefit(curve: curves.CurveValues) -> np.ndarray:
    t = np.array(curve["thresholds"])
    tpr, fpr = true_rates(t)
    return POPULATION.prevalence * tpr - (1 - POPULATION.prevalence) * fpr * t / (1 - t)


def true_frequency(curve: curves.CurveValues) -> np.ndarray:
    ends = [true_rates(np.array(curve["edges"])[:, side]) for side in (0, 1)]
    p, n = (ends[0][k] - ends[1][k] for k in (0, 1))
    return POPULATION.prevalence * p / (POPULATION.prevalence * p + (1 - POPULATION.prevalence) * n)


Estimate = Callable[[Evidence], curves.CurveValues]
CURVES: dict[str, tuple[str, Estimate, Callable[[curves.CurveValues], np.ndarray]]] = {
    "roc": ("tpr", curves.roc_curve, true_roc),
    "precision-recall": ("precision", curves.precision_recall_curve, true_precision),
    "net benefit": ("net_benefit", curves.net_benefit_curve, true_net_benefit),
    "reliability": (
        "observed",
        lambda e: curves.reliability_curve(Buckets(evidence=e, edges=tuple(equi_depth_edges(e, 10)))),
        true_frequency,
    ),
}


def simulate(epsilon: float | None, rows: int, runs: int) -> dict[str, dict[float, list[bool]]]:
    """For each curve and each factor, whether the band, narrowed by the factor, held at all points."""
    task = Evaluate(height=12 if epsilon is None else None)
    setting = NoisyServer(epsilon=epsilon).setting()
    histogram = task.histogram(setting)
    noise = setting.noise(Sum(of=histogram))
    rng = np.random.default_rng(11)
    held: dict[str, dict[float, list[bool]]] = {name: {1.0: [], 0.25: []} for name in CURVES}
    for _ in range(runs):
        released = release(histogram, *POPULATION.sample(rows, rng), noise=noise, rng=rng)
        evidence = released.value.evidence(released.noise)
        for name, (field, estimate, truth_of) in CURVES.items():
            curve = estimate(evidence)
            value, truth = np.array(curve[field]), truth_of(curve)
            for factor, outcomes in held[name].items():
                low, high = (value + factor * (np.array(curve[end]) - value) for end in ("lower", "upper"))
                outcomes.append(bool(np.all((low <= truth + 1e-12) & (truth <= high + 1e-12))))
    return held


def too_low(held: list[bool]) -> bool:
    return sum(held) < binom.ppf(FALSE_ALARM, len(held), 0.95)


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_bands_hold_at_all_points(epsilon: float | None) -> None:
    for name, held in simulate(epsilon, rows=3_000, runs=80).items():
        assert not too_low(held[1.0]), name
        assert too_low(held[0.25]), f"{name}: a band a quarter as wide must be rejected"


@pytest.mark.full
@pytest.mark.parametrize("epsilon", [None, 1.0])
@pytest.mark.parametrize("rows", [1_000, 10_000])
def test_stated_bands(rows: int, epsilon: float | None, verify) -> None:
    noise = "without noise" if epsilon is None else "with noise"
    runs = 1_000
    slack = 3 * math.sqrt(0.95 * 0.05 / runs)
    for name, held in simulate(epsilon, rows, runs).items():
        share = float(np.mean(held[1.0]))
        verify(f"95 % band of the {name} curve, {rows} rows, {noise}: holds everywhere", f"{share:.1%}")
        assert share >= 0.95 - slack
