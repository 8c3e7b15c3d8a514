"""The tables of the page on online inference, as Markdown: Tables 1 to 4, and what the default covers where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from experiments import inference_published as printed
from experiments.inference_simulation import (
    CORRECTED_SCALING,
    CORRECTED_SEPARATED,
    LEVEL,
    METHODS,
    PUBLISHED,
    ROUND,
    SCALING,
    Case,
    Found,
    Plan,
    Runs,
)
from experiments.three_privacy_models import markdown
from fedassay.summaries.regression.local_work import LOCAL

MODELS = ("linear", "logistic")
FIVE, TWELVE = tuple(range(1, 6)), tuple(range(1, 13))

EACH = 0.01
"""The probability that a cell is marked although its coverage is 95 %."""

TOGETHER = 0.05
"""The probability that any of the cells with 1000 rounds or more is marked twice although all have 95 %."""


# --- Tables 1 to 4 --------------------------------------------------------------------------------------------------

LINES: Mapping[str, Mapping[str, str]] = {
    printed.SEPARATED: {
        "published method": PUBLISHED,
        "corrected": CORRECTED_SEPARATED,
        "round plug-in": ROUND,
    },
    printed.SCALING: {"published method": SCALING, "corrected": CORRECTED_SCALING},
}
"""Under the printed numbers, what is measured."""


def tables_1_to_4(plan: Plan, parts: Sequence[float], rounds: Sequence[int]) -> dict[str, str]:
    """Each in the paper's form: coverage, then mean radius and its standard deviation, times 100."""
    made = {}
    for model in MODELS:
        runs = {part: plan.runs(Case(model=model, part=part)) for part in parts}
        for method in (printed.SEPARATED, printed.SCALING):
            made[f"table {len(made) + 1}"] = _table(model, method, runs, rounds)
    return made


def _table(model: str, method: str, runs: Mapping[float, Runs], rounds: Sequence[int]) -> str:
    lines = []
    for item, printed_cell, cell in (
        ("coverage", _printed_coverage, coverage_cell),
        ("radius", _printed_radius, radius_cell),
    ):
        for part, found in runs.items():
            lines.append(
                [item, f"{part:g}", "printed", *(printed_cell(model, method, part, t) for t in rounds)]
            )
            for name, key in LINES[method].items():
                lines.append([item, f"{part:g}", name, *(cell(found[key, t]) for t in rounds)])
    return markdown(["", "ν", "", *(f"T = {t}" for t in rounds)], lines)


def _printed_coverage(model: str, method: str, part: float, rounds: int) -> str:
    table = printed.COVERAGE[model, method]
    there = part in table and rounds in printed.ROUNDS
    return f"{table[part][printed.ROUNDS.index(rounds)]:.3f}" if there else ""


def _printed_radius(model: str, method: str, part: float, rounds: int) -> str:
    table = printed.RADIUS[model, method]
    if part not in table or rounds not in printed.ROUNDS:
        return ""
    mean, deviation = table[part][printed.ROUNDS.index(rounds)]
    return f"{mean:.3f} ({deviation:.3f})"


def coverage_cell(found: Found) -> str:
    """With its standard error in brackets, in units of the last digit."""
    return f"{found.coverage:.3f} ({1000 * found.deviation:.0f})"


def radius_cell(found: Found) -> str:
    """Mean and standard deviation over replications and coefficients, times 100."""
    return f"{100 * found.radius.mean():.3f} ({100 * found.radius.std():.3f})"


def plain(plan: Plan, few: Plan, parts: Sequence[float], rounds: Sequence[int]) -> str:
    """Federated averaging that is not rescaled: where it goes, and what intervals around it cover."""
    lines = []
    for model in MODELS:
        for part in parts:
            case = Case(model=model, part=part)
            without = few.only(*rounds).path(replace(case.default, rescaled=False))
            for name, runs in (("rescaled", plan.path(case.default)), ("plain", without)):
                cells = [
                    f"{found.distance:.4f}, {found.coverage:.3f}"
                    for found in (runs[ROUND, t] for t in rounds)
                ]
                lines.append([model, f"{part:g}", name, *cells])
    return markdown(["model", "ν", "averaging", *(f"T = {t}" for t in rounds)], lines)


# --- what the default covers ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Cases and numbers of rounds for which the default's coverage is looked at."""

    parts: tuple[float, ...] = (0.2, 0.5, 1.0)
    steps: tuple[tuple[int, ...], ...] = (FIVE, TWELVE)
    rounds: tuple[int, ...] = (100, 200, 500, 1000, 2000, 5000)
    stated: int = 1000
    """From so many rounds on coverage is claimed."""

    @property
    def cases(self) -> list[Case]:
        """All of them."""
        return [
            Case(model=model, part=part, steps=steps, alike=alike)
            for model in MODELS
            for alike in (False, True)
            for steps in self.steps
            for part in self.parts
        ]

    @property
    def claimed(self) -> tuple[int, ...]:
        """The numbers of rounds for which it is."""
        return tuple(t for t in self.rounds if t >= self.stated)

    @property
    def cells(self) -> int:
        """How many are claimed."""
        return len(self.cases) * len(self.claimed)

    @property
    def limits(self) -> tuple[float, float]:
        """In standard errors: of one cell, and of all claimed ones together (Bonferroni)."""
        return float(-ndtri(EACH / 2)), float(-ndtri(TOGETHER / self.cells / 2))


def score(found: Found) -> float:
    """Coverage less 95 %, in standard errors."""
    return (found.coverage - LEVEL) / max(found.deviation, 1e-9)


def mark(found: Found, grid: Grid) -> str:
    """A star for each limit that is passed."""
    return "\\*" * sum(abs(score(found)) > limit for limit in grid.limits)


def coverage(found: Mapping[Case, Runs], grid: Grid, method: str = ROUND) -> str:
    """One line for each case."""
    lines = [
        [
            *described(case),
            *(f"{runs[method, t].coverage:.3f}{mark(runs[method, t], grid)}" for t in grid.rounds),
        ]
        for case, runs in found.items()
    ]
    return markdown(["model", "clients", "E_i", "ν", *(f"T = {t}" for t in grid.rounds)], lines)


def described(case: Case) -> list[str]:
    """Model, clients, steps, participation."""
    clients = "alike" if case.alike else "differ"
    return [case.model, clients, f"1..{max(case.steps)}", f"{case.part:g}"]


def verdict(found: Mapping[Case, Runs], grid: Grid, method: str = ROUND) -> str:
    """How many cells are outside, and which."""
    one, together = grid.limits
    claimed = {(case, t): runs[method, t] for case, runs in found.items() for t in grid.claimed}
    covered = [cell.coverage for cell in claimed.values()]
    errors = [cell.deviation for cell in claimed.values()]
    outside = [key for key, cell in claimed.items() if abs(score(cell)) > one]
    far = sum(abs(score(cell)) > together for cell in claimed.values())
    text = (
        f"{len(claimed)} cells with T ≥ {grid.stated}, standard errors {min(errors):.4f} to {max(errors):.4f}: "
        f"coverage is {min(covered):.3f} to {max(covered):.3f}, on average {np.mean(covered):.4f}. "
        f"Beyond {one:.2f} standard errors (\\*, {EACH:.0%} of cells by chance: {EACH * len(claimed):.1f} expected) "
        f"are {len(outside)}; beyond {together:.2f} (\\*\\*, any cell by chance with {TOGETHER:.0%}) are {far}."
    )
    listed = [
        f"{', '.join(described(case))}, T = {t}: {claimed[case, t].coverage:.4f} ({score(claimed[case, t]):+.1f} s.e.)"
        for case, t in outside
    ]
    return "\n".join([text, *(["", *(f"* {line}" for line in listed)] if listed else [])])


def methods(found: Mapping[str, Sequence[Runs]], rounds: Sequence[int]) -> str:
    """Every method over several cases of each model: mean, lowest and highest coverage."""
    lines = []
    for model, several in found.items():
        for method in METHODS:
            if (method, rounds[0]) not in several[0]:
                continue
            cells = []
            for t in rounds:
                covered = [runs[method, t].coverage for runs in several]
                cells.append(f"{np.mean(covered):.3f} ({min(covered):.3f} to {max(covered):.3f})")
            lines.append([model, method, *cells])
    return markdown(["model", "method", *(f"T = {t}" for t in rounds)], lines)


# --- what else matters ----------------------------------------------------------------------------------------------


def local_work(few: Plan, steps: tuple[int, ...], rounds: Sequence[int]) -> str:
    """All clients: what is done about what local steps bend. Coverage and mean radius x 100 of the default."""
    lines = []
    for model in MODELS:
        for local in LOCAL:
            case = Case(model=model, steps=steps, local=local).default
            runs = few.only(*rounds).path(case)
            cells = [
                f"{coverage_cell(found)}, {100 * found.radius.mean():.2f}"
                for found in (runs[ROUND, t] for t in rounds)
            ]
            lines.append([model, local, *cells])
    return markdown(["model", "local", *(f"T = {t}" for t in rounds)], lines)


def decays(few: Plan, several: Sequence[float], rounds: int) -> str:
    """ν = 0.5: how fast step sizes shrink."""
    shown = (ROUND, CORRECTED_SEPARATED, CORRECTED_SCALING)
    lines = []
    for model in MODELS:
        for decay in several:
            runs = few.only(rounds).runs(Case(model=model, part=0.5, decay=decay))
            lines.append([model, f"{decay:g}", *(coverage_cell(runs[method, rounds]) for method in shown)])
    return markdown(["model", "a", *shown], lines)


def flat(few: Plan, rounds: Sequence[int]) -> str:
    """All clients alike, half of them, one local step: a path that is on its way for long. Every method."""
    runs = few.only(*rounds).runs(Case(model="logistic", part=0.5, steps=(1,), alike=True))
    shown = [method for method in METHODS if (method, rounds[0]) in runs]
    lines = [[method, *(coverage_cell(runs[method, t]) for t in rounds)] for method in shown]
    return markdown(["method", *(f"T = {t}" for t in rounds)], lines)
