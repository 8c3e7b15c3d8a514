"""What is asked about held-out rows, once there is a threshold: how many are covered, and how large sets are."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedassay.protocol.vocabulary import Collect, Noise, Part, Query, Released, Setting, Step, Sum
from fedassay.summaries.coverage_counts import (
    CoverageCounts,
    CoverageOf,
    MeanWidth,
    SiteCoverage,
    WidthSum,
)
from fedassay.summaries.quantities import QUANTITIES
from fedassay.summaries.scored import EVERYONE
from fedassay.tasks.conformal.heterogeneity import Differences, HeterogeneitySums
from fedassay.tasks.conformal.methods import answers

if TYPE_CHECKING:
    from fedassay.tasks.conformal.conformal import Conformal

WIDE = ("normalised", "cqr")
"""Scores whose intervals differ in width from row to row."""

MOST_SITES = 250
"""With more clients none is listed: what they differ by is then told from sums."""

FEW_CLASSES = 4
"""Up to so many classes sets that are not conditional on them are counted by class and size at once. With more, classes
are a question of their own: under noise, adding up so many cells would cost more than half of the budget does."""

CountsByPart = Mapping[str, CoverageOf]


@dataclass(frozen=True, kw_only=True)
class HeldOutClassCounts:
    """The counts of single classes, of sets that are not conditional on them, and their noise."""

    counts: CountsByPart
    noise: Noise


@dataclass(frozen=True, kw_only=True)
class HeldOutCounts:
    """What is known about held-out rows: counts of all, of single clients if they may be seen, and widths.

    `added` says how many counts, each with noise of its own, those of `counts` have been added from.
    """

    counts: CountsByPart
    noise: Noise
    added: int = 1
    clients: tuple[CountsByPart, ...] | None = None
    classes: HeldOutClassCounts | None = None
    widths: Mapping[str, WidthSum] | None = None
    differences: Differences | None = None


@dataclass(frozen=True, kw_only=True)
class HeldOutQuestions:
    """Questions about held-out rows, for these thresholds of the parts of the rows."""

    task: Conformal
    thresholds: tuple[float, ...]

    def may_see_each(self, setting: Setting) -> bool:
        """Whether single clients may be seen, and are so few that one can look at each.

        Noise for each of them would leave nothing to see.
        """
        if setting.clients > MOST_SITES:
            return False
        return not setting.trust.private and answers(self._collect(self._counts), setting)

    def each(self) -> Generator[Step, Any, HeldOutCounts]:
        """From the counts of each client."""
        more = (self._widths, self._of_classes)
        queries = [self._collect(of) for of in (self._counts, *more) if of is not None]
        released: tuple[Released[Any], ...] = yield tuple(queries)
        clients: tuple[CountsByPart, ...] = tuple(self._together(one) for one in released[0].value)
        differences = None
        if not self.task.condition:
            rows, covered = of_each(clients)
            differences = Differences.of(HeterogeneitySums.of(rows, covered))
        widths = None
        if self._widths is not None:
            widths = {name: _all_widths([one[name] for one in released[1].value]) for name in clients[0]}
        told = self._tells(released)
        return HeldOutCounts(
            counts=added(clients),
            noise=released[0].noise,
            clients=clients,
            classes=None if told is None else HeldOutClassCounts(counts=added(told.value), noise=told.noise),
            widths=widths,
            differences=differences,
        )

    def sums(self, setting: Setting) -> Generator[Step, Any, HeldOutCounts]:
        """From sums over clients; with noise, from the counts alone."""
        noisy = setting.noise(Sum(of=self._counts, part=Part.HELD_OUT)).variance > 0
        summaries = (
            self._counts,
            None if noisy else self._spread,
            None if noisy else self._widths,
            self._of_classes,
        )
        asked = [of for of in summaries if of is not None]
        queries = tuple(Sum(of=of, part=Part.HELD_OUT, share=1 / len(asked)) for of in asked)
        released: tuple[Released[Any], ...] = yield queries
        answers = {type(query.of): one for query, one in zip(queries, released, strict=True)}
        first, told, spread = released[0], self._tells(released), None
        if SiteCoverage in answers:
            spread = answers[SiteCoverage].value[EVERYONE]
        return HeldOutCounts(
            counts=self._together(first.value),
            noise=first.noise,
            added=len(first.value) if self._tells_classes else 1,
            classes=None if told is None else HeldOutClassCounts(counts=told.value, noise=told.noise),
            widths=answers[MeanWidth].value if MeanWidth in answers else None,
            differences=None
            if spread is None
            else Differences.of(
                HeterogeneitySums(
                    clients=spread.sites,
                    rows=spread.rows,
                    covered=spread.covered,
                    squares=float(spread.squares),
                )
            ),
        )

    @property
    def _tells_classes(self) -> bool:
        """Whether the classes of rows matter although sets are not conditional on them: a rare one may be missed."""
        return QUANTITIES[self.task.sets].gives_sets and not self.task.condition

    def _tells(self, released: Sequence[Released[Any]]) -> Released[Any] | None:
        """The answer that has the classes: the first, or the last where they are a question of their own."""
        if not self._tells_classes:
            return None
        return released[0] if self._of_classes is None else released[-1]

    def _together(self, counts: CountsByPart) -> CountsByPart:
        """All classes together, where classes are told apart by these counts only to be looked at."""
        if not self._tells_classes:
            return counts
        return added([{EVERYONE: one} for one in counts.values()])

    @property
    def _by_class(self) -> dict[str, Any]:
        """The fields of counts by class, all with the same threshold."""
        classes = self.task.classes or 0
        return {
            **self._fields,
            "by": "class",
            "groups": tuple(str(place) for place in range(classes)),
            "thresholds": self.thresholds * classes,
        }

    @property
    def _of_classes(self) -> CoverageCounts | None:
        """The question for single classes, where it is one of its own."""
        if not self._tells_classes or (self.task.classes or 0) <= FEW_CLASSES:
            return None
        return CoverageCounts(**self._by_class, classes=0)

    @property
    def _fields(self) -> dict[str, Any]:
        task = self.task
        return {
            "quantity": task.sets,
            "parameters": task.score_parameters,
            "by": task.condition,
            "groups": task.groups,
            "thresholds": self.thresholds,
        }

    @property
    def _counts(self) -> CoverageCounts:
        classes = (self.task.classes or 0) if QUANTITIES[self.task.sets].gives_sets else 0
        if self._tells_classes and classes <= FEW_CLASSES:
            return CoverageCounts(**self._by_class, classes=classes)
        return CoverageCounts(**self._fields, classes=classes)

    @property
    def _spread(self) -> SiteCoverage | None:
        return None if self.task.condition else SiteCoverage(**self._fields)

    @property
    def _widths(self) -> MeanWidth | None:
        return MeanWidth(**self._fields) if self.task.sets in WIDE else None

    def _collect(self, of: Any) -> Query[Any]:
        return Collect(of=of, part=Part.HELD_OUT, share=0.5)


def added(clients: Sequence[CountsByPart]) -> CountsByPart:
    """The counts of all of them together."""
    return {
        name: CoverageOf(
            covered_by_size=np.sum([one[name].covered_by_size for one in clients], axis=0),
            missed_by_size=np.sum([one[name].missed_by_size for one in clients], axis=0),
        )
        for name in clients[0]
    }


def of_each(clients: Sequence[CountsByPart]) -> tuple[list[int], list[int]]:
    """The rows of each client, and how many of them are covered."""
    return (
        [round(one[EVERYONE].rows) for one in clients],
        [round(one[EVERYONE].covered) for one in clients],
    )


def _all_widths(clients: Sequence[WidthSum]) -> WidthSum:
    return WidthSum(
        rows=sum(one.rows for one in clients),
        width=math.fsum(one.width for one in clients),
        squares=math.fsum(one.squares for one in clients),
    )
