"""The regression data of the conformal experiments: public data sets, a synthetic one, and their random splits.

As in Section 5.2 of the paper, 40 % of the rows are for training, 40 % for calibration and 20 % for testing. Features
are standardised by the training rows, and targets divided by their mean absolute value: lengths have no unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq

from experiments.common import Floats, data_folder, generator

SEED = 20230713
SYNTHETIC = "synthetic"
STAR_SCORES = tuple(f"{subject}{grade}" for subject in ("read", "math") for grade in ("k", "1", "2", "3"))


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data set: columns that are no features, and how many training rows are used, at most.

    `many` is (clients, rows of each) for many small clients, `few` for few large ones, as in the paper's Appendix B.1;
    `private` is for the private runs of B.2.
    """

    file: str
    left_out: tuple[str, ...] = ()
    trained: int | None = None
    many: tuple[int, int]
    few: tuple[int, int]
    private: tuple[int, int]

    @property
    def calibrated(self) -> int:
        """How many calibration rows are used."""
        return max(clients * rows for clients, rows in (self.many, self.few, self.private))


SOURCES: Mapping[str, Source] = {
    "bio": Source(file="bio", trained=6000, many=(100, 10), few=(10, 100), private=(5, 200)),
    "star": Source(
        file="star", left_out=(*STAR_SCORES, "lunchk"), many=(80, 10), few=(10, 80), private=(5, 160)
    ),
    "concrete": Source(file="concrete", many=(40, 10), few=(10, 40), private=(5, 80)),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """Rows of one of the three parts."""

    features: Floats
    target: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """One random division of a data set."""

    train: Part
    calibration: Part
    test: Part


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """All rows of a data set; `trained` and `calibrated` are how many of these rows are used, at most."""

    name: str
    features: Floats
    target: Floats
    trained: int | None = None
    calibrated: int | None = None

    def split(self, number: int, seed: int = SEED) -> Split:
        """The division with this number."""
        rows = generator(seed, self.name, str(number)).permutation(len(self.target))
        train, calibration, test = np.split(rows, [4 * len(rows) // 10, 8 * len(rows) // 10])
        train, calibration = train[: self.trained], calibration[: self.calibrated]
        middle, scale = self.features[train].mean(axis=0), self.features[train].std(axis=0)
        features = (self.features - middle) / np.where(scale > 0, scale, 1.0)
        target = self.target / np.abs(self.target[train]).mean()
        parts = (Part(features=features[part], target=target[part]) for part in (train, calibration, test))
        return Split(**dict(zip(("train", "calibration", "test"), parts, strict=True)))


def load(name: str) -> Table:
    """One of `SOURCES`, from the data folder."""
    source = SOURCES[name]
    table = pq.read_table(data_folder() / f"{source.file}.parquet")
    target = table["y"].to_numpy().astype(np.float64)
    features = table.drop_columns(["y", *source.left_out])
    columns = [column.to_numpy().astype(np.float64) for column in features.columns]
    return Table(
        name=name,
        features=np.stack(columns, axis=1),
        target=target,
        trained=source.trained,
        calibrated=source.calibrated,
    )


def synthetic(number: int, *, rows: int = 2000, tests: int = 5000, seed: int = SEED) -> Split:
    """Section 5.1: Y = Pois(sin²X + 0.1) + 0.03 X e₁ + 25 [U < 0.01] e₂, half for training, half for calibration."""
    rng = generator(seed, SYNTHETIC, str(number))
    x = rng.uniform(1, 5, rows + tests)
    outlier = 25 * (rng.random(rows + tests) < 0.01) * rng.standard_normal(rows + tests)
    y = rng.poisson(np.sin(x) ** 2 + 0.1) + 0.03 * x * rng.standard_normal(rows + tests) + outlier
    parts = (
        Part(features=x[several, None], target=y[several])
        for several in np.split(np.arange(rows + tests), [rows // 2, rows])
    )
    return Split(**dict(zip(("train", "calibration", "test"), parts, strict=True)))
