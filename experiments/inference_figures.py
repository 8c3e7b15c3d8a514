"""The figures of the page on online inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.bands import Axis, Drawing, Frame, Spot, page
from experiments.inference_simulation import (
    CORRECTED_SEPARATED,
    LEVEL,
    PUBLISHED,
    ROUND,
    SCALING,
    Case,
    Found,
    Plan,
    Runs,
)
from experiments.plots import (
    DEFAULT_STYLE,
    PUBLISHED_STYLE,
    SAME_STYLE,
    SECOND_PUBLISHED_STYLE,
    THIRD_STYLE,
    Style,
)

KINDS: Mapping[str, tuple[int, ...]] = {
    "Balance": (4,),
    "Small": (3, 4, 5),
    "Large": (1, 2, 3, 4, 5, 6, 7),
}
"""What E_i is drawn from; 4 on average."""

KIND_STYLES: Mapping[str, Style] = dict(
    zip(KINDS, (DEFAULT_STYLE, THIRD_STYLE, PUBLISHED_STYLE), strict=True)
)

TICKS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000)

METHOD_STYLES: Mapping[str, Style] = {
    PUBLISHED: PUBLISHED_STYLE,
    SCALING: SECOND_PUBLISHED_STYLE,
    CORRECTED_SEPARATED: SAME_STYLE,
    ROUND: DEFAULT_STYLE,
}


def figure_1(plan: Plan, part: float) -> Drawing:
    """The distance of the estimate from the truth, by how much clients' work differs."""
    found = {name: plan.runs(Case(part=part, steps=steps)) for name, steps in KINDS.items()}
    frames = []
    for title, method in (("mean of the iterates (published)", PUBLISHED), ("one-step estimate", ROUND)):
        curves = {
            name: [_distance(t, runs[method, t]) for t in plan.snapshots] for name, runs in found.items()
        }
        frames.append(
            Frame(
                title=title,
                x=Axis(title="rounds T", form="~s", ticks=TICKS),
                y=Axis(title="distance from θ*"),
                curves=curves,
                width=300,
                height=210,
            )
        )
    return page([frames], KIND_STYLES, "Convergence by heterogeneity of local steps")


def _distance(rounds: int, found: Found) -> Spot:
    """Twice the standard error to each side."""
    each = np.linalg.norm(found.error, axis=1)
    reach = 2 * float(each.std(ddof=1)) / np.sqrt(len(each))
    mean = float(each.mean())
    return Spot(x=rounds, y=mean, low=max(mean - reach, 1e-9), high=mean + reach)


def figure_2(found: Mapping[str, Runs], rounds: Sequence[int], part: float) -> Drawing:
    """Coverage and width of intervals against rounds, for each model."""
    rows = []
    for title, spot, log, level in (
        ("coverage", _coverage, False, LEVEL),
        ("mean radius", _radius, True, None),
    ):
        domain = (0.75, 1.0) if level else None
        rows.append(
            [
                Frame(
                    title=f"{model}, ν = {part:g}",
                    x=Axis(title="rounds T", form="~s", ticks=TICKS),
                    y=Axis(title=title, log=log, domain=domain),
                    curves={method: [spot(t, runs[method, t]) for t in rounds] for method in METHOD_STYLES},
                    level=level,
                    width=300,
                    height=190,
                )
                for model, runs in found.items()
            ]
        )
    return page(rows, METHOD_STYLES, "Intervals of 95 % against rounds", columns=2)


def _coverage(rounds: int, found: Found) -> Spot:
    reach = 2 * found.deviation
    return Spot(x=rounds, y=found.coverage, low=found.coverage - reach, high=found.coverage + reach)


def _radius(rounds: int, found: Found) -> Spot:
    return Spot(x=rounds, y=float(found.radius.mean()))
