"""The card of the file drop."""

from __future__ import annotations

from fedassay.cards import Named
from fedassay.runtimes.card import RuntimeCard
from fedassay.runtimes.file_drop.parameters import FileDrop, Passes

FILE_DROP = RuntimeCard(
    order=30,
    parameters=FileDrop,
    carry=Named("fedassay.runtimes.file_drop.carry:carry"),
    options=Passes,
    anew="another drop",
)
