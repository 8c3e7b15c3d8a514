"""Intervals and bands of a released distribution cover the truth, for all mechanisms and trust models that sum.

95 % intervals of quantiles and of the area under the ROC curve cover in at least 93 % of runs; simultaneous bands hold
everywhere in at least 95 %. Quantiles may be covered more often: a leaf is added, and binomial quantiles are not cut
in half. Intervals half as wide and bands a quarter as wide are rejected, and so are intervals that forget the noise.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom, norm

from drawn_values import Servers, draw, leaves, setting_of
from fedassay.estimation.count_noise import PrefixNoise
from fedassay.estimation.ranking import roc_auc
from fedassay.protocol.vocabulary import NO_NOISE, Sum, TrustModel
from fedassay.tasks.distribution import SearchQuantiles
from fedassay.tasks.distribution.curve import ReleasedCurve, Shown, quantile_entry
from fedassay.tasks.distribution.mechanisms import chosen, name_of
from fedassay.tasks.distribution.stored import Release
from fedassay.trust import DistributedDP, LocalDP, ServerDP
from stated import Verify

LEAST, LEVEL = 0.93, 0.95
FALSE_ALARM = 1e-3
"""The probability that a test here fails although all coverages are as stated, divided among its comparisons."""

MEANS, DEVIATION, POSITIVES = (0.42, 0.58), 0.11, 0.4
QUANTILES = (0.1, 0.5, 0.9)
AUC = float(norm.cdf((MEANS[1] - MEANS[0]) / DEVIATION / math.sqrt(2)))


def distribution(x: np.ndarray, label: int | None = None) -> np.ndarray:
    of_class = [norm.cdf(x, mean, DEVIATION) for mean in MEANS]
    if label is not None:
        return of_class[label]
    return POSITIVES * of_class[1] + (1 - POSITIVES) * of_class[0]


TRUTH = {q: brentq(lambda x, q=q: distribution(x) - q, 0, 1) for q in QUANTILES}


def sample(rows: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    label = (rng.random(rows) < POSITIVES).astype(np.int8)
    return {"value": rng.normal(np.where(label, MEANS[1], MEANS[0]), DEVIATION), "label": label}


@dataclass(frozen=True)
class Case:
    mechanism: str
    trust: TrustModel
    epsilon: float
    delta: float
    rows: int
    clients: int = 40
    rows_per_client: int | None = None

    def __str__(self) -> str:
        return f"{self.mechanism}, {self.trust.name}, delta {self.delta:g}"


CASES = (
    Case("tree", ServerDP(), 0.5, 0.0, 2_000),
    Case("path", ServerDP(), 1.0, 0.0, 2_000),
    Case("factorised", ServerDP(), 0.7, 1e-6, 2_000),
    Case("tree", DistributedDP(), 0.5, 0.0, 2_000),
    Case("factorised", DistributedDP(), 0.7, 1e-6, 2_000),
    Case("path", LocalDP(), 4.0, 1e-6, 8_000),
    Case("tree", LocalDP(), 2.0, 0.0, 20_000, clients=20_000, rows_per_client=1),
)


def releases(case: Case, runs: int, seed: int = 1) -> Any:
    bound = {} if case.rows_per_client is None else {"rows_per_client": case.rows_per_client}
    setting = setting_of(case.trust, case.epsilon, case.delta, clients=case.clients, **bound)
    query = Sum(of=chosen(leaves(256, labelled=True), setting, mechanism=case.mechanism))
    assert name_of(query.of, setting.noise(query)) == case.mechanism
    rng = np.random.default_rng(seed)
    for run in range(runs):
        released = draw(query, setting, sample(case.rows, rng), run)
        yield Release.of(released.value, released.noise)


def covers(interval: Any, truth: float, value: float | None = None, factor: float = 1.0) -> bool:
    low, high = interval
    if value is not None:
        low, high = (value + factor * (end - value) for end in interval)
    return bool(low <= truth <= high)


def holds(curve: ReleasedCurve, label: int | None) -> tuple[bool, bool]:
    """Whether the band holds at all points, and whether one a quarter as wide does."""
    lower, upper = curve.band(level=LEVEL)
    truth = distribution(curve.grid.thresholds, label)
    truth[-1] = 1.0  # values above the range count as its end

    def all_within(factor: float) -> bool:
        low, high = (curve.monotone + factor * (end - curve.monotone) for end in (lower, upper))
        return bool(((low <= truth + 1e-12) & (truth <= high + 1e-12)).all())

    return all_within(1.0), all_within(0.25)


def simulate(
    case: Case, runs: int, *, bands: tuple[str, ...] = ("all",)
) -> tuple[dict[str, list[bool]], dict[str, list[bool]]]:
    """For each statement whether it held in each run; the same for narrower ones."""
    hits, narrow = defaultdict(list), defaultdict(list)
    for release in releases(case, runs):
        everyone = release.everyone
        shown = Shown.of(everyone, smoothing="isotonic", smoothed_points=None)
        for q in QUANTILES:
            entry = quantile_entry(everyone, shown, q, level=LEVEL)
            hits[f"quantile {q}"].append(covers(entry["interval"], TRUTH[q]))
            narrow[f"quantile {q}"].append(covers(entry["interval"], TRUTH[q], entry["value"], 0.5))
        metric = roc_auc(release.evidence)
        hits["area"].append(covers(metric.interval, AUC))
        narrow["area"].append(covers(metric.interval, AUC, metric.value, 0.5))
        for name in bands:
            held, held_narrow = holds(
                release.named(name), {"all": None, "positives": 1, "negatives": 0}[name]
            )
            hits[f"band of {name}"].append(held)
            narrow[f"band of {name}"].append(held_narrow)
    return hits, narrow


def too_low(hits: list[bool], least: float, comparisons: int) -> bool:
    return sum(hits) < binom.ppf(FALSE_ALARM / comparisons, len(hits), least)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_truth_is_covered(case: Case) -> None:
    hits, narrow = simulate(case, runs=200)
    for name, held in hits.items():
        least = LEVEL if "band" in name else LEAST
        assert not too_low(held, least, len(hits)), (name, np.mean(held))
    for name, held in narrow.items():
        least = LEVEL if "band" in name else LEAST
        assert too_low(held, least, len(hits)), f"{name}: narrower ones must be rejected, {np.mean(held)}"


def without_noise(curve: ReleasedCurve) -> ReleasedCurve:
    """As if there were none."""
    none = np.zeros_like(curve.law.below)
    return replace(curve, noise=NO_NOISE, law=PrefixNoise(below=none, joint=none, total=0.0), reports=None)


@pytest.mark.parametrize(
    "case", [Case("tree", ServerDP(), 0.1, 0.0, 4_000), Case("path", ServerDP(), 0.3, 0.0, 4_000)], ids=str
)
def test_intervals_that_forget_the_noise_are_rejected(case: Case) -> None:
    hits, wrong = [], []
    for release in releases(case, runs=200):
        curve = release.everyone
        shown = Shown.of(curve, smoothing="isotonic", smoothed_points=None)
        for variant, outcomes in ((curve, hits), (without_noise(curve), wrong)):
            entry = quantile_entry(variant, shown, 0.5, level=LEVEL)
            outcomes.append(covers(entry["interval"], TRUTH[0.5]))
    assert not too_low(hits, LEAST, 2), np.mean(hits)
    assert too_low(wrong, LEAST, 2), np.mean(wrong)


# --- by search ----------------------------------------------------------------------------------------------


def searched(rows: int, scale: float, runs: int) -> tuple[dict[float, list[bool]], dict[float, list[bool]]]:
    """Whether the intervals of a search among 2^20 points covered; the same for those a third as wide."""
    task = SearchQuantiles(points=1 << 20, quantiles=QUANTILES)
    rng = np.random.default_rng(2)
    hits, narrow = defaultdict(list), defaultdict(list)
    for run in range(runs):
        results = Servers(sample(rows, rng)["value"], scale, seed=run).run(task)
        for entry in results["quantiles"]:
            q = entry["quantile"]
            hits[q].append(covers(entry["interval"], TRUTH[q]))
            narrow[q].append(covers(entry["interval"], TRUTH[q], entry["value"], 1 / 3))
    return hits, narrow


def test_intervals_by_search_cover() -> None:
    hits, narrow = searched(rows=5_000, scale=11.0, runs=200)
    for q in QUANTILES:
        assert not too_low(hits[q], LEAST, 6), (q, np.mean(hits[q]))
        assert too_low(narrow[q], LEAST, 6), (q, np.mean(narrow[q]))


@pytest.mark.full
def test_stated_coverage_by_search(verify: Verify) -> None:
    hits, _ = searched(rows=5_000, scale=11.0, runs=2_000)
    shares = {q: float(np.mean(held)) for q, held in hits.items()}
    verify(
        "quantiles by search among 2^20 points on two servers, epsilon 1: 95 % intervals >= 93 %",
        ", ".join(f"{q:g}: {share:.1%}" for q, share in shares.items()),
    )
    assert min(shares.values()) >= LEAST


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=str)
def test_stated_coverage(case: Case, verify: Verify) -> None:
    hits, _ = simulate(case, runs=2_000, bands=("all", "positives", "negatives"))
    shares = {name: float(np.mean(held)) for name, held in hits.items()}
    verify(
        f"distribution, {case}: 95 % intervals of three quantiles and the AUC >= 93 %, three bands >= 95 %",
        ", ".join(f"{name} {share:.1%}" for name, share in shares.items()),
    )
    for name, share in shares.items():
        assert share >= (LEVEL - 3 * math.sqrt(0.95 * 0.05 / 2_000) if "band" in name else LEAST), name
