"""The one list of names: every public class and function of bonafed, and where it is.

``NAMED`` has the places of the classes with a short name in a configuration file, by kind;
``PUBLIC`` has those of the public names without one. A place is ``module:name``. What a class
takes, and what it is good for, are facts of the class and are not repeated here.

To add a loss, write its class and its name in a line of ``_NAMED["loss"]``.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from typing import Any

# By kind, in the order in which they are listed to users: a module and its classes. The short name
# of a class is its name in small letters, as in ``lp_ball`` of LpBall, or stands before it.
_NAMED: dict[str, tuple[str, ...]] = {
    "loss": (
        "problem.losses: Hinge SmoothHinge Logistic Exponential Squared Poisson Absolute Huber",
        "problem.losses: EpsilonInsensitive Quantile Multinomial",
    ),
    "model": ("problem.predictors.affine: Linear Softmax", "problem.predictors.mlp: MLP"),
    "regulariser": ("problem.regularisers: none=Zero L1 L2 ElasticNet Ball MCP SCAD",),
    "risk over samples": (
        "problem.risks.weight_sets: Mean Superquantile",
        "problem.risks.ranks: Extremile ExponentialSpectral Maximum TopK RankedRange Median",
        "problem.risks.ranks: ValueAtRisk HumanAligned ProspectTheory",
    ),
    "risk over clients": (
        "problem.risks.weight_sets: Mean Simplex LpBall CDNorm Box Ellipsoid Polyhedron KLBall",
        "problem.risks.weight_sets: chi_square=ChiSquareBall total_variation=TotalVariationBall",
        "problem.risks.weight_sets: wasserstein=WassersteinOverClients Superquantile",
    ),
    "ball": ("problem.wasserstein.ball: wasserstein=WassersteinBall",),
    "budget": ("privacy.budget: privacy=Budget",),
    "constraint": (
        "problem.constraints.group_means: NeymanPearson LossGap BoundedGroupLoss",
        "problem.constraints.group_means: DemographicParity EqualisedOdds",
        "problem.constraints.linear: Sign Monotone CostLimit LinearInequality LinearEquality",
    ),
    "measure": ("problem.constraints.group_means: Score Probability",),
    "algorithm": (
        "algorithms.federated.bundle.bundle: Bundle",
        "algorithms.federated.bundle.async_bundle: AsyncBundle",
        "papers.drfl.epigraph_admm: ad_lpmm=ADLPMM EpigraphADMM DoubleLoop",
        "algorithms.pooled.rank_admm: RankADMM",
        "papers.rank.smoothed: SmoothedRankADMM",
        "papers.rank.stochastic: SGD LSVRG",
        "papers.rank.smoothed: DCA",
        "algorithms.federated.interior_point: InteriorPoint",
        "algorithms.federated.proximal_al.proximal_al: ProximalAL",
        "algorithms.federated.private_admm: PrivateADMM",
        "papers.dp_iadmm.published: OutputPerturbedADMM",
        "algorithms.federated.private_sgd: PrivateSGD",
        "algorithms.federated.private_newton: PrivateNewton",
        "algorithms.federated.async_dro: AsyncDRO",
        "papers.aspire.aspire: ASPIRE",
        "algorithms.federated.multiplier_method: MultiplierMethod",
        "algorithms.comparators.afl: AFL",
        "papers.aspire.drfa: DRFA",
        "algorithms.comparators.fed_avg: FedAvg",
        "algorithms.federated.rank_rows: RankInteriorPoint RankBundle",
        "algorithms.federated.kinks: KinkInteriorPoint",
        "algorithms.federated.row_multipliers: RowMultiplierMethod",
    ),
    "engine": ("engines.inprocess: InProcess VirtualClock",),
    "delays": ("engines.delays: lognormal=LogNormal Constant Trace",),
    "waiting": ("engines.delays: First Stale Adaptive",),
}

_PUBLIC: tuple[str, ...] = (
    "data.federation: Federation",
    "problem.problem: Problem",
    "problem.losses: Quadratic",
    "problem.predictors.torch_module: TorchPredictor",
    "problem.wasserstein.supports: BoxSupport PolytopeSupport",
    "problem.risks.weight_sets: Sum OwnSet",
    "problem.risks.ranks: Spectral",
    "problem.constraints.custom: Constraint TorchConstraint",
    "problem.constraints.group_means: Coupled",
    "problem.regularisers: Bounds GroupL2",
    "problem.lower_bounds: Duals Multipliers",
    "papers.drfl.epigraph_admm: RiskADMM",
    "algorithms.federated.private_admm: Penalty",
    "algorithms.comparators.fed_avg: Average Bulyan CoordinateMedian FedProx Krum TrimmedMean",
    "algorithms.comparators.central_conic: CentralConic",
    "papers.constrained.centralised: CentralisedAL",
    "algorithms.pooled.rank_admm: Start",
    "algorithms.pooled.rank_subproblems: Balanced ByResidual Growing",
    "papers.rank.smoothed: Smoothing",
    "privacy.budget: BudgetSpentError",
    "papers.dp_iadmm.published: NoPrivacyWarning",
    "privacy.ledger: Ledger Book",
    "privacy.secure_sum.messages: SecureSum",
    "privacy.odometer: RepeatedRunWarning",
    "auditing: Audit audit",
    "engines.inprocess: Replay",
    "engines.run_record: Log",
    "certificates.certificate: Certificate",
    "certificates.certify: certify",
    "rounds: Outcome Stop",
    "problem.calibration: Sigmoid",
    "solution.tables: exposed_rows",
    "solution.intervals: PrivateIntervals private_intervals",
    "solution.solution: load Solution",
    "solution.outcome: UnprovenWarning",
    "solution.solve: solve radius_path",
    "estimators.agnostic: AgnosticClassifier",
    "estimators.constrained: ConstrainedClassifier InfeasibleProblemError",
    "estimators.rows: MissingGroupsWarning",
    "solution.trivial: TrivialModelWarning Triviality",
    "solution.warnings: RareClassWarning",
    "estimators.private: PrivateClassifier",
    "estimators.private_search: PrivateSearch",
    "estimators.ranked: RiskClassifier RiskRegressor",
    "estimators.robust: RobustClassifier RobustRegressor",
    "estimators.scorers: WorstClassError tail_loss worst_client_accuracy worst_client_loss",
    "solution.thresholds: default_radius",
    "fairness: average_odds_difference disparate_impact equal_opportunity_difference",
    "fairness: fairness_metrics false_negative_rate_difference group_rates",
    "fairness: statistical_parity_difference theil_index",
)


def _places(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The short names and the places in lines "module: names"."""
    for line in lines:
        module, *words = line.replace(":", "").split()
        for word in words:
            stated, _, name = word.rpartition("=")
            short = re.sub("(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
            yield stated or short, f"bonafed.{module}:{name}"


NAMED = {kind: dict(_places(lines)) for kind, lines in _NAMED.items()}
PUBLIC = tuple(place for _, place in _places(_PUBLIC))


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
