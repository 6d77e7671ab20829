"""Superquantiles and step spectra of the rows of all clients by cuts in model and thresholds."""

from __future__ import annotations

import warnings
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from limit_programs import losses
from numpy.testing import assert_allclose
from rank_programs import by_rank
from toy import federation

import bonafed as bf
from bonafed.problem.parts import Parts, least_rows
from bonafed.problem.rank_levels import AboveThresholds, WithThresholds, highest, levels_of, lifted


def rows(loss, n: int = 600, d: int = 10):
    """X and y of rows, sorted by their first feature."""
    rng = np.random.default_rng(1)
    X, w = rng.standard_normal((n, d)), rng.standard_normal((d, 3))
    X = X[np.argsort(X[:, 0])]
    score = X @ w / np.sqrt(d) + 0.3 * rng.standard_normal((n, 3))
    y = {
        "sign": np.where(score[:, 0] > 0, 1.0, -1.0),
        "real": score[:, 0],
        "class": score.argmax(1),
    }[loss.targets]
    return X, np.round(np.exp(y)) if isinstance(loss, bf.Poisson) else y


def clients(X, y, N: int = 10) -> bf.Federation:
    """N clients whose rows differ in the first feature."""
    return bf.Federation.from_arrays(X, y, np.arange(len(y)) * N // len(y))


def central(problem, X, y) -> float:
    """The optimal value by Clarabel."""
    d, several = X.shape[1], problem.loss.targets == "class"
    W, b = (
        (cp.Variable((d, 3)), cp.Variable((1, 3))) if several else (cp.Variable(d), cp.Variable())
    )
    prediction = X @ W + (np.ones((len(y), 1)) @ b if several else b)
    z = cp.Variable(len(y))
    risk = by_rank(problem.over_rows.rank_weights(len(y)), z)
    risk, of_ranks = risk if isinstance(risk, tuple) else (risk, [])
    h, square = problem.regulariser, cp.sum_squares(W) + (cp.sum_squares(b) if several else 0.0)
    cost = h.strength / 2 * square if isinstance(h, bf.L2) else h.strength * cp.norm1(W)
    program = cp.Problem(
        cp.Minimize(risk + cost), [z >= losses(problem.loss, prediction, y), *of_ranks]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        program.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return float(program.value)


def ranked(loss, risk, regulariser=None) -> bf.Problem:
    return bf.Problem(loss, over_rows=risk, regulariser=regulariser or bf.L2(1e-2))


PROBLEM = ranked(bf.Hinge(), bf.Superquantile(0.5))


@pytest.mark.parametrize("tail", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("loss", [bf.Hinge(), bf.Absolute(), bf.Quantile(0.3)], ids=str)
@pytest.mark.parametrize("cuts", [30, 60])
def test_equals_the_optimum_of_pooled_rows(loss, tail, cuts):
    X, y = rows(loss)
    problem = ranked(loss, bf.Superquantile(tail))
    solution = bf.solve(problem, clients(X, y), algorithm=bf.Bundle(cuts=cuts), tol=1e-9)
    proof = solution.certificate
    assert solution.outcome.stop is bf.Stop.OPTIMAL, solution.outcome.text
    assert solution.rounds <= (40 if cuts == 30 else 25)
    assert proof.relative_gap <= 1e-9
    expected = central(problem, X, y)
    assert proof.value == pytest.approx(expected, rel=1e-8)
    assert proof.bound <= expected * (1 + 1e-9)
    assert proof.value == pytest.approx(problem.objective(solution.w, clients(X, y)), rel=1e-12)


STEPS = np.repeat([0.2, 1.0, 4.0], 40)


@pytest.mark.parametrize(
    ("loss", "risk", "regulariser"),
    [
        (bf.Hinge(), bf.TopK(13), bf.L1(1e-2)),
        (bf.Absolute(), bf.Maximum(), None),
        (bf.Absolute(), bf.Superquantile(1.0), None),
        (bf.Absolute(), bf.Spectral(STEPS / STEPS.sum()), None),
        (bf.Hinge(), bf.Spectral(STEPS / STEPS.sum()), bf.L1(1e-2)),
        (bf.EpsilonInsensitive(0.2), bf.Superquantile(0.2), None),
        (bf.Logistic(), bf.Superquantile(0.2), bf.L1(1e-2)),
        (bf.Poisson(), bf.Superquantile(0.3), None),
        (bf.Multinomial(), bf.Superquantile(0.3), None),
    ],
    ids=str,
)
def test_other_steps_losses_and_regularisers(loss, risk, regulariser):
    X, y = rows(loss, 120, 3)
    problem = ranked(loss, risk, regulariser)
    method = None if loss.targets != "real" or not loss.smooth else bf.Bundle()
    solution = bf.solve(problem, clients(X, y, 4), algorithm=method)
    assert solution.outcome.stop is bf.Stop.OPTIMAL, solution.outcome.text
    assert solution.certificate.relative_gap <= 1e-6
    assert solution.certificate.value == pytest.approx(central(problem, X, y), rel=2e-6)


def test_names_of_classes_prove_what_their_numbers_do():
    X, y = rows(bf.Multinomial(), 60, 2)
    problem = ranked(bf.Multinomial(), bf.Superquantile(0.3), None)
    names = np.array(["one", "two", "zero"])[y.astype(int)]
    proofs = [bf.solve(problem, clients(X, of)).certificate for of in (y, names)]
    assert proofs[1].relative_gap <= 1e-6
    assert proofs[1].value == pytest.approx(proofs[0].value, rel=1e-6)


def test_it_is_the_default_where_second_derivatives_do_not_tell():
    X, y = rows(bf.Hinge(), 120, 3)
    fed = clients(X, y)
    assert "cuts" in bf.solve(PROBLEM, fed).history[-1]
    smooth = replace(PROBLEM, loss=bf.Logistic())
    assert "cuts" not in bf.solve(smooth, fed).history[-1]


FED = federation((20, 35, 12, 28, 9), 4)
BEST = bf.solve(PROBLEM, FED, tol=1e-9)


def test_forged_duals_prove_nothing_above_the_optimum():
    rng, honest = np.random.default_rng(1), BEST.duals
    for turn in range(60):
        forged = {
            name: getattr(honest, name) * rng.uniform(0, 3, getattr(honest, name).shape)
            + (turn % 3) * 0.1 * rng.standard_normal(getattr(honest, name).shape)
            for name in ("points", "multipliers", "weights")
            if rng.uniform() < 0.6
        }
        proof = bf.certify(PROBLEM, FED, BEST.w, replace(honest, **forged))
        assert proof.bound is None or proof.bound <= BEST.certificate.value
        assert proof.value == BEST.certificate.value
    for w in 0.3 * rng.standard_normal((20, 5)):
        proof = bf.certify(PROBLEM, FED, w, honest)
        assert proof.bound <= PROBLEM.objective(w, FED)
        assert proof.bound == pytest.approx(BEST.certificate.bound, rel=1e-3)


def test_forged_multipliers_prove_nothing_above_the_constrained_optimum():
    row = np.array([1.0, 1.0, 0.0, 0.0, 0.0])
    held = {"constraint": bf.LinearInequality(row, 0.2)}
    mean = {"constraint": bf.Coupled(bf.NeymanPearson(1.0, 0.02))}
    rng = np.random.default_rng(2)
    for slots in (held, mean):
        problem = replace(PROBLEM, **slots)
        best = bf.solve(problem, FED, tol=1e-9)
        assert best.outcome.stop is bf.Stop.OPTIMAL, best.outcome.text
        assert best.certificate.value > BEST.certificate.value * 1.001  # the limit binds
        for turn in range(60):
            size = (1.0, 1e4, 1e11)[turn % 3]
            forged = {}
            for name in ("points", "risk_cuts", "limit_cuts", "weights"):
                true = getattr(best.duals, name)
                noise = 0.1 * (turn % 2) * size * rng.standard_normal(true.shape)
                if rng.uniform() < 0.6:
                    forged[name] = true * rng.uniform(0, 3, true.shape) + noise
            proof = bf.certify(problem, FED, best.w, replace(best.duals, **forged))
            assert proof.bound is None or proof.bound <= best.certificate.value
            assert proof.value == best.certificate.value


def test_the_certificate_needs_the_model_and_its_cuts_alone():
    again = bf.certify(PROBLEM, FED, BEST.w, BEST.duals)
    assert again.bound == pytest.approx(BEST.certificate.bound, rel=1e-12)
    alone = bf.certify(PROBLEM, FED, BEST.w)
    assert alone.bound is None or alone.bound <= again.bound
    with pytest.raises(ValueError, match="Duals as duals, got Multipliers"):
        bf.certify(PROBLEM, FED, BEST.w, bf.Multipliers(*[np.zeros(0)] * 2, np.zeros((5, 0))))


def test_the_mean_over_thresholds_is_the_risk_at_the_best_of_them():
    concrete, fed = PROBLEM.at(FED)
    problem, w = lifted(concrete), np.array([0.3, -0.2, 0.5, 0.1, 0.2])
    risk = concrete.over_rows.value(concrete.row_losses(w, fed))
    etas = np.linspace(0.0, 3.0, 601)
    values = [problem.objective(np.append(w, eta), fed) for eta in etas]
    assert min(values) == pytest.approx(risk + concrete.penalty(w), rel=1e-5)
    assert min(values) >= risk + concrete.penalty(w) - 1e-12
    assert etas[int(np.argmin(values))] <= highest(problem, min(values))
    # gradients of two models of different sides, by differences
    block = fed.block(1)
    for eta in (0.4, 1.3):
        v = np.append(w, eta)
        cut = problem.cut(v, block)
        ahead, behind = (
            [problem.cut(v + s * e, block).base[0] for e in 1e-7 * np.eye(6)] for s in (1, -1)
        )
        assert_allclose(cut.gradient[0], (np.array(ahead) - behind) / 2e-7, atol=1e-6)


def test_a_concrete_problem_has_the_tail_of_its_rows():
    for risk, tail in ((bf.TopK(3), 3 / 104), (bf.Maximum(), 1 / 104), (bf.Superquantile(1.0), 1)):
        concrete, fed = replace(PROBLEM, over_rows=risk).at(FED)
        assert concrete.over_rows.tail == pytest.approx(tail, rel=1e-15)
        assert concrete.over_clients.prior == pytest.approx(fed.sizes / 104)
        assert concrete.at(fed)[0].over_rows == concrete.over_rows
    of = levels_of(PROBLEM.at(FED)[0])
    assert AboveThresholds(bf.Hinge(), of).value(np.array([[[0.0, 2.0]]]), np.ones((1, 1))) == 2.0
    assert WithThresholds(bf.Linear(), 2).dimension(3) == 6


def test_groups_count_as_many_rows_as_are_above_a_threshold():
    concrete, fed = replace(PROBLEM, over_rows=bf.Superquantile(0.25)).at(FED)
    block, parts = fed.block(1), Parts(4, 8, 0)  # 35 rows in four groups
    assert least_rows(replace(concrete, over_rows=None), block, parts) == 8
    assert least_rows(concrete, block, parts) == 2
