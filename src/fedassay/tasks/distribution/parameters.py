"""Parameters of distributions: curves, quantiles by search, and the Hosmer-Lemeshow test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fedassay.errors import ParameterError
from fedassay.protocol.parameters import Checked, Fraction, Interval, Stated
from fedassay.protocol.vocabulary import Neighbours, Setting
from fedassay.tasks.shared_parameters import Intervals, ScoreBins
from fedassay.tasks.study_rules import Given, HistogramRules, RangeOf, StudyRules

Spacing = Literal["uniform", "logarithmic", "quantile"]
SearchSpacing = Literal["uniform", "logarithmic"]
Mechanism = Literal["auto", "tree", "path", "factorised"]
Smoothing = Literal["none", "isotonic", "l1", "l2"]
GroupTestMethod = Literal["free", "corrected", "published"]
Degrees = Literal["Q", "Q-2"]

MOST_POINTS = 1 << 20
MOST_GROUPS = 1000


@dataclass(frozen=True, kw_only=True)
class Range(Checked):
    """Points between two public ends."""

    lower: Annotated[float, Stated()] = 0.0
    """Lower end of the range, which is public; smaller values count there."""
    upper: Annotated[float, Stated()] = 1.0
    """Upper end of the range, which is public; larger values count there."""


@dataclass(frozen=True, kw_only=True)
class EcdfParameters(Range, Intervals):
    """Parameters of `Ecdf`."""

    points: Annotated[int, Interval(ge=2, le=MOST_POINTS)] = 1024
    """Number of points, rounded up to a power of two."""
    grid: Spacing | tuple[float, ...] = "uniform"
    """Spacing of the points (quantile: dense where rows are), or the points themselves in place of a range."""
    quantiles: tuple[Fraction, ...] = ()
    """Quantiles to list. Others can be asked of the result later."""
    mechanism: Mechanism = "auto"
    """Placement of the noise; auto has the least."""
    smoothing: Smoothing = "isotonic"
    """Method that makes the noisy curve rise from 0 to 1."""
    smoothed_points: Annotated[int, Interval(ge=1)] | None = None
    """Number of points to smooth and show, evenly spread. Default: all."""
    labelled: bool = False
    """Release one curve for each of two labels, and the ROC curve."""
    public_labels: bool = False
    """Labels are public, so that a replaced row keeps its label (replace-one only)."""
    precision: Annotated[float, Interval(gt=0, lt=1)] | None = None
    """Largest half-width of the band from noise; a budget that is too small for it is refused first."""
    expected_rows: Annotated[float, Interval(ge=1)] | None = None
    """Number of rows to expect, for the precision."""


@dataclass(frozen=True, kw_only=True)
class SearchQuantilesParameters(Range, Intervals):
    """Parameters of `SearchQuantiles`."""

    quantiles: tuple[Fraction, ...] = (0.5,)
    """Quantiles to search."""
    points: Annotated[int, Interval(ge=2, le=MOST_POINTS)] = 4096
    """Number of points, rounded up to a power of two."""
    grid: SearchSpacing = "uniform"
    """Spacing of the points."""


@dataclass(frozen=True, kw_only=True)
class HosmerLemeshowParameters(ScoreBins, Intervals):
    """Parameters of `HosmerLemeshow`."""

    method: GroupTestMethod = "free"
    """Method: one score histogram (free), or groups first and then their sums (corrected, published)."""
    groups: Annotated[int, Interval(ge=2, le=MOST_GROUPS)] = 10
    """Number of groups of rows, of about equal size."""
    degrees: Degrees = "Q"
    """Degrees of freedom: Q for a frozen model on new rows, Q-2 for the rows it was fitted to."""
    points: Annotated[int, Interval(ge=2, le=MOST_POINTS)] = 1024
    """Points of the score distribution in which groups are searched, rounded up to a power of two."""
    curve_share: Fraction = 0.1
    """Share of the budget for the groups (corrected); the sums get the rest."""


def check_range(given: Mapping[str, Any]) -> None:
    """Refuse points without a stated range, or which are listed and have a range too."""
    if not isinstance(given.get("grid", ""), str):
        for name in ("lower", "upper", "points"):
            if given.get(name) is not None:
                raise ParameterError(
                    name,
                    f"got it together with the points of `grid`, expected one of them; leave `{name}` out.",
                )
        return
    for name in ("lower", "upper"):
        if given.get(name) is None:
            raise ParameterError(
                name,
                "missing; expected the range of the values, which is public and not read from the data; give `lower` "
                "and `upper`.",
            )


def check_ecdf(given: Mapping[str, Any], setting: Setting) -> None:
    """Refuse a curve without a public range, and public labels where that changes nothing."""
    check_range(given)
    if (
        given.get("public_labels")
        and "label" in given
        and setting.protection.neighbours is Neighbours.ADD_REMOVE
    ):
        raise ParameterError(
            "public_labels",
            "a row that is added or removed takes its label with it, so that this changes nothing; leave it out, or "
            'give `neighbours="replace-one"`.',
        )


# --- what a study file implies for distribution functions and quantiles -------------------------------------


class DistributionRules(StudyRules):
    """The range is public and has to be stated."""

    def roles(self, parameters: Given) -> tuple[str, ...]:
        """See `StudyRules`."""
        return ("value", "label") if parameters.get("labelled") else ("value",)

    def implied(self, given: Given, columns: Mapping[str, str] | None, holdout: float) -> dict[str, Any]:
        """See `StudyRules`."""
        self.require_public(given)
        return {}

    def require_public(self, parameters: Given) -> None:
        """See `StudyRules`."""
        check_range(parameters)

    def first_entries(
        self, columns: Given, level: float | None, classes: int | None, range_of: RangeOf
    ) -> dict[str, Any]:
        """See `StudyRules`."""
        low, high = range_of("value")
        return {"lower": low, "upper": high}


class GroupTestRules(HistogramRules):
    """Rows are those of the groups where no histogram is released."""

    def rows(self, results: Given) -> float | None:
        """See `StudyRules`."""
        groups = results["hosmer_lemeshow"].get("groups")
        counted = sum(group["rows"] for group in groups) if isinstance(groups, list) else None
        rows = super().rows(results)
        return counted if rows is None else rows
