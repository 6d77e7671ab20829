"""What a server reads of the rows of sites, from all that passes between it and them.

    slopes     every answer about rows is a sum  g = sum_j s_j (x_j, 1)  of slopes s_j times features
    reading    a combination of answers in which one slope is left is proportional to one row:
               its features are the first numbers over the last one, which belongs to the intercept

Three parts. A `World` has sites with tables and the policy that `first_site` writes; its `Wire`
keeps a transcript: every question and the decoded answer, as the server has them. `READERS` look
for rows in the transcript of honest runs. `ASKERS` are servers that follow no algorithm: each asks
one site what it likes, 1,000 questions at most. Readers and askers return guesses, from public
messages alone; `World.read` counts the true rows among these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

import quorate as qr
from quorate.algorithms.federated.bundle.bundle import Evaluate
from quorate.arrays import Array, stream
from quorate.certificates.duality import Certification, Certify
from quorate.data.declared_schema import declared_schema
from quorate.engines.network import Network
from quorate.engines.transport import LocalTransport
from quorate.engines.wire import Envelope, StartRun, Step, Stepped
from quorate.problem.metadata import Introduced
from quorate.problem.parts import Parts, stored
from quorate.problem.problem import Problem
from quorate.problem.rank_cuts import Slice, Tally
from quorate.rounds import FIELDS, Algorithm, decode, encode
from quorate.sites.messages import Agree, Agreed, Introduce
from quorate.sites.methods import method_bytes, method_of
from quorate.sites.party import Party, open_party
from quorate.sites.rows import Roles
from quorate.sites.session import agree
from quorate.sites.site_file import first_site
from quorate.solution.configure import configure
from quorate.statements import statement_bytes

NAMES = ("east", "north", "south")
MOST = 1_000  # questions of an asker
CLOSE = 1e-4  # a guess is a row where all features are so near, in units of the columns
LONGEST = 60  # answers of one site and group among which triples are tried

# ---------------------------------------------------------------------------------- sites, transcript


@dataclass(frozen=True)
class Told:
    """A question that the server asked, and what the site answered."""

    site: str
    experiment: str
    run: str  # "" outside of runs
    ask: Any
    answer: Any


@dataclass
class Wire:
    """The server's connection to the sites, with all that has passed over it."""

    sites: Mapping[str, Party]
    told: list[Told] = field(default_factory=list)

    def call(self, site: str, data: bytes) -> bytes:
        """What `LocalTransport` calls."""
        sent = self.sites[site].answer("alliance", data)
        asked, answered = decode(data), decode(sent)
        body, reply = asked.body, answered.body
        self.told.append(
            Told(
                site,
                asked.experiment,
                getattr(body, "run", ""),
                getattr(body, "message", body),
                getattr(reply, "upload", reply),
            )
        )
        return sent

    def carrier(self) -> LocalTransport:
        """The sites behind a transport."""
        return LocalTransport({name: partial(self.call, name) for name in self.sites})

    def ask(self, site: str, experiment: str, body: object) -> Any:
        """The body of a site's answer."""
        return decode(self.call(site, encode(Envelope(experiment, site, 1, body)))).body


@dataclass
class World:
    """Sites with their tables, and what the server has learnt of them.

    Attributes
    ----------
    tables : by site the features (m, d) and targets (m,), as the server's schema makes them
    """

    wire: Wire
    roles: Roles
    tables: Mapping[str, tuple[Array, Array]]

    def solve(self, experiment: str, problem: Problem, **settings: Any) -> Any:
        """An honest run with its certificate."""
        carrier = self.wire.carrier()
        agreed = agree(carrier, experiment, problem, roles=self.roles.text(), patience=20.0)
        engine = Network(agreed.session)
        solution = qr.solve(agreed.problem, agreed.metadata, engine=engine, **settings)
        carrier.close()
        return solution

    def read(self, site: str, guesses: Array) -> set[int]:
        """The rows of a site that are among the guesses (K, d)."""
        X = self.tables[site][0]
        units = np.maximum(X.std(0), 1e-300)
        guesses = np.asarray(guesses, float).reshape(-1, X.shape[1])
        guesses = guesses[np.isfinite(guesses).all(1) & (np.abs(guesses) < 1e100).all(1)]
        if not len(guesses):
            return set()
        near, _ = cKDTree(guesses / units).query(X / units, p=np.inf)
        return {*np.flatnonzero(near <= CLOSE).tolist()}

    @property
    def rows(self) -> int:
        """Of all sites."""
        return sum(len(X) for X, _ in self.tables.values())


def world(
    place: Path,
    tables: Mapping[str, tuple[Array, Array]],
    classes: Sequence[str] | None = ("no", "yes"),
    policy: str = "",
) -> World:
    """Sites whose folders are in ``place``, with the policy that `first_site` writes and the lines
    of ``policy``; targets are numbers of ``classes``, or any numbers where it is None.
    """
    features = [f"x{k}" for k in range(next(iter(tables.values()))[0].shape[1])]
    for name, (X, y) in tables.items():
        target = [repr(float(v)) if classes is None else classes[int(v)] for v in y]
        lines = [
            ",".join((*map(repr, row), t)) for row, t in zip(X.tolist(), target, strict=True)
        ]
        (place / name).mkdir(parents=True)
        (place / name / "rows.csv").write_text("\n".join([",".join((*features, "y")), *lines]))
        (place / name / "site.toml").write_text(first_site(name, "rows.csv") + policy)
    schema = declared_schema(features, {name: {} for name in features}, "y", classes)
    roles = Roles("y", schema.to_dict(), classes=None if classes is None else tuple(classes))
    return World(Wire({name: open_party(place / name, name) for name in tables}), roles, tables)


def made(m: int, d: int = 3, targets: str = "sign", seed: int = 0) -> dict[str, tuple[Array, Array]]:
    """Three tables of m rows: standard normal features, and targets of a linear rule with noise."""
    rng, tables = np.random.default_rng(seed), {}
    for name in NAMES:
        X, rule = rng.normal(size=(m, d)), rng.normal(size=d)
        z = X @ rule + rng.normal(size=m)
        three = np.digitize(z, [-0.7, 0.7])
        tables[name] = (X, {"sign": (z > 0) * 1.0, "real": z, "class": three * 1.0}[targets])
    return tables


# ------------------------------------------------------------------------- readers of honest runs


@dataclass(frozen=True)
class Sums:
    """What one site has told about one group of its rows: gradients (n, D), curvatures (k, D, D)."""

    gradients: Array
    curvatures: Array


def told_sums(told: Sequence[Told], site: str, width: int) -> Iterator[Sums]:
    """All arrays of a site's answers that are as wide as a model, by the place where they stand:
    those of one field and group may be about the same rows.

    A weight of the client in the message is divided out; the server knows it.
    """
    vectors: dict[Any, list[Array]] = {}
    squares: list[Array] = []
    for each in told:
        if each.site != site or type(each.answer) not in FIELDS:
            continue
        weight = getattr(each.ask, "weights", None)
        scales = [1.0] if weight is None or np.size(weight) != 1 else [1.0, float(np.ravel(weight)[0])]
        for name in FIELDS[type(each.answer)]:
            value = getattr(each.answer, name)
            if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
                continue
            if value.shape == (1, width, width):
                squares += [value[0] / s for s in scales if s]
            elif value.ndim in (2, 3) and value.shape[0] == 1 and value.shape[-1] == width:
                groups = value.reshape(-1, width)
                for g, vector in enumerate(groups):
                    place = (len(groups) > 1) * (g + 1), len(groups)
                    vectors.setdefault(place, []).extend(vector / s for s in scales if s)
    for found in vectors.values():
        yield Sums(np.unique(np.array(found), axis=0), np.zeros((0, width, width)))
    if squares:
        yield Sums(np.zeros((0, width)), np.array(squares))


def as_rows(combined: Array) -> Array:
    """Combinations (K, D) of answers as guesses of rows (K, d)."""
    last = combined[:, -1:]
    with np.errstate(all="ignore"):
        return combined[:, :-1] / np.where(np.abs(last) > 1e-14, last, np.nan)


def pairs(sums: Sums) -> Array:
    """Differences of two answers."""
    i, j = np.triu_indices(len(sums.gradients), 1)
    return as_rows(sums.gradients[i] - sums.gradients[j])


def triples(sums: Sums) -> Array:
    """Combinations of three answers with the numbers 1, 1, -2 and 1, 1, -1 and 2, -1, -1."""
    g = sums.gradients
    if len(g) > LONGEST:
        g = g[np.random.default_rng(0).choice(len(g), LONGEST, replace=False)]
    i, j = np.triu_indices(len(g), 1)
    sum_, k = g[i] + g[j], np.arange(len(g))
    return np.concatenate([as_rows(sum_ - c * g[each]) for each in k for c in (1.0, 2.0)] or [g[:, 1:]])


def curvatures(sums: Sums) -> Array:
    """Differences of two curvatures that have one eigenvalue, whose eigenvector is a row."""
    H = sums.curvatures
    i, j = np.triu_indices(len(H), 1)
    between = np.concatenate([H, H[i] - H[j]])
    sizes, vectors = np.linalg.eigh(between)
    first = np.abs(sizes).argmax(1)
    alone = np.sort(np.abs(sizes), 1)
    sharp = alone[:, -2] < 1e-6 * alone[:, -1]
    top = np.take_along_axis(vectors, first[:, None, None], 2)[..., 0]
    return as_rows(top[sharp])


def slopes_and_curvatures(sums: Sums) -> Array:
    """Curvatures' rows of the intercept, which are sums over rows as well, among themselves."""
    return pairs(Sums(sums.curvatures[:, -1], sums.curvatures[:0]))


READERS: dict[str, Callable[[Sums], Array]] = {
    "pairs": pairs,
    "triples": triples,
    "curvatures": curvatures,
    "intercepts of curvatures": slopes_and_curvatures,
}


def read_by(it: World, reader: str) -> int:
    """How many rows of all sites a reader finds in what has been told."""
    found = 0
    for site, (X, _) in it.tables.items():
        rows: set[int] = set()
        for sums in told_sums(it.wire.told, site, X.shape[1] + 1):
            rows |= it.read(site, READERS[reader](sums))
        found += len(rows)
    return found

# --------------------------------------------------------------------- servers without algorithm

SMOOTH = Problem(qr.Logistic(), over_clients=qr.LpBall(0.2), regulariser=qr.L2(1e-3))
MEAN = Problem(qr.Logistic(), regulariser=qr.L2(1e-3))


class SpentError(Exception):
    """The asker has had its questions."""


@dataclass
class Asker:
    """A server that asks one site whatever it likes; the other organisations are its inventions.

    ``left`` counts questions of any kind; one that the site refuses counts as well.
    """

    it: World
    site: str
    left: int = MOST
    numbers: Iterator[int] = field(default_factory=count)
    agreed: dict[bytes, str] = field(default_factory=dict)  # experiments, by problem

    def ask(self, experiment: str, body: object) -> Any:
        """The body of the answer."""
        if self.left <= 0:
            raise SpentError
        self.left -= 1
        return self.it.wire.ask(self.site, experiment, body)

    def facts(self, problem: Problem) -> Any:
        """What the site tells of its rows: `Introduced`, or why it does not."""
        return self.ask("", self._introduce(problem))

    def _introduce(self, problem: Problem) -> Introduce:
        statement = np.frombuffer(statement_bytes(problem), np.uint8)
        return Introduce(statement, version("quorate"), self.it.roles.text())

    def experiment(self, problem: Problem) -> str:
        """The name of an experiment of this problem that the site has agreed to."""
        key = statement_bytes(problem)
        if key not in self.agreed:
            name, facts = f"asked {next(self.numbers)}", self.facts(problem)
            if isinstance(facts, Introduced):
                others = [replace(facts, client=other) for other in ("invented", "made up")]
                everyone = tuple(sorted((facts, *others), key=lambda each: each.client))
                told = self.ask(name, Agree(self._introduce(problem), everyone))
                name = name if isinstance(told, Agreed) else ""
            else:
                name = ""
            self.agreed[key] = name
        return self.agreed[key]

    def run(self, problem: Problem, algorithm: Algorithm, seed: int = 0) -> Run:
        """A run of an algorithm, which the site has yet to hear of."""
        experiment = self.experiment(problem)
        return Run(self, experiment, f"run {next(self.numbers)}", method_bytes(algorithm), seed)

    @property
    def features(self) -> int:
        """d, which the server has declared."""
        return self.it.tables[self.site][0].shape[1]

    @property
    def rows(self) -> int:
        """m, which the site tells."""
        return len(self.it.tables[self.site][0])

    def directions(self, seed: int = 0) -> Iterator[Array]:
        """Random models of length 1 without intercept, (D,)."""
        rng = np.random.default_rng(seed)
        while True:
            u = rng.normal(size=self.features)
            yield np.append(u / np.linalg.norm(u), 0.0)


@dataclass
class Run:
    """A run at the site."""

    asker: Asker
    experiment: str
    name: str
    method: bytes
    seed: int
    turn: int = 0
    begun: bool = False

    def ask(self, message: object) -> Any:
        """The upload, or None where the site does not answer."""
        if not self.experiment:
            return None
        if not self.begun:
            start = StartRun(self.name, np.frombuffer(self.method, np.uint8), self.seed, self.turn)
            self.begun = True
            self.asker.ask(self.experiment, start)
        told = self.asker.ask(self.experiment, Step(self.name, self.turn, message))
        if not isinstance(told, Stepped):
            return None
        self.turn += 1
        return told.upload


def gradients(asker: Asker, problem: Problem = SMOOTH) -> Callable[[Array], Array | None]:
    """Asks for the site's gradient at any model, (D,), by the default method's message."""
    run = asker.run(problem, qr.Bundle())

    def ask(w: Array) -> Array | None:
        told = run.ask(Evaluate(w, stored(Parts(1, 1, 0))))
        return None if told is None else told.gradient.reshape(-1, len(w)).sum(0)

    return ask


def _steps(
    ask: Callable[[Array], Array | None], rows: int, direction: Array, length: float, sign: bool
) -> Iterator[Array]:
    """Differences of gradients between neighbouring thresholds along a direction, one row each.

    At models so long slopes are 0 or 1, and the last number times the rows counts them; the
    interval with most rows is halved. ``sign``: every second threshold is asked by the opposite
    model, whose slopes are the other ones: g(w) + g(-w) = 2 g(0).
    """
    turned: dict[bool, Array] = {}
    zero = ask(0 * direction)

    def at(threshold: float, opposite: bool) -> Array | None:
        w = length * direction
        w[-1] = -length * threshold
        if not opposite or zero is None:
            return ask(w)
        g = ask(-w)
        return None if g is None else 2 * zero - g

    low, high = at(-6.0, False), at(6.0, sign)
    if low is None or high is None:
        return
    del turned
    todo = [(-6.0, 6.0, low, high, False)]
    while todo:
        todo.sort(key=lambda each: abs(each[3][-1] - each[2][-1]))
        a, b, first, last, side = todo.pop()
        inside = round(abs(last[-1] - first[-1]) * rows)
        if inside <= 1 or b - a < 1e-9:
            yield last - first
            continue
        middle = (a + b) / 2
        found = at(middle, sign and not side)
        if found is None:
            yield last - first
            continue
        todo += [(a, middle, first, found, side), (middle, b, found, last, not side)]


def long_models(asker: Asker, length: float = 1e7, sign: bool = False) -> Array:
    """Slopes are steps at long models: between two thresholds there is one row."""
    ask, found = gradients(asker), []
    try:
        for direction in asker.directions():
            before = asker.left
            found += _steps(ask, asker.rows, direction, length, sign)
            if asker.left == before or len(found) >= 2 * asker.rows:
                break
    except SpentError:
        pass
    return as_rows(np.array(found).reshape(-1, asker.features + 1))


def tiny_pairs(asker: Asker, length: float = 29.0, apart: float = 1e-9) -> Array:
    """Two models so near that single precision tells none of their slopes apart, at a threshold
    where few rows are between the two ends of their slopes.
    """
    ask, found = gradients(asker), []
    rng = np.random.default_rng(1)
    try:
        for direction in asker.directions():
            w = length * direction
            w[-1] = -length * rng.uniform(1.0, 2.5) * rng.choice([-1, 1])
            w *= length / np.linalg.norm(w)
            one, other = ask(w), ask(w * (1 + apart))
            if one is None and other is None and len(found) == 0 and asker.left < MOST - 50:
                break
            if one is not None and other is not None:
                found.append(other - one)
    except SpentError:
        pass
    combined = np.array(found).reshape(-1, asker.features + 1)
    last = combined[:, -1:]
    return combined[:, :-1] / np.where(last == 0, np.nan, last)


def curved(asker: Asker, length: float = 29.0) -> Array:
    """Curvatures at models of allowed length whose threshold is among the last rows."""
    run, found = asker.run(SMOOTH, qr.Bundle()), []
    rng = np.random.default_rng(1)
    try:
        for direction in asker.directions():
            w = length * direction
            w[-1] = -length * rng.uniform(1.0, 2.5) * rng.choice([-1, 1])
            w *= length / np.linalg.norm(w)
            told = run.ask(Evaluate(w, stored(Parts(1, 1, 1)), np.ones(1)))
            if told is None and asker.left < MOST - 50 and not found:
                break
            if told is not None:
                found.append(told.curvature[0])
    except SpentError:
        pass
    D = asker.features + 1
    H = np.array(found).reshape(-1, D, D)
    return as_rows(H[:, -1]) if len(H) else np.zeros((0, D - 1))


def batches(asker: Asker, batch: int = 1) -> Array:
    """`FedAvg(batch=1)` steps along the gradient of one row."""
    from quorate.algorithms.comparators.local_steps import Descend

    run, found = asker.run(MEAN, qr.FedAvg(batch=batch, local_steps=1)), []
    w = np.zeros(asker.features + 1)
    refused = 0
    try:
        while refused < 20:
            told = run.ask(Descend(w, np.ones(1), 1.0, 0.0, 0))
            refused += told is None
            if told is not None:
                found.append(told.change[0])
    except SpentError:
        pass
    return as_rows(np.array(found).reshape(-1, len(w)))


def solved(incidence: Sequence[Array], answers: Sequence[Array]) -> Array:
    """The terms of sums of which it is known what each adds up; those that the sums determine."""
    A, b = np.array(incidence, float), np.array(answers)
    u, s, vt = np.linalg.svd(A, full_matrices=False)
    kept = s > 1e-9 * s[0]
    sure = (vt[kept] ** 2).sum(0) > 1 - 1e-9  # unit vectors in the span of the sums
    terms = vt[kept].T @ ((u[:, kept].T @ b) / s[kept, None])
    return as_rows(terms[sure])


def subsets(asker: Asker, share: float = 0.5) -> Array:
    """`FedAvg(batch=m / 2)` adds up rows that the server's seed draws: it knows which, and solves.

    Every answer, and every difference of two, is a sum over half of the rows.
    """
    from quorate.algorithms.comparators.local_steps import Descend

    m, w = asker.rows, np.zeros(asker.features + 1)
    batch = max(1, round(share * m))
    run, drawn, found = asker.run(MEAN, qr.FedAvg(batch=batch, local_steps=1)), [], []
    try:
        for _ in range(m + 20):
            turn = run.turn
            told = run.ask(Descend(w, np.ones(1), 1.0, 0.0, 0))
            if told is None:
                break
            rows = stream(run.seed, asker.site, turn).permutation(np.arange(m))[:batch]
            drawn.append(np.isin(np.arange(m), rows) / batch)
            found.append(told.change[0])
    except SpentError:
        pass
    return solved(drawn, found) if found else np.zeros((0, asker.features))


def certificate_rows(asker: Asker) -> Array:
    """A certificate's multipliers of rows, of the server's choice: one row."""
    run, found = asker.run(MEAN, Certification(np.zeros(1))), []
    D, m = asker.features + 1, asker.rows
    try:
        for j in range(m):
            row = np.eye(m)[j]
            for alpha in (row, -row):
                told = run.ask(
                    Certify(np.zeros(D), np.zeros((0, D)), np.zeros((1, 0)), alpha[None])
                )
                if told is None:
                    return as_rows(np.array(found).reshape(-1, D))
                if np.abs(told.gradient[0, -1]) > 0:
                    found.append(told.gradient[0])
                    break
    except SpentError:
        pass
    return as_rows(np.array(found).reshape(-1, D))


def tails(asker: Asker) -> Array:
    """Neighbouring tails: k times the mean of the k largest losses, less the same of k - 1, is the
    k-th row, though the difference of the two means hangs on nearly four rows.
    """
    m, before, found = asker.rows, None, []
    w = 0.3 * next(asker.directions())
    first = max(10, m - MOST // 4)
    try:
        for k in range(first, m + 1):
            problem = replace(SMOOTH, over_samples=qr.Superquantile(k / m))
            g = gradients(asker, problem)(w)
            if g is not None and before is not None:
                found.append(k * g - (k - 1) * before)
            before = g
            if g is None and k > first + 20 and not found:
                break
    except SpentError:
        pass
    return as_rows(np.array(found).reshape(-1, len(w)))


def levels(asker: Asker) -> Array:
    """The multiplier of a Wasserstein ball is the margin of one row, over the cost of a label: at
    d + 2 models near each other it is the same row's.
    """
    d, found = asker.features, []
    cost = 0.5
    runs = [
        asker.run(
            replace(SMOOTH, over_samples=qr.WassersteinBall(cost * share, cost, "l2")), qr.Bundle()
        )
        for share in (0.1, 0.2, 0.3)
    ]
    refused = 0
    try:
        for direction in asker.directions():
            for run in runs:
                models = [direction, *(direction + 1e-5 * e for e in np.eye(d + 1))]
                told = [run.ask(Evaluate(w, stored(Parts(1, 1, 0)))) for w in models]
                if any(each is None for each in told):
                    refused += 1
                    if refused > 20:
                        raise SpentError
                    continue
                level = np.array([cost * float(each.level[0]) for each in told])
                slope = (level[1:] - level[0]) / 1e-5  # y (x, 1) where the floor is not met
                found.append(slope)
    except SpentError:
        pass
    return as_rows(np.array(found).reshape(-1, d + 1))


RANKED = Problem(qr.Logistic(), over_rows=qr.Extremile(2.0), regulariser=qr.L2(1e-3))


def _margins(losses: Array) -> Array:
    """The margins of which logistic losses are these."""
    with np.errstate(all="ignore"):
        return -np.log(np.expm1(losses))


def largest(asker: Asker) -> Array:
    """The largest loss at d + 2 models near each other is that of one row."""
    d, found, refused = asker.features, [], 0
    run = asker.run(RANKED, qr.RankBundle())
    try:
        for direction in asker.directions():
            models = [direction, *(direction + 1e-5 * e for e in np.eye(d + 1))]
            told = [run.ask(Tally(w, np.zeros(1))) for w in models]
            refused += any(each is None for each in told)
            if refused > 20:
                break
            if all(each is not None for each in told):
                for losses in (
                    np.array([float(each.largest[0]) for each in told]),
                    -np.array([float(each.smallest[0]) for each in told]),
                ):
                    margin = _margins(losses)
                    found.append((margin[1:] - margin[0]) / 1e-5)
    except SpentError:
        pass
    return as_rows(np.array(found).reshape(-1, d + 1))


def _all_losses(run: Run, w: Array, m: int, low: float, high: float) -> Array | None:
    """Every loss at a model, by counts above thresholds that close in on each."""
    edges = np.linspace(low, high, 16_000)
    below, above = np.full(m, low), np.full(m, high)
    for _ in range(8):
        told = run.ask(Tally(w, edges))
        if told is None:
            return None
        under = m - told.above[0]  # rows at or below each edge
        place = np.searchsorted(under, np.arange(1, m + 1))
        ends = np.concatenate([[low], edges, [high]])
        below, above = ends[place], ends[place + 1]
        if (above - below).max() < 1e-15:
            break
        each = max(2, 16_000 // m)
        edges = np.unique(np.linspace(below, above, each + 2, axis=1))
    return (below + above) / 2


def counts(asker: Asker) -> Array:
    """Counts above thresholds tell every loss at d + 2 models near each other, in one order."""
    d, m = asker.features, asker.rows
    run, found = asker.run(RANKED, qr.RankBundle()), []
    try:
        for direction in asker.directions():
            models = [direction, *(direction + 1e-6 * e for e in np.eye(d + 1))]
            losses = [_all_losses(run, w, m, 0.0, 20.0) for w in models]
            if any(each is None for each in losses) or asker.left < MOST - 400:
                break
            margins = np.array([_margins(each) for each in losses])
            found.append(((margins[1:] - margins[0]) / 1e-6).T)
    except SpentError:
        pass
    return as_rows(np.concatenate([*found, np.zeros((0, d + 1))]))


def slices(asker: Asker) -> Array:
    """Weights of bins of losses, of the server's choice: sums over random halves of the rows, which
    it knows by their places in the order of losses.
    """
    m, w = asker.rows, next(asker.directions())
    run, rng = asker.run(RANKED, qr.RankBundle()), np.random.default_rng(0)
    drawn, found = [], []
    try:
        losses = _all_losses(run, w, m, 0.0, 20.0)
        if losses is None:
            return np.zeros((0, len(w) - 1))
        edges = (losses[1:] + losses[:-1]) / 2
        none = np.zeros(1)
        for _ in range(m + 20):
            weights = (rng.random(m) < 0.5) / m
            told = run.ask(Slice(w, edges, weights, none[:0], none))
            if told is None:
                break
            drawn.append(weights)
            found.append(told.gradient[0])
    except SpentError:
        pass
    return solved(drawn, found) if found else np.zeros((0, len(w) - 1))


def groups(asker: Asker) -> Array:
    """Sums over groups of at least ten rows, the j-th in group j mod G, for all G at one model."""
    m, w = asker.rows, np.zeros(asker.features + 1)
    run, known, found = asker.run(SMOOTH, qr.Bundle()), [], []
    try:
        for G in range(1, m // 10 + 1):
            told = run.ask(Evaluate(w, stored(Parts(G, 10, 0))))
            if told is None:
                continue
            for g, gradient in enumerate(told.gradient[0]):
                known.append((np.arange(m) % G == g) / m)
                found.append(gradient)
            if len(found) > 3 * m:
                break
    except SpentError:
        pass
    return solved(known, found) if found else np.zeros((0, len(w) - 1))


ASKERS: dict[str, Callable[[Asker], Array]] = {
    "long models": long_models,
    "long models of both signs": partial(long_models, sign=True),
    "steep models": partial(long_models, length=29.0),
    "steep models of both signs": partial(long_models, length=29.0, sign=True),
    "tiny pairs": tiny_pairs,
    "curvatures": curved,
    "batches of one": batches,
    "known subsets": subsets,
    "multipliers of rows": certificate_rows,
    "neighbouring tails": tails,
    "levels of balls": levels,
    "largest losses": largest,
    "counts of losses": counts,
    "slices of losses": slices,
    "groups of rows": groups,
}


def attack(it: World, asker: str, site: str = NAMES[0]) -> set[int]:
    """The rows of a site that an asker reads by its 1,000 questions."""
    return it.read(site, ASKERS[asker](Asker(it, site)))
