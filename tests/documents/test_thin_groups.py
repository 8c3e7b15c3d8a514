"""A Hosmer-Lemeshow test that rests on groups with few expected rows says so, wherever it is told."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import fedassay
from fedassay.documents import goodness
from fedassay.documents.page import page
from fedassay.documents.report import key_numbers
from fedassay.tasks.evaluation import document as evaluation
from study_documents import rows


def result_of(task: Any, *, spread: float) -> dict[str, Any]:
    """A test of 6,000 rows in ten groups; a large spread puts the scores of most groups near 0 or 1."""
    data = rows()
    odds = spread * (data["severity"] - data["severity"].mean())
    given = {**data, "sure": 1 / (1 + 2.718281828**-odds)}
    plain = fedassay.Simulation(seed=1)
    result = task(given, client="hospital", score="sure", label="outcome", simulation=plain)
    return result.to_dict()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("spread", "thin"), [(0.5, False), (8.0, True)])
def test_few_expected_rows_are_a_reason_not_to_rely_on_it(spread: float, thin: bool) -> None:
    alone = result_of(fedassay.hosmer_lemeshow, spread=spread)
    groups = alone["results"]["hosmer_lemeshow"]["groups"]
    assert thin == any(min(one["expected"], one["rows"] - one["expected"]) < 5 for one in groups)
    assert (goodness.THIN in [*goodness.goodness_blocks(alone)][-1].notes) == thin
    (number,) = key_numbers(alone)
    assert number.detail == (goodness.THIN if thin else "")
    whole = result_of(fedassay.evaluate, spread=spread)
    (note,) = (
        one for one in evaluation.overall(whole["results"]).notes if one.startswith("Hosmer-Lemeshow:")
    )
    assert note.endswith(f"of freedom. {goodness.THIN}" if thin else "of freedom.")
    assert (page(alone).count(goodness.THIN), page(whole).count(goodness.THIN)) == (
        (2, 1) if thin else (0, 0)
    )


def test_few_expected_negatives_are_as_bad_as_few_expected_positives() -> None:
    for expected, thin in ((4.9, True), (5.1, False), (94.9, False), (95.1, True)):
        assert goodness.is_thin({"p_value": 0.3, "groups": [{"rows": 100, "expected": expected}]}) == thin
    assert not goodness.is_thin({"p_value": None, "groups": [{"rows": 100, "expected": 1.0}]})


def test_what_is_not_known_of_a_bucket_is_no_reason() -> None:
    results = copy.deepcopy(result_of(fedassay.evaluate, spread=0.5)["results"])
    results["reliability_curve"]["mean_score"][0] = None
    assert goodness.thin_buckets(results) == ""
    results["reliability_curve"]["mean_score"][1] = 0.001
    assert goodness.thin_buckets(results) == f" {goodness.THIN}"
    results["hosmer_lemeshow"] |= {"value": None, "p_value": None}
    assert goodness.thin_buckets(results) == ""
