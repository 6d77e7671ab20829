"""Checks of a user's own functions against themselves, before they carry a run and its proof.

Who states a function together with its derivative can forget a term, and a bound proved with it is
then a bound of another problem. So at points drawn at random a stated derivative is held against
central differences of what it is the derivative of, in one random direction,

    <c'(w), v>  ~  (c(w + t v) - c(w - t v)) / 2t,    c''(w) v  ~  (c'(w + t v) - c'(w - t v)) / 2t

and what is claimed of the function against samples: convexity as c(u) >= c(w) + <c'(w), u - w>, a
loss's Lipschitz constant, pieces and floor, a regulariser's prox and conjugate, that no weights of
a set exceed its worst ones. The tolerance is what two lengths t differ by, which covers rounding
and kinks between the points. A derivative is refused only where it is wrong at several points next
to each other, so kinks at a point do no harm. What cannot be evaluated at a point is not checked
there. Samples refute and never prove: a bound on such functions holds as declared.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array, Block, stream
from bonafed.data.federation import Federation
from bonafed.data.row_errors import RowError, without_values
from bonafed.problem.client_means import hessians
from bonafed.problem.constraints.constraint import Point, Stack
from bonafed.problem.constraints.custom import FunctionConstraint
from bonafed.problem.constraints.group_means import Shared
from bonafed.problem.losses import growth
from bonafed.problem.predictors.affine import is_affine
from bonafed.problem.problem import Problem
from bonafed.problem.risks.weight_sets import OwnSet

STEPS = (1e-3, 1e-5)  # lengths of the two differences, in units of the model
SLACK = 1e-5  # relative to the terms that a derivative is a sum of: own functions may round
NEAR = 3  # points next to each other at which a derivative must be wrong
ROWS = 64  # of every client, at which an own loss is evaluated
SMALL = 500  # coefficients up to which second derivatives are compared


def is_own(part: object) -> bool:
    """Whether a part of a problem is a function, or a class, of the user."""
    inner = part.one if isinstance(part, Shared) else part
    own = isinstance(inner, FunctionConstraint | OwnSet)
    return own or type(inner).__module__.partition(".")[0] != "bonafed"


def declared(problem: Problem) -> tuple[str, ...]:
    """What a concrete problem states by functions of the user's own, in words: a bound on its
    optimum stands on what is declared of them.
    """
    slots = {"loss": problem.loss, "regulariser": problem.regulariser}
    slots |= {"risk over samples": problem.over_samples, "risk over clients": problem.over_clients}
    words = [f"the {name} {type(part).__name__}" for name, part in slots.items() if is_own(part)]
    glob = problem.constraint
    parts = [*problem.local_constraint.parts, *glob.held.parts, *glob.coupled.parts]
    return (*words, *dict.fromkeys(word for one in parts if is_own(one) for word in one.words))


def check_own(problem: Problem, data: Federation) -> None:
    """Raise ``ValueError`` where a concrete problem's own functions contradict each other.

    ``data`` are the coded rows; a few evaluations for every client.
    """
    glob = problem.constraint
    stacks = problem.local_constraint, glob.coupled, glob.held
    local, coupled, held = ([part for part in one.parts if is_own(part)] for one in stacks)
    with np.errstate(all="ignore"), without_values(problem.privacy is not None):
        if is_own(problem.regulariser):
            _check_regulariser(problem.regulariser, data.n_features)
        if is_own(problem.over_clients):
            _check_weights(problem.over_clients, data.n_clients)
        for part in held:
            _check_constraint(problem, part, glob.block, "the server's constraint")
        for i, name in enumerate(data.clients):
            if not (local or coupled or is_own(problem.loss)):
                break
            block = data.block(i)
            if is_own(problem.loss):
                _check_loss(problem, block, f"client {name!r}")
            for part in (*local, *coupled):
                _check_constraint(problem, part, block, f"client {name!r}")


# ---- derivatives


def _differ(
    stated: Array, before: Callable[[float], Array], terms: Array, noise: Array
) -> tuple[NDArray[np.bool_], Array]:
    """Where a derivative along a direction differs from central differences, and these.

    ``before(t)`` is the function at w + t v, ``terms`` the size of what ``stated`` is a sum of,
    ``noise`` that of the function.
    """
    far, near = ((before(t) - before(-t)) / (2 * t) for t in STEPS)
    room = 2 * np.abs(far - near) + SLACK * terms + 8 * np.finfo(float).eps * noise / STEPS[1]
    return (np.abs(stated - near) > room) & np.isfinite(room) & np.isfinite(near), near


@dataclass(frozen=True)
class _Own:
    """An own constraint on one owner's rows, at a model: None where it cannot be evaluated."""

    problem: Problem
    part: Any
    block: Block

    def at(self, w: Array) -> tuple[Array, Array] | None:
        """Values (p,) and Jacobian (p, D)."""
        point = Point(self.problem, w, self.block)
        try:
            both = self.part.values(point)[0], self.part.jacobian(point)[0]
        except (ValueError, ArithmeticError):
            return None
        return both if all(np.isfinite(each).all() for each in both) else None

    def hessian(self, w: Array, multipliers: Array) -> Array | None:
        """(D, D) of <multipliers, c>; None without second derivatives."""
        if getattr(self.part, "hessian", self.part) is None or len(w) > SMALL:
            return None
        terms = [(Stack((self.part,)), multipliers[None])]
        return hessians(Point(self.problem, w, self.block), None, terms, together=True)[0]

    def wrong(self, w: Array, v: Array, mu: Array) -> tuple[str, str, str] | None:
        """A derivative that is wrong along v: what is wrong, the two numbers, and what to do."""
        here = self.at(w)
        steps = [t for step in STEPS for t in (step, -step)]
        ends = {t: end for t in steps if (end := self.at(w + t * v)) is not None}
        if here is None or len(ends) < len(steps):
            return None
        values, jacobian = here
        stated, terms = jacobian @ v, np.abs(jacobian) @ np.abs(v)
        odd, near = _differ(stated, lambda t: ends[t][0], terms, np.abs(values))
        if odd.any():
            k = int(odd.argmax())
            what = f"the Jacobian of {self.part.words[k]} is not the derivative of its value"
            given = f"along a direction it gives {stated[k]:.6g}, and the value changes by"
            return what, f": {given} {near[k]:.6g}", JACOBIAN
        matrix = self.hessian(w, mu)
        if matrix is None:
            return None
        unit = np.abs(v)  # every entry in the unit of its coefficient, against the largest
        stated, terms = unit * (matrix @ v), unit * (np.abs(matrix) @ unit)
        noise = np.full_like(unit, float((unit * np.abs(mu @ jacobian)).max()))
        most = np.full_like(unit, float(terms.max()))
        odd, near = _differ(stated, lambda t: unit * (mu @ ends[t][1]), most, noise)
        if not odd.any():
            return None
        k = int(np.where(odd, np.abs(stated - near), 0.0).argmax())
        what = f"the hessian of {self.part.words[0]} is not the derivative of its Jacobian"
        given = f"entry {k} of its product with a direction is {stated[k] / unit[k]:.6g}"
        return what, f": {given}, and the Jacobian's changes by {near[k] / unit[k]:.6g}", HESSIAN


JACOBIAN = (
    "Mend the function that returns both, or state it as a TorchConstraint, whose derivatives are"
    " computed."
)
HESSIAN = "Return sum_k multipliers_k c_k'' from hessian=, or leave it out."


def _check_constraint(problem: Problem, part: Any, block: Block, where: str) -> None:
    """The Jacobian, the second derivative and the convexity of an own constraint."""
    own, rng = _Own(problem, part, block), stream(0, block.names[0], 0)
    sizes = problem.predictor.units(np.sqrt(block.squares()[0]))
    units = 1 / np.where(sizes > 0, sizes, 1.0) / math.sqrt(len(sizes))
    D = len(units)
    # in units of the columns, and in those of the model alone
    points = [units * rng.standard_normal(D), rng.standard_normal(D)]
    mu = rng.uniform(0.5, 1.0, len(part.equality))
    for w, scale in zip(points, (units, np.full(D, 1 / math.sqrt(D))), strict=True):
        v = scale * rng.standard_normal(D)
        near = [w, *(w + 0.01 * scale * rng.standard_normal(D) for _ in range(NEAR - 1))]
        found = [own.wrong(near[0], v, mu)]
        while found[-1] and len(found) < NEAR:
            found.append(own.wrong(near[len(found)], v, mu))
        if found[-1]:
            what, shown, do = found[-1]
            raise RowError(where, what, shown=shown, do=do)
    if part.convex:
        points += [np.zeros(D), points[0] + points[1], -points[0], 10 * points[0]]
        _check_convex(own, points, where, mu)


def _check_convex(own: _Own, points: list[Array], where: str, mu: Array) -> None:
    """Tangents lie below, those of equalities are the function, and no curvature is negative."""
    seen = [(w, here) for w in points if (here := own.at(w)) is not None]
    odd = np.zeros(len(own.part.equality), bool)
    for (w, (value, jacobian)), (u, (other, _)) in permutations(seen, 2):
        above = value + jacobian @ (u - w) - other
        room = np.abs(value) + np.abs(other) + np.abs(jacobian) @ np.abs(u - w)
        odd |= np.where(own.part.equality, np.abs(above), above) > SLACK * room
    matrix = own.hessian(points[0], mu * ~own.part.equality)
    if matrix is not None and not odd.any():
        root = np.sqrt(np.maximum(np.abs(np.diag(matrix)), np.finfo(float).tiny))
        values = np.linalg.eigvalsh(matrix / np.outer(root, root))
        odd[:] = values[0] < -SLACK * max(1.0, float(np.abs(values).max(initial=0.0)))
    if odd.any():
        k = int(odd.argmax())
        claim = "affine, as an equality must be" if own.part.equality[k] else "convex"
        raise RowError(
            where,
            f"{own.part.words[k]} is declared convex=True and is not {claim}",
            do="Leave convex out, so that no bound is stated, or mend the function.",
        )


# ---- losses


def _check_loss(problem: Problem, block: Block, where: str) -> None:
    """The derivative, the curvature and the claims of an own loss, at a client's targets."""
    loss: Any = problem.loss
    name, rng = type(loss).__name__, stream(0, block.names[0], 1)
    y = block.y[:1, block.share[0] > 0][:, :ROWS]
    like = problem.predictor.forward(problem.model_start(block.n_features), block)
    shape = (*y.shape, *like.shape[2:])
    log_link = getattr(loss, "log_link", False)
    centre = y if loss.targets == "real" and not log_link else np.zeros_like(y)
    if len(shape) > 2:
        centre = centre[..., None]
    points = [centre + scale * rng.standard_normal(shape) for scale in (0.3, 1.0, 1.0, 4.0)]

    def inner(gradient: Array, direction: Array) -> Array:
        along = gradient * direction
        return along.sum(-1) if len(shape) > 2 else along

    def refuse(what: str, shown: str = "") -> None:
        raise RowError(where, f"the loss {name} {what}", shown=shown, do=MEND.format(name))

    def derivative(value: Callable[[Array], Array], slope: Callable[[Array], Array]) -> Any:
        v = rng.choice([-1.0, 1.0], shape)
        for p in points:
            odd: Any = True
            for at in (p, p + 1e-2, p - 1e-2):
                g, before = slope(at), lambda t, at=at: value(at + t * v)
                terms, noise = inner(np.abs(g), np.abs(v)), np.abs(value(at))
                wrong, near = _differ(inner(g, v), before, terms, noise)
                odd = odd & wrong
            if odd.any():
                k = int(odd.ravel().argmax())
                return inner(slope(at), v).ravel()[k], near.ravel()[k]
        return None

    if wrong := derivative(lambda p: loss.value(p, y), lambda p: loss.gradient(p, y)):
        text = f": {wrong[0]:.6g} along a direction where the value changes by {wrong[1]:.6g}"
        refuse("has a gradient that is not the derivative of its value", text)
    wrong = None
    if loss.smooth and len(shape) == 2 and hasattr(loss, "curvature"):
        wrong = derivative(lambda p: loss.gradient(p, y), lambda p: loss.curvature(p, y))
    if wrong:
        text = f": {wrong[0]:.6g} where the gradient changes by {wrong[1]:.6g}"
        refuse("has a curvature that is not the derivative of its gradient", text)
    values, slopes = ([f(p, y) for p in points] for f in (loss.value, loss.gradient))
    if any((value < -1e-9).any() for value in values):
        refuse("is negative somewhere, and proofs need losses >= 0")
    seen = [*zip(points, values, slopes, strict=True)]
    for (p, a, g), (q, b, _) in permutations(seen, 2):
        change = inner(g, q - p)
        room = SLACK * (np.abs(a) + np.abs(change) + np.abs(b))
        if is_affine(problem.predictor) and (a + change > b + room).any():
            refuse("is not convex, and a bound for a linear model needs that it is")
    if len(shape) == 2 and loss.targets in ("sign", "real") and not log_link:
        _check_claims(loss, y, seen, refuse)


MEND = "Mend its methods; `extending` in the documentation says what each must return for {}."


def _check_claims(loss: Any, y: Array, seen: Any, refuse: Callable[[str], None]) -> None:
    """The Lipschitz constant, the pieces and the floor of a loss of the margin or the residual, at
    points with values and slopes.
    """
    a, b = loss.floor
    for p, value, slope in seen:
        t = y * p if loss.targets == "sign" else p - y
        room = SLACK * (1 + np.abs(value))
        if (np.abs(slope) > loss.lipschitz * (1 + SLACK)).any():
            refuse(f"is steeper than its lipschitz = {loss.lipschitz:g}")
        if (value < a * growth(loss, p, y) - b - room).any():
            refuse(f"is below its floor ({a:g}, {b:g})")
        lines = [c * t + d for c, d in loss.pieces or ()]
        if lines and (np.abs(value - np.max(lines, 0)) > room).any():
            refuse("is not the maximum of its pieces")


# ---- regularisers and sets of client weights


def _check_regulariser(h: Any, d: int) -> None:
    """The prox, the convexity, the conjugate and the domain radius of an own regulariser."""
    rng, name = stream(0, "regulariser", 0), f"the regulariser {type(h).__name__}"
    starts = [scale * rng.standard_normal(d) for scale in (0.1, 1.0, 1.0, 10.0)]
    proxes = [(v, t, h.prox(v, t)) for v, t in zip(starts, (1.0, 0.3, 1.0, 2.0), strict=True)]
    # on both sides of a prox, along what it moved: there one that is too short or too long loses
    beside = [u + part * (v - u) for v, _, u in proxes for part in (0.0, 0.1, -0.1, 0.5, -0.5)]
    points = [np.zeros(d), *starts, *beside]
    known = [(w, value) for w in points if math.isfinite(value := float(h.value(w)))]

    def refuse(what: str) -> None:
        raise ValueError(f"{name} {what}: mend its methods, or use one of bonafed.")

    for v, t, u in proxes:
        least = t * float(h.value(u)) + float((u - v) @ (u - v)) / 2
        costs = (t * value + float((w - v) @ (w - v)) / 2 for w, value in known)
        if any(cost < least - SLACK * (1 + abs(least)) for cost in costs):
            refuse("has a prox that is not a minimiser of step h(w) + |w - v|^2 / 2")
    for (w, a), (u, b) in permutations(known, 2):
        bend = float(getattr(h, "strong_convexity", 0.0)) - float(getattr(h, "weak_convexity", 0.0))
        chord = (a + b) / 2 - bend * float((w - u) @ (w - u)) / 8
        if float(h.value((w + u) / 2)) > chord + SLACK * (abs(a) + abs(b) + abs(chord)):
            refuse("is less convex than its weak_convexity and strong_convexity say")
    for w, value in known:
        if np.linalg.norm(w) > float(h.domain_radius(value, d)) * (1 + SLACK):
            refuse("has a domain_radius that is smaller than a model of that level")
    if not hasattr(h, "conjugate"):
        return
    for (v, t, u), (w, value) in product(proxes, known):
        s = (v - u) / t
        most = float(h.conjugate(s))
        if most < s @ w - value - SLACK * (abs(most) + abs(value) + float(np.abs(s) @ np.abs(w))):
            refuse("has a conjugate that is smaller than v'w - h(w) at some w")


def _check_weights(risk: Any, n: int) -> None:
    """No weights of a set of the user's own exceed its worst ones, and it projects onto itself."""
    rng, name = stream(0, "weights", 0), f"over_clients = {type(risk).__name__}"
    losses = [*np.abs(rng.standard_normal((4, n))), rng.exponential(1.0, n) ** 2]
    weights = [np.asarray(risk.weights(z), float) for z in losses]
    values = [float(risk.value(z)) for z in losses]
    for z, value in zip(losses, values, strict=True):
        best = max(float(q @ z) for q in weights)
        if best > value + SLACK * abs(best):
            raise ValueError(
                f"{name}: its worst weights for some losses give {value:.6g}, and weights that it"
                f" returned for others give {best:.6g} there. Return the weights of the set with"
                " the largest sum of weights times losses."
            )
    if getattr(risk, "projection", risk) is None or not hasattr(risk, "project"):
        return
    for v in (*losses[:2], weights[0]):
        near = np.asarray(risk.project(v), float)
        if any(float((v - near) @ (q - near)) > SLACK * (1 + float(v @ v)) for q in weights):
            raise ValueError(
                f"{name}: its projection is further away than weights that it returned as worst"
                " ones. Return the nearest weights of the set, or leave the projection out."
            )
