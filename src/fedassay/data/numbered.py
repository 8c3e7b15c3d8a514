"""One role in several columns: logit_0, logit_1, .. named by what their names begin with."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fedassay.data.findings import Finding, error

_TAIL = re.compile(r"(?P<stem>.*?)(?P<digits>[0-9]{1,9})", re.DOTALL)

FEWEST_CLASSES = 2
ONE_LOGIT = "export one logit for each class (the single logit z of a binary model is the pair 0, z)"
"""What to do where there is a single logit."""


@dataclass(frozen=True, kw_only=True)
class _Numbered:
    name: str
    stem: str
    digits: str

    @property
    def number(self) -> int:
        return int(self.digits)


def numbered_columns(beginning: str, existing: Sequence[str]) -> tuple[str, ...]:
    """The columns called `beginning`, perhaps an underscore, and a number, in the order of the numbers.

    Examples
    --------
    >>> numbered_columns("logit", ["logit_10", "logit_9", "y", "logits"])
    ('logit_9', 'logit_10')
    """
    return tuple(column.name for column in _found(beginning, existing))


def beginnings(existing: Sequence[str]) -> tuple[str, ...]:
    """What the names of at least two numbered columns begin with, without the underscore.

    Examples
    --------
    >>> beginnings(["logit_0", "logit_1", "y", "x7", "12"])
    ('logit',)
    """
    matches = (_TAIL.fullmatch(name) for name in existing)
    found = Counter(match["stem"].removesuffix("_") for match in matches if match is not None)
    return tuple(stem for stem, columns in found.items() if stem and columns >= FEWEST_CLASSES)


def _found(beginning: str, existing: Sequence[str]) -> list[_Numbered]:
    stems = (beginning, beginning + "_")
    matches = ((name, _TAIL.fullmatch(name)) for name in existing if name.startswith(beginning))
    found = [_Numbered(name=name, **match.groupdict()) for name, match in matches if match is not None]
    return sorted((one for one in found if one.stem in stems), key=lambda one: one.number)


def numbering_problem(
    beginning: str,
    existing: Sequence[str],
    *,
    what: str,
    one: str = "logit",
    each: str = "class",
    fewest: int = FEWEST_CLASSES,
) -> Finding | None:
    """Why these numbered columns cannot be used: a gap, a number twice, too few. None where there is none.

    `one` is what a column holds, `each` what there must be one of in a column.

    Examples
    --------
    >>> print(numbering_problem("z", ["z1", "z2", "z4"], what="columns 'z'").sentence())
    columns 'z': got 'z4' but no 'z3', expected numbers without a gap from 0 or 1; add it, or rename what is no logit.
    """
    columns = _found(beginning, existing)
    numbers = [column.number for column in columns]
    names = [column.name for column in columns]
    for i in range(1, len(columns)):
        if numbers[i] == numbers[i - 1]:
            return error(
                what=what,
                got=f"{names[i - 1]!r} and {names[i]!r} with one number",
                expected=f"one column for each {each}",
                fix="rename or remove one of them",
            )
    start = min(numbers[0], 1)
    for place, column in enumerate(columns, start):
        if column.number != place:
            missing = column.stem + str(place).zfill(len(columns[0].digits))
            return error(
                what=what,
                got=f"{column.name!r} but no {missing!r}",
                expected="numbers without a gap from 0 or 1",
                fix=f"add it, or rename what is no {one}",
            )
    if len(columns) < fewest:
        return error(
            what=what,
            got=f"{names[0]!r} alone",
            expected=f"at least {fewest} columns, one for each {each}",
            fix=ONE_LOGIT,
        )
    return None
