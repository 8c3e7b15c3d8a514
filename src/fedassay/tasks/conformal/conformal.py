"""The task: a threshold for prediction sets after one message from each client, and how it does on held-out rows."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedassay.coverage.law import checked_level
from fedassay.errors import UsageError
from fedassay.protocol import Part, Setting, Step
from fedassay.summaries.maps import map_from_json, numbers_of
from fedassay.summaries.quantities import QUANTITIES, checked_quantity, public_range
from fedassay.summaries.scored import EVERYONE, checked_condition, condition_names
from fedassay.tasks.conformal import judged, ways
from fedassay.tasks.conformal.found import Found
from fedassay.tasks.conformal.request import Request
from fedassay.tasks.conformal.ways import AUTO, METHODS

GUARANTEES = ("marginal", "training-conditional")
MOST_POINTS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Conformal:
    """A threshold such that the set of all values that score at most it covers a new row with the wanted probability.

    Parameters
    ----------
    method : ``qq``, a quantile of the clients' quantiles, at the pair of ranks with the smallest spread of coverage;
        ``qq-paper``, the same at the published ranks; ``average``, the mean of the clients' quantiles, which promises
        nothing; ``pooled``, the quantile of all scores, from one release of their distribution; ``weighted``, the same
        for clients with distributions of their own; ``local``, each client's own. ``auto`` is qq where single
        clients answer, pooled where only sums are known or each client has one row.
    quantity, parameters : the conformity score (`summaries.quantities`).
    level : the coverage.
    guarantee, confidence : ``marginal`` is on average over calibration rows; ``training-conditional`` holds with this
        confidence for the calibration rows that were used.
    score_range : between which numbers scores lie, where only public points are used; scores above make the set hold
        everything. Known for the scores of classes, and needed for others.
    bins : how many public points.
    by, groups : a threshold for each ``class`` or each declared ``group``, with the guarantee for each.
    classes : how many classes there are, for sets of classes; always 2 for ``binary``.
    held_out : whether a part of the rows is kept to measure coverage and size of the sets.
    report_level : the confidence level of intervals.

    Guarantee: that of `results["guarantee"]`, exactly or from below, for whatever distribution the scores have.

    Reference: Humbert, Le Bars, Bellet and Arlot (2023); docs/explanation/conformal-coverage.md and
    private-conformal.md have the formulas and proofs.
    """

    method: str = AUTO
    quantity: str = "conformity"
    parameters: tuple[float, ...] = ()
    level: float = 0.9
    guarantee: str = "marginal"
    confidence: float = 0.9
    score_range: tuple[float, ...] = ()
    bins: int | None = None
    by: str = ""
    groups: tuple[str, ...] = ()
    classes: int | None = None
    held_out: bool = False
    report_level: float = 0.95

    def __post_init__(self) -> None:
        for name, value, known in (
            ("method", self.method, METHODS),
            ("guarantee", self.guarantee, GUARANTEES),
        ):
            if value not in known:
                raise UsageError(f"{name}: got {value!r}, expected one of {', '.join(known)}.")
        checked_level(self.level)
        checked_level(self.confidence, what="confidence")
        checked_level(self.report_level, what="level of intervals")
        object.__setattr__(self, "parameters", checked_quantity(self.quantity, self.parameters))
        object.__setattr__(self, "score_range", _checked_range(self.score_range))
        object.__setattr__(self, "groups", checked_condition(self.by, self.groups))
        if self.classes is None:
            object.__setattr__(self, "classes", QUANTITIES[self.quantity].classes)
        if self.bins is not None and (type(self.bins) is not int or not 2 <= self.bins <= MOST_POINTS):
            raise UsageError(f"bins: got {self.bins}, expected a whole number from 2 to 2^20.")
        self._check_combination()

    def _check_combination(self) -> None:
        """Refuse what each makes sense, but not together."""
        known = QUANTITIES[self.quantity]
        if self.by == "class" and not known.gives_sets:
            raise UsageError(
                f"conditional class: the score {self.quantity} knows no classes, expected one of class probabilities "
                "(lac, aps, raps, binary); use a group."
            )
        if known.classes not in (None, self.classes):
            raise UsageError(f"classes: got {self.classes} for {self.quantity}, expected {known.classes}.")
        if self.by == "class" and self.classes not in (None, len(self.groups)):
            raise UsageError(
                f"groups: got {len(self.groups)} for {self.classes} classes, expected one for each."
            )
        if self.by and self.method == "local":
            raise UsageError(
                f"conditional {self.by}: with method local each client has a threshold of its own, and not each "
                f"{self.by}; use another method, or leave it out."
            )
        if self.method in ("average", "weighted") and self.guarantee != "marginal":
            raise UsageError(
                f"guarantee {self.guarantee}: {self.method} cannot promise it; use another method, such as pooled, or "
                "leave the guarantee out."
            )

    @property
    def request(self) -> Request:
        """The coverage that is wanted."""
        return Request(level=self.level, confidence=None if self.guarantee == "marginal" else self.confidence)

    @property
    def part(self) -> Part:
        """The rows that thresholds are computed from."""
        return Part.FIT if self.held_out else Part.ALL

    @property
    def names(self) -> tuple[str, ...]:
        """The parts of the rows that have a threshold of their own."""
        return condition_names(self.by, self.groups)

    def calibrated(self, map_json: Mapping[str, Any]) -> Conformal:
        """The same task on what a calibrator makes of the scores.

        The guarantee holds for a calibrator that was fitted without the rows that this task asks about: it is then as
        much a part of the model as what came before it.

        Parameters
        ----------
        map_json : a map as `Map.to_json` writes it, such as the one in the results of a calibration.
        """
        if self.quantity != "binary":
            raise UsageError(
                f"calibrated: got the score {self.quantity}, expected binary, whose scores a map of probabilities fits."
            )
        if self.parameters:
            raise UsageError("calibrated: the scores are calibrated already, expected scores as they are.")
        return replace(self, parameters=numbers_of(map_from_json(map_json)))

    @property
    def _score(self) -> dict[str, Any]:
        score: dict[str, Any] = {"name": self.quantity, "parameters": list(self.parameters)}
        return {**score, "calibrated": bool(self.parameters)} if self.quantity == "binary" else score

    # --- steps ----------------------------------------------------------------------------------------------

    def steps(self, setting: Setting) -> Generator[Step, Any, dict[str, Any]]:
        """Ask once for what the threshold needs, and once more where held-out rows are to be judged."""
        if self.held_out and self.classes is None and QUANTITIES[self.quantity].gives_sets:
            raise UsageError(
                "classes: got none, expected how many the model has, to count the sizes of sets; give --classes."
            )
        method, way = self.way(setting)
        found, sites = yield from way(self, method, setting)
        results: dict[str, Any] = {
            "method": method,
            "level": self.level,
            "score": self._score,
            "by": self.by,
            **self._described(found),
            **({} if sites is None else {"sites": sites}),
            "notes": [note for one in found.values() for note in one.notes],
        }
        if self.held_out:
            results |= yield from judged.judge(self, method, setting, found)
        return results

    def way(self, setting: Setting) -> tuple[str, ways.Way]:
        """The method, and how it is carried out under this trust model."""
        return ways.way_of(self, setting)

    def needs_range(self, setting: Setting) -> bool:
        """Whether a range of scores has to be given, for what would be asked in this setting."""
        known = None not in public_range(self.quantity, self.parameters, classes=self.classes)
        return not self.score_range and not known and self.way(setting)[1] is not ways.from_each

    def sees_scores(self, setting: Setting) -> bool:
        """Whether clients would send scores of theirs as they are."""
        return self.way(setting)[1] is ways.from_each

    def chooses(self, setting: Setting) -> bool:
        """Whether clients would choose among public points, each among the same number of rows."""
        return self.way(setting)[1] is ways.from_choices

    def _described(self, found: Mapping[str, Found]) -> dict[str, Any]:
        confidence = self.request.confidence
        described = {
            name: one.to_json(level=self.level, confidence=confidence) for name, one in found.items()
        }
        if not self.by:
            return described[EVERYONE]
        return {
            "threshold": None,
            "infinite": False,
            "reason": f"each {self.by} has a threshold of its own",
            "guarantee": _common(self.by, described),
            "pair": None,
            "coverage_law": None,
            "rows": sum(one.rows or 0.0 for one in found.values()),
            "clients": max((one.clients or 0 for one in found.values()), default=None),
            "groups": described,
        }


def _checked_range(given: tuple[float, ...]) -> tuple[float, ...]:
    numbers = tuple(float(number) for number in given)
    if numbers and not (len(numbers) == 2 and -float("inf") < numbers[0] < numbers[1] < float("inf")):
        raise UsageError(
            f"score range: got {','.join(f'{number:g}' for number in numbers)}, expected two numbers A,B, A below B."
        )
    return numbers


def _common(by: str, described: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What is promised for every part: the least of them."""
    guarantees = [one["guarantee"] for one in described.values()]
    worst = min(guarantees, key=lambda one: (one["kind"] != "none", one["coverage"] or 0.0))
    if worst["kind"] == "none":
        return {**worst}
    reached = [one["probability"] for one in guarantees if one["probability"] is not None]
    return {
        **worst,
        "probability": min(reached, default=None),
        "text": f"For each {by}: {worst['text']}",
    }
