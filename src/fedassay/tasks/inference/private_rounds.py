"""Rounds under noise for whole clients: clipped gradients, Newton steps, and intervals that count the noise.

Every client is asked in every round (or decides in secret whether it takes part) and sends its mean gradient over rows
that it has not used before, shortened to a norm of C, with its derivative (`ClippedRound`). Noise of a known law is
added to the sum. The spread of what rounds say holds rows, clients and noise alike, so that the interval of the
one-step estimate (`path`) needs no further term.

* Steps are Newton steps with the mean derivative so far, shortened by t^{-a}: a budget pays for few rounds only, and
  plain steps would still be on their way. Curvature below what noise can make is not believed.
* The first quarter of the rounds finds the way and is not part of the estimate: there, far from the optimum, most
  gradients are clipped, and noise in the derivative matters.
* What is estimated is where the mean *clipped* gradient is zero. It is the optimum of the loss where few gradients
  are clipped, or clipping hits both sides alike.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import All, Cohort, Released, Sample, Setting, Step, Sum
from fedassay.summaries.regression.local_work import BY_CLIENTS, FIXED
from fedassay.summaries.regression.losses import LogLoss
from fedassay.summaries.regression.moments import Standard
from fedassay.summaries.regression.rounds import ClippedRound, ClippedSums
from fedassay.tasks.inference import online
from fedassay.tasks.inference.estimate import CoefficientEstimate, RandomScaling, StudentisedLaw, StudentT
from fedassay.tasks.inference.path import IteratePath
from fedassay.tasks.inference.sums import newton_step, times

ON_THE_WAY = 0.25
"""Part of the rounds that is not part of the estimate."""

GROWTH = 2
"""Exponent of the weights: round t weighs about t² in the mean derivative."""

FEWEST, MOST = 12, 100
"""Smallest and largest number of rounds, where nothing else decides."""

SURE = 1.0
"""Factor of what noise adds to the smallest curvature, below which the result says that it is hidden."""

HIDDEN = 0.3
"""Noise in the curvature, as a part of its typical value, above which rounds are useless: they are not begun."""

SEVERAL = 4
"""Rows of a visit from which on their mean gradient is about half as long as that of a single row."""


@dataclass(frozen=True, kw_only=True)
class PrivateCourse:
    """Settings of rounds under noise.

    Parameters
    ----------
    rounds, participation : T, and the probability with which a client takes part in one.
    clip : C; None for √p, or half of it in logistic regression where a visit has four rows or more. With fewer, that
        would clip one gradient in four, on one side more than on the other, and move estimates by several standard
        errors.
    rows_each : largest number of rows of a visit.
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
    rows_each: int = 1

    @property
    def visits(self) -> int:
        """Mean number of rounds in which a client takes part, rounded up."""
        return max(1, math.ceil(self.rounds * self.participation))

    @property
    def cohort(self) -> Cohort:
        """Clients that are asked in a round."""
        return All() if self.participation == 1 else Sample(rate=self.participation)

    def clips(self, parameters: int) -> tuple[float, float]:
        """Return the clips of gradients and of their derivatives, on the common scale: those of a row of norm √p."""
        bounded = self.model == LogLoss.name  # residuals are at most 1, curvatures at most 1/4
        half = bounded and self.rows_each >= SEVERAL
        clip = (0.5 if half else 1.0) * math.sqrt(parameters)
        return self.clip or clip, (0.25 if bounded else 1.0) * parameters

    def asked(self, standard: Standard, theta: Floats) -> ClippedRound:
        """Return the summary of a round that starts at `theta`."""
        clip, slopes_clip = self.clips(len(theta))
        return ClippedRound.of(
            standard,
            model=self.model,
            theta=tuple(theta.tolist()),
            step=1.0,
            local=FIXED,
            visits=self.visits,
            weights=BY_CLIENTS,
            seed=self.seed,
            clip=clip,
            slopes_clip=slopes_clip,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivatePath:
    """Results of the rounds: the path after the first quarter, and derivatives. Leading axes allowed.

    Parameters
    ----------
    path : of the rounds that count, each with the curvature as it was known then.
    curvature : the mean derivative of all rounds, with weights that grow like t²: where the path began, curvatures are
        others than at the optimum (five times as large, if one outcome in twenty is a one).
    doubt : the sum of the squared weights; noise of variance v in each derivative is v·`doubt` in the mean.
    slopes, products : sums over the rounds that count of H_t, with its noise, and of H_t times where round t began.
    begin : the round after which the path that counts begins.
    """

    path: IteratePath
    curvature: Floats
    slopes: Floats
    products: Floats
    doubt: float = 0.0
    rounds: int = 0
    begin: int = 1

    @classmethod
    def start(cls, theta: Floats, rounds: int) -> PrivatePath:
        """Return the path before the first of `rounds` rounds."""
        square, begin = np.zeros((*theta.shape, theta.shape[-1])), max(1, int(ON_THE_WAY * rounds))
        path = IteratePath.start(theta)
        return cls(path=path, curvature=square, slopes=square, products=np.zeros(theta.shape), begin=begin)

    def after(self, gradient: Floats, slopes: Floats, *, unsure: float, decay: float) -> PrivatePath:
        """Return the path one round further.

        Parameters
        ----------
        gradient, slopes : means over the clients of the round, with noise.
        unsure : the standard deviation of the noise in an entry of `slopes`.
        """
        t, start = self.rounds + 1, self.path.theta
        symmetric = (slopes + np.swapaxes(slopes, -1, -2)) / 2
        weight = (GROWTH + 1) / (t + GROWTH)
        curvature = self.curvature + weight * (symmetric - self.curvature)
        doubt = (1 - weight) ** 2 * self.doubt + weight**2
        theta = start - t**-decay * newton_step(curvature, gradient, unsure * math.sqrt(doubt))
        if t == self.begin:
            square, vector = np.zeros_like(curvature), np.zeros_like(theta)
            path = IteratePath.start(theta)
        else:
            square, vector = self.slopes + symmetric, self.products + times(symmetric, start)
            path = self.path.moved(theta, gradient, curvature, np.zeros_like(gradient), step=1.0)
        return replace(
            self, path=path, curvature=curvature, slopes=square, products=vector, doubt=doubt, rounds=t
        )

    @property
    def settled(self) -> IteratePath:
        """Path that counts, with the mean derivative as its Hessian.

        The term of second order (C at the top of `path`) is taken from the derivatives of single rounds: noise in them
        meets only how far rounds began from each other, which is little.
        """
        sums = self.path.sums
        bent = self.products - times(self.slopes, sums.mean(sums.starts))
        hessians = max(1, self.path.rounds) * self.curvature
        known = replace(sums, hessians=hessians, products=bent + times(self.curvature, sums.starts))
        return replace(self.path, sums=known)


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivateSeen:
    """Path, and its noise: the law, and the deviations in one round's mean gradient and in the mean derivative."""

    seen: PrivatePath
    noise: Mapping[str, Any]


def default_rounds(rows_per_client: int | None) -> int:
    """Return a quarter of the rows that a client may have, so that each visit has about four; 12 to 100.

    Examples
    --------
    >>> default_rounds(200), default_rounds(10)
    (50, 12)
    """
    return max(FEWEST, min(MOST, (rows_per_client or 4 * MOST) // 4))


def check_noise(course: PrivateCourse, standard: Standard, parameters: int, setting: Setting) -> None:
    """Refuse, before anything is spent, rounds in which noise would be all there is to see.

    Rows whose features have a variance of one have a curvature of about one in a linear model and a quarter in a
    logistic one.
    """
    if not setting.clients:  # a rehearsal: how many there are is not known yet
        return
    of = course.asked(standard, np.zeros(parameters))
    planned = setting.noise(Sum(of=of, share=1 / course.rounds, cohort=course.cohort))
    many, unit = course.participation * setting.clients, of.read(np.zeros(of.length)).units[1]
    unsure = math.sqrt(planned.variance / course.rounds) * unit / max(1.0, many) * math.sqrt(parameters)
    typical = course.clips(parameters)[1] / parameters
    if unsure > HIDDEN * typical:
        needed = math.ceil(setting.clients * unsure / (HIDDEN * typical))
        raise UsageError(
            f"epsilon: with {setting.clients:,} clients the noise of {course.rounds} rounds hides the coefficients; "
            f"expected about {needed:,} clients, or a larger epsilon, or fewer features."
        )


def run_private_rounds(
    course: PrivateCourse, standard: Standard, parameters: int, setting: Setting
) -> Generator[Step, Released[ClippedSums], PrivateSeen]:
    """Run T rounds with equal shares of the budget. Tasks `yield from` it."""
    check_noise(course, standard, parameters, setting)
    seen = PrivatePath.start(np.zeros(parameters), course.rounds)
    # The number of participants is not published where they decide in secret; on average it is this.
    many, noise = max(1.0, course.participation * setting.clients), {}
    for _ in range(course.rounds):
        of = course.asked(standard, seen.path.theta)
        released = yield Sum(of=of, share=1 / course.rounds, cohort=course.cohort)
        sums, deviation = released.value, math.sqrt(released.noise.variance) / many
        in_gradient, in_slopes = (deviation * unit for unit in sums.units)
        seen = seen.after(sums.gradient / many, sums.slopes / many, unsure=in_slopes, decay=course.decay)
        noise = {
            "law": released.noise.law,
            "gradient": in_gradient,
            "curvature": in_slopes * math.sqrt(seen.doubt),
        }
    return PrivateSeen(seen=seen, noise=noise)


def infer_private(
    seen: PrivateSeen, course: PrivateCourse, names: Sequence[str]
) -> tuple[CoefficientEstimate, str]:
    """Compute estimate and covariance on the common scale, with notes on what noise and few rows do to them.

    The one-step estimate with plug-in intervals; on request the mean of the iterates, with random scaling. Where noise
    hides the smallest curvature, plug-in intervals get very wide and still cover (91 to 98 % in five such settings),
    while those of random scaling, which know nothing of how far rounds still have to go, would cover 34 to 74 %: they
    are withheld. Both are withheld where rounds have not arrived. See docs/explanation/private-inference.md.
    """
    smallest = float(np.linalg.eigvalsh(seen.seen.curvature)[0])
    hidden = smallest <= SURE * float(seen.noise["curvature"]) * math.sqrt(len(names))
    path, notes = seen.seen.settled, []
    if hidden and not course.scaling:
        notes.append(
            "Noise hides the curvature of the loss in some direction: estimates may be far off, as their intervals "
            "say; more clients or a larger epsilon would help."
        )
    if course.rows_each < 1:
        notes.append(
            f"Clients with fewer than {course.visits} rows use them again, and intervals are then too narrow; ask for "
            "fewer rounds, or for a smaller participation."
        )
    law: StudentisedLaw
    if course.scaling:
        law, value, covariance = RandomScaling(), path.mean, path.scaling
        far = online.of_mean(value, covariance, law, path, names)
        withheld = online.HIDDEN if hidden else far
    else:
        law = StudentT(dof=float(path.freedom))
        value, covariance = path.one_step(quadratic=False), path.sandwich(path.spread)
        withheld = online.under_noise(path, names)
    found = CoefficientEstimate(
        names=tuple(names), value=value, covariance=covariance, law=law, withheld=withheld
    )
    return found, " ".join(notes)
