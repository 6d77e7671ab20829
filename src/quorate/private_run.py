"""The folder of a private run: a part that travels, and a folder in it that stays with the owner.

    config.toml  model.safetensors  history.jsonl  result.json  report.html  figures/      travels
    owner/  README.txt  result.json  history.jsonl  baselines.safetensors                  stays
            curve.safetensors  report.html  figures/

What travels is made of public numbers and of what was noised and charged: two data sets that differ in one record and
have the same answers give the same bytes. All that is exact is in ``owner/``: objective, certificate, losses, digests
of the data, warnings, comparisons, the model without privacy, the models of the curve, times.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate import runs
from quorate.arrays import Array
from quorate.config import Config
from quorate.privacy.accounting import Release, accounts, total_epsilon
from quorate.private_trial import REHEARSAL, Public, budget_of, made_public, protects, stays
from quorate.run_files import claim, parsed, plain, save_arrays, sealed, slug, to_json, write

if TYPE_CHECKING:
    from quorate.parts import Parts
    from quorate.runs import Run
    from quorate.solution import Solution

OWNER = "owner/"
HISTORY = ("round", "rho", "gap", "noise", "bytes_up", "bytes_down")  # functions of public numbers and paid answers
MESSAGES = ("Perturb", "Perturbed")
TRAVELS = ("format", *runs.KEYS, "privacy", "withheld")  # keys of the result.json that travels
FILES = ("config.toml", "model.safetensors", "history.jsonl", "result.json", "report.html")
CURVE = "curve.safetensors"
README = """\
This folder stays with the owner of the data.

Its numbers were computed from the rows exactly, without noise, and are not part of what the privacy budget pays for:
objective, certificate, losses and accuracies of clients, digests of the data, warnings, comparisons, the model without
privacy. The folder round it may travel; hand that one on without this one.
"""


# ---------------------------------------------------------------------------------------- what travels


def public_of(config: Config, n_features: int) -> Public:
    """What is public of a run whose sizes are in its configuration."""
    assert config.privacy is not None
    sizes = config.privacy.sizes
    return Public(tuple(sizes), tuple(sizes.values()), n_features)


def mechanism_of(config: Config, public: Public) -> dict[str, Any]:
    """How an answer is made, noise apart, and by how much one row moves it at each client; from public numbers."""
    from quorate.default import default_algorithm

    problem, asked = config.problem(), config.solve_arguments()
    over = problem.over_clients.at(np.array(public.sizes), public.clients)
    problem = replace(problem, over_clients=over, privacy=replace(budget_of(config), book=None))
    algorithm = asked["algorithm"] or default_algorithm(problem, public)  # type: ignore[arg-type]
    algorithm = replace(algorithm, **({} if asked["max_rounds"] is None else {"max_rounds": asked["max_rounds"]}))
    planned = algorithm.planned(problem, public)
    return {
        "mechanism": algorithm.mechanism,
        "source": planned.plan.source,
        "clip": planned.plan.clip,
        "bound": planned.plan.bound,
        "rounds": algorithm.max_rounds,
        "sensitivity": dict(zip(public.clients, np.asarray(planned.plan.sensitivity).tolist(), strict=True)),
    }


def ledger_table(
    config: Config, made: Mapping[str, Any], releases: Mapping[str, Any], before: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """One row a client: rows as public, answers, noise, its scale, total epsilon by accountant, what is left."""
    assert config.privacy is not None
    epsilon, delta, rows = config.privacy.epsilon, config.privacy.delta, []
    for client, own in releases.items():
        mine, past = _releases(own), _releases(before.get(client, ()))
        found, noise = accounts((*past, *mine), delta), mine[-1].noise if mine else None
        row: dict[str, Any] = {"client": client, "rows": config.privacy.sizes[client]}
        row |= {"answers": sum(r.count for r in mine), "noise": noise}
        row["scale"] = None if noise is None else noise * made["sensitivity"][client]
        row |= {"epsilon": found["pld"], "before": total_epsilon(past, delta) if past else 0.0}
        row |= {key: found.get(key) for key in ("gaussian", "rdp", "basic")}
        rows.append(row | {"left": max(epsilon - float(found["pld"] or 0.0), 0.0)})
    return rows


def _releases(rows: Sequence[Any]) -> tuple[Release, ...]:
    return tuple(Release(str(kind), float(noise), int(count)) for kind, noise, count in rows)


def promise(config: Config, n_features: int, releases: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """What result.json says of privacy: it follows from the configuration and the releases alone."""
    assert config.privacy is not None
    p, made = config.privacy, mechanism_of(config, public_of(config, n_features))
    rows = ledger_table(config, made, releases, before)
    return plain(
        {
            "epsilon": max((row["epsilon"] for row in rows), default=0.0),
            "delta": p.delta,
            "allowed": p.epsilon,
            "adjacency": p.adjacency,
            "book": p.book is not None,
            "protects": protects(config),
            "public": made_public(config),
            "rehearsal": REHEARSAL if p.rehearsal else "",
            "curve": list(p.curve),
            **{key: made[key] for key in ("mechanism", "source", "clip", "bound", "rounds")},
            "ledger": rows,
            "releases": releases,
            "before": before,
        }
    )


def travelling(config: Config, solution: Solution, evaluation: Mapping[str, Any], n_features: int) -> dict[str, Any]:
    """The result.json that travels, digests of the files excepted."""
    releases, before = (
        {client: [[r.mechanism, r.noise, r.count] for r in own] for client, own in part.items()}
        for part in (solution.ledger.releases, solution.ledger.before)
    )
    before = {client: own for client, own in before.items() if own}
    messages = [row for row in solution.messages if row["message"] in MESSAGES]
    weights = shares(config, public_of(config, n_features))
    one = {way: sum(m["bytes"] for m in messages if m["direction"] == way) // len(weights) for way in ("up", "down")}
    clients = [
        {
            "client": name,
            "n": config.privacy.sizes[name],  # type: ignore[union-attr]
            "weight": weight,
            **{f"bytes_{way}": one[way] for way in one},
        }
        for name, weight in weights.items()
    ]
    return plain(
        {
            "format": runs.FORMAT,
            "title": config.title or config.data.name or "run",
            "model": "private",
            "problem": config.sentence(),
            "outcome": {"stop": solution.outcome.stop.value, "text": solution.outcome.text},
            "rounds": solution.rounds,
            "certificate": None,
            "clients": clients,
            "messages": messages,
            "notes": [],
            "baselines": {},
            "evaluation": shown(config, evaluation),
            "versions": runs.versions(),
            "data": {},
            "privacy": promise(config, n_features, releases, before),
            "withheld": [{"what": what, "why": why} for what, why in stays(config)],
        }
    )


def shares(config: Config, public: Public) -> dict[str, float]:
    """The weight of every client in the objective, from public sizes."""
    over = config.problem().over_clients.at(np.array(public.sizes), public.clients)
    return dict(zip(public.clients, over.project(np.zeros(public.n_clients)).tolist(), strict=True))


def shown(config: Config, evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """What of the evaluation may travel: the private model's own numbers on rows that are declared public."""
    measures = [row for row in evaluation["measures"] if row["model"] == "private" and config.evaluation.public]
    return {"measures": measures, "pairs": [], "verdict": []}


def history(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What of every round may travel."""
    return [{key: row[key] for key in HISTORY if key in row} for row in rows]


# ---------------------------------------------------------------------------------------- writing


def write_private(
    out: Path,
    config: Config,
    models: Mapping[str, Solution],
    points: Sequence[Mapping[str, Any]],
    parts: Parts,
    evaluation: Mapping[str, Any],
    *,
    today: date | None = None,
) -> Path:
    """Write a private run below ``out``; returns its folder.

    Parameters
    ----------
    config : with its sizes
    models : the private one first
    points : of the curve, with their models as ``w``
    """
    main, *others = models
    solution, d = models[main], parts.train.n_features
    result = travelling(config, solution, evaluation, d)
    own = runs.result_of(config, solution, {name.lower(): models[name] for name in others}, parts, evaluation)
    if solution.ledger.book:
        own["book"] = solution.ledger.book  # what a later copy of the book knows
    if points:
        own["curve"] = plain([{key: value for key, value in point.items() if key != "w"} for point in points])
    out.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".writing-", dir=out))
    try:
        write(work / "config.toml", config.at(work).text().encode())
        runs.save_model(work, config, solution, parts)
        write(work / "history.jsonl", _lines(history(solution.history)))
        stay = work / OWNER
        write(stay / "README.txt", README.encode())
        stay.chmod(0o700)
        write(stay / "history.jsonl", _lines(solution.history))
        if others:
            save_arrays(stay / "baselines.safetensors", {name.lower(): models[name].w for name in others})
        if points:
            save_arrays(stay / CURVE, {"w": np.array([point["w"] for point in points])})
        seal_both(work, result, own)
        if config.report.html:
            from quorate.report.private import render

            run = runs.read_run(work)
            for part in filter(None, (run, run.owner)):
                for name, text in render(part).items():
                    write(part.path / name, text.encode())
            seal_both(work, result, own)
        return claim(work, out, f"{today or date.today()}-{slug(result['title'])}")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return "".join(to_json(row) + "\n" for row in rows).encode()


def seal_both(work: Path, result: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Write both result.json, each with the digests of its own files."""
    write(work / OWNER / "result.json", to_json(sealed(work / OWNER, own), indent=1).encode())
    write(work / "result.json", to_json(sealed(work, result, OWNER), indent=1).encode())


# ---------------------------------------------------------------------------------------- reading


def read_owner(run: Run) -> Run | None:
    """What stays with the owner, as a run of the same model; None where the folder is not there."""
    path = run.path / OWNER
    if not path.is_dir():
        return None
    runs.complete(path, ("result.json", "history.jsonl"))
    lines = (path / "history.jsonl").read_text("utf-8").splitlines()
    return replace(
        run,
        path=path,
        result=runs.result_in(path / "result.json"),
        baselines=runs.load_if_any(path / "baselines.safetensors"),
        history=[parsed(path / "history.jsonl", row) for row in lines],
    )


def curve_of(run: Run) -> list[tuple[dict[str, Any], Array]]:
    """The points of the curve and their models, of the owner's part of a run."""
    models = runs.load_if_any(run.path / CURVE).get("w", np.zeros((0, 0)))
    points = run.result.get("curve", [])
    if len(points) != len(models):
        raise runs.RunError(f"{run.path / CURVE} is damaged: it does not fit its points")
    return [*zip(points, models, strict=True)]
