"""Who can learn or alter what in a run over sites, what stops them, and what remains.

The one table of these promises, of sites with the default policy: documents, the report of a run
and ``bonafed site check`` state its rows and promise no more.
"""

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

HEADS = ("Who", "Can learn", "Can alter", "What stops them", "What remains")


@cache
def fields(way: str) -> Mapping[str, str]:
    """What the fields of "answers" or "questions" hold; those of one class are "Class.field"."""
    text = Path(__file__).with_name("words.toml").read_text(encoding="utf-8")
    held: dict[str, str] = tomllib.loads(text)[way]
    return held


def called(kind: str, name: str, way: str = "answers") -> str:
    """What a field of a class of messages holds, in words."""
    known = fields(way)
    return known.get(f"{kind}.{name}") or known.get(name) or name.replace("_", " ")


class Promise(NamedTuple):
    """A row of the table.

    Attributes
    ----------
    who : takes part, or holds what is left
    learns, alters : what they can
    stopped : by which rules
    remains : what no rule stops
    at_site : whether an owner of rows has to know it before taking part
    """

    who: str
    learns: str
    alters: str
    stopped: str
    remains: str
    at_site: bool = True

    def cells(self) -> tuple[str, ...]:
        """What the table shows, without the marks of code."""
        return tuple(cell.replace("`", "") for cell in self[:5])


CURIOUS = Promise(
    "A server that follows the algorithm and keeps everything",
    "each site's sums at every model: mean losses, gradients, curvatures; counts and mean losses on"
    " held-out rows; how many rows a site has, and which groups",
    "the model and every word about it",
    "no answer hangs on fewer than `minimum_people` people, nor does its difference to any earlier"
    " one; no combination of answers is one person's row; no loss that jumps; figures of two models"
    " that few people tell apart are told once. Forgeries: `bonafed verify --keys`",
    "what such sums say of few rows; that no attack tells a row is not proven: for proof, a privacy"
    " budget",
)
MASKED = Promise(
    "The same server with `secure_sum`",
    "sums over all sites with one weighting; each site's mean loss at every model (with `Mean` at"
    " the last one), and its figures on held-out rows",
    "as above",
    "masks that cancel only where all sites were asked the same, one weighting a model, in the set"
    " of weights, no site with nearly all the weight; methods that tell more are refused",
    "how well a model fits a site, and differences of these numbers",
)
LAWLESS = Promise(
    "A server that follows no algorithm",
    "what the same rules let any question tell, and one bit for each question that is refused",
    "as above",
    "the same rules for every message of every method, which has the form of its class, over all"
    " runs, experiments, servers and restarts; models of limited length and number; models judged"
    " only after a certificate; one sentence for every reason why a site takes no part",
    "the attacks that we know read no row by these rules; others may",
)
PRIVATE = Promise(
    "Any server, with a privacy budget",
    "at most what the total (epsilon, delta) allows, and the declared numbers of rows",
    "as above",
    "noise that each site draws itself, charged in its own ledger before it answers; sites exempt"
    " private problems from the rules above only where their policy limits all budgets together",
    "what epsilon and delta allow, and whether a site takes part",
)
LIAR = Promise(
    "A site that lies",
    "what all sites are told: every model and every introduction",
    "the model and its value, as other rows would",
    "every answer is held against what rows can be (finite, losses not below the least, gradients,"
    " curvatures, convexity), and under masks every sum; the site is named (of a sum: one of the"
    " sites), and the run goes on without it or ends with what it had",
    "invented rows, slopes that are not asked about again, and under masks parts that leave a sum"
    " possible; what is proven if its other answers are false",
)
COLLUDING = Promise(
    "Sites that collude",
    "with the server, under `secure_sum`: the sum of the others, so that all but one read the last",
    "as one that lies",
    "`minimum_organizations`, `known_organizations`; sums over at least so many sites",
    "who the others are is for each owner to know",
)
READER = Promise(
    "A reader of the folder",
    "model, figures and messages' sizes, as the report states them; no answer of a site",
    "any number, word or model in it",
    "`bonafed verify --keys`: all is computed again from configuration and signed answers, or"
    " listed by key",
    "what is listed; figures of held-out rows that a server leaves out",
    False,
)
TABLE = (CURIOUS, MASKED, LAWLESS, PRIVATE, LIAR, COLLUDING, READER)


def of_run(secure_sum: bool, private: bool) -> list[Promise]:
    """The rows about a run."""
    servers = (PRIVATE,) if private else (MASKED if secure_sum else CURIOUS, LAWLESS)
    return [*servers, LIAR, *([COLLUDING] if secure_sum else []), READER]


def for_site() -> Iterator[str]:
    """The rows that concern a site, in sentences."""
    for row in TABLE:
        if row.at_site:
            who, learns, _, _, remains = row.cells()
            yield f"{who} can learn: {learns}. What remains: {remains}."


def markdown() -> str:
    """The table for documents."""
    rows = [HEADS, ("---",) * len(HEADS), *(row[:5] for row in TABLE)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
