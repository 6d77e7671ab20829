"""Check a finished run without training again, trusting nothing in its folder.

Digests show damage. Whatever follows from (config, data, w, duals) is computed again: the
certificate by `bonafed.certificates`, the outcome, the table of clients, the certificates of the
baselines, the evaluation, and the results of all sections; and what the folder holds beside them:
its files, its title, how its model makes features and predictions, and its report. So a changed
number is found even where all digests were changed with it. What would take training to be seen
again, such as the history of the rounds, and what nothing can show is listed.
"""

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np

from bonafed.certificates.certificate import Certificate
from bonafed.config.config import ConfigError
from bonafed.data.federation import Federation
from bonafed.data.schema import declared_schema
from bonafed.data.validation import as_numbers, ordered
from bonafed.problem.calibration import calibrated
from bonafed.problem.metadata import Metadata
from bonafed.problem.problem import Problem
from bonafed.rounds import Stop
from bonafed.runs import folder
from bonafed.runs.baselines import BASELINES, called, label
from bonafed.runs.checks import Check, check_files, compared, not_checked, nothing, passed
from bonafed.runs.comparison import evaluate
from bonafed.runs.files import UNREADABLE, FormError, Record, Row, files_in, plain, text_in
from bonafed.runs.folder import EVENTS, OWNER, Render
from bonafed.runs.model_file import described, model_of
from bonafed.runs.sections.all import SECTIONS
from bonafed.runs.sections.section import Inputs, Run
from bonafed.runs.splits import Parts, prepare
from bonafed.runs.training import check_outcome, proved, stop_of
from bonafed.solution.outcome import UNPROVED, failed_in
from bonafed.solution.solution import public_history
from bonafed.solution.tables import client_table
from bonafed.solution.warnings import notes
from bonafed.worst_client import in_words

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
        run = folder.read_run(path)
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
        known = ("format", "title", "model", "versions", "files", "seal", "privacy", "withheld")
        part, where = run.exact or run, "" if run.owner is None else OWNER
        # what only the rows show: all that does not follow from configuration and form
        keys = [f"{where}result.json: {key}" for key in part.result if key not in known]
        keys += [f"{where}{name}" for name in part.result["files"]]
        keys += ["model.safetensors", "config.toml"]
        yield Check("data", None, text, keys=tuple(keys))
        return
    if judged:
        given = run.config.problem(), {"private": run.w}, parts.tests, parts.ranked
        again = evaluate(*given, chosen=run.config.judges_choose)
        again = plain(folder.public_evaluation(run.config, again))
        yield compared("evaluation", run.result["evaluation"], again)
    if run.owner is not None:  # the public part has of the owner's what may travel, as it is there
        whole = {**run.result, **run.owner.result, "privacy": run.result["privacy"]}
        stated = {key: value for key, value in run.result.items() if key not in ("files", "seal")}
        again = [folder.public_result(run.config, whole), plain(public_history(run.owner.history))]
        yield compared(f"{OWNER}public part", [stated, run.history], again)
    if run.exact is not None:
        for check in _check_with_data(run.exact, parts):
            if run.private:  # of the exact part, which is called after its folder
                keys = (key if key.startswith(SHARED) else f"{OWNER}{key}" for key in check.keys)
                check = replace(check, name=f"{OWNER}{check.name}", keys=tuple(keys))
            yield check


def _check_alone(run: Run) -> Iterator[Check]:
    """What can be checked without the data."""
    yield from check_names(run)
    arrays = {"w": run.w, **run.duals, **run.baselines}
    for name, points in run.points.items():
        arrays |= {f"{name}: {key}": array for key, array in points.arrays.items()}
    odd = [name for name, array in arrays.items() if not np.isfinite(array).all()]
    yield nothing("finite", odd, "model and duals are finite", "not finite")
    if run.config.privacy is not None:
        yield folder.check_public(run)
    if run.config.privacy is not None or run.config.data.sites is not None:
        yield from check_declared_model(run)
        again = [run.config.sentence(), label(run.config.problem())]
        yield compared("problem", [run.result["problem"], run.result["model"]], again)
    for section in SECTIONS:
        yield from section.check_alone(run)


def _check_with_data(run: Run, parts: Parts) -> Iterator[Check]:
    """The rows are those of the run, and whatever follows from rows, model and duals."""
    stated, again = run.result.get("data", {}), folder.data_digests(parts)
    for name in sorted(stated.keys() | again.keys()):
        old, new = stated.get(name, {}), again.get(name, {})
        odd = [c for c in dict.fromkeys((*old, *new)) if old.get(c) != new.get(c)]
        lead = "the rows of these clients differ from those of the run"
        yield nothing(f"data: {name}", odd, f"{len(new)} clients", lead)
    inputs = _inputs(run, parts)
    infeasible = run.result["outcome"]["stop"] == Stop.INFEASIBLE.value
    sigmoid = calibrated(inputs.problem, parts.train, run.w)
    again = model_of(run.config, parts.train, infeasible, sigmoid)
    yield from _compared_model(run.model, again)
    yield from _check_certificate(run, inputs)
    yield from _check_models(run, inputs)
    for section in SECTIONS:
        yield from section.check(run, inputs)
    if run.config.privacy is None:
        yield from check_outcome(run, inputs.problem, parts.train)
    yield from check_rounds(run)
    yield from UNCHECKED_SETTINGS


def check_rounds(run: Run) -> Iterator[Check]:
    """The history has one row for every so many rounds, and perhaps one for the last; what happened
    in them is listed.
    """
    rounds, keep = run.result["rounds"], run.config.engine.get("keep_rows") or 1
    rows, expected = [row["round"] for row in run.history], list(range(keep, rounds + 1, keep))
    whole = rows in (expected, [*expected, rounds])
    yield Check("rounds", whole, f"{rounds} rounds, {len(rows)} in history.jsonl")
    text = "what happened in the rounds, and what was sent: only training shows it again"
    keys = "rounds", "messages", "clients.bytes_up", "clients.bytes_down"
    yield not_checked("history", text, "history.jsonl", *(f"result.json: {key}" for key in keys))


# what no kind of run can show
UNCHECKED_SETTINGS = (
    not_checked("seconds", "nothing shows how long training took", "result.json: seconds"),
    not_checked(
        "config.toml",
        "options of the method and of the engine, beyond what numbers and messages imply, and"
        " whether rows outside the support were to be clipped, where there are none",
        *(f"config.toml: {key}" for key in ("algorithm", "engine", "seed", "robust.clip")),
    ),
)
UNCHECKED_PROOF = not_checked(
    "duals",
    "which arrays prove the bound: it follows from these, and may from others",
    *(f"duals.safetensors: {name}" for name in ("points", "multipliers", "split")),
)
UNCHECKED_CONSENSUS = not_checked(
    *("certificate", "consensus: the clients' copies stay with them"),
    "result.json: certificate.consensus",
)


def _inputs(run: Run, parts: Parts) -> Inputs:
    """What results are computed from, with the certificate proved again."""
    problem = run.config.settled(parts.train).problem()
    stop, text = run.result["outcome"]["stop"], run.result["outcome"]["text"]
    how = stop, failed_in(text), UNPROVED in text
    certificate, table, multipliers = proved(problem, parts.train, run.w, run.duals, *how)
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
        yield UNCHECKED_CONSENSUS
    yield _check_guarantee(stated, again)
    if "weights" in run.duals and not tried_infeasible(run):
        weights = _weights(inputs.problem, inputs.parts.train, inputs.certificate)
        yield inputs.compared("duals", plain(run.duals["weights"]), weights)
        yield UNCHECKED_PROOF
    if "points" in run.duals and (mu := inputs.multipliers) is not None:
        sums = {name: getattr(mu, name) for name in ("server", "shared", "local")}
        were = {name: run.duals[name] for name in sums}
        yield inputs.compared("multipliers", plain(were), plain(sums))
    result, fed, certificate = run.result, inputs.parts.train, inputs.certificate
    concrete, data = inputs.problem.at(fed)
    table = [*client_table(concrete, data, certificate, inputs.constraints)]
    stated = [{key: row.get(key) for key in table[0]} for row in result["clients"]]
    yield inputs.compared("clients", stated, table)
    named = [run.config.sentence(), label(inputs.problem)]
    yield inputs.compared("problem", [result["problem"], result["model"]], named)
    again = notes(concrete, fed, data, run.w, certificate)
    yield inputs.compared("notes", result["notes"], again)


def _check_models(run: Run, inputs: Inputs) -> Iterator[Check]:
    result, problem, parts = run.result, inputs.problem, inputs.parts
    # what is stated of a baseline, from its model and what proves its bound
    names = run.config.report.compare_with
    others = {name: BASELINES[name](problem, parts.train) for name in names}
    again: Record = {}
    for name, (baseline, fed) in others.items():
        certificate, _, _ = proved(baseline, fed, run.baselines[name], run.proofs.get(name, {}))
        clock = fed.clients == parts.train.clients
        again[name] = baseline_again(run, name, baseline, fed, certificate, clock)
    yield inputs.compared("baselines", stated_baselines(run), again)
    if again:
        yield unchecked_baselines(again)
    # what makes probabilities of the scores of every model
    sigmoids = {label(problem): calibrated(problem, parts.train, run.w)}
    sigmoids |= {called(k): calibrated(*one, run.baselines[k]) for k, one in others.items()}
    given = problem, inputs.models, parts.tests, parts.ranked, sigmoids
    again = evaluate(*given, run.config.judges_choose)
    yield (check := inputs.compared("evaluation", result["evaluation"], again))
    for row in again["measures"][:1] if check.ok else ():
        yield Check("worst client", True, in_words(row))
        if "promise" in row:
            text = "that held-out rows are independent, and chose nothing outside of this run"
            yield not_checked("worst client", text)


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
    how, timed = (stated["stop"], "", stated["rounds"]), {"clock": clock, "timed": clock}
    numbers = {"value": certificate.value, "bound": certificate.bound, "gap": certificate.gap}
    stop = stop_of(run.config, baseline, fed, how, certificate, main=False, **timed)
    weights = _weights(baseline, fed, certificate) if name in run.proofs else None
    return {**numbers, "stop": stop, "rounds": stated["rounds"], "weights": weights}


def _weights(problem: Problem, fed: Federation | Metadata, certificate: Certificate) -> list[float]:
    """The weights of clients in what proves a bound: by rows, where all are ranked together."""
    weights: list[float] = plain(certificate.weights)
    return weights if problem.over_rows is None else plain(fed.sizes / fed.sizes.sum())


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


# --------------------------------------------------------------------------------------- the folder

DRAWN_BY = ("bonafed", "numpy")  # what the bytes of a report depend on
TITLED = ("config.toml: title", "config.toml: data.name")
ACTIVE = {"script", "iframe", "object", "embed", "foreignobject", "link", "base", "form", "img"}
LINKS = {"href", "xlink:href", "src", "srcset", "action", "formaction", "data"}


def parts_in(run: Run) -> Iterator[tuple[str, Run]]:
    """The parts of a run that are here, each with what its checks are called after."""
    yield "", run
    if run.owner is not None:
        yield OWNER, run.owner


def check_names(run: Run) -> Iterator[Check]:
    """Every part has its files as they were written, and those of such a run only, and is called as
    the configuration says.
    """
    for where, part in parts_in(run):
        found, needed, more = {*_files_of(run, part)}, {"history.jsonl"}, set()
        needed |= {"config.toml", "model.safetensors"} if part is run else {"README.txt"}
        if part is run.exact:
            needed |= {EVENTS} if run.config.logged else set()
            needed |= set() if run.private else {"duals.safetensors"}
            needed = needed.union(*(s.files for s in SECTIONS if s.name in part.points))
            used = (s.files for s in SECTIONS if s.applies(run.config))
            more = {"baselines.safetensors"}.union(*used)
        yield from check_files(part.path, part.result, needed, f"{where}result.json")
        odd = sorted(found - {*part.result["files"]})
        odd += sorted(name for name in found - {*odd} - needed - more if not folder.is_drawn(name))
        empty = [path for path in part.path.rglob("*") if path.is_dir() and not any(path.iterdir())]
        # names of folders say something, but for that of figures that are no longer drawn
        empty = [path.relative_to(part.path) for path in empty if path.name != "figures"]
        odd += sorted(path.as_posix() for path in empty)
        yield nothing(f"{where}files", [*map(ascii, odd)], f"{len(found)} known files", "unknown")
        at_sites = run.config.data.sites is not None
        stated = [part.result["title"], "at_sites" in part.result]
        yield compared(f"{where}title", stated, [folder.titled(run.config), at_sites])
        text = "its words are those of the person who ran it"
        yield not_checked(f"{where}title", text, f"{where}result.json: title", *TITLED)
        name, again = (
            ("config.toml", run.config.text()) if part is run else ("README.txt", folder.README)
        )
        file = part.path / name
        if not file.is_file() or text_in(file) != again:
            yield Check(f"{where}{name}", False, "has another text than a run writes into it")
        stated = ", ".join(f"{name} {number}" for name, number in part.result["versions"].items())
        place = f"{where}result.json: versions"
        yield not_checked(f"{where}versions", f"that it was {stated}", place)
        if "tries" in part.result:
            alike = run.config.risk.by_rank and not run.config.problem().convex
            yield Check(f"{where}tries", alike, "are those of a problem that is not convex")
            text = "the starts of the method are not repeated"
            yield not_checked(f"{where}tries", text, f"{where}result.json: tries")


def _files_of(run: Run, part: Run) -> list[str]:
    """The files of one part, but for its result.json."""
    inside = OWNER if run.private and part is run else ""
    return [name for name in files_in(part.path, inside) if name != "result.json"]


# ---------------------------------------------------------------------------------------- the model


def check_declared_model(run: Run) -> Iterator[Check]:
    """How features are made, classes predicted and probabilities computed, from the configuration,
    where it declares all of it.
    """
    data, named = run.config.data, run.config.loss().targets != "real"
    if run.exact is not None and data.sites is None:
        return
    if data.columns is None or (named and data.classes is None) or data.target is None:
        text = "its columns or classes are not declared in config.toml"
        yield not_checked("model", text, "model.safetensors: bonafed")
        return
    known = None if data.classes is None else np.array(data.classes)
    if known is not None and not isinstance(run.model["classes"][0], str):
        known = np.unique(as_numbers(known))  # "0" and "1" of a column of numbers
    classes = ordered(known, data.positive)
    schema = declared_schema([*data.columns], data.columns, data.target, classes)
    names = [*schema.feature_names, *["1"] * run.config.ones]
    infeasible = run.result["outcome"]["stop"] == "infeasible"
    again = described(run.config, classes, names, schema.to_dict(), infeasible)
    yield from _compared_model(run.model, again)


def _compared_model(stated: Row, again: Record) -> Iterator[Check]:
    """The metadata of a model against what they are; every column relative to its own size."""
    schemas: list[Record] = [{**(model["schema"] or {})} for model in (stated, again)]
    columns, columns_again = (schema.pop("columns", []) for schema in schemas)
    rest, rest_again = {**stated, "schema": schemas[0]}, {**again, "schema": schemas[1]}
    checks = [compared("model", rest, rest_again)]
    for one, other in zip(columns, columns_again, strict=False):
        sizes = [abs(other.get(key, 0.0)) for key in ("mean", "centre", "scale")]
        checks.append(compared(f"model: {other['name']}", one, other, floor=max(sizes)))
    checks.append(compared("model", len(columns), len(columns_again)))
    yield next((check for check in checks if not check.ok), checks[0])


# --------------------------------------------------------------------------------------- the report


def check_report(run: Run, render: Render | None) -> Iterator[Check]:
    """The report of every part, drawn again from the rest of the folder by ``render``."""
    for where, part in parts_in(run):
        stored = {name: part.path / name for name in _files_of(run, part) if folder.is_drawn(name)}
        if render is None:
            drawn = [*(f"{where}{name}" for name in stored), "config.toml: report"]
            yield not_checked(f"{where}report", "nothing to draw it with was given", *drawn)
        elif not stored:
            asked = run.config.report.html
            text = "is missing" if asked else "none, as the configuration says"
            yield Check(f"{where}report", not asked, text)
        else:
            texts = {name: file.read_bytes() for name, file in stored.items()}
            yield _compared_report(where, part.result["versions"], texts, render(part))


def _compared_report(
    where: str, stated: Mapping[str, str], stored: Mapping[str, bytes], drawn: Mapping[str, str]
) -> Check:
    """A report against the same drawn again; where the software is not the same, only that it
    does nothing when it is opened.
    """
    name, keys = f"{where}report", dict.fromkeys((*stored, *drawn))
    odd = [key for key in keys if stored.get(key) != drawn.get(key, "").encode()]
    if not odd:
        return Check(name, True, f"drawn again: {len(stored)} equal files")
    here = folder.versions()
    same = {part: stated.get(part) == here[part] for part in DRAWN_BY}
    pages = {key: data.decode(errors="replace") for key, data in stored.items()}
    wrong = [key for key, page in pages.items() if _Reader(page).active]
    if same["bonafed"]:  # then what its words and numbers are drawn with is the same
        wrong += [key for key in keys if _words(pages.get(key)) != _words(drawn.get(key))]
    if wrong or all(same.values()):
        text = f"is not drawn from this folder: {', '.join((wrong or odd)[:5])}"
        return Check(name, False, f"{text}. `bonafed report` draws it again")
    other = ", ".join(f"{part} {stated.get(part, 'unknown')}" for part in DRAWN_BY)
    text = f"drawn with {other}, and not again; `bonafed report` draws it with what is here"
    if not same["bonafed"]:
        return Check(name, None, text)
    return not_checked(name, f"its figures are {text}", f"{where}figures", f"{where}report.html")


def _words(page: str | None) -> str | None:
    """A page without its figures, whose last digits depend on the version of NumPy."""
    return page and re.sub(r"<svg\b.*?</svg>", "<svg>", page, flags=re.DOTALL)


class _Reader(HTMLParser):
    """Whether a page of HTML or SVG does more than show itself: acts when it is opened, or loads
    from elsewhere.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.active = "@import" in page or "url(" in page.replace("url(#", "")
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.active |= tag in ACTIVE
        for key, value in attrs:
            leads = key in LINKS and not (value or "").startswith("#")
            self.active |= leads or key.startswith("on")
