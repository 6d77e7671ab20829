"""A site's side of an experiment: its rows, what it has agreed to, and the runs it takes part in.

Everything that the server sends is answered, with bytes: an upload, or why there is none. Nothing
is computed before the site's policy has allowed it, and nothing leaves before it stands in the
site's log. What the site has agreed to, and where each run is, stands on its own disk, so that a
process that dies is replaced by another one that goes on.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Block, stream
from quorate.data.federation import Federation
from quorate.engines.wire import (
    Begin,
    Begun,
    Envelope,
    Failed,
    Lost,
    Refused,
    Step,
    Stepped,
    Unknown,
)
from quorate.problem.metadata import Introduced, Metadata, introduced
from quorate.problem.problem import Problem, with_columns
from quorate.rounds import Algorithm, CodecError, Conclude, decode, encode, record, settled
from quorate.sites.messages import Agree, Agreed, Introduce
from quorate.sites.methods import method_of
from quorate.statements import digest, stated
from quorate.storage import OWN, make_folder, write_whole

LARGEST = 2**28  # bytes of a message


class Guard(Protocol):
    """What a site allows, and its record of what was asked and answered."""

    def asked(self, sender: str, envelope: Envelope | None, size: int, reason: str) -> None: ...

    def refusal(self, sender: str, party: Party, body: object) -> Refused | None: ...

    def answered(self, sender: str, envelope: Envelope, size: int) -> None: ...


class NotAgreedError(Exception):
    """The site knows nothing of what it is asked about."""


@record
class Agreement:
    """What a site has agreed to, for its disk."""

    problem: NDArray[np.uint8]
    introductions: tuple[Introduced, ...]


@record
class RunState:
    """Where a run is at a site, for its disk."""

    run: str
    method: NDArray[np.uint8]
    seed: int
    turn: int  # answered messages
    memory: Any
    asked: str  # the digest of the last message
    answer: Any  # to it


@dataclass
class Run:
    """A run that a site takes part in: the algorithm with the site's own concrete problem."""

    state: RunState
    algorithm: Algorithm


class Party:
    """A data owner's side of one experiment or several.

    Parameters
    ----------
    name : of the site
    rows : the site's rows, a federation of one client of this name
    folder : where it keeps its state; nobody else may read it
    guard : its policy and its log; None allows everything, for trials
    """

    def __init__(
        self, name: str, rows: Federation, folder: Path, guard: Guard | None = None
    ) -> None:
        if tuple(map(str, rows.clients)) != (name,):
            raise ValueError(f"the site {name} has rows of {rows.clients}: give its own alone.")
        self.name, self.rows, self.folder, self.guard = name, rows, folder, guard
        self.problems: dict[str, tuple[Problem, Block, Metadata]] = {}  # by experiment
        self.runs: dict[tuple[str, str], Run] = {}
        make_folder(folder)

    def answer(self, sender: str, data: bytes) -> bytes:
        """The answer to any bytes, from whoever sent them; it is never an error."""
        envelope, reason = self._opened(data)
        if self.guard is not None:
            self.guard.asked(sender, envelope, len(data), reason)
        if envelope is None:
            return encode(Envelope("", self.name, 0, Refused("message", reason)))
        body = self._answer(sender, envelope.experiment, envelope.body)
        reply = replace(envelope, body=body)
        sent = encode(reply)
        if self.guard is not None:
            self.guard.answered(sender, reply, len(sent))
        return sent

    def _opened(self, data: bytes) -> tuple[Envelope | None, str]:
        """The envelope, or why there is none."""
        if len(data) > LARGEST:
            return None, f"the message has {len(data)} bytes, and at most {LARGEST} are read."
        try:
            envelope = decode(data)
        except CodecError as error:
            return None, str(error)
        if not isinstance(envelope, Envelope) or not _is_plain(envelope):
            return None, f"a {type(envelope).__name__} is no envelope of quorate."
        if envelope.site != self.name:
            return None, f"the message is for the site {envelope.site!r:.60}."
        return envelope, ""

    def _answer(self, sender: str, experiment: str, body: object) -> object:
        """The body of the answer."""
        if self.guard is not None and (refused := self.guard.refusal(sender, self, body)):
            return refused
        try:
            if isinstance(body, Introduce):
                return self._introduced(body)
            if isinstance(body, Agree):
                return self._agreed(experiment, body)
            if isinstance(body, Begin):
                return self._begun(experiment, body)
            if isinstance(body, Step):
                return self._stepped(experiment, body)
        except NotAgreedError as unknown:
            return Unknown(str(unknown))
        except Exception as error:
            return Failed(f"{type(error).__name__}: {' '.join(str(error).split())}")
        return Refused("message", f"a {type(body).__name__} is no question that a site answers.")

    # ---- what it agrees to

    def _introduced(self, ask: Introduce) -> Introduced:
        problem = stated(ask.problem.tobytes(), Problem)
        asked = problem.asked()
        mark = self.rows.digests()[0]
        return introduced(asked, with_columns(self.rows, asked.columns), 0, mark)

    def _agreed(self, experiment: str, ask: Agree) -> Agreed:
        mine = encode(self._introduced(Introduce(ask.problem, ask.software)))
        if mine not in map(encode, ask.introductions):
            raise ValueError(
                "the server does not say of this site what the site said: begin the experiment"
                " again, so that the site is asked anew."
            )
        agreement = Agreement(ask.problem, ask.introductions)
        file = self._file(experiment, "agreed")
        make_folder(file.parent)
        write_whole(file, encode(agreement), OWN)
        self.problems[experiment] = self._concrete(agreement)
        return Agreed(digest(ask.problem.tobytes()), version("quorate"))

    def _concrete(self, agreement: Agreement) -> tuple[Problem, Block, Metadata]:
        """The problem as all sites have it, and this site's rows as it reads them."""
        problem = stated(agreement.problem.tobytes(), Problem)
        metadata = Metadata.of(agreement.introductions)
        concrete, coded = problem.at(metadata)
        block = problem.coded(self.rows, metadata).block(0)
        return concrete, replace(block, index=np.array([metadata.position(self.name)])), coded

    def _known(self, experiment: str) -> tuple[Problem, Block, Metadata]:
        """What the site has agreed to, from its disk where this process does not know it yet."""
        if experiment not in self.problems:
            kept = self._kept(experiment, "agreed", Agreement)
            if kept is None:
                raise NotAgreedError("experiment")
            self.problems[experiment] = self._concrete(kept)
        return self.problems[experiment]

    # ---- runs

    def _begun(self, experiment: str, ask: Begin) -> Begun:
        problem, block, metadata = self._known(experiment)
        run = self._run(experiment, ask.run)
        if run is None:
            algorithm = self._algorithm(ask.method, problem, metadata)
            turn = ask.turn if algorithm.stateless else 0
            state = RunState(ask.run, ask.method, ask.seed, turn, None, "", None)
            if not algorithm.stateless:
                state = replace(state, memory=settled(algorithm.client_start(block)))
            run = Run(state, algorithm)
            self._keep(experiment, run)
        elif (run.state.method.tobytes(), run.state.seed) != (ask.method.tobytes(), ask.seed):
            raise ValueError(f"the run {ask.run!r:.40} was begun with another algorithm or seed.")
        return Begun(ask.run, run.state.turn)

    def _algorithm(
        self, method: NDArray[np.uint8], problem: Problem, metadata: Metadata
    ) -> Algorithm:
        return method_of(method.tobytes()).at_client(problem, metadata)

    def _stepped(self, experiment: str, ask: Step) -> Stepped | Lost:
        block = self._known(experiment)[1]
        run = self._run(experiment, ask.run)
        if run is None:
            raise NotAgreedError("run")
        state, mark = run.state, hashlib.sha256(encode(ask.message)).hexdigest()
        conclusion = isinstance(ask.message, Conclude)
        if ask.turn == state.turn - 1 and mark == state.asked and not conclusion:
            return Stepped(ask.run, ask.turn, state.answer)
        # a run may end while this site's last answer is on its way
        if ask.turn != state.turn and not (conclusion and ask.turn == state.turn - 1):
            return Lost(ask.run, state.turn)
        step = run.algorithm.on_client[type(ask.message)]
        memory, upload = step(
            state.memory,
            ask.message,
            block,
            lambda p: stream(state.seed, block.names[p], state.turn),
        )
        if not conclusion:
            new = replace(
                state, turn=state.turn + 1, memory=settled(memory), asked=mark, answer=upload
            )
            self._keep(experiment, replace(run, state=new))
        return Stepped(ask.run, ask.turn, upload)

    def _run(self, experiment: str, name: str) -> Run | None:
        """A run that the site takes part in, from its disk where this process does not know it."""
        known = self.runs.get((experiment, name))
        if known is None:
            kept = self._kept(experiment, _plain_name(name), RunState)
            if kept is not None and kept.run == name:
                problem, _, metadata = self._known(experiment)
                known = Run(kept, self._algorithm(kept.method, problem, metadata))
                self.runs[experiment, name] = known
        return known

    def _keep(self, experiment: str, run: Run) -> None:
        """Write where a run is, before anything of it leaves the site."""
        write_whole(self._file(experiment, _plain_name(run.state.run)), encode(run.state), OWN)
        self.runs[experiment, run.state.run] = run

    # ---- its disk

    def _file(self, experiment: str, name: str) -> Path:
        return self.folder / _plain_name(experiment) / name

    def _kept(self, experiment: str, name: str, kind: type) -> Any:
        """A record from the site's disk; None where there is none, or one that is damaged."""
        try:
            kept = decode(self._file(experiment, name).read_bytes())
        except (FileNotFoundError, CodecError):
            return None
        return kept if isinstance(kept, kind) else None

    def close(self) -> None:
        """Forget what this process knows; the disk has it."""
        self.problems.clear()
        self.runs.clear()


def _plain_name(name: str) -> str:
    """A name for a file, whatever the server's name is made of."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def _is_plain(envelope: Envelope) -> bool:
    """Whether the fields beside the body are what they have to be."""
    texts = isinstance(envelope.experiment, str) and isinstance(envelope.site, str)
    return texts and type(envelope.number) is int and 0 <= envelope.number < 2**53
