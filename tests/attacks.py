"""Attacks on what a private client answers: two neighbouring data sets, many runs of one round, and
a score by which the attacker tells the answers apart.

An event that is likelier with one data set bounds the true epsilon from below, at 95 % and exactly
(Clopper, Pearson): P(event | one) <= exp(epsilon) P(event | other) + delta. The attacker is the
server: it asks about a model, mostly 0, with rho = 1, and sees the sum over its clients of g_p +
xi_p, exactly where the model is 0.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from private_cases import planned
from problems import PLAIN, SOFTMAX
from scipy import sparse, stats

from bonafed.algorithms.federated.private_admm import Perturb, PrivateADMM
from bonafed.data.federation import Federation
from bonafed.papers.dp_iadmm.published import OutputPerturbedADMM
from bonafed.privacy.budget import Budget
from bonafed.privacy.secure_sum import masking
from bonafed.privacy.secure_sum import protocol as at_client
from bonafed.privacy.secure_sum import protocol as at_server
from bonafed.privacy.secure_sum.messages import terms
from bonafed.problem.losses import Logistic, Multinomial, Squared
from bonafed.problem.problem import Problem

Array = np.ndarray
Answers = Callable[[int], Array]  # of the run with this number
CONFIDENCE = 0.95
# no powers of two, so that the grid is none either
CLIP, SIZE = 1.1, 60
BUDGET = Budget(1.0, 1e-6, sizes=SIZE)

# ---- what depends on the names of the mechanism


class NoGridError(Exception):
    """The mechanism of this version has no grid."""


def unit(plan: Any) -> Array:
    """(N,) the public grid of every client's g_p + xi_p."""
    if not hasattr(plan, "unit"):
        raise NoGridError("answers of this version are not multiples of a public unit.")
    return np.asarray(plan.unit, float)


def keyed(memory: Any, key: tuple[int, int]) -> Any:
    """The memory of one client with a key of the noise that follows from two numbers."""
    length = memory.secret.shape[1]
    secret = np.frombuffer(hashlib.shake_256(b"%d %d" % key).digest(length), np.uint8)
    return replace(memory, secret=secret[None])


@dataclass(frozen=True)
class Clients:
    """The clients of one data set; called with the number of a run, their summed answer (D,)."""

    run: PrivateADMM
    blocks: list[Any]

    @classmethod
    def of(cls, problem: Problem, fed: Federation, algorithm: PrivateADMM) -> Clients:
        run, data = planned(algorithm, problem, fed)
        return cls(run, [data.block(i) for i in range(data.n_clients)])

    def __call__(self, run: int) -> Array:
        return np.sum([self._answer((run, i)) for i in range(len(self.blocks))], axis=0)

    def _answer(self, key: tuple[int, int]) -> Array:
        block = self.blocks[key[1]]
        memory = keyed(self.run.client_start(block), key)
        # what keeps z near: nothing, or 1 / eta = 1, which halves the step
        halved = self.run.update == "prox"
        w = memory.z[0].astype(float)
        ask = Perturb(w, 1, 1.0, 1.0, 1.0 if halved else math.inf)
        _, told = self.run.perturb(memory, ask, block, lambda _: np.random.default_rng(key))
        # with v = g_p + xi_p, halved or not, z_p is w - v, and z_p - lambda_p / rho is w - 2 v
        return (w - told.shifted[0]) * (1.0 if halved else 0.5)


# ---- what an attack is


@dataclass(frozen=True)
class Attack:
    """Answers of two neighbouring data sets, and a score that tells them apart.

    ``cut`` is chosen before all runs; None: the attacker chooses it in the first half of the runs,
    and the rates are those of the second.
    """

    without: Answers
    with_: Answers
    score: Callable[[Array], float]
    cut: float | None = None


@dataclass(frozen=True)
class Found:
    """What an attack shows: epsilon is at least this, at 95 %, from so many scores above a cut."""

    epsilon: float
    without: int
    with_: int
    runs: int


def carried_out(attack: Attack, runs: int) -> Found:
    """An attack in so many runs with either data set; no two runs have one key of the noise."""
    scores = [
        np.array([attack.score(answers(2 * k + side)) for k in range(runs)])
        for side, answers in enumerate((attack.without, attack.with_))
    ]
    cut = attack.cut
    if cut is None:
        half = runs // 2
        seen = [s[:half] for s in scores]
        cuts = np.unique(np.quantile(np.concatenate(seen), np.linspace(0.01, 0.99, 99)))
        cut = max(cuts, key=lambda at: _found(seen, at).epsilon)
        scores = [s[half:] for s in scores]
    return _found(scores, float(cut))


def _found(scores: Sequence[Array], cut: float) -> Found:
    (one, other), runs = (int((s > cut).sum()) for s in scores), len(scores[0])
    return Found(least_epsilon(one, other, runs), one, other, runs)


def least_epsilon(one: int, other: int, runs: int) -> float:
    """A lower bound of epsilon from how often an event was seen in runs with either data set.

    Of the event and its opposite, for either data set: four rates, each beyond its bound with a
    quarter of the chance.
    """
    chance = (1 - CONFIDENCE) / 4
    best = 0.0
    for a, b in ((one, other), (runs - one, runs - other)):
        for likely, rare in ((a, b), (b, a)):
            low = stats.beta.ppf(chance, likely, runs - likely + 1) if likely else 0.0
            high = stats.beta.ppf(1 - chance, rare + 1, runs - rare) if rare < runs else 1.0
            if low > BUDGET.delta:
                best = max(best, math.log((low - BUDGET.delta) / high))
    return best


# ---- a record alone in some columns


@dataclass(frozen=True)
class Lone:
    """Twenty rows in four columns, and one more row that is alone in all the others.

    Attributes
    ----------
    gradient : (D,) what that row adds to the sum, times a_p; 0 in the four columns
    """

    problem: Problem
    without: Federation
    with_: Federation
    gradient: Array


def lone(loss: str, columns: int, kind: str = "gaussian", thin: bool = False) -> Lone:
    function, classes = LOSSES[loss], 10 if loss == "multinomial" else 2
    rng, d = np.random.default_rng(0), 4 + columns
    X = np.zeros((21, d))
    X[:20, :4] = rng.standard_normal((20, 4))
    X[20, 4:] = 1e3 * np.linspace(1, 2, columns)
    y = rng.integers(0, classes, 21)
    y[20] = 1
    real = function.targets == "real"

    def made(m: int) -> Federation:
        table: Any = sparse.csr_array(X[:m]) if thin else X[:m]
        labels = 10.0 * y[:m] if real else y[:m]
        return Federation(("a",), (table,), (labels,), classes=None if real else np.arange(classes))

    residual = np.full(classes, 1 / classes) - np.eye(classes)[1]
    each = residual[None] if loss == "multinomial" else np.array([[-1.0]])
    gradient = X[20][:, None] * each
    norm = np.abs(gradient).sum() if kind == "laplace" else np.sqrt((gradient**2).sum())
    predictor = SOFTMAX if loss == "multinomial" else PLAIN
    problem = Problem(function, predictor, privacy=BUDGET)
    return Lone(problem, made(20), made(21), (CLIP / SIZE / norm * gradient).ravel())


LOSSES = {"logistic": Logistic(), "squared": Squared(), "multinomial": Multinomial()}
METHODS = {
    "ObjT": lambda **settings: PrivateADMM(max_rounds=1, clip=CLIP, **settings),
    "ObjP": lambda **settings: PrivateADMM(max_rounds=1, clip=CLIP, update="prox", **settings),
    "OutP": lambda **settings: OutputPerturbedADMM(max_rounds=1, clip=CLIP, **settings),
}


def fine_digits(gradient: Array) -> Callable[[Array], float]:
    """How many small entries of an answer have digits that an entry of the gradient leaves none of.

    Where g + xi is below |g| / 2, xi is as large as g and a double is a multiple of half the
    distance of the doubles at g; of xi alone that is not so.
    """
    here = gradient != 0
    size = np.abs(gradient[here])
    step = np.spacing(size) / 2

    def score(answer: Array) -> float:
        seen = answer[here]
        return float(((np.abs(seen) < size / 2) & (np.mod(seen, step) != 0)).sum())

    return score


def low_bits(loss: str, method: str, columns: int, kind: str = "gaussian", **rows: Any) -> Attack:
    """A record alone in some columns is absent where small entries have fine digits."""
    it, run = lone(loss, columns, kind, **rows), METHODS[method](mechanism=kind)
    one, other = (Clients.of(it.problem, fed, run) for fed in (it.without, it.with_))
    return Attack(one, other, fine_digits(it.gradient), cut=0.5)


def last_bit(step: float, move: Array) -> Callable[[Array], float]:
    """In how many entries the last bit that the record's move changes is 0.

    ``move`` is in whole grid steps; noise that takes some last digits more often than others, say
    because it was drawn on a coarser grid, leaves that bit as the rows have it.
    """
    here = move != 0
    bit = (move & -move)[here]
    return lambda answer: float((np.rint(answer[here] / step) // bit % 2 == 0).sum())


def last_digits(kind: str) -> Attack:
    """The record's move of forty columns that it has alone is looked for in their last digits."""
    it, run = lone("logistic", 40, kind), METHODS["ObjT"](mechanism=kind)
    one, other = (Clients.of(it.problem, fed, run) for fed in (it.without, it.with_))
    step = float(unit(one.run.plan)[0])
    # the attacker knows the record; with one key of the noise, the difference is its move
    return Attack(one, other, last_bit(step, np.rint((other(0) - one(0)) / step).astype(np.int64)))


# ---- rows that make one row move the sum by more than itself


def crafted(rows: int, share: float) -> tuple[Array, Array]:
    """Two parts of a column x; a row more, x = 1 between them, moves the sum of share x by much.

    The first part adds up to just below a power of two. The second goes up and down by 1.4 and 0.9
    times the distance of singles there, which both round to one distance. One row more lifts the
    sum to the power, where singles lie twice as far apart and the same rows round to two
    distances up and none down.
    """
    power = 2.0 ** math.floor(math.log2(share * rows / 2))
    first = np.ones(math.ceil(power / share) - 1)
    step = float(np.spacing(np.float32(power * 0.99))) / share
    return first, np.tile([1.4 * step, -0.9 * step], (rows - len(first)) // 2)


@dataclass(frozen=True)
class Sums:
    """Crafted rows (x, 0) of class 0 in single precision, at the first of some clients.

    Attributes
    ----------
    without, with_ : without and with the one row more
    turned : the rows of ``with_`` with the one row last
    residual : (D,) the gradient of a row x = 1, of a norm below 1
    """

    problem: Problem
    without: Federation
    with_: Federation
    turned: Federation
    residual: Array


def sums(classes: int = 2, rows: int = 2**15, clients: int = 1) -> Sums:
    """With a power of two for ``classes`` the first part's sums are exact."""
    residual = np.full(classes, 1 / classes) - np.eye(classes)[0]
    first, second = crafted(rows, -residual[0])

    def made(*parts: Array) -> Federation:
        x = np.concatenate(parts).astype(np.float32)
        tables = [np.stack([x, 0 * x], axis=1)] + [np.zeros((1, 2), np.float32)] * (clients - 1)
        labels = [np.zeros(len(table), int) for table in tables]
        names = tuple("abcdefgh"[:clients])
        return Federation(names, tuple(tables), tuple(labels), classes=np.arange(classes)).single()

    problem = Problem(Multinomial(), SOFTMAX, privacy=BUDGET)
    one = np.ones(1)
    orders = made(first, second), made(first, one, second), made(first, second, one)
    return Sums(problem, *orders, np.append(residual, 0 * residual))


def neighbouring_sums(one: str = "without", method: str = "ObjT", **rows: int) -> Attack:
    """One crafted row more, or (``one="turned"``) the same rows in another order."""
    it, run = sums(**rows), METHODS[method]()
    before, after = (Clients.of(it.problem, fed, run) for fed in (getattr(it, one), it.with_))
    return Attack(before, after, lambda answer: float(answer @ it.residual))


# ---- sums over several clients, in the view "sum"


@dataclass(frozen=True)
class Summed:
    """What is left of a sum over the clients, (D,), of which client 0 has the record: the last ones
    are ``gone`` from it, or tell the attacker their noise, which it subtracts.
    """

    run: Any
    blocks: list[Any]
    told: int
    gone: int

    @classmethod
    def of(cls, problem: Problem, fed: Federation, told: int, gone: int, missing: int) -> Summed:
        try:
            from bonafed.algorithms.federated.private_sgd import PrivateSGD

            budget = replace(BUDGET, view="sum", missing=missing)
        except (ImportError, TypeError):
            raise NoGridError("this version has no common grid for sums.") from None
        run, data = planned(
            PrivateSGD(max_rounds=1, clip=CLIP), replace(problem, privacy=budget), fed
        )
        return cls(run, [data.block(i) for i in range(data.n_clients)], told, gone)

    def __call__(self, run: int) -> Array:
        from bonafed.algorithms.federated.private.noisy_gradient import Question, Told, _key
        from bonafed.algorithms.federated.private_sgd import Blur
        from bonafed.privacy.discrete_noise import discrete_noise

        plan, w = self.run.plan, np.zeros(self.run._size)
        total, stay = np.zeros(self.run._size), len(self.blocks) - self.gone
        for i, block in enumerate(self.blocks[:stay]):
            memory = keyed(self.run.client_start(block), (run, i))
            stream = lambda _, i=i: np.random.default_rng((run, i))  # noqa: E731
            _, up = self.run.blur(memory, Blur(w, 1, 1.0), block, stream)
            total += up.gradient[0]
            if i >= stay - self.told:
                key = _key(
                    memory, Question.of(plan, memory, w[None], Told.of(w, w.dtype), (1,)), stream, 0
                )
                total -= plan.common * discrete_noise(plan.kind, plan.noise, key, len(w))
        return total


def with_others(fed: Federation, clients: int) -> Federation:
    """The client's rows beside those of other clients."""
    rng, (x,), (y,) = np.random.default_rng(3), fed.X, fed.y
    names = tuple(f"client {k}" for k in range(clients))
    tables = [rng.standard_normal((20, x.shape[1])) for _ in names[1:]]
    labels = [rng.choice(fed.classes, 20) for _ in names[1:]]
    return Federation(names, (x, *tables), (y, *labels), classes=fed.classes)


def several_sums(
    digits: bool = False, told: int = 1, gone: int = 0, clients: int = 4, missing: int = 1
) -> Attack:
    """The record moves the sum of four clients along its gradient, or in its last digits."""
    it = lone("logistic", 40)
    one, other = (
        Summed.of(it.problem, with_others(fed, clients), told, gone, missing)
        for fed in (it.without, it.with_)
    )
    if not digits:
        return Attack(one, other, lambda answer: float(answer @ it.gradient))
    step = one.run.plan.common
    return Attack(one, other, last_bit(step, np.rint((other(0) - one(0)) / step).astype(np.int64)))


# ---- sums that are carried securely


class SecurelySummed:
    """Six clients whose whole numbers are added up securely; the last drops out after it shared.

    Called with the number of a run, all that the server sees: the sum, and the first client's
    vector without its own mask, which is opened. ``answers`` are that client's, whole numbers; the
    others' rows are known to the attacker.
    """

    def __init__(self, answers: Answers, n: int = 6) -> None:
        self.answers, agreed = answers, terms("attacked", n)
        made = [at_client.advertise(agreed, i) for i in range(n)]
        self.server, roster = at_server.enrol(agreed, [a for _, a in made])
        self.states = [at_client.agree(c, roster) for c, _ in made]

    def _all(self, step: Any, *given: Any, of: range | None = None) -> list[Any]:
        answers = []
        for i in of or range(len(self.states)):
            self.states[i], answer = step(self.states[i], *(g[i] for g in given))
            answers.append(answer)
        return answers

    def __call__(self, run: int) -> Array:
        n = len(self.states)
        answer = self.answers(run)
        vectors = [answer, *[0 * answer] * (n - 1)]
        server, begin = at_server.begin(self.server, run)
        server, delivered = at_server.deliver(server, self._all(at_client.share, [begin] * n))
        own, stayed = self.states[0].own, range(n - 1)
        masked = self._all(at_client.mask, delivered, vectors, of=stayed)
        server, unmask = at_server.unmask(server, masked)
        revealed = self._all(at_client.reveal, [unmask] * n, of=stayed)
        self.server, total = at_server.total(server, revealed)
        one = masked[0].vector.copy()
        masking.add(one, own[None], np.full(1, -1, np.int8))
        return np.stack([total, one.view(np.int64)]).astype(float)


def secure_sum(masked: bool) -> Attack:
    """The record is looked for in the sum of noised answers; or, ``masked``, in what masks leave of
    a vector that has no noise at all.
    """
    it, run = lone("logistic", 40), METHODS["ObjT"]()
    clients = [Clients.of(it.problem, fed, run) for fed in (it.without, it.with_)]
    step = float(unit(clients[0].run.plan)[0])

    def answers(one: Clients, gradient: Array) -> Answers:
        exact = np.rint(gradient / step).astype(np.int64)
        noised = lambda run: np.rint(one(run) / step).astype(np.int64)  # noqa: E731
        return (lambda _: exact) if masked else noised

    worlds = zip(clients, (0 * it.gradient, it.gradient), strict=True)
    one, other = (SecurelySummed(answers(*world)) for world in worlds)
    return Attack(one, other, lambda seen: float(seen[int(masked)] @ it.gradient))


# ---- all of them

ATTACKS: dict[str, Callable[[], Attack]] = {
    "low bits, logistic": lambda: low_bits("logistic", "ObjT", 784),
    "low bits, logistic, ObjP": lambda: low_bits("logistic", "ObjP", 784),
    "low bits, logistic, OutP": lambda: low_bits("logistic", "OutP", 784),
    "low bits, squared loss": lambda: low_bits("squared", "ObjT", 784),
    "low bits, squared loss, sparse rows": lambda: low_bits("squared", "ObjT", 784, thin=True),
    "low bits, ten classes": lambda: low_bits("multinomial", "ObjT", 80),
    "low bits, ten classes, Laplace": lambda: low_bits("multinomial", "ObjT", 8, "laplace"),
    "neighbouring sums": lambda: neighbouring_sums(),
    "neighbouring sums, 16 classes": lambda: neighbouring_sums(classes=16),
    "neighbouring sums, OutP": lambda: neighbouring_sums(method="OutP"),
    "neighbouring sums, three clients' sum": lambda: neighbouring_sums(clients=3, rows=2**16),
    "order of the rows": lambda: neighbouring_sums("turned"),
    "last digits of the grid": lambda: last_digits("gaussian"),
    "last digits of the grid, Laplace": lambda: last_digits("laplace"),
    "sums of four clients, one colludes": lambda: several_sums(),
    "sums of four clients, one drops out": lambda: several_sums(told=0, gone=1),
    "last digits of sums, one colludes": lambda: several_sums(digits=True),
    "secure sum with drop-out, the sum": lambda: secure_sum(masked=False),
    "secure sum with drop-out, a masked vector": lambda: secure_sum(masked=True),
}
