"""The entry points have explicit signatures; their names, defaults and types are those that tasks declare."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

import fedassay
from fedassay.protocol.parameters import Parameter, parameters
from fedassay.summaries.regression.losses import SmoothLoss
from fedassay.tasks.card import PARAMETERS

TERMS = frozenset({"data", "client", "privacy", "budget", "protection", "simulation"})
"""What every entry point takes."""


@dataclass(frozen=True, kw_only=True)
class EntryPoint:
    """A function, the kinds of task that it runs, and where it differs from what they declare.

    Parameters
    ----------
    columns : arguments that name columns.
    implied : parameters of the tasks that follow from columns, or from the data.
    open : parameters whose default depends on the columns: None in the signature.
    more : types that a function takes besides the declared ones.
    """

    function: Callable[..., Any]
    kinds: tuple[str, ...]
    columns: frozenset[str]
    implied: frozenset[str] = frozenset()
    open: frozenset[str] = frozenset()
    more: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


ENTRY_POINTS = {
    "evaluate": EntryPoint(
        function=fedassay.evaluate,
        kinds=("evaluate", "evaluate-classes"),
        columns=frozenset({"label", "score", "logits", "by", "versus"}),
        implied=frozenset({"versus", "classes"}),
        open=frozenset({"buckets"}),
    ),
    "calibrate": EntryPoint(
        function=fedassay.calibrate,
        kinds=("calibrate", "calibrate-classes"),
        columns=frozenset({"label", "score", "logits"}),
        implied=frozenset({"classes"}),
        open=frozenset({"buckets"}),
    ),
    "conformal": EntryPoint(
        function=fedassay.conformal,
        kinds=("conformal",),
        columns=frozenset(
            {
                *("conformity", "target", "prediction", "scale", "lower", "upper", "label", "logits"),
                *("score", "by"),
            }
        ),
        implied=frozenset({"classes"}),
        open=frozenset({"sets"}),
    ),
    "ecdf": EntryPoint(
        function=fedassay.ecdf,
        kinds=("ecdf",),
        columns=frozenset({"value", "label"}),
        implied=frozenset({"labelled"}),
        open=frozenset({"lower", "upper"}),
    ),
    "quantiles": EntryPoint(
        function=fedassay.quantiles,
        kinds=("quantiles",),
        columns=frozenset({"value"}),
        open=frozenset({"lower", "upper"}),
    ),
    "hosmer_lemeshow": EntryPoint(
        function=fedassay.hosmer_lemeshow, kinds=("hosmer-lemeshow",), columns=frozenset({"score", "label"})
    ),
    "infer": EntryPoint(
        function=fedassay.infer,
        kinds=("infer",),
        columns=frozenset({"features", "target", "offset"}),
        implied=frozenset({"features", "target", "offset", "state"}),
        more=MappingProxyType({"model": SmoothLoss}),
    ),
}
STATE = {"infer": {"state"}}
"""Arguments that are no parameters of a task that a user could write down."""


def declared(entry: EntryPoint) -> dict[str, list[Parameter]]:
    """The parameters of all kinds by name, without those that are implied."""
    found: dict[str, list[Parameter]] = {}
    for kind in entry.kinds:
        for one in parameters(PARAMETERS[kind]):
            if one.name not in entry.implied:
                found.setdefault(one.name, []).append(one)
    return found


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_an_entry_point_has_the_parameters_of_its_tasks(name: str) -> None:
    entry = ENTRY_POINTS[name]
    arguments = set(inspect.signature(entry.function).parameters)
    assert arguments == TERMS | entry.columns | set(declared(entry)) | STATE.get(name, set())


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_defaults_are_those_of_the_tasks(name: str) -> None:
    entry = ENTRY_POINTS[name]
    arguments = inspect.signature(entry.function).parameters
    for one, same in declared(entry).items():
        default = arguments[one].default
        if one in entry.open:
            assert default is None
        else:
            assert {default} == {parameter.default for parameter in same}, one
            assert default is not MISSING


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_types_are_those_of_the_tasks(name: str) -> None:
    entry = ENTRY_POINTS[name]
    hints = get_type_hints(entry.function)
    for one, same in declared(entry).items():
        expected = {kind for parameter in same for kind in _taken(parameter.annotation)}
        expected |= {entry.more[one]} if one in entry.more else set()
        expected |= {NoneType} if one in entry.open else set()
        assert set(_taken(hints[one])) == expected, one


def _taken(annotation: Any) -> Iterator[Any]:
    """What an annotation accepts: choices one by one; where a list is meant, a single value too."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _taken(get_args(annotation)[0])
    elif origin is Literal:
        yield from get_args(annotation)
    elif origin in (Union, UnionType):
        for one in get_args(annotation):
            yield from _taken(one)
    elif origin in (tuple, Sequence):
        item = next(iter(_taken(get_args(annotation)[0])))
        yield from (item, Sequence[item])
    else:
        yield annotation
