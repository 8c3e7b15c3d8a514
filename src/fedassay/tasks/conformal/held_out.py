"""Questions about held-out rows, once there is a threshold: how many are covered, and how large sets are."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedassay.protocol.vocabulary import Collect, Noise, Part, Query, Released, Setting, Step, Sum
from fedassay.summaries.coverage_counts import CoverageCounts, CoverageOf, MeanWidth, SiteCoverage, WidthSum
from fedassay.summaries.quantities import QUANTITIES
from fedassay.summaries.scored import EVERYONE
from fedassay.tasks.conformal.heterogeneity import Differences, HeterogeneitySums
from fedassay.tasks.conformal.methods import answers_to

if TYPE_CHECKING:
    from fedassay.tasks.conformal.conformal import Conformal

WIDE = ("normalised", "cqr")
"""Scores whose intervals differ in width from row to row."""

MOST_SITES = 250
"""Largest number of clients that are listed; differences between more clients are computed from sums."""

FEW_CLASSES = 4
"""Largest number of classes for which sets that are not conditional on them are counted by class and size at once. With
more, classes are a separate question: under noise, adding up all cells would cost more than half of the budget does."""

CountsByPart = Mapping[str, CoverageOf]


@dataclass(frozen=True, kw_only=True)
class HeldOutCounts:
    """Results on held-out rows: counts of all, of single clients if they may be seen, and widths.

    `added` is the number of counts, each with noise of its own, that each of `counts` is the sum of. `classes` are the
    counts of single classes, of sets that are not conditional on them, and their noise.
    """

    counts: CountsByPart
    noise: Noise
    added: int
    clients: tuple[CountsByPart, ...] | None
    classes: tuple[CountsByPart, Noise] | None
    widths: Mapping[str, WidthSum] | None
    differences: Differences | None


@dataclass(frozen=True, kw_only=True)
class HeldOutQuestions:
    """Questions about held-out rows, for these thresholds of the parts of the rows."""

    task: Conformal
    thresholds: tuple[float, ...]

    def counts(self, setting: Setting) -> Generator[Step, Any, HeldOutCounts]:
        """Ask for each client's counts if they may be seen, else for sums over clients; with noise, of rows alone."""
        each = self._may_see_each(setting)
        exact = each or setting.noise(Sum(of=self._counts, part=Part.HELD_OUT)).variance == 0
        questions = {
            "counts": self._counts,
            "spread": self._spread if exact and not each else None,
            "widths": self._widths if exact else None,
            "classes": self._of_classes,
        }
        asked = {name: of for name, of in questions.items() if of is not None}
        ask = self._collect if each else partial(Sum, part=Part.HELD_OUT, share=1 / len(asked))
        released = yield tuple(ask(of=of) for of in asked.values())
        answers: dict[str, Released[Any]] = dict(zip(asked, released, strict=True))
        first = answers["counts"]

        def of_all(answer: Released[Any]) -> CountsByPart:
            return added(answer.value) if each else answer.value

        clients = tuple(self._together(one) for one in first.value) if each else None
        differences, widths = None, None
        if clients is not None and not self.task.condition:
            differences = Differences.of(HeterogeneitySums.of(*of_each(clients)))
        elif "spread" in answers:
            differences = Differences.of(HeterogeneitySums(**vars(answers["spread"].value[EVERYONE])))
        if "widths" in answers:
            widths = _all_widths(answers["widths"].value) if each else answers["widths"].value
        told = answers.get("classes", first) if self._tells_classes else None
        counts = of_all(first)
        return HeldOutCounts(
            counts=self._together(counts),
            noise=first.noise,
            added=len(counts) if self._tells_classes else 1,
            clients=clients,
            classes=None if told is None else (of_all(told), told.noise),
            widths=widths,
            differences=differences,
        )

    def _may_see_each(self, setting: Setting) -> bool:
        """Return whether single clients may be seen, and are few enough to look at each.

        Noise for each of them would leave nothing to see.
        """
        if setting.clients > MOST_SITES or setting.trust.private:
            return False
        return answers_to(self._collect(self._counts), setting)

    @property
    def _tells_classes(self) -> bool:
        """True if the classes of rows matter although sets are not conditional on them: a rare class may be missed."""
        return QUANTITIES[self.task.sets].gives_sets and not self.task.condition

    def _together(self, counts: CountsByPart) -> CountsByPart:
        """Return the counts of all classes together, where they are counted by class only to be shown."""
        if not self._tells_classes:
            return counts
        return {EVERYONE: total(counts.values())}

    @property
    def _by_class(self) -> dict[str, Any]:
        """Fields of counts by class, all with the same threshold."""
        classes = self.task.classes or 0
        return {
            **self._fields,
            "by": "class",
            "groups": tuple(str(place) for place in range(classes)),
            "thresholds": self.thresholds * classes,
        }

    @property
    def _of_classes(self) -> CoverageCounts | None:
        """Separate question about single classes; None if there is none."""
        if not self._tells_classes or (self.task.classes or 0) <= FEW_CLASSES:
            return None
        return CoverageCounts(**self._by_class, classes=0)

    @property
    def _fields(self) -> dict[str, Any]:
        return {**self.task.scored, "thresholds": self.thresholds}

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


def total(counts: Iterable[CoverageOf]) -> CoverageOf:
    """Return the sum of these counts."""
    every = list(counts)
    return CoverageOf(
        covered_by_size=np.sum([one.covered_by_size for one in every], axis=0),
        missed_by_size=np.sum([one.missed_by_size for one in every], axis=0),
    )


def added(clients: Sequence[CountsByPart]) -> CountsByPart:
    """Return the counts of all clients together, of each part of the rows."""
    return {name: total(one[name] for one in clients) for name in clients[0]}


def of_each(clients: Sequence[CountsByPart]) -> tuple[list[int], list[int]]:
    """Return the rows of each client, and how many of them are covered."""
    return ([round(one[EVERYONE].rows) for one in clients], [round(one[EVERYONE].covered) for one in clients])


def _all_widths(clients: Sequence[Mapping[str, WidthSum]]) -> dict[str, WidthSum]:
    return {
        name: WidthSum(
            rows=sum(one[name].rows for one in clients),
            width=math.fsum(one[name].width for one in clients),
            squares=math.fsum(one[name].squares for one in clients),
        )
        for name in clients[0]
    }
