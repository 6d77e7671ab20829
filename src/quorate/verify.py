"""Check a finished run without training again, trusting nothing in its folder.

Digests show damage. Whatever follows from (config, data, w, duals) is computed again: the certificate by
`quorate.certificates`, the table of clients, the baselines' objectives, the evaluation, the radii tried. So a changed
number is found even where all digests were changed with it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate.config import ConfigError
from quorate.radii import FILE, MODELS, recomputed
from quorate.runs import Run, data_digests, digest, plain, read_run, seal
from quorate.trade_off import LEVELS, PROOFS
from quorate.trade_off import recomputed as recomputed_levels

if TYPE_CHECKING:
    from quorate.parts import Parts

CLOSE = 1e-9  # relative: values computed again on another machine agree to rounding, not bit for bit
UNPROVED = "nothing is feasible could not be proved"  # in an outcome of a run that tried to
ROUNDING = 1e-12  # relative to the objective: of a gap


@dataclass(frozen=True)
class Check:
    """One thing that was checked; ``ok`` is None where it could not be."""

    name: str
    ok: bool | None
    said: str


def verify_run(path: str | os.PathLike[str], parts: Parts | None = None) -> list[Check]:
    """Check a run against its own files and its data; nothing is trained again.

    Parameters
    ----------
    path : the run's folder
    parts : its data; read as its config.toml says by default

    Returns
    -------
    list of Check
        files, seal, finite numbers; and, where the data can be read: their digests, the certificate, the table of
        clients, the baselines, the evaluation and the radii tried, all computed again but for the lower bounds of
        these. A check that needs absent data has ok None. Of a private run the part that travels from itself alone,
        and the owner's part where it is there.
    """
    run = read_run(path)
    if run.config.privacy is not None:
        from quorate.parts import prepare
        from quorate.private_verify import check_private

        return [*check_private(run, lambda: parts or prepare(run.config))]
    needed = {"config.toml", "model.safetensors", "duals.safetensors", "history.jsonl"}
    needed |= set() if run.tried is None else {FILE, MODELS}
    needed |= set() if run.traded is None else {LEVELS, PROOFS}
    checks = [*check_files(run, needed, "result.json"), _check_finite(run)]
    try:
        from quorate.parts import prepare

        parts = parts or prepare(run.config)
    except (ConfigError, ValueError, OSError) as error:
        return [*checks, Check("data", None, f"the data cannot be read, so the certificate is not checked: {error}")]
    try:
        for found in (check_data(run, parts), check_numbers(run, parts)):
            checks.extend(found)  # those before an error stay
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        checks.append(Check("numbers", False, f"cannot be computed again: {error}"))
    return checks


def check_files(run: Run, needed: set[str], where: str) -> Iterator[Check]:
    """The files of a folder are those that ``where`` names, as they were written, the ``needed`` among them."""
    said = run.result.get("files", {})
    for name, expected in said.items():
        file = run.path / name
        if not file.is_file():
            yield Check(name, False, "is missing")
        elif digest(file.read_bytes()) != expected:
            yield Check(name, False, "was changed after the run: its digest differs")
    sealed = run.result.get("seal") == seal(run.result) and needed <= {*said}
    yield Check(where, sealed, f"{len(said)} files as written" if sealed else "was changed: its seal differs")


def _check_finite(run: Run) -> Check:
    arrays = {"w": run.w, **run.duals, **run.baselines, "path": np.empty(0) if run.tried is None else run.tried.w}
    arrays |= {} if run.traded is None else {f"trade-off: {name}": array for name, array in run.traded.arrays.items()}
    odd = [name for name, array in arrays.items() if not np.isfinite(array).all()]
    return Check("finite", not odd, f"not finite: {', '.join(odd)}" if odd else "model and duals are finite")


def check_data(run: Run, parts: Parts) -> Iterator[Check]:
    """The rows are those of the run."""
    stated, found = run.result.get("data", {}), data_digests(parts)
    for name in sorted(stated.keys() | found.keys()):
        old, new = stated.get(name, {}), found.get(name, {})
        odd = [c for c in dict.fromkeys((*old, *new)) if old.get(c) != new.get(c)]
        said = f"the rows of {', '.join(odd[:5])} differ from those of the run" if odd else f"{len(new)} clients"
        yield Check(f"data: {name}", not odd, said)


def check_numbers(run: Run, parts: Parts) -> Iterator[Check]:
    """Whatever follows from rows, model and duals."""
    from quorate.constrained_trial import TOLD as OF_CONSTRAINTS
    from quorate.constrained_trial import of_constraints
    from quorate.notes import client_table, notes
    from quorate.rank_trial import TOLD, of_ranks
    from quorate.trial import BASELINES, called, evaluate, label

    problem, fed, stated = run.config.settled(parts.train).problem(), parts.train, run.result
    certificate, rows, mu = _proved(run, problem, fed)
    again, told = plain(certificate.numbers()), dict(stated["certificate"])
    again["consensus"] = told["consensus"]  # of the clients' copies, which stay with them
    same = partial(compared, floor=abs(certificate.value))
    yield same("certificate", told, again)
    yield Check("guarantee", *_guarantee(told, again))
    if run.duals and not run.config.constrained:
        yield same("duals", plain(run.duals["weights"]), again["weights"])
    concrete, data = problem.at(fed)
    table = plain(client_table(concrete, data, certificate, rows))
    kept = [{k: row.get(k) for k in table[0]} for row in stated["clients"]]
    yield same("clients", kept, table)
    sizes = [
        [r[f"bytes_{way}"] for r in stated["clients"]] for way in ("up", "down")
    ]  # not recomputed, but they add up
    total = [sum(r["bytes"] for r in stated["messages"] if r["direction"] == way) for way in ("up", "down")]
    yield same("bytes", [sum(each) for each in sizes], total)
    yield compared("problem", stated["problem"], run.config.sentence())
    yield same("notes", stated["notes"], plain(notes(concrete, fed, data, run.w, certificate)))
    values = {k: p.objective(w, f) for k, w in run.baselines.items() for p, f in [BASELINES[k](problem, fed)]}
    yield same("baselines", {k: v["value"] for k, v in stated["baselines"].items()}, plain(values))
    order = [k for k in run.config.report.compare_with if k in run.baselines]
    models = {label(problem): run.w, **{called(k): run.baselines[k] for k in order}}
    yield same("evaluation", stated["evaluation"], plain(evaluate(problem, models, parts.tests, parts.ranked)))
    yield same(
        "ranks", {k: stated[k] for k in TOLD if k in stated}, plain(of_ranks(run.config, models, fed, parts.owners))
    )
    held = plain(of_constraints(problem, models, parts, rows, certificate, mu))
    yield same("constraints", {k: stated[k] for k in OF_CONSTRAINTS if k in stated}, held)
    if run.config.constrained:
        yield Check("outcome", *_ended(run, concrete, fed, certificate, rows))
    if run.traded is not None:
        yield same("trade-off", run.traded.table, plain(recomputed_levels(run.config, parts, run.traded)))
    if run.tried is not None:
        yield compared("path", run.tried.table, plain(recomputed(run.config, fed, run.tried.table, run.tried.w)))
    yield Check("rounds", *_rounds(run))
    if run.events is not None or "clock" in stated:
        yield _check_clock(run, plain(certificate.value))


def _rounds(run: Run) -> tuple[bool, str]:
    """One row of the history for every so many rounds, and perhaps one for the last."""
    rounds, keep, found = run.result["rounds"], run.config.engine.keep_rows, [row["round"] for row in run.history]
    expected = list(range(keep, rounds + 1, keep))
    whole = found in (expected, [*expected, rounds])
    return whole, f"{rounds} rounds, {len(found)} in history.jsonl"


def _check_clock(run: Run, value: float) -> Check:
    """The events add up to the rounds and the answers, and the last look was at the model."""
    from quorate.reached import summary

    stated, log = run.result, run.events
    if log is None or "clock" not in stated:
        return Check("events", False, "the log of events, or what is said of it, is missing")
    last = stated["reached"][stated["model"]]["objective"][-1] if "reached" in stated else value
    found = {"clock": plain(summary(log)), "rounds": len(log.ends), "value": last}
    asked = {"clock": stated["clock"], "rounds": stated["rounds"], "value": value}
    if run.config.engine.keep_rows == 1:
        found["answered"], asked["answered"] = len(log.answered), sum(row["answered"] for row in run.history)
    return compared("events", asked, found)


def _proved(run: Run, problem: Any, fed: Any) -> tuple[Any, list[dict[str, Any]], Any]:
    """The certificate, and with constraints their table and the multipliers."""
    from quorate.certificates.constrained import certify_constrained
    from quorate.certificates.duality import certify
    from quorate.prices import constraint_table
    from quorate.problem.bounds import Duals
    from quorate.problem.multipliers import Multipliers, no_multipliers, signed

    if not run.config.constrained:
        return certify(problem, fed, run.w, Duals(**run.duals) if run.duals else None), [], None
    ended = run.result["outcome"]
    infeasible = ended["stop"] == "infeasible" or UNPROVED in ended["text"]  # then multipliers are weights of a proof
    mu = Multipliers(**run.duals)
    certificate, _ = certify_constrained(problem, fed, run.w, mu, infeasible=infeasible)
    concrete, data = problem.at(fed)
    mu = signed(concrete, mu)
    prices = no_multipliers(concrete, fed.n_clients) if infeasible else mu
    return certificate, constraint_table(concrete, data, certificate, prices), mu


def _ended(run: Run, problem: Any, fed: Any, certificate: Any, rows: list[dict[str, Any]]) -> tuple[bool, str]:
    """Whether the claim of a run with constraints is borne out, as `quorate.solve` would word it."""
    from quorate.default import default_algorithm
    from quorate.problem.multipliers import Multipliers
    from quorate.rounds import Outcome, Stop
    from quorate.solution import configure, confirmed_constrained

    asked, stated = run.config.solve_arguments(), run.result["outcome"]
    given = [asked["tol"], None, asked["max_rounds"], None]
    algorithm = configure(asked["algorithm"] or default_algorithm(problem, fed), problem, fed, *given)
    claim = Outcome(Stop(stated["stop"]), "")
    found = confirmed_constrained(problem, fed.clients, claim, certificate, Multipliers(**run.duals), rows, algorithm)
    same = found.stop is claim.stop and (claim.stop is not Stop.INFEASIBLE or _conflict(found.text) in stated["text"])
    return same, f"{stated['stop']}, as the certificate bears out" if same else f"is not {stated['stop']}: {found.text}"


def _conflict(text: str) -> str:
    """Who is in conflict, of the words of an outcome."""
    return text[text.index("In conflict") :]


def _guarantee(stated: Mapping[str, Any], again: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether the gap found is no larger than the gap stated, and the stated numbers add up."""
    value, bound, gap = (stated[key] for key in ("value", "bound", "gap"))
    if again["gap"] is None or bound is None or gap is None:
        same = again["gap"] is bound is gap is stated["relative_gap"] is None
        return same, f"value {again['value']:.9g}, no lower bound is {'stated' if same else 'proved as stated'}"
    scale = max(abs(value), abs(bound), 1e-12)
    adds_up = math.isclose(gap, value - bound) and math.isclose(stated["relative_gap"], gap / scale)
    holds = adds_up and -ROUNDING * scale <= again["gap"] <= gap + ROUNDING * scale
    return holds, f"value {again['value']:.9g}, proven bound {again['bound']:.9g}, gap {again['gap']:.2g}"


def compared(name: str, stated: Any, again: Any, floor: float = 1.0) -> Check:
    """Every number against its recomputation, relative to its size or ``floor``, whichever is larger."""
    odd = list(_differences(stated, again, name, max(floor, 1e-12)))
    said = "as stated" if not odd else f"differs: {'; '.join(odd[:3])}" + (f" and {len(odd) - 3} more" * (len(odd) > 3))
    return Check(name, not odd, said)


def _differences(a: Any, b: Any, at: str, floor: float) -> Iterator[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys((*a, *b)):
            yield from _differences(a.get(key, "absent"), b.get(key, "absent"), f"{at}.{key}", floor)
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for k, pair in enumerate(zip(a, b, strict=True)):
            yield from _differences(*pair, f"{at}[{k}]", floor)
    elif not _same(a, b, floor):
        yield f"{at} is stated as {a!r} and is {b!r}"


def _same(a: Any, b: Any, floor: float) -> bool:
    if isinstance(a, bool) or isinstance(b, bool) or not isinstance(a, int | float) or not isinstance(b, int | float):
        return type(a) is type(b) and a == b
    return abs(a - b) <= CLOSE * max(abs(a), abs(b), floor)


def passed(checks: Sequence[Check], without_data: bool = False) -> bool:
    """Whether everything was checked and is right; ``without_data``: whether nothing is wrong."""
    return all(check.ok or (without_data and check.ok is None) for check in checks)
