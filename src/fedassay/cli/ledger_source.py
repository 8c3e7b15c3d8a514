"""Which ledger a command looks at, and what is recorded in it, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from fedassay.cli.command import Option
from fedassay.errors import UsageError
from fedassay.privacy.book import Book
from fedassay.privacy.chain import CHARGE, Head, Record, charge_of
from fedassay.privacy.database_ledger import anchor_of
from fedassay.privacy.ledger import Charge, by_dataset
from fedassay.privacy.ledger_place import Place
from fedassay.protocol import Budget
from fedassay.runtimes.flower.coordinator_file import CoordinatorFile
from fedassay.sites import SiteFile


@dataclass(frozen=True, kw_only=True)
class Source:
    """A ledger, the file in which its head is kept, and the budget to compare with."""

    place: Place
    anchor: Path | None
    budget: Budget | None
    delta: float
    """At which epsilons are computed, with or without a budget."""

    def read(self) -> Checked:
        """Everything recorded; raises if the chain is broken or its end is missing."""
        records: list[Record] = []
        book = Book(self.place, self.anchor, records.append)
        if self.place.file is None or self.place.file.exists() or self.anchor is not None:
            book.read()
        return Checked(
            label=self.place.label, records=tuple(records), head=book.head, anchored=self.anchor is not None
        )


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What a ledger holds, each record checked against the one before."""

    label: str
    records: Sequence[Record] = field(repr=False)
    head: Head
    anchored: bool

    def charges(self, dataset: str | None) -> list[tuple[Record, Charge]]:
        """The charges of a data set, or all."""
        every = ((one, charge_of(one.body)) for one in self.records if one.kind == CHARGE)
        return [(one, charge) for one, charge in every if dataset in (None, charge.dataset)]

    def datasets(self, dataset: str | None) -> dict[str, list[Charge]]:
        """The charges of each data set."""
        return by_dataset(charge for _, charge in self.charges(dataset))

    @property
    def statement(self) -> str:
        """What was checked, for people; the head can be compared with what others see, by telephone."""
        end = (
            "and the end is the one that was kept"
            if self.anchored
            else "but its head is kept nowhere here: missing records at the end would not be noticed"
        )
        head = f"; head {self.head.hash[:16]}" if self.records else ""
        return f"{self.label}: {len(self.records)} records, the chain is whole {end}{head}."


def source(
    ledger: Annotated[
        str | None,
        Option("--ledger", metavar="FILE|URL", help="An SQLite file, or a PostgreSQL URL."),
    ] = None,
    anchor: Annotated[
        Path | None,
        Option(metavar="FILE", help="With --ledger URL: where this machine keeps its head."),
    ] = None,
    site: Annotated[Path | None, Option(metavar="site.toml", help="The ledger of this site.")] = None,
    coordinator: Annotated[
        Path | None, Option(metavar="FILE", help="The ledger of this coordinator's file (Flower).")
    ] = None,
    epsilon: Annotated[
        float | None, Option(help="A budget to compare with. Default: that of the site or coordinator.")
    ] = None,
    delta: Annotated[float | None, Option(help="The delta at which epsilons are computed.")] = None,
) -> Source:
    """The options that say which ledger."""
    if sum(one is not None for one in (ledger, site, coordinator)) != 1:
        raise UsageError("ledger: expected one of --ledger, --site and --coordinator; give exactly one.")
    budget: Budget | None = None
    if ledger is not None:
        place = Place.of(ledger)
        if place.file is not None and not place.file.is_file():
            raise UsageError(
                f"--ledger: got {str(place.file)!r}, expected a file that exists; check the path."
            )
        kept = anchor if anchor is not None or place.file is None else anchor_of(place, None)
        anchor = kept if kept is not None and kept.exists() else None
    elif site is not None:
        file = SiteFile.read(site)
        place, anchor, budget = Place.of(file.ledger), file.state / "ledger.head", file.budget
    else:
        assert coordinator is not None
        of = CoordinatorFile.read(coordinator)
        place, anchor, budget = Place.of(of.ledger), of.state / "ledger.head", of.budget
    if delta is None:
        delta = 0.0 if budget is None else budget.delta
    elif not 0 <= delta < 1:
        raise UsageError(f"--delta: got {delta:.3g}, expected a number from 0 to below 1.")
    if epsilon is not None:
        budget = Budget(epsilon=epsilon, delta=delta)
    elif budget is not None:
        budget = Budget(epsilon=budget.epsilon, delta=delta)
    return Source(place=place, anchor=anchor, budget=budget, delta=delta)
