"""`--partition` and `--clients` of the commands that simulate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from command_line import json_of, refused

DIRICHLET = ("--partition", "dirichlet:0.2", "--clients", 30)
IID = ("--partition", "iid", "--clients", 6)
COMMANDS = {
    "evaluate": ("--score", "p", "--label", "y"),
    "calibrate": ("--score", "p", "--label", "y", "--method", "platt"),
    "hosmer-lemeshow": ("--score", "p", "--label", "y"),
    "conformal": ("--target", "v", "--prediction", "p", "--privacy", "plain"),
    "ecdf": ("--value", "v", "--lower", -5, "--upper", 5, "--points", 16),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    score = rng.random(600)
    frame = pd.DataFrame(
        {
            "site": rng.integers(0, 4, 600),
            "p": score,
            "y": (rng.random(600) < score).astype(int),
            "v": rng.normal(size=600),
        }
    )
    frame.to_csv(tmp_path / "a.csv", index=False)
    return tmp_path / "a.csv"


def document(capsys: Any, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json_of(capsys, *arguments)
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_simulates_deals_rows(capsys: Any, path: Path, command: str) -> None:
    found = document(capsys, command, path, *COMMANDS[command], *IID, "--seed", 1)
    assert found["cohort"]["clients"] == 6
    assert found["cohort"]["rows"] in (600, None)
    assert (found["parameters"]["partition"], found["parameters"]["clients"]) == ("iid", 6)
    assert found["parameters"]["client"] is None
    assert found["warnings"] == [one for one in found["warnings"] if "no rows" not in one]


def test_quantiles_search_the_rows_of_dealt_clients(capsys: Any, path: Path) -> None:
    options = ("--value", "v", "--lower", -5, "--upper", 5, "--points", 8, "--quantile", 0.5)
    terms = ("--privacy", "two-server", "--epsilon", 50, "--rows-per-client", 100)
    found = document(capsys, "quantiles", path, *options, *IID, *terms)
    assert found["cohort"]["clients"] == 6


def test_a_seed_repeats_the_partition(capsys: Any, path: Path) -> None:
    def sites(*more: object) -> list[Any]:
        partition = ("--partition", "dirichlet:0.5", "--clients", 5, "--height", 4)
        options = (*COMMANDS["evaluate"], *partition, "--per-site", "--privacy", "plain", *more)
        return [one["rows"] for one in document(capsys, "evaluate", path, *options)["results"]["sites"]]

    assert sites("--seed", 1) == sites("--seed", 1)
    assert sites("--seed", 1) != sites("--seed", 2)
    assert sites() != sites()
    assert len(sites()) == 5


def test_clients_without_rows_are_there_and_a_warning(capsys: Any, path: Path) -> None:
    options = ("--partition", "dirichlet:0.01", "--clients", 50, "--seed", 4)
    found = document(capsys, "evaluate", path, *COMMANDS["evaluate"], *options)
    assert found["cohort"]["clients"] == 50
    (warning,) = [one for one in found["warnings"] if "no rows" in one]
    assert "of 50 clients have no rows ('client-0" in warning
    few = document(capsys, "evaluate", path, *COMMANDS["evaluate"], "--partition", "iid", "--clients", 700)
    assert any(one.startswith("100 of 700 clients have no rows") for one in few["warnings"])


def test_a_natural_partition_is_the_client_column(capsys: Any, path: Path) -> None:
    by = document(capsys, "evaluate", path, *COMMANDS["evaluate"], "--partition", "by:site")
    column = document(capsys, "evaluate", path, *COMMANDS["evaluate"], "--client", "site")
    assert by["results"] == column["results"]
    assert by["cohort"] == column["cohort"]
    assert by["parameters"]["client"] == "site"
    text = refused(capsys, "evaluate", path, *COMMANDS["evaluate"], "--partition", "by:nobody")
    assert "column 'nobody' (client): got no such column" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--client", "site", *IID), "--partition: got 'iid' together with --client site, expected one of them"),
        (("--clients", 3), "--clients: got 3 without a partition, expected both; give --partition iid, say."),
        (("--partition", "iid"), "clients: got none, expected over how many clients rows are dealt"),
        (("--partition", "by:site", "--clients", 3), "clients: got 3 with by:site"),
        (("--partition", "dirichlet:0", "--clients", 3), "expected a finite number above 0 after the colon"),
        (("--partition", "iid", "--clients", 0), "clients: got 0, expected a whole number from 1 to 1,000,000."),
        (("--partition", "skewed", "--clients", 3), "expected iid, dirichlet:BETA (dirichlet:0.1, say) or by:COLUMN."),
    ],
)  # fmt: skip
def test_what_makes_no_partition(capsys: Any, path: Path, options: tuple[object, ...], words: str) -> None:
    assert words in refused(capsys, "evaluate", path, *COMMANDS["evaluate"], *options)


@pytest.mark.parametrize("command", ["ecdf", "conformal"])
def test_skew_needs_labels(capsys: Any, path: Path, command: str) -> None:
    text = refused(capsys, command, path, *COMMANDS[command], *DIRICHLET)
    assert "dirichlet:0.2, which deals rows by their labels, but no column of labels, expected one" in text
    if command == "ecdf":
        assert document(capsys, command, path, *COMMANDS[command], "--label", "y", *DIRICHLET)


@pytest.mark.parametrize(
    "command", [("contribute",), ("aggregate",), ("flower", "site"), ("flower", "submit")]
)
def test_real_federations_have_no_partition(capsys: Any, command: tuple[str, ...]) -> None:
    error = refused(capsys, *command, "--partition", "iid")
    assert "--partition: no such option" in error
