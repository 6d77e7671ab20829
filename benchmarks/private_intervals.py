"""Coverage of private confidence intervals: how often 95 % intervals hold the truth.

Logistic, linear and Poisson regressions of 3 clients, total (epsilon, 1e-6); new rows and new noise
in each of ``--times`` repetitions (500). Beside it the coverage of the intervals that leave the
privacy noise out. Target: 93 to 97 % over all coefficients of every model. One thread.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from dataclasses import dataclass
from typing import Any

import measure
import numpy as np

import bonafed as bf
from bonafed.solution.solve import fit

DELTA, LEVEL, TARGET = 1e-6, 0.95, (0.93, 0.97)
SD = 0.3  # of the residuals of linear models
LINEAR: dict[str, Any] = {"loss": bf.Squared, "residual": 4.5 * SD}
# of counts whose expectations lie between 0.7 and 3.7
COUNTS: dict[str, Any] = {"loss": bf.Poisson, "residual": 6.0}


@dataclass(frozen=True)
class Model:
    """A regression whose truth is known."""

    name: str
    rows: int
    truth: tuple[float, ...]  # the last is the intercept
    epsilon: float
    correlation: float = 0.0
    loss: type[bf.Logistic | bf.Squared | bf.Poisson] = bf.Logistic
    residual: float | None = None  # the declared bound on a residual

    def drawn(self, rng: np.random.Generator) -> tuple[bf.Federation, bf.Problem]:
        """New rows of three clients."""
        d = len(self.truth) - 1
        X = rng.uniform(-1, 1, (self.rows, d))
        X = (1 - self.correlation) * X + self.correlation * X[:, :1]
        score = X @ self.truth[:-1] + self.truth[-1]
        if self.loss is bf.Squared:
            y = score + SD * rng.normal(size=self.rows)
        elif self.loss is bf.Poisson:
            y = rng.poisson(np.exp(score))
        else:
            y = np.where(score + rng.logistic(size=self.rows) > 0, 1, -1)
        fed = bf.Federation.from_arrays(X, y, rng.integers(0, 3, self.rows))
        budget = bf.Budget(self.epsilon, DELTA)
        mean, model = bf.Mean("size"), bf.Linear(fit_intercept=True)
        return fed, bf.Problem(self.loss(), model, over_clients=mean, privacy=budget)

    @property
    def method(self) -> bf.PrivateNewton:
        """Settings that look at no row: features lie in [-1, 1], residuals within their bound."""
        bound = math.sqrt(len(self.truth) - 1)
        clip = None if self.residual is None else self.residual * math.hypot(bound, 1)
        return bf.PrivateNewton(bound=bound, clip=clip, inference=True, noise="simulation")


MODELS = (
    Model("logistic, 3 features", 4000, (1.0, -0.5, 0.0, 0.3), 1.0),
    Model("logistic, 3 features", 2500, (1.0, -0.5, 0.0, 0.3), 2.0),
    Model("logistic, 5 features", 5000, (1.0, -0.5, 0.0, 0.5, -1.0, 0.3), 2.0),
    Model("logistic, correlated", 5000, (1.0, -0.5, 0.0, 0.3), 2.0, correlation=0.4),
    Model("linear, 3 features", 4000, (0.4, -0.2, 0.0, 0.1), 1.0, **LINEAR),
    Model("linear, 3 features", 2500, (0.4, -0.2, 0.0, 0.1), 2.0, **LINEAR),
    Model("linear, 5 features", 5000, (0.4, -0.2, 0.0, 0.1, 0.3, 0.1), 2.0, **LINEAR),
    Model("Poisson, 3 features", 8000, (0.5, -0.3, 0.0, 0.5), 1.0, **COUNTS),
    Model("Poisson, 3 features", 4000, (0.5, -0.3, 0.0, 0.5), 2.0, **COUNTS),
    Model("Poisson, small counts", 6000, (0.5, -0.3, 0.0, 0.0), 2.0, 0.0, bf.Poisson, 4.5),
)


def covered(model: Model, times: int) -> dict[str, float]:
    """What the repetitions come to."""
    held, naive, noise, errors, scores, refused = [], [], [], [], [], 0
    truth, began = np.array(model.truth), time.process_time()
    for seed in range(times):
        fed, problem = model.drawn(np.random.default_rng([seed, 11]))
        try:
            found = bf.private_intervals(fit(problem, fed, algorithm=model.method, seed=seed))
        except ValueError:
            refused += 1
            continue
        held.append((found.low <= truth) & (truth <= found.high))
        alone = 1.96 * found.error * np.sqrt(1 - found.noise)
        naive.append(np.abs(found.estimate - truth) <= alone)
        noise.append(found.noise)
        errors.append(found.error)
        scores.append(found.estimate - truth)
    return {
        "coverage %": 100 * float(np.mean(held)),
        "least %": 100 * float(np.mean(held, 0).min()),
        "largest %": 100 * float(np.mean(held, 0).max()),
        "without noise %": 100 * float(np.mean(naive)),
        "noise in variance %": 100 * float(np.mean(noise)),
        "error stated": float(np.mean(errors)),
        "error found": float(np.sqrt(np.mean(np.square(scores)))),
        "refused": refused,
        "CPU s": time.process_time() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=500)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    targets, rows = measure.Targets(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of simulated noise
        for model in MODELS:
            if args.only not in model.name:
                continue
            found = covered(model, args.times)
            label = f"{model.name}, epsilon {model.epsilon:g}, {model.rows} rows"
            rows.append((label, *found.values()))
            share = found["coverage %"] / 100
            targets.need(TARGET[0] <= share <= TARGET[1], f"{label}: {share:.1%}")
    measure.show("intervals", ("model", *found), rows)
    targets.finish()


if __name__ == "__main__":
    main()
