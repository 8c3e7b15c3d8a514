"""The critical values of random scaling, against paths of a Brownian motion that are drawn step by step."""

from __future__ import annotations

import numpy as np

from fedassay.tasks.inference.estimate import RandomScaling

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
PATHS, STEPS = 60_000, 250

# Five levels are compared, both ways: at 5 standard errors the chance of a false alarm is 5 · 5.7e-7 < 3e-6. Steps
# change the integral's mean by a part of 1/STEPS², far below the Monte-Carlo error.
MOST = 5.0


def ratios(seed: int) -> np.ndarray:
    rng, found = np.random.default_rng(seed), []
    r = np.arange(1, STEPS + 1) / STEPS
    for _ in range(20):
        walk = rng.standard_normal((PATHS // 20, STEPS)).cumsum(axis=1) / np.sqrt(STEPS)
        bridge = walk - r * walk[:, -1:]
        found.append(np.abs(walk[:, -1]) / np.sqrt((bridge**2).mean(axis=1)))
    return np.concatenate(found)


def scores(critical: dict[float, float], drawn: np.ndarray) -> dict[float, float]:
    """How many standard errors the part of paths beyond each critical value is off."""
    return {
        level: abs((drawn > c).mean() - (1 - level)) / np.sqrt(level * (1 - level) / len(drawn))
        for level, c in critical.items()
    }


def test_levels_are_kept_and_a_wrong_law_is_noticed() -> None:
    law, drawn = RandomScaling(), ratios(11)
    right = {level: law.critical(level) for level in LEVELS}
    assert max(scores(right, drawn).values()) < MOST
    # Each level for itself notices critical values that are 7 percent too large.
    wrong = {level: 1.07 * c for level, c in right.items()}
    assert min(scores(wrong, drawn).values()) > MOST
