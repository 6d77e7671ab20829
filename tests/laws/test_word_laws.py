"""Words against the certificate, over every stop, every method and every estimator.

every number in a text is one of the run's: of its certificate, its limits, its settings
it says what of the gap is proven, and of an optimum only what the gap bears out
a warning is raised where the gap exceeds the tolerance, and nowhere else
no two sentences give opposite advice on one parameter
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from border.test_few_people import agreed, opened, solved
from border.test_liars import WRONG, Late, over_sites
from sklearn.exceptions import ConvergenceWarning

import bonafed as bf
from bonafed.algorithms.method import settings_of
from bonafed.algorithms.requirements import ONE_CLIENT
from bonafed.problem.lower_bounds import NEARBY
from bonafed.problem.predictors.affine import is_affine
from bonafed.rounds import Stop
from bonafed.solution import solve as solving
from bonafed.solution.tables import MET
from examples import ALGORITHMS, federation

STATED = {name: example for name, example in ALGORITHMS.items() if example.stated}
FED = federation((20, 35, 12, 28, 9), 4)
NAMES = re.compile(
    r"class -?\d+(\.\d+)?|and \d+ more"
)  # of classes, and how many owners are not told
NUMBER = re.compile(r"(?<![\w.\-])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")
SAID = {1e-3, 1e6, 0.0, 1.0, float(NEARBY), MET}  # of advice, and of how far a proof reaches
WAYS = {"raise": 1, "larger": 1, "accept it with": 1, "lower": -1, "smaller": -1}
PARAMETERS = (
    *("tol", "atol", "max_rounds", "max_time", "max_iterations", "level", "limit", "limits"),
    *("radius", "strength", "tail", "label_cost", "epsilon", "step_size", "weight_step", "kappa"),
)
ADVICE = re.compile(
    rf"\b({'|'.join(WAYS)})((?:,? (?:or |and |the |a )*(?:{'|'.join(PARAMETERS)})\b)+)", re.I
)
Ran = tuple[bf.Solution, dict[str, Any], list[Any]]


def ran(problem: bf.Problem, fed: Any, algorithm: Any, **how: Any) -> Ran:
    """A solution, the settings of the method that ran, and the warnings."""
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        solution = bf.solve(problem, fed, algorithm=algorithm, **how)
    settings = {key: value for key, value in how.items() if key != "watch"}
    method = solving.plan(problem, fed, algorithm=algorithm, **settings).method
    return solution, settings_of(method), caught


class Interrupting:
    """Ctrl-C after so many rounds."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def __call__(self, row: Any, state: Any) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def examples(name: str) -> tuple[bf.Problem, Any, bf.Federation]:
    problem, algorithm = STATED[name].stated
    one = algorithm.requirements.clients is ONE_CLIENT
    return problem, algorithm, FED.pooled() if one else FED


# ------------------------------------------------------------------------------------- the numbers


def numbers(solution: bf.Solution, settings: dict[str, Any]) -> Iterator[float]:
    """What a text may say."""
    proof = solution.certificate
    for value in proof.numbers().values():
        yield from np.ravel(np.array([np.nan if value is None else value], float))
    if proof.gap is not None:
        yield from (max(proof.gap, 0.0), max(proof.relative_gap, 0.0), -proof.gap)
    if proof.nearby is not None:
        gain = proof.value - proof.nearby
        yield from (gain, gain / max(abs(proof.value), abs(proof.nearby)))
    yield from (100 * (proof.separated or 0.0), solution.rounds)
    for row in solution.constraints:
        yield from (float(x) for x in row.values() if isinstance(x, int | float))
        yield abs(row["measured"] - row["limit"])
    yield from (float(x) for x in settings.values() if isinstance(x, int | float))
    yield from SAID


def unknown_numbers(text: str, known: Sequence[float]) -> list[str]:
    """The numbers of a text that are no known number, to as many digits as they show."""

    def shown(x: float, token: str) -> bool:
        digits = token.replace(",", "")
        mantissa, _, power = digits.partition("e")
        places = len(mantissa.partition(".")[2])
        significant = len(mantissa.replace(".", "").replace("-", "").lstrip("0")) or 1
        ways = [f"{x:.{places}e}", f"{x:.{significant}g}"] if power else []
        ways += [f"{x:.{places}f}", f"{x:.{max(significant, 1)}g}", f"{x:g}", f"{x:.9g}"]
        return any(float(way) == float(digits) for way in ways)

    finite = [x for x in known if math.isfinite(x)]
    return [token for token in NUMBER.findall(text) if not any(shown(x, token) for x in finite)]


def advised(texts: Sequence[str]) -> dict[str, set[int]]:
    """Which parameters to raise (1) and which to lower (-1), by all that a person reads."""
    found: dict[str, set[int]] = {}
    for verb, names in (match for text in texts for match in ADVICE.findall(text)):
        for name in set(re.findall(r"\w+", names)) & {*PARAMETERS}:
            found.setdefault(name.removesuffix("s"), set()).add(WAYS[verb.lower()])
    return found


def judge(solution: bf.Solution, settings: dict[str, Any], caught: list[Any]) -> None:
    """All of the law, of one run."""
    proof, text, stop = solution.certificate, solution.outcome.text, solution.outcome.stop
    convex = is_affine(solution.problem.predictor) and solution.problem.convex
    known = [*numbers(solution, settings)]
    odd = unknown_numbers(NAMES.sub("", text), known)
    assert not odd, (text, odd)
    # the gap
    size = max(abs(proof.value), 1e-12)
    allowed = max(settings.get("atol", 0.0), settings.get("tol", 1e-6) * size) + 1e-8 * size
    unmet = any(not row["met"] for row in solution.constraints) or "Not met" in text
    private = solution.problem.privacy is not None
    within = proof.gap is not None and proof.gap <= allowed and not unmet
    for relative in re.findall(r"relative gap (\S+) \(", text):
        assert relative == f"{max(proof.relative_gap, 0.0):.2e}", text
    if "no bound is proved" in text.lower() or "no bound can be proved" in text.lower():
        assert proof.bound is None, text
    # no optimum without proof
    if stop is Stop.OPTIMAL:
        assert within or private
        assert proof.separated is None
    if "is optimal within tol" in text and "among these" not in text:
        assert within
    nearby = proof.nearby is not None and proof.value - proof.nearby <= allowed
    if "among these" in text:
        assert nearby
        assert proof.separated is None
        assert proof.bound is None
    if (proof.separated is not None) and not private:
        assert "separated" in text
    if "known cuts" in text:
        assert settings.get("known") is not None
    # the advice
    trivial = [] if solution.trivial is None else [solution.trivial.text]
    texts = [text, *(str(w.message) for w in caught), *solution.notes, *trivial]
    assert all(len(ways) == 1 for ways in advised(texts).values()), texts
    # the warning
    said = [w for w in caught if issubclass(w.category, bf.UnprovenWarning)]
    assert all(str(w.message) == text for w in said)
    done = within and stop in (Stop.OPTIMAL, Stop.MAX_ROUNDS, Stop.STALLED)
    unprovable = stop is Stop.UNPROVEN and not convex and not unmet
    if private:
        assert not said or stop is Stop.INTERRUPTED
    elif proof.separated is not None or (proof.gap is not None and proof.gap > allowed) or unmet:
        assert said, text
    elif done or (nearby and stop in (Stop.UNPROVEN, Stop.MAX_ROUNDS, Stop.STALLED)):
        assert not said, text
    elif convex and not solution.constraints:
        assert bool(said) == (not unprovable), text


# -------------------------------------------------------------------------------------- every stop


@pytest.mark.parametrize("name", STATED)
def test_at_a_cap(name: str) -> None:
    problem, algorithm, fed = examples(name)
    judge(*ran(problem, fed, algorithm, max_rounds=4))


@pytest.mark.parametrize("name", STATED)
def test_interrupted(name: str) -> None:
    problem, algorithm, fed = examples(name)
    solution, *rest = ran(problem, fed, algorithm, max_rounds=6, watch=[Interrupting(3)])
    assert solution.outcome.stop is Stop.INTERRUPTED
    judge(solution, *rest)


ENDS = (  # methods that come to their own end on so few rows, in well under a second
    *("bundle", "bundle, level", "asynchronous bundle", "AsyncDRO", "FedAvg", "multiplier method"),
    *("interior point", "interior point, infeasible", "rank interior point", "rank ADMM"),
    *("bundle, ranks of all rows", "multiplier method, bounds", "private SGD", "rank bundle"),
)


@pytest.mark.parametrize("name", ENDS)
def test_at_their_own_end(name: str) -> None:
    problem, algorithm, fed = examples(name)
    solution, *rest = ran(problem, fed, algorithm)
    assert (solution.outcome.stop is Stop.INFEASIBLE) == name.endswith("infeasible")
    judge(solution, *rest)


@pytest.mark.parametrize("name", ENDS)
def test_where_nothing_bounds_the_optimum(name: str) -> None:
    problem, algorithm, fed = examples(name)
    free = replace(problem, regulariser=bf.Zero(), over_samples=bf.Mean())
    if problem.constrained or problem.over_rows is not None or problem.privacy is not None:
        pytest.skip("it is another problem")
    judge(*ran(free, fed, algorithm, max_rounds=40))


TOY = bf.Problem(bf.Logistic(), bf.Linear(True), regulariser=bf.L2(1e-2))


@pytest.mark.parametrize(
    "method", [bf.FedAvg(step_size=1e6), bf.AFL(step_size=1e5), bf.Bundle(), bf.FedAvg(tol=1e-12)]
)
@pytest.mark.parametrize("scale", [1.0, 1e5])
def test_of_steps_that_diverge_and_features_of_odd_sizes(method: Any, scale: float) -> None:
    rows = [(X * [1.0, scale, 1.0, 1 / scale], y) for X, y in map(FED.rows, range(5))]
    X, y = (np.concatenate(each) for each in zip(*rows, strict=True))
    fed = bf.Federation.from_arrays(X, y, np.repeat([*"abcde"], FED.sizes))
    try:
        run = ran(TOY, fed, method, max_rounds=60)
    except ArithmeticError:  # there is no model
        return
    judge(*run)


def test_unbounded() -> None:
    A = [np.diag([1.0, 0.0]), np.diag([1.0, 0.0])]
    fed = bf.Federation.from_quadratics(A, [np.ones(2), np.ones(2)])
    problem = bf.Problem(bf.Quadratic(), over_clients=bf.Sum())
    solution, *rest = ran(problem, fed, bf.InteriorPoint())
    assert solution.outcome.stop is Stop.UNBOUNDED
    judge(solution, *rest)


@pytest.mark.parametrize("rule", ["maximum_models = 2", "maximum_models = 3"])
def test_refused(rule: str, tmp_path: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = solved(agreed(opened(tmp_path, rule)))
    assert solution.outcome.stop is Stop.REFUSED
    judge(solution, {"tol": 1e-6, "rule": float(rule[-1])}, caught)


@pytest.mark.parametrize("times", [1, math.inf])
def test_impossible(times: float, tmp_path: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = over_sites(tmp_path, Late(WRONG["sign"], 5, times), bf.AFL(), max_rounds=12)
    assert solution.outcome.stop is Stop.IMPOSSIBLE
    text = solution.outcome.text
    proof = solution.certificate
    assert not proof.failed or proof.bound is None
    assert any(issubclass(w.category, bf.UnprovenWarning) for w in caught)
    for relative in re.findall(r"relative gap (\S+) \(", text):
        assert relative == f"{max(proof.relative_gap, 0.0):.2e}"


# ----------------------------------------------------------------------------------- opposite ways


def test_the_law_reads_advice() -> None:
    texts = ["stopped: raise max_rounds or tol.", "It is trivial: raise max_rounds, or lower tol."]
    assert advised(texts) == {"max_round": {1}, "tol": {1, -1}}
    assert advised(["Lower step_size or weight_step", "accept it with atol or tol"]) == {
        **{"step_size": {-1}, "weight_step": {-1}},
        **{"atol": {1}, "tol": {1}},
    }


TIGHT = (bf.InteriorPoint(max_rounds=15), bf.InteriorPoint(), bf.Bundle(max_rounds=20))
TIGHT += (bf.ProximalAL(max_rounds=30), bf.ProximalAL(max_rounds=300))


@pytest.mark.parametrize("level", [1e-9, 1e-3])
@pytest.mark.parametrize("method", TIGHT, ids=repr)
def test_of_limits_that_hardly_a_model_meets(method: Any, level: float) -> None:
    problem = bf.Problem(
        bf.Logistic(), bf.Linear(True), local_constraint=bf.NeymanPearson(1, level)
    )
    solution, *rest = ran(problem, FED, method)
    judge(solution, *rest)
    said = [solution.outcome.text, *(str(w.message) for w in rest[1])]
    if level == 1e-9:
        assert any("1e-09" in text and "Raise" in text for text in said), said


# --------------------------------------------------------------------------------- every estimator


@cache
def table() -> tuple[Any, Any, Any]:
    X, y = FED.pooled().rows(0)
    return X, (np.asarray(y) > 0).astype(int), np.repeat([*"abcde"], FED.sizes)


ESTIMATORS: dict[str, Any] = {
    "robust": bf.RobustClassifier(),
    "agnostic": bf.AgnosticClassifier(),
    "worst client": bf.AgnosticClassifier(bf.Simplex()),
    "tail": bf.RiskClassifier(),
    "ranked range": bf.RiskClassifier(bf.RankedRange(80, 10)),
    "constrained": bf.ConstrainedClassifier(local_constraint=bf.NeymanPearson(1, 0.6)),
    "robust regression": bf.RobustRegressor(),
    "tail regression": bf.RiskRegressor(),
    "separated": bf.AgnosticClassifier(regulariser=bf.Zero()),
}


@pytest.mark.parametrize("cap", [2, None])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators(name: str, cap: int | None) -> None:
    model, (X, y, groups) = ESTIMATORS[name], table()
    target = X[:, 0] + 0.1 * y if "regression" in name else y
    target = (X[:, 0] > 0).astype(int) if name == "separated" else target
    model = model.set_params(max_rounds=cap)
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        model.fit(X, target, groups=groups)
    said = [w for w in caught if issubclass(w.category, bf.UnprovenWarning)]
    assert all(issubclass(w.category, ConvergenceWarning) for w in said)
    assert all(w.filename == __file__ for w in said)
    solution = model.solution_
    fed = FED.pooled() if solution.certificate.weights.size == 1 else FED
    method = solving.plan(solution.problem, fed, max_rounds=cap).method
    shown = {**settings_of(method), "tol": _tol(solution.outcome.text, method)}
    judge(solution, shown, caught)


def _tol(text: str, method: Any) -> float:
    found = re.search(r"\(tol (\S+)\)", text)
    return float(found[1]) if found else settings_of(method).get("tol", 1e-6)
