"""Under noise the average precision is estimated without the bias that its products of counts would have.

The noise of a bin is in its own count and in all counts above lower edges, so their product is too large on
average. The estimate is judged by its mean over runs: within a third of its standard deviation, where the same
sum without the correction is off by more than a whole one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from binormal import NoisyServer, Population, measure, release
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol import Budget, Protection, Setting, Sum
from fedassay.tasks.evaluation import Evaluate, ranking
from fedassay.tasks.evaluation.evidence import Evidence
from fedassay.trust.local_dp import LocalDP

POPULATION = Population(0.5, shift=0.3, stretch=1.2)
RUNS = 100
"""The mean of so many runs has a standard error of a tenth of their deviation: a third is 3.3 of it."""

Draw = Callable[[int, np.random.Generator], Evidence]


def at_the_server() -> Draw:
    setting = NoisyServer(epsilon=0.3).setting()
    histogram = Evaluate(height=10).histogram(setting)
    noise = setting.noise(Sum(of=histogram))

    def draw(run: int, rng: np.random.Generator) -> Evidence:
        released = release(histogram, *POPULATION.sample(2_000, rng), noise=noise, rng=rng)
        return Evidence.of(released.value, released.noise)

    return draw


def at_the_clients() -> Draw:
    trust, clients = LocalDP(), 100_000
    setting = Setting(
        trust=trust, protection=Protection(rows_per_client=1), budget=Budget(epsilon=1.0), clients=clients
    )
    histogram = Evaluate(height=10).histogram(setting)
    plan = trust.plan(Sum(of=histogram), setting)

    def draw(run: int, rng: np.random.Generator) -> Evidence:
        total = measure(histogram, *POPULATION.sample(clients, rng))
        (released,) = trust.aggregate([plan], [total], clients, SimulatedRandomness(run))
        return Evidence.of(histogram.read(released.value), released.noise)

    return draw


@pytest.mark.parametrize("where", [at_the_server, at_the_clients])
def test_the_mean_is_right_and_the_plain_sum_s_is_not(
    where: Callable[[], Draw], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, rng = where(), np.random.default_rng(8)
    releases = [draw(run, rng) for run in range(RUNS)]
    truth = POPULATION.truth(0.5)["average_precision"]

    def errors() -> np.ndarray:
        return np.array([ranking.average_precision(evidence).value - truth for evidence in releases])

    corrected = errors()
    assert abs(corrected.mean()) < corrected.std() / 3
    monkeypatch.setattr(ranking, "_noise_bias", lambda *_: 0.0)
    plain = errors()
    assert plain.mean() > corrected.std() / 2  # five standard errors of the mean
