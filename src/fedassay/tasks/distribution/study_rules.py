"""What a study file implies for distribution functions and quantiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedassay.tasks.distribution.parameters import check_range
from fedassay.tasks.study_rules import Given, HistogramRules, RangeOf, StudyRules


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
