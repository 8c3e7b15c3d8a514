"""Private federated multiclass calibration: the paper's tables and figures, beside our methods.

    python -m experiments.multiclass                                 the page, in parts of about ten minutes of one core
    python -m experiments.multiclass --part table-2                  one part of it: table-2, table-3, figures or costs
    python -m experiments.multiclass --quick --folder FOLDER         the same on little, to see that it runs

Writes the SVGs and the tables of docs/experiments/multiclass.md. Data: the folder that FEDASSAY_DATA names. Outputs of
the two models that are trained for it are kept in the folder that FEDASSAY_CACHE names.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from experiments import multiclass_costs as costs
from experiments import multiclass_figures as figures
from experiments import multiclass_sweeps as sweeps
from experiments import multiclass_tables as tables
from experiments import plots
from experiments.bands import Drawing
from experiments.common import REPOSITORY
from experiments.multiclass_models import MNIST
from experiments.multiclass_runs import PUBLISHED
from experiments.three_privacy_models import filled

FOLDER = REPOSITORY / "docs" / "experiments"
PAGE = "multiclass.md"


@dataclass(frozen=True, kw_only=True)
class Scope:
    """How much is measured."""

    tables: tables.Scope = field(default_factory=tables.Scope)
    sweeps: sweeps.Scope = field(default_factory=sweeps.Scope)
    cost_repeats: int = 5
    fresh: tuple[str, ...] = (MNIST,)
    """Seen once more, on twice as many repetitions that come after those of the tables."""

    @classmethod
    def quick(cls) -> Scope:
        """Enough to fill every table and draw every figure, not to believe them."""
        full = cls()
        return cls(
            tables=replace(full.tables, names=(sweeps.CIFAR_10,), repeats=2),
            sweeps=replace(
                full.sweeps,
                repeats=2,
                few_repeats=2,
                rounds=(1, 4),
                betas=(0.1, 1.0),
                epsilons=(1.0, 10.0),
                few_rounds=(1, 3),
                heights=(2, 5),
                few_heights=(4,),
                clips=(None, 0.5),
                large=sweeps.CIFAR_10,
            ),
            cost_repeats=1,
            fresh=(sweeps.CIFAR_10,),
        )


@dataclass(frozen=True, kw_only=True)
class Made:
    """What a part of the page consists of."""

    tables: Mapping[str, str] = field(default_factory=dict)
    drawings: Mapping[str, Drawing] = field(default_factory=dict)


def table_2(scope: Scope) -> Made:
    """Without privacy."""
    found = tables.measured(tables.PLAIN_WAYS, scope.tables, scope.sweeps.loader)
    return Made(
        tables={
            "run 2": run_line(f"{scope.tables.repeats} repetitions", scope),
            "table 2": tables.table_2(found),
            "verdicts 2": tables.verdicts(found, list(PUBLISHED)),
            "messages": tables.messages(found),
        }
    )


def table_3(scope: Scope) -> Made:
    """With differential privacy."""
    found = tables.measured(tables.PRIVATE_WAYS, scope.tables, scope.sweeps.loader)
    repeats = scope.tables.repeats
    later = replace(scope.tables, names=scope.fresh, first=repeats, repeats=2 * repeats)
    fresh = tables.measured(tables.AMPLIFIED_WAYS, later, scope.sweeps.loader)
    amplified = [name + tables.AMPLIFIED for name in PUBLISHED]
    return Made(
        tables={
            "run 3": run_line(f"{scope.tables.repeats} repetitions", scope),
            "table 3": tables.table_3(found),
            "verdicts 3": tables.verdicts(found, list(PUBLISHED)),
            "table 3 amplified": tables.table_3_amplified(found),
            "verdicts 3 amplified": tables.verdicts(found, amplified),
            "fresh 3": tables.table_3_amplified(fresh),
            "verdicts 3 fresh": tables.verdicts(fresh, amplified),
        }
    )


def drawn(scope: Scope) -> Made:
    """All figures."""
    sweep = scope.sweeps
    rounds, skew = sweeps.by_rounds(sweep), sweeps.by_skew(sweep)
    published, amplified = (sweeps.by_epsilon(sweep, amplified=flag) for flag in (False, True))
    under_noise = {
        (epsilon, flag): sweeps.by_rounds_under_noise(sweep, epsilon, amplified=flag)
        for flag in (False, True)
        for epsilon in sweep.few_epsilons
    }
    several, noisy = (sweeps.by_rounds_and_height(sweep, epsilon) for epsilon in (None, 3.0))
    clients = sweeps.differences(sweep)
    said = (
        f"{sweep.repeats} repetitions; {sweep.few_repeats} for curves over rounds on CIFAR-100, "
        f"{2 * sweep.repeats} for Figure 11"
    )
    return Made(
        tables={"run figures": run_line(said, scope), "table 9": figures.numbers_9(clients)},
        drawings={
            "rounds": figures.figure_2(rounds, skew),
            "epsilon": figures.figure_3(published, amplified, under_noise),
            "bins": figures.figure_4(sweeps.by_height(sweep), several, noisy, sweep),
            "top-label": figures.figure_10(rounds, published),
            "clips": figures.figure_11(sweeps.by_clip(sweep), sweep),
            "clients": figures.table_9(clients),
        },
    )


def costed(scope: Scope) -> Made:
    """Bytes and seconds."""
    found = costs.costs(scope.sweeps.of(scope.sweeps.small)(0), repeats=scope.cost_repeats)
    return Made(tables={"table 5": costs.table_5(found), "table 11": costs.table_11(found)})


PARTS: Mapping[str, Callable[[Scope], Made]] = {
    "table-2": table_2,
    "table-3": table_3,
    "figures": drawn,
    "costs": costed,
}


def run_line(said: str, scope: Scope) -> str:
    """When and how much."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return f"Measured {today}, seed {scope.tables.seed}: {said}."


def main(scope: Scope, folder: Path, parts: Sequence[str] = tuple(PARTS)) -> None:
    """Measure, draw, and fill in the tables of the page, part by part."""
    target = folder / PAGE
    if not target.exists():
        target.write_text((FOLDER / PAGE).read_text(encoding="utf-8"), encoding="utf-8")
    for part in parts:
        made = PARTS[part](scope)
        for name, drawing in made.drawings.items():
            plots.save(drawing, folder / f"multiclass-{name}.svg")
        page = target.read_text(encoding="utf-8")
        target.write_text(filled(page, dict(made.tables)), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", action="append", choices=tuple(PARTS), help="only this; may be repeated")
    parser.add_argument("--quick", action="store_true", help="little of everything; needs a --folder")
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    if options.quick and options.folder is None:
        parser.error("--quick: got no --folder, expected one, because docs/ is for the full run.")
    main(Scope.quick() if options.quick else Scope(), options.folder or FOLDER, options.part or tuple(PARTS))
