"""Models at other values of one key of a run: what each costs and brings.

    for every value v of [sweep]:  w(v) = the model of the run with v in the place of its own value,
                                   judged on rows that w(v) was not trained on

With `test` > 0 that share of every client's training rows judges, w(v) is trained on the rest, and
the value with the smallest loss of a client is named: the test rows have no part in this choice.
With `test` = 0 all training rows are trained on, and the test rows judge.

Where v limits a constraint and everything is convex, the optimal value is convex and falls in v,
and minus the sum p(v) of the constraint's multipliers is its gradient: raising the limit by s
lowers the value by at most p(v) s. What proves the bound of every point is kept, so that it can be
proved again. The model of the run is not changed by its sweep.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bonafed.arrays import Array
from bonafed.certificates.certificate import Certificate
from bonafed.config.config import Config
from bonafed.config.sections import SweepSection
from bonafed.data.federation import Federation
from bonafed.privacy.accounting import total_epsilon
from bonafed.problem.constraints.constraint import Concrete
from bonafed.problem.constraints.group_means import OnRows, Shared
from bonafed.problem.lower_bounds import Duals, Multipliers
from bonafed.problem.problem import Problem
from bonafed.rounds import Stop
from bonafed.runs import files, forms
from bonafed.runs.baselines import check_proof, duals_of, proof_arrays, restored, stored
from bonafed.runs.checks import Check, not_checked, nothing
from bonafed.runs.evaluation import kept, measure
from bonafed.runs.files import Record, Row
from bonafed.runs.privacy_plan import plan, privacy_of, public_of
from bonafed.runs.sections.privacy import of_point
from bonafed.runs.sections.section import Inputs, Points, Progress, Run, Section, Study
from bonafed.runs.splits import Parts
from bonafed.runs.training import proved, stop_of
from bonafed.solution.outcome import UNPROVED, failed_in
from bonafed.solution.privacy_account import was_begun
from bonafed.solution.solution import Solution
from bonafed.solution.solve import fit, trivial

JUDGES = "rows held out of the training rows"


class Sweep(Section):
    """Models at other values of a key than that of the run, beside its model."""

    name = "sweep"
    files = ("sweep.json", "sweep.safetensors")

    def applies(self, config: Config) -> bool:
        return config.sweep is not None

    def train(self, study: Study, progress: Progress) -> Points:
        """Solve and judge the problem at every value."""
        config, points, models = study.config, [], []
        if config.privacy is not None:
            made, models = charged(study, progress)
            for row, w in zip(made, models, strict=True):
                points.append(row | _private(config, w, study.parts))
            return Points(_table(config, study.parts, points), {"w": np.array(models)})
        proofs: dict[str, Mapping[str, Array]] = {}
        rows = judges(config, study.parts)
        for k, value in enumerate(of(config).values):
            there = config.at(value)
            solution = fit(there.problem(), rows.train, **there.solve_arguments(clock=False))
            if solution.outcome.stop is Stop.INTERRUPTED:
                raise KeyboardInterrupt
            duals, text = solution.duals, solution.outcome.text
            how = {"outcome": solution.outcome.stop.value, "rounds": solution.rounds}
            how |= {"tried": UNPROVED} if UNPROVED in text else {}  # then no multipliers, but
            how |= {"failed": failed} if (failed := failed_in(text)) else {}  # weights of a proof
            proofs[str(k)] = proof_arrays(duals)
            models.append(solution.w)
            given = rows, study.parts.ranked, solution.w, duals, solution.certificate
            points.append({"at": value, **how, **_point(config, there, *given)})
            progress.done(self.name, line(of(config).parameter, points[-1]))
        return Points(_table(config, study.parts, points), stored({"w": np.array(models)}, proofs))

    def result(self, inputs: Inputs) -> Record:
        """The table, computed again from the models and what proves their bounds; rounds are as
        stated.
        """
        parts, swept = inputs.parts, inputs.points[self.name]
        config, points = inputs.config.settled(parts.train), []
        rows = judges(config, parts)
        _, proofs = restored(swept.arrays)
        tried = zip(of(config).values, swept.table["points"], swept.w, strict=True)
        for k, (value, row, w) in enumerate(tried):
            if config.privacy is not None:
                points.append({**row, "at": value, **_private(config, w, parts)})
                continue
            there, arrays = config.at(value), proofs.get(str(k), {})
            problem, rounds, ending = there.problem(), row["rounds"], row["outcome"]
            how = ending, row.get("failed", ""), "tried" in row
            proof, table, mu = proved(problem, rows.train, w, arrays, *how)
            how = ending, row.get("tried", ""), rounds
            stop = stop_of(there, problem, rows.train, how, proof, mu, table)
            again = {"at": value, "outcome": stop, "rounds": rounds}
            again |= {key: row[key] for key in ("tried", "failed") if key in row}
            given = rows, parts.ranked, w, duals_of(arrays), proof
            points.append(again | _point(config, there, *given))
        return _table(config, parts, points)

    def write(self, folder: Path, points: Points) -> None:
        files.write(folder / self.files[0], files.to_json(points.table, indent=1).encode())
        files.save_arrays(folder / self.files[1], points.arrays)

    def read(self, run: Run, thresholds: int = 0) -> Points:
        files.complete(run.path, self.files)
        file, kept_in = (run.path / name for name in self.files)
        table, arrays = files.parsed(file, files.text_in(file)), files.load_arrays(kept_in)
        forms.check_form(file, table, forms.SWEEP)
        models, proofs = restored(arrays)
        points = [str(k) for k in range(len(table["points"]))]
        whole = {*models} == {"w"} and models["w"].ndim == 2
        if not whole or len(models["w"]) != len(points) or not {*proofs} <= {*points}:
            raise files.damaged(file, "it does not fit its models")
        if (run.config.privacy is None) != ("outcome" in table["points"][0]):
            raise files.damaged(file, "its points are not those of the configuration")
        kind = Multipliers if run.config.constrained else Duals
        clients = len(run.result["clients"])
        for proof in proofs.values():
            check_proof(kept_in, proof, models["w"].shape[1] + thresholds, kind, clients)
        if kind is Multipliers and len(proofs) < len(points):
            raise files.damaged(file, "a point has no multipliers")
        return Points(table, arrays)

    def stated(self, run: Run) -> Row:
        return run.points[self.name].table

    def check(self, run: Run, inputs: Inputs) -> Iterator[Check]:
        if self.name not in run.points:
            return
        yield from super().check(run, inputs)
        if run.config.privacy is not None:
            yield check_noise(run.config, inputs.parts, run.points[self.name].table["points"])
            return
        text = "rounds of the points up to max_rounds, and what ended by a method's own test"
        places = [f"{self.files[0]}: points.{key}" for key in ("rounds", "stop")]
        table = run.points[self.name].table
        places += [f"{self.files[1]}: {k}/" for k in range(len(table["points"]))]
        yield not_checked(self.name, f"{text}; which arrays prove their bounds", *places)


def of(config: Config) -> SweepSection:
    """The [sweep] of a run that has one."""
    assert config.sweep is not None
    return config.sweep


def judges(config: Config, parts: Parts) -> Parts:
    """The rows to train the points on, and the sets that judge."""
    if not of(config).held:
        return parts
    train, test = parts.train.split(of(config).held, config.seed)
    return replace(parts, train=train, tests={JUDGES: test})


def _table(config: Config, parts: Parts, points: Sequence[Row]) -> Record:
    """The content of sweep.json."""
    sweep = of(config)
    table = {"parameter": sweep.parameter, "own": sweep.own(config.model_dump(by_alias=True))}
    if sweep.held:
        test = judges(config, parts).tests[JUDGES]
        table |= {"held_out": dict(zip(test.names, map(int, test.sizes), strict=True))}
        table |= {"best": equal(points)[0]}
    return {**table, "points": [*points]}


def equal(points: Sequence[Row]) -> list[int]:
    """The points whose held-out mean loss of the worst client is the smallest, to 1e-6."""
    losses = [next(iter(point["sets"].values()))["worst_loss"] for point in points]
    least = min(losses)
    return [k for k, loss in enumerate(losses) if loss <= least + 1e-6 * abs(least)]


# ------------------------------------------------------------------------------------- one point


def _point(
    config: Config,
    there: Config,
    rows: Parts,
    ranked: int,
    w: Array,
    duals: Duals | Multipliers | None,
    proof: Certificate,
) -> Record:
    """The numbers of a point; no price is stated where it is infeasible."""
    problem, impossible = there.problem(), proof.infeasible is not None
    alone, train, tests = _alone(config, there), rows.train, rows.tests
    point: Record = {
        "value": None if impossible else proof.value,
        "bound": proof.bound,
        "relative_gap": proof.relative_gap,
        "sets": {name: _judged(problem, w, fed, alone, ranked) for name, fed in tests.items()},
    }
    if not isinstance(duals, Multipliers):
        return point | {"trivial": trivial(problem, train, w, proof)}
    point |= {"violation": proof.feasibility, "infeasible": proof.infeasible}
    if alone is not None:
        point["price"] = None if impossible else _price(config, there, train, duals)
        point["rate"] = _largest(kept(alone, w, train, other=False), "rate")
    return point


def _judged(
    problem: Problem, w: Array, fed: Federation, alone: Problem | None, ranked: int | None
) -> Record:
    """How a model does on a set of rows, and how it keeps the constraint that is changed there."""
    row = measure(problem, w, fed, ranked)
    keys = ("loss", "accuracy", "error", "worst_loss", "worst_accuracy", "worst_error")
    judged = {key: row[key] for key in keys if key in row}
    judged["worst_client"] = row["worst_loss_client"]
    if alone is not None:
        rows = kept(alone, w, fed)
        judged |= {key: _largest(rows, key) for key in ("measured", "rate")}
    return judged


def _private(config: Config, w: Array, parts: Parts) -> Record:
    """The exact numbers of a point of a private run."""
    problem = config.problem()
    sets = {name: _judged(problem, w, fed, None, parts.ranked) for name, fed in parts.tests.items()}
    return {"value": problem.objective(w, parts.train), "sets": sets}


def _largest(rows: list[Record], key: str) -> float | None:
    """The largest of a column."""
    return max((row[key] for row in rows if row[key] is not None), default=None)


def _alone(config: Config, there: Config) -> Problem | None:
    """The problem with only the constraint whose limit is changed; None where none is."""
    place = of(config).constraint
    if place is None or place[1] not in ("level", "limit"):
        return None
    return there._with(constraint=[there.constraint[place[0]]]).problem()


# ------------------------------------------------------------------------------------ its proof


def _price(config: Config, there: Config, fed: Federation, mu: Multipliers) -> float:
    """Minus the gradient of the optimal value in the limit: the sum of the multipliers of the
    constraint.

    In the multipliers of every client, of the sums, or of the server the rows of a constraint come
    after those of the constraints before it in the same place.
    """
    k, _ = of(config).constraint or (0, "")
    concrete, _ = there.problem().at(fed)
    glob, local = concrete.constraint, concrete.local_constraint
    places = {"clients": (local, mu.local), "together": (glob.coupled, mu.shared)}
    chosen = [places.get(one.place, (glob.held, mu.server)) for one in there.constraint[: k + 1]]
    stack, multipliers = chosen[-1]
    before = sum(other is stack for other, _ in chosen[:-1])
    sizes = [len(part.equality) for part in stack.parts]
    start = sum(sizes[:before])
    here = multipliers[..., start : start + sizes[before]]
    return float(_netted(stack.parts[before], here).sum())


def _netted(part: Concrete, multipliers: Array) -> Array:
    """The multipliers (..., p) without what those of two constraints that bound the same from
    either side have in common.

    At level 0 these are one equality, of which only the difference of the two multipliers is
    determined.
    """
    mu, rows = multipliers.copy(), part.one if isinstance(part, Shared) else part
    factors = rows.coefficients if isinstance(rows, OnRows) else np.zeros((0, 0))
    for a in range(len(factors)):
        for b in range(a):
            if (factors[a] == -factors[b]).all():
                mu[..., [a, b]] -= np.minimum(mu[..., [a]], mu[..., [b]])
    return mu


def line(parameter: str, point: Row) -> str:
    """A point in one line."""
    text = f"{parameter} = {point['at']:g}: "
    if point["value"] is None:
        return f"{text}no model meets all constraints"
    text += f"objective {point['value']:.6f}, {point['rounds']} rounds"
    if point.get("price") is not None:
        text += f", multiplier {point['price']:.4g}"
    for judged in [*point["sets"].values()][:1]:
        text += f"; held-out loss {judged['loss']:.4g}, worst client {judged['worst_loss']:.4g}"
        text += f" ({judged['worst_client']})"
        if "accuracy" in judged:
            text += f", accuracy {judged['accuracy']:.1%}, worst {judged['worst_accuracy']:.1%}"
    return text


# ------------------------------------------------------------------------------------------ charged
#
# The models of a private run at other budgets: each is charged, before the model of the run, which
# spends what they leave of the budget (`bonafed.runs.privacy_plan`). Points that are finished are
# kept with their models in the folder of the work, so that none is charged again.

FINISHED = "sweep.json"  # of a working folder: the points that are finished


def charged(study: Study, progress: Progress) -> tuple[list[Record], list[Array]]:
    """What every point was run with, and its model; those in the folder of the work are kept."""
    assert study.work is not None
    config, budget, file = study.config, study.budget, study.work / FINISHED
    stored: Record = {"plan": [], "points": []}
    if study.resume and file.is_file():
        size = len(config.problem().model_start(study.parts.train.n_features))
        stored = _finished(file, config.budgets, size)
    if not stored["plan"]:
        public = public_of(config, study.parts.owners.n_features)
        stored["plan"] = [*map(list, plan(config, public, budget.book).sweep)]
        files.write(file, json.dumps(stored).encode())
    for k, (epsilon, total) in enumerate(stored["plan"]):
        if k < len(stored["points"]):
            continue
        solution = _trained(study, k, epsilon, total, progress)
        assert solution.ledger is not None
        # of clients whose records count for less in a sum, the one whose records count most
        releases = min(solution.ledger.releases.values(), key=lambda each: each[-1].noise)
        alone = total_epsilon(releases, budget.delta)
        numbers = {"at": epsilon, "alone": alone, "noise": releases[-1].noise}
        stored["points"].append({**numbers, "w": solution.w.tolist()})
        files.write(file, json.dumps(stored).encode())
    rows = [{key: v for key, v in row.items() if key != "w"} for row in stored["points"]]
    return rows, [np.array(row["w"]) for row in stored["points"]]


def _finished(file: Path, epsilons: Sequence[float], size: int) -> Record:
    """The plan and the points in the folder of a run that was interrupted, whose models have so
    many numbers.
    """
    stored = files.parsed(file, files.text_in(file))
    forms.check_form(file, stored, forms.CHARGED)
    plan, points = stored["plan"], stored["points"]
    ends = [epsilon for epsilon, _ in plan]
    known = [(row["at"], len(row["w"])) for row in points]
    if ends not in ([], list(epsilons)) or known != [(end, size) for end in ends[: len(points)]]:
        raise files.damaged(file, "its points are not those of the configuration")
    return stored


def _trained(study: Study, k: int, epsilon: float, total: float, progress: Progress) -> Solution:
    """The k-th run of the sweep, within the total that all runs up to it may spend."""
    config, name = study.config, f"epsilon {epsilon:g}"
    assert study.work is not None
    budget = replace(study.budget, epsilon=total)
    budget = replace(budget, book=None) if privacy_of(config).rehearsal else budget
    path = study.work / f"sweep-{k}.checkpoint"
    arguments = {**config.solve_arguments(path), "seed": config.seed + 1 + k}
    problem, again = replace(config.problem(), privacy=budget), study.resume and was_begun(path)
    watch = (progress.watch(name),)
    solution = fit(problem, study.parts.train, **arguments, watch=watch, resume=again)
    if solution.outcome.stop is Stop.INTERRUPTED:
        raise KeyboardInterrupt
    progress.done(name, solution.outcome.text)
    return solution


def check_noise(config: Config, parts: Parts, points: Sequence[Row]) -> Check:
    """The noise of every point against its budget."""
    public, odd = public_of(config, parts.train.n_features), []
    for row in points:
        release = of_point(config, public, row["at"])
        alone = total_epsilon((replace(release, noise=row["noise"]),), privacy_of(config).delta)
        if not math.isclose(release.noise, row["noise"], rel_tol=1e-4):
            odd.append(f"the noise {row['noise']:.6g} is not that of epsilon {row['at']:g}")
        if not math.isclose(alone, row["alone"], rel_tol=1e-9):
            odd.append(f"noise {row['noise']:.6g} by itself makes epsilon {alone:.6g}")
    return nothing("sweep", odd, "noise as its epsilons need it", "differs")
