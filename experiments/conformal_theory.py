"""Figures 1 and 2 of the paper: what pairs of ranks cover before any score is seen, without and with privacy.

Figure 1 is exact. So are the degrees of compensation of Figure 2; what is really covered depends on the distribution of
the scores and on the candidates, and is simulated for uniform scores between the ends of the range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.stats import beta

from experiments import bands
from experiments.bands import Axis, Curve, Drawing, Frame, Spot
from experiments.common import generator
from experiments.conformal_published import (
    PRIVATE_OURS,
    PRIVATE_PUBLISHED,
    Choosing,
    best_choosing,
    published_choosing,
    uniform_counts,
)
from experiments.plots import (
    DEFAULT_STYLE,
    PLAIN_STYLE,
    PUBLISHED_STYLE,
    SAME_STYLE,
    SECOND_PUBLISHED_STYLE,
    Style,
)
from fedassay.estimation.coverage import best_pair

OURS, PAPER = "ours: smallest spread", "FedCP-QQ: argmin M"
POOLED, ALONE = "pooled rows", "one client alone"
STYLES_1: Mapping[str, Style] = {
    PAPER: PUBLISHED_STYLE,
    OURS: DEFAULT_STYLE,
    POOLED: PLAIN_STYLE,
    ALONE: SECOND_PUBLISHED_STYLE,
}
AIMED = "coverage aimed at"
SEEN = "coverage, uniform scores"
STYLES_2: Mapping[str, Style] = {
    f"{PRIVATE_PUBLISHED}, {AIMED}": PUBLISHED_STYLE,
    f"{PRIVATE_OURS}, {AIMED}": DEFAULT_STYLE,
    f"{PRIVATE_PUBLISHED}, {SEEN}": SECOND_PUBLISHED_STYLE,
    f"{PRIVATE_OURS}, {SEEN}": SAME_STYLE,
}


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What is computed: Figure 1 over `rows` and `clients`, Figure 2 over the rest."""

    level: float = 0.9
    clients: tuple[int, ...] = (5, 20)
    rows: tuple[int, ...] = tuple(range(10, 101))
    private_clients: int = 10
    private_levels: tuple[float, ...] = (0.9, 0.8)
    private_rows: tuple[int, ...] = (25, 35, 50, 70, 100, 140, 200, 280, 400, 560, 800, 1000)
    epsilons: tuple[float, ...] = (0.5, 1.0, 5.0, 10.0)
    candidates: int = 100
    runs: int = 400
    seed: int = 20230713


# --- figure 1 -------------------------------------------------------------------------------------------


class Moments(NamedTuple):
    """Mean and standard deviation of the coverage."""

    mean: float
    spread: float


def moments(clients: int, rows: int, level: float) -> dict[str, Moments]:
    """Of the best pair by either rule, and the upper bound with the spread of pooled rows and of one client.

    A client alone needs 1/α - 1 rows; with fewer its sets hold everything.
    """
    found = {}
    for name, pair in (
        (PAPER, best_pair(clients, rows, level, rule="paper")),
        (OURS, best_pair(clients, rows, level)),
    ):
        found[name] = Moments(pair.mean, pair.standard_deviation)
    for name, several in ((POOLED, clients * rows), (ALONE, rows)):
        rank = int(np.ceil(level * (several + 1) - 1e-9))
        spread = float(beta(rank, several + 1 - rank).std()) if rank <= several else 0.0
        found[name] = Moments(level + 1 / (several + 1), spread)
    return found


def figure_1(scope: Scope) -> Drawing:
    """Coverage (above) and its standard deviation (below) against the rows of a client."""
    rows: list[list[Frame]] = [[], []]
    for clients in scope.clients:
        found = {n: moments(clients, n, scope.level) for n in scope.rows}
        for place, title, domain in (
            (0, "coverage", (0.895, 0.96)),
            (1, "its standard deviation", (0.0, 0.085)),
        ):
            curves = {
                name: [Spot(x=n, y=several[name][place]) for n, several in found.items()] for name in STYLES_1
            }
            rows[place].append(
                Frame(
                    title=f"m = {clients}" if place == 0 else "",
                    x=Axis(title="rows of a client, n", ticks=(10, 25, 50, 75, 100), log=False, form="d"),
                    y=Axis(title=title, log=False, domain=domain, form=".2f"),
                    curves=curves,
                    level=scope.level if place == 0 else None,
                    width=270,
                )
            )
    return bands.page(rows, STYLES_1, "Figure 1: what a pair of ranks covers")


# --- figure 2 -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Compensated:
    """One point of Figure 2. `aimed` is M at the ranks asked for: the coverage if no choice lost or won a rank."""

    choosing: Choosing
    aimed: float
    seen: list[float] = field(default_factory=list)


Key2 = tuple[float, float, str, int]
"""Level, epsilon, variant, rows."""


def compensations(scope: Scope) -> dict[Key2, Compensated]:
    """All points that exist: where no ranks give the level, there is none."""
    found: dict[Key2, Compensated] = {}
    m, B = scope.private_clients, scope.candidates
    for level in scope.private_levels:
        for epsilon in scope.epsilons:
            for n in scope.private_rows:
                for name, way in ((PRIVATE_PUBLISHED, published_choosing), (PRIVATE_OURS, best_choosing)):
                    choosing = way(m, n, level, epsilon=epsilon, candidates=B)
                    if choosing is None:
                        continue
                    rng = generator(scope.seed, "compensation", name, f"{level} {epsilon} {n}")
                    seen = simulated(choosing, m, n, candidates=B, runs=scope.runs, rng=rng)
                    found[level, epsilon, name, n] = Compensated(
                        choosing=choosing, aimed=choosing.aimed(m), seen=seen
                    )
    return found


def simulated(
    choosing: Choosing, clients: int, rows: int, *, candidates: int, runs: int, rng: np.random.Generator
) -> list[float]:
    """The coverage of each run, for uniform scores: candidate b is b/B, so that it is the threshold itself."""
    counts = uniform_counts(runs * clients, rows, candidates, rng)
    chosen = choosing.chosen(counts, rng).reshape(runs, clients)
    taken = np.sort(chosen, axis=1)[:, choosing.server_rank - 1]
    return [float(value) for value in (taken + 1) / candidates]


def figure_2(found: Mapping[Key2, Compensated], scope: Scope) -> Drawing:
    """Against the rows of a client: one row of frames for each level, one column for each epsilon."""
    rows = [
        [
            Frame(
                title=f"level {level:g}, ε = {epsilon:g}",
                x=Axis(title="rows of a client, n", ticks=(25, 100, 400), domain=_ends(scope), form="d"),
                y=Axis(title="coverage", log=False, form=".2f", domain=(level - 0.02, 1.0)),
                curves=_curves(found, level, epsilon),
                level=level,
            )
            for epsilon in scope.epsilons
        ]
        for level in scope.private_levels
    ]
    return bands.page(rows, STYLES_2, f"Figure 2: what privacy costs, m = {scope.private_clients}", columns=2)


def _ends(scope: Scope) -> tuple[float, float]:
    return float(min(scope.private_rows)), float(max(scope.private_rows))


def _curves(found: Mapping[Key2, Compensated], level: float, epsilon: float) -> dict[str, Curve]:
    curves: dict[str, Curve] = {}
    for name in (PRIVATE_PUBLISHED, PRIVATE_OURS):
        several = {key[3]: one for key, one in found.items() if key[:3] == (level, epsilon, name)}
        curves[f"{name}, {AIMED}"] = [Spot(x=n, y=one.aimed) for n, one in several.items()]
        curves[f"{name}, {SEEN}"] = [Spot.of(n, one.seen) for n, one in several.items()]
    return {name: curve for name, curve in curves.items() if curve}


def table_1(shapes: Sequence[tuple[int, int]], level: float) -> list[list[str]]:
    """Lines: clients, rows, then the pair, mean and standard deviation of each."""
    lines = []
    for clients, n in shapes:
        found = moments(clients, n, level)
        pairs = [best_pair(clients, n, level, rule="paper").pair, best_pair(clients, n, level).pair]
        cells = [f"{one.mean:.4f} ({one.spread:.4f})" for one in found.values()]
        shown = [f"{pair} {cell}" for pair, cell in zip(pairs, cells[:2], strict=True)]
        lines.append([str(clients), str(n), *shown, *cells[2:]])
    return lines
