"""The server's side of a run across sites, from its job to its result.

A job is a mapping of plain texts, which an engine carries as it is: the experiment, the statements
of problem and algorithm, what the columns of the sites' tables are for, and the settings of
``solve``. Everything that the server has to remember stands in one folder, so that the same job
goes on where it was cut short, whichever process runs it.

    solution.bf, erm.bf, ...   the model and its baselines, for ``bonafed.load``
    result.bft                 all of them, with how they do on the rows that the sites hold out
    signed.bft                 what the sites signed, where they sign
    progress.jsonl             a line for each round
    done, error                how it ended; an error is that of the last try
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed.algorithms.method import Method
from bonafed.codec import CodecError
from bonafed.engines.checkpoint import CheckpointError
from bonafed.engines.engine import ClientError
from bonafed.engines.job import DONE, ERROR, EXPERIMENT, PROGRESS, RESULT, SIGNED
from bonafed.engines.network import ImpossibleAnswerError, Network, RefusedError, StateLostError
from bonafed.engines.wire import Transport
from bonafed.problem.metadata import Introduced
from bonafed.problem.problem import Problem
from bonafed.rounds import encode, record
from bonafed.runs.baselines import BASELINES, called, label
from bonafed.runs.files import Record, to_json
from bonafed.sites.judging import judge_at_sites
from bonafed.sites.rows import Roles
from bonafed.sites.session import Agreement, agree
from bonafed.sites.signed_answers import HELD_OUT, MAIN, SignedAnswers, apart, together
from bonafed.solution.solution import Solution, load
from bonafed.solution.solve import solve
from bonafed.statements import stated, statement_bytes
from bonafed.storage import OWN, make_folder, write_whole

SOLUTION = "solution.bf"
NOT_JUDGED: Record = {"measures": [], "pairs": [], "verdict": []}
UNJUDGED = "No model was judged on held-out rows: "
# errors that the same job meets again
PERMANENT = (
    *(RefusedError, ImpossibleAnswerError, StateLostError, ClientError),
    *(ValueError, TypeError, ArithmeticError),
)
SETTINGS = ("tol", "atol", "max_rounds", "seed")  # of ``solve``, that a job may have


@record
class SiteRun:
    """What a run across sites has come to.

    Attributes
    ----------
    names : of the models, the main one first
    solutions : the files of their solutions
    introductions : what the sites told of their rows
    evaluation : as JSON, how the models do on the rows that the sites hold out
    notes : what a person should know beside those of the main solution
    """

    names: tuple[str, ...]
    solutions: tuple[NDArray[np.uint8], ...]
    introductions: tuple[Introduced, ...]
    evaluation: str
    notes: tuple[str, ...] = ()


def job_of(
    experiment: str,
    problem: Problem,
    algorithm: Method | None = None,
    roles: Roles | None = None,
    patience: float = 600.0,
    compare_with: Sequence[str] = (),
    secure_sum: bool = False,
    **settings: float,
) -> dict[str, str]:
    """The job that an engine carries.

    Parameters
    ----------
    experiment : its name, by which all sides know it; a job of the same name goes on
    algorithm : None for the default of the problem
    roles : what the columns of the sites' tables are for
    patience : seconds that the server waits for a site
    compare_with : baselines that are trained as well, by name, such as "erm"
    secure_sum : whether the server learns sums only, as of ``InProcess``; what the sites sign of a
        certificate is then masked, and not kept
    settings : of ``solve``: tol, atol, max_rounds, seed
    """
    if odd := sorted({*settings} - {*SETTINGS}):
        raise TypeError(f"a job has no setting {odd[0]!r}; it has {', '.join(SETTINGS)}.")
    known = [name for name in BASELINES if name != "wafl"]
    if strange := [name for name in compare_with if name not in known]:
        has = f"compare_with has {strange[0]!r}: across sites there are the baselines"
        raise ValueError(f"{has} {', '.join(known)}, and none that pools rows.")
    return {
        EXPERIMENT: experiment,
        "problem": _text(statement_bytes(problem)),
        "algorithm": "" if algorithm is None else _text(statement_bytes(algorithm)),
        "roles": "" if roles is None else roles.text(),
        "compare_with": " ".join(compare_with),
        "settings": json.dumps({"patience": patience, **settings}, sort_keys=True),
        **({"secure_sum": "yes"} if secure_sum else {}),
    }


def serve(transport: Transport, folder: Path, job: Mapping[str, str]) -> None:
    """Run a job to its end, or go on with it; what it has come to stands in the folder before
    ``done``.

    Raises
    ------
    TimeoutError : a site stayed away for longer than the job's patience; the same job goes on
    RefusedError : a site takes no part, by a rule of its policy
    ImpossibleAnswerError : a site answers what no rows answer
    """
    if (folder / DONE).exists():
        return
    make_folder(folder)
    with _noted(folder / ERROR):
        _Serving(transport, folder, job).run()
        write_whole(folder / DONE, load(folder / SOLUTION).outcome.text.encode())


class _Serving:
    """A job that is being served."""

    def __init__(self, transport: Transport, folder: Path, job: Mapping[str, str]) -> None:
        self.transport, self.folder = transport, folder
        self.experiment, self.roles = job[EXPERIMENT], job["roles"]
        self.settings = json.loads(job["settings"])
        self.patience = self.settings.pop("patience")
        self.problem = stated(_bytes(job["problem"]), Problem)
        algorithm = job["algorithm"]
        self.algorithm = stated(_bytes(algorithm), Method) if algorithm else None
        self.baselines = job.get("compare_with", "").split()
        self.secure_sum = bool(job.get("secure_sum"))

    def run(self) -> None:
        """Train the models, judge them, and write the result."""
        signed = SignedAnswers()
        main = self._agreed("", self.problem, signed)
        name, data = label(self.problem), main.metadata
        solutions = {name: self._solved(name, main, SOLUTION, signed)}
        for baseline in self.baselines:
            # a baseline keeps the clients of a federation, of which it needs no row
            problem, _ = BASELINES[baseline](self.problem, data)  # type: ignore[arg-type]
            of_baseline = SignedAnswers()
            agreement = self._agreed(f"-{baseline}", problem, of_baseline)
            solved = self._solved(called(baseline), agreement, f"{baseline}.bf", of_baseline)
            solutions[called(baseline)] = solved
        evaluation, notes = self._judged(main, solutions, signed)
        files = [SOLUTION, *(f"{baseline}.bf" for baseline in self.baselines)]
        kept = tuple(np.frombuffer((self.folder / f).read_bytes(), np.uint8) for f in files)
        told = data.introductions, to_json(evaluation), notes
        write_whole(self.folder / RESULT, encode(SiteRun(tuple(solutions), kept, *told)))

    def _judged(
        self, main: Agreement, solutions: Mapping[str, Solution], signed: SignedAnswers
    ) -> tuple[Record, tuple[str, ...]]:
        """How the models do on the rows that the sites hold out, or why nobody knows."""
        if not self.roles or not Roles.of(self.roles).test or self.problem.privacy is not None:
            return {**NOT_JUDGED}, ()
        models = {name: solution.w for name, solution in solutions.items()}
        try:
            engine = Network(main.session, stalls=False, secure_sum=self.secure_sum)
            people = Roles.of(self.roles).person is not None
            given = main.problem, main.metadata, models, engine, people
            evaluation = judge_at_sites(*given)
        # the models stand all the same
        except (RefusedError, ImpossibleAnswerError, ClientError, ValueError) as error:
            return {**NOT_JUDGED}, (f"{UNJUDGED}{error}",)
        self._keep(HELD_OUT, signed)
        return evaluation, ()

    def _keep(self, name: str, signed: SignedAnswers) -> None:
        """Put what the sites signed of one model, or of all on held-out rows, beside the rest; of
        private and of masked runs there is only what they told and agreed to.
        """
        if self.secure_sum:
            signed.end()
        if signed.signers and (signed.runs or name == MAIN):
            file, known = self.folder / SIGNED, dict[str, bytes]()
            with suppress(FileNotFoundError, CodecError):  # damaged where the power was lost
                known = apart(file.read_bytes())
            write_whole(file, together(known | {name: signed.file()}), OWN)
        signed.end()

    def _agreed(self, ending: str, problem: Problem, signed: SignedAnswers) -> Agreement:
        how: Any = {"roles": self.roles, "patience": self.patience, "keep": signed.keep}
        return agree(self.transport, self.experiment + ending, problem, **how)

    def _solved(self, name: str, of: Agreement, file: str, signed: SignedAnswers) -> Solution:
        """The solution, or that of an earlier process of this job; what the sites signed of its
        certificate is kept first.
        """
        if (self.folder / file).exists():
            return load(self.folder / file)
        state = self.folder / f"{Path(file).stem}.checkpoint"
        carried = {"checkpoint": state, "secure_sum": self.secure_sum}

        def see(row: dict[str, Any], state: object) -> None:
            """Write a line for every round of the model."""
            with (self.folder / PROGRESS).open("a", encoding="utf-8") as lines:
                lines.write(to_json({"model": name, **row}) + "\n")

        engine = Network(of.session, stalls=False, **carried)
        algorithm = self.algorithm if file == SOLUTION else None
        how: Any = {"algorithm": algorithm, "engine": engine, "watch": [see], **self.settings}
        solved = partial(solve, of.problem, of.metadata, **how)
        try:
            solution = solved(resume=state.exists())
        except CheckpointError:  # the machine lost its power while the file was written
            if of.problem.privacy is not None:
                raise
            solution = solved()
        self._keep(MAIN if file == SOLUTION else Path(file).stem, signed)
        solution.save(self.folder / file)
        return solution


@contextmanager
def _noted(path: Path) -> Iterator[None]:
    """Write down why a job failed, unless the same job may go on by itself."""
    path.unlink(missing_ok=True)
    try:
        yield
    except PERMANENT as error:
        write_whole(path, (str(error) or type(error).__name__).encode())
        raise


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
