"""Problems with constraints, beside CVXPY programs of the same written from their definitions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

import quorate as qr

SIZES, FEATURES = (14, 12, 16), ("a", "b", "c")


@dataclass(frozen=True)
class Rows:
    """One client's rows as given."""

    X: Any
    y: Any
    sex: Any


def clients(real: bool = False, seed: int = 5) -> list[Rows]:
    """Three clients that differ, with two groups of rows that differ."""
    rng = np.random.default_rng(seed)
    rows = []
    for i, m in enumerate(SIZES):
        X, sex = rng.standard_normal((m, len(FEATURES))), rng.integers(0, 2, m)
        score = X @ [1.0, -0.5, 0.3 * i] + 0.8 * sex + rng.standard_normal(m)
        rows.append(Rows(X, score if real else np.where(score > 0.4, 1.0, -1.0), sex))
    return rows


def federation(rows: list[Rows]) -> qr.Federation:
    return qr.Federation.from_arrays(
        np.concatenate([r.X for r in rows]),
        np.concatenate([r.y for r in rows]),
        np.repeat(np.arange(len(rows)), [len(r.y) for r in rows]),
        columns={"sex": np.concatenate([r.sex for r in rows])},
        feature_names=list(FEATURES),
    )


def losses(loss: object, p: Any, y: Any) -> Any:
    """The losses of rows with predictions p, as an expression."""
    match loss:
        case qr.Hinge():
            return cp.pos(1 - cp.multiply(y, p))
        case qr.Logistic():
            return cp.logistic(-cp.multiply(y, p))
        case qr.Absolute():
            return cp.abs(p - y)
        case qr.Quantile():
            return cp.maximum(loss.level * (y - p), (loss.level - 1) * (y - p))
        case qr.Squared():
            return cp.square(p - y) / 2
    raise TypeError(f"no oracle for {loss!r}")


@dataclass
class Program:
    """The variables of a problem, and its parts."""

    problem: qr.Problem  # concrete
    rows: list[Rows]
    w: Any
    b: Any

    def of_rows(self, i: int) -> Any:
        r = self.rows[i]
        return losses(self.problem.loss, r.X @ self.w + self.b, r.y)

    def risk(self, i: int) -> Any:
        """F_i."""
        each, over = self.of_rows(i), self.problem.over_samples
        match over:
            case qr.Superquantile():
                eta = cp.Variable()
                return eta + cp.sum(cp.pos(each - eta)) / (over.tail * each.size)
            case qr.WassersteinBall():
                assert np.isinf(over.label_cost)
                assert over.norm == "l1"
                return cp.sum(each) / each.size + over.radius[i] * cp.norm_inf(self.w)
        if over.code is not None:
            inside = self.rows[i].y == over.code
            return inside @ each / inside.sum()
        return cp.sum(each) / each.size

    def solve(self, limits: list[Any], q: Any) -> tuple[float, Any]:
        """The least value where clients count by q, and the multipliers of the limits, expressions
        that are to be <= 0, or 0 where they are paired with True.

        With worst weights q this is the optimal value of the problem, as of a saddle point.
        """
        risks = cp.hstack([self.risk(i) for i in range(len(self.rows))])
        stated = [e == 0 if equal else e <= 0 for e, equal in limits]
        strength = self.problem.regulariser.strength
        cost = np.maximum(q, 0.0) @ risks + strength / 2 * cp.sum_squares(self.w)
        program = cp.Problem(cp.Minimize(cost), stated)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # where that accuracy is not reached
            program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
        return float(program.value), np.ravel([one.dual_value for one in stated])


Limit = tuple[dict[str, Any], Callable[[Program], list[Any]]]


def _class(p: Program, i: int, code: float, level: float) -> Any:
    inside = p.rows[i].y == code
    return inside @ p.of_rows(i) / inside.sum() - level


def _score(p: Program, i: int, sex: int) -> Any:
    inside = p.rows[i].sex == sex
    return inside @ (p.rows[i].X @ p.w + p.b) / inside.sum()


def _group(p: Program, i: int, sex: int) -> Any:
    inside = p.rows[i].sex == sex
    return inside @ p.of_rows(i) / inside.sum()


def parity(p: Program, level: float) -> list[Any]:
    each = []
    for i in range(len(p.rows)):
        gap = _score(p, i, 0) - _score(p, i, 1)
        each += [(gap - level, False), (-gap - level, False)]
    return each


def together(p: Program, level: float) -> list[Any]:
    inside = [r.y == 1.0 for r in p.rows]
    total = sum(one @ p.of_rows(i) for i, one in enumerate(inside))
    return [(total / sum(one.sum() for one in inside) - level, False)]


def limits(level: float, of_class: float, real: bool) -> dict[str, Limit]:
    """Constraints of every kind by name, with levels of groups of rows and of a class: slots of a
    problem, and the same as expressions.
    """
    matrix = np.array([[1.0, 1.0, 1.0, 0.0]])
    every = range(len(SIZES))
    of_any = {
        "linear": (
            {"constraint": qr.LinearInequality(matrix, np.array([-0.2]))},
            lambda p: [(cp.sum(p.w) - 0.2, False)],
        ),
        "equality": (
            {"constraint": qr.LinearEquality(matrix, np.array([-0.1]))},
            lambda p: [(cp.sum(p.w) - 0.1, True)],
        ),
        "monotone": (
            {"constraint": qr.Monotone(["a", "b"])},
            lambda p: [(p.w[0] - p.w[1], False)],
        ),
        "parity": (
            {"local_constraint": qr.DemographicParity("sex", 0.1)},
            lambda p: parity(p, 0.1),
        ),
        "groups": (
            {"local_constraint": qr.BoundedGroupLoss("sex", level)},
            lambda p: [(_group(p, i, s) - level, False) for i in every for s in (0, 1)],
        ),
        "norm": (
            {"local_constraint": qr.Constraint(_ball, convex=True)},
            lambda p: [(cp.sum_squares(p.w) - 0.05, False)],
        ),
    }
    of_classes = {
        "Neyman-Pearson": (
            {"local_constraint": qr.NeymanPearson(1.0, of_class)},
            lambda p: [(_class(p, i, 1.0, of_class), False) for i in every],
        ),
        "together": (
            {"constraint": qr.Coupled(qr.NeymanPearson(1.0, of_class))},
            lambda p: together(p, of_class),
        ),
    }
    return of_any if real else of_any | of_classes


def _ball(w: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """||coefficients||^2 <= 0.05."""
    slope = np.append(2 * w[:-1], 0.0)
    return np.array([w[:-1] @ w[:-1] - 0.05]), slope[None]
