"""Without noise, every calibrator is what scikit-learn, statsmodels or a direct computation gives on pooled rows."""

from __future__ import annotations

import itertools
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import expit, gammaln, logit, logsumexp, xlogy
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from calibration_rows import GRID, binned_rows, crooked, evidence_of
from fedassay.estimation.calibration_error import equi_depth_edges
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.metric import Undefined
from fedassay.protocol.vocabulary import NO_NOISE
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.calibration import fit
from fedassay.tasks.calibration.bbq import bbq, bucket_numbers
from fedassay.tasks.calibration.methods import beta, histogram_binning, isotonic, platt

PEERS = json.loads((Path(__file__).parents[2] / "vectors" / "calibration_peers.json").read_text())
X = np.linspace(0.001, 0.999, 999)
NEWTON = 1e-10
"""Steps of Newton's method that end statsmodels' fits: what is left is the square. Smaller ones drown in rounding."""


# --- Platt and beta -----------------------------------------------------------------------------------------


def logistic_regression(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its stopping rule is not ours
        model = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000).fit(features, labels)
    return np.concatenate([model.intercept_, model.coef_[0]])


def test_platt_is_logistic_regression_on_the_logit() -> None:
    scores, labels = crooked(20_000)
    fitted = platt(evidence_of(scores, labels))
    ours = np.array([fitted.parameters["intercept"], fitted.parameters["slope"]])
    s, y = binned_rows(evidence_of(scores, labels))
    x = logit(s)[:, None]
    assert ours == pytest.approx(sm.Logit(y, sm.add_constant(x)).fit(disp=0, tol=NEWTON).params, abs=1e-9)
    assert ours == pytest.approx(logistic_regression(x, y), abs=1e-6)
    assert ours == pytest.approx(logistic_regression(logit(scores)[:, None], labels), abs=3e-4)  # unbinned
    assert fitted.map(X) == pytest.approx(expit(ours[0] + ours[1] * logit(X)), abs=1e-12)


def test_platt_with_the_default_grid_is_close_to_the_raw_rows() -> None:
    scores, labels = crooked(50_000)
    default = ScoreHistogram(transform="mixed", height=15)
    fitted = platt(evidence_of(scores, labels, histogram=default))
    raw = sm.Logit(labels, sm.add_constant(logit(scores))).fit(disp=0).params
    assert [fitted.parameters["intercept"], fitted.parameters["slope"]] == pytest.approx(raw, abs=2e-6)


def test_beta_is_logistic_regression_on_two_logarithms() -> None:
    scores, labels = crooked(20_000)
    fitted = beta(evidence_of(scores, labels))
    ours = [fitted.parameters[name] for name in ("c", "a", "b")]
    s, y = binned_rows(evidence_of(scores, labels))
    features = np.stack([np.log(s), -np.log1p(-s)], axis=1)
    assert ours == pytest.approx(
        sm.Logit(y, sm.add_constant(features)).fit(disp=0, tol=NEWTON).params, abs=1e-8
    )


def even_evidence(positives: list[int]) -> Evidence:
    """The rows of the stored vectors: equally many in each of 256 equal bins."""
    even = PEERS["even"]
    histogram = ScoreHistogram(transform="uniform", height=8)
    assert histogram.grid.leaves == even["leaves"]
    counts = np.array(positives)
    return histogram.read(np.concatenate([counts, even["rows_per_leaf"] - counts])).evidence(NO_NOISE)


@pytest.mark.parametrize("name", sorted(PEERS["beta"]))
def test_beta_follows_betacal_and_its_rule_for_negative_coefficients(name: str) -> None:
    """betacal stops early (1e-4); statsmodels, given the features that the rule leaves, does not."""
    case = PEERS["beta"][name]
    evidence = even_evidence(case["positives"])
    fitted = beta(evidence)
    ours = {one: fitted.parameters[one] for one in ("a", "b")}
    assert ours == pytest.approx({one: case[one] for one in ("a", "b")}, abs=2e-3)
    assert fitted.map(evidence.scores[PEERS["even"]["at"]]) == pytest.approx(case["predictions"], abs=3e-4)
    s, y = binned_rows(evidence)
    features = {"a": np.log(s), "b": -np.log1p(-s)}
    kept = [one for one in ("a", "b") if case[one] != 0]
    exact = sm.Logit(y, sm.add_constant(np.stack([features[one] for one in kept], axis=1))).fit(
        disp=0, tol=NEWTON
    )
    assert [fitted.parameters["c"], *(ours[one] for one in kept)] == pytest.approx(exact.params, abs=1e-8)
    assert [one for one in ours if ours[one] == 0] == [one for one in ("a", "b") if one not in kept]


# --- isotonic -----------------------------------------------------------------------------------------------


def test_isotonic_is_that_of_scikit_learn() -> None:
    scores, labels = crooked(5_000)
    evidence = evidence_of(scores, labels)
    ours = isotonic(evidence).map(X)
    s, y = binned_rows(evidence)
    assert ours == pytest.approx(IsotonicRegression(out_of_bounds="clip").fit(s, y).predict(X), abs=1e-12)
    raw = IsotonicRegression(out_of_bounds="clip").fit(scores, labels).predict(X)
    assert np.mean(np.abs(ours - raw)) < 2e-3
    assert np.all(np.diff(ours) >= 0)


def test_isotonic_with_the_default_grid_is_close_to_the_raw_rows() -> None:
    scores, labels = crooked(50_000)
    default = ScoreHistogram(transform="mixed", height=15)
    ours = isotonic(evidence_of(scores, labels, histogram=default)).map(X)
    raw = IsotonicRegression(out_of_bounds="clip").fit(scores, labels).predict(X)
    assert np.mean(np.abs(ours - raw)) < 5e-4


# --- histogram binning and BBQ ------------------------------------------------------------------------------


def test_histogram_binning_is_the_fraction_in_each_bucket() -> None:
    scores, labels = crooked(8_000)
    evidence = evidence_of(scores, labels)
    calibrated = histogram_binning(evidence, bins=12).map(scores)
    edges = GRID.grid.edges[equi_depth_edges(evidence, 12)]
    places = np.digitize(scores, edges[1:-1])
    for place in range(12):
        assert calibrated[places == place] == pytest.approx(labels[places == place].mean(), abs=1e-12)
    assert histogram_binning(evidence).parameters["buckets"] == 20  # the cube root of 8,000


def naive_bbq(evidence: Evidence) -> np.ndarray:
    """As published, bucket by bucket; the calibrated score of every leaf."""
    edges, s = evidence.edges, []
    models = []
    for number in bucket_numbers(evidence.rows, evidence.leaves):
        cuts = equi_depth_edges(evidence, int(number))
        score, values = 0.0, np.zeros(evidence.leaves)
        B = len(cuts) - 1
        for low, high in itertools.pairwise(cuts):
            m, n = evidence.positives[low:high].sum(), evidence.negatives[low:high].sum()
            p = (edges[low] + edges[high]) / 2
            alpha, beta_ = 2 / B * p, 2 / B * (1 - p)
            score += gammaln(2 / B) - gammaln(m + n + 2 / B)
            score += gammaln(m + alpha) - gammaln(alpha) + gammaln(n + beta_) - gammaln(beta_)
            values[low:high] = (m + alpha) / (m + n + 2 / B)
        s.append(score)
        models.append(values)
    weights = np.exp(np.array(s) - logsumexp(s))
    return weights @ np.array(models)


@pytest.mark.parametrize("rows", [60, 1_000, 20_000])
def test_bbq_is_the_published_average(rows: int) -> None:
    evidence = evidence_of(*crooked(rows))
    fitted = bbq(evidence)
    assert fitted.map(evidence.scores) == pytest.approx(naive_bbq(evidence), abs=1e-9)
    assert sum(fitted.parameters["weights"]) == pytest.approx(1)


def test_bbq_and_histogram_binning_equal_netcal_where_it_can_be_compared() -> None:
    """netcal weighs by BIC instead of the published score, has buckets of equal width, and says the raw fraction.

    With equally many rows in equal bins both kinds of buckets are the same; given BIC, what remains is the
    prior (2 rows among 4,096) and the models that netcal prunes (weights below 1e-5).
    """
    even = PEERS["even"]
    evidence = even_evidence(even["positives"])
    at = evidence.scores[even["at"]]

    def bic(m: np.ndarray, n: np.ndarray, _midpoint: np.ndarray, _prior: np.ndarray) -> np.ndarray:
        return xlogy(m, m / (m + n)) + xlogy(n, n / (m + n)) - np.log(evidence.rows) / 2

    fitted = bbq(evidence, score=bic)
    assert fitted.map(at) == pytest.approx(even["bbq_bic"], abs=1e-3)
    weights = dict(zip(fitted.parameters["buckets"], fitted.parameters["weights"], strict=True))
    for number, weight in zip(even["bbq_bins"], even["bbq_weights"], strict=True):
        assert weights[number] == pytest.approx(weight, abs=1e-3)
    assert histogram_binning(evidence, bins=10).map(at) == pytest.approx(even["histogram_10"], abs=1e-12)


# --- auto ---------------------------------------------------------------------------------------------------


def wavy(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A miscalibration that no sigmoid can undo."""
    rng = np.random.default_rng(seed)
    scores = rng.random(rows)
    return scores, (rng.random(rows) < np.clip(scores + 0.12 * np.sin(4 * np.pi * scores), 0, 1)).astype(
        np.int8
    )


def test_auto_takes_the_sigmoid_where_it_is_right_and_buckets_where_it_is_not() -> None:
    assert fit(evidence_of(*crooked(20_000)), "auto").fitted.method in ("platt", "beta")  # type: ignore[union-attr]
    chosen = fit(evidence_of(*wavy(20_000, 1)), "auto")
    assert chosen.fitted is not None
    assert chosen.fitted.method in ("histogram", "bbq")
    assert {one["method"] for one in chosen.candidates} == {"histogram", "bbq", "isotonic", "platt", "beta"}


def test_the_expected_log_loss_is_that_of_new_rows() -> None:
    """Averaged over fits: in-sample losses are too small by the optimism, and the candidates' numbers are not."""
    gaps: dict[str, list[float]] = {"platt": [], "histogram": []}
    new_scores, new_labels = wavy(100_000, 99)
    for seed in range(30):
        evidence = evidence_of(*wavy(2_000, seed))
        for one in fit(evidence, "auto").candidates:
            if one["method"] in gaps and one["expected_log_loss"] is not None:
                calibrated = fit(evidence, one["method"]).fitted.map(new_scores)  # type: ignore[union-attr]
                loss = -np.mean(np.where(new_labels == 1, np.log(calibrated), np.log1p(-calibrated)))
                gaps[one["method"]].append(one["expected_log_loss"] - loss)
    for found in gaps.values():
        assert len(found) >= 20
        error = np.std(found) / np.sqrt(len(found))
        assert abs(np.mean(found)) < 3.5 * error + 1e-3


def test_auto_never_takes_a_map_that_claims_certainty() -> None:
    chosen = fit(evidence_of(*crooked(3_000)), "auto")
    by_name = {one["method"]: one for one in chosen.candidates}
    assert by_name["isotonic"]["expected_log_loss"] is None
    assert "0 or 1" in by_name["isotonic"]["reason"]


# --- where there is nothing to fit --------------------------------------------------------------------------


@pytest.mark.parametrize("method", [histogram_binning, bbq, isotonic, platt, beta])
def test_one_class_only_has_no_calibrator(method: object) -> None:
    with pytest.raises(Undefined, match="no negative rows"):
        method(evidence_of(np.array([0.2, 0.6]), np.array([1, 1])))  # type: ignore[operator]


@pytest.mark.parametrize("method", [platt, beta])
def test_separated_classes_and_a_single_score_have_no_slope(method: object) -> None:
    with pytest.raises(Undefined, match="separate the classes"):
        method(evidence_of(np.array([0.1, 0.2, 0.8, 0.9]), np.array([0, 0, 1, 1])))  # type: ignore[operator]
    with pytest.raises(Undefined, match="one bin"):
        method(evidence_of(np.full(50, 0.3), np.arange(50) % 2))  # type: ignore[operator]


def test_beta_without_a_maximum_says_so() -> None:
    """Positives in the middle, negatives on both sides: two logarithms separate them, one does not."""
    scores = np.concatenate(
        [np.linspace(0.4, 0.6, 50), np.linspace(0.01, 0.3, 50), np.linspace(0.7, 0.99, 50)]
    )
    with pytest.raises(Undefined, match="no maximum|vary enough"):
        beta(evidence_of(scores, np.repeat([1, 0, 0], 50)))
