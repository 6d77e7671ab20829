"""Models of delays: how long a client takes to answer, in virtual seconds.

A client's k-th trip has its k-th delay, whatever else runs.

    delay_{i,k} = straggler_i · scale_i · (trip_{i,k} + per_gradient · gradients)

A delay depends on (seed, the client's name, k) only: other clients, other methods and other rules
of waiting do not change a client's delays. Trips are drawn ``CHUNK`` at a time from a counter-based
stream (Philox) of the client.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import math
import os
import struct
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array, is_number
from bonafed.engines.event_queue import draw

CHUNK = 64  # trips drawn at once, for speed; another number would be another sequence of delays


class Delays(Protocol):
    """A model of the clients' delays."""

    @property
    def per_gradient(self) -> float:
        """The part of a trip that grows with the gradients a message asks for."""
        ...

    def scale(self, seed: int, client: str, n: int) -> float:
        """The factor of one client; ``n`` is its position in the federation."""
        ...

    def trips(self, seed: int, client: str, n: int, chunk: int) -> Array:
        """(CHUNK,) the trips ``chunk * CHUNK`` and on of one client, without its factor."""
        ...


@functools.lru_cache(maxsize=2**14)
def _key(seed: int, client: str) -> tuple[int, ...]:
    digest = hashlib.blake2b(
        f"{seed}/{client}".encode(), digest_size=16, person=b"bonafed delays"
    ).digest()
    return struct.unpack("=QQ", digest)


class _Streams(threading.local):
    """One random generator per thread, which is set to the stream that is needed: making one takes
    ten times as long.
    """

    def __init__(self) -> None:
        self.bits = np.random.Philox(0)
        self.draws = np.random.Generator(self.bits)

    def stream(self, seed: int, client: str, counter: int) -> np.random.Generator:
        """The generator of one stream of a client, until the next call; no algorithm uses these
        streams.
        """
        place = {"counter": (0, 0, 0, counter), "key": _key(seed, client)}
        unused: Any = {"buffer": (0, 0, 0, 0), "buffer_pos": 4, "has_uint32": 0, "uinteger": 0}
        self.bits.state = unused | {"bit_generator": "Philox", "state": place}
        return self.draws


_STREAMS = _Streams()


def _at_least(least: float, **values: float) -> None:
    for name, value in values.items():
        if not (is_number(value) and math.isfinite(value) and value >= least):
            raise ValueError(
                f"{name} must be a finite number >= {least:g}, got {value!r}: it is part of a"
                " delay."
            )


@dataclass(frozen=True)
class LogNormal:
    """Lognormal delays: some clients are slower than others, and the trips of a client differ.

    ``unit · exp(client_sigma · z_i) · (exp(sigma · z_{i,k}) + per_gradient · gradients)`` with
    standard normal z.

    Parameters
    ----------
    sigma : spread of one client's trips
    client_sigma : spread between clients
    per_gradient : the part of a trip that grows with the gradients a message asks for
    unit : the unit of all delays, in virtual seconds

    Examples
    --------
    >>> import bonafed as bf
    >>> clock = bf.VirtualClock(delays=bf.LogNormal(sigma=0.5, unit=2.0))  # some two seconds
    >>> clock.delays.unit
    2.0
    """

    sigma: float = 0.3
    client_sigma: float = 0.3
    per_gradient: float = 0.1
    unit: float = 1.0

    def __post_init__(self) -> None:
        _at_least(
            0.0,
            sigma=self.sigma,
            client_sigma=self.client_sigma,
            per_gradient=self.per_gradient,
            unit=self.unit,
        )

    def scale(self, seed: int, client: str, n: int) -> float:
        """The factor of one client."""
        return self.unit * math.exp(
            self.client_sigma * _STREAMS.stream(seed, client, 0).standard_normal()
        )

    def trips(self, seed: int, client: str, n: int, chunk: int) -> Array:
        """The trips of one client."""
        return np.exp(self.sigma * _STREAMS.stream(seed, client, chunk + 1).standard_normal(CHUNK))


@dataclass(frozen=True)
class Constant:
    """Constant delays: every trip takes ``seconds + per_gradient · gradients``; clients differ by
    their factor in ``stragglers`` only.

    Examples
    --------
    >>> import bonafed as bf
    >>> clock = bf.VirtualClock(delays=bf.Constant(seconds=1.0, per_gradient=0.1))
    >>> clock.delays.seconds
    1.0
    """

    seconds: float = 1.0
    per_gradient: float = 0.0

    def __post_init__(self) -> None:
        _at_least(0.0, seconds=self.seconds, per_gradient=self.per_gradient)

    def scale(self, seed: int, client: str, n: int) -> float:
        """One."""
        return 1.0

    def trips(self, seed: int, client: str, n: int, chunk: int) -> Array:
        """Equal trips."""
        return np.full(CHUNK, float(self.seconds))


@dataclass(frozen=True, eq=False)
class Trace:
    """Recorded delays; after a client's last delay its record starts again.

    Parameters
    ----------
    recorded : the delays of every client in seconds: a mapping by name, an array (N, trips) in the
        order of the federation, or a CSV file with the columns client and delay, one row a trip, in
        order

    Examples
    --------
    >>> import bonafed as bf
    >>> recorded = bf.Trace({"north": [1.0, 1.2], "east": [3.0]})
    >>> bf.VirtualClock(delays=recorded).delays is recorded
    True
    """

    recorded: Any  # afterwards a mapping of arrays
    per_gradient: float = 0.0

    def __post_init__(self) -> None:
        _at_least(0.0, per_gradient=self.per_gradient)
        known = (
            _read(Path(self.recorded))
            if isinstance(self.recorded, str | os.PathLike)
            else self.recorded
        )
        named = known.items() if isinstance(known, Mapping) else enumerate(known)
        object.__setattr__(self, "recorded", {key: _delays(key, values) for key, values in named})

    def scale(self, seed: int, client: str, n: int) -> float:
        """One."""
        return 1.0

    def trips(self, seed: int, client: str, n: int, chunk: int) -> Array:
        """The recorded trips."""
        delays = self.recorded.get(client, self.recorded.get(n))
        if delays is None:
            raise ValueError(
                f"the trace has no delays of client {client}: record some, or restrict the"
                " federation."
            )
        return delays[(chunk * CHUNK + np.arange(CHUNK)) % len(delays)]


def _read(path: Path) -> dict[str, list[Any]]:
    """The delays in a file by client, as text."""
    try:
        return _listed(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path} of recorded delays") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path.name} is not a CSV file of recorded delays: {error}") from error


def _listed(path: Path) -> dict[str, list[Any]]:
    delays: dict[str, list[Any]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        table = csv.DictReader(file)
        if not {"client", "delay"} <= set(table.fieldnames or ()):
            raise ValueError(
                f"{path.name} needs the columns client and delay, got"
                f" {', '.join(table.fieldnames or ())}"
            )
        for row in table:
            delays.setdefault(row["client"], []).append(row["delay"])
    return delays


def _delays(client: str | int, values: Sequence[Any]) -> Array:
    try:
        delays = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        delays = np.empty(0)
    if delays.ndim != 1 or not delays.size or not np.isfinite(delays).all() or delays.min() < 0:
        raise ValueError(
            f"the trace of client {client} needs one or more finite delays >= 0, got {values!r:.60}"
        )
    return delays


class Trips:
    """The delays of all clients' trips in order; delays that are drawn are stored until they are
    used.
    """

    def __init__(
        self, model: Delays, seed: int, clients: Sequence[str], factors: Mapping[str, float]
    ) -> None:
        self.model, self.seed, self.clients = model, seed, tuple(clients)
        self.scale = np.array(
            [factors.get(name, 1.0) * model.scale(seed, name, n) for n, name in enumerate(clients)]
        )
        self.drawn = np.empty((len(clients), CHUNK))
        self.chunk = np.full(len(clients), -1, np.int64)  # the number of the CHUNK trips in drawn
        self.used = np.zeros(len(clients), np.int64)  # trips so far

    def next(self, ids: NDArray[np.int64], gradients: float) -> Array:
        """The delays of these clients' next trips."""
        delays, more, done = np.empty(len(ids)), float(self.model.per_gradient * gradients), 0
        while (
            done := draw(ids, done, more, self.scale, self.drawn, self.chunk, self.used, delays)
        ) < len(ids):
            i = int(ids[done])
            chunk = int(self.used[i]) // CHUNK
            self.drawn[i] = self.model.trips(self.seed, self.clients[i], i, chunk)
            self.chunk[i] = chunk
        return delays
