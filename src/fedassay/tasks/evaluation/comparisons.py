"""Comparisons: two models on the same rows, sites, and several flows of queries as a single flow.

Two models: the difference of their AUC and of their Brier score, with paired intervals. First the histograms of both
models, counted on the same rows. Then, with both distributions public, four small sums over the rows (`PairedMoments`):
the difference in rank of each row, and the difference of its squared errors. Neither can be read from two histograms,
because they do not link the rows that they share.

Sites: a forest table where they may be seen, and their heterogeneity in any case.

Reference: DeLong, DeLong and Clarke-Pearson (1988), Biometrics 44, 837-845.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import isotonic_regression

from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.heterogeneity import (
    FEWEST_SITES,
    Spread,
    WeightedSums,
    not_pooled,
    pooled,
    site_estimate,
    weighted_sums,
)
from fedassay.estimation.intervals import Estimate, z_value
from fedassay.estimation.metric import LEVEL, Metric, Undefined, estimator
from fedassay.estimation.ranking import auc_binning_bound, auc_influence, auc_privacy_variance
from fedassay.estimation.ratios import brier_score
from fedassay.protocol.arrays import Floats
from fedassay.protocol.metrics import compared
from fedassay.protocol.vocabulary import NO_NOISE, Collect, Query, Released, Setting, Step, Sum
from fedassay.summaries.bounded_sums import ONE, PairedMoments, PairedSums, capacity_for, packed
from fedassay.summaries.score_histogram import (
    Both,
    LabelledHistogram,
    PairedHistograms,
    ScoreHistogram,
    VersusHistogram,
)
from fedassay.summaries.site_sums import EligibleSites, SiteSums

if TYPE_CHECKING:
    from fedassay.tasks.evaluation.evaluate import Evaluate

Flow = Generator[Step, Any, dict[str, Any]]
"""A part of a task: yields steps as a task does and returns its part of the results."""


def together(*flows: Flow) -> Generator[Step, Any, list[dict[str, Any]]]:
    """Run the flows in lockstep until all have returned, and return their results.

    Each flow is sent exactly the answer to its request, a release for a query and a tuple for a tuple.
    """
    returned: list[dict[str, Any]] = [{} for _ in flows]
    waiting: dict[int, Step] = {}

    def go_on(place: int, answer: Any) -> None:
        try:
            waiting[place] = flows[place].send(answer)
        except StopIteration as finished:
            waiting.pop(place, None)
            returned[place] = finished.value

    for place in range(len(flows)):
        go_on(place, None)
    while waiting:
        asked = dict(waiting)
        answers = iter((yield tuple(query for step in asked.values() for query in _queries(step))))
        for place, step in asked.items():
            mine = tuple(next(answers) for _ in _queries(step))
            go_on(place, mine if isinstance(step, tuple) else mine[0])
    return returned


def _queries(step: Step) -> tuple[Query[Any], ...]:
    return step if isinstance(step, tuple) else (step,)


# --- two models on the same rows ----------------------------------------------------------------------------

HISTOGRAMS_SHARE, MOMENTS_SHARE = 0.8, 0.2
"""Parts of the budget: both histograms, and the sums.

The noise of the AUC difference goes with 1/HISTOGRAMS_SHARE, that of the Brier difference with 1/MOMENTS_SHARE. With
these parts both are the same multiple of the sampling error of their difference, for a typical pair of models (AUC
0.8, balanced classes, placements that differ by 0.15 and squared errors by 0.1) and any number of rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleasedPair:
    """Releases about two models on the same rows."""

    first: Evidence
    second: Evidence
    moments: Released[PairedSums]

    @property
    def noise(self) -> float:
        """The variance of the noise in a sum of squares; a sum of b has a quarter of it."""
        return self.moments.noise.variance / ONE**2


def against(task: Evaluate, setting: Setting, *, share: float) -> Flow:
    """Return the results of an evaluation, with ``versus``, the second model's, and their ``difference``."""
    histogram = task.histogram(setting)
    # A query that cannot be answered is refused before the first row is read, not after half the budget is spent.
    nothing = np.zeros(histogram.grid.leaves)
    moments_share = share * MOMENTS_SHARE
    setting.noise(Sum(of=_moments(histogram, setting, *[nothing] * 4), share=moments_share))
    released = yield from _histograms(histogram, setting, share=share * HISTOGRAMS_SHARE)
    first, second = (one.value.evidence(one.noise) for one in released)
    tables = (*placements(first), *placements(second))
    moments: Released[PairedSums] = yield Sum(of=_moments(histogram, setting, *tables), share=moments_share)
    pair = ReleasedPair(first=first, second=second, moments=moments)
    return {
        **task.results(released[0]),
        "versus": task.entry(second),
        "difference": {
            "roc_auc": auc_difference(pair, level=task.level).to_json(),
            "brier_score": brier_difference(pair, level=task.level).to_json(),
        },
    }


def _histograms(
    histogram: ScoreHistogram, setting: Setting, *, share: float
) -> Generator[Step, Any, tuple[Released[LabelledHistogram], ...]]:
    """Return the histograms of both models, each with its noise."""
    if setting.noise(Sum(of=histogram)).reporting:
        # A client that reports on one cell of one histogram is asked for each of them.
        queries = (
            Sum(of=histogram, share=share / 2),
            Sum(of=VersusHistogram.like(histogram), share=share / 2),
        )
        released: tuple[Released[LabelledHistogram], ...] = yield queries
        return released
    both: Released[Both] = yield Sum(of=PairedHistograms.like(histogram), share=share)
    return tuple(both.with_value(one) for one in both.value)


def _moments(histogram: ScoreHistogram, setting: Setting, *tables: Floats) -> PairedMoments:
    return PairedMoments(
        transform=histogram.transform,
        height=histogram.height,
        thresholds=histogram.thresholds,
        reach=histogram.reach,
        placements=packed(*tables),
        capacity=capacity_for(setting.clients, largest=2 * ONE),
    )


def placements(evidence: Evidence) -> tuple[Floats, Floats]:
    """Return for each leaf the share of negatives that a positive beats, and of positives that beat a negative.

    Ties count half. Under noise both are made monotone first; they only ever enter a variance.
    """
    beaten = _share_below(evidence.negatives, exact=evidence.exact)
    return beaten, 1 - _share_below(evidence.positives, exact=evidence.exact)


def _share_below(counts: Floats, *, exact: bool) -> Floats:
    below = np.concatenate([[0.0], np.cumsum(counts)])
    if below[-1] <= 0:
        return np.zeros(len(counts))
    shares = below / below[-1] if exact else np.asarray(isotonic_regression(below / below[-1]).x)
    shares = np.clip(shares, 0.0, 1.0)
    return np.asarray((shares[1:] + shares[:-1]) / 2)


@estimator
def auc_difference(pair: ReleasedPair, *, level: float = LEVEL) -> Metric:
    """Estimate the first model's AUC minus the second's, from their histograms.

    * sampling: DeLong's variance of a paired difference, S10/P + S01/N, where S are the variances of the
      differences of placements in each class (their means are the difference itself).
    * privacy: the noise of the two histograms is independent, so the variances add.
    * discretisation: the two bounds add.
    """
    models = (pair.first, pair.second)
    P, N = (sum(sizes) / 2 for sizes in zip(*(model.require_classes() for model in models), strict=True))
    if P <= 1 or N <= 1:
        raise Undefined("a variance needs at least two rows of each class")
    parts = [auc_influence(model) for model in models]
    value = parts[0][0] - parts[1][0]
    moments = pair.moments.value
    sampling = (moments.positive_squares - P * value**2) / (P * (P - 1)) + (
        moments.negative_squares - N * value**2
    ) / (N * (N - 1))
    deviation = math.sqrt(pair.noise * (1 / (P * (P - 1)) ** 2 + 1 / (N * (N - 1)) ** 2))
    both = list(zip(models, parts, strict=True))
    single = sum(math.sqrt(model.sampling_variance(*part[1:])) for model, part in both)
    estimate = Estimate(
        value=value,
        sampling_variance=_sensible(sampling, deviation, single**2),
        privacy_variance=sum(auc_privacy_variance(model, *part) for model, part in both),
        discretisation=sum(map(auc_binning_bound, models)),
    )
    return _metric(estimate, level=level)


@estimator
def brier_difference(pair: ReleasedPair, *, level: float = LEVEL) -> Metric:
    """Estimate the first model's Brier score minus the second's: a mean over rows, from scores and not from bins.

    The number of rows is that of the histograms, both averaged, with their noise; `discretisation` is a
    bound on the effect of rounding each row to fixed point.
    """
    n = (pair.first.require_rows() + pair.second.require_rows()) / 2
    if n <= 1:
        raise Undefined("a variance needs at least two rows")
    moments = pair.moments.value
    value = min(1.0, max(-1.0, moments.losses / n))
    sampling = (moments.loss_squares - n * value**2) / (n * (n - 1))
    single = [brier_score(evidence, level=level).sampling or 0.0 for evidence in (pair.first, pair.second)]
    rows_variance = (pair.first.count_noise.rows + pair.second.count_noise.rows) / 4  # of their average
    estimate = Estimate(
        value=value,
        sampling_variance=_sensible(sampling, math.sqrt(pair.noise) / (n * (n - 1)), sum(single) ** 2),
        privacy_variance=(pair.noise / 4 + value**2 * rows_variance) / n**2,
        discretisation=1 / (4 * ONE),
    )
    return _metric(estimate, level=level)


def _sensible(variance: float, deviation: float, most: float) -> float:
    """Bound a sampling variance from noisy sums, below by what its noise can hide, above by the largest of any pair.

    `deviation` is that of its noise (0 without), `most` the square of the sum of the single standard errors: the
    variance of a difference whose parts err in opposite directions.
    """
    return variance if deviation == 0 else min(max(variance, deviation), max(most, 0.0))


def _metric(estimate: Estimate, *, level: float) -> Metric:
    half = z_value(level) * estimate.standard_error + estimate.discretisation
    low, value, high = (min(1.0, max(-1.0, estimate.value + move)) for move in (-half, 0.0, half))
    return estimate.metric(value, (low, high), level=level)


# --- site by site -------------------------------------------------------------------------------------------


def by_site(task: Evaluate, setting: Setting, *, share: float) -> Flow:
    """Return ``sites`` and ``heterogeneity``, from the sites' histograms, or from sums if hidden."""
    if setting.trust.private:
        raise UsageError(
            f"per-site: under {setting.trust.name} no estimate of a single site can be given, because one row "
            "can move a site's estimate and its weight as far as they go, so noise that hides a row would hide "
            "the site; use `privacy='secure-sum'` or plain, or `by` with the site's column for noisy groups."
        )
    collect = Collect(of=task.histogram(setting), share=share)
    if not _answers(collect, setting):
        return (yield from _hidden(task, setting, share=share))
    released: Released[tuple[LabelledHistogram, ...]] = yield collect
    evidences = [histogram.evidence(NO_NOISE) for histogram in released.value]
    return {
        "sites": [
            {"site": f"site {place + 1}", **task.entry(evidence)} for place, evidence in enumerate(evidences)
        ],
        "heterogeneity": {metric: _of_known(metric, evidences, level=task.level) for metric in compared()},
    }


def _answers(query: Query[Any], setting: Setting) -> bool:
    try:
        setting.noise(query)
    except UnsupportedQuery:
        return False
    return True


def _of_known(metric: str, evidences: list[Evidence], *, level: float) -> dict[str, Any]:
    estimates = [site_estimate(metric, evidence) for evidence in evidences]
    fixed = weighted_sums(estimates)
    if fixed.sites < FEWEST_SITES:
        return not_pooled(fixed.sites, asked=len(evidences), level=level)
    random = weighted_sums(estimates, tau2=Spread.of(fixed).tau2)
    return pooled(metric, fixed, random, asked=len(evidences), level=level)


def _hidden(task: Evaluate, setting: Setting, *, share: float) -> Flow:
    """Ask for three sums over sites: sites with an estimate, fixed-effect and random-effects weights."""
    histogram = task.histogram(setting)

    def sums(metrics: tuple[str, ...], tau2: tuple[float, ...] = ()) -> Sum[dict[str, WeightedSums]]:
        return Sum(of=SiteSums.like(histogram, metrics=metrics, tau2=tau2), share=share / 3)

    eligible: Released[dict[str, int]] = yield Sum(of=EligibleSites.like(histogram), share=share / 3)
    metrics = tuple(name for name, count in eligible.value.items() if count >= FEWEST_SITES)
    entries = {
        name: not_pooled(count, asked=eligible.clients, level=task.level)
        for name, count in eligible.value.items()
    }
    if metrics:
        fixed: Released[dict[str, WeightedSums]] = yield sums(metrics)
        tau2 = tuple(_tau2(fixed.value[name]) for name in metrics)
        random: Released[dict[str, WeightedSums]] = yield sums(metrics, tau2)
        for name in metrics:
            one, two = fixed.value[name], random.value[name]
            if min(one.sites, two.sites) >= FEWEST_SITES:
                entries[name] = pooled(name, one, two, asked=random.clients, level=task.level)
    reason = (
        f"{setting.trust.name} shows no single site; how much sites differ comes from sums over all of them"
    )
    return {"sites": None, "sites_reason": reason, "heterogeneity": entries}


def _tau2(fixed: WeightedSums) -> float:
    """Compute tau² from the sums as they arrived: sites may have been lost since they were counted."""
    return Spread.of(fixed).tau2 if fixed.sites >= FEWEST_SITES else 0.0
