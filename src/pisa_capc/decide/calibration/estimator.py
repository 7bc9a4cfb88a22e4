"""A classifier of scikit-learn with a calibration behind it, as one estimator: for pipelines, grids and scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.utils.validation import check_is_fitted

from pisa_capc.core.errors import ConfigError
from pisa_capc.decide.calibration.base import Calibrator
from pisa_capc.decide.calibration.inputs import Captures
from pisa_capc.decide.calibration.policy import usual
from pisa_capc.decide.calibration.result import Calibration
from pisa_capc.model.inference.statistics import SourceStatistics

FOLDS = 5
SCORES = ("decision_function", "predict_log_proba", "predict_proba")  # the first that a classifier has


class CalibratedClassifier(ClassifierMixin, BaseEstimator):
    """Decisions of a classifier on embeddings X (N, D), calibrated with the frames they are made on.

    classifier: logistic regression by default; one that is trained already goes into `sklearn.frozen.FrozenEstimator`.
    calibration: any `Calibrator`; the usual one by default. `fit` takes the statistics of the source from scores of
    frames that were left out of a fit. A prediction depends on all frames that are predicted together: give `capture`
    (N,) where they are of several recordings.

    >>> model = CalibratedClassifier(calibration=UCAPC())                               # doctest: +SKIP
    >>> GridSearchCV(model, {"calibration__prior": ["balanced", "none"]}).fit(X, y)     # doctest: +SKIP
    """

    def __init__(self, classifier: Any = None, calibration: Calibrator | None = None) -> None:
        self.classifier = classifier
        self.calibration = calibration

    def fit(self, X: ArrayLike, y: ArrayLike, capture: Captures | None = None) -> Self:
        """Train the classifier on X (N, D) with labels y (N,), recorded in `capture` (N,)."""
        features = np.asarray(X)
        self.classes_, label = np.unique(np.asarray(y), return_inverse=True)
        self.n_features_in_ = features.shape[1]
        chosen = LogisticRegression(max_iter=1000) if self.classifier is None else self.classifier
        self.classifier_ = clone(chosen).fit(features, y)
        folds = min(FOLDS, *Counter(label.tolist()).values())
        logits = self._logits(features)
        if folds > 1 and len(self.classes_) > 1:
            logits = _columns(cross_val_predict(chosen, features, y, cv=folds, method=self._method))
        self.source_ = SourceStatistics.from_source(features, logits, label, capture)  # type: ignore[arg-type]
        return self

    def calibrate(self, X: ArrayLike, capture: Captures | None = None) -> Calibration:
        """All that the calibration finds."""
        check_is_fitted(self)
        features = np.asarray(X)
        chosen = usual(self.source_).calibration if self.calibration is None else self.calibration
        return chosen.calibrate(features, self._logits(features), capture, self.source_)

    def predict(self, X: ArrayLike, capture: Captures | None = None) -> NDArray[Any]:
        """(N,) the calibrated class of each frame."""
        decided = np.asarray(self.calibrate(X, capture).prediction)
        return np.asarray(self.classes_[decided])

    def predict_proba(self, X: ArrayLike, capture: Captures | None = None) -> NDArray[np.float64]:
        """(N, C) calibrated probabilities, in the order of `classes_`."""
        return np.asarray(self.calibrate(X, capture).probability, dtype=np.float64)

    def set_params(self, **params: Any) -> Self:
        """As scikit-learn has it; a setting of the calibration makes another one of it, for they never change."""
        inner = {name: params.pop(name) for name in list(params) if name.startswith("calibration__")}
        super().set_params(**params)
        if inner:
            settings: Mapping[str, Any] = {name.partition("__")[2]: value for name, value in inner.items()}
            if self.calibration is None:
                raise ConfigError(f"{next(iter(inner))}: no calibration is named. Give one, as calibration=UCAPC().")
            self.calibration = self.calibration.set_params(**settings)
        return self

    @property
    def _method(self) -> str:
        return next(name for name in SCORES if hasattr(self.classifier_, name))

    def _logits(self, features: NDArray[Any]) -> NDArray[np.float64]:
        return _columns(getattr(self.classifier_, self._method)(features), self._method == "predict_proba")


def _columns(scores: NDArray[Any], probabilities: bool = False) -> NDArray[np.float64]:
    """(N, C) scores before a softmax; of two classes scikit-learn gives one column, the log odds."""
    found = np.asarray(scores, dtype=np.float64)
    if found.ndim == 1:
        return np.column_stack([-found / 2, found / 2])
    if probabilities:
        return np.log(np.maximum(found, np.finfo(np.float64).tiny))
    return np.maximum(found, -np.finfo(np.float32).max)  # the logarithm of a probability of zero
