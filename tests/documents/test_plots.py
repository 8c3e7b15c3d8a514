"""The look of plots: colours that the page decides, files that stand alone, words that say what is seen."""

from __future__ import annotations

import functools
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import altair as alt
import pytest

import fedassay
from fedassay.documents import (
    budget,
    comparisons,
    curves,
    palette,
    plots,
    reliability,
)
from fedassay.documents.blocks import CurveBlock
from fedassay.documents.report import sections
from fedassay.errors import UsageError
from fedassay.tasks.evaluation.displays import RocCurveDisplay
from pictures import png
from study_documents import study_document, study_page

COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}\b|rgba?\(|hsla?\(")
VARIABLE = re.compile(r"var\((--plot-[a-z]+), (#[0-9a-f]{6})\)")


@functools.cache
def study(*, noise: bool = False) -> dict[str, Any]:
    """The document of a study, to be read."""
    return study_document(noise=noise)


def results_of(task: str, *, noise: bool = False) -> dict[str, Any]:
    """Those of one task; not those in it, which are shared."""
    return dict(study(noise=noise)["results"]["tasks"][task]["results"])


def figures_of(document: dict[str, Any]) -> list[CurveBlock]:
    return [
        block for section in sections(document) for block in section.blocks if isinstance(block, CurveBlock)
    ]


@pytest.fixture(scope="module")
def drawn() -> list[str]:
    """Every plot of the pages of two studies, and a forest of three metrics."""
    shown = [
        re.findall(r"<svg.*?</svg>", study_page(noise=noise), flags=re.DOTALL) for noise in (True, False)
    ]
    forest = comparisons.forest(results_of("evaluate"))
    return [*shown[0], *shown[1], plots.as_svg(forest.draw())]


# --- in a page --------------------------------------------------------------------------------------------------------


def test_every_colour_is_the_pages_to_decide(drawn: list[str]) -> None:
    assert len(drawn) >= 2 * 12
    for text in drawn:
        assert not COLOUR.search(VARIABLE.sub("", text))
        painted = set(re.findall(r' (?:fill|stroke)="([^"]*)"', text))
        assert {value for value in painted if not VARIABLE.fullmatch(value)} <= {"none", "transparent"}
        for name, fallback in VARIABLE.findall(text):
            assert palette.LIGHT[name] == fallback


def test_a_colour_of_altairs_own_would_be_seen() -> None:
    chart = alt.Chart(alt.Data(values=[{"x": 1}])).mark_point(color="steelblue").encode(x="x:Q")
    painted = set(re.findall(r' (?:fill|stroke)="([^"]*)"', plots.as_svg(chart)))
    assert "steelblue" in painted


def test_plots_scale_have_no_background_and_are_told_elsewhere(drawn: list[str]) -> None:
    for text in drawn:
        root = text[: text.index(">")]
        width = float(re.search(r'viewBox="0 0 ([\d.]+) [\d.]+"', root)[1])  # type: ignore[index]
        assert f"width:{width:g}px;max-width:100%" in root
        assert 'aria-hidden="true"' in root
        assert "<rect" not in re.sub(r"<clipPath.*?</clipPath>", "", text)
        assert "aria-roledescription" not in text
        assert f'font-family="{palette.FONT}"' in text


def test_ids_are_unique_over_a_page_and_all_are_used(drawn: list[str]) -> None:
    defined = [name for text in drawn for name in re.findall(r' id="([^"]*)"', text)]
    assert defined
    assert len(defined) == len(set(defined))
    for text in drawn:
        assert set(re.findall(r"url\(#([^)]*)\)", text)) <= set(re.findall(r' id="([^"]*)"', text))


def test_the_same_plot_gives_the_same_text_unless_it_has_a_key() -> None:
    results = results_of("evaluate")
    once, again = (plots.as_svg(plots.framed(curves.roc(results).draw())) for _ in range(2))
    assert once == again
    other = plots.as_svg(plots.framed(curves.roc(results).draw()), key="2")
    assert not set(re.findall(r' id="([^"]*)"', once)) & set(re.findall(r' id="([^"]*)"', other))


def test_a_name_from_the_data_is_neither_a_colour_nor_markup() -> None:
    results = results_of("evaluate")
    names = ['fill="#2166ac"', "<b>&amp;", "url(#clip1)"]
    results["sites"] = [{**site, "site": name} for name, site in zip(names, results["sites"], strict=False)]
    text = plots.as_svg(comparisons.forest_of(results, "roc_auc").draw())
    assert "<b>" not in text
    assert '>fill="#2166ac"<' in text
    assert "&lt;b&gt;&amp;amp;" in text
    assert ">url(#clip1)<" in text


def _luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def _contrast(a: str, b: str) -> float:
    low, high = sorted((_luminance(a), _luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("side", [palette.LIGHT, palette.DARK], ids=["light", "dark"])
def test_colours_can_be_seen_and_told_apart(side: dict[str, str]) -> None:
    assert list(side) == list(palette.LIGHT)
    assert len(set(side.values())) == len(side)
    for name, colour in side.items():
        least = {"--plot-ink": 7.0, "--plot-muted": 4.5, "--plot-grid": 1.1, "--plot-band": 2.5}.get(
            name, 3.0
        )
        assert name == "--plot-paper" or _contrast(colour, side["--plot-paper"]) >= least, name


# --- in a file --------------------------------------------------------------------------------------------------------


def test_files_stand_alone_in_light_colours(tmp_path: Path) -> None:
    results = results_of("evaluate")
    chart = plots.framed(curves.roc(results).draw())
    for suffix in plots.SUFFIXES:
        plots.save(chart, tmp_path / f"roc{suffix}")
    text = (tmp_path / "roc.svg").read_text()
    assert "var(" not in text
    assert {palette.BLUE, palette.BAND, palette.INK, palette.PAPER} <= set(COLOUR.findall(text))
    assert (tmp_path / "roc.pdf").read_bytes().startswith(b"%PDF")
    width, height, lines = png(tmp_path / "roc.png")
    assert min(width, height) > 2 * plots.SIDE
    assert lines > 50
    blank = alt.Chart(alt.Data(values=[{}])).mark_point(opacity=0).properties(width=50, height=50)
    plots.save(blank.configure_view(stroke=None), tmp_path / "blank.png")
    assert png(tmp_path / "blank.png")[2] <= 2


def test_a_file_that_cannot_be_is_refused(tmp_path: Path) -> None:
    chart = plots.framed(plots.empty("nothing", "there is nothing"))
    with pytest.raises(UsageError, match="got suffix '.tiff', expected .svg, .png or .pdf"):
        plots.save(chart, tmp_path / "plot.tiff")
    with pytest.raises(UsageError, match="got suffix '.html'"):  # it would load Vega from the network
        plots.save(chart, tmp_path / "plot.html")
    with pytest.raises(UsageError, match="cannot be written"):
        plots.save(chart, tmp_path / "nowhere" / "plot.svg")


# --- characters that no SVG can hold, which must not end the process -------------------------------------------------


def named_bars(*names: str) -> alt.Chart:
    values = [{"name": name, "value": 1} for name in names]
    return alt.Chart(alt.Data(values=values)).mark_bar().encode(x="name:N", y="value:Q")


def test_characters_that_no_svg_can_hold_are_replaced_and_others_kept() -> None:
    drawn = plots.as_svg(named_bars("B\x1b", "C\ud800", "D\ufffe", "Ä 😀"))
    assert "Ä 😀" in drawn
    assert drawn.count("\ufffd") >= 3


def test_so_they_are_in_files(tmp_path: Path) -> None:
    plots.save(named_bars("B\x1b"), tmp_path / "plot.svg")
    assert "\ufffd" in (tmp_path / "plot.svg").read_text(encoding="utf-8")


# --- what is drawn ----------------------------------------------------------------------------------------------------


def layers(chart: alt.LayerChart, mark: str) -> list[Any]:
    """The layers with this mark."""
    found = chart.to_dict()
    every = [{**layer, "data": layer.get("data", found.get("data"))} for layer in found["layer"]]
    return [layer for layer in every if layer["mark"]["type"] == mark]


def test_bands_and_lines_are_those_of_the_result() -> None:
    results = results_of("evaluate")
    named = [
        (curves.roc, "roc_curve", "fpr", "tpr"),
        (curves.precision_recall, "precision_recall_curve", "recall", "precision"),
    ]
    for draw, entry, x, y in named:
        (band,) = layers(draw(results).draw(), "area")
        curve = results[entry]
        assert band["data"]["values"] == plots.points(curve, x, y, "lower", "upper")
    (rule,) = layers(curves.precision_recall(results).draw(), "rule")
    assert rule["data"]["values"] == [{"at": results["prevalence"]["value"]}]


def test_net_benefit_is_shown_with_both_simple_rules() -> None:
    results = results_of("evaluate")
    (line,) = layers(curves.net_benefit(results).draw(), "line")
    by_rule: dict[str, list[float]] = {}
    for point in line["data"]["values"]:
        by_rule.setdefault(point["rule"], []).append(point["benefit"])
    curve = results["net_benefit_curve"]
    assert by_rule["the model"] == curve["net_benefit"]
    assert by_rule["treat all"] == curve["treat_all"]
    assert set(by_rule["treat none"]) == {0.0}
    sure = [
        t
        for t, low, every in zip(curve["thresholds"], curve["lower"], curve["treat_all"], strict=True)
        if low > max(0, every)
    ]
    words = curves.net_benefit(results).alternative
    assert f"at {len(sure)} of {len(curve['thresholds'])} thresholds" in words
    assert f"between {sure[0]:.2f} and {sure[-1]:.2f}" in words


def test_a_useless_model_is_nowhere_better() -> None:
    results = results_of("evaluate")
    curve = results["net_benefit_curve"]
    results["net_benefit_curve"] = {**curve, "lower": [-1.0] * len(curve["lower"])}
    assert "nowhere surely above" in curves.net_benefit(results).alternative


def test_before_and_after_are_told_apart_without_colours_too() -> None:
    results = results_of("calibrate")
    chart = reliability.change(results).draw()
    (line,) = [layer for layer in layers(chart, "line") if "strokeDash" in layer["encoding"]]
    seen = [(point["part"], point["mean_score"], point["observed"]) for point in line["data"]["values"]]
    both = results["reliability_curve"]
    assert seen == [
        (part, score, observed)
        for part in ("before", "after")
        for score, observed in zip(both[part]["mean_score"], both[part]["observed"], strict=True)
    ]
    dashes = line["encoding"]["strokeDash"]["scale"]["range"]
    assert dashes[0] != dashes[1]


@pytest.mark.parametrize("gone", ["after", "before and after"])
def test_a_diagram_with_a_part_missing(gone: str) -> None:
    results = results_of("calibrate")
    results["reliability_curve"] = {**results["reliability_curve"], "after": None}
    if gone == "after":
        assert "before calibration ECE" in reliability.change(results).alternative
        assert "after" not in json.dumps(reliability.change(results).draw().to_dict()["layer"])
        return
    results["reliability_curve"]["before"] = {
        "mean_score": [],
        "observed": [],
        "lower": [],
        "upper": [],
        "reason": "there are no rows",
    }
    assert reliability.change(results).alternative == "No reliability diagram: there are no rows."
    assert "there are no rows" in json.dumps(reliability.change(results).draw().to_dict())


@pytest.mark.parametrize("noise", [False, True])
def test_densities_of_scores_add_up_to_one(noise: bool) -> None:
    found = results_of("evaluate", noise=noise)["score_distribution"]
    for name in curves.CLASSES:
        ends = curves.positions(found)
        widths = [high - low for low, high in pairwise(ends)]
        area = sum(d * w for d, w in zip(curves.densities(found, name), widths, strict=True))
        assert area == pytest.approx(1)
    words = curves.score_distribution({"score_distribution": found}).alternative
    assert ("noise of privacy" in words) == noise


def test_crowded_scores_have_a_logit_axis() -> None:
    found = {
        "spacing": "logit",
        "edges": [0.0, 0.001, 0.01, 0.1, 1.0],
        "noise": None,
        "positives": [0.0, 1.0, 5.0, 4.0],
        "negatives": [50.0, 40.0, 10.0, 0.0],
    }
    chart = curves.score_distribution({"score_distribution": found}).draw()
    (line,) = layers(chart, "line")
    assert "exp(-datum.value)" in line["encoding"]["x"]["axis"]["labelExpr"]
    assert (
        "10 positives, half of them with scores up to 0.082"
        in curves.score_distribution({"score_distribution": found}).alternative
    )


def test_bars_are_what_each_task_costs_alone_and_all_together() -> None:
    results = study_document(noise=True)["results"]
    spent = budget.spent_by_task(results)
    assert spent == results["budget"]["by_task"]
    assert list(spent) == list(results["tasks"])
    bars = layers(budget.curve(results).draw(), "bar")[0]["data"]["values"]
    assert [bar["epsilon"] for bar in bars] == [*spent.values(), results["budget"]["spent"]]
    assert max(spent.values()) < results["budget"]["spent"] < sum(spent.values())
    del results["budget"]["by_task"]["ecdf"]  # nothing was released
    assert budget.spent_by_task(results)["ecdf"] == 0


# --- words ------------------------------------------------------------------------------------------------------------


def test_every_figure_is_told_with_numbers() -> None:
    for noise in (False, True):
        for figure in figures_of(study(noise=noise)):
            assert len(re.findall(r"\d", figure.alternative)) >= 4, figure.alternative
            assert not re.search(r"\bnan\b|\bNone\b", figure.alternative)


def test_what_is_not_there_is_told_with_the_reason() -> None:
    rows = {"p": [0.2, 0.3, 0.4, 0.6], "y": [0, 0, 0, 0]}
    result = fedassay.evaluate(rows, score="p", label="y", simulation=fedassay.Simulation(seed=1))
    results = json.loads(result.to_json())["results"]
    for curve in (curves.roc, curves.precision_recall, curves.score_distribution):
        assert "there are no positive rows" in curve(results).alternative
        assert "there are no positive rows" in json.dumps(curve(results).draw().to_dict())
    assert "there are no positive rows" in RocCurveDisplay.from_result(result).alternative
