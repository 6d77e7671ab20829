"""Every public parameter and every kind of wrong value: taken as declared, or refused by name."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest
from met import met

import bonafed as bf
from bonafed.parameters import ParameterError, parameters, takes
from bonafed.problem.risks.ranks import two_sides

WRONG: tuple[Any, ...] = (
    *(None, "text", b"bytes", True, math.nan, math.inf, -1.5, 1j, 10**400, object(), dict),
    *(lambda: 0, [1.0, "x"], ["a"], [[1.0], [2.0, 3.0]], np.array([1.0, 2.0]), {"a": 1}),
)
# what runs make, not users; a federation is made by its class methods
MADE = {"Audit", "Book", "Certificate", "Duals", "Federation", "Ledger", "Log", "Multipliers"}
MADE |= {"Outcome", "PrivateIntervals", "Replay", "Sigmoid", "Solution", "Stop", "Triviality"}
WITH_TORCH = {"TorchConstraint", "TorchPredictor"}
GIVEN: dict[str, dict[str, Any]] = {  # values for the parameters without a default
    "Box": {"lower": 0.0, "upper": 1.0},
    "BoundedGroupLoss": {"column": "a", "level": 0.1},
    "Bounds": {"lower": 0.0, "upper": 1.0},
    "BoxSupport": {"lower": 0.0, "upper": 1.0},
    "Budget": {"epsilon": 1.0, "delta": 1e-6},
    "Constraint": {"value_and_jacobian": lambda w: w},
    "CostLimit": {"costs": {"a": 1.0}, "limit": 1.0},
    "Coupled": {"constraint": bf.NeymanPearson("b", 0.3)},
    "Ellipsoid": {"shape": [1.0, 1.0], "radius": 0.1},
    "Extremile": {"r": 2.0},
    "GroupL2": {"strength": 1.0, "groups": ["a", "b"]},
    "LinearEquality": {"C": np.ones((1, 2)), "d": np.ones(1)},
    "LinearInequality": {"C": np.ones((1, 2)), "d": np.ones(1)},
    "Monotone": {"features": ["a", "b"]},
    "NeymanPearson": {"label": "b", "level": 0.3},
    "OwnSet": {"maximiser": lambda losses: losses},
    "PolytopeSupport": {"C": [[1.0, 1.0]], "d": [1.0]},
    "Polyhedron": {"D": [[1.0, 1.0]], "c": [1.0]},
    "Problem": {"loss": bf.Hinge()},
    "RankedRange": {"k": 3, "m": 1},
    "Sign": {"of": {"a": 1}},
    "Spectral": {"weights": [0.5, 0.5]},
    "Start": {"penalty": None},
    "Trace": {"recorded": {"a": [1.0]}},
}
USUAL = {float: 0.5, int: 2, str: "a"}


def classes() -> dict[str, Any]:
    """The public classes of which a user makes values, by name."""
    found = {name: getattr(bf, name) for name in bf.__all__ if name not in MADE | WITH_TORCH}
    made = {name: cls for name, cls in found.items() if inspect.isclass(cls)}
    return {name: c for name, c in made.items() if not issubclass(c, BaseException)}


PLAIN = {name: cls for name, cls in classes().items() if not hasattr(cls, "fit")}
MODELS = {name: cls for name, cls in classes().items() if hasattr(cls, "fit")}


def given(name: str, cls: Any) -> dict[str, Any]:
    """Values for all parameters without a default."""
    needed = {key: each for key, each in parameters(cls).items() if each.required}
    return {key: USUAL.get(each.type, 0.5) for key, each in needed.items()} | GIVEN.get(name, {})


@met(
    "E",
    "Superquantile('0.1'), TopK(None), Huber([1]), LpBall(0.1, p='2')",
    "an error of Python: '<' not supported between 'int' and 'str'",
    "p must be a number, got '2'. It is given to LpBall.",
)
@met(
    "E",
    "Ball(1, centre={'a': 1}), Bounds('0', 1), VirtualClock(max_time=10**400)",
    "float() argument must be a string or a real number, not 'dict'; the others were taken",
    "centre must be numbers or a number, got {'a': 1}",
    "Superquantile('0.1')",
)
def test_every_parameter_takes_what_it_declares_or_refuses_it_by_name():
    tried, silent, unnamed = 0, [], []
    for name, cls in PLAIN.items():
        base = given(name, cls)
        cls(**base)  # the others are right
        for key, parameter in parameters(cls).items():
            for value in WRONG:
                tried += 1
                case = f"{name}({key}={value!r:.40})"
                try:
                    cls(**base | {key: value})
                except (ValueError, TypeError, FileNotFoundError) as error:
                    if key not in str(error) and not isinstance(error, FileNotFoundError):
                        unnamed.append(f"{case}: {error}")
                else:
                    default = value is parameter.default
                    nan = isinstance(value, float) and math.isnan(value)
                    if not default and (nan or not takes(parameter.type, value)):
                        silent.append(case)
    assert not silent
    assert not unnamed
    assert tried > 5000
    assert len(PLAIN) > 90


@pytest.fixture(scope="module")
def rows() -> tuple[Any, Any, Any]:
    X = np.random.default_rng(0).standard_normal((24, 2))
    return X, np.where(X[:, 0] > 0, "b", "a"), np.repeat([1, 2], 12)


@met(
    "E",
    "RobustClassifier(tol='a').fit, RobustClassifier(loss='hinge').fit",
    "tol must be >= 0, got 'a'; needs a loss of the margin, got 'hinge'",
    "tol must be a number or None, got 'a'; ... got 'hinge': write Hinge().",
    "Superquantile('0.1')",
)
def test_every_parameter_of_an_estimator_is_checked_at_fit(rows):
    X, y, groups = rows
    tried, silent, unnamed = 0, [], []
    for name, cls in MODELS.items():
        base = {"estimator": bf.PrivateClassifier(), "settings": {"rounds": [1]}}
        base = {key: value for key, value in base.items() if key in parameters(cls)}
        for key, parameter in parameters(cls).items():
            for value in WRONG:
                if value is parameter.default or takes(parameter.type, value):
                    continue  # what fits is fitted in the tests of the estimators
                tried += 1
                try:
                    cls(**base | {key: value}).fit(X, y, groups=groups)
                except (ValueError, TypeError) as error:
                    if key not in str(error):
                        unnamed.append(f"{name}({key}={value!r:.40}): {error}")
                else:
                    silent.append(f"{name}({key}={value!r:.40})")
    assert not silent
    assert not unnamed
    assert tried > 1000


@met(
    "E",
    "solve(problem, fed, algorithm='bundle')",
    "algorithm must be a federated one, such as Bundle() or AsyncDRO(), got 'bundle'",
    "algorithm must be a value such as Bundle() or None, got 'bundle': write Bundle().",
)
@met(
    "E",
    "solve(problem, fed, verbose=True); fit(X, y, group=g)",
    "solve() got an unexpected keyword argument 'verbose'",
    "solve has no parameter 'verbose', it has ... Did you mean 'watch'?",
)
@met(
    "E",
    "RobustClassifier().fit(X, y, sensitive_features=g)",
    "fit() got an unexpected keyword argument 'sensitive_features'",
    "fit has no parameter 'sensitive_features', ... Did you mean 'groups'?",
)
@met(
    "E",
    "Linear(intercept=False), Softmax(intercepts=False) beside fit_intercept of estimators",
    "three names for one thing",
    "Linear has no parameter 'intercept', it has fit_intercept. Did you mean 'fit_intercept'?",
)
@met(
    "E",
    "Federation.from_arrays(X, y, group=g); solve(problem, fed, regularizer=...)",
    "unexpected keyword argument",
    "Did you mean 'groups'?",
    "solve(problem, fed, verbose=True)",
)
@met(
    "E",
    "RobustClassifier(penalty='l2'), RobustClassifier(max_iter=9), RobustClassifier(C=1)",
    "__init__() got an unexpected keyword argument",
    "RobustClassifier has no parameter 'penalty', it has ... Did you mean 'regulariser'?",
    "solve(problem, fed, verbose=True)",
)
@met(
    "E",
    "RobustClassifier(intercept=False), RiskClassifier(use_intercept=False)",
    "__init__() got an unexpected keyword argument 'intercept'",
    "Did you mean 'fit_intercept'?",
    "Linear(intercept=False)",
)
@met(
    "E",
    "ConstrainedClassifier(fit_intercepts=False), a slip; MLP((2,), intercept=False)",
    "__init__() got an unexpected keyword argument",
    "Did you mean 'fit_intercept'? MLP has hidden, activation, classes, seed",
    "Linear(intercept=False)",
)
@met(
    "E",
    "RobustClassifier().set_params(intercept=False)",
    "Invalid parameter 'intercept' for estimator RobustClassifier(). Valid parameters are: [...]",
    "Did you mean 'fit_intercept'?",
    "Linear(intercept=False)",
)
def test_arguments_of_another_name_are_answered_with_the_one_that_is_meant(rows):
    X, y, groups = rows
    fed, problem = bf.Federation.from_arrays(X, y, groups), bf.Problem(bf.Hinge())
    solve: Any = bf.solve
    model: Any = bf.RobustClassifier()
    make: Any = bf.Federation.from_arrays
    linear: Any = bf.Linear
    softmax: Any = bf.Softmax
    made: Any = bf.Problem
    robust: Any = bf.RobustClassifier
    risk: Any = bf.RiskClassifier
    constrained: Any = bf.ConstrainedClassifier
    mlp: Any = bf.MLP
    for call, said in {
        lambda: solve(problem, fed, algorithm="bundle"): r"got 'bundle': write Bundle\(\)",
        lambda: solve(problem, fed, engine="virtual_clock"): r"engine.* write VirtualClock\(\)",
        lambda: solve("problem", fed): r"problem must be a value such as Problem",
        lambda: solve(problem, fed, verbose=True): "no parameter 'verbose'.* mean 'watch'",
        lambda: solve(problem, fed, watch=True): "watch must be a list, each a function, got True",
        lambda: solve(problem, fed, scoring="accuracy"): "no parameter 'scoring', it has",
        lambda: model.fit(X, y, group=groups): "no parameter 'group'.* mean 'groups'",
        lambda: model.fit(X, y, sensitive_features=groups): "mean 'groups'",
        lambda: make(X, y, group=groups): "mean 'groups'",
        lambda: linear(intercept=False): "it has fit_intercept. Did you mean 'fit_intercept'",
        lambda: softmax(intercepts=False): "Did you mean 'fit_intercept'",
        lambda: made(bf.Hinge(), regularizer=bf.L2(0.1)): "Did you mean 'regulariser'",
        lambda: robust(penalty="l2"): "Did you mean 'regulariser'",
        lambda: robust(max_iter=9): "Did you mean 'max_rounds'",
        lambda: robust(C=1): "no parameter 'C', it has loss",
        lambda: robust(intercept=False): "Did you mean 'fit_intercept'",
        lambda: robust().set_params(intercept=False): "Did you mean 'fit_intercept'",
        lambda: risk(use_intercept=False): "Did you mean 'fit_intercept'",
        lambda: constrained(fit_intercepts=False): "Did you mean 'fit_intercept'",
        lambda: mlp((2,), intercept=False): "it has hidden, activation, classes, seed.$",
    }.items():
        with pytest.raises(ParameterError, match=said):
            call()


def test_what_fits_is_taken_in_every_form():
    assert bf.L2(np.float32(0.5)).strength == 0.5
    assert bf.L2(np.int64(1)).strength == 1
    assert bf.Bundle(max_rounds=1e4).max_rounds == 1e4  # type: ignore[arg-type]
    assert two_sides(bf.ProspectTheory())
    for lower in (0.0, [0.0, 0.0], (0.0, 0.0), np.zeros(2), np.array(0.0)):
        assert bf.Bounds(lower, 1.0).value(np.array([0.5, 0.5])) == 0


# ------------------------------------------------------------------------------ functions, methods

REFUSED = "certify('p', fed, w, duals), audit('p', fed), default_radius('p', fed)"
INNER = {"block", "blocks", "digests", "position", "positions", "rows", "rows_alike", "share"}
INNER |= {"without_server", "set_params"}  # of a federation or an estimator, for no user to call
PUBLIC = {name: getattr(bf, name) for name in bf.__all__}
FUNCTIONS = {name: made for name, made in PUBLIC.items() if inspect.isfunction(made)}


def methods() -> dict[str, Any]:
    """The public methods of what users hold, by class and name."""
    found = {}
    for cls in (bf.Federation, bf.Solution, *MODELS.values()):
        for name in (name for name in dir(cls) if name not in INNER and not name.startswith("_")):
            method = getattr(object.__new__(cls), name, None)  # which a class may not have
            if inspect.ismethod(method) and method.__module__.startswith("bonafed"):
                found[f"{cls.__name__}.{name}"] = method
    return found


@pytest.fixture(scope="module")
def known(rows) -> dict[str, Any]:
    """A value for every parameter of a public function."""
    X, y, groups = rows
    fed, problem = (
        bf.Federation.from_arrays(X, y, groups),
        bf.Problem(bf.Logistic(), regulariser=bf.L2(1.0)),
    )
    solution = bf.solve(problem, fed)
    values = {"problem": problem, "fed": fed, "w": solution.w, "duals": solution.duals}
    values |= {"solution": solution, "client": "1", "path": "none", "radii": [0.1]}
    ill = (y == "b").astype(int)
    return values | {"y_true": ill, "y_pred": ill, "group": groups, "privileged": 1}


@met(
    "E",
    REFUSED,
    "AttributeError: 'str' object has no attribute 'at'; could not convert string to float: 'w'",
    "problem must be a value such as Problem(...), got 'p'. It is given to certify.",
    "Superquantile('0.1')",
)
@met(
    "E",
    "exposed_rows(..., top='x'), load(3), private_intervals('s')",
    "no rows and no error; 'str' object has no attribute 'moments'",
    "top must be a whole number, got 'x'. It is given to exposed_rows.",
    "Superquantile('0.1')",
)
def test_every_parameter_of_a_function_takes_what_it_declares_or_refuses_it_by_name(known):
    tried, silent, unnamed = 0, [], []
    for name, function in FUNCTIONS.items():
        base = {key: known[key] for key, each in parameters(function).items() if each.required}
        for key, parameter in parameters(function).items():
            of_rows = key in ("y_true", "y_pred", "group")  # any column, which is read
            for value in WRONG:
                if value is parameter.default or (takes(parameter.type, value) and not of_rows):
                    continue
                tried += 1
                case = f"{name}({key}={value!r:.40})"
                try:
                    function(**base | {key: value})
                except (ValueError, TypeError) as error:
                    if key not in str(error):
                        unnamed.append(f"{case}: {error}")
                else:
                    silent.append(case)
    assert not silent
    assert not unnamed
    assert tried > 600


@met(
    "E",
    "fit(X), solve(problem), predict()",
    "_RobustModel.fit() missing 1 required positional argument: 'y'",
    "fit needs y, and got nothing for it.",
    "RobustClassifier().fit(X, y, sensitive_features=g)",
)
@met(
    "E",
    "fit(X, y, g), the groups without their name",
    "takes 3 positional arguments but 4 were given, which counts what nobody wrote",
    "fit takes 2 arguments without a name, got 3: name the others, as in groups=VALUE.",
    "RobustClassifier().fit(X, y, sensitive_features=g)",
)
@met(
    "E",
    "client_report(confidence=0.9), predict(X, groups=g)",
    "FederatedModel.client_report() got an unexpected keyword argument 'confidence'",
    "client_report has no parameter 'confidence', it has none.",
    "RobustClassifier().fit(X, y, sensitive_features=g)",
)
@met(
    "E",
    "statistical_parity_difference(y, p, sensitive_features=g)",
    "got an unexpected keyword argument 'sensitive_features'",
    "it has y_true, y_pred, group, privileged, positive. Did you mean 'group'?",
    "solve(problem, fed, verbose=True)",
)
def test_every_function_and_method_names_what_is_too_much_too_little_or_unknown():
    called = {**FUNCTIONS, **methods()}
    for function in called.values():
        made = parameters(inspect.unwrap(function))
        kinds = {each.kind for each in inspect.signature(function).parameters.values()}
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            with pytest.raises(ParameterError, match="has no parameter 'odd'"):
                function(odd=1)
        with pytest.raises(ParameterError, match=r"without a name, got \d+|needs|must be"):
            function(*([object()] * 30))
        needed = [key for key, each in made.items() if each.required and key not in ("self", "cls")]
        if needed:
            with pytest.raises(ParameterError, match=f"needs {needed[0]}"):
                function()
    assert len(called) > 70


@met(
    "E",
    "solution.evaluate(X, y)",
    "Solution.evaluate() takes 2 positional arguments but 3 were given",
    "fed must be a value such as Federation.from_arrays(X, y, groups), got array(...)",
    "solve(problem, fed, verbose=True)",
)
@met(
    "E",
    "solve(problem, fed, engine='flower'), algorithm=Bundle without brackets",
    "engine must be such as InProcess() or VirtualClock(), got 'flower'; Give a value: Bundle()",
    "got the class Bundle: write Bundle()",
    "solve(problem, fed, algorithm='bundle')",
)
@met(
    "E",
    "audit(..., algorithm='private_admm'), RobustClassifier(algorithm='bundle').fit",
    "str adds no noise: there is no guarantee to refute; algorithm must be a federated one",
    "got 'private_admm': write PrivateADMM()",
    "solve(problem, fed, algorithm='bundle')",
)
@met(
    "E",
    "radius_path(..., algorithm='bundle'), algorithm='lbfgs', which no method is called",
    "radius_path needs over_samples=WassersteinBall(...), got Mean(...)",
    "algorithm must be a value such as Bundle() or None, got 'bundle': write Bundle()",
    "solve(problem, fed, algorithm='bundle')",
)
def test_values_of_another_kind_are_answered_by_one_that_fits(rows, known):
    X, y, _ = rows
    solution: Any = known["solution"]
    solve: Any = bf.solve
    path: Any = bf.radius_path
    audit: Any = bf.audit
    robust: Any = bf.RobustClassifier
    for call, said in {
        lambda: solution.evaluate(X, y): r"such as Federation.from_arrays\(X, y, groups\), got arr",
        lambda: solution.evaluate(known["fed"], 0.9): r"got 2: name the others, as in confidence=V",
        lambda: solution.evaluate(known["fed"], confidence="x"): "confidence must be a number",
        lambda: solution.save(3): r"path must be a text or a value such as Path\('file'\), got 3",
        lambda: known["fed"].split(test="x"): "test must be a number, got 'x'",
        lambda: solve(known["problem"], known["fed"], algorithm=bf.Bundle): r"write Bundle\(\)",
        lambda: solve(known["problem"], known["fed"], engine="flower"): "engine must be a value",
        lambda: solve(
            known["problem"], known["fed"], algorithm="lbfgs"
        ): "got 'lbfgs'. It is given",
        lambda: path(
            known["problem"], known["fed"], radii=[0.1], algorithm="bundle"
        ): r"Bundle\(\)",
        lambda: audit(known["problem"], known["fed"], algorithm="private_admm"): r"PrivateADMM\(\)",
        lambda: robust(algorithm="bundle").fit(X, y, groups=rows[2]): r"write Bundle\(\)",
    }.items():
        with pytest.raises(ParameterError, match=said):
            call()
