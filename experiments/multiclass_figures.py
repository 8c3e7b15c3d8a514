"""Figures 2, 3, 4, 10 and 11 and Table 9 of the paper, drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from experiments import bands
from experiments.bands import Axis, Curve, Drawing, Frame, Spot
from experiments.multiclass_runs import (
    AUTO,
    BASE,
    BBQ,
    BBQ_ALL,
    BBQ_CHANGED,
    EXACT_TEMPERATURE,
    FEDCAL,
    FEDOP,
    FEDTEMP,
    Outcome,
)
from experiments.multiclass_sweeps import Curves, Local, Scope, clip_name
from experiments.plots import (
    BLACK_STYLE,
    DEFAULT_STYLE,
    PLAIN_STYLE,
    PUBLISHED_STYLE,
    SAME_STYLE,
    SECOND_PUBLISHED_STYLE,
    THIRD_STYLE,
    Style,
)
from experiments.three_privacy_models import markdown

CHANGED_STYLE = Style(colour="#CC79A7", dash=(2, 3))
CAL_STYLE = Style(colour="#A6761D", dash=(6, 2, 1, 2))

STYLES: Mapping[str, Style] = {
    BASE: PLAIN_STYLE,
    BBQ: PUBLISHED_STYLE,
    BBQ_ALL: SECOND_PUBLISHED_STYLE,
    BBQ_CHANGED: CHANGED_STYLE,
    FEDCAL: CAL_STYLE,
    FEDOP: SAME_STYLE,
    FEDTEMP: THIRD_STYLE,
    EXACT_TEMPERATURE: BLACK_STYLE,
    AUTO: DEFAULT_STYLE,
}
HERE, PAPER = "here (ResNet-18)", "the paper (simple CNN)"

Value = Callable[[Outcome], float]
TICKS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
CLASSWISE = Axis(title="cwECE, %", ticks=TICKS)
TOP_LABEL = Axis(title="top-label ECE, %", ticks=TICKS)
ACCURACY = Axis(title="accuracy, %", log=False, form=".1~f")
ROUNDS = Axis(title="rounds T", ticks=(1, 2, 5, 10, 20, 50))
SKEW = Axis(title="β, skew to the left", ticks=(0.1, 1, 10, 100))
EPSILON = Axis(title="ε", ticks=(0.1, 0.3, 1, 3, 10))


def _classwise(one: Outcome) -> float:
    return 100 * one.classwise


def _top_label(one: Outcome) -> float:
    return 100 * one.top_label


def _accuracy(one: Outcome) -> float:
    return 100 * one.accuracy


VALUES: Mapping[str, Value] = {
    CLASSWISE.title: _classwise,
    TOP_LABEL.title: _top_label,
    ACCURACY.title: _accuracy,
}


def _drawn(found: Curves, value: Value) -> dict[str, Curve]:
    return {
        name: [Spot.of(x, [value(one) for one in outcomes]) for x, outcomes in sorted(by_x.items())]
        for name, by_x in found.items()
    }


def _frame(found: Curves, x: Axis, y: Axis, title: str = "", *, width: int = 200) -> Frame:
    curves = _drawn(found, VALUES[y.title])
    if y is ACCURACY:
        # From zero, differences of a point would not be seen.
        ys = [spot.y for curve in curves.values() for spot in curve]
        y = replace(y, domain=(min(ys) - 0.3, max(ys) + 0.3))
    return Frame(title=title, x=x, y=y, curves=curves, width=width)


def figure_2(rounds: Curves, skew: Curves) -> Drawing:
    """Rounds and skew, without privacy."""
    frames = [
        _frame(rounds, ROUNDS, CLASSWISE, "β = 0.1"),
        _frame(rounds, ROUNDS, ACCURACY, "β = 0.1"),
        _frame(skew, SKEW, CLASSWISE, "T = 12"),
    ]
    return bands.page([frames], STYLES, "Without privacy: CIFAR-10 (ResNet-18)", columns=5)


def figure_3(
    published: Curves,
    amplified: Curves,
    rounds: Mapping[tuple[float, bool], Curves],
) -> Drawing:
    """Noise: above as published, below with our accounting; to the right over rounds on CIFAR-100."""
    rows = []
    for said, found, by_sampling in (
        ("as published", published, False),
        ("secret cohorts, joint clips", amplified, True),
    ):
        row = [
            _frame(found, EPSILON, CLASSWISE, f"CIFAR-10: {said}"),
            _frame(found, EPSILON, ACCURACY, f"CIFAR-10: {said}"),
        ]
        row += [
            _frame(several, ROUNDS, CLASSWISE, f"CIFAR-100, ε = {epsilon:g}", width=150)
            for (epsilon, flag), several in rounds.items()
            if flag == by_sampling
        ]
        rows.append(row)
    return bands.page(rows, STYLES, "Differential privacy for clients, δ = 1e-5", columns=5)


def figure_4(one_round: Curves, several: Curves, noisy: Curves, scope: Scope) -> Drawing:
    """Bins, on CIFAR-100."""
    height = Axis(title="M, for 2^M bins", ticks=(2, 4, 6, 8, 10), log=False, form="d")
    rows = [
        [
            _frame(found, x, CLASSWISE, title, width=260),
            _frame(found, x, ACCURACY, title, width=260),
        ]
        for found, x, title in (
            (one_round, height, "T = 1"),
            (several, ROUNDS, "without privacy"),
            (noisy, ROUNDS, "ε = 3, as published"),
        )
    ]
    colours = ("#56B4E9", "#0072B2", "#000000")
    styles = {name: STYLES[name] for name in (BASE, BBQ, BBQ_ALL)}
    for which, colour in zip(scope.few_heights, colours, strict=False):
        styles[f"{BBQ}, M = {which}"] = Style(colour=colour, dash=(3, 2))
        styles[f"{BBQ_ALL}, M = {which}"] = Style(colour=colour)
    return bands.page(rows, styles, "Numbers of bins: CIFAR-100 (LeNet-5), β = 0.1", columns=3)


def figure_10(rounds: Curves, epsilons: Curves) -> Drawing:
    """Classwise and top-label errors."""
    rows = [
        [_frame(found, x, y, title, width=260) for y in (CLASSWISE, TOP_LABEL)]
        for found, x, title in (
            (rounds, ROUNDS, "without privacy"),
            (epsilons, EPSILON, "differential privacy, as published"),
        )
    ]
    return bands.page(rows, STYLES, "Two calibration errors: CIFAR-10 (ResNet-18), β = 0.1", columns=5)


def figure_11(found: Curves, scope: Scope) -> Drawing:
    """FedTemp with clips."""
    looks = (PLAIN_STYLE, PUBLISHED_STYLE, DEFAULT_STYLE, THIRD_STYLE, BLACK_STYLE)
    styles = dict(zip(map(clip_name, scope.clips), looks, strict=False))
    frame = _frame(found, ROUNDS, CLASSWISE, width=360)
    return bands.page(
        [[frame]], styles, "FedTemp with clipped updates: CIFAR-10 (ResNet-18), β = 0.1", columns=5
    )


PUBLISHED_TABLE_9: Mapping[float, Local] = {
    0.1: Local(0.069, 1.39, 1.07),
    0.3: Local(0.039, 0.468, 0.524),
    0.5: Local(0.023, 0.264, 0.432),
    0.8: Local(0.022, 0.249, 0.419),
}
"""As printed; it is not said in which unit the errors are."""

SPREADS = (
    "variance of local cwECE, points²",
    "variance of local temperatures",
    "mean distance from the pooled one",
)


def table_9(found: Mapping[float, Sequence[Local]]) -> Drawing:
    """How clients differ, over the skew."""
    frames = []
    for place, title in enumerate(SPREADS):
        curves: dict[str, Curve] = {
            HERE: [Spot.of(beta, [one[place] for one in several]) for beta, several in sorted(found.items())]
        }
        if place > 0:
            curves[PAPER] = [Spot(x=beta, y=one[place]) for beta, one in PUBLISHED_TABLE_9.items()]
        frames.append(Frame(title="", x=SKEW, y=Axis(title=title), curves=curves, width=190))
    return bands.page([frames], {HERE: DEFAULT_STYLE, PAPER: PUBLISHED_STYLE}, "How clients differ: CIFAR-10")


def numbers_9(found: Mapping[float, Sequence[Local]]) -> str:
    """Table 9, means over repetitions; printed values in brackets."""
    lines = []
    for beta, several in sorted(found.items()):
        printed = PUBLISHED_TABLE_9.get(beta)
        means = [float(np.mean([one[place] for one in several])) for place in range(3)]
        cells = [f"{means[0]:.2f}", *(f"{mean:.3f}" for mean in means[1:])]
        if printed is not None:
            cells = [f"{cell} ({theirs:g})" for cell, theirs in zip(cells, printed, strict=True)]
        lines.append([f"{beta:g}", *cells])
    return markdown(["β", *SPREADS], lines)
