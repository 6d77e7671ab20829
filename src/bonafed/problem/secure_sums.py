"""What a server that receives sums over the clients only may ask of a problem, and its answers.

    sum_s q_s F_s(w), its gradient and its second derivative,   q in Q one weighting for all clients

F_s is the mean loss of client s. One client's part in such a sum stays hidden only where

1. the weights are in Q, and two of them at least are 1 / (2 N) of the whole: where one client has
   nearly all the weight, the sum is its own answer;
2. no row changes an answer by a jump: where the slope of a loss jumps, the difference of two sums
   is often one row. So slopes have to be continuous, and second derivatives are only sent where
   they are;
3. worst distributions flip no labels and stop at no end of a support, which are jumps as well. Then
   R_s(w) = F_s(w) + radius_s max(Lip ||w||_*, floor), and the server knows all but F_s.

Each client checks what depends on the message, the first point.
"""

import math
from typing import Annotated

import numpy as np

from bonafed.arrays import Array, Block
from bonafed.codec import Form
from bonafed.problem.conic_form import member, multiplier_floor
from bonafed.problem.constraints.constraint import several
from bonafed.problem.constraints.coupled import Coupled, Global
from bonafed.problem.losses import SmoothHinge
from bonafed.problem.lower_bounds import Surveyed, survey
from bonafed.problem.parts import has_smooth_part
from bonafed.problem.predictors.affine import is_affine
from bonafed.problem.problem import Problem
from bonafed.problem.requirements import takes_multipliers
from bonafed.problem.risks.weight_sets import Mean
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.rounds import Sum, record

SECOND_ORDER = 500  # numbers of a model up to which second derivatives are sent
INSIDE = 1e-6  # how far from Q weights may be, by rounding


# ---- whether a problem can be asked so


def has_even_slopes(problem: Problem) -> bool:
    """Whether the slope of the loss changes gradually, and is nowhere 0 for all but a few rows."""
    return bool(problem.loss.smooth) and not isinstance(problem.loss, SmoothHinge)


def moves_evenly(problem: Problem) -> bool:
    """Whether the risk over samples is the mean loss and a multiple of ||w||_*."""
    ball = problem.over_samples
    if not isinstance(ball, WassersteinBall):
        return isinstance(ball, Mean)
    still = problem.loss.targets == "real" or math.isinf(ball.label_cost)
    return still and ball.support is None and problem.joint_cuts


def limits_no_rows(problem: Problem) -> bool:
    """Whether all constraints, stated or concrete, are those of the server itself, so that clients
    tell no number of them, and the objective is one of all methods.
    """
    local, held = problem.local_constraint, problem.constraint
    if isinstance(held, Global):
        none = not (local.size or held.coupled.size)
    else:
        parts = several(held, "constraint")
        together = any(isinstance(part, Coupled) for part in parts)
        none = not (several(local, "local_constraint") or together)
    return none and not takes_multipliers(problem)


def has_sums(problem: Problem) -> bool:
    """Whether value and bound of a problem follow from such sums and the clients' risks."""
    plain = is_affine(problem.predictor) and limits_no_rows(problem)
    even = has_even_slopes(problem) and moves_evenly(problem)
    return plain and even and problem.over_rows is None and hasattr(problem.over_clients, "project")


def largest_share(problem: Problem, n_clients: int) -> float:
    """The largest share of the weight that Q can give to one client."""
    risk = problem.over_clients
    most = max(float(risk.value(one)) for one in np.eye(n_clients))
    return most / float(np.sum(member(problem, n_clients)))


def share_allowed(n_clients: int) -> float:
    """The share of one client up to which, whatever the others', another has 1 / (2 N)."""
    return (n_clients + 1) / (2 * n_clients)


def check_weights(problem: Problem, weights: Array, clients: int | None) -> None:
    """Raise ``ValueError`` unless a sum with these weights (N,) hides every client; ``clients``:
    how many have agreed, so that none are invented.
    """
    n, total = len(weights), float(np.sum(weights))
    if clients is not None and n != clients:
        raise ValueError(
            f"weights must be those of the {clients} clients, got {n}: nothing was answered. Ask"
            " with the weights of all that have agreed."
        )
    known = n >= 2 and np.isfinite(weights).all()
    if not known or not problem.over_clients.contains(weights, INSIDE):
        raise ValueError(
            "a sum over clients needs weights of the problem's set, got others: nothing was"
            " answered. Ask with the worst weights of the risks."
        )
    if np.sort(weights)[-2] < (1 - INSIDE) * total / (2 * n):
        raise ValueError(
            f"a sum over {n} clients needs two weights of 1/{2 * n} at least, got one client with"
            " nearly all: nothing was answered. Use a smaller radius, or Mean()."
        )


# ---- the server's part of a risk


def least_multiplier(problem: Problem, w: Array) -> float:
    """The transport multiplier max(Lip ||w||_*, floor) at a model."""
    ball, (steep, floor) = problem.over_samples, multiplier_floor(problem)
    if not isinstance(ball, WassersteinBall) or not any(ball.radii()):
        return 0.0
    return max(steep * float(ball.dual_norm(problem.predictor.split(w)[0])), floor)


def moves_targets(problem: Problem, w: Array) -> bool:
    """Whether worst distributions move targets: where that changes predictions no less than moves
    of features do.
    """
    ball, (steep, floor) = problem.over_samples, multiplier_floor(problem)
    if not isinstance(ball, WassersteinBall) or floor == 0:
        return False
    return floor >= steep * float(ball.dual_norm(problem.predictor.split(w)[0]))


# ---- clients


@record
class SurveySums:
    """Ask for sizes of rows and features, as ``Survey`` does."""

    prior: Annotated[Array, Form("N")]  # the weights of all clients


@record
class SurveyedSums:
    """The answer: sums only."""

    plus: Annotated[Sum, Form("")]  # as in ``Surveyed``
    minus: Annotated[Sum, Form("")]
    reach: Annotated[Sum, Form("")]  # the square of the largest ||x||_2
    target: Annotated[Sum, Form("")]  # the square of the largest |y|
    square: Annotated[Sum, Form("features")]

    @property
    def seen(self) -> Surveyed:
        """What is known by it: of the largest lengths the root of their sum of squares, which is
        no smaller.
        """
        far, high = np.sqrt(self.reach), np.sqrt(self.target)
        return Surveyed(self.plus, self.minus, far, high, self.square)


def survey_sums(
    problem: Problem, ask: SurveySums, data: Block, clients: int | None
) -> SurveyedSums:
    """The answer to ``SurveySums`` of every client of the block."""
    check_weights(problem, ask.prior, clients)
    own = survey(data, ask.prior[data.index])
    return SurveyedSums(own.plus, own.minus, own.reach**2, own.target**2, own.square)


def sends_curvature(problem: Problem, dimension: int) -> bool:
    """Whether clients send second derivatives, for models of so many numbers."""
    even = getattr(problem.loss, "bends_evenly", False) and has_smooth_part(problem)
    return even and dimension <= SECOND_ORDER
