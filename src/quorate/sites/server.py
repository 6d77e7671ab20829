"""The server's side of a run across sites, from its job to its result.

A job is a mapping of plain texts, which an engine carries as it is: the experiment, the statements
of problem and algorithm, what the columns of the sites' tables are for, and the settings of
``solve``. Everything that the server has to remember stands in one folder, so that the same job
goes on where it was cut short, whichever process runs it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path

from quorate.algorithms.method import Method
from quorate.engines.job import DONE, EXPERIMENT
from quorate.engines.network import Network
from quorate.engines.transport import Transport
from quorate.problem.problem import Problem
from quorate.sites.rows import Roles
from quorate.sites.session import agree
from quorate.sites.signed_answers import SignedAnswers
from quorate.solution.solve import solve
from quorate.statements import stated, statement_bytes
from quorate.storage import OWN, make_folder, write_whole

STATE, SOLUTION, SIGNED = "server.checkpoint", "solution.qr", "signed.qrt"
SETTINGS = ("tol", "atol", "max_rounds", "seed")  # of ``solve``, that a job may have


def job_of(
    experiment: str,
    problem: Problem,
    algorithm: Method | None = None,
    roles: Roles | None = None,
    patience: float = 600.0,
    **settings: float,
) -> dict[str, str]:
    """The job that an engine carries.

    Parameters
    ----------
    experiment : its name, by which all sides know it; a job of the same name goes on
    algorithm : None for the default of the problem
    roles : what the columns of the sites' tables are for
    patience : seconds that the server waits for a site
    settings : of ``solve``: tol, atol, max_rounds, seed
    """
    if odd := sorted({*settings} - {*SETTINGS}):
        raise TypeError(f"a job has no setting {odd[0]!r}; it has {', '.join(SETTINGS)}.")
    return {
        EXPERIMENT: experiment,
        "problem": _text(statement_bytes(problem)),
        "algorithm": "" if algorithm is None else _text(statement_bytes(algorithm)),
        "roles": "" if roles is None else roles.text(),
        "settings": json.dumps({"patience": patience, **settings}, sort_keys=True),
    }


def serve(transport: Transport, folder: Path, job: Mapping[str, str]) -> None:
    """Run a job to its end, or go on with it; the solution stands in the folder before ``done``.

    Raises
    ------
    TimeoutError : a site stayed away for longer than the job's patience; the same job goes on
    RefusedError : a site takes no part, by a rule of its policy
    """
    if (folder / DONE).exists():
        return
    make_folder(folder)
    settings = json.loads(job["settings"])
    patience = settings.pop("patience")
    problem = stated(_bytes(job["problem"]), Problem)
    algorithm = stated(_bytes(job["algorithm"]), Method) if job["algorithm"] else None
    signed = SignedAnswers()
    agreement = agree(
        transport,
        job[EXPERIMENT],
        problem,
        roles=job["roles"],
        patience=patience,
        keep=signed.keep,
    )
    state = folder / STATE
    solution = solve(
        agreement.problem,
        agreement.metadata,
        algorithm=algorithm,
        engine=Network(agreement.session, checkpoint=state),
        resume=state.exists(),
        **settings,
    )
    solution.save(folder / SOLUTION)
    if signed.signers:
        write_whole(folder / SIGNED, signed.file(), OWN)
    write_whole(folder / DONE, solution.outcome.text.encode())


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
