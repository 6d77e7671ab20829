"""Ryu and Kim, *Differentially Private Federated Learning via Inexact ADMM*.

A word for each method of the paper, with its constants of section 4 and an epsilon of *one*
iteration, which guarantees nothing: `obj_p`, `obj_t`, `out_p_printed`, and of the published code
`out_p` and `out_p_plus`. Each experiment is shown beside the total privacy budget that it spends.
"""

import math
from typing import Any

import bonafed as bf
import bonafed.extending as ext
from bonafed.papers.dp_iadmm import published

# c1, c2 and T_c of (21), by data set
PENALTY = {"mnist": (2.0, 5.0, 1e4), "femnist": (0.005, 0.05, 2e3)}


def rho(epsilon: float, data: str = "mnist", scale: float = 1.0) -> bf.Penalty:
    """The penalty (21) of one of the two data sets."""
    return bf.Penalty(*ext.entry(PENALTY, data, "data set"), epsilon=epsilon, scale=scale)


def obj_t(epsilon: float, rounds: int, data: str = "mnist", radius: str | None = "1/t^2") -> Any:
    """Algorithm 2, ObjT; the published code has ``radius="constant"``, which never binds."""
    region = {"update": "trust", "radius": radius}
    return _perturbed(published.PublishedADMM, epsilon, rounds, rho(epsilon, data), **region)


def obj_p(epsilon: float, rounds: int, data: str = "mnist") -> Any:
    """Algorithm 1, ObjP, with eta^t = 1 / sqrt(t)."""
    return _perturbed(published.PublishedADMM, epsilon, rounds, rho(epsilon, data))


def out_p_printed(epsilon: float, rounds: int, data: str = "mnist", scale: float = 1.0) -> Any:
    """OutP, the baseline, which without noise is ObjP; OutP+ has ``scale=0.01``."""
    return _perturbed(published.PrintedOutP, epsilon, rounds, rho(epsilon, data, scale))


def out_p(
    epsilon: float, rounds: int, rows: int, clients: int, data: str = "mnist", scale: float = 1.0
) -> Any:
    """OutP as in the published code, for ``rows`` of each of the ``clients``."""
    penalty = rho(epsilon, data, scale / clients)
    step = published.PublishedStep(rows, clients, epsilon)
    return _perturbed(published.PublishedOutP, epsilon, rounds, penalty, eta=step)


def out_p_plus(epsilon: float, rounds: int, rows: int, clients: int, data: str = "mnist") -> Any:
    """OutP+ in the published code: a hundredth of the penalty."""
    return out_p(epsilon, rounds, rows, clients, data, scale=0.01)


def _perturbed(noisy: Any, epsilon: float, rounds: int, rho: bf.Penalty, **given: Any) -> Any:
    """The method with noise; without any where epsilon is infinite."""
    given = {"update": "prox", "max_rounds": rounds, "rho": rho} | given
    return bf.PrivateADMM(**given) if math.isinf(epsilon) else noisy(local_epsilon=epsilon, **given)
