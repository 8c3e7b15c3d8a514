"""Metrics at a threshold equal scikit-learn's on the pooled rows, and say why where a denominator is zero."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as oracle

from binormal import NoisyServer, Population, release
from fedassay.estimation.confusion import Confusion, decision_metrics
from fedassay.estimation.evidence import Evidence
from fedassay.protocol.metrics import METRICS
from fedassay.protocol.vocabulary import Sum
from fedassay.tasks.evaluation import Evaluate

SMALL = st.integers(0, 30)


def evidence_of(TP: float, FN: float, FP: float, TN: float) -> Evidence:
    return Evidence.exactly(
        edges=np.array([0.0, 0.5, 1.0]),
        positives=np.array([FN, TP], dtype=np.float64),
        negatives=np.array([TN, FP], dtype=np.float64),
    )


def rows_of(TP: int, FN: int, FP: int, TN: int) -> tuple[np.ndarray, np.ndarray]:
    labels = np.repeat([1, 1, 0, 0], [TP, FN, FP, TN])
    return labels, np.repeat([1, 0, 1, 0], [TP, FN, FP, TN])


def found(*counts: float) -> dict[str, object]:
    return decision_metrics(Confusion.at(evidence_of(*counts), 0.5))


@given(SMALL, SMALL, SMALL, SMALL)
def test_values_are_those_of_scikit_learn(TP: int, FN: int, FP: int, TN: int) -> None:
    labels, decisions = rows_of(TP, FN, FP, TN)
    metrics = found(TP, FN, FP, TN)
    expected = {}
    if TP + FN and FP + TN:
        expected["balanced_accuracy"] = oracle.balanced_accuracy_score(labels, decisions)
        if TP + FP and FN + TN:
            expected["matthews_corrcoef"] = oracle.matthews_corrcoef(labels, decisions)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the other one, where that is undefined
            upper, lower = oracle.class_likelihood_ratios(labels, decisions, labels=[0, 1])
        expected |= {"positive_likelihood_ratio": upper} if FP else {}
        expected |= {"negative_likelihood_ratio": lower} if TN else {}
    if FN + TN:
        expected["negative_predictive_value"] = oracle.precision_score(labels, decisions, pos_label=0)
    for name in (
        *("balanced_accuracy", "matthews_corrcoef", "negative_predictive_value", "positive_likelihood_ratio"),
        "negative_likelihood_ratio",
    ):
        metric = metrics[name]
        if name not in expected:
            assert metric.value is None
            assert metric.reason.startswith("there are no ")
            continue
        assert metric.value == pytest.approx(expected[name], abs=1e-12), name
        assert metric.discretisation == metric.privacy == 0
        low, high = metric.interval
        assert low < high or name == "negative_predictive_value", name  # never of zero width


@pytest.mark.parametrize(
    ("counts", "name", "reason"),
    [
        ((0, 0, 3, 4), "balanced_accuracy", "there are no positive rows"),
        ((3, 4, 0, 0), "balanced_accuracy", "there are no negative rows"),
        ((3, 0, 4, 0), "negative_predictive_value", "there are no rows predicted negative"),
        ((3, 0, 4, 0), "matthews_corrcoef", "there are no rows predicted negative"),
        ((0, 3, 0, 4), "matthews_corrcoef", "there are no rows predicted positive"),
        ((3, 4, 0, 5), "positive_likelihood_ratio", "there are no negative rows predicted positive"),
        ((3, 4, 5, 0), "negative_likelihood_ratio", "there are no negative rows predicted negative"),
    ],
)
def test_a_zero_denominator_is_a_reason(counts: tuple[int, ...], name: str, reason: str) -> None:
    assert found(*counts)[name].reason == reason


def test_zero_likelihood_ratios_have_an_upper_end() -> None:
    """No positive row found: the ratio is 0, and what the rows allow is more."""
    metrics = found(0, 20, 30, 70)
    low, high = metrics["positive_likelihood_ratio"].interval
    assert (metrics["positive_likelihood_ratio"].value, low) == (0, 0)
    assert 0.161 / 0.3 < high < 1.5 * 0.161 / 0.3  # Wilson's upper end of 0 of 20 is 0.161


@pytest.mark.parametrize("name", ["balanced_accuracy", "matthews_corrcoef", "negative_likelihood_ratio"])
def test_standard_errors_are_those_of_the_multinomial_law(name: str) -> None:
    """The delta method against drawn tables, ten thousand of them: a standard deviation is right to 3 %."""
    shares, n = np.array([0.2, 0.1, 0.15, 0.55]), 2_000
    drawn = np.random.default_rng(0).multinomial(n, shares, size=10_000)
    values = [METRICS[name].estimator(Confusion.at(evidence_of(*x), 0.5)).value for x in drawn[:4_000]]
    said = METRICS[name].estimator(Confusion.at(evidence_of(*(n * shares)), 0.5)).sampling
    assert said == pytest.approx(np.std(values), rel=0.05)
    assert said != pytest.approx(1.3 * np.std(values), rel=0.05)


def test_privacy_errors_are_those_of_the_noise() -> None:
    """Releases of the same rows: their spread is the privacy error that each of them states."""
    setting = NoisyServer(epsilon=1.0).setting()
    histogram = Evaluate().histogram(setting)
    noise, rng = setting.noise(Sum(of=histogram)), np.random.default_rng(2)
    rows = Population(0.3).sample(3_000, rng)
    names = (
        *("balanced_accuracy", "matthews_corrcoef", "positive_likelihood_ratio", "negative_likelihood_ratio"),
    )
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for _ in range(250):
        released = release(histogram, *rows, noise=noise, rng=rng)
        metrics = decision_metrics(Confusion.at(released.value.evidence(released.noise), 0.4))
        for name in names:
            seen[name].append((metrics[name].value, metrics[name].privacy))
    for name, pairs in seen.items():
        values, errors = np.array(pairs).T
        # A standard deviation of 250 normal numbers is right to 18 % (4 standard errors).
        assert errors.mean() == pytest.approx(values.std(), rel=0.18), name
