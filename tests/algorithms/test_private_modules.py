"""Private torch modules: whole gradients that depend on one row, the budget, and their use.

``test_rounding_*`` need no torch.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import bonafed as bf
from bonafed.algorithms.federated.private.mechanism import Mechanism
from bonafed.algorithms.federated.private.noisy_gradient import rounded, whole_sum

BUDGET = bf.Budget(epsilon=2.0, delta=1e-5)


def mechanism(kind: str, clip: float) -> Mechanism:
    one = np.ones(1)
    return Mechanism(kind, 3.0, clip, np.inf, one, one, 10, "simulation", False, 2)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("size", [1, 7, 500])
def test_rounding_is_inside_the_sensitivity(kind: str, size: int) -> None:
    """In Python's integers: never longer than ``steps``, and near the clipped gradient."""
    rng, plan = np.random.default_rng(size), mechanism(kind, 0.3)
    order = 1 if kind == "laplace" else 2
    for scale in (1e-300, 1e-12, 0.01, 0.3, 1.0, 1e12, 1e300, 1e307):
        for g in (scale * rng.normal(size=size), np.full(size, scale)):
            k = rounded(g, 0.3, plan.grid(0))
            long = sum(abs(int(n)) ** order for n in k)
            assert long <= plan.steps**order
            with np.errstate(over="ignore"):  # of the norm
                way = g / np.abs(g).max()
                norm = float(np.abs(g).max() * np.linalg.norm(way, order))
            expected = way / np.linalg.norm(way, order) * min(norm, 0.3)
            close = 1.5e-6 * 0.3 + 0.5 * 0.3 / plan.steps
            np.testing.assert_allclose(k * (0.3 / plan.steps), expected, rtol=0, atol=close)


def test_rounding_counts_rows_that_are_not_finite_for_nothing() -> None:
    for bad in (np.inf, -np.inf, np.nan):
        assert not rounded(np.array([1.0, bad]), 1.0, mechanism("gaussian", 1.0).grid(0)).any()
    assert not rounded(np.zeros(3), 1.0, mechanism("gaussian", 1.0).grid(0)).any()


# ---- with torch


def module(*widths: int, double: bool = True) -> Any:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers: list[Any] = []
    for before, after in pairwise(widths):
        layers += [torch.nn.Linear(before, after), torch.nn.Tanh()]
    net = torch.nn.Sequential(*layers[:-1])
    return bf.TorchPredictor(net.double() if double else net, device="cpu")


def checkerboard(m: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).uniform(-1, 1, (m, 2))
    return X, np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0)


def federation(m: int) -> bf.Federation:
    X, y = checkerboard(m)
    return bf.Federation.from_arrays(X, y, np.where(np.arange(m) % 2, "a", "b"))


@pytest.mark.parametrize("double", [True, False])
def test_a_row_is_a_whole_vector_of_its_own(double: bool) -> None:
    """A sum without a row differs from that with it by what the row alone has, in any order."""
    net, rng = module(5, 9, 1, double=double), np.random.default_rng(3)
    X, y = rng.normal(size=(21, 5)), np.sign(rng.normal(size=21))
    v, plan = net.start(5) + 0.1 * rng.normal(size=net.dimension(5)), mechanism("gaussian", 0.3)

    def summed(rows: list[int]) -> np.ndarray:
        fed = bf.Federation(["a"], [X[rows]], [y[rows]], classes=(-1.0, 1.0))
        problem, data = bf.Problem(bf.Logistic(), net).at(fed)
        return whole_sum(problem, plan.clip, plan.grid(0), v, data.block(0), 0)

    alone = [summed([i]) for i in range(21)]
    assert all(int((k * k).sum()) <= plan.steps**2 for k in alone)
    everything = list(range(21))
    np.testing.assert_array_equal(summed(everything), sum(alone))
    np.testing.assert_array_equal(summed(everything[::-1]), sum(alone))
    for gone in (0, 7, 20):
        rest = [i for i in everything if i != gone]
        np.testing.assert_array_equal(summed(everything) - summed(rest), alone[gone])


@pytest.mark.parametrize("clip", [None, 0.2])
def test_without_noise_it_is_descent_by_autograd(clip: float | None) -> None:
    torch = pytest.importorskip("torch")
    net, fed = module(2, 4, 1), federation(40)
    method = bf.PrivateSGD(max_rounds=3, length=2.0, clip=clip)
    found = bf.solve(
        bf.Problem(bf.Logistic(), net, over_clients=bf.Mean("size")), fed, algorithm=method
    )
    X, y = (torch.tensor(np.concatenate(parts)) for parts in (fed.X, fed.y))
    w = torch.tensor(net.start(2), requires_grad=True)
    for t in range(3):
        total = torch.zeros_like(w)
        for x, sign in zip(X, y, strict=True):
            loss = torch.nn.functional.softplus(-sign * net._call(w, x[None]).squeeze())
            (g,) = torch.autograd.grad(loss, w)
            total += g if clip is None else g * min(1.0, clip / float(g.norm()))
        w = (w - 4 / 3 * (1 - t / 3) * total / 40).detach().requires_grad_(True)
    np.testing.assert_allclose(found.w, w.detach().numpy(), rtol=0, atol=1e-12)


def test_a_private_network_learns_what_no_line_can() -> None:
    """Both within (2, 1e-5); the line errs on a third of the checkerboard at least."""
    torch = pytest.importorskip("torch")
    net, fed = module(2, 12, 1), federation(500)
    X, y = checkerboard(400, seed=2)
    method = bf.PrivateSGD(max_rounds=15, noise="simulation")
    problem = bf.Problem(bf.Logistic(), privacy=BUDGET)
    line = bf.solve(problem, fed, algorithm=method)
    found = bf.solve(replace(problem, predictor=net), fed, algorithm=method)
    assert line.ledger.epsilon == found.ledger.epsilon <= 2
    score = net.trained(found.w)(torch.tensor(X)).detach().numpy()[:, 0]
    assert ((score > 0) != (y > 0)).mean() <= 0.25
    assert ((X @ line.w[:2] + line.w[2] > 0) != (y > 0)).mean() >= 0.33


def test_the_default_method_of_a_private_module_and_classes() -> None:
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    fed = bf.Federation.from_arrays(rng.normal(size=(60, 2)), rng.integers(0, 3, 60), ["a"] * 60)
    found = bf.solve(
        bf.Problem(bf.Multinomial(), module(2, 3, double=False), privacy=BUDGET),
        fed,
        algorithm=bf.PrivateSGD(max_rounds=2),
    )
    assert found.ledger.guarantee
    assert found.ledger.epsilon <= 2
    assert found.public().w.shape == found.w.shape


def test_what_a_private_module_must_not_be() -> None:
    torch = pytest.importorskip("torch")
    fed = federation(20)
    mixing = torch.nn.Sequential(
        torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1)
    )
    problem = bf.Problem(bf.Logistic(), bf.TorchPredictor(mixing, device="cpu"), privacy=BUDGET)
    with pytest.raises(ValueError, match=r"1 \(BatchNorm1d\) computes means over rows"):
        bf.solve(problem, fed, algorithm=bf.PrivateSGD())
    problem = replace(problem, predictor=module(2, 3, 1))
    with pytest.raises(ValueError, match="bounds no gradient of a module: give clip"):
        bf.solve(problem, fed, algorithm=bf.PrivateSGD(bound=1.0))
    with pytest.raises(ValueError, match="PrivateADMM needs predictions that are affine"):
        bf.solve(problem, fed, algorithm=bf.PrivateADMM())
