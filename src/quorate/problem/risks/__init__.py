"""Risks over clients or samples, one file each: numbers in, one number and its weights out."""

from quorate.problem.risks.lp_ball import LpBall
from quorate.problem.risks.mean import Mean, Sum
from quorate.problem.risks.risk import Risk, SupportsProject, SupportsProx, Worst, prox_by_moreau, resolve_prior
from quorate.problem.risks.simplex import Simplex

__all__ = [
    "LpBall",
    "Mean",
    "Risk",
    "Simplex",
    "Sum",
    "SupportsProject",
    "SupportsProx",
    "Worst",
    "prox_by_moreau",
    "resolve_prior",
]
