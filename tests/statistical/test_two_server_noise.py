"""The noise of `two-server`: of both servers in what is released, of the other one alone to each of them.

Every acceptance has a p-value above ERROR divided by the number of acceptances in this file (Bonferroni), so a correct
library would fail here with a probability below ERROR, were the seeds not fixed. Every rejection uses the same
threshold on a protocol that is broken on purpose.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from scipy import stats

from fedassay.privacy.accounting import GAUSSIAN, LAPLACE
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import (
    NO_NOISE,
    Budget,
    Message,
    Noise,
    Plan,
    Points,
    Protection,
    Randomness,
    Request,
    Sum,
    TrustModel,
    Vector,
)
from fedassay.trust.two_server.model import TwoServer
from noise_fit import Law, law_of, p_value, p_value_of_independence
from stated import Verify
from two_server_driver import Cells, Town, UpTo, plans_of, setting

CELLS = 20_000
CASES = [(LAPLACE, Budget(epsilon=0.5), 1), (GAUSSIAN, Budget(epsilon=0.5, delta=1e-6), 200)]
"""The law, a budget, and how many cells a row touches: many make Gaussian noise the better choice."""

ERROR = 1e-6
THRESHOLD = ERROR / (7 * len(CASES) + 1)
"""Three, three and one acceptances of each case, and one of points."""


class Quiet(TwoServer):
    """A server that adds no noise."""

    def assist(self, request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
        plans = tuple(replace(plan, noise=NO_NOISE) for plan in request.plans)
        return super().assist(replace(request, plans=plans), state, randomness)


def plan_of(budget: Budget, touched: int) -> Plan:
    terms = setting(budget=budget, protection=Protection(rows_per_client=2), clients=2)
    return plans_of(Sum(of=Cells(cells=CELLS, touched=touched)), of=terms)[0]


@lru_cache
def noise_in(case: int, second: type[TrustModel] = TwoServer) -> Vector:
    """What a real exchange releases, minus what is true."""
    _, budget, touched = CASES[case]
    plan = plan_of(budget, touched)
    counts = {
        name: (np.bincount([place, 7], minlength=CELLS),) for name, place in (("client0", 5), ("client1", 7))
    }
    town = Town(plans=(plan,), counts=counts, seed=case, second=second)
    noise: Vector = town.go()[0].value - town.exact()[0]
    return noise


def law_of_two(noise: Noise) -> Law:
    """The law of the sum of two independent draws."""
    if noise.law == LAPLACE:
        return law_of(noise, parts=2)
    one = law_of(noise)
    reach = int(12 * noise.scale)
    weights = np.diff(one.cumulative(np.arange(-reach - 1, reach + 1)))
    table = np.cumsum(np.convolve(weights, weights))
    return Law(lambda x: table[np.clip(x + 2 * reach, 0, 4 * reach)], noise.scale * np.sqrt(2))


def p_value_of_variance(draws: Vector, variance: float) -> float:
    """Of "the mean square is this": by the central limit theorem, the fourth moment estimated."""
    squares = draws.astype(np.float64) ** 2
    z = (squares.mean() - variance) / (squares.std() / np.sqrt(squares.size))
    return float(2 * stats.norm.sf(abs(z)))


@pytest.mark.parametrize("case", range(len(CASES)))
def test_released_totals_have_the_noise_of_both_servers(case: int) -> None:
    law, budget, touched = CASES[case]
    stated, draws = plan_of(budget, touched).noise, noise_in(case)
    assert (stated.law, stated.copies) == (law, 2.0)
    assert p_value(draws, law_of_two(stated)) > THRESHOLD
    assert p_value_of_variance(draws, stated.variance) > THRESHOLD
    assert p_value_of_independence(draws) > THRESHOLD


@pytest.mark.parametrize("case", range(len(CASES)))
def test_a_server_that_adds_no_noise_is_noticed(case: int) -> None:
    stated = plan_of(*CASES[case][1:]).noise
    draws = noise_in(case, Quiet)
    assert p_value(draws, law_of_two(stated)) < THRESHOLD
    assert p_value_of_variance(draws, stated.variance) < THRESHOLD


@pytest.mark.parametrize("case", range(len(CASES)))
def test_a_server_that_knows_its_own_noise_faces_all_of_the_others(case: int) -> None:
    """Subtract what the second server knows, its own draws: what is left is one full draw of the plan's law."""
    stated = plan_of(*CASES[case][1:]).noise
    others = noise_in(case, Quiet)  # the same seeds: the first server's noise is the same
    own = noise_in(case) - others
    for draws in (own, others):
        assert p_value(draws, law_of(stated)) > THRESHOLD
    assert stats.pearsonr(own, others).pvalue > THRESHOLD
    assert p_value(others, law_of_two(stated)) < THRESHOLD


def test_draws_in_aggregate_have_the_same_law() -> None:
    for case, (_, budget, touched) in enumerate(CASES):
        plan = plan_of(budget, touched)
        zeros = np.zeros(CELLS, np.int64)
        (released,) = TwoServer().aggregate([plan], [zeros], 2, SimulatedRandomness(case))
        assert released.noise == plan.noise
        assert p_value(released.value, law_of_two(plan.noise)) > THRESHOLD


def test_points_one_by_one_have_the_noise_of_a_whole_total() -> None:
    """Entries are their own draws and one that all share: differences of entries are differences of two draws."""
    cells = 2000
    terms = setting(budget=Budget(epsilon=0.5), protection=Protection(rows_per_client=2), clients=1)
    plans = plans_of(Points(of=UpTo(cells=cells), at=(0,)), of=terms)
    town = Town(plans=plans, counts={"client0": (np.bincount([3, 50], minlength=cells),)})
    town.go()
    found = [
        town.go(Points(of=UpTo(cells=cells), at=tuple(range(start, start + 100))))[0].value
        for start in range(0, cells, 100)
    ]
    noise = np.concatenate(found) - town.exact()[0]
    # Of neighbours, so that each draw is used once: the difference of the sums of two draws each, four in all.
    differences = noise[1::2] - noise[::2]
    assert p_value(differences, law_of(plans[0].noise, parts=4)) > THRESHOLD
    assert p_value(differences, law_of(plans[0].noise, parts=2)) < THRESHOLD


@pytest.mark.full
@pytest.mark.parametrize("law", [LAPLACE, GAUSSIAN])
def test_the_noise_of_many_releases(law: str, verify: Verify) -> None:
    """Fifty exchanges of each law: a million draws of both servers together, and of the first one alone."""
    (case,) = (i for i, (name, *_) in enumerate(CASES) if name == law)
    _, budget, touched = CASES[case]
    plan = plan_of(budget, touched)
    counts = {"client0": (np.bincount([5, 7], minlength=CELLS),)}
    found: dict[type[TrustModel], Vector] = {}
    for second in (TwoServer, Quiet):
        towns = [Town(plans=(plan,), counts=counts, seed=100 + i, second=second) for i in range(50)]
        found[second] = np.concatenate([town.go()[0].value - town.exact()[0] for town in towns])
    both, one = p_value(found[TwoServer], law_of_two(plan.noise)), p_value(found[Quiet], law_of(plan.noise))
    verify(
        f"two-server: noise of a million entries is that of two draws ({law}), of one draw to a server; p-values",
        f"{both:.3f}, {one:.3f}",
    )
    assert min(both, one) > ERROR
    assert p_value(found[Quiet], law_of_two(plan.noise)) < ERROR
