"""What holds for every summary: it survives the wire, adds up if it says so, and never refuses because of the rows.

Whoever asks sees whether a client refuses, so its shape may not depend on the rows either. Questions are whatever can
be made and sent, rows whatever the data layer lets pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, get_args, get_origin

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from fedassay.data.schema import LARGEST_CLASS
from fedassay.data.tables import StreamedRows
from fedassay.errors import DataError, UnsupportedQuery, UsageError
from fedassay.kernel.envelope import describe, rebuild
from fedassay.protocol import wire
from fedassay.protocol.metrics import compared
from fedassay.protocol.parameters import Checked, Interval, parameters
from fedassay.protocol.vocabulary import (
    LARGEST_EPSILON,
    TOTAL_BITS,
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
from fedassay.summaries.bounded_sums import ONE, PLACE_SHIFT, capacity_for
from fedassay.summaries.grid import TRANSFORMS
from fedassay.summaries.grouped_histogram import fingerprints
from fedassay.summaries.local_quantiles import RULES
from fedassay.summaries.maps import InterpolatedMap, Sigmoid, Steps, numbers_of
from fedassay.summaries.multiclass.calibrator_sums import UpdateWeights
from fedassay.summaries.multiclass.fedcal import fedcal_size
from fedassay.summaries.multiclass.local_fits import AVERAGED
from fedassay.summaries.multiclass.loss_curves import Bound
from fedassay.summaries.multiclass.losses import FAMILIES
from fedassay.summaries.multiclass.maps import LOGIT_MAPS
from fedassay.summaries.quantities import QUANTITIES
from fedassay.summaries.regression.local_work import LOCAL, RoundWeights
from fedassay.summaries.regression.newton_sums import Meat
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


def some(*choices: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(choices)


def joined(*parts: st.SearchStrategy[Fields], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Fields]:
    """The fields of all parts, and these."""
    return st.tuples(*parts, st.fixed_dictionaries(fields)).map(
        lambda found: {name: value for part in found for name, value in part.items()}
    )


def times(values: st.SearchStrategy[Any], count: int) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(*[values] * count)


BINS = joined(
    transform=some(*TRANSFORMS),
    height=st.integers(2, 5),
    thresholds=st.lists(shares, max_size=3).map(tuple),
    reach=some(1.0, 24.0) | st.floats(1, 24),
)
HISTOGRAM = joined(
    BINS,
    some((1,), (1, 2)).flatmap(
        lambda widths: st.fixed_dictionaries(
            {"widths": st.just(widths), "multipliers": st.just(()) | times(st.integers(1, 16), len(widths))}
        )
    ),
)
MOMENTS = joined(
    BINS,
    height=st.just(2),
    placements=times(st.integers(0, 1 << PLACE_SHIFT), 16).map(
        lambda places: np.array(places, "<u2").tobytes()
    ),
    capacity=some(1, 2**32),
)


@st.composite
def of_sites(draw: st.DrawFn, *, weighed: bool = False) -> Fields:
    metrics = tuple(draw(st.lists(some(*compared()), min_size=1, unique=True)))
    tau2 = times(some(0.0, 5e-324, 1024.0) | st.floats(0, 1024), len(metrics))
    return {**draw(BINS), "metrics": metrics, **({"tau2": draw(tau2)} if weighed else {})}


EDGES = joined(
    edges=st.sets(inner, max_size=3).map(lambda between: (0.0, *sorted(between), 1.0)),
    capacity=some(1, 2**32),
)
CONDITION = (
    st.just({"by": "", "groups": ()})
    | joined(by=st.just("group"), groups=some(("a",), ("b", "a")))
    | joined(
        by=st.just("class"),
        groups=st.integers(1, MOST_CLASSES).map(lambda count: tuple(str(k) for k in range(count))),
    )
)


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


SPAN = (
    some((0.0, 1.0), (-1e307, 1e307), (1e-300, 1e300), (1e-310, 1.0), (-3.0, 5e-3))
    | st.tuples(numbers, numbers).map(sorted)
).map(lambda ends: {"lower": ends[0], "upper": ends[1]})
GIVEN = st.sets(numbers, min_size=1, max_size=3).map(
    lambda given: {
        "spacing": "given",
        "given": tuple(sorted(given)),
        "lower": min(given),
        "upper": max(given),
        "points": 4,
    }
)
DISTRIBUTION = joined(
    quantity(),
    joined(SPAN, points=some(2, 4, 16), spacing=some("uniform", "logarithmic")) | GIVEN,
    CONDITION | joined(labelled=st.just(True), public_labels=st.booleans()),
)
LEVELS = joined(level=inner, confidence=st.none() | inner, clients=some(1, 2, 10, 101, 100_000))
OF_RANKS = joined(
    quantity(),
    CONDITION,
    LEVELS,
    rules=st.lists(some(*RULES), min_size=1, unique=True).map(tuple),
)
VOTES = joined(
    quantity(),
    CONDITION,
    LEVELS,
    SPAN,
    points=some(2, 16),
    rungs=st.sets(st.integers(1, 2 * MOST_ROWS), max_size=4).map(lambda rungs: (0, *sorted(rungs))),
)


@st.composite
def losses(draw: st.DrawFn) -> Fields:
    """For as many rows as there are at most: `client.py` leaves out the others."""
    rows, slope = draw(st.integers(MOST_ROWS, 2**32)), some(1, 9, 1 << 20)
    own = joined(quantity(), SPAN, points=st.integers(2, 20), below=slope, above=slope)
    return {**draw(own), "rows": rows, "target": draw(st.integers(1, rows))}


@st.composite
def covered(draw: st.DrawFn, among: tuple[str, ...] = tuple(QUANTITIES), *, sets: bool = False) -> Fields:
    fields = {**draw(quantity(among)), **draw(CONDITION)}
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


MAPPED = classes.flatmap(lambda count: joined(through(count), classes=st.just(count)))
CHANGES = joined(
    MAPPED,
    loss_bound=some(1e-6, 36.0) | st.floats(1e-6, 36.0),
    brier_bound=some(1e-6, 2.0) | st.floats(1e-6, 2.0),
    moments=st.integers(2, 3),
    bits=st.integers(2, 14),
    digits=st.integers(1, 8),
)
OF_CLASSES = joined(
    MAPPED | joined(classes=classes),
    bins=st.integers(1, 5),
    bits=st.integers(2, 14),
    digits=st.integers(1, 3),
)
PER_CLASS = joined(
    BINS.map(lambda fields: {name: value for name, value in fields.items() if name != "thresholds"}),
    classes=classes,
    widths=some((1,), (1, 2)),
)


@st.composite
def scaling(draw: st.DrawFn) -> Fields:
    method, count = draw(some(*FAMILIES)), draw(classes)
    family = FAMILIES[method]
    parameter = some(family.least, 1.0, 2.0**20) | st.floats(family.least, 2.0**20)
    theta = draw(times(parameter, family.size(count)))
    return {"method": method, "classes": count, "theta": theta, "order": draw(st.integers(1, 2))}


CLIP = some(0.001, 10.0, 2.0**20) | st.floats(0.001, 2.0**20)
PROBABILITY_BINS = joined(
    st.just({}) | joined(positive_clip=CLIP, negative_clip=CLIP),
    classes=classes,
    height=st.integers(0, 5),
    joint=st.booleans(),
)


@st.composite
def updates(draw: st.DrawFn) -> Fields:
    method, count = draw(st.sampled_from(tuple(AVERAGED))), draw(classes)
    of = AVERAGED[method]
    ends = st.sampled_from([of.least, 1.0, of.most]) | st.floats(of.least, of.most)
    theta = of.within(np.resize(draw(st.lists(ends, min_size=1, max_size=5)), of.size(count)))
    return {
        "method": method,
        "classes": count,
        "theta": tuple(draw(st.sampled_from([theta, of.identity(count)])).tolist()),
        "clip": draw(st.sampled_from([0.0, 2.0**-20, 0.5, 2.0**20])),
        "weights": draw(some(*get_args(UpdateWeights))),
        "most_rows": draw(st.sampled_from([1, 3, 2**32])),
        "ridge": draw(st.sampled_from([1e-9, 0.01, 1e6])),
    }


CURVE = joined(
    classes=classes,
    grid=st.sets(some(2.0**-20, 1.0, 2.0**20) | st.floats(2.0**-20, 2.0**20), min_size=1, max_size=5).map(
        lambda grid: tuple(sorted(grid))
    ),
    full_rows=some(1, 10, 2**32),
)
CURVES = joined(CURVE, bound=some(*get_args(Bound)), bits=st.integers(4, 24), most_rows=some(1, 10, 2**32))


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
    }


ROUNDS = joined(
    regression(),
    step=some(5e-324, 0.1, 9e5),
    local_steps=some(1, 2, 7, 1024),
    local=some(*LOCAL),
    visits=some(1, 3, 1 << 30),
    weights=some(*get_args(RoundWeights)),
    per=some(5e-324, 1e-200, 1.0, 9e17),
    seed=st.none() | st.integers(0, 2**63 - 1),
)
"""Steps and weights of any size, too."""

NORM = some(2.0**-20, 1.0, 2.0**20)

QUESTIONS: Mapping[str, st.SearchStrategy[Fields]] = {
    "score-histogram": HISTOGRAM,
    "versus-histogram": HISTOGRAM,
    "paired-histograms": HISTOGRAM,
    "grouped-histogram": joined(HISTOGRAM, groups=some(("a",), ("b", "a"), ("nobody",))),
    "paired-moments": MOMENTS,
    "eligible-sites": of_sites(),
    "site-sums": of_sites(weighed=True),
    "value-tree": joined(DISTRIBUTION, widths=some((1,), (1, 2))),
    "value-path": joined(DISTRIBUTION, multiplier=some(1, 2, 1 << 16)),
    "value-roots": DISTRIBUTION,
    "score-path": joined(points=some(2, 16)),
    "group-statistics": EDGES,
    "all-group-statistics": EDGES,
    "local-quantile": OF_RANKS,
    "quantile-votes": VOTES,
    "quantile-losses": losses(),
    "coverage-counts": covered(sets=True),
    "site-coverage": covered(),
    "mean-width": covered(("normalised", "cqr")),
    "class-statistics": OF_CLASSES,
    "class-histograms": PER_CLASS,
    "scaling-sums": scaling(),
    "clipped-updates": updates(),
    "probability-histograms": PROBABILITY_BINS,
    "map-changes": CHANGES,
    "loss-curves": CURVES,
    "client-profiles": joined(CURVE, at=some(None, 0.5)),
    "regression-moments": joined(features=st.integers(0, MOST_CLASSES), less_offset=st.booleans()),
    "newton-sums": joined(regression(), order=st.integers(1, 2), meat=some(*get_args(Meat))),
    "regression-round": joined(ROUNDS, remembers=st.booleans()),
    "clipped-round": joined(ROUNDS, clip=NORM, slopes_clip=NORM),
    "client-spread": joined(parameters=st.integers(1, MOST_CLASSES + 1)),
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


def bounds_of(annotation: Any) -> Interval | None:
    """The interval that a number is declared to be in."""
    for kind in (annotation, *get_args(annotation)):
        for one in get_args(kind) if get_origin(kind) is Annotated else ():
            if isinstance(one, Interval):
                return one
    return None


@pytest.mark.parametrize(
    "name", sorted(name for name, kind in CATALOGUE.items() if issubclass(kind, Checked))
)
@given(st.data())
@settings(max_examples=5)
def test_what_is_outside_the_declared_bounds_is_refused(name: str, data: st.DataObject) -> None:
    """Whole numbers are no other numbers, and no truth values; a name is one of those that are known."""
    summary = data.draw(question(name))
    for parameter in parameters(type(summary)):
        wrong: list[Any] = ["no such name"] if parameter.choices else []
        bounds, whole = bounds_of(parameter.annotation), parameter.item is int
        if bounds is not None:
            lower = (
                bounds.gt
                if bounds.ge is None
                else bounds.ge - 1
                if whole
                else np.nextafter(bounds.ge, -np.inf)
            )
            upper = (
                bounds.lt
                if bounds.le is None
                else bounds.le + 1
                if whole
                else np.nextafter(bounds.le, np.inf)
            )
            wrong += [end for end in (lower, upper) if end is not None] + [np.nan]
        if whole:
            wrong += [2.0, True]
        if parameter.item is bool:
            wrong += [1]
        for value in wrong:
            given = (value,) if parameter.several else value
            with pytest.raises(UsageError, match=f"^{parameter.name}: got"):
                replace(summary, **{parameter.name: given})


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


def rows_in(*batches: Batch) -> StreamedRows:
    return StreamedRows(read=lambda: iter(batches))


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
    vector, _ = summary.measure(rows_in(*batches), {})
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
        vector, memory = summary.measure(rows_in(*rows), memory)
        assert vector.shape == (summary.length,)
        memory = wire.decode(wire.encode(dict(memory)))
    for size in (summary.features, summary.features + 1):
        spread = CATALOGUE["client-spread"](parameters=size)
        vector, _ = spread.measure(rows_in(), memory)
        assert vector.dtype == np.int64
        assert vector.shape == (spread.length,)


OF_LOGITS: Mapping[str, Fields] = {
    "class-statistics": {},
    "class-histograms": {},
    "probability-histograms": {},
    "map-changes": {"kind": "temperature", "theta": (2.0,)},
    "scaling-sums": {"method": "temperature", "theta": (1.0,)},
    "clipped-updates": {"method": "temperature", "theta": (1.0,)},
    "loss-curves": {"grid": (0.5, 2.0)},
    "client-profiles": {"grid": (0.5, 2.0)},
}


@pytest.mark.parametrize("other", [2, 4])
@pytest.mark.parametrize("name", OF_LOGITS)
def test_rows_of_another_model_count_for_nothing(name: str, other: int) -> None:
    """As if there were none, which the total then shows; of the right number of logits, they count."""
    summary = CATALOGUE[name](classes=3, **OF_LOGITS[name])
    found = {
        width: measured(summary, {"class": np.array([0, 1]), "logits": np.zeros((2, width))})
        for width in (3, other)
    }
    assert found[3].any()
    assert not found[other].any()


# --- rows that the data layer does not let pass ---------------------------------------------------------


@pytest.mark.parametrize(
    ("logits", "label", "message"),
    [
        ([[0.0, 0.0, np.nan]], 0, "NaN or infinite"),
        ([[0.0, np.inf, 0.0]], 0, "NaN or infinite"),
        ([[1e300, -np.inf, 0.0]], 0, "NaN or infinite"),
        ([[0.0, 0.0, 0.0]], 3, "class: got 3, expected whole numbers from 0 to 2"),
        ([[0.0, 0.0, 0.0]], -1, "class: got -1"),
        ([0.0], 0, "got an array of shape"),
        ([["a", "b", "c"]], 0, "expected numbers"),
    ],
)
@pytest.mark.parametrize("name", OF_LOGITS)
def test_logits_that_are_none_and_classes_without_one_are_refused(
    name: str, logits: list[Any], label: int, message: str
) -> None:
    for bound in get_args(Bound) if name == "loss-curves" else ("",):
        fields = {**OF_LOGITS[name], "bound": bound} if bound else OF_LOGITS[name]
        summary = CATALOGUE[name](classes=3, **fields)
        with pytest.raises(DataError, match=message):
            measured(summary, {"logits": np.array(logits), "class": np.array([label])})
        with pytest.raises(DataError, match="none in the role 'logits'"):
            measured(summary, {"class": np.array([label])})


OF_SCORES: Mapping[str, Fields] = {
    "score-histogram": {"transform": "uniform", "height": 4},
    "versus-histogram": {"transform": "uniform", "height": 4},
    "paired-histograms": {"transform": "uniform", "height": 4},
    "grouped-histogram": {"transform": "uniform", "height": 4, "groups": ("a",)},
    "paired-moments": {"transform": "uniform", "height": 2, "placements": bytes(32)},
    "group-statistics": {"edges": (0.0, 0.5, 1.0)},
    "all-group-statistics": {"edges": (0.0, 0.5, 1.0)},
    "score-path": {"points": 16},
    "value-tree": {"lower": 0.0, "upper": 1.0, "points": 4, "labelled": True},
}


@pytest.mark.parametrize("name", OF_SCORES)
def test_scores_and_labels_that_are_none_are_refused(name: str) -> None:
    summary = CATALOGUE[name](**OF_SCORES[name])
    good = {
        **{"score": np.array([0.5]), "versus": np.array([0.25]), "value": np.array([0.5])},
        **{"label": np.array([1]), "group": fingerprints(["a"])},
    }
    assert measured(summary, good).any()
    for role in {"score", "versus"}.intersection(summary.columns):
        for bad in (np.nan, 1.01, -1e-9, np.inf):
            with pytest.raises(DataError, match="scores: got a value that is NaN or outside"):
                measured(summary, {**good, role: np.array([bad])})
    for wrong in ([2], [-1], [1.0]) if "label" in summary.columns else ():
        with pytest.raises(DataError, match="labels: got a value other than 0 and 1"):
            measured(summary, {**good, "label": np.array(wrong)})


# --- totals ---------------------------------------------------------------------------------------------

LARGE: Mapping[str, Fields] = {
    "class-statistics": {"classes": 10},
    "class-histograms": {"classes": 10},
    "probability-histograms": {"classes": 10},
    "map-changes": {"classes": 3, "kind": "matrix", "theta": (0.0,) * 12},
    "clipped-updates": {"method": "vector", "classes": 3, "theta": (1.0,) * 6, "clip": 0.5},
    "client-profiles": {"classes": 10, "grid": (0.5, 2.0)},
    "clipped-round": {
        **{"features": 2, "model": "linear", "theta": (0.0,) * 3, "step": 1.0},
        **{"clip": 1.0, "slopes_clip": 1.0},
    },
    "all-group-statistics": {"edges": (0.0, 0.5, 1.0), "capacity": capacity_for(100_000)},
    "paired-moments": {
        **{"transform": "uniform", "height": 2, "placements": bytes(32)},
        "capacity": capacity_for(100_000, largest=2 * ONE),
    },
}
"""Summaries whose entries are large: many units for a row, or for a client."""

OF_CLIENTS = {"probability-histograms", "clipped-updates", "client-profiles", "clipped-round"}


@pytest.mark.parametrize("trust", ["plain", "secure-sum", "distributed-dp", "server-dp", "local-dp"])
@pytest.mark.parametrize("name", LARGE)
def test_totals_over_many_clients_cannot_wrap(name: str, trust: str) -> None:
    """Or planning them would refuse."""
    model, summary = TRUST_MODELS[trust](), CATALOGUE[name](**LARGE[name])
    budget = Budget(epsilon=1.0, delta=1e-6) if model.private else None
    for unit in Unit if name in OF_CLIENTS else (Unit.EXAMPLE,):
        protection = Protection(unit=unit, rows_per_client=100)
        setting = Setting(trust=model, protection=protection, budget=budget, clients=100_000)
        assert (setting.noise(Sum(of=summary, share=1 / 12)).variance > 0) == model.private


@pytest.mark.parametrize("largest", [ONE, 2 * ONE])
@pytest.mark.parametrize("clients", [1, 40, 10**6, 10**7])
def test_capacities_keep_totals_within_their_bits(clients: int, largest: int) -> None:
    assert clients * largest * capacity_for(clients, largest=largest) < 2**TOTAL_BITS


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
