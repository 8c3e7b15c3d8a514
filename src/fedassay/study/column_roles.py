"""Roles that the columns of a file could have, from their names and the first rows. Only a suggestion.

Columns that could play a role equally well are all named, so that the user can be asked which it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from fedassay.data.lists import beginnings, first_length, lengths_of, numbered_columns
from fedassay.data.numbers import is_list, is_missing, plain, to_clients
from fedassay.data.schema import FEATURES, LOGITS, ROLES
from fedassay.data.sources import Folder, open_source
from fedassay.data.tables import Table
from fedassay.data.wide import split_names
from fedassay.errors import DataError, FedassayError

# --- columns that are called like those who hold rows -------------------------------------------------------

SITES = (
    *("client", "site", "hospital", "clinic", "centre", "center", "practice", "institution", "ward", "bank"),
    *("branch", "store", "school", "station", "region", "country", "device", "user"),
)
"""Common names of holders of rows, the likeliest first."""

_ADDED = ("id", "no", "nr", "number", "name", "code", "key", "index", "idx", "uid")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")


def names_site(column: str) -> int | None:
    """Return the place of the word in `SITES` that a column is named after; None if there is none.

    The word itself must be what the column is about: it stands alone, with an id or a number, or last. So
    ``hospital_mortality`` is no hospital.

    Examples
    --------
    >>> [names_site(name) for name in ("site", "HospitalID", "treating_clinics", "hospital_mortality", "score")]
    [1, 2, 3, None, None]
    """
    words = [word.lower() for word in _WORD.findall(column)]
    while len(words) > 1 and (words[-1] in _ADDED or words[-1].isdigit()):
        words.pop()
    if not words:
        return None
    return next((place for place, site in enumerate(SITES) if words[-1] in _spellings(site)), None)


def _spellings(site: str) -> set[str]:
    """Return the word, its plurals, and both joined with the usual additions."""
    plurals = {site, f"{site}s", f"{site}es", site.removesuffix("y") + "ies"}
    return plurals | {f"{word}{more}" for word in plurals for more in _ADDED}


# --- possible roles of the columns of a file ----------------------------------------------------------------

SAMPLE = 10_000
"""Number of rows that are looked at."""

MOST_CLASSES = 1000

MODELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"probability": ("score", "label"), "logits": ("logits", "class"), "number": ("target", "prediction")}
)
"""Output of a model for a row, and the roles of the columns that are needed to assay it."""

_TRUTHS = ("label", "class", "y", "y_true", "target", "truth", "outcome", "diagnosis", "labels", "classes")
NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "score": (
            *("score", "p", "prob", "probability", "risk", "y_score", "y_prob", "proba", "pred"),
            "prediction",
        ),
        "label": (*_TRUTHS, "event"),
        "class": _TRUTHS,
        "logits": ("logits", "logit", "z", "scores", "outputs"),
        "target": ("target", "y", "y_true", "truth", "outcome", "observed", "actual"),
        "prediction": ("prediction", "y_pred", "pred", "predicted", "yhat", "y_hat", "forecast"),
    }
)
"""Common names of columns in these roles."""

_BY_NAME_ONLY = ("target", "prediction")
"""Roles of numbers, which are recognised by the name of the column only."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """Appearance of the first rows of a column, and the roles that it could play by them.

    Parameters
    ----------
    distinct : the number of different values among them; 0 if there are no rows, or none that can be read.
    highest : of whole numbers from 0, the largest.
    length : of lists, that of the first one.
    gaps : the share of the rows in which a value is missing; the others say what the column looks like.
    """

    name: str
    distinct: int
    fits: frozenset[str]
    highest: int | None = None
    length: int | None = None
    gaps: float = 0.0

    @property
    def words(self) -> str:
        """Short description, for a table."""
        kinds = (
            ("logits", "lists of numbers"),
            ("label", "0 and 1"),
            ("score", "numbers in [0, 1]"),
            ("class", "whole numbers"),
            ("target", "numbers"),
            ("client", "names"),
        )
        if self.gaps == 1:
            return "no value"
        kind = next((text for role, text in kinds if role in self.fits), "something else")
        return kind if not self.gaps else f"{kind}, missing in {share(self.gaps)}"

    def could_be(self, role: str) -> bool:
        """Return whether nothing in the first rows contradicts this role."""
        if role == "score":
            return bool(self.fits & {"score", "label"})
        if role == "prediction":
            return "target" in self.fits
        return role in self.fits


@dataclass(frozen=True, kw_only=True)
class Look:
    """Columns of a source, by its first `rows`; `sites` is the number of files of a folder, each of them a client."""

    label: str
    columns: tuple[Column, ...]
    rows: int
    sites: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(column.name for column in self.columns)

    def known(self, role: str) -> tuple[str, ...]:
        """Return the names that can be given for a role: columns, and for logits the stems of numbered ones."""
        return (*self.names, *(beginnings(self.names) if role == LOGITS else ()))

    def played(self, columns: Mapping[str, str]) -> frozenset[str]:
        """Return the columns that play these roles."""
        found: set[str] = set()
        for role, name in columns.items():
            several = split_names(name) if role == FEATURES else (name,)
            for one in several:
                wide = ROLES[role].wide and one not in self.names
                found |= set(numbered_columns(one, self.names) if wide else (one,))
        return frozenset(found)

    def classes(self, logits: str | None) -> int | None:
        """Return the number of classes of these logits."""
        if logits is None:
            return None
        column = next((column for column in self.columns if column.name == logits), None)
        return len(numbered_columns(logits, self.names)) if column is None else column.length


def look_at(data: Any) -> Look:
    """Return the columns of a source, judged by its first rows.

    Of a folder, the first file that has some rows is judged.

    Raises what `open_source` raises where nothing can be opened, and `DataError` where there are no rows.
    """
    source = open_source(data)
    tables = list(source.sites.values()) if isinstance(source, Folder) else [source]
    for table in tables:
        looks = [_column(table, name) for name in table.names if table.names.count(name) == 1]
        rows = max((rows for _, rows in looks), default=0)
        if rows:
            return Look(
                label=source.label,
                columns=tuple(column for column, _ in looks),
                rows=rows,
                sites=len(tables) if isinstance(source, Folder) else None,
            )
    raise DataError(f"{source.label}: got no rows, expected at least one; export the data again.")


def share(part: float) -> str:
    """Return a share that is above 0, in per cent.

    Examples
    --------
    >>> share(0.00002), share(0.0017), share(0.25), share(0.9999)
    ('less than 0.01 %', '0.17 %', '25 %', 'more than 99 %')
    """
    if part > 0.99:
        return "more than 99 %"
    return f"{100 * part:.2g} %" if part >= 0.0001 else "less than 0.01 %"


def _column(table: Table, name: str) -> tuple[Column, int]:
    """Return the appearance of a column, and the number of rows that were looked at."""
    try:
        batch = next((batch for batch in table.batches([name]) if len(batch)), None)
    except FedassayError:  # a column that cannot be read plays no role
        batch = None
    if batch is None:
        return Column(name=name, distinct=0, fits=frozenset()), 0
    array = plain(batch.column(0).slice(0, SAMPLE))
    if is_list(array):
        length = first_length(lengths_of(array))
        return Column(name=name, distinct=1, fits=frozenset({LOGITS}), length=length), len(array)
    rows, missing = len(array), is_missing(array)
    if missing.any() and not missing.all():
        array = array.filter(pa.array(~missing))
    distinct = len(array.unique())
    fits = {role for role in ("score", "label", "class", "target") if _fits(array, role)}
    highest = int(ROLES["class"].convert(array)[0].max()) if "class" in fits else None
    if fits >= {"score", "label"}:
        fits.remove("score")  # nothing between 0 and 1
    if distinct > MOST_CLASSES:
        fits.discard("class")
    few = distinct <= max(1, len(array) // 2)
    if few and "score" not in fits and not np.any(to_clients(array).codes < 0):
        fits.add("client")
    gaps = float(missing.mean())
    return Column(name=name, distinct=distinct, fits=frozenset(fits), highest=highest, gaps=gaps), rows


def _fits(array: Any, role: str) -> bool:
    return not np.any(ROLES[role].convert(array)[1])


# --- suggestions ------------------------------------------------------------------------------------------------


def guess_model(look: Look, given: Mapping[str, str]) -> str:
    """Return the output of the model for a row: by the roles that were given, else by names, else by values."""
    for model, roles in MODELS.items():
        if any(role in given for role in roles):
            return model
    found = {role: candidates(look, role, {}) for roles in MODELS.values() for role in roles}
    if found["logits"] and (candidates(look, "class", {"logits": found["logits"][0]}) or not found["score"]):
        return "logits"
    for model in ("probability", "number"):
        if all(found[role] and _strange(role, found[role][0]) < _NOT_TOLD for role in MODELS[model]):
            return model
    return "number" if found["prediction"] and not (found["score"] and found["label"]) else "probability"


def candidates(
    look: Look, role: str, columns: Mapping[str, str], *, client: str | None = None
) -> tuple[str, ...]:
    """Return the columns that most likely play a role, apart from those of other roles.

    There are none, one, or several that fit equally well.

    Columns that are called like a site are none of them: `guess_clients` is for those.
    """
    taken = look.played(columns) | {client}
    free = [column for column in look.columns if column.name not in taken and names_site(column.name) is None]
    if role == LOGITS:
        return _logits(free)
    fitting = [column for column in free if role in (*column.fits, "prediction") and column.could_be(role)]
    if role in _BY_NAME_ONLY:
        fitting = [column for column in fitting if _strange(role, column.name) < _NOT_TOLD]
    classes = look.classes(columns.get(LOGITS)) if role == "class" else 2 if role == "label" else None
    if classes is not None:
        fitting = [column for column in fitting if column.highest is None or column.highest < classes]
    return _least(fitting, [_strange(role, column.name) + _sparse(column, classes) for column in fitting])


def guess_clients(look: Look, columns: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that most likely name the client: one with such a name, else all that hold names.

    In a folder there is no such column: each file is a client.
    """
    taken = look.played(columns)
    free = [column for column in look.columns if column.name not in taken and "client" in column.fits]
    if look.sites is not None:
        return ()
    called = [(place, len(one.name), one.name) for one in free if (place := names_site(one.name)) is not None]
    if called:
        return (min(called)[2],)
    # Numbers are rarely names, and what has two values is rather a group.
    return tuple(one.name for one in free if "target" not in one.fits and one.distinct > 2)


_NOT_TOLD = 2


def _strange(role: str, name: str) -> int:
    """Return 0 if a column is called as is common in this role, 1 if it begins or ends so, 2 otherwise."""
    name = name.lower()
    if name in NAMES[role]:
        return 0
    long = [usual for usual in NAMES[role] if len(usual) > 1]
    return 1 if any(name.startswith(usual) or name.endswith(usual) for usual in long) else _NOT_TOLD


def _sparse(column: Column, classes: int | None) -> int:
    """Return 1 if a column has at most half of the classes, else 0: with fewer values it is rather another column."""
    return 0 if classes is None or column.distinct > classes / 2 else 1


def _least(columns: Sequence[Column], points: Sequence[int]) -> tuple[str, ...]:
    return tuple(column.name for column, found in zip(columns, points, strict=True) if found == min(points))


def _logits(columns: Sequence[Column]) -> tuple[str, ...]:
    lists = [column for column in columns if LOGITS in column.fits]
    if lists:
        return _least(lists, [_strange(LOGITS, column.name) for column in lists])
    numbers = [column.name for column in columns if "target" in column.fits]
    stems = [stem for stem in beginnings(numbers) if stem.lower() in NAMES[LOGITS]]
    return tuple(stem for stem in stems if len(numbered_columns(stem, numbers)) > 1)
