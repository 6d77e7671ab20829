"""A program that mypy and pyright accept; `.ci/run` asks both."""

from __future__ import annotations

import numpy as np
import pandas
import polars
from scipy.sparse import csr_array, csr_matrix

import quorate as qr
from quorate.model_selection import cross_validate

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
table, group = pandas.DataFrame(X), pandas.Series(["a", "b"] * 3)
qr.RobustClassifier(radius={"a": 0.1, "b": 0.2}, prior="uniform", regulariser=qr.L1(0.1)).fit(
    table, pandas.Series(y), groups=group
)
qr.RobustRegressor(radius="auto", support=qr.BoxSupport(0.0, [1.0, 2.0])).fit(
    polars.DataFrame(X), polars.Series(y), groups=polars.Series(["a", "b"] * 3)
)
qr.AgnosticClassifier(qr.KLBall(0.1), model=qr.MLP((4,)), engine="virtual").fit(
    csr_array(X), y.tolist(), groups=["a", "b"] * 3, sample_weight=np.ones(6)
).predict(csr_matrix(X))
qr.ConstrainedClassifier(
    constraint=[qr.Coupled(qr.NeymanPearson(1, 0.2)), qr.Sign({"x0": 1})],
    local_constraint=qr.DemographicParity("sex", {"a": 0.1, "b": 0.2}, qr.Probability()),
    objective_label="ill",
    over_clients=qr.Simplex(),
    algorithm=qr.ProximalAL(),
).fit(X, y, groups=group, sensitive_features={"sex": y}, server=(X, y, table))
qr.ConstrainedClassifier(local_constraint=qr.Constraint(lambda w, X, y: (w[:1], w[None])))
qr.RiskClassifier(qr.RankedRange(3, 1)).fit(table, y, groups=None).fairness_report("a")
qr.RiskRegressor(qr.Extremile(2.0), algorithm=qr.RankADMM(), random_state=None).fit(X, y)
qr.PrivateClassifier(sizes={"a": 3, "b": 3}, book="ledger.toml", classes=[0, 1]).fit(X, y)
rates = qr.group_rates(y, table[0], group, positive=True)
scores = cross_validate(model, table, y, groups=group, scoring=qr.worst_client_loss)
shapes = [qr.Ellipsoid(np.eye(2), 0.1), qr.Ellipsoid({"a": 1.0, "b": 2.0}, 0.1)]
weighted = [qr.Polyhedron({"a": [1.0], "b": [2.0]}, [0.5]), qr.Spectral([0.2, 0.8])]
