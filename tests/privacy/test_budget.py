"""What a privacy budget may be."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bonafed.privacy.budget import Budget


@pytest.mark.parametrize(
    "bad", [0, -1.0, -0.0, math.nan, math.inf, -math.inf, True, "1", None, 1j, [1.0]]
)
def test_an_epsilon_that_is_none_is_refused(bad):
    with pytest.raises(ValueError, match="epsilon"):
        Budget(bad, 1e-6)


@pytest.mark.parametrize(
    "bad", [0, 1, 0.0, 1.0, -1e-6, 1.5, math.nan, math.inf, True, False, "1e-6", None]
)
def test_a_delta_that_is_none_is_refused(bad):
    with pytest.raises(ValueError, match="delta"):
        Budget(1.0, bad)


@pytest.mark.parametrize("bad", ["", "add", "replace-one", None, 1, ["replace"], True])
def test_an_unknown_adjacency_is_refused(bad):
    with pytest.raises(ValueError, match="adjacency must be 'add-remove' or 'replace'"):
        Budget(1.0, 1e-6, bad)


@pytest.mark.parametrize(
    "bad", [0, -3, 1.5, math.nan, math.inf, True, "6", [6], {"a": 0}, {"a": 2.5}, {"a": "6"}]
)
def test_sizes_that_are_none_are_refused(bad):
    with pytest.raises(ValueError, match="sizes must be whole numbers"):
        Budget(1.0, 1e-6, sizes=bad)


def test_declared_sizes_stand_for_the_true_ones():
    clients, true = ("a", "b"), (5, 7)
    assert Budget(1, 1e-6).sizes_of(clients, true) == true
    assert Budget(1.0, 1e-6, sizes=np.int64(9)).sizes_of(clients, true) == (9, 9)
    assert Budget(np.float32(1), 1e-6, sizes={"b": 4, "a": 6.0, "c": 1}).sizes_of(
        clients, true
    ) == (6, 4)
    with pytest.raises(ValueError, match="no entry for b"):
        Budget(1.0, 1e-6, sizes={"a": 6}).sizes_of(clients, true)
    assert (Budget(1.0, 1e-6).spread, Budget(1.0, 1e-6, "replace").spread) == (1.0, 2.0)
