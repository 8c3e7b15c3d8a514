"""Tables, plots and pages of conformal results, from hand-made JSON of every shape that a result can have."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest

import printing
from fedassay.documents.blocks import CurveBlock, TableBlock
from fedassay.documents.page import page
from fedassay.documents.report import heading
from fedassay.estimation.coverage import CoverageLaw, best_pair
from fedassay.tasks.conformal import document as conformal
from fedassay.tasks.conformal import document_held_out as conformal_seen
from fedassay.tasks.conformal import document_plots as conformal_plots
from fedassay.tasks.conformal.threshold import Found, law_to_json
from printing import printed, readable_page

LEVEL = 0.9
QQ = best_pair(10, 100, LEVEL)
POOLED = CoverageLaw(clients=1, rows=1000, local_rank=901, server_rank=1)


def metric(value: float | None, *, half: float = 0.01, reason: str = "there are no rows") -> dict[str, Any]:
    if value is None:
        return {"value": None, "interval": None, "level": 0.95, "reason": reason}
    error = {"sampling": half / 2, "privacy": 0.0, "discretisation": 0.0}
    return {"value": value, "interval": [value - half, min(1.0, value + half)], "level": 0.95, "error": error}


def size(value: float) -> dict[str, Any]:
    return {**metric(0.5), "value": value, "interval": [value - 0.1, value + 0.1]}


def found(**given: Any) -> dict[str, Any]:
    one = {"threshold": 1.25, "law": QQ, "pair": QQ.pair, "rows": 1000.0, "clients": 10, **given}
    return Found(**one).to_json(level=LEVEL, confidence=None)


def results(one: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "method": "qq",
        "level": LEVEL,
        "score": {"name": "absolute", "parameters": []},
        "conditional": None,
        **(found() if one is None else one),
        "notes": ["The threshold is rounded up to a bin."],
        "text": "Prediction intervals hold the truth of a new row with probability at least 0.9.",
        **more,
    }


def document(content: dict[str, Any], *, warnings: tuple[str, ...] = ()) -> dict[str, Any]:
    made = {
        "task": "conformal",
        "parameters": {"client": "site", "level": LEVEL},
        "results": content,
        "privacy": {
            "trust_model": "plain",
            "unit": "example",
            "neighbours": "add-remove",
            "epsilon": None,
            "delta": None,
            "simulated": True,
            "statement": "Nothing is private.",
        },
        "cohort": {"clients": 10, "dropped": 0, "truncated": 0, "rows": 1000},
        "runtime": {
            "name": "in-process",
            "mode": "faithful",
            "rounds": 1,
            "bytes_per_client": 40,
            "seconds": 0.1,
        },
        "warnings": list(warnings),
        "fedassay": "0.1",
    }
    return json.loads(json.dumps(made, allow_nan=False))  # type: ignore[no-any-return]


def held_out(sites: int = 10, *, counts: tuple[float, ...] = (), groups: Any = None) -> dict[str, Any]:
    each = [
        {"site": f"[b]<site {j}>", "rows": 40, "coverage": metric(0.86 + 0.008 * (j % 10), half=0.05)}
        for j in range(sites)
    ]
    return {
        "coverage": metric(0.9012),
        "rows": 400,
        "mean_size": size(2.5),
        "size_counts": list(counts),
        "sites": each or None,
        "groups": groups or {},
    }


def sent(count: int = 10) -> list[dict[str, Any]]:
    each = [{"site": f"[b]<site {j}>", "rows": 100, "rank": 92, "score": 1.2 + j / 100} for j in range(count)]
    each[-1] = {"site": "tiny", "rows": 3, "rank": 4, "score": None}
    return each


COMPARED = [
    {
        "method": "pooled",
        "threshold": 1.2,
        "coverage": metric(0.9),
        "mean_size": size(2.4),
        "text": "All scores in one place.",
        "coverage_law": law_to_json(POOLED, exact=True),
    },
    {
        "method": "average",
        "threshold": 1.31,
        "coverage": metric(0.91),
        "mean_size": size(2.6),
        "text": "Promises nothing.",
    },
    {
        "method": "local",
        "threshold": None,
        "coverage": metric(0.92),
        "mean_size": metric(None, reason="some sets hold everything"),
        "text": "Each client alone.",
    },
]
DIFFERENCES = {
    "statistic": 31.4,
    "degrees": 9,
    "p_value": 2.5e-4,
    "between_sd": 0.031,
    "loss_bound": 0.012,
    "alarming": True,
    "text": "Clients differ so much that the promise is not theirs.",
}
GROUPED = {
    "F": found(threshold=1.1),
    "[b]<M>": found(threshold=1.6),
    "other": found(threshold=float("inf"), law=best_pair(10, 100, 0.99), reason="there are 3 rows"),
}
NOTHING = {"threshold": None, "infinite": False, "guarantee": None, "pair": None, "coverage_law": None}
SOFTMAX = {"name": "raps", "parameters": [0.01, 5.0]}


def one_value_law(coverage: float) -> dict[str, Any]:
    """The law of a set that holds everything: one value."""
    return {
        "mean": coverage,
        "standard_deviation": 0.0,
        "exact": False,
        "quantiles": [{"probability": p, "coverage": coverage} for p in (0.05, 0.1)],
        "curve": {"coverage": [coverage], "cdf": [1.0]},
    }


def infinite() -> dict[str, Any]:
    one = found(threshold=float("inf"), reason="too few rows: 300 per client would do", exact=False)
    return results({**one, "coverage_law": one_value_law(1.0)}, target_rank=95)


RESULTS: dict[str, Any] = {
    "bare": lambda: results(),
    "training-conditional": lambda: results(
        Found(threshold=1.3, law=QQ, pair=QQ.pair).to_json(level=LEVEL, confidence=0.5)
    ),
    "everything": lambda: results(
        held_out=held_out(),
        comparison=COMPARED,
        sites=sent(),
        heterogeneity=DIFFERENCES,
    ),
    "a lower bound": lambda: results(
        found(exact=False, details={"target_rank": 97, "bins": 100, "why": "x"})
    ),
    "infinite": infinite,
    "infinite, held out": lambda: {
        **infinite(),
        "held_out": {**held_out(), "mean_size": metric(None, reason="sets hold everything")},
        "comparison": [{"method": "average", "threshold": None, "coverage": None, "mean_size": None}],
    },
    "average": lambda: results(
        found(law=None, pair=None, reason="a mean of quantiles has no known coverage"),
        method="average",
        comparison=COMPARED[:1],
        held_out=held_out(0),
        heterogeneity=None,
    ),
    "weighted": lambda: results(
        found(law=None, promised=0.901, exact=False, pair=None, details={"margin": None, "step": 0.001}),
        method="weighted",
        held_out={**held_out(0), "mean_size": {**size(2.5), "interval": [2.5, 2.5]}},
    ),
    "width without an interval": lambda: results(
        held_out={**held_out(3), "mean_size": {**size(2.5), "interval": None}}
    ),
    "nothing held out after all": lambda: results(held_out=None, heterogeneity=None, comparison=None),
    "local": lambda: results(
        NOTHING,
        method="local",
        sites=[
            {"site": "a", "rows": 100, "rank": 91, "threshold": 1.2, "infinite": False},
            {
                "site": "b",
                "rows": 5,
                "rank": 6,
                "threshold": None,
                "infinite": True,
                "reason": "5 rows are few",
            },
        ],
    ),
    "groups": lambda: results(
        NOTHING,
        conditional="group",
        groups=GROUPED,
        held_out=held_out(groups={"F": {"rows": 200, "coverage": metric(0.91), "mean_size": size(2.0)}}),
    ),
    "groups without a promise": lambda: results(
        NOTHING,
        conditional="group",
        method="average",
        groups={name: found(law=None, pair=None, reason="it is a mean") for name in "ab"},
    ),
    "groups that all hold everything": lambda: results(
        NOTHING,
        conditional="group",
        groups={"a": infinite()},
    ),
    "a hundred classes": lambda: results(
        NOTHING,
        conditional="class",
        score=SOFTMAX,
        groups={str(j): found(threshold=0.9 + j / 1000) for j in range(100)},
        held_out=held_out(100, counts=(0, 50, 30, 0, 20, *[1] * 90)),
        sites=sent(100),
    ),
    "classes": lambda: results(score=SOFTMAX, held_out=held_out(0, counts=(3, 300, 60, 30, 7, 0, 0))),
    "noisy sizes": lambda: results(
        score=SOFTMAX, held_out={**held_out(0), "size_counts": [-2.5, 300.1, 60.0, -1.0]}
    ),
    "nobody held out": lambda: results(
        held_out={
            **{name: metric(None) for name in ("coverage", "mean_size")},
            "rows": 0,
            "size_counts": None,
            "sites": [{"site": "a", "rows": 0, "coverage": metric(None)}],
            "groups": {},
        }
    ),
}


DRAWN = {
    "bare": 1,
    "everything": 2,  # law, sites
    "classes": 2,  # law, sizes
    "groups": 3,  # laws, thresholds, sites
    "a hundred classes": 3,  # too many laws to draw; thresholds, sizes, sites
    "average": 1,  # the law of pooled scores only
    "local": 0,
    "infinite": 0,  # a law of one value is no curve
}


def parts(content: dict[str, Any]) -> tuple[dict[str, TableBlock], list[CurveBlock]]:
    return printing.parts(document(content))


@pytest.mark.parametrize("name", sorted(RESULTS))
def test_terminal_and_page_are_made_from_every_document(name: str) -> None:
    content = document(RESULTS[name]())
    html = readable_page(content)
    assert "undefined" not in html
    assert html.count("<svg") == DRAWN.get(name, html.count("<svg"))


def test_the_page_has_a_heading() -> None:
    assert heading(document(results())) == "Conformal prediction"


def test_numbers_of_the_promise_are_those_of_the_document() -> None:
    content = results()
    sheet = conformal.promise(content)
    said = {row[0].text: row[1].text for row in sheet.rows}
    law = content["coverage_law"]
    assert said["threshold"] == "1.25"
    ((name, ranks),) = sheet.inner
    assert (name.text, ranks.text) == ("ranks: of a client's scores, of the clients' values", "92, 4")
    assert float(said["coverage to expect"]) == pytest.approx(law["mean"], abs=5e-5)
    assert float(said["its standard deviation"]) == pytest.approx(law["standard_deviation"], rel=0.05)
    for p in (0.9, 0.95):
        shown = float(said[f"coverage exceeded in {conformal.PROMISED[p]} calibrations"])
        assert shown == pytest.approx(QQ.quantile(1 - p), abs=5e-5)
    assert float(said["probability to cover at least 0.9"]) == pytest.approx(
        QQ.probability_at_least(0.9), abs=5e-4
    )
    assert content["guarantee"]["text"] in sheet.notes
    assert "The threshold is rounded up to a bin." in sheet.notes
    assert "plus and minus" in sheet.notes[0]


def test_a_lower_bound_is_said_to_be_one() -> None:
    content = RESULTS["a lower bound"]()
    said = {row[0].text: row[1].text for row in conformal.promise(content).rows}
    assert said["coverage, at least"].startswith("≥\N{NO-BREAK SPACE}0.90")
    assert said["its standard deviation (of the bound)"] == "0.012"
    assert said["probability to cover at least 0.9"].startswith("≥")
    assert (said["target rank"], said["bins"], said["why"]) == ("97", "100", "x")
    title = conformal_plots.coverage_laws(content).draw().to_dict()["layer"][1]["encoding"]["y"]["title"]
    assert title == "probability to reach it, at least"


def test_no_promise_is_said_once() -> None:
    sheet = conformal.promise(RESULTS["average"]())
    assert sum("no known coverage" in note for note in sheet.notes) == 1
    assert all("coverage" not in row[0].text for row in sheet.rows)


def test_the_law_is_drawn_as_the_probability_to_reach_a_coverage() -> None:
    content = RESULTS["everything"]()
    chart = conformal_plots.coverage_laws(content).draw().to_dict()
    points = chart["layer"][1]["data"]["values"]
    assert {point["method"] for point in points} == {"qq", "pooled rows"}
    ours = [point for point in points if point["method"] == "qq"]
    for point in ours[1:-1]:
        assert point["probability"] == pytest.approx(QQ.probability_at_least(point["coverage"]), abs=1e-9)
    assert (ours[0]["probability"], ours[-1]["probability"]) == (1.0, 0.0)
    assert chart["layer"][0]["data"]["values"] == [{"at": LEVEL}]
    alternative = conformal_plots.coverage_laws(content).alternative
    assert "qq has mean 0.9023 and standard deviation 0.012" in alternative
    assert "pooled rows has mean 0.9001" in alternative


def test_a_law_of_one_value_is_not_drawn() -> None:
    assert conformal_plots.laws(infinite()) == {}


def test_a_value_with_a_probability_of_its_own_is_a_step() -> None:
    law = one_value_law(1.0) | {"curve": {"coverage": [0.0, 0.5, 1.0], "cdf": [0.1, 0.6, 1.0]}}
    chart = conformal_plots.coverage_laws(results(coverage_law=law)).draw().to_dict()
    points = [(one["coverage"], one["probability"]) for one in chart["layer"][1]["data"]["values"]]
    assert points == [(0.0, 1.0), (0.0, 0.9), (0.5, 0.4), (1.0, 0.0), (1.0, 0.0)]


def test_other_methods_stand_beside_ours_with_their_sizes() -> None:
    sheets, _ = parts(RESULTS["everything"]())
    sheet = sheets["Compared with other methods, on held-out rows"]
    assert [row[0].text for row in sheet.rows] == ["qq (this result)", "pooled rows", "average", "local"]
    assert [row[1].text for row in sheet.rows] == ["1.25", "1.2", "1.31", "one per site"]
    assert [row[-1].text for row in sheet.rows] == [f"{2.5 / 2.4:.3f}", "1.000", f"{2.6 / 2.4:.3f}", "-"]
    assert sheet.head[-1] == "size next to pooled"
    assert "average: Promises nothing." in sheet.notes


def test_what_was_found_has_one_line_however_it_is_given() -> None:
    """A simulation counts what was found once more; intervals, where there are any, are those of the result."""
    counted = {
        "method": "pooled",
        "found": True,
        "threshold": 1.25,
        "coverage": 0.9,
        "mean_size": 2.52,
        "text": "this",
    }
    noisy = {**held_out(0), "mean_size": metric(None, reason="not enough rows for the noise")}
    content = results(method="pooled", comparison=[counted, *COMPARED], held_out=noisy)
    sheet = conformal_seen.comparison(content)
    assert [row[0].text for row in sheet.rows] == ["pooled (this result)", "pooled rows", "average", "local"]
    assert [cell.text for cell in sheet.rows[0]] == ["pooled (this result)", "1.25", "0.901", "2.52", "1.050"]
    assert sheet.rows[0][2].detail == "0.891 to 0.911"
    assert not any("this" in note for note in sheet.notes)
    alone = results(NOTHING, method="local", comparison=COMPARED, held_out=None)
    assert [row[0].text for row in conformal_seen.comparison(alone).rows] == [
        "local (this result)",
        "pooled rows",
        "average",
    ]


def test_the_law_of_pooled_rows_does_not_take_the_place_of_ours() -> None:
    content = results(method="pooled", comparison=[{**COMPARED[0], "method": "pooled", "coverage_law": None}])
    ours = content["coverage_law"]
    other = copy.deepcopy(ours) | {"mean": 0.5}
    content["comparison"][0]["coverage_law"] = other
    assert conformal_plots.laws(content) == {"pooled": ours, "pooled rows": other}


def test_without_pooled_scores_nothing_is_next_to_them() -> None:
    sheets, _ = parts(RESULTS["infinite, held out"]())
    sheet = sheets["Compared with other methods, on held-out rows"]
    assert sheet.head[-1] == "width of the intervals"
    assert [row[1].text for row in sheet.rows] == ["∞", "-"]
    assert [row[2].text for row in sheet.rows] == ["-", "-"]  # what was counted of ours is noise


def test_coverage_and_reasons_on_held_out_rows() -> None:
    sheets, _ = parts(RESULTS["groups"]())
    rows = sheets["On held-out rows"].rows
    assert [row[0].text for row in rows] == ["all", "F"]
    assert (rows[0][1].text, rows[0][2].text, rows[0][2].detail) == ("400", "0.901", "0.891 to 0.911")
    sheets, _ = parts(RESULTS["nobody held out"]())
    assert sheets["On held-out rows"].notes == ("coverage of all, set size of all: there are no rows",)


def test_sites_are_shown_with_the_lowest_coverage_if_there_are_many() -> None:
    content = RESULTS["a hundred classes"]()
    sheets, _ = parts(content)
    shown = [float(row[2].text) for row in sheets["Coverage by site, on held-out rows"].rows]
    assert len(shown) == 40
    assert shown == sorted(shown)
    assert max(shown) < 0.89
    assert "60 sites with a higher coverage not shown." in sheets["Coverage by site, on held-out rows"].notes
    assert "60 sites more in the result." in sheets["What sites sent"].notes
    assert "from 0.860 to 0.932; 50 below" in conformal_plots.coverage_by_site(content).alternative


def test_forest_plot_has_an_interval_per_site_and_the_level() -> None:
    chart = conformal_plots.coverage_by_site(RESULTS["everything"]()).draw().to_dict()
    rule, bars, _ = chart["layer"]
    assert rule["data"]["values"] == [{"at": LEVEL}]
    marks = {one["name"]: one for one in bars["data"]["values"]}
    assert len(marks) == 11
    assert (marks["all rows"]["low"], marks["all rows"]["high"]) == (
        pytest.approx(0.8912),
        pytest.approx(0.9112),
    )
    assert marks["[b]<site 3>"]["value"] == pytest.approx(0.884)


def test_what_sites_sent_and_their_own_thresholds() -> None:
    sheets, _ = parts(RESULTS["everything"]())
    last = sheets["What sites sent"].rows[-1]
    assert [cell.text for cell in last] == ["tiny", "3", "4", "∞"]
    sheets, _ = parts(RESULTS["local"]())
    sheet = sheets["Thresholds of the sites"]
    assert [[cell.text for cell in row] for row in sheet.rows] == [
        ["a", "100", "91", "1.2"],
        ["b", "5", "6", "∞"],
    ]
    assert sheet.notes == ("b: 5 rows are few",)
    promise = sheets["Sets that cover 0.9: local, by absolute residual"]
    assert promise.rows[0][1].text == "one per site"


def test_differences_between_clients_are_a_warning_if_they_alarm() -> None:
    sheet = conformal_seen.heterogeneity(DIFFERENCES)
    assert sheet.notes == ("Warning: Clients differ so much that the promise is not theirs.",)
    said = {row[0].text: row[1].text for row in sheet.rows}
    assert said["p-value"] == "< 0.001"
    assert said["it may take off the coverage up to"] == "0.012"
    warned = conformal_seen.heterogeneity(DIFFERENCES, warnings=[DIFFERENCES["text"]])  # type: ignore[list-item]
    assert warned.notes == ()
    calm = conformal_seen.heterogeneity(
        {**DIFFERENCES, "alarming": False, "loss_bound": None, "text": "Alike."}
    )
    assert calm.notes == ("Alike.",)
    assert len(calm.rows) == 4


def test_groups_have_a_line_each_and_one_sentence_for_all() -> None:
    both = {name: GROUPED[name] for name in ("F", "[b]<M>")}
    guarantee = {**GROUPED["F"]["guarantee"], "text": "For each group: what is promised."}
    sheets, figures = parts(results({**NOTHING, "guarantee": guarantee}, conditional="group", groups=both))
    sheet = sheets["By group"]
    assert [row[0].text for row in sheet.rows] == ["F", "[b]<M>"]
    assert [row[1].text for row in sheet.rows] == ["1.1", "1.6"]
    assert sheet.rows[0][3].text == "0.9023"
    assert sheet.notes == ()
    assert figures[-1].alternative == "Thresholds of 2 groups: from 1.1 to 1.6"
    promise = next(iter(sheets.values()))
    assert "For each group: what is promised." in promise.notes
    assert "threshold" not in {row[0].text for row in promise.rows}


def test_a_promise_without_a_law_and_a_width_that_is_known() -> None:
    content = RESULTS["weighted"]()
    said = {row[0].text: row[1].text for row in conformal.promise(content).rows}
    assert said["coverage that is promised"] == "≥\N{NO-BREAK SPACE}0.9010"
    inner = {row[0].text: row[1].text for row in conformal.promise(content).inner}
    assert inner == {"distance of the public points": "0.001"}
    assert "distance of the public points" not in said
    sheets, _ = parts(content)
    assert (sheets["On held-out rows"].rows[0][3].text, sheets["On held-out rows"].rows[0][3].detail) == (
        "2.5",
        "",
    )


def test_groups_that_hold_everything_are_triangles_at_the_edge() -> None:
    content = RESULTS["groups"]()
    marks = conformal_plots.thresholds(content).draw().to_dict()["data"]["values"]
    kinds = {mark["name"]: mark["kind"] for mark in marks}
    assert kinds == {"F": "finite", "[b]<M>": "finite", "other": "infinite"}
    assert marks[-1]["value"] > 1.6
    assert "1 of them hold everything" in conformal_plots.thresholds(content).alternative
    assert "other: there are 3 rows" in conformal.groups(content).notes


def test_other_is_not_mentioned_if_nobody_is_in_it() -> None:
    nobody = {"rows": 0, "coverage": metric(None), "mean_size": metric(None)}
    content = RESULTS["groups"]()
    content["groups"]["other"] = {**content["groups"]["other"], "rows": 0.0}
    content["held_out"]["groups"]["other"] = nobody
    sheets, figures = parts(content | {"reason": "each group has a threshold of its own"})
    assert len(sheets["By group"].rows) == len(sheets["On held-out rows"].rows) == 2
    assert figures[1].alternative == "Thresholds of 2 groups: from 1.1 to 1.6"
    assert not next(iter(sheets.values())).rows
    assert "each group has a threshold of its own" not in next(iter(sheets.values())).notes


def test_promises_that_differ_between_groups_are_told_apart() -> None:
    groups = {"a": found(), "b": found(law=None, pair=None, reason="there are 3 rows")}
    notes = conformal.groups(results(NOTHING, conditional="group", groups=groups)).notes
    assert notes[1] == "b: no coverage is guaranteed"
    assert notes[0].startswith("a: coverage of at least 0.9 (marginal)")


def test_set_sizes_add_up_and_noise_below_zero_is_nothing() -> None:
    sheets, figures = parts(RESULTS["classes"]())
    rows = [[cell.text for cell in row] for row in sheets["Set sizes"].rows]
    assert rows[1] == ["1", "300", "75.0%", "75.8%"]
    assert rows[-1][0] == "4"
    assert rows[-1][-1] == "100.0%"
    assert figures[-1].alternative == "Set sizes: mean 1.34; 0.8% empty, 75.0% of one class, at most 4"
    sheets, _ = parts(RESULTS["noisy sizes"]())
    assert [row[1].text for row in sheets["Set sizes"].rows] == ["0", "300", "60"]
    sheets, _ = parts(RESULTS["a hundred classes"]())
    names = [row[0].text for row in sheets["Set sizes"].rows]
    assert names == ["0", "1", "2", "3 to 4", "5 to 8", "9 to 16", "17 to 32", "33 to 64", "65 to 94"]


def test_names_from_the_data_cannot_become_markup() -> None:
    for name in ("everything", "groups"):
        content = document(RESULTS[name](), warnings=("[b]<script>",))
        assert "[b]<" in printed(content)
        html = page(content)
        assert not re.search(r"<(site|M|script>)", html)
        assert "&lt;script&gt;" in html
