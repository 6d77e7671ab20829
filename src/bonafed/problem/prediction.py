"""The prediction function of a model, and its values on the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack

from bonafed.arrays import Array, Block, shape_of
from bonafed.data.federation import Federation
from bonafed.names import load
from bonafed.problem.predictors.affine import Predictor

Rows = Array | csr_array


def predictor(keys: Mapping[str, Any]) -> Predictor:
    """The predictor that [problem] of a configuration, or a saved model's metadata, describes."""
    cls = load("model", keys.get("model", "linear"))
    names = [field.name for field in fields(cls) if field.name != "classes"]
    values = {name: keys[name] for name in names if keys.get(name) is not None}
    if "intercepts" in names:  # the data that these keys go with have a feature of ones
        values["intercepts"] = False
    return cls(**values)


def scores(model: Predictor, w: Array, X: Rows) -> Array:
    """The predictions of the rows X: (m,), or one number a class (m, C)."""
    m, rows = shape_of(X)[0], X[None] if isinstance(X, np.ndarray) else X
    block = Block(rows, np.zeros((1, m)), np.full((1, m), 1 / m), np.array([0]), ("",))
    return model.forward(w, block)[0]


def with_ones(X: Rows) -> Rows:
    """X and a last column of ones."""
    ones = np.ones((shape_of(X)[0], 1))
    if isinstance(X, np.ndarray):
        return np.hstack([X, ones])
    return csr_array(hstack([X, ones], format="csr"))


def federation_with_ones(fed: Federation) -> Federation:
    """The federation with a last feature of ones, which stands for the intercepts of several
    classes.
    """
    names = None if fed.feature_names is None else (*fed.feature_names, "1")
    return fed._with(X=tuple(map(with_ones, fed.X)), feature_names=names)
