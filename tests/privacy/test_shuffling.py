"""Amplification by shuffling: the bound against brute force, against published ones, and against the truth."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from fedassay.errors import UsageError
from fedassay.privacy.accounting import GAUSSIAN, LAPLACE, UNARY
from fedassay.privacy.amplification import LARGEST_LOCAL_EPSILON, delta_of, local_epsilon_for
from fedassay.privacy.ledger.chain import body_of, charge_of
from fedassay.privacy.ledger.charges import Charge, compose
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.protocol.vocabulary import Budget
from stated import Verify

Reals = NDArray[np.float64]
Bound = Callable[[float, float, int], float]
"""Epsilon, local epsilon and clients to delta."""


def clones(epsilon: float, local: float, clients: int, chance: float | None = None) -> float:
    """The divergence of the theorem, outcome by outcome; `chance` is that of another client to be a clone."""
    a, t = math.exp(local), math.exp(epsilon)
    chance = 2 / (a + 1) if chance is None else chance
    total = 0.0
    for c in range(clients):
        k = np.arange(c + 2)
        other, own = stats.binom.pmf(k - 1, c, 0.5), stats.binom.pmf(k, c, 0.5)
        first, second = (a * other + own) / (a + 1), (other + a * own) / (a + 1)
        total += stats.binom.pmf(c, clients - 1, chance) * np.maximum(first - t * second, 0).sum()
    return float(total)


def focs(epsilon: float, local: float, clients: int) -> float:
    """Feldman, McMillan, Talwar (2021), Theorem 3.2."""
    return clones(epsilon, local, clients, chance=math.exp(-local))


def closed_form(local: float, clients: int, delta: float) -> float:
    """Their Theorem 3.1, as an epsilon; it holds for local <= log(n/(16 log(2/delta)))."""
    assert local <= math.log(clients / (16 * math.log(2 / delta)))
    a = math.exp(local)
    spread = 8 * math.sqrt(a * math.log(4 / delta) / clients) + 8 * a / clients
    return math.log(1 + (a - 1) / (a + 1) * spread)


# --- the sum ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clients", [1, 2, 3, 10, 60, 250])
@pytest.mark.parametrize("local", [0.1, 1.0, 3.0, 6.0])
@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_it_is_the_divergence_rounded_up(clients: int, local: float, part: float) -> None:
    exact = clones(part * local, local, clients)
    assert exact * (1 - 1e-9) <= delta_of(part * local, local, clients) <= exact * (1 + 1e-9) + 1e-40


@pytest.mark.parametrize(
    ("clients", "local", "epsilon"),
    [(10**4, 1.0, 0.1), (10**5, 4.0, 0.3), (10**6, 6.0, 0.2), (10**6, 9.0, 0.7)],
)
def test_blocks_cost_little(clients: int, local: float, epsilon: float) -> None:
    """Against the sum over all C within 14 standard deviations, by other functions of another library call."""
    a, t, chance = math.exp(local), math.exp(epsilon), 2 / (math.exp(local) + 1)
    mean = (clients - 1) * chance
    c = np.arange(max(0, int(mean - 14 * math.sqrt(mean))), int(mean + 14 * math.sqrt(mean)) + 20)
    k = np.floor((c + 1) * (a * t - 1) / ((a - 1) * (t + 1))) + 1
    hidden = (a - t) / (a + 1) * stats.binom.pmf(k - 1, c, 0.5) - (t - 1) * stats.binom.sf(k - 1, c, 0.5)
    exact = float(stats.binom.pmf(c, clients - 1, chance) @ hidden)
    assert exact > 1e-30
    assert exact * (1 - 1e-7) <= delta_of(epsilon, local, clients) <= 1.01 * exact


def test_it_is_smaller_than_what_is_published() -> None:
    for clients, local, delta in itertools.product(
        (10**4, 10**5, 10**6), (0.5, 1.0, 3.0), (1e-4, 1e-6, 1e-10)
    ):
        epsilon = closed_form(local, clients, delta) if local < 1.5 or clients > 10**4 else None
        if epsilon is not None and epsilon < local:
            assert delta_of(epsilon, local, clients) < 0.5 * delta
    for clients, local, part in itertools.product((2, 20, 200), (0.5, 2.0, 4.0), (0.1, 0.5)):
        assert delta_of(part * local, local, clients) <= focs(part * local, local, clients) * (1 + 1e-9)
    # What the better reduction is worth: the same delta for a local epsilon that is larger by up to log 2.
    assert delta_of(1.0, 4.0, 200) < focs(1.0, 3.6, 200)


@given(
    epsilon=st.floats(0.01, 3.0),
    local=st.floats(0.02, 10.0),
    clients=st.integers(1, 10**7),
    more=st.floats(1.01, 2.0),
)
@settings(max_examples=60, deadline=None)
def test_more_of_anything_goes_one_way(epsilon: float, local: float, clients: int, more: float) -> None:
    delta = delta_of(epsilon, local, clients)
    assert 0 <= delta <= 1
    slack = 1.01  # what blocks may cost
    assert delta_of(more * epsilon, local, clients) <= slack * delta + 1e-34
    assert delta <= slack * delta_of(epsilon, more * local, clients) + 1e-34
    assert delta_of(epsilon, local, math.ceil(more * clients)) <= slack * delta + 1e-34


def test_a_hundred_million_clients_take_no_room() -> None:
    local_epsilon_for.cache_clear()
    tracemalloc.start()
    found = local_epsilon_for(Budget(epsilon=1.0, delta=1e-8), 10**8)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000  # blocks of numbers of clients, whatever their number
    assert 14 < found < 15


# --- the truth: it holds for every randomiser, and nearly as it stands ------------------------------------------


def truth(laws: Reals, epsilon: float, others: tuple[int, ...]) -> float:
    """The exact delta, over all multisets: rows of `laws` are inputs; client 1 has 0 or 1, the others these."""
    symbols = laws.shape[1]
    counts: dict[tuple[int, ...], float] = {(0,) * symbols: 1.0}
    for one in others:
        after: dict[tuple[int, ...], float] = {}
        for seen, p in counts.items():
            for symbol in range(symbols):
                key = (*seen[:symbol], seen[symbol] + 1, *seen[symbol + 1 :])
                after[key] = after.get(key, 0.0) + p * laws[one, symbol]
        counts = after
    first: dict[tuple[int, ...], Reals] = {}
    for seen, p in counts.items():
        for symbol in range(symbols):
            key = (*seen[:symbol], seen[symbol] + 1, *seen[symbol + 1 :])
            first[key] = first.get(key, np.zeros(2)) + p * laws[:2, symbol]
    return float(sum(max(0.0, p0 - math.exp(epsilon) * p1) for p0, p1 in first.values()))


def randomised_response(local: float, symbols: int) -> Reals:
    """k-ary: one's own symbol with e^ε₀ times the probability of another."""
    weights = np.exp(local * np.eye(symbols))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def worst_response(local: float, clients: int, part: float, bound: Bound) -> float:
    """The largest ratio of the true delta of randomised responses, of 2 and 3 symbols, to the bound."""
    epsilon = part * local
    ratios = [
        truth(randomised_response(local, symbols), epsilon, others) / bound(epsilon, local, clients)
        for symbols in (2, 3)
        for others in {tuple(sorted((one,) * (clients - 1))) for one in range(symbols)}
        | {tuple(sorted((0, 1) * (clients // 2)))[: clients - 1]}
    ]
    return max(ratios)


@pytest.mark.parametrize("clients", [1, 2, 5, 12, 20])
@pytest.mark.parametrize("local", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("part", [0.05, 0.5, 0.9])
def test_randomised_response_keeps_the_bound(clients: int, local: float, part: float) -> None:
    assert worst_response(local, clients, part, delta_of) <= 1 + 1e-9


def test_a_bound_for_ten_times_as_many_clients_is_broken_by_randomised_response() -> None:
    def ten_times(epsilon: float, local: float, clients: int) -> float:
        return delta_of(epsilon, local, 10 * clients)

    for local, part in itertools.product((0.3, 1.0, 3.0), (0.05, 0.5)):
        assert worst_response(local, 12, part, ten_times) > 1.5


def test_a_bound_in_which_everybody_is_a_clone_is_broken_by_randomised_response() -> None:
    def all_clones(epsilon: float, local: float, clients: int) -> float:
        return clones(epsilon, local, clients, chance=1.0)

    assert worst_response(3.0, 12, 0.5, all_clones) > 1.5


def blanket(local: float, alike: float) -> Reals:
    """The worst randomisers of the proof: rows x₀, x₁ and another; `alike` is the part 1 - s that x₀ and x₁ share."""
    a = math.exp(local)
    w, rest = (1 - alike) / (a + 1), alike
    other = np.array([w, w, rest / a])
    laws = np.array([[a * w, w, rest, 0.0], [w, a * w, rest, 0.0], [*other, 1 - other.sum()]])
    assert laws.min() >= 0
    return laws


@pytest.mark.parametrize("local", [0.5, 2.0])
@pytest.mark.parametrize("part", [0.1, 0.6])
def test_the_proof_is_tight_and_the_more_alike_the_better(local: float, part: float) -> None:
    deltas = [truth(blanket(local, alike), part * local, (2,) * 7) for alike in (0.0, 0.2, 0.5, 0.8, 0.99)]
    assert deltas[0] == pytest.approx(delta_of(part * local, local, 8), rel=1e-9)
    assert all(more > less for more, less in itertools.pairwise(deltas))


@st.composite
def randomisers(draw: Any) -> Reals:
    """Any three laws over a few symbols, some nearly the same."""
    symbols = draw(st.integers(2, 4))
    logs = draw(st.lists(st.floats(-2, 2), min_size=3 * symbols, max_size=3 * symbols))
    weights = np.exp(np.array(logs).reshape(3, symbols))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


@given(laws=randomisers(), part=st.floats(0.0, 0.95), clients=st.integers(1, 5), data=st.data())
@settings(max_examples=300, deadline=None)
def test_no_randomiser_breaks_the_bound(laws: Reals, part: float, clients: int, data: st.DataObject) -> None:
    local = float((np.log(laws).max(axis=0) - np.log(laws).min(axis=0)).max())
    others = tuple(data.draw(st.lists(st.integers(0, 2), min_size=clients - 1, max_size=clients - 1)))
    if local > 1e-6:
        assert truth(laws, part * local, others) <= delta_of(part * local, local, clients) + 1e-12


@pytest.mark.full
def test_no_randomiser_of_many_breaks_the_bound(verify: Verify) -> None:
    """Laws of three inputs over up to four symbols, up to six clients, whatever the others hold."""
    rng, broken, closest, tries = np.random.default_rng(1), 0, 0.0, 20_000
    for _ in range(tries):
        symbols, clients = int(rng.integers(2, 5)), int(rng.integers(1, 7))
        # Half of them with two values per symbol only, as extreme randomisers have.
        logs = rng.normal(size=(3, symbols)) * rng.choice([0.2, 1.0, 3.0])
        logs = np.where(rng.random() < 0.5, np.sign(logs) * abs(logs[0, 0]), logs)
        laws = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
        local = float((np.log(laws).max(axis=0) - np.log(laws).min(axis=0)).max())
        if local < 1e-6:
            continue
        epsilon = float(rng.uniform(0, 0.95)) * local
        exact = truth(laws, epsilon, tuple(rng.integers(0, 3, clients - 1).tolist()))
        bound = delta_of(epsilon, local, clients)
        broken += exact > bound + 1e-12
        closest = max(closest, exact / bound)
    assert broken == 0
    verify(
        "shuffling: arbitrary randomisers whose true delta exceeds the bound; largest ratio of the two",
        f"{broken} of {tries:,}, {closest:.3f}",
    )


# --- the paper's claim ----------------------------------------------------------------------------------------


def private_quantile(bins: NDArray[np.int64], *, q: float, epsilon: float) -> Reals:
    """Algorithm 2 of Humbert, Le Bars, Bellet, Arlot (2023): the law of its output for so many scores in each bin."""
    below = np.concatenate([[0], np.cumsum(bins)[:-1]])
    above = bins.sum() - np.cumsum(bins)
    weights = np.maximum(below / q, above / (1 - q))
    law = np.exp(-epsilon * (weights - weights.min()) / (2 * max(1 / q, 1 / (1 - q))))
    return np.asarray(law / law.sum())


def test_messages_that_protect_one_row_of_many_are_not_amplified() -> None:
    """100 rows, 10^4 clients, epsilon = 1: published amplification claims (0.214, 1e-6). One row refutes it.

    All others have their scores in the last bin and never answer with the first: if anybody does, it is client 1.
    """
    claimed = closed_form(1.0, 10_000, 1e-6)
    assert claimed == pytest.approx(0.214, abs=5e-4)
    laws = [
        private_quantile(np.array(bins), q=0.5, epsilon=1.0)
        for bins in ([50, 50, 0], [49, 51, 0], [0, 0, 100])
    ]
    for one, other in itertools.permutations(laws[:2]):
        assert np.log(one / other).max() <= 1.0  # as promised: for one row of one client
    silent = float((1 - laws[2][0]) ** 9_999)
    seen = [1 - silent * (1 - law[0]) for law in laws[:2]]
    true_delta = seen[0] - math.exp(claimed) * seen[1]
    assert silent > 1 - 1e-15
    assert true_delta == pytest.approx(0.167, abs=1e-3)
    assert true_delta > 0.12 > 1e5 * 1e-6
    # For everything that a client holds the same algorithm is no better than epsilon = 50, and then nothing is claimed.
    whole = float(np.abs(np.log(laws[0]) - np.log(laws[2])).max())
    assert whole > 49
    assert delta_of(claimed, whole, 10_000) > true_delta


# --- the inverse ------------------------------------------------------------------------------------------------


@given(epsilon=st.floats(0.01, 4.0), exponent=st.floats(2, 12), clients=st.integers(1, 10**6))
@settings(max_examples=40, deadline=None)
def test_the_local_epsilon_keeps_the_budget_and_a_larger_one_does_not(
    epsilon: float, exponent: float, clients: int
) -> None:
    budget = Budget(epsilon=epsilon, delta=10**-exponent)
    local = local_epsilon_for(budget, clients)
    assert local >= epsilon
    assert delta_of(epsilon, local, clients) <= budget.delta
    assert delta_of(epsilon, local + 2 * 2.0**-12, clients) > budget.delta


def test_without_delta_or_without_others_there_is_no_amplification() -> None:
    assert local_epsilon_for(Budget(epsilon=0.7), 10**6) == 0.7
    assert local_epsilon_for(Budget(epsilon=0.7, delta=1e-9), 1) == 0.7
    assert local_epsilon_for(Budget(epsilon=900.0, delta=1e-9), 10**6) == 900.0
    assert local_epsilon_for(Budget(epsilon=1.0, delta=0.999), 10**6) <= LARGEST_LOCAL_EPSILON
    assert delta_of(1.0, 0.5, 10) == 0


@pytest.mark.parametrize(
    ("epsilon", "local", "clients"),
    [(-1.0, 1.0, 5), (math.nan, 1.0, 5), (1.0, 0.0, 5), (1.0, 65.0, 5), (0.5, 1.0, 0)],
)
def test_nonsense_is_refused(epsilon: float, local: float, clients: int) -> None:
    with pytest.raises(UsageError, match="shuffling: got"):
        delta_of(epsilon, local, clients)


# --- the books ----------------------------------------------------------------------------------------------------

BOOKED = {
    "dataset": "d",
    "study": "s",
    "law": UNARY,
    "scale": 0.2,
    "l1": 1.0,
    "l2": 1.0,
    "trust_model": "shuffle",
    "shuffled_epsilon": 0.5,
    "shuffled_delta": 1e-6,
}
"""Messages of a local epsilon of 5 that cost (0.5, 1e-6) together."""


def test_shuffled_releases_count_by_what_gives_less() -> None:
    shuffled = [Charge(id=str(i), **BOOKED) for i in range(3)]  # type: ignore[arg-type]
    plain = Charge(
        id="p", **{**BOOKED, "law": LAPLACE, "scale": 4.0, "shuffled_epsilon": 0.0, "shuffled_delta": 0.0}
    )  # type: ignore[arg-type]
    assert compose(shuffled[:1], 1e-6) == 0.5
    assert compose(shuffled, 3e-6) == compose(shuffled, 1e-3) == 1.5
    assert compose([*shuffled, plain], 3e-6) == 1.75
    # Not enough delta for all of them: then nobody is believed to have shuffled.
    for delta in (0.0, 2.9e-6):
        assert compose([*shuffled, plain], delta) == pytest.approx(15.25, rel=0.02)
    gaussian = replace(plain, law=GAUSSIAN)
    assert compose([*shuffled, gaussian], 3e-6) > 15  # no delta is left for the Gaussian
    assert compose([*shuffled, gaussian], 4e-6) == pytest.approx(1.5 + compose([gaussian], 1e-6), rel=1e-3)


def test_books_on_the_disk_have_both_numbers_and_old_ones_are_read(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    entry = Charge(id="1", **BOOKED)  # type: ignore[arg-type]
    DatabaseLedger(path, Budget(epsilon=0.6, delta=1e-6)).charge([entry])
    assert DatabaseLedger(path, None).charges == (entry,)
    old = {name: value for name, value in body_of(entry).items() if not name.startswith("shuffled")}
    read = charge_of(old)
    assert read.shuffled is None
    assert compose([read], 1e-6) == pytest.approx(5.0, rel=0.01)


@pytest.mark.parametrize(
    "changes",
    [
        {"shuffled_epsilon": 0.0},
        {"shuffled_epsilon": -1.0},
        {"shuffled_delta": 1.0},
        {"law": "none", "scale": 0.0},
    ],
)
def test_a_charge_of_nonsense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Charge(id="1", **{**BOOKED, **changes})
