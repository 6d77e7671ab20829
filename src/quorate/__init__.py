"""quorate: federated optimization you can trust.

Train models over data that stays with its owners; every result states what is guaranteed and how it was checked.

    import quorate as qr
    fed = qr.Federation.from_arrays(X, y, groups)
    problem = qr.Problem(loss=qr.Hinge(), over_samples=qr.WassersteinBall(0.05, 0.5), over_clients=qr.LpBall(0.1))
    solution = qr.solve(problem, fed)

Names are imported on first use, so that ``import quorate`` and ``quorate --help`` stay fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "quorate.data.federation": ("Federation",),
    "quorate.problem.problem": ("Problem",),
    "quorate.problem.losses": (
        "Hinge", "SmoothHinge", "Logistic", "Exponential", "Squared", "Absolute", "Huber",
        "EpsilonInsensitive", "Quantile", "Multinomial", "Quadratic",
    ),
    "quorate.problem.predictors": ("Linear", "Softmax"),
    "quorate.problem.predictors_mlp": ("MLP",),
    "quorate.problem.predictors_torch": ("TorchPredictor",),
    "quorate.problem.wasserstein": ("WassersteinBall",),
    "quorate.problem.supports": ("BoxSupport",),
    "quorate.problem.supports_polytope": ("PolytopeSupport",),
    "quorate.problem.risks.mean": ("Mean", "Sum"),
    "quorate.problem.risks.simplex": ("Simplex",),
    "quorate.problem.risks.lp_ball": ("LpBall",),
    "quorate.problem.risks.kl_ball": ("KLBall",),
    "quorate.problem.risks.chi_square": ("ChiSquareBall",),
    "quorate.problem.risks.ellipsoid": ("Ellipsoid",),
    "quorate.problem.risks.box": ("Box",),
    "quorate.problem.risks.cd_norm": ("CDNorm",),
    "quorate.problem.risks.total_variation": ("TotalVariationBall",),
    "quorate.problem.risks.wasserstein": ("WassersteinOverClients",),
    "quorate.problem.risks.polyhedron": ("Polyhedron",),
    "quorate.problem.risks.own": ("OwnSet",),
    "quorate.problem.risks.superquantile": ("Superquantile",),
    "quorate.problem.risks.spectral": ("Spectral", "Extremile", "ExponentialSpectral", "Maximum", "TopK"),
    "quorate.problem.risks.ranked_range": ("RankedRange", "Median", "ValueAtRisk"),
    "quorate.problem.risks.prospect": ("HumanAligned", "ProspectTheory"),
    "quorate.problem.constraints.rows": (
        "NeymanPearson", "LossGap", "BoundedGroupLoss", "DemographicParity", "EqualisedOdds", "Score", "Probability",
    ),
    "quorate.problem.constraints.linear": ("LinearEquality", "LinearInequality", "Sign", "Monotone", "CostLimit"),
    "quorate.problem.constraints.own": ("Constraint",),
    "quorate.problem.constraints.torch_function": ("TorchConstraint",),
    "quorate.problem.constraints.coupled": ("Coupled",),
    "quorate.problem.regularisers": ("Zero", "L1", "L2", "ElasticNet", "GroupL2", "Bounds", "MCP", "SCAD"),
    "quorate.algorithms.federated.bundle": ("Bundle",),
    "quorate.algorithms.federated.ad_lpmm": ("ADLPMM",),
    "quorate.algorithms.federated.epigraph_admm": ("EpigraphADMM", "RiskADMM"),
    "quorate.algorithms.federated.double_loop": ("DoubleLoop",),
    "quorate.algorithms.federated.async_dro": ("AsyncDRO",),
    "quorate.algorithms.federated.afl": ("AFL",),
    "quorate.algorithms.federated.drfa": ("DRFA",),
    "quorate.algorithms.federated.fed_avg": ("FedAvg", "FedProx"),
    "quorate.algorithms.federated.aggregation": ("Average", "Bulyan", "CoordinateMedian", "Krum", "TrimmedMean"),
    "quorate.algorithms.federated.multiplier_method": ("MultiplierMethod",),
    "quorate.algorithms.federated.aspire": ("ASPIRE",),
    "quorate.algorithms.federated.interior_point": ("InteriorPoint",),
    "quorate.algorithms.federated.proximal_al": ("ProximalAL",),
    "quorate.algorithms.federated.private_admm": ("PrivateADMM", "OutputPerturbedADMM", "Penalty"),
    "quorate.privacy.budget": ("Budget", "BudgetSpentError", "NoPrivacyWarning"),
    "quorate.privacy.book": ("Book",),
    "quorate.privacy.ledger": ("Ledger",),
    "quorate.auditing": ("Audit", "audit"),
    "quorate.algorithms.pooled.central_conic": ("CentralConic",),
    "quorate.algorithms.pooled.centralised_al": ("CentralisedAL",),
    "quorate.algorithms.pooled.rank_admm": ("RankADMM",),
    "quorate.algorithms.pooled.rank_starts": ("Start",),
    "quorate.algorithms.pooled.smoothed_rank_admm": ("SmoothedRankADMM", "Smoothing"),
    "quorate.algorithms.pooled.penalties": ("Balanced", "Growing", "ByResidual"),
    "quorate.algorithms.pooled.sgd": ("SGD",),
    "quorate.algorithms.pooled.lsvrg": ("LSVRG",),
    "quorate.algorithms.pooled.dca": ("DCA",),
    "quorate.engines.inprocess": ("InProcess",),
    "quorate.engines.virtual_clock": ("VirtualClock",),
    "quorate.engines.replay": ("Replay",),
    "quorate.engines.log": ("Log",),
    "quorate.engines.activation": ("First", "Stale", "Adaptive"),
    "quorate.engines.delays": ("LogNormal", "Constant", "Trace"),
    "quorate.certificates.duality": ("Certificate", "certify"),
    "quorate.problem.bounds": ("Duals",),
    "quorate.problem.multipliers": ("Multipliers",),
    "quorate.notes": ("exposed_rows",),
    "quorate.rounds": ("Outcome", "Stop"),
    "quorate.solution": ("Solution", "solve"),
    "quorate.estimators.robust": ("RobustClassifier", "RobustRegressor"),
    "quorate.estimators.ranked": ("RiskClassifier", "RiskRegressor"),
    "quorate.estimators.agnostic": ("AgnosticClassifier",),
    "quorate.estimators.constrained": ("ConstrainedClassifier", "InfeasibleProblemError"),
    "quorate.estimators.private": ("PrivateClassifier",),
    "quorate.estimators.fitting": ("MissingGroupsWarning", "TrivialModelWarning"),
    "quorate.estimators.scorers": ("WorstClassError", "tail_loss", "worst_client_accuracy", "worst_client_loss"),
    "quorate.model_selection": ("default_radius", "radius_path"),
    "quorate.fairness": (
        "average_odds_difference", "disparate_impact", "equal_opportunity_difference", "fairness_metrics",
        "false_negative_rate_difference", "group_rates", "statistical_parity_difference", "theil_index",
    ),
}  # fmt: skip
_WHERE = {name: module for module, names in _HOME.items() for name in names}

__all__ = [*_WHERE, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'quorate' has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])


if TYPE_CHECKING:
    from quorate.algorithms.federated.bundle import Bundle as Bundle
    from quorate.certificates.duality import certify as certify
    from quorate.data.federation import Federation as Federation
    from quorate.engines.inprocess import InProcess as InProcess
    from quorate.problem.problem import Problem as Problem
    from quorate.solution import Solution as Solution
    from quorate.solution import solve as solve
