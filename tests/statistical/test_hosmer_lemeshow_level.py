"""A calibrated model is rejected at 5 % as often as stated, with and without noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from binormal import NoisyServer, Population, release
from fedassay.estimation.calibration_error import hosmer_lemeshow
from fedassay.estimation.least_squares import LeastSquares
from fedassay.protocol.vocabulary import Sum
from fedassay.tasks.evaluation import Evaluate

CALIBRATED = Population(0.4)
LEAST, MOST = 0.04, 0.06
FALSE_ALARM = 1e-4


def rejections(rows: int, epsilon: float | None, runs: int) -> tuple[list[bool], list[bool]]:
    """Whether each run rejects at 5 %: as it should be done, and forgetting the noise."""
    task = Evaluate(height=12 if epsilon is None else None)
    setting = NoisyServer(epsilon=epsilon).setting()
    histogram = task.histogram(setting)
    noise = setting.noise(Sum(of=histogram))
    rng = np.random.default_rng(7)
    right, forgetful = [], []
    for _ in range(runs):
        released = release(histogram, *CALIBRATED.sample(rows, rng), noise=noise, rng=rng)
        evidence = released.value.evidence(released.noise)
        no_noise = LeastSquares(tree=evidence.fit.tree, variances=(0.0,) * evidence.fit.tree.levels)
        right.append(hosmer_lemeshow(evidence).details["p_value"] < 0.05)
        forgetful.append(hosmer_lemeshow(replace(evidence, fit=no_noise)).details["p_value"] < 0.05)
    return right, forgetful


def wrong_level(rejected: list[bool]) -> bool:
    few = binom.ppf(FALSE_ALARM / 2, len(rejected), LEAST)
    many = binom.isf(FALSE_ALARM / 2, len(rejected), MOST)
    return not few <= sum(rejected) <= many


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_level(epsilon: float | None) -> None:
    right, forgetful = rejections(2_000, epsilon, runs=400)
    assert not wrong_level(right), np.mean(right)
    if epsilon is not None:
        assert wrong_level(forgetful), np.mean(forgetful)


def test_a_miscalibrated_model_is_rejected() -> None:
    setting = NoisyServer(epsilon=1.0).setting()
    histogram = Evaluate().histogram(setting)
    rng = np.random.default_rng(8)
    rows = Population(0.4, shift=0.5).sample(5_000, rng)
    released = release(histogram, *rows, noise=setting.noise(Sum(of=histogram)), rng=rng)
    test = hosmer_lemeshow(released.value.evidence(released.noise))
    assert test.details["p_value"] < 1e-6


@pytest.mark.full
@pytest.mark.parametrize("rows", [2_000, 20_000])
@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_stated_level(rows: int, epsilon: float | None, verify) -> None:
    right, _ = rejections(rows, epsilon, runs=6_000)
    share = float(np.mean(right))
    noise = "without noise" if epsilon is None else "with noise"
    verify(
        f"Hosmer-Lemeshow at 5 %, {rows} rows, {noise}: rejects 4-6 % of calibrated models", f"{share:.2%}"
    )
    assert LEAST <= share <= MOST
