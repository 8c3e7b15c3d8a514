"""Figures 6 and 10: the Hosmer-Lemeshow statistic under noise, and how often the test rejects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.stats import norm

from experiments import bands, plots
from experiments.bands import Axis, Curve, Drawing, Frame, Spot
from experiments.common import generator
from experiments.ecdf_mechanisms import REPLACE
from experiments.ecdf_synthetic import Runs
from experiments.models import Scored
from fedassay.estimation.metric import LEVEL, Undefined
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Budget, Neighbours, Protection, Randomness, Setting, Sum
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.distribution.calibration_groups import from_evidence
from fedassay.tasks.distribution.hosmer_lemeshow import HosmerLemeshow
from fedassay.tasks.evaluation import Evaluate
from fedassay.trust import Plain, ServerDP

PUBLISHED, CORRECTED, FREE = "published", "corrected", "free"
METHODS = (PUBLISHED, CORRECTED, FREE)
GROUPS, SIZE = 10, 0.05

CHI_SQUARED, NOISY_NULL = "published, χ²(Q − 2)", "published, null with noise"
PLUG_IN = {CORRECTED: "corrected, Eq. 5", FREE: "free, Eq. 5"}
STYLES = {
    CHI_SQUARED: plots.PUBLISHED_STYLE,
    NOISY_NULL: plots.SECOND_PUBLISHED_STYLE,
    CORRECTED: plots.Style(colour="#009E73"),
    PLUG_IN[CORRECTED]: plots.Style(colour="#009E73", dash=(2, 2)),
    FREE: plots.Style(colour="#0072B2"),
    PLUG_IN[FREE]: plots.Style(colour="#0072B2", dash=(2, 2)),
}

ERROR, POWER, FALSE_ALARM = "relative squared error", "real labels", "labels as predicted"
ANSWERED = "answered"


@dataclass(frozen=True, kw_only=True)
class Scope:
    """How much is measured."""

    epsilons: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    runs: int = 100
    neighbours: Neighbours = REPLACE
    seed: int = 20231115


Answer = Mapping[str, Any]
"""``hosmer_lemeshow`` of a result."""


def asked(method: str, scored: Scored, setting: Setting, randomness: Randomness) -> Answer:
    """What the task says about these rows, its sums drawn by the trust model."""
    if method == FREE:
        return _free(scored, setting, randomness)
    steps = HosmerLemeshow(method=method, groups=GROUPS).steps(setting)
    query = next(steps)
    while True:
        plan = setting.trust.plan(query, setting)
        total, _ = query.of.measure(scored, {})
        (release,) = setting.trust.aggregate([plan], [total], len(scored), randomness)
        try:
            query = steps.send(release.with_value(query.of.read(release.value)))
        except StopIteration as done:
            answer: Answer = done.value["hosmer_lemeshow"]
            return answer


def _free(scored: Scored, setting: Setting, randomness: Randomness) -> Answer:
    """The task's own steps, but for the choice of the histogram, which is made once and not in every run."""
    histogram = _histogram(setting)
    plan = setting.trust.plan(Sum(of=histogram), setting)
    total, _ = histogram.measure(scored, {})
    (release,) = setting.trust.aggregate([plan], [total], len(scored), randomness)
    evidence = histogram.read(release.value).evidence(release.noise)
    test = HosmerLemeshow(method=FREE, groups=GROUPS, level=LEVEL)
    try:
        return test.moment_test(from_evidence(evidence, GROUPS)).to_json()
    except Undefined as error:
        return {"value": None, "reason": str(error)}


@lru_cache(maxsize=64)
def _histogram(setting: Setting) -> ScoreHistogram:
    return Evaluate().histogram(setting)


def private(scored: Scored, epsilon: float, neighbours: Neighbours) -> Setting:
    """A trusted server."""
    return Setting(
        trust=ServerDP(),
        protection=Protection(neighbours=neighbours),
        budget=Budget(epsilon=epsilon),
        clients=len(scored),
    )


def exact(scored: Scored) -> Answer:
    """The statistic of the rows, without noise."""
    setting = Setting(trust=Plain(), protection=Protection(), budget=None, clients=len(scored))
    return asked(CORRECTED, scored, setting, SimulatedRandomness(0))


def equation_5(answer: Answer) -> float:
    """H from the released groups, as if they were exact."""
    terms = []
    for group in answer["groups"]:
        squared = (group["observed"] - group["expected"]) ** 2
        terms.append(squared / group["expected"] + squared / (group["rows"] - group["expected"]))
    return math.fsum(terms)


def measured(scored: Scored, scope: Scope) -> Runs:
    """Squared errors of the statistic over its square, and rejections (1 or 0) of real and of predicted labels."""
    found, truth = Runs(), float(exact(scored)["value"])

    def keep(what: str, name: str, epsilon: float, value: float) -> None:
        found.setdefault((what, name), {}).setdefault(epsilon, []).append(value)

    for run in range(scope.runs):
        drawn = scored.as_predicted(generator(scope.seed, scored.name, "labels", str(run)))
        for what, rows in ((POWER, scored), (FALSE_ALARM, drawn)):
            for method in METHODS:
                for epsilon in scope.epsilons:
                    path = (scored.name, what, method, scope.neighbours, str(epsilon), str(run))
                    setting = private(scored, epsilon, scope.neighbours)
                    answer = asked(method, rows, setting, SimulatedRandomness(scope.seed, *path))
                    for name, p_value in _p_values(method, answer).items():
                        keep(what, name, epsilon, float(p_value is not None and p_value < SIZE))
                        keep(ANSWERED, name, epsilon, float(p_value is not None))
                    if what == POWER and answer["value"] is not None:
                        for name, value in _values(method, answer).items():
                            keep(ERROR, name, epsilon, (value / truth - 1) ** 2)
    return found


def _p_values(method: str, answer: Answer) -> dict[str, float | None]:
    """What the test goes by. Without a p-value it does not reject."""
    if method == PUBLISHED:
        return {CHI_SQUARED: answer.get("asymptotic_p_value"), NOISY_NULL: answer.get("p_value")}
    return {method: answer.get("p_value")}


def _values(method: str, answer: Answer) -> dict[str, float]:
    if method == PUBLISHED:
        return {CHI_SQUARED: answer["value"]}
    return {method: answer["value"], PLUG_IN[method]: equation_5(answer)}


# --- figure -------------------------------------------------------------------------------------------------------

TICKS = (0.05, 0.2, 1.0, 5.0)


def figure(several: Sequence[tuple[Scored, Runs]], scope: Scope) -> Drawing:
    """A row for each data set: errors, false alarms, power."""
    rows = [
        [
            _errors(scored, found),
            _rates(FALSE_ALARM, "rejected: labels as predicted", found, level=SIZE),
            _rates(POWER, "rejected: real labels", found),
        ]
        for scored, found in several
    ]
    return bands.page(rows, STYLES, f"Hosmer-Lemeshow, Q = {GROUPS}, {scope.neighbours}", columns=6)


def _errors(scored: Scored, found: Runs) -> Frame:
    names = (CHI_SQUARED, *(name for method in (CORRECTED, FREE) for name in (method, PLUG_IN[method])))
    return Frame(
        title=f"{scored.name}, {len(scored):,} rows",
        x=Axis(title="ε", ticks=TICKS),
        y=Axis(title="relative squared error (median)", form=".0e"),
        curves={name: _medians(found, name) for name in names},
        width=245,
    )


def _medians(found: Runs, name: str) -> Curve:
    """Medians, because the mean is what the worst run says where a denominator may be near zero."""
    spots = []
    for epsilon, runs in sorted(found[ERROR, name].items()):
        low, middle, high = np.quantile(runs, [0.25, 0.5, 0.75])
        spots.append(Spot(x=epsilon, y=float(middle), low=float(low), high=float(high)))
    return spots


def _rates(what: str, title: str, found: Runs, level: float | None = None) -> Frame:
    names = (CHI_SQUARED, NOISY_NULL, CORRECTED, FREE)
    ticks = (0.0, 0.25, 0.5, 0.75, 1.0)
    return Frame(
        title="",
        x=Axis(title="ε", ticks=TICKS),
        y=Axis(title=title, log=False, domain=(0.0, 1.02), ticks=ticks, form=".0%"),
        curves={name: [_rate(x, runs) for x, runs in sorted(found[what, name].items())] for name in names},
        level=level,
        width=205,
    )


def _rate(x: float, runs: Sequence[float]) -> Spot:
    """The share of ones with its Wilson interval at one standard error."""
    n, z2 = len(runs), float(norm.ppf(0.841345)) ** 2
    share = float(np.mean(runs))
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    return Spot(x=x, y=share, low=min(share, middle - half), high=max(share, middle + half))
