"""Do the intervals of comparisons cover? Paired differences, wholes made of groups, means over sites.

The probability of a false alarm is stated, and every test is shown to reject a deliberately broken variant.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

import fedassay
from binormal import Population, discrete_laplace_law
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.heterogeneity import SiteEstimate, Spread, pooled, weighted_sums
from fedassay.estimation.ranking import roc_auc
from fedassay.protocol.parameters import INTERNAL
from fedassay.protocol.vocabulary import Budget, Noise, Protection, Released, Setting
from fedassay.summaries.grouped_histogram import GroupedHistogram, fingerprints
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.evaluation import Evaluate
from fedassay.tasks.evaluation.evaluate import whole
from hit_counts import LEAST, MOST, too_high, too_low
from pairs import Twins, driven

# --- paired differences -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class OnlyTheDifference(Evaluate):
    """Nothing but the difference is computed, and the errors of the single models; bins are chosen once."""

    bins: ScoreHistogram = field(metadata=INTERNAL)

    def histogram(self, setting: Setting) -> ScoreHistogram:
        return self.bins

    def results(self, released: Any) -> dict[str, Any]:
        return self.entry(released.value.evidence(released.noise))

    def entry(self, evidence: Evidence) -> dict[str, Any]:
        return {"roc_auc": roc_auc(evidence).to_json()}


@dataclass(frozen=True)
class Case:
    name: str
    twins: Twins
    rows: int
    epsilon: float | None

    def __str__(self) -> str:
        return self.name

    @property
    def sharp(self) -> tuple[str, ...]:
        """Where intervals must not be too wide: the binning bound of a noisy AUC is added in full."""
        return ("roc_auc", "brier_score") if self.epsilon is None else ("brier_score",)

    @property
    def setting(self) -> Setting:
        trust = fedassay.Plain() if self.epsilon is None else fedassay.ServerDP()
        budget = None if self.epsilon is None else Budget(epsilon=self.epsilon)
        return Setting(trust=trust, protection=Protection(), budget=budget, clients=10)


CASES = (
    Case("exact", Twins(), 1_500, None),
    Case("exact, rare", Twins(prevalence=0.05, correlation=0.9), 4_000, None),
    Case("noise", Twins(), 4_000, 1.0),
    Case("much noise", Twins(correlation=0.9), 1_000, 1.0),
)


def laplace(noise: Noise, size: int, rng: np.random.Generator) -> Any:
    if noise.variance == 0:
        return 0
    assert noise.law == "discrete-laplace"
    p = -math.expm1(-1 / noise.scale)  # the difference of two geometric draws is discrete Laplace
    return rng.geometric(p, size) - rng.geometric(p, size)


def simulate(case: Case, runs: int) -> Mapping[str, list[bool]]:
    """Hits by metric, and those of broken variants: half as wide, without noise, without the pairing."""
    rng = np.random.default_rng(11)
    task = OnlyTheDifference(versus=True, bins=Evaluate().histogram(case.setting))
    truths = {metric: case.twins.truth(metric) for metric in ("roc_auc", "brier_score")}
    hits: dict[str, list[bool]] = defaultdict(list)
    for _ in range(runs):
        data = case.twins.sample(case.rows, rng)
        results = driven(task, case.setting, data, lambda noise, size: laplace(noise, size, rng))
        for metric, entry in results["difference"].items():
            truth = truths[metric]
            low, high = entry["interval"]
            distance, error = abs(entry["value"] - truth), entry["error"]
            hits[metric].append(low <= truth <= high)
            hits[f"{metric}, half as wide"].append(distance <= (high - low) / 4)
            alone = 1.96 * error["sampling"] + error["discretisation"]
            hits[f"{metric}, noise forgotten"].append(distance <= alone)
        auc = results["difference"]["roc_auc"]
        apart = math.hypot(*(one["roc_auc"]["error"]["sampling"] for one in (results, results["versus"])))
        hits["unpaired"].append(
            abs(auc["value"] - truths["roc_auc"]) <= 1.96 * math.hypot(apart, auc["error"]["privacy"])
        )
    return hits


@pytest.mark.parametrize("case", CASES, ids=str)
def test_paired_differences_cover(case: Case) -> None:
    hits = simulate(case, runs=300)
    for metric in ("roc_auc", "brier_score"):
        assert not too_low(hits[metric], 4), (metric, np.mean(hits[metric]))
        assert too_low(hits[f"{metric}, half as wide"], 4), metric
        if metric in case.sharp:
            assert not too_high(hits[metric], 4), (metric, np.mean(hits[metric]))
        if case.epsilon is not None:
            assert too_low(hits[f"{metric}, noise forgotten"], 4), metric
    if case.name == "exact":
        assert too_high(hits["unpaired"], 4), np.mean(hits["unpaired"])


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=str)
def test_stated_coverage_of_paired_differences(case: Case, verify) -> None:
    hits = simulate(case, runs=2_000)
    shares = {metric: float(np.mean(hits[metric])) for metric in ("roc_auc", "brier_score")}
    verify(
        f"95 % intervals of paired differences, {case.name} ({case.rows:,} rows): at least 93 %, at most 97 % for "
        f"{' and '.join(case.sharp)}",
        f"AUC {shares['roc_auc']:.1%}, Brier score {shares['brier_score']:.1%}",
    )
    assert all(share >= LEAST for share in shares.values())
    assert all(shares[metric] <= MOST for metric in case.sharp)


# --- a whole made of groups ---------------------------------------------------------------------------------


def test_the_whole_covers_with_the_noise_of_all_groups_and_not_with_that_of_one() -> None:
    population, groups = Population(0.5), tuple("abcdefg")
    summary = GroupedHistogram(groups=groups, transform="uniform", height=8, widths=(1, 16))
    noise = discrete_laplace_law(summary.sensitivity(Protection()).l1 / 1.0)
    rng, truth = np.random.default_rng(12), population.truth(0.5)["roc_auc"]
    hits, forgetful = [], []

    class Rows:
        def __init__(self) -> None:
            scores, labels = population.sample(2_000, rng)
            self.batch = {
                "score": scores,
                "label": labels,
                "group": fingerprints(groups)[rng.integers(0, 7, 2_000)],
            }

        def batches(self) -> Any:
            yield self.batch

    for _ in range(200):
        total = summary.measure(Rows(), {})[0] + laplace(noise, summary.length, rng)
        released = whole(Released(value=summary.read(total), noise=noise, clients=3))
        for found, law in ((hits, released.noise), (forgetful, noise)):
            low, high = roc_auc(released.value.evidence(law)).interval or (0, 0)
            found.append(low <= truth <= high)
    assert not too_low(hits, 2), np.mean(hits)
    assert not too_high(hits, 2), np.mean(hits)
    assert too_low(forgetful, 2), np.mean(forgetful)


# --- means over sites ---------------------------------------------------------------------------------------


def analysed(sites: int, tau: float, runs: int) -> dict[str, list[bool]]:
    """Hits of the mean's interval, of the prediction interval for a further site, and of broken variants."""
    rng = np.random.default_rng(13)
    hits: dict[str, list[bool]] = defaultdict(list)
    for _ in range(runs):
        v = rng.gamma(4, 0.01, sites)
        y = 0.7 + tau * rng.normal(size=sites) + np.sqrt(v) * rng.normal(size=sites)
        new = 0.7 + tau * rng.normal()
        estimates = [SiteEstimate(*pair) for pair in zip(y, v, strict=True)]
        fixed = weighted_sums(estimates)
        tau2 = Spread.of(fixed).tau2
        entry = pooled(
            "calibration_slope", fixed, weighted_sums(estimates, tau2=tau2), asked=sites, level=0.95
        )
        hits["mean"].append(entry["interval"][0] <= 0.7 <= entry["interval"][1])
        hits["new"].append(entry["prediction_interval"][0] <= new <= entry["prediction_interval"][1])
        half = float(ndtri(0.975)) / math.sqrt(float(fixed.w))
        hits["fixed"].append(abs(float(fixed.wy / fixed.w) - 0.7) <= half)
        hits["new as the mean"].append(entry["interval"][0] <= new <= entry["interval"][1])
    return hits


@pytest.mark.parametrize("sites", [5, 12])
def test_means_over_sites_and_predictions_cover(sites: int) -> None:
    hits = analysed(sites, tau=0.4, runs=600)
    for name in ("mean", "new"):
        assert not too_low(hits[name], 4, least=0.92), (name, np.mean(hits[name]))
        assert not too_high(hits[name], 4), (name, np.mean(hits[name]))
    assert too_low(hits["fixed"], 4), "weights that ignore the spread between sites must be rejected"
    assert too_low(hits["new as the mean"], 4), "the interval of the mean is none for a new site"


def test_sites_that_do_not_differ_are_covered_too() -> None:
    """Here the interval may be too wide (it is never narrower than that of fixed weights), not too narrow."""
    assert not too_low(analysed(6, tau=0.0, runs=400)["mean"], 1)


@pytest.mark.full
@pytest.mark.parametrize("sites", [5, 12, 40])
def test_stated_coverage_of_means_over_sites(sites: int, verify) -> None:
    hits = analysed(sites, tau=0.4, runs=4_000)
    shares = {name: float(np.mean(hits[name])) for name in ("mean", "new")}
    verify(
        f"95 % intervals over {sites} sites (Hartung-Knapp mean, prediction of a new site): 92-97 %",
        f"mean {shares['mean']:.1%}, new site {shares['new']:.1%}; fixed weights {np.mean(hits['fixed']):.1%}",
    )
    assert all(0.92 <= share <= MOST for share in shares.values())
