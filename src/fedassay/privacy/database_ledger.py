"""The ledger of a site or a coordinator: in an SQLite file, or in PostgreSQL where several coordinators share it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedassay.errors import UsageError
from fedassay.privacy.book import Book
from fedassay.privacy.chain import CHARGE, body_of, charge_of, id_text
from fedassay.privacy.ledger import Charge, Ledger, by_dataset, check, compose, require_one_split, unrecorded
from fedassay.privacy.ledger_place import Place
from fedassay.privacy.tally import Tallies
from fedassay.protocol import Budget


class DatabaseLedger(Ledger):
    """Charges that survive kills and power losses, cannot be changed unseen, and are never counted twice.

    Guarantee: as for `Ledger`; once `charge` returns, the record is on the disk. Threads, processes and machines that
    use the same place behave as if they came one after the other. See `Book` for what is checked when, and what is
    assumed.

    The place is opened when it is first used. A charge is judged by running sums first (`tally.py`), and composed
    tightly if these do not show that it fits: the answer is that of `admit` with everything recorded.

    Parameters
    ----------
    place : a path of an SQLite file (its head is kept beside it, in a file that ends in .head), or
        ``postgresql://USER:PASSWORD@HOST/DATABASE`` (extra ``postgres``), which is never shown.
    budget : holds for each data set by itself; None only records.
    allow_exact : whether releases without noise pass; see `MemoryLedger`.
    anchor : the file in which this machine keeps the head; needed for PostgreSQL.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = DatabaseLedger(Path(folder) / "ledger.sqlite", Budget(epsilon=1.0))
    ...     release = Charge(id="1", dataset="d", study="s", law="discrete-laplace", scale=1.5, l1=1.0, l2=1.0,
    ...                      trust_model="server-dp")
    ...     ledger.charge([release])
    ...     ledger.charge([release])  # the same answer again is free
    ...     round(ledger.spent("d", 0.0), 3)
    0.667
    """

    def __init__(
        self,
        place: str | Path,
        budget: Budget | None,
        *,
        allow_exact: bool = False,
        anchor: Path | None = None,
    ) -> None:
        found = Place.of(place)
        self.budget = budget
        self.allow_exact = allow_exact
        self._tallies = Tallies()
        self._book = Book(found, anchor_of(found, anchor), self._tallies.learn)

    def __repr__(self) -> str:
        return f"DatabaseLedger({self._book.place.label})"

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Everything recorded, in order."""
        self._book.read()
        return tuple(charge_of(record.body) for record in self._book.stored() if record.kind == CHARGE)

    @property
    def head(self) -> str | None:
        """The hash of the last record, which stands for all of them; None of an empty ledger."""
        self._book.read()
        head = self._book.head
        return head.hash if head.sequence else None

    def charge(self, charges: Sequence[Charge]) -> None:
        """Record the charges, or raise before anything is recorded."""
        with self._book.transaction() as work:
            ids = list(dict.fromkeys(id_text(charge.id) for charge in charges))
            known = [charge_of(record.body) for record in work.find(CHARGE, ids)]
            new = unrecorded(charges, {charge.id: charge for charge in known})
            for dataset, added in by_dataset(new).items():
                self._check(dataset, added)
            work.append(CHARGE, ((id_text(charge.id), body_of(charge)) for charge in new))

    def find(self, id: str | bytes) -> Charge | None:  # noqa: A002
        """See `Ledger`."""
        with self._book.transaction() as work:
            found = work.find(CHARGE, [id_text(id)])
            return charge_of(found[0].body) if found else None

    def spent(self, dataset: str, delta: float) -> float:
        """The epsilon that the releases of this data set add up to, at this delta."""
        self._book.read()
        return compose(self._tallies.of(dataset).counts, delta)

    def split_fingerprint(self, dataset: str) -> str | None:
        """See `Ledger`."""
        self._book.read()
        return self._tallies.of(dataset).split

    def adopt(self) -> None:
        """Make the anchor for records that were there before it; whoever calls says that these are all."""
        with self._book.transaction(adopt=True):
            return

    def _check(self, dataset: str, added: Sequence[Charge]) -> None:
        tally, budget = self._tallies.of(dataset), self.budget
        require_one_split(dataset, added, tally.split)
        if budget is not None and not tally.fits(added, budget, allow_exact=self.allow_exact):
            check(dataset, tally.counts, added, budget=budget, allow_exact=self.allow_exact)


def anchor_of(place: Place, anchor: Path | None) -> Path:
    """Where the head of a ledger is kept: beside an SQLite file, unless named."""
    if anchor is None and place.file is not None:
        anchor = place.file.with_suffix(".head")
    if anchor is None:
        raise UsageError(
            f"ledger {place.label}: got no anchor, expected the file in which this machine keeps the head of a shared "
            "ledger; name one."
        )
    if anchor.absolute() == place.file:
        raise UsageError(
            f"ledger {place.label}: got a file that ends in .head, which is for its head; give another name."
        )
    return anchor.absolute()
