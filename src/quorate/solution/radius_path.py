"""A problem solved along a path of Wasserstein radii, every model judged on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from quorate.algorithms.federated.bundle import Bundle
from quorate.algorithms.method import settings_of
from quorate.arrays import Array
from quorate.data.federation import Federation
from quorate.problem.problem import Problem
from quorate.problem.wasserstein.ball import WassersteinBall
from quorate.rounds import Stop
from quorate.solution.solution import Solution
from quorate.solution.solve import solve


def radius_path(
    problem: Problem,
    fed: Federation,
    *,
    radii: Sequence[Any],
    client_radii: Sequence[float] | None = None,
    test: Federation | None = None,
    held_out: float = 0.3,
    seed: int = 0,
    algorithm: Any = None,
    engine: Any = None,
    tol: float | None = None,
    max_rounds: int | None = None,
    watch: Callable[[dict[str, Any]], None] | None = None,
) -> list[dict[str, Any]]:
    """Solve the problem at every radius and client radius, each from its neighbour's model, and
    judge on held-out rows.

    Parameters
    ----------
    problem : with a ``WassersteinBall`` over the samples and, for ``client_radii``, an ``LpBall``
        over the clients
    radii : Wasserstein radii; each a number, one per client, or a mapping by client name
    client_radii : radii of the ball of client weights; None keeps the problem's
    test : held-out rows of the clients; None holds out the share ``held_out`` of every client's
        rows, by ``seed``
    algorithm, engine, tol, max_rounds : as in `quorate.solve`
    watch : called with every row as it is found

    Returns
    -------
    list of rows : radius, client_radius, value, bound, relative_gap, rounds, outcome, trivial; on
        the held-out rows loss, worst_loss and worst_client (largest mean loss), and accuracy,
        worst_accuracy (classification) or mae, worst_mae; w, the model. Choose a row by a held-out
        column, then solve over all rows. The held-out figures of
        the row chosen are optimistic: they were looked at.

    Raises
    ------
    KeyboardInterrupt : Ctrl-C; the rows found so far went to ``watch``
    """
    ball, clients = problem.over_samples, problem.over_clients
    if not isinstance(ball, WassersteinBall):
        raise TypeError(f"radius_path needs over_samples=WassersteinBall(...), got {ball!r}.")
    if client_radii is not None and not hasattr(clients, "radius"):
        raise TypeError(
            f"client_radii need over_clients with a radius, such as LpBall(0.1), got {clients!r}."
        )
    if len(radii) == 0 or (client_radii is not None and len(client_radii) == 0):
        raise ValueError("radii and client_radii must hold at least one radius each.")
    train, test = fed.split(held_out, seed) if test is None else (fed, test)
    algorithm = algorithm or Bundle()
    table: list[dict[str, Any]] = []
    corner = None  # the solution at the first radius of the last client radius
    for theta in [getattr(clients, "radius", None)] if client_radii is None else client_radii:
        last = corner
        over_clients = clients if client_radii is None else replace(clients, radius=theta)
        for k, rho in enumerate(radii):
            point = replace(
                problem, over_samples=replace(ball, radius=rho), over_clients=over_clients
            )
            own = {"engine": engine, "tol": tol, "max_rounds": max_rounds, "seed": seed}
            last = solve(
                point, train, algorithm=_warm(algorithm, last), start=_start(algorithm, last), **own
            )
            corner = last if k == 0 else corner
            if last.outcome.stop is Stop.INTERRUPTED:
                raise KeyboardInterrupt
            table.append(
                _row(rho, theta, point, train, last) | judged(point, test, last.w) | {"w": last.w}
            )
            if watch is not None:
                watch(table[-1])
    return table


def _start(algorithm: Any, last: Solution | None) -> Array | None:
    return last.w if last is not None and "start" in settings_of(algorithm) else None


def _warm(algorithm: Any, last: Solution | None) -> Any:
    """The algorithm with the cuts of the last solve: they are joint in model and price, so they
    hold at any radius.
    """
    return (
        replace(algorithm, known=last.state.cuts)
        if last is not None and isinstance(algorithm, Bundle)
        else algorithm
    )


def _row(
    rho: Any, theta: Any, problem: Problem, fed: Federation, solution: Solution
) -> dict[str, Any]:
    proof = solution.certificate
    return {
        "radius": rho,
        "client_radius": theta,
        "value": proof.value,
        "bound": proof.bound,
        "relative_gap": proof.relative_gap,
        "rounds": solution.rounds,
        "outcome": solution.outcome.stop.value,
        "trivial": trivial(problem, fed),
    }


def trivial(problem: Problem, fed: Federation) -> bool:
    """Whether the radii pay for flipping half of all labels: then no model is better than zero."""
    ball: Any = problem.at(fed)[0].over_samples
    return problem.loss.targets == "sign" and bool((ball.radius >= ball.label_cost / 2).all())


def judged(problem: Problem, test: Federation, w: Array) -> dict[str, Any]:
    """Mean and worst client on held-out rows; the mean is over rows."""
    test = Problem(problem.loss, problem.predictor).at(test)[1]
    blocks = [test.block(i) for i in range(test.n_clients)]
    predictions = [problem.predictor.forward(w, block) for block in blocks]
    pairs = list(zip(blocks, predictions, strict=True))
    loss = np.array([b.mean(problem.loss.value(p, b.y))[0] for b, p in pairs])
    found = {
        "loss": _pool(loss, test),
        "worst_loss": float(loss.max()),
        "worst_client": test.clients[int(loss.argmax())],
    }
    if problem.loss.targets == "sign":
        right = np.array([b.mean((p > 0) == (b.y > 0))[0] for b, p in pairs])
        return found | {"accuracy": _pool(right, test), "worst_accuracy": float(right.min())}
    if problem.loss.targets == "class":
        right = np.array([b.mean(p.argmax(-1) == b.y)[0] for b, p in pairs])
        return found | {"accuracy": _pool(right, test), "worst_accuracy": float(right.min())}
    off = np.array([b.mean(np.abs(p - b.y))[0] for b, p in pairs])
    return found | {"mae": _pool(off, test), "worst_mae": float(off.max())}


def _pool(by_client: Array, fed: Federation) -> float:
    return float(np.average(by_client, weights=fed.sizes))
