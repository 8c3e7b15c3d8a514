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
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import UsageError

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Path:
    """Where the iterates are, and sums over the rounds so far.

    `theta` is the last iterate, `mean` the mean of all. Sums over rounds: `starts` of the points where they began,
    `gradients` of g (with what local steps bent added back), `hessians` of H, `products` of H times the start,
    `drifts` of c (`local_work`), `steps` of η_t. `scaled` and `scaled_outer` are the sums of s² θ̄_s and s² θ̄_s θ̄_sᵀ
    over rounds s, which random scaling needs. `changes` is the sum of d dᵀ over `compared` pairs of neighbouring
    rounds, d being the difference of their g, both moved to the estimate so far: g_t - H_t (θ_t - estimate). `last`,
    `last_hessian` and `last_start` are those of the latest round.
    """

    rounds: int
    theta: Floats
    mean: Floats
    starts: Floats
    gradients: Floats
    changes: Floats
    compared: int
    last: Floats
    last_hessian: Floats
    last_start: Floats
    hessians: Floats
    products: Floats
    drifts: Floats
    steps: float
    scaled: Floats
    scaled_outer: Floats

    @classmethod
    def start(cls, theta: Floats) -> Path:
        """Before the first round."""
        begin = np.array(theta, dtype=np.float64)
        zero, square = np.zeros_like(begin), np.zeros((*begin.shape, begin.shape[-1]))
        vectors = ("mean", "starts", "gradients", "last", "last_start", "products", "drifts", "scaled")
        matrices = ("changes", "hessians", "last_hessian", "scaled_outer")
        sums: dict[str, Any] = {**dict.fromkeys(vectors, zero), **dict.fromkeys(matrices, square)}
        return cls(rounds=0, theta=begin, compared=0, steps=0.0, **sums)

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
    ) -> Path:
        """One round further.

        Parameters
        ----------
        gradient, hessian, drift : weighted means over the clients of the round.
        step, mean_steps : η_t and Ē.
        compare : whether there has been enough (rows of at least twice the parameters, say) for an estimate at which
            this round can be compared with the one before. While a fit goes through every row it is none.
        """
        theta = self.theta - step * mean_steps * gradient
        return self.moved(theta, gradient + step * drift, hessian, drift, step=step, compare=compare)

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
        return Path(
            rounds=t,
            theta=theta,
            mean=mean,
            starts=self.starts + self.theta,
            gradients=self.gradients + straight,
            changes=self.changes + (_outer(self._change(straight, hessian)) if compared else 0.0),
            compared=self.compared + compared,
            last=straight,
            last_hessian=hessian,
            last_start=self.theta,
            hessians=self.hessians + hessian,
            products=self.products + _times(hessian, self.theta),
            drifts=self.drifts + drift,
            steps=self.steps + step,
            scaled=self.scaled + t**2 * mean,
            scaled_outer=self.scaled_outer + t**2 * _outer(mean),
        )

    def _change(self, straight: Floats, hessian: Floats) -> Floats:
        """By how much this round's g differs from the last one's, with both where the estimate is."""
        at = self._so_far
        here = straight - _times(hessian, self.theta - at)
        return np.asarray(here - self.last + _times(self.last_hessian, self.last_start - at))

    @property
    def _so_far(self) -> Floats:
        """The estimate, roughly; where rounds have said nothing yet, where they began."""
        h = self.hessian
        ridge = 1e-9 * np.trace(h, axis1=-1, axis2=-2)[..., None, None] * np.eye(self.parameters)
        sound = h + np.where(ridge > 0, ridge, np.eye(self.parameters))
        together = self.products - _times(h, self.starts)
        return np.asarray((self.starts - _solved(sound, self.gradients - together)) / self.rounds)

    # --- what follows from it -------------------------------------------------------------------------------------

    @property
    def hessian(self) -> Floats:
        """H: the mean over rounds."""
        return np.asarray(self.hessians / max(1, self.rounds))

    @property
    def averaged(self) -> Floats:
        """The published estimate: the mean of the iterates, less η̄ H^{-1} c, by which local steps have moved it."""
        if not self.drifts.any():
            return self.mean
        eta, drift = self.steps / self.rounds, self.drifts / self.rounds
        return np.asarray(self.mean - eta * _solved(self.hessian, drift))

    def one_step(self, *, quadratic: bool) -> Floats:
        """The estimate from where rounds began and what they said, see the top of this file.

        Parameters
        ----------
        quadratic : whether the loss is a parabola; then it is the least-squares fit to all rows used, weighted alike.
        """
        t, h = max(1, self.rounds), self.hessian
        begun = self.starts / t
        together = self.products / t - _times(h, begun)
        return np.asarray(begun - _solved(h, self.gradients / t - (1.0 if quadratic else 0.5) * together))

    @property
    def spread(self) -> Floats:
        """V: the covariance of one round's g at the optimum, from what neighbouring rounds differ by.

        How far iterates are from the optimum is not in it (for a parabola; to first order otherwise), and neither is a
        slow change of what clients send.
        """
        return np.asarray(self.changes / (2 * max(1, self.compared)))

    @property
    def freedom(self) -> float:
        """Of `spread`: differences of neighbours know two thirds of what as many independent rounds would."""
        n = max(2, self.compared + 1)
        return 2 * (n - 1) ** 2 / (3 * n - 4)

    def sandwich(self, spread: Floats) -> Floats:
        """H^{-1} V H^{-1}/T: the covariance of the estimate, for this V."""
        half = np.linalg.solve(self.hessian, spread)
        both = np.linalg.solve(self.hessian, np.swapaxes(half, -1, -2))
        return np.asarray((both + np.swapaxes(both, -1, -2)) / (2 * max(1, self.rounds)))

    @property
    def scaling(self) -> Floats:
        """What random scaling divides by: (1/T³) Σ_s s² (θ̄_s - θ̄_T)(θ̄_s - θ̄_T)ᵀ."""
        t = max(1, self.rounds)
        squares = t * (t + 1) * (2 * t + 1) / 6
        cross = self.scaled[..., :, None] * self.mean[..., None, :]
        total = self.scaled_outer - cross - np.swapaxes(cross, -1, -2) + squares * _outer(self.mean)
        return np.asarray(total / t**3)

    # --- to keep ------------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Path:
        """What `to_json` was made from, to the last bit."""
        kept = {
            field.name: np.array(values[field.name], dtype=np.float64)
            for field in fields(cls)
            if field.name not in ("rounds", "compared", "steps")
        }
        rounds, compared = int(values["rounds"]), int(values["compared"])
        return cls(rounds=rounds, compared=compared, steps=float(values["steps"]), **kept)


def _outer(vector: Floats) -> Floats:
    return np.asarray(vector[..., :, None] * vector[..., None, :])


def _times(matrix: Floats, vector: Floats) -> Floats:
    return np.asarray((matrix @ vector[..., None])[..., 0])


def _solved(matrix: Floats, vector: Floats) -> Floats:
    return np.asarray(np.linalg.solve(matrix, vector[..., None])[..., 0])
