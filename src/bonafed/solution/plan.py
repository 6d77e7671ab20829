"""What a solve is going to do, settled before it begins: the problem, the method, the messages.

    plan(problem, data) -> Plan     run(plan, engine) -> Finished     conclude(finished) -> Solution

The data are a `Federation` whose rows are here, or the `Metadata` of one whose rows are with their
owners; the three steps are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from bonafed.algorithms.federated.bundle.masked_bundle import MaskedBundle
from bonafed.algorithms.method import Method
from bonafed.arrays import Array
from bonafed.certificates.duality import Certification
from bonafed.data.federation import Federation
from bonafed.engines.engine import Engine
from bonafed.engines.inprocess import InProcess
from bonafed.problem.metadata import Metadata
from bonafed.problem.own_functions import check_own
from bonafed.problem.problem import Problem
from bonafed.problem.risks.weight_sets import Mean, Sum
from bonafed.rounds import visibility
from bonafed.solution.configure import configure
from bonafed.solution.default import default_algorithm
from bonafed.solution.default_radius import settled

SEES = {
    "sum": "the sum over the clients",
    "max": "the largest over the clients",
    "each": "every client's own",
    "all": "the same for all",
    "version": "the same for all",
}


@dataclass(frozen=True)
class Plan:
    """What a solve is going to do.

    Attributes
    ----------
    problem : as stated, with its radius settled
    data : as given: rows, or what is known of them
    concrete, coded : the problem with arrays for this data, and the data as it reads them
    method : the algorithm with the concrete problem
    engine : that runs it
    """

    problem: Problem
    data: Federation | Metadata
    concrete: Problem
    coded: Federation | Metadata
    method: Method
    engine: Engine

    def messages(self) -> list[dict[str, str]]:
        """One row for every field that passes between server and clients: message, direction,
        field, and who sees it.
        """
        ways = (("down", [*self.method.on_client]), ("up", [*self.method.on_server]))
        return [
            {"message": kind.__name__, "direction": way, "field": name, "sees": SEES[how]}
            for way, kinds in ways
            for kind in kinds
            for name, how in visibility(kind).items()
        ]


def read_with_sums(problem: Problem) -> str:
    """What a server reads of every client in a run with secure sums, beside sums over them."""
    each = {**MaskedBundle.readable, **Certification.readable}
    if isinstance(problem.over_clients, Mean | Sum):
        each = Certification.readable
    return (
        "with secure sums the server reads of every client, beside sums over all, "
        + "; ".join(each.values())
        + "; and its figures on held-out rows"
    )


def plan(
    problem: Problem,
    data: Federation | Metadata,
    *,
    algorithm: Method | None = None,
    engine: Engine | None = None,
    tol: float | None = None,
    atol: float | None = None,
    max_rounds: int | None = None,
    start: Array | None = None,
) -> Plan:
    """Settle everything that a solve needs, or raise where it cannot be done.

    Parameters
    ----------
    data : the rows by client, or the `Metadata` of rows that are elsewhere; the other parameters
        are those of `bonafed.solve`
    """
    if not isinstance(problem, Problem) or not isinstance(data, Federation | Metadata):
        raise TypeError(
            f"solve(problem, federation) got {type(problem).__name__} and {type(data).__name__}."
        )
    engine = engine or InProcess()
    problem = settled(problem, data)
    concrete, coded = problem.at(data)
    if isinstance(coded, Federation):  # no functions travel to sites
        check_own(concrete, coded)
    chosen = algorithm or default_algorithm(concrete, coded, engine)
    method = configure(chosen, concrete, coded, tol, atol, max_rounds, start, engine)
    return Plan(problem, data, concrete, coded, method, engine)
