"""Attacks on a private run, to test its guarantee: lower bounds of epsilon.

**One record, many runs.** Two data sets differ in one record, the canary. Anyone who knows both,
all that a client sends and all but its noise (the adversary of the definition) guesses which of the
two gave the answers. If the run is (epsilon, delta)-private,

    P(says "with" | with) <= exp(epsilon) P(says "with" | without) + delta,

and the same of "without", so that rates counted in runs bound epsilon from below (Jagielski,
Ullman, Oprea, *Auditing differentially private machine learning*, 2020). Attack and threshold are
chosen in one half of the runs, the rates are counted in the other and bounded as Clopper and
Pearson do.

**Many records, one run.** Each of thousands of canaries takes part as a fair coin falls, and the
coins are guessed from the answers of one run (Steinke, Nasr, Jagielski, *Privacy auditing with one
(1) training run*, 2023; ``privacy/bounds.py``). Every canary has a feature of its client for
itself, so that their gradients are orthogonal, and what one adds to an answer is seen beside the
noise of its own entries only. Where a run has fewer features than there are canaries, further runs
take the rest: several runs with their own coins are one run with all coins.

An audit finds faults; it proves no guarantee.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, vstack
from scipy.special import betaincinv, ndtri

from bonafed.algorithms.federated.private.mechanism import Mechanism, everybody
from bonafed.algorithms.federated.private.method import PrivateMethod
from bonafed.algorithms.federated.private_admm import Perturb, PrivateADMM
from bonafed.algorithms.method import Method
from bonafed.arrays import Array, Block
from bonafed.client_names import ClientName
from bonafed.data.federation import Federation
from bonafed.parameters import checking
from bonafed.privacy.accounting import Release, gaussian_epsilon
from bonafed.privacy.bounds import how_many, least_epsilon, least_mu
from bonafed.problem.problem import Problem
from bonafed.rounds import Round
from bonafed.solution.plan import configure

Record = tuple[ArrayLike, Any]  # (x, y) of one row
Key = tuple[int, ...]  # of a stream of noise
ATTACKS = ("projection", "spread", "reported size")
RUNS = 1000
FEWEST = 20
WIDEST = 2**24  # numbers in all rows of canaries of one run; more would not fit the memory
# how far a canary's gradient, half as steep as the loss can be, is beyond the clip
BEYOND = 4.0
# the length of a canary beside an intercept, which takes the rest of its gradient
BESIDE = {"gaussian": 5.0, "laplace": 20.0}


@dataclass(frozen=True)
class Audit:
    """The result of an attack.

    Attributes
    ----------
    claimed : the total epsilon that the run guarantees
    delta : the delta that it guarantees
    epsilon : lower bound of the true one, at ``confidence``
    gaussian : the same for anyone who takes for granted that the answers' trade-off is that of one
        Gaussian (Nasr et al. 2023), and of many canaries that guesses are right or wrong
        independently of each other: larger, and worth as much as that; None where the noise is not
        Gaussian
    confidence : probability with which either bound holds
    attack : the attack that was chosen: "projection" of an answer on what the canary adds, "spread"
        of the answer's noise, or the "reported size" of noise beside the one seen
    hits, alarms : share of runs with and without the canary, or of canaries that take part and do
        not, that the attack takes for the former
    runs : of either kind; of many canaries, all
    canaries : how many records were hidden at once; 0 where it was one in many runs
    guesses, right : how many canaries ``epsilon`` is about, those of which the attack is most
        certain, and how many of these it guesses right; ``gaussian`` is about all canaries

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(-1, 1, (1000, 3)), rng.integers(0, 2, 1000)
    >>> fed = bf.Federation.from_arrays(X, y, rng.choice(["north", "east"], 1000))
    >>> problem = bf.Problem(bf.Logistic(), privacy=bf.Budget(epsilon=1.0, delta=1e-6))
    >>> result = bf.audit(problem, fed, algorithm=bf.PrivateADMM(max_rounds=1), runs=100)
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
    canaries: int = 0
    guesses: int = 0
    right: int = 0

    @property
    def broken(self) -> bool:
        """Whether the guarantee is refuted."""
        return self.epsilon > self.claimed

    @property
    def suspect(self) -> bool:
        """Whether it is refuted for anyone who takes for granted what ``gaussian`` does."""
        return self.broken or (self.gaussian is not None and self.gaussian > self.claimed)

    @property
    def text(self) -> str:
        """One sentence for people."""
        verdict = "REFUTED." if self.broken else "not refuted, which proves nothing."
        if self.suspect and not self.broken:
            verdict = "not refuted as it stands, but REFUTED if its noise is Gaussian."
        how = f'{self.runs} runs of either kind, attack "{self.attack}"'
        if self.canaries:
            runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
            how = f"{self.canaries} canaries in {runs}, {self.right} of the {self.guesses}"
            how += " surest guesses right"
        least = f"epsilon >= {self.epsilon:.3g}"
        if self.gaussian is not None:
            least += f", >= {self.gaussian:.3g} if the noise is Gaussian,"
        return (
            f"{least} at delta = {self.delta:g} (confidence {self.confidence:g}, {how}), where"
            f" {self.claimed:g} is guaranteed: {verdict}"
        )


@checking
def audit(
    problem: Problem,
    fed: Federation,
    *,
    algorithm: Method | None = None,
    client: str | None = None,
    canary: Record | None = None,
    instead: Record | None = None,
    runs: int | None = None,
    canaries: int | None = None,
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
    client : whose record it is; None: the first, and all of them where there are many canaries
    canary : (x, y), the record; None: a long row of the first class
    instead : (x, y), what stands in its place where the budget's adjacency is "replace"; None: (-x,
        y)
    runs : with the canary, and as many without; None: 1000. n runs cannot show more than epsilon =
        log(n / 8)
    canaries : hide so many records in one run, with a coin for each, in place of one record in many
        runs; 5000 show noise that is too small by a third, which 1000 runs with one record do not.
        Every client takes as many at once as it has features, and further runs take the rest
    confidence : of the bound
    weaken : divides the noise: whether the audit would notice
    claimed : epsilon > 0 to refute; None: the budget's

    Raises
    ------
    ValueError
        for settings out of range or that do not go together, or an algorithm without noise

    Notes
    -----
    One record in many runs also finds what follows the data or gives the noise away, such as the
    noise of ``papers.dp_iadmm.obj_t``, which many canaries at once hide from each other; many
    canaries measure noise. The data are read and attacked, and nothing is charged to a privacy
    ledger: an audit is for the owner of the data.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(-1, 1, (1000, 3)), rng.integers(0, 2, 1000)
    >>> fed = bf.Federation.from_arrays(X, y, rng.choice(["north", "east"], 1000))
    >>> problem = bf.Problem(bf.Logistic(), privacy=bf.Budget(epsilon=1.0, delta=1e-6))
    >>> result = bf.audit(problem, fed, algorithm=bf.PrivateADMM(max_rounds=1), runs=100)
    >>> result.epsilon <= result.claimed  # a bound from below, by an attack
    True
    >>> algorithm = bf.PrivateADMM(max_rounds=1)
    >>> many = bf.audit(problem, fed, algorithm=algorithm, canaries=600)
    >>> many.canaries, many.runs  # of two clients with three features each
    (600, 100)
    """
    _check({"runs": runs, "canaries": canaries}, weaken, claimed, confidence, seed)
    delta, budget = 0.0, problem.privacy
    if budget is not None:
        delta, claimed = budget.delta, float(budget.epsilon) if claimed is None else claimed
    claim = _Claim(math.inf if claimed is None else claimed, delta, confidence)
    if canaries is not None:
        if canary is not None or instead is not None or runs is not None:
            text = "canary, instead and runs are about one record in many runs, and canaries asks"
            raise ValueError(f"{text} for many records in one run: leave either out.")
        return _in_one_run(problem, fed, algorithm, client, int(canaries), weaken, claim, seed)
    runs = RUNS if runs is None else int(runs)
    record = _record(_canary(problem, fed) if canary is None else canary, fed.n_features)
    fed = everybody(problem, fed)
    p = 0 if client is None else fed.position(client)
    without, with_ = fed, _with_records(fed, {p: record})
    if budget is not None and budget.adjacency == "replace":
        other = (-record[0], record[1]) if instead is None else _record(instead, fed.n_features)
        without = _with_records(fed, {p: other})
    concrete, data = problem.at(without)
    attacked, silent, plan = _attacked(algorithm, concrete, data, weaken)
    blocks = [data.block(p), problem.at(with_)[1].block(p)]
    # what both data sets would give without noise in the first round, the same in all runs
    _, ask = attacked.server_start(len(plan.weight))
    memory = attacked.client_start(blocks[0])
    first = _silent(silent, memory, ask.message, blocks, np.random.default_rng)
    scores = []
    for side, own in enumerate(blocks):
        keys = ({p: (seed, side, k)} for k in range(runs))
        each = (_answers(attacked, silent, {p: [*blocks, own]}, key, first) for key in keys)
        scores.append(np.array([*map(_attack, each)]))
    result = _judged(scores, claim)
    return result if plan.kind == "gaussian" else replace(result, gaussian=None)


def _check(
    counts: Mapping[str, Any], weaken: float, claimed: float | None, confidence: float, seed: int
) -> None:
    """Raise for settings of an audit that are out of range."""
    for name, count in counts.items():
        if count is not None and count < FEWEST:
            raise ValueError(f"{name} must be a whole number >= {FEWEST}, got {count!r}.")
    for name, value in {"weaken": weaken, "claimed": claimed}.items():
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name} must be a number > 0, got {value!r}.")
    if not 0.5 <= confidence < 1:
        raise ValueError(f"confidence must lie in [0.5, 1), got {confidence!r}.")
    if seed < 0:
        raise ValueError(f"seed must be a whole number >= 0, got {seed!r}.")


class _Claim(NamedTuple):
    """The total epsilon to refute, at which delta, and how sure the bounds have to be."""

    epsilon: float
    delta: float
    confidence: float

    @property
    def chance(self) -> float:
        """The chance that one rate is outside its bound: there are four, of which two enter either
        epsilon.
        """
        return (1 - self.confidence) / 4

    def audit(self, epsilon: float, gaussian: float, attack: str, *rates: Any) -> Audit:
        """The result of an attack with these bounds, hits, alarms and runs."""
        return Audit(self.epsilon, self.delta, epsilon, gaussian, self.confidence, attack, *rates)


def _in_one_run(
    problem: Problem,
    fed: Federation,
    algorithm: Method | None,
    client: ClientName | None,
    canaries: int,
    weaken: float,
    claim: _Claim,
    seed: int,
) -> Audit:
    """Hide many canaries in as few runs as have room for them, and guess which took part."""
    fed = everybody(problem, fed)
    attacked, silent, plan = _attacked(algorithm, *problem.at(fed), weaken)
    clients = list(range(fed.n_clients)) if client is None else [fed.position(client)]
    x, label = _canary(problem, fed)
    size = float(np.max(np.asarray(x)))
    if math.isfinite(plan.clip):
        # its gradient is to be clipped in every round, and yet must not vanish because the model
        # has learnt it
        beside = BESIDE[plan.kind or "gaussian"] if problem.predictor.intercept else 0.0
        size = max(BEYOND * plan.clip, beside)
    coins: list[NDArray[np.bool_]] = []
    scores: list[Array] = []
    # as few runs as have a feature of a client for each, and in memory room for its row, and about
    # as many in each
    features = max(1, min(fed.n_features, WIDEST // (len(clients) * fed.n_features)))
    runs = -(-canaries // (len(clients) * features))
    for run in range(runs):
        count = canaries // runs + (run < canaries % runs)
        here = {p: len(range(c, count, len(clients))) for c, p in enumerate(clients) if c < count}
        rows = {p: size * np.eye(k, fed.n_features) for p, k in here.items()}
        streams = {p: np.random.default_rng((seed, run, p + 1, 0)) for p in here}
        fell = {p: streams[p].integers(0, 2, k) == 1 for p, k in here.items()}
        # of every client the rows without any of its canaries, with all, and with those whose coin
        # fell so; as the budget's adjacency has them
        sides = []
        none, all_ = ({p: np.full(k, side) for p, k in here.items()} for side in (False, True))
        for taking in (none, all_, fell):
            if problem.privacy is not None and problem.privacy.adjacency == "replace":
                chosen = {p: np.where(taking[p][:, None], x, -x) for p, x in rows.items()}
            else:
                chosen = {p: x[taking[p]] for p, x in rows.items()}
            data = problem.at(_with_records(fed, {p: (x, label) for p, x in chosen.items()}))[1]
            sides.append({p: data.block(p) for p in rows})
        blocks = {p: [side[p] for side in sides] for p in rows}
        coins += fell.values()
        found = _surprise(attacked, silent, blocks, (seed, run))
        scores += [found[p][: here[p]] for p in here]
    # of the noise as it was planned, so that the number of guesses follows from no answer
    mu = math.sqrt(plan.rounds) / (plan.multiplier * weaken)
    result = _guessed(np.concatenate(coins), np.concatenate(scores), mu, claim)
    return replace(result, gaussian=result.gaussian if plan.kind == "gaussian" else None, runs=runs)


def _surprise(
    algorithm: PrivateADMM, silent: PrivateADMM, blocks: Mapping[int, list[Block]], key: Key
) -> dict[int, Array]:
    """(d,) scores of one run's canaries, client by client: the logarithm of how much likelier the
    answers are with each than without, for noise of the size that the answers report.

    What a canary adds is looked for in the entries of its own feature, beside the answers that its
    client would give without noise. Nothing else depends on the coins than the answers.
    """
    assert algorithm.plan is not None
    laplace, d = algorithm.plan.kind == "laplace", algorithm.plan.features
    split = algorithm.problem.predictor.split  # pyright: ignore[reportOptionalMemberAccess]
    scores: dict[int, Array] = {}
    keys = {p: (*key, p + 1) for p in blocks}
    for p, noise, curve, *changes in _answers(algorithm, silent, blocks, keys):
        size = noise / curve
        seen, added = (split(np.asarray(z, float) / size)[0].reshape(d, -1) for z in changes)
        gain = np.abs(seen) - np.abs(seen - added) if laplace else seen * added - added**2 / 2
        scores[p] = scores.get(p, 0.0) + gain.sum(1)
    return scores


def _answers(
    algorithm: PrivateADMM,
    silent: PrivateADMM,
    blocks: Mapping[int, Sequence[Block]],
    keys: Mapping[int, Key],
    first: Sequence[Array] | None = None,
) -> Iterator[tuple[int, float, float, Array, Array]]:
    """Every answer of a run, by clients whose rows are without canaries, with all, and as they are.

    It is the client, the noise that it reports, the factor between that and noise of z, and how far
    z is from the one without noise and canary, and that with a canary from it. ``first`` are these
    two in the first round, where they are known.
    """
    assert algorithm.plan is not None
    P = len(algorithm.plan.weight)
    state, ask = algorithm.server_start(P)
    memory = {p: algorithm.client_start(own) for p, (*_, own) in blocks.items()}
    turn = 0
    while isinstance(ask, Round):
        message, turn, ups = ask.message, turn + 1, []
        steeper = message.reach if algorithm.update == "prox" else 0.0
        curve = 1.0 if algorithm.output else message.rho + steeper
        for p, (*both, own) in blocks.items():
            streams = lambda _, key=(*keys[p], turn): np.random.default_rng(key)  # noqa: E731
            known = first if turn == 1 else None
            without, with_ = known or _silent(silent, memory[p], message, both, streams)
            memory[p], up = algorithm.perturb(memory[p], message, own, streams)
            yield p, float(up.noise[0]), curve, memory[p].z[0] - without, with_ - without
            ups.append(up)
        # the sum of all clients' answers, where those that are not attacked answer alike
        share, shifted = P / len(ups), np.sum([up.shifted[0] for up in ups], 0)
        gap, noise = (sum(float(getattr(up, of)[0]) for up in ups) for of in ("gap", "noise"))
        total = replace(ups[0], shifted=share * shifted, gap=share * gap, noise=share * noise)
        state, ask = algorithm.aggregate(state, range(P), total)


def _guessed(took: NDArray[np.bool_], score: Array, mu: float, claim: _Claim) -> Audit:
    """The bounds from the canaries' scores; ``mu`` tells how many guesses are worth making."""
    right, m = (score > 0) == took, len(took)
    guesses = how_many(m, mu, claim.delta, claim.confidence)
    surest = np.argsort(-np.abs(score), kind="stable")[:guesses]
    hits, alarms = (float((score[of] > 0).mean()) if of.any() else 0.0 for of in (took, ~took))
    count = int(right[surest].sum())
    epsilon = least_epsilon(count, guesses, m, claim.delta, claim.confidence)
    gaussian = _epsilon_of(least_mu(int(right.sum()), m, claim.confidence), claim.delta)
    return claim.audit(epsilon, gaussian, ATTACKS[0], hits, alarms, 1, m, guesses, count)


def _attacked(
    algorithm: Method | None, problem: Problem, fed: Federation, weaken: float
) -> tuple[PrivateADMM, PrivateADMM, Mechanism]:
    """The algorithm with its noise, which is divided by ``weaken``, without any, and the noise."""
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
        do = "state Problem(privacy=Budget(epsilon, delta))."
        raise ValueError(f"without noise there is nothing to audit: {do}")
    plan = replace(method.plan, multiplier=method.plan.multiplier / weaken)
    silent = replace(method, plan=replace(plan, multiplier=0.0))
    return replace(method, plan=plan), silent, plan


def _canary(problem: Problem, fed: Federation) -> Record:
    """A row a hundred times as long as any, of the first class; a target as far away."""
    longest = max(float(abs(x).max()) for x in fed.X)
    x = np.zeros(fed.n_features)
    x[0] = 100 * max(longest, 1.0)
    if problem.loss.targets == "real":
        return x, 100 * max(1.0, *(float(np.abs(y).max()) for y in fed.y))
    classes = np.unique(np.concatenate(fed.y)) if fed.classes is None else fed.classes
    return x, classes[0]


def _record(stated: Record, d: int) -> tuple[Array, Any]:
    """(x, y), checked."""
    try:
        x, y = np.asarray(stated[0], float), stated[1]
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise ValueError(f"a record is (x, y) with {d} finite features, got {stated!r}.") from error
    if x.shape != (d,) or not np.isfinite(x).all():
        raise ValueError(f"a record is (x, y) with {d} finite features, got shape {x.shape}.")
    return x, y


def _with_records(fed: Federation, more: Mapping[int, Record]) -> Federation:
    """The data set with more rows (x, y), or (X, y) with a common target, at these clients."""
    X, targets = list(fed.X), list(fed.y)
    weights = None if fed.sample_weight is None else list(fed.sample_weight)
    for p, (x, y) in more.items():
        rows = np.atleast_2d(np.asarray(x))
        counted = fed.share(p) > 0  # a client without rows has one that does not count
        if isinstance(X[p], np.ndarray):
            X[p] = np.vstack([X[p][counted], rows.astype(X[p].dtype)])
        else:
            X[p] = csr_array(vstack([X[p][counted], csr_array(rows)]))
        targets[p] = np.append(targets[p][counted], np.full(len(rows), y, targets[p].dtype))
        if weights is not None:
            weights[p] = np.ones(len(targets[p]))
    return fed._with(X=tuple(X), y=tuple(targets), sample_weight=weights and tuple(weights))


def _silent(
    silent: PrivateADMM, memory: Any, message: Perturb, blocks: list[Block], streams: Any
) -> list[Array]:
    """The client's z without noise, from either data set."""
    return [silent.perturb(memory, message, block, streams)[0].z[0] for block in blocks]


def _attack(answers: Iterable[tuple[int, float, float, Array, Array]]) -> tuple[float, ...]:
    """The scores of one run, ``ATTACKS``: large ones speak for the canary, or against it.

    Every answer is compared with those that either data set would have given without noise.
    """
    along, spread, reported = 0.0, 0.0, 0.0
    for _, noise, curve, seen, added in answers:
        along += float(seen @ added) / max(float(np.linalg.norm(added)), 1e-300)
        size = max(float(np.abs(seen).mean()), 1e-300)
        spread += math.log(size)
        reported += math.log(max(abs(noise / (size * curve) - 1), 1e-300))
    return along, spread, reported


def _judged(scores: Sequence[Array], claim: _Claim) -> Audit:
    """Attack, sign and threshold from the first half of the runs, rates from the second."""
    runs = len(scores[0])
    half, best = runs // 2, (-math.inf, 0, 1.0, 0.0)
    for a in range(len(ATTACKS)):
        for sign in (1.0, -1.0):
            first = [np.sort(sign * s[:half, a]) for s in scores]
            cuts = np.unique(np.quantile(np.concatenate(first), np.linspace(0.002, 0.998, 250)))
            counts = [half - np.searchsorted(s, cuts, side="right") for s in first]
            bounds = _bounds(counts[1], counts[0], half, claim)
            k = int(np.argmax(bounds))
            best = max(best, (float(bounds[k]), a, sign, float(cuts[k])))
    n, (_, a, sign, cut) = runs - half, best
    alarms, hits = (int((sign * s[half:, a] > cut).sum()) for s in scores)
    epsilon = max(0.0, float(_bounds(np.array([hits]), np.array([alarms]), n, claim)[0]))
    # of the least Gaussian mechanism with such rates
    alarm = betaincinv(alarms + 1, n - alarms, 1 - claim.chance) if alarms < n else 1.0
    miss = betaincinv(n - hits + 1, hits, 1 - claim.chance) if hits else 1.0
    mu = float(ndtri(1 - alarm) - ndtri(miss)) if alarm < 1 and miss < 1 else 0.0
    gaussian = _epsilon_of(mu, claim.delta)
    return claim.audit(epsilon, gaussian, ATTACKS[a], hits / n, alarms / n, runs)


def _bounds(hits: NDArray[Any], alarms: NDArray[Any], n: int, claim: _Claim) -> Array:
    """The larger lower bound of epsilon from right and wrong guesses of "with" and of "without";
    -inf where there is none.
    """
    bounds = []
    for true, false in ((hits, alarms), (n - alarms, n - hits)):
        some, few = np.maximum(true, 1), np.minimum(false, n - 1)
        low = np.where(true > 0, betaincinv(some, n - some + 1, claim.chance), 0.0)
        high = np.where(false < n, betaincinv(few + 1, n - few, 1 - claim.chance), 1.0)
        with np.errstate(divide="ignore"):
            bounds.append(np.log(np.maximum(low - claim.delta, 0.0)) - np.log(high))
    return np.maximum(*bounds)


def _epsilon_of(mu: float, delta: float) -> float:
    """epsilon at delta where a record moves a Gaussian by mu standard deviations; at delta = 0 inf
    or 0.
    """
    if mu <= 0 or delta == 0:
        return math.inf if mu > 0 else 0.0
    return float(gaussian_epsilon((Release("gaussian", 1 / mu),), delta) or 0.0)
