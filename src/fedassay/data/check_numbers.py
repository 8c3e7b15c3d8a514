"""What a check says about columns of numbers: how far they reach, and what makes them useless."""

from __future__ import annotations

import numpy as np

from fedassay.data.findings import Finding, warning
from fedassay.data.profile import ValueProfile
from fedassay.data.scan import Chunk
from fedassay.data.schema import Columns

_WORDS = {
    "value": ("value", "values"),
    "conformity": ("conformity_score", "conformity_scores"),
    "target": ("target", "targets"),
    "offset": ("offset", "offsets"),
    "prediction": ("prediction", "predictions"),
    "scale": ("scale", "scales"),
    "lower": ("lower_end", "lower_ends"),
    "upper": ("upper_end", "upper_ends"),
}
_CONSTANT = {
    "value": "check the column; its distribution is a single step",
    "conformity": "check the column; every threshold lets in all rows or none",
    "target": "check the column; there is nothing to predict",
    "offset": "check the column; a constant offset only moves the intercept",
    "prediction": "check the column; the model predicts the same everywhere",
}


class NumbersLook:
    """All columns of finite numbers, in one pass."""

    def __init__(self, label: str, columns: Columns) -> None:
        self._label, self._names = label, columns.names
        self._profiles = {role: ValueProfile() for role in _WORDS if role in columns.names}
        self._crossed = self._ends = 0

    def add(self, chunk: Chunk) -> None:
        """Look at some more rows."""
        for role, profile in self._profiles.items():
            values = chunk.good(role)
            if values is not None:
                profile.add(values)
        if "lower" in chunk.columns and "upper" in chunk.columns:
            usable = ~(chunk.is_bad("lower") | chunk.is_bad("upper"))
            self._ends += int(np.count_nonzero(usable))
            self._crossed += int(np.count_nonzero(usable & (chunk.columns["lower"] > chunk.columns["upper"])))

    def profile(self) -> dict[str, int | float]:
        """How many different numbers, the smallest and the largest, of each column with any."""
        found: dict[str, int | float] = {}
        for role, profile in self._profiles.items():
            one, several = _WORDS[role]
            if profile.count:
                found |= {
                    f"distinct_{several}": profile.distinct,
                    f"smallest_{one}": profile.smallest,
                    f"largest_{one}": profile.largest,
                }
        return found

    def findings(self) -> list[Finding]:
        """Columns that do not vary, and ends that are the wrong way round."""
        found = []
        for role, fix in _CONSTANT.items():
            profile = self._profiles.get(role)
            if profile is not None and profile.count > 1 and profile.distinct == 1:
                what = f"{self._label}, column {self._names[role]!r} ({role})"
                expected = f"different {_WORDS[role][1].replace('_', ' ')}"
                found.append(warning(what=what, got="one value in all rows", expected=expected, fix=fix))
        if self._crossed:
            lower, upper = self._names["lower"], self._names["upper"]
            found.append(
                warning(
                    what=f"{self._label}, columns {lower!r} and {upper!r} (lower, upper)",
                    got=f"the lower end above the upper one in {self._crossed} of {self._ends} rows",
                    expected="the lower end below",
                    fix="check that the two columns are not exchanged (quantiles that cross in a few rows do no harm)",
                )
            )
        return found
