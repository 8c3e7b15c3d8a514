"""Running sums of what was spent on each data set, so that a charge need not look at all the earlier ones.

A new charge is first judged by an upper bound of what `compose` would say: the sum of pure epsilons, or the Rényi bound
at a few whole orders, whichever is less. Both are sums over releases. Only if the bound does not fit is the tight
composition computed, from how many releases of each kind there are. So the answer is always that of `ledger.check`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

import numpy as np

from fedassay.privacy import accounting, renyi
from fedassay.privacy.chain import CHARGE, Record, charge_of
from fedassay.privacy.ledger import NAMES, Charge
from fedassay.privacy.renyi import Reals
from fedassay.protocol import ATOMS, Budget, Neighbours, Part, Unit

_COSTS = tuple(field.name for field in fields(Charge) if field.name not in NAMES)
_KNOWN = {*NAMES, *_COSTS}


class Tally:
    """What was spent on one data set.

    Examples
    --------
    >>> release = Charge(id="1", dataset="d", study="s", law="discrete-laplace", scale=4.0, l1=1.0, l2=1.0,
    ...                  trust_model="server-dp")
    >>> tally = Tally()
    >>> tally.add(release.kind)
    >>> tally.fits([release], Budget(epsilon=0.6)), tally.fits([release] * 2, Budget(epsilon=0.6))
    (True, False)
    """

    def __init__(self) -> None:
        self.counts: Counter[Charge] = Counter()
        """How many releases of each kind (`Charge.kind`) there were, in the order of the first of each."""
        self.split: str | None = None
        """The fingerprint of the rows of which a part was first released; None if no part was."""
        self._promises: set[tuple[Unit, Neighbours]] = set()
        self._releases = 0
        self._pure = dict.fromkeys(ATOMS, 0.0)
        self._divergence = {atom: np.zeros(renyi.FEW.size) for atom in ATOMS}

    def add(self, kind: Charge) -> None:
        """Count one release."""
        self.counts[kind] += 1
        if kind.exact:
            return
        self._promises.add((kind.unit, kind.neighbours))
        self._releases += 1
        pure, divergence = _cost(kind)
        for atom in kind.part.atoms:
            self._pure[atom] += pure
            self._divergence[atom] = self._divergence[atom] + divergence

    def fits(self, added: Sequence[Charge], budget: Budget, *, allow_exact: bool = False) -> bool:
        """True only if `ledger.check` would let the charges pass; false says nothing."""
        noisy = [charge for charge in added if not charge.exact]
        if len(noisy) < len(added) and not allow_exact:
            return False
        if len(self._promises | {(charge.unit, charge.neighbours) for charge in noisy}) > 1:
            return False
        # More than rounding can have taken away in so many additions, and in the conversion.
        slack = 1 + (self._releases + len(noisy) + 64) * 2.0**-50
        return all(self._bound(atom, noisy, budget.delta, slack) <= budget.epsilon for atom in ATOMS)

    def _bound(self, atom: Part, noisy: Sequence[Charge], delta: float, slack: float) -> float:
        pure, divergence = self._pure[atom], self._divergence[atom]
        for charge in noisy:
            if atom in charge.part.atoms:
                more, diverging = _cost(charge.kind)
                pure, divergence = pure + more, divergence + diverging
        bounds = [pure * slack]
        if delta > 0:
            bounds.append(renyi.epsilon_at_few(divergence * slack, delta) + 2.0**-30)
        return min(bounds)


class Tallies:
    """What was spent on each data set."""

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}
        self._kinds: dict[tuple[Any, ...], Charge] = {}

    def of(self, dataset: str) -> Tally:
        """Of this data set; empty if nothing was."""
        return self._tallies.get(dataset, Tally())

    def learn(self, record: Record) -> None:
        """Count what was recorded, if it is a charge."""
        if record.kind != CHARGE:
            return
        body = record.body
        # Charges are validated when made, which takes longer than to see that one of this kind was made before.
        costs = tuple(body.get(name) for name in _COSTS)
        kind = self._kinds.get(costs)
        if kind is None or not body.keys() <= _KNOWN:  # what a younger fedassay has added may cost something
            kind = self._kinds[costs] = charge_of(body).kind
        dataset, fingerprint = body["dataset"], body.get("fingerprint", "")
        if not (isinstance(dataset, str) and isinstance(fingerprint, str)):
            raise TypeError("charge: expected texts as its names.")
        tally = self._tallies.setdefault(dataset, Tally())
        tally.add(kind)
        if kind.part is not Part.ALL and tally.split is None:
            tally.split = fingerprint


@lru_cache(maxsize=4096)
def _cost(kind: Charge) -> tuple[float, Reals]:
    return accounting.upper_bounds(kind.event, renyi.FEW)
