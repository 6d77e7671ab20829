"""An attack on a private run, to test its guarantee: a lower bound of epsilon from many short runs.

Two data sets differ in one record, the canary. Whoever knows both, all that a client sends and all
but its noise (the adversary of the definition) guesses which of the two gave the answers. If the
run is (epsilon, delta)-private,

    P(says "with" | with) <= exp(epsilon) P(says "with" | without) + delta,

and the same of "without", so that rates counted in runs bound epsilon from below (Jagielski,
Ullman, Oprea, *Auditing differentially private machine learning*, 2020). Attack and threshold are
chosen in one half of the runs, the rates are counted in the other and bounded as Clopper and
Pearson do. An audit finds faults; it proves no guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, ndtri

from quorate.algorithms.federated.private_admm.mechanism import Mechanism
from quorate.algorithms.federated.private_admm.penalty import number
from quorate.algorithms.federated.private_admm.private_admm import PrivateADMM
from quorate.algorithms.federated.private_admm.private_method import PrivateMethod
from quorate.algorithms.federated.private_admm.settings import everybody
from quorate.algorithms.method import Method
from quorate.arrays import Array, Block
from quorate.data.federation import Federation
from quorate.privacy.accounting import Release, gaussian_epsilon
from quorate.problem.problem import Problem
from quorate.rounds import Round
from quorate.solution.configure import configure

Record = tuple[ArrayLike, Any]  # (x, y) of one row
ATTACKS = ("projection", "spread", "reported size")


@dataclass(frozen=True)
class Audit:
    """The result of an attack.

    Attributes
    ----------
    claimed : the total epsilon that the run guarantees
    delta : the delta that it guarantees
    epsilon : lower bound of the true one, at ``confidence``
    gaussian : the same for whoever takes for granted that the answers' trade-off is that of one
        Gaussian (Nasr et al. 2023): larger, and worth as much as that; None where the noise is not
        Gaussian
    confidence : probability with which either bound holds
    attack : the attack that was chosen: "projection" of an answer on what the canary adds, "spread"
        of the answer's noise, or the "reported size" of noise beside the one seen
    hits, alarms : share of runs with and without the canary that the attack takes for runs with it
    runs : of either kind

    Examples
    --------
    >>> import numpy as np
    >>> import quorate as qr
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(-1, 1, (1000, 3)), rng.integers(0, 2, 1000)
    >>> fed = qr.Federation.from_arrays(X, y, rng.choice(["north", "east"], 1000))
    >>> problem = qr.Problem(qr.Logistic(), privacy=qr.Budget(epsilon=1.0, delta=1e-6))
    >>> result = qr.audit(problem, fed, algorithm=qr.PrivateADMM(max_rounds=1), runs=100)
    >>> result.claimed, result.runs
    (1.0, 100)
    """

    claimed: float
    delta: float
    epsilon: float
    gaussian: float | None
    confidence: float
    attack: str
    hits: float
    alarms: float
    runs: int

    @property
    def broken(self) -> bool:
        """Whether the guarantee is refuted."""
        return self.epsilon > self.claimed

    @property
    def text(self) -> str:
        """One sentence for people."""
        verdict = "REFUTED." if self.broken else "not refuted, which proves nothing."
        return (
            f"epsilon >= {self.epsilon:.3g} at delta = {self.delta:g} (confidence"
            f' {self.confidence:g}, {self.runs} runs of either kind, attack "{self.attack}"), where'
            f" {self.claimed:g} is guaranteed: {verdict}"
        )


def audit(
    problem: Problem,
    fed: Federation,
    *,
    algorithm: Method | None = None,
    client: str | None = None,
    canary: Record | None = None,
    instead: Record | None = None,
    runs: int = 1000,
    confidence: float = 0.95,
    weaken: float = 1.0,
    claimed: float | None = None,
    seed: int = 0,
) -> Audit:
    """Bound the true epsilon of a private run from below, by attacking one client's answers.

    Parameters
    ----------
    algorithm : ``PrivateADMM(...)`` (the default) or another with noise; few rounds are attacked as
        well as many. Noise is simulated, so that an audit can be repeated, unless the algorithm
        says otherwise
    client : whose record it is; None: the first
    canary : (x, y), the record; None: a long row of the first class
    instead : (x, y), what stands in its place where the budget's adjacency is "replace"; None: (-x,
        y)
    runs : with the canary, and as many without; n runs cannot show more than epsilon = log(n / 8)
    confidence : of the bound
    weaken : divides the noise: whether the audit would notice
    claimed : epsilon > 0 to refute; None: the budget's, or as published the sum over all rounds

    Raises
    ------
    ValueError
        for settings out of range, or an algorithm without noise

    Notes
    -----
    The data are read and attacked, and nothing is charged to a privacy ledger: an audit is for the
    owner of the data.

    Examples
    --------
    >>> import numpy as np
    >>> import quorate as qr
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(-1, 1, (1000, 3)), rng.integers(0, 2, 1000)
    >>> fed = qr.Federation.from_arrays(X, y, rng.choice(["north", "east"], 1000))
    >>> problem = qr.Problem(qr.Logistic(), privacy=qr.Budget(epsilon=1.0, delta=1e-6))
    >>> result = qr.audit(problem, fed, algorithm=qr.PrivateADMM(max_rounds=1), runs=100)
    >>> result.epsilon <= result.claimed  # a bound from below, by an attack
    True
    """
    _check(runs, confidence, weaken, claimed, seed)
    record = _record(_canary(problem, fed) if canary is None else canary, fed.n_features)
    fed, budget = everybody(problem, fed), problem.privacy
    p = 0 if client is None else fed.position(client)
    without, with_ = _neighbours(problem, fed, p, record, instead)
    concrete, data = problem.at(without)
    attacked, plan = _attacked(algorithm, concrete, data, weaken)
    silent = replace(attacked, plan=replace(plan, multiplier=0.0))
    blocks = [data.block(p), problem.at(with_)[1].block(p)]
    scores = [
        np.array(
            [_attack(attacked, silent, blocks, side, (seed, side, k)) for k in range(int(runs))]
        )
        for side in (0, 1)
    ]
    if claimed is None:
        published = float(attacked.local_epsilon or math.inf) * attacked.max_rounds
        claimed = published if budget is None else float(budget.epsilon)
    result = _judged(scores, claimed, budget.delta if budget else 0.0, confidence)
    return result if plan.kind == "gaussian" else replace(result, gaussian=None)


def _neighbours(
    problem: Problem, fed: Federation, p: int, record: Record, instead: Record | None
) -> tuple[Federation, Federation]:
    """The data sets without and with the record at client p, as the budget's adjacency has them."""
    without, budget = fed, problem.privacy
    if budget is not None and budget.adjacency == "replace":
        x, y = record
        without = _with_record(
            fed, p, (-np.asarray(x), y) if instead is None else _record(instead, fed.n_features)
        )
    return without, _with_record(fed, p, record)


def _attacked(
    algorithm: Method | None, problem: Problem, fed: Federation, weaken: float
) -> tuple[PrivateADMM, Mechanism]:
    """The algorithm with its noise, which is divided by ``weaken``, and that noise."""
    method = PrivateADMM() if algorithm is None else algorithm
    if not isinstance(method, PrivateADMM):
        text = "adds no noise: there is no guarantee to refute."
        if isinstance(method, PrivateMethod):
            text = "has no attack here: audit PrivateADMM, whose clients add the same noise."
        raise ValueError(f"{type(method).__name__} {text}")
    if method.noise is None:
        method = replace(method, noise="simulation")
    method = configure(method, problem, fed).planned(problem, fed)
    if method.plan is None or method.plan.kind is None:
        raise ValueError(
            "without noise there is nothing to audit: state Problem(privacy=Budget(epsilon,"
            " delta))."
        )
    plan = replace(method.plan, multiplier=method.plan.multiplier / weaken)
    return replace(method, plan=plan), plan


def _check(runs: float, confidence: float, weaken: float, claimed: float | None, seed: int) -> None:
    if not (number(runs) and runs >= 20 and runs % 1 == 0):
        raise ValueError(f"runs must be a whole number >= 20, got {runs!r}.")
    for name, value in {"weaken": weaken, "claimed": claimed}.items():
        if not (number(value) or (name == "claimed" and value is None)):
            raise ValueError(f"{name} must be a number > 0, got {value!r}.")
    if not (number(confidence) and 0.5 <= confidence < 1):
        raise ValueError(f"confidence must lie in [0.5, 1), got {confidence!r}.")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be a whole number >= 0, got {seed!r}.")


def _canary(problem: Problem, fed: Federation) -> Record:
    """A row a hundred times as long as any, of the first class; a target as far away."""
    longest = max(float(abs(x).max()) for x in fed.X)
    x = np.zeros(fed.n_features)
    x[0] = 100 * max(longest, 1.0)
    if problem.loss.targets == "real":
        return x, 100 * max(1.0, *(float(np.abs(y).max()) for y in fed.y))
    classes = np.unique(np.concatenate(fed.y)) if fed.classes is None else fed.classes
    return x, classes[0]


def _record(stated: Record, d: int) -> Record:
    """(x, y), checked."""
    try:
        x, y = np.asarray(stated[0], float), stated[1]
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise ValueError(f"a record is (x, y) with {d} finite features, got {stated!r}.") from error
    if x.shape != (d,) or not np.isfinite(x).all():
        raise ValueError(f"a record is (x, y) with {d} finite features, got shape {x.shape}.")
    return x, y


def _with_record(fed: Federation, p: int, record: Record) -> Federation:
    """The data set with one row more at client p."""
    x, y = np.asarray(record[0]), record[1]
    # a client without rows has one that does not count
    X, targets, counted = list(fed.X), list(fed.y), fed.share(p) > 0
    if isinstance(X[p], np.ndarray):
        X[p] = np.vstack([X[p][counted], x[None].astype(X[p].dtype)])
    else:
        from scipy.sparse import csr_array, vstack

        X[p] = csr_array(vstack([X[p][counted], csr_array(x[None])]))
    targets[p] = np.append(targets[p][counted], np.asarray([y], targets[p].dtype))
    weights = None if fed.sample_weight is None else list(fed.sample_weight)
    if weights is not None:
        weights[p] = np.ones(len(targets[p]))
    return fed._with(X=tuple(X), y=tuple(targets), sample_weight=weights and tuple(weights))


def _attack(
    algorithm: PrivateADMM,
    silent: PrivateADMM,
    blocks: list[Block],
    side: int,
    key: tuple[int, ...],
) -> tuple[float, ...]:
    """The scores of one run, ``ATTACKS``: large ones speak for the canary, or against it.

    Every answer is compared with those that either data set would have given without noise.
    """
    assert algorithm.plan is not None
    P = len(algorithm.plan.weight)
    state, ask = algorithm.server_start(P)
    memory = algorithm.client_start(blocks[side])
    along, spread, reported = 0.0, 0.0, 0.0
    turn = 0
    while isinstance(ask, Round):
        message, turn = ask.message, turn + 1
        streams = lambda _, turn=turn: np.random.default_rng((*key, turn))  # noqa: E731
        without, with_ = (
            silent.perturb(memory, message, block, streams)[0].z[0] for block in blocks
        )
        memory, up = algorithm.perturb(memory, message, blocks[side], streams)
        seen, added = memory.z[0] - without, with_ - without
        along += float(seen @ added) / max(float(np.linalg.norm(added)), 1e-300)
        size = max(float(np.abs(seen).mean()), 1e-300)
        spread += math.log(size)
        curve = message.rho + (message.reach if algorithm.update == "prox" else 0.0)
        reported += math.log(
            max(abs(float(up.noise[0]) / (size * (1.0 if algorithm.output else curve)) - 1), 1e-300)
        )
        as_all = replace(
            up, shifted=up.shifted[0] * P, gap=float(up.gap[0]) * P, noise=float(up.noise[0]) * P
        )
        state, ask = algorithm.consent(state, range(P), as_all)
    return along, spread, reported


def _judged(scores: Sequence[Array], claimed: float, delta: float, confidence: float) -> Audit:
    """Attack, sign and threshold from the first half of the runs, rates from the second."""
    runs = len(scores[0])
    half, best = runs // 2, (-math.inf, 0, 1.0, 0.0)
    for a in range(len(ATTACKS)):
        for sign in (1.0, -1.0):
            first = [np.sort(sign * s[:half, a]) for s in scores]
            cuts = np.unique(np.quantile(np.concatenate(first), np.linspace(0.002, 0.998, 250)))
            counts = [half - np.searchsorted(s, cuts, side="right") for s in first]
            bounds = np.maximum(*_bounds(counts[1], counts[0], half, delta, confidence))
            k = int(np.argmax(bounds))
            best = max(best, (float(bounds[k]), a, sign, float(cuts[k])))
    _, a, sign, cut = best
    n = runs - half
    alarms, hits = (int((sign * s[half:, a] > cut).sum()) for s in scores)
    bounds = _bounds(np.array([hits]), np.array([alarms]), n, delta, confidence)
    epsilon = max(0.0, float(np.maximum(*bounds)[0]))
    gaussian = _gaussian(hits, alarms, n, delta, confidence)
    return Audit(
        claimed, delta, epsilon, gaussian, confidence, ATTACKS[a], hits / n, alarms / n, runs
    )


def _bounds(
    hits: NDArray[Any], alarms: NDArray[Any], n: int, delta: float, confidence: float
) -> tuple[Array, Array]:
    """Lower bounds of epsilon from right and wrong guesses of "with", and of "without"; -inf where
    there is none.
    """
    chance, bounds = _chance(confidence), []
    for true, false in ((hits, alarms), (n - alarms, n - hits)):
        low = np.where(
            true > 0, betaincinv(np.maximum(true, 1), n - np.maximum(true, 1) + 1, chance), 0.0
        )
        high = np.where(
            false < n,
            betaincinv(np.minimum(false, n - 1) + 1, n - np.minimum(false, n - 1), 1 - chance),
            1.0,
        )
        with np.errstate(divide="ignore"):
            bounds.append(np.log(np.maximum(low - delta, 0.0)) - np.log(high))
    return bounds[0], bounds[1]


def _chance(confidence: float) -> float:
    """The chance that one rate is outside its bound: there are four, of which two enter either
    epsilon.
    """
    return (1 - confidence) / 4


def _gaussian(hits: int, alarms: int, n: int, delta: float, confidence: float) -> float:
    """epsilon at delta of the least Gaussian mechanism with such rates; at delta = 0 inf or 0."""
    chance = _chance(confidence)
    alarm = betaincinv(alarms + 1, n - alarms, 1 - chance) if alarms < n else 1.0
    miss = betaincinv(n - hits + 1, hits, 1 - chance) if hits else 1.0
    mu = float(ndtri(1 - alarm) - ndtri(miss)) if alarm < 1 and miss < 1 else 0.0
    if delta == 0:
        return math.inf if mu > 0 else 0.0
    return float(gaussian_epsilon((Release("gaussian", 1 / mu),), delta) or 0.0) if mu > 0 else 0.0
