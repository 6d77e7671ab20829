"""Servers that follow no algorithm: each asks one site whatever it likes, 1,000 questions at most.

An asker yields guesses of rows, which it makes of answers to public messages and of what the server
knows by itself: the number of rows, the seeds that it sends, the order of groups. Where a site
refuses, the asker goes on in another experiment. The sites beside the one that is asked are its
inventions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from itertools import count
from typing import Any

import numpy as np
from border.readers import MEAN, NAMES, ROBUST, Told, World, as_rows, pairs, told_sums
from scipy.linalg import eigvals
from scipy.special import ndtri

import bonafed as bf
from bonafed.algorithms.comparators.fed_avg import Descend
from bonafed.algorithms.federated.bundle.bundle import Evaluate
from bonafed.arrays import Array, stream
from bonafed.certificates.duality import Certification, Certify
from bonafed.engines.secure_summed import carried_by
from bonafed.engines.wire import RunStarted, StartRun, Step, Stepped
from bonafed.papers.drfl.epigraph_projection import Begin, Project
from bonafed.problem.metadata import Introduced
from bonafed.problem.parts import Parts, stored
from bonafed.problem.problem import Problem
from bonafed.problem.rank_levels import Slice, Tally
from bonafed.rounds import FIELDS, Algorithm, Conclude
from bonafed.sites.session import Agree, Agreed, Introduce, method_bytes, method_of
from bonafed.statements import statement_bytes

MOST = 1_000  # questions
PATIENCE = 40  # refusals in a row after which an asker gives up
STEEP = 29.0  # length of models within the limit of a site

RANKED = replace(MEAN, over_rows=bf.Extremile(2.0))


class SpentError(Exception):
    """The asker has had its questions, or has given up."""


@dataclass
class Asker:
    """The server, with so many questions ``left``; those that are refused count."""

    it: World
    site: str
    left: int = MOST
    numbers: Iterator[int] = field(default_factory=count)
    known: dict[bytes, Any] = field(default_factory=dict)  # what the site tells, by problem

    def ask(self, experiment: str, body: object) -> Any:
        """The body of the answer."""
        if self.left <= 0:
            raise SpentError
        self.left -= 1
        return self.it.wire.ask(self.site, experiment, body)

    def experiment(self, problem: Problem) -> str:
        """The name of a new experiment that the site has agreed to; "" where it has not."""
        statement, name = statement_bytes(problem), f"asked {next(self.numbers)}"
        roles = self.it.roles.text()
        ask = Introduce(np.frombuffer(statement, np.uint8), version("bonafed"), roles)
        if statement not in self.known:
            self.known[statement] = self.ask("", ask)
        facts = self.known[statement]
        if not isinstance(facts, Introduced):
            return ""
        others = [replace(facts, client=other) for other in ("invented", "made up")]
        everyone = tuple(sorted((facts, *others), key=lambda each: each.client))
        return name if isinstance(self.ask(name, Agree(ask, everyone)), Agreed) else ""

    def run(self, problem: Problem, algorithm: Algorithm) -> Run:
        """A run of an algorithm, which the site has yet to hear of."""
        return Run(self, problem, method_bytes(algorithm))

    @property
    def d(self) -> int:
        """Features, which the server has declared."""
        return self.it.tables[self.site][0].shape[1]

    @property
    def m(self) -> int:
        """Rows, which the site tells."""
        return len(self.it.tables[self.site][0])

    @property
    def zero(self) -> Array:
        """The first model, (D,)."""
        return np.zeros(self.d + 1)

    def directions(self) -> Iterator[Array]:
        """Random models of length 1 without intercept, (D,)."""
        rng = np.random.default_rng(0)
        while True:
            u = rng.normal(size=self.d)
            yield np.append(u / np.linalg.norm(u), 0.0)


@dataclass
class Run:
    """A run at the site; where the site refuses a message, the next one begins another experiment.

    ``refusals`` counts those in a row.
    """

    asker: Asker
    problem: Problem
    method: bytes
    seed: int = 0
    experiment: str = ""
    name: str = ""
    turn: int = 0
    refusals: int = 0

    def ask(self, message: object) -> Any:
        """The upload, or None where the site does not answer."""
        told = None
        if self.experiment or self._begun():
            told = self.asker.ask(self.experiment, Step(self.name, self.turn, message))
        if isinstance(told, Stepped):
            self.turn, self.refusals = self.turn + 1, 0
            return told.upload
        self.experiment, self.refusals = "", self.refusals + 1
        if self.refusals > PATIENCE:
            raise SpentError
        return None

    def _begun(self) -> bool:
        self.experiment = self.asker.experiment(self.problem)
        self.name, self.turn = f"run {next(self.asker.numbers)}", 0
        if self.experiment:
            start = StartRun(self.name, np.frombuffer(self.method, np.uint8), self.seed, 0)
            if not isinstance(self.asker.ask(self.experiment, start), RunStarted):
                self.experiment = ""
        return bool(self.experiment)


# --------------------------------------------------------- gradients at models of one's choice

Gradient = Callable[[Array], Array | None]  # at a model (D,); None where it is refused


def by_bundle(asker: Asker, problem: Problem = ROBUST) -> Gradient:
    """By the default method's message."""
    run, parts = asker.run(problem, bf.Bundle()), stored(Parts(1, 1, 0))

    def ask(w: Array) -> Array | None:
        told = run.ask(Evaluate(w, parts))
        return None if told is None else told.gradient[0].sum(0)

    return ask


def by_certificate(asker: Asker) -> Gradient:
    """By a certificate with one multiplier."""
    run = asker.run(MEAN, Certification(np.zeros(1)))

    def ask(w: Array) -> Array | None:
        told = run.ask(Certify(0 * w, w[None], np.ones((1, 1))))
        return None if told is None else told.gradient[0]

    return ask


def by_minorants(asker: Asker) -> Gradient:
    """By slopes that are moved from the model 0 to first order, and cut off at 0 and 1: a loss
    that is smooth has slopes with kinks there.
    """
    run, parts = asker.run(ROBUST, bf.Bundle()), stored(Parts(1, 1, 1))

    def ask(w: Array) -> Array | None:
        told = run.ask(Evaluate(0 * w, parts, np.ones(1), np.stack([0 * w, w]), "hessian"))
        return None if told is None else told.mean_gradient[0]

    return ask


def by_local_steps(asker: Asker) -> Gradient:
    """By the second of two local steps, of which the first is so long that it leads to a model of
    length 1e7, whatever the message has.
    """
    one, two = (asker.run(MEAN, bf.FedAvg(local_steps=k)) for k in (1, 2))

    def ask(w: Array) -> Array | None:
        step = 1e9
        short, long = (run.ask(Descend(w, np.ones(1), step, 0.0, 0)) for run in (one, two))
        return None if short is None or long is None else (short.change[0] - long.change[0]) / step

    return ask


def between(at: Gradient, ends: tuple[Array, Array], m: int) -> Iterator[Array]:
    """Differences of gradients at neighbouring models on the way between two ends.

    Where slopes are steps, the last number times the rows counts those between two models: the
    interval with most rows is halved until there is one.
    """
    first, last = at(ends[0]), at(ends[1])
    todo = [] if first is None or last is None else [(*ends, first, last)]
    while todo:
        todo.sort(key=lambda each: float(np.abs(each[3] - each[2]).max()))
        a, b, low, high = todo.pop()
        yield high - low
        size = m * np.abs(high - low)
        several = size[-1] > 1.5 or size[-1] < 0.5 < size.sum()
        if several and np.abs(b - a).max() > 1e-9 * np.abs(a).max():
            half = (a + b) / 2
            middle = at(half)
            todo += [] if middle is None else [(a, half, low, middle), (half, b, middle, high)]


def steps(asker: Asker, gradient: Callable[[Asker], Gradient], length: float) -> Iterator[Array]:
    """Single rows between thresholds along random directions."""
    ask = gradient(asker)
    for u in asker.directions():
        ends = [length * (u + 3.0 * sign * np.eye(len(u))[-1]) for sign in (-1, 1)]
        yield from (as_rows(each[None]) for each in between(ask, (ends[0], ends[1]), asker.m))


def opposite_steps(asker: Asker, gradient: Callable[[Asker], Gradient], length: float):
    """The same, with every second threshold asked by the opposite model, since g(w) + g(-w) is
    2 g(0): no two answers are near each other.
    """
    ask, turns = gradient(asker), count()
    zero = ask(asker.zero)

    def at(w: Array) -> Array | None:
        if next(turns) % 2 or zero is None:
            return ask(w)
        g = ask(-w)
        return None if g is None else 2 * zero - g

    yield from steps(asker, lambda _: at, length)


def turned_steps(asker: Asker) -> Iterator[Array]:
    """Steps of models that local steps lead to, on the way between two short models."""
    ask, rng = by_local_steps(asker), np.random.default_rng(0)
    while True:
        ends = rng.normal(size=(2, asker.d + 1))
        yield from (as_rows(each[None]) for each in between(ask, (ends[0], ends[1]), asker.m))


# ------------------------------------------------------------- slopes that are known up to scale


def steep_models(asker: Asker) -> Iterator[Array]:
    """Random models whose coefficients are STEEP long, or that are so long with their intercept."""
    rng = np.random.default_rng(1)
    for u in asker.directions():
        w = u + rng.uniform(-3, 3) * np.eye(len(u))[-1]
        yield STEEP * w
        yield STEEP * w / np.linalg.norm(w)


def tiny_pairs(asker: Asker, apart: float = 3e-8) -> Iterator[Array]:
    """Two models so near each other that in single precision their slopes are equal: they differ
    in the rows that are at a threshold.
    """
    ask = by_bundle(asker)
    for w in steep_models(asker):
        one, other = ask(w), ask(w + apart * np.eye(len(w))[-1])
        if one is not None and other is not None:
            with np.errstate(all="ignore"):
                yield ((other - one)[:-1] / (other - one)[-1])[None]


def steep_curvatures(asker: Asker) -> Iterator[Array]:
    """Curvatures at steep models, to which only rows at their threshold add."""
    run, parts = asker.run(ROBUST, bf.Bundle()), stored(Parts(1, 1, 1))
    for w in steep_models(asker):
        told = run.ask(Evaluate(w, parts, np.ones(1), None, "hessian"))
        if told is not None:
            H = told.curvature[0]
            yield H[:-1, -1:].T / max(H[-1, -1], 1e-300)


def poles(z: Array, F: Array, tol: float) -> tuple[Array, Array]:
    """Poles and residues (K, D) of a rational function with the values F (n, D) at z (n,): the AAA
    algorithm of Nakatsukasa, Sète and Trefethen, with one denominator for all of its D parts.
    """
    size, R, at = np.abs(F).max(0), np.tile(F.mean(0), (len(F), 1)), []
    weights = np.zeros(0)
    while len(at) < len(z) // 2:
        off = np.abs((F - R) / size).max(1)
        off[at] = 0.0
        if off.max() < tol:
            break
        at.append(int(off.argmax()))
        others = np.delete(np.arange(len(z)), at)
        C = 1 / (z[others, None] - z[at])
        rows = (F[others, None] - F[None, at]) * C[..., None] / size  # (n - k, k, D)
        weights = np.linalg.svd(rows.transpose(2, 0, 1).reshape(-1, len(at)))[2][-1]
        R = F.copy()
        R[others] = (C @ (weights[:, None] * F[at])) / (C @ weights)[:, None]
    k = len(at)
    pencil, unit = np.zeros((k + 1, k + 1)), np.eye(k + 1)
    pencil[0, 1:], pencil[1:, 0], pencil[1:, 1:] = weights, 1.0, np.diag(z[at])
    unit[0, 0] = 0.0
    found = eigvals(pencil, unit)
    found = found[np.isfinite(found)]
    C = 1 / (found[:, None] - z[at])
    return found, (C @ (weights[:, None] * F[at])) / -((C**2) @ weights)[:, None]


def thresholds(asker: Asker, steep: float = 4.0, answers: int = 24) -> Iterator[Array]:
    """Gradients at thresholds beyond the last rows are a rational function of z = exp(threshold),

        sum_j  z v_j / (1 + z v_j)  (x_j, 1),        v_j = exp(steep u'x_j),

    whose poles -1 / v_j have rows as residues. No slope and no difference hangs on few rows.
    """
    ask = by_bundle(asker, MEAN)
    base = ask(asker.zero - 28.0 * np.eye(asker.d + 1)[-1])
    last = -steep * float(ndtri(1 - 1 / asker.m))  # about where the threshold of the last row is
    for u in asker.directions():
        told = [
            (t, g)
            for t in np.linspace(last - 6.0, last + 3.0, answers)
            if (g := ask(steep * u + t * np.eye(len(u))[-1])) is not None
        ]
        if base is None or len(told) < 8:
            continue
        t, g = np.array([t for t, _ in told]), np.array([g for _, g in told])
        for n in {len(t), 3 * len(t) // 4, len(t) // 2}:
            for tol in (1e-9, 1e-11, 1e-13):
                z, F = np.append(0, np.exp(t[:n] - t.mean())), np.vstack([0 * base, g[:n] - base])
                with np.errstate(all="ignore"):
                    yield as_rows(poles(z, F, tol)[1].real)


def spans_of_curvatures(asker: Asker, starts: int = 200) -> Iterator[Array]:
    """Curvatures sum_j h_j (x_j, 1)(x_j, 1)' at more short models than there are rows span the
    space of all rows' squares. Every quadric that vanishes on it vanishes at the rows alone, where
    there are enough of them: 2 d more numbers in a curvature than there are rows, about.
    """
    d, m, rng = asker.d, asker.m, np.random.default_rng(0)
    upper = np.triu_indices(d + 1)
    if len(upper[0]) < m + d:
        return
    run, parts = asker.run(ROBUST, bf.Bundle()), stored(Parts(1, 1, 1))
    told = []
    while len(told) < 1.5 * m:
        w = rng.normal(size=d + 1)
        up = run.ask(Evaluate(3 * w / np.linalg.norm(w), parts, np.ones(1), None, "hessian"))
        told += [] if up is None else [up.curvature[0][upper]]
    scale = np.where(upper[0] == upper[1], 1.0, np.sqrt(2.0))
    empty = np.linalg.svd(np.array(told) * scale)[2][m:] * scale
    A = np.zeros((len(empty), d + 1, d + 1))
    A[:, upper[0], upper[1]] = empty
    yield np.array([zero_of(A + A.swapaxes(1, 2), rng.normal(size=d)) for _ in range(starts)])


def zero_of(A: Array, x: Array, most: int = 200) -> Array:
    """A common zero (x, 1) of quadrics near x, by Levenberg's and Marquardt's method."""
    d, damping = len(x), 1.0

    def at(x: Array) -> tuple[Array, Array]:
        one = np.append(x, 1.0)
        return (A @ one) @ one, 2 * (A @ one)[:, :d]

    f, J = at(x)
    for _ in range(most):
        new = x - np.linalg.solve(J.T @ J + damping * np.eye(d), J.T @ f)
        there = at(new)
        better = there[0] @ there[0] < f @ f
        x, (f, J) = (new, there) if better else (x, (f, J))
        damping = damping / 5 if better else 4 * damping
        if f @ f < 1e-22 or damping > 1e8:
            break
    return x


# -------------------------------------------------------------- sums over rows that one knows


def solved(incidence: Sequence[Array], answers: Sequence[Array]) -> Array:
    """The terms of sums, of which it is known what each adds up: those that the sums determine."""
    u, s, vt = np.linalg.svd(np.array(incidence, float), full_matrices=False)
    kept = s > 1e-9 * s[0]
    sure = (vt[kept] ** 2).sum(0) > 1 - 1e-9  # unit vectors in the span of the sums
    terms = vt[kept].T @ ((u[:, kept].T @ np.array(answers)) / s[kept, None])
    return as_rows(terms[sure])


def batches(asker: Asker) -> Iterator[Array]:
    """`FedAvg(batch=1)` steps along the gradient of one row."""
    run = asker.run(MEAN, bf.FedAvg(batch=1, local_steps=1))
    while True:
        told = run.ask(Descend(asker.zero, np.ones(1), 1.0, 0.0, 0))
        if told is not None:
            yield as_rows(told.change)


def samples(asker: Asker) -> Iterator[Array]:
    """`EpigraphADMM` with a sample of one row projects onto the epigraph of that row's loss."""
    run, ask = asker.run(ROBUST, bf.EpigraphADMM(sample=1e-9)), asker.zero
    run.ask(Begin(ask))
    while True:
        told = run.ask(Project(ask[None], np.zeros(1), 1.0))
        if told is not None:
            yield as_rows(told.w)


def subsets(asker: Asker) -> Iterator[Array]:
    """`FedAvg(batch=m / 2)` adds up rows that the server's seed draws: it knows which, and solves.

    Every answer, and every difference of two, is a sum over about half of the rows.
    """
    m, batch = asker.m, asker.m // 2
    run, drawn, found = asker.run(MEAN, bf.FedAvg(batch=batch, local_steps=1)), [], []
    while len(found) < m + 20 and asker.left > 1:
        turn = run.turn if run.experiment else 0
        told = run.ask(Descend(asker.zero, np.ones(1), 1.0, 0.0, 0))
        if told is not None:
            rows = stream(run.seed, asker.site, turn).permutation(np.arange(m))[:batch]
            drawn.append(np.isin(np.arange(m), rows) / batch)
            found.append(told.change[0])
    if found:
        yield solved(drawn, found)


def multipliers_of_rows(asker: Asker) -> Iterator[Array]:
    """A certificate's multipliers of rows, of the server's choice: all on one row."""
    run, none = asker.run(MEAN, Certification(np.zeros(1))), np.zeros((0, asker.d + 1))
    for row in np.eye(asker.m):
        told = run.ask(Certify(asker.zero, none, np.zeros((1, 0)), row[None]))
        if told is not None:
            yield as_rows(told.gradient)


def groups(asker: Asker) -> Iterator[Array]:
    """Sums over groups of at least ten rows, the j-th in group j mod G, for all G at one model."""
    m, run, known, found = asker.m, asker.run(ROBUST, bf.Bundle()), [], []
    for G in range(1, m // 10 + 1):
        told = run.ask(Evaluate(asker.zero, stored(Parts(G, 10, 0))))
        if told is not None:
            known += [(np.arange(m) % G == g) / m for g in range(G)]
            found += [*told.gradient[0]]
        if len(found) > 3 * m or asker.left < 5:
            break
    if found:
        yield solved(known, found)


def tails(asker: Asker) -> Iterator[Array]:
    """Neighbouring tails: k times the mean of the k largest losses, less the same of k - 1, is the
    k-th row, though the difference of the two means hangs on nearly four rows.
    """
    m, before, w = asker.m, None, 0.3 * next(asker.directions())
    for k in range(max(10, m - MOST // 4), m + 1):
        g = by_bundle(asker, replace(ROBUST, over_samples=bf.Superquantile(k / m)))(w)
        if g is not None and before is not None:
            yield as_rows((k * g - (k - 1) * before)[None])
        before = g


# ------------------------------------------------------------------ answers about single rows


def sloped(numbers: Sequence[float], apart: float) -> Array:
    """A row from an affine function of it, y (w'x + b), at a model and at d + 1 beside it."""
    return as_rows((np.array(numbers)[1:] - numbers[0])[None] / apart)


def margins(losses: Array) -> Array:
    """The margins of which logistic losses are these."""
    with np.errstate(all="ignore"):
        return -np.log(np.expm1(losses))


def nearby(w: Array, apart: float) -> list[Array]:
    """A model, and others beside it."""
    return [w, *(w + apart * e for e in np.eye(len(w)))]


def levels(asker: Asker) -> Iterator[Array]:
    """The multiplier of a Wasserstein ball is the margin of one row over the cost of a label, the
    row that the radius ends with; at models near each other it is the same row.
    """
    balls = [bf.WassersteinBall(0.5 * share, 0.5, "l2") for share in (0.1, 0.2, 0.3)]
    runs = [asker.run(replace(ROBUST, over_samples=ball), bf.Bundle()) for ball in balls]
    for u in asker.directions():
        for run in runs:
            told = [run.ask(Evaluate(w, stored(Parts(1, 1, 0)))) for w in nearby(u, 1e-5)]
            if all(each is not None for each in told):
                yield sloped([float(each.level[0]) for each in told], 1e-5)


def largest(asker: Asker) -> Iterator[Array]:
    """The largest and the smallest loss, at models near each other, are those of two rows."""
    run = asker.run(RANKED, bf.RankBundle())
    for u in asker.directions():
        told = [run.ask(Tally(w, np.zeros(1))) for w in nearby(u, 1e-5)]
        if all(each is not None for each in told):
            for losses in ([x.largest[0] for x in told], [-x.smallest[0] for x in told]):
                yield sloped(margins(np.array(losses)).tolist(), 1e-5)


def all_losses(run: Run, w: Array, m: int) -> Array | None:
    """Every loss at a model, in order, by counts above thresholds that close in on each."""
    edges = np.linspace(0.0, 20.0, 16_000)
    while True:
        told = run.ask(Tally(w, edges))
        if told is None:
            return None
        place = np.searchsorted(m - told.above[0], np.arange(1, m + 1))
        ends = np.concatenate([[0.0], edges, [20.0]])
        low, high = ends[place], ends[place + 1]
        if (high - low).max() < 1e-14:
            return (low + high) / 2
        inside = np.linspace(low, high, 16_000 // m + 2, axis=1)
        edges = np.unique(inside)


def counts(asker: Asker) -> Iterator[Array]:
    """Counts above thresholds tell all losses at models near each other, in the same order."""
    run = asker.run(RANKED, bf.RankBundle())
    for u in asker.directions():
        told = [all_losses(run, w, asker.m) for w in nearby(u, 1e-6)]
        if all(each is not None for each in told):
            here = margins(np.array(told))
            yield as_rows((here[1:] - here[0]).T / 1e-6)


def slices(asker: Asker) -> Iterator[Array]:
    """Weights of bins of losses, of the server's choice: sums over random halves of the rows, which
    it knows by their places in the order of losses.
    """
    m, w, rng = asker.m, next(asker.directions()), np.random.default_rng(0)
    run, none = asker.run(RANKED, bf.RankBundle()), np.zeros(1)
    losses = all_losses(run, w, m)
    if losses is None:
        return
    drawn, found = [], []
    while len(found) < m + 20 and asker.left > 1:
        weights = (rng.random(m) < 0.5) / m
        told = run.ask(Slice(w, (losses[1:] + losses[:-1]) / 2, weights, none[:0], none))
        if told is not None:
            drawn.append(weights)
            found.append(told.gradient[0])
    if found:
        yield solved(drawn, found)


# ------------------------------------------------------------------ messages of every method


def changed(value: Any, w: Array) -> Any:
    """A message with this model in the place of every one in it, and not with matrices changed."""
    if type(value) in FIELDS:
        parts = {name: changed(getattr(value, name), w) for name in FIELDS[type(value)]}
        return replace(value, **parts)
    models = isinstance(value, np.ndarray) and value.ndim in (1, 2) and value.shape[-1:] == w.shape
    return np.broadcast_to(w, value.shape).copy() if models else value


def run_of(told: Sequence[Told], site: str, kind: type) -> tuple[StartRun, list[Any]] | None:
    """How a run of a method began at a site in a transcript, and the messages that it had."""
    starts = [each.ask for each in told if each.site == site and isinstance(each.ask, StartRun)]
    for start in starts:
        if isinstance(carried_by(method_of(start.method.tobytes())), kind):
            mine = [each.ask for each in told if each.site == site and each.run == start.run]
            return start, [ask for ask in mine if not isinstance(ask, StartRun | Conclude)]
    return None


def by_message(
    it: World, kind: type, problem: Problem, questions: int = 400, length: float = 1e4
) -> set[int]:
    """The rows read by pairs of answers to each message of a method, with long models in the place
    of its own, at thresholds along a direction; messages before it are those of an honest run,
    which has to be in the transcript.
    """
    site = NAMES[0]
    asker, found, honest = Asker(it, site, 4 * questions), set(), run_of(it.wire.told, site, kind)
    start, messages = honest or (None, [])
    u, last = next(asker.directions()), {type(m): k for k, m in enumerate(messages)}
    for at in last.values():
        since = len(it.wire.told)
        run = Run(asker, problem, start.method.tobytes(), start.seed)
        with suppress(SpentError):
            for message in messages[:at]:
                run.ask(message)
            for t in np.linspace(-3.0, 3.0, questions // len(last)):
                run.ask(changed(messages[at], length * (u + t * np.eye(len(u))[-1])))
        for sums in told_sums(it.wire.told[since:], site, asker.d):
            found |= it.read(site, pairs(sums))
    return found


ASKERS: dict[str, Callable[[Asker], Iterator[Array]]] = {
    "long models": partial(steps, gradient=by_bundle, length=1e7),
    "long models of both signs": partial(opposite_steps, gradient=by_bundle, length=1e7),
    "long models in certificates": partial(steps, gradient=by_certificate, length=1e7),
    "long models by local steps": turned_steps,
    "long models in minorants": partial(steps, gradient=by_minorants, length=1e7),
    "steep models": partial(steps, gradient=by_bundle, length=STEEP / 3),
    "steep models in minorants": partial(steps, gradient=by_minorants, length=STEEP / 3),
    "steep minorants of both signs": partial(
        opposite_steps, gradient=by_minorants, length=STEEP / 3
    ),
    "tiny pairs": tiny_pairs,
    "steep curvatures": steep_curvatures,
    "thresholds": thresholds,
    "spans of curvatures": spans_of_curvatures,
    "batches of one": batches,
    "samples of one": samples,
    "known subsets": subsets,
    "multipliers of rows": multipliers_of_rows,
    "groups of rows": groups,
    "neighbouring tails": tails,
    "levels of balls": levels,
    "largest losses": largest,
    "counts of losses": counts,
    "slices of losses": slices,
}


def guesses(asker: Asker, name: str) -> Array:
    """All guesses (K, d) of an asker."""
    found = [np.zeros((0, asker.d))]
    with suppress(SpentError):
        for each in ASKERS[name](asker):
            found.append(each)
    return np.concatenate(found)


def attack(it: World, name: str, site: str = NAMES[0], questions: int = MOST) -> set[int]:
    """The rows of a site that an asker reads by so many questions."""
    return it.read(site, guesses(Asker(it, site, questions), name))
