"""Roles of columns, and what a column must hold in each of them.

A role such as ``score`` is what summaries ask for; the user names the column that plays it. A later
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
from fedassay.data.lists import beginnings, numbered_columns, numbering_problem
from fedassay.data.numbers import as_decimals, is_single, to_clients, to_numbers, to_truth
from fedassay.data.wide import (
    EXPECTED_FEATURES,
    EXPECTED_LOGITS,
    FIX_FEATURES,
    FIX_LOGITS,
    MOST_FEATURES,
    split_names,
    to_features,
    to_matrix,
)
from fedassay.errors import UsageError
from fedassay.summaries.grouped_histogram import LONGEST_NAME, fingerprints

# --- a column that is not there -----------------------------------------------------------------------------

MOST_COLUMNS_LISTED = 20


def absent(name: str, role: str, existing: Sequence[str], *, wide: bool, where: str) -> Finding:
    """Return the error about a column that is absent, or there more than once, and what may have been meant.

    `wide` is for a role that may also be named by what numbered columns begin with.

    Examples
    --------
    >>> print(absent("Age", "feature", ["age", "sex"], wide=False, where="rows.csv").sentence())
    rows.csv, column 'Age' (feature): got no such column, expected one of 'age', 'sex'; did you mean 'age'?
    """
    what = f"{where}, column {name!r} ({role})"
    if name in existing:
        return error(
            what=what,
            got=f"{list(existing).count(name)} columns of this name",
            expected="one",
            fix="rename or remove the others",
        )
    folded = {column.casefold(): column for column in _nameable(existing, wide=wide)}
    close = difflib.get_close_matches(name.casefold(), list(folded), n=1, cutoff=0.5)
    fix = f"did you mean {folded[close[0]]!r}?" if close else "check the name"
    return error(
        what=what,
        got="no such column" if existing else "a table without columns",
        expected=f"one of {listed(list(existing), most=MOST_COLUMNS_LISTED)}" if existing else "columns",
        fix=fix,
    )


def _nameable(existing: Sequence[str], *, wide: bool) -> tuple[str, ...]:
    """Return the names that can be given for a role: columns, or for a wide role the stems of numbered ones."""
    if not wide:
        return tuple(existing)
    stems = beginnings(existing)
    numbered = {column for stem in stems for column in numbered_columns(stem, existing)}
    return (*stems, *(column for column in existing if column not in numbered))


# --- what a column must hold --------------------------------------------------------------------------------

CLIENT = "client"
"""Name of the column with the client of each row, and in pooled rows its index; not a role of `ROLES`."""

LOGITS = "logits"
FEATURES = "features"
CLASS = "class"

LARGEST_CLASS = 2**31 - 1

_Bad = NDArray[np.bool_]
Convert = Callable[[Any], tuple[NDArray[Any], _Bad]]
"""Function from an Arrow array to canonical values and the mask of the rows that are not acceptable."""


@dataclass(frozen=True, kw_only=True)
class Role:
    """Requirements on a column in this role.

    `convert` never raises on a value: it marks it. What it returns for a marked row is meaningless.
    """

    name: str
    convert: Convert
    expected: str
    fix: str
    lists_values: bool = False
    """True if an error lists the distinct values found, for columns that should hold very few."""
    wide: bool = False
    """True if a row holds several numbers: a list, or one number in each of several numbered columns."""
    several: bool = False
    """True if the user may also name each of the columns, separated by commas."""


def _score(array: Any) -> tuple[NDArray[Any], _Bad]:
    # Adding zero turns -0.0 into 0.0, so that the bits of two scores are ordered like the scores.
    values = to_numbers(array) + 0.0
    return values, ~((values >= 0.0) & (values <= 1.0))


def _label(array: Any) -> tuple[NDArray[Any], _Bad]:
    values = to_truth(array)
    positive = values == 1.0
    return positive.astype(np.int8), ~(positive | (values == 0.0))


def _value(array: Any) -> tuple[NDArray[Any], _Bad]:
    values = to_numbers(array) + 0.0  # -0.0 is 0.0, as for scores
    return as_decimals(values) if is_single(array) else values, ~np.isfinite(values)


def _positive(array: Any) -> tuple[NDArray[Any], _Bad]:
    values, bad = _value(array)
    return values, bad | ~(values > 0.0)


def _class(array: Any) -> tuple[NDArray[Any], _Bad]:
    values = to_truth(array)
    good = (values >= 0.0) & (values <= LARGEST_CLASS) & (values == np.floor(values))
    return np.where(good, values, 0.0).astype(np.int64), ~good


def _group(array: Any) -> tuple[NDArray[Any], _Bad]:
    # Names as for clients: 7 and 7.0 are one group, truth values are "true" and "false".
    found = to_clients(array)
    names = found.names.to_pylist()
    prints = np.append(fingerprints(names), np.int64(0))
    too_long = np.append(np.array([len(name) > LONGEST_NAME for name in names], dtype=np.bool_), True)
    return prints[found.codes], too_long[found.codes]


def _number(name: str, meaning: str, fix: str) -> Role:
    return Role(name=name, convert=_value, expected=f"a finite number in every row, {meaning}", fix=fix)


ROLES: Mapping[str, Role] = MappingProxyType(
    {
        role.name: role
        for role in (
            Role(
                name="score",
                convert=_score,
                expected="a number in [0, 1] in every row",
                fix="remove or repair these rows (percentages and logits must be turned into probabilities)",
            ),
            Role(
                name="label",
                convert=_label,
                expected="0 or 1 (or true and false) in every row",
                fix="recode the positive class as 1 and the other as 0, and remove rows without a label",
                lists_values=True,
            ),
            Role(
                name="versus",
                convert=_score,
                expected="a number in [0, 1] in every row, the second model's probability",
                fix="remove or repair these rows (both models must have scored the same rows)",
            ),
            Role(
                name="value",
                convert=_value,
                expected="a finite number in every row",
                fix="remove or repair these rows (a value that is missing is in no distribution)",
            ),
            Role(
                name="group",
                convert=_group,
                expected=f"a name of at most {LONGEST_NAME} characters without NUL bytes, a whole number or a date in "
                "every row",
                fix="fill in a word such as unknown, which then is a group of its own, or remove these rows",
            ),
            _number("conformity", "large where the prediction is bad", "remove or repair these rows"),
            _number(
                "target",
                "what was to be predicted",
                "remove rows without one, and write true and false as 1 and 0",
            ),
            _number(
                "offset",
                "what is added to the linear predictor",
                "remove rows without an offset, or fill in 0",
            ),
            _number("prediction", "the model's", "remove rows without a prediction"),
            Role(
                name="scale",
                convert=_positive,
                expected="a finite number above 0 in every row, the size of the error that the model expects",
                fix="repair these rows (a tiny number may stand for 0)",
            ),
            _number("lower", "the lower end that the model predicts", "remove rows without a prediction"),
            _number("upper", "the upper end that the model predicts", "remove rows without a prediction"),
            Role(
                name=CLASS,
                convert=_class,
                expected="a whole number from 0 in every row",
                fix="number the classes 0, 1, 2, .. in the order of the logits, and remove rows without a class",
                lists_values=True,
            ),
            Role(name=LOGITS, convert=to_matrix, expected=EXPECTED_LOGITS, fix=FIX_LOGITS, wide=True),
            Role(
                name=FEATURES,
                convert=to_features,
                expected=EXPECTED_FEATURES,
                fix=FIX_FEATURES,
                wide=True,
                several=True,
            ),
        )
    }
)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Columns of the user by role, and the column that names the client, if there is one.

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
                several = role in ROLES and ROLES[role].several
                one = "names of columns separated by commas" if several else "the name of a column"
                raise UsageError(f"{role} column: got {name!r}, expected {one}.")
            if "\0" in name:
                raise UsageError(
                    f"{role} column: got {name!r}, expected a name without NUL bytes; rename it."
                )
        if LOGITS in self.names and FEATURES in self.names:
            raise UsageError("columns: got logits and features, expected one of them; leave the other out.")
        names = {
            role: ",".join(split_names(name)) if ROLES[role].several else name
            for role, name in self.names.items()
        }
        object.__setattr__(self, "names", MappingProxyType(names))
        self._check_each_once()

    def _check_each_once(self) -> None:
        features = self.named(FEATURES) if FEATURES in self.names else ()
        seen: dict[str, list[str]] = {}
        for role, name in self.names.items():
            if role == FEATURES:
                continue
            for other in seen.get(name, ()):
                if not _of_different_tasks(role, other):
                    raise UsageError(
                        f"columns: got {name!r} as {other} and as {role}, expected two different columns."
                    )
            seen.setdefault(name, []).append(role)
        if self.client is not None:
            seen.setdefault(self.client, []).append(CLIENT)
        for name in features:
            for other in seen.get(name, ()):
                if other in (*_TRUTHS, "offset", CLIENT):
                    raise UsageError(
                        f"columns: got {name!r} as {other} and as feature, expected two different columns; leave it "
                        "out of the features."
                    )

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles, in the order given."""
        return tuple(ROLES[role] for role in self.names)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns as the user names them, each once. What a table calls them: `in_table`."""
        client = () if self.client is None else (self.client,)
        named = (name for role in self.names for name in self.named(role))
        return tuple(dict.fromkeys((*named, *client)))

    def named(self, role: str) -> tuple[str, ...]:
        """Return the names that the user gives for a role: one name, or each of several columns.

        Examples
        --------
        >>> Columns(names={"features": "age, bmi", "target": "y"}).named("features")
        ('age', 'bmi')
        """
        return split_names(self.names[role]) if ROLES[role].several else (self.names[role],)

    def in_table(self, existing: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return the columns of a table with these names by role: several if they are numbered, or none.

        Examples
        --------
        >>> Columns(names={"class": "y", "logits": "z"}).in_table(["y", "z_1", "z_0"])
        {'class': ('y',), 'logits': ('z_0', 'z_1')}
        """
        found = {}
        for role in self.names:
            named = self.named(role)
            several = tuple(name for name in named if name in existing)
            found[role] = several if len(named) > 1 else _columns_in(ROLES[role], named[0], existing)
        return found

    def missing_from(self, existing: Sequence[str], *, where: str) -> dict[str, Finding]:
        """Return, for each column that is absent or there more than once, the error that says so."""
        roles = {name: role for role in self.names for name in self.named(role)}
        found = {
            name: self._problem(name, roles.get(name, CLIENT), existing, where=where) for name in self.needed
        }
        return {name: finding for name, finding in found.items() if finding is not None}

    def _problem(self, name: str, role: str, existing: Sequence[str], *, where: str) -> Finding | None:
        if list(existing).count(name) == 1:
            return None
        alone = role in ROLES and len(self.named(role)) == 1
        columns = _columns_in(ROLES[role], name, existing) if alone else ()
        if not columns or name in existing:
            wide = alone and ROLES[role].wide
            return absent(name, "feature" if role == FEATURES else role, existing, wide=wide, where=where)
        what = f"{where}, columns {name!r} ({role})"
        others = {column: other for other, column in {CLIENT: self.client, **self.names}.items()}
        for column in columns:
            if column in others:
                got, expected = f"{column!r}, which is the {others[column]}", "columns of their own"
                fix = "rename one of the columns"
                return error(what=what, got=got, expected=expected, fix=fix)
        if role == FEATURES and len(columns) > MOST_FEATURES:
            got, expected = f"{len(columns)} columns", f"at most {MOST_FEATURES}"
            return error(what=what, got=got, expected=expected, fix="leave some out")
        if role == FEATURES:
            return numbering_problem(name, existing, what=what, one="feature", each="feature", fewest=1)
        return numbering_problem(name, existing, what=what)


_TRUTHS = ("label", "target", "class")
_GUESSES = ("score", "prediction")


def _of_different_tasks(role: str, other: str) -> bool:
    """Return whether one column may play both roles of a study with several tasks, because no task reads both.

    Examples
    --------
    >>> _of_different_tasks("label", "target"), _of_different_tasks("score", "label")
    (True, False)
    """
    return (
        {role, other} <= {*_TRUTHS}
        or {role, other} <= {*_GUESSES}
        or ("value" in (role, other) and "label" not in (role, other))
    )


def _columns_in(role: Role, name: str, existing: Sequence[str]) -> tuple[str, ...]:
    if name in existing:
        return (name,)
    return numbered_columns(name, existing) if role.wide else ()
