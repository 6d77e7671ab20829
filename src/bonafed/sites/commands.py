"""The commands of a data owner, `bonafed site policy`, `check`, `log` and `key`, and of who starts
a run over sites by hand, `bonafed engine export`.

Exit status: 0 well; 1 a log that was changed; 2 bad input, and rows that break the site's policy,
with one line for each fault.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from bonafed.text import printable, short

site = typer.Typer(help="What a data owner's site allows, holds and has answered.")
engine = typer.Typer(help="What an engine such as NVIDIA FLARE or Flower is given of a run.")
Folder = Annotated[Path, typer.Argument(help="Folder of the site, with its site.toml.")]
TABLE = "rows.csv"


def _named(out: Path | None) -> Path | None:
    """What is written, by its name, and no option that follows where the name was forgotten."""
    if out is not None and str(out).startswith("-"):
        raise typer.BadParameter(f"it needs a name, got {str(out)!r}, which reads as an option")
    return out


def out_option(help: str) -> Any:
    """The option of every command that says where it writes."""
    return typer.Option("--out", "-o", "--output", help=help, callback=_named)


@site.callback(invoke_without_command=True)
def common(context: typer.Context) -> None:
    """What a data owner's site allows, holds and has answered."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


@site.command()
def policy(
    folder: Folder = Path("."),
    name: Annotated[
        str | None, typer.Option(help="Name of the site, where its site.toml is written.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Its table, as seen from FOLDER, where that is written.")
    ] = None,
) -> None:
    """Say what the site allows; where there is no site.toml yet, write a commented one."""
    from bonafed.config.toml_file import ConfigError
    from bonafed.sites.site_file import read_site, site_path

    path = site_path(folder, new=True)
    if not path.exists():
        _write(path, name, data)
        return
    if name is not None or data is not None:
        raise ConfigError(f"{path} exists, and --name and --data are for a new one: edit it")
    known = read_site(path)
    _say(f"site {known.site.name}: {path}, rows in {known.rows}")
    for key, text in known.policy.words():
        _say(f"  {key}: {text}")
    _say(f"digest of this policy: {known.policy.digest()}")


@site.command()
def check(folder: Folder = Path(".")) -> None:
    """Hold the rows of the site against its own policy."""
    from bonafed.config.toml_file import ConfigError
    from bonafed.runs.border import for_site
    from bonafed.sites.policy import rows_in_words
    from bonafed.sites.rows import broken, holdings, largest_model, read_rows
    from bonafed.sites.site_file import read_site

    known = read_site(folder)
    table = read_rows(known)
    held = holdings(table, known.data.categorical)
    _say(f"site {known.site.name}: {rows_in_words(held.rows)} in {known.rows}")
    for column in held.columns:
        _say(f"  {column.words()}")
    _say(f"a model of all rows may have {largest_model(known, held.rows)} parameters at most")
    if faults := broken(known, table):
        raise ConfigError("\n".join(faults))
    _say("the rows keep the policy of the site")
    _say("who can learn what where the site takes part:")
    for sentence in for_site():
        _say(f"  {sentence}")


@site.command()
def log(
    folder: Annotated[
        Path, typer.Argument(help="Folder of the site, with its site.toml, or a log.")
    ] = Path("."),
    verify: Annotated[bool, typer.Option("--verify", help="Only say whether it is whole.")] = False,
    long: Annotated[bool, typer.Option("--long", help="Say what every message holds.")] = False,
) -> None:
    """Say what was asked and answered, a line for every turn, and whether the log was changed."""
    from bonafed.config.toml_file import ConfigError
    from bonafed.sites.audit import BEGUN, Fault, read_log
    from bonafed.sites.site_file import read_site
    from bonafed.sites.words import in_words, totals, turn_in_words, turns

    known = None if folder.is_file() and folder.suffix != ".toml" else read_site(folder)
    path = folder if known is None else known.log
    try:
        entries, faults = read_log(path)
    except FileNotFoundError as error:
        text = f"there is no log {str(path)!r} yet"
        raise ConfigError(f"{text}: the first message that the site receives begins it") from error
    if known is not None:
        begun = [entry.text for entry in entries[:1] if entry.event == BEGUN]
        for owner in (owner for owner in begun if owner != known.site.name):
            text = f"the log is that of site {owner!r}, not of {known.site.name!r}"
            faults.append(Fault(1, text))
    lines = map(in_words, entries) if long else map(turn_in_words, turns(entries))
    sent = [entry for entry in entries if entry.way == "out"]
    refused = sum(bool(entry.refused) for entry in sent)
    total = f"answers that left: {len(sent):,} ({refused:,} refusals); in all {totals(sent)}"
    for line in () if verify else (*lines, total):
        _say(line)
    for fault in faults:
        _say(f"line {fault.line}: {fault.text}")
    if any(not fault.crash for fault in faults):
        _say(f"the log {path} was CHANGED after it was written")
        raise typer.Exit(1)
    _say(f"{len(entries)} lines, and none was changed, removed, inserted or moved")


@site.command()
def key(folder: Folder = Path(".")) -> None:
    """Print the public key of the site; where it has no key yet, make one."""
    from bonafed.config.toml_file import ConfigError
    from bonafed.sites.signatures import make_key, public_line
    from bonafed.sites.site_file import read_site

    known = read_site(folder)
    if known.key is None:
        do = 'write key = "site.key" in its table [site], and the site signs what it sends'
        raise ConfigError(f"{known.path} names no key: {do}")
    if not known.key.exists():
        make_key(known.key)
        typer.echo(f"wrote the private key {printable(str(known.key))}: keep it here", err=True)
    _say(public_line(known.key, known.site.name))


@engine.callback(invoke_without_command=True)
def engines(context: typer.Context) -> None:
    """What an engine such as NVIDIA FLARE or Flower is given of a run."""
    common(context)


@engine.command()
def export(
    config: Annotated[Path, typer.Argument(help="Configuration with data.sites.")],
    to: Annotated[str, typer.Option("--to", help="flare or flower.")],
    out: Annotated[Path, out_option("Folder to write.")] = Path("export"),
    experiment: Annotated[
        str | None,
        typer.Option(help="Name by which all know the run; one that is given again goes on."),
    ] = None,
    tasks: Annotated[
        bool, typer.Option("--tasks", help="FLARE: as tasks, on which the sites' filters act.")
    ] = False,
) -> None:
    """Write the job of a configuration as files: no data, and no code."""
    from bonafed.config.config import ConfigError, read_config
    from bonafed.sites.run import Carrier, job_of_config

    if to not in ("flare", "flower") or (tasks and to != "flare"):
        given = f"--tasks with --to {to}" if to == "flower" else f"--to {to!r}"
        raise ConfigError(f"{given}: give --to flare (with or without --tasks) or --to flower")
    settings = read_config(config)
    settings.check()
    sites = settings.data.sites
    if sites is None:
        raise ConfigError(
            f"{config} reads rows itself, and a job is for sites that keep theirs: give"
            " data.sites, their names, instead of data.path"
        )
    name = experiment or Carrier.named(settings)
    job = job_of_config(settings, name, to)
    if to == "flare":
        from bonafed.engines.flare import export_job

        _say(f"wrote {export_job(out, name, job, len(sites), sites=sites, tasks=tasks)}")
        _say("next: submit this folder with FLARE's own console; docs/engines.md says what each")
        _say("site and the server set up once")
        return
    from bonafed.engines.flower import export_app

    bundle = export_app(out / name, job, sites)
    _say(f"wrote {bundle.app}, and what is approved: {bundle.file}")
    _say(f"SHA-256 {bundle.sha256}; the page for who decides: {bundle.sheet}")
    _say(f"next: flwr run {bundle.app} CONNECTION")


def _write(path: Path, name: str | None, data: str | None) -> None:
    """Write a commented site.toml with the defaults."""
    from bonafed.config.toml_file import validated
    from bonafed.data.readers import paths
    from bonafed.sites.site_file import SiteFile, first_site
    from bonafed.storage import make_folder, write_whole

    folder = path.absolute().parent
    if data is None:
        tables = paths(folder) if folder.is_dir() and any(folder.iterdir()) else []
        data = tables[0].name if len(tables) == 1 else TABLE
    plain = short(printable(folder.resolve().name).strip(), 64)
    text = first_site(plain or "site" if name is None else name, data)
    validated(SiteFile, text, str(path))  # what is written must be valid
    make_folder(folder)
    write_whole(path, text.encode(), 0o644)  # who may change it may change what is allowed
    _say(f"wrote {path}; next: read it, and bonafed site check {folder}")


def _say(text: str) -> None:
    typer.echo(printable(text))
