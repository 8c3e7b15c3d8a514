"""The display of what prediction sets cover."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt

from fedassay.documents.blocks import CurveBlock, missing
from fedassay.documents.display import Display, DisplayedEntry
from fedassay.tasks.conformal import document_plots
from fedassay.tasks.conformal.document_sets import holds_everything


@dataclass(frozen=True, kw_only=True, repr=False)
class CoverageDisplay(Display):
    """The law of the coverage of a conformal task, with the level; for classes also how large the sets are.

    Attributes: `level`, `laws` by method or group (each with `mean`, `standard_deviation`, and a `curve` of `coverage`
    and `cdf`), and `set_sizes`, the share of held-out rows with 0, 1, 2, ... classes in their set.
    """

    wanted = DisplayedEntry("coverage", "level", ("conformal",))

    def _main(self) -> Mapping[str, Any]:
        if holds_everything(self.results):
            return {"level": self.level, "infinite": True}
        coverage = (self._held_out.get("coverage") or {}).get("value")
        return {
            "level": self.level,
            "threshold": self.results.get("threshold"),
            "held_out_coverage": coverage,
        }

    @property
    def level(self) -> float:
        """What the sets were asked to cover."""
        return float(self.results["level"])

    @property
    def laws(self) -> Mapping[str, Mapping[str, Any]]:
        """The laws that are drawn; none where sets hold everything, or where there are too many to be told apart."""
        return {} if holds_everything(self.results) else document_plots.laws(self.results)

    @property
    def set_sizes(self) -> tuple[float, ...]:
        """By number of classes; empty if sets are not sets of classes, hold everything, or nobody counted."""
        return () if holds_everything(self.results) else tuple(document_plots.size_shares(self._held_out))

    @property
    def _held_out(self) -> Mapping[str, Any]:
        held_out: Mapping[str, Any] = self.results.get("held_out") or {}
        return held_out

    @property
    def block(self) -> CurveBlock:
        """The law, and the sizes below it."""
        law = [document_plots.coverage_laws(self.results)] if self.laws else []
        sizes = [document_plots.set_sizes(self._held_out)] if self.set_sizes else []
        if not law and not sizes:
            unknown = "the method does not know it, or there are too many to be told apart"
            reason = str(self.results.get("reason", unknown))
            reason = "the sets hold everything" if holds_everything(self.results) else reason
            return missing("What the sets will cover", reason, f"No law of the coverage: {reason}.")
        texts = [f"{block.alternative}." for block in (*law, *sizes)]
        return CurveBlock(draw=lambda: _below([*law, *sizes]), alternative=" ".join(texts))


def _below(blocks: list[CurveBlock]) -> alt.TopLevelMixin:
    if len(blocks) == 1:
        return blocks[0].draw()
    # Else the legend of the law would stand below the sizes.
    charts = alt.vconcat(*(block.draw() for block in blocks))
    return charts.resolve_scale(color="independent", strokeDash="independent")
