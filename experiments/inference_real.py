"""Tables 5 and 6: two real data sets over ten clients, by every method, beside the pooled fit of statsmodels.

The paper's splits do not add up (it lists eleven numbers of steps for ten clients, and sizes that exceed the rows by
20,000), so ours are stated here. Features, and the response of the linear model, are standardised over all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import statsmodels.api as sm
from numpy.typing import NDArray

from experiments import inference_published as printed
from experiments.common import data_folder, generator
from experiments.three_privacy_models import markdown
from fedassay.api.terms import EntryTerms
from fedassay.protocol.vocabulary import TrustModel
from fedassay.study.simulation import Simulation
from fedassay.tasks.inference.infer import Infer
from fedassay.trust import Plain, SecureSum

HOURS = (2, 5, 6, 10, 12, 14, 17, 18, 20, 24)
"""Clients of Tetouan have the hours before each of these, from the one before on: 0-1, 2-4, 5, 6-9, .., 20-23."""

SIZES = (20_000, 30_000, 10_000, 40_000, 40_000, 20_000, 30_000, 10_000, 20_000, 25_057)
"""Of the clients of the skin data: as printed, but the last, so that they add up to 245,057."""

DAY = 144
"""Rows of Tetouan in 24 hours."""

Frame = dict[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Study:
    """A table: its data, its model, how rounds are run, and what the paper prints."""

    name: str
    model: str
    features: tuple[str, ...]
    target: str
    rounds: int
    step: float
    local_steps: int
    participation: float = 0.5
    intercept: bool = True
    lags: int = 0
    """Of the errors that allow for autocorrelation, in rows; 0 for none."""
    printed: printed.Printed
    load: Callable[[], Frame] = field(compare=False)


def tetouan() -> Frame:
    """Rows in the order of time, with the client of each."""
    table = pq.read_table(data_folder() / "tetouan_power.parquet")
    hours = table["datetime"].to_numpy().astype("datetime64[h]").astype(np.int64) % 24
    columns = (*TETOUAN.features, TETOUAN.target)
    frame = {name: standardised(table[name].to_numpy()) for name in columns}
    clients = np.searchsorted(HOURS, hours, side="right")
    return {**frame, "client": clients.astype(str)}


def skin() -> Frame:
    """Rows in a random order (the file has all of one class first), dealt to clients in turn."""
    table = pq.read_table(data_folder() / "skin_segmentation.parquet")
    order = generator(0, "skin").permutation(table.num_rows)
    frame = {name: standardised(table[name].to_numpy()[order]) for name in SKIN.features}
    # As in the paper's Table 6, where B is positive: the class that is predicted is "not skin".
    return {
        **frame,
        "y": 1 - table["y"].to_numpy()[order],
        "client": np.repeat(np.arange(10), SIZES).astype(str),
    }


def standardised(column: NDArray[Any]) -> NDArray[np.float64]:
    """Mean 0 and variance 1."""
    numbers = column.astype(np.float64)
    return np.asarray((numbers - numbers.mean()) / numbers.std())


TETOUAN = Study(
    name="tetouan_power",
    model="linear",
    features=("temperature", "humidity", "wind_speed", "general_diffuse_flows", "diffuse_flows"),
    target="power_zone1",
    rounds=2184,
    step=0.2,
    local_steps=4,
    lags=DAY,
    printed=printed.TABLE_5,
    load=tetouan,
)
SKIN = Study(
    name="skin_segmentation",
    model="logistic",
    features=("B", "G", "R"),
    target="y",
    rounds=5000,
    step=0.5,
    local_steps=9,
    intercept=False,
    printed=printed.TABLE_6,
    load=skin,
)

PAPER = {"local": "published"}
WAYS: Mapping[str, Mapping[str, Any]] = {
    "separated plug-in, published": {"method": "separated-plug-in", **PAPER},
    "random scaling, published": {"method": "random-scaling", **PAPER},
    "separated plug-in, corrected": {"method": "separated-plug-in-corrected"},
    "random scaling, corrected": {"method": "random-scaling"},
    "round plug-in": {"method": "round-plug-in"},
}

Row = Mapping[str, tuple[float, float, float]]
"""By variable: the estimate and both ends of its interval."""


def absent(study: Study) -> str:
    """Why there is nothing to measure; empty if there is."""
    path = data_folder() / f"{study.name}.parquet"
    return (
        ""
        if path.exists()
        else f"no data: got no file {path}, set FEDASSAY_DATA to the folder of the data sets"
    )


def ours(study: Study, frame: Frame, trust: TrustModel, **fields: Any) -> tuple[Row, list[str]]:
    """The shipped task over simulated clients, and what it has to say."""
    task = Infer(model=study.model, features=study.features, intercept=study.intercept, **fields)
    terms = EntryTerms.of(trust, None, None, Simulation(seed=1))
    roles = terms.roles("client", target=study.target, features=",".join(study.features))
    results = terms.simulate("infer", task, frame, roles).results
    withheld = (float("nan"), float("nan"))  # rounds have not arrived, as the notes say
    row = {one["name"]: (one["value"], *(one["interval"] or withheld)) for one in results["coefficients"]}
    return row, list(results["notes"])


def streamed(
    study: Study, frame: Frame, trust: TrustModel | None = None, **fields: Any
) -> tuple[Row, list[str]]:
    """In rounds, as the study says."""
    options = {
        "rounds": study.rounds,
        "participation": study.participation,
        "step": study.step,
        "local_steps": study.local_steps,
        **fields,
    }
    return ours(study, frame, trust or Plain(), **options)


def pooled(study: Study, frame: Frame, **covariance: Any) -> Row:
    """The fit of statsmodels to all rows, with these errors."""
    x = np.column_stack([frame[name] for name in study.features])
    names = list(study.features)
    if study.intercept:
        x, names = np.column_stack([np.ones(len(x)), x]), ["intercept", *names]
    y = frame[study.target].astype(np.float64)
    linear = study.model == "linear"
    fit = sm.OLS(y, x).fit(**covariance) if linear else sm.Logit(y, x).fit(disp=0, **covariance)
    ends = np.asarray(fit.conf_int(0.05))
    return {
        name: (float(value), float(low), float(high))
        for name, value, (low, high) in zip(names, np.asarray(fit.params), ends, strict=True)
    }


def rows_of(study: Study) -> tuple[dict[str, Row], list[str]]:
    """Everything that the table shows, and what the task said about the rounds."""
    frame = study.load()
    rows: dict[str, Row] = {
        "printed, separated plug-in": {
            name: (value, *ends) for name, (value, ends, _) in study.printed.items()
        },
        "printed, random scaling": {name: (value, *ends) for name, (value, _, ends) in study.printed.items()},
    }
    said: list[str] = []
    for name, fields in WAYS.items():
        rows[name], notes = streamed(study, frame, **fields)
        said += [note for note in notes if note not in said]
    rows["newton"], _ = ours(study, frame, SecureSum(), method="newton")
    robust = "HC1" if study.model == "linear" else "HC0"
    rows[f"statsmodels, {robust}"] = pooled(study, frame, cov_type=robust)
    groups = {"groups": np.unique(frame["client"], return_inverse=True)[1]}
    rows["statsmodels, clusters are clients"] = pooled(
        study, frame, cov_type="cluster", cov_kwds=groups, use_t=True
    )
    if study.lags:
        rows[f"statsmodels, HAC with {study.lags} lags"] = pooled(
            study, frame, cov_type="HAC", cov_kwds={"maxlags": study.lags}
        )
    return rows, said


def table(study: Study) -> str:
    """One line for each method: estimate (interval)."""
    reason = absent(study)
    if reason:
        return f"Not measured: {reason}."
    rows, said = rows_of(study)
    lines = [[name, *(_cell(row.get(variable)) for variable in study.features)] for name, row in rows.items()]
    notes = [f"* The task says: {note}" for note in said]
    return "\n".join([markdown(["", *study.features], lines), *([""] if notes else []), *notes])


def _cell(numbers: tuple[float, float, float] | None) -> str:
    if numbers is None:
        return ""
    value, low, high = numbers
    return f"{value:.4f} ({low:.4f}, {high:.4f})" if low == low else f"{value:.4f} (withheld)"


def secure(study: Study, rounds: int) -> str:
    """The same rounds with and without a secure sum: how far estimates and ends of intervals are apart."""
    reason = absent(study)
    if reason:
        return f"Not measured: {reason}."
    frame = study.load()
    plain, hidden = (streamed(study, frame, trust, rounds=rounds)[0] for trust in (Plain(), SecureSum()))
    apart = max(float(np.abs(np.subtract(plain[name], hidden[name])).max()) for name in plain)
    return (
        f"{study.name}, {rounds} rounds under `secure-sum` and under `plain`, same seed: estimates and ends "
        f"of intervals differ by at most {apart:.1e}."
    )
