"""The table and the page of a calibration read only the JSON, and never choke on what is not there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedassay
from calibration_rows import crooked
from fedassay.documents.blocks import SentenceBlock
from fedassay.documents.page import page
from fedassay.tasks.calibration import document as calibration
from printing import printed, readable_page, simulated
from study_documents import blocks


def document(rows: int = 4000, **options: Any) -> dict[str, Any]:
    scores, labels = crooked(rows)
    data = {"site": np.arange(rows) % 5, "p": scores, "y": labels}
    return simulated(fedassay.calibrate, data, score="p", **options)


NOISE = {"privacy": fedassay.ServerDP(), "budget": fedassay.Budget(epsilon=0.2)}
DOCUMENTS: dict[str, dict[str, Any]] = {
    "ordinary": {},
    "steps": {"method": "histogram"},
    "nothing to judge": {"rows": 300, "method": "bbq", "holdout": 1e-9},
    "more noise than rows": {"rows": 60, **NOISE},
}


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_table_and_page_are_made_from_every_document(name: str) -> None:
    content = document(**DOCUMENTS[name])
    text, html = printed(content), readable_page(content)
    known = content["results"]["before"]["log_loss"]["value"] is not None
    for words in (text, html):
        assert ("Brier score" in words) == known
        assert "ecommended: " in words
    assert html.count("<svg") == html.count("<table>") == (1 if known else 0)


def test_the_table_shows_before_after_and_the_change() -> None:
    content = document(method="platt")
    text = printed(content)
    results = content["results"]
    assert f"slope {results['parameters']['slope']:.3g}" in text
    for part in ("before", "after", "difference"):
        assert f"{results[part]['log_loss']['value']:.3f}"[:5] in text


def test_what_nothing_is_known_of_is_left_out_and_all_of_it_is_one_box() -> None:
    content = document(method="platt")
    for part in ("after", "difference"):
        for metric in content["results"][part].values():
            metric |= {"value": None, "interval": None, "reason": "there is no calibrator"}
    content["results"]["before"]["roc_auc"] |= {"value": None, "interval": None, "reason": "one class"}
    sheet = calibration.before_and_after(content["results"])
    assert sheet.head == ("on held-out rows", "before")
    assert "ROC AUC" not in {row[0].text for row in sheet.rows}
    assert "ROC AUC: one class" in sheet.notes
    content = document(**DOCUMENTS["more noise than rows"])
    (box,) = blocks(content)
    assert box == SentenceBlock(text=content["results"]["reason"])
    assert page(content).count("<p class='missing'>") == 2  # the key numbers, and the section
