"""Risks over clients or samples, one file each: numbers in, one number and its weights out."""

from quorate.problem.risks.box import Box
from quorate.problem.risks.cd_norm import CDNorm
from quorate.problem.risks.chi_square import ChiSquareBall
from quorate.problem.risks.custom import OwnSet
from quorate.problem.risks.ellipsoid import Ellipsoid
from quorate.problem.risks.kl_ball import KLBall
from quorate.problem.risks.lp_ball import LpBall
from quorate.problem.risks.mean import Mean, Sum
from quorate.problem.risks.polyhedron import Polyhedron
from quorate.problem.risks.prospect import HumanAligned, ProspectTheory
from quorate.problem.risks.ranked_range import Median, RankedRange, ValueAtRisk
from quorate.problem.risks.risk import (
    Risk,
    SupportsProject,
    SupportsProx,
    Worst,
    prox_by_moreau,
    resolve_prior,
)
from quorate.problem.risks.simplex import Simplex
from quorate.problem.risks.spectral import ExponentialSpectral, Extremile, Maximum, Spectral, TopK
from quorate.problem.risks.superquantile import Superquantile
from quorate.problem.risks.total_variation import TotalVariationBall
from quorate.problem.risks.wasserstein import WassersteinOverClients

__all__ = [
    "Box",
    "CDNorm",
    "ChiSquareBall",
    "Ellipsoid",
    "ExponentialSpectral",
    "Extremile",
    "HumanAligned",
    "KLBall",
    "LpBall",
    "Maximum",
    "Mean",
    "Median",
    "OwnSet",
    "Polyhedron",
    "ProspectTheory",
    "RankedRange",
    "Risk",
    "Simplex",
    "Spectral",
    "Sum",
    "Superquantile",
    "SupportsProject",
    "SupportsProx",
    "TopK",
    "TotalVariationBall",
    "ValueAtRisk",
    "WassersteinOverClients",
    "Worst",
    "prox_by_moreau",
    "resolve_prior",
]
