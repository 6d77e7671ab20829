"""How far `default_radius` is from the best multiple of itself in hindsight, on held-out rows of
the worst client.

python benchmarks/default_radius.py        (about 6 minutes on one core)
"""

import math

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.preprocessing import StandardScaler

from quorate.data.federation import Federation
from quorate.model_selection import default_radius
from quorate.problem.losses import Hinge, Huber, Logistic
from quorate.problem.predictors.affine import Linear
from quorate.problem.problem import Problem
from quorate.problem.regularisers import L2
from quorate.problem.risks.lp_ball import LpBall
from quorate.problem.wasserstein.ball import WassersteinBall
from quorate.solution.solve import solve

MULTIPLES = [0.0, 0.1, 0.3, 1.0, 3.0]


def synthetic():
    rng = np.random.default_rng(5)
    X, w = rng.standard_normal((3000, 15)), rng.standard_normal(15)
    return X, (X @ w + 2 * rng.standard_normal(3000) > 0).astype(int)


def digits():
    X, y = load_digits(return_X_y=True)
    return X, y % 2


def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return X, (y - y.mean()) / y.std()


DATA = {
    "breast cancer": (lambda: load_breast_cancer(return_X_y=True), Hinge()),
    "synthetic": (synthetic, Hinge()),
    "diabetes": (diabetes, Huber()),
    "digits": (digits, Logistic()),
}


def clients(X, seed, n_clients):
    """Clients along the first principal axis, blurred: different feature distributions."""
    rng = np.random.default_rng(seed)
    order, axis = (
        rng.permutation(len(X)),
        X @ np.linalg.svd(X - X.mean(0), full_matrices=False)[2][0],
    )
    cuts = np.quantile(
        axis + axis.std() * rng.standard_normal(len(X)), np.arange(1, n_clients) / n_clients
    )
    return order, np.searchsorted(cuts, axis)


def losses(problem, fed, w):
    fed = Problem(problem.loss, problem.predictor).at(fed)[1]
    blocks = [fed.block(i) for i in range(fed.n_clients)]
    predictions = [problem.predictor.forward(w, block) for block in blocks]
    values = [
        float(b.mean(problem.loss.value(p, b.y))[0])
        for b, p in zip(blocks, predictions, strict=True)
    ]
    return dict(zip(fed.clients, values, strict=True))


def setting(X, y, loss, norm, label_cost, n_clients, rows, repeats=3):
    """(len(MULTIPLES), 2): largest held-out client loss, share of clients whose training worst case
    exceeds theirs.
    """
    found = np.zeros((repeats, len(MULTIPLES), 2))
    sign = loss.targets == "sign"
    for r in range(repeats):
        order, group = clients(X, r, n_clients)
        train = np.concatenate([order[group[order] == s][:rows] for s in range(n_clients)])
        test = np.setdiff1d(np.arange(len(y)), train)
        classes = (0, 1) if sign else None
        fed, held = (
            Federation.from_arrays(X[k], y[k], group[k], classes=classes) for k in (train, test)
        )
        radius = default_radius(fed, norm=norm, label_cost=label_cost, loss=loss)
        for j, multiple in enumerate(MULTIPLES):
            radii = np.minimum(multiple * radius, 0.45 * label_cost) if sign else multiple * radius
            ball = WassersteinBall(radii, label_cost, norm)
            problem = Problem(loss, Linear(True), ball, LpBall(0.1, 2, "size"), L2(1e-4))
            solution = solve(problem, fed, tol=1e-4)
            loss_of, risks = losses(problem, held, solution.w), solution.certificate.client_risks
            covered = [risks[i] >= loss_of[c] for i, c in enumerate(fed.clients) if c in loss_of]
            found[r, j] = max(loss_of.values()), np.mean(covered)
    return found.mean(0)


def main():
    table = []
    for n_clients, rows in ((1, 80), (1, 300), (4, 20), (4, 80), (8, 30)):
        for norm, label_cost in (
            ("l1", math.inf),
            ("l2", math.inf),
            ("linf", math.inf),
            ("l1", 1.0),
        ):
            for name, (load, loss) in DATA.items():
                if (name == "diabetes" and label_cost == 1.0) or (
                    name == "digits" and norm == "linf"
                ):
                    continue
                X, y = load()
                found = setting(
                    StandardScaler().fit_transform(X), y, loss, norm, label_cost, n_clients, rows
                )
                table.append(found)
                print(
                    f"{name:14s}{norm:5s}{label_cost:5g} {n_clients} x {rows:3d}  worst client"
                    f" {found[:, 0].round(3)}"
                )
    table = np.array(table)
    best = table[:, :, 0].min(1)
    for label, k in (("radius 0", 0), ("default", 3)):
        ratio = table[:, k, 0] / best
        quantiles = np.quantile(ratio, [0.5, 0.9, 1]).round(2)
        print(
            f"{label}: worst client loss / best, median, 9 of 10, max {quantiles}; covered"
            f" {table[:, k, 1].mean():.2f}"
        )
    print(
        f"{len(table)} settings; the default is better than 0 in"
        f" {np.mean(table[:, 3, 0] < table[:, 0, 0]):.0%}"
    )


if __name__ == "__main__":
    main()
