"""He, Peng, Sun, *Federated learning with convex global and local constraints*.

A word for each of its two methods, with the constants of a section: `proximal_al` (Algorithms 1
and 2) and the baseline `centralised_al` (Algorithm 3, cProx-AL).
"""

from typing import Any

import bonafed as bf
import bonafed.extending as ext

SECTIONS = {  # beta, rho_i, s_bar and q
    "5.1": (300.0, 0.01, 1e-3, 0.9),  # Neyman-Pearson classification, (30)
    "5.2": (10.0, 1e8, 1e-3, 0.9),  # fairness, (32)
    "E.2": (10.0, 1.0, 0.1, 1e-9),  # quadratic programs, (86): subproblems are solved exactly
}
TOL = 1e-3  # eps_1 = eps_2


def proximal_al(section: str = "5.1", **settings: Any) -> bf.ProximalAL:
    """Algorithms 1 and 2 as printed, with the constants of a section; ``settings`` override these.

    The paper does not state q of section 5; 0.9 is in the authors' code.
    """
    beta, rho, s_bar, q = ext.entry(SECTIONS, section, "section")
    printed: dict[str, Any] = {"beta": beta, "rho": rho, "s_bar": s_bar, "q": q, "tol": TOL}
    plain = {"memory": 0, "restart": True, "scaled": False}
    return bf.ProximalAL(**(printed | plain | settings))


def centralised_al(section: str = "5.1", **settings: Any) -> bf.CentralisedAL:
    """Algorithm 3, cProx-AL, on pooled rows."""
    beta, _, s_bar, _ = ext.entry(SECTIONS, section, "section")
    printed: dict[str, Any] = {"beta": beta, "s_bar": s_bar, "tol": TOL}
    return bf.CentralisedAL(**(printed | settings))
