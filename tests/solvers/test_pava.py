"""Rank-based proximal steps against conic programs, every order, every split, partitions and finite
differences.
"""

from unittest.mock import patch

import cvxpy as cp
import numpy as np
import pytest
import rank_oracles as slow
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bonafed.solvers.rank import proxes
from bonafed.solvers.rank.proxes import (
    EXPONENTIAL,
    LINEAR,
    LOGISTIC,
    PLUS,
    RAMP,
    Kernel,
    ascending,
    prospect_prox,
    prox_gradients,
    rank_conjugate,
    rank_prox,
)

ALL = slow.KERNELS + slow.EVEN
each_kernel = pytest.mark.parametrize("kernel", ALL, ids=slow.name)


def frozen(*arrays):
    """Read-only: a write to an input raises."""
    for array in arrays:
        array.setflags(write=False)
    return arrays


def weights_of(rng, n, kind):
    """Weights in ascending order: rising, of any shape with zeros, or those of a mean."""
    if kind == "mean":
        return np.full(n, 1 / n)
    sigma = rng.random(n) * (rng.random(n) < rng.choice([0.3, 0.7, 1.0]))
    return np.sort(sigma) if kind == "rising" else sigma


def superquantile(n, tail):
    """Ranks beyond the (1 - tail) quantile alike, the entry on the quantile by its share."""
    return np.clip(tail * n - np.arange(n)[::-1], 0.0, 1.0) / (tail * n)


def conic(kernel, z):
    """The loss of every entry as an expression of CVXPY."""
    short = cp.pos((cp.abs(z) if kernel.even else z) - kernel.knot)
    if kernel.kind == LINEAR:
        return z
    if kernel.kind == RAMP:
        return cp.square(short) / 2 if np.isinf(kernel.width) else cp.huber(short, kernel.width) / 2
    return {PLUS: lambda: short, LOGISTIC: lambda: cp.logistic(z), EXPONENTIAL: lambda: cp.exp(z)}[
        kernel.kind
    ]()


def objective(kernel, m, sigma, rho, z):
    return slow.objective(kernel, m, sigma, rho, z)


# ---- the minimiser -------------------------------------------------------------------------------


@each_kernel
def test_against_a_conic_program_of_the_sorted_chain(kernel):
    rng = np.random.default_rng(11)
    for n, rho, kind in ((2, 1.0, "any"), (15, 0.05, "any"), (40, 0.5, "rising")):
        m, sigma = 3 * rng.standard_normal(n), weights_of(rng, n, kind)
        size = np.sort(np.abs(m) if kernel.even else m)
        z = cp.Variable(n)
        cost = sigma @ conic(kernel._replace(even=False), z) + rho / 2 * cp.sum_squares(z - size)
        cp.Problem(cp.Minimize(cost), [cp.diff(z) >= 0]).solve(solver=cp.CLARABEL)
        found = rank_prox(m, sigma, rho, kernel).z
        ours = np.sort(np.abs(found) if kernel.even else found)
        assert_allclose(ours, z.value, atol=3e-5 * (1 + np.abs(size).max()))
        least = (slow.loss(kernel, ours) * sigma).sum() + rho / 2 * ((ours - size) ** 2).sum()
        assert least <= cost.value + 1e-7 * (1 + abs(cost.value))


@each_kernel
def test_against_maxima_of_minima_of_blocks(kernel):
    rng = np.random.default_rng(13)
    for turn in range(40):
        n, rho = int(rng.integers(1, 30)), 10 ** rng.uniform(-3, 2)
        m = np.round(rng.choice([0.1, 3, 100]) * rng.standard_normal(n), int(rng.integers(0, 7)))
        sigma = weights_of(rng, n, ("mean", "rising", "any")[turn % 3])
        z = rank_prox(m, sigma, rho, kernel).z
        size = np.sort(np.abs(m) if kernel.even else m)
        wanted = slow.chain(kernel, size, sigma, rho)
        assert_allclose(
            np.sort(np.abs(z) if kernel.even else z),
            wanted,
            rtol=0,
            atol=1e-12 * (1 + np.abs(wanted).max()),
        )


@each_kernel
@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 5),
    rho=st.floats(1e-2, 10),
    places=st.integers(0, 3),
)
def test_the_order_of_m_is_the_best_of_all_orders(kernel, seed, n, rho, places):
    rng = np.random.default_rng(seed)
    m, sigma = np.round(2 * rng.standard_normal(n), places), weights_of(rng, n, "any")
    z = rank_prox(*frozen(m, sigma), rho, kernel).z
    least = slow.least_of_all_orders(kernel, m, sigma, rho)
    assert_allclose(objective(kernel, m, sigma, rho, z), least, rtol=1e-11, atol=1e-12)


def test_all_orders_of_six():
    rng = np.random.default_rng(17)
    for kernel in (Kernel(PLUS, -1.0), Kernel(LOGISTIC), Kernel(PLUS, 0.3, even=True)):
        m, sigma = rng.standard_normal(6), weights_of(rng, 6, "any")
        z = rank_prox(m, sigma, 0.4, kernel).z
        assert_allclose(
            objective(kernel, m, sigma, 0.4, z),
            slow.least_of_all_orders(kernel, m, sigma, 0.4),
            rtol=1e-12,
        )


@each_kernel
def test_the_answer_comes_back_in_order_with_its_blocks(kernel):
    rng = np.random.default_rng(19)
    m, sigma = rng.standard_normal(200), superquantile(200, 0.21)
    z, order, start, stop = rank_prox(m, sigma, 0.1, kernel)
    size = np.abs(m) if kernel.even else m
    ranked = (np.abs(z) if kernel.even else z)[order]
    assert_array_equal(order, np.argsort(size, kind="stable"))
    assert (np.diff(ranked) >= 0).all()
    assert len(start)
    assert (stop - start >= 2).all()
    assert (start[1:] >= stop[:-1]).all()
    for a, b in zip(start, stop, strict=True):
        assert (ranked[a:b] == ranked[a]).all()
    if kernel.even:
        assert (np.sign(z) * np.sign(m) >= 0).all()


@each_kernel
@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_huge_and_tiny_scales(kernel, scale):
    rng = np.random.default_rng(23)
    m, sigma = scale * rng.standard_normal(12), weights_of(rng, 12, "rising")
    for rho in (1e-9, 1.0, 1e9):
        z = rank_prox(m, sigma, rho, kernel).z
        wanted = slow.chain(kernel, np.sort(np.abs(m) if kernel.even else m), sigma, rho)
        ours = np.sort(np.abs(z) if kernel.even else z)
        assert np.isfinite(z).all()
        assert_allclose(
            ours, wanted, rtol=1e-12, atol=1e-12 * max(np.abs(wanted).max(), np.abs(m).max())
        )


@each_kernel
def test_one_entry_equal_entries_and_no_weight(kernel):
    single = rank_prox(np.array([0.7]), np.array([1.0]), 0.5, kernel)
    assert_allclose(
        single.z, slow.prox(kernel, 2.0, np.array([0.7])) if single.z[0] else 0.0, atol=1e-14
    )
    # one block of all: the mean weight
    equal = rank_prox(np.full(9, 0.7), superquantile(9, 0.4), 0.5, kernel)
    assert_allclose(equal.z, slow.prox(kernel, 2 / 9, np.full(9, 0.7)), atol=1e-14)
    m = np.array([2.0, -1.0, 0.3])
    assert_array_equal(rank_prox(m, np.zeros(3), 0.5, kernel).z, m)


@each_kernel
def test_shuffled_input_moves_the_answer_and_nothing_else(kernel):
    rng = np.random.default_rng(29)
    m = np.round(rng.standard_normal(60), 1)  # many ties
    shuffle = rng.permutation(60)
    for sigma in (np.full(60, 1 / 60), superquantile(60, 0.37)):
        z, moved = rank_prox(m, sigma, 0.01, kernel).z, rank_prox(m[shuffle], sigma, 0.01, kernel).z
        assert_array_equal(moved, z[shuffle])
        for value in np.unique(m):  # convex: equal entries stay equal
            assert len(set(z[m == value])) == 1
    # not convex: the answer depends on which of two equals goes first, by position
    falling = np.linspace(2, 0, 60)
    z = rank_prox(m, falling, 0.01, kernel).z
    assert_array_equal(z, rank_prox(m.copy(), falling, 0.01, kernel).z)
    for value in np.unique(np.abs(m) if kernel.even else m):
        tied = z[(np.abs(m) if kernel.even else m) == value]
        assert (np.diff(np.abs(tied) if kernel.even else tied) >= 0).all()


def test_signs_and_zeros_of_residuals():
    m = np.array([-3.0, 3.0, 0.0, -0.0, -0.2, 0.2])
    z = rank_prox(m, np.full(6, 1.0), 1.0, Kernel(PLUS, 0.0, even=True)).z
    assert_array_equal(z, [-2, 2, 0, 0, 0, 0])  # |.|: soft thresholding
    z = rank_prox(m, superquantile(6, 0.5), 1.0, Kernel(RAMP, 0.0, np.inf, even=True)).z
    assert_allclose(np.abs(z), [9 / 4, 9 / 4, 0, 0, 0.2, 0.2][:2] + [0, 0] + [np.abs(z[4])] * 2)
    assert_array_equal(np.signbit(z), np.signbit(m))


def test_strided_and_read_only_input():
    rng = np.random.default_rng(31)
    wide = rng.standard_normal((50, 3))
    (sigma,) = frozen(superquantile(50, 0.3))
    for kernel in ALL:
        (m,) = frozen(wide[:, 1])
        assert_array_equal(
            rank_prox(m, sigma, 0.01, kernel).z, rank_prox(m.copy(), sigma, 0.01, kernel).z
        )
        prospect_prox(m, sigma, sigma, 0.2, 0.01, kernel)
        rank_conjugate(m, sigma, kernel)


@each_kernel
def test_blocks_pool_only_where_the_mean_weight_rises(kernel):
    """The paper's Proposition 3: a block's left part weighs less on average than its right part,
    wherever it is cut.
    """
    rng = np.random.default_rng(37)
    for _ in range(20):
        n = int(rng.integers(2, 60))
        m, sigma = rng.standard_normal(n), weights_of(rng, n, "any")
        _, _, start, stop = rank_prox(m, sigma, 10 ** rng.uniform(-3, 0), kernel)
        for a, b in zip(start, stop, strict=True):
            for cut in range(a + 1, b):
                assert sigma[a:cut].mean() <= sigma[cut:b].mean() + 1e-12
        falling = -np.sort(-sigma)
        # nothing rises: every entry alone
        assert len(rank_prox(m, falling, 0.01, kernel).start) == 0


@pytest.mark.parametrize("kernel", slow.KERNELS, ids=slow.name)
def test_the_threshold_step_of_superquantiles_and_ranked_ranges(kernel):
    rng = np.random.default_rng(41)
    pooled = 0
    for turn in range(60):
        n, rho = int(rng.integers(2, 80)), 10 ** rng.uniform(-3, 1)
        m = rng.choice([0.3, 3, 30]) * rng.standard_normal(n)
        first = int(rng.integers(0, n))
        last = n if turn % 2 else int(rng.integers(first + 1, n + 1))
        sigma = np.zeros(n)
        sigma[first:last] = 1 / (last - first)
        found = rank_prox(m, sigma, rho, kernel)
        assert len(found.start) <= 1
        pooled += len(found.start)
        wanted = slow.threshold_step(kernel, m, first, last, 1 / (last - first), rho)
        assert_allclose(found.z, wanted, rtol=0, atol=1e-11 * (1 + np.abs(wanted).max()))
    assert pooled > 10


# ---- the order -----------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                [0.0, -0.0, 5e-324, -5e-324, 1e-310, 1.0, -1.0, np.inf, -np.inf, 1.7e308]
            ),
            st.floats(allow_nan=False),
            st.integers(-3, 3).map(lambda k: 1.0 + k * 2.0**-52),
        ),
        max_size=40,
    )
)
def test_the_order_is_a_stable_argsort(values):
    m = np.array(values, dtype=float)
    with patch.object(proxes, "FEW", 0):  # else few numbers are sorted by NumPy
        assert_array_equal(ascending(m), np.argsort(m, kind="stable"))


@pytest.mark.parametrize("n", [1, 2, 3, 255, 256, 257, 5000])
def test_the_order_of_numbers_that_differ_in_the_last_bits_only(n):
    rng = np.random.default_rng(n)
    for m in (
        1.0 + rng.permutation(n) * 2.0**-52,  # so many exchanges that it sorts again
        -1.0 - rng.integers(0, 3, n) * 2.0**-53,
        np.where(rng.random(n) < 0.5, 0.0, -0.0),
        np.concatenate(
            [1.0 + rng.integers(0, 4, n // 2) * 2.0**-52, rng.standard_normal(n - n // 2)]
        ),
        rng.integers(-1, 2, n) * 5e-324,
        np.zeros(n),
    ):
        with patch.object(proxes, "FEW", 0):
            assert_array_equal(ascending(m), np.argsort(m, kind="stable"))


# ---- weights that change at a reference ----------------------------------------------------------


@each_kernel
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 9),
    rho=st.floats(1e-2, 10),
    at=st.sampled_from([-1.5, 0.0, 0.25, 40.0, -40.0]),
    places=st.integers(0, 3),
)
def test_prospect_step_is_the_best_of_all_splits(kernel, seed, n, rho, at, places):
    at = abs(at) if kernel.even else at
    rng = np.random.default_rng(seed)
    m, below, above = np.round(2 * rng.standard_normal(n), places), rng.random(n), rng.random(n)
    # some at the reference itself
    m[: n // 3] = at if rng.random() < 0.5 and abs(at) < 40 else m[: n // 3]
    z = prospect_prox(*frozen(m, below, above), at, rho, kernel)
    value = slow.prospect_value(kernel, z, below, above, at) + rho / 2 * ((z - m) ** 2).sum()
    least = slow.prospect_least(kernel, m, below, above, at, rho)
    assert_allclose(value, least, rtol=1e-11, atol=1e-11)
    if kernel.even:
        assert (np.sign(z) * np.sign(m) >= 0).all()


@pytest.mark.parametrize("kernel", slow.KERNELS, ids=slow.name)
def test_costs_of_all_beginnings_and_ends(kernel):
    """What the splits are chosen by, run as plain Python."""
    rng = np.random.default_rng(61)
    for at in (-40.0, -0.5, 0.7, 40.0):
        m, sigma, rho = np.sort(rng.standard_normal(12)), np.sort(rng.random(12)) ** 2, 0.3
        values = slow.blocks(kernel, m, sigma, rho)
        left = proxes._costs.py_func(m, sigma, rho, *kernel.curve, at, 1.0)
        right = proxes._costs.py_func(m, sigma, rho, *kernel.curve, at, -1.0)[::-1]
        for j in range(1, 12):
            low, high = (slow.extremal(v) for v in (values[:j, :j], values[j:, j:]))
            for cost, z, part in (
                (left[j], np.minimum(low, at), slice(j)),
                (right[j], np.maximum(high, at), slice(j, 12)),
            ):
                wanted = (sigma[part] * slow.loss(kernel, z)).sum() + rho / 2 * (
                    (z - m[part]) ** 2
                ).sum()
                assert_allclose(cost, wanted, rtol=1e-11, atol=1e-12)
        assert left[0] == right[12] == 0


def test_equal_weights_on_both_sides_are_one_sequence():
    rng = np.random.default_rng(43)
    for kernel in ALL:
        m, sigma = rng.standard_normal(50), weights_of(rng, 50, "rising")
        one, two = (
            rank_prox(m, sigma, 0.01, kernel).z,
            prospect_prox(m, sigma, sigma, 0.3, 0.01, kernel),
        )
        assert_allclose(two, one, atol=1e-12 * (1 + np.abs(one).max()))


# ---- derivatives and conjugates ------------------------------------------------------------------


@each_kernel
def test_gradients_are_those_of_finite_differences(kernel):
    rng, h = np.random.default_rng(47), 1e-6
    for n, rho, kind in ((12, 0.05, "rising"), (12, 0.5, "any"), (9, 0.1, "mean")):
        m, sigma, d = 2 * rng.standard_normal(n), weights_of(rng, n, kind), rng.standard_normal(n)
        found = rank_prox(m, sigma, rho, kernel)
        p, moved = prox_gradients(m, sigma, rho, kernel, found), np.empty(n)
        ranked = ((np.sign(m) if kernel.even else 1.0) * d)[found.order]
        by_rank = p * ranked
        for a, b in zip(found.start, found.stop, strict=True):
            assert (p[a:b] == p[a]).all()
            by_rank[a:b] = p[a] * ranked[a:b].mean()
        moved[found.order] = by_rank
        moved *= np.sign(m) if kernel.even else 1.0
        ahead, behind = (rank_prox(m + t * d, sigma, rho, kernel).z for t in (h, -h))
        assert_allclose(moved, (ahead - behind) / (2 * h), rtol=1e-5, atol=1e-7)


CONVEX = [k for k in ALL if k.kind != LINEAR]


@pytest.mark.parametrize("kernel", CONVEX, ids=slow.name)
def test_multipliers_of_the_prox_touch_the_conjugate(kernel):
    """alpha = rho (m - z) is a subgradient of Omega at z: Fenchel-Young holds with equality, and
    without scaling.
    """
    rng = np.random.default_rng(53)
    for turn in range(30):
        n, rho = int(rng.integers(1, 60)), 10 ** rng.uniform(-3, 1)
        m = np.round(2 * rng.standard_normal(n), turn % 4)
        sigma = superquantile(n, rng.uniform(0.05, 1)) if turn % 2 else weights_of(rng, n, "rising")
        z = rank_prox(m, sigma, rho, kernel).z
        alpha = rho * (m - z)
        theta, value = rank_conjugate(alpha, sigma, kernel)
        omega = (np.sort(slow.loss(kernel, z)) * sigma).sum()
        assert 1 - 1e-9 <= theta <= 1
        assert_allclose(
            value + omega, alpha @ z, rtol=0, atol=1e-9 * (1 + omega + abs(alpha) @ abs(z))
        )


@pytest.mark.parametrize("kernel", CONVEX, ids=slow.name)
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32), n=st.integers(1, 12), scale=st.sampled_from([0.01, 0.3, 1.0, 10.0])
)
def test_fenchel_young(kernel, seed, n, scale):
    rng = np.random.default_rng(seed)
    sigma = weights_of(rng, n, "rising") + (rng.random() < 0.5) * 0.1
    alpha = scale * (
        rng.standard_normal(n) if kernel.even else rng.random(n) * (rng.random(n) < 0.7)
    )
    theta, value = rank_conjugate(*frozen(alpha, sigma), kernel)
    assert 0 <= theta <= 1
    for width in (0.1, 1, 10):
        z = width * rng.standard_normal((200, n))
        omega = (np.sort(slow.loss(kernel, z), 1) * sigma).sum(1)
        assert (value + omega - theta * z @ alpha >= -1e-9 * (1 + np.abs(value) + omega)).all()


@pytest.mark.parametrize("kernel", CONVEX, ids=slow.name)
def test_conjugates_are_maxima(kernel):
    """Omega = a sum of (sigma_i - sigma_{i-1}) times the sum of the n - i + 1 largest losses, as a
    conic program.
    """
    rng = np.random.default_rng(59)
    for n in (1, 4, 7):
        sigma = np.sort(rng.random(n)) + 0.05
        alpha = 0.7 * rng.permutation(sigma) * rng.uniform(0.3, 1, n) * min(1.0, kernel.width)
        alpha *= rng.choice([-1, 1], n) if kernel.even else 1
        theta, value = rank_conjugate(alpha, sigma, kernel)
        z = cp.Variable(n)
        steps = np.diff(sigma, prepend=0)
        omega = sum(steps[i] * cp.sum_largest(conic(kernel, z), n - i) for i in range(n))
        best = cp.Problem(cp.Maximize(alpha @ z - omega)).solve(solver=cp.CLARABEL)
        assert theta == 1
        assert_allclose(value, best, rtol=1e-6, atol=1e-6)


def test_multipliers_beyond_the_domain_are_scaled_onto_it():
    sigma = np.array([0.0, 0.25, 0.75])
    for kernel, steepest in (
        (Kernel(PLUS, -1.0), 1.0),
        (Kernel(LOGISTIC), 1.0),
        (Kernel(RAMP, 0.0, 2.0), 2.0),
    ):
        theta, value = rank_conjugate(np.array([0.0, 0.5, 3.0]), sigma, kernel)  # ratios 0, 2, 4
        assert_allclose(theta, steepest / 4, rtol=1e-9)
        assert np.isfinite(value)
    theta, value = rank_conjugate(np.array([0.0, 0.5, 3.0]), sigma, Kernel(EXPONENTIAL))
    assert theta == 1
    assert_allclose(value, 0.25 * (2 * np.log(2) - 2) + 0.75 * (4 * np.log(4) - 4))
    # mass without weight
    assert rank_conjugate(np.ones(3), np.zeros(3), Kernel(PLUS, -1.0))[0] == 0
