"""Warnings about a problem and its data, beside the numbers of a solution.

One is about limits on differences between groups that are tighter than the numbers of rows can
show. A mean over few rows has an error. Where two groups' means are held closer together than 1.6
standard errors of their difference, chance decides what the limit does: the model pays for a
difference that nobody could tell from none. The error is that of groups that are alike, from the
variance v of phi over the rows of both: of probabilities m (1 - m), as of the rate of positives.

    error_k^2 = v_k sum_g a_kg^2 sum_j u_gj^2        u_gj: share of row j in the mean of group g
"""

import math
from collections.abc import Iterator, Sequence
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array, Block, joined
from bonafed.certificates.certificate import Certificate
from bonafed.client_names import ClientName
from bonafed.data.federation import Federation
from bonafed.problem import calibration, lower_bounds
from bonafed.problem.constraints.group_means import OnRows, Probability
from bonafed.problem.metadata import Metadata, masses
from bonafed.problem.predictors.affine import is_affine
from bonafed.problem.problem import Problem
from bonafed.problem.risks.weight_sets import Mean
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.solution.tables import named
from bonafed.solution.trivial import BALANCED

# a client of fewer rows, so much of the weight and so many times its share of the rows is named
FEW, MUCH, TIMES = 10, 0.05, 5.0
RARE = 0.2  # a class of fewer rows is rare
GAIN = 0.05  # of balanced accuracy, which a cut at its share brings where it is named
RARER = "The rarer class has"


class RareClassWarning(UserWarning):
    """The predictions find few rows of a rare class.

    Not where class weights or constraints say how many to find, and not from the fits of a search
    or of a cross-validation, which are judged by their scores.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2))
    >>> y = np.where(X[:, 0] + rng.normal(size=400) > 1.8, "ill", "well")
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     for weight in (None, "balanced"):
    ...         _ = bf.RobustClassifier(class_weight=weight).fit(X, y, groups=np.arange(400) % 4)
    >>> [w.category.__name__ for w in caught]
    ['RareClassWarning']
    """


def notes(
    problem: Problem,
    stated: Federation | Metadata,
    fed: Federation | Metadata,
    w: Array,
    certificate: Certificate,
) -> tuple[str, ...]:
    """Warnings: one-class clients, useless labels, inactive feature robustness, clipped rows,
    constraints without rows or below what rows can show, no bound, tiny clients of much weight,
    what is found of a rare class.

    ``stated`` is the user's federation, ``fed`` what ``problem.at`` makes of it. Of rows that are
    elsewhere there are those warnings that need none.
    """
    known = (*_of_certificate(problem, fed, certificate), *_overweighted(problem, fed, certificate))
    known = (*_of_delta(problem, fed), *known)
    if isinstance(fed, Metadata) or isinstance(stated, Metadata):
        return known
    first, single = (), list[ClientName]()
    if problem.loss.targets == "sign":
        y = joined(fed.y)
        single = _where(fed, fed.by_client(np.maximum, y) == fed.by_client(np.minimum, y))
    if single:
        first = (
            f"Client{'s' * (len(single) > 1)} {named(single)}: all rows have one label; its loss"
            " rewards only that class.",
        )
    rest = (*faint_levels(problem, fed, w), *_cuts(problem, stated, fed, w))
    return (*first, *known, *_of_rows(problem, stated, fed), *rest)


def _of_delta(problem: Problem, fed: Federation | Metadata) -> Iterator[str]:
    """That a delta allows to publish a row; from public numbers of rows."""
    if problem.privacy is None:
        return
    rows = sum(problem.privacy.sizes_of(fed.clients, fed.sizes))
    if problem.privacy.delta * rows >= 1:
        yield (
            f"delta = {problem.privacy.delta:g} is not below 1 / {rows:,}, one over the number of"
            " rows: to publish one row drawn by chance would keep such a budget. State a delta well"
            f" below {1 / rows:.1g}."
        )


def _of_certificate(
    problem: Problem, fed: Federation | Metadata, certificate: Certificate
) -> Iterator[str]:
    """Warnings that need no rows."""
    ball, q = problem.over_samples, certificate.constraint_values
    if isinstance(ball, WassersteinBall) and problem.loss.targets == "sign":
        # a radius pays for flipping every label with probability 1/2, which costs label_cost / 2;
        # where all clients do, the model is trivial (`bonafed.solution.trivial`)
        useless = np.asarray(ball.radius) >= ball.label_cost / 2
        if useless.any() and not useless.all():
            yield (
                f"Client(s) {named(_where(fed, useless))}: radius >= label_cost / 2, the adversary"
                " can make their labels useless."
            )
    if isinstance(ball, WassersteinBall) and ball.support is None and any(ball.radii()):
        # all of the radius goes to labels, where a unit of it buys more (drfl notes, fact 9)
        idle = (certificate.client_labels > 0) & (certificate.client_features <= 0)
        what = "only flips labels"
        if problem.loss.targets == "real":
            what = "moves targets only, and adds the same constant for every model"
        if idle.any():
            yield (
                f"Feature robustness is inactive for {named(_where(fed, idle))}: the adversary"
                f" {what}. Raise label_cost to make it move features."
            )
    if q is not None:
        for word, column in zip(problem.local_constraint.words, np.isnan(q).T, strict=True):
            if column.any():
                names = named(_where(fed, column))
                yield f"No rows for the constraint on {word} at {names}: it asks nothing there."
    bounded = certificate.bound is not None or q is not None or problem.privacy is not None
    if bounded or certificate.failed:  # the outcome says why it failed
        return
    if not is_affine(problem.predictor):
        why = f"{type(problem.predictor).__name__} is not convex in its parameters."
    elif not getattr(ball, "convex", True):
        why = f"{type(ball).__name__} over samples is not convex."
    elif math.isfinite(lower_bounds.region(problem, certificate.value, fed.n_features, None).size):
        why = (
            "the program that proves one was not solved, or nothing bounds the intercept (labels of"
            " one class). Rescale the features, or state radii and strengths of the size of the"
            " data."
        )
    else:
        why = (
            "nothing bounds where an optimal model lies. A regulariser such as L2(1e-3), or a"
            " Wasserstein radius > 0 on all of R^n, would make one provable."
        )
    yield f"No lower bound is stated: {why}"


def _of_rows(problem: Problem, stated: Federation, fed: Federation) -> Iterator[str]:
    """Of rows that clip=True moved onto the support, and clients without the objective's class."""
    over, moved = problem.over_samples, list[str]()
    clipped = getattr(over, "support", None) is not None and fed.X is not stated.X
    for i, name in enumerate(fed.clients if clipped else ()):
        before, after = stated.rows(i)[0], fed.rows(i)[0]
        if after.shape == before.shape:
            size, apart = (np.asarray(abs(X).max(1)).ravel() for X in (after, after - before))
            count = int((apart > 1e-8 * (1 + size)).sum())
            moved += [f"{name}: {count}"] * bool(count)
    if moved:
        yield (
            f"Rows outside the support were clipped to it ({', '.join(moved[:5])}); the result is"
            " about the clipped rows."
        )
    if isinstance(over, Mean) and over.code is not None:
        empty = _where(fed, ~fed.by_client(np.logical_or, joined(fed.y) == over.code))
        if empty:
            yield f"No rows of class {over.label} at {named(empty)}: 0 in the objective."


def _where(fed: Federation | Metadata, chosen: NDArray[np.bool_]) -> list[ClientName]:
    """The clients at which a mask holds."""
    return [fed.clients[i] for i in np.flatnonzero(chosen)]


def _overweighted(
    problem: Problem, fed: Federation | Metadata, certificate: Certificate
) -> Iterator[str]:
    """Clients of a few rows that count for many: under a uniform prior, or as the worst client."""
    q, mass = np.asarray(certificate.weights, float), masses(fed)
    if problem.privacy is not None or len(q) != fed.n_clients or not mass.sum() > 0:
        return
    times = np.divide(q * mass.sum(), mass, out=np.zeros_like(q), where=mass > 0)
    for i in np.flatnonzero((fed.sizes < FEW) & (q >= MUCH) & (times >= TIMES))[:3]:
        rows = int(fed.sizes[i])
        yield (
            f"Client {fed.clients[i]}: {rows} row{'s' * (rows > 1)} with {q[i]:.0%} of the weight,"
            f" {times[i]:.0f} times {'their' if rows > 1 else 'its'} share of all rows. A ball"
            ' round the prior "size", such as ChiSquareBall(0.05, "size"), limits that.'
        )


def _cuts(problem: Problem, stated: Federation, fed: Federation, w: Array) -> Iterator[str]:
    """Of a rare class: what the predictions find of it, and what a cut at its share would find."""
    weighted = stated.sample_weight is not fed.sample_weight  # classes are cut by their weights
    if weighted or problem.loss.targets != "sign" or problem.privacy is not None:
        return
    positive = joined(fed.y) > 0
    given = fed.sample_weight
    weight = np.ones(len(positive)) if given is None else np.concatenate(given)
    share = float(np.average(positive, weights=weight))
    sigmoid = calibration.calibrated(problem, fed, w) if 0 < min(share, 1 - share) < RARE else None
    if sigmoid is None:
        return
    score = problem.predictions(w, fed)
    p, rare, found = sigmoid.probability(score), positive, score > 0
    if share > 0.5:
        p, rare, found, share = 1 - p, ~positive, score <= 0, 1 - share

    rates = [
        [float(np.average(one[rows], weights=weight[rows])) for rows in (rare, ~rare)]
        for one in (found, p >= share)
    ]
    (_, now), (_, then) = pairs = [(recall, (recall + 1 - other) / 2) for recall, other in rates]
    if then > now + GAIN:
        words = [f"{recall:.0%} of its rows (balanced accuracy {b:.2f})" for recall, b in pairs]
        yield (
            f"{RARER} {share:.1%} of the rows. The predictions find {words[0]}; all rows of"
            f" probability {share:.3f} or more would find {words[1]}. For predictions like these"
            f" use {BALANCED}."
        )


ERRORS = 1.6  # standard errors of a difference: chance alone exceeds them in one sample of nine


def faint_levels(problem: Problem, fed: Federation, w: Array) -> Iterator[str]:
    """A note for every constraint whose level is below what its rows can show, at the model w of a
    concrete problem.
    """
    if not problem.constrained:
        return
    blocks = [fed.block(i) for i in range(fed.n_clients)]
    predictions = [problem.predictor.forward(w, block) for block in blocks]

    def each(part: OnRows) -> list[Array]:
        pairs = zip(blocks, predictions, strict=True)
        return [_errors(part, [b], [p], np.ones(1)) for b, p in pairs]

    for part in filter(_compares, problem.local_constraint.parts):
        errors = ERRORS * np.array(each(part))  # (N, p)
        for k in _first_of_pairs(part):
            if len(short := np.flatnonzero(part.level[:, k] < errors[:, k])):
                order = sorted(short, key=lambda i: -errors[i, k])
                at = [f"{errors[i, k]:.2g} at {fed.clients[i]}" for i in order]
                yield (
                    f"{_head(part, k, part.level[short, k])} {named(at)}. Raise it there,"
                    " or state it for all clients together (Coupled)."
                )
    for shared in problem.constraint.coupled.parts:
        part = shared.one
        if not _compares(part):
            continue
        # of its means over all rows, or of the mean of the clients' differences
        if part.sizes is not None:
            together = ERRORS * _errors(part, blocks, predictions, part.sizes)
        else:
            together = ERRORS * np.sqrt(np.nansum((shared.scale * np.array(each(part))) ** 2, 0))
        for k in _first_of_pairs(part):
            if part.level[0, k] < together[k]:
                yield (
                    f"{_head(part, k, part.level[:1, k])} {together[k]:.2g} for all clients"
                    " together. Raise it, or take more rows."
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


def _errors(
    part: OnRows, blocks: Sequence[Block], predictions: Sequence[Array], sizes: Array
) -> Array:
    """(p,) the standard error of each difference over the rows of these blocks; NaN where a group
    has no rows.
    """
    pairs = [*zip(blocks, predictions, strict=True)]
    phi = np.concatenate([part.measure.value(p, block.y)[0] for block, p in pairs])
    mass = [n * block.share[0] for block, n in zip(blocks, sizes, strict=True)]
    groups = (np.stack([group.inside(b)[0] for group in part.groups]) for b in blocks)
    inside = np.concatenate([g * v for g, v in zip(groups, mass, strict=True)], 1)  # (G, rows)
    errors = np.full(len(part.coefficients), math.nan)
    for k, row in enumerate(part.coefficients):
        rows = inside[row != 0]
        if not (rows.sum(1) > 0).all():
            continue
        both = rows.sum(0) / rows.sum()
        mean = float(both @ phi)
        rate = isinstance(part.measure, Probability)
        variance = mean * (1 - mean) if rate else float(both @ (phi - mean) ** 2)
        shares = ((rows / rows.sum(1, keepdims=True)) ** 2).sum(1)
        errors[k] = math.sqrt(variance * float(row[row != 0] ** 2 @ shares))
    return errors
