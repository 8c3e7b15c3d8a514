"""The task: a calibrator for a model with several classes from the fit rows, judged on the held-out rows."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from fedassay.errors import UsageError
from fedassay.protocol import Setting, Step
from fedassay.summaries.multiclass.probabilities import checked_classes
from fedassay.summaries.multiclass.scaling_maps import Temperature
from fedassay.tasks.calibration.multiclass.choice import AUTO, BINNINGS, ONE_SHOT, Choice
from fedassay.tasks.calibration.multiclass.exact import Fit
from fedassay.tasks.calibration.multiclass.judged import Judging
from fedassay.tasks.evaluation.metric import LEVEL


@dataclass(frozen=True, kw_only=True)
class CalibrateMulticlass:
    """A map from logits to calibrated probabilities, with metrics before and after on held-out rows.

    Parameters
    ----------
    classes : how many there are; public, so it must be declared.
    method : ``temperature``, ``vector``, ``matrix``, ``order-preserving``, ``fedcal``, ``histogram``, ``bbq``,
        ``isotonic``, or ``auto``: isotonic without noise; under noise a temperature, and for whole clients of more
        than ten rows shifts of the classes as well (``vector``, one-shot).
    solver : ``exact`` (the pooled optimum through sums), ``fedavg`` (the mean of what clients fit by themselves),
        ``one-shot`` (a temperature from one release; ``vector``: and shifts of the classes, for whole clients), or
        ``auto``: exact where sums are exact, one-shot for a temperature under noise, fedavg for the rest.
    rounds, participation : of federated averaging and of binning: how often clients are asked, and the probability that
        a client takes part in a round. By default 12 rounds of averaging without noise, as many as the budget bears
        under noise; one round of binning; everybody.
    clip : the L2 norm of a client's update in averaging (0.5 under noise, else none); for binnings under noise C₊, the
        norm of a histogram of positives in rows (10).
    negative_clip : C₋ of binnings (50).
    clipping : ``joint`` for all histograms of a client together, ``separate`` for each, as published.
    weighting : of binnings: ``none``, ``all`` or ``changed``.
    averaging : whether ``clients`` or ``rows`` weigh the same in federated averaging.
    height : 2^height bins of a binning.
    bins : of the calibration errors and the reliability curve.
    held_out : about which part of the units is held out: averages under noise are divided by how many are not.
    level : the confidence level of all intervals.

    Guarantee: fit rows and held-out rows are different units, so that each part may spend the whole budget (parallel
    composition, see `data.split`). What each way of fitting guarantees is said there. Rows are assumed independent, for
    intervals.

    Reference: Private Federated Multiclass Post-Hoc Calibration, and docs/explanation/multiclass-calibration.md.
    """

    classes: int | None = None
    method: str = AUTO
    solver: str = AUTO
    rounds: int | None = None
    participation: float = 1.0
    clip: float | None = None
    negative_clip: float | None = None
    clipping: str = "joint"
    weighting: str | None = None
    averaging: str = "clients"
    height: int | None = None
    bins: int = 15
    held_out: float = 0.3
    level: float = LEVEL

    def __post_init__(self) -> None:
        classes = 2 if self.classes is None else checked_classes(self.classes)
        self._choice(classes)  # refuses what does not go together, before any row is read
        Judging(map=Temperature(inverse_temperature=1.0, classes=classes), bins=self.bins, level=self.level)

    def _choice(self, classes: int) -> Choice:
        return Choice(
            classes=classes,
            method=self.method,
            solver=self.solver,
            rounds=self.rounds,
            participation=self.participation,
            clip=self.clip,
            negative_clip=self.negative_clip,
            clipping=self.clipping,
            weighting=self.weighting,
            averaging=self.averaging,
            height=self.height,
            held_out=self.held_out,
        )

    def steps(self, setting: Setting) -> Generator[Step, Any, dict[str, Any]]:
        """Fit, then judge; the ``results`` object of the public contract."""
        if self.classes is None:
            raise UsageError("classes: got none, expected how many the model has; give --classes.")
        asked = self._choice(self.classes)
        choice = asked.settled(setting)
        fit = yield from choice.fit(setting)
        judging = Judging(map=fit.map, bins=self.bins, level=self.level)
        released = yield judging.queries(setting)
        if not isinstance(released, tuple):
            released = (released,)
        judged = judging.results(released)
        switched = asked.why_averaged(setting)
        notes = [*([switched] if switched else []), *_notes(fit, choice, setting), *judged["notes"]]
        return {**_described(choice, fit), **judged, "notes": notes}


def _described(choice: Choice, fit: Fit) -> dict[str, Any]:
    """How the map was found, and the map."""
    one = {}
    if isinstance(fit.map, Temperature):
        s = fit.map.inverse_temperature
        one = {"temperature": {"value": 1 / s if s else None}}
    return {
        "method": fit.map.kind if choice.solver == ONE_SHOT else choice.method,
        "solver": choice.solver,
        "parameters": {**choice.described, **_numbers(fit)},
        **one,
        "calibrator": fit.map.to_json(),
        "fit": {
            "rows": fit.rows,
            "clients": fit.clients,
            "sums": fit.sums,
            "converged": fit.converged,
            "loss_before": fit.loss_before,
            "loss": fit.loss,
            "noise": dict(fit.noise),
        },
    }


def _numbers(fit: Fit) -> dict[str, Any]:
    """The numbers of maps that have few; those of others are in the calibrator."""
    content = {name: value for name, value in fit.map.to_json().items() if name not in ("kind", "classes")}
    return content if fit.map.theta.size <= 64 else {}


def _notes(fit: Fit, choice: Choice, setting: Setting) -> list[str]:
    notes = [f"The fit ended early: {fit.reason}."] if fit.reason else []
    if choice.solver == ONE_SHOT and choice.method != fit.map.kind:
        notes.append(
            "No shift of a class stands out, or could, from the noise: only the temperature was fitted."
        )
    if (
        choice.method in BINNINGS
        and not setting.trust.private
        and (choice.rounds or 1) > 1 > choice.participation
    ):
        notes.append(
            f"Counts of {choice.rounds} cohorts were added up: whoever sees enough such totals can compute the counts "
            "of single clients from them, secure sums or not. One round with everybody tells less about clients."
        )
    return notes
