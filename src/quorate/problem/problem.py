"""The sentence quorate solves, as a value.

    minimise over w:  R( F_1(w), ..., F_N(w) ) + h(w)

R = ``over_clients`` is a risk over clients, F_i = ``over_samples`` a risk over the losses of client i's rows, h the
regulariser.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate.arrays import Array, Block, by_row
from quorate.problem.losses import Loss
from quorate.problem.predictors import Linear, Softmax
from quorate.problem.regularisers import Zero
from quorate.problem.risks.mean import Mean
from quorate.problem.risks.ranks import by_rank
from quorate.problem.wasserstein import Cut, WassersteinBall, free_space

if TYPE_CHECKING:
    from quorate.data.federation import Federation


@dataclass(frozen=True)
class Problem:
    """minimise R(F_1(w), ..., F_N(w)) + h(w).

    Parameters
    ----------
    loss : the loss of one row, such as ``Hinge()``
    predictor : the model; ``Linear()`` adds no intercept, ``Linear(intercept=True)`` does; ``Softmax()`` for the loss
        ``Multinomial()``
    over_samples : ``Mean()``; ``WassersteinBall(radius, ...)``: the worst distribution near each client's rows; or a
        risk by rank such as ``Superquantile(0.1)`` or ``RankedRange(k, m)``: each client's losses weighed by their rank
        among its own. For ranks among all rows pool them: ``fed.pooled()``
    over_clients : ``Mean(prior)``, ``Simplex()``, ``LpBall(radius, p, prior)``, ``Superquantile(tail, prior)`` or a
        convex risk by rank such as ``Extremile(2)``: the worst weighting of the clients
    regulariser : h, such as ``L2(1e-3)``

    Raises
    ------
    ValueError
        for combinations without a finite or tractable worst case, at construction
    """

    loss: Loss
    predictor: Any = field(default_factory=Linear)
    over_samples: Any = field(default_factory=Mean)
    over_clients: Any = field(default_factory=Mean)
    regulariser: Any = field(default_factory=Zero)

    def __post_init__(self) -> None:
        if not getattr(self.over_clients, "convex", True):
            raise ValueError(
                f"over_clients must be a convex risk, got {self.over_clients!r}, which is for samples only. Use Mean, "
                "LpBall, Simplex, Superquantile, Extremile, ExponentialSpectral, TopK, or Spectral with weights that "
                "ascend."
            )
        for slot, verb in (("loss", "slope"), ("over_clients", "worst"), ("regulariser", "prox")):
            if not hasattr(getattr(self, slot), verb):
                raise TypeError(
                    f"{slot} must be an object with `{verb}`, got {getattr(self, slot)!r}: "
                    "give a value such as loss=Hinge(), over_clients=LpBall(0.1), regulariser=L2(1e-3)."
                )
        self._check_outputs()
        if isinstance(self.over_samples, WassersteinBall):
            self._check_ball(self.over_samples)
        elif not isinstance(self.over_samples, Mean):
            _check_ranks(self.over_samples)

    def _check_outputs(self) -> None:
        several = self.loss.targets == "class"
        if several != isinstance(self.predictor, Softmax):
            needed = "Softmax()" if several else "Linear()"
            raise TypeError(
                f"{type(self.loss).__name__} needs the predictor {needed}, got {self.predictor!r}: Softmax() makes one "
                "prediction for every class and goes with Multinomial(), Linear() one number for all other losses."
            )
        if several and isinstance(self.over_samples, WassersteinBall):
            raise ValueError(
                "Multinomial has no Wasserstein worst case here. Use over_samples = Mean() or a risk by rank, or a "
                "loss of two classes."
            )

    def _check_ball(self, ball: WassersteinBall) -> None:
        radius = ball.radius.values() if isinstance(ball.radius, Mapping) else ball.radius
        radii = np.asarray([*radius] if not np.isscalar(radius) else radius, float)
        if not np.isfinite(radii).all() or (radii < 0).any():
            raise ValueError(
                f"radius must be >= 0 and finite, got {ball.radius!r}: 0 means the empirical distribution."
            )
        name = type(self.loss).__name__
        if (radii > 0).any() and math.isinf(self.loss.lipschitz):
            raise ValueError(
                f"{name} grows faster than the transport cost, so its worst case over a Wasserstein ball is infinite. "
                "Use radius=0, or a Lipschitz loss: Hinge, SmoothHinge, Logistic, Huber, EpsilonInsensitive, Quantile, "
                "Absolute."
            )
        if (radii > 0).any() and ball.support is not None and self.loss.pieces is None:
            raise ValueError(
                f"{name} on a bounded support would maximise a curved convex function over the support, which has no "
                "finite reformulation. Use support=None, or Hinge, EpsilonInsensitive, Quantile or Absolute."
            )

    # -- the problem made concrete for one federation ---------------------------------------------------------------

    def at(self, fed: Federation) -> tuple[Problem, Federation]:
        """Check everything against the data; return the problem with arrays for priors and radii, and coded targets.

        Raises
        ------
        ValueError
            unsuitable targets or classes, radii or priors of the wrong length, data outside the support; for a risk by
            rank a client with fewer rows than it counts, or with rows of different weights
        """
        fed, predictor, ball = fed.with_targets(self._targets(fed)), self._predictor(fed), self.over_samples
        if isinstance(ball, WassersteinBall):
            ball = replace(ball, radius=_by_client(ball.radius, fed.clients, "radius"))
            if ball.support is not None and ball.radius.any():
                fed = ball.support.admit(fed, self.loss, clip=ball.clip)
                ball = replace(ball, clip=False)
        elif by_rank(ball):
            _check_rows(ball, fed)
        clients = self.over_clients.at(fed.sizes, fed.clients)
        if by_rank(clients) and hasattr(clients, "rank_weights") and not hasattr(clients, "prior"):
            _check_weights(clients, np.asarray(clients.rank_weights(fed.n_clients), float), fed.n_clients)
        return replace(self, predictor=predictor, over_samples=ball, over_clients=clients), fed

    def _predictor(self, fed: Federation) -> Any:
        """The predictor, with the number of classes where it needs it."""
        if self.loss.targets != "class":
            return self.predictor
        found = len(_classes(fed))
        if self.predictor.classes not in (None, found):
            raise ValueError(
                f"the data have {found} classes and Softmax has {self.predictor.classes}: leave classes out, or "
                "declare the federation's classes."
            )
        return Softmax(found)

    def _targets(self, fed: Federation) -> list[Array]:
        ys = [fed.rows(i)[1] for i in range(fed.n_clients)]
        if self.loss.targets == "real":
            if any(y.dtype.kind not in "fiub" for y in ys):
                raise ValueError(f"{type(self.loss).__name__} needs numeric targets, got {_classes(fed)[:5]}.")
            return [np.asarray(y, float) for y in ys]
        classes = _classes(fed)
        if self.loss.targets == "class":
            return _class_numbers(ys, classes, declared=fed.classes is not None)
        if len(classes) != 2:
            raise ValueError(
                f"{type(self.loss).__name__} needs labels of exactly two classes, got {len(classes)}: {classes[:6]}. "
                "Check the target column; a federation whose clients all hold one class must declare classes=(a, b)."
            )
        return [np.where(y == classes[1], 1.0, -1.0) for y in ys]

    def radii(self, block: Block) -> Array:
        """The Wasserstein radius of each client of the block, zero where the samples' risk is the mean."""
        if isinstance(self.over_samples, WassersteinBall):
            return np.asarray(self.over_samples.radius)[block.index]
        return np.zeros(len(block.index))

    # -- the sentence ---------------------------------------------------------------------------------------------

    def cut(self, w: Array, block: Block) -> Cut:
        """A joint cut in (model, price) of every client's risk at w, (D,) or (n, D).

        It bounds the risk from below at every model where loss and risk are convex; else it is value and slope alone.
        """
        radius, ball = self.radii(block), self.over_samples
        if not isinstance(ball, WassersteinBall) or not radius.any():
            prediction, zero = self.predictor.forward(w, block), np.zeros(len(radius))
            losses = self.loss.value(prediction, block.y)
            weights = self.row_weights(losses, block)
            slope = self.predictor.backward(w, by_row(weights, self.loss.slope(prediction, block.y)), block)
            return Cut((weights * losses).sum(1), zero, slope, zero)
        if ball.support is None:
            return free_space(w, block, self.loss, self.predictor, ball, radius)
        return ball.support.cut(w, block, self.loss, self.predictor, ball, radius)

    def row_weights(self, losses: Array, block: Block) -> Array:
        """The weight of every row in its client's risk, (n, m): its share, or its weight by rank; 0 on padding."""
        if not by_rank(self.over_samples):
            return block.share
        weights = np.zeros_like(losses)
        for i, rows in enumerate(block.share > 0):
            weights[i, rows] = self.over_samples.weights(losses[i, rows])
        return weights

    def client_risks(self, w: Array, block: Block) -> Array:
        """F_i(w) of every client of the block, (n,)."""
        cut = self.cut(w, block)
        return self.radii(block) * cut.level + cut.base

    def objective(self, w: Array, fed: Federation) -> float:
        """R(F_1(w), ..., F_N(w)) + h(w), exactly."""
        problem, fed = self.at(fed)
        w = np.asarray(w, float)
        expected = problem.predictor.dimension(fed.n_features)
        if w.shape != (expected,) or not np.isfinite(w).all():
            raise ValueError(f"w must be {expected} finite numbers, got shape {w.shape}.")
        risks = np.concatenate([problem.client_risks(w, fed.block(i)) for i in range(fed.n_clients)])
        return float(problem.over_clients.value(risks)) + problem.penalty(w)

    def penalty(self, w: Array) -> float:
        """h(w); an intercept is free."""
        return float(self.regulariser.value(self.predictor.split(w)[0]))


def _check_ranks(risk: Any) -> None:
    """Raise unless ``risk`` can weigh the rows of a client."""
    missing = [verb for verb in ("value", "weights", "convex") if not hasattr(risk, verb)]
    if isinstance(risk, type) or not by_rank(risk) or missing:
        raise TypeError(
            "over_samples must be Mean(), a WassersteinBall, or a risk by rank such as Superquantile(0.1), with "
            f"`rank_weights`, `value`, `weights` and `convex`; got {risk!r}."
        )
    prior = getattr(risk, "prior", "uniform")
    if not (isinstance(prior, str) and prior == "uniform"):
        raise ValueError(
            f"over samples the prior must be 'uniform', got {prior!r}: rows are ranked one by one. A prior over "
            "clients belongs in over_clients; rows that count twice can be repeated."
        )


def _check_rows(risk: Any, fed: Federation) -> None:
    """Raise unless every client has rows enough for the risk, all of equal weight."""
    ranks = risk.rank_weights if hasattr(risk, "rank_weights") else risk.rank_weights_below
    enough: set[int] = set()
    for i, (name, size) in enumerate(zip(fed.clients, fed.sizes.tolist(), strict=True)):
        if fed.sample_weight is not None and np.ptp(fed.share(i)) > 1e-12 * fed.share(i).max():
            raise ValueError(
                f"client {name!r} has rows of different weights, and {risk!r} ranks rows one by one: leave the weights "
                "out (pooled() rather than pooled(prior)), or repeat rows."
            )
        if size not in enough:
            try:
                sigma = np.asarray(ranks(size), float)
            except ValueError as error:
                raise ValueError(f"client {name!r}: {error}") from None
            _check_weights(risk, sigma, size)
            enough.add(size)


def _check_weights(risk: Any, sigma: Array, n: int) -> None:
    """Raise unless sigma (n,) are weights as the risk claims: an own risk's claims are all that proofs stand on."""
    bad = f"have shape {sigma.shape}" if sigma.shape != (n,) else ""
    bad = bad or ("are not all finite and >= 0" if not (np.isfinite(sigma) & (sigma >= 0)).all() else "")
    two_sided = not hasattr(risk, "rank_weights")  # each side of a reference sums to one only where all rows are there
    if not bad and not two_sided and abs(sigma.sum() - 1) > 1e-9:
        bad = f"sum to {sigma.sum():.12g}"
    if not bad and risk.convex and (np.diff(sigma) < -1e-12).any():
        bad = "fall somewhere, and the risk says it is convex"
    if bad:
        raise ValueError(
            f"the rank weights of {risk!r} for {n} rows {bad}: needed are {n} numbers >= 0 that sum to one, from the "
            "smallest loss to the largest, ascending where `convex` is True."
        )


def _class_numbers(ys: list[Any], classes: list[Any], declared: bool) -> list[Array]:
    """The classes' numbers, in ascending order of their labels."""
    if len(classes) < 2:
        raise ValueError(f"Multinomial needs labels of two classes or more, got {classes}. Check the target column.")
    if not declared and any((np.asarray(c) != np.floor(c)).any() for c in classes):
        raise ValueError(
            f"Multinomial needs class labels, got real targets such as {classes[:4]}: for numbers use Squared() or "
            "Huber(); labels are whole numbers, text or booleans."
        )
    labels = np.asarray(classes)
    if any((y.dtype.kind == "U") != (labels.dtype.kind == "U") or not np.isin(y, labels).all() for y in ys):
        raise ValueError(f"targets outside the classes {classes[:6]}: give the federation with its labels.")
    return [np.searchsorted(labels, y).astype(float) for y in ys]


def _classes(fed: Federation) -> list[Any]:
    if fed.classes is not None:
        return list(fed.classes)
    return list(np.unique(np.concatenate([fed.rows(i)[1] for i in range(fed.n_clients)])))


def _by_client(value: Any, clients: tuple[str, ...], name: str) -> Array:
    """A number, array or mapping as one number per client, in the federation's order."""
    if isinstance(value, Mapping):
        unknown = [k for k in value if k not in clients]
        missing = [c for c in clients if c not in value]
        if unknown or missing:
            near = difflib.get_close_matches(str(unknown[0]), clients, 1) if unknown else []
            raise ValueError(
                f"{name} must have one entry per client; missing {missing[:5]}, unknown {unknown[:5]}"
                + (f" (did you mean {near[0]!r}?)." if near else f". Clients: {', '.join(clients[:10])}.")
            )
        return np.array([float(value[c]) for c in clients])
    array = np.asarray(value, float)
    if array.ndim and array.shape != (len(clients),):
        raise ValueError(f"{name} must be a number or {len(clients)} numbers, one per client, got shape {array.shape}.")
    return np.broadcast_to(array, (len(clients),)).copy()
