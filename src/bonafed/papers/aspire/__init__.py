"""Jiao, Yang, Song, *Federated distributionally robust optimization with non-convex objectives:
algorithm and analysis*.

A word for each method of its tables: `aspire_ease`, its variants `aspire_cp`, `aspire_synchronous`
(ASPIRE-EASE(-)), `aspire_per` and `aspire_adp`, and the baselines `afl`, `drfa_prox`, `fed_avg`,
`ind` (each client by itself) and `mix_even`. The data, models and constants of the experiments are
in a supplement that was not at hand.
"""

from dataclasses import replace
from typing import Any

import numpy as np

import bonafed as bf
import bonafed.extending as ext


def aspire_ease(**settings: Any) -> bf.ASPIRE:
    """ASPIRE-EASE with what is printed, where it can run: the schedules with nu < 1, losses from
    the pass of the step, k = 20.

    The sign in (12), H, and the oracle are still corrected; T1 and M are not stated in the paper's
    main text, so planes are added and dropped in the whole run. ``settings`` override these.
    """
    printed: dict[str, Any] = {"theory": True, "reuse": True, "every": 20, "resume": False}
    return bf.ASPIRE(**(printed | settings))


def aspire_cp(**settings: Any) -> bf.ASPIRE:
    """ASPIRE-CP: no plane is dropped."""
    return aspire_ease(drop=False, **settings)


def aspire_synchronous(**settings: Any) -> bf.ASPIRE:
    """ASPIRE-EASE(-): every round waits for all clients."""
    return aspire_ease(synchronous=True, **settings)


def aspire_per(local_steps: int = 5, **settings: Any) -> bf.ASPIRE:
    """ASPIRE-EASE_per: several local steps between two contacts."""
    return aspire_ease(local_steps=local_steps, **settings)


def aspire_adp(
    n: int = 1, as_printed: bool = False, **engine: Any
) -> tuple[bf.ASPIRE, bf.VirtualClock]:
    """ASPIRE-ADP: the method, and an engine that waits for all clients or for ``n``, (36), (37).

    The rule is the corrected one; ``as_printed`` it waits for all where one is slow. The threshold
    is a multiple of the clients' mean delay, as the paper suggests.
    """
    wait = bf.Adaptive(n, centre="mean", as_printed=as_printed)
    return aspire_ease(), bf.VirtualClock(wait=wait, **engine)


def afl() -> bf.AFL:
    """Agnostic federated learning."""
    return bf.AFL()


def drfa_prox(strength: float = 0.1) -> bf.DRFA:
    """DRFA-Prox; the paper states no strength."""
    return bf.DRFA(strength=strength)


def fed_avg() -> bf.FedAvg:
    """Federated averaging."""
    return bf.FedAvg()


def mix_even(problem: bf.Problem, fed: bf.Federation, **options: Any) -> bf.Solution:
    """The model of the least mean risk of all clients; ``options`` of `solve`."""
    return ext.fit(replace(problem, over_clients=bf.Mean()), fed, **options)


def ind(problem: bf.Problem, fed: bf.Federation, **options: Any) -> dict[str | int, bf.Solution]:
    """Each client's model from its own rows, of all classes; ``options`` of `solve`."""
    if problem.loss.targets != "real":  # one client may lack some of the classes
        fed = replace(fed, classes=np.asarray(ext.classes_of(fed)))
    ball, found = problem.at(fed)[0].over_samples, {}
    for i, name in enumerate(fed.clients):
        own = problem
        if isinstance(ball, bf.WassersteinBall):  # with the client's radius
            own = replace(
                problem, over_samples=replace(ball, radius=float(np.asarray(ball.radius)[i]))
            )
        found[name] = mix_even(own, fed.restrict(name), **options)
    return found
