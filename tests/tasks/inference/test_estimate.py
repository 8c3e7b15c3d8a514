"""Intervals, tests and contrasts are what they say, for each law."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from fedassay.errors import UsageError
from fedassay.summaries.regression.moments import Standard
from fedassay.tasks.inference.estimate import (
    CoefficientEstimate,
    Normal,
    RandomScaling,
    StudentisedLaw,
    StudentT,
)

LEVELS = (0.5, 0.9, 0.95, 0.99)


def estimate(
    correlation: float = 0.0, size: int = 3, law: StudentisedLaw | None = None
) -> CoefficientEstimate:
    errors = np.linspace(1, 2, size)
    matrix = np.full((size, size), correlation) + (1 - correlation) * np.eye(size)
    return CoefficientEstimate(
        names=tuple("abcdefghij"[:size]),
        value=np.arange(size, dtype=float),
        covariance=matrix * np.outer(errors, errors),
        law=law or Normal(),
    )


# --- laws -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [Normal(), StudentT(dof=7), RandomScaling()], ids=lambda law: law.name)
@pytest.mark.parametrize("level", [1e-6, 0.1, 0.5, 0.95, 0.999, 1 - 1e-9])
def test_p_values_invert_critical_values(law: StudentisedLaw, level: float) -> None:
    assert law.p_value(law.critical(level)) == pytest.approx(1 - level, rel=1e-9)
    assert law.p_value(-law.critical(level)) == pytest.approx(1 - level, rel=1e-9)


def test_normal_and_student_are_those_of_scipy() -> None:
    for level in LEVELS:
        assert Normal().critical(level) == pytest.approx(stats.norm.ppf((1 + level) / 2), rel=1e-12)
        assert StudentT(dof=4.5).critical(level) == pytest.approx(
            stats.t.ppf((1 + level) / 2, 4.5), rel=1e-10
        )


@pytest.mark.parametrize(("level", "critical"), [(0.8, 3.875), (0.9, 5.323), (0.95, 6.747), (0.98, 8.613)])
def test_random_scaling_has_the_published_values(level: float, critical: float) -> None:
    assert RandomScaling().critical(level) == pytest.approx(critical, abs=5e-4)


def test_random_scaling_is_safe_far_out_and_near_zero() -> None:
    law = RandomScaling()
    assert law.p_value(0.0) == 1.0
    assert law.p_value(1e-300) == 1.0
    assert 0 < law.p_value(1400.0) < 1e-300
    assert law.p_value(2000.0) == law.p_value(1e300) == law.p_value(math.inf) == 0.0
    falling = [law.p_value(c) for c in np.geomspace(1e-6, 1e3, 60)]
    assert all(later < earlier for earlier, later in itertools.pairwise(falling))


def test_random_scaling_in_its_original_form() -> None:
    """The integral over phi, which is safe for moderate c only."""
    for c in (0.3, 2.0, 6.747, 30.0):

        def at(phi: float, c: float = c) -> float:
            u = c / np.sin(phi)
            return math.sqrt(u / math.sinh(u)) if u < 600 else 0.0

        plain = 2 / np.pi * integrate.quad(at, 0, np.pi / 2, epsabs=0, epsrel=1e-10, limit=500)[0]
        assert RandomScaling().p_value(c) == pytest.approx(plain, rel=1e-8)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, math.nan])
@pytest.mark.parametrize("law", [Normal(), StudentT(dof=7), RandomScaling()], ids=lambda law: law.name)
def test_levels_are_probabilities(law: StudentisedLaw, level: float) -> None:
    with pytest.raises(UsageError, match="level: got"):
        law.critical(level)


@pytest.mark.parametrize("dof", [0.0, -1.0, math.inf, math.nan])
def test_degrees_of_freedom_are_positive(dof: float) -> None:
    with pytest.raises(UsageError, match="degrees of freedom: got"):
        StudentT(dof=dof)


# --- estimates ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [Normal(), StudentT(dof=7), RandomScaling()], ids=lambda law: law.name)
def test_intervals_and_tests_say_the_same(law: StudentisedLaw) -> None:
    """A coefficient's p-value is one minus the level at which its interval ends at 0."""
    given = estimate(law=law)
    assert given.standard_errors == pytest.approx([1.0, 1.5, 2.0])
    assert given.statistics == pytest.approx([0.0, 2 / 3, 1.0])
    for place in (1, 2):
        level = 1 - given.p_values[place]
        assert given.intervals(level)[place, 0] == pytest.approx(0.0, abs=1e-9)
    assert given.p_values[0] == 1.0


def test_a_coefficient_without_an_error() -> None:
    given = CoefficientEstimate(
        names=("a", "b"), value=[0.0, -2.0], covariance=np.zeros((2, 2)), law=Normal()
    )
    assert given.statistics.tolist() == [0.0, -math.inf]
    assert given.p_values.tolist() == [1.0, 0.0]
    assert given.simultaneous().tolist() == [[0.0, 0.0], [-2.0, -2.0]]


@pytest.mark.parametrize("size", [2, 5, 10])
@pytest.mark.parametrize("level", LEVELS)
def test_together_independent_coefficients_have_the_exact_value(size: int, level: float) -> None:
    exact = Normal().critical(level ** (1 / size))
    assert estimate(0.0, size).simultaneous_critical(level) == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize("dof", [3, 20])
def test_together_student_coefficients_share_their_scale(dof: int) -> None:
    """P(max |z_j| <= c s) for s² ~ chi²/dof: the studentised maximum modulus."""
    found = estimate(0.0, 4, StudentT(dof=dof)).simultaneous_critical(0.95)

    def at(s: float) -> float:
        return float((2 * stats.norm.cdf(found * s) - 1) ** 4 * stats.chi.pdf(s * dof**0.5, dof) * dof**0.5)

    assert integrate.quad(at, 0, 10)[0] == pytest.approx(0.95, abs=0.0015)


@pytest.mark.parametrize("level", LEVELS)
def test_together_correlated_coefficients_need_less(level: float) -> None:
    """Exactly, z_j = sqrt(r) w + sqrt(1-r) e_j: one integral over w."""
    r, size = 0.8, 6
    found = estimate(r, size).simultaneous_critical(level)

    def at(w: float) -> float:
        inside = [stats.norm.cdf((side * found - r**0.5 * w) / (1 - r) ** 0.5) for side in (1, -1)]
        return float((inside[0] - inside[1]) ** size * stats.norm.pdf(w))

    assert integrate.quad(at, -9, 9)[0] == pytest.approx(level, abs=0.0015)
    assert found < estimate(0.0, size).simultaneous_critical(level)


def test_together_is_between_one_and_bonferroni() -> None:
    for law in (Normal(), StudentT(dof=5)):
        for correlation in (0.0, 0.5, 1.0):
            for level in (0.01, *LEVELS, 1 - 1e-6):
                found = estimate(correlation, 4, law).simultaneous_critical(level)
                assert law.critical(level) <= found <= law.critical(1 - (1 - level) / 4)
    assert estimate(1.0, 4).simultaneous_critical(0.95) == pytest.approx(Normal().critical(0.95), abs=0.002)
    assert estimate(size=1).simultaneous_critical(0.95) == Normal().critical(0.95)


def test_random_scaling_together_is_bonferroni() -> None:
    law = RandomScaling()
    assert estimate(0.9, 4, law).simultaneous_critical(0.92) == pytest.approx(law.critical(0.98), rel=1e-12)


def test_a_quantile_is_the_same_every_time() -> None:
    assert estimate(0.3).simultaneous_critical(0.95) == estimate(0.3).simultaneous_critical(0.95)


def test_contrasts() -> None:
    given = estimate(0.5)
    found = given.contrast({"c": 2.0, "a": -1.0}, value=1.0)
    assert found.estimate == 4.0
    variance = 4 * 4 + 1 - 2 * 2 * 0.5 * 2 * 1
    assert found.standard_error == pytest.approx(variance**0.5)
    assert found.statistic == pytest.approx(3 / variance**0.5)
    assert found.p_value == pytest.approx(Normal().p_value(3 / variance**0.5))
    assert found.interval(0.9) == pytest.approx(
        (4 - 1.6448536 * variance**0.5, 4 + 1.6448536 * variance**0.5), rel=1e-7
    )
    one = given.contrast({"b": 1})
    assert one.interval() == pytest.approx(given.intervals()[1])
    assert one.p_value == pytest.approx(given.p_values[1])


def test_translated_back_contrasts_stay_the_same() -> None:
    """What is said of x·theta does not depend on the scale it is computed on."""
    standard = Standard(
        features=2, centres=(3.0, -1.0), scales=(2.0, 0.5), target_centre=7.0, target_scale=3.0
    )
    given = estimate(0.4, law=StudentT(dof=9))
    back = given.translated(standard)
    x = np.array([5.0, 2.0])
    here = given.contrast(dict(zip("abc", (1.0, *(x - [3.0, -1.0]) / [2.0, 0.5]), strict=True)))
    there = back.contrast(dict(zip("abc", (1.0, *x), strict=True)))
    assert there.estimate == pytest.approx(7 + 3 * here.estimate)
    assert there.standard_error == pytest.approx(3 * here.standard_error)
    assert back.law == given.law


def test_estimates_are_not_changed_from_outside() -> None:
    covariance = np.eye(1)
    given = CoefficientEstimate(names=("a",), value=np.zeros(1), covariance=covariance, law=Normal())
    covariance[0, 0] = 9.0
    assert given.standard_errors.tolist() == [1.0]
    with pytest.raises(ValueError, match="read-only"):
        given.value[0] = 1.0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"names": ("a", "a")}, "names: got"),
        ({"names": ()}, "names: got"),
        ({"value": [1.0]}, r"values of shape \(1,\)"),
        ({"covariance": [1.0, 2.0]}, r"covariance of shape \(2,\)"),
        ({"value": [1.0, math.nan]}, "not finite"),
        ({"covariance": [[1.0, 0.0], [0.0, -1.0]]}, "negative variance"),
    ],
)
def test_bad_estimates_are_refused(fields: dict[str, object], said: str) -> None:
    good = {"names": ("a", "b"), "value": [1.0, 2.0], "covariance": np.eye(2), "law": Normal()}
    CoefficientEstimate(**good)
    with pytest.raises(UsageError, match=said):
        CoefficientEstimate(**(good | fields))


@pytest.mark.parametrize("weights", [{}, {"d": 1.0}, {"a": math.nan}])
def test_bad_contrasts_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="contrast: got"):
        estimate().contrast(weights)
