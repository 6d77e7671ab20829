"""What every engine takes and returns, and the checks that all engines make."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bonafed.engines.batching import Known
from bonafed.engines.run_record import Events, Log, Sets
from bonafed.rounds import Algorithm, Done, Outcome, Round, visibility

STEPS = "on_client", "on_server", "server_start"  # of an algorithm, all else has a default
Watch = Callable[[dict[str, Any], Any], None]  # called with a row of the history and the state


class Engine(Protocol):
    """An engine carries an algorithm's messages to the clients and their answers to the server."""

    def run(
        self,
        algorithm: Algorithm,
        federation: Known,
        *,
        seed: int = ...,
        watch: Sequence[Watch] = (),
        resume: bool = False,
        max_rounds: int | None = None,
    ) -> "Run":
        """Run an algorithm until it is done."""
        ...

    def beside_run(self) -> "Engine":
        """The engine of runs beside the main one, such as a certificate's."""
        ...


class ClientError(RuntimeError):
    """A client's step raised; ``clients`` names it, ``round`` counts from 1."""

    def __init__(self, text: str, clients: tuple[str, ...], round_: int) -> None:
        super().__init__(text)
        self.clients, self.round = clients, round_

    @classmethod
    def of(
        cls, clients: tuple[str, ...], message: type, round_: int, error: Exception, advice: str
    ) -> "ClientError":
        """The error for these clients, whose step on a message raised ``error``."""
        text = f"the step of client{'s' * (len(clients) > 1)} {', '.join(clients)} on"
        text += f" {message.__name__} failed in round {round_}: {type(error).__name__}:"
        text += f" {str(error).rstrip('.')}. Mend or leave out; {advice}"
        return cls(text, clients, round_)


@dataclass(frozen=True, eq=False)
class Run:
    """The result of a run.

    Attributes
    ----------
    state : the server's last state
    outcome : why it ended, and what to do about it
    history : one row a round: round (from 1), seconds (wall, of this round), bytes_up, bytes_down,
        and what the algorithm reports
    messages : one row for each message type and direction: message, direction, count, bytes
    rounds : the number of finished rounds
    events : who answered when, of a run of rounds
    memories : for each client of this process its memory (arrays with a leading axis of 1), None
        before its first message
    turns : (N,) the messages that each client has answered in the finished rounds
    asked : (N,) the messages that may have reached each client, also those of a round that was
        begun and not finished: it may have answered them
    exchanged : (2, N) bytes from and to each client
    concluded : what the clients keep that belongs to the answer, see `concludes`
    log : of an asynchronous engine, what ``Replay`` needs
    lie : where the run ended as ``Stop.IMPOSSIBLE``, the error that names the site
    """

    state: Any
    outcome: Outcome
    history: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    rounds: int
    events: Events | Sets | None
    memories: Sequence[Any]
    turns: NDArray[np.int64]
    asked: NDArray[np.int64]
    exchanged: NDArray[np.int64]
    concluded: Any = None
    log: Log | None = None
    lie: Exception | None = None

    @property
    def active(self) -> list[tuple[int, ...]]:
        """For each round the clients that answered."""
        return [] if self.events is None else self.events.active()


def check_algorithm(algorithm: Algorithm) -> None:
    """Raise an error for an object that lacks what an engine asks of an algorithm."""
    if isinstance(algorithm, type):
        name = algorithm.__name__
        raise TypeError(f"an engine runs an algorithm, got the class {name}: give {name}()")
    asked = [name for name in vars(Algorithm) if not name.startswith("_")]
    lacks = [name for name in asked if not hasattr(algorithm, name)]
    own = type(algorithm)
    lacks = lacks or [n for n in STEPS if getattr(own, n, None) is getattr(Algorithm, n)]
    if lacks:
        raise TypeError(
            f"an engine runs an algorithm, got {type(algorithm).__name__}, which lacks"
            f" {', '.join(lacks)}: derive the class from bonafed.rounds.Algorithm, which has"
            f" defaults for all but the steps, and define {', '.join(STEPS)}"
        )


def check_request(algorithm: Algorithm, ask: Round, n: int, in_flight: int = 0) -> None:
    """Raise an error for a request that no engine can carry out.

    ``in_flight`` is the number of clients that are still to answer earlier messages.
    """
    handler(algorithm.on_client, type(ask.message), algorithm)
    to = range(n) if ask.to is None else ask.to
    inside = ask.to is None or 0 <= min(to, default=0) <= max(to, default=0) < n
    different = ask.to is None or len(set(to)) == len(to)
    if not len(to) + in_flight or not different or not inside:
        raise ValueError(f"Round.to needs different clients in 0..{n - 1}, got {ask.to}")
    for name, how in visibility(type(ask.message)).items():
        value, field = getattr(ask.message, name), f"{type(ask.message).__name__}.{name}"
        if how == "version" and not isinstance(value, np.ndarray | None):
            raise TypeError(f"{field} needs an array, got a {type(value).__name__}")
        if how == "each" and value is not None and np.shape(value)[:1] != (n,):
            needs = f"one row for each of the {n} clients (those that are asked)"
            raise ValueError(f"{field} needs {needs}, got shape {np.shape(value)}")


def check_answer(ask: object) -> Round | Done:
    """What ``on_server`` returned as the next request, or an error where it is none."""
    if not isinstance(ask, Round | Done):
        raise TypeError(f"on_server must return (state, Round or Done), got a {type(ask).__name__}")
    return ask


def handler(handlers: Mapping[type, Any], kind: type, algorithm: Algorithm) -> Any:
    """The function of an algorithm for a message or an upload."""
    if kind in handlers:
        return handlers[kind]
    known, name = ", ".join(sorted(k.__name__ for k in handlers)), type(algorithm).__name__
    raise TypeError(f"{name} has no function for {kind.__name__}; it has {known}")


def reported(algorithm: Algorithm, state: object) -> dict[str, Any]:
    """The numbers that an algorithm reports, as Python numbers."""
    told: dict[str, Any] = {**algorithm.report(state)}
    of_numpy = {k: v for k, v in told.items() if isinstance(v, np.generic | np.ndarray)}
    return told | {key: v.item() for key, v in of_numpy.items() if np.ndim(v) == 0}
