"""Check a finished run without training again, trusting nothing in its folder.

Digests show damage. Whatever follows from (config, data, w, duals) is computed again: the
certificate by `bonafed.certificates`, the outcome, the table of clients, the certificates of the
baselines, the evaluation, and the results of all sections. So a changed number is found even where
all digests were changed with it. What would take training to be seen again, such as the history of
the rounds, and what nothing can show is listed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from bonafed.arrays import Array
from bonafed.certificates.certificate import Certificate
from bonafed.certificates.constrained import certify_constrained
from bonafed.certificates.duality import certify_run
from bonafed.certificates.row_spectra import certify_ranks
from bonafed.config.config import ConfigError
from bonafed.data.federation import Federation
from bonafed.problem.calibration import Sigmoid, calibrated
from bonafed.problem.lower_bounds import Duals
from bonafed.problem.metadata import Metadata
from bonafed.problem.multipliers import Multipliers, no_multipliers, signed
from bonafed.problem.problem import Problem
from bonafed.rounds import Stop
from bonafed.runs.baselines import BASELINES, called, label
from bonafed.runs.checks import Check, check_files, compared, not_checked, passed
from bonafed.runs.comparison import evaluate
from bonafed.runs.disclosure import OWNER, check_public, public_evaluation, public_result
from bonafed.runs.files import UNREADABLE, FormError, Record, Row, plain
from bonafed.runs.folder import EVENTS, Render, read_run
from bonafed.runs.folder_checks import check_declared_model, check_model, check_names, check_report
from bonafed.runs.outcomes import check_outcome, ended, method_of, stop_of
from bonafed.runs.result import data_digests
from bonafed.runs.run import Run
from bonafed.runs.sections.all import SECTIONS
from bonafed.runs.sections.section import Inputs
from bonafed.runs.splits import Parts, prepare
from bonafed.solution.outcome import UNPROVED, failed_in
from bonafed.solution.solution import public_history
from bonafed.solution.tables import client_table, constraint_table, limits_of
from bonafed.solution.warnings import notes

__all__ = ["Check", "passed", "verify_run"]

SHARED = ("config.toml", "model.safetensors")  # files of both parts of a private run
ROUNDING = 1e-12  # relative to the objective: of a gap


def verify_run(
    path: str | os.PathLike[str], parts: Parts | None = None, render: Render | None = None
) -> list[Check]:
    """Check a run against its own files and its data; nothing is trained again.

    Parameters
    ----------
    path : the run's folder
    parts : its data; read as its config.toml says by default
    render : draws the files of its report again

    Returns
    -------
    list of Check
        files, seal, finite numbers; of a private run that its public part adds up and has nothing
        else; and, where the data can be read: their digests, the certificate, the table of clients,
        the baselines, the evaluation and all sections, computed again. A check that needs absent
        data has ok None. Of a private run the owner's part is checked where it is there.
    """
    try:
        run = read_run(path)
    except FormError as error:
        return [Check("form", False, str(error))]
    return verified(run, parts, render)


def verified(run: Run, parts: Parts | None = None, render: Render | None = None) -> list[Check]:
    """The same of a run that was read."""
    checks: list[Check] = []
    try:
        for check in _checks(run, parts, render):  # those before an error stay
            checks.append(check)
    except UNREADABLE as error:
        checks.append(Check("numbers", False, f"cannot be computed again: {error}"))
    return checks


def _checks(run: Run, parts: Parts | None, render: Render | None) -> Iterator[Check]:
    yield from _check_alone(run)
    yield from check_report(run, render)
    judged = run.private and run.config.evaluation.public
    if run.exact is None and not judged:
        text = "stays with the owner: this copy has none"
        if run.config.data.sites is not None:
            text = "no site computed anything without noise"
        yield Check(OWNER.rstrip("/"), True, text)
        return
    if run.config.data.sites is not None:
        text = "stay at the sites, so what was computed from them is not checked"
        yield Check("data", None, f"{text}: give --keys, the sites' public keys")
        return
    try:
        parts = parts or prepare(run.config)
    except (ConfigError, ValueError, OSError) as error:
        text = f"the data cannot be read, so what was computed from them is not checked: {error}"
        yield Check("data", None, text, keys=_without_data(run))
        return
    if judged:
        yield _check_public_evaluation(run, parts)
    if run.owner is not None:
        yield _check_parts(run, run.owner)
    if run.exact is not None:
        yield from (_of_part(run, check) for check in _check_with_data(run.exact, parts))


def _without_data(run: Run) -> tuple[str, ...]:
    """What only the rows show: all that does not follow from configuration and form."""
    known = ("format", "title", "model", "versions", "files", "seal", "privacy", "withheld")
    part, where = run.exact or run, "" if run.owner is None else OWNER
    of_result = (f"{where}result.json: {key}" for key in part.result if key not in known)
    inside = (f"{where}{name}" for name in part.result["files"])
    return (*of_result, *inside, "model.safetensors", "config.toml")


def _check_alone(run: Run) -> Iterator[Check]:
    """What can be checked without the data."""
    yield from check_files(run.path, run.result, _files(run), "result.json")
    yield from check_names(run)
    yield _check_finite(run)
    if run.config.privacy is not None:
        yield check_public(run)
    if run.config.privacy is not None or run.config.data.sites is not None:
        yield from check_declared_model(run)
        again = [run.config.sentence(), label(run.config.problem())]
        yield compared("problem", [run.result["problem"], run.result["model"]], again)
    for section in SECTIONS:
        yield from section.check_alone(run)
    if run.owner is not None:
        needed = {"history.jsonl", "README.txt"}
        yield from check_files(run.owner.path, run.owner.result, needed, f"{OWNER}result.json")


def _files(run: Run) -> set[str]:
    """The files that a folder must have."""
    needed = {"config.toml", "model.safetensors", "history.jsonl"}
    needed |= {"duals.safetensors"} if run.config.privacy is None else set()
    needed |= {EVENTS} if run.config.logged else set()
    return needed.union(*(s.files for s in SECTIONS if s.name in run.points))


def _check_finite(run: Run) -> Check:
    arrays = {"w": run.w, **run.duals, **run.baselines}
    for name, points in run.points.items():
        arrays |= {f"{name}: {key}": array for key, array in points.arrays.items()}
    odd = [name for name, array in arrays.items() if not np.isfinite(array).all()]
    text = f"not finite: {', '.join(odd)}" if odd else "model and duals are finite"
    return Check("finite", not odd, text)


def _check_parts(run: Run, owner: Run) -> Check:
    """The public part has of the owner's what may travel, and as it is there."""
    whole = {**run.result, **owner.result, "privacy": run.result["privacy"]}
    again = public_result(run.config, whole)
    stated = {key: value for key, value in run.result.items() if key not in ("files", "seal")}
    pair = [stated, run.history], [again, plain(public_history(owner.history))]
    return compared(f"{OWNER}public part", *pair)


def _check_public_evaluation(run: Run, parts: Parts) -> Check:
    """The numbers of the private model on rows that are declared public."""
    again = evaluate(run.config.problem(), {"private": run.w}, parts.tests, parts.ranked)
    again = plain(public_evaluation(run.config, again))
    return compared("evaluation", run.result["evaluation"], again)


def _of_part(run: Run, check: Check) -> Check:
    """A check of the exact part of a run under the name of that part."""
    if not run.private:
        return check
    keys = (key if key.startswith(SHARED) else f"{OWNER}{key}" for key in check.keys)
    return replace(check, name=f"{OWNER}{check.name}", keys=tuple(keys))


def _check_with_data(run: Run, parts: Parts) -> Iterator[Check]:
    """The rows are those of the run, and whatever follows from rows, model and duals."""
    yield from _check_data(run, parts)
    yield from check_model(run, parts)
    inputs = _inputs(run, parts)
    yield from _check_certificate(run, inputs)
    yield from _check_clients(run, inputs)
    yield from _check_models(run, inputs)
    for section in SECTIONS:
        yield from section.check(run, inputs)
    if run.config.privacy is None:
        yield from check_outcome(run, inputs.problem, parts.train)
    yield from check_rounds(run)
    yield from unchecked_settings()


def check_rounds(run: Run) -> Iterator[Check]:
    """The history has one row for every so many rounds, and perhaps one for the last; what happened
    in them is listed.
    """
    rounds, keep = run.result["rounds"], run.config.engine.get("keep_rows") or 1
    rows, expected = [row["round"] for row in run.history], list(range(keep, rounds + 1, keep))
    whole = rows in (expected, [*expected, rounds])
    yield Check("rounds", whole, f"{rounds} rounds, {len(rows)} in history.jsonl")
    yield unchecked_rounds()


def unchecked_rounds() -> Check:
    """What happened on the way to the model."""
    text = "what happened in the rounds, and what was sent: only training shows it again"
    bytes_sent = (f"clients.bytes_{way}" for way in ("up", "down"))
    places = (f"result.json: {key}" for key in ("rounds", "messages", *bytes_sent))
    return not_checked("history", text, "history.jsonl", *places)


def unchecked_settings() -> Iterator[Check]:
    """What no kind of run can show."""
    yield not_checked("seconds", "nothing shows how long training took", "result.json: seconds")
    text = (
        "options of the method and of the engine, beyond what numbers and messages imply, and"
        " whether rows outside the support were to be clipped, where there are none"
    )
    places = (f"config.toml: {key}" for key in ("algorithm", "engine", "seed", "robust.clip"))
    yield not_checked("config.toml", text, *places)


def _check_data(run: Run, parts: Parts) -> Iterator[Check]:
    stated, again = run.result.get("data", {}), data_digests(parts)
    for name in sorted(stated.keys() | again.keys()):
        old, new = stated.get(name, {}), again.get(name, {})
        odd = [c for c in dict.fromkeys((*old, *new)) if old.get(c) != new.get(c)]
        text = f"{len(new)} clients"
        if odd:
            text = f"the rows of {', '.join(odd[:5])} differ from those of the run"
        yield Check(f"data: {name}", not odd, text)


def _inputs(run: Run, parts: Parts) -> Inputs:
    """What results are computed from, with the certificate proved again."""
    problem = run.config.settled(parts.train).problem()
    certificate, table, multipliers = _proved(run, problem, parts.train)
    order = [name for name in run.config.report.compare_with if name in run.baselines]
    return Inputs(
        config=run.config,
        problem=problem,
        parts=parts,
        models={label(problem): run.w, **{called(name): run.baselines[name] for name in order}},
        certificate=certificate,
        multipliers=multipliers,
        constraints=table,
        histories={label(problem): run.history},
        events=run.events,
        points=run.points,
    )


def _check_certificate(run: Run, inputs: Inputs) -> Iterator[Check]:
    again, stated = plain(inputs.certificate.numbers()), run.result["certificate"]
    again["consensus"] = stated["consensus"]  # of the clients' copies, which stay with them
    yield inputs.compared("certificate", stated, again)
    if stated["consensus"] is not None:
        yield unchecked_consensus()
    yield _check_guarantee(stated, again)
    if "weights" in run.duals and not tried_infeasible(run):
        weights = _weights(inputs.problem, inputs.parts.train, inputs.certificate)
        yield inputs.compared("duals", plain(run.duals["weights"]), weights)
        yield unchecked_proof()
    if "points" in run.duals and (mu := inputs.multipliers) is not None:
        sums = {name: getattr(mu, name) for name in ("server", "shared", "local")}
        were = {name: run.duals[name] for name in sums}
        yield inputs.compared("multipliers", plain(were), plain(sums))


def unchecked_proof() -> Check:
    """Which arrays prove a bound."""
    text = "which arrays prove the bound: it follows from these, and may from others"
    places = (f"duals.safetensors: {name}" for name in ("points", "multipliers", "split"))
    return not_checked("duals", text, *places)


def unchecked_consensus() -> Check:
    """How far the clients' own copies are from the model."""
    text = "consensus: the clients' copies stay with them"
    return not_checked("certificate", text, "result.json: certificate.consensus")


def _check_clients(run: Run, inputs: Inputs) -> Iterator[Check]:
    result, fed, certificate = run.result, inputs.parts.train, inputs.certificate
    concrete, data = inputs.problem.at(fed)
    table = client_table(concrete, data, certificate, inputs.constraints)
    stated = [{key: row.get(key) for key in table[0]} for row in result["clients"]]
    yield inputs.compared("clients", stated, table)
    named = [run.config.sentence(), label(inputs.problem)]
    yield inputs.compared("problem", [result["problem"], result["model"]], named)
    again = notes(concrete, fed, data, run.w, certificate)
    yield inputs.compared("notes", result["notes"], again)


def _check_models(run: Run, inputs: Inputs) -> Iterator[Check]:
    result, problem, parts = run.result, inputs.problem, inputs.parts
    again = {name: _baseline(run, name, problem, parts) for name in run.config.report.compare_with}
    yield inputs.compared("baselines", stated_baselines(run), again)
    if again:
        yield unchecked_baselines(again)
    again = evaluate(problem, inputs.models, parts.tests, parts.ranked, _sigmoids(run, inputs))
    yield inputs.compared("evaluation", result["evaluation"], again)


def stated_baselines(run: Run) -> dict[str, Record]:
    """What is stated of every baseline, with the weights in its proof."""
    stated = {name: {**row, "weights": None} for name, row in run.result["baselines"].items()}
    for name, proof in run.proofs.items():
        stated[name]["weights"] = plain(proof["weights"])
    return stated


def unchecked_baselines(names: Iterable[str]) -> Check:
    """What nothing shows of models that have no history."""
    places: list[str] = []
    for name in names:
        places += [f"result.json: baselines.{name}.{key}" for key in ("rounds", "stop")]
        places.append(f"baselines.safetensors: {name}/")
    text = "rounds up to max_rounds, and how they ended by their own test: no history is kept"
    return not_checked("baselines", f"{text}; which arrays prove their bounds", *places)


def _sigmoids(run: Run, inputs: Inputs) -> dict[str, Sigmoid | None]:
    """What makes probabilities of the scores of every model."""
    problem, fed = inputs.problem, inputs.parts.train
    others = {name: BASELINES[name](problem, fed) for name in run.config.report.compare_with}
    return {label(problem): calibrated(problem, fed, run.w)} | {
        called(name): calibrated(*stated, run.baselines[name]) for name, stated in others.items()
    }


def _baseline(run: Run, name: str, problem: Problem, parts: Parts) -> Record:
    """What is stated of a baseline, from its model and what proves its bound."""
    baseline, fed = BASELINES[name](problem, parts.train)
    proof = run.proofs.get(name)
    duals = Duals(**proof) if proof else None
    certificate = _certified(baseline, fed, run.baselines[name], duals)
    clock = fed.clients == parts.train.clients
    return baseline_again(run, name, baseline, fed, certificate, clock)


def baseline_again(
    run: Run,
    name: str,
    baseline: Problem,
    fed: Federation | Metadata,
    certificate: Certificate,
    clock: bool = False,
) -> Record:
    """What is stated of a baseline, with the weights of its proof, from its certificate; ``clock``:
    whether it ran on that of the engine.
    """
    stated = run.result["baselines"][name]
    method = method_of(run.config, baseline, fed, main=False, clock=clock)
    end = ended(run.config, method, stated["stop"], "", stated["rounds"], clock)
    numbers = {"value": certificate.value, "bound": certificate.bound, "gap": certificate.gap}
    stop = stop_of(end, baseline, fed, certificate)
    weights = _weights(baseline, fed, certificate) if name in run.proofs else None
    return {**numbers, "stop": stop, "rounds": stated["rounds"], "weights": weights}


def _certified(problem: Problem, fed: Federation, w: Array, duals: Duals | None) -> Certificate:
    """The certificate of a model without constraints."""
    by = certify_run if problem.over_rows is None else certify_ranks
    return by(problem, fed, w, duals)[0]


def _weights(problem: Problem, fed: Federation | Metadata, certificate: Certificate) -> list[float]:
    """The weights of clients in what proves a bound: by rows, where all are ranked together."""
    weights: list[float] = plain(certificate.weights)
    return weights if problem.over_rows is None else plain(fed.sizes / fed.sizes.sum())


def _proved(
    run: Run, problem: Problem, fed: Federation
) -> tuple[Certificate, list[Record], Multipliers | None]:
    """The certificate, and with constraints their table and the multipliers."""
    outcome = run.result["outcome"]
    failed = failed_in(outcome["text"])  # then no bound is stated
    if not run.config.constrained:
        duals = Duals(**run.duals) if run.duals else None
        return replace(_certified(problem, fed, run.w, duals), failed=failed), [], None
    infeasible = tried_infeasible(run)
    mu = Multipliers(**run.duals)
    bounded = not failed and run.result["outcome"]["stop"] != Stop.UNBOUNDED.value
    certificate, _ = certify_constrained(
        problem, fed, run.w, mu, infeasible=infeasible, bounded=bounded
    )
    certificate = replace(certificate, failed=failed)
    concrete, data = problem.at(fed)
    mu = signed(concrete, mu)
    multipliers = no_multipliers(concrete, fed.n_clients) if infeasible else mu
    table = constraint_table(
        concrete, data.clients, limits_of(concrete, data), certificate, multipliers
    )
    return certificate, table, mu


def tried_infeasible(run: Run) -> bool:
    """Whether the multipliers of a run are weights of a proof that nothing is feasible."""
    outcome = run.result["outcome"]
    return outcome["stop"] == Stop.INFEASIBLE.value or UNPROVED in outcome["text"]


def _check_guarantee(stated: Row, again: Row) -> Check:
    """The gap is no larger than stated, and the stated numbers add up."""
    value, bound, gap = (stated[key] for key in ("value", "bound", "gap"))
    text = f"value {again['value']:.9g}"
    if again["gap"] is None or bound is None or gap is None:
        same = again["gap"] is bound is gap is stated["relative_gap"] is None
        text += f", no lower bound is {'stated' if same else 'proved as stated'}"
        return Check("guarantee", same, text)
    scale = max(abs(value), abs(bound), 1e-12)
    adds_up = math.isclose(gap, value - bound) and math.isclose(stated["relative_gap"], gap / scale)
    # a model that breaks constraints may have a lower objective than any that keeps them
    least = -ROUNDING * scale if not again["feasibility"] else -math.inf
    holds = adds_up and least <= again["gap"] <= gap + ROUNDING * scale
    text += f", proven bound {again['bound']:.9g}, gap {again['gap']:.2g}"
    return Check("guarantee", holds, text)
