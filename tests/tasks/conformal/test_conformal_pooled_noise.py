"""Bounds of how far noise moves T_i hold for every place of the rows, and for simulated noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformal_drive import answer, setting_of
from fedassay.protocol.vocabulary import Unit
from fedassay.tasks.conformal import Conformal
from fedassay.tasks.conformal.pooled import reported_moments, tail_at_points, tail_of_rows
from fedassay.tasks.distribution.curve import ReleasedCurve, curve_of
from fedassay.tasks.distribution.stored import Release
from fedassay.trust import DistributedDP, LocalDP, ServerDP, TwoServer

LEVEL = 0.9
CLIENTS = 400


def curve(setting: Any, scores: np.ndarray, seed: int, bins: int = 32) -> ReleasedCurve:
    task = Conformal(method="pooled", score_range=(0.0, 1.0), bins=bins, level=LEVEL)
    query = next(task.steps(setting))
    released = answer(query, setting, [{"conformity": scores}], seed)
    release = Release.of(released.value, released.noise)
    return curve_of(release.summary.grid, release.sums[0], release.fit, release.noise)


def exact(scores: np.ndarray, at: ReleasedCurve) -> np.ndarray:
    """T at every point, without noise; what is above the last but one point is in the last leaf."""
    points = np.append(at.grid.thresholds[:-1], np.inf)
    return np.searchsorted(np.sort(scores), points, side="right") - LEVEL * len(scores)


ONE_ROW = {"rows_per_client": 1, "unit": Unit.CLIENT}
SETTINGS = {
    "server-dp": setting_of(ServerDP(), clients=CLIENTS, epsilon=1.0),
    "server-dp, delta": setting_of(ServerDP(), clients=CLIENTS, epsilon=1.0, delta=1e-6),
    "distributed-dp": setting_of(DistributedDP(), clients=CLIENTS, epsilon=1.0),
    "distributed-dp, delta": setting_of(DistributedDP(), clients=CLIENTS, epsilon=1.0, delta=1e-6),
    "two-server": setting_of(TwoServer(), clients=CLIENTS, epsilon=2.0, rows_per_client=1),
    "local-dp": setting_of(LocalDP(encoding="noise"), clients=CLIENTS, epsilon=4.0),
    "reports": setting_of(LocalDP(), clients=CLIENTS, epsilon=2.0, **ONE_ROW),
    "reports, large epsilon": setting_of(LocalDP(), clients=CLIENTS, epsilon=8.0, **ONE_ROW),
}
PLACES = {
    "even": lambda rng: rng.random(CLIENTS),
    "one leaf": lambda rng: np.full(CLIENTS, 0.5),
    "two ends": lambda rng: rng.integers(0, 2, CLIENTS) * 0.97,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", SETTINGS)
def test_simulated_noise_is_within_its_tail_at_every_point(name: str, place: str) -> None:
    """P(released T >= t₀) is at most the tail at t₀ - T, at each of 32 points; all hold but for 1e-4 (Hoeffding)."""
    setting, runs = SETTINGS[name], 150
    rng = np.random.default_rng(0)
    scores = PLACES[place](rng)
    released, extra = [], []
    for run in range(runs):
        found = curve(setting, scores, run)
        released.append(found.sums[1:] - LEVEL * found.rows)
        extra.append(found.rows - len(scores))
    tail, total = tail_at_points(found, LEVEL, clients=CLIENTS), tail_of_rows(found, clients=CLIENTS)
    lifted, truth = np.array(released) - exact(scores, found), exact(scores, found)
    deviation, slack = np.sqrt(tail.variance), np.sqrt(np.log(3 * 2 * 32 * 2 / 1e-4) / (2 * runs))
    for height in (0.25, 1.0, 2.0):
        margin = height * deviation
        assert ((np.array(released) >= margin).mean(axis=0) <= tail.above(margin - truth) + slack).all()
        x = height * np.sqrt(total.variance)
        assert (np.array(extra) >= x).mean() <= total.above(x) + slack
        if not name.startswith(
            "reports"
        ):  # of those, the variance depends on how far the point is from the level
            assert ((lifted >= margin).mean(axis=0) <= tail.above(margin) + slack).all()
    if not name.startswith("reports"):
        assert 0.6 * tail.variance <= np.var(lifted, axis=0).max() <= 1.4 * tail.variance


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("bins", [4, 32, 256])
def test_reports_have_no_larger_variance_wherever_the_rows_are(epsilon: float, bins: int) -> None:
    """Against the variances of `LevelReports` for drawn distributions with the share s up to the point."""
    setting = setting_of(LocalDP(), clients=CLIENTS, epsilon=epsilon, **ONE_ROW)
    rng, worst = np.random.default_rng(1), 0.0
    for run in range(12):
        places = rng.dirichlet(np.full(bins, 10.0 ** rng.uniform(-2, 1)))
        scores = (rng.choice(bins, CLIENTS, p=places) + 0.25) / bins
        found = curve(setting, scores, run, bins=bins)
        assert found.reports is not None
        variance, reach = reported_moments(found.reports.fit, found.noise, LEVEL, CLIENTS)
        counts = np.histogram(scores, bins=bins, range=(0, 1))[0].astype(float)
        reports = type(found.reports)(
            fit=found.reports.fit,
            bits=found.reports.bits,
            reporting=found.reports.reporting,
            clients=CLIENTS,
            counts=np.stack([counts, np.zeros(bins)]),
        )
        exact_variances = reports.rate_variances(1, np.full(bins + 1, 1 - LEVEL))[1:]
        x = np.maximum(0.0, LEVEL * CLIENTS - counts.cumsum())  # how far below the level the point is
        assert (exact_variances <= variance + x * reach / 3 + 1e-6).all()
        worst = max(worst, float(exact_variances.max()) / variance)
    assert worst > 0.3
