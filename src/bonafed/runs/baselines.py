"""The models that a run is compared with, as special cases of its own problem, and their names.

ERM   mean over clients of mean losses       AFL   worst client weights near the prior
DRFA  largest of the clients' mean losses    WAFL  one Wasserstein ball round the mixture
unconstrained  the mean loss without constraints, all rows in the objective
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from bonafed.arrays import Array
from bonafed.data.federation import Federation
from bonafed.names import short_name
from bonafed.problem.lower_bounds import Duals, Multipliers
from bonafed.problem.problem import Problem
from bonafed.problem.risks.ranks import by_rank
from bonafed.problem.risks.risk import resolve_prior
from bonafed.problem.risks.weight_sets import Mean, Simplex, among
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.runs.evaluation import asked
from bonafed.runs.files import damaged

ROUNDING = 1e-6  # multipliers of a solver may be below 0 by so much


def free(problem: Problem) -> Problem:
    """The problem without its constraints and its privacy, and with all rows in the objective."""
    rows = Mean() if isinstance(problem.over_samples, Mean) else problem.over_samples
    return replace(problem, constraint=None, local_constraint=None, over_samples=rows, privacy=None)


def erm(problem: Problem, fed: Federation) -> tuple[Problem, Federation]:
    """The mean loss of every client, averaged by the prior; of all rows, where they are ranked
    together.
    """
    over = among(problem.over_clients, fed.clients, getattr(problem.privacy, "sizes", None))
    mean = Mean("size" if problem.over_rows is not None else getattr(over, "prior", "uniform"))
    return replace(_of_means(problem), over_clients=mean), fed


def _of_means(problem: Problem) -> Problem:
    """The free problem of every client's mean loss."""
    return replace(free(problem), over_samples=Mean(), over_rows=None)


def afl(problem: Problem, fed: Federation) -> tuple[Problem, Federation]:
    """The mean loss of every client, for the worst client weights: robust to them, and not to noise
    within the clients.
    """
    over = Simplex() if isinstance(problem.over_clients, Mean) else problem.over_clients
    return replace(_of_means(problem), over_clients=over), fed


def drfa(problem: Problem, fed: Federation) -> tuple[Problem, Federation]:
    """The largest mean loss of a client."""
    return replace(_of_means(problem), over_clients=Simplex()), fed


def wafl(problem: Problem, fed: Federation) -> tuple[Problem, Federation]:
    """One ball round the mixture; its radius is the mean of the clients' by the prior. Ranks are
    those of all rows.
    """
    problem = free(problem)
    if by_rank(problem.over_samples):  # rows of different weights have no ranks
        return replace(problem, over_clients=Mean()), fed.pooled()
    prior: Any = getattr(problem.over_clients, "prior", "uniform")
    prior = resolve_prior(prior, fed.sizes.astype(float), fed.clients)
    ball = problem.at(fed)[0].over_samples
    if isinstance(ball, WassersteinBall):
        ball = replace(problem.over_samples, radius=float(prior @ np.asarray(ball.radius)))
    return replace(problem, over_samples=ball, over_clients=Mean()), fed.pooled(prior)


def unconstrained(problem: Problem, fed: Federation) -> tuple[Problem, Federation]:
    """The same problem without constraints; where one class was in the objective, the mean over all
    rows.
    """
    return free(problem), fed


BASELINES: dict[str, Callable[[Problem, Federation], tuple[Problem, Federation]]] = {
    make.__name__: make for make in (erm, afl, drfa, wafl, unconstrained)
}


def called(name: str) -> str:
    """What a baseline is called in tables."""
    return name if name == "unconstrained" else name.upper()


def label(problem: Problem) -> str:
    """What the main model is called beside the baselines: "private", "constrained", or a risk by
    rank.
    """
    if problem.privacy is not None:
        return "private"
    if asked(problem):
        return "constrained"
    if isinstance(problem.over_samples, WassersteinBall):
        return "DRFL"
    name = short_name("risk over samples", problem.over_losses) or "mean"
    return "model" if name == "mean" else name


# ------------------------------------------------------------------------------------ in a folder


def proof_arrays(duals: Duals | Multipliers | None, whole: bool = False) -> dict[str, Array]:
    """The arrays that prove the bound of a model, by name; of points, unless ``whole``, those whose
    cuts have a multiplier. Empty without a proof.
    """
    used = duals.used() if isinstance(duals, Duals) and not whole else duals
    arrays = {} if used is None else vars(used)
    return {name: array for name, array in arrays.items() if array is not None}


def duals_of(arrays: Mapping[str, Array]) -> Duals | Multipliers | None:
    """The inverse of `proof_arrays`."""
    kind: Any = Multipliers if "server" in arrays else Duals
    return kind(**arrays) if arrays else None


def stored(
    models: Mapping[str, Array], proofs: Mapping[str, Mapping[str, Array]]
) -> dict[str, Array]:
    """Models and what proves their bounds as the arrays of one file: "erm", "erm/points", ..."""
    parts = {f"{k}/{name}": a for k, proof in proofs.items() for name, a in proof.items()}
    return {**models, **parts}


def check_proof(
    file: Path,
    arrays: Mapping[str, Array],
    size: int,
    of: type[Duals] | type[Multipliers] = Duals,
    clients: int | None = None,
) -> None:
    """Raise ``FormError`` unless the arrays, if there are any, are those of a proof for models of
    this size and so many clients.
    """
    needed = {field.name for field in fields(of) if field.default is MISSING}
    if arrays and not needed <= {*arrays} <= {field.name for field in fields(of)}:
        raise damaged(file, f"its proof has not the arrays {', '.join(sorted(needed))}")
    dimensions = {"server": 1, "shared": 1, "local": 2, "rows": 1, "split": 1}
    shapes: dict[str, tuple[int, ...]] = {}
    if arrays and "weights" in arrays:
        n = clients or len(np.atleast_1d(arrays["weights"]))
        shapes = {"weights": (n,)}
        if of is Duals and min(arrays["points"].ndim, arrays["multipliers"].ndim) >= 1:
            shapes = Duals(**arrays).shapes(n, size)
    for name, array in arrays.items():
        fits = array.shape == shapes.get(name, array.shape)
        if not fits or array.ndim != dimensions.get(name, array.ndim):
            raise damaged(file, f"{name} has the shape {array.shape}, which does not fit the run")
    if of is Duals and arrays and arrays["multipliers"].min(initial=0.0) < -ROUNDING:
        raise damaged(file, "its proof has multipliers below 0, where a bound takes 0 instead")


def restored(arrays: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, dict[str, Array]]]:
    """The models and the proofs in the arrays of a file."""
    proofs: dict[str, dict[str, Array]] = {}
    for key, array in arrays.items():
        name, part, what = key.partition("/")
        if part:
            proofs.setdefault(name, {})[what] = array
    return {name: array for name, array in arrays.items() if "/" not in name}, proofs
