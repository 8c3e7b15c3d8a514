"""The display of what prediction sets cover."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import altair as alt

from fedassay.documents import plots
from fedassay.reports.displays.base import Display
from fedassay.reports.displays.source import Wanted
from fedassay.tasks.conformal import document_plots as conformal_plots
from fedassay.tasks.conformal import document_words as conformal_words


@dataclass(frozen=True, kw_only=True, repr=False)
class CoverageDisplay(Display):
    """The law of the coverage of a conformal task, with the level; for classes also how large the sets are.

    Attributes: `level`, `laws` by method or group (each with `mean`, `standard_deviation`, and a `curve` of `coverage`
    and `cdf`), and `set_sizes`, the share of held-out rows with 0, 1, 2, ... classes in their set.
    """

    wanted: ClassVar[Wanted] = Wanted(what="coverage", entry="level", tasks=("conformal",))

    def _main(self) -> Mapping[str, Any]:
        if conformal_words.holds_everything(self.results):
            return {"level": self.level, "infinite": True}
        seen = (self._held_out.get("coverage") or {}).get("value")
        return {"level": self.level, "threshold": self.results.get("threshold"), "held_out_coverage": seen}

    @property
    def level(self) -> float:
        """What the sets were asked to cover."""
        return float(self.results["level"])

    @property
    def laws(self) -> Mapping[str, Mapping[str, Any]]:
        """The laws that are drawn; none where sets hold everything, or where there are too many to be told apart."""
        if conformal_words.holds_everything(self.results):
            return {}
        return conformal_plots.laws(self.results)

    @property
    def set_sizes(self) -> tuple[float, ...]:
        """By number of classes; empty if sets are not sets of classes, hold everything, or nobody counted."""
        if conformal_words.holds_everything(self.results):
            return ()
        counts = [max(0.0, count) for count in self._held_out.get("size_counts") or ()]
        whole = sum(counts)
        return tuple(count / whole for count in counts) if whole > 0 else ()

    @property
    def _held_out(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.results.get("held_out") or {}
        return found

    def draw(self) -> alt.TopLevelMixin:
        """The law, and the sizes below it."""
        drawn = [conformal_plots.law_part(self.results)] if self.laws else []
        drawn += [conformal_plots.sizes_part(self._held_out)] if self.set_sizes else []
        if not drawn:
            return plots.empty("What the sets will cover", self._nothing)
        if len(drawn) == 1:
            return drawn[0]
        # Else the legend of the law would stand below the sizes.
        return alt.vconcat(*drawn).resolve_scale(color="independent", strokeDash="independent")

    @property
    def alternative(self) -> str:
        """The plot in words."""
        said = [f"{conformal_plots.law_alternative(self.results)}."] if self.laws else []
        said += (
            [f"Set sizes on held-out rows: {conformal_plots.sizes_words(self._held_out)}."]
            if self.set_sizes
            else []
        )
        return " ".join(said) or f"No law of the coverage: {self._nothing}."

    @property
    def _nothing(self) -> str:
        if conformal_words.holds_everything(self.results):
            return "the sets hold everything"
        return str(
            self.results.get("reason", "the method does not know it, or there are too many to be told apart")
        )
