"""What a run has spent, as the plain values that a result and its certificate carry."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from fedassay.privacy.ledger import Charge, compose
from fedassay.protocol import Budget, Neighbours, Part, Unit

_LEFT_OUT = ("dataset", "study", "asker", "fingerprint")
"""What is the same for all charges of a run, or nobody else's business."""

_NAMED = tuple(field.name for field in fields(Charge) if field.name not in _LEFT_OUT)


def spending(charges: Iterable[Charge], budget: Budget | None) -> dict[str, Any]:
    """The budget of a study, what its releases add up to, and each of them; None where there is no noise.

    Guarantee: `spent` is `ledger.compose` of the charges at the budget's delta, so what a ledger with these charges
    says, and what anybody can compute again from the entries (`composed`).
    """
    charges = list(charges)
    entries = [_entry(charge, budget) for charge in charges]
    if budget is None:
        return {"epsilon": None, "delta": None, "spent": None, "remaining": None, "charges": entries}
    spent = compose(charges, budget.delta)
    return {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "spent": spent if math.isfinite(spent) else None,
        "remaining": max(0.0, budget.epsilon - spent),
        "charges": entries,
    }


def _entry(charge: Charge, budget: Budget | None) -> dict[str, Any]:
    alone = math.inf if budget is None else compose([charge], budget.delta)
    return {
        **{
            name: str(value) if isinstance(value := getattr(charge, name), str | bytes) else value
            for name in _NAMED
        },
        "epsilon": alone if math.isfinite(alone) else None,
    }


def composed(entries: Iterable[Mapping[str, Any]], delta: float) -> float:
    """The epsilon of such entries together: what `spending` says must be this.

    Raises `KeyError`, `TypeError`, `ValueError` or `UsageError` for what is no list of entries.
    """
    return compose([_charge(entry) for entry in entries], delta)


def _charge(entry: Mapping[str, Any]) -> Charge:
    values = {name: entry[name] for name in _NAMED}
    for name, kind in (("part", Part), ("unit", Unit), ("neighbours", Neighbours)):
        values[name] = kind(values[name])
    return Charge(dataset="study", study="study", **values)
