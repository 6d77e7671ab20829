"""Types of the public names. Made by ``python tests/typing_stub.py``."""

from bonafed.algorithms.comparators.afl import AFL as AFL
from bonafed.algorithms.comparators.central_conic import CentralConic as CentralConic
from bonafed.algorithms.comparators.fed_avg import Average as Average, Bulyan as Bulyan
from bonafed.algorithms.comparators.fed_avg import CoordinateMedian as CoordinateMedian
from bonafed.algorithms.comparators.fed_avg import FedAvg as FedAvg, FedProx as FedProx
from bonafed.algorithms.comparators.fed_avg import Krum as Krum, TrimmedMean as TrimmedMean
from bonafed.algorithms.federated.async_dro import AsyncDRO as AsyncDRO
from bonafed.algorithms.federated.bundle.async_bundle import AsyncBundle as AsyncBundle
from bonafed.algorithms.federated.bundle.bundle import Bundle as Bundle
from bonafed.algorithms.federated.interior_point import InteriorPoint as InteriorPoint
from bonafed.algorithms.federated.kinks import KinkInteriorPoint as KinkInteriorPoint
from bonafed.algorithms.federated.multiplier_method import MultiplierMethod as MultiplierMethod
from bonafed.algorithms.federated.private_admm import Penalty as Penalty, PrivateADMM as PrivateADMM
from bonafed.algorithms.federated.private_newton import PrivateNewton as PrivateNewton
from bonafed.algorithms.federated.private_sgd import PrivateSGD as PrivateSGD
from bonafed.algorithms.federated.proximal_al.proximal_al import ProximalAL as ProximalAL
from bonafed.algorithms.federated.rank_rows import RankBundle as RankBundle
from bonafed.algorithms.federated.rank_rows import RankInteriorPoint as RankInteriorPoint
from bonafed.algorithms.federated.row_multipliers import RowMultiplierMethod as RowMultiplierMethod
from bonafed.algorithms.pooled.rank_admm import RankADMM as RankADMM, Start as Start
from bonafed.algorithms.pooled.rank_subproblems import Balanced as Balanced
from bonafed.algorithms.pooled.rank_subproblems import ByResidual as ByResidual, Growing as Growing
from bonafed.auditing import Audit as Audit, audit as audit
from bonafed.certificates.certificate import Certificate as Certificate
from bonafed.certificates.certify import certify as certify
from bonafed.data.federation import Federation as Federation
from bonafed.engines.delays import Adaptive as Adaptive, Constant as Constant, First as First
from bonafed.engines.delays import LogNormal as LogNormal, Stale as Stale, Trace as Trace
from bonafed.engines.inprocess import InProcess as InProcess, Replay as Replay
from bonafed.engines.inprocess import VirtualClock as VirtualClock
from bonafed.engines.run_record import Log as Log
from bonafed.estimators.agnostic import AgnosticClassifier as AgnosticClassifier
from bonafed.estimators.constrained import ConstrainedClassifier as ConstrainedClassifier
from bonafed.estimators.constrained import InfeasibleProblemError as InfeasibleProblemError
from bonafed.estimators.private import PrivateClassifier as PrivateClassifier
from bonafed.estimators.private_search import PrivateSearch as PrivateSearch
from bonafed.estimators.ranked import RiskClassifier as RiskClassifier
from bonafed.estimators.ranked import RiskRegressor as RiskRegressor
from bonafed.estimators.robust import RobustClassifier as RobustClassifier
from bonafed.estimators.robust import RobustRegressor as RobustRegressor
from bonafed.estimators.rows import MissingGroupsWarning as MissingGroupsWarning
from bonafed.estimators.scorers import WorstClassError as WorstClassError, tail_loss as tail_loss
from bonafed.estimators.scorers import worst_client_accuracy as worst_client_accuracy
from bonafed.estimators.scorers import worst_client_loss as worst_client_loss
from bonafed.fairness import average_odds_difference as average_odds_difference
from bonafed.fairness import disparate_impact as disparate_impact
from bonafed.fairness import equal_opportunity_difference as equal_opportunity_difference
from bonafed.fairness import fairness_metrics as fairness_metrics
from bonafed.fairness import false_negative_rate_difference as false_negative_rate_difference
from bonafed.fairness import group_rates as group_rates
from bonafed.fairness import statistical_parity_difference as statistical_parity_difference
from bonafed.fairness import theil_index as theil_index
from bonafed.papers.aspire.aspire import ASPIRE as ASPIRE
from bonafed.papers.aspire.drfa import DRFA as DRFA
from bonafed.papers.constrained.centralised import CentralisedAL as CentralisedAL
from bonafed.papers.dp_iadmm.published import NoPrivacyWarning as NoPrivacyWarning
from bonafed.papers.dp_iadmm.published import OutputPerturbedADMM as OutputPerturbedADMM
from bonafed.papers.drfl.epigraph_admm import ADLPMM as ADLPMM, DoubleLoop as DoubleLoop
from bonafed.papers.drfl.epigraph_admm import EpigraphADMM as EpigraphADMM, RiskADMM as RiskADMM
from bonafed.papers.rank.smoothed import DCA as DCA, SmoothedRankADMM as SmoothedRankADMM
from bonafed.papers.rank.smoothed import Smoothing as Smoothing
from bonafed.papers.rank.stochastic import LSVRG as LSVRG, SGD as SGD
from bonafed.privacy.budget import Budget as Budget, BudgetSpentError as BudgetSpentError
from bonafed.privacy.ledger import Book as Book, Ledger as Ledger
from bonafed.privacy.odometer import RepeatedRunWarning as RepeatedRunWarning
from bonafed.privacy.secure_sum.messages import SecureSum as SecureSum
from bonafed.problem.calibration import Sigmoid as Sigmoid
from bonafed.problem.constraints.custom import Constraint as Constraint
from bonafed.problem.constraints.custom import TorchConstraint as TorchConstraint
from bonafed.problem.constraints.group_means import BoundedGroupLoss as BoundedGroupLoss
from bonafed.problem.constraints.group_means import Coupled as Coupled
from bonafed.problem.constraints.group_means import DemographicParity as DemographicParity
from bonafed.problem.constraints.group_means import EqualisedOdds as EqualisedOdds
from bonafed.problem.constraints.group_means import LossGap as LossGap
from bonafed.problem.constraints.group_means import NeymanPearson as NeymanPearson
from bonafed.problem.constraints.group_means import Probability as Probability, Score as Score
from bonafed.problem.constraints.linear import CostLimit as CostLimit
from bonafed.problem.constraints.linear import LinearEquality as LinearEquality
from bonafed.problem.constraints.linear import LinearInequality as LinearInequality
from bonafed.problem.constraints.linear import Monotone as Monotone, Sign as Sign
from bonafed.problem.losses import Absolute as Absolute, EpsilonInsensitive as EpsilonInsensitive
from bonafed.problem.losses import Exponential as Exponential, Hinge as Hinge, Huber as Huber
from bonafed.problem.losses import Logistic as Logistic, Multinomial as Multinomial
from bonafed.problem.losses import Poisson as Poisson, Quadratic as Quadratic, Quantile as Quantile
from bonafed.problem.losses import SmoothHinge as SmoothHinge, Squared as Squared
from bonafed.problem.lower_bounds import Duals as Duals, Multipliers as Multipliers
from bonafed.problem.predictors.affine import Linear as Linear, Softmax as Softmax
from bonafed.problem.predictors.mlp import MLP as MLP
from bonafed.problem.predictors.torch_module import TorchPredictor as TorchPredictor
from bonafed.problem.problem import Problem as Problem
from bonafed.problem.regularisers import L1 as L1, L2 as L2, MCP as MCP, SCAD as SCAD, Ball as Ball
from bonafed.problem.regularisers import Bounds as Bounds, ElasticNet as ElasticNet
from bonafed.problem.regularisers import GroupL2 as GroupL2, Zero as Zero
from bonafed.problem.risks.ranks import ExponentialSpectral as ExponentialSpectral
from bonafed.problem.risks.ranks import Extremile as Extremile, HumanAligned as HumanAligned
from bonafed.problem.risks.ranks import Maximum as Maximum, Median as Median
from bonafed.problem.risks.ranks import ProspectTheory as ProspectTheory, RankedRange as RankedRange
from bonafed.problem.risks.ranks import Spectral as Spectral, TopK as TopK
from bonafed.problem.risks.ranks import ValueAtRisk as ValueAtRisk
from bonafed.problem.risks.weight_sets import Box as Box, CDNorm as CDNorm
from bonafed.problem.risks.weight_sets import ChiSquareBall as ChiSquareBall, Ellipsoid as Ellipsoid
from bonafed.problem.risks.weight_sets import KLBall as KLBall, LpBall as LpBall, Mean as Mean
from bonafed.problem.risks.weight_sets import OwnSet as OwnSet, Polyhedron as Polyhedron
from bonafed.problem.risks.weight_sets import Simplex as Simplex, Sum as Sum
from bonafed.problem.risks.weight_sets import Superquantile as Superquantile
from bonafed.problem.risks.weight_sets import TotalVariationBall as TotalVariationBall
from bonafed.problem.risks.weight_sets import WassersteinOverClients as WassersteinOverClients
from bonafed.problem.wasserstein.ball import WassersteinBall as WassersteinBall
from bonafed.problem.wasserstein.supports import BoxSupport as BoxSupport
from bonafed.problem.wasserstein.supports import PolytopeSupport as PolytopeSupport
from bonafed.rounds import Outcome as Outcome, Stop as Stop
from bonafed.solution.intervals import PrivateIntervals as PrivateIntervals
from bonafed.solution.intervals import private_intervals as private_intervals
from bonafed.solution.outcome import UnprovenWarning as UnprovenWarning
from bonafed.solution.solution import Solution as Solution, load as load
from bonafed.solution.solve import radius_path as radius_path, solve as solve
from bonafed.solution.tables import exposed_rows as exposed_rows
from bonafed.solution.thresholds import default_radius as default_radius
from bonafed.solution.trivial import Triviality as Triviality
from bonafed.solution.trivial import TrivialModelWarning as TrivialModelWarning
from bonafed.solution.warnings import RareClassWarning as RareClassWarning

__version__: str
