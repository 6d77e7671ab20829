"""A site's side of an experiment: its rows, what it has agreed to, and the runs it takes part in.

Everything that the server sends is answered, with bytes: an upload, or why there is none. Nothing
is computed before the site's policy has allowed it, and nothing leaves before it stands in the
site's log. What the site has agreed to, and where each run is, stands on its own disk, so that a
process that dies is replaced by another one that goes on.
"""

import hashlib
import math
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed import codec
from bonafed.algorithms.alternatives import check_requirements
from bonafed.algorithms.federated.bundle.bundle import Bundle
from bonafed.algorithms.federated.bundle.masked_bundle import MaskedBundle
from bonafed.algorithms.method import Method
from bonafed.arrays import Block, stream
from bonafed.data.federation import Federation
from bonafed.data.row_errors import without_values
from bonafed.engines import secure_summed as masked
from bonafed.engines import wire
from bonafed.engines.checkpoint_schema import Fields
from bonafed.engines.job import package_digest
from bonafed.names import short_name
from bonafed.problem.metadata import Introduced, Metadata, introduced
from bonafed.problem.parts import jumping
from bonafed.problem.problem import Problem, with_columns
from bonafed.rounds import Algorithm, Conclude, settled, unannounced, visibility, without_tiny
from bonafed.sites.audit import AuditLog
from bonafed.sites.guard import Guard, RefusedByPolicyError, averaged, refuses
from bonafed.sites.introductions import Introductions, check_declared, held_against
from bonafed.sites.judgements import HeldOut, Judgements
from bonafed.sites.judging import JudgeRows
from bonafed.sites.people import Answered, Answers, unjudged
from bonafed.sites.policy import Policy, Proposal, When, held_constraints, rows_in_words
from bonafed.sites.privacy_ledger import PrivateRun, SiteLedger, without_keys
from bonafed.sites.rows import OwnRows, Roles, Source, columns_of, of_site
from bonafed.sites.selections import SELECTIONS, Selections, plain_name
from bonafed.sites.session import Agree, Agreed, Introduce, method_of
from bonafed.sites.signatures import Sign, signed, signer
from bonafed.sites.signatures import asked as digest_of_question
from bonafed.sites.site_file import WatchedSite, secret_of
from bonafed.solution.plan import needs_secure_sum, setting_of
from bonafed.statements import digest, stated
from bonafed.storage import OWN, Lock, make_folder, read_in_turns, write_in_turns, write_whole

LARGEST, LARGEST_HEADER = 2**28, 2**23  # bytes of a message, and of what describes its arrays
MOST_EXPERIMENTS, MOST_RUNS = 1_000, 100  # on the disk of a site, and of each experiment there
KEPT = 8  # experiments and runs that a process has in memory
DEEPEST = 32  # levels of records, tuples and tables in a message
BUSY = 60.0  # seconds in which another process may let go of the folder


class NotAgreedError(Exception):
    """The site knows nothing of what it is asked about."""


@codec.record
class AgreedRecord:
    """What a site has agreed to, for its disk."""

    sender: str
    ask: Introduce
    introductions: tuple[Introduced, ...]


@codec.record
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


class LocalRun(NamedTuple):
    """A run that a site takes part in: the algorithm with the site's own concrete problem."""

    state: RunState
    algorithm: Algorithm


@dataclass
class Experiment:
    """An experiment that a site has agreed to: the problem and its rows as all parties read them.

    Attributes
    ----------
    problem : concrete
    block : the site's rows to train on
    held_out : those to judge on; None without any
    held : by what its answers about these are compared
    metadata : of all sites, for the coded rows
    proposal : what the policy was asked
    judging : the same, of the rows to judge on in the place of those to train on
    digest : of what was agreed, for signatures
    people : (m,) whose the rows to train on are
    """

    problem: Problem
    block: Block
    held_out: Block | None
    held: HeldOut | None
    metadata: Metadata
    proposal: Proposal
    judging: Proposal
    digest: bytes
    people: NDArray[np.uint64]

    def rows_for(self, algorithm: Algorithm) -> Block:
        """The rows that an algorithm is about."""
        if not algorithm.held_out:
            return self.block
        if self.held_out is None:
            raise ValueError("the site holds out no rows to judge a model on.")
        return self.held_out


@dataclass(eq=False)
class Party:
    """A data owner's side of the experiments that its site takes part in.

    Parameters
    ----------
    name : of the site
    source : its rows, by what the server says of the columns
    folder : where it keeps its state; nobody else may read it
    guard : its policy and its log; ``Guard(None)`` for trials only
    sign : signs every answer; None: the site signs nothing
    held : what is let go of in the end, such as the lock of the folder
    file : its site.toml, which the site goes by as it is when a message comes
    secret : keys what the site tells of its rows; empty for trials, where anybody may compute it
    """

    name: str
    source: Source
    folder: Path
    guard: Guard
    sign: Sign | None = None
    held: ExitStack = field(default_factory=ExitStack)
    file: WatchedSite | None = None
    secret: bytes = b""

    def __post_init__(self) -> None:
        # by what the server says of the columns, and whether the problem is private
        self.rows: dict[tuple[str, bool], OwnRows] = {}
        self.known: dict[str, Experiment] = {}  # by its name
        self.runs: dict[tuple[str, str], LocalRun] = {}
        make_folder(self.folder)
        self.ledger = SiteLedger(self.folder, self.name, self.guard)
        self.answers: Answers | None = None  # that were given, once they are needed
        self.selections = Selections(self.folder / SELECTIONS, self.guard)
        self.judgements = Judgements(self.folder / SELECTIONS)
        self.introductions = Introductions(self.folder / SELECTIONS, self.guard)

    def answer(self, sender: str, data: bytes) -> bytes:
        """The answer to any bytes, from anyone who sent them: an upload, or why there is none.

        Raises
        ------
        AuditError : the log cannot be written, so that nothing may leave the site
        """
        envelope, body, refused = None, None, None
        try:
            envelope = self._opened(sender, data)
        except RefusedByPolicyError as error:
            refused = error
        self.guard.heard(sender, envelope, len(data))
        if envelope is not None:
            try:
                body = self._answer(sender, envelope.experiment, envelope.body)
                codec.encoded_size(body)  # raises for what cannot travel
            except RefusedByPolicyError as error:
                refused = error
            except Exception as error:
                body = wire.Failed(self.guard.told(error))
        refusals = refused.refusals if refused else ()
        if refused:
            body = wire.Refused(refused.rule, refused.refusals[0].answer)
        asked = envelope or wire.Envelope("", self.name, wire.UNREAD, None)
        reply = wire.Envelope(asked.experiment, self.name, asked.number, body)
        if self.sign is not None:
            # the digest of the question, and of the agreement and the algorithm that it is about
            ask, known = asked.body, []
            if isinstance(ask, wire.Step) and isinstance(ask.run, str):
                run = self.runs.get((asked.experiment, ask.run))
                if run is not None and (agreed := self.known.get(asked.experiment)) is not None:
                    known = [agreed.digest, hashlib.sha256(run.state.method.tobytes()).digest()]
            reply = signed(reply, digest_of_question(data, *known), self.sign)
        sent = codec.encode(reply)
        self.guard.said(sender, reply, len(sent), refusals)
        return sent

    def _opened(self, sender: str, data: bytes) -> wire.Envelope:
        """The envelope, where the site as it is now lets the server ask; nothing of a message from
        anybody else is read.
        """
        self._read_again()
        self.guard.judge_at(Proposal(server=sender), When.SERVER)
        if len(data) > LARGEST:
            text = f"it has {len(data)} bytes, and at most {LARGEST} are read: send less."
            raise refuses(wire.DAMAGED, text)
        try:
            envelope = codec.decode(data, header=LARGEST_HEADER)
        except codec.CodecError as error:
            raise refuses(wire.DAMAGED, f"{error}.") from error
        if not isinstance(envelope, wire.Envelope) or not _is_plain(envelope):
            text = f"this {type(envelope).__name__} has no question of a server."
            raise refuses(wire.DAMAGED, text)
        if envelope.site != self.name:
            raise refuses(wire.DAMAGED, f"it is for the site {envelope.site!r:.60}.")
        return envelope

    def _read_again(self) -> None:
        """Go by what ``site.toml`` says now; what was judged by an earlier one is judged anew, from
        the site's disk.
        """
        if self.file is None:
            return
        try:
            if not self.file.changed():
                return
        except (OSError, ValueError) as error:
            text = f"nothing is allowed until it can be read: {error}"
            answer = "the site cannot read its file, and allows nothing"
            raise refuses("site.toml", text, "", answer, "Ask its owner") from error
        site = self.file.site
        self.guard.policy, self.source = site.policy, of_site(site, self.secret)
        for held in (self.rows, self.known, self.runs):
            held.clear()
        self.guard.note(f"site.toml has changed: the policy is {site.policy.digest()}")

    def _answer(self, sender: str, experiment: str, body: object) -> object:
        """The body of the answer."""
        if isinstance(body, wire.Step):
            asked = masked.asked_in(body.message)
            # a secure sum's own ask for nothing of the rows
            if not isinstance(asked, masked.PROTOCOL):
                self.guard.judge_at(Proposal(messages=(type(asked).__name__,)), When.MESSAGE)
        try:
            if isinstance(body, Introduce):
                with self.introductions.one_sentence():
                    return self._asked(sender, body)[2]
            if isinstance(body, Agree):
                return self._agreed(sender, experiment, body)
            if isinstance(body, wire.StartRun):
                return self._begun(sender, experiment, body)
            if isinstance(body, wire.Step):
                return self._stepped(sender, experiment, body)
        except NotAgreedError as unknown:
            return wire.Unknown(str(unknown))
        text = f"a {type(body).__name__} is not a question that a site answers."
        raise refuses(wire.DAMAGED, text)

    # ---- what it agrees to

    def _asked(self, sender: str, ask: Introduce) -> tuple[Problem, OwnRows, Introduced]:
        """The problem and the rows that a server asks for, and what the site tells of these, where
        its policy allows it; what can be judged without the rows is judged before they are read.
        """
        problem = stated(ask.problem.tobytes(), Problem)
        self.guard.judge(self._proposal(sender, ask, problem), When.PROBLEM)
        if problem.privacy is not None:
            self.ledger.check_policy()
        self.selections.check(ask.roles)
        check_declared(problem, ask.roles, Roles.of(ask.roles).classes if ask.roles else None)
        self.introductions.count(held_against(problem, ask.roles))
        rows = self._rows(ask.roles, problem.privacy is not None)
        run = self._proposal(sender, ask, problem, rows)
        self.guard.judge(run, When.ROWS)
        facts = self._facts(problem, rows)
        self.guard.judge_at(replace(run, told=facts), When.TOLD)
        if (parameters := parameters_of(problem, facts)) is not None:
            # before the choice of columns is bound: who has to use fewer may ask again
            self.guard.judge_at(replace(run, parameters=parameters, rows=facts.rows), When.SIZE)
        self.selections.bind(ask.roles)
        return problem, rows, facts

    def _rows(self, roles: str, private: bool = False) -> OwnRows:
        if (roles, private) not in self.rows:
            with without_values(private):  # else the site's own log shows them
                rows = self.source(roles, private)
            if (left := rows.count - int(rows.train.sizes[0])) > 0:
                self.guard.note(f"a private problem leaves out {rows_in_words(left)} of the table")
            if rows.train.names != (self.name,):
                raise ValueError("these rows are another site's.")
            self.rows = {(roles, private): rows}
        return self.rows[roles, private]

    def _proposal(self, sender: str, ask: Introduce, problem: Problem, rows=None) -> Proposal:
        """What the policy has to know of a problem and of the rows that it asks for, where these
        are read.
        """
        budget, mark = problem.privacy, digest(ask.problem.tobytes()).replace("-", "")
        known = sender, self.name, mark, self.guard.software, ask.software
        spent = (math.inf, 0.0) if budget is None else (budget.epsilon, budget.delta)
        held = held_constraints(problem.local_constraint, problem.constraint)
        run = Proposal(*known, columns=columns_of(ask.roles), constraints=held)
        run = replace(run, epsilon=spent[0], delta=spent[1])
        if rows is None:
            return run
        # the noise of a budget hides levels of any size
        told = {"columns": rows.columns, "levels": rows.levels if budget is None else ()}
        return replace(run, rows=rows.count, held_out=size_of(rows.test), **told)

    def _facts(self, problem: Problem, rows: OwnRows) -> Introduced:
        """What the site tells of its rows; nobody else can hold a guess against their digest, and
        for a private run their number is as declared.
        """
        asked, train = problem.asked(), rows.train
        mark = train.digests()[0]
        if self.secret:
            mark = hashlib.blake2b(mark.encode(), digest_size=16, key=self.secret).hexdigest()
        facts = introduced(asked, with_columns(train, asked.columns), 0, mark)
        if problem.privacy is None:
            return facts
        (size,) = problem.privacy.sizes_of((self.name,), (rows.count,))
        return replace(facts, rows=size, weight=float(size))

    def _agreed(self, sender: str, experiment: str, ask: Agree) -> Agreed:
        agreement = AgreedRecord(sender, ask.ask, ask.introductions)
        kept = self._kept(experiment, "agreed", AgreedRecord)
        if kept is not None and codec.encode(kept) != codec.encode(agreement):
            text = f"the site has agreed to another experiment of the name {experiment!r:.60}: give"
            raise refuses("experiment", f"{text} this one another name.")
        with self.introductions.one_sentence() if kept is None else nullcontext():
            known = self._read(agreement)
        if kept is None and known.problem.privacy is not None:
            self.ledger.check_budget(known.problem.privacy)
        file = self._file(experiment, "agreed")
        if not file.exists():
            others = [each for each in self.folder.iterdir() if each.name != SELECTIONS]
            if (count := sum(each.is_dir() for each in others)) >= MOST_EXPERIMENTS:
                text = f"the site keeps {count}, and at most {MOST_EXPERIMENTS} are kept"
                do = f"Remove the folders of those that are over from {self.folder}"
                ask_for = "Ask its owner to remove those that are over"
                raise refuses("experiments", text, do, ask=ask_for)
        make_folder(file.parent)
        write_whole(file, codec.encode(agreement), OWN)
        _remember(self.known, experiment, known)
        policy = self.guard.policy
        mark = "" if policy is None else policy.digest()
        return Agreed(digest(ask.ask.problem.tobytes()), version("bonafed"), mark)

    def _read(self, agreement: AgreedRecord) -> Experiment:
        """The problem as all sites have it, and this site's rows as it reads them, where the policy
        as it is now allows the agreement.
        """
        sender, ask = agreement.sender, agreement.ask
        problem, rows, facts = self._asked(sender, ask)
        self.introductions.count(held_against(problem, ask.roles, agreement.introductions))
        if codec.encode(facts) not in map(codec.encode, agreement.introductions):
            text = "the server does not say of this site what its rows are, or rows or secret of"
            text += " the site are others now: begin another experiment, so that it is asked anew."
            raise ValueError(text)
        metadata = Metadata.of(agreement.introductions)
        concrete, coded = problem.at(metadata)
        block = problem.coded(rows.train, metadata).block(0)
        means = () if problem.privacy is not None else tuple(averaged(concrete, block))
        known: Any = {"sites": metadata.names, "rows": facts.rows, "told": facts, "averaged": means}
        known["parameters"] = concrete.predictor.dimension(coded.n_features)
        known["jumps"] = jumping(concrete, masked=True)  # a run says whether it is
        proposal = replace(self._proposal(sender, ask, problem, rows), **known)
        self.guard.judge(proposal, When.AGREEMENT)
        test, held = None, None
        if rows.test is not None:
            test = problem.coded(rows.test, metadata).block(0)
            held = HeldOut.of(rows.test, metadata.labels)
        mine = np.array([metadata.position(self.name)])
        judging = replace(proposal, rows=size_of(rows.test), levels=rows.test_levels)
        told = hashlib.sha256(codec.encode(Agree(agreement.ask, agreement.introductions))).digest()
        people = np.arange(len(block.y[0]), dtype=np.uint64) if rows.people is None else rows.people
        both = replace(block, index=mine), test and replace(test, index=mine)
        return Experiment(concrete, *both, held, coded, proposal, judging, told, people)

    def _agreement(self, sender: str, experiment: str) -> Experiment:
        """What the site has agreed to with this server, from its disk where this process does not
        know it yet.
        """
        if experiment not in self.known:
            kept = self._kept(experiment, "agreed", AgreedRecord)
            if kept is None:
                raise NotAgreedError("experiment")
            _remember(self.known, experiment, self._read(kept))
        known = self.known[experiment]
        if known.proposal.server != sender:
            text = "the site has agreed to this experiment with another server."
            raise refuses("allowed_servers", text)
        return known

    # ---- runs

    def _begun(self, sender: str, experiment: str, ask: wire.StartRun) -> wire.RunStarted:
        known = self._agreement(sender, experiment)
        run = self._run(known, experiment, ask.run)
        if run is None:
            algorithm = self._algorithm(ask.method, known)
            self._make_room(experiment)
            turn = ask.turn if algorithm.stateless else 0
            state = RunState(ask.run, ask.method, ask.seed, turn, None, None, "", None)
            if not algorithm.stateless:
                memory = algorithm.client_start(known.rows_for(algorithm))
                state = replace(state, memory=settled(memory))
            run = LocalRun(state, algorithm)
            charged = self._charged(known, experiment, run)
            method = method_of(ask.method.tobytes())
            if isinstance(method, masked.SecureSummed):  # what the server reads of this site
                told = "; ".join(f"{name}: {text}" for name, text in method.inner.readable.items())
                what = f"beside sums over the sites the server reads {told or 'nothing'} of this"
                what += " site"
                self.guard.note(f"a run with secure sums, {ask.run!r:.40}: {what}")
            keep = partial(self._keep, experiment, run)
            self.ledger.begin(masked.carried_by(algorithm), charged, keep)
        elif (run.state.method.tobytes(), run.state.seed) != (ask.method.tobytes(), ask.seed):
            raise ValueError(f"the run {ask.run!r:.40} was begun with another algorithm or seed.")
        return wire.RunStarted(ask.run, run.state.turn)

    def _algorithm(self, method: NDArray[np.uint8], known: Experiment) -> Algorithm:
        """The algorithm of a statement with the site's problem, where the policy allows it and it
        takes the problem.
        """
        summed = method_of(method.tobytes())
        algorithm = masked.carried_by(summed)
        simulated = isinstance(summed, masked.SecureSummed) and summed.option.keys != "secure"
        if simulated and self.guard.policy is not None:
            text = "masks from the seed can be taken away by anyone who has it: ask for"
            raise refuses("secure_sum", f'{text} SecureSum(keys="secure").')
        sums = isinstance(summed, masked.SecureSummed)
        plain = known.problem.privacy is None and not algorithm.held_out
        if sums and plain and (told := unannounced(algorithm)):  # more of a site than it announces
            text = f"a secure sum does not hide {told[0]}, which {type(algorithm).__name__} sends"
            raise refuses("secure_sum", f"{text}: ask for Bundle().")
        if isinstance(algorithm, Method):
            named = Bundle if isinstance(algorithm, MaskedBundle) else type(algorithm)
            name = short_name("algorithm", named) or codec.home(named)
            messages = [kind.__name__ for kind in algorithm.on_client]
            self.guard.judge(replace(known.proposal, algorithm=name, messages=messages), When.RUN)
            setting = replace(setting_of(known.metadata), secure_sum=sums)
            check_requirements(algorithm, known.problem, setting)
        elif known.problem.privacy is not None:
            raise ValueError("a certificate is computed from the rows exactly, without noise.")
        elif algorithm.held_out:
            self.guard.judge(known.judging, When.ROWS)
        if needs_secure_sum(known.problem) and not sums:
            text = 'the budget has the view "sum", and this site answers without a secure sum: its'
            raise refuses("noise", f'{text} noise would hide too little. Ask for view="answers".')
        self.ledger.check_noise(algorithm, known.problem)
        policy = self._for_people(known, algorithm)
        if policy:
            run = replace(known.proposal, jumps=jumping(known.problem, sums))
            self.guard.judge_at(run, When.AGREEMENT)
        if policy and (refusal := unjudged(policy, algorithm, known.problem)):
            raise RefusedByPolicyError([refusal])
        if self.guard.policy is not None and known.held is not None:
            summed = self.judgements.judge(summed, known.held, self.guard.policy.minimum_rows)
        return summed.at_client(known.problem, known.metadata)

    def _stepped(self, sender: str, experiment: str, ask: wire.Step) -> wire.Stepped | wire.Lost:
        known = self._agreement(sender, experiment)
        run = self._run(known, experiment, ask.run)
        if run is None:
            raise NotAgreedError("run")
        block = known.rows_for(run.algorithm)
        _check_form(masked.asked_in(ask.message), known.metadata.n_clients)
        self.guard.judge_parts(masked.asked_in(ask.message), known.problem, block)
        state, mark = run.state, codec.fingerprint(ask.message)
        conclusion = isinstance(ask.message, Conclude)
        if ask.turn == state.turn - 1 and mark == state.asked and not conclusion:
            return wire.Stepped(ask.run, ask.turn, state.answer)
        if run.algorithm.stateless and ask.turn >= 0:  # it may go on from anywhere
            state = replace(state, turn=ask.turn)
        # a run may end while this site's last answer is on its way
        if ask.turn != state.turn and not (conclusion and ask.turn == state.turn - 1):
            return wire.Lost(ask.run, state.turn)
        charged = self._charged(known, experiment, run)
        self.ledger.check_answer(masked.carried_by(run.algorithm), charged)
        asked, policy = masked.asked_in(ask.message), self.guard.policy
        if isinstance(asked, JudgeRows) and policy is not None and known.held is not None:
            self.judgements.check(policy, sender, known.digest, asked, known.held)
        step, message = run.algorithm.on_client[type(ask.message)], without_tiny(ask.message)
        draws = lambda p: stream(state.seed, block.names[p], state.turn)  # noqa: E731
        before = state.memory if ask.turn == state.turn else state.before
        memory, upload = step(before, message, block, draws)
        told = Answered(known.problem, block, message, upload, state.memory, memory)
        self._check_people(known, experiment, run, told)
        if policy is not None and not isinstance(masked.carried_by(run.algorithm), Method):
            self.judgements.see(sender, asked)
        if not conclusion:
            memory, before = without_keys(run.algorithm, settled(memory), state.memory)
            kept = {"turn": state.turn + 1, "memory": memory, "before": before}
            run = run._replace(state=replace(state, **kept, asked=mark, answer=upload))
            if run.algorithm.stateless:  # it can go on from anywhere
                self.runs[experiment, ask.run] = run
            else:
                # where the keys of its noise are no longer needed, none may stay in its file
                self._keep(experiment, run, anew=before is not state.memory)
        return wire.Stepped(ask.run, ask.turn, upload)

    def _for_people(self, known: Experiment, algorithm: Algorithm) -> Policy | None:
        """The policy where its rule of few people is about a run: noise makes it needless, and
        rows that are held out have rules for themselves.
        """
        policy = self.guard.policy
        if policy is None or algorithm.held_out:
            return None
        return None if policy.leaves_to_noise(known.problem.privacy is not None) else policy

    def _check_people(self, known: Experiment, name: str, run: LocalRun, told: Answered) -> None:
        """Raise `RefusedByPolicyError` where an answer hangs on too few people; what leaves is kept
        before.
        """
        policy = self._for_people(known, masked.carried_by(run.algorithm))
        if policy is None:
            return
        if isinstance(run.algorithm, masked.SecureSummed):
            if not isinstance(told.ask, masked.Work):
                return
            ask, own = masked.asked_of(told.ask), told.memory.own
            told = told._replace(ask=ask, upload=None, before=None, memory=own)
        if self.answers is None:
            self.answers = Answers(self.folder / SELECTIONS)
        unknown = unjudged(policy, masked.carried_by(run.algorithm), told.problem, told.ask)
        refusal = unknown or self.answers.refusal(policy, name, known.people, told)
        if refusal is not None:
            raise RefusedByPolicyError([refusal])

    def _charged(self, known: Experiment, experiment: str, run: LocalRun) -> PrivateRun:
        """By what the privacy ledger knows a run."""
        method = hashlib.sha256(run.state.method.tobytes()).hexdigest()
        rows = known.metadata.digests()[known.metadata.position(self.name)]
        return PrivateRun(known.proposal.server or "", experiment, run.state.run, method, rows)

    def _run(self, known: Experiment, experiment: str, name: str) -> LocalRun | None:
        """A run that the site takes part in, from its disk where this process does not know it."""
        run = self.runs.get((experiment, name))
        if run is None:
            kept = self._kept(experiment, plain_name(name), RunState)
            if kept is not None and kept.run == name:
                run = LocalRun(kept, self._algorithm(kept.method, known))
                _remember(self.runs, (experiment, run.state.run), run)
        return run

    def _keep(self, experiment: str, run: LocalRun, anew: bool = False) -> None:
        """Write where a run is, before anything of it leaves the site; ``anew``: without what its
        file has held before.
        """
        state, secret = run.state, run.algorithm.private
        file = self._file(experiment, plain_name(state.run))
        # where no noise is paid for, a site that loses its power may have lost the run as well
        how = {"destroy_old": secret, "anew": anew, "sync": secret}
        write_in_turns(file, state.turn, codec.encode(state), **how)
        _remember(self.runs, (experiment, run.state.run), run)

    def _make_room(self, experiment: str) -> None:
        """Remove the oldest runs of algorithms that keep nothing, such as those of certificates,
        where an experiment has too many; `RefusedByPolicyError` where all keep something.
        """
        folder = self._file(experiment, "agreed").parent
        files = [each for each in folder.iterdir() if each.name != "agreed"]
        if len(files) < MOST_RUNS:
            return
        for file in sorted(files, key=lambda each: each.stat().st_mtime_ns):
            if len(files) <= MOST_RUNS // 2:
                return
            kept = self._kept(experiment, file.name, RunState)
            if kept is None or method_of(kept.method.tobytes()).stateless:
                file.unlink()
                self.runs.pop((experiment, "" if kept is None else kept.run), None)
                files.remove(file)
        if len(files) >= MOST_RUNS:
            text = f"the site keeps {len(files)} of this experiment, and at most {MOST_RUNS} are"
            raise refuses("runs", f"{text} kept: begin another experiment.")

    # ---- its disk

    def _file(self, experiment: str, name: str) -> Path:
        return self.folder / plain_name(experiment) / name

    def _kept(self, experiment: str, name: str, kind: type) -> Any:
        """A record from the site's disk; None where there is none, or one that is damaged."""
        try:
            file = self._file(experiment, name)
            data = read_in_turns(file) if kind is RunState else file.read_bytes()
            kept = None if data is None else codec.decode(data)
        except (FileNotFoundError, codec.CodecError):
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
    file = WatchedSite(folder)
    site = file.site
    if site.site.name != name:
        raise ValueError(
            f"the engine knows this site as {name!r}, and its site.toml as {site.site.name!r}:"
            " give both the same name."
        )
    sign = None if site.key is None else signer(site.key)
    make_folder(site.state)
    with ExitStack() as held:
        # the process of an earlier job may linger
        alone = Lock(site.state / "lock").alone(f"another process works for {name}", BUSY)
        held.enter_context(alone)
        log = AuditLog.open(site.log, name)
        log.note(f"opened with the policy {site.policy.digest()}")
        guard, secret = Guard(site.policy, log, package_digest()), secret_of(site)
        rows = of_site(site, secret)
        return Party(name, rows, site.state, guard, sign, held.pop_all(), file, secret)


def size_of(rows: Federation | None) -> int:
    """How many rows a site holds out."""
    return 0 if rows is None else int(rows.sizes[0])


def parameters_of(problem: Problem, facts: Introduced) -> int | None:
    """How many parameters a model of a site's features has at least; None where the site would have
    to know the classes of others.
    """
    predictor, d = problem.predictor, len(facts.features)
    classes = len(facts.labels) if problem.loss.targets == "class" else None
    try:
        if hasattr(predictor, "sized"):
            predictor = predictor.sized(d, classes)
        return int(predictor.dimension(d))
    except ValueError:
        return None


def _check_form(message: Any, n_clients: int) -> None:
    """Raise `RefusedByPolicyError` unless all fields of a message, as a site receives it, have the
    types and shapes of its class: of every client's numbers those of one client, and of no others'
    all. An array of another shape may weigh every row by itself, while the rule of few people goes
    by the weights of the whole site (`bonafed.sites.people`).
    """
    marks = visibility(type(message))
    own = "each" in marks.values() or "version" in marks.values()
    told = {name: getattr(message, name) for name, mark in marks.items() if mark == "version"}
    try:
        told = {name: value for name, value in told.items() if value is not None}
        if odd := [n for n, value in told.items() if getattr(value, "shape", ())[:1] != (1,)]:
            raise ValueError(f"{odd[0]} is not one client's")
        shown = {name: value[0] for name, value in told.items()}
        fields = Fields(1 if own else n_clients, 0)
        fields.check(codec.changed(message, **shown), type(message), type(message).__name__)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise refuses(wire.DAMAGED, f"{error}.") from error


def _remember(held: dict[Any, Any], key: Any, value: Any) -> None:
    """Have a value in memory, and forget the one that came first of too many."""
    held[key] = value
    for old in [*held][:-KEPT]:
        del held[old]


QUESTIONS = (Introduce, Agree, wire.StartRun, wire.Step)


def _is_plain(envelope: wire.Envelope) -> bool:
    """Whether an envelope has a question, all of whose fields are what they have to be; the message
    of a run is held to its form once the site knows the run.
    """
    body = envelope.body
    if type(body) not in QUESTIONS or not _is_shallow(body, DEEPEST):
        return False
    if isinstance(body, wire.Step):
        if type(body.message) not in codec.FIELDS:
            return False
        body = replace(body, message=None)
    try:
        Fields(1, 0).check(replace(envelope, body=body), wire.Envelope, "message")
    except (ValueError, TypeError, LookupError, AttributeError):
        return False
    return envelope.number < 2**53 and getattr(body, "turn", 0) < 2**63


def _is_shallow(value: object, levels: int) -> bool:
    """Whether a value is nested so many levels deep at most, so that all can walk through it."""
    if type(value) in codec.FIELDS:
        value = [getattr(value, name) for name in codec.FIELDS[type(value)]]
    elif isinstance(value, dict):
        value = [*value.values()]
    if not isinstance(value, list | tuple):
        return True
    return levels > 0 and all(_is_shallow(part, levels - 1) for part in value)
