"""Evaluation task: one release of a score histogram, and every metric that follows from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from fedassay.errors import ParameterError
from fedassay.estimation import curves
from fedassay.estimation.calibration_error import Buckets
from fedassay.estimation.evidence import Evidence, plausible
from fedassay.estimation.metric import Metric, Undefined
from fedassay.protocol.arrays import Floats
from fedassay.protocol.metrics import of_part
from fedassay.protocol.vocabulary import Noise, Released, Setting, Sum
from fedassay.summaries.grid import LARGEST_REACH
from fedassay.summaries.grouped_histogram import GroupedHistogram, checked_groups
from fedassay.summaries.score_histogram import LabelledHistogram, ScoreHistogram
from fedassay.tasks.evaluation.accuracy import least_noisy, most_telling
from fedassay.tasks.evaluation.comparisons import Flow, against, by_site, together
from fedassay.tasks.evaluation.parameters import EvaluateParameters
from fedassay.tasks.evaluation.stored import histogram_to_json, operating_points, threshold_entry

# --- distribution of the scores in each class ---------------------------------------------------------------

BUCKETS = (40, 20, 10, 5)
"""Possible numbers of buckets; under noise the first number that is `CLEAR`, else the last."""

CLEAR = 0.25
"""Largest noise of a bucket that leaves shapes visible, relative to its rows if all buckets held the same."""

CROWDED = 0.1
"""Range of scores; if nine rows of ten lie within a smaller range, equal buckets would show one column."""


def score_distribution(evidence: Evidence) -> dict[str, Any]:
    """Count the rows of each class in some 40 buckets of the score: ``edges``, ``positives``, ``negatives``.

    ``spacing`` is ``uniform``, or ``logit`` where nearly all scores crowd in a small range; edges are those of the grid
    that are nearest. Where there is ``noise``, it holds the standard deviation of each count, and there are
    fewer buckets if it would hide 40 of them. Without enough rows of a class the lists are empty, with a ``reason``.

    Guarantee: counts are sums of released counts, so nothing more is released. They are not negative and add up to
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
        lists: dict[str, Any] = {"edges": [], "positives": [], "negatives": []}
        return {"spacing": "uniform", **lists, "noise": None, "reason": str(error)}
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
    """Return the logits between which nearly all scores lie, if these are within a small range."""
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
    """Return the edges of the grid nearest to the wanted edges, including both ends, each once."""
    wanted = (
        np.linspace(0, 1, buckets + 1)[1:-1] if crowd is None else expit(np.linspace(*crowd, buckets - 1))
    )
    inner = sorted({evidence.nearest_edge(float(edge)) for edge in wanted} - {0})
    return np.array([0, *inner, evidence.leaves], dtype=np.int64)


def _deviations(evidence: Evidence, places: NDArray[np.int64]) -> Floats:
    """Compute the standard deviation of the noise in the rows of each bucket: positives, then negatives."""
    buckets = len(places) - 1
    if evidence.exact:
        return np.zeros((2, buckets))
    inside = np.repeat(np.arange(buckets), np.diff(places)) == np.arange(buckets)[:, None]
    none = np.zeros(evidence.leaves)
    # One variance at a time: their covariances are not needed and would take ten times as long.
    positives = [evidence.privacy_variance(rows, none) for rows in inside.astype(np.float64)]
    negatives = [evidence.privacy_variance(none, rows) for rows in inside.astype(np.float64)]
    return np.sqrt([positives, negatives])


# --- subgroups ----------------------------------------------------------------------------------------------

MOST_NUMBERS = 1 << 19
"""Length of a vector above which many groups get coarser bins, without noise and without a given height."""


def by_group(task: Evaluate, setting: Setting, *, share: float) -> Flow:
    """Return the results of an evaluation, with an entry for each group in ``groups``."""
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
    """Add up all groups."""
    first, *others = released.value.values()
    every = replace(
        first,
        positives=sum((other.positives for other in others), first.positives),
        negatives=sum((other.negatives for other in others), first.negatives),
    )
    return Released(value=every, noise=added(released.noise, times=1 + len(others)), clients=released.clients)


def added(noise: Noise, *, times: int) -> Noise:
    """Return the noise of the sum of this number of independent releases: noise and variance add up."""
    if noise.variance == 0:
        return noise
    return replace(noise, variance=times * noise.variance, copies=times * noise.copies)


# --- the task -----------------------------------------------------------------------------------------------

EXACT_HEIGHT = 15
"""Height without noise: 32,768 bins, of which 16,384 uniform and 16,384 logit-spaced if mixed."""

NOISY_HEIGHT = 10
"""Height under noise: more bins add noise to every sum over them, and 1,024 keep the binning bound below the
sampling error up to about 10^5 rows. `fedassay plan` reports where another height would serve better."""

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

    Guarantee: everything returned is computed from the releases for the one budget; without `versus` and
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
        """Ask for one histogram, or what the options need; return ``results`` of the public contract."""
        if not self.per_site:
            return (yield from self._rows(setting, share=1.0))
        # There is no noise, so the shares only have to be given.
        parts = yield from together(self._rows(setting, share=0.5), by_site(self, setting, share=0.5))
        return {name: value for part in parts for name, value in part.items()}

    def _rows(self, setting: Setting, *, share: float) -> Flow:
        """Return the results over the rows of all sites together."""
        if self.groups:
            return (yield from by_group(self, setting, share=share))
        if self.versus:
            return (yield from against(self, setting, share=share))
        released: Released[LabelledHistogram] = yield Sum(of=self.histogram(setting), share=share)
        return self.results(released)

    def histogram(self, setting: Setting) -> ScoreHistogram:
        """Choose the histogram to ask for, from public settings only: the amount of noise it would get.

        The task remembers its choice for a setting: it is rehearsed before it is run. While the number of clients is
        unknown (0), the finest histogram stands for the histogram that will be chosen.
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
        """Return all metrics and curves of a release, as plain JSON."""
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
        """Return the metrics of some of the rows (a group, a site), or of the other model, as plain JSON."""
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
        """Return the metrics that need no threshold, by name."""
        return {
            record.name: record.of(evidence, level=self.level, buckets=self.buckets)
            for record in of_part("rows")
        }
