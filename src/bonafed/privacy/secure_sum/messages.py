"""What clients and server of a secure sum agree on, and what they tell each other.

Every message is a record: engines can carry it. Keys and ciphertexts are arrays of bytes (uint8);
lists of clients are ascending. What a message has of a secret (a share) is left out of its repr.

Numbers travel as multiples of a public step, so that sums modulo 2^64 are exact. `SecureSum` is the
option of engines.
"""

import math
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed.codec import record
from bonafed.parameters import Checked
from bonafed.text import install

Array = NDArray[Any]  # of the dtype that the field says; bytes without one
TAG = 16  # bytes by which a ciphertext grows
KEY, NONCE, SHARE = 32, 12, 32  # bytes; a share is shamir.LIMBS numbers of 32 bits


class SecureSumError(ValueError):
    """A message that the protocol does not allow; anyone who refuses it has told nothing."""


def require_cryptography() -> None:
    """Refuse to begin where the package for key agreement and ciphers is not installed."""
    if find_spec("cryptography") is None:
        raise ImportError(f"a secure sum needs the package cryptography: {install('sign')}")


def octets(data: bytes) -> Array:
    """Bytes as an array, as records hold them."""
    return np.frombuffer(data, np.uint8).copy()


@record
class Terms:
    """What all agree on before: the name of the run, how many clients, how many can open a round.

    ``threshold`` t is more than half of the clients: two groups of t then share a client, and each
    client opens a round once. Up to t - 1 clients together with the server learn nothing beyond the
    sum over the others; every round needs t clients until its end. ``fewest`` is the least number
    of clients over which a sum may be opened, t where it is None: with fewer, the others hold
    shares and hand in no vector.
    """

    run: str
    clients: int
    threshold: int
    fewest: int | None = None

    @property
    def least(self) -> int:
        """The least number of clients over which a sum may be opened."""
        return self.threshold if self.fewest is None else self.fewest

    def __post_init__(self) -> None:
        if self.fewest is not None and not 2 <= self.fewest <= self.clients:
            raise ValueError(
                f"fewest must be in 2..{self.clients}, got {self.fewest}: a sum over one client is"
                " its own numbers."
            )
        low = self.clients // 2 + 1
        if not 2 <= self.clients < 2**20 or not low <= self.threshold <= self.clients:
            raise ValueError(
                "a secure sum needs 2 to 2**20 - 1 clients and a threshold of more than half of"
                f" them; got {self.clients} clients and a threshold of {self.threshold}: take"
                f" {max(2, self.clients - self.clients // 3)}, which lets a third drop out."
            )


def terms(run: str, clients: int) -> Terms:
    """The terms under which a third of the clients, rounded down, may drop out of any round."""
    return Terms(run, clients, clients - clients // 3)


@record
class Advertised:
    """Up, once: a client's public key, and its signature (empty where clients do not sign)."""

    client: int
    key: Array
    signature: Array


@record
class Roster:
    """Down, once: the public keys of all clients that take part."""

    clients: Array  # (n,)
    keys: Array  # (n, 32)
    signatures: tuple[Array, ...]


@record
class BeginRound:
    """Down: round ``number`` begins."""

    number: int


@record
class Shares:
    """Up: a client's shares of its secrets of the round, each for the eyes of one client, and the
    keys of its pairwise masks of this round, which t clients together can open.
    """

    client: int
    number: int
    nonce: Array  # (12,)
    sealed: Array  # (n, 80): to every client of the roster, itself included
    pairs: Array  # (32 n + 16,)
    check: Array  # (32,): a value of the self mask's key that tells whether that was recovered


@record
class Delivered:
    """Down: the shares for one client of all that take part in the round."""

    number: int
    senders: Array  # (m,)
    nonces: Array  # (m, 12)
    sealed: Array  # (m, 80)


@record
class Masked:
    """Up: a client's vector under its masks, uniform for anyone who does not know them."""

    client: int
    number: int
    vector: Array  # (D,) uint64
    wide: bool = False  # whether pairs of words are one number each


@record
class Unmask:
    """Down: whose vectors arrived, and whose did not."""

    number: int
    stayed: Array
    dropped: Array


@record
class Revealed:
    """Up: a share of the self mask of each that stayed, and of the key to the pairwise masks of
    each that dropped out, in the order of the clients of the round.
    """

    client: int
    number: int
    shares: Array = field(repr=False)  # (m, 8) uint32


def array_of(value: object, shape: tuple[int, ...], dtype: type[np.generic], what: str) -> Array:
    """The array, if it has this form."""
    if not isinstance(value, np.ndarray) or value.shape != shape or value.dtype != dtype:
        given = type(value).__name__
        if isinstance(value, np.ndarray):
            given = f"{value.dtype} of shape {value.shape}"
        raise SecureSumError(
            f"{what} must be {np.dtype(dtype)} of shape {shape}, got {given}: send it again."
        )
    return value


def ascending(value: object, known: tuple[int, ...], what: str) -> tuple[int, ...]:
    """The clients in an array, ascending and all among the known ones."""
    given = value.tolist() if isinstance(value, np.ndarray) and value.ndim == 1 else None
    if given is None or any(type(i) is not int for i in given) or given != sorted({*given}):
        raise SecureSumError(
            f"{what} must be an ascending array of distinct clients, got {given}: repeat no client."
        )
    if strange := sorted({*given} - {*known}):
        raise SecureSumError(
            f"{what} holds the clients {strange}, which do not take part: take of {len(known)}"
            " known clients only."
        )
    return tuple(given)


def enough(present: int, needed: int, what: str) -> None:
    """Refuse fewer clients than are needed."""
    if present < needed:
        text = f"{present} clients {what} and {needed} are needed: begin a new round."
        raise SecureSumError(text)


@dataclass(frozen=True)
class FixedPoint:
    """How real numbers travel in a secure sum: each as the nearest multiple of a public step.

    Parameters
    ----------
    step : a power of two, so that scaling rounds nothing
    bound : the largest absolute value that any client may hand in
    clients : how many clients there may be

    A number is off by at most step / 2 and the sum of N clients by N step / 2. With
    K = rint(bound / step), sums of N clients stay within N K, which must be below 2^63: then none
    overflows, whatever the clients hold.

    Raises
    ------
    ValueError : a step that is not a power of two, or a bound that could overflow

    Examples
    --------
    >>> from bonafed.privacy.secure_sum.messages import FixedPoint
    >>> form = FixedPoint(step=2.0**-20, bound=100.0, clients=10)
    >>> form.numbers(form.whole([0.5, -3.0]) + form.whole([0.25, 1.0]))
    array([ 0.75, -2.  ])
    """

    step: float
    bound: float
    clients: int

    def __post_init__(self) -> None:
        if not (0 < self.step < math.inf) or math.frexp(self.step)[0] != 0.5:
            raise ValueError(
                f"the step must be a power of two, got {self.step!r}: take such as 2.0**-20."
            )
        if not 0 <= self.bound < math.inf or self.clients < 1:
            raise ValueError(
                "a bound of absolute values that is finite and not negative, and at least one"
                f" client, are needed; got {self.bound!r} and {self.clients!r}: declare both."
            )
        scaled = self.bound / self.step
        if not math.isfinite(scaled) or self.clients * round(scaled) >= 2**63:
            raise ValueError(
                f"{self.clients} clients with numbers up to {self.bound!r} at a step of"
                f" {self.step!r} could exceed 2**63 - 1 steps: take a larger step or a smaller"
                " bound."
            )

    def whole(self, values: ArrayLike) -> NDArray[np.int64]:
        """The numbers as whole multiples of the step, to the nearest, ties to even.

        Raises
        ------
        ValueError : a number that is not finite or beyond the bound; nothing is clamped
        """
        given = np.asarray(values, float)
        if not (inside := np.abs(given) <= self.bound).all():  # not of NaN
            worst = given[~inside].ravel()[0]
            raise ValueError(
                f"{np.sum(~inside)} of {given.size} numbers are not within the bound: the first"
                f" is {worst!r}, and at most {self.bound!r} in absolute value is allowed. Clip the"
                " numbers or declare a larger bound."
            )
        return np.rint(given / self.step).astype(np.int64)

    def numbers(self, total: NDArray[np.int64]) -> NDArray[np.float64]:
        """The real numbers that a sum of such whole numbers stands for."""
        return total.astype(float) * self.step


KEYS = ("secure", "simulation")


@dataclass(frozen=True)
class SecureSum(Checked):
    """Have the server learn sums over the clients, and of single clients what the method announces:
    the option ``secure_sum`` of every engine.

    Every ``Sum`` field of every answer travels as whole multiples of a step, masked so that the
    masks cancel in the sum. Other fields are not masked: ``solve`` and sites refuse a method
    without a budget that has any beside those that it announces (``Algorithm.readable``).

    Parameters
    ----------
    step : None: numbers travel in 128 bits, as multiples of 2**-63 up to 2**62 / N, so that nothing
        is lost that a double of order one has; a power of two: in 64 bits, half the bytes and time,
        as multiples of this step, so that a sum over N clients is off by N step / 2 at most.
        Whole numbers, and private answers, which have a separate step, travel in 64 bits where
        an answer has no others, and lose nothing
    bound : with a step the largest absolute value that a client may hand in, larger ones being
        refused; None: the largest at which no sum can overflow, 2**62 step / N
    threshold : how many clients every round needs until its end, more than half; None: all but a
        third of them, rounded down
    fewest : the least number of clients over which a sum may be opened, for algorithms that ask
        some of the clients; None: ``threshold``
    keys : "secure" from the operating system; "simulation" from the seed, for tests: anyone who has
        the seed can then take the masks away

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), over_clients=bf.Mean("size"), regulariser=bf.L2(0.1))
    >>> engine = bf.InProcess(secure_sum=bf.SecureSum())
    >>> solution = bf.solve(problem, fed, engine=engine)
    >>> solution.outcome.stop.value
    'optimal'
    """

    step: float | None = None
    bound: float | None = None
    threshold: int | None = None
    fewest: int | None = None
    keys: str = "secure"

    def __post_init__(self) -> None:
        if self.keys not in KEYS:
            raise ValueError(f"keys must be one of {', '.join(KEYS)}, got {self.keys!r}")
        if self.step is not None:
            self.form(2, self.step)
        elif self.bound is not None:
            raise ValueError("a bound goes with a step: give SecureSum(step=..., bound=...).")

    def form(self, clients: int, step: float) -> FixedPoint:
        """How numbers travel as multiples of a step, of this option or of the algorithm's own."""
        own = self.bound is not None and step == self.step
        bound = self.bound if own else step * 2.0**62 / clients
        return FixedPoint(step, float(bound or 0.0), clients)

    def terms(self, clients: int) -> Terms:
        """What all clients agree on."""
        if clients < 2:
            raise ValueError(
                f"a secure sum hides each client among others, got {clients} client: leave"
                " secure_sum out."
            )
        usual = terms("bonafed", clients).threshold
        threshold = usual if self.threshold is None else self.threshold
        return Terms("bonafed", clients, threshold, self.fewest)


def option_of(given: SecureSum | bool | None) -> SecureSum | None:
    """The option as engines are given it: True stands for the defaults, False for none."""
    if isinstance(given, bool):
        return SecureSum() if given else None
    return given
