"""Risks over clients or samples, one file each: numbers in, one number and its weights out."""

from quorate.problem.risks.lp_ball import LpBall
from quorate.problem.risks.mean import Mean, Sum
from quorate.problem.risks.prospect import HumanAligned, ProspectTheory
from quorate.problem.risks.ranked_range import Median, RankedRange, ValueAtRisk
from quorate.problem.risks.risk import Risk, SupportsProject, SupportsProx, Worst, prox_by_moreau, resolve_prior
from quorate.problem.risks.simplex import Simplex
from quorate.problem.risks.spectral import ExponentialSpectral, Extremile, Maximum, Spectral, TopK
from quorate.problem.risks.superquantile import Superquantile

__all__ = [
    "ExponentialSpectral",
    "Extremile",
    "HumanAligned",
    "LpBall",
    "Maximum",
    "Mean",
    "Median",
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
    "ValueAtRisk",
    "Worst",
    "prox_by_moreau",
    "resolve_prior",
]
