"""Whether what is said of the worst client holds: of a fixed model whose true rates are known by
construction, over 200 repetitions of each of five kinds of clients.

Every repetition draws held-out rows anew. The sentence is violated where some client's true rate is
worse than the bound at every client, the table where one is worse than the bound of its line.
Targets: at most 5 % plus two standard errors of each kind and figure; among alike clients chance is
denied in as few; with five rows a person that are alike the bounds hold, since one of each counts,
and would not otherwise. The slack is the bound minus the largest true error. One thread, 20 s.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import measure
import numpy as np
from numpy.typing import NDArray

from bonafed.measures import TWO
from bonafed.worst_client import Counted, most, once, promise

ERROR, TIMES, SLACK = 0.05, 200, 0.16
SIZES = tuple(np.geomspace(20, 2000, 10).astype(int).tolist())
FIGURES = ("accuracy", "recall", "precision", "specificity", "brier")


@dataclass(frozen=True)
class Kind:
    """Clients by their numbers of held-out rows and the true rates of a fixed model's errors."""

    name: str
    sizes: tuple[int, ...]
    wrong: tuple[float, ...]
    persons: int = 1  # rows of each person, all of them right or all of them wrong
    shuffled: bool = False  # whether the true rates go to other clients in each repetition

    @property
    def alike(self) -> bool:
        return len(set(self.wrong)) == 1


KINDS = (
    Kind("4 clients of 200 rows", (200,) * 4, (0.05, 0.1, 0.1, 0.3)),
    Kind("30 clients, one of 20 rows", (20, *[200] * 29), (0.3, *[0.1] * 29)),
    Kind("100 alike clients of 200 rows", (200,) * 100, (0.1,) * 100),
    Kind(
        *("10 clients of 20 to 2,000 rows", SIZES, tuple(np.linspace(0.05, 0.25, 10).tolist())),
        shuffled=True,
    ),
    Kind("4 clients of 200 rows, 5 a person", (200,) * 4, (0.05, 0.1, 0.1, 0.3), persons=5),
)


def drawn(
    rng: np.random.Generator, n: int, wrong: float, rows: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.float64]]:
    """Truths, predictions and Brier scores of n rows, of which 40 % are positive; ``rows`` of each
    person, which are alike.
    """
    people = n // rows
    truth = np.repeat(rng.random(people) < 0.4, rows)
    bad = np.repeat(rng.random(people) < wrong, rows)
    # a probability beyond 1/2 on the side of what is predicted
    score = np.repeat(rng.uniform(0, 0.25, people), rows)
    return truth, truth ^ bad, np.where(bad, 1 - score, score)


def counted(truth: NDArray, said: NDArray, brier: NDArray, order: NDArray) -> Counted:
    cells = np.zeros((2, 2), int)
    np.add.at(cells, (truth[order].astype(int), said[order].astype(int)), 1)
    return Counted(cells, brier[order])


def true_rates(wrong: float) -> dict[str, float]:
    """Of the rows that `drawn` draws."""
    right, positive = 1 - wrong, 0.4
    called = positive * right + (1 - positive) * wrong
    return {
        **{"accuracy": right, "recall": right, "specificity": right},
        "precision": positive * right / called,
        "brier": right * 0.125 + wrong * 0.875,
    }


@dataclass
class Seen:
    """What was seen of one kind: violations by figure of the sentence and of the table, denials of
    chance, and by repetition the slack, beside that of Bonferroni.
    """

    sentence: dict[str, float]
    table: dict[str, float]
    denied: float
    slack: float
    bonferroni: float


def seen(kind: Kind, times: int, by_rows: bool = False) -> Seen:
    """``by_rows``: every row counts, also where a person has several."""
    sentence, table = (dict.fromkeys(FIGURES, 0) for _ in range(2))
    denied, slack, bonferroni = 0, [], []
    for k in range(times):
        rng = np.random.default_rng([k, len(kind.sizes), kind.persons])
        wrong = rng.permutation(kind.wrong) if kind.shuffled else np.array(kind.wrong)
        rows = []
        for n, p in zip(kind.sizes, wrong, strict=True):
            truth, said, brier = drawn(rng, n, p, kind.persons)
            who = None if by_rows or kind.persons == 1 else np.arange(n) // kind.persons
            rows.append(counted(truth, said, brier, once(n, who)))
        clients = [{"client": str(i)} for i in range(len(rows))]
        figures = promise(TWO, clients, rows)["promise"]["figures"]
        truths = [true_rates(p) for p in wrong]
        for key in FIGURES:
            sign = -1 if key == "brier" else 1
            true = [sign * one[key] for one in truths]
            bounds = [sign * client["bounds"][key] for client in clients]
            sentence[key] += min(true) < sign * figures[key]["bound"]
            table[key] += any(np.array(true) < bounds)
        denied += any(client["chance"] < ERROR for client in clients)
        cells = [one.confusion for one in rows]
        delta = ERROR / len(rows)
        other = max(most(int(c.sum() - np.trace(c)), int(c.sum()), delta) for c in cells)
        slack.append(1 - figures["accuracy"]["bound"] - wrong.max())
        bonferroni.append(other - wrong.max())
    of = ({key: n / times for key, n in each.items()} for each in (sentence, table))
    return Seen(*of, denied / times, float(np.median(slack)), float(np.median(bonferroni)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=TIMES)
    times, targets, rows = parser.parse_args().times, measure.Targets(), []
    limit = ERROR + 2 * math.sqrt(ERROR * (1 - ERROR) / times)
    for kind, by_rows in [*((kind, False) for kind in KINDS), (KINDS[-1], True)]:
        found = seen(kind, times, by_rows)
        name = kind.name + ", every row counted" * by_rows
        shares = [*map(max, (found.sentence.values(), found.table.values()))]
        accuracy = found.sentence["accuracy"], found.table["accuracy"]
        percents = (100 * share for share in (*accuracy, *shares, found.denied))
        rows.append((name, *percents, found.slack, found.bonferroni))
        if by_rows:  # the fault that is avoided: it has to show
            targets.need(max(shares) > limit, f"{name}: {max(shares):.1%} violated")
            continue
        targets.need(max(shares) <= limit, f"{name}: {max(shares):.1%} <= {limit:.1%} violated")
        if kind.alike:
            targets.need(found.denied <= limit, f"{name}: {found.denied:.1%} denied chance")
        if kind.shuffled:
            targets.need(found.slack <= SLACK, f"{name}: slack {found.slack:.3f} <= {SLACK}")
    columns = ("clients", "sentence violated %", "table violated %", "sentence, any figure %")
    columns += ("table, any figure %", "chance denied %", "slack", "slack of Bonferroni")
    measure.show("worst client", columns, rows)
    targets.finish()


if __name__ == "__main__":
    main()
