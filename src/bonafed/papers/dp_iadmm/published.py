"""ObjP, ObjT and OutP with the noise of the paper and of its code, which guarantees nothing.

    ObjP, ObjT   f_p'(z_p) + xi_p,
                 xi_p Laplace of scale Delta_p / epsilon,
                 Delta_p = max_i ||a_p l'(z_p; x_pi, y_pi)||_1                                  (20)
    OutP         z_p^{t+1} + xi_p,  xi_p normal of deviation
                 sigma = 2 Delta_p sqrt(2 log(1.25 / delta)) / (epsilon (rho + 1 / eta)),
                 Delta_p with the 2-norm; the code has 1 / P for Delta_p, and sigma^2 for sigma

epsilon is that of *one* iteration. (20) follows the data at hand, and so reveals them; the
constants of the code bound no row's gradient (docs/private.md). The paper cites OutP and does not
print its sigma and eta: sigma is that of the usual Gaussian mechanism, eta that of ObjP, which OutP
is without noise. Ryu and Kim, *Differentially Private Federated Learning via Inexact ADMM*;
equation numbers are theirs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array, Block, Streams

DELTA = 1e-6  # of the budgets
DEVIATION = 2 * math.sqrt(2 * math.log(1.25 / DELTA))  # of normal noise, times epsilon
MEAN_SIZE = {"laplace": 1.0, "gaussian": math.sqrt(2 / math.pi)}  # E |xi| of noise of scale 1


class NoPrivacyWarning(UserWarning):
    """A run adds noise that gives no guarantee of privacy.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> from bonafed.papers import dp_iadmm
    >>> import warnings
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(-1, 1, (1000, 3)), rng.integers(0, 2, 1000)
    >>> fed = bf.Federation.from_arrays(X, y, rng.choice(["north", "east"], 1000))
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     solution = bf.solve(bf.Problem(bf.Logistic()), fed, algorithm=dp_iadmm.obj_t(1.0, 5))
    >>> any(issubclass(w.category, bf.NoPrivacyWarning) for w in caught)
    True
    """


@dataclass(frozen=True)
class PublishedStep:
    """eta^t of the published OutP: 1 / eta = rows / 4 + 7.5 sqrt(t) / epsilon.

    This is for sums of the clients' means.

    The paper does not print the second term; it is inferred from the noise of the published code
    (docs/private.md).
    """

    rows: int
    clients: int
    epsilon: float

    def __call__(self, t: int) -> float:
        return self.clients / (self.rows / 4 + 7.5 * math.sqrt(t) / self.epsilon)


@dataclass(frozen=True)
class PublishedADMM(bf.PrivateADMM):
    """ObjP (``update="prox"``) and ObjT with noise by (20): NO guarantee.

    ``local_epsilon`` is that of one iteration; the rest is as of ``PrivateADMM``.
    """

    local_epsilon: float = 1.0
    kind: ClassVar[str] = "laplace"
    caveat: ClassVar[str] = "the noise depends on the data at hand, equation (20)"

    def check_problem(self, problem: bf.Problem, fed: Any) -> None:
        """Raise ``ValueError`` for a budget, which this noise would not keep."""
        if problem.privacy is not None:
            raise ValueError(f"{type(self).__name__} keeps no budget: {self.caveat}.")
        ext.check_positive(self, "local_epsilon", remedy="")

    def planned(self, problem: bf.Problem, fed: Any, spent: Any = ()) -> Any:
        """The method with its noise, as a multiple of what a row adds to a gradient."""
        text = f"NO privacy: {self.caveat}, and so reveals them. For comparisons with the paper."
        ext.warn(text, NoPrivacyWarning)
        own: Any = super().planned(problem, fed, spent)
        told = {"multiplier": 1 / self.local_epsilon, "sensitivity": np.ones(fed.n_clients)}
        return replace(own, plan=replace(own.plan, kind=self.kind, **told))

    def noisy_gradients(
        self, memory: Any, ask: Any, asked: Any, data: Block, rng: Streams
    ) -> Callable[[int], tuple[Array, float]]:
        exact = ext.exact_gradients(self.concrete, self.noise_plan, memory.z, data)

        def noisy(i: int) -> tuple[Array, float]:
            gradient, largest = exact(i)
            scale = self.noise_scale(largest, ask.rho + ask.reach)
            draw = rng(i).laplace if self.kind == "laplace" else rng(i).normal
            return gradient + draw(scale=scale, size=len(gradient)), scale * MEAN_SIZE[self.kind]

        return noisy

    def noise_scale(self, largest: float, curve: float) -> float:
        """The scale of a gradient's noise, by the largest part of a row and rho + 1 / eta."""
        return self.noise_plan.multiplier * largest  # (20)


@dataclass(frozen=True)
class PrintedOutP(PublishedADMM):
    """OutP as the paper has it, with (20) in the 2-norm for the bound of a gradient: NO guarantee.

    z_p moves by a gradient over rho + 1 / eta, and so noise on z_p is noise on the gradient.
    """

    update: str = "prox"
    output: ClassVar[bool] = True
    kind: ClassVar[str] = "gaussian"

    def noise_scale(self, largest: float, curve: float) -> float:
        return DEVIATION * self.noise_plan.multiplier * largest


@dataclass(frozen=True)
class PublishedOutP(PrintedOutP):
    """OutP with the noise of the published code: NO guarantee. It is for sums of clients' means."""

    caveat: ClassVar[str] = "the published code bounds no row's gradient, and states no total"

    def noise_scale(self, largest: float, curve: float) -> float:
        sigma = DEVIATION / (len(self.noise_plan.weight) * curve)
        return (self.noise_plan.multiplier * sigma) ** 2 * curve


# OutP, calibrated: noise on a client's model instead of its gradient, within a budget.
#
#     z_p^{t+1} = (the step (5) by the gradient without noise) + noise
#
# Ryu and Kim, *Differentially Private Federated Learning via Inexact ADMM*; equation numbers are
# theirs. It is the comparator of the paper, whose own constants are in ``published``.


@dataclass(frozen=True)
class OutputPerturbedADMM(bf.PrivateADMM):
    """The paper's comparator OutP: step (5) without noise, then noise on z_p^{t+1}.

    The noise is calibrated: a row moves z_p by at most its gradient over rho + 1 / eta.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(-1, 1, (1000, 3)), rng.integers(0, 2, 1000)
    >>> fed = bf.Federation.from_arrays(X, y, rng.choice(["north", "east"], 1000))
    >>> problem = bf.Problem(
    ...     bf.Logistic(), regulariser=bf.L2(0.1), privacy=bf.Budget(epsilon=1.0, delta=1e-6)
    ... )
    >>> solution = bf.solve(
    ...     problem, fed, algorithm=bf.OutputPerturbedADMM(max_rounds=20, rho=1.0)
    ... )
    >>> bool(0.9 < solution.ledger.epsilon <= 1)
    True
    """

    update: str = "prox"
    advised: ClassVar[int] = 2
    output: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.update != "prox":
            raise ValueError(f'OutputPerturbedADMM takes update="prox", got {self.update!r}.')
