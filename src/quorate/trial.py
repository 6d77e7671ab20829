"""A model beside its baselines: the data of a run, the models, and whether its risk helped.

    ERM   mean over clients of mean losses           AFL   worst weighting near the prior of mean losses
    DRFA  largest of the clients' mean losses        WAFL  one Wasserstein ball round the mixture of all clients
    unconstrained  the mean loss without constraints, all rows in the objective

are special cases of the same problem. Models are compared on rows that none was trained on: held-out rows of the
training clients, and clients that took no part, as they are and drifted. Rows are paired: an exact sign test says what
the counts of rows that only one model gets right can show, an interval what the difference of mean losses can. A model
of a risk by rank is also judged by that risk of the held-out losses (`quorate.rank_trial`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate.algorithms.federated.aspire import ASPIRE
from quorate.algorithms.federated.async_dro import AsyncDRO
from quorate.arrays import Array
from quorate.bands import Bands
from quorate.charge import was_begun
from quorate.config import Config
from quorate.constrained_trial import asked, free, summary
from quorate.data.federation import Federation
from quorate.predict import scores
from quorate.problem.problem import Problem
from quorate.problem.risks import Mean, Simplex
from quorate.problem.risks.mean import among
from quorate.problem.risks.ranks import by_rank
from quorate.problem.wasserstein import WassersteinBall
from quorate.rank_trial import fairness, risk_of, risk_saved
from quorate.reached import Reached
from quorate.verdict import verdict

if TYPE_CHECKING:
    from quorate.parts import Parts
    from quorate.solution import Solution

# ---------------------------------------------------------------------------------------- models


def erm(problem: Problem, fed: Federation) -> tuple[Problem, Federation]:
    """The mean loss of every client, averaged by the prior."""
    over = among(problem.over_clients, fed.clients, getattr(problem.privacy, "sizes", None))
    return replace(free(problem), over_samples=Mean(), over_clients=Mean(getattr(over, "prior", "uniform"))), fed


def afl(problem: Problem, fed: Federation) -> tuple[Problem, Federation]:
    """Robust to the mix of clients, not to noise within them."""
    over = Simplex() if isinstance(problem.over_clients, Mean) else problem.over_clients
    return replace(free(problem), over_samples=Mean(), over_clients=over), fed


def drfa(problem: Problem, fed: Federation) -> tuple[Problem, Federation]:
    """The largest mean loss of a client."""
    return replace(free(problem), over_samples=Mean(), over_clients=Simplex()), fed


def wafl(problem: Problem, fed: Federation) -> tuple[Problem, Federation]:
    """One ball round the mixture; its radius is the mean of the clients' by the prior. Ranks are those of all rows."""
    from quorate.problem.risks import resolve_prior

    problem = free(problem)
    if by_rank(problem.over_samples):  # rows of different weights have no ranks
        return replace(problem, over_clients=Mean()), fed.pooled()
    prior = resolve_prior(getattr(problem.over_clients, "prior", "uniform"), fed.sizes.astype(float), fed.clients)
    ball = problem.at(fed)[0].over_samples
    if isinstance(ball, WassersteinBall):
        ball = replace(problem.over_samples, radius=float(prior @ np.asarray(ball.radius)))
    return replace(problem, over_samples=ball, over_clients=Mean()), fed.pooled(prior)


def unconstrained(problem: Problem, fed: Federation) -> tuple[Problem, Federation]:
    """The same problem without constraints; where one class was in the objective, the mean over all rows."""
    return free(problem), fed


UNAWARE = (ASPIRE, AsyncDRO)  # methods that do not know the exact objective on their way

BASELINES: dict[str, Callable[[Problem, Federation], tuple[Problem, Federation]]] = {
    "erm": erm,
    "afl": afl,
    "drfa": drfa,
    "wafl": wafl,
    "unconstrained": unconstrained,
}


def called(name: str) -> str:
    """What a baseline is called in tables."""
    return name if name == "unconstrained" else name.upper()


def label(problem: Problem) -> str:
    """What the main model is called beside the baselines: "private", "constrained", or a risk by rank."""
    from quorate.config_risks import RISKS

    if problem.privacy is not None:
        return "private"
    if asked(problem):
        return "constrained"
    kind = type(problem.over_samples).__name__
    named = next((name for name, (known, *_) in RISKS.items() if known == kind), "model")
    return "DRFL" if isinstance(problem.over_samples, WassersteinBall) else "model" if named == "mean" else named


def train(
    config: Config,
    parts: Parts,
    *,
    problem: Problem | None = None,
    folder: Path | None = None,
    resume: bool = False,
    watch: Callable[[str], Callable[[dict[str, Any], Any], None]] | None = None,
    done: Callable[[str, Solution], None] | None = None,
) -> dict[str, Solution]:
    """The model and then its baselines by name; stops at the first that is interrupted.

    ``problem`` is that of the configuration unless given. ``folder`` holds one checkpoint for each model; with
    ``resume`` those that exist are gone on from. The configuration is settled: see `Config.settled`.
    """
    from quorate.rounds import Stop
    from quorate.solution import solve

    problem, models = problem or config.problem(), {}
    tasks = {label(problem): (problem, parts.train)}
    tasks |= {called(name): BASELINES[name](problem, parts.train) for name in dict.fromkeys(config.report.compare_with)}
    for k, (name, (stated, fed)) in enumerate(tasks.items()):
        path = None if folder is None else folder / f"{name.lower()}.checkpoint"
        arguments = config.solve_arguments(path, clock=fed.clients == parts.train.clients)
        if k:  # baselines are solved to the same tolerance by the default algorithm
            arguments |= {"algorithm": None} | ({"max_rounds": None} if problem.privacy is not None else {})
        again = resume and was_begun(path)
        bands = Bands(path and path.with_suffix(".bands"), again)
        reached = _observer(config, stated, fed, arguments, (problem, parts.train), path, again)
        see = [each for each in (bands, reached, watch and watch(name)) if each is not None]
        found = bands.beside(solve(stated, fed, **arguments, watch=see, resume=again))
        models[name] = found if reached is None else reached.beside(found)
        if models[name].outcome.stop is Stop.INTERRUPTED:
            break
        if done is not None:
            done(name, models[name])
    return models


def _observer(
    config: Config, stated: Problem, fed: Federation, arguments: Mapping[str, Any], own: Any, path: Any, again: bool
) -> Reached | None:
    """Who looks at what the method has reached, where it does not know."""
    from quorate.default import default_algorithm
    from quorate.solution import configure

    if stated.privacy is not None or asked(stated) or fed.clients != own[1].clients:
        return None
    concrete, data = stated.at(fed)
    engine = arguments["engine"]
    chosen = arguments["algorithm"] or default_algorithm(concrete, data, engine)
    if not config.engine.clocked and not isinstance(chosen, UNAWARE):
        return None
    algorithm = configure(chosen, concrete, data, arguments["tol"], None, arguments["max_rounds"], None)
    keep, file = getattr(engine, "keep_rows", 1), path and path.with_suffix(".reached")
    return Reached(own[0], own[1], lambda state: algorithm.answer(state)[0], keep, file, again)


# ---------------------------------------------------------------------------------------- judging


def _rows(problem: Problem, w: Array, fed: Federation) -> list[tuple[Array, Array, Array]]:
    """For every client the loss of each row, its merit (1 or 0, right or wrong; or minus the absolute error), and y."""
    found = []
    for X, y in zip(fed.X, fed.y, strict=True):
        prediction = scores(problem.predictor, w, X)
        if problem.loss.targets == "class":
            coded = np.searchsorted(fed.classes, y).astype(float)  # type: ignore[arg-type]
            merit = (prediction.argmax(1) == coded).astype(float)
        elif problem.loss.targets == "sign":
            coded = np.where(y == fed.classes[1], 1.0, -1.0)  # type: ignore[index]
            merit = (np.where(prediction > 0, 1.0, -1.0) == coded).astype(float)
        else:
            coded = y.astype(float)
            merit = -np.abs(prediction - coded)
        found.append((problem.loss.value(prediction, coded), merit, coded))
    return found


def losses_of(problem: Problem, w: Array, fed: Federation) -> list[Array]:
    """The losses of every client's rows."""
    return [loss for loss, *_ in _rows(problem, w, fed)]


def measure(problem: Problem, w: Array, fed: Federation, trained: int | None = None) -> dict[str, Any]:
    """Mean loss and accuracy (or mean absolute error) over all rows, and those of the worst client.

    With a risk by rank also that risk of the losses, and for two classes the fairness between clients; ``trained`` is
    the number of rows that a risk of counted ranks was stated for.
    """
    rows = _rows(problem, w, fed)
    name, sign = ("error", -1.0) if problem.loss.targets == "real" else ("accuracy", 1.0)
    clients = [
        {"client": c, "n": len(merit), "loss": float(loss.mean()), name: float(sign * merit.mean())}
        for c, (loss, merit, _) in zip(fed.clients, rows, strict=True)
    ]
    worst = max(clients, key=lambda row: row["loss"])
    least = min(clients, key=lambda row: sign * row[name])
    found = {
        "n": int(fed.sizes.sum()),
        "loss": float(np.concatenate([loss for loss, *_ in rows]).mean()),
        "worst_loss": worst["loss"],
        "worst_loss_client": worst["client"],
        name: float(sign * np.concatenate([merit for _, merit, _ in rows]).mean()),
        f"worst_{name}": least[name],
        f"worst_{name}_client": least["client"],
        "clients": clients,
    }
    return found | _by_rank(problem, rows, fed, clients, trained) | summary(problem, w, fed)


def _by_rank(
    problem: Problem,
    rows: list[tuple[Array, Array, Array]],
    fed: Federation,
    clients: list[dict[str, Any]],
    n: int | None,
) -> dict[str, Any]:
    """What `measure` adds for a risk by rank; the clients get their own risks."""
    risk = problem.over_samples
    if not by_rank(risk):
        return {}
    for client, (loss, *_) in zip(clients, rows, strict=True):
        client["risk"] = risk_of(risk, loss, n)
    found: dict[str, Any] = {"risk": risk_of(risk, np.concatenate([loss for loss, *_ in rows]), n)}
    if problem.loss.targets == "sign":
        truth = [y for *_, y in rows]
        chosen = [np.where(merit > 0, y, -y) for _, merit, y in rows]
        found["fairness"] = fairness(truth, chosen, fed.clients)
    return found


def sign_test(more: int, fewer: int) -> float:
    """Two-sided p of so uneven a split if either were as likely: exact binomial."""
    n, k = more + fewer, min(more, fewer)
    return min(1.0, sum(math.comb(n, j) for j in range(k + 1)) / 2 ** (n - 1)) if n else 1.0


def paired(problem: Problem, w: Array, other: Array, fed: Federation, trained: int | None = None) -> dict[str, Any]:
    """Rows that only one of two models gets right (regression: that it gets closer), and how their losses differ.

    ``less`` is how much lower the first model's mean loss is, ``margin`` half the width of its 95 % interval (normal);
    ``risk_less`` and ``risk_margin`` are those of a risk by rank.
    """
    both = list(zip(_rows(problem, w, fed), _rows(problem, other, fed), strict=True))
    merit = np.concatenate([a[1] - b[1] for a, b in both])
    saved = np.concatenate([b[0] - a[0] for a, b in both])
    better, worse = int((merit > 0).sum()), int((merit < 0).sum())
    margin = 1.96 * float(saved.std(ddof=1)) / math.sqrt(len(saved)) if len(saved) > 1 else math.inf
    p = sign_test(better, worse)
    found: dict[str, Any] = {"better": better, "worse": worse, "p": p, "less": float(saved.mean()), "margin": margin}
    if by_rank(problem.over_samples):
        ours, theirs = (np.concatenate([pair[k][0] for pair in both]) for k in (0, 1))
        less, width = risk_saved(problem.over_samples, ours, theirs, trained)
        found |= {"risk_less": less, "risk_margin": width}
    return found


def evaluate(
    problem: Problem, models: Mapping[str, Array], tests: Mapping[str, Federation], trained: int | None = None
) -> dict[str, Any]:
    """Every model on every set, the first model paired with each other one, and the verdict in words.

    ``trained`` is the number of rows that a risk of counted ranks was stated for.
    """
    main, *others = models
    measures = [
        {"set": s, "model": m, **measure(problem, w, fed, trained)}
        for s, fed in tests.items()
        for m, w in models.items()
    ]
    pairs = [
        {"set": s, "model": main, "other": m, **paired(problem, models[main], models[m], fed, trained)}
        for s, fed in tests.items()
        for m in others
    ]
    return {"measures": measures, "pairs": pairs, "verdict": verdict(measures, pairs)}
