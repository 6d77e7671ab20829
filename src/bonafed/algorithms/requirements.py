"""Requirements: what an algorithm needs of a problem, data and engine, declared on its class.

A ``Need`` is one condition on one slot of a problem, with the words in which a refusal states it.
``Requirements`` holds one need per slot. The default choice of ``solve``, the configuration file,
the estimators, the table docs/combinations.md and every advice "use ... instead" read them: an
advice is computed by asking what would be accepted, so that following it never leads to another
refusal.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from bonafed.problem.constraints.constraint import Stack, is_convex, several
from bonafed.problem.constraints.group_means import Coupled, Global
from bonafed.problem.losses import has_log_link
from bonafed.problem.parts import has_even_slopes, limits_no_rows, moves_evenly
from bonafed.problem.predictors.affine import Linear, is_affine
from bonafed.problem.problem import Problem, only_constrained
from bonafed.problem.rank_levels import few_levels
from bonafed.problem.regularisers import L2, Ball, GroupL2, Zero, has_parts
from bonafed.problem.risks.ranks import by_rank
from bonafed.problem.risks.weight_sets import LpBall, Mean, Simplex, Sum, TotalVariationBall
from bonafed.problem.wasserstein.ball import WassersteinBall


@dataclass(frozen=True)
class Setting:
    """The setting of a problem: the facts about data and engine on which an algorithm may depend.

    Parameters
    ----------
    n_clients : how many clients there are
    equal_rows : whether all rows of a client have the same weight
    asynchronous : whether the engine may hand over answers at different times
    secure_sum : whether the engine has the server read sums over the clients only
    rows : how many rows all clients have, where they are in this process; 0 where they are at sites
        or not yet known
    sparse : whether the rows are sparse matrices; False where that is not known
    """

    n_clients: int
    equal_rows: bool = True
    asynchronous: bool = False
    secure_sum: bool = False
    rows: int = 0
    sparse: bool = False


@dataclass(frozen=True)
class Need:
    """One condition that an algorithm puts on one slot of a problem.

    Attributes
    ----------
    label : the condition in a word or two, for tables
    words : the condition as a sentence without its subject, such as "needs a smooth loss"
    holds : whether a problem in its setting meets it; the problem may be stated or concrete
    """

    label: str
    words: str
    holds: Callable[[Problem, Setting], bool]


class Reason(NamedTuple):
    """The reason why an algorithm does not take a problem."""

    method: str  # the algorithm's name
    slot: str  # a field of ``Requirements``
    need: Need
    actual: str  # what the problem has there

    @property
    def text(self) -> str:
        """The reason as a sentence without its end: what is needed, and what there is."""
        return f"{self.method} {self.need.words}, got {self.actual}"


def _has(slot: str, kind: Any) -> Callable[[Problem, Setting], bool]:
    """The condition that what stands in a slot is of a kind, such as ``Mean | Sum``."""
    return lambda p, s: isinstance(getattr(p, slot), kind)


def _projects(problem: Problem, setting: Setting) -> bool:
    """The condition that the set of clients' weights has a projection."""
    return hasattr(problem.over_clients, "project")


ANY = Need("any", "takes everything", lambda p, s: True)

# -- privacy, constraints, clients, rows, engine
NO_PRIVACY = Need(
    "no", "adds no noise and would break the guarantee of privacy", lambda p, s: p.privacy is None
)
KEEPS_PRIVACY = Need("kept", "keeps a privacy budget", lambda p, s: True)
NO_CONSTRAINTS = Need(
    "none",
    "takes no constraints, no Mean(label=...) and no Quadratic()",
    lambda p, s: not only_constrained(p),
)
CONSTRAINTS_OF_SERVER = Need(
    "convex, of the model only",
    "with secure sums takes no constraints on clients' rows, of which clients would tell their own"
    " numbers or sums over few rows (it takes those of the server itself, such as"
    " LinearInequality() or Sign(), and an engine without secure_sum takes others), no"
    " Mean(label=...) and no Quadratic()",
    lambda p, s: limits_no_rows(p) and is_convex(constraints_of(p)),
)
CONVEX_CONSTRAINTS = Need(
    "convex", "needs constraints that are convex", lambda p, s: is_convex(constraints_of(p))
)
TWICE_DIFFERENTIABLE = Need(
    "with second derivatives",
    "needs second derivatives of the constraints, as Constraint(..., hessian=...) states them",
    lambda p, s: all(_hessian(part) is not None for part in constraints_of(p)),
)
# noise protects what a private method sends, and its answers are sums
NO_SECURE_SUM = Need(
    "no",
    "sends the server numbers of single clients, which no secure sum hides",
    lambda p, s: not s.secure_sum or p.privacy is not None,
)
ONE_CLIENT = Need("one", "needs all rows in one place", lambda p, s: s.n_clients == 1)
EQUAL_ROWS = Need("equal", "takes no sample weights", lambda p, s: s.equal_rows)
EQUAL_IF_RANKED = Need(
    "equal where rows are ranked",
    "takes no sample weights with over_rows",
    lambda p, s: s.equal_rows or p.over_rows is None,
)
# -- predictor and loss
AFFINE = Need(
    "affine",
    "needs predictions that are affine in the model, as those of Linear() and Softmax() are",
    lambda p, s: is_affine(p.predictor),
)
LINEAR = Need("linear", "needs the predictor Linear", _has("predictor", Linear))
SMOOTH = Need("smooth", "needs a smooth loss", lambda p, s: p.loss.smooth)
WITH_KINKS = Need(
    "with linear pieces",
    "needs a loss with linear pieces (Hinge, Absolute, Quantile, EpsilonInsensitive)",
    lambda p, s: getattr(p.loss, "pieces", None) is not None and p.loss.targets != "class",
)
ONE_CURVE = Need(
    "of the margin or the residual",
    "needs a loss of the margin or the residual",
    lambda p, s: p.loss.targets != "class" and not has_log_link(p.loss),
)
SMOOTH_SCALAR = Need(
    "smooth, one prediction per row",
    "needs a smooth loss of one prediction a row",
    lambda p, s: p.loss.smooth and p.loss.targets != "class",
)
KINKS_OR_RANKED = Need(
    "with linear pieces; smooth with over_rows",
    "needs a loss with linear pieces (Hinge, Absolute, Quantile, EpsilonInsensitive), and with"
    " over_rows a smooth loss of one prediction a row",
    lambda p, s: (WITH_KINKS if p.over_rows is None else SMOOTH_SCALAR).holds(p, s),
)

EVEN_SLOPES = Need(
    "smooth, no SmoothHinge",
    "with secure sums needs a loss whose slope has no jumps, and is not 0 for all but a few rows,"
    " which sums would tell",
    lambda p, s: has_even_slopes(p),
)

# -- the risk over samples
MEAN_OF_ROWS = Need("mean", "needs over_samples = Mean()", _has("over_samples", Mean))
MEAN_OR_BALL = Need(
    "mean, Wasserstein ball",
    "needs over_samples = Mean() or a WassersteinBall",
    _has("over_samples", Mean | WassersteinBall),
)
MEAN_OR_RANK = Need(
    "mean, spectral or rank-based",
    "needs over_samples = Mean() or a risk by rank",
    lambda p, s: isinstance(p.over_samples, Mean) or by_rank(p.over_samples),
)
ONE_SPECTRUM = Need(
    "mean, one spectrum of weights",
    "needs over_samples = Mean() or a risk with one sequence of rank weights",
    lambda p, s: isinstance(p.over_samples, Mean) or hasattr(p.over_samples, "rank_weights"),
)
EVEN_MOVES = Need(
    "mean, Wasserstein ball without flips",
    "with secure sums needs over_samples = Mean() or a WassersteinBall that flips no labels"
    " (label_cost=math.inf) and has no support, as single rows that flip would show in a sum",
    lambda p, s: moves_evenly(p),
)
CONVEX_OF_ROWS = Need(
    "convex",
    "needs a convex risk over_samples",
    lambda p, s: bool(getattr(p.over_samples, "convex", True)),
)

# -- the risk over the rows of all clients
NO_RANKS = Need(
    "no", "takes no risk over the rows of all clients", lambda p, s: p.over_rows is None
)
FEW_LEVELS = Need(
    "few steps",
    "needs over_rows = Superquantile, TopK, Maximum or a Spectral of few steps",
    lambda p, s: few_levels(p.over_rows),
)
NO_OR_FEW_LEVELS = Need(
    "few steps",
    "needs over_rows = Superquantile, TopK, Maximum or a Spectral of few steps, or none",
    lambda p, s: p.over_rows is None or few_levels(p.over_rows),
)
CONVEX_RANKS = Need(
    "convex by rank",
    "needs over_rows = a convex risk by rank",
    lambda p, s: p.over_rows is not None and bool(getattr(p.over_rows, "convex", False)),
)

# -- the risk over clients
AVERAGE = Need("mean, sum", "needs over_clients = Mean or Sum", _has("over_clients", Mean | Sum))
BALL_OF_WEIGHTS = Need(
    "mean, simplex, Lp or total-variation ball",
    "needs over_clients = Mean, Simplex, LpBall or TotalVariationBall",
    _has("over_clients", Mean | Simplex | LpBall | TotalVariationBall),
)
PROJECTION = Need("set with a projection", "needs over_clients with `project`", _projects)
MIXTURE = Need(
    "set of mixture weights with a projection",
    "needs over_clients with `project` and weights that sum to one",
    lambda p, s: _projects(p, s) and not isinstance(p.over_clients, Sum),
)

SHARED_WEIGHTS = Need(
    "set with a projection, no simplex",
    "with secure sums needs over_clients that share their weight, such as Mean, LpBall or KLBall,"
    " as a sum in which one client has nearly all of it hides nothing",
    lambda p, s: _projects(p, s) and not isinstance(p.over_clients, Simplex),
)

# -- the regulariser
CONVEX_PROX = Need(
    "convex",
    "needs a convex regulariser",
    lambda p, s: getattr(p.regulariser, "weak_convexity", 0.0) == 0,
)
SMOOTH_REGULARISER = Need(
    "none, l2", "needs the regulariser Zero or L2", _has("regulariser", Zero | L2)
)
RIDGE = Need("l2", "needs the regulariser L2", _has("regulariser", L2))
SEPARABLE = Need(
    "convex, entry by entry",
    "needs a convex regulariser that acts entry by entry",
    lambda p, s: CONVEX_PROX.holds(p, s) and not isinstance(p.regulariser, Ball | GroupL2),
)
CONIC = Need(
    "l1, l2, bounds",
    "needs a convex regulariser made of l1, l2 and bounds (Zero, L1, L2, ElasticNet, Bounds)",
    lambda p, s: has_parts(p.regulariser),
)
CONES = Need(
    "l1, l2, bounds, groups, balls",
    "needs a convex regulariser made of l1, l2, bounds, lengths of groups or a ball (Zero, L1, L2,"
    " ElasticNet, Bounds, GroupL2, Ball)",
    lambda p, s: CONIC.holds(p, s) or isinstance(p.regulariser, Ball | GroupL2),
)
CONIC_AT_SERVER = Need(
    "convex; with constraints of the server l1, l2, bounds",
    "needs a convex regulariser, and beside constraints of the server one of Zero, L1, L2,"
    " ElasticNet and Bounds",
    lambda p, s: CONIC.holds(p, s) or (CONVEX_PROX.holds(p, s) and not _at_server(p)),
)


@dataclass(frozen=True)
class Requirements:
    """The requirements of an algorithm: one need per slot; other slots may hold anything.

    ``with_sums`` are those of what runs in its place where the engine has a secure sum.
    """

    privacy: Need = NO_PRIVACY
    sums: Need = NO_SECURE_SUM
    constraint: Need = NO_CONSTRAINTS
    clients: Need = ANY
    over_rows: Need = NO_RANKS
    predictor: Need = ANY
    over_samples: Need = ANY
    over_clients: Need = ANY
    loss: Need = ANY
    regulariser: Need = ANY
    rows: Need = ANY
    engine: Need = ANY
    with_sums: "Requirements | None" = None

    @property
    def private(self) -> bool:
        """Whether the algorithm keeps a privacy budget."""
        return self.privacy is not NO_PRIVACY

    @property
    def constrained(self) -> bool:
        """Whether the algorithm is made for constraints, and always returns multipliers."""
        others = NO_CONSTRAINTS, CONSTRAINTS_OF_SERVER, CONVEX_CONSTRAINTS
        return self.constraint.label not in {each.label for each in others}

    def refusal(self, method: str, problem: Problem, setting: Setting) -> Reason | None:
        """The first need that is not met, or None where the algorithm ``method`` can be used."""
        needs = self.with_sums or self if setting.secure_sum else self
        for slot in SLOTS:
            need: Need = getattr(needs, slot)
            if not need.holds(problem, setting):
                return Reason(method, slot, need, actual(slot, problem, setting))
        return None


# of the method of Bai and others, and of what it is compared with
EPIGRAPH_REQUIREMENTS = Requirements(
    predictor=AFFINE,
    over_samples=MEAN_OR_BALL,
    over_clients=BALL_OF_WEIGHTS,
    loss=ONE_CURVE,
    regulariser=CONIC,
)
# of the bundle where the server reads sums over the clients alone
OF_SUMS = Requirements(
    sums=ANY,
    constraint=CONSTRAINTS_OF_SERVER,
    predictor=AFFINE,
    over_samples=EVEN_MOVES,
    over_clients=SHARED_WEIGHTS,
    loss=EVEN_SLOPES,
    regulariser=CONES,
)
SLOTS: tuple[str, ...] = tuple(f.name for f in fields(Requirements) if f.name != "with_sums")


def actual(slot: str, problem: Problem, setting: Setting) -> str:
    """The value that a problem in its setting has in a slot, in words."""
    elsewhere = {
        "clients": f"{setting.n_clients} clients",
        "rows": "rows of different weights",
        "engine": "an asynchronous one",
        "sums": "an engine with secure_sum",
    }
    if slot != "constraint":
        return elsewhere.get(slot) or repr(getattr(problem, slot))
    parts = [part for part in _stated(problem) if not isinstance(part, Stack | Global)]
    if parts:
        return ", ".join(map(repr, parts))
    label = getattr(problem.over_samples, "label", None)
    of = problem.loss if label is None else problem.over_samples
    return "constraints" if problem.constrained else repr(of)


def constraints_of(problem: Problem) -> list[Any]:
    """All constraints of a problem, as stated or concrete."""
    stacks: list[Any] = []
    for held in _stated(problem):
        stacks += (held.held, held.coupled) if isinstance(held, Global) else (held,)
    return [part for one in stacks for part in (one.parts if isinstance(one, Stack) else [one])]


def _stated(problem: Problem) -> list[Any]:
    """The contents of the two slots of constraints, as stated or as one stack each."""
    held: list[Any] = []
    for slot in ("constraint", "local_constraint"):
        value = getattr(problem, slot)
        held += [value] if isinstance(value, Stack | Global) else several(value, slot)
    return held


def _hessian(part: Any) -> Any:
    """The second derivative of a constraint; None where a custom one states none."""
    inner = part.constraint if isinstance(part, Coupled) else part
    inner = inner[0] if isinstance(inner, tuple | list) else inner
    return getattr(inner, "hessian", inner)


def _at_server(problem: Problem) -> bool:
    """Whether the server itself holds constraints."""
    held = problem.constraint
    if isinstance(held, Global):
        return bool(held.held.size)
    return any(not isinstance(part, Coupled) for part in several(held, "constraint"))
