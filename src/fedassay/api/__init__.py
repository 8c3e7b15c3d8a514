"""The Python entry points: one function per task, from data to a `Result`.

>>> import numpy as np, fedassay
>>> rng = np.random.default_rng(0)
>>> score = rng.random(3000)
>>> data = {"site": rng.integers(0, 5, 3000), "p": score, "y": rng.random(3000) < score}
>>> result = fedassay.evaluate(data, client="site", score="p", label="y")
>>> low, high = result["roc_auc"]["interval"]
>>> bool(low < 5 / 6 < high)  # the true AUC of this model
True
"""

from __future__ import annotations

from fedassay.api.classifier import calibrate, evaluate, hosmer_lemeshow
from fedassay.api.distribution import ecdf, quantiles
from fedassay.api.inference import infer
from fedassay.api.prediction_sets import conformal

__all__ = ["calibrate", "conformal", "ecdf", "evaluate", "hosmer_lemeshow", "infer", "quantiles"]
