"""Private ADMM: CPU seconds of a round, and test error within totals.

    private.py speed  a round with noise at the shapes of MNIST (10 x 6,000 x 784 x 10) and FEMNIST
        (195 ragged clients, 36,708 rows, 784 x 62), beside the same in plain NumPy in the same run,
        and peak memory. Targets: 0.05 and 0.14 CPU s.
    private.py mnist  test error within (1, 1e-6) after 100 and 300 rounds, within (0.5, 1e-6) after
        100: means of three seeds. Targets: 13.0, 11.0, 13.5 %.
    private.py femnist  test error on the public part of FEMNIST within totals. No target.

``--quick`` runs small parts. All but ``speed`` need the data directory; ``bonafed reproduce``
runs the paper's experiments. One thread.
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
from bonafed.papers.dp_iadmm import experiments
from bonafed.papers.dp_iadmm.published import DELTA

Targets = measure.Targets
# of FEMNIST: clients, rows in all, their mean, standard deviation and largest number
FEMNIST = (195, 36_708, 188.0, 89.0, 550)
# with Gaussian noise; Laplace's finer grid needs doubles and has none
TARGETS = {("MNIST", "single"): 0.05, ("FEMNIST", "single"): 0.14}
TOTALS = ((1.0, 100, 0.130), (1.0, 300, 0.110), (0.5, 100, 0.135))


# -------------------------------------------------------------------- speed


def shaped(sizes: np.ndarray, features: int = 784, classes: int = 10, seed: int = 0) -> Any:
    """A federation of generated images, a fifth of the entries not zero: labels of a linear rule,
    double precision.
    """
    rng = np.random.default_rng(seed)
    rule, Xs, ys = rng.normal(size=(features, classes)), [], []
    for m in sizes:
        X = rng.random((m, features)) * (rng.random((m, features)) < 0.2)
        Xs.append(X)
        ys.append((X @ rule + rng.gumbel(size=(m, classes))).argmax(1))
    names = tuple(f"client {i}" for i in range(len(sizes)))
    return bf.Federation(names, tuple(Xs), tuple(ys), classes=np.arange(classes))


def ragged(seed: int = 0) -> np.ndarray:
    """Sizes like those of FEMNIST's clients: the same number, sum, mean and largest size, and about
    the same deviation.
    """
    clients, rows, mean, sd, most = FEMNIST
    spread = np.log1p((sd / mean) ** 2)
    middle, rng = np.log(mean) - spread / 2, np.random.default_rng(seed)
    drawn = rng.lognormal(middle, np.sqrt(spread), clients)
    sizes = np.clip(drawn, 18, most).astype(np.int64)
    sizes[sizes.argmax()] = most
    others = np.flatnonzero(sizes < most)
    while (off := rows - int(sizes.sum())) != 0:
        at = others[: abs(off)]
        sizes[at] = np.clip(sizes[at] + np.sign(off), 18, most - 1)
    return sizes


SHAPES = {"MNIST": (np.full(10, 6000), 10, 5.0), "FEMNIST": (ragged(), 62, 5.0)}


def federation(shape: str, precision: str) -> bf.Federation:
    sizes, classes, _ = SHAPES[shape]
    fed = shaped(sizes, classes=classes)
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
        bf.solve(within(1.0), fed, algorithm=algorithm)
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
    bf.solve(within(1.0), fed, algorithm=PrivateADMM(max_rounds=3, clip=clip, noise="simulation"))
    print(json.dumps({"data": rows, "before": before}))


# -------------------------------------------------------------------- errors


def within(epsilon: float) -> bf.Problem:
    """The paper's problem within a total (epsilon, 1e-6)."""
    return experiments.problem(bf.Budget(epsilon, DELTA))


def errors_within(
    split: experiments.Split, epsilon: float, rounds: int, seeds: range, **settings: Any
) -> tuple[list[float], float]:
    """The test errors of a run by seed, in single precision, and the ledger's epsilon."""
    algorithm = PrivateADMM(max_rounds=rounds, noise="simulation", **settings)
    runs = [
        bf.solve(within(epsilon), split.fed.single(), algorithm=algorithm, seed=k) for k in seeds
    ]
    ledger = runs[0].ledger
    assert ledger is not None
    return [split.error(run.w) for run in runs], ledger.epsilon or 0.0


def mnist(targets: Targets, quick: bool) -> None:
    split, rows = experiments.mnist(600 if quick else experiments.ROWS), []
    for name, settings in (("defaults", {}), ("rho 0.5, clip 5", {"rho": 0.5, "clip": 5.0})):
        for epsilon, rounds, limit in TOTALS[:1] if quick else TOTALS:
            seeds = range(1 if quick else 3)
            errors, said = errors_within(split, epsilon, rounds, seeds, **settings)
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
    split, rows, rounds = experiments.femnist(), [], 10 if quick else 100
    for epsilon in (1.0, 4.0, 8.0):
        errors, said = errors_within(split, epsilon, rounds, range(1 if quick else 3))
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
    free = bf.solve(experiments.problem(), split.fed.single(), algorithm=plain)
    rows.append(("none", rounds, 100 * split.error(free.w), None, None, None))
    columns = (
        "total",
        "rounds",
        "error %, mean of three seeds",
        "least",
        "largest",
        "ledger's epsilon",
    )
    measure.show("femnist", columns, rows)


PARTS = {"speed": speed, "mnist": mnist, "femnist": femnist}


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
