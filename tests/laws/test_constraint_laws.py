"""What every constraint must keep, over ``CONSTRAINTS`` in examples.py: values against measures
taken from the raw rows in plain NumPy, Jacobians and curvature against differences, blocks against
single clients, claims against samples.
"""

from dataclasses import replace

import numpy as np
import pytest
from constrained_oracles import NAMES, federation, raw_rows, together
from numpy.testing import assert_allclose, assert_array_equal

from bonafed.data.federation import Federation
from bonafed.problem.client_means import hessians
from bonafed.problem.constraints.constraint import VOID, Point
from examples import CONSTRAINTS

EVERY = pytest.mark.parametrize("name", CONSTRAINTS)
SINGLE = pytest.mark.parametrize(
    "name", [name for name, example in CONSTRAINTS.items() if not example.coupled]
)
CURVED = [name for name, example in CONSTRAINTS.items() if example.hessian]


def models(D, n=None, scale=0.8, seed=0):
    """A model (D,), or one per client (n, D)."""
    rng = np.random.default_rng(seed)
    return scale * rng.standard_normal(D if n is None else (n, D))


def setting(name, intercept=False):
    """The concrete problem, its data, the constraint and D."""
    example = CONSTRAINTS[name]
    # these know D
    mute = name in ("linear equality", "linear inequality") or name.startswith("own function")
    problem, fed = example.at(intercept=intercept and not mute)
    return problem, fed, example.stack(problem), problem.predictor.dimension(fed.n_features)


def gradient_of(f, w, h=2e-3):
    """d f / d w by differences of sixth order, f of any shape, with the entries of w as last
    axis.
    """
    out = []
    for j in range(w.shape[-1]):
        step = np.zeros(w.shape)
        step[..., j] = h
        near, mid, far = (f(w + k * step) - f(w - k * step) for k in (1, 2, 3))
        out.append((45 * near - 9 * mid + far) / (60 * h))
    return np.stack(out, -1)


def every(fed, problem, w, verb):
    """A verb of the constraint for all clients, one at a time, in the federation's order."""
    return np.concatenate([verb(Point(problem, w, fed.block(i))) for i in range(len(fed))])


@SINGLE
@pytest.mark.parametrize("intercept", [False, True])
def test_values_and_limits_are_the_measure(name, intercept):
    example = CONSTRAINTS[name]
    problem, fed, stack, D = setting(name, intercept)
    w = models(D)
    expected = np.array([example.measure(w, rows) for rows in raw_rows(example.fed)], float)
    limits = np.concatenate([stack.limits(fed.block(i)) for i in range(len(fed))])
    has = ~np.isnan(expected)
    assert_array_equal(~np.isnan(limits), has)
    assert_array_equal(limits[has], np.broadcast_to(example.limit, expected.shape)[has])
    values = every(fed, problem, w, stack.values)
    assert_allclose((values + limits)[has], expected[has], rtol=1e-12, atol=1e-13)
    assert_array_equal(
        values[~has], np.broadcast_to(np.where(stack.equality, 0.0, VOID), values.shape)[~has]
    )
    assert not every(fed, problem, w, stack.jacobian)[~has].any()
    assert len(stack.words) == len(stack.equality) == stack.size == expected.shape[1]
    assert len(set(stack.words)) == stack.size


@pytest.mark.parametrize("name", [name for name, example in CONSTRAINTS.items() if example.coupled])
@pytest.mark.parametrize("intercept", [False, True])
def test_sums_over_clients_are_the_measure(name, intercept):
    example = CONSTRAINTS[name]
    problem, fed, stack, D = setting(name, intercept)
    w, raw = models(D), raw_rows(example.fed)
    total = every(fed, problem, w, stack.values).sum(0)
    limit = sum(stack.limits(fed.block(i)) for i in range(len(fed)))[0]
    if isinstance(example.prior, str):
        expected, asked = (
            np.array(example.measure(w, together(raw))),
            np.broadcast_to(example.limit, (stack.size,)),
        )
    else:
        each = np.array([example.measure(w, rows) for rows in raw])
        weight = example.prior[:, None] * ~np.isnan(each)
        weight /= weight.sum(0)  # the mean over the clients that have it
        expected = (weight * np.nan_to_num(each)).sum(0)
        asked = (weight * np.nan_to_num(np.broadcast_to(example.limit, each.shape))).sum(0)
    assert_allclose(limit, asked, rtol=1e-13)
    assert_allclose(total + limit, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    "name", [name for name, example in CONSTRAINTS.items() if isinstance(example.prior, str)]
)
def test_over_all_rows_is_the_constraint_of_the_pooled_federation(name):
    example = CONSTRAINTS[name]
    problem, fed, stack, D = setting(name)
    pooled, one = replace(example.problem, local_constraint=example.stated.constraint).at(
        example.fed.pooled()
    )
    w = models(D)
    at = Point(pooled, w, one.block(0))
    assert_allclose(
        every(fed, problem, w, stack.values).sum(0),
        pooled.local_constraint.values(at)[0],
        atol=1e-13,
    )
    gradient = pooled.local_constraint.jacobian(at)[0]
    assert_allclose(every(fed, problem, w, stack.jacobian).sum(0), gradient, atol=1e-13)


@EVERY
@pytest.mark.parametrize("intercept", [False, True])
def test_jacobian_is_the_derivative_of_the_values(name, intercept):
    problem, fed, stack, D = setting(name, intercept)
    for block in (fed.blocks(3)[0], fed.block(0)):
        for w in (models(D), models(D, len(block.names))):
            found = stack.jacobian(Point(problem, w, block))
            expected = gradient_of(lambda v, block=block: stack.values(Point(problem, v, block)), w)
            assert found.shape == (len(block.names), stack.size, D)
            assert_allclose(found, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", CURVED)
@pytest.mark.parametrize("intercept", [False, True])
def test_curvature_is_the_derivative_of_the_jacobian(name, intercept):
    problem, fed, stack, D = setting(name, intercept)
    for block in (fed.blocks(3)[0], fed.block(2)):
        n = len(block.names)
        mu = np.random.default_rng(5).uniform(0, 2, (n, stack.size))

        def pull(v, block=block, mu=mu):
            return np.einsum("np,npd->nd", mu, stack.jacobian(Point(problem, v, block)))

        for w in (models(D), models(D, n)):
            at, zero = Point(problem, w, block), np.zeros(n)
            each = hessians(at, zero, [(stack, mu)], together=False)
            assert_allclose(each, gradient_of(pull, w), rtol=1e-8, atol=1e-8)
            both = hessians(at, zero, [(stack, mu)], together=True)
            assert_allclose(both, each.sum(0, keepdims=True), rtol=1e-12, atol=1e-12)


@EVERY
def test_blocks_are_their_clients(name):
    problem, fed, stack, D = setting(name)
    mu = np.random.default_rng(6).uniform(0, 2, (len(fed), stack.size))
    for w in (models(D), models(D, len(fed))):
        for block in fed.blocks(5) + fed.blocks(2) + [fed.blocks(5)[0].part(np.array([3, 1]))]:
            own = w if w.ndim == 1 else w[block.index]
            at = Point(problem, own, block)
            for k, i in enumerate(block.index):
                alone = Point(problem, w if w.ndim == 1 else w[[i]], fed.block(i))
                for verb in (stack.values, stack.jacobian, lambda at: stack.limits(at.block)):
                    assert_allclose(verb(at)[k], verb(alone)[0], rtol=1e-12, atol=1e-13)
                if CONSTRAINTS[name].hessian:
                    both = hessians(
                        at, np.zeros(len(block.names)), [(stack, mu[block.index])], together=False
                    )
                    single = hessians(alone, np.zeros(1), [(stack, mu[[i]])], together=False)
                    assert_allclose(both[k], single[0], rtol=1e-12, atol=1e-12)


@EVERY
def test_sparse_rows_are_the_same_rows(name):
    example = CONSTRAINTS[name]
    problem, fed, stack, D = setting(name)
    from scipy.sparse import csr_array

    thin, data = example.at(example.fed.with_features([csr_array(x) for x in example.fed.X]))
    w, other = models(D), example.stack(thin)
    alone = [(fed.block(i), data.block(i)) for i in range(len(fed))]
    for blocks in (*alone, *zip(fed.blocks(), data.blocks(), strict=True)):
        assert blocks[0].index.tolist() == blocks[1].index.tolist()
        dense, sparse = (Point(p, w, b) for p, b in zip((problem, thin), blocks, strict=True))
        n = len(blocks[0].names)
        mu = np.ones((n, stack.size))
        assert_allclose(other.values(sparse), stack.values(dense), rtol=1e-12, atol=1e-14)
        assert_allclose(other.jacobian(sparse), stack.jacobian(dense), rtol=1e-12, atol=1e-14)
        if example.hessian:
            pair = [
                hessians(p, np.zeros(n), [(s, mu)], True)
                for p, s in ((dense, stack), (sparse, other))
            ]
            assert_allclose(pair[1], pair[0], rtol=1e-12, atol=1e-13)


@EVERY
def test_convex_and_affine_claims_hold_on_segments(name):
    problem, fed, stack, D = setting(name)
    ends = np.random.default_rng(7).standard_normal((40, 2, D)) * 2
    curved = 0.0
    for a, b in ends:
        for t in (0.2, 0.5, 0.9):
            low, high, inside = (
                every(fed, problem, w, stack.values) for w in (a, b, t * a + (1 - t) * b)
            )
            excess = inside - (t * low + (1 - t) * high)
            curved = max(curved, np.abs(excess).max())
            if stack.convex:
                assert excess.max() <= 1e-11
                assert np.abs(excess[:, stack.equality]).max(initial=0) <= 1e-11
    assert not stack.affine or curved <= 1e-11
    assert not stack.affine or stack.convex


@pytest.mark.parametrize(
    "name", ["loss gap", "parity of probabilities", "equalised odds of probabilities"]
)
def test_what_is_not_convex_is_not_called_so(name):
    problem, _, stack, _ = setting(name)
    assert not stack.convex
    assert problem.constraint.convex


@EVERY
@pytest.mark.parametrize("intercept", [False, True])
def test_splits_are_minorants_that_touch(name, intercept):
    problem, fed, stack, D = setting(name, intercept)
    if not stack.convex:
        return  # a split proves nothing there
    rng = np.random.default_rng(8)
    for block in (*fed.blocks(3), fed.block(0)):
        n = len(block.names)
        mu = rng.uniform(0, 2, (n, stack.size)) * np.where(stack.equality, -1.0, 1.0)
        at = Point(problem, models(D, n, seed=3), block)
        rows, gradients, constants = stack.split(at, mu)

        def split(v, block=block, rows=rows, gradients=gradients, constants=constants):
            own = (
                0.0
                if rows is None
                else (rows * problem.loss.value(Point(problem, v, block).prediction, block.y)).sum(
                    1
                )
            )
            return own + (gradients * v).sum(1) + constants

        assert rows is None or (rows >= 0).all()
        assert_allclose(split(at.models), (mu * stack.values(at)).sum(1), rtol=1e-11, atol=1e-12)
        for seed in range(10):
            v = models(D, n, 2.0, seed)
            assert (split(v) <= (mu * stack.values(Point(problem, v, block))).sum(1) + 1e-11).all()


@EVERY
def test_permuting_the_clients_permutes_everything(name):
    example = CONSTRAINTS[name]
    problem, fed, stack, D = setting(name)
    order, old = [3, 0, 4, 2, 1], example.fed
    moved = Federation(
        tuple(NAMES[i] for i in order),
        tuple(old.X[i] for i in order),
        tuple(old.y[i] for i in order),
        feature_names=old.feature_names,
        sample_weight=(
            None if old.sample_weight is None else tuple(old.sample_weight[i] for i in order)
        ),
        columns={key: tuple(parts[i] for i in order) for key, parts in old.columns.items()},
        linear=tuple(old.linear[i] for i in order),
    )
    stated = example.stated
    holder = stated.constraint if example.coupled else stated
    if np.ndim(getattr(holder, "level", 0.0)) == 1:
        holder = replace(holder, level=np.asarray(holder.level)[order])
        stated = replace(stated, constraint=holder) if example.coupled else holder
    other, data = replace(example, stated=stated).at(moved)
    w = models(D)
    for verb in ("values", "jacobian"):
        expected = every(fed, problem, w, getattr(stack, verb))[order]
        assert_allclose(
            every(data, other, w, getattr(example.stack(other), verb)),
            expected,
            rtol=1e-13,
            atol=1e-14,
        )


@EVERY
def test_arguments_are_never_changed(name):
    problem, fed, stack, D = setting(name)
    block = fed.blocks(5)[0]
    w, mu = models(D, 5), np.ones((5, stack.size))
    arrays = [w, mu, block.X, block.y, block.share, *block.columns.values(), *block.linear]
    before = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    at = Point(problem, w, block)
    stack.values(at), stack.jacobian(at), stack.limits(block)
    first = stack.values(at)
    first += 1.0
    # nor is what is returned shared
    assert_array_equal(stack.values(Point(problem, w, block)) + 1.0, first)
    if CONSTRAINTS[name].hessian:
        hessians(at, np.zeros(5), [(stack, mu)], together=False)
    for array, kept in zip(arrays, before, strict=True):
        assert_array_equal(array, kept)


@EVERY
def test_largest_violation_is_the_largest_of_the_values(name):
    problem, fed, stack, D = setting(name)
    w = models(D, scale=1.5)
    values = every(fed, problem, w, stack.values)
    values = values.sum(0, keepdims=True) if CONSTRAINTS[name].coupled else values
    expected = max(0.0, np.where(stack.equality, np.abs(values), values).max())
    assert_allclose(problem.violation(w, fed), expected, rtol=1e-14)
    example = CONSTRAINTS[name]
    slot = "constraint" if example.coupled else "local_constraint"
    stated = replace(example.problem, **{slot: example.stated})
    assert_allclose(stated.violation(w, example.fed), expected, rtol=1e-14)


def test_stacks_are_their_parts():
    names = ["Neyman-Pearson", "own linear equality", "equalised odds", "sign"]
    parts = [CONSTRAINTS[name].stated for name in names]
    problem, fed = replace(CONSTRAINTS[names[0]].problem, local_constraint=parts).at(federation())
    block, w = fed.blocks(5)[0], models(4)
    both, mu = (
        problem.local_constraint,
        np.random.default_rng(9).uniform(0, 1, (5, problem.local_constraint.size)),
    )
    start = 0
    for part in both.parts:
        stop = start + len(part.equality)
        assert_array_equal(
            both.values(Point(problem, w, block))[:, start:stop],
            part.values(Point(problem, w, block)),
        )
        assert_array_equal(both.limits(block)[:, start:stop], part.limits(block))
        start = stop
    assert start == both.size == 1 + 2 + 4 + 2
    single = sum(
        hessians(
            Point(problem, w, block),
            np.zeros(5),
            [(type(both)((part,)), mu[:, k : k + len(part.equality)])],
            False,
        )
        for part, k in zip(both.parts, (0, 1, 3, 7), strict=True)
    )
    assert_allclose(
        hessians(Point(problem, w, block), np.zeros(5), [(both, mu)], False), single, atol=1e-14
    )
