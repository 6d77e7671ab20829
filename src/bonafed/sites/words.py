"""Lines of the audit log in words that a data protection officer understands.

Whether a server reads this site's own numbers or only their sum over the sites is not a matter of
the algorithm only: an algorithm may use only the sum, and yet every site's numbers reach the
server, which adds them up. The words say which of the two holds.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from bonafed.engines.run_record import Content
from bonafed.runs.border import called
from bonafed.sites.audit import BEGUN, TORN, Entry
from bonafed.text import first_true, printable, short

WIDEST, NAMED = 120, 30  # characters of a line about a turn, and of a name in it
UNMASKED = "this version sends them to the server unmasked"
READ = {  # of an answer: how a field is combined, and whether it is masked
    ("sum", False): f"of which the algorithm uses only the sum over the sites; {UNMASKED}",
    ("sum", True): "added up with those of the other sites before anybody reads them",
    ("max", False): f"of which the algorithm uses only the largest over the sites; {UNMASKED}",
    ("max", True): "of which nobody reads more than the largest over the sites",
}
ASKED = {  # of a question
    "each": "for this site only",
    "all": "the same for all sites",
    "version": "the same for all sites that are sent this version",
}


def in_words(entry: Entry) -> str:
    """A line of the log as one sentence, such as "2026-11-23 10:04:11 UTC  received from server
    alliance: model (31 numbers), the same for all sites".
    """
    when = _when(entry)
    if not entry.way:
        known = {
            BEGUN: f"the log of site {entry.text} begins",
            TORN: f"after a crash: {entry.text}",
        }
        return printable(when + known.get(entry.event, f"note: {entry.text}"))
    way = "received from" if entry.way == "in" else "sent to"
    refused = "; ".join(text for _, text in entry.refused)
    none = "a refusal" if refused and entry.way == "out" else "no numbers"
    what = "; ".join(_groups(entry)) or none
    more = f". Refused by {refused}" if refused else ""
    place = "" if entry.seq is None else f", message {entry.seq}"
    place += f", experiment {entry.experiment}" if entry.experiment else ""
    details = f"{entry.kind or 'unreadable'}{place}, {entry.size:,} bytes"
    return printable(f"{when}{way} {_server(entry)}: {what} ({details}){more}")


def turns(entries: Iterable[Entry]) -> list[list[Entry]]:
    """The lines of a log in which every answer stands with its question."""
    made: list[list[Entry]] = []
    asked: dict[tuple[str, str, int | None], list[Entry]] = {}
    for entry in entries:
        key = entry.who, entry.experiment, entry.seq
        if entry.way == "out" and key in asked:
            asked.pop(key).append(entry)
        else:
            made.append([entry])
            if entry.way == "in":
                asked[key] = made[-1]
    return made


def turn_in_words(turn: Sequence[Entry]) -> str:
    """A question and its answer on one line of at most ``WIDEST`` characters, with totals."""
    asked, answer = turn[0], turn[-1] if turn[-1].way == "out" else None
    if not asked.way:
        return short(in_words(asked), WIDEST)
    said = f"{_when(asked)}{short(_server(asked), NAMED)}"
    if asked.way == "in":
        said += f" asked {short(asked.kind, NAMED) or 'what nobody can read'},"
    reasons = "; ".join(dict.fromkeys(text for entry in turn for _, text in entry.refused))
    ways = {
        f"refused: {reasons}": reasons,
        "no answer left": answer is None,
        f"got {short(turn[-1].kind, NAMED)}: {totals(turn[-1:])}": True,
    }
    line = printable(f"{said} {first_true(ways)}")
    return line if len(line) <= WIDEST else f"{line[: WIDEST - 1]}…"


def totals(answers: Sequence[Entry]) -> str:
    """How much answers hold, and how much of it only as part of a sum over the sites."""
    held = [(entry.masked, field) for entry in answers for field in entry.fields.values()]
    numbers, texts = (sum(getattr(f, key) for _, f in held) for key in ("numbers", "texts"))
    sums = [(masked, f.numbers) for masked, f in held if f.how in ("sum", "max")]
    used = sum(n for _, n in sums)
    masked = f", {sum(n for hidden, n in sums if hidden):,} masked" * any(m for m, _ in sums)
    only = f" ({used:,} only as sums{masked})" * (used > 0)
    size = sum(entry.size for entry in answers)
    return f"{_count(Content(numbers, texts, '')) or 'no numbers'}{only}, {size:,} bytes"


def _when(entry: Entry) -> str:
    return f"{entry.at[:19].replace('T', ' ')} UTC  "


def _server(entry: Entry) -> str:
    return "the server" if entry.who == "server" else f"server {entry.who}"


def _groups(entry: Entry) -> Iterator[str]:
    """The fields of a message, those together that are seen alike."""
    ordered = sorted(entry.fields.items(), key=lambda item: item[1].how)
    for how, fields in groupby(ordered, key=lambda item: item[1].how):
        way = "questions" if entry.way == "in" else "answers"
        named = ((called(entry.kind, name, way), _count(held)) for name, held in fields)
        names = ", ".join(f"{name} ({count})" for name, count in named)
        if entry.way == "in":
            yield f"{names}, {ASKED.get(how, how)}"
        else:
            seen = READ.get((how, entry.masked), "which the server reads as this site's numbers")
            yield f"{names}, {seen}"


def _count(held: Content) -> str:
    counts = ((held.numbers, "number"), (held.texts, "text"))
    return ", ".join(f"{n:,} {word}{'s' * (n != 1)}" for n, word in counts if n)
