"""What a planned study of several tasks assumes, and what each of its tasks gets of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from fedassay.errors import UsageError
from fedassay.planning.expectation import Expectation, PlannedRelease, Size, Study
from fedassay.planning.rehearsed_classes import ClassStudy
from fedassay.planning.typical_classes import ACCURACY, TEMPERATURE, ClassExpectation
from fedassay.protocol import Part
from fedassay.tasks.shared_parameters import HOLDOUT


@dataclass(frozen=True, kw_only=True)
class StudyExpectation(Size):
    """So many rows at so many clients of equal size, and what else is expected of them, as far as tasks need it.

    Parameters
    ----------
    prevalence, auc : of a model with two classes, see `Expectation`; also the prevalence of a logistic regression.
    classes, accuracy, temperature : of a model with several, see `ClassExpectation`.

    Examples
    --------
    >>> StudyExpectation(rows=1000, clients=10, prevalence=0.2, auc=0.8).scores("evaluate").auc
    0.8
    >>> StudyExpectation(rows=1000, clients=10, auc=0.8).scores("evaluate")
    Traceback (most recent call last):
    fedassay.errors.UsageError: evaluate: got no prevalence, expected what you think it will be, to predict errors; \
give --prevalence, or put it into [expected].
    """

    prevalence: float | None = None
    auc: float | None = None
    classes: int | None = None
    accuracy: float = ACCURACY
    temperature: float = TEMPERATURE

    def __post_init__(self) -> None:
        super().__post_init__()
        # Refuses impossible numbers, also those that no task needs.
        Expectation(
            **self._size,
            prevalence=0.5 if self.prevalence is None else self.prevalence,
            auc=0.75 if self.auc is None else self.auc,
        )
        if self.classes is not None:
            self.logits("classes", None)

    @classmethod
    def of(cls, expected: Mapping[str, Any]) -> StudyExpectation:
        """What a study file says under [expected].

        Examples
        --------
        >>> StudyExpectation.of({"rows": 1000, "clients": 10}).clients
        10
        """
        for name in ("rows", "clients"):
            _known(expected.get(name), "study", name)
        return cls(**expected)

    @property
    def _size(self) -> dict[str, Any]:
        return {"rows": self.rows, "clients": self.clients}

    def scores(self, task: str) -> Expectation:
        """What is expected of a model with two classes; refuses if somebody has to be asked."""
        return Expectation(
            **self._size,
            prevalence=_known(self.prevalence, task, "prevalence"),
            auc=_known(self.auc, task, "auc"),
        )

    def logits(self, task: str, classes: int | None) -> ClassExpectation:
        """The same for a model with several; the task may know how many."""
        return ClassExpectation(
            **self._size,
            classes=int(_known(self.classes if classes is None else classes, task, "classes")),
            accuracy=self.accuracy,
            temperature=self.temperature,
        )

    def varied(self) -> tuple[Self, ...]:
        """The corners of what is still plausible of prevalence and AUC; none if they are not known."""
        if self.prevalence is None or self.auc is None:
            return ()
        return tuple(
            replace(self, prevalence=other.prevalence, auc=other.auc) for other in self.scores("").varied()
        )


def _known(value: float | None, task: str, name: str) -> float:
    if value is None:
        raise UsageError(
            f"{task}: got no {name}, expected what you think it will be, to predict errors; give --{name}, or put it "
            "into [expected]."
        )
    return value


@dataclass(frozen=True, kw_only=True)
class PlannedStudy(PlannedRelease):
    """What is expected of the data of a study, and its terms; with `share` and `fits_on`, what one task of it gets.

    Parameters
    ----------
    holdout : the part of the units that judges what was fitted.

    Examples
    --------
    >>> from fedassay.trust import Plain
    >>> study = PlannedStudy(expectation=StudyExpectation(rows=1000, clients=10), trust=Plain())
    >>> study.part_of(Part.FIT), study.part_of(Part.SECOND_FIT), study.part_of(Part.ALL)
    (0.7, 0.35, 1.0)
    """

    expectation: StudyExpectation
    holdout: float = HOLDOUT

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.holdout < 1:
            raise UsageError(f"holdout: got {self.holdout:g}, expected a share between 0 and 1.")

    def part_of(self, part: Part) -> float:
        """Which part of the units has these rows, on average."""
        sizes = {
            Part.FIRST_FIT: (1 - self.holdout) / 2,
            Part.SECOND_FIT: (1 - self.holdout) / 2,
            Part.HELD_OUT: self.holdout,
        }
        return sum(sizes[atom] for atom in part.atoms)

    @property
    def fit_part(self) -> float:
        """Which part of the units this task fits on."""
        return self.part_of(self.fits_on)

    def varied(self) -> tuple[Self, ...]:
        """The same for other plausible data."""
        return tuple(replace(self, expectation=other) for other in self.expectation.varied())

    def of_scores(self, task: str) -> Study:
        """As the plans of a model with two classes have it."""
        return Study(**self._terms, expectation=self.expectation.scores(task))

    def of_logits(self, task: str, classes: int | None) -> ClassStudy:
        """As the plans of a model with several classes have it."""
        expectation = self.expectation.logits(task, classes)
        return ClassStudy(**self._terms, expectation=expectation, holdout=self.holdout)

    def of_rows(self, seen: float = 1.0) -> PlannedRelease:
        """As plans have it that need no more than rows: of this part of the units."""
        size = Size(rows=self.expectation.rows, clients=self.expectation.clients)
        return PlannedRelease(**{**self._terms, "expectation": size, "seen": seen})

    @property
    def _terms(self) -> dict[str, Any]:
        shared = {field.name for field in fields(PlannedRelease)} - {"expectation"}
        return {name: getattr(self, name) for name in shared}

    def to_dict(self) -> dict[str, Any]:
        """The assumptions and terms, as plain values."""
        known = {name: value for name, value in asdict(self.expectation).items() if value is not None}
        if "classes" not in known:
            known = {name: value for name, value in known.items() if name not in ("accuracy", "temperature")}
        own = super().to_dict()
        hidden = set(asdict(self.expectation)) - set(known)
        return {
            **{name: value for name, value in own.items() if name not in hidden},
            "holdout": self.holdout,
        }
