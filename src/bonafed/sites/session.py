"""The server's side of an agreement with the sites: who they are, what is known of their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from bonafed.data.federation import Federation
from bonafed.engines.checkpoint_schema import Fields
from bonafed.engines.link import Link
from bonafed.engines.network import UNREADABLE, ImpossibleAnswerError, RefusedError, Session
from bonafed.engines.transport import Transport
from bonafed.engines.wire import Envelope, Failed, Refused
from bonafed.problem.metadata import Introduced, Metadata, impossible
from bonafed.problem.plausible import introduced_as
from bonafed.problem.problem import Problem
from bonafed.sites.messages import Agree, Agreed, Introduce
from bonafed.sites.methods import method_bytes
from bonafed.statements import digest, stated, statement_bytes
from bonafed.text import shown

PLAIN = str, int, float, type(None)  # what classes and values of columns are


@dataclass(frozen=True)
class Agreement:
    """An experiment that all sites take part in.

    Attributes
    ----------
    problem : as all sites read it
    session : with which an engine runs algorithms there
    metadata : what the sites told of their rows
    digest : of the problem, as every site prints it
    """

    problem: Problem
    session: Session
    metadata: Metadata
    digest: str


def agree(
    transport: Transport,
    experiment: str,
    problem: Problem,
    *,
    roles: str = "",
    server: Federation | None = None,
    patience: float = 600.0,
    keep: Callable[[Envelope, bytes], None] | None = None,
) -> Agreement:
    """Tell all sites the problem, ask each what its rows are, and tell each what all are.

    ``roles`` says what the columns of their tables are for (`bonafed.sites.rows`). ``server`` is
    what the server itself holds, for constraints on its own data. ``keep`` is handed every question
    that a site has answered, and the bytes of the answer, such as `SignedAnswers.keep`.

    Raises
    ------
    RefusedError : a site does not take part, by a rule of its policy
    ImpossibleAnswerError : a site introduces itself with what no rows have
    SilentError : a site does not answer for ``patience`` seconds
    ValueError : sites whose rows do not fit together, or the problem
    """
    written = statement_bytes(problem)
    problem = stated(written, Problem)  # as the sites read it
    sites = transport.ids()
    link = Link(transport, experiment, sites, patience, keep)
    ask = Introduce(np.frombuffer(written, np.uint8), version("bonafed"), roles)
    introduced = _all(link, [ask], Introduced)
    if odd := [n for n, each in zip(sites, introduced, strict=True) if str(each.client) != n]:
        raise ValueError(f"the site {odd[0]} introduces itself by another name.")
    for name, each in zip(sites, introduced, strict=True):
        if words := _impossible(each):
            raise ImpossibleAnswerError(name, Introduce, words)
    metadata = Metadata.of(introduced, server)
    _, known = problem.at(metadata)  # before any site is bound to it
    agreement = Agree(ask, tuple(introduced))
    mark = digest(written)
    for name, told in zip(sites, _all(link, [agreement], Agreed), strict=True):
        if told.problem != mark:
            raise ValueError(f"the site {name} agrees to another problem, {shown(told.problem)}.")
    session = Session(link, lambda site: [agreement], method_bytes, introduced_as(known))
    return Agreement(problem, session, metadata, mark)


def _impossible(told: Introduced) -> str:
    """What of an introduction no rows have, or no site says, in words that follow "answered with";
    "" for nothing.
    """
    try:
        if words := impossible(told):
            return words
        Fields(1, len(told.features)).check(told, Introduced, "it")
        cells = [cell for each in told.cells.values() for cell in each]
        parts = [told.labels, (told.positive,), *told.values.values(), *cells]
    except (*UNREADABLE, ArithmeticError) as error:
        return f"facts of another form ({shown(str(error))})"
    plain = all(isinstance(value, PLAIN) for part in parts for value in part)
    return "" if plain else "classes or values that are neither numbers nor texts"


def _all(link: Link, bodies: Sequence[Any], kind: type) -> list[Any]:
    """What every site answers to these bodies; raises where one answers anything else."""
    answers = link.ask(dict.fromkeys(range(len(link.sites)), bodies))
    for i, name in enumerate(link.sites):
        answer = answers[i]
        if isinstance(answer, Refused):
            raise RefusedError(name, answer.rule, answer.text)
        if isinstance(answer, Failed):
            raise ValueError(f"the site {name} cannot take part: {answer.text}")
        if not isinstance(answer, kind):
            raise TypeError(f"the site {name} answered with a {type(answer).__name__}")
    return [answers[i] for i in range(len(link.sites))]
