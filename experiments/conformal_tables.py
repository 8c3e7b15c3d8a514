"""The tables of the page on conformal prediction, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from experiments import conformal_sets as sets
from experiments import conformal_theory as theory
from experiments.conformal_data import SOURCES, SYNTHETIC
from experiments.conformal_figures import coverage_cell, length_cell
from experiments.conformal_models import FOREST, LEVEL
from experiments.conformal_published import PRIVATE_OURS as OURS_2
from experiments.conformal_published import PRIVATE_PUBLISHED as PUBLISHED_2
from experiments.conformal_runs import (
    AVERAGE,
    FEW,
    MANY,
    MODELS,
    OURS,
    PAPER,
    POOLED,
    Outcome,
    Runs,
)
from experiments.three_privacy_models import markdown

ORDER = (POOLED, AVERAGE, PAPER, OURS)


def pairs(scope: theory.Scope) -> str:
    """Figure 1 in numbers, and the numbers of clients and rows of the experiments."""
    shapes = [(clients, n) for clients in scope.clients for n in (10, 20, 50, 100)]
    for source in SOURCES.values():
        shapes += [source.many, source.few, source.private]
    head = ["m", "n", *theory.STYLES_1]
    return markdown(head, theory.table_1(list(dict.fromkeys([*shapes, (50, 20)])), scope.level))


def compensation(found: Mapping[theory.Key2, theory.Compensated], scope: theory.Scope) -> str:
    """Figure 2 in numbers, at the first level."""
    level = scope.private_levels[0]
    few = [n for n in (50, 100, 200, 400, 1000) if n in scope.private_rows]
    lines = []
    for epsilon in scope.epsilons:
        for name in (PUBLISHED_2, OURS_2):
            cells = [_compensated(found.get((level, epsilon, name, n))) for n in few]
            lines.append([f"{epsilon:g}", name, *cells])
    return markdown(["ε", "choice", *(f"n = {n}" for n in few)], lines)


def _compensated(one: theory.Compensated | None) -> str:
    if one is None:
        return "everything"
    pair = (round(one.choosing.target, 1), one.choosing.server_rank)
    return f"{pair} {one.aimed:.3f} / {np.mean(one.seen):.3f}"


def synthetic(found: Runs) -> str:
    """Section 5.1."""
    lines = [
        [name, coverage_cell(runs := found[SYNTHETIC, FOREST, name]), length_cell(runs)] for name in ORDER
    ]
    return markdown(["method", "coverage", "length"], lines)


def real(found: Mapping[str, Runs]) -> str:
    """Figures 5 and 6, 11 to 14: mean (standard deviation) of coverage, and of length."""
    lines = []
    for name, runs in found.items():
        for title, (clients, rows) in ((MANY, SOURCES[name].many), (FEW, SOURCES[name].few)):
            for model in MODELS:
                cells = [
                    f"{coverage_cell(outcomes)}<br>{length_cell(outcomes)}"
                    for outcomes in (runs[title, model, method] for method in ORDER)
                ]
                lines.append([name, f"{clients} × {rows}", model, *cells])
    return markdown(["data", "m × n", "model", *ORDER], lines)


def summary(found: Mapping[str, Runs]) -> str:
    """Figure 4 in numbers: over all data sets, models and splits, against pooling the same rows."""
    lines = []
    for title in (MANY, FEW):
        for method in ORDER:
            several = [
                (outcomes, runs[title, model, POOLED])
                for runs in found.values()
                for (which, model, name), outcomes in runs.items()
                if (which, name) == (title, method)
            ]
            lines.append([title, method, *_against(several)])
    head = [
        "clients",
        "method",
        "mean coverage",
        "distance from 0.9",
        "distance from pooled",
        "length / pooled",
    ]
    return markdown(head, lines)


def _against(several: Sequence[tuple[Sequence[Outcome], Sequence[Outcome]]]) -> list[str]:
    """Coverage, its root mean square distances from the level and from pooling, and the mean ratio of lengths."""
    mine = np.array([one.coverage for outcomes, _ in several for one in outcomes])
    base = np.array([one.coverage for _, outcomes in several for one in outcomes])
    ratios = [
        np.mean([one.length for one in outcomes]) / np.mean([one.length for one in baseline])
        for outcomes, baseline in several
    ]
    return [
        f"{mine.mean():.4f}",
        f"{np.sqrt(np.mean((mine - LEVEL) ** 2)):.4f}",
        f"{np.sqrt(np.mean((mine - base) ** 2)):.4f}",
        f"{np.mean(ratios):.3f}",
    ]


def private(found: Mapping[str, Runs]) -> str:
    """Figure 15."""
    lines = []
    for name, runs in found.items():
        clients, rows = SOURCES[name].private
        for (epsilon, method), outcomes in runs.items():
            lines.append(
                [
                    name,
                    f"{clients} × {rows}",
                    epsilon,
                    method,
                    coverage_cell(outcomes),
                    length_cell(outcomes),
                ]
            )
    return markdown(["data", "m × n", "ε", "method", "coverage", "length"], lines)


# --- sets of classes ------------------------------------------------------------------------------------


def classes(found: Mapping[sets.Key, Sequence[sets.SetOutcome]]) -> str:
    """Every score and method: means over splits."""
    head = ["data", "clients", "score", "method", "coverage", "mean size", "worst client (by chance)", "ms"]
    lines = []
    for (data, how, score, method), outcomes in found.items():
        if score not in sets.SCORES:
            continue
        worst = f"{_mean(outcomes, 'worst_client'):.3f} ({_mean(outcomes, 'worst_by_chance'):.3f})"
        took = 1000 * float(np.median([one.seconds for one in outcomes]))
        lines.append(
            [
                data,
                how,
                score,
                method,
                _both(outcomes, "coverage"),
                _both(outcomes, "size", 2),
                worst,
                f"{took:.0f}",
            ]
        )
    return markdown(head, lines)


def by_class(found: Mapping[sets.Key, Sequence[sets.SetOutcome]]) -> str:
    """One threshold for all classes, or one for each, over the splits that both have."""
    few = min((len(outcomes) for key, outcomes in found.items() if key[2] == "lac by class"), default=0)
    head = ["data", "clients", "threshold", "method", "coverage", "worst class", "mean size"]
    lines = []
    for (data, how, score, method), outcomes in found.items():
        if score not in ("lac", "lac by class") or method not in (sets.OURS, sets.POOLED):
            continue
        said, outcomes = "one for all" if score == "lac" else "one for each class", outcomes[:few]
        lines.append(
            [
                data,
                how,
                said,
                method,
                _both(outcomes, "coverage"),
                f"{_mean(outcomes, 'worst_class'):.3f}",
                _both(outcomes, "size", 2),
            ]
        )
    return markdown(head, lines)


def _mean(outcomes: Sequence[object], name: str) -> float:
    return float(np.mean([getattr(one, name) for one in outcomes]))


def _both(outcomes: Sequence[object], name: str, digits: int = 4) -> str:
    values = [getattr(one, name) for one in outcomes]
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return f"{np.mean(values):.{digits}f} ({spread:.{digits}f})"
