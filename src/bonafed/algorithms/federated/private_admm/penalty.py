"""Penalties and step sizes of the private ADMMs as functions of the round."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import TypeGuard


@dataclass(frozen=True)
class Penalty:
    """rho^t = scale min(1e9, c1 1.2^floor(t / period) + c2 / epsilon), (21) of the paper.

    ``epsilon`` is that of one iteration; inf means no noise.

    ``scale=0.01`` with ``OutputPerturbedADMM`` is the paper's OutP+.

    Examples
    --------
    >>> import bonafed as bf
    >>> rho = bf.Penalty(c1=2.0, c2=5.0, period=10.0)
    >>> [round(rho(t), 3) for t in (0, 10, 20)]
    [2.0, 2.4, 2.88]
    """

    c1: float = 2.0
    c2: float = 5.0
    period: float = 1e4
    epsilon: float = math.inf
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_penalty(self)

    def __call__(self, t: int) -> float:
        times = 1.2 ** min(math.floor(min(t / self.period, 1e4)), 3000)  # no overflow
        return self.scale * min(1e9, self.c1 * times + self.c2 / self.epsilon)


def number(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number > 0."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return 0 < float(value) < math.inf
    except OverflowError:  # a whole number or a fraction that no double holds
        return False


def check_penalty(it: Penalty) -> None:
    """Raise on numbers out of range."""
    for name, value in {"c1": it.c1, "period": it.period, "scale": it.scale}.items():
        if not number(value):
            raise ValueError(f"{name} of a Penalty must be a number > 0, got {value!r}.")
    if not (it.c2 == 0 or number(it.c2)):
        raise ValueError(f"c2 of a Penalty must be a number >= 0, got {it.c2!r}.")
    if not (it.epsilon == math.inf or number(it.epsilon)):
        raise ValueError(
            f"epsilon of a Penalty must be a number > 0, or inf for no noise, got {it.epsilon!r}."
        )


RADII = {"constant": lambda t: 1.0, "1/t": lambda t: 1 / t, "1/t^2": lambda t: 1 / t**2}


def of_round(name: str, schedule: Callable[[int], object], t: int) -> float:
    """The value of a schedule in round t, which must be a number > 0."""
    try:
        value = schedule(t)
    except ArithmeticError as error:
        raise ValueError(
            f"{name} must be a number > 0, and its function fails in round {t}: {error!r}."
        ) from error
    if number(value):
        return float(value)
    raise ValueError(f"{name} must be a number > 0, got {value!r} in round {t}.")
