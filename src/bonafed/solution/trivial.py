"""Whether a fitted model is trivial: no better than a constant, in what it predicts or in its own
objective.

    coefficients are zero               every coefficient is 0
    one value predicted                 (regression) all rows get the same prediction
    one class predicted                 all rows get the same class
    balanced accuracy at chance         at most 1/C + .005 of C classes, or far below that of the
                                        plain mean of the losses
    no better than a constant in its own objective
                                        F(best constant) - F(w) <= max(gap, 1e-4 F(best constant))
    worse than the constant             F(w) > F(best constant)

That a constant is optimal is a proof that the question was wrong. So a trivial model comes with the
parameter that is to blame, and the value up to which a model is better (`bonafed.solution.blame`).
The check costs two passes over the rows; the search for the parameter only where it is trivial.

The best constant model has zero coefficients, and the intercept that is best under the stated risk:

    minimise over b:  R( F_1(0, b), ..., F_N(0, b) )

A constant model sees targets only, and of two classes only their shares: each client's share of
positive rows (its targets, for a regression) is all that is read here. The slope of the objective
at b is sum_s q_s F_s'(b) at the worst weights q of b. Halving the interval in which it changes its
sign finds b to the last digits, and q as a mixture of the worst weights on either side. Other steps
go to where the tangents at the ends meet, which is soon a kink of losses that have some, or for
smooth losses to where the secant of the slopes is 0.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bonafed.arrays import Array, Block, Index, each_changed, joined
from bonafed.data.federation import Federation
from bonafed.problem.conic_form import sample_radii
from bonafed.problem.losses import Quadratic, has_log_link
from bonafed.problem.predictors.affine import Linear
from bonafed.problem.problem import Problem
from bonafed.problem.risks.ranks import by_rank
from bonafed.problem.risks.weight_sets import Mean
from bonafed.problem.wasserstein.ball import Near, WassersteinBall, free_space

# what makes a model trivial, and how a sentence says it of the model
TRIVIAL = {
    "coefficients are zero": "is constant",
    "one value predicted": "is constant",
    "one class predicted": "predicts one class for all rows",
    "balanced accuracy at chance": "is no better than chance",
    "no better than a constant in its own objective": "is no better than a constant",
    "worse than the constant": "is worse than a constant",
}
CHANCE = 0.005  # above 1 / (number of classes), a balanced accuracy is still chance
WEAK = 0.05  # up to this much above it, it is compared with that of the plain mean of the losses
FAR = 8.0  # times as much above chance as this model: then the model is at chance
CLOSE = 1e-4  # relative to the constant's objective: less is no gain
LOOSEST = 1e-3  # the same for a gap: a model that is only half solved is judged by this
SAME = 1e-7  # relative: predictions closer than this are the same

# how rows of a rare class count more, in words of Python and of a configuration alike
BALANCED = 'class_weight = "balanced" (of Problem and estimators; in a configuration in [problem])'


class TrivialModelWarning(UserWarning):
    """The model is no better than a constant: it predicts one class or value, its coefficients are
    zero, or its own objective is not below that of a constant.

    The text names the parameter that is to blame, and up to which value a model is better.
    ``Solution.trivial`` has the same as a record.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> import warnings
    >>> X, y = fed.pooled().rows(0)
    >>> hospital = np.repeat(fed.clients, fed.sizes)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     model = bf.RobustClassifier(radius=50.0).fit(X, y, groups=hospital)
    >>> any(issubclass(w.category, bf.TrivialModelWarning) for w in caught)
    True
    """


@dataclass(frozen=True)
class Triviality:
    """Why a model is trivial.

    Attributes
    ----------
    kind : what makes it trivial, such as "one class predicted"
    parameter : of the problem, which is to blame, such as "radius"; None where the data are
    value : that it has, as a number or in words
    threshold : the value up to which (of a tail or a label cost: from which on) a model is not
        trivial; of the parameter "cut" the highest probability of the rarer class. None where the
        parameter has no such value, or it was not computed
    text : all of it in words, and what to do

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> import warnings
    >>> ball = bf.WassersteinBall(radius=50.0)
    >>> problem = bf.Problem(bf.Logistic(), over_samples=ball)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", bf.TrivialModelWarning)
    ...     triviality = bf.solve(problem, fed).trivial
    >>> triviality.parameter, bool(triviality.threshold < 50)
    ('radius', True)
    """

    kind: str
    parameter: str | None
    value: float | str | None
    threshold: float | None
    text: str


@dataclass(frozen=True)
class Finding:
    """What makes a model trivial, in numbers."""

    kind: str  # of `TRIVIAL`
    # of two classes: the share of rows of the larger label among those predicted, and among all
    predicted: float | None = None
    positives: float | None = None

    @property
    def of_coefficients(self) -> bool:
        """Whether the model itself is a constant, and not its predictions only."""
        return self.kind not in ("one class predicted", "balanced accuracy at chance")


def finding(
    problem: Problem,
    fed: Federation,
    w: Array,
    value: float,
    gap: float | None = None,
    plain: Callable[[], float | None] = lambda: None,
) -> Finding | None:
    """What makes the model w of a concrete problem trivial, or None.

    Parameters
    ----------
    problem, fed : as `Problem.at` returns them
    value : the problem's objective at w
    gap : how far above the optimum it may lie, as far as this is proved
    plain : the balanced accuracy of the model with the least mean loss, asked for only where that
        of w is near chance; None where there is nothing to compare with
    """
    targets = problem.loss.targets
    if targets == "quadratic" or not np.isfinite(w).all():
        return None
    predictions = problem.predictions(w, fed)
    counts = None if targets == "real" else _counts(problem, fed, predictions)
    shares = ()
    if counts is not None and len(counts) == 2:  # of the second class among predictions and rows
        shares = [float(part[1] / counts.sum()) for part in (counts.sum(0), counts.sum(1))]
    # whether all rows get the same prediction, up to a small part of the targets' range
    low, high = predictions.min(), predictions.max()
    reach = max(1.0, abs(low), abs(high))
    if targets == "real":
        reach = np.ptp(joined(fed.y))
    if targets != "class" and high - low <= SAME * reach:
        if isinstance(problem.predictor, Linear):
            return Finding("coefficients are zero", *shares)
        return Finding("one value predicted" if counts is None else "one class predicted", *shares)
    # beyond this a constant is so much worse that nothing more of it need be known
    kind, level = None, constant_objective(problem, fed, value / (1 - 2 * LOOSEST))
    if level is not None:
        near = max(min(gap or 0.0, LOOSEST * abs(level)), CLOSE * abs(level))
        if value > level + near:
            kind = "worse than the constant"
        elif not level - value > near:
            kind = "no better than a constant in its own objective"
    if kind is None and counts is not None:
        kind = _of_classes(counts, plain)
    return None if kind is None else Finding(kind, *shares)


def balanced_accuracy(problem: Problem, fed: Federation, w: Array) -> float:
    """Of a concrete problem of classes: the mean over the classes of the shares found."""
    return _balanced(_counts(problem, fed, problem.predictions(w, fed)))


def _counts(problem: Problem, fed: Federation, predictions: Array) -> Array:
    """(C, C) weights of the rows of each class, by the class predicted."""
    several = problem.loss.targets == "class"
    y, classes = joined(fed.y), predictions.shape[-1] if several else 2
    truth, found = (y, predictions.argmax(-1)) if several else (y > 0, predictions > 0)
    weights = None
    if fed.sample_weight is not None:
        weights = fed.shares() * np.repeat(fed.sizes, fed.sizes)
    cells = truth.astype(int) * classes + found.astype(int)
    return np.bincount(cells, weights, classes**2).reshape(classes, classes).astype(float)


def _balanced(counts: Array) -> float:
    seen = counts.sum(1) > 0
    return float((np.diag(counts)[seen] / counts.sum(1)[seen]).mean())


def _of_classes(counts: Array, plain: Callable[[], float | None]) -> str | None:
    """One class for all rows, or classes no better than at random."""
    if (counts.sum(0) > 0).sum() <= 1:
        return "one class predicted"
    classes = int((counts.sum(1) > 0).sum())
    above = _balanced(counts) - 1 / classes
    if classes < 2 or above > WEAK:
        return None
    if above > CHANCE and ((other := plain()) is None or other - 1 / classes < FAR * above):
        return None
    return "balanced accuracy at chance"


def constant_objective(problem: Problem, fed: Federation, enough: float = math.inf) -> float | None:
    """The objective of the best constant of a concrete problem, or of any where all are above
    ``enough``; None where there is nothing to be compared with: it is not known, breaks a
    constraint, or the problem is not convex.
    """
    if not has_constant(problem) or not problem.convex:
        return None
    free = getattr(problem.over_samples, "support", None) is None
    best = best_constant(problem, fed, enough if free else math.inf)
    constant = np.zeros(problem.predictor.dimension(fed.n_features))
    constant[fed.n_features :] = best.intercept
    if problem.constrained and problem.violation(constant, fed) > 1e-6:
        return None
    if free:
        level = best.value + problem.penalty(constant)
    else:  # where rows cannot move as far as the best constant assumes
        level = problem.objective_here(constant, fed)
    return level if math.isfinite(level) else None


STEPS = 80  # at most
End = tuple[float, Array, Array]  # of an interval: slope, worst weights and losses there
FARTHEST = 60.0  # of an intercept: beyond it no loss of classes or counts falls in double precision


@dataclass(frozen=True)
class Constant:
    """The best constant model, and what proves that no other is better."""

    intercept: float
    value: float  # R(F(0, b)); regularisers of the coefficients are 0 there
    losses: Array  # (N,) F_s(0, b)
    weights: Array  # (N,) worst client weights, of slope 0 where there is an intercept


def has_constant(problem: Problem) -> bool:
    """Whether the models of a problem contain constants of one number a row."""
    return isinstance(problem.predictor, Linear) and not isinstance(problem.loss, Quadratic)


def best_constant(problem: Problem, fed: Federation, enough: float = math.inf) -> Constant:
    """The best constant of a concrete problem and its data (see `Problem.at`), or any where all are
    above ``enough``; where all rows are ranked together they are those of one client.
    """
    if problem.over_rows is not None:
        one = replace(problem, over_rows=None, over_samples=problem.over_rows, over_clients=Mean())
        return best_constant(one, _featureless(fed).pooled(), enough)
    table, which = targets_alone(problem, fed)

    def at(b: float) -> End:
        risks, slopes = np.zeros(fed.n_clients), np.zeros(fed.n_clients)
        for block in table:
            here = slice(None) if which is not None else block.index
            found = _risks(problem, b, block)
            risks[here], slopes[here] = found if which is None else (f[which] for f in found)
        q = np.asarray(problem.over_clients.weights(risks), float)
        return float(q @ slopes), q, risks

    if not problem.predictor.intercept:
        _, q, risks = at(0.0)
        return Constant(0.0, float(problem.over_clients.value(risks)), risks, q)
    low, high = -FARTHEST, FARTHEST  # where the best intercept lies
    if problem.loss.targets != "sign":
        rows = np.concatenate([block.y[block.share > 0] for block in table])
        if has_log_link(problem.loss):
            high = float(np.log1p(rows.max()))
        else:
            low, high = float(rows.min()) - 1e-9, float(rows.max()) + 1e-9
    left, right, narrow = at(low), at(high), 1e-17 * (high - low)
    slopes = [left[0], right[0]]  # the secant's; halved at an end that stays (Illinois)
    for k in range(STEPS):
        middle = (low + high) / 2
        if left[0] >= 0 or right[0] <= 0 or not low + narrow < middle < high:
            break
        met = _meeting(low, high, left, right)
        if met in (low, high):  # a kink
            break
        if float(left[1] @ left[2]) + left[0] * (met - low) > enough:  # where the tangents meet
            break
        if secant := bool(k % 3) and problem.loss.smooth:
            met = low + (high - low) * slopes[0] / (slopes[0] - slopes[1])
        if (secant or k % 2) and low < met < high:  # beyond them by rounding alone
            middle = met
        if (here := at(middle))[0] >= 0:
            high, right, slopes = middle, here, [slopes[0] / 2 if secant else left[0], here[0]]
        else:
            low, left, slopes = middle, here, [here[0], slopes[1] / 2 if secant else right[0]]
    # the better end, and weights mixed so that their slope is 0
    values = [float(problem.over_clients.value(end[2])) for end in (left, right)]
    b, end = (low, left) if values[0] <= values[1] else (high, right)
    down, up = max(-left[0], 0.0), max(right[0], 0.0)
    share = up / (up + down) if up + down > 0 else 0.5
    return Constant(b, min(values), end[2], share * left[1] + (1 - share) * right[1])


def _meeting(low: float, high: float, left: End, right: End) -> float:
    """Where the tangents at the ends meet; the end itself where that is one but for rounding."""
    falls, rises = -left[0], right[0]
    lower = float(left[1] @ left[2] - right[1] @ right[2])  # the right end than the left one
    met = low + (lower + rises * (high - low)) / max(falls + rises, 1e-300)
    seen = min(falls, rises) * (high - low) > 1e-12 * abs(float(left[1] @ left[2]))
    for end in (low, high):  # else what is seen is rounding
        if seen and abs(met - end) <= 1e-15 * max(abs(low), abs(high)):
            return end
    return met


def targets_alone(problem: Problem, fed: Federation) -> tuple[list[Block], Index | None]:
    """The clients without features. Of two classes one block with a row a class and its share, once
    for the clients who have the same share and radius, and which of them each client is.
    """
    if problem.loss.targets == "sign" and not by_rank(problem.over_samples):
        plus = fed.by_client(np.add, fed.shares() * (joined(fed.y) > 0))
        facts = plus + 1j * sample_radii(problem, fed.n_clients)
        _, first, which = np.unique(facts, return_index=True, return_inverse=True)
        share, n = np.stack([1 - plus[first], plus[first]], 1), len(first)
        y = np.broadcast_to(np.array([-1.0, 1.0]), (n, 2))
        names = tuple(fed.clients[i] for i in first.tolist())
        return [Block(np.zeros((n, 2, 1)), y, share, first, names)], which
    return _featureless(fed).blocks(), None


def _featureless(fed: Federation) -> Federation:
    """The same targets with a column of zeros."""
    X = each_changed(lambda y: np.zeros((len(y), 1)), fed.y)
    return fed._with(X=X, columns=None, linear=None, feature_names=("",))


def _risks(problem: Problem, b: float, block: Block) -> tuple[Array, Array]:
    """F_s(0, b) and its slope in b of every client of a block without features."""
    ball, radius = problem.over_samples, problem.radii(block)
    # of a constant model only labels and targets that move change the risk
    if isinstance(ball, WassersteinBall) and radius.any() and math.isfinite(ball.label_cost):
        free, w = replace(ball, support=None), np.array([0.0, b])
        cut = free_space(Near(w, block, problem.loss, Linear(True), free, radius))
        return cut.base + radius * cut.level, cut.gradient[:, -1]
    at = np.full(block.y.shape, b)
    losses, slopes = problem.loss.value(at, block.y), problem.loss.gradient(at, block.y)
    weights = problem.row_weights(losses, block)
    return (weights * losses).sum(1), (weights * slopes).sum(1)
