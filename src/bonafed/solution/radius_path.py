"""A problem solved along a path of Wasserstein radii, every model judged on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bonafed.algorithms.federated.bundle.bundle import Bundle, BundleState
from bonafed.algorithms.method import Method, settings_of
from bonafed.arrays import Array
from bonafed.certificates.certificate import Certificate
from bonafed.client_names import ByClient
from bonafed.data.federation import Federation
from bonafed.engines.engine import Engine
from bonafed.problem.problem import Problem
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.rounds import Stop
from bonafed.solution.solve import fit
from bonafed.solution.trivial import finding

Radius = float | Sequence[float] | Array | ByClient[float]  # of the Wasserstein balls


def radius_path(
    problem: Problem,
    fed: Federation,
    *,
    radii: Sequence[Radius],
    client_radii: Sequence[float] | None = None,
    test: Federation | None = None,
    held_out: float = 0.3,
    seed: int = 0,
    algorithm: Method | None = None,
    engine: Engine | None = None,
    tol: float | None = None,
    max_rounds: int | None = None,
    watch: Callable[[dict[str, Any]], None] | None = None,
) -> list[dict[str, Any]]:
    """Solve the problem at every radius and client radius, each from its neighbour's model, and
    judge every model on held-out rows.

    Parameters
    ----------
    problem : with a ``WassersteinBall`` over the samples and, for ``client_radii``, an ``LpBall``
        over the clients
    radii : Wasserstein radii; each a number, one per client, or a mapping by client name
    client_radii : radii of the ball of client weights; None keeps the problem's
    test : held-out rows of the clients; None holds out the share ``held_out`` of every client's
        rows, by ``seed``
    algorithm, engine, tol, max_rounds : as in `bonafed.solve`
    watch : called with every row of the table

    Returns
    -------
    list of rows : radius, client_radius, value, bound, relative_gap, rounds, outcome, trivial; on
        the held-out rows loss, worst_loss and worst_client (largest mean loss), and accuracy,
        worst_accuracy (classification) or mae, worst_mae; w, the model, and duals, what proves its
        bound. Choose a row by a held-out
        column, then solve over all rows. The held-out figures of the chosen row are optimistic,
        because they decided the choice.

    Raises
    ------
    KeyboardInterrupt : Ctrl-C; the rows so far went to ``watch``

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> ball = bf.WassersteinBall(radius=0.1)
    >>> problem = bf.Problem(bf.Hinge(), over_samples=ball, regulariser=bf.L2(0.1))
    >>> train, test = fed.split(test=0.4, seed=0)
    >>> path = bf.radius_path(problem, train, radii=[0.0, 0.1], test=test)
    >>> [point["radius"] for point in path]
    [0.0, 0.1]
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
    settings: Any = {"engine": engine, "tol": tol, "max_rounds": max_rounds, "seed": seed}
    settings["start"] = None
    several = [clients]
    if client_radii is not None:
        several = [replace(clients, radius=radius) for radius in client_radii]
    table: list[dict[str, Any]] = []
    corner = None  # the solution at the first radius of the last client radius
    balls = [replace(ball, radius=radius) for radius in radii]
    for risk in several:
        last = corner
        for k, ball in enumerate(balls):
            point, warm = replace(problem, over_samples=ball, over_clients=risk), algorithm
            if last is not None and "start" in settings_of(algorithm):
                settings["start"] = last.w
            # where the cuts of the last solve hold at any radius, and are not sums over the clients
            state = last.state if last is not None and last.problem.joint_cuts else None
            if isinstance(algorithm, Bundle) and isinstance(state, BundleState):
                warm = replace(algorithm, known=state.cuts)
            last = fit(point, train, algorithm=warm, **settings)
            corner = last if k == 0 else corner
            if last.outcome.stop is Stop.INTERRUPTED:
                raise KeyboardInterrupt
            proof = last.certificate
            row = {
                "radius": ball.radius,
                "client_radius": getattr(risk, "radius", None),
                "value": proof.value,
                "bound": proof.bound,
                "relative_gap": proof.relative_gap,
                "rounds": last.rounds,
                "outcome": last.outcome.stop.value,
                "trivial": trivial(point, train, last.w, proof),
            }
            table.append(row | judged(point, test, last.w) | {"w": last.w, "duals": last.duals})
            if watch is not None:
                watch(table[-1])
    return table


def trivial(problem: Problem, fed: Federation, w: Array, proof: Certificate) -> bool:
    """Whether the model w is no better than a constant."""
    concrete, data = problem.at(fed)
    return finding(concrete, data, w, proof.value, proof.gap) is not None


def judged(problem: Problem, test: Federation, w: Array) -> dict[str, Any]:
    """Mean and worst client on held-out rows; the mean is over rows."""
    concrete, test = Problem(problem.loss, problem.predictor).at(test)
    blocks = [test.block(i) for i in range(test.n_clients)]
    predictions = [concrete.predictor.forward(w, block) for block in blocks]

    def by_client(of_rows: Callable[[Array, Array], Array]) -> tuple[Array, float]:
        """The mean over the rows of every client, and over all rows."""
        pairs = zip(blocks, predictions, strict=True)
        means = np.array([block.mean(of_rows(p, block.y))[0] for block, p in pairs])
        return means, float(np.average(means, weights=test.sizes))

    loss, mean = by_client(problem.loss.value)
    worst = {"worst_loss": float(loss.max()), "worst_client": test.clients[int(loss.argmax())]}
    if problem.loss.targets == "real":
        error, mae = by_client(lambda p, y: np.abs(p - y))
        return {"loss": mean, **worst, "mae": mae, "worst_mae": float(error.max())}
    several = problem.loss.targets == "class"
    right, accuracy = by_client(lambda p, y: p.argmax(-1) == y if several else (p > 0) == (y > 0))
    return {"loss": mean, **worst, "accuracy": accuracy, "worst_accuracy": float(right.min())}
