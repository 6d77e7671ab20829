"""Peak memory of a 1,000-client run over a million rows, in a process of its own.

The data are rows x (features + 1) numbers. Beyond them the engine holds the clients once more as
padded blocks, and a client's step holds some arrays of one number per row of its block. The server
holds K cuts of features + 3 numbers and the points they were made at: never a number per row, never
one model per client.
"""

from __future__ import annotations

import json
import sys

import measure
import numpy as np

CLIENTS, FEATURES = 1000, 20
MEBI = 2**20


def rows_of(total: int) -> np.ndarray:
    """Lognormal sizes, as real federations have them, that add up to about ``total``."""
    size = np.random.default_rng(0).lognormal(sigma=0.5, size=CLIENTS)
    return np.maximum(8, (size * total / size.sum()).astype(int))


def main() -> None:
    if len(sys.argv) > 1:
        return child(int(sys.argv[1]), sys.argv[2])
    print(f"{CLIENTS} clients, {FEATURES} features; {measure.machine()}; MiB\n")
    rows, targets = [], measure.Targets()
    for total in (100_000, 1_000_000):
        for mode in ("blocks", "each"):
            told = measure.apart("memory.py", total, mode)
            over = told["peak"] - told["before"]
            rows.append(
                (
                    total,
                    mode,
                    told["rounds"],
                    told["data"],
                    told["before"],
                    told["peak"],
                    over,
                    told["state"],
                )
            )
    names = (
        "rows",
        "mode",
        "rounds",
        "data",
        "before solve",
        "peak",
        "solve adds",
        "server's state",
    )
    measure.show("memory", names, rows)
    data, over = rows[2][3], rows[2][-2]
    targets.need(
        over <= 3 * data,
        f"blocks, 1e6 rows: solve adds {over:.0f} MiB <= 3 x the data ({data:.0f} MiB)",
    )
    small = max(row[-1] for row in rows)
    targets.need(
        small <= 64,
        f"the server's state is at most {small:.1f} MiB <= 64, whatever the number of rows",
    )
    targets.need(
        rows[3][-2] <= data,
        f"one by one, 1e6 rows: solve adds {rows[3][-2]:.0f} MiB <= the data ({data:.0f} MiB)",
    )
    targets.finish()


def child(total: int, mode: str) -> None:
    import resource

    from cases import robust

    import bonafed as bf
    from bonafed.rounds import encode

    rng, sizes = np.random.default_rng(1), rows_of(total)
    rule = rng.normal(size=FEATURES)
    Xs = [rng.normal(size=(m, FEATURES)) for m in sizes]
    ys = [np.where(X @ (rule + 0.5 * rng.normal(size=FEATURES)) > 0, 1.0, -1.0) for X in Xs]
    fed = bf.Federation([f"c{i}" for i in range(CLIENTS)], Xs, ys)
    data = sum(X.nbytes + y.nbytes for X, y in zip(Xs, ys, strict=True)) / MEBI
    # imports and compiled kernels
    bf.solve(robust(bf.Hinge()), fed.restrict(fed.clients[:10]), max_rounds=2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    solution = bf.solve(robust(bf.Hinge()), fed, engine=bf.InProcess(mode))
    state = len(encode(solution.state)) / MEBI
    print(json.dumps({"data": data, "before": before, "rounds": solution.rounds, "state": state}))


if __name__ == "__main__":
    main()
