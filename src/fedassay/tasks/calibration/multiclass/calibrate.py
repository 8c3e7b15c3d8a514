"""The task: a calibrator for a model with several classes from the fit rows, judged on the held-out rows."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from fedassay.errors import ParameterError
from fedassay.protocol.parameters import values_of
from fedassay.protocol.vocabulary import Setting, Step
from fedassay.summaries.multiclass.scaling_maps import Temperature
from fedassay.tasks.calibration.multiclass.choice import BINNINGS, ONE_SHOT, CalibratorChoice
from fedassay.tasks.calibration.multiclass.exact import Fit
from fedassay.tasks.calibration.multiclass.held_out_judge import Judging
from fedassay.tasks.calibration.parameters import CalibrateMulticlassParameters


@dataclass(frozen=True, kw_only=True)
class CalibrateMulticlass(CalibrateMulticlassParameters):
    """A map from logits to calibrated probabilities, with metrics before and after on held-out rows.

    The solver auto is exact where sums are exact; under noise it is one-shot for a temperature, and fedavg for the
    rest. A vector scaling from one release (shifts of the classes) is for whole clients of more than ten rows. The
    share that is held out is the sites' matter: averages under noise are divided by what is expected to be left.

    Guarantee: fit rows and held-out rows are different units, so that each part may spend the whole budget (parallel
    composition, see `data.split`). What each way of fitting guarantees is said there. Rows are assumed independent, for
    intervals.

    Reference: Private Federated Multiclass Post-Hoc Calibration, and docs/explanation/multiclass-calibration.md.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._choice  # refuses what does not go together, before any row is read

    @property
    def _choice(self) -> CalibratorChoice:
        return CalibratorChoice(**{**values_of(self), "classes": self.classes or 2})

    def steps(self, setting: Setting) -> Generator[Step, Any, dict[str, Any]]:
        """Fit, then judge; the ``results`` object of the public contract."""
        if self.classes is None:
            raise ParameterError(
                "classes", "got none, expected the number of classes of the model; give `classes`."
            )
        asked = self._choice
        choice = asked.settled(setting)
        fit = yield from choice.fit(setting)
        judging = Judging(map=fit.map, buckets=self.buckets, level=self.level)
        released = yield judging.queries(setting)
        if not isinstance(released, tuple):
            released = (released,)
        judged = judging.results(released)
        switched = asked.why_averaged(setting)
        notes = [*([switched] if switched else []), *_notes(fit, choice, setting), *judged["notes"]]
        return {**_described(choice, fit), **judged, "notes": notes}


def _described(choice: CalibratorChoice, fit: Fit) -> dict[str, Any]:
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


def _notes(fit: Fit, choice: CalibratorChoice, setting: Setting) -> list[str]:
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
