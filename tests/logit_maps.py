"""Maps of logits of every kind, as extreme as they can be made, and what such maps keep."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import ArrayLike

from fedassay.summaries.class_scores import checked_labels
from fedassay.summaries.multiclass.binned_map import Isotonic
from fedassay.summaries.multiclass.fedcal import fedcal_identity, fedcal_size, loss_and_gradient, ranked
from fedassay.summaries.multiclass.losses import FAMILIES, LossSums, blocks
from fedassay.summaries.multiclass.maps import LOGIT_MAPS
from fedassay.summaries.multiclass.scaling_maps import LogitMap

EXTREME = [
    0.0,
    -0.0,
    1.0,
    1.0 + 2**-52,
    30.0,
    -30.0,
    2.0**20,
    -1e9,
    1e9,
    5e-324,
    1e300,
    -1e300,
    1e308,
    -1e308,
]
LOGIT = st.sampled_from(EXTREME) | st.floats(allow_nan=False, allow_infinity=False)
"""Few different numbers have ties; differences of any size are there too."""

SHARE = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 5e-324])


def some_weights(classes: int, seed: int = 0, scale: float = 0.3) -> np.ndarray:
    """Weights of the network."""
    return fedcal_identity(classes) + scale * np.random.default_rng(seed).normal(size=fedcal_size(classes))


@st.composite
def isotonic_maps(draw: st.DrawFn, classes: int) -> Isotonic:
    bins = draw(st.sampled_from([4, 8]))
    rising = st.lists(SHARE, min_size=bins, max_size=bins).map(lambda one: tuple(sorted(one)))
    return Isotonic(
        inverse_temperature=draw(st.floats(-3, 3) | st.sampled_from([0.0, 32.0, 2.0**20, -(2.0**20)])),
        values=draw(st.tuples(*[rising] * classes)),
        weights=draw(st.tuples(*[SHARE] * classes)),
        reach=draw(st.floats(1, 24)),
    )


@st.composite
def maps(draw: st.DrawFn, kind: str) -> LogitMap:
    c = draw(st.integers(2, 5))
    if kind == "isotonic":
        return draw(isotonic_maps(c))
    if kind == "fedcal":
        scale = draw(st.sampled_from([0.1, 3.0, 1e3, 1e5]))
        return LOGIT_MAPS[kind].of(some_weights(c, draw(st.integers(0, 3)), scale), c)
    if kind in FAMILIES:
        least, size = FAMILIES[kind].least, FAMILIES[kind].size(c)
        return LOGIT_MAPS[kind].of(
            draw(arrays(np.float64, size, elements=st.floats(max(least, -100.0), 100.0))), c
        )
    return LOGIT_MAPS[kind].of(
        draw(arrays(np.float64, c * (1 + (1 << draw(st.integers(0, 4)))), elements=SHARE)), c
    )


def same_ranking(z: np.ndarray, p: np.ndarray) -> bool:
    """At least as large stays at least as large, and equal stays equal."""
    above, equal = z[:, :, None] >= z[:, None, :], z[:, :, None] == z[:, None, :]
    return bool(
        (p[:, :, None] >= p[:, None, :])[above].all() and (p[:, :, None] == p[:, None, :])[equal].all()
    )


def fedcal_sums(logits: ArrayLike, labels: ArrayLike, theta: np.ndarray) -> LossSums:
    """Rows, and the sums over them of the network's loss and its gradient, block by block as clients compute them."""
    z = np.asarray(logits)
    y, loss, gradient = checked_labels(labels, z), 0.0, np.zeros(len(theta))
    for part, block in blocks(z):
        one, first = loss_and_gradient(*ranked(block, y[part]), theta)
        loss, gradient = loss + one, gradient + first
    return LossSums(rows=len(z), loss=loss, gradient=gradient, hessian=None)
