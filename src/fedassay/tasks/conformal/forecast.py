"""Forecast of prediction sets: ranks, coverage, and the coverage of other ways to use the same rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from fedassay.errors import DataError
from fedassay.estimation.coverage import best_pair, scores_needed
from fedassay.estimation.coverage.law import CoverageOfThreshold
from fedassay.estimation.intervals import bounded
from fedassay.tasks.conformal.conformal import Conformal
from fedassay.tasks.conformal.held_out import HeldOutQuestions
from fedassay.tasks.conformal.held_out_judge import CLEAR, coverage_estimate
from fedassay.tasks.conformal.rehearsal import Rehearsal, rehearse
from fedassay.tasks.expectation import PlannedStudy
from fedassay.tasks.forecast import Details, DetailTable, Forecast, Prediction

TARGETS: Mapping[str, float] = MappingProxyType({"spread": 0.02, "excess": 0.02, "shortfall": 0.02})
"""Standard deviation of the coverage, its mean above the level, and how far below the level it is with confidence."""

COVERAGE = "coverage"

MOST_TRIED = (10_000, 1_000_000)
"""Largest numbers of clients, and of rows at each, tried in the search for what is enough; more if planned."""

MOST_CHOOSING = (200, 10_000)
"""Largest numbers tried where each client chooses privately, which takes longer to compute."""

LARGEST_TRIED = 16.0
"""Largest epsilon that matters: larger ones are taken to be as good as this."""

QQ = ("qq", "qq-paper")


@dataclass(frozen=True, kw_only=True)
class ConformalForecast(Forecast[Conformal]):
    """Coverage of the sets, and how well held-out rows will show it (`coverage`, half its interval).

    Ranks, law and guarantee are those that the task itself would state for clients with equally many rows. The coverage
    to expect is for scores that are spread evenly over their range (`conformal.accuracy`).
    """

    targets: ClassVar[Mapping[str, float | None]] = MappingProxyType({**TARGETS, COVERAGE: 0.02})
    main: ClassVar[tuple[str, ...]] = ("excess", "spread", COVERAGE)
    expects: ClassVar[tuple[str, ...]] = ("prevalence",)
    quick: ClassVar[bool] = False
    meanings: ClassVar[Mapping[str, str]] = {
        "spread": "how much the coverage of the sets varies from one such study to the next (standard deviation)",
        "excess": "by how much the sets cover more than the level on average, and so are larger than need be",
        "shortfall": "how far below the level the coverage can be by bad luck",
    }
    assumption: ClassVar[str] = "Clients are taken to have equally many rows."

    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Prediction]:
        """See `Forecast`: `excess` is signed, all others are not."""
        if study.budget is not None and study.budget.epsilon > LARGEST_TRIED:
            study = study.with_epsilon(LARGEST_TRIED)
        found: dict[str, Prediction] = {}
        rehearsal = self._rehearsal(study)
        for name in (name for name in names if name != COVERAGE):
            if isinstance(rehearsal, str):
                found[name] = Prediction(width=math.inf, reason=rehearsal)
            elif (width := rehearsal.width(name)) is not None:
                found[name] = Prediction(width=width, reason=rehearsal.reason)
        if COVERAGE in names and self.task.holdout:
            found[COVERAGE] = self._coverage(study, rehearsal)
        return found

    def most_tried(self, study: PlannedStudy) -> tuple[float, float]:
        """See `Forecast`: ranks take longer to work out the more clients there are."""
        return MOST_CHOOSING if self.task.chooses(study.setting) else MOST_TRIED

    def _rehearsal(self, study: PlannedStudy) -> Rehearsal | str:
        """Return what the task would find, or why it would not: too few rows are an answer and not an error."""
        try:
            return rehearse(replace(self.task, conditional="none", groups=()), self._release(study))
        except DataError as problem:
            return str(problem)

    def _release(self, study: PlannedStudy) -> PlannedStudy:
        """Return the study of the rows of the rarer class, or of one of the groups, taken to be of the same size.

        Where clients choose privately, each must use the same public number of rows: that of the protection, or if it
        states none, the number that a client has.
        """
        seen, rarer = study.fit_part if self.task.holdout else 1.0, self._rarer(study)
        if self._needs_bound(study):
            study = replace(study, protection=replace(study.protection, rows_per_client=study.rows_each))
        return study.seeing(seen / len(self.task.names) if rarer is None else seen * rarer)

    def _needs_bound(self, study: PlannedStudy) -> bool:
        return study.protection.rows_per_client is None and self.task.chooses(study.setting)

    def _rarer(self, study: PlannedStudy) -> float | None:
        """Return the share of the rarer of two outcomes, if sets are conditional on them and prevalence is known."""
        prevalence = study.expectation.prevalence
        if self.task.condition != "class" or self.task.sets != "binary" or prevalence is None:
            return None
        return min(prevalence, 1 - prevalence)

    def _coverage(self, study: PlannedStudy, rehearsal: Rehearsal | str) -> Prediction:
        parts = len(self.task.names)
        step: Any = next(HeldOutQuestions(task=self.task, thresholds=(0.5,) * parts).counts(study.setting))
        query = step[0]
        noise, n = study.setting.noise(query), study.rows * study.holdout
        counts = query.of.read(np.zeros(query.of.length, dtype=np.int64))
        cells = len(counts) * next(iter(counts.values())).sizes.size
        if n <= CLEAR * math.sqrt(2 * cells * noise.variance):
            return Prediction(width=math.inf, reason="not enough held-out rows for the noise")
        expected = None if isinstance(rehearsal, str) else rehearsal.expected
        v = self.task.level if expected is None else min(1.0, expected.mean)
        estimate = coverage_estimate(v, n, cells, noise)
        return Prediction.of(bounded(estimate, size=n, level=self.task.report_level))

    def notes(self, study: PlannedStudy) -> tuple[str, ...]:
        """See `Forecast`."""
        found, rarer = [], self._rarer(study)
        if rarer is not None:
            found.append(f"{self.name}: predicted for the rarer outcome, {rarer:.3g} of the rows.")
        elif self.task.condition:
            size = f"{self.task.condition} of {len(self.task.names)} of equal size"
            found.append(f"{self.name}: predicted for one {size}.")
        if self._needs_bound(study):
            found.append(
                "Every client has to use the same public number of rows: planned with --rows-per-client "
                f"{study.rows_each}."
            )
        return tuple(found)

    # --- besides the predictions --------------------------------------------------------------------------------

    def details(self, study: PlannedStudy, given: Mapping[str, float]) -> Details:
        """See `Forecast`: guarantee, ranks, and laws of other ways to use the same rows."""
        found, needed = self._rehearsal(study), self._rows_needed()
        facts: dict[str, Any] = {"rows_each": study.rows_each, "rows_needed": needed}
        least = needed[self.task.guarantee]
        remarks = [f"Without privacy, {least:,} rows in all are the fewest for this guarantee."]
        if isinstance(found, str):
            facts |= {"infinite": True, "reason": found}
            remarks = [f"Every set will hold everything: {found}", *remarks]
        else:
            made = found.found.to_json(level=self.task.level, confidence=self.task.request.confidence)
            facts |= {
                "method": found.method,
                **{name: made[name] for name in ("guarantee", "pair", "coverage_law")},
                "infinite": found.trivial,
                "details": dict(found.found.details),
                "expected": None if found.expected is None else found.expected._asdict(),
            }
            remarks = [*self._remarks(study, found, made["guarantee"]["text"]), *remarks]
        return Details(
            facts=facts,
            tables={"coverage": self._table(study, found)},
            remarks=tuple(remarks),
            warnings=self._uneven(study, found),
        )

    def _rows_needed(self) -> dict[str, int]:
        level, confidence = self.task.level, self.task.confidence
        return {
            "marginal": scores_needed(level),
            "training-conditional": scores_needed(level, confidence=confidence),
        }

    def _remarks(self, study: PlannedStudy, found: Rehearsal, guarantee: str) -> list[str]:
        if found.trivial:
            return [f"Every set will hold everything: {found.reason}"]
        said, details = [guarantee], found.found.details
        if _differs(found):
            said.append("What to expect is for scores that are spread evenly over their range.")
        if details.get("margin") is not None:
            said.append(f"Noise costs a margin of {details['margin']:,.1f} ranks of {study.rows:,.0f}.")
        if "candidates" in details:
            below, above = details["slopes"]
            said.append(
                f"Each client chooses one of {details['candidates']:,} points, with losses of {below} per rank below "
                f"the target and {above} above."
            )
        return said

    def _table(self, study: PlannedStudy, found: Rehearsal | str) -> DetailTable:
        """Return lines for the plan, for what to expect of it, and for each other way without privacy."""
        title, law = f"{self.task.method} (planned)", None
        if not isinstance(found, str):
            exact = "" if found.found.exact else ", at least"
            title, law = f"{found.method} (planned{exact})", found.law
        rows = [{"way": title, **self._line(law)}]
        if not isinstance(found, str) and found.expected is not None and _differs(found):
            mean, deviation = found.expected
            rows.append({"way": "  to expect", "mean": mean, "standard_deviation": deviation})
        rows += [{"way": way, **self._line(law)} for way, law in self._beside(study).items()]
        return DetailTable(
            title=f"Coverage of sets at the level {self.task.level:g}",
            columns={
                "way": "",
                "pair": "ranks",
                "mean": "mean",
                "standard_deviation": "sd",
                "reached": f"reached with {self.task.confidence:g}",
                "probability": f"P(at least {self.task.level:g})",
            },
            rows=rows,
            digits={"mean": ".4f", "reached": ".4f"},
        )

    def _line(self, law: CoverageOfThreshold | str | None) -> dict[str, Any]:
        if law is None or isinstance(law, str):
            return {} if law is None else {"reason": law}
        return {
            "pair": ", ".join(f"{rank:,}" for rank in getattr(law, "pair", ()) or ()),
            "mean": law.mean,
            "standard_deviation": law.standard_deviation,
            "reached": law.quantile(1 - self.task.confidence),
            "probability": law.probability_at_least(self.task.level),
        }

    def _beside(self, study: PlannedStudy) -> dict[str, CoverageOfThreshold | str]:
        clients, each = study.expectation.clients, study.rows_each
        confidence, setting = self.task.request.confidence, study.setting
        laws = {
            "all rows in one place": self._best(1, clients * each, confidence),
            "one client alone": self._best(1, each, confidence),
        }
        if self.task.way(setting)[0] not in QQ:
            return laws
        if self.task.chooses(setting):
            return {**laws, "qq without privacy": self._best(clients, each, confidence)}
        if confidence is None:
            other = self.task.confidence
            return {**laws, f"with confidence {other:g}": self._best(clients, each, other)}
        return {**laws, "on average only": self._best(clients, each, None)}

    def _best(self, clients: int, rows: int, confidence: float | None) -> CoverageOfThreshold | str:
        try:
            return best_pair(clients, max(1, rows), self.task.level, confidence=confidence)
        except DataError as problem:
            return str(problem)

    def _uneven(self, study: PlannedStudy, found: Rehearsal | str) -> tuple[str, ...]:
        """Warn of what is not as equal as it is taken to be."""
        notes: list[str] = []
        clients, each, bound = study.expectation.clients, study.rows_each, study.protection.rows_per_client
        if clients * each != study.rows:
            notes.append(
                f"{clients:,} clients cannot have equally many of {study.rows:,.0f} rows: planned with {each:,}."
            )
        if not isinstance(found, str) and found.in_private and bound is not None and each < bound:
            notes.append(
                f"Clients have {each:,} rows but count as {bound:,}: what is missing counts as infinite scores, and "
                f"makes sets wider; give --rows-per-client {each}."
            )
        return tuple(notes)


def _differs(found: Rehearsal) -> bool:
    """Return whether the expected coverage differs from the guaranteed coverage."""
    law, expected = found.found.law, found.expected
    return expected is not None and (law is None or abs(expected.mean - law.mean) > 5e-5)
