"""The table of cells says what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedassay.api.cells import QUERIES, default_task, query_cell, task_cell
from fedassay.protocol.vocabulary import Select
from fedassay.tasks.card import TASKS, task_of
from fedassay.trust import TRUST_MODELS

_NOT_BY_CELLS = ("evaluate-classes", "calibrate-classes", "infer")
PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cells.md"


def the_page() -> str:
    """The page in the docs, which `make check` holds to what the code says."""
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("trust", sorted(TRUST_MODELS))
@pytest.mark.parametrize("task", sorted(set(TASKS) - {"quantiles", *_NOT_BY_CELLS}))
def test_every_task_runs_under_every_trust_model(task: str, trust: str) -> None:
    assert task_cell(default_task(task), TRUST_MODELS[trust]()) is None


def test_a_search_runs_where_servers_keep_what_clients_sent() -> None:
    for trust in TRUST_MODELS.values():
        refused = task_cell(task_of("quantiles", {}), trust()) is not None
        assert refused == (trust.name != "two-server")


@pytest.mark.parametrize("task", _NOT_BY_CELLS)
def test_what_is_no_count_of_cells_runs_where_rows_are_not_encoded_one_by_one(task: str) -> None:
    for trust in TRUST_MODELS.values():
        refused = task_cell(default_task(task), trust())
        assert (refused is not None) == (trust.name == "two-server"), refused


def test_what_a_trust_model_asks_for_everywhere_is_said_first() -> None:
    head = the_page().split("## Tasks")[0]
    assert "`two-server` everywhere: " in head
    assert "`rows_per_client`" in head
    assert "server-dp" not in head


def test_a_refused_cell_has_a_reason() -> None:
    reason = query_cell(Select, TRUST_MODELS["secure-sum"]())
    assert reason is not None
    assert reason in the_page()


def test_every_query_is_answered_by_somebody() -> None:
    models = [kind() for kind in TRUST_MODELS.values()]
    for name, kind in QUERIES.items():
        assert any(query_cell(kind, model) is None for model in models), name
