"""Give an algorithm its problem and the caller's settings, or say why not and what to use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bonafed.algorithms.alternatives import check_requirements
from bonafed.algorithms.federated.bundle.bundle import over_sites
from bonafed.algorithms.federated.bundle.masked_bundle import masked
from bonafed.algorithms.method import Method, settings_of
from bonafed.algorithms.requirements import Setting
from bonafed.arrays import Array, is_number
from bonafed.data.federation import Federation
from bonafed.engines.engine import Engine
from bonafed.engines.network import Network
from bonafed.privacy.secure_sum.option import option_of
from bonafed.problem.metadata import Metadata
from bonafed.problem.problem import Problem


def setting_of(fed: Federation | Metadata, engine: Engine | None = None) -> Setting:
    """What algorithms may know of the data and the engine before they run."""
    asynchronous = bool(getattr(engine, "asynchronous", False))
    return Setting(fed.n_clients, fed.alike, asynchronous, has_secure_sum(engine))


def has_secure_sum(engine: object) -> bool:
    """Whether the server of an engine reads sums over the clients only."""
    return option_of(getattr(engine, "secure_sum", None)) is not None


def needs_secure_sum(problem: Problem) -> bool:
    """Whether the guarantee of a problem is for anyone who sees the clients' sums only, so that
    their single answers must be secret.
    """
    return problem.privacy is not None and problem.privacy.view == "sum"


def configure(
    algorithm: Method,
    problem: Problem,
    fed: Federation | Metadata,
    tol: float | None = None,
    atol: float | None = None,
    max_rounds: int | None = None,
    start: Array | None = None,
    engine: Engine | None = None,
) -> Any:
    """The algorithm with the concrete problem and the caller's overrides; in its place what it is
    where the engine has a secure sum (``MaskedBundle`` for ``Bundle``), or where clients are sites
    (``Bundle(metric="secant")``).

    Raises
    ------
    RefusedError
        where the algorithm does not take the problem, with what would do
    ValueError, TypeError
        for settings out of range, and settings that the algorithm does not have
    """
    _check_method(algorithm)
    overrides = {"tol": tol, "atol": atol, "max_rounds": max_rounds, "start": start}
    overrides = {name: value for name, value in overrides.items() if value is not None}
    known = settings_of(algorithm)
    if unknown := [name for name in overrides if name not in known]:
        raise TypeError(f"{type(algorithm).__name__} takes no {', '.join(unknown)}: leave it out.")
    settings = known | overrides
    _check_numbers(settings)
    if settings.get("start") is not None:
        checked = _checked_start(settings["start"], problem.predictor.dimension(fed.n_features))
        overrides |= {"start": checked} if start is not None else {}
    check_requirements(algorithm, problem, setting_of(fed, engine))
    if needs_secure_sum(problem):
        _check_secret(engine)
    if has_secure_sum(engine):
        algorithm = masked(algorithm)
    elif isinstance(engine, Network):
        algorithm = over_sites(algorithm)
    algorithm.check_problem(problem, fed)
    return replace(algorithm, problem=problem, **overrides)  # type: ignore[type-var]


def _check_secret(engine: Engine | None) -> None:
    """Raise where the server of this engine sees single answers. In one process there is none."""
    if isinstance(engine, Network) and not has_secure_sum(engine):
        raise ValueError(
            f'Budget(view="sum") needs sums in which single answers are secret, and the server of'
            f" {type(engine).__name__} sees each: give the engine a secure sum, or take"
            ' view="answers".'
        )


def _check_method(algorithm: object) -> None:
    """Raise ``TypeError`` unless ``solve`` can run the algorithm."""
    name = type(algorithm).__name__
    if isinstance(algorithm, Method):
        if not is_dataclass(algorithm) or "problem" not in settings_of(algorithm):
            raise TypeError(
                f"{name} must be a dataclass with a field for the problem: decorate the class with"
                " @dataclass(frozen=True) and write problem: Problem | None = None in it."
            )
        if type(algorithm).answer is Method.answer:
            raise TypeError(
                f"{name} must define answer(state, concluded), which returns Answer(w)."
            )
        return
    text = f"algorithm must be a federated one, such as Bundle() or AsyncDRO(), got {algorithm!r}."
    if isinstance(algorithm, type):
        text += f" Give a value: {algorithm.__name__}()."
    elif callable(getattr(type(algorithm), "solve", None)):
        text += f" For a reference on pooled rows call {name}().solve(problem, fed)."
    else:
        text += " A class of your own derives from bonafed.extending.Method."
    raise TypeError(text)


def _check_numbers(settings: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for tolerances and caps out of range."""
    for name, least in (("tol", 0), ("atol", 0), ("max_rounds", 1)):
        value = settings.get(name)
        if value is not None and not (is_number(value) and value >= least):
            raise ValueError(f"{name} must be >= {least}, got {value!r}.")
        if name == "max_rounds" and value is not None and value != math.inf and value != int(value):
            raise ValueError(f"max_rounds must be a whole number, got {value}.")


def _checked_start(start: ArrayLike, D: int) -> Array:
    """The first model as an array (D,), or ``ValueError``."""
    array = np.asarray(start)
    array = array.astype(float) if array.dtype.kind in "fiu" else array
    if array.shape != (D,) or array.dtype != float or not np.isfinite(array).all():
        raise ValueError(f"start must be {D} finite numbers, got shape {array.shape}.")
    return array
