"""Any algorithm with the sums of its answers carried by the secure sum: the protocol is itself a
federated algorithm, so that every engine carries it without knowing it.

    Enrol -> keys, Enter -> shares                  once
    Work -> masked answer, Open -> opened           for every round of the algorithm

A client takes the algorithm's step when it gets ``Work``, once for each message. It masks the
``Sum`` fields of its answer as one vector, under masks that cancel only where all were sent the
same message (but for their own rows of ``Each`` fields); its other fields travel as they are. With
``Open`` it opens this round's masks, and at once shares the secrets of the next round, so that a
round of the algorithm is two rounds of the engine.

Clients that do not answer in time are left out of the sum where the algorithm says that so many are
enough (``Algorithm.quorum``); else the server waits for all. What comes too late stays masked, and
anyone who sent it takes part again from the round after the next opening on. Where too few are left
of those who began a sum, those that are there begin another one, with the answers that they have.
An algorithm that goes on while others are in flight waits here for all that it asks: a sum is over
a set of clients that is known before it is opened.

What a client sends differs in kind and length with the step and may come late, so it is one
``Parcel``: the bytes of a record, preceded by their number.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bonafed import rounds as records
from bonafed.arrays import Block, Streams, stream
from bonafed.codec import Form, changed, decode, encode, fingerprint, record
from bonafed.engines import endings, engine
from bonafed.privacy.secure_sum import masking
from bonafed.privacy.secure_sum import messages as secure
from bonafed.privacy.secure_sum import protocol as at_client
from bonafed.privacy.secure_sum import protocol as at_server
from bonafed.privacy.secure_sum.messages import SecureSum
from bonafed.privacy.secure_sum.protocol import Client, Server
from bonafed.rounds import Algorithm, Conclude, Done, Parcel, Round

POLLS = 2  # answers of others before those that are waited for count as lost
OwnRows = Annotated[secure.Array, "each"]  # of any dtype
Fields = tuple[tuple[str, str, tuple[int, ...]], ...]  # of Sum fields: name, kind, shape
Step = tuple["SumMemory", Any]  # what a client keeps and answers
Next = tuple["SumState", Round | Done]


@record
class Enrol:
    """Down, once: what all agree on, and that a key is wanted."""

    terms: secure.Terms


@record
class Enter:
    """Down: the keys of all that take part, and the number of the round to share secrets for."""

    roster: secure.Roster
    number: int


@record
class Work:
    """Down: a message of the algorithm, and the shares of those whose answers are added up."""

    number: int
    turn: int  # the number of the algorithm's round: its step is taken once
    message: secure.Array  # its bytes, without its Each fields
    rows: OwnRows | None  # (N, W) the bytes of each client's own row of these
    senders: secure.Array  # (m,)
    nonces: secure.Array  # (m, 12)
    sealed: OwnRows  # (N, m, 80)


@record
class Open:
    """Down: whose answers arrived and whose did not, and the number of the next round."""

    number: int
    stayed: secure.Array
    dropped: secure.Array
    next: int


@record
class Sealed:
    """Up: a key, shares for other clients' eyes, a masked answer, or shares of masks to open."""

    parcel: Parcel


@record
class Hidden:
    """In a parcel: an answer of the algorithm whose sums are masked."""

    masked: secure.Masked
    fields: Fields
    rest: secure.Array  # the bytes of the answer without its Sum fields

    @property
    def clear(self) -> Any:
        """The answer, with None for its Sum fields."""
        return decode(self.rest.tobytes())


@record
class Opened:
    """In a parcel: shares of this round's masks, and the secrets of the next, shared."""

    revealed: secure.Revealed | None  # None of a client that was not in the round
    shares: secure.Shares


@record
class SumMemory:
    """What a client keeps: its part of the protocol, and what it keeps for the algorithm."""

    secret: secure.Array  # (n, W) uint8; empty where keys are simulated
    simulated: secure.Array  # (n, W) uint8, the same with simulated keys
    taken: NDArray[np.int64]  # (n,) steps of the algorithm
    own: Any
    last: secure.Array  # (n, W) uint8: the last answer, and the round that it is of


@record
class SumState:
    """What the server keeps: the algorithm's state and request, and the protocol's."""

    inner: secure.Array  # the bytes of both, whose rounds are not those of the engine
    wanted: tuple[int, ...]  # whom the algorithm asks
    busy: NDArray[np.bool_]  # (N,) who has not answered yet, this stage or an earlier one
    present: NDArray[np.uint8]  # (rounds, bytes) the bits of who was in each sum
    told: secure.Array  # the bytes of what the sums so far say of all clients' rows
    protocol: Server | None = None
    roster: secure.Roster | None = None
    stage: str = "keys"  # what is waited for
    # of the round of sums, by which late answers are known
    number: Annotated[int, Form(least=-1)] = -1
    anew: int = 0  # how often a sum was begun anew in this round of the algorithm
    polls: int = 0  # how often others have answered in this stage since
    asked: tuple[int, ...] = ()  # whose answers are of this stage
    got: tuple[tuple[int, Any], ...] = ()  # those that have come
    hidden: tuple[tuple[int, Any], ...] = ()  # the answers that are about to be opened

    @property
    def rounds(self) -> int:
        """The finished rounds of the algorithm."""
        return len(self.present)

    def in_open_sum(self, on_their_way: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(N,) who may have answered in a sum that was begun and not finished, where messages to
        these clients were on their way: enough of them may have opened it.
        """
        sent = bool(self.got) or on_their_way[list(self.asked)].any()
        begun = self.hidden or self.anew or (self.stage == "answers" and sent)
        asked = np.zeros(len(self.busy), bool)
        asked[list(self.wanted)] = bool(begun)
        return asked

    def of_algorithm(self) -> tuple[Any, Round | Done]:
        """The algorithm's state and request."""
        return decode(self.inner.tobytes())


@dataclass(frozen=True, eq=False)
class Earlier:
    """What the sums of earlier runs say of all clients' rows; a run is the same without it."""

    told: Any = None

    def described(self) -> str:
        """Nothing, of a run in a file."""
        return "Earlier"


@dataclass(frozen=True)
class SecureSummed(Algorithm):
    """An algorithm that is carried by the secure sum.

    Parameters
    ----------
    inner : the algorithm
    option : how its sums are carried
    seed : of the run, so that the algorithm's random numbers are those of a plain run
    earlier : the runs before it, at the server
    """

    # keys are there before the first message, one client steps after the other, and a checkpoint
    # keeps the keys in the clients' file
    private: ClassVar[bool] = True
    unstated: ClassVar[tuple[str, ...]] = ("earlier",)
    inner: Algorithm
    option: SecureSum
    seed: int
    earlier: Earlier = Earlier()

    @property
    def held_out(self) -> bool:  # type: ignore[override]
        """Whether it is about the rows that clients hold out."""
        return self.inner.held_out

    def for_clients(self) -> SecureSummed:
        """The same around the algorithm as clients are told it."""
        return replace(self, inner=self.inner.for_clients())

    def at_client(self, problem: Any, data: Any) -> SecureSummed:
        """The same around the algorithm with a client's problem."""
        return replace(self, inner=self.inner.at_client(problem, data))

    def doubts(self, told: Any, who: int, message: Any, upload: Any) -> tuple[Any, str]:
        """Those of the algorithm about what one client's answer has in the clear."""
        hidden = hidden_in(upload) if isinstance(message, Work) else None
        if hidden is None:
            return told, records.unreal(upload, {})
        return self.inner.doubts(told, who, asked_of(message), hidden.clear)

    def gradients(self, message: Any) -> float:
        """Those of the algorithm's message; the protocol needs none."""
        return self.inner.gradients(asked_of(message)) if isinstance(message, Work) else 0.0

    def report(self, state: SumState) -> dict[str, Any]:
        """Rounds and clients of the last sum, and the algorithm's numbers as text."""
        if not state.rounds:
            return {"sums": 0, "summed": 0, "report": ""}
        numbers = engine.reported(self.inner, state.of_algorithm()[0])
        summed = int(np.unpackbits(state.present[-1]).sum())
        return {"sums": state.rounds, "summed": summed, "report": json.dumps(numbers)}

    # ---- clients

    def client_start(self, data: Block) -> SumMemory:
        n = len(data.names)
        none = np.zeros((n, 0), np.uint8)
        return SumMemory(none, none, np.zeros(n, np.int64), self.inner.client_start(data), none)

    @property
    def on_client(self) -> Mapping[type, Callable[..., Step]]:
        steps = {Enrol: self._enrol, Enter: self._enter, Work: self._work, Open: self._open}
        made: dict[type, Any] = {kind: _one_by_one(step) for kind, step in steps.items()}
        made[Wait] = _one_by_one(lambda memory, ask, data, rng: (memory, None))
        if Conclude in self.inner.on_client:
            made[Conclude] = self._conclude
        return made

    def _kept(self, memory: SumMemory, client: Client) -> SumMemory:
        field = "secret" if self.option.keys == "secure" else "simulated"
        return changed(memory, **{field: _packed([encode(client)])})

    def _terms(self, clients: int) -> secure.Terms:
        """What all agree on. Of a private algorithm no sum is opened over fewer clients than its
        noise is planned for, whatever the server asks.
        """
        terms = self.option.terms(clients)
        if not self.inner.private:
            return terms
        return replace(terms, fewest=max(terms.least, self.inner.quorum(clients)))

    def _draw(self, rng: Streams) -> at_client.Draw:
        return secrets.token_bytes if self.option.keys == "secure" else rng(0).bytes

    def _enrol(self, memory: SumMemory, ask: Enrol, data: Block, rng: Streams) -> Step:
        terms, needed = ask.terms, self._terms(ask.terms.clients)
        if terms.least < needed.least or terms.threshold < needed.threshold:
            raise secure.SecureSumError(
                f"the server would open sums over {terms.least} of {terms.clients} clients with"
                f" the help of {terms.threshold}, and {needed.least} and {needed.threshold} are"
                " agreed on: nothing was sent. Give the server the secure sum that its run"
                " states."
            )
        client, answer = at_client.advertise(terms, int(data.index[0]), draw=self._draw(rng))
        return self._kept(memory, client), answer

    def _enter(self, memory: SumMemory, ask: Enter, data: Block, rng: Streams) -> Step:
        client = _client(memory)
        if client.stage == "keys":
            client = at_client.agree(client, ask.roster)
        begin = secure.BeginRound(ask.number)
        client, answer = at_client.share(client, begin, draw=self._draw(rng))
        return self._kept(memory, client), answer

    def _work(self, memory: SumMemory, ask: Work, data: Block, rng: Streams) -> Step:
        client, p = _client(memory), int(data.index[0])
        delivered = secure.Delivered(ask.number, ask.senders, ask.nonces, ask.sealed[0])
        if p not in ask.senders:
            return self._kept(memory, at_client.hold(client, delivered)), None
        if (last := _bytes_of(memory.last[0])) and (known := decode(last))[0] == ask.turn:
            _, asked, vector, wide, fields, rest = known  # too few others answered: once more
            if asked != fingerprint(ask.message):
                text = "a sum begun anew is of the same message: nothing was sent."
                raise secure.SecureSumError(text)
        else:
            memory, answer = self._stepped(memory, ask, data, client.terms.clients)
            vector, wide, fields, rest = answer
        client, masked = at_client.mask(client, delivered, vector, wide, ask.message.tobytes())
        return self._kept(memory, client), Hidden(masked, fields, rest)

    def _stepped(self, memory: SumMemory, ask: Work, data: Block, n: int) -> Step:
        """Take the algorithm's step."""
        message, taken = asked_of(ask), int(memory.taken[0])
        step = engine.handler(self.inner.on_client, type(message), self.inner)
        draws = lambda _: stream(self.seed, data.names[0], taken)  # noqa: E731
        own, upload = step(memory.own, message, data, draws)
        answer = self._whole(upload, n)
        last = _packed([encode((ask.turn, fingerprint(ask.message), *answer))])
        return replace(memory, taken=memory.taken + 1, own=records.settled(own), last=last), answer

    def _open(self, memory: SumMemory, ask: Open, data: Block, rng: Streams) -> Step:
        client, revealed = _client(memory), None
        if client.stage == "masked" and client.number == ask.number:
            unmask = secure.Unmask(ask.number, ask.stayed, ask.dropped)
            client, revealed = at_client.reveal(client, unmask)
        client, shares = at_client.share(client, secure.BeginRound(ask.next), draw=self._draw(rng))
        return self._kept(memory, client), Opened(revealed, shares)

    def _conclude(self, memory: SumMemory, ask: Conclude, data: Block, rng: Streams) -> Step:
        return memory, self.inner.on_client[Conclude](memory.own, ask, data, rng)[1]

    def _step(self, kind: type, name: str, dtype: np.dtype[Any]) -> float | None:
        """The step of a Sum field in words of 64 bits; None where it needs 128."""
        if dtype.kind in "biu":
            return 1.0
        return self.inner.grid(kind).get(name, self.option.step)

    def _whole(self, upload: Any, n: int) -> tuple[NDArray[np.uint64], bool, Fields, secure.Array]:
        """The Sum fields of one client's upload as one vector of words, whether these are pairs,
        the fields' forms, and the bytes of the upload without them.
        """
        kind = type(upload)
        given = _fields_of(upload, "sum")
        steps = {name: self._step(kind, name, value.dtype) for name, value in given.items()}
        wide, parts = None in steps.values(), [np.zeros(0, np.uint64)]
        for name, value in given.items():
            try:
                if (step := steps[name]) is None:
                    parts.append(masking.of_numbers(value, n))
                else:
                    whole = self.option.form(n, step).whole(value).ravel()
                    parts.append(masking.of_whole(whole) if wide else whole.view(np.uint64))
            except ValueError as error:
                raise ValueError(
                    f"{kind.__name__}.{name} cannot be added up securely: {error}"
                    + " SecureSum(step=...) with a larger step allows larger numbers."
                ) from error
        fields = tuple((name, value.dtype.str, value.shape[1:]) for name, value in given.items())
        rest = _octets(records.settled(changed(upload, **dict.fromkeys(steps))))
        return np.concatenate(parts), wide, fields, rest

    def _combined(self, hidden: Sequence[tuple[int, Hidden]], total: NDArray[np.int64]) -> Any:
        """What the algorithm's server receives: the answers' other fields, combined, and sums."""
        first = hidden[0][1]
        if others := [i for i, each in hidden if each.fields != first.fields]:
            raise ValueError(
                f"clients {[hidden[0][0], others[0]]} have answered with other Sum fields or"
                f" shapes: {first.fields}"
            )
        clear = [([i], each.clear) for i, each in hidden]
        kind, wide, at, sums = type(clear[0][1]), first.masked.wide, 0, dict[str, Any]()
        words = total.view(np.uint64).reshape(-1, 1 + wide)  # a row for each number
        for name, code, shape in first.fields:
            size, dtype = int(np.prod(shape)), np.dtype(code)
            part, step = words[at : at + size], self._step(kind, name, dtype)
            if step is None:
                numbers = masking.numbers(part.ravel()).astype(dtype)
            elif dtype.kind in "biu":  # of the kind that a plain sum has
                numbers = part[:, 0].astype(np.int64).astype(np.zeros(1, dtype).sum().dtype)
            else:
                form = self.option.form(2, step)
                numbers = form.numbers(part[:, 0].astype(np.int64)).astype(dtype)
            sums[name], at = numbers.reshape(shape)[()], at + size
        return changed(records.combine(kind, clear), **sums)

    # ---- server

    def server_start(self, n_clients: int) -> Next:
        terms, (inner, ask) = self._terms(n_clients), self.inner.server_start(n_clients)
        busy, present = np.zeros(n_clients, bool), np.zeros((0, -(-n_clients // 8)), np.uint8)
        begun = _octets((records.settled(inner), ask)), _wanted(ask, n_clients)
        state = SumState(*begun, busy, present, _octets(self.earlier.told))
        return self._asking(state, "keys", -1, Enrol(terms), range(n_clients))

    @property
    def on_server(self) -> Mapping[type, Callable[..., Next]]:
        return {Sealed: self._received}

    def _received(self, state: SumState, ids: Sequence[int], sealed: Sealed) -> Next:
        """Take the answers of this stage, and go on once there are enough; leave late ones."""
        busy, got = state.busy.copy(), dict(state.got)
        busy[list(ids)] = False
        for i, row in zip(ids, sealed.parcel, strict=True):
            stage, number, answer = decode(_bytes_of(row))
            if (stage, number) == (state.stage, state.number) and i in state.asked:
                got[i] = answer
        state = replace(state, busy=busy, got=tuple(sorted(got.items())))
        if self._missing(state) > 0:
            return self._short(state, late=not {*ids} <= got.keys())
        if state.stage == "keys":  # pass the keys on, and have the first secrets shared
            terms = self._terms(len(state.busy))
            protocol, roster = at_server.enrol(terms, [answer for _, answer in state.got])
            state = replace(state, protocol=protocol, roster=roster)
            return self._sharing(state, protocol.clients)
        if state.stage == "shares":
            ask = state.of_algorithm()[1]
            assert isinstance(ask, Round)
            return self._working(state, ask, dict(state.got))
        return self._opening(state) if state.stage == "answers" else self._summed(state)

    def _missing(self, state: SumState) -> int:
        """How many more answers this stage needs."""
        got, terms = dict(state.got), self._terms(len(state.busy))
        everybody = len(state.asked) - len(got)
        quorum = self.inner.quorum(len(state.wanted))
        if state.stage == "keys" or quorum >= len(state.wanted):
            return everybody
        if state.stage == "opened":
            in_round = [one for one in got.values() if one.revealed is not None]
            return min(everybody, terms.threshold - len(in_round))
        summed = len({*state.wanted} & {*got})
        more = max(max(quorum, terms.least) - summed, terms.threshold - len(got))
        return more if state.stage == "shares" else min(everybody, more)

    def _short(self, state: SumState, late: bool) -> Next:
        """Go on where answers are missing; ``late``: answers of earlier stages came in their place.

        Who has come back joins those that share secrets. A sum that has begun is begun anew with
        anyone who is there, where that is enough: those that are waited for may never come. They
        may as well be slow, so where late answers explain what is missing, they get the time in
        which those that were late answer twice more.
        """
        free = np.flatnonzero(~state.busy).tolist()
        if state.stage == "shares" and (more := [i for i in free if i not in state.asked]):
            roster, busy = state.roster, state.busy.copy()
            assert roster is not None
            busy[more] = True
            state = replace(state, busy=busy, asked=tuple(sorted((*state.asked, *more))))
            return state, Round(Enter(roster, state.number), tuple(more), 1)
        others = [i for i in free if i not in state.asked]
        if late and state.anew and state.polls < POLLS and others:
            busy = state.busy.copy()
            busy[others] = True
            return replace(state, busy=busy, polls=state.polls + 1), Round(Wait(), tuple(others), 1)
        # shares of a private sum that are out may still open it: its answers enter no other sum
        stages = ("answers",) if self.inner.private else ("answers", "opened")
        if state.stage in stages and state.anew < len(state.busy):
            quorum, terms = self.inner.quorum(len(state.wanted)), self._terms(len(state.busy))
            there = len({*free} & {*state.wanted}) >= max(quorum, terms.least)
            if there and len(free) >= terms.threshold:
                return self._sharing(replace(state, anew=state.anew + 1), free)
        return state, Round(Wait(), (), 1)

    def _asking(self, state: SumState, stage: str, number: int, message: Any, to: Any) -> Any:
        """The state and the request of a stage."""
        busy, asked = state.busy.copy(), tuple(sorted(to))
        busy[list(asked)] = True
        known = {"stage": stage, "number": number, "polls": 0}
        state = replace(state, **known, asked=asked, got=(), busy=busy)
        # where some may drop out, the rule of the engine says how many are waited for
        everybody = self._missing(state) == len(asked) == busy.sum()
        some = self.inner.quorum(len(state.wanted)) < len(state.wanted) and stage != "keys"
        wait_for = None if everybody and not some else 1
        return state, Round(message, None if len(asked) == len(busy) else asked, wait_for)

    def _sharing(self, state: SumState, to: Collection[int]) -> Next:
        """Begin a round of sums with those who can take part."""
        protocol, roster = state.protocol, state.roster
        assert protocol is not None and roster is not None  # noqa: PT018
        # clients that open a round share secrets for the next one
        used = protocol.number + (state.stage == "opened")
        protocol, begin = at_server.begin(protocol, used + 1)
        state = replace(state, protocol=protocol, hidden=())
        return self._asking(state, "shares", begin.number, Enter(roster, begin.number), to)

    def _working(self, state: SumState, ask: Round, shares: Mapping[int, secure.Shares]) -> Next:
        """Send the algorithm's message to those whose answers are added up, and to all who hold
        shares of these what was sealed for them.
        """
        assert state.protocol is not None
        n, terms, wanted = len(state.busy), state.protocol.terms, {*state.wanted}
        engine.check_request(self.inner, ask, n)
        if len(wanted) < terms.least:
            raise secure.SecureSumError(
                f"{type(self.inner).__name__} asks {len(wanted)} of {n} clients, and a sum is"
                f" over {terms.least} at least: SecureSum(fewest={max(2, len(wanted))}) allows"
                " fewer."
            )
        senders = wanted & {*shares}
        least = max(self.inner.quorum(len(wanted)), terms.least)
        if len(senders) < least or len(shares) < terms.threshold:
            # who has come back by now is asked once more
            return self._sharing(state, np.flatnonzero(~state.busy).tolist())
        message, own = _parted(ask.message, n)
        given = [*shares.values()], senders, message.tobytes()
        protocol, delivered = at_server.deliver(state.protocol, *given)
        one = next(iter(delivered.values()))
        sealed = np.zeros((n, len(one.senders), 2 * secure.SHARE + secure.TAG), np.uint8)
        for q, each in delivered.items():
            sealed[q] = each.sealed
        work = Work(protocol.number, state.rounds, message, own, one.senders, one.nonces, sealed)
        state = replace(state, protocol=protocol)
        return self._asking(state, "answers", protocol.number, work, delivered)

    def _opening(self, state: SumState) -> Next:
        """Add up the masked answers, and have the masks opened that do not cancel."""
        assert state.protocol is not None
        hidden = tuple((i, one) for i, one in state.got if one is not None)
        protocol, unmask = at_server.unmask(state.protocol, [one.masked for _, one in hidden])
        number = protocol.number
        bare = tuple((i, replace(h, masked=replace(h.masked, vector=_NONE))) for i, h in hidden)
        state = replace(state, protocol=protocol, hidden=bare)
        ask = Open(number, unmask.stayed, unmask.dropped, number + 1)
        return self._asking(state, "opened", number, ask, np.flatnonzero(~state.busy).tolist())

    def _summed(self, state: SumState) -> Next:
        """Open the sum, and take the algorithm's step with it."""
        assert state.protocol is not None
        revealed = [one.revealed for _, one in state.got if one.revealed is not None]
        protocol, total = at_server.total(state.protocol, revealed)
        combined = self._combined(state.hidden, total)
        inner, asked = state.of_algorithm()
        assert isinstance(asked, Round)
        # what the sums say of all clients' rows
        slack = len(state.busy) * (2.0**-63 if self.option.step is None else self.option.step)
        known = decode(state.told.tobytes())
        told, words = self.inner.doubts_of_sum(known, asked.message, combined, slack)
        if words:  # no rows have such sums
            raise endings.ImpossibleAnswerError("", type(asked.message), words)
        inner = records.copied(inner) if self.inner.mutates_state else inner
        step = engine.handler(self.inner.on_server, type(combined), self.inner)
        inner, ask = step(inner, protocol.stayed, combined)
        bits = np.zeros(len(state.busy), bool)
        bits[list(protocol.stayed)] = True
        shares = {i: one.shares for i, one in state.got}
        inner, told = _octets((records.settled(inner), engine.check_answer(ask))), _octets(told)
        present = np.concatenate([state.present, np.packbits(bits)[None]])
        begun = {"anew": 0, "hidden": (), "got": (), "protocol": protocol}
        state = replace(state, inner=inner, told=told, present=present, **begun)
        if isinstance(ask, Done):
            return state, ask
        protocol, _ = at_server.begin(protocol, protocol.number + 1)
        state = replace(state, protocol=protocol, wanted=_wanted(ask, len(bits)))
        return self._working(state, ask, shares)


_NONE = np.zeros(0, np.uint64)


@record
class Wait:
    """Down: nothing to do; the server waits for answers that are on their way."""


PROTOCOL = Enrol, Enter, Open, Wait  # its own messages, which carry none of an algorithm


def carried_by(algorithm: Algorithm) -> Algorithm:
    """The algorithm that a secure sum carries, or the one that is carried by none."""
    return algorithm.inner if isinstance(algorithm, SecureSummed) else algorithm


def hidden_in(sealed: Sealed) -> Hidden | None:
    """The algorithm's answer in what one client sends, with its sums masked; None of anything
    else.
    """
    answer = decode(_bytes_of(sealed.parcel[0]))[2]
    return answer if isinstance(answer, Hidden) else None


def asked_in(message: Any) -> Any:
    """The algorithm's message that a message is or carries, or one of the protocol's own."""
    return asked_of(message) if isinstance(message, Work) else message


def asked_of(work: Work, position: int = 0) -> Any:
    """The algorithm's message in it, as one client of the block receives it."""
    message = decode(work.message.tobytes())
    own = {} if work.rows is None else decode(_bytes_of(work.rows[position]))
    shown = {name: value[None] for name, value in _fields_of(message, "version").items()}
    return records.without_tiny(changed(message, **own, **shown))


def _fields_of(message: Any, mark: str) -> dict[str, Any]:
    """The fields of a message that have this mark and a value."""
    marked = [name for name, how in records.marks(type(message)) if how == mark]
    values = {name: getattr(message, name) for name in marked}
    return {name: value for name, value in values.items() if value is not None}


def _parted(message: Any, n: int) -> tuple[secure.Array, secure.Array | None]:
    """A message without its Each fields, as bytes, and the bytes of each client's own row."""
    each = _fields_of(message, "each")
    common = _octets(records.settled(changed(message, **dict.fromkeys(each))))
    if not each:
        return common, None
    parts = [{name: value[i : i + 1] for name, value in each.items()} for i in range(n)]
    return common, _packed([encode(records.settled(part)) for part in parts])


def _wanted(ask: Round, n: int) -> tuple[int, ...]:
    """Whom a request of the algorithm is for."""
    return tuple(range(n)) if ask.to is None else tuple(ask.to)


# ---- bytes of different lengths in one array


def _octets(value: object) -> NDArray[np.uint8]:
    """The bytes of a value."""
    return secure.octets(encode(value))


def _packed(texts: Sequence[bytes]) -> NDArray[np.uint8]:
    """Bytes as the rows of an array, each preceded by their number."""
    whole = [secure.octets(len(text).to_bytes(8, "little") + text)[None] for text in texts]
    return np.concatenate(records.equally_wide(whole))


def _bytes_of(row: NDArray[np.uint8]) -> bytes:
    """The bytes in a row of such an array."""
    data = row.tobytes()
    return data[8 : 8 + int.from_bytes(data[:8], "little")]


# ---- clients, one by one

STAGES = {Enrol: "keys", Enter: "shares", Work: "answers", Open: "opened", Wait: "waiting"}


def _client(memory: SumMemory) -> Client:
    """The part of one client in the protocol."""
    return decode(_bytes_of((memory.secret if memory.secret.size else memory.simulated)[0]))


def opens_no_more(memory: SumMemory) -> bool:
    """Whether a client has opened all that it has masked."""
    return _client(memory).stage != "masked"


def _one_by_one(step: Callable[..., Step]) -> Callable[..., Step]:
    """A step of one client as one of the clients of a block; the answer goes into a parcel that
    says which question it answers.
    """

    def stepped(memory: SumMemory, message: Any, data: Block, rng: Streams) -> Step:
        after, answers = list[SumMemory](), list[bytes]()
        for p in range(len(data.names)):
            at = np.array([p])
            own = {name: value[at] for name, value in _fields_of(message, "each").items()}
            one, mine = records.members(memory, at), changed(message, **own)
            kept, answer = step(one, mine, data.part(at), lambda _, p=p: rng(p))
            after.append(kept)
            number = getattr(message, "number", -1)
            answers.append(encode((STAGES[type(message)], number, answer)))
        wide = ("secret", "simulated", "last")
        parts = {name: [getattr(each, name) for each in after] for name in wide}
        made = {name: np.concatenate(records.equally_wide(each)) for name, each in parts.items()}
        taken = np.concatenate([each.taken for each in after])
        own = records.join([each.own for each in after])
        return SumMemory(taken=taken, own=own, **made), Sealed(_packed(answers))

    return stepped
