"""What no rows can answer to a method: the claims of its uploads, for a problem.

A mean over rows of a convex loss L of affine predictions, or its worst case over a ball, is a
convex function F of the model (`bonafed.problem.claims`). Besides,

    F >= 0,    F(0) = L(0)                          where L(0) depends on no label,
    F(w) <= max L,    ||F'(w)|| <= max |L'| r       over predictions |p| <= ||w|| r + |b|,
    0 <= F'',    trace F'' <= max L'' sum_j E x_j^2

where r is how long the client has said that its rows are at most. Answers that obey all this may
still be of other rows than the client's: `docs/engines.md` lists what remains possible.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, NamedTuple

import numpy as np

from bonafed.arrays import Array
from bonafed.parameters import Checked
from bonafed.problem import parts as parting
from bonafed.problem.claims import (
    RELATIVE,
    UNIT,
    AllRows,
    Below,
    Claim,
    Either,
    Features,
    Known,
    Number,
    Tangent,
    Told,
    Whole,
)
from bonafed.problem.conic_form import sample_radii
from bonafed.problem.losses import Quadratic
from bonafed.problem.lower_bounds import Surveyed
from bonafed.problem.metadata import Metadata
from bonafed.problem.predictors.affine import Linear, Softmax, is_affine
from bonafed.problem.problem import Problem
from bonafed.problem.rank_levels import AboveThresholds, Ranged, Sliced, Tallied
from bonafed.problem.risks.weight_sets import Mean
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.rounds import LARGEST, Algorithm, arrays_of, record, unreal

OF_SOLVERS = 1e-5  # relative, what solvers leave that find a worst case within a support
ROUNDING = 1e-15  # of a difference, relative to what is subtracted
FAR = 1e50  # numbers of a question beyond which an honest answer may be as large as any number
STEEP = 300.0  # predictions beyond which sums of exponentials may exceed ``LARGEST``
Said = Iterator[Claim]
Claims = Mapping[type, Callable[[int, Any, Any], Iterable[Claim]]]  # of (who, message, upload)
SumClaims = Mapping[type, Callable[[Any, Any, float], Iterable[Claim]]]  # of (message, sums, slack)


def introduced_as(data: Metadata) -> dict[int, Told]:
    """What is known of every client's rows from its introduction."""
    alike = [data.factors is None and each.alike for each in data.introductions]
    both = zip(data.sizes.tolist(), alike, strict=True)
    return {i: Told(float(n), data.n_features, each) for i, (n, each) in enumerate(both)}


class AboutRows(Checked, Algorithm):
    """The base of an algorithm whose uploads are about the rows of a problem."""

    @property
    def claims(self) -> Claims:
        """What uploads say of a client's rows, beside that their numbers are finite."""
        return {}

    @property
    def sum_claims(self) -> SumClaims:
        """What sums of uploads say of all clients' rows, where their parts are masked."""
        return {}

    problem: Problem | None

    @property
    def concrete(self) -> Problem:
        """The concrete problem; ``ValueError`` before there is one."""
        if self.problem is None:
            raise ValueError(
                f"{type(self).__name__} has no problem yet: run it through bonafed.solve(problem,"
                " federation, ...), rounds of a certificate through bonafed.certify."
            )
        return self.problem

    def at_client(self, problem: Problem, data: Any) -> Any:
        """The rounds with the clients' problem."""
        return replace(self, problem=problem)  # type: ignore[type-var]

    def client_step(self, step: Callable[..., Any], *settings: object) -> Callable[..., Any]:
        """A client step of (problem, *settings, memory, message, data, rng) with the problem and
        these settings; the problem need not be there before the step is taken.
        """
        return lambda *arguments: step(self.concrete, *settings, *arguments)

    def _answering(self, answer: Callable[..., Any], *settings: object) -> Callable[..., Any]:
        """A client step without memory, by an answer of (problem, message, data, *settings)."""
        return lambda memory, ask, data, rng: (memory, answer(self.concrete, ask, data, *settings))

    def doubts(self, told: Any, who: int, message: Any, upload: Any) -> tuple[Any, str]:
        return self._weighed(self.grid(type(upload)), self.claims, told, who, message, upload)

    def doubts_of_sum(self, told: Any, message: Any, sums: Any, slack: float) -> tuple[Any, str]:
        said = self.sum_claims.get(type(sums), lambda *_: ())
        claims: Claims = {type(sums): lambda who, ask, up: said(ask, up, slack)}
        return self._weighed(self.grid(type(sums)), claims, told, 0, message, sums)

    def _weighed(self, grid: Any, claims: Claims, told: Any, who: int, ask: Any, up: Any) -> Any:
        """``Algorithm.doubts`` of an upload with these claims."""
        told, w = told or Told(), getattr(ask, "w", None)
        far = any(not np.abs(part).max(initial=0.0) <= FAR for part in arrays_of(ask))
        if words := unreal(up, grid, far or may_overflow(self.concrete, told, w)):
            return told, words
        with np.errstate(all="ignore"):  # of what overflows nothing follows
            for claim in claims.get(type(up), lambda *_: ())(who, ask, up):
                told, words = claim.held(told)
                if words:
                    break
        return told, words


class Sizes(NamedTuple):
    """The sizes of the rows, of a client that has this weight."""

    seen: Surveyed
    prior: float
    signs: bool  # whether targets are -1 and +1

    def held(self, told: Told) -> tuple[Told, str]:
        q, s = self.prior, self.seen
        plus, minus, reach, target = (float(x.sum()) for x in (s.plus, s.minus, s.reach, s.target))
        total, d = float(s.square.sum()), s.square.shape[-1]
        claims: list[Claim] = [
            Features(np.array([d])),
            Number("a share of its rows", np.array([plus, minus]), 0.0, q),
            Number("shares of its rows", plus + minus, q if self.signs else 0.0, q),
            Number("a length of a row", np.array([reach, target])),
            Number("a mean square", s.square),
            Number("a sum of mean squares", total, 0.0, q * reach**2),
        ]
        if told.alike and told.rows is not None:  # the longest row, rounded up, is one of them
            square = q * (reach / 2) ** 2
            claims.append(Number("a square of a length", square, 0.0, told.rows * total))
        if self.signs:
            claims.append(Number("a largest target", target, 1.0, 1.0))
        if (words := first_of(claims, told)) or q <= 0:
            return told, words
        shares = s.plus.sum() / q, s.minus.sum() / q
        own = Surveyed(*shares, s.reach.sum(), s.target.sum(), s.square[0] / q)
        if told.seen is None:
            return replace(told, seen=own), ""
        return told, differs(told.seen, own)


def first_of(claims: Iterable[Claim], told: Told) -> str:
    """What the first of these claims says that is impossible, in words; "" for nothing."""
    return next(filter(None, (claim.held(told)[1] for claim in claims)), "")


def differs(one: Surveyed, other: Surveyed) -> str:
    """Whether a client tells other sizes than before."""
    for name, before in vars(one).items():
        before, now = np.ravel(before), np.ravel(getattr(other, name))
        if before.shape != now.shape or not np.allclose(before, now, 1e3 * RELATIVE, 1e-12):
            return f"other sizes of its rows ({name!r}) than before"
    return ""


class Reached(NamedTuple):
    """A mean loss at a model, and the slopes of its parts, where all rows are as long as was
    told.
    """

    problem: Problem
    w: Array  # (D,)
    value: float
    slopes: Array  # (P, D)
    rounding: float = 0.0

    def held(self, told: Told) -> tuple[Told, str]:
        if told.seen is None:
            return told, ""
        most = _most(self.problem, told.seen, self.w)
        if not max(most.loss, most.slope * most.length) <= LARGEST:
            return told, ""
        lengths, room = np.linalg.norm(self.slopes, axis=-1), 1e-9 + self.rounding
        if self.value > most.loss * (1 + room):
            words = f"a mean loss of {self.value:.6g}, and rows as long as it told have at most"
            return told, f"{words} {most.loss:.6g}"
        if lengths.sum() > most.slope * most.length * (1 + room):
            words = f"slopes of the length {lengths.sum():.6g}, and rows as long as it told have"
            return told, f"{words} at most {most.slope * most.length:.6g}"
        return told, ""


class Bent(NamedTuple):
    """A second derivative of a mean loss, times a weight."""

    problem: Problem
    w: Array
    matrix: Array  # (D, D)
    weight: float  # inf: no limit is known
    steepest: float | None = None  # a row's largest second derivative; None: that of its loss

    def held(self, told: Told) -> tuple[Told, str]:
        matrix, D = self.matrix, len(self.w)
        if matrix.shape != (D, D):
            return told, f"a second derivative of the shape {matrix.shape}"
        scale = float(np.abs(matrix).max(initial=0.0))
        if not np.abs(matrix - matrix.T).max(initial=0.0) <= RELATIVE * scale:
            return told, "a second derivative that is not symmetric"
        try:
            shift = (RELATIVE * max(float(np.trace(matrix)), scale) + 1e-300) * np.eye(D)
            np.linalg.cholesky(matrix + shift)
        except np.linalg.LinAlgError:
            return told, "a second derivative that is negative in some direction"
        if told.seen is None or not math.isfinite(self.weight) or not is_plain(self.problem):
            return told, ""
        most = _most(self.problem, told.seen, self.w)
        one_class = getattr(self.problem.over_samples, "code", None) is not None
        square = float(told.seen.reach) ** 2 if one_class else float(told.seen.square.sum())
        steepest = most.curvature if self.steepest is None else self.steepest
        limit = self.weight * steepest * (square + most.constant)
        return Number("a sum of second derivatives", float(np.trace(matrix)), 0.0, limit).held(told)


# ---- the claims of uploads -----------------------------------------------------------------------


def of_sizes(problem: Problem, prior: float, up: Any) -> Claim:
    """Those of the sizes of rows in any upload that has them."""
    seen = Surveyed(up.plus, up.minus, up.reach, up.target, up.square)
    return Sizes(seen, prior, problem.loss.targets == "sign")


def of_risk(
    problem: Problem, w: Array, risk: Array, gradient: Array | None = None, what: str = "risk"
) -> Said:
    """Those of a client's risk (1,) at a model (D,), and of its slope (1, D) or (D,)."""
    risk, w = np.asarray(risk, float).reshape(-1), np.asarray(w, float).reshape(-1)
    slope = None if gradient is None else np.reshape(gradient, (1, -1))
    name = "mean loss" if what == "loss" else what
    yield from _at_least(problem, name, risk)
    yield from _known(problem, what, w, risk)
    yield Tangent((what, len(w)), name, w, risk, slope, _of_solver(problem), is_convex(problem))
    if not has_ball(problem) and is_plain(problem):
        slopes = np.zeros((0, len(w))) if slope is None else slope
        yield Reached(problem, w, float(risk.sum()), slopes)


def of_cut(problem: Problem, who: int, w: Array, parted: Array | None, up: Any) -> Said:
    """Those of a cut of every part of a client's risk at a model (D,), as of `PartedCut`."""
    parts, w = parting.parts_of(parted), np.reshape(w, -1)
    base, level, fee = up.base[0], float(up.level[0]), up.gradient_level[0]
    count, D = parts.count(problem), len(w)
    if base.shape != (count,) or fee.shape != base.shape or up.gradient[0].shape != (count, D):
        yield Number(f"{base.size} parts of a risk, where {count} were asked for, or a risk", -1.0)
        return
    yield from _at_least(problem, "mean loss", base)
    yield Number("a transport multiplier", level)
    yield Number("minus a transport cost", fee, -math.inf, 0.0, np.abs(fee))
    slope = np.column_stack([up.gradient[0], fee])
    at, off = np.append(w, level), _of_solver(problem)
    if count > 1:
        key, convex = ("parts", *parts, D + 1), is_convex(problem)
        yield Tangent(key, "mean loss", at, base, slope, off, convex)
    risk = np.array([base.sum() + _radius(problem, who) * level])
    if not has_ball(problem):
        yield from of_risk(problem, w, risk, slope[:, :-1].sum(0))
        return
    yield from of_risk(problem, w, risk)
    yield from _joint(problem, at, base.sum(keepdims=True), slope.sum(0, keepdims=True))
    if parts.smooth and parting.has_smooth_part(problem):
        yield from of_risk(problem, w, base[:1], up.gradient[0, :1], "loss")
    if is_plain(problem):
        slopes = slope[:, :-1].sum(0, keepdims=True) if parts.smooth else slope[:, :-1]
        yield Reached(problem, w, float(base.sum()), slopes, off)


def _joint(
    problem: Problem, at: Array, value: Array, slope: Array | None = None, rounding: float = 0.0
) -> Said:
    """Those of what is left of a worst case at a model and a transport multiplier, (D + 1,)."""
    off = _of_solver(problem) + rounding
    yield from _known(problem, "joint", at, value)
    yield Tangent(("joint", len(at)), "risk", at, value, slope, off, is_convex(problem))


def of_certified(problem: Problem, who: int, w: Array, up: Any) -> Said:
    """Those of a risk, a mean loss and a transport multiplier at a model (D,)."""
    risk, loss, level = (float(part[0]) for part in (up.risk, up.loss, up.level))
    yield from of_risk(problem, w, up.risk)
    still = isinstance(problem.over_samples, Mean) and problem.over_samples.code is None
    plain = not isinstance(problem.loss, AboveThresholds | Quadratic)
    if has_ball(problem):
        off = _of_solver(problem)
        yield from of_risk(problem, w, up.loss, what="loss")
        yield Number("a risk", risk, loss, scale=(RELATIVE + off) / RELATIVE * abs(loss))
        if not off:
            rest = risk - _radius(problem, who) * level
            lost = ROUNDING * abs(risk) / max(abs(rest), 1e-300)
            yield from _joint(problem, np.append(w, level), np.array([rest]), rounding=lost)
    elif plain:
        least, most = (risk, risk) if still else (0.0, math.inf)
        yield Number("a mean loss", loss, least, most, abs(risk))


def of_combined(problem: Problem, w: Array, weight: float, beside: Any, up: Any) -> Said:
    """Those of a combination of cuts of a client's weighted risk, and of other functions."""
    if not is_convex(problem):
        return
    slope, off = np.asarray(up.gradient[0]), _of_solver(problem)
    of: dict[Any, Any] = {("risk", len(w)): weight}
    if has_ball(problem):
        of, slope = {("joint", len(w) + 1): weight}, np.append(slope, up.gradient_level[0])
    yield Below({**of, **beside}, float(up.constant[0]), slope, float(up.spread[0]), off)


def of_curvature(
    problem: Problem, w: Array, matrix: Array | None, weight: float, steepest: float | None = None
) -> Said:
    """Those of a second derivative (1, D, D) of a client's mean loss, times a weight; or of a mean
    of its rows' x x' times at most ``steepest``.
    """
    if matrix is not None and is_convex(problem):
        at = np.reshape(w, -1) if len(w) else np.zeros(matrix.shape[-1])
        yield Bent(problem, at, matrix[0], weight, steepest)


def of_means(problem: Problem, weight: float, constant: Array | None, slope: Array | None) -> Said:
    """Those of a minorant of a client's weighted mean loss."""
    if constant is not None and slope is not None:
        of = {("loss" if has_ball(problem) else "risk", np.size(slope)): weight}
        yield Below(of, float(np.sum(constant)), np.reshape(slope, -1))


def of_limits(
    problem: Problem, w: Array, kind: str, parted: Any, values: Any, slopes: Any = None
) -> Said:
    """Those of constraints at a model, "local" or "shared": values (p,) or (p, P) and slopes."""
    if values is None or not np.size(values):
        return
    stack = problem.local_constraint if kind == "local" else problem.constraint.coupled
    at, each, what = np.reshape(w, -1), np.asarray(values)[0], "value of a constraint"
    p, D = len(each), len(at)
    slope = None if slopes is None else np.reshape(slopes, (p, -1, D))
    whole, total = each.reshape(p, -1).sum(1), None if slope is None else slope.sum(1)
    yield Tangent((kind, D), what, at, whole, total, 0.0, stack.convex)
    if each.ndim == 2 and each.shape[1] > 1:
        key = (kind, *parting.parts_of(parted), D)
        slope = None if slope is None else slope.reshape(-1, D)
        yield Tangent(key, what, at, each.reshape(-1), slope, 0.0, stack.convex)


# ---- what is known of a problem ------------------------------------------------------------------


def is_convex(problem: Problem) -> bool:
    """Whether every client's risk is a convex function of the model."""
    return problem.convex and not isinstance(problem.loss, Quadratic)


def is_plain(problem: Problem) -> bool:
    """Whether a client's risk is a mean of its rows' losses, or of those with other labels."""
    ball, model = problem.over_samples, problem.predictor
    still = isinstance(ball, Mean) or (isinstance(ball, WassersteinBall) and ball.support is None)
    of_rows = not isinstance(problem.loss, AboveThresholds | Quadratic)
    return of_rows and still and isinstance(model, Linear | Softmax)


def zero_loss(problem: Problem) -> float | None:
    """The risk of any rows at the model 0, where it is the same for all; None where it is not."""
    loss, plain = problem.loss, isinstance(problem.over_samples, Mean | WassersteinBall)
    plain = plain and is_affine(problem.predictor) and not isinstance(loss, AboveThresholds)
    if not plain or loss.targets not in ("class", "sign"):
        return None
    if loss.targets == "class":
        return math.log(problem.predictor.classes)  # type: ignore[attr-defined]
    both = loss.value(np.zeros(2), np.array([-1.0, 1.0]))
    return float(both[0]) if both[0] == both[1] else None


def may_overflow(problem: Problem, told: Told, w: Array | None) -> bool:
    """Whether honest sums of exponentials at a model may be infinite."""
    loss = problem.loss.loss if isinstance(problem.loss, AboveThresholds) else problem.loss
    bounded = math.isfinite(loss.lipschitz) or getattr(loss, "steepest_curvature", 0.0) < math.inf
    if bounded or isinstance(loss, Quadratic):
        return False
    if w is None or not np.any(w):
        return w is None
    return told.seen is None or not _prediction(problem, told.seen, np.reshape(w, -1)) < STEEP


def _at_least(problem: Problem, what: str, value: Array) -> Said:
    """That a mean of losses is not negative."""
    if not isinstance(problem.loss, AboveThresholds | Quadratic):
        yield Number(f"a {what}", value, 0.0, scale=float(np.abs(value).sum()) * UNIT / RELATIVE)


def _known(problem: Problem, what: str, at: Array, value: Array) -> Said:
    """That the risk at the model 0 is what it is for all rows."""
    if (zero := zero_loss(problem)) is None:
        return
    if getattr(problem.over_samples, "code", None) is not None:  # of whose rows it may have none
        if not at.any():
            yield Either("a mean loss at the model 0", float(value.sum()), (0.0, zero))
        return
    yield Known((what, len(at)), len(at), zero)
    if not at.any():
        yield Number("a mean loss at the model 0", value, zero, zero)


def has_ball(problem: Problem) -> bool:
    """Whether a client's risk is a worst case."""
    ball = problem.over_samples
    return isinstance(ball, WassersteinBall) and any(ball.radii())


def _radius(problem: Problem, who: int) -> float:
    """The Wasserstein radius of a client."""
    ball = problem.over_samples
    if not isinstance(ball, WassersteinBall):
        return 0.0
    radii = np.asarray(ball.radius, float).reshape(-1)
    return float(radii[who if len(radii) > 1 else 0])


def _of_solver(problem: Problem) -> float:
    """What is left to the solvers that find worst cases, relative."""
    ball = problem.over_samples
    exact = not has_ball(problem) or (ball.support is None and problem.loss.targets != "class")
    return 0.0 if exact else OF_SOLVERS


class _Most(NamedTuple):
    """The largest loss, slope and second derivative of a row, its length with what an intercept
    multiplies, and the size of that.
    """

    loss: float
    slope: float
    curvature: float
    length: float
    constant: float


def _prediction(problem: Problem, seen: Surveyed, w: Array) -> float:
    """The largest prediction in size of rows as long as was told."""
    coefficients, offset = problem.predictor.split(w)
    size = float(np.linalg.norm(coefficients)) * float(seen.reach)
    return size + float(np.max(np.abs(offset), initial=0.0))


def _most(problem: Problem, seen: Surveyed, w: Array) -> _Most:
    """The extremes of a row's loss: it is convex in the prediction and in the target, and so
    largest at the ends of both.
    """
    loss, p = problem.loss, _prediction(problem, seen, w)
    constant = float(isinstance(problem.predictor, Linear) and problem.predictor.intercept)
    length = math.hypot(float(seen.reach), constant)
    if loss.targets == "class":
        at_zero = math.log(problem.predictor.classes)  # type: ignore[attr-defined]
        return _Most(at_zero + 2 * p, loss.lipschitz, 1.0, length, constant)
    far = float(seen.target)
    ends = (-1.0, 1.0) if loss.targets == "sign" else (-far, 0.0, far)
    if getattr(loss, "log_link", False):
        ends = (0.0, far)
    at, y = np.tile([-p, p], len(ends)), np.repeat(ends, 2)
    slope = min(float(loss.lipschitz), float(np.abs(loss.gradient(at, y)).max()))
    # of one that has no limit it is at an end; of one that states none nothing is known
    bend = getattr(loss, "steepest_curvature", None)
    if bend is None:
        bend = math.inf
    elif math.isinf(bend):
        bend = float(loss.curvature(at, y).max())
    return _Most(float(loss.value(at, y).max()), slope, bend, length, constant)


def of_lagrangian(problem: Problem, w: Array, matrix: Array | None) -> Said:
    """Those of a second derivative (1, D, D) of risks and constraints, by weights >= 0."""
    stacks = problem.local_constraint, problem.constraint.coupled
    if matrix is not None and (is_convex(problem) and all(stack.convex for stack in stacks)):
        size = matrix.shape[-1]
        yield Bent(problem, np.reshape(w, -1) if len(w) else np.zeros(size), matrix[0], math.inf)


# ---- of several methods --------------------------------------------------------------------------


def surveys(problem: Problem) -> Claims:
    """The claims of a survey."""
    return {Surveyed: lambda who, ask, up: [of_sizes(problem, float(np.sum(ask.prior)), up)]}


def of_weighted(
    problem: Problem, w: Array, risk: Array, slope: Array | None, prior: float, what: str = "risk"
) -> Said:
    """Those of a client's risk (1,), and of its weight times its slope (1, D)."""
    each = None if slope is None or not prior > 0 else np.reshape(slope, -1) / prior
    yield from of_risk(problem, w, risk, each, what)


# What sums over the clients can be, where the answers that were added up are masked: the claims of
# a sum, of which some client sent a wrong part, and nobody can say which one.
#
# With weights q >= 0 that add up to T, and F_s the mean losses of the clients' rows,
#
#     F_q = sum_s q_s F_s    is convex,    0 <= F_q(w) <= T max L,    F_q(0) = T L(0),
#     ||F_q'(w)|| <= T max |L'| r,    0 <= F_q'',    trace F_q'' <= T max L'' r^2,
#
# where r^2 is the sum of the squares of the longest rows. Where the clients tell F_s(w) in the
# clear, the sum is sum_s q_s F_s(w), and no tangent of any F_q lies above such sums elsewhere.
#
# Sums travel as multiples of a step. ``slack`` is what its rounding adds at most: numbers that are
# not far larger are held to their signs only.

FINE = 1e10  # times what rounding adds: numbers as large are held to all of the above
WEIGHTINGS = 12  # of which values and slopes are remembered
SUM = "weighted mean loss of all clients"


class SizesOfAll(NamedTuple):
    """The largest lengths of rows, each as the root of a sum of squares."""

    seen: Surveyed

    def held(self, told: Told) -> tuple[Told, str]:
        words = "" if told.seen is None else differs(told.seen, self.seen)
        return replace(told, seen=self.seen), words


class EachLoss(NamedTuple):
    """The mean losses (N,) of the clients at a model."""

    at: Array  # (D,)
    value: Array  # (N,)
    rounding: float

    def held(self, told: Told) -> tuple[Told, str]:
        key = ("each", len(self.at))
        told, words = Tangent(key, "mean loss", self.at, self.value, None, self.rounding).held(told)
        for of in [of for of, _ in told.touched if of[:2] == ("sum", len(self.at))]:
            mean = np.array([np.array(of[2:]) @ self.value])
            told, odd = Tangent(of, SUM, self.at, mean, None, self.rounding).held(told)
            words = words or odd
        return told, words


class WeightedLoss(NamedTuple):
    """The weighted mean loss of all clients and its slope at a model."""

    weights: Array  # (N,)
    at: Array  # (D,)
    value: float
    slope: Array  # (D,)

    def held(self, told: Told) -> tuple[Told, str]:
        key = ("sum", len(self.at), *self.weights.tolist())
        each = told.known(("each", len(self.at)))
        older = [of for of, _ in told.touched if of[0] == "sum" and of != key][: 1 - WEIGHTINGS]
        told = replace(told, touched=tuple(pair for pair in told.touched if pair[0] not in older))
        if each is not None and told.known(key) is None:
            for at, value, rounding in zip(each.at, each.value, each.rounding, strict=True):
                mean = np.array([self.weights @ value])
                told, _ = Tangent(key, SUM, at, mean, None, float(rounding)).held(told)
        return Tangent(key, SUM, self.at, np.array([self.value]), self.slope[None]).held(told)


def of_survey_sums(
    problem: Problem, ask: parting.SurveySums, up: parting.SurveyedSums, slack: float
) -> Said:
    """Those of the sizes of all clients' rows."""
    total, room = float(np.sum(ask.prior)), slack / RELATIVE
    shares = np.array([up.plus, up.minus])
    yield Number("a share of all rows", shares, 0.0, total, room)
    signs = problem.loss.targets == "sign"
    yield Number("shares of all rows", shares.sum(), total * signs, total, 2 * room)
    yield Number("a sum of squared lengths", np.array([up.reach, up.target]), 0.0, scale=room)
    yield Features(np.array([up.square.shape[-1]]))
    yield Number("a mean square", up.square, 0.0, scale=room)
    most, terms = total * float(up.reach), up.square.size + total
    yield Number("a sum of mean squares", up.square.sum(), 0.0, most, terms * room)
    plus, minus, square = up.plus / total, up.minus / total, up.square / total
    yield SizesOfAll(Surveyed(plus, minus, np.sqrt(up.reach), np.sqrt(up.target), square))


def own_losses(problem: Problem, w: Array, risks: Array) -> tuple[Array, float]:
    """The clients' mean losses (N,) by their risks, which their Wasserstein balls add to, and what
    rounding leaves of them, relative.
    """
    losses = risks - sample_radii(problem, len(risks)) * parting.least_multiplier(problem, w)
    size = float(np.abs(risks).max()) / max(float(np.abs(losses).max()), 1e-300)
    return losses, 100 * ROUNDING * size


def of_each_risk(problem: Problem, w: Array, risks: Array) -> Said:
    """Those of the clients' risks (N,), which they tell in the clear."""
    losses, rounding = own_losses(problem, w, risks)
    yield Number("a mean loss", losses, 0.0, scale=np.abs(risks))
    yield EachLoss(w, losses, rounding)


def of_weighted_sum(
    problem: Problem, w: Array, weights: Array, value: Any, slope: Any, curvature: Any, slack: float
) -> Said:
    """Those of sum_s weights_s F_s at a model, its slope (D,) and its second derivative (D, D)."""
    total = float(weights.sum())
    mean, room = float(value) / total, slack / total / RELATIVE
    yield Number(f"a {SUM}", mean, 0.0, scale=room)
    if not w.any() and (zero := zero_loss(problem)) is not None:
        yield Number(f"a {SUM} at the model 0", mean, zero, zero, room)
    least = min(mean * total, float(np.abs(slope).max(initial=0.0)))
    if least <= FINE * slack * (1 + float(np.abs(w).sum())):
        return
    yield Reached(problem, w, mean, slope[None] / total)
    if is_convex(problem):
        yield WeightedLoss(weights / total, w, mean, slope / total)
        if curvature is not None:
            yield Bent(problem, w, curvature / total, np.inf)


def of_combined_sums(
    problem: Problem, w: Array, weights: Array, risks: Array, up: Any, slack: float
) -> Said:
    """Those of a minorant of sum_s weights_s F_s, from cuts that were combined, where the clients
    have these risks.
    """
    losses, rounding = own_losses(problem, w, risks)
    most, there = float(weights @ losses), float(up.constant + up.gradient @ w)
    size = abs(float(up.constant)) + float(np.abs(up.gradient) @ np.abs(w)) + abs(most)
    room = slack * (1 + float(np.abs(w).sum())) / RELATIVE + size * (1 + rounding / RELATIVE)
    yield Number("a number 'spread'", up.spread, 0.0, scale=slack / RELATIVE)
    yield Number("a number 'size'", up.size, 0.0, scale=slack / RELATIVE)
    yield Number("a bound on all mean losses", there, -np.inf, most, room)


# What no rows can answer where the rows of all clients are ranked together: the claims of counts
# and sums over a client's rows.
#
# With n rows of losses l_i >= 0: n min l <= sum l <= n max l, the sum of losses is convex in the
# model, and the number of rows above a threshold is whole, at most n and falls with the threshold.
# A cut by row weights f is at another model v at most sum_i f_(i) l_(i)(v), both in ascending order
# (the rearrangement inequality), of which tables of f and of the losses at v tell upper ends.

TABLES = 24  # tables and cuts that are remembered


@record
class Counts:
    """How many rows have a loss above each threshold at a model, of which counts are remembered
    where it is given.
    """

    edges: Array  # (..., M)
    counts: Array  # (..., M)
    w: Array | None = None  # (D,)

    def held(self, told: Told) -> tuple[Told, str]:
        if self.counts.shape != self.edges.shape:
            words = f"{self.counts.size} numbers of rows, where {self.edges.size} were asked for"
            return told, words
        edges, counts = self.edges.ravel(), self.counts.ravel()
        before = [each for each in told.ranked if isinstance(each, Counts)]
        for last in before:
            if self.w is not None and last.w is not None and np.array_equal(last.w, self.w):
                edges = np.append(last.edges.ravel(), edges)
                counts = np.append(last.counts.ravel(), counts)
        if not (np.diff(counts[np.argsort(edges, kind="stable")]) <= 0).all():
            return told, "more rows above a larger threshold"
        if self.w is not None:
            others = (each for each in told.ranked if not isinstance(each, Counts))
            told = replace(told, ranked=(*others, self)[-TABLES:])
        most = np.inf if told.rows is None else told.rows
        whole = Whole("a number of rows", self.counts), Number("a number", self.counts, 0.0, most)
        return told, first_of(whole, told)


@record
class Binned:
    """How many rows have losses between thresholds at a model; ``high`` is the largest loss."""

    w: Array  # (D,), zeros where it is empty
    edges: Array  # (M,), ascending
    above: Array  # (M,) rows above each
    high: float
    rows: Array = field(default_factory=lambda: np.zeros(0))  # (M + 1,) of every bin

    @property
    def ends(self) -> Array:
        """(M + 1,) what no loss of a bin is above."""
        return np.minimum(np.append(self.edges, self.high), self.high)

    def held(self, told: Told) -> tuple[Told, str]:
        if told.rows is None or (self.edges[1:] < self.edges[:-1]).any():
            return told, ""
        rows = -np.diff(np.concatenate([[told.rows], self.above, [0.0]]))
        told = replace(told, ranked=(*told.ranked, replace(self, rows=rows))[-TABLES:])
        cuts = [cut for cut in told.ranked if isinstance(cut, RankCut)]
        return told, next(filter(None, (cut.above(told.ranked[-1]) for cut in cuts)), "")


@record
class RankCut:
    """A cut of the rows' losses at a model by weights that are read off tables."""

    w: Array  # (D,)
    value: float
    slope: Array  # (D,)
    tables: tuple[tuple[Array, Array], ...]  # points (D,) and the weights (M + 1,) of their bins
    weighed: tuple[tuple[Array, Array], ...] = ()  # of every table weights, and rows that have them

    def held(self, told: Told) -> tuple[Told, str]:
        known = [table for table in told.ranked if isinstance(table, Binned)]
        weighed = []
        for point, weights in self.tables:
            same = (table for table in known if np.array_equal(table.w, point))
            fits = [table for table in same if len(table.rows) <= len(weights)]
            if not fits:  # a table that nobody remembers
                return told, ""
            weighed.append((weights[: len(fits[-1].rows)], fits[-1].rows))
        cut = replace(self, tables=(), weighed=tuple(weighed))
        words = next(filter(None, (cut.above(table) for table in known)), "")
        return replace(told, ranked=(*told.ranked, cut)[-TABLES:]), words

    def above(self, table: Binned) -> str:
        """Whether the cut is above all that its weights can make of the losses in a table."""
        most = sum(_largest(*one, table.ends, table.rows) for one in self.weighed)
        step = table.w - self.w
        here, size = self.value + float(self.slope @ step), float(np.abs(self.slope) @ np.abs(step))
        if here - most <= RELATIVE * (abs(self.value) + size + most):
            return ""
        return f"a cut of {here:.6g} of what its own counts of rows show to be at most {most:.6g}"


def _largest(weights: Array, of: Array, ends: Array, rows: Array) -> float:
    """The largest sum of weights times numbers, each for so many rows."""
    one, other = np.argsort(weights, kind="stable"), np.argsort(ends, kind="stable")
    first, second = np.cumsum(of[one]), np.cumsum(rows[other])
    at = np.unique(np.concatenate([[0.0], first, second]))
    at = at[at <= min(first[-1], second[-1])]
    middle = (at[1:] + at[:-1]) / 2
    heavy = weights[one][np.searchsorted(first, middle)]
    return float((heavy * ends[other][np.searchsorted(second, middle)]) @ np.diff(at))


def of_losses(
    problem: Problem, w: Array, rows: float, total: Any, largest: Any, smallest: Any = None
) -> Said:
    """Those of the losses of so many rows at a model, zeros where it is empty."""
    total, largest = float(np.sum(total)), float(np.sum(largest))
    least = 0.0 if smallest is None else -float(np.sum(smallest))
    zero = zero_loss(problem) if not np.any(w) else None
    if smallest is not None:
        yield Number("a smallest loss", least, zero or 0.0, largest if zero is None else zero)
    yield Number("a largest loss", largest, zero or 0.0, np.inf if zero is None else zero)
    yield Number("a sum of losses", total, rows * least, rows * largest)
    if len(w):
        yield from of_sum(problem, w, total, None, rows)


def of_sum(
    problem: Problem, w: Array, total: Any, slope: Array | None, rows: float | None = None
) -> Said:
    """Those of the sum of the losses of all rows at a model, and of its slope."""
    key, total = ("sum", len(w)), np.reshape(np.asarray(total, float), 1)
    yield Number("a sum of losses", total)
    if rows is not None and (zero := zero_loss(problem)) is not None:
        yield Known(key, len(w), rows * zero)
    yield Tangent(key, "sum of losses", w, total, None if slope is None else slope.reshape(1, -1))


def of_range(problem: Problem, w: Array, up: Any) -> Said:
    """Those of the range of losses."""
    zero = zero_loss(problem) if not np.any(w) else None
    low, high = -float(up.smallest[0]), float(up.largest[0])
    yield Number("a smallest loss", low, zero or 0.0, high if zero is None else zero)
    if zero is not None:
        yield Number("a largest loss", high, zero, zero)


def ranks(problem: Problem) -> Claims:
    """The claims of the uploads of cuts by rank."""

    def ranged(who: int, ask: Any, up: Ranged) -> Said:
        yield AllRows(float(up.rows[0]))
        yield from of_range(problem, ask.w, up)
        yield Whole("a number of coefficients", up.width)

    def tallied(who: int, ask: Any, up: Tallied) -> Said:
        yield from of_range(problem, ask.w, up)
        yield Counts(ask.edges, up.above[0])
        beyond = ask.edges >= float(up.largest[0])
        yield Number("a number of rows above the largest loss", up.above[0][beyond], 0.0, 0.0)
        yield Binned(ask.w, ask.edges, up.above[0], float(up.largest[0]))

    def sliced(who: int, ask: Any, up: Sliced) -> Said:
        yield Number("a weighted sum of losses", up.value)
        yield RankCut(ask.w, float(up.value[0]), up.gradient[0], ((ask.w, ask.weights),))
        yield from of_lagrangian(problem, ask.w, up.hessian)
        yield from of_lagrangian(problem, ask.w, up.spread)

    return {Ranged: ranged, Tallied: tallied, Sliced: sliced}
