"""Shares that a file gives and that do not fit into the budget: which, on which rows, and what to change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedassay.agenda import Agenda
from fedassay.planning.shares import cheapest_change, load
from fedassay.protocol import Part

_ROWS = {
    Part.FIRST_FIT: "the rows that calibrators are fitted on",
    Part.SECOND_FIT: "the rows that thresholds are fitted on",
    Part.HELD_OUT: "the held-out rows",
}


@dataclass(frozen=True, kw_only=True)
class Excess:
    """Shares that add up to more than 1: whose share stands out, and the sentence about it."""

    task: str
    sentence: str


def excess(agenda: Agenda, shares: Mapping[str, float]) -> Excess | None:
    """What is wrong with these shares of an agenda's tasks; None if they fit.

    Examples
    --------
    >>> from fedassay.agenda import Item
    >>> names = {"evaluate": 0.7, "calibrate": 0.4}
    >>> agenda = Agenda(items=tuple(Item(name=name, task=name, parameters={}, share=0.5) for name in names))
    >>> found = excess(agenda, names)
    >>> found.task, found.sentence.partition(",")[0]
    ('evaluate', 'share: evaluate 0.7 + calibrate 0.4 = 1.1')
    """
    uses = {item.name: {atom for part in agenda.parts(item) for atom in part.atoms} for item in agenda.items}
    change = cheapest_change(shares, uses)
    if not change:
        return None
    loads = load(shares, uses)
    fullest = max(loads, key=lambda atom: (loads[atom], atom is Part.HELD_OUT))
    involved = [name for name in shares if fullest in uses[name]]
    listed = " + ".join(f"{name} {shares[name]:g}" for name in involved)
    where = "" if len(set(loads.values())) == 1 else f" on {_ROWS[fullest]}"
    return Excess(
        task=max(involved, key=lambda name: shares[name]),
        sentence=f"share: {listed} = {loads[fullest]:.4g}{where}, expected at most 1; {change}.",
    )
