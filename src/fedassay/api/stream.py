"""State of a regression over a stream of batches, O(p²) numbers, and its change in a round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import DataError, UsageError
from fedassay.protocol.arrays import Floats
from fedassay.summaries.regression.local_work import BY_ROWS, LocalSteps, Work, local_work
from fedassay.summaries.regression.losses import LogLoss, SmoothLoss, SquaredError
from fedassay.summaries.regression.moments import INTERCEPT, LARGEST_THETA, Standard
from fedassay.summaries.regression.rounds import RoundSums
from fedassay.tasks.inference.online import RoundHistory
from fedassay.tasks.inference.path import IteratePath, StepSizes

# --- rows of a regression from arrays or data frames --------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class RowBatch:
    """Rows: features, target, offset, owners (clients as numbers from 0), and the features' names if known."""

    x: Floats
    y: Floats
    offset: Floats
    owners: NDArray[np.int64]
    names: tuple[str, ...] = ()

    @property
    def columns(self) -> dict[str, Floats]:
        """Columns by role, as clients read them."""
        return {"features": self.x, "target": self.y, "offset": self.offset}

    def by_client(self) -> Iterator[RowBatch]:
        """Yield the rows of each client in their order; clients in the order of their names."""
        for owner in np.unique(self.owners):
            mine = self.owners == owner
            yield RowBatch(x=self.x[mine], y=self.y[mine], offset=self.offset[mine], owners=self.owners[mine])


def batch_of(x: Any, y: Any, client: Any = None, offset: Any = None) -> RowBatch:
    """Check rows; the names of features are those of a data frame.

    Examples
    --------
    >>> [len(one.y) for one in batch_of([[1.0], [2.0], [3.0]], [0, 1, 0], ["b", "a", "b"]).by_client()]
    [1, 2]
    """
    rows = matrix_of(x)
    target = _numbers("y", y, len(rows))
    added = np.zeros(len(rows)) if offset is None else _numbers("offset", offset, len(rows))
    owners = np.zeros(len(rows), dtype=np.int64)
    if client is not None:
        named = np.asarray(client)
        if named.shape != (len(rows),):
            raise DataError(
                f"client: got the shape {named.shape}, expected one for each of {len(rows)} rows."
            )
        owners = np.unique(named.astype(str), return_inverse=True)[1].astype(np.int64)
    # Pandas and Polars frames have `columns`; the columns of a frame without names are numbers.
    columns = [name for name in getattr(x, "columns", ()) if isinstance(name, str)]
    names = tuple(columns) if len(columns) == rows.shape[1] else ()
    return RowBatch(x=rows, y=target, offset=added, owners=owners, names=names)


def matrix_of(x: Any) -> Floats:
    """Return features as a finite matrix, rows by columns."""
    try:
        rows = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"X: got values that are no numbers ({error}), expected numbers.") from None
    if rows.ndim != 2:
        raise DataError(f"X: got the shape {rows.shape}, expected rows by features.")
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise DataError(
            f"X: got {rows[row, column]} in row {row}, column {column}, expected finite numbers; repair or remove it."
        )
    return rows


def _numbers(what: str, values: Any, rows: int) -> Floats:
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what}: got values that are no numbers ({error}), expected numbers.") from None
    if found.shape != (rows,):
        raise DataError(f"{what}: got the shape {found.shape}, expected one number for each of {rows} rows.")
    if not np.isfinite(found).all():
        row = int(np.argmax(~np.isfinite(found)))
        raise DataError(f"{what}: got {found[row]} in row {row}, expected finite numbers.")
    return found


# --- state of a regression over a stream of batches ---------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Stream:
    """State: names of all coefficients, scale of the features, step sizes, and history of rounds.

    `weight` is the sum of the weights of all visits so far, `first` that of the first round, which is the unit of the
    sums over rounds.
    """

    names: tuple[str, ...]
    standard: Standard
    sizes: StepSizes
    weight: float
    seen: RoundHistory
    first: float = 0.0

    @classmethod
    def begin(
        cls, loss: SmoothLoss, rows: RowBatch, standard: Standard, *, step: float | None, decay: float
    ) -> Stream:
        """Return the state before the first round, whose rows set the number of features and the step size."""
        named = rows.names or tuple(f"x{place}" for place in range(1, standard.features + 1))
        names = (INTERCEPT, *named) if standard.intercept else named
        p = loss.parameters(standard.parameters)
        if p != len(names) or len(set(names)) != p:
            raise UsageError(
                f"X: got the columns {', '.join(names)} for {p} coefficients, expected one for each, all different."
            )
        if step is None:
            length = float(np.square(standard.design(rows.columns).x).sum(axis=-1).mean())
            step = (2.5 if loss.name == LogLoss.name else 1.0) / (length or 1.0)
        return cls(
            names=names,
            standard=standard,
            sizes=StepSizes(first=step, decay=decay),
            weight=0.0,
            seen=RoundHistory(path=IteratePath.start(np.zeros(p))),
        )

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features."""
        return self.names[int(self.standard.intercept) :]

    def after(
        self,
        loss: SmoothLoss,
        rows: RowBatch,
        *,
        local_steps: int,
        local: str,
        weights: str,
        restarts: bool = False,
    ) -> Stream:
        """Return the state after another round; `restarts` as in `Path.after`."""
        self.check(rows)
        t = self.seen.path.rounds + 1
        step = self.sizes.at(t)
        works, sizes = [], []
        with np.errstate(over="ignore", invalid="ignore"):  # iterates that diverge are refused below
            for own in rows.by_client():
                design = self.standard.design(own.columns, linear=loss.name == SquaredError.name)
                dealt = LocalSteps.deal(design, local_steps)
                works.append(local_work(loss, self.seen.path.theta, dealt, step=step, local=local))
                sizes.append(len(own.y))
            each = np.array(sizes if weights == BY_ROWS else np.ones(len(sizes)), dtype=np.float64)
            weight = self.weight + float(each.sum())
            first = self.first or float(each.sum())
            summed = _summed(works, each / first, rows=sum(sizes))
            # Sums count every row (or visit) alike; the step is scaled by the mean weight of rounds so far.
            pace = first * t / weight
            seen = self.seen.after(summed, 1, step=step, restarts=restarts, pace=pace)
        if not np.abs(seen.path.theta).max() < LARGEST_THETA:  # NaN too
            raise UsageError(
                f"step: got {self.sizes.first:.3g}, with which the iterates diverge (round {t}), expected a smaller "
                f"one; give step={self.sizes.first / 10:.2g}, or scale."
            )
        return replace(self, weight=weight, first=first, seen=seen)

    def check(self, rows: RowBatch) -> None:
        """Raise if the features differ from those before."""
        if rows.x.shape[1] != self.standard.features:
            raise UsageError(
                f"X: got {rows.x.shape[1]} columns, expected {self.standard.features} as before."
            )
        if rows.names and rows.names != self.features:
            raise UsageError(
                f"X: got the columns {', '.join(rows.names)}, expected {', '.join(self.features)} as before."
            )

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "names": list(self.names),
            "standard": asdict(self.standard),
            "sizes": asdict(self.sizes),
            "weight": self.weight,
            "first": self.first,
            **self.seen.to_json(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Stream:
        """Return the state that `to_json` was called on, to the last bit."""
        return cls(
            names=tuple(values["names"]),
            standard=Standard(**values["standard"]),
            sizes=StepSizes(**values["sizes"]),
            weight=float(values["weight"]),
            first=float(values["first"]),
            seen=RoundHistory.from_json(values),
        )


def _summed(works: Sequence[Work], weights: Floats, *, rows: int) -> RoundSums:
    pairs = list(zip(weights, works, strict=True))
    return RoundSums(
        clients=len(works),
        steps=int(sum(work.steps for work in works)),
        again=0,
        rows=rows,
        gradient=np.sum([weight * work.gradient for weight, work in pairs], axis=0),
        hessian=np.sum([weight * work.hessian for weight, work in pairs], axis=0),
        drift=np.sum([weight * work.drift for weight, work in pairs], axis=0),
    )
