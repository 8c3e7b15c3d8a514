"""Reports read only the JSON, and never choke on an undefined metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedassay
from fedassay.documents.curves import save_overview
from fedassay.documents.page import page
from printing import printed, readable_page, simulated


def document(*, rows: int = 2000, positives: float = 0.3, **options: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    data = {
        "site": rng.integers(0, 5, rows),
        "p": rng.random(rows),
        "y": (rng.random(rows) < positives).astype(np.int8),
    }
    return simulated(fedassay.evaluate, data, score="p", **options)


DOCUMENTS = {
    "ordinary": lambda: document(),
    "one class": lambda: document(positives=0.0),
    "more noise than rows": lambda: document(
        rows=40, privacy=fedassay.ServerDP(), budget=fedassay.Budget(epsilon=0.05)
    ),
}


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_every_report_is_made_from_every_document(name: str, tmp_path: Any) -> None:
    content = DOCUMENTS[name]()
    readable_page(content)
    text = printed(content)
    assert "ROC AUC" in text or "Nothing is known of the model" in text
    for suffix in (".svg", ".png"):
        save_overview(content, tmp_path / f"plot{suffix}")
        assert (tmp_path / f"plot{suffix}").stat().st_size > 1000


def test_an_undefined_metric_shows_its_reason() -> None:
    content = DOCUMENTS["more noise than rows"]()
    assert content["results"]["roc_auc"]["value"] is None
    reason = content["results"]["roc_auc"]["reason"]
    assert reason.startswith("not enough evidence")
    assert "not enough evidence" in page(content)
    assert "not enough" in printed(content)


def test_text_from_data_cannot_become_markup() -> None:
    content = document()
    content["privacy"]["statement"] = "<script>alert(1)</script> [bold]x[/bold]"
    assert "<script>" not in page(content)
    assert "[bold]" in printed(content)


def test_a_reason_that_many_metrics_share_is_given_once() -> None:
    content = DOCUMENTS["more noise than rows"]()
    text = " ".join(printed(content, width=80).split())
    for reason in {content["results"][name]["reason"] for name in ("roc_auc", "brier_score")}:
        assert text.count(reason) <= 2  # of the metrics, and of those at thresholds


def test_one_client_is_not_called_clients() -> None:
    content = document()
    content["cohort"] |= {"clients": 1, "rows": 1}
    content["runtime"]["rounds"] = 1
    assert "1 client, 1 row; in-process (faithful), 1 round, " in " ".join(printed(content).split())
    assert ">1 client with 1 row, under secure-sum.</p>" in page(content)
