"""What a column must hold, by the role that it plays.

A role such as ``score`` is what summaries ask for; the user says which of their columns plays it. A later
task adds a role by adding one entry to `ROLES`: its canonical type, its check, and the words for its error.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.data.findings import Finding, error, listed
from fedassay.data.logits import EXPECTED, FIX, to_matrix
from fedassay.data.numbered import beginnings, numbered_columns, numbering_problem
from fedassay.data.numbers import as_decimals, is_single, to_clients, to_numbers, to_truth
from fedassay.errors import UsageError
from fedassay.summaries.group_names import LONGEST_NAME, fingerprints

CLIENT = "client"
"""Not a role of `ROLES`: the column that says whose row it is, and in pooled rows the client's index."""

LOGITS = "logits"
CLASS = "class"

MOST_COLUMNS_LISTED = 20
LARGEST_CLASS = 2**31 - 1

Bad = NDArray[np.bool_]
Convert = Callable[[Any], tuple[NDArray[Any], Bad]]
"""An Arrow array to canonical values and the mask of the rows whose value is not acceptable."""


@dataclass(frozen=True, kw_only=True)
class Role:
    """What the column in this role must hold.

    `convert` never raises on a value: it marks it. What it returns for a marked row is meaningless.
    """

    name: str
    dtype: np.dtype[Any]
    convert: Convert
    expected: str
    fix: str
    lists_values: bool = False
    """Whether an error lists the distinct values found, for columns that should hold very few."""
    wide: bool = False
    """Whether a row holds several numbers: a list, or one number in each of several numbered columns."""


def _score(array: Any) -> tuple[NDArray[Any], Bad]:
    # Adding zero turns -0.0 into 0.0, so that the bits of two scores are ordered like the scores.
    values = to_numbers(array) + 0.0
    return values, ~((values >= 0.0) & (values <= 1.0))


def _label(array: Any) -> tuple[NDArray[Any], Bad]:
    values = to_truth(array)
    positive = values == 1.0
    return positive.astype(np.int8), ~(positive | (values == 0.0))


def _value(array: Any) -> tuple[NDArray[Any], Bad]:
    values = to_numbers(array) + 0.0  # -0.0 is 0.0, as for scores
    return as_decimals(values) if is_single(array) else values, ~np.isfinite(values)


def _positive(array: Any) -> tuple[NDArray[Any], Bad]:
    values, bad = _value(array)
    return values, bad | ~(values > 0.0)


def _class(array: Any) -> tuple[NDArray[Any], Bad]:
    values = to_truth(array)
    good = (values >= 0.0) & (values <= LARGEST_CLASS) & (values == np.floor(values))
    return np.where(good, values, 0.0).astype(np.int64), ~good


def _group(array: Any) -> tuple[NDArray[Any], Bad]:
    # Names as for clients: 7 and 7.0 are one group, truth values are "true" and "false".
    found = to_clients(array)
    names = found.names.to_pylist()
    prints = np.append(fingerprints(names), np.int64(0))
    too_long = np.append(np.array([len(name) > LONGEST_NAME for name in names], dtype=np.bool_), True)
    return prints[found.codes], too_long[found.codes]


def _number(name: str, meaning: str, fix: str) -> Role:
    return Role(
        name=name,
        dtype=np.dtype(np.float64),
        convert=_value,
        expected=f"a finite number in every row, {meaning}",
        fix=fix,
    )


ROLES: Mapping[str, Role] = MappingProxyType(
    {
        role.name: role
        for role in (
            Role(
                name="score",
                dtype=np.dtype(np.float64),
                convert=_score,
                expected="a number in [0, 1] in every row",
                fix="remove or repair these rows (percentages and logits must be turned into probabilities)",
            ),
            Role(
                name="label",
                dtype=np.dtype(np.int8),
                convert=_label,
                expected="0 or 1 (or true and false) in every row",
                fix="recode the positive class as 1 and the other as 0, and remove rows without a label",
                lists_values=True,
            ),
            Role(
                name="versus",
                dtype=np.dtype(np.float64),
                convert=_score,
                expected="a number in [0, 1] in every row, the second model's probability",
                fix="remove or repair these rows (both models must have scored the same rows)",
            ),
            Role(
                name="value",
                dtype=np.dtype(np.float64),
                convert=_value,
                expected="a finite number in every row",
                fix="remove or repair these rows (a value that is missing is in no distribution)",
            ),
            Role(
                name="group",
                dtype=np.dtype(np.int64),
                convert=_group,
                expected=f"a name of at most {LONGEST_NAME} characters, a whole number or a date in every row",
                fix="fill in a word such as unknown, which then is a group of its own, or remove these rows",
            ),
            _number("conformity", "large where the prediction is bad", "remove or repair these rows"),
            _number("target", "what was to be predicted", "remove rows without a true value"),
            _number("prediction", "the model's", "remove rows without a prediction"),
            Role(
                name="scale",
                dtype=np.dtype(np.float64),
                convert=_positive,
                expected="a finite number above 0 in every row, the size of the error that the model expects",
                fix="repair these rows (a tiny number may stand for 0)",
            ),
            _number("lower", "the lower end that the model predicts", "remove rows without a prediction"),
            _number("upper", "the upper end that the model predicts", "remove rows without a prediction"),
            Role(
                name=CLASS,
                dtype=np.dtype(np.int64),
                convert=_class,
                expected="a whole number from 0 in every row",
                fix="number the classes 0, 1, 2, .. in the order of the logits, and remove rows without a class",
                lists_values=True,
            ),
            Role(
                name=LOGITS,
                dtype=np.dtype(np.float64),
                convert=to_matrix,
                expected=EXPECTED,
                fix=FIX,
                wide=True,
            ),
        )
    }
)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which of the user's columns plays which role, and which one names the client, if any does.

    Examples
    --------
    >>> Columns(names={"score": "p", "label": "y"}, client="hospital").needed
    ('p', 'y', 'hospital')
    """

    names: Mapping[str, str]
    client: str | None = None

    def __post_init__(self) -> None:
        for role in self.names:
            if role not in ROLES:
                raise UsageError(f"column role: got {role!r}, expected one of {', '.join(ROLES)}.")
        for role, name in {**self.names, CLIENT: self.client or "-"}.items():
            if not isinstance(name, str) or not name:
                raise UsageError(f"{role} column: got {name!r}, expected the name of a column.")
        seen: dict[str, str] = {}
        for role, name in self.names.items():
            if name in seen:
                raise UsageError(
                    f"columns: got {name!r} as {seen[name]} and as {role}, expected two different columns."
                )
            seen[name] = role
        object.__setattr__(self, "names", MappingProxyType(dict(self.names)))

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles, in the order given."""
        return tuple(ROLES[role] for role in self.names)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns as the user names them, each once. What a table calls them: `in_table`."""
        client = () if self.client is None else (self.client,)
        return tuple(dict.fromkeys((*self.names.values(), *client)))

    def in_table(self, existing: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The columns of a table with these names that play each role: several if they are numbered, or none.

        Examples
        --------
        >>> Columns(names={"class": "y", "logits": "z"}).in_table(["y", "z_1", "z_0"])
        {'class': ('y',), 'logits': ('z_0', 'z_1')}
        """
        return {role.name: _columns_in(role, self.names[role.name], existing) for role in self.roles}

    def missing_from(self, existing: Sequence[str], *, where: str) -> dict[str, Finding]:
        """For each column that is absent, or there more than once, the error that says so."""
        roles = {name: role for role, name in self.names.items()}
        found = {
            name: self._problem(name, roles.get(name, CLIENT), existing, where=where) for name in self.needed
        }
        return {name: finding for name, finding in found.items() if finding is not None}

    def _problem(self, name: str, role: str, existing: Sequence[str], *, where: str) -> Finding | None:
        if list(existing).count(name) == 1:
            return None
        columns = _columns_in(ROLES[role], name, existing) if role in ROLES else ()
        if not columns or name in existing:
            return _absent(name, role, existing, where=where)
        what = f"{where}, columns {name!r} ({role})"
        others = {column: other for other, column in {CLIENT: self.client, **self.names}.items()}
        for column in columns:
            if column in others:
                got, expected = f"{column!r}, which is the {others[column]}", "columns of their own"
                fix = "rename one of the columns"
                return error(what=what, got=got, expected=expected, fix=fix)
        return numbering_problem(name, existing, what=what)


def _columns_in(role: Role, name: str, existing: Sequence[str]) -> tuple[str, ...]:
    if name in existing:
        return (name,)
    return numbered_columns(name, existing) if role.wide else ()


def _nameable(role: str, existing: Sequence[str]) -> tuple[str, ...]:
    """What can be named for a role: columns, or for a wide role what the names of numbered ones begin with."""
    if role not in ROLES or not ROLES[role].wide:
        return tuple(existing)
    stems = beginnings(existing)
    numbered = {column for stem in stems for column in numbered_columns(stem, existing)}
    return (*stems, *(column for column in existing if column not in numbered))


def _absent(name: str, role: str, existing: Sequence[str], *, where: str) -> Finding:
    what = f"{where}, column {name!r} ({role})"
    if name in existing:
        return error(
            what=what,
            got=f"{list(existing).count(name)} columns of this name",
            expected="one",
            fix="rename or remove the others",
        )
    folded = {column.casefold(): column for column in _nameable(role, existing)}
    close = difflib.get_close_matches(name.casefold(), list(folded), n=1, cutoff=0.5)
    fix = f"did you mean {folded[close[0]]!r}?" if close else "name one of the existing columns"
    if len(existing) == 1 and any(mark in existing[0] for mark in ";\t|"):
        fix = "the header is not separated by commas: save the file with commas"
    return error(
        what=what,
        got=f"no such column among {listed(list(existing), most=MOST_COLUMNS_LISTED)}"
        if existing
        else "a table without columns",
        expected="the name of an existing column",
        fix=fix,
    )
