"""Rows of multiclass models for tests, and scaling calibrators written down a second time, slowly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

Columns = dict[str, np.ndarray]


def drawn(rows: int, classes: int, seed: int = 0, scale: float = 2.5) -> Columns:
    """Logits that are too extreme, with classes that are not equally frequent."""
    rng = np.random.default_rng(seed)
    z = scale * rng.normal(size=(rows, classes))
    p = softmax(0.5 * z + rng.normal(size=classes), axis=1)
    y = (p.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    return {"class": y.astype(np.int64), "logits": z}


def dirichlet(columns: Columns, clients: int, alpha: float, seed: int = 0) -> list[Columns]:
    """The rows over clients: the rows of each class are spread by shares from a Dirichlet law. Some get none."""
    rng, y = np.random.default_rng(seed), columns["class"]
    owner = np.empty(len(y), dtype=np.int64)
    for k in np.unique(y):
        owner[y == k] = rng.choice(
            clients, size=np.count_nonzero(y == k), p=rng.dirichlet(np.full(clients, alpha))
        )
    return [{name: column[owner == j] for name, column in columns.items()} for j in range(clients)]


# --- the maps, one row at a time, from their definitions ------------------------------------------------


def scaled(method: str, z: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """u of one row."""
    c = len(z)
    if method == "temperature":
        return theta[0] * z
    if method == "vector":
        return theta[:c] * z + theta[c:]
    if method == "matrix":
        return theta[: c * c].reshape(c, c) @ z + theta[c * c :]
    S = np.eye(c)[np.argsort(-z, kind="stable")]
    y = S @ z
    w = np.append(np.abs(y[:-1] - y[1:]), 0.0) * theta
    return S.T @ np.triu(np.ones((c, c))) @ w


def design(method: str, logits: np.ndarray, size: int) -> np.ndarray:
    """J, rows x classes x parameters, and what u is at theta = 0: u is linear in theta."""
    return np.stack([[scaled(method, z, e) for e in np.eye(size)] for z in logits]).transpose(0, 2, 1)


Objective = Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]


def objective(J: np.ndarray, labels: np.ndarray, identity: np.ndarray, ridge: float) -> Objective:
    """Mean penalised loss, gradient and Hessian."""

    def at(theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        u, n = J @ theta, len(J)
        p, away = softmax(u, axis=1), theta - identity
        value = -log_softmax(u, axis=1)[np.arange(n), labels].mean() + ridge / 2 * away @ away
        gradient = np.einsum("nkp,nk->p", J, p - np.eye(p.shape[1])[labels]) / n + ridge * away
        mean = np.einsum("nkp,nk->np", J, p)
        second = np.einsum("nkp,nk,nkq->pq", J, p, J, optimize=True) - mean.T @ mean
        return value, gradient, second / n + ridge * np.eye(len(theta))

    return at


def pooled_optimum(at: Objective, identity: np.ndarray, least: float | None) -> np.ndarray:
    """By SciPy."""
    if least is not None:
        found = minimize(
            lambda t: at(t)[:2],
            identity,
            jac=True,
            method="L-BFGS-B",
            bounds=[(least, None)] * len(identity),
            options={"ftol": 0.0, "gtol": 1e-10, "maxiter": 5_000, "maxfun": 20_000},
        )
        return found.x
    found = minimize(
        lambda t: at(t)[:2],
        identity,
        jac=True,
        hess=lambda t: at(t)[2],
        method="trust-exact",
        options={"gtol": 1e-11, "maxiter": 500},
    )
    return found.x
