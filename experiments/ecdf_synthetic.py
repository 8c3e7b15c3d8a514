"""Figures 2 to 4: smoothing, and the inverse, on the paper's synthetic data (Poisson many rows at each point)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments import bands, plots
from experiments.bands import Axis, Drawing, Frame, Spot
from experiments.common import generator
from experiments.ecdf_mechanisms import ADD, MECHANISMS, PUBLISHED, REPLACE, STYLES, Floats, Mechanism
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Neighbours
from fedassay.tasks.distribution.smoothing.curves import isotonic, l1, l2

ISOTONIC, L1, L2 = "isotonic", "l1 (p = 1)", "l2 (p = 2)"
SMOOTHINGS: Mapping[str, Callable[..., Floats]] = {L1: l1, L2: l2, ISOTONIC: isotonic}
SMOOTHING_STYLES = {
    L1: plots.PUBLISHED_STYLE,
    L2: plots.SECOND_PUBLISHED_STYLE,
    ISOTONIC: plots.DEFAULT_STYLE,
}
LEVELS = (np.arange(1000) + 0.5) / 1000
"""The quantiles that are asked for."""

CURVE, SEARCHED, INVERSE = "F", "its inverse, noisy curve", "its inverse, smoothed curve"

Runs = dict[tuple[str, ...], dict[float, list[float]]]
"""What was measured to x to one number per run."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """How much is measured: 2^height points, so many rows per point on average."""

    height: int = 15
    density: float = 3.0
    epsilons: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    densities: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
    runs: int = 40
    seed: int = 20231115


def by_epsilon(scope: Scope, neighbours: Neighbours) -> Runs:
    """Mean squared errors of the curve and its inverse, at the density of the scope; for replace-one also ratios."""
    found: Runs = {}
    for run in range(scope.runs):
        counts = _counts(scope, scope.density, run)
        for name in mechanisms(neighbours):
            for epsilon in scope.epsilons:
                noisy = _Noisy.released(scope, counts, name, epsilon, neighbours, run)
                seen = noisy.errors() | (noisy.ratios() if neighbours is REPLACE else {})
                for what, value in seen.items():
                    found.setdefault((name, what), {}).setdefault(epsilon, []).append(value)
    return found


def by_density(scope: Scope) -> Runs:
    """Ratios of smoothing at epsilon = 1, replace-one."""
    found: Runs = {}
    for run in range(scope.runs):
        for density in scope.densities:
            counts = _counts(scope, density, run)
            for name in MECHANISMS:
                for what, value in _Noisy.released(scope, counts, name, 1.0, REPLACE, run).ratios().items():
                    found.setdefault((name, what), {}).setdefault(density, []).append(value)
    return found


def mechanisms(neighbours: Neighbours) -> tuple[str, ...]:
    """Those that differ: Theorem 3, for add-remove, has the exact constant."""
    return tuple(name for name in MECHANISMS if neighbours is REPLACE or name != PUBLISHED)


def searched(curve: Floats, levels: Floats) -> NDArray[np.int64]:
    """Algorithm 1: binary search for the place at which a curve, monotone or not, reaches each level.

    Examples
    --------
    >>> searched(np.array([0.1, 0.6, 0.4, 1.0]), np.array([0.5, 0.05, 2.0]))
    array([1, 0, 3])
    """
    low = np.zeros(len(levels), dtype=np.int64)
    step = len(curve) // 2
    while step:
        low += step * (curve[low + step - 1] < levels)
        step //= 2
    return low


def _counts(scope: Scope, density: float, run: int) -> NDArray[np.int64]:
    rng = generator(scope.seed, "poisson", str(density), str(run))
    return rng.poisson(density, (1, 1 << scope.height))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Noisy:
    """A noisy curve beside the true one, both in rows, and what it is thought to end at."""

    curve: Floats
    truth: Floats
    top: float

    @classmethod
    def released(
        cls,
        scope: Scope,
        counts: NDArray[np.int64],
        name: str,
        epsilon: float,
        neighbours: Neighbours,
        run: int,
    ) -> _Noisy:
        mechanism = Mechanism(name=name, epsilon=epsilon, points=counts.shape[1], neighbours=neighbours)
        path = (name, neighbours, str(epsilon), str(counts.sum()), str(run))
        (curve,) = mechanism.curves(counts, SimulatedRandomness(scope.seed, *path))
        truth = np.cumsum(counts[0]).astype(np.float64)
        return cls(curve=curve, truth=truth, top=mechanism.top(curve, int(truth[-1])))

    def ratios(self) -> dict[str, float]:
        """Squared error after each smoothing over before."""
        before = ((self.curve - self.truth) ** 2).sum()
        if before == 0:  # no noise at all, which happens at a large epsilon: nothing to smooth
            return dict.fromkeys(SMOOTHINGS, 1.0)
        return {
            which: float(((self._smooth(which) - self.truth) ** 2).sum() / before) for which in SMOOTHINGS
        }

    def errors(self) -> dict[str, float]:
        """Mean squared errors, in shares of the rows and of the range."""
        shares = self.truth / self.truth[-1]
        places = searched(shares, LEVELS)

        def off(curve: Floats) -> float:
            return float((((searched(curve / self.top, LEVELS) - places) / len(shares)) ** 2).mean())

        return {
            CURVE: float(((self.curve / self.top - shares) ** 2).mean()),
            SEARCHED: off(self.curve),
            INVERSE: off(self._smooth(ISOTONIC)),
        }

    def _smooth(self, which: str) -> Floats:
        return SMOOTHINGS[which](self.curve, top=self.top)


# --- figures ------------------------------------------------------------------------------------------------------


def smoothing_by_epsilon(found: Runs, scope: Scope) -> Drawing:
    """Figure 2."""
    x = Axis(title="ε", ticks=(0.01, 0.1, 1.0, 10.0))
    title = f"Squared error after smoothing over before: N = 2^{scope.height}, λ = {scope.density:g}"
    return bands.page([_ratios(found, x)], SMOOTHING_STYLES, title)


def smoothing_by_density(found: Runs, scope: Scope) -> Drawing:
    """Figure 3."""
    x = Axis(title="λ, rows per point", ticks=(0.1, 1.0, 10.0, 100.0))
    title = f"Squared error after smoothing over before: N = 2^{scope.height}, ε = 1"
    return bands.page([_ratios(found, x)], SMOOTHING_STYLES, title)


def _ratios(found: Runs, x: Axis) -> list[Frame]:
    y = Axis(title="error after / before", log=False, form=".1f")
    return [
        Frame(
            title=name,
            x=x,
            y=y,
            curves={which: curve(found, name, which) for which in SMOOTHINGS},
            level=1.0,
        )
        for name in MECHANISMS
    ]


def inverse(found: Mapping[Neighbours, Runs], scope: Scope) -> Drawing:
    """Figure 4."""
    titles = {REPLACE: "replace-one", ADD: "add-remove"}
    rows = [
        [
            Frame(
                title=f"{what} ({titles[neighbours]})",
                x=Axis(title="ε", ticks=(0.01, 0.1, 1.0, 10.0)),
                y=Axis(title="mean squared error", form=".0e"),
                curves={name: curve(runs, name, what) for name in mechanisms(neighbours)},
                width=245,
            )
            for what in (CURVE, SEARCHED, INVERSE)
        ]
        for neighbours, runs in found.items()
    ]
    title = f"Errors of F and of its inverse: N = 2^{scope.height}, λ = {scope.density:g}"
    return bands.page(rows, STYLES, title)


def curve(found: Runs, *what: str) -> Sequence[Spot]:
    """One curve of what was measured."""
    return [Spot.of(x, runs) for x, runs in sorted(found[what].items())]
