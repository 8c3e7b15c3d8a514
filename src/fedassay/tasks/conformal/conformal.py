"""Task: a threshold for prediction sets after one message from each client, and its evaluation on held-out rows."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedassay.errors import ParameterError, UsageError
from fedassay.protocol.vocabulary import Part, Setting, Step
from fedassay.summaries.maps import map_from_json, numbers_of
from fedassay.summaries.quantities import QUANTITIES, checked_quantity, public_range
from fedassay.summaries.scored import EVERYONE, checked_condition, condition_names
from fedassay.tasks.conformal import held_out_judge, methods
from fedassay.tasks.conformal.parameters import ConformalParameters
from fedassay.tasks.conformal.promises import sentence
from fedassay.tasks.conformal.threshold import CoverageRequest, Found


@dataclass(frozen=True, kw_only=True)
class Conformal(ConformalParameters):
    """A threshold such that the set of all values that score at most it covers a new row with the wanted probability.

    Methods: ``qq`` is a quantile of the clients' quantiles, at the pair of ranks with the smallest spread of coverage;
    ``qq-paper`` the same at the published ranks; ``average`` the mean of the clients' quantiles, which promises
    nothing; ``pooled`` the quantile of all scores, from one release of their distribution; ``weighted`` the same for
    clients with distributions of their own; ``local`` each client's own. ``auto`` is qq where single clients answer,
    and pooled where only sums are known or each client has one row.

    A score above the range makes the set hold everything. Without `conditional` two classes have a threshold each,
    except with the method local; ``none`` is one threshold, with a guarantee over all rows together, in which a rare
    class may have next to no part. For `conditional` classes the groups are the classes. The score parameters of
    ``binary`` are the numbers of a calibrator (`calibrated`). The share that is held out is the sites' matter.

    Guarantee: that of `results["guarantee"]`, exactly or from below, for whatever distribution the scores have.

    Reference: Humbert, Le Bars, Bellet and Arlot (2023); docs/explanation/conformal-coverage.md and
    private-conformal.md have the formulas and proofs.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "score_parameters", checked_quantity(self.sets, self.score_parameters))
        object.__setattr__(self, "score_range", _checked_range(self.score_range))
        if self.classes is None:
            object.__setattr__(self, "classes", QUANTITIES[self.sets].classes)
        self._resolve_condition()
        self._check_combination()
        object.__setattr__(self, "groups", checked_condition(self.condition, self.groups))

    def _resolve_condition(self) -> None:
        """Decide what sets are conditional on if it is not stated, as soon as the number of classes is known."""
        if self.conditional is None and (self.classes is not None or not QUANTITIES[self.sets].gives_sets):
            object.__setattr__(
                self, "conditional", "class" if self.classes == 2 and self.method != "local" else "none"
            )
        if self.conditional == "class" and not self.groups and self.classes is not None:
            object.__setattr__(self, "groups", tuple(str(place) for place in range(self.classes)))

    @property
    def condition(self) -> str:
        """Condition of the sets, as summaries name it; empty for none."""
        return "" if self.conditional in (None, "none") else str(self.conditional)

    def _check_combination(self) -> None:
        """Refuse parameters that make sense alone, but not together."""
        if self.guarantee == "marginal" and self.confidence != Conformal.confidence:
            raise ParameterError(
                "confidence", 'it belongs to `guarantee="training-conditional"`; give both, or none.'
            )
        known = QUANTITIES[self.sets]
        if self.conditional == "class" and not known.gives_sets:
            raise ParameterError(
                "conditional",
                f"got class, but the score {self.sets} knows no classes, expected one of class probabilities "
                "(lac, aps, raps, binary); use a group.",
            )
        if known.classes not in (None, self.classes):
            raise ParameterError("classes", f"got {self.classes} for {self.sets}, expected {known.classes}.")
        if self.condition and not self.groups:
            missing = "classes" if self.conditional == "class" else "groups"
            raise ParameterError(
                missing,
                f"got none for a threshold of each {self.conditional}, expected them; give `{missing}`.",
            )
        if self.conditional == "class" and self.classes not in (None, len(self.groups)):
            raise ParameterError(
                "groups", f"got {len(self.groups)} for {self.classes} classes, expected one for each."
            )
        if self.condition and self.method == "local":
            raise ParameterError(
                "conditional",
                f"got {self.conditional}, but with the method local each client has a threshold of its own, and not "
                f"each {self.conditional}; use another method, or leave it out.",
            )
        if self.method in ("average", "weighted") and self.guarantee != "marginal":
            raise ParameterError(
                "guarantee",
                f"got {self.guarantee}, which {self.method} cannot promise; use another method, such as pooled, or "
                "leave the guarantee out.",
            )

    @property
    def request(self) -> CoverageRequest:
        """Requested coverage."""
        return CoverageRequest(
            level=self.level, confidence=None if self.guarantee == "marginal" else self.confidence
        )

    @property
    def part(self) -> Part:
        """Part of the rows that thresholds are computed from."""
        return Part.FIT if self.holdout else Part.ALL

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parts of the rows that have a threshold of their own."""
        return condition_names(self.condition, self.groups)

    @property
    def scored(self) -> dict[str, Any]:
        """Fields that all summaries of the scores share."""
        return {
            "quantity": self.sets,
            "parameters": self.score_parameters,
            "by": self.condition,
            "groups": self.groups,
        }

    def calibrated(self, map_json: Mapping[str, Any]) -> Conformal:
        """Return the task for scores that go through a calibrator first.

        The guarantee holds for a calibrator that was fitted without the rows that this task asks about: it is then as
        much a part of the model as what came before it.

        Parameters
        ----------
        map_json : a map as `Map.to_json` writes it, such as the one in the results of a calibration.
        """
        if self.sets != "binary":
            raise UsageError(
                f"calibrated: got the score {self.sets}, expected binary, whose scores a map of probabilities fits."
            )
        if self.score_parameters:
            raise UsageError("calibrated: the scores are calibrated already, expected scores as they are.")
        return replace(self, score_parameters=numbers_of(map_from_json(map_json)))

    @property
    def _score(self) -> dict[str, Any]:
        score: dict[str, Any] = {"name": self.sets, "parameters": list(self.score_parameters)}
        return {**score, "calibrated": bool(self.score_parameters)} if self.sets == "binary" else score

    # --- steps ----------------------------------------------------------------------------------------------

    def steps(self, setting: Setting) -> Generator[Step, Any, dict[str, Any]]:
        """Ask once for what the threshold needs, and once more where held-out rows are to be judged."""
        if self.holdout and self.classes is None and QUANTITIES[self.sets].gives_sets:
            raise ParameterError(
                "classes",
                "got none, expected the number of classes, to count the sizes of sets; give `classes`.",
            )
        method, way = self.way(setting)
        found, sites = yield from way(self, method, setting)
        results: dict[str, Any] = {
            "method": method,
            "level": self.level,
            "score": self._score,
            "conditional": self.condition or None,
            **self._described(found),
            **({} if sites is None else {"sites": sites}),
            "notes": [note for one in found.values() for note in one.notes],
        }
        if self.holdout:
            results |= yield from held_out_judge.judge(self, method, setting, found)
        return {**results, "text": sentence(results)}

    def way(self, setting: Setting) -> tuple[str, methods.Way]:
        """Return the method, and the function that carries it out under this trust model."""
        return methods.way_of(self, setting)

    def needs_range(self, setting: Setting) -> bool:
        """Return whether a range of scores must be given for the query of this setting."""
        known = None not in public_range(self.sets, self.score_parameters, classes=self.classes)
        return not self.score_range and not known and self.way(setting)[1] is not methods.from_each

    def sees_scores(self, setting: Setting) -> bool:
        """Return whether clients would send some of their scores as they are."""
        return self.way(setting)[1] is methods.from_each

    def chooses(self, setting: Setting) -> bool:
        """Return whether clients would choose among public points, each from the same number of rows."""
        return self.way(setting)[1] is methods.from_choices

    def _described(self, found: Mapping[str, Found]) -> dict[str, Any]:
        confidence = self.request.confidence
        together = QUANTITIES[self.sets].gives_sets and not self.condition
        described = {
            name: one.to_json(level=self.level, confidence=confidence, over_classes=together)
            for name, one in found.items()
        }
        if not self.condition:
            return described[EVERYONE]
        return {
            "threshold": None,
            "infinite": False,
            "reason": f"each {self.condition} has a threshold of its own",
            "guarantee": _common(self.condition, described),
            "pair": None,
            "coverage_law": None,
            "rows": sum(one.rows or 0.0 for one in found.values()),
            "clients": max((one.clients or 0 for one in found.values()), default=None),
            "groups": described,
        }


def _checked_range(given: tuple[float, ...]) -> tuple[float, ...]:
    if given and not (len(given) == 2 and given[0] < given[1]):
        raise ParameterError(
            "score_range",
            f"got {','.join(f'{number:g}' for number in given)}, expected two numbers A,B, A below B.",
        )
    return given


def _common(part: str, described: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the promise that holds for every part: the smallest of their guarantees."""
    guarantees = [one["guarantee"] for one in described.values()]
    worst = min(guarantees, key=lambda one: (one["kind"] != "none", one["coverage"] or 0.0))
    if worst["kind"] == "none":
        return {**worst}
    reached = [one["probability"] for one in guarantees if one["probability"] is not None]
    return {**worst, "probability": min(reached, default=None), "text": f"For each {part}: {worst['text']}"}
