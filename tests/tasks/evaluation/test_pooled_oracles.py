"""With noise off, everything equals scikit-learn, statsmodels or a direct computation on the pooled rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.special import expit, logit
from scipy.stats import chi2
from sklearn import metrics as oracle

import fedassay
from binormal import Population, release
from fedassay.estimation.calibration_error import equi_depth_edges
from fedassay.estimation.confusion import Confusion, decision_metrics
from fedassay.estimation.evidence import Evidence
from fedassay.protocol.vocabulary import Protection, Setting, TrustModel
from fedassay.tasks.evaluation import Evaluate
from fedassay.trust.plain import Plain
from stated import Verify

PLAIN = Setting(trust=Plain(), protection=Protection(), budget=None, clients=1)

Rows = tuple[np.ndarray, np.ndarray]


def balanced() -> Rows:
    return Population(0.5, shift=0.2, stretch=1.3).sample(20_000, np.random.default_rng(1))


def rare() -> Rows:
    return Population(0.02).sample(50_000, np.random.default_rng(2))


def concentrated() -> Rows:
    """Scores around one in a million: sigmoid(N(-14, 1.5)), positives a little higher."""
    rng = np.random.default_rng(3)
    labels = (rng.random(20_000) < 0.4).astype(np.int8)
    return expit(rng.normal(-14, 1.5, 20_000) + 1.2 * labels), labels


def nearly_one() -> Rows:
    scores, labels = concentrated()
    return 1 - scores, labels


def tied() -> Rows:
    """Few distinct scores, 0 and 1 among them."""
    rng = np.random.default_rng(4)
    scores = rng.choice([0.0, 0.1, 0.25, 0.5, 0.5000001, 0.9, 1.0], 5_000)
    return scores, (rng.random(5_000) < 0.2 + 0.5 * scores).astype(np.int8)


SAMPLES = {f.__name__: f for f in (balanced, rare, concentrated, nearly_one, tied)}
THRESHOLDS = (0.5, 0.1, 1e-6, 0.9)


@pytest.fixture(params=list(SAMPLES), scope="module")
def rows(request: pytest.FixtureRequest) -> Rows:
    return SAMPLES[request.param]()


def evidence_of(rows: Rows, task: Evaluate | None = None) -> Evidence:
    task = task or Evaluate(thresholds=THRESHOLDS)
    released = release(task.histogram(PLAIN), *rows)
    return released.value.evidence(released.noise)


@pytest.fixture(scope="module")
def evidence(rows: Rows) -> Evidence:
    return evidence_of(rows)


@pytest.fixture(scope="module")
def metrics(evidence: Evidence):
    return Evaluate().metrics(evidence)


def test_auc(rows: Rows, metrics) -> None:
    expected = oracle.roc_auc_score(rows[1], rows[0])
    error = abs(metrics["roc_auc"].value - expected)
    assert error <= metrics["roc_auc"].discretisation + 1e-12
    if not {0.5, 0.5000001} <= set(rows[0]):  # atoms inside one bin, which only the bound can cover
        assert error <= 1e-5


def test_average_precision(rows: Rows, metrics) -> None:
    expected = oracle.average_precision_score(rows[1], rows[0])
    assert abs(metrics["average_precision"].value - expected) <= metrics["average_precision"].discretisation


@pytest.mark.parametrize(
    ("name", "function"), [("brier_score", "brier_score_loss"), ("log_loss", "log_loss")]
)
def test_losses(rows: Rows, metrics, name: str, function: str) -> None:
    expected = getattr(oracle, function)(rows[1], rows[0])
    assert abs(metrics[name].value - expected) <= metrics[name].discretisation + 1e-12
    assert metrics[name].discretisation < max(1e-3, 0.02 * expected) or rows[0].max() == 1.0


def test_losses_on_exact_zeros_and_ones_are_within_their_bound() -> None:
    rows = tied()
    metric = Evaluate().metrics(evidence_of(rows))["log_loss"]
    assert metric.discretisation > 0.1  # positives at score 0 may cost 24 or 36: the bound knows
    assert abs(metric.value - oracle.log_loss(rows[1], rows[0])) <= metric.discretisation


def test_prevalence_and_ratio(rows: Rows, metrics) -> None:
    scores, labels = rows
    assert metrics["prevalence"].value == labels.mean()
    ratio = metrics["observed_expected_ratio"]
    assert abs(ratio.value - labels.sum() / scores.sum()) <= ratio.discretisation


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_metrics_at_given_thresholds_are_exact(rows: Rows, evidence: Evidence, threshold: float) -> None:
    scores, labels = rows
    predicted = scores >= threshold
    confusion = Confusion.at(evidence, threshold)
    assert confusion.threshold == threshold
    found = decision_metrics(confusion)
    TN, FP, FN, TP = oracle.confusion_matrix(labels, predicted, labels=[0, 1]).ravel()
    assert confusion.counts.tolist() == [TP, FN, FP, TN]
    expected = {
        "accuracy": oracle.accuracy_score(labels, predicted),
        "recall": oracle.recall_score(labels, predicted),
        "specificity": oracle.recall_score(labels, predicted, pos_label=0),
        "net_benefit": (TP - FP * threshold / (1 - threshold)) / len(labels),
    }
    if predicted.any():
        expected["precision"] = oracle.precision_score(labels, predicted)
        expected["f1"] = oracle.f1_score(labels, predicted)
    else:
        assert found["precision"].reason == "there are no rows predicted positive"
    for name, value in expected.items():
        assert found[name].value == pytest.approx(value, abs=1e-14), name
        assert found[name].discretisation == 0


def test_calibration_slope_and_intercept(rows: Rows, metrics) -> None:
    scores, labels = rows
    eps = np.finfo(float).eps
    x = logit(np.clip(scores, eps, 1 - eps))
    slope = sm.Logit(labels, sm.add_constant(x)).fit(disp=0).params[1]
    shift = sm.GLM(labels, np.ones(len(x)), family=sm.families.Binomial(), offset=x).fit().params[0]
    for name, expected in (("calibration_slope", slope), ("calibration_intercept", shift)):
        error = abs(metrics[name].value - expected)
        assert error <= 2 * metrics[name].discretisation  # a first-order bound
        if scores.min() > 0 and scores.max() < 1:
            assert error < 5e-4 * max(1, abs(expected)), name


def test_standard_errors_of_slope_and_intercept_are_the_sandwich(rows: Rows, metrics) -> None:
    scores, labels = rows
    if scores.min() == 0:
        pytest.skip("scores of 0 and 1 have no logit")
    fit = sm.GLM(labels, sm.add_constant(logit(scores)), family=sm.families.Binomial()).fit(cov_type="HC0")
    assert metrics["calibration_slope"].sampling == pytest.approx(fit.bse[1], rel=1e-2)


def calibration_error(scores: np.ndarray, labels: np.ndarray, edges: np.ndarray) -> float:
    bucket = np.searchsorted(edges[1:-1], scores, side="right")
    gaps = np.bincount(bucket, labels - scores, minlength=len(edges) - 1)
    return float(np.abs(gaps).sum() / len(scores))


def test_calibration_errors(rows: Rows, evidence: Evidence, metrics) -> None:
    edges = evidence.edges[equi_depth_edges(evidence, 10)]
    for name, cuts in (
        ("expected_calibration_error", edges),
        ("expected_calibration_error_uniform", np.arange(11) / 10),
    ):
        expected = calibration_error(*rows, cuts)
        assert abs(metrics[name].value - expected) <= metrics[name].discretisation + 1e-12, name


def test_equi_depth_buckets_are_equal(evidence: Evidence, rows: Rows) -> None:
    edges = evidence.edges[equi_depth_edges(evidence, 10)]
    sizes = np.histogram(rows[0], edges)[0]
    assert sizes.sum() == len(rows[0])
    assert sizes.min() > 0
    if len(np.unique(rows[0])) > 1000:
        heaviest_leaf = evidence.counts.max()
        assert np.abs(sizes - len(rows[0]) / 10).max() <= heaviest_leaf


def test_hosmer_lemeshow(rows: Rows, evidence: Evidence, metrics) -> None:
    scores, labels = rows
    if scores.min() == 0:
        pytest.skip("scores of 0 and 1 have no variance under the null")
    metric = metrics["hosmer_lemeshow"]
    edges = evidence.edges[equi_depth_edges(evidence, 10)]
    group = np.searchsorted(edges[1:-1], scores, side="right")
    n, observed, expected = (np.bincount(group, w) for w in (np.ones(len(scores)), labels, scores))
    statistic = ((observed - expected) ** 2 / (expected * (1 - expected / n))).sum()
    assert metric.details["degrees_of_freedom"] == metric.details["groups"] == len(edges) - 1
    assert abs(metric.value - statistic) <= 1.1 * metric.discretisation  # a first-order bound
    assert metric.details["p_value"] == pytest.approx(chi2.sf(metric.value, len(edges) - 1))
    assert metric.interval is None


def test_delong_standard_error() -> None:
    """The binned influence function gives DeLong's variance from placements of every pair."""
    scores, labels = Population(0.3).sample(3_000, np.random.default_rng(9))
    positives, negatives = scores[labels == 1], scores[labels == 0]
    wins = (positives[:, None] > negatives[None, :]).astype(float)
    variance = wins.mean(1).var() / len(positives) + wins.mean(0).var() / len(negatives)
    metric = Evaluate().metrics(evidence_of((scores, labels)))["roc_auc"]
    assert metric.sampling == pytest.approx(np.sqrt(variance), rel=1e-3)


@pytest.mark.parametrize("score", ["score_lr", "score_gbm"])
@pytest.mark.parametrize("trust", [fedassay.Plain(), fedassay.SecureSum()], ids=lambda trust: trust.name)
def test_auc_of_the_flights_through_the_whole_house(
    score: str, trust: TrustModel, datasets: Path, verify: Verify
) -> None:
    """Sixteen carriers, real labels: the released AUC is scikit-learn's on the pooled rows."""
    path = datasets / "nycflights13_scored.parquet"
    frame = pd.read_parquet(path, columns=[score, "y"])
    result = fedassay.evaluate(
        path, client="carrier", score=score, label="y", privacy=trust, thresholds=(0.2, 0.31, 0.5)
    )
    expected = oracle.roc_auc_score(frame["y"], frame[score])
    error = abs(result["roc_auc"]["value"] - expected)
    verify(
        f"AUC of the flights ({score}) under {trust.name} is within 1e-5 of scikit-learn's", f"{error:.1e}"
    )
    assert error < 1e-5
    for row in result["thresholds"]:
        said = frame[score] >= row["threshold"]
        assert row["accuracy"]["value"] == pytest.approx(oracle.accuracy_score(frame["y"], said), abs=1e-12)
        assert row["precision"]["value"] == pytest.approx(oracle.precision_score(frame["y"], said), abs=1e-12)
        assert row["recall"]["value"] == pytest.approx(oracle.recall_score(frame["y"], said), abs=1e-12)
