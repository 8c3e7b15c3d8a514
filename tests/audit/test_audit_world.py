"""What an attacker sees of a federation is what its trust model lets him see: noise of the right size, and no less.

Variances of 512 draws or more (64 runs of at least eight numbers), at fixed seeds: a ratio outside of [0.7, 1.4] has a
probability below 1e-3 for all of these laws (the relative deviation of a variance of so many Laplace draws is
√(5/512) < 0.1). Twice or half the noise has a ratio of 4 or 1/4.
"""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.audit.cases import FederatedCase
from fedassay.audit.catalogue import cases
from fedassay.audit.world import AttackedFederation
from fedassay.errors import FederationError
from fedassay.privacy.policy.judgement import AllowAll
from fedassay.privacy.randomness import SimulatedRandomness

RUNS = 64


def seen(name: str, world: int = 0, runs: int = RUNS) -> np.ndarray:
    case = cases()[name]
    return np.concatenate(list(case.runs(world, runs, SimulatedRandomness(7, name, str(world)))))


@pytest.mark.parametrize(
    "name", ["server-dp/laplace", "local-dp/laplace", "two-server/laplace", "distributed-dp/polya"]
)
def test_the_noise_is_that_of_one_whole_draw(name: str) -> None:
    """With the noise of a curious server, or of colluders, subtracted: what is left is what the claim needs."""
    case = cases()[name]
    (known,) = case.known
    drawn = seen(name)[:, 0, : len(known.first)] - known.first
    assert 0.7 < np.square(drawn).mean() / (known.noise.variance / known.noise.copies) < 1.4


def test_all_messages_of_a_shuffle_are_seen() -> None:
    views = seen("shuffle/unary", runs=10)
    assert views.shape == (10, 4, 8)
    assert set(np.unique(views)) <= {0.0, 1.0}


def test_of_a_client_that_reports_on_one_level_the_others_are_unknown() -> None:
    views = seen("local-dp/unary", runs=40)[:, 0]
    levels = cases()["local-dp/unary"].queries[0].of.partitions
    known = np.array([[(row[cells] != 0.5).all() for cells in levels] for row in views])
    assert (known.sum(axis=1) == 1).all()
    assert known.any(axis=0).all()


def test_a_client_that_refuses_ends_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an audit of clients that say nothing would find nothing."""

    def refuse(self: AllowAll, request: object) -> None:
        raise FederationError("no")

    monkeypatch.setattr(AllowAll, "check", refuse)
    with pytest.raises(FederationError):
        seen("server-dp/laplace", runs=1)


def test_worlds_are_as_they_are_stated() -> None:
    """One client differs, by one row, or by all its rows where clients are protected."""
    for case in cases().values():
        if not isinstance(case, FederatedCase):
            continue
        first, second = case.worlds
        assert all(a is b for a, b in zip(first[1:], second[1:], strict=True))
        counts = [len(next(iter(world[0].values()))) for world in (first, second)]
        protection = case.protection
        if protection.unit == "client":
            assert max(counts) <= protection.rows_per_client
            assert (
                protection.neighbours == "replace-one"
                or 0 in counts
                or case.trust_model in ("local-dp", "shuffle")
            )
        elif protection.neighbours == "replace-one":
            assert counts[0] == counts[1]
        else:
            assert abs(counts[0] - counts[1]) == 1


def test_exact_answers_leave_out_who_is_silent_or_lost() -> None:
    case = cases()["distributed-dp/skellam"]
    federation: AttackedFederation = case.federation(0, None)
    levels = len(case.queries[0].of.widths)
    honest = len(case.worlds[0]) - case.silent - case.lost
    assert [vector.sum() for vector in federation.exact()] == [levels * honest] * 2
