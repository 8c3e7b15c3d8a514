"""Task: coefficients of a regression over a federation, with intervals, from a stream of rounds or all at once."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, get_args

from fedassay.errors import DataError, ParameterError, UsageError
from fedassay.protocol.vocabulary import Setting, Step
from fedassay.summaries.regression.local_work import BY_ROWS
from fedassay.summaries.regression.losses import LogLoss, SquaredError, loss_of
from fedassay.summaries.regression.moments import INTERCEPT, MOST_FEATURES, Moments, Standard
from fedassay.tasks.inference import result_values
from fedassay.tasks.inference.diagnosis import Separation, may_be_certain
from fedassay.tasks.inference.newton import (
    MODEL,
    MOST_SUMS,
    RegressionFit,
    fit_newton,
    standardised,
)
from fedassay.tasks.inference.online import (
    ROUND,
    SCALING,
    Course,
    RoundHistory,
    infer_rounds,
    run_rounds,
)
from fedassay.tasks.inference.parameters import FEWEST_ROUNDS, InferParameters, RegressionMethod
from fedassay.tasks.inference.path import StepSizes
from fedassay.tasks.inference.private_rounds import PrivateCourse, infer_private, run_private_rounds
from fedassay.tasks.inference.private_rounds import default_rounds as private_rounds

NEWTON: Final = "newton"
METHODS = get_args(RegressionMethod)

ROUNDS = 200
"""Number of rounds of a stream, where rows are enough for them: the one-step estimate needs no more."""

_CHECKING = 1 / (4 * MOST_SUMS)
"""Part of the budget for each sum that looks for a separation: rounds take half of it."""


@dataclass(frozen=True, kw_only=True)
class Infer(InferParameters):
    """Coefficients of a regression, each with a standard error, an interval and a p-value.

    Features are brought to a common scale with means and scales from one sum, or with the public ones of `scales`:
    ``"age=50:10"``, and ``"target=120:20"`` for a linear model. Under noise nothing is asked for that could be given:
    features are as they are without them. A state is what an earlier run returned as ``results["state"]``, to go on
    from there with new rows.

    Guarantee: ``newton``: estimate and errors are those of the pooled rows, to 1e-8. The others: coverage in the limit
    of many rounds; docs/explanation/inference.md says what has been measured, and where it fails.
    """

    model: str = SquaredError.name  # type: ignore[assignment] # or a loss that this process has lent (`losses.lent`)

    def __post_init__(self) -> None:
        super().__post_init__()
        loss_of(self.model)
        self._check_names()
        _ = self.given_scale
        self._check_together()

    def _check_names(self) -> None:
        features, most = self.features, MOST_FEATURES
        nothing = not features and not self.intercept
        number = f"got {len(features)}, expected 1 to {most} (or none with an intercept)."
        target = "got a feature named 'target', which stands for the target; rename it."
        for wrong, name, problem in (
            (not all(features), "features", "got an empty name, expected names of columns."),
            (nothing or len(features) > most, "features", number),
            (self.scales and "target" in features, "scales", target),
            (
                INTERCEPT in features,
                "features",
                f"got one named {INTERCEPT!r}, which is taken; rename the column.",
            ),
            (
                len(set(features)) != len(features),
                "features",
                "got one of them twice, expected different columns.",
            ),
        ):
            if wrong:
                raise ParameterError(name, problem)
        contrasts = tuple(result_values.normal(text, self.names) for text in self.contrasts)
        object.__setattr__(self, "contrasts", contrasts)

    def _check_together(self) -> None:
        if self.state is not None and self.step is not None:
            raise ParameterError(
                "step", "got one together with a state, whose steps go on; leave out `step`."
            )
        streams = ("rounds", "participation", "local_steps", "local", "step", "decay", "weighting", "state")
        defaults = {name: Infer.__dataclass_fields__[name].default for name in (*streams, "variance")}
        given = [name for name, default in defaults.items() if getattr(self, name) != default]
        for name in given:
            if (self.method == NEWTON) == (name in streams):
                raise ParameterError(name, f"the method {self.method} has no use for it; leave out `{name}`.")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coefficients."""
        return (INTERCEPT, *self.features) if self.intercept else self.features

    # --- steps ----------------------------------------------------------------------------------------------

    def steps(self, setting: Setting) -> Generator[Step, Any, dict[str, Any]]:
        """Ask for one sum for the common scale, then rounds, or a handful of sums.

        What answers show to have no fit (a separation, columns that depend on each other, rounds that diverge) is a
        result without values: it was asked and paid for, and other tasks go on.
        """
        fitting, answer, answers = self._fitted(setting), None, 0
        while True:
            try:
                asked = fitting.send(answer)
            except StopIteration as done:
                found: dict[str, Any] = done.value
                return found
            except (UsageError, DataError) as problem:
                if not answers:
                    raise
                return result_values.without_values(self, str(problem), rounds=answers)
            answer = yield asked
            answers += 1

    def _fitted(self, setting: Setting) -> Generator[Step, Any, dict[str, Any]]:
        if setting.trust.private:
            return (yield from self._under_noise(setting))
        if self.clip is not None:
            raise ParameterError("clip", "nothing is clipped without noise; leave out `clip`.")
        if setting.protection.rows_per_client is not None:
            raise ParameterError(
                "rows_per_client",
                "got a bound, which is for trust models that add noise; leave out `rows_per_client`.",
            )
        if self.method != NEWTON and setting.clients:
            self._check_cohort(setting)
        begin = None if self.state is None else self._begun(self.state)
        standard, moments = yield from standardised(
            self.model, self.features, intercept=self.intercept, offset=self.offset
        )
        if not self.standardise or self.scales:
            standard = self.given_scale
        if self.method == NEWTON:
            fit = yield from fit_newton(self.model, standard, self.names, variance=self.variance)
            return result_values.newton(self, fit, moments)
        course, history = self.course(setting, moments), None
        if begin is not None:
            # The present number of rows decides weights and rounds; scale and steps stay those of the first run.
            standard, sizes, history = begin
            course = replace(course, sizes=sizes)
        self._check_rows(course, setting, moments)
        clients, per = max(1, setting.clients), per_client(moments, setting.clients, self.weighting)
        seen = yield from run_rounds(course, standard, clients=clients, per=per, begin=history)
        doubt = yield from self._check_separation(seen, standard)
        estimate = yield from infer_rounds(course, seen, self.names, clients=clients)
        state = {
            **self._resumable,
            "standard": asdict(standard),
            "step": course.sizes.first,
            **seen.to_json(),
        }
        return result_values.streamed(
            self, estimate.translated(standard), seen, course, standard, moments, state, doubt
        )

    def _check_cohort(self, setting: Setting) -> None:
        """Refuse, before anything is asked, rounds with fewer clients than the trust model takes."""
        drawn = max(1, round(self.participation * setting.clients))
        least = max(1, getattr(setting.trust, "minimum_cohort", 1))
        if drawn < least <= setting.clients:  # of fewer clients the trust model says so itself
            raise ParameterError(
                "participation",
                f"got {self.participation:g} of {setting.clients} clients, which is {drawn} in a round, expected at "
                f"least {least} ({setting.trust.name}).",
            )

    def _check_rows(self, course: Course, setting: Setting, moments: Moments) -> None:
        """Refuse, before the first round, rounds in which most clients would use the same rows again and again."""
        each, visits = moments.rows / max(1, moments.clients), course.visits(max(1, setting.clients))
        if each < visits / 2:
            fewer = int(course.rounds * each / visits)
            instead = (
                f"at most about {fewer} rounds, or"
                if fewer >= FEWEST_ROUNDS
                else "rounds for larger clients, or"
            )
            raise ParameterError(
                "rounds",
                f"got {course.rounds} for clients of {each:.3g} rows on average, who would use each row "
                f"{visits / each:.0f} times, expected {instead} the method newton.",
            )

    def _check_separation(self, seen: RoundHistory, standard: Standard) -> Generator[Step, Any, str | None]:
        """Check that there is a finite optimum, by a handful of sums over all rows.

        Rounds end although coefficients would grow without end. Rows that come after others may be separated while all
        of them are not: they are asked only if rounds leave a doubt, and then the separation is only reported.
        """
        resumed = self.state is not None
        if self.model != LogLoss.name or (resumed and not may_be_certain(seen.path.hessian)):
            return None
        try:
            yield from fit_newton(self.model, standard, self.names, variance=MODEL, share=_CHECKING)
        except Separation as problem:
            if not resumed:
                raise
            return f"Of the rows of this run alone: {problem} Rows of earlier runs may say otherwise."
        return None

    def _under_noise(self, setting: Setting) -> Generator[Step, Any, dict[str, Any]]:
        """Run clipped rounds: nothing is asked for first, as means and scales would cost a part of the budget."""
        if self.method not in (ROUND, SCALING):
            raise ParameterError(
                "method",
                f"got {self.method} under {setting.trust.name}, expected {ROUND} or {SCALING}: exact sums and "
                "gradients of single rows carry no noise.",
            )
        fields = Infer.__dataclass_fields__
        for name in ("state", "local_steps", "step", "weighting", "local"):
            if getattr(self, name) != fields[name].default:
                raise ParameterError(name, f"rounds under noise have no use for it; leave out `{name}`.")
        rounds = self.rounds or private_rounds(setting.protection.rows_per_client)
        course = PrivateCourse(
            model=self.model,
            rounds=rounds,
            rows_each=int((setting.protection.rows_per_client or 1) / (rounds * self.participation)),
            participation=self.participation,
            clip=self.clip,
            decay=self.decay,
            seed=self.seed,
            scaling=self.method == SCALING,
        )
        if self.features and not self.scales:
            raise ParameterError(
                "scales",
                f"got none under {setting.trust.name}, where means and spreads are not asked for; expected public ones "
                "of each feature and of the target of a linear model (NAME=MEAN:SPREAD; NAME=0:1 leaves one as it is).",
            )
        standard = self.given_scale
        seen = yield from run_private_rounds(course, standard, len(self.names), setting)
        estimate, note = infer_private(seen, course, self.names)
        return result_values.private(self, estimate.translated(standard), seen, course, setting, note)

    @property
    def given_scale(self) -> Standard:
        """Common scale that was given; features as they are where none was."""
        return result_values.scale_of(
            self.scales,
            self.features,
            intercept=self.intercept,
            linear=self.model == SquaredError.name,
            offset=self.offset,
        )

    @property
    def _resumable(self) -> dict[str, Any]:
        """Parameters that the runs before and after a state must share."""
        names = ("model", "names", "target", "method", "weighting", "offset", "decay")
        return {name: getattr(self, name) for name in names} | {"names": list(self.names)}

    def _begun(self, state: Mapping[str, Any]) -> tuple[Standard, StepSizes, RoundHistory]:
        """Return the scale, the steps and the rounds of the run before."""
        for what, wanted in self._resumable.items():
            if state.get(what) != wanted:
                raise UsageError(f"state: got one with {what} {state.get(what)!r}, expected {wanted!r}.")
        try:
            sizes = StepSizes(first=float(state["step"]), decay=self.decay)
            kept: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in state["standard"].items()
            }
            return Standard(**kept), sizes, RoundHistory.from_json(state)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(
                f"state: it cannot be read ({error}); expected what a run of infer returned as its state."
            ) from None

    def course(self, setting: Setting, moments: Moments) -> Course:
        """Return how rounds are run, with everything decided that was left open."""
        rounds = self.rounds or default_rounds(moments.rows, max(1, setting.clients), self.participation)
        return Course(
            model=self.model,
            rounds=rounds,
            participation=self.participation,
            local_steps=self.local_steps,
            local=self.local,
            sizes=StepSizes(first=self.step or self._first_step, decay=self.decay),
            weights=self.weighting,
            intervals=self.method,
            seed=self.seed,
        )

    @property
    def _first_step(self) -> float:
        """First step size, 1/p for squared errors: rows on a common scale have a squared norm of about p."""
        curvature = {SquaredError.name: 1.0, LogLoss.name: 2.5}.get(self.model, 1.0)
        # Several local steps share the length of one: what they bend is then corrected well enough.
        return curvature / max(1, len(self.names)) / self.local_steps


def default_rounds(rows: int, clients: int, participation: float) -> int:
    """Return as many rounds as have fresh rows at a client of half the mean size, up to 200; at least 20.

    Examples
    --------
    >>> default_rounds(10_000, 10, 1.0), default_rounds(1_000, 10, 1.0), default_rounds(1_000, 10, 0.5)
    (200, 50, 100)
    """
    fresh = rows / clients / 2 / participation
    return max(20, min(ROUNDS, math.floor(fresh)))


def per_client(moments: Moments, clients: int, weighting: str) -> float:
    """Return the divisor of the weights, so that those of all clients have the mean 1."""
    everyone = max(1, clients)
    return (moments.rows if weighting == BY_ROWS else max(1, moments.clients)) / everyone


__all__ = ["METHODS", "NEWTON", "Infer", "RegressionFit", "default_rounds"]
