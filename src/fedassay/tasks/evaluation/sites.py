"""Site by site: a forest table where sites may be seen, and how much they differ in any case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from fedassay.protocol.metrics import compared
from fedassay.protocol.vocabulary import NO_NOISE, Collect, Query, Released, Setting, Sum
from fedassay.summaries.score_histogram import LabelledHistogram
from fedassay.summaries.site_sums import EligibleSites, SiteSums
from fedassay.tasks.evaluation.lockstep import Flow

if TYPE_CHECKING:
    from fedassay.tasks.evaluation.evaluate import Evaluate


def by_site(task: Evaluate, setting: Setting, *, share: float) -> Flow:
    """``sites`` and ``heterogeneity``: from the sites' own histograms, or from sums if those stay hidden."""
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
    """Three sums over sites: who has an estimate, fixed-effect weights, random-effects weights."""
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
    """Of the sums as they arrived: sites may have been lost since they were counted."""
    return Spread.of(fixed).tau2 if fixed.sites >= FEWEST_SITES else 0.0
