"""Policies: what they refuse, and that they refuse what they cannot judge."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from fedassay.errors import PolicyRefusal, UsageError
from fedassay.privacy.policy.disclosure import is_countable
from fedassay.privacy.policy.judgement import AllowAll, PolicyRequest
from fedassay.privacy.policy.rules import Allowed, SitePolicy, SummaryRule
from fedassay.protocol.vocabulary import (
    LARGEST_ROWS_PER_CLIENT,
    Budget,
    Collect,
    Part,
    Protection,
    Select,
    Setting,
    Sum,
    TrustModel,
    Unit,
)
from fedassay.summaries.distribution.path import ValuePath
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.trust import TRUST_MODELS
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.local_dp import LocalDP
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from fedassay.trust.server_dp import ServerDP
from fedassay.trust.shuffle.model import Shuffle
from shuffle_driver import HISTOGRAM
from toys import CountsUpTo


def policy_of(**rules: Any) -> SitePolicy:
    """With a total, so that noisy queries are judged by the other rules."""
    return SitePolicy(**{"total": Budget(epsilon=99.0, delta=0.5), **rules})


def asked(
    trust: TrustModel,
    budget: Budget | None,
    *,
    clients: int = 5,
    cohort: int | None = None,
    protection: Protection | None = None,
    **query: Any,
) -> PolicyRequest:
    setting = Setting(trust=trust, protection=protection or Protection(), budget=budget, clients=clients)
    plan = trust.plan(Sum(of=CountsUpTo(top=9), **query), setting)
    return PolicyRequest(plan=plan, study="study", cohort=cohort or clients, asker="somebody")


def noisy(
    epsilon: float = 1.0, delta: float = 0.0, *, trust: TrustModel | None = None, **more: Any
) -> PolicyRequest:
    return asked(trust or ServerDP(), Budget(epsilon=epsilon, delta=delta), **more)


def clear(clients: int = 5, **more: Any) -> PolicyRequest:
    return asked(Plain(), None, clients=clients, **more)


def test_the_request_describes_the_plan() -> None:
    request = noisy(share=0.5)
    assert (request.study, request.asker) == ("study", "somebody")
    assert (request.trust.name, request.summary.name, request.resolution) == ("server-dp", "counts-up-to", 10)
    assert request.clients == 5
    assert request.epsilon(0.0) == pytest.approx(0.5)
    assert clear().epsilon(0.5) == math.inf
    assert noisy(clients=100, cohort=2).clients == 2


@pytest.mark.parametrize(
    ("rules", "allowed", "refused"),
    [
        ({"trust_models": frozenset({"server-dp"})}, noisy(), clear()),
        ({"trust_models": frozenset({"plain"})}, clear(), noisy()),
        ({"largest_epsilon": 1.0}, noisy(1.0), noisy(1.01)),
        ({"largest_epsilon": 0.5}, noisy(1.0, share=0.5), noisy(1.0, share=0.6)),
        ({"largest_epsilon": 1e9}, noisy(1.0), clear()),
        ({"largest_delta": 1e-6}, noisy(1.0, 1e-6), noisy(1.0, 2e-6)),
        ({"largest_delta": 0.0}, noisy(1.0), clear()),
        ({"largest_epsilon": 1.0}, noisy(1.0, 1e-6), noisy(1.0, 1e-6, share=0.1)),  # Laplace, Gaussian
        ({"largest_epsilon": 1.0}, None, noisy(50.0, 0.99)),  # a large delta would make epsilon small
        ({"largest_epsilon": 1.0, "largest_delta": 1e-6}, noisy(1.0, 1e-6, share=0.1), noisy(1.0, 0.99)),
        ({"smallest_cohort": 5}, noisy(), noisy(clients=4)),
        ({"smallest_cohort": 5}, noisy(clients=50, cohort=5), noisy(clients=50, cohort=4)),
        ({"finest_resolution": 10}, noisy(), None),
        ({"finest_resolution": 9}, None, noisy()),
        ({"summaries": frozenset({"counts-up-to"})}, noisy(), None),
        ({"summaries": frozenset({"other"})}, None, noisy()),
        ({"summaries": frozenset()}, None, noisy()),
    ],
)
def test_each_rule(
    rules: dict[str, Any], allowed: PolicyRequest | None, refused: PolicyRequest | None
) -> None:
    policy = policy_of(**rules)
    if allowed is not None:
        policy.check(allowed)
    if refused is not None:
        with pytest.raises(PolicyRefusal, match=r"^policy: got .* expected .*\.$"):
            policy.check(refused)


def test_two_clients_are_never_enough_by_default() -> None:
    policy_of().check(noisy(clients=3))
    with pytest.raises(PolicyRefusal, match="cohort of 2"):
        policy_of().check(noisy(clients=2))


@pytest.mark.parametrize(
    "rules",
    [
        {"largest_epsilon": math.nan},
        {"largest_epsilon": 0.0},
        {"largest_delta": math.nan},
        {"largest_delta": -0.1},
        {"largest_delta": 1.0},
        {"trust_models": "plain"},
        {"summaries": ["counts-up-to"]},
        {"largest_local_epsilon": 0.0},
        {"largest_local_epsilon": math.nan},
        {"smallest_cohort": 0},
        {"smallest_cohort": True},
        {"smallest_cohort_difference": 0},
        {"smallest_rows": 1.5},
        {"smallest_collusion": 1.0},
        {"finest_resolution": 0},
        {"tasks": {"evaluate"}},
    ],
)
def test_a_rule_that_means_nothing_is_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"^{next(iter(rules))}: got .* expected .*"):
        policy_of(**rules)


def test_without_a_total_nothing_that_costs_budget_is_allowed() -> None:
    SitePolicy().check(clear())
    with pytest.raises(PolicyRefusal, match="got server-dp, which spends a budget, expected none"):
        SitePolicy().check(noisy())


def test_a_site_that_does_not_know_its_rows_refuses_under_a_rule_about_them() -> None:
    with pytest.raises(PolicyRefusal, match="does not know its rows"):
        SitePolicy(smallest_rows=1).check(clear())


def test_rows_are_counted_only_if_nothing_else_is_against_the_request() -> None:
    counted: list[int] = []

    def count() -> int:
        counted.append(1)
        return 7

    request = replace(clear(), rows=count)
    with pytest.raises(PolicyRefusal, match="cohort"):
        SitePolicy(smallest_rows=5, smallest_cohort=9).check(request)
    SitePolicy().check(request)
    assert not counted
    SitePolicy(smallest_rows=7).check(request)
    assert counted == [1]


def test_a_bound_on_rows_counts_only_where_somebody_sees_them() -> None:
    """Under noise the bound is what the noise is made for; in the clear, few rows are as readable as few rows."""
    few = {"clients": 20, "protection": Protection(rows_per_client=2)}
    policy = SitePolicy(smallest_rows=100, total=Budget(epsilon=9.0))
    policy.check(replace(noisy(trust=DistributedDP(), **few), rows=lambda: 100))
    with pytest.raises(PolicyRefusal, match="got 2 rows that would be used"):
        policy.check(replace(noisy(**few), rows=lambda: 100))


@pytest.mark.parametrize("unit", [Unit.EXAMPLE, Unit.CLIENT])
def test_an_exact_total_is_over_all_rows_of_all_clients(unit: Unit) -> None:
    """No entry of a policy allows another one: less than everything could be subtracted from everything."""
    policy = policy_of()

    def total(rows: int, part: Part = Part.ALL) -> PolicyRequest:
        return clear(protection=Protection(unit=unit, rows_per_client=rows), part=part)

    policy.check(total(LARGEST_ROWS_PER_CLIENT))
    policy.check(noisy(protection=Protection(unit=unit, rows_per_client=2), part=Part.HELD_OUT))
    with pytest.raises(PolicyRefusal, match="got an exact total over at most 1000 rows of each client"):
        policy.check(total(1000))
    if unit is Unit.EXAMPLE:
        policy.check(total(LARGEST_ROWS_PER_CLIENT, Part.HELD_OUT))
    else:
        for part in (Part.FIT, Part.HELD_OUT):
            with pytest.raises(PolicyRefusal, match="over a part of the clients"):
                policy.check(total(LARGEST_ROWS_PER_CLIENT, part))


@pytest.mark.parametrize(
    ("allowed", "inside", "outside"),
    [
        (Allowed(most=10), 10, 11),
        (Allowed(least=0.5), 0.5, math.nextafter(0.5, 0)),
        (Allowed(least=0, most=1), (0.0, 1.0), (0.5, 1.5)),
        (Allowed(most=10), -math.inf, math.nan),
        (Allowed(most=10), (10,), (math.nan,)),
        (Allowed(most=10), 10, ()),
        (Allowed(values=(0.2, 0.5)), (0.2,), ()),
        (Allowed(values=((),)), (), (0.2,)),
        (Allowed(most=10), 3, "3"),
        (Allowed(most=10), 1, True),
        (Allowed(most=10), ((1, 2), (3,)), ((1, 2), (30,))),
        (Allowed(values=("a", "b")), "b", "c"),
        (Allowed(values=(1,)), 1.0, True),
        (Allowed(values=(True,)), True, 1),
        (Allowed(values=((0.2, 0.5), ())), (0.2, 0.5), (0.2,)),
        (Allowed(values=(0.2, 0.5)), (0.5, 0.2, 0.2), (0.2, 0.3)),
    ],
)
def test_ranges_of_a_parameter(allowed: Allowed, inside: Any, outside: Any) -> None:
    assert allowed.allows(inside)
    assert not allowed.allows(outside)


@pytest.mark.parametrize("wrong", [{"least": math.nan}, {"most": "3"}, {"most": 3, "values": (1,)}])
def test_a_range_that_means_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="range: got"):
        Allowed(**wrong)


def test_a_parameter_that_the_summary_does_not_have_is_refused() -> None:
    rule = SummaryRule(parameters={"heigt": Allowed(most=3)})
    with pytest.raises(PolicyRefusal, match="without a heigt"):
        SitePolicy(summaries={"counts-up-to": rule}).check(clear())


def test_what_a_policy_is_told_about_each_trust_model() -> None:
    """Whether the server sees a client's own numbers; a model that nobody has judged counts as one where it does."""
    seen = {"plain", "server-dp"}
    assert {name for name, model in TRUST_MODELS.items() if model.shows_measurements} == seen
    assert TrustModel.shows_measurements


def test_counts_are_what_each_row_is_in_one_cell_of() -> None:
    histogram = ScoreHistogram(transform="uniform", height=2, widths=(1, 2), multipliers=(1, 3))
    assert is_countable(Sum(of=histogram))
    assert is_countable(Collect(of=ValuePath(lower=0, upper=1, points=4)))
    assert not is_countable(Select(of=histogram))
    assert not is_countable(Sum(of=CountsUpTo(top=3)))  # it does not say what its finest cells are


def test_a_simulation_allows_all() -> None:
    AllowAll().check(clear(clients=1))


def test_a_secure_sum_must_withstand_as_much_as_the_site_asks_for() -> None:
    """The asker chooses the parameters of a secure sum; a site keeps its own floor under them."""

    def total(**parameters: Any) -> PolicyRequest:
        return asked(SecureSum(**parameters), None, clients=20)

    policy_of().check(total())
    with pytest.raises(PolicyRefusal, match="colluding"):
        policy_of().check(total(collusion=0.0))
    policy_of(smallest_collusion=0.0).check(total(collusion=0.0))
    with pytest.raises(PolicyRefusal, match="total over 16 clients"):
        policy_of(smallest_cohort=17).check(total())
    policy_of(smallest_cohort=17).check(total(minimum_cohort=17))


def test_noise_that_clients_share_is_judged_by_its_own_fewest_survivors() -> None:
    """Distributed noise needs more of them than the number that the asker gives."""
    trust = DistributedDP()
    request = noisy(trust=trust, clients=20)
    assert request.smallest_total == trust.fewest_survivors(20) == 16
    policy_of(smallest_cohort=16).check(request)
    with pytest.raises(PolicyRefusal, match="total over 16 clients, expected at least 17"):
        policy_of(smallest_cohort=17).check(request)


def test_a_message_that_only_a_shuffler_hides_has_a_bound_of_its_own() -> None:
    """The larger the crowd that the asker claims, the less noise a message has: a site keeps a floor under it."""

    def shuffled(clients: int, trust: TrustModel | None = None) -> PolicyRequest:
        setting = Setting(
            trust=trust or Shuffle(),
            protection=Protection(rows_per_client=1),
            budget=Budget(epsilon=1.0, delta=1e-6),
            clients=clients,
        )
        plan = setting.trust.plan(Sum(of=HISTOGRAM), setting)
        return PolicyRequest(plan=plan, study="study", cohort=clients)

    request = shuffled(10_000)
    assert request.epsilon(1e-6) <= 1.0 < 4.0 < request.local_epsilon < 8.0
    policy_of(largest_local_epsilon=request.local_epsilon).check(request)
    just_below = math.nextafter(request.local_epsilon, 0.0)
    with pytest.raises(PolicyRefusal, match="that only shuffling hides, expected at most"):
        policy_of(largest_local_epsilon=just_below).check(request)

    claimed = shuffled(10**9)
    assert claimed.epsilon(1e-6) <= 1.0
    assert claimed.local_epsilon > 8.0
    # Also where the site believes in the shuffler: with a rule for delta.
    for policy in (policy_of(), policy_of(largest_epsilon=1.0, largest_delta=1e-6)):
        policy.check(request)
        with pytest.raises(PolicyRefusal, match="that only shuffling hides"):
            policy.check(claimed)
    # What needs no shuffler is judged by its epsilon alone.
    policy_of(largest_local_epsilon=1e-3).check(shuffled(10_000, LocalDP()))
    policy_of(largest_local_epsilon=1e-3).check(clear())
