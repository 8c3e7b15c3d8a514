"""Rounds under noise for whole clients: clipped gradients, Newton steps, and intervals that count the noise.

Every client is asked in every round (or decides in secret whether it takes part) and sends its mean gradient over rows
that it has not used before, shortened to a norm of C, with its derivative (`ClippedRound`). Noise of a known law is
added to the sum. The spread of what rounds say holds rows, clients and noise alike, so that the interval of the
one-step estimate (`path`) needs no further term.

* Steps are Newton steps with the derivative so far, shortened by t^{-a}: a budget pays for few rounds only, and plain
  steps would still be on their way. Curvature below what noise can make is not believed.
* The first quarter of the rounds finds the way and is not part of the estimate: there, far from the optimum, most
  gradients are clipped, and noise in the derivative matters.
* What is estimated is where the mean *clipped* gradient is zero. It is the optimum of the loss where few gradients
  are clipped, or clipping hits both sides alike.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.protocol import All, Released, Sample, Setting, Step, Sum
from fedassay.summaries.regression.clipped_round import ClippedRound, ClippedSums
from fedassay.summaries.regression.local_work import FIXED
from fedassay.summaries.regression.losses import LogLoss
from fedassay.summaries.regression.rounds import BY_CLIENTS
from fedassay.summaries.regression.standard import Standard
from fedassay.tasks.inference.estimate import Estimate
from fedassay.tasks.inference.laws import RandomScaling, StudentT
from fedassay.tasks.inference.path import Path

Floats = NDArray[np.float64]

ON_THE_WAY = 0.25
"""The part of the rounds that is not part of the estimate."""

FEWEST, MOST = 12, 100
"""Rounds, where nothing else decides."""

LONGEST = 2.0
"""No Newton step is longer, on the common scale."""

FLAT = 0.1
"""Curvature below this part of the mean over directions is taken to be this."""

SURE = 3.0
"""The smallest curvature must be above so many standard deviations of what noise adds to it, for plug-in intervals."""


@dataclass(frozen=True, kw_only=True)
class PrivateCourse:
    """How rounds are run under noise.

    Parameters
    ----------
    rounds, participation : T, and the probability with which a client takes part in one.
    clip : C; None for √p, or half of it in logistic regression, whose residuals are at most one.
    decay : a, of the steps t^{-a}.
    seed : of the order of rows at clients.
    scaling : whether intervals are those of random scaling.
    """

    model: str
    rounds: int
    participation: float = 1.0
    clip: float | None = None
    decay: float = 0.505
    seed: int | None = 0
    scaling: bool = False

    def clips(self, parameters: int) -> tuple[float, float]:
        """Of gradients and of their derivatives, on the common scale: what a row of norm √p has."""
        of_residual, of_curvature = (0.5, 0.25) if self.model == LogLoss.name else (1.0, 1.0)
        return self.clip or of_residual * math.sqrt(parameters), of_curvature * parameters

    def asked(self, standard: Standard, theta: Floats) -> ClippedRound:
        """One round that starts there."""
        clip, slopes_clip = self.clips(len(theta))
        visits = math.ceil(self.rounds * self.participation)
        return ClippedRound.of(
            standard,
            model=self.model,
            theta=tuple(theta.tolist()),
            step=1.0,
            local=FIXED,
            visits=max(1, visits),
            weights=BY_CLIENTS,
            seed=self.seed,
            clip=clip,
            slopes_clip=slopes_clip,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivateSeen:
    """What rounds have shown: the path after the first quarter, the mean derivative of all, the noise in both.

    `noise` has the law, and the standard deviations in one round's mean gradient and in the mean derivative.
    """

    path: Path
    curvature: Floats
    rounds: int
    noise: dict[str, Any] = field(default_factory=dict)


def default_rounds(rows_per_client: int | None) -> int:
    """A quarter of the rows that a client may have, so that each visit has about four; 12 to 100.

    Examples
    --------
    >>> default_rounds(200), default_rounds(10)
    (50, 12)
    """
    return max(FEWEST, min(MOST, (rows_per_client or 4 * MOST) // 4))


def run_private_rounds(
    course: PrivateCourse, standard: Standard, parameters: int, setting: Setting
) -> Generator[Step, Released[ClippedSums], PrivateSeen]:
    """T rounds with equal shares of the budget. Tasks `yield from` it."""
    path = Path.start(np.zeros(parameters))
    total, curvature = np.zeros((parameters, parameters)), np.zeros((parameters, parameters))
    cohort = All() if course.participation == 1 else Sample(rate=course.participation)
    # How many took part is not published where they decide in secret; on average it is this.
    many = max(1.0, course.participation * setting.clients)
    begin, described = max(1, int(ON_THE_WAY * course.rounds)), {}
    for t in range(1, course.rounds + 1):
        of = course.asked(standard, path.theta)
        released = yield Sum(of=of, share=1 / course.rounds, cohort=cohort)
        sums, deviation = released.value, math.sqrt(released.noise.variance) / many
        assert sums.slopes is not None
        total = total + (sums.slopes + sums.slopes.T) / (2 * many)
        curvature, unsure = total / t, deviation * sums.units[1] / math.sqrt(t)
        gradient = sums.gradient / many
        theta = path.theta - t**-course.decay * _newton(curvature, gradient, unsure)
        path = path.moved(theta, gradient, curvature, np.zeros(parameters), step=1.0)
        if t == begin:
            path = Path.start(theta)
        described = {
            "law": released.noise.law,
            "gradient": deviation * sums.units[0],
            "curvature": unsure,
        }
    # The mean derivative of all rounds, in place of the sum of what was known in each.
    n = path.rounds
    path = replace(path, hessians=n * curvature, products=curvature @ path.starts)
    return PrivateSeen(path=path, curvature=curvature, rounds=course.rounds, noise=described)


def _newton(curvature: Floats, gradient: Floats, unsure: float) -> Floats:
    """The step, with directions of little curvature taken for less flat than they look, and not too long."""
    values, vectors = np.linalg.eigh(curvature)
    least = max(FLAT * float(np.abs(values).mean()), 2 * unsure * math.sqrt(len(values)), 1e-6)
    step = vectors @ ((vectors.T @ gradient) / np.maximum(values, least))
    return np.asarray(step * min(1.0, LONGEST / max(1e-300, float(np.linalg.norm(step)))))


def infer_private(seen: PrivateSeen, course: PrivateCourse, names: Sequence[str]) -> tuple[Estimate, str]:
    """Estimate and covariance on the common scale, and a note where random scaling has to step in.

    With plug-in intervals the estimate is the one-step estimate; where noise hides the smallest curvature, or on
    request, it is the mean of the iterates, with random scaling.
    """
    smallest = float(np.linalg.eigvalsh(seen.curvature)[0])
    hidden = smallest <= SURE * float(seen.noise["curvature"]) * math.sqrt(len(names))
    path = seen.path
    if course.scaling or hidden:
        note = (
            "Noise hides the curvature of the loss: estimates are means of the rounds with intervals by random "
            "scaling, which are too narrow for few rounds; more clients or a larger epsilon would help."
        )
        found = Estimate(names=tuple(names), value=path.mean, covariance=path.scaling, law=RandomScaling())
        return found, "" if course.scaling else note
    return (
        Estimate(
            names=tuple(names),
            value=path.one_step(quadratic=False),
            covariance=path.sandwich(path.spread),
            law=StudentT(dof=path.freedom),
        ),
        "",
    )
