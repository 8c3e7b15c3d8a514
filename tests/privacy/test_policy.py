"""Policies: what they refuse, and that they refuse what they cannot judge."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fedassay.errors import PolicyRefusal, UsageError
from fedassay.privacy.policy import AllowAll, PolicyRequest, SimplePolicy
from fedassay.protocol import Budget, Plan, Protection, Setting, Sum, TrustModel
from fedassay.trust.local_dp import LocalDP
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from fedassay.trust.server_dp import ServerDP
from fedassay.trust.shuffle import Shuffle
from shuffle_driver import HISTOGRAM
from toys import CountsUpTo


def noisy(
    epsilon: float = 1.0,
    delta: float = 0.0,
    *,
    share: float = 1.0,
    clients: int = 5,
    cohort: int | None = None,
) -> PolicyRequest:
    budget = Budget(epsilon=epsilon, delta=delta)
    setting = Setting(trust=ServerDP(), protection=Protection(), budget=budget, clients=clients)
    plan = ServerDP().plan(Sum(of=CountsUpTo(top=9), share=share), setting)
    return PolicyRequest.of(plan, study="study", cohort=cohort or clients, asker="somebody")


def clear(clients: int = 5) -> PolicyRequest:
    setting = Setting(trust=Plain(), protection=Protection(), budget=None, clients=clients)
    plan: Plan = Plain().plan(Sum(of=CountsUpTo(top=9)), setting)
    return PolicyRequest.of(plan, study="study", cohort=clients)


def test_the_request_describes_the_plan() -> None:
    request = noisy(share=0.5)
    assert (request.study, request.asker) == ("study", "somebody")
    assert (request.trust_model, request.summary, request.resolution) == ("server-dp", "counts-up-to", 10)
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
    policy = SimplePolicy(**rules)
    if allowed is not None:
        policy.check(allowed)
    if refused is not None:
        with pytest.raises(PolicyRefusal, match=r"^policy: got .* expected .*\.$"):
            policy.check(refused)


def test_two_clients_are_never_enough_by_default() -> None:
    SimplePolicy().check(noisy(clients=3))
    with pytest.raises(PolicyRefusal, match="cohort of 2"):
        SimplePolicy().check(noisy(clients=2))


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
        {"finest_resolution": 0},
    ],
)
def test_a_rule_that_means_nothing_is_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="policy"):
        SimplePolicy(**rules)


def test_a_simulation_allows_all() -> None:
    AllowAll().check(clear(clients=1))


def test_a_secure_sum_must_withstand_as_much_as_the_site_asks_for() -> None:
    """The asker chooses the parameters of a secure sum; a site keeps its own floor under them."""

    def asked(**parameters: float) -> PolicyRequest:
        trust = SecureSum(**parameters)  # type: ignore[arg-type]
        setting = Setting(trust=trust, protection=Protection(), budget=None, clients=20)
        return PolicyRequest.of(trust.plan(Sum(of=CountsUpTo(top=9)), setting), study="study", cohort=20)

    SimplePolicy().check(asked())
    with pytest.raises(PolicyRefusal, match="colluding"):
        SimplePolicy().check(asked(collusion=0.0))
    SimplePolicy(smallest_collusion=0.0).check(asked(collusion=0.0))
    with pytest.raises(PolicyRefusal, match="total over 3 clients"):
        SimplePolicy(smallest_cohort=10).check(asked())
    SimplePolicy(smallest_cohort=10).check(asked(minimum_cohort=10))


def test_a_message_that_only_a_shuffler_hides_has_a_bound_of_its_own() -> None:
    """The larger the crowd that the asker claims, the less noise a message has: a site keeps a floor under it."""

    def asked(clients: int, trust: TrustModel | None = None) -> PolicyRequest:
        setting = Setting(
            trust=trust or Shuffle(),
            protection=Protection(rows_per_client=1),
            budget=Budget(epsilon=1.0, delta=1e-6),
            clients=clients,
        )
        plan = setting.trust.plan(Sum(of=HISTOGRAM), setting)
        return PolicyRequest.of(plan, study="study", cohort=clients)

    request = asked(10_000)
    assert request.epsilon(1e-6) <= 1.0 < 4.0 < request.local_epsilon < 8.0
    SimplePolicy(largest_local_epsilon=request.local_epsilon).check(request)
    just_below = math.nextafter(request.local_epsilon, 0.0)
    with pytest.raises(PolicyRefusal, match="that only shuffling hides, expected at most"):
        SimplePolicy(largest_local_epsilon=just_below).check(request)

    claimed = asked(10**9)
    assert claimed.epsilon(1e-6) <= 1.0
    assert claimed.local_epsilon > 8.0
    # Also where the site believes in the shuffler: with a rule for delta.
    for policy in (SimplePolicy(), SimplePolicy(largest_epsilon=1.0, largest_delta=1e-6)):
        policy.check(request)
        with pytest.raises(PolicyRefusal, match="that only shuffling hides"):
            policy.check(claimed)
    # What needs no shuffler is judged by its epsilon alone.
    SimplePolicy(largest_local_epsilon=1e-3).check(asked(10_000, LocalDP()))
    SimplePolicy(largest_local_epsilon=1e-3).check(clear())
