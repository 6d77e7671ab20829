"""The certificate of a run's model, and the rounds that prove it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bonafed.algorithms.federated.bundle.bundle import Bundle
from bonafed.algorithms.federated.bundle.masked_bundle import MaskedBundle
from bonafed.algorithms.method import Answer, Method
from bonafed.certificates.certificate import Certificate, without_numbers
from bonafed.certificates.constrained import certify_constrained
from bonafed.certificates.duality import certify_run
from bonafed.certificates.row_spectra import certify_ranks
from bonafed.data.federation import Federation
from bonafed.engines.engine import Engine, Run
from bonafed.problem.conic_form import public_shape
from bonafed.problem.lower_bounds import Duals, row_duals
from bonafed.problem.metadata import Metadata
from bonafed.problem.multipliers import Multipliers, no_multipliers, signed, weighting
from bonafed.problem.own_functions import declared
from bonafed.problem.problem import Problem
from bonafed.problem.requirements import only_constrained
from bonafed.problem.risks.weight_sets import Mean, Sum
from bonafed.rounds import Stop
from bonafed.solution.configure import configure
from bonafed.solution.constraint_table import Limits
from bonafed.text import printable, short

INTERRUPTED = "interrupted"  # why a proof failed: by Ctrl-C
PROVING_ROUNDS = 100  # at most, for the bound of a model whose algorithm proves none


class Proof(NamedTuple):
    """A certificate, the duals or multipliers it stands on, and the runs that made it.

    ``limits`` are those of the constraints, as their owners told them, where there are any.
    """

    certificate: Certificate
    duals: Duals | Multipliers | None
    runs: list[Run]
    limits: Limits | None = None


def prove(
    problem: Problem,
    fed: Federation | Metadata,
    algorithm: Method,
    run: Run,
    answer: Answer,
    engine: Engine,
    seed: int,
) -> Proof:
    """Certify the answer of a run by further rounds through ``engine``.

    A proof that fails, whatever is raised in it, loses no model: then the certificate has what can
    be computed without a bound, and says why there is none.
    """
    failed = INTERRUPTED
    try:
        return _prove(problem, fed, algorithm, run, answer, engine, seed)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        failed = short(printable(f"{type(error).__name__}: {error}"), 300)
    # only now, when the frames of the error no longer hold its arrays
    try:
        proof = _evaluate(problem, fed, algorithm, run, answer, engine)
    except (Exception, KeyboardInterrupt):
        proof = Proof(without_numbers(fed.n_clients), None, [])
    return proof._replace(certificate=replace(proof.certificate, failed=failed))


def _evaluate(
    problem: Problem,
    fed: Federation | Metadata,
    algorithm: Method,
    run: Run,
    answer: Answer,
    engine: Engine,
) -> Proof:
    """The certificate of an answer without a bound."""
    if _limited(problem, algorithm):
        return _prove_constrained(problem, fed, run, answer, engine, bounded=False)
    certificate, rounds = certify_run(problem, fed, answer.w, None, engine, answer.copies)
    return Proof(certificate, None, [rounds])


def _prove(
    problem: Problem,
    fed: Federation | Metadata,
    algorithm: Method,
    run: Run,
    answer: Answer,
    engine: Engine,
    seed: int,
) -> Proof:
    if _limited(problem, algorithm):
        return _prove_constrained(problem, fed, run, answer, engine)
    concrete, data = problem.at(fed)
    if problem.over_rows is not None:
        certificate, runs = certify_ranks(problem, fed, answer.w, answer.duals, engine)
        return Proof(replace(certificate, declared=declared(concrete)), answer.duals, runs)
    duals, runs = answer.duals, []
    finished = run.outcome.stop is not Stop.INTERRUPTED
    if answer.row_duals is not None:
        duals = row_duals(*answer.row_duals, len(answer.w))
    elif duals is None and finished and _provable(algorithm, concrete, fed.n_clients):
        cuts = Bundle(max_rounds=PROVING_ROUNDS)
        cuts = configure(cuts, concrete, data, start=answer.w, engine=engine)
        runs.append(engine.run(cuts, data, seed=seed))
        if runs[-1].outcome.stop is Stop.INTERRUPTED:
            raise KeyboardInterrupt
        duals = cuts.answer(runs[-1].state).duals
    certificate, rounds = certify_run(problem, fed, answer.w, duals, engine, answer.copies)
    certificate = replace(certificate, declared=declared(concrete))
    return Proof(certificate, duals, [*runs, rounds])


def _limited(problem: Problem, algorithm: Method) -> bool:
    """Whether a run is certified by multipliers of constraints."""
    return only_constrained(problem) or algorithm.requirements.constrained


def _prove_constrained(
    problem: Problem,
    fed: Federation | Metadata,
    run: Run,
    answer: Answer,
    engine: Engine,
    bounded: bool = True,
) -> Proof:
    """Certify a model under constraints by its multipliers; ``bounded``: with a bound."""
    concrete, _ = problem.at(fed)
    n, copies, multipliers = fed.n_clients, answer.copies, no_multipliers(concrete, fed.n_clients)
    if answer.multipliers is not None:
        multipliers = signed(concrete, answer.multipliers)
    if not isinstance(concrete.over_clients, Mean | Sum):
        multipliers = replace(multipliers, weights=weighting(concrete, multipliers, n))
    infeasible = run.outcome.stop is Stop.INFEASIBLE
    # an objective that falls without end has no bound, however far one is charged
    bounded = bounded and run.outcome.stop is not Stop.UNBOUNDED
    certificate, runs = certify_constrained(
        problem, fed, answer.w, multipliers, engine, infeasible, bounded
    )
    consensus = None if copies is None else float(np.abs(copies - answer.w).max())
    first = runs[0].state.first
    limits = Limits(first.limits, first.shared_limits)
    certificate = replace(certificate, consensus=consensus, declared=declared(concrete))
    return Proof(certificate, multipliers, runs, limits)


def _provable(algorithm: Method, problem: Problem, n_clients: int) -> bool:
    """Whether rounds of cuts can prove a bound that the algorithm has not proved itself:
    ``Bundle`` would have, and the clients of a private run are not asked again.
    """
    if isinstance(algorithm, Bundle | MaskedBundle) or algorithm.requirements.private:
        return False
    try:
        public_shape(problem, n_clients)
    # a custom regulariser or set of weights: the server's program has no form for it
    except ValueError:
        return False
    return True
