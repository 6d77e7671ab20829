"""Constrained learning: rounds, numbers sent and CPU seconds beside central solvers.

    constrained.py neyman  Neyman-Pearson classification: InteriorPoint beside SciPy's SLSQP and
        trust-constr. Targets: at most 40 rounds, within 1e-6 of the optimum, proved to 1e-6,
        violation at most 1e-6.
    constrained.py units  ProximalAL on breast cancer with a flag of missing values, three folds
        each: as it is, with features times 1e-6, with constraints times 1e9. Target: within 1e-3 of
        the optimum in at most 500 rounds, as many in all units.
    constrained.py lcqp  quadratic programs with equality constraints beside a dense KKT solve.
        Targets: model and multipliers to 1e-6, at most 0.15 ms CPU a client and round at d = 500.
    constrained.py odd  the same, ill-conditioned, singular, with redundant rows, infeasible.
    constrained.py parity  parity between groups beside fairlearn (``constrained_parity.py``).

``--quick`` runs small parts of all. Needs the data directory. Optima are those of
``bonafed.papers.constrained``: SLSQP, then Newton steps on the active set, to residuals of 1e-12.
What the paper's settings do: ``bonafed reproduce constrained/table-1`` and so on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import measure
import numpy as np
from scipy.optimize import BFGS, NonlinearConstraint, minimize

import bonafed as bf
import bonafed.extending as ext
from bonafed.algorithms.federated import interior_point
from bonafed.algorithms.federated.interior_point import InteriorPoint
from bonafed.algorithms.federated.proximal_al import client as proximal_client
from bonafed.algorithms.federated.proximal_al.proximal_al import ProximalAL
from bonafed.data import load, partition
from bonafed.papers.constrained import data, optima
from bonafed.papers.constrained.experiments import RISK, neyman_pearson
from bonafed.papers.constrained.lcqp import LCQP, exact, lcqp, rows_of

GAPS = (1e-1, 1e-2, 1e-3)
Targets = measure.Targets


def breast_cancer_flagged() -> data.Encoded:
    """All 699 records: the same features, a missing value at the mean, and a flag of the 16 with
    one.
    """
    table = load.breast_cancer_wisconsin(missing="keep")
    missing = np.isnan(table.X)
    Z = data.standardised(np.where(missing, np.nanmean(table.X, 0), table.X))
    names = (*table.feature_names, *(f"{name}^2" for name in table.feature_names))
    X = np.column_stack([Z, Z**2 - 1, missing.any(1), np.ones(len(Z))]).astype(float)
    return data.Encoded(X, table.y, (*names, "missing", "ones"))


def unlike(X: np.ndarray, y: np.ndarray, n_clients: int, seed: int = 0) -> np.ndarray:
    """Cut each class into bands of its first principal component, with normal noise on it.

    The noise has the component's standard deviation. Features differ between clients, and the k-th
    client has 0.8^k times the rows of the first; each has rows of both classes.
    """
    shares = 0.8 ** np.arange(n_clients)
    Z = data.standardised(X)
    score = Z @ np.linalg.svd(Z, full_matrices=False)[2][0]
    owner = np.empty(len(y), np.intp)
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        owner[rows] = partition.by_feature(score[rows], (shares / shares.sum()).tolist(), 1.0, seed)
    return owner


@cache
def encoded(name: str) -> data.Encoded:
    return data.DATA[name]()


@cache
def case(name: str, n_clients: int, alike: bool = True) -> tuple[bf.Federation, optima.Reference]:
    found = encoded(name)
    owner = data.stratified(found.y, n_clients) if alike else unlike(found.X, found.y, n_clients)
    fed = data.federation(found, owner)
    best = optima.solve(optima.neyman_pearson(fed, RISK))
    if best.residual > 1e-9:
        raise RuntimeError(
            f"{name}, {n_clients} clients: the reference ended at a residual of"
            f" {best.residual:.1e}."
        )
    return fed, best


def cases(quick: bool) -> list[tuple[str, int, bool]]:
    names = ("breast-cancer-wisc", "monks-1") if quick else tuple(data.DATA)
    alike = [(name, n, True) for name in names for n in ((1, 5) if quick else (1, 5, 10, 20))]
    return alike + [(name, n, False) for name in names for n in ((5,) if quick else (5, 20))]


def title(name: str, n_clients: int, alike: bool) -> str:
    return f"{name}, n = {n_clients}" + ("" if alike else ", unlike")


def timed(run: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """The least CPU seconds, and the last result."""
    best, result = np.inf, None
    for _ in range(repeats):
        began = time.process_time()
        result = run()
        best = min(best, time.process_time() - began)
    return float(best), result


def words_of(solution: bf.Solution) -> tuple[int, int]:
    """Numbers of 8 bytes sent and received by one client on average: by the method, by the
    certificate.
    """
    own = sum(m["bytes"] for m in solution.messages if not m["message"].startswith("Weigh"))
    proof = sum(m["bytes"] for m in solution.messages if m["message"].startswith("Weigh"))
    n = len(solution.clients)
    return own // 8 // n, proof // 8 // n


# -------------------------------------------------------------------- Neyman-Pearson


def neyman(targets: Targets, quick: bool) -> None:
    ours, others, problem = [], [], neyman_pearson()
    for key in cases(quick):
        fed, best = case(*key)
        seconds, found = timed(lambda fed=fed: bf.solve(problem, fed, algorithm=InteriorPoint()), 2)
        proof, name = found.certificate, title(*key)
        gap = proof.value / best.value - 1
        proved = np.inf if proof.relative_gap is None else proof.relative_gap
        ours.append(
            (
                name,
                f"{best.value:.8f}",
                found.rounds,
                gap,
                proved,
                proof.feasibility,
                seconds,
                *words_of(found),
            )
        )
        targets.need(found.rounds <= 40, f"{name}: {found.rounds} <= 40 rounds")
        targets.need(
            abs(gap) <= 1e-6 and proved <= 1e-6,
            f"{name}: gap {gap:.1e}, proved {proved:.1e} <= 1e-6",
        )
        targets.need(
            proof.feasibility <= 1e-6, f"{name}: violation {proof.feasibility:.1e} <= 1e-6"
        )
        others.append((name, seconds, *_central(fed, best)))
    columns = (
        "case",
        "optimum",
        "rounds",
        "gap",
        "proved",
        "violation",
        "CPU s",
        "numbers",
        "of the proof",
    )
    measure.show("neyman: InteriorPoint", columns, ours)
    print("\nnumbers: of 8 bytes, sent and received by a client\n")
    columns = ("case", "InteriorPoint", "SLSQP", "gap", "trust-constr", "gap")
    measure.show("neyman: pooled solvers", columns, others)


def _central(fed: bf.Federation, best: optima.Reference) -> tuple:
    """CPU seconds and gap of solvers that have all rows: |objective / optimum - 1|, or the
    violation over the level.
    """
    program, row = optima.neyman_pearson(fed, RISK), []
    slack, slope, x0 = program.slack, program.slack_jacobian, np.zeros(fed.n_features)
    bound = {"type": "ineq", "fun": slack, "jac": slope}
    jac: Any = slope
    inside: Any = NonlinearConstraint(slack, 0.0, np.inf, jac=jac, hess=BFGS())
    tight = {"maxiter": 3000, "gtol": 1e-9, "xtol": 1e-12, "barrier_tol": 1e-10}
    for method, constraint, options in (
        ("SLSQP", bound, {"maxiter": 2000, "ftol": 1e-15}),
        ("trust-constr", inside, tight),
    ):
        law: Any = {"method": method, "constraints": [constraint], "options": options}
        seconds, end = timed(
            lambda law=law: minimize(program.value, x0, jac=program.gradient, **law)
        )
        row += [seconds, off_by(program, end.x, best)]
    return tuple(row)


def off_by(program: optima.WeightedLosses, w: np.ndarray, best: optima.Reference) -> float:
    return max(abs(program.value(w) / best.value - 1), program.violation(w) / RISK)


# -------------------------------------------------------------------- units


@dataclass(frozen=True)
class Times:
    """A constraint on rows times a factor."""

    stated: Any
    factor: float

    def at(self, problem: Any, metadata: Any) -> Any:
        one = self.stated.at(problem, metadata)
        return replace(
            one, coefficients=one.coefficients * self.factor, level=one.level * self.factor
        )


UNITS = {"as it is": (1.0, 1.0), "features 1e-6": (1e-6, 1.0), "constraints 1e9": (1.0, 1e9)}


def followed(problem: bf.Problem, fed: bf.Federation) -> tuple[bf.Solution, list[np.ndarray]]:
    """A solution by ProximalAL, and the model after every round."""
    algorithm, models = ProximalAL(max_rounds=3000), []
    method = replace(algorithm, problem=problem.at(fed)[0])
    watch = [lambda row, state: models.append(method.answer(state)[0])]
    return ext.fit(problem, fed, algorithm=algorithm, watch=watch), models


def rounds_to(off: Sequence[float], gaps: Sequence[float]) -> list[int | None]:
    """The first round from which on each gap holds; None where it does not at the end."""
    above = [np.flatnonzero(~(np.array(off) <= gap)) for gap in gaps]
    first = [1 + (int(rounds[-1]) + 1 if len(rounds) else 0) for rounds in above]
    return [None if k > len(off) else k for k in first]


def units(targets: Targets, quick: bool) -> None:
    rows, encoding = [], breast_cancer_flagged()
    features = np.arange(encoding.X.shape[1]) < encoding.X.shape[1] - 1  # all but the ones
    for n in (5,) if quick else (5, 10, 20):
        for seed in (0,) if quick else range(3):
            owner, first = data.stratified(encoding.y, n, seed), 0
            program = optima.neyman_pearson(data.federation(encoding, owner), RISK)
            best = optima.solve(program)
            for name, (column, factor) in UNITS.items():
                X = encoding.X * np.where(features, column, 1.0)
                fed, problem = (data.federation(encoding._replace(X=X), owner), neyman_pearson())
                limit = Times(problem.local_constraint, factor)
                problem = replace(problem, local_constraint=limit)
                seconds, (found, models) = timed(
                    lambda problem=problem, fed=fed: followed(problem, fed)
                )
                own = optima.neyman_pearson(fed, RISK)
                reached = rounds_to([off_by(own, w, best) for w in models], GAPS)
                says, off = found.outcome.stop.value, own.value(found.w) / best.value - 1
                case_ = f"n = {n}, folds {seed}, {name}"
                broken = own.violation(found.w) / RISK
                rows.append((case_, *reached, found.rounds, says, off, broken, seconds))
                targets.need(
                    reached[-1] is not None and reached[-1] <= 500,
                    f"{case_}: {GAPS[-1]:g} after {reached[-1]} <= 500 rounds",
                )
                targets.need(says == "optimal", f"{case_}: ends as {says}")
                last = reached[-1] or len(models)
                first = first or last
                alike = 0.9 * first <= last <= 1.1 * first
                targets.need(alike, f"{case_}: {last} rounds, as it is {first}")
    columns = (
        "case",
        *(f"{gap:g}" for gap in GAPS),
        "rounds",
        "says",
        "gap",
        "violation / level",
        "CPU s",
    )
    measure.show("units", columns, rows)


# -------------------------------------------------------------------- quadratic programs


def _all(mu: bf.Multipliers) -> np.ndarray:
    return np.concatenate([mu.server, mu.local.ravel()])


def _relative(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def quadratic(targets: Targets, quick: bool) -> None:
    rows = []
    for d, m in ((100, 1),) if quick else ((100, 1), (300, 3), (500, 5)):
        for n in (1, 5) if quick else (1, 5, 10):
            fed, name = lcqp(d, n, m, seed=0), f"d = {d}, n = {n}, m = {m}"
            w, mu = exact(fed)
            for which, algorithm in METHODS.items():
                row = _one(fed, algorithm, w, mu)
                rows.append((name, which, *row))
                targets.need(
                    max(row[1:3]) <= 1e-6,
                    f"{name}, {which}: errors {row[1]:.1e}, {row[2]:.1e} <= 1e-6",
                )
                if d == 500 and which != "InteriorPoint":
                    targets.need(
                        row[-1] <= 0.15,
                        f"{name}, {which}: {row[-1]:.3f} <= 0.15 ms a client and round",
                    )
    columns = ("instance", "method", "rounds", "error of w", "of multipliers", "CPU s", "client ms")
    measure.show("lcqp", columns, rows)
    print("\nclient ms: median CPU of a client's step in a round\n")


METHODS = {"InteriorPoint": InteriorPoint(), "ProximalAL": ProximalAL(tol=1e-8, max_rounds=3000)}


def _one(fed: bf.Federation, algorithm: Any, w: np.ndarray, mu: np.ndarray) -> tuple:
    """Rounds, errors, CPU seconds of a solve, median CPU ms of a client's step in a round."""
    second = isinstance(algorithm, InteriorPoint)
    owner, verb = (interior_point, "expand") if second else (proximal_client, "refine")
    own, spent = getattr(owner, verb), []

    def step(*arguments: Any) -> Any:
        (block,) = (each for each in arguments if isinstance(each, ext.Block))
        began = time.process_time()
        answer = own(*arguments)
        spent.append((time.process_time() - began) / len(block.names))
        return answer

    setattr(owner, verb, step)
    try:
        seconds, found = timed(lambda: bf.solve(LCQP, fed, algorithm=algorithm))
    finally:
        setattr(owner, verb, own)
    median = 1e3 * float(np.median(spent))
    return found.rounds, _relative(found.w, w), _relative(_all(found.duals), mu), seconds, median


def odd_instances(d: int = 100) -> dict[str, bf.Federation]:
    """Instances whose A_i, or whose rows, are not as the paper draws them."""
    fed = lcqp(d, 5, 2, seed=0)
    A, (C, offsets) = [np.linalg.eigh(square) for square in fed.X], rows_of(fed)
    C, offsets = C.reshape(6, 2, d), offsets.reshape(6, 2)

    def made(spectrum: np.ndarray, more: float | None = None) -> bf.Federation:
        last, end = C[-1], offsets[-1]
        if more is not None:
            last, end = C[:-1].sum(0), offsets[:-1].sum(0) + more
        squares = [U * spectrum @ U.T for _, U in A]
        return bf.Federation.from_quadratics(squares, fed.y, [*C[:-1], last], [*offsets[:-1], end])

    plain = np.linspace(0.5, 1.0, d)
    common = np.linalg.qr(np.random.default_rng(0).normal(size=(d, 2)))[0]
    away = np.eye(d) - common @ common.T
    singular = [away @ (U * plain) @ U.T @ away for _, U in A]
    return {
        "condition 1e6": made(np.geomspace(1e-6, 1.0, d)),
        "singular": bf.Federation.from_quadratics(singular, fed.y, list(C), list(offsets)),
        "redundant": made(plain, 0.0),
        "infeasible": made(plain, 1.0),
    }


def odd(targets: Targets, quick: bool) -> None:
    rows = []
    for name, fed in odd_instances().items():
        for which, algorithm in METHODS.items():
            seconds, found = timed(
                lambda fed=fed, algorithm=algorithm: bf.solve(LCQP, fed, algorithm=algorithm)
            )
            says, proof = found.outcome.stop.value, found.certificate
            if name == "infeasible":
                targets.need(says == "infeasible", f"{name}, {which}: says {says}")
                rows.append(
                    (
                        name,
                        which,
                        found.rounds,
                        says,
                        None,
                        None,
                        proof.feasibility,
                        proof.infeasible,
                        seconds,
                    )
                )
                continue
            (w, mu), (C, _) = exact(fed), rows_of(fed)
            errors = _relative(found.w, w), _relative(C.T @ _all(found.duals), C.T @ mu)
            rows.append(
                (name, which, found.rounds, says, *errors, proof.feasibility, None, seconds)
            )
            if which == "InteriorPoint":
                targets.need(
                    max(errors) <= 1e-6,
                    f"{name}, {which}: errors {errors[0]:.1e}, {errors[1]:.1e} <= 1e-6",
                )
            targets.need(says != "optimal" or max(errors) <= 1e-4, f"{name}, {which}: says {says}")
    columns = (
        "instance",
        "method",
        "rounds",
        "says",
        "error of w",
        "of C'mu",
        "violation",
        "proved",
        "CPU s",
    )
    measure.show("odd", columns, rows)
    print("\nproved: every model breaks a constraint by at least this\n")


# -------------------------------------------------------------------- parity


def parity(targets: Targets, quick: bool) -> None:
    import constrained_parity

    constrained_parity.beside(targets, quick)


PARTS: dict[str, Callable[[Targets, bool], None]] = {
    "neyman": neyman,
    "units": units,
    "lcqp": quadratic,
    "odd": odd,
    "parity": parity,
}


def main(arguments: list[str]) -> None:
    names = [name for name in arguments if name != "--quick"]
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        sys.exit(f"parts are {', '.join(PARTS)}, got {', '.join(unknown)}")
    print(f"constrained learning; {measure.machine('fairlearn', 'scikit-learn')}\n")
    targets, quick = Targets(), "--quick" in arguments
    # have everything compiled
    bf.solve(neyman_pearson(), case("monks-1", 5)[0], algorithm=InteriorPoint())
    for name in names or PARTS:
        PARTS[name](targets, quick)
    targets.finish()


if __name__ == "__main__":
    main(sys.argv[1:])
