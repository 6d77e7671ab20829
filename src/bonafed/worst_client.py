"""What rows that judge a model say of new rows at every client, the worst one included.

    U_i(delta) = the one-sided bound of Clopper and Pearson on the error of client i
    P(the error of every client is at most max_i U_i(delta)) >= 1 - delta

The client with the largest true error is one fixed client, so only its own bound has to hold: that
there are many clients costs nothing. A table that is read line by line has for each of its N lines
delta_i = 1 - (1 - delta)^(1 / N), so that with confidence 1 - delta all of them hold. Recall,
precision and specificity are rates of some of the rows, and have the same bounds. The mean of
losses in [0, 1] has that of Waudby-Smith and Ramdas (2024), a bet against every larger mean: with
s_t the standard deviation of the losses before the t-th one,

    K(m) = max_k prod_{t <= k} (1 + min(sqrt(2 ln(1 / delta) / n) / s_t, 1 / (2 m)) (x_t - m))

reaches 1 / delta at the true mean m of the x_t = 1 - loss_t with probability delta at most. Losses
without a known largest value, such as the log loss and errors of numbers, have no bound.

All of it holds for independent rows that had no part in training or in a choice. Of a person's rows
one counts, drawn by a fixed seed. Whether clients differ beyond chance is asked by exact tests of
each against all other rows (Fisher), times the number of clients (Bonferroni): among alike clients
one is named in at most 5 % of runs, although the reader looks at the worst.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, gammaln

from bonafed.arrays import Array, stream
from bonafed.measures import FIGURES, TWO, Figure, Figures, Task, figures_of
from bonafed.text import printable, short

CONFIDENCE = 0.95
ENOUGH = 200  # rows, of which a sentence says what as many would show
NAME = 40  # characters of a client's name in a sentence
HALVINGS = 24  # of an interval that holds a bound

WHY = {  # nothing is promised of new rows
    "numbers": "errors of numbers have no known largest value, so that any few rows may hide a"
    " large one",
    "weights": "the rows have weights, so that their rates are not those of counted rows",
    "chosen": "these rows also judged the values of [sweep], so that the model may have been chosen"
    " by them. Set sweep.test, such as 0.3: then training rows choose, and these judge once",
    "persons": "a person may have several rows, which are not independent, and no site tells how"
    " many people it counts",
    "other figures": "the figures of some site are not exactly those of this model, as a warning"
    " says",
}


class Counted(NamedTuple):
    """The rows of a client that count: their confusion (C, C) by truth and prediction, and of each
    the Brier score, in an order that does not depend on it; None where it is not known.
    """

    confusion: NDArray[Any]
    brier: Array | None = None


def once(n: int, persons: NDArray[Any] | None = None) -> NDArray[np.intp]:
    """The positions of the rows that count, in an order that does not depend on what they hold: all
    n, or where ``persons`` (n,) says whose each is, one of each person.
    """
    order = stream(0, "rows that count", 0).permutation(n)
    if persons is None:
        return order
    _, first = np.unique(np.asarray(persons)[order], return_index=True)
    return order[np.sort(first)]


def most(k: int, n: int, delta: float = 1 - CONFIDENCE) -> float:
    """The rate of which k of n rows were seen is at most this, with confidence 1 - ``delta``.

    Examples
    --------
    >>> from bonafed.worst_client import most
    >>> round(most(1, 25), 4), round(most(8, 200), 4)
    (0.1761, 0.0711)
    """
    return float(betaincinv(k + 1, n - k, 1 - delta)) if k < n else 1.0


def most_of_mean(losses: Array, delta: float = 1 - CONFIDENCE) -> float:
    """The mean of losses in [0, 1] is at most this, with confidence 1 - ``delta``; they stand in an
    order that does not depend on them.

    Examples
    --------
    >>> import numpy as np
    >>> from bonafed.worst_client import most_of_mean
    >>> bool(0.25 < most_of_mean(np.full(100, 0.25)) < 0.3)
    True
    """
    x, n = 1 - np.asarray(losses, float), len(losses)
    if not n:
        return 1.0
    t = np.arange(1, n + 1)
    mean = (0.5 + np.cumsum(x)) / (t + 1)
    variance = np.append(0.25, (0.25 + np.cumsum((x - mean) ** 2)) / (t + 1))[:n]
    bet, low, high = np.sqrt(2 * np.log(1 / delta) / (n * variance)), 0.0, 1.0
    for _ in range(HALVINGS):  # K falls in m
        m = (low + high) / 2
        wealth = np.cumsum(np.log1p(np.minimum(bet, 0.5 / m) * (x - m)))
        low, high = (m, high) if wealth.max() >= np.log(1 / delta) else (low, m)
    return 1 - low


def worst_first(clients: Sequence[Figures], key: str, higher: bool = True) -> list[Figures]:
    """The clients that have a figure, the worst one first: of equal ones that of the fewest rows,
    of which the least is known. Whatever names the worst client takes the first of these.
    """
    known = [row for row in clients if row.get(key) is not None]
    return sorted(known, key=lambda row: ((1 if higher else -1) * row[key], row["n"]))


def promise(
    task: Task,
    clients: Sequence[Figures],
    rows: Sequence[Counted],
    people: bool = False,
    level: float = CONFIDENCE,
) -> Figures:
    """What holds of new rows, or of new ``people``, at every client with confidence ``level``, by
    figure, with the client that decides it.

    The records of the ``clients`` get their bounds, of which those of one figure all hold together;
    the number of people; and the p-value that their errors are so many by chance, corrected for the
    number of clients.
    """
    line, scale, whole = 1 - level ** (1 / len(clients)), 1.0 if task == TWO else 2.0, Figures()
    for client, one in zip(clients, rows, strict=True):
        client |= {"bounds": {}} | ({"people": int(one.confusion.sum())} if people else {})
    for figure in figures_of(task):
        if figure.of == "rate":
            bad = _wrong(figure, rows)
            each, every = ([most(k, n, delta) for k, n in bad] for delta in (1 - level, line))
        elif figure.key == "brier" and all(one.brier is not None for one in rows):
            losses = [one.brier / scale for one in rows if one.brier is not None]
            each, every = ([most_of_mean(x, delta) for x in losses] for delta in (1 - level, line))
        else:
            continue
        stated = [1 - u if figure.higher else scale * u for u in (*every, max(each))]
        for client, bound in zip(clients, stated, strict=False):
            client["bounds"][figure.key] = bound
        first = each.index(max(each))
        whole[figure.key] = {"bound": stated[-1], "client": clients[first]["client"]}
        if figure.of == "rate":
            others = max((u for i, u in enumerate(each) if i != first), default=0.0)
            whole[figure.key] |= _counts(bad[first], others, 1 - level)
    if len(clients) > 1:
        wrong, of = np.array(_wrong(FIGURES[0], rows)).T
        for client, p in zip(clients, chances(wrong, of), strict=True):
            client["chance"] = p
    return {"promise": {"confidence": level, "people": people, "figures": whole}}


def _wrong(figure: Figure, rows: Sequence[Counted]) -> list[tuple[int, int]]:
    """Of every client the rows that count against a rate, and all of them; the first figure is
    accuracy.
    """
    pairs = (map(int, figure.value(one.confusion)) for one in rows)
    return [(of - right, of) for right, of in pairs]


def in_words(row: Mapping[str, Any], like: str = "its held-out ones") -> str:
    """What is promised of new rows at every client, or why nothing is; ``row`` as it is stated of a
    set of rows, ``like`` what the new ones have to be like.
    """
    if (promise := row.get("promise")) is None:
        return f"No bound for every client is stated: {WHY[row['unstated']]}."
    # clients without such rows are not among them, and nothing is said of these
    first, many = promise["figures"]["accuracy"], len(row["clients"])
    several = any(client["n"] > client.get("people", client["n"]) for client in row["clients"])
    new, more = "persons" if promise["people"] else "rows", ""
    new += " (one row of each counts)" * several
    if (then := first.get("then")) is not None:
        less = percent(1 - then["bound"], up=True)
        more = f"; with {then['wrong']:,} wrong of {then['of']:,} it would be {less}"
        alone = most(then["wrong"], then["of"], 1 - promise["confidence"])
        more += ", since another client would then decide" * (alone < 1 - then["bound"] - 1e-9)
    others = [
        f"{figure.spoken} {'at least' if figure.higher else 'at most'}"
        f" {shown(figure, at['bound'])} ({_name(at)}"
        + (f", {at['of'] - at['wrong']:,} of {at['of']:,})" if "of" in at else ")")
        for figure in figures_of()
        if (at := promise["figures"].get(figure.key)) is not None and at is not first
    ]
    text = (
        f"With {100 * promise['confidence']:.10g} % confidence the model is wrong in at most"
        f" {percent(1 - first['bound'], up=True)} of new {new} at"
        f" {f'each of the {many} clients' if many > 1 else _name(first)}, if they are like {like}."
        f" {_name(first)} ({first['wrong']:,} wrong of {first['of']:,}) decides this{more}."
        f"{_other_worst(row['clients'], first)}"
    )
    return text + f" Likewise, each by itself: {', '.join(others)}." * bool(others)


def _other_worst(clients: Sequence[Figures], first: Figures) -> str:
    """Why another client decides the bound than the one with the largest share of errors."""
    worst, *_ = worst_first(clients, "accuracy") or [first]
    (own,) = (row for row in clients if row["client"] == first["client"])
    if worst["client"] == first["client"] or worst["accuracy"] >= own["accuracy"]:
        return ""
    if worst.get("people", worst["n"]) <= first["of"]:  # one row of each person decides
        return f" Of all rows a larger share is wrong at {_name(worst)}."
    why = f"but more is known of it, so that less is left open there than at {_name(first)}"
    return f" A larger share is wrong at {_name(worst)}, {why}."


def _name(at: Figures) -> str:
    return short(printable(at["client"]), NAME)


def shown(figure: Figure, bound: float) -> str:
    """A bound on a figure, rounded so that it still holds."""
    if figure.of == "rate":
        return percent(bound)
    return f"{math.ceil(1e3 * bound) / 1e3:g}"


def percent(share: float, up: bool = False) -> str:
    """A share in percent, rounded down, or ``up``: below 10 % to a tenth."""
    step = 10 if share < 0.1 else 1
    whole = 100 * step * share
    return f"{(math.ceil(whole - 1e-9) if up else math.floor(whole + 1e-9)) / step:g} %"


def _counts(bad: tuple[int, int], others: float, delta: float) -> Figures:
    """The rows that decide, and what more of them at the same rate would show; nothing where other
    clients would then keep the bound where it is.
    """
    wrong, of = bad
    stated: Figures = {"wrong": wrong, "of": of}
    more = ENOUGH if 2 * of <= ENOUGH else 10 * of
    if of:
        as_many = round(wrong * more / of)
        bound = max(others, most(as_many, more, delta))
        if bound < 0.9 * most(wrong, of, delta):
            stated["then"] = {"wrong": as_many, "of": more, "bound": 1 - bound}
    return stated


def chances(wrong: Array, of: Array) -> list[float]:
    """By client the probability, times their number, that so many of all wrong rows or more would
    be at it if all clients were alike; at most 1.

    Examples
    --------
    >>> from bonafed.worst_client import chances
    >>> [round(p, 3) for p in chances([5, 1], [10, 90])]
    [0.0, 1.0]
    """
    k, n = np.asarray(wrong, float), np.asarray(of, float)
    K, N = k.sum(), n.sum()
    found = []
    for k_i, n_i in zip(k, n, strict=True):
        j = np.arange(k_i, min(n_i, K) + 1)
        logs = _choose(n_i, j) + _choose(N - n_i, K - j) - _choose(N, K)
        found.append(float(min(1.0, len(k) * np.exp(logs).sum())))
    return found


def _choose(n: Any, k: Any) -> Any:
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
