"""The interior point for dense programs against Clarabel: value, primal and dual."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bonafed.solvers.conic.builder import Model, Status
from bonafed.solvers.conic.dense import blocks_of, solve_dense
from bonafed.solvers.kernels import interior_point as compiled


def master(seed: int, rows: int, n: int, curved: bool) -> tuple[Model, slice]:
    """A small program of cuts: the largest of some affine functions, a norm and bounds."""
    rng = np.random.default_rng(seed)
    model = Model()
    x, top, size = model.variable(n), model.variable(), model.variable()
    cuts = model.nonneg(
        [(top, np.ones(rows)), (x, rng.normal(size=(rows, n))), rng.normal(size=rows)]
    )
    model.linear(top, 1.0)
    model.linear(size, 0.1)
    model.soc([(size, 1.0)], [(x, rng.random(n) + 0.1)])
    model.nonneg([(size, -1.0), 20.0])
    if curved:
        B = rng.normal(size=(n, n // 2))
        model.quadratic(x, B @ B.T)
    return model, cuts


@pytest.mark.parametrize("curved", [False, True])
# the last has long rows, in columns that are hardly dense
@pytest.mark.parametrize(("rows", "n"), [(6, 3), (40, 8), (60, 20), (15, 30), (12, 90)])
def test_equals_clarabel(rows, n, curved):
    for seed in range(3):
        model, cuts = master(seed, rows, n, curved)
        sparse, dense = model.solve(1e-10), model.solve_dense(1e-10)
        assert dense.status in (Status.SOLVED, Status.ALMOST_SOLVED)
        assert dense.value == pytest.approx(sparse.value, abs=1e-8, rel=1e-8)
        assert dense.dual_value == pytest.approx(dense.value, abs=1e-7, rel=1e-7)
        assert_allclose(dense.z[cuts].sum(), 1.0, atol=1e-7)
        assert_allclose(dense.z[cuts], sparse.z[cuts], atol=1e-4)
        if curved and n // 2 >= n - 1:
            assert_allclose(dense.x, sparse.x, atol=1e-5)


def test_a_point_that_is_near_changes_nothing_but_the_start():
    model, _ = master(7, 40, 8, True)
    plain = model.solve_dense(1e-10)
    model.near(np.arange(8), plain.x[:8] + 0.01)
    near = model.solve_dense(1e-10)
    assert near.value == pytest.approx(plain.value, abs=1e-8)
    assert_allclose(near.x[:8], plain.x[:8], atol=1e-5)
    assert model.solve(1e-10).value == pytest.approx(plain.value, abs=1e-8)


def test_programs_of_other_cones_or_without_a_solution_go_to_clarabel():
    model = Model()
    x = model.variable()
    model.exponential([(x, 1.0)], [1.0], [2.0])
    model.linear(x, -1.0)
    assert model.solve_dense().value == pytest.approx(-np.log(2), abs=1e-7)
    model = Model()
    x = model.variable()
    model.nonneg([(x, 1.0), -1.0])
    model.nonneg([(x, -1.0), -1.0])
    assert model.solve_dense().status is Status.INFEASIBLE


def test_the_scale_of_a_row_does_not_matter():
    rng = np.random.default_rng(0)
    M = np.vstack([rng.normal(size=(9, 3)), np.eye(3), -np.eye(3)])
    c = np.concatenate([rng.random(9), np.full(6, 5.0)])
    q, P, sizes = rng.normal(size=3), np.zeros((3, 3)), 10.0 ** rng.integers(-6, 7, size=15)
    (row, column), value = np.nonzero(M), M[np.nonzero(M)]
    one = solve_dense([(np.arange(len(q)), P)], q, (row, column, value), c, [], 1e-11)
    other = solve_dense(
        [(np.arange(len(q)), P)], q, (row, column, value * sizes[row]), c * sizes, [], 1e-11
    )
    assert one is not None
    assert other is not None
    assert_allclose(other.x, one.x, atol=1e-8)
    assert_allclose(other.z * sizes, one.z, atol=1e-6)


@pytest.mark.parametrize("seed", [4, 9, 23])
@pytest.mark.parametrize("height", [100.0, 1e4])
def test_a_start_far_from_the_cones_ends_in_no_cycle(seed, height):
    """Largest of affine functions whose levels are hundreds apart: Mehrotra's correction as a whole
    goes back and forth between two points.
    """
    rng = np.random.default_rng(seed)
    gradients, owner = rng.standard_normal((30, 4)), np.arange(30) % 3
    M = np.hstack([-gradients, np.eye(3)[owner]])
    P, q = np.diag([1.0] * 4 + [0.0] * 3), np.array([0.0] * 4 + [1 / 3] * 3)
    c = -height * rng.standard_normal(30)
    row, column = np.nonzero(M)
    solved = solve_dense([(np.arange(len(q)), P)], q, (row, column, M[row, column]), c, [], 1e-9)
    assert solved is not None
    assert solved.error <= 1e-9


def test_a_program_begins_at_the_solution_of_one_like_it() -> None:
    (model, _), (again, _) = (master(0, 60, 20, curved=True) for _ in range(2))
    last = model.solve_dense(1e-10)
    for one in (model, again):
        one.linear(np.arange(20), 1e-3)
    again.near(np.arange(again.size), last.x)
    far, near = model.solve_dense(1e-10), again.solve_dense(1e-10)
    assert near.value == pytest.approx(far.value, rel=1e-9)
    assert near.iterations <= far.iterations - 2
    for likely in (
        last.z,
        last.z * np.where(np.arange(len(last.z)) % 2, 1.0, np.nan),
        1e9 * last.z,
    ):
        again.likely = likely  # a guess, which may be wrong
        other = again.solve_dense(1e-10)
        assert other.value == pytest.approx(far.value, rel=1e-9)
    again.likely = last.z
    assert again.solve_dense(1e-10).iterations < near.iterations


ENDS = np.array([3, 7, 9])  # three half-lines, cones of 4 and of 2 rows


def jordan(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """u o v: elementwise on half-lines, (<u, v>, u_0 v_1 + v_0 u_1) on a second-order cone."""
    out = u * v
    for a, b in ((3, 7), (7, 9)):
        out[a + 1 : b] = u[a] * v[a + 1 : b] + v[a] * u[a + 1 : b]
        out[a] = u[a:b] @ v[a:b]
    return out


def inside(rng: np.random.Generator, depth: float) -> np.ndarray:
    u = np.abs(rng.standard_normal(9)) + depth
    for a, b in ((3, 7), (7, 9)):
        u[a] = np.linalg.norm(u[a + 1 : b]) + depth
        u[a + 1 : b] *= rng.choice([-1.0, 1.0], b - a - 1)
    return u


@pytest.mark.parametrize("depth", [1.0, 1e-3, 1e-6])
def test_the_scaling_takes_multipliers_to_slacks(depth: float) -> None:
    """W z = W^-1 s for a symmetric W, and what is divided comes back multiplied."""
    rng = np.random.default_rng(int(1 / depth))
    s, z = inside(rng, depth), inside(rng, depth)
    size, v = np.empty(9), np.empty(9)
    assert compiled.scaling(ENDS, s, z, size, v) == pytest.approx(depth, rel=1e-6)

    def scaled(u: np.ndarray, turn: float) -> np.ndarray:
        out = np.empty(9)
        compiled.scaled(ENDS, size, v, turn, u, out)
        return out

    point = scaled(z, 1.0)
    assert_allclose(scaled(s, -1.0), point, rtol=1e-7 / depth, atol=1e-8)
    W = np.array([scaled(one, 1.0) for one in np.eye(9)])
    assert_allclose(W, W.T, atol=1e-12 * np.abs(W).max())
    u, w = rng.standard_normal((2, 9))
    assert_allclose(scaled(scaled(u, 1.0), -1.0), u, atol=1e-9 / depth)
    out = np.empty(9)
    compiled.quotient(ENDS, z, 0.7, 2.0, u, w, out)
    e = np.array([1.0, 1, 1, 1, 0, 0, 0, 1, 0])
    assert_allclose(jordan(z, out), 0.7 * e - 2 * jordan(u, w), atol=1e-9 / depth)


def test_a_step_ends_at_the_boundary() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        u, step = inside(rng, 0.1), 5 * rng.standard_normal(9)
        t = compiled.longest(ENDS, u, step)
        size, v = np.empty(9), np.empty(9)
        least = [compiled.scaling(ENDS, u + share * step, u, size, v) for share in (t, 1.001 * t)]
        assert least[0] >= -1e-9
        assert t == 1 or least[1] < 0


def test_blocks_are_those_of_the_clients() -> None:
    model, n = Model(), 300
    w, z, t = model.variable(4), model.variable(n), model.variable(n)
    top, size = model.variable(), model.variable()
    rng = np.random.default_rng(0)
    model.nonneg([(z, 1.0), (t, -1.0), (w, rng.normal(size=(n, 4)))])
    model.nonneg([(t, 1.0)])
    total = model.nonneg([(top, 1.0), (z, -rng.random((1, n)))])
    model.soc([(size, 1.0)], [(w, 1.0)])
    entries = model._data()[2]
    cone = slice(model.height - 5, model.height)
    found = blocks_of(entries, model.size, model.height, np.zeros(0, np.intp), [cone])
    assert found is not None
    blocks, joining = found
    assert (blocks[np.r_[w, top, size]] == -1).all()
    assert (blocks[z] == blocks[t]).all()
    assert len(np.unique(blocks[z])) == n
    assert joining.tolist() == [total.start]
    # a chain joins all of them
    model.nonneg([(z[1:], 1.0), (z[:-1], -1.0)])
    entries = model._data()[2]
    none = np.zeros(0, np.intp)
    assert blocks_of(entries, model.size, model.height, none, [cone]) is None
    assert blocks_of(entries, model.size, model.height, np.r_[z, t], [cone]) is None
