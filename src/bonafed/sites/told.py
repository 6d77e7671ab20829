"""What the answers of a run tell of a site's rows, by message (`bonafed.algorithms.method`).

No rule can judge the answer to a message that is not listed here and that does not say in ``tells``
what its answers tell: such as a model where a client's own solver stops, as of `ProximalAL`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bonafed.algorithms.comparators.afl import Mix
from bonafed.algorithms.federated.async_dro import Meet, Visit
from bonafed.algorithms.federated.bundle.async_bundle import EvaluateAt, EvaluateFirst
from bonafed.algorithms.federated.bundle.bundle import Evaluate
from bonafed.algorithms.federated.bundle.masked_bundle import Blend, Compare
from bonafed.algorithms.federated.interior_point import Expand
from bonafed.algorithms.federated.linearisation import Linearise
from bonafed.algorithms.federated.proximal_al.client import Settle
from bonafed.algorithms.method import SLOPES, SQUARES, Answered, Told, at, at_model, model_of
from bonafed.arrays import Array
from bonafed.certificates.constrained import Weigh, WeighAlong
from bonafed.certificates.duality import Certify, CertifySums
from bonafed.certificates.kkt import Differentiate
from bonafed.problem.lower_bounds import Survey
from bonafed.problem.parts import may_flip, parts_of
from bonafed.problem.problem import Problem
from bonafed.problem.secure_sums import SurveySums, sends_curvature
from bonafed.problem.slopes import (
    Sums,
    combined,
    curvature_sums,
    gradient_sums,
    limit_sums,
    locked_sums,
    metric_sums,
    shifted_sums,
    size_sums,
)
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.rounds import Algorithm, Conclude


def telling(kind: type) -> Callable[[Answered], Iterator[Told]] | None:
    """What the answers to messages of a class tell of the rows; None where nothing describes it."""
    return TOLD.get(kind, getattr(kind, "tells", None))


def told_by(answered: Answered) -> list[Told]:
    """What an answer tells of the rows, as far as that is known: see `unknown`."""
    how = telling(type(answered.ask))
    ranked = answered.problem.over_rows is not None
    return [] if how is None or ranked else [*how(answered)]


def unknown(algorithm: Algorithm, problem: Problem, message: Any = None) -> str:
    """What a method, or a message of it, may tell of rows that nothing here describes, in words; ""
    where all is described.
    """
    name = type(algorithm).__name__
    if odd := [kind.__name__ for kind in algorithm.on_client if not telling(kind)]:
        return f"an answer to {odd[0]} of {name}"
    if problem.over_rows is not None:
        return "where the losses of rows stand among those of all"
    ball = problem.over_samples
    if may_flip(problem):
        return "the multiplier of a ball that flips labels, which is one person's margin"
    if isinstance(ball, WassersteinBall) and ball.support is not None and any(ball.radii()):
        return "where rows move in the worst distribution on a support"
    if getattr(algorithm, "sample", None) is not None:
        return f"the sample of rows that {name}(sample=...) draws"
    if getattr(algorithm, "local_steps", 1) > 1:
        return f"the models between the local steps of {name}"
    if isinstance(message, Certify) and not message.rows is message.split is None:
        return "a certificate by multipliers of rows"
    return ""


def _sizes(one: Answered) -> Iterator[Told]:
    yield Told(SQUARES, size_sums(one.block), _no_models(one))


def _no_models(one: Answered) -> Array:
    return np.zeros((0, one.problem.predictor.dimension(one.block.n_features)))


def _evaluate(one: Answered) -> Iterator[Told]:
    ask = one.ask
    yield from at(one, ask.w, parts_of(ask.parts))
    if ask.weights is not None and ask.bend:
        sums = metric_sums(one.problem, ask.w, one.block, ask.bend == "secant")
        yield Told(SQUARES, sums, ask.w[None])
    if ask.weights is not None and ask.pair is not None:
        yield _shifted(one, ask.pair[0], ask.pair[1] - ask.pair[0])


def _shifted(one: Answered, start: Array, change: Array) -> Told:
    models = np.stack([start, start + change])
    return Told(SLOPES, shifted_sums(one.problem, start, change, one.block), models)


def _first(one: Answered) -> Iterator[Told]:
    start = one.ask.start
    yield from _sizes(one)
    yield from _async(one, np.zeros(0) if start is None else start)


def _async(one: Answered, w: Array | None = None) -> Iterator[Told]:
    parts = parts_of(one.ask.parts)
    second = _no_models(one).shape[1] <= one.ask.second_order
    model = one.ask.w[0] if w is None else w
    yield from at(one, model, parts._replace(smooth=parts.smooth * second), bool(parts.smooth))


def _meet(one: Answered) -> Iterator[Told]:
    yield from _sizes(one)
    yield from at(one, np.zeros(0) if one.ask.w is None else one.ask.w[0])


def _certify(one: Answered) -> Iterator[Told]:
    """The risk at the model, and one combination of the cuts at the points."""
    ask, problem, block, parts = one.ask, one.problem, one.block, parts_of(one.ask.parts)
    yield from at(one, ask.w)
    terms = list[tuple[Array, Sums]]()
    for k, point in enumerate(ask.points):
        mu = np.reshape(ask.multipliers[0, k], -1)
        if mu.any():
            sums = gradient_sums(problem, point, block, parts)
            terms += zip([mu[:1], mu[1:]] if len(sums) > 1 else [mu], sums, strict=True)
        if ask.local is not None and ask.shared is not None:
            each = limit_sums(problem, point, block, parts)
            for mine, stack in zip((ask.local[0, k], ask.shared[k]), each, strict=True):
                terms += zip(mine, stack, strict=True)
    if ask.pair is not None and ask.weights is not None:
        start, end = ask.pair
        moved = _shifted(one, start, end - start)
        terms.append((np.atleast_1d(ask.weights[0]), moved.sums[0]))
        yield Told(SLOPES, [], moved.models)
    yield Told(SLOPES, combined(terms), ask.points)


def _certify_sums(one: Answered) -> Iterator[Told]:
    """The risk at the model, and this site's part of one combination of all sites' cuts."""
    ask, mine = one.ask, int(one.block.index[0])
    yield from at(one, ask.w)
    terms = list[tuple[Array, Sums]]()
    for point, multipliers in zip(ask.points, ask.multipliers, strict=True):
        [sums] = gradient_sums(one.problem, point, one.block)
        terms.append((multipliers[mine : mine + 1], sums))
    yield Told(SLOPES, combined(terms), ask.points)


def _expand(one: Answered) -> Iterator[Told]:
    """All at the model, and one combination of the curvatures of risk and constraints there."""
    ask, problem, block = one.ask, one.problem, one.block
    w = model_of(one, ask.w)
    yield from at(one, w)
    each = np.concatenate([ask.weight * ask.prior[:1], ask.local[0], ask.shared])
    sums = curvature_sums(problem, w, block)
    yield Told(SQUARES, combined([*zip(each[:, None], sums, strict=True)]), w[None])


def _blend(one: Answered) -> Iterator[Told]:
    yield from at(one, one.ask.w, curved=sends_curvature(one.problem, len(one.ask.w)))


def _weigh(one: Answered) -> Iterator[Told]:
    """At the model, a minorant of the Lagrangian by shifted slopes, and the curvature of the rows
    whose slopes the shift has led to the end of their domain, and of the others.
    """
    ask, curved = one.ask, one.problem.loss.smooth
    yield from at(one, ask.w, curved=curved)
    yield from at(one, np.zeros_like(ask.w), limits=False)  # the size of the objective's gradient
    shifted = _shifted(one, ask.w, ask.shift)
    yield shifted
    if not ask.shift.any():
        return
    yield from at(one, ask.w + ask.shift)  # of constraints
    ended = locked_sums(one.problem, ask.w, ask.shift, one.block)
    yield Told(SQUARES, ended, shifted.models)


TOLD: dict[type, Callable[[Answered], Iterator[Told]]] = {
    Survey: _sizes,
    Evaluate: _evaluate,
    EvaluateFirst: _first,
    EvaluateAt: _async,
    Certify: _certify,
    SurveySums: _sizes,
    Compare: at_model(),
    Blend: _blend,
    CertifySums: _certify_sums,
    Differentiate: at_model(),
    Weigh: _weigh,
    WeighAlong: _weigh,
    Expand: _expand,
    Linearise: at_model(),
    Visit: at_model(each=True),
    Meet: _meet,
    Mix: at_model(),
    Settle: at_model(curved=True),
    Conclude: lambda one: iter(()),  # what a site keeps of answers that it gave
}
