"""Private ADMM: CPU seconds of a round, test error within totals, the paper's curves, and what
those add up to.

    private.py speed  a round with noise at the shapes of MNIST (10 x 6,000 x 784 x 10) and FEMNIST
        (195 ragged clients, 36,708 rows, 784 x 62), beside the same in plain NumPy in the same run,
        and peak memory. Targets: 0.05 and 0.14 CPU s.
    private.py mnist  digits of the published code without noise; test error within (1, 1e-6) after
        100 and 300 rounds, within (0.5, 1e-6) after 100: means of three seeds. Targets: 13.0, 11.0,
        13.5 %.
    private.py femnist  test error on the public part of FEMNIST within totals. No target.
    private.py paper  the paper's methods with its epsilon of one iteration. No guarantee, no
        target.
    private.py composition  what its numbers of rounds add up to. Target: within 1 % of figures
        noted before, where the accountant has one of its own and not the sum.

``--quick`` runs small parts. All but ``speed`` and ``composition`` need the data directory. One
thread.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

import measure
import numpy as np

import bonafed as bf
from bonafed.algorithms.federated import private_admm as private_client
from bonafed.algorithms.federated.private_admm import PrivateADMM
from bonafed.papers.dp_iadmm import curves
from bonafed.papers.dp_iadmm import published as published_totals

Targets = measure.Targets
SHAPES = {"MNIST": (np.full(10, 6000), 10, 5.0), "FEMNIST": (curves.ragged(), 62, 5.0)}
# with Gaussian noise; Laplace's finer grid needs doubles and has none
TARGETS = {("MNIST", "single"): 0.05, ("FEMNIST", "single"): 0.14}
TOTALS = ((1.0, 100, 0.130), (1.0, 300, 0.110), (0.5, 100, 0.135))


# -------------------------------------------------------------------- speed


def federation(shape: str, precision: str) -> bf.Federation:
    sizes, classes, _ = SHAPES[shape]
    fed = curves.shaped(sizes, classes=classes)
    return fed.single() if precision == "single" else fed


def client_seconds(fed: bf.Federation, mechanism: str, rounds: int) -> np.ndarray:
    """CPU seconds of all clients' steps in every round of a private solve."""
    own, spent = private_client.perturb, []

    def timed(*args: Any) -> Any:
        began = time.process_time()
        answer = own(*args)
        spent.append(time.process_time() - began)
        return answer

    clip = 5.0 if mechanism == "gaussian" else 100.0
    private_client.perturb = timed
    try:
        algorithm = PrivateADMM(max_rounds=rounds, mechanism=mechanism, clip=clip)
        bf.solve(curves.problem(1.0), fed, algorithm=algorithm)
    finally:
        private_client.perturb = own
    return np.reshape(spent, (rounds, -1)).sum(1)


def restated(fed: bf.Federation, mechanism: str, rounds: int) -> np.ndarray:
    """The same rounds in plain NumPy, client after client."""
    rng, kind = np.random.default_rng(0), fed.X[0].dtype
    Xs, ys, classes = fed.X, [np.asarray(y, np.intp) for y in fed.y], len(fed.classes)
    P, d, rho, scale, clip = (
        len(Xs),
        Xs[0].shape[1],
        0.5,
        1e-3,
        5.0 if mechanism == "gaussian" else 100.0,
    )
    total = sum(map(len, ys))
    order = 2 if mechanism == "gaussian" else 1
    lengths = [np.linalg.norm(X, order, axis=1) for X in Xs]
    z, dual = np.zeros((P, d, classes), kind), np.zeros((P, d, classes), kind)
    w, spent = np.zeros((d, classes), kind), []
    for _ in range(rounds):
        began = time.process_time()
        shifted = np.zeros((d, classes))
        for p, (X, y) in enumerate(zip(Xs, ys, strict=True)):
            h = X @ z[p]
            h -= h.max(1, keepdims=True)
            np.exp(h, out=h)
            h /= h.sum(1, keepdims=True)
            h[np.arange(len(y)), y] -= 1
            size = lengths[p] * np.linalg.norm(h, order, axis=1)
            h *= np.minimum(1, clip / np.maximum(size, 1e-30))[:, None].astype(kind)
            g = (X.T @ h) / kind.type(total)
            draw = rng.standard_normal if mechanism == "gaussian" else rng.laplace
            xi = (draw(size=(d, classes)) * scale).astype(kind)
            z[p] = w + (dual[p] - g - xi) / kind.type(rho)
            dual[p] += kind.type(rho) * (w - z[p])
            shifted += z[p] - dual[p] / rho
        spent.append(time.process_time() - began)
        w = (shifted / P).astype(kind)
    return np.array(spent)


def speed(targets: Targets, quick: bool) -> None:
    rows, rounds = [], 8 if quick else 30
    for shape in SHAPES:
        for precision in ("single",) if quick else ("single", "double"):
            peak = measure.apart("private.py", "peak", shape, precision)
            fed = federation(shape, precision)
            for mechanism in ("gaussian", "laplace"):
                parts = [
                    (
                        client_seconds(fed, mechanism, rounds)[2:],
                        restated(fed, mechanism, max(rounds // 3, 4))[1:],
                    )
                    for _ in range(1 if quick else 3)
                ]
                ours = min(float(np.median(a)) for a, _ in parts)
                plain = min(float(np.median(b)) for _, b in parts)
                rows.append(
                    (
                        shape,
                        precision,
                        mechanism,
                        ours,
                        plain,
                        f"{plain / ours:.1f}",
                        peak["peak"],
                        peak["data"],
                    )
                )
                limit = TARGETS.get((shape, precision))
                if limit and mechanism == "gaussian":
                    targets.need(
                        ours <= limit,
                        f"{shape}, {precision}, {mechanism}: {ours:.4f} <= {limit} CPU s a round",
                    )
    columns = (
        "shape",
        "precision",
        "noise",
        "CPU s a round",
        "plain NumPy",
        "times",
        "peak MiB",
        "of it the rows",
    )
    measure.show("speed", columns, rows)
    print(
        "\nCPU s: all clients' steps, median over rounds, least of three repetitions; peak: of a"
        " process of its own\n"
    )


def peak(shape: str, precision: str) -> None:
    """For a process of its own: peak memory before and after the solve."""
    sizes, classes, clip = SHAPES[shape]
    rng, kind = np.random.default_rng(0), np.float32 if precision == "single" else np.float64
    Xs = [rng.random((m, 784), dtype=kind) for m in sizes]
    ys = [rng.integers(0, classes, m) for m in sizes]
    fed = bf.Federation([f"c{i}" for i in range(len(sizes))], Xs, ys, classes=np.arange(classes))
    rows = sum(X.nbytes for X in Xs) / 2**20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    bf.solve(
        curves.problem(1.0), fed, algorithm=PrivateADMM(max_rounds=3, clip=clip, noise="simulation")
    )
    print(json.dumps({"data": rows, "before": before}))


# -------------------------------------------------------------------- errors


def mnist(targets: Targets, quick: bool) -> None:
    exact, rows = curves.mnist(single=False), []
    points = curves.noise_free(exact).points
    for k, (accuracy, violation) in curves.DIGITS.items():
        # of w^k, and of the round that starts there
        found, gap = 1 - points[k - 2].error, points[k - 1].violation
        rows.append((f"w^{k}", f"{found:.4f}", accuracy, f"{gap:.5g}", violation))
        targets.need(
            round(found, 4) == accuracy,
            f"accuracy of w^{k} without noise: {found:.4f} = {accuracy}",
        )
        targets.need(
            abs(gap / violation - 1) <= 1e-4,
            f"consensus violation there: {gap:.5g} = {violation:.5g}",
        )
    columns = ("model", "accuracy", "published code", "violation", "published code")
    measure.show("digits", columns, rows)
    split, rows = curves.mnist(600) if quick else curves.mnist(), []
    for name, settings in (("defaults", {}), ("rho 0.5, clip 5", {"rho": 0.5, "clip": 5.0})):
        for epsilon, rounds, limit in TOTALS[:1] if quick else TOTALS:
            runs = curves.total(split, epsilon, rounds, range(1 if quick else 3), **settings)
            errors, said = curves.errors(runs), max(run.epsilon or 0.0 for run in runs)
            mean = float(np.mean(errors))
            rows.append(
                (
                    f"({epsilon:g}, 1e-6)",
                    rounds,
                    name,
                    100 * mean,
                    100 * min(errors),
                    100 * max(errors),
                    said,
                )
            )
            if name == "defaults":
                where = f"total ({epsilon:g}, 1e-6), {rounds} rounds"
                targets.need(
                    quick or mean <= limit,
                    f"{where}: error {100 * mean:.2f} <= {100 * limit:.1f} %",
                )
                targets.need(said <= epsilon, f"{where}: the ledger says {said:.6f}")
    columns = (
        "total",
        "rounds",
        "settings",
        "error %, mean of three seeds",
        "least",
        "largest",
        "ledger's epsilon",
    )
    measure.show("mnist", columns, rows)


def femnist(targets: Targets, quick: bool) -> None:
    split, rows, rounds = curves.femnist(), [], 10 if quick else 100
    for epsilon in (1.0, 4.0, 8.0):
        runs = curves.total(split, epsilon, rounds, range(1 if quick else 3))
        errors, said = curves.errors(runs), max(run.epsilon or 0.0 for run in runs)
        where = f"({epsilon:g}, 1e-6)"
        rows.append(
            (
                where,
                rounds,
                100 * float(np.mean(errors)),
                100 * min(errors),
                100 * max(errors),
                said,
            )
        )
        targets.need(said <= epsilon, f"FEMNIST, total {where}: the ledger says {said:.6f}")
    # the best of 5, 2 and 1 over P
    plain = PrivateADMM(max_rounds=rounds, rho=1 / split.fed.n_clients)
    free = curves.follow(plain, curves.problem(), split, every=[rounds])
    rows.append(("none", rounds, 100 * free.points[-1].error, None, None, None))
    columns = (
        "total",
        "rounds",
        "error %, mean of three seeds",
        "least",
        "largest",
        "ledger's epsilon",
    )
    measure.show("femnist", columns, rows)


def paper(targets: Targets, quick: bool) -> None:
    split, rounds = curves.mnist(600 if quick else 6000), 10 if quick else 100
    marks, rows = (5, 10) if quick else (10, 25, 50, 100), []
    for epsilon in curves.EPSILONS[:1] if quick else curves.EPSILONS:
        for name in curves.METHODS:
            band = curves.bands(
                curves.published(split, name, epsilon, rounds, range(1 if quick else 3))
            )
            at = [band[k - 1] for k in marks]
            errors = [
                f"{100 * p['error']:.1f} ({100 * p['error_20']:.1f}-{100 * p['error_80']:.1f})"
                for p in at
            ]
            rows.append(
                (
                    name,
                    f"{epsilon:g}",
                    *errors,
                    band[-1]["violation"],
                    band[-1]["noise"],
                    "no guarantee",
                )
            )
            print(rows[-1], flush=True)
    runs = curves.total(split, 1.0, rounds, range(1 if quick else 3), every=marks)
    at = [curves.bands(runs)[i] for i in range(len(marks))]
    errors = [
        f"{100 * p['error']:.1f} ({100 * p['error_20']:.1f}-{100 * p['error_80']:.1f})" for p in at
    ]
    rows.append(
        ("PrivateADMM()", "-", *errors, at[-1]["violation"], at[-1]["noise"], "total (1, 1e-6)")
    )
    columns = (
        "method",
        "epsilon of one iteration",
        *(f"% at {k}" for k in marks),
        "violation",
        "noise",
        "promise",
    )
    measure.show("paper", columns, rows)
    print(
        "\nmean (20-80 % quantiles) of three seeds; violation: sum over clients of ||w - z||_1"
        " over P\n"
    )
    targets.need(
        all(run.epsilon is not None and run.epsilon <= 1 for run in runs),
        "the total keeps its budget",
    )


def composition(targets: Targets, quick: bool) -> None:
    rows = []
    chosen = published_totals.SETTINGS[: 3 if quick else None]
    for row, noted in zip(
        published_totals.composition(chosen), published_totals.STATED, strict=False
    ):
        where = f"{row['epsilon']:g} x {row['rounds']:,}"
        rows.append(
            (where, *(row[key] for key in ("basic", "closed_form", "renyi", "total")), noted)
        )
        digit = 0.05 if noted < 20 else 0.5  # of the last digit
        if row["total"] < row["basic"]:
            told = f"{where}: {row['total']:.4g} as noted, {noted:g}"
            targets.need(abs(row["total"] - noted) <= max(0.01 * noted, digit), told)
    columns = ("epsilon x T", "sum", "closed form", "Renyi, 1-D Laplace", "total", "noted before")
    measure.show("composition", columns, rows)


PARTS = {
    "speed": speed,
    "mnist": mnist,
    "femnist": femnist,
    "paper": paper,
    "composition": composition,
}


def main(words: list[str]) -> None:
    if words[:1] == ["peak"]:
        peak(*words[1:])
        return
    quick, names = "--quick" in words, [word for word in words if not word.startswith("-")]
    print(measure.machine("dp-accounting"), time.strftime("%Y-%m-%d"), flush=True)
    targets = Targets()
    for name in names or PARTS:
        PARTS[name](targets, quick)
    targets.finish()


if __name__ == "__main__":
    main(sys.argv[1:])
