"""Regularisers h of the model, with what algorithms and proofs need of them.

    prox_{t h}(v) = argmin_w  t h(w) + ||w - v||^2 / 2           h*(v) = sup_w  v'w - h(w)

``weak_convexity``: the smallest r with h + r ||.||^2 / 2 convex (0: h is convex);
``strong_convexity``: the largest r with h - r ||.||^2 / 2 convex. MCP (Zhang 2010) and SCAD (Fan
and Li 2001) are not convex; they have no conjugate here. A free intercept is the caller's affair:
none of these knows which entry it is.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import DUAL, Array, Label, is_number, norm
from bonafed.parameters import Parameters
from bonafed.solvers.sets.projections import soft_threshold

Numbers = Array | float  # one for each entry, or one for all


@runtime_checkable
class Regulariser(Protocol):
    """h of a flat vector w (d,)."""

    # 0 where h is convex.
    @property
    def weak_convexity(self) -> float: ...

    # 0 where h is not strongly convex.
    @property
    def strong_convexity(self) -> float: ...

    # h(w); inf outside the domain.
    def value(self, w: Array) -> float: ...

    # A global minimiser of step h(w) + ||w - v||^2 / 2, step > 0 (a number or one per entry);
    # entrywise.
    def prox(self, v: Array, step: Numbers) -> Array: ...

    # A number that ||w||_2 cannot exceed when h(w) <= level and w has ``size`` entries; inf if
    # there is none.
    def domain_radius(self, level: float, size: int) -> float: ...


@runtime_checkable
class SupportsConjugate(Regulariser, Protocol):
    """A convex regulariser whose conjugate is known."""

    # h*(v) = sup_w v'w - h(w); inf outside its domain (no tolerance: scale v into it first).
    def conjugate(self, v: Array) -> float: ...


def _at_least(name: str, value: float, least: float, remedy: str, strict: bool = False) -> None:
    inside = is_number(value) and (least < value if strict else least <= value)
    if not (inside and value < math.inf):
        raise ValueError(
            f"{name} must be a number {'>' if strict else '>='} {least:g}, got {value}. {remedy}"
        )


class Usual(Parameters):
    """What most of them share: convex, not strongly so, and bounding no model."""

    weak_convexity = 0.0
    strong_convexity = 0.0

    def domain_radius(self, level: float, size: int) -> float:
        return math.inf


@dataclass(frozen=True)
class Zero(Usual):
    """h = 0.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> float(bf.Zero().value(np.array([1.0, -2.0])))
    0.0
    """

    def value(self, w: Array) -> float:
        return 0.0

    def prox(self, v: Array, step: Numbers) -> Array:
        return v.copy()

    def conjugate(self, v: Array) -> float:
        return math.inf if v.any() else 0.0


@dataclass(frozen=True)
class L1(Usual):
    """strength ||w||_1, strength >= 0.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> w = np.array([1.0, -2.0])
    >>> float(bf.L1(0.5).value(w))
    1.5
    >>> bf.L1(0.5).prox(w, 1.0).tolist()
    [0.5, -1.5]
    """

    strength: float

    def __post_init__(self) -> None:
        _at_least("strength", self.strength, 0, "For no regulariser use Zero().")

    def value(self, w: Array) -> float:
        return self.strength * float(np.abs(w).sum())

    def prox(self, v: Array, step: Numbers) -> Array:
        return soft_threshold(v, step * self.strength)

    def conjugate(self, v: Array) -> float:
        return 0.0 if np.abs(v).max(initial=0.0) <= self.strength else math.inf

    def domain_radius(self, level: float, size: int) -> float:
        return max(level, 0.0) / self.strength if self.strength > 0 else math.inf


@dataclass(frozen=True)
class L2(Usual):
    """strength / 2 ||w||_2^2, strength >= 0.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> float(bf.L2(0.5).value(np.array([1.0, -2.0])))
    1.25
    """

    strength: float

    def __post_init__(self) -> None:
        _at_least("strength", self.strength, 0, "For no regulariser use Zero().")

    @property
    def strong_convexity(self) -> float:
        return self.strength

    def value(self, w: Array) -> float:
        return self.strength / 2 * float(w @ w)

    def prox(self, v: Array, step: Numbers) -> Array:
        return v / (1 + step * self.strength)

    def conjugate(self, v: Array) -> float:
        return float(v @ v) / (2 * self.strength) if self.strength > 0 else Zero().conjugate(v)

    def domain_radius(self, level: float, size: int) -> float:
        return math.sqrt(2 * max(level, 0.0) / self.strength) if self.strength > 0 else math.inf


@dataclass(frozen=True)
class ElasticNet(Usual):
    """l1 ||w||_1 + l2 / 2 ||w||_2^2, l1 >= 0, l2 >= 0.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> float(bf.ElasticNet(l1=0.5, l2=0.5).value(np.array([1.0, -2.0])))
    2.75
    """

    l1: float
    l2: float

    def __post_init__(self) -> None:
        _at_least("l1", self.l1, 0, "For a ridge without l1 use L2(strength).")
        _at_least("l2", self.l2, 0, "For a lasso without l2 use L1(strength).")

    @property
    def strong_convexity(self) -> float:
        return self.l2

    def value(self, w: Array) -> float:
        return self.l1 * float(np.abs(w).sum()) + self.l2 / 2 * float(w @ w)

    def prox(self, v: Array, step: Numbers) -> Array:
        return soft_threshold(v, step * self.l1) / (1 + step * self.l2)

    def conjugate(self, v: Array) -> float:
        if self.l2 == 0:
            return L1(self.l1).conjugate(v)
        return float((np.maximum(np.abs(v) - self.l1, 0.0) ** 2).sum()) / (2 * self.l2)

    def domain_radius(self, level: float, size: int) -> float:
        level = max(level, 0.0)  # l1 r + l2 r^2 / 2 <= level
        root = self.l1 + math.sqrt(self.l1**2 + 2 * self.l2 * level)
        return 2 * level / root if root > 0 and (self.l1 > 0 or self.l2 > 0) else math.inf


@dataclass(frozen=True)
class Bounds(Usual):
    """0 where lower <= w <= upper, inf elsewhere; the bounds are numbers or (d,) and may be
    infinite.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> bf.Bounds(-1.0, 1.0).prox(np.array([0.5, 3.0]), 1.0).tolist()
    [0.5, 1.0]
    """

    lower: Annotated[Any, Numbers]
    upper: Annotated[Any, Numbers]

    def __post_init__(self) -> None:
        lower, upper = np.asarray(self.lower, dtype=float), np.asarray(self.upper, dtype=float)
        if max(lower.ndim, upper.ndim) > 1 or len({lower.size, upper.size} - {1}) > 1:
            raise ValueError(
                "lower and upper must be numbers, or one for each coefficient, got shapes"
                f" {lower.shape} and {upper.shape}."
            )
        if not (lower <= upper).all() or (lower == math.inf).any() or (upper == -math.inf).any():
            raise ValueError(
                "lower and upper need lower <= upper with a number between, got"
                f" lower={self.lower}, upper={self.upper}. For no bound use -inf or inf."
            )

    def value(self, w: Array) -> float:
        return 0.0 if ((w >= self.lower) & (w <= self.upper)).all() else math.inf

    def prox(self, v: Array, step: Numbers) -> Array:
        return np.clip(v, self.lower, self.upper)

    def conjugate(self, v: Array) -> float:
        bound = np.where(v > 0, self.upper, self.lower)
        return float(np.multiply(v, bound, out=np.zeros_like(v, dtype=float), where=v != 0).sum())

    def pushes(self, v: Array) -> Array:
        """v without its parts against a bound that is not there, where h* is infinite."""
        lower = np.where(np.isfinite(self.lower), -np.inf, 0.0)
        return np.clip(v, lower, np.where(np.isfinite(self.upper), np.inf, 0.0))

    def domain_radius(self, level: float, size: int) -> float:
        if level < 0:
            return 0.0
        farthest = np.maximum(np.abs(self.lower), np.abs(self.upper))
        return float(np.linalg.norm(np.broadcast_to(farthest, size)))


@dataclass(frozen=True)
class Ball(Usual):
    """0 where ||w - centre||_2 <= radius, inf elsewhere: all models at most so long.

    Methods that need h as linear inequalities (``InteriorPoint``), or entry by entry, do not take
    it.

    Parameters
    ----------
    radius : > 0
    centre : a number for every coefficient, or (d,)

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> bf.Ball(1.0).prox(np.array([3.0, 4.0]), 1.0).round(12).tolist()
    [0.6, 0.8]
    """

    radius: float
    centre: Annotated[Any, Numbers] = 0.0

    def __post_init__(self) -> None:
        _at_least("radius", self.radius, 0, "For no regulariser use Zero().", strict=True)
        centre = np.asarray(self.centre, dtype=float)
        if centre.ndim > 1 or not np.isfinite(centre).all():
            raise ValueError(
                f"centre must be a finite number, or one for each coefficient, got {self.centre}."
            )

    def value(self, w: Array) -> float:
        return 0.0 if self._length(w) <= self.radius else math.inf

    def prox(self, v: Array, step: Numbers) -> Array:
        length = self._length(v)
        if length <= self.radius:
            return v.copy()
        if np.ptp(step):
            v = self.centre + self._nearest(v - self.centre, step)
            length = self._length(v)
        share = min(self.radius / length, 1.0)
        while True:
            near = self.centre + share * (v - self.centre)
            # rounding may leave it outside; the centre's own digits count too
            if self._length(near) <= self.radius or not share > 0:
                return near
            share *= 1 - 2.0**-52 * max(1.0, np.abs(self.centre).max() / self.radius)

    def _nearest(self, away: Array, step: Numbers) -> Array:
        """The point of the ball around 0 that is nearest to one outside, with steps for entries:
        away / (1 + force step), of which Newton's method finds the force from below.
        """
        scale, force = 1 / float(np.max(step)), 0.0
        for _ in range(100):
            near = away / (1 + force * scale * step)
            length = float(np.linalg.norm(near))
            bend = float((near**2 * scale * step) @ (1 / (1 + force * scale * step)))
            more = (length / self.radius - 1) * length**2 / bend
            if not more > 1e-15 * force:
                break
            force += more
        return near

    def conjugate(self, v: Array) -> float:
        return self.radius * float(np.linalg.norm(v)) + float((v * self.centre).sum())

    def domain_radius(self, level: float, size: int) -> float:
        if level < 0:
            return 0.0
        return self.radius + float(np.linalg.norm(np.broadcast_to(self.centre, size)))

    def _length(self, w: Array) -> float:
        """||w - centre||_2."""
        return float(np.linalg.norm(w - self.centre))


@dataclass(frozen=True)
class GroupL2(Usual):
    """strength sum_g sqrt(size of g) ||w_g||_2, the group lasso: whole groups of coefficients are
    zero together.

    Yuan and Lin, *Model selection and estimation in regression with grouped variables*. Methods
    that need h as linear inequalities (``InteriorPoint``) do not take it.

    Parameters
    ----------
    strength : >= 0
    groups : the group of every coefficient, (d,), any labels; such as the indicators of one
        category

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> h = bf.GroupL2(1.0, groups=("site", "site", "age"))  # of every coefficient
    >>> round(float(h.value(np.array([3.0, 4.0, 0.0]))), 4)
    7.0711
    """

    strength: float
    groups: tuple[Label, ...]

    def __post_init__(self) -> None:
        _at_least("strength", self.strength, 0, "For no regulariser use Zero().")
        object.__setattr__(self, "groups", tuple(np.asarray(self.groups).tolist()))

    def sizes(self, w: Array) -> tuple[NDArray[np.intp], Array, Array]:
        """The group of every entry, its weight strength sqrt(size), and the groups' lengths
        ||w_g||.
        """
        if len(w) != len(self.groups):
            raise ValueError(
                f"GroupL2 has groups for {len(self.groups)} coefficients, and the model has"
                f" {len(w)}."
            )
        _, group = np.unique(np.asarray(self.groups), return_inverse=True)
        weight = self.strength * np.sqrt(np.bincount(group))
        return group, weight, np.sqrt(np.bincount(group, w * w))

    def value(self, w: Array) -> float:
        _, weight, length = self.sizes(w)
        return float(weight @ length)

    def prox(self, v: Array, step: Numbers) -> Array:
        group, weight, length = self.sizes(v)
        if np.ptp(step):
            return _shortened(v, 1 / np.asarray(step), group, weight)
        step = np.broadcast_to(step, v.shape)[0]
        return v * np.maximum(1 - step * weight / np.maximum(length, 1e-300), 0.0)[group]

    def conjugate(self, v: Array) -> float:
        _, weight, length = self.sizes(v)
        return 0.0 if (length <= weight * (1 + 4e-16)).all() else math.inf

    domain_radius = L1.domain_radius


@dataclass(frozen=True)
class MCP(Usual):
    """Minimax concave: strength |w| - w^2 / (2 gamma) up to |w| = gamma strength, constant beyond;
    gamma > 0.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> (
    ...     float(bf.MCP(1.0, gamma=3.0).value(np.array([3.0]))),
    ...     float(bf.MCP(1.0, gamma=3.0).value(np.array([9.0]))),
    ... )
    (1.5, 1.5)
    """

    strength: float
    gamma: float = 3.0

    def __post_init__(self) -> None:
        _at_least("strength", self.strength, 0, "For no regulariser use Zero().")
        _at_least("gamma", self.gamma, 0, "For gamma = inf use L1(strength).", strict=True)

    @property
    def weak_convexity(self) -> float:
        return 1 / self.gamma if self.strength > 0 else 0.0

    def value(self, w: Array) -> float:
        return float(self._entries(w).sum())

    def _entries(self, w: Array) -> Array:
        size = np.minimum(np.abs(w), self.gamma * self.strength)
        return self.strength * size - size * size / (2 * self.gamma)

    def prox(self, v: Array, step: Numbers) -> Array:
        size, end = np.abs(v), self.gamma * self.strength
        with np.errstate(divide="ignore", invalid="ignore"):
            soft = np.maximum(size - step * self.strength, 0.0) / (1 - step / self.gamma)
            convex = np.where(size > end, size, soft)
        concave = _better(self._entries, size, step, np.zeros_like(size), np.maximum(size, end))
        return np.sign(v) * np.where(np.asarray(step) < self.gamma, convex, concave)


@dataclass(frozen=True)
class SCAD(Usual):
    """Smoothly clipped absolute deviation: gradient strength up to |w| = strength, falling to 0 at
    a strength; a > 2.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> float(bf.SCAD(1.0).value(np.array([5.0]))) == float(
    ...     bf.SCAD(1.0).value(np.array([9.0]))
    ... )
    True
    """

    strength: float
    a: float = 3.7

    def __post_init__(self) -> None:
        _at_least("strength", self.strength, 0, "For no regulariser use Zero().")
        remedy = "The usual value is 3.7; for a = inf use L1(strength)."
        _at_least("a", self.a, 2, remedy, strict=True)

    @property
    def weak_convexity(self) -> float:
        return 1 / (self.a - 1) if self.strength > 0 else 0.0

    def value(self, w: Array) -> float:
        return float(self._entries(w).sum())

    def _entries(self, w: Array) -> Array:
        size = np.minimum(np.abs(w), self.a * self.strength)
        over = np.maximum(size - self.strength, 0.0)
        return self.strength * size - over * over / (2 * (self.a - 1))

    def prox(self, v: Array, step: Numbers) -> Array:
        size, end, bend = np.abs(v), self.a * self.strength, self.a - 1
        soft = np.maximum(size - step * self.strength, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            middle = (bend * size - step * end) / (bend - step)
        convex = np.where(size > end, size, np.where(soft > self.strength, middle, soft))
        near = np.minimum(soft, self.strength)
        concave = _better(self._entries, size, step, near, np.maximum(size, end))
        return np.sign(v) * np.where(np.asarray(step) < bend, convex, concave)


def _better(h: Callable[[Array], Array], v: Array, step: Numbers, near: Array, far: Array) -> Array:
    """The better of two candidates of step h(w) + (w - v)^2 / 2, entry by entry; ``near`` (the
    sparser) on ties.
    """
    one, other = (step * h(w) + (w - v) ** 2 / 2 for w in (near, far))
    return np.where(one <= other, near, far)


def has_parts(regulariser: Regulariser) -> bool:
    """Whether ``regulariser_parts`` knows the regulariser."""
    return isinstance(regulariser, Zero | L1 | L2 | ElasticNet | Bounds)


@dataclass(frozen=True)
class NormPenalty(Parameters):
    """h(w) + price ||w||_kind, for h = Zero, L1, L2 or ElasticNet (with "l1" only if it has l1)."""

    regulariser: Regulariser
    price: float
    kind: str
    weak_convexity = 0.0

    @property
    def strong_convexity(self) -> float:
        return self.regulariser.strong_convexity

    def value(self, w: Array) -> float:
        return self.regulariser.value(w) + self.price * float(norm(w, self.kind))

    def prox(self, v: Array, step: Numbers) -> Array:
        """Entries of h = l2 / 2 ||w||^2 with the step t are those of the norm with t / (1 + t l2),
        at v / (1 + t l2).
        """
        if self.kind == "l1":  # the norm first, then h: the two commute
            return self.regulariser.prox(soft_threshold(v, np.asarray(step) * self.price), step)
        shrink = 1 + np.asarray(step) * self.regulariser.strong_convexity
        v, metric = v / shrink, np.broadcast_to(shrink / step, v.shape)
        if float(norm(metric * v, DUAL[self.kind])) <= self.price:
            return 0 * v
        if self.kind == "linf":
            return _clipped(v, metric, self.price)
        return _shortened(v, metric, np.zeros(len(v), np.intp), np.array([self.price]))

    def domain_radius(self, level: float, size: int) -> float:
        least = {"l1": 1.0, "l2": 1.0, "linf": 1 / math.sqrt(size)}[self.kind] * self.price
        alone = max(level, 0.0) / least if least > 0 else math.inf
        return min(alone, self.regulariser.domain_radius(level, size))


def _clipped(v: Array, metric: Array, price: float) -> Array:
    """argmin_w price ||w||_inf + sum_j metric_j (w_j - v_j)^2 / 2, which is not 0: v clipped at the
    level at which what it loses costs the price.
    """
    size, weight = np.abs(v), metric
    while True:  # the level rises until all that are left are above it (Michelot)
        level = float((weight @ size - price) / weight.sum())
        above = size > level
        if above.all() or not above.any():  # none by rounding
            return np.clip(v, -level, level)
        size, weight = size[above], weight[above]


def _shortened(v: Array, metric: Array, group: NDArray[np.intp], price: Array) -> Array:
    """argmin_w sum_g price_g ||w_g||_2 + sum_j metric_j (w_j - v_j)^2 / 2: metric_j v_j / (metric_j
    + price / length), where the length of a group is the root of a sum that Newton's method finds
    from below; 0 for a group whose metric_j v_j are no longer than its price.
    """
    most, size = np.zeros(len(price)), np.sqrt(np.bincount(group, (metric * v) ** 2))
    np.maximum.at(most, group, metric)
    longer = size > price
    kept, length = (
        longer[group],
        np.divide(size - price, most, where=longer, out=np.zeros(len(price))),
    )
    pull, metric, group = (metric * v)[kept], metric[kept], group[kept]
    for _ in range(100):
        room = metric * length[group] + price[group]
        share = (pull / room) ** 2
        total = np.bincount(group, share, len(price))
        bend = np.bincount(group, metric * share / room, len(price))
        step = np.divide(total**1.5 - total, bend, where=longer, out=np.zeros(len(price)))
        if not (step > 1e-15 * length).any():
            break
        length += np.maximum(step, 0.0)
    w = np.zeros_like(v)
    w[kept] = pull * length[group] / (metric * length[group] + price[group])
    return w


def separable(regulariser: Regulariser) -> bool:
    """Whether its prox takes a step for each entry."""
    kinds = Zero | L1 | L2 | ElasticNet | Bounds | Ball | GroupL2 | MCP | SCAD | NormPenalty
    return isinstance(regulariser, kinds)


def regulariser_parts(regulariser: Regulariser) -> tuple[float, float, Numbers, Numbers]:
    """(l1, l2, lower, upper) of a convex regulariser l1 ||w||_1 + l2 ||w||_2^2 / 2 on lower <= w <=
    upper.
    """
    match regulariser:
        case Zero():
            return 0.0, 0.0, -math.inf, math.inf
        case L1(strength):
            return strength, 0.0, -math.inf, math.inf
        case L2(strength):
            return 0.0, strength, -math.inf, math.inf
        case ElasticNet(l1, l2):
            return l1, l2, -math.inf, math.inf
        case Bounds(lower, upper):
            return 0.0, 0.0, lower, upper
    raise ValueError(
        "a conic program, and the bound it proves, need a regulariser made of l1, l2 and bounds:"
        f" Zero, L1, L2, ElasticNet or Bounds, got {regulariser!r}."
    )


def regulariser_cones(regulariser: Regulariser) -> dict[str, Any]:
    """What a regulariser of lengths is in a conic program, by name: ``groups``, that of every
    coefficient and the (G,) weights of their lengths, or a ``ball``, radius and centre.
    """
    match regulariser:
        case GroupL2():
            group, weight, _ = regulariser.sizes(np.zeros(len(regulariser.groups)))
            return {"groups": (group, weight)}
        case Ball():
            return {"ball": (float(regulariser.radius), np.asarray(regulariser.centre, float))}
    return {}
