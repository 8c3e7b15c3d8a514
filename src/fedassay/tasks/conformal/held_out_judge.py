"""Evaluation of a threshold on held-out rows: coverage, size of the sets, and how much clients differ."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit

from fedassay.estimation.intervals import Estimate, bounded
from fedassay.estimation.metric import Metric, Undefined, estimator
from fedassay.protocol.vocabulary import Noise, Setting, Step, Unit
from fedassay.summaries.coverage_counts import CoverageOf, WidthSum
from fedassay.summaries.local_quantiles import local_rank
from fedassay.summaries.quantities import QUANTITIES
from fedassay.summaries.scored import EVERYONE
from fedassay.tasks.conformal import heterogeneity
from fedassay.tasks.conformal.held_out import CountsByPart, HeldOutCounts, HeldOutQuestions, of_each, total
from fedassay.tasks.conformal.threshold import Found

if TYPE_CHECKING:
    from fedassay.tasks.conformal.conformal import Conformal

WHOLE_CLIENTS = "whole clients were held out: intervals are for these clients, as if they were all there are"

FEWEST_WIDTHS = 10
"""Smallest number of widths whose mean has an interval that can be believed."""

NO_ROWS = "there are no held-out rows"

CLEAR = 4.0
"""Number of standard deviations of its noise below which a number of rows says nothing."""


def judge(
    task: Conformal, method: str, setting: Setting, found: Mapping[str, Found]
) -> Generator[Step, Any, dict[str, Any]]:
    """Return ``held_out`` and ``heterogeneity``; nothing where each client has a threshold of its own."""
    if any(one.threshold is None for one in found.values()):
        return {"held_out": None, "heterogeneity": None}
    thresholds = {name: float(one.threshold or 0.0) for name, one in found.items()}
    seen = yield from HeldOutQuestions(task=task, thresholds=tuple(thresholds.values())).counts(setting)
    judged = _Judged(task=task, thresholds=thresholds, noise=seen.noise, added=seen.added)
    note = {"note": WHOLE_CLIENTS} if setting.protection.unit is Unit.CLIENT else {}
    return {
        "held_out": {
            **judged.of(seen.counts, seen.widths),
            **judged.of_classes(seen),
            **note,
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
    """Bound the loss of marginal coverage by differences between clients; None if nothing is promised or lost.

    For a quantile of quantiles it is Proposition 3.4, estimated as if all clients had equally many rows: unequal
    numbers are no difference between their distributions. The quantile of all N scores of K clients covers at least
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
    # Where whole clients are held out, the clients that are seen are not those that were asked.
    if sum(one[EVERYONE].rows > 0 for one in seen.clients or ()) >= clients / 2:
        deviations = differences.shrunk(*of_each(seen.clients or ()))
    return heterogeneity.loss_bound([each] * len(deviations), [rank] * len(deviations), deviations)


# --- answers --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Judged:
    task: Conformal
    thresholds: Mapping[str, float]
    noise: Noise
    added: int = 1

    def of_classes(self, seen: HeldOutCounts) -> dict[str, Any]:
        """Return the coverage of each class, and the class with the smallest; nothing for sets that are not of classes.

        The interval of the worst class is widened for the choice among the classes (Bonferroni).
        """
        if not QUANTITIES[self.task.sets].gives_sets or self.task.condition == "group":
            return {}
        counts, noise = seen.classes or (seen.counts, seen.noise)
        alone = replace(self, noise=noise)
        entries = {name: alone._rows(one) for name, one in counts.items()}
        known = {name: entry["coverage"]["value"] for name, entry in entries.items()}
        known = {name: value for name, value in known.items() if value is not None}
        found = None
        if known:
            worst = min(known, key=known.__getitem__)
            level = 1 - (1 - self.task.report_level) / len(entries)
            found = {"class": worst, **alone._rows(counts[worst], level=level)}
        return {**({} if self.task.condition else {"classes": entries}), "worst_class": found}

    def of(self, counts: CountsByPart, widths: Mapping[str, WidthSum] | None) -> dict[str, Any]:
        """Return all rows together, and each part of them where parts are distinguished."""
        groups = {name: self._entry(name, one, widths) for name, one in counts.items()}
        if not self.task.condition:
            return groups[EVERYONE]
        together = self._described(total(counts.values()), parts=len(counts) * self.added)
        return {**together, "groups": groups}

    def of_clients(self, clients: Sequence[CountsByPart]) -> list[dict[str, Any]]:
        """Return the rows and the coverage of each client."""
        every = [total(one.values()) for one in clients]
        return [{"site": f"site {number}", **self._rows(one)} for number, one in enumerate(every, start=1)]

    def _rows(self, counts: CoverageOf, *, level: float | None = None) -> dict[str, Any]:
        """Return the rows of one part and their coverage."""
        level = self.task.report_level if level is None else level
        return {"rows": counts.rows, "coverage": self._coverage(counts, parts=1, level=level).to_json()}

    def _entry(self, name: str, counts: CoverageOf, widths: Mapping[str, WidthSum] | None) -> dict[str, Any]:
        entry = self._described(counts, parts=self.added)
        if not QUANTITIES[self.task.sets].gives_sets:
            width = None if widths is None else widths[name]
            metric = self._width(self.thresholds[name], width, level=self.task.report_level)
            entry["mean_size"] = metric.to_json()
        return entry

    def _described(self, counts: CoverageOf, *, parts: int) -> dict[str, Any]:
        level = self.task.report_level
        coverage = self._coverage(counts, parts=parts, level=level)
        entry: dict[str, Any] = {"rows": counts.rows, "coverage": coverage.to_json()}
        if QUANTITIES[self.task.sets].gives_sets:
            entry["mean_size"] = self._size(counts, parts=parts, level=level).to_json()
            entry["size_counts"] = [float(number) for number in counts.sizes]
        return entry

    def _require_rows(self, counts: CoverageOf, *, parts: int) -> float:
        """Return the number of rows, if it stands out from the noise of all cells; else raise `Undefined`."""
        cells = 2 * parts * counts.sizes.size
        if counts.rows <= max(0.0, CLEAR * math.sqrt(cells * self.noise.variance)):
            raise Undefined(NO_ROWS if self.noise.variance == 0 else "not enough rows for the noise")
        return counts.rows

    @estimator
    def _coverage(self, counts: CoverageOf, *, parts: int, level: float) -> Metric:
        n = self._require_rows(counts, parts=parts)
        v, cells = counts.covered / n, parts * counts.sizes.size
        estimate = replace(coverage_estimate(min(1.0, max(0.0, v)), n, cells, self.noise), value=v)
        return bounded(estimate, size=n, level=level)

    @estimator
    def _size(self, counts: CoverageOf, *, parts: int, level: float) -> Metric:
        n, sizes = self._require_rows(counts, parts=parts), np.arange(counts.sizes.size)
        v = float(counts.sizes @ sizes) / n
        spread = (sizes - v) ** 2
        sampling = max(0.0, float(counts.sizes @ spread)) / n**2
        privacy = 2 * parts * self.noise.variance * float(spread.sum()) / n**2 + own_bits(
            self.noise, sampling
        )
        # As a share of all classes, so that few rows of equal size do not make an interval of no length.
        most = max(1, counts.sizes.size - 1)
        share = Estimate(
            value=v / most, sampling_variance=sampling / most**2, privacy_variance=privacy / most**2
        )
        return bounded(share, size=n, level=level).times(most)

    @estimator
    def _width(self, threshold: float, widths: WidthSum | None, *, level: float) -> Metric:
        """Estimate the mean width of intervals, which is known without data where all are equally wide."""
        if self.task.sets in ("conformity", "value"):
            raise Undefined("a score of your own does not say how large its sets are")
        if math.isinf(threshold):
            raise Undefined("the sets hold everything")
        if self.task.sets == "absolute":
            width = 2 * threshold
            known = Estimate(value=width, sampling_variance=0.0, privacy_variance=0.0)
            return known.metric(width, (width, width), level=level)
        if widths is None:
            raise Undefined("widths are not asked for under noise")
        mean = widths.mean
        if mean is None:
            raise Undefined(NO_ROWS)
        if widths.rows < FEWEST_WIDTHS:
            raise Undefined(f"there are fewer than {FEWEST_WIDTHS} held-out rows")
        spread = max(0.0, widths.squares / widths.rows - mean**2) / (widths.rows - 1)
        estimate = Estimate(value=mean, sampling_variance=spread, privacy_variance=0.0)
        half = float(stdtrit(widths.rows - 1, (1 + level) / 2)) * math.sqrt(spread)
        return estimate.metric(mean, (max(0.0, mean - half), mean + half), level=level)


def coverage_estimate(value: float, rows: float, cells: float, noise: Noise) -> Estimate:
    """Return the estimate of a coverage in [0, 1] from `rows` rows, counted in `cells` cells with this noise."""
    sampling = value * (1 - value) / rows
    privacy = cells * noise.variance * ((1 - value) ** 2 + value**2) / rows**2
    return Estimate(
        value=value, sampling_variance=sampling, privacy_variance=privacy + own_bits(noise, sampling)
    )


def own_bits(noise: Noise, sampling: float) -> float:
    """Return what a randomised bit of a client's own cell adds to those of empty cells: one per row, as in sampling."""
    return sampling if noise.reporting else 0.0
