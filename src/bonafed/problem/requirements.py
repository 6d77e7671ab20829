"""What proofs and programs ask of a problem; each check refuses one kind of problem.

What an algorithm asks stands on its class, see ``bonafed.algorithms.requirements``.
"""

from bonafed.problem.losses import Quadratic
from bonafed.problem.predictors.affine import is_affine
from bonafed.problem.problem import Problem


def only_constrained(problem: Problem) -> bool:
    """Whether only methods for constraints take the problem."""
    return problem.constrained or takes_multipliers(problem)


def takes_multipliers(problem: Problem) -> bool:
    """Whether only methods for constraints take the objective, also without constraints."""
    one_class = getattr(problem.over_samples, "label", None) is not None
    return one_class or isinstance(problem.loss, Quadratic)


def check_affine(problem: Problem, what: str) -> None:
    """Raise ``ValueError`` unless predictions are affine in the model, as ``what`` needs them."""
    if not is_affine(problem.predictor):
        raise ValueError(
            f"{what} needs predictions that are affine in the model, as those of Linear() and"
            f" Softmax() are, got {problem.predictor!r}."
        )


def check_convex(problem: Problem) -> None:
    """Raise ``ValueError`` unless a cut of every client's risk bounds it from below."""
    check_affine(problem, "a method of cuts, or a lower bound,")
    if not getattr(problem.over_samples, "convex", True):
        raise ValueError(
            f"{problem.over_samples!r} over samples is not convex, so that a cut of it bounds"
            " nothing and no lower bound can be proved. Use a convex risk over samples: Mean,"
            " WassersteinBall, Superquantile (CVaR) or another spectral risk whose weights ascend."
        )
