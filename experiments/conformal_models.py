"""The three predictors of the conformal experiments: ridge regression, a quantile forest, and boosted quantiles.

The quantile forest is Meinshausen's: a new row weighs each training row by how often they share a leaf, each leaf
having a weight of one to give, and quantiles are those of the weighted training targets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import RidgeCV
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from experiments.common import Floats
from experiments.conformal_data import Part, Split

RIDGE, FOREST, BOOSTED = "split, ridge", "CQR, forest", "CQR, boosted"
LEVEL = 0.9
TREES, LEAF, SYNTHETIC_LEAF = 100, 5, 40

BAND = 0.85 * LEVEL
"""What the band of a forest is to hold before it is conformalised, as in the experiments of Romano et al. (2019)."""

BETAS = tuple(np.linspace(0.05, 0.35, 13).tolist())
"""Lower levels that are tried for the band; the upper one is one minus it."""

_AT_ONCE = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class Columns:
    """What a model says about rows, and what is true. Of `prediction` and (`lower`, `upper`) one is there."""

    target: Floats
    prediction: Floats | None = None
    lower: Floats | None = None
    upper: Floats | None = None

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.target)

    def columns(self) -> dict[str, Floats]:
        """Those that are there, by name: also the roles of `fedassay.conformal`."""
        return {name: column for name, column in vars(self).items() if column is not None}

    def take(self, rows: slice) -> Columns:
        """These rows."""
        return Columns(**{name: column[rows] for name, column in self.columns().items()})

    def scores(self) -> Floats:
        """|y - p|, or max(lower - y, y - upper)."""
        if self.prediction is not None:
            return np.abs(self.target - self.prediction)
        lower, upper = self.ends()
        return np.maximum(lower - self.target, self.target - upper)

    def ends(self) -> tuple[Floats, Floats]:
        """The interval before it is conformalised: [p, p] or [lower, upper]."""
        if self.prediction is not None:
            return self.prediction, self.prediction
        assert self.lower is not None
        assert self.upper is not None
        return self.lower, self.upper


@dataclass(frozen=True, kw_only=True, eq=False)
class Predicted:
    """A model's columns for the calibration and the test rows of one split."""

    calibration: Columns
    test: Columns


Fit = Callable[[Part, int], Callable[[Floats], dict[str, Floats]]]


def predicted(split: Split, model: str, *, seed: int, leaf: int = LEAF) -> Predicted:
    """Fit one of the models to the training rows."""
    with threadpool_limits(1):
        told = _fits(leaf)[model](split.train, seed)
        parts = (
            Columns(target=part.target, **told(part.features)) for part in (split.calibration, split.test)
        )
        return Predicted(**dict(zip(("calibration", "test"), parts, strict=True)))


def _fits(leaf: int) -> Mapping[str, Fit]:
    return {
        RIDGE: _ridge,
        FOREST: lambda train, seed: _forest(train, seed, leaf),
        BOOSTED: _boosted,
    }


def _ridge(train: Part, _: int) -> Callable[[Floats], dict[str, Floats]]:
    """The penalty by leave-one-out cross-validation."""
    model = RidgeCV(alphas=np.logspace(-3, 4, 15)).fit(train.features, train.target)
    return lambda features: {"prediction": model.predict(features)}


def _boosted(train: Part, seed: int) -> Callable[[Floats], dict[str, Floats]]:
    """Two gradient boosted models with the quantile loss, at α/2 and 1-α/2."""
    levels = {"lower": (1 - LEVEL) / 2, "upper": (1 + LEVEL) / 2}
    models = {
        name: HistGradientBoostingRegressor(
            loss="quantile",
            quantile=level,
            max_iter=100,
            max_leaf_nodes=15,
            early_stopping=False,
            random_state=seed,
        ).fit(train.features, train.target)
        for name, level in levels.items()
    }
    return lambda features: _in_order({name: model.predict(features) for name, model in models.items()})


def _forest(train: Part, seed: int, leaf: int) -> Callable[[Floats], dict[str, Floats]]:
    forest = QuantileForest.fitted(train, seed=seed, leaf=leaf)
    beta = forest.tuned()
    return lambda features: dict(
        zip(("lower", "upper"), forest.quantiles(features, (beta, 1 - beta)), strict=True)
    )


def _in_order(ends: dict[str, Floats]) -> dict[str, Floats]:
    """Two quantiles that were fitted apart may cross."""
    lower, upper = ends["lower"], ends["upper"]
    return {"lower": np.minimum(lower, upper), "upper": np.maximum(lower, upper)}


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantileForest:
    """A fitted forest and its training rows, sorted by target.

    `members` has a row for each training row and a column for each node of any tree, `shares` are
    1/(trees · rows of the leaf).
    """

    forest: RandomForestRegressor
    target: Floats
    first: np.ndarray[tuple[int], np.dtype[np.int64]]
    members: sparse.csr_matrix
    shares: Floats

    @classmethod
    def fitted(cls, train: Part, *, seed: int, leaf: int, trees: int = TREES) -> QuantileForest:
        """Grow it."""
        order = np.argsort(train.target, kind="stable")
        features, target = train.features[order], train.target[order]
        forest = RandomForestRegressor(trees, min_samples_leaf=leaf, random_state=seed).fit(features, target)
        first = np.cumsum([0, *(tree.tree_.node_count for tree in forest.estimators_)])
        members = _indicators(forest.apply(features), first)
        sizes = np.asarray(members.sum(axis=0)).ravel()
        shares = 1 / (trees * np.maximum(sizes, 1))
        return cls(forest=forest, target=target, first=first, members=members, shares=shares)

    def quantiles(self, features: Floats, levels: Sequence[float]) -> list[Floats]:
        """The smallest training target with at least this weight up to it, for each level and row."""
        found = [self._read(self._weights(part), levels) for part in _parts(features)]
        return [np.concatenate(several) for several in zip(*found, strict=True)]

    def tuned(self) -> float:
        """The largest of `BETAS` whose band holds `BAND` of the training rows, each seen only by trees without it."""
        weights = self._weights_out_of_bag()
        # A target lies between two quantiles if the weight up to it does; rows are in the order of targets.
        up_to = np.tril(weights).sum(axis=1) / weights.sum(axis=1)
        good = [beta for beta in BETAS if np.mean((beta <= up_to) & (up_to <= 1 - beta)) >= BAND]
        return float(max(good, default=BETAS[0]))

    def _weights(self, features: Floats) -> Floats:
        mine = _indicators(self.forest.apply(features), self.first)
        weights: Floats = (mine @ sparse.diags_array(self.shares) @ self.members.T).toarray()
        return weights

    def _weights_out_of_bag(self) -> Floats:
        leaves = self.members.indices.reshape(len(self.target), -1)
        inside = np.zeros(leaves.shape, dtype=bool)
        for tree, rows in enumerate(self.forest.estimators_samples_):
            inside[rows, tree] = True
        mine = self.members.copy()
        mine.data = np.where(inside, 0.0, self.shares[leaves]).ravel()
        weights: Floats = (mine @ self.members.T).toarray()
        np.fill_diagonal(weights, 0.0)
        return weights

    def _read(self, weights: Floats, levels: Sequence[float]) -> list[Floats]:
        sums = np.cumsum(weights, axis=1)
        sums = sums / sums[:, -1:]
        last = len(self.target) - 1
        return [self.target[np.minimum((sums < level).sum(axis=1), last)] for level in levels]


def _indicators(leaves: np.ndarray, first: np.ndarray) -> sparse.csr_matrix:
    """One row each, with a one for its leaf in every tree."""
    rows, trees = leaves.shape
    columns = (leaves + first[:-1]).ravel()
    starts = np.arange(0, rows * trees + 1, trees)
    return sparse.csr_matrix((np.ones(rows * trees), columns, starts), shape=(rows, int(first[-1])))


def _parts(features: Floats) -> list[Floats]:
    return np.array_split(features, max(1, -(-len(features) // _AT_ONCE)))
