"""The certificate of a model, for problems with and without constraints."""

from __future__ import annotations

from dataclasses import replace

from quorate.arrays import Array
from quorate.certificates.certificate import Certificate
from quorate.certificates.constrained import Weighing, certify_constrained
from quorate.certificates.duality import Certification, certify_run
from quorate.certificates.row_ranks import RankCertification
from quorate.certificates.row_spectra import SpectrumCertification, certify_ranks
from quorate.data.federation import Federation
from quorate.engines.engine import Engine
from quorate.problem.lower_bounds import Duals
from quorate.problem.multipliers import Multipliers
from quorate.problem.own_functions import check_own, declared
from quorate.problem.problem import Problem
from quorate.problem.requirements import check_affine, only_constrained

# the rounds in which certificates are computed, and what they are told, as sites know them
ROUNDS = (Certification, RankCertification, SpectrumCertification, Weighing, Multipliers)


def certify(
    problem: Problem,
    fed: Federation,
    w: Array,
    duals: Duals | Multipliers | None = None,
    engine: Engine | None = None,
    copies: Array | None = None,
) -> Certificate:
    """Recompute every guarantee of the model w; see ``certify_run`` for the parameters.

    With constraints ``duals`` are ``Multipliers``, see
    ``certificates.constrained.certify_constrained``.

    Raises
    ------
    ValueError
        w, points or multipliers that are not finite or do not fit the problem; own functions that
        contradict each other

    Examples
    --------
    >>> import quorate as qr
    >>> from quorate.data import load
    >>> fed = load.hospitals()
    >>> problem = qr.Problem(qr.Logistic(), regulariser=qr.L2(0.1))
    >>> solution = qr.solve(problem, fed)
    >>> proof = qr.certify(problem, fed, solution.w, solution.duals)
    >>> proof.bound <= proof.value, bool(proof.relative_gap < 1e-5)
    (True, True)
    >>> qr.certify(problem, fed, solution.w + 0.1, solution.duals).gap > proof.gap
    True
    """
    concrete, data = problem.at(fed)
    check_own(concrete, data)
    own = declared(concrete)
    if problem.over_rows is not None and not problem.constrained:
        return replace(certify_ranks(problem, fed, w, _cuts(duals), engine)[0], declared=own)
    if only_constrained(problem) or isinstance(duals, Multipliers):
        check_affine(problem, "a certificate of constraints")
        if isinstance(duals, Duals):
            raise ValueError(
                "a problem with constraints needs Multipliers as duals, got Duals: give the"
                " multipliers of the constraints, or none."
            )
        return replace(certify_constrained(problem, fed, w, duals, engine)[0], declared=own)
    return replace(certify_run(problem, fed, w, duals, engine, copies)[0], declared=own)


def _cuts(duals: Duals | Multipliers | None) -> Duals | None:
    if isinstance(duals, Multipliers):
        raise ValueError("ranks over all rows need Duals as duals, got Multipliers: give none.")
    return duals
