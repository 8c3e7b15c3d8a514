"""What a study file implies for evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fedassay.tasks.study_rules import Given, HistogramRules, StudyRules, missing_classes


class EvaluationRules(HistogramRules):
    """A second model is compared with where there is a column of its scores."""

    implied_names: ClassVar[tuple[str, ...]] = ("versus",)

    def roles(self, parameters: Given) -> tuple[str, ...]:
        """See `StudyRules`."""
        more = (("versus", "versus"), ("group", "groups"))
        return (*self.columns, *(role for role, entry in more if parameters.get(entry)))

    def implied(self, given: Given, columns: Mapping[str, str] | None, holdout: float) -> dict[str, Any]:
        """See `StudyRules`."""
        return {} if columns is None else {"versus": "versus" in columns}


class ClassRules(StudyRules):
    """The number of classes is looked up."""

    def looked_up(self, parameters: Given) -> tuple[str, ...]:
        """See `StudyRules`."""
        return missing_classes(parameters)
