"""Sums over sites about their differences, without any site being seen.

Each site computes its own estimates and variances (`site_estimate`) and adds its weights and weighted
values to totals over all sites. From these totals the whole random-effects analysis follows: it depends on the
sites only through Σw, Σw², Σwy and Σwy².
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from fedassay.errors import UsageError
from fedassay.estimation.heterogeneity import LARGEST_TAU2, SiteEstimate, WeightedSums, site_estimate
from fedassay.protocol.metrics import compared
from fedassay.protocol.vocabulary import (
    NO_NOISE,
    Memory,
    Protection,
    Rows,
    Sensitivity,
    Summary,
    Total,
    Vector,
)
from fedassay.summaries.grid import LARGEST_REACH
from fedassay.summaries.measures import SUMS
from fedassay.summaries.score_histogram import ScoreHistogram

_REMEMBERED = "site-estimates"

_BINS = ("transform", "height", "thresholds", "reach")


@dataclass(frozen=True, kw_only=True)
class _OfSite:
    """Common base of both summaries below: the histogram that a site makes of its own rows, and the metrics."""

    metrics: tuple[str, ...] = field(default_factory=compared)
    transform: str = "mixed"
    height: int = 15
    thresholds: tuple[float, ...] = ()
    reach: float = LARGEST_REACH

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", tuple(self.metrics))
        object.__setattr__(self, "thresholds", self._histogram.thresholds)
        known = compared()
        unknown = [name for name in self.metrics if name not in known]
        if unknown or not self.metrics or len(set(self.metrics)) != len(self.metrics):
            raise UsageError(
                f"metrics: got {list(self.metrics)}, expected different ones of {', '.join(known)}."
            )

    @classmethod
    def like(cls, histogram: ScoreHistogram, **fields: Any) -> Self:
        """Build a summary with the bins of this histogram."""
        return cls(**{name: getattr(histogram, name) for name in _BINS}, **fields)

    @property
    def _histogram(self) -> ScoreHistogram:
        return ScoreHistogram(**{name: getattr(self, name) for name in _BINS})

    def _estimates(self, rows: Rows, memory: Memory) -> tuple[list[SiteEstimate | None], Memory]:
        """Return the site's estimates, remembered: where rows are left out at random, all rounds use the same."""
        known = memory.get(_REMEMBERED)
        if known is None:
            histogram = self._histogram
            evidence = histogram.read(histogram.measure(rows, {})[0]).evidence(NO_NOISE)
            known = {name: site_estimate(name, evidence) for name in compared()}
            known = {name: None if found is None else list(found) for name, found in known.items()}
        found = [known[name] for name in self.metrics]
        return [None if pair is None else SiteEstimate(*pair) for pair in found], {
            **memory,
            _REMEMBERED: known,
        }


@dataclass(frozen=True, kw_only=True)
class EligibleSites(_OfSite, Summary[dict[str, int]]):
    """Number of sites that have an estimate of each metric: 1 or 0 for each, from each site.

    Asked first, so that weighted sums are only asked for where enough sites stand behind them: a sum over one
    site would be that site's own estimate.
    """

    name: ClassVar[str] = "eligible-sites"
    columns: ClassVar[tuple[str, ...]] = ("score", "label")
    additive: ClassVar[bool] = False

    @property
    def length(self) -> int:
        """Number of entries: one per metric."""
        return len(self.metrics)

    @property
    def largest(self) -> int:
        """Largest entry: yes or no."""
        return 1

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Estimate each metric, and report whether that worked."""
        estimates, memory = self._estimates(rows, memory)
        return np.array([found is not None for found in estimates], dtype=np.int64), memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity: a single row can decide whether its site has any of the estimates."""
        return Sensitivity(l1=float(self.length), l2=math.sqrt(self.length))

    def read(self, total: Total) -> dict[str, int]:
        """Return the number of sites of each metric, by name."""
        return {name: int(count) for name, count in zip(self.metrics, total, strict=True)}


@dataclass(frozen=True, kw_only=True)
class SiteSums(_OfSite, Summary[dict[str, WeightedSums]]):
    """Σ1, Σw, Σw², Σwy, Σwy² over the sites that have an estimate y with variance v, for w = 1/(v + tau2).

    `tau2` has one number per metric: 0 in a first round (fixed-effect weights), the variance between sites in a
    second (random-effects weights).

    Enforced: |y| <= 2^6 and 2^-38 <= v (`site_estimate`), hence 0 < w <= 2^38 and all numbers are below 2^76.
    Each is rounded to 2^-48 and written as four limbs of 32 bits, the highest signed: |number|·2^48 < 2^124, so
    the highest limb is below 2^28 and every entry below 2^32. No total over up to 2^30 sites wraps, and totals
    are exact: nothing but the rounding of each site's five numbers is lost.

    Sensitivity: any site's entries can take any value within their bounds if one row changes, because an
    estimate depends on all rows of its site. The bound is true and useless: no noise that covers it leaves
    anything to see.
    """

    name: ClassVar[str] = "site-sums"
    columns: ClassVar[tuple[str, ...]] = ("score", "label")
    additive: ClassVar[bool] = False

    tau2: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        tau2 = tuple(float(number) for number in self.tau2) or (0.0,) * len(self.metrics)
        if len(tau2) != len(self.metrics) or not all(0 <= number <= LARGEST_TAU2 for number in tau2):
            raise UsageError(
                f"tau2: got {list(tau2)}, expected one number in [0, {LARGEST_TAU2:.0f}] per metric."
            )
        object.__setattr__(self, "tau2", tau2)

    @property
    def length(self) -> int:
        """Number of entries: per metric a count and four numbers."""
        return len(self.metrics) * (1 + 4 * SUMS.limbs)

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Estimate, weigh, write down; zeros where there is no estimate."""
        estimates, memory = self._estimates(rows, memory)
        entries: list[int] = []
        for found, tau2 in zip(estimates, self.tau2, strict=True):
            if found is None:
                entries += [0] * (1 + 4 * SUMS.limbs)
                continue
            y, w = found.value, 1 / (found.variance + tau2)
            entries.append(1)
            entries += SUMS.write(np.array([w, w * w, w * y, w * y * y])).tolist()
        return np.array(entries, dtype=np.int64), memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity of entries that move from one end of their range to the other."""
        reach = 2.0 * self.largest
        return Sensitivity(l1=reach * self.length, l2=reach * math.sqrt(self.length))

    def read(self, total: Total) -> dict[str, WeightedSums]:
        """Return the sums of each metric, by name."""
        sums = {}
        for name, entries in zip(self.metrics, np.split(total, len(self.metrics)), strict=True):
            w, w2, wy, wy2 = SUMS.read_exactly(entries[1:])
            sums[name] = WeightedSums(sites=int(entries[0]), w=w, w2=w2, wy=wy, wy2=wy2)
        return sums
