"""The cohort of a result counts its rows, whatever the kinds of its tasks call them."""

from __future__ import annotations

import pytest

from fedassay.tasks.card import rows_of

EVALUATION = {"task": "evaluate", "results": {"histogram": {"rows": 40.0}}}
CURVE = {"task": "ecdf", "results": {"rows": {"value": 30.0}}}
UNKNOWN = {"task": "conformal", "results": {"rows": None}}


def test_the_groups_of_a_test_are_counted_where_no_histogram_is_released() -> None:
    groups = {"hosmer_lemeshow": {"groups": [{"rows": 3.0}, {"rows": 4.0}]}}
    assert rows_of("hosmer-lemeshow", groups) == 7.0
    assert rows_of("hosmer-lemeshow", {**groups, "histogram": {"rows": 8.0}}) == 8.0
    assert rows_of("hosmer-lemeshow", {"hosmer_lemeshow": {"groups": None}}) is None


@pytest.mark.parametrize(
    ("entries", "rows"),
    [
        ((CURVE, EVALUATION), 40.0),
        ((EVALUATION, CURVE), 40.0),
        ((UNKNOWN, CURVE), 30.0),
        ((UNKNOWN,), None),
    ],
)
def test_of_a_study_the_first_kind_in_reports_that_tells_counts(
    entries: tuple[dict[str, object], ...], rows: float | None
) -> None:
    assert rows_of("study", {"tasks": {str(number): one for number, one in enumerate(entries)}}) == rows
