"""The signed answers on which a certificate stands, and the check of the certificate from them.

The server keeps what every site told of its rows, its agreement, and its answers in the rounds of
certificates, as the bytes that arrived (`SignedAnswers`). Anyone who has the sites' public keys,
the statement of the problem, the model and its duals computes the certificate again
(`verify_signed`). The rows stay at the sites, and nothing that the server states is believed:

- Every answer is signed by its site, and names the digest of its question. The questions are made
  anew here: the first from the problem, the second from what the sites told, those of the rounds
  from these, the model and the duals. So an answer about another problem, with other sites, from
  another run, or at another model is noticed.
- The rounds are those of `certify`, run with the signed answers in place of clients.

A run has several such files: one for each model that has a certificate, and one for the round in
which the sites judge the models on the rows that they hold out. They travel as one file
(`together`), each under the name of its model or `HELD_OUT`.

The numbers of a question that are computed may differ in their last digits on another machine. So
the file has the questions as well, which the sites signed to the last bit, and these have to agree
with those that are computed here to ``CLOSE``.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.certificates.certificate import Certificate
from bonafed.certificates.certify import ROUNDS, Weigh, WeighAlong, Weighing, certify_constrained
from bonafed.certificates.duality import certify_run
from bonafed.certificates.row_ranks import certify_ranks
from bonafed.codec import CodecError, decode, encode, record
from bonafed.engines.batching import Known
from bonafed.engines.engine import Run, handler
from bonafed.engines.wire import Envelope, StartRun, Step, Stepped
from bonafed.problem.lower_bounds import Duals, Multipliers
from bonafed.problem.metadata import Introduced, Metadata
from bonafed.problem.problem import Problem, only_constrained
from bonafed.rounds import Algorithm, Outcome, Round, Stop, combine, marks, rows
from bonafed.runs.checks import Check, compared
from bonafed.runs.files import UNREADABLE, Record, plain
from bonafed.sites.judging import Judging
from bonafed.sites.session import Agree, Agreed, Introduce, method_bytes, method_of
from bonafed.sites.signatures import SignatureError, asked, opened
from bonafed.solution.tables import Limits
from bonafed.statements import stated, statement_bytes
from bonafed.text import listed, printable, short, shown

Proving = Duals | Multipliers | None  # on which a certificate stands
FORMAT = "bonafed signed answers 1"
PARTS = "bonafed signed answers of a run 1"
MAIN, HELD_OUT = "model", "held out"  # names of parts, beside those of baselines
KEPT = (*ROUNDS, Judging)  # the rounds whose answers are kept
LENGTH = 8  # bytes of a length
CLOSE = 1e-10  # of questions that are computed, relative to their largest number
GIVEN = ("w", "points", "rows", "split", "models")  # numbers of a question that nobody computes
FREE = "shift"  # the only ones with any values of which a bound is proved
# what numbers can raise that a server or a site chose
UNUSABLE = (*UNREADABLE, IndexError, AssertionError)


@record
class SignedRun:
    """The rounds of one certificate: the run's name, its algorithm, and what all sites were asked
    in each round.
    """

    run: str
    method: NDArray[np.uint8]
    messages: tuple[Any, ...]


@record
class SignedParts:
    """The names and sizes, in bytes, of several files of signed answers, which follow."""

    format: str
    names: tuple[str, ...]
    sizes: tuple[int, ...]


def together(files: Mapping[str, bytes]) -> bytes:
    """Several files of signed answers as the bytes of one."""
    head = encode(SignedParts(PARTS, tuple(files), tuple(map(len, files.values()))))
    return b"".join([len(head).to_bytes(LENGTH, "big"), head, *files.values()])


def _split(data: bytes, start: int, sizes: Sequence[int]) -> list[bytes]:
    """The parts of these sizes that stand one after the other from a byte on, to the end."""
    ends = [*accumulate(sizes, initial=start)]
    if ends[-1] != len(data):
        raise CodecError(f"it has {len(data)} bytes and needs {ends[-1]}: it was cut or run on")
    return [data[end - size : end] for size, end in zip(sizes, ends[1:], strict=True)]


def apart(data: bytes) -> dict[str, bytes]:
    """The files that are in one, by name.

    Raises
    ------
    CodecError : they cannot be told apart
    """
    start = LENGTH + int.from_bytes(data[:LENGTH], "big")
    head = decode(data[LENGTH:start])
    if not isinstance(head, SignedParts) or head.format != PARTS:
        raise CodecError(f"it is not a file of {PARTS!r}")
    whole = all(type(size) is int and size >= 0 for size in head.sizes)
    if not whole or len(head.sizes) != len({*head.names}):
        raise CodecError(f"it is not a file of {PARTS!r}")
    return dict(zip(head.names, _split(data, start, head.sizes), strict=True))


@record
class SignedHead:
    """What the server states of the signed answers that follow it in the file.

    Attributes
    ----------
    experiment, sites : their names
    software : the version of bonafed at the server, as every site was told
    sizes : (2 + rounds, N) bytes of the answers: what the sites told, their agreements, all rounds
    """

    format: str
    experiment: str
    sites: tuple[str, ...]
    software: str
    runs: tuple[SignedRun, ...]
    sizes: NDArray[Any]


# ----------------------------------------------------------------------------------------- keeping


@dataclass
class _Kept:
    """A run of a certificate: by turn and site the message and the answer."""

    method: NDArray[np.uint8]
    rounds: dict[int, dict[str, tuple[Any, bytes]]] = field(default_factory=lambda: {})


class SignedAnswers:
    """Keeps the answers of one experiment on which certificates stand, and those that judge models.

    Give its ``keep`` to `agree`, and write ``file()`` once the certificate is there; ``end``
    begins another file of the same experiment.
    """

    def __init__(self) -> None:
        self.experiment = ""
        self.agree: Agree | None = None
        self.introduced: dict[str, bytes] = {}
        self.agreed: dict[str, bytes] = {}
        self.runs: dict[str, _Kept] = {}

    def keep(self, question: Envelope, answer: bytes) -> None:
        """Keep an answer where a certificate stands on it."""
        ask, site = question.body, question.site
        self.experiment = question.experiment
        if isinstance(ask, Introduce):
            self.introduced[site] = answer
        elif isinstance(ask, Agree):
            self.agree, self.agreed[site] = ask, answer
        elif isinstance(ask, StartRun) and isinstance(method_of(ask.method.tobytes()), KEPT):
            self.runs.setdefault(ask.run, _Kept(ask.method))
        elif isinstance(ask, Step) and ask.run in self.runs:
            self.runs[ask.run].rounds.setdefault(ask.turn, {})[site] = ask.message, answer

    def end(self) -> None:
        """Forget the rounds so far, and not what the sites told and agreed to."""
        self.runs.clear()

    @property
    def signers(self) -> tuple[str, ...]:
        """The sites that sign what they send."""
        replies = {site: decode(data) for site, data in self.introduced.items()}
        return tuple(sorted(site for site, reply in replies.items() if reply.signature is not None))

    def file(self) -> bytes:
        """The answers with their questions, as the bytes of a file.

        Raises
        ------
        ValueError : the sites have not agreed yet
        """
        if self.agree is None:
            raise ValueError("no experiment has been agreed: keep the answers of `agree` as well.")
        ask, sites = self.agree.ask, tuple(str(each.client) for each in self.agree.introductions)
        runs, answers = [], [[of[name] for name in sites] for of in (self.introduced, self.agreed)]
        for run, kept in self.runs.items():
            messages = []
            for turn in sorted(kept.rounds):
                of_turn = [kept.rounds[turn].get(name) for name in sites]
                whole = [pair for pair in of_turn if pair is not None]
                if turn != len(messages) or len(whole) < len(sites):
                    break  # the run ended here
                messages.append(_together([message for message, _ in whole]))
                answers.append([answer for _, answer in whole])
            runs.append(SignedRun(run, kept.method, tuple(messages)))
        named = FORMAT, self.experiment, sites, ask.software
        return SignedFile(SignedHead(*named, tuple(runs), np.empty((0, 0))), answers).data()


def _together(messages: Sequence[Any]) -> Any:
    """The message to all sites, from those that each of them was sent: the inverse of ``rows``."""
    first, stacked = messages[0], dict[str, Any]()
    for name, how in marks(type(first)):
        if how == "each" and getattr(first, name) is not None:
            stacked[name] = np.concatenate([getattr(message, name) for message in messages])
    return replace(first, **stacked)


# ----------------------------------------------------------------------------------------- reading


class SignedFile(NamedTuple):
    """The head and the answers, by round and site, as they stand one after the other in a file:
    the length of the head, the head, every answer.
    """

    head: SignedHead
    answers: list[list[bytes]]

    @classmethod
    def of(cls, data: bytes) -> "SignedFile":
        """The parts of a file; raises one of ``UNUSABLE`` where they cannot be told apart."""
        start = LENGTH + int.from_bytes(data[:LENGTH], "big")
        head = decode(data[LENGTH:start])
        if not isinstance(head, SignedHead) or head.format != FORMAT or not _is_sound(head):
            raise CodecError(f"it is not a file of {FORMAT!r}")
        rounds, n = 2 + sum(len(run.messages) for run in head.runs), len(head.sites)
        if head.sizes.shape != (rounds, n) or not n or head.sizes.min() < 0:
            raise CodecError("its answers are not those of every site in every round")
        flat = _split(data, start, head.sizes.ravel().tolist())
        return cls(head, [flat[k : k + n] for k in range(0, len(flat), n)])

    def data(self) -> bytes:
        """The bytes of the file, with the sizes that the answers have."""
        sizes = np.array([[*map(len, of_round)] for of_round in self.answers], np.int64)
        head = encode(replace(self.head, sizes=sizes))
        flat = [answer for of_round in self.answers for answer in of_round]
        return b"".join([len(head).to_bytes(LENGTH, "big"), head, *flat])


def _is_sound(head: SignedHead) -> bool:
    """Whether all parts have their types, no matter who wrote them."""
    if not all(isinstance(run, SignedRun) for run in head.runs):
        return False
    parts = [(text, str) for text in (head.experiment, head.software, *head.sites)]
    for run in head.runs:
        parts += [(run.run, str), (run.method, np.ndarray), (run.messages, tuple)]
    return all(isinstance(part, kind) for part, kind in parts)


Ask = Callable[[int], Any]  # the question to a site, by its number


@dataclass
class _Answers:
    """The answers of all sites, each held against its signature and its question.

    ``faults`` are by site, in words.
    """

    file: SignedFile
    keys: Mapping[str, bytes]
    faults: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def of_round(self, k: int, what: str, kind: type, ask: Ask, *known: bytes) -> list[Any]:
        """The bodies of all sites' answers in round ``k`` of the file, None for one that differs.

        Parameters
        ----------
        what : the round, in words
        kind : the class of a body
        ask : the question to a site, by its number
        known : digests of what the answer depends on beside the question
        """
        bodies = [None] * len(self.file.head.sites)
        for i, site in enumerate(self.file.head.sites):
            try:
                if site in self.keys:
                    bodies[i] = self._body(self.file.answers[k][i], site, kind, ask(i), known)
            except UNUSABLE as error:
                self.faults[site].append(f"its answer to {what}: {error}")
        return bodies

    def _body(self, data: bytes, site: str, kind: type, ask: Any, known: Sequence[bytes]) -> Any:
        """The body of one answer; raises where it is not this site's answer to this question."""
        reply, experiment = opened(data, self.keys[site]), self.file.head.experiment
        if (reply.experiment, reply.site) != (experiment, site):
            of = f"that of {shown(reply.site)} in the experiment {shown(reply.experiment)}"
            raise SignatureError(f"it is {of}")
        if reply.asked != asked(encode(Envelope(experiment, site, reply.number, ask)), *known):
            raise SignatureError("the site signed an answer to another question")
        if not isinstance(reply.body, kind):
            raise SignatureError(f"it is a {type(reply.body).__name__}, not a {kind.__name__}")
        return reply.body


# ---------------------------------------------------------------------------------------- checking


class Answered(NamedTuple):
    """What all sites signed in one experiment.

    Attributes
    ----------
    checks : one for each site
    problem : as the sites read it
    metadata : what the sites told of their rows
    engine : answers as they did
    """

    checks: list[Check]
    problem: Problem
    metadata: Metadata
    engine: "_Recorded"


class Verified(NamedTuple):
    """The result of `verify_signed`.

    Attributes
    ----------
    checks : one for each site, one for the certificate
    metadata : what the sites told of their rows; None where not all of it could be checked
    certificate : computed again from the signed answers, or None
    limits : of the constraints, as their owners told them, where there are any
    """

    checks: list[Check]
    metadata: Metadata | None = None
    certificate: Certificate | None = None
    limits: Limits | None = None


def verify_signed(
    data: bytes,
    problem: Problem,
    w: Array,
    duals: Proving,
    numbers: Mapping[str, Any],
    keys: Mapping[str, bytes],
    *,
    roles: str = "",
    infeasible: bool = False,
    bounded: bool = True,
) -> Verified:
    """Check a certificate against what the sites signed, without trust in the server.

    Parameters
    ----------
    data : the file that `SignedAnswers` made
    problem : as it was stated to the sites
    w : (D,) the model
    duals : the duals or multipliers on which the certificate stands
    numbers : those that are stated of the certificate, see ``Certificate.numbers``
    keys : the public keys of exactly the sites that take part, see `signatures.read_keys`
    roles : what the columns of the sites' tables are for, ``Roles.text()``
    infeasible : whether the multipliers are to prove that no model meets all constraints
    bounded : False where the proof failed, and the certificate states no bound

    Returns
    -------
    Verified
        a check for each site, which fails where anything of this site differs, and one for the
        certificate, whose ``ok`` is None where the sites' answers leave nothing to compute with
    """
    told = answered(data, problem, keys, roles)
    if not isinstance(told, Answered):
        return Verified(told)
    try:
        proof = proof_of(told, w, duals, infeasible, bounded)
        sizes = told.metadata.sizes  # cuts of the mean over all rows count every row alike
        weights = proof.certificate.weights if problem.over_rows is None else sizes / sizes.sum()
        check = _compared(proof.certificate, duals, {**numbers}, weights)
    except UNUSABLE as error:
        check = Check("signed certificate", False, f"cannot be computed again: {error}")
        return Verified([*told.checks, check])
    return Verified([*told.checks, check], told.metadata, *proof)


def answered(
    data: bytes, problem: Problem, keys: Mapping[str, bytes], roles: str = ""
) -> Answered | list[Check]:
    """What all sites signed in the experiment of a file, or the checks of which one fails; see
    `verify_signed` for the parameters.
    """
    try:
        file = SignedFile.of(data)
    except UNUSABLE as error:
        text = f"the file of signed answers cannot be read: {error}"
        return [Check("signed answers", False, text)]
    answers = _Answers(file, keys)
    names, faults = file.head.sites, answers.faults  # the sites are those whose keys are given
    for name in [name for name in names if name not in keys]:
        faults[name].append("its public key is not among those given")
    for name in [name for name in keys if names.count(name) != 1]:
        faults[name].append(f"its key is given, and it takes part {names.count(name)} times")
    written = statement_bytes(problem)
    problem = stated(written, Problem)  # as the sites read it
    ask = Introduce(np.frombuffer(written, np.uint8), file.head.software, roles)
    introduced = answers.of_round(0, "the problem, about its rows", Introduced, lambda i: ask)
    # What every site told of its rows
    for name, told in zip(names, introduced, strict=True):
        if told is not None and str(told.client) != name:
            faults[name].append(f"it told of rows of {shown(told.client)}")
    if faults:
        return _by_site(answers, introduced, [])
    agree = Agree(ask, tuple(introduced))
    agreed = answers.of_round(1, "what the sites told", Agreed, lambda i: agree)
    uploads = _uploads(answers, hashlib.sha256(encode(agree)).digest())
    sites = _by_site(answers, introduced, agreed)
    if answers.faults:
        return sites
    try:
        metadata = Metadata.of(introduced)
    except UNUSABLE as error:
        return [*sites, Check("signed answers", False, f"the sites do not fit together: {error}")]
    return Answered(sites, problem, metadata, _Recorded(file.head.runs, uploads))


def _uploads(answers: _Answers, agreement: bytes) -> list[list[list[Any]]]:
    """What every site uploaded, by run and round."""
    k, uploads = 2, []
    for run in answers.file.head.runs:
        method, of_run = hashlib.sha256(run.method.tobytes()).digest(), []
        for turn, message in enumerate(run.messages):

            def ask(i: int, run: SignedRun = run, turn: int = turn, message: Any = message) -> Step:
                return Step(run.run, turn, rows(message, [i]))

            what = f"{type(message).__name__} in round {turn + 1} of a certificate"
            bodies = answers.of_round(k, what, Stepped, ask, agreement, method)
            of_run.append([None if body is None else body.upload for body in bodies])
            k += 1
        uploads.append(of_run)
    return uploads


def _by_site(
    answers: _Answers, introduced: Sequence[Introduced | None], agreed: Sequence[Agreed | None]
) -> list[Check]:
    """A check for every site that is named anywhere."""
    faults, told = answers.faults, list[tuple[str, bool, str]]()
    for i, (name, each) in enumerate(zip(answers.file.head.sites, introduced, strict=True)):
        if name in faults or each is None:
            continue
        text = f"signed that it has {each.rows} rows of digest {each.digest}"
        if agreed and (yes := agreed[i]) is not None:
            text += f", policy {yes.policy or 'none'}, bonafed {yes.software}"
            text += f"; and {len(answers.file.answers) - 2} answers"
        told.append((name, True, text))
    for name, texts in faults.items():
        more = f", and {len(texts) - 1} more" if len(texts) > 1 else ""
        told.append((name, False, f"{printable(texts[0])}{more}"))
    checks = [Check(f"site {short(printable(name), 64)}", ok, text) for name, ok, text in told]
    if faults:
        text = f"not computed again, because of {listed(faults, len(faults))}"
        checks.append(Check("signed certificate", None, text))
    return checks


class Proof(NamedTuple):
    """A certificate, and the limits of constraints."""

    certificate: Certificate
    limits: Limits | None = None


def proof_of(
    told: Answered, w: Array, duals: Proving, infeasible: bool = False, bounded: bool = True
) -> Proof:
    """The certificate by the signed answers."""
    of = told.problem, told.metadata, w
    if only_constrained(told.problem) or isinstance(duals, Multipliers):
        if isinstance(duals, Duals):
            raise ValueError("a problem with constraints needs multipliers, and has duals")
        certificate, runs = certify_constrained(*of, duals, told.engine, infeasible, bounded)
        first = runs[0].state.first
        return Proof(certificate, Limits(first.limits, first.shared_limits))
    by = certify_run if told.problem.over_rows is None else certify_ranks
    return Proof(by(*of, duals, told.engine)[0])


def _compared(certificate: Certificate, duals: Proving, numbers: Record, weights: Array) -> Check:
    """The numbers that are stated against those that were computed again; ``weights`` (N,) are
    those that duals have.
    """
    was, now = plain(numbers), plain(certificate.numbers())
    now["consensus"] = was.get("consensus")  # of the clients' copies, which stay with them
    if isinstance(duals, Duals):
        was, now = {**was, "duals": plain(duals.weights)}, {**now, "duals": plain(weights)}
    check = compared("signed certificate", was, now, abs(certificate.value))
    text = f"value {certificate.value:.9g}, from what the sites signed"
    return replace(check, text=text) if check.ok else check


class _Recorded:
    """The engine whose clients are signed answers to the very questions that an algorithm asks."""

    def __init__(self, runs: Sequence[SignedRun], uploads: Sequence[list[list[Any]]]) -> None:
        self.runs = [*zip(runs, uploads, strict=True)]

    def run(self, algorithm: Algorithm, federation: Known, **how: Any) -> Run:
        """Run the rounds of a certificate; ``ValueError`` where the sites were asked otherwise."""
        method, why = method_bytes(algorithm), "they were asked for no such certificate"
        for run, uploads in self.runs:
            if run.method.tobytes() != method:
                continue
            try:
                return _again(algorithm, federation.n_clients, run, uploads)
            except _OtherQuestionError as other:
                why = str(other)
        raise ValueError(f"the sites' answers are not about this model and these duals: {why}")

    def beside_run(self) -> "_Recorded":
        """The same answers."""
        return self


class _OtherQuestionError(ValueError):
    """The sites were asked something else."""


def _again(algorithm: Algorithm, n: int, run: SignedRun, uploads: list[list[Any]]) -> Run:
    """The rounds of an algorithm with what the sites uploaded in a run."""
    (state, ask), turn = algorithm.server_start(n), 0
    while isinstance(ask, Round):
        if turn == len(run.messages):
            # each of its rounds proves a bound of its own
            if isinstance(algorithm, Weighing) and turn:
                break
            raise _OtherQuestionError(f"there is no answer to {type(ask.message).__name__}")
        message = run.messages[turn]
        if isinstance(algorithm, Weighing):
            if isinstance(message, WeighAlong):  # on the way to a shift, and part of no bound
                turn += 1
                continue
            state = replace(state, moving=None)
            ask = algorithm.question(state, n)
        _check_question(message, ask.message)
        if isinstance(message, Weigh):  # the state goes with what the sites were asked
            state = replace(state, shift=message.shift)
        parts = [([i], upload) for i, upload in enumerate(uploads[turn])]
        combined = combine(type(parts[0][1]), parts)
        step = handler(algorithm.on_server, type(combined), algorithm)
        state, ask = step(state, tuple(range(n)), combined)
        turn += 1
    counts = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros((2, n), np.int64)
    return Run(state, Outcome(Stop.OPTIMAL, ""), [], [], turn, None, (None,) * n, *counts)


def _check_question(told: Any, again: Any) -> None:
    """Raise unless the sites were asked what is asked here, to rounding."""
    kind = type(again).__name__
    if type(told) is not type(again):
        raise _OtherQuestionError(f"they were asked a {type(told).__name__}, and not a {kind}")
    for name, _ in marks(type(again)):
        was, now = getattr(told, name), getattr(again, name)
        if isinstance(was, np.ndarray) and isinstance(now, np.ndarray):
            same = (was.dtype, was.shape) == (now.dtype, now.shape) and bool(np.isfinite(was).all())
            if same and name != FREE:
                far = float(np.abs(was - now).max(initial=0.0))
                close = 0.0 if name in GIVEN else CLOSE
                same = far <= close * float(np.abs(now).max(initial=0.0))
        elif is_dataclass(now):
            _check_question(was, now)
            same = True
        else:
            same = type(was) is type(now) and was == now
        if not same:
            raise _OtherQuestionError(f"the sites were asked with other numbers {kind}.{name}")
