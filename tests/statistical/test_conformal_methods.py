"""Every method covers what it promises, under every trust model that answers it, whatever the scores are.

Each run draws the scores of a federation from a known distribution, finds a threshold as the task does, and looks up
the exact coverage U of that threshold in the distribution: the mean of U over the runs has a small error although the
runs are few. A method that keeps its promise fails one of these tests with a probability of at most ERROR, were the
seeds not fixed: each comparison gets an equal part of it, by the normal approximation of the mean. What is promised on
average is judged by the mean of U; what is promised with a confidence, by how often U reaches the level. Methods with
one step left out are rejected.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom, norm

from conformal_drive import answer, drive, setting_of
from fedassay.coverage import best_pair
from fedassay.protocol import Select, Setting, TrustModel, Unit
from fedassay.summaries import quantile_votes
from fedassay.summaries.group_names import fingerprints
from fedassay.tasks.conformal import Conformal, choice, collected, pooled, ways
from fedassay.tasks.conformal.found import Found
from fedassay.tasks.distribution.curve import curve_of
from fedassay.tasks.distribution.stored import Release
from fedassay.trust import DistributedDP, LocalDP, Plain, SecureSum, ServerDP, Shuffle, TwoServer
from stated import Verify

ERROR = 1e-4
LEVEL = 0.9
EQUAL = (100,) * 10
UNEQUAL = (260, 180, 133, 100, 80, 60, 44, 23, 9, 4, 0)
ABOUT_60 = (260, 180, 133, 100, 80, 70, 65, 62, 60, 58, 57)
ONE_EACH = (1,) * 2500


# --- scores of which everything is known ----------------------------------------------------------------


@dataclass(frozen=True)
class Scores:
    """A distribution: how to draw from it, and its distribution function."""

    name: str
    draw: Callable[[np.random.Generator, int], np.ndarray]
    share_up_to: Callable[[float], float]

    def __str__(self) -> str:
        return self.name


CONTINUOUS = Scores("continuous", lambda rng, n: np.abs(rng.normal(size=n)), lambda x: float(2 * ndtr(x) - 1))
ENDS = np.array([0.4, 0.7, 0.85, 0.9, 0.94, 0.97, 0.99, 1.0])
"""P(S <= 0), P(S <= ½), P(S <= 1), ..: one of them is the level itself."""

TIED = Scores(
    "tied",
    lambda rng, n: np.searchsorted(ENDS, rng.random(n)) / 2,
    lambda x: float(ENDS[min(7, math.floor(2 * x))]),
)
GAP = Scores(
    "gap",
    lambda rng, n: np.searchsorted([0.895, 0.903], rng.random(n)) * 2.2,
    lambda x: 0.895 if x < 2.2 else 0.903 if x < 4.4 else 1.0,
)
"""Nearly enough rows at one end, a few in the middle, and nothing between: many points where noise can mislead."""

RANGE = (0.0, 4.5)


# --- cases ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Case:
    """A method under a trust model; `lost` of the clients do not answer."""

    method: str
    trust: TrustModel = field(default_factory=Plain)
    rows: tuple[int, ...] = EQUAL
    epsilon: float | None = None
    delta: float = 0.0
    bins: int | None = None
    lost: int = 0
    confidence: float | None = None
    rows_per_client: int | None = None
    unit: Unit = Unit.EXAMPLE
    runs: int = 300

    def __str__(self) -> str:
        sizes = (
            "one row each" if self.rows == ONE_EACH else "equal" if len(set(self.rows)) == 1 else "unequal"
        )
        words = [self.method, self.trust.name, sizes]
        words += [f"eps {self.epsilon or 0:g}"] * (self.epsilon is not None) + ["delta"] * (self.delta > 0)
        words += [f"{self.lost} lost"] * (self.lost > 0) + ["confident"] * (self.confidence is not None)
        return ", ".join(words)

    @property
    def task(self) -> Conformal:
        asked = (
            {}
            if self.confidence is None
            else {"guarantee": "training-conditional", "confidence": self.confidence}
        )
        return Conformal(method=self.method, level=LEVEL, score_range=RANGE, bins=self.bins, **asked)

    @property
    def setting(self) -> Setting:
        return setting_of(
            self.trust,
            clients=len(self.rows),
            epsilon=self.epsilon,
            delta=self.delta,
            rows_per_client=self.rows_per_client,
            unit=self.unit,
        )

    def federation(self, scores: Scores, rng: np.random.Generator) -> list[dict[str, np.ndarray]]:
        if self.rows == ONE_EACH:
            return [{"conformity": scores.draw(rng, len(self.rows))}]  # added up at once
        most = self.rows_per_client or max(self.rows)
        return [
            {"conformity": scores.draw(rng, min(n, most))} for n in self.rows[: len(self.rows) - self.lost]
        ]


ONE_ROW = {"rows": ONE_EACH, "rows_per_client": 1, "unit": Unit.CLIENT, "bins": 32, "runs": 60}
CASES = (
    *(
        Case(method=method, rows=rows, bins=1024)
        for method in ("qq", "qq-paper", "pooled")
        for rows in (EQUAL, UNEQUAL)
    ),
    *(
        Case(method=method, trust=SecureSum(), rows=rows, bins=1024)
        for method in ("qq", "pooled")
        for rows in (EQUAL, UNEQUAL)
    ),
    *(Case(method="qq", trust=trust, rows=UNEQUAL, lost=3, bins=1024) for trust in (Plain(), SecureSum())),
    Case(method="pooled", trust=SecureSum(), lost=2, bins=1024),
    Case(method="pooled", trust=ServerDP(), epsilon=1.0, runs=100),
    Case(method="pooled", trust=ServerDP(), epsilon=1.0, delta=1e-6, rows=UNEQUAL, runs=100),
    Case(method="pooled", trust=DistributedDP(), epsilon=1.0, runs=100),
    Case(method="pooled", trust=DistributedDP(), epsilon=1.0, delta=1e-6, rows=UNEQUAL, runs=100),
    Case(method="pooled", trust=TwoServer(), epsilon=2.0, rows_per_client=100, runs=100),
    Case(method="pooled", trust=LocalDP(), epsilon=4.0, runs=100),
    Case(method="pooled", trust=LocalDP(), epsilon=4.0, **ONE_ROW),
    Case(method="pooled", trust=Shuffle(), epsilon=1.0, delta=1e-6, **ONE_ROW),
    Case(method="qq", trust=LocalDP(), epsilon=2.0, rows_per_client=100, runs=200),
    Case(method="qq", trust=LocalDP(), epsilon=5.0, rows=ABOUT_60, rows_per_client=60, runs=200),
    Case(method="qq", trust=LocalDP(), epsilon=5.0, rows_per_client=100, lost=1, runs=200),
    Case(method="qq-paper", trust=LocalDP(), epsilon=5.0, rows_per_client=100, runs=200),
    Case(method="qq", trust=Shuffle(), epsilon=2.0, rows_per_client=100, runs=200),
)
CONFIDENT = (
    Case(method="qq", confidence=0.9, rows=UNEQUAL),
    Case(method="pooled", confidence=0.9, bins=1024),
    Case(method="pooled", confidence=0.9, trust=ServerDP(), epsilon=1.0, runs=50),
    Case(method="qq", confidence=0.9, trust=LocalDP(), epsilon=2.0, rows_per_client=100, runs=200),
)
COMPARISONS = 3 * len(CASES) + 4 * len(CONFIDENT) + 40
Z = float(norm.isf(ERROR / COMPARISONS))


# --- runs -----------------------------------------------------------------------------------------------


def remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """A pure function of public numbers, computed once for each: what a federation works out, thousands share."""
    known: dict[bytes, Any] = {}

    def recall(*args: Any, **named: Any) -> Any:
        key = pickle.dumps((args, sorted(named.items())))
        if key not in known:
            known[key] = function(*args, **named)
        return known[key]

    return recall


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (ways, "chosen"),
        (collected, "best_server_rank"),
        (pooled, "pooled_margin"),
        (choice, "best_choice"),
        (choice, "published_choice"),
        (choice, "lowest_moments"),
    ):
        monkeypatch.setattr(module, name, remembered(getattr(module, name)))
    monkeypatch.setattr(quantile_votes, "TALLEST_LADDER", max(UNEQUAL))


def thresholds(case: Case, scores: Scores, *, runs: int, seed: int = 0) -> Iterator[Found]:
    """What the task finds for so many federations."""
    task, setting, rng = case.task, case.setting, np.random.default_rng(seed)
    for run in range(runs):
        yield threshold_of(task, setting, case.federation(scores, rng), seed + run)["all"]


def threshold_of(
    task: Conformal, setting: Setting, clients: list[dict[str, np.ndarray]], seed: int
) -> dict[str, Found]:
    """The task without its report, which takes longer than all the rest."""
    method, way = task.way(setting)
    steps = way(task, method, setting)
    query = next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send(answer(query, setting, clients, seed))
    found: dict[str, Found] = end.value.value[0]
    return found


def covered(found: Found, scores: Scores) -> float:
    assert found.threshold is not None
    return 1.0 if found.infinite else scores.share_up_to(found.threshold)


def coverages(case: Case, scores: Scores, *, runs: int | None = None, seed: int = 0) -> np.ndarray:
    found = thresholds(case, scores, runs=runs or case.runs, seed=seed)
    return np.array([covered(one, scores) for one in found])


def falls_short(values: np.ndarray, level: float = LEVEL) -> bool:
    """Whether their mean is below the level by more than chance explains."""
    return bool(values.mean() + Z * values.std(ddof=1) / math.sqrt(len(values)) < level)


def too_rarely(values: np.ndarray, confidence: float) -> bool:
    return bool((values >= LEVEL - 1e-12).sum() < binom.ppf(ERROR / COMPARISONS, len(values), confidence))


# --- what is promised -----------------------------------------------------------------------------------


@pytest.mark.parametrize("scores", [CONTINUOUS, TIED], ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_new_rows_are_covered(case: Case, scores: Scores) -> None:
    found = coverages(case, scores)
    assert not falls_short(found)
    assert (found < 1).mean() > 0.5  # not because the sets hold everything


@pytest.mark.parametrize("case", [case for case in CASES if case.epsilon is not None], ids=str)
def test_noise_is_no_excuse_where_scores_make_it_worst(case: Case) -> None:
    assert not falls_short(coverages(case, GAP))


@pytest.mark.parametrize("scores", [CONTINUOUS, TIED], ids=str)
@pytest.mark.parametrize("case", CONFIDENT, ids=str)
def test_the_level_is_reached_as_often_as_promised(case: Case, scores: Scores) -> None:
    found = coverages(case, scores)
    assert case.confidence is not None
    assert not too_rarely(found, case.confidence)
    assert not falls_short(found)
    marginal = replace(case, confidence=None)
    if scores is CONTINUOUS and case.trust.name == "plain":
        assert too_rarely(coverages(marginal, scores), case.confidence)


def agrees(case: Case, *, runs: int) -> tuple[float, float, float, float]:
    """Mean and standard deviation of U, in standard errors from those of the law, and the two themselves."""
    found = list(thresholds(case, CONTINUOUS, runs=runs))
    law, values = found[0].law, np.array([covered(one, CONTINUOUS) for one in found])
    assert law is not None
    assert found[0].exact
    deviation = values.std(ddof=1)
    fourth = float(((values - values.mean()) ** 4).mean()) / deviation**4
    of_mean = (values.mean() - law.mean) / (law.standard_deviation / math.sqrt(runs))
    of_deviation = (deviation / law.standard_deviation - 1) / math.sqrt((fourth - 1) / (4 * runs))
    return of_mean, of_deviation, float(values.mean()), float(deviation)


@pytest.mark.parametrize("method", ["qq", "qq-paper"])
@pytest.mark.parametrize("rows", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_in_the_clear_the_law_is_the_one_that_is_stated(method: str, rows: tuple[int, ...]) -> None:
    of_mean, of_deviation, _, _ = agrees(Case(method=method, rows=rows), runs=600)
    assert abs(of_mean) < Z
    assert abs(of_deviation) < Z


# --- clients, classes and groups with distributions of their own ----------------------------------------


SPREADS = (0.3, 0.5, 0.8, 1.0, 1.0, 1.2, 1.5, 1.8)
SIZES = (40, 5, 100, 9, 60, 3, 30, 20)


def with_own_weights(
    method: str, rows: tuple[int, ...], shifts: tuple[float, ...], setting: Setting, *, runs: int
) -> np.ndarray:
    """Coverage of new rows that come from client j with probability (n_j + 1)/(N + K); its scores are |z|·shift_j."""
    task = Conformal(method=method, level=LEVEL, score_range=(0.0, 40.0), bins=1024)
    rng, found = np.random.default_rng(1), []
    weights = (np.array(rows) + 1) / (sum(rows) + len(rows))
    for run in range(runs):
        clients = [{"conformity": s * np.abs(rng.normal(size=n))} for s, n in zip(shifts, rows, strict=True)]
        threshold = threshold_of(task, setting, clients, run)["all"].threshold
        found.append(weights @ (2 * ndtr(threshold / np.array(shifts)) - 1))
    return np.array(found)


@pytest.mark.parametrize(
    ("trust", "epsilon"),
    [(Plain(), None), (SecureSum(), None), (ServerDP(), 2.0)],
    ids=["plain", "secure-sum", "server-dp"],
)
def test_weighted_covers_rows_of_clients_that_differ(trust: TrustModel, epsilon: float | None) -> None:
    setting = setting_of(trust, clients=len(SIZES), epsilon=epsilon)
    assert not falls_short(with_own_weights("weighted", SIZES, SPREADS, setting, runs=150))


def test_pooled_promises_nothing_about_clients_that_differ() -> None:
    """One large client with small scores, and a dozen of one row with large ones: a seventh of all new rows."""
    rows, shifts = (150, *(1,) * 12), (0.01, *(8.0,) * 12)
    setting = setting_of(clients=len(rows))
    assert falls_short(with_own_weights("pooled", rows, shifts, setting, runs=100))
    assert not falls_short(with_own_weights("weighted", rows, shifts, setting, runs=100))


def test_each_client_alone_covers_its_own_rows() -> None:
    task, rng = Conformal(method="local", level=LEVEL), np.random.default_rng(2)
    setting, values = setting_of(clients=len(SIZES)), []
    for _ in range(200):
        clients = [
            {"conformity": s * np.abs(rng.normal(size=n))} for s, n in zip(SPREADS, SIZES, strict=True)
        ]
        own = drive(task, setting, clients)["sites"]
        values.append(
            [
                1.0 if one["infinite"] else 2 * ndtr(one["threshold"] / s) - 1
                for one, s in zip(own, SPREADS, strict=True)
            ]
        )
    for each in np.array(values).T:
        assert not falls_short(each) or each.std() == 0  # those with too few rows cover everything
        assert each.mean() >= LEVEL - 0.01


CONDITIONAL = (
    ("qq", Plain(), None),
    ("qq", SecureSum(), None),
    ("pooled", SecureSum(), None),
    ("pooled", ServerDP(), 2.0),
)


def judge_parts(
    found: list[Mapping[str, Found]], share_up_to: Mapping[str, Callable[[float], float]]
) -> None:
    for name, share in share_up_to.items():
        values = np.array([1.0 if one[name].infinite else share(one[name].threshold) for one in found])
        assert not falls_short(values), name
        assert values.mean() < 0.99, name
    # One threshold for all would leave the harder part with less.
    easy = [one[min(share_up_to)].threshold for one in found]
    hard = share_up_to[max(share_up_to)]
    assert falls_short(np.array([hard(threshold) for threshold in easy]))


@pytest.mark.parametrize(
    ("method", "trust", "epsilon"), CONDITIONAL, ids=lambda x: getattr(x, "name", str(x))
)
def test_every_class_is_covered(method: str, trust: TrustModel, epsilon: float | None) -> None:
    """Two classes: the probability of the wrong one is uniform where 0 is true, and the root of that where 1 is."""
    task = Conformal(
        method=method, level=LEVEL, quantity="lac", by="class", groups=("0", "1"), classes=2, bins=1024
    )
    setting, rng, found = setting_of(trust, clients=8, epsilon=epsilon), np.random.default_rng(3), []

    def client() -> dict[str, np.ndarray]:
        truth = rng.integers(0, 2, 80)
        wrong = np.where(truth == 0, rng.random(80), np.sqrt(rng.random(80)))
        sides = np.log(np.stack([1 - wrong, wrong], axis=1))
        return {"class": truth, "logits": np.where((truth == 0)[:, None], sides, sides[:, ::-1])}

    for run in range(100):
        found.append(threshold_of(task, setting, [client() for _ in range(8)], run))
    judge_parts(found, {"0": lambda x: min(x, 1.0), "1": lambda x: min(x, 1.0) ** 2})


@pytest.mark.parametrize(
    ("method", "trust", "epsilon"), CONDITIONAL, ids=lambda x: getattr(x, "name", str(x))
)
def test_every_group_is_covered(method: str, trust: TrustModel, epsilon: float | None) -> None:
    task = Conformal(
        method=method, level=LEVEL, by="group", groups=("easy", "hard"), score_range=(0.0, 8.0), bins=1024
    )
    setting, rng, found = setting_of(trust, clients=8, epsilon=epsilon), np.random.default_rng(4), []
    prints = fingerprints(["easy", "hard", "unknown"])

    def client() -> dict[str, np.ndarray]:
        kind = rng.choice(3, size=90, p=[0.45, 0.45, 0.1])
        return {"conformity": np.abs(rng.normal(size=90)) * (1 + (kind == 1)), "group": prints[kind]}

    for run in range(100):
        found.append(threshold_of(task, setting, [client() for _ in range(8)], run))
    judge_parts(found, {"easy": CONTINUOUS.share_up_to, "hard": lambda x: CONTINUOUS.share_up_to(x / 2)})


# --- methods with a step left out are rejected ----------------------------------------------------------


@pytest.mark.parametrize("trust", [Plain(), SecureSum()], ids=lambda trust: trust.name)
@pytest.mark.parametrize("rows", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_a_server_rank_one_too_small_is_rejected(
    trust: TrustModel, rows: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = collected.best_server_rank

    def wrong(*args: Any, **named: Any) -> Any:
        law = right(*args, **named)
        return replace(law, server_rank=law.server_rank - 1)

    monkeypatch.setattr(collected, "best_server_rank", wrong)
    assert falls_short(coverages(Case(method="qq", trust=trust, rows=rows, bins=1024), CONTINUOUS))


NOISY = [
    replace(case, epsilon=case.epsilon / 4, bins=None, runs=100)
    for case in CASES
    if case.method == "pooled" and case.epsilon is not None
]


@pytest.mark.parametrize("case", NOISY, ids=str)
def test_a_quantile_read_off_naively_is_rejected(case: Case) -> None:
    """No margin, and the first point where the curve crosses the level instead of the last."""
    rng, values = np.random.default_rng(5), []
    task, setting = case.task, case.setting
    for run in range(case.runs):
        query = next(task.steps(setting))
        released = answer(query, setting, case.federation(GAP, rng), run)
        release = Release.of(released.value, released.noise)
        curve = curve_of(release.summary.grid, release.sums[0], release.fit, release.noise)
        crossing = int(np.argmax(curve.sums[1:] >= LEVEL * curve.rows))
        values.append(GAP.share_up_to(float(curve.grid.thresholds[crossing])))
    assert falls_short(np.array(values))


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_private_choices_with_the_ranks_of_exact_ones_are_rejected(epsilon: float) -> None:
    rng, pair = np.random.default_rng(6), best_pair(10, 100, LEVEL)
    setting = setting_of(LocalDP(), clients=10, epsilon=epsilon, rows_per_client=100)
    target = choice.Target(rank=pair.local_rank)
    losses = choice.losses_of("conformity", (), *RANGE, rows=100, candidates=100, target=target)
    values = []
    for run in range(300):
        clients = [{"conformity": GAP.draw(rng, 100)} for _ in range(10)]
        chosen = sorted(answer(Select(of=losses), setting, clients, run).value)[pair.server_rank - 1]
        values.append(GAP.share_up_to(chosen))
    assert falls_short(np.array(values))


# --- the stated numbers ---------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("scores", [CONTINUOUS, TIED], ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_coverage_over_thousands_of_federations(case: Case, scores: Scores, verify: Verify) -> None:
    found = coverages(case, scores, runs=5000 if case.epsilon is None else 2000, seed=10**6)
    error = found.std(ddof=1) / math.sqrt(len(found))
    verify(
        f"conformal sets cover at least {LEVEL:g} ({case}, {scores} scores)",
        f"{found.mean():.4f} ± {error:.4f} over {len(found):,} federations",
    )
    assert not falls_short(found)


@pytest.mark.full
@pytest.mark.parametrize("case", CONFIDENT, ids=str)
def test_confidence_over_thousands_of_federations(case: Case, verify: Verify) -> None:
    found = coverages(case, CONTINUOUS, runs=2000 if case.epsilon is None else 500, seed=10**6)
    verify(
        f"coverage reaches {LEVEL:g} with a probability of at least {case.confidence:g} ({case})",
        f"{(found >= LEVEL).mean():.3f} of {len(found):,} federations",
    )
    assert not too_rarely(found, case.confidence or 0.0)


@pytest.mark.full
@pytest.mark.parametrize("method", ["qq", "qq-paper"])
@pytest.mark.parametrize("rows", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_mean_and_spread_of_the_stated_law(method: str, rows: tuple[int, ...], verify: Verify) -> None:
    case = Case(method=method, rows=rows)
    of_mean, of_deviation, mean, deviation = agrees(case, runs=5000)
    law = next(thresholds(case, CONTINUOUS, runs=1)).law
    assert law is not None
    verify(
        f"mean and standard deviation of coverage are those of the stated law ({case})",
        f"{mean:.5f} and {deviation:.5f}, stated {law.mean:.5f} and {law.standard_deviation:.5f}",
    )
    assert abs(of_mean) < Z
    assert abs(of_deviation) < Z
