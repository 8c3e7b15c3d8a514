"""Which mechanism releases a distribution, decided from public settings by exact variances.

What is compared is the mean variance of a sum up to a point (`accuracy.mean_variance`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from fedassay.errors import UnsupportedQuery
from fedassay.estimation.least_squares import least_squares, mean_prefix_variance, ranked_widths
from fedassay.estimation.tree import Tree
from fedassay.protocol.vocabulary import Noise, Setting, Sum
from fedassay.summaries.distribution.path import LARGEST_MULTIPLIER, ValuePath
from fedassay.summaries.distribution.roots import ValueRoots
from fedassay.summaries.distribution.tree import ValueSummary, ValueTree
from fedassay.tasks.distribution.precision import mean_variance

MECHANISMS = ("tree", "path", "factorised")

S = TypeVar("S", bound=ValueSummary)

_CANDIDATES = 20
"""Fan-outs that are compared again where variances depend on the width of a node."""


def name_of(summary: ValueSummary, noise: Noise) -> str:
    """The name of the mechanism that a release was made by; ``none`` without noise."""
    if noise.variance == 0:
        return "none"
    if isinstance(summary, ValueTree):
        return "tree"
    return "path" if isinstance(summary, ValuePath) else "factorised"


def chosen(leaves: ValueTree, setting: Setting, *, mechanism: str, share: float = 1.0) -> ValueSummary:
    """What to ask for.

    Parameters
    ----------
    leaves : the grid and the classes, as counts per leaf.
    setting : what is public.
    mechanism : one of `MECHANISMS`, or ``auto``: the one with the least variance among those that the trust model
        can answer; `tree` where clients report on one level each. Only noise of a Gaussian type, for a delta above 0,
        makes `factorised` better than the others, so that it is not tried for a pure epsilon.
    share : the part of the budget.

    Without noise the answer is `leaves`: all mechanisms would give the same.
    """
    if setting.noise(Sum(of=leaves, share=share)).variance == 0:
        return leaves
    if mechanism == "path":
        return best_path(leaves, setting, share=share)
    if mechanism == "factorised":
        return leaves.like(ValueRoots)
    tree = best_tree(leaves, setting, share=share)
    if mechanism == "tree" or setting.noise(Sum(of=tree, share=share)).reporting:
        return tree
    others: list[ValueSummary] = [best_path(leaves, setting, share=share)]
    if setting.budget is not None and setting.budget.delta > 0:
        others.append(leaves.like(ValueRoots))
    return _least_noisy([tree, *others], setting, share=share) or tree


def _least_noisy(candidates: Sequence[S], setting: Setting, *, share: float) -> S | None:
    """The first of those with the least mean variance; None if none can be answered."""
    possible = []
    for candidate in candidates:
        try:
            noise = setting.noise(Sum(of=candidate, share=share))
        except UnsupportedQuery:
            continue
        possible.append((mean_variance(candidate, noise), candidate))
    return min(possible, key=lambda one: one[0])[1] if possible else None


def best_tree(leaves: ValueTree, setting: Setting, *, share: float = 1.0) -> ValueTree:
    """The levels with the least mean variance.

    All fan-outs are compared for noise that is the same on all levels. Where clients report on one level each, the
    variance also depends on how wide a node is: the best ones are compared again. Levels get equal parts of the
    budget; multipliers that would give the coarser ones more have never been found to help a sum up to a point.
    """

    def noise_of(levels: int) -> Noise:
        # Noise depends on how many levels count a row, not on how wide their nodes are.
        like = replace(
            leaves,
            lower=0,
            upper=1,
            points=1 << levels,
            spacing="uniform",
            given=(),
            widths=tuple(1 << level for level in range(levels)),
            multipliers=(),
        )
        return setting.noise(Sum(of=like, share=share))

    def variance(widths: tuple[int, ...]) -> float:
        tree, levels = Tree(leaves=leaves.points, widths=widths), len(widths)
        return mean_prefix_variance(
            least_squares(tree, (1,) * levels, noise_of(levels), classes=leaves.classes)
        )

    ranked = ranked_widths(leaves.points, lambda levels: noise_of(levels).variance, keep=_CANDIDATES)
    best = min(ranked, key=variance) if noise_of(1).reporting else ranked[0]
    return replace(leaves, widths=best, multipliers=())


def best_path(leaves: ValueTree, setting: Setting, *, share: float = 1.0) -> ValuePath:
    """The mechanism of the paper, with the multiplier that has the least variance.

    Multipliers above 1 make noise of a Gaussian type smaller: 2^9·√N leaves half a percent to gain. Many clients need
    smaller ones, so that totals stay within 64 bits.
    """
    single = leaves.like(ValuePath)
    candidates = [single]
    if setting.budget is not None and setting.budget.delta > 0:
        multiplier = min(LARGEST_MULTIPLIER, 1 << (single.height // 2 + 9))
        while multiplier > 1:
            candidates.append(replace(single, multiplier=multiplier))
            multiplier //= 4
    return _least_noisy(candidates, setting, share=share) or single
