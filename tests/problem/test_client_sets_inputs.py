"""What sets of client weights refuse, in words: what was given, what is needed, what to do."""

from __future__ import annotations

import math

import numpy as np
import pytest

import bonafed as bf

THREE, NAMES = np.ones(3), ("a", "b", "c")
Z = np.array([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bf.Box(0.0, 0.3).at(THREE), r"set is empty: upper sums to 0.9 .* 1/N = 0.333333"),
        (
            lambda: bf.Box(0.5, 1.0).at(THREE),
            r"set is empty: lower sums to 1.5 .* Divide it by 1.5",
        ),
        (
            lambda: bf.Box([0.1, 0.5, 0.1], [0.9, 0.4, 0.9]).at(THREE, NAMES),
            r"got 0.5 > 0.4 for client 'b'",
        ),
        (lambda: bf.Box(0.0, -0.5).at(THREE), "lower must not be above upper, got 0 and -0.5"),
        (lambda: bf.Box(0.0, 0.2).value(Z), "set is empty"),
        (lambda: bf.Box(0.0, 0.2).project(Z), "set is empty"),
        (lambda: bf.Box(0.0, 0.2).contains(Z), "set is empty"),
        (lambda: bf.Box(0.0, math.nan), "upper must be finite, got nan"),
        (lambda: bf.Box(-math.inf, 1.0), "lower must be finite, got -inf"),
        (lambda: bf.Box(0.0, True), "upper must be numbers, got True"),
        (lambda: bf.Box("0", 1.0), "lower must be numbers, got '0'"),
        (lambda: bf.Box(0.0, [1.0, None]), "upper must be numbers"),
        (lambda: bf.Box(0.0, [[1.0], [1.0, 2.0]]), "upper must be numbers"),
        (
            lambda: bf.Box(0.0, [1.0, 1.0]).at(THREE),
            r"upper must be a number or 3 numbers, one per client, got shape",
        ),
        (lambda: bf.Box(0.0, {"a": 1.0}).at(THREE, NAMES), "exactly one entry for each client"),
        (lambda: bf.Box(0.0, {"a": 1.0}).at(THREE), "clients that have no names here"),
        (lambda: bf.Box(0.0, {"a": "1", "b": 1, "c": 1}).at(THREE, NAMES), "upper must be numbers"),
        (lambda: bf.CDNorm(-1.0, 0.1), "budget must be a number >= 0, got -1.0"),
        (lambda: bf.CDNorm(math.inf, 0.1), "budget must be a number >= 0, got inf"),
        (lambda: bf.CDNorm(True, 0.1), "budget must be a number >= 0, got True"),
        (lambda: bf.CDNorm("1", 0.1), "budget must be a number >= 0, got '1'"),
        (lambda: bf.CDNorm(1.0, -0.1), "bounds must be >= 0, got -0.1"),
        (
            lambda: bf.CDNorm(1.0, {"a": 0.1, "b": 0.1, "c": -0.1}).at(THREE, NAMES),
            "bounds must be >= 0",
        ),
        (lambda: bf.CDNorm(1.0, [0.1, math.nan, 0.1]), "bounds must be finite"),
        (lambda: bf.CDNorm(1.0, [0.1, 0.1]).value(Z), "bounds must be a number or 3 numbers"),
        (lambda: bf.CDNorm(1.0, 0.1, [0.5, 0.5, 0.1]).at(THREE), "sum to one, got 1.1"),
        (lambda: bf.CDNorm(1.0, 0.1, [True, False, False]).at(THREE), "prior must be .*numbers"),
        (lambda: bf.CDNorm(1.0, 0.1, ["1", "0", "0"]).at(THREE), "prior must be .*numbers"),
        (lambda: bf.CDNorm(1.0, 0.1, "size").value(Z), r"call risk.at\(sizes\) first"),
        (lambda: bf.TotalVariationBall(-0.1), "radius must be a number >= 0, got -0.1"),
        (lambda: bf.TotalVariationBall(math.nan), "radius must be a number >= 0, got nan"),
        (lambda: bf.TotalVariationBall(True), "radius must be a number >= 0, got True"),
        (lambda: bf.TotalVariationBall(0.1, "sizes").at(THREE), "'uniform', 'size', numbers or"),
        (lambda: bf.WassersteinOverClients(-0.1), "radius must be a number >= 0"),
        (
            lambda: bf.WassersteinOverClients(0.1, "indices"),
            "cost must be 'index', positions or a matrix",
        ),
        (
            lambda: bf.WassersteinOverClients(0.1, [1.0, 2.0]).at(THREE),
            r"3 positions or a matrix \(3, 3\), got shape",
        ),
        (lambda: bf.WassersteinOverClients(0.1, np.ones((2, 3))), "got shape"),
        (lambda: bf.WassersteinOverClients(0.1, 1.0), "got shape"),
        (
            lambda: bf.WassersteinOverClients(0.1, np.ones((3, 3))),
            "zeros on the diagonal, got .* 1 on the diagonal",
        ),
        (lambda: bf.WassersteinOverClients(0.1, -1.0 * (1 - np.eye(3))), "got a least entry of -1"),
        (lambda: bf.WassersteinOverClients(0.1, [0.0, math.nan, 1.0]), "cost must be finite"),
        (lambda: bf.WassersteinOverClients(0.1, ["a", "b", "c"]), "cost must be numbers"),
        (
            lambda: bf.WassersteinOverClients(0.1, {"a": 1.0}).at(THREE, NAMES),
            "exactly one entry for each client",
        ),
        (
            lambda: bf.WassersteinOverClients(0.1, [-1e308, 0.0, 1e308]),
            "positions must differ by less",
        ),
        (
            lambda: bf.Polyhedron([[1.0, 1.0, 1.0]], [0.5]).at(THREE),
            "set is empty: .* the best by 0.5",
        ),
        (lambda: bf.Polyhedron([[1.0, 1.0, 1.0]], [0.5]).project(Z), "set is empty"),
        (lambda: bf.Polyhedron([[1.0, 1.0, 1.0]], [0.5]).project(1e9 * Z), "set is empty"),
        (lambda: bf.Polyhedron([[0.0, 0.0, 0.0]], [-1.0]).value(Z), "set is empty"),
        (lambda: bf.Polyhedron([[1.0, 1.0, 1.0]], [0.5, 1.0]), "D must be a matrix with 2 rows"),
        (lambda: bf.Polyhedron([1.0, 1.0, 1.0], [0.5]), "D must be a matrix with 1 rows"),
        (
            lambda: bf.Polyhedron([[1.0, 1.0]], [1.5]).at(THREE),
            r"one column per client, 3 of them, got shape \(1, 2\)",
        ),
        (lambda: bf.Polyhedron([[1.0, math.inf]], [1.5]), "D must be finite"),
        (lambda: bf.Polyhedron([[True, False]], [1.5]), "D must be numbers"),
        (lambda: bf.Polyhedron([[1.0, 1.0]], [math.nan]), "c must be finite"),
        (lambda: bf.Polyhedron([[1.0, 1.0]], 1.5), "c must be a vector"),
        (
            lambda: bf.Polyhedron({"a": [1.0], "b": [1.0]}, [1.5]).at(THREE, NAMES),
            "exactly one entry for each client",
        ),
        (
            lambda: bf.Polyhedron({"a": [1.0], "b": [1.0]}, [1.5]).value(Z),
            r"call risk.at\(sizes, names\) first",
        ),
        (
            lambda: bf.OwnSet(lambda z: z).at(THREE),
            "weights >= 0 that sum to one, got .* a sum of 0",
        ),
        (
            lambda: bf.OwnSet(lambda z: np.ones(2) / 2).at(THREE),
            r"maximiser must return 3 weights, .* got shape \(2,\)",
        ),
        (
            lambda: bf.OwnSet(lambda z: z * math.nan).at(THREE),
            "weights of maximiser must be finite",
        ),
        (lambda: bf.OwnSet(lambda z: None).at(THREE), "weights of maximiser must be numbers"),
        (
            lambda: bf.OwnSet(lambda z: (np.eye(3)[0], z[0] - 1)).value(Z),
            "bound 0 is below the 1 of its own weights",
        ),
        (lambda: bf.OwnSet(lambda z: (np.eye(3)[0], math.nan)).value(Z), "bound must be finite"),
        (
            lambda: bf.OwnSet(bf.Simplex().weights, lambda v: v).project(Z),
            "projection must return weights >= 0",
        ),
    ],
)
def test_bad_sets_are_refused_with_a_remedy(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "given", [{"maximiser": 3}, {"maximiser": None}, {"maximiser": max, "projection": 1.0}]
)
def test_an_own_set_needs_functions(given):
    with pytest.raises(TypeError, match="must be a function"):
        bf.OwnSet(**given)


@pytest.mark.parametrize(
    "risk",
    [
        bf.Box(0.0, 0.5),
        bf.CDNorm(1.0, 0.1),
        bf.TotalVariationBall(0.1),
        bf.WassersteinOverClients(0.1),
        bf.Polyhedron([[1.0, 0.0, 0.0]], [0.5]),
        bf.OwnSet(bf.Simplex().weights),
    ],
    ids=lambda risk: type(risk).__name__,
)
@pytest.mark.parametrize("verb", ["value", "weights", "worst", "project", "contains"])
@pytest.mark.parametrize(
    "bad", [[1.0, math.nan, 0.0], [1.0, math.inf, 0.0], [], [[1.0, 2.0, 3.0]], ["1", "2", "3"]]
)
def test_no_verb_takes_what_is_no_vector_of_numbers(risk, verb, bad):
    with pytest.raises(ValueError, match="must be"):
        getattr(risk, verb)(bad)
    with pytest.raises(ValueError, match="must be"):
        getattr(risk, verb)([True, False, False])
    with pytest.raises(ValueError, match="step must be a number >= 0"):
        risk.prox(Z, -1.0)


def test_own_projection_of_an_inexact_maximiser_is_refused():
    rng = np.random.default_rng(0)

    def careless(losses):
        return rng.dirichlet(np.ones(len(losses)))

    with pytest.raises(ArithmeticError, match="the maximiser is not exact"):
        bf.OwnSet(careless).project(np.array([3.0, 0.0, 0.0]))


def test_truth_values_in_lists_are_no_numbers_and_names_may_be_given_as_numbers():
    for build in (
        lambda: bf.Box([0, True], 1).at((1, 1), ("0", "1")),
        lambda: bf.KLBall(1.0, [True, 0.0]).at((1, 1)),
    ):
        with pytest.raises(ValueError, match="numbers"):
            build()
    np.testing.assert_allclose(
        bf.KLBall(0.1, {0: 0.25, 1: 0.75}).at((1, 1), ("0", "1")).prior, [0.25, 0.75]
    )
    np.testing.assert_allclose(
        bf.Box(0.0, {0: 0.5, 1: 0.75}).at((1, 1), ("0", "1")).upper, [0.5, 0.75]
    )
