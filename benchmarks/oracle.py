"""A client's only work in a bundle round: its worst-case risk and cut at (5000, 500), beside what
it cannot do without.

The floor is two matrix-vector products and a sort of the rows. Target: at most twice the floor.
"""

from __future__ import annotations

import measure
import numpy as np
from cases import federation, robust

import bonafed as bf

ROWS, FEATURES, TARGET = 5000, 500, 2.0
LOSSES = (
    bf.Hinge(),
    bf.SmoothHinge(),
    bf.Logistic(),
    bf.Huber(0.5),
    bf.EpsilonInsensitive(0.1),
    bf.Quantile(0.3),
    bf.Absolute(),
)


def ratio(loss, norm: str, label_cost: float, repeats: int = 40) -> tuple[float, float]:
    """CPU ms of the floor and of the cut."""
    fed = federation(loss, 1, FEATURES, ROWS, same_size=True)
    problem, fed = robust(loss, 0.05, label_cost, norm).at(fed)
    block, rng = fed.block(0), np.random.default_rng(0)
    X, s, w = fed.rows(0)[0], rng.normal(size=ROWS), 0.02 * rng.normal(size=FEATURES)
    best = measure.alternate(
        {"floor": lambda: (X @ w, s @ X, np.argsort(s)), "cut": lambda: problem.cut(w, block)},
        repeats,
    )
    return best["floor"].seconds * 1e3, best["cut"].seconds * 1e3


def main() -> None:
    print(f"cut at ({ROWS}, {FEATURES}); {measure.machine()}\n")
    rows, targets = [], measure.Targets()
    for loss in LOSSES:
        for norm in ("l1", "l2", "linf"):
            for label_cost in (0.5, float("inf")) if loss.targets == "sign" else (0.5,):
                floor, cut = ratio(loss, norm, label_cost)
                rows.append((type(loss).__name__, norm, label_cost, floor, cut, cut / floor))
    measure.show("cuts", ("loss", "norm", "label cost", "floor ms", "cut ms", "ratio"), rows)
    worst = max(rows, key=lambda row: row[-1])
    hinge = next(row for row in rows if row[:3] == ("Hinge", "l1", 0.5))
    targets.need(
        hinge[-1] <= TARGET,
        f"hinge, l1, finite label cost: {hinge[-1]:.2f} <= {TARGET} times the floor",
    )
    targets.need(
        worst[-1] <= TARGET,
        f"every loss and norm: at most {worst[-1]:.2f} ({worst[0]}, {worst[1]}) <= {TARGET}",
    )
    targets.finish()


if __name__ == "__main__":
    main()
