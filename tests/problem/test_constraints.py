"""Constraints as a user states them: what is refused and in which words, the server's data, a
client without the group, columns, and federations that carry linear constraints. The laws over all
constraints: laws/test_constraint_laws.py.
"""

import numpy as np
import pytest
from constrained_oracles import FEATURES, LONE, NAMES, ONE_CLASS, SIZES, federation
from numpy.testing import assert_allclose, assert_array_equal
from problems import PLAIN, SOFTMAX

import bonafed as bf
from bonafed.problem.constraints.constraint import Point

LOSS = bf.Logistic()
W = np.array([0.4, -0.3, 0.2, 0.5])
FED, REAL = federation(), federation(real=True)
RNG = np.random.default_rng(1)
X0, Y0 = RNG.standard_normal((6, 4)), np.array(["yes", "no"] * 3)
LINE = (np.ones((1, 4)), np.ones(1))


def given(fed=FED, **options):
    """FED with a server's data or linear rows."""
    options = {"feature_names": fed.feature_names, "columns": fed.columns} | options
    return bf.Federation(fed.clients, fed.X, fed.y, **options)


def local(constraint, fed=FED, loss=LOSS, w=W):
    return bf.Problem(loss, PLAIN, local_constraint=constraint).violation(w, fed)


def logistic(m):
    return np.logaddexp(0.0, -m)


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        (
            lambda: bf.NeymanPearson("maybe", 0.2),
            "label 'maybe' is not one of the two classes of the data: .'no', 'yes'..",
        ),
        (lambda: bf.NeymanPearson(1, 0.2), "label 1 is not one of"),
        (
            lambda: bf.NeymanPearson("yes", "low"),
            "level of NeymanPearson must be a number, one per client.*got 'low'",
        ),
        (lambda: bf.NeymanPearson("yes", -0.2), "must be finite and >= 0, got -0.2"),
        (lambda: bf.NeymanPearson("yes", np.nan), "must be finite and >= 0, got nan"),
        (lambda: bf.NeymanPearson("yes", None), "mapping by name, got None"),
        (
            lambda: bf.NeymanPearson("yes", [0.1, 0.2]),
            r"a number or 5 numbers, one per client, got shape \(2,\)",
        ),
        (
            lambda: bf.NeymanPearson("yes", dict.fromkeys((*NAMES[:4], "clinic g"), 0.1)),
            "names 'clinic g', who is not a client",
        ),
        (lambda: bf.LossGap("sx", 0.2), "no column 'sx'; it has .'age', 'sex'.. Give"),
        (lambda: bf.LossGap(["sex"], 0.2), "column must be a text"),
        (lambda: bf.LossGap("age", 0.2), "two values, 'age' has 3: 30, 50, 70"),
        (lambda: bf.DemographicParity("dose", 0.2), "2 to 20 values, 'dose' has 31"),
        (
            lambda: bf.LinearEquality(np.ones((2, 3)), np.ones(2)),
            r"shapes \(k, 4\) and \(k,\), got \(2, 3\) and \(2,\)",
        ),
        (lambda: bf.LinearEquality(np.ones((2, 4)), np.ones(3)), r"got \(2, 4\) and \(3,\)"),
        (lambda: bf.LinearInequality(np.full((1, 4), np.inf), 0.0), "needs finite C and d"),
        (lambda: bf.LinearInequality("a", 1.0), "needs C and d of numbers.*got 'a'"),
        (lambda: bf.LinearEquality(d=[1.0]), "got d without C"),
        (lambda: bf.Sign({"weight": 1}), "no feature 'weight'. Features: dose, bmi"),
        (lambda: bf.Sign({"dose": 2}), "a mapping of feature names to .1 or -1, got"),
        (lambda: bf.Sign(["dose"]), "a mapping of feature names to .1 or -1, got .'dose'."),
        (lambda: bf.Monotone(["dose", "dose"]), "two or more distinct names"),
        (lambda: bf.Monotone("dose"), "features must be a list, each a text, got 'dose'"),
        (lambda: bf.Monotone(["dose", "weight"]), "no feature 'weight'"),
        (
            lambda: bf.CostLimit({"dose": 1.0}, np.inf),
            "finite costs by feature name and a finite limit",
        ),
        (lambda: bf.CostLimit([1.0], 1.0), "finite costs by feature name"),
        (lambda: bf.CostLimit({"weight": 1.0}, 1.0), "no feature 'weight'"),
        (
            lambda: bf.Constraint(lambda w, X, y: (1.0, w[:2])),
            r"Jacobian \(1, 4\), got \(1,\) and \(1, 2\)",
        ),
        (
            lambda: bf.Constraint(lambda w, X, y: (np.ones(2), np.ones((2, 4)))),
            r"values \(1,\).*got \(2,\) and",
        ),
        (
            lambda: bf.Constraint(lambda w, X, y: (np.nan, w)),
            "returned numbers that are not finite",
        ),
        (
            lambda: bf.Constraint(lambda w, X, y: 1.0),
            r"must return \(values, jacobian\), got float",
        ),
    ],
)
def test_constraints_that_do_not_fit_the_data_are_refused(constraint, words):
    with pytest.raises(ValueError, match=words):
        local(constraint())


@pytest.mark.parametrize("label", [0, 1])
def test_labels_need_a_loss_of_classes(label):
    fed = federation(text=False)  # targets 0 and 1, which a loss of numbers takes as they are
    with pytest.raises(ValueError, match=r"needs a loss of classes, such as Logistic.*column"):
        local(bf.NeymanPearson(label, 0.2), fed, bf.Squared())
    with pytest.raises(ValueError, match="needs a loss of classes"):
        bf.Problem(bf.Squared(), PLAIN, over_samples=bf.Mean(label=label)).objective(W, fed)
    with pytest.raises(ValueError, match="EqualisedOdds needs two classes"):
        local(bf.EqualisedOdds("sex", 0.2), REAL, bf.Squared())


def test_parity_needs_a_measure():
    several = r"measure must be a value such as Score"
    for measure, text in (("score", several), (bf.Score, r"measure .* write Score\(\)")):
        with pytest.raises(TypeError, match=text):
            local(bf.DemographicParity("sex", 0.2, measure))


@pytest.mark.parametrize("values", [(np.nan, 1.0), (None, "a"), (1, "a")])
def test_columns_with_missing_values_are_refused(values):
    column = tuple(np.array([values[row == 1] for row in range(m)], object) for m in SIZES)
    with pytest.raises(ValueError, match="'drug' has missing values, or text beside numbers"):
        local(bf.BoundedGroupLoss("drug", 0.2), given(columns={"drug": column}))


def test_columns_of_objects_are_read_as_their_values():
    column = tuple(part.astype(object) for part in FED.columns["sex"])
    problem, fed = bf.Problem(LOSS, PLAIN, local_constraint=bf.LossGap("sex", 0.1)).at(
        given(columns={"sex": column})
    )
    expected, data = bf.Problem(LOSS, PLAIN, local_constraint=bf.LossGap("sex", 0.1)).at(FED)
    for i in range(2):
        found = problem.local_constraint.values(Point(problem, W, fed.blocks(3)[i]))
        assert_array_equal(
            found, expected.local_constraint.values(Point(expected, W, data.blocks(3)[i]))
        )


def test_own_functions_state_what_they_are():
    with pytest.raises(ValueError, match=r"size must be a whole number >= 1, got 0"):
        bf.Constraint(lambda w, X, y: (w[:0], w[None, :0]), 0)
    with pytest.raises(ValueError, match="words must be 1 texts, got 2"):
        bf.Constraint(lambda w, X, y: (w, w), words=("a", "b"))
    flat = bf.Constraint(
        lambda w, X, y: (w[0], np.eye(4)[:1]), hessian=lambda w, X, y, mu: np.zeros(4)
    )
    problem, fed = bf.Problem(LOSS, PLAIN, local_constraint=flat).at(FED)
    at = Point(problem, W, fed.block(0))
    with pytest.raises(
        ValueError, match=r"hessian must return finite numbers \(4, 4\), got shape \(4,\)"
    ):
        problem.local_constraint.curvature(at, np.ones((1, 1)))
    bare = bf.Problem(LOSS, PLAIN, local_constraint=bf.Constraint(flat.value_and_jacobian)).at(FED)[
        0
    ]
    with pytest.raises(
        ValueError, match=r"without `hessian` has no second derivatives.*give hessian"
    ):
        bare.local_constraint.curvature(at, np.ones((1, 1)))


def test_own_functions_cannot_change_the_data():
    def greedy(w, X, y):
        w[:], X[:], y[:] = 0.0, 0.0, 0.0
        return 1.0, np.zeros(4)

    fed = given()
    before = [x.copy() for x in fed.X]
    assert local(bf.Constraint(greedy), fed) == 1.0
    for x, kept in zip(fed.X, before, strict=True):
        assert_array_equal(x, kept)
    assert W.all()


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        ("x", "constraint must be a value such as NeymanPearson"),
        (bf.Coupled(bf.NeymanPearson("yes", 1.0)), "Coupled takes one constraint"),
        ([bf.NeymanPearson("yes", 1.0)] * 2, "constraint must be a value such as NeymanPearson"),
        (bf.Sign({"dose": 1}), "for others give prior='uniform'"),
        (bf.NeymanPearson("yes", [0.1, 0.2, 0.3, 0.4, 0.5]), "one level for all clients"),
    ],
)
def test_what_cannot_be_coupled_is_refused(constraint, words):
    with pytest.raises((TypeError, ValueError), match=words):
        bf.Problem(LOSS, PLAIN, constraint=bf.Coupled(constraint)).violation(W, FED)


def test_coupled_weights_and_slots():
    for prior in ("sizes", [0.5, 0.5], [1, 1, 1, 1, -3]):
        with pytest.raises(ValueError, match="prior must be"):
            bf.Problem(
                LOSS, PLAIN, constraint=bf.Coupled(bf.NeymanPearson("yes", 1.0), prior)
            ).violation(W, FED)
    with pytest.raises(ValueError, match="give it as constraint=Coupled"):
        bf.Problem(LOSS, PLAIN, local_constraint=bf.Coupled(bf.NeymanPearson("yes", 1.0)))
    empty = federation()
    nobody = given(columns={"sex": tuple(np.full(m, "f") for m in SIZES)})
    with pytest.raises(ValueError, match="two values, 'sex' has 1: 'f'"):
        bf.Problem(LOSS, PLAIN, constraint=bf.Coupled(bf.LossGap("sex", 0.1))).violation(W, nobody)
    no_yes = given(empty.restrict([ONE_CLASS]), classes=["no", "yes"])
    with pytest.raises(ValueError, match="a group has no rows at any client"):
        bf.Problem(LOSS, PLAIN, constraint=bf.Coupled(bf.NeymanPearson("yes", 0.1))).violation(
            W, no_yes
        )


@pytest.mark.parametrize("slot", ["constraint", "local_constraint"])
def test_promises_that_no_method_keeps_are_refused(slot):
    limit = {slot: bf.Sign({"dose": 1})}
    with pytest.raises(ValueError, match="Sign says nothing where a feature has a coefficient for"):
        bf.Problem(bf.Multinomial(), SOFTMAX, **limit).at(federation())
    for kept in (bf.WassersteinBall(0.1), bf.Superquantile(0.5)):
        assert bf.Problem(LOSS, over_samples=kept, **limit).constrained


def test_slots_hold_constraints():
    with pytest.raises(TypeError, match=r"got the class Sign: write Sign\(\.\.\.\)"):
        bf.Problem(LOSS, PLAIN, constraint=bf.Sign)
    for wrong in (3, [bf.Sign({"dose": 1}), "x"]):
        with pytest.raises(
            TypeError, match="constraint must be a constraint or a sequence of them"
        ):
            bf.Problem(LOSS, PLAIN, constraint=wrong)


@pytest.mark.parametrize("w", [np.zeros(3), np.full(4, np.nan), np.array([0, 0, np.inf, 0])])
def test_models_of_wrong_size_or_not_finite_are_refused(w):
    with pytest.raises(ValueError, match="w must be 4 finite numbers"):
        local(bf.Sign({"dose": 1}), w=w)


def test_clients_without_the_group_meet_the_constraint():
    problem, fed = bf.Problem(
        LOSS, PLAIN, local_constraint=[bf.NeymanPearson("yes", 0.1), bf.LossGap("sex", 0.0)]
    ).at(FED)
    for name, missing in ((ONE_CLASS, [0]), (LONE, [1, 2])):
        block = fed.block(NAMES.index(name))
        values, limits = (
            problem.local_constraint.values(Point(problem, W, block))[0],
            problem.local_constraint.limits(block),
        )
        assert_array_equal(np.flatnonzero(np.isnan(limits[0])), missing)
        assert (values[missing] == -1).all()
    assert not bf.Problem(LOSS, PLAIN).violation(W, FED)  # without constraints nothing is violated


# ------------------------------------------------------------------------------- data of the server


def test_constraints_on_the_servers_data():
    fed = given(server=(X0, Y0, {"sex": np.array(list("ffmmfm"))}))
    margin = np.where(Y0 == "yes", 1.0, -1.0) * (X0 @ W)
    found = bf.Problem(LOSS, PLAIN, constraint=bf.NeymanPearson("yes", 0.1)).violation(W, fed)
    assert_allclose(found, logistic(margin[::2]).mean() - 0.1)
    sex = np.array(list("ffmmfm"))
    gap = abs(logistic(margin[sex == "f"]).mean() - logistic(margin[sex == "m"]).mean())
    assert_allclose(
        bf.Problem(LOSS, PLAIN, constraint=bf.LossGap("sex", 0.01)).violation(W, fed), gap - 0.01
    )
    both = bf.Problem(
        LOSS,
        PLAIN,
        constraint=bf.NeymanPearson("yes", 0.1),
        local_constraint=bf.NeymanPearson("no", 0.3),
    )
    assert_allclose(both.violation(W, fed), max(found, local(bf.NeymanPearson("no", 0.3))))
    swapped = given(server=(X0, np.where(Y0 == "yes", "no", "yes")))
    other = bf.Problem(LOSS, PLAIN, constraint=bf.NeymanPearson("yes", 0.1)).violation(W, swapped)
    assert_allclose(other, logistic(-margin[1::2]).mean() - 0.1)


def test_features_as_columns():
    binary = np.hstack([X0[:, :2], (np.arange(6) % 2)[:, None], X0[:, 3:]])
    fed = given(server=(binary, Y0))
    margin = np.where(Y0 == "yes", 1.0, -1.0) * (binary @ W)
    gap = abs(logistic(margin[::2]).mean() - logistic(margin[1::2]).mean())
    assert_allclose(
        bf.Problem(LOSS, PLAIN, constraint=bf.LossGap("smoker", 0.0)).violation(W, fed), gap
    )
    named = given(columns={"smoke": tuple(x[:, 2] for x in FED.X)})
    assert_allclose(local(bf.LossGap("smoker", 0.1)), local(bf.LossGap("smoke", 0.1), named))
    with pytest.raises(ValueError, match="the federation has no column 'sex'"):
        # the server's rows have none
        bf.Problem(LOSS, PLAIN, constraint=bf.LossGap("sex", 0.1)).violation(W, fed)


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (None, "constraint is for the server's own data, and the federation has none.*Coupled"),
        (
            (X0, np.array(["yes", "maybe"] * 3)),
            "server: its data have labels outside the clients' classes .'no', 'yes'",
        ),
    ],
)
def test_the_servers_data_must_be_there_and_of_the_same_classes(server, words):
    with pytest.raises(ValueError, match=words):
        bf.Problem(LOSS, PLAIN, constraint=bf.NeymanPearson("yes", 0.1)).violation(
            W, given(server=server)
        )


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ((X0[:, :3], Y0), "one table with the clients' 4 features, got 1 clients of 3"),
        (3, r"server must be \(X0, y0\)"),
        ((X0,), r"server must be \(X0, y0\)"),
        ((X0, Y0[:4]), "X has 6 rows but y has 4 targets"),
        (bf.Federation(["s"], [X0], [Y0]), "server has the features .'x0'"),
        (FED, "got 5 clients"),
    ],
)
def test_server_data_of_wrong_shape_are_refused(server, words):
    with pytest.raises(ValueError, match=words):
        given(server=server)


def test_own_rows_of_the_server_must_exist():
    for fed in (FED, given(server=(X0, Y0))):
        with pytest.raises(ValueError, match="own C and d, and the"):
            bf.Problem(LOSS, PLAIN, constraint=bf.LinearEquality()).violation(
                W, fed if fed.server else federation()
            )


# -------------------------------------------------------------------------------------- federations


@pytest.mark.parametrize(
    ("linear", "words"),
    [
        ([LINE] * 2, "for each of the 5 clients, got 2"),
        ([(np.ones((1, 3)), np.ones(1))] * 5, r"'clinic d': C and d must have shapes \(k, 4\)"),
        ([*[LINE] * 4, (np.ones((1, 4)), np.ones(2))], "'clinic a': C and d must have shapes"),
        (
            [*[LINE] * 4, (np.full((1, 4), np.nan), np.ones(1))],
            "'clinic a': C and d must be finite",
        ),
    ],
)
def test_linear_rows_of_wrong_shape_are_refused(linear, words):
    with pytest.raises(ValueError, match=words):
        given(linear=linear)


def test_parts_of_a_federation_keep_server_and_linear_rows():
    fed = given(server=(X0, Y0), linear=FED.linear)
    train, test = fed.split(0.3, seed=1)
    few, one = fed.restrict([NAMES[0], NAMES[3]]), fed.pooled()
    for part in (train, test, few, one):
        assert part.server is not None
        assert_array_equal(part.server.X[0], X0)
    for name, (C, d) in zip(train.clients, train.linear, strict=True):
        assert_array_equal(C, FED.linear[NAMES.index(name)][0])
        assert_array_equal(d, FED.linear[NAMES.index(name)][1])
    for part in (train, test, few):
        assert len(part.linear) == len(part)
    assert_array_equal(few.linear[1][0], FED.linear[3][0])
    assert_array_equal(one.linear[0][0], np.concatenate([C for C, _ in FED.linear]))
    problem = bf.Problem(LOSS, PLAIN, local_constraint=bf.LinearEquality())
    assert_allclose(problem.violation(W, one), problem.violation(W, fed))
    assert one.server.clients == ("server",)


def test_targets_coded_already_stay_what_they_are():
    problem = bf.Problem(
        LOSS, PLAIN, local_constraint=bf.NeymanPearson("yes", 0.1), over_samples=bf.Mean(label="no")
    )
    concrete, coded = problem.at(FED)
    assert_allclose(concrete.objective(W, coded), problem.objective(W, FED), rtol=1e-15)
    assert_allclose(concrete.violation(W, coded), problem.violation(W, FED), rtol=1e-15)
    with pytest.raises(
        ValueError, match=r"targets outside the classes .'no', 'yes'.. Give the federation"
    ):
        problem.objective(W, FED.with_targets([np.full(m, 0.5) for m in SIZES]))


I3, ONES = np.eye(3), np.ones(3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([np.triu(np.ones((3, 3)))], [ONES]), r"finite and symmetric: give \(A \+ A'\) / 2"),
        (([np.full((3, 3), np.nan)], [ONES]), "finite and symmetric"),
        (
            ([np.diag([1.0, 1.0, -0.1])], [ONES]),
            "positive semidefinite, its smallest eigenvalue is -0.1",
        ),
        (([I3], [np.ones(2)]), r"client 'client 1': A and b must have shapes \(2, 2\)"),
        (([I3, I3], [ONES]), "for each of the 2 clients, got 1"),
        (([], []), "at least one client"),
        # the server's first
        (([I3], [ONES], [np.ones((1, 3))], [np.ones(1)]), "for each of the 2 clients, got 1"),
        (
            ([I3], [ONES], [np.ones((1, 2))] * 2, [np.ones(1)] * 2),
            r"'server': C and d must have shapes \(k, 3\)",
        ),
        (([I3], [ONES], [np.ones((1, 3))] * 2), "one of C and d: give both"),
    ],
)
def test_quadratic_clients_are_checked(arguments, words):
    with pytest.raises(ValueError, match=words):
        bf.Federation.from_quadratics(*arguments)


def test_quadratic_clients():
    rng = np.random.default_rng(3)
    roots, b = rng.standard_normal((3, 4, 4)), rng.standard_normal((3, 4))
    A = [root @ root.T for root in roots]
    C, d = (
        [rng.standard_normal((k, 4)) for k in (1, 2, 0, 1)],
        [rng.standard_normal(k) for k in (1, 2, 0, 1)],
    )
    fed = bf.Federation.from_quadratics(A, b, C, d, clients=("x", "y", "z"))
    problem = bf.Problem(
        bf.Quadratic(),
        over_clients=bf.Sum(),
        constraint=bf.LinearEquality(),
        local_constraint=bf.LinearEquality(),
    )
    value = sum(W @ a @ W / 2 + v @ W for a, v in zip(A, b, strict=True))
    assert_allclose(problem.objective(W, fed), value)
    residual = np.concatenate([rows @ W + offset for rows, offset in zip(C, d, strict=True)])
    assert_allclose(problem.violation(W, fed), np.abs(residual).max())
    assert_allclose(problem.objective(W, fed.restrict(["y"])), W @ A[1] @ W / 2 + b[1] @ W)
    mean = bf.Problem(bf.Quadratic(), over_clients=bf.Mean([0.5, 0.25, 0.25]))
    parts = np.array([W @ a @ W / 2 + v @ W for a, v in zip(A, b, strict=True)])
    assert_allclose(mean.objective(W, fed), parts @ [0.5, 0.25, 0.25])


@pytest.mark.parametrize(
    "fed", [FED, bf.Federation(["a"], [np.triu(np.ones((2, 2)))], [np.ones(2)])]
)
def test_rows_are_no_quadratics(fed):
    with pytest.raises(ValueError, match=r"Quadratic.. needs the predictor Linear.*symmetric A"):
        bf.Problem(bf.Quadratic()).objective(np.zeros(fed.n_features), fed)


def test_losses_of_rows_need_rows():
    fed = bf.Federation.from_quadratics([I3], [ONES])
    with pytest.raises(ValueError, match="Quadratic clients have no losses of rows"):
        local(bf.BoundedGroupLoss("x0", 0.1), fed, bf.Quadratic(), ONES)
    with pytest.raises(ValueError, match=r"needs the predictor Linear.*symmetric A"):
        bf.Problem(bf.Quadratic(), bf.Linear(True)).objective(np.zeros(4), fed)


def test_an_intercept_takes_no_part_in_constraints_by_feature():
    w = np.append(W, 100.0)
    problem = bf.Problem(
        LOSS, bf.Linear(True), local_constraint=[bf.CostLimit(dict.fromkeys(FEATURES, 1.0), 0.5)]
    )
    assert_allclose(problem.violation(w, FED), W.sum() - 0.5)
    own = bf.Problem(LOSS, bf.Linear(True), local_constraint=bf.LinearEquality())
    assert_allclose(own.violation(w, FED), local(bf.LinearEquality()))
