"""`fedassay ledger show|budget|export|anchor`: the releases, their cost, and whether the books are whole."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval
from rich.console import Console

from fedassay.cli import options, output
from fedassay.cli.command import Option, command, takes
from fedassay.errors import UsageError
from fedassay.kernel.sites import SiteFile
from fedassay.privacy.ledger.book import Book
from fedassay.privacy.ledger.chain import CHARGE, Head, Record, canonical, charge_of
from fedassay.privacy.ledger.charges import Charge, by_dataset, compose
from fedassay.privacy.ledger.database import anchor_of
from fedassay.privacy.ledger.place import Place
from fedassay.privacy.ledger.refusals import DatabaseRecords
from fedassay.protocol.texts import spreadsheet_cell, visible
from fedassay.protocol.vocabulary import Budget, Part
from fedassay.runtimes.flower.coordinator_file import CoordinatorFile

# --- which ledger a command looks at ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CheckedLedger:
    """Content of a ledger, each record checked against the one before, and the budget to compare with.

    Parameters
    ----------
    anchored : whether its end was compared with a head that was kept.
    delta : at which epsilons are computed, with or without a budget.
    """

    place: Place
    records: Sequence[Record] = field(repr=False)
    head: Head
    anchored: bool
    budget: Budget | None
    delta: float

    @classmethod
    def read(cls, place: Place, anchor: Path | None, budget: Budget | None, delta: float) -> CheckedLedger:
        """Read everything recorded; raise if the chain is broken or its end is missing."""
        records: list[Record] = []
        book, anchored = Book(place, anchor, records.append), anchor is not None
        if place.file is None or place.file.exists() or anchored:
            book.read()
        found = tuple(records)
        return cls(place=place, records=found, head=book.head, anchored=anchored, budget=budget, delta=delta)

    def charges(self, dataset: str | None) -> list[tuple[Record, Charge]]:
        """Return the charges of a data set, or all."""
        every = ((one, charge_of(one.body)) for one in self.records if one.kind == CHARGE)
        return [(one, charge) for one, charge in every if dataset in (None, charge.dataset)]

    def datasets(self, dataset: str | None) -> dict[str, list[Charge]]:
        """Return the charges of each data set."""
        return by_dataset(charge for _, charge in self.charges(dataset))

    @property
    def statement(self) -> str:
        """Result of the check, for people; the head can be compared with what others see, by telephone."""
        end = (
            "and the end is the one that was kept"
            if self.anchored
            else "but its head is kept nowhere here: missing records at the end would not be noticed"
        )
        head = f"; head {self.head.hash[:16]}" if self.records else ""
        return f"{self.place.label}: {len(self.records)} records, the chain is whole {end}{head}."


def source(
    ledger: Annotated[
        str | None, Option("--ledger", metavar="FILE|URL", help="An SQLite file, or a PostgreSQL URL.")
    ] = None,
    anchor: Annotated[
        Path | None, Option(metavar="FILE", help="With --ledger URL: where this machine keeps its head.")
    ] = None,
    site: Annotated[Path | None, Option(metavar="site.toml", help="The ledger of this site.")] = None,
    coordinator: Annotated[
        Path | None, Option(metavar="FILE", help="The ledger of this coordinator's file (Flower).")
    ] = None,
    epsilon: Annotated[
        float | None, Option(help="A budget to compare with. Default: that of the site or coordinator.")
    ] = None,
    delta: Annotated[float | None, Option(help="The delta at which epsilons are computed.")] = None,
) -> Callable[[], CheckedLedger]:
    """Return a function that opens the ledger that these options name."""
    if sum(one is not None for one in (ledger, site, coordinator)) != 1:
        raise UsageError("ledger: expected one of --ledger, --site and --coordinator; give exactly one.")
    budget: Budget | None = None
    if ledger is not None:
        place = _existing(ledger)
        kept = anchor if anchor is not None or place.file is None else anchor_of(place, None)
        anchor = kept if kept is not None and kept.exists() else None
    else:
        file = CoordinatorFile.read(coordinator) if coordinator is not None else SiteFile.read(site or Path())
        place, anchor, budget = Place.of(file.ledger), file.state / "ledger.head", file.budget
    if delta is None:
        delta = 0.0 if budget is None else budget.delta
    elif not 0 <= delta < 1:
        raise UsageError(f"--delta: got {delta:.3g}, expected a number from 0 to below 1.")
    if epsilon is not None:
        budget = Budget(epsilon=epsilon, delta=delta)
    elif budget is not None:
        budget = Budget(epsilon=budget.epsilon, delta=delta)
    return partial(CheckedLedger.read, place, anchor, budget, delta)


def _existing(ledger: str) -> Place:
    """Return the place of a ledger that is there already."""
    place = Place.of(ledger)
    if place.file is not None and not place.file.is_file():
        raise UsageError(f"--ledger: got {str(place.file)!r}, expected a file that exists; check the path.")
    return place


# --- `fedassay ledger show|budget|export|anchor` ------------------------------------------------------------

Dataset = Annotated[str | None, Option("--dataset", metavar="D", help="Only this data set.")]
Json = Annotated[
    str | None, Option("--json", metavar="FILE", help="Write it as JSON; - for standard output.")
]


@takes(source)
def show(
    dataset: Dataset = None,
    last: Annotated[int, Interval(ge=1), Option(help="How many records, counted from the newest.")] = 20,
    refusals: Annotated[bool, Option("--refusals", help="The refused requests instead.")] = False,
    json: Json = None,
    quiet: options.Quiet = False,
    *,
    source: Callable[[], CheckedLedger],
) -> None:
    """Show the records, the newest last."""
    output.check_writable(json)
    checked = source()
    if refusals:
        refused = DatabaseRecords(checked.place).numbered()
        lines = [{"number": number, **asdict(request)} for number, request in refused.items()]
    else:
        lines = list(_charges(checked, dataset))
    console = output.console_beside(json, quiet=quiet)
    _print_table(lines[-last:], console)
    if len(lines) > last:
        console.print(f"{len(lines) - last} older ones are not shown; --last N shows more.")
    _conclude(checked, {"records": lines[-last:]}, json, console)


@takes(source)
def budget(
    dataset: Dataset = None,
    json: Json = None,
    quiet: options.Quiet = False,
    *,
    source: Callable[[], CheckedLedger],
) -> None:
    """Show what was spent on each data set and each part of it, and what remains."""
    output.check_writable(json)
    checked = source()
    found = checked.datasets(dataset)
    if dataset is not None and not found:
        known = ", ".join(repr(name) for name in checked.datasets(None)) or "none"
        raise UsageError(f"--dataset: got {dataset!r}, expected one on which something was spent: {known}.")
    lines = [_spent(name, charges, checked) for name, charges in found.items()]
    console = output.console_beside(json, quiet=quiet)
    _print_table([_flat(one) for one in lines], console)
    if any(one["exact_releases"] for one in lines):
        console.print("Releases without noise have no epsilon: no budget bounds what they say.")
    _conclude(checked, {"datasets": lines}, json, console)


@takes(source)
def export(
    out: Annotated[
        str, Option(metavar="FILE", help="FILE.csv, FILE.jsonl, or - for JSON lines on standard output.")
    ] = "-",
    dataset: Dataset = None,
    quiet: options.Quiet = False,
    *,
    source: Callable[[], CheckedLedger],
) -> None:
    """Write all records, with their hashes, as JSON lines or CSV."""
    if out != "-" and Path(out).suffix not in (".csv", ".jsonl"):
        raise UsageError(f"--out: got {out!r}, expected a file that ends in .csv or .jsonl.")
    output.check_writable(out)
    checked = source()
    records = [one for one in checked.records if dataset in (None, one.body.get("dataset"))]
    text = _csv(records) if out.endswith(".csv") else "".join(map(_line, records))
    output.write(text, out)
    output.say(Console(quiet=quiet, stderr=True), checked.statement)


@command
def anchor_command(
    ledger: Annotated[str, Option("--ledger", metavar="FILE|URL", help="The ledger.")],
    anchor: Annotated[
        Path | None, Option(metavar="FILE", help="Where this machine is to keep its head.")
    ] = None,
) -> None:
    """Begin to keep the head of a ledger that has records already, such as one that others share."""
    from fedassay.privacy.ledger.database import DatabaseLedger

    file = _existing(ledger).file
    opened = DatabaseLedger(ledger, None, anchor=anchor)
    opened.adopt()
    book: Book = opened._book
    print(f"{book.place.label}: {book.head.sequence} records, head {book.head.hash}")
    if file is None:
        print("Next: compare this head with what the others see (`fedassay ledger show`), by telephone.")


def _charges(checked: CheckedLedger, dataset: str | None) -> Iterable[dict[str, Any]]:
    """Yield one line for each release; it states whether the data of its data set changed."""
    before: dict[str, str] = {}
    for record, charge in checked.charges(dataset):
        known = before.get(charge.dataset, charge.fingerprint)
        before[charge.dataset] = charge.fingerprint or known
        yield {
            "sequence": record.sequence,
            "time": record.time,
            "dataset": charge.dataset,
            "study": charge.study,
            "task": charge.task,
            "summary": charge.summary,
            "trust_model": charge.trust_model,
            "part": str(charge.part),
            "unit": str(charge.unit),
            "law": charge.law,
            "scale": charge.scale,
            "epsilon": _number(compose([charge], checked.delta)),
            "asker": charge.asker[:16],
            "data_changed": bool(charge.fingerprint and known and charge.fingerprint != known),
        }


def _spent(dataset: str, charges: list[Charge], checked: CheckedLedger) -> dict[str, Any]:
    """Return the spending on a data set; releases without noise are counted apart."""
    budget, delta = checked.budget, checked.delta
    noisy = [charge for charge in charges if not charge.exact]
    total = compose(noisy, delta)
    fingerprints = list(dict.fromkeys(charge.fingerprint for charge in charges if charge.fingerprint))
    return {
        "dataset": dataset,
        "releases": len(charges),
        "exact_releases": len(charges) - len(noisy),
        "delta": delta,
        "spent": _number(total),
        "budget": None if budget is None else budget.epsilon,
        "remaining": None if budget is None else _number(max(0.0, budget.epsilon - total)),
        "parts": {
            str(part): _number(compose([one for one in noisy if {*one.part.atoms} & {*part.atoms}], delta))
            for part in (Part.FIT, Part.HELD_OUT)
        },
        "versions_of_the_data": max(1, len(fingerprints)),
    }


def _flat(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (line | line["parts"]).items() if name != "parts"}


def _number(value: float) -> float | str:
    """Return a number for JSON, which has no infinity."""
    return value if value < float("inf") else "inf"


def _print_table(lines: list[dict[str, Any]], console: Console) -> None:
    """Print aligned columns, one line for each record, so that they can be searched or cut."""
    if not lines:
        console.print("Nothing is recorded.")
        return
    cells = [[name.replace("_", " ") for name in lines[0]]]
    cells += [[_cell(value) for value in line.values()] for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        text = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        output.say(console, text.rstrip())


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return f"{value:.3g}" if isinstance(value, float) else "" if value is None else visible(value)


def _conclude(checked: CheckedLedger, document: dict[str, Any], json: str | None, console: Console) -> None:
    """Write the JSON that was asked for, and report what was checked."""
    verified = {"records": len(checked.records), "head": checked.head.hash, "anchored": checked.anchored}
    output.write_json({**document, "verified": verified}, json)
    output.say(console, checked.statement)


def _line(record: Record) -> str:
    return canonical({**record.parsed, "previous": record.previous, "hash": record.hash}) + "\n"


def _csv(records: list[Record]) -> str:
    names = list(dict.fromkeys(name for one in records for name in one.body if name != "time"))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["sequence", "time", "kind", *names, "previous", "hash"])
    for one in records:
        values = [spreadsheet_cell(one.body.get(name, "")) for name in names]
        plain = [canonical(value) if isinstance(value, list | dict) else value for value in values]
        writer.writerow([one.sequence, one.time, one.kind, *plain, one.previous, one.hash])
    return text.getvalue()
