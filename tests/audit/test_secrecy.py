"""What a lying coordinator opens, through the shipped clients: the attacks work, and find what is broken only."""

from __future__ import annotations

from typing import Any

import pytest

from command_line import call, json_of, output_of
from fedassay.audit.equivocation import WeighedAnswers, is_one_total
from fedassay.audit.secrecy import SUMMARY, met, secrecy_cases, tried
from fedassay.crypto.field61 import PRIME
from fedassay.crypto.identity import Credentials
from fedassay.kernel.member_store import MemberStore
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.trust.one_shot.sizes import Sizes, sizes

CASES = secrecy_cases()


@pytest.mark.parametrize("name", CASES)
def test_nothing_more_opens_than_is_claimed_and_weakened_sites_are_broken(name: str) -> None:
    found = tried(CASES[name], randomness=SimulatedRandomness(1, name))
    assert not found.violated
    assert found.opened_more == found.case.broken
    if name.endswith(("cohorts", "roster", "small-set", "same-set")):
        assert found.refused


def measured(liar: Any) -> dict[str, list[int]]:
    """What each site measures."""
    return {name: SUMMARY.measure(site.site.rows(), {})[0].tolist() for name, site in liar.sites.items()}


@pytest.mark.parametrize("name", ["secure-sum/any-set", "secure-sum/one-lower", "secure-sum/two-exchanges"])
def test_what_is_said_to_open_are_the_sites_own_numbers(name: str) -> None:
    """The algebra is no theory: what comes out is made of the sites' own tables, with these weights."""
    case, opened = CASES[name], 0
    tables: dict[str, list[int]] = {}

    def seen(liar: Any) -> Any:
        tables.update(measured(liar))
        return case.carry_out(liar)

    watched = type(case)(**{**{f: getattr(case, f) for f in case.__dataclass_fields__}, "carry_out": seen})
    liar = met(watched, SimulatedRandomness(2, name))
    for exchange in watched.carry_out(liar):
        found = liar.learned(exchange)
        packed, columns = exchange.terms.sizes.packed, exchange.terms.columns
        for one in found:
            for column in range(columns):
                expected = sum(
                    weight * (tables[site] + [0] * (packed * columns))[row * columns + column]
                    for site, weights in one.weights.items()
                    for row, weight in enumerate(weights)
                )
                assert one.numbers[column] == expected % PRIME
            opened += 1
    assert opened


def test_a_threshold_one_lower_is_found_in_the_shipped_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the rule had been forgotten: the attack on members that accept any set opens more than one total."""
    monkeypatch.setattr(Sizes, "threshold", property(lambda s: s.members - s.silent_members - s.packed - 1))
    monkeypatch.setattr(Sizes, "needed", property(lambda s: s.members - s.silent_members - 1))
    monkeypatch.setattr(Sizes, "require_rule", lambda sizes: None)
    assert tried(CASES["secure-sum/any-set"], randomness=SimulatedRandomness(3)).violated


def test_members_that_do_not_look_at_the_size_of_a_set_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes.cache_clear()
    shipped = Sizes.__init__

    def careless(self: Sizes, **numbers: Any) -> None:
        shipped(self, **{**numbers, "least": 2})

    monkeypatch.setattr(Sizes, "__init__", careless)
    try:
        for name in ("secure-sum/small-set", "distributed-dp/small-set"):
            assert tried(CASES[name], randomness=SimulatedRandomness(4)).violated
    finally:
        sizes.cache_clear()


def test_colluders_that_are_counted_over_what_is_said_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Credentials, "pinned", property(lambda self: 3))
    found = tried(CASES["secure-sum/roster"], randomness=SimulatedRandomness(5))
    assert found.violated
    assert found.words == "a total over 5"  # four colluders and one victim, whose table is what is left


def test_members_that_forget_what_they_have_opened_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedassay.kernel.member_store._sets", lambda database, dataset: ())
    assert tried(CASES["secure-sum/same-set"], randomness=SimulatedRandomness(6)).violated


def test_members_that_answer_twice_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member whose records were lost and whose key was not: the same session, another set."""
    monkeypatch.setattr(MemberStore, "answered", lambda *_: None)
    monkeypatch.setattr("fedassay.kernel.member_store._known", lambda *_: None)
    case = CASES["secure-sum/sets-1"]
    assert not tried(case, randomness=SimulatedRandomness(7)).violated  # one answer for each session is asked


def test_one_total_is_one_set_with_equal_weights() -> None:
    def opened(**weights: int) -> WeighedAnswers:
        return WeighedAnswers(weights={name: (one,) for name, one in weights.items()}, numbers=(0,))

    assert is_one_total([])
    assert is_one_total([opened(a=2, b=2, c=0), opened(a=5, b=5, c=0)])
    assert not is_one_total([opened(a=2, b=3)])
    assert not is_one_total([opened(a=1, b=1), opened(a=1, b=0)])


def test_the_command_has_a_table_of_its_own(capsys: Any, caplog: pytest.LogCaptureFixture) -> None:
    out = output_of(capsys, "audit", "--case", "secure-sum", "--seed", 1)
    assert not caplog.records  # hundreds of refusals are meant, and counted in the table
    assert "Secrecy of sums, against a coordinator that lies" in out
    assert f"No violation found in {sum(name.startswith('secure-sum/') for name in CASES)} attacks" in out
    (found,) = json_of(capsys, "audit", "--case", "secure-sum/one-lower")["secrecy"]
    assert (found["weakened"], found["violated"], found["opened"]) == (
        True,
        False,
        "a combination of several",
    )


def test_a_broken_sum_ends_with_the_exit_code_of_a_violation(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedassay.kernel.member_store._sets", lambda database, dataset: ())
    code, out, _ = call(capsys, "audit", "--case", "secure-sum/same-set", "--seed", 1)
    assert code == 5
    assert "Violated: secure-sum/same-set" in out
