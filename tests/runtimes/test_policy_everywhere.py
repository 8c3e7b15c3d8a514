"""Every entry of a policy on every runtime: just inside passes, just outside is refused, with its code and reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fedassay.crypto.identity import Identity, key_to_text
from fedassay.errors import TooFewClients
from fedassay.kernel.run import Job, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.policy.disclosure import PROFILES
from fedassay.privacy.policy.file import _ENTRIES
from fedassay.protocol.vocabulary import (
    LARGEST_ROWS_PER_CLIENT,
    Budget,
    Collect,
    Neighbours,
    Part,
    Protection,
    Unit,
)
from fedassay.summaries.score_histogram import PairedHistograms, ScoreHistogram
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.secure_sum import SecureSum
from fedassay.trust.server_dp import ServerDP
from fedassay.trust.shuffle.model import Shuffle
from policy_sites import HISTOGRAM, ROWS, SECURE, Ask, Direct, FileDrop, InProcess, Sites, Transport, code_of

STRANGER = key_to_text(Identity.draw(SECURE).public)
ALL = ("plain", "secure-sum", "server-dp", "distributed-dp", "shuffle")
TOTAL = "[total]\nepsilon = 9.0\ndelta = 0.1\n"
PLAIN = Ask()
WHOLE_CLIENTS = Protection(unit=Unit.CLIENT, rows_per_client=LARGEST_ROWS_PER_CLIENT)
NOISY = Ask(trust=ServerDP(), budget=Budget(epsilon=1.0))
SHUFFLED = Ask(
    trust=Shuffle(), budget=Budget(epsilon=1.0, delta=0.01), protection=Protection(rows_per_client=1)
)
"""Of four clients, each message costs an epsilon of 1.034 by itself."""


def finer(ask: Ask, **fields: Any) -> Ask:
    assert isinstance(ask.summary, ScoreHistogram)
    return replace(ask, summary=replace(ask.summary, **fields))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A policy, what it just allows and what it just refuses; or another policy that refuses the same."""

    policy: str
    inside: Ask = PLAIN
    outside: Ask = PLAIN
    stricter: str | None = None
    words: str
    code: str = "policy"
    trust_models: Sequence[str] = ALL


CASES = {
    "tasks": Case(
        policy='tasks = ["evaluate"]',
        outside=Ask(task="calibrate"),
        words="got the task calibrate, expected one of evaluate",
    ),
    "trust_models": Case(
        policy="",
        outside=Ask(trust=SecureSum()),
        trust_models=("plain",),
        words="got the trust model secure-sum, expected one of plain",
    ),
    "summaries": Case(
        policy='summaries = ["score-histogram"]',
        outside=Ask(summary=PairedHistograms.like(HISTOGRAM)),
        words="got the summary paired-histograms",
    ),
    "summaries.most": Case(
        policy="[summaries.score-histogram]\nheight = {most = 3}",
        outside=finer(Ask(), height=4),
        words="got score-histogram with height 4, expected at most 3",
    ),
    "summaries.least": Case(
        policy="[summaries.score-histogram]\nheight = {least = 3}",
        outside=finer(Ask(), height=2),
        words="got score-histogram with height 2, expected at least 3",
    ),
    "summaries.values": Case(
        policy='[summaries.score-histogram]\ntransform = ["uniform"]\nthresholds = [0.5]',
        inside=finer(Ask(), thresholds=(0.5,)),
        outside=finer(Ask(), thresholds=(0.5, 0.51)),
        words="got score-histogram with thresholds (0.5, 0.51), expected one of 0.5",
    ),
    "summaries.numbers": Case(
        policy="[summaries.score-histogram]\nnumbers = {most = 16}",
        outside=finer(Ask(), height=4),
        words="got 32 numbers of score-histogram, expected at most 16",
    ),
    "finest_resolution": Case(
        policy="finest_resolution = 16",
        outside=finer(Ask(), height=4),
        words="got 32 numbers per client, expected at most 16",
    ),
    "largest_epsilon": Case(
        policy="largest_epsilon = 1.0\n" + TOTAL,
        inside=NOISY,
        outside=replace(NOISY, budget=Budget(epsilon=1.001)),
        words="got epsilon 1 at delta 0, expected at most 1 per query",
    ),
    "largest_epsilon.exact": Case(
        policy="largest_epsilon = 1.0\n" + TOTAL, inside=NOISY, outside=Ask(), words="got epsilon inf"
    ),
    "largest_delta": Case(
        policy="largest_delta = 1e-6\n" + TOTAL,
        inside=replace(NOISY, budget=Budget(epsilon=1.0, delta=1e-6)),
        outside=replace(NOISY, budget=Budget(epsilon=1.0, delta=1.001e-6)),
        words="got delta 1e-06, expected at most 1e-06",
    ),
    "largest_local_epsilon": Case(
        policy="largest_local_epsilon = 1.035\n" + TOTAL,
        inside=SHUFFLED,
        outside=SHUFFLED,
        stricter="largest_local_epsilon = 1.034\n" + TOTAL,
        words="got messages of epsilon 1.03 that only shuffling hides",
    ),
    "total": Case(
        policy="[total]\nepsilon = 1.0",
        inside=NOISY,
        outside=NOISY,
        stricter="[total]\nepsilon = 0.999",
        words="requested epsilon 1",
        code="budget",
    ),
    "total.none": Case(
        policy=TOTAL, inside=NOISY, outside=NOISY, stricter="", words="which spends a budget, expected none"
    ),
    "units": Case(
        policy='units = ["example"]',
        outside=Ask(protection=Protection(unit=Unit.CLIENT, rows_per_client=ROWS)),
        words="got the unit client, expected one of example",
    ),
    "neighbours": Case(
        policy='neighbours = ["add-remove"]',
        outside=Ask(protection=Protection(neighbours=Neighbours.REPLACE_ONE)),
        words="got the neighbours replace-one, expected one of add-remove",
    ),
    "smallest_cohort": Case(
        policy="smallest_cohort = 4",
        outside=Ask(cohort=3),
        words="got a cohort of 3 clients, expected at least 4",
    ),
    "smallest_cohort.survivors": Case(
        policy="smallest_cohort = 4\nlargest_dropout = 0.25",
        inside=Ask(trust=SecureSum(minimum_cohort=4, dropout=0.25)),
        outside=Ask(trust=SecureSum(minimum_cohort=3, dropout=0.25)),
        words="would release a total over 3 clients, expected at least 4 (`minimum_cohort=4`)",
    ),
    "smallest_collusion": Case(
        policy="smallest_collusion = 0.25",
        inside=Ask(trust=SecureSum(collusion=0.25)),
        outside=Ask(trust=SecureSum(collusion=0.249)),
        words="withstands 0.249 colluding clients, expected at least 0.25",
    ),
    "largest_dropout": Case(
        policy="largest_dropout = 0.1",
        inside=Ask(trust=SecureSum(dropout=0.1)),
        outside=Ask(trust=SecureSum(dropout=0.101)),
        words="in which 0.101 of the clients may fall silent, expected at most 0.1 (`dropout=0.1`)",
    ),
    "largest_dropout.default": Case(
        policy="",
        inside=Ask(trust=SecureSum()),
        outside=Ask(trust=SecureSum(dropout=0.21)),
        words="in which 0.21 of the clients may fall silent, expected at most 0.2",
    ),
    "smallest_noise_shares": Case(
        policy="smallest_noise_shares = 3\n" + TOTAL,
        inside=replace(NOISY, trust=DistributedDP()),
        outside=replace(NOISY, trust=DistributedDP(collusion=0.3)),
        words="got totals with the noise of 2 honest clients, expected at least 3",
    ),
    "trusted_members": Case(
        policy='trusted_members = ["a", "b", "c"]',
        inside=Ask(trust=SecureSum(members=("a", "b", "x"))),
        outside=Ask(trust=SecureSum(members=("a", "x", "y"))),
        words="got totals that x, y would open, expected at most 1 who are not among trusted_members",
    ),
    "trusted_members.none": Case(
        policy='trusted_members = ["a", "b", "c"]',
        inside=Ask(trust=SecureSum(members=("a", "b", "c"))),
        outside=Ask(trust=SecureSum(members=("a", "b", "c"))),
        stricter="",
        words="expected trusted_members here, or that all sites do",
    ),
    "same_set": Case(
        policy="same_set = true",
        inside=Ask(trust=SecureSum(same_set=True)),
        outside=Ask(trust=SecureSum(cohort_difference=4)),
        words="got exact totals over any clients, expected all over the same ones (`same_set`)",
    ),
    "smallest_cohort_difference": Case(
        policy="smallest_cohort_difference = 2",
        inside=Ask(trust=SecureSum(cohort_difference=3)),
        outside=Ask(trust=SecureSum(cohort_difference=2)),
        words="expected none or at least 3: 1 colluders and 2 others",
    ),
    "smallest_rows": Case(
        policy=f"smallest_rows = {ROWS}",
        stricter=f"smallest_rows = {ROWS + 1}",
        words=f"got {ROWS} rows that would be used, expected at least {ROWS + 1}",
    ),
    "an exact total over some rows": Case(
        policy="",
        inside=Ask(protection=Protection(rows_per_client=LARGEST_ROWS_PER_CLIENT)),
        outside=Ask(protection=Protection(rows_per_client=LARGEST_ROWS_PER_CLIENT - 1)),
        words="which another total may differ from by one row",
    ),
    "an exact total over some clients": Case(
        policy="",
        inside=Ask(protection=WHOLE_CLIENTS),
        outside=Ask(protection=WHOLE_CLIENTS, part=Part.HELD_OUT),
        words="got an exact total over a part of the clients (held-out)",
    ),
    "askers": Case(
        policy='askers = ["COORDINATOR"]',
        stricter=f'askers = ["{STRANGER}"]',
        words=f"expected one of {STRANGER}",
    ),
    "disclosure.not-counts": Case(
        policy='disclosure = "minimum-5"',
        outside=Ask(summary=PairedHistograms.like(HISTOGRAM)),
        words="in the clear, which is not made of counts",
    ),
    "disclosure.noise": Case(
        policy='disclosure = "minimum-5"\n' + TOTAL,
        inside=replace(NOISY, trust=DistributedDP()),
        outside=NOISY,
        words="got server-dp with the disclosure profile minimum-5, expected distributed-dp or local-dp",
    ),
}


@pytest.fixture(params=["in-process", "file-drop", "flower"])
def transport(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Transport:
    sites = Sites(tmp_path, tuple("abcdefg" if "sets" in request.node.name else "abcd"))
    if request.param == "in-process":
        return InProcess(sites)
    if request.param == "file-drop":
        return FileDrop(sites)
    pytest.importorskip("flwr", reason="Flower is not installed; pip install 'fedassay[flower]'")
    from flower_direct import ByFlower

    return ByFlower(sites, monkeypatch)


def asked(transport: Transport, ask: Ask, name: str = "a") -> str | None:
    transport.begin(ask, transport.sites.names)
    return code_of(transport.said(name, ask.body(name), ask.trust.first_client_leg))


@pytest.mark.parametrize("name", CASES)
def test_just_inside_passes_and_just_outside_is_refused(transport: Transport, name: str) -> None:
    case, sites = CASES[name], transport.sites

    def allow(policy: str) -> None:
        sites.allow("a", policy.replace("COORDINATOR", sites.asker), trust_models=case.trust_models)

    allow(case.policy)
    # A first message that is more than a question is malformed here: then the policy has let it pass.
    assert asked(transport, case.inside) in (None, "malformed")
    before = len(sites.refusals("a"))
    allow(case.policy if case.stricter is None else case.stricter)
    assert asked(transport, case.outside) == case.code
    (refused,) = sites.refusals("a")[before:]
    assert case.words in refused.reason
    assert (refused.code, refused.asker) == (case.code, sites.asker)
    assert len(refused.exchange) == 32
    assert refused.study.startswith("s")


def test_every_entry_of_a_policy_has_its_case() -> None:
    elsewhere = {"changed_rows"}  # `test_client_ledger.py`
    always = {"an exact total over some rows", "an exact total over some clients"}  # whatever the entries say
    assert {name.partition(".")[0] for name in CASES} - always | elsewhere == set(_ENTRIES)


# --- several sites, and what leaves them ----------------------------------------------------------------------


def exchanged(
    transport: Transport, ask: Ask, names: Sequence[str], *, silent: Sequence[str] = ()
) -> dict[str, str]:
    """Drive the whole exchange; who refused, with which code."""
    ask = replace(ask, cohort=len(names))
    transport.begin(ask, names)
    runtime = Direct(transport, names, silent=silent)

    class Once:
        def steps(self, setting: Any) -> Any:
            released = yield ask.kind(of=ask.summary)
            return released

    job = Job(name=ask.task, task=Once(), setting=ask.plan(len(names)).setting)
    try:
        run([job], runtime=runtime, ledger=MemoryLedger(None), randomness=SECURE, study=transport.study_name)
    except TooFewClients:
        assert runtime.refusals or ask.trust.same_set  # type: ignore[attr-defined]
    return {name: str(code) for name, code in runtime.refusals.items()}


@pytest.mark.parametrize(
    ("rule", "terms"),
    [
        ("smallest_cohort_difference = 2", SecureSum(cohort_difference=3)),
        ("same_set = true", SecureSum(same_set=True)),
    ],
)
def test_sets_of_sites_that_could_be_subtracted_are_refused(
    transport: Transport, rule: str, terms: SecureSum
) -> None:
    sites, names = transport.sites, "abcdefg"
    everybody = dict.fromkeys(names, "policy")
    for name in names:
        sites.allow(name, rule, trust_models=("secure-sum",))
    ask = Ask(trust=terms)
    assert exchanged(transport, Ask(trust=SecureSum()), names) == everybody  # terms that do not keep the rule
    assert exchanged(transport, ask, names) == {}
    silent = exchanged(transport, ask, names, silent="g")
    if terms.same_set:
        assert silent == {}  # an honest coordinator waits for g, and asks no member
    else:
        assert silent == everybody
        assert "differ from those of an earlier one by 1 (g)" in sites.refusals("a")[-1].reason
    assert exchanged(transport, ask, names) == {}  # the same set again says nothing new


def test_a_rule_about_sets_that_comes_later_knows_what_was_opened_before(transport: Transport) -> None:
    sites, names = transport.sites, "abcdefg"
    for name in names:
        sites.allow(name, trust_models=("secure-sum",))
    assert exchanged(transport, Ask(trust=SecureSum()), names, silent="g") == {}
    assert exchanged(transport, Ask(trust=SecureSum()), names) == {}  # no rule: the difference is g's table
    sites.allow("a", "same_set = true", trust_models=("secure-sum",))
    assert exchanged(transport, Ask(trust=SecureSum(same_set=True)), names) == dict.fromkeys(names, "policy")


def test_a_profile_protects_what_the_server_sees(transport: Transport) -> None:
    """The counts that leave are those of the rows, protected in the finest cells."""
    ask = replace(finer(Ask(), widths=(1, 2, 4), multipliers=()), kind=Collect)
    seen: dict[str, list[Any]] = {}
    for profile in ("", "minimum-5", "minimum-11", "redact-7-round-5"):
        transport.sites.allow("a", f'disclosure = "{profile}"' if profile else "")
        transport.begin(ask, transport.sites.names)
        reply = transport.said("a", ask.body("a"), 0)
        seen[profile] = [reply["message"]["vectors"][0]]
    (exact,) = seen.pop("")
    leaves = exact[ask.summary.partitions[0]]
    assert 0 < leaves[leaves > 0].min() < 5  # or nothing would be hidden
    for name, (vector,) in seen.items():
        protected = PROFILES[name].protect(leaves)
        assert vector.tolist() == ask.summary.from_leaves(protected).tolist()
        assert vector.tolist() != exact.tolist()


# --- policies that cannot be understood -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (
            'trust_models = ["plain"]\nsmallest_cohrt = 3',
            "line 2: unknown entry 'smallest_cohrt'; did you mean",
        ),
        ('trust_models = ["plain"', "is not TOML"),
        ("smallest_cohort = 3", "trust_models is missing"),
        (b"\xff\xfe", "is not TOML"),
        (None, "cannot be read"),
    ],
)
def test_a_policy_that_is_not_understood_refuses_everything_and_says_where(
    transport: Transport, policy: str | bytes | None, words: str
) -> None:
    assert asked(transport, Ask()) is None
    path = transport.sites.root / "a" / "policy.toml"
    if policy is None:
        path.unlink()
    else:
        path.write_bytes(policy if isinstance(policy, bytes) else policy.encode())
    assert asked(transport, Ask()) == "policy"
    reason = transport.sites.refusals("a")[-1].reason
    assert "policy.toml" in reason
    assert words in reason
    transport.sites.allow("a")
    assert asked(transport, Ask()) is None
