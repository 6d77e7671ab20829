"""Choosing radii and judging models client by client.

`WithinClients` splits the rows of every client, so that each client is in every fold; `cross_validate` routes the
clients to the splitter, to ``fit`` and to the scorers; `radius_path` solves a problem along its radii, each solve
started from its neighbour's model; `default_radius` reads a radius off the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import BaseCrossValidator

from quorate.algorithms.federated.bundle import Bundle
from quorate.arrays import Array, stream
from quorate.arrays import norm as norm_of
from quorate.data.federation import Federation
from quorate.data.rows import grouped
from quorate.problem.losses import Loss
from quorate.problem.problem import Problem
from quorate.problem.risks.risk import resolve_prior
from quorate.problem.wasserstein import WassersteinBall
from quorate.rounds import Stop


def paper_grid(prefix: str = "") -> dict[str, list[float]]:
    """The grid of Bai, Wong, Qiao, Ho, section 6: 15 radii rho, 10 label costs kappa, 6 client radii theta (A24).

    ``prefix`` is for a step of a pipeline, such as "robustclassifier__". Of the 900 points, those with
    radius >= label_cost / 2 are trivial for classification.
    """
    return {
        f"{prefix}radius": [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 2e-6, 2e-5, 2e-4, 2e-3, 2e-2, 5e-6, 5e-4, 5e-2, 5e-1, 1.0],
        f"{prefix}label_cost": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0],
        f"{prefix}client_radius": [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0],
    }


class WithinClients(BaseCrossValidator):
    """K folds inside every client: each client is in every training set, and in every test set if its rows suffice.

    A client's rows are dealt to the folds in turn, class by class unless y holds real numbers; a client with fewer rows
    than folds is in as many test sets as it has rows, a client with one row in none.

    Parameters
    ----------
    n_splits : number of folds, >= 2
    shuffle : deal in random order, or else in turn
    random_state : seed of ``shuffle``, an integer; streams are the clients' own: a new client moves nobody else's rows
    """

    __metadata_request__split = {"groups": True}  # noqa: RUF012  # scikit-learn's protocol

    def __init__(self, n_splits: int = 5, *, shuffle: bool = True, random_state: int = 0) -> None:
        if n_splits < 2:
            raise ValueError(f"n_splits must be >= 2, got {n_splits}: one fold leaves nothing to train on.")
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """``n_splits``."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """(train, test) row numbers of every fold; ``groups`` (n,) says whose each row is."""
        fold = self._folds(X.shape[0] if hasattr(X, "shape") else len(X), y, groups)
        for k in range(self.n_splits):
            if not (fold == k).any():
                raise ValueError(
                    f"fold {k} of {self.n_splits} would test no row, the clients have too few: lower n_splits."
                )
            yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)

    def _folds(self, n: int, y: Any, groups: Any) -> NDArray[np.intp]:
        """(n,) the fold in which each row is tested; -1 for none."""
        if groups is None:
            raise ValueError("WithinClients needs groups, the client of each row; for rows of one client use KFold.")
        names, picks = grouped(groups, n)
        values, code = (0, np.zeros(n, int)) if y is None else np.unique(np.asarray(y), return_inverse=True)
        if np.asarray(y).dtype.kind == "f" and np.size(values) > 2:
            code = np.zeros(n, int)  # numbers are dealt at random
        fold = np.full(n, -1)
        for i, (name, pick) in enumerate(zip(names, picks, strict=True)):
            rows, first = np.arange(n)[pick], i
            if self.shuffle:
                rng = stream(self.random_state, name, 0)
                rows, first = rng.permutation(rows), int(rng.integers(self.n_splits))
            rows = rows[np.argsort(code[rows], kind="stable")]
            if len(rows) > 1:
                fold[rows] = (first + np.arange(len(rows))) % self.n_splits
        return fold


def cross_validate(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    groups: Any,
    by: str = "rows",
    cv: Any = 5,
    scoring: Any = None,
    sample_weight: Any = None,
    **options: Any,
) -> dict[str, Any]:
    """scikit-learn's ``cross_validate`` with the clients routed to splitter, ``fit`` and scorers.

    Parameters
    ----------
    estimator : an estimator, pipeline or search whose ``fit`` requests groups, such as `RobustClassifier`
    groups : (n,) the client of each row
    by : "rows": every client in every fold (`WithinClients`), how well each client is served; "client": whole clients
        are held out (``GroupKFold``), how well a new client would be
    cv : number of folds, or a splitter (then ``by`` is not used)
    scoring : as in scikit-learn; None is accuracy and worst_client_accuracy (or r2), and worst_client_loss
    sample_weight : (n,), passed to what requests it
    options : return_train_score, return_estimator, n_jobs, error_score, ... as in scikit-learn

    Returns
    -------
    dict : fit_time, score_time and test_... as (n_splits,) arrays
    """
    from sklearn import config_context, model_selection
    from sklearn.base import is_classifier

    from quorate.estimators.scorers import worst_client_accuracy, worst_client_loss

    if by not in ("rows", "client"):
        raise ValueError(f"by must be 'rows' (split every client) or 'client' (hold out whole ones), got {by!r}.")
    if isinstance(cv, int | np.integer):
        cv = WithinClients(int(cv)) if by == "rows" else model_selection.GroupKFold(int(cv))
    if scoring is None:
        overall = {"accuracy": "accuracy", "worst_client_accuracy": worst_client_accuracy}
        scoring = (overall if is_classifier(estimator) else {"r2": "r2"}) | {"worst_client_loss": worst_client_loss}
    params = {"groups": groups} | ({} if sample_weight is None else {"sample_weight": sample_weight})
    with config_context(enable_metadata_routing=True):
        return model_selection.cross_validate(estimator, X, y, scoring=scoring, cv=cv, params=params, **options)


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
    """Solve the problem at every radius and client radius, each from its neighbour's model, and judge on held-out rows.

    Parameters
    ----------
    problem : with a ``WassersteinBall`` over the samples and, for ``client_radii``, an ``LpBall`` over the clients
    radii : Wasserstein radii; each a number, one per client, or a mapping by client name
    client_radii : radii of the ball of client weights; None keeps the problem's
    test : held-out rows of the clients; None holds out the share ``held_out`` of every client's rows, by ``seed``
    algorithm, engine, tol, max_rounds : as in `quorate.solve`
    watch : called with every row as it is found

    Returns
    -------
    list of rows : radius, client_radius, value, bound, relative_gap, rounds, outcome, trivial; on the held-out rows
        loss, worst_loss and worst_client (largest mean loss), and accuracy, worst_accuracy (classification) or mae,
        worst_mae; w, the model. Choose a row by a held-out column, then solve over all rows. The held-out figures of
        the row chosen are optimistic: they were looked at.

    Raises
    ------
    KeyboardInterrupt : Ctrl-C; the rows found so far went to ``watch``
    """
    from quorate.solution import solve

    ball, clients = problem.over_samples, problem.over_clients
    if not isinstance(ball, WassersteinBall):
        raise TypeError(f"radius_path needs over_samples=WassersteinBall(...), got {ball!r}.")
    if client_radii is not None and not hasattr(clients, "radius"):
        raise TypeError(f"client_radii need over_clients with a radius, such as LpBall(0.1), got {clients!r}.")
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
            point = replace(problem, over_samples=replace(ball, radius=rho), over_clients=over_clients)
            own = {"engine": engine, "tol": tol, "max_rounds": max_rounds, "seed": seed}
            last = solve(point, train, algorithm=_warm(algorithm, last), start=_start(algorithm, last), **own)
            corner = last if k == 0 else corner
            if last.outcome.stop is Stop.INTERRUPTED:
                raise KeyboardInterrupt
            table.append(_row(rho, theta, point, train, last) | judged(point, test, last.w) | {"w": last.w})
            if watch is not None:
                watch(table[-1])
    return table


def _start(algorithm: Any, last: Any) -> Array | None:
    return last.w if last is not None and hasattr(algorithm, "start") else None


def _warm(algorithm: Any, last: Any) -> Any:
    """The algorithm with the cuts of the last solve: they are joint in model and price, so they hold at any radius."""
    return (
        replace(algorithm, known=last.state.cuts) if last is not None and isinstance(algorithm, Bundle) else algorithm
    )


def _row(rho: Any, theta: Any, problem: Problem, fed: Federation, solution: Any) -> dict[str, Any]:
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


def default_radius(
    fed: Federation,
    *,
    norm: str = "l1",
    label_cost: float = math.inf,
    loss: Loss | None = None,
    prior: Any = "size",
    errors: float = 0.05,
    level: float = 0.9,
    seed: int = 0,
) -> Array:
    """A Wasserstein radius for every client, (N,), from the sizes and the spread of its rows.

        b_s = the ``level``-quantile of || sum_i share_i e_i (x_i - mean_s) ||,  e_i = -1 or 1 at random
        radius_s = sqrt(errors) c b_s,   c = sqrt(sum_s (q_s b_s)^2) / sum_s q_s b_s
        classification: no more than errors label_cost

    At the best model the mean gradient of the loss is zero; over finitely many rows it is noise, sum_i share_i slope_i
    x_i. A penalty radius ||w||_* stops the model from following that noise once the radius reaches the noise's
    transport norm (as the strength of a lasso is usually chosen). Slopes are at most the Lipschitz constant, and small
    on rows that the model gets right: their root mean square is taken as sqrt(errors). b_s shrinks like 1 / sqrt(m_s).
    The clients share one model, so their noises average out: c is 1 for one client, 1 / sqrt(N) for N equal ones. The
    last line lets the adversary flip at most the share ``errors`` of the labels; at 1/2 zero would be optimal.

    Measured (70 settings: breast cancer, digits, diabetes, synthetic; hinge, logistic, Huber; three norms; 1, 4 and 8
    clients of 20 to 300 rows), the largest held-out client loss was 1.06 times (median; 9 of 10 below 1.38, all below
    1.83) that of the best of 0, 0.1, 0.3, 1 and 3 times this radius. Radius 0 stood at 1.50 (3.03, 3.57), and was
    better than this radius in 27 %. A client's worst case on its training rows exceeded its held-out loss in 81 %
    (radius 0: 9 %). So it is a starting point for `radius_path`, and no confidence level for a single client.

    Parameters
    ----------
    norm, label_cost, loss : as in the problem; without a loss, a federation of two classes is classification
    prior : q, as in `LpBall`
    errors : share of the rows that a good model gets wrong, in (0, 1/2)
    level : in (0, 1)
    seed : of the signs e (200 draws from the client's own stream, over at most 2000 of its rows)

    Each client computes b_s from its own rows: one number leaves it. A client with one row gets the median of the
    others' spread. Weighted rows count as one row each, by their weights.
    """
    if not 0 < errors < 0.5 or not 0 < level < 1:
        raise ValueError(f"errors must lie in (0, 1/2) and level in (0, 1), got errors={errors}, level={level}.")
    noise = np.array([_noise(fed, i, norm, level, seed) for i in range(fed.n_clients)])
    size = np.array([np.sqrt((fed.share(i) ** 2).sum()) for i in range(fed.n_clients)])
    known = fed.sizes > 1
    if not known.any():
        raise ValueError("no client has two rows, so there is no spread to read a radius from: state the radius.")
    noise = np.where(known, noise, np.median(noise[known] / size[known]) * size)
    q = resolve_prior(prior, fed.sizes.astype(float), fed.clients)
    total = float(q @ noise)
    radius = math.sqrt(errors) * noise * (float(np.linalg.norm(q * noise)) / total if total > 0 else 0.0)
    signs = loss.targets == "sign" if loss is not None else fed.classes is not None and len(fed.classes) == 2
    return np.minimum(radius, errors * label_cost) if signs else radius


def _noise(fed: Federation, i: int, kind: str, level: float, seed: int, rows: int = 2000, draws: int = 200) -> float:
    """b_s of client i; a sample of its rows is scaled to all of them by sqrt(sum share^2)."""
    X, share, rng = fed.rows(i)[0], fed.share(i), stream(seed, fed.clients[i], 1)
    size = float(np.sqrt((share**2).sum()))
    if len(share) > rows:
        pick = np.sort(rng.choice(len(share), rows, replace=False))
        X, share = X[pick], share[pick] / share[pick].sum()
    e = rng.choice([-1.0, 1.0], (draws, len(share))) * share
    e -= e.sum(1, keepdims=True) * share  # sum_i share_i e_i (x_i - mean) without centring X
    own = float(np.sqrt((share**2).sum()))
    unbiased = math.sqrt(max(1 - own**2, 0.0)) or 1.0  # one row tells nothing about the spread
    return float(np.quantile(norm_of(np.asarray(X.T @ e.T).T, kind), level)) * size / own / unbiased
