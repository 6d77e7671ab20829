"""The messages by which a server and its sites agree to an experiment, before a run begins.

    Introduce -> Introduced     what the problem is; what the site's rows are, in numbers
    Agree     -> Agreed         what all sites told; that this one takes part

The problem is a statement as bytes (`bonafed.statements`), with a digest that a site can pin.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from bonafed.codec import Form
from bonafed.problem.metadata import Introduced
from bonafed.rounds import record


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
