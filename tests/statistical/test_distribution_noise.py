"""The noise of a released distribution has the claimed covariance: measured through server-dp, and wrong ones rejected.

The errors F̂ - F at some points, over many releases of the same rows, are compared with the claim in two ways: the
squared Mahalanobis length, whose mean is the number of points, and the variances of some contrasts. Draws of a Gaussian
type: sums over the runs are chi-square. Laplace draws: means are compared in units of their own standard error. Each
test fails for a right covariance with a probability of about 10^-5; there are 18 here.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.stats import chi2, norm

from drawn_values import draw, leaves, server
from fedassay.data.tables import ArrayRows
from fedassay.estimation.count_noise import LeafCovariance
from fedassay.estimation.ranking import auc_influence, auc_privacy_variance
from fedassay.protocol.vocabulary import Neighbours, Sum
from fedassay.summaries.distribution.tree import ValueSummary
from fedassay.tasks.distribution.mechanisms import chosen, mean_variance
from fedassay.tasks.distribution.stored import Release
from stated import Verify

FALSE_ALARM = 1e-5
POINTS, RUNS = 1024, 150
PLACES = np.array([0, 1, 255, 256, 511, 700, 1022, 1023])

Case = tuple[str, float, Neighbours]
CASES: dict[str, Case] = {
    "tree": ("tree", 0.0, Neighbours.ADD_REMOVE),
    "path": ("path", 0.0, Neighbours.ADD_REMOVE),
    "path, Gaussian": ("path", 1e-6, Neighbours.ADD_REMOVE),
    "path, Gaussian, replace-one": ("path", 1e-6, Neighbours.REPLACE_ONE),
    "factorised": ("factorised", 1e-6, Neighbours.ADD_REMOVE),
    "factorised, replace-one": ("factorised", 1e-6, Neighbours.REPLACE_ONE),
}


@cache
def errors_of(name: str, runs: int) -> tuple[ValueSummary, LeafCovariance, np.ndarray, bool]:
    """What was asked, the claimed covariance, the errors F̂ - F of many releases, and whether noise is Gaussian."""
    mechanism, delta, neighbours = CASES[name]
    setting = server(0.5, delta, neighbours=neighbours)
    query = Sum(of=chosen(leaves(POINTS), setting, mechanism=mechanism))
    noise = setting.noise(query)
    columns = {"value": np.random.default_rng(0).random(3_000)}
    exact = np.cumsum(leaves(POINTS).measure(ArrayRows(columns=columns), {})[0])
    errors = []
    for run in range(runs):
        released = draw(query, setting, columns, run)
        errors.append(Release.of(released.value, released.noise).sums[0, 1:] - exact)
    return query.of, query.of.leaf_covariance(noise), np.array(errors), noise.law == "discrete-gaussian"


def prefix_covariance(fit: LeafCovariance) -> np.ndarray:
    return fit.covariance((np.arange(POINTS) <= PLACES[:, None]).astype(float))


CONTRASTS = np.array(
    [
        [1, 0, 0, 0, 0, 0, 0, 0],  # the first sum
        [0, 0, -1, 1, 0, 0, 0, 0],  # one leaf
        [0, 0, 0, 0, 1, 0, 0, -0.5],  # half of the rows, as a share
        [0, 0, 0, 0, 0, 1, 0, -0.7],
        [0, 0, 0, 0, 0, 0, 1, -1],  # all rows but those of the last leaf
    ]
)


def rejected(errors: np.ndarray, covariance: np.ndarray, *, gaussian: bool) -> bool:
    lengths = np.einsum("ri,ri->r", errors, np.linalg.solve(covariance, errors.T).T)
    claimed = np.einsum("ci,ij,cj->c", CONTRASTS, covariance, CONTRASTS)
    of_contrasts = ((errors @ CONTRASTS.T) ** 2 / claimed).T
    statistics = [(lengths, errors.shape[1]), *((squares, 1) for squares in of_contrasts)]
    tail = FALSE_ALARM / 2 / len(statistics)
    for squares, mean in statistics:
        if gaussian:
            low, high = chi2.ppf([tail, 1 - tail], len(squares) * mean)
            wrong = not low <= squares.sum() <= high
        else:
            z = (squares.mean() - mean) / (squares.std(ddof=1) / np.sqrt(len(squares)))
            wrong = abs(z) > norm.isf(tail)
        if wrong:
            return True
    return False


@pytest.mark.parametrize("name", CASES)
def test_errors_have_the_claimed_covariance(name: str) -> None:
    _, fit, errors, gaussian = errors_of(name, RUNS)
    some, claimed = errors[:, PLACES], prefix_covariance(fit)
    assert np.allclose(np.diag(claimed), fit.prefix_variances[PLACES + 1])
    assert np.allclose(claimed[:, -1], fit.prefix_total_covariances[PLACES + 1])
    assert not rejected(some, claimed, gaussian=gaussian)
    # Broken: a third less or more variance, no covariance between points, or none with the number of rows.
    assert rejected(some, claimed / 1.5, gaussian=gaussian)
    assert rejected(some, claimed * 1.5, gaussian=gaussian)
    assert rejected(some, np.diag(np.diag(claimed)), gaussian=gaussian)
    alone = claimed.copy()
    alone[-1, :-1] = alone[:-1, -1] = 0
    assert rejected(some, alone, gaussian=gaussian)


def mean_squares(name: str, runs: int) -> tuple[float, float, float]:
    """The claimed and the measured mean variance of a sum, and the standard error of the latter."""
    summary, fit, errors, _ = errors_of(name, runs)
    squares = (errors**2).mean(1)
    assert fit.prefix_variances[1:].mean() == pytest.approx(mean_of(summary, name))
    return mean_of(summary, name), float(squares.mean()), float(squares.std(ddof=1) / np.sqrt(runs))


def mean_of(summary: ValueSummary, name: str) -> float:
    _, delta, neighbours = CASES[name]
    setting = server(0.5, delta, neighbours=neighbours)
    return mean_variance(summary, setting.noise(Sum(of=summary)))


@pytest.mark.parametrize("name", CASES)
def test_the_mean_variance_is_as_claimed(name: str) -> None:
    claimed, measured, error = mean_squares(name, RUNS)
    assert abs(measured - claimed) < norm.isf(FALSE_ALARM / 2) * error
    assert abs(measured - 2 * claimed) > norm.isf(FALSE_ALARM / 2) * error


@pytest.mark.parametrize(
    ("better", "worse", "most"),
    [
        ("tree", "path", 0.17),
        ("factorised", "path, Gaussian", 0.5),
        ("factorised, replace-one", "path, Gaussian, replace-one", 0.5),
    ],
)
def test_what_the_mechanisms_are_worth(better: str, worse: str, most: float) -> None:
    """The claimed ratio is as stated, and the measured one is not above it by more than its error explains."""
    (claimed, measured, error), (other, other_measured, other_error) = (
        mean_squares(name, RUNS) for name in (better, worse)
    )
    assert claimed <= most * other
    relative = np.hypot(error / measured, other_error / other_measured)
    assert np.log(measured / other_measured) <= np.log(most) + norm.isf(FALSE_ALARM) * relative


@pytest.mark.full
def test_stated_mean_variances(verify: Verify) -> None:
    measured = {name: mean_squares(name, 2_000) for name in CASES}
    for name, (claimed, found, error) in measured.items():
        verify(
            f"mean prefix variance at 1,024 points, epsilon 0.5, {name}: as claimed",
            f"claimed {claimed:.0f}, measured {found:.0f} ± {error:.0f}",
        )
        assert abs(found - claimed) < norm.isf(FALSE_ALARM / 2) * error
    for better, worse, most in (("tree", "path", 0.17), ("factorised", "path, Gaussian", 0.5)):
        ratio = measured[better][1] / measured[worse][1]
        verify(f"mean prefix variance, {better} over {worse}: at most {most}", f"{ratio:.3f}")
        assert ratio <= most


# --- the area under a ROC curve -----------------------------------------------------------------------------


def areas(mechanism: str, delta: float, runs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The areas of many releases of the same 400 rows, the claimed variances, and those of independent leaves."""
    setting = server(1.0, delta)
    query = Sum(of=chosen(leaves(64, labelled=True), setting, mechanism=mechanism))
    rng = np.random.default_rng(1)
    label = (np.arange(400) % 2).astype(np.int8)
    columns = {"value": rng.normal(0.45 + 0.1 * label, 0.12), "label": label}
    values, claimed, independent = [], [], []
    for run in range(runs):
        released = draw(query, setting, columns, run)
        evidence = Release.of(released.value, released.noise).evidence
        value, by_positive, by_negative = auc_influence(evidence)
        values.append(value)
        claimed.append(auc_privacy_variance(evidence, value, by_positive, by_negative))
        independent.append(evidence.fit.leaf_variance * float((by_positive**2 + by_negative**2).sum()))
    return np.array(values), np.array(claimed), np.array(independent)


@pytest.mark.parametrize(("mechanism", "delta"), [("tree", 0.0), ("path", 0.0), ("factorised", 1e-6)])
def test_the_variance_of_an_area_is_as_claimed(mechanism: str, delta: float) -> None:
    values, claimed, independent = areas(mechanism, delta, runs=600)
    # An area is nearly normal: its fourth moment is at most 4 σ⁴, so that s² has a relative error of sqrt(3/n).
    slack = norm.isf(FALSE_ALARM / 2) * np.sqrt(3 / len(values))
    ratio = np.median(claimed) / np.var(values)
    assert abs(ratio - 1) < slack, ratio
    # Broken: half the variance, and leaves that know nothing of each other.
    assert abs(0.5 * ratio - 1) > slack
    assert abs(np.median(independent) / np.var(values) - 1) > slack
