"""How a run adds up its clients' numbers securely: the option of engines."""

from __future__ import annotations

from dataclasses import dataclass

from quorate.privacy.secure_sum.fixed_point import FixedPoint
from quorate.privacy.secure_sum.messages import Terms, terms

KEYS = ("secure", "simulation")


@dataclass(frozen=True)
class SecureSum:
    """Have the server learn the sums of the clients' numbers, and no single client's: the option
    ``secure_sum`` of every engine.

    Every ``Sum`` field of every answer travels as whole multiples of a step, masked so that the
    masks cancel in the sum. Fields that the server may see of each client, or of which it sees the
    largest, are not masked.

    Parameters
    ----------
    step : a power of two; a sum over N clients is off by N step / 2 at most. Private answers have
        a step of their own, and lose nothing
    bound : the largest absolute value that a client may hand in, larger ones being refused; None:
        the largest at which no sum can overflow, 2**62 step / N
    threshold : how many clients every round needs until its end, more than half; None: all but a
        third of them, rounded down
    fewest : the least number of clients over which a sum may be opened, for algorithms that ask
        some of the clients; None: ``threshold``
    keys : "secure" from the operating system; "simulation" from the seed, for tests: whoever has
        the seed can then take the masks away

    Examples
    --------
    >>> import quorate as qr
    >>> from quorate.data import load
    >>> fed = load.hospitals()
    >>> problem = qr.Problem(qr.Logistic(), over_clients=qr.Mean("size"), regulariser=qr.L2(0.1))
    >>> engine = qr.InProcess(secure_sum=qr.SecureSum())
    >>> solution = qr.solve(problem, fed, algorithm=qr.ProximalAL(), engine=engine)
    >>> solution.outcome.stop.value
    'optimal'
    """

    step: float = 2.0**-36
    bound: float | None = None
    threshold: int | None = None
    fewest: int | None = None
    keys: str = "secure"

    def __post_init__(self) -> None:
        if self.keys not in KEYS:
            raise ValueError(f"keys must be one of {', '.join(KEYS)}, got {self.keys!r}")
        self.form(2)

    def form(self, clients: int, step: float | None = None) -> FixedPoint:
        """How numbers travel, of the algorithm's own step where it has one."""
        declared = self.bound if step is None else None
        step = self.step if step is None else step
        return FixedPoint(step, step * 2.0**62 / clients if declared is None else declared, clients)

    def terms(self, clients: int) -> Terms:
        """What all clients agree on."""
        if clients < 2:
            raise ValueError(
                f"a secure sum hides each client among others, got {clients} client: leave"
                " secure_sum out."
            )
        usual = terms("quorate", clients).threshold
        threshold = usual if self.threshold is None else self.threshold
        return Terms("quorate", clients, threshold, self.fewest)


def option_of(given: SecureSum | bool | None) -> SecureSum | None:
    """The option as engines are given it: True stands for the defaults, False for none."""
    if isinstance(given, bool):
        return SecureSum() if given else None
    if given is not None and not isinstance(given, SecureSum):
        raise TypeError(f"secure_sum must be True or such as SecureSum(), got {given!r}")
    return given
