"""Logistic regressions on three public data sets, and the probabilities that they give to rows they have not seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from experiments.common import data_folder
from fedassay.protocol.vocabulary import Batch

FOLDS, SEED = 5, 20231115

SOURCES: Mapping[str, tuple[str, ...]] = {
    "bank_marketing_full": (),
    "framingham": (),
    "adult": ("split", "fnlwgt"),
}
"""File to the columns that are left out, besides the label `y`: not about a person."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scored:
    """Rows with a probability and a label each."""

    name: str
    scores: NDArray[np.float64]
    labels: NDArray[np.int8]

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.scores)

    def batches(self) -> Iterator[Batch]:
        """All rows at once, under the names that summaries read."""
        yield {"value": self.scores, "score": self.scores, "label": self.labels}

    def as_predicted(self, rng: np.random.Generator) -> Scored:
        """The same rows with labels drawn from the probabilities: a model that is right."""
        labels = (rng.random(len(self)) < self.scores).astype(np.int8)
        return Scored(name=self.name, scores=self.scores, labels=labels)


@lru_cache(maxsize=4)
def fitted(name: str) -> Scored:
    """The data set `name`, scored out of fold: five models, each for the fifth that it was not fitted on."""
    table = pq.read_table(data_folder() / f"{name}.parquet").drop_columns(list(SOURCES[name]))
    labels = table["y"].to_numpy().astype(np.int8)
    columns = table.drop_columns(["y"])
    texts = [place for place, field in enumerate(columns.schema) if not _is_number(field.type)]
    numbers = [place for place in range(columns.num_columns) if place not in texts]
    model = make_pipeline(
        make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore"), texts),
            (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
        ),
        LogisticRegression(max_iter=1000),
    )
    rows = np.array([column.to_numpy() for column in columns.columns], dtype=object).T
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=SEED)
    with threadpool_limits(1):  # on busy cores, threads of BLAS wait for each other longer than they work
        scores = cross_val_predict(model, rows, labels, cv=folds, method="predict_proba")[:, 1]
    return Scored(name=name, scores=scores.astype(np.float64), labels=labels)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
