"""Torch modules as predictors: the laws of all predictors, our perceptron to rounding, and what is
refused.
"""

import importlib.util
import itertools
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from predictor_laws import LAWS, block, federation, models, pushes

import bonafed as bf
from bonafed.engines.checkpoint import CheckpointError, describe
from bonafed.problem.predictors.mlp import MLP
from bonafed.problem.predictors.torch_module import TorchPredictor
from bonafed.solution.solve import judged

INSTALLED = importlib.util.find_spec("torch") is not None
if INSTALLED:
    import torch
    from torch import nn
needs_torch = pytest.mark.skipif(not INSTALLED, reason="torch is not installed")


def net(*sizes, seed=0):
    """Linear layers with tanh between them, in float64: a perceptron as ours."""
    torch.manual_seed(seed)
    layers = [part for a, b in itertools.pairwise(sizes) for part in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1]).double()


class Squeezed(nn.Module if INSTALLED else object):
    """Gives (m,), has an affine normalisation, a parameter of no dimension, one that is frozen, and
    dropout.
    """

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.norm, self.drop = nn.Linear(4, 6), nn.LayerNorm(6), nn.Dropout(0.5)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.fixed = nn.Parameter(torch.arange(6.0), requires_grad=False)
        self.double()

    def forward(self, X):
        return (
            (self.drop(torch.nn.functional.softplus(self.norm(self.first(X)))) * self.scale)
            @ self.fixed
            / 6
        )


class Unbatched(nn.Module if INSTALLED else object):
    """What torch.func cannot batch: control flow that looks at the parameters."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.first = nn.Linear(4, 1).double()

    def forward(self, X):
        if float(self.first.bias.detach()) > 100:
            return X.sum(1)
        return torch.sin(self.first(X))


def convolutions():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 2), nn.Softplus(), nn.Flatten(), nn.Linear(3, 3)
    )


MODULES = {
    "perceptron": lambda: (net(4, 5, 1), None),
    "perceptron of three classes": lambda: (net(4, 6, 5, 3), 3),
    "all kinds of parameters": lambda: (Squeezed(), None),
    "cannot be batched": lambda: (Unbatched(), None),
    "convolutions": lambda: (convolutions().double(), 3),
}


@needs_torch
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", MODULES)
def test_law(law, name):
    module, classes = MODULES[name]()
    law(TorchPredictor(module).sized(4, classes))


@needs_torch
@pytest.mark.parametrize(("sizes", "classes"), [((4, 5, 1), None), ((4, 6, 5, 3), 3), ((4, 3), 3)])
def test_the_same_flat_vector_is_our_perceptron(sizes, classes):
    ours, theirs = MLP(sizes[1:-1], classes=classes), TorchPredictor(net(*sizes)).sized(4, classes)
    data = block()
    s = pushes(ours, data)
    assert ours.dimension(4) == theirs.dimension(4)
    assert ours.intercept == theirs.intercept
    for w in (models(ours), models(ours)[0]):
        assert_allclose(theirs.forward(w, data), ours.forward(w, data), rtol=1e-10, atol=1e-12)
        assert_allclose(
            theirs.backward(w, s, data), ours.backward(w, s, data), rtol=1e-10, atol=1e-12
        )


@needs_torch
def test_a_run_with_it_is_a_run_with_our_perceptron():
    """Same start, same stochastic steps, same model, same certificate."""
    fed, module = federation().pooled(), net(4, 5, 1)
    theirs = TorchPredictor(module)
    steps = bf.SGD(learning_rate=0.1, batch=8, max_rounds=20, start=theirs.start(4))
    found = [
        bf.solve(bf.Problem(bf.Logistic(), p, regulariser=bf.L2(0.01)), fed, algorithm=steps)
        for p in (theirs, MLP((5,)))
    ]
    assert_allclose(found[0].w, found[1].w, rtol=1e-9)
    for name in ("value", "stationarity", "gradient_scale"):
        a, b = (getattr(solution.certificate, name) for solution in found)
        assert a == pytest.approx(b, rel=1e-9)
    assert found[0].certificate.bound is None
    assert "TorchPredictor of" not in found[0].outcome.text
    assert "TorchPredictor is not convex" in found[0].outcome.text


@needs_torch
def test_the_module_comes_back_trained_and_is_never_written_to():
    module = net(4, 5, 3)
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    predictor = TorchPredictor(module).sized(4, 3)
    w, data = models(predictor)[0], block()
    expected = predictor.forward(w, data)
    trained = predictor.trained(w)
    assert_allclose(trained(torch.from_numpy(data.X)).detach().numpy(), expected, rtol=1e-13)
    for name, p in module.named_parameters():
        assert torch.equal(p, before[name])
    assert module.training
    with torch.no_grad():
        module[0].weight.zero_()  # theirs is not ours
    assert_array_equal(predictor.forward(w, data), expected)
    with pytest.raises(ValueError, match="finite numbers"):
        predictor.trained(w[:-1])


@needs_torch
def test_weights_come_first_and_all_else_is_free():
    predictor = TorchPredictor(Squeezed()).sized(4, None)
    own, free = predictor.split(predictor.start(4))
    assert (own.shape, free.shape) == ((24,), (6 + 6 + 6 + 1,))
    assert_array_equal(own, Squeezed().first.weight.detach().numpy().ravel())
    assert 1.5 in free
    assert "fixed" not in str(predictor._parts)


@needs_torch
def test_dropout_and_batch_statistics_do_not_make_predictions_random():
    module = nn.Sequential(
        nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 1)
    ).double()
    predictor, data = TorchPredictor(module).sized(4, None), block()
    w = models(predictor)
    assert_array_equal(predictor.forward(w, data), predictor.forward(w, data))
    assert_allclose(
        predictor.forward(w, data)[1],
        predictor.forward(w[1], data.part(np.array([1])))[0],
        rtol=1e-12,
    )


@needs_torch
def test_single_precision_is_used_where_the_module_has_it():
    double, single = net(4, 5, 1), net(4, 5, 1).float()
    data = block()
    a, b = (TorchPredictor(module).sized(4, None) for module in (double, single))
    w = models(a)
    assert b.forward(w, data).dtype == np.float64
    gap = np.abs(a.forward(w, data) - b.forward(w, data)).max()
    assert 1e-9 < gap < 1e-5
    s = pushes(a, data)
    assert b.backward(w, s, data).dtype == np.float64
    assert_allclose(b.backward(w, s, data), a.backward(w, s, data), rtol=1e-4, atol=1e-5)


@needs_torch
def test_rows_are_moved_once(monkeypatch):
    predictor, data, seen = TorchPredictor(net(4, 5, 1).float()).sized(4, None), block(), []
    original = TorchPredictor._tensor
    monkeypatch.setattr(
        TorchPredictor,
        "_tensor",
        lambda self, values: (seen.append(np.shape(values)), original(self, values))[1],
    )
    for _ in range(3):
        predictor.forward(models(predictor), data)
    assert seen.count(data.X.shape) == 1
    assert len(seen) > 3


@needs_torch
def test_it_is_described_alike_in_every_process_and_by_its_values():
    code = (
        "import torch, bonafed as bf; from bonafed.engines.checkpoint import describe;"
        " torch.manual_seed(0); m = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(),"
        " torch.nn.Linear(5, 1)).double(); print(describe(bf.Problem(bf.Logistic(),"
        " bf.TorchPredictor(m))))"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **seed},
        ).stdout.strip()
        for seed in ({"PYTHONHASHSEED": "0"}, {"PYTHONHASHSEED": "1"})
    }
    assert runs == {describe(bf.Problem(bf.Logistic(), TorchPredictor(net(4, 5, 1))))}
    assert describe(TorchPredictor(net(4, 5, 1))) != describe(TorchPredictor(net(4, 5, 1, seed=1)))
    frozen = net(4, 5, 1)
    frozen[0].weight.requires_grad_(False)
    assert describe(TorchPredictor(net(4, 5, 1))) != describe(TorchPredictor(frozen))
    relu = nn.Sequential(
        *[nn.ReLU() if isinstance(part, nn.Tanh) else part for part in net(4, 5, 1)]
    )
    assert describe(TorchPredictor(net(4, 5, 1))) != describe(TorchPredictor(relu))


@needs_torch
def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    fed = federation().pooled()
    problem = bf.Problem(bf.Logistic(), TorchPredictor(net(4, 5, 1)))
    engine, steps = (
        bf.InProcess(checkpoint=tmp_path / "run.bft"),
        bf.SGD(learning_rate=0.1, batch=8),
    )
    bf.solve(problem, fed, algorithm=steps, engine=engine, max_rounds=6)
    whole = bf.solve(problem, fed, algorithm=steps, max_rounds=6)
    resumed = bf.solve(problem, fed, algorithm=steps, engine=engine, max_rounds=6, resume=True)
    assert_array_equal(resumed.w, whole.w)
    other = replace(problem, predictor=TorchPredictor(net(4, 5, 1, seed=1)))
    with pytest.raises(CheckpointError, match="checkpoint is of"):
        bf.solve(other, fed, algorithm=steps, engine=engine, max_rounds=6, resume=True)


@needs_torch
def test_held_out_rows_of_several_classes():
    fed = federation()
    rng = np.random.default_rng(2)
    fed = bf.Federation(
        fed.clients, fed.X, [rng.integers(0, 3, len(y)) for y in fed.y], classes=np.array([0, 1, 2])
    )
    w = TorchPredictor(net(4, 5, 3)).start(4)
    ours, theirs = (
        judged(bf.Problem(bf.Multinomial(), p), fed, w)
        for p in (MLP((5,)), TorchPredictor(net(4, 5, 3)))
    )
    assert ours.pop("worst_client") == theirs.pop("worst_client")
    assert ours == pytest.approx(theirs, rel=1e-10)


# ---- refusals


@needs_torch
@pytest.mark.parametrize(
    ("make", "loss", "words"),
    [
        (
            lambda: net(4, 5, 3),
            "Logistic",
            r"must predict \(2,\) or \(2, 1\) numbers.*got shape \(2, 3\).*Multinomial",
        ),
        (
            lambda: net(4, 5, 2),
            "Multinomial",
            r"3 classes.*got shape \(2, 2\): change its last layer",
        ),
        (lambda: net(3, 5, 1), "Logistic", "does not take rows of 4 features"),
        (
            lambda: nn.Sequential(net(4, 1), nn.Flatten(0), nn.Unflatten(0, (1, -1))),
            "Logistic",
            r"shape \(1, 2\)",
        ),
    ],
)
def test_modules_that_do_not_fit_the_data_are_refused(make, loss, words):
    fed = federation()
    if loss == "Multinomial":
        fed = bf.Federation(fed.clients, fed.X, [np.arange(len(y)) % 3 for y in fed.y])
    with pytest.raises(ValueError, match=words):
        bf.Problem(getattr(bf, loss)(), TorchPredictor(make())).at(fed)


@needs_torch
def test_modules_that_lose_the_derivative_are_refused():
    class Detached(nn.Linear):
        def forward(self, X):
            return super().forward(X).detach()

    with pytest.raises(ValueError, match="without a derivative"):
        bf.Problem(bf.Logistic(), TorchPredictor(Detached(4, 1))).at(federation())


@needs_torch
def test_what_is_no_module_to_fit_is_refused():
    mixed = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1).double())
    broken = net(4, 1)
    with torch.no_grad():
        broken[0].bias.fill_(float("nan"))
    for module, error, words in (
        (nn.Flatten(), ValueError, "none with requires_grad"),
        (nn.LazyLinear(1), ValueError, "has no shape yet"),
        (mixed, ValueError, "all float32 or all float64"),
        (nn.Linear(4, 1).bfloat16(), ValueError, "all float32 or all float64"),
        (broken, ValueError, "must be finite"),
        (nn.Linear, TypeError, "must be a torch.nn.Module"),
        (lambda X: X, TypeError, "must be a torch.nn.Module"),
    ):
        with pytest.raises(error, match=words):
            TorchPredictor(module)
    with pytest.raises(ValueError, match="classes must be >= 2"):
        TorchPredictor(net(4, 1), classes=1)
    with pytest.raises(ValueError, match="affine in the features"):
        bf.Problem(bf.Logistic(), TorchPredictor(net(4, 1)), bf.WassersteinBall(0.1))


@needs_torch
def test_a_solution_predicts_with_its_module_and_is_read_where_the_module_is_given(tmp_path):
    fed, problem = federation(), bf.Problem(bf.Logistic(), TorchPredictor(net(4, 3, 1)))
    solution = bf.solve(problem, fed, max_rounds=5)
    X = np.vstack(fed.X)
    scores = solution.decision_function(X)
    module = solution.module
    assert_allclose(module(torch.from_numpy(X)).detach().numpy()[:, 0], scores, rtol=1e-12)
    assert module is not problem.predictor.module
    assert len(repr(solution)) <= 2000
    solution.save(tmp_path / "net")
    with pytest.raises(ValueError, match=r"predictor of the problem is TorchPredictor\(.*problem="):
        bf.load(tmp_path / "net")
    again = bf.load(tmp_path / "net", problem=problem)
    assert_array_equal(again.decision_function(X), scores)
    with pytest.raises(ValueError, match="another loss than"):
        bf.load(tmp_path / "net", problem=replace(problem, loss=bf.Exponential()))


@pytest.mark.skipif(INSTALLED, reason="torch is installed")
def test_without_torch_the_error_says_what_to_install():
    with pytest.raises(ImportError, match=r"pip install '\.\[torch\]'.*MLP"):
        TorchPredictor(object())
