"""A site's side of an experiment: its rows, what it has agreed to, and the runs it takes part in.

Everything that the server sends is answered, with bytes: an upload, or why there is none. Nothing
is computed before the site's policy has allowed it, and nothing leaves before it stands in the
site's log. What the site has agreed to, and where each run is, stands on its own disk, so that a
process that dies is replaced by another one that goes on.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.algorithms.alternatives import check_requirements
from quorate.algorithms.method import Method
from quorate.arrays import Block, stream
from quorate.codec import FIELDS, home
from quorate.engines.software import package_digest
from quorate.engines.wire import (
    Envelope,
    Failed,
    Lost,
    Refused,
    RunStarted,
    StartRun,
    Step,
    Stepped,
    Unknown,
)
from quorate.names import short_name
from quorate.problem.metadata import Introduced, Metadata, introduced
from quorate.problem.problem import Problem, with_columns
from quorate.rounds import Algorithm, CodecError, Conclude, decode, encode, record, settled
from quorate.sites.audit import AuditLog
from quorate.sites.demands import held_constraints
from quorate.sites.guard import (
    OF_AGREEMENT,
    OF_PROBLEM,
    OF_ROWS,
    OF_RUN,
    Guard,
    RefusedByPolicyError,
)
from quorate.sites.messages import Agree, Agreed, Introduce
from quorate.sites.methods import method_of
from quorate.sites.policy import Proposal, Refusal
from quorate.sites.rows import OwnRows, Source, columns_of, of_site
from quorate.sites.signatures import Sign, asked, signed, signer
from quorate.sites.site_file import read_site
from quorate.solution.configure import setting_of
from quorate.statements import digest, stated
from quorate.storage import OWN, Lock, make_folder, read_in_turns, write_in_turns, write_whole

LARGEST = 2**28  # bytes of a message
KEPT = 8  # runs of stateless algorithms that a process knows
BUSY = 60.0  # seconds in which another process may let go of the folder


class NotAgreedError(Exception):
    """The site knows nothing of what it is asked about."""


@record
class Agreement:
    """What a site has agreed to, for its disk."""

    sender: str
    ask: Introduce
    introductions: tuple[Introduced, ...]


@record
class RunState:
    """Where a run is at a site, for its disk."""

    run: str
    method: NDArray[np.uint8]
    seed: int
    turn: int  # answered messages
    memory: Any
    before: Any  # the memory before the last message
    asked: str  # the digest of the last message
    answer: Any  # to it


@dataclass
class Run:
    """A run that a site takes part in: the algorithm with the site's own concrete problem."""

    state: RunState
    algorithm: Algorithm


@dataclass
class Known:
    """An experiment that a site has agreed to: the problem and its rows as all parties read them.

    Attributes
    ----------
    problem : concrete
    block : the site's rows
    metadata : of all sites, for the coded rows
    proposal : what the policy was asked
    digest : of what was agreed, for signatures
    """

    problem: Problem
    block: Block
    metadata: Metadata
    proposal: Proposal
    digest: bytes


class Party:
    """A data owner's side of the experiments that its site takes part in.

    Parameters
    ----------
    name : of the site
    rows : its rows, by what the server says of the columns
    folder : where it keeps its state; nobody else may read it
    guard : its policy and its log
    sign : signs every answer; None: the site signs nothing
    held : what is let go of in the end, such as the lock of the folder
    """

    def __init__(
        self,
        name: str,
        rows: Source,
        folder: Path,
        guard: Guard | None = None,
        sign: Sign | None = None,
        held: ExitStack | None = None,
    ) -> None:
        self.name, self.source, self.folder, self.sign = name, rows, folder, sign
        self.guard, self.held = guard or Guard(), held or ExitStack()
        self.rows: dict[str, OwnRows] = {}  # by what the server says of the columns
        self.known: dict[str, Known] = {}  # by experiment
        self.runs: dict[tuple[str, str], Run] = {}
        make_folder(folder)

    def answer(self, sender: str, data: bytes) -> bytes:
        """The answer to any bytes, from whoever sent them; it is never an error."""
        envelope, reason = self._opened(data)
        self.guard.heard(sender, envelope, len(data))
        refusals: Sequence[Refusal] = ()
        if envelope is None:
            envelope = Envelope("", self.name, 0, None)
            refusals = [Refusal("message", reason, reason)]
        else:
            try:
                body = self._answer(sender, envelope.experiment, envelope.body)
                encode(body)
            except RefusedByPolicyError as refused:
                refusals = refused.refusals
            except Exception as error:
                body = Failed(self.guard.told(error))
        if refusals:
            body = Refused(refusals[0].rule, refusals[0].answer)
        reply = Envelope(envelope.experiment, self.name, envelope.number, body)
        if self.sign is not None:
            reply = signed(reply, self._question(data, envelope), self.sign)
        sent = encode(reply)
        self.guard.said(sender, reply, len(sent), refusals)
        return sent

    def _question(self, data: bytes, envelope: Envelope) -> str:
        """The digest of a question, and of the agreement and the algorithm that it is about."""
        ask = envelope.body
        if isinstance(ask, Step) and isinstance(ask.run, str):
            known = self.known.get(envelope.experiment)
            run = self.runs.get((envelope.experiment, ask.run))
            if known is not None and run is not None:
                method = hashlib.sha256(run.state.method.tobytes()).digest()
                return asked(data, known.digest, method)
        return asked(data)

    def _opened(self, data: bytes) -> tuple[Envelope | None, str]:
        """The envelope, or why there is none."""
        if len(data) > LARGEST:
            return None, f"the message has {len(data)} bytes, and at most {LARGEST} are read."
        try:
            envelope = decode(data)
        except CodecError as error:
            return None, str(error)
        if not isinstance(envelope, Envelope) or not _is_plain(envelope):
            return None, f"a {type(envelope).__name__} is no envelope with a question."
        if envelope.site != self.name:
            return None, f"the message is for the site {envelope.site!r:.60}."
        return envelope, ""

    def _answer(self, sender: str, experiment: str, body: object) -> object:
        """The body of the answer."""
        self.guard.judge_message(sender, body)
        try:
            if isinstance(body, Introduce):
                return self._introduced(sender, body)
            if isinstance(body, Agree):
                return self._agreed(sender, experiment, body)
            if isinstance(body, StartRun):
                return self._begun(sender, experiment, body)
            if isinstance(body, Step):
                return self._stepped(sender, experiment, body)
        except NotAgreedError as unknown:
            return Unknown(str(unknown))
        text = f"a {type(body).__name__} is no question that a site answers."
        raise RefusedByPolicyError([Refusal("message", text, text)])

    # ---- what it agrees to

    def _introduced(self, sender: str, ask: Introduce) -> Introduced:
        problem, rows = self._asked(sender, ask)
        self.guard.judge(self._proposal(sender, ask, problem, rows), OF_ROWS)
        facts = self._facts(problem, rows)
        self.guard.judge_groups(facts)
        return facts

    def _asked(self, sender: str, ask: Introduce) -> tuple[Problem, OwnRows]:
        """The problem and the rows that a server asks for; what can be judged without the rows is
        judged before they are read.
        """
        problem = stated(ask.problem.tobytes(), Problem)
        self.guard.judge(self._proposal(sender, ask, problem), OF_PROBLEM)
        if problem.privacy is not None and self.guard.policy is not None:
            text = "maximum_epsilon: this version keeps no privacy ledger at a site."
            raise RefusedByPolicyError([Refusal("maximum_epsilon", text, text)])
        return problem, self._rows(ask.roles)

    def _rows(self, roles: str) -> OwnRows:
        if roles not in self.rows:
            rows = self.source(roles)
            if rows.train.names != (self.name,):
                raise ValueError("these rows are another site's.")
            self.rows = {roles: rows}
        return self.rows[roles]

    def _proposal(
        self, sender: str, ask: Introduce, problem: Problem, rows: OwnRows | None = None
    ) -> Proposal:
        """What the policy has to know of a problem and of the rows that it asks for, where these
        are read.
        """
        budget = problem.privacy
        columns = columns_of(ask.roles) if rows is None else rows.columns
        return Proposal(
            server=sender,
            site=self.name,
            problem_digest=digest(ask.problem.tobytes()).replace("-", ""),
            software_digest=self.guard.software,
            version=ask.software,
            columns=columns,
            rows=None if rows is None else int(rows.train.sizes[0]),
            levels=None if rows is None else rows.levels,
            epsilon=math.inf if budget is None else budget.epsilon,
            delta=0.0 if budget is None else budget.delta,
            constraints=held_constraints(problem.local_constraint, problem.constraint),
        )

    @staticmethod
    def _facts(problem: Problem, rows: OwnRows) -> Introduced:
        """What the site tells of its rows."""
        asked, train = problem.asked(), rows.train
        return introduced(asked, with_columns(train, asked.columns), 0, train.digests()[0])

    def _agreed(self, sender: str, experiment: str, ask: Agree) -> Agreed:
        agreement = Agreement(sender, ask.ask, ask.introductions)
        kept = self._kept(experiment, "agreed", Agreement)
        if kept is not None and encode(kept) != encode(agreement):
            text = (
                f"the site has agreed to another experiment of the name {experiment!r:.60}: give"
                " this one another name."
            )
            raise RefusedByPolicyError([Refusal("experiment", text, text)])
        known = self._read(agreement)
        self.guard.judge(known.proposal, OF_AGREEMENT)
        file = self._file(experiment, "agreed")
        make_folder(file.parent)
        write_whole(file, encode(agreement), OWN)
        self.known[experiment] = known
        policy = self.guard.policy
        mark = "" if policy is None else policy.digest()
        return Agreed(digest(ask.ask.problem.tobytes()), version("quorate"), mark)

    def _read(self, agreement: Agreement) -> Known:
        """The problem as all sites have it, and this site's rows as it reads them."""
        sender, ask = agreement.sender, agreement.ask
        problem, rows = self._asked(sender, ask)
        if encode(self._facts(problem, rows)) not in map(encode, agreement.introductions):
            raise ValueError(
                "the server does not say of this site what its rows are: begin the experiment"
                " again, so that the site is asked anew."
            )
        metadata = Metadata.of(agreement.introductions)
        concrete, coded = problem.at(metadata)
        block = problem.coded(rows.train, metadata).block(0)
        proposal = replace(
            self._proposal(sender, ask, problem, rows),
            sites=metadata.names,
            parameters=concrete.predictor.dimension(coded.n_features),
        )
        mine = replace(block, index=np.array([metadata.position(self.name)]))
        told = Agree(agreement.ask, agreement.introductions)
        return Known(concrete, mine, coded, proposal, hashlib.sha256(encode(told)).digest())

    def _agreement(self, sender: str, experiment: str) -> Known:
        """What the site has agreed to with this server, from its disk where this process does not
        know it yet.
        """
        if experiment not in self.known:
            kept = self._kept(experiment, "agreed", Agreement)
            if kept is None:
                raise NotAgreedError("experiment")
            self.known[experiment] = self._read(kept)
        known = self.known[experiment]
        if known.proposal.server != sender:
            text = "the site has agreed to this experiment with another server."
            raise RefusedByPolicyError([Refusal("allowed_servers", text, text)])
        return known

    # ---- runs

    def _begun(self, sender: str, experiment: str, ask: StartRun) -> RunStarted:
        known = self._agreement(sender, experiment)
        block, run = known.block, self._run(known, experiment, ask.run)
        if run is None:
            algorithm = self._algorithm(ask.method, known)
            turn = ask.turn if algorithm.stateless else 0
            state = RunState(ask.run, ask.method, ask.seed, turn, None, None, "", None)
            if not algorithm.stateless:
                state = replace(state, memory=settled(algorithm.client_start(block)))
            run = Run(state, algorithm)
            self._forget_all_but(KEPT)
            self._keep(experiment, run)
        elif (run.state.method.tobytes(), run.state.seed) != (ask.method.tobytes(), ask.seed):
            raise ValueError(f"the run {ask.run!r:.40} was begun with another algorithm or seed.")
        return RunStarted(ask.run, run.state.turn)

    def _algorithm(self, method: NDArray[np.uint8], known: Known) -> Algorithm:
        """The algorithm of a statement with the site's problem, where the policy allows it and it
        takes the problem.
        """
        algorithm = method_of(method.tobytes())
        if isinstance(algorithm, Method):
            name = short_name("algorithm", algorithm) or home(type(algorithm))
            messages = [kind.__name__ for kind in algorithm.on_client]
            proposal = replace(known.proposal, algorithm=name, messages=messages)
            self.guard.judge(proposal, OF_RUN)
            check_requirements(algorithm, known.problem, setting_of(known.metadata))
        elif known.problem.privacy is not None:
            raise ValueError("a certificate is computed from the rows exactly, without noise.")
        return algorithm.at_client(known.problem, known.metadata)

    def _stepped(self, sender: str, experiment: str, ask: Step) -> Stepped | Lost:
        known = self._agreement(sender, experiment)
        block, run = known.block, self._run(known, experiment, ask.run)
        if run is None:
            raise NotAgreedError("run")
        state, mark = run.state, hashlib.sha256(encode(ask.message)).hexdigest()
        conclusion = isinstance(ask.message, Conclude)
        if ask.turn == state.turn - 1 and mark == state.asked and not conclusion:
            return Stepped(ask.run, ask.turn, state.answer)
        if run.algorithm.stateless and ask.turn >= 0:  # it may go on from anywhere
            state = replace(state, turn=ask.turn)
        # a run may end while this site's last answer is on its way
        if ask.turn != state.turn and not (conclusion and ask.turn == state.turn - 1):
            return Lost(ask.run, state.turn)
        step = run.algorithm.on_client[type(ask.message)]
        memory, upload = step(
            state.memory if ask.turn == state.turn else state.before,
            ask.message,
            block,
            lambda p: stream(state.seed, block.names[p], state.turn),
        )
        if not conclusion:
            new = replace(
                state,
                turn=state.turn + 1,
                memory=settled(memory),
                before=state.memory,
                asked=mark,
                answer=upload,
            )
            run = replace(run, state=new)
            if run.algorithm.stateless:  # it can go on from anywhere
                self.runs[experiment, ask.run] = run
            else:
                self._keep(experiment, run)
        return Stepped(ask.run, ask.turn, upload)

    def _run(self, known: Known, experiment: str, name: str) -> Run | None:
        """A run that the site takes part in, from its disk where this process does not know it."""
        run = self.runs.get((experiment, name))
        if run is None:
            kept = self._kept(experiment, _plain_name(name), RunState)
            if kept is not None and kept.run == name:
                run = self.runs[experiment, name] = Run(kept, self._algorithm(kept.method, known))
        return run

    def _keep(self, experiment: str, run: Run) -> None:
        """Write where a run is, before anything of it leaves the site."""
        state = run.state
        write_in_turns(self._file(experiment, _plain_name(state.run)), state.turn, encode(state))
        self.runs[experiment, run.state.run] = run

    def _forget_all_but(self, most: int) -> None:
        """Forget the runs that were begun first of those that have no memory, such as those of
        certificates.
        """
        alike = [key for key, run in self.runs.items() if run.algorithm.stateless]
        for experiment, name in alike[: max(len(alike) - most, 0)]:
            del self.runs[experiment, name]
            self._file(experiment, _plain_name(name)).unlink(missing_ok=True)

    # ---- its disk

    def _file(self, experiment: str, name: str) -> Path:
        return self.folder / _plain_name(experiment) / name

    def _kept(self, experiment: str, name: str, kind: type) -> Any:
        """A record from the site's disk; None where there is none, or one that is damaged."""
        try:
            file = self._file(experiment, name)
            data = read_in_turns(file) if kind is RunState else file.read_bytes()
            kept = None if data is None else decode(data)
        except (FileNotFoundError, CodecError):
            return None
        return kept if isinstance(kept, kind) else None

    def close(self) -> None:
        """Forget what this process knows; the disk has it."""
        self.known.clear()
        self.runs.clear()
        self.held.close()


def open_party(folder: Path, name: str) -> Party:
    """The site's side, as the ``site.toml`` in its folder says.

    Raises
    ------
    ValueError, OSError : a folder without a readable ``site.toml``, or one of another site; a key
        that cannot be read
    AuditError : a log that cannot be gone on with
    """
    site = read_site(folder)
    if site.site.name != name:
        raise ValueError(
            f"the engine knows this site as {name!r}, and its site.toml as {site.site.name!r}: give"
            " both the same name."
        )
    sign = None if site.key is None else signer(site.key)
    make_folder(site.state)
    held = ExitStack()
    # the process of an earlier job may linger
    held.enter_context(Lock(site.state / "lock").alone(f"another process works for {name}", BUSY))
    log = AuditLog.open(site.log, name)
    log.note(f"opened with the policy {site.policy.digest()}")
    guard = Guard(site.policy, log, package_digest())
    return Party(name, of_site(site), site.state, guard, sign, held)


def _plain_name(name: str) -> str:
    """A name for a file, whatever the server's name is made of."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def _is_plain(envelope: Envelope) -> bool:
    """Whether the fields beside the body are what they have to be."""
    texts = isinstance(envelope.experiment, str) and isinstance(envelope.site, str)
    body = envelope.body
    inside = body.message if isinstance(body, Step) else body
    asks = isinstance(body, Introduce | Agree | StartRun | Step) and type(inside) in FIELDS
    return texts and asks and type(envelope.number) is int and 0 <= envelope.number < 2**53
