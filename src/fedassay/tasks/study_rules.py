"""Rules by which a study file implies parameters and tasks build on others; each kind may have its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from fedassay.errors import ParameterError, UsageError
from fedassay.tasks.card import KINDS

if TYPE_CHECKING:
    from fedassay.documents.kind import KindDocument

Given = Mapping[str, Any]
RangeOf = Callable[[str], list[float]]
"""Function that proposes a public range for the values of a kind of score, from the first rows."""


class StudyRules:
    """Rules of one kind of task; by default nothing is implied, and the kind builds on no other.

    Parameters of a task are plain values here, as its section and the columns of the study give them.
    """

    implied_names: ClassVar[tuple[str, ...]] = ()
    """Parameters that follow from the rest of the file where the section does not give them."""

    builds_on: ClassVar[str] = ""
    """Kind of task whose result it can take over; empty for none."""

    needs_level: ClassVar[bool] = False
    """True if a first study has to be given a level, which then has no good default."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)

    # --- reading --------------------------------------------------------------------------------------------

    def roles(self, parameters: Given) -> tuple[str, ...]:
        """Return the roles of the columns that the task reads."""
        return self.columns

    def implied(self, given: Given, columns: Mapping[str, str] | None, holdout: float) -> dict[str, Any]:
        """Return parameters that follow from the columns (None between sites) and held-out share, given or not.

        Raises `ParameterError` where the section contradicts the rest of the file.
        """
        return {}

    def looked_up(self, parameters: Given) -> tuple[str, ...]:
        """Return the missing parameters that are public knowledge, which a simulation takes from the data."""
        return ()

    def require_public(self, parameters: Given) -> None:
        """Refuse a task between sites, where public parameters must be stated: they may not be looked up."""
        for name in self.looked_up(parameters):
            raise ParameterError(
                name, "missing; between sites it must be said, because it is information about rows."
            )

    def stand_in(self, parameters: Given) -> dict[str, Any]:
        """Return the parameters that can be assumed known before the data are read."""
        return dict(parameters)

    # --- a first study --------------------------------------------------------------------------------------

    def column_sets(self) -> tuple[frozenset[str], ...]:
        """Return sets of roles, each of which is enough for the task."""
        return (frozenset(self.columns),)

    def first_entries(
        self, columns: Given, level: float | None, classes: int | None, range_of: RangeOf
    ) -> dict[str, Any]:
        """Return the entries that a first study needs."""
        return {}

    # --- results --------------------------------------------------------------------------------------------

    def warnings(self, task: Any, results: Given) -> tuple[str, ...]:
        """Return warnings that readers of the results have to know."""
        return ()

    def rows(self, results: Given) -> float | None:
        """Return the number of rows that the results are about; None where they do not state it."""
        rows = results.get("rows")
        counted: float | None = rows["value"] if isinstance(rows, Mapping) else rows
        return counted

    # --- rows -----------------------------------------------------------------------------------------------

    def holds_out(self, parameters: Given) -> bool:
        """Return whether the task fits something to a part of the rows and judges it on the others."""
        return False

    def can_build(self, parameters: Given) -> bool:
        """Return whether the task, with these parameters, can take over a result of `builds_on`."""
        return False

    def require_base(self, name: str, base: str, parameters: Given) -> None:
        """Refuse a task that cannot build on the other task that its study names."""
        raise UsageError(f"{name}: it builds on no other task, expected none; leave out after = {base!r}.")

    def informed(self, task: Any, results: Given) -> Any:
        """Return the task with the result of its base."""
        raise NotImplementedError


def same_holdout(given: Given, holdout: float, *, besides: tuple[float, ...] = ()) -> dict[str, Any]:
    """Return the study's held-out share as a parameter; refuse another share."""
    found = given.get("holdout")
    if found is not None and found not in (holdout, *besides):
        raise ParameterError(
            "holdout",
            f"got {found:g}, but the study holds out {holdout:g} ([split]); leave it out.",
        )
    return {"holdout": holdout}


def missing_classes(parameters: Given) -> tuple[str, ...]:
    """Return the name of the number of classes, where it is not given."""
    return () if "classes" in parameters else ("classes",)


class HistogramRules(StudyRules):
    """Rules of kinds whose results hold a histogram of all rows, unless they come from several classes."""

    def rows(self, results: Given) -> float | None:
        """See `StudyRules`."""
        rows: float | None = results.get("histogram", {}).get("rows")
        return super().rows(results) if rows is None else rows


# --- the joint verdict of a study ---------------------------------------------------------------------------

_Results = Mapping[str, Any]

NEAR = (0.8, 1.25)
"""Range in which the intervals of the calibration slope and of observed over expected must lie, for probabilities to be
called right: that no calibrator was better may only mean that there were too few rows."""


def verdict(outcomes: Sequence[tuple[str, _Results]]) -> dict[str, Any]:
    """Decide if the model needs calibration, and return all verdicts in words.

    ``needs_calibration`` is true if a calibrator is better on held-out rows, false if none is and the probabilities are
    shown to be nearly right (`NEAR`), and None if that was not asked or cannot be decided.

    Parameters
    ----------
    outcomes : the kind of each task and its results, in the order of the study.
    """
    found = [(KINDS[kind].document.load()(), results) for kind, results in outcomes]
    needs, advice = _advice(found)
    sentences = [
        *([advice] if advice else []),
        *(text for kind, one in found for text in kind.sentences(one)),
    ]
    return {"needs_calibration": needs, "text": " ".join(sentences)}


def _advice(outcomes: Sequence[tuple[KindDocument, _Results]]) -> tuple[bool | None, str]:
    """Return the advice on the probabilities, by the last calibration; nothing if there was none."""
    tried = [answer for kind, results in outcomes if (answer := kind.recommends(results)) is not None]
    if not tried:
        return None, ""
    if tried[-1]:
        return True, "Calibrate the model before its probabilities are used."
    seen = next((metrics for kind, one in outcomes if (metrics := kind.calibration_metrics(one))), None)
    if seen is None:
        return None, "No calibrator was shown to be better than the model's own probabilities."
    if all(_near(metric) for metric in seen):
        return False, (
            "Use the model's probabilities as they are: calibration slope and observed over expected are between "
            f"{NEAR[0]:g} and {NEAR[1]:g}, and no calibrator was shown to be better."
        )
    slope = seen[0]
    if slope.get("interval") is None:
        return None, "Too little is known to say whether the model needs calibration."
    low, high = slope["interval"]
    return None, (
        "It cannot be told whether the model needs calibration: no calibrator was shown to be better, but its "
        f"calibration slope may be anything from {low:.2f} to {high:.2f}."
    )


def _near(metric: _Results) -> bool:
    ends = metric.get("interval")
    return ends is not None and NEAR[0] <= ends[0] and ends[1] <= NEAR[1]
