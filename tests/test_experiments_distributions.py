"""The experiments on distributions on little data: constants, estimators against brute force, the whole script."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from experiments import bands, distributions, models
from experiments import ecdf_hosmer_lemeshow as hosmer
from experiments import ecdf_roc as roc
from experiments import ecdf_synthetic as synthetic
from experiments.common import data_folder
from experiments.ecdf_mechanisms import (
    ADD,
    EXACT,
    FACTORISED,
    MECHANISMS,
    PUBLISHED,
    REPLACE,
    TREE,
    Mechanism,
)
from experiments.models import Scored
from sklearn.metrics import roc_auc_score

from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Protection, Setting
from fedassay.tasks.distribution.hosmer_lemeshow import HosmerLemeshow
from fedassay.trust import Plain
from pages import assert_shows_its_figures


def made(name: str, rows: int, seed: int) -> Scored:
    """Rows of a model whose probabilities are a little too extreme."""
    rng = np.random.default_rng(seed)
    scores = rng.beta(1, 4, rows)
    labels = rng.random(rows) < 0.8 * scores + 0.02
    return Scored(name=name, scores=scores, labels=labels.astype(np.int8))


@pytest.fixture(scope="module")
def scored() -> Scored:
    return made("made", 4000, 1)


@pytest.mark.parametrize(
    ("neighbours", "labelled", "published", "exact"),
    [
        (REPLACE, False, 11, 10),  # Theorem 1: L + 1; exactly L
        (ADD, False, 6, 6),  # Theorem 3
        (REPLACE, True, 22, 12),  # epsilon/2 for each of two curves; together 2⌈(L+1)/2⌉
        (ADD, True, 12, 6),
    ],
)
def test_the_noise_has_the_published_and_the_exact_scale(
    neighbours: object, labelled: bool, published: int, exact: int
) -> None:
    for name, nodes in ((PUBLISHED, published), (EXACT, exact)):
        mechanism = Mechanism(name=name, epsilon=0.5, points=1024, labelled=labelled, neighbours=neighbours)
        assert mechanism.plan.noise.law == "discrete-laplace"
        assert mechanism.plan.noise.scale == pytest.approx(nodes / 0.5, rel=1e-8)


@pytest.mark.parametrize("name", MECHANISMS)
def test_with_a_huge_budget_all_mechanisms_say_the_truth(name: str) -> None:
    counts = np.random.default_rng(2).poisson(3, (2, 64))
    mechanism = Mechanism(name=name, epsilon=1e4, points=64, labelled=True)
    seen = mechanism.curves(counts, SimulatedRandomness(0))
    assert seen == pytest.approx(np.cumsum(counts, axis=1), abs=0.2)


def test_a_noisy_curve_errs_by_what_theorem_1_says() -> None:
    """E = 2(L+1)³/ε². The mean of 400 runs has a relative standard error of 3 %; 13 % are four of them."""
    counts = np.random.default_rng(2).poisson(3, (1, 64))
    mechanism = Mechanism(name=PUBLISHED, epsilon=0.1, points=64)
    truth = np.cumsum(counts, axis=1)
    errors = [
        ((mechanism.curves(counts, SimulatedRandomness(run)) - truth) ** 2).mean() for run in range(400)
    ]
    expected = 2 * 7**3 / 0.1**2
    assert np.mean(errors) == pytest.approx(expected, rel=0.13)
    # The exact constant, 36/49 of the variance, is told apart.
    exact = Mechanism(name=EXACT, epsilon=0.1, points=64)
    errors = [((exact.curves(counts, SimulatedRandomness(run)) - truth) ** 2).mean() for run in range(400)]
    assert np.mean(errors) < (1 - 0.13) * expected


def by_search(curve: np.ndarray, level: float) -> int:
    """Algorithm 1, word for word, on places instead of values."""
    a, b = -1, len(curve) - 1
    while b - a > 1:
        m = (a + b) // 2
        if curve[m] < level:
            a = m
        else:
            b = m
    return b


def test_the_search_is_algorithm_1() -> None:
    rng = np.random.default_rng(3)
    for curve in (np.sort(rng.random(64)), rng.random(64)):  # monotone, and not at all
        levels = rng.random(50)
        expected = [by_search(curve, level) for level in levels]
        assert synthetic.searched(curve, levels).tolist() == expected


def test_smoothing_helps_where_noise_is_large_and_not_where_there_is_none() -> None:
    scope = synthetic.Scope(height=8, epsilons=(0.1, 20.0), runs=5)
    found = synthetic.by_epsilon(scope, REPLACE)
    for which in synthetic.SMOOTHINGS:
        noisy, quiet = (np.mean(found[PUBLISHED, which][epsilon]) for epsilon in scope.epsilons)
        assert noisy < 0.7
        assert 0.9 < quiet < 1.0 + 1e-9
    # A projection never hurts.
    assert max(value for runs in found[TREE, synthetic.ISOTONIC].values() for value in runs) <= 1 + 1e-9


def test_the_curve_of_the_grid_has_its_area(scored: Scored) -> None:
    counts = roc.counts_of(scored, 4096)
    sums = np.cumsum(counts, axis=1).astype(float)
    fpr, tpr = roc.rates(sums[0], sums[1], list(sums[:, -1]))
    assert np.trapezoid(tpr, fpr) == pytest.approx(roc_auc_score(scored.labels, scored.scores), abs=1e-3)
    fpr, tpr = roc.true_curve(scored)
    assert np.trapezoid(tpr, fpr) == pytest.approx(roc_auc_score(scored.labels, scored.scores))
    coarse, fine = (roc.floor(scored, roc.Scope(points=points)) for points in (16, 4096))
    assert fine < 0.002 < coarse


def test_areas_are_smaller_with_less_noise(scored: Scored) -> None:
    scope = roc.Scope(points=64, epsilons=(0.1, 10.0), runs=6)
    found = roc.errors(scored, scope, REPLACE)
    for name in MECHANISMS:
        for which in synthetic.SMOOTHINGS:
            noisy, quiet = (np.mean(found[name, which][epsilon]) for epsilon in scope.epsilons)
            assert quiet < noisy / 3
        assert min(found[name, roc.NONE][0.1]) == 1.0  # noise always makes the curve turn back
    assert np.mean(found[TREE, synthetic.L2][0.1]) < np.mean(found[PUBLISHED, synthetic.L2][0.1])


@pytest.mark.parametrize("method", hosmer.METHODS)
def test_without_noise_all_methods_agree(scored: Scored, method: str) -> None:
    setting = Setting(trust=Plain(), protection=Protection(), budget=None, clients=len(scored))
    answer = hosmer.asked(method, scored, setting, SimulatedRandomness(0))
    truth = float(hosmer.exact(scored)["value"])
    assert answer["value"] == pytest.approx(truth, rel=0.05)  # groups are cut at other points
    assert hosmer.equation_5(answer) == pytest.approx(answer["value"], rel=1e-6)


def test_the_free_method_is_that_of_the_task(scored: Scored) -> None:
    setting = hosmer.private(scored, 1.0, ADD)
    ours = hosmer.asked(hosmer.FREE, scored, setting, SimulatedRandomness(4))
    steps = HosmerLemeshow().steps(setting)
    query = next(steps)
    plan = setting.trust.plan(query, setting)
    total, _ = query.of.measure(scored, {})
    (release,) = setting.trust.aggregate([plan], [total], len(scored), SimulatedRandomness(4))
    with pytest.raises(StopIteration) as done:
        steps.send(release.with_value(query.of.read(release.value)))
    assert done.value.value["hosmer_lemeshow"] == ours


def test_the_published_test_cries_wolf_and_ours_does_not() -> None:
    """With labels as predicted, ε = 1 and 4,000 rows χ² rejects nearly always, the others at 5 %: of 40 runs at most 8
    but for one time in 10^4 (binomial).
    """
    scored = made("made", 4000, 6)
    scope = hosmer.Scope(epsilons=(1.0,), runs=40)
    found = hosmer.measured(scored, scope)
    assert np.mean(found[hosmer.FALSE_ALARM, hosmer.CHI_SQUARED][1.0]) > 0.5
    for method in (hosmer.CORRECTED, hosmer.FREE):
        assert sum(found[hosmer.FALSE_ALARM, method][1.0]) <= 8


def test_spots_are_means_with_quartiles() -> None:
    spot = bands.Spot.of(2.0, [0.0, 1.0, 2.0, 3.0, 10.0])
    assert (spot.x, spot.y, spot.low, spot.high) == (2.0, 3.2, 1.0, 3.0)


@pytest.mark.full
def test_the_whole_script_on_little(tmp_path: Path) -> None:
    few = [made(name, rows, seed) for seed, (name, rows) in enumerate((("a", 500), ("b", 3000), ("c", 2000)))]
    made_up = distributions.Models(framingham=few[0], bank=few[1], adult=few[2])
    distributions.main(made_up, distributions.Scope.quick(), tmp_path)
    drawn = {path.name for path in tmp_path.glob("*.svg")}
    assert drawn == {f"ecdf-{name}.svg" for name in distributions.FIGURES}
    page = (tmp_path / distributions.PAGE).read_text(encoding="utf-8")
    assert "3 runs of Figures 2 to 4" in page
    for label in (
        "| `b` | 3,000 |",
        f"| replace-one | {FACTORISED} |",
        "| no noise, the same grid |",
        "| c | free |",
    ):
        assert label in page


def test_real_data_are_scored_as_in_the_page() -> None:
    path = data_folder() / "framingham.parquet"
    if not path.exists():
        pytest.skip(f"no data: got no file {path}, set FEDASSAY_DATA to the folder of the data sets")
    scored = models.fitted("framingham")
    page = (distributions.FOLDER / distributions.PAGE).read_text(encoding="utf-8")
    auc = roc_auc_score(scored.labels, scored.scores)
    assert f"| `framingham` | {len(scored):,} | {scored.labels.mean():.3f} | {auc:.3f} |" in page


def test_the_page_shows_what_is_there() -> None:
    assert_shows_its_figures(distributions.FOLDER / distributions.PAGE, "ecdf", distributions.FIGURES)
