"""The rank-based proximal step (sort included) at 1e5 and 1e6 rows, by loss and by risk.

    argmin_z  sum_i sigma_i l(z_[i]) + rho / 2 ||z - m||^2          m ~ N(-1/2, 4^2), rho = 0.3 / n

so that steps are about 3 times the gradient of the loss, and pooled blocks are one (superquantile)
to ten thousand. Targets: at 1e5 rows at most 10 ms with the logistic and 2 ms with the hinge loss,
at 1e6 rows 130 ms. Compiling is not counted. Beside it NumPy's argsort of the same numbers.
"""

from __future__ import annotations

import measure
import numpy as np

import bonafed as bf
from bonafed.problem.rank_levels import kernel_of
from bonafed.solvers.rank.proxes import rank_prox

LOSSES = (bf.Hinge(), bf.SmoothHinge(), bf.Logistic(), bf.Exponential())
RISKS = {
    "mean": lambda n: np.full(n, 1 / n),
    "superquantile 0.2": lambda n: bf.Superquantile(tail=0.2).rank_weights(n),
    "extremile 2": lambda n: bf.Extremile(2.0).rank_weights(n),
    "ESRM 1": lambda n: bf.ExponentialSpectral(1.0).rank_weights(n),
    "ranked range": lambda n: bf.RankedRange(n * 9 // 10, n // 2).rank_weights(n),
}
TARGETS = {
    (100_000, "Hinge"): 2.0,
    (100_000, "Logistic"): 10.0,
    (1_000_000, "Hinge"): 130.0,
    (1_000_000, "Logistic"): 130.0,
}


def main() -> None:
    print(f"one proximal step, CPU ms; {measure.machine()}\n")
    rows, targets = [], measure.Targets()
    for n, repeats in ((100_000, 15), (1_000_000, 5)):
        m = np.random.default_rng(0).normal(-0.5, 4.0, n)
        weights = {name: make(n) for name, make in RISKS.items()}
        for loss in LOSSES:
            kernel, name = kernel_of(loss), type(loss).__name__
            for warm in weights.values():
                rank_prox(m[:100], warm[:100], 0.3, kernel)
            steps = {
                risk: lambda sigma=sigma, kernel=kernel: rank_prox(m, sigma, 0.3 / n, kernel)  # noqa: B023, run at once
                for risk, sigma in weights.items()
            }
            best = measure.alternate(steps | {"argsort": lambda: np.argsort(m)}, repeats)  # noqa: B023, run at once
            ms = {variant: 1e3 * timed.seconds for variant, timed in best.items()}
            blocks = [len(best[risk].result.start) for risk in RISKS]
            rows.append((f"{n:,}", name, *ms.values(), max(blocks)))
            if (n, name) in TARGETS:
                slowest, limit = max(RISKS, key=ms.__getitem__), TARGETS[n, name]
                targets.need(
                    ms[slowest] <= limit,
                    f"{name}, {n:,} rows: {ms[slowest]:.2f} <= {limit:g} ms ({slowest})",
                )
    measure.show("steps", ("rows", "loss", *RISKS, "argsort", "most blocks"), rows)
    targets.finish()


if __name__ == "__main__":
    main()
