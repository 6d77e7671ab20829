"""Why an engine has ended a run, in words: all that engines put into an outcome is made here.

A certificate, of which `bonafed.solution.outcome` makes the words, comes later.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bonafed.rounds import Outcome, Stop
from bonafed.text import counted

MAX_TIME = "max_time = {:g} virtual seconds"
WORDS = {  # by what the engine met
    "max_rounds": "stopped at the engine's max_rounds = {}; {}",
    "max_time": f"stopped at the engine's {MAX_TIME}",
    "interrupt": "interrupted after round {}; {}",
    "log": "the log ends here, though neither engine nor algorithm had ended the run",
    "crashes": "stalled at {:g} virtual seconds: {} answers of clients that crashed ({}). Leave"
    " them out: federation.restrict(...). With First(n), AsyncBundle() goes on without clients"
    " that crash, and AsyncDRO() after their first answer, until it has to judge its model",
    "silence": "stalled: {}",
    "rule": "the site {} answers no further question of this run, by its rules: {}",
}


def ended(stop: Stop, by: str, *facts: object) -> Outcome:
    """The outcome of a run that an engine ends, by a key of ``WORDS``, with the facts in these."""
    return Outcome(stop, WORDS[by].format(*facts))


def advice(engine: Any) -> str:
    """How to go on with a run of an engine, or what would make that possible."""
    if engine.checkpoint is None:
        return f"nothing was saved: to resume a run give {type(engine).__name__}(checkpoint=PATH)"
    path = Path(engine.checkpoint)
    return f"the last finished round is in {path}: go on from it with resume=True"


# How a run ends in which a site answers what no rows answer.
#
#     nothing to give yet        the run raises ``ImpossibleAnswerError``, which names the site
#     asynchronous, enough left  the run goes on without the site, as without one that is silent
#     else                       the run ends with what it had before that answer
#
# A run of the last two kinds has ended as ``Stop.IMPOSSIBLE``, whatever its method says: the other
# answers of the site were possible, and need not be true.

ONE_OF = "one of the sites"  # that sent parts of a masked sum
UNUSED = "That answer is not used."  # after it, in the outcome of a run


class ImpossibleAnswerError(RuntimeError):
    """A site has answered what no rows answer; ``site``, ``what`` that is, and ``after`` how many
    finished rounds. Without a ``site`` it is one of those whose masked answers were added up.
    """

    def __init__(self, site: str, message: type, what: str) -> None:
        self.site, self.what, self.after = site, what, 0
        who = f"the site {site}" if site else ONE_OF
        self.sentence = f"{who} answered {message.__name__} with {what}."
        do = "find out at the site what is wrong, or run without it."
        if not site:
            do = "under masks nobody can say which site it was: find out at the sites."
        super().__init__(f"{self.sentence} Its answers are used no further: {do}")


def ended_by(lies: Sequence[ImpossibleAnswerError], rounds: int) -> Outcome:
    """The outcome of a run that ended after so many rounds, as it needs answers of these sites."""
    more = rounds - min(lie.after for lie in lies)
    alone = f"went on without {_them(lies)} for {counted(more, 'round')}, until it needed all"
    how = alone if more else f"ended after {counted(rounds, 'round')}"
    return Outcome(Stop.IMPOSSIBLE, f"{_told(lies)} The run {how}.")


def gone_on(lies: Sequence[ImpossibleAnswerError], outcome: Outcome) -> Outcome:
    """The outcome of a run that went on without these sites."""
    stop = outcome.stop if outcome.stop is Stop.INTERRUPTED else Stop.IMPOSSIBLE
    return Outcome(stop, f"{_told(lies)} The run went on without {_them(lies)}. {outcome.text}")


def _them(lies: Sequence[ImpossibleAnswerError]) -> str:
    return "the site" if len({lie.site for lie in lies}) == 1 else "these sites"


def _told(lies: Sequence[ImpossibleAnswerError]) -> str:
    return f"{' '.join(lie.sentence for lie in lies)} {UNUSED}"


def lies_in(text: str) -> tuple[str, str]:
    """The sentences of an outcome that say what sites answered, and the names of these sites; empty
    where it has none.
    """
    told, found, _ = text.partition(f" {UNUSED}")
    if not found:
        return "", ""
    names = re.findall(rf"(?:^|\. )(?:the site (.+?)|{ONE_OF}) answered \w+ with ", told)
    return told, ", ".join(name or "the sites" for name in names)
