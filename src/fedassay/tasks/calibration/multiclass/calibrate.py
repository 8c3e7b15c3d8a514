"""Multiclass calibration task: fit a calibrator, and judge it on the held-out rows."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Final, Literal, get_args

from fedassay.errors import ParameterError
from fedassay.protocol.parameters import Interval, in_words, values_of
from fedassay.protocol.vocabulary import Part, Setting, Step, Unit
from fedassay.summaries.multiclass.scaling_maps import Temperature
from fedassay.tasks.calibration.multiclass.binned_flow import (
    HEIGHT,
    NEGATIVE_CLIP,
    POSITIVE_CLIP,
    FederatedBinning,
)
from fedassay.tasks.calibration.multiclass.exact import Fit, fit_exact
from fedassay.tasks.calibration.multiclass.fedavg import CLIP, NOISIEST, FederatedAveraging
from fedassay.tasks.calibration.multiclass.held_out_judge import Judging
from fedassay.tasks.calibration.multiclass.isotonic_fit import fit_isotonic
from fedassay.tasks.calibration.multiclass.one_shot import FEW_ROWS, fit_one_shot, fit_shifted, has_directions
from fedassay.tasks.calibration.parameters import CalibrateMulticlassParameters, ClassMethod, Solver
from fedassay.tasks.shared_parameters import MOST_CLASSES

AUTO: Final = "auto"
SCALINGS: tuple[ClassMethod, ...] = ("temperature", "vector", "matrix", "order-preserving", "fedcal")
BINNINGS: tuple[ClassMethod, ...] = ("histogram", "bbq")
METHODS = get_args(ClassMethod)

EXACT: Final = "exact"
AVERAGED: Final = "fedavg"
ONE_SHOT: Final = "one-shot"
COUNTED: Final = "counts"
SOLVERS = get_args(Solver)
_Settled = Literal["auto", "exact", "fedavg", "one-shot", "counts"]

AVERAGING = ("rounds", "participation", "clip", "averaging")
COUNTING, CLIPPING = ("rounds", "participation", "height", "weighting"), ("clip", "negative_clip", "clipping")
"""Options of federated averaging, of binnings, and of binnings for whole clients under noise."""

ROUNDS = 12
"""Default number of rounds of federated averaging: the published number."""


@dataclass(frozen=True, kw_only=True)
class CalibratorChoice(CalibrateMulticlassParameters):
    """Requested parameters; `settled` returns those that are used."""

    classes: Annotated[int, Interval(ge=2, le=MOST_CLASSES)] = 2
    solver: _Settled = "auto"  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_together()

    def _check_together(self) -> None:
        """Refuse options that the method or the solver does not use."""
        if self.method == "fedcal" and self.solver in (EXACT, ONE_SHOT):
            raise ParameterError(
                "solver",
                f"got {self.solver} for fedcal, expected fedavg: a network's loss has no one optimum.",
            )
        if self.method in (*BINNINGS, "isotonic"):
            if self.solver not in (AUTO, COUNTED):
                raise ParameterError(
                    "solver",
                    f"got {self.solver} for {self.method}, which is computed from counts; leave out `solver`.",
                )
        elif self.solver == COUNTED:
            raise ParameterError("solver", f"got counts for {self.method}, expected {in_words(SOLVERS)}.")
        averages = self.solver == AVERAGED or (self.solver == AUTO and self.method in SCALINGS)
        useful = (AVERAGING if averages else ()) + ((*COUNTING, *CLIPPING) if self.method in BINNINGS else ())
        for name in self._given(*AVERAGING, "weighting", "negative_clip", "clipping", "height"):
            if name not in useful:
                with_what = f"method {self.method}"
                with_what += "" if self.solver in (AUTO, COUNTED) else f" with the solver {self.solver}"
                raise ParameterError(name, f"the {with_what} has no use for it; leave out `{name}`.")
        if self.solver == ONE_SHOT and self.method not in ("temperature", "vector", AUTO):
            raise ParameterError(
                "solver", f"got one-shot for {self.method}, expected it for temperature or vector."
            )

    def _given(self, *names: str) -> list[str]:
        """Return those of these options that do not have their default."""
        usual = {field.name: field.default for field in fields(self)}
        return [name for name in names if getattr(self, name) != usual[name]]

    # --- settled choice ---------------------------------------------------------------------------------------

    def settled(self, setting: Setting) -> CalibratorChoice:
        """Return the choice with all open parameters decided, from public knowledge only."""
        private = setting.trust.private
        whole_clients = private and setting.protection.unit is Unit.CLIENT
        method = self.method
        if method == AUTO:
            method = "isotonic" if not private and self.solver == AUTO else "temperature"
            # Shifts as well where whole clients have enough rows to estimate them.
            if private and has_directions(setting) and self.solver in (AUTO, ONE_SHOT):
                return replace(self, method="vector", solver=ONE_SHOT)
        if method in BINNINGS:
            return self._settled_binning(clips=whole_clients)
        if method == "isotonic":
            return replace(self, method=method, solver=COUNTED)
        solver = self._solver(method, private=private, profiles=private and has_directions(setting))
        chosen = replace(self, method=method, solver=solver)
        if solver != AVERAGED:
            return chosen
        chosen = replace(chosen, rounds=self.rounds or ROUNDS)
        if not private:
            return chosen
        rounds = self.rounds or chosen.averaged(setting).bearable_rounds
        return replace(chosen, clip=self.clip or CLIP, rounds=rounds)

    def _solver(self, method: ClassMethod, *, private: bool, profiles: bool) -> _Settled:
        at_once = method == "temperature" or (method == "vector" and profiles)
        if self.solver == AUTO:
            if method == "fedcal" or self._given(*AVERAGING):
                return AVERAGED
            if private:
                return ONE_SHOT if method == "temperature" else AVERAGED
            return EXACT
        if self.solver == ONE_SHOT and not at_once:
            raise ParameterError(
                "solver",
                f"got one-shot for vector, which is for noise that protects clients of more than {FEW_ROWS} rows; "
                'expected `unit="client"` and `rows_per_client` with a trust model that adds noise, or another solver.',
            )
        if self.solver == EXACT and private:
            other = "one-shot or fedavg" if at_once else "fedavg, or the method temperature"
            raise ParameterError(
                "solver",
                f"got exact for {method} under differential privacy, but exact sums carry no noise; expected {other}.",
            )
        return self.solver

    def why_averaged(self, setting: Setting) -> str:
        """Explain the solver, if only options of federated averaging made it fedavg; empty otherwise."""
        given = [f"--{name}" for name in self._given(*AVERAGING)]
        if not given or self.solver != AUTO or self.method not in SCALINGS:
            return ""
        private = setting.trust.private
        bare = CalibratorChoice(classes=self.classes, method=self.method)
        solver = bare._solver(self.method, private=private, profiles=private and has_directions(setting))
        if solver == AVERAGED:
            return ""
        them = "it" if len(given) == 1 else "them"
        return (
            f"The solver is fedavg, as only federated averaging has a use for {' and '.join(given)}; leave {them} out "
            f"for {solver}."
        )

    def _settled_binning(self, *, clips: bool) -> CalibratorChoice:
        """Settle the options of a binning; clients clip only where noise protects clients."""
        for name in () if clips else self._given(*CLIPPING):
            raise ParameterError(
                name,
                f"got it for {self.method}, but clients count rows as they are unless noise protects whole clients; "
                f'leave out `{name}`, or give `unit="client"` and a trust model that adds noise.',
            )
        return replace(
            self,
            solver=COUNTED,
            rounds=self.rounds or 1,
            weighting=self.weighting or "all",
            height=self.height or HEIGHT,
            clip=(self.clip or POSITIVE_CLIP) if clips else None,
            negative_clip=(self.negative_clip or NEGATIVE_CLIP) if clips else None,
        )

    def clients(self, setting: Setting) -> float:
        """Return the approximate number of clients with rows in the fit part."""
        share = 1 - self.holdout if setting.protection.unit is Unit.CLIENT else 1.0
        return max(1.0, share * setting.clients)

    def averaged(self, setting: Setting, *, noisiest: float = NOISIEST) -> FederatedAveraging:
        """Return the federated averaging that a choice with its rounds stands for."""
        assert self.rounds is not None
        return FederatedAveraging(
            method=self.method,
            classes=self.classes,
            setting=setting,
            rounds=self.rounds,
            participation=self.participation,
            clip=self.clip,
            weights=self.averaging,
            expected_clients=self.clients(setting),
            noisiest=noisiest,
        )

    def fit(self, setting: Setting) -> Generator[Step, Any, Fit]:
        """Return the flow that a settled choice stands for."""
        if self.solver == EXACT:
            return fit_exact(self.method, self.classes, part=Part.FIT)
        if self.solver == ONE_SHOT:
            at_once = fit_shifted if self.method == "vector" else fit_one_shot
            return at_once(self.classes, setting, clients=self.clients(setting))
        if self.solver == AVERAGED:
            # A rehearsal does not know the number of clients: nothing is too noisy for it.
            return self.averaged(setting, noisiest=NOISIEST if setting.clients else math.inf).fit()
        if self.method == "isotonic":
            return fit_isotonic(self.classes, setting)
        binning = FederatedBinning(
            method=self.method,
            classes=self.classes,
            height=self.height or HEIGHT,
            rounds=self.rounds or 1,
            participation=self.participation,
            weighting=self.weighting or "all",
            positive_clip=self.clip or POSITIVE_CLIP,
            negative_clip=self.negative_clip or NEGATIVE_CLIP,
            joint=self.clipping == "joint",
        )
        return binning.fit(setting)

    @property
    def described(self) -> dict[str, Any]:
        """Parameters that affect the fit."""
        names: tuple[str, ...] = AVERAGING if self.solver == AVERAGED else ()
        if self.method in BINNINGS:
            names = COUNTING if self.clip is None else (*COUNTING, *CLIPPING)
        return {name: getattr(self, name) for name in names}


# --- the task -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CalibrateMulticlass(CalibrateMulticlassParameters):
    """A map from logits to calibrated probabilities, with metrics before and after on held-out rows.

    The solver auto is exact where sums are exact; under noise it is one-shot for a temperature, and fedavg for the
    rest. A vector scaling from one release (shifts of the classes) is for whole clients of more than ten rows. The
    sites decide the held-out share: averages under noise are divided by the number of clients expected to be left.

    Guarantee: fit rows and held-out rows are different units, so that each part may spend the whole budget (parallel
    composition, see `data.split`). The guarantees of the ways of fitting are stated there. Rows are assumed
    independent, for intervals.

    Reference: Private Federated Multiclass Post-Hoc Calibration, and docs/explanation/multiclass-calibration.md.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._choice  # refuses incompatible parameters, before any row is read

    @property
    def _choice(self) -> CalibratorChoice:
        return CalibratorChoice(**{**values_of(self), "classes": self.classes or 2})

    def steps(self, setting: Setting) -> Generator[Step, Any, dict[str, Any]]:
        """Fit, then judge; return the ``results`` object of the public contract."""
        if self.classes is None:
            raise ParameterError(
                "classes", "got none, expected the number of classes of the model; give `classes`."
            )
        asked = self._choice
        choice = asked.settled(setting)
        fit = yield from choice.fit(setting)
        judging = Judging(map=fit.map, buckets=self.buckets, level=self.level)
        released = yield judging.queries(setting)
        judged = judging.results(released)
        switched = asked.why_averaged(setting)
        notes = [*([switched] if switched else []), *_notes(fit, choice, setting), *judged["notes"]]
        return {**_described(choice, fit), **judged, "notes": notes}


def _described(choice: CalibratorChoice, fit: Fit) -> dict[str, Any]:
    """Describe the fit and the map."""
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
    """Return the numbers of maps that have few; those of others are in the calibrator."""
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
