"""An audit must find what is broken: four variants, each one function away from the shipped code.

Seeds are fixed. Were they not, a shipped mechanism would be accused with a probability of at most 1 - CONFIDENCE per
case. That nothing is found in the shipped code with as many runs and more is tested here and in the stated audit.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from fedassay.audit.catalogue import cases
from fedassay.audit.findings import AuditFinding, attacked
from fedassay.privacy import accounting, samplers
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Noise, Protection, Randomness, Sensitivity, Vector
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.trust.one_shot.sizes import Sizes

CONFIDENCE = 0.999


def audited(name: str, samples: int, seed: int = 3) -> AuditFinding:
    """A fresh case: plans and exact totals are remembered by the one in the catalogue."""
    return attacked(
        replace(cases()[name]),
        samples=samples,
        confidence=CONFIDENCE,
        randomness=SimulatedRandomness(seed, name),
    )


def halved(noise: Noise, count: int, randomness: Randomness) -> Vector:
    """Noise of half the scale that was planned."""
    scale = Fraction(noise.scale) / 2
    scale = (
        samplers.laplace_scale(scale) if noise.law == accounting.LAPLACE else samplers.gaussian_scale(scale)
    )
    return shipped_draw(accounting.noise_of(noise.law, scale), count, randomness)


shipped_draw = accounting.draw


def in_floats(noise: Noise, count: int, randomness: Randomness) -> Vector:
    """The right law, from a sampler of real numbers, rounded."""
    rng = np.random.default_rng(randomness.words(4).tolist())
    return np.rint(rng.laplace(scale=noise.scale, size=count)).astype(np.int64)


def one_level_less(self: ScoreHistogram, protection: Protection) -> Sensitivity:
    return Sensitivity.of_counts(protection, multipliers=self.multipliers[:-1])


def finds_half_the_noise(name: str, samples: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    assert not audited(name, samples).violated
    monkeypatch.setattr(accounting, "draw", halved)
    found = audited(name, samples)
    return found.bound.epsilon > found.case.budget.epsilon


def test_half_the_noise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert finds_half_the_noise("server-dp/laplace", 800, monkeypatch)


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        "server-dp/gaussian",
        "server-dp/client",
        "local-dp/laplace",
        "local-dp/gaussian",
        "value-tree",
        "coverage-counts",
        "clipped-round/sampled",
        "continual/factorised-gaussian",
    ],
)
def test_half_the_noise_is_found_elsewhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert finds_half_the_noise(name, 4_000, monkeypatch)


def test_a_lost_share_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made as if all who are in a total added their share, colluders too: the total lacks one."""
    monkeypatch.setattr(Sizes, "honest", property(lambda sizes: sizes.least))
    found = audited("distributed-dp/polya", 1_000)
    assert found.bound.epsilon > found.case.budget.epsilon


def test_a_level_that_is_not_counted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its samples, and also without any: the worlds are twice as far apart as the noise is made for."""
    monkeypatch.setattr(ScoreHistogram, "sensitivity", one_level_less)
    found = audited("server-dp/laplace", 800)
    assert found.moved == 2
    assert found.bound.epsilon > found.case.budget.epsilon


def test_a_float_sampler_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law is the same: nothing but the last bits of large numbers tells the two apart."""
    assert not audited("server-dp/low-bits", 600).violated
    monkeypatch.setattr(accounting, "draw", in_floats)
    found = audited("server-dp/low-bits", 600)
    assert found.bound.epsilon > found.case.budget.epsilon
    assert found.bound.event.score.startswith("low bits")
