"""Small heterogeneous data for the estimators."""

import numpy as np
import pytest


@pytest.fixture
def clinics():
    """60 + 40 + 20 rows of three clients whose features lie in different places; two features
    decide, two are noise.
    """
    rng = np.random.default_rng(7)
    groups = np.repeat(["north", "south", "east"], [60, 40, 20])
    X = rng.standard_normal((120, 4)) + np.repeat([0.0, 0.5, -0.5], [60, 40, 20])[:, None]
    margin = X[:, 0] - X[:, 1] + 0.7 * rng.standard_normal(120)
    order = rng.permutation(120)
    return X[order], np.where(margin > 0, "ill", "fine")[order], groups[order]


@pytest.fixture
def sex():
    """A column of two values for the rows of `clinics`."""
    return np.where(np.random.default_rng(3).random(120) < 0.4, "f", "m")
