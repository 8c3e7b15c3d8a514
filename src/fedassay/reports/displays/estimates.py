"""Displays of estimates with intervals, a line each: coefficients, and metrics of sites or groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import altair as alt

from fedassay.documents import forest
from fedassay.errors import UsageError
from fedassay.reports.displays.base import Display
from fedassay.reports.displays.source import Source, Wanted, part_of
from fedassay.tasks.inference import document_plots as inference_plots


@dataclass(frozen=True, kw_only=True, repr=False)
class CoefficientsDisplay(Display):
    """The coefficients of a regression with their intervals.

    Attributes: `names`, `values`, `standard_errors`, `intervals`, `p_values`, `level`; where rounds have not arrived
    errors, intervals and p-values are None. The plot leaves out the intercept, and all but the first 40; where scales
    differ much, it shows coefficients in their standard errors.
    """

    wanted: ClassVar[Wanted] = Wanted(what="coefficients", entry="coefficients", tasks=("infer",))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the features, and the intercept."""
        return self._all("name")

    @property
    def values(self) -> tuple[float | None, ...]:
        """Estimates."""
        return self._all("value")

    @property
    def standard_errors(self) -> tuple[float | None, ...]:
        """Their standard errors."""
        return self._all("standard_error")

    @property
    def intervals(self) -> tuple[tuple[float, float] | None, ...]:
        """Their confidence intervals."""
        return tuple(None if ends is None else (ends[0], ends[1]) for ends in self._all("interval"))

    @property
    def p_values(self) -> tuple[float | None, ...]:
        """Of the hypothesis that a coefficient is 0."""
        return self._all("p_value")

    @property
    def level(self) -> float:
        """The confidence level of the intervals."""
        return float(self.results["coefficients"][0]["level"])

    def _main(self) -> Mapping[str, Any]:
        return {"coefficients": len(self.names), "level": self.level}

    def _all(self, name: str) -> tuple[Any, ...]:
        return tuple(entry[name] for entry in self.results["coefficients"])

    def draw(self) -> alt.LayerChart:
        """A line for each coefficient, and a rule at 0."""
        return inference_plots.forest_plot(self.results)

    @property
    def alternative(self) -> str:
        """The plot in words."""
        return inference_plots.forest_alternative(self.results)


@dataclass(frozen=True, kw_only=True, repr=False)
class ForestDisplay(Display):
    """Three metrics of each site or group of an evaluation, with intervals; below them what all rows say.

    Attributes: `names` of the sites or groups, and `metrics`: by metric a list of their entries (`value`, `interval`).
    """

    wanted: ClassVar[Wanted] = Wanted(what="forest plot", entry="roc_auc", tasks=("evaluate",))

    @classmethod
    def from_result(cls, result: Source, task: str | None = None) -> Self:
        """As `Display.from_result`; where sites cannot be seen, the reason is told."""
        part = part_of(result, task=task, wanted=cls.wanted)
        results = part.document["results"]
        if not forest.planted(results):
            why = results.get("sites_reason") or "nobody asked for sites or groups; give per_site or by"
            raise UsageError(f"forest plot: the evaluation has none, because {why}.")
        return cls(results=results, task=part.name)

    def _main(self) -> Mapping[str, Any]:
        what, entries = forest.listed(self.results)
        return {f"{what}s": len(entries)}

    @property
    def names(self) -> tuple[str, ...]:
        """Of the sites, or else of the groups."""
        what, entries = forest.listed(self.results)
        return tuple(str(entry[what]) for entry in entries)

    @property
    def metrics(self) -> Mapping[str, tuple[Mapping[str, Any], ...]]:
        """The metrics that are drawn, in the order of `names`."""
        _, entries = forest.listed(self.results)
        return {metric: tuple(entry[metric] for entry in entries) for metric in forest.drawn(self.results)}

    def draw(self) -> alt.TopLevelMixin:
        """The metrics side by side."""
        chart = forest.forest(self.results)
        assert chart is not None  # seen to in `from_result`
        return chart

    @property
    def alternative(self) -> str:
        """The plot in words."""
        return forest.alternative(self.results)
