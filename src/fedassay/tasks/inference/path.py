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
iterate is put where a damped Newton step from these rounds leads (`guide`), and the estimate is made of the rounds
since the latest of these marks that leaves out no more than a quarter of all. A parabola has no third order, and needs
none of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import UsageError
from fedassay.tasks.inference.guide import Guide
from fedassay.tasks.inference.sums import Sums, outer, solved, times

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class StepSizes:
    """η_t = β t^{-a}, with 1/2 < a < 1.

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
        """Of round t, from 1 on."""
        return float(self.first * t**-self.decay)


_SETTLED = 3
"""So many rounds are waited for before neighbours are compared: until then there is hardly an estimate."""

FAR = 0.05
"""Of a squared distance between the estimate and where its rounds began, as the first block measures length."""

LEFT_OUT = 1 / 4
"""The part of all rounds at the beginning that the estimate may leave out."""

ENOUGH_ROWS = 30

MARKS = frozenset(round(2 ** (k / 2)) for k in range(80))


@dataclass(frozen=True, kw_only=True, eq=False)
class Path:
    """Where the iterates are, and sums over the rounds so far.

    `theta` is the last iterate, `mean` the mean of all. `sums` is what the one-step estimate needs, of all rounds, and
    `marks` the same as it was at the latest restarts. `drifts` and `steps` are the sums of c (`local_work`) and η_t.
    `scaled` and `scaled_outer` are the sums of s² θ̄_s and s² θ̄_s θ̄_sᵀ over rounds s, which random scaling needs.
    `last`, `last_hessian` and `last_start` are g, H and the start of the latest round.
    """

    theta: Floats
    mean: Floats
    sums: Sums
    marks: tuple[Sums, ...] = ()
    guide: Guide | None = None
    last: Floats
    last_hessian: Floats
    last_start: Floats
    drifts: Floats
    steps: float
    scaled: Floats
    scaled_outer: Floats

    @classmethod
    def start(cls, theta: Floats) -> Path:
        """Before the first round."""
        begin = np.array(theta, dtype=np.float64)
        zero, square = np.zeros_like(begin), np.zeros((*begin.shape, begin.shape[-1]))
        return cls(
            theta=begin,
            mean=zero,
            sums=Sums.none(begin),
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
        """Whether the iterate was moved after the latest round."""
        return bool(self.marks) and self.marks[-1].rounds == self.rounds

    @property
    def rounds(self) -> int:
        """How many there have been."""
        return self.sums.rounds

    @property
    def parameters(self) -> int:
        """How many there are."""
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
    ) -> Path:
        """One round further.

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
    ) -> Path:
        """One round further, to this iterate; `straight` is the gradient where the round began."""
        t = self.rounds + 1
        mean = self.mean + (theta - self.mean) / t
        compared = compare and self.rounds >= _SETTLED
        change = self._change(straight, hessian) if compared else None
        return Path(
            theta=theta,
            mean=mean,
            sums=self.sums.and_round(self.theta, straight, hessian, change),
            marks=self.marks,
            guide=self.guide,
            last=straight,
            last_hessian=hessian,
            last_start=self.theta,
            drifts=self.drifts + drift,
            steps=self.steps + step,
            scaled=self.scaled + t**2 * mean,
            scaled_outer=self.scaled_outer + t**2 * outer(mean),
        )

    def _change(self, straight: Floats, hessian: Floats) -> Floats:
        """By how much this round's g differs from the last one's, with both where the estimate is."""
        at = self.window.so_far
        here = straight - times(hessian, self.theta - at)
        return np.asarray(here - self.last + times(self.last_hessian, self.last_start - at))

    def restarted(self) -> Path:
        """With the iterate where the rounds since the last restart lead."""
        block = self.sums.since(self.marks[-1]) if self.marks else self.sums
        spread = self.spread  # 0 as long as no rounds have been compared
        guide = Guide.begin(block, spread) if self.guide is None else self.guide.after(block, spread)
        # Marks that could still be of use: rounds only become more, so that the window begins later and later.
        useful = [mark for mark in self.marks if mark.rounds > LEFT_OUT * self.rounds]
        older = [mark for mark in self.marks if mark.rounds <= LEFT_OUT * self.rounds]
        return replace(self, theta=guide.target, guide=guide, marks=(*older[-1:], *useful, self.sums))

    # --- what follows from it -------------------------------------------------------------------------------------

    @property
    def window(self) -> Sums:
        """Of the rounds that the estimate is made of."""
        old = [mark for mark in self.marks if mark.rounds <= LEFT_OUT * self.rounds]
        return self.sums.since(old[-1]) if old else self.sums

    @property
    def hessian(self) -> Floats:
        """H: the mean over the rounds that count."""
        return self.window.hessian

    @property
    def averaged(self) -> Floats:
        """The published estimate: the mean of the iterates, less η̄ H^{-1} c, by which local steps have moved it."""
        if not self.drifts.any():
            return self.mean
        eta, drift = self.steps / self.rounds, self.drifts / self.rounds
        return np.asarray(self.mean - eta * solved(self.hessian, drift))

    def one_step(self, *, quadratic: bool) -> Floats:
        """The estimate from where rounds began and what they said, see the top of this file.

        Parameters
        ----------
        quadratic : whether the loss is a parabola; then it is the least-squares fit to the rows that count, weighted
            alike.
        """
        return self.window.one_step(quadratic=quadratic)

    @property
    def compared(self) -> int:
        """How many pairs of neighbouring rounds `spread` rests on."""
        return self.window.compared

    def unsettled(self, *, quadratic: bool) -> Floats:
        """How far the path may still have been on its way where its window begins, in standard errors of the estimate.

        Third order terms of the first block: its part of the rounds, times the cube of its distance from the estimate
        (with curvature as the measure of length), over the mean standard error in that measure. Above one also if the
        estimate is far from where its rounds began.
        """
        window, estimate = self.window, self.one_step(quadratic=quadratic)
        old = [mark for mark in self.marks if mark.rounds <= LEFT_OUT * self.rounds]
        later = [mark for mark in self.marks if mark.rounds > LEFT_OUT * self.rounds]
        block = (later[0] if later else self.sums).since(old[-1]) if old else (later or [self.sums])[0]
        away = block.starts / max(1, block.rounds) - estimate
        length = np.sqrt(np.maximum(0.0, (away * times(window.hessian, away)).sum(axis=-1)))
        error = np.einsum("...ij,...ji->...", window.hessian, self.sandwich(self.spread)) / self.parameters
        return np.asarray(
            block.rounds / max(1, window.rounds) * length**3 / np.sqrt(np.maximum(error, 1e-300))
        )

    @property
    def spread(self) -> Floats:
        """V: the covariance of one round's g at the optimum, from what neighbouring rounds differ by.

        How far iterates are from the optimum is not in it (for a parabola; to first order otherwise), and neither is a
        slow change of what clients send.
        """
        window = self.window
        return np.asarray(window.changes / (2 * max(1, window.compared)))

    @property
    def freedom(self) -> float:
        """Of `spread`: differences of neighbours know two thirds of what as many independent rounds would."""
        n = max(2, self.compared + 1)
        return 2 * (n - 1) ** 2 / (3 * n - 4)

    def sandwich(self, spread: Floats) -> Floats:
        """H^{-1} V H^{-1}/T: the covariance of the estimate, for this V."""
        window = self.window
        half = np.linalg.solve(window.hessian, spread)
        both = np.linalg.solve(window.hessian, np.swapaxes(half, -1, -2))
        return np.asarray((both + np.swapaxes(both, -1, -2)) / (2 * max(1, window.rounds)))

    @property
    def scaling(self) -> Floats:
        """What random scaling divides by: (1/T³) Σ_s s² (θ̄_s - θ̄_T)(θ̄_s - θ̄_T)ᵀ."""
        t = max(1, self.rounds)
        squares = t * (t + 1) * (2 * t + 1) / 6
        cross = self.scaled[..., :, None] * self.mean[..., None, :]
        total = self.scaled_outer - cross - np.swapaxes(cross, -1, -2) + squares * outer(self.mean)
        return np.asarray(total / t**3)

    # --- to keep ------------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        arrays = {name: getattr(self, name).tolist() for name in _ARRAYS}
        marks = [mark.to_json() for mark in self.marks]
        guide = None if self.guide is None else self.guide.to_json()
        return {
            **arrays,
            "steps": self.steps,
            "sums": self.sums.to_json(),
            "marks": marks,
            "guide": guide,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Path:
        """What `to_json` was made from, to the last bit."""
        arrays = {name: np.array(values[name], dtype=np.float64) for name in _ARRAYS}
        marks = tuple(Sums.from_json(mark) for mark in values["marks"])
        guide = None if values["guide"] is None else Guide.from_json(values["guide"])
        return cls(
            sums=Sums.from_json(values["sums"]),
            marks=marks,
            guide=guide,
            steps=float(values["steps"]),
            **arrays,
        )


_ARRAYS = tuple(field.name for field in fields(Path) if field.name not in ("sums", "marks", "guide", "steps"))
