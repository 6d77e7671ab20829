"""The worst loss of several classes over a Wasserstein ball round one client's rows, on R^n.

    R_s(W) = sup { E_P [log sum_c exp <w_c, x> - <w_y, x>] : W(P, rows of client s) <= radius_s }

with transport cost ||x - x'|| + label_cost * 1{y != y'}. The loss is convex in x, and far out along
v it rises by max_c <w_c - w_y, v>: mass of class y gains max_c ||w_c - w_y||_* per unit of cost,
never more. So the transport multiplier lambda_ is at least

    floor_s(W) = max over y, c of ||w_c - w_y||_*

y being a class that mass of the client can have: a class of its rows if labels never move, else
any. From there on no move of x pays, and with f_s jointly convex

    R_s(W) = min over l >= floor_s(W) of  radius_s l + f_s(W, l)
    f_s(W, l) = mean_i max over y of  loss(W; x_i, y) - label_cost * 1{y != y_i} * l

*Proof.* The dual form has the sup over x, y of l_y(x) - l ||x - x_i|| - label_cost l 1{y != y_i},
only y = y_i at an infinite label cost. The gradient of l_y is sum_c p_c (w_c - w_y), a convex
combination, so that l_y has the Lipschitz constant L_y = max_c ||w_c - w_y||_*. From l = L_y on
x = x_i is best. Below, let c attain L_y and v be of norm 1 with <w_c - w_y, v> = L_y: since
l_y(x) >= <w_c - w_y, x>, along x_i + t v the sup exceeds t (L_y - l) + constant, and is infinite.
So l must be at least L_y for every y that occurs in the sup. What is left of the sup is the maximum
over y at x = x_i. As sums and maxima of convex functions the terms are jointly convex in (W, l).

The floor is not a multiple of a norm of W, and differs by client: so ``cut`` holds radius and
multiplier, and the server has a convex function of W.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import DUAL, Array, Block, by_row, norm_gradient
from bonafed.problem.losses import Loss
from bonafed.problem.predictors.affine import Softmax
from bonafed.problem.wasserstein.ball import Cut, Near, WassersteinBall, flip_multiplier


@dataclass(frozen=True, eq=False)
class Steepest:
    """The steepest way to lose of every client, far out: rows of class ``own`` go along ``along``,
    where ``other`` has the largest score.
    """

    floor: Array  # (n,) ||w_other - w_own||_*, what a unit of cost buys
    own: NDArray[np.intp]  # (n,)
    other: NDArray[np.intp]  # (n,)
    along: Array  # (n, d) of transport norm 1; 0 at floor 0

    def gradient(self, shape: tuple[int, ...]) -> Array:
        """A subgradient of ``floor`` in the models, (n, D), for matrices of coefficients of this
        shape (d or d + 1, C).
        """
        clients, d = np.arange(len(self.own)), self.along.shape[1]
        total = np.zeros((len(clients), *shape))
        total[clients, :d, self.other] += self.along
        total[clients, :d, self.own] -= self.along
        return total.reshape(len(clients), -1)


def steepest(w: Array, block: Block, predictor: Softmax, ball: WassersteinBall) -> Steepest:
    """Of every client of the block, at the model w, (D,) or (n, D)."""
    clients = np.arange(len(block.index))
    d = block.n_features
    moved = np.arange(d) < d - predictor.ones
    matrix = predictor.matrix(np.atleast_2d(w), d)[:, :d] * moved[:, None]
    by_class = matrix.transpose(0, 2, 1)  # (1 or n, C, d)
    classes = range(by_class.shape[1])
    apart = np.stack([ball.dual_norm(by_class - by_class[:, y, None]) for y in classes], 1)
    reached = np.full((len(clients), len(classes)), math.isfinite(ball.label_cost))
    client, row = np.nonzero(block.share > 0)
    reached[client, block.y[client, row].astype(np.intp)] = True
    own = np.where(reached, apart.max(-1), -1.0).argmax(-1)
    apart = np.broadcast_to(apart, (len(clients), *apart.shape[1:]))[clients, own]
    other = apart.argmax(-1)
    by_class = np.broadcast_to(by_class, (len(clients), *by_class.shape[1:]))
    along = norm_gradient(by_class[clients, other] - by_class[clients, own], DUAL[ball.norm])
    return Steepest(apart.max(-1), own, other, along)


def best_flips(
    prediction: Array, block: Block, loss: Loss, ball: WassersteinBall, radius: Array, floor: Array
) -> tuple[Array, Array, Array]:
    """The best lambda_ (n,), the flip probabilities (n, m), and the class (n, m) that a row has
    after its flip: the one of the smallest score but its own.
    """
    floor = np.where(radius > 0, floor, 0.0)
    if math.isinf(ball.label_cost):
        return floor, np.zeros_like(block.y), block.y
    rest = prediction.copy()
    np.put_along_axis(rest, block.y.astype(np.intp)[..., None], np.inf, -1)
    to = rest.argmin(-1).astype(float)
    here, there = loss.value(prediction, block.y), loss.value(prediction, to)
    return *flip_multiplier(here, there, block.share, floor, radius, ball.label_cost), to


def joint_cut(at: Near, floor: Array) -> Cut:
    """The cut of f_s in (W, lambda_) at w and the best lambda_, which holds from the floor on."""
    w, block, loss, predictor, ball, radius = at
    prediction = predictor.forward(w, block)
    level, theta, to = best_flips(prediction, block, loss, ball, radius, floor)
    worst, gradient = loss.value(prediction, block.y), loss.gradient(prediction, block.y)
    spent = np.zeros(len(radius))
    if theta.any():
        fee = ball.label_cost * level[:, None]
        gain = np.maximum(loss.value(prediction, to) - worst - fee, 0.0)
        worst = worst + np.where(theta > 0, gain, 0.0)
        gradient = gradient + by_row(theta, loss.gradient(prediction, to) - gradient)
        spent = ball.label_cost * block.mean(theta)
    back = predictor.backward(w, by_row(block.share, gradient), block)
    return Cut(block.mean(worst), level, back, -spent)


def cut(at: Near) -> Cut:
    """R_s and a subgradient in W, at the model w, (D,) or (n, D): what flips leave of the radius is
    spent at the floor. The multiplier of the cut is 0.
    """
    w, block, _, predictor, ball, radius = at
    steep, zero = steepest(w, block, predictor, ball), np.zeros(len(radius))
    joint = joint_cut(at, steep.floor)
    left = np.maximum(radius + joint.gradient_level, 0.0)
    shape = predictor.matrix(w, block.n_features).shape[-2:]
    gradient = joint.gradient + left[:, None] * steep.gradient(shape)
    return Cut(radius * joint.level + joint.base, zero, gradient, zero)
