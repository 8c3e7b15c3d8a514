"""What held-out rows say after calibration equals scikit-learn and statsmodels on the calibrated rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import logit
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from binormal import NoisyServer
from calibration_rows import crooked, evidence_of
from fedassay.estimation import ratios
from fedassay.estimation.calibration_error import (
    Buckets,
    expected_calibration_error,
    expected_calibration_error_uniform,
)
from fedassay.estimation.curves import reliability_curve
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.recalibration import calibration_intercept, calibration_slope
from fedassay.protocol.vocabulary import Sum
from fedassay.summaries.maps import InterpolatedMap, Map, Sigmoid, Steps
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.calibration import Calibrate, fit
from fedassay.tasks.calibration.calibrate import LOSSES
from fedassay.tasks.calibration.recalibrated import Recalibrated, difference, roc_auc
from fedassay.tasks.evaluation import Evaluate

FINE = ScoreHistogram(transform="mixed", height=15, thresholds=tuple(j / 10 for j in range(1, 10)))
MAPS: dict[str, Map] = {
    "sigmoid": Sigmoid(a=0.6, b=0.7, c=-0.2),
    "steps": Steps(edges=(0.1, 0.3, 0.5, 0.8), values=(0.05, 0.2, 0.4, 0.6, 0.9)),
    "steps out of order": Steps(edges=(0.1, 0.3, 0.5, 0.8), values=(0.2, 0.1, 0.6, 0.4, 0.9)),
    "points": InterpolatedMap(scores=(0.05, 0.3, 0.5, 0.9), values=(0.02, 0.3, 0.3, 0.85)),
    "falling": Sigmoid(a=-0.5, b=-0.5, c=0.1),
}
SCORES, LABELS = crooked(4_000, seed=5)


def seen_through(calibrator: Map) -> Recalibrated:
    return Recalibrated.by(evidence_of(SCORES, LABELS, histogram=FINE), calibrator)


@pytest.mark.parametrize("name", sorted(MAPS))
def test_metrics_are_those_of_the_calibrated_rows(name: str) -> None:
    calibrator = MAPS[name]
    seen, calibrated = seen_through(calibrator), calibrator(SCORES)
    x = logit(calibrated)
    only_shift = sm.GLM(LABELS, np.ones_like(x), family=sm.families.Binomial(), offset=x).fit(tol=1e-12)
    both = sm.Logit(LABELS, sm.add_constant(x)).fit(disp=0, tol=1e-10)
    expected = {
        ratios.brier_score: brier_score_loss(LABELS, calibrated),
        ratios.log_loss: log_loss(LABELS, calibrated),
        roc_auc: roc_auc_score(LABELS, calibrated),
        calibration_intercept: only_shift.params[0],
        calibration_slope: both.params[1],
    }
    for estimator, value in expected.items():
        metric = estimator(seen)
        assert metric.value is not None, metric.reason
        assert metric.discretisation is not None
        assert abs(metric.value - value) <= metric.discretisation + 1e-9, estimator.__name__
        assert metric.discretisation < 0.01 * max(1.0, abs(value))
        assert metric.interval is not None
        assert metric.interval[0] < value < metric.interval[1]
    robust = sm.Logit(LABELS, sm.add_constant(x)).fit(disp=0, tol=1e-10, cov_type="HC0")
    assert calibration_slope(seen).sampling == pytest.approx(robust.bse[1], rel=0.02)


def direct_error(calibrated: np.ndarray, labels: np.ndarray, places: np.ndarray) -> float:
    gaps = [abs((labels - calibrated)[places == place].sum()) for place in np.unique(places)]
    return float(np.sum(gaps) / len(labels))


@pytest.mark.parametrize("name", ["steps", "steps out of order"])
def test_calibration_errors_are_over_buckets_of_the_calibrated_score(name: str) -> None:
    seen, calibrated = seen_through(MAPS[name]), MAPS[name](SCORES)
    own = np.unique(calibrated, return_inverse=True)[1]
    # Five values, ten buckets: each value is a bucket of its own, in equal depth too.
    assert expected_calibration_error(seen).value == pytest.approx(
        direct_error(calibrated, LABELS, own), abs=1e-12
    )
    uniform = (calibrated * 10).astype(int)
    found = expected_calibration_error_uniform(seen)
    assert found.value == pytest.approx(direct_error(calibrated, LABELS, uniform), abs=1e-12)
    assert found.discretisation == 0
    curve = reliability_curve(Buckets.equi_depth(seen, 10))
    assert curve["mean_score"] == pytest.approx(np.unique(calibrated), abs=1e-12)
    assert curve["observed"] == pytest.approx([LABELS[own == k].mean() for k in range(5)], abs=1e-12)
    assert all(
        low < v < high for low, v, high in zip(curve["lower"], curve["observed"], curve["upper"], strict=True)
    )


@pytest.mark.parametrize("name", sorted(MAPS))
def test_the_difference_is_the_mean_over_rows(name: str) -> None:
    calibrator = MAPS[name]
    evidence = evidence_of(SCORES, LABELS, histogram=FINE)
    pair = Recalibrated.untouched(evidence), Recalibrated.by(evidence, calibrator)
    for loss in LOSSES.values():

        def cost(scores: np.ndarray, loss: ratios.Loss = loss) -> np.ndarray:
            p, n = loss.of(scores)
            return np.where(LABELS == 1, p, n)

        gaps = cost(calibrator(SCORES)) - cost(SCORES)
        found = difference(*pair, loss)
        assert found.value == pytest.approx(gaps.mean(), abs=found.discretisation)
        assert found.sampling == pytest.approx(gaps.std() / np.sqrt(len(gaps)), rel=0.01)
    if name == "sigmoid":  # paired: far less uncertain than the two losses apart
        assert found.sampling < 0.7 * ratios.log_loss(pair[1]).sampling


def noisy(seed: int = 1) -> Evidence:
    setting = NoisyServer(epsilon=1.0).setting()
    _, histogram = Calibrate().histograms(setting)
    return evidence_of(
        *crooked(20_000), histogram=histogram, noise=setting.noise(Sum(of=histogram)), seed=seed
    )


@pytest.mark.parametrize("evidence", [evidence_of(SCORES, LABELS), noisy()], ids=["exact", "noisy"])
def test_without_a_calibrator_everything_is_as_in_an_evaluation(evidence: Evidence) -> None:
    expected, seen = Evaluate().metrics(evidence), Recalibrated.untouched(evidence)
    for estimator in (
        *(ratios.brier_score, ratios.log_loss, roc_auc, expected_calibration_error),
        *(expected_calibration_error_uniform, calibration_intercept, calibration_slope),
    ):
        ours, theirs = estimator(seen), expected[estimator.__name__]
        assert ours.value == pytest.approx(theirs.value, rel=1e-9), estimator.__name__
        assert ours.sampling == pytest.approx(theirs.sampling, rel=1e-6)
        assert ours.privacy == pytest.approx(theirs.privacy, rel=1e-6)
        assert ours.details == pytest.approx(theirs.details, rel=1e-6)
        # Under noise the outermost bins are left out of the bound here: rows of noise would dominate it.
        if evidence.exact:
            assert ours.discretisation == pytest.approx(theirs.discretisation, rel=1e-6)
            assert ours.interval == pytest.approx(theirs.interval, rel=1e-6)


def test_under_noise_the_bounds_do_not_depend_on_a_few_rows_at_the_ends() -> None:
    bounds = [ratios.log_loss(Recalibrated.untouched(noisy(seed))).discretisation for seed in range(8)]
    assert np.std(bounds) < 0.3 * np.mean(bounds)


def test_a_rising_map_keeps_the_auc_exactly_and_its_second_order_noise() -> None:
    evidence = noisy()
    assert roc_auc(Recalibrated.by(evidence, MAPS["sigmoid"])) == Evaluate().metrics(evidence)["roc_auc"]


def test_a_falling_map_turns_the_auc_round() -> None:
    evidence = evidence_of(SCORES, LABELS)
    up = roc_auc(Recalibrated.untouched(evidence)).value
    down = roc_auc(Recalibrated.by(evidence, MAPS["falling"])).value
    assert up is not None
    assert down == pytest.approx(1 - up)


def test_one_calibrated_score_for_all_rows_has_no_slope_and_half_an_auc() -> None:
    seen = seen_through(Steps(edges=(), values=(0.4,)))
    assert (
        calibration_slope(seen).reason == "all rows get the same calibrated score, so no slope can be fitted"
    )
    assert roc_auc(seen).value == pytest.approx(0.5)
    assert expected_calibration_error(seen).value == pytest.approx(abs(LABELS.mean() - 0.4), abs=1e-12)


def test_a_calibrator_that_claims_certainty_pays_as_in_scikit_learn() -> None:
    calibrator = Steps(edges=(0.2,), values=(0.0, 0.7))
    seen = seen_through(calibrator)
    assert ratios.log_loss(seen).value == pytest.approx(log_loss(LABELS, calibrator(SCORES)), rel=1e-9)


def test_privacy_noise_of_the_difference_is_that_of_repeated_releases() -> None:
    """The standard deviation over 300 draws of the noise, whose own error is 4 %."""
    setting = NoisyServer(epsilon=0.5).setting()
    _, histogram = Calibrate().histograms(setting)
    noise = setting.noise(Sum(of=histogram))
    found = []
    for seed in range(300):
        e = evidence_of(SCORES, LABELS, histogram=histogram, noise=noise, seed=seed)
        found.append(difference(Recalibrated.untouched(e), Recalibrated.by(e, MAPS["steps"]), ratios.BRIER))
    measured = np.std([one.value for one in found])
    stated = np.mean([one.privacy for one in found])
    assert stated == pytest.approx(measured, rel=0.18)
    assert replace(found[0], privacy=0.0).privacy != pytest.approx(measured, rel=0.18)


@pytest.mark.parametrize("method", ["histogram", "bbq", "isotonic", "platt", "beta"])
@pytest.mark.parametrize(("rows", "epsilon"), [(300, 0.5), (2_000, 1.0), (20_000, 0.3)])
def test_under_noise_every_map_is_sane(method: str, rows: int, epsilon: float) -> None:
    setting = NoisyServer(epsilon=epsilon).setting()
    histogram, _ = Calibrate().histograms(setting)
    noise = setting.noise(Sum(of=histogram))
    fitted = 0
    for seed in range(6):
        evidence = evidence_of(*crooked(rows, seed), histogram=histogram, noise=noise, seed=seed)
        choice = fit(evidence, method)
        if choice.fitted is None:
            assert choice.reason is not None
            assert choice.reason.startswith("not enough evidence")
            continue
        fitted += 1
        calibrated = choice.fitted.map(np.linspace(0, 1, 301))
        assert np.all((calibrated >= 0) & (calibrated <= 1))
        inside = choice.fitted.map(np.linspace(0.02, 0.98, 301))
        assert inside.min() > 0
        assert inside.max() < 1
        if method in ("isotonic", "platt", "beta"):
            assert np.all(np.diff(calibrated) >= 0)
    assert fitted == 6 or rows < 20_000
