"""Asynchronous bundle: cuts of whoever has answered, one program at the server, a proven gap.

    minimise over w:  max_{q in Q} sum_s q_s R_s(w) + h(w)

Cuts of a convex risk hold for ever, so that late answers do no harm. Whenever clients answer, the
server adds their cuts and minimises the model + ||w - centre||_H^2 / 2 from its last trial, which is
the centre, and sends the minimiser to those who answered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from quorate.algorithms.federated.bundle.bundle import SECOND_ORDER, Tangents, _with_tangents
from quorate.algorithms.federated.bundle.cuts import Cuts, no_cuts
from quorate.algorithms.method import (
    Answer,
    Concluded,
    Method,
    at_cap,
    known,
    proven_optimum,
    with_start,
    within_bounds,
    worst_client,
)
from quorate.algorithms.requirements import AFFINE, CONIC, CONVEX_OF_ROWS, PROJECTION, Requirements
from quorate.arrays import Array, Block, Streams
from quorate.codec import Counter, Extended, Form
from quorate.problem.client_means import row_shares
from quorate.problem.conic_form import member, public_shape, sample_radii
from quorate.problem.lower_bounds import Duals, Region, Surveyed, lower_bound, region, survey, unbalanced
from quorate.problem.parts import Parted, Parts, has_smooth_part, is_parted, parted_cut, parts_of, stored, WHOLE
from quorate.problem.problem import Problem
from quorate.rounds import Done, Each, Max, Outcome, Round, Stop, Sum, Version, record
from quorate.solvers.conic.bundle_master import Pieces, minimise


@record
class CutAt:
    w: Version | None
    parts: Parted
    prior: Each | None


@record
class CutsAt:
    base: Each
    level: Each
    gradient: Each
    gradient_level: Each
    curvature: Each | None = None
    features: Max | None = None
    plus: Sum | None = None
    minus: Sum | None = None
    reach: Max | None = None
    target: Max | None = None
    square: Sum | None = None


def cut_at(problem: Problem, ask: CutAt, data: Block) -> CutsAt:
    n, D = len(data.index), problem.predictor.dimension(data.n_features)
    W = np.broadcast_to(problem.model_start(data.n_features) if ask.w is None else ask.w, (n, D))
    parts = limited(parts_of(ask.parts), D)
    found = []
    for i in range(n):
        one = data.part(np.array([i]))
        w = np.ascontiguousarray(W[i])
        cut = parted_cut(problem, w, one, parts)
        more = ()
        if parts.smooth:
            bend = row_shares(problem, one) * problem.loss.curvature(
                problem.predictor.forward(w, one), one.y
            )
            more = (problem.predictor.grams(bend, one),)
        found.append((cut.base, cut.level, cut.gradient, cut.gradient_level, *more))
    up = CutsAt(*(np.concatenate(each) for each in zip(*found, strict=True)))
    if ask.prior is None:
        return up
    seen = survey(data, ask.prior)
    return replace(
        up,
        features=np.full(n, float(data.n_features)),
        plus=seen.plus, minus=seen.minus, reach=seen.reach, target=seen.target, square=seen.square,
    )


def limited(parts: Parts, dimension: int) -> Parts:
    return parts if dimension <= SECOND_ORDER else parts._replace(smooth=0)


class S:  # prototype state
    pass


@dataclass(frozen=True)
class AsyncBundle(Method):
    tol: float = 1e-3
    atol: float = 0.0
    max_rounds: int = 1_000_000
    cuts: int = 30
    least_rows: int = 10
    start: Array | None = None
    problem: Problem | None = None
    keep: int = 30
    debug: bool = False
    stateless: ClassVar[bool] = True
    donates: ClassVar[bool] = True
    requirements: ClassVar[Requirements] = Requirements(
        predictor=AFFINE, over_samples=CONVEX_OF_ROWS, over_clients=PROJECTION, regulariser=CONIC,
    )

    @property
    def on_client(self):
        return {CutAt: lambda memory, ask, data, rng: (memory, cut_at(self._problem, ask, data))}

    @property
    def on_server(self):
        return {CutsAt: self.renew}

    def server_start(self, n):
        s = S()
        s.n = n
        s.p = member(self._problem, n)
        groups = max(1, round(self.cuts / n))
        s.parts = Parts(groups, self.least_rows, int(has_smooth_part(self._problem))) if is_parted(self._problem) else WHOLE
        s.seen = None
        s.known = np.zeros(n, bool)
        s.turn = 0
        s.bound, s.value = -math.inf, math.inf
        s.still, s.soon, s.since, s.shift, s.step = -1, 0.5, 0, 0.0, None
        s.duals = None
        s.w = np.zeros(0)
        return s, Round(CutAt(self.start, stored(s.parts), s.p), None, 1)

    def first(self, s, D):
        s.w = with_start(self._problem, self.start, D - self._problem.predictor.intercept)
        s.parts = limited(s.parts, D)
        s.P = s.parts.count(self._problem)
        s.cuts = no_cuts(D, s.n, s.parts)
        n = s.n
        s.F, s.g, s.at, s.level = np.zeros(n), np.zeros((n, D)), np.tile(s.w, (n, 1)), np.zeros(n)
        s.H = np.zeros((n, D, D)) if s.parts.smooth else None
        s.risk = np.zeros(n)
        s.sent_w, s.sent = np.tile(s.w, (n, 1)), np.zeros(n, int)
        s.q = s.p.copy()
        s.flying = np.ones(n, bool)
        s.made = np.full(n, -1)  # turn of the model at which the last answer was
        s.evals = {}

    def renew(self, s, ids, up):
        ids = np.asarray(ids)
        problem = self._problem
        if not len(s.w):
            self.first(s, up.gradient.shape[2])
        if up.plus is not None:
            new = Surveyed(up.plus, up.minus, up.reach, up.target, up.square)
            s.seen = new if s.seen is None else Surveyed(
                s.seen.plus + new.plus, s.seen.minus + new.minus, np.maximum(s.seen.reach, new.reach),
                np.maximum(s.seen.target, new.target), s.seen.square + new.square)
        s.turn += 1
        s.flying[ids] = False
        radii = sample_radii(problem, s.n)
        risk = radii[ids] * up.level + up.base.sum(1)
        if s.H is not None:
            moved = s.sent_w[ids] - s.at[ids]
            bend = np.einsum("nd,nde,ne->n", moved, s.H[ids], moved) / 2
            guess = s.F[ids] + (s.g[ids] * moved).sum(1) + bend
            off = up.base[:, 0] - guess
            ok = s.known[ids]
            if ok.any():
                r = float((s.q[ids] * off)[ok].sum()), float((s.q[ids] * bend)[ok].sum())
                if abs(r[0]) > 1.0 * r[1] and r[0] > 1e-2 * self.allowed(s, 1.0):
                    s.shift = max(4 * s.shift, 1e-2)
                else:
                    s.shift /= 2
            s.H[ids] = up.curvature
        s.F[ids], s.g[ids], s.at[ids], s.level[ids] = up.base[:, 0], up.gradient[:, 0], s.sent_w[ids], up.level
        s.risk[ids], s.made[ids] = risk, s.sent[ids]
        s.known[ids] = True
        # cuts
        J = len(s.cuts.points)
        P = s.P
        new = {
            "owner": np.repeat(ids, P), "part": np.tile(np.arange(P), len(ids)),
            "point": np.repeat(J + np.arange(len(ids)), P), "base": up.base.ravel(),
            "level": np.repeat(up.level, P), "gradient": up.gradient.reshape(len(ids) * P, -1),
            "gradient_level": up.gradient_level.ravel(), "idle": np.zeros(len(ids) * P, np.intp),
            "points": s.sent_w[ids], "radii": np.tile(radii, (len(ids), 1)),
        }
        s.cuts = replace(s.cuts, **{k: np.concatenate([getattr(s.cuts, k), v]) for k, v in new.items()})
        s.since += len(ids)
        if s.step is None:
            s.start_value = self.estimate(s, s.w)
            G = s.p @ up_sum(s)
            u = self.sizes(s)
            size = float(((G / u) ** 2).sum())
            s.step = s.start_value / size if size > 0 else 1.0
        if s.still >= 0:
            if s.known.all() and (s.made == s.still).all():
                value = problem.over_clients.worst(s.risk).value + problem.penalty(s.w)
                s.value = float(value)
                self.bounded(s)
                if self.debug:
                    print("judged", s.turn, s.value, s.bound, (s.value - s.bound) / s.value)
                if s.value - s.bound <= self.allowed(s, 1.0):
                    return s, Done(proven_optimum(s.value, s.bound, f"{s.turn} rounds", self.tol))
                s.still, s.soon = -1, s.soon / 4
                return self.ask(self.stepped(s, len(ids)), range(s.n))
            # an older model that is good enough, too
            before = s.still
            s = self.near(s, ids)
            return self.ask(s, ids if s.still == before else range(s.n))
        if s.since >= s.n and s.known.all():
            s.since = 0
            self.bounded(s)
        s = self.near(s, ids)
        if s.turn >= self.max_rounds:
            return s, Done(Outcome(Stop.MAX_ROUNDS, "cap"))
        if s.still < 0:
            s = self.stepped(s, len(ids))
        return self.ask(s, range(s.n) if False else ids)

    def near(self, s, ids):
        """Stand still at the oldest answered model that looks good enough."""
        if not math.isfinite(s.bound):
            return s
        for i in ids:
            if s.still >= 0 and s.made[i] >= s.still:
                continue
            v = s.at[i]
            if self.estimate(s, v) - s.bound <= s.soon * self.allowed(s, 1.0):
                s.still, s.w = int(s.made[i]), v.copy()
        return s

    def estimate(self, s, v):
        problem, radii = self._problem, sample_radii(self._problem, s.n)
        lip, floor = public_shape(problem, s.n).lipschitz, public_shape(problem, s.n).floor
        from quorate.arrays import norm
        lam = np.maximum(np.maximum(s.level, floor), lip * norm(problem.predictor.split(v)[0], public_shape(problem, s.n).dual) if lip else 0.0)
        heights = s.cuts.offset + s.cuts.gradient @ v + s.cuts.gradient_level * lam[s.cuts.owner]
        top = np.full((s.n, s.P), 0.0)
        np.maximum.at(top, (s.cuts.owner, s.cuts.part), heights)
        if s.H is not None:
            moved = v - s.at
            top[:, 0] = np.maximum(top[:, 0], s.F + (s.g * moved).sum(1) + np.einsum("nd,nde,ne->n", moved, s.H, moved) / 2)
        z = radii * lam + top.sum(1)
        return float(problem.over_clients.worst(z).value) + problem.penalty(v)

    def allowed(self, s, share):
        v = s.value if math.isfinite(s.value) else (s.bound if math.isfinite(s.bound) else 1.0)
        return share * max(self.atol, self.tol * max(abs(v), abs(s.bound) if math.isfinite(s.bound) else 0.0))

    def sizes(self, s):
        sizes = np.sqrt(s.seen.square)
        largest = sizes.max(initial=0.0)
        sizes = np.maximum(sizes, 1e-9 * largest) if largest > 0 else np.ones_like(sizes)
        return self._problem.predictor.units(sizes)

    def shape(self, s):
        return public_shape(self._problem, s.n)

    def pieces(self, s):
        c = s.cuts
        missing = np.argwhere(np.bincount(c.owner * s.P + c.part, minlength=s.n * s.P).reshape(s.n, s.P) == 0)
        p = c.pieces(s.P)
        if not len(missing):
            return p
        k, D = len(missing), c.gradient.shape[1]
        return Pieces(np.append(p.owner, missing[:, 0]), np.append(p.part, missing[:, 1]), np.append(p.offset, np.zeros(k)),
                      np.vstack([p.gradient, np.zeros((k, D))]), np.append(p.gradient_level, np.zeros(k)), s.P)

    def region(self, s):
        n = len(s.w) - self._problem.predictor.intercept
        return region(self._problem, s.start_value if not math.isfinite(s.value) else s.value, n, s.seen)

    def bounded(self, s):
        where = self.region(s)
        if math.isinf(where.size):
            return
        master = minimise(self.shape(s), s.cuts.pieces(s.P), near=s.w, size=where.size, offset=where.offset,
                          unit=max(abs(s.start_value), 1e-300), accuracy=1e-9)
        if not master.solved:
            return
        s.cuts = s.cuts.used(master.multipliers)
        multipliers, sizes = master.multipliers, self.sizes(s)
        for _ in range(3):
            proof = s.cuts.proof(self._problem, multipliers, s.n, np.zeros(0))
            if proof is None:
                return
            duals, minorant, _ = proof
            bound, _ = lower_bound(self._problem, minorant, where)
            if bound > s.bound:
                s.bound, s.duals = bound, duals
            left = unbalanced(self._problem, minorant, where, sizes)
            multipliers = s.cuts.balanced(proof[2], *left, sizes)

    def stepped(self, s, answered):
        pieces = self.pieces(s)
        idle = s.cuts.idle
        newton = s.H is not None
        unit = max(abs(s.start_value), 1e-300)
        if newton:
            moved = s.w - s.at
            Hm = np.einsum("nde,ne->nd", s.H, moved)
            value = s.F + (s.g * moved).sum(1) + (moved * Hm).sum(1) / 2
            slope = s.g + Hm
            value, slope = np.where(s.known, value, 0.0), np.where(s.known[:, None], slope, 0.0)
            cut = pieces.part > 0
            H = np.einsum("n,nde->de", s.q * s.known, s.H)
            u = self.sizes(s)
            mean = float(np.mean(np.diag(H) / u**2))
            more = (1e-8 + s.shift) * mean + (1e-3 + s.shift) / s.step
            metric = H + np.diag(max(more, 1e-100) * u**2)
            pieces = _with_tangents(pieces, cut, Tangents(s.w, value, slope))
        else:
            metric = self.sizes(s) ** 2 / s.step
        offset = self.region(s).offset if s.known.all() else math.inf
        master = minimise(self.shape(s), pieces, centre=s.w, metric=metric, offset=offset, unit=unit, accuracy=1e-9)
        if not master.solved:
            if self.debug: print("unsolved")
            return s
        mu = master.multipliers
        K = len(s.cuts.owner)
        mine = np.zeros(K)
        if newton:
            mine[cut[:K]] = mu[: int(cut[:K].sum())]
            q = self._problem.over_clients.project(mu[-s.n:])
            s.q = q
        else:
            mine = mu[:K]
        idle = replace(s.cuts, idle=idle + 1).used(mine)
        newest = np.zeros(K, bool)
        last = np.full((s.n, s.P), -1)
        last[s.cuts.owner, s.cuts.part] = np.arange(K)
        newest[last[last >= 0]] = True
        keep = (idle.idle <= self.keep * max(1, s.n / answered)) | newest
        s.cuts = idle.kept(keep)
        s.w = master.w
        return s

    def ask(self, s, ids):
        ids = np.flatnonzero(~s.flying & ((s.made != s.still) | (s.still < 0)))
        s.flying[ids] = True
        s.sent_w[ids], s.sent[ids] = s.w, (s.still if s.still >= 0 else s.turn)
        return s, Round(CutAt(s.w.copy(), stored(s.parts), None), tuple(int(i) for i in ids), 1)

    def report(self, s):
        return {"bound": s.bound}

    def answer(self, s, concluded=None):
        return Answer(s.w, s.duals)


def up_sum(s):
    g = np.zeros((s.n, len(s.w)))
    np.add.at(g, s.cuts.owner, s.cuts.gradient)
    return g
