"""A finished run on a terminal: what a person reads first. Names are other people's input and no markup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quorate.report import clock, constrained, tables, words
from quorate.report.tables import Table, printable

if TYPE_CHECKING:
    from rich.console import Console

    from quorate.runs import Run

MOST = 20  # clients that are printed
WIDE = 110  # columns of a terminal that shows each client's bytes, too


def say(text: str, console: Console) -> None:
    """A paragraph; unwrapped where nobody reads along."""
    console.print(printable(text), markup=False, highlight=False, soft_wrap=not console.is_terminal)


def drawn(table: Table) -> Any:
    """A table for the console."""
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(title=table.title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for k, (name, right) in enumerate(zip(table.columns, table.numeric, strict=True)):
        widest = max((len(row[k]) for row in table.rows), default=0)  # headings wrap, numbers do not
        shown.add_column(Text(name), justify="right" if right else "left", min_width=widest if right else None)
    for row in table.rows:
        shown.add_row(*map(Text, row))  # Text: names are no markup
    return shown


def show(run: Run, console: Console) -> None:
    """Whether it helped, the clients, the certificate, where the report is."""
    if run.private:
        from quorate.report.private import show as show_private

        show_private(run, console)
        return
    result = run.result
    asked = constrained.asked(result)
    brief = constrained.BRIEF if asked else tables.BRIEF
    heads = brief if console.width < WIDE else (*brief, "bytes_up", "bytes_down")
    found = [*tables.measures(result), *tables.fairness(result)]
    if asked:
        judged = [table for table in constrained.groups(result) if table.title.endswith("held-out rows")]
        found += [constrained.constraints(result, MOST, True), *constrained.kept(result, MOST, True)[:1], *judged]
    if clock.asked(result):
        found += [*clock.spread(result)[:1], *([clock.pace(result)] if "reached" in result else [])]
    found += [tables.clients(result, heads, MOST)]
    for each in (*found, tables.certificate(result)):
        console.print()
        console.print(drawn(each))
    console.print()
    if (n := len(tables.people(result))) > MOST:
        say(f"(of {n} clients, the {MOST} with the largest worst case; the report has all)", console)
    for said in words.summary(result):
        say(said, console)
    if clock.asked(result):
        for said in clock.words(result, run.config.engine):
            say(said, console)
    if asked:
        console.print("\nPrices", style="bold")
        for said in constrained.priced(result):
            say(said, console)
    if run.traded is not None:
        console.print()
        console.print(drawn(constrained.levels(run.traded.table, True)))
    if run.tried is not None:
        console.print("\nRadii tried", style="bold")
        for said in words.choice(run.tried.table, result):
            say(said, console)
    if verdict := words.answer(result):
        console.print(f"\n{words.question(result)}", style="bold")
        for said in _first_of_each_set(verdict, result["evaluation"]["pairs"]):
            say(said, console)
    for note in result["notes"]:
        say(f"warning: {note}", console)
    report = run.path / "report.html"
    shown = report if report.is_file() else run.path
    console.print(f"report: {shown}", markup=False, highlight=False, soft_wrap=True)


def _first_of_each_set(verdict: list[str], pairs: list[dict[str, Any]]) -> list[str]:
    """The answer in short, and for each set the comparison with the first baseline; the report has all."""
    return [verdict[0], *(v for v, pair in zip(verdict[1:], pairs, strict=True) if pair["other"] == pairs[0]["other"])]


def show_exposed(run: Run, client: str) -> None:
    """The rows of one client that are most exposed, or weigh most; they are read here, at their owner."""
    from rich.console import Console

    from quorate.notes import exposed_rows
    from quorate.parts import prepare
    from quorate.rank_trial import heaviest
    from quorate.trial import losses_of

    config, parts = run.config, prepare(run.config)
    parts.owners.position(client)  # raises where there is none
    if config.risk.by_rank:
        problem, own = config.problem(), parts.owners
        losses = dict(zip(own.clients, losses_of(problem, run.w, own), strict=True))
        table = tables.heaviest(client, heaviest(problem.over_samples, losses, client, config.problem_.pooled))
    else:
        name = "pooled" if config.problem_.pooled else client
        rows = exposed_rows(config.settled(parts.train).problem(), parts.train, run.w, name)
        table = tables.exposed(name, rows)
    Console().print(drawn(table))
