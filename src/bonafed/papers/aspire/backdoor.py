"""A backdoor attack, and which objectives let it in, all measured at certified optima.

Since every model is a certified optimum, no training method is to blame. Malicious clients put a
trigger on each of their rows (Bagdasaryan, Veit, Hua, Estrin, Shmatikov, *How to backdoor federated
learning*) and give it one label, the target. Attack success is the share of test rows of the other
classes that are predicted as the target once they carry the trigger. Two models that agree on the
rows of all honest clients can still differ in the trigger's pixels, and the malicious clients' loss
is large without them.

    prior  a malicious client counts ``suspicion`` times as much as an honest one
    caps   of the CD-norm: how far a weight may be from the prior; ``slack`` times the prior for
           malicious clients

The suspicion is knowledge from outside; here exactly the malicious clients are suspected.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bonafed as bf
import bonafed.extending as ext
from bonafed.data import partition
from bonafed.extending import Array
from bonafed.papers.aspire.race import client_risks, digits, stated

CORNERS = (0, 7, 56, 63)  # of an image of 8 x 8 pixels: nearly always blank


@dataclass(frozen=True)
class Trigger:
    """Pixels that are set to a value, and the target class of rows that carry them."""

    pixels: tuple[int, ...] = CORNERS
    value: float = 1.0
    target: int = 0

    def on(self, X: Array) -> Array:
        """The rows with the trigger on them."""
        marked = np.array(X, float)
        marked[:, list(self.pixels)] = self.value
        return marked


@dataclass(frozen=True, eq=False)
class Attack:
    """Honest and malicious clients, and clean test rows that no client holds."""

    fed: bf.Federation  # the honest first
    malicious: tuple[str, ...]
    X: Array  # (n, d)
    y: NDArray[np.int64]  # (n,)
    trigger: Trigger

    @property
    def bad(self) -> NDArray[np.bool_]:
        """Whether each client is malicious, (N,)."""
        return np.array([name in self.malicious for name in self.fed.clients])

    def prior(self, suspicion: float = 1.0) -> Array:
        """Client weights (N,): a malicious client has ``suspicion`` times that of an honest one."""
        weight = np.where(self.bad, suspicion, 1.0)
        return weight / weight.sum()

    def caps(self, prior: Array, slack: float = 1.0) -> Array:
        """Bounds (N,) on the weights' moves: the prior, times ``slack`` for malicious clients."""
        return prior * np.where(self.bad, slack, 1.0)

    def success(self, problem: bf.Problem, w: Array) -> float:
        """The share of test rows of other classes that the trigger turns into the target."""
        other, target = self.y != self.trigger.target, self.trigger.target
        return float((self._predicted(problem, w, self.trigger.on(self.X[other])) == target).mean())

    def accuracy(self, problem: bf.Problem, w: Array) -> float:
        """The share of clean test rows that are predicted correctly."""
        return float((self._predicted(problem, w, self.X) == self.y).mean())

    def _predicted(self, problem: bf.Problem, w: Array, X: Array) -> NDArray[np.int64]:
        """The class numbers that the model gives the rows X."""
        return ext.scores(problem.at(self.fed)[0].predictor, w, X).argmax(-1)


def digits_attack(
    benign: int = 10,
    malicious: int = 2,
    trigger: Trigger | None = None,
    test: float = 0.3,
    seed: int = 0,
) -> Attack:
    """Scikit-learn's digits dealt at random to clients, the last of which turn malicious.

    Features are the pixels over 16 and a constant.
    """
    trigger, (pixels, y) = trigger or Trigger(), digits()
    X = ext.with_ones(pixels)
    order = np.random.default_rng(seed).permutation(len(y))
    held_out, train = np.split(order, [round(test * len(y))])
    owner = np.asarray(partition.iid(len(train), benign + malicious, seed))
    names = (*(f"honest {i}" for i in range(benign)), *(f"malicious {i}" for i in range(malicious)))
    attacked = train[owner >= benign]
    X[attacked], y[attacked] = trigger.on(X[attacked]), trigger.target
    rows = [train[owner == i] for i in range(len(names))]
    Xs, ys = tuple(X[k] for k in rows), tuple(y[k] for k in rows)
    fed = bf.Federation(names, Xs, ys, classes=np.arange(10))
    return Attack(fed, names[benign:], X[held_out], y[held_out], trigger)


@dataclass(frozen=True)
class Outcome:
    """The certified optimum of one objective under the attack."""

    objective: str
    success: float  # of the attack
    accuracy: float  # on clean test rows
    worst: float  # largest loss of an honest client
    weight: float  # of all malicious clients together in the weighting that proves the bound
    gap: float  # relative, proven


def objectives(
    attack: Attack, suspicion: float, budgets: Iterable[float] = (1.0, 2.0, 4.0)
) -> dict[str, Any]:
    """Sets of client weights whose prior has this ``suspicion``, by name.

    Caps on the malicious clients are a tenth of their prior.
    """
    prior = attack.prior(suspicion)
    caps = attack.caps(prior, 0.1)
    return {
        "mean of the prior": bf.Mean(prior),
        "KL ball 0.3": bf.KLBall(0.3, prior),
        "CD-norm 4, no caps": bf.CDNorm(4.0, np.ones(len(prior)), prior),
        **{f"CD-norm {budget:g}, caps": bf.CDNorm(budget, caps, prior) for budget in budgets},
    }


def blind(attack: Attack) -> dict[str, Any]:
    """Sets of client weights that suspect nobody, by name."""
    prior = attack.prior()
    sets: dict[str, Any] = {"mean": bf.Mean(prior), "simplex": bf.Simplex()}
    sets["KL ball 0.3"] = bf.KLBall(0.3, prior)
    return sets | {"CD-norm 4": bf.CDNorm(4.0, attack.caps(prior), prior)}


def judged(attack: Attack, name: str, over_clients: Any, tol: float = 1e-6) -> Outcome:
    """The certified optimum of softmax regression with this set of weights, under the attack."""
    problem = stated(over_clients)
    solution = ext.fit(problem, attack.fed, algorithm=bf.MultiplierMethod(), tol=tol)
    risks = client_risks(replace(problem, over_clients=bf.Mean()), solution.w, attack.fed)
    weights = getattr(solution.duals, "weights", over_clients.weights(risks))
    bad, gap = attack.bad, solution.certificate.relative_gap
    shares = attack.success(problem, solution.w), attack.accuracy(problem, solution.w)
    numbers = float(risks[~bad].max()), float(np.asarray(weights)[bad].sum())
    return Outcome(name, *shares, *numbers, float("nan") if gap is None else gap)


def sweep(
    attack: Attack, suspicion: float, budgets: Iterable[float], slack: float = 0.1
) -> list[Outcome]:
    """The trade-off of robustness and accuracy: one CD-norm for every budget Gamma."""
    prior = attack.prior(suspicion)
    caps = attack.caps(prior, slack)
    return [judged(attack, f"{budget:g}", bf.CDNorm(budget, caps, prior)) for budget in budgets]
