"""How a threshold does on held-out rows: coverage, size of the sets, and how much clients differ."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedassay.errors import UnsupportedQuery
from fedassay.protocol import Collect, Noise, Part, Query, Released, Setting, Step, Sum
from fedassay.summaries.coverage_counts import (
    CoverageCounts,
    CoverageOf,
    MeanWidth,
    SiteCoverage,
    WidthSum,
)
from fedassay.summaries.local_quantile import local_rank
from fedassay.summaries.quantities import QUANTITIES
from fedassay.summaries.scored import EVERYONE
from fedassay.tasks.conformal import heterogeneity
from fedassay.tasks.conformal.found import Found
from fedassay.tasks.conformal.heterogeneity import CoverageSums, Differences
from fedassay.tasks.evaluation.intervals import Estimate, bounded, unbounded
from fedassay.tasks.evaluation.metric import Metric, undefined

if TYPE_CHECKING:
    from fedassay.tasks.conformal.conformal import Conformal

WIDE = ("normalised", "cqr")
"""Scores whose intervals differ in width from row to row."""

CLEAR = 4.0
"""A number of rows below so many standard deviations of its noise says nothing."""

Counts = Mapping[str, CoverageOf]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What is known about held-out rows: counts of all, of single clients if they may be seen, and widths."""

    counts: Counts
    noise: Noise
    clients: tuple[Counts, ...] | None = None
    widths: Mapping[str, WidthSum] | None = None
    differences: Differences | None = None


def judge(
    task: Conformal, setting: Setting, found: Mapping[str, Found], sites: Sequence[Mapping[str, Any]] | None
) -> Generator[Step, Any, dict[str, Any]]:
    """``held_out`` and ``heterogeneity``; nothing where each client has a threshold of its own."""
    if any(one.threshold is None for one in found.values()):
        return {"held_out": None, "heterogeneity": None}
    thresholds = {name: float(one.threshold or 0.0) for name, one in found.items()}
    asked = _Asked(task=task, thresholds=tuple(thresholds.values()))
    seen = yield from asked.each() if asked.may_see_each(setting) else asked.sums(setting)
    judged = _Judged(task=task, thresholds=thresholds, noise=seen.noise)
    clients = next(iter(found.values())).clients or 0
    return {
        "held_out": {
            **judged.of(seen.counts, seen.widths),
            "sites": None if seen.clients is None else judged.of_clients(seen.clients),
        },
        "heterogeneity": heterogeneity.described(
            seen.differences, bound=_bound(task, seen, sites, clients), level=task.level
        ),
    }


# --- questions ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Asked:
    task: Conformal
    thresholds: tuple[float, ...]

    def may_see_each(self, setting: Setting) -> bool:
        """Whether single clients may be seen; noise for each of them would leave nothing to see."""
        return not setting.trust.private and _answers(self._collect(self._counts), setting)

    def each(self) -> Generator[Step, Any, Seen]:
        """From the counts of each client."""
        queries = [self._collect(of) for of in (self._counts, self._widths) if of is not None]
        released: tuple[Released[Any], ...] = yield tuple(queries)
        clients: tuple[Counts, ...] = released[0].value
        differences = None
        if not self.task.by:
            rows, covered = _of_each(clients)
            differences = Differences.of(CoverageSums.of(rows, covered))
        widths = None
        if len(released) > 1:
            widths = {name: _all_widths([one[name] for one in released[1].value]) for name in clients[0]}
        return Seen(
            counts=_added(clients),
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
        classes = (self.task.classes or 0) if QUANTITIES[self.task.quantity].is_softmax else 0
        return CoverageCounts(**self._fields, classes=classes)

    @property
    def _spread(self) -> SiteCoverage | None:
        return None if self.task.by else SiteCoverage(**self._fields)

    @property
    def _widths(self) -> MeanWidth | None:
        return MeanWidth(**self._fields) if self.task.quantity in WIDE else None

    def _collect(self, of: Any) -> Query[Any]:
        return Collect(of=of, part=Part.HELD_OUT, share=0.5)


def _answers(query: Query[Any], setting: Setting) -> bool:
    try:
        setting.trust.plan(query, setting)
    except UnsupportedQuery:
        return False
    return True


def _added(clients: Sequence[Counts]) -> Counts:
    return {
        name: CoverageOf(
            covered_by_size=np.sum([one[name].covered_by_size for one in clients], axis=0),
            missed_by_size=np.sum([one[name].missed_by_size for one in clients], axis=0),
        )
        for name in clients[0]
    }


def _of_each(clients: Sequence[Counts]) -> tuple[list[int], list[int]]:
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


def _bound(
    task: Conformal, seen: Seen, sites: Sequence[Mapping[str, Any]] | None, clients: int
) -> float | None:
    """Proposition 3.4, estimated; None if clients are not told apart by anything that is known."""
    differences = seen.differences
    if differences is None:
        return None
    if sites is not None and seen.clients is not None and len(sites) == len(seen.clients):
        rows, ranks = [one["rows"] for one in sites], [one["rank"] for one in sites]
        return heterogeneity.loss_bound(rows, ranks, differences.shrunk(*_of_each(seen.clients)))
    if clients < heterogeneity.FEWEST_CLIENTS:
        return None
    # As if all clients had as many rows, and deviations were normal.
    each = max(1, round(seen.counts[EVERYONE].rows / clients))
    rank = local_rank("split", clients, each, task.level)
    return heterogeneity.loss_bound([each] * clients, [rank] * clients, differences.spread_evenly(clients))


# --- answers --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Judged:
    task: Conformal
    thresholds: Mapping[str, float]
    noise: Noise

    def of(self, counts: Counts, widths: Mapping[str, WidthSum] | None) -> dict[str, Any]:
        """All rows together, and each part of them where they are told apart."""
        together = _added([{EVERYONE: one} for one in counts.values()])[EVERYONE]
        described = self._described(together, parts=len(counts))
        if self.task.by:
            return {
                **described,
                "groups": {name: self._entry(name, one, widths) for name, one in counts.items()},
            }
        return self._entry(EVERYONE, counts[EVERYONE], widths)

    def of_clients(self, clients: Sequence[Counts]) -> list[dict[str, Any]]:
        """Each client's own rows."""
        level = self.task.report_level
        entries = []
        for number, one in enumerate(clients):
            together = _added([{EVERYONE: part} for part in one.values()])[EVERYONE]
            coverage = self._coverage(together, parts=1).to_json()
            entries.append({"site": f"site {number + 1}", "rows": together.rows, "coverage": coverage})
        return entries if level else []

    def _entry(self, name: str, counts: CoverageOf, widths: Mapping[str, WidthSum] | None) -> dict[str, Any]:
        entry = self._described(counts, parts=1)
        if not QUANTITIES[self.task.quantity].is_softmax:
            width = None if widths is None else widths[name]
            entry["mean_size"] = self._width(self.thresholds[name], width).to_json()
        return entry

    def _described(self, counts: CoverageOf, *, parts: int) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "rows": counts.rows,
            "coverage": self._coverage(counts, parts=parts).to_json(),
        }
        if QUANTITIES[self.task.quantity].is_softmax:
            entry["mean_size"] = self._size(counts, parts=parts).to_json()
            entry["size_counts"] = [float(number) for number in counts.sizes]
        return entry

    def _enough(self, counts: CoverageOf, *, parts: int) -> str | None:
        cells = 2 * parts * counts.sizes.size
        if counts.rows <= max(0.0, CLEAR * math.sqrt(cells * self.noise.variance)):
            return (
                "there are no held-out rows" if self.noise.variance == 0 else "not enough rows for the noise"
            )
        return None

    def _coverage(self, counts: CoverageOf, *, parts: int) -> Metric:
        level, reason = self.task.report_level, self._enough(counts, parts=parts)
        if reason is not None:
            return undefined(reason, level=level)
        n, cells = counts.rows, parts * counts.sizes.size
        v = counts.covered / n
        inside = min(1.0, max(0.0, v))
        privacy = cells * self.noise.variance * ((1 - inside) ** 2 + inside**2) / n**2
        estimate = Estimate(value=v, sampling_variance=inside * (1 - inside) / n, privacy_variance=privacy)
        return bounded(estimate, size=n, level=level)

    def _size(self, counts: CoverageOf, *, parts: int) -> Metric:
        level, reason = self.task.report_level, self._enough(counts, parts=parts)
        if reason is not None:
            return undefined(reason, level=level)
        sizes, n = np.arange(counts.sizes.size), counts.rows
        v = float(counts.sizes @ sizes) / n
        spread = (sizes - v) ** 2
        estimate = Estimate(
            value=v,
            sampling_variance=max(0.0, float(counts.sizes @ spread)) / n**2,
            privacy_variance=2 * parts * self.noise.variance * float(spread.sum()) / n**2,
        )
        return unbounded(estimate, level=level, lowest=0.0)

    def _width(self, threshold: float, widths: WidthSum | None) -> Metric:
        """The mean width of intervals; known without looking where all are equally wide."""
        level, quantity = self.task.report_level, self.task.quantity
        if quantity in ("conformity", "value"):
            return undefined("a score of your own does not say how large its sets are", level=level)
        if math.isinf(threshold):
            return undefined("the sets hold everything", level=level)
        if quantity == "absolute":
            return Metric(
                value=2 * threshold,
                interval=(2 * threshold,) * 2,
                level=level,
                sampling=0.0,
                privacy=0.0,
                discretisation=0.0,
            )
        if widths is None:
            return undefined("widths are not asked for under noise", level=level)
        mean = widths.mean
        if mean is None:
            return undefined("there are no held-out rows", level=level)
        spread = max(0.0, widths.squares / widths.rows - mean**2) / widths.rows
        estimate = Estimate(value=mean, sampling_variance=spread, privacy_variance=0.0)
        return unbounded(estimate, level=level, lowest=0.0)
