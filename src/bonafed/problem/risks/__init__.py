"""Risks over clients or samples, one file each: numbers in, one number and its weights out."""

from bonafed.problem.risks.box import Box
from bonafed.problem.risks.cd_norm import CDNorm
from bonafed.problem.risks.custom import OwnSet
from bonafed.problem.risks.divergences import ChiSquareBall, KLBall, TotalVariationBall
from bonafed.problem.risks.ellipsoid import Ellipsoid
from bonafed.problem.risks.lp_ball import LpBall
from bonafed.problem.risks.mean import Mean, Sum
from bonafed.problem.risks.polyhedron import Polyhedron
from bonafed.problem.risks.prospect import HumanAligned, ProspectTheory
from bonafed.problem.risks.ranked_range import Median, RankedRange, ValueAtRisk
from bonafed.problem.risks.risk import (
    Risk,
    SupportsProject,
    SupportsProx,
    Worst,
    prox_by_moreau,
    resolve_prior,
)
from bonafed.problem.risks.simplex import Simplex
from bonafed.problem.risks.spectral import ExponentialSpectral, Extremile, Maximum, Spectral, TopK
from bonafed.problem.risks.superquantile import Superquantile
from bonafed.problem.risks.wasserstein import WassersteinOverClients

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
