"""Problems with constraints, beside CVXPY programs of the same written from their definitions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
from omega import DUAL_P, box_rows, polytope_risk

import bonafed as bf
from bonafed.problem.losses import has_log_link

SIZES, FEATURES, CLASSES = (14, 12, 16), ("a", "b", "c"), 3
D = len(FEATURES) + 1  # numbers of a model, per class


@dataclass(frozen=True)
class Rows:
    """One client's rows as given, and its own linear constraint C w + d <= 0."""

    X: Any
    y: Any
    sex: Any
    C: Any
    d: Any


def clients(loss: Any, seed: int = 5) -> list[Rows]:
    """Three clients that differ, with two groups of rows that differ, of targets for a loss."""
    rng = np.random.default_rng(seed)
    rows = []
    for i, m in enumerate(SIZES):
        X, sex = rng.standard_normal((m, len(FEATURES))), rng.integers(0, 2, m)
        score = X @ [1.0, -0.5, 0.3 * i] + 0.8 * sex + rng.standard_normal(m)
        y = {
            "sign": np.where(score > 0.4, 1.0, -1.0),
            "class": np.digitize(score, [-0.4, 0.9]),
            "real": score,
            "quadratic": np.append(X[0], 0.5 - i),
        }[loss.targets]
        if has_log_link(loss):
            y = np.round(np.exp(0.4 * score))
        if loss.targets == "quadratic":
            square = np.hstack([X, np.ones((m, 1))])
            X = square.T @ square / m + 0.1 * np.eye(D)
        C = np.array([[1.0, 0.5 * i, -1.0, 1.0]])[:, : X.shape[1]]
        rows.append(Rows(X, y, sex, C, np.full(1, 0.1)))
    return rows


def federation(rows: list[Rows]) -> bf.Federation:
    if rows[0].X.shape[1] == D:  # of Quadratic; the server's own C and d come first
        of_all = (
            np.array([part, *(getattr(r, name) for r in rows)])
            for name, part in (("C", rows[0].C), ("d", rows[0].d))
        )
        return bf.Federation.from_quadratics([r.X for r in rows], [r.y for r in rows], *of_all)
    return bf.Federation(
        range(len(rows)),
        [r.X for r in rows],
        [r.y for r in rows],
        columns={"sex": [r.sex for r in rows]},
        feature_names=FEATURES,
        linear=[(r.C, r.d) for r in rows],
    )


def losses(loss: object, p: Any, y: Any) -> Any:
    """The losses of rows with predictions p, as an expression."""
    match loss:
        case bf.Hinge():
            return cp.pos(1 - cp.multiply(y, p))
        case bf.SmoothHinge():  # 1/2 - m <= (1 - m)^2 / 2, with equality of value and slope at 0
            short = cp.pos(1 - cp.multiply(y, p))
            return cp.huber(short, 1) / 2
        case bf.Logistic():
            return cp.logistic(-cp.multiply(y, p))
        case bf.Exponential():
            return cp.exp(-cp.multiply(y, p))
        case bf.Poisson():
            rest = [v - v * math.log(v) if v > 0 else 0.0 for v in y]
            return cp.exp(p) - cp.multiply(y, p) - np.array(rest)
        case bf.Absolute():
            return cp.abs(p - y)
        case bf.EpsilonInsensitive():
            return cp.pos(cp.abs(p - y) - loss.tolerance)
        case bf.Huber():
            return cp.huber(p - y, loss.threshold) / 2
        case bf.Quantile():
            return cp.maximum(loss.level * (y - p), (loss.level - 1) * (y - p))
        case bf.Squared():
            return cp.square(p - y) / 2
        case bf.Multinomial():
            return cp.log_sum_exp(p, axis=1) - cp.sum(cp.multiply(np.eye(CLASSES)[y], p), axis=1)
    raise TypeError(f"no oracle for {loss!r}")


def by_ranks(sigma: Any, each: Any) -> Any:
    """sum_k (sigma_k - sigma_(k-1)) (sum of the largest)."""
    rises = np.diff(sigma, prepend=0.0)
    return sum(rise * cp.sum_largest(each, each.size - k) for k, rise in enumerate(rises) if rise)


class Program:
    """The variables of a concrete problem, and its parts."""

    def __init__(self, problem: bf.Problem, rows: list[Rows]) -> None:
        self.problem, self.rows = problem, rows
        self.several = problem.loss.targets == "class"
        self.x = cp.Variable(D * (CLASSES if self.several else 1))
        self.wanted: list[Any] = []  # of the risks' own variables
        self.each: Any = None  # at least the losses of all rows: every use of them rises in them
        if problem.loss.targets != "quadratic":
            X, self.y = np.vstack([r.X for r in rows]), np.concatenate([r.y for r in rows])
            self.X = np.hstack([X, np.ones((len(X), 1))])
            self.each = cp.Variable(len(X))
            self.wanted.append(self.each >= self.losses())

    @property
    def W(self) -> Any:
        """(D, C) the coefficients of every class."""
        return cp.reshape(self.x, (D, CLASSES), order="C")

    def losses(self) -> Any:
        """Those of all rows, as an expression."""
        p = self.X @ (self.W if self.several else self.x)
        return losses(self.problem.loss, p, self.y)

    def at(self, i: int) -> slice:
        """The rows of a client."""
        before = sum(SIZES[:i])
        return slice(before, before + SIZES[i])

    def prediction(self, i: int) -> Any:
        return self.X[self.at(i)] @ (self.W if self.several else self.x)

    def of_rows(self, i: int) -> Any:
        return self.each[self.at(i)]

    def inside(self, i: int, code: float) -> Any:
        return self.rows[i].y == code

    def risk(self, i: int) -> Any:
        """F_i."""
        over, r = self.problem.over_samples, self.rows[i]
        if self.problem.loss.targets == "quadratic":
            return cp.quad_form(self.x, cp.psd_wrap(r.X)) / 2 + r.y @ self.x
        each = self.of_rows(i)
        if isinstance(over, bf.WassersteinBall):
            return self.worst(i, over)
        if not isinstance(over, bf.Mean):
            return by_ranks(over.rank_weights(each.size), each)
        if over.code is not None:
            inside = self.inside(i, over.code)
            return inside @ each / inside.sum()
        return cp.sum(each) / each.size

    def worst(self, i: int, ball: Any) -> Any:
        """By the dual forms of docs/drfl.md."""
        r, loss, radius = self.rows[i], self.problem.loss, float(ball.radius[i])
        share, p, w = np.full(len(r.y), 1 / len(r.y)), DUAL_P[ball.norm], self.x[:-1]
        if ball.support is not None:
            support = ball.support
            C, d = (
                box_rows(support.lower, support.upper, len(FEATURES))
                if isinstance(support, bf.BoxSupport)
                else (np.asarray(support.C), np.asarray(support.d))
            )
            value, wanted = polytope_risk(
                w, r.X, r.y, share, loss, ball.norm, ball.label_cost, radius, C, d, b=self.x[-1]
            )
            self.wanted += wanted
            return value
        price, each = cp.Variable(), self.of_rows(i)
        if self.several:
            pairs = [(a, b) for a in range(CLASSES) for b in range(CLASSES) if a < b]
            self.wanted += [price >= cp.norm(self.W[:-1, a] - self.W[:-1, b], p) for a, b in pairs]
        else:
            self.wanted.append(price >= loss.lipschitz * cp.norm(w, p))
        if not math.isfinite(ball.label_cost):
            return radius * price + share @ each
        if loss.targets == "real":
            self.wanted.append(price >= loss.lipschitz / ball.label_cost)
            return radius * price + share @ each
        others = [-r.y] if not self.several else [(r.y + k) % CLASSES for k in range(1, CLASSES)]
        worst = cp.Variable(len(r.y))
        self.wanted.append(worst >= each)
        for other in others:
            turned = losses(loss, self.prediction(i), other)
            self.wanted.append(worst >= turned - ball.label_cost * price)
        return radius * price + share @ worst

    def least(self, q: Any, limits: list[Any], multipliers: Any = None) -> tuple[float, Any]:
        """The least value where clients count by q, and the multipliers of the limits, expressions
        that are to be <= 0, or 0 where they are paired with True. With ``multipliers`` the limits
        are parts of the objective: no least value of that kind is above the optimum.
        """
        clients = range(len(self.rows))
        if self.problem.over_rows is not None:
            each = self.each
            risk = by_ranks(self.problem.over_rows.rank_weights(each.size), each)
        else:
            risk = q @ cp.hstack([self.risk(i) for i in clients])
        free = self.several or self.problem.loss.targets == "quadratic"
        penalised = self.x if free else self.x[:-1]
        cost = risk + self.problem.regulariser.strength / 2 * cp.sum_squares(penalised)
        stated = [e == 0 if equal else e <= 0 for e, equal in limits]
        if multipliers is not None:
            cost += sum(float(mu) * e for mu, (e, _) in zip(multipliers, limits, strict=True) if mu)
            stated = []
        return solved(cost, [*stated, *self.wanted]), [one.dual_value for one in stated]


def solved(cost: Any, wanted: list[Any]) -> float:
    """The least cost."""
    program = cp.Problem(cp.Minimize(cost), wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # where that accuracy is not reached
        # there are no parameters; to look for how they enter takes a fifth of the time
        tols = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-9)
        program.solve(solver=cp.CLARABEL, ignore_dpp=True, **tols)
    return float(program.value)


@dataclass(frozen=True)
class Limit:
    """Slots of a problem with a constraint of a level, and what it bounds as expressions, in the
    order of its multipliers; ``True``: they are to be equal to it.
    """

    slots: Callable[[float], dict[str, Any]]
    bounded: Callable[[Program], list[Any]]
    equal: bool = False
    level: float | None = None  # None: halfway from the least that is possible

    def expressions(self, program: Program, level: float) -> list[Any]:
        return [(e - level, self.equal) for e in self.bounded(program)]


def _mean(p: Program, i: int, inside: Any, each: Any) -> Any:
    return inside @ each(i) / inside.sum()


def _groups(p: Program, i: int) -> list[Any]:
    return [_mean(p, i, p.rows[i].sex == s, p.of_rows) for s in (0, 1)]


def _gaps(p: Program, i: int, inside: Any = 1.0) -> list[Any]:
    groups = [inside * (p.rows[i].sex == s) for s in (0, 1)]
    if not all(group.any() for group in groups):  # the client does not have the constraint
        return [cp.Constant(-1.0)] * 2
    a, b = (_mean(p, i, group, p.prediction) for group in groups)
    return [a - b, b - a]


def _together(p: Program, masses: list[Any], each: Any) -> Any:
    total = sum(mass.sum() for mass in masses)
    return sum(mass @ each(i) for i, mass in enumerate(masses)) / total


EVERY = range(len(SIZES))
FIRST = np.array([1.0, 1.0, 1.0, 0.0])


def _row(loss: Any) -> Any:
    return np.append(FIRST, np.zeros(D * (CLASSES - 1) if loss.targets == "class" else 0))


def limits(loss: Any) -> dict[str, Limit]:
    """Constraints of every kind that goes with a loss, by name."""
    row, code = _row(loss), 2 if loss.targets == "class" else 1.0
    of = {
        "linear": Limit(
            lambda t: {"constraint": bf.LinearInequality(row[None], -t)},
            lambda p: [row @ p.x],
            level=0.2,
        ),
        "equality": Limit(
            lambda t: {"constraint": bf.LinearEquality(row[None], -t)},
            lambda p: [row @ p.x],
            True,
            level=0.1,
        ),
        "norm": Limit(
            lambda t: {"local_constraint": bf.Constraint(_ball, convex=True)},
            lambda p: [cp.sum_squares(p.x[:-1]) - 0.05 for _ in EVERY],
            level=0.0,
        ),
    }
    if loss.targets != "class":
        of["own linear"] = Limit(
            lambda t: {"local_constraint": bf.LinearInequality()},
            lambda p: [r.C[0] @ p.x[: r.C.shape[1]] + r.d[0] for r in p.rows],
            level=0.0,
        )
    if loss.targets in ("sign", "real"):
        of |= {
            "monotone": Limit(
                lambda t: {"constraint": bf.Monotone(["a", "b"])},
                lambda p: [p.x[0] - p.x[1]],
                level=0.0,
            ),
            "sign": Limit(
                lambda t: {"constraint": bf.Sign({"a": -1})}, lambda p: [p.x[0]], level=0.0
            ),
            "cost": Limit(
                lambda t: {"constraint": bf.CostLimit({"a": 1.0, "c": 2.0}, t)},
                lambda p: [p.x[0] + 2 * p.x[2]],
                level=0.1,
            ),
            "parity": Limit(
                lambda t: {"local_constraint": bf.DemographicParity("sex", t)},
                lambda p: [gap for i in EVERY for gap in _gaps(p, i)],
                level=0.1,
            ),
        }
    if loss.targets != "quadratic":
        of |= {
            "groups": Limit(
                lambda t: {"local_constraint": bf.BoundedGroupLoss("sex", t)},
                lambda p: [mean for i in EVERY for mean in _groups(p, i)],
            ),
            "groups together": Limit(
                lambda t: {"constraint": bf.Coupled(bf.BoundedGroupLoss("sex", t), "uniform")},
                lambda p: [sum(_groups(p, i)[s] for i in EVERY) / len(EVERY) for s in (0, 1)],
            ),
        }
    if loss.targets in ("sign", "class"):
        of |= {
            "Neyman-Pearson": Limit(
                lambda t: {"local_constraint": bf.NeymanPearson(code, t)},
                lambda p: [_mean(p, i, p.inside(i, code), p.of_rows) for i in EVERY],
            ),
            "together": Limit(
                lambda t: {"constraint": bf.Coupled(bf.NeymanPearson(code, t))},
                lambda p: [_together(p, [p.inside(i, code) for i in EVERY], p.of_rows)],
            ),
        }
    if loss.targets == "sign":
        of["odds"] = Limit(
            lambda t: {"local_constraint": bf.EqualisedOdds("sex", t)},
            lambda p: [g for i in EVERY for y in (-1, 1) for g in _gaps(p, i, p.rows[i].y == y)],
            level=0.3,
        )
    return of


def _ball(w: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """||all numbers of the model but the last||^2 <= 0.05."""
    slope = np.append(2 * w[:-1], 0.0)
    return np.array([w[:-1] @ w[:-1] - 0.05]), slope[None]


@cache
def level_of(loss: Any, name: str) -> float:
    """A level that binds, and that models reach."""
    limit = limits(loss)[name]
    if limit.level is not None:
        return limit.level
    rows = clients(loss)
    fed = federation(rows)
    free = bf.Problem(loss, regulariser=bf.L2(0.05))
    program = Program(free.at(fed)[0], rows)
    bounded = cp.max(cp.hstack(limit.bounded(program)))
    solved(bounded + 1e-3 * cp.sum_squares(program.x), program.wanted)
    least = float(bounded.value)
    program.x.value = bf.solve(free, fed).w
    program.each.value = program.losses().value
    return round((least + float(bounded.value)) / 2, 3)


def with_limit(problem: bf.Problem, name: str) -> tuple[bf.Problem, Callable[[Program], list[Any]]]:
    """The problem with a constraint, and its expressions."""
    limit, level = limits(problem.loss)[name], level_of(problem.loss, name)
    return replace(problem, **limit.slots(level)), lambda p: limit.expressions(p, level)
