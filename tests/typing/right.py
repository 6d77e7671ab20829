"""A program that mypy and pyright accept; `.ci/run` asks both."""

from __future__ import annotations

import numpy as np

import quorate as qr

X, y = np.zeros((6, 2)), np.array([0, 1] * 3)
fed = qr.Federation.from_arrays(X, y, ["a", "b"] * 3)
problem = qr.Problem(
    loss=qr.Huber(threshold=2.0),
    over_samples=qr.WassersteinBall(0.05, 0.5),
    over_clients=qr.LpBall(radius=0.1, p=1.0, prior={"a": 0.5, "b": 0.5}),
    regulariser=qr.ElasticNet(0.1, 0.2),
    constraint=qr.Sign({"x0": 1}),
)
solution: qr.Solution = qr.solve(problem, fed, algorithm=qr.Bundle(variant="level"), tol=1e-3)
weights = qr.Box(lower=0.1, upper=[0.5, 0.9])
ranks = qr.RankedRange(3, 1, order="descending")
engine = qr.VirtualClock(delays=qr.Constant(2.0), wait=qr.First(2))
model = qr.RobustClassifier(radius=0.1)
text: str = qr.__version__
problems = [
    qr.Problem(qr.Hinge()),
    qr.Problem(qr.Logistic(), over_samples=qr.Superquantile(0.2)),
    qr.Problem(qr.EpsilonInsensitive(0.2), regulariser=qr.L1(0.1)),
    qr.Problem(qr.Multinomial(), qr.Softmax(), regulariser=qr.MCP(0.1)),
    qr.Problem(qr.Squared(), qr.Linear(True), over_clients=qr.Mean("size")),
]
