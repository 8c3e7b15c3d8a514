"""Split of a budget over the tasks of a study, and changes of shares that do not fit.

Rows are in one of three atoms (`Part.atoms`). A task spends its share on every atom that it queries, and shares add up
within an atom. Errors fall as shares grow. The split with the smallest worst ratio of an error to its target is
found by filling up: for a ratio r, the smallest share with which each task reaches it; then the smallest r whose shares
fit into every atom, by bisection.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from fedassay.protocol.vocabulary import Part

SMALLEST_SHARE = 1 / 64
"""Smallest share of a task: with hardly any budget predictions are of little use."""

_SHARES = tuple(float(share) for share in np.geomspace(SMALLEST_SHARE, 1.0, 9))
"""Shares at which errors are predicted; between them, logarithms are interpolated."""

_NEAR = 1.05
"""Factor up to which the smallest share with a predicted error is known."""

_LEAST = 1e-9
"""Smallest ratio; smaller ones are replaced by it."""

CLOSE = 1.05
"""Largest factor between the worst ratio of the split and the smallest possible. The rest of the budget is shared in
proportion. Without this factor, a task whose error is all sampling would take the whole budget without any gain."""

_DIGITS = 3

Uses = Mapping[str, Collection[Part]]
"""Atoms that each task queries, by task."""


@dataclass(frozen=True, kw_only=True)
class RatioCurve:
    """Ratio of an error to its target as a function of the share: made monotone, interpolated between predictions."""

    shares: tuple[float, ...]
    ratios: tuple[float, ...]

    @classmethod
    def of(cls, ratio: Callable[[float], float]) -> RatioCurve:
        """Return the curve from predictions; a ratio that is not known for a share is infinite."""
        found = {share: ratio(share) for share in _SHARES}
        hopeless = [share for share in _SHARES if math.isinf(found[share])]
        if (
            hopeless and hopeless[-1] < 1
        ):  # the share at which errors begin matters more than their size there
            below, above = hopeless[-1], _SHARES[_SHARES.index(hopeless[-1]) + 1]
            while above > _NEAR * below:
                middle = math.sqrt(below * above)
                found[middle] = ratio(middle)
                below, above = (middle, above) if math.isinf(found[middle]) else (below, middle)
        shares = tuple(sorted(found))
        falling = np.minimum.accumulate([max(found[share], _LEAST) for share in shares])
        return cls(shares=shares, ratios=tuple(float(one) for one in falling))

    def at(self, share: float) -> float:
        """Return the ratio at a share from the smallest to 1; infinite between a share without a ratio and the next."""
        place = max(1, bisect_left(self.shares, share))
        if share in self.shares or math.isinf(self.ratios[place - 1]):
            return self.ratios[self.shares.index(share) if share in self.shares else place - 1]
        (low, high), (left, right) = self.ratios[place - 1 : place + 1], self.shares[place - 1 : place + 1]
        return float(low * (high / low) ** (math.log(share / left) / math.log(right / left)))

    def smallest_share(self, ratio: float) -> float:
        """Return the smallest share that reaches the ratio; infinite if none does.

        Examples
        --------
        >>> curve = RatioCurve.of(lambda share: 0.1 / share)
        >>> round(curve.smallest_share(0.4), 4), curve.smallest_share(0.05)
        (0.25, inf)
        """
        place = next((place for place, found in enumerate(self.ratios) if found <= ratio), None)
        if place is None:
            return math.inf
        if place == 0 or math.isinf(self.ratios[place - 1]):
            return self.shares[place]
        (high, low), (left, right) = self.ratios[place - 1 : place + 1], self.shares[place - 1 : place + 1]
        return float(right * (left / right) ** (math.log(ratio / low) / math.log(high / low)))


def load(shares: Mapping[str, float], uses: Uses) -> dict[Part, float]:
    """Return the sum of the shares of each atom.

    Examples
    --------
    >>> load({"evaluate": 0.6, "calibrate": 0.5}, {"evaluate": Part.ALL.atoms, "calibrate": (Part.HELD_OUT,)})
    {<Part.FIRST_FIT: 'first-fit'>: 0.6, <Part.SECOND_FIT: 'second-fit'>: 0.6, <Part.HELD_OUT: 'held-out'>: 1.1}
    """
    return {
        atom: math.fsum(share for name, share in shares.items() if atom in uses[name])
        for atom in Part.ALL.atoms
    }


def best_shares(curves: Mapping[str, RatioCurve], uses: Uses) -> dict[str, float]:
    """Return shares that make the worst ratio about as small as possible, and use up the budget.

    Guarantee: they fit into every atom, and the worst ratio of the curves is at most `CLOSE` times the smallest
    possible. Tasks whose targets cannot be reached by any split share the rest equally with the others.

    Examples
    --------
    >>> curves = {"a": RatioCurve.of(lambda share: 0.1 / share), "b": RatioCurve.of(lambda share: 0.3 / share)}
    >>> best_shares(curves, {"a": Part.ALL.atoms, "b": Part.ALL.atoms})
    {'a': 0.25, 'b': 0.75}
    """
    known = {name: curve for name, curve in curves.items() if math.isfinite(curve.ratios[-1])}
    hopeless = [name for name in curves if name not in known]
    room = 1 - len(hopeless) / len(curves)
    found = dict.fromkeys(hopeless, 1 / len(curves))
    if known:
        found |= _filled(known, uses, room)
    return _rounded({name: found[name] for name in curves}, uses)


def equal_shares(uses: Uses) -> dict[str, float]:
    """Return the largest shares that are the same for all tasks."""
    most = max(sum(atom in atoms for atoms in uses.values()) for atom in Part.ALL.atoms)
    return _rounded(dict.fromkeys(uses, 1 / most), uses)


def _filled(curves: Mapping[str, RatioCurve], uses: Uses, room: float) -> dict[str, float]:
    def needed(ratio: float) -> dict[str, float]:
        return {name: curve.smallest_share(ratio) for name, curve in curves.items()}

    def fits(ratio: float) -> bool:
        return max(load(needed(ratio), uses).values()) <= room

    low = max(curve.ratios[-1] for curve in curves.values())
    high = max(low, *(next(r for r in curve.ratios if math.isfinite(r)) for curve in curves.values()))
    if fits(high):  # else no split gives every task an error at all, and the budget is shared in proportion
        while high > low * 1.001:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if fits(middle) else (middle, high)
    shares = needed(high * CLOSE)
    fullest = max(load(shares, uses).values())
    return {name: min(1.0, share * room / fullest) for name, share in shares.items()}


def _rounded(shares: Mapping[str, float], uses: Uses) -> dict[str, float]:
    """Round shares down to `_DIGITS` digits, so that they still fit; the rest goes to the largest."""
    step = 10**-_DIGITS
    found = {name: max(step, math.floor(share / step + 1e-6) * step) for name, share in shares.items()}
    found = {name: round(share, _DIGITS) for name, share in found.items()}
    largest = max(found, key=lambda name: found[name])
    fullest = max(weight for atom, weight in load(found, uses).items() if atom in uses[largest])
    return found | {largest: round(found[largest] + max(0.0, 1 - fullest), _DIGITS)}


# --- shares that do not fit -------------------------------------------------------------------------------


def cheapest_change(shares: Mapping[str, float], uses: Uses) -> str:
    """Return the smallest change of a share so that shares fit, or of all alike if changing a single one is not enough.

    The smallest change takes least from its task: from the largest of those that could give enough while keeping
    something. Empty if they fit.

    Examples
    --------
    >>> everywhere = {"evaluate": Part.ALL.atoms, "calibrate": Part.FIT.atoms + Part.HELD_OUT.atoms}
    >>> cheapest_change({"evaluate": 0.7, "calibrate": 0.4}, everywhere)
    'lower the share of evaluate from 0.7 to 0.6'
    >>> cheapest_change({"evaluate": 0.5, "calibrate": 0.5}, everywhere)
    ''
    """
    over = {atom: weight - 1 for atom, weight in load(shares, uses).items() if weight > 1 + 1e-9}
    if not over:
        return ""
    excess = max(over.values())
    able = [
        name
        for name, share in shares.items()
        if share - excess >= SMALLEST_SHARE and all(atom in uses[name] for atom in over)
    ]
    if able:
        name = max(able, key=lambda one: shares[one])
        lower = math.floor((shares[name] - excess) * 1000 + 1e-6) / 1000
        return f"lower the share of {name} from {shares[name]:g} to {lower:g}"
    factor = 1 / (1 + excess)
    scaled = ", ".join(
        f"{name} {math.floor(share * factor * 1000 + 1e-6) / 1000:g}" for name, share in shares.items()
    )
    return f"multiply all shares by {math.floor(factor * 1000) / 1000:g}: {scaled}"
