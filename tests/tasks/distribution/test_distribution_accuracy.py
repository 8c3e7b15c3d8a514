"""What is predicted is what happens."""

from __future__ import annotations

import numpy as np
import pytest

from drawn_values import drive, leaves, server, setting_of
from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import NO_NOISE, Sum
from fedassay.tasks.distribution import Ecdf
from fedassay.tasks.distribution.mechanisms import chosen, expected_curve, noise_half_width, quantile_errors
from fedassay.tasks.distribution.stored import Release
from fedassay.trust.local_dp import LocalDP


@pytest.mark.parametrize("mechanism", ["tree", "path", "factorised"])
@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_no_band_has_more_noise_than_predicted(mechanism: str, labelled: bool, delta: float) -> None:
    setting = server(1.0, delta)
    summary = chosen(leaves(64, labelled=labelled), setting, mechanism=mechanism)
    predicted = noise_half_width(summary, setting.noise(Sum(of=summary)), rows=4_000)
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 4_000).astype(np.int8)
    for value in (rng.random(4_000), np.full(4_000, 0.001), np.full(4_000, 0.999)):
        task = Ecdf(points=64, mechanism=mechanism, labelled=labelled)
        curve = Release.from_results(drive(task, setting, {"value": value, "label": label})).everyone
        widest = float(curve.noise_half_widths(level=0.95).max()) * curve.rows / 4_000
        assert widest <= predicted * (1 + 1e-9)
        assert widest > 0.4 * predicted


@pytest.mark.parametrize("mechanism", ["tree", "path", "factorised"])
def test_the_predicted_error_of_a_quantile_is_its_spread(mechanism: str) -> None:
    """Rows that are the same in every run, at the even quantiles: only noise moves the median."""
    setting, rows = server(0.5, 1e-6), 3_000
    summary = chosen(leaves(256), setting, mechanism=mechanism)
    sampling, privacy = quantile_errors(
        summary, setting.noise(Sum(of=summary)), quantile=0.3, rows=rows, density=1.0
    )
    assert sampling == pytest.approx(np.sqrt(0.3 * 0.7 / rows))
    task = Ecdf(points=256, mechanism=mechanism, quantiles=(0.3,))
    value = (np.arange(rows) + 0.5) / rows
    medians = [drive(task, setting, {"value": value}, seed)["quantiles"][0]["value"] for seed in range(120)]
    # 120 runs know a standard deviation to 6.5 %; smoothing and leaves of 0.004 may take away and add a bit.
    assert np.std(medians) == pytest.approx(privacy, rel=0.3)


def test_without_noise_only_sampling_is_left() -> None:
    assert noise_half_width(leaves(16), NO_NOISE, rows=10) == 0
    assert quantile_errors(leaves(16), NO_NOISE, quantile=0.5, rows=100, density=2.0) == (0.025, 0.0)


def test_clients_that_report_on_one_level_are_predicted_too() -> None:
    setting = setting_of(LocalDP(), 1.0, clients=100_000, rows_per_client=1)
    summary = chosen(leaves(64), setting, mechanism="auto")
    noise = setting.noise(Sum(of=summary))
    predicted = noise_half_width(summary, noise, rows=100_000)
    half = noise_half_width(
        summary,
        setting_of(LocalDP(), 2.0, clients=100_000, rows_per_client=1).noise(Sum(of=summary)),
        rows=100_000,
    )
    assert 0 < half < predicted < 0.5
    rng = np.random.default_rng(0)
    results = drive(Ecdf(points=64), setting, {"value": rng.random(100_000)})
    band = (np.array(results["upper"]) - np.array(results["lower"]))[32] / 2
    assert band == pytest.approx(predicted, rel=0.3)  # almost all of it is noise


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"quantile": 0.0}, "quantile: got 0"),
        ({"density": 0.0}, "density 0"),
        ({"rows": 0.0}, "expected rows: got 0"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        quantile_errors(leaves(4), NO_NOISE, **{"quantile": 0.5, "rows": 10.0, "density": 1.0, **fields})
    assert expected_curve(leaves(4), NO_NOISE, rows=8.0).sums.tolist() == [0, 2, 4, 6, 8]
