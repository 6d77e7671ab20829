"""Forged runs: whoever changes what a run states, and makes all digests and seals anew, is found by
the data at hand. Every forgery names the check that has to find it.
"""

import glob
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_run
from rich.console import Console
from safetensors import safe_open
from safetensors.numpy import load_file

from bonafed.certificates.certificate import Certificate
from bonafed.config.config import read_config
from bonafed.problem.lower_bounds import Multipliers
from bonafed.report.pages import markdown
from bonafed.report.terminal import show
from bonafed.rounds import Stop
from bonafed.runs import verification
from bonafed.runs.files import UNREADABLE, FormError, save_arrays, sealed
from bonafed.runs.folder import OWNER, read_run
from bonafed.runs.splits import Parts, prepare
from bonafed.runs.training import outcome_of
from bonafed.runs.verification import passed, verify_run

LINES = 30 - 4  # those of a run beside its rows, radii and progress
EMPTY = ("Configuration and versions",)
BASELINES = 'compare_with = ["afl", "erm"]'
WARDS = small_run.wards(small_run.table())
IMPOSSIBLE = small_run.KEPT.replace(
    small_run.sweep("constraint.2.level", 0.3, 0.5),
    '[[constraint]]\nkind = "cost_limit"\ncosts = { age = 1.0 }\nlimit = -2.0\n'
    '[[constraint]]\nkind = "sign"\nsigns = { age = 1 }\n',
)
CURVED = small_run.PRIVATE_ADMM.replace(
    "[privacy]", small_run.sweep("privacy.epsilon", 1.0, 1.5) + "[privacy]"
)
KINDS = {
    "robust": small_run.CONFIG,
    "cut": small_run.CONFIG.replace("tol = 1e-6", "max_rounds = 3").replace(BASELINES, ""),
    "rank": small_run.TAIL.replace("1e-6", "1e-4"),
    "together": small_run.TOGETHER.replace("1e-6", "1e-4"),
    "path": small_run.CONFIG.replace(BASELINES, "").replace("tol = 1e-6", "max_rounds = 4")
    + small_run.sweep("robust.radius", 0.01, 0.1),
    "admm": small_run.CONFIG.replace(
        "tol = 1e-6", 'name = "epigraph_admm"\ntol = 1e-3\nmax_rounds = 60'
    ).replace(BASELINES, ""),
    "constrained": small_run.KEPT,
    "infeasible": IMPOSSIBLE,
    "clock": small_run.CLOCK,
    "agnostic": small_run.MIXED.replace('"auto"', '"async_dro"'),
    "private": CURVED,
    "of a large objective": small_run.MIXED.replace('"logistic"', '"squared"')
    + '[report]\ncompare_with = ["erm"]\n',
}
SALES = re.sub("yes|no", lambda m: str(1e6 * len(m[0])), small_run.table())
DATA = {"constrained": WARDS, "infeasible": WARDS, "of a large objective": SALES}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The finished run of a kind; its data lie two folders above."""
    finished: dict[str, Path] = {}

    def run_of(kind: str) -> Path:
        if kind not in finished:
            make = small_run.private_run if kind == "private" else small_run.small_run
            folder = tmp_path_factory.mktemp(kind)
            finished[kind] = make(folder, text=KINDS[kind], data=DATA.get(kind)).path
        return finished[kind]

    return run_of


@dataclass
class Forged:
    """A copy of a run, whose parts are changed freely; ``write`` makes all digests anew."""

    path: Path
    result: dict[str, Any] = field(init=False)
    history: list[dict[str, Any]] = field(init=False)
    owner: "Forged | None" = None

    def __post_init__(self) -> None:
        self.result = json.loads((self.path / "result.json").read_text("utf-8"))
        lines = (self.path / "history.jsonl").read_text("utf-8").splitlines()
        self.history = [json.loads(line) for line in lines]
        if (self.path / OWNER).is_dir():
            self.owner = Forged(self.path / OWNER)

    @property
    def exact(self) -> "Forged":
        """The part with exact numbers."""
        assert self.owner is not None
        return self.owner

    @property
    def certificate(self) -> dict[str, Any]:
        return self.result["certificate"]

    def config(self, old: str, new: str) -> None:
        """Replace a piece of the configuration, which has to be there once."""
        file = self.path / "config.toml"
        text = file.read_text("utf-8")
        assert text.count(old) == 1, text
        file.write_text(text.replace(old, new), "utf-8")

    def table(self, name: str, change: Callable[[dict[str, Any]], object]) -> None:
        """Change another JSON file."""
        content = json.loads((self.path / name).read_text("utf-8"))
        change(content)
        (self.path / name).write_text(json.dumps(content, indent=1), "utf-8")

    def arrays(self, name: str, change: Callable[[dict[str, np.ndarray]], object]) -> None:
        """Change the arrays of a file without metadata."""
        content = load_file(self.path / name)
        change(content)
        save_arrays(self.path / name, content)

    def ends(self, stop: str) -> None:
        """State another stop, in the words in which an honest run would."""
        config, problem, fed = self._stated()
        how = stop, "", self.result["rounds"]
        proof = Certificate.of(self.certificate)
        multipliers = None
        if config.constrained:
            multipliers = Multipliers(**load_file(self.path / "duals.safetensors"))
        rows = self.result.get("constraints", ())
        _, again = outcome_of(config, problem, fed, how, proof, multipliers, rows, clock=True)
        self.result["outcome"] = {"stop": stop, "text": again.text}

    def _stated(self) -> tuple[Any, Any, Any]:
        config = read_config(self.path / "config.toml")
        train = prepare(config).train
        return config, config.settled(train).problem(), train

    def write(self) -> None:
        text = "".join(json.dumps(row) + "\n" for row in self.history)
        (self.path / "history.jsonl").write_text(text, "utf-8")
        outside = OWNER if self.owner is not None else ""
        if self.owner is not None:
            self.owner.write()
        result = json.dumps(sealed(self.path, self.result, outside), indent=1)
        (self.path / "result.json").write_text(result, "utf-8")


Change = Callable[[Forged], object]
FORGERIES: dict[str, tuple[str, str, Change]] = {}


def enter(what: str, kinds: str, found: str, change: Change) -> None:
    """Enter a forgery of kinds of run, "a, b", that the check ``found`` has to find."""
    for one in kinds.split(", "):
        name = f"{what} ({one})"
        assert name not in FORGERIES
        FORGERIES[name] = (one, found, change)


def forgery(kinds: str, found: str) -> Callable[[Change], Change]:
    """The same of a function, by its name."""

    def entered(change: Change) -> Change:
        enter(change.__name__.replace("_", " "), kinds, found, change)
        return change

    return entered


def lowered(numbers: dict[str, Any], key: str, factor: float = 0.9) -> None:
    numbers[key] = factor * numbers[key]


def put(place: str, value: Any) -> Change:
    """Another value at a place of result.json, or of what stands there a function."""
    *before, last = (int(key) if key.lstrip("-").isdigit() else key for key in place.split("."))

    def change(run: Forged) -> None:
        of: Any = run.result
        for key in before:
            of = of[key]
        of[last] = value(of[last]) if callable(value) else value

    return change


def times(factor: float) -> Callable[[float], float]:
    return lambda number: factor * number


def pop(place: str) -> Change:
    """A key less."""
    before, _, key = place.rpartition(".")
    of = put(before, lambda row: {k: v for k, v in row.items() if k != key})
    return of if before else lambda run: run.result.pop(key)


def config(old: str, new: str) -> Change:
    return lambda run: run.config(old, new)


def arrays(file: str, change: Callable[[dict[str, np.ndarray]], object]) -> Change:
    return lambda run: run.arrays(f"{file}.safetensors", change)


def model(change: Callable[[dict[str, Any]], object]) -> Change:
    """Change the metadata of the model."""

    def changed(run: Forged) -> None:
        with safe_open(run.path / "model.safetensors", "numpy") as file:
            known, w = json.loads(file.metadata()["bonafed"]), file.get_tensor("w")
        change(known)
        save_arrays(run.path / "model.safetensors", {"w": w}, {"bonafed": json.dumps(known)})

    return changed


def swept(change: Callable[[dict[str, Any]], object]) -> Change:
    return lambda run: run.table("sweep.json", change)


def point(**changes: Any) -> Change:
    """The first point of a sweep with other values, or of what stands there functions."""

    def changed(table: dict[str, Any]) -> None:
        of = table["points"][0]
        of |= {k: v(of[k]) if callable(v) else v for k, v in changes.items()}

    return swept(changed)


def exact(change: Change) -> Change:
    """The same in the part with exact numbers."""
    return lambda run: change(run.exact)


def written(file: str, text: str) -> Change:
    def change(run: Forged) -> None:
        (run.path / file).parent.mkdir(parents=True, exist_ok=True)
        (run.path / file).write_text(text, "utf-8")

    return change


def swapped(table: dict[str, Any], one: str, other: str) -> None:
    table[one], table[other] = table[other], table[one]


PROVEN = "gap 1e-9 proven after 4 rounds (tol 1e-06)."
FIRST = "evaluation.measures.0"
BELOW = [[[1.0], [0.0]]]
AWARD = "best model of the year"
DATES = {"age": {"order": "dmy", "parts": ["year"]}}
TRY = {"start": 0, "objective": 9.0, "iterations": 9, "polish": 1}
# a name, the kinds of runs, the check that finds it, and the change
EACH_PLACE: tuple[tuple[str, str, str, Change], ...] = (
    # how it ended
    ("proven in words", "cut", "outcome", put("outcome.text", PROVEN)),
    (
        *("optimal and proven in words", "cut", "outcome"),
        put("outcome", {"stop": "optimal", "text": PROVEN}),
    ),
    (
        *("infeasible in its own words", "cut, clock, agnostic, robust", "outcome"),
        lambda run: run.ends("infeasible"),
    ),
    ("optimal in its own words", "cut", "outcome", lambda run: run.ends("optimal")),
    (
        *("a gap in the words of another method", "admm", "outcome"),
        put("outcome", {"stop": "optimal", "text": PROVEN.replace("1e-06", "0.001")}),
    ),
    ("a cap that was not met", "robust, clock", "outcome", lambda run: run.ends("max_rounds")),
    (
        *("a cap that was lower", "robust", "outcome"),
        config("tol = 1e-06", "tol = 1e-06\nmax_rounds = 5"),
    ),
    ("fewer rounds", "cut", "rounds", put("rounds", lambda n: n - 1)),
    ("feasible after all", "infeasible", "outcome", put("outcome.stop", "optimal")),
    (
        *("somebody else in conflict", "infeasible", "outcome"),
        put("outcome.text", lambda text: text.replace("In conflict: ", "In conflict: South, ")),
    ),
    (
        *("limits that contradict each other", "constrained", "outcome"),
        put("outcome", {"stop": "infeasible", "text": "no model meets all constraints."}),
    ),
    ("no verdict on the model", "robust", "form", pop("trivial")),
    ("no checks", "robust", "form", pop("checks")),
    # the model's own description
    (
        *("probabilities that are nearer to certainty", "robust, clock, constrained", "model"),
        model(lambda of: lowered(of["calibration"], "slope", 1.1)),
    ),
    (
        *("probabilities that were fitted to private rows", "private", "model"),
        model(lambda of: of.update(calibration={"slope": 2.0, "offset": 0.1})),
    ),
    (
        *("a scale that is tripled", "robust, private", "model"),
        model(lambda of: [lowered(column, "scale", 3.0) for column in of["schema"]["columns"]]),
    ),
    (
        *("cells that later tables would miss", "robust, private", "model"),
        model(lambda of: of["schema"].update(reading={"missing": ["1"]})),
    ),
    (
        *("dates that were none", "robust", "model"),
        model(lambda of: of["schema"].update(reading={"dates": DATES})),
    ),
    (
        *("another positive class", "robust", "model"),
        config('target = "sick"', 'target = "sick"\npositive = "no"'),
    ),
    (
        *("rows of one person", "robust", "data: train"),
        config('target = "sick"', 'target = "sick"\nperson = "dose"'),
    ),
    ("another loss of it", "robust, path", "model", model(lambda of: of.update(loss="logistic"))),
    ("a model to use", "infeasible", "model", model(lambda of: of.pop("infeasible"))),
    ("another title", "robust, private", "title", put("title", "of ten thousand patients")),
    ("a file more", "robust, private", "files", written("award.txt", AWARD)),
    ("a key more", "robust, private", "form", lambda run: run.result.update(award=AWARD)),
    # certificate and clients
    (
        *("a better objective", "robust, admm, clock, agnostic, constrained, rank", "certificate"),
        put("certificate.value", times(0.9)),
    ),
    (
        *("duals that are doubled", "cut", "certificate"),
        arrays("duals", lambda of: of["points"].__imul__(2.0)),
    ),
    ("a client twice", "robust", "form", put("clients", lambda rows: [*rows, rows[0]])),
    ("more rows", "robust", "clients", put("clients.0.n", times(2))),
    (
        *("a lower loss of a client", "robust, rank, clock", "clients"),
        put("clients.0.worst_loss", times(0.9)),
    ),
    ("no warning", "robust", "notes", put("notes", [])),
    (
        *("another problem in words", "robust", "problem"),
        put("problem", lambda text: text.replace("0.05", "0.5")),
    ),
    # configuration and data
    (
        *("a folder with a name", "robust, private", "files"),
        lambda run: (run.path / "approved by the authority" / "as it is").mkdir(parents=True),
    ),
    ("the best of several starts", "robust, rank", "tries", put("tries", [TRY])),
    ("a larger radius", "robust", "certificate", config("radius = 0.05", "radius = 0.06")),
    (*("another loss", "robust", "certificate"), config('loss = "hinge"', 'loss = "smooth_hinge"')),
    ("another seed", "robust", "data: held-out rows", config("seed = 0", "seed = 1")),
    ("other held-out rows", "robust", "data: train", config("test = 0.4", "test = 0.3")),
    (
        *("no test on the shifted client", "robust", "data: shifted clients"),
        pop("data.shifted clients"),
    ),
    (
        *("digests of other rows", "robust", "data: train"),
        lambda run: swapped(run.result["data"]["train"], "North", "East"),
    ),
    ("a baseline that is not compared with", "robust", "form", config('    "afl",\n', "")),
    (
        *("a baseline that was never trained", "robust", "form"),
        config('    "afl",\n', '    "afl",\n    "drfa",\n'),
    ),
    ("another tail", "rank, together", "certificate", config("tail = 0.6", "tail = 0.5")),
    # evaluation and baselines
    ("a better accuracy", "robust, rank", "evaluation", put(f"{FIRST}.accuracy", 0.99)),
    ("a larger area under the curve", "robust, rank", "evaluation", put(f"{FIRST}.auc", 0.999)),
    (
        *("a narrower interval of a client", "robust", "evaluation"),
        put(f"{FIRST}.clients.0.interval.recall.0", lambda end: end + 0.05),
    ),
    (
        *("a small client that is not marked", "robust", "evaluation"),
        put(f"{FIRST}.clients.0.small", lambda small: not small),
    ),
    ("a curve that rises earlier", "robust", "evaluation", put(f"{FIRST}.curves.roc.1.1", 1.0)),
    ("a confusion of fewer rows", "robust", "evaluation", put(f"{FIRST}.confusion.fn", 0)),
    ("a lower floor", "robust", "evaluation", put("evaluation.pairs.0.floor", times(0.5))),
    ("a comparison that shows more", "robust", "evaluation", put("evaluation.pairs.0.p", 0.01)),
    (
        *("a share that is small beside the objective", "of a large objective", "evaluation"),
        put("evaluation.pairs.0.p", times(0.5)),
    ),
    (
        *("a verdict that pleases", "robust, clock, constrained", "evaluation"),
        put("evaluation.verdict.0", "Yes. It was better everywhere."),
    ),
    (
        *("a test set less", "robust", "evaluation"),
        put("evaluation.measures", lambda of: [r for r in of if r["set"] != "shifted clients"]),
    ),
    ("a fairer model", "rank", "evaluation", put(f"{FIRST}.fairness.SPD", 0.0)),
    (
        *("a baseline with a smaller gap", "clock", "baselines"),
        put("baselines.erm", lambda row: row | {"bound": row["value"], "gap": 0.0}),
    ),
    (
        *("a worse baseline", "robust", "baselines"),
        put(
            "baselines.erm",
            lambda r: r | {"value": 2 * r["value"], "gap": 2 * r["value"] - r["bound"]},
        ),
    ),
    (
        *("a baseline that stalled", "robust, clock", "baselines"),
        put("baselines.erm.stop", "infeasible"),
    ),
    ("a baseline of many rounds", "robust", "baselines", put("baselines.erm.rounds", 100_000)),
    (
        *("a baseline without its proof", "robust", "baselines"),
        arrays("baselines", lambda of: [of.pop(key) for key in [*of] if "erm/" in key]),
    ),
    (
        *("a baseline with a multiplier below 0", "robust", "form"),
        arrays("baselines", lambda of: of["afl/multipliers"].__isub__(BELOW)),
    ),
    (
        *("a baseline with a barrier below 0", "robust", "numbers"),
        arrays("baselines", lambda of: of["erm/barrier"].__imul__(-1.0)),
    ),
    (
        *("a baseline with another barrier", "robust", "baselines"),
        arrays("baselines", lambda of: of["erm/barrier"].__imul__(1e3)),
    ),
    (
        *("a multiplier below 0", "robust", "form"),
        arrays("duals", lambda of: of["multipliers"].__isub__(BELOW)),
    ),
    (
        *("the model of a worse baseline", "robust", "baselines"),
        arrays("baselines", lambda of: of["erm"].__imul__(0.0)),
    ),
    # history, messages, clocks
    (
        *("a column that writes to the terminal", "robust", "form"),
        lambda run: run.history[-1].update({"\x1b[2K verified": 1}),
    ),
    (*("a round twice", "robust", "rounds"), lambda run: run.history.insert(1, run.history[1])),
    ("a faster clock", "clock", "events", put("clock.time", times(0.9))),
    (
        *("an answer of another client", "clock", "events"),
        lambda run: swapped(run.result["clock"]["by_client"], "East", "North"),
    ),
    # ranks
    (
        *("a risk of another name", "rank", "ranks"),
        put("risk.words", "superquantile (mean of the largest 10 %)"),
    ),
    ("an owner with more weight", "rank, together", "ranks", put("owners.0.weight", 0.9)),
    ("smaller losses", "rank, together", "ranks", put("losses.superquantile.loss.-1", times(0.9))),
    ("a smaller risk of all rows", "together", "ranks", put("risk.together", times(0.9))),
    (
        *("a better bound of ranks", "together", "certificate"),
        lambda run: run.certificate.update(bound=run.certificate["value"]),
    ),
    (
        *("ranks inside every client", "together", "certificate"),
        config('on = "together"', 'on = "clients"'),
    ),
    # sweeps
    (
        *("a point with no gap", "path", "sweep"),
        swept(lambda of: of["points"][0].update(bound=of["points"][0]["value"], relative_gap=0.0)),
    ),
    ("a point that is called optimal", "path", "sweep", point(outcome="optimal")),
    ("a point that is called infeasible", "path", "sweep", point(outcome="infeasible")),
    ("a point of many rounds", "path", "sweep", point(rounds=10_000)),
    (
        *("a point with a better accuracy", "path", "sweep"),
        swept(lambda of: next(iter(of["points"][0]["sets"].values())).update(accuracy=1.0)),
    ),
    ("another best point", "path", "sweep", swept(lambda of: of.update(best=1 - of["best"]))),
    ("points that are swapped", "path", "sweep", swept(lambda of: of["points"].reverse())),
    (
        *("a point without its proof", "path", "sweep"),
        arrays("sweep", lambda of: [of.pop(key) for key in [*of] if key.startswith("0/")]),
    ),
    # constraints and their levels
    (
        *("a limit that is not met", "constrained", "constraints"),
        put("kept.-1.rows.0.met", lambda met: not met),
    ),
    ("a rate of nobody", "constrained", "constraints", put("groups.0.selected", 0.5)),
    ("a shadow price", "constrained", "constraints", put("prices", [])),
    (
        *("a looser limit", "constrained", "constraints"),
        put("constraints.-1.limit", lambda limit: limit + 0.1),
    ),
    (
        *("weights of a proof", "infeasible", "constraints"),
        put("constraints.0.weight", lambda weight: weight + 0.1),
    ),
    (
        *("a level that no model meets", "constrained", "sweep"),
        point(outcome="infeasible", value=None, price=None, infeasible=0.1),
    ),
    ("a level that ended at the cap", "constrained", "sweep", point(outcome="max_rounds")),
    ("a level with another price", "constrained", "sweep", point(price=0.0)),
    ("a level with no gap", "constrained", "sweep", point(relative_gap=0.5)),
    (
        *("a level that was not tried", "constrained", "sweep"),
        config("values = [\n    0.3,", "values = [\n    0.31,"),
    ),
    # private
    ("a smaller epsilon", "private", "privacy", put("privacy.epsilon", times(0.9))),
    ("a smaller delta", "private", "privacy", put("privacy.delta", times(1 - 1e-5))),
    (
        *("a folder that may travel", "private", "owner/README.txt"),
        exact(written("README.txt", "This folder may be published.\n")),
    ),
    (
        *("a sweep that was not charged", "private", "charged sweep"),
        put("privacy.before", lambda of: {client: each[:1] for client, each in of.items()}),
    ),
    ("smaller clients", "private", "privacy", config("East = 15", "East = 150")),
    ("no rehearsal", "private", "privacy", config("rehearsal = false", "rehearsal = true")),
    (
        *("a thing that is not withheld", "private", "withheld"),
        put("withheld", lambda things: things[:-1]),
    ),
    ("another public statement", "private", "privacy", put("privacy.public.0", "nothing")),
    (
        *("a public history of its own", "private", "owner/public part"),
        lambda run: run.history[3].update(gap=0.0),
    ),
    (
        *("an owner with a better objective", "private", "owner/certificate"),
        exact(put("certificate.value", times(0.9))),
    ),
    (
        *("no privacy at a higher cost", "private", "owner/baselines"),
        exact(put("baselines.erm.value", times(2))),
    ),
    ("a sweep with more noise", "private", "owner/sweep", exact(point(noise=times(2)))),
    ("a sweep at other epsilons", "private", "owner/sweep", exact(point(at=0.5))),
    ("a sweep that costs less", "private", "owner/sweep", exact(point(alone=times(0.9)))),
    ("a sweep that does better", "private", "owner/sweep", exact(point(value=times(0.9)))),
    (
        *("a private model that is better", "private", "owner/evaluation"),
        exact(put(f"{FIRST}.accuracy", 1.0)),
    ),
)
for _name, _kinds, _found, _change in EACH_PLACE:
    enter(_name, _kinds, _found, _change)


@forgery("cut", "outcome")
def a_cap_that_was_higher(run: Forged) -> None:
    run.config("max_rounds = 3", "max_rounds = 300")
    run.ends("max_rounds")


@forgery("constrained", "outcome")
def a_smaller_violation_in_words(run: Forged) -> None:
    text = run.result["outcome"]["text"]
    assert "stationarity" in text
    run.result["outcome"]["text"] = text.replace("stationarity", "stationarity below")


@forgery("private", "outcome")
def a_private_run_that_is_optimal(run: Forged) -> None:
    for part in (run, run.exact):
        part.result["outcome"]["text"] = "gap 1e-9 proven after 8 rounds."


@forgery("robust, rank", "data checks")
def a_check_that_passes(run: Forged) -> None:
    small = next(row for row in run.result["checks"] if row["name"] == "tiny")
    assert not small["passed"]
    small |= {"passed": True, "seen": 24, "where": [], "count": 0}


@forgery("private", f"{OWNER}data checks")
def a_check_of_the_owner_that_passes(run: Forged) -> None:
    a_check_that_passes(run.exact)


@forgery("robust, rank", "trivial")
def another_verdict_on_the_model(run: Forged) -> None:
    kind = "coefficients are zero"
    why = {"kind": kind, "parameter": "radius", "value": 1.0, "threshold": 0.5, "text": "Lower it."}
    run.result["trivial"] = why if run.result["trivial"] is None else None


@forgery("private", f"{OWNER}trivial")
def another_verdict_on_the_owners_model(run: Forged) -> None:
    another_verdict_on_the_model(run.exact)


@forgery("robust, rank, constrained, clock, private", "model")
def classes_that_are_swapped(run: Forged) -> None:
    def reverse(of: dict[str, Any]) -> None:
        for classes in (of["classes"], of["schema"]["classes"]):
            classes.reverse()

    model(reverse)(run)


@forgery("robust", "model")
def columns_that_are_swapped(run: Forged) -> None:
    def reverse(of: dict[str, Any]) -> None:
        first, second = of["schema"]["columns"]
        first["name"], second["name"] = second["name"], first["name"]
        of["feature_names"].reverse()

    model(reverse)(run)


@forgery("cut", "certificate")
def a_better_bound(run: Forged) -> None:
    proof = run.certificate
    proof |= {"bound": proof["value"] * (1 - 1e-9), "gap": 1e-9 * proof["value"]}
    proof["relative_gap"] = 1e-9
    run.ends("optimal")
    run.history[-1]["bound"] = proof["bound"]
    run.history[-1]["gap"] = run.history[-1]["objective"] - proof["bound"]


@forgery("robust", "certificate")
def a_model_of_somebody_else(run: Forged) -> None:
    """The baseline in place of the model."""
    file = run.path / "model.safetensors"
    erm = load_file(run.path / "baselines.safetensors")["erm"].tobytes()
    data, own = file.read_bytes(), load_file(file)["w"].tobytes()
    assert data.count(own) == 1
    file.write_bytes(data.replace(own, erm))


@forgery("robust, private", "config.toml")
def a_comment_in_the_configuration(run: Forged) -> None:
    file = run.path / "config.toml"
    file.write_text(f"# audited: epsilon 0.1\n{file.read_text('utf-8')}", "utf-8")


@forgery("clock, agnostic", "events")
def an_objective_that_was_reached_sooner(run: Forged) -> None:
    trace = run.result["reached"]["model"]["objective"]
    trace[len(trace) // 2] = trace[-1]


@forgery("private", "privacy")
def noise_that_was_not_drawn(run: Forged) -> None:
    for releases in run.result["privacy"]["releases"].values():
        releases[0][1] *= 2


@forgery("private", "answers")
def a_round_that_is_not_paid_for(run: Forged) -> None:
    for part in (run, run.exact):
        part.result["rounds"] = 9
        part.history.append({**part.history[-1], "round": 9})


# -------------------------------------------------------------------------------------------- tests


@pytest.fixture
def copied(tmp_path: Path, runs: Callable[[str], Path]) -> Iterator[Callable[[str], Forged]]:
    def copy(kind: str) -> Forged:
        path = runs(kind)
        shutil.copytree(path.parent.parent, tmp_path / kind)
        return Forged(tmp_path / kind / "runs" / path.name)

    yield copy
    shutil.rmtree(tmp_path, ignore_errors=True)


def failed(run: Forged) -> set[str]:
    """The checks that fail, without the column and the part that they are about; none of them by a
    digest.
    """
    odd = [check for check in verify_run(run.path) if check.ok is False]
    assert not any(
        text in check.text for check in odd for text in ("digest differs", "seal differs")
    )
    names = [check.name for check in odd]
    exact = [name.removeprefix(OWNER).partition(":")[0] for name in names if "model" in name]
    return {*names, *exact}


@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_run_verifies_with_digests_made_anew(
    copied: Callable[[str], Forged], kind: str
) -> None:
    run = copied(kind)
    run.write()
    assert [check for check in verify_run(run.path) if check.ok is False] == []
    assert passed(verify_run(run.path))


ONE_CLASS = small_run.table().replace(",no", ",yes", 30)  # at the first client
LEVELS = small_run.sweep("constraint.2.level", 0.3, 0.5)
NETWORK = 'loss = "logistic"\nmodel = "mlp"\nhidden = [3]'


def by(name: str, rounds: int, text: str = small_run.MIXED, options: str = "{}") -> str:
    """A configuration with another method, for a number of rounds at most."""
    chosen = f'name = "{name}"\nmax_rounds = {rounds}\noptions = {options}'
    found = re.sub(
        r'(name = "(auto|interior_point)"\n)?tol = .*|name = "interior_point"', chosen, text
    )
    return found.replace(BASELINES, "").replace('compare_with = ["erm"]', "")


OTHERS = {
    **{f"{name} {n}": by(name, n) for name in ("aspire", "afl", "async_dro") for n in (1, 60)},
    **{f"{name} {n}": by(name, n) for name in ("drfa", "multiplier_method") for n in (3, 40)},
    "the mean model of AFL": by("afl", 9, options="{ average = true }"),
    "some clients": by("drfa", 9, options="{ participation = 0.5 }"),
    "FedAvg": by("fed_avg", 40, small_run.MIXED.replace("simplex", "mean")),
    "a network": by("async_dro", 5).replace('loss = "logistic"', NETWORK),
    "AD-LPMM": by("ad_lpmm", 10, small_run.CONFIG),
    "double loop": by("double_loop", 5, small_run.CONFIG),
    "one class": small_run.CONFIG.replace(BASELINES, ""),
    "no progress": KINDS["cut"].replace("max_rounds = 3", "tol = 1e-16"),
    "all baselines": small_run.CONFIG.replace("erm", 'erm", "drfa", "wafl'),
    "a path by AD-LPMM": by("ad_lpmm", 5, KINDS["path"].replace("max_rounds = 4", "tol = 1e-6")),
    **{name: by(name, 2, small_run.TAIL) for name in ("rank_admm", "sgd", "dca")},
    "no convex risk": by("rank_admm", 1, small_run.TAIL)
    .replace("tail = 0.6", "k = 12\nm = 3")
    .replace("superquantile", "ranked_range"),
    "a flat penalty": small_run.TAIL.replace("pooled", 'regulariser = "mcp"\npooled'),
    "rows of the history": small_run.CLOCK.replace("stragglers", "keep_rows = 5\nstragglers"),
    "at a time": small_run.CLOCK.replace("stragglers", "max_time = 25.0\nstragglers"),
    "after a crash": by("async_dro", 60, small_run.CLOCK).replace(
        "stragglers", "crashes = { East = 12.0 }\nstragglers"
    ),
    "ranks of all rows on a clock": by("auto", 200, small_run.TOGETHER).replace("options = {}", "")
    + '[engine]\nkind = "virtual_clock"\n',
    "a spectrum of all rows": small_run.TOGETHER.replace("tail = 0.6", "r = 2.0").replace(
        "superquantile", "extremile"
    ),
    "ranks of all rows under constraints": small_run.TOGETHER.replace("erm", "unconstrained")
    .replace("tail = 0.6", "k = 20")
    .replace("superquantile", "top_k")
    + '[[constraint]]\nkind = "neyman_pearson"\nlabel = "yes"\nlevel = 0.4\n'
    + small_run.sweep("constraint.1.level", 0.5),
    "proximal_al": by("proximal_al", 40, small_run.KEPT),
    "proximal_al 3": by("proximal_al", 3, small_run.KEPT),
    "interior_point 3": by("interior_point", 3, small_run.KEPT),
    "not yet infeasible": by("proximal_al", 20, IMPOSSIBLE),
    "worst clients": small_run.KEPT + '[clients]\nrisk = "lp_ball"\nradius = 0.1\n',
    "not convex": small_run.KEPT.replace('"ward"\n', '"ward"\nmeasure = "probability"\n'),
    "async_bundle": by("async_bundle", 300, small_run.CLOCK),
    "async_bundle 9": by("async_bundle", 9, small_run.CLOCK),
    "async_bundle, cut losses": by("async_bundle", 300, small_run.CLOCK).replace(
        '"logistic"', '"hinge"'
    ),
    "async_bundle after a crash": small_run.CLOCK.replace(
        "stragglers", "crashes = { East = 2.0 }\nstragglers"
    ),
    "constraints on a clock": small_run.KEPT.replace(LEVELS, "")
    + '[engine]\nkind = "virtual_clock"\n',
}


@pytest.mark.parametrize("name", OTHERS)
def test_an_honest_run_verifies_whatever_its_method_and_its_end(tmp_path: Path, name: str) -> None:
    text = OTHERS[name]
    data = WARDS if "groups" in text else ONE_CLASS if name == "one class" else None
    run = small_run.small_run(tmp_path, text=text, data=data)
    assert [check for check in verify_run(run.path) if not check.ok and check.checkable] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_shows_30_lines_and_with_verbose_all_of_its_report(
    runs: Callable[[str], Path], kind: str
) -> None:
    run, shown = read_run(runs(kind)), []
    for verbose in (False, True):
        console = Console(file=io.StringIO(), width=80)
        show(run, console, verbose)
        shown.append(console.file.getvalue())  # type: ignore[attr-defined]
    brief, whole = shown
    assert len(brief.splitlines()) <= LINES
    assert whole.endswith(brief.lstrip())
    certificate = (run.exact or run).result["certificate"]
    needed = [run.result["outcome"]["text"], run.result["seal"], f"{certificate['value']:.9g}"]
    needed += [row["client"] for row in run.result["clients"][:1]]
    assert [text for text in needed if text[1:].split(".")[0] not in brief] == []
    chapters = re.findall("^## (.*)$", markdown(run), re.M)
    assert [title for title in chapters if title not in whole and title not in EMPTY] == []


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_found(copied: Callable[[str], Forged], name: str) -> None:
    kind, found, change = FORGERIES[name]
    run = copied(kind)
    change(run)
    run.write()
    assert found in failed(run)


PUBLIC = [
    name for name, (kind, found, _) in FORGERIES.items() if kind == "private" and "/" not in found
]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_forgery_of_the_public_part_is_found_without_the_owners(
    copied: Callable[[str], Forged], name: str
) -> None:
    _, found, change = FORGERIES[name]
    run = copied("private")
    change(run)
    shutil.rmtree(run.path / OWNER)
    run.owner = None
    run.write()
    assert found in failed(run)


# ------------------------------------------------------------------------------- random forgeries

BARE = re.sub(r"test = 0.4\n|shifted.*\n|\[sweep\]\n.*\n.*\n|\[report\]\n.*\n", "", small_run.KEPT)
TOGETHER = BARE[BARE.index("[[constraint]]  # over all") :]
AT_CLIENTS = BARE.replace(TOGETHER, "")
LIMITED = '[[constraint]]\nkind = "cost_limit"\ncosts = {{ age = 1.0 }}\nlimit = {}\n'
SIGNED = '[[constraint]]\nkind = "sign"\nsigns = { age = 1 }\n'
LATE = small_run.CLOCK.replace('[report]\ncompare_with = ["erm"]\n', "")
MUTATED = {  # every way to hold a constraint, and every way to end
    "at every client": AT_CLIENTS,
    "over all clients": BARE,
    "at the server": AT_CLIENTS + LIMITED.format(0.1) + SIGNED,
    "nothing feasible": AT_CLIENTS + LIMITED.format(-2.0) + SIGNED,
    "stopped": by("interior_point", 3, BARE),
    "first order": by("proximal_al", 9, BARE),
    "worst clients": AT_CLIENTS + '[clients]\nrisk = "lp_ball"\nradius = 0.1\n',
    "by cuts": by("bundle", 300, BARE).replace('"logistic"', '"hinge"'),
    "by cuts, worst case": by("bundle", 300, BARE).replace('label = "no"\n', "")
    + '[robust]\nradius = 0.02\n[clients]\nrisk = "simplex"\n',
    "without constraints": small_run.MIXED,
    "asynchronous": LATE,
    "not convex": BARE.replace('"ward"\n', '"ward"\nmeasure = "probability"\n'),
}
EACH = 62  # forgeries of every kind


class Mutation:
    """One random change of what a run with constraints states of its model and its end."""

    def __init__(self, run: Forged, rng: np.random.Generator) -> None:
        self.run, self.rng = run, rng

    def draw(self) -> str:
        """Change something; what, in words."""
        of = [self.number, self.number, self.row, self.multiplier, self.model]
        of += [self.rounds, self.stop, self.claim, self.text]
        return of[self.rng.integers(len(of))]()

    def other(self, number: float | None) -> float:
        """Another number, by a thousandth of it at least."""
        if number is None:
            return float(self.rng.normal())
        ways = [
            lambda: number * (1 + 10 ** self.rng.uniform(-3, 0)),
            lambda: number * (1 - 10 ** self.rng.uniform(-3, 0)),
            lambda: -number,
            lambda: 0.0,
            lambda: number + self.rng.normal(),
        ]
        changed = float(ways[self.rng.integers(len(ways))]())
        return changed if abs(changed - number) >= 1e-6 else number + 1.0

    def entry(self, of: Any, key: Any) -> None:
        """Change an entry, or one of the entries of a list."""
        while isinstance(of[key], list) and of[key]:
            of, key = of[key], int(self.rng.integers(len(of[key])))
        missing = isinstance(of[key], float) and self.rng.random() < 0.1
        of[key] = None if missing else self.other(None if isinstance(of[key], list) else of[key])

    def number(self) -> str:
        # of the clients' copies, which stay with them
        keys = [key for key in self.run.certificate if key != "consensus"]
        key = keys[self.rng.integers(len(keys))]
        self.entry(self.run.certificate, key)
        return f"certificate.{key}"

    def row(self) -> str:
        tables = [self.run.result.get(name) for name in ("constraints", "clients")]
        tables = [table for table in tables if table]
        table = tables[self.rng.integers(len(tables))]
        row = table[self.rng.integers(len(table))]
        keys = [key for key, value in row.items() if isinstance(value, float)]
        key = keys[self.rng.integers(len(keys))]
        self.entry(row, key)
        return f"{key} of a row"

    def array(self, file: str, names: list[str]) -> str:
        name = names[self.rng.integers(len(names))]

        def change(arrays: dict[str, np.ndarray]) -> None:
            flat = arrays[name].reshape(-1)
            # a multiplier counts in the scale of the largest
            at, size = self.rng.integers(len(flat)), float(np.abs(flat).max())
            size = size if size > 1e-9 else 1.0  # of limits that do not bind
            flat[at] += size * 10 ** self.rng.uniform(-2, 1)

        self.run.arrays(file, change)
        return f"{file}: {name}"

    def multiplier(self) -> str:
        arrays = load_file(self.run.path / "duals.safetensors")
        # another point may have the same cut, and cuts of a mean are rescaled to its weights: then
        # all that is stated is true as it was
        free = "points", "risk_cuts"
        names = [k for k, v in arrays.items() if v.size and k not in free]
        return self.array("duals.safetensors", names)

    def model(self) -> str:
        file = self.run.path / "model.safetensors"
        with safe_open(file, "np") as opened:
            more = opened.metadata()
        arrays = load_file(file)
        arrays["w"][self.rng.integers(len(arrays["w"]))] += self.rng.choice([-1, 1]) * 10 ** float(
            self.rng.uniform(-2, 1)
        )
        save_arrays(file, arrays, more)
        return "w"

    def rounds(self) -> str:
        last, k = self.run.result["rounds"], int(self.rng.integers(1, 4))
        self.run.result["rounds"] = max(last - k, 1) if self.rng.random() < 0.5 else last + k
        if self.rng.random() < 0.5:  # with a history to go with it
            del self.run.history[self.run.result["rounds"] :]
        return "rounds"

    def stop(self) -> str:
        others = [s.value for s in Stop if s.value != self.run.result["outcome"]["stop"]]
        self.run.result["outcome"]["stop"] = others[self.rng.integers(len(others))]
        return f"stop {self.run.result['outcome']['stop']}"

    def claim(self) -> str:
        """A stronger end, or another one that numbers refute, in the words of an honest run."""
        now = self.run.result["outcome"]["stop"]
        others = [s for s in ("optimal", "infeasible", "max_rounds", "unbounded") if s != now]
        self.run.ends(others[self.rng.integers(len(others))])
        if self.run.result["outcome"]["stop"] == "infeasible":
            self.run.certificate["infeasible"] = 0.1
        return f"claims {self.run.result['outcome']['stop']}"

    def text(self) -> str:
        """Another number in the words of the outcome, or an end that was not."""
        outcome = self.run.result["outcome"]
        more = [
            "Proved to within a relative gap 1.00e-12 (absolute 1.00e-12).",
            "The proof failed (MemoryError).",
        ]
        numbers = [*re.finditer(r"\d(\.\d+)?e[-+]\d\d", outcome["text"])]
        if numbers and self.rng.random() < 0.5:
            found = numbers[self.rng.integers(len(numbers))]
            outcome["text"] = (
                f"{outcome['text'][: found.start()]}7.7e-77{outcome['text'][found.end() :]}"
            )
        else:
            outcome["text"] += f" {more[self.rng.integers(2)]}"
        return "text"


@pytest.mark.parametrize("kind", MUTATED)
def test_random_forgeries_of_runs_with_constraints_are_found(tmp_path: Path, kind: str) -> None:
    data = small_run.wards(small_run.table(clinics=("North", "East")))
    honest = small_run.small_run(tmp_path, text=MUTATED[kind], data=data)
    parts, copy = prepare(honest.config), honest.path.parent / "copy"
    assert not is_found(honest.path, parts)
    unseen = []
    for k in range(EACH):
        shutil.copytree(honest.path, copy)
        run = Forged(copy)
        what = Mutation(run, np.random.default_rng([k, *kind.encode()])).draw()
        run.write()
        if not is_found(copy, parts):
            unseen.append(f"{k}: {what}")
        shutil.rmtree(copy)
    assert unseen == []


def is_found(path: Path, parts: Parts) -> bool:
    """Whether a check of `verify_run` fails; the first that does is the last that is made, and
    those that cost least come first.
    """
    try:
        run = read_run(path)
        inputs = verification._inputs(run, parts)
        checks = chain(
            verification._check_alone(run),
            verification._check_certificate(run, inputs),
            verification.check_outcome(run, inputs.problem, parts.train),
            verification._check_with_data(run, parts),
        )
        return any(check.ok is False for check in checks)
    except (FormError, *UNREADABLE):
        return True


def test_there_are_600_random_forgeries() -> None:
    assert EACH * len(MUTATED) >= 600


# -------------------------------------------------------------------------------- another machine


def sites(folder: Path) -> Path:
    """A finished run on one file for each client."""
    (folder / "sites").mkdir()
    head, *lines = small_run.table().splitlines()
    for clinic in reversed(small_run.CLINICS):
        own = [line.partition(",")[2] for line in lines if line.startswith(f'"{clinic}"')]
        text = "\n".join([head.partition(",")[2], *own]) + "\n"
        (folder / "sites" / f"{clinic}.csv").write_text(text, "utf-8")
    text = KINDS["cut"].replace('"clinics.csv"\nclient = "clinic"', '"sites/*.csv"')
    return small_run.small_run(folder, draw=True, text=text).path


class Backwards:
    """`os.scandir` on a file system that lists names from Z to A."""

    listed: Callable[..., Any]

    def __init__(self, *place: Any) -> None:
        with type(self).listed(*place) as entries:
            self.entries = iter(sorted(entries, key=lambda entry: entry.name, reverse=True))

    def __iter__(self) -> Iterator[Any]:
        return self.entries

    def __next__(self) -> Any:
        return next(self.entries)

    def __enter__(self) -> "Backwards":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.entries = iter(())


def test_an_honest_run_verifies_on_a_machine_that_lists_files_in_another_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    path = sites(here)
    for file in sorted((f for f in here.rglob("*") if f.is_file()), reverse=True):
        copy = there / file.relative_to(here)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
        os.utime(copy, (0, 0))
    monkeypatch.setattr(Backwards, "listed", staticmethod(os.scandir), raising=False)
    monkeypatch.setattr(os, "scandir", Backwards)
    names = [Path(file).name for file in glob.glob(str(there / "sites" / "*.csv"))]
    assert names == ["South.csv", "North.csv", "East.csv"]
    assert passed(verify_run(there / path.relative_to(here), render=small_run.render))


def test_other_line_ends_of_the_configuration_are_a_change(copied: Callable[[str], Forged]) -> None:
    run = copied("cut")
    file = run.path / "config.toml"
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert "config.toml" in [c.name for c in verify_run(run.path) if c.ok is False]


def test_a_run_that_hides_its_ledger_file_lists_it_as_not_checked(tmp_path: Path) -> None:
    text = small_run.PRIVATE_ADMM.replace("[privacy]", '[privacy]\nbook = "book.json"')
    run = Forged(small_run.private_run(tmp_path, text=text).path)

    def state() -> tuple[bool | None, bool]:
        (check,) = (c for c in verify_run(run.path) if c.name == "owner/book")
        return check.ok, check.checkable

    assert state() == (True, True)
    (tmp_path / "book.json").rename(tmp_path / "other.json")
    assert state() == (None, False)
    (tmp_path / "other.json").rename(tmp_path / "book.json")
    del run.exact.result["book"]
    run.write()
    assert state() == (None, False)


def test_there_are_forgeries_of_every_kind_of_run() -> None:
    assert {kind for kind, *_ in FORGERIES.values()} == {*KINDS}
    assert len(FORGERIES) >= 40
