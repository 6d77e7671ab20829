"""What the experiments of every room yield, and what their figures are drawn from."""

from typing import Any, NamedTuple

import bonafed as bf
from bonafed.extending import COLOURS as COLOURS
from bonafed.extending import Array


class Row(NamedTuple):
    """One number of one trial."""

    case: str  # a row of the paper's table: a data set, a size
    figure: str  # a column: what is measured
    method: str
    value: float  # not finite where the method did not get there
    x: float | None = None  # its place on a curve; None in a table


class Curve(NamedTuple):
    """A method's points: x, the mean of the trials and its 95 % interval, (k,) each; in a table one
    point, with x = nan.
    """

    x: Array
    mean: Array
    low: Array
    high: Array


def whole(run: Any) -> Any:
    """A run or a solution; Ctrl-C, at which one ends with what it has, ends the trial."""
    if run.outcome.stop is bf.Stop.INTERRUPTED:
        raise KeyboardInterrupt
    return run
