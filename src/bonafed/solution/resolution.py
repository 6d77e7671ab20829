"""Limits on differences between groups that are tighter than the numbers of rows can show.

A mean over few rows has an error. Where two groups' means are held closer together than 1.6
standard errors of their difference, chance decides what the limit does: the model pays for a
difference that nobody could tell from none. The error is that of groups that are alike, from the
variance v of phi over the rows of both: of probabilities m (1 - m), as of the rate of positives.

    error_k^2 = v_k sum_g a_kg^2 sum_j u_gj^2        u_gj: share of row j in the mean of group g
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeGuard

import numpy as np

from bonafed.arrays import Array, Block
from bonafed.data.federation import Federation
from bonafed.problem.constraints.group_means import OnRows, Probability
from bonafed.problem.problem import Problem

ERRORS = 1.6  # standard errors of a difference: chance alone exceeds them in one sample of nine
NAMED = 5  # clients that a note names


def faint_levels(problem: Problem, fed: Federation, w: Array) -> Iterator[str]:
    """A note for every constraint whose level is below what its rows can show, at the model w of a
    concrete problem.
    """
    if not problem.constrained:
        return
    blocks = [fed.block(i) for i in range(fed.n_clients)]
    predictions = [problem.predictor.forward(w, block) for block in blocks]
    for part in problem.local_constraint.parts:
        if not _compares(part):
            continue
        errors = [
            _errors(part, [b], [p], np.ones(1)) for b, p in zip(blocks, predictions, strict=True)
        ]
        for k in _first_of_pairs(part):
            shown = {name: ERRORS * e[k] for name, e in zip(fed.clients, errors, strict=True)}
            short = [i for i, name in enumerate(fed.clients) if part.level[i, k] < shown[name]]
            if short:
                order = sorted(short, key=lambda i: -shown[fed.clients[i]])
                at = [f"{shown[fed.clients[i]]:.2g} at {fed.clients[i]}" for i in order[:NAMED]]
                more = f" and {len(order) - NAMED} more" * (len(order) > NAMED)
                yield (
                    f"{_head(part, k, part.level[short, k])} {', '.join(at)}{more}. Raise it there,"
                    " or state it for all clients together (Coupled)."
                )
    for shared in problem.constraint.coupled.parts:
        part = shared.one
        if not _compares(part):
            continue
        together = _together(part, shared.scale, blocks, predictions)
        for k in _first_of_pairs(part):
            if part.level[0, k] < ERRORS * together[k]:
                yield (
                    f"{_head(part, k, part.level[:1, k])} {ERRORS * together[k]:.2g} for all"
                    " clients together. Raise it, or take more rows."
                )


def _head(part: OnRows, k: int, levels: Array) -> str:
    low, high = float(levels.min()), float(levels.max())
    level = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    return (
        f"The level {level} on {part.words[k]} is below what so few rows can show, {ERRORS:g}"
        " standard errors of the difference:"
    )


def _compares(part: object) -> TypeGuard[OnRows]:
    """Whether a constraint holds means of groups near each other."""
    return isinstance(part, OnRows) and bool((part.coefficients < 0).any())


def _first_of_pairs(part: OnRows) -> list[int]:
    """One of the two constraints that hold a difference from above and from below."""
    kept: list[int] = []
    for k, row in enumerate(part.coefficients):
        if not any((row == -part.coefficients[other]).all() for other in kept):
            kept.append(k)
    return kept


def _together(
    part: OnRows, scale: Array, blocks: Sequence[Block], predictions: Sequence[Array]
) -> Array:
    """(p,) errors of a constraint on all clients: of its means over all rows, or of the mean of the
    clients' differences.
    """
    if part.sizes is not None:
        return _errors(part, blocks, predictions, part.sizes)
    each = [_errors(part, [b], [p], np.ones(1)) for b, p in zip(blocks, predictions, strict=True)]
    return np.sqrt(np.nansum((scale * np.array(each)) ** 2, 0))


def _errors(
    part: OnRows, blocks: Sequence[Block], predictions: Sequence[Array], sizes: Array
) -> Array:
    """(p,) the standard error of each difference over the rows of these blocks; NaN where a group
    has no rows.
    """
    pairs = [*zip(blocks, predictions, strict=True)]
    phi = np.concatenate([part.measure.value(p, block.y)[0] for block, p in pairs])
    mass = [n * block.share[0] for block, n in zip(blocks, sizes, strict=True)]
    inside = np.concatenate(
        [
            np.stack([group.inside(block)[0] for group in part.groups]) * v
            for block, v in zip(blocks, mass, strict=True)
        ],
        1,
    )  # (G, rows)
    errors = np.full(len(part.coefficients), math.nan)
    for k, row in enumerate(part.coefficients):
        rows = inside[row != 0]
        if not (rows.sum(1) > 0).all():
            continue
        both = rows.sum(0) / rows.sum()
        mean = float(both @ phi)
        variance = float(both @ (phi - mean) ** 2)
        if isinstance(part.measure, Probability):
            variance = mean * (1 - mean)
        shares = ((rows / rows.sum(1, keepdims=True)) ** 2).sum(1)
        errors[k] = math.sqrt(variance * float(row[row != 0] ** 2 @ shares))
    return errors
