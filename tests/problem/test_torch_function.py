"""Constraints by torch functions: the same numbers as by hand; with torch absent an error that says
what to install.
"""

import importlib.util
import sys
from dataclasses import replace

import numpy as np
import pytest
from constrained_oracles import ball, ball_hessian, federation
from numpy.testing import assert_allclose, assert_array_equal
from problems import PLAIN

import bonafed as bf
from bonafed.problem.client_means import hessians
from bonafed.problem.constraints.constraint import Point
from bonafed.problem.constraints.custom import TorchConstraint

if importlib.util.find_spec("torch"):
    import torch
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)

FED = federation()
W = np.array([0.3, -0.2, 0.5, 0.1])


def by_torch(w, X, y):
    """``ball`` of constrained_oracles."""
    return torch.stack([w @ w - 1, torch.exp(X @ w / 2).mean() - 2])


def stacks(fed=FED, intercept=False):
    """The constraint by torch and by hand, each with its problem and data."""
    for stated in (
        TorchConstraint(by_torch, 2, convex=True),
        bf.Constraint(ball, 2, convex=True, hessian=ball_hessian),
    ):
        yield bf.Problem(bf.Logistic(), PLAIN, local_constraint=stated).at(fed)


@needs_torch
@pytest.mark.parametrize("sparse", [False, True])
def test_derivatives_are_those_by_hand(sparse):
    (problem, fed), (hand, _) = stacks(federation(sparse=sparse))
    mu = np.random.default_rng(0).uniform(0, 2, (5, 2))
    for block in fed.blocks(3):
        n = len(block.names)
        for w in (W, W + 0.1 * np.arange(4 * n).reshape(n, 4)) if not sparse else (W,):
            at, other = Point(problem, w, block), Point(hand, w, block)
            assert_allclose(
                problem.local_constraint.values(at), hand.local_constraint.values(other), rtol=1e-13
            )
            assert_allclose(
                problem.local_constraint.jacobian(at),
                hand.local_constraint.jacobian(other),
                rtol=1e-13,
            )
            found, expected = (
                hessians(p, np.zeros(n), [(p.problem.local_constraint, mu[block.index])], False)
                for p in (at, other)
            )
            assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    assert problem.local_constraint.convex
    assert not replace(TorchConstraint(by_torch, 2)).at(problem, fed).convex


@needs_torch
def test_affine_and_constant_functions_have_no_curvature():
    def flat(w, X, y):
        return torch.stack([w[0] - 2 * w[3], 0 * w.sum() + 3.0, X.mean(0) @ w])

    problem, fed = bf.Problem(bf.Logistic(), PLAIN, local_constraint=TorchConstraint(flat, 3)).at(
        FED
    )
    at = Point(problem, W, fed.block(0))
    assert_allclose(problem.local_constraint.jacobian(at)[0, 0], [1, 0, 0, -2])
    assert_array_equal(problem.local_constraint.jacobian(at)[0, 1], 0)
    assert_array_equal(
        problem.local_constraint.curvature(at, np.ones((1, 3)))[1], np.zeros((1, 4, 4))
    )


@needs_torch
def test_interior_point_and_the_central_method_take_it():
    def small(w, X, y):
        return w @ w - 0.04

    stated = TorchConstraint(small, convex=True, words=("size of the model",))
    hand = bf.Constraint(
        lambda w, X, y: (w @ w - 0.04, 2 * w),
        convex=True,
        hessian=lambda w, X, y, m: 2 * m[0] * np.eye(4),
    )
    values = []
    for constraint in (stated, hand):
        problem = bf.Problem(bf.Logistic(), PLAIN, local_constraint=constraint)
        values.append(bf.CentralisedAL(tol=1e-8).solve(problem, FED))
    assert_allclose(values[0].w, values[1].w, atol=1e-12)
    problem = bf.Problem(bf.Logistic(), PLAIN, local_constraint=stated)
    solution = bf.solve(problem, FED, algorithm=bf.InteriorPoint())
    assert_allclose(solution.w, values[0].w, atol=1e-5)
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert problem.violation(solution.w, FED) <= 1e-6


@needs_torch
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda w, X, y: w.detach().sum().item(), "made of torch operations on w, got float"),
        (lambda w, X, y: torch.tensor(w.detach().numpy().sum()), "got a tensor without gradient"),
        (lambda w, X, y: w.sum().float(), "must compute in float64, got torch.float32"),
        (lambda w, X, y: w, r"must return values \(1,\) and a Jacobian \(1, 4\), got \(4,\)"),
        (lambda w, X, y: (w * np.nan).sum(), "not finite"),
    ],
)
def test_functions_without_derivatives_are_refused(function, words):
    with pytest.raises(ValueError, match=words):
        bf.Problem(bf.Logistic(), PLAIN, local_constraint=TorchConstraint(function)).violation(
            W, FED
        )


@needs_torch
def test_data_cannot_be_changed():
    def greedy(w, X, y):
        X.zero_()
        return w.sum()

    before = [x.copy() for x in FED.X]
    bf.Problem(bf.Logistic(), PLAIN, local_constraint=TorchConstraint(greedy)).violation(W, FED)
    for x, kept in zip(FED.X, before, strict=True):
        assert_array_equal(x, kept)


def test_without_torch_the_error_names_the_extra(monkeypatch):
    # what Python takes for a module that is not there
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[torch\]'"):
        TorchConstraint(lambda w, X, y: w.sum())


@needs_torch
def test_sizes_are_checked_at_once():
    with pytest.raises(ValueError, match="whole size >= 1"):
        TorchConstraint(by_torch, 0)
