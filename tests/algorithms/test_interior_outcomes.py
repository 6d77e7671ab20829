"""What InteriorPoint says of problems without an optimum and of nonconvex ones; the bound asked is
what is measured.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from constrained_oracles import raw_rows, together
from constrained_programs import clients, quadratic, stated
from problems import PLAIN
from scipy.optimize import minimize

import bonafed as bf
from bonafed.problem.client_means import client_gradients, client_values
from bonafed.problem.constraints.constraint import Point
from examples import CONSTRAINTS


def solve(problem, fed, **options):
    """By the interior point method."""
    return bf.solve(problem, fed, algorithm=bf.InteriorPoint(), **options)


# ---- problems without an optimum


def test_contradictory_equalities_name_the_clients():
    problem, fed, _ = quadratic(apart=0.5)
    solution = solve(problem, fed)
    assert solution.outcome.stop is bf.Stop.INFEASIBLE
    assert solution.certificate.infeasible > 0
    assert solution.certificate.bound is None
    assert (
        "client 1, client 2" in solution.outcome.text
        or "client 2, client 1" in solution.outcome.text
    )
    assert "client 3" not in solution.outcome.text


def test_both_classes_too_tight():
    fed = clients()
    both = bf.NeymanPearson(0, 0.1), bf.NeymanPearson(1, 0.1)
    solution = solve(replace(stated(fed), local_constraint=both), fed)
    assert solution.outcome.stop is bf.Stop.INFEASIBLE
    assert 0 < solution.certificate.infeasible <= solution.certificate.feasibility
    values = solution.certificate.constraint_values
    least = min(  # no model does better
        minimize(
            lambda w: worst_of(fed, w),
            start,
            method="Nelder-Mead",
            options={"maxiter": 4000, "xatol": 1e-9},
        ).fun
        for start in (solution.w, np.zeros(4))
    )
    assert values.max() >= least - 1e-9
    assert solution.certificate.infeasible <= least + 1e-9


def worst_of(fed, w):
    """The largest excess of a mean loss over 0.1."""
    found = []
    for X, y in zip(fed.X, fed.y, strict=True):
        loss = np.log1p(np.exp(-(2 * y - 1) * (X @ w)))
        found += [loss[y == 0].mean() - 0.1, loss[y == 1].mean() - 0.1]
    return max(found)


def test_a_box_too_small():
    fed = clients()
    solution = solve(stated(fed, level=0.4, h=bf.Bounds(-0.05, 0.05)), fed)
    assert solution.outcome.stop is bf.Stop.INFEASIBLE
    assert np.abs(solution.w).max() <= 0.05
    wide = solve(stated(fed, level=0.5, h=bf.Bounds(-5, 5)), fed)
    assert wide.outcome.stop is bf.Stop.OPTIMAL


@pytest.mark.parametrize("at", [0.0, 3.0])
def test_an_empty_interior_is_no_infeasibility(at):
    fed, e = clients(), np.eye(4)[:1]
    pinned = bf.LinearInequality(np.vstack([e, -e]), [-at, at])
    problem = bf.Problem(bf.Logistic(), PLAIN, constraint=pinned)
    solution = solve(problem, fed)
    equal = solve(replace(problem, constraint=bf.LinearEquality(e, -at)), fed)
    assert solution.outcome.stop in (bf.Stop.OPTIMAL, bf.Stop.STALLED)
    assert solution.certificate.infeasible is None
    if solution.outcome.stop is bf.Stop.OPTIMAL:
        assert solution.certificate.value == pytest.approx(equal.certificate.value, rel=1e-6)


@pytest.mark.parametrize("gap", [1e-3, 1e-4, 1e-6, 1e-9, 0.0, -1e-9, -1e-6, -1e-4, -1e-3])
def test_near_the_edge_of_infeasibility_nothing_wrong_is_claimed(gap):
    """w1 <= 1 and w1 >= 1 + gap."""
    fed, e = clients(), np.eye(4)[:1]
    problem = bf.Problem(
        bf.Logistic(), PLAIN, constraint=bf.LinearInequality(np.vstack([e, -e]), [-1.0, 1.0 + gap])
    )
    stop = solve(problem, fed).outcome.stop
    if gap > 2e-6:  # beyond the tolerance of what counts as met
        assert stop in (bf.Stop.INFEASIBLE, bf.Stop.STALLED)
    if gap <= 0:
        assert stop is not bf.Stop.INFEASIBLE
    if gap <= -1e-6:
        assert stop is bf.Stop.OPTIMAL
    if gap >= 1e-4:
        assert stop is bf.Stop.INFEASIBLE


@pytest.mark.parametrize("loss", [bf.Logistic(), bf.Exponential(), bf.SmoothHinge()])
def test_optima_that_are_not_attained(loss):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = (X[:, 0] > 0).astype(int)
    X[:, 0] += y - 0.5
    fed = bf.Federation.from_arrays(X, y, np.arange(60) % 3)
    solution = solve(stated(fed, loss, level=0.2), fed)
    assert solution.certificate.value <= 1e-6
    assert solution.certificate.feasibility <= 1e-6
    assert solution.certificate.bound == 0.0
    if solution.outcome.stop is bf.Stop.OPTIMAL:
        assert solution.certificate.gap <= 1e-12


def test_problems_without_a_lower_bound_are_unbounded_not_optimal():
    rng = np.random.default_rng(0)
    u = rng.standard_normal((4, 1))
    A, b = [u @ u.T, np.diag([1.0, 0, 0, 0])], [rng.standard_normal(4), rng.standard_normal(4)]
    fed = bf.Federation.from_quadratics(A, b)
    base = bf.Problem(bf.Quadratic(), over_clients=bf.Sum())
    e = np.eye(4)[:1]
    for held in (None, bf.LinearEquality(e, 1.0), bf.LinearInequality(e, 1.0)):
        solution = solve(replace(base, constraint=held), fed)
        assert solution.outcome.stop is bf.Stop.UNBOUNDED
        assert "falls" in solution.outcome.text
        assert solution.certificate.bound is None


@pytest.mark.parametrize("width", [1e3, 1e9, 1e11, 1e13])
def test_wide_boxes_are_not_unbounded(width):
    fed = bf.Federation.from_quadratics([np.zeros((3, 3))], [np.array([1.0, 2.0, -1.0])])
    problem = bf.Problem(
        bf.Quadratic(), over_clients=bf.Sum(), regulariser=bf.Bounds(-width, width)
    )
    solution = solve(problem, fed)
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert solution.certificate.value == pytest.approx(-4 * width, rel=1e-9)


# ---- the bound asked is the quantity measured


LOOSE = {"linear equality", "own linear equality", "coupled own equalities"}


@pytest.mark.parametrize("name", [name for name, example in CONSTRAINTS.items() if example.hessian])
@pytest.mark.parametrize("tight", [0.3, 0.8])
def test_asked_is_measured_from_the_raw_rows(name, tight):
    """Every kind of constraint, its limit a part of what the unconstrained model measures."""
    example = CONSTRAINTS[name]
    slot = "constraint" if example.coupled else "local_constraint"
    problem = replace(example.problem, regulariser=bf.L2(0.05), **{slot: example.stated})
    inner = example.stated.constraint if example.coupled else example.stated
    if hasattr(inner, "level"):
        free = replace(problem, **{slot: None})
        w = bf.solve(free, example.fed, algorithm=bf.InteriorPoint()).w
        raw = raw_rows(example.fed)
        values = (
            [example.measure(w, rows) for rows in raw]
            if not example.coupled
            else [example.measure(w, together(raw))]
        )
        level = tight * float(np.nanmax(np.abs(values)))
        inner = replace(inner, level=level)
        problem = replace(
            problem,
            **{slot: replace(example.stated, constraint=inner) if example.coupled else inner},
        )
    else:
        level = None
    solution = solve(problem, example.fed)
    stop, proof = solution.outcome.stop, solution.certificate
    if stop is bf.Stop.INFEASIBLE:
        assert proof.infeasible > 0
        return
    if stop is bf.Stop.STALLED:  # a smallest violation that no model attains: found, not proved
        assert "could not be proved. Not met: " in solution.outcome.text
        assert proof.feasibility > 0.01
        return
    assert stop in (bf.Stop.OPTIMAL, bf.Stop.UNPROVEN)
    measured, asked = measures(example, solution.w, level)
    equal = name in LOOSE
    over = np.abs(measured - asked) if equal else measured - asked
    assert np.nanmax(over) <= 1e-6
    assert proof.feasibility == pytest.approx(max(float(np.nanmax(over)), 0.0), abs=1e-9)
    for row in solution.constraints:
        assert row["met"]


def measures(example, w, level):
    """(measured, asked) from the raw rows, (N, p) or (p,)."""
    raw = raw_rows(example.fed)
    if not example.coupled:
        measured = np.array([example.measure(w, rows) for rows in raw], float)
        return measured, np.broadcast_to(example.limit if level is None else level, measured.shape)
    if isinstance(example.prior, str):
        measured = np.array(example.measure(w, together(raw)), float)
        return measured, np.broadcast_to(example.limit if level is None else level, measured.shape)
    each = np.array([example.measure(w, rows) for rows in raw], float)
    limit = np.broadcast_to(example.limit if level is None else level, each.shape)
    weight = np.asarray(example.prior)[:, None] * ~np.isnan(each)
    return (weight * np.nan_to_num(each)).sum(0), (weight * np.nan_to_num(limit)).sum(0)


# ---- not convex


def fairness(seed=0, level=0.02):
    """Five clients and a server with a column of two groups."""
    rng = np.random.default_rng(seed)
    n, m = 6, 60
    X = rng.standard_normal((n * m, 5))
    sex = np.where(rng.random(n * m) < 0.4, "f", "m")
    X[:, 0] += sex == "f"
    y = (X @ rng.standard_normal(5) + (sex == "f") + rng.standard_normal(n * m) > 0).astype(int)
    ends = np.arange(1, n) * m
    X, y, sex = np.split(X, ends), np.split(y, ends), np.split(sex, ends)
    fed = bf.Federation(
        [f"bank {i}" for i in range(5)],
        X[:5],
        y[:5],
        columns={"sex": tuple(sex[:5])},
        server=(X[5], y[5], {"sex": sex[5]}),
    )
    gap = bf.LossGap("sex", level)
    return bf.Problem(bf.Logistic(), PLAIN, constraint=gap, local_constraint=gap), fed


@pytest.mark.parametrize(("seed", "level"), [(0, 0.02), (1, 0.05), (2, 0.01)])
def test_loss_gaps_are_near_the_best_of_slsqp(seed, level):
    problem, fed = fairness(seed, level)
    solution = solve(problem, fed)
    concrete, data = problem.at(fed)
    blocks = [data.block(i) for i in range(5)]

    def points(w):
        return [Point(concrete, w, block) for block in blocks]

    def objective(w):
        return (
            np.mean([client_values(at)[0] for at in points(w)]),
            np.mean([client_gradients(at)[0] for at in points(w)], 0),
        )

    def room(w):
        own = np.concatenate([concrete.local_constraint.values(at)[0] for at in points(w)])
        return -np.append(
            own, concrete.constraint.held.values(concrete.constraint.point(concrete, w))[0]
        )

    def gradient(w):
        own = np.concatenate([concrete.local_constraint.jacobian(at)[0] for at in points(w)])
        return -np.vstack(
            [own, concrete.constraint.held.jacobian(concrete.constraint.point(concrete, w))[0]]
        )

    found = []
    for start in range(4):
        w0 = 0.5 * np.random.default_rng(start).standard_normal(5) * (start > 0)
        held = [{"type": "ineq", "fun": room, "jac": gradient}]
        other = minimize(
            objective,
            w0,
            jac=True,
            constraints=held,
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-12},
        )
        found += [other.fun] if room(other.x).min() >= -1e-7 else []
    assert found
    assert solution.outcome.stop is bf.Stop.UNPROVEN
    assert "not convex" in solution.outcome.text
    assert solution.certificate.value <= min(found) * 1.005
    assert solution.certificate.feasibility <= 1e-6
    assert solution.certificate.stationarity <= 1e-6
    owners = [(X, y, sex) for X, y, sex in zip(fed.X, fed.y, fed.columns["sex"], strict=True)]
    served = fed.server
    owners.append((served.X[0], served.y[0], served.columns["sex"][0]))
    for X, y, sex in owners:
        loss = np.log1p(np.exp(-(2 * y - 1) * (X @ solution.w)))
        assert abs(loss[sex == "f"].mean() - loss[sex == "m"].mean()) <= level + 1e-6
