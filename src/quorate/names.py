"""The one list of names: every public class and function of quorate, and where it is.

``NAMED`` has the classes with a short name in a configuration file, by kind; ``PUBLIC`` has the
public names without one. A place is ``module:name``. What a class takes, and what it is good for,
are facts of the class and are not repeated here.

To add a loss, write its class and one line in ``NAMED["loss"]``.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from importlib import import_module
from typing import Any

NAMED: dict[str, dict[str, str]] = {
    "loss": {
        "hinge": "quorate.problem.losses:Hinge",
        "smooth_hinge": "quorate.problem.losses:SmoothHinge",
        "logistic": "quorate.problem.losses:Logistic",
        "exponential": "quorate.problem.losses:Exponential",
        "squared": "quorate.problem.losses:Squared",
        "poisson": "quorate.problem.losses:Poisson",
        "absolute": "quorate.problem.losses:Absolute",
        "huber": "quorate.problem.losses:Huber",
        "epsilon_insensitive": "quorate.problem.losses:EpsilonInsensitive",
        "quantile": "quorate.problem.losses:Quantile",
        "multinomial": "quorate.problem.losses:Multinomial",
    },
    "model": {
        "linear": "quorate.problem.predictors.affine:Linear",
        "softmax": "quorate.problem.predictors.affine:Softmax",
        "mlp": "quorate.problem.predictors.mlp:MLP",
    },
    "regulariser": {
        "none": "quorate.problem.regularisers:Zero",
        "l1": "quorate.problem.regularisers:L1",
        "l2": "quorate.problem.regularisers:L2",
        "elastic_net": "quorate.problem.regularisers:ElasticNet",
        "ball": "quorate.problem.regularisers:Ball",
        "mcp": "quorate.problem.regularisers:MCP",
        "scad": "quorate.problem.regularisers:SCAD",
    },
    "risk over samples": {
        "mean": "quorate.problem.risks.mean:Mean",
        "superquantile": "quorate.problem.risks.superquantile:Superquantile",
        "extremile": "quorate.problem.risks.spectral:Extremile",
        "exponential_spectral": "quorate.problem.risks.spectral:ExponentialSpectral",
        "maximum": "quorate.problem.risks.spectral:Maximum",
        "top_k": "quorate.problem.risks.spectral:TopK",
        "ranked_range": "quorate.problem.risks.ranked_range:RankedRange",
        "median": "quorate.problem.risks.ranked_range:Median",
        "value_at_risk": "quorate.problem.risks.ranked_range:ValueAtRisk",
        "human_aligned": "quorate.problem.risks.prospect:HumanAligned",
        "prospect_theory": "quorate.problem.risks.prospect:ProspectTheory",
    },
    "risk over clients": {
        "mean": "quorate.problem.risks.mean:Mean",
        "simplex": "quorate.problem.risks.simplex:Simplex",
        "lp_ball": "quorate.problem.risks.lp_ball:LpBall",
        "cd_norm": "quorate.problem.risks.cd_norm:CDNorm",
        "box": "quorate.problem.risks.box:Box",
        "ellipsoid": "quorate.problem.risks.ellipsoid:Ellipsoid",
        "polyhedron": "quorate.problem.risks.polyhedron:Polyhedron",
        "kl_ball": "quorate.problem.risks.kl_ball:KLBall",
        "chi_square": "quorate.problem.risks.chi_square:ChiSquareBall",
        "total_variation": "quorate.problem.risks.total_variation:TotalVariationBall",
        "wasserstein": "quorate.problem.risks.wasserstein:WassersteinOverClients",
        "superquantile": "quorate.problem.risks.superquantile:Superquantile",
    },
    "ball": {"wasserstein": "quorate.problem.wasserstein.ball:WassersteinBall"},
    "budget": {"privacy": "quorate.privacy.budget:Budget"},
    "constraint": {
        "neyman_pearson": "quorate.problem.constraints.group_means:NeymanPearson",
        "loss_gap": "quorate.problem.constraints.group_means:LossGap",
        "bounded_group_loss": "quorate.problem.constraints.group_means:BoundedGroupLoss",
        "demographic_parity": "quorate.problem.constraints.group_means:DemographicParity",
        "equalised_odds": "quorate.problem.constraints.group_means:EqualisedOdds",
        "sign": "quorate.problem.constraints.linear:Sign",
        "monotone": "quorate.problem.constraints.linear:Monotone",
        "cost_limit": "quorate.problem.constraints.linear:CostLimit",
        "linear_inequality": "quorate.problem.constraints.linear:LinearInequality",
        "linear_equality": "quorate.problem.constraints.linear:LinearEquality",
    },
    "measure": {
        "score": "quorate.problem.constraints.group_means:Score",
        "probability": "quorate.problem.constraints.group_means:Probability",
    },
    "algorithm": {
        "bundle": "quorate.algorithms.federated.bundle.bundle:Bundle",
        "async_bundle": "quorate.algorithms.federated.bundle.async_bundle:AsyncBundle",
        "ad_lpmm": "quorate.algorithms.federated.ad_lpmm:ADLPMM",
        "epigraph_admm": "quorate.algorithms.federated.epigraph_admm:EpigraphADMM",
        "double_loop": "quorate.algorithms.comparators.double_loop:DoubleLoop",
        "rank_admm": "quorate.algorithms.pooled.rank.rank_admm:RankADMM",
        "smoothed_rank_admm": "quorate.algorithms.pooled.rank.smoothed_rank_admm:SmoothedRankADMM",
        "sgd": "quorate.algorithms.comparators.sgd:SGD",
        "lsvrg": "quorate.algorithms.comparators.lsvrg:LSVRG",
        "dca": "quorate.algorithms.comparators.dca:DCA",
        "interior_point": (
            "quorate.algorithms.federated.interior_point.interior_point:InteriorPoint"
        ),
        "proximal_al": "quorate.algorithms.federated.proximal_al.proximal_al:ProximalAL",
        "private_admm": "quorate.algorithms.federated.private_admm.private_admm:PrivateADMM",
        "output_perturbed_admm": (
            "quorate.algorithms.federated.private_admm.private_admm:OutputPerturbedADMM"
        ),
        "private_sgd": "quorate.algorithms.federated.private_sgd:PrivateSGD",
        "private_newton": (
            "quorate.algorithms.federated.private_newton.private_newton:PrivateNewton"
        ),
        "async_dro": "quorate.algorithms.federated.async_dro.async_dro:AsyncDRO",
        "aspire": "quorate.algorithms.federated.aspire.aspire:ASPIRE",
        "multiplier_method": "quorate.algorithms.comparators.multiplier_method:MultiplierMethod",
        "afl": "quorate.algorithms.comparators.afl:AFL",
        "drfa": "quorate.algorithms.comparators.drfa:DRFA",
        "fed_avg": "quorate.algorithms.comparators.fed_avg:FedAvg",
        "rank_interior_point": (
            "quorate.algorithms.federated.rank_interior_point:RankInteriorPoint"
        ),
        "rank_bundle": "quorate.algorithms.federated.rank_bundle:RankBundle",
    },
    "engine": {
        "in_process": "quorate.engines.inprocess:InProcess",
        "virtual_clock": "quorate.engines.virtual_clock:VirtualClock",
    },
    "delays": {
        "lognormal": "quorate.engines.delays:LogNormal",
        "constant": "quorate.engines.delays:Constant",
        "trace": "quorate.engines.delays:Trace",
    },
    "waiting": {
        "first": "quorate.engines.waiting:First",
        "stale": "quorate.engines.waiting:Stale",
        "adaptive": "quorate.engines.waiting:Adaptive",
    },
}

PUBLIC: tuple[str, ...] = (
    "quorate.data.federation:Federation",
    "quorate.problem.problem:Problem",
    "quorate.problem.losses:Quadratic",
    "quorate.problem.predictors.torch_module:TorchPredictor",
    "quorate.problem.wasserstein.box_support:BoxSupport",
    "quorate.problem.wasserstein.polytope_support:PolytopeSupport",
    "quorate.problem.risks.mean:Sum",
    "quorate.problem.risks.custom:OwnSet",
    "quorate.problem.risks.spectral:Spectral",
    "quorate.problem.constraints.custom:Constraint",
    "quorate.problem.constraints.torch_function:TorchConstraint",
    "quorate.problem.constraints.coupled:Coupled",
    "quorate.problem.regularisers:Bounds",
    "quorate.problem.regularisers:GroupL2",
    "quorate.problem.lower_bounds:Duals",
    "quorate.problem.multipliers:Multipliers",
    "quorate.algorithms.federated.epigraph_admm:RiskADMM",
    "quorate.algorithms.federated.private_admm.penalty:Penalty",
    "quorate.algorithms.comparators.aggregation:Average",
    "quorate.algorithms.comparators.aggregation:Bulyan",
    "quorate.algorithms.comparators.aggregation:CoordinateMedian",
    "quorate.algorithms.comparators.aggregation:Krum",
    "quorate.algorithms.comparators.aggregation:TrimmedMean",
    "quorate.algorithms.comparators.central_conic:CentralConic",
    "quorate.algorithms.comparators.centralised_al:CentralisedAL",
    "quorate.algorithms.comparators.fed_avg:FedProx",
    "quorate.algorithms.pooled.rank.continuation:Start",
    "quorate.algorithms.pooled.rank.penalties:Balanced",
    "quorate.algorithms.pooled.rank.penalties:ByResidual",
    "quorate.algorithms.pooled.rank.penalties:Growing",
    "quorate.algorithms.pooled.rank.smoothed_rank_admm:Smoothing",
    "quorate.privacy.budget:BudgetSpentError",
    "quorate.privacy.budget:NoPrivacyWarning",
    "quorate.privacy.ledger:Ledger",
    "quorate.privacy.ledger_file:Book",
    "quorate.privacy.secure_sum.option:SecureSum",
    "quorate.privacy.odometer:RepeatedRunWarning",
    "quorate.auditing:Audit",
    "quorate.auditing:audit",
    "quorate.engines.replay:Replay",
    "quorate.engines.event_log:Log",
    "quorate.certificates.certificate:Certificate",
    "quorate.certificates.certify:certify",
    "quorate.rounds:Outcome",
    "quorate.rounds:Stop",
    "quorate.problem.calibration:Sigmoid",
    "quorate.solution.client_table:exposed_rows",
    "quorate.solution.intervals:PrivateIntervals",
    "quorate.solution.intervals:private_intervals",
    "quorate.solution.load:load",
    "quorate.solution.solution:Solution",
    "quorate.solution.solve:solve",
    "quorate.estimators.agnostic:AgnosticClassifier",
    "quorate.estimators.constrained:ConstrainedClassifier",
    "quorate.estimators.constrained:InfeasibleProblemError",
    "quorate.estimators.rows:MissingGroupsWarning",
    "quorate.solution.trivial:TrivialModelWarning",
    "quorate.solution.trivial:Triviality",
    "quorate.estimators.private:PrivateClassifier",
    "quorate.estimators.private_search:PrivateSearch",
    "quorate.estimators.ranked:RiskClassifier",
    "quorate.estimators.ranked:RiskRegressor",
    "quorate.estimators.robust:RobustClassifier",
    "quorate.estimators.robust:RobustRegressor",
    "quorate.estimators.scorers:WorstClassError",
    "quorate.estimators.scorers:tail_loss",
    "quorate.estimators.scorers:worst_client_accuracy",
    "quorate.estimators.scorers:worst_client_loss",
    "quorate.solution.default_radius:default_radius",
    "quorate.solution.radius_path:radius_path",
    "quorate.fairness:average_odds_difference",
    "quorate.fairness:disparate_impact",
    "quorate.fairness:equal_opportunity_difference",
    "quorate.fairness:fairness_metrics",
    "quorate.fairness:false_negative_rate_difference",
    "quorate.fairness:group_rates",
    "quorate.fairness:statistical_parity_difference",
    "quorate.fairness:theil_index",
)


def by_module() -> dict[str, list[str]]:
    """The public names of quorate, by the module that has them."""
    modules: defaultdict[str, list[str]] = defaultdict(list)
    for place in sorted(listed_places()):
        module, _, name = place.partition(":")
        modules[module].append(name)
    return dict(modules)


@cache
def listed_places() -> frozenset[str]:
    """The places of all public names."""
    return frozenset((*PUBLIC, *(place for kind in NAMED.values() for place in kind.values())))


def of_place(place: str) -> Any:
    """What a place of the list holds, imported on first use; ``ValueError`` for any other place."""
    if place not in listed_places():
        raise ValueError(f"{str(place)[:60]!r} is no public name of quorate")
    return _imported(place)


def _imported(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


@cache
def load(kind: str, name: str) -> Any:
    """The class of a short name, such as ``load("loss", "hinge")``, imported on first use."""
    return _imported(NAMED[kind][name])


def short_name(kind: str, thing: object) -> str | None:
    """The short name of a class, or of an object by its class; None where it has none."""
    cls = thing if isinstance(thing, type) else type(thing)
    place = f"{cls.__module__}:{cls.__name__}"
    return next((name for name, other in NAMED[kind].items() if other == place), None)
