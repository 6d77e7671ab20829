"""Two models compared on the same rows, and whether the main model helped, in words.

Rows are paired: an exact sign test shows whether the counts of rows that only one model gets right
can be chance, and an interval whether the difference of mean losses can. A model of a risk by rank
is also judged by that risk of the held-out losses (`quorate.runs.rank_metrics`).

A robust model helped where it is right more often, or its mean loss is lower, than chance would
show. A model of a risk by rank helped where that risk of the held-out losses is lower; what it does
to the mean loss is what it costs. A model under constraints is asked whether it meets them on rows
that it was not trained on, and what they cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from quorate.arrays import Array
from quorate.data.federation import Federation
from quorate.problem.problem import Problem
from quorate.problem.risks.ranks import by_rank
from quorate.runs.evaluation import measure, rows_of
from quorate.runs.rank_metrics import risk_saved

SHOWN = 0.05  # a sign test below this is called a difference
NONE = "no difference that can be shown"
LOSS = (NONE, "lower", "higher")


def sign_test(more: int, fewer: int) -> float:
    """Two-sided p of so uneven a split if either were as likely: exact binomial."""
    n, k = more + fewer, min(more, fewer)
    return min(1.0, sum(math.comb(n, j) for j in range(k + 1)) / 2 ** (n - 1)) if n else 1.0


def paired(
    problem: Problem, w: Array, other: Array, fed: Federation, trained: int | None = None
) -> dict[str, Any]:
    """Rows that only one of two models gets right (regression: that it gets closer), and how their
    losses differ.

    ``less`` is how much lower the first model's mean loss is, ``margin`` half the width of its 95 %
    interval (normal); ``risk_less`` and ``risk_margin`` are those of a risk by rank.
    """
    both = list(zip(rows_of(problem, w, fed), rows_of(problem, other, fed), strict=True))
    merit = np.concatenate([a[1] - b[1] for a, b in both])
    saved = np.concatenate([b[0] - a[0] for a, b in both])
    better, worse = int((merit > 0).sum()), int((merit < 0).sum())
    margin = 1.96 * float(saved.std(ddof=1)) / math.sqrt(len(saved)) if len(saved) > 1 else math.inf
    p = sign_test(better, worse)
    found: dict[str, Any] = {
        "better": better,
        "worse": worse,
        "p": p,
        "less": float(saved.mean()),
        "margin": margin,
    }
    if by_rank(problem.over_samples):
        ours, theirs = (np.concatenate([pair[k][0] for pair in both]) for k in (0, 1))
        less, width = risk_saved(problem.over_samples, ours, theirs, trained)
        found |= {"risk_less": less, "risk_margin": width}
    return found


def evaluate(
    problem: Problem,
    models: Mapping[str, Array],
    tests: Mapping[str, Federation],
    trained: int | None = None,
) -> dict[str, Any]:
    """Every model on every set, the first model paired with each other one, and the verdict in
    words.

    ``trained`` is the number of rows that a risk of counted ranks was stated for.
    """
    main, *others = models
    measures = [
        {"set": s, "model": m, **measure(problem, w, fed, trained)}
        for s, fed in tests.items()
        for m, w in models.items()
    ]
    pairs = [
        {
            "set": s,
            "model": main,
            "other": m,
            **paired(problem, models[main], models[m], fed, trained),
        }
        for s, fed in tests.items()
        for m in others
    ]
    return {"measures": measures, "pairs": pairs, "verdict": verdict(measures, pairs)}


# -------------------------------------------------------------------------------------- in words


def verdict(measures: list[dict[str, Any]], pairs: list[dict[str, Any]]) -> list[str]:
    """The answer in short, then one sentence for each set and other model."""
    by = {(row["set"], row["model"]): row for row in measures}
    if any("asked" in row for row in measures):
        return [
            _headline_of_constraints(measures),
            *(_sentence_of_constraints(pair, by) for pair in pairs),
        ]
    ranked = any("risk_less" in pair for pair in pairs)
    headline, sentence = (
        (_headline_of_rank, _sentence_of_rank) if ranked else (_headline, _sentence)
    )
    return [headline(pairs) for _ in pairs[:1]] + [
        sentence(pair, by[pair["set"], pair["model"]], by[pair["set"], pair["other"]])
        for pair in pairs
    ]


def shown(pair: Mapping[str, Any]) -> tuple[int, int, int]:
    """In rows, in mean loss and in the risk: 1 where the first model is better beyond chance, -1
    worse, else 0.
    """
    rows = 0 if pair["p"] >= SHOWN else 1 if pair["better"] > pair["worse"] else -1
    return (
        rows,
        _beyond(pair["less"], pair["margin"]),
        _beyond(pair.get("risk_less", 0.0), pair.get("risk_margin")),
    )


def _beyond(less: float, margin: float | None) -> int:
    return 0 if margin is None or abs(less) <= margin else 1 if less > 0 else -1


def _compared(pairs: list[dict[str, Any]]) -> str:
    others, sets = (list(dict.fromkeys(pair[key] for pair in pairs)) for key in ("other", "set"))
    n, model = len(pairs), _name(pairs[0])
    return (
        f"In {n} comparison{'s' * (n > 1)} of {model} with {' and '.join(others)} on rows that no"
        f" model was trained on ({'; '.join(sets)}),"
    )


def _counts(pairs: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """(better, worse) in rows, in mean loss and in the risk."""
    return [(signs.count(1), signs.count(-1)) for signs in zip(*map(shown, pairs), strict=True)]


def _others(pairs: list[dict[str, Any]], places: slice) -> str:
    """What the comparisons that are not counted show, where some are."""
    same = not all(any(shown(pair)[places]) for pair in pairs)
    return " The other comparisons show no difference." * (same and len(pairs) > 1)


# ------------------------------------------------------------------------------------ robust models


def _headline(pairs: list[dict[str, Any]]) -> str:
    (up, down), (lower, higher), _ = _counts(pairs)
    helped = all(1 in shown(pair)[:2] for pair in pairs)
    answers = {
        (True, False): "Yes" if helped else "Yes, in part",
        (False, True): "No, it hurt",
        (True, True): "It depends",
    }
    answer = answers.get((up + lower > 0, down + higher > 0), "Not measurably")
    if len(pairs) == 1:
        right, loss = shown(pairs[0])[:2]
        often = ("neither more nor less often", "more often", "less often")[right]
        height = ("not measurably different", "lower", "higher")[loss]
        return (
            f"{answer}. {_compared(pairs)} it was right {often} than chance would show; its mean"
            f" loss was {height}."
        )
    return (
        f"{answer}. {_compared(pairs)} it was right more often than chance would show in {up} and"
        f" less often in {down}; its mean loss was lower in {lower} and higher in"
        f" {higher}.{_others(pairs, slice(0, 2))}"
    )


def _sentence(pair: Mapping[str, Any], main: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    return (
        f"On {pair['set']} ({main['n']} rows), against {pair['other']}: {_rows(pair, main, other)} "
        f"{_mean_loss(pair, main, other)}."
    )


def _rows(pair: Mapping[str, Any], main: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    right = "accuracy" in main
    name, what, verb = (
        ("accuracy", "accuracy", "right") if right else ("error", "mean absolute error", "closer")
    )
    rows = (NONE, "helped", "hurt")[shown(pair)[0]]
    here, there, us, them = (
        main[f"worst_{name}"],
        other[f"worst_{name}"],
        _name(pair),
        pair["other"],
    )
    worst = (
        "the same" if abs(here - there) < 5e-4 else "better" if (here > there) == right else "worse"
    )
    return (
        f"{pair['better']} that only {us} gets {verb}, {pair['worse']} only {them}, {rows} "
        f"(sign test p = {pair['p']:.2g}); {what} {main[name]:.3f} against {other[name]:.3f}, "
        f"at the worst client {here:.3f} against {there:.3f} ({worst})."
    )


def _mean_loss(pair: Mapping[str, Any], main: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    return (
        f"Mean loss {main['loss']:.3f} against {other['loss']:.3f}, {LOSS[shown(pair)[1]]} "
        f"({-pair['less']:+.3f} ± {pair['margin']:.3f} at 95 %)"
    )


# ------------------------------------------------------------------------------------ risks by rank


def _headline_of_rank(pairs: list[dict[str, Any]]) -> str:
    _, (lower, higher), (better, worse) = _counts(pairs)
    untested = sum(pair["risk_margin"] is None for pair in pairs)
    answers = {
        (True, True): "It depends",
        (True, False): "Yes" if better == len(pairs) else "Yes, in part",
    }
    answers[False, True] = "No, it rose"
    answer = answers.get(
        (better > 0, worse > 0),
        "It cannot be tested" if untested == len(pairs) else "Not measurably",
    )
    said = (
        f"{answer}. {_compared(pairs)} the {_name(pairs[0])} of the losses was lower than chance"
        " would show in "
    )
    said += (
        f"{better} and higher in {worse}; the mean loss was higher in {higher} and lower in"
        f" {lower}."
    )
    if untested:
        return said + f" In {untested} too few rows carry the {_name(pairs[0])} for an interval."
    return said + _others(pairs, slice(1, 3))


def _sentence_of_rank(
    pair: Mapping[str, Any], main: Mapping[str, Any], other: Mapping[str, Any]
) -> str:
    margin = pair["risk_margin"]
    told = "too few rows carry it for an interval" if margin is None else LOSS[shown(pair)[2]]
    width = "" if margin is None else f" ± {margin:.3f} at 95 %, rows drawn again"
    return (
        f"On {pair['set']} ({main['n']} rows), against {pair['other']}: {_name(pair)} of the losses"
        f" {main['risk']:.3f} against {other['risk']:.3f}, {told}"
        f" ({-pair['risk_less']:+.3f}{width}). {_price(pair, main, other)}. Of the rows,"
        f" {_rows(pair, main, other)}"
    )


def _price(pair: Mapping[str, Any], main: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    said = _mean_loss(pair, main, other)
    return f"What it costs: {said[:1].lower()}{said[1:]}" if shown(pair)[1] < 0 else said


def _name(pair: Mapping[str, Any]) -> str:
    return pair["model"].replace("_", " ")


# -------------------------------------------------------------------------------------- constraints


def _headline_of_constraints(measures: list[dict[str, Any]]) -> str:
    """How many constraints the first model meets on each set."""
    main = [row for row in measures if row["model"] == measures[0]["model"] and "asked" in row]
    all_met = all(row["met"] == row["asked"] for row in main)
    none = not any(row["met"] for row in main)
    said = "; ".join(f"{_met(row)} on {row['set']}" for row in main)
    answer = "Yes" if all_met else "No" if none else "In part"
    return (
        f"{answer}. Of the constraints that can be asked there, {_name(main[0])} meets {said}. They"
        " are guaranteed for the training rows; on others chance alone violates some whose limit is"
        " reached."
    )


def _met(row: Mapping[str, Any]) -> str:
    excess = (
        f" (largest excess {row['excess']:.3g}, {row['excess_owner']})"
        if row["met"] < row["asked"]
        else ""
    )
    return f"{row['met']} of {row['asked']}{excess}"


def _sentence_of_constraints(
    pair: Mapping[str, Any], by: Mapping[tuple[str, str], Mapping[str, Any]]
) -> str:
    main, other = by[pair["set"], pair["model"]], by[pair["set"], pair["other"]]
    both = "asked" in main and "asked" in other
    kept = (
        f"{_name(pair)} meets {_met(main)} constraints, {pair['other']} {_met(other)}. "
        if both
        else ""
    )
    return (
        f"On {pair['set']} ({main['n']} rows), against {pair['other']}:"
        f" {kept}{_price(pair, main, other)}. Of the rows, {_rows(pair, main, other)}"
    )
