"""Clients whose sizes are declared take part, rows or none: neighbouring data differ in nothing
else.
"""

from __future__ import annotations

import numpy as np
import pytest
from problems import PLAIN
from scipy import sparse

import bonafed as bf
from bonafed.privacy.accounting import Release, total_epsilon

SIZES = {"c": 4, "a": 9, "lone": 1, "b": 6}  # another order than that of the rows
LOSSES = {
    "logistic": (bf.Logistic(), PLAIN),
    "multinomial": (bf.Multinomial(), bf.Softmax(3, fit_intercept=False)),
    "squared": (bf.Squared(), PLAIN),
}


def federation(
    names: str, kind: str = "logistic", lone: bool = False, thin: bool = False
) -> bf.Federation:
    rng = np.random.default_rng(0)
    rows = {name: rng.standard_normal((SIZES[name], 3)) for name in "abc"} | {
        "lone": np.zeros((1, 3))
    }
    target = {
        "logistic": lambda X: np.where(X[:, 0] > 0, 1, -1),
        "multinomial": lambda X: np.arange(len(X)) % 3,
    }
    y = {name: target.get(kind, lambda X: X[:, 0] + 1)(X) for name, X in rows.items()}
    classes = {"logistic": [-1, 1], "multinomial": [0, 1, 2]}.get(kind)
    own = [*names, *(["lone"] if lone else [])]
    made = sparse.csr_array if thin else np.asarray
    return bf.Federation(
        own, [made(rows[name]) for name in own], [y[name] for name in own], classes=classes
    )


def solved(
    fed: bf.Federation,
    kind: str = "logistic",
    over="size",
    noise="simulation",
    sizes=SIZES,
    **options,
):
    budget = bf.Budget(2.0, 1e-5, sizes=sizes)
    problem = bf.Problem(*LOSSES[kind], over_clients=bf.Mean(over), privacy=budget)
    algorithm = bf.PrivateADMM(**{"max_rounds": 3, "clip": 1.0, "noise": noise} | options)
    return bf.solve(problem, fed, algorithm=algorithm, engine=bf.InProcess("each"))


@pytest.mark.parametrize("mode", ["blocks", "each"])
def test_the_rounding_of_sums_over_clients_does_not_tell_who_has_more_rows(mode):
    """A row of zeros more changes no gradient, only the order of the clients by size."""
    rng, rows = np.random.default_rng(0), dict(zip("abcde", (5, 6, 7, 8, 9), strict=True))
    X = {name: rng.standard_normal((m, 3)) for name, m in rows.items()}
    budget = bf.Budget(2.0, 1e-5, sizes=dict.fromkeys(rows, 7))
    found = []
    for more in (0, 2):
        tables = [np.vstack([x, np.zeros((more * (name == "d"), 3))]) for name, x in X.items()]
        y = [np.arange(len(x)) % 2 for x in tables]
        solution = bf.solve(
            bf.Problem(bf.Logistic(), PLAIN, privacy=budget),
            bf.Federation([*rows], tables, y, classes=[0, 1]),
            algorithm=bf.PrivateADMM(max_rounds=3, noise="simulation"),
            engine=bf.InProcess(mode),
        )
        found.append((solution.w.tobytes(), [row["gap"] for row in solution.history]))
    assert found[0] == found[1]


@pytest.mark.parametrize("thin", [False, True])
@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("over", ["size", "uniform", {"a": 0.1, "b": 0.2, "c": 0.3, "lone": 0.4}])
def test_a_lone_row_of_zero_gradient_is_as_good_as_none(kind, over, thin):
    """All that is left of the client is its noise: the same, to the bit."""
    with_row, without = (federation("abc", kind, lone, thin) for lone in (True, False))
    one, other = (solved(fed, kind, over, rho=1.0) for fed in (with_row, without))
    assert one.w.tobytes() == other.w.tobytes()
    histories = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in s.history]
        for s in (one, other)
    ]
    assert histories[0] == histories[1]
    assert one.ledger.table() == other.ledger.table()
    own = Release("gaussian", other.ledger.releases["lone"][0].noise, 3)
    assert other.ledger.spent("lone") == total_epsilon((own,), 1e-5)
    assert list(other.ledger.releases) == sorted(SIZES)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_without_noise_whoever_has_no_rows_adds_a_gradient_of_zero(mechanism, monkeypatch):
    """z stays at w where nothing pulls: the first model is what the others' gradients make of it,
    by hand.
    """
    from bonafed.algorithms.federated.private import noisy_gradient

    monkeypatch.setattr(noisy_gradient, "add_noise", lambda *given: None)
    fed = federation("abc")
    found = solved(fed, noise="secure", max_rounds=1, rho=2.0, clip=100.0, mechanism=mechanism)
    total = sum(SIZES.values())
    gradient = np.zeros(3)
    for X, y in zip(fed.X, fed.y, strict=True):
        gradient += (-0.5 * y[:, None] * X).sum(0) / total
    # z_p = w - g_p / rho, lambda_p = g_p, and w = mean of z_p - lambda_p / rho
    # but for the grid, on which a step is a part of the clip
    np.testing.assert_allclose(found.w, -2 * gradient / 2.0 / len(SIZES), atol=100 / 2**13)


def test_what_the_run_leaves_is_of_those_who_have_rows():
    fed = federation("bac")
    found = solved(fed)
    assert [row["client"] for row in found.clients] == ["b", "a", "c"]
    assert found.copies is not None
    assert found.copies.shape == (3, 3)
    alone = solved(fed, sizes={name: SIZES[name] for name in "bac"})
    assert alone.copies is not None
    assert np.abs(alone.copies - found.copies).max() > 0  # the weights are others


def test_copies_are_those_of_the_clients_named():
    """The run has the clients in declared order, the solution in that of the rows."""
    fed = federation("bac")
    found = solved(fed, max_rounds=1, rho=1.0)
    # of the first round z follows from own rows alone
    again = solved(fed.restrict("b"), max_rounds=1, rho=1.0)
    assert found.copies is not None
    assert again.copies is not None
    np.testing.assert_array_equal(found.copies[0], again.copies[0])


def test_a_checkpoint_is_of_all_who_take_part(tmp_path):
    fed = federation("abc")
    budget = bf.Budget(2.0, 1e-5, sizes=SIZES, book=tmp_path / "book.json")
    problem = bf.Problem(bf.Logistic(), PLAIN, privacy=budget)
    engine = bf.InProcess("each", checkpoint=tmp_path / "run")

    def stop(row, state):
        if row["round"] == 2:
            raise KeyboardInterrupt

    part = bf.solve(problem, fed, max_rounds=4, engine=engine, watch=[stop])
    assert part.rounds == 2
    whole = bf.solve(problem, fed, max_rounds=4, engine=engine, resume=True)
    assert whole.rounds == 4
    assert {client: own[0].count for client, own in whole.ledger.releases.items()} == dict.fromkeys(
        sorted(SIZES), 4
    )
    assert set(bf.Book(tmp_path / "book.json").spent(["lone"])["lone"]) == set(
        whole.ledger.releases["lone"]
    )


def test_weights_without_names_are_refused_and_rows_without_a_size():
    with pytest.raises(
        ValueError, match="'lone' is declared in sizes and has no rows: give the prior by name"
    ):
        solved(federation("abc"), over=[0.2, 0.3, 0.5])
    with pytest.raises(ValueError, match="sizes has no entry for lone"):
        solved(federation("abc", lone=True), sizes={"a": 9, "b": 6, "c": 4})
    with pytest.raises(ValueError, match="prior names 'x', who is not a client"):
        solved(federation("abc"), over={"a": 0.5, "b": 0.25, "c": 0.125, "x": 0.125})


def test_the_estimator_lets_them_take_part():
    rng = np.random.default_rng(0)
    X, groups = rng.standard_normal((30, 2)), np.repeat(["b", "a"], 15)
    y = np.where(X[:, 0] > 0, "yes", "no")
    options = {
        "rounds": 3,
        "random_state": 0,
        "classes": ["no", "yes"],
        "sizes": {"b": 15, "a": 15, "none": 4},
    }
    model = bf.PrivateClassifier(**options).fit(X, y, groups=groups)
    assert model.clients_.tolist() == ["a", "b", "none"]
    assert model.privacy_.releases["none"] == model.privacy_.releases["a"]
    weighed = bf.PrivateClassifier(**options, prior={"a": 1 / 4, "b": 1 / 4, "none": 1 / 2}).fit(
        X, y, groups=groups
    )
    assert weighed.coef_.tolist() != model.coef_.tolist()
    with pytest.raises(ValueError, match="prior has no weight for none"):
        bf.PrivateClassifier(**options, prior={"a": 0.5, "b": 0.5}).fit(X, y, groups=groups)


def test_the_audit_attacks_a_client_that_has_no_other_row():
    fed, problem = (
        federation("abc"),
        bf.Problem(bf.Logistic(), PLAIN, privacy=bf.Budget(1.0, 1e-3, sizes=SIZES)),
    )
    algorithm = bf.PrivateADMM(max_rounds=1, clip=1.0)
    options = {"algorithm": algorithm, "client": "lone", "runs": 600}
    assert not bf.audit(problem, fed, **options).broken
    assert bf.audit(problem, fed, weaken=20.0, **options).broken
