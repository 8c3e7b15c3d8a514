"""Tables and forest plots of groups, sites and a second model, from the JSON alone, whatever is undefined in it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import fedassay
from fedassay.documents.comparisons import forest, is_compared, tables
from fedassay.documents.page import page
from fedassay.documents.plots import as_svg
from fedassay.tasks.evaluation import document as evaluation
from printing import assert_it_fits_a_narrow_terminal, printed, simulated


def document(*, sites: int = 5, positives: float = 0.4, **options: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    rows = 300 * sites
    data = {
        "site": rng.integers(0, sites, rows),
        "p": rng.random(rows),
        "q": rng.random(rows),
        "y": (rng.random(rows) < positives).astype(np.int8),
        "sex": np.where(rng.random(rows) < 0.5, "[b]<F>", "M"),
    }
    return simulated(fedassay.evaluate, data, score="p", **options)


NOISE = {"privacy": fedassay.ServerDP(), "budget": fedassay.Budget(epsilon=0.02)}
CASES: dict[str, tuple[dict[str, Any], list[str], bool]] = {
    "groups": ({"by": "sex"}, ["By group"], True),
    "groups that drown": ({"by": "sex", **NOISE}, ["By group"], True),
    "sites": ({"per_site": True, "privacy": fedassay.Plain()}, ["By site", "Between sites"], True),
    "hidden sites": ({"per_site": True}, ["Between sites"], False),
    "sites of one class": (
        {"per_site": True, "positives": 0.0, "privacy": fedassay.Plain()},
        ["By site", "Between sites"],
        True,
    ),
    "models": ({"versus": "q"}, ["Against the second model"], False),
    "models that drown": ({"versus": "q", **NOISE}, ["Against the second model"], False),
    "sites and models": (
        {"per_site": True, "versus": "q", "privacy": fedassay.Plain()},
        ["Against the second model", "By site", "Between sites"],
        True,
    ),
}


DRAWN = {"groups that drown": 0, "models that drown": 0, "sites of one class": 2}
"""Curves of the model, where not all of them have points."""


@functools.cache
def case(name: str) -> tuple[dict[str, Any], str]:
    """The document of a case, to be read, and its page."""
    content = document(**CASES[name][0])
    return content, page(content)


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_comparison_has_its_tables_and_plots(name: str) -> None:
    _, titles, planted = CASES[name]
    content, html = case(name)
    results = content["results"]
    made = list(tables(results))
    assert [sheet.title for sheet in made] == titles
    for sheet in made:
        assert all(len(row) == len(sheet.head) for row in sheet.rows)
    text, known = printed(content), evaluation.is_known(results)
    assert known == ("drown" not in name)
    for title in titles:
        assert (title in text) == (f">{title}</h3>" in html) == known
    assert is_compared(results) == planted
    assert_it_fits_a_narrow_terminal(content)
    assert html.count("<svg") == html.count("<figure") == DRAWN.get(name, 5) + 3 * (planted and known)


def test_names_from_the_data_cannot_become_markup() -> None:
    content, html = case("groups")
    assert "[b]<F>" in printed(content)
    assert "<F>" not in html
    assert "[b]&lt;F&gt;" in html


def test_numbers_of_the_tables_are_those_of_the_document() -> None:
    content, _ = case("sites")
    by_site, between = tables(content["results"])
    for row, site in zip(by_site.rows, content["results"]["sites"], strict=True):
        assert row[0].text == site["site"]
        assert row[1].text == f"{site['rows']:,.0f}"
        assert float(row[2].text) == pytest.approx(site["roc_auc"]["value"], abs=1e-3)
    entry = content["results"]["heterogeneity"]["roc_auc"]
    assert between.rows[0][1].text == "5"
    assert between.rows[0][4].detail == "logit scale"
    assert between.rows[0][5].text == f"{entry['i2']:.0%}"


def test_what_is_not_there_is_explained_once() -> None:
    content, _ = case("groups that drown")
    (sheet,) = tables(content["results"])
    assert all(note.split(":")[1].strip() == "not enough evidence" for note in sheet.notes)
    assert len(set(sheet.notes)) == len(sheet.notes) > 0
    assert "not enough evidence" in printed(content)


def test_one_interval_far_wider_than_the_others_does_not_squeeze_them() -> None:
    content = document(per_site=True, privacy=fedassay.Plain())
    entry = content["results"]["heterogeneity"]["observed_expected_ratio"]
    entry["prediction_interval"] = [1e-40, 1e40]
    chart = forest(content["results"]).draw()
    assert chart is not None
    low, high = chart.to_dict()["hconcat"][2]["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert high - low < 10
    assert as_svg(chart).startswith("<svg")
