"""The noise of the AUC is as small as stated, and as `predict` says before any data are seen."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2

from binormal import NoisyServer, Population, measure, release
from fedassay.estimation.confusion import Confusion, decision_metrics
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.ranking import roc_auc
from fedassay.protocol.vocabulary import NO_NOISE, Sum
from fedassay.tasks.evaluation import Evaluate
from fedassay.tasks.evaluation.accuracy import expected_auc_noise, predict

FALSE_ALARM = 1e-4
DELTA = 1.19  # an AUC of 0.80


def noise_errors(
    prevalence: float, rows: int, runs: int, names: tuple[str, ...] = ("roc_auc",)
) -> np.ndarray:
    """Noisy minus exact value, per run and metric, on one sample of rows: what the noise alone does."""
    setting = NoisyServer(epsilon=1.0).setting()
    histogram = Evaluate().histogram(setting)
    noise = setting.noise(Sum(of=histogram))
    rng = np.random.default_rng(12)
    scores, labels = Population(prevalence, DELTA).sample(rows, rng)
    exact = values(histogram.read(measure(histogram, scores, labels)).evidence(NO_NOISE), names)
    errors = []
    for _ in range(runs):
        released = release(histogram, scores, labels, noise=noise, rng=rng)
        errors.append(values(released.value.evidence(released.noise), names) - exact)
    return np.array(errors)


def values(evidence: Evidence, names: tuple[str, ...]) -> np.ndarray:
    metrics = {"roc_auc": roc_auc(evidence), **decision_metrics(Confusion.at(evidence, 0.5))}
    return np.array([metrics[name].value for name in names])


STATED = {0.5: 1.2e-4, 0.24: 3e-4, 0.02: 3e-3}
"""The mean absolute error of the AUC at 100,000 rows and ε = 1, by prevalence."""


@pytest.mark.parametrize("prevalence", list(STATED))
def test_the_noise_of_the_auc_is_small(prevalence: float, verify) -> None:
    errors = np.abs(noise_errors(prevalence, 100_000, runs=300))
    mean = float(errors.mean())
    verify(
        f"AUC, 100,000 rows, epsilon 1, {prevalence:.0%} positives: mean absolute noise <= {STATED[prevalence]:.1e}",
        f"{mean:.1e}",
    )
    assert mean <= STATED[prevalence]


def wrong_deviation(errors: np.ndarray, predicted: float) -> bool:
    """Whether the errors' second moment would be rare for this standard deviation (allowing 8 % for the law)."""
    n, statistic = len(errors), (errors**2).sum() / predicted**2
    tail = FALSE_ALARM / 2
    return not chi2.ppf(tail, n) * 0.85 <= statistic <= chi2.isf(tail, n) * 1.17


def test_prediction_and_noise_agree() -> None:
    names = ("roc_auc", "accuracy", "precision", "recall")
    setting = NoisyServer(epsilon=1.0).setting()
    histogram = Evaluate().histogram(setting)
    noise = setting.noise(Sum(of=histogram))
    auc = Population(0.3, DELTA).truth(0.5)["roc_auc"]
    expected = predict(histogram, rows=20_000, prevalence=0.3, auc=auc, noise=noise)
    errors = noise_errors(0.3, 20_000, runs=300, names=names)
    for name, column in zip(names, errors.T, strict=True):
        assert not wrong_deviation(column, expected[name].privacy), name
        assert wrong_deviation(column, expected[name].privacy / 1.5), name
        assert wrong_deviation(column, expected[name].privacy * 1.5), name


def test_the_second_order_term_matters_at_500_rows() -> None:
    setting = NoisyServer(epsilon=1.0).setting()
    histogram = Evaluate().histogram(setting)
    noise = setting.noise(Sum(of=histogram))
    auc = Population(0.5, DELTA).truth(0.5)["roc_auc"]
    full = expected_auc_noise(histogram, noise, rows=500, auc=auc)
    linear = expected_auc_noise(histogram, noise, rows=5e5, auc=auc) * 1e3
    assert full > 1.1 * linear
    # Dividing by noisy class sizes adds a little more, which no second-order formula has.
    errors = noise_errors(0.5, 500, runs=1_500)[:, 0]
    assert np.std(errors) == pytest.approx(full, rel=0.12)


def test_sampling_errors_are_those_of_the_estimator() -> None:
    rows = 20_000
    histogram = Evaluate().histogram(NoisyServer().setting())
    names = ("roc_auc", "accuracy", "precision", "recall", "specificity", "f1")
    expected = predict(histogram, rows=rows, prevalence=0.3, auc=0.8, metrics=names)
    population = Population(0.3, math.sqrt(2) * 0.8416212335729143)
    released = release(histogram, *population.sample(rows, np.random.default_rng(3)))
    evidence = released.value.evidence(released.noise)
    found = {"roc_auc": roc_auc(evidence), **decision_metrics(Confusion.at(evidence, 0.5))}
    for name, metric in expected.items():
        assert metric.value == pytest.approx(found[name].value, abs=4 * found[name].sampling), name
        assert metric.sampling == pytest.approx(found[name].sampling, rel=0.05), name
