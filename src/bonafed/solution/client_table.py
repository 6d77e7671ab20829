"""The table of clients: losses, weights and worst cases of each, and the rows most exposed."""

from __future__ import annotations

from typing import Any

import numpy as np

from bonafed.arrays import Array
from bonafed.certificates.certificate import Certificate
from bonafed.data.federation import Federation
from bonafed.problem.conic_form import sample_radii
from bonafed.problem.metadata import Metadata
from bonafed.problem.problem import Problem
from bonafed.problem.wasserstein.ball import Near
from bonafed.problem.wasserstein.worst_case import worst_case
from bonafed.solution.constraint_table import TIGHTEST, tightest


def client_table(
    problem: Problem,
    fed: Federation | Metadata,
    certificate: Certificate,
    constraints: list[dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """One row for each client: rows, mean loss, worst-case loss, weight q*, and what the adversary
    spends its radius on; with ``constraints`` (of `constraint_table`) also its tightest one.
    """
    radius = sample_radii(problem, fed.n_clients)
    least = tightest(constraints or [])
    spent = certificate.client_labels + certificate.client_features
    return [
        {
            "client": name,
            "n": n,
            "loss": float(certificate.client_losses[i]),
            "worst_loss": float(certificate.client_risks[i]),
            "weight": float(certificate.weights[i]),
            "radius": float(radius[i]),
            "flips": float(certificate.client_labels[i] / spent[i]) if spent[i] > 0 else None,
            "shift": float(certificate.client_features[i] / spent[i]) if spent[i] > 0 else None,
            "active": _active(certificate.client_labels[i], certificate.client_features[i]),
        }
        | (least.get(name, dict.fromkeys(TIGHTEST)) if constraints else {})
        for i, (name, n) in enumerate(zip(fed.clients, fed.sizes.tolist(), strict=True))
    ]


def _active(labels: float, features: float) -> str:
    """What the adversary uses: a part below 1e-6 of its spending counts as none."""
    if labels + features <= 0:
        return "none"
    part = labels / (labels + features)
    return "labels" if part > 1 - 1e-6 else "features" if part < 1e-6 else "both"


def exposed_rows(
    problem: Problem, fed: Federation, w: Array, client: str, top: int = 10
) -> list[dict[str, Any]]:
    """The rows whose loss the worst distribution at w raises most. They are about single rows, and
    for their owner's eyes.

    Parameters
    ----------
    problem, fed : as stated; only the named client's rows are read
    w : (D,) the model
    client : its name
    top : how many rows

    Returns
    -------
    list of dict
        row (position within the client), loss, worst_loss, added (to the client's risk), flip
        (probability that its label is flipped) and moved (norm of its mean displacement); empty
        without a Wasserstein ball round this client

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> ball = bf.WassersteinBall(radius=0.1)
    >>> problem = bf.Problem(bf.Hinge(), over_samples=ball, regulariser=bf.L2(0.1))
    >>> w = bf.solve(problem, fed).w
    >>> rows = bf.exposed_rows(problem, fed, w, "Old Mill", top=3)
    >>> len(rows), sorted(rows[0])
    (3, ['added', 'flip', 'loss', 'moved', 'row', 'worst_loss'])
    """
    i = fed.position(client)
    concrete, data = problem.at(fed)
    block = data.block(i)
    radius = concrete.radii(block)
    if not radius.any():
        return []
    ball = concrete.over_samples
    w = np.asarray(w, float)
    worst = worst_case(Near(w, block, concrete.loss, concrete.predictor, ball, radius))
    moved = sum(
        (a.weight[0] * a.feature_cost[0] for a in worst.atoms), start=np.zeros(block.y.shape[1])
    )
    return [
        {
            "row": int(r),
            "loss": float(worst.plain[0, r]),
            "worst_loss": float(worst.loss[0, r]),
            "added": float(worst.added[0, r]),
            "flip": float(worst.flips[0, r]),
            "moved": float(moved[r]),
        }
        for r in worst.exposed(0, top)
    ]
