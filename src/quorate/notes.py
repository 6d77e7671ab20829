"""What a person should know beside the numbers: the table of clients, and warnings about problem and data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quorate.arrays import Array
from quorate.certificates.duality import Certificate
from quorate.data.federation import Federation
from quorate.problem.problem import Problem
from quorate.problem.shape import price_floor, sample_radii
from quorate.problem.wasserstein import WassersteinBall


def client_table(problem: Problem, fed: Federation, w: Array, certificate: Certificate) -> list[dict[str, Any]]:
    """One row a client: rows, mean loss, worst-case loss, weight q*, and what the adversary does with its budget."""
    radius = sample_radii(problem, fed.n_clients)
    labels = _label_share(problem, w, certificate, radius)
    return [
        {
            "client": name,
            "n": int(fed.sizes[i]),
            "loss": float(certificate.client_losses[i]),
            "worst_loss": float(certificate.client_risks[i]),
            "weight": float(certificate.weights[i]),
            "radius": float(radius[i]),
            "flips": None if math.isnan(labels[i]) else float(labels[i]),
            "shift": None if math.isnan(labels[i]) else float(1 - labels[i]),
            "active": "none" if math.isnan(labels[i]) else ("labels" if labels[i] > 0.5 else "features"),
        }
        for i, name in enumerate(fed.clients)
    ]


def _label_share(problem: Problem, w: Array, certificate: Certificate, radius: Array) -> Array:
    """(N,) share of the adversary's budget spent on labels at w, nan where there is no budget (or no gain from it)."""
    ball = problem.over_samples
    if not isinstance(ball, WassersteinBall):
        return np.full(len(radius), math.nan)
    size = float(ball.dual_norm(problem.predictor.split(w)[0]))
    if problem.loss.targets == "real":  # x is worth ||w||_*, y is worth 1/label_cost per unit of cost
        share = np.full(len(radius), float(1 / ball.label_cost > size))
    else:
        share = np.divide(certificate.client_spent, radius, out=np.zeros(len(radius)), where=radius > 0)
    idle = (radius == 0) | (certificate.client_levels <= 0)
    return np.where(idle, math.nan, np.clip(share, 0.0, 1.0))


def notes(problem: Problem, given: Federation, fed: Federation, w: Array, certificate: Certificate) -> tuple[str, ...]:
    """Warnings: the trivial region, inactive feature robustness, one-class clients, clipped rows, no bound.

    ``given`` is the user's federation, ``fed`` what ``problem.at`` made of it.
    """
    found = [*_one_class(problem, fed), *_trivial(problem, fed), *_inactive(problem, fed, w, certificate)]
    found += _clipped(given, fed)
    if certificate.bound is None:
        found.append(
            "No lower bound is stated: nothing bounds where an optimal model lies. "
            "A regulariser such as L2(1e-3), or a Wasserstein radius > 0 on all of R^n, would make one provable."
        )
    return tuple(found)


def _one_class(problem: Problem, fed: Federation) -> list[str]:
    if problem.loss.targets != "sign":
        return []
    single = [name for i, name in enumerate(fed.clients) if np.ptp(fed.rows(i)[1]) == 0]
    return [
        f"Client{'s' * (len(single) > 1)} {_some(single)}: all rows have one label; its loss rewards only that class."
    ] * bool(single)


def _clipped(given: Federation, fed: Federation) -> list[str]:
    """Rows that clip=True moved onto the support; the result holds for the moved rows."""
    moved = {}
    for i, name in enumerate(fed.clients):
        before, after = given.rows(i)[0], fed.rows(i)[0]
        if after is not before:
            apart = np.asarray(abs(after - before).max(1)).ravel() > 1e-8 * (1 + np.asarray(abs(after).max(1)).ravel())
            moved[name] = int(apart.sum())
    moved = {name: count for name, count in moved.items() if count}
    text = ", ".join(f"{name}: {count}" for name, count in list(moved.items())[:5])
    return [f"Rows outside the support were clipped to it ({text}); the result is about the clipped rows."] * bool(
        moved
    )


def _trivial(problem: Problem, fed: Federation) -> list[str]:
    """Flipping every label with probability 1/2 costs label_cost / 2 (drfl notes, fact 8): then w = 0 is optimal."""
    ball = problem.over_samples
    if not isinstance(ball, WassersteinBall) or problem.loss.targets != "sign":
        return []
    radius = np.asarray(ball.radius)
    if (radius >= ball.label_cost / 2).all():
        return [
            f"Trivial region: every radius is at least label_cost / 2 = {ball.label_cost / 2:g}, so the adversary can "
            "make labels useless and w = 0 is optimal. Lower radius or raise label_cost."
        ]
    many = [name for name, r in zip(fed.clients, radius, strict=True) if r >= ball.label_cost / 2]
    if not many:
        return []
    return [f"Client(s) {_some(many)}: radius >= label_cost / 2, the adversary can make their labels useless."]


def _inactive(problem: Problem, fed: Federation, w: Array, certificate: Certificate) -> list[str]:
    """Feature robustness is inactive where the price is above what moving x is worth (drfl notes, fact 9)."""
    ball = problem.over_samples
    if not isinstance(ball, WassersteinBall) or ball.support is not None or not np.any(ball.radius):
        return []
    size = float(ball.dual_norm(problem.predictor.split(w)[0]))
    lipschitz, _ = price_floor(problem)
    priced = (certificate.client_levels > lipschitz * size * (1 + 1e-9)) & (np.asarray(ball.radius) > 0)
    quiet = [name for name, idle in zip(fed.clients, priced, strict=True) if idle]
    if not quiet:
        return []
    what = (
        "moves targets only, and adds the same constant for every model"
        if problem.loss.targets == "real"
        else "only flips labels"
    )
    return [
        f"Feature robustness is inactive for {_some(quiet)}: the adversary {what}. "
        "Raise label_cost to make it move features."
    ]


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
