"""A client's private choice as the page on private conformal prediction defines it, for tests that simulate it."""

from __future__ import annotations

import numpy as np


def losses(counts: np.ndarray, target: int, below: int, above: int) -> np.ndarray:
    """Of each candidate, from how many scores are up to each (last axis), the last candidate being +∞."""
    before = np.concatenate([np.zeros_like(counts[..., :1]), counts[..., :-1]], axis=-1)
    short, beyond = target - counts, before - target + 1
    return np.where(short > 0, below * short, np.where(beyond > 0, above * beyond, 0))


def published_losses(counts: np.ndarray, q: float) -> np.ndarray:
    """Algorithm 2's, times 1-q."""
    before = np.concatenate([np.zeros_like(counts[..., :1]), counts[..., :-1]], axis=-1)
    return np.maximum(before * (1 - q) / q, counts[..., -1:] - counts)


def chances(loss: np.ndarray, eta: float) -> np.ndarray:
    """The probability of each candidate."""
    weights = np.exp(-eta * (loss - loss.min(axis=-1, keepdims=True)))
    return weights / weights.sum(axis=-1, keepdims=True)


def chosen(loss: np.ndarray, eta: float, rng: np.random.Generator) -> np.ndarray:
    """One choice for each row of losses."""
    ends = np.cumsum(chances(loss, eta), axis=-1)
    return (rng.random(loss.shape[:-1])[..., None] > ends[..., :-1]).sum(axis=-1)
