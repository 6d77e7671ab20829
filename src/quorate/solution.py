"""Solve a problem over a federation: pick the algorithm and the engine, run, and attach the certificate."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from quorate.algorithms.federated.bundle import Bundle
from quorate.arrays import Array, is_number
from quorate.certificates.constrained import certify_constrained
from quorate.certificates.duality import Certificate, certify_run
from quorate.certificates.stationary import unprovable
from quorate.charge import charged
from quorate.data.federation import Federation
from quorate.default import default_algorithm
from quorate.engines.inprocess import InProcess
from quorate.notes import client_table, notes
from quorate.prices import broken, constraint_table, in_conflict
from quorate.problem.bounds import Duals, row_duals
from quorate.problem.multipliers import Multipliers, no_multipliers, signed, weighting
from quorate.problem.predictors import is_affine
from quorate.problem.problem import Problem
from quorate.problem.risks.mean import Mean, Sum
from quorate.problem.shape import only_constrained, public_shape
from quorate.rounds import Outcome, Stop

PROVING_ROUNDS = 100  # at most, for the bound of a model whose algorithm proves none

Watch = Callable[[dict[str, Any], Any], None]


@dataclass(frozen=True)
class Solution:
    """A model, why the run ended, and what is guaranteed about it.

    Attributes
    ----------
    problem : as stated
    w : (D,) the model
    duals : what proves the bound, or None
    outcome : ``outcome.stop`` and, in words, ``outcome.text``
    rounds : finished rounds
    history : one row a round
    certificate : recomputed independently of the algorithm
    clients : one row a client
    ledger : of a private run, what every client has spent; None else. Such a run's certificate, clients, notes and
        seconds come from the rows themselves: they are for the owners, and no promise covers them
    messages : counts and bytes by message type and direction, certification included
    notes : warnings about the problem and the data
    seconds : wall time of the whole solve
    copies : (N, D) clients' copies of the model, where the algorithm keeps them
    state : the server's last state
    tries : for methods with several starts, one row a start
    constraints : one row for every constraint and owner: limit, measured, slack, price (0 if infeasible), met
    log : of an asynchronous engine, who answered when; ``Replay(log)`` repeats the run
    """

    problem: Problem
    w: Array
    duals: Duals | Multipliers | None
    outcome: Outcome
    rounds: int
    history: list[dict[str, Any]]
    certificate: Certificate
    clients: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    notes: tuple[str, ...]
    seconds: float
    ledger: Any = None
    copies: Array | None = None
    state: Any = None
    tries: list[dict[str, Any]] = field(default_factory=list)
    constraints: list[dict[str, Any]] = field(default_factory=list)
    log: Any = None


def solve(
    problem: Problem,
    fed: Federation,
    *,
    algorithm: Any = None,
    engine: Any = None,
    tol: float | None = None,
    atol: float | None = None,
    max_rounds: int | None = None,
    start: Array | None = None,
    seed: int = 0,
    watch: Sequence[Watch] = (),
    resume: bool = False,
) -> Solution:
    """Solve ``problem`` over ``fed``.

    Parameters
    ----------
    algorithm : such as ``Bundle()`` (the default for several clients), ``RankADMM()`` (for the rows of one),
        ``InteriorPoint()`` (with constraints and up to 500 coefficients), ``ProximalAL()`` (with more), ``AsyncDRO()``
        (for smooth losses where the problem is not convex or the engine asynchronous)
    engine : such as ``InProcess(checkpoint="run.qrt")`` or ``VirtualClock()``; by default in this process
    tol, atol, max_rounds, start : override the algorithm's own
    seed : of every random stream
    watch : called with (history row, server state) after every round
    resume : go on from the engine's checkpoint

    Returns
    -------
    Solution
        never called optimal at a cap; see ``solution.outcome``. The certificate costs two more rounds (with constraints
        up to eight), and where the algorithm leaves no duals (the ADMMs) rounds of cuts started at its model prove the
        bound; these are counted in ``messages`` and in the clients' bytes, not in ``rounds``

    Raises
    ------
    ValueError, TypeError
        where problem, data and algorithm do not fit; the text says what would
    KeyboardInterrupt
        Ctrl-C during the proof; Ctrl-C before it ends the run with ``Stop.INTERRUPTED``
    """
    if not isinstance(problem, Problem) or not isinstance(fed, Federation):
        raise TypeError(f"solve(problem, federation) got {type(problem).__name__} and {type(fed).__name__}.")
    began = time.perf_counter()
    engine = engine or InProcess()
    concrete, data = problem.at(fed)
    chosen = algorithm or default_algorithm(concrete, data, engine)
    algorithm = configure(chosen, concrete, data, tol, atol, max_rounds, start)
    named = [_with_names(see, fed.clients) for see in watch]
    algorithm, charge = charged(algorithm, problem, fed, data, engine, resume)
    with charge:
        run = charge.run(seed, named)
    w, duals = algorithm.answer(run.state)
    if run.rounds == 0 and not len(w):  # ended before there was a model
        raise KeyboardInterrupt if run.outcome.stop is Stop.INTERRUPTED else RuntimeError(run.outcome.text)
    runs, copies = [run], algorithm.copies(run.memories) if hasattr(algorithm, "copies") else None
    proved = _proved_constrained if hasattr(algorithm, "constraints") else _proved
    certificate, duals, side = proved(problem, fed, algorithm, run, w, duals, _without_files(engine), copies, seed)
    outcome, table = run.outcome, []
    if isinstance(duals, Multipliers):
        proof = outcome.stop is Stop.INFEASIBLE  # its multipliers are no prices
        shown = no_multipliers(concrete, fed.n_clients) if proof else duals
        table = constraint_table(concrete, data, certificate, shown)
        outcome = confirmed_constrained(concrete, fed.clients, outcome, certificate, duals, table, algorithm)
    else:
        outcome = _confirmed(outcome, certificate, algorithm, concrete)
    runs += side
    return Solution(
        problem=problem,
        w=w,
        duals=duals,
        outcome=outcome,
        rounds=run.rounds,
        ledger=charge.ledger,
        history=[_named_row(row, fed.clients) for row in run.history],
        certificate=certificate,
        clients=_with_bytes(client_table(concrete, data, certificate, table), runs),
        messages=_merged(*(each.messages for each in runs)),
        notes=notes(concrete, fed, data, w, certificate),
        seconds=time.perf_counter() - began,
        copies=copies,
        state=run.state,
        tries=algorithm.tries(run.memories) if hasattr(algorithm, "tries") else [],
        constraints=table,
        log=run.log,
    )


def _proved(
    problem: Problem, fed: Federation, algorithm: Any, run: Any, w: Array, duals: Any, side: Any, copies: Any, seed: int
) -> tuple[Certificate, Duals | None, list[Any]]:
    """The certificate, the duals it stands on, and the runs that made them."""
    concrete, data = problem.at(fed)
    runs = []
    if hasattr(algorithm, "row_duals"):
        rows, split = algorithm.row_duals(run.memories)
        duals = row_duals(rows, split, len(w))
    if duals is None and run.outcome.stop is not Stop.INTERRUPTED and _provable(algorithm, concrete, fed.n_clients):
        runs.append(side.run(configure(Bundle(), concrete, data, None, None, PROVING_ROUNDS, w), data, seed=seed))
        if runs[-1].outcome.stop is Stop.INTERRUPTED:
            raise KeyboardInterrupt
        duals = runs[-1].state.duals
    certificate, proof = certify_run(problem, fed, w, duals, side, copies)
    return certificate, duals, [*runs, proof]


def _proved_constrained(
    problem: Problem, fed: Federation, algorithm: Any, run: Any, w: Array, duals: Any, side: Any, copies: Any, seed: int
) -> tuple[Certificate, Multipliers, list[Any]]:
    concrete, _ = problem.at(fed)
    if hasattr(algorithm, "multipliers"):
        duals = algorithm.multipliers(run.state, run.memories)
    duals = no_multipliers(concrete, fed.n_clients) if duals is None else signed(concrete, duals)
    if not isinstance(concrete.over_clients, Mean | Sum):
        duals = replace(duals, weights=weighting(concrete, duals, fed.n_clients))
    infeasible = run.outcome.stop is Stop.INFEASIBLE
    certificate, runs = certify_constrained(problem, fed, w, duals, side, infeasible)
    consensus = None if copies is None else float(np.abs(copies - w).max())
    return replace(certificate, consensus=consensus), duals, runs


def configure(
    algorithm: Any,
    problem: Problem,
    fed: Federation,
    tol: float | None,
    atol: float | None,
    max_rounds: int | None,
    start: Array | None,
) -> Any:
    """The algorithm with the concrete problem and the caller's overrides."""
    if isinstance(algorithm, type) or not hasattr(algorithm, "on_client"):
        name = type(algorithm).__name__
        raise TypeError(
            f"algorithm must be a federated one, such as Bundle() or ADLPMM(), got {algorithm!r}."
            + (
                f" For a reference on pooled rows call {name}().solve(problem, fed)."
                if hasattr(algorithm, "solve")
                else ""
            )
        )
    given = {"tol": tol, "atol": atol, "max_rounds": max_rounds, "start": start}
    given = {k: v for k, v in given.items() if v is not None}
    for name, least in (("tol", 0), ("atol", 0), ("max_rounds", 1)):
        value = given.get(name, getattr(algorithm, name, None))
        if value is not None and not (is_number(value) and value >= least):
            raise ValueError(f"{name} must be >= {least}, got {value!r}.")
        if name == "max_rounds" and value is not None and value != math.inf and value != int(value):
            raise ValueError(f"max_rounds must be a whole number, got {value}.")
    if start is not None:
        D = problem.predictor.dimension(fed.n_features)
        given["start"] = np.asarray(start, float) if np.asarray(start).dtype.kind in "fiu" else np.asarray(start)
        if given["start"].shape != (D,) or given["start"].dtype != float or not np.isfinite(given["start"]).all():
            raise ValueError(f"start must be {D} finite numbers, got shape {given['start'].shape}.")
    unknown = [name for name in given if not hasattr(algorithm, name)]
    if unknown:
        raise TypeError(f"{type(algorithm).__name__} takes no {', '.join(unknown)}: leave it out.")
    if problem.privacy is not None and not hasattr(algorithm, "private"):
        raise ValueError(
            f"{type(algorithm).__name__} adds no noise and would break the promise of {problem.privacy!r}: use "
            "PrivateADMM(), or leave privacy out of the problem."
        )
    if only_constrained(problem) and not hasattr(algorithm, "constraints"):
        raise ValueError(
            f"{type(algorithm).__name__} takes no constraints, no Mean(label=...) and no Quadratic(): use "
            "InteriorPoint() (small smooth problems) or ProximalAL()."
        )
    if hasattr(algorithm, "admit"):
        algorithm.admit(problem, fed)
    return replace(algorithm, problem=problem, **given)


def _confirmed(outcome: Outcome, proof: Certificate, algorithm: Any, problem: Problem) -> Outcome:
    """A claim only as far as the certificate, recomputed from the data, bears it out; without a bound its residuals."""
    if not is_affine(problem.predictor):
        return unprovable(outcome, proof, problem)
    if outcome.stop is Stop.UNPROVEN and proof.residuals is not None:
        risk, model, split = proof.residuals
        told = f" KKT residuals: {risk:.1e} of the risk, {model:.1e} of the regulariser, {split:.1e} between them."
        return Outcome(outcome.stop, outcome.text + told)
    gap_claimed = hasattr(algorithm, "atol") or hasattr(algorithm, "row_duals")  # others claim residuals
    if outcome.stop is not Stop.OPTIMAL or not gap_claimed:
        return outcome
    scale = max(abs(proof.value), 1e-12)
    allowed = max(getattr(algorithm, "atol", 0.0), algorithm.tol * scale) + 1e-8 * scale  # cuts hold to their solver
    if proof.gap is not None and -1e-6 * scale <= proof.gap <= allowed:
        return outcome
    told = "no bound" if proof.gap is None else f"a gap of {proof.gap:.2e} only"
    text = f"{outcome.text} Recomputed from the data this proves {told}: lower tol, or regularise by L2."
    if isinstance(algorithm, Bundle):
        text = (
            f"the Bundle run promised an optimum, but recomputed from the data it proves {told}: were known cuts made "
            "on other data, or with another loss, label cost, norm or support? Solve without them."
        )
    return Outcome(Stop.UNPROVEN, text)


def confirmed_constrained(
    problem: Problem,
    clients: tuple[str, ...],
    outcome: Outcome,
    proof: Certificate,
    mu: Multipliers,
    table: list[dict[str, Any]],
    algorithm: Any,
) -> Outcome:
    """The outcome as far as the certificate, recomputed from the data, bears it out."""
    told = f"{outcome.text} Recomputed: violation {proof.feasibility:.1e}, stationarity {proof.stationarity:.1e}"
    told += f" (objective's gradient at 0: {proof.gradient_scale:.1e}), complementarity {proof.complementarity:.1e}."
    if outcome.stop is Stop.INFEASIBLE:
        if proof.infeasible is None:
            return Outcome(
                Stop.STALLED, f"{told} That nothing is feasible could not be proved. Not met: {broken(table)}."
            )
        text = "no model meets all constraints: every one, up to a million times as large as this, breaks a limit by "
        text += f"{proof.infeasible:.3g} or more (proved), this one by {proof.feasibility:.3g}. "
        text += f"In conflict: {in_conflict(problem, mu, clients)}. Relax one of these limits."
        return Outcome(Stop.INFEASIBLE, text)
    unmet = broken(table) or ("the bounds of the regulariser" if proof.feasibility > 1e-6 else "")
    if unmet:
        told += f" Not met: {unmet}."
    if outcome.stop is not Stop.OPTIMAL and proof.gap is not None and not unmet:
        told += f" Its multipliers prove a relative gap of {proof.relative_gap:.1e}."
        if proof.gap <= max(algorithm.atol, algorithm.tol * abs(proof.value)):
            told += " So the model is optimal within tol, though the method's own test was not met."
    if outcome.stop is not Stop.OPTIMAL:
        return Outcome(outcome.stop, told)
    if unmet:
        return Outcome(Stop.UNPROVEN, told)
    if proof.gap is None:
        why = (
            "with constraints that are not convex no bound exists."
            if not _convex(problem)
            else "no bound could be proved: its multipliers do not balance to rounding, or the optimum is not attained."
        )
        return Outcome(Stop.UNPROVEN, f"{told} A point that meets the conditions of optimality; {why}")
    scale = max(abs(proof.value), 1e-12)
    if -1e-6 * scale <= proof.gap <= max(algorithm.atol, algorithm.tol * scale) + 1e-8 * scale:
        return Outcome(
            Stop.OPTIMAL, f"{told} Proved to within a relative gap of {max(proof.relative_gap or 0, 0):.1e}."
        )
    return Outcome(Stop.UNPROVEN, f"{told} The multipliers prove a relative gap of {proof.relative_gap:.1e} only.")


def _convex(problem: Problem) -> bool:
    return problem.local_constraint.convex and problem.constraint.convex


def _provable(algorithm: Any, problem: Problem, n_clients: int) -> bool:
    """Whether rounds of cuts can prove a bound that the algorithm has not proved itself."""
    try:
        public_shape(problem, n_clients)
    except ValueError:  # an own regulariser or set of weights: the server's program has no form for it
        return False
    known = isinstance(algorithm, Bundle) or hasattr(algorithm, "row_duals") or hasattr(algorithm, "private")
    return not known


def _with_bytes(table: list[dict[str, Any]], runs: Sequence[Any]) -> list[dict[str, Any]]:
    """The client table with what each client sent and received."""
    up, down = np.sum([run.by_client(len(table)) for run in runs], axis=0).tolist()
    return [row | {"bytes_up": up[i], "bytes_down": down[i]} for i, row in enumerate(table)]


def _without_files(engine: Any) -> Any:
    """The engine for side runs: it must not touch the main run's checkpoint, nor its clock."""
    return engine.aside() if hasattr(engine, "aside") else engine


def _named_row(row: dict[str, Any], clients: tuple[str, ...]) -> dict[str, Any]:
    worst = row.get("worst_client")
    return row if worst is None else {**row, "worst_client": clients[int(worst)] if worst >= 0 else ""}


def _with_names(see: Watch, clients: tuple[str, ...]) -> Watch:
    return lambda row, state: see(_named_row(row, clients), state)


def _merged(*tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Message tables added up by message and direction."""
    total: dict[tuple[str, str], dict[str, Any]] = {}
    for row in (row for table in tables for row in table):
        known = total.setdefault((row["message"], row["direction"]), {**row, "count": 0, "bytes": 0})
        known["count"] += row["count"]
        known["bytes"] += row["bytes"]
    return list(total.values())
