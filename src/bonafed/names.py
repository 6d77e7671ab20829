"""The one list of names: every public class and function of bonafed, and where it is.

``NAMED`` has the classes with a short name in a configuration file, by kind; ``PUBLIC`` has the
public names without one. A place is ``module:name``. What a class takes, and what it is good for,
are facts of the class and are not repeated here.

To add a loss, write its class and one line in ``NAMED["loss"]``.
"""

from collections import defaultdict
from functools import cache
from importlib import import_module
from typing import Any

NAMED: dict[str, dict[str, str]] = {
    "loss": {
        "hinge": "bonafed.problem.losses:Hinge",
        "smooth_hinge": "bonafed.problem.losses:SmoothHinge",
        "logistic": "bonafed.problem.losses:Logistic",
        "exponential": "bonafed.problem.losses:Exponential",
        "squared": "bonafed.problem.losses:Squared",
        "poisson": "bonafed.problem.losses:Poisson",
        "absolute": "bonafed.problem.losses:Absolute",
        "huber": "bonafed.problem.losses:Huber",
        "epsilon_insensitive": "bonafed.problem.losses:EpsilonInsensitive",
        "quantile": "bonafed.problem.losses:Quantile",
        "multinomial": "bonafed.problem.losses:Multinomial",
    },
    "model": {
        "linear": "bonafed.problem.predictors.affine:Linear",
        "softmax": "bonafed.problem.predictors.affine:Softmax",
        "mlp": "bonafed.problem.predictors.mlp:MLP",
    },
    "regulariser": {
        "none": "bonafed.problem.regularisers:Zero",
        "l1": "bonafed.problem.regularisers:L1",
        "l2": "bonafed.problem.regularisers:L2",
        "elastic_net": "bonafed.problem.regularisers:ElasticNet",
        "ball": "bonafed.problem.regularisers:Ball",
        "mcp": "bonafed.problem.regularisers:MCP",
        "scad": "bonafed.problem.regularisers:SCAD",
    },
    "risk over samples": {
        "mean": "bonafed.problem.risks.weight_sets:Mean",
        "superquantile": "bonafed.problem.risks.weight_sets:Superquantile",
        "extremile": "bonafed.problem.risks.ranks:Extremile",
        "exponential_spectral": "bonafed.problem.risks.ranks:ExponentialSpectral",
        "maximum": "bonafed.problem.risks.ranks:Maximum",
        "top_k": "bonafed.problem.risks.ranks:TopK",
        "ranked_range": "bonafed.problem.risks.ranks:RankedRange",
        "median": "bonafed.problem.risks.ranks:Median",
        "value_at_risk": "bonafed.problem.risks.ranks:ValueAtRisk",
        "human_aligned": "bonafed.problem.risks.ranks:HumanAligned",
        "prospect_theory": "bonafed.problem.risks.ranks:ProspectTheory",
    },
    "risk over clients": {
        "mean": "bonafed.problem.risks.weight_sets:Mean",
        "simplex": "bonafed.problem.risks.weight_sets:Simplex",
        "lp_ball": "bonafed.problem.risks.weight_sets:LpBall",
        "cd_norm": "bonafed.problem.risks.weight_sets:CDNorm",
        "box": "bonafed.problem.risks.weight_sets:Box",
        "ellipsoid": "bonafed.problem.risks.weight_sets:Ellipsoid",
        "polyhedron": "bonafed.problem.risks.weight_sets:Polyhedron",
        "kl_ball": "bonafed.problem.risks.weight_sets:KLBall",
        "chi_square": "bonafed.problem.risks.weight_sets:ChiSquareBall",
        "total_variation": "bonafed.problem.risks.weight_sets:TotalVariationBall",
        "wasserstein": "bonafed.problem.risks.weight_sets:WassersteinOverClients",
        "superquantile": "bonafed.problem.risks.weight_sets:Superquantile",
    },
    "ball": {"wasserstein": "bonafed.problem.wasserstein.ball:WassersteinBall"},
    "budget": {"privacy": "bonafed.privacy.budget:Budget"},
    "constraint": {
        "neyman_pearson": "bonafed.problem.constraints.group_means:NeymanPearson",
        "loss_gap": "bonafed.problem.constraints.group_means:LossGap",
        "bounded_group_loss": "bonafed.problem.constraints.group_means:BoundedGroupLoss",
        "demographic_parity": "bonafed.problem.constraints.group_means:DemographicParity",
        "equalised_odds": "bonafed.problem.constraints.group_means:EqualisedOdds",
        "sign": "bonafed.problem.constraints.linear:Sign",
        "monotone": "bonafed.problem.constraints.linear:Monotone",
        "cost_limit": "bonafed.problem.constraints.linear:CostLimit",
        "linear_inequality": "bonafed.problem.constraints.linear:LinearInequality",
        "linear_equality": "bonafed.problem.constraints.linear:LinearEquality",
    },
    "measure": {
        "score": "bonafed.problem.constraints.group_means:Score",
        "probability": "bonafed.problem.constraints.group_means:Probability",
    },
    "algorithm": {
        "bundle": "bonafed.algorithms.federated.bundle.bundle:Bundle",
        "async_bundle": "bonafed.algorithms.federated.bundle.async_bundle:AsyncBundle",
        "ad_lpmm": "bonafed.papers.drfl.epigraph_admm:ADLPMM",
        "epigraph_admm": "bonafed.papers.drfl.epigraph_admm:EpigraphADMM",
        "double_loop": "bonafed.papers.drfl.epigraph_admm:DoubleLoop",
        "rank_admm": "bonafed.algorithms.pooled.rank_admm:RankADMM",
        "smoothed_rank_admm": "bonafed.papers.rank.smoothed:SmoothedRankADMM",
        "sgd": "bonafed.papers.rank.stochastic:SGD",
        "lsvrg": "bonafed.papers.rank.stochastic:LSVRG",
        "dca": "bonafed.papers.rank.smoothed:DCA",
        "interior_point": "bonafed.algorithms.federated.interior_point:InteriorPoint",
        "proximal_al": "bonafed.algorithms.federated.proximal_al.proximal_al:ProximalAL",
        "private_admm": "bonafed.algorithms.federated.private_admm:PrivateADMM",
        "output_perturbed_admm": "bonafed.papers.dp_iadmm.published:OutputPerturbedADMM",
        "private_sgd": "bonafed.algorithms.federated.private_sgd:PrivateSGD",
        "private_newton": "bonafed.algorithms.federated.private_newton:PrivateNewton",
        "async_dro": "bonafed.algorithms.federated.async_dro:AsyncDRO",
        "aspire": "bonafed.papers.aspire.aspire:ASPIRE",
        "multiplier_method": "bonafed.algorithms.federated.multiplier_method:MultiplierMethod",
        "afl": "bonafed.algorithms.comparators.afl:AFL",
        "drfa": "bonafed.papers.aspire.drfa:DRFA",
        "fed_avg": "bonafed.algorithms.comparators.fed_avg:FedAvg",
        "rank_interior_point": "bonafed.algorithms.federated.rank_rows:RankInteriorPoint",
        "rank_bundle": "bonafed.algorithms.federated.rank_rows:RankBundle",
    },
    "engine": {
        "in_process": "bonafed.engines.inprocess:InProcess",
        "virtual_clock": "bonafed.engines.inprocess:VirtualClock",
    },
    "delays": {
        "lognormal": "bonafed.engines.delays:LogNormal",
        "constant": "bonafed.engines.delays:Constant",
        "trace": "bonafed.engines.delays:Trace",
    },
    "waiting": {
        "first": "bonafed.engines.delays:First",
        "stale": "bonafed.engines.delays:Stale",
        "adaptive": "bonafed.engines.delays:Adaptive",
    },
}

PUBLIC: tuple[str, ...] = (
    "bonafed.data.federation:Federation",
    "bonafed.problem.problem:Problem",
    "bonafed.problem.losses:Quadratic",
    "bonafed.problem.predictors.torch_module:TorchPredictor",
    "bonafed.problem.wasserstein.supports:BoxSupport",
    "bonafed.problem.wasserstein.supports:PolytopeSupport",
    "bonafed.problem.risks.weight_sets:Sum",
    "bonafed.problem.risks.weight_sets:OwnSet",
    "bonafed.problem.risks.ranks:Spectral",
    "bonafed.problem.constraints.custom:Constraint",
    "bonafed.problem.constraints.custom:TorchConstraint",
    "bonafed.problem.constraints.group_means:Coupled",
    "bonafed.problem.regularisers:Bounds",
    "bonafed.problem.regularisers:GroupL2",
    "bonafed.problem.lower_bounds:Duals",
    "bonafed.problem.lower_bounds:Multipliers",
    "bonafed.papers.drfl.epigraph_admm:RiskADMM",
    "bonafed.algorithms.federated.private_admm:Penalty",
    "bonafed.algorithms.comparators.fed_avg:Average",
    "bonafed.algorithms.comparators.fed_avg:Bulyan",
    "bonafed.algorithms.comparators.fed_avg:CoordinateMedian",
    "bonafed.algorithms.comparators.fed_avg:Krum",
    "bonafed.algorithms.comparators.fed_avg:TrimmedMean",
    "bonafed.algorithms.comparators.central_conic:CentralConic",
    "bonafed.papers.constrained.centralised:CentralisedAL",
    "bonafed.algorithms.comparators.fed_avg:FedProx",
    "bonafed.algorithms.pooled.rank_admm:Start",
    "bonafed.algorithms.pooled.rank_subproblems:Balanced",
    "bonafed.algorithms.pooled.rank_subproblems:ByResidual",
    "bonafed.algorithms.pooled.rank_subproblems:Growing",
    "bonafed.papers.rank.smoothed:Smoothing",
    "bonafed.privacy.budget:BudgetSpentError",
    "bonafed.papers.dp_iadmm.published:NoPrivacyWarning",
    "bonafed.privacy.ledger:Ledger",
    "bonafed.privacy.ledger:Book",
    "bonafed.privacy.secure_sum.messages:SecureSum",
    "bonafed.privacy.odometer:RepeatedRunWarning",
    "bonafed.auditing:Audit",
    "bonafed.auditing:audit",
    "bonafed.engines.inprocess:Replay",
    "bonafed.engines.run_record:Log",
    "bonafed.certificates.certificate:Certificate",
    "bonafed.certificates.certify:certify",
    "bonafed.rounds:Outcome",
    "bonafed.rounds:Stop",
    "bonafed.problem.calibration:Sigmoid",
    "bonafed.solution.tables:exposed_rows",
    "bonafed.solution.intervals:PrivateIntervals",
    "bonafed.solution.intervals:private_intervals",
    "bonafed.solution.solution:load",
    "bonafed.solution.solution:Solution",
    "bonafed.solution.solve:solve",
    "bonafed.estimators.agnostic:AgnosticClassifier",
    "bonafed.estimators.constrained:ConstrainedClassifier",
    "bonafed.estimators.constrained:InfeasibleProblemError",
    "bonafed.estimators.rows:MissingGroupsWarning",
    "bonafed.solution.trivial:TrivialModelWarning",
    "bonafed.solution.trivial:Triviality",
    "bonafed.estimators.private:PrivateClassifier",
    "bonafed.estimators.private_search:PrivateSearch",
    "bonafed.estimators.ranked:RiskClassifier",
    "bonafed.estimators.ranked:RiskRegressor",
    "bonafed.estimators.robust:RobustClassifier",
    "bonafed.estimators.robust:RobustRegressor",
    "bonafed.estimators.scorers:WorstClassError",
    "bonafed.estimators.scorers:tail_loss",
    "bonafed.estimators.scorers:worst_client_accuracy",
    "bonafed.estimators.scorers:worst_client_loss",
    "bonafed.solution.thresholds:default_radius",
    "bonafed.solution.solve:radius_path",
    "bonafed.fairness:average_odds_difference",
    "bonafed.fairness:disparate_impact",
    "bonafed.fairness:equal_opportunity_difference",
    "bonafed.fairness:fairness_metrics",
    "bonafed.fairness:false_negative_rate_difference",
    "bonafed.fairness:group_rates",
    "bonafed.fairness:statistical_parity_difference",
    "bonafed.fairness:theil_index",
)


def by_module() -> dict[str, list[str]]:
    """The public names of bonafed, by the module that has them."""
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
        raise ValueError(f"{str(place)[:60]!r} is not a public name of bonafed")
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
