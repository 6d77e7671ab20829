"""A run as a folder that proves itself.

    config.toml     what was run, defaults included     result.json     certificate, tables, digests
    model.safetensors    w, and how features are made             history.jsonl   one line a round
    duals.safetensors    what the lower bound is proved from      report.html, figures/*.svg
    baselines.safetensors  the models it is compared with, and what proves their bounds
    sweep.json, sweep.safetensors  with [sweep]: the values tried, their numbers, models and proofs
    events.bft           on a simulated clock and over sites: who answered when, for
                         `Replay(Log.load(path))`

Without a privacy budget a run has one part. With one it has two:

    config.toml  model.safetensors  history.jsonl  result.json  report.html  figures/      public
    owner/  README.txt  result.json  history.jsonl  baselines.safetensors                withheld
            sweep.json  sweep.safetensors  report.html  figures/

The public part is computed from public numbers and from noisy answers that are charged: two data
sets that differ in one record and have the same answers give the same bytes. All that is exact is
withheld, in ``owner/``: objective, certificate, losses, digests of the data, warnings, comparisons,
the model without privacy, the models of a sweep, and times.

A folder is written elsewhere on the same file system and renamed when complete; an existing run is
never overwritten. `bonafed.runs.forms` says what its files hold, and `bonafed.runs.verification`
checks one.
"""

import os
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path

from bonafed.arrays import Array
from bonafed.config.config import Config, read_config
from bonafed.data.federation import Federation
from bonafed.engines.run_record import Log
from bonafed.problem.lower_bounds import Duals, Multipliers
from bonafed.problem.metadata import Metadata
from bonafed.problem.rank_levels import few_levels, levels
from bonafed.runs import files, forms
from bonafed.runs.baselines import check_proof, label, proof_arrays, restored, stored
from bonafed.runs.checks import Check, nothing
from bonafed.runs.files import Record, Row, RunError, damaged
from bonafed.runs.model_file import FORMAT, Described, save_model, stored_model
from bonafed.runs.privacy_plan import privacy_of
from bonafed.runs.sections.all import SECTIONS
from bonafed.runs.sections.privacy import client_weights
from bonafed.runs.sections.section import Inputs, Points, Run, Section, Study, bytes_sent
from bonafed.runs.splits import Parts
from bonafed.runs.training import summary
from bonafed.solution.solution import HISTORY, Solution, public_history, public_messages
from bonafed.storage import OWN_FOLDER

EVENTS = "events.bft"
Render = Callable[[Run], Mapping[str, str]]


def is_drawn(name: str) -> bool:
    """Whether a file is part of the report, which is drawn from the rest."""
    return name == "report.html" or re.fullmatch(r"figures/[a-z_]+\.svg", name) is not None


# ---------------------------------------------------------------------------------- result.json


def result_of(
    study: Study, models: Mapping[str, Solution], points: Mapping[str, Points], evaluation: Row
) -> Record:
    """All keys of result.json except the digests of files; ``models`` has the main one first."""
    main = next(iter(models.values()))
    inputs = Inputs(
        config=study.stated,
        problem=main.problem,
        parts=study.parts,
        models={name: solution.w for name, solution in models.items()},
        certificate=main.certificate,
        multipliers=main.duals,
        constraints=main.constraints,
        histories={name: solution.history for name, solution in models.items()},
        events=main.log,
        ledger=main.ledger,
        points=points,
    )
    result = of_models(study.stated, models, study.parts.train, evaluation)
    for section in SECTIONS:
        result |= section.result(inputs) if section.keys else {}
    result |= {"versions": versions(), "data": data_digests(study.parts)}
    if main.ledger is not None and main.ledger.book:
        result["book"] = main.ledger.book  # what a later copy of the ledger file knows
    return files.plain(result)


def of_models(
    config: Config, models: Mapping[str, Solution], fed: Federation | Metadata, evaluation: Row
) -> Record:
    """The keys of result.json that every run has of its models, the main one first; ``fed``: the
    rows trained on, or what is known of them.
    """
    solution, *others = models.values()
    proof = solution.certificate  # none of a private run over sites
    baselines = {}
    for name, other in zip([*models][1:], others, strict=True):
        numbers = {key: getattr(other.certificate, key) for key in ("value", "bound", "gap")}
        ended = {"stop": other.outcome.stop.value, "rounds": other.rounds}
        baselines[name.lower()] = numbers | ended
    return {
        "format": FORMAT,
        "title": titled(config),
        "model": label(solution.problem),
        "problem": config.sentence(),
        "outcome": summary(config, solution, fed),
        "rounds": solution.rounds,
        "seconds": solution.seconds,
        "certificate": proof and proof.numbers(),
        "clients": [*solution.clients],
        "messages": solution.messages,
        "notes": list(solution.notes),
        **({"tries": solution.tries} if solution.tries else {}),
        "baselines": baselines,
        "evaluation": evaluation,
    }


def titled(config: Config) -> str:
    """What a run is called."""
    return config.title or config.data.name or "run"


def data_digests(parts: Parts) -> dict[str, dict[str, str]]:
    """One digest for each client of the training rows and of every test set, and of the server's
    data.
    """
    sets = {"train": parts.owners.without_server(), **parts.tests}
    if parts.owners.server is not None:
        sets["server"] = parts.owners.server
    return {name: dict(zip(fed.names, fed.digests(), strict=True)) for name, fed in sets.items()}


def versions() -> dict[str, str]:
    """The versions of the software that the numbers depend on."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    def of(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "not installed"

    return {"python": platform.python_version(), **{name: of(name) for name in forms.PACKAGES[1:]}}


def result_in(file: Path, config: Config, public: bool = False) -> Record:
    """The content of a result.json; ``public``: of the public part of a private run.

    Raises
    ------
    RunError : it is not as a run of this configuration has it
    """
    result = files.parsed(file, files.text_in(file))
    if result.get("format") != FORMAT:
        stated = forms.shown(result.get("format"))
        raise RunError(f"{file.parent}: the run is of format {stated}, this bonafed reads {FORMAT}")
    rest = {**result}
    for section in SECTIONS:
        here = config.data.sites is None or section.at_sites
        if section.keys and here and section.is_stated(config, public):
            part = {key: rest.pop(key) for key in section.keys if key in rest}
            forms.check_form(file, part, _form_of(section))
    forms.check_form(file, rest, forms.PUBLIC if public else forms.RUN)
    return result


@cache
def _form_of(section: Section) -> type[forms.Form]:
    return forms.form(section.keys)


# ----------------------------------------------------------------------------------- what is public

OWNER = "owner/"  # where the rows are at sites, a run has no such part
FILES = ("config.toml", "model.safetensors", "history.jsonl", "result.json", "report.html")
COPIED = ("format", "title", "model", "problem", "outcome", "rounds", "versions")
NOTHING = {"certificate": None, "notes": [], "baselines": {}, "data": {}}
PUBLIC = tuple(key for section in SECTIONS if section.public for key in section.keys)
README = """\
This folder stays with the owner of the data.

Its numbers were computed from the rows exactly, without noise, and are not part of what the
privacy budget pays for: objective, certificate, losses and accuracies of clients, digests of the
data, warnings, comparisons, the model without privacy. The folder round it may travel; hand that
one on without this one.
"""


def exact_folder(config: Config, folder: Path) -> Path | None:
    """Where a run keeps what was computed from the rows exactly; None where that is nowhere, as the
    rows of a private run are at sites.
    """
    if config.privacy is None:
        return folder
    return folder / OWNER if config.data.sites is None else None


def parts_of(config: Config, result: Row) -> dict[str, Record]:
    """The result of a run as its parts may have it, by the folder of each part."""
    if config.privacy is None:
        return {"": {**result}}
    public = {"": public_result(config, result)}
    if config.data.sites is not None:
        return public
    return {OWNER: {key: value for key, value in result.items() if key not in PUBLIC}} | public


def public_result(config: Config, result: Row) -> Record:
    """The result.json that may leave the owner, digests of the files excepted."""
    messages, weights = public_messages(result["messages"]), client_weights(config)
    sizes = privacy_of(config).sizes  # rows as declared, and the bytes that all send alike
    sent = {f"bytes_{way}": bytes_sent(messages, way) // len(weights) for way in ("up", "down")}
    clients = [{"client": c, "n": sizes[c], "weight": q, **sent} for c, q in weights.items()]
    copied = (*COPIED, *PUBLIC, *(["at_sites"] if config.data.sites is not None else []))
    public = {key: result[key] for key in copied} | NOTHING
    public |= {"clients": clients, "messages": messages}
    return files.plain({**public, "evaluation": public_evaluation(config, result["evaluation"])})


def public_evaluation(config: Config, evaluation: Row) -> Record:
    """The numbers of the private model only, and only on rows that are declared public."""
    public = config.evaluation.public
    measures = [row for row in evaluation["measures"] if public and row["model"] == "private"]
    return {"measures": measures, "pairs": [], "verdict": []}


def check_public(run: Run) -> Check:
    """The public part has no file, key or column that a private run does not hand out."""
    found = files.files_in(run.path, OWNER)
    odd = [name for name in found if name not in FILES and not name.startswith("figures/")]
    # `read_run` has refused unknown keys
    hidden, evaluation = not run.config.evaluation.public, run.result["evaluation"]
    odd += ["result.json: evaluation"] * (hidden and any(evaluation.values()))
    columns = dict.fromkeys(key for row in run.history for key in row)
    odd += [f"history.jsonl: {key}" for key in columns if key not in HISTORY]
    return nothing(
        "public part", odd, "nothing but what the budget pays for", "does not belong there"
    )


# ---------------------------------------------------------------------------------------- writing


def write_run(
    out: Path,
    stated: Config,
    described: Described,
    models: Mapping[str, Solution],
    points: Mapping[str, Points],
    result: Record,
    *,
    partial: Path | None = None,
    render: Render | None = None,
    today: date | None = None,
) -> Path:
    """Write a run below ``out``; returns its folder, named by date and title.

    Parameters
    ----------
    stated : the configuration as the folder will have it
    described : the features and classes of the rows trained on, such as these rows
    models : by name, the main one first
    points : the further models of sections
    result : the content of result.json
    partial : the folder that the work was done in
    render : draws the files of the report (name -> text) of every part of the finished run
    """
    out.mkdir(parents=True, exist_ok=True)
    work = out / f".writing-{secrets.token_hex(4)}" if partial is None else partial / files.FINISHED
    shutil.rmtree(work, ignore_errors=True)  # of a process that died
    work.mkdir()
    try:
        _write_public(work, out, stated, described, next(iter(models.values())))
        _write_exact(work, stated, models, points)
        whole = _seal(work, stated, result)
        if render is not None:
            run = read_run(work)
            for part in filter(None, (run, run.owner)):
                for name, text in render(part).items():
                    files.write(part.path / name, text.encode())
            whole = _seal(work, stated, result)
        if partial is not None:  # by it a finished run is known whose process died
            files.write(partial / files.CLAIMED, whole.encode())
        return files.claim(work, out, f"{today or date.today()}-{files.slug(result['title'])}")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_public(
    work: Path, out: Path, stated: Config, described: Described, solution: Solution
) -> None:
    """Write what every run shows: its configuration, its model, and of a private run the history of
    its noisy answers.
    """
    there = stated.moved_to(out / "run")  # its paths start where the folder will be
    files.write(work / "config.toml", there.text().encode())
    save_model(work / "model.safetensors", stated, solution, described)
    if stated.privacy is not None:
        files.write(work / "history.jsonl", files.lines(public_history(solution.history)))
        if (owner := exact_folder(stated, work)) is not None:
            owner.mkdir(mode=OWN_FOLDER)
            files.write(owner / "README.txt", README.encode())


def _write_exact(
    work: Path, stated: Config, models: Mapping[str, Solution], points: Mapping[str, Points]
) -> None:
    """Write what was computed from the rows exactly."""
    folder, (main, *names) = exact_folder(stated, work), models
    if folder is None:
        return
    solution, private = models[main], stated.privacy is not None
    files.write(folder / "history.jsonl", files.lines(solution.history))
    if names or not private:
        weights = {name.lower(): models[name].w for name in names}
        proofs = {name.lower(): proof_arrays(models[name].duals) for name in names}
        files.save_arrays(folder / "baselines.safetensors", stored(weights, proofs))
    if not private:
        files.save_arrays(folder / "duals.safetensors", proof_arrays(solution.duals, whole=True))
    if solution.log is not None:
        solution.log.save(folder / EVENTS)
    for section in SECTIONS:
        if section.name in points:
            section.write(folder, points[section.name])


def _seal(work: Path, stated: Config, result: Row) -> str:
    """Write the result.json of every part, each with the digests of the files beside it; returns
    the seal of the run's own.
    """
    seals = {}
    for folder, part in parts_of(stated, result).items():
        outside = "" if folder or stated.privacy is None else OWNER
        whole = files.sealed(work / folder, part, outside)
        files.write(work / folder / "result.json", files.to_json(whole, indent=1).encode())
        seals[folder] = whole["seal"]
    return seals[""]


def replace_report(run: Run, drawn: Mapping[str, str]) -> None:
    """Write the report of a run again, and its digests; refuses a run whose result.json was
    changed.
    """
    if files.seal(run.result) != run.result.get("seal"):
        raise RunError(
            f"{run.path / 'result.json'} was changed after it was written: its seal does not match"
        )
    stale = [k for k in run.result["files"] if is_drawn(k) and k not in drawn]
    for name in stale:  # a figure that is no longer drawn
        (run.path / name).unlink(missing_ok=True)
    for name, text in drawn.items():
        files.write(run.path / name, text.encode())
    kept = {k: v for k, v in run.result["files"].items() if not is_drawn(k)}
    digests = {name: files.digest(text.encode()) for name, text in drawn.items()}
    result = {**run.result, "files": {**kept, **digests}}
    text = files.to_json({**result, "seal": files.seal(result)}, indent=1)
    files.write(run.path / "result.json", text.encode())


# ---------------------------------------------------------------------------------------- reading


def read_run(path: str | os.PathLike[str]) -> Run:
    """A run from its folder.

    Raises
    ------
    RunError : no such folder, a missing file, or one that is damaged
    """
    path = Path(path)
    if not path.is_dir():
        raise RunError(f"there is no run {str(path)!r}: give the folder that `bonafed run` printed")
    files.complete(path, ["config.toml", "model.safetensors", "result.json", "history.jsonl"])
    files.files_in(path)  # raises where one is a link: nobody removes links but in a run
    config = read_config(path / "config.toml")
    w, model, schema = stored_model(path)
    run = _read_part(Run(path, config, {}, w, model, schema, []))
    if not run.private:
        return _with_exact(run)
    owner = path / OWNER
    if not owner.is_dir():
        return run
    if exact_folder(config, path) is None:
        raise damaged(path, f"it has {OWNER}, and a private run over sites has none")
    files.complete(owner, ["result.json", "history.jsonl"])
    return replace(run, owner=_with_exact(_read_part(run, owner)))


def _read_part(run: Run, owner: Path | None = None) -> Run:
    """The run with result and history of its folder, or of the owner's part of it."""
    path, config = owner or run.path, run.config
    public = owner is None and config.privacy is not None
    result = result_in(path / "result.json", config, public)
    file = path / "history.jsonl"
    history = [files.parsed(file, row) for row in files.text_in(file).split("\n") if row]
    for k, row in enumerate(history):
        forms.check_form(file, row, forms.HISTORY, f"line {k + 1}")
    return replace(run, path=path, result=result, history=history)


def _with_exact(run: Run) -> Run:
    """The run, or its owner's part, with what was computed from the rows exactly."""
    path, config, size = run.path, run.config, len(run.w)
    risk = config.problem().over_rows if config.risk.together else None
    # of rows that are all ranked together the points of a proof have thresholds after the model
    n = sum(row["n"] for row in run.result["clients"])
    thresholds = len(levels(risk, n).shares) if few_levels(risk) else 0
    baselines, proofs = _read_baselines(run, thresholds)
    duals = {}
    if config.privacy is None:
        files.complete(path, ["duals.safetensors"])
        duals = files.load_arrays(path / "duals.safetensors")
        of = Multipliers if config.constrained else Duals
        numbers, file = size + thresholds, path / "duals.safetensors"
        check_proof(file, duals, numbers, of, len(run.result["clients"]))
    used = [section for section in SECTIONS if section.applies(config)]
    points = {section.name: section.read(run, thresholds) for section in used}
    points = {name: each for name, each in points.items() if each is not None}
    models = {f"its baseline {name}": array.shape for name, array in baselines.items()}
    models |= {f"a model of its {name}": each.w.shape[1:] for name, each in points.items()}
    if odd := [name for name, shape in models.items() if shape != (size,)]:
        raise damaged(path, f"{odd[0]} has the shape {models[odd[0]]}; needed: {size} numbers")
    run = replace(run, duals=duals, baselines=baselines, proofs=proofs, points=points)
    if not config.logged:
        return run
    files.complete(path, (EVENTS,))
    try:
        log = Log.load(path / EVENTS)
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from error
    if [*log.clients] != [row["client"] for row in run.result["clients"]]:
        raise damaged(path / EVENTS, "it has other clients than result.json")
    return replace(run, events=log)


def _read_baselines(
    run: Run, thresholds: int
) -> tuple[dict[str, Array], dict[str, dict[str, Array]]]:
    """The models that the run is compared with, and what proves their bounds."""
    names, file = run.config.report.compare_with, run.path / "baselines.safetensors"
    if run.config.privacy is not None and not names:
        return {}, {}
    files.complete(run.path, [file.name])
    models, proofs = restored(files.load_arrays(file))
    if {*models} != {*names} or not {*proofs} <= {*names}:
        raise damaged(file, "it has other models than report.compare_with of the configuration")
    for name, proof in proofs.items():
        alike = name == "unconstrained"  # which ranks as the model does
        check_proof(file, proof, len(run.w) + alike * thresholds)
    return models, proofs
