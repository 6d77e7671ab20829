"""What each paper prints, and the experiments that print it again: `bonafed reproduce`.

A room's ``printed.toml`` states, for every table and figure, what the paper prints and how it is
run here; its ``experiments.py`` has one function for each, ``RUN[key](seed, **settings)``, which
yields the rows of one trial. Trials are saved one by one, so that an interrupted run goes on.
"""

from __future__ import annotations

import json
import math
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, with_config

from bonafed import signals
from bonafed.arrays import Array
from bonafed.client_names import entry
from bonafed.data import load
from bonafed.papers.reproduction import Curve, Row
from bonafed.storage import Lock, write_whole

ROOMS = ("drfl", "aspire", "constrained", "dp_iadmm", "rank")
PATIENCE = 600.0  # seconds in which another process has drawn its figures
DIGITS = 7  # significant, of what is saved
Way = Literal["higher", "lower"]


@dataclass(frozen=True)
class Number:
    """A number that the paper prints."""

    case: str
    figure: str
    method: str
    value: str  # with the printed digits
    spread: str | None = None  # standard deviation over the paper's runs, as printed
    where: str = ""


@dataclass(frozen=True)
class Claim:
    """A ranking that the paper states, or that its figure shows."""

    says: str
    figure: str
    method: str
    than: tuple[str, ...]
    case: str = "*"  # every case
    but: tuple[str, ...] = ()  # the paper says so of every case but these
    by: Literal["higher", "lower", "same"] | None = None  # None: the better way of the figure
    within: float = 0.01  # the relative difference that counts as the same


@dataclass(frozen=True)
class Own:
    """A method of this package beside a method of the paper."""

    method: str
    own: str
    figure: str
    how: Annotated[Literal["ratio", "difference"], Field(alias="as")] = "ratio"


@dataclass(frozen=True)
class Reason:
    """Why numbers of a case differ."""

    text: str
    case: str = "*"


@with_config(ConfigDict(extra="forbid"))  # nor do its parts take more
@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper: what it prints, and how it is run here."""

    room: str
    key: str
    title: str
    where: str
    setting: str  # of the paper
    program: str  # of at most five lines
    full: Mapping[str, Any]  # settings of the paper, ``trials`` among them
    quick: Mapping[str, Any]
    seconds: Mapping[Literal["full", "quick"], float]  # expected, of a processor
    here: str = ""  # what is different here
    data: tuple[str, ...] = ()  # loaders of `bonafed.data.load`
    deterministic: bool = False
    runs: int | None = None  # of the paper, behind its spreads, where they are not as many as ours
    better: Mapping[str, Way] = field(default_factory=dict)  # by figure
    other: Mapping[str, str] = field(default_factory=dict)  # by case: what stands in
    absent: Mapping[str, str] = field(default_factory=dict)  # by case: what cannot be had
    numbers: tuple[Number, ...] = ()
    claims: tuple[Claim, ...] = ()
    own: tuple[Own, ...] = ()
    why: tuple[Reason, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.room}/{self.key}"

    @property
    def run(self) -> Callable[..., Iterable[Row]]:
        return _code(self.room).RUN[self.key]

    @property
    def draw(self) -> Callable[[Any, Mapping[tuple[str, str, str], Curve]], None] | None:
        return _code(self.room).DRAW.get(self.key)

    def settings(self, quick: bool) -> dict[str, Any]:
        return dict(self.quick if quick else self.full)


@dataclass(frozen=True)
class Paper:
    """A paper: its room, citation and experiments."""

    room: str
    title: str
    authors: str
    source: str
    experiments: Mapping[str, Experiment]


class Trial(NamedTuple):
    """The rows of one seed, and what they cost."""

    seed: int
    seconds: float  # of the processor
    date: str
    rows: tuple[Row, ...]


@with_config(ConfigDict(extra="forbid", strict=True))
@dataclass(frozen=True)
class Saved:
    """What a file of trials holds."""

    name: str
    quick: bool
    settings: dict[str, Any]
    version: str
    trials: Annotated[list[tuple[int, float, str]], Field(min_length=1)]
    # a line for each case, figure and method: its places, and at each the numbers by trial
    values: list[tuple[str, str, str, list[float | None], list[list[float | None]]]]


FORM = TypeAdapter(Saved)


@dataclass(frozen=True)
class Result:
    """The trials of an experiment."""

    name: str
    quick: bool
    settings: Mapping[str, Any]
    version: str  # several where the trials are of several
    trials: tuple[Trial, ...]

    @cached_property
    def values(self) -> dict[tuple[str, str, str, float | None], Array]:
        """(trials,) numbers by case, figure, method and x; nan where a trial has none."""
        found: dict[tuple[str, str, str, float | None], Array] = {}
        for k, trial in enumerate(self.trials):
            for case, figure, method, value, x in trial.rows:
                at = found.setdefault((case, figure, method, x), np.full(len(self.trials), np.nan))
                at[k] = value
        return found

    @cached_property
    def table(self) -> dict[tuple[str, str, str], Array]:
        """The values that are not points of curves."""
        return {key[:3]: values for key, values in self.values.items() if key[3] is None}

    @property
    def seconds(self) -> float:
        return sum(trial.seconds for trial in self.trials)


@cache
def papers() -> dict[str, Paper]:
    """Every paper, by its room."""
    return {room: _paper(room) for room in ROOMS}


def _paper(room: str) -> Paper:
    path = Path(__file__).parents[1] / "papers" / room / "printed.toml"
    stated = tomllib.loads(path.read_text("utf-8"))
    cited = {key: stated.pop(key) for key in ("title", "authors", "source")}
    form = TypeAdapter(Experiment)
    found = {k: form.validate_python({"room": room, "key": k, **v}) for k, v in stated.items()}
    return Paper(room, **cited, experiments=found)


def experiments() -> dict[str, Experiment]:
    """Every experiment, by its name."""
    return {one.name: one for paper in papers().values() for one in paper.experiments.values()}


def experiment(name: str) -> Experiment:
    """The experiment of a name such as "drfl/figure-2"."""
    return entry(experiments(), name, "experiment")


@cache
def _code(room: str) -> Any:
    return import_module(f"bonafed.papers.{room}.experiments")


# ------------------------------------------------------------------------------------------- data


def missing(one: Experiment, download: bool = False) -> dict[str, str]:
    """The data sets of an experiment that are not here: how each can be had.

    With ``download``, what is not here is asked for.
    """
    here = {known.name: known.present for known in load.available()}
    found = {}
    for name in one.data:
        if here.get(name):
            continue
        try:
            if not download:
                raise load.absent(load.SOURCES[name], "its files are in no data directory")
            getattr(load, name)()
        except OSError as error:
            found[name] = str(error)
    return found


# ------------------------------------------------------------------------------------------- runs


def reproduce(
    one: Experiment,
    out: Path,
    *,
    quick: bool = False,
    trials: int | None = None,
    seed: int = 0,
    data: Sequence[str] | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> Result:
    """Run the trials that ``out`` does not have yet, and save each as soon as it has ended.

    Parameters
    ----------
    one : Experiment
        What to run.
    out : Path
        The folder of results.
    quick : bool
        With the quick settings.
    trials, seed : int
        How many seeds, by default those of the settings, and the first one.
    data : sequence of str
        The data sets that are here, by default all of the experiment.
    say : callable
        Gets a line on the progress.

    Raises
    ------
    FileExistsError
        where ``out`` has trials with other settings
    KeyboardInterrupt
        Ctrl-C; the trials that had ended are saved
    """
    settings = one.settings(quick)
    count = settings.pop("trials", 1)
    if one.data:
        settings["data"] = list(one.data if data is None else data)
    asked = range(seed, seed + (trials or count))
    for k, at in enumerate(asked):
        # another process may have saved it meanwhile
        if at in {trial.seed for trial in _kept(one, out, quick, settings).trials}:
            continue
        say(f"{one.name}: trial {k + 1} of {len(asked)}, {_expected(one, quick)}")
        _add(one, out, quick, settings, _trial(one, at, settings))
    kept = _kept(one, out, quick, settings)
    return replace(kept, trials=tuple(trial for trial in kept.trials if trial.seed in asked))


def _kept(one: Experiment, out: Path, quick: bool, settings: dict[str, Any]) -> Result:
    """The trials that are saved, which have these settings."""
    if (kept := read(out, one, quick)) is None:
        return Result(one.name, quick, settings, version("bonafed"), ())
    if kept.settings != settings:
        raise FileExistsError(
            f"{path_of(out, one, quick)} has trials with other settings, which this run would"
            " replace: it needs another --out, or that file removed. Those settings:"
            f" {in_words(kept.settings)}; now: {in_words(settings)}."
        )
    return kept


def _trial(one: Experiment, seed: int, settings: Mapping[str, Any]) -> Trial:
    began, came, rows = time.process_time(), signals.Last.count, list[Row]()
    try:
        with signals.listening():
            for row in one.run(seed, **settings):
                rows.append(row._replace(value=_rounded(row.value)))
                if signals.Last.count > came:  # which ended a solve early
                    break
    except Exception as error:
        if signals.Last.count == came:
            said = str(error).rstrip(".")
            raise RuntimeError(
                f"{one.name} failed with seed {seed}: {type(error).__name__}: {said}. Trials that"
                " ended before are kept. BONAFED_TRACEBACK=1 shows where it failed, and --seed"
                " begins with another seed."
            ) from error
    if signals.Last.count > came:
        raise KeyboardInterrupt
    spent = time.process_time() - began
    return Trial(seed, round(spent, 2), f"{datetime.now(UTC):%Y-%m-%d}", tuple(rows))


def _add(one: Experiment, out: Path, quick: bool, settings: dict[str, Any], trial: Trial) -> None:
    """Save a trial beside those that are saved, some of them maybe by another process."""
    path = path_of(out, one, quick)
    path.parent.mkdir(parents=True, exist_ok=True)
    with in_turn(out):
        kept = _kept(one, out, quick, settings)
        trials = {each.seed: each for each in (*kept.trials, trial)}
        versions = dict.fromkeys((*kept.version.split(", "), version("bonafed")))
        ordered = tuple(trials[seed] for seed in sorted(trials))
        _write(path, replace(kept, version=", ".join(versions), trials=ordered))


def in_turn(out: Path) -> AbstractContextManager[None]:
    """While it is open, no other process writes to the folder of results."""
    folder = out / "reproduction"
    return Lock(folder / ".lock").alone(f"another process writes to {folder}", PATIENCE)


def _expected(one: Experiment, quick: bool) -> str:
    seconds = one.seconds["quick" if quick else "full"] / one.settings(quick).get("trials", 1)
    return f"about {seconds:.2g} s of a processor"


def results(out: Path) -> dict[str, Result]:
    """The results in a folder by experiment; those at the paper's settings before quick ones."""
    found = {}
    for one in experiments().values():
        for quick in (True, False):
            if (kept := read(out, one, quick)) is not None:
                found[one.name] = kept
    return found


def path_of(out: Path, one: Experiment, quick: bool) -> Path:
    """The file of an experiment's trials."""
    return out / "reproduction" / f"{one.room}-{one.key}{'.quick' * quick}.json"


def read(out: Path, one: Experiment, quick: bool) -> Result | None:
    """The trials of an experiment that are saved, or None."""
    path = path_of(out, one, quick)
    if not path.exists():
        return None
    try:
        kept = _result(FORM.validate_json(path.read_bytes()))
    except ValueError as error:
        raise ValueError(
            f"{path} is damaged, and its trials cannot be read: needed is a file that `bonafed"
            " reproduce` wrote. Put back a copy, or remove it to run its trials again."
        ) from error
    if (kept.name, kept.quick) != (one.name, quick):
        raise ValueError(
            f"{path} has trials of {kept.name}{' --quick' * kept.quick}: needed are those of"
            f" {one.name}{' --quick' * quick}. Give the file its own name again, or remove it."
        )
    return kept


def _result(saved: Saved) -> Result:
    seeds = [seed for seed, *_ in saved.trials]
    if len(set(seeds)) < len(seeds):
        raise ValueError("a seed stands there twice")
    rows: list[list[Row]] = [[] for _ in seeds]
    for case, figure, method, places, values in saved.values:
        for x, by_trial in zip(places, values, strict=True):
            for ours, value in zip(rows, by_trial, strict=True):
                ours.append(Row(case, figure, method, math.nan if value is None else value, x))
    trials = (Trial(*head, tuple(ours)) for head, ours in zip(saved.trials, rows, strict=True))
    return Result(saved.name, saved.quick, saved.settings, saved.version, tuple(trials))


def _write(path: Path, result: Result) -> None:
    lines: dict[tuple[str, str, str], tuple[list[float | None], list[list[float | None]]]] = {}
    for (case, figure, method, x), values in result.values.items():
        places, numbers = lines.setdefault((case, figure, method), ([], []))
        places.append(x)
        numbers.append([float(v) if math.isfinite(v) else None for v in values])
    head = asdict(replace(result, trials=())) | {"trials": [trial[:3] for trial in result.trials]}
    rows = ",\n".join(json.dumps([*key, *found]) for key, found in lines.items())
    write_whole(path, f'{json.dumps(head)[:-1]}, "values": [\n{rows}]}}\n'.encode())


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else math.nan


def listed() -> Iterator[str]:
    """Every experiment in lines: data, settings, expected time and program."""
    for paper in papers().values():
        yield f"{paper.authors}, {paper.title} ({paper.source})"
        for one in paper.experiments.values():
            yield f"  {one.name}: {one.title} ({one.where})"
            for name, text in (
                ("data", ", ".join(one.data) or "made by the experiment"),
                ("paper", one.setting),
                ("here", one.here or "the same"),
                ("full", in_words(one.full)),
                ("quick", in_words(one.quick)),
                ("time", "quick {quick:.3g} s, full {full:.3g} s".format(**one.seconds)),
            ):
                yield f"    {name + ':':<7}{text}"
            yield from (f"    | {line}" for line in one.program.strip().splitlines())


def in_words(settings: Mapping[str, Any]) -> str:
    """Settings on one line."""
    return ", ".join(f"{key} = {value}" for key, value in settings.items())
