"""The step sizes and bounds of ASPIRE-EASE: the user's, chosen from the first answers, or by the
schedules of its theory.

    kappa = 3 L / N,  eta_z = 1 / (N kappa),  rho_2 = kappa / 2,  eta_w = 1 / (kappa + omega_j L_j)
    rho_1 = share slow wide / (|A| f),  eta_h = share f / 2

L is the mean curvature and f the mean loss at the first model. kappa, 1 / eta_w and rho_2 are of
the size 1/N because omega_j is: everything else makes progress of the size 1/N. With share = |Q| /
N, N answers count alike, one by one or together. |A| planes push sum_l lambda_l together, so each
moves |A| times less; wide = 0.2 / spread within [1, 2], as planes that differ little (spread: mean
||p_l - p||^2) change little. The paper bounds rho_1 by 1/tau; here slow = (6 / age)^(3/2) within
[1/32, 1], where age is the longest time between two answers of one worker, counted in answers of
all workers over N: without it lambda runs ahead of a worker who cannot follow.

Theorem 1 and Setting 2: c = nu / (rho (t + 1)^(1/6)), and one eta for w, z and h. As printed (nu =
1) its two conditions on rho exclude each other for every L > 0; rho = 2 (1 - nu) / L with nu < 1
meets both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from bonafed.extending import Array, Form, record
from bonafed.papers.aspire.client import Gauged

GAMMA = 2.0  # gamma of Theorem 1, its least value
# right in experiments with one worker up to 50 times slower than the others
AGE, POWER, LEAST = 6.0, 1.5, 1 / 32
NARROW = 0.2  # spread of planes below which they may move faster
WIDE = 1000.0  # times the distance (loss / curvature)^(1/2), within which a model lies


@record
class Steps:
    """The step sizes and bounds of a run, which are chosen once, from the first answers."""

    workers: Annotated[int, Form(most="N")]  # N
    kappa: float
    rho1: float  # per N answers and plane, unless it is the user's
    rho2: float
    eta_w: float | None  # None: each worker's own
    eta_z: float
    eta_h: float  # per N answers, unless it is the user's
    bounds: tuple[float, ...]  # alpha_1 to alpha_4: of |w|, |z|; of h; of lambda; of |phi|
    floor: float  # of h
    smooth: float  # L of Assumption 1
    loss: float  # mean |f_j| at the first model
    gradient: float  # ||omega_j f_j'|| over all workers there
    length: float  # (loss / curvature)^(1/2): the size of a step that matters


@dataclass(frozen=True)
class Now:
    """The step sizes of one iteration."""

    eta_w: float | None
    eta_z: float
    eta_h: float
    rho1: float
    rho2: float
    c1: float
    c2: float


class StepSettings:
    """The settings of ``ASPIRE`` on which its steps depend; None is for a number chosen here."""

    theory: bool
    nu: float
    until: float
    max_planes: int | None
    kappa: float | None
    rho1: float | None
    rho2: float | None
    eta_w: float | None
    eta_z: float | None
    eta_h: float | None
    smooth: float | None
    c1: float
    c2: float
    bounds: tuple[float | None, ...]
    floor: float


def chosen(settings: StepSettings, up: Gauged, omega: Array, w: Array) -> Steps:
    """The settings' step sizes and bounds; where these are None, ones from the first losses,
    gradients and curvatures.
    """
    n = len(up.loss)
    loss = max(float(np.abs(up.loss).mean()), 1e-300)
    bend = max(float(up.curvature.mean()), 1e-12 * float((up.length**2).mean()) / loss, 1e-300)
    length = math.sqrt(loss / bend)
    kappa = settings.kappa or 3 * bend / n
    smooth = settings.smooth or _smooth(kappa, up, omega)
    rho = 2 * (1 - settings.nu) / smooth if settings.theory else None
    alphas = (
        float(np.abs(w).max(initial=0.0)) + WIDE * length,
        10 * float(np.abs(up.loss).max()),
        2.0,
        10 * float(up.steep.max()),
    )
    bounds = tuple(
        max(a, 1e-300) if b is None else b for a, b in zip(alphas, settings.bounds, strict=True)
    )
    return Steps(
        workers=n,
        kappa=kappa,
        rho1=settings.rho1 or rho or 1 / loss,
        rho2=settings.rho2 or rho or kappa / 2,
        eta_w=settings.eta_w,
        eta_z=settings.eta_z or 1 / (n * kappa),
        eta_h=settings.eta_h or loss / 2,
        bounds=bounds,
        floor=settings.floor,
        smooth=smooth,
        loss=loss,
        gradient=float(np.sqrt(((omega * up.length) ** 2).sum())),
        length=length,
    )


def _smooth(kappa: float, up: Gauged, omega: Array) -> float:
    """An estimate of L of Assumption 1 at the first model: the norms of the blocks of the second
    derivative of L_p.
    """
    n = len(up.loss)
    within = (n + 1) * kappa + float((omega * up.curvature).max())
    return within + float(np.sqrt(((omega * up.length) ** 2).sum())) + 1 + math.sqrt(n + 1)


def steps_at(
    settings: StepSettings, steps: Steps, t: int, planes: Array, share: float, age: float
) -> Now:
    """The step sizes of iteration t with these planes (K, N); the module explains ``age`` and
    ``share``.
    """
    if settings.theory:
        return _by_theory(settings, steps, t, len(planes))
    rho1 = steps.rho1
    if settings.rho1 is None:
        slow = min(1.0, max((AGE / max(age, 1.0)) ** POWER, LEAST))
        spread = float(((planes - planes.mean(0)) ** 2).sum()) / len(planes)
        rho1 *= share * slow * min(2.0, max(NARROW / max(spread, 1e-300), 1.0)) / len(planes)
    eta_h = steps.eta_h * (share if settings.eta_h is None else 1.0)
    return Now(steps.eta_w, steps.eta_z, eta_h, rho1, steps.rho2, settings.c1, settings.c2)


def _by_theory(settings: StepSettings, steps: Steps, t: int, planes: int) -> Now:
    """Theorem 1 with the schedules of Setting 2, repaired by nu < 1; the settings c_1 and c_2 are
    their lower ends.
    """
    n, rho1, rho2, L = steps.workers, steps.rho1, steps.rho2, steps.smooth
    fade = settings.nu / (t + 1) ** (1 / 6)
    c1, c2 = max(fade / rho1, settings.c1), max(fade / rho2, settings.c2)
    low1, low2, most = c1, c2, planes
    # the constant step after T1: M planes, and the lower ends of c_1 and c_2 where there are any
    if t >= settings.until:
        most = settings.max_planes or planes
        low1, low2 = settings.c1 or c1, settings.c2 or c2
    tail = 8 * GAMMA * L**2 * (most / (rho1 * low1**2) + n / (rho2 * low2**2))
    eta = 2 / (L + (rho1 * most + rho2 * n) * L**2 + tail)  # Theorem 1
    return Now(
        settings.eta_w or eta, settings.eta_z or eta, settings.eta_h or eta, rho1, rho2, c1, c2
    )
