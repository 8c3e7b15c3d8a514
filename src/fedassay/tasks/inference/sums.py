"""Sums over rounds: all that an estimate and its spread need, and differences of such sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.protocol.arrays import Floats, Ints

FLAT = 0.1
"""Least curvature, as a part of the mean over directions; smaller curvature is taken to be this."""

LONGEST = 2.0
"""Largest length of a Newton step, on the common scale."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sums:
    """Sums over `rounds` rounds: of where they began, of their answers there, and of the differences of neighbours.

    `starts` is the sum of the points where they began, `gradients` of g there, `hessians` of H, `products` of H times
    the start; `changes` the sum of d dᵀ over `compared` pairs of neighbours (`Path`). Leading axes are allowed, and
    counts have them too.
    """

    rounds: Ints
    compared: Ints
    starts: Floats
    gradients: Floats
    hessians: Floats
    products: Floats
    changes: Floats

    @classmethod
    def none(cls, theta: Floats) -> Sums:
        """Return the sums before the first round."""
        zero, square = np.zeros_like(theta), np.zeros((*theta.shape, theta.shape[-1]))
        count = np.zeros(theta.shape[:-1], dtype=np.int64)
        return cls(
            rounds=count,
            compared=count,
            starts=zero,
            gradients=zero,
            hessians=square,
            products=zero,
            changes=square,
        )

    def and_round(self, start: Floats, gradient: Floats, hessian: Floats, change: Floats | None) -> Sums:
        """Add a round; `change` is its difference to the round before, if they were compared."""
        return Sums(
            rounds=self.rounds + 1,
            compared=self.compared + (change is not None),
            starts=self.starts + start,
            gradients=self.gradients + gradient,
            hessians=self.hessians + hessian,
            products=self.products + times(hessian, start),
            changes=self.changes if change is None else self.changes + outer(change),
        )

    def since(self, before: Sums) -> Sums:
        """Return the sums over the rounds that came after those of `before`."""
        both = {
            field.name: (getattr(self, field.name), getattr(before, field.name)) for field in fields(self)
        }
        return Sums(**{name: np.asarray(here - there) for name, (here, there) in both.items()})

    def or_where(self, other: Sums, chosen: NDArray[np.bool_]) -> Sums:
        """Return the sums of `other` where they are chosen, and these elsewhere."""
        values = {}
        for field in fields(self):
            here, there = getattr(self, field.name), getattr(other, field.name)
            values[field.name] = np.where(_with_axes(chosen, here.ndim), there, here)
        return Sums(**values)

    def mean(self, total: Floats) -> Floats:
        """Divide one of these sums by the number of rounds."""
        return np.asarray(total / _with_axes(np.maximum(1, self.rounds), total.ndim))

    @property
    def hessian(self) -> Floats:
        """Mean Hessian over the rounds."""
        return self.mean(self.hessians)

    @property
    def spread(self) -> Floats:
        """Covariance of one round, from its neighbours."""
        return np.asarray(self.changes / (2 * _with_axes(np.maximum(1, self.compared), self.changes.ndim)))

    @property
    def sound(self) -> Floats:
        """Mean Hessian, with so much curvature added that it can be inverted (`sound`)."""
        return sound(self.hessian, part=1e-9)

    def one_step(self, *, quadratic: bool) -> Floats:
        """See the top of `path`."""
        return self._step(self.hessian, part=1.0 if quadratic else 0.5)

    @property
    def so_far(self) -> Floats:
        """Fit so far, at which rounds are compared; their start as long as they carry no information."""
        return self._step(self.sound, part=1.0)

    @property
    def about(self) -> Floats:
        """Estimate, or an approximation where rounds do not determine it yet."""
        return self._step(self.sound, part=0.5)

    def _step(self, curvature: Floats, *, part: float) -> Floats:
        """Step from the mean start by the mean gradient, less a part of C."""
        begun = self.mean(self.starts)
        together = self.mean(self.products) - times(self.hessian, begun)
        return np.asarray(begun - solved(curvature, self.mean(self.gradients) - part * together))

    def to_json(self) -> dict[str, Any]:
        """Return the sums as plain values."""
        return plain(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Sums:
        """Restore sums from the output of `to_json`, to the last bit."""
        return cls(**arrays(cls, values, rounds=np.int64, compared=np.int64))


def plain(these: Any) -> dict[str, Any]:
    """Return the fields of a dataclass of arrays as plain values."""
    return {field.name: getattr(these, field.name).tolist() for field in fields(these)}


def arrays(kind: type[Any], values: Mapping[str, Any], **types: type[Any]) -> dict[str, Any]:
    """Restore what `plain` was given, to the last bit: floating-point numbers, or arrays of these types."""
    names = [field.name for field in fields(kind)]
    return {name: np.array(values[name], dtype=types.get(name, np.float64)) for name in names}


def newton_step(curvature: Floats, gradient: Floats, unsure: float = 0.0) -> Floats:
    """Return a Newton step, with directions of little curvature taken for less flat than they look, and not too long.

    Parameters
    ----------
    unsure : the standard deviation of the noise in an entry of the curvature.
    """
    values, vectors = np.linalg.eigh(curvature)
    flat = FLAT * np.abs(values).mean(axis=-1, keepdims=True)
    least = np.maximum(np.maximum(flat, 2 * unsure * np.sqrt(values.shape[-1])), 1e-6)
    along = (np.swapaxes(vectors, -1, -2) @ gradient[..., None])[..., 0] / np.maximum(values, least)
    step = (vectors @ along[..., None])[..., 0]
    norm = np.linalg.norm(step, axis=-1, keepdims=True)
    return np.asarray(step * np.minimum(1.0, LONGEST / np.maximum(norm, 1e-300)))


def sound(hessian: Floats, *, part: float) -> Floats:
    """Add curvature of each coefficient by itself, in its own units, so that the Hessian can be inverted."""
    curved = np.einsum("...ii->...i", hessian)
    more = np.where(curved > 0, part * curved, 1.0)
    return np.asarray(hessian + more[..., None] * np.eye(hessian.shape[-1]))


def _with_axes(counts: NDArray[Any], axes: int) -> NDArray[Any]:
    """Return counts with as many axes as the array that they divide."""
    return np.reshape(counts, (*counts.shape, *(1,) * (axes - counts.ndim)))


def outer(vector: Floats) -> Floats:
    """Return the vector times itself, transposed."""
    return np.asarray(vector[..., :, None] * vector[..., None, :])


def times(matrix: Floats, vector: Floats) -> Floats:
    """Return matrix times vector."""
    return np.asarray((matrix @ vector[..., None])[..., 0])


def solved(matrix: Floats, vector: Floats) -> Floats:
    """Return the solution x of matrix times x = vector."""
    return np.asarray(np.linalg.solve(matrix, vector[..., None])[..., 0])
