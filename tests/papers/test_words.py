"""Every method, setting and baseline of every paper is reached by one word of its room."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import bonafed as bf
from bonafed.extending import Method
from bonafed.papers import aspire, constrained, dp_iadmm, drfl, rank
from bonafed.papers.constrained import experiments as constrained_studies
from bonafed.papers.dp_iadmm import experiments as private_studies

# (paper, what its text calls it): the word, and what the text says of it
METHODS: dict[tuple[str, str], tuple[Callable[[], Any], dict[str, Any]]] = {
    ("DRFL", "Algorithm 1"): (drfl.ad_lpmm, {"steps": "paper", "c": None, "sample": None}),
    ("DRFL", "min-max"): (drfl.double_loop, {}),
    ("ASPIRE", "ASPIRE-EASE"): (aspire.aspire_ease, {"every": 20, "theory": True, "drop": True}),
    ("ASPIRE", "ASPIRE-CP"): (aspire.aspire_cp, {"drop": False}),
    ("ASPIRE", "ASPIRE-EASE(-)"): (aspire.aspire_synchronous, {"synchronous": True}),
    ("ASPIRE", "ASPIRE-EASE_per"): (aspire.aspire_per, {"local_steps": 5}),
    ("ASPIRE", "ASPIRE-ADP"): (lambda: aspire.aspire_adp()[0], {"theory": True}),
    ("ASPIRE", "ASPIRE-ADP, (36) as printed"): (
        lambda: aspire.aspire_adp(2, as_printed=True)[0],
        {"theory": True},
    ),
    ("ASPIRE", "AFL"): (aspire.afl, {}),
    ("ASPIRE", "DRFA-Prox"): (aspire.drfa_prox, {"strength": 0.1}),
    ("ASPIRE", "FedAvg"): (aspire.fed_avg, {}),
    ("constrained", "5.1"): (
        constrained.proximal_al,
        {"beta": 300.0, "rho": 0.01, "s_bar": 1e-3, "tol": 1e-3, "scaled": False, "memory": 0},
    ),
    ("constrained", "5.2"): (
        lambda: constrained.proximal_al(section="5.2"),
        {"beta": 10.0, "rho": 1e8, "s_bar": 1e-3, "restart": True},
    ),
    ("constrained", "E.2"): (
        lambda: constrained.proximal_al(section="E.2"),
        {"beta": 10.0, "rho": 1.0, "s_bar": 0.1, "q": 1e-9},
    ),
    ("DP-IADMM", "ObjP"): (
        lambda: dp_iadmm.obj_p(0.05, 20_000),
        {"update": "prox", "local_epsilon": 0.05, "rho": bf.Penalty(2.0, 5.0, 1e4, 0.05)},
    ),
    ("DP-IADMM", "ObjT"): (
        lambda: dp_iadmm.obj_t(1.0, 20_000, "femnist"),
        {"radius": "1/t^2", "region": "linf", "rho": bf.Penalty(0.005, 0.05, 2e3, 1.0)},
    ),
    ("DP-IADMM", "OutP"): (
        lambda: dp_iadmm.out_p_printed(0.1, 20_000),
        {"update": "prox", "eta": None, "output": True, "rho": bf.Penalty(2.0, 5.0, 1e4, 0.1)},
    ),
    ("DP-IADMM", "OutP as programmed"): (
        lambda: dp_iadmm.out_p(0.1, 20_000, 6000, 10),
        {"update": "prox"},
    ),
    ("DP-IADMM", "OutP+"): (
        lambda: dp_iadmm.out_p_printed(0.1, 20_000, scale=0.01),
        {"rho": bf.Penalty(2.0, 5.0, 1e4, 0.1, scale=0.01)},
    ),
    ("DP-IADMM", "OutP+ as programmed"): (
        lambda: dp_iadmm.out_p_plus(0.1, 20_000, 6000, 10),
        {"rho": bf.Penalty(2.0, 5.0, 1e4, 0.1, scale=0.001)},
    ),
    ("rank", "SRM"): (
        rank.rank_admm,
        {"penalty": bf.Growing(1e-5, 1.2), "relaxation": 1.0, "max_iterations": 300},
    ),
    ("rank", "AoRR"): (
        lambda: rank.rank_admm("AoRR"),
        {"penalty": bf.Growing(2e-7, 5.0, every=3, delay=7), "polish": False},
    ),
    ("rank", "EHRM"): (lambda: rank.rank_admm("EHRM"), {"finish": False}),
    ("rank", "sADMM"): (rank.smoothed_rank_admm, {"smoothing": bf.Smoothing(1e-5, 0.9, 1e-9)}),
    ("rank", "SGD"): (rank.sgd, {"batch": 64, "max_rounds": 2000, "learning_rate": None}),
    ("rank", "LSVRG(U)"): (rank.lsvrg, {"uniform": True, "epoch_length": 100}),
    ("rank", "LSVRG(NU)"): (lambda: rank.lsvrg(uniform=False), {"uniform": False}),
    ("rank", "DCA"): (
        lambda: rank.dca("hinge", "phoneme"),
        {"inner": 500, "max_rounds": 10, "learning_rate": 0.01},
    ),
}
OBJECTIVES = {
    "DRFL": drfl.drfl(1e-3, 0.1, 0.5),
    "AFL": drfl.afl(0.1),
    "DRFA": drfl.drfa(),
    "WAFL": drfl.wafl(1e-3),
    "standard": drfl.standard(),
}


@pytest.mark.parametrize("name", METHODS, ids=" ".join)
def test_a_method_has_the_constants_of_its_paper(name):
    word, printed = METHODS[name]
    method = word()
    assert isinstance(method, Method)
    assert {key: getattr(method, key) for key in printed} == printed


def tiny() -> bf.Federation:
    """Two clients with features within [-1, 1]."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (24, 2))
    return bf.Federation.from_arrays(X, np.sign(X[:, 0] + 0.1), np.repeat(["a", "b"], 12))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_objectives_of_drfl_have_a_certified_optimum_and_its_central_program(name):
    fed, problem = tiny(), OBJECTIVES[name]
    fed = fed.pooled() if name == "WAFL" else fed
    solution = bf.solve(problem, fed)
    central = drfl.central().solve(problem, fed)
    assert abs(central.value - solution.certificate.value) < 1e-4 * max(central.value, 1.0)


def test_baselines_that_are_references():
    problem, fed = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1)), tiny()
    mixed, alone = aspire.mix_even(problem, fed), aspire.ind(problem, fed)
    assert mixed.certificate.relative_gap < 1e-4
    assert list(alone) == ["a", "b"]
    found = constrained.centralised_al("5.2").solve(problem, fed)
    assert found.value == pytest.approx(mixed.certificate.value, rel=1e-3)
    assert constrained.centralised_al().beta == 300.0


def test_the_rule_of_aspire_adp_waits_for_all_until_one_is_slow():
    method, clock = aspire.aspire_adp(2)
    assert (clock.wait.n, clock.wait.centre) == (2, "mean")
    assert method == aspire.aspire_ease()
    printed, other = aspire.aspire_adp(2, as_printed=True)
    assert (printed, other.wait) == (method, replace(clock.wait, as_printed=True))


def test_out_p_is_obj_p_without_noise_and_has_normal_noise_by_the_longest_row():
    assert dp_iadmm.out_p_printed(math.inf, 9) == dp_iadmm.obj_p(math.inf, 9)
    rng = np.random.default_rng(3)
    fed = bf.Federation.from_arrays(
        rng.random((60, 4)), rng.integers(3, size=60), np.arange(60) % 2
    )
    problem = private_studies.problem()
    with pytest.warns(bf.NoPrivacyWarning):
        run = bf.solve(problem, fed, algorithm=dp_iadmm.out_p_printed(0.5, 1, "femnist"))
    # at w = 0 a row's gradient is x (1/3 - e_y)', of length ||x|| sqrt(1 - 1/3)
    longest = [np.linalg.norm(X, axis=1).max() * math.sqrt(2 / 3) / 60 for X in fed.X]
    sigma = 2 * math.sqrt(2 * math.log(1.25e6)) / 0.5 / (dp_iadmm.rho(0.5, "femnist")(1) + 1)
    expected = np.mean(longest) * sigma * math.sqrt(2 / math.pi)
    assert run.history[-1]["noise"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("word", "text"),
    [
        (lambda: constrained.proximal_al("9.9"), "no section '9.9'; there are '5.1', '5.2', 'E.2'"),
        (lambda: constrained.centralised_al("5.3"), "no section '5.3'; there are '5.1'"),
        (lambda: rank.rank_admm("foo"), "no framework 'foo'; there are 'SRM', 'AoRR', 'EHRM'"),
        (lambda: rank.smoothed_rank_admm("AoRRR"), "Did you mean 'AoRR'"),
        (lambda: dp_iadmm.rho(1.0, "cifar"), "no data set 'cifar'; there are 'mnist', 'femnist'"),
        (lambda: rank.dca("squared"), "no loss 'squared'; there are 'logistic', 'hinge'"),
        (
            lambda: rank.dca("hinge", "nodata"),
            "no data set 'nodata'; there are 'monks_3', 'australian'",
        ),
        (
            lambda: constrained_studies.split("iris", 1),
            "no data set 'iris'; there are 'breast-cancer",
        ),
    ],
)
def test_an_unknown_name_is_refused_with_the_known_ones(word, text):
    with pytest.raises(ValueError, match=text):
        word()
    assert (rank.dca(data="splice").inner, rank.dca(data="monks_3").inner) == (1000, 2000)
