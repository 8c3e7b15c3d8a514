"""How a threshold does on held-out rows: coverage, size of the sets, and how much clients differ."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit

from fedassay.estimation.intervals import Estimate, bounded
from fedassay.estimation.metric import Metric, undefined
from fedassay.protocol.vocabulary import Noise, Setting, Step, Unit
from fedassay.summaries.coverage_counts import CoverageOf, WidthSum
from fedassay.summaries.local_quantiles import local_rank
from fedassay.summaries.quantities import QUANTITIES
from fedassay.summaries.scored import EVERYONE
from fedassay.tasks.conformal import heterogeneity
from fedassay.tasks.conformal.held_out import CountsByPart, HeldOutCounts, HeldOutQuestions, added, of_each
from fedassay.tasks.conformal.threshold import Found

if TYPE_CHECKING:
    from fedassay.tasks.conformal.conformal import Conformal

WHOLE_CLIENTS = "whole clients were held out: intervals are for these clients, as if they were all there are"

FEWEST_WIDTHS = 10
"""The mean of fewer widths has no interval that one could believe."""

CLEAR = 4.0
"""A number of rows below so many standard deviations of its noise says nothing."""


def judge(
    task: Conformal, method: str, setting: Setting, found: Mapping[str, Found]
) -> Generator[Step, Any, dict[str, Any]]:
    """``held_out`` and ``heterogeneity``; nothing where each client has a threshold of its own."""
    if any(one.threshold is None for one in found.values()):
        return {"held_out": None, "heterogeneity": None}
    thresholds = {name: float(one.threshold or 0.0) for name, one in found.items()}
    asked = HeldOutQuestions(task=task, thresholds=tuple(thresholds.values()))
    seen = yield from asked.each() if asked.may_see_each(setting) else asked.sums(setting)
    judged = _Judged(task=task, thresholds=thresholds, noise=seen.noise, added=seen.added)
    whole_clients = setting.protection.unit is Unit.CLIENT
    return {
        "held_out": {
            **judged.of(seen.counts, seen.widths),
            **judged.of_classes(seen),
            **({"note": WHOLE_CLIENTS} if whole_clients else {}),
            "sites": None if seen.clients is None else judged.of_clients(seen.clients),
        },
        "heterogeneity": heterogeneity.described(
            seen.differences,
            bound=None if task.condition else _bound(task, method, seen, found[EVERYONE]),
            level=task.level,
            method=method,
        ),
    }


def _bound(task: Conformal, method: str, seen: HeldOutCounts, found: Found) -> float | None:
    """What the differences between clients may take off the marginal coverage; None if nothing is promised or lost.

    Of a quantile of quantiles it is Proposition 3.4, estimated as if all clients had equally many rows: that they have
    not is no difference between their distributions. The quantile of all N scores of K clients covers at least
    ⌈level·(N+1)⌉/(N+K) of the rows of a client drawn by its size (`weighted` has that promise from the start).
    """
    differences, clients, rows = seen.differences, found.clients or 0, found.rows or 0.0
    if differences is None or clients < heterogeneity.FEWEST_CLIENTS or rows <= 0:
        return None
    if method == "pooled":
        return task.level * (clients - 1) / (rows + clients)
    if method not in heterogeneity.QQ:
        return None
    each = max(1, round(rows / clients))
    rank = local_rank("spread" if method == "qq" else "split", clients, each, task.level)
    deviations = differences.spread_evenly(clients)
    if seen.clients is not None and not _apart(seen, clients):
        deviations = differences.shrunk(*of_each(seen.clients))
    return heterogeneity.loss_bound([each] * len(deviations), [rank] * len(deviations), deviations)


def _apart(seen: HeldOutCounts, clients: int) -> bool:
    """Whether those who are seen are others than those who were asked: whole clients are held out then."""
    return seen.clients is None or sum(one[EVERYONE].rows > 0 for one in seen.clients) < clients / 2


# --- answers --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Judged:
    task: Conformal
    thresholds: Mapping[str, float]
    noise: Noise
    added: int = 1

    def of_classes(self, seen: HeldOutCounts) -> dict[str, Any]:
        """The coverage of each class, and the class with the smallest; nothing for sets that are not of classes.

        The interval of the worst class is as much wider as choosing one of so many takes (Bonferroni).
        """
        if not QUANTITIES[self.task.sets].gives_sets or self.task.condition == "group":
            return {}
        alone = self if seen.classes is None else replace(self, noise=seen.classes.noise, added=1)
        counts = seen.counts if seen.classes is None else seen.classes.counts
        covered = {name: alone._coverage(one, parts=1) for name, one in counts.items()}
        known = {name: metric.value for name, metric in covered.items() if metric.value is not None}
        found = None
        if known:
            worst = min(known, key=known.__getitem__)
            level = 1 - (1 - self.task.report_level) / len(covered)
            coverage = alone._coverage(counts[worst], parts=1, level=level).to_json()
            found = {"class": worst, "rows": counts[worst].rows, "coverage": coverage}
        entries = {
            name: {"rows": counts[name].rows, "coverage": metric.to_json()}
            for name, metric in covered.items()
        }
        return {**({} if self.task.condition else {"classes": entries}), "worst_class": found}

    def of(self, counts: CountsByPart, widths: Mapping[str, WidthSum] | None) -> dict[str, Any]:
        """All rows together, and each part of them where they are told apart."""
        together = added([{EVERYONE: one} for one in counts.values()])[EVERYONE]
        described = self._described(together, parts=len(counts) * self.added)
        if self.task.condition:
            return {
                **described,
                "groups": {name: self._entry(name, one, widths) for name, one in counts.items()},
            }
        return self._entry(EVERYONE, counts[EVERYONE], widths)

    def of_clients(self, clients: Sequence[CountsByPart]) -> list[dict[str, Any]]:
        """Each client's own rows."""
        entries = []
        for number, one in enumerate(clients):
            together = added([{EVERYONE: part} for part in one.values()])[EVERYONE]
            coverage = self._coverage(together, parts=1).to_json()
            entries.append({"site": f"site {number + 1}", "rows": together.rows, "coverage": coverage})
        return entries

    def _entry(self, name: str, counts: CoverageOf, widths: Mapping[str, WidthSum] | None) -> dict[str, Any]:
        entry = self._described(counts, parts=self.added)
        if not QUANTITIES[self.task.sets].gives_sets:
            width = None if widths is None else widths[name]
            entry["mean_size"] = self._width(self.thresholds[name], width).to_json()
        return entry

    def _described(self, counts: CoverageOf, *, parts: int) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "rows": counts.rows,
            "coverage": self._coverage(counts, parts=parts).to_json(),
        }
        if QUANTITIES[self.task.sets].gives_sets:
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

    def _coverage(self, counts: CoverageOf, *, parts: int, level: float | None = None) -> Metric:
        level = self.task.report_level if level is None else level
        reason = self._enough(counts, parts=parts)
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
        # As a share of all classes, so that few rows of equal size do not make an interval of no length.
        most = max(1, counts.sizes.size - 1)
        share = Estimate(
            value=v / most, sampling_variance=sampling / most**2, privacy_variance=privacy / most**2
        )
        return _times(bounded(share, size=n, level=level), most)

    def _own_bits(self, sampling: float) -> float:
        """What a randomised bit of a client's own cell adds to those of empty cells: one per row, as sampling does."""
        return sampling if self.noise.reporting else 0.0

    def _width(self, threshold: float, widths: WidthSum | None) -> Metric:
        """The mean width of intervals; known without looking where all are equally wide."""
        level, quantity = self.task.report_level, self.task.sets
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
        if widths.rows < FEWEST_WIDTHS:
            return undefined(f"there are fewer than {FEWEST_WIDTHS} held-out rows", level=level)
        spread = max(0.0, widths.squares / widths.rows - mean**2) / (widths.rows - 1)
        estimate = Estimate(value=mean, sampling_variance=spread, privacy_variance=0.0)
        half = float(stdtrit(widths.rows - 1, (1 + level) / 2)) * math.sqrt(spread)
        return estimate.metric(mean, (max(0.0, mean - half), mean + half), level=level)


def _times(metric: Metric, factor: float) -> Metric:
    """The metric in other units."""
    assert metric.value is not None
    assert metric.interval is not None
    low, high = metric.interval
    return replace(
        metric,
        value=metric.value * factor,
        interval=(low * factor, high * factor),
        sampling=(metric.sampling or 0.0) * factor,
        privacy=(metric.privacy or 0.0) * factor,
    )
