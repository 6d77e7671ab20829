"""The command line: init, run, predict, report, verify, compare, data, site, engine.

Exit status: 0 well; 1 a verification that fails; 2 bad input, with one line that says what is
wrong; 3 a run whose constraints no model meets; 130 after Ctrl-C, 143 after SIGTERM and 129 after
SIGHUP, with the command that resumes the run; 141 where the reader of a document has gone. Nothing
heavy is imported until a command needs it.
"""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from bonafed import signals
from bonafed.report.output import check_out, deliver, guarded, note, printed
from bonafed.report.tables import printable, sentence
from bonafed.sites.commands import engine as engine_commands
from bonafed.sites.commands import out_option, site
from bonafed.text import system

if TYPE_CHECKING:
    from rich.console import Console

    from bonafed.config.config import Config
    from bonafed.reproduction.experiments import Experiment
    from bonafed.runs.checks import Check
    from bonafed.runs.sections.section import Run
    from bonafed.runs.work import Work

# what other tools call our commands
MEANT = {
    "run": "train fit learn solve start execute evaluate eval test score resume continue",
    "predict": "infer inference apply",
    "verify": "check validate audit certify",
    "init": "new create setup configure config",
    "data": "list ls dataset datasets",
    "reproduce": "paper papers experiment experiments replicate benchmark",
    "compare": "diff",
    "report": "show view open plot html summary",
    "site": "log policy key client",
    "engine": "export submit server flare flower",
}


class Commands(TyperGroup):
    """The commands; one that is called otherwise elsewhere is answered by the one that is meant."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        asked = args[0]
        if asked in self.commands or asked.startswith("-"):
            return super().resolve_command(ctx, args)
        meant = [name for name, words in MEANT.items() if asked.lower() in words.split()]
        meant += ["run"] * asked.endswith(".toml") + ["init"] * asked.endswith((".csv", ".parquet"))
        for name in [*meant, *get_close_matches(asked, self.commands, 1)]:
            does = (self.commands[name].help or "").splitlines()[0]
            raise ValueError(
                f"there is no command {asked!r}; did you mean `bonafed {name}`? {does}"
            )
        raise ValueError(f"there is no command {asked!r}; commands: {', '.join(self.commands)}")


app = typer.Typer(
    cls=Commands,
    name="bonafed",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Robust models over data that stays with its owners, with a certificate for every result.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(site, name="site")
app.add_typer(engine_commands, name="engine")

# bad input, in our words
EXPECTED = (ValueError, TypeError, OSError, RuntimeError, ImportError, ArithmeticError)
# statuses of a run that proves that no model meets its constraints, and of one that ended since a
# site gave an impossible answer
STATUS = {"infeasible": 3, "impossible": 4}
INTERRUPTED = 130  # what typer makes of a Ctrl-C
UNREAD = 141  # as of a process that the system ends at a closed pipe
Several = list[str] | None  # an option that may be given several times
RunPath = Annotated[Path, Argument(help="Folder of a run.")]
OneClient = Annotated[bool, Option("--one-client", help="All rows are those of one client.")]
Agnostic = Annotated[bool, Option("--agnostic", help="For the worst client, on a simulated clock.")]
Quick = Annotated[bool, Option("--quick", help="Coarse: relative gap 1e-2, 30 rounds at most.")]
Resumed = Annotated[Path | None, Option(help="Folder of an interrupted run to go on with.")]
Seed = Annotated[int | None, Option(min=0, help="Instead of the seed of the configuration.")]
Dry = Annotated[bool, Option("--dry-run", help="Only say what a private run would spend and tell.")]
Force = Annotated[bool, Option("--force", help="Overwrite the file.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Say no more than what was written.")]
ENGINES = "Run over sites: flare-sim, flare-poc, flare, flower-sim or flower."
DataSet = Annotated[str | None, Argument(help="A data set: loads it and says what it holds.")]
Unknown = Annotated[str, Option(help="Categories never trained on: error, or ignore (as zeros).")]


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"bonafed {version('bonafed')}")
        printed()
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    """Robust models over data that stays with its owners, with a certificate for every result."""


def main() -> None:
    """Entry point of the console script."""
    with guarded(), signals.listening():
        try:
            status = app(standalone_mode=False)
        except (typer.Abort, KeyboardInterrupt) as end:
            _interrupted(str(end))
        except BrokenPipeError:  # the reader of a document has gone
            sys.exit(UNREAD)
        except Exception as error:
            message = str(error) or type(error).__name__
            if hasattr(error, "exit_code"):  # wrong usage: an unknown option, a missing argument
                message = getattr(error, "format_message", error.__str__)()
                if len(sys.argv) == 1:  # the message is the help
                    typer.echo(message, err=True)
                    sys.exit(2)
                command, names = typer.main.get_command(app), ["bonafed"]
                for name in sys.argv[1:]:
                    if (command := getattr(command, "commands", {}).get(name)) is None:
                        break
                    names.append(name)
                message += f" (see {' '.join(names)} --help)"
            elif os.environ.get("BONAFED_TRACEBACK") or not isinstance(error, EXPECTED):
                raise
            if isinstance(error, OSError) and error.filename is not None:
                message = f"{str(error.filename)!r}: {system(error)}"
            for line in message.split("\n"):
                note(line)
            sys.exit(2)
        if status == INTERRUPTED:
            _interrupted()
        sys.exit(status if isinstance(status, int) else 0)


def _interrupted(kept: str = "") -> NoReturn:
    signals.Last.answered = True
    note(f"interrupted; {kept or 'nothing was kept'}", whole=True)
    sys.exit(signals.status())


# --------------------------------------------------------------------------------------- init, data


@app.command()
def init(
    path: Annotated[
        Several, Argument(help="CSV or Parquet files: one per client, or with a client column.")
    ] = None,
    dataset: Annotated[str | None, Option(help="A data set by name, see `bonafed data`.")] = None,
    client: Annotated[str | None, Option(help="Column with the client of each row.")] = None,
    alone: OneClient = False,
    target: Annotated[str | None, Option(help="Column to predict.")] = None,
    exclude: Annotated[Several, Option(help="Column to leave out; several times.")] = None,
    dates: Annotated[Several, Option(help="COLUMN=ORDER: ymd, dmy or mdy; several times.")] = None,
    missing: Annotated[Several, Option(help="What a missing cell holds; several times.")] = None,
    decimal: Annotated[str | None, Option(help='Sign before decimals, "." or ",".')] = None,
    encoding: Annotated[str | None, Option(help="utf-8, latin-1, cp1252 or utf-16.")] = None,
    classes: Annotated[
        bool | None, Option("--classes/--numbers", help="What a target of few whole numbers is.")
    ] = None,
    private: Annotated[bool, Option("--private", help="Within a budget of privacy.")] = False,
    agnostic: Agnostic = False,
    out: Annotated[Path, out_option("File to write.")] = Path("bonafed.toml"),
    force: Force = False,
) -> None:
    """Look at tables, propose how to read them, and write it as a commented configuration."""
    from bonafed.config.config import parse_config
    from bonafed.starters.look import Asked, orders
    from bonafed.starters.starter import starter

    if (not path) == (dataset is None):
        raise ValueError("init needs a path to tables or --dataset NAME, and not both")
    if private and agnostic:
        raise ValueError(
            "--private and --agnostic exclude each other: private rounds wait for all clients"
        )
    check_out(out, force)
    texts, days = missing or (), orders(dates or ())
    asked = Asked(client, target, exclude or (), days, decimal, encoding, classes, alone, texts)
    more = {"private": private, "agnostic": agnostic}
    text, shown = starter(out=out.absolute(), dataset=dataset, path=path, asked=asked, **more)
    parse_config(text, folder=out.absolute().parent)  # what is written must be valid
    deliver(text, out)
    for line in [*shown, f"wrote {out}; next: bonafed run {quote(str(out))}"]:
        print(printable(line))


@app.command()
def data(name: DataSet = None) -> None:
    """List the data sets that can be named, and where files are looked for."""
    from bonafed.data.load import SETTING, available, directory
    from bonafed.runs.splits import dataset

    if name is not None:
        deliver(dataset(name).text() + "\n")
        return
    lines = [("hospitals", "569", "30", "the same patients in six invented hospitals (here)")]
    for known in available():
        where = "here" if known.present else "needs files or the network"
        where = "not loaded: see its error" if known.absent else where
        rows, count = (f"{n:,}" if n else "?" for n in (known.rows, known.columns))
        lines.append((known.name, rows, count, f"{known.source} ({where})"))
    last = f"to use files of your own, name their folder by {SETTING}"
    if folder := directory():
        last = f"files are looked for in {folder}"
    shown = [f"{name:<24} {rows:>9} x {count:<5} {source}" for name, rows, count, source in lines]
    deliver("\n".join([*shown, last]) + "\n")


@app.command()
def reproduce(
    name: Annotated[str | None, Argument(help="Such as drfl/figure-2; see --list.")] = None,
    every: Annotated[bool, Option("--all", help="All of them, one after the other.")] = False,
    listed: Annotated[bool, Option("--list", help="Name all, with settings and times.")] = False,
    quick: Annotated[bool, Option("--quick", help="With settings for a first look.")] = False,
    trials: Annotated[int | None, Option(min=1, max=10**6, help="How many seeds.")] = None,
    seed: Annotated[int, Option(min=0, max=2**31, help="The first seed.")] = 0,
    out: Annotated[Path, out_option("Folder of the page, the figures and the numbers.")] = Path(),
) -> None:
    """Run a table or figure of one of the five papers, and compare it with what is printed."""
    from bonafed.report.terminal import Terminal
    from bonafed.reproduction import comparison, experiments

    if listed:
        if name or every or quick or trials or seed:
            raise ValueError("--list names all of them: leave out NAME and the other options.")
        deliver("\n".join(experiments.listed()) + "\n")
        return
    if every == (name is not None):
        raise ValueError("needed is one name of `bonafed reproduce --list`, or --all.")
    known, failed = experiments.experiments(), []
    chosen = [*known.values()] if name is None else [experiments.experiment(name)]
    comparison.check_out(out)
    Terminal(patient=True)  # the trials are saved and the pages written, though nobody reads
    try:
        for one in chosen:
            try:
                _reproduce(one, out, every, quick=quick, trials=trials, seed=seed)
            except (FileExistsError, RuntimeError) as error:  # of this one
                if not every:
                    raise
                note(str(error), whole=True)
                failed.append(one.name)
        page = comparison.save_page(out)
    except KeyboardInterrupt:
        raise typer.Abort(
            f"finished trials are in {out / 'reproduction'}; the same command goes on"
        ) from None
    print(f"wrote {page}")
    if failed:
        names = ", ".join(failed)
        raise RuntimeError(f"{len(failed)} of {len(chosen)} failed, as said above: {names}.")


def _reproduce(one: Experiment, out: Path, every: bool, **asked: Any) -> None:
    """Run what has its data here, and print its section."""
    from bonafed.reproduction import comparison, experiments

    lacking = experiments.missing(one, download=not every)
    for text in lacking.values():
        print(f"{one.name}: {text}")
    here = [each for each in one.data if each not in lacking]
    if one.data and not here:
        if not every:
            raise FileNotFoundError(f"{one.name} has no data to run on.")
        return
    result = experiments.reproduce(one, out, data=here, say=note, **asked)
    print(comparison.section(one, result))


# ---------------------------------------------------------------------------------------- run


@app.command()
def run(
    config: Annotated[Path | None, Argument(help="Configuration, see `bonafed init`.")] = None,
    out: Annotated[Path, out_option("Folder in which runs are kept.")] = Path("runs"),
    quick: Quick = False,
    resume: Resumed = None,
    seed: Seed = None,
    dry: Dry = False,
    engine: Annotated[str | None, Option(help=ENGINES)] = None,
    sites: Annotated[Path | None, Option(help="Local folder with a folder for each site.")] = None,
    kit: Annotated[Path | None, Option(help="FLARE folder of the user who submits jobs.")] = None,
    verbose: Annotated[
        bool,
        Option("--verbose", "-v", help="Print the whole report, and what each model ended with."),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Train, compare with baselines, certify, and write a report."""
    from bonafed.report.terminal import Terminal, say, show

    if verbose and quiet:
        raise ValueError("--verbose and --quiet exclude each other: give one of them")
    console, work, finished = Terminal(patient=True), None, None
    try:
        if dry:
            from bonafed.runs.pipeline import dry_run
            from bonafed.runs.privacy_plan import told_before

            settings = _checked(config, quick, seed)
            spent = dry_run(settings)
            for line in [*told_before(settings), *spent]:
                say(line, console)
            return
        with _work(config, out, quick, resume, seed, engine is not None) as work:
            if engine is not None:
                from bonafed.sites.run import Carrier

                Carrier.of(work.config, engine, sites, kit).keep(work.folder)
            elif sites is not None or kit is not None:
                name = "--sites" if kit is None else "--kit"
                raise ValueError(f"{name} is for a run over sites: give --engine as well")
            finished = _trained(work, console, verbose, quiet)
        show(finished, console, verbose, quiet)
    except BaseException as error:
        signals.Last.answered = True
        kept = "" if work is None or not work.folder.is_dir() else work.advice
        kept = kept if finished is None else f"the run is finished: {finished.path}"
        if isinstance(error, KeyboardInterrupt):
            raise typer.Abort(kept) from None
        if kept:
            note(kept, whole=True)
        raise
    if status := STATUS.get(finished.result["outcome"]["stop"]):
        raise typer.Exit(status)


def _work(
    config: Path | None, out: Path, quick: bool, resume: Path | None, seed: int | None, engine: bool
) -> Work:
    """The folder that the run works in, with its configuration."""
    from bonafed.runs.files import slug
    from bonafed.runs.work import Work, unfinished

    if resume is not None:
        if config is not None or quick or seed is not None or engine:
            raise ValueError(
                "--resume takes the interrupted run's configuration: leave out CONFIG and options"
            )
        return Work.go_on(resume)
    settings = _checked(config, quick, seed)
    for line in unfinished(out):
        note(line, whole=True)
    name = slug(settings.title or settings.data.name or (config or Path("run")).stem)
    return Work.begin(settings, out, name)


def _checked(config: Path | None, quick: bool, seed: int | None) -> Config:
    """The configuration, checked before anything is read or written."""
    from bonafed.config.config import read_config

    if config is None:
        raise ValueError("run needs a configuration: bonafed run CONFIG; `bonafed init` writes one")
    settings = read_config(config, seed=seed)
    settings = settings.quick() if quick else settings
    settings.check()
    return settings


def _trained(work: Work, console: Console, verbose: bool, quiet: bool) -> Run:
    """The finished run; Ctrl-C raises KeyboardInterrupt."""
    from bonafed.report.pages import render
    from bonafed.report.terminal import Display, say
    from bonafed.runs.folder import read_run
    from bonafed.runs.pipeline import begin, opening, run_study
    from bonafed.runs.privacy_plan import told

    stopping = work.config.algorithm.tol, work.config.algorithm.max_rounds
    shown = Display(console, verbose, quiet, stopping)
    drawn = render if work.config.report.html else None
    if work.config.data.sites is not None:
        from bonafed.sites.run import Carrier, keep_signed, run_at_sites

        if work.done is not None:
            keep_signed(work.folder, work.done)
        elif (carrier := Carrier.kept(work.folder)) is not None:
            with shown as show:
                return read_run(run_at_sites(work, carrier, show, drawn))
    if work.done is not None:
        return read_run(work.done)
    study = begin(work.config, work.folder, work.resume, shown)
    for line in [] if quiet else [*opening(study), *told(study.config, study.parts)]:
        say(line, console)
    with shown as show:
        return read_run(run_study(study, work.out, show, drawn))


# ------------------------------------------------------------------------------------ finished runs


@app.command()
def predict(
    model: Annotated[Path, Argument(help="Folder of a run, or its model.safetensors.")],
    table: Annotated[
        Path, Argument(help="CSV or Parquet file with the columns that the model was trained on.")
    ],
    out: Annotated[Path | None, out_option("CSV to write; default: standard output.")] = None,
    force: Force = False,
    unknown: Unknown = "error",
    quiet: Quiet = False,
) -> None:
    """Predict every row of a table."""
    from bonafed.runs.model_file import as_csv, caution, predict_table

    check_out(out, force)
    if warning := caution(model):
        note(f"warning: {warning}")
    columns = predict_table(model, table, unknown)
    deliver(as_csv(columns), out, errors="backslashreplace")
    if out is not None and not quiet:
        print(printable(f"wrote {len(next(iter(columns.values())))} predictions to {out}"))


@app.command()
def report(
    run: RunPath,
    format: Annotated[str, Option("--format", help="html, md or json.")] = "html",
    out: Annotated[
        Path | None, out_option("File to write; default: report.html, or standard output.")
    ] = None,
    force: Force = False,
    client: Annotated[
        str | None, Option(help="Only show this client's most exposed rows, to their owner.")
    ] = None,
) -> None:
    """Write the report of a finished run again, as HTML, Markdown or JSON."""
    from bonafed.report.pages import as_json, markdown, render
    from bonafed.runs.files import used
    from bonafed.runs.folder import read_run, replace_report

    check_out(out, force)
    finished = read_run(run)
    if client is not None:
        from bonafed.report.terminal import show_exposed

        show_exposed(finished, client)
        return
    if format not in ("html", "md", "json"):
        raise ValueError(f"--format must be html, md or json, got {format!r}")
    if format == "html" and out is None:
        for part in filter(None, (finished, finished.owner)):
            with used(part.path):
                drawn = render(part)
            replace_report(part, drawn)
        print(printable(str(finished.path / "report.html")))
        return
    texts = {"html": lambda run: render(run)["report.html"], "md": markdown, "json": as_json}
    with used(run):
        text = texts[format](finished)
    deliver(text, out, errors="bonafed.json" if format == "json" else "bonafed.plain")
    if out is not None:
        print(printable(str(out)))


@app.command()
def verify(
    run: RunPath,
    data: Annotated[str | None, Option(help="Where its data are now: a path or pattern.")] = None,
    without_data: Annotated[bool, Option("--without-data", help="Let absent data pass.")] = False,
    keys: Annotated[
        Path | None, Option(help="Of a run over sites: folder of the sites' public keys.")
    ] = None,
    signed: Annotated[
        Path | None, Option(help="What the sites signed, where that is not beside the run.")
    ] = None,
    quiet: Annotated[
        bool, Option("--quiet", "-q", help="Only say what fails, and whether it is verified.")
    ] = False,
) -> None:
    """Check a finished run: digests, certificate, tables, computed again from model and data, or
    from what sites signed; what is not checked is listed. Status 1 if it fails.
    """
    from bonafed.runs.checks import in_words, passed

    checks = _checks(run, data, keys, signed)
    for check in (c for c in checks if c.checkable and not (quiet and c.ok)):
        state = "not checked" if check.ok is None else "ok" if check.ok else "FAILED"
        print(f"{state:<12}{sentence(f'{check.name}: {check.text}')}")
        print(*(f"{'':<14}{sentence(line)}\n" for line in in_words(check.keys)), sep="", end="")
    for k, check in enumerate(c for c in checks if not (quiet or c.checkable)):
        print("" if k else "stated and not verified:\n", end="")
        print(f"  {sentence(f'{check.name}: {check.text}')}")
        print(*(f"      {sentence(line)}\n" for line in in_words(check.keys)), sep="", end="")
    if not passed(checks, without_data):
        failed = any(check.ok is False for check in checks)
        print("verification FAILED" if failed else "verification incomplete")
        raise typer.Exit(1)
    print("verified" if passed(checks) else "verified as far as possible without the data")


def _checks(run: Path, data: str | None, keys: Path | None, signed: Path | None) -> list[Check]:
    """The checks of a run, whose rows are in one place or at sites."""
    from bonafed.config.config import read_config
    from bonafed.report.pages import render
    from bonafed.runs.splits import prepare
    from bonafed.runs.verification import verify_run

    file = run / "config.toml"
    config = read_config(file) if file.is_file() else None
    if config is None or config.data.sites is None:
        if keys is not None:
            text = "--keys is for a run over sites, and this one has its rows in one place"
            raise ValueError(text)
        parts = prepare(read_config(file).reading(data)) if data is not None else None
        return verify_run(run, parts, render)
    if data is not None:
        raise ValueError("--data is for rows in one place, and those of this run are at sites")
    from bonafed.sites.run_checks import verify_at_sites

    return verify_at_sites(run, keys, signed, render)


@app.command()
def compare(
    runs: Annotated[list[Path], Argument(help="Folders of two or more runs.")],
    format: Annotated[str, Option("--format", help="table or md.")] = "table",
) -> None:
    """Finished runs side by side."""
    from bonafed.report import tables
    from bonafed.report.terminal import Terminal, drawn
    from bonafed.runs.folder import read_run

    if len(runs) < 2:
        raise ValueError("compare needs two runs or more")
    if format not in ("table", "md"):
        raise ValueError(f"--format must be table or md, got {format!r}")
    results = {path: read_run(path).result for path in runs}
    distinct = len({path.name for path in runs}) == len(runs)
    called = {path.name if distinct else str(path): result for path, result in results.items()}
    table = tables.compared(called)
    if len({str(result["data"].get("train")) for result in results.values()}) > 1:
        note("these runs were trained on different rows")
    if format == "md":
        deliver(f"{table.markdown()}\n")
    else:
        Terminal(quiet=True).print(drawn(table))
        printed()


if __name__ == "__main__":
    main()
