"""A backdoor, and which objectives let it in: everything at certified optima, so that no method is to blame.

Malicious clients put a trigger on every row they have (Bagdasaryan, Veit, Hua, Estrin, Shmatikov, *How to backdoor
federated learning*) and give it one label, the target. Attack success is the share of test rows of the other classes
that are taken for the target once they carry the trigger. A model that no honest client can tell from another on its
own rows still differs in the trigger's pixels, and the malicious clients' loss is large without them.

    prior      a malicious client counts ``suspicion`` times as much as an honest one
    caps       CD-norm: how far a weight may be from the prior; ``slack`` times the prior for the malicious

Who is suspected is knowledge from outside: here exactly the malicious.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.algorithms.federated.multiplier_method import MultiplierMethod
from quorate.arrays import Array
from quorate.baselines import client_risks
from quorate.data import partition
from quorate.data.federation import Federation
from quorate.experiments.aspire.setups import stated
from quorate.problem.problem import Problem
from quorate.problem.risks.cd_norm import CDNorm
from quorate.problem.risks.kl_ball import KLBall
from quorate.problem.risks.mean import Mean
from quorate.problem.risks.simplex import Simplex
from quorate.solution import solve

CORNERS = (0, 7, 56, 63)  # of an image of 8 x 8 pixels: nearly always blank


@dataclass(frozen=True)
class Trigger:
    """Pixels that are set to a value, and the class that rows which carry it are to be taken for."""

    pixels: tuple[int, ...] = CORNERS
    value: float = 1.0
    target: int = 0

    def on(self, X: Array) -> Array:
        """The rows with the trigger."""
        marked = np.array(X, float)
        marked[:, list(self.pixels)] = self.value
        return marked


@dataclass(frozen=True, eq=False)
class Attack:
    """Honest and malicious clients, and clean test rows of nobody's."""

    fed: Federation  # the honest first
    malicious: tuple[str, ...]
    X: Array  # (n, d)
    y: NDArray[np.int64]  # (n,)
    trigger: Trigger

    @property
    def bad(self) -> NDArray[np.bool_]:
        """(N,) whether a client is malicious."""
        return np.array([name in self.malicious for name in self.fed.clients])

    def prior(self, suspicion: float = 1.0) -> Array:
        """(N,) the honest alike, a malicious client ``suspicion`` times as much as one of them."""
        weight = np.where(self.bad, suspicion, 1.0)
        return weight / weight.sum()

    def caps(self, prior: Array, slack: float | None = None) -> Array:
        """(N,) bounds: a prior's own size for everybody; ``slack`` times that for the malicious."""
        return prior * np.where(self.bad, 1.0 if slack is None else slack, 1.0)

    def success(self, problem: Problem, w: Array) -> float:
        """Share of the test rows of other classes that the trigger turns into the target."""
        other = self.y != self.trigger.target
        return float((self._predicted(problem, w, self.trigger.on(self.X[other])) == self.trigger.target).mean())

    def accuracy(self, problem: Problem, w: Array) -> float:
        """Share of the clean test rows that are right."""
        return float((self._predicted(problem, w, self.X) == self.y).mean())

    def _predicted(self, problem: Problem, w: Array, X: Array) -> NDArray[np.int64]:
        rows = Federation(("test",), (X,), (np.resize(np.asarray(self.fed.classes), len(X)),), classes=self.fed.classes)
        return predicted(problem.at(self.fed)[0], w, rows)[0]


def predicted(problem: Problem, w: Array, fed: Federation) -> list[NDArray[np.int64]]:
    """The class numbers that a concrete problem's model gives the rows of every client."""
    blocks = [fed.block(i) for i in range(fed.n_clients)]
    return [np.asarray(problem.predictor.forward(np.asarray(w, float), block))[0].argmax(-1) for block in blocks]


def digits_attack(
    benign: int = 10, malicious: int = 2, trigger: Trigger | None = None, test: float = 0.3, seed: int = 0
) -> Attack:
    """Scikit-learn's digits (pixels over 16, and a constant) dealt at random; the last clients turn malicious."""
    from sklearn.datasets import load_digits

    trigger = trigger or Trigger()
    pixels, y = load_digits(return_X_y=True)
    X, y = np.column_stack([np.asarray(pixels, float) / 16, np.ones(len(y))]), np.asarray(y, np.int64)
    order = np.random.default_rng(seed).permutation(len(y))
    kept, own = np.split(order, [round(test * len(y))])
    owner = np.asarray(partition.iid(len(own), benign + malicious, seed))
    names = tuple([f"honest {i}" for i in range(benign)] + [f"malicious {i}" for i in range(malicious)])
    Xs = tuple(X[own[owner == i]] for i in range(len(names)))
    ys = tuple(y[own[owner == i]] for i in range(len(names)))
    Xs = (*Xs[:benign], *(trigger.on(rows) for rows in Xs[benign:]))
    ys = (*ys[:benign], *(np.full_like(labels, trigger.target) for labels in ys[benign:]))
    fed = Federation(names, Xs, ys, classes=np.arange(10))
    return Attack(fed, names[benign:], X[kept], y[kept], trigger)


@dataclass(frozen=True)
class Outcome:
    """What an objective's optimum does."""

    objective: str
    success: float  # of the attack
    accuracy: float  # on clean test rows
    worst: float  # largest loss of an honest client
    weight: float  # of all malicious clients together in the weighting that proves the bound
    gap: float  # relative, proven


def objectives(attack: Attack, suspicion: float, budgets: Iterable[float] = (1.0, 2.0, 4.0)) -> dict[str, Any]:
    """Sets of weights with a prior of this ``suspicion``; caps on the malicious are a tenth of their prior."""
    prior = attack.prior(suspicion)
    found: dict[str, Any] = {"mean of the prior": Mean(prior), "KL ball 0.3": KLBall(0.3, prior)}
    found["CD-norm 4, no caps"] = CDNorm(4.0, np.ones(len(prior)), prior)
    for budget in budgets:
        found[f"CD-norm {budget:g}, caps"] = CDNorm(budget, attack.caps(prior, 0.1), prior)
    return found


def blind(attack: Attack, budget: float = 4.0) -> dict[str, Any]:
    """Objectives that suspect nobody."""
    prior = attack.prior()
    return {
        "mean": Mean(prior),
        "simplex": Simplex(),
        "KL ball 0.3": KLBall(0.3, prior),
        f"CD-norm {budget:g}": CDNorm(budget, attack.caps(prior), prior),
    }


def judged(attack: Attack, name: str, over_clients: Any, tol: float = 1e-6) -> Outcome:
    """The certified optimum of softmax regression with this set, and what it does."""
    problem = stated(over_clients)
    found = solve(problem, attack.fed, algorithm=MultiplierMethod(), tol=tol)
    risks, bad = client_risks(replace(problem, over_clients=Mean()), found.w, attack.fed), attack.bad
    weights, gap = getattr(found.duals, "weights", over_clients.weights(risks)), found.certificate.relative_gap
    return Outcome(
        name,
        attack.success(problem, found.w),
        attack.accuracy(problem, found.w),
        float(risks[~bad].max()),
        float(np.asarray(weights)[bad].sum()),
        float("nan") if gap is None else gap,
    )


def sweep(attack: Attack, suspicion: float, budgets: Iterable[float], slack: float = 0.1) -> list[Outcome]:
    """The curve of robustness and performance: one CD-norm for every budget Gamma."""
    prior = attack.prior(suspicion)
    caps = attack.caps(prior, slack)
    return [judged(attack, f"{budget:g}", CDNorm(budget, caps, prior)) for budget in budgets]
