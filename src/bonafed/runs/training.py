"""The training of a run: its model and the baselines, each with a checkpoint; traces beside the
history of a solve; and how the models ended, as far as rounds and certificates bear it out.

Methods that wait for some answers only do not know their objective on the way. An observer who
takes no part, and no time on a simulated clock, computes it from all rows: after the first
round, and whenever the time (of rounds, where none is simulated) has grown by a tenth. For every
model it is the objective of the run's problem, so that models can be compared. Where the server
knows every client's violation of its constraints, that is kept after every round. Both traces are
in a file while the run goes on, so that an interrupted run that is resumed has all of them.

A folder keeps no word of a method: whatever it says of an outcome is composed from numbers, by one
function, when the folder is written and again when it is verified.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bonafed.algorithms.method import Method
from bonafed.arrays import Array
from bonafed.certificates.certificate import Certificate
from bonafed.certificates.certify import certify, certify_constrained, completed
from bonafed.config.config import Config
from bonafed.data.federation import Federation
from bonafed.engines.endings import UNUSED, lies_in
from bonafed.engines.inprocess import InProcess, VirtualClock
from bonafed.engines.run_record import Log
from bonafed.problem.lower_bounds import Multipliers, no_multipliers, signed
from bonafed.problem.metadata import Metadata
from bonafed.problem.problem import Problem
from bonafed.rounds import Outcome, Stop
from bonafed.runs import forms
from bonafed.runs.baselines import BASELINES, called, duals_of, label
from bonafed.runs.checks import Check, not_checked
from bonafed.runs.evaluation import asked
from bonafed.runs.files import Record, Row, parsed, write
from bonafed.runs.sections.section import Progress, Run, Silent, Study
from bonafed.solution import outcome
from bonafed.solution.outcome import Ended
from bonafed.solution.plan import configure, default_algorithm
from bonafed.solution.privacy_account import was_begun
from bonafed.solution.solution import Solution
from bonafed.solution.solve import fit
from bonafed.solution.tables import constraint_table, limits_of
from bonafed.storage import named_errors


def train(study: Study, progress: Progress | None = None) -> dict[str, Solution]:
    """The model and then its baselines by name; stops at the first that is interrupted. Each has a
    checkpoint in the folder of the work; those that exist are resumed.
    """
    config, parts, problem = study.config, study.parts, study.problem
    progress, models = progress or Silent(), {}
    tasks = {label(problem): (problem, parts.train)}
    for name in config.report.compare_with:
        tasks[called(name)] = BASELINES[name](problem, parts.train)
    for name, (task, fed) in tasks.items():
        path = study.work and study.work / f"{name.lower()}.checkpoint"
        whole, main = fed.clients == parts.train.clients, not models
        arguments = config.solve_arguments(path, clock=whole)
        if not main:  # baselines are solved to the same tolerance by the default algorithm
            arguments["algorithm"] = None
            if problem.privacy is not None:  # they are exact, and nobody else's business
                arguments["max_rounds"] = None
                arguments["engine"] = replace(arguments["engine"], secure_sum=None)
        again = study.resume and was_begun(path)
        bands = path and path.with_suffix(".bands")
        traces: list[ViolationTrace | ObjectiveTrace] = [ViolationTrace(bands, again)]
        if task.privacy is None and not asked(task) and whole:
            method = method_of(config, task, fed, main, clock=True)
            if config.engine.clocked or method.unaware:  # of its objective on its way
                keep = getattr(arguments["engine"], "keep_rows", 1)
                file = path and path.with_suffix(".reached")
                traces.append(ObjectiveTrace(problem, parts.train, method, keep, file, again))
        watch = [*traces, progress.watch(name)]
        solution = fit(task, fed, **arguments, watch=watch, resume=again)
        for trace in traces:
            solution = trace.beside(solution)
        models[name] = solution
        if solution.outcome.stop is Stop.INTERRUPTED:
            break
        progress.done(name, solution.outcome.text)
    return models


# ------------------------------------------------------------------------------------------- traces

OBJECTIVE, LARGEST = "exact_objective", "largest_risk"  # of a history row
# of a history row: one number >= 0 a client, in the order of the federation
VIOLATION = "client_violation"
PACE = 1.1  # between two evaluations


class Trace:
    """Numbers by round, which are kept in ``file``, too; with ``resume`` those in it are read."""

    form: ClassVar[type[forms.Form]]

    def __init__(self, file: Path | None = None, resume: bool = False) -> None:
        self.file = file
        self.rows: dict[int, Record] = {}
        if file is None:
            return
        if resume and file.is_file():
            whole, _, _ = file.read_bytes().rpartition(b"\n")  # the last line may be half written
            rows = [parsed(file, line) for line in whole.decode(errors="replace").splitlines()]
            for row in rows:
                forms.check_form(file, row, self.form)
            self.rows = {row["round"]: row for row in rows}
        write(file, b"".join(map(_line, self.rows.values())))

    def keep(self, row: Record) -> None:
        """Add the numbers of a round."""
        self.rows[row["round"]] = row
        if self.file is not None:
            with named_errors(self.file), self.file.open("ab") as out:
                out.write(_line(row))


def _line(row: Record) -> bytes:
    return json.dumps(row).encode() + b"\n"


class ObjectiveTrace(Trace):
    """The exact objective and the largest risk of a client by round; `bonafed.solve` calls it after
    each round.

    Parameters
    ----------
    problem, fed : by which models are judged
    method : knows the model in the server's state, which is empty before there is one
    keep_rows : rounds for each row of the history
    """

    form = forms.OBJECTIVE

    def __init__(
        self,
        problem: Problem,
        fed: Federation,
        method: Method,
        keep_rows: int = 1,
        file: Path | None = None,
        resume: bool = False,
    ) -> None:
        super().__init__(file, resume)
        self.problem, self.data = problem.at(fed)
        self.blocks, self.method, self.keep_rows = self.data.blocks(), method, keep_rows
        self.next, self.resumed = 0.0, resume

    def __call__(self, row: Record, state: object) -> None:
        """Evaluate the model, if it is time."""
        if self.resumed:  # rounds after the checkpoint are computed again
            self.rows = {k: kept for k, kept in self.rows.items() if k < row["round"]}
            self.next = max([PACE * kept["when"] for kept in self.rows.values()], default=0.0)
            self.resumed = False
        when = row.get("time", row["round"])
        if row["round"] % self.keep_rows or when < self.next:
            return
        w = self.method.answer(state).w
        if len(w):
            self.keep({"round": row["round"], "when": when, **self.judged(w)})
            self.next = PACE * when

    def judged(self, w: Array) -> dict[str, float]:
        """Objective and largest risk at w."""
        risks = np.empty(self.data.n_clients)
        for block in self.blocks:
            risks[block.index] = self.problem.client_risks(w, block)
        risk = self.problem.over_clients.value(risks)
        if self.problem.over_rows is not None:
            risk = self.problem.over_rows.value(self.problem.row_losses(w, self.data))
        return {OBJECTIVE: float(risk + self.problem.penalty(w)), LARGEST: float(risks.max())}

    def beside(self, solution: Solution) -> Solution:
        """The solution with both in its history; the last row has those of the model."""
        if not solution.history or not len(solution.w):
            return solution
        history = []
        for row in solution.history:
            kept = self.rows.get(row["round"], {})
            history.append(row | {key: kept[key] for key in (OBJECTIVE, LARGEST) if kept})
        history[-1] |= self.judged(solution.w)
        return replace(solution, history=history)


class ViolationTrace(Trace):
    """Every client's violation of its constraints by round; `bonafed.solve` calls it after each
    round.
    """

    form = forms.VIOLATION

    def __call__(self, row: Record, state: object) -> None:
        """Keep the violations of the round, where the server knows them."""
        violation = getattr(state, VIOLATION, getattr(state, "violation", None))
        if not isinstance(violation, np.ndarray) or not violation.size:
            return
        numbers = [float(v) if np.isfinite(v) else None for v in np.maximum(violation, 0.0)]
        self.keep({"round": row["round"], VIOLATION: numbers})

    def beside(self, solution: Solution) -> Solution:
        """The solution with the violations in its history."""
        if not self.rows:
            return solution
        history = [
            {**row, VIOLATION: self.rows.get(row["round"], {}).get(VIOLATION)}
            for row in solution.history
        ]
        return replace(solution, history=history)


# ----------------------------------------------------------------------------------------- outcomes


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


def outcome_of(
    config: Config,
    problem: Problem,
    fed: Federation | Metadata,
    how: tuple[str, str, int],
    proof: Certificate,
    multipliers: Multipliers | None = None,
    table: Sequence[Row] = (),
    *,
    main: bool = True,
    clock: bool = False,
    timed: bool = False,
    history: Sequence[Row] = (),
) -> tuple[Ended, Outcome]:
    """What an outcome is stated from, and the outcome in words that follow from numbers, of a run
    of a problem as it is stated that ended ``how``: its stop, its text, its rounds.

    ``main``, ``clock`` : as of `method_of`; ``timed``: perhaps ended by the clock of the engine.
    """
    method, (stop, text, rounds) = method_of(config, problem, fed, main, clock), how
    time = config.engine.get("max_time") if timed and config.engine.clocked else None
    no_model, (lies, _) = outcome.UNPROVED in text, lies_in(text)
    end = Ended(Stop(stop), rounds, method, time, no_model, lies, outcome.reached(history))
    concrete, data = problem.at(fed)
    rows = [{**row} for row in table]
    return end, outcome.stated(end, concrete, proof, data.clients, multipliers, rows)


def stop_of(*given: Any, **more: Any) -> str:
    """The stop that may be stated of a model, or why it cannot be the stated one; as `outcome_of`
    has it.
    """
    end, again = outcome_of(*given, **more)
    return outcome.refuted(end, given[4]) or again.stop.value


def proved(
    problem: Problem,
    fed: Federation,
    w: Array,
    arrays: Mapping[str, Array],
    stop: str = "",
    failed: str = "",
    tried: bool = False,
) -> tuple[Certificate, list[Record], Multipliers | None]:
    """The certificate of a model from the arrays of its proof, and with constraints their table and
    the multipliers; ``failed``: why its proof failed, ``tried``: the multipliers are the weights of
    a proof that nothing is feasible, which was not found.
    """
    duals, infeasible = duals_of(arrays), tried or stop == Stop.INFEASIBLE.value
    if not isinstance(duals, Multipliers):
        return replace(certify(problem, fed, w, duals), failed=failed), [], None
    bounded = not failed and stop != Stop.UNBOUNDED.value
    proof, _ = certify_constrained(problem, fed, w, duals, infeasible=infeasible, bounded=bounded)
    concrete, data = problem.at(fed)
    proof = replace(completed(problem, fed, w, proof), failed=failed)
    mu = signed(concrete, duals)
    limits, prices = limits_of(concrete, data), mu
    if infeasible:
        prices = no_multipliers(concrete, fed.n_clients)
    return proof, constraint_table(concrete, data.clients, limits, proof, prices), mu


def summary(config: Config, solution: Solution, fed: Federation | Metadata) -> Record:
    """How the model of a run ended, as result.json has it."""
    if solution.problem.privacy is not None:
        again = outcome.budget_used(solution.rounds)
    else:
        text, duals = solution.outcome.text, solution.duals
        how = solution.outcome.stop.value, text, solution.rounds
        proof = replace(solution.certificate, failed=outcome.failed_in(text))
        mu = duals if isinstance(duals, Multipliers) else None
        more: Any = {"timed": _by_engine(solution.log), "history": solution.history, "clock": True}
        given = how, proof, mu, solution.constraints
        _, again = outcome_of(config, solution.problem, fed, *given, **more)
    return {"stop": again.stop.value, "text": again.text}


def _by_engine(log: Log | None) -> bool:
    """Whether the engine ended the run, and not the method."""
    return log is not None and log.outcome is not None


def check_outcome(run: Run, problem: Problem, fed: Federation | Metadata) -> Iterator[Check]:
    """The outcome of a run against what it states of its rounds, its certificate and its
    constraints, which other checks compare with what they are.
    """
    said, rounds = run.result["outcome"], run.result["rounds"]
    certificate = Certificate.of(run.result["certificate"])
    certificate = replace(certificate, failed=outcome.failed_in(said["text"]))
    multipliers = Multipliers(**run.duals) if run.config.constrained else None
    given = (said["stop"], said["text"], rounds), certificate, multipliers
    more: Any = {"timed": _by_engine(run.events), "history": run.history, "clock": True}
    rows = run.result.get("constraints", ())
    end, again = outcome_of(run.config, problem, fed, *given, rows, **more)
    _, sites = lies_in(f"{end.lies} {UNUSED}")
    named = {name for part in sites.split(", ") for name in part.split(" or ")}
    why = outcome.refuted(end, certificate)
    if end.stop is Stop.IMPOSSIBLE and not (sites and named <= {*fed.names}):
        why = why or "it names no client that gave such an answer"
    if why:
        yield Check("outcome", False, f"is not {said['stop']}: {why}")
    elif said != {"stop": again.stop.value, "text": again.text}:
        yield Check("outcome", False, f"is not as stated, but {again.stop.value}: {again.text}")
    else:
        yield Check("outcome", True, f"{said['stop']}, as rounds and certificate bear it out")
    if end.lies:
        text = "what a site answered that no rows answer: such an answer is not kept"
        yield not_checked("outcome", text, "result.json: outcome")
    elif outcome.judged_by_method(end):
        text = f"whether {type(end.method).__name__} met its own test, which no certificate repeats"
        yield not_checked("outcome", text, "result.json: outcome")
