"""One-shot federated conformal prediction, after Humbert, Le Bars, Bellet and Arlot: their figures, beside our methods.

    python -m experiments.conformal                          the page, about ten minutes of one core
    python -m experiments.conformal --quick --folder FOLDER  the same on little, to see that it runs

Writes the SVGs and the tables of docs/experiments/conformal.md. Data: the folder that FEDASSAY_DATA names. MAPIE, with
which sets of classes are compared, is optional.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from experiments import conformal_data as data
from experiments import conformal_figures as figures
from experiments import conformal_runs as runs
from experiments import conformal_sets as sets
from experiments import conformal_tables as tables
from experiments import conformal_theory as theory
from experiments import plots
from experiments.bands import Drawing
from experiments.common import REPOSITORY
from experiments.three_privacy_models import filled

FOLDER = REPOSITORY / "docs" / "experiments"
PAGE = "conformal.md"


@dataclass(frozen=True, kw_only=True)
class Scope:
    """How much is measured."""

    theory: theory.Scope = field(default_factory=theory.Scope)
    regression: runs.Scope = field(default_factory=runs.Scope)
    sets: sets.Scope = field(default_factory=sets.Scope)

    @classmethod
    def quick(cls) -> Scope:
        """Enough to draw every figure and fill every table, not to believe them."""
        full = cls()
        return cls(
            theory=replace(
                full.theory,
                rows=(10, 20, 50, 100),
                private_levels=(0.9,),
                private_rows=(100, 400),
                epsilons=(1.0, 10.0),
                runs=10,
            ),
            regression=replace(full.regression, splits=2, synthetic_tests=600),
            sets=replace(full.sets, splits=1),
        )


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Models of the regression data sets, and outputs of networks."""

    regression: Mapping[str, runs.Source]
    outputs: Sequence[sets.Outputs]

    @classmethod
    def loaded(cls) -> Sources:
        """From the data folder; models are fitted when they are asked."""
        return cls(
            regression={name: runs.source_of(data.load(name)) for name in data.SOURCES},
            outputs=[sets.load(name) for name in sets.FILES],
        )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Everything that was measured."""

    compensations: Mapping[theory.Key2, theory.Compensated]
    synthetic: runs.Runs
    example: runs.Example
    plain: Mapping[str, runs.Runs]
    private: Mapping[str, runs.Runs]
    sets: Mapping[sets.Key, list[sets.SetOutcome]]


def measured(sources: Sources, scope: Scope) -> Measured:
    """Run everything."""
    both = {name: runs.real(name, source, scope.regression) for name, source in sources.regression.items()}
    synthetic, example = runs.synthetic_runs(scope.regression)
    found: dict[sets.Key, list[sets.SetOutcome]] = {}
    for outputs in sources.outputs:
        found |= sets.measured(outputs, scope.sets)
    return Measured(
        compensations=theory.compensations(scope.theory),
        synthetic=synthetic,
        example=example,
        plain={name: pair[0] for name, pair in both.items()},
        private={name: pair[1] for name, pair in both.items()},
        sets=found,
    )


def main(sources: Sources, scope: Scope, folder: Path) -> Measured:
    """Measure, draw, and fill in the tables of the page."""
    seen = measured(sources, scope)
    write(seen, scope, folder)
    return seen


def write(seen: Measured, scope: Scope, folder: Path) -> None:
    """The figures and the page."""
    for name, chart in charts(seen, scope).items():
        plots.save(chart, folder / f"conformal-{name}.svg")
    page = (FOLDER / PAGE).read_text(encoding="utf-8")
    (folder / PAGE).write_text(filled(page, all_tables(seen, scope)), encoding="utf-8")


def charts(seen: Measured, scope: Scope) -> dict[str, Drawing]:
    """By the name of the file."""
    return {
        "coverage": theory.figure_1(scope.theory),
        "compensation": theory.figure_2(seen.compensations, scope.theory),
        "synthetic": figures.figure_3(seen.example),
        "all": figures.figure_4(seen.plain),
        **{name: figures.figure_of(name, several) for name, several in seen.plain.items()},
        "private": figures.figure_15(seen.private),
    }


def all_tables(seen: Measured, scope: Scope) -> dict[str, str]:
    """By the name of the marker in the page."""
    return {
        "run": run_line(scope),
        "pairs": tables.pairs(scope.theory),
        "compensation": tables.compensation(seen.compensations, scope.theory),
        "synthetic": tables.synthetic(seen.synthetic),
        "real": tables.real(seen.plain),
        "summary": tables.summary(seen.plain),
        "private": tables.private(seen.private),
        "sets": tables.classes(seen.sets),
        "by class": tables.by_class(seen.sets),
    }


def run_line(scope: Scope) -> str:
    """When and how much."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    seed, splits = scope.regression.seed, scope.regression.splits
    return (
        f"Measured {today}, seed {seed}: {splits} splits of every regression data set, "
        f"{scope.theory.runs} runs per point of Figure 2, {scope.sets.splits} splits of the outputs of networks."
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="little of everything; needs a --folder")
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    if options.quick and options.folder is None:
        parser.error("--quick: got no --folder, expected one, because docs/ is for the full run.")
    main(Sources.loaded(), Scope.quick() if options.quick else Scope(), options.folder or FOLDER)
