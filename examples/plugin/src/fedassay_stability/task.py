"""The task: one release of a score histogram for each period."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from fedassay.protocol.parameters import Checked, Fraction, Interval
from fedassay.protocol.vocabulary import Released, Setting, Step, Sum
from fedassay.summaries.score_histogram import LabelledHistogram, ScoreHistogram
from fedassay_stability.index import stability_index


@dataclass(frozen=True, kw_only=True)
class Stability(Checked):
    """Population stability index of a model's scores: rows with the label 1 against rows with the label 0.

    Guarantee: everything returned is computed from a single `Sum`. Rows are assumed independent, for the interval.
    """

    roles: ClassVar[tuple[str, ...]] = ("score", "label")

    height: Annotated[int, Interval(ge=1, le=8)] = 4
    """2^height bins of equal width, which are merged where rows are few."""
    level: Fraction = 0.95
    """Confidence level of the interval."""

    @property
    def histogram(self) -> ScoreHistogram:
        """The histogram of both periods."""
        return ScoreHistogram(transform="uniform", height=self.height)

    def steps(self, setting: Setting) -> Generator[Step, Any, dict[str, Any]]:
        """Ask for the histogram; return the index and the bins that it was computed from."""
        released: Released[LabelledHistogram] = yield Sum(of=self.histogram)
        evidence = released.value.evidence(released.noise)
        index, bins = stability_index(evidence, level=self.level)
        return {"stability_index": index.to_json(), "bins": bins, "rows": evidence.rows}
