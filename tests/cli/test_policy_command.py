"""`--policy`, `--asker`, `--disclosure` and `--minimum-cohort`: trying a site's rules before they are rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from command_line import call, json_of, refused

KEY = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
COLUMNS = ["--client", "site", "--score", "p", "--label", "y", "--height", "6"]


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    score = rng.random(300)
    site = np.repeat(["a", "b", "c", "d", "e"], [80, 80, 80, 50, 10])
    path = tmp_path / "scores.csv"
    pd.DataFrame({"site": site, "p": score, "y": (rng.random(300) < score).astype(int)}).to_csv(
        path, index=False
    )
    return path


def tried(capsys: Any, csv: Path, policy: str, *options: object) -> tuple[int, str, str]:
    path = csv.parent / "policy.toml"
    path.write_text(policy)
    code, out, err = call(
        capsys, "evaluate", csv, *COLUMNS, "--policy", path, "--json", "-", "--quiet", *options
    )
    return code, out, err


def test_a_policy_that_allows_changes_nothing(capsys: Any, csv: Path) -> None:
    policy = (
        'tasks = ["evaluate"]\ntrust_models = ["secure-sum"]\nsmallest_cohort = 3\nfinest_resolution = 128\n'
    )
    code, out, _ = tried(capsys, csv, policy)
    assert code == 0
    _, without, _ = call(capsys, "evaluate", csv, *COLUMNS, "--json", "-", "--quiet")
    assert json.loads(out)["results"] == json.loads(without)["results"]


def test_a_policy_that_refuses_says_why(capsys: Any, csv: Path) -> None:
    code, out, err = tried(capsys, csv, 'trust_models = ["secure-sum"]\nfinest_resolution = 127\n')
    assert (code, out) == (3, "")
    assert "refused: policy: got 128 numbers per client, expected at most 127." in err


def test_who_is_refused_by_some_is_told_in_the_result(capsys: Any, csv: Path) -> None:
    code, out, _ = tried(capsys, csv, 'trust_models = ["secure-sum"]\nsmallest_rows = 11\n')
    assert code == 0
    document = json.loads(out)
    assert document["cohort"]["clients"] == 4
    assert (
        "The client e refused: policy: got 10 rows that would be used, expected at least 11."
        in document["warnings"]
    )


def test_the_fewest_clients_can_be_raised_to_what_a_policy_asks_for(capsys: Any, csv: Path) -> None:
    policy = 'trust_models = ["secure-sum"]\nsmallest_cohort = 5\n'
    code, _, err = tried(capsys, csv, policy)
    assert code == 3
    assert "(--minimum-cohort 5)" in err
    assert tried(capsys, csv, policy, "--minimum-cohort", 5)[0] == 0
    code, _, err = tried(capsys, csv, policy, "--privacy", "plain", "--minimum-cohort", 5)
    assert (code, "--minimum-cohort: unknown parameter of plain, which has none" in err) == (2, True)


def test_an_asker_is_taken_at_its_word_in_a_simulation(capsys: Any, csv: Path) -> None:
    policy = f'trust_models = ["secure-sum"]\naskers = ["{KEY}"]\n'
    code, _, err = tried(capsys, csv, policy)
    assert code == 3
    assert "got the asker none" in err
    assert tried(capsys, csv, policy, "--asker", KEY)[0] == 0
    err = refused(capsys, "evaluate", csv, *COLUMNS, "--asker", KEY, "--quiet")
    assert "give --policy too" in err


def test_the_total_holds_for_everything_that_a_task_asks(capsys: Any, csv: Path) -> None:
    policy = 'trust_models = ["server-dp"]\n[total]\nepsilon = 1.0\n'
    assert tried(capsys, csv, policy, "--privacy", "server-dp", "--epsilon", 1)[0] == 0
    code, _, err = tried(capsys, csv, policy, "--privacy", "server-dp", "--epsilon", 1.01)
    assert code == 3
    assert "requested epsilon 1.01, remaining 1 of 1" in err


@pytest.mark.parametrize(
    ("policy", "options", "words"),
    [
        (
            "trust_models = []\nsmallest_kohort = 3",
            (),
            "policy.toml, line 2: unknown entry 'smallest_kohort'",
        ),
        ("trust_models = [", (), "policy.toml: is not TOML"),
        ('trust_models = ["plain"]', ("--mode", "aggregate"), "leave out --runtime and --mode"),
        ('trust_models = ["plain"]', ("--runtime", "flower"), "leave out --runtime and --mode"),
        (
            'trust_models = ["plain"]',
            ("--disclosure", "minimum-3"),
            "disclosure: got 'minimum-3', expected one of",
        ),
    ],
)
def test_what_cannot_be_tried_is_said_before_data_are_read(
    capsys: Any, csv: Path, policy: str, options: tuple[str, ...], words: str
) -> None:
    csv.write_text("")
    code, _, err = tried(capsys, csv, policy, *options)
    assert code == 2
    assert words in err


def test_a_profile_is_said_in_the_result(capsys: Any, csv: Path) -> None:
    document = json_of(capsys, "evaluate", csv, *COLUMNS, "--disclosure", "redact-7-round-5")
    assert document["privacy"]["disclosure"] == "redact-7-round-5"
    assert "others were rounded to multiples of 5" in document["warnings"][-1]
    assert document["cohort"]["rows"] % 5 == 0


ALL_OF_THEM = ("--minimum-cohort", "5", "--same-set")


def examples() -> list[str]:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "policy.md").read_text()
    return [block.partition("```")[0] for block in page.split("```toml\n")[1:]]


@pytest.mark.parametrize(
    ("number", "options", "words"),
    [
        (
            0,
            ("--privacy", "distributed-dp", "--epsilon", "1", "--delta", "1e-6", "--minimum-cohort", "5"),
            "",
        ),
        (
            0,
            ("--privacy", "distributed-dp", "--epsilon", "1.1", "--delta", "1e-6", "--minimum-cohort", "5"),
            "expected at most 1 per query",
        ),
        (1, ("--height", "5", *ALL_OF_THEM), ""),
        (1, ("--height", "6", *ALL_OF_THEM), "with height 6, expected one of 5"),
        (1, ("--height", "5", *ALL_OF_THEM, "--threshold", "0.51"), "with thresholds (0.1, "),
    ],
)
def test_the_examples_of_the_page(
    capsys: Any, csv: Path, number: int, options: tuple[str, ...], words: str
) -> None:
    data = pd.read_csv(csv)
    pd.concat([data.assign(site=f"s{i}") for i in range(5)]).to_csv(csv, index=False)
    policy = examples()[number].replace("KEY-OF-COORDINATOR", KEY)
    code, _, err = tried(capsys, csv, policy, "--asker", KEY, "--transform", "uniform", *options)
    assert code == (3 if words else 0), err
    assert words in err
