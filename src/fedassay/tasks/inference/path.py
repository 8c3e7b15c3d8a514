"""The path of rescaled federated averaging: all that a server keeps, O(p²) numbers, however long data stream in.

Round t moves θ by -η_t Ē g_t, where g_t is the weighted mean of what the clients of the round found (`local_work`) and
η_t = β t^{-a}. Arrays may have leading axes: a thousand replications of a simulation are one path.

**Two estimates.** The published one is the mean of all iterates, less what local steps have bent it by. It still
remembers where the path began, and where the loss is not a parabola the iterates' own fluctuation moves it: both fade
so slowly that intervals around it miss too often (logistic regression, 10 clients, 200 rounds: 85 % instead of 95 %).
But every round also says where the optimum is. With δ_t = θ_t - θ*, H the Hessian and D the third derivative there,

    E g_t = H δ_t + ½ D[δ_t, δ_t] + ..,   E H_t = H + D[δ_t] + ..,

so that with m the mean of the points where rounds began, ḡ and H̄ the means of g_t and H_t, and
C = mean(H_t θ_t) - H̄ m, whose mean is that of D[δ_t, δ_t] less D[m - θ*, m - θ*],

    one step:  m - H̄^{-1} (ḡ - ½ C) = θ* - H^{-1} mean(g_t - E g_t) + ½ H^{-1} D[m - θ*, m - θ*] + third order in δ.

How steps shrink and how far iterates fluctuate have no first or second order influence; where the path began has one
only through its mean m, by the error of a Newton step from there, which fades like 1/T². For a squared error D is 0,
and with C in place of ½ C the estimate is the least-squares fit itself, exactly.

**Restarts.** Where the loss is flat at the optimum and rounds are few, plain steps are still on their way when data
end, and third order is not small (logistic regression with coefficients of norm 3: 69 % instead of 95 % after 1,000
rounds). So after rounds 1, 2, 3, 4, 6, 8, 11, 16, .. (powers of √2), where rows since the last time suffice, the
iterate is put where a damped Newton step from these rounds leads (`guide`), and the estimate is made of the rounds from
where the path had arrived: blocks of rounds between these marks are left out, one after the other and up to a quarter
of all, until one is so near the estimate that what curvature changes on the way is small against the standard error. A
parabola has no third order, and needs none of this.

**Cost.** A round costs the server O(p²). Systems of p equations are solved only after rounds that are powers of 2^(1/4)
or √2, when the point at which rounds are compared, and the iterate, are moved.

Guide of the rounds: damped Newton steps from one block of rounds to the next, taken back where they made things worse.

Levenberg and Marquardt: from a block of rounds with mean start m, mean gradient g and mean Hessian H, the next one
starts at m - c (H + λF)^{-1} g, with F the Hessian of the first block, where nothing was saturated yet. λ falls to a
third (and not below 0.03) after each block that is not worse than the one before (by its gradient, as F measures it),
and grows tenfold after one that is, which is then begun again from where the last good block was. The block after that
is always believed: it began close to the good one and has more rounds, and if it looks worse, the good one was good by
chance. c is the part of the step that chance does not explain (the positive part, as in James and Stein, 1961): a path
that has arrived is left where it is. Leading axes are allowed everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats
from fedassay.tasks.inference.sums import Sums, arrays, outer, plain, solved, sound, times

# --- where rounds lead --------------------------------------------------------------------------------------


DAMPING, LEAST = 0.1, 0.03
WORSE = 4.0
"""Factor over the last good block's gradient, squared and measured by F, above which a block is worse: chance alone
makes less of a difference, mostly."""

LONGEST = 2.0
"""Largest length of a step, measured by F: in a logistic model log odds change by a root mean square of 4 at most."""

CHANCE = 0.5
"""Part of the effect of chance on a zero gradient that is taken off. All of it would make the way too slow where
rounds are few; nothing, and rare features are thrown far off by single rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Guide:
    """Last good block, F and λ; and whether the block after it was taken back."""

    start: Floats
    gradient: Floats
    hessian: Floats
    first: Floats
    damping: Floats
    spread: Floats
    back: NDArray[np.bool_]

    @classmethod
    def begin(cls, block: Sums, spread: Floats) -> Guide:
        """Begin with the first block, good for want of another; `spread` is that of one round's g, 0 if unknown."""
        start = block.mean(block.starts)
        return cls(
            start=start,
            gradient=block.mean(block.gradients),
            hessian=block.hessian,
            first=sound(block.hessian, part=1e-6),
            damping=np.full((*start.shape[:-1], 1), DAMPING),
            spread=block.mean(spread),
            back=np.zeros((*start.shape[:-1], 1), dtype=np.bool_),
        )

    def after(self, block: Sums, spread: Floats) -> Guide:
        """Return the guide after one more block."""
        start, gradient = block.mean(block.starts), block.mean(block.gradients)
        worse = ~self.back & (self._size(gradient) > WORSE * self._size(self.gradient))
        return Guide(
            start=np.where(worse, self.start, start),
            gradient=np.where(worse, self.gradient, gradient),
            hessian=np.where(worse[..., None], self.hessian, block.hessian),
            first=self.first,
            damping=np.where(worse, 10 * self.damping, np.maximum(LEAST, self.damping / 3)),
            spread=np.where(worse[..., None], self.spread, block.mean(spread)),
            back=worse,
        )

    def _size(self, gradient: Floats) -> Floats:
        return np.asarray((gradient * solved(self.first, gradient)).sum(axis=-1, keepdims=True))

    @property
    def target(self) -> Floats:
        """Point at which the next block starts."""
        damped = self.hessian + self.damping[..., None] * self.first
        step = solved(damped, self.gradient)
        gain = (step * self.gradient).sum(axis=-1, keepdims=True)
        by_chance = np.trace(np.linalg.solve(damped, self.spread), axis1=-1, axis2=-2)[..., None]
        step = step * np.clip(1 - CHANCE * by_chance / np.maximum(gain, 1e-300), 0.0, 1.0)
        length = np.sqrt(np.maximum(1e-300, (step * times(self.first, step)).sum(axis=-1, keepdims=True)))
        return np.asarray(self.start - step * np.minimum(1.0, LONGEST / length))

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return plain(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Guide:
        """Restore a guide from the output of `to_json`, to the last bit."""
        return cls(**arrays(cls, values, back=np.bool_))


# --- the path of rescaled federated averaging ---------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class StepSizes:
    """Step sizes η_t = β t^{-a}, with 1/2 < a < 1.

    Examples
    --------
    >>> StepSizes(first=0.2, decay=0.75).at(16)
    0.025
    """

    first: float
    decay: float

    def __post_init__(self) -> None:
        if not 0 < self.first < 1e6:
            raise UsageError(f"step: got {self.first:.3g}, expected a number above 0.")
        if not 0.5 < self.decay < 1:
            raise UsageError(
                f"decay: got {self.decay:.3g}, expected a number between 0.5 and 1: slower, and the mean of the "
                "iterates is not normal; faster, and it does not arrive."
            )

    def at(self, t: int) -> float:
        """Return the step size of round t, from 1 on."""
        return float(self.first * t**-self.decay)


_SETTLED = 3
"""Number of rounds before neighbours are compared: until then there is hardly an estimate."""

LEFT_OUT = 1 / 4
"""Part of all rounds at the beginning that the estimate may leave out."""

ARRIVED = 0.1
"""Standard errors (`Path.unsettled`) below which a block of rounds is where the estimate begins to count."""

ENOUGH_ROWS = 30

MARKS = frozenset(round(2 ** (k / 2)) for k in range(80))
COMPARISONS = frozenset(round(2 ** (k / 4)) for k in range(160))
"""Rounds after which the point at which neighbours are compared is moved to what is known by then."""


@dataclass(frozen=True, kw_only=True, eq=False)
class IteratePath:
    """Position of the iterates, and sums over the rounds so far.

    `theta` is the last iterate, `mean` the mean of all. `sums` is what the one-step estimate needs, of all rounds,
    `begin` the same as it was where the estimate begins to count, `opening` that of the block of rounds which begins
    there, once it is known, and `marks` that of restarts since which have not been judged. `arrived` says whether
    `begin` has been found. `compared_at` is the point at which neighbours are compared. `drifts` and `steps` are the
    sums of c (`local_work`) and η_t. `scaled` and `scaled_outer` are the sums of s² θ̄_s and s² θ̄_s θ̄_sᵀ over rounds s,
    which random scaling needs. `last`, `last_hessian` and `last_start` are g, H and the start of the latest round.
    """

    theta: Floats
    mean: Floats
    sums: Sums
    begin: Sums
    opening: Sums
    marks: tuple[Sums, ...] = ()
    arrived: NDArray[np.bool_]
    guide: Guide | None = None
    compared_at: Floats
    last: Floats
    last_hessian: Floats
    last_start: Floats
    drifts: Floats
    steps: float
    scaled: Floats
    scaled_outer: Floats

    @classmethod
    def start(cls, theta: Floats) -> IteratePath:
        """Return the path before the first round."""
        begin = np.array(theta, dtype=np.float64)
        zero, square = np.zeros_like(begin), np.zeros((*begin.shape, begin.shape[-1]))
        return cls(
            theta=begin,
            mean=zero,
            sums=Sums.none(begin),
            begin=Sums.none(begin),
            opening=Sums.none(begin),
            arrived=np.zeros(begin.shape[:-1], dtype=np.bool_),
            compared_at=begin,
            last=zero,
            last_hessian=square,
            last_start=zero,
            drifts=zero,
            steps=0.0,
            scaled=zero,
            scaled_outer=square,
        )

    @property
    def has_restarted(self) -> bool:
        """True if the iterate was moved after the latest round."""
        return bool(self.marks) and int(self.marks[-1].rounds.max()) == self.rounds

    @property
    def rounds(self) -> int:
        """Number of rounds so far."""
        return int(self.sums.rounds.max())

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return int(self.theta.shape[-1])

    def after(
        self,
        gradient: Floats,
        hessian: Floats,
        drift: Floats,
        *,
        step: float,
        mean_steps: float | Floats,
        compare: bool = True,
        restarts: bool = False,
    ) -> IteratePath:
        """Return the path one round further.

        Parameters
        ----------
        gradient, hessian, drift : weighted means over the clients of the round.
        step, mean_steps : η_t and Ē.
        compare : whether there has been enough (rows of at least twice the parameters, say) for an estimate at which
            this round can be compared with the one before. While a fit goes through every row it is none.
        restarts : whether the iterate is moved where rounds have led to, if this is a round for it. Only if there have
            been rows enough since the last time for a Newton step (`ENOUGH_ROWS` for each parameter): few rows of a
            logistic regression can be separated, and lead anywhere.
        """
        theta = self.theta - step * mean_steps * gradient
        there = self.moved(theta, gradient + step * drift, hessian, drift, step=step, compare=compare)
        return there.restarted() if restarts and there.rounds in MARKS else there

    def moved(
        self,
        theta: Floats,
        straight: Floats,
        hessian: Floats,
        drift: Floats,
        *,
        step: float,
        compare: bool = True,
    ) -> IteratePath:
        """Return the path one round further, at this iterate; `straight` is the gradient where the round began."""
        t = self.rounds + 1
        mean = self.mean + (theta - self.mean) / t
        compared = compare and self.rounds >= _SETTLED
        change = self._change(straight, hessian) if compared else None
        there = replace(
            self,
            theta=theta,
            mean=mean,
            sums=self.sums.and_round(self.theta, straight, hessian, change),
            last=straight,
            last_hessian=hessian,
            last_start=self.theta,
            drifts=self.drifts + drift,
            steps=self.steps + step,
            scaled=self.scaled + t**2 * mean,
            scaled_outer=self.scaled_outer + t**2 * outer(mean),
        )
        return replace(there, compared_at=there.window.so_far) if t in COMPARISONS else there

    def _change(self, straight: Floats, hessian: Floats) -> Floats:
        """Return how much this round's g differs from the last one's, both where the estimate was a little ago."""
        at = self.compared_at
        here = straight - times(hessian, self.theta - at)
        return np.asarray(here - self.last + times(self.last_hessian, self.last_start - at))

    def restarted(self) -> IteratePath:
        """Return the path with the iterate where the rounds since the last restart lead."""
        block = self.sums.since(self.marks[-1]) if self.marks else self.window
        spread = self.spread  # 0 as long as no rounds have been compared
        guide = Guide.begin(block, spread) if self.guide is None else self.guide.after(block, spread)
        judged = self._judged()
        return replace(judged, theta=guide.target, guide=guide, marks=(*judged.marks, self.sums))

    def _judged(self) -> IteratePath:
        """Return the path without blocks in the first quarter that are far from what the rounds after them say."""
        path = self
        while path.marks and int(path.marks[0].rounds.max()) <= LEFT_OUT * self.rounds:
            mark, later = path.marks[0], path.marks[1:]
            block = mark.since(path.begin)
            near = ~path.arrived & (_third_order(block, self.sums.since(mark)) <= ARRIVED)
            arrived = path.arrived | near
            path = replace(
                path,
                begin=path.begin.or_where(mark, ~arrived),
                opening=path.opening.or_where(block, near),
                marks=later,
                arrived=arrived,
            )
        return path

    # --- what follows from it -------------------------------------------------------------------------------------

    @property
    def window(self) -> Sums:
        """Sums over the rounds that the estimate is made of."""
        return self.sums.since(self.begin)

    @property
    def hessian(self) -> Floats:
        """Hessian H: the mean over the rounds that count."""
        return self.window.hessian

    @property
    def averaged(self) -> Floats:
        """Published estimate: the mean of the iterates, less η̄ H^{-1} c, by which local steps have moved it."""
        if not self.drifts.any():
            return self.mean
        eta, drift = self.steps / self.rounds, self.drifts / self.rounds
        return np.asarray(self.mean - eta * solved(self.hessian, drift))

    def one_step(self, *, quadratic: bool) -> Floats:
        """Compute the estimate from where rounds began and what they said; see the top of this file.

        Parameters
        ----------
        quadratic : whether the loss is a parabola; then it is the least-squares fit to the rows that count, weighted
            alike.
        """
        return self.window.one_step(quadratic=quadratic)

    @property
    def compared(self) -> int:
        """Number of pairs of neighbouring rounds that `spread` rests on."""
        return int(self.window.compared.min())

    @property
    def unsettled(self) -> Floats:
        """Standard errors by which the path may still have been on its way where its window begins, or all the time.

        The larger of what the first block of the window may do (`_third_order`), and of the cube of the distance from
        the mean start of all its rounds to the estimate: that far, curvature may be another than where rounds were.
        """
        window = self.window
        first = (self.marks[0] if self.marks else self.sums).since(self.begin)
        opening = _third_order(self.opening.or_where(first, ~self.arrived), window)
        away = window.mean(window.starts) - window.about
        cube = (away * times(window.sound, away)).sum(axis=-1) ** 1.5
        return np.asarray(np.maximum(opening, cube / _mean_error(window)))

    @property
    def spread(self) -> Floats:
        """Covariance V of one round's g at the optimum, from what neighbouring rounds differ by.

        How far iterates are from the optimum is not in it (for a parabola; to first order otherwise), and neither is a
        slow change of what clients send.
        """
        return self.window.spread

    @property
    def freedom(self) -> Floats:
        """Degrees of freedom of `spread`: neighbours' differences know two thirds of as many independent rounds."""
        n = np.maximum(2, self.window.compared + 1)
        return np.asarray(2 * (n - 1) ** 2 / (3 * n - 4))

    def sandwich(self, spread: Floats) -> Floats:
        """Return H^{-1} V H^{-1}/T: the covariance of the estimate, for this V."""
        return _sandwich(self.window, self.hessian, spread)

    @property
    def scaling(self) -> Floats:
        """Divisor of random scaling: (1/T³) Σ_s s² (θ̄_s - θ̄_T)(θ̄_s - θ̄_T)ᵀ."""
        t = max(1, self.rounds)
        squares = t * (t + 1) * (2 * t + 1) / 6
        cross = self.scaled[..., :, None] * self.mean[..., None, :]
        total = self.scaled_outer - cross - np.swapaxes(cross, -1, -2) + squares * outer(self.mean)
        return np.asarray(total / t**3)

    # --- to keep ------------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return the path as plain values."""
        return {
            **{name: getattr(self, name).tolist() for name in (*_ARRAYS, "arrived")},
            **{name: getattr(self, name).to_json() for name in _SUMS},
            "steps": self.steps,
            "marks": [mark.to_json() for mark in self.marks],
            "guide": None if self.guide is None else self.guide.to_json(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> IteratePath:
        """Restore a path from the output of `to_json`, to the last bit."""
        arrays: dict[str, Any] = {name: np.array(values[name], dtype=np.float64) for name in _ARRAYS}
        sums: dict[str, Any] = {name: Sums.from_json(values[name]) for name in _SUMS}
        return cls(
            **arrays,
            **sums,
            arrived=np.array(values["arrived"], dtype=np.bool_),
            steps=float(values["steps"]),
            marks=tuple(Sums.from_json(mark) for mark in values["marks"]),
            guide=None if values["guide"] is None else Guide.from_json(values["guide"]),
        )


_SUMS = ("sums", "begin", "opening")
_OTHERS = (*_SUMS, "marks", "guide", "steps", "arrived")
_ARRAYS = tuple(field.name for field in fields(IteratePath) if field.name not in _OTHERS)


def _sandwich(rounds: Sums, hessian: Floats, spread: Floats) -> Floats:
    """Return H^{-1} V H^{-1}/T."""
    half = np.linalg.solve(hessian, spread)
    both = np.linalg.solve(hessian, np.swapaxes(half, -1, -2))
    return rounds.mean((both + np.swapaxes(both, -1, -2)) / 2)


def _third_order(block: Sums, rounds: Sums) -> Floats:
    """Bound how far a block may move the estimate from these rounds beyond second order, in standard errors.

    With the gradient and the curvature of a block, and the curvature at the estimate a distance δ away, the gradient
    there is known by the trapezoidal rule. If curvature changes in one direction on the way, the rule is off by at most
    half of the change times δ, which counts for the block's part of the rounds. Lengths are measured by curvature, and
    compared with the mean standard error in that measure.
    """
    hessian, away = rounds.sound, block.mean(block.starts) - rounds.about
    bent = times(block.hessian - hessian, away) / 2
    length = np.sqrt(np.maximum(0.0, (bent * solved(hessian, bent)).sum(axis=-1)))
    return np.asarray(block.rounds / np.maximum(1, rounds.rounds) * length / _mean_error(rounds))


def _mean_error(rounds: Sums) -> Floats:
    """Return the standard error of a coefficient, root mean square, with curvature as the measure of length."""
    hessian = rounds.sound
    square = np.einsum("...ij,...ji->...", hessian, _sandwich(rounds, hessian, rounds.spread))
    return np.asarray(np.sqrt(np.maximum(square / hessian.shape[-1], 1e-300)))
