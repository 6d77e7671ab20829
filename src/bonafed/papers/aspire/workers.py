"""Workers of the paper's data sets, and what a method does with them on one virtual clock.

Evaluations stand outside the clock: they use the model that the server holds after a round and take
no time. All methods meet the same delays: a worker's k-th trip takes as long in every run with one
seed.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bonafed as bf
import bonafed.extending as ext
from bonafed.data import load
from bonafed.extending import Array
from bonafed.papers.aspire.drfa import DRFA
from bonafed.papers.reproduction import whole

CAP = 10**7  # rounds: the time ends a run
RIDGE = 1e-4
THREE = (0, 2, 6)  # T-shirt, pullover, shirt


@dataclass(frozen=True)
class Workers:
    """Workers, their held-out rows, and who is slow by which factor."""

    problem: bf.Problem  # with any set of client weights
    fed: bf.Federation
    test: bf.Federation | None = None
    slow: Mapping[str, float] = field(default_factory=dict)

    def stragglers(self, count: int, factor: float, seed: int) -> "Workers":
        """The same workers, ``count`` of them slower by a factor."""
        rng = np.random.default_rng([seed, 1])
        late = rng.choice(self.fed.n_clients, count, replace=False).tolist()
        return replace(self, slow={self.fed.names[i]: factor for i in sorted(late)})


def _problem(predictor: Any) -> bf.Problem:
    return bf.Problem(bf.Multinomial(), predictor, regulariser=bf.L2(RIDGE))


def fashion_mnist(seed: int, rows: int, hidden: tuple[int, ...]) -> Workers:
    """Three workers with one class each, softmax regression; ``rows`` of each at most."""
    rng, parts = np.random.default_rng(seed), []
    for part, most in (("train", rows), ("test", 1000)):
        X, y, _ = load.fashion_mnist(part)
        places = [rng.permutation(np.flatnonzero(y == c))[:most] for c in THREE]
        names = tuple(f"class {c}" for c in THREE)
        Xs, ys = tuple(X[k] for k in places), tuple(y[k] for k in places)
        parts.append(bf.Federation(names, Xs, ys, classes=np.array(THREE)))
    return Workers(_problem(bf.Softmax()), *parts)


def scma(seed: int, rows: int, hidden: tuple[int, ...]) -> Workers:
    """Fifteen people with a perceptron, or softmax regression where nothing is ``hidden``; three
    tenths of at most ``rows`` windows of each are held out.
    """
    whole, rng = load.scma(), np.random.default_rng(seed)
    places = [rng.permutation(n)[:rows] for n in whole.sizes.tolist()]
    Xs, ys = (tuple(v[k] for v, k in zip(vs, places, strict=True)) for vs in (whole.X, whole.y))
    fed = bf.Federation(whole.clients, Xs, ys, classes=np.asarray(ext.classes_of(whole)))
    model = bf.MLP(hidden, seed=seed) if hidden else bf.Softmax()
    return Workers(_problem(model), *fed.split(0.3, seed))


def qmnist(seed: int, workers: int, rows: int, slow: int) -> Workers:
    """The images of QMNIST in the order of their writers, dealt to so many workers, with softmax
    regression; the test images are one held-out client.
    """
    fed, test = load.qmnist("train"), load.qmnist("test")
    size = min(rows, int(fed.sizes.sum()) // workers) * workers
    X, y = (np.concatenate(list(parts))[:size] for parts in (fed.X, fed.y))
    owner = np.arange(size) * workers // size
    dealt = bf.Federation.from_arrays(X, y, [f"worker {i}" for i in owner], classes=np.arange(10))
    return Workers(_problem(bf.Softmax()), dealt, test.pooled()).stragglers(slow, 10.0, seed)


LOADED = {"fashion_mnist": fashion_mnist, "scma": scma}


# ---- runs


@dataclass(frozen=True)
class Seen:
    """An evaluation."""

    time: float  # virtual seconds
    rounds: int
    answers: int  # of workers so far
    planes: int  # that the method holds, 0 where it has none
    value: float  # the objective
    losses: Array  # (N,) on the workers' rows
    accuracies: Array  # (M,) on held-out rows
    held: Array  # (M,) the losses there


@dataclass(frozen=True)
class Followed:
    """The evaluations of a run in order, the last model and the CPU seconds."""

    points: list[Seen]
    w: Array
    seconds: float

    @property
    def last(self) -> Seen:
        return self.points[-1]


def follow(
    workers: Workers,
    method: Any,
    over_clients: Any,
    seconds: float,
    seed: int,
    *,
    wait: ext.Waiting | None = None,
    points: int = 1,
    **clock: Any,
) -> Followed:
    """A method's run of so many virtual seconds, evaluated ``points`` times and at its end.

    ``clock`` are settings of `VirtualClock`.
    """
    stated = replace(workers.problem, over_clients=over_clients)
    problem, fed = stated.at(workers.fed)
    algorithm = replace(method, problem=problem)
    seen: list[Seen] = []
    answers, planes, rounds, now, spent = 0, 0, 0, 0.0, 0.0
    due = seconds / points

    def evaluated(w: Array) -> Seen:
        losses = client_risks(problem, w, fed)
        value = float(problem.over_clients.value(losses)) + problem.penalty(w)
        right, held = np.zeros((2, 0))
        if workers.test is not None:
            right = accuracies(workers.problem, w, workers.test)
            own, rows = workers.problem.at(workers.test)
            held = client_risks(own, w, rows)
        return Seen(now, rounds, answers, planes, value, losses, right, held)

    def watch(row: dict[str, Any], state: object) -> None:
        nonlocal answers, planes, rounds, now, due, spent
        answers, planes = answers + int(row["answered"]), int(row.get("planes", 0))
        rounds, now = row["round"], row["time"]
        if points == 1 or now < due or not len(w := current(algorithm, state)):
            return
        began, due = time.process_time(), now + seconds / points
        seen.append(evaluated(w))
        spent += time.process_time() - began

    rules: dict[str, Any] = {"wait": wait or bf.First(1), "keep_rows": CAP, "max_time": seconds}
    engine, began = bf.VirtualClock(stragglers=workers.slow, **(rules | clock)), time.process_time()
    state = whole(engine.run(algorithm, fed, seed=seed, watch=[watch])).state
    spent = time.process_time() - began - spent
    w = ext.or_default(algorithm.answer(state).w, problem, fed.n_features)
    return Followed([*seen, evaluated(w)], w, spent)


def current(algorithm: ext.Method, state: Any) -> Array:
    """The model that the server would send next, or its answer where that differs on purpose."""
    trial = getattr(state, "trial", None)
    averaged = isinstance(algorithm, bf.AFL | DRFA) and algorithm.average
    return algorithm.answer(state).w if averaged or trial is None else trial


def client_risks(problem: bf.Problem, w: Array, fed: bf.Federation) -> Array:
    """F_i(w) of every client, (N,), for a concrete problem."""
    return np.concatenate([problem.client_risks(w, fed.block(i)) for i in range(fed.n_clients)])


def predicted(stated: bf.Problem, w: Array, fed: bf.Federation) -> list[NDArray[Any]]:
    """The classes that a model gives the rows of every client."""
    problem, rows = stated.at(fed)
    classes = np.asarray(ext.classes_of(fed))
    return [classes[ext.scores(problem.predictor, w, X).argmax(-1)] for X in rows.X]


def accuracies(stated: bf.Problem, w: Array, fed: bf.Federation) -> Array:
    """The share of every client's rows that are predicted correctly, (N,)."""
    pairs = zip(predicted(stated, w, fed), fed.y, strict=True)
    return np.array([float((found == y).mean()) for found, y in pairs])
