"""What an answer tells of a site's rows: the slopes of the rows in every sum that leaves, and the
models at which these were asked for.

A message class may say it of its answers in ``tells``, a function of `Answered`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bonafed.algorithms.method import within_bounds
from bonafed.arrays import Array, Block
from bonafed.problem.parts import WHOLE, Parts
from bonafed.problem.problem import Problem
from bonafed.problem.slopes import Sums, curvature_sums, gradient_sums, limit_sums

SLOPES, SQUARES = "slopes", "squares"  # of x_j, and of x_j x_j'


class Told(NamedTuple):
    """A part of an answer.

    Attributes
    ----------
    kind : `SLOPES` or `SQUARES`
    sums : over rows
    models : (K, D) at which they were asked for
    """

    kind: str
    sums: list[Sums]
    models: Array


class Answered(NamedTuple):
    """A message with the site's answer to it, and what the site keeps of the run.

    Attributes
    ----------
    problem : concrete
    block : the rows that the answer is about
    ask, upload : the message and the answer, which is None where it is masked
    before, memory : before and after the message
    """

    problem: Problem
    block: Block
    ask: Any
    upload: Any
    before: Any
    memory: Any


def at(
    one: Answered, w: Array, parts: Parts = WHOLE, curved: bool = False, limits: bool = True
) -> Iterator[Told]:
    """Value and gradient at a model, in parts, and the curvature there."""
    problem, block, w = one.problem, one.block, model_of(one, w)
    sums = gradient_sums(problem, w, block, parts)
    if limits:
        sums += [each for stack in limit_sums(problem, w, block, parts) for each in stack]
    yield Told(SLOPES, sums, w[None])
    if curved:
        yield Told(SQUARES, curvature_sums(problem, w, block), w[None])


def model_of(one: Answered, w: Array) -> Array:
    """A model, or the one where the problem's methods begin."""
    D = one.problem.predictor.dimension(one.block.n_features)
    return w if len(w) else within_bounds(one.problem, np.zeros(D))


def at_model(curved: bool = False, each: bool = False) -> Callable[[Answered], Iterator[Told]]:
    """Of a message about its model ``w``; ``each``: every client has a row of it."""
    return lambda one: at(one, one.ask.w[0] if each else one.ask.w, curved=curved)


def at_models(
    models: Callable[[Answered], Iterable[Array]],
) -> Callable[[Answered], Iterator[Told]]:
    """Of a message whose answer tells what the rows say at some models."""
    return lambda one: (told for w in models(one) for told in at(one, w))
