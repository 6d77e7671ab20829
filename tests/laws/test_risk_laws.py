"""What every risk must satisfy, on losses with ties, equal losses and scales from 1e-9 to 1e9; more
where convex.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import isotonic_regression, linprog

from bonafed.problem.risks.ranks import ProspectTheory
from bonafed.problem.risks.risk import SupportsProject, SupportsProx, resolve_prior
from bonafed.problem.risks.weight_sets import LpBall, Mean, Simplex, Sum
from examples import NONCONVEX_RISKS, PRIOR, RISKS

N = len(PRIOR)
LAW = settings(deadline=None, max_examples=8)
ROUNDING = 1e-13  # relative to the largest loss: N eps with room for the roots' own rounding

small = st.integers(-3, 3).map(float) | st.floats(-3, 3, allow_subnormal=False)
scale = st.sampled_from([1e-9, 1.0, 1e9])
vectors = st.tuples(st.lists(small, min_size=N, max_size=N), scale).map(
    lambda t: np.array(t[0]) * t[1]
)
TIES = np.array([1.0, 1.0, 0.0, 1.0, 0.0, 0.0])
NEAR = 1.0 + 1e-12 * np.arange(N)
TINY = np.array([0.0, 0.0, 0.0, 0.0, -1.0, 5.5e-158])  # a gap whose square underflows
# its nearest weights leave two clients' gradients apart by rounding, at the same transport cost
BESIDE = np.array([3.0, 2.0, -0.5686002946700001, 1.899186300652969, 3.0, 3.0])
each_risk = pytest.mark.parametrize(
    "risk", RISKS, ids=[f"{type(r).__name__}{i}" for i, r in enumerate(RISKS)]
)
each_nonconvex = pytest.mark.parametrize(
    "risk", NONCONVEX_RISKS, ids=[f"{type(r).__name__}{i}" for i, r in enumerate(NONCONVEX_RISKS)]
)
every_risk = pytest.mark.parametrize(
    "risk",
    [*RISKS, *NONCONVEX_RISKS],
    ids=[f"{type(r).__name__}{i}" for i, r in enumerate([*RISKS, *NONCONVEX_RISKS])],
)


@each_risk
@LAW
@given(z=vectors)
@example(z=np.ones(N))
@example(z=TIES)
@example(z=NEAR * 1e9)
@example(z=TINY)
@example(z=np.zeros(N))
def test_the_worst_case_is_attained_feasible_and_bounded(risk, z):
    before = z.copy()
    worst = risk.worst(z)
    assert worst.value == risk.value(z) <= worst.bound
    assert_allclose(worst.value, worst.weights @ z, rtol=0, atol=ROUNDING * np.abs(z).max())
    assert worst.bound - worst.value <= ROUNDING * np.abs(z).max()
    assert risk.contains(worst.weights, 1e-12)
    assert_array_equal(worst.weights, risk.weights(z))
    assert_array_equal(z, before)


@each_risk
@LAW
@given(z=vectors, v=vectors)
def test_no_member_of_the_set_is_worse(risk, z, v):
    assert risk.project(v / 10) @ z <= risk.value(z) + ROUNDING * np.abs(z).max()


@each_risk
@LAW
@given(z=vectors, shift=st.floats(-1e3, 1e3), up=st.lists(st.floats(0, 2), min_size=N, max_size=N))
def test_translation_monotony_and_scale(risk, z, shift, up):
    size = np.abs(z).max() + abs(shift)
    assert_allclose(risk.value(z + shift), risk.value(z) + shift, rtol=0, atol=ROUNDING * size)
    assert risk.value(z + np.array(up)) >= risk.value(z) - ROUNDING * (np.abs(z).max() + 2)
    assert_allclose(risk.value(2 * z), 2 * risk.value(z), rtol=0, atol=ROUNDING * size)


@each_risk
@LAW
@given(v=vectors)
@example(v=np.ones(N))
@example(v=TIES * 1e9)
@example(v=NEAR)
@example(v=TINY)
@example(v=BESIDE)
def test_projection_is_nearest(risk, v):
    before = v.copy()
    q = risk.project(v)
    assert risk.contains(q, 1e-12)
    # nearest <=> max over members m of (v - q)'(m - q) <= 0; the bound of the oracle proves the
    # maximum
    gradient = (v - q) - (v - q).max()
    assert risk.worst(gradient).bound - gradient @ q <= 1e-11 * max(1.0, np.abs(gradient).max())
    assert_allclose(risk.project(q), q, rtol=0, atol=1e-12)
    assert_array_equal(v, before)


@each_risk
@LAW
@given(v=vectors, step=st.sampled_from([1e-3, 1.0, 50.0]))
def test_prox_minimises(risk, v, step):
    z, q = risk.prox(v, step), risk.project(v / step)
    assert_array_equal(z, v - step * q)  # Moreau
    # z is the prox <=> (v - z) / step = q is a subgradient at z <=> q is a member that attains the
    # maximum at z
    assert risk.value(z) - q @ z <= 1e-11 * max(step, np.abs(v).max())
    assert_array_equal(risk.prox(v, 0.0), v)


# fields that tell one client from another
OF_CLIENTS = ("prior", "lower", "bounds", "cost", "D", "shape")


def alike(risk):
    """Whether it does not matter who has a loss."""
    given = [getattr(risk, name, 0.0) for name in OF_CLIENTS]
    return (
        not any(isinstance(field, np.ndarray) for field in given)
        and getattr(risk, "cost", "") != "index"
    )


def any_number(risk):
    """Whether the risk is stated for every number of losses."""
    return alike(risk) and not {"k", "sigma", "upper"} & vars(risk).keys()


@each_risk
def test_protocols_and_one_client(risk):
    assert isinstance(risk, SupportsProject)
    assert isinstance(risk, SupportsProx)
    if any_number(risk):
        assert risk.value(np.array([3.5])) == 3.5
        assert_array_equal(risk.project(np.array([-7.0])), [1.0])
    assert risk.at(np.arange(1, N + 1)).value(TIES) == pytest.approx(risk.value(TIES), abs=1e-15)


@every_risk
@LAW
@given(z=vectors, seed=st.integers(0, 9))
@example(z=TIES, seed=1)
@example(z=NEAR * 1e9, seed=2)
@example(z=TINY, seed=3)
@example(z=TINY * 1e-160, seed=4)
def test_value_is_that_of_the_weights_in_any_order(risk, z, seed):
    before, q, tol = z.copy(), risk.weights(z), ROUNDING * np.abs(z).max()
    assert_allclose(risk.value(z), q @ z, rtol=0, atol=tol)
    assert q.min() >= 0
    if alike(risk):
        for level in set(z):
            assert_allclose(q[z == level], q[z == level].mean(), rtol=0, atol=1e-12)
        order = np.random.default_rng(seed).permutation(N)
        assert_allclose(risk.value(z[order]), risk.value(z), rtol=0, atol=tol)
        assert_allclose(risk.weights(z[order]), q[order], rtol=0, atol=1e-12)
        # of equal numbers, the prox of a nonconvex risk may move either
        assert_allclose(
            np.sort(risk.prox(z[order], 0.3)),
            np.sort(risk.prox(z, 0.3)),
            rtol=0,
            atol=1e-13 + 10 * tol,
        )
    assert_array_equal(z, before)


@every_risk
@pytest.mark.parametrize("level", [0.0, -3.5, 1e9, 1e-9])
def test_equal_losses_have_that_risk(risk, level):
    if not isinstance(risk, ProspectTheory):  # its weights need not sum to one
        assert_allclose(risk.value(np.full(N, level)), level, rtol=1e-14)


@each_nonconvex
@LAW
@given(v=vectors, step=st.sampled_from([1e-3, 1.0, 50.0]), seed=st.integers(0, 9))
@example(v=TIES, step=1.0, seed=0)
def test_prox_of_a_nonconvex_risk_is_better_than_points_near_and_far(risk, v, step, seed):
    rng, before, z = np.random.default_rng(seed), v.copy(), risk.prox(v, step)

    def cost(x):
        return step * risk.value(x) + ((x - v) ** 2).sum() / 2

    size = np.abs(v).max() + step
    others = [
        z + size * length * rng.standard_normal(N)
        for length in (1e-6, 1e-3, 1e-1, 1.0)
        for _ in range(10)
    ]
    reference = getattr(risk, "reference", 0.0)
    others += [v, np.zeros(N), np.sort(v), np.minimum(z, reference), np.maximum(z, reference)]
    assert cost(z) <= min(map(cost, others)) + 1e-13 * size * (step + size)
    assert_array_equal(risk.prox(v, 0.0), v)
    assert_array_equal(v, before)


def smallest_cost(risk, v, step):
    """min step R(z) + ||z - v||^2 / 2 over all orders of z, and over all splits at a reference."""
    two = isinstance(risk, ProspectTheory)
    pairs = (
        [(risk.rank_weights_below(N), risk.rank_weights_above(N))]
        if two
        else [(risk.rank_weights(N),) * 2]
    )
    (below, above), top = pairs[0], risk.reference if two else math.inf
    best = math.inf
    for order in map(list, itertools.permutations(range(N))):
        for j in range(N + 1) if two else [N]:
            low, high = v[order[:j]] - step * below[:j], v[order[j:]] - step * above[j:]
            low = np.minimum(isotonic_regression(low).x, top) if j else low
            high = np.maximum(isotonic_regression(high).x, top) if j < N else high
            z = np.concatenate([low, high])
            sigma = np.concatenate([below[:j], above[j:]])
            best = min(best, step * sigma @ z + ((z - v[order]) ** 2).sum() / 2)
    return best


@each_nonconvex
@pytest.mark.parametrize("step", [0.3, 3.0])
def test_prox_of_a_nonconvex_risk_is_the_best_of_all_orders_and_splits(risk, step):
    v = np.round(np.random.default_rng(11).standard_normal(N), 1)
    z = risk.prox(v, step)
    assert_allclose(
        step * risk.value(z) + ((z - v) ** 2).sum() / 2, smallest_cost(risk, v, step), rtol=1e-12
    )


@each_nonconvex
def test_a_nonconvex_risk_offers_no_set_of_weights(risk):
    assert not risk.convex
    assert isinstance(risk, SupportsProx)
    for verb in ("worst", "project", "contains"):
        if hasattr(risk, verb):  # Spectral, whose weights might have ascended
            with pytest.raises(ValueError, match="not convex"):
                getattr(risk, verb)(TIES)


def test_sum_is_n_times_the_mean():
    z = np.array([1.0, -2.0, 4.0])
    assert Sum().value(z) == 3 * Mean().value(z) == 3.0
    assert_array_equal(Sum().at([1, 2, 3]).prox(z, 0.5), z - 0.5)
    assert Sum().contains(np.ones(3))
    assert not Sum().contains(np.full(3, 0.9))


@pytest.mark.parametrize("p", [1, 1.5, 2, 3.7, math.inf])
def test_radius_from_mean_to_maximum(p):
    rng = np.random.default_rng(4)
    for z in (rng.standard_normal(N), TIES, NEAR, 1e9 * rng.standard_normal(N)):
        assert_array_equal(LpBall(0.0, p, PRIOR).weights(z), Mean(PRIOR).weights(z))
        assert LpBall(0.0, p, PRIOR).value(z) == Mean(PRIOR).value(z)
        assert_allclose(LpBall(2.0, p, PRIOR).value(z), Simplex().value(z), rtol=4e-16)
        assert_allclose(LpBall(2.0, p, PRIOR).project(z), Simplex().project(z), rtol=0, atol=0)
        values = [LpBall(r, p, PRIOR).value(z) for r in (0.0, 1e-9, 1e-4, 0.1, 0.5, 1.0)]
        assert (np.diff(values) >= -ROUNDING * np.abs(z).max()).all()


def test_p_goes_to_its_limits():
    z = np.random.default_rng(5).standard_normal(N)
    # ||v||_p is within N^|1/p - 1/p'| of ||v||_p': at 1.0005 and 20000 that is 1e-3, times radius
    # and spread
    for p, limit in ((1.0005, 1), (20000.0, math.inf), (2.0001, 2)):
        assert_allclose(
            LpBall(0.2, p, PRIOR).value(z), LpBall(0.2, limit, PRIOR).value(z), atol=1e-3
        )
        assert_allclose(
            LpBall(0.2, p, PRIOR).project(z), LpBall(0.2, limit, PRIOR).project(z), atol=2e-3
        )


@pytest.mark.parametrize("p", [1, math.inf])
def test_oracle_against_linear_programs(p):
    rng = np.random.default_rng(6)
    for _ in range(40):
        n = int(rng.integers(2, 8))
        prior, radius = rng.dirichlet(np.ones(n)), float(rng.choice([0.01, 0.2, 0.9]))
        z = np.round(rng.standard_normal(n), int(rng.integers(0, 3)))
        if p == 1:  # q - prior = a - b
            lp = linprog(
                np.r_[-z, z],
                A_ub=np.r_[[np.ones(2 * n)], np.c_[-np.eye(n), np.eye(n)]],
                b_ub=np.r_[radius, prior],
                A_eq=[np.r_[np.ones(n), -np.ones(n)]],
                b_eq=[0.0],
            )
        else:
            box = np.c_[np.maximum(-prior, -radius), np.full(n, radius)]
            lp = linprog(-z, A_eq=np.ones((1, n)), b_eq=[0.0], bounds=box)
        # HiGHS meets feasibility to 1e-7
        assert_allclose(LpBall(radius, p, prior).value(z), prior @ z - lp.fun, rtol=0, atol=1e-6)


def test_ties_share_the_weight():
    assert_allclose(Simplex().weights(TIES), [1 / 3, 1 / 3, 0, 1 / 3, 0, 0])
    for p in (1, 1.5, 2, 3.7, math.inf):
        q = LpBall(0.2, p).weights(TIES)
        assert_allclose(q[TIES == 1], q[0], rtol=1e-14)
        assert_allclose(q[TIES == 0], q[2], rtol=1e-14)
        assert q[0] > q[2]


def test_prior_by_size_by_name_and_as_given():
    assert_allclose(resolve_prior("size", [1, 3]), [0.25, 0.75])
    assert_allclose(resolve_prior("uniform", [1, 3]), [0.5, 0.5])
    assert_allclose(resolve_prior({"b": 0.9, "a": 0.1}, [1, 3], ["a", "b"]), [0.1, 0.9])
    assert LpBall(0.1, 2, "size").at([1, 3]).value(np.array([0.0, 1.0])) == pytest.approx(
        0.75 + 0.1 / math.sqrt(2)
    )
    given_weights = np.array([0.5, 0.5])
    assert resolve_prior(given_weights, [1, 3]) is not given_weights


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LpBall(-0.1), "radius must be a number >= 0, got -0.1"),
        (lambda: LpBall(math.nan), "radius must be a number >= 0"),
        (lambda: LpBall(0.1, 0.5), r"p must be in \[1, inf\], got 0.5"),
        (lambda: LpBall(0.1, math.nan), "p must be in"),
        (lambda: LpBall(0.1, 2, [0.5, 0.4]).at([1, 1]), "sum to one, got 0.9: divide"),
        (lambda: LpBall(0.1, 2, [1.5, -0.5]).at([1, 1]), "prior must be >= 0, got -0.5"),
        (lambda: Mean([0.5, 0.5]).at([1, 1, 1]), "prior must be a vector of 3 numbers"),
        (lambda: Mean([math.nan, 0.5]).at([1, 1]), "prior must be finite"),
        (lambda: Mean("sizes").at([1, 1]), "'uniform', 'size', numbers or .*, got 'sizes'"),
        (lambda: Mean({"a": 1.0}).at([1, 1], ["a", "b"]), "exactly one entry for each client"),
        (lambda: Mean("size").at([1, 0]), "drop empty clients"),
        (lambda: Mean("size").value(np.ones(2)), r"call risk.at\(sizes\) first"),
        (
            lambda: LpBall(0.1).value(np.array([1.0, math.nan])),
            "losses must be finite, got nan at 1",
        ),
        (
            lambda: LpBall(0.1).worst(np.array([1.0, math.inf])),
            "losses must be finite, got inf at 1",
        ),
        (lambda: Simplex().value(np.array([math.nan])), "losses must be finite"),
        (lambda: Simplex().project(np.array([math.inf, 0.0])), "v must be finite"),
        (lambda: Mean().value(np.array([])), "losses must be a vector"),
        (lambda: LpBall(0.1, 2, PRIOR).value(np.ones(2)), "prior must be a vector of 2 numbers"),
        (lambda: LpBall(0.1).prox(np.ones(2), -1.0), "step must be a number >= 0, got -1"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(call, message):
    with pytest.raises(ValueError, match=message):
        call()
