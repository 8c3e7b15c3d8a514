"""Counts over time with noise of one's own, to see where each draw goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedassay.privacy.continual_noise import ContinualMechanism, PathMechanism
from fedassay.protocol.vocabulary import Budget, Message

PURE = Budget(epsilon=1.0)


def build(
    kind: type[ContinualMechanism], horizon: int, budget: Budget = PURE, unit_events: int = 1, **more: int
) -> Any:
    return kind(horizon=horizon, budget=budget, unit_events=unit_events, **more)


def run(mechanism: ContinualMechanism, counts: list[int], draws: list[int]) -> tuple[np.ndarray, list[int]]:
    """The totals with these draws in turn, and the step at which each was asked for."""
    rest, asked, totals, state = list(draws), [], [], mechanism.start()
    for step, count in enumerate(counts, start=1):

        def draw(size: int, step: int = step) -> list[int]:
            asked.extend([step] * size)
            return [rest.pop(0) if rest else 0 for _ in range(size)]

        total, state = mechanism.advance(step, state, count, draw)
        totals.append(total)
    return np.array(totals), asked


def response(mechanism: ContinualMechanism) -> np.ndarray:
    """M: what a draw of one adds to each total."""
    nothing = [0] * mechanism.horizon
    draws = len(run(mechanism, nothing, [])[1])
    return np.stack([run(mechanism, nothing, one)[0] for one in np.eye(draws, dtype=int).tolist()], axis=1)


class NewNoiseEachStep(PathMechanism):
    """Wrong: every total gets draws of its own, so that one event shows in all of them."""

    def advance(
        self, step: int, state: Message, count: int, draw: Callable[[int], list[int]]
    ) -> tuple[float, Message]:
        total, noise = state["total"] + count, draw(len(state["noise"]))
        return float(total + sum(noise)), {"total": total, "noise": noise}
