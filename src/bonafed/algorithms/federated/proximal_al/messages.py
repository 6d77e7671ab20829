"""Messages and memories of the proximal augmented Lagrangian method.

Models, slack variables and what belongs to them are in units: ``units`` times them is the model.
"""

from __future__ import annotations

from typing import Annotated

from bonafed.arrays import Array
from bonafed.codec import Form
from bonafed.rounds import Each, Max, Sum, record


@record
class Settle:
    """The server's w^{k+1}: update the multipliers and begin the next subproblem.

    These are lines 6-8 of Algorithm 1.
    """

    w: Annotated[Array, Form("D")]
    slack: Annotated[Each, Form("N, p_c")]
    prior: Annotated[Each, Form("N")] | None  # q_i; with the first message
    beta: float  # of the subproblem that ends
    next_beta: float  # of the one that begins
    sigma: float  # 1 / ((n + 1) beta) of that one
    rho: Annotated[Each, Form("N")]
    restart: bool  # Algorithm 2, line 1: the copies start at w again


@record
class Settled:
    """The answer to ``Settle``, which Algorithm 1 needs after a subproblem."""

    change: Each  # (n,) max |mu_i^{k+1} - mu_i^k| times the constraints' sizes, line 8
    product: Sum  # (n,) sum |mu_i c_i|
    # (n, D) sum y_i c_i', y the change of the multipliers: near 0 with <y, c> > 0, no model is
    # feasible
    push: Sum
    bite: Sum  # (n,) sum y_i c_i
    shifted: Sum | None  # (n, D) rho_i u~_i of Algorithm 2, line 1, at a restart
    slack: Each | None  # (n, p_c) u~_i's part for s
    # these three are not in units, and set them:
    gradient: Sum | None  # (n, D) squares of q_i f_i'; with the first answer
    curvature: Sum | None  # (n, D) the diagonal of the Lagrangian's Hessian
    steep: Sum | None  # (n, p_c, D) squares of c~_i'


@record
class Refine:
    """Ask for one iteration of Algorithm 2."""

    w: Annotated[Array, Form("D")]
    slack: Annotated[Each, Form("N, p_c")]
    units: Annotated[Array, Form("D + p_c")] | None  # where they are new
    beta: float
    sigma: float  # 1 / ((n + 1) beta)
    rho: Annotated[Each, Form("N")]
    tol: float  # eps_{t+1}
    room: float  # what (23) leaves to the clients' residuals
    # (h,) weights, sum 1, of the last h points from which (19) sets out; [1.] is Algorithm 2
    mix: Annotated[Array, Form("mix")]


@record
class Refined:
    """The answer to ``Refine``, which Algorithm 2 needs, with numbers to plot."""

    shifted: Sum  # (n, D) rho_i u~_i, (21)
    slack: Each  # (n, p_c) u~_i's part for s
    residual: Sum  # (n,) eps~_i, (22)
    value: Sum  # (n,) q_i f_i(w)
    tangent: Sum  # (n,) the tangent of the Lagrangian at u_i, at w
    violation: Each  # (n,) of c_i(w)
    excess: Max  # (n,) the same over the constraints' sizes
    shared: Sum  # (n, p_c) c~_i(w)
    primal: Sum  # (n,) ||z_i - w||^2
    drift: Sum  # (n, D) rho_i (u_i - w)
    slack_drift: Each  # (n, p_c) s_i's part of u_i - w
    inner: Sum  # (n, h + 1) rho_i <u_i - w, its h + 1 last ones>, the newest last
    unsolved: Max  # (n,) gradient of (19) where the local solver ended, over tol


@record
class ProximalMemory:
    """The memory of the clients."""

    z: Annotated[Array, Form("n, D + p_c")]  # u_i, s_i
    gradient: Annotated[Array, Form("n, D|0")]  # q_i f_i'(u_i); of quadratic functions alone
    dual: Annotated[Array, Form("n, D + p_c")]  # lambda_i
    anchor: Annotated[Array, Form("n, D + p_c")]  # w^k, s_i^k
    multiplier: Annotated[Array, Form("n, m")]  # mu_i
    estimate: Annotated[Array, Form("n, m")]  # [mu_i + beta c_i(u_i)]_+
    change: Annotated[Array, Form("n, m")]  # the last change of mu_i
    weight: Annotated[Array, Form("n")]  # q_i
    size: Annotated[Array, Form("n, m")]  # of c_i
    first_size: Annotated[Array, Form("n, m")]  # the same in the first units, which beta goes by
    units: Annotated[Array, Form("n, D + p_c")]  # the same for all
    points: Annotated[Array, Form("n, P, D + p_c")]  # the last w - lambda_i / rho
    drift: Annotated[Array, Form("n, H, D + p_c")]  # the last z_i - w
