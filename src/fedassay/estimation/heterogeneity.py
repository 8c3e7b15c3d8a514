"""Heterogeneity of sites: a random-effects analysis of their estimates (docs/explanation/heterogeneity.md).

Site i has the estimate y_i with sampling variance v_i of a quantity θ_i ~ (μ, τ²). Everything below is a function of
Σw, Σw², Σwy and Σwy² alone, once with w = 1/v (fixed-effect weights) and once with w = 1/(v + τ²) (random-effects
weights). So it is the same whether the sites' estimates are known or only their sums.

References: DerSimonian and Laird (1986); Higgins and Thompson (2002) for I²; Hartung and Knapp (2001) for the
interval, with the variance never below the classical one (Röver, Knapp and Friede 2015); Higgins, Thompson and
Spiegelhalter (2009) for the prediction interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from scipy.special import chdtrc, expit, logit, stdtrit

from fedassay.estimation.evidence import Evidence
from fedassay.estimation.metric import Metric
from fedassay.protocol.metrics import METRICS, MetricRecord, Scale

# --- estimates of one site ----------------------------------------------------------------------------------

SMALLEST_CLASS = 10
"""Fewest rows of either class; a site with fewer is left out, since its variance would be meaningless."""

LEAST_VARIANCE, LARGEST_VARIANCE, LARGEST_VALUE = 2.0**-38, 2.0**10, 2.0**6
"""Bounds of an estimate; beyond these its site is left out. A smaller variance than the least is not that
of many rows (it would take more than 10^9 of them) but of rows that are all alike."""


class SiteEstimate(NamedTuple):
    """Value and its sampling variance."""

    value: float
    variance: float


def site_estimate(name: str, evidence: Evidence) -> SiteEstimate | None:
    """Estimate a metric from the exact counts of one site, on the scale of pooling; None if it cannot be.

    None: fewer than `SMALLEST_CLASS` rows of a class, a metric that does not exist on these rows (an AUC of 0 or
    1 has no logit, a slope needs classes that overlap), or numbers beyond the bounds above.

    Examples
    --------
    >>> import numpy as np
    >>> edges = np.array([0.0, 0.4, 1.0])
    >>> counts = {"positives": np.array([10.0, 30.0]), "negatives": np.array([30.0, 10.0])}
    >>> round(site_estimate("brier_score", Evidence.exactly(edges=edges, **counts)).value, 3)
    0.19
    >>> few = {"positives": np.array([0.0, 9.0]), "negatives": np.array([40.0, 0.0])}
    >>> site_estimate("roc_auc", Evidence.exactly(edges=edges, **few)) is None
    True
    """
    if min(evidence.positive_rows, evidence.negative_rows) < SMALLEST_CLASS:
        return None
    record = METRICS[name]
    metric: Metric = record.estimator(evidence)
    if metric.value is None or metric.sampling is None:
        return None
    estimate = _scaled(record.scale, metric.value, metric.sampling**2)
    if estimate is None or not all(math.isfinite(number) for number in estimate):
        return None
    if abs(estimate.value) > LARGEST_VALUE or not LEAST_VARIANCE <= estimate.variance <= LARGEST_VARIANCE:
        return None
    return estimate


def _scaled(scale: Scale | None, value: float, variance: float) -> SiteEstimate | None:
    """Return the estimate on another scale, its variance with the square of the derivative."""
    if scale == "logit":
        if not 0 < value < 1:
            return None
        return SiteEstimate(float(logit(value)), variance / (value * (1 - value)) ** 2)
    if scale == "log":
        if value <= 0:
            return None
        return SiteEstimate(math.log(value), variance / value**2)
    return SiteEstimate(value, variance)


# --- random-effects analysis --------------------------------------------------------------------------------

FEWEST_SITES = 3
"""Fewest sites with a prediction interval; a sum over fewer would say too much about each."""

LARGEST_TAU2 = 2.0**10

_BACK: Mapping[Scale, Callable[[float], float]] = {
    "logit": lambda y: float(expit(y)),
    "log": lambda y: math.exp(min(700.0, y)),
    "identity": lambda y: y,
}


@dataclass(frozen=True, kw_only=True)
class WeightedSums:
    """Totals over the sites that have an estimate y with weight w, exactly as they were sent."""

    sites: int
    w: Fraction
    w2: Fraction
    wy: Fraction
    wy2: Fraction


def weighted_sums(estimates: Iterable[SiteEstimate | None], *, tau2: float = 0.0) -> WeightedSums:
    """Return the sums over sites whose estimates are known, as `SiteSums` adds them up where they are not.

    Examples
    --------
    >>> weighted_sums([SiteEstimate(1.0, 0.5), None, SiteEstimate(3.0, 0.25)]).wy
    Fraction(14, 1)
    """
    known = [found for found in estimates if found is not None]
    weights = [Fraction(1 / (found.variance + tau2)) for found in known]
    values = [Fraction(found.value) for found in known]
    return WeightedSums(
        sites=len(known),
        w=sum(weights, Fraction(0)),
        w2=sum((w * w for w in weights), Fraction(0)),
        wy=sum((w * y for w, y in zip(weights, values, strict=True)), Fraction(0)),
        wy2=sum((w * y * y for w, y in zip(weights, values, strict=True)), Fraction(0)),
    )


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Spread of the sites' estimates.

    `q` is Cochran's Q, `tau2` DerSimonian and Laird's estimate of the variance between sites, `i2` the share of
    the spread that is not sampling error.
    """

    q: float
    degrees: int
    tau2: float
    i2: float
    p_value: float

    @classmethod
    def of(cls, fixed: WeightedSums) -> Spread:
        """Compute the spread from the sums with fixed-effect weights; at least two sites.

        Examples
        --------
        >>> spread = Spread.of(weighted_sums([SiteEstimate(float(y), 1.0) for y in (-2, 0, 2)]))
        >>> spread.q, spread.tau2, spread.i2
        (8.0, 3.0, 0.75)
        """
        degrees = fixed.sites - 1
        # Q is a small difference of large numbers: taken exactly, rounded once.
        q = max(Fraction(0), fixed.wy2 - fixed.wy**2 / fixed.w)
        excess = q - degrees
        room = fixed.w - fixed.w2 / fixed.w
        tau2 = min(LARGEST_TAU2, max(0.0, float(excess / room))) if room > 0 else 0.0
        return cls(
            q=float(q),
            degrees=degrees,
            tau2=tau2,
            i2=max(0.0, float(excess / q)) if q > 0 else 0.0,
            p_value=float(chdtrc(degrees, float(q))),
        )


def pooled(
    metric: str, fixed: WeightedSums, random: WeightedSums, *, asked: int, level: float
) -> dict[str, Any]:
    """Return the entry of one metric in ``heterogeneity``, from its sums with both kinds of weights.

    `value`, `interval` and `prediction_interval` are on the metric's own scale; `standard_error` and `tau2` on
    the one that `scale` names. `asked` is the number of sites in all.
    """
    spread = Spread.of(fixed)
    k = random.sites
    mean = random.wy / random.w
    residual = max(1.0, float((random.wy2 - mean * random.wy) / (k - 1)))
    variance = residual / float(random.w)
    ends = _interval(float(mean), variance, degrees=k - 1, level=level)
    outer = _interval(float(mean), spread.tau2 + variance, degrees=k - 2, level=level)
    record = METRICS[metric]
    back = _to_metric(record)
    return {
        "value": back(float(mean)),
        "interval": [back(end) for end in ends],
        "level": level,
        "prediction_interval": [back(end) for end in outer],
        "scale": record.scale,
        "standard_error": math.sqrt(variance),
        "tau2": spread.tau2,
        "i2": spread.i2,
        "q": spread.q,
        "degrees_of_freedom": spread.degrees,
        "p_value": spread.p_value,
        "sites": k,
        "left_out": max(0, asked - k),
    }


def not_pooled(sites: int, *, asked: int, level: float) -> dict[str, Any]:
    """Return the entry of a metric for which too few sites have an estimate."""
    return {
        "value": None,
        "interval": None,
        "level": level,
        "reason": f"{sites} of {asked} sites have an estimate, at least {FEWEST_SITES} are needed (a site has "
        f"none with fewer than {SMALLEST_CLASS} rows of a class, or where the metric does not exist)",
        "sites": sites,
        "left_out": max(0, asked - sites),
    }


def _interval(mean: float, variance: float, *, degrees: int, level: float) -> tuple[float, float]:
    half = float(stdtrit(degrees, (1 + level) / 2)) * math.sqrt(variance)
    return mean - half, mean + half


def _to_metric(record: MetricRecord) -> Callable[[float], float]:
    """Return the map from the scale of pooling to the metric's own."""
    back = _BACK[record.scale or "identity"]
    low, high = record.range
    return lambda y: min(high, max(low, back(y)))
