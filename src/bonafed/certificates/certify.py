"""The certificate of a model, for problems with and without constraints."""

from dataclasses import replace

from bonafed.arrays import Array
from bonafed.certificates.certificate import Certificate
from bonafed.certificates.constrained import Weighing, certify_constrained
from bonafed.certificates.duality import Certification, certify_run
from bonafed.certificates.row_ranks import RankCertification
from bonafed.certificates.row_spectra import SpectrumCertification, certify_ranks
from bonafed.data.federation import Federation
from bonafed.engines.engine import Engine
from bonafed.problem.lower_bounds import Duals
from bonafed.problem.multipliers import Multipliers
from bonafed.problem.own_functions import check_own, declared
from bonafed.problem.problem import Problem
from bonafed.problem.requirements import check_affine, only_constrained

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
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed)
    >>> proof = bf.certify(problem, fed, solution.w, solution.duals)
    >>> proof.bound <= proof.value, bool(proof.relative_gap < 1e-5)
    (True, True)
    >>> bf.certify(problem, fed, solution.w + 0.1, solution.duals).gap > proof.gap
    True
    """
    concrete, data = problem.at(fed)
    check_own(concrete, data)
    own = declared(concrete)
    if problem.over_rows is not None and not problem.constrained:
        if isinstance(duals, Multipliers):
            needed = "ranks over all rows need Duals as duals"
            raise ValueError(f"{needed}, got Multipliers: give none.")
        return replace(certify_ranks(problem, fed, w, duals, engine)[0], declared=own)
    if only_constrained(problem) or isinstance(duals, Multipliers):
        check_affine(problem, "a certificate of constraints")
        if isinstance(duals, Duals):
            raise ValueError(
                "a problem with constraints needs Multipliers as duals, got Duals: give the"
                " multipliers of the constraints, or none."
            )
        return replace(certify_constrained(problem, fed, w, duals, engine)[0], declared=own)
    return replace(certify_run(problem, fed, w, duals, engine, copies)[0], declared=own)
