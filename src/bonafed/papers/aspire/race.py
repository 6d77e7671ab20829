"""A race on one virtual clock: when each method's model first is near the optimum, at what cost.

    gap(w) = R(F(w)) + h(w) - F*,     F* the certified lower bound of the optimum

Evaluations stand outside the clock: they use the model that the server holds after a round, at most
once in ``every`` virtual seconds, and take no time. All methods meet the same delays: a client's
k-th trip takes as long in every run with one delay seed. A first round in which a method only
learns the number of features counts like every other.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bonafed as bf
import bonafed.extending as ext
from bonafed.data import load
from bonafed.extending import Array
from bonafed.papers.aspire.aspire import ASPIRE, Steps
from bonafed.papers.aspire.drfa import DRFA

LEVELS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3)
COSTED = 1e-2  # the level whose messages and bytes are shown


@dataclass(frozen=True)
class Optimum:
    """A certified optimum: bound <= F* <= value."""

    value: float
    bound: float
    w: Array  # (D,)


@dataclass(frozen=True)
class Entrant:
    """A method, and its server's rule of waiting."""

    algorithm: ext.Method
    wait: ext.Waiting = field(default_factory=bf.First)


@dataclass(frozen=True)
class Evaluation:
    """One evaluation during a race."""

    time: float  # virtual seconds
    gap: float
    answers: int  # of clients so far; the server has sent as many messages and those in flight
    bytes: int  # both ways


@dataclass(frozen=True)
class Run:
    """The evaluations of one method's race."""

    points: tuple[Evaluation, ...]
    rounds: int
    state: Any

    def reaches(self, level: float) -> Evaluation | None:
        """The first evaluation within ``level`` of the optimum, or None."""
        return next((point for point in self.points if point.gap <= level), None)

    def time(self, level: float) -> float:
        """The time of that evaluation; infinite where there is none."""
        point = self.reaches(level)
        return np.inf if point is None else point.time

    @property
    def best(self) -> float:
        """The least gap of all evaluations."""
        return min((point.gap for point in self.points), default=np.inf)


class _Over(Exception):  # noqa: N818  no error
    """The last level is reached."""


def optimum(setup: "SetUp", tol: float = 1e-9) -> Optimum:
    """The certified optimum, by the synchronous reference."""
    solution = ext.fit(setup.problem, setup.fed, algorithm=bf.MultiplierMethod(), tol=tol)
    proof = solution.certificate
    if proof.bound is None:
        text = solution.outcome.text
        raise ArithmeticError(f"no bound on the optimum of set-up {setup.name} is proved: {text}")
    return Optimum(proof.value, proof.bound, solution.w)


def objective(problem: bf.Problem, fed: bf.Federation, w: Array) -> float:
    """R(F(w)) + h(w) of a concrete problem."""
    risks = np.concatenate([problem.client_risks(w, block) for block in fed.blocks()])
    order = np.concatenate([block.index for block in fed.blocks()])
    return float(problem.over_clients.value(risks[np.argsort(order)])) + problem.penalty(w)


def current(algorithm: ext.Method, state: Any) -> Array:
    """The model that the server would send next, or its answer where that differs on purpose."""
    trial = getattr(state, "trial", None)
    averaged = isinstance(algorithm, bf.AFL | DRFA) and algorithm.average
    return algorithm.answer(state).w if averaged or trial is None else trial


def configured(entrant: Entrant, problem: bf.Problem, data: bf.Federation) -> Any:
    """An entrant's method for a concrete problem; ``FedAvg`` gets equal weights."""
    if isinstance(entrant.algorithm, bf.FedAvg):
        problem = replace(problem, over_clients=bf.Mean().at(np.ones(data.n_clients)))
    method: Any = entrant.algorithm
    return replace(method, problem=problem)


def follow(
    setup: "SetUp",
    entrant: Entrant,
    best: Optimum,
    max_time: float,
    delays: int = 0,
    levels: Sequence[float] = LEVELS,
    every: float = 1.0,
) -> Run:
    """One entrant's race, until its model is within the last level, or out of time.

    ``FedAvg`` is evaluated by the worst weights as well.
    """
    problem, data = setup.problem.at(setup.fed)
    algorithm = configured(entrant, problem, data)
    points: list[Evaluation] = []
    answers, sent, last, rounds, final = 0, 0, -np.inf, 0, None

    def watch(row: dict[str, Any], state: object) -> None:
        nonlocal answers, sent, last, rounds, final
        answers, sent = answers + row["answered"], sent + row["bytes_up"] + row["bytes_down"]
        rounds, final = row["round"], state
        if row["time"] < last + every or not len(w := current(algorithm, state)):
            return
        last = row["time"]
        gap = objective(problem, data, w) - best.bound
        points.append(Evaluation(last, gap, int(answers), int(sent)))
        if gap <= min(levels):
            raise _Over

    with suppress(_Over):
        engine = setup.clock(entrant.wait, max_time=max_time)
        engine.run(algorithm, data, seed=delays, watch=[watch])
    return Run(tuple(points), rounds, final)


def row(name: str, run: Run) -> tuple[Any, ...]:
    """A row of a table: times to the levels, messages and KiB to one of them, the least gap."""
    times = [point and round(point.time, 1) for point in map(run.reaches, LEVELS)]
    point = run.reaches(COSTED)
    costs = (None, None) if point is None else (2 * point.answers, round(point.bytes / 1024))
    return name, *times, *costs, float(f"{max(run.best, 0.0):.1e}")


def columns() -> tuple[str, ...]:
    """The heads of ``row``."""
    levels = (f"{level:g}" for level in LEVELS)
    return ("method", *levels, f"messages to {COSTED:g}", f"KiB to {COSTED:g}", "least gap")


# The methods that race: all at their defaults, and AFL and ASPIRE tuned over small grids.
#
#     AFL     eta in 1, 2, 4, 8, 16, gamma in 0.01, 0.02, 0.03, 0.05, 0.1; and its measured steps,
#             extrapolated or not
#     ASPIRE  its default kappa, and with it rho_2, 1 / eta_z and 1 / eta_w, times 0.5, 1, 2, 4;
#             rho_1 at its default, and fixed at 0.5, 1, 2 times S / (f N^2), its value for N planes
#             without stragglers (f is the mean loss at first)
#
# A tuned method is the entrant whose time to the level is least.

AFL_ETA, AFL_GAMMA = (1.0, 2.0, 4.0, 8.0, 16.0), (0.01, 0.02, 0.03, 0.05, 0.1)
KAPPA, RHO1 = (0.5, 1.0, 2.0, 4.0), (None, 0.5, 1.0, 2.0)
CAP = 10**7  # rounds; in a race the time limit ends a run
ENDLESS: dict[str, Any] = {"tol": 0.0, "max_rounds": CAP}


def as_they_come(first: int = 1) -> dict[str, Entrant]:
    """All methods at their defaults, none of which stops by itself.

    ``first`` is S of the asynchronous ones.
    """
    methods = [bf.AsyncDRO(**ENDLESS), ASPIRE(**ENDLESS), bf.AFL(**ENDLESS)]
    methods += [DRFA(max_rounds=CAP), bf.FedAvg(**ENDLESS), bf.MultiplierMethod(**ENDLESS)]
    return {type(method).__name__: Entrant(method, bf.First(first)) for method in methods}


def bundles(first: int = 1) -> dict[str, Entrant]:
    """The synchronous and the asynchronous bundle; this one stops by itself, since its tolerance
    says which steps are not worth a message.
    """
    synchronous, asynchronous = bf.Bundle(**ENDLESS), bf.AsyncBundle(tol=1e-4, max_rounds=CAP)
    return {"Bundle": Entrant(synchronous), "AsyncBundle": Entrant(asynchronous, bf.First(first))}


def afl_grid() -> dict[str, Entrant]:
    """AFL with every setting of its grid."""
    plain = bf.AFL(**ENDLESS)
    grid = {"measured": plain, "measured, optimistic": replace(plain, optimistic=True)}
    for eta, gamma in product(AFL_ETA, AFL_GAMMA):
        grid[f"eta {eta:g}, gamma {gamma:g}"] = replace(plain, step_size=eta, weight_step=gamma)
    return {name: Entrant(algorithm) for name, algorithm in grid.items()}


def aspire_grid(steps: Steps, first: int = 1) -> dict[str, Entrant]:
    """ASPIRE with every setting of its grid; ``steps`` are its default ones, ``first`` is S."""
    grid, n = {}, steps.workers
    for by, rho in product(KAPPA, RHO1):
        kappa, rho1 = by * steps.kappa, rho and rho * steps.rho1 * first / n**2
        own = {"kappa": kappa, "rho1": rho1, "rho2": kappa / 2, "eta_z": 1 / (n * kappa)}
        name = f"kappa x {by:g}, rho_1 {'its default' if rho is None else f'x {rho:g}'}"
        grid[name] = Entrant(ASPIRE(**ENDLESS, **own), bf.First(first))
    return grid


def tuned(runs: Mapping[str, Run], level: float) -> str:
    """The name of the run that reaches the level first, or comes nearest if none reaches it."""
    return min(runs, key=lambda name: (runs[name].time(level), runs[name].best))


# Set-ups in which asynchronous methods race: noisy digits, unlike clients, slow clients.
#
#     A   10 clients, one class each, all weightings; one client 10 times slower
#     B   the same, one client 50 times slower
#     C  100 clients, classes shared by Dirichlet(0.2), no weight above 0.05; 5 % of the clients 10
#     times slower
#
# Rows are the pixels over 16 plus normal noise of deviation 0.6, their 20 leading principal
# components, and a constant. The model is softmax regression (210 numbers) with 0.005 ||w||^2.
# ``digits_of(seed)`` and the slow clients are the same in every run with one seed; the seed of the
# delays is the engine's.

NOISE, COMPONENTS, RIDGE = 0.6, 20, 0.01
LEAST = 3  # rows of a client
SLOW_OF_TEN = 3  # the position of the straggler in A and B


@dataclass(frozen=True)
class SetUp:
    """A problem, its clients, and how much slower some of them are."""

    name: str
    problem: bf.Problem
    fed: bf.Federation
    slow: Mapping[str, float] = field(default_factory=dict)

    def clock(self, wait: ext.Waiting | None = None, **settings: Any) -> bf.VirtualClock:
        """A virtual clock with the slow clients; ``settings`` as in ``VirtualClock``."""
        rules = {"wait": wait or bf.First(1), "keep_rows": 10**9} | settings
        return bf.VirtualClock(stragglers=self.slow, **rules)


def digits_of(seed: int = 0) -> tuple[Array, NDArray[np.int64]]:
    """Noisy digits (1797, ``COMPONENTS`` + 1) and their classes."""
    X, y = digits()
    X += NOISE * np.random.default_rng(seed).standard_normal(X.shape)
    X -= X.mean(0)
    axes = np.linalg.svd(X, full_matrices=False)[2][:COMPONENTS]
    return np.column_stack([X @ axes.T, np.ones(len(X))]), y


def digits() -> tuple[Array, NDArray[np.int64]]:
    """Scikit-learn's digits: the pixels over 16, (1797, 64), and the classes."""
    from sklearn.datasets import load_digits

    pixels, y = load_digits(return_X_y=True)
    return np.asarray(pixels, float) / 16, np.asarray(y, np.int64)


def stated(over_clients: Any, predictor: Any | None = None) -> bf.Problem:
    """The problem of all set-ups, with any set of client weights and any model."""
    model = predictor or bf.Softmax(fit_intercept=False)
    return bf.Problem(bf.Multinomial(), model, over_clients=over_clients, regulariser=bf.L2(RIDGE))


def a(seed: int = 0, factor: float = 10.0, name: str = "A") -> SetUp:
    """Set-up A: client "digit c" holds the rows of class c; "digit 3" is slow."""
    X, y = digits_of(seed)
    fed = bf.Federation.from_arrays(X, y, [f"digit {c}" for c in y])
    return SetUp(name, stated(bf.Simplex()), fed, {f"digit {SLOW_OF_TEN}": factor})


def b(seed: int = 0) -> SetUp:
    """Set-up B: as A, but "digit 3" is 50 times slower."""
    return a(seed, 50.0, "B")


def c(
    seed: int = 0, clients: int = 100, most: float = 0.05, slow: float = 0.05, factor: float = 10.0
) -> SetUp:
    """Set-up C: ``most`` is the largest weight, ``slow`` the share of stragglers.

    The stragglers are drawn with the same seed.
    """
    X, y = digits_of(seed)
    fed = bf.Federation.from_arrays(X, y, shared(y, clients, 0.2, seed), classes=np.arange(10))
    rng = np.random.default_rng([seed, clients])
    late = sorted(rng.choice(clients, max(1, round(slow * clients)), replace=False).tolist())
    risk = bf.Superquantile(1 / fed.n_clients / most)
    return SetUp("C", stated(risk), fed, {fed.names[i]: factor for i in late})


def shared(y: NDArray[np.int64], clients: int, alpha: float, seed: int) -> NDArray[Any]:
    """Each class dealt to clients by a Dirichlet draw; returns the clients' names of the rows (n,).

    A client with fewer than three rows takes the missing ones from the largest client.
    """
    rng, owner = np.random.default_rng([seed, clients, 7]), np.empty(len(y), np.int64)
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        owner[rows] = rng.choice(clients, len(rows), p=rng.dirichlet(np.full(clients, alpha)))
    while (sizes := np.bincount(owner, minlength=clients)).min() < LEAST:
        owner[np.flatnonzero(owner == sizes.argmax())[-1]] = sizes.argmin()
    return np.array([f"client {i}" for i in range(clients)])[owner]


def workers(clients: int = 1000, slow: int = 5, factor: float = 10.0, seed: int = 0) -> SetUp:
    """MNIST's 60,000 training images dealt to workers, some of them slow, for softmax regression.

    The images are sorted by class and cut into two runs for every worker: 1,000 workers hold 60
    images each, of one or two classes. The client weights are all of the simplex.
    """
    images = load.mnist("train")
    order = np.argsort(images.y, kind="stable")
    rng, half = np.random.default_rng(seed), len(order) // (2 * clients)
    runs = rng.permutation(2 * clients)
    owner = np.empty(len(order), np.int64)
    owner[order] = (runs % clients)[np.minimum(np.arange(len(order)) // half, 2 * clients - 1)]
    names = np.array([f"worker {i}" for i in range(clients)])
    fed = bf.Federation.from_arrays(images.X, images.y, names[owner])
    late = sorted(rng.choice(clients, slow, replace=False).tolist())
    return SetUp("MNIST", stated(bf.Simplex()), fed, {f"worker {i}": factor for i in late})


def halves(setup: SetUp, share: float = 0.3, seed: int = 0) -> tuple[SetUp, bf.Federation]:
    """The set-up with a ``share`` of every client's rows held out, and the federation of these.

    At least one row of every client is held out.
    """
    train, test = [], []
    for i, (name, rows) in enumerate(zip(setup.fed.clients, setup.fed.sizes.tolist(), strict=True)):
        order = ext.stream(seed, name, 0).permutation(rows)
        cut = min(max(1, round(share * rows)), rows - 1)
        test.append((i, order[:cut]))
        train.append((i, order[cut:]))
    return replace(setup, fed=setup.fed._pick(train)), setup.fed._pick(test)


# How well each method serves its worst client: losses and accuracies by client, over seeds.
#
# Every method runs on the virtual clock for the same time, with a straggler. "alone" is the best
# model of a single client (max_j Ind_j), "mixture" the model of all clients in equal parts, both
# solved to the end. Where no bound is proved (a model that is not affine in w) this compares the
# results of runs, not optima.

NUMBERS = ("worst_loss", "mean_loss", "worst_accuracy", "mean_accuracy", "deviation")


@dataclass(frozen=True, eq=False)
class Spread:
    """The losses and accuracies of one model by client."""

    losses: Array  # (N,) on training rows
    accuracies: Array  # (N,) on held-out rows
    worst_loss: float  # the largest loss of a client
    mean_loss: float
    worst_accuracy: float  # the least accuracy of a client
    mean_accuracy: float
    deviation: float  # of the accuracies over clients


def spread(problem: bf.Problem, w: Array, fed: bf.Federation, test: bf.Federation) -> Spread:
    """The losses on the rows of ``fed`` and the accuracies on those of ``test``, by client.

    Both have the same clients.
    """
    concrete, test = problem.at(test)
    predicted = [ext.scores(concrete.predictor, w, X).argmax(-1) for X in test.X]
    hits = np.array([(p == y).mean() for p, y in zip(predicted, test.y, strict=True)])
    risks = client_risks(replace(problem, over_clients=bf.Mean()), w, fed)
    numbers = risks.max(), risks.mean(), hits.min(), hits.mean(), hits.std()
    return Spread(risks, hits, *map(float, numbers))


def timed(setup: SetUp, entrant: Entrant, seconds: float, seed: int = 0) -> Array:
    """The model that a method has after so many virtual seconds."""
    problem, fed = setup.problem.at(setup.fed)
    algorithm = configured(entrant, problem, fed)
    clock = setup.clock(entrant.wait, max_time=seconds)
    return algorithm.answer(clock.run(algorithm, fed, seed=seed).state)[0]


def compared(
    setup: SetUp,
    test: bf.Federation,
    entrants: Mapping[str, Entrant],
    seconds: float,
    seed: int = 0,
    **options: Any,
) -> dict[str, Spread]:
    """Every method's model, and the two baselines'.

    ``options`` are those of ``solve`` for the baselines.
    """
    problem, fed = setup.problem, setup.fed
    alone = clients_alone(problem, fed, **options)
    own, even = alone.solutions[alone.best], mixture(problem, fed, **options)
    models = {"alone, best": own.w, "mixture": even.w}
    models |= {name: timed(setup, each, seconds, seed) for name, each in entrants.items()}
    return {name: spread(problem, w, fed, test) for name, w in models.items()}


def over_seeds(runs: Sequence[Mapping[str, Spread]]) -> dict[str, dict[str, tuple[float, float]]]:
    """The mean and standard deviation over seeds of every number, by method."""
    table: dict[str, dict[str, tuple[float, float]]] = {name: {} for name in runs[0]}
    for name, number in product(table, NUMBERS):
        values = [getattr(run[name], number) for run in runs]
        table[name][number] = float(np.mean(values)), float(np.std(values))
    return table


# Every set of client weights on one kind of problem: logistic regression with unlike clients.
#
# Client j has 15 to 59 rows x of 6 normal features, shifted, and labels sign(x'(w + 0.2 u_j) + 0.5
# noise); the regulariser is 0.005 ||w||^2. Two solutions of each problem are compared: that of the
# synchronous reference, and that of ``AsyncDRO`` at its defaults with one client (position 3)
# slower than the others. Both end with a proven gap.

FEATURES = 6


def federation(clients: int, seed: int = 0) -> bf.Federation:
    """A federation whose clients label by different linear rules."""
    rng, Xs, ys = np.random.default_rng(seed), [], []
    base = rng.standard_normal(FEATURES)
    for _ in range(clients):
        rows = int(rng.integers(15, 60))
        X = rng.standard_normal((rows, FEATURES)) + 0.5 * rng.standard_normal(FEATURES)
        rule = base + 0.2 * rng.standard_normal(FEATURES)
        Xs.append(X)
        ys.append(np.where(X @ rule + 0.5 * rng.standard_normal(rows) > 0, 1, -1))
    names = tuple(f"client {i}" for i in range(clients))
    return bf.Federation(names, tuple(Xs), tuple(ys), classes=np.array([-1, 1]))


def every_set(n: int) -> Iterator[tuple[str, Any]]:
    """A set of each kind for n clients, with uneven priors and bounds where it takes them."""
    rng = np.random.default_rng(n)
    prior = rng.dirichlet(np.full(n, 5.0))
    spread = rng.standard_normal((n, n)) / np.sqrt(n)
    yield "mean", bf.Mean(prior)
    yield "simplex", bf.Simplex()
    yield "lp ball, p = 1", bf.LpBall(0.5, 1, prior)
    yield "lp ball, p = 2", bf.LpBall(0.3, 2, prior)
    yield "superquantile", bf.Superquantile(0.3, prior)
    yield "top k", bf.TopK(max(n // 5, 1))
    yield "extremile", bf.Extremile(2.0)
    yield "exponential spectral", bf.ExponentialSpectral(2.0)
    yield "box", bf.Box(prior / 3, 3 * prior)
    yield "CD-norm", bf.CDNorm(2.0, prior * rng.uniform(0.2, 1.5, n), prior)
    yield "ellipsoid, diagonal", bf.Ellipsoid(prior, 0.3, prior)
    yield "ellipsoid, full", bf.Ellipsoid((spread @ spread.T + np.eye(n)) / n, 0.3, prior)
    rows = np.vstack([rng.uniform(0, 1, (3, n)), np.eye(n)])
    yield "polyhedron", bf.Polyhedron(rows, rows @ prior + np.repeat([0.02, 3 / n], [3, n]))
    yield "KL ball", bf.KLBall(0.3, prior)
    yield "chi-square ball", bf.ChiSquareBall(0.5, prior)
    yield "total variation ball", bf.TotalVariationBall(0.3, prior)
    yield "Wasserstein, positions", bf.WassersteinOverClients(0.1 * n, "index", prior)
    costs = np.abs(np.subtract.outer(prior, prior)) * n
    yield "Wasserstein, costs", bf.WassersteinOverClients(0.1, costs, prior)
    yield "custom set", bf.OwnSet(_half_worst)


def _half_worst(losses: Array) -> Array:
    """Half of the weight to the worst client, the rest to all alike: a custom set.

    It is known by its maximiser only.
    """
    n = len(losses)
    return np.full(n, 0.5 / n) + 0.5 * (np.arange(n) == np.argmax(losses))


def setup(name: str, over_clients: Any, fed: bf.Federation, factor: float) -> SetUp:
    """One problem with a straggler."""
    model, ridge = bf.Linear(fit_intercept=False), bf.L2(RIDGE)
    problem = bf.Problem(bf.Logistic(), model, over_clients=over_clients, regulariser=ridge)
    return SetUp(name, problem, fed, {fed.names[3]: factor})


@dataclass(frozen=True)
class Solved:
    """The numbers of a certified run."""

    value: float
    gap: float  # absolute; infinite where none is proved
    relative: float
    rounds: int
    time: float  # virtual seconds; nan: in process
    stop: str


def reference(case: SetUp) -> Solved:
    """The solution by ``MultiplierMethod`` at its defaults."""
    return _solved(ext.fit(case.problem, case.fed, algorithm=bf.MultiplierMethod()))


def asynchronous(case: SetUp, wait: ext.Waiting | None = None, seed: int = 0) -> Solved:
    """The solution by ``AsyncDRO`` at its defaults, on the virtual clock."""
    clock, algorithm = case.clock(wait, keep_rows=1000), bf.AsyncDRO(max_rounds=300_000)
    return _solved(ext.fit(case.problem, case.fed, algorithm=algorithm, engine=clock, seed=seed))


def _solved(solution: bf.Solution) -> Solved:
    proof, last = solution.certificate, solution.history[-1]
    gap, relative = (np.inf if g is None else g for g in (proof.gap, proof.relative_gap))
    ended = solution.rounds, last.get("time", np.nan), solution.outcome.stop.value
    return Solved(proof.value, gap, relative, *ended)


# Reference models without a worst case over clients: each client by itself, and their even
# mixture.
#
#     only    w_j minimises F_j(w) + h(w): the model of client j, judged by the risks of all clients
#     mixture  w minimises sum_i F_i(w) / N + h(w)
#
# "Ind_j" and "Mix_Even" of Jiao, Yang, Song, *Federated distributionally robust optimization with
# non-convex objectives*. The best model of one client is the one whose largest risk over all
# clients is least.


@dataclass(frozen=True)
class Alone:
    """The model of every client by itself, with its risks on all clients.

    Attributes
    ----------
    solutions : one for each client
    risks : (N, M): risks[j, i] is the risk of client j's model on client i of the federation that
        judges
    best : the client whose model has the least largest risk
    """

    solutions: tuple[bf.Solution, ...]
    risks: Array
    best: int


def clients_alone(
    problem: bf.Problem, fed: bf.Federation, *, judge: bf.Federation | None = None, **options: Any
) -> Alone:
    """Each client's model from its own rows, judged on all clients.

    Parameters
    ----------
    judge : the federation of the rows to judge by, such as held-out rows; None takes ``fed``
    options : of ``solve``; without ``algorithm`` it is ``MultiplierMethod()`` where that applies,
        else the default of ``solve``
    """
    problem = replace(problem, over_clients=bf.Mean())
    if problem.loss.targets != "real":  # one client may lack some of the classes
        fed = fed._with(classes=np.asarray(ext.classes_of(fed)))
    ball, solutions = problem.at(fed)[0].over_samples, []
    for i, name in enumerate(fed.clients):
        own = problem
        if isinstance(ball, bf.WassersteinBall):  # with the client's radius
            radius = float(np.asarray(ball.radius)[i])
            own = replace(problem, over_samples=replace(problem.over_samples, radius=radius))
        solutions.append(mixture(own, fed.restrict(name), **options))
    judge = fed if judge is None else judge._with(classes=fed.classes)
    risks = np.array([client_risks(problem, solution.w, judge) for solution in solutions])
    return Alone(tuple(solutions), risks, int(np.argmin(risks.max(1))))


def mixture(
    problem: bf.Problem, fed: bf.Federation, *, algorithm: ext.Method | None = None, **options: Any
) -> bf.Solution:
    """The model that minimises the mean risk of all clients; parameters as in ``clients_alone``."""
    problem = replace(problem, over_clients=bf.Mean())
    if algorithm is None:
        concrete, _ = problem.at(fed)
        refusal = bf.MultiplierMethod.requirements.refusal("", concrete, ext.Setting(fed.n_clients))
        algorithm = bf.MultiplierMethod() if refusal is None else None
    return ext.fit(problem, fed, algorithm=algorithm, **options)


def client_risks(problem: bf.Problem, w: Array, fed: bf.Federation) -> Array:
    """F_i(w) of every client, (N,)."""
    concrete, fed = problem.at(fed)
    blocks, w = (fed.block(i) for i in range(fed.n_clients)), np.asarray(w, float)
    return np.concatenate([concrete.client_risks(w, block) for block in blocks])
