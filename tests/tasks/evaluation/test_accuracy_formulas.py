from __future__ import annotations

import math

import numpy as np
import pytest

from fedassay.errors import UsageError
from fedassay.estimation.ranking import auc_binning_bound, auc_influence, auc_noise_trace, roc_auc
from fedassay.protocol.metrics import targets
from fedassay.protocol.vocabulary import Noise
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.evaluation.accuracy import (
    balancing_buckets,
    expected_auc_noise,
    expected_evidence,
    hanley_mcneil_variance,
    predict,
    published_rate,
)


def laplace(variance: float) -> Noise:
    return Noise(law="discrete-laplace", scale=math.sqrt(variance / 2), variance=variance)


HISTOGRAM = ScoreHistogram(transform="mixed", height=10, thresholds=(0.5,), widths=(1, 32, 256), reach=12)


@pytest.mark.parametrize(
    ("quantity", "privacy", "exponent"),
    [
        ("decision", "federated", 0),
        ("decision", "distributed", -2 / 3),
        ("decision", "local", -1 / 3),
        ("roc_auc", "federated", 0),
        ("roc_auc", "distributed", -1),
        ("roc_auc", "local", -1 / 2),
        ("calibration", "federated", -1 / 3),
        ("calibration", "local", -1 / 4),
    ],
)
def test_table_1_has_the_published_exponents(quantity: str, privacy: str, exponent: float) -> None:
    small, large = (published_rate(quantity, privacy, rows=rows) for rows in (1e4, 1e6))
    assert math.log(large / small) / math.log(100) == pytest.approx(exponent, abs=1e-9)


def test_the_balance_of_theorem_2_is_a_balance() -> None:
    """At the chosen B, binning (1/B) equals noise (√B/(εM)); for local noise √B/(ε√M)."""
    M, e = 1e5, 0.7
    B = balancing_buckets("decision", "distributed", rows=M, epsilon=e)
    assert pytest.approx(math.sqrt(B) / (e * M)) == 1 / B
    B = balancing_buckets("decision", "local", rows=M, epsilon=e)
    assert pytest.approx(math.sqrt(B) / (e * math.sqrt(M))) == 1 / B
    B = balancing_buckets("calibration", "federated", rows=M)
    assert pytest.approx(math.sqrt(B / M)) == 1 / B
    B = balancing_buckets("calibration", "local", rows=M, epsilon=e)
    assert pytest.approx(B / (e * math.sqrt(M))) == 1 / B
    assert balancing_buckets("roc_auc", "federated", rows=M) == math.inf
    B = balancing_buckets("roc_auc", "local", rows=M, epsilon=e)
    assert pytest.approx(math.sqrt(M * (math.exp(e) - 1) ** 2 / math.exp(e))) == B


def test_hanley_and_mcneil_s_own_example_is_close_to_the_binormal_variance() -> None:
    evidence = expected_evidence(HISTOGRAM, rows=2_000, prevalence=0.5, auc=0.85)
    published = math.sqrt(hanley_mcneil_variance(0.85, positives=1_000, negatives=1_000))
    assert roc_auc(evidence).sampling == pytest.approx(published, rel=0.1)


def test_the_expected_histogram_has_the_expected_properties() -> None:
    evidence = expected_evidence(HISTOGRAM, rows=1_000, prevalence=0.2, auc=0.75)
    assert evidence.positive_rows == pytest.approx(200)
    assert evidence.negative_rows == pytest.approx(800)
    assert roc_auc(evidence).value == pytest.approx(0.75, abs=1e-4)
    assert float(evidence.counts @ evidence.scores) == pytest.approx(200, rel=1e-3)  # calibrated


def test_more_noise_fewer_rows_and_coarser_bins_predict_larger_errors() -> None:
    model = {"prevalence": 0.3, "auc": 0.8}
    base = predict(HISTOGRAM, rows=10_000, noise=laplace(18.0), **model)["roc_auc"]
    noisier = predict(HISTOGRAM, rows=10_000, noise=laplace(72.0), **model)["roc_auc"]
    fewer = predict(HISTOGRAM, rows=2_500, noise=laplace(18.0), **model)["roc_auc"]
    assert noisier.privacy == pytest.approx(2 * base.privacy, rel=0.02)
    assert fewer.sampling == pytest.approx(2 * base.sampling, rel=1e-6)
    assert fewer.privacy > 3.9 * base.privacy
    coarse = ScoreHistogram(transform="mixed", height=7, reach=12)
    assert auc_binning_bound(expected_evidence(coarse, rows=1, **model)) == pytest.approx(
        8 * base.discretisation, rel=0.1
    )


def test_too_few_rows_are_predicted_to_be_not_enough() -> None:
    expected = predict(HISTOGRAM, rows=500, prevalence=0.02, auc=0.8, noise=laplace(18.0))
    assert expected["roc_auc"].value is None
    assert "not enough evidence: about 10 positive rows" in expected["roc_auc"].reason
    assert expected["accuracy"].value is not None


def test_noise_changes_the_privacy_part_and_not_the_sampling_part() -> None:
    model = {"rows": 20_000, "prevalence": 0.3, "auc": 0.8}
    quiet, noisy = predict(HISTOGRAM, **model), predict(HISTOGRAM, noise=laplace(200.0), **model)
    assert set(quiet) == set(noisy) == set(targets())
    for name in targets():
        assert quiet[name].privacy == 0
        assert noisy[name].privacy > 0
        if name != "expected_calibration_error":
            assert noisy[name].sampling == pytest.approx(quiet[name].sampling, rel=1e-3)
        assert np.ptp(noisy[name].interval) > np.ptp(quiet[name].interval)


def test_a_calibrated_model_is_expected_to_show_an_error_of_calibration() -> None:
    """Σ|e_j| over ten buckets: its mean grows with √(2/π) of their standard errors, and falls with √rows."""
    few, many = (
        predict(HISTOGRAM, rows=rows, prevalence=0.3, auc=0.8)["expected_calibration_error"]
        for rows in (1_000, 100_000)
    )
    assert few.value == pytest.approx(10 * many.value, rel=0.01)
    assert few.interval[0] == 0
    assert few.interval[1] > 2 * few.value
    wide = predict(HISTOGRAM, rows=1_000, prevalence=0.3, auc=0.8, buckets=40)["expected_calibration_error"]
    assert wide.value == pytest.approx(2 * few.value, rel=0.02)


def test_some_metrics_only() -> None:
    model = {"rows": 1_000, "prevalence": 0.3, "auc": 0.8}
    assert list(predict(HISTOGRAM, metrics=("f1", "roc_auc"), **model)) == ["f1", "roc_auc"]
    with pytest.raises(UsageError, match="metric: got 'auc', expected one of roc_auc"):
        predict(HISTOGRAM, metrics=("auc",), **model)


@pytest.mark.parametrize("wrong", [{"rows": 0}, {"prevalence": 1.0}, {"auc": 0.4}])
def test_impossible_data_are_refused(wrong: dict[str, float]) -> None:
    model = {"rows": 100.0, "prevalence": 0.5, "auc": 0.8} | wrong
    with pytest.raises(UsageError, match="expected data: got"):
        predict(HISTOGRAM, **model)


def test_the_published_rate_of_the_auc_is_met_with_room() -> None:
    """Table 1 says (1/ε + 1/B)/M up to a constant; ours is a small multiple of it at every size."""
    ratios = [
        predict(HISTOGRAM, rows=rows, prevalence=0.5, auc=0.8, noise=laplace(18.0))["roc_auc"].privacy
        / published_rate("roc_auc", "distributed", rows=rows, buckets=1024)
        for rows in (1e4, 1e5, 1e6)
    ]
    assert np.ptp(ratios) < 0.5
    assert max(ratios) < 20


@pytest.mark.parametrize(("variance", "rows"), [(18.0, 1e5), (5000.0, 300.0), (0.0, 1e4)])
def test_noise_of_the_auc_is_that_of_its_influence_whatever_the_rows_and_the_noise(
    variance: float, rows: float
) -> None:
    """What is kept for one row and noise of variance one, scaled, is what the evidence itself says."""
    histogram = ScoreHistogram(
        transform="logit", height=8, thresholds=(0.2, 0.5), widths=(1, 4, 32), multipliers=(1, 2, 3)
    )
    noise = Noise(law="discrete-laplace", scale=3.0, variance=variance)
    evidence = expected_evidence(histogram, rows=rows, prevalence=0.1, auc=0.9, noise=noise)
    value, by_positive, by_negative = auc_influence(evidence)
    direct = evidence.privacy_variance(by_positive, by_negative) + auc_noise_trace(evidence, value)
    found = expected_auc_noise(histogram, noise, rows=rows, prevalence=0.1, auc=0.9)
    assert found**2 == pytest.approx(direct, rel=1e-12)
