"""Regression that learns from batches as they arrive, round after round, with intervals at any time."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path as File
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.console import Console

from fedassay.api.stream import RowBatch, Stream, batch_of, matrix_of
from fedassay.artefacts.classifier import Conventions
from fedassay.documents.terminal import print_table
from fedassay.errors import DataError, UsageError
from fedassay.protocol.arrays import Floats
from fedassay.protocol.files import write_atomically
from fedassay.summaries.regression.losses import IndexLoss, LogLoss, SmoothLoss, SquaredError, lent, loss_of
from fedassay.summaries.regression.moments import Standard
from fedassay.tasks.inference import document as inference
from fedassay.tasks.inference import result_values
from fedassay.tasks.inference.diagnosis import is_singular, said_of_certainty, singular
from fedassay.tasks.inference.estimate import CoefficientEstimate, Contrast
from fedassay.tasks.inference.infer import Infer
from fedassay.tasks.inference.online import ROUND, SCALING, Course, infer_rounds
from fedassay.tasks.inference.parameters import DECAY, FEWEST_ROUNDS, Local, Weighting
from fedassay.version import VERSION

_Method = Literal["round-plug-in", "random-scaling"]
KIND = "fedassay streaming regression"

_WIDTH = 100


class FederatedRegression(Conventions):
    """Linear or logistic regression by rescaled federated averaging, one round per call of `partial_fit`.

    Each call brings the rows of clients for this round; a client that is not in it does not take part. Only O(p²)
    numbers are kept. All rows are in this process: for clients that keep their rows, see `fedassay.infer`.

    **What is estimated**: the minimiser of Σ p_i R_i, R_i being the expected loss of a row of client i. With
    ``weighting="rows"`` every row counts alike: p_i is proportional to the rows that client i brings to a round on
    average, absences counting as none. With ``weighting="clients"`` every visit of a client counts alike: p_i is
    proportional to how often it takes part. To that end a round is the sum of its clients' results, each weighted by
    its rows (or by 1), divided by the mean of such sums of weights over all rounds so far; so a round with many clients
    counts more than one with few.

    Guarantee: for the linear model with one local step (or ``fixed``) and rounds of equal size, `coef_` is the
    least-squares fit to all rows so far, to rounding. Intervals hold in the limit of many rounds, if rounds are
    independent draws: the same clients' new rows, or clients that are drawn anew. Saved and loaded, it goes on with the
    same numbers to the last bit.

    Parameters
    ----------
    model : ``linear``, ``logistic``, or a `SmoothLoss`.
    level : of intervals.
    method : ``round-plug-in`` or ``random-scaling``. (The separated plug-in would keep a matrix for each client.)
    local_steps, local : the most steps of a client in a round, and the correction of their bias (`local_work`).
    step, decay : β and a of the step sizes β t^{-a}. By default, β is 1 over the mean squared length of the first
        round's rows, 2.5 times as much for ``logistic``.
    weighting : ``rows`` or ``clients``.
    intercept : True to fit an intercept.
    scale : means and deviations of the features, to bring them to a common scale; those of the first round's rows if
        they are not given. Results are in the units of the data.

    Attributes
    ----------
    coef_, intercept_ : coefficients of the features, and the intercept (0 without one).
    names_, params_, bse_, pvalues_ : of all coefficients, the intercept first.
    withheld_ : reason why errors, p-values and intervals are missing; access to them then raises `DataError`.
    rounds_, n_features_in_ : number of rounds so far, and number of features.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> model = FederatedRegression()
    >>> for _ in range(50):
    ...     X = rng.normal(size=(40, 2))
    ...     y = 1 + X @ [2, -1] + rng.normal(size=40)
    ...     model = model.partial_fit(X, y, client=np.arange(40) % 4)
    >>> model.coef_.round(2), model.conf_int().round(2)[1]
    (array([ 2.03, -0.98]), array([1.99, 2.08]))
    """

    def __init__(
        self,
        model: str | SmoothLoss = SquaredError.name,
        *,
        level: float = 0.95,
        method: _Method = ROUND,
        local_steps: int = 1,
        local: Local = "corrected",
        step: float | None = None,
        decay: float = DECAY,
        weighting: Weighting = "rows",
        intercept: bool = True,
        scale: tuple[Sequence[float], Sequence[float]] | None = None,
    ) -> None:
        self.model = model
        self.level = level
        self.method = method
        self.local_steps = local_steps
        self.local = local
        self.step = step
        self.decay = decay
        self.weighting = weighting
        self.intercept = intercept
        self.scale = scale

    # --- learning -----------------------------------------------------------------------------------------------------

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, client: ArrayLike | None = None, offset: ArrayLike | None = None
    ) -> Self:
        """Fit a round with the rows of each client. Without `client` all rows belong to a single client.

        Nothing has changed if it raises. Without any rows there is no round.
        """
        self._check()
        rows = batch_of(X, y, client, offset)
        if not len(rows.y):
            return self
        problem = self._loss.problem(rows.y)
        if problem is not None:
            raise UsageError(f"y: got {problem}.")
        state: Stream | None = getattr(self, "_state", None)
        if state is None:
            means, deviations = self._first_scale(rows) if self.scale is None else self.scale
            standard = Standard(
                features=rows.x.shape[1],
                centres=tuple(means),
                scales=tuple(deviations),
                intercept=self.intercept,
                offset=True,
            )
            state = Stream.begin(self._loss, rows, standard, step=self.step, decay=self.decay)
        self._state = state.after(
            self._loss,
            rows,
            local_steps=self.local_steps,
            local=self.local,
            weights=self.weighting,
            restarts=self.method == ROUND and not self._loss.quadratic,
        )
        return self

    def _first_scale(self, rows: RowBatch) -> tuple[Sequence[float], Sequence[float]]:
        """Return means (0 without intercept) and deviations of round 1; 0 and 1 if unusable; none if not needed."""
        if not self._loss.standardises:
            return (), ()
        means = rows.x.mean(axis=0) if self.intercept else np.zeros(rows.x.shape[1])
        deviations = np.sqrt(np.square(rows.x - means).mean(axis=0))
        told = (deviations > 1e-9 * np.abs(means)) & np.isfinite(deviations) & (len(rows.y) > 1)
        return np.where(told, means, 0.0).tolist(), np.where(told, deviations, 1.0).tolist()

    # --- estimates ----------------------------------------------------------------------------------------------------

    @property
    def names_(self) -> tuple[str, ...]:
        """Names of all coefficients, the intercept first."""
        return self._fitted().names

    @property
    def rounds_(self) -> int:
        """Number of rounds so far."""
        return self._fitted().seen.path.rounds

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        return self._fitted().standard.features

    @property
    def params_(self) -> Floats:
        """All coefficients, the intercept first; raises while the features so far are linearly dependent."""
        state = self._fitted()
        path = state.seen.path
        if is_singular(path.hessian):
            raise singular(path.hessian, state.names)
        quadratic = self._loss.quadratic
        return state.standard.back(
            path.averaged if self.method == SCALING else path.one_step(quadratic=quadratic)
        )

    @property
    def coef_(self) -> Floats:
        """Coefficients of the features."""
        return self.params_[int(self.intercept) :]

    @property
    def intercept_(self) -> float:
        """Intercept; 0 if none is fitted."""
        return float(self.params_[0]) if self.intercept else 0.0

    @property
    def withheld_(self) -> str:
        """Reason why errors, p-values and intervals are missing: rounds have not arrived; empty if they have."""
        return self._estimate().withheld

    @property
    def bse_(self) -> Floats:
        """Standard errors of all coefficients."""
        return self._sure().standard_errors

    @property
    def pvalues_(self) -> Floats:
        """Two-sided p-values of the tests that each coefficient is 0."""
        return self._sure().p_values

    @property
    def covariance_(self) -> Floats:
        """Covariance of all coefficients."""
        return np.array(self._sure().covariance)

    def conf_int(self, level: float | None = None, *, simultaneous: bool = False) -> Floats:
        """Return an interval for each coefficient, (p, 2); with `simultaneous` all cover together."""
        estimate, wanted = self._sure(), self.level if level is None else level
        return estimate.simultaneous(wanted) if simultaneous else estimate.intervals(wanted)

    def contrast(self, weights: str | Mapping[str, float], value: float = 0.0) -> Contrast:
        """Test a weighted sum of coefficients, from ``"a - 2*b = 0.5"`` or ``{"a": 1, "b": -2}, 0.5``."""
        if isinstance(weights, str):
            weights, value = result_values.parsed(weights, self.names_)
        return self._sure().contrast(weights, value)

    def summary(self) -> str:
        """Return the coefficients as a table, in the usual form of statistics."""
        state, estimate = self._fitted(), self._estimate()
        with self._lending():
            task = self._task(features=state.features, method=self.method, intercept=self.intercept)
            logistic = self._loss.name == LogLoss.name
            doubt = said_of_certainty(state.seen.path.hessian, self.names_) if logistic else None
            results = result_values.streamed(
                task, estimate, state.seen, self._course(state), state.standard, None, {}, doubt
            )
        text = io.StringIO()
        console = Console(file=text, width=_WIDTH)
        fit = f"{self._loss.name.capitalize()} regression by {self.method}: {self.rounds_:,} rounds, "
        console.print(f"{fit}{state.seen.rows:,} rows.", highlight=False)
        print_table(inference.coefficients(results), console)
        if inference.has_odds(results):
            print_table(inference.odds_ratios(results), console)
        for note in results["notes"]:
            console.print(note, highlight=False)
        return "\n".join(line.rstrip() for line in text.getvalue().rstrip().splitlines()) + "\n"

    def predict(self, X: ArrayLike, offset: ArrayLike | None = None) -> NDArray[Any]:
        """Return the expected target; for ``logistic`` the likelier class, for a user-defined loss x·theta + offset."""
        u = self._index(X, offset)
        return (u >= 0).astype(np.int64) if self._loss.name == LogLoss.name else u

    def predict_proba(self, X: ArrayLike, offset: ArrayLike | None = None) -> Floats:
        """Return the probabilities of 0 and 1; only for ``logistic``."""
        if self._loss.name != LogLoss.name:
            raise UsageError(f"predict_proba: the model {self._loss.name} has no probabilities; use predict.")
        p = 1 / (1 + np.exp(-np.clip(self._index(X, offset), -700, 700)))
        return np.stack([1 - p, p], axis=1)

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the accuracy for ``logistic``, else R² of `predict`."""
        if self._loss.name == LogLoss.name:
            return super().score(X, y)
        target = np.asarray(y, dtype=np.float64)
        return float(1 - np.square(target - self.predict(X)).sum() / np.square(target - target.mean()).sum())

    # --- file ---------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state so far as JSON; the file is complete or it is not there."""
        state = self._fitted()
        own = {**self.get_params(deep=False), "model": self._loss.name}
        if self.scale is not None:
            own["scale"] = [[float(number) for number in numbers] for numbers in self.scale]
        document = {"kind": KIND, "fedassay": VERSION, "parameters": own, "state": state.to_json()}
        write_atomically(File(path), json.dumps(document, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, model: SmoothLoss | None = None) -> Self:
        """Load a file that `save` has written. A user-defined loss is not in the file: give it as `model`."""
        try:
            document = json.loads(File(path).read_text(encoding="utf-8"))
            own, kept = dict(document["parameters"]), document["state"]
            if document["kind"] != KIND or (model is not None and model.name != own["model"]):
                raise ValueError("of another kind or model")
            found = cls(**{**own, "model": own["model"] if model is None else model})
            found._state = Stream.from_json(kept)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{path}: it cannot be read ({error}); expected a file that FederatedRegression.save wrote."
            ) from None
        found._check()
        return found

    # --- inside -------------------------------------------------------------------------------------------------------

    @property
    def _loss(self) -> SmoothLoss:
        return loss_of(self.model) if isinstance(self.model, str) else self.model

    def _lending(self) -> AbstractContextManager[str]:
        return nullcontext(self.model) if isinstance(self.model, str) else lent(self.model)

    def _check(self) -> None:
        if not isinstance(self.model, str | SmoothLoss):
            raise UsageError(f"model: got {self.model!r}, expected linear, logistic or a SmoothLoss.")
        if self.method not in get_args(_Method):
            known = ", ".join(get_args(_Method))
            raise UsageError(f"method: got {self.method!r}, expected one of {known}.")
        if self.scale is not None and not self._loss.standardises:
            raise UsageError(f"scale: the loss {self._loss.name!r} cannot be translated back; leave it out.")
        with self._lending():
            self._task(decay=self.decay)

    def _task(self, **more: Any) -> Infer:
        """Return the task that fits such a model through messages."""
        names = ("level", "local", "local_steps", "weighting")
        return Infer(model=self._loss.name, **{name: getattr(self, name) for name in names}, **more)

    def _fitted(self) -> Stream:
        state: Stream | None = getattr(self, "_state", None)
        if state is None:
            raise UsageError("FederatedRegression: it has seen no rows yet; call partial_fit first.")
        return state

    def _course(self, state: Stream) -> Course:
        return Course(
            model=self._loss.name,
            rounds=state.seen.path.rounds,
            sizes=state.sizes,
            intervals=self.method,
            local=self.local,
        )

    def _sure(self) -> CoefficientEstimate:
        """Return the estimate if rounds have arrived; else raise a `DataError` with the reason."""
        found = self._estimate()
        if found.withheld:
            raise DataError(f"{found.withheld}.")
        return found

    def _estimate(self) -> CoefficientEstimate:
        """Return the estimate in the units of the data."""
        state = self._fitted()
        if self.rounds_ < FEWEST_ROUNDS:
            raise UsageError(
                f"rounds: got {self.rounds_}, expected at least {FEWEST_ROUNDS} before errors can be estimated; call "
                "partial_fit with more batches."
            )
        with self._lending():
            flow = infer_rounds(self._course(state), state.seen, state.names, clients=1)
            try:
                next(flow)
            except StopIteration as finished:
                found: CoefficientEstimate = finished.value
                return found.translated(state.standard)
        raise AssertionError("these methods ask nothing more")

    def _index(self, X: ArrayLike, offset: ArrayLike | None) -> Floats:
        if not isinstance(self._loss, IndexLoss):
            raise UsageError(f"predict: it is not known what the loss {self._loss.name!r} predicts.")
        x = matrix_of(X)
        if x.shape[1] != self.n_features_in_:
            raise UsageError(f"X: got {x.shape[1]} columns, expected {self.n_features_in_} as before.")
        added = 0.0 if offset is None else np.asarray(offset, dtype=np.float64)
        return np.asarray(x @ self.coef_ + self.intercept_ + added)

    def __sklearn_is_fitted__(self) -> bool:
        return getattr(self, "_state", None) is not None
