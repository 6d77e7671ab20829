"""A run whose rows stay at sites, from its configuration to the same folder as every other run.

    configuration -> job -> an engine carries it to the sites -> result -> folder

What needs rows is computed at the sites or left out: the folder has no warnings that read rows, no
comparison with a constant and no rates of groups. The result is that of `bonafed.sites.server`.
"""

import json
import math
import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from bonafed.config.config import Config, ConfigError
from bonafed.data.schema import Schema, declared_schema
from bonafed.engines.job import DONE, ERROR, PROGRESS, RESULT, SIGNED
from bonafed.measures import about
from bonafed.problem.metadata import Introduced, Metadata
from bonafed.rounds import Stop, decode
from bonafed.runs import forms
from bonafed.runs.baselines import called, label
from bonafed.runs.files import parsed, plain, slug, text_in
from bonafed.runs.folder import Render, of_models, titled, versions, write_run
from bonafed.runs.privacy_plan import stated_sizes
from bonafed.runs.sections.constraints import of_constraints
from bonafed.runs.sections.privacy import stated_of
from bonafed.runs.sections.section import Progress
from bonafed.runs.work import CARRIER, Work
from bonafed.sites.judging import contrary, in_place_of_others, no_better_than_a_constant
from bonafed.sites.rows import Roles
from bonafed.sites.server import SOLUTION, SiteRun, job_of
from bonafed.sites.site_file import NAME, SiteFile, read_site, unready
from bonafed.solution.plan import read_with_sums
from bonafed.solution.solution import Solution, stated_in
from bonafed.storage import OWN, write_whole
from bonafed.text import first_true, listed, short

ENGINES = ("flare-sim", "flare-poc", "flare", "flower-sim", "flower")
HERE = ("flare-sim", "flare-poc", "flower-sim", "flower")  # whose sites are on this machine
# seconds that the server waits for a site: FLARE takes the process of a site that was started again
# into no job, so that the job has to end and be submitted again
PATIENCE = {"flare": 150.0, "flower": 600.0}
Models = Mapping[str, Solution]  # by name, the main one first
Draws = Render | None  # draws the files of a report
Job = Mapping[str, str]
Day = date | None
LOOK = 0.3  # seconds between two looks at the progress


@dataclass(frozen=True)
class Carrier:
    """How a run reaches its sites.

    Parameters
    ----------
    engine : one of `ENGINES`
    experiment : the name by which server and sites know the run
    sites : the folder with a folder for each site, where the engine starts them on this machine
    kit : of FLARE in production the folder of the user who may submit jobs
    """

    engine: str
    experiment: str
    sites: str = ""
    kit: str = ""

    @classmethod
    def of(cls, config: Config, engine: str, sites: Path | None, kit: Path | None) -> "Carrier":
        """A new experiment; raises `ConfigError` where something is missing."""
        names, here = config.data.sites or [], engine in HERE
        faults = {
            f"must be one of {', '.join(ENGINES)}": engine not in ENGINES,
            "runs over sites that keep their rows, and the configuration reads rows itself: give"
            " data.sites, the names of the sites, instead of data.path": not names,
            "needs --kit, the FLARE folder of the user who submits jobs": not here and kit is None,
            "takes no --kit, which is for --engine flare": here and kit is not None,
            "takes no --sites: its sites run elsewhere": not here and sites is not None,
        }
        if fault := first_true(faults):
            raise ConfigError(f"--engine {engine} {fault}")
        installed(engine)
        folder = str((sites or config.folder).absolute()) if here else ""
        if here:
            site_folders(Path(folder), names)
        return cls(engine, cls.named(config), folder, "" if kit is None else str(kit.absolute()))

    @staticmethod
    def named(config: Config) -> str:
        """A name for a new experiment, which no site has heard before."""
        return f"{slug(titled(config))[:40]}-{secrets.token_hex(4)}"

    def keep(self, work: Path) -> None:
        """Write it into the folder of the work, for those who go on."""
        write_whole(work / CARRIER, json.dumps(asdict(self)).encode(), OWN)

    @classmethod
    def kept(cls, work: Path) -> "Carrier | None":
        """That of a run that is gone on with; None of a run in one place."""
        file = work / CARRIER
        return cls(**parsed(file, text_in(file))) if file.is_file() else None


def installed(engine: str) -> None:
    """Raise where the packages of an engine are missing, with what to install."""
    from bonafed.engines.flare import require_flare
    from bonafed.sites.trial.flower import program

    if engine.startswith("flower"):
        program("flwr")
    else:
        require_flare()


def site_folders(place: Path, names: list[str]) -> dict[str, Path]:
    """The folder of each site below a folder, by the names in their ``site.toml``; raises
    `ConfigError` where one is missing or could not answer. The files of other sites do not count.
    """
    there, unread = dict[str, SiteFile](), list[str]()
    for file in sorted(place.glob(f"*/{NAME}")):
        try:
            site = read_site(file)
            there[site.site.name] = site
        except (ConfigError, OSError) as error:  # which may be that of a missing one
            unread.append(str(error))
    if missing := [name for name in names if name not in there]:
        known = f"; there: {listed([*there], 5)}" if there else ""
        text = f"no folder below {place} is that of the site {missing[0]!r}, by the name in its"
        text += f" {NAME}{known}. Give --sites, the folder that holds a folder for each site"
        raise ConfigError("\n".join([text, *unread]))
    if faults := [f"site {name!r}: {why}" for name in names for why in unready(there[name])]:
        raise ConfigError("\n".join(faults))
    return {name: there[name].path.parent for name in names}


def job_of_config(config: Config, experiment: str, engine: str) -> dict[str, str]:
    """The job of a configuration with ``data.sites``, for FLARE or Flower."""
    config = stated_sizes(config)  # the problem that the folder will state
    given = {"tol": config.algorithm.tol, "max_rounds": config.algorithm.max_rounds}
    settings = {name: value for name, value in given.items() if value is not None}
    problem = experiment, config.problem(), config.method(), roles_of(config)
    patience, others = PATIENCE[engine.partition("-")[0]], config.report.compare_with
    masked = bool(config.engine.get("secure_sum"))
    return job_of(*problem, patience, others, masked, seed=config.seed, **settings)


def schema_of(config: Config) -> Schema:
    """How features are made, which is declared."""
    columns = config.data.columns or {}
    return declared_schema([*columns], columns, config.data.target, config.data.classes)


def roles_of(config: Config) -> Roles:
    """What the columns of the sites' tables are for."""
    data, schema = config.data, schema_of(config)
    assert data.target is not None
    named = (*data.groups, *(one.get("column") for one in config.constraint))
    columns = tuple(dict.fromkeys(name for name in named if name is not None))
    classes = None if data.classes is None else tuple(data.classes)
    more = data.positive, data.person, data.test, config.seed
    return Roles(data.target, schema.to_dict(), columns, classes, *more)


def run_at_sites(
    work: Work, carrier: Carrier, progress: Progress, render: Draws = None, today: Day = None
) -> Path:
    """Carry a run to its sites, follow it, and write its folder; returns that folder.

    Raises
    ------
    KeyboardInterrupt : Ctrl-C; the same work goes on later
    RuntimeError : the run failed, by a rule of a site's policy for example
    """
    config = work.config
    job = job_of_config(config, carrier.experiment, carrier.engine)
    if config.engine.get("secure_sum") and config.privacy is None:
        progress.say(read_with_sums(config.problem()))
    for line in about(config.data.classes, config.data.positive):
        progress.say(line)
    folder = _carried(work, carrier, job, progress)
    if (folder / ERROR).exists() and not (folder / DONE).exists():
        parts = (
            (work.folder / "engine").rglob(part) for part in ("*.checkpoint*", "*.bf", PROGRESS)
        )
        # no round began here: the folder goes as well; what a server elsewhere keeps is not known
        if carrier.sites and not work.resume and not any(map(any, parts)):
            (work.folder / CARRIER).unlink()
        raise RuntimeError(short((folder / ERROR).read_text("utf-8", errors="replace"), 2000))
    finished = decode((folder / RESULT).read_bytes())
    if not _is_result(finished, config):
        raise ValueError(f"{folder / RESULT} holds no result of this run: ask who runs the server")
    solutions = dict(_solutions(finished, work.folder))
    for name, solution in solutions.items():
        progress.done(name, solution.outcome.text)
    written = _written(work, finished, solutions, render, today)
    keep_signed(work.folder, written)
    return written


def keep_signed(work: Path, run: Path) -> None:
    """Put what the sites signed beside their run, since it must not travel with it."""
    for file in (work / "engine").rglob(SIGNED):
        write_whole(signed_beside(run), file.read_bytes(), OWN)


def _is_result(value: object, config: Config) -> TypeGuard[SiteRun]:
    """Whether a value is what the server of such a run leaves."""
    if not isinstance(value, SiteRun) or [*value.names] != _models(config):
        return False
    told, parts = value.introductions, [(each, np.ndarray) for each in value.solutions]
    parts += [(each, str) for each in (value.evaluation, *value.notes)]
    parts += [(each, Introduced) for each in told]
    whole = len(value.solutions) == len(value.names)
    if not whole or not all(isinstance(each, kind) for each, kind in parts):
        return False
    return {str(each.client) for each in told} == {*(config.data.sites or ())}


def _models(config: Config) -> list[str]:
    """The names of the models that a run trains, the main one first."""
    return [label(config.problem()), *map(called, config.report.compare_with)]


def signed_beside(run: Path) -> Path:
    """Where the signed answers of a run are kept, which its folder does not hold."""
    return run.with_name(f"{run.name}.{SIGNED}")


def _solutions(finished: SiteRun, work: Path) -> Iterator[tuple[str, Solution]]:
    for name, data in zip(finished.names, finished.solutions, strict=True):
        file = work / "collected.bf"
        write_whole(file, data.tobytes(), OWN)
        yield name, stated_in(file)
        file.unlink()


def _written(work: Work, finished: SiteRun, solutions: Models, render: Draws, today: Day) -> Path:
    """The folder of a run from what its sites and its server told."""
    # Raise where a site has left a model of which a folder cannot state what every folder does: its
    # value, or of a private run all of its rounds
    for solution in solutions.values():
        proof, stop = solution.certificate, solution.outcome.stop
        lacks = "value" if proof is not None and not math.isfinite(proof.value) else ""
        if solution.ledger is not None and stop in (Stop.REFUSED, Stop.IMPOSSIBLE):
            lacks = "last rounds"
        if lacks:
            raise RuntimeError(
                f"{short(solution.outcome.text, 1500)} No folder is written of a model without"
                f" its {lacks}: the model is in the server's folder, for"
                f" bonafed.load({SOLUTION!r})."
            )

    config, main = stated_sizes(work.config), next(iter(solutions.values()))
    data, evaluation = Metadata.of(finished.introductions), json.loads(finished.evaluation)
    forms.check_form(work.folder / RESULT, evaluation, forms.EVALUATION)
    limits = main.problem, data, main.certificate, main.duals, main.constraints
    result = of_models(config, solutions, data, evaluation) | of_constraints(*limits)
    labels = main.inputs.classes or ()
    poor = [no_better_than_a_constant(row, labels) for row in evaluation["measures"][:1]]
    told = in_place_of_others(evaluation["measures"])
    if main.ledger is not None:
        result |= stated_of(config, main.ledger, data.n_features)
    first = [note for row in evaluation["measures"][:1] for note in contrary(row)]
    notes = [*first, *main.notes, *finished.notes, *told, *filter(None, poor)]
    digests = {"train": dict(zip(data.names, data.digests(), strict=True))}
    result |= {"at_sites": True, "notes": notes, "versions": versions(), "data": digests}
    schema = replace(schema_of(config), classes=main.inputs.classes)  # the positive one last
    written = work.out, config, replace(main.inputs, schema=schema), solutions, {}, plain(result)
    return write_run(*written, partial=work.folder, render=render, today=today)


# ---------------------------------------------------------------------------------- the carriers


def _carried(work: Work, carrier: Carrier, job: Job, progress: Progress) -> Path:
    """Run a job over its engine to the end; returns the server's folder of it."""
    names, space = work.config.data.sites or [], (work.folder / "engine").absolute()
    for file in space.rglob(ERROR):  # of the last try
        file.unlink()
    engine = _flower if carrier.engine.startswith("flower") else _flare
    with engine(space, carrier, names, job, progress) as (folder, run, stop):
        failed: list[BaseException] = []

        def guarded() -> None:
            try:
                run()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        follow = _Follower(folder / PROGRESS, progress, _models(work.config))
        try:
            while thread.is_alive():
                thread.join(LOOK)
                follow.look()
        except KeyboardInterrupt:
            stop()
            thread.join(30.0)
            raise
        follow.look()
        if failed and not (folder / ERROR).exists():
            raise failed[0]
        return folder


class _Follower:
    """Shows the rounds that a server has written down since the last look; a line that is not a
    round of one of these models is passed over, for it may come from a server elsewhere.
    """

    def __init__(self, file: Path, progress: Progress, models: Collection[str]) -> None:
        self.file, self.progress, self.models, self.read = file, progress, models, 0
        self.watches: dict[str, Callable[[dict[str, Any], object], None]] = {}
        self.times: dict[str, float] = {}  # of the last round of each model

    def look(self) -> None:
        """Show what is new; a line that is being written waits for the next look."""
        if not self.file.is_file():
            return
        with self.file.open("rb") as lines:
            lines.seek(self.read)
            whole, end, _ = lines.read().rpartition(b"\n")
        self.read += len(whole) + len(end)
        for line in whole.splitlines():
            with suppress(ValueError, TypeError, LookupError, AttributeError, RecursionError):
                self._show(json.loads(line))

    def _show(self, row: dict[str, Any]) -> None:
        model, now = row.pop("model"), float(row.pop("time", 0.0))
        if model not in self.models or type(row["round"]) is not int:
            return
        # by the clock on the wall, since most of it is spent waiting
        row["seconds"] = max(now - self.times.get(model, 0.0), 0.0)
        self.times[model] = now
        if model not in self.watches:
            self.watches[model] = self.progress.watch(model)
        self.watches[model](row, None)


# the server's folder of a run, what runs it, and what stops it
Carried = Iterator[tuple[Path, Callable[[], object], Callable[[], object]]]


@contextmanager
def _flare(space: Path, by: Carrier, names: list[str], job: Job, progress: Progress) -> Carried:
    from bonafed.engines.flare import Supervisor, connect, export_job
    from bonafed.sites.trial.flare import Poc, simulate
    from bonafed.sites.trial.processes import end_all, started

    how: Any = {"pause": 1.0, "progress": progress.say}
    if by.engine == "flare":
        kit, results = Path(by.kit), space / "results"
        folder = export_job(space / "job", by.experiment, job, len(names), sites=names)
        login, ended = partial(connect, kit, kit.name), partial(_ended, results)
        supervisor = Supervisor(folder, login, ended, fetch=results, **how)
        yield results, supervisor.run, supervisor.abort
        return
    sites = site_folders(Path(by.sites), names)
    server = space / "server" / by.experiment
    end_all(space)  # what a process that was killed has left
    if by.engine == "flare-sim":
        yield server, lambda: simulate(job, sites, space), lambda: end_all(space)
        return
    progress.say("FLARE: starting a server and a process for each site, with TLS")
    folder = export_job(space / "job", "run", job, len(sites), sites=names)
    with started(Poc(space, sites)) as poc:
        supervisor = Supervisor(folder, poc.connect, partial(_ended, server), **how)
        yield server, supervisor.run, poc.stop


def _ended(folder: Path) -> bool:
    """Whether the server needs the job no more."""
    return any((folder / name).exists() for name in (DONE, ERROR))


@contextmanager
def _flower(space: Path, by: Carrier, names: list[str], job: Job, progress: Progress) -> Carried:
    from bonafed.engines.flower import export_app
    from bonafed.sites.trial.flower import Deployment
    from bonafed.sites.trial.processes import started

    sites = site_folders(Path(by.sites), names)
    bundle = export_app(space / "app", job, names)
    real = by.engine == "flower"
    approved = space / "approved"
    approved.write_text(f"{bundle.sha256}\n")
    known = approved if real else None
    made = Deployment(sites, space / "flower", simulated=not real, tls=real, approved=known)
    with started(made) as deployment:
        yield deployment.server / by.experiment, lambda: deployment.run(bundle.app), deployment.stop
