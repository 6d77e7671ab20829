"""Lines of the audit log in words that a data protection officer understands.

Whether a server reads this site's own numbers or only their sum over the sites is not a matter of
the algorithm only: an algorithm may use only the sum, and yet every site's numbers reach the
server, which adds them up. The words say which of the two holds.
"""

from collections.abc import Iterator
from itertools import groupby

from bonafed.engines.run_record import Content
from bonafed.runs.border import called
from bonafed.sites.audit import BEGUN, TORN, Entry
from bonafed.text import printable

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
    when = f"{entry.at[:19].replace('T', ' ')} UTC  "
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
    who = "the server" if entry.who == "server" else f"server {entry.who}"
    return printable(f"{when}{way} {who}: {what} ({details}){more}")


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
