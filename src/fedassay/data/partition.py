"""Partitions: how the rows of a simulation are dealt to clients where no column names the client of a row.

Only for simulations: in a real federation rows are where they are. File drop and Flower deployments know no partition.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedassay.data.names import SortedNames
from fedassay.data.schema import CLASS, CLIENT
from fedassay.data.tables import StreamedRows, batch_length, kept
from fedassay.errors import DataError, UsageError
from fedassay.privacy.randomness import SecureRandomness, SimulatedRandomness
from fedassay.protocol.vocabulary import Batch, Rows

MOST_CLIENTS = 1_000_000
LABELS = (CLASS, "label")
"""The roles whose values can be skewed."""

_FORMS = "iid, dirichlet:BETA (dirichlet:0.1, say) or by:COLUMN"


@dataclass(frozen=True)
class Partition:
    """Which client of a simulation gets which row.

    Parameters
    ----------
    spec : ``iid`` deals shuffled rows in turn, so that sizes differ by at most one. ``dirichlet:BETA`` skews labels:
        for each class the shares of the clients are drawn from a symmetric Dirichlet law, and its shuffled rows are
        dealt by them. ``by:COLUMN`` is the column that names the client, as if it had been given itself.
    clients : the number of clients, with or without rows; not for ``by:COLUMN``.
    seed : makes it repeatable. By default that of the simulation, and if that has none, a fresh one.

    Guarantee: every row belongs to exactly one client, and clients keep the order of the data. Client k gets n_j p_jk
    of the n_j rows of class j, rounded up or down at random so that this is right on average: always rounding alike
    would send the only row of any class to one and the same client. The same seed, rows and version of NumPy give the
    same clients.

    Edge cases: the smaller BETA, the fewer clients share a class, down to one; the larger, the more equal the shares.
    BETA = 1 is not IID, although Appendix A.2 says so: shares then are uniform on the simplex. With fewer rows than
    clients, some have none.

    Reference: Yurochkin et al. (2019), Bayesian nonparametric federated learning of neural networks, as in
    Appendix A.2 of "Private federated multiclass calibration".

    Examples
    --------
    >>> partition = Partition("dirichlet:0.5", clients=3, seed=1)
    >>> list(partition.names)
    ['client-001', 'client-002', 'client-003']
    >>> partition.deal(np.repeat([0, 1], 50)).shape
    (100,)
    """

    spec: str
    clients: int | None = field(default=None, kw_only=True)
    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        kind, rest = self._parts
        if self.spec != "iid" and (kind not in ("dirichlet", "by") or not rest):
            raise UsageError(f"partition: got {self.spec!r}, expected {_FORMS}.")
        if kind == "dirichlet" and not 0 < _number(rest) < math.inf:
            raise UsageError(
                f"partition: got {self.spec!r}, expected a finite number above 0 after the colon, as in dirichlet:0.1."
            )
        if kind == "by":
            if self.clients is not None:
                raise UsageError(
                    f"clients: got {self.clients!r} with {self.spec}, whose column says which clients there are; leave "
                    "`clients` out."
                )
            return
        object.__setattr__(self, "clients", _checked_count(self.clients))
        if self.seed is not None:
            object.__setattr__(self, "seed", SimulatedRandomness(self.seed).seed)

    @property
    def _parts(self) -> tuple[str, str]:
        kind, _, rest = self.spec.partition(":") if isinstance(self.spec, str) else ("", "", "")
        return kind, rest

    @property
    def column(self) -> str | None:
        """The column that names the client, if the partition goes by one."""
        kind, rest = self._parts
        return rest if kind == "by" else None

    @property
    def names(self) -> SortedNames:
        """The clients that rows are dealt to, numbered from 1."""
        width = max(3, len(str(self.clients)))
        numbers = range(1, (self.clients or 0) + 1)
        return SortedNames(pa.array([f"client-{one:0{width}d}" for one in numbers], pa.large_string()))

    def seeded(self, seed: int | None) -> Partition:
        """Return a partition with a seed, so that each pass deals alike: its own, this one, or a fresh one."""
        if self.seed is not None or self.column is not None:
            return self
        return replace(self, seed=int.from_bytes(SecureRandomness().bytes(8)) if seed is None else seed)

    def label_role(self, columns: Mapping[str, str]) -> str | None:
        """Return the role whose values are skewed, among those that are read; None if no labels are needed."""
        if self._parts[0] != "dirichlet":
            return None
        for role in LABELS:
            if role in columns:
                return role
        raise UsageError(
            f"partition: got {self.spec}, which deals rows by their labels, but no column of labels, expected one; "
            "give `label` if there are labels, or `partition='iid'`."
        )

    def deal(self, labels: NDArray[np.integer]) -> NDArray[np.int32]:
        """Return the client of each row, as its position in `names`. Without skew only the number of labels counts."""
        assert self.clients is not None
        assert self.seed is not None
        source = SimulatedRandomness(self.seed).child("partition")
        rng = np.random.default_rng(int.from_bytes(source.bytes(32)))
        owners, shuffled = np.empty(len(labels), dtype=np.int32), rng.permutation(len(labels))
        if self._parts[0] == "iid":
            owners[shuffled] = np.arange(len(labels)) % self.clients
            return owners
        beta = _number(self._parts[1])
        order = shuffled[np.argsort(labels[shuffled], kind="stable")]
        _, starts = np.unique(labels[order], return_index=True)
        for rows in np.split(order, starts[1:]) if len(order) else ():
            sizes = _sizes(len(rows), dirichlet(beta, self.clients, rng), rng)
            owners[rows] = np.repeat(np.arange(self.clients, dtype=np.int32), sizes)
        return owners


def dirichlet(beta: float, clients: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw shares from the symmetric Dirichlet law, for every positive beta.

    They are Gamma(beta) variables divided by their sum, and Gamma(beta) = Gamma(beta + 1) U^(1/beta). In log space, and
    relative to the largest U, nothing underflows: as beta vanishes, the client with the largest U gets everything.
    """
    exponential = rng.standard_exponential(clients)  # -log U
    with np.errstate(over="ignore"):
        logs = np.log(rng.standard_gamma(beta + 1, clients)) - (exponential - exponential.min()) / beta
    shares = np.exp(logs - logs.max())
    drawn: NDArray[np.float64] = shares / shares.sum()
    return drawn


def _sizes(rows: int, shares: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw the number of rows of each client: on average rows times its share, never further than 1 from it."""
    # Systematic sampling: one offset for all ends, so that each interval of length x holds x points on average.
    ends = np.floor(np.cumsum(shares) * rows + rng.random()).astype(np.int64)
    ends[-1] = rows
    return np.diff(np.minimum(ends, rows), prepend=0)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _checked_count(clients: object) -> int:
    if clients is None:
        raise UsageError("clients: got none, expected over how many clients rows are dealt; give `clients`.")
    if (
        isinstance(clients, int | np.integer)
        and not isinstance(clients, bool)
        and 1 <= clients <= MOST_CLIENTS
    ):
        return int(clients)
    raise UsageError(f"clients: got {clients!r}, expected a whole number from 1 to {MOST_CLIENTS:,}.")


@dataclass(frozen=True, kw_only=True)
class DealtRows:
    """A `Store` of rows that are too many for memory: they are read again at each pass, only their owners are kept."""

    rows: Rows = field(repr=False)
    owners: NDArray[np.int32] = field(repr=False)

    def rows_of(self, client: int) -> Rows:
        """See `Store`."""
        return StreamedRows(read=lambda: self._client(client))

    def pooled(self) -> Rows:
        """See `Store`."""
        return self.rows

    def pooled_by_client(self) -> Rows:
        """See `Store`."""
        return StreamedRows(read=self._coded)

    def _coded(self) -> Iterator[Batch]:
        start = 0
        for batch in self.rows.batches():
            stop = start + batch_length(batch)
            if stop > len(self.owners):
                raise DataError(
                    f"rows: got more than the {len(self.owners):,} that were dealt to clients, expected as many; start "
                    "again when the data do not change."
                )
            yield {**batch, CLIENT: self.owners[start:stop]}
            start = stop

    def _client(self, client: int) -> Iterator[Batch]:
        left = int(np.count_nonzero(self.owners == client))
        if not left:
            return
        for batch in self._coded():
            mine = batch[CLIENT] == client
            if mine.any():
                yield kept({role: column for role, column in batch.items() if role != CLIENT}, mine)
                left -= int(np.count_nonzero(mine))
            if not left:
                return  # the other rows belong to others
