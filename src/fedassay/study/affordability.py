"""Can a study be afforded? Judged against the ledger before the first message, with the cheapest way out.

The ledger itself judges every release when it is made. But a study that is refused half-way has spent half of its
budget for nothing, so the whole of it is judged first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedassay.errors import BudgetExceeded, FedassayError
from fedassay.kernel.agenda import Agenda
from fedassay.kernel.expected_cost import foreseen, largest_epsilon, needed
from fedassay.privacy.ledger.charges import Charge, Ledger, MemoryLedger, compose
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.protocol.vocabulary import Budget, Setting
from fedassay.runtimes.card import ReleaseParameters
from fedassay.study.file import StudyFile


@dataclass(frozen=True, kw_only=True)
class Books:
    """A ledger, the name under which a study charges it, and what all studies together may spend."""

    ledger: Ledger
    dataset: str
    cap: Budget | None = None

    @property
    def charges(self) -> tuple[Charge, ...]:
        """What was spent on these rows before."""
        recorded: Sequence[Charge] = getattr(self.ledger, "charges", ())
        return tuple(one for one in recorded if one.dataset == self.dataset)

    @property
    def head(self) -> str | None:
        """The hash at the end of the ledger, if it is one that lasts."""
        return self.ledger.head if isinstance(self.ledger, DatabaseLedger) else None


def opened_books(study: StudyFile) -> Books:
    """The ledger that a study names; one in memory for a simulation that names none."""
    section, runtime = study.ledger, study.runtime
    cap, place = section.cap, section.place
    home = runtime.home if isinstance(runtime, ReleaseParameters) else None
    folder = study.path.absolute().parent
    anchor = folder / "ledger.head" if place is not None and "://" in place else None
    if home is not None:
        place, anchor = place or str(home / "ledger.sqlite"), home / "ledger.head"
    if place is None:
        return Books(ledger=MemoryLedger(None), dataset=section.dataset, cap=cap)
    where = place if "://" in place else folder / place
    ledger = DatabaseLedger(where, cap, allow_exact=True, anchor=anchor)
    return Books(ledger=ledger, dataset=section.dataset, cap=cap)


def require_affordable(
    study: StudyFile, agenda: Agenda, books: Books, setting: Setting, *, own: frozenset[str] = frozenset()
) -> None:
    """Refuse a study that its ledger would refuse at some point, before anybody is asked.

    Assumption: that of `foreseen`. The ledger, which judges each release exactly, has the last word.

    Edge cases: where nothing was spent before, a total that covers the budget of the study is always enough.

    Parameters
    ----------
    setting : of the whole study, with all that is known when it begins.
    own : exchanges that this very study has begun before it broke off, in hex; their charges do not count twice.
    """
    cap = books.cap
    if cap is None or setting.budget is None:
        return
    before = [one for one in books.charges if not one.exact and str(one.id).partition("/")[0] not in own]
    if not before and setting.budget.epsilon <= cap.epsilon and setting.budget.delta <= cap.delta:
        return
    total = needed(before, foreseen(agenda, setting), cap)
    if total > cap.epsilon:
        raise _Shortage(study, agenda, setting, before, cap).refusal(total)


@dataclass(frozen=True)
class _Shortage:
    """A study, what was spent before it, and the cap that it would exceed."""

    study: StudyFile
    agenda: Agenda
    setting: Setting
    before: Sequence[Charge]
    cap: Budget

    def refusal(self, total: float) -> BudgetExceeded:
        """The refusal, with what would make the study affordable: what changes least first."""
        spent, cap, finite = compose(self.before, self.cap.delta), self.cap, math.isfinite(total)
        ways = self.less_epsilon() + self.fewer_tasks() if spent < cap.epsilon and finite else []
        ways += [f"a total of {_up(total):.3g} in [ledger]"] if finite else []
        ways += self.in_the_ledger()
        where = self.study.document.where(("privacy", "epsilon"))
        amount = f"{total:.3g}" if finite else "more than any epsilon"
        out = f"Cheapest change: {ways[0]}." if ways else "Nothing of it fits: nothing is left."
        others = f" Others: {'; '.join(ways[1:])}." if len(ways) > 1 else ""
        return BudgetExceeded(
            f"{where}: the study cannot be afforded, and nobody was asked: with what was spent on "
            f"{self.study.ledger.dataset} before ({spent:.3g}) it would come to {amount} of {cap.epsilon:.3g} at delta "
            f"{cap.delta:.3g}. {out}{others}"
        )

    def less_epsilon(self) -> list[str]:
        """The largest epsilon of the study that fits."""
        assert self.setting.budget is not None
        largest = largest_epsilon(self.agenda, self.setting, self.before, self.cap)
        if largest is None:
            return []
        return [f"epsilon = {largest:g} instead of {self.setting.budget.epsilon:g} in [privacy]"]

    def fewer_tasks(self) -> list[str]:
        """The task of the smallest share without which the others fit as they are.

        Where the file gives no shares, those that stay would get the share of the one that goes: that helps nobody.
        """
        if not self.study.gives_shares:
            return []
        items, written = self.agenda.items, self.study.document.content["tasks"]
        for item in sorted(items, key=lambda one: one.share):
            if any("after" in written[one.name] for one in items if one.after == item.name):
                continue  # what names it would have to change too
            # As the file would be read without it: what builds on it would stand alone.
            left = tuple(
                replace(one, after=None) if one.after == item.name else one
                for one in items
                if one is not item
            )
            try:
                if left and self.needed(Agenda(items=left)) <= self.cap.epsilon:
                    return [f"leave out [tasks.{item.name}]"]
            except FedassayError:
                continue
        return []

    def needed(self, agenda: Agenda) -> float:
        """The epsilon of this agenda together with what was spent before."""
        return needed(self.before, foreseen(agenda, self.setting), self.cap)

    def in_the_ledger(self) -> list[str]:
        """What to change where no epsilon is enough, whatever was spent before."""
        protection, budget = self.setting.protection, self.setting.budget
        kinds = {(one.unit, one.neighbours) for one in self.before}
        kinds -= {(protection.unit, protection.neighbours)}
        if kinds:
            unit, neighbours = sorted(kinds)[0]
            return [
                f"another dataset in [ledger], as on {self.study.ledger.dataset} budget was spent per {unit} under "
                f"{neighbours}, which adds up with nothing else"
            ]
        alone = needed([], foreseen(self.agenda, self.setting), self.cap)
        if self.cap.delta == 0 and not math.isfinite(alone):
            return [f"delta = {budget.delta if budget else 0:g} in [ledger], beside its epsilon"]
        return []


def _up(value: float) -> float:
    step: float = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.ceil(value / step) * step
