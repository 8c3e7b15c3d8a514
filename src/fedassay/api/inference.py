"""Entry point: coefficients of a regression, with intervals."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from typing import Any, cast

from fedassay.api.terms import EntryTerms, declared
from fedassay.data.inventory import feature_names, reread
from fedassay.data.partition import Partition
from fedassay.data.scan import Scan
from fedassay.data.schema import Columns
from fedassay.data.sources import Folder, open_source
from fedassay.errors import DataError, UsageError
from fedassay.kernel.run import rehearse
from fedassay.protocol.parameters import made
from fedassay.protocol.result import Result
from fedassay.protocol.vocabulary import Budget, Protection, Query, Setting, Step, TrustModel
from fedassay.runtimes.simulated import Progress
from fedassay.study.simulation import Simulation
from fedassay.summaries.regression.local_work import RoundFields
from fedassay.summaries.regression.losses import SmoothLoss, lent, loss_of
from fedassay.summaries.regression.moments import Moments
from fedassay.summaries.regression.newton_sums import NewtonSums
from fedassay.tasks.inference.infer import Infer
from fedassay.tasks.inference.online import Course, RoundHistory
from fedassay.tasks.inference.parameters import DECAY, Local, Model, RegressionMethod, Variance, Weighting
from fedassay.tasks.inference.private_rounds import default_rounds as private_rounds


def infer(
    data: Any,
    *,
    client: str | Partition | None = None,
    target: str,
    features: str | Sequence[str],
    model: Model | SmoothLoss = "linear",
    method: RegressionMethod = "round-plug-in",
    rounds: int | None = None,
    participation: float = 1.0,
    local_steps: int = 1,
    local: Local = "corrected",
    step: float | None = None,
    decay: float = DECAY,
    weighting: Weighting = "rows",
    variance: Variance = "row",
    intercept: bool = True,
    standardise: bool = True,
    scales: str | Sequence[str] = (),
    clip: float | None = None,
    offset: str | None = None,
    level: float = 0.95,
    contrasts: str | Sequence[str] = (),
    state: Mapping[str, Any] | None = None,
    privacy: TrustModel | str | None = None,
    budget: Budget | None = None,
    protection: Protection | None = None,
    simulation: Simulation | None = None,
) -> Result:
    """Coefficients of a regression over a federation, each with a standard error, an interval and a p-value.

    Parameters
    ----------
    data, client, privacy, budget, protection : as in `evaluate`.
    target, offset : columns; the offset is a known part of x·theta.
    features : names of columns, in a list or separated by commas; or a single name: a column of lists, or the common
        beginning of the names of numbered columns.
    model : ``linear``, ``logistic``, or a `SmoothLoss` of your own, which works in this process only.
    method, rounds, participation, local_steps, local, step, decay, weighting : how it is fitted, as in `Infer`:
        by rounds of federated averaging, or ``newton``, the pooled fit through a handful of sums.
    variance, intercept, standardise, scales, clip, level, contrasts : as in `Infer`. A loss that is not an
        `IndexLoss` sees features as they are: nothing is known about how its parameters translate.
    state : ``result["state"]`` of an earlier run, to go on from there with new rows.
    simulation : its `progress` is called with 0, the round and the number of rounds (0: not known).

    Returns
    -------
    A `Result`; ``result["coefficients"]``, ``result["covariance"]``, ``result["contrasts"]``, ``result["state"]``.

    Guarantee: see `Infer`: ``newton`` equals the pooled fit, intervals from rounds hold in the limit of many.

    Examples
    --------
    >>> import numpy as np, fedassay
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=900)
    >>> data = {"site": np.arange(900) % 6, "x": x, "y": 1 + 2 * x + rng.normal(size=900)}
    >>> result = fedassay.infer(data, client="site", target="y", features="x", method="newton")
    >>> [(one["name"], round(one["value"], 2)) for one in result["coefficients"]]
    [('intercept', 0.98), ('x', 2.0)]
    """
    arguments = declared(Infer, locals())
    terms, data = EntryTerms.of(privacy, budget, protection, simulation), reread(data)
    given = terms.simulation
    columns = terms.roles(client, features=_joined(features), target=target, offset=offset)
    data = terms.rows(data, columns)
    with _known(model, simulation=given) as name:
        loss = loss_of(name)
        own = {
            "model": name,
            "features": feature_names(columns.names["features"], data),
            "standardise": standardise if loss.standardises else False,
            "offset": offset is not None,
        }
        task = made(Infer, {**arguments, **own}, state=state)
        _check_parameters(task, loss)
        rehearse(task, terms.setting)  # an invalid state is refused here
        _check_target(data, target, loss)
        more = {
            "offset": offset,
            "features": list(task.features),
            "state": None if state is None else {"rounds": RoundHistory.from_json(state).path.rounds},
        }
        silent = replace(terms, simulation=replace(given, progress=None))
        return silent.simulate("infer", _watched(task, given.progress), data, columns, more)


def _joined(features: str | Sequence[str]) -> str:
    """Return the names as a single text, as columns are named."""
    if isinstance(features, str):
        return features
    names = list(features)
    for name in names:
        if not isinstance(name, str) or "," in name:
            raise UsageError(f"features: got {name!r}, expected names of columns, without commas in them.")
    if not names:
        raise UsageError("features: got none, expected the name of at least one column.")
    return ",".join(names)


def _known(model: str | SmoothLoss, *, simulation: Simulation) -> AbstractContextManager[str]:
    """Return the name of the loss for the time of a run; a user-defined loss is lent to this process."""
    if isinstance(model, str):
        return nullcontext(model)
    if not isinstance(model, SmoothLoss) or not isinstance(getattr(model, "name", None), str):
        raise UsageError(
            f"model: got {model!r}, expected linear, logistic, or an instance of a SmoothLoss with a name."
        )
    if not simulation.card.in_this_process:
        raise UsageError(
            f"model: got the loss {model.name!r} for {simulation.card.name}, expected linear or logistic: code does "
            "not travel to other processes; use the in-process runtime."
        )
    return lent(model)


def _check_parameters(task: Infer, loss: SmoothLoss) -> None:
    named, needed = len(task.names), loss.parameters(len(task.names))
    if needed != named:
        raise UsageError(
            f"model: got the loss {loss.name!r} with {needed} parameters for {named} columns (the intercept is one), "
            "expected one for each."
        )


def _check_target(data: Any, target: str, loss: SmoothLoss) -> None:
    """Raise before anything is sent if the model cannot have such a target; other errors are reported later."""
    columns, source = Columns(names={"target": target}), open_source(data)
    for table in source.sites.values() if isinstance(source, Folder) else (source,):
        scan = Scan(table, columns)
        if scan.absent:
            return
        for chunk in scan.chunks():
            values = chunk.good("target")
            problem = None if values is None else loss.problem(values)
            if problem is not None:
                raise DataError(
                    f"{table.label}, column {target!r} (target of a {loss.name} model): got {problem}."
                )


def _watched(task: Infer, say: Progress | None) -> Infer:
    """Return the same task, which reports its round under any runtime."""
    if say is None:
        return task
    told, rounds = say, [0]

    class Watched(Infer):
        def course(self, setting: Setting, moments: Moments) -> Course:
            found = super().course(setting, moments)
            rounds[0] = found.rounds
            return found

        def steps(self, setting: Setting) -> Generator[Step, Any, dict[str, Any]]:
            if setting.trust.private:
                rounds[0] = self.rounds or private_rounds(setting.protection.rows_per_client)
            flow, done, reply = super().steps(setting), 0, None
            while True:
                try:
                    asked = flow.send(reply)
                except StopIteration as finished:
                    return cast(dict[str, Any], finished.value)
                if isinstance(asked, Query) and isinstance(asked.of, RoundFields | NewtonSums):
                    done += 1
                    told(0, done, rounds[0])
                reply = yield asked

    return Watched(**{field.name: getattr(task, field.name) for field in fields(task)})
