"""Wrong problems and wrong data are refused, with what was given, what is needed and what to do."""

from __future__ import annotations

import numpy as np
import pytest
from problems import PLAIN, federation

import bonafed as bf

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 3))
GROUPS = np.repeat(["A", "B", "C"], 4)
SIGNS = np.tile([0, 1], 6)


@pytest.mark.parametrize(
    ("build", "needle"),
    [
        (
            lambda: bf.Problem(bf.Squared(), PLAIN, over_samples=bf.WassersteinBall(0.1)),
            "worst case .* is infinite",
        ),
        (
            lambda: bf.Problem(
                bf.Exponential(), PLAIN, over_samples=bf.WassersteinBall({"A": 0.1})
            ),
            r"not Lipschitz.*Use radius=0 or Hinge\(\) or SmoothHinge\(\) or Logistic\(\)\.",
        ),
        (
            lambda: bf.Problem(
                bf.Huber(),
                PLAIN,
                over_samples=bf.WassersteinBall(0.1, support=bf.BoxSupport(-1, 1)),
            ),
            "no finite reformulation",
        ),
        (
            lambda: bf.Problem(bf.Hinge(), PLAIN, over_samples=bf.WassersteinBall(-0.1)),
            "radius must be >= 0",
        ),
        (
            lambda: bf.Problem(bf.Hinge(), PLAIN, over_samples=bf.WassersteinBall(np.nan)),
            "radius must be >= 0",
        ),
        (lambda: bf.WassersteinBall(0.1, label_cost=0.0), "label_cost must be in"),
        (lambda: bf.WassersteinBall(0.1, norm="l3"), "norm must be 'l1', 'l2' or 'linf'"),
        (lambda: bf.LpBall(-1.0), "radius must be"),
        (lambda: bf.LpBall(0.1, p=0.5), "p "),
        (lambda: bf.Huber(0.0), "threshold must be"),
        (lambda: bf.Quantile(1.0), "level must lie in"),
        (lambda: bf.EpsilonInsensitive(-1.0), "tolerance must be"),
        (lambda: bf.L2(-1.0), "strength"),
        (lambda: bf.Bundle(variant="fast"), "variant must be 'proximal' or 'level'"),
    ],
)
def test_refused_at_construction(build, needle):
    with pytest.raises(ValueError, match=needle):
        build()


@pytest.mark.parametrize("radius", [-0.1, np.nan, np.inf])
@pytest.mark.parametrize(
    "build",
    [
        bf.LpBall,
        bf.KLBall,
        bf.ChiSquareBall,
        bf.TotalVariationBall,
        lambda radius: bf.Ellipsoid([1.0, 1.0], radius),
        bf.WassersteinOverClients,
        lambda radius: bf.CDNorm(radius, 0.5),
        lambda radius: bf.CDNorm(1.0, {"A": 0.5, "B": radius}),
        bf.WassersteinBall,
        lambda radius: bf.WassersteinBall([0.1, radius]),
        lambda radius: bf.WassersteinBall({"A": 0.1, "B": radius}),
    ],
)
def test_radii_are_refused_when_the_set_is_made(build, radius):
    with pytest.raises(ValueError, match=r"must be (a number )?>= 0|must be finite"):
        build(radius)


@pytest.mark.parametrize("radius", ["automatic", None, [[0.1], [0.2, 0.3]], True, {"A": "x"}])
def test_a_wasserstein_radius_is_made_of_numbers(radius):
    with pytest.raises(ValueError, match="radius must be >= 0 and finite, got"):
        bf.WassersteinBall(radius)


@pytest.mark.parametrize(
    ("slots", "text"),
    [
        ({"loss": bf.Hinge}, r"loss must be a value, got the class Hinge: write Hinge\(\)"),
        ({"predictor": bf.Linear}, r"write Linear\(\)"),
        ({"over_samples": bf.WassersteinBall}, r"write WassersteinBall\(\.\.\.\)"),
        ({"over_clients": bf.Simplex}, r"write Simplex\(\)"),
        ({"regulariser": bf.L2}, r"regulariser .* write L2\(\.\.\.\)"),
        ({"local_constraint": bf.NeymanPearson}, r"write NeymanPearson\(\.\.\.\)"),
        ({"privacy": bf.Budget}, r"write Budget\(\.\.\.\)"),
    ],
)
def test_a_class_in_place_of_a_value_is_refused_when_the_problem_is_made(slots, text):
    with pytest.raises(TypeError, match=text):
        bf.Problem(**{"loss": bf.Hinge(), **slots})


def test_a_loss_with_the_old_name_of_the_gradient_is_told_to_rename_it():
    class Old:
        targets, smooth, convex, lipschitz = "sign", True, True, 1.0

        def value(self, prediction, y):
            return -y * prediction

        def slope(self, prediction, y):
            return -y

    with pytest.raises(TypeError, match=r"Old defines the method `slope`.* `gradient`: rename it"):
        bf.Problem(Old(), PLAIN)


@pytest.mark.parametrize("slot", ["loss", "over_clients", "over_samples", "regulariser"])
def test_strings_are_not_values(slot):
    with pytest.raises(TypeError, match=slot):
        bf.Problem(**{"loss": bf.Hinge(), slot: "hinge"})


@pytest.mark.parametrize(
    ("problem", "y", "needle"),
    [
        (bf.Problem(bf.Hinge(), PLAIN), np.arange(12), "exactly two classes, got 12"),
        (bf.Problem(bf.Hinge(), PLAIN), np.zeros(12), "exactly two classes, got 1"),
        (
            bf.Problem(bf.Huber(), PLAIN),
            np.array(["a", "b"] * 6),
            "needs numeric targets, and got text: .*'a'",
        ),
        (
            bf.Problem(bf.Hinge(), PLAIN, over_samples=bf.WassersteinBall({"A": 0.1, "B": 0.1})),
            SIGNS,
            "radius by client name has no entry for 'C'",
        ),
        (
            bf.Problem(bf.Hinge(), PLAIN, over_samples=bf.WassersteinBall([0.1, 0.2])),
            SIGNS,
            "3 numbers, one per client",
        ),
        (
            bf.Problem(bf.Hinge(), PLAIN, over_clients=bf.LpBall(0.1, prior=[0.5, 0.5, 0.5])),
            SIGNS,
            "1.5",
        ),
        (
            bf.Problem(bf.Hinge(), PLAIN, over_clients=bf.LpBall(0.1, prior=[0.5, 0.5])),
            SIGNS,
            "prior",
        ),
        (
            bf.Problem(
                bf.Hinge(),
                PLAIN,
                over_samples=bf.WassersteinBall(0.1, 1.0, "l1", bf.BoxSupport(-0.1, 0.1)),
            ),
            SIGNS,
            "outside",
        ),
    ],
)
def test_refused_at_the_data(problem, y, needle):
    fed = bf.Federation.from_arrays(X, y, GROUPS)
    with pytest.raises(ValueError, match=needle):
        bf.solve(problem, fed)


def test_data_outside_the_support_name_client_and_rows_or_are_clipped():
    far = X.copy()
    far[5, 1] = 40.0
    fed = bf.Federation.from_arrays(far / 4, SIGNS, GROUPS)
    ball = bf.WassersteinBall(0.1, 1.0, "l1", bf.BoxSupport(-1, 1))
    with pytest.raises(ValueError, match=r"'B'.*1"):
        bf.solve(bf.Problem(bf.Hinge(), PLAIN, over_samples=ball), fed)
    clipped = bf.WassersteinBall(0.1, 1.0, "l1", bf.BoxSupport(-1, 1), clip=True)
    solution = bf.solve(
        bf.Problem(bf.Hinge(), PLAIN, over_samples=clipped, regulariser=bf.L2(0.1)), fed
    )
    assert any("clip" in note.lower() for note in solution.notes)
    assert far[5, 1] == 40.0


def test_one_class_client_is_allowed_with_a_note():
    y = SIGNS.copy()
    y[:4] = 1
    solution = bf.solve(
        bf.Problem(bf.Hinge(), PLAIN, over_clients=bf.LpBall(0.1), regulariser=bf.L2(0.1)),
        bf.Federation.from_arrays(X, y, GROUPS),
    )
    assert solution.certificate.relative_gap <= 1e-6
    assert any("A" in note and "one label" in note for note in solution.notes)


def test_classes_are_sorted_and_the_larger_is_plus_one():
    problem = bf.Problem(bf.Logistic(), PLAIN, regulariser=bf.L2(0.1))
    words = np.where(SIGNS == 1, "sick", "healthy")
    by_word = bf.solve(problem, bf.Federation.from_arrays(X, words, GROUPS))
    by_sign = bf.solve(problem, bf.Federation.from_arrays(X, 2 * SIGNS - 1, GROUPS))
    np.testing.assert_array_equal(by_word.w, by_sign.w)


@pytest.mark.parametrize("w", [np.zeros(2), np.full(3, np.nan)])
def test_objective_refuses_wrong_models(w):
    with pytest.raises(ValueError, match="3 finite numbers"):
        bf.Problem(bf.Hinge(), PLAIN).objective(w, bf.Federation.from_arrays(X, SIGNS, GROUPS))


def test_radii_and_priors_by_name():
    fed = federation(1)
    named = bf.Problem(
        bf.Hinge(),
        PLAIN,
        over_samples=bf.WassersteinBall({"c2": 0.2, "c0": 0.0, "c1": 0.1}, 1.0),
        over_clients=bf.LpBall(0.1, prior={"c1": 0.5, "c0": 0.25, "c2": 0.25}),
    )
    listed = bf.Problem(
        bf.Hinge(),
        PLAIN,
        over_samples=bf.WassersteinBall([0.0, 0.1, 0.2], 1.0),
        over_clients=bf.LpBall(0.1, prior=[0.25, 0.5, 0.25]),
    )
    w = np.linspace(-1, 1, 8)
    assert named.objective(w, fed) == listed.objective(w, fed)
