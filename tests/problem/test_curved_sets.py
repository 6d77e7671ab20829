"""KL, chi-square and ellipsoid over clients: conic programs of their definitions, dual gaps,
limits, closed forms.
"""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest
from client_set_oracles import members
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import rel_entr

import bonafed as bf
from bonafed.problem.risks.weight_sets import (
    ChiSquareBall,
    Ellipsoid,
    KLBall,
    LpBall,
    Mean,
    Simplex,
)
from bonafed.solvers.conic.builder import Model
from bonafed.solvers.sets import divergence_balls as tilted_ellipsoids

KINDS = ["kl", "chi", "diagonal", "full"]
PRIOR = np.array([0.3, 0.05, 0.2, 0.0, 0.25, 0.2])
SCALES = [1e-9, 1e-3, 1.0, 1e9]


def random_prior(rng, n: int, floor: float) -> np.ndarray:
    """Even, uneven, or with an entry 0."""
    prior = np.maximum(rng.dirichlet(np.full(n, rng.choice([0.3, 1.0, 10.0]))), floor)
    if n > 3 and rng.random() < 0.3:
        prior[rng.integers(n)] = 0.0
    return prior / prior.sum()


def random_set(kind: str, rng, n: int, least: float = 1e-3, floor: float = 1e-5):
    """Conic solvers lose digits below these smallest radii and priors; the exact methods do not."""
    prior = random_prior(rng, n, floor)
    radius = 10.0 ** rng.uniform(math.log10(least), 0.5)
    if kind == "kl":
        return KLBall(radius, prior)
    if kind == "chi":
        return ChiSquareBall(radius, prior)
    if kind == "diagonal":
        shape = rng.uniform(0.05, 1.0, n) * 10.0 ** rng.integers(-6, 7)
        return Ellipsoid(shape, radius / shape.max(), prior)
    A = rng.standard_normal((n, n))
    shape = A @ A.T / n + 10.0 ** rng.uniform(-2, 0) * np.eye(n)
    return Ellipsoid(shape, radius / n, prior)


def random_losses(rng, n: int, scale: float = 1.0) -> np.ndarray:
    """Distinct, or with many ties."""
    z = rng.standard_normal(n)
    return scale * (np.round(z) if rng.random() < 0.4 else z)


def primal(risk, n: int) -> tuple[Model, np.ndarray]:
    """The set's definition as a conic program in q, without an objective."""
    model, prior = Model(), risk.prior
    q = model.variable(n)
    model.nonneg([(q, 1.0)])
    model.zero([(q, np.ones((1, n))), -1.0])
    inside, outside = np.flatnonzero(prior > 0), np.flatnonzero(prior == 0)
    if isinstance(risk, KLBall):
        t = model.variable(len(inside))  # q exp(-t / q) <= prior, that is t >= q log(q / prior)
        model.exponential([(t, -1.0)], [(q[inside], 1.0)], [prior[inside]])
        model.nonneg([risk.radius, (t, -np.ones((1, len(inside))))])
    elif isinstance(risk, ChiSquareBall):
        root = prior[inside] ** -0.5
        model.soc([np.array([risk.radius**0.5])], [(q[inside], root), -prior[inside] * root])
    else:
        matrix = np.diag(risk.shape) if risk.shape.ndim == 1 else risk.shape
        unit = matrix.max()
        inverse = np.linalg.inv(np.linalg.cholesky(matrix / unit))
        model.soc([np.array([(risk.radius * unit) ** 0.5])], [(q, inverse), -inverse @ prior])
    if not isinstance(risk, Ellipsoid) and len(outside):
        model.zero([(q[outside], 1.0)])
    return model, q


@pytest.mark.parametrize("kind", KINDS)
def test_worst_cases_against_conic_programs(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(120):
        n = int(rng.integers(2, 25))
        risk, z = random_set(kind, rng, n), random_losses(rng, n)
        model, q = primal(risk, n)
        model.linear(q, -z)
        solution = model.solve(1e-9).checked("reference", almost=False)
        worst = risk.worst(z)
        size = np.abs(z).max()
        assert_allclose(worst.value, -solution.value, rtol=0, atol=2e-6 * (1 + size))
        assert_allclose(worst.bound, -solution.dual_value, rtol=0, atol=2e-6 * (1 + size))


@pytest.mark.parametrize("kind", KINDS)
def test_nearest_points_against_conic_programs(kind):
    rng = np.random.default_rng(10 + KINDS.index(kind))
    for _ in range(80):
        n = int(rng.integers(2, 25))
        risk, v = random_set(kind, rng, n), random_losses(rng, n, float(rng.choice([0.1, 1.0])))
        model, q = primal(risk, n)
        model.quadratic(q, 1.0)
        model.linear(q, -v)
        solution = model.solve(1e-9).checked("reference", almost=False)
        # the distance is squared: a value that is right to 1e-9 has a point that is right to 3e-5
        mine = risk.project(v)
        assert_allclose(0.5 * mine @ mine - mine @ v, solution.value, rtol=0, atol=1e-6)
        assert_allclose(mine, solution.x[q], rtol=0, atol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_worst_cases_against_cvxpy(kind):
    rng = np.random.default_rng(20 + KINDS.index(kind))
    for _ in range(8):
        n = int(rng.integers(2, 9))
        risk, z = random_set(kind, rng, n, 1e-2), random_losses(rng, n)
        q = cp.Variable(n)
        value = cp.Problem(cp.Maximize(z @ q), members(risk, q)).solve(solver="CLARABEL")
        assert risk.value(z) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", SCALES)
def test_gaps_close_at_every_scale(kind, scale):
    rng = np.random.default_rng([KINDS.index(kind), SCALES.index(scale)])
    for turn in range(60):
        n = int(rng.integers(2, 81))
        risk, z = random_set(kind, rng, n, 1e-9, 0.0), random_losses(rng, n, scale)
        z = z * 10.0 ** rng.uniform(-9, 0, n) if turn % 5 == 0 else z
        size = np.abs(z).max()
        worst = risk.worst(z)
        assert worst.value <= worst.bound <= worst.value + 2e-13 * size
        assert worst.weights.min() >= 0
        assert risk.contains(worst.weights, 1e-12)
        v = risk.prior + z if turn % 3 == 0 else z
        q = risk.project(v)
        assert q.min() >= 0
        assert risk.contains(q, 1e-12)
        g = (v - q) - (v - q).max()  # nearest: no member is further along v - q
        assert risk.worst(g).bound - g @ q <= 2e-13 * max(1.0, np.abs(g).max())


@pytest.mark.parametrize("kind", KINDS[:3])
def test_priors_losses_and_radii_of_any_size(kind):
    rng = np.random.default_rng([7, KINDS.index(kind)])
    for turn in range(300):
        n = int(rng.integers(1, 12))
        prior = np.maximum(
            rng.dirichlet(np.full(n, rng.choice([0.1, 1.0, 10.0]))), 10.0 ** rng.integers(-300, -5)
        )
        prior = prior / prior.sum()
        spread = 10.0 ** rng.uniform(-150, 150, n) * rng.choice([-1, 1], n)
        z = [rng.standard_normal(n), 1 + 2.3e-16 * rng.integers(0, 4, n), spread][turn % 3]
        radius = 10.0 ** rng.uniform(-300 if turn % 5 == 0 else -20, 5)
        ellipsoid = Ellipsoid(10.0 ** rng.uniform(-3, 3, n), radius, prior)
        risk = {"kl": KLBall(radius, prior), "chi": ChiSquareBall(radius, prior)}.get(
            kind, ellipsoid
        )
        worst, q = risk.worst(z), risk.project(z)
        assert worst.value <= worst.bound <= worst.value + 1e-12 * np.abs(z).max()
        assert risk.contains(worst.weights, 1e-11)
        assert risk.contains(q, 1e-11)
        g = (z - z.max()) - q
        g = g - g.max()
        assert risk.worst(g).bound - g @ q <= 1e-11 * max(1.0, np.abs(g).max())


def divergence(q, prior):
    return rel_entr(q, prior).sum()


def test_feasible_to_rounding_by_the_definitions():
    rng = np.random.default_rng(4)
    for _ in range(100):
        n = int(rng.integers(2, 60))
        for kind in KINDS:
            risk = random_set(kind, rng, n)
            for q in (risk.weights(random_losses(rng, n)), risk.project(random_losses(rng, n))):
                assert abs(q.sum() - 1) <= 1e-14
                d, inside = q - risk.prior, risk.prior > 0
                if kind == "kl":
                    size = divergence(q, risk.prior)
                elif kind == "chi":
                    size = (d[inside] ** 2 / risk.prior[inside]).sum()
                elif kind == "diagonal":
                    size = (d**2 / risk.shape).sum()
                else:
                    size = d @ np.linalg.solve(risk.shape, d)
                assert size <= risk.radius * (1 + 1e-10)
                if kind in ("kl", "chi"):
                    assert not q[~inside].any()


def test_from_the_mean_to_the_maximum():
    rng = np.random.default_rng(5)
    inside = PRIOR > 0
    for z in (rng.standard_normal(6), np.array([1.0, 1, 0, 5, 0, 1]), 1 + 1e-12 * np.arange(6)):
        for make in (
            KLBall,
            ChiSquareBall,
            lambda r, q: Ellipsoid(np.ones(6), r, q),
            lambda r, q: Ellipsoid(np.eye(6), r, q),
        ):
            assert_array_equal(make(0.0, PRIOR).weights(z), PRIOR)
            assert make(0.0, PRIOR).value(z) == Mean(PRIOR).value(z)
            values = [make(r, PRIOR).value(z) for r in (0.0, 1e-12, 1e-6, 1e-2, 0.3, 3.0, 40.0)]
            assert (np.diff(values) >= -1e-13 * np.abs(z).max()).all()
            most = z[inside].max() if make in (KLBall, ChiSquareBall) else z.max()
            assert_allclose(values[-1], most, rtol=4e-16)


def test_at_the_limit_the_prior_is_conditioned_on_the_largest():
    z = np.array([1.0, 1.0, 0.0, 7.0, -2.0, 1.0])  # the 7 has prior 0
    top = np.array([0.3, 0.05, 0, 0, 0, 0.2])
    expected, share = top / top.sum(), top.sum()
    for risk in (
        KLBall(-math.log(share) * (1 + 1e-12), PRIOR),
        ChiSquareBall((1 / share - 1) * (1 + 1e-12), PRIOR),
    ):
        assert_allclose(risk.weights(z), expected, rtol=1e-14)
        assert risk.value(z) == pytest.approx(1.0, rel=1e-15)
    below = KLBall(-math.log(share) * (1 - 1e-9), PRIOR).worst(z)
    assert 1 - 1e-6 < below.value < 1


def test_closed_forms():
    rng = np.random.default_rng(6)
    z, prior = rng.standard_normal(40), rng.dirichlet(np.full(40, 5.0))
    mean = prior @ z
    deviation = math.sqrt(prior @ (z - mean) ** 2)
    assert ChiSquareBall(1e-3, prior).value(z) == pytest.approx(
        mean + math.sqrt(1e-3) * deviation, rel=1e-14
    )
    # two clients: KL(p || 1/2) at p = 0.8
    p = 0.8
    radius = p * math.log(2 * p) + (1 - p) * math.log(2 * (1 - p))
    assert_allclose(
        KLBall(radius, [0.5, 0.5]).weights(np.array([3.0, 1.0])), [p, 1 - p], rtol=1e-14
    )
    assert_allclose(
        KLBall(radius, [0.5, 0.5]).project(np.array([9.0, -3.0])), [p, 1 - p], rtol=1e-14
    )


def test_the_same_set_by_other_names():
    rng = np.random.default_rng(7)
    for _ in range(40):
        n = int(rng.integers(2, 30))
        prior, radius = rng.dirichlet(np.ones(n)), 10.0 ** rng.uniform(-4, 0)
        shape, z = rng.uniform(0.1, 2.0, n), random_losses(rng, n)
        for one, other in (
            (Ellipsoid(np.ones(n), radius, prior), LpBall(math.sqrt(radius), 2, prior)),
            (Ellipsoid(prior, radius, prior), ChiSquareBall(radius, prior)),
            (Ellipsoid(np.diag(shape), radius, prior), Ellipsoid(shape, radius, prior)),
            (Ellipsoid(1e9 * shape, 1e-9 * radius, prior), Ellipsoid(shape, radius, prior)),
        ):
            assert_allclose(one.value(z), other.value(z), rtol=1e-11, atol=1e-12)
            assert_allclose(one.project(z), other.project(z), rtol=0, atol=1e-11)


def test_where_signs_do_not_settle_the_conic_program_answers(monkeypatch):
    rng = np.random.default_rng(8)
    for _ in range(10):
        n = int(rng.integers(3, 15))
        risk, z = random_set("full", rng, n, 1e-2), random_losses(rng, n)
        exact, nearest = risk.worst(z), risk.project(z)
        with monkeypatch.context() as patch:
            patch.setattr(tilted_ellipsoids, "_settle", lambda *given: None)
            worst, other = risk.worst(z), risk.project(z)
        assert risk.contains(worst.weights, 1e-12)
        assert worst.value <= exact.bound
        assert exact.value - 1e-9 <= worst.bound
        assert worst.bound - worst.value <= 1e-5
        assert risk.contains(other, 1e-12)
        assert_allclose(other, nearest, rtol=0, atol=1e-4)


def test_a_hundred_thousand_clients():
    rng = np.random.default_rng(9)
    prior, z = rng.dirichlet(np.ones(100_000)), rng.standard_normal(100_000)
    for risk in (KLBall(0.5, prior), ChiSquareBall(0.5, prior)):
        worst = risk.worst(z)
        assert worst.bound - worst.value <= 1e-13 * np.abs(z).max()
        assert risk.contains(worst.weights, 1e-14)


def test_membership_is_distance_to_the_set():
    for risk in (
        KLBall(0.1, PRIOR),
        ChiSquareBall(0.1, PRIOR),
        Ellipsoid(np.ones(6), 0.01, PRIOR),
        Ellipsoid(np.eye(6), 0.01, PRIOR),
    ):
        edge = risk.weights(np.array([0.0, 3.0, 1.0, 0.0, 2.0, 0.5]))
        assert risk.contains(edge, 1e-12)
        outside = PRIOR + (edge - PRIOR) * (1 + 1e-6)
        assert not risk.contains(outside, 1e-9)
        assert risk.contains(outside, 1e-5)
        assert not risk.contains(edge * (1 + 1e-6), 1e-9)
        assert not risk.contains(np.array([0.5, -0.1, 0.2, 0.0, 0.2, 0.2]), 1e-9)
    off_support = PRIOR + np.array([-1e-6, 0, 0, 1e-6, 0, 0])
    for risk in (KLBall(5.0, PRIOR), ChiSquareBall(5.0, PRIOR)):
        assert not risk.contains(off_support, 1e-9)
        assert risk.contains(off_support, 1e-5)


def test_by_name_and_by_size():
    names = ["b", "a"]
    risk = Ellipsoid({"a": 2.0, "b": 1.0}, 0.1, "size").at([1, 3], names)
    assert_array_equal(risk.shape, [1.0, 2.0])
    assert_array_equal(risk.prior, [0.25, 0.75])
    assert_array_equal(KLBall(0.1, {"a": 0.9, "b": 0.1}).at([1, 3], names).prior, [0.1, 0.9])
    assert_array_equal(ChiSquareBall(0.1).at([1, 3]).prior, [0.5, 0.5])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: KLBall(-0.1), "radius must be a number >= 0, got -0.1"),
        (lambda: KLBall(math.nan), "radius must be a number >= 0"),
        (lambda: KLBall(math.inf), "radius must be a number >= 0"),
        (lambda: KLBall(True), "radius must be a number >= 0, got True"),
        (lambda: KLBall("1"), "radius must be a number >= 0, got '1'"),
        (lambda: ChiSquareBall(-1), "radius must be a number >= 0"),
        (lambda: ChiSquareBall(None), "radius must be a number >= 0"),
        (lambda: Ellipsoid(np.ones(2), -1), "radius must be a number >= 0"),
        (lambda: Ellipsoid(np.ones(2), [0.1]), "radius must be a number >= 0"),
        (lambda: Ellipsoid([1.0, 0.0], 0.1), "shape must be positive, got 0 for client 1"),
        (lambda: Ellipsoid([1.0, -2.0], 0.1), "shape must be positive, got -2"),
        (lambda: Ellipsoid([1.0, math.nan], 0.1), "shape must be finite"),
        (lambda: Ellipsoid(["a", "b"], 0.1), "shape must be numbers"),
        (lambda: Ellipsoid([True, True], 0.1), "shape must be numbers"),
        (lambda: Ellipsoid(2.0, 0.1), "shape must be a vector or a square matrix"),
        (lambda: Ellipsoid([], 0.1), "shape must be a vector or a square matrix"),
        (lambda: Ellipsoid(np.ones((2, 3)), 0.1), "shape must be a vector or a square matrix"),
        (lambda: Ellipsoid([[1.0, 0.5], [0.4, 1.0]], 0.1), "symmetric matrix"),
        (
            lambda: Ellipsoid([[1.0, 2.0], [2.0, 1.0]], 0.1),
            "positive definite, got a least eigenvalue of -1",
        ),
        (lambda: Ellipsoid(np.ones(2), 0.1).at([1, 1, 1]), "shape must have 3 numbers or 3 x 3"),
        (lambda: Ellipsoid(np.ones(2), 0.1).value(np.ones(3)), "shape must have 3 numbers"),
        (
            lambda: Ellipsoid({"a": 1.0}, 0.1).at([1, 1], ["a", "b"]),
            "exactly one entry for each client",
        ),
        (
            lambda: Ellipsoid({"a": 1.0, "b": 2.0}, 0.1).value(np.ones(2)),
            r"call ellipsoid.at\(sizes, names\) first",
        ),
        (
            lambda: Ellipsoid({"a": 1.0, "b": -2.0}, 0.1).at([1, 1], ["a", "b"]),
            "shape must be positive",
        ),
        (lambda: KLBall(0.1, [0.5, 0.4]).at([1, 1]), "sum to one, got 0.9: divide"),
        (lambda: KLBall(0.1, [1.5, -0.5]).at([1, 1]), "prior must be >= 0"),
        (
            lambda: ChiSquareBall(0.1, [0.5, 0.5]).at([1, 1, 1]),
            "prior must be a vector of 3 numbers",
        ),
        (lambda: KLBall(0.1, PRIOR).value(np.ones(2)), "prior must be a vector of 2 numbers"),
        (lambda: KLBall(0.1).value(np.array([1.0, math.nan])), "losses must be finite"),
        (lambda: ChiSquareBall(0.1).worst(np.array([1.0, math.inf])), "losses must be finite"),
        (lambda: Ellipsoid(np.eye(2), 0.1).project(np.array([math.nan, 0.0])), "v must be finite"),
        (lambda: KLBall(0.1).worst(np.array([-1.7e308, 1.7e308])), "losses must differ by less"),
        (
            lambda: ChiSquareBall(0.1).worst(np.array([-1.7e308, 1.7e308])),
            "losses must differ by less",
        ),
        (
            lambda: Ellipsoid(np.eye(2), 0.1).worst(np.array([-1.7e308, 1.7e308])),
            "losses must differ by less",
        ),
        (lambda: KLBall(0.1).prox(np.ones(2), -1.0), "step must be a number >= 0"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_public_names():
    assert (bf.KLBall, bf.ChiSquareBall, bf.Ellipsoid) == (KLBall, ChiSquareBall, Ellipsoid)
    assert Simplex().value(PRIOR) == KLBall(9.0).value(PRIOR)
