"""Worst weightings of N clients over every uncertainty set: CPU ms, beside HiGHS or Clarabel in one
run at N = 1,000.

Each case is a set made for N clients: ``worst`` is timed at N = 10, 1,000 and 100,000 (sets
described by a matrix at most at 1,000), ``project`` at 1,000. HiGHS solves the same linear program
through SciPy, Clarabel the same conic program where the set is curved; their values must agree.
Costs between any two clients are left out there: their program has N^2 variables. Targets: times at
N = 100,000, one thread.

The second table is a polyhedron that is asked again and again, 20 rows, 200 losses of a random
walk: cold is a set that keeps nothing, warm one that keeps the vertices it met, both beside
``linprog`` as it comes; all three in turn.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import measure
import numpy as np
from scipy.optimize import linprog
from scipy.sparse import block_array, csr_array, eye_array

import bonafed as bf
from bonafed.solvers.conic.builder import Index, Model

SIZES = (10, 1_000, 100_000)
AGREE = 1e-7  # HiGHS and ours, relative to the spread of the losses; HiGHS meets conditions to 1e-7
Make = Callable[[int, np.random.Generator], Any]
Program = Callable[[Any, np.ndarray], dict[str, Any]]
Cone = Callable[[Model, Index, Any], None]  # adds a set's condition on q
ROWS, LOSSES = 20, 200  # of the polyhedron that is asked again and again
# Clarabel and ours: it meets conditions of a curved set to 1e-8, which moves the value by their
# root
CURVED = 1e-5


class Case(NamedTuple):
    """A set for N clients, its linear program, its target at N = 100,000, its largest N."""

    make: Make
    program: Program | None = None
    target: float | None = None  # ms
    most: int = 100_000
    project: bool = True  # at N = 1,000
    cone: Cone | None = None  # instead of a linear program


def prior(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.dirichlet(np.ones(n))


def box_program(risk: Any, z: np.ndarray) -> dict[str, Any]:
    return {
        "c": -z,
        "A_eq": np.ones((1, len(z))),
        "b_eq": [1.0],
        "bounds": np.c_[risk.lower, risk.upper],
    }


def moves(
    risk: Any, z: np.ndarray, rate: np.ndarray, caps: np.ndarray, budget: float
) -> dict[str, Any]:
    """q = prior + up - down."""
    n, size = len(z), rate.max()
    give, take = np.minimum(caps, risk.prior), np.minimum(caps, 1 - risk.prior)
    return {
        "c": np.r_[-z, z],
        "A_ub": csr_array(np.r_[rate, rate][None] / size),
        "b_ub": [budget / size],
        "A_eq": np.r_[np.ones(n), -np.ones(n)][None],
        "b_eq": [0.0],
        "bounds": np.c_[np.zeros(2 * n), np.r_[take, give]],
    }


def cd_norm_program(risk: Any, z: np.ndarray) -> dict[str, Any]:
    return moves(risk, z, 1 / risk.bounds, risk.bounds, risk.budget)


def variation_program(risk: Any, z: np.ndarray) -> dict[str, Any]:
    return moves(risk, z, np.ones_like(z), np.ones_like(z), 2 * risk.radius)


def line_program(risk: Any, z: np.ndarray) -> dict[str, Any]:
    """Flows along the line: q_i = prior_i + flow_{i-1} - flow_i, |flow| paid by the gap."""
    n, order = len(z), np.argsort(risk.cost)
    gaps = np.diff(risk.cost[order])
    drop = csr_array(np.eye(n, n - 1, -1) - np.eye(n, n - 1))
    return {
        "c": np.r_[-z[order], np.zeros(2 * n - 2)],
        "A_ub": csr_array(np.r_[np.zeros(n), gaps, gaps][None]),
        "b_ub": [risk.radius],
        "A_eq": block_array([[eye_array(n), -drop, drop]], format="csr"),
        "b_eq": risk.prior[order],
    }


def polyhedron_program(risk: Any, z: np.ndarray) -> dict[str, Any]:
    return {"c": -z, "A_ub": risk.D, "b_ub": risk.c, "A_eq": np.ones((1, len(z))), "b_eq": [1.0]}


def a_matrix(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.random((n, n)) * (1 - np.eye(n))


def a_polyhedron(n: int, rng: np.random.Generator) -> bf.Polyhedron:
    D = rng.standard_normal((10, n))
    return bf.Polyhedron(D, D @ prior(n, rng) + 0.1)


def entropy(model: Model, q: Index, risk: Any) -> None:
    t = model.variable(len(q))  # q exp(-t / q) <= prior
    model.exponential([(t, -1.0)], [(q, 1.0)], [risk.prior])
    model.nonneg([risk.radius, (t, -np.ones((1, len(q))))])


def ellipsoid(model: Model, q: Index, risk: Any) -> None:
    shape = getattr(risk, "shape", risk.prior)
    W = shape**-0.5 if shape.ndim == 1 else np.linalg.inv(np.linalg.cholesky(shape))
    middle = W * risk.prior if shape.ndim == 1 else W @ risk.prior
    model.soc([np.array([risk.radius**0.5])], [(q, W), -middle])


def clarabel(case: Case, risk: Any, z: np.ndarray) -> float:
    model, n = Model(), len(z)
    q = model.variable(n)
    model.linear(q, -z)
    model.nonneg([(q, 1.0)])
    model.zero([(q, np.ones((1, n))), -1.0])
    assert case.cone is not None
    case.cone(model, q, risk)
    return -model.solve(1e-8).value


def covariance(n: int, rng: np.random.Generator) -> np.ndarray:
    A = rng.standard_normal((n, n)) / n
    return A @ A.T + 0.1 / n * np.eye(n)


CASES: dict[str, Case] = {
    "Box": Case(lambda n, rng: bf.Box(0.0, 4 * prior(n, rng)), box_program, 10.0),
    "CDNorm": Case(
        lambda n, rng: bf.CDNorm(n / 5, rng.random(n) * 3 / n, prior(n, rng)),
        cd_norm_program,
        150.0,
    ),
    "CDNorm, equal bounds": Case(
        lambda n, rng: bf.CDNorm(n / 5, 2 / n, prior(n, rng)), cd_norm_program
    ),
    "TotalVariationBall": Case(
        lambda n, rng: bf.TotalVariationBall(0.2, prior(n, rng)), variation_program
    ),
    "WassersteinOverClients, index": Case(
        lambda n, rng: bf.WassersteinOverClients(n / 100, "index", prior(n, rng)),
        line_program,
        60.0,
    ),
    "WassersteinOverClients, positions": Case(
        lambda n, rng: bf.WassersteinOverClients(0.01, rng.random(n), prior(n, rng)),
        line_program,
        60.0,
    ),
    "WassersteinOverClients, matrix": Case(
        lambda n, rng: bf.WassersteinOverClients(0.01, a_matrix(n, rng), prior(n, rng)),
        None,
        None,
        1_000,
        False,
    ),
    "Polyhedron, 10 rows": Case(a_polyhedron, polyhedron_program, None, 1_000),
    "KLBall": Case(lambda n, rng: bf.KLBall(0.3, prior(n, rng)), target=10.0, cone=entropy),
    "ChiSquareBall": Case(lambda n, rng: bf.ChiSquareBall(0.5, prior(n, rng)), cone=ellipsoid),
    "ChiSquareBall, most at 0": Case(
        lambda n, rng: bf.ChiSquareBall(5.0, prior(n, rng)), cone=ellipsoid
    ),
    "Ellipsoid": Case(
        lambda n, rng: bf.Ellipsoid(rng.random(n) + 0.1, 1 / n, prior(n, rng)), cone=ellipsoid
    ),
    "Ellipsoid, matrix": Case(
        lambda n, rng: bf.Ellipsoid(covariance(n, rng), 0.3, prior(n, rng)),
        most=1_000,
        cone=ellipsoid,
    ),
    "Superquantile": Case(lambda n, rng: bf.Superquantile(0.2, prior(n, rng))),
    "LpBall, p = 2": Case(lambda n, rng: bf.LpBall(0.3, 2, prior(n, rng))),
}


def best(run: Callable[[], Any], seconds: float = 0.2) -> float:
    """Least CPU ms of a call; as many calls as fit into about ``seconds``, three at least."""
    once = measure.alternate({"run": run}, 1)["run"].seconds
    return (
        1e3
        * measure.alternate({"run": run}, min(max(int(seconds / max(once, 1e-5)), 3), 200))[
            "run"
        ].seconds
    )


def solver(
    case: Case, risk: Any, z: np.ndarray, targets: measure.Targets, name: str
) -> float | None:
    """CPU ms of HiGHS or Clarabel, whose value must be ours."""
    if case.cone is not None:
        off = abs(risk.value(z) - clarabel(case, risk, z)) / np.ptp(z)
        targets.need(off <= CURVED, f"{name}: Clarabel finds the same value ({off:.0e})")
        return best(lambda: clarabel(case, risk, z), 0.0)
    if case.program is None:
        return None
    program = case.program(risk, z)
    found = {}

    def run() -> None:
        found["value"] = -linprog(**program).fun

    ms = best(run, 0.0)
    shift = risk.prior @ z if case.program in (cd_norm_program, variation_program) else 0.0
    off = abs(risk.value(z) - found["value"] - shift) / np.ptp(z)
    targets.need(off <= AGREE, f"{name}: HiGHS finds the same value ({off:.0e})")
    return ms


def walk(n: int, step: float, targets: measure.Targets) -> list[list[Any]]:
    """CPU ms a call of a polyhedron whose losses, drawn from [0, 1], change by normal steps; the
    mean of 200.
    """
    rng = np.random.default_rng(n)
    D = rng.standard_normal((ROWS, n))
    cold = bf.Polyhedron(D, D @ prior(n, rng) + 0.1)
    losses = rng.random(n) + step * rng.standard_normal((LOSSES, n)).cumsum(0)
    programs = {"warm": lambda z: warm.worst(z).value, "cold": lambda z: cold.worst(z).value}
    programs["linprog"] = lambda z: -linprog(**polyhedron_program(cold, z)).fun
    nearest = {"warm": lambda z: warm.project(z / n), "cold": lambda z: cold.project(z / n)}
    rows = []
    for name, ways in (("worst", programs), ("project", nearest)):
        warm = cold.at(np.ones(n))
        for run in ways.values():  # loads what it needs
            run(losses[0])
        runs = [
            measure.alternate({way: partial(run, z) for way, run in ways.items()}, 1)
            for z in losses
        ]
        ms = {way: 1e3 * float(np.mean([run[way].seconds for run in runs])) for way in ways}
        same = all(np.array_equal(run["warm"].result, run["cold"].result) for run in runs)
        targets.need(
            same, f"{name}, N = {n:,}, steps of {step:g}: warm and cold give the same numbers"
        )
        ratio = ms["linprog"] / ms["warm"] if "linprog" in ms else None
        if ratio is not None:
            off = max(abs(run["warm"].result - run["linprog"].result) for run in runs)
            targets.need(
                off <= AGREE,
                f"{name}, N = {n:,}, steps of {step:g}: linprog finds the same values ({off:.0e})",
            )
            if step <= 0.01:
                targets.need(
                    ratio >= 5,
                    f"{name}, N = {n:,}, steps of {step:g}: {ratio:.0f} times linprog's speed >= 5",
                )
        rows.append([name, f"{n:,}", step, ms["warm"], ms["cold"], ms.get("linprog"), ratio])
    return rows


def main(*only: str) -> None:
    print(f"{measure.machine()}\n")
    rows, targets = [], measure.Targets()
    for name, case in CASES.items():
        if only and not any(word in name for word in only):
            continue
        row: list[Any] = [name]
        for n in SIZES:
            rng = np.random.default_rng(n)
            z = rng.random(n)
            if n > case.most:
                row += [None]
                continue
            # a copy of a polyhedron has met no vertex
            risk = copy(case.make(n, rng).at(np.ones(n)))
            row += [best(lambda risk=risk, z=z: risk.worst(z))]
            if n == SIZES[1]:
                row += [solver(case, risk, z, targets, name)]
                row += [
                    best(lambda risk=risk, z=z: risk.project(z / len(z))) if case.project else None
                ]
        rows.append(row)
        if case.target is not None:
            targets.need(
                row[-1] <= case.target,
                f"{name} at N = 100,000: {row[-1]:.1f} ms <= {case.target:g}",
            )
    if rows:
        head = ("set", "10", "1,000", "solver 1,000", "project 1,000", "100,000")
        measure.show("sets", head, rows)
    if not only or "walk" in only:
        asked = [
            row
            for n in (100, 1_000)
            for step in (0.001, 0.01, 0.1)
            for row in walk(n, step, targets)
        ]
        measure.show(
            "walk",
            ("of a polyhedron", "N", "steps", "warm", "cold", "linprog", "linprog / warm"),
            asked,
        )
    targets.finish()


if __name__ == "__main__":
    main(*sys.argv[1:])
