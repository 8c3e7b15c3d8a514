"""What a study file implies for calibrations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fedassay.tasks.study_rules import Given, HistogramRules, missing_classes, same_holdout


class CalibrationRules(HistogramRules):
    """A calibrator is judged on held-out rows."""

    def holds_out(self, parameters: Given) -> bool:
        """See `StudyRules`."""
        return True


class ClassCalibrationRules(CalibrationRules):
    """The held-out share is that of the study, and the number of classes is looked up."""

    implied_names: ClassVar[tuple[str, ...]] = ("holdout",)

    def implied(self, given: Given, columns: Mapping[str, str] | None, holdout: float) -> dict[str, Any]:
        """See `StudyRules`."""
        return same_holdout(given, holdout) if columns is not None or "holdout" in given else {}

    def looked_up(self, parameters: Given) -> tuple[str, ...]:
        """See `StudyRules`."""
        return missing_classes(parameters)
