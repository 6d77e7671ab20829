"""The messages between the server and a site, beside those of the algorithms.

Each is the body of an `Envelope`, by which the two ends know what a reply belongs to. A run of an
algorithm at a site begins with ``StartRun``. Then every ``Step`` has the number of its turn, so
that one that is sent twice is carried out once: a site answers the last turn again with the same
bytes, carries out the next one, and answers ``Lost`` where its own count is another.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from bonafed.codec import Form
from bonafed.rounds import record

UNREAD = 0  # the number of an answer to a question that the site did not read
# rules by which a site ends a run that it took part in: what is proved so far stands
ENDING = ("minimum_people", "maximum_model_length", "maximum_models")
DAMAGED = "message"  # the rule that refuses bytes which are no question, and may be sent again


@record
class Envelope:
    """A body with what it belongs to, from the server to a site or back.

    An answer that its site signs also has ``asked``, the digest of what it is the answer to, and
    the signature over the bytes of the envelope without a signature (`bonafed.sites.signatures`).
    """

    experiment: str
    site: str
    number: int  # of the question; an answer has that of its question
    body: Any
    asked: str = ""
    signature: NDArray[np.uint8] | None = None


@record
class StartRun:
    """Begin a run of an algorithm, or say how far it is where the site knows it already.

    ``turn`` is where the server stands, which a site without memory can go on from.
    """

    run: str
    method: Annotated[NDArray[np.uint8], Form("bytes")]  # the statement of the algorithm
    seed: Annotated[int, Form(least=-(2**63))]
    turn: int


@record
class RunStarted:
    """How many messages of the run the site has answered."""

    run: str
    turn: int


@record
class Step:
    """A message of an algorithm, the site's own rows of it."""

    run: str
    turn: int  # from 0
    message: Any


@record
class Stepped:
    """The upload of a site, and its turn."""

    run: str
    turn: int
    upload: Any


@record
class Unknown:
    """The site does not know the experiment or the run, because its disk is another one."""

    what: str


@record
class Lost:
    """The site has answered ``turn`` messages of the run, and not as many as the server says."""

    run: str
    turn: int


@record
class Refused:
    """The site does not do what it is asked, by the named rule of its policy."""

    rule: str
    text: str


@record
class Failed:
    """The site's step raised an error."""

    text: str
