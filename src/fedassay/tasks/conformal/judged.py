"""How a threshold does on held-out rows: coverage, size of the sets, and how much clients differ."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedassay.protocol import Noise, Setting, Step
from fedassay.summaries.coverage_counts import CoverageOf, WidthSum
from fedassay.summaries.local_quantile import local_rank
from fedassay.summaries.quantities import QUANTITIES
from fedassay.summaries.scored import EVERYONE
from fedassay.tasks.conformal import heterogeneity
from fedassay.tasks.conformal.found import Found
from fedassay.tasks.conformal.held_out import Asked, Counts, Seen, added, of_each
from fedassay.tasks.evaluation.intervals import Estimate, bounded, unbounded
from fedassay.tasks.evaluation.metric import Metric, undefined

if TYPE_CHECKING:
    from fedassay.tasks.conformal.conformal import Conformal

CLEAR = 4.0
"""A number of rows below so many standard deviations of its noise says nothing."""


def judge(
    task: Conformal, setting: Setting, found: Mapping[str, Found], sites: Sequence[Mapping[str, Any]] | None
) -> Generator[Step, Any, dict[str, Any]]:
    """``held_out`` and ``heterogeneity``; nothing where each client has a threshold of its own."""
    if any(one.threshold is None for one in found.values()):
        return {"held_out": None, "heterogeneity": None}
    thresholds = {name: float(one.threshold or 0.0) for name, one in found.items()}
    asked = Asked(task=task, thresholds=tuple(thresholds.values()))
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


def _bound(
    task: Conformal, seen: Seen, sites: Sequence[Mapping[str, Any]] | None, clients: int
) -> float | None:
    """Proposition 3.4, estimated; None if clients are not told apart by anything that is known."""
    differences = seen.differences
    if differences is None:
        return None
    if sites is not None and seen.clients is not None and len(sites) == len(seen.clients):
        rows, ranks = [one["rows"] for one in sites], [one["rank"] for one in sites]
        return heterogeneity.loss_bound(rows, ranks, differences.shrunk(*of_each(seen.clients)))
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
        together = added([{EVERYONE: one} for one in counts.values()])[EVERYONE]
        described = self._described(together, parts=len(counts))
        if self.task.by:
            return {
                **described,
                "groups": {name: self._entry(name, one, widths) for name, one in counts.items()},
            }
        return self._entry(EVERYONE, counts[EVERYONE], widths)

    def of_clients(self, clients: Sequence[Counts]) -> list[dict[str, Any]]:
        """Each client's own rows."""
        entries = []
        for number, one in enumerate(clients):
            together = added([{EVERYONE: part} for part in one.values()])[EVERYONE]
            coverage = self._coverage(together, parts=1).to_json()
            entries.append({"site": f"site {number + 1}", "rows": together.rows, "coverage": coverage})
        return entries

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
        sampling = inside * (1 - inside) / n
        privacy = cells * self.noise.variance * ((1 - inside) ** 2 + inside**2) / n**2
        privacy += self._own_bits(sampling)
        estimate = Estimate(value=v, sampling_variance=sampling, privacy_variance=privacy)
        return bounded(estimate, size=n, level=level)

    def _size(self, counts: CoverageOf, *, parts: int) -> Metric:
        level, reason = self.task.report_level, self._enough(counts, parts=parts)
        if reason is not None:
            return undefined(reason, level=level)
        sizes, n = np.arange(counts.sizes.size), counts.rows
        v = float(counts.sizes @ sizes) / n
        spread = (sizes - v) ** 2
        sampling = max(0.0, float(counts.sizes @ spread)) / n**2
        privacy = 2 * parts * self.noise.variance * float(spread.sum()) / n**2 + self._own_bits(sampling)
        estimate = Estimate(value=v, sampling_variance=sampling, privacy_variance=privacy)
        return unbounded(estimate, level=level, lowest=0.0)

    def _own_bits(self, sampling: float) -> float:
        """What a randomised bit of a client's own cell adds to those of empty cells: one per row, as sampling does."""
        return sampling if self.noise.reporting else 0.0

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
