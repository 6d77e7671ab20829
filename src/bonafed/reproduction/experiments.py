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
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
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
from bonafed.storage import write_whole

ROOMS = ("drfl", "aspire", "constrained", "dp_iadmm", "rank")
DIGITS = 7  # significant, of what is saved
Way = Literal["higher", "lower"]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Number:
    """A number that the paper prints."""

    case: str
    figure: str
    method: str
    value: str  # with the printed digits
    spread: float | None = None  # standard deviation over the paper's runs
    where: str = ""


@with_config(ConfigDict(extra="forbid"))
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


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Own:
    """A method of this package beside a method of the paper."""

    method: str
    own: str
    figure: str
    how: Annotated[Literal["ratio", "difference"], Field(alias="as")] = "ratio"


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Reason:
    """Why numbers of a case differ."""

    text: str
    case: str = "*"


@with_config(ConfigDict(extra="forbid"))
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


@dataclass(frozen=True)
class Result:
    """The trials of an experiment."""

    name: str
    quick: bool
    settings: Mapping[str, Any]
    version: str
    trials: tuple[Trial, ...]

    @property
    def values(self) -> dict[tuple[str, str, str, float | None], Array]:
        """(trials,) numbers by case, figure, method and x; nan where a trial has none."""
        found: dict[tuple[str, str, str, float | None], Array] = {}
        for k, trial in enumerate(self.trials):
            for case, figure, method, value, x in trial.rows:
                at = found.setdefault((case, figure, method, x), np.full(len(self.trials), np.nan))
                at[k] = value
        return found

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
    path, asked = path_of(out, one, quick), range(seed, seed + (trials or count))
    kept = read(path)
    if kept is not None and kept.settings != settings:
        raise FileExistsError(
            f"{path} has trials with other settings, which this run would replace: it needs another"
            f" --out, or that file removed. Those settings: {_settings(kept.settings)}; now:"
            f" {_settings(settings)}."
        )
    done = {} if kept is None else {trial.seed: trial for trial in kept.trials}
    for k, at in enumerate(asked):
        if at in done:
            continue
        say(f"{one.name}: trial {k + 1} of {len(asked)}, {_expected(one, quick)}")
        began, came = time.process_time(), signals.Last.count
        with signals.listening():
            rows = tuple(row._replace(value=_rounded(row.value)) for row in one.run(at, **settings))
        if signals.Last.count > came:  # a solve may have ended early, and said so to nobody
            raise KeyboardInterrupt
        spent = time.process_time() - began
        done[at] = Trial(at, round(spent, 2), f"{datetime.now(UTC):%Y-%m-%d}", rows)
        ordered = tuple(done[s] for s in sorted(done))
        _write(path, Result(one.name, quick, settings, version("bonafed"), ordered))
    chosen = tuple(done[at] for at in asked)
    return Result(one.name, quick, settings, version("bonafed"), chosen)


def _expected(one: Experiment, quick: bool) -> str:
    seconds = one.seconds["quick" if quick else "full"] / one.settings(quick).get("trials", 1)
    return f"about {seconds:.2g} s of a processor"


def results(out: Path) -> dict[str, Result]:
    """The results in a folder by experiment; those at the paper's settings before quick ones."""
    found = {}
    for one in experiments().values():
        for quick in (True, False):
            if (kept := read(path_of(out, one, quick))) is not None:
                found[one.name] = kept
    return found


def path_of(out: Path, one: Experiment, quick: bool) -> Path:
    """The file of an experiment's trials."""
    return out / "reproduction" / f"{one.room}-{one.key}{'.quick' * quick}.json"


def read(path: Path) -> Result | None:
    """The result in a file, or None where there is no such file."""
    if not path.exists():
        return None
    try:
        return _result(json.loads(path.read_text("utf-8")))
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{path} is damaged, and its trials cannot be read: needed is a file that `bonafed"
            " reproduce` wrote. Put back a copy, or remove it to run its trials again."
        ) from error


def _result(stated: dict[str, Any]) -> Result:
    rows: list[list[Row]] = [[] for _ in stated["trials"]]
    for case, figure, method, places, values in stated.pop("values"):
        for x, by_trial in zip(places, values, strict=True):
            for ours, value in zip(rows, by_trial, strict=True):
                ours.append(Row(case, figure, method, math.nan if value is None else value, x))
    known = zip(stated.pop("trials"), rows, strict=True)
    trials = (Trial(*trial, rows=tuple(ours)) for trial, ours in known)
    return Result(**stated, trials=tuple(trials))


def _write(path: Path, result: Result) -> None:
    """A line for each case, figure and method: its places, and at each the numbers by trial."""
    lines: dict[tuple[str, str, str], tuple[list[float | None], list[list[float | None]]]] = {}
    for (case, figure, method, x), values in result.values.items():
        places, numbers = lines.setdefault((case, figure, method), ([], []))
        places.append(x)
        numbers.append([float(v) if math.isfinite(v) else None for v in values])
    head = {k: v for k, v in asdict(result).items() if k != "trials"}
    head["trials"] = [trial[:3] for trial in result.trials]
    rows = ",\n".join(json.dumps([*key, *found]) for key, found in lines.items())
    path.parent.mkdir(parents=True, exist_ok=True)
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
                ("full", _settings(one.full)),
                ("quick", _settings(one.quick)),
                ("time", "quick {quick:.3g} s, full {full:.3g} s".format(**one.seconds)),
            ):
                yield f"    {name + ':':<7}{text}"
            yield from (f"    | {line}" for line in one.program.strip().splitlines())


def _settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in settings.items())
