"""Intervals of the coefficients of a private model, which hold the sampling and the privacy noise.

The estimate is the Newton point w = v - A^-1 g of the means of models, matrices and gradients of a
run's last rounds. With H the mean curvature at the truth and n rows

    w - truth = -H^-1 (score + xi + E u) + small,     u = w - v,

score the mean gradient of the n rows at the truth, with variance phi H / n where the model is a
likelihood (phi = 1 for logistic and Poisson regression, the residual variance for least squares),
xi the noise of the mean gradient and E that of A. Their scales are public, so that

    V = A^-1 (phi A / n + s_g^2 I + s_A^2 / 2 (|u|^2 I + u u')) A^-1.

Means are over the public number n of rows, which need not be the true one: A^-1 / n is the inverse
of the rows' summed curvature whatever n is, and phi by itself has to be a mean over the rows
there are. For least squares the intercept's entry of A is their number over n.

A and phi have noise themselves. A parametric bootstrap adds as much again, divides V by what that
does to it in the mean, and Student's t with the degrees of freedom that its variation is worth
(Satterthwaite 1946) takes the place of the normal law. All is computed from what was released.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from bonafed.arrays import Array
from bonafed.parameters import checking
from bonafed.privacy.moments import Moments
from bonafed.problem.losses import Squared
from bonafed.problem.problem import Problem
from bonafed.solution.solution import Solution
from bonafed.solution.tables import Table
from bonafed.text import warn

DRAWS = 1000  # of the bootstrap
HIDDEN = 2.0  # the least eigenvalue of the matrix, over the operator norm of its noise
FOUND = 2.33  # standard deviations at which shortened rows are found, by 1 % of runs without any
MOST_SHORTENED = 0.05  # a larger share of shortened rows is no small bias


@dataclass(frozen=True, eq=False)
class PrivateIntervals:
    """Intervals of coefficients, see `private_intervals`.

    Attributes
    ----------
    names : of the features, and "intercept" where there is one
    estimate, error : (D,) the coefficients and their standard errors
    low, high : (D,) the ends of the intervals
    noise : (D,) the part of the variance that is privacy noise
    level : the probability with which one interval holds the truth
    freedom : (D,) degrees of freedom of the Student quantile
    shortened : the share of rows that a bound shortened, with noise: it can be negative

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> numbers = [np.array([value]) for value in (1.5, 0.25, 1.1, 1.9, 0.4)]
    >>> found = bf.PrivateIntervals(("age",), *numbers, 0.9, np.array([90.0]), 0.001)
    >>> found.table()
    coefficient  estimate  error  low  high  noise
            age       1.5   0.25  1.1   1.9    0.4
    """

    names: tuple[str, ...]
    estimate: Array
    error: Array
    low: Array
    high: Array
    noise: Array
    level: float
    freedom: Array
    shortened: float

    def table(self) -> Table:
        """One row a coefficient."""
        columns = ("estimate", "error", "low", "high", "noise")
        return Table(
            {"coefficient": name} | {key: float(getattr(self, key)[j]) for key in columns}
            for j, name in enumerate(self.names)
        )


@checking
def private_intervals(solution: Solution, level: float = 0.95) -> PrivateIntervals:
    """Confidence intervals of the coefficients of a private model, at no further cost of privacy.

    They include what other rows would change and the noise that was added, for independent rows:
    where a person has several, they are too narrow. They need the run of
    ``PrivateNewton(inference=True)``, and are computed from released and public numbers only, so
    that ``solution.public()`` and a file of it are enough.

    Parameters
    ----------
    solution : of Logistic(), Poisson() or Squared() with Linear(); Poisson() takes the variance of
        a count to be its mean, Squared() that of the residuals to be one number
    level : the probability with which each interval holds the true coefficient

    Raises
    ------
    ValueError
        for other runs, and where noise hides the curvature or the variance of the residuals, or
        more than a twentieth of the rows is known to be shortened, which biases the estimate

    Warns
    -----
    RuntimeWarning
        where some rows are known to be shortened

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (6000, 2))
    >>> y = np.where(X[:, 0] + rng.logistic(size=6000) > 0, 1, -1)
    >>> fed = bf.Federation.from_arrays(X, y, np.arange(6000) % 3)
    >>> problem = bf.Problem(
    ...     bf.Logistic(),
    ...     bf.Linear(fit_intercept=True),
    ...     over_clients=bf.Mean("size"),
    ...     privacy=bf.Budget(epsilon=2.0, delta=1e-6),
    ... )
    >>> # the same noise at every run of this example; without ``noise`` it is secret
    >>> method = bf.PrivateNewton(bound=np.sqrt(2), inference=True, noise="simulation")
    >>> found = bf.private_intervals(bf.solve(problem, fed, algorithm=method))
    >>> bool((found.low < found.estimate).all()), len(found.names)
    (True, 3)
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be a number between 0 and 1, got {level!r}.")
    moments = solution.moments
    if moments is None:
        raise ValueError(
            "the solution has no released numbers for intervals: solve the problem with"
            " algorithm=PrivateNewton(inference=True, bound=...)."
        )
    _check_rows(moments)
    least = float(np.linalg.eigvalsh(moments.matrix)[0])
    hidden = moments.matrix_noise * math.sqrt(2 * len(moments.matrix))
    if least < HIDDEN * hidden:
        raise ValueError(
            f"the noise hides the curvature: its least eigenvalue is {least:.3g}, and the noise of"
            f" the matrix is {hidden:.3g} in the operator norm, more than half of it. Intervals"
            " need more rows, a larger epsilon, fewer or less correlated features, or a smaller"
            " bound on their rows."
        )
    # the bootstrap is the same for everybody
    rng, D = np.random.default_rng(0), len(moments.matrix)
    E = rng.normal(size=(DRAWS, D, D)) / math.sqrt(2)
    E = moments.matrix_noise * (E + E.transpose(0, 2, 1)) / math.sqrt(2)
    A, again = moments.matrix[None], moments.matrix + E
    phi, phi_again = np.ones(1), np.ones(DRAWS)
    if isinstance(solution.problem.loss, Squared):
        # squares are taken at the models of the run, which add their own distance from the optimum
        residuals = moments.square - moments.spread
        if residuals <= 3 * moments.square_noise:
            raise ValueError(
                f"the noise hides the variance of the residuals: {residuals:.3g} with a standard"
                f" deviation of {moments.square_noise:.3g}. State a smaller clip, which bounds a"
                " squared residual, or a larger epsilon."
            )
        noisy = residuals + moments.square_noise * rng.normal(size=DRAWS)
        phi = residuals / _residual_freedom(solution.problem, moments, A)
        phi_again = np.maximum(noisy, 0.0) / _residual_freedom(solution.problem, moments, again)
    total, noise = _variances(moments, A, phi)
    drawn, _ = _variances(moments, again, phi_again)
    mean = drawn.mean(0)
    freedom = 2 * mean**2 / np.maximum(drawn.var(0), 1e-12 * mean**2)
    error = np.sqrt(total[0] ** 2 / mean)
    reach = stdtrit(freedom, (1 + level) / 2) * error
    names, free = tuple(solution.inputs.feature_names), bool(solution.problem.predictor.intercept)
    if len(names) != D - free:
        names = tuple(f"x{j}" for j in range(D - free))
    names += ("intercept",) * free
    w, part = solution.w, (noise / total)[0]
    ends = w - reach, w + reach
    return PrivateIntervals(names, w, error, *ends, part, level, freedom, moments.over)


def _variances(moments: Moments, A: Array, phi: Array) -> tuple[Array, Array]:
    """(k, D) the variances of the coefficients, and what of them is privacy noise, by k matrices
    (k, D, D) and dispersions (k,).
    """
    inverse, u, D = np.linalg.inv(A), moments.away, A.shape[-1]
    sampling = phi[:, None] / moments.rows * np.einsum("kii->ki", inverse)
    around = moments.gradient_noise**2 + moments.matrix_noise**2 / 2 * float(u @ u)
    middle = around * np.eye(D) + moments.matrix_noise**2 / 2 * np.outer(u, u)
    noise = np.einsum("kij,jl,kil->ki", inverse, middle, inverse)
    return sampling + noise, noise


def _residual_freedom(problem: Problem, moments: Moments, A: Array) -> Array:
    """(k,) the degrees of freedom of the residuals over the public number of rows, by k matrices.

    Declared sizes need not be true, and a run with them has an intercept, whose feature is 1 for
    every row.
    """
    declared = problem.privacy is not None and problem.privacy.sizes is not None
    present = A[:, -1, -1] if declared else np.ones(len(A))
    freedom = present - A.shape[-1] / moments.rows
    if (freedom <= 0).any():
        raise ValueError(
            f"the noise hides the number of rows, of which {moments.rows:g} are declared, or there"
            f" are no more than the {A.shape[-1]} coefficients. Declare sizes nearer to the true"
            " ones, or state a larger epsilon."
        )
    return freedom


def _check_rows(moments: Moments) -> None:
    sure = moments.over - FOUND * moments.over_noise
    if sure > MOST_SHORTENED:
        raise ValueError(
            f"at least {sure:.1%} of the rows are shortened by clip or bound, which biases the"
            " estimate, and no interval holds that: state larger ones."
        )
    if sure > 0:
        warn(
            f"some {moments.over:.1%} of the rows are shortened by clip or bound (at least"
            f" {sure:.1%}), which biases the estimate; intervals do not include that. Larger ones"
            " cost noise.",
            RuntimeWarning,
        )
