"""Table 1 of the paper against measured slopes, and by how much our errors are smaller than the published ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import linregress

from experiments import calibrating as cal
from experiments import measured as fig
from experiments.common import DEFAULT, DISTRIBUTED, FEDERATED, LOCAL, PUBLISHED, SAME_BINS, Case, Model
from experiments.measured import Measured
from experiments.plots import Dot


@dataclass(frozen=True, kw_only=True)
class Slope:
    """The exponent of a power law, fitted to logarithms of mean errors, with its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, dots: Sequence[Dot], low: float, high: float, *, base: float | None = None) -> Slope | None:
        """Least squares over the dots between two x; with `base` they are exponents. None below three errors."""
        used = [dot for dot in dots if low <= dot.x <= high and dot.point.mean > 0]
        if len(used) < 3:
            return None
        x = [dot.x * math.log(base) if base else math.log(dot.x) for dot in used]
        fit = linregress(x, np.log([dot.point.mean for dot in used]))
        return cls(value=float(fit.slope), error=float(fit.stderr))

    def __str__(self) -> str:
        """As in a table."""
        error = f"{self.error:.2f}" if self.error >= 0.005 else "<0.01"
        return f"{self.value:.2f} ± {error}".replace("-", "−")


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A line of the table."""

    quantity: str
    model: str
    against: str
    theory: str
    over: str
    published: Slope | None
    ours: Slope | None


def table(seen: Measured) -> list[Rate]:
    """All slopes of one data set."""
    return [*_decisions(seen), *_areas(seen), *_calibration(seen)]


def _decisions(seen: Measured) -> list[Rate]:
    metric, what = "accuracy", "accuracy at a threshold"
    heights = fig.height_curve(seen, Case(model=FEDERATED, variant=PUBLISHED), metric)
    first = Rate(
        quantity=what,
        model=FEDERATED.name,
        against="bins, 2^h",
        theory="−1",
        over=f"h = {seen.scope.heights[0]} to {seen.scope.heights[-1]}",
        published=Slope.of(heights, 0, 99, base=2),
        ours=None,
    )
    rates = [first]
    for model, by_size in ((DISTRIBUTED, "−2/3"), (LOCAL, "−1/3")):
        published, ours = (Case(model=model, variant=variant) for variant in (PUBLISHED, DEFAULT))
        low, high = _sizes(model)
        balanced = fig.balanced_curve(seen, model, metric)
        rates += [
            _rate(
                what, model, "M, h = 10", by_size, (low, high),
                fig.size_curve(seen, published, metric), fig.size_curve(seen, ours, metric),
            ),
            _rate(what, model, "M, h as in Theorem 2", by_size, (low, high), balanced, None),
            _rate(
                what, model, "ε", "−2/3", _epsilons(model),
                fig.epsilon_curve(seen, published, metric), fig.epsilon_curve(seen, ours, metric),
            ),
        ]  # fmt: skip
    return rates


def _areas(seen: Measured) -> list[Rate]:
    metric, what = "roc_auc", "AUC"
    federated = Case(model=FEDERATED, variant=PUBLISHED)
    rates = [
        _rate(
            what, FEDERATED, "B, quantile", "−2", (4, 64), fig.bucket_curve(seen, federated, "quantile"), None
        ),
        _rate(
            what, FEDERATED, "B, uniform", "−2", (4, 64), fig.bucket_curve(seen, federated, "uniform"), None
        ),
    ]
    for model, by_size in ((DISTRIBUTED, "−1"), (LOCAL, "−1/2")):
        published, ours = (Case(model=model, variant=variant) for variant in (PUBLISHED, DEFAULT))
        rates += [
            _rate(
                what, model, "M", by_size, _sizes(model),
                fig.size_curve(seen, published, metric), fig.size_curve(seen, ours, metric),
            ),
            _rate(
                what, model, "ε", "−1", _epsilons(model),
                fig.epsilon_curve(seen, published, metric), fig.epsilon_curve(seen, ours, metric),
            ),
        ]  # fmt: skip
    return rates


def _calibration(seen: Measured) -> list[Rate]:
    what = "calibration"
    rates = []
    for model, by_size, by_epsilon in (
        (FEDERATED, "−1/3", ""),
        (DISTRIBUTED, "−1/3", "0"),
        (LOCAL, "−1/4", "−1/2"),
    ):
        rates.append(
            _rate(
                what, model, "M", by_size, _sizes(model),
                fig.distance_curve(seen, model, cal.HISTOGRAM), fig.distance_curve(seen, model, cal.OUR_HISTOGRAM),
            )
        )  # fmt: skip
        if by_epsilon:
            rates.append(
                _rate(
                    what, model, "ε", by_epsilon, _epsilons(model),
                    fig.distance_by_epsilon(seen, model, cal.HISTOGRAM),
                    fig.distance_by_epsilon(seen, model, cal.OUR_HISTOGRAM),
                )
            )  # fmt: skip
    return rates


def _rate(
    what: str,
    model: Model,
    against: str,
    theory: str,
    over: tuple[float, float],
    published: Sequence[Dot],
    ours: Sequence[Dot] | None,
) -> Rate:
    low, high = over
    return Rate(
        quantity=what,
        model=model.name,
        against=against,
        theory=theory,
        over=f"{low:,g} to {high:,g}"
        if high <= 100
        else f"10^{math.log10(low):g} to 10^{math.log10(high):g}",
        published=Slope.of(published, low, high),
        ours=None if ours is None else Slope.of(ours, low, high),
    )


def _sizes(model: Model) -> tuple[float, float]:
    """Under local-dp, fewer than 10^4 clients give hardly more than guesses."""
    return (1e4, 1e6) if model.name == LOCAL.name else (1e3, 1e6)


def _epsilons(model: Model) -> tuple[float, float]:
    """The range in which errors are neither guesses nor dominated by something else than epsilon."""
    return (0.5, 5.0) if model.name == LOCAL.name else (0.1, 2.0)


# --- gains ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Published error over ours, the geometric mean over numbers of clients."""

    quantity: str
    model: str
    same_bins: float | None
    default: float


def gains(seen: Measured) -> list[Gain]:
    """By how much our errors are smaller, over the numbers of clients from 10^4 to 10^6."""
    lines = []
    for model in (DISTRIBUTED, LOCAL):
        for what, metric in (("accuracy at a threshold", "accuracy"), ("AUC", "roc_auc")):
            theirs, same, default = (
                fig.size_curve(seen, Case(model=model, variant=variant), metric)
                for variant in (PUBLISHED, SAME_BINS, DEFAULT)
            )
            lines.append(
                Gain(
                    quantity=what,
                    model=model.name,
                    same_bins=_ratio(theirs, same),
                    default=_ratio(theirs, default),
                )
            )
        theirs, ours = (fig.distance_curve(seen, model, name) for name in (cal.HISTOGRAM, cal.OUR_HISTOGRAM))
        lines.append(
            Gain(quantity="calibration", model=model.name, same_bins=None, default=_ratio(theirs, ours))
        )
    return lines


def _ratio(theirs: Sequence[Dot], ours: Sequence[Dot]) -> float:
    means = {dot.x: dot.point.mean for dot in theirs}
    logs = [math.log(means[dot.x] / dot.point.mean) for dot in ours if 1e4 <= dot.x <= 1e6]
    return math.exp(math.fsum(logs) / len(logs))
