"""The certificate of a model: its guarantees as numbers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bonafed.arrays import Array
from bonafed.problem.problem import Problem
from bonafed.text import card

WORDS = ("declared", "failed")  # entries of a certificate that are no numbers


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """The guarantees of a model as numbers; None where a number does not apply.

    Attributes
    ----------
    value : the problem's objective at w, exactly
    bound : a proven lower bound on the optimal value
    gap, relative_gap : value - bound, and that over max(|value|, |bound|, 1e-12)
    weights : (N,) the worst client weights q*, in their set
    client_risks : (N,) F_i(w)
    client_losses : (N,) mean loss of the client's rows at w
    client_levels : (N,) the transport multiplier lambda of the client's Wasserstein ball
    client_labels, client_features : (N,) transport cost that the worst distribution spends on
        labels (targets) and on features
    feasibility : how far w and the weights are outside their sets
    stationarity : Euclidean length of the gradient that the duals leave unbalanced; for a model
        that is not affine, of the gradient of the weighted risks and the regulariser at w
        (``certificates.stationary``)
    complementarity : R(F(w)) - <weights, F(w)>, 0 when the weights are worst for w
    consensus : largest distance of a client's copy from w, where the algorithm keeps copies
    residuals : (3,) for a spectral risk that is not convex: how far w, the multipliers of its rows
        and their rank coordinates z are from the three conditions of optimality
        (``certificates.kkt``); stationarity is the larger of the first two, feasibility the third
    constraint_values, server_values, shared_values : with constraints c_i(w) (N, p), NaN where a
        client has none, c_0(w) (p_0,) and the sums over the clients (p_c,). Then feasibility is the
        largest violation, stationarity the Chebyshev distance of 0 from the Lagrangian's
        subdifferential, complementarity the largest |multiplier * value|
    gradient_scale : Chebyshev norm of the objective's gradient at w = 0: stationarity over it has
        no unit; for a model that is not affine the sum of the lengths of the clients' weighted
        gradients at w
    infeasible : where the multipliers prove that no model meets all constraints: a positive lower
        bound on their combination of the constraints, over all models
    declared : the user's own functions that the bound stands on, in words
    failed : why the proof failed, in words; "" where it did not. Then there is no bound, and where
        not even the value could be computed it is NaN. Neither this nor ``declared`` is a number of
        the certificate

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> proof = bf.solve(problem, fed).certificate
    >>> proof.bound <= proof.value, bool(proof.relative_gap < 1e-5)
    (True, True)
    """

    value: float
    bound: float | None
    gap: float | None
    relative_gap: float | None
    weights: Array
    client_risks: Array
    client_losses: Array
    client_levels: Array
    client_labels: Array
    client_features: Array
    feasibility: float
    stationarity: float | None = None
    complementarity: float | None = None
    consensus: float | None = None
    residuals: Array | None = None
    constraint_values: Array | None = None
    server_values: Array | None = None
    shared_values: Array | None = None
    gradient_scale: float | None = None
    infeasible: float | None = None
    declared: tuple[str, ...] = ()
    failed: str = ""

    def numbers(self) -> dict[str, Any]:
        """All entries as plain Python values, for storage and comparison."""
        numbers = {k: v for k, v in vars(self).items() if k not in WORDS}
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in numbers.items()}

    @classmethod
    def of(cls, numbers: Mapping[str, Any]) -> "Certificate":
        """The certificate with these ``numbers``, as JSON has them: None for what is not a number
        in a list, and "inf".
        """
        entries: dict[str, Any] = dict(numbers)
        for name, value in numbers.items():
            if value is not None:
                entries[name] = np.array(value, float) if isinstance(value, list) else float(value)
        return cls(**entries)

    def in_words(self) -> str:
        """The value, and what is proved of the optimum."""
        declared = "as declared, " if self.declared else ""
        if self.infeasible is not None:
            return f"{self.value:.6g}; {declared}no model meets all constraints"
        if self.bound is None:
            return f"{self.value:.6g}; no bound is proved"
        gap, relative = max(self.gap or 0.0, 0.0), max(self.relative_gap or 0.0, 0.0)
        return (
            f"{self.value:.6g}; {declared}no model is below {self.bound:.6g} (gap {gap:.1e},"
            f" relative {relative:.1e})"
        )

    def _facts(self) -> list[tuple[str, str]]:
        """The numbers that are there, and how many clients they are of."""
        numbers = [(name, value) for name, value in vars(self).items() if isinstance(value, float)]
        told = [(name, f"{value:.6g}") for name, value in numbers]
        return [*told, ("clients", f"{len(self.weights):,}")]

    def __repr__(self) -> str:
        return f"Certificate({', '.join(f'{name}={value}' for name, value in self._facts())})"

    def _repr_html_(self) -> str:
        return card("Certificate", [("value", self.in_words()), *self._facts()[1:]])


def certificate(
    value: float, bound: float | None, weights: Array, risks: Array, losses: Array, **more: Any
) -> Certificate:
    """The certificate of a value and a bound with their gaps, of client weights, risks and losses
    (N,); transport costs are 0 unless they are among ``more``.
    """
    gap = relative = None
    if bound is not None:
        gap, relative = value - bound, (value - bound) / max(abs(value), abs(bound), 1e-12)
    costs = ("client_levels", "client_labels", "client_features")
    more = dict.fromkeys(costs, np.zeros(len(weights))) | more
    return Certificate(value, bound, gap, relative, weights, risks, losses, **more)


def without_numbers(n_clients: int) -> Certificate:
    """The certificate of a model of which nothing could be computed."""
    unknown = np.full(n_clients, math.nan)
    return certificate(math.nan, None, unknown, unknown, unknown, feasibility=math.nan)


def outside(problem: Problem, coefficients: Array) -> float:
    """How far the coefficients are outside the regulariser's domain."""
    if not math.isinf(float(problem.regulariser.value(coefficients))):
        return 0.0
    inside = problem.regulariser.prox(coefficients, 1e-300)
    return float(np.abs(inside - coefficients).max(initial=0.0))
