"""Two models compared on the same rows, and whether the main model helped, in words.

Rows are paired: an exact sign test shows whether the counts of rows that only one model gets right
can be chance, and an interval whether the difference of mean losses can. A model of a risk by rank
is also judged by that risk of the held-out losses (`quorate.runs.rank_metrics`).

A robust model helped where it is right more often, or its mean loss is lower, than chance would
show. A model of a risk by rank helped where that risk of the held-out losses is lower; a higher
mean loss is what it costs. A model under constraints is asked whether it meets them on rows that it
was not trained on, and what they cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, TypeAlias

import numpy as np
from pydantic import model_validator

from quorate.arrays import Array
from quorate.data.federation import Federation
from quorate.problem.problem import Problem
from quorate.problem.risks.ranks import by_rank
from quorate.runs.evaluation import MeasureForm, measure, rows_of
from quorate.runs.files import Record, Row
from quorate.runs.form import Extended, Form, Number, Share, Whole, optional
from quorate.runs.rank_metrics import risk_saved

Pairs: TypeAlias = Sequence[Row]
SHOWN = 0.05  # a sign test below this shows a difference
NONE = "no difference that can be shown"
LOSS = (NONE, "lower", "higher")


class PairForm(Form):
    """Two models on the same rows, see `paired`."""

    TOGETHER: ClassVar = (("risk_less", "risk_margin"),)

    set: str
    model: str
    other: str
    better: Whole
    worse: Whole
    p: Share
    less: Number
    margin: Extended
    risk_less: Number = optional()
    risk_margin: Extended | None = optional()


class EvaluationForm(Form):
    """Every model on every set of rows, the pairs and the verdict, see `evaluate`."""

    measures: list[MeasureForm]
    pairs: list[PairForm]
    verdict: list[str]

    @model_validator(mode="after")
    def _parts_fit(self) -> EvaluationForm:
        places = [(row.set, row.model) for row in self.measures]
        sets, models = ([*dict.fromkeys(place[k] for place in places)] for k in (0, 1))
        if places != [(name, model) for name in sets for model in models]:
            raise ValueError("measures of every model on every set, once")
        pairs = [(row.set, row.model, row.other) for row in self.pairs]
        if pairs and pairs != [(name, models[0], m) for name in sets for m in models[1:]]:
            raise ValueError("pairs of the first model with every other one on every set, once")
        headline = bool(pairs or any(row.asked is not None for row in self.measures))
        if len(self.verdict) != headline + len(pairs):
            raise ValueError("a verdict of one sentence, and one for every pair")
        return self


def sign_test(more: int, fewer: int) -> float:
    """The two-sided p-value of an exact binomial test that either count is as likely."""
    n, k = more + fewer, min(more, fewer)
    return min(1.0, sum(math.comb(n, j) for j in range(k + 1)) / 2 ** (n - 1)) if n else 1.0


def paired(
    problem: Problem, w: Array, other: Array, fed: Federation, trained: int | None = None
) -> Record:
    """Rows that only one of two models gets right (regression: that it gets closer), and how their
    losses differ.

    ``less`` is how much lower the first model's mean loss is, ``margin`` half the width of its 95 %
    interval (normal); ``risk_less`` and ``risk_margin`` are those of a risk by rank.
    """
    both = list(zip(rows_of(problem, w, fed), rows_of(problem, other, fed), strict=True))
    merit = np.concatenate([a[1] - b[1] for a, b in both])
    losses, theirs = (np.concatenate([pair[k][0] for pair in both]) for k in (0, 1))
    saved = theirs - losses
    better, worse = int((merit > 0).sum()), int((merit < 0).sum())
    margin = 1.96 * float(saved.std(ddof=1)) / math.sqrt(len(saved)) if len(saved) > 1 else math.inf
    pair: Record = {"better": better, "worse": worse, "p": sign_test(better, worse)}
    pair |= {"less": float(saved.mean()), "margin": margin}
    if by_rank(problem.over_samples):
        less, width = risk_saved(problem.over_samples, losses, theirs, trained)
        pair |= {"risk_less": less, "risk_margin": width}
    return pair


def evaluate(
    problem: Problem,
    models: Mapping[str, Array],
    tests: Mapping[str, Federation],
    trained: int | None = None,
) -> Record:
    """Every model on every set, the first model paired with each other one, and the verdict in
    words.

    ``trained`` is the number of rows that a risk of counted ranks was stated for.
    """
    main, *others = models
    measures, pairs = [], []
    for name, fed in tests.items():
        for model, w in models.items():
            measures.append({"set": name, "model": model, **measure(problem, w, fed, trained)})
        for model in others:
            numbers = paired(problem, models[main], models[model], fed, trained)
            pairs.append({"set": name, "model": main, "other": model, **numbers})
    return {"measures": measures, "pairs": pairs, "verdict": verdict(measures, pairs)}


# -------------------------------------------------------------------------------------- in words


def verdict(measures: Sequence[Row], pairs: Pairs) -> list[str]:
    """The answer in short, then one sentence for each set and other model."""
    headline: list[str] = []
    sentence: Callable[[Row, Row, Row], str] = _sentence
    if any("asked" in row for row in measures):
        headline, sentence = [_headline_of_constraints(measures)], _sentence_of_constraints
    elif any("risk_less" in pair for pair in pairs):
        headline, sentence = [_headline_of_rank(pairs)], _sentence_of_rank
    elif pairs:
        headline = [_headline(pairs)]
    by = {(row["set"], row["model"]): row for row in measures}
    return headline + [
        f"On {pair['set']} ({by[pair['set'], pair['model']]['n']} rows), against {pair['other']}:"
        f" {sentence(pair, by[pair['set'], pair['model']], by[pair['set'], pair['other']])}"
        for pair in pairs
    ]


def shown(pair: Row) -> tuple[int, int, int]:
    """Whether the first model is better beyond chance (1), worse (-1) or neither (0) in rows, in
    mean loss and in the risk.
    """
    rows = 0 if pair["p"] >= SHOWN else 1 if pair["better"] > pair["worse"] else -1
    return (
        rows,
        _beyond(pair["less"], pair["margin"]),
        _beyond(pair.get("risk_less", 0.0), pair.get("risk_margin")),
    )


def _beyond(less: float, margin: float | None) -> int:
    return 0 if margin is None or abs(less) <= margin else 1 if less > 0 else -1


def _compared(pairs: Pairs) -> str:
    others, sets = (list(dict.fromkeys(pair[key] for pair in pairs)) for key in ("other", "set"))
    n, model = len(pairs), _name(pairs[0])
    return (
        f"In {n} comparison{'s' * (n > 1)} of {model} with {' and '.join(others)} on rows that no"
        f" model was trained on ({'; '.join(sets)}),"
    )


def _counts(pairs: Pairs) -> list[tuple[int, int]]:
    """(better, worse) in rows, in mean loss and in the risk."""
    return [(signs.count(1), signs.count(-1)) for signs in zip(*map(shown, pairs), strict=True)]


def _answer(better: int, worse: int, always: bool, no: str, none: str = "Not measurably") -> str:
    """The answer to whether the model helped; ``always``: in every comparison."""
    if better and worse:
        return "It depends"
    if better:
        return "Yes" if always else "Yes, in part"
    return no if worse else none


def _others(pairs: Pairs, places: slice) -> str:
    """What the comparisons that are not counted show, where some are."""
    same = not all(any(shown(pair)[places]) for pair in pairs)
    return " The other comparisons show no difference." * (same and len(pairs) > 1)


# ------------------------------------------------------------------------------------ robust models


def _headline(pairs: Pairs) -> str:
    (up, down), (lower, higher), _ = _counts(pairs)
    always = all(1 in shown(pair)[:2] for pair in pairs)
    start = (
        f"{_answer(up + lower, down + higher, always, 'No, it hurt')}. {_compared(pairs)} it was"
    )
    if len(pairs) == 1:
        right, loss = shown(pairs[0])[:2]
        often = ("neither more nor less often", "more often", "less often")[right]
        height = ("not measurably different", "lower", "higher")[loss]
        return f"{start} right {often} than chance would show; its mean loss was {height}."
    return (
        f"{start} right more often than chance would show in {up} and less often in {down}; its"
        f" mean loss was lower in {lower} and higher in {higher}.{_others(pairs, slice(0, 2))}"
    )


def _sentence(pair: Row, main: Row, other: Row) -> str:
    return f"{_rows(pair, main, other)} {_mean_loss(pair, main, other)}."


def _rows(pair: Row, main: Row, other: Row) -> str:
    """Which rows only one of the models gets right, and how right both are at the worst client."""
    right = "accuracy" in main
    key, words, verb = ("accuracy", "accuracy", "right")
    if not right:
        key, words, verb = ("error", "mean absolute error", "closer")
    here, there = main[f"worst_{key}"], other[f"worst_{key}"]
    worst = "better" if (here > there) == right else "worse"
    worst = "the same" if abs(here - there) < 5e-4 else worst
    return (
        f"{pair['better']} that only {_name(pair)} gets {verb}, {pair['worse']} only"
        f" {pair['other']}, {(NONE, 'helped', 'hurt')[shown(pair)[0]]} "
        f"(sign test p = {pair['p']:.2g}); {words} {main[key]:.3f} against {other[key]:.3f}, "
        f"at the worst client {here:.3f} against {there:.3f} ({worst})."
    )


def _mean_loss(pair: Row, main: Row, other: Row) -> str:
    return (
        f"Mean loss {main['loss']:.3f} against {other['loss']:.3f}, {LOSS[shown(pair)[1]]} "
        f"({-pair['less']:+.3f} ± {pair['margin']:.3f} at 95 %)"
    )


# ------------------------------------------------------------------------------------ risks by rank


def _headline_of_rank(pairs: Pairs) -> str:
    _, (lower, higher), (better, worse) = _counts(pairs)
    untested = sum(pair["risk_margin"] is None for pair in pairs)
    none = "It cannot be tested" if untested == len(pairs) else "Not measurably"
    answer = _answer(better, worse, better == len(pairs), "No, it rose", none)
    text = (
        f"{answer}. {_compared(pairs)} the {_name(pairs[0])} of the losses was lower than chance"
        f" would show in {better} and higher in {worse}; the mean loss was higher in {higher} and"
        f" lower in {lower}."
    )
    if untested:
        return text + f" In {untested} too few rows carry the {_name(pairs[0])} for an interval."
    return text + _others(pairs, slice(1, 3))


def _sentence_of_rank(pair: Row, main: Row, other: Row) -> str:
    margin = pair["risk_margin"]
    sign, width = "too few rows carry it for an interval", ""
    if margin is not None:
        sign, width = LOSS[shown(pair)[2]], f" ± {margin:.3f} at 95 %, rows drawn again"
    return (
        f"{_name(pair)} of the losses {main['risk']:.3f} against {other['risk']:.3f}, {sign}"
        f" ({-pair['risk_less']:+.3f}{width}). {_cost(pair, main, other)}"
    )


def _cost(pair: Row, main: Row, other: Row) -> str:
    """The mean loss, as a cost where it is higher, and the rows."""
    text = _mean_loss(pair, main, other)
    if shown(pair)[1] < 0:
        text = f"What it costs: {text[:1].lower()}{text[1:]}"
    return f"{text}. Of the rows, {_rows(pair, main, other)}"


def _name(pair: Row) -> str:
    return pair["model"].replace("_", " ")


# -------------------------------------------------------------------------------------- constraints


def _headline_of_constraints(measures: Sequence[Row]) -> str:
    """How many constraints the first model meets on each set."""
    main = [row for row in measures if row["model"] == measures[0]["model"] and "asked" in row]
    text = "; ".join(f"{_met(row)} on {row['set']}" for row in main)
    answer = "In part" if any(row["met"] for row in main) else "No"
    answer = "Yes" if all(row["met"] == row["asked"] for row in main) else answer
    return (
        f"{answer}. Of the constraints that can be asked there, {_name(main[0])} meets {text}. They"
        " are guaranteed for the training rows; on others chance alone violates some whose limit is"
        " reached."
    )


def _met(row: Row) -> str:
    text = f"{row['met']} of {row['asked']}"
    if row["met"] == row["asked"]:
        return text
    return f"{text} (largest excess {row['excess']:.3g}, {row['excess_owner']})"


def _sentence_of_constraints(pair: Row, main: Row, other: Row) -> str:
    met = ""
    if "asked" in main and "asked" in other:
        met = f"{_name(pair)} meets {_met(main)} constraints, {pair['other']} {_met(other)}. "
    return met + _cost(pair, main, other)
