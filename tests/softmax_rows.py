"""Rows of a multiclass model whose true metrics are known up to a large integral."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import softmax
from sklearn.metrics import accuracy_score, log_loss

from fedassay.data.tables import ArrayRows

BINS = 15
_INTEGRAL = 400_000


@dataclass(frozen=True)
class SoftmaxPopulation:
    """True logits are normal, the class is drawn from their softmax; the model's logits are `stretch` times them."""

    classes: int = 4
    spread: float = 1.5
    stretch: float = 1.0
    favour: float = 0.0
    """Added to the true logit of the first class: makes it more frequent."""

    def _true_logits(self, rows: int, rng: np.random.Generator) -> np.ndarray:
        z = self.spread * rng.normal(size=(rows, self.classes))
        z[:, 0] += self.favour
        return z

    def sample(self, rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Logits and classes."""
        z = self._true_logits(rows, rng)
        return self.stretch * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1)

    @cached_property
    def truth(self) -> dict[str, float]:
        """The population value of every metric; classes are integrated out, so that only logits are drawn."""
        z = self._true_logits(_INTEGRAL, np.random.default_rng(12345))
        q, p = softmax(z, axis=1), softmax(self.stretch * z, axis=1)
        top = p.argmax(axis=1)
        confidence, right = p[np.arange(len(p)), top], q[np.arange(len(p)), top]
        aucs = [weighted_auc(p[:, j], q[:, j]) for j in range(self.classes)]
        errors = [binned_error(p[:, j], q[:, j]) for j in range(self.classes)]
        return {
            "accuracy": float(right.mean()),
            "brier_score": float(((p**2).sum(axis=1) - 2 * (p * q).sum(axis=1) + 1).mean()),
            "log_loss": float(-(q * np.log(p)).sum(axis=1).mean()),
            "expected_calibration_error": binned_error(confidence, right),
            "classwise_calibration_error": float(np.mean(errors)),
            "roc_auc": float(np.mean(aucs)),
            "roc_auc of 0": aucs[0],
            "calibration_error of 0": errors[0],
            "prevalence of 0": float(q[:, 0].mean()),
        }


def binned_error(p: np.ndarray, y: np.ndarray, bins: int = BINS) -> float:
    """Σ_m |Σ (p - y)|/n over bins of equal width, straight from the definition."""
    place = np.minimum((p * bins).astype(int), bins - 1)
    return float(np.abs(np.bincount(place, weights=p - y, minlength=bins)).sum() / len(p))


def weighted_auc(score: np.ndarray, positive: np.ndarray) -> float:
    """The AUC of rows that are positive with these probabilities."""
    order = np.argsort(score)
    w, v = positive[order], 1 - positive[order]
    return float((w * (np.cumsum(v) - v / 2)).sum() / (w.sum() * v.sum()))


def rows_of(logits: np.ndarray, labels: np.ndarray) -> ArrayRows:
    return ArrayRows(columns={"logits": logits, "class": np.asarray(labels, dtype=np.int64)})


def pooled_metrics(p: np.ndarray, y: np.ndarray, bins: int = 15) -> dict[str, float]:
    """What scikit-learn and the definitions say of these probabilities of all rows together."""
    truth, top = np.eye(p.shape[1])[y], p.argmax(axis=1)
    errors = [binned_error(p[:, j], truth[:, j], bins) for j in range(p.shape[1])]
    return {
        "accuracy": float(accuracy_score(y, top)),
        "log_loss": float(log_loss(y, p, labels=range(p.shape[1]))),
        "brier_score": float(((p - truth) ** 2).sum(axis=1).mean()),
        "expected_calibration_error": binned_error(p.max(axis=1), (top == y).astype(float), bins),
        "classwise_calibration_error": float(np.mean(errors)),
    }
