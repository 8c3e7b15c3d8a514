"""The ledger of a site or a coordinator: in an SQLite file, or in PostgreSQL where several coordinators share it.

Its refusals are recorded apart from it (`refusals`); the sets of clients whose exact totals it has helped to open are
where its answers are (`member_store`).

Running sums of what was spent on each data set, so that a charge need not look at all the earlier ones.

A new charge is first judged by an upper bound of what `compose` would say: the sum of pure epsilons, or the Rényi bound
at a few whole orders, whichever is less. Both are sums over releases. Only if the bound does not fit is the tight
composition computed, from how many releases of each kind there are. So the answer is always that of `ledger.check`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedassay.errors import UsageError
from fedassay.privacy import accounting, renyi
from fedassay.privacy.ledger.book import Book
from fedassay.privacy.ledger.chain import CHARGE, Record, body_of, charge_of, id_text
from fedassay.privacy.ledger.charges import (
    NAMES,
    Charge,
    Ledger,
    by_dataset,
    check,
    compose,
    require_one_split,
    unrecorded,
)
from fedassay.privacy.ledger.place import Place
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import ATOMS, Budget, Neighbours, Part, Unit

# --- running sums of what was spent on each data set --------------------------------------------------------

_COSTS = tuple(field.name for field in fields(Charge) if field.name not in NAMES)
_KNOWN = {*NAMES, *_COSTS}


class SpentTally:
    """Spending on one data set, as running sums.

    Examples
    --------
    >>> release = Charge(id="1", dataset="d", study="s", law="discrete-laplace", scale=4.0, l1=1.0, l2=1.0,
    ...                  trust_model="server-dp")
    >>> tally = SpentTally()
    >>> tally.add(release.kind)
    >>> tally.fits([release], Budget(epsilon=0.6)), tally.fits([release] * 2, Budget(epsilon=0.6))
    (True, False)
    """

    def __init__(self) -> None:
        self.counts: Counter[Charge] = Counter()
        """Number of releases of each kind (`Charge.kind`), in the order of the first of each."""
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
        """Return True only if `ledger.check` would let the charges pass; False is inconclusive."""
        noisy = [charge for charge in added if not charge.exact]
        if len(noisy) < len(added) and not allow_exact:
            return False
        if len(self._promises | {(charge.unit, charge.neighbours) for charge in noisy}) > 1:
            return False
        # More than rounding can have taken away in all these additions, and in the conversion.
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
    """Spending on each data set, as running sums."""

    def __init__(self) -> None:
        self._tallies: dict[str, SpentTally] = {}
        self._kinds: dict[tuple[Any, ...], Charge] = {}

    def of(self, dataset: str) -> SpentTally:
        """Return the tally of this data set; empty if nothing was spent."""
        return self._tallies.get(dataset, SpentTally())

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
        tally = self._tallies.setdefault(dataset, SpentTally())
        tally.add(kind)
        if kind.part is not Part.ALL and tally.split is None:
            tally.split = fingerprint


@lru_cache(maxsize=4096)
def _cost(kind: Charge) -> tuple[float, Floats]:
    return accounting.upper_bounds(kind.event, renyi.FEW)


# --- the ledger of a site or a coordinator ------------------------------------------------------------------


class DatabaseLedger(Ledger):
    """Charges that survive kills and power losses, cannot be changed unseen, and are never counted twice.

    Guarantee: as for `Ledger`; once `charge` returns, the record is on the disk. Threads, processes and machines that
    use the same place behave as if they came one after the other. See `Book` for what is checked when, and what is
    assumed.

    The place is opened when it is first used. A charge is judged by running sums first (`tally.py`), and composed
    tightly if these do not show that it fits: the answer is that of `admit` with everything recorded.

    Parameters
    ----------
    place : a path of an SQLite file (its head is kept next to it, in a file that ends in .head), or
        ``postgresql://USER:PASSWORD@HOST/DATABASE`` (extra ``postgres``), which is never shown.
    budget : holds for each data set by itself; None only records.
    allow_exact : True if releases without noise pass; see `MemoryLedger`.
    anchor : the file in which this machine keeps the head; needed for PostgreSQL.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = DatabaseLedger(Path(folder) / "ledger.sqlite", Budget(epsilon=1.0))
    ...     release = Charge(id="1", dataset="d", study="s", law="discrete-laplace", scale=1.5, l1=1.0, l2=1.0,
    ...                      trust_model="server-dp")
    ...     ledger.charge([release])
    ...     ledger.charge([release])  # the same answer again is free
    ...     round(ledger.spent("d", 0.0), 3)
    0.667
    """

    def __init__(
        self,
        place: str | Path,
        budget: Budget | None,
        *,
        allow_exact: bool = False,
        anchor: Path | None = None,
    ) -> None:
        found = Place.of(place)
        self.budget = budget
        self.allow_exact = allow_exact
        self._tallies = Tallies()
        self._book = Book(found, anchor_of(found, anchor), self._tallies.learn)

    def __repr__(self) -> str:
        return f"DatabaseLedger({self._book.place.label})"

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Charges recorded so far, in order."""
        self._book.read()
        return tuple(charge_of(record.body) for record in self._book.stored() if record.kind == CHARGE)

    @property
    def head(self) -> str | None:
        """The hash of the last record, which stands for all of them; None of an empty ledger."""
        self._book.read()
        head = self._book.head
        return head.hash if head.sequence else None

    def charge(self, charges: Sequence[Charge]) -> None:
        """Record the charges, or raise before anything is recorded."""
        with self._book.transaction() as work:
            ids = list(dict.fromkeys(id_text(charge.id) for charge in charges))
            known = [charge_of(record.body) for record in work.find(CHARGE, ids)]
            new = unrecorded(charges, {charge.id: charge for charge in known})
            for dataset, added in by_dataset(new).items():
                self._check(dataset, added)
            work.append(CHARGE, ((id_text(charge.id), body_of(charge)) for charge in new))

    def find(self, id: str | bytes) -> Charge | None:  # noqa: A002
        """See `Ledger`."""
        with self._book.transaction() as work:
            found = work.find(CHARGE, [id_text(id)])
            return charge_of(found[0].body) if found else None

    def spent(self, dataset: str, delta: float) -> float:
        """Return the epsilon that the releases of this data set add up to, at this delta."""
        self._book.read()
        return compose(self._tallies.of(dataset).counts, delta)

    def split_fingerprint(self, dataset: str) -> str | None:
        """See `Ledger`."""
        self._book.read()
        return self._tallies.of(dataset).split

    def adopt(self) -> None:
        """Make the anchor for records that were there before it; the caller asserts that these are all."""
        with self._book.transaction(adopt=True):
            return

    def _check(self, dataset: str, added: Sequence[Charge]) -> None:
        tally, budget = self._tallies.of(dataset), self.budget
        require_one_split(dataset, added, tally.split)
        if budget is not None and not tally.fits(added, budget, allow_exact=self.allow_exact):
            check(dataset, tally.counts, added, budget=budget, allow_exact=self.allow_exact)


def anchor_of(place: Place, anchor: Path | None) -> Path:
    """Return the file of a ledger's head: next to an SQLite file, unless named."""
    if anchor is None and place.file is not None:
        anchor = place.file.with_suffix(".head")
    if anchor is None:
        raise UsageError(
            f"ledger {place.label}: got no anchor, expected the file in which this machine keeps the head of a shared "
            "ledger; name one."
        )
    if anchor.absolute() == place.file:
        raise UsageError(
            f"ledger {place.label}: got a file that ends in .head, which is for its head; give another name."
        )
    return anchor.absolute()
