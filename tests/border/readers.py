"""What a server reads of the rows of sites, from all that passes between it and them.

    g = sum_j s_j (x_j, 1)

An answer about rows is a sum of slopes s_j times features. A combination of answers in which one
slope is left is proportional to one row: its features are the first numbers over the last one,
which belongs to the intercept.

A `World` has sites with tables and the policy that `first_site` writes; its `Wire` keeps a
transcript: every question and the decoded answer, as the server has them. `READERS` look for rows
in the transcript of honest runs, and return guesses; only `World.read`, which counts the true rows
among these, knows the tables. `border.askers` has servers that follow no algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

import bonafed as bf
from bonafed.arrays import Array
from bonafed.data.schema import declared_schema
from bonafed.engines.network import Network
from bonafed.engines.wire import Envelope, LocalTransport
from bonafed.problem.problem import Problem
from bonafed.rounds import FIELDS, decode, encode
from bonafed.sites.guard import Guard
from bonafed.sites.party import Party, open_party
from bonafed.sites.rows import Roles, of_site
from bonafed.sites.session import agree
from bonafed.sites.site_file import first_site, read_site

NAMES = ("east", "north", "south")
CLOSE = 1e-4  # a guess is a row where all features are so near, in units of the columns
LONGEST = 60  # answers of one site and group among which triples are tried

Tables = Mapping[str, tuple[Array, Array]]  # by site features (m, d) and targets (m,)

# ------------------------------------------------------------- problems of honest runs, by targets

CLASSES = {"sign": ("no", "yes"), "real": None, "class": ("ill", "sick", "well")}
MEAN = Problem(bf.Logistic(), regulariser=bf.L2(1e-3))
ROBUST = replace(MEAN, over_clients=bf.LpBall(0.2))
ROBUSTLY = {"over_clients": bf.LpBall(0.2), "regulariser": bf.L2(1e-3)}
PROBLEMS: dict[str, tuple[str, Problem]] = {
    "logistic": ("sign", ROBUST),
    "logistic, mean": ("sign", MEAN),
    "logistic, ball": (
        "sign",
        Problem(bf.Logistic(), over_samples=bf.WassersteinBall(0.05, 0.5, "l2"), **ROBUSTLY),
    ),
    "logistic, worst half": (
        "sign",
        Problem(bf.Logistic(), over_samples=bf.Superquantile(0.5), **ROBUSTLY),
    ),
    "logistic, worst half of all": (
        "sign",
        Problem(bf.Logistic(), over_rows=bf.Superquantile(0.5), regulariser=bf.L2(1e-3)),
    ),
    "logistic, all by rank": (
        "sign",
        Problem(bf.Logistic(), over_rows=bf.Extremile(2.0), regulariser=bf.L2(1e-3)),
    ),
    "logistic, parity": (
        "sign",
        Problem(
            bf.Logistic(), regulariser=bf.L2(1e-3), local_constraint=bf.NeymanPearson("yes", 0.6)
        ),
    ),
    "hinge": ("sign", Problem(bf.Hinge(), **ROBUSTLY)),
    "smooth hinge": ("sign", Problem(bf.SmoothHinge(), **ROBUSTLY)),
    "Huber": ("real", Problem(bf.Huber(0.5), **ROBUSTLY)),
    "squared": ("real", Problem(bf.Squared(), **ROBUSTLY)),
    "absolute": ("real", Problem(bf.Absolute(), **ROBUSTLY)),
    "multinomial": ("class", Problem(bf.Multinomial(), **ROBUSTLY)),
}

# ---------------------------------------------------------------------------- sites, transcript


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
    scores : numbers that a model predicts for a row: one, or one for each of several classes
    """

    wire: Wire
    roles: Roles
    tables: Tables
    scores: int = 1

    def solve(
        self, experiment: str, problem: Problem, masked: bool | None = None, **settings: Any
    ) -> Any:
        """An honest run with its certificate."""
        carrier = self.wire.carrier()
        agreed = agree(carrier, experiment, problem, roles=self.roles.text(), patience=600.0)
        engine = Network(agreed.session, secure_sum=masked)
        solution = bf.solve(agreed.problem, agreed.metadata, engine=engine, **settings)
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
    place: Path, tables: Tables, classes: Sequence[str] | None = ("no", "yes"), guarded: bool = True
) -> World:
    """Sites whose folders are in ``place``, with the policy that `first_site` writes, or with none
    where they are not ``guarded``; targets are numbers of ``classes``, or any where it is None.
    """
    features = [f"x{k}" for k in range(next(iter(tables.values()))[0].shape[1])]
    for name, (X, y) in tables.items():
        target = [repr(float(v)) if classes is None else classes[int(v)] for v in y]
        lines = [",".join((*map(repr, row), t)) for row, t in zip(X.tolist(), target, strict=True)]
        (place / name).mkdir(parents=True)
        (place / name / "rows.csv").write_text("\n".join([",".join((*features, "y")), *lines]))
        (place / name / "site.toml").write_text(first_site(name, "rows.csv"))
    schema = declared_schema(features, {name: {} for name in features}, "y", classes)
    roles = Roles("y", schema.to_dict(), classes=None if classes is None else tuple(classes))
    opened = open_party if guarded else unguarded
    wire = Wire({name: opened(place / name, name) for name in tables})
    return World(wire, roles, tables, len(classes) if classes and len(classes) > 2 else 1)


def unguarded(folder: Path, name: str) -> Party:
    """A site without policy and log, which answers everything."""
    return Party(name, of_site(read_site(folder), b""), folder / "state", Guard(None))


def made(m: int, d: int = 3, targets: str = "sign", seed: int = 0, heavy: bool = False) -> Tables:
    """Three tables of m rows: standard normal features, or ``heavy`` tailed ones (Student's t of 3
    degrees), and targets of a linear rule with noise.
    """
    rng, tables = np.random.default_rng(seed), {}
    for name in NAMES:
        X = rng.standard_t(3, size=(m, d)) if heavy else rng.normal(size=(m, d))
        rule = rng.normal(size=d)
        z = X @ rule + rng.normal(size=m)
        three = np.digitize(z, [-0.7, 0.7])
        tables[name] = (X, {"sign": (z > 0) * 1.0, "real": z, "class": three * 1.0}[targets])
    return tables


# ------------------------------------------------------------------------- readers of honest runs


@dataclass(frozen=True)
class Sums:
    """What a site has told about one group of its rows: gradients (n, D), curvatures (k, D, D)."""

    gradients: Array
    curvatures: Array


def told_sums(told: Sequence[Told], site: str, d: int, scores: int = 1) -> Iterator[Sums]:
    """All arrays of a site's answers that are as wide as a model of d features, by the place where
    they stand: those of one group may be about the same rows.

    A weight of the client in the message is divided out; the server knows it. Where a model has
    several ``scores`` a row, there is a gradient for each of them.
    """
    width = (d + 1) * scores
    vectors: dict[Any, list[Array]] = {}
    squares = [np.zeros((0, d + 1, d + 1))]
    for each in told:
        if each.site != site or type(each.answer) not in FIELDS:
            continue
        for value in vars_of(each.answer):
            if value.shape == (1, width, width):
                squares += [value[:, ::scores, ::scores] / q for q in scales(each.ask)]
            elif value.ndim in (2, 3) and len(value) == 1 and value.shape[-1] == width:
                groups = value.reshape(-1, d + 1, scores)
                for g, vector in enumerate(groups):
                    of = vectors.setdefault((g, len(groups)), [])
                    of.extend(vector / q for q in scales(each.ask))
    for found in vectors.values():
        for score in np.moveaxis(np.array(found), 2, 0):
            yield Sums(np.unique(score, axis=0), squares[0])
    yield Sums(np.zeros((0, d + 1)), np.concatenate(squares))


def vars_of(answer: Any) -> list[Array]:
    """The arrays of numbers of an answer."""
    values = [getattr(answer, name) for name in FIELDS[type(answer)]]
    return [v for v in values if isinstance(v, np.ndarray) and v.dtype.kind == "f"]


def scales(ask: Any) -> list[float]:
    """By what an answer may have been multiplied: 1, and the weight of the client."""
    weight = getattr(ask, "weights", None)
    mine = [] if weight is None or np.size(weight) != 1 else [float(np.ravel(weight)[0])]
    return [q for q in (1.0, *mine) if q]


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
    """Sums of two answers less a third, once and twice."""
    g = sums.gradients
    if len(g) > LONGEST:
        g = g[np.random.default_rng(0).choice(len(g), LONGEST, replace=False)]
    i, j = np.triu_indices(len(g), 1)
    both = g[i] + g[j]
    found = [as_rows(both - c * third) for third in g for c in (1.0, 2.0)]
    return np.concatenate([g[:0, 1:], *found])


def curvatures(sums: Sums) -> Array:
    """Curvatures, and differences of two, that have one eigenvalue, whose eigenvector is a row."""
    H = sums.curvatures
    i, j = np.triu_indices(len(H), 1)
    sizes, vectors = np.linalg.eigh(np.concatenate([H, H[i] - H[j]]))
    ordered, first = np.sort(np.abs(sizes), 1), np.abs(sizes).argmax(1)
    sharp = ordered[:, -2] < 1e-6 * ordered[:, -1]
    return as_rows(np.take_along_axis(vectors, first[:, None, None], 2)[sharp, :, 0])


def counted(sums: Sums) -> Array:
    """Differences of the curvatures' last rows, which are sums of curvatures times features."""
    return pairs(Sums(sums.curvatures[:, -1], sums.curvatures[:0]))


READERS: dict[str, Callable[[Sums], Array]] = {
    "pairs": pairs,
    "triples": triples,
    "curvatures": curvatures,
    "last rows of curvatures": counted,
}


def read_by(it: World, reader: str) -> int:
    """How many rows of all sites a reader finds in what has been told."""
    found = 0
    for site, (X, _) in it.tables.items():
        rows: set[int] = set()
        for sums in told_sums(it.wire.told, site, X.shape[1], it.scores):
            rows |= it.read(site, READERS[reader](sums))
        found += len(rows)
    return found
