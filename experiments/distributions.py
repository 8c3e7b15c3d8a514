"""Private distribution functions, after Barczewski, Mawass and Ramon: their Figures 1 to 10, beside our mechanisms.

    python -m experiments.distributions                          the page, about five minutes of one core
    python -m experiments.distributions --quick --folder FOLDER  the same on little, to see that it runs

Writes the SVGs and the tables of docs/experiments/distributions.md. Data: the folder that FEDASSAY_DATA names.
Figure 7, times, is drawn by benchmarks/smoothing.py.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from experiments import ecdf_hosmer_lemeshow as hosmer
from experiments import ecdf_roc as roc
from experiments import ecdf_synthetic as synthetic
from experiments import plots
from experiments.bands import Drawing
from experiments.common import REPOSITORY
from experiments.ecdf_mechanisms import ADD, MECHANISMS, PUBLISHED, REPLACE
from experiments.ecdf_synthetic import ISOTONIC, L1, L2, SMOOTHINGS, Runs
from experiments.models import Scored, fitted
from experiments.three_privacy_models import filled, markdown
from fedassay.protocol.vocabulary import Neighbours

FOLDER = REPOSITORY / "docs" / "experiments"
PAGE = "distributions.md"
FIGURES = (
    "smoothing-by-epsilon",
    "smoothing-by-density",
    "inverse",
    "roc-error",
    "roc-examples",
    "hosmer-lemeshow",
)
RELATIONS = (REPLACE, ADD)


@dataclass(frozen=True, kw_only=True)
class Scope:
    """How much is measured."""

    synthetic: synthetic.Scope = field(default_factory=synthetic.Scope)
    roc: roc.Scope = field(default_factory=roc.Scope)
    hosmer: hosmer.Scope = field(default_factory=hosmer.Scope)

    @classmethod
    def quick(cls) -> Scope:
        """Enough to draw every figure and fill every table, not to believe them."""
        full, runs, epsilons = cls(), 3, (0.1, 1.0)
        little = replace(full.synthetic, height=8, densities=(1.0, 10.0), runs=runs, epsilons=epsilons)
        return cls(
            synthetic=little,
            roc=replace(full.roc, points=128, runs=runs, epsilons=epsilons),
            hosmer=replace(full.hosmer, runs=runs, epsilons=epsilons),
        )


@dataclass(frozen=True, kw_only=True)
class Models:
    """The three scored data sets, and the epsilons of their examples in the paper."""

    framingham: Scored
    bank: Scored
    adult: Scored

    @classmethod
    def fitted(cls) -> Models:
        """From the data folder."""
        return cls(framingham=fitted("framingham"), bank=fitted("bank_marketing_full"), adult=fitted("adult"))

    @property
    def examples(self) -> dict[float, Scored]:
        """Figures 1, 8 and 9."""
        return {0.5: self.framingham, 0.2: self.bank, 0.05: self.adult}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Everything that was measured."""

    by_epsilon: Mapping[Neighbours, Runs]
    by_density: Runs
    areas: Mapping[Neighbours, Runs]
    tests: Sequence[tuple[Scored, Runs]]


def main(models: Models, scope: Scope, folder: Path) -> Measured:
    """Measure, draw, and fill in the tables of the page."""
    seen = Measured(
        by_epsilon={which: synthetic.by_epsilon(scope.synthetic, which) for which in RELATIONS},
        by_density=synthetic.by_density(scope.synthetic),
        areas={which: roc.errors(models.bank, scope.roc, which) for which in RELATIONS},
        tests=[(scored, hosmer.measured(scored, scope.hosmer)) for scored in (models.bank, models.adult)],
    )
    for name, chart in zip(FIGURES, _charts(seen, models, scope), strict=True):
        plots.save(chart, folder / f"ecdf-{name}.svg")
    page = (FOLDER / PAGE).read_text(encoding="utf-8")
    (folder / PAGE).write_text(filled(page, tables(seen, models, scope)), encoding="utf-8")
    return seen


def _charts(seen: Measured, models: Models, scope: Scope) -> list[Drawing]:
    """In the order of `FIGURES`."""
    return [
        synthetic.smoothing_by_epsilon(seen.by_epsilon[REPLACE], scope.synthetic),
        synthetic.smoothing_by_density(seen.by_density, scope.synthetic),
        synthetic.inverse(seen.by_epsilon, scope.synthetic),
        roc.figure_5(seen.areas, models.bank, scope.roc),
        roc.examples(models.examples, scope.roc),
        hosmer.figure(seen.tests, scope.hosmer),
    ]


# --- tables -------------------------------------------------------------------------------------------------------


def tables(seen: Measured, models: Models, scope: Scope) -> dict[str, str]:
    """By the name of the marker in the page."""
    return {
        "run": run_line(scope),
        "models": model_table(models),
        "smoothing": smoothing_table(seen.by_epsilon[REPLACE], seen.areas[REPLACE]),
        "inverse": inverse_table(seen.by_epsilon),
        "areas": area_table(seen.areas, roc.floor(models.bank, scope.roc)),
        "tests": test_table(seen.tests),
        "statistics": statistic_table(seen.tests),
    }


def run_line(scope: Scope) -> str:
    """When and how much."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return (
        f"Measured {today}, seed {scope.synthetic.seed}: {scope.synthetic.runs} runs of Figures 2 to 4, "
        f"{scope.roc.runs} of Figure 5, {scope.hosmer.runs} of Figures 6 and 10."
    )


def model_table(models: Models) -> str:
    """The three logistic regressions, without noise."""
    lines = []
    for scored in (models.framingham, models.bank, models.adult):
        test, fpr_tpr = hosmer.exact(scored), roc.true_curve(scored)
        lines.append(
            [
                f"`{scored.name}`",
                f"{len(scored):,}",
                f"{scored.labels.mean():.3f}",
                f"{np.trapezoid(fpr_tpr[1], fpr_tpr[0]):.3f}",
                f"{test['value']:.0f}",
                f"{min(group['expected'] for group in test['groups']):.0f}",
            ]
        )
    head = ["data", "rows", "positives", "AUC", "Hosmer-Lemeshow", "smallest expected count"]
    return markdown(head, lines)


def smoothing_table(even: Runs, scores: Runs) -> str:
    """Mean ratios of squared errors, on the synthetic data and on the scores of a model."""
    lines = []
    for title, found, rest in (("Poisson", even, ()), ("bank scores", scores, (roc.RATIO,))):
        epsilons = _few(found[PUBLISHED, L1, *rest], (0.02, 0.1, 1.0, 5.0))
        said = " / ".join(f"{epsilon:g}" for epsilon in epsilons)
        for name in MECHANISMS:
            several = ((found[name, which, *rest][epsilon] for epsilon in epsilons) for which in SMOOTHINGS)
            lines.append(
                [title, said, name, *(" / ".join(f"{np.mean(one):.2f}" for one in runs) for runs in several)]
            )
    return markdown(["rows", "ε", "mechanism", *SMOOTHINGS], lines)


def inverse_table(found: Mapping[Neighbours, Runs]) -> str:
    """Mean squared errors at epsilon = 1, as they are and as parts of those of the paper's mechanism."""
    errors = (synthetic.CURVE, synthetic.SEARCHED, synthetic.INVERSE)
    lines = []
    for neighbours, runs in found.items():
        names = synthetic.mechanisms(neighbours)
        base = [float(np.mean(runs[names[0], what][1.0])) for what in errors]
        for name in names:
            means = [float(np.mean(runs[name, what][1.0])) for what in errors]
            cells = [f"{mean:.1e} ({mean / first:.2f})" for mean, first in zip(means, base, strict=True)]
            lines.append([neighbours, name, *cells])
    return markdown(["neighbours", "mechanism", *errors], lines)


def area_table(found: Mapping[Neighbours, Runs], floor: float) -> str:
    """Mean areas between the curves."""
    first = next(iter(found.values()))
    epsilons = _few(first[PUBLISHED, L1], (0.05, 0.2, 1.0, 5.0))
    head = ["neighbours", "mechanism", "smoothing", *(f"ε = {epsilon:g}" for epsilon in epsilons)]
    lines = []
    for neighbours, runs in found.items():
        for name in MECHANISMS:
            for which in (L2, ISOTONIC):
                means = (float(np.mean(runs[name, which][epsilon])) for epsilon in epsilons)
                lines.append([neighbours, name, which, *(f"{mean:.4f}" for mean in means)])
    lines.append(["", "no noise, the same grid", "", *(f"{floor:.4f}" for _ in epsilons)])
    crossed = [
        min(np.mean(runs[name, roc.NONE][epsilon]) for runs in found.values() for name in MECHANISMS)
        for epsilon in epsilons
    ]
    shares = ("all runs" if share == 1 else f"{100 * share:.0f} % of runs or more" for share in crossed)
    lines.append(["both", "any, not smoothed: crosses itself", "none", *shares])
    return markdown(head, lines)


def test_table(tests: Sequence[tuple[Scored, Runs]]) -> str:
    """How often the test at 5 % rejects, for labels as predicted and for real ones."""
    names = (hosmer.CHI_SQUARED, hosmer.NOISY_NULL, hosmer.CORRECTED, hosmer.FREE)
    epsilons = _few(tests[0][1][hosmer.POWER, hosmer.FREE], (0.1, 0.5, 1.0, 5.0))
    head = [
        "data",
        "method",
        *(f"ε = {epsilon:g}" for epsilon in epsilons),
        "first, all ε",
        "p-values, ε = 1",
    ]
    lines = []
    for scored, runs in tests:
        for name in names:
            cells = [
                " / ".join(
                    f"{100 * np.mean(runs[what, name][epsilon]):.0f} %"
                    for what in (hosmer.FALSE_ALARM, hosmer.POWER)
                )
                for epsilon in epsilons
            ]
            alarms = np.mean(list(runs[hosmer.FALSE_ALARM, name].values()))
            answered = float(np.mean(runs[hosmer.ANSWERED, name][1.0]))
            lines.append([scored.name, name, *cells, f"{100 * alarms:.1f} %", f"{100 * answered:.0f} %"])
    return markdown(head, lines)


def statistic_table(tests: Sequence[tuple[Scored, Runs]]) -> str:
    """Relative squared errors of the statistic: median and mean."""
    epsilons = _few(tests[0][1][hosmer.ERROR, hosmer.FREE], (0.1, 0.5, 1.0, 5.0))
    head = ["data", "statistic", *(f"ε = {epsilon:g}" for epsilon in epsilons)]
    lines = []
    for scored, runs in tests:
        for name in hosmer.STYLES:
            if (hosmer.ERROR, name) not in runs:
                continue
            several = (runs[hosmer.ERROR, name][epsilon] for epsilon in epsilons)
            cells = [f"{np.median(errors):.2g} / {np.mean(errors):.2g}" for errors in several]
            label = "published, Eq. 5" if name == hosmer.CHI_SQUARED else name
            lines.append([scored.name, label, *cells])
    return markdown(head, lines)


def _few(measured: Mapping[float, Sequence[float]], wanted: Sequence[float]) -> list[float]:
    """Those of the wanted epsilons that were measured."""
    return [epsilon for epsilon in wanted if epsilon in measured]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="little of everything; needs a --folder")
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    if options.quick and options.folder is None:
        parser.error("--quick: got no --folder, expected one, because docs/ is for the full run.")
    main(Models.fitted(), Scope.quick() if options.quick else Scope(), options.folder or FOLDER)
