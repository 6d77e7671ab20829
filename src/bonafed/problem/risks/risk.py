"""What a risk has to offer: a function of the losses (N,), with its weights.

An uncertainty set Q of weights is the risk  R(z) = max_{q in Q} q'z,  the support function of Q.
Its maximiser is a subgradient, its projection gives its prox (Moreau):  prox_{tR}(v) = v - t
proj_Q(v / t).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from bonafed.arrays import Array, has_truths, is_number
from bonafed.client_names import ClientName, by_position

# one weight for each client: a word, an array (N,), or a mapping from client name to weight
Prior = Literal["uniform", "size"] | Sequence[float] | Array | Mapping[Any, float]
Sizes = Sequence[int] | Array  # rows of each client
Names = Sequence[ClientName] | None


@dataclass(frozen=True)
class Worst:
    """The worst case over a set of weights.

    Attributes
    ----------
    value : max_{q in Q} q'losses as attained by ``weights``, in units of the losses
    weights : (N,) a maximiser
    bound : a number no q in Q exceeds, proved by a dual point; ``bound >= value``
    """

    value: float
    weights: Array
    bound: float


@runtime_checkable
class Risk(Protocol):
    """losses (N,) -> one number, and its weights (a subgradient where the risk is convex)."""

    # The same risk with everything that depends on the clients (a prior) as arrays.
    def at(self, sizes: Sizes, names: Names = None) -> "Risk": ...

    def value(self, losses: Array) -> float: ...

    def weights(self, losses: Array) -> Array: ...


@runtime_checkable
class SupportsProject(Risk, Protocol):
    """A convex set of weights: worst case, membership and Euclidean projection."""

    def worst(self, losses: Array) -> Worst: ...

    def project(self, v: Array) -> Array: ...

    def contains(self, weights: Array, tol: float = 1e-9) -> bool: ...


@runtime_checkable
class SupportsProx(Risk, Protocol):
    """argmin_z step R(z) + ||z - v||^2 / 2 can be computed."""

    def prox(self, v: Array, step: float) -> Array: ...


def prox_by_moreau(risk: SupportsProject, v: Array, step: float) -> Array:
    """prox_{step R}(v) = v - step proj_Q(v / step), for the support function R of a convex set Q;
    step >= 0.
    """
    v = vector(v, "v")
    return v - step * risk.project(v / step) if nonnegative(step) > 0 else v.copy()


def nonnegative(step: float) -> float:
    """``step``, or ``ValueError`` unless it is a number >= 0."""
    if not 0 <= step < math.inf:
        raise ValueError(f"step must be a number >= 0, got {step}. Use a positive step size.")
    return step


def resolve_prior(prior: Prior, sizes: Sizes, names: Names = None) -> Array:
    """The prior as an array (N,) that sums to one.

    Parameters
    ----------
    prior : "uniform" (1/N each), "size" (in proportion to ``sizes``), weights (N,) or a mapping
        from client name
    sizes : (N,) rows of each client
    names : the clients' names, in order; needed for a mapping only

    Raises
    ------
    ValueError
        for an unknown word or name, a wrong length, negative or non-finite weights, or a sum off
        one by more than 1e-9
    """
    n = len(sizes)
    if isinstance(prior, str):
        if prior == "uniform":
            return np.full(n, 1.0 / n)
        if prior == "size":
            counts = vector(sizes, "sizes", n)
            if (counts <= 0).any():
                raise ValueError(
                    f"sizes must be positive, got {counts.min():g}: drop empty clients or use"
                    " 'uniform'."
                )
            return counts / counts.sum()
        raise ValueError(f"prior must be 'uniform', 'size' or {n} weights, got {prior!r}.")
    weights = vector(by_name(prior, names, "prior"), "prior", n)
    if (weights < 0).any():
        raise ValueError(
            f"prior must be >= 0, got {weights.min():g}. A client that shall not count gets"
            " weight 0."
        )
    total = float(weights.sum())
    if abs(total - 1) > 1e-9:
        raise ValueError(f"prior must sum to one, got {total:.12g}: divide it by its sum.")
    return weights / total


def prior_for(prior: Prior, n: int) -> Array:
    """The prior of a risk whose ``at`` may not have been called yet, for n losses."""
    if isinstance(prior, np.ndarray) and len(prior) == n:
        return prior
    if isinstance(prior, str) and prior == "size":
        raise ValueError("prior='size' needs the clients' sizes: call risk.at(sizes) first.")
    return resolve_prior(prior, np.ones(n))


class NotFiniteError(ValueError):
    """Numbers that must be finite and are not."""


def vector(v: object, name: str, n: int | None = None) -> Array:
    """``v`` as a float vector, of length n where one is given; finite."""
    array = np.asarray(v)
    if array.dtype.kind not in "fiu" or has_truths(v):
        raise ValueError(f"{name} must be numbers, got {v!r}.")
    array = array if array.dtype == np.float64 else array.astype(float)
    if array.ndim != 1 or array.size == 0 or (n is not None and array.size != n):
        raise ValueError(
            f"{name} must be a vector of {n or 'one or more'} numbers, got shape {array.shape}."
        )
    if np.count_nonzero(np.isfinite(array)) < array.size:
        raise NotFiniteError(
            f"{name} must be finite, got {array[~np.isfinite(array)][0]} at"
            f" {(~np.isfinite(array)).argmax()}."
        )
    return array


PerClient = float | Sequence[float] | Array | Mapping[Any, float]
Matrix = Sequence[Sequence[float]] | Array


def entries(value: object) -> object:
    """The numbers of a mapping by client name, without the names; anything else as it is."""
    return [*value.values()] if isinstance(value, Mapping) else value


def number(value: object, name: str, hint: str) -> float:
    """``value`` as a finite number >= 0."""
    if not is_number(value) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a number >= 0, got {value!r}. {hint}")
    return float(value)


def by_name(value: object, names: Names, name: str) -> object:
    """``value``; a mapping by client name becomes a list in the clients' order."""
    if not isinstance(value, Mapping):
        return value
    if names is None:
        raise ValueError(
            f"{name} by client name needs exactly one entry for each client, got {list(value)} for"
            " clients that have no names here: call at(sizes, names) first."
        )
    return list(by_position(value, names, name).values())


def numbers(value: object, name: str) -> Array:
    """``value`` as an array of finite numbers; text and truth values are none."""
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        array = np.empty(0, object)
    if array.dtype.kind not in "fiu" or has_truths(value):
        raise ValueError(f"{name} must be numbers, got {value!r}.")
    array = array.astype(float)
    if not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be finite, got {array[~np.isfinite(array)][0]}. Give a number for each"
            " client."
        )
    return array


def check_prior(risk: object) -> None:
    """Raise ``ValueError`` for a prior that is none, no matter who the clients are."""
    prior = getattr(risk, "prior", "uniform")
    if isinstance(prior, str) and prior not in ("uniform", "size"):
        raise ValueError(f"prior must be 'uniform', 'size' or weights by client, got {prior!r}.")
    if not isinstance(prior, str | None) and (numbers(entries(prior), "prior") < 0).any():
        raise ValueError(f"prior must be >= 0, got {prior!r}. A client may have weight 0.")


def per_client(value: PerClient, n: int, names: Names, name: str) -> Array:
    """One number for all, n numbers or a mapping by client name, as n numbers."""
    array = numbers(by_name(value, names, name), name)
    if array.shape not in ((), (n,)):
        raise ValueError(
            f"{name} must be a number or {n} numbers, one per client, got shape {array.shape}."
        )
    return np.broadcast_to(array, (n,)).copy()
