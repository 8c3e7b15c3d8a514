"""Reasons why a regression has no answer, each in one sentence that names the columns, from sums alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedassay.errors import DataError
from fedassay.protocol.arrays import Floats
from fedassay.protocol.parameters import in_words
from fedassay.summaries.regression.losses import LogLoss, SquaredError
from fedassay.summaries.regression.moments import INTERCEPT, LARGEST_VALUE, Moments

SINGULAR = 1e-11
"""Part of the largest variance, with columns scaled to variance 1, that a combination of dependent columns has at most:
they differ by 3e-6 of their deviation. Covariances would have less than five digits."""

DOUBTFUL, NO_DOUBT = 1 / 16, 1 / 400
"""Curvatures of a logistic loss along features of variance 1, of which 1/4 is the largest."""

_TAKING_PART = 1e-4
"""Part of the largest coefficient from which a column takes part in a dependence, with columns scaled:
rare indicators have small ones, and rounding far smaller ones."""

_CONCERNED = 0.1
"""Part of the largest coefficient from which a column is named for a separation."""


def check_moments(moments: Moments, features: Sequence[str], *, model: str, intercept: bool) -> None:
    """Raise `DataError` if these rows cannot be fitted, whatever is asked of them.

    Too few rows; numbers beyond what counts; a target other than 0 and 1, or only one of them, in logistic regression;
    a feature that is constant in a model with an intercept, or zero without an intercept.
    """
    p = len(features) + int(intercept)
    if moments.cut:
        clients = "1 client" if moments.cut == 1 else f"{moments.cut:,} clients"
        raise DataError(
            f"features and target: got numbers beyond ±{LARGEST_VALUE:.2g} at {clients}, "
            "expected smaller ones; rescale the columns."
        )
    if moments.rows <= p:
        raise DataError(
            f"rows: got {moments.rows} for {p} coefficients, expected more rows than coefficients; leave features out."
        )
    if model == LogLoss.name:
        _check_labels(moments)
    if model == SquaredError.name and moments.target_deviation == 0:
        raise DataError(
            f"target: got {moments.target_mean:g} in every row, expected different values: nothing can be learned."
        )
    shown = moments.deviations if intercept else np.hypot(moments.means, moments.deviations)
    still = [name for name, spread in zip(features, shown, strict=True) if spread == 0]
    if still:
        told = "constant, as the intercept is" if intercept else "0 in every row"
        one = len(still) == 1
        raise DataError(
            f"features: got {_and(still)}, which {'is' if one else 'are'} {told}: "
            f"leave {'it' if one else 'them'} out."
        )


def _check_labels(moments: Moments) -> None:
    if moments.not_binary:
        raise DataError(
            f"target: got numbers other than 0 and 1 in {moments.not_binary:,} of {moments.rows:,} rows, "
            "expected 0 or 1 in every row."
        )
    if moments.target_deviation == 0:
        raise DataError(
            f"target: got {moments.target_mean:g} in every row, expected both 0 and 1: nothing can be learned of one."
        )


def scaled(hessian: Floats) -> tuple[Floats, Floats]:
    """Return the matrix with every column scaled to curvature 1, and the factors; 0 where there is no curvature."""
    scale = np.sqrt(np.abs(np.diagonal(hessian)))
    factors = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    return hessian * factors[:, None] * factors, factors


def may_be_certain(hessian: Floats) -> bool:
    """Return whether a logistic model may be without a doubt in some direction, for features of variance 1.

    Where both outcomes are as probable, curvature is 1/4 of the variance, which is 1, or less along columns that are
    alike. Where it is a quarter of that, most rows in doubt are not, or columns are much alike: worth a question.
    """
    return bool(np.linalg.eigvalsh(hessian).min() < DOUBTFUL)


def said_of_certainty(hessian: Floats, names: Sequence[str]) -> str | None:
    """Return a note where rows are gone and a separation can only be guessed: next to no row is in doubt."""
    values, vectors = np.linalg.eigh(hessian)
    if values[0] >= NO_DOUBT:
        return None
    found = [names[place] for place in _above(vectors[:, 0], _CONCERNED)]
    return (
        f"Next to no row is in doubt along {_and(found)}: outcomes may be separated, and coefficients then grow as "
        "long as rounds go on; a fit to all rows (newton) would tell."
    )


def is_singular(hessian: Floats) -> bool:
    """Return whether curvature vanishes in some direction, with every column scaled to curvature 1."""
    values = np.abs(np.linalg.eigvalsh(scaled(hessian)[0]))
    return bool(values.min() <= SINGULAR * values.max())


def dependent(gram: Floats, names: Sequence[str]) -> list[list[str]]:
    """Return groups of columns that depend on each other linearly, from X'X; empty if none do.

    Each near-null eigenvector is a way in which columns add up to nothing. Eigenvectors of the same eigenvalue are
    mixtures of such ways: elimination takes them apart.

    Examples
    --------
    >>> dependent(np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0], [2.0, 0.0, 4.0]]), ["a", "b", "c"])
    [['a', 'c']]
    """
    matrix, factors = scaled(gram)
    left = np.flatnonzero(factors > 0)
    values, vectors = np.linalg.eigh(matrix[np.ix_(left, left)])
    null = vectors[:, values <= SINGULAR * values.max(initial=0.0)].T
    groups = [[names[int(place)]] for place in np.flatnonzero(factors == 0)]
    for vector in _eliminated(null):
        groups.append([names[int(left[place])] for place in _above(vector, _TAKING_PART)])
    return groups


def singular(gram: Floats, names: Sequence[str]) -> DataError:
    """Return an error that names the columns that depend on each other, from X'X."""
    told = [_dependence(group) for group in dependent(gram, names)]
    return DataError(f"features: got {'; and '.join(told) or 'columns that nearly depend on each other'}.")


def _dependence(group: Sequence[str]) -> str:
    others = [name for name in group if name != INTERCEPT]
    if len(others) <= 1:
        return f"{_and(others or group)}, which is constant: leave it out"
    if INTERCEPT in group:
        return f"{_and(others)}, which add up to a constant (linearly, with the intercept): leave one out"
    if len(others) == 2:
        return f"{_and(others)}, which are multiples of each other (or depend on each other linearly): leave one out"
    return f"{_and(others)}, which depend on each other linearly: leave one out"


class Separation(DataError):
    """Logistic regression without a finite optimum."""


def separated(direction: Floats, names: Sequence[str], *, perfectly: bool) -> Separation:
    """Return the error that logistic regression has no finite optimum along this direction, on the common scale."""
    # The intercept only shifts where the line is drawn.
    slopes = np.array([0.0 if name == INTERCEPT else one for name, one in zip(names, direction, strict=True)])
    found = [names[place] for place in _above(slopes if slopes.any() else direction, _CONCERNED)]
    tell, which = ("tells", "it") if len(found) == 1 else ("tell", "one of them")
    how, kind = ("every row", "perfect") if perfectly else ("some rows", "quasi-complete")
    return Separation(
        f"features: got {_and(found)}, which {tell} the target of {how} without a doubt ({kind} separation): "
        f"coefficients grow without end; leave {which} out, or join rare values."
    )


def _above(direction: Floats, part: float) -> list[int]:
    return [int(place) for place in np.flatnonzero(np.abs(direction) >= part * np.abs(direction).max())]


def _eliminated(rows: Floats) -> Floats:
    """Return rows that span the same space, each with a 1 where all others have a 0."""
    left = rows.copy()
    for done in range(len(left)):
        place = int(np.abs(left[done]).argmax())
        left[done] /= left[done, place]
        others = np.arange(len(left)) != done
        left[others] -= np.outer(left[others, place], left[done])
    return left


def _and(names: Sequence[str]) -> str:
    return in_words(map(repr, names), last="and")
