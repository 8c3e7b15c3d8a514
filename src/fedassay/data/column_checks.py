"""Reports of `fedassay check` about columns: classes and logits, features, and numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.data.findings import Finding, listed, warning
from fedassay.data.names import PerClient
from fedassay.data.scan import Chunk, Distinct, ValueProfile
from fedassay.data.schema import CLASS, FEATURES, LOGITS, Columns
from fedassay.data.wide import list_names, looks_like_probabilities, probabilities_error

MOST_CLASSES_LISTED = 5


class ClassesLook:
    """The classes and the logits of all rows, in one pass."""

    def __init__(self, label: str, columns: Columns) -> None:
        self._label, self._names = label, columns.names
        self._rows_of: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._distinct = Distinct()
        self._labels = self._both = self._right = self._with_logits = 0
        self._probabilities = True

    def add(self, chunk: Chunk) -> None:
        """Look at some more rows."""
        labels, logits = chunk.good(CLASS), chunk.good(LOGITS)
        if labels is not None:
            self._labels += len(labels)
            self._distinct.add(labels.astype(np.float64))
        if logits is None or not len(logits):
            return
        self._with_logits += len(logits)
        self._probabilities = self._probabilities and looks_like_probabilities(logits)
        if labels is None:
            return
        classes = logits.shape[1]
        if len(self._rows_of) != classes:
            self._rows_of = np.zeros(classes, dtype=np.int64)
        self._rows_of = self._rows_of + np.bincount(labels, minlength=classes)
        usable = ~(chunk.is_bad(CLASS) | chunk.is_bad(LOGITS))
        best = chunk.columns[LOGITS].argmax(axis=1)
        self._both += int(np.count_nonzero(usable))
        self._right += int(np.count_nonzero(usable & (best == chunk.columns[CLASS])))

    def profile(self) -> dict[str, int | float]:
        """Return the number of classes, of classes without rows, and how often the largest logit is right."""
        found: dict[str, int | float] = {}
        if len(self._rows_of):
            empty = int(np.count_nonzero(self._rows_of == 0))
            found |= {"classes": len(self._rows_of), "classes_without_rows": empty}
        elif self._labels:
            found["classes"] = self._distinct.count()
        if self._both:
            found["accuracy"] = self._right / self._both
        return found

    def findings(self) -> Iterator[Finding]:
        """Yield findings about probabilities in the place of logits, and about classes without rows."""
        if self._with_logits and self._probabilities:
            yield probabilities_error(self._label, self._names[LOGITS])
        if not self._labels:
            return
        what = f"{self._label}, column {self._names[CLASS]!r} (class)"
        empty = [str(one) for one in np.flatnonzero(self._rows_of == 0)]
        if self._labels > 1 and self._distinct.count() == 1:
            fix = "check the column; there is nothing to tell apart"
            yield warning(what=what, got="one class in all rows", expected="several", fix=fix)
        elif empty:
            shown = ", ".join(empty[:MOST_CLASSES_LISTED]) + ", .." * (len(empty) > MOST_CLASSES_LISTED)
            got = f"no row of {len(empty)} of {len(self._rows_of)} classes ({shown})"
            fix = "nothing to do if they are rare; what is said about them rests on no rows"
            yield warning(what=what, got=got, expected="rows of every class", fix=fix)


# --- what a check says about the features of a regression and about its -------------------------------------

TARGET = "target"
MOST_LISTED = 5


class FeaturesLook:
    """The features of all rows, and the target of each client, in one pass.

    `tables` are the names of the columns of each table. Memory is a few numbers per feature and per client.
    """

    def __init__(self, label: str, columns: Columns, tables: Iterable[tuple[str, ...]]) -> None:
        self._label, self._columns = label, columns
        found = (columns.in_table(names).get(FEATURES, ()) for names in tables)
        self._found = next((names for names in found if names), ())
        self._rows = 0
        self._smallest: NDArray[np.float64] = np.empty(0)
        self._largest: NDArray[np.float64] = np.empty(0)
        self._prints: list[Any] = []
        self._targets = PerClient({"rows": np.add, "smallest": np.minimum, "largest": np.maximum})

    def add(self, chunk: Chunk) -> None:
        """Look at some more rows."""
        target = chunk.columns.get(TARGET)
        if FEATURES in self._columns.names and chunk.clients is not None and target is not None:
            codes = np.where(chunk.is_bad(TARGET), -1, chunk.clients.codes)
            ones, clients = np.ones(len(codes)), replace(chunk.clients, codes=codes)
            self._targets.add(clients, rows=ones, smallest=target, largest=target)
        features = chunk.good(FEATURES)
        if features is None or not features.size:
            return
        if not self._rows:
            width = features.shape[1]
            self._smallest, self._largest = np.full(width, np.inf), np.full(width, -np.inf)
            self._prints = [hashlib.blake2b() for _ in range(width)]
        self._rows += len(features)
        self._smallest = np.minimum(self._smallest, features.min(axis=0))
        self._largest = np.maximum(self._largest, features.max(axis=0))
        for place, seen in enumerate(self._prints):
            seen.update((features[:, place] + 0.0).tobytes())  # -0.0 is 0.0

    def profile(self) -> dict[str, int | float]:
        """Return the number of features, and of clients at which the target is constant."""
        found: dict[str, int | float] = {"features": len(self._prints)} if self._rows else {}
        constant, clients = self._clients_with_one_target()
        return found | ({"clients_with_one_target": constant} if clients else {})

    def findings(self) -> Iterator[Finding]:
        """Yield findings: columns that do not vary or that say the same, clients whose target does not vary."""
        names = self._names()
        constant = self._smallest == self._largest
        if self._rows > 1:
            for place in np.flatnonzero(constant):
                what = f"{self._label}, column {names[place]!r} (feature)"
                fix = "leave it out of the features; it cannot be told from the intercept"
                yield warning(what=what, got="one value in all rows", expected="different numbers", fix=fix)
            alike: dict[bytes, list[str]] = {}
            for place in np.flatnonzero(~constant):
                alike.setdefault(self._prints[place].digest(), []).append(names[place])
            for several in alike.values():
                if len(several) > 1:
                    what = f"{self._label}, columns {listed(several, most=MOST_LISTED)} (features)"
                    got, expected = "the same numbers in all rows", "columns that differ"
                    fix = "keep one of them; their coefficients cannot be told apart"
                    yield warning(what=what, got=got, expected=expected, fix=fix)
        alone, clients = self._clients_with_one_target()
        _, ends = self._targets.merged()
        # Where all targets are the same, a finding about the column reports it already.
        if alone and ends["smallest"].min() != ends["largest"].max():
            yield warning(
                what=f"{self._label}, column {self._columns.names[TARGET]!r} ({TARGET})",
                got=f"one value in all rows of {alone} of {clients} clients",
                expected="different targets at each client",
                fix="check these clients; a pooled fit can use them, but their own rows tell nothing about the "
                "features",
            )

    def _clients_with_one_target(self) -> tuple[int, int]:
        """Count the clients with two or more rows: those with one target only, and all of them."""
        _, targets = self._targets.merged()
        several = targets["rows"] > 1
        one = several & (targets["smallest"] == targets["largest"])
        return int(np.count_nonzero(one)), int(np.count_nonzero(several))

    def _names(self) -> tuple[str, ...]:
        named, width = self._columns.named(FEATURES) if self._rows else (), len(self._prints)
        if len(named) > 1:
            return named
        return self._found if len(self._found) == width or not named else list_names(named[0], width)


# --- what a check says about columns of numbers -------------------------------------------------------------

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
        """Return the number of different numbers, the smallest and the largest, of each column with any."""
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

    def findings(self) -> Iterator[Finding]:
        """Yield findings about columns that do not vary, and about ends that are the wrong way round."""
        for role, fix in _CONSTANT.items():
            profile = self._profiles.get(role)
            if profile is not None and profile.count > 1 and profile.distinct == 1:
                what = f"{self._label}, column {self._names[role]!r} ({role})"
                expected = f"different {_WORDS[role][1].replace('_', ' ')}"
                yield warning(what=what, got="one value in all rows", expected=expected, fix=fix)
        if self._crossed:
            lower, upper = self._names["lower"], self._names["upper"]
            yield warning(
                what=f"{self._label}, columns {lower!r} and {upper!r} (lower, upper)",
                got=f"the lower end above the upper one in {self._crossed} of {self._ends} rows",
                expected="the lower end below",
                fix="check that the two columns are not exchanged (quantiles that cross in a few rows do no harm)",
            )
