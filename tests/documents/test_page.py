"""The page is one well-formed, self-contained document, and what it shows is what the result says."""

from __future__ import annotations

import base64
import copy
import functools
import hashlib
import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from fedassay.documents import explorer
from fedassay.documents.page import page
from fedassay.documents.palette import DARK, LIGHT
from fedassay.documents.report import sub_document
from study_documents import study_document, study_page

VOID = {"meta", "link", "input"}
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>'\""


@dataclass
class Reader(HTMLParser):
    """Everything that the tests ask of a page; complains of elements that are not closed where they should be."""

    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    def named(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


@functools.cache
def html_of(name: str) -> str:
    if name in ("noisy", "exact"):
        return study_page(noise=name == "noisy")
    return page(sub_document(study_document(noise=name != "infer"), name))


PAGES = ("noisy", "exact", "evaluate", "calibrate", "ecdf", "infer")


@pytest.mark.parametrize("name", PAGES)
def test_it_is_well_formed_and_every_link_leads_somewhere(name: str) -> None:
    reader = read(html_of(name))
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    for attribute in ("for", "aria-labelledby", "data-explorer"):
        used = [attributes[attribute] for _, attributes in reader.tags if attribute in attributes]
        assert set(used) <= set(ids)
    links = [attributes["href"] for attributes in reader.named("a")]
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    clips = re.findall(r"url\(#([^)]*)\)", html_of(name))
    assert clips or name == "infer"
    assert set(clips) <= set(ids)


@pytest.mark.parametrize("name", PAGES)
def test_it_asks_nothing_of_any_network(name: str) -> None:
    html = html_of(name)
    reader = read(html)
    loaded = [
        attributes[attribute]
        for _, attributes in reader.tags
        for attribute in ("src", "srcset", "href", "xlink:href", "action", "data", "poster")
        if attribute in attributes
    ]
    assert all(one.startswith("#") or one == "data:," for one in loaded)
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    # The one address is the name of a language, which nobody looks up.
    assert set(re.findall(r"https?://[^'\"\s<)]*", html)) == {"http://www.w3.org/2000/svg"}


def test_only_its_own_script_may_run() -> None:
    reader = read(html_of("noisy"))
    (policy,) = (meta["content"] for meta in reader.named("meta") if "http-equiv" in meta)
    scripts = [attributes["type"] for attributes in reader.named("script")]
    assert scripts == ["application/json", "text/javascript"]
    text = html_of("noisy").split("<script type='text/javascript'>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}'" in policy


@pytest.mark.parametrize("name", PAGES)
def test_it_can_be_read_by_ear(name: str) -> None:
    reader = read(html_of(name))
    levels = [int(tag[1]) for tag, _ in reader.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    tags = [tag for tag, _ in reader.tags]
    assert tags.count("figure") == tags.count("svg") > 0
    alternatives = [a["aria-label"] for _, a in reader.tags if a.get("role") == "img"]
    assert len(alternatives) == tags.count("figure")
    assert all(re.search(r"\d", text) and len(text) > 20 for text in alternatives)
    assert tags.count("caption") == tags.count("table") > 0
    assert all(attributes.get("scope") in ("row", "col") for attributes in reader.named("th"))
    for landmark in ("header", "main", "footer", "nav"):
        assert tags.count(landmark) == 1
    assert reader.tags[tags.index("body") + 1][1] == {"class": "skip", "href": "#content"}
    assert reader.named("html") == [{"lang": "en"}]


def test_sections_of_a_study_come_in_the_order_in_which_they_are_read() -> None:
    for name, last, sites in (("noisy", "Distribution", False), ("exact", "Coefficients", True)):
        titles = re.findall(r"<h2 [^>]*>([^<]*)</h2>", html_of(name))
        assert titles == [
            "Evaluation",
            "Calibration",
            "Prediction sets",
            "Prediction sets: conformal95",
            last,
            "Privacy budget",
            "What was assumed",
            "Privacy",
            "The run",
            "What the words mean",
            "What to do next",
        ]
        assert ("write per_site = true under [tasks.evaluate] in the study" in html_of(name)) == (not sites)
        assert html_of(name).count("Forest plot of 8 sites") == 3 * sites
        assert ("Distribution of age" in html_of(name)) == (last == "Distribution")
        assert study_document(noise=name == "noisy")["results"]["verdict"]["text"] in html_of(name)
    assert re.findall(r"<h2 [^>]*>([^<]*)</h2>", html_of("calibrate")) == [
        "Calibration",
        "What was assumed",
        "Privacy",
        "The run",
        "What the words mean",
    ]


def test_no_text_of_a_result_becomes_markup() -> None:
    study = study_document(noise=False)
    study["parameters"] |= {"title": EVIL, "model": EVIL, "study": EVIL, "data": {"path": EVIL}}
    study["results"]["verdict"]["text"] = EVIL
    study["privacy"] |= {"statement": EVIL, "trust_model": EVIL}
    study["warnings"] = [EVIL]
    study["results"]["budget"]["charges"][0] |= {"summary": EVIL, "task": EVIL}
    tasks = study["results"]["tasks"]
    tasks["evaluate"]["results"]["sites"][0]["site"] = EVIL
    tasks["conformal"]["results"]["guarantee"] |= {"text": EVIL, "assumption": EVIL}
    tasks["infer"]["results"]["coefficients"][1]["name"] = EVIL
    study["results"]["tasks"] = {EVIL: tasks.pop("calibrate"), **tasks}
    html = page(study)
    reader = read(html)
    assert "alert(1)" in html
    assert len(reader.named("script")) == 2
    assert not reader.named("img")
    assert not any(name.startswith("on") for _, attributes in reader.tags for name in attributes)


def test_the_explorer_holds_the_numbers_of_the_result() -> None:
    points = study_document()["results"]["tasks"]["evaluate"]["results"]["operating_points"]
    text = html_of("noisy").split("<script type='application/json'")[1].split(">", 1)[1].split("</script>")[0]
    data = json.loads(text)
    assert data["applied"] == points["applied"]
    assert list(data["metrics"]) == explorer.names(points)
    for name, shown in data["metrics"].items():
        for end in explorer.ENDS:
            assert shown[end] == points[name][end]
        for place in (0, 49, 98):
            numbers = [points[name][end][place] for end in explorer.ENDS]
            assert (shown["text"][place], shown["interval"][place]) == explorer.told(name, *numbers)
    assert len(data["sentence"]) == len(data["at"]) == 99


def test_the_explorer_has_a_table_for_those_without_scripts() -> None:
    html = html_of("evaluate")
    table = html.split("<details open>")[1].split("</details>")[0]
    thresholds = re.findall(r"<th scope='row'[^>]*>([\d.]+)", table)
    assert thresholds == [f"{place / 20:.2f}" for place in range(1, 20)]
    assert "<div class='live' hidden>" in html


def test_thresholds_at_which_nothing_is_known() -> None:
    points = copy.deepcopy(study_document()["results"]["tasks"]["evaluate"]["results"]["operating_points"])
    for name in explorer.names(points):
        for end in explorer.ENDS:
            points[name][end][49] = None
    points["precision"] = {end: [None] * 99 for end in explorer.ENDS}
    points["applied"][9] = 0.104
    data = explorer.embedded(points)
    assert data["sentence"][49] == "At 0.50 nothing is known."
    assert "rightly" not in data["sentence"][20]
    assert data["at"][9] == "0.10 (applied at 0.104)"
    assert data["metrics"]["recall"]["text"][49] == "undefined"
    assert "undefined" in explorer.explorer(points, place="here")


def test_both_schemes_have_a_colour_for_all_that_plots_use() -> None:
    html = html_of("noisy")
    assert set(LIGHT) == set(DARK)
    used = set(re.findall(r"var\((--plot-[a-z]+)", html))
    assert used <= set(LIGHT)
    for name in LIGHT:
        assert f"{name}:light-dark({LIGHT[name]},{DARK[name]})" in html
