"""Can a study be afforded? Judged against the ledger before the first message, with the cheapest way out.

The ledger itself judges every release when it is made. But a study that is refused half-way has spent half of its
budget for nothing, so the whole of it is judged first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedassay.errors import BudgetExceeded, FedassayError
from fedassay.kernel.agenda import Agenda, Item
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
    if home is not None:
        beside = str(home / "ledger.sqlite") if place is None else _place(study, place)
        ledger: Ledger = DatabaseLedger(beside, cap, allow_exact=True, anchor=home / "ledger.head")
    elif place is None:
        ledger = MemoryLedger(None)
    else:
        anchor = study.path.absolute().parent / "ledger.head" if "://" in place else None
        ledger = DatabaseLedger(_place(study, place), cap, allow_exact=True, anchor=anchor)
    return Books(ledger=ledger, dataset=section.dataset, cap=cap)


def _place(study: StudyFile, place: str) -> str:
    return place if "://" in place else str(study.path.absolute().parent / Path(place))


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
    if total <= cap.epsilon:
        return
    raise study_refused(study, agenda, setting, before=before, cap=cap, total=total)


# --- the way out ------------------------------------------------------------------------------------------


def study_refused(
    study: StudyFile,
    agenda: Agenda,
    setting: Setting,
    *,
    before: Sequence[Charge],
    cap: Budget,
    total: float,
) -> BudgetExceeded:
    """The refusal, with what would make the study affordable: what changes least first."""
    spent = compose(before, cap.delta)
    smaller = (
        [
            *_less_epsilon(agenda, setting, before, cap),
            *_fewer_tasks(study, agenda, setting, before=before, cap=cap),
        ]
        if spent < cap.epsilon and math.isfinite(total)
        else []
    )
    ways = [
        *smaller,
        *([f"a total of {_up(total):.3g} in [ledger]"] if math.isfinite(total) else []),
        *_in_the_ledger(study, agenda, setting, before=before, cap=cap),
    ]
    where = study.document.where(("privacy", "epsilon"))
    amount = f"{total:.3g}" if math.isfinite(total) else "more than any epsilon"
    out = f"Cheapest change: {ways[0]}." if ways else "Nothing of it fits: nothing is left."
    others = f" Others: {'; '.join(ways[1:])}." if len(ways) > 1 else ""
    return BudgetExceeded(
        f"{where}: the study cannot be afforded, and no site was asked: with what was spent on {study.ledger.dataset} "
        f"before ({spent:.3g}) it would come to {amount} of {cap.epsilon:.3g} at delta {cap.delta:.3g}. {out}{others}"
    )


def _less_epsilon(agenda: Agenda, setting: Setting, before: Sequence[Charge], cap: Budget) -> list[str]:
    """The largest epsilon of the study that fits."""
    assert setting.budget is not None
    largest = largest_epsilon(agenda, setting, before, cap)
    if largest is None:
        return []
    return [f"epsilon = {largest:g} instead of {setting.budget.epsilon:g} in [privacy]"]


def _fewer_tasks(
    study: StudyFile, agenda: Agenda, setting: Setting, *, before: Sequence[Charge], cap: Budget
) -> list[str]:
    """The task of the smallest share without which the others fit as they are.

    Where the file gives no shares, those that stay would get the share of the one that goes: that helps nobody.
    """
    if not study.gives_shares:
        return []
    for item in sorted(agenda.items, key=lambda one: one.share):
        if any("after" in study.document.content["tasks"][one.name] for one in _built_on(item, agenda)):
            continue  # what names it would have to change too
        # As the file would be read without it: what builds on it would stand alone.
        left = tuple(
            replace(one, after=None) if one.after == item.name else one
            for one in agenda.items
            if one is not item
        )
        try:
            if left and needed(before, foreseen(Agenda(items=left), setting), cap) <= cap.epsilon:
                return [f"leave out [tasks.{item.name}]"]
        except FedassayError:
            continue
    return []


def _built_on(item: Item, agenda: Agenda) -> list[Item]:
    return [one for one in agenda.items if one.after == item.name]


def _in_the_ledger(
    study: StudyFile, agenda: Agenda, setting: Setting, *, before: Sequence[Charge], cap: Budget
) -> list[str]:
    """What to change where no epsilon is enough, whatever was spent before."""
    protection = setting.protection
    kinds = {(one.unit, one.neighbours) for one in before} - {(protection.unit, protection.neighbours)}
    if kinds:
        unit, neighbours = sorted(kinds)[0]
        return [
            f"another dataset in [ledger], as on {study.ledger.dataset} budget was spent per {unit} under "
            f"{neighbours}, which adds up with nothing else"
        ]
    if cap.delta == 0 and not math.isfinite(needed([], foreseen(agenda, setting), cap)):
        return [f"delta = {setting.budget.delta if setting.budget else 0:g} in [ledger], with its epsilon"]
    return []


def _up(value: float) -> float:
    step: float = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.ceil(value / step) * step
