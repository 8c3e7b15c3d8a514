"""The experiments on a small synthetic data set, and their estimators against brute force and scikit-learn."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from experiments import common, judges, published, rates, three_privacy_models
from experiments.common import (
    DISTRIBUTED,
    FEDERATED,
    LOCAL,
    PUBLISHED,
    SAME_BINS,
    Case,
    Point,
    Sample,
)
from experiments.measured import Scope
from experiments.plots import Dot
from sklearn.metrics import accuracy_score, precision_score, recall_score, roc_auc_score

from fedassay.estimation.confusion import Confusion, decision_metrics
from fedassay.estimation.ranking import roc_auc
from fedassay.estimation.tree import Tree
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.tasks.calibration.methods import fit


@pytest.fixture(scope="module")
def sample() -> Sample:
    rng = np.random.default_rng(5)
    scores = np.round(rng.beta(2, 3, 3000), 3)  # with ties
    return Sample.of("synthetic", scores, (rng.random(3000) < scores).astype(np.int8))


def greedy(tree: Tree, nodes: np.ndarray, edge: int) -> float:
    """The sum up to an edge from as few segments as possible, as the paper describes it."""
    total, start = 0.0, 0
    for width, level in sorted(zip(tree.widths, tree.split(nodes), strict=True), key=lambda pair: -pair[0]):
        while edge - start >= width:
            total += level[start // width]
            start += width
    return total


def test_dyadic_sums_are_the_greedy_ones() -> None:
    tree = Tree(leaves=64, widths=(1, 2, 4, 8, 16, 32))
    nodes = np.random.default_rng(1).normal(size=tree.length)  # levels that contradict each other
    expected = [greedy(tree, nodes, edge) for edge in range(65)]
    assert published.dyadic_prefixes(tree, nodes) == pytest.approx(expected)


def test_truths_are_those_of_scikit_learn(sample: Sample) -> None:
    seen = judges.exact_decisions(sample)
    scorers = {"precision": precision_score, "recall": recall_score, "accuracy": accuracy_score}
    for place, threshold in enumerate(common.THRESHOLDS):
        for name, score in scorers.items():
            options = {} if name == "accuracy" else {"zero_division": 0}
            expected = score(sample.labels, sample.scores >= threshold, **options)
            assert seen[name][place] == pytest.approx(expected)
    assert judges.exact_auc(sample) == pytest.approx(roc_auc_score(sample.labels, sample.scores))


@pytest.mark.parametrize("variant", [PUBLISHED, SAME_BINS])
def test_without_noise_all_variants_read_the_same_bins(sample: Sample, variant: str) -> None:
    evidence = Case(model=FEDERATED, variant=variant, height=10).evidence(sample, SimulatedRandomness(0))
    binned = np.floor(sample.scores * 1024)
    expected = roc_auc_score(sample.labels, binned)
    assert published.bucket_auc(evidence, list(range(1025))) == pytest.approx(expected)
    assert roc_auc(evidence).value == pytest.approx(expected)


def test_without_noise_the_published_calibrators_are_those_of_the_library(sample: Sample) -> None:
    evidence = Case(model=FEDERATED, variant=PUBLISHED, height=8).evidence(sample, SimulatedRandomness(0))
    theirs = {"bbq": published.bbq(evidence), "histogram": published.histogram_binning(evidence, 14)}
    scores = np.linspace(0, 1, 999)
    for method, calibrator in theirs.items():
        ours = fit(evidence, method).fitted
        assert ours is not None
        assert calibrator(scores) == pytest.approx(ours.map(scores))


def test_values_are_those_of_the_library(sample: Sample) -> None:
    evidence = Case(model=DISTRIBUTED, variant=common.DEFAULT).evidence(sample, SimulatedRandomness(0))
    assert judges.auc(evidence, Case(model=DISTRIBUTED, variant=common.DEFAULT)) == roc_auc(evidence).value
    seen = judges.decisions_at(evidence, common.THRESHOLDS)
    for name in judges.DECISIONS:
        metric = decision_metrics(Confusion.at(evidence, common.THRESHOLDS[4]))[name]
        assert seen[name][4] == pytest.approx(metric.value)


@pytest.mark.parametrize("model", [DISTRIBUTED, LOCAL], ids=lambda model: model.name)
def test_least_squares_beat_dyadic_sums(sample: Sample, model: common.Model) -> None:
    """The exact ratios of noise are above 1.5; over 40 repetitions a mean moves by less than 15 %."""
    cases = {variant: Case(model=model, variant=variant) for variant in (PUBLISHED, SAME_BINS)}
    points = common.measure(sample, {20_000: cases.values()}, judges.of_metrics, repetitions=40, seed=3)
    theirs, ours = (points[20_000, cases[variant], ("recall",)].mean for variant in (PUBLISHED, SAME_BINS))
    assert ours < theirs / 1.2


def test_more_clients_help_local_dp_by_the_root(sample: Sample) -> None:
    case = Case(model=LOCAL, variant=SAME_BINS, height=6)
    points = common.measure(
        sample, {2_000: [case], 200_000: [case]}, judges.of_metrics, repetitions=20, seed=3
    )
    few, many = (points[rows, case, ("accuracy",)].mean for rows in (2_000, 200_000))
    assert 4 < few / many < 25


def test_repetitions_have_seeds_of_their_own(sample: Sample) -> None:
    case = Case(model=DISTRIBUTED, variant=PUBLISHED)

    def means(seed: int) -> list[float]:
        points = common.measure(sample, {500: [case]}, judges.of_metrics, repetitions=2, seed=seed)
        return [point.mean for point in points.values()]

    assert means(1) == means(1)
    assert means(1) != means(2)


def test_slopes_are_exponents() -> None:
    dots = [Dot(x=x, point=Point(mean=3 * x**-0.5, low=0, high=1, number=1)) for x in (1.0, 10.0, 50.0, 99.0)]
    slope = rates.Slope.of(dots, 1, 100)
    assert slope is not None
    assert slope.value == pytest.approx(-0.5)
    assert rates.Slope.of(dots, 1, 20) is None


@pytest.mark.full
def test_the_whole_script_on_little(sample: Sample, tmp_path: Path) -> None:
    names = ("run", "rates synthetic", "gains", "costs")
    (tmp_path / three_privacy_models.PAGE).write_text(
        "".join(f"<!-- {name} --><!-- end -->\n" for name in names)
    )
    scope = Scope(
        heights=(4, 6, 8),
        sizes=(1000, 3162, 10_000),
        epsilons=(0.5, 1.0, 2.0),
        rows=2000,
        messengers=30,
        repetitions=2,
    )
    (seen,) = three_privacy_models.main([sample], scope, tmp_path)
    drawn = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert drawn == sorted(f"{name}-synthetic.svg" for name in three_privacy_models.FIGURES)
    assert all(path.stat().st_size < 150_000 for path in tmp_path.glob("*.svg"))
    page = (tmp_path / three_privacy_models.PAGE).read_text(encoding="utf-8")
    assert "seed 20231115, 2 repetitions" in page
    assert page.count("\n| ") == 3 * 2 + len(rates.table(seen)) + len(rates.gains(seen)) + 5
    assert "| `local-dp` | 2^" in page


def test_the_page_shows_what_is_there() -> None:
    folder = Path(__file__).parents[1] / "docs" / "experiments"
    page = (folder / three_privacy_models.PAGE).read_text(encoding="utf-8")
    shown = set(re.findall(r"\]\(([a-z-]+\.svg)\)", page))
    # Those of the other pages: distributions, prediction sets, multiclass calibration, online intervals.
    others = {
        path.name
        for kind in ("ecdf", "conformal", "multiclass", "inference")
        for path in folder.glob(f"{kind}-*.svg")
    }
    assert shown == {path.name for path in folder.glob("*.svg")} - others
    assert len(shown) == len(three_privacy_models.FIGURES) * len(common.SOURCES)
    assert all(path.stat().st_size < 150_000 for path in folder.glob("*.svg"))
