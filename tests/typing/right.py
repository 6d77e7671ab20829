"""A program that mypy and pyright accept; `.ci/run` asks both."""

from __future__ import annotations

import numpy as np
import pandas
import polars
from scipy.sparse import csr_array, csr_matrix

import bonafed as bf
from bonafed.model_selection import cross_validate

X, y = np.zeros((6, 2)), np.array([0, 1] * 3)
fed = bf.Federation.from_arrays(X, y, ["a", "b"] * 3)
problem = bf.Problem(
    loss=bf.Huber(threshold=2.0),
    over_samples=bf.WassersteinBall(0.05, 0.5),
    over_clients=bf.LpBall(radius=0.1, p=1.0, prior={"a": 0.5, "b": 0.5}),
    regulariser=bf.ElasticNet(0.1, 0.2),
    constraint=bf.Sign({"x0": 1}),
)
solution: bf.Solution = bf.solve(problem, fed, algorithm=bf.Bundle(variant="level"), tol=1e-3)
weights = bf.Box(lower=0.1, upper=[0.5, 0.9])
ranks = bf.RankedRange(3, 1, order="descending")
engine = bf.VirtualClock(delays=bf.Constant(2.0), wait=bf.First(2))
model = bf.RobustClassifier(radius=0.1)
text: str = bf.__version__
problems = [
    bf.Problem(bf.Hinge()),
    bf.Problem(bf.Logistic(), over_samples=bf.Superquantile(0.2)),
    bf.Problem(bf.EpsilonInsensitive(0.2), regulariser=bf.L1(0.1)),
    bf.Problem(bf.Multinomial(), bf.Softmax(), regulariser=bf.MCP(0.1)),
    bf.Problem(bf.Squared(), bf.Linear(True), over_clients=bf.Mean("size")),
]
table, group = pandas.DataFrame(X), pandas.Series(["a", "b"] * 3)
bf.RobustClassifier(radius={"a": 0.1, "b": 0.2}, prior="uniform", regulariser=bf.L1(0.1)).fit(
    table, pandas.Series(y), groups=group
)
bf.RobustRegressor(radius="auto", support=bf.BoxSupport(0.0, [1.0, 2.0])).fit(
    polars.DataFrame(X), polars.Series(y), groups=polars.Series(["a", "b"] * 3)
)
bf.AgnosticClassifier(bf.KLBall(0.1), model=bf.MLP((4,)), engine="virtual").fit(
    csr_array(X), y.tolist(), groups=["a", "b"] * 3, sample_weight=np.ones(6)
).predict(csr_matrix(X))
bf.ConstrainedClassifier(
    constraint=[bf.Coupled(bf.NeymanPearson(1, 0.2)), bf.Sign({"x0": 1})],
    local_constraint=bf.DemographicParity("sex", {"a": 0.1, "b": 0.2}, bf.Probability()),
    objective_label="ill",
    over_clients=bf.Simplex(),
    algorithm=bf.ProximalAL(),
).fit(X, y, groups=group, sensitive_features={"sex": y}, server=(X, y, table))
bf.ConstrainedClassifier(local_constraint=bf.Constraint(lambda w, X, y: (w[:1], w[None])))
bf.RiskClassifier(bf.RankedRange(3, 1)).fit(table, y, groups=None).fairness_report("a")
bf.RiskRegressor(bf.Extremile(2.0), algorithm=bf.RankADMM(), random_state=None).fit(X, y)
bf.PrivateClassifier(sizes={"a": 3, "b": 3}, book="ledger.toml", classes=[0, 1]).fit(X, y)
rates = bf.group_rates(y, table[0], group, positive=True)
scores = cross_validate(model, table, y, groups=group, scoring=bf.worst_client_loss)
shapes = [bf.Ellipsoid(np.eye(2), 0.1), bf.Ellipsoid({"a": 1.0, "b": 2.0}, 0.1)]
weighted = [bf.Polyhedron({"a": [1.0], "b": [2.0]}, [0.5]), bf.Spectral([0.2, 0.8])]
