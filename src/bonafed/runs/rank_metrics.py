"""The risk by rank of any losses, its interval over rows drawn again, and fairness between clients.

    R(z) = sum_k (S(k / m) - S((k - 1) / m)) z_[k],        S the cumulative spectrum of the risk

of any m losses. A risk that counts ranks, such as ``TopK(k)``, was stated for the rows trained on:
on other rows the same shares of the losses count, and S runs linearly between its ranks.

Two models are compared on the same rows. Rows drawn again with replacement (bootstrap) say how far
the difference of their risks would move on other rows: where row i is drawn c_i times, the k-th
loss weighs S(C_k / m) - S(C_{k-1} / m), and C_k is the number of rows drawn up to it. Where five
rows carry most of the risk, as for the maximum, this shows nothing, and no margin is stated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array, stream
from bonafed.fairness import fairness_metrics, group_rates
from bonafed.problem.risks.ranks import (
    ProspectTheory,
    RankedRange,
    Spectral,
    TopK,
    by_rank,
    two_sided,
)
from bonafed.problem.risks.risk import Risk
from bonafed.runs.files import Record

DRAWS = 400  # of the bootstrap
# a risk that so many largest losses carry by half has no margin, and the least that a curve's
# group holds
FEW = 5
GROUPS = 100  # of a curve, at most
COUNTED = (TopK, RankedRange, Spectral)  # stated for a number of rows


class OneSided(Protocol):
    """A risk with one sequence of weights by rank."""

    def rank_weights(self, n: int) -> Array: ...


RankRisk: TypeAlias = OneSided | ProspectTheory


def cumulative(risk: RankRisk, m: int, rows: int | None) -> tuple[Array, Array]:
    """The cumulative spectrum S at 0, 1/m, ..., 1, below and above the risk's reference, each
    (m + 1,); both are the same for a risk without a reference.

    ``rows`` is the number of rows that a risk of counted ranks was stated for; None: m.
    """
    if isinstance(risk, ProspectTheory):
        return _sums(risk.rank_weights_below(m)), _sums(risk.rank_weights_above(m))
    n = rows if rows is not None and isinstance(risk, COUNTED) else m
    S = _sums(risk.rank_weights(n))
    S = S if n == m else np.interp(np.arange(m + 1) / m, np.arange(n + 1) / n, S)
    return S, S


def _sums(sigma: Array) -> Array:
    return np.concatenate([[0.0], np.cumsum(sigma)])


def risk_of(risk: RankRisk, losses: Array, rows: int | None = None) -> float:
    """The risk R of losses (m,)."""
    z, (below, above) = np.sort(losses), cumulative(risk, len(losses), rows)
    sigma = two_sided(np.diff(below), np.diff(above), getattr(risk, "reference", math.inf), z)
    return float(sigma @ z)


def risk_saved(
    risk: RankRisk, losses: Array, other: Array, rows: int | None = None
) -> tuple[float, float | None]:
    """How much lower R(losses) is than R(other), both (m,) of the same rows, and half the width of
    its 95 % interval.

    None where five rows carry most of the risk.
    """
    m = len(losses)
    saved = risk_of(risk, other, rows) - risk_of(risk, losses, rows)
    S = cumulative(risk, m, rows)
    if m <= FEW or S[1][-1] - S[1][m - FEW] > 0.5:
        return saved, None
    reference = getattr(risk, "reference", math.inf)
    orders = [np.argsort(each, kind="stable") for each in (other, losses)]
    rng = stream(0, "bootstrap", 0)
    drawn = np.empty(DRAWS)
    for k in range(DRAWS):
        counts = np.bincount(rng.integers(m, size=m), minlength=m)
        first = _drawn(S, counts[orders[0]], other[orders[0]], reference)
        drawn[k] = first - _drawn(S, counts[orders[1]], losses[orders[1]], reference)
    return saved, 1.96 * float(drawn.std(ddof=1))


def _drawn(S: tuple[Array, Array], counts: NDArray[np.intp], z: Array, reference: float) -> float:
    """R of the sorted losses z (m,), each ``counts`` times."""
    C = np.concatenate([[0], np.cumsum(counts)])
    return float(np.where(z <= reference, np.diff(S[0][C]), np.diff(S[1][C])) @ z)


def fairness(truth: Sequence[Array], chosen: Sequence[Array], names: Sequence[str]) -> Record:
    """The fairness metrics of `bonafed.fairness` between the largest client and all others, and
    rates by client.

    ``truth`` and ``chosen`` hold -1 and 1, one array per client.
    """
    y, predicted, sizes = np.concatenate(truth), np.concatenate(chosen), [len(t) for t in truth]
    group = np.repeat(np.asarray(names, dtype=object), sizes)
    if len(names) < 2 or not ((y > 0).any() or (predicted > 0).any()):
        return {}
    largest = names[int(np.argmax(sizes))]
    rates = {
        str(name): {key: getattr(rate, key) for key in ("selected", "tpr", "fpr")}
        for name, rate in group_rates(y, predicted, group).items()
    }
    metrics = fairness_metrics(y, predicted, group, largest)
    return {"privileged": largest, **metrics, "rates": rates}


def row_weights(risk: Risk, losses: Array) -> Array:
    """The weight of every loss (m,) in R; equal ones where losses are not ranked."""
    return risk.weights(losses) if by_rank(risk) else np.full(len(losses), 1 / len(losses))


def curve(losses: Array, weights: Array) -> dict[str, list[float]]:
    """Sorted losses (n,) in groups of neighbours, five or more each: where a group ends, its mean
    loss and weight.

    ``share`` ends at 1; a ``weight`` of 1 is that of the mean.
    """
    n = len(losses)
    order = np.argsort(losses, kind="stable")
    edges = np.round(np.linspace(0, n, min(max(n // FEW, 1), GROUPS) + 1)).astype(int)
    size = np.diff(edges)
    return {
        "share": (edges[1:] / n).tolist(),
        "loss": (np.add.reduceat(losses[order], edges[:-1]) / size).tolist(),
        "weight": (np.add.reduceat(weights[order], edges[:-1]) / size * n).tolist(),
    }
