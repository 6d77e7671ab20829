"""The training of a run: its model and the baselines, each with a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bonafed.algorithms.method import Answer
from bonafed.arrays import Array
from bonafed.config.config import Config
from bonafed.data.federation import Federation
from bonafed.engines.engine import Watch
from bonafed.problem.problem import Problem
from bonafed.rounds import Stop
from bonafed.runs.baselines import BASELINES, called, label
from bonafed.runs.constraint_metrics import asked
from bonafed.runs.observers import ObjectiveTrace, ViolationTrace
from bonafed.runs.outcomes import method_of
from bonafed.runs.splits import Parts
from bonafed.solution.privacy_account import was_begun
from bonafed.solution.solution import Solution
from bonafed.solution.solve import fit


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
    for name, (stated, fed) in tasks.items():
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
        judge = _judge(config, stated, fed, not models, parts)
        if judge is not None:
            keep = getattr(arguments["engine"], "keep_rows", 1)
            file = path and path.with_suffix(".reached")
            traces.append(ObjectiveTrace(problem, parts.train, judge, keep, file, again))
        shown = [] if watch is None else [watch(name)]
        solution = fit(stated, fed, **arguments, watch=[*traces, *shown], resume=again)
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
