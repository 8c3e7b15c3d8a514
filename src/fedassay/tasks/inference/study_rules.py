"""What a study file implies for regressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fedassay.errors import ParameterError
from fedassay.tasks.study_rules import Given, StudyRules


class RegressionRules(StudyRules):
    """Features, target and offset are the columns of the study."""

    implied_names: ClassVar[tuple[str, ...]] = ("features", "target", "offset")

    def roles(self, parameters: Given) -> tuple[str, ...]:
        """See `StudyRules`."""
        return (*self.columns, "offset") if parameters.get("offset") else self.columns

    def implied(self, given: Given, columns: Mapping[str, str] | None, holdout: float) -> dict[str, Any]:
        """See `StudyRules`."""
        if columns is None:
            return {}
        names = [name.strip() for name in columns.get("features", "").split(",") if name.strip()]
        known = {"features": names, "target": columns.get("target", "")}
        for entry, column in known.items():
            if entry in given and given[entry] != column:
                raise ParameterError(entry, "[data.columns] says which they are; leave it out here.")
        implied: dict[str, Any] = {"target": known["target"], "offset": "offset" in columns}
        # A single name may stand for a column of lists, or for numbered columns.
        return implied if len(names) < 2 else {**implied, "features": names}

    def rows(self, results: Given) -> float | None:
        """See `StudyRules`."""
        rows: float | None = results["fit"]["rows"]
        return rows

    def looked_up(self, parameters: Given) -> tuple[str, ...]:
        """See `StudyRules`."""
        return () if "features" in parameters else ("features",)

    def stand_in(self, parameters: Given) -> dict[str, Any]:
        """See `StudyRules`; while features are not known, nothing can be said of them."""
        unknown = () if "features" in parameters else ("scales", "contrasts")
        return {name: value for name, value in parameters.items() if name not in unknown}

    def require_public(self, parameters: Given) -> None:
        """See `StudyRules`."""
        if "features" not in parameters:
            raise ParameterError("features", "missing, expected the name of each coefficient: A,B,..")
