"""Messages and memories of the proximal augmented Lagrangian method."""

from __future__ import annotations

from typing import Annotated

from quorate.arrays import Array
from quorate.codec import Form
from quorate.rounds import Each, Max, Sum, record


@record
class Scan:
    """Ask for the sizes of the columns, which give the units of the model."""

    prior: Annotated[Each, Form("N")]  # q_i


@record
class Scanned:
    """The answer to ``Scan``."""

    rows: Each  # (n,) m_i
    # (n, D) q_i times the mean square of every column; of quadratic functions the diagonal of A_i
    square: Sum


@record
class Settle:
    """The server's w^{k+1}: update the multipliers and begin the next subproblem.

    These are lines 6-8 of Algorithm 1.
    """

    w: Annotated[Array, Form("D")]
    slack: Annotated[Each, Form("N, p_c")]
    unit: Annotated[Array, Form("p_c")]
    # with the first message: q_i, rho_i / rho, and the unit of every coefficient
    prior: Annotated[Each, Form("N")] | None
    share: Annotated[Each, Form("N")] | None
    columns: Annotated[Array, Form("D")] | None
    scaled: bool  # whether constraints are divided by their sizes at the first model
    beta: float  # of the subproblem that ends
    next_beta: float  # of the one that begins
    sigma: float  # 1 / ((n + 1) beta) of that one
    rho: float
    restart: bool  # Algorithm 2, line 1: the copies start at w again
    at_copies: bool  # line 7 at the client's own copy, where (14) is stationary, and not at w


@record
class Settled:
    """The answer to ``Settle``, which Algorithm 1 needs after a subproblem."""

    change: Each  # (n,) max |mu_i^{k+1} - mu_i^k|, line 8
    product: Sum  # (n,) sum |mu_i c_i|
    # (n, D) sum y_i c_i', y the change of the multipliers: near 0 with <y, c> > 0, no model is
    # feasible
    push: Sum
    bite: Sum  # (n,) sum y_i c_i
    shifted: Sum | None  # (n, D) share_i u~_i of Algorithm 2, line 1, at a restart
    slack: Each | None  # (n, p_c) the same of s
    gradient: Sum | None  # (n,) max |q_i f_i'|; these three with the first answer, for scales
    curvature: Sum | None  # (n,) mean diagonal of q_i f_i''
    steep: Sum | None  # (n, p_c) squared sizes of c~_i


@record
class Refine:
    """Ask for one iteration of Algorithm 2."""

    w: Annotated[Array, Form("D")]
    slack: Annotated[Each, Form("N, p_c")]
    unit: Annotated[Array, Form("p_c")]
    beta: float
    sigma: float  # 1 / ((n + 1) beta)
    rho: float
    tol: float  # eps_{t+1}
    room: float  # what (23) leaves to the clients' residuals
    # (h,) weights, sum 1, of the last h points from which (19) sets out; [1.] is Algorithm 2
    mix: Annotated[Array, Form("mix")]


@record
class Refined:
    """The answer to ``Refine``, which Algorithm 2 needs, with numbers to plot."""

    shifted: Sum  # (n, D) u~_i, (21), times share_i as all sums of D numbers
    slack: Each  # (n, p_c) the same of s
    residual: Sum  # (n,) eps~_i, (22)
    value: Sum  # (n,) q_i f_i(w)
    # (n,) at w, the tangent at the copy of q_i f_i + <y, c_i>, y = [mu_i + beta c_i]_+: its sum is
    # part of a lower bound on the optimum
    tangent: Sum
    violation: Each  # (n,) of c_i(w)
    excess: Max  # (n,) the same in units of the constraints
    shared: Sum  # (n, p_c) c~_i(w)
    primal: Sum  # (n,) ||z_i - w||^2
    moved: Sum  # (n,) ||z_i - z_i^t||^2
    pull: Sum  # (n,) ||lambda_i||^2
    drift: Sum  # (n, D) u_i - w, times share_i
    slack_drift: Each  # (n, p_c) the same of s
    inner: Sum  # (n, h + 1) share_i <u_i - w, its h + 1 last ones>, the newest last
    unsolved: Max  # (n,) gradient of (19) where the local solver ended, over tol


@record
class ProximalMemory:
    """The memory of the clients."""

    z: Annotated[Array, Form("n, D + p_c")]  # u_i, s_i
    gradient: Annotated[Array, Form("n, D|0")]  # q_i f_i'(u_i); of quadratic functions alone
    dual: Annotated[Array, Form("n, D + p_c")]  # lambda_i
    anchor: Annotated[Array, Form("n, D + p_c")]  # w^k, s_i^k
    multiplier: Annotated[Array, Form("n, m")]  # mu_i
    estimate: Annotated[Array, Form("n, m")]  # [mu_i + beta c_i]_+ at the copy
    change: Annotated[Array, Form("n, m")]  # the last change of mu_i
    weight: Annotated[Array, Form("n")]  # q_i
    share: Annotated[Array, Form("n")]  # rho_i / rho
    columns: Annotated[Array, Form("n, D")]  # the unit of every coefficient
    size: Annotated[Array, Form("n, p")]  # of every constraint
    points: Annotated[Array, Form("n, P, D + p_c")]  # the last w - lambda_i / rho
    drift: Annotated[Array, Form("n, H, D + p_c")]  # the last z_i - w
