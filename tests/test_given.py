"""What users give and get: classes instead of values, numbers out of range, names of columns, one
pair by client, and client names that stay what they were.
"""

from __future__ import annotations

import re
from importlib.metadata import version

import numpy as np
import pytest
from typer.testing import CliRunner

import bonafed as bf
from bonafed.cli import app

NAMES = (3, 10, 7)
GROUPS = np.repeat(NAMES, [12, 9, 15])


def rows(seed=0):
    X = np.random.default_rng(seed).standard_normal((len(GROUPS), 2))
    return X, np.where(X[:, 0] > 0, "b", "a")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: bf.Problem(bf.Hinge), r"loss must be a value, got the class Hinge: write Hinge\("),
        (lambda: bf.Problem(bf.Hinge(), bf.Linear), "predictor must be a value"),
        (lambda: bf.Problem(bf.Hinge(), over_clients=bf.LpBall), r"write LpBall\(...\)"),
        (
            lambda: bf.Problem(bf.Logistic(), constraint=bf.Coupled(bf.NeymanPearson)),
            "constraint must be a value, got the class NeymanPearson",
        ),
        (
            lambda: bf.Problem(bf.Logistic(), local_constraint=(bf.NeymanPearson,)),
            "local_constraint must be a constraint or a sequence of them",
        ),
        (
            lambda: bf.Problem(
                bf.Hinge(), over_samples=bf.WassersteinBall(0.1, support=bf.BoxSupport)
            ),
            "support must be a value, got the class BoxSupport",
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
            for risk in (bf.WassersteinBall, bf.LpBall, bf.KLBall, bf.ChiSquareBall)
        ],
        (lambda: bf.WassersteinBall({3: -0.1, 10: 0.1}), "radius must be >= 0"),
        (lambda: bf.TotalVariationBall(-1), "radius must be"),
        (lambda: bf.WassersteinOverClients(-1.0), "radius must be"),
        (lambda: bf.Box(0.5, 0.2), "lower must not be above upper, got 0.5 and 0.2"),
        (
            lambda: bf.Problem(bf.Hinge(), over_clients=bf.LpBall(0.1, prior="big")),
            "prior must be 'uniform', 'size', numbers or a mapping by name, got 'big'",
        ),
        (
            lambda: bf.Problem(bf.Hinge(), over_clients=bf.LpBall(0.1, prior={3: -1, 10: 2})),
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
    fed = bf.Federation.from_arrays(frame, "state", "site")
    same = bf.Federation.from_arrays(X, y, GROUPS)
    assert (fed.clients, fed.feature_names) == (NAMES, ("x0", "x1"))
    assert fed.digests() == same.digests()


def test_a_frame_names_its_clients_as_client_or_groups():
    X, y = rows()
    table = {"x0": X[:, 0], "site": GROUPS, "x1": X[:, 1], "state": y}
    one = bf.Federation.from_frame(table, "site", "state")
    assert bf.Federation.from_frame(table, groups="site", target="state").digests() == one.digests()
    with pytest.raises(TypeError, match="client must be a text or None, got array"):
        bf.Federation.from_frame(table, GROUPS, "state")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_estimators_take_the_column_of_clients_out_of_the_table(library):
    make = pytest.importorskip(library).DataFrame
    X, y = rows()
    frame = make({"x0": X[:, 0], "site": GROUPS, "x1": X[:, 1]})
    named = bf.RobustClassifier(radius=0.01).fit(frame, y, groups="site")
    plain = bf.RobustClassifier(radius=0.01).fit(
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
    same = bf.Federation.from_arrays(X, y, GROUPS, sample_weight=np.arange(36.0))
    pairs = {name: (X[name == GROUPS], y[name == GROUPS]) for name in NAMES}
    weight = {name: np.arange(36.0)[name == GROUPS] for name in reversed(NAMES)}
    fed = bf.Federation.from_arrays(pairs, sample_weight=weight)
    assert fed.clients == NAMES
    assert fed.digests() == same.digests()
    frames = {name: (pd.DataFrame(x, columns=["u", "v"]), y) for name, (x, y) in pairs.items()}
    frames[7] = (frames[7][0][["v", "u"]], frames[7][1])
    fed = bf.Federation.from_arrays(frames)
    assert fed.feature_names == ("u", "v")
    assert fed.digests() == bf.Federation.from_arrays(X, y, GROUPS).digests()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda X, y: bf.Federation.from_arrays(X, y), r"needs groups.*\{client: \(X, y\)\}"),
        (lambda X, y: bf.Federation.from_arrays(X), "needs y"),
        (
            lambda X, y: bf.Federation.from_arrays(X, y, "site"),
            "groups='site' names a column, and X is a ndarray without names: give a table",
        ),
        (
            lambda X, y: bf.Federation.from_arrays({"a": X[:, 0], "site": GROUPS}, y, "sit"),
            "groups='sit' is not a column of X; there are 'a', 'site'. Did you mean 'site'",
        ),
        (
            lambda X, y: bf.Federation.from_arrays({3: X}),
            r"client 3 must be a pair \(X, y\), got ndarray",
        ),
        (
            lambda X, y: bf.Federation.from_arrays({3: (X, y)}, sample_weight=np.ones(36)),
            "sample_weight must be a mapping by client name",
        ),
        (
            lambda X, y: bf.Federation.from_arrays(
                {3: ({"u": [1.0]}, [1]), 1: ({"v": [1.0]}, [0])}
            ),
            "client 1 has other columns than the first one; not in both",
        ),
        (
            lambda X, y: bf.RobustClassifier().fit(X, y, groups="site"),
            "groups='site' names a column, and X is a ndarray without names",
        ),
    ],
)
def test_what_cannot_be_read_is_answered_in_one_line_that_helps(make, text):
    with pytest.raises(ValueError, match=text) as raised:
        make(*rows())
    assert "\n" not in str(raised.value)


def test_whole_numbers_stay_numbers_wherever_names_are_given_or_got():
    X, y = rows()
    fed = bf.Federation.from_arrays(X, y, GROUPS)
    problem = bf.Problem(
        bf.Logistic(),
        bf.Linear(fit_intercept=True),
        over_samples=bf.WassersteinBall({7: 0.01, 3: 0.02, 10: 0.03}),
        over_clients=bf.LpBall(0.1, prior={10: 0.5, 3: 0.25, 7: 0.25}),
        regulariser=bf.L2(0.1),
    )
    solution = bf.solve(problem, fed)
    assert [row["radius"] for row in solution.clients] == [0.02, 0.03, 0.01]
    asynchronous = bf.solve(
        bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=bf.L2(0.1)),
        fed,
        engine=bf.VirtualClock(stragglers={3: 10.0, 7: 2.0}),
        max_rounds=4,
    )
    parity = bf.NeymanPearson("b", {7: 0.6, 3: 0.5, 10: 0.7})
    constrained = bf.solve(
        bf.Problem(bf.Logistic(), bf.Linear(True), bf.Mean(label="a"), local_constraint=parity), fed
    )
    budget = bf.Budget(3.0, 1e-3, sizes={3: 12, 10: 9, 7: 15})
    private = bf.solve(
        bf.Problem(bf.Logistic(), privacy=budget), fed, algorithm=bf.PrivateADMM(max_rounds=2)
    )
    quadratic = bf.Federation.from_quadratics([np.eye(2)] * 3, [np.ones(2)] * 3, clients=NAMES)
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
        "an estimator": bf.RobustClassifier(radius=0.01).fit(X, y, groups=GROUPS).clients_.tolist(),
        "a private estimator": bf.PrivateClassifier(epsilon=3, delta=1e-3)
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
    assert not [name for name in dir(bf) if name.startswith("_")]
    assert {*dir(bf)} == {*bf.__all__} - {"__version__"}
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"bonafed {version('bonafed')}\n"
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", version("bonafed"))
