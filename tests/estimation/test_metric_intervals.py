from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from fedassay.errors import UsageError
from fedassay.estimation.curves import noise_half_width
from fedassay.estimation.intervals import (
    Estimate,
    bounded,
    positive,
    score_interval,
    share_interval,
    unbounded,
    z_value,
)
from fedassay.estimation.metric import Metric, Undefined, estimator

shares = st.floats(0, 1)
variances = st.just(0.0) | st.floats(1e-12, 1)
bounds = st.floats(0, 0.5)
levels = st.floats(0.5, 0.999)


@given(st.integers(0, 200), st.integers(1, 200), levels)
def test_without_noise_it_is_wilson_s_interval(hits: int, rows: int, level: float) -> None:
    hits = min(hits, rows)
    v = hits / rows
    estimate = Estimate(value=v, sampling_variance=v * (1 - v) / rows, privacy_variance=0.0)
    expected = proportion_confint(hits, rows, alpha=1 - level, method="wilson")
    assert score_interval(estimate, size=rows, level=level) == pytest.approx(expected, abs=1e-9)


@given(st.integers(0, 200), st.integers(1, 200), levels)
def test_without_noise_shares_have_clopper_and_pearson_s_interval(hits: int, rows: int, level: float) -> None:
    hits = min(hits, rows)
    expected = proportion_confint(hits, rows, alpha=1 - level, method="beta")
    assert share_interval(hits / rows, rows, 0.0, level=level) == pytest.approx(expected, abs=1e-9)


@given(st.floats(-0.5, 1.5), variances, variances, bounds, st.floats(1, 1e6), levels)
def test_intervals_of_bounded_metrics_are_sane(
    value: float, sampling: float, privacy: float, bound: float, size: float, level: float
) -> None:
    estimate = Estimate(
        value=value, sampling_variance=sampling, privacy_variance=privacy, discretisation=bound
    )
    metric = bounded(estimate, size=size, level=level)
    low, high = metric.interval
    assert 0 <= low <= metric.value <= high <= 1
    assert high - low > 0
    wider = bounded(
        Estimate(
            value=value, sampling_variance=sampling, privacy_variance=privacy + 0.1, discretisation=bound
        ),
        size=size,
        level=level,
    ).interval
    assert wider[1] - wider[0] >= high - low - 1e-9 or not 0 <= value <= 1


def test_large_samples_have_the_normal_interval() -> None:
    estimate = Estimate(value=0.3, sampling_variance=1e-8, privacy_variance=3e-8)
    low, high = score_interval(estimate, size=1, level=0.95)
    assert (low, high) == pytest.approx((0.3 - 1.96 * 2e-4, 0.3 + 1.96 * 2e-4), abs=1e-7)
    assert unbounded(estimate, level=0.95).interval == pytest.approx((low, high), abs=1e-7)


def test_the_binning_bound_is_added_linearly() -> None:
    plain, binned = (
        unbounded(
            Estimate(value=2.0, sampling_variance=0.01, privacy_variance=0.0, discretisation=bound), level=0.9
        ).interval
        for bound in (0.0, 0.25)
    )
    assert binned == pytest.approx((plain[0] - 0.25, plain[1] + 0.25))


def test_ratios_are_symmetric_on_the_logarithmic_scale() -> None:
    metric = positive(Estimate(value=2.0, sampling_variance=0.04, privacy_variance=0.0), level=0.95)
    low, high = metric.interval
    assert math.log(high / 2) == pytest.approx(math.log(2 / low))
    assert math.log(high / 2) == pytest.approx(1.96 * 0.1, rel=1e-3)


def test_ratios_that_are_not_positive_have_no_value() -> None:
    with pytest.raises(Undefined, match="not enough evidence"):
        positive(Estimate(value=-0.1, sampling_variance=0.04, privacy_variance=0.0), level=0.95)
    with pytest.raises(Undefined, match="not enough evidence"):
        positive(Estimate(value=1e-3, sampling_variance=4.0, privacy_variance=0.0), level=0.95)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_bad_levels_are_refused(level: float) -> None:
    with pytest.raises(UsageError, match="level: got"):
        z_value(level)


def test_a_metric_never_holds_a_nan() -> None:
    with pytest.raises(AssertionError):
        Metric(value=math.nan, interval=None, level=0.95)
    with pytest.raises(AssertionError):
        Metric(value=None, interval=None, level=0.95)


def test_the_json_of_a_metric() -> None:
    metric = bounded(Estimate(value=0.5, sampling_variance=0.01, privacy_variance=0.0), size=25, level=0.95)
    document = metric.to_json()
    assert set(document) == {"value", "interval", "level", "error"}
    assert document["error"] == {"sampling": 0.1, "privacy": 0.0, "discretisation": 0.0}
    assert isinstance(document["interval"], list)


def test_an_estimator_s_reason_becomes_a_null() -> None:
    @estimator
    def nothing(*, level: float = 0.95) -> Metric:
        raise Undefined("there is nothing")

    assert nothing(level=0.9).to_json() == {
        "value": None,
        "interval": None,
        "level": 0.9,
        "reason": "there is nothing",
    }


@given(st.floats(1, 1e4), st.floats(0.1, 50), st.integers(1, 10_000))
def test_the_noise_bound_is_above_the_normal_one_and_grows_with_the_points(
    variance: float, scale: float, points: int
) -> None:
    bound = noise_half_width(variance, scale, points=points, error=0.05)
    gaussian = math.sqrt(2 * variance * math.log(2 * points / 0.05))
    assert bound >= gaussian * (1 - 1e-6)
    assert noise_half_width(variance, 0.0, points=points, error=0.05) == pytest.approx(gaussian, rel=1e-3)
    assert noise_half_width(variance, scale, points=2 * points, error=0.05) > bound
