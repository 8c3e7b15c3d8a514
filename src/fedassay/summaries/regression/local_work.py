"""What a client does in one round of federated averaging: some steps over rows that it has not used before.

With E steps of size η from θ, over rows (or small batches of them) 1, .., E,

    θ^0 = θ,   θ^k = θ^{k-1} - η g_k(θ^{k-1}),   gradient = (1/E) Σ_k g_k(θ^{k-1}) = (θ - θ^E)/(ηE).

Clients that do more steps do not weigh more: the *mean* gradient is what rescaled federated averaging adds up (Wang et
al. 2020; METHODS E). But a walk bends what it measures. To first order in η

    E gradient = ∇R_i - η c_i,   c_i = ((E-1)/2) H_i ∇R_i,

which moves the mean of all iterates by η̄ H^{-1} Σ p_i c_i, a bias that hardly fades when steps shrink slowly. Either
c_i is estimated (``corrected``, without bias, from products of Hessians and gradients of *different* rows), or all
gradients are taken at θ (``fixed``), or nothing is done about it (``published``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedassay.protocol.arrays import Floats
from fedassay.summaries.regression.losses import Design, SmoothLoss

CORRECTED, FIXED, PUBLISHED = "corrected", "fixed", "published"
LOCAL = (CORRECTED, FIXED, PUBLISHED)


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalSteps:
    """Rows, dealt to steps: `rows` are (.., E, B, features), `weight` (.., E, B) is one for a row and zero for a gap.

    Clients that do fewer steps than others, or have fewer rows in a step, have gaps. A step without rows is none.
    """

    rows: Design
    weight: Floats

    @classmethod
    def deal(cls, rows: Design, steps: int) -> LocalSteps:
        """Deal the rows of one client in turn to at most so many steps, as evenly as can be.

        Examples
        --------
        >>> LocalSteps.deal(Design.of([[1.0], [2.0], [3.0]], [0, 0, 0]), 2).weight
        array([[1., 1.],
               [1., 0.]])
        """
        steps = max(1, min(steps, rows.rows))
        batch = max(1, -(-rows.rows // steps))
        place = np.arange(steps)[:, None] + steps * np.arange(batch)
        there = place < rows.rows
        dealt = rows.take(np.where(there, place, 0)) if rows.rows else _gap(rows, steps, batch)
        return cls(rows=dealt, weight=there.astype(np.float64))

    @property
    def share(self) -> Floats:
        """The rows of a step, sharing one."""
        return np.asarray(self.weight / np.maximum(self.weight.sum(axis=-1, keepdims=True), 1.0))

    @property
    def count(self) -> Floats:
        """E: how many steps there are."""
        return np.asarray((self.weight.sum(axis=-1) > 0).sum(axis=-1), dtype=np.float64)

    def step(self, place: int) -> Design:
        """The rows of one step."""
        return Design(
            x=self.rows.x[..., place, :, :],
            y=self.rows.y[..., place, :],
            offset=self.rows.offset[..., place, :],
        )


def _gap(rows: Design, steps: int, batch: int) -> Design:
    return Design(
        x=np.zeros((steps, batch, rows.features)),
        y=np.zeros((steps, batch)),
        offset=np.zeros((steps, batch)),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """What came of it: the mean gradient, the mean Hessian at θ, c_i (zero unless it is ``corrected``), and E."""

    gradient: Floats
    hessian: Floats
    drift: Floats
    steps: Floats


def local_work(
    loss: SmoothLoss, theta: Floats, dealt: LocalSteps, *, step: float, local: str = CORRECTED
) -> Work:
    """The steps of one client, or of many at once (leading axes); zeros where there are no rows.

    Examples
    --------
    >>> from fedassay.summaries.regression.losses import SquaredError
    >>> rows = LocalSteps.deal(Design.of([[1.0], [1.0]], [1.0, 1.0]), 2)
    >>> local_work(SquaredError(), np.zeros(1), rows, step=0.5, local="published").gradient
    array([-0.75])
    >>> work = local_work(SquaredError(), np.zeros(1), rows, step=0.5)
    >>> work.gradient + 0.5 * work.drift  # the gradient at theta: exact for squared errors and two steps
    array([-1.])
    """
    share, count = dealt.share, dealt.count
    gradients = _fixed(loss, theta, dealt) if local == FIXED else _walked(loss, theta, dealt, step=step)
    total = gradients.sum(axis=-2)
    each = np.maximum(count, 1.0)[..., None]
    # All rows at once: steps are equally long, and rows share their step.
    flat = Design(
        x=dealt.rows.x.reshape(*dealt.rows.x.shape[:-3], -1, dealt.rows.features),
        y=dealt.rows.y.reshape(*dealt.rows.y.shape[:-2], -1),
        offset=dealt.rows.offset.reshape(*dealt.rows.offset.shape[:-2], -1),
    )
    hessian = loss.hessian_sum(theta, flat, share.reshape(*share.shape[:-2], -1)) / each[..., None]
    drift = np.zeros_like(total)
    if local == CORRECTED:
        there = _fixed(loss, theta, dealt)
        others = there.sum(axis=-2, keepdims=True) - there
        products = loss.hessian_products(theta[..., None, :], dealt.rows, share, others)
        drift = products.sum(axis=-2) / (2 * each)
    return Work(gradient=total / each, hessian=hessian, drift=drift, steps=count)


def _fixed(loss: SmoothLoss, theta: Floats, dealt: LocalSteps) -> Floats:
    return loss.gradient_sum(theta[..., None, :], dealt.rows, dealt.share)


def _walked(loss: SmoothLoss, theta: Floats, dealt: LocalSteps, *, step: float) -> Floats:
    point, share = theta, dealt.share
    gradients = []
    for place in range(share.shape[-2]):
        gradient = loss.gradient_sum(point, dealt.step(place), share[..., place, :])
        point = point - step * gradient
        gradients.append(gradient)
    return np.stack(gradients, axis=-2)
