"""What holds for every summary: it survives the wire, adds up if it says so, and never refuses because of the rows.

Whoever asks sees whether a client refuses, so its shape may not depend on the rows either. Questions are whatever can
be made and sent, rows whatever the data layer lets pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from fedassay.data.schema import LARGEST_CLASS
from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.kernel.envelope import describe, rebuild
from fedassay.protocol import wire
from fedassay.protocol.metrics import compared
from fedassay.protocol.vocabulary import (
    LARGEST_EPSILON,
    UNBOUNDED,
    Batch,
    Budget,
    Collect,
    Protection,
    Setting,
    Sum,
    Summary,
    Unit,
)
from fedassay.summaries import CATALOGUE
from fedassay.summaries.bounded_sums import PLACE_SHIFT
from fedassay.summaries.distribution.grid import SPACINGS
from fedassay.summaries.grid import TRANSFORMS
from fedassay.summaries.grouped_histogram import fingerprints
from fedassay.summaries.local_quantiles import RULES
from fedassay.summaries.maps import InterpolatedMap, Sigmoid, Steps, numbers_of
from fedassay.summaries.multiclass.clipped_updates import WEIGHTS
from fedassay.summaries.multiclass.fedcal import fedcal_size
from fedassay.summaries.multiclass.local_fits import AVERAGED
from fedassay.summaries.multiclass.loss_curves import BOUNDS
from fedassay.summaries.multiclass.losses import FAMILIES
from fedassay.summaries.multiclass.maps import LOGIT_MAPS
from fedassay.summaries.quantities import QUANTITIES
from fedassay.summaries.regression.local_work import LOCAL
from fedassay.summaries.regression.newton_sums import MEATS
from fedassay.summaries.regression.rounds import WEIGHTS as ROUND_WEIGHTS
from fedassay.trust import TRUST_MODELS

MOST_BATCHES, MOST_DIFFERENT, MOST_ALIKE = 2, 6, 20
MOST_ROWS = MOST_BATCHES * MOST_DIFFERENT * MOST_ALIKE
MOST_CLASSES = 5
EXTREME = (0.0, 1.0, -1.0, 0.5, 1e308, -1e308, 5e-324, -5e-324, float(np.finfo(np.float64).max))

numbers = st.sampled_from(EXTREME) | st.floats(allow_nan=False, allow_infinity=False)
positive = st.sampled_from([5e-324, 1e-310, 1.0, 1e308]) | st.floats(
    min_value=0, exclude_min=True, max_value=1e308
)
shares = st.sampled_from([0.0, 5e-324, 0.5, 1 - 2**-53, 1.0]) | st.floats(0, 1)
inner = st.sampled_from([5e-324, 1e-9, 0.5, 0.9, 1 - 2**-53]) | st.floats(
    0, 1, exclude_min=True, exclude_max=True
)
limits = st.sampled_from([-np.inf, np.inf]) | numbers
classes = st.integers(2, MOST_CLASSES)

Fields = dict[str, Any]


# --- questions ------------------------------------------------------------------------------------------


@st.composite
def bins(draw: st.DrawFn) -> Fields:
    return {
        "transform": draw(st.sampled_from(TRANSFORMS)),
        "height": draw(st.integers(2, 5)),
        "thresholds": tuple(draw(st.lists(shares, max_size=3))),
        "reach": draw(st.sampled_from([1.0, 24.0]) | st.floats(1, 24)),
    }


@st.composite
def histogram(draw: st.DrawFn) -> Fields:
    widths = draw(st.sampled_from([(1,), (1, 2)]))
    factors = st.integers(1, 16)
    multipliers = draw(st.just(()) | st.tuples(*[factors] * len(widths)))
    return {**draw(bins()), "widths": widths, "multipliers": multipliers}


@st.composite
def grouped(draw: st.DrawFn) -> Fields:
    return {**draw(histogram()), "groups": draw(st.sampled_from([("a",), ("b", "a"), ("nobody",)]))}


@st.composite
def moments(draw: st.DrawFn) -> Fields:
    fields = draw(bins())
    fields["height"] = 2
    places = draw(st.lists(st.integers(0, 1 << PLACE_SHIFT), min_size=16, max_size=16))
    return {
        **fields,
        "placements": np.array(places, dtype="<u2").tobytes(),
        "capacity": draw(st.sampled_from([1, 2**32])),
    }


@st.composite
def of_sites(draw: st.DrawFn, *, weighed: bool = False) -> Fields:
    metrics = tuple(draw(st.lists(st.sampled_from(compared()), min_size=1, unique=True)))
    tau2 = st.tuples(*[st.sampled_from([0.0, 5e-324, 1024.0]) | st.floats(0, 1024)] * len(metrics))
    return {**draw(bins()), "metrics": metrics, **({"tau2": draw(tau2)} if weighed else {})}


@st.composite
def edges(draw: st.DrawFn) -> Fields:
    between = sorted(draw(st.sets(inner, max_size=3)))
    return {"edges": (0.0, *between, 1.0), "capacity": draw(st.sampled_from([1, 2**32]))}


@st.composite
def condition(draw: st.DrawFn) -> Fields:
    by = draw(st.sampled_from(["", "class", "group"]))
    names = {
        "": (),
        "class": tuple(str(k) for k in range(draw(st.integers(1, MOST_CLASSES)))),
        "group": draw(st.sampled_from([("a",), ("b", "a")])),
    }
    return {"by": by, "groups": names[by]}


@st.composite
def calibrator(draw: st.DrawFn) -> tuple[float, ...]:
    """Any map, with points next to each other and coefficients that overflow, too."""
    if draw(st.booleans()):
        return numbers_of(Sigmoid(a=draw(numbers), b=draw(numbers), c=draw(numbers)))
    scores = tuple(sorted(draw(st.sets(shares, min_size=1, max_size=4))))
    values = draw(st.lists(shares, min_size=len(scores) + 1, max_size=len(scores) + 1))
    if draw(st.booleans()):
        return numbers_of(InterpolatedMap(scores=scores, values=tuple(values[1:])))
    edges = tuple(score for score in scores if 0 < score < 1)
    return numbers_of(Steps(edges=edges, values=tuple(values[: len(edges) + 1])))


@st.composite
def quantity(draw: st.DrawFn, among: tuple[str, ...] = tuple(QUANTITIES)) -> Fields:
    name = draw(st.sampled_from(among))
    parameters = ()
    if name == "raps":
        parameters = draw(
            st.just(())
            | st.tuples(st.sampled_from([0.0, 5e-324, 1000.0]), st.sampled_from([0.0, 1.0, 2.0**20]))
        )
    if name == "binary":
        parameters = draw(st.just(()) | calibrator())
    return {"quantity": name, "parameters": parameters}


@st.composite
def span(draw: st.DrawFn) -> Fields:
    usual = st.sampled_from([(0.0, 1.0), (-1e307, 1e307), (1e-300, 1e300), (1e-310, 1.0), (-3.0, 5e-3)])
    lower, upper = draw(usual | st.tuples(numbers, numbers).map(sorted))
    return {"lower": lower, "upper": upper}


@st.composite
def distribution(draw: st.DrawFn) -> Fields:
    fields = {**draw(span()), **draw(quantity()), "points": draw(st.sampled_from([2, 4, 16]))}
    fields["spacing"] = draw(st.sampled_from(SPACINGS))
    if fields["spacing"] == "given":
        fields["given"] = tuple(sorted(draw(st.sets(numbers, min_size=1, max_size=3))))
        fields |= {"lower": fields["given"][0], "upper": fields["given"][-1], "points": 4}
    labelled = {"labelled": True, "public_labels": draw(st.booleans())}
    return {**fields, **draw(condition() | st.just(labelled))}


@st.composite
def tree(draw: st.DrawFn) -> Fields:
    return {**draw(distribution()), "widths": draw(st.sampled_from([(1,), (1, 2)]))}


@st.composite
def path(draw: st.DrawFn) -> Fields:
    return {**draw(distribution()), "multiplier": draw(st.sampled_from([1, 2, 1 << 16]))}


@st.composite
def levels(draw: st.DrawFn) -> Fields:
    return {
        "level": draw(inner),
        "confidence": draw(st.none() | inner),
        "clients": draw(st.sampled_from([1, 2, 10, 101, 100_000])),
    }


@st.composite
def local(draw: st.DrawFn) -> Fields:
    rules = tuple(draw(st.lists(st.sampled_from(RULES), min_size=1, unique=True)))
    return {**draw(quantity()), **draw(condition()), **draw(levels()), "rules": rules}


@st.composite
def votes(draw: st.DrawFn) -> Fields:
    rungs = (0, *sorted(draw(st.sets(st.integers(1, 2 * MOST_ROWS), max_size=4))))
    points = draw(st.sampled_from([2, 16]))
    return {
        **draw(quantity()),
        **draw(condition()),
        **draw(levels()),
        **draw(span()),
        "points": points,
        "rungs": rungs,
    }


@st.composite
def losses(draw: st.DrawFn) -> Fields:
    """For as many rows as there are at most: `client.py` leaves out the others."""
    rows = draw(st.integers(MOST_ROWS, 2**32))
    slope = st.sampled_from([1, 9, 1 << 20])
    return {
        **draw(quantity()),
        **draw(span()),
        "rows": rows,
        "target": draw(st.integers(1, rows)),
        "points": draw(st.integers(2, 20)),
        "below": draw(slope),
        "above": draw(slope),
    }


@st.composite
def covered(draw: st.DrawFn, among: tuple[str, ...] = tuple(QUANTITIES), *, sets: bool = False) -> Fields:
    fields = {**draw(quantity(among)), **draw(condition())}
    known = QUANTITIES[fields["quantity"]]
    if sets and fields["by"] == "class" and known.classes is not None:
        fields["groups"] = tuple(str(k) for k in range(known.classes))
    if sets and known.gives_sets:
        fields["classes"] = (
            len(fields["groups"])
            if fields["by"] == "class"
            else known.classes or draw(st.integers(1, MOST_CLASSES + 1))
        )
    groups = {"": 1, "class": len(fields["groups"]), "group": len(fields["groups"]) + 1}[fields["by"]]
    return {**fields, "thresholds": draw(st.tuples(*[limits] * groups))}


@st.composite
def through(draw: st.DrawFn, count: int) -> Fields:
    """A map of so many classes; the network's many numbers repeat a few."""
    kind = draw(st.sampled_from(tuple(LOGIT_MAPS)))
    if kind == "isotonic":
        values = [sorted(draw(st.lists(shares, min_size=4, max_size=4))) for _ in range(count)]
        weights, s = draw(st.tuples(*[shares] * count)), draw(st.floats(-(2.0**20), 2.0**20))
        return {"kind": kind, "theta": (*np.array(values).reshape(-1).tolist(), *weights, s, 16.0)}
    least, most = {
        "order-preserving": (1e-6, 2.0**20),
        "binned": (0.0, 1.0),
        "binned-changed": (0.0, 1.0),
    }.get(kind, (-(2.0**20), 2.0**20))
    size = FAMILIES[kind].size(count) if kind in FAMILIES else 5 * count
    parameter = st.sampled_from([least, most]) | st.floats(least, most)
    theta = tuple(draw(st.lists(parameter, min_size=size, max_size=size)))
    if kind == "fedcal":
        theta = tuple(np.resize(np.array(theta), fedcal_size(count)).tolist())
    return {"kind": kind, "theta": theta}


@st.composite
def of_changes(draw: st.DrawFn) -> Fields:
    count = draw(classes)
    return {
        "classes": count,
        **draw(through(count)),
        "loss_bound": draw(st.sampled_from([1e-6, 36.0]) | st.floats(1e-6, 36.0)),
        "brier_bound": draw(st.sampled_from([1e-6, 2.0]) | st.floats(1e-6, 2.0)),
        "moments": draw(st.integers(2, 3)),
        "bits": draw(st.integers(2, 14)),
        "digits": draw(st.integers(1, 8)),
    }


@st.composite
def of_classes(draw: st.DrawFn) -> Fields:
    count = draw(classes)
    return {
        "classes": count,
        **draw(st.just({}) | through(count)),
        "bins": draw(st.integers(1, 5)),
        "bits": draw(st.integers(2, 14)),
        "digits": draw(st.integers(1, 3)),
    }


@st.composite
def per_class(draw: st.DrawFn) -> Fields:
    fields = draw(bins())
    del fields["thresholds"]
    return {**fields, "classes": draw(classes), "widths": draw(st.sampled_from([(1,), (1, 2)]))}


@st.composite
def scaling(draw: st.DrawFn) -> Fields:
    method, count = draw(st.sampled_from(tuple(FAMILIES))), draw(classes)
    family = FAMILIES[method]
    parameter = st.sampled_from([family.least, 1.0, 2.0**20]) | st.floats(family.least, 2.0**20)
    size = family.size(count)
    return {
        "method": method,
        "classes": count,
        "theta": tuple(draw(st.lists(parameter, min_size=size, max_size=size))),
        "order": draw(st.integers(1, 2)),
    }


@st.composite
def probability_bins(draw: st.DrawFn) -> Fields:
    clip = st.sampled_from([0.001, 10.0, 2.0**20]) | st.floats(0.001, 2.0**20)
    return {
        "classes": draw(classes),
        "height": draw(st.integers(0, 5)),
        **draw(st.just({}) | st.fixed_dictionaries({"positive_clip": clip, "negative_clip": clip})),
        "joint": draw(st.booleans()),
    }


@st.composite
def updates(draw: st.DrawFn) -> Fields:
    method, count = draw(st.sampled_from(tuple(AVERAGED))), draw(classes)
    of = AVERAGED[method]
    ends = st.sampled_from([of.least, 1.0, of.most]) | st.floats(of.least, of.most)
    theta = of.within(np.resize(draw(st.lists(ends, min_size=1, max_size=5)), of.size(count)))
    return {
        "method": method,
        "classes": count,
        "theta": tuple(draw(st.sampled_from([theta, of.start(count)])).tolist()),
        "clip": draw(st.sampled_from([0.0, 2.0**-20, 0.5, 2.0**20])),
        "weights": draw(st.sampled_from(WEIGHTS)),
        "most_rows": draw(st.sampled_from([1, 3, 2**32])),
        "ridge": draw(st.sampled_from([1e-9, 0.01, 1e6])),
    }


@st.composite
def loss_curves(draw: st.DrawFn) -> Fields:
    grid = st.sampled_from([2.0**-20, 1.0, 2.0**20]) | st.floats(2.0**-20, 2.0**20)
    return {
        "classes": draw(classes),
        "grid": tuple(sorted(draw(st.sets(grid, min_size=1, max_size=5)))),
        "bound": draw(st.sampled_from(BOUNDS)),
        "full_rows": draw(st.sampled_from([1, 10, 2**32])),
        "bits": draw(st.integers(4, 24)),
        "most_rows": draw(st.sampled_from([1, 10, 2**32])),
    }


@st.composite
def client_profiles(draw: st.DrawFn) -> Fields:
    fields = draw(loss_curves())
    kept = {name: fields[name] for name in ("classes", "grid", "full_rows")}
    return {**kept, "at": draw(st.sampled_from([None, 0.5]))}


@st.composite
def regression(draw: st.DrawFn) -> Fields:
    """Scales that make numbers overflow, too, and parameters as large as they come."""
    features, intercept, linear = draw(st.integers(1, MOST_CLASSES)), draw(st.booleans()), draw(st.booleans())
    parameter = st.sampled_from([0.0, 2.0**40, -(2.0**40)]) | st.floats(-(2.0**40), 2.0**40)
    return {
        "features": features,
        "intercept": intercept,
        "centres": draw(st.tuples(*[numbers] * features)) if intercept else (),
        "scales": draw(st.just(()) | st.tuples(*[positive] * features)),
        "target_centre": draw(numbers) if intercept and linear else 0.0,
        "target_scale": draw(positive) if linear else 1.0,
        "offset": draw(st.booleans()),
        "model": "linear" if linear else "logistic",
        "theta": draw(st.tuples(*[parameter] * (features + int(intercept)))),
        "order": draw(st.integers(1, 2)),
        "meat": draw(st.sampled_from(MEATS)),
    }


@st.composite
def rounds(draw: st.DrawFn, *, clipped: bool = False) -> Fields:
    """Steps and weights of any size, too."""
    fields = draw(regression())
    del fields["order"], fields["meat"]
    sizes = st.sampled_from([2.0**-20, 1.0, 2.0**20])
    own = {"clip": draw(sizes), "slopes_clip": draw(st.just(0.0) | sizes)}
    return {
        **fields,
        "step": draw(st.sampled_from([5e-324, 0.1, 9e5])),
        "local_steps": draw(st.sampled_from([1, 2, 7, 1024])),
        "local": draw(st.sampled_from(LOCAL)),
        "visits": draw(st.sampled_from([1, 3, 1 << 30])),
        "weights": draw(st.sampled_from(ROUND_WEIGHTS)),
        "per": draw(st.sampled_from([5e-324, 1e-200, 1.0, 9e17])),
        "seed": draw(st.none() | st.integers(0, 2**63 - 1)),
        **(own if clipped else {"remembers": draw(st.booleans())}),
    }


QUESTIONS: Mapping[str, st.SearchStrategy[Fields]] = {
    "score-histogram": histogram(),
    "versus-histogram": histogram(),
    "paired-histograms": histogram(),
    "grouped-histogram": grouped(),
    "paired-moments": moments(),
    "eligible-sites": of_sites(),
    "site-sums": of_sites(weighed=True),
    "value-tree": tree(),
    "value-path": path(),
    "value-roots": distribution(),
    "score-path": st.fixed_dictionaries({"points": st.sampled_from([2, 16])}),
    "group-statistics": edges(),
    "all-group-statistics": edges(),
    "local-quantile": local(),
    "quantile-votes": votes(),
    "quantile-losses": losses(),
    "coverage-counts": covered(sets=True),
    "site-coverage": covered(),
    "mean-width": covered(("normalised", "cqr")),
    "class-statistics": of_classes(),
    "class-histograms": per_class(),
    "scaling-sums": scaling(),
    "clipped-updates": updates(),
    "probability-histograms": probability_bins(),
    "map-changes": of_changes(),
    "loss-curves": loss_curves(),
    "client-profiles": client_profiles(),
    "regression-moments": st.fixed_dictionaries(
        {"features": st.integers(0, MOST_CLASSES), "less_offset": st.booleans()}
    ),
    "newton-sums": regression(),
    "regression-round": rounds(),
    "clipped-round": rounds(clipped=True),
    "client-spread": st.fixed_dictionaries({"parameters": st.integers(1, MOST_CLASSES + 1)}),
}


@st.composite
def question(draw: st.DrawFn, name: str) -> Summary[Any]:
    """Some summary of this name; fields that no summary can be made of were never sent."""
    fields = draw(QUESTIONS[name])
    try:
        return CATALOGUE[name](**fields)
    except UsageError:
        reject()


NOT_ADDITIVE = frozenset(name for name, kind in CATALOGUE.items() if kind.additive is False)
"""Clients round, clip, choose or estimate, so that a client with all rows says something else."""


def test_every_summary_is_asked_for() -> None:
    assert set(QUESTIONS) == set(CATALOGUE)
    assert len(NOT_ADDITIVE) == 16


# --- rows -----------------------------------------------------------------------------------------------


COLUMNS: Mapping[str, st.SearchStrategy[Any]] = {
    "score": shares,
    "versus": shares,
    "label": st.integers(0, 1),
    "group": st.sampled_from([*fingerprints(["a", "b", "c"]).tolist(), 0, -(2**63), 2**63 - 1]),
    "scale": positive,
    "class": st.sampled_from([0, 1, 2, LARGEST_CLASS]) | st.integers(0, LARGEST_CLASS),
}
TYPES = {"label": np.int8, "group": np.int64, "class": np.int64}


class Batches:
    def __init__(self, *batches: Batch) -> None:
        self._batches = batches

    def batches(self) -> Iterator[Batch]:
        yield from self._batches


@st.composite
def batch(draw: st.DrawFn, columns: tuple[str, ...], width: int) -> Batch:
    """Some rows, each once or often; a class has a logit where there are logits."""
    rows, times = draw(st.integers(0, MOST_DIFFERENT)), draw(st.sampled_from([1, MOST_ALIKE]))
    found = {}
    for role in columns:
        one = COLUMNS.get(role, numbers)
        if role in ("logits", "features"):
            one = st.tuples(*[numbers] * width)
        elif role == "class" and "logits" in columns:
            one = st.integers(0, width - 1)
        values = np.array(
            draw(st.lists(one, min_size=rows, max_size=rows)), dtype=TYPES.get(role, np.float64)
        )
        if role in ("logits", "features"):
            values = values.reshape(rows, width)
        found[role] = np.repeat(values, times, axis=0)
    return found


def measured(summary: Summary[Any], *batches: Batch) -> np.ndarray:
    vector, _ = summary.measure(Batches(*batches), {})
    assert vector.dtype == np.int64
    assert vector.shape == (summary.length,)
    return vector


@pytest.mark.parametrize("name", sorted(CATALOGUE))
@given(st.data())
@settings(max_examples=100)
def test_no_rows_make_a_summary_refuse(name: str, data: st.DataObject) -> None:
    summary = data.draw(question(name))
    width = data.draw(st.integers(2, MOST_CLASSES + 1))
    measured(summary, *data.draw(st.lists(batch(summary.columns, width), max_size=MOST_BATCHES)))


@pytest.mark.parametrize("name", sorted(CATALOGUE))
@given(st.data())
@settings(max_examples=25)
def test_a_summary_survives_the_wire(name: str, data: st.DataObject) -> None:
    summary = data.draw(question(name))
    again = rebuild(CATALOGUE, wire.decode(wire.encode(describe(summary))))
    assert again == summary
    assert hash(again) == hash(summary)
    assert again.sensitivity(Protection()) == summary.sensitivity(Protection())
    rows = data.draw(batch(summary.columns, MOST_CLASSES))
    assert np.array_equal(measured(again, rows), measured(summary, rows))


@pytest.mark.parametrize("name", sorted(set(CATALOGUE) - NOT_ADDITIVE))
@given(st.data())
@settings(max_examples=50)
def test_the_union_measures_the_sum_however_it_is_batched_and_nobody_measures_nothing(
    name: str, data: st.DataObject
) -> None:
    summary = data.draw(question(name))
    assume(summary.additive)
    width = data.draw(st.integers(2, MOST_CLASSES + 1))
    one, other = (data.draw(batch(summary.columns, width)) for _ in "ab")
    union = measured(summary, {role: np.concatenate([one[role], other[role]]) for role in one})
    assert np.array_equal(measured(summary, one) + measured(summary, other), union)
    assert np.array_equal(measured(summary, one, other), union)
    assert not measured(summary).any()


@given(st.data())
@settings(max_examples=50)
def test_no_memory_makes_a_round_or_what_follows_it_refuse(data: st.DataObject) -> None:
    """Whatever rounds came before, of other questions about as many features, with other rows."""
    asked = data.draw(
        st.lists(question("regression-round"), min_size=1, max_size=3).map(
            lambda found: [one for one in found if one.features == found[0].features]
        )
    )
    memory: Mapping[str, Any] = {}
    for summary in asked:
        rows = data.draw(st.lists(batch(summary.columns, summary.features), max_size=MOST_BATCHES))
        vector, memory = summary.measure(Batches(*rows), memory)
        assert vector.shape == (summary.length,)
        memory = wire.decode(wire.encode(dict(memory)))
    for parameters in (summary.features, summary.features + 1):
        spread = CATALOGUE["client-spread"](parameters=parameters)
        vector, _ = spread.measure(Batches(), memory)
        assert vector.dtype == np.int64
        assert vector.shape == (spread.length,)


@pytest.mark.parametrize("other", [2, 4])
@pytest.mark.parametrize(
    "name",
    [
        "class-statistics",
        "class-histograms",
        "probability-histograms",
        "scaling-sums",
        "map-changes",
        "clipped-updates",
        "loss-curves",
        "client-profiles",
    ],
)
def test_rows_of_another_model_count_for_nothing(name: str, other: int) -> None:
    """As if there were none, which the total then shows; of the right number of logits, they count."""
    fields = {
        "scaling-sums": {"method": "temperature", "theta": (1.0,)},
        "clipped-updates": {"method": "temperature", "theta": (1.0,)},
        "map-changes": {"kind": "temperature", "theta": (2.0,)},
        "loss-curves": {"grid": (0.5, 2.0)},
        "client-profiles": {"grid": (0.5, 2.0)},
    }.get(name, {})
    summary = CATALOGUE[name](classes=3, **fields)
    found = {
        width: measured(summary, {"class": np.array([0, 1]), "logits": np.zeros((2, width))})
        for width in (3, other)
    }
    assert found[3].any()
    assert not found[other].any()


# --- noise ----------------------------------------------------------------------------------------------


RANGE: Fields = {"lower": 0.0, "upper": 1.0, "points": 4}
WITHOUT_A_BOUND: Mapping[str, Fields] = {
    "local-quantile": {"quantity": "value", "level": 0.9, "clients": 10},
    "quantile-votes": {"quantity": "value", "level": 0.9, "clients": 10, "rungs": (0, 1), **RANGE},
    "quantile-losses": {"quantity": "value", "rows": 1, "target": 1, **RANGE},
    "site-coverage": {"quantity": "value", "thresholds": (0.5,)},
    "mean-width": {"quantity": "cqr", "thresholds": (0.5,)},
    "clipped-updates": {"method": "temperature", "classes": 3, "theta": (1.0,)},
    "loss-curves": {"classes": 3, "grid": (0.5, 2.0)},
    "regression-moments": {"features": 2},
    "newton-sums": {"features": 2, "model": "logistic", "theta": (0.0, 0.0, 0.0)},
    "regression-round": {"features": 2, "model": "logistic", "theta": (0.0, 0.0, 0.0), "step": 0.1},
    "client-spread": {"parameters": 3},
}
PRIVATE = sorted(name for name, model in TRUST_MODELS.items() if model.private)


@pytest.mark.parametrize("rows_per_client", [None, 1])
@pytest.mark.parametrize("epsilon", [0.001, 1.0, LARGEST_EPSILON])
@pytest.mark.parametrize("trust", PRIVATE)
def test_what_has_no_bound_is_not_asked_for_under_noise(
    trust: str, epsilon: float, rows_per_client: int | None
) -> None:
    """However large the budget is that the question names."""
    protection = Protection(unit=Unit.EXAMPLE, rows_per_client=rows_per_client)
    for delta in (0.0, 1e-6):
        budget = Budget(epsilon=epsilon, delta=delta)
        setting = Setting(trust=TRUST_MODELS[trust](), protection=protection, budget=budget, clients=1000)
        for name, fields in WITHOUT_A_BOUND.items():
            summary = CATALOGUE[name](**fields)
            assert summary.sensitivity(protection) == UNBOUNDED
            for query in (Sum(of=summary), Collect(of=summary)):
                with pytest.raises((UnsupportedQuery, UsageError)):
                    setting.trust.plan(query, setting)


@pytest.mark.parametrize("trust", PRIVATE)
def test_what_has_a_bound_is(trust: str) -> None:
    """So the refusals above are of those summaries, not of the setting."""
    setting = Setting(
        trust=TRUST_MODELS[trust](),
        protection=Protection(rows_per_client=1),
        budget=Budget(epsilon=1.0, delta=1e-6),
        clients=1000,
    )
    counts = CATALOGUE["coverage-counts"](quantity="value", thresholds=(0.5,))
    assert setting.trust.plan(Sum(of=counts), setting).noise.scale > 0
