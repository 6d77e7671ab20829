"""Ryu and Kim, *Differentially private federated learning via inexact ADMM*.

A word for each method of the paper, with its constants of section 4 and an epsilon of *one*
iteration, which guarantees nothing: `obj_p`, `obj_t`, `out_p`, `out_p_plus`. Each experiment is
shown beside the total privacy budget that it spends.
"""

import math
from typing import Any

import bonafed as bf
from bonafed.papers.dp_iadmm.published import PublishedADMM, PublishedOutP, PublishedStep

# c1, c2 and T_c of (21), by data set
PENALTY = {"mnist": (2.0, 5.0, 1e4), "femnist": (0.005, 0.05, 2e3)}


def rho(epsilon: float, data: str = "mnist", scale: float = 1.0) -> bf.Penalty:
    """The penalty (21) of one of the two data sets."""
    return bf.Penalty(*PENALTY[data], epsilon=epsilon, scale=scale)


def obj_t(epsilon: float, rounds: int, data: str = "mnist", radius: str | None = "1/t^2") -> Any:
    """Algorithm 2, ObjT; the published code has ``radius="constant"``, which never binds."""
    settings = {"max_rounds": rounds, "rho": rho(epsilon, data), "radius": radius}
    return _perturbed(PublishedADMM, epsilon, settings)


def obj_p(epsilon: float, rounds: int, data: str = "mnist") -> Any:
    """Algorithm 1, ObjP, with eta^t = 1 / sqrt(t)."""
    settings = {"max_rounds": rounds, "rho": rho(epsilon, data), "update": "prox"}
    return _perturbed(PublishedADMM, epsilon, settings)


def out_p(
    epsilon: float, rounds: int, rows: int, clients: int, data: str = "mnist", scale: float = 1.0
) -> Any:
    """OutP, the baseline, as in the published code, for ``rows`` of each of the ``clients``."""
    step = PublishedStep(rows, clients, epsilon)
    settings = {"max_rounds": rounds, "rho": rho(epsilon, data, scale / clients), "eta": step}
    return _perturbed(PublishedOutP, epsilon, settings | {"update": "prox"})


def out_p_plus(epsilon: float, rounds: int, rows: int, clients: int, data: str = "mnist") -> Any:
    """OutP+: OutP with a hundredth of the penalty."""
    return out_p(epsilon, rounds, rows, clients, data, scale=0.01)


def _perturbed(noisy: Any, epsilon: float, given: dict[str, Any]) -> Any:
    """The method with noise; without any where epsilon is infinite."""
    return bf.PrivateADMM(**given) if math.isinf(epsilon) else noisy(local_epsilon=epsilon, **given)
