"""Tables 2 and 3 of the paper, with ours beside the published methods, and who wins each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from experiments import multiclass_runs as runs
from experiments.multiclass_data import NAMES, SEED, Split, load
from experiments.multiclass_models import SHAKESPEARE
from experiments.multiclass_runs import AUTO, BASE, EXACT, PUBLISHED, TEMPERATURE, Outcome, Runs, Terms, Way
from experiments.three_privacy_models import markdown

EPSILON = 1.0
AMPLIFIED = ", amplified"
"""What is added to the name of a published method that is asked with our accounting."""

LOST = 0.01
"""More accuracy lost than this is marked."""

PLAIN_WAYS: Mapping[str, tuple[Way, Terms]] = {name: (way, Terms()) for name, way in runs.WAYS.items()}
PRIVATE_WAYS: Mapping[str, tuple[Way, Terms]] = {
    **{name: (way, Terms(epsilon=EPSILON)) for name, way in PUBLISHED.items()},
    **{
        name + AMPLIFIED: (way, Terms(epsilon=EPSILON, amplified=True, joint=True))
        for name, way in PUBLISHED.items()
    },
    AUTO: (runs.chosen, Terms(epsilon=EPSILON, amplified=True)),
    TEMPERATURE: (runs.temperature, Terms(epsilon=EPSILON, amplified=True)),
}
"""As published: cohorts of 10 % in 12 rounds, each histogram clipped by itself, no use made of sampling. Amplified: as
the library ships it, noise by privacy loss distributions, histograms clipped jointly. Ours: all, once or twice."""

AMPLIFIED_WAYS: Mapping[str, tuple[Way, Terms]] = {
    name: asked for name, asked in PRIVATE_WAYS.items() if name not in PUBLISHED
}
"""Without those that are as published."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """How much is measured."""

    names: tuple[str, ...] = NAMES
    repeats: int = 20
    first: int = 0
    seed: int = SEED


Loader = Callable[[str, int], Split]
Table = dict[str, Runs]
"""Name of the data to what was measured."""


def measured(ways: Mapping[str, tuple[Way, Terms]], scope: Scope, loader: Loader = load) -> Table:
    """All rows of a table."""
    return {
        name: runs.outcomes(
            partial(loader, name), ways, range(scope.first, scope.first + scope.repeats), seed=scope.seed
        )
        for name in scope.names
    }


# --- cells --------------------------------------------------------------------------------------------------------


def loses(found: Runs, name: str) -> bool:
    """Whether more than 1 % accuracy is lost, on average over repetitions."""
    return _mean(found[BASE], "accuracy") - _mean(found[name], "accuracy") > LOST


def _mean(outcomes: Sequence[Outcome], what: str) -> float:
    return float(np.mean([getattr(one, what) for one in outcomes]))


def _errors(outcomes: Sequence[Outcome]) -> np.ndarray:
    return 100 * np.array([one.classwise for one in outcomes])


def cell(found: Runs, name: str) -> str:
    """Mean cwECE in %, its standard deviation, a star if accuracy is lost."""
    errors = _errors(found[name])
    spread = float(errors.std(ddof=1)) if len(errors) > 1 else 0.0
    return f"{errors.mean():.3f}{'*' if loses(found, name) else ''} ({spread:.3f})"


def table(found: Table, columns: Sequence[str]) -> str:
    """In the form of the paper; the smallest error without a star is bold."""
    lines = []
    for name, several in found.items():
        kept = [column for column in columns if not loses(several, column)]
        best = min(kept, key=lambda column: _mean(several[column], "classwise"))
        cells = [
            f"**{cell(several, column)}**" if column == best else cell(several, column) for column in columns
        ]
        lines.append([name, *cells])
    return markdown(["data", *(column.removesuffix(AMPLIFIED) for column in columns)], lines)


def table_2(found: Table) -> str:
    """Without privacy."""
    return table(found, [BASE, *PUBLISHED, AUTO, *EXACT])


def table_3(found: Table) -> str:
    """With the noise of the paper."""
    return table(found, [BASE, *PUBLISHED, AUTO, TEMPERATURE])


def table_3_amplified(found: Table) -> str:
    """With less noise, because cohorts are secret."""
    return table(found, [BASE, *(name + AMPLIFIED for name in PUBLISHED), AUTO, TEMPERATURE])


# --- who wins -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """`auto` against the best published method that loses no accuracy, over the same repetitions; in % of cwECE."""

    best: str
    published: float
    ours: float
    difference: float
    error: float
    base: float
    accuracy: float
    flagged: bool

    @property
    def fails(self) -> bool:
        """Worse by more than two standard errors."""
        return self.difference > 2 * self.error

    @classmethod
    def of(cls, found: Runs, among: Sequence[str]) -> Verdict:
        """Of one row."""
        kept = [name for name in among if not loses(found, name)]
        best = min(kept, key=lambda name: _mean(found[name], "classwise"))
        ours, theirs = _errors(found[AUTO]), _errors(found[best])
        apart = ours - theirs
        return cls(
            best=best,
            published=float(theirs.mean()),
            ours=float(ours.mean()),
            difference=float(apart.mean()),
            error=float(apart.std(ddof=1) / np.sqrt(len(apart))) if len(apart) > 1 else float("nan"),
            base=float(_errors(found[BASE]).mean()),
            accuracy=100 * (_mean(found[AUTO], "accuracy") - _mean(found[BASE], "accuracy")),
            flagged=loses(found, AUTO),
        )


def verdicts(found: Table, among: Sequence[str]) -> str:
    """One line for each row of the table."""
    lines = []
    for name, several in found.items():
        one = Verdict.of(several, among)
        said = "**worse**" if one.fails else ("better" if one.difference < -2 * one.error else "as good")
        lines.append(
            [
                name,
                one.best.removesuffix(AMPLIFIED),
                f"{one.published:.3f}",
                f"{one.ours:.3f}",
                f"{one.difference:+.3f} ± {one.error:.3f}",
                f"{one.difference / one.error:+.1f}",
                said,
                f"{one.ours - one.base:+.3f}",
                f"{one.accuracy:+.2f}{'*' if one.flagged else ''}",
            ]
        )
    head = [
        "data",
        "best published",
        "its cwECE",
        "auto",
        "difference ± s.e.",
        "in s.e.",
        "auto is",
        "auto − base",
        "accuracy, points",
    ]
    return markdown(head, lines)


def messages(found: Table) -> str:
    """How many messages clients send for one calibrator."""
    columns = [*PUBLISHED, AUTO, *EXACT]
    lines = []
    for title, natural in (("100 clients", False), (SHAKESPEARE, True)):
        rows = [several for name, several in found.items() if (name == SHAKESPEARE) == natural]
        if rows:
            means = [np.mean([_mean(several[column], "messages") for several in rows]) for column in columns]
            lines.append([title, *(f"{mean:,.0f}" for mean in means)])
    return markdown(["data", *columns], lines)
