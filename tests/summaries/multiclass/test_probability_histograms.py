"""Histograms of probabilities: what loops count, and no client moves them further than is stated, whatever its rows."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from batched import batched
from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import Neighbours, Protection, Sensitivity, Unit
from fedassay.summaries.multiclass.histograms import UNITS, ClassCounts, ProbabilityHistograms
from logit_neighbours import keeps_to_it, measured, repeated
from multiclass_rows import Columns, dirichlet, drawn

CLASSES = 3


def clipped(*, joint: bool = True, **fields: Any) -> ProbabilityHistograms:
    asked = {"classes": CLASSES, "height": 2, "positive_clip": 10.0, "negative_clip": 50.0, **fields}
    return ProbabilityHistograms(joint=joint, **asked)


def slow(columns: Columns, classes: int, bins: int) -> np.ndarray:
    """Row by row, class by class."""
    counts = np.zeros((2, classes, bins), dtype=np.int64)
    for z, y in zip(columns["logits"], columns["class"], strict=True):
        for j, p in enumerate(softmax(z)):
            for m in range(bins):
                if m / bins <= p < (m + 1) / bins or (m == bins - 1 and p == 1):
                    counts[int(y != j), j, m] += 1
    return counts


# --- counts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("classes", "height"), [(2, 0), (2, 1), (5, 3), (3, 7)])
def test_counts_are_those_of_a_loop(classes: int, height: int) -> None:
    columns = drawn(200, classes, seed=height)
    columns["logits"][:3] = 900 * np.eye(classes)[0]  # probabilities of exactly one and zero
    summary = ProbabilityHistograms(classes=classes, height=height)
    found, wanted = measured(summary, columns), slow(columns, classes, 1 << height)
    assert np.array_equal(found, wanted.reshape(-1))
    counts = summary.read(found)
    assert np.array_equal(counts.positives, wanted[0])
    assert np.array_equal(counts.negatives, wanted[1])
    assert (counts.unit_positive, counts.unit_negative, counts.bins) == (1.0, 1.0, 1 << height)
    assert np.array_equal(counts.by_class, np.bincount(columns["class"], minlength=classes))


def test_edges_belong_to_the_bin_above() -> None:
    z = np.log([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]])
    assert np.array_equal(softmax(z, axis=1)[0], [0.5, 0.25, 0.25])
    counts = clipped(positive_clip=0.0, negative_clip=0.0)
    found = counts.read(measured(counts, {"logits": z, "class": np.array([0, 0, 0])}))
    assert found.positives[0].tolist() == [0, 2, 1, 0]
    assert found.negatives[1].tolist() == [0, 2, 1, 0]


def test_plain_counts_add_up_and_nobody_measures_nothing() -> None:
    columns, summary = drawn(300, 4), ProbabilityHistograms(classes=4)
    clients = dirichlet(columns, 40, 0.1)
    assert min(len(one["class"]) for one in clients) == 0
    vectors = [measured(summary, one) for one in clients]
    assert np.array_equal(np.sum(vectors, axis=0), measured(summary, columns))
    assert summary.additive
    for one in (summary, replace(summary, positive_clip=1.0, negative_clip=2.0)):
        assert not measured(one, {name: column[:0] for name, column in columns.items()}).any()


def test_batches_do_not_matter() -> None:
    columns = drawn(300, CLASSES)

    for summary in (clipped(), clipped(joint=False), clipped(positive_clip=0.0, negative_clip=0.0)):
        assert np.array_equal(summary.measure(batched(columns, 7, 100), {})[0], measured(summary, columns))


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
def test_logits_are_cut_where_the_maps_cut_them(kind: type) -> None:
    z = np.array([[2e9, 1.5e9, -2e9]]).astype(kind)
    columns = {"logits": z, "class": np.array([1])}
    counts = ProbabilityHistograms(classes=3, height=2)
    assert counts.read(measured(counts, columns)).positives[1].tolist() == [0, 0, 1, 0]
    assert z[0, 0] == 2_000_000_000


# --- clipping -------------------------------------------------------------------------------------------

CELLS = np.log(
    [
        [0.98, 0.01, 0.01],
        [0.01, 0.98, 0.01],
        [0.01, 0.01, 0.98],
        [0.4, 0.3, 0.3],
        [0.6, 0.2, 0.2],
        [0.01, 0.6, 0.39],
    ]
)
"""Logits whose probabilities fall into different bins of four."""

kinds = st.integers(0, len(CELLS) - 1)
clients = st.lists(
    st.tuples(kinds, st.integers(0, CLASSES - 1), st.sampled_from([1, 2, 9, 40, 3000])), max_size=6
).map(lambda parts: rows_of(*parts))
clips = st.sampled_from([0.001, 0.3, 1.0, 10.0, 50.0, 1000.0, 2.0**20])
summaries = st.builds(clipped, joint=st.booleans(), positive_clip=clips, negative_clip=clips)


def rows_of(*parts: tuple[int, int, int]) -> Columns:
    return repeated(CELLS, *parts)


@given(summaries, clients, clients, kinds, st.integers(0, CLASSES - 1))
@settings(max_examples=300)
def test_no_unit_moves_the_total_by_more_than_is_stated(
    summary: ProbabilityHistograms, one: Columns, other: Columns, which: int, y: int
) -> None:
    assert keeps_to_it(summary, one, other, rows_of((which, y, 1)))
    for columns in (one, other):
        vector = measured(summary, columns)
        assert (vector >= 0).all()
        assert (vector <= summary.largest).all()
        assert summary.largest == UNITS


MANY = rows_of((0, 0, 3000), (1, 2, 40), (4, 1, 9))
FEW = rows_of((3, 1, 9))


class Unclipped(ProbabilityHistograms):
    """Leaves clipping to the server."""

    def _bounded(self, counts: np.ndarray) -> np.ndarray:
        clip = np.array([self.positive_clip, self.negative_clip])[:, None, None]
        return np.floor(counts / clip * UNITS).astype(np.int64)


class RoundedUp(ProbabilityHistograms):
    """Clips, and then lets norms grow."""

    def _bounded(self, counts: np.ndarray) -> np.ndarray:
        return super()._bounded(counts) + (counts > 0)


class OneByOne(ProbabilityHistograms):
    """States joint clipping, and clips each histogram alone."""

    def _bounded(self, counts: np.ndarray) -> np.ndarray:
        return clipped(joint=False)._bounded(counts)


@pytest.mark.parametrize("broken", [Unclipped, RoundedUp, OneByOne])
def test_the_same_check_rejects_clients_that_do_not_clip(broken: type[ProbabilityHistograms]) -> None:
    fields = asdict(clipped())
    assert keeps_to_it(ProbabilityHistograms(**fields), MANY, FEW, rows_of((0, 0, 1)))
    assert not keeps_to_it(broken(**fields), MANY, FEW, rows_of((0, 0, 1)))


@given(summaries, clients)
def test_rounding_is_toward_zero(summary: ProbabilityHistograms, columns: Columns) -> None:
    """In whole numbers: each entry is at most the clipped one, and less than two units below it."""
    counts = slow_by_kind(columns)
    clip = [Fraction(summary.positive_clip), Fraction(summary.negative_clip)]
    exact = [[[int(n) / clip[sign] for n in one] for one in counts[sign]] for sign in (0, 1)]
    squared = sum(x * x for part in exact for one in part for x in one)
    found = measured(summary, columns).reshape(2, CLASSES, 4)
    for sign in (0, 1):
        for j in range(CLASSES):
            own = sum(x * x for x in exact[sign][j])
            norm = max(Fraction(1), squared if summary.joint else own)
            for x, v in zip(exact[sign][j], found[sign, j], strict=True):
                assert int(v) ** 2 * norm <= (x * UNITS) ** 2
                assert (int(v) + 2) ** 2 * norm > (x * UNITS) ** 2
            if not summary.joint:
                assert sum(int(v) ** 2 for v in found[sign, j]) <= UNITS**2
    if summary.joint:
        assert sum(int(v) ** 2 for v in found.reshape(-1)) <= UNITS**2


def slow_by_kind(columns: Columns) -> np.ndarray:
    """`slow`, of rows that are often the same."""
    counts = np.zeros((2, CLASSES, 4), dtype=np.int64)
    pairs = np.column_stack([columns["logits"], columns["class"]])
    kinds, times = np.unique(pairs, axis=0, return_counts=True)
    for one, number in zip(kinds, times, strict=True):
        counts += number * slow({"logits": one[None, :-1], "class": one[-1:].astype(int)}, CLASSES, 4)
    return counts


def norm(vector: np.ndarray) -> float:
    return float(np.linalg.norm(vector.astype(np.float64))) / UNITS


def test_the_stated_norms_are_reached() -> None:
    """Jointly, separately, by clients too small to be clipped, and by two of them that share no cell."""
    added, replaced = (Protection(unit=Unit.CLIENT, neighbours=n, rows_per_client=9000) for n in Neighbours)
    joint, separate = clipped(), clipped(joint=False)
    for summary, most in ((joint, 1.0), (separate, math.sqrt(2 * CLASSES))):
        assert summary.sensitivity(added).l2 / UNITS == pytest.approx(most)
        assert summary.sensitivity(replaced).l2 / UNITS == pytest.approx(math.sqrt(2) * most)
    everything = rows_of(*((kind, kind, 3000) for kind in range(CLASSES)))
    assert norm(measured(joint, MANY)) == pytest.approx(1, abs=1e-6)
    assert norm(measured(separate, everything)) == pytest.approx(math.sqrt(6), abs=1e-6)
    apart = measured(joint, rows_of((0, 0, 3000))) - measured(joint, rows_of((1, 1, 3000)))
    assert norm(apart) == pytest.approx(math.sqrt(2), abs=0.1)  # they share negatives of the third class
    small = Protection(unit=Unit.CLIENT, rows_per_client=2)
    assert joint.sensitivity(small).l2 / UNITS == pytest.approx(2 * math.sqrt(1 / 100 + 2 / 2500))
    assert norm(measured(joint, rows_of((0, 0, 2)))) == pytest.approx(
        2 * math.sqrt(1 / 100 + 2 / 2500), abs=1e-6
    )
    assert joint.sensitivity(small).l1 / UNITS == pytest.approx(2 * (1 / 10 + 2 / 50))
    row = Protection()
    assert joint.sensitivity(row).l2 / UNITS == pytest.approx(math.sqrt(1 / 100 + 2 / 2500), abs=1e-6)
    assert clipped(positive_clip=0.01).sensitivity(row).l2 / UNITS == pytest.approx(math.sqrt(2))


def test_plain_counts_move_by_a_cell_for_each_class() -> None:
    summary = ProbabilityHistograms(classes=10)
    assert summary.sensitivity(Protection()) == Sensitivity(l1=10.0, l2=math.sqrt(10))
    client = Protection(unit=Unit.CLIENT, neighbours=Neighbours.REPLACE_ONE, rows_per_client=7)
    assert summary.sensitivity(client) == Sensitivity(l1=140.0, l2=7 * math.sqrt(20))


def test_joint_clipping_leaves_shares_as_they_are() -> None:
    columns = rows_of((0, 0, 300), (0, 1, 100), (3, 0, 50), (3, 2, 50))
    plain, joint, separate = (
        one.read(measured(one, columns))
        for one in (clipped(positive_clip=0.0, negative_clip=0.0), clipped(), clipped(joint=False))
    )

    def share(counts: ClassCounts) -> list[float]:
        return [
            float(counts.positives[0, m] / (counts.positives[0, m] + counts.negatives[0, m])) for m in (1, 3)
        ]

    assert share(plain) == [0.5, 0.75]
    assert share(joint) == pytest.approx([0.5, 0.75], abs=1e-5)
    assert share(separate) != pytest.approx([0.5, 0.75], abs=0.2)


# --- what is read ---------------------------------------------------------------------------------------


def test_counts_are_in_rows_and_units_turn_noise_into_rows() -> None:
    summary = clipped(positive_clip=20.0, negative_clip=100.0)
    columns = rows_of((0, 0, 3), (1, 0, 5))  # within the clips
    plain = clipped(positive_clip=0.0, negative_clip=0.0)
    found, wanted = summary.read(measured(summary, columns)), plain.read(measured(plain, columns))
    assert found.positives == pytest.approx(wanted.positives, abs=1e-5)
    assert found.negatives == pytest.approx(wanted.negatives, abs=1e-5)
    noise = np.full(summary.length, 1000)
    shifted = summary.read(measured(summary, columns) + noise)
    assert shifted.positives - found.positives == pytest.approx(np.full((3, 4), 1000 * found.unit_positive))
    assert shifted.negatives - found.negatives == pytest.approx(np.full((3, 4), 1000 * found.unit_negative))


def test_counts_of_several_releases_add_up() -> None:
    summary = clipped()
    one, two = (summary.read(measured(summary, columns)) for columns in (MANY, FEW))
    both = one + two
    assert np.array_equal(both.positives, one.positives + two.positives)
    assert np.array_equal(both.negatives, one.negatives + two.negatives)
    assert both.unit_negative == one.unit_negative
    for other in (clipped(height=3), clipped(positive_clip=5.0)):
        with pytest.raises(UsageError, match="expected the same ones"):
            one + other.read(measured(other, FEW))


# --- as a question --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"positive_clip": 0.0}, "clips: got 0 for positives and 50 for negatives, expected both from 0.001"),
        ({"negative_clip": -1.0}, "clips: got 10 for positives and -1"),
        ({"positive_clip": math.nan}, "positive_clip: got nan"),
        ({"negative_clip": math.inf}, "negative_clip: got inf"),
        ({"positive_clip": 1e-320}, "clips"),
    ],
)
def test_bad_questions_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        clipped(**fields)
