"""Solutions from files."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

import numpy as np

from bonafed.certificates.certificate import Certificate
from bonafed.codec import encode
from bonafed.engines.run_record import Log
from bonafed.privacy.ledger import Ledger
from bonafed.privacy.moments import Moments
from bonafed.problem.calibration import Sigmoid
from bonafed.problem.lower_bounds import Duals
from bonafed.problem.multipliers import Multipliers
from bonafed.problem.problem import Problem, checked_model
from bonafed.rounds import Outcome
from bonafed.solution.inputs import Inputs
from bonafed.solution.solution import BLANK, LEFT_OUT, Solution
from bonafed.solution.stored import Absent, described, stored, unpacked
from bonafed.solution.trivial import Triviality
from bonafed.text import shown

# what a field of a file may hold, where an object's own checks do not say it
TABLES = ("history", "clients", "messages", "tries", "constraints")
KINDS: dict[str, tuple[type, ...]] = {
    "outcome": (Outcome,),
    "rounds": (int,),
    "seconds": (float,),
    "notes": (tuple,),
    "certificate": (Certificate,),
    "ledger": (Ledger, type(None)),
    "calibration": (Sigmoid, type(None)),
    "inputs": (Inputs,),
    "trivial": (Triviality, type(None)),
    "moments": (Moments, type(None)),
    "duals": (Duals, Multipliers, type(None)),
    "log": (Log, type(None)),
    "copies": (np.ndarray, type(None)),
    **dict.fromkeys(TABLES, (list,)),
}
REFUSED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


def load(path: str | os.PathLike[str], *, problem: Problem | None = None) -> Solution:
    """The solution that ``solution.save(path)`` wrote. No code in the file is run.

    Parameters
    ----------
    problem : as it was solved; needed where it holds Python code, such as a torch module or a
        function, of which the file has a description only

    Raises
    ------
    ValueError
        for a file that was damaged or changed, that holds something else or comes from a newer
        bonafed, and where ``problem`` is needed or is another one
    OSError
        for a file that cannot be read

    Examples
    --------
    >>> import numpy as np, bonafed as bf
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> fed = bf.Federation.from_arrays(X, np.sign(X[:, 0]), np.repeat(["a", "b"], 30))
    >>> solution = bf.solve(bf.Problem(bf.Logistic(), regulariser=bf.L2(0.01)), fed)
    >>> solution.save("model.solution")
    >>> bool((bf.load("model.solution").predict(X) == solution.predict(X)).all())
    True
    """
    return stated_in(path, problem).public()


def stated_in(path: str | os.PathLike[str], problem: Problem | None = None) -> Solution:
    """What the file of ``load`` states, with None and nothing for what a public part has not."""
    values = stored(path)
    try:
        slots = {name: unpacked(part) for name, part in values["problem"].items()}
        kept = {name: unpacked(part) for name, part in values["solution"].items()}
    except REFUSED as error:
        raise _odd(path, error) from error
    stated = _problem(path, slots, values["problem"], problem)
    try:
        blank = BLANK if kept.get("ledger") is not None else {}  # a public part has not all
        solution = Solution(problem=stated, **dict.fromkeys(LEFT_OUT), **{**blank, **kept})
        _check(solution)
        repr(solution)
    except REFUSED as error:
        raise _odd(path, error) from error
    return solution


def _odd(path: str | os.PathLike[str], error: Exception) -> ValueError:
    return ValueError(
        f"{path} holds what no solution of this bonafed has ({error}): restore it from a copy, or"
        " update bonafed."
    )


def _problem(
    path: str | os.PathLike[str], slots: dict[str, Any], raw: Any, given: Problem | None
) -> Problem:
    """The problem in the file, or the one that is given, which has to be the same."""
    code = {name: value.description for name, value in slots.items() if isinstance(value, Absent)}
    if given is None:
        for name, description in code.items():
            raise ValueError(
                f"the {name} of the problem is {description}: Python code, which {path} does not"
                " hold. Give it again: bonafed.load(path, problem=problem)."
            )
        try:
            return Problem(**slots)
        except REFUSED as error:
            raise _odd(path, error) from error
    for name in (slot.name for slot in fields(Problem) if slot.name not in code):
        if encode((described(getattr(given, name)),)) != encode((raw.get(name),)):
            raise ValueError(
                f"the problem that is given has another {name} than the one in {path}, which is"
                f" {shown(slots.get(name))}: give the problem that was solved."
            )
    return given


def _check(solution: Solution) -> None:
    """Raise ``ValueError`` or ``TypeError`` unless the parts are what they should be and fit."""
    for name, kinds in KINDS.items():
        value = getattr(solution, name)
        withheld = name == "certificate" and solution.private
        if not isinstance(value, kinds) and not (withheld and value is None):
            raise TypeError(f"{name} is a {type(value).__name__}")
    for name in TABLES:
        if not all(isinstance(row, dict) for row in getattr(solution, name)):
            raise TypeError(f"{name} has a row that is not a table's")
    if not isinstance(solution.w, np.ndarray) or solution.w.dtype != np.float64:
        raise TypeError("w is not an array of float64")
    checked_model(solution.w, len(solution.w))
    if solution.problem.loss.targets != "quadratic":
        blank = np.zeros((1, len(solution.inputs.feature_names)))
        solution.predict(blank)
