"""Constraints that a site insists on, held against those that a problem has.

A constraint of a problem satisfies a demand where it is of the same class and in the same place,
its limit is at most the limit that is demanded, and all else of it is the same. So a problem may be
stricter than the site asks, and never looser.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import NamedTuple

import numpy as np

from bonafed.config.constraints import ConstraintSection
from bonafed.problem.constraints.constraint import Slot, Stack, Stated, several
from bonafed.problem.constraints.coupled import Coupled, Global
from bonafed.problem.constraints.group_means import Score

LIMITS = ("level", "limit")  # what bounds the measured number: the smaller, the stricter


class Held(NamedTuple):
    """A constraint that a problem has, and on whose rows.

    Attributes
    ----------
    place : "clients", "together", "server", or "model" where it is about the coefficients only,
        as `ConstraintSection.place` has it
    constraint : as somebody stated it, such as ``DemographicParity("sex", level=0.1)``
    """

    place: str
    constraint: Stated


def held_constraints(local: Stack | Slot, shared: Global | Slot) -> tuple[Held, ...] | None:
    """The constraints in the slots ``local_constraint`` and ``constraint`` of a problem; None where
    they are no longer as somebody stated them, so that they cannot be held against a demand.
    """
    if isinstance(local, Stack) or isinstance(shared, Global):
        return None
    here = [("clients", one) for one in several(local, "local_constraint")]
    there = [
        ("together" if isinstance(one, Coupled) else "server", one)
        for one in several(shared, "constraint")
    ]
    return tuple(
        Held("model" if getattr(one, "of_model", False) else place, one)
        for place, one in (*here, *there)
    )


def satisfies(held: Held, demand: ConstraintSection, site: str | None) -> bool:
    """Whether a constraint of a problem is what a site insists on, at least as strict.

    ``site`` is the name under which the site takes part: of levels by client its own one counts.
    """
    return held.place == demand.place and _is_as_strict(held.constraint, demand.build(), site)


def _is_as_strict(held: object, asked: object, site: str | None) -> bool:
    if type(held) is not type(asked) or not is_dataclass(asked):
        return False
    pairs = [(f.name, getattr(held, f.name), getattr(asked, f.name)) for f in fields(asked)]
    return all(
        _limit(mine, site) <= _limit(theirs, site)
        if name in LIMITS
        else _is_as_strict(mine, theirs, None)  # of Coupled: all clients have one limit
        if name == "constraint"
        else _is_same(name, mine, theirs)
        for name, mine, theirs in pairs
    )


def _limit(value: object, site: str | None) -> float:
    """The limit that binds a site: its own one of a table by client, else the largest of several;
    NaN, which satisfies nothing, where there is none.
    """
    if isinstance(value, Mapping):
        value = [limit for name, limit in value.items() if site in (None, str(name))]
    try:
        limits = np.asarray(value, float)
    except (TypeError, ValueError):
        return math.nan
    return float(limits.max()) if limits.size else math.nan


def _is_same(name: str, mine: object, theirs: object) -> bool:
    """Whether two values of a field are equal; lists and arrays of the same entries are."""
    if name == "measure":  # None is what the class takes by default
        return (mine or Score()) == (theirs or Score())
    if _is_several(mine) and _is_several(theirs):
        return np.array_equal(np.asarray(mine), np.asarray(theirs))
    return _is_several(mine) == _is_several(theirs) and bool(mine == theirs)


def _is_several(value: object) -> bool:
    of_numbers = isinstance(value, np.ndarray)
    return of_numbers or (isinstance(value, Sequence) and not isinstance(value, str))
