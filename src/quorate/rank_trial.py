"""The numbers of a run with a risk by rank: the risk of held-out losses, whom it serves, which losses weigh how much.

    R(z) = sum_k (S(k / m) - S((k - 1) / m)) z_[k],        S the cumulative spectrum of the risk

of any m losses. A risk that counts ranks, such as ``TopK(k)``, was stated for the rows trained on: on other rows the
same shares of the losses count, S running linearly between its ranks.

Two models are compared on the same rows. Rows drawn again with replacement (bootstrap) say how far the difference of
their risks would move on other rows: drawing row i c_i times, the k-th loss weighs S(C_k / m) - S(C_{k-1} / m), C_k the
number of rows drawn up to it. Where five rows carry most of the risk, as for the maximum, this says nothing, and no
margin is stated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate.arrays import Array, stream
from quorate.problem.problem import Problem
from quorate.problem.risks import ProspectTheory, RankedRange, Spectral, TopK
from quorate.problem.risks.ranks import by_rank, two_sided

if TYPE_CHECKING:
    from quorate.config import Config
    from quorate.data.federation import Federation

DRAWS = 400  # of the bootstrap
FEW = (
    5  # rows: a risk that so many largest losses carry by half has no margin, and the least that a curve's group holds
)
GROUPS = 100  # of a curve, at most
TOLD = ("risk", "owners", "losses")  # the keys of result.json that `of_ranks` fills
COUNTED = (TopK, RankedRange, Spectral)  # stated for a number of rows


# ---------------------------------------------------------------------------------------- the risk of any losses


def cumulative(risk: Any, m: int, rows: int | None) -> tuple[Array, Array]:
    """S at 0, 1/m, ..., 1, below and above the risk's reference, each (m + 1,); the same twice without one.

    ``rows`` is the number of rows that a risk of counted ranks was stated for; None: m.
    """
    if isinstance(risk, ProspectTheory):
        both = risk.rank_weights_below(m), risk.rank_weights_above(m)
        below, above = (np.concatenate([[0.0], np.cumsum(sigma)]) for sigma in both)
        return below, above
    n = rows if rows is not None and isinstance(risk, COUNTED) else m
    S = np.concatenate([[0.0], np.cumsum(risk.rank_weights(n))])
    S = S if n == m else np.interp(np.arange(m + 1) / m, np.arange(n + 1) / n, S)
    return S, S


def risk_of(risk: Any, losses: Array, rows: int | None = None) -> float:
    """R of losses (m,)."""
    z, (below, above) = np.sort(losses), cumulative(risk, len(losses), rows)
    sigma = two_sided(np.diff(below), np.diff(above), getattr(risk, "reference", math.inf), z)
    return float(sigma @ z)


def risk_saved(risk: Any, losses: Array, other: Array, rows: int | None = None) -> tuple[float, float | None]:
    """How much lower R(losses) is than R(other), both (m,) of the same rows, and half the width of its 95 % interval.

    None where five rows carry most of the risk.
    """
    m = len(losses)
    saved = risk_of(risk, other, rows) - risk_of(risk, losses, rows)
    S = cumulative(risk, m, rows)
    if m <= FEW or S[1][-1] - S[1][m - FEW] > 0.5:
        return saved, None
    sides = [_sorted(risk, each) for each in (other, losses)]
    rng = stream(0, "bootstrap", 0)
    drawn = np.empty(DRAWS)
    for k in range(DRAWS):
        counts = np.bincount(rng.integers(m, size=m), minlength=m)
        theirs, ours = (_drawn(S, counts[order], z, under) for order, z, under in sides)
        drawn[k] = theirs - ours
    return saved, 1.96 * float(drawn.std(ddof=1))


def _sorted(risk: Any, losses: Array) -> tuple[Any, Array, Any]:
    """(order, losses in it, which of them do not exceed the reference)."""
    order = np.argsort(losses, kind="stable")
    return order, losses[order], losses[order] <= getattr(risk, "reference", math.inf)


def _drawn(S: tuple[Array, Array], counts: Any, z: Array, under: Any) -> float:
    """R of the sorted losses z (m,), each ``counts`` times."""
    C = np.concatenate([[0], np.cumsum(counts)])
    return float(np.where(under, np.diff(S[0][C]), np.diff(S[1][C])) @ z)


# ---------------------------------------------------------------------------------------- groups of rows


def fairness(truth: Sequence[Array], chosen: Sequence[Array], names: Sequence[str]) -> dict[str, Any]:
    """The fairness metrics of `quorate.fairness` between the largest client and all others, and rates by client.

    ``truth`` and ``chosen`` hold -1 and 1, one array per client.
    """
    from quorate.fairness import fairness_metrics, group_rates

    y, found = np.concatenate(truth), np.concatenate(chosen)
    group = np.repeat(np.asarray(names, dtype=object), [len(t) for t in truth])
    if len(names) < 2 or not ((y > 0).any() or (found > 0).any()):
        return {}
    largest = names[int(np.argmax([len(t) for t in truth]))]
    rates = group_rates(y, found, group)
    return {
        "privileged": largest,
        **fairness_metrics(y, found, group, largest),
        "rates": {str(name): {key: getattr(r, key) for key in ("selected", "tpr", "fpr")} for name, r in rates.items()},
    }


def owners(problem: Problem, losses: Mapping[str, Array]) -> list[dict[str, Any]]:
    """One row for each owner of pooled rows: rows, mean loss, its own risk, its share of the rows and of the weight."""
    risk, n = problem.over_samples, sum(map(len, losses.values()))
    weights = row_weights(risk, np.concatenate([*losses.values()]))
    ends = np.cumsum([len(z) for z in losses.values()])
    return [
        {
            "client": name,
            "n": len(z),
            "loss": float(z.mean()),
            "worst_loss": risk_of(risk, z, n) if by_rank(risk) else float(z.mean()),
            "share": len(z) / n,
            "weight": float(own.sum()),
        }
        for (name, z), own in zip(losses.items(), np.split(weights, ends[:-1]), strict=True)
    ]


def row_weights(risk: Any, losses: Array) -> Array:
    """The weight of every loss (m,) in R; equal ones where losses are not ranked."""
    return risk.weights(losses) if by_rank(risk) else np.full(len(losses), 1 / len(losses))


def heaviest(risk: Any, losses: Mapping[str, Array], client: str, pooled: bool, top: int = 10) -> list[dict[str, Any]]:
    """The rows of one client that weigh most: row (from 0), loss and weight (1 is that of the mean). For their owner.

    ``pooled``: ranked among all rows, else among the client's own.
    """
    ranked = np.concatenate([*losses.values()]) if pooled else losses[client]
    first = sum(len(losses[name]) for name in list(losses)[: list(losses).index(client)]) if pooled else 0
    weights = len(ranked) * row_weights(risk, ranked)[first : first + len(losses[client])]
    order = np.lexsort((-losses[client], -weights))[:top]
    return [{"row": int(r), "loss": float(losses[client][r]), "weight": float(weights[r])} for r in order]


# ---------------------------------------------------------------------------------------- the distribution of losses


def curve(losses: Array, weights: Array) -> dict[str, list[float]]:
    """Sorted losses (n,) in groups of neighbours, five or more each: where a group ends, its mean loss and weight.

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


def curves(problem: Problem, models: Mapping[str, Array], train: Federation) -> dict[str, Any]:
    """The curve of every model's losses on the training rows, each weighed as the problem does at that model."""
    concrete, data = problem.at(train)
    found = {}
    for name, w in models.items():
        losses, weights, risks = [], [], []
        for i in range(data.n_clients):
            block = data.block(i)
            losses.append(concrete.loss.value(concrete.predictor.forward(w, block), block.y)[0])
            weights.append(concrete.row_weights(losses[-1][None], block)[0])
            risks.append(float(weights[-1] @ losses[-1]))
        over = concrete.over_clients.weights(np.array(risks))
        weights = [q * own for q, own in zip(over, weights, strict=True)]
        found[name] = curve(np.concatenate(losses), np.concatenate(weights))
    return found


def of_ranks(config: Config, models: Mapping[str, Array], train: Federation, given: Federation) -> dict[str, Any]:
    """What result.json says of a risk by rank, and of pooled rows: their risk, their owners, their losses.

    ``train`` is what the models were trained on, ``given`` the same rows by client; a Wasserstein ball has none of it.
    """
    from quorate.config_rules import robust
    from quorate.trial import losses_of

    risk, pooled = config.risk, config.problem_.pooled
    if robust(config.robust.radius) or not (risk.by_rank or pooled):
        return {}
    problem = config.problem()
    found: dict[str, Any] = {
        "risk": {"name": risk.title, "words": risk.words(), "convex": risk.convex, "pooled": pooled}
    }
    if pooled:
        w = next(iter(models.values()))
        found["owners"] = owners(problem, dict(zip(given.clients, losses_of(problem, w, given), strict=True)))
    kept = {name: w for k, (name, w) in enumerate(models.items()) if k == 0 or name == "ERM"}
    found["losses"] = curves(problem, kept, train) if risk.by_rank else {}
    return found
