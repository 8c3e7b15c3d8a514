"""What a site says about itself, on the scale on which sites are pooled."""

from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import logit
from sklearn.metrics import brier_score_loss, roc_auc_score

from binormal import Population, evidence_of
from fedassay.estimation.heterogeneity import site_estimate
from fedassay.protocol.metrics import METRICS, compared
from fedassay.tasks.evaluation import Evaluate

POPULATION = Population(0.3, shift=0.3, stretch=1.3)


def sample(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return POPULATION.sample(rows, np.random.default_rng(seed))


@pytest.mark.parametrize("metric", compared())
@pytest.mark.parametrize(("rows", "seed"), [(60, 1), (400, 2), (20_000, 3)])
def test_a_site_says_what_the_evaluation_of_its_rows_says(metric: str, rows: int, seed: int) -> None:
    """The same value and sampling error, carried to the scale of pooling."""
    scores, labels = sample(rows, seed)
    found = site_estimate(metric, evidence_of(scores, labels))
    expected = Evaluate().metrics(evidence_of(scores, labels))[metric]
    assert found is not None
    value, error = expected.value, expected.sampling
    assert value is not None
    assert error is not None
    derivative = {"logit": 1 / (value * (1 - value)), "log": 1 / value}.get(METRICS[metric].scale, 1.0)
    scaled = {"logit": logit, "log": math.log}.get(METRICS[metric].scale, float)(value)
    assert found.value == pytest.approx(scaled, rel=1e-7, abs=1e-9)
    assert math.sqrt(found.variance) == pytest.approx(error * abs(derivative), rel=1e-6)


def test_a_site_says_what_other_packages_say_about_its_rows() -> None:
    scores, labels = sample(5_000, 4)
    found = {metric: site_estimate(metric, evidence_of(scores, labels)) for metric in compared()}
    x = logit(scores)
    slope = sm.Logit(labels, sm.add_constant(x)).fit(disp=0).params[1]
    shift = sm.GLM(labels, np.ones(len(x)), family=sm.families.Binomial(), offset=x).fit().params[0]
    expected = {
        "roc_auc": logit(roc_auc_score(labels, scores)),
        "brier_score": brier_score_loss(labels, scores),
        "calibration_intercept": shift,
        "calibration_slope": slope,
        "observed_expected_ratio": math.log(labels.sum() / scores.sum()),
    }
    for metric, value in expected.items():
        assert found[metric].value == pytest.approx(value, abs=1e-4), metric


def separated() -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(40) % 2
    return 0.2 + 0.7 * labels, labels


@pytest.mark.parametrize(
    ("scores", "labels", "without"),
    [
        (np.full(30, 0.3), np.zeros(30, int), compared()),
        (np.full(30, 0.3), np.arange(30) < 9, compared()),
        (np.full(40, 0.3), np.arange(40) % 2, ("roc_auc", "calibration_slope")),
        (*separated(), ("roc_auc", "calibration_slope")),
        (np.empty(0), np.empty(0, int), compared()),
    ],
    ids=["one class", "nine positives", "one score", "separated", "no rows"],
)
def test_a_site_that_cannot_say_something_says_nothing(
    scores: np.ndarray, labels: np.ndarray, without: tuple[str, ...]
) -> None:
    evidence = evidence_of(scores, labels.astype(np.int8))
    assert {metric for metric in compared() if site_estimate(metric, evidence) is None} == set(without)
