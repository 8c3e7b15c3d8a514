"""Scores in groups: every row in one group, by class, by declared names, or all together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedassay.data.tables import ArrayRows, StreamedRows
from fedassay.errors import DataError, UsageError
from fedassay.summaries.grouped_histogram import fingerprints
from fedassay.summaries.local_quantiles import LocalQuantile
from fedassay.summaries.scored import checked_condition, condition_names, places


def summary(**fields: object) -> LocalQuantile:
    return LocalQuantile(quantity="value", level=0.5, clients=1, **fields)


rows = st.lists(st.tuples(st.floats(-5, 5), st.integers(0, 2)), max_size=30)


@given(rows, st.integers(1, 7), st.sampled_from(["", "class", "group"]))
def test_every_score_is_in_its_group_whatever_the_batches(
    listed: list[tuple[float, int]], batch: int, by: str
) -> None:
    groups = {"": (), "class": ("0", "1", "2"), "group": ("a", "b")}[by]
    values = np.array([value for value, _ in listed])
    where = np.array([group for _, group in listed], dtype=np.int64)
    columns = {"value": values, "class": where, "group": fingerprints(["a", "b", "?"])[where]}

    def read():
        for start in range(0, len(values), batch):
            yield {name: column[start : start + batch] for name, column in columns.items()}

    asked = summary(by=by, groups=groups)
    found = asked.collected(StreamedRows(read=read))
    assert len(found) == len(asked.names) == (3 if by else 1)
    for place, scores in enumerate(found):
        mine = values[where == place] if by else values
        assert sorted(scores.tolist()) == sorted(mine.tolist())


def test_what_is_read_depends_on_what_tells_groups_apart() -> None:
    assert summary().columns == ("value",)
    assert summary(by="group", groups=("a",)).columns == ("value", "group")
    by_class = LocalQuantile(quantity="lac", level=0.9, clients=1, by="class", groups=("0", "1"))
    assert by_class.columns == ("class", "logits")


def test_names_of_groups() -> None:
    assert condition_names("class", checked_condition("class", map(str, range(3)))) == ("0", "1", "2")
    assert condition_names("group", ("F",)) == ("F", "other")


@pytest.mark.parametrize(
    ("by", "groups", "message"),
    [
        ("site", (), "got 'site', expected 'class', 'group' or nothing"),
        ("", ("a",), "nothing to tell rows apart by"),
        ("class", (), "got 0 classes, expected 1 to 1024"),
        ("class", tuple(map(str, range(1025))), "got 1025 classes"),
        ("class", ("0", "2"), "got '2' as class 1, expected '0' to '1'"),
        ("group", (), "got 0 names"),
        ("group", ("a", "other"), "leave it out"),
    ],
)
def test_bad_groups_are_refused(by: str, groups: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        summary(by=by, groups=groups)


@given(st.lists(st.integers(0, 2**31 - 1), max_size=20), st.integers(1, 5))
def test_classes_that_were_not_asked_about_count_as_the_last_one(classes: list[int], asked: int) -> None:
    """A client that refused would say which classes it has."""
    names = tuple(str(k) for k in range(asked))
    found = places({"class": np.array(classes, dtype=np.int64)}, "class", names, len(classes), quantity="lac")
    assert found.dtype == np.int64
    assert found.tolist() == [min(one, asked - 1) for one in classes]


def test_the_class_of_a_binary_classifier_is_the_label() -> None:
    one = LocalQuantile(quantity="binary", level=0.9, clients=1, by="class", groups=("0", "1"))
    assert one.columns == ("label", "score")
    columns = {"label": np.array([1, 0, 1], dtype=np.int8), "score": np.array([0.9, 0.2, 0.4])}
    zero, first = one.collected(ArrayRows(columns=columns))
    assert (zero.tolist(), first.tolist()) == ([0.2], [1 - 0.9, 0.6])


@pytest.mark.parametrize(
    ("by", "column", "message"),
    [
        ("class", np.array([0.0, 1.0]), "class: got a column of type float64, expected whole numbers"),
        ("group", np.array(["a", "b"]), "no fingerprints"),
    ],
)
def test_columns_of_another_kind_are_refused(by: str, column: np.ndarray, message: str) -> None:
    groups = ("0", "1") if by == "class" else ("a", "b")
    with pytest.raises(DataError, match=message):
        places({by: column}, by, groups, 2, quantity="lac")
    with pytest.raises(DataError, match=f"none in the role '{by}'"):
        summary(by=by, groups=groups).collected(ArrayRows(columns={"value": np.ones(2)}))
