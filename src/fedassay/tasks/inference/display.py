"""The display of the coefficients of a regression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedassay.documents.display import Display, DisplayedEntry
from fedassay.tasks.inference import document_plots


def _column(name: str, doc: str) -> Any:
    return property(lambda self: tuple(entry[name] for entry in self.results["coefficients"]), doc=doc)


@dataclass(frozen=True, kw_only=True, repr=False)
class CoefficientsDisplay(Display):
    """The coefficients of a regression with their intervals.

    Attributes: `names`, `values`, `standard_errors`, `intervals`, `p_values`, `level`; where rounds have not arrived
    errors, intervals and p-values are None. The plot leaves out the intercept, and all but the first 40; where scales
    differ much, it shows coefficients in their standard errors.
    """

    wanted = DisplayedEntry("coefficients", "coefficients", ("infer",))
    make = document_plots.coefficients

    names = _column("name", "Of the features, and the intercept.")
    values = _column("value", "Estimates.")
    standard_errors = _column("standard_error", "Their standard errors.")
    p_values = _column("p_value", "Of the hypothesis that a coefficient is 0.")

    @property
    def intervals(self) -> tuple[tuple[float, float] | None, ...]:
        """Their confidence intervals."""
        ends = (entry["interval"] for entry in self.results["coefficients"])
        return tuple(None if pair is None else (pair[0], pair[1]) for pair in ends)

    @property
    def level(self) -> float:
        """The confidence level of the intervals."""
        return float(self.results["coefficients"][0]["level"])

    def _main(self) -> Mapping[str, Any]:
        return {"coefficients": len(self.names), "level": self.level}
