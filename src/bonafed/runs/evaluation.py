"""A model judged on rows that it was not trained on: losses, figures that people use, and the worst
client; a risk by rank of any losses and its interval; constraints and their error rates.

    R(z) = sum_k (S(k / m) - S((k - 1) / m)) z_[k],        S the cumulative spectrum of the risk

of any m losses. A risk that counts ranks, such as ``TopK(k)``, was stated for the rows trained on:
on other rows the same shares of the losses count, and S runs linearly between its ranks.

Two models are compared on the same rows. Rows drawn again with replacement (bootstrap) say how far
the difference of their risks would move on other rows: where row i is drawn c_i times, the k-th
loss weighs S(C_k / m) - S(C_{k-1} / m), and C_k is the number of rows drawn up to it. Where five
rows carry most of the risk, as for the maximum, this shows nothing, and no margin is stated.

A constraint bounds a mean loss or a mean score, because error rates are neither convex nor
continuous. Its *rate* is what a reader has in mind: the same mean over the same groups, of phi = 1
where a row is predicted wrongly instead of the loss, and of phi = 1 where the larger class is
predicted instead of the score or probability. A proof is about the rows trained on; on others a
constraint may be violated. There the level of a client holds for that client only, and a constraint
on groups is left out where a set has fewer than two of them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array, stream
from bonafed.data.federation import Federation
from bonafed.fairness import fairness_metrics, group_rates
from bonafed.measures import small
from bonafed.problem.calibration import Sigmoid
from bonafed.problem.constraints.constraint import Concrete, Point, Stack, Stated, several
from bonafed.problem.constraints.group_means import Coupled, Measure, OfLoss, OnRows, Shared
from bonafed.problem.losses import Loss, expected
from bonafed.problem.predictors.affine import scores
from bonafed.problem.problem import Problem
from bonafed.problem.risks import ranks
from bonafed.problem.risks.risk import Risk
from bonafed.runs.files import Record
from bonafed.solution.predictions import drawn, figures, promised
from bonafed.solution.tables import SERVER, TOGETHER, constraint_rows
from bonafed.worst_client import worst_first

POINTS, CLIENT_POINTS = 101, 21  # of the ROC curve of all rows, and of a client's


class Judged(NamedTuple):
    """The rows of a client under a model: the loss of each, its merit (1 or 0, right or wrong; or
    minus the absolute error), y as the loss has it, and the prediction.
    """

    loss: Array
    merit: Array
    y: Array
    prediction: Array


def rows_of(problem: Problem, w: Array, fed: Federation) -> list[Judged]:
    """How a model does on every client's rows."""
    rows = []
    for X, y in zip(fed.X, fed.y, strict=True):
        if problem.loss.targets == "class":
            coded = (y[:, None] == np.asarray(fed.classes)).argmax(1).astype(float)
        elif problem.loss.targets == "sign":
            coded = np.where(y == fed.classes[1], 1.0, -1.0)  # type: ignore[index]
        else:
            coded = y.astype(float)
        rows.append(judged(problem.loss, scores(problem.predictor, w, X), coded))
    return rows


def judged(loss: Loss, prediction: Array, coded: Array) -> Judged:
    """How predictions do on rows whose targets are coded as the loss has them."""
    if loss.targets == "class":
        merit = (prediction.argmax(1) == coded).astype(float)
    elif loss.targets == "sign":
        merit = (np.where(prediction > 0, 1.0, -1.0) == coded).astype(float)
    else:
        merit = -np.abs(expected(loss, prediction) - coded)
    return Judged(loss.value(prediction, coded), merit, coded, prediction)


def losses_of(problem: Problem, w: Array, fed: Federation) -> list[Array]:
    """The losses of every client's rows."""
    return [rows.loss for rows in rows_of(problem, w, fed)]


def together(rows: Sequence[Judged]) -> Judged:
    """The rows of all clients."""
    return Judged(*map(np.concatenate, zip(*rows, strict=True)))


def judge(
    problem: Problem,
    w: Array,
    fed: Federation,
    trained: int | None = None,
    calibration: Sigmoid | None = None,
    main: bool = False,
    chosen: bool = False,
) -> Record:
    """What `measure` states, with the figures of `bonafed.measures` over all rows and for every
    client, which says whether it is small. Of the ``main`` model also what is drawn of two classes,
    for all rows and clients that are not small, and what is promised of new rows, unless it may
    have been ``chosen`` by these.
    """
    rows = rows_of(problem, w, fed)
    numbers = measure(problem, w, fed, trained, rows)
    whose, everyone = fed.whose
    parts = zip((together(rows), *rows), (everyone, *whose), strict=True)
    for record, (part, who) in zip((numbers, *numbers["clients"]), parts, strict=True):
        judged = figures(problem.loss, part.prediction, part.y, calibration, persons=who)
        record |= {**judged, "small": small(judged)}
        if main and (record is numbers or not record["small"]):
            points = CLIENT_POINTS if record is not numbers else POINTS
            lines = drawn(problem.loss, part.prediction, part.y, calibration, points)
            record |= {} if lines is None else {"curves": lines}
    if main and chosen:
        numbers["unstated"] = "chosen"
    elif main:
        known = [part.prediction for part in rows], [part.y for part in rows], calibration
        numbers |= promised(problem.loss, numbers["clients"], *known, fed.persons)
    return numbers


def measure(
    problem: Problem,
    w: Array,
    fed: Federation,
    trained: int | None = None,
    rows: list[Judged] | None = None,
) -> Record:
    """Mean loss and accuracy (or mean absolute error) over all rows, and those of the worst client.

    With a risk by rank also that risk of the losses, and for two classes the fairness between
    clients; ``trained`` is the number of rows that a risk of counted ranks was stated for, ``rows``
    what `rows_of` gives.
    """
    rows = rows or rows_of(problem, w, fed)
    name, sign = merit_of(problem.loss)
    every = [
        {"n": len(each.merit), "loss": float(each.loss.mean())}
        | {name: float(sign * each.merit.mean())}
        for each in (together(rows), *rows)
    ]
    clients = [{"client": c, **row} for c, row in zip(fed.clients, every[1:], strict=True)]
    numbers = {**every[0], "clients": clients, **worst_of(problem.loss, clients)}
    return numbers | _by_rank(problem, rows, fed, clients, trained) | summary(problem, w, fed)


def merit_of(loss: Loss) -> tuple[str, float]:
    """What the merit of rows is called, and the sign that makes a larger one better."""
    return ("error", -1.0) if loss.targets == "real" else ("accuracy", 1.0)


def worst_of(loss: Loss, clients: Sequence[Record]) -> Record:
    """The clients at which a model does worst, by loss and by merit."""
    name, sign = merit_of(loss)
    worst = worst_first(clients, "loss", False)[0]
    least = worst_first(clients, name, sign > 0)[0]
    return {
        "worst_loss": worst["loss"],
        "worst_loss_client": worst["client"],
        f"worst_{name}": least[name],
        f"worst_{name}_client": least["client"],
    }


def _by_rank(
    problem: Problem, rows: list[Judged], fed: Federation, clients: list[Record], n: int | None
) -> Record:
    """What `measure` adds for a risk by rank; the clients get their own risks."""
    risk = problem.over_losses
    if not ranks.by_rank(risk):
        return {}
    for client, row in zip(clients, rows, strict=True):
        client["risk"] = risk_of(risk, row.loss, n)
    numbers: Record = {"risk": risk_of(risk, together(rows).loss, n)}
    if problem.loss.targets == "sign":
        chosen = [np.where(row.merit > 0, row.y, -row.y) for row in rows]
        numbers["fairness"] = fairness([row.y for row in rows], chosen, fed.names)
    return numbers


# ------------------------------------------------------------------------------------ risks by rank

DRAWS = 400  # of the bootstrap
# a risk that so many largest losses carry by half has no margin, and the least that a curve's
# group holds
FEW = 5
GROUPS = 100  # of a curve, at most
COUNTED = (ranks.TopK, ranks.RankedRange, ranks.Spectral)  # stated for a number of rows


class OneSided(Protocol):
    """A risk with one sequence of weights by rank."""

    def rank_weights(self, n: int) -> Array: ...


RankRisk: TypeAlias = OneSided | ranks.ProspectTheory


def cumulative(risk: RankRisk, m: int, rows: int | None) -> tuple[Array, Array]:
    """The cumulative spectrum S at 0, 1/m, ..., 1, below and above the risk's reference, each
    (m + 1,); both are the same for a risk without a reference.

    ``rows`` is the number of rows that a risk of counted ranks was stated for; None: m.
    """
    if isinstance(risk, ranks.ProspectTheory):
        return _sums(risk.rank_weights_below(m)), _sums(risk.rank_weights_above(m))
    n = rows if rows is not None and isinstance(risk, COUNTED) else m
    S = _sums(risk.rank_weights(n))
    S = S if n == m else np.interp(np.arange(m + 1) / m, np.arange(n + 1) / n, S)
    return S, S


def _sums(sigma: Array) -> Array:
    return np.concatenate([[0.0], np.cumsum(sigma)])


def risk_of(risk: RankRisk, losses: Array, rows: int | None = None) -> float:
    """The risk R of losses (m,)."""
    z, (below, above) = np.sort(losses), cumulative(risk, len(losses), rows)
    sigma = ranks.two_sided(np.diff(below), np.diff(above), getattr(risk, "reference", math.inf), z)
    return float(sigma @ z)


def risk_saved(
    risk: RankRisk, losses: Array, other: Array, rows: int | None = None
) -> tuple[float, float | None]:
    """How much lower R(losses) is than R(other), both (m,) of the same rows, and half the width of
    its 95 % interval.

    None where five rows carry most of the risk.
    """
    m = len(losses)
    saved = risk_of(risk, other, rows) - risk_of(risk, losses, rows)
    S = cumulative(risk, m, rows)
    if m <= FEW or S[1][-1] - S[1][m - FEW] > 0.5:
        return saved, None
    reference = getattr(risk, "reference", math.inf)
    orders = [np.argsort(each, kind="stable") for each in (other, losses)]
    rng, drawn = stream(0, "bootstrap", 0), np.empty(DRAWS)
    for k in range(DRAWS):
        counts = np.bincount(rng.integers(m, size=m), minlength=m)
        first = _drawn(S, counts[orders[0]], other[orders[0]], reference)
        drawn[k] = first - _drawn(S, counts[orders[1]], losses[orders[1]], reference)
    return saved, 1.96 * float(drawn.std(ddof=1))


def _drawn(S: tuple[Array, Array], counts: NDArray[np.intp], z: Array, reference: float) -> float:
    """R of the sorted losses z (m,), each ``counts`` times."""
    C = np.concatenate([[0], np.cumsum(counts)])
    return float(np.where(z <= reference, np.diff(S[0][C]), np.diff(S[1][C])) @ z)


def fairness(truth: Sequence[Array], chosen: Sequence[Array], names: Sequence[str]) -> Record:
    """The fairness metrics of `bonafed.fairness` between the largest client and all others, and
    rates by client.

    ``truth`` and ``chosen`` hold -1 and 1, one array per client.
    """
    y, predicted, sizes = np.concatenate(truth), np.concatenate(chosen), [len(t) for t in truth]
    group = np.repeat(np.asarray(names, dtype=object), sizes)
    if len(names) < 2 or not ((y > 0).any() or (predicted > 0).any()):
        return {}
    largest = names[int(np.argmax(sizes))]
    rates = {
        str(name): {key: getattr(rate, key) for key in ("selected", "tpr", "fpr")}
        for name, rate in group_rates(y, predicted, group).items()
    }
    metrics = fairness_metrics(y, predicted, group, largest)
    return {"privileged": largest, **metrics, "rates": rates}


def row_weights(risk: Risk, losses: Array) -> Array:
    """The weight of every loss (m,) in R; equal ones where losses are not ranked."""
    return risk.weights(losses) if ranks.by_rank(risk) else np.full(len(losses), 1 / len(losses))


def curve(losses: Array, weights: Array) -> dict[str, list[float]]:
    """Sorted losses (n,) in groups of neighbours, five or more each: where a group ends, its mean
    loss and weight.

    ``share`` ends at 1; a ``weight`` of 1 is that of the mean.
    """
    n, order = len(losses), np.argsort(losses, kind="stable")
    edges = np.round(np.linspace(0, n, min(max(n // FEW, 1), GROUPS) + 1)).astype(int)
    size = np.diff(edges)
    return {
        "share": (edges[1:] / n).tolist(),
        "loss": (np.add.reduceat(losses[order], edges[:-1]) / size).tolist(),
        "weight": (np.add.reduceat(weights[order], edges[:-1]) / size * n).tolist(),
    }


# -------------------------------------------------------------------------------------- constraints

TRAINING = "training rows"


def asked(problem: Problem) -> bool:
    """Whether the problem is one for the methods for constraints."""
    return problem.constrained or getattr(problem.over_samples, "label", None) is not None


@dataclass(frozen=True)
class Decided(Measure):
    """The measure phi = 1 where the larger class is predicted, or where a row is ``wrong``."""

    wrong: bool

    def value(self, prediction: Array, y: Array) -> Array:
        chosen = prediction > 0
        return (chosen != (y > 0) if self.wrong else chosen).astype(float)


def as_rate(part: Concrete) -> Concrete | None:
    """The constraint with rates in place of losses and scores, and no level; None where it has no
    rate.
    """
    if isinstance(part, Shared):
        inner = as_rate(part.one)
        return None if inner is None else replace(part, one=inner)
    if not isinstance(part, OnRows):
        return None
    measure = Decided(wrong=isinstance(part.measure, OfLoss))
    return replace(part, measure=measure, level=np.zeros_like(part.level))


def _rates(stack: Stack, point: Point) -> Array:
    """(p,) the rates of the one owner of the block; NaN where there are none."""
    rates = [np.zeros(0)]
    for part in stack.parts:
        rate = as_rate(part) if point.problem.loss.targets == "sign" else None
        rates.append(np.full(len(part.equality), np.nan) if rate is None else rate.values(point)[0])
    return np.concatenate(rates)


def kept(problem: Problem, w: Array, fed: Federation, other: bool = True) -> list[Record]:
    """One row for every constraint and owner: owner, constraint, limit, measured, slack, met, rate.

    ``problem``, ``fed`` as stated; ``other``: not the rows trained on, where only constraints on
    rows are evaluated, as far as they can be.
    """
    concrete, data = (_elsewhere(problem, fed) if other else problem).at(fed)
    points = [Point(concrete, w, data.block(i)) for i in range(data.n_clients)]
    glob, local, rows = concrete.constraint, concrete.local_constraint, []
    if glob.held.size:
        rows += _rows(SERVER, glob.held, [glob.point(concrete, w)])
    if glob.coupled.size:
        rows += _rows(TOGETHER, glob.coupled, points)
    for name, point in zip(data.names, points, strict=True):
        rows += _rows(name, local, [point])
    return rows


def _rows(owner: str, stack: Stack, points: Sequence[Point]) -> list[Record]:
    """The rows of an owner: of its point, or the sums over the points of all clients."""
    each = ((stack.limits(p.block)[0], stack.values(p)[0], _rates(stack, p)) for p in points)
    limits, values, rates = (np.sum(part, 0) for part in zip(*each, strict=True))
    rows = constraint_rows(owner, stack, limits, values, rates)
    for row in rows:  # which has the rate in the place of a multiplier
        row["rate"] = None if np.isnan(rate := row.pop("price")) else rate
    return rows


def _elsewhere(problem: Problem, fed: Federation) -> Problem:
    """The problem with those constraints that can be evaluated on other rows."""
    none = replace(problem, local_constraint=None, constraint=None)
    local = [_restated(one, fed) for one in several(problem.local_constraint, "local_constraint")]
    shared = [one for one in several(problem.constraint, "constraint") if isinstance(one, Coupled)]
    local = [one for one in local if _fits(replace(none, local_constraint=one), fed)]
    shared = [one for one in shared if _fits(replace(none, constraint=one), fed)]
    return replace(none, local_constraint=tuple(local), constraint=tuple(shared))


def _restated(one: Stated, fed: Federation) -> Stated | None:
    """A constraint with the levels of these clients only; None where a client has none."""
    level = getattr(one, "level", None)
    if not isinstance(level, Mapping):
        return one
    if any(client not in level for client in fed.clients):
        return None
    levels = {client: level[client] for client in fed.clients}
    return replace(one, level=levels)  # type: ignore[type-var]


def _fits(problem: Problem, fed: Federation) -> bool:
    try:
        return problem.constrained and bool(problem.at(fed))
    except ValueError:  # fewer than two groups, or a group without rows
        return False


def summary(problem: Problem, w: Array, fed: Federation) -> Record:
    """How many constraints are met on rows that were not trained on, and the largest violation;
    `bonafed.runs.evaluation.measure` adds it.
    """
    rows = kept(problem, w, fed) if problem.constrained else []
    if not rows:
        return {}
    worst = min(rows, key=lambda row: row["slack"])
    return {
        "asked": len(rows),
        "met": sum(row["met"] for row in rows),
        "excess": max(0.0, -worst["slack"]),
        "excess_owner": worst["owner"],
    }
