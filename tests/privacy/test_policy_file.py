"""A policy as it is written: every entry is read, and whatever is mistyped refuses everything, with its line."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from pathlib import Path

import pytest

from fedassay.errors import PolicyRefusal
from fedassay.kernel.sites import VOCABULARY
from fedassay.privacy.policy import file as policy_file
from fedassay.privacy.policy.disclosure import PROFILES
from fedassay.privacy.policy.file import _ENTRIES, PolicyFile, parsed
from fedassay.privacy.policy.rules import Allowed, SitePolicy, SummaryRule
from fedassay.protocol.vocabulary import Budget, Neighbours, Unit

KEY = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
WHOLE = f"""
tasks = ["evaluate", "calibrate"]
trust_models = ["secure-sum"]
askers = ["{KEY}"]
units = ["example"]
neighbours = ["add-remove", "replace-one"]
finest_resolution = 4096
largest_epsilon = 1
largest_delta = 1e-6
largest_local_epsilon = 4.0
smallest_cohort = 5
smallest_cohort_difference = 3
same_set = true
changed_rows = true
smallest_collusion = 0.2
largest_dropout = 0.1
smallest_noise_shares = 4
trusted_members = ["north", "south"]
smallest_rows = 50
disclosure = "redact-7-round-5"

[total]
epsilon = 3.0
delta = 1e-6

[summaries.score-histogram]
height = {{ most = 10 }}
transform = ["uniform", "logit"]
thresholds = [[], [0.2, 0.5]]
numbers = {{ least = 2, most = 4096 }}

[summaries.value-tree]
"""


def rules(text: str) -> SitePolicy:
    policy = parsed(text.encode(), VOCABULARY, where="policy.toml").now()
    assert isinstance(policy, SitePolicy)
    return policy


def test_every_entry_is_read() -> None:
    policy = rules(WHOLE)
    assert policy == SitePolicy(
        tasks=frozenset({"evaluate", "calibrate"}),
        trust_models=frozenset({"secure-sum"}),
        askers=frozenset({KEY}),
        units=frozenset({Unit.EXAMPLE}),
        neighbours=frozenset(Neighbours),
        finest_resolution=4096,
        largest_epsilon=1.0,
        largest_delta=1e-6,
        largest_local_epsilon=4.0,
        smallest_cohort=5,
        smallest_cohort_difference=3,
        same_set=True,
        changed_rows=True,
        smallest_collusion=0.2,
        largest_dropout=0.1,
        smallest_noise_shares=4,
        trusted_members=frozenset({"north", "south"}),
        smallest_rows=50,
        disclosure=PROFILES["redact-7-round-5"],
        total=Budget(epsilon=3.0, delta=1e-6),
        summaries={
            "score-histogram": SummaryRule(
                parameters={
                    "height": Allowed(most=10),
                    "transform": Allowed(values=("uniform", "logit")),
                    "thresholds": Allowed(values=([], [0.2, 0.5])),
                },
                numbers=Allowed(least=2, most=4096),
            ),
            "value-tree": SummaryRule(),
        },
    )
    assert set(_ENTRIES) == {entry.name for entry in fields(SitePolicy)}
    assert all(re.search(rf"^(\[)?{entry}\b", WHOLE, re.MULTILINE) for entry in _ENTRIES)


def test_the_example_of_the_module_is_one() -> None:
    text = (policy_file.__doc__ or "").partition("```toml\n")[2].partition("```")[0]
    assert rules(text.replace("KEY-OF-COORDINATOR", KEY)).smallest_cohort == 5


WITHOUT_TRUST = [
    ("smallest_cohort = 5", None, 'trust_models is missing; expected a list such as ["secure-sum"]'),
    ("", None, "trust_models is missing"),
    ('trust_models = "plain"', 1, "trust_models must be a list of names in quotes"),
    ("trust_models = [1]", 1, "trust_models must be a list of names in quotes"),
    ('trust_models = ["secure_sum"]', 1, "got 'secure_sum', did you mean 'secure-sum'?"),
    ('trust_models = ["telepathy"]', 1, "got 'telepathy', expected some of distributed-dp, "),
    ("trust_models = [", None, "is not TOML"),
]
"""What is written, the line that is named, and what is said of it."""

MISTYPED = [
    ("smallest_rowz = 5", 2, "unknown entry 'smallest_rowz'; did you mean 'smallest_rows'?"),
    ("zzz = 5", 2, "unknown entry 'zzz'; expected only askers, changed_rows, "),
    ("[budget]\nepsilon = 1", 2, "unknown entry 'budget'"),
    ("\n  [ total ]\nepsilon = -1", 4, "total epsilon: got -1, expected a number above 0"),
    ("[total]\ndelta = 0.1", 2, "total must be a section ([total]) with epsilon"),
    ("[total]\nepsilon = 1\ndelta = true", 4, "total has the entries epsilon and delta only"),
    ("[total]\nepsilon = 1\ngamma = 1", 4, "total has the entries epsilon and delta only"),
    ("total = 3", 2, "total must be a section"),
    ('tasks = ["evalute"]', 2, "tasks: got 'evalute', did you mean 'evaluate'?"),
    ('units = ["row"]', 2, "units: got 'row', expected some of client, example"),
    ('neighbours = ["add"]', 2, "neighbours: got 'add'"),
    ('askers = "x"', 2, "askers must be a list of public keys"),
    ('askers = ["hospital-a"]', 2, "askers must be a list of public keys"),
    ('summaries = ["other"]', 2, "summaries: got 'other', expected some of "),
    ("summaries = 3", 2, "summaries must be a list of names in quotes"),
    ("[summaries]\nscore-histogram = 3", 3, "score-histogram must be a section"),
    ("[summaries.score-histograms]", 2, "did you mean 'score-histogram'?"),
    ("[summaries.score-histogram]\nhight = 3", 3, "score-histogram has no 'hight'; expected"),
    ("[summaries.score-histogram]\nheight = {mst = 3}", 3, "expected least, most, or both"),
    ("[summaries.score-histogram]\nheight = {}", 3, "expected least, most, or both"),
    ("[summaries.score-histogram]\nheight = {most = '3'}", 3, "expected least, most, or both"),
    ("[summaries.score-histogram]\nheight = {most = nan}", 3, "range: got nan"),
    ('disclosure = "minimum-3"', 2, "disclosure: got 'minimum-3', expected one of minimum-5"),
    ("disclosure = 5", 2, "disclosure: got 5"),
    ("largest_delta = 1", 2, "largest_delta: got 1.0, expected a number in [0, 1)"),
    ("smallest_rows = 1\nsmallest_rows = 2", None, "is not TOML (Cannot overwrite a value"),
    *(
        (f"{name} = {value}", 2, f"{name}: got ")
        for name in (
            *("smallest_cohort", "smallest_cohort_difference", "smallest_rows", "finest_resolution"),
        )
        for value in ("0", "-1", "3.0", '"3"', "true")
    ),
    *(
        (f"{name} = {value}", 2, f"{name}: got ")
        for name in ("largest_epsilon", "largest_local_epsilon", "largest_delta", "smallest_collusion")
        for value in ("-1", "nan", '"1"', "true")
    ),
]
"""The same, below a first line that is right."""


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [*WITHOUT_TRUST, *((f"trust_models = []\n{text}", line, words) for text, line, words in MISTYPED)],
)
def test_whatever_is_mistyped_refuses_everything_and_names_the_line(
    text: str, line: int | None, words: str
) -> None:
    policy = parsed(text.encode(), VOCABULARY, where="policy.toml")
    with pytest.raises(PolicyRefusal) as caught:
        policy.now()
    said = str(caught.value)
    assert said.startswith("policy: policy.toml" + (":" if line is None else f", line {line}: "))
    assert words in said
    assert said.endswith("Everything is refused until this is corrected.")
    with pytest.raises(PolicyRefusal):
        policy.check(None)  # type: ignore[arg-type]


def test_no_number_slips_through_as_infinite_patience() -> None:
    """An infinite bound is what somebody wrote; not-a-number is what nobody means."""
    assert rules("trust_models = []\nlargest_epsilon = inf").largest_epsilon == math.inf


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    policy = PolicyFile(path, VOCABULARY)
    with pytest.raises(PolicyRefusal, match=r"policy.toml: cannot be read \(No such file"):
        policy.now()
    path.write_text('trust_models = ["plain"]')
    first = policy.now()
    assert policy.now() is first
    path.write_text("trust_models = [")
    for _ in range(2):
        with pytest.raises(PolicyRefusal, match="is not TOML"):
            policy.now()
    path.write_text('trust_models = ["secure-sum"]')
    changed = policy.now()
    assert isinstance(changed, SitePolicy)
    assert changed.trust_models == {"secure-sum"}
    path.unlink()
    path.mkdir()
    with pytest.raises(PolicyRefusal, match="cannot be read"):
        policy.now()
