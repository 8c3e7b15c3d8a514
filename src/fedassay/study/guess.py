"""What the columns of somebody's file could be, from their names and the first rows. Only a suggestion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from fedassay.data.numbered import beginnings, numbered_columns
from fedassay.data.numbers import is_list, plain, to_clients
from fedassay.data.schema import ROLES
from fedassay.data.sources import Folder, open_source
from fedassay.data.tables import Table
from fedassay.errors import DataError, FedassayError

SAMPLE = 10_000
"""Rows that are looked at."""

MOST_CLASSES = 1000

MODELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "probability": ("score", "label"),
        "logits": ("logits", "class"),
        "number": ("target", "prediction"),
    }
)
"""What a model gives for a row, and the roles of the columns that it takes to assay it."""

NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "score": (
            "score",
            "p",
            "prob",
            "probability",
            "risk",
            "y_score",
            "y_prob",
            "proba",
            "pred",
            "prediction",
        ),
        "label": ("label", "y", "outcome", "y_true", "truth", "target", "event", "class"),
        "class": ("class", "label", "y", "y_true", "target", "truth", "labels"),
        "logits": ("logits", "logit", "z", "scores", "outputs"),
        "target": ("target", "y", "y_true", "truth", "observed", "actual"),
        "prediction": ("prediction", "y_pred", "pred", "predicted", "yhat", "y_hat", "forecast"),
        "client": (
            *("client", "site", "hospital", "clinic", "centre", "center", "practice", "institution", "bank"),
            *("branch", "store", "school", "station", "region", "country", "device", "user"),
        ),
    }
)
"""What columns in these roles are often called, the likeliest first."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """What the first rows of a column look like, and which roles it could play by them."""

    name: str
    distinct: int
    fits: frozenset[str]

    @property
    def words(self) -> str:
        """In short, for a table."""
        kinds = (
            ("logits", "lists of numbers"),
            ("label", "0 and 1"),
            ("score", "numbers in [0, 1]"),
            ("class", "whole numbers"),
            ("target", "numbers"),
            ("client", "names"),
        )
        return next((text for role, text in kinds if role in self.fits), "something else")


@dataclass(frozen=True, kw_only=True)
class Look:
    """The columns of a source; `sites` says that it is a folder, in which each file is a client."""

    label: str
    columns: tuple[Column, ...]
    sites: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(column.name for column in self.columns)


def look_at(data: Any) -> Look:
    """The columns of a source, judged by its first rows; of a folder, by those of its first file that has some.

    Raises what `open_source` raises where nothing can be opened, and `DataError` where there are no rows.
    """
    source = open_source(data)
    tables = list(source.sites.values()) if isinstance(source, Folder) else [source]
    for table in tables:
        columns = tuple(_column(table, name) for name in table.names if table.names.count(name) == 1)
        if any(column.distinct for column in columns):
            return Look(
                label=source.label,
                columns=columns,
                sites=len(tables) if isinstance(source, Folder) else None,
            )
    raise DataError(f"{source.label}: got no rows, expected at least one; export the data again.")


def _column(table: Table, name: str) -> Column:
    try:
        batch = next((batch for batch in table.batches([name]) if len(batch)), None)
    except FedassayError:  # a column that cannot be read plays no role
        batch = None
    if batch is None:
        return Column(name=name, distinct=0, fits=frozenset())
    array = plain(batch.column(0).slice(0, SAMPLE))
    if is_list(array):
        return Column(name=name, distinct=1, fits=frozenset({"logits"}))
    distinct = len(array.unique())
    fits = {role for role in ("score", "label", "class", "target") if _fits(array, role)}
    if fits >= {"score", "label"}:
        fits.remove("score")  # nothing between 0 and 1
    if distinct > MOST_CLASSES:
        fits.discard("class")
    few = distinct <= max(1, len(array) // 2)
    if few and "score" not in fits and not np.any(to_clients(array).codes < 0):
        fits.add("client")
    return Column(name=name, distinct=distinct, fits=frozenset(fits))


def _fits(array: Any, role: str) -> bool:
    return not np.any(ROLES[role].convert(array)[1])


# --- suggestions ------------------------------------------------------------------------------------------------


def guess_model(look: Look, given: Mapping[str, str]) -> str:
    """What the model gives for a row: by the roles that were said, else by the columns."""
    for model, roles in MODELS.items():
        if any(role in given for role in roles):
            return model
    if guess(look, "logits", ()) is not None and guess(look, "class", ()) is not None:
        return "logits"
    if guess(look, "score", ()) is not None and guess(look, "label", ()) is not None:
        return "probability"
    return "number" if guess(look, "prediction", ()) is not None else "probability"


def guess(look: Look, role: str, taken: Iterable[str]) -> str | None:
    """The column that most likely plays a role, None if none could."""
    free = [column for column in look.columns if column.name not in set(taken)]
    if role == "logits":
        return _logits(free)
    if role == "prediction":  # numbers are many: only a name tells
        return _named(role, [column for column in free if column.fits & {"target", "score"}])
    fitting = [column for column in free if role in column.fits]
    known = _named(role, fitting)
    if known is not None or role == "target":
        return known
    if role == "client":
        # Numbers are rarely names, and what has two values is rather a group.
        fitting = [column for column in fitting if "target" not in column.fits and column.distinct > 2]
    return fitting[0].name if fitting else None


def _named(role: str, columns: Sequence[Column]) -> str | None:
    """The first column whose name is, or begins or ends like, one of those that the role often has."""
    tests: tuple[Callable[[str, str], bool], ...] = (
        lambda name, usual: name == usual,
        lambda name, usual: len(usual) > 1 and (name.startswith(usual) or name.endswith(usual)),
    )
    for test in tests:
        for usual in NAMES[role]:
            for column in columns:
                if test(column.name.lower(), usual):
                    return column.name
    return None


def _logits(columns: Sequence[Column]) -> str | None:
    lists = [column for column in columns if "logits" in column.fits]
    if lists:
        return _named("logits", lists) or lists[0].name
    numbers = [column.name for column in columns if "target" in column.fits]
    stems = [stem for stem in beginnings(numbers) if stem.lower() in NAMES["logits"]]
    return next((stem for stem in stems if len(numbered_columns(stem, numbers)) > 1), None)
