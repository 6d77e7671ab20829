"""How the models of a run ended, as far as their rounds and certificates bear it out.

A folder keeps no word of a method: whatever it says of an outcome is composed from numbers, by one
function, when the folder is written and again when it is verified.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bonafed.algorithms.method import Method
from bonafed.certificates.certificate import Certificate
from bonafed.config.config import Config
from bonafed.data.federation import Federation
from bonafed.engines.engine import UNUSED, lies_in
from bonafed.engines.inprocess import InProcess, VirtualClock
from bonafed.engines.run_record import Log
from bonafed.problem.metadata import Metadata
from bonafed.problem.multipliers import Multipliers
from bonafed.problem.problem import Problem
from bonafed.rounds import Outcome, Stop
from bonafed.runs.checks import Check, not_checked
from bonafed.runs.files import Record, Row
from bonafed.runs.run import Run
from bonafed.solution.outcome import (
    UNPROVED,
    Ended,
    budget_used,
    failed_in,
    judged_by_method,
    reached,
    refuted,
    stated,
)
from bonafed.solution.plan import configure, default_algorithm
from bonafed.solution.solution import Solution


def method_of(
    config: Config,
    problem: Problem,
    fed: Federation | Metadata,
    main: bool = True,
    clock: bool = False,
) -> Method:
    """The method that solves a problem of the run, as `bonafed.solve` configures it.

    Baselines, which are not ``main``, are solved to the same tolerance by the default algorithm;
    ``clock``: on the clock of [engine], where it has one.
    """
    concrete, data = problem.at(fed)
    secure = bool(config.engine.get("secure_sum")) and (main or config.privacy is None)
    clocked = clock and config.engine.clocked
    engine = VirtualClock(secure_sum=secure) if clocked else InProcess(secure_sum=secure)
    algorithm = config.method() if main else None
    algorithm = algorithm or default_algorithm(concrete, data, engine)
    rounds = None if config.privacy is not None and not main else config.algorithm.max_rounds
    tol = config.algorithm.tol
    return configure(algorithm, concrete, data, tol, max_rounds=rounds, engine=engine)


def ended(
    config: Config,
    method: Method,
    stop: str,
    text: str,
    rounds: int,
    clock: bool = False,
    history: Sequence[Row] = (),
) -> Ended:
    """What an outcome is stated from, of a run that ended with this stop and text; ``clock``:
    perhaps by the clock of the engine.
    """
    time = config.engine.get("max_time") if clock and config.engine.clocked else None
    no_model, (lies, _) = UNPROVED in text, lies_in(text)
    return Ended(Stop(stop), rounds, method, time, no_model, lies, reached(history))


def outcome_of(
    end: Ended,
    problem: Problem,
    fed: Federation | Metadata,
    certificate: Certificate,
    multipliers: Multipliers | None = None,
    table: Sequence[Row] = (),
) -> Outcome:
    """The outcome in words that follow from numbers, of a problem as it is stated."""
    concrete, data = problem.at(fed)
    rows = [{**row} for row in table]
    return stated(end, concrete, certificate, data.clients, multipliers, rows)


def stop_of(
    end: Ended,
    problem: Problem,
    fed: Federation | Metadata,
    certificate: Certificate,
    multipliers: Multipliers | None = None,
    table: Sequence[Row] = (),
) -> str:
    """The stop that may be stated of a model, or why it cannot be the stated one."""
    again = outcome_of(end, problem, fed, certificate, multipliers, table)
    return refuted(end, certificate) or again.stop.value


def summary(config: Config, solution: Solution, fed: Federation | Metadata) -> Record:
    """How the model of a run ended, as result.json has it."""
    if solution.problem.privacy is not None:
        again = budget_used(solution.rounds)
    else:
        method = method_of(config, solution.problem, fed, clock=True)
        stop, text = solution.outcome.stop.value, solution.outcome.text
        by_engine = _by_engine(solution.log)
        again = outcome_of(
            ended(config, method, stop, text, solution.rounds, by_engine, solution.history),
            solution.problem,
            fed,
            replace(solution.certificate, failed=failed_in(text)),
            solution.duals if isinstance(solution.duals, Multipliers) else None,
            solution.constraints,
        )
    return {"stop": again.stop.value, "text": again.text}


def _by_engine(log: Log | None) -> bool:
    """Whether the engine ended the run, and not the method."""
    return log is not None and log.outcome is not None


def check_outcome(run: Run, problem: Problem, fed: Federation | Metadata) -> Iterator[Check]:
    """The outcome of a run against what it states of its rounds, its certificate and its
    constraints, which other checks compare with what they are.
    """
    outcome, rounds = run.result["outcome"], run.result["rounds"]
    certificate = Certificate.of(run.result["certificate"])
    certificate = replace(certificate, failed=failed_in(outcome["text"]))
    method = method_of(run.config, problem, fed, clock=True)
    how, by_engine = (outcome["stop"], outcome["text"], rounds), _by_engine(run.events)
    end = ended(run.config, method, *how, by_engine, run.history)
    multipliers = Multipliers(**run.duals) if run.config.constrained else None
    rows = run.result.get("constraints", ())
    again = outcome_of(end, problem, fed, certificate, multipliers, rows)
    if why := refuted(end, certificate) or _invented(end, fed):
        yield Check("outcome", False, f"is not {outcome['stop']}: {why}")
    elif outcome != {"stop": again.stop.value, "text": again.text}:
        yield Check("outcome", False, f"is not as stated, but {again.stop.value}: {again.text}")
    else:
        text = f"{outcome['stop']}, as rounds and certificate bear it out"
        yield Check("outcome", True, text)
    if end.lies:
        text = "what a site answered that no rows answer: such an answer is not kept"
        yield not_checked("outcome", text, "result.json: outcome")
    elif judged_by_method(end):
        text = f"whether {type(method).__name__} met its own test, which no certificate repeats"
        yield not_checked("outcome", text, "result.json: outcome")


def _invented(end: Ended, fed: Federation | Metadata) -> str:
    """Why no client can have given the impossible answers of an outcome; empty where one can."""
    if end.stop is not Stop.IMPOSSIBLE:
        return ""
    _, sites = lies_in(f"{end.lies} {UNUSED}")
    named = {name for part in sites.split(", ") for name in part.split(" or ")}
    return "" if named and named <= {*fed.names} else "it names no client that gave such an answer"
