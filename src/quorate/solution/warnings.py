"""Warnings about a problem and its data, beside the numbers of a solution."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from quorate.arrays import Array
from quorate.certificates.certificate import Certificate
from quorate.client_names import ClientName
from quorate.data.federation import Federation
from quorate.problem.conic_form import price_floor
from quorate.problem.lower_bounds import region
from quorate.problem.predictors.affine import is_affine
from quorate.problem.problem import Problem
from quorate.problem.risks.ranks import by_rank
from quorate.problem.wasserstein.ball import WassersteinBall


def notes(
    problem: Problem, given: Federation, fed: Federation, w: Array, certificate: Certificate
) -> tuple[str, ...]:
    """Warnings: the trivial region, inactive feature robustness, one-class clients, clipped rows,
    no bound.

    ``given`` is the user's federation, ``fed`` what ``problem.at`` made of it.
    """
    found = [
        *_one_class(problem, fed),
        *_trivial(problem, fed),
        *_inactive(problem, fed, w, certificate),
    ]
    found += [*_clipped(given, fed), *_flat(problem, w), *_void(problem, fed, certificate)]
    return (*found, *_unproven(problem, fed, certificate))


def _void(problem: Problem, fed: Federation, certificate: Certificate) -> list[str]:
    """Clients whose rows say nothing about a constraint, or about the class in the objective."""
    values = certificate.constraint_values
    without = (
        [
            f"No rows for the constraint on {word} at {_some(names)}: it asks nothing there."
            for word, column in zip(problem.local_constraint.words, np.isnan(values).T, strict=True)
            if (names := [fed.clients[i] for i in np.flatnonzero(column)])
        ]
        if values is not None
        else []
    )
    code, label = (
        getattr(problem.over_samples, "code", None),
        getattr(problem.over_samples, "label", None),
    )
    empty = (
        []
        if code is None
        else [n for i, n in enumerate(fed.clients) if not (fed.rows(i)[1] == code).any()]
    )
    return without + [f"No rows of class {label} at {_some(empty)}: 0 in the objective."] * bool(
        empty
    )


def _flat(problem: Problem, w: Array) -> list[str]:
    """A risk by rank whose best model says nothing."""
    coefficients = getattr(problem.predictor, "split", lambda v: (v, 0.0))(w)[0]
    if not by_rank(problem.over_samples) or np.abs(coefficients).max(initial=0.0) > 1e-8:
        return []
    return [
        "Every coefficient is zero: under this risk no model of the features is better than a"
        " constant. A larger tail, a smaller strength or other features may change that."
    ]


def _unproven(problem: Problem, fed: Federation, certificate: Certificate) -> list[str]:
    if (
        certificate.bound is not None
        or certificate.constraint_values is not None
        or problem.privacy is not None
    ):
        return []
    if not is_affine(problem.predictor):
        return [
            f"No lower bound is stated: {type(problem.predictor).__name__} is not convex in its"
            " parameters."
        ]
    if not getattr(problem.over_samples, "convex", True):
        return [
            f"No lower bound is stated: {type(problem.over_samples).__name__} over samples is not"
            " convex."
        ]
    if math.isfinite(region(problem, certificate.value, fed.n_features, None).size):
        return [
            "No lower bound is stated: the program that proves one was not solved, or nothing"
            " bounds the intercept (labels of one class). Rescale the features, or state radii and"
            " strengths of the size of the data."
        ]
    return [
        "No lower bound is stated: nothing bounds where an optimal model lies. A regulariser such"
        " as L2(1e-3), or a Wasserstein radius > 0 on all of R^n, would make one provable."
    ]


def _one_class(problem: Problem, fed: Federation) -> list[str]:
    if problem.loss.targets != "sign":
        return []
    single = [name for i, name in enumerate(fed.clients) if np.ptp(fed.rows(i)[1]) == 0]
    return [
        f"Client{'s' * (len(single) > 1)} {_some(single)}: all rows have one label; its loss"
        " rewards only that class."
    ] * bool(single)


def _clipped(given: Federation, fed: Federation) -> list[str]:
    """Rows that clip=True moved onto the support; the result holds for the moved rows."""
    moved = {}
    for i, name in enumerate(fed.clients):
        before, after = given.rows(i)[0], fed.rows(i)[0]
        if after is not before:
            apart = np.asarray(abs(after - before).max(1)).ravel() > 1e-8 * (
                1 + np.asarray(abs(after).max(1)).ravel()
            )
            moved[name] = int(apart.sum())
    moved = {name: count for name, count in moved.items() if count}
    text = ", ".join(f"{name}: {count}" for name, count in list(moved.items())[:5])
    return [
        f"Rows outside the support were clipped to it ({text}); the result is about the clipped"
        " rows."
    ] * bool(moved)


def _trivial(problem: Problem, fed: Federation) -> list[str]:
    """Flipping every label with probability 1/2 costs label_cost / 2 (drfl notes, fact 8): then w =
    0 is optimal.
    """
    ball = problem.over_samples
    if not isinstance(ball, WassersteinBall) or problem.loss.targets != "sign":
        return []
    radius = np.asarray(ball.radius)
    if (radius >= ball.label_cost / 2).all():
        return [
            f"Trivial region: every radius is at least label_cost / 2 = {ball.label_cost / 2:g}, so"
            " the adversary can make labels useless and w = 0 is optimal. Lower radius or raise"
            " label_cost."
        ]
    many = [name for name, r in zip(fed.clients, radius, strict=True) if r >= ball.label_cost / 2]
    if not many:
        return []
    return [
        f"Client(s) {_some(many)}: radius >= label_cost / 2, the adversary can make their labels"
        " useless."
    ]


def _inactive(problem: Problem, fed: Federation, w: Array, certificate: Certificate) -> list[str]:
    """Feature robustness is inactive where the price is above what moving x is worth (drfl notes,
    fact 9).
    """
    ball = problem.over_samples
    if not isinstance(ball, WassersteinBall) or ball.support is not None or not np.any(ball.radius):
        return []
    size = float(ball.dual_norm(problem.predictor.split(w)[0]))
    lipschitz, _ = price_floor(problem)
    priced = (certificate.client_levels > lipschitz * size * (1 + 1e-9)) & (
        np.asarray(ball.radius) > 0
    )
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


def _some(names: Sequence[ClientName]) -> str:
    return ", ".join(map(str, names[:5])) + (
        f" and {len(names) - 5} more" if len(names) > 5 else ""
    )
