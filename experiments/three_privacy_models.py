"""The three privacy models of Cormode and Markov (2023) on real data: Figures 2 to 5, Table 1, and what each costs.

    python -m experiments.three_privacy_models

Writes the SVGs and the tables of docs/experiments/three-privacy-models.md. Every row is a client of its own; releases
are drawn from the law of the protocol, with seeds. Takes about ten minutes on one core.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Sequence
from pathlib import Path

from experiments import costs, figures, plots, rates
from experiments.common import REPOSITORY, SOURCES, Sample, load
from experiments.measured import Measured, Scope, run

FOLDER = REPOSITORY / "docs" / "experiments"
PAGE = "three-privacy-models.md"
FIGURES = {
    "decisions-by-height": figures.figure_2,
    "decisions-by-clients": figures.figure_3,
    "auc": figures.figure_4,
    "calibration": figures.figure_5,
    "calibration-error": figures.figure_6,
}


def main(samples: Sequence[Sample], scope: Scope, folder: Path) -> list[Measured]:
    """Measure, draw, and fill in the tables of the page in this folder."""
    measured = []
    for sample in samples:
        measured.append(run(sample, scope))
        for name, draw in FIGURES.items():
            plots.save(draw(measured[-1]), folder / f"{name}-{sample.name}.svg")
    first = measured[0]
    paid = costs.table(
        first.sample, repetitions=10 * scope.repetitions, seed=scope.seed, messengers=scope.messengers
    )
    tables = {
        "run": run_line(scope),
        **{f"rates {seen.sample.name}": rate_table(seen) for seen in measured},
        "gains": gain_table(measured),
        "costs": cost_table(paid),
    }
    page = folder / PAGE
    page.write_text(filled(page.read_text(encoding="utf-8"), tables), encoding="utf-8")
    return measured


def run_line(scope: Scope) -> str:
    """When and how much."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return f"Measured {today}, seed {scope.seed}, {scope.repetitions} repetitions of everything random."


def rate_table(seen: Measured) -> str:
    """Slopes of one data set, as Markdown."""
    head = ["quantity", "model", "error against", "over", "Table 1", "as published", "ours"]
    lines = [
        [
            rate.quantity,
            rate.model,
            rate.against,
            rate.over,
            rate.theory,
            _cell(rate.published),
            _cell(rate.ours),
        ]
        for rate in rates.table(seen)
    ]
    return markdown(head, lines)


def _cell(slope: rates.Slope | None) -> str:
    return "" if slope is None else str(slope)


def gain_table(measured: Sequence[Measured]) -> str:
    """Ratios of errors, as Markdown."""
    head = ["published error over ours", "model"]
    head += [f"{seen.sample.name}, {which}" for seen in measured for which in ("same bins", "default")]
    lines = []
    for several in zip(*(rates.gains(seen) for seen in measured), strict=True):
        numbers = [number for gain in several for number in (gain.same_bins, gain.default)]
        cells = ["" if number is None else f"{number:.1f}" for number in numbers]
        lines.append([several[0].quantity, several[0].model, *cells])
    return markdown(head, lines)


def cost_table(paid: Sequence[costs.Cost]) -> str:
    """Errors, bytes and rounds, as Markdown."""
    head = [
        "trust model",
        "bins",
        *(f"error of {name}" for name in costs.METRICS),
        "bytes per client",
        "legs",
    ]
    lines = [
        [
            f"`{cost.trust}`",
            f"2^{cost.height}",
            *(f"{cost.errors[name].mean:.1e}" if cost.errors[name].mean else "0" for name in costs.METRICS),
            f"{cost.bytes_per_client:,}",
            str(cost.rounds),
        ]
        for cost in paid
    ]
    return markdown(head, lines)


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table."""
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *lines))


def filled(page: str, tables: dict[str, str]) -> str:
    r"""The page with each table between its two markers.

    Examples
    --------
    >>> filled("a <!-- run -->old<!-- end --> b", {"run": "new"})
    'a <!-- run -->\n\nnew\n\n<!-- end --> b'
    """
    for name, table in tables.items():
        start, end = f"<!-- {name} -->", "<!-- end -->"
        if start not in page:
            raise ValueError(f"page: expected {start} and {end} around a table, got neither.")
        before, _, rest = page.partition(start)
        _, _, after = rest.partition(end)
        page = f"{before}{start}\n\n{table}\n\n{end}{after}"
    return page


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=Scope.repetitions)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    chosen = parser.parse_args()
    main([load(name) for name in SOURCES], Scope(repetitions=chosen.repetitions), chosen.folder)
