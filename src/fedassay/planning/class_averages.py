"""The noise in federated averages of calibrators, with and without sampling of clients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from fedassay.planning.rehearsed_classes import ClassStudy, queries_of
from fedassay.protocol import Plan
from fedassay.summaries.multiclass.clipped_updates import ClippedUpdates
from fedassay.tasks.calibration.multiclass.choice import AVERAGED, ROUNDS, Choice
from fedassay.tasks.calibration.multiclass.fedavg import fit_fedavg


def averaged(choice: Choice, study: ClassStudy) -> tuple[Plan, float]:
    """The plan of one round, and the standard deviation of the noise in a parameter of the mean update, in clips."""
    assert choice.rounds is not None
    setting, expected = study.setting, choice.clients(study.setting)
    flow = fit_fedavg(
        choice.method,
        choice.classes,
        setting,
        rounds=choice.rounds,
        participation=choice.participation,
        expected_clients=expected,
        noisiest=math.inf,
    )
    (query,) = queries_of(next(flow))
    plan = setting.plan(query)
    if plan.noise.variance == 0:
        return plan, 0.0
    updates = cast(ClippedUpdates, query.of)
    unit = updates.read(np.zeros(updates.length, dtype=np.int64)).resolution / updates.clip
    return plan, unit * math.sqrt(plan.noise.variance) / (choice.participation * expected)


@dataclass(frozen=True, kw_only=True)
class SampledRounds:
    """Averaging with a secret coin for each client and round: the noise of a round in units of the sensitivity.

    `deviation` is that of a parameter in the mean update, in clips: sampling needs less noise, but the mean is over
    fewer clients.
    """

    participation: float
    rounds: int
    multiplier: float
    deviation: float

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "participation": self.participation,
            "rounds": self.rounds,
            "noise_multiplier": self.multiplier,
            "standard_deviation": self.deviation,
        }


def sampled_rounds(
    study: ClassStudy, *, rounds: int | None, participation: float
) -> tuple[SampledRounds, ...]:
    """The same rounds with everybody, and with clients that take part by a secret coin.

    Nothing where the coin does not count for the guarantee.
    """
    if not study.trust.clients_sample:
        return ()
    lines = []
    for rate in (1.0, participation):
        choice = Choice(
            classes=study.expectation.classes,
            method="temperature",
            solver=AVERAGED,
            rounds=rounds or ROUNDS,
            participation=rate,
            holdout=study.holdout,
        )
        plan, deviation = averaged(choice, study)
        if rate < 1 and plan.sampled == 1:
            return ()
        multiplier = plan.noise.scale / math.ceil(plan.sensitivity.l2)
        lines.append(
            SampledRounds(
                participation=rate, rounds=rounds or ROUNDS, multiplier=multiplier, deviation=deviation
            )
        )
    return tuple(lines)
