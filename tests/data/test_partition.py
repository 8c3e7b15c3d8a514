"""Partitions: every row goes to exactly one simulated client, alike in every form of the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logits_forms import COLUMNS, FORMS, LIMITS, joined, numbered, small

import fedassay
from fedassay.api.terms import EntryTerms, Roles
from fedassay.data.federation import Federation, load
from fedassay.data.inventory import client_names
from fedassay.data.partition import MOST_CLIENTS, DealtRows, Partition, dirichlet
from fedassay.data.tables import ArrayRows
from fedassay.errors import DataError, UsageError

NAMES = {"label": "y", "value": "v"}


def owners_of(federation: Federation) -> np.ndarray:
    return joined(federation.pooled().by_client, "client")


@given(
    labels=st.lists(st.integers(0, 1), min_size=1, max_size=60),
    clients=st.integers(1, 130),
    spec=st.sampled_from(["iid", "dirichlet:1e-300", "dirichlet:0.1", "dirichlet:1", "dirichlet:1e300"]),
    seed=st.integers(0, 2**64),
)
@settings(max_examples=60, deadline=None)
def test_every_row_has_exactly_one_client(labels: list[int], clients: int, spec: str, seed: int) -> None:
    data = {"y": np.array(labels), "v": np.arange(float(len(labels)))}
    partition = Partition(spec, clients=clients, seed=seed)
    found = {}
    for limit in LIMITS:
        federation = load(data, client=partition, columns=NAMES, memory_limit=LIMITS[limit])
        assert federation.client_count == clients
        assert federation.row_count == len(labels)
        assert not federation.one_row_each
        by_client = [
            np.concatenate([np.empty(0), *(batch["value"] for batch in federation.rows_of(name).batches())])
            for name in federation.clients
        ]
        assert [len(one) for one in by_client] == federation.rows_per_client.tolist()
        assert sorted(np.concatenate(by_client)) == data["v"].tolist()
        assert all((np.diff(one) > 0).all() for one in by_client)  # the order of the data
        owners = owners_of(federation)
        assert all((owners[one.astype(int)] == k).all() for k, one in enumerate(by_client))
        assert np.array_equal(joined(federation.pooled(), "value"), data["v"])
        silent = int((federation.rows_per_client == 0).sum())
        assert len(federation.warnings) == (silent > 0)
        found[limit] = owners.tolist()
    assert found["in memory"] == found["streamed"]
    if spec == "iid":
        sizes = np.bincount(owners, minlength=clients)
        assert sizes.max() - sizes.min() <= 1


@given(
    counts=st.lists(st.integers(0, 300), min_size=1, max_size=5),
    clients=st.integers(1, 20),
    beta=st.sampled_from([0.01, 0.3, 5.0, 1e4]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_classes_are_dealt_by_shares(counts: list[int], clients: int, beta: float, seed: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    owners = Partition(f"dirichlet:{beta}", clients=clients, seed=seed).deal(labels)
    assert owners.shape == labels.shape
    assert ((owners >= 0) & (owners < clients)).all()
    if beta == 1e4:  # shares are nearly equal, and rounding moves one row at most
        for label, count in enumerate(counts):
            sizes = np.bincount(owners[labels == label], minlength=clients)
            assert np.abs(sizes - count / clients).max() <= 1 + 0.1 * count / clients


@given(st.floats(5e-324, 1.7e308), st.integers(1, 50), st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_shares_of_every_law_sum_to_one(beta: float, clients: int, seed: int) -> None:
    shares = dirichlet(beta, clients, np.random.default_rng(seed))
    assert shares.shape == (clients,)
    assert (shares >= 0).all()
    assert shares.sum() == pytest.approx(1)


@pytest.mark.parametrize("limit", LIMITS)
def test_every_form_of_the_data_is_dealt_alike(limit: str, tmp_path: Path) -> None:
    data = small()
    partition = Partition("dirichlet:0.3", clients=6, seed=5)
    expected = partition.deal(data["y"])
    for form in ("2-D array", "parquet list", "npz", "pandas, lists", "polars list", "list", "numbered, csv",
                 "numbered, parquet", "numbered, sqlite", "arrow stream"):  # fmt: skip
        made = FORMS[form](data, tmp_path)
        federation = load(made, client=partition, columns=COLUMNS, memory_limit=LIMITS[limit])
        assert np.array_equal(owners_of(federation), expected), form
        assert list(federation.clients) == [f"client-00{k}" for k in range(1, 7)]
        mine = np.flatnonzero(federation.rows_per_client)[0]
        rows = federation.rows_of(federation.clients[mine])
        assert np.array_equal(joined(rows), data["z"][expected == mine]), form


@pytest.mark.parametrize("limit", LIMITS)
def test_the_files_of_a_folder_are_dealt_as_one_table(limit: str, tmp_path: Path) -> None:
    data = {name: column[:90] for name, column in small().items()}
    for k, part in enumerate(np.split(np.arange(90), [20, 60])):
        np.savez(tmp_path / f"{k}.npz", **{name: column[part] for name, column in data.items()})
    (tmp_path / "3.csv").touch()
    partition = Partition("dirichlet:0.5", clients=4, seed=1)
    federation = load(tmp_path, client=partition, columns=COLUMNS, memory_limit=LIMITS[limit])
    assert np.array_equal(owners_of(federation), partition.deal(data["y"]))
    assert federation.client_count == 4
    by_column = load(tmp_path, client=Partition("by:site"), columns=COLUMNS, memory_limit=LIMITS[limit])
    assert list(by_column.clients) == ["a", "b", "c"]
    assert np.array_equal(joined(by_column.rows_of("a")), data["z"][data["site"] == "a"])


def test_seeds() -> None:
    data = {"v": np.arange(300.0)}

    def dealt(client: Any) -> list[int]:
        return owners_of(load(data, client=client, columns={"value": "v"})).tolist()

    iid = Partition("iid", clients=10)
    assert dealt(iid) != dealt(iid)  # 10^-280
    assert dealt(iid.seeded(3)) == dealt(iid.seeded(3)) == dealt(Partition("iid", clients=10, seed=3))
    assert dealt(iid.seeded(3)) != dealt(iid.seeded(4))
    assert Partition("iid", clients=10, seed=3).seeded(4).seed == 3
    assert iid.seeded(None).seed != iid.seeded(None).seed
    assert Partition("by:site").seeded(3) == Partition("by:site")


def test_entry_points_deal_once_however_often_they_read() -> None:
    for simulation, seed in ((fedassay.Simulation(seed=7), 7), (fedassay.Simulation(), None)):
        terms = EntryTerms.of(None, None, None, simulation)
        client = terms.roles(Partition("iid", clients=4), value="v").client
        assert isinstance(client, Partition)
        assert client.seed is not None
        assert seed is None or client.seed == seed
        assert terms.roles(Partition("iid", clients=4, seed=2), value="v").client.seed == 2  # type: ignore[union-attr]
    assert Roles(names={"value": "v"}, client="site").to_json() == {"client": "site", "value": "v"}
    with pytest.raises(UsageError, match="got 'v' as target and as prediction"):
        Roles(names={"target": "v", "prediction": "v"}, client=Partition("iid", clients=4))


def test_the_comparison_on_held_out_rows_sees_the_clients_of_the_run() -> None:
    rng = np.random.default_rng(2)
    data = {"y": rng.normal(size=400), "p": np.zeros(400)}
    options = {
        "target": "y",
        "prediction": "p",
        "privacy": fedassay.Plain(),
        "method": "average",
        "holdout": 0.5,
    }
    result = fedassay.conformal(data, client=Partition("iid", clients=4), **options)
    assert [one["site"] for one in result["sites"]] == [f"client-00{k}" for k in range(1, 5)]
    # The mean of the clients' quantiles, found by the run and again by the comparison: alike only for the same clients.
    means = [one["threshold"] for one in result["comparison"] if one["method"] == "average"]
    assert means == pytest.approx([result["threshold"]] * 2, rel=1e-12)


def test_results_do_not_depend_on_who_holds_rows_and_say_how_they_were_dealt() -> None:
    data = small()
    given = {"logits": "z", "label": "y", "simulation": fedassay.Simulation(seed=1)}
    whole = fedassay.evaluate(data, client="site", **given)
    for client in (Partition("dirichlet:0.1", clients=40), Partition("iid", clients=3), Partition("by:site")):
        result = fedassay.evaluate(data, client=client, **given)
        assert result["log_loss"] == whole["log_loss"]
        assert result.parameters["partition"] == client.spec
        assert result.parameters.get("clients") == client.clients
    assert result.parameters["client"] == "site"
    assert "partition" not in whole.parameters


def test_names_have_as_many_digits_as_they_need() -> None:
    names = Partition("iid", clients=1234).names
    assert (names[0], names[-1], names.index("client-0077")) == ("client-0001", "client-1234", 76)
    assert client_names({}, Partition("iid", clients=2)) == ("client-001", "client-002")
    assert client_names({"site": [2, 1]}, Partition("by:site")) == ("1", "2")
    assert Partition("iid", clients=np.int64(5)).clients == 5


@pytest.mark.parametrize(
    ("spec", "options", "words"),
    [
        ("", {"clients": 3}, "partition: got '', expected iid, dirichlet:BETA (dirichlet:0.1, say) or by:COLUMN."),
        ("IID", {"clients": 3}, "partition: got 'IID', expected"),
        ("iid:", {"clients": 3}, "partition: got 'iid:', expected"),
        ("dirichlet", {"clients": 3}, "partition: got 'dirichlet', expected iid"),
        ("dirichlet:", {"clients": 3}, "partition: got 'dirichlet:', expected iid"),
        ("by:", {}, "partition: got 'by:', expected"),
        (0.1, {"clients": 3}, "partition: got 0.1, expected"),
        ("dirichlet:x", {"clients": 3}, "got 'dirichlet:x', expected a finite number above 0 after the colon"),
        ("dirichlet:0", {"clients": 3}, "expected a finite number above 0"),
        ("dirichlet:-1", {"clients": 3}, "expected a finite number above 0"),
        ("dirichlet:nan", {"clients": 3}, "expected a finite number above 0"),
        ("dirichlet:inf", {"clients": 3}, "expected a finite number above 0"),
        ("iid", {}, "clients: got none, expected over how many clients rows are dealt; give `clients`."),
        ("iid", {"clients": 0}, "clients: got 0, expected a whole number from 1 to 1,000,000."),
        ("iid", {"clients": MOST_CLIENTS + 1}, "clients: got 1000001, expected"),
        ("iid", {"clients": 2.5}, "clients: got 2.5, expected"),
        ("iid", {"clients": True}, "clients: got True, expected"),
        ("iid", {"clients": 3, "seed": -1}, "seed: got -1"),
        ("by:site", {"clients": 3}, "clients: got 3 with by:site, whose column says which clients there are"),
    ],
)  # fmt: skip
def test_what_is_no_partition(spec: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        Partition(spec, **options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_skew_needs_labels() -> None:
    partition = Partition("dirichlet:1", clients=2)
    with pytest.raises(
        UsageError, match=r"dirichlet:1, which deals rows by their labels, but no column of labels"
    ):
        load("nowhere.csv", client=partition, columns={"value": "v"})  # before the data are opened
    with pytest.raises(UsageError, match=r"give `label` if there are labels, or `partition='iid'`"):
        fedassay.ecdf("nowhere.csv", value="v", lower=0, upper=1, client=partition)
    assert partition.label_role({"label": "y", "score": "p"}) == "label"
    assert partition.label_role({"logits": "z", "class": "y"}) == "class"


def test_a_bad_column_is_said_before_rows_are_dealt() -> None:
    partition = Partition("dirichlet:1", clients=2)
    with pytest.raises(DataError, match=r"column 'y' .label.: got 1 bad value in 3 rows"):
        load({"y": [0, 1, 2]}, client=partition, columns={"label": "y"})
    with pytest.raises(DataError, match="got no rows"):
        load({"y": []}, client=partition, columns={"label": "y"})
    empty = load({"y": []}, client=partition, columns={"label": "y"}, empty_is_fine=True)
    assert (empty.client_count, empty.row_count) == (2, 0)


def test_rows_that_appear_later_belong_to_nobody() -> None:
    rows = ArrayRows(columns={"value": np.arange(5.0)})
    store = DealtRows(rows=rows, owners=np.zeros(4, dtype=np.int32))
    with pytest.raises(DataError, match="got more than the 4 that were dealt to clients"):
        list(store.pooled_by_client().batches())


def test_numbered_columns_are_dealt_by_their_classes() -> None:
    data = numbered(small())
    federation = load(data, client=Partition("dirichlet:0.1", clients=50, seed=0), columns=COLUMNS)
    assert federation.warnings[0].startswith(
        f"{(federation.rows_per_client == 0).sum()} of 50 clients have no rows"
    )
