"""Tables, plots and pages of distributions and of the Hosmer-Lemeshow test, from the JSON alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import fedassay
from fedassay.documents import goodness
from fedassay.documents.page import page
from fedassay.tasks.distribution import document as distribution
from printing import printed, readable_page

NOISE: dict[str, Any] = {"privacy": fedassay.ServerDP(), "budget": fedassay.Budget(epsilon=1.0)}
ONCE = fedassay.Simulation(seed=1)


def rows(count: int = 2000) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    y = (rng.random(count) < 0.4).astype(np.int8)
    return {
        "site": np.arange(count) % 4,
        "[b]<income>": rng.lognormal(10 + 0.3 * y, 0.6),
        "y": y,
        "p": rng.random(count),
    }


def curve(count: int = 2000, **options: Any) -> dict[str, Any]:
    given = {"lower": 0, "upper": 100_000, "points": 64, "quantiles": [0.5, 0.9], **options}
    if isinstance(options.get("grid"), list):
        given = {**options, "quantiles": [0.5, 0.999]}
    result = fedassay.ecdf(rows(count), client="site", value="[b]<income>", simulation=ONCE, **given)
    return json.loads(result.to_json())  # type: ignore[no-any-return]


def goodness_test(count: int = 2000, **options: Any) -> dict[str, Any]:
    data = rows(count)
    data["p"] = 0.2 + 0.4 * data["p"]  # right on average, and otherwise no better than chance
    result = fedassay.hosmer_lemeshow(data, client="site", score="p", label="y", simulation=ONCE, **options)
    return json.loads(result.to_json())  # type: ignore[no-any-return]


DOCUMENTS: dict[str, Any] = {
    "exact": lambda: curve(),
    "noisy": lambda: curve(**NOISE),
    "logarithmic": lambda: curve(lower=100, upper=1e6, grid="logarithmic"),
    "given points": lambda: curve(grid=[10_000, 20_000, 50_000]),
    "one given point": lambda: curve(grid=[20_000]),
    "many points": lambda: curve(points=1 << 13),
    "labelled": lambda: curve(label="y", **NOISE),
    "one class only": lambda: one_class(),
    "more noise than rows": lambda: curve(
        20, privacy=fedassay.ServerDP(), budget=fedassay.Budget(epsilon=0.01)
    ),
    "labelled, more noise than rows": lambda: curve(
        20, label="y", privacy=fedassay.ServerDP(), budget=fedassay.Budget(epsilon=0.01)
    ),
    "no quantiles": lambda: curve(quantiles=[]),
    "test": lambda: goodness_test(),
    "test with noise": lambda: goodness_test(method="corrected", **NOISE),
    "test as published": lambda: goodness_test(method="published", **NOISE),
    "test without enough rows": lambda: goodness_test(30, **NOISE),
}


def one_class() -> dict[str, Any]:
    data = rows() | {"y": np.ones(2000, dtype=np.int8)}
    result = fedassay.ecdf(
        data, client="site", value="[b]<income>", label="y", lower=0, upper=1e5, points=16, simulation=ONCE
    )
    return json.loads(result.to_json())  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_terminal_and_page_are_made_from_every_document(name: str) -> None:
    content = DOCUMENTS[name]()
    readable_page(content)


def test_numbers_of_the_tables_are_those_of_the_document() -> None:
    content = curve(**NOISE)
    results = content["results"]
    sheet = distribution.points_table(content)
    assert len(sheet.rows) == 10
    for row, place in zip(sheet.rows, distribution.places(64), strict=True):
        point, value, band, *_ = (cell.text for cell in row)
        assert float(point.replace(",", "")) == pytest.approx(results["points"][place], rel=1e-5)
        assert float(value) == pytest.approx(results["values"][place], abs=6e-4)
        low, high = (float(end) for end in band.split(" to "))
        assert low == pytest.approx(results["lower"][place], abs=6e-3)
        assert high == pytest.approx(results["upper"][place], abs=6e-3)
    for row, entry in zip(distribution.quantiles(content).rows, results["quantiles"], strict=True):
        assert row[0].text == f"{entry['quantile']:g}"
        assert float(row[1].text.replace(",", "")) == pytest.approx(entry["value"], rel=1e-2)


def test_all_of_few_points_are_shown() -> None:
    content = curve(grid=[10_000, 20_000, 50_000])
    sheet = distribution.points_table(content)
    assert [row[0].text for row in sheet.rows] == ["10,000", "20,000", "50,000"]
    last = distribution.quantiles(content).rows[-1]
    assert [cell.text for cell in last] == ["0.999", "-", "above 50,000"]


def test_a_plot_has_no_more_points_than_pixels() -> None:
    content = curve(points=1 << 13)
    chart = distribution.distribution_plot(content).to_dict()
    drawn = chart["layer"][0]["data"]["values"]
    assert len(drawn) == distribution.MOST_DRAWN
    assert drawn[0]["points"] == content["results"]["points"][0]
    assert drawn[-1]["points"] == content["results"]["points"][-1]


def test_the_plot_has_a_logarithmic_axis_where_points_have_one() -> None:
    for content, kind in ((DOCUMENTS["logarithmic"](), "log"), (DOCUMENTS["exact"](), None)):
        axis = distribution.distribution_plot(content).to_dict()["layer"][0]["encoding"]["x"]["scale"]
        assert axis.get("type") == kind


def test_labels_add_a_roc_curve_and_the_classes() -> None:
    content = curve(label="y", **NOISE)
    html, text = page(content), printed(content)
    assert "ROC curve, AUC 0." in html
    for words in ("Classes", "positives", "negatives", "ROC AUC"):
        assert words in text
    assert html.count("<svg") == 1


def test_what_is_not_there_is_explained() -> None:
    for name in ("more noise than rows", "labelled, more noise than rows"):
        content = DOCUMENTS[name]()
        assert "not enough evidence" in page(content)
        assert "not enough evidence" in printed(content)


def test_warnings_are_on_the_page_too() -> None:
    content = curve(upper=20_000)
    assert any("outside the range" in warning for warning in content["warnings"])
    assert "outside the range" in page(content)


def test_names_from_the_data_cannot_become_markup() -> None:
    content = curve()
    assert "Distribution of [b]<income>" in printed(content)
    assert "<income>" not in page(content)


def test_a_test_has_one_row_per_group_and_a_verdict() -> None:
    content = goodness_test()
    test = content["results"]["hosmer_lemeshow"]
    sheet = [*goodness.goodness_blocks(content)][-1]
    assert len(sheet.rows) == len(test["groups"]) == 10
    for row, group in zip(sheet.rows, test["groups"], strict=True):
        assert float(row[2].text.replace(",", "")) == pytest.approx(group["observed"], abs=0.06)
        assert float(row[4].text) == pytest.approx(group["observed"] - group["expected"], abs=0.06)
    assert test["p_value"] < 0.05
    assert (
        "p < 0.001, 10 degrees of freedom: the probabilities are wrong by more than chance." in sheet.notes[0]
    )


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ({"value": None, "reason": "there are no rows"}, "There is no test: there are no rows."),
        (
            {"value": 812.0, "p_value": None, "reason": "not enough evidence for a p-value"},
            "Statistic 812.0; not enough evidence for a p-value.",
        ),
        (
            {"value": 3.0, "p_value": 0.7, "degrees_of_freedom": 1},
            "Statistic 3.0, p = 0.700, 1 degree of freedom: no evidence against the probabilities.",
        ),
    ],
)
def test_a_verdict_in_words(test: dict[str, Any], words: str) -> None:
    assert goodness.meaning(test) == words
