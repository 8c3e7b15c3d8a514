"""Expected charges of a study, as far as they are known before any site is asked.

The first release of every task is planned as it will be. What comes later depends on answers; known is only the share
of the budget that is left for it, and how trust models turn a share into noise. So there are several cases: one in
which all later releases get the noise of sums that one row moves in one place, and one of those that it moves in many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fedassay.errors import BudgetExceeded, FedassayError
from fedassay.kernel.agenda import Agenda, Item
from fedassay.kernel.run import rehearse
from fedassay.privacy import accounting
from fedassay.privacy.ledger.charges import Charge, compose
from fedassay.protocol.vocabulary import ATOMS, Budget, Part, Plan, Sensitivity, Setting

_FEW, _MANY = Sensitivity(l1=1.0, l2=1.0), Sensitivity(l1=64.0, l2=8.0)
"""Sensitivities of a sum that one row moves in one place, which gets Laplace noise, and of a sum that it moves in many,
which gets Gaussian or Skellam noise if there is a delta."""

_STEPS = 16
"""Halvings of the search for the largest epsilon that fits: a smaller part of what was wanted is no way out."""

_WHOLE = 1 - 1e-9
"""Part of a share from which on a pure epsilon is the whole share of an epsilon: rounding."""


def foreseen(agenda: Agenda, setting: Setting) -> tuple[list[Charge], ...]:
    """Return the expected charges of a study, in each case; in the end it costs about as much as the dearest.

    Guarantee: first releases are charged as they will be, if they are asked in this setting. Shares of the rest are
    complete: no task is charged for more (`run.Purse`).
    Assumption: later releases have the noise laws of one of the cases; a mixture of them can cost a little more.
    """
    cases: tuple[list[Charge], ...] = ([], [])
    for item, job in zip(agenda.items, agenda.jobs(setting), strict=True):
        plans = [job.setting.plan(query) for query in rehearse(job.task, job.setting)]
        first = [
            Charge.of(plan, id=f"{item.name}/{place}", dataset="", study="")
            for place, plan in enumerate(plans)
        ]
        for shape, charges in zip((_FEW, _MANY), cases, strict=True):
            charges += first
            for atom, share in _left(item, agenda, plans).items():
                charges += _rest(setting, shape, atom, share, first=list(zip(plans, first, strict=True)))
    return cases


def _left(item: Item, agenda: Agenda, plans: Sequence[Plan]) -> Mapping[Part, float]:
    """Return what a task may still spend on each atom after its first step; nothing if it has nothing to ask."""
    if not plans:
        return {}
    atoms = {atom for part in agenda.parts(item) for atom in part.atoms}
    asked = {
        atom: math.fsum(plan.query.share for plan in plans if atom in plan.query.part.atoms) for atom in atoms
    }
    left = {atom: min(1.0, item.share - asked[atom]) for atom in ATOMS if atom in atoms}
    return {atom: share for atom, share in left.items() if share > 1e-9 * item.share}


def _rest(
    setting: Setting, shape: Sensitivity, part: Part, share: float, *, first: Sequence[tuple[Plan, Charge]]
) -> list[Charge]:
    """Return releases that spend this share on these rows, made like the first ones of the task."""
    budget = setting.budget
    assert budget is not None
    plan, like = first[0]
    if like.sampled < 1:  # then all releases are of the same share
        return [replace(like, part=part)] * math.ceil(share / plan.query.share * _WHOLE)
    if like.shuffled is not None:
        part_of = Budget(epsilon=share * budget.epsilon, delta=share * budget.delta)
        return [replace(like, part=part, shuffled_epsilon=part_of.epsilon, shuffled_delta=part_of.delta)]
    if budget.delta == 0 or any(_is_pure(one, charge, budget) for one, charge in first):
        # Randomised response is the dearest of all releases with this epsilon.
        return [
            replace(
                like, part=part, law=accounting.LAPLACE, scale=1 / (share * budget.epsilon), l1=1.0, l2=1.0
            )
        ]
    calibrate = accounting.calibrate_shared if setting.trust.clients_add_noise else accounting.calibrate
    noise = calibrate(budget, shape, share)
    return [replace(like, part=part, law=noise.law, scale=noise.scale, l1=shape.l1, l2=shape.l2)]


def _is_pure(plan: Plan, charge: Charge, budget: Budget) -> bool:
    """Return whether shares of a pure epsilon are spent although there is a delta, as with unary encoding."""
    if plan.query.share == 1 or charge.law not in (accounting.LAPLACE, accounting.UNARY, accounting.CHOICE):
        return False
    spent = (1.0 if charge.law == accounting.UNARY else charge.l1) / charge.scale
    return spent >= _WHOLE * plan.query.share * budget.epsilon


def needed(before: Sequence[Charge], cases: Sequence[Sequence[Charge]], cap: Budget) -> float:
    """Return the epsilon of the dearest case at the delta of a total, together with what was spent before."""
    return max(compose([*before, *more], cap.delta) for more in cases)


def largest_epsilon(agenda: Agenda, setting: Setting, before: Sequence[Charge], cap: Budget) -> float | None:
    """Return the largest epsilon of a study that fits into a total, to three digits; None if none does."""
    budget = setting.budget
    assert budget is not None

    def fits(epsilon: float) -> bool:
        other = replace(setting, budget=replace(budget, epsilon=epsilon))
        try:
            return needed(before, foreseen(agenda, other), cap) <= cap.epsilon
        except FedassayError:
            return False

    low, high = 0.0, budget.epsilon
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
        if high - low < 1e-3 * high:
            break
    rounded = (float(f"{one:.3g}") for one in (high, low, low * 0.995))
    return next((one for one in rounded if one > 0 and fits(one)), None)


def require_room(
    agenda: Agenda, setting: Setting, charges: Iterable[Charge], cap: Budget | None, *, own: frozenset[str]
) -> None:
    """Refuse a study that the ledger of a coordinator would refuse at some point, before any site is asked.

    Parameters
    ----------
    charges : charges recorded on the same data.
    own : exchanges that this very study has begun before it broke off, in hex; their charges do not count twice.
    """
    if cap is None or setting.budget is None:
        return
    before = [one for one in charges if not one.exact and str(one.id).partition("/")[0] not in own]
    if not before and setting.budget.epsilon <= cap.epsilon and setting.budget.delta <= cap.delta:
        return
    total = needed(before, foreseen(agenda, setting), cap)
    if total <= cap.epsilon:
        return
    largest = largest_epsilon(agenda, setting, before, cap)
    change = "Nothing is left for it." if largest is None else f"Cheapest change: epsilon {largest:g}."
    raise BudgetExceeded(
        "the study cannot be afforded, and no site was asked: with what was spent before "
        f"({compose(before, cap.delta):.3g}) it would come to {total:.3g} of {cap.epsilon:.3g} at delta "
        f"{cap.delta:.3g}. {change}"
    )
