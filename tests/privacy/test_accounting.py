"""From budgets to noise and back: never more than was allowed, and hardly less."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st

from fedassay.errors import BudgetExceeded, UnsupportedQuery, UsageError
from fedassay.privacy.accounting import (
    GAUSSIAN,
    LAPLACE,
    SKELLAM,
    UNARY,
    calibrate,
    calibrate_shared,
    draw,
    event,
    noise_of,
    spent,
    whole_sensitivity,
)
from fedassay.privacy.events import SkellamDpEvent
from fedassay.privacy.ledger.charges import Charge, MemoryLedger
from fedassay.privacy.noise_shares import skellam_scale
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.privacy.renyi import order_of, skellam_variance_of
from fedassay.protocol.vocabulary import (
    LARGEST_EPSILON,
    NO_NOISE,
    Budget,
    Noise,
    Protection,
    Sensitivity,
    Unit,
)
from skellam_law import log_probabilities

PLANNERS = [calibrate, calibrate_shared]
Planner = Callable[..., Noise]
EPSILONS = [0.01, 0.1, 0.5, 1.0, 3.0, 10.0]
DELTAS = [0.0, 1e-10, 1e-6, 1e-3]
SENSITIVITIES = [
    Sensitivity(l1=1.0, l2=1.0),
    Sensitivity(l1=6.0, l2=math.sqrt(6)),
    Sensitivity(l1=4000.0, l2=70.0),
]


def log_pmf(noise: Noise, reach: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if noise.law == SKELLAM:
        return log_probabilities(noise.scale**2, reach)
    x = np.arange(-reach, reach + 1)
    weights = -np.abs(x) / noise.scale if noise.law == LAPLACE else -(x**2) / (2 * noise.scale**2)
    normalised: np.ndarray[tuple[int], np.dtype[np.float64]] = weights - np.logaddexp.reduce(weights)
    return normalised


def exact_delta(noise: Noise, shift: int, epsilon: float) -> float:
    """The smallest delta of one coordinate moved by `shift`: the hockey-stick divergence, summed up."""
    p = log_pmf(noise, int(60 * noise.scale) + 60 + shift)
    there, here = p[: p.size - shift], p[shift:]
    return float(np.maximum(np.exp(here) - np.exp(epsilon + there), 0).sum())


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("sensitivity", SENSITIVITIES)
@pytest.mark.parametrize("share", [1.0, 0.3])
@pytest.mark.parametrize("planner", PLANNERS)
def test_a_release_never_costs_more_than_its_budget(
    epsilon: float, delta: float, sensitivity: Sensitivity, share: float, planner: Planner
) -> None:
    noise = planner(Budget(epsilon=epsilon, delta=delta), sensitivity, share)
    total = spent([event(noise, sensitivity)], delta)
    assert total <= epsilon * (share if delta == 0 else 1)
    if share == 1:
        assert total > (0.98 if noise.law == LAPLACE and delta else 0.999) * epsilon


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("planner", PLANNERS)
def test_one_coordinate_is_private_by_the_exact_probabilities(
    epsilon: float, delta: float, planner: Planner
) -> None:
    for shift in (1, 3):
        noise = planner(Budget(epsilon=epsilon, delta=delta), Sensitivity(l1=float(shift), l2=float(shift)))
        assert exact_delta(noise, shift, epsilon) <= delta + 1e-14


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-8, 1e-5, 1e-3])
@pytest.mark.parametrize("cells", [2, 30])
def test_skellam_noise_is_private_by_its_exact_losses(epsilon: float, delta: float, cells: int) -> None:
    """Moved by one in several cells: the losses of all cells together, rounded up, keep to (epsilon, delta).

    They need not much less noise either: with a tenth of the variance they do not.
    """
    sensitivity = Sensitivity(l1=float(cells), l2=math.sqrt(cells))
    noise = only_skellam(Budget(epsilon=epsilon, delta=delta), sensitivity)
    assert delta_of_many(noise, cells, epsilon) <= delta
    less = noise_of(SKELLAM, Fraction(noise.scale / math.sqrt(10)))
    assert delta_of_many(less, cells, epsilon) > delta


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.2, 0.3, 0.5)])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_shares_of_skellam_noise_add_up_by_their_exact_losses(
    shares: tuple[float, ...], epsilon: float
) -> None:
    """Several queries of four cells each, for shares of one budget: all losses together keep to it."""
    budget, sensitivity, delta = Budget(epsilon=epsilon, delta=1e-6), Sensitivity(l1=4.0, l2=2.0), 1e-6
    noises = [only_skellam(budget, sensitivity, share) for share in shares]
    law, step = np.ones(1), epsilon / 20_000
    lowest = 0
    for noise in noises:
        law, lowest = composed((law, lowest), losses(noise, step), 4)
    assert delta_of(law, lowest, step, epsilon) <= delta
    law, lowest = composed(
        (np.ones(1), 0), losses(noises[0], step), 4 * 12
    )  # far more than a budget pays for
    assert delta_of(law, lowest, step, epsilon) > delta


def only_skellam(budget: Budget, sensitivity: Sensitivity, share: float = 1.0) -> Noise:
    """The Skellam noise that this budget needs, also where Laplace noise has less variance and is chosen."""
    l1, l2 = sensitivity.l1, sensitivity.l2
    order, divergence = order_of(budget.epsilon, budget.delta)
    variance = skellam_variance_of(
        Fraction(share) * Fraction(divergence), order=order, l1=int(l1), l2_squared=round(l2 * l2)
    )
    noise = noise_of(SKELLAM, skellam_scale(Fraction(math.sqrt(variance))))
    chosen = calibrate_shared(budget, sensitivity, share)
    assert chosen.law == LAPLACE or chosen.scale == pytest.approx(noise.scale, rel=1e-6)
    return noise


Losses = tuple[np.ndarray[tuple[int], np.dtype[np.float64]], int]
"""Probabilities of losses (first + i)·step, each loss rounded up."""


def losses(noise: Noise, step: float) -> Losses:
    """The privacy loss of one cell moved by one, with its exact probabilities; negligible tails are infinite."""
    p = log_pmf(noise, int(14 * noise.scale) + 40)
    loss = np.ceil((p[1:] - p[:-1]) / step).astype(np.int64)  # decreasing in x: largest first
    weights = np.exp(p[1:])
    first = int(loss.min())
    return np.bincount(loss - first, weights=weights), first


def composed(one: Losses, other: Losses, times: int) -> Losses:
    """The losses of `one` and of `times` times the other added up, by one Fourier transform (errs by 1e-15)."""
    size = one[0].size + times * (other[0].size - 1)
    padded = 2 ** math.ceil(math.log2(size))
    transform = np.fft.rfft(one[0], padded) * np.fft.rfft(other[0], padded) ** times
    return np.maximum(np.fft.irfft(transform, padded)[:size], 0), one[1] + times * other[1]


def delta_of(
    law: np.ndarray[tuple[int], np.dtype[np.float64]], first: int, step: float, epsilon: float
) -> float:
    values = (first + np.arange(law.size)) * step
    above = values > epsilon
    return float((law[above] * -np.expm1(epsilon - values[above])).sum())


def delta_of_many(noise: Noise, cells: int, epsilon: float) -> float:
    step = epsilon / 20_000
    law, first = composed((np.ones(1), 0), losses(noise, step), cells)
    return delta_of(law, first, step, epsilon)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-8, 1e-5])
def test_dp_accounting_agrees_in_one_dimension(epsilon: float, delta: float) -> None:
    """Its privacy loss distributions of both discrete laws stay within what was asked for."""
    budget = Budget(epsilon=epsilon, delta=delta)
    laplace = calibrate(Budget(epsilon=epsilon), Sensitivity(l1=3.0, l2=3.0))
    loss = pld.from_discrete_laplace_mechanism(
        1 / laplace.scale, sensitivity=3, value_discretization_interval=1e-5
    )
    assert loss.get_epsilon_for_delta(0.0) <= epsilon + 1e-5  # rounded up to its grid
    gaussian = calibrate(budget, Sensitivity(l1=1e6, l2=2.0))
    assert gaussian.law == GAUSSIAN
    loss = pld.from_discrete_gaussian_mechanism(gaussian.scale, sensitivity=2)
    theirs = loss.get_epsilon_for_delta(delta)
    assert 0.8 * epsilon < theirs <= epsilon


@pytest.mark.parametrize("broken", [0.9, 0.99])
def test_less_noise_would_be_noticed(broken: float) -> None:
    budget, sensitivity = Budget(epsilon=1.0, delta=1e-6), Sensitivity(l1=1e6, l2=1.0)
    for good in (calibrate(budget, sensitivity), calibrate(Budget(epsilon=1.0), sensitivity)):
        bad = noise_of(good.law, Fraction(good.scale * broken))
        assert spent([event(bad, sensitivity)], budget.delta) > 1.0
    laplace = noise_of(
        LAPLACE, Fraction(calibrate(Budget(epsilon=1.0), Sensitivity(l1=1.0, l2=1.0)).scale * broken)
    )
    assert exact_delta(laplace, 1, 1.0) > 1e-4


@given(
    st.lists(st.tuples(st.integers(1, 100), st.floats(1.0, 5000.0)), min_size=1, max_size=6),
    st.sampled_from(EPSILONS),
    st.sampled_from(DELTAS),
    st.sampled_from(PLANNERS),
)
def test_shares_that_sum_to_one_stay_within_the_budget(
    queries: list[tuple[int, float]], epsilon: float, delta: float, planner: Planner
) -> None:
    budget = Budget(epsilon=epsilon, delta=delta)
    whole = sum(weight for weight, _ in queries)
    events = []
    for weight, l1 in queries:
        sensitivity = Sensitivity(l1=l1, l2=math.sqrt(l1))
        events.append(event(planner(budget, sensitivity, weight / whole), sensitivity))
    assert spent(events, delta) <= epsilon


@pytest.mark.parametrize("parts", [3, 7, 10, 49, 1000])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("planner", PLANNERS)
def test_rounding_in_shares_does_not_overspend(parts: int, delta: float, planner: Planner) -> None:
    for l1 in (2, 2000):
        sensitivity = Sensitivity(l1=float(l1), l2=math.sqrt(l1))
        noise = planner(Budget(epsilon=1.0, delta=delta), sensitivity, (1 + 1e-9) / parts)
        assert spent([event(noise, sensitivity)] * parts, delta) <= 1.0


@pytest.mark.parametrize(
    ("l1", "l2", "law"), [(1.0, 1.0, LAPLACE), (2.0, 1.5, LAPLACE), (1000.0, 32.0, GAUSSIAN)]
)
def test_the_law_of_smaller_variance_is_chosen(l1: float, l2: float, law: str) -> None:
    budget, sensitivity = Budget(epsilon=1.0, delta=1e-6), Sensitivity(l1=l1, l2=l2)
    chosen = calibrate(budget, sensitivity)
    assert chosen.law == law
    assert chosen.variance <= calibrate(Budget(epsilon=1.0), sensitivity).variance


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_delta_never_hurts_a_single_query(planner: Planner) -> None:
    for epsilon, sensitivity in itertools.product(EPSILONS, SENSITIVITIES):
        pure = planner(Budget(epsilon=epsilon), sensitivity).variance
        assert planner(Budget(epsilon=epsilon, delta=1e-6), sensitivity).variance <= pure


def test_noise_in_shares_costs_little_more_than_noise_at_a_server() -> None:
    for epsilon, delta in itertools.product([0.1, 1.0, 3.0], [0.0, 1e-10, 1e-6]):
        for sensitivity, share in itertools.product(SENSITIVITIES, (1.0, 0.3)):
            budget = Budget(epsilon=epsilon, delta=delta)
            server, shared = (planner(budget, sensitivity, share) for planner in PLANNERS)
            assert shared.law in (LAPLACE, SKELLAM)
            assert shared.variance < 1.05 * server.variance
            if delta == 0:
                assert shared == server


@given(
    st.floats(1e-3, 20.0),
    st.sampled_from(DELTAS),
    st.integers(1, 10**6),
    st.floats(0.01, 1.0),
    st.sampled_from(PLANNERS),
)
def test_the_scale_is_the_ratio_that_is_drawn(
    epsilon: float, delta: float, l1: int, share: float, planner: Planner
) -> None:
    noise = planner(Budget(epsilon=epsilon, delta=delta), Sensitivity(l1=float(l1), l2=math.sqrt(l1)), share)
    assert Fraction(noise.scale).denominator <= 2**52
    assert draw(noise, 2, SimulatedRandomness(1)).shape == (2,)


@pytest.mark.parametrize("law", [LAPLACE, GAUSSIAN, SKELLAM])
@pytest.mark.parametrize("scale", [0.0625, 0.25, 0.5, 1.0, 1.5, 2.0, 2.25, 10.0, 300.0])
def test_the_variance_is_exact(law: str, scale: float) -> None:
    noise = noise_of(law, Fraction(scale))
    reach = int(80 * scale) + 80
    summed = float((np.arange(-reach, reach + 1) ** 2 * np.exp(log_pmf(noise, reach))).sum())
    assert noise.variance == pytest.approx(summed, rel=1e-11)


def test_sensitivities_are_whole_and_rounded_up() -> None:
    assert whole_sensitivity(Sensitivity(l1=3.0, l2=math.sqrt(3))) == (3, 3)
    assert whole_sensitivity(Sensitivity(l1=2.5, l2=1.5)) == (3, 3)
    assert whole_sensitivity(Sensitivity(l1=math.nextafter(3, 4), l2=math.nextafter(3, 0))) == (3, 9)
    for cells in (1, 2, 3, 5, 7, 10, 1023):
        for rows in (1, 3, 1000, 12345):
            protection = Protection(unit=Unit.CLIENT, rows_per_client=rows)
            counts = Sensitivity.of_counts(protection, multipliers=(1,) * cells)
            assert whole_sensitivity(counts) == (rows * cells, rows * rows * cells)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0, 1e300])
def test_a_sensitivity_without_a_bound_is_refused(bad: float) -> None:
    for sensitivity in (Sensitivity(l1=bad, l2=1.0), Sensitivity(l1=1.0, l2=bad)):
        for budget in (Budget(epsilon=1.0), Budget(epsilon=1.0, delta=1e-6)):
            for planner in PLANNERS:
                with pytest.raises(UnsupportedQuery):
                    planner(budget, sensitivity)
        with pytest.raises(UnsupportedQuery):
            event(noise_of(LAPLACE, Fraction(1)), sensitivity)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, math.nan, math.inf])
def test_a_share_is_a_part(share: float) -> None:
    for planner, delta in itertools.product(PLANNERS, (0.0, 1e-6)):
        with pytest.raises(UsageError, match="share"):
            planner(Budget(epsilon=1.0, delta=delta), Sensitivity(l1=1.0, l2=1.0), share)


@pytest.mark.parametrize("budget", [Budget(epsilon=1e-300), Budget(epsilon=1e-300, delta=1e-300)])
def test_more_noise_than_can_be_drawn_is_refused(budget: Budget) -> None:
    for share, planner in itertools.product((1.0, 0.5), PLANNERS):
        with pytest.raises(UsageError):
            planner(budget, Sensitivity(l1=1.0, l2=1.0), share)


def test_more_skellam_noise_than_can_be_drawn_is_left_to_laplace() -> None:
    budget, huge = Budget(epsilon=1e-3, delta=1e-6), Sensitivity(l1=2.0**40, l2=2.0**35)
    assert calibrate_shared(budget, huge).law == LAPLACE
    with pytest.raises(UsageError):
        calibrate_shared(budget, Sensitivity(l1=2.0**50, l2=2.0**35))


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize(
    ("planner", "share"), [(calibrate, 1.0), (calibrate_shared, 1.0), (calibrate_shared, 0.5)]
)
def test_a_huge_epsilon_still_works(delta: float, planner: Planner, share: float) -> None:
    sensitivity = Sensitivity(l1=1.0, l2=1.0)
    noise = planner(Budget(epsilon=LARGEST_EPSILON, delta=delta), sensitivity, share)
    assert noise.variance < 1e-20
    assert spent([event(noise, sensitivity)], delta) <= LARGEST_EPSILON
    assert not draw(noise, 1000, SimulatedRandomness(1)).any()


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 2.0**60, 2.0**-60])
@pytest.mark.parametrize("law", [LAPLACE, GAUSSIAN, SKELLAM, UNARY, "laplace", ""])
def test_laws_that_do_not_exist_are_refused(law: str, scale: float) -> None:
    noise = Noise(law=law, scale=scale, variance=1.0)
    with pytest.raises(UsageError, match="noise"):
        draw(noise, 1, SimulatedRandomness(1))
    with pytest.raises(UsageError, match="noise"):
        event(noise, Sensitivity(l1=1.0, l2=1.0))


def test_events_say_what_happened() -> None:
    sensitivity = Sensitivity(l1=3.0, l2=math.sqrt(3))
    laplace = event(noise_of(LAPLACE, Fraction(4)), sensitivity)
    assert (laplace.noise_parameter, laplace.sensitivity) == (0.25, 3)
    assert event(noise_of(GAUSSIAN, Fraction(4)), sensitivity) == dp_accounting.ZCDpEvent(rho=3 / 32)
    assert event(noise_of(SKELLAM, Fraction(4)), sensitivity) == SkellamDpEvent(
        variance=16.0, l1=3, l2_squared=3
    )
    unary = event(noise_of(UNARY, Fraction(4)), sensitivity)  # whatever the sensitivity: 1/4-DP
    assert (unary.noise_parameter, unary.sensitivity) == (0.25, 1)
    assert event(NO_NOISE, Sensitivity(l1=math.inf, l2=math.inf)) == dp_accounting.NonPrivateDpEvent()


def test_what_cannot_be_bounded_is_infinite() -> None:
    sensitivity = Sensitivity(l1=1.0, l2=1.0)
    laplace, gaussian = (
        event(noise_of(LAPLACE, Fraction(1)), sensitivity),
        event(noise_of(GAUSSIAN, Fraction(1)), sensitivity),
    )
    skellam = event(noise_of(SKELLAM, Fraction(1)), sensitivity)
    assert spent([], 0.0) == 0
    assert spent([laplace, skellam], 0.0) == math.inf
    assert spent([laplace, skellam, gaussian], 1e-6) < math.inf
    assert spent([laplace, gaussian], 0.0) == math.inf
    assert spent([laplace, gaussian], 1e-6) < math.inf
    assert spent([laplace, dp_accounting.NonPrivateDpEvent()], 0.5) == math.inf
    assert spent([dp_accounting.GaussianDpEvent(1.0)], 0.5) == math.inf
    assert spent([dp_accounting.ComposedDpEvent([laplace])], 0.5) == math.inf
    for delta in (-1e-9, 1.0, math.nan):
        with pytest.raises(UsageError):
            spent([laplace], delta)


@pytest.mark.parametrize(
    ("scale", "l1", "times", "delta"), [(10, 1, 50, 1e-6), (40, 4, 30, 1e-5), (2, 1, 5, 1e-3)]
)
def test_many_pure_releases_are_counted_tightly_and_safely(
    scale: int, l1: int, times: int, delta: float
) -> None:
    """Between the truth (the exact composition, by convolving losses) and the sum of the epsilons."""
    one = event(noise_of(LAPLACE, Fraction(scale)), Sensitivity(l1=float(l1), l2=float(l1)))
    ours = spent([one] * times, delta)
    # The loss of one release is a multiple of 2/scale, or of 1/scale: exact on that grid.
    p = np.exp(log_pmf(noise_of(LAPLACE, Fraction(scale)), 60 * scale))
    x = np.arange(-60 * scale, 60 * scale + 1)
    loss = np.abs(x - l1) - np.abs(x)  # in units of 1/scale
    single = np.bincount(loss + l1, weights=p, minlength=2 * l1 + 1)
    law = np.ones(1)
    for _ in range(times):
        law = np.convolve(law, single)
    losses = (np.arange(law.size) - times * l1) / scale
    true_delta = float((law * np.maximum(-np.expm1(ours - losses), 0))[losses > ours].sum())
    assert true_delta <= delta * (1 + 1e-9)
    assert true_delta > 0.5 * delta
    assert ours < times * l1 / scale


def test_tiny_releases_cannot_lower_the_count() -> None:
    sensitivity = Sensitivity(l1=1.0, l2=1.0)
    large = [event(noise_of(LAPLACE, Fraction(2)), sensitivity)] * 20
    tiny = [event(noise_of(LAPLACE, Fraction(2**52)), sensitivity)] * 10_000
    assert spent(large + tiny, 1e-6) >= spent(large, 1e-6)


def test_a_shift_in_one_coordinate_dominates_every_split() -> None:
    """The lemma behind counting vectors as one coordinate: delta of (s, t) is at most delta of s + t."""
    for scale, s, t in itertools.product((0.4, 1.0, 3.0, 9.5), (1, 2, 5), (1, 3, 7)):
        noise = Noise(law=LAPLACE, scale=scale, variance=0.0)
        x = np.arange(-600, 601)
        p = np.exp(log_pmf(noise, 600))
        one, two = np.abs(x - s) - np.abs(x), np.abs(x - t) - np.abs(x)
        law = np.convolve(np.bincount(one + s, weights=p), np.bincount(two + t, weights=p))
        losses = (np.arange(law.size) - s - t) / scale
        for epsilon in np.linspace(0, (s + t) / scale, 23):
            split = float((law * np.maximum(-np.expm1(epsilon - losses), 0)).sum())
            assert split <= exact_delta(noise, s + t, float(epsilon)) + 1e-13


def test_randomised_answers_cost_their_epsilon() -> None:
    """As randomised response, the worst of all 1/4-DP mechanisms; many of them compose like it."""
    sensitivity = Sensitivity(l1=7.0, l2=math.sqrt(7))
    one = event(noise_of(UNARY, Fraction(4)), sensitivity)
    assert spent([one], 0.0) == 0.25
    same = event(noise_of(LAPLACE, Fraction(4)), Sensitivity(l1=1.0, l2=1.0))
    assert spent([one] * 30, 1e-6) == spent([same] * 30, 1e-6) < 30 / 4


def test_a_skellam_history_costs_at_least_what_gaussian_noise_would() -> None:
    """Same variance, same L2: the bound of Skellam noise is that of the Gaussian and a little more."""
    sensitivity = Sensitivity(l1=5.0, l2=math.sqrt(5))
    for times in (1, 10, 100):
        skellam, gaussian = (
            spent([event(noise_of(law, Fraction(50)), sensitivity)] * times, 1e-6)
            for law in (SKELLAM, GAUSSIAN)
        )
        assert gaussian <= skellam <= 1.01 * gaussian


def test_a_ledger_takes_and_counts_both_new_laws() -> None:
    budget, sensitivity = Budget(epsilon=1.0, delta=1e-6), Sensitivity(l1=900.0, l2=30.0)
    noise = calibrate_shared(budget, sensitivity, 0.5)
    assert noise.law == SKELLAM

    def charge(name: str, law: str, scale: float) -> Charge:
        return Charge(
            id=name,
            dataset="d",
            study="s",
            law=law,
            scale=scale,
            l1=900.0,
            l2=30.0,
            trust_model="distributed-dp",
        )

    ledger = MemoryLedger(budget)
    ledger.charge([charge("1", SKELLAM, noise.scale), charge("2", SKELLAM, noise.scale)])
    assert 0.99 < ledger.spent("d", 1e-6) <= 1.0
    with pytest.raises(BudgetExceeded):
        ledger.charge([charge("3", UNARY, 10.0)])
    with pytest.raises(BudgetExceeded, match="Skellam noise need a delta"):
        MemoryLedger(Budget(epsilon=1.0)).charge([charge("1", SKELLAM, noise.scale)])
    ledger = MemoryLedger(Budget(epsilon=1.0))
    ledger.charge([charge("1", UNARY, 1.0)])
    assert ledger.spent("d", 0.0) == 1.0
