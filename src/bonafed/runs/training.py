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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bonafed.algorithms.method import Answer, Method
from bonafed.arrays import Array
from bonafed.certificates.certificate import Certificate
from bonafed.config.config import Config
from bonafed.data.federation import Federation
from bonafed.engines.engine import UNUSED, Watch, lies_in
from bonafed.engines.inprocess import InProcess, VirtualClock
from bonafed.engines.run_record import Log
from bonafed.problem.metadata import Metadata
from bonafed.problem.multipliers import Multipliers
from bonafed.problem.problem import Problem
from bonafed.rounds import Outcome, Stop
from bonafed.runs.baselines import BASELINES, called, label
from bonafed.runs.checks import Check, not_checked
from bonafed.runs.evaluation import asked
from bonafed.runs.files import (
    Count,
    Form,
    NonNegative,
    Number,
    Record,
    Row,
    check_form,
    form,
    needs,
    parsed,
    write,
)
from bonafed.runs.sections.section import Run
from bonafed.runs.splits import Parts
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
from bonafed.solution.privacy_account import was_begun
from bonafed.solution.solution import Solution
from bonafed.solution.solve import fit
from bonafed.storage import named_errors


def train(
    config: Config,
    parts: Parts,
    *,
    problem: Problem | None = None,
    folder: Path | None = None,
    resume: bool = False,
    watch: Callable[[str], Watch] | None = None,
    done: Callable[[str, Solution], None] | None = None,
) -> dict[str, Solution]:
    """The model and then its baselines by name; stops at the first that is interrupted.

    ``problem`` is that of the configuration by default. ``folder`` holds one checkpoint for each
    model; with ``resume`` those that exist are resumed. The configuration is settled: see
    `Config.settled`.
    """
    problem = problem or config.problem()
    tasks = {label(problem): (problem, parts.train)}
    for name in config.report.compare_with:
        tasks[called(name)] = BASELINES[name](problem, parts.train)
    models = {}
    for name, (task, fed) in tasks.items():
        path = None if folder is None else folder / f"{name.lower()}.checkpoint"
        arguments = config.solve_arguments(path, clock=fed.clients == parts.train.clients)
        if models:  # baselines are solved to the same tolerance by the default algorithm
            arguments["algorithm"] = None
            if problem.privacy is not None:  # they are exact, and nobody else's business
                arguments["max_rounds"] = None
                arguments["engine"] = replace(arguments["engine"], secure_sum=None)
        again = resume and was_begun(path)
        traces: list[ViolationTrace | ObjectiveTrace] = [
            ViolationTrace(path and path.with_suffix(".bands"), again)
        ]
        judge = _judge(config, task, fed, not models, parts)
        if judge is not None:
            keep = getattr(arguments["engine"], "keep_rows", 1)
            file = path and path.with_suffix(".reached")
            traces.append(ObjectiveTrace(problem, parts.train, judge, keep, file, again))
        shown = [] if watch is None else [watch(name)]
        solution = fit(task, fed, **arguments, watch=[*traces, *shown], resume=again)
        for trace in traces:
            solution = trace.beside(solution)
        models[name] = solution
        if solution.outcome.stop is Stop.INTERRUPTED:
            break
        if done is not None:
            done(name, solution)
    return models


def _judge(
    config: Config, stated: Problem, fed: Federation, main: bool, parts: Parts
) -> Callable[[object], Array] | None:
    """The model in the state of a method that does not know its objective on its way; None for a
    method that does.
    """
    if stated.privacy is not None or asked(stated) or fed.clients != parts.train.clients:
        return None
    method = method_of(config, stated, fed, main, clock=True)
    answer: Callable[[Any], Answer] = method.answer
    if not config.engine.clocked and not method.unaware:
        return None
    return lambda state: answer(state).w


# ------------------------------------------------------------------------------------------- traces

OBJECTIVE, LARGEST = "exact_objective", "largest_risk"  # of a history row
# of a history row: one number >= 0 a client, in the order of the federation
VIOLATION = "client_violation"
PACE = 1.1  # between two evaluations


class Trace:
    """Numbers by round, which are kept in ``file``, too; with ``resume`` those in it are read."""

    form: ClassVar[type[Form]]

    def __init__(self, file: Path | None = None, resume: bool = False) -> None:
        self.file = file
        self.rows: dict[int, Record] = {}
        if file is None:
            return
        if resume and file.is_file():
            whole, _, _ = file.read_bytes().rpartition(b"\n")  # the last line may be half written
            rows = [parsed(file, line) for line in whole.decode(errors="replace").splitlines()]
            for row in rows:
                check_form(file, row, self.form)
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


# the objective after a round, and when that was
ObjectiveForm = form(
    "ObjectiveForm",
    needs(Count, "round") | needs(NonNegative, "when") | needs(Number, OBJECTIVE, LARGEST),
)
# every client's violation after a round
ViolationForm = form(
    "ViolationForm", needs(Count, "round") | needs(list[NonNegative | None], VIOLATION)
)


class ObjectiveTrace(Trace):
    """The exact objective and the largest risk of a client by round; `bonafed.solve` calls it after
    each round.

    Parameters
    ----------
    problem, fed : by which models are judged
    model : the model in the server's state, empty before there is one
    keep_rows : rounds for each row of the history
    """

    form = ObjectiveForm

    def __init__(
        self,
        problem: Problem,
        fed: Federation,
        model: Callable[[object], Array],
        keep_rows: int = 1,
        file: Path | None = None,
        resume: bool = False,
    ) -> None:
        super().__init__(file, resume)
        self.problem, self.data = problem.at(fed)
        self.blocks, self.model, self.keep_rows = self.data.blocks(), model, keep_rows
        self.n = self.data.n_clients
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
        w = self.model(state)
        if len(w):
            self.keep({"round": row["round"], "when": when, **self.judged(w)})
            self.next = PACE * when

    def judged(self, w: Array) -> dict[str, float]:
        """Objective and largest risk at w."""
        risks = np.empty(self.n)
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

    form = ViolationForm

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
