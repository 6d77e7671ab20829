"""The problem that bonafed solves.

    minimise over w:  R( F_1(w), ..., F_N(w) ) + h(w)  subject to  c_0(w) <= 0,
            c_i(w) <= 0 for every client i

R = ``over_clients`` is a risk over clients, F_i = ``over_samples`` a risk over the losses of client
i's rows, h the regulariser; c_0 = ``constraint`` and c_i = ``local_constraint``.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from bonafed.arrays import Array, Block, Slices, by_row, dense, each_changed
from bonafed.data.federation import Federation
from bonafed.data.row_errors import RowError, without_values
from bonafed.parameters import Checked
from bonafed.privacy.budget import Budget
from bonafed.problem import metadata as of_data
from bonafed.problem.client_means import client_gradients, client_values, in_one_pass, row_shares
from bonafed.problem.constraints.constraint import Point, Stack, excess, several, stack
from bonafed.problem.constraints.group_means import Coupled, Global, label_code, shared
from bonafed.problem.losses import Loss, Quadratic, has_log_link, others, value_and_gradient
from bonafed.problem.metadata import Asked, Metadata
from bonafed.problem.predictors import affine
from bonafed.problem.predictors.affine import is_affine
from bonafed.problem.regularisers import Zero
from bonafed.problem.risks.ranks import Maximum, TopK, by_rank, two_sides
from bonafed.problem.risks.risk import check_prior, per_client
from bonafed.problem.risks.weight_sets import Mean, Superquantile, among
from bonafed.problem.wasserstein.ball import Cut, Near, WassersteinBall, class_cut, free_space
from bonafed.text import card, shown

VERBS = {  # methods that every problem calls, by slot
    "loss": ["gradient"],
    "predictor": ["dimension", "forward", "backward", "split"],
    "over_clients": ["worst", "at", "value", "weights"],
    "regulariser": ["prox", "value"],
}


Known = TypeVar("Known", bound=Federation | Metadata)  # rows, or what is known of them
REMEMBERED = 3  # pairs of a problem and rows
# of (problem, rows, what it made of them)
_made: ContextVar[list[tuple[Any, ...]] | None] = ContextVar("_made", default=None)


@contextmanager
def remembering() -> Iterator[None]:
    """While this is open, `Problem.at` remembers what it made of the last rows, since a solve asks
    for the same several times. Rows that their owner changes between two solves are read anew.
    """
    made = _made.get()
    token = _made.set([] if made is None else made)
    try:
        yield
    finally:
        _made.reset(token)


@dataclass(frozen=True, repr=False)
class Problem(Checked):
    """minimise R(F_1(w), ..., F_N(w)) + h(w) subject to c_0(w) <= 0 and c_i(w) <= 0 for every
    client i.

    Parameters
    ----------
    loss : the loss of one row, such as ``Hinge()``
    predictor : the model; None: what the loss needs, which is ``Linear()``, a linear model with an
        intercept, for ``Quadratic()`` ``Linear(fit_intercept=False)``, and for ``Multinomial()``
        ``Softmax()``. ``MLP(hidden)`` and ``TorchPredictor(module)`` are for any loss, without a
        bound on the optimum
    over_samples : ``Mean()``; ``WassersteinBall(radius, ...)``: the worst distribution near each
        client's rows; or a risk by rank such as ``Superquantile(0.1)`` or ``RankedRange(k, m)``:
        each client's losses weighed by their rank among its own. For ranks among the rows of all
        clients see ``over_rows``
    over_clients : ``Mean(prior)``, by default uniform: each client counts alike, with
        ``Mean("size")`` each row, as in a fit by maximum likelihood to pooled rows; ``Simplex()``,
        ``LpBall(radius, p, prior)``, ``Superquantile(tail, prior)`` or a convex risk by rank such
        as ``Extremile(2)``: the worst client weights
    regulariser : h, such as ``L2(1e-3)``
    constraint : c_0, one or a sequence: on the server's own data (``Federation(server=...)``), on
        the model only (``LinearInequality(C, d)``, ``Sign``), or on all clients together
        (``Coupled(...)``)
    local_constraint : c_i, one or a sequence, on every client's own rows, such as
        ``NeymanPearson(label, level)``
    class_weight : None, "balanced" (n / (2 n_c) of two classes, from counts over all clients) or a
        mapping by class: every row counts by the weight of its class, and clients by their rows
    privacy : ``Budget(epsilon, delta)``, the total that may be spent on every record;
        ``PrivateADMM`` keeps within it
    over_rows : a risk by rank over the losses of all rows of all clients together, such as
        ``Superquantile(0.1)``: the objective is then R(losses of all rows) + h(w), every row counts
        alike, and ``over_samples`` and ``over_clients`` stay ``Mean()``

    Raises
    ------
    ValueError
        for combinations without a finite or tractable worst case, at construction

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     loss=bf.Hinge(),
    ...     over_samples=bf.WassersteinBall(radius=0.05),
    ...     over_clients=bf.LpBall(radius=0.1, prior="size"),
    ...     regulariser=bf.L2(1e-3),
    ... )
    >>> solution = bf.solve(problem, fed)
    >>> bool(abs(problem.objective(solution.w, fed) - solution.certificate.value) < 1e-9)
    True
    """

    loss: Loss
    predictor: Any = None
    over_samples: Any = field(default_factory=Mean)
    over_clients: Any = field(default_factory=Mean)
    regulariser: Any = field(default_factory=Zero)
    constraint: Any = None
    local_constraint: Any = None
    privacy: Budget | None = None
    class_weight: of_data.Balance | None = None
    over_rows: Any = None

    def __post_init__(self) -> None:
        if self.predictor is None:  # what a loss needs: a score for every class, or one number
            several = getattr(self.loss, "targets", None) == "class"
            one = affine.Linear(fit_intercept=not isinstance(self.loss, Quadratic))
            object.__setattr__(self, "predictor", affine.Softmax() if several else one)
        self._check_slots()
        self._check_weights()
        one_class = getattr(self.over_samples, "label", None) is not None
        if (one_class or isinstance(self.loss, Quadratic)) and not affine.is_affine(self.predictor):
            raise ValueError(
                "Quadratic() and Mean(label=...) are for methods with constraints, which need"
                f" Linear(), got {self.predictor!r}: use a loss of rows over all of them."
            )
        several, (least, most) = self.loss.targets == "class", affine.outputs_of(self.predictor)
        if most < 2 if several else least > 1:
            raise TypeError(
                f"{type(self.loss).__name__} needs the predictor"
                f" {'Softmax()' if several else 'Linear()'}, got {self.predictor!r}: Softmax()"
                " makes one prediction for every class and goes with Multinomial(), Linear() one"
                " number for all other losses; MLP() makes either."
            )

        self._check_constraints()
        if isinstance(self.over_samples, WassersteinBall):
            self._check_ball(self.over_samples)
        elif not isinstance(self.over_samples, Mean):
            _check_ranks(self.over_samples, "over_samples")
            if isinstance(self.loss, Quadratic):
                raise ValueError("Quadratic() has no rows to rank: use over_samples=Mean().")
        if self.over_rows is not None:
            self._check_over_rows()

    def _check_slots(self) -> None:
        """Raise ``TypeError`` where a slot holds another thing than it needs."""
        check_prior(self.over_clients)
        if not getattr(self.over_clients, "convex", True):
            raise ValueError(
                f"over_clients must be a convex risk, got {self.over_clients!r}, which is for"
                " samples only. Use Mean(), a set of client weights such as LpBall(0.1), or a risk"
                " by rank whose weights ascend, such as Extremile(2)."
            )
        if hasattr(self.loss, "slope") and not hasattr(self.loss, "gradient"):
            raise TypeError(
                f"the loss {type(self.loss).__name__} defines the method `slope`, which is now"
                " called `gradient`: rename it."
            )
        for slot, verbs in VERBS.items():
            if lacks := [verb for verb in verbs if not hasattr(getattr(self, slot), verb)]:
                raise TypeError(
                    f"{slot} must be an object with `{lacks[0]}`, got {getattr(self, slot)!r}: give"
                    " a value such as loss=Hinge(), predictor=Linear(), over_clients=LpBall(0.1),"
                    " regulariser=L2(1e-3)."
                )

    def _check_weights(self) -> None:
        """Raise where classes cannot have weights."""
        if self.class_weight is None:
            return
        why = ""
        if self.loss.targets not in ("sign", "class"):
            why = f"{type(self.loss).__name__} has no classes"
        elif self.privacy is not None:
            why = "counts of the classes of private rows are not paid for"
        elif by_rank(self.over_samples) or self.over_rows is not None:
            why = "a risk by rank counts rows of one weight only"
        if why:
            raise ValueError(f"class_weight is not for this problem: {why}. Leave it out.")

    def _check_constraints(self) -> None:
        for slot in ("constraint", "local_constraint"):
            if not isinstance(getattr(self, slot), Stack | Global):
                parts = several(getattr(self, slot), slot)
                if slot == "local_constraint" and any(isinstance(part, Coupled) for part in parts):
                    raise ValueError(
                        "Coupled is over all clients together: give it as constraint=Coupled(...)."
                    )
        if self.constrained and not affine.is_affine(self.predictor):
            raise ValueError(
                "constraints are for predictions that are affine in the model: use Linear() or"
                f" Softmax(). With {self.predictor!r} give a regulariser in their place, or a risk"
                " that weighs large losses more."
            )

    def _check_over_rows(self) -> None:
        """Raise unless ``over_rows`` is a risk by rank, and the only risk of the problem."""
        _check_ranks(self.over_rows, "over_rows")
        beside, concrete = "", isinstance(self.constraint, Global)
        for slot in ("over_samples", "over_clients"):
            value = getattr(self, slot)
            prior: Any = getattr(value, "prior", None) if isinstance(value, Mean) else None
            # a concrete problem has its weights of clients in numbers
            stated = prior is not None and not isinstance(prior, str)
            even = stated and (concrete or np.ptp(np.asarray(prior)) < 1e-12)
            if shown(value) != shown(Mean()) and not even:
                beside = f"{slot} = {shown(value)}"
        if self.privacy is not None:
            beside = "a privacy budget"
        elif isinstance(self.loss, Quadratic):
            beside = "Quadratic(), which has no rows"
        if beside:
            raise ValueError(
                f"over_rows ranks the rows of all clients together, and is not for {beside}: leave"
                " one of the two out. over_samples = a risk by rank ranks every client's rows among"
                " themselves."
            )

    @property
    def over_losses(self) -> Any:
        """The risk over the losses of rows: of all clients together, or of each client."""
        return self.over_samples if self.over_rows is None else self.over_rows

    @property
    def convex(self) -> bool:
        """Whether the objective is convex, so that a bound on its optimum may be proved;
        constraints aside.
        """
        regular = getattr(self.regulariser, "weak_convexity", 0.0) == 0
        risks = (getattr(risk, "convex", True) for risk in (self.over_samples, self.over_rows))
        return affine.is_affine(self.predictor) and all(risks) and regular

    @property
    def joint_cuts(self) -> bool:
        """Whether cuts over a `WassersteinBall` are joint in model and transport multiplier, and so
        hold at any radius; those of several classes are of the model only.
        """
        return self.loss.targets != "class"

    @property
    def constrained(self) -> bool:
        """Whether the problem has constraints."""
        local, glob = self.local_constraint, self.constraint
        concrete = isinstance(glob, Global)
        if glob.held.size + glob.coupled.size if concrete else several(glob, "constraint"):
            return True
        return bool(local.size if isinstance(local, Stack) else several(local, "local_constraint"))

    def _check_ball(self, ball: WassersteinBall) -> None:
        if not affine.is_affine(self.predictor):
            raise ValueError(
                "a WassersteinBall has a worst case for models that are affine in the features,"
                f" not for {self.predictor!r}: use Linear(), or over_samples = Mean() or a risk by"
                " rank such as Superquantile(0.1)."
            )
        if not any(ball.radii()):
            return
        if self.loss.targets == "class" and not isinstance(self.predictor, affine.Softmax):
            raise ValueError(
                "the worst case of several classes over a WassersteinBall is that of Softmax(), got"
                f" {self.predictor!r}: use Softmax(), or over_samples = Mean()."
            )
        if math.isinf(self.loss.lipschitz):
            raise ValueError(
                f"{type(self.loss).__name__} is not Lipschitz, so its worst case over a Wasserstein"
                " ball is infinite. Use radius=0"
                f"{others(self.loss, lambda loss: loss.lipschitz < math.inf)}."
            )
        if ball.support is not None:
            ball.support.check(self.loss)

    # -- for people

    def _stated(self) -> list[tuple[str, str]]:
        """The loss, and every slot that is not as by default, each with its value in words."""
        stated = [("loss", shown(self.loss))]
        for slot in fields(self)[1:]:
            usual = slot.default if slot.default_factory is MISSING else slot.default_factory()
            value = getattr(self, slot.name)
            if shown(value) != shown(usual):
                stated.append((slot.name, shown(value)))
        if self.privacy is not None:  # its ledger file is a place on the owner's machine
            stated[-1] = "privacy", f"Budget({self.privacy.epsilon:g}, {self.privacy.delta:g})"
        return stated

    def in_words(self) -> str:
        """The slots that are not as by default, on one line."""
        return ", ".join(f"{name}={value}" for name, value in self._stated())

    def __repr__(self) -> str:
        return f"Problem({self.in_words()})"

    def _repr_html_(self) -> str:
        return card("Problem", self._stated())

    # -- the concrete problem of one federation
    # ---------------------------------------------------------------

    def at(self, data: Known) -> "tuple[Problem, Known]":
        """Check everything against the data; return the problem with arrays for priors and radii,
        and coded targets.

        From `Metadata` it is the problem as the server knows it, and what the server knows of
        the coded rows; the clients code theirs by ``coded``.

        Raises
        ------
        ValueError
            unsuitable targets or classes, radii or priors of the wrong length, data outside the
            support; for a risk by rank a client with fewer rows than it counts, or with rows of
            different weights
        """
        if isinstance(data, Metadata):
            return self._concrete(data)
        made = _made.get()
        for problem, fed, known in made or ():
            if problem is self and fed is data:
                return known
        facts = self.metadata(data)
        both: Any = self._concrete(facts)[0], self.coded(data, facts)
        if made is not None:
            made[:] = [*made[1 - REMEMBERED :], (self, data, both)]
        return both

    def asked(self) -> Asked:
        """The facts that the problem needs of the data, beside sizes and features."""
        slots = [self.constraint, self.local_constraint]
        slots = [slot for slot in slots if not isinstance(slot, Stack | Global)]
        stated = [part for slot in slots for part in several(slot, "a constraint")]
        columns = dict.fromkeys(filter(None, map(_column, stated)))
        counted = [_column(part) or "" for part in stated if isinstance(part, Coupled)]
        counted = [""] * (self.class_weight is not None) + counted
        classes = self.loss.targets in ("sign", "class")
        return Asked(classes, tuple(columns), tuple(dict.fromkeys(counted)))

    def metadata(self, fed: Federation) -> Metadata:
        """The facts that the problem needs of the federation's rows, see `Metadata`."""
        asked = self.asked()
        fed = with_columns(fed, asked.columns)
        told, which = of_data.distinct_facts(asked, fed)
        known = Metadata.of(told, fed.server)
        if which is None:
            return known
        return replace(known, which=which, called=fed.clients, weighs=of_data.masses(fed))

    def _concrete(self, data: Metadata) -> Any:
        with without_values(self.privacy is not None):
            labels, server = self._labels(data), self._of_server(data)
        predictor = self.predictor
        if hasattr(predictor, "sized"):
            several = len(labels) if self.loss.targets == "class" else None
            predictor = predictor.sized(data.n_features, several)
        if self.class_weight is not None:
            data = replace(data, factors=np.asarray(self._factors(data), float))
        if isinstance(predictor, affine.Softmax) and predictor.fit_intercept:
            predictor = replace(predictor, fit_intercept=False, ones=True)
            data = replace(data, feature_names=(*data.feature_names, "1"))
        sized = replace(self, predictor=predictor)
        concrete = {
            "local_constraint": stack(self.local_constraint, sized, data, "local_constraint"),
            "constraint": shared(self.constraint, sized, data, server),
            "over_samples": self._over_samples(data),
            "over_clients": self._over_clients(data),
            "over_rows": _of_rows(self.over_rows, int(data.sizes.sum())),
        }
        return replace(sized, class_weight=None, **concrete), data

    def _over_samples(self, data: Metadata) -> Any:
        """What weighs the rows of each client, with the label's code or every client's radius."""
        over = self.over_samples
        if isinstance(over, Mean) and over.label is not None and over.code is None:
            return replace(over, code=label_code(over.label, data, self.loss))
        if not isinstance(over, WassersteinBall):
            return over
        if isinstance(over.radius, str):
            raise ValueError(
                "radius='auto' is not a number yet: bonafed.solve reads it off the rows, and its"
                " solution.problem has it; bonafed.default_radius(problem, fed) computes it."
            )
        radius = per_client(over.radius, data.n_clients, data.clients, "radius")
        admits = over.support is not None and any(over.radii())  # all rows, by ``coded``
        return replace(over, radius=radius, clip=over.clip and not admits)

    def _over_clients(self, data: Metadata) -> Any:
        """What weighs the clients, with its weights by the public sizes of their data."""
        public = data.sizes
        if self.privacy is not None:
            public = self.privacy.sizes_of(data.clients, data.sizes)
        public = public if self.class_weight is None else data.masses
        # where all rows are ranked together, every row counts alike
        stated: Any = self.over_clients if self.over_rows is None else Mean("size")
        over = among(stated, data.clients, getattr(self.privacy, "sizes", None))
        clients, n = over.at(np.asarray(public), data.clients), data.n_clients
        if by_rank(clients) and hasattr(clients, "rank_weights") and not hasattr(clients, "prior"):
            _check_weights(clients, np.asarray(clients.rank_weights(n), float), n)
        return clients

    def coded(self, fed: Federation, data: Metadata) -> Federation:
        """The rows as the concrete problem reads them, checked and coded at their owner.

        ``fed`` holds one client or several, ``data`` what is known of all.

        Raises
        ------
        ValueError
            targets outside the classes, rows outside the support, rows that cannot be ranked
        """
        fed = with_columns(fed, self.asked().columns)
        with without_values(self.privacy is not None):
            fed = fed.with_targets(self._targets(fed, data))
        if self.class_weight is not None:
            values = [-1.0, 1.0] if self.loss.targets == "sign" else np.arange(len(data.labels))
            fed = of_data.weighted(fed, values, self._factors(data))
        if isinstance(self.predictor, affine.Softmax) and self.predictor.fit_intercept:
            fed = affine.federation_with_ones(fed)
        ball = self.over_samples
        if isinstance(ball, WassersteinBall):
            if ball.support is not None and any(ball.radii()):
                fed = ball.support.admit(fed, self.loss, clip=ball.clip)
        elif by_rank(ball):
            # every client needs rows enough for the risk, all of equal weight
            _check_alike(ball, fed)
            sizes = fed.sizes.tolist()
            for size in dict.fromkeys(sizes):
                _check_ranked(ball, size, f"client {fed.clients[sizes.index(size)]!r}")

        if self.over_rows is not None:
            _check_alike(self.over_rows, fed)
            _check_ranked(self.over_rows, int(data.sizes.sum()), "all clients together")
        return fed

    def _factors(self, data: Metadata) -> Array:
        """(C,) the weights of the classes."""
        assert self.class_weight is not None
        return of_data.class_factors(self.class_weight, data.labels, data.class_masses().sum(0))

    def _of_server(self, data: Metadata) -> tuple[Metadata, Block] | None:
        """The facts of the server's data, and its rows coded as the clients' are."""
        if data.server is None or isinstance(self.constraint, Global):
            return None
        asked, server = self.asked(), with_columns(data.server, self.asked().columns)
        if isinstance(self.predictor, affine.Softmax) and self.predictor.fit_intercept:
            server = affine.federation_with_ones(server)
        if self.loss.targets == "sign" and not np.isin(server.rows(0)[1], data.labels).all():
            raise RowError(
                "server",
                "its data have labels outside the clients' classes",
                shown=f" {data.labels[:6]}",
                do="Check its target column.",
            )
        facts = Metadata.of([of_data.introduced(asked, server)])
        facts = facts if data.classes is None else replace(facts, classes=data.classes)
        return facts, server.with_targets(self._targets(server, data)).block(0)

    def model_start(self, n_features: int) -> Array:
        """A first model (D,): zeros, or where a model cannot start there the predictor's own."""
        if hasattr(self.predictor, "start"):
            return self.predictor.start(n_features)
        return np.zeros(self.predictor.dimension(n_features))

    def _labels(self, data: Metadata) -> list[Any]:
        """The classes of the data; raises where the loss needs others."""
        if self.loss.targets == "class":
            of_data.check_labels(data.labels, named=data.named)
        elif self.loss.targets == "sign" and len(data.labels) != 2:
            raise RowError(
                type(self.loss).__name__,
                f"it needs labels of exactly two classes, got {len(data.labels)}",
                shown=f": {data.labels[:6]}",
                do="Check the target column; a federation whose clients all hold one class must"
                " declare classes=(a, b).",
            )
        return data.labels

    def _targets(self, fed: Federation, data: Metadata) -> Sequence[Array]:
        ys = fed.y
        if self.loss.targets == "quadratic":
            of_data.check_quadratic(fed, self.predictor)
            return ys
        if self.loss.targets == "real":
            if ys[0].dtype.kind not in "fiub":  # as all are
                raise RowError(
                    type(self.loss).__name__,
                    "it needs numeric targets, and got text",
                    shown=f": {of_data.classes_of(fed)[:5]}",
                    do="Check the target column, or use a loss of classes.",
                )
            ys = each_changed(lambda y: np.asarray(y, float), ys)
            if has_log_link(self.loss):
                of_data.check_counts(ys, fed.clients, type(self.loss).__name__)
            return ys
        if self.loss.targets == "class":
            return of_data.class_numbers(ys, data.labels)
        kinds = {ys.whole.dtype} if isinstance(ys, Slices) else {y.dtype for y in ys}
        right = kinds == {np.dtype(float)} and data.labels == [-1.0, 1.0]
        if right or of_data.coded(ys, data.labels):  # of a problem that is concrete already
            return ys
        return each_changed(lambda y: np.where(y == data.labels[1], 1.0, -1.0), ys)

    def radii(self, block: Block) -> Array:
        """The Wasserstein radius of each client of the block, zero where the samples' risk is the
        mean.
        """
        if isinstance(self.over_samples, WassersteinBall):
            return np.asarray(self.over_samples.radius)[block.index]
        return np.zeros(len(block.index))

    # -- values and cuts
    # ---------------------------------------------------------------------------------------------

    def cut(self, w: Array, block: Block, radius: Array | None = None) -> Cut:
        """A joint cut in (model, lambda_) of every client's risk at w, (D,) or (n, D).

        Without `joint_cuts` it is a cut in the model only, and its lambda_ is 0. It bounds the
        risk from below at every model where loss and risk are convex; else it is value and gradient
        only. ``radius`` (n,) are radii for which its lambda_ is the best, instead of the ball's:
        the cut holds for all.
        """
        ball = self.over_samples
        radius = self.radii(block) if radius is None else radius
        if not isinstance(ball, WassersteinBall) or not radius.any():
            if (quick := in_one_pass(self, w, block)) is not None:
                return quick
            zero, point = np.zeros(len(radius)), Point(self, w, block)
            if isinstance(self.loss, Quadratic):
                return Cut(client_values(point), zero, client_gradients(point), zero)
            prediction, back = affine.pullback(self.predictor, w, block)
            losses, gradients = value_and_gradient(self.loss, prediction, block.y)
            weights = self.row_weights(losses, block)
            return Cut((weights * losses).sum(1), zero, back(by_row(weights, gradients)), zero)
        at = Near(w, block, self.loss, self.predictor, ball, radius)
        if self.loss.targets == "class":
            return class_cut(at)
        return free_space(at) if ball.support is None else ball.support.cut(at)

    def row_weights(self, losses: Array, block: Block) -> Array:
        """The weight of every row in its client's risk, (n, m): its share, or its weight by rank; 0
        on padding.
        """
        if not by_rank(self.over_samples):
            return row_shares(self, block)
        weights = np.zeros_like(losses)
        for i, rows in enumerate(block.share > 0):
            weights[i, rows] = self.over_samples.weights(losses[i, rows])
        return weights

    def client_risks(self, w: Array, block: Block) -> Array:
        """F_i(w) of every client of the block, (n,)."""
        return self.cut(w, block).risks(self.radii(block))

    def row_losses(self, w: Array, fed: Federation) -> Array:
        """(n,) the losses of the rows of all clients, in their order; the problem is concrete."""
        return np.asarray(self.loss.value(self.predictions(w, fed), np.concatenate(fed.y)))

    def predictions(self, w: Array, fed: Federation) -> Array:
        """(n,) or (n, C) the predictions of the rows of all clients, in their order; the problem is
        concrete.
        """
        starts, whole = np.cumsum(fed.sizes) - fed.sizes, np.empty(0)
        for block in fed.batches():
            found = self.predictor.forward(w, block)
            if not len(whole):
                whole = np.empty((int(fed.sizes.sum()), *found.shape[2:]))
            at, sizes = starts[block.index], fed.sizes[block.index]
            if len(at) == 1:
                whole[at[0] : at[0] + sizes[0]] = found[0]
                continue
            column = np.arange(found.shape[1])
            inside = column < sizes[:, None]
            whole[(at[:, None] + column)[inside]] = found[inside]
        return whole

    def objective(self, w: Array, fed: Federation) -> float:
        """R(F_1(w), ..., F_N(w)) + h(w), exactly."""
        problem, fed = self.at(fed)
        w = checked_model(w, problem.predictor.dimension(fed.n_features))
        return problem.objective_here(w, fed)

    def objective_here(self, w: Array, fed: Federation) -> float:
        """The same of a concrete problem and its data (see `at`)."""
        if self.over_rows is not None:
            return float(self.over_rows.value(self.row_losses(w, fed))) + self.penalty(w)
        risks = np.empty(fed.n_clients)
        for block in fed.batches():
            risks[block.index] = self.client_risks(w, block)
        return float(self.over_clients.value(risks)) + self.penalty(w)

    def violation(self, w: Array, fed: Federation) -> float:
        """The largest violation at w, exactly: of c(w), |c(w)| for equalities, and 0."""
        problem, fed = self.at(fed)
        w = checked_model(w, problem.predictor.dimension(fed.n_features))
        points = [Point(problem, w, fed.block(i)) for i in range(fed.n_clients)]
        local, glob = problem.local_constraint, problem.constraint
        together = np.sum([glob.coupled.values(point) for point in points], 0)
        own = [excess(local, local.values(point)) for point in points]
        held = excess(glob.held, glob.held.values(glob.point(problem, w)))
        return max(*own, held, excess(glob.coupled, together))

    def penalty(self, w: Array) -> float:
        """h(w); an intercept is free."""
        return float(self.regulariser.value(self.predictor.split(w)[0]))

    def prox(self, w: Array, step: float | Array) -> Array:
        """argmin_v step h(v) + ||v - w||^2 / 2, with a step for each number of w, for each
        coefficient, or one for all; an intercept is free.
        """
        coefficients = self.predictor.split(w)[0]
        if isinstance(step, np.ndarray):
            step = step[: len(coefficients)]
        near = self.regulariser.prox(coefficients, step)
        return near if len(near) == len(w) else np.concatenate([near, w[len(near) :]])


def checked_model(w: ArrayLike, size: int) -> Array:
    """w as an array (size,); raises ``ValueError`` unless it is that many finite numbers."""
    w = np.asarray(w, float)
    if w.shape != (size,) or not np.isfinite(w).all():
        raise ValueError(f"w must be {size} finite numbers, got shape {w.shape}.")
    return w


def with_columns(fed: Federation, named: Sequence[str]) -> Federation:
    """The federation with a column for every feature that a constraint names as one."""
    more = {}
    for name in named:
        if name in fed.feature_names and name not in (fed.columns or {}):
            j = fed.feature_names.index(name)
            more[name] = tuple(dense(x[:, [j]])[:, 0] for x in fed.X)
    return fed._with(columns=dict(fed.columns or {}) | more) if more else fed


def _column(constraint: object) -> str | None:
    """The column that a constraint names, whose values make groups of rows."""
    column = getattr(getattr(constraint, "constraint", constraint), "column", None)
    return column if isinstance(column, str) else None


def _of_rows(risk: Any, n: int) -> Any:
    """A risk over n rows; as a superquantile where it is one, whose tail does not say how many."""
    match risk:
        case Superquantile():
            return replace(risk, tail=min(max(risk.tail, 1 / n), 1.0))
        case TopK() | Maximum():
            return Superquantile(min((risk.k if isinstance(risk, TopK) else 1) / n, 1.0))
    return risk


def _check_ranks(risk: object, slot: str) -> None:
    """Raise unless the risk of a slot can weigh rows by their rank."""
    has = all(hasattr(risk, verb) for verb in ("value", "weights", "convex"))
    if isinstance(risk, type) or not by_rank(risk) or not has:
        others = "Mean(), a WassersteinBall, or " if slot == "over_samples" else ""
        raise TypeError(
            f"{slot} must be {others}a risk by rank such as Superquantile(0.1), with"
            f" `rank_weights`, `value`, `weights` and `convex`; got {risk!r}."
        )
    prior = getattr(risk, "prior", "uniform")
    if not (isinstance(prior, str) and prior == "uniform"):
        raise ValueError(
            f"{slot}: the prior must be 'uniform', got {prior!r}: rows are ranked one by one."
            " A prior over clients belongs in over_clients; rows that count twice can be repeated."
        )


def _check_alike(risk: object, fed: Federation) -> None:
    """Raise unless all rows of every client have one weight."""
    for i, name in enumerate(fed.clients):
        if not fed.rows_alike(i):
            raise ValueError(
                f"client {name!r} has rows of different weights, and {risk!r} ranks rows one by"
                " one: leave the weights out (pooled() rather than pooled(prior)), or repeat rows."
            )


def _check_ranked(risk: Any, n: int, whose: str) -> None:
    """Raise unless the risk has weights for n rows; ``whose`` they are, in words."""
    ranks = risk.rank_weights_below if two_sides(risk) else risk.rank_weights
    try:
        sigma = np.asarray(ranks(n), float)
    except ValueError as error:
        raise ValueError(f"{whose}: {error}") from None
    _check_weights(risk, sigma, n)


def _check_weights(risk: Any, sigma: Array, n: int) -> None:
    """Raise unless sigma (n,) are weights as the risk claims; proofs rely on what a custom risk
    claims.
    """
    bad = ""
    if sigma.shape != (n,):
        bad = f"have shape {sigma.shape}"
    elif not (np.isfinite(sigma) & (sigma >= 0)).all():
        bad = "are not all finite and >= 0"
    # each side of a reference sums to one only where all rows are there
    elif not two_sides(risk) and abs(sigma.sum() - 1) > 1e-9:
        bad = f"sum to {sigma.sum():.12g}"
    elif risk.convex and (np.diff(sigma) < -1e-12).any():
        bad = "fall somewhere, and the risk has convex = True"
    if bad:
        raise ValueError(
            f"the rank weights of {risk!r} for {n} rows {bad}: needed are {n} numbers >= 0 that sum"
            " to one, from the smallest loss to the largest, ascending where `convex` is True."
        )


# What proofs and programs ask of a problem; each check refuses one kind of problem.
#
# What an algorithm asks stands on its class, see ``bonafed.algorithms.requirements``.


def only_constrained(problem: Problem) -> bool:
    """Whether only methods for constraints take the problem."""
    return problem.constrained or takes_multipliers(problem)


def takes_multipliers(problem: Problem) -> bool:
    """Whether only methods for constraints take the objective, also without constraints."""
    one_class = getattr(problem.over_samples, "label", None) is not None
    return one_class or isinstance(problem.loss, Quadratic)


def check_affine(problem: Problem, what: str) -> None:
    """Raise ``ValueError`` unless predictions are affine in the model, as ``what`` needs them."""
    if not is_affine(problem.predictor):
        raise ValueError(
            f"{what} needs predictions that are affine in the model, as those of Linear() and"
            f" Softmax() are, got {problem.predictor!r}."
        )


def check_convex(problem: Problem) -> None:
    """Raise ``ValueError`` unless a cut of every client's risk bounds it from below."""
    check_affine(problem, "a method of cuts, or a lower bound,")
    if not getattr(problem.over_samples, "convex", True):
        raise ValueError(
            f"{problem.over_samples!r} over samples is not convex, so that a cut of it bounds"
            " nothing and no lower bound can be proved. Use a convex risk over samples: Mean,"
            " WassersteinBall, Superquantile (CVaR) or another spectral risk whose weights ascend."
        )
