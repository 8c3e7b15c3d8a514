"""Subgroups: each says what an evaluation of its rows says, and together they are the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import fedassay
from binormal import NoisyServer, Population
from fedassay.data.federation import load
from fedassay.errors import DataError, UsageError
from fedassay.protocol.vocabulary import Budget, Noise, Released, Sum
from fedassay.summaries.grouped_histogram import GroupedHistogram
from fedassay.tasks.evaluation import Evaluate
from fedassay.tasks.evaluation.evaluate import MOST_NUMBERS, whole
from fedassay.trust import TRUST_MODELS

NAMES = ("F", "M", "X")


def rows(count: int = 3_000, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    p, y = Population(0.4, shift=0.2).sample(count, rng)
    return {
        "site": rng.integers(0, 5, count),
        "p": p,
        "y": y,
        "sex": rng.choice(NAMES, count, p=(0.5, 0.4, 0.1)),
    }


def evaluated(data: Any, **options: Any) -> fedassay.Result:
    return fedassay.evaluate(data, client="site", score="p", label="y", **options)


@pytest.mark.parametrize("trust", [fedassay.Plain(), fedassay.SecureSum()], ids=["plain", "secure-sum"])
def test_each_group_is_evaluated_as_if_it_were_alone(trust: Any) -> None:
    data = rows()
    result = evaluated(data, by="sex", groups=["M", "F"], privacy=trust, thresholds=(0.5, 0.2))
    assert [entry["group"] for entry in result["groups"]] == ["M", "F", "other"]
    for entry, name in zip(result["groups"], ("M", "F", "X"), strict=True):
        mine = {column: values[data["sex"] == name] for column, values in data.items()}
        alone = evaluated(mine, privacy=trust, thresholds=(0.5, 0.2))
        assert entry["rows"] == (data["sex"] == name).sum()
        for metric in entry.keys() - {"group", "rows"}:
            assert entry[metric] == alone[metric], metric
    everybody = evaluated(data, privacy=trust, thresholds=(0.5, 0.2))
    for name, value in everybody.results.items():
        assert result[name] == value, name


def test_groups_that_are_not_declared_are_looked_up_and_a_warning_says_so() -> None:
    data = rows()
    result = evaluated(data, by="sex")
    assert [entry["group"] for entry in result["groups"]] == [*NAMES, "other"]
    assert result["groups"][-1]["rows"] == 0
    assert result["groups"][-1]["roc_auc"]["reason"] == "there are no positive rows"
    assert any("In a release they must be declared" in warning for warning in result.warnings)
    declared = evaluated(data, by="sex", groups=NAMES)
    assert declared.warnings == ()
    assert declared["groups"] == result["groups"]
    assert result.parameters["groups"] == NAMES
    assert result.parameters["by"] == "sex"


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (lambda n: np.arange(n) % 3, ["0", "1", "2"]),
        (lambda n: np.arange(n) % 2 == 0, ["false", "true"]),
        (lambda n: (np.arange(n) % 2).astype(float), ["0", "1"]),
        (lambda n: pd.Categorical(np.array(["b", "a"])[np.arange(n) % 2]), ["a", "b"]),
        (lambda n: np.where(np.arange(n) % 2 == 0, "other", "a"), ["a"]),
        (
            lambda n: (
                pd.Series(pd.to_datetime("2026-01-01") + pd.to_timedelta(np.arange(n) % 2, "D")).dt.date
            ),
            None,
        ),
    ],
    ids=["integers", "truth values", "whole floats", "categories", "other", "dates"],
)
def test_names_of_many_types(values: Any, names: list[str] | None) -> None:
    data = rows(400)
    frame = pd.DataFrame({**data, "sex": values(400)})
    result = evaluated(frame, by="sex")
    assert [entry["group"] for entry in result["groups"][:-1]] == (names or ["2026-01-01", "2026-01-02"])
    assert sum(entry["rows"] for entry in result["groups"]) == 400


def test_an_arrow_stream_can_be_grouped_and_compared_by_site() -> None:
    stream = pa.table(rows(600)).to_reader()
    result = fedassay.evaluate(
        stream, client="site", score="p", label="y", by="sex", per_site=True, privacy=fedassay.Plain()
    )
    assert len(result["groups"]) == 4
    assert [site["site"] for site in result["sites"]] == list("01234")


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (
            {"sex": [None] + ["F"] * 99},
            {},
            r"column 'sex' \(group\): got 1 bad value in 100 rows, the first in row 0",
        ),
        ({"sex": [""] + ["F"] * 99}, {}, "fill in a word such as unknown"),
        ({"sex": [0.5] * 100}, {}, "100 bad values"),
        ({"sex": ["x" * 101] + ["F"] * 99}, {}, "a name of at most 100 characters"),
        ({"sex": [str(i) for i in range(100)]}, {}, "got more than 64 different values"),
        ({"sex": ["other"] * 100}, {}, "got no value besides 'other'"),
        ({}, {"by": "sect"}, r"column 'sect' \(group\): got no such column, .*did you mean 'sex'"),
    ],
)
def test_bad_group_columns_get_one_sentence(change: dict[str, Any], options: Any, message: str) -> None:
    data = {name: list(values[:100]) for name, values in rows(100).items()} | change
    with pytest.raises(DataError, match=message):
        evaluated(data, **{"by": "sex", **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": ["F"]}, "groups: got names without a column"),
        ({"by": "sex", "groups": ["F", "F"]}, "got 'F' twice"),
        ({"by": "sex", "groups": ["other"]}, "leave it out"),
        ({"by": "p"}, "got 'p' as score and as group"),
        ({"by": "sex", "versus": "q"}, "versus: got it together with `by`"),
    ],
)
def test_bad_combinations_get_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        evaluated({**rows(100), "q": np.zeros(100)}, **options)


def test_clients_can_be_the_groups() -> None:
    """What to do where sites may not be seen exactly: the client column, with noise."""
    result = evaluated(rows(), by="site", privacy=fedassay.ServerDP(), budget=Budget(epsilon=5.0))
    assert [entry["group"] for entry in result["groups"]] == [*"01234", "other"]


@pytest.mark.parametrize("trust", sorted(TRUST_MODELS))
@pytest.mark.parametrize("mode", ["faithful", "aggregate"])
def test_groups_run_under_every_trust_model(trust: str, mode: Any) -> None:
    model = TRUST_MODELS[trust]()
    result = evaluated(
        rows(),
        by="sex",
        groups=["F", "M"],
        privacy=model,
        budget=Budget(epsilon=8.0) if model.private else None,
        protection=fedassay.Protection(rows_per_client=700 if trust == "two-server" else None),
        height=6 if trust == "two-server" else None,  # every key is evaluated at every bin
        simulation=fedassay.Simulation(seed=1, mode=mode),
    )
    sizes = [entry["rows"] for entry in result["groups"]]
    assert sizes == pytest.approx([1_500, 1_200, 300], abs=150)
    # Each is a least-squares fit of its own, with its own weights of the levels.
    assert result["histogram"]["rows"] == pytest.approx(sum(sizes), rel=0.01)
    truth = Population(0.4, shift=0.2).truth(0.5)["roc_auc"]
    for entry in result["groups"][:2]:
        low, high = entry["roc_auc"]["interval"]
        assert low - 0.03 <= truth <= high + 0.03


def test_one_row_clients_say_their_group_by_randomised_bits() -> None:
    """Local DP with unary encoding: a level's cells of all groups are one partition."""
    result = fedassay.evaluate(
        rows(6_000),
        score="p",
        label="y",
        by="sex",
        groups=["F", "M"],
        privacy=TRUST_MODELS["local-dp"](),
        budget=Budget(epsilon=8.0),
        protection=fedassay.Protection(rows_per_client=1),
        simulation=fedassay.Simulation(seed=4),
    )
    assert result["histogram"]["noise"]["law"] == "unary"
    sizes = [entry["rows"] for entry in result["groups"]]
    assert sizes == pytest.approx([3_000, 2_400, 600], abs=450)
    # Each is a least-squares fit of its own, with its own weights of the levels.
    assert result["histogram"]["rows"] == pytest.approx(sum(sizes), rel=0.01)
    truth = Population(0.4, shift=0.2).truth(0.5)["roc_auc"]
    for metric in (result["roc_auc"], *(entry["roc_auc"] for entry in result["groups"][:2])):
        low, high = metric["interval"]
        assert low - 0.02 <= truth <= high + 0.02
        assert high - low < 0.2


def test_the_noise_of_the_whole_is_that_of_all_groups() -> None:
    summary = GroupedHistogram(groups=("a", "b"), transform="uniform", height=3)
    noise = Noise(law="discrete-laplace", scale=2.0, variance=7.5, copies=1.5)
    total = np.arange(summary.length)
    released = whole(Released(value=summary.read(total), noise=noise, clients=9))
    assert released.noise == Noise(law="discrete-laplace", scale=2.0, variance=22.5, copies=4.5)
    assert np.array_equal(released.value.positives, total.reshape(3, 2, 8)[:, 0].sum(0))
    assert released.clients == 9


def test_one_query_with_the_whole_budget_and_the_levels_that_serve_the_auc() -> None:
    setting = NoisyServer(epsilon=1.0).setting()
    query = next(Evaluate(groups=("a", "b")).steps(setting))
    assert isinstance(query, Sum)
    assert query.share == 1.0
    assert query.of.histogram == Evaluate().histogram(setting)


@pytest.mark.parametrize(("groups", "height"), [(1, 15), (7, 15), (8, 14), (64, 11)])
def test_many_groups_get_coarser_bins_rather_than_longer_vectors(groups: int, height: int) -> None:
    setting = NoisyServer().setting()
    names = tuple(str(i) for i in range(groups))
    query = next(Evaluate(groups=names).steps(setting))
    assert query.of.height == height
    assert query.of.length <= MOST_NUMBERS
    assert next(Evaluate(groups=names, height=13).steps(setting)).of.height == 13


def test_rows_keep_their_group_in_every_store() -> None:
    data = rows(500)
    columns = {"score": "p", "label": "y", "group": "sex"}
    kept = []
    for limit in (0, 2**30):
        federation = load(data, client="site", columns=columns, memory_limit=limit)
        kept.append([int(one) for batch in federation.rows_of("3").batches() for one in batch["group"]])
    assert kept[0] == kept[1]
    assert len(set(kept[0])) == 3
