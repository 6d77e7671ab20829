"""A limit on a difference that is tighter than the rows can show comes with a note."""

import re

import numpy as np
import pytest

import bonafed as bf
from bonafed.solution.warnings import ERRORS, faint_levels

SIZES = {"north": 40, "east": 400}
PROBABILITY = bf.Probability()


def table(weight=None):
    """Two clinics in which the groups are alike."""
    rng = np.random.default_rng(0)
    n = sum(SIZES.values())
    X, sex = rng.normal(size=(n, 3)), rng.choice(["f", "m"], n)
    y = np.where(X[:, 0] + rng.logistic(size=n) > 0, "ill", "well")
    groups = np.repeat([*SIZES], [*SIZES.values()])
    weights = None if weight is None else np.full(n, weight)
    return bf.Federation.from_arrays(X, y, groups, columns={"sex": sex}, sample_weight=weights)


def told(fed, **parts):
    """The notes on levels, at a model that is fixed."""
    problem = bf.Problem(
        bf.Logistic(), bf.Linear(fit_intercept=True), regulariser=bf.L2(1.0), **parts
    )
    return [*faint_levels(*problem.at(fed), np.array([0.5, 0.0, 0.2, 0.1]))]


def rate_error(fed, clients, w=(0.5, 0.0, 0.2), b=0.1):
    """1.6 standard errors of the difference between the groups' rates, from counts."""
    rows = [i for i, name in enumerate(fed.clients) if name in clients]
    X, sex = (np.concatenate([part[i] for i in rows]) for part in (fed.X, fed.columns["sex"]))
    m = float((1 / (1 + np.exp(-(X @ np.array(w) + b)))).mean())
    return ERRORS * np.sqrt(m * (1 - m) * (1 / (sex == "f").sum() + 1 / (sex == "m").sum()))


@pytest.mark.parametrize("weight", [None, 2.0])
def test_the_clients_at_which_a_level_is_too_small_are_named_with_what_they_can_show(weight):
    fed = table(weight)
    limits = {name: rate_error(fed, [name]) for name in SIZES}
    assert limits["north"] > 2.5 * limits["east"]
    for level, named in ((1.05 * limits["north"], []), (1.05 * limits["east"], ["north"])):
        notes = told(fed, local_constraint=bf.DemographicParity("sex", level, PROBABILITY))
        assert [name for name in SIZES if any(f"at {name}" in note for note in notes)] == named
    (note,) = told(fed, local_constraint=bf.DemographicParity("sex", 0.01, PROBABILITY))
    assert note.startswith("The level 0.01 on probability of sex = f over m is below")
    for name, limit in limits.items():
        assert f"{limit:.2g} at {name}" in note
    assert "all clients together (Coupled)" in note


def test_all_clients_together_can_show_more():
    fed = table()
    limit = rate_error(fed, SIZES)
    for level, count in ((1.05 * limit, 0), (0.95 * limit, 1)):
        parity = bf.Coupled(bf.DemographicParity("sex", level, PROBABILITY))
        notes = told(fed, constraint=parity)
        assert len(notes) == count
        assert all(f"{limit:.2g} for all clients together" in note for note in notes)


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda: bf.EqualisedOdds("sex", 0.001, PROBABILITY), 2),
        (lambda: bf.DemographicParity("sex", 0.001, bf.Score()), 1),
        (lambda: bf.DemographicParity("sex", {"north": 9.0, "east": 0.001}), 1),
        (lambda: bf.LossGap("sex", 0.001), 1),
        (lambda: bf.BoundedGroupLoss("sex", 0.5), 0),
        (lambda: bf.NeymanPearson("ill", 0.5), 0),
    ],
)
def test_every_difference_is_judged_once_and_no_other_limit(make, count):
    assert len(told(table(), local_constraint=make())) == count


def test_the_error_is_that_of_samples_without_a_difference():
    """Nine in ten samples of groups that are alike differ by less."""
    rng, apart = np.random.default_rng(1), []
    fed = table()
    (note,) = told(fed, local_constraint=bf.DemographicParity("sex", 1e-6, bf.Score()))
    limit = float(re.search(r"([\d.]+) at north", note)[1])
    i = fed.clients.index("north")
    score = fed.X[i] @ [0.5, 0.0, 0.2]
    for _ in range(400):
        sex = rng.permutation(fed.columns["sex"][i]) == "f"
        apart.append(abs(score[sex].mean() - score[~sex].mean()))
    assert 0.85 < np.mean(np.array(apart) < limit) < 0.94


def test_an_estimator_says_it():
    fed = table()
    X, sex = (np.concatenate(part) for part in (fed.X, fed.columns["sex"]))
    y = np.concatenate(fed.y)
    groups = np.repeat([*SIZES], [*SIZES.values()])
    for level, said in ((0.02, True), (0.9, False)):
        parity = bf.DemographicParity("sex", level)
        model = bf.ConstrainedClassifier(local_constraint=parity)
        model.fit(X, y, groups=groups, sensitive_features={"sex": sex})
        assert any("1.6 standard errors" in note for note in model.solution_.notes) is said
