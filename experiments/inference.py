"""Online inference in federated averaging: the paper's tables and figure, beside our methods.

    python -m experiments.inference                                  the page: about an hour of one core
    python -m experiments.inference --part tables                    one part: tables, coverage, figures or real
    python -m experiments.inference --quick --folder FOLDER          the same on little, to see that it runs

Writes the SVGs and the tables of docs/experiments/inference.md. Data: the folder that FEDASSAY_DATA names. What a
simulation found is kept in the folder that FEDASSAY_CACHE names, so that it runs once; files of an older version of
the library are not told apart: remove the folder after a change.
"""

from __future__ import annotations

import argparse
import datetime
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from experiments import inference_figures as figures
from experiments import inference_published as printed
from experiments import inference_real as real
from experiments import inference_tables as tables
from experiments import plots
from experiments.bands import Drawing
from experiments.common import REPOSITORY
from experiments.inference_simulation import Case, Plan
from experiments.three_privacy_models import filled

FOLDER = REPOSITORY / "docs" / "experiments"
PAGE = "inference.md"


def cache_folder() -> Path:
    """Where simulations are kept."""
    return (
        Path(os.environ.get("FEDASSAY_CACHE", Path(tempfile.gettempdir()) / "fedassay-cache")) / "inference"
    )


@dataclass(frozen=True, kw_only=True)
class Scope:
    """How much is measured."""

    plan: Plan = field(default_factory=lambda: Plan(folder=cache_folder()))
    parts: tuple[float, ...] = printed.PARTS
    rounds: tuple[int, ...] = printed.ROUNDS
    plain_rounds: tuple[int, ...] = (200, 1000, 5000)
    plain_parts: tuple[float, ...] = (0.5,)
    grid: tables.Grid = field(default_factory=tables.Grid)
    local_rounds: tuple[int, ...] = (200, 1000)
    decays: tuple[float, ...] = (0.505, 0.667, 0.75, 0.9)
    decay_rounds: int = 2000
    few: int = 500
    """Replications of what is only compared."""
    large: int = 1000
    """Replications of cases with many rows in a round."""
    convergence: tuple[int, ...] = (
        10,
        14,
        20,
        30,
        40,
        60,
        80,
        120,
        180,
        250,
        350,
        500,
        700,
        1000,
        1400,
        2000,
    )
    studies: tuple[real.Study, ...] = (real.TETOUAN, real.SKIN)
    secure_rounds: int = 200

    @classmethod
    def quick(cls) -> Scope:
        """Enough to fill every table and draw every figure, not to believe them."""
        return cls(
            plan=Plan(replications=5, snapshots=(8, 12, 16)),
            parts=(0.2, 0.5),
            rounds=(12, 16),
            plain_rounds=(16,),
            grid=tables.Grid(parts=(0.5,), steps=((1, 2),), rounds=(8, 16), stated=16),
            local_rounds=(12,),
            decays=(0.75,),
            decay_rounds=12,
            few=4,
            convergence=(8, 16),
            secure_rounds=8,
        )

    def of(self, case: Case) -> Plan:
        """For one case of the grid."""
        least = self.large if case.chunk < Plan.replications else self.plan.replications
        return replace(self.plan, replications=min(least, self.plan.replications))

    @property
    def compared(self) -> Plan:
        """For what is only compared."""
        return replace(self.plan, replications=min(self.few, self.plan.replications))


@dataclass(frozen=True, kw_only=True)
class Made:
    """What a part of the page consists of."""

    tables: Mapping[str, str] = field(default_factory=dict)
    drawings: Mapping[str, Drawing] = field(default_factory=dict)


def numbers(scope: Scope) -> Made:
    """Tables 1 to 4, and plain federated averaging."""
    return Made(
        tables={
            "run tables": run_line(scope),
            **tables.tables_1_to_4(scope.plan, scope.parts, scope.rounds),
            "plain": tables.plain(scope.plan, scope.compared, scope.plain_parts, scope.plain_rounds),
        }
    )


def covered(scope: Scope) -> Made:
    """What the default covers, and the others beside it."""
    grid, plan = scope.grid, scope.plan
    found = {case: scope.of(case).path(case.default) for case in grid.cases}
    several = {
        model: [plan.runs(Case(model=model, part=part)) for part in scope.parts] for model in tables.MODELS
    }
    return Made(
        tables={
            "run coverage": run_line(scope, large=True),
            "coverage": tables.coverage(found, grid),
            "verdict": tables.verdict(found, grid),
            "methods": tables.methods(several, grid.rounds),
            "local": tables.local_work(scope.compared, grid.steps[-1], scope.local_rounds),
            "flat": tables.flat(scope.compared, scope.local_rounds),
            "decays": tables.decays(scope.compared, scope.decays, scope.decay_rounds),
        }
    )


def drawn(scope: Scope) -> Made:
    """Both figures."""
    found = {model: scope.plan.runs(Case(model=model, part=0.5)) for model in tables.MODELS}
    return Made(
        drawings={
            "convergence": figures.figure_1(scope.plan.only(*scope.convergence), part=1.0),
            "intervals": figures.figure_2(found, scope.plan.snapshots, part=0.5),
        }
    )


def measured(scope: Scope) -> Made:
    """Tables 5 and 6."""
    first, second = scope.studies
    return Made(
        tables={
            "table 5": real.table(first),
            "table 6": real.table(second),
            "secure": real.secure(first, scope.secure_rounds),
        }
    )


PARTS: Mapping[str, Callable[[Scope], Made]] = {
    "tables": numbers,
    "coverage": covered,
    "figures": drawn,
    "real": measured,
}


def run_line(scope: Scope, *, large: bool = False) -> str:
    """When and how much."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    fewer = large and scope.large < scope.plan.replications
    said = f", {scope.large} where more than 30 rows can be in a round" if fewer else ""
    return f"Measured {today}, seed {scope.plan.seed}: {scope.plan.replications} replications{said}."


def main(scope: Scope, folder: Path, parts: Sequence[str] = tuple(PARTS)) -> None:
    """Measure, draw, and fill in the tables of the page, part by part."""
    target = folder / PAGE
    if not target.exists():
        target.write_text((FOLDER / PAGE).read_text(encoding="utf-8"), encoding="utf-8")
    for part in parts:
        made = PARTS[part](scope)
        for name, drawing in made.drawings.items():
            plots.save(drawing, folder / f"inference-{name}.svg")
        page = target.read_text(encoding="utf-8")
        target.write_text(filled(page, dict(made.tables)), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", action="append", choices=tuple(PARTS), help="only this; may be repeated")
    parser.add_argument("--quick", action="store_true", help="little of everything; needs a --folder")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--replications", type=int, default=Plan.replications, help="of simulations")
    parser.add_argument(
        "--large", type=int, default=Scope.large, help="replications where rounds have many rows"
    )
    options = parser.parse_args()
    if options.quick and options.folder is None:
        parser.error("--quick: got no --folder, expected one, because docs/ is for the full run.")
    full = Scope(plan=Plan(replications=options.replications, folder=cache_folder()), large=options.large)
    main(Scope.quick() if options.quick else full, options.folder or FOLDER, options.part or tuple(PARTS))
