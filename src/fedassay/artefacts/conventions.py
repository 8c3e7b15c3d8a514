"""What scikit-learn expects of a classifier, for ours; scikit-learn is not needed."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Conventions(ABC):
    """Parameters are those of the constructor, which keeps them as they are under their own names."""

    _estimator_type: ClassVar[str] = "classifier"

    @abstractmethod
    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class of each row."""

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """The accuracy of `predict`."""
        return float(np.mean(self.predict(X) == np.asarray(y)))

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002
        """The parameters of the constructor; if `deep`, also those of estimators among them, as ``name__parameter``."""
        own = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        nested = {
            f"{name}__{inner}": value
            for name, one in own.items()
            if deep and hasattr(one, "get_params") and not isinstance(one, type)
            for inner, value in one.get_params().items()
        }
        return {**own, **nested}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters of the constructor, or of estimators among them."""
        known = self.get_params(deep=False)
        # An estimator before its own parameters, wherever it stands.
        for name in sorted(parameters, key=lambda name: "__" in name):
            own, _, inner = name.partition("__")
            if own not in known:
                raise ValueError(f"parameter: got {name!r}, expected one of {', '.join(known)}.")
            if inner:
                getattr(self, own).set_params(**{inner: parameters[name]})
            else:
                setattr(self, own, parameters[name])
        return self

    def __repr__(self) -> str:
        default = {name: p.default for name, p in inspect.signature(type(self)).parameters.items()}
        own = self.get_params(deep=False).items()
        changed = (
            f"{name}={value!r}"
            for name, value in own
            if value is not default[name] and value != default[name]
        )
        return f"{type(self).__name__}({', '.join(changed)})"


def classifier_tags(*, multi_class: bool, one_d_array: bool) -> Any:
    """What scikit-learn asks a classifier about itself."""
    from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags  # only scikit-learn asks

    return Tags(
        estimator_type="classifier",
        target_tags=TargetTags(required=True),
        classifier_tags=ClassifierTags(multi_class=multi_class),
        input_tags=InputTags(one_d_array=one_d_array),
    )
