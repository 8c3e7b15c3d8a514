"""What is asked about held-out rows, once there is a threshold: how many are covered, and how large sets are."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedassay.protocol import Collect, Noise, Part, Query, Released, Setting, Step, Sum
from fedassay.summaries.coverage_counts import (
    CoverageCounts,
    CoverageOf,
    MeanWidth,
    SiteCoverage,
    WidthSum,
)
from fedassay.summaries.quantities import QUANTITIES
from fedassay.summaries.scored import EVERYONE
from fedassay.tasks.conformal.heterogeneity import CoverageSums, Differences
from fedassay.tasks.conformal.ways import answers

if TYPE_CHECKING:
    from fedassay.tasks.conformal.conformal import Conformal

WIDE = ("normalised", "cqr")
"""Scores whose intervals differ in width from row to row."""

MOST_SITES = 250
"""With more clients none is listed: what they differ by is then told from sums."""

Counts = Mapping[str, CoverageOf]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What is known about held-out rows: counts of all, of single clients if they may be seen, and widths."""

    counts: Counts
    noise: Noise
    clients: tuple[Counts, ...] | None = None
    widths: Mapping[str, WidthSum] | None = None
    differences: Differences | None = None


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Questions about held-out rows, for these thresholds of the parts of the rows."""

    task: Conformal
    thresholds: tuple[float, ...]

    def may_see_each(self, setting: Setting) -> bool:
        """Whether single clients may be seen, and are so few that one can look at each.

        Noise for each of them would leave nothing to see.
        """
        if setting.clients > MOST_SITES:
            return False
        return not setting.trust.private and answers(self._collect(self._counts), setting)

    def each(self) -> Generator[Step, Any, Seen]:
        """From the counts of each client."""
        queries = [self._collect(of) for of in (self._counts, self._widths) if of is not None]
        released: tuple[Released[Any], ...] = yield tuple(queries)
        clients: tuple[Counts, ...] = released[0].value
        differences = None
        if not self.task.by:
            rows, covered = of_each(clients)
            differences = Differences.of(CoverageSums.of(rows, covered))
        widths = None
        if len(released) > 1:
            widths = {name: _all_widths([one[name] for one in released[1].value]) for name in clients[0]}
        return Seen(
            counts=added(clients),
            noise=released[0].noise,
            clients=clients,
            widths=widths,
            differences=differences,
        )

    def sums(self, setting: Setting) -> Generator[Step, Any, Seen]:
        """From sums over clients; with noise, from the counts alone."""
        whole = Sum(of=self._counts, part=Part.HELD_OUT)
        if setting.noise(whole).variance > 0:
            noisy: Released[Counts] = yield whole
            return Seen(counts=noisy.value, noise=noisy.noise)
        summaries = (self._counts, self._spread, self._widths)
        queries = [Sum(of=of, part=Part.HELD_OUT, share=1 / 3) for of in summaries if of is not None]
        released: tuple[Released[Any], ...] = yield tuple(queries)
        spread = None if self.task.by else released[1].value[EVERYONE]
        widths = None
        if self._widths is not None:
            widths = released[-1].value
        return Seen(
            counts=released[0].value,
            noise=released[0].noise,
            widths=widths,
            differences=None
            if spread is None
            else Differences.of(
                CoverageSums(
                    clients=spread.sites,
                    rows=spread.rows,
                    covered=spread.covered,
                    squares=float(spread.squares),
                )
            ),
        )

    @property
    def _fields(self) -> dict[str, Any]:
        task = self.task
        return {
            "quantity": task.quantity,
            "parameters": task.parameters,
            "by": task.by,
            "groups": task.groups,
            "thresholds": self.thresholds,
        }

    @property
    def _counts(self) -> CoverageCounts:
        classes = (self.task.classes or 0) if QUANTITIES[self.task.quantity].gives_sets else 0
        return CoverageCounts(**self._fields, classes=classes)

    @property
    def _spread(self) -> SiteCoverage | None:
        return None if self.task.by else SiteCoverage(**self._fields)

    @property
    def _widths(self) -> MeanWidth | None:
        return MeanWidth(**self._fields) if self.task.quantity in WIDE else None

    def _collect(self, of: Any) -> Query[Any]:
        return Collect(of=of, part=Part.HELD_OUT, share=0.5)


def added(clients: Sequence[Counts]) -> Counts:
    """The counts of all of them together."""
    return {
        name: CoverageOf(
            covered_by_size=np.sum([one[name].covered_by_size for one in clients], axis=0),
            missed_by_size=np.sum([one[name].missed_by_size for one in clients], axis=0),
        )
        for name in clients[0]
    }


def of_each(clients: Sequence[Counts]) -> tuple[list[int], list[int]]:
    """The rows of each client, and how many of them are covered."""
    return (
        [round(one[EVERYONE].rows) for one in clients],
        [round(one[EVERYONE].covered) for one in clients],
    )


def _all_widths(clients: Sequence[WidthSum]) -> WidthSum:
    return WidthSum(
        rows=sum(one.rows for one in clients),
        width=math.fsum(one.width for one in clients),
        squares=math.fsum(one.squares for one in clients),
    )
