"""The task: coefficients of a regression over a federation, with intervals, from a stream of rounds or all at once."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fedassay.coverage.law import checked_level
from fedassay.errors import UsageError
from fedassay.protocol import Setting, Step
from fedassay.summaries.regression.local_work import CORRECTED, LOCAL
from fedassay.summaries.regression.losses import LogLoss, SquaredError, loss_of
from fedassay.summaries.regression.moments import Moments
from fedassay.summaries.regression.rounds import BY_ROWS, MOST_LOCAL_STEPS, WEIGHTS
from fedassay.summaries.regression.standard import INTERCEPT, MOST_FEATURES, Standard
from fedassay.summaries.scored import whole
from fedassay.tasks.inference import described
from fedassay.tasks.inference.diagnosis import Separation, may_be_certain
from fedassay.tasks.inference.newton import (
    ERRORS,
    MODEL,
    MOST_SUMS,
    ROBUST,
    RegressionFit,
    fit_newton,
    standardised,
)
from fedassay.tasks.inference.online import (
    INTERVALS,
    ROUND,
    SCALING,
    Course,
    Seen,
    infer_rounds,
    run_rounds,
)
from fedassay.tasks.inference.path import StepSizes
from fedassay.tasks.inference.private_rounds import PrivateCourse, infer_private, run_private_rounds
from fedassay.tasks.inference.private_rounds import default_rounds as private_rounds

NEWTON = "newton"
METHODS = (*INTERVALS, NEWTON)

FEWEST_ROUNDS, MOST_ROUNDS = 8, 100_000
ROUNDS = 200
"""Of a stream, where rows are enough for so many: the one-step estimate needs no more."""

_CHECKING = 1 / (4 * MOST_SUMS)
"""Of the budget, for each sum that looks for a separation: rounds take half of it."""

DECAY = 0.505
"""As published; slower decay means larger steps, and the one-step estimate does not mind."""


@dataclass(frozen=True, kw_only=True)
class Infer:
    """Coefficients of a regression, each with a standard error, an interval and a p-value.

    Parameters
    ----------
    model : ``linear`` or ``logistic``, or in this process a loss of one's own (`losses.lent`).
    features : names of the features, in the order of the columns.
    target : the name of the target, for states: they are gone on from with the same one.
    method : how intervals are made: ``round-plug-in``, ``separated-plug-in`` (as published),
        ``separated-plug-in-corrected`` and ``random-scaling`` from rounds of federated averaging; ``newton`` is the
        pooled fit with sandwich errors, from a handful of sums over all rows.
    rounds, participation : of federated averaging: how many, and the part of the clients that each draws.
    local_steps, local : the most steps of a client in a round, and what is done about what they bend (`local_work`).
    step, decay : β and a of the step sizes β t^{-a}; β is chosen from the model and the features if it is not given.
    weights : ``rows``, as if rows were pooled, or ``clients``, each of which counts alike.
    errors : of ``newton``: ``robust``, ``model`` or ``clients`` (clusters).
    intercept, standardise : whether there is an intercept; whether features are brought to a common scale first, with
        means and scales from one sum. Results are in the units of the data either way.
    scales : public means and spreads to be used instead, such as ``"age=50:10"``, and ``"target=120:20"`` for a linear
        model. Under noise, where nothing is asked for that could be given, features are as they are without them.
    clip : under noise, the norm of a client's mean gradient that counts in full, on the common scale.
    offset : whether rows have an offset, a known part of x·theta.
    level : of intervals.
    contrasts : weighted sums of coefficients to be tested, such as ``"age - 2*bmi"`` or ``"age = 0.5"``.
    seed : of the order in which clients go through their rows, public; None for the order in which they are stored.
    state : what an earlier run returned as ``results["state"]``, to go on from there with new rows.

    Guarantee: ``newton``: estimate and errors are those of the pooled rows, to 1e-8. The others: coverage in the limit
    of many rounds; docs/explanation/inference.md says what has been measured, and where it fails.
    """

    model: str = SquaredError.name
    features: tuple[str, ...] = ()
    target: str = ""
    method: str = ROUND
    rounds: int | None = None
    participation: float = 1.0
    local_steps: int = 1
    local: str = CORRECTED
    step: float | None = None
    decay: float = DECAY
    weights: str = BY_ROWS
    errors: str = ROBUST
    intercept: bool = True
    standardise: bool = True
    scales: tuple[str, ...] = ()
    clip: float | None = None
    offset: bool = False
    level: float = 0.95
    contrasts: tuple[str, ...] = ()
    seed: int | None = 0
    state: Mapping[str, Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        loss_of(self.model)
        for what, got, known in (
            ("method", self.method, METHODS),
            ("local", self.local, LOCAL),
            ("weights", self.weights, WEIGHTS),
            ("errors", self.errors, ERRORS),
        ):
            if got not in known:
                raise UsageError(f"{what}: got {got!r}, expected one of {', '.join(known)}.")
        if self.rounds is not None:
            whole(self.rounds, what="rounds", least=FEWEST_ROUNDS, most=MOST_ROUNDS)
        whole(self.local_steps, what="local steps", least=1, most=MOST_LOCAL_STEPS)
        if not 0 < self.participation <= 1:
            raise UsageError(f"participation: got {self.participation:.3g}, expected a number in (0, 1].")
        StepSizes(first=1.0 if self.step is None else self.step, decay=self.decay)
        checked_level(self.level)
        if self.clip is not None and not 0 < self.clip <= 2.0**20:
            raise UsageError(f"clip: got {self.clip:.3g}, expected a number above 0.")
        self._check_names()
        object.__setattr__(self, "scales", tuple(self.scales))
        _ = self.given_scale
        self._check_together()

    def _check_names(self) -> None:
        if isinstance(self.features, str) or not all(isinstance(one, str) and one for one in self.features):
            raise UsageError(f"features: got {self.features!r}, expected a list of names.")
        if self.seed is not None:
            whole(self.seed, what="seed", least=0, most=(1 << 63) - 1)
        features = tuple(self.features)
        if len(features) > MOST_FEATURES or (not features and not self.intercept):
            raise UsageError(
                f"features: got {len(features)}, expected 1 to {MOST_FEATURES} (or none beside an intercept)."
            )
        if self.scales and "target" in features:
            raise UsageError("scales: got a feature named 'target', which stands for the target; rename it.")
        if INTERCEPT in features:
            raise UsageError(f"features: got one named {INTERCEPT!r}, which is taken; rename the column.")
        if len(set(features)) != len(features):
            raise UsageError("features: got one of them twice, expected different columns.")
        object.__setattr__(self, "features", features)
        object.__setattr__(
            self, "contrasts", tuple(described.normal(text, self.names) for text in self.contrasts)
        )

    def _check_together(self) -> None:
        if self.state is not None and self.step is not None:
            raise UsageError("step: got one beside a state, whose steps go on; leave out --step.")
        streams = ("rounds", "participation", "local_steps", "local", "step", "decay", "weights", "state")
        defaults = {name: Infer.__dataclass_fields__[name].default for name in (*streams, "errors")}
        given = [name for name, default in defaults.items() if getattr(self, name) != default]
        for name in given:
            if (self.method == NEWTON) == (name in streams):
                option = name.replace("_", "-")
                raise UsageError(
                    f"{option}: the method {self.method} has no use for it; leave out --{option}."
                )

    @property
    def names(self) -> tuple[str, ...]:
        """Of the coefficients."""
        return (INTERCEPT, *self.features) if self.intercept else self.features

    # --- steps ----------------------------------------------------------------------------------------------

    def steps(self, setting: Setting) -> Generator[Step, Any, dict[str, Any]]:
        """One sum for the common scale, then rounds, or a handful of sums."""
        if setting.trust.private:
            return (yield from self._under_noise(setting))
        if self.clip is not None:
            raise UsageError("clip: nothing is clipped without noise; leave out --clip.")
        if setting.protection.rows_per_client is not None:
            raise UsageError(
                "rows per client: got a bound, which is for trust models that add noise; leave out --rows-per-client."
            )
        if self.method != NEWTON and setting.clients:
            self._check_cohort(setting)
        if self.state is not None:
            return (yield from self._resumed(setting, self.state))
        standard, moments = yield from standardised(
            self.model, self.features, intercept=self.intercept, offset=self.offset
        )
        if not self.standardise or self.scales:
            standard = self.given_scale
        if self.method == NEWTON:
            fit = yield from fit_newton(self.model, standard, self.names, errors=self.errors)
            return described.newton(self, fit, moments)
        course = self.course(setting, moments)
        self._check_rows(course, setting, moments)
        per = per_client(moments, setting.clients, self.weights)
        return (yield from self._streamed(setting, course, standard, per, None, moments))

    def _check_cohort(self, setting: Setting) -> None:
        """Refuse, before anything is asked, rounds with fewer clients than the trust model takes."""
        drawn = max(1, round(self.participation * setting.clients))
        least = max(1, getattr(setting.trust, "minimum_cohort", 1))
        if drawn < least:
            raise UsageError(
                f"participation: got {self.participation:g} of {setting.clients} clients, which is {drawn} in a round, "
                f"expected at least {least} ({setting.trust.name})."
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
            raise UsageError(
                f"rounds: got {course.rounds} for clients of {each:.3g} rows on average, who would use each row "
                f"{visits / each:.0f} times, expected {instead} the method newton."
            )

    def _check_separation(self, seen: Seen, standard: Standard) -> Generator[Step, Any, str | None]:
        """Whether there is a finite optimum, by a handful of sums over all rows.

        Rounds end although coefficients would grow without end. Rows that come after others may be separated while all
        of them are not: they are asked only if rounds leave a doubt, and then it is only said.
        """
        resumed = self.state is not None
        if self.model != LogLoss.name or (resumed and not may_be_certain(seen.path.hessian)):
            return None
        try:
            yield from fit_newton(self.model, standard, self.names, errors=MODEL, share=_CHECKING)
        except Separation as problem:
            if not resumed:
                raise
            return f"Of the rows of this run alone: {problem} Rows of earlier runs may say otherwise."
        return None

    def _under_noise(self, setting: Setting) -> Generator[Step, Any, dict[str, Any]]:
        """Clipped rounds: nothing is asked for first, as means and scales would cost a part of the budget."""
        if self.method not in (ROUND, SCALING):
            raise UsageError(
                f"method: got {self.method} under {setting.trust.name}, expected {ROUND} or {SCALING}: exact sums and "
                "gradients of single rows carry no noise."
            )
        fields = Infer.__dataclass_fields__
        for name in ("state", "local_steps", "step", "weights", "local"):
            if getattr(self, name) != fields[name].default:
                option = name.replace("_", "-")
                raise UsageError(f"{option}: rounds under noise have no use for it; leave out --{option}.")
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
            raise UsageError(
                f"scales: got none under {setting.trust.name}, where means and spreads are not asked for; expected "
                "public ones of each feature and of the target of a linear model (--scale NAME=MEAN:SPREAD; NAME=0:1 "
                "leaves one as it is)."
            )
        standard = self.given_scale
        seen = yield from run_private_rounds(course, standard, len(self.names), setting)
        estimate, note = infer_private(seen, course, self.names)
        return described.private(self, estimate.translated(standard), seen, course, setting, note)

    @property
    def given_scale(self) -> Standard:
        """The common scale that was given; features as they are where none was."""
        return described.scale_of(
            self.scales,
            self.features,
            intercept=self.intercept,
            linear=self.model == SquaredError.name,
            offset=self.offset,
        )

    def _streamed(
        self,
        setting: Setting,
        course: Course,
        standard: Standard,
        per: float,
        begin: Seen | None,
        moments: Moments | None,
    ) -> Generator[Step, Any, dict[str, Any]]:
        clients = max(1, setting.clients)
        seen = yield from run_rounds(course, standard, clients=clients, per=per, begin=begin)
        doubt = yield from self._check_separation(seen, standard)
        estimate = yield from infer_rounds(course, seen, self.names, clients=clients)
        state = {
            "model": self.model,
            "names": list(self.names),
            "target": self.target,
            "method": self.method,
            "weights": self.weights,
            "offset": self.offset,
            "decay": self.decay,
            "standard": asdict(standard),
            "step": course.sizes.first,
            **seen.to_json(),
        }
        return described.streamed(
            self, estimate.translated(standard), seen, course, standard, moments, state, doubt
        )

    def _resumed(self, setting: Setting, state: Mapping[str, Any]) -> Generator[Step, Any, dict[str, Any]]:
        """Go on: with the scale, the weights and the steps of the rounds before."""
        asked = {
            "model": self.model,
            "names": list(self.names),
            "target": self.target,
            "method": self.method,
            "weights": self.weights,
            "offset": self.offset,
            "decay": self.decay,
        }
        for what, wanted in asked.items():
            if state.get(what) != wanted:
                raise UsageError(f"state: got one with {what} {state.get(what)!r}, expected {wanted!r}.")
        try:
            sizes = StepSizes(first=float(state["step"]), decay=self.decay)
            kept: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in state["standard"].items()
            }
            standard, begin = Standard(**kept), Seen.from_json(state)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(
                f"state: it cannot be read ({error}); expected what a run of infer returned as its state."
            ) from None
        # How many rows there are now, for the weights and the rounds; the scale stays that of the first run.
        _, moments = yield from standardised(
            self.model, self.features, intercept=self.intercept, offset=self.offset
        )
        course = replace(self.course(setting, moments), sizes=sizes)
        self._check_rows(course, setting, moments)
        per = per_client(moments, setting.clients, self.weights)
        return (yield from self._streamed(setting, course, standard, per, begin, moments))

    def course(self, setting: Setting, moments: Moments) -> Course:
        """How rounds are run, with everything decided that was left open."""
        rounds = self.rounds or default_rounds(moments.rows, max(1, setting.clients), self.participation)
        return self._course(StepSizes(first=self.step or self._first_step, decay=self.decay), rounds)

    @property
    def _first_step(self) -> float:
        """1/p for squared errors: rows of features on a common scale have a squared norm of about p."""
        curvature = {SquaredError.name: 1.0, LogLoss.name: 2.5}.get(self.model, 1.0)
        # Several local steps share the length of one: what they bend is then corrected well enough.
        return curvature / max(1, len(self.names)) / self.local_steps

    def _course(self, sizes: StepSizes, rounds: int) -> Course:
        return Course(
            model=self.model,
            rounds=rounds,
            participation=self.participation,
            local_steps=self.local_steps,
            local=self.local,
            sizes=sizes,
            weights=self.weights,
            intervals=self.method,
            seed=self.seed,
        )


def default_rounds(rows: int, clients: int, participation: float) -> int:
    """As many as have fresh rows at a client of half the mean size, up to 200; at least 20.

    Examples
    --------
    >>> default_rounds(10_000, 10, 1.0), default_rounds(1_000, 10, 1.0), default_rounds(1_000, 10, 0.5)
    (200, 50, 100)
    """
    fresh = rows / clients / 2 / participation
    return max(20, min(ROUNDS, math.floor(fresh)))


def per_client(moments: Moments, clients: int, weights: str) -> float:
    """What weights are divided by, so that those of all clients have the mean 1."""
    everyone = max(1, clients)
    return (moments.rows if weights == BY_ROWS else max(1, moments.clients)) / everyone


__all__ = ["METHODS", "NEWTON", "Infer", "RegressionFit", "default_rounds"]
