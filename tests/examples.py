"""Algorithms, problems and data on which the laws are tested: one line each in the lists below."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import constrained_oracles as oracle
import numpy as np
from constrained_oracles import Constrained
from problems import PLAIN, SOFTMAX
from toy import AsyncToy, SeparateToy, SummedToy, Toy, federation

from bonafed.algorithms.comparators.afl import AFL
from bonafed.algorithms.comparators.fed_avg import FedAvg, FedProx, Krum
from bonafed.algorithms.federated.async_dro import AsyncDRO
from bonafed.algorithms.federated.bundle.async_bundle import AsyncBundle
from bonafed.algorithms.federated.bundle.bundle import Bundle
from bonafed.algorithms.federated.bundle.masked_bundle import MaskedBundle
from bonafed.algorithms.federated.interior_point import InteriorPoint
from bonafed.algorithms.federated.kinks import KinkInteriorPoint
from bonafed.algorithms.federated.multiplier_method import MultiplierMethod
from bonafed.algorithms.federated.private_admm import PrivateADMM
from bonafed.algorithms.federated.private_newton import PrivateNewton
from bonafed.algorithms.federated.private_sgd import PrivateSGD
from bonafed.algorithms.federated.proximal_al.proximal_al import ProximalAL
from bonafed.algorithms.federated.rank_rows import RankBundle, RankInteriorPoint
from bonafed.algorithms.federated.row_multipliers import RowMultiplierMethod
from bonafed.algorithms.pooled.rank_admm import RankADMM, Start
from bonafed.algorithms.pooled.rank_subproblems import Growing
from bonafed.data.federation import Federation
from bonafed.engines.secure_summed import SecureSummed
from bonafed.papers.aspire import aspire_ease
from bonafed.papers.aspire.aspire import ASPIRE
from bonafed.papers.aspire.drfa import DRFA
from bonafed.papers.constrained import proximal_al
from bonafed.papers.dp_iadmm.published import OutputPerturbedADMM
from bonafed.papers.drfl.epigraph_admm import ADLPMM, DoubleLoop, EpigraphADMM
from bonafed.papers.rank.smoothed import DCA, SmoothedRankADMM
from bonafed.papers.rank.stochastic import LSVRG, SGD
from bonafed.privacy.budget import Budget
from bonafed.privacy.secure_sum.messages import SecureSum
from bonafed.problem.constraints.custom import Constraint
from bonafed.problem.constraints.group_means import (
    BoundedGroupLoss,
    Coupled,
    DemographicParity,
    EqualisedOdds,
    LossGap,
    NeymanPearson,
    Probability,
)
from bonafed.problem.constraints.linear import (
    CostLimit,
    LinearEquality,
    LinearInequality,
    Monotone,
    Sign,
)
from bonafed.problem.losses import Exponential, Hinge, Logistic, Multinomial, Quantile, Squared
from bonafed.problem.predictors.affine import Linear, Softmax
from bonafed.problem.predictors.mlp import MLP
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import L1, L2, MCP, SCAD, Ball, Bounds, ElasticNet, GroupL2, Zero
from bonafed.problem.risks.ranks import (
    ExponentialSpectral,
    Extremile,
    HumanAligned,
    Maximum,
    Median,
    ProspectTheory,
    RankedRange,
    Spectral,
    TopK,
    ValueAtRisk,
)
from bonafed.problem.risks.weight_sets import (
    Box,
    CDNorm,
    ChiSquareBall,
    Ellipsoid,
    KLBall,
    LpBall,
    Mean,
    OwnSet,
    Polyhedron,
    Simplex,
    Superquantile,
    TotalVariationBall,
    WassersteinOverClients,
)
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.solution.plan import configure

_BUDGET = Budget(3.0, 1e-3)


@dataclass(frozen=True, eq=False)
class Example:
    """An algorithm with its data: a run of well under a second, of at least three rounds."""

    algorithm: Any
    federation: Federation
    # of the last state: what a run in blocks must share with one in turn ...
    answer: Callable[[Any], Any]
    tolerance: float  # ... to this, relative
    stated: tuple[Problem, Any] | None = None  # the problem and the algorithm as a user gives them


def solving(algorithm: Any, problem: Problem, tol: float) -> Example:
    """An algorithm that solves a problem to a relative gap ``tol``: then so far do the values of
    two runs agree.
    """
    raw = federation((20, 35, 12, 28, 9), 4)
    concrete, fed = problem.at(raw)
    return Example(
        configure(algorithm, concrete, fed, tol, None, None, None),
        fed,
        lambda state: problem.objective(state.w, raw),
        tol,
        (problem, algorithm),
    )


def short(algorithm: Any, problem: Problem) -> Example:
    """The first rounds of a slower algorithm; inner solves stop at 1e-9 and better, so that far do
    two runs agree.
    """
    example = solving(algorithm, problem, 1e-6)
    return replace(
        example, algorithm=replace(example.algorithm, tol=0.0, max_rounds=4), tolerance=1e-6
    )


def first(algorithm: Any, problem: Problem) -> Example:
    """The first rounds of a method without inner solves or tolerance: two runs differ by
    rounding.
    """
    concrete, fed = problem.at(federation((20, 35, 12, 28, 9), 4))
    configured = configure(algorithm, concrete, fed, None, None, 10, None)
    return Example(configured, fed, lambda state: state.w, 1e-9, (problem, algorithm))


def planes(algorithm: Any, problem: Problem) -> Example:
    """The same of a method whose model is ``state.z``."""
    return replace(first(algorithm, problem), answer=lambda state: state.z)


def private(algorithm: Any, problem: Problem, tolerance: float, budget: Any = _BUDGET) -> Example:
    """The first rounds of a method with noise, whose keys are the same in every mode."""
    problem = replace(problem, privacy=budget)
    concrete, fed = problem.at(federation((20, 35, 12, 28, 9), 4))
    configured = configure(algorithm, concrete, fed, None, None, 6, None).planned(concrete, fed)
    return Example(configured, fed, lambda state: state.w, tolerance, (problem, algorithm))


def pooling(algorithm: Any, problem: Problem, tolerance: float = 1e-12) -> Example:
    """The first rounds of a method on pooled rows: one client, who does all the work."""
    concrete, fed = problem.at(federation((20, 35, 12, 28, 9), 4).pooled())
    configured = configure(algorithm, concrete, fed, 0.0, None, 6, None)
    objective = lambda state: concrete.objective(state.w, fed)  # noqa: E731
    return Example(configured, fed, objective, tolerance, (problem, algorithm))


HINGE, LOGISTIC = (
    Problem(
        loss=loss,
        predictor=PLAIN,
        over_samples=WassersteinBall(0.05, 0.5, "l2"),
        over_clients=LpBall(0.2, 2),
        regulariser=L2(1e-2),
    )
    for loss in (Hinge(), Logistic())
)
EVEN = replace(LOGISTIC, over_samples=WassersteinBall(0.05, math.inf, "l2"))
NEYMAN_PEARSON = Problem(
    Logistic(),
    PLAIN,
    over_samples=Mean(label=-1.0),
    regulariser=L1(1e-2),
    local_constraint=NeymanPearson(1.0, 0.6),
)
TIGHT = NeymanPearson(-1.0, 0.1), NeymanPearson(1.0, 0.1)
TOGETHER = (Coupled(NeymanPearson(1.0, 0.4)), LinearInequality(np.ones((1, 5)), -0.2))
ALGORITHMS: dict[str, Example] = {
    "toy": Example(Toy(), federation(), lambda state: state.w, 1e-12),  # six rounds: only rounding
    "asynchronous toy": Example(AsyncToy(), federation(), lambda state: state.w, 1e-12),
    "toy, secure sums": Example(
        SecureSummed(SummedToy(), SecureSum(keys="simulation"), 1),
        federation(),
        lambda state: state.of_algorithm()[0].w,
        1e-12,
    ),
    "toy of separate clients": Example(SeparateToy(), federation(), lambda state: state.w, 1e-12),
    "bundle": solving(Bundle(), HINGE, 1e-6),
    "bundle, many classes near their rows": solving(
        Bundle(),
        Problem(
            Multinomial(),
            over_samples=WassersteinBall(0.05, 2.0, "l1"),
            over_clients=LpBall(0.2, 2),
            regulariser=L2(1e-2),
        ),
        1e-6,
    ),
    "bundle, ranks of all rows": replace(
        solving(
            Bundle(),
            Problem(Hinge(), Linear(True), over_rows=Superquantile(0.3), regulariser=L2(1e-2)),
            1e-6,
        ),
        answer=lambda state: state.value,  # of the model and its threshold
    ),
    "bundle, level": solving(Bundle(variant="level"), HINGE, 1e-6),
    "bundle, hessian": solving(Bundle(metric="hessian"), LOGISTIC, 1e-6),
    "bundle after gradients": solving(Bundle(gradient_rounds=6), EVEN, 1e-6),
    # which nobody states: a user gives ``Bundle()``, and an engine with a secure sum
    "masked bundle": replace(solving(MaskedBundle(), EVEN, 1e-6), stated=None),
    "masked bundle, a mean": replace(
        solving(MaskedBundle(), replace(EVEN, over_clients=Mean(), over_samples=Mean()), 1e-6),
        stated=None,
    ),
    "masked bundle, a limit": replace(
        solving(
            MaskedBundle(), replace(EVEN, constraint=LinearInequality(np.ones((1, 4)), 0.2)), 1e-6
        ),
        stated=None,
    ),
    "asynchronous bundle": solving(AsyncBundle(), HINGE, 1e-2),
    "asynchronous bundle, second order": solving(AsyncBundle(), LOGISTIC, 1e-2),
    "AD-LPMM": short(ADLPMM(), HINGE),
    "AD-LPMM, half of the rows": short(ADLPMM(sample=0.5), LOGISTIC),
    "epigraph ADMM": short(EpigraphADMM(), HINGE),
    "double loop": short(DoubleLoop(), LOGISTIC),
    "AsyncDRO": short(
        AsyncDRO(), Problem(Logistic(), PLAIN, over_clients=Simplex(), regulariser=L2(1e-2))
    ),
    "AsyncDRO, many classes": replace(
        short(
            AsyncDRO(),
            Problem(Multinomial(), SOFTMAX, over_clients=LpBall(0.2, 2), regulariser=L1(1e-2)),
        ),
        answer=lambda state: state.w,
    ),
    "AFL": first(AFL(), Problem(Logistic(), PLAIN, over_clients=Simplex(), regulariser=L2(1e-2))),
    "AFL, subgradients, extrapolated and averaged": first(
        AFL(0.1, 0.1, average=True, optimistic=True), HINGE
    ),
    "DRFA": first(
        DRFA(2, participation=0.5, batch=8), Problem(Multinomial(), SOFTMAX, over_clients=Simplex())
    ),
    "DRFA-Prox, all clients": first(DRFA(2, strength=0.1), LOGISTIC),
    "FedAvg": first(FedAvg(), Problem(Logistic(), Linear(True), regulariser=L1(1e-2))),
    "FedAvg, some clients and rows": first(
        FedAvg(1, batch=8, epochs=True, participation=0.5),
        Problem(Multinomial(), SOFTMAX, over_clients=Mean("size")),
    ),
    "FedProx, Krum": first(
        FedProx(0.5, aggregate=Krum(1, 2)), Problem(Logistic(), PLAIN, regulariser=L2(1e-2))
    ),
    "multiplier method": solving(
        MultiplierMethod(),
        Problem(Logistic(), PLAIN, over_clients=Simplex(), regulariser=L2(1e-2)),
        1e-6,
    ),
    "multiplier method, second derivatives": solving(
        MultiplierMethod(metric="hessian"), Problem(Logistic(), PLAIN, regulariser=L2(1e-3)), 1e-9
    ),
    "multiplier method, bounds": solving(
        MultiplierMethod(),
        Problem(
            Logistic(), Linear(True), over_clients=Superquantile(0.4), regulariser=Bounds(-0.5, 0.5)
        ),
        1e-6,
    ),
    "interior point": solving(InteriorPoint(), NEYMAN_PEARSON, 1e-9),
    "interior point, infeasible": solving(
        InteriorPoint(), replace(NEYMAN_PEARSON, local_constraint=TIGHT), 1e-6
    ),
    "interior point, all together": solving(
        InteriorPoint(),
        Problem(Logistic(), Linear(True), regulariser=Bounds(-0.5, 0.5), constraint=TOGETHER),
        1e-9,
    ),
    "rank interior point": solving(
        RankInteriorPoint(),
        Problem(Logistic(), Linear(True), over_rows=Superquantile(0.3), regulariser=L2(1e-2)),
        1e-9,
    ),
    "kink interior point": solving(
        KinkInteriorPoint(), Problem(Quantile(0.7), Linear(True), regulariser=L2(1e-2)), 1e-6
    ),
    "row multipliers": solving(
        RowMultiplierMethod(metric="hessian"),
        Problem(Quantile(0.7), Linear(True), regulariser=L2(1e-2)),
        1e-6,
    ),
    "row multipliers, ranked": solving(
        RowMultiplierMethod(),
        Problem(Logistic(), Linear(True), over_rows=Superquantile(0.3), regulariser=L2(1e-2)),
        1e-6,
    ),
    "rank bundle": solving(
        RankBundle(),
        Problem(Logistic(), Linear(True), over_rows=Extremile(2.0), regulariser=L2(1e-2)),
        1e-9,
    ),
    "proximal AL": short(ProximalAL(), NEYMAN_PEARSON),
    "proximal AL, as printed": short(proximal_al(), NEYMAN_PEARSON),
    "proximal AL, all together": short(
        ProximalAL(beta=1e3),  # beta times the rounding of c_i(u_i) is that of the multipliers
        Problem(Logistic(), Linear(True), regulariser=Bounds(-0.5, 0.5), constraint=TOGETHER),
    ),
    "ASPIRE": planes(
        ASPIRE(), Problem(Logistic(), PLAIN, over_clients=LpBall(0.4), regulariser=L1(1e-2))
    ),
    "ASPIRE, all general": planes(
        aspire_ease(
            drop=False, synchronous=True, local_steps=2, every=1, max_planes=2, reuse=False
        ),
        Problem(Multinomial(), SOFTMAX, over_clients=Superquantile(0.3), regulariser=L2(1e-2)),
    ),
    "private ADMM": private(
        PrivateADMM(noise="simulation"),
        Problem(Multinomial(), SOFTMAX, regulariser=L2(1e-2)),
        1e-12,
    ),
    "private ADMM, all general": private(
        PrivateADMM(
            mechanism="laplace", bound=2.0, update="prox", average=True, noise="simulation"
        ),
        Problem(Logistic(), Linear(True), regulariser=Bounds(-0.5, 0.5)),
        1e-12,
    ),
    "private ADMM, noise-free": private(
        PrivateADMM(rho=1.0, radius="1/t"), Problem(Logistic(), PLAIN), 1e-12, None
    ),
    "private ADMM, exact": private(
        PrivateADMM(rho=1.0, update="exact", tol=1e-10), Problem(Logistic(), PLAIN), 1e-6, None
    ),
    "private SGD": private(
        PrivateSGD(noise="simulation"), Problem(Multinomial(), SOFTMAX, regulariser=L2(1e-2)), 1e-12
    ),
    "private SGD, all general": private(
        PrivateSGD(mechanism="laplace", bound=2.0, length=3.0, noise="simulation"),
        Problem(Logistic(), Linear(True), regulariser=Bounds(-0.5, 0.5)),
        1e-12,
    ),
    "private SGD, sampled": private(
        PrivateSGD(sampling=0.5, noise="simulation"), Problem(Logistic(), Linear(True)), 1e-12
    ),
    "private SGD, quantile": private(
        PrivateSGD(quantile=0.6, noise="simulation"), Problem(Multinomial(), SOFTMAX), 1e-12
    ),
    "private SGD, noise-free": private(PrivateSGD(), Problem(Logistic(), PLAIN), 1e-12, None),
    "private Newton": private(
        PrivateNewton(noise="simulation"),
        Problem(Logistic(), Linear(True), regulariser=L2(1e-2)),
        1e-10,
    ),
    "private Newton, all general": private(
        PrivateNewton(max_rounds=6, bound=2.0, clip=3.0, inference=True, noise="simulation"),
        Problem(Squared(), Linear(True), over_clients=Mean("size")),
        1e-10,
    ),
    "private Newton, noise-free": private(PrivateNewton(), Problem(Logistic(), PLAIN), 1e-10, None),
    "output-perturbed ADMM": private(
        OutputPerturbedADMM(noise="simulation"), Problem(Multinomial(), SOFTMAX), 1e-12
    ),
    "SGD": pooling(
        SGD(trial_epochs=2),
        Problem(
            loss=Hinge(), predictor=PLAIN, over_samples=Superquantile(0.3), regulariser=L1(1e-2)
        ),
    ),
    "LSVRG": pooling(
        LSVRG(trial_epochs=2),
        Problem(loss=Logistic(), predictor=PLAIN, over_samples=Superquantile(0.3)),
    ),
    "LSVRG, not uniform": pooling(
        LSVRG(0.01, False), Problem(loss=Hinge(), predictor=PLAIN, over_samples=RankedRange(80, 10))
    ),
    "DCA": pooling(
        DCA(inner=20),
        Problem(
            loss=Logistic(), predictor=PLAIN, over_samples=RankedRange(80, 10), regulariser=L2(1e-2)
        ),
    ),
    "rank ADMM": pooling(
        RankADMM(),
        Problem(Logistic(), PLAIN, over_samples=Superquantile(0.3), regulariser=L2(1e-2)),
    ),
    "rank ADMM, Newton steps": pooling(
        RankADMM(check=2),
        Problem(Hinge(), Linear(True), over_samples=Superquantile(0.3), regulariser=L1(1e-2)),
    ),
    "rank ADMM, two starts and their polish": pooling(
        RankADMM(
            check=2,
            max_iterations=10,
            starts=(Start(Growing(1e-4, 1.5)), Start(Growing(1e-4, 1.5), 1.0)),
        ),
        Problem(Hinge(), PLAIN, over_samples=RankedRange(80, 10), regulariser=L2(1e-2)),
    ),
    "smoothed rank ADMM": pooling(
        SmoothedRankADMM(),
        Problem(
            loss=Hinge(), predictor=PLAIN, over_samples=Superquantile(0.3), regulariser=L1(1e-2)
        ),
    ),
}

# risks over 6 clients and regularisers of 4 coefficients: every law runs over them
PRIOR = np.array([0.3, 0.05, 0.2, 0.0, 0.25, 0.2])
CAPS = np.array([0.1, 0.05, 1e-3, 0.2, 0.0, 0.6])
COSTS = np.array(
    [
        [0, 1, 2, 3, 1, 2],
        [1, 0, 1, 1, 5, 1],
        [2, 1, 0, 1, 1, 0],
        [9, 1, 1, 0, 1, 1],
        *np.ones((2, 6)),
    ]
)
COSTS[[4, 5], [4, 5]] = 0.0
PLACES = np.array([0.5, -1.0, 3.0, 0.5, 0.7, 1e-3])
SHAPE = np.array([1.0, 0.1, 2.0, 0.5, 10.0, 0.3])
AXES = np.diag(SHAPE) + 0.3 * np.outer(
    [1.0, 0.2, -1.0, 0.5, 2.0, 0.4], [1.0, 0.2, -1.0, 0.5, 2.0, 0.4]
)
RISKS = [
    Mean(),
    Mean(PRIOR),
    Simplex(),
    *(LpBall(radius, p, PRIOR) for p in (1, 1.5, 2, 3.7, math.inf) for radius in (0.15, 0.6)),
    LpBall(0.2, 2),
    LpBall(0.0, 2, PRIOR),
    Superquantile(0.3),  # 1.8 of 6 losses
    Superquantile(0.5),
    Superquantile(0.25, PRIOR),
    Superquantile(1.0, PRIOR),
    Superquantile(1e-3, PRIOR),
    Extremile(1.0),
    Extremile(2.5),
    ExponentialSpectral(1e-8),
    ExponentialSpectral(3.0),
    Maximum(),
    TopK(2),
    Spectral([0.0, 0.1, 0.1, 0.2, 0.25, 0.35]),
    *(KLBall(radius, PRIOR) for radius in (0.0, 1e-6, 0.3, 2.0)),
    KLBall(0.2),
    *(ChiSquareBall(radius, PRIOR) for radius in (0.0, 1e-6, 0.3, 2.0)),
    ChiSquareBall(0.2),
    *(Ellipsoid(SHAPE, radius, PRIOR) for radius in (0.0, 1e-8, 0.01, 0.3)),
    *(Ellipsoid(AXES, radius, PRIOR) for radius in (0.0, 1e-8, 0.01, 0.3)),
    Box(0.0, 0.3),
    Box(0.1, 0.3),
    Box(1 / 6, 1.0),
    Box(CAPS / 2, CAPS + 0.2),
    *(CDNorm(budget, CAPS, PRIOR) for budget in (0.0, 0.7, 2.5, 6)),
    CDNorm(1.3, 0.1, PRIOR),
    CDNorm(1.3, 0.1),
    CDNorm(1.0, 0.0, PRIOR),
    *(TotalVariationBall(radius, PRIOR) for radius in (0.0, 0.3, 1.0)),
    TotalVariationBall(0.2),
    *(WassersteinOverClients(radius, "index", PRIOR) for radius in (0.0, 0.2, 5.0)),
    *(WassersteinOverClients(radius, PLACES, PRIOR) for radius in (0.0, 0.3)),
    *(WassersteinOverClients(radius, COSTS, PRIOR) for radius in (0.0, 0.3, 9.0)),
    Polyhedron(
        np.array([[1.0, 2.0, 0.0, -1.0, 0.0, 3.0], [-1e-9, 0.0, 0.0, -1e-9, 0.0, 0.0]]),
        [1.0, -2e-10],
    ),
    Polyhedron(np.diag(1e6 + np.arange(6.0)), np.full(6, 3e5)),
    OwnSet(Superquantile(0.3).weights),
]
NONCONVEX_RISKS = [
    Spectral([0.3, 0.1, 0.0, 0.25, 0.15, 0.2]),
    RankedRange(4, 1),
    RankedRange(4, 1, "descending"),
    Median(),
    ValueAtRisk(0.7),
    HumanAligned(0.4, 0.3),
    ProspectTheory(reference=0.5),
    ProspectTheory(0.4, 1.0, -1.0),
]
REGULARISERS = [
    Zero(),
    L1(0.7),
    L2(0.4),
    ElasticNet(0.3, 0.5),
    Bounds(-1.0, 2.0),
    Bounds(np.array([-1.0, -np.inf, 0.0, 0.5]), np.array([1.0, 3.0, np.inf, 0.5])),
    Ball(1.5),
    Ball(2.0, np.array([1.0, -3.0, 0.0, 0.5])),
    GroupL2(0.5, (0, 1, 0, 2)),
    MCP(0.8, 1.5),
    MCP(0.8, 3.0),
    SCAD(0.8, 2.5),
    SCAD(0.8, 3.7),
]

# models of 4 features: every law of `predictor_laws.py` runs over them
PREDICTORS = [
    PLAIN,
    Linear(fit_intercept=True),
    Softmax(3, fit_intercept=False),
    MLP(),
    MLP((5, 3), "relu", seed=4),
    MLP((6,), "softplus", 3),
    MLP((3, 4, 2), "tanh", 2),
    MLP(()),
    MLP((), classes=3),
]

# constraints with what they measure, computed from the raw rows: every law of constraints runs over
# them
ROWS, REAL = oracle.federation(), oracle.federation(real=True)
WEIGHED = oracle.federation(text=False, weights=True)
LEVELS = np.array([0.3, 0.5, 0.4, 0.6, 0.2])
C, SUM_TO = np.array([[1.0, -2.0, 0.0, 0.5], [0.0, 1.0, 1.0, 0.0]]), np.array([0.3, -0.2])
OWN, OWN_LIMIT = oracle.own_rows_of(ROWS, 2)
CONSTRAINTS: dict[str, Constrained] = {
    "Neyman-Pearson": Constrained(
        NeymanPearson("yes", 0.4), oracle.of_class(oracle.logistic, 1.0), 0.4
    ),
    "Neyman-Pearson, level by client": Constrained(
        NeymanPearson("no", LEVELS), oracle.of_class(oracle.logistic, -1.0), LEVELS[:, None]
    ),
    "Neyman-Pearson, levels by name, weights": Constrained(
        NeymanPearson(0, dict(zip(oracle.NAMES, LEVELS, strict=True))),
        oracle.of_class(oracle.exponential, -1.0),
        LEVELS[:, None],
        Problem(Exponential(), PLAIN),
        WEIGHED,
    ),
    "loss gap": Constrained(LossGap("sex", 0.1), oracle.gaps(oracle.logistic, "sex", "fm"), 0.1),
    "loss gap of a feature": Constrained(
        LossGap("smoker", LEVELS),
        oracle.gaps(oracle.squared, "smoker", (0.0, 1.0)),
        LEVELS[:, None],
        Problem(Squared(), PLAIN),
        REAL,
    ),
    "bounded group loss": Constrained(
        BoundedGroupLoss("age", 0.7), oracle.of_groups(oracle.logistic, "age", (30, 50, 70)), 0.7
    ),
    "bounded group loss, numbers": Constrained(
        BoundedGroupLoss("sex", LEVELS),
        oracle.of_groups(oracle.squared, "sex", "fm"),
        LEVELS[:, None],
        Problem(Squared(), PLAIN),
        REAL,
    ),
    "parity of scores": Constrained(
        DemographicParity("age", 0.1), oracle.gaps(oracle.score, "age", (30, 50, 70)), 0.1
    ),
    "parity of probabilities": Constrained(
        DemographicParity("sex", LEVELS, Probability()),
        oracle.gaps(oracle.probability, "sex", "fm"),
        LEVELS[:, None],
        fed=WEIGHED,
    ),
    "equalised odds": Constrained(
        EqualisedOdds("sex", 0.2), oracle.gaps(oracle.score, "sex", "fm", (-1.0, 1.0)), 0.2
    ),
    "equalised odds of probabilities": Constrained(
        EqualisedOdds("sex", 0.2, Probability()),
        oracle.gaps(oracle.probability, "sex", "fm", (-1.0, 1.0)),
        0.2,
    ),
    "linear equality": Constrained(LinearEquality(C, SUM_TO), oracle.affine(C), -SUM_TO),
    "linear inequality": Constrained(
        LinearInequality(C, SUM_TO), oracle.affine(C), -SUM_TO, Problem(Squared(), PLAIN), REAL
    ),
    "own linear equality": Constrained(LinearEquality(), OWN, OWN_LIMIT),
    "own linear inequality": Constrained(LinearInequality(), OWN, OWN_LIMIT),
    "sign": Constrained(
        Sign({"bmi": 1, "dose": -1}), oracle.affine([[0, -1, 0, 0], [1, 0, 0, 0]]), 0.0
    ),
    "monotone": Constrained(
        Monotone(["stay", "dose", "bmi"]), oracle.affine([[-1, 0, 0, 1], [1, -1, 0, 0]]), 0.0
    ),
    "cost limit": Constrained(
        CostLimit({"dose": 2.0, "stay": 0.5}, 1.5), oracle.affine([[2.0, 0, 0, 0.5]]), 1.5
    ),
    "own function": Constrained(
        Constraint(oracle.ball, 2, convex=True, hessian=oracle.ball_hessian),
        oracle.ball_measure,
        0.0,
    ),
    "own function without curvature": Constrained(
        Constraint(oracle.ball, 2), oracle.ball_measure, 0.0, hessian=False
    ),
    "coupled, all rows": Constrained(
        Coupled(NeymanPearson("yes", 0.4)), oracle.of_class(oracle.logistic, 1.0), 0.4, prior="rows"
    ),
    "coupled gap, all rows, weights": Constrained(
        Coupled(LossGap("sex", 0.1)),
        oracle.gaps(oracle.logistic, "sex", "fm"),
        0.1,
        fed=WEIGHED,
        prior="rows",
    ),
    "coupled, uniform": Constrained(
        Coupled(BoundedGroupLoss("sex", 0.4), "uniform"),
        oracle.of_groups(oracle.logistic, "sex", "fm"),
        0.4,
        prior=np.full(5, 0.2),
    ),
    "coupled, by size": Constrained(
        Coupled(NeymanPearson("no", LEVELS), "size"),
        oracle.of_class(oracle.logistic, -1.0),
        LEVELS[:, None],
        prior=np.array(oracle.SIZES) / 31,
    ),
    "coupled own equalities": Constrained(
        Coupled(LinearEquality(), "uniform"), OWN, OWN_LIMIT, prior=np.full(5, 0.2)
    ),
}
