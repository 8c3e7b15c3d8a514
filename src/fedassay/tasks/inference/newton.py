"""The pooled fit of a regression, through sums: what a solver with all rows in one place would find, and its errors.

Newton's method on f(theta) = Σ_i loss_i(theta), with g and H its gradient and Hessian. At the optimum, with n rows, p
coefficients, c clients that have rows, and loss gradients g_i of rows and G_k of clients, the covariance is

    variance   linear                                    other models
    row        n/(n-p) · H⁻¹ (Σ g_i g_iᵀ) H⁻¹  (HC1)     H⁻¹ (Σ g_i g_iᵀ) H⁻¹  (HC0)         normal law
    model      2f/(n-p) · H⁻¹                            H⁻¹                                 t with n-p; normal
    site       c/(c-1) · (n-1)/(n-p) · H⁻¹ (Σ G_k G_kᵀ) H⁻¹                                  t with c-1

as statsmodels computes them (``cov_type`` HC1, for which its Logit and GLM take HC0 too; nonrobust; cluster with the
clients as groups and ``use_t=True``). References: White, Econometrica 48, 1980; MacKinnon and White, Journal of
Econometrics 29, 1985; Liang and Zeger, Biometrika 73, 1986.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from fedassay.errors import DataError, UsageError
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import Released, Step, Sum
from fedassay.summaries.regression.losses import LogLoss, SquaredError, loss_of
from fedassay.summaries.regression.moments import (
    LARGEST_THETA,
    Moments,
    RegressionMoments,
    Standard,
    standard_from,
)
from fedassay.summaries.regression.newton_sums import (
    BY_CLIENT,
    BY_ROW,
    LARGEST_INPUT,
    NO_MEAT,
    DerivativeSums,
    NewtonSums,
)
from fedassay.tasks.inference.diagnosis import (
    check_moments,
    dependent,
    is_singular,
    scaled,
    separated,
    singular,
)
from fedassay.tasks.inference.estimate import CoefficientEstimate, Normal, StudentisedLaw, StudentT

ROW, SITE, MODEL = "row", "site", "model"

MOST_SUMS = 60
"""Largest number of sums that a fit asks for."""

SHARE = 1 / (MOST_SUMS + 2)
"""Part of the budget for each question: the moments and X'X are two more than the sums."""

_MEATS = {ROW: BY_ROW, MODEL: NO_MEAT, SITE: BY_CLIENT}

_NEAR = 1e-6
"""Predicted decrease of the total loss from which the next step is expected to be the last: errors are asked for."""

_END = 1e-18
"""A predicted decrease d moves no coefficient by more than sqrt(2d) of its standard error: 1.4e-9."""

_ENDLESS = 3
"""Number of steps of equal length in a row, near the end, that do not lead to an end (see `_goes_on`)."""

_SUFFICIENT = 1e-4
_SMALLEST_STEP = 2.0**-30


@dataclass(frozen=True, kw_only=True)
class RegressionFit:
    """A fit in the units of the data, and how it was found.

    `loss` is the mean loss of a row (half a squared error, a log loss). `clients` have rows. `sums` is how often all
    were asked, without the moments. `reason` is empty if the fit converged.
    """

    estimate: CoefficientEstimate
    rows: int
    clients: int
    sums: int
    loss: float
    reason: str = ""

    @property
    def converged(self) -> bool:
        """True if this is the optimum."""
        return not self.reason


def standardised(
    model: str,
    features: Sequence[str],
    *,
    intercept: bool = True,
    offset: bool = False,
) -> Generator[Step, Released[Moments], tuple[Standard, Moments]]:
    """Compute the common scale of all rows from one sum; `DataError` if they cannot be fitted (`check_moments`)."""
    linear = model == SquaredError.name
    of = RegressionMoments(features=len(features), less_offset=linear and offset)
    released = yield Sum(of=of, share=SHARE)
    check_moments(released.value, features, model=model, intercept=intercept)
    return standard_from(released.value, intercept=intercept, linear=linear, offset=offset), released.value


def fit_newton(
    model: str,
    standard: Standard,
    names: Sequence[str],
    *,
    variance: str = ROW,
    share: float = SHARE,
) -> Generator[Step, Released[DerivativeSums], RegressionFit]:
    """Find the coefficients with the smallest loss over all rows, with standard errors. Tasks `yield from` it.

    Guarantee: for a convex loss, the global optimum to about 1e-9 of each coefficient's standard error, or a `reason`;
    covariances as in the table above. Linear regression takes 2 sums, logistic regression typically 5 to 8. How rows
    are spread over clients has no influence on the result (but on the variance ``site``).

    Assumed: all sums are of the same rows, and `standard` has about their means and scales (`standardised`): sums are
    kept to 2^-80, and columns of very different scales lose digits.

    Edge cases: `DataError` for columns that depend on each other, and for logistic regression without a finite optimum
    (separation), which the sums show: a total loss below log 2 means that every row is on its side; and where a loss
    that cannot fall by more than 1e-6 goes on falling by a factor e with each of equally long steps, there is no end.

    Parameters
    ----------
    names : of all coefficients, the intercept included.
    variance : ``row``, ``site`` or ``model``.
    share : of the budget, for each of at most `MOST_SUMS` sums and one of X'X.
    """
    fit = _Fit(model=model, standard=standard, names=tuple(names), variance=variance, share=share)
    here, sums = (yield from fit.ask(np.zeros(fit.size), NO_MEAT)), 1
    yield from fit.check_start(here)
    near, endless, reason = fit.linear, 0, ""
    while True:
        there, asked = yield from fit.improved(here, fit.meat if near else NO_MEAT, MOST_SUMS - 1 - sums)
        sums += asked
        if there is None:
            reason = _why(here.decrease, sums)
            break
        endless = endless + 1 if _goes_on(here, there) else 0
        fit.check(there, endless)
        # Once Newton's method does not square the distance any more, it is rounding that is left.
        rounding = here.decrease / 16 < there.decrease and not endless
        here = there
        if near and (fit.linear or here.decrease <= _END or rounding):
            break
        near = here.decrease <= _NEAR
    if fit.meat != NO_MEAT and here.sums.meat is None:
        here, sums = (yield from fit.ask(here.theta, fit.meat)), sums + 1
    return fit.result(here, sums, reason)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Seen:
    """Sums at one theta, and where Newton's method would go from there."""

    theta: Floats
    sums: DerivativeSums
    step: Floats
    decrease: float

    @property
    def hessian(self) -> Floats:
        assert self.sums.hessian is not None
        return self.sums.hessian


@dataclass(frozen=True, kw_only=True)
class _Fit:
    model: str
    standard: Standard
    names: tuple[str, ...]
    variance: str
    share: float

    def __post_init__(self) -> None:
        if len(self.names) != self.size:
            raise UsageError(f"names: got {len(self.names)}, expected {self.size}, one for each coefficient.")

    @property
    def size(self) -> int:
        return loss_of(self.model).parameters(self.standard.parameters)

    @property
    def linear(self) -> bool:
        return self.model == SquaredError.name

    @property
    def meat(self) -> str:
        return _MEATS[self.variance]

    def ask(self, theta: Floats, meat: str) -> Generator[Step, Released[DerivativeSums], _Seen]:
        """Ask for one sum over all clients."""
        of = NewtonSums.of(self.standard, model=self.model, theta=tuple(theta.tolist()), meat=meat)
        released = yield Sum(of=of, share=self.share)
        found: DerivativeSums = released.value
        if found.rows <= self.size:
            raise DataError(
                f"rows: got {found.rows} for {self.size} coefficients, expected more rows than coefficients; "
                "leave features out."
            )
        assert found.hessian is not None
        step, decrease = _newton_step(found.hessian, found.gradient)
        return _Seen(theta=theta, sums=found, step=step, decrease=decrease)

    def refuse_cut(self, sums: DerivativeSums) -> None:
        if sums.cut:
            raise DataError(
                f"features and target: got numbers at {sums.cut:,} of {sums.clients:,} clients that are too large "
                f"to be added up, expected none beyond {LARGEST_INPUT:.0e} on the common scale; look for wrong units."
            )

    def check_start(self, here: _Seen) -> Generator[Step, Released[DerivativeSums], None]:
        """Refuse columns that depend on each other, by X'X: a Hessian can also vanish where a model is certain."""
        self.refuse_cut(here.sums)
        if not is_singular(here.hessian):
            return
        gram = here.hessian
        if not self.linear and loss_of(self.model).standardises:
            of = NewtonSums.of(
                self.standard, model=SquaredError.name, theta=(0.0,) * self.standard.parameters
            )
            released = yield Sum(of=of, share=self.share)
            assert released.value.hessian is not None
            gram = released.value.hessian
        if self.linear or gram is here.hessian or dependent(gram, self.names):
            raise singular(gram, self.names)

    def improved(
        self, here: _Seen, meat: str, left: int
    ) -> Generator[Step, Released[DerivativeSums], tuple[_Seen | None, int]]:
        """Find a point on the way with a sufficiently smaller loss; return it with the number of sums that it took."""
        size, slope = 1.0, -2 * here.decrease
        for asked in range(1, left + 1):
            theta = np.clip(here.theta + size * here.step, -LARGEST_THETA, LARGEST_THETA)
            there = yield from self.ask(theta, meat)
            # Sums of many numbers are right to some 1e-15 of them: less than that is not a rise.
            enough = here.sums.loss * (1 + 1e-14) + _SUFFICIENT * size * slope
            better = there.sums.rows != here.sums.rows or there.sums.loss <= enough or here.decrease <= _NEAR
            if better and not there.sums.cut:  # of a loss of one's own that overflows, the step was too long
                return there, asked
            size /= 2
            if size < _SMALLEST_STEP:
                return None, asked
        return None, max(0, left)

    def check(self, here: _Seen, endless: int) -> None:
        """Raise for a separation, which only logistic regression has."""
        if self.model != LogLoss.name:
            return
        # With an offset rows can be on their side although no coefficient puts them there.
        if here.sums.loss < math.log(2) and not self.standard.offset:
            raise separated(here.theta, self.names, perfectly=True)
        if here.decrease <= _NEAR and endless >= _ENDLESS:
            raise separated(here.step, self.names, perfectly=False)

    def result(self, here: _Seen, sums: int, reason: str) -> RegressionFit:
        self.refuse_cut(here.sums)
        covariance, law = self.uncertainty(here.sums)
        # The step from the last sums is free, and takes the rounding of the one before away.
        value = here.theta if reason else here.theta + here.step
        estimate = CoefficientEstimate(names=self.names, value=value, covariance=covariance, law=law)
        if loss_of(self.model).standardises:
            estimate = estimate.translated(self.standard)
        unit = self.standard.target_scale**2 if self.linear else 1.0
        return RegressionFit(
            estimate=estimate,
            rows=here.sums.rows,
            clients=here.sums.clients,
            sums=sums,
            loss=unit * here.sums.loss / here.sums.rows,
            reason=reason,
        )

    def uncertainty(self, sums: DerivativeSums) -> tuple[Floats, StudentisedLaw]:
        n, p, c = sums.rows, self.size, sums.clients
        assert sums.hessian is not None
        if is_singular(sums.hessian):
            raise singular(sums.hessian, self.names)
        inverse = _inverse(sums.hessian)
        if self.variance == MODEL:
            if self.linear:
                return 2 * sums.loss / (n - p) * inverse, StudentT(dof=n - p)
            return inverse, Normal()
        assert sums.meat is not None
        sandwich = inverse @ sums.meat @ inverse
        if self.variance == SITE:
            if c < 2:
                raise DataError(
                    f'variance: got site with rows at {c} client, expected at least 2 to compare; use `variance="row"`.'
                )
            return c / (c - 1) * (n - 1) / (n - p) * sandwich, StudentT(dof=c - 1)
        return (n / (n - p) if self.linear else 1.0) * sandwich, Normal()


def _goes_on(here: _Seen, there: _Seen) -> bool:
    """Return whether a step was followed by another as long that wins little less, as on the way to infinity.

    The loss of rows that are on their side falls like exp(-t): Newton's steps there have length 1 in t, and each wins
    1/e of what the one before did. Towards an optimum, steps shrink with the root of what they win, and faster.
    """
    part = there.decrease / max(here.decrease, 1e-300)
    length = float(np.linalg.norm(there.step)) / max(float(np.linalg.norm(here.step)), 1e-300)
    return 0.2 <= part <= 0.6 and 0.8 <= length <= 1.25


def _newton_step(hessian: Floats, gradient: Floats) -> tuple[Floats, float]:
    """Return -H⁻¹g and how far the loss falls if it is quadratic, gᵀH⁻¹g/2.

    By eigenvalues of H, scaled: where curvature is negative (losses of one's own, far from an optimum) or nothing, its
    absolute value, or a little, takes its place, so that the step always leads down.
    """
    matrix, factors = scaled(hessian)
    values, vectors = np.linalg.eigh(matrix)
    curvature = np.maximum(np.abs(values), 1e-15 * max(1.0, np.abs(values).max()))
    along = vectors.T @ (factors * gradient)
    return -factors * (vectors @ (along / curvature)), float(along @ (along / curvature)) / 2


def _inverse(hessian: Floats) -> Floats:
    matrix, factors = scaled(hessian)
    return np.asarray(np.linalg.inv(matrix) * factors[:, None] * factors)


def _why(decrease: float, sums: int) -> str:
    if sums >= MOST_SUMS - 1:
        return f"{sums} sums were not enough: the total loss may still fall by {decrease:.1e}"
    return f"no smaller loss was found along the last direction, though it may still fall by {decrease:.1e} in total"
