"""Charges to data sets, the rule that admits them, and a ledger in memory.

A ledger keeps *noise laws*, not epsilons: laws compose tightly, and the epsilon of a history is
computed on request, at the requested delta. The rule is the pure function `admit`; a ledger only has to apply it
and record the outcome in one atomic step.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from fedassay.errors import BudgetExceeded, ProtocolError, UsageError
from fedassay.privacy import accounting
from fedassay.privacy.amplification import cost_of
from fedassay.protocol.vocabulary import (
    ATOMS,
    NO_NOISE,
    Budget,
    Neighbours,
    Noise,
    Part,
    Plan,
    Sensitivity,
    Unit,
)

NAMES = ("id", "dataset", "study", "trust_model", "fingerprint", "summary", "task", "asker")
"""Fields of a charge that cost nothing: they only describe it."""


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One release of one data set, as plain values that a database can hold.

    `id` stands for one *answer*: a question that is sent again gets the recorded answer again. Noise drawn
    anew under an old id would be a second release that is not paid for.

    Where only shuffled messages are seen, law and scale are those of one message, and `shuffled_epsilon` and
    `shuffled_delta` what all of them cost together: the books have both, in case the shuffler turns out to be none.

    Examples
    --------
    >>> Charge(id="1", dataset="d", study="s", law="discrete-laplace", scale=2.0, l1=1.0, l2=1.0,
    ...        trust_model="server-dp").noise.variance > 0
    True
    """

    id: str | bytes
    dataset: str
    study: str
    law: str
    scale: float
    l1: float
    l2: float
    trust_model: str
    part: Part = Part.ALL
    unit: Unit = Unit.EXAMPLE
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    shuffled_epsilon: float = 0.0
    shuffled_delta: float = 0.0
    sampled: float = 1.0
    """The probability with which a client takes part, where it counts for the guarantee."""
    fingerprint: str = field(default="", compare=False)
    """Fingerprint of the data at that time, or empty. It is noted, not compared: a budget belongs to the id of a data
    set, whatever its rows are by now. A request that is repeated after rows have changed is still the same request."""
    summary: str = field(default="", compare=False)
    task: str = field(default="", compare=False)
    asker: str = field(default="", compare=False)
    """Measured summary, kind of task, and public key of the asker: for readers of the ledger."""

    def __post_init__(self) -> None:
        names = tuple(getattr(self, name) for name in (*NAMES, "law") if name != "id")
        if not isinstance(self.id, str | bytes) or not all(isinstance(name, str) for name in names):
            raise UsageError("charge: expected texts as its names, and an id of text or bytes.")
        if not (
            isinstance(self.part, Part)
            and isinstance(self.unit, Unit)
            and isinstance(self.neighbours, Neighbours)
        ):
            raise UsageError("charge: expected a Part, a Unit and Neighbours, not their names.")
        if self.law == NO_NOISE.law:
            if math.isnan(self.l1) or math.isnan(self.l2) or self.scale != 0:
                raise UsageError(
                    "charge: expected a sensitivity that is a number and, without noise, scale 0."
                )
        else:
            accounting.whole_sensitivity(self.sensitivity)
            accounting.check_law(self.law, self.scale)
        if (self.shuffled_epsilon, self.shuffled_delta) != (0, 0) and (self.shuffled is None or self.exact):
            raise UsageError("charge: expected noise, and an epsilon, with a delta of shuffled messages.")
        whole_clients = self.unit is Unit.CLIENT and self.neighbours is Neighbours.ADD_REMOVE
        if self.sampled != 1 and not (
            0 < self.sampled < 1
            and self.law == accounting.GAUSSIAN
            and whole_clients
            and self.shuffled is None
        ):
            raise UsageError(
                "charge: only Gaussian noise for clients added or removed is amplified by sampling."
            )

    @classmethod
    def of(
        cls,
        plan: Plan,
        *,
        id: str | bytes,  # noqa: A002
        dataset: str,
        study: str,
        fingerprint: str = "",
        task: str = "",
        asker: str = "",
    ) -> Charge:
        """Return the charge to the data set for answering a planned query."""
        setting, shuffled = plan.setting, cost_of(plan)
        return cls(
            id=id,
            dataset=dataset,
            study=study,
            law=plan.noise.law,
            scale=plan.noise.scale,
            l1=plan.sensitivity.l1,
            l2=plan.sensitivity.l2,
            trust_model=setting.trust.name,
            part=plan.query.part,
            unit=setting.protection.unit,
            neighbours=setting.protection.neighbours,
            shuffled_epsilon=0.0 if shuffled is None else shuffled.epsilon,
            shuffled_delta=0.0 if shuffled is None else shuffled.delta,
            sampled=plan.sampled,
            fingerprint=fingerprint,
            summary=plan.query.of.name,
            task=task,
            asker=asker,
        )

    @property
    def kind(self) -> Charge:
        """The release without names: equal for releases that cost the same and may be counted together."""
        nameless: dict[str, Any] = dict.fromkeys(NAMES, "")
        return replace(self, **nameless)

    @property
    def exact(self) -> bool:
        """True if the release carries no noise: its epsilon is infinite."""
        return self.law == NO_NOISE.law

    @property
    def noise(self) -> Noise:
        """The noise law of the release."""
        return NO_NOISE if self.exact else accounting.noise_of(self.law, Fraction(self.scale))

    @property
    def sensitivity(self) -> Sensitivity:
        """Bounds on how far one unit can move what was measured."""
        return Sensitivity(l1=self.l1, l2=self.l2)

    @property
    def shuffled(self) -> Budget | None:
        """Joint cost of shuffled messages; None if that is the cost of each of them."""
        if not self.shuffled_epsilon > 0:
            return None
        return Budget(epsilon=self.shuffled_epsilon, delta=self.shuffled_delta)

    @property
    def event(self) -> Any:
        """The release as dp-accounting sees it."""
        return accounting.event(self.noise, self.sensitivity, self.shuffled, sampled=self.sampled)


class Ledger(ABC):
    """Record of what has been spent on each data set, which refuses what would spend too much.

    Contract: `charge` is all or nothing; it raises before anything is recorded; once it returns, the record
    survives whatever the ledger's storage survives; the same id counts once. Concurrent calls must behave
    as if they came one after the other.
    """

    budget: Budget | None
    """Total that each data set may spend; a site sets it anew when its policy has changed."""

    @property
    @abstractmethod
    def charges(self) -> tuple[Charge, ...]:
        """Charges recorded so far, oldest first."""

    @abstractmethod
    def charge(self, charges: Sequence[Charge]) -> None:
        """Record the charges, or raise `BudgetExceeded` or (an id with other content) `ProtocolError`."""

    @abstractmethod
    def find(self, id: str | bytes) -> Charge | None:  # noqa: A002
        """Return the charge that is recorded with this id."""

    def has(self, id: str | bytes) -> bool:  # noqa: A002
        """Return whether a charge with this id is recorded."""
        return self.find(id) is not None

    @abstractmethod
    def spent(self, dataset: str, delta: float) -> float:
        """Return the epsilon that the releases of this data set add up to, at this delta."""

    @abstractmethod
    def split_fingerprint(self, dataset: str) -> str | None:
        """Return the fingerprint of the rows of which a part (not all) was first released; None if no part was.

        Only charges with the same fingerprint may name a part; see `require_one_split`.
        """


class MemoryLedger(Ledger):
    """A ledger that lasts as long as this process; the budget holds for each data set by itself.

    Parameters
    ----------
    budget : None only records and refuses nothing: for simulations.
    allow_exact : True if releases without noise pass. They are recorded, their epsilon is infinite, and the
        budget then bounds only the others.

    Examples
    --------
    >>> ledger = MemoryLedger(Budget(epsilon=1.0))
    >>> release = Charge(id="1", dataset="d", study="s", law="discrete-laplace", scale=1.5, l1=1.0, l2=1.0,
    ...                  trust_model="server-dp")
    >>> ledger.charge([release])
    >>> ledger.charge([release])  # the same answer again is free
    >>> round(ledger.spent("d", 0.0), 3)
    0.667
    """

    def __init__(self, budget: Budget | None, *, allow_exact: bool = False) -> None:
        self.budget = budget
        self.allow_exact = allow_exact
        self._charges: dict[str | bytes, Charge] = {}
        self._splits: dict[str, str] = {}
        self._lock = threading.Lock()

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Charges recorded so far, in order."""
        return tuple(self._charges.values())

    def charge(self, charges: Sequence[Charge]) -> None:
        """Record the charges, or raise before anything is recorded."""
        with self._lock:
            new = admit(charges, self._charges, budget=self.budget, allow_exact=self.allow_exact)
            self._charges |= {charge.id: charge for charge in new}
            for charge in new:
                if charge.part is not Part.ALL:
                    self._splits.setdefault(charge.dataset, charge.fingerprint)

    def find(self, id: str | bytes) -> Charge | None:  # noqa: A002
        """Return the charge that is recorded with this id; see `Ledger`."""
        return self._charges.get(id)

    def spent(self, dataset: str, delta: float) -> float:
        """Return the epsilon that the releases of this data set add up to; infinite if one had no noise."""
        return compose((charge for charge in self.charges if charge.dataset == dataset), delta)

    def split_fingerprint(self, dataset: str) -> str | None:
        """Return the fingerprint of the first split; see `Ledger`."""
        return self._splits.get(dataset)


def admit(
    charges: Sequence[Charge],
    recorded: Mapping[str | bytes, Charge],
    *,
    budget: Budget | None,
    allow_exact: bool = False,
) -> tuple[Charge, ...]:
    """Return the charges that must be recorded, or raise if they may not be. Changes nothing.

    `recorded` maps ids to charges; of the charges it may leave out those of other data sets with other ids.
    """
    new = unrecorded(charges, recorded)
    for dataset, added in by_dataset(new).items():
        parted = (one for one in recorded.values() if one.dataset == dataset and one.part is not Part.ALL)
        require_one_split(dataset, added, next((one.fingerprint for one in parted), None))
        if budget is not None:
            before = Counter(charge for charge in recorded.values() if charge.dataset == dataset)
            check(dataset, before, added, budget=budget, allow_exact=allow_exact)
    return new


def unrecorded(charges: Sequence[Charge], recorded: Mapping[str | bytes, Charge]) -> tuple[Charge, ...]:
    """Return the charges whose ids are new, each once; an id that stands for something else is a `ProtocolError`."""
    new: dict[str | bytes, Charge] = {}
    for charge in charges:
        known = recorded.get(charge.id, new.get(charge.id))
        if known is None:
            new[charge.id] = charge
        elif known != charge:
            raise ProtocolError(
                f"ledger: the charge {charge.id!r} is recorded with other content; "
                "every release needs an id of its own."
            )
    return tuple(new.values())


def by_dataset(charges: Iterable[Charge]) -> dict[str, list[Charge]]:
    """Group the charges by data set."""
    found: dict[str, list[Charge]] = {}
    for charge in charges:
        found.setdefault(charge.dataset, []).append(charge)
    return found


def compose(charges: Iterable[Charge] | Mapping[Charge, int], delta: float) -> float:
    """Return the epsilon of these releases of one data set together, at this delta; a mapping counts each.

    Releases on different atoms of the rows (`Part.atoms`) compose in parallel: each unit is in exactly one of them, so
    it meets only the releases on parts that its own atom belongs to; the worst atom counts. Assumption: all
    charges that name a part were made on one and the same split of the same rows; `require_one_split` sees to it.
    See `data/selection.py` for why a unit that is added or removed then changes one part only.

    Releases that protect different units or use different neighbours add up to no single promise: infinite.
    """
    counts = Counter(charges)
    if len({(charge.unit, charge.neighbours) for charge in counts}) > 1:
        return math.inf
    met: dict[frozenset[Part], Counter[Any]] = {}
    for atom in ATOMS:
        parts = frozenset(charge.part for charge in counts if atom in charge.part.atoms)
        if parts not in met:  # the halves of the fit rows mostly meet the same
            met[parts] = Counter()
            for charge, times in counts.items():
                if charge.part in parts:
                    met[parts][charge.event] += times
    return max(accounting.spent(events, delta) for events in met.values())


def require_one_split(dataset: str, added: Iterable[Charge], split: str | None) -> None:
    """Raise if charges name a part of other rows than those that were first split.

    Which rows are held out depends on their places. If rows have moved, one of them may have been in the fit part
    then and in the held-out part now: the two releases add up for it. Such a release is charged with `Part.ALL`,
    which counts for every unit that may have been in it.

    Parameters
    ----------
    split : the fingerprint of the first recorded charge of this data set that names a part; None if there is none.
    """
    for charge in added:
        if charge.part is Part.ALL:
            continue
        split = charge.fingerprint if split is None else split
        if charge.fingerprint != split:
            raise BudgetExceeded(
                f"budget of {dataset}: got a release on the {charge.part} part of other rows than those that were "
                "first split, expected one that counts for all rows; charge it for all of them."
            )


def require_noise(dataset: str, added: Iterable[Charge]) -> None:
    """Raise if one of the charges is for a release without noise."""
    for charge in added:
        if charge.exact:
            raise BudgetExceeded(
                f"budget of {dataset}: {charge.trust_model} releases without noise, which no finite budget "
                "covers; ask under a trust model that adds noise, or let the ledger allow exact releases."
            )


def check(
    dataset: str,
    before: Mapping[Charge, int],
    added: Sequence[Charge],
    *,
    budget: Budget,
    allow_exact: bool = False,
) -> None:
    """Raise if the added charges would overspend the budget of this data set; `before` counts each release."""
    if not allow_exact:
        require_noise(dataset, added)
    before = {charge: times for charge, times in before.items() if not charge.exact}
    added = [charge for charge in added if not charge.exact]
    kinds = {f"{charge.unit} under {charge.neighbours}" for charge in (*before, *added)}
    if len(kinds) > 1:
        raise BudgetExceeded(
            f"budget of {dataset}: charges per {' and per '.join(sorted(kinds))} add up to no single "
            "promise; use the same unit and neighbours, or a data set name of its own for each."
        )
    total = compose(Counter(before) + Counter(added), budget.delta)
    if added and not total <= budget.epsilon:
        requested, remaining = compose(added, budget.delta), budget.epsilon - compose(before, budget.delta)
        needs_delta = budget.delta == 0 and any(
            charge.law in (accounting.GAUSSIAN, accounting.SKELLAM) or charge.shuffled for charge in added
        )
        raise BudgetExceeded(
            f"budget of {dataset}: requested epsilon {requested:.3g}, remaining {max(remaining, 0.0):.3g} of "
            f"{budget.epsilon:.3g} at delta {budget.delta:.3g}, difference {total - budget.epsilon:.3g}; "
            + (
                "Gaussian and Skellam noise need a delta above 0, and so does shuffling."
                if needs_delta
                else "ask for less or raise the budget."
            )
        )
