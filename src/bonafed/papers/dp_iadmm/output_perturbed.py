"""OutP, calibrated: noise on a client's model instead of its gradient, within a budget.

    z_p^{t+1} = (the step (5) by the gradient without noise) + noise

Ryu and Kim, *Differentially private federated learning via inexact ADMM*; equation numbers are
theirs. It is the comparator of the paper, whose own constants are in ``published``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import bonafed as bf


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
    output: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.update != "prox":
            raise ValueError(
                f'OutputPerturbedADMM takes update="prox", got {self.update!r}: (5) has no other'
                " form."
            )
