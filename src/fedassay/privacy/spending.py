"""What a run has spent, as the plain values that a result and its certificate carry."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from fedassay.privacy.ledger import Charge, compose
from fedassay.protocol import Budget

_LEFT_OUT = ("dataset", "study", "asker", "fingerprint")
"""What is the same for all charges of a run, or nobody else's business."""

_OF_NOISE = ("scale", "l1", "l2", "shuffled_epsilon", "shuffled_delta", "sampled")
_NAMED = tuple(field.name for field in fields(Charge) if field.name not in _LEFT_OUT)


def spending(charges: Iterable[Charge], budget: Budget | None) -> dict[str, Any]:
    """The budget of a study, what its releases add up to, and each of them; None where there is no noise.

    Guarantee: `spent` is `ledger.compose` of the charges at the budget's delta, so what a ledger with these charges
    says, and what anybody can compute again from the entries. `by_task` is the same of the charges of each task alone;
    under a delta these add up to more than `spent`.
    """
    charges = list(charges)
    entries = [_entry(charge, budget) for charge in charges]
    if budget is None:
        unknown = dict.fromkeys(("epsilon", "delta", "spent", "remaining", "by_task"))
        return {**unknown, "charges": entries}
    spent = compose(charges, budget.delta)
    return {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "spent": spent if math.isfinite(spent) else None,
        "remaining": max(0.0, budget.epsilon - spent),
        "by_task": _by_task(charges, budget),
        "charges": entries,
    }


def _by_task(charges: Iterable[Charge], budget: Budget) -> dict[str, Any]:
    found: dict[str, list[Charge]] = {}
    for charge in charges:
        found.setdefault(_name(charge), []).append(charge)
    return {name: _plain(compose(mine, budget.delta)) for name, mine in found.items()}


def _name(charge: Charge) -> str:
    """Of its task in the study."""
    return charge.task.rpartition(":")[2]


def _entry(charge: Charge, budget: Budget | None) -> dict[str, Any]:
    """One release; what only noise has is None without it."""
    alone = math.inf if budget is None else compose([charge], budget.delta)
    entry = {name: _plain(getattr(charge, name)) for name in _NAMED}
    entry |= dict.fromkeys(_OF_NOISE) if charge.exact else {}
    return {**entry, "task": _name(charge), "epsilon": _plain(alone)}


def _plain(value: Any) -> Any:
    """As JSON has it, which knows no infinite numbers."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value.hex() if isinstance(value, bytes) else str(value)
