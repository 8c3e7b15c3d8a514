"""Scored rows whose true metrics are known, and a release of their histogram with simulated noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import norm

from fedassay.estimation.confusion import Confusion, decision_metrics
from fedassay.estimation.evidence import Evidence
from fedassay.protocol.vocabulary import (
    NO_NOISE,
    Batch,
    Budget,
    Noise,
    Plan,
    Protection,
    Query,
    Released,
    Setting,
    TrustModel,
)
from fedassay.summaries.score_histogram import LabelledHistogram, ScoreHistogram


@dataclass(frozen=True)
class InMemoryRows:
    """Rows as two arrays, given out in batches."""

    scores: np.ndarray
    labels: np.ndarray
    batch: int = 1 << 30

    def batches(self) -> Iterator[Batch]:
        for start in range(0, len(self.scores), self.batch):
            part = slice(start, start + self.batch)
            yield {"score": self.scores[part], "label": self.labels[part].astype(np.int8)}


@dataclass(frozen=True)
class Population:
    """Two classes with normal latents, and scores that miss the true probability by a shift and a stretch.

    A latent x is N(δ, 1) for positives and N(0, 1) for negatives, so logit P(y=1|x) = logit π + δx - δ²/2. The
    score's logit is shift + stretch times that. All true values are closed forms or one-dimensional integrals.
    """

    prevalence: float
    delta: float = 1.4
    shift: float = 0.0
    stretch: float = 1.0

    @property
    def offset(self) -> float:
        return self.shift + self.stretch * (float(logit(self.prevalence)) - self.delta**2 / 2)

    @property
    def slope(self) -> float:
        return self.stretch * self.delta

    def sample(self, rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        labels = (rng.random(rows) < self.prevalence).astype(np.int8)
        return expit(self.offset + self.slope * (rng.normal(size=rows) + self.delta * labels)), labels

    @cached_property
    def _integral(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Logits of scores on a fine grid, with the mass of positives and of negatives."""
        x = np.linspace(-10, 10 + self.delta, 400_001)
        step = x[1] - x[0]
        positive = self.prevalence * norm.pdf(x - self.delta) * step
        return self.offset + self.slope * x, positive, (1 - self.prevalence) * norm.pdf(x) * step

    def truth(self, threshold: float, buckets: int = 10) -> dict[str, float]:
        """The population value of every metric."""
        t, p, n = self._integral
        s, both = expit(t), p + n
        above_p, above_n = (np.cumsum(x[::-1])[::-1] - x / 2 for x in (p, n))
        return {
            "roc_auc": float(norm.cdf(self.delta / math.sqrt(2))),
            "average_precision": float((p * above_p / (above_p + above_n)).sum() / self.prevalence),
            "prevalence": self.prevalence,
            "brier_score": float((p * (1 - s) ** 2 + n * s**2).sum()),
            "log_loss": float((p * np.logaddexp(0, -t) + n * np.logaddexp(0, t)).sum()),
            "observed_expected_ratio": self.prevalence / float((both * s).sum()),
            "calibration_slope": 1 / self.stretch,
            "calibration_intercept": brentq(lambda a: float((p - both * expit(a + t)).sum()), -9, 9),
            **self._calibration_errors(buckets),
            **self._decisions(threshold),
        }

    def _calibration_errors(self, buckets: int) -> dict[str, float]:
        t, p, n = self._integral
        s, both = expit(t), p + n
        fractions = np.arange(1, buckets) / buckets
        depth = np.searchsorted(np.cumsum(both), fractions)
        width = np.searchsorted(s, fractions)
        gaps = p - both * s
        errors = [np.abs(np.add.reduceat(gaps, [0, *cuts])) for cuts in (depth, width)]
        shares = np.add.reduceat(both, [0, *depth])
        return {
            "expected_calibration_error": float(errors[0].sum()),
            "expected_calibration_error_uniform": float(errors[1].sum()),
            "squared_calibration_error": float((errors[0] ** 2 / shares).sum()),
        }

    def _decisions(self, threshold: float) -> dict[str, float]:
        cut = (float(logit(threshold)) - self.offset) / self.slope
        recall, fall_out = float(norm.sf(cut - self.delta)), float(norm.sf(cut))
        TP, FP = self.prevalence * recall, (1 - self.prevalence) * fall_out
        FN, TN = self.prevalence - TP, 1 - self.prevalence - FP
        # Of metrics that nobody wrote down here, the value at so many rows that nothing is left to chance: oracles of
        # other packages (`test_decision_metrics`) hold the formulas.
        rows = {"positives": 1e12 * np.array([FN, TP]), "negatives": 1e12 * np.array([TN, FP])}
        everyone = Evidence.exactly(edges=np.array([0.0, threshold, 1.0]), **rows)
        found = decision_metrics(Confusion.at(everyone, threshold))
        return {name: float(metric.value) for name, metric in found.items() if metric.value is not None} | {
            "accuracy": TP + TN,
            "precision": TP / (TP + FP),
            "recall": recall,
            "specificity": 1 - fall_out,
            "f1": 2 * TP / (TP + FP + self.prevalence),
            "net_benefit": TP - FP * threshold / (1 - threshold),
        }


@dataclass(frozen=True)
class NoisyServer(TrustModel):
    """Only the plan of a trust model: the law that discrete Laplace noise would have; None is no noise."""

    name = "noisy"
    private = True
    epsilon: float | None = None

    def plan(self, query: Query[Any], setting: Setting) -> Plan:
        sensitivity = query.of.sensitivity(setting.protection)
        noise = NO_NOISE if self.epsilon is None else discrete_laplace_law(sensitivity.l1 / self.epsilon)
        return Plan(query=query, setting=setting, sensitivity=sensitivity, noise=noise)

    def setting(self) -> Setting:
        budget = None if self.epsilon is None else Budget(epsilon=self.epsilon)
        return Setting(trust=self, protection=Protection(), budget=budget, clients=10)

    def _never(self, *_: object) -> Any:
        raise AssertionError("only planned, never run")

    exchange = respond = aggregate = statement = _never


def discrete_laplace_law(scale: float) -> Noise:
    a = math.exp(-1 / scale)
    return Noise(law="discrete-laplace", scale=scale, variance=2 * a / (1 - a) ** 2)


def measure(histogram: ScoreHistogram, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return histogram.measure(InMemoryRows(scores, labels), {})[0]


def release(
    histogram: ScoreHistogram,
    scores: np.ndarray,
    labels: np.ndarray,
    *,
    noise: Noise = NO_NOISE,
    rng: np.random.Generator | None = None,
) -> Released[LabelledHistogram]:
    """What a trust model would release: the histogram of the rows, with this noise."""
    total = measure(histogram, scores, labels)
    if noise.variance > 0:
        assert rng is not None
        p = -math.expm1(-1 / noise.scale)  # the difference of two geometric draws is discrete Laplace
        total = total + rng.geometric(p, total.size) - rng.geometric(p, total.size)
    return Released(value=histogram.read(total), noise=noise, clients=3)


def evidence_of(scores: np.ndarray, labels: np.ndarray) -> Evidence:
    """The exact evidence of rows, in the finest bins that an evaluation takes."""
    released = release(ScoreHistogram(transform="mixed", height=15), scores, labels)
    return released.value.evidence(released.noise)
