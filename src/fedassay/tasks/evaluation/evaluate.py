"""The task: one release of a score histogram, and everything that can be said from it.

What each threshold from 0.01 to 0.99 would mean: for whoever looks for the one to use.

Intervals are for one threshold at a time. Whoever picks the best of 99 has looked at all of them: the curves with bands
for all thresholds at once are in `curves`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from fedassay.errors import ParameterError
from fedassay.estimation import curves
from fedassay.estimation.calibration_error import Buckets
from fedassay.estimation.confusion import Confusion
from fedassay.estimation.evidence import Evidence, plausible
from fedassay.estimation.intervals import z_value
from fedassay.estimation.least_squares import least_squares, mean_prefix_variance, ranked_widths
from fedassay.estimation.metric import LEVEL, Metric, Undefined
from fedassay.estimation.ranking import auc_binning_bound
from fedassay.protocol.arrays import Floats
from fedassay.protocol.metrics import MetricRecord, of_part
from fedassay.protocol.vocabulary import NO_NOISE, Noise, Released, Setting, Sum
from fedassay.summaries.grid import LARGEST_REACH
from fedassay.summaries.grouped_histogram import GroupedHistogram, checked_groups
from fedassay.summaries.score_histogram import LabelledHistogram, ScoreHistogram
from fedassay.tasks.evaluation.accuracy import (
    AUC,
    PREVALENCE,
    expected_auc_noise,
    expected_evidence,
    hanley_mcneil_variance,
)
from fedassay.tasks.evaluation.lockstep import Flow, together
from fedassay.tasks.evaluation.parameters import EvaluateParameters
from fedassay.tasks.evaluation.sites import by_site
from fedassay.tasks.evaluation.stored import histogram_to_json, threshold_entry
from fedassay.tasks.evaluation.versus import against

# --- what each threshold from 0 -----------------------------------------------------------------------------

THRESHOLDS = tuple(percent / 100 for percent in range(1, 100))


def operating_points(evidence: Evidence, *, level: float = LEVEL) -> dict[str, Any]:
    """Metrics of the decision ``score >= threshold`` at 99 thresholds, each with the interval it has by itself.

    Each threshold is applied at the nearest edge of the grid, which ``applied`` names; the numbers are those of
    `stored.threshold_entry` there. Each metric is a mapping of the lists ``value``, ``lower`` and ``upper``, None where
    it is undefined. ``predicted_positives`` is the share of the rows at or above the threshold.

    Free: computed from what has been released.

    Examples
    --------
    >>> import numpy as np
    >>> from fedassay.protocol.vocabulary import NO_NOISE
    >>> from fedassay.summaries.score_histogram import ScoreHistogram
    >>> summary = ScoreHistogram(transform="uniform", height=2)
    >>> evidence = summary.read(np.array([0, 1, 2, 3, 4, 0, 1, 0])).evidence(NO_NOISE)
    >>> points = operating_points(evidence)
    >>> points["thresholds"][49], points["applied"][49], round(points["precision"]["value"][49], 3)
    (0.5, 0.5, 0.833)
    """
    found = [Confusion.at(evidence, threshold) for threshold in THRESHOLDS]
    return {
        "thresholds": list(THRESHOLDS),
        "applied": [confusion.threshold for confusion in found],
        "level": level,
        "rows": evidence.rows,
        **{record.name: _lists(_metrics(record, found, level)) for record in of_part("operating-point")},
    }


def _metrics(record: MetricRecord, found: list[Confusion], level: float) -> list[Metric]:
    estimate = record.estimator
    return [estimate(confusion, level=level) for confusion in found]


def _lists(metrics: list[Metric]) -> dict[str, list[float | None]]:
    ends = [metric.interval or (None, None) for metric in metrics]
    return {
        "value": [metric.value for metric in metrics],
        "lower": [low for low, _ in ends],
        "upper": [high for _, high in ends],
    }


# --- which levels a histogram should have under noise -------------------------------------------------------

_CANDIDATES = 20
"""Fan-outs that are compared by the expected error of the AUC, out of the best for sums up to an edge."""

TYPICAL_ROWS = 1e5

_LOWEST = 5
"""The least height that is tried."""

_FEW = 4
"""Up to so many levels all small multipliers are tried, beyond those on a line between two."""

_SLOPES = ((1, 1), (1, 2), (2, 3), (1, 3), (3, 5))
"""Multipliers of the finest and of the coarsest level."""


def expected_rows(setting: Setting) -> float | None:
    """How many rows there would be if all clients had reached their bound; None if they have none."""
    per_client = setting.protection.rows_per_client
    return None if per_client is None else max(2.0, setting.clients * per_client)


def least_noisy(histogram: ScoreHistogram, setting: Setting) -> ScoreHistogram:
    """The same bins, with the levels and the division of the budget among them that serve the metrics best.

    Among the fan-outs with the smallest mean variance of a sum up to an edge, and multipliers that give
    coarser levels more of the budget, the pair with the smallest product of two errors: the noise of the AUC
    that a typical model would have (balanced classes, AUC 0.8), which counts twice, and that of a sum up to an
    edge, on which decisions and calibration rest. The AUC alone would take budget from the finest level until
    sums had three times the variance.
    """

    def with_levels(widths: tuple[int, ...], multipliers: tuple[int, ...]) -> ScoreHistogram:
        return replace(histogram, widths=widths, multipliers=multipliers)

    def equal_levels(levels: int) -> float:
        flat = with_levels(tuple(1 << level for level in range(levels)), (1,) * levels)
        return setting.noise(Sum(of=flat)).variance

    divisible = not setting.noise(Sum(of=histogram)).reporting  # who reports on one level counts as it is
    rows = expected_rows(setting) or TYPICAL_ROWS

    def expected_error(candidate: ScoreHistogram) -> float:
        noise = setting.noise(Sum(of=candidate))
        sums = mean_prefix_variance(least_squares(candidate.tree, candidate.multipliers, noise))
        return expected_auc_noise(candidate, noise, rows=rows) ** 2 * math.sqrt(sums)

    candidates = [
        with_levels(widths, multipliers)
        for widths in ranked_widths(histogram.grid.leaves, equal_levels, keep=_CANDIDATES)
        for multipliers in (slopes(len(widths)) if divisible else [(1,) * len(widths)])
    ]
    return min(candidates, key=expected_error)


def most_telling(finest: ScoreHistogram, setting: Setting) -> ScoreHistogram:
    """These bins or coarser ones: those with the shortest interval for the AUC of a typical model.

    The fewer rows there are, the more noise weighs against binning. How many rows there are is not public; where
    clients have a bound, they are taken to have reached it, else the finest bins are taken.
    """
    rows = expected_rows(setting)
    if rows is None:
        return least_noisy(finest, setting)

    def half_width(histogram: ScoreHistogram) -> float:
        noise = setting.noise(Sum(of=histogram))
        expected = {"rows": rows, "prevalence": PREVALENCE, "auc": AUC}
        binning = auc_binning_bound(expected_evidence(histogram, noise=NO_NOISE, **expected))
        sampling = hanley_mcneil_variance(AUC, positives=rows * PREVALENCE, negatives=rows * (1 - PREVALENCE))
        privacy = expected_auc_noise(histogram, noise, **expected) ** 2
        return z_value(LEVEL) * math.sqrt(sampling + privacy) + binning

    lowest = max(_LOWEST, (len(finest.thresholds) + 1).bit_length())
    candidates = [replace(finest, height=height) for height in range(lowest, finest.height + 1)]
    return min((least_noisy(candidate, setting) for candidate in candidates or [finest]), key=half_width)


def slopes(levels: int) -> Iterator[tuple[int, ...]]:
    """Multipliers for so many levels: equal ones, and those that rise towards the coarser levels.

    Examples
    --------
    >>> list(slopes(2))
    [(1, 1), (1, 2), (1, 3), (2, 3)]
    """
    if levels <= _FEW:
        for rising in combinations_with_replacement((1, 2, 3), levels):
            if math.gcd(*rising) == 1:
                yield rising
        return
    for low, high in _SLOPES:
        yield tuple(int(m) for m in np.round(np.linspace(low, high, levels)))


# --- how scores are distributed in each class ---------------------------------------------------------------

BUCKETS = (40, 20, 10, 5)
"""How many buckets there may be; under noise the first number that is `CLEAR`, else the last."""

CLEAR = 0.25
"""The noise of a bucket, as a share of the rows it would hold if all held the same, up to which shapes can be seen."""

CROWDED = 0.1
"""If nine rows of ten have scores within so small a range, equal buckets would show one column."""


def score_distribution(evidence: Evidence) -> dict[str, Any]:
    """Rows of each class in some 40 buckets of the score: ``edges``, ``positives``, ``negatives``.

    ``spacing`` is ``uniform``, or ``logit`` where nearly all scores crowd in a small range; edges are those of the grid
    that are nearest. Where there is ``noise``, it holds the standard deviation of each count, and there are
    fewer buckets if it would drown 40 of them. Without enough rows of a class the lists are empty, with a ``reason``.

    Guarantee: counts are sums of released ones, so nothing more is released. They are not negative and add up to
    the rows of the class: under noise, the rows below each edge are made monotone (isotonic regression), which
    brings none of them farther from the truth than noise has brought the worst. For the eye only: no metric is
    computed from them.

    Examples
    --------
    >>> from fedassay.protocol.vocabulary import NO_NOISE
    >>> from fedassay.summaries.score_histogram import ScoreHistogram
    >>> summary = ScoreHistogram(transform="uniform", height=2)
    >>> released = summary.read(np.array([0, 1, 2, 3, 4, 0, 1, 0]))
    >>> found = score_distribution(released.evidence(NO_NOISE))
    >>> found["edges"], found["positives"], found["negatives"]
    ([0.0, 0.25, 0.5, 0.75, 1.0], [0.0, 1.0, 2.0, 3.0], [4.0, 0.0, 1.0, 0.0])
    """
    try:
        P, N = evidence.require_classes()
    except Undefined as error:
        nothing: dict[str, Any] = {"spacing": "uniform", "edges": [], "positives": [], "negatives": []}
        return {**nothing, "noise": None, "reason": str(error)}
    crowd = _crowd(evidence)
    for buckets in BUCKETS:
        places = _places(evidence, buckets, crowd)
        deviations = _deviations(evidence, places)
        if deviations.mean() <= CLEAR * min(P, N) / buckets:
            break
    counts = (plausible(below[places]) for below in (evidence.positives_below, evidence.negatives_below))
    positives, negatives = (count.tolist() for count in counts)
    noise = {"positives": deviations[0].tolist(), "negatives": deviations[1].tolist()}
    return {
        "spacing": "uniform" if crowd is None else "logit",
        "edges": evidence.edges[places].tolist(),
        "positives": positives,
        "negatives": negatives,
        "noise": None if evidence.exact else noise,
    }


def _crowd(evidence: Evidence) -> tuple[float, float] | None:
    """The logits between which nearly all scores are, if these crowd."""
    below = np.concatenate([[0.0], np.cumsum(plausible(np.concatenate([[0.0], np.cumsum(evidence.counts)])))])
    shares = below / below[-1]
    edges = evidence.edges
    low, high = (float(np.interp(share, shares, edges)) for share in (0.05, 0.95))
    if high - low >= CROWDED:
        return None
    inner = edges[1:-1]
    ends = (np.interp(share, shares, edges) for share in (0.002, 0.998))
    first, last = (float(logit(np.clip(end, inner[0], inner[-1]))) for end in ends)
    return first, max(last, first + 1.0)


def _places(evidence: Evidence, buckets: int, crowd: tuple[float, float] | None) -> NDArray[np.int64]:
    """The edges of the grid that are nearest to the wanted ones, both ends among them, each once."""
    wanted = (
        np.linspace(0, 1, buckets + 1)[1:-1] if crowd is None else expit(np.linspace(*crowd, buckets - 1))
    )
    inner = sorted({evidence.nearest_edge(float(edge)) for edge in wanted} - {0})
    return np.array([0, *inner, evidence.leaves], dtype=np.int64)


def _deviations(evidence: Evidence, places: NDArray[np.int64]) -> Floats:
    """The standard deviation that noise gives to the rows of each bucket: positives, then negatives."""
    buckets = len(places) - 1
    if evidence.exact:
        return np.zeros((2, buckets))
    inside = np.repeat(np.arange(buckets), np.diff(places)) == np.arange(buckets)[:, None]
    none = np.zeros(evidence.leaves)
    # One variance at a time: their covariances, which nobody asks for, would take ten times as long.
    positives = [evidence.privacy_variance(rows, none) for rows in inside.astype(np.float64)]
    negatives = [evidence.privacy_variance(none, rows) for rows in inside.astype(np.float64)]
    return np.sqrt([positives, negatives])


# --- subgroups ----------------------------------------------------------------------------------------------

MOST_NUMBERS = 1 << 19
"""Without noise and without a given height, histograms of many groups get coarser bins instead of a longer vector."""


def by_group(task: Evaluate, setting: Setting, *, share: float) -> Flow:
    """The results of an evaluation, with an entry for each group in ``groups``."""
    groups = checked_groups(task.groups)
    summary = GroupedHistogram.like(_histogram(task, setting, parts=len(groups) + 1), groups=groups)
    released: Released[dict[str, LabelledHistogram]] = yield Sum(of=summary, share=share)
    return {
        **task.results(whole(released)),
        "groups": [
            {"group": name, **task.entry(histogram.evidence(released.noise))}
            for name, histogram in released.value.items()
        ],
    }


def _histogram(task: Evaluate, setting: Setting, *, parts: int) -> ScoreHistogram:
    histogram = task.histogram(setting)
    noisy = setting.noise(Sum(of=histogram)).variance > 0
    if noisy or task.height is not None or parts * histogram.length <= MOST_NUMBERS:
        return histogram
    surplus = (parts * histogram.length - 1) // MOST_NUMBERS
    return replace(task, height=histogram.height - surplus.bit_length()).histogram(setting)


def whole(released: Released[dict[str, LabelledHistogram]]) -> Released[LabelledHistogram]:
    """All groups together. The noise of independent releases adds up, and so does its variance."""
    return Released(
        value=total(released.value),
        noise=_added(released.noise, times=len(released.value)),
        clients=released.clients,
    )


def total(parts: Mapping[str, LabelledHistogram]) -> LabelledHistogram:
    """The histogram of the rows of all parts."""
    histograms = list(parts.values())
    return replace(
        histograms[0],
        positives=np.sum([histogram.positives for histogram in histograms], axis=0),
        negatives=np.sum([histogram.negatives for histogram in histograms], axis=0),
    )


def _added(noise: Noise, *, times: int) -> Noise:
    if noise.variance == 0:
        return noise
    return replace(noise, variance=times * noise.variance, copies=times * noise.copies)


# --- the task -----------------------------------------------------------------------------------------------

EXACT_HEIGHT = 15
"""Without noise: 32,768 bins, of which 16,384 uniform and 16,384 logit-spaced if mixed."""

NOISY_HEIGHT = 10
"""Under noise: more bins add noise to every sum over them, and 1,024 keep the binning bound below the
sampling error up to about 10^5 rows. `fedassay plan` says where others would serve better."""

NOISY_REACH = 8.0
"""Under noise, logit-spaced bins end at ±8 (a score of 3e-4): bins further out hold hardly a row, but their
noise would weigh on the log loss and the calibration slope in proportion to their logit."""


@dataclass(frozen=True, kw_only=True)
class Evaluate(EvaluateParameters):
    """Every standard metric of a binary classifier, with intervals, from one release.

    Thresholds become edges of the grid, so that metrics at them are exact (`metrics_at` asks for others later). The
    binning bound of ``mixed`` bins is never above that of uniform or logit ones: looking at the data to choose could
    not do better, and would cost budget. Groups share one budget: the whole is the sum of the groups and of the rows
    outside them, with the noise of all of them.

    Guarantee: everything returned is computed from what is released for the one budget; without `versus` and
    `per_site`, that is a single `Sum`. Rows are assumed independent, for intervals.

    Reference: Cormode and Markov (2023); docs/explanation/evaluation.md has the formulas.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.thresholds:
            raise ParameterError(
                "thresholds", "got none, expected at least one number from 0 to 1, such as 0.5."
            )
        object.__setattr__(self, "groups", checked_groups(self.groups) if self.groups else ())
        if self.groups and self.versus:
            raise ParameterError(
                "versus",
                "got it together with `by`, expected one of them: a paired difference in each group would divide the "
                "budget of one comparison; compare the models on the rows of one group instead.",
            )
        for height, reach in ((EXACT_HEIGHT, LARGEST_REACH), (NOISY_HEIGHT, NOISY_REACH)):
            # Refuses thresholds that do not fit into the bins, before any row is read.
            self._histogram(height if self.height is None else self.height, reach)

    def steps(self, setting: Setting) -> Flow:
        """Ask for one histogram, or what the options need; the ``results`` object of the public contract."""
        if not self.per_site:
            return (yield from self._rows(setting, share=1.0))
        # No noise, so the shares are only told apart.
        parts = yield from together(self._rows(setting, share=0.5), by_site(self, setting, share=0.5))
        return {name: value for part in parts for name, value in part.items()}

    def _rows(self, setting: Setting, *, share: float) -> Flow:
        """What all rows say, whoever holds them."""
        if self.groups:
            return (yield from by_group(self, setting, share=share))
        if self.versus:
            return (yield from against(self, setting, share=share))
        released: Released[LabelledHistogram] = yield Sum(of=self.histogram(setting), share=share)
        return self.results(released)

    def histogram(self, setting: Setting) -> ScoreHistogram:
        """The histogram to ask for, chosen from public settings only: how much noise it would get.

        The task remembers what it has chosen for a setting: it is rehearsed before it is run. As long as nobody knows
        how many clients there are (0), the finest histogram stands for the one that will be chosen.
        """
        if setting not in self._chosen:
            self._chosen[setting] = self._choose(setting)
        return self._chosen[setting]

    @cached_property
    def _chosen(self) -> dict[Setting, ScoreHistogram]:
        return {}

    def _choose(self, setting: Setting) -> ScoreHistogram:
        exact = self._histogram(EXACT_HEIGHT if self.height is None else self.height, LARGEST_REACH)
        if setting.noise(Sum(of=exact)).variance == 0:
            return exact
        finest = self._histogram(NOISY_HEIGHT if self.height is None else self.height, NOISY_REACH)
        if setting.clients == 0:
            return finest
        return most_telling(finest, setting) if self.height is None else least_noisy(finest, setting)

    def _histogram(self, height: int, reach: float) -> ScoreHistogram:
        # The ends of uniform buckets are edges too, so that the uniform calibration error has exact buckets.
        edges = (*self.thresholds, *(j / self.buckets for j in range(1, self.buckets)))
        transform = "mixed" if self.transform == "auto" else self.transform
        return ScoreHistogram(transform=transform, height=height, thresholds=edges, reach=reach)

    def results(self, released: Released[LabelledHistogram]) -> dict[str, Any]:
        """All metrics and curves of a release, as plain JSON."""
        evidence = released.value.evidence(released.noise)
        equi_depth = Buckets.equi_depth(evidence, self.buckets)
        return {
            **self._all_metrics(evidence),
            "roc_curve": curves.roc_curve(evidence, level=self.level),
            "precision_recall_curve": curves.precision_recall_curve(evidence, level=self.level),
            "reliability_curve": curves.reliability_curve(equi_depth, level=self.level),
            "net_benefit_curve": curves.net_benefit_curve(evidence, level=self.level),
            "operating_points": operating_points(evidence, level=self.level),
            "score_distribution": score_distribution(evidence),
            "buckets": equi_depth.to_json(),
            "histogram": {"rows": evidence.rows, **histogram_to_json(released.value, released.noise)},
        }

    def entry(self, evidence: Evidence) -> dict[str, Any]:
        """The metrics of some of the rows, or of another model, as plain JSON: a group, a site, the other model."""
        return {"rows": evidence.rows, **self._all_metrics(evidence)}

    def _all_metrics(self, evidence: Evidence) -> dict[str, Any]:
        entries = [threshold_entry(evidence, threshold, level=self.level) for threshold in self.thresholds]
        first = {name: metric for name, metric in entries[0].items() if name not in ("threshold", "applied")}
        return {
            **{name: metric.to_json() for name, metric in self.metrics(evidence).items()},
            **first,
            "thresholds": entries,
        }

    def metrics(self, evidence: Evidence) -> dict[str, Metric]:
        """The metrics that need no threshold, by name."""
        return {
            record.name: record.of(evidence, level=self.level, buckets=self.buckets)
            for record in of_part("rows")
        }
