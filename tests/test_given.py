"""What users give and get: classes instead of values, numbers out of range, names of columns, one
pair by client, and client names that stay what they were.
"""

from __future__ import annotations

import re
from importlib.metadata import version

import numpy as np
import pytest
from typer.testing import CliRunner

import quorate as qr
from quorate.cli import app

NAMES = (3, 10, 7)
GROUPS = np.repeat(NAMES, [12, 9, 15])


def rows(seed=0):
    X = np.random.default_rng(seed).standard_normal((len(GROUPS), 2))
    return X, np.where(X[:, 0] > 0, "b", "a")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: qr.Problem(qr.Hinge), r"loss must be a value, got the class Hinge: write Hinge\("),
        (lambda: qr.Problem(qr.Hinge(), qr.Linear), "predictor must be a value"),
        (lambda: qr.Problem(qr.Hinge(), over_clients=qr.LpBall), r"write LpBall\(...\)"),
        (
            lambda: qr.Problem(qr.Logistic(), constraint=qr.Coupled(qr.NeymanPearson)),
            "constraint of constraint must be a value, got the class NeymanPearson",
        ),
        (
            lambda: qr.Problem(qr.Logistic(), local_constraint=(qr.NeymanPearson,)),
            "every part of local_constraint must be a value",
        ),
        (
            lambda: qr.Problem(
                qr.Hinge(), over_samples=qr.WassersteinBall(0.1, support=qr.BoxSupport)
            ),
            "support of over_samples must be a value, got the class BoxSupport",
        ),
    ],
)
def test_a_class_in_the_place_of_a_value_is_refused_when_the_problem_is_made(make, text):
    with pytest.raises(TypeError, match=text):
        make()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        *[
            (lambda risk=risk: risk(-0.1), "radius must be")
            for risk in (qr.WassersteinBall, qr.LpBall, qr.KLBall, qr.ChiSquareBall)
        ],
        (lambda: qr.WassersteinBall({3: -0.1, 10: 0.1}), "radius must be >= 0"),
        (lambda: qr.TotalVariationBall(-1), "radius must be"),
        (lambda: qr.WassersteinOverClients(-1.0), "radius must be"),
        (lambda: qr.Box(0.5, 0.2), "lower must not be above upper, got 0.5 and 0.2"),
        (
            lambda: qr.Problem(qr.Hinge(), over_clients=qr.LpBall(0.1, prior="big")),
            "prior must be 'uniform', 'size' or weights by client, got 'big'",
        ),
        (
            lambda: qr.Problem(qr.Hinge(), over_clients=qr.LpBall(0.1, prior={3: -1, 10: 2})),
            "prior must be >= 0",
        ),
    ],
)
def test_numbers_out_of_range_are_refused_when_they_are_given(make, text):
    with pytest.raises(ValueError, match=text):
        make()


@pytest.mark.parametrize("library", ["pandas", "polars", "mapping"])
def test_groups_and_targets_may_be_names_of_columns(library):
    X, y = rows()
    table = {"x0": X[:, 0], "site": GROUPS, "x1": X[:, 1], "state": y}
    frame = table if library == "mapping" else pytest.importorskip(library).DataFrame(table)
    fed = qr.Federation.from_arrays(frame, "state", "site")
    same = qr.Federation.from_arrays(X, y, GROUPS)
    assert (fed.clients, fed.feature_names) == (NAMES, ("x0", "x1"))
    assert fed.digests() == same.digests()


def test_a_frame_names_its_clients_as_client_or_groups():
    X, y = rows()
    table = {"x0": X[:, 0], "site": GROUPS, "x1": X[:, 1], "state": y}
    one = qr.Federation.from_frame(table, "site", "state")
    assert qr.Federation.from_frame(table, groups="site", target="state").digests() == one.digests()
    with pytest.raises(ValueError, match="needs the names of two columns, client and target, got"):
        qr.Federation.from_frame(table, GROUPS, "state")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_estimators_take_the_column_of_clients_out_of_the_table(library):
    make = pytest.importorskip(library).DataFrame
    X, y = rows()
    frame = make({"x0": X[:, 0], "site": GROUPS, "x1": X[:, 1]})
    named = qr.RobustClassifier(radius=0.01).fit(frame, y, groups="site")
    plain = qr.RobustClassifier(radius=0.01).fit(
        make({"x0": X[:, 0], "x1": X[:, 1]}), y, groups=GROUPS
    )
    assert named.coef_.tolist() == plain.coef_.tolist()
    assert named.clients_.tolist() == [*NAMES]
    assert named.feature_names_in_.tolist() == ["x0", "x1"]
    without = make({"x0": X[:, 0], "x1": X[:, 1]})
    assert named.predict(frame).tolist() == named.predict(without).tolist()


def test_a_mapping_of_pairs_is_a_federation():
    pd = pytest.importorskip("pandas")
    X, y = rows()
    same = qr.Federation.from_arrays(X, y, GROUPS, sample_weight=np.arange(36.0))
    pairs = {name: (X[name == GROUPS], y[name == GROUPS]) for name in NAMES}
    weight = {name: np.arange(36.0)[name == GROUPS] for name in reversed(NAMES)}
    fed = qr.Federation.from_arrays(pairs, sample_weight=weight)
    assert fed.clients == NAMES
    assert fed.digests() == same.digests()
    frames = {name: (pd.DataFrame(x, columns=["u", "v"]), y) for name, (x, y) in pairs.items()}
    frames[7] = (frames[7][0][["v", "u"]], frames[7][1])
    fed = qr.Federation.from_arrays(frames)
    assert fed.feature_names == ("u", "v")
    assert fed.digests() == qr.Federation.from_arrays(X, y, GROUPS).digests()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda X, y: qr.Federation.from_arrays(X, y), r"needs groups.*\{client: \(X, y\)\}"),
        (lambda X, y: qr.Federation.from_arrays(X), "needs y"),
        (
            lambda X, y: qr.Federation.from_arrays(X, y, "site"),
            "groups='site' names a column, and X is a ndarray without names: give a table",
        ),
        (
            lambda X, y: qr.Federation.from_arrays({"a": X[:, 0], "site": GROUPS}, y, "sit"),
            "groups='sit' is no column of X; there are 'a', 'site'. Did you mean 'site'",
        ),
        (
            lambda X, y: qr.Federation.from_arrays({3: X}),
            r"client 3 must be a pair \(X, y\), got ndarray",
        ),
        (
            lambda X, y: qr.Federation.from_arrays({3: (X, y)}, sample_weight=np.ones(36)),
            "sample_weight must be a mapping by client name",
        ),
        (
            lambda X, y: qr.Federation.from_arrays(
                {3: ({"u": [1.0]}, [1]), 1: ({"v": [1.0]}, [0])}
            ),
            "client 1 has other columns than the first one; not in both",
        ),
        (
            lambda X, y: qr.RobustClassifier().fit(X, y, groups="site"),
            "groups='site' names a column, and X is a ndarray without names",
        ),
    ],
)
def test_what_cannot_be_read_is_answered_in_one_line_that_helps(make, text):
    with pytest.raises(ValueError, match=text) as raised:
        make(*rows())
    assert "\n" not in str(raised.value)


@pytest.mark.filterwarnings("ignore::quorate.NoPrivacyWarning")
def test_whole_numbers_stay_numbers_wherever_names_are_given_or_got():
    X, y = rows()
    fed = qr.Federation.from_arrays(X, y, GROUPS)
    problem = qr.Problem(
        qr.Logistic(),
        qr.Linear(intercept=True),
        over_samples=qr.WassersteinBall({7: 0.01, 3: 0.02, 10: 0.03}),
        over_clients=qr.LpBall(0.1, prior={10: 0.5, 3: 0.25, 7: 0.25}),
        regulariser=qr.L2(0.1),
    )
    solution = qr.solve(problem, fed)
    assert [row["radius"] for row in solution.clients] == [0.02, 0.03, 0.01]
    asynchronous = qr.solve(
        qr.Problem(qr.Logistic(), over_clients=qr.Simplex(), regulariser=qr.L2(0.1)),
        fed,
        engine=qr.VirtualClock(stragglers={3: 10.0, 7: 2.0}),
        max_rounds=4,
    )
    parity = qr.NeymanPearson("b", {7: 0.6, 3: 0.5, 10: 0.7})
    constrained = qr.solve(
        qr.Problem(qr.Logistic(), qr.Linear(True), qr.Mean(label="a"), local_constraint=parity), fed
    )
    budget = qr.Budget(3.0, 1e-3, sizes={3: 12, 10: 9, 7: 15})
    private = qr.solve(
        qr.Problem(qr.Logistic(), privacy=budget), fed, algorithm=qr.PrivateADMM(max_rounds=2)
    )
    quadratic = qr.Federation.from_quadratics([np.eye(2)] * 3, [np.ones(2)] * 3, clients=NAMES)
    got = {
        "clients": fed.clients,
        "a solution": [row["client"] for row in solution.clients],
        "an evaluation": [row["client"] for row in solution.evaluate(fed)][:-1],
        "a split": fed.split()[0].clients,
        "quadratics": quadratic.clients,
        "constraints": [row["owner"] for row in constrained.constraints],
        "a ledger": list(private.ledger.releases),
        "a ledger's table": [row["client"] for row in private.ledger.table()],
        "public sizes": list(private.ledger.sizes),
        "an estimator": qr.RobustClassifier(radius=0.01).fit(X, y, groups=GROUPS).clients_.tolist(),
        "a private estimator": qr.PrivateClassifier(epsilon=3, delta=1e-3)
        .fit(X, y, groups=GROUPS)
        .clients_.tolist(),
    }
    assert {what: sorted(names) for what, names in got.items()} == dict.fromkeys(got, sorted(NAMES))
    assert {row["worst_client"] for row in solution.history} <= {*NAMES, ""}
    assert {row["worst_client"] for row in asynchronous.history if "worst_client" in row} <= {
        *NAMES,
        "",
    }
    assert private.ledger.spent(3) == private.ledger.spent("3") > 0


def test_dir_and_the_version():
    assert not [name for name in dir(qr) if name.startswith("_")]
    assert {*dir(qr)} == {*qr.__all__} - {"__version__"}
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"quorate {version('quorate')}\n"
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", version("quorate"))
