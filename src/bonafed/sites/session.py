"""The server's side of an agreement with the sites: who they are, what is known of their rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from bonafed.algorithms.federated.bundle.masked_bundle import MaskedBundle
from bonafed.algorithms.federated.private.mechanism import Mechanism
from bonafed.certificates.certify import ROUNDS
from bonafed.codec import CodecError, Form
from bonafed.data.federation import Federation
from bonafed.engines.checkpoint_schema import Fields
from bonafed.engines.network import UNREADABLE, ImpossibleAnswerError, RefusedError, Session
from bonafed.engines.secure_summed import SecureSummed
from bonafed.engines.wire import Envelope, Failed, Link, Refused, Transport
from bonafed.names import NAMED, of_place
from bonafed.privacy.secure_sum.messages import SecureSum
from bonafed.problem.metadata import Introduced, Metadata, impossible
from bonafed.problem.plausible import introduced_as
from bonafed.problem.problem import Problem
from bonafed.rounds import Algorithm, record
from bonafed.sites.judging import Judging
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
    agreement, mark = Agree(ask, tuple(introduced)), digest(written)
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
    told = [answers[i] for i in range(len(link.sites))]
    for name, answer in zip(link.sites, told, strict=True):
        if isinstance(answer, Refused):
            raise RefusedError(name, answer.rule, answer.text)
        if isinstance(answer, Failed):
            raise ValueError(f"the site {name} cannot take part: {answer.text}")
        if not isinstance(answer, kind):
            raise TypeError(f"the site {name} answered with a {type(answer).__name__}")
    return told


# The messages by which a server and its sites agree to an experiment, before a run begins.
#
#     Introduce -> Introduced     what the problem is; what the site's rows are, in numbers
#     Agree     -> Agreed         what all sites told; that this one takes part
#
# The problem is a statement as bytes (`bonafed.statements`), with a digest that a site can pin.


@record
class Introduce:
    """Tell a site the problem, and ask for the facts of its rows."""

    problem: Annotated[NDArray[np.uint8], Form("bytes")]  # the statement
    software: str  # the version of bonafed at the server
    roles: str = ""  # what the columns are for, see `bonafed.sites.rows.Roles`


@record
class Agree:
    """Tell a site what all sites told of their rows, from which the problem becomes concrete."""

    ask: Introduce
    introductions: tuple[Introduced, ...]


@record
class Agreed:
    """The site takes part, and holds the rows that it told of."""

    problem: str  # the digest of the problem
    software: str  # the version of bonafed at the site
    policy: str  # the digest of the site's policy


# The algorithms as they travel between the server and its sites.

# beside the public ones: the rounds of certificates and of judging, the plan of a private method
# (which is public, and which a site computes again before it goes by it), and what carries any of
# them with secure sums, where the bundle is another
ALLOWED = (*ROUNDS, Judging, Mechanism, SecureSummed, SecureSum, MaskedBundle)

# A process that begins in the middle of a run, as every one of Flower's does, is asked with a
# message and finds a memory whose classes nothing else has imported.
for _place in NAMED["algorithm"].values():
    of_place(_place)


def method_bytes(algorithm: Algorithm) -> bytes:
    """The statement of an algorithm as the sites need it."""
    return statement_bytes(algorithm.for_clients(), allowed=ALLOWED)


def method_of(statement: bytes) -> Algorithm:
    """The algorithm of a statement; ``CodecError`` for one of anything else."""
    algorithm = stated(statement, object, allowed=ALLOWED)
    if not isinstance(algorithm, Algorithm):
        raise CodecError(f"the statement is of a {type(algorithm).__name__}, and of no algorithm")
    return algorithm
