"""Two models compared on the same rows, and whether the main model helped, in words.

Rows are paired. A difference *counts* where chance does not explain it and a person would care:

- rows that only one model gets right: an exact sign test, and a net share of rows above .005;
- mean loss (and the risk, for a risk by rank): an interval that excludes zero, and a difference
  above 1 % of the other model's loss.

With T tests in a run each has the level .05 / T (Bonferroni), intervals alike: where no model
differs, at most one run in twenty claims anything. What agrees to rounding is not a difference: a
row near the border of two classes belongs to no model, and a loss near zero is held against that of
a model without features. Where nothing counts, the verdict says so, with the smallest effect that
these rows could have shown.

A robust model helped where it is right more often; where its mean loss by itself is lower, the
verdict says that. A model of a risk by rank helped where that risk of the held-out losses is lower;
a higher mean loss is what it costs. A model under constraints is asked whether it meets them on
rows that it was not trained on, and what they cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.special import betainc, ndtri, stdtrit

from bonafed.arrays import Array
from bonafed.data.federation import Federation
from bonafed.problem.calibration import Sigmoid
from bonafed.problem.losses import Loss, has_log_link
from bonafed.problem.problem import Problem
from bonafed.problem.risks.ranks import by_rank
from bonafed.runs import files
from bonafed.runs.evaluation import (
    Judged,
    MeasureForm,
    judge,
    risk_of,
    risk_saved,
    rows_of,
    together,
)

Pairs: TypeAlias = Sequence[files.Row]
ERROR = 0.05  # of all tests of a run together
FLOOR_OF_ROWS, FLOOR_OF_LOSS = 0.005, 0.01  # what a person would care about
ROUNDING = 1e-4  # of the loss without a model: rows whose losses differ by less belong to none
_PLACES = {"rows": 0, "loss": 1, "risk": 2}  # of what counts, in an `Effect`
NONE = "no difference that these data could show"
LOSS = (NONE, "lower", "higher")


# two models on the same rows, see `paired`
PairForm = files.form(
    "PairForm",
    files.needs(str, "set", "model", "other"),
    files.needs(files.Whole, "better", "worse"),
    files.needs(files.Share, "p"),
    files.needs(files.Number, "less") | files.perhaps(files.Number, "risk_less"),
    files.needs(files.Extended, "margin") | files.perhaps(files.Extended | None, "risk_margin"),
    files.needs(files.Count, "tests"),
    files.needs(files.NonNegative, "floor") | files.perhaps(files.NonNegative, "risk_floor"),
)
# every model on every set of rows, the pairs and the verdict, see `evaluate`
EvaluationForm = files.form(
    "EvaluationForm",
    files.needs(list[MeasureForm], "measures")
    | files.needs(list[PairForm], "pairs")
    | files.needs(list[str], "verdict"),
)


def sign_test(more: int, fewer: int) -> float:
    """The two-sided p-value of an exact binomial test that either count is as likely."""
    n, k = more + fewer, min(more, fewer)
    return min(1.0, 2 * float(betainc(n - k, k + 1, 0.5))) if n else 1.0


def paired(
    problem: Problem,
    w: Array,
    other: Array,
    fed: Federation,
    trained: int | None = None,
    tests: int = 1,
) -> files.Record:
    """Rows that only one of two models gets right (regression: that it gets closer), and how their
    losses differ.

    ``less`` is how much lower the first model's mean loss is, ``margin`` half the width of its
    interval, which is corrected for the number of ``tests``; ``risk_less`` and ``risk_margin`` are
    those of a risk by rank. Below ``floor`` and ``risk_floor`` a difference does not count.
    """
    mine, theirs = (together(rows_of(problem, model, fed)) for model in (w, other))
    pair = effects(problem.loss, mine, theirs, tests)
    if by_rank(problem.over_losses):
        less, width = risk_saved(problem.over_losses, mine.loss, theirs.loss, trained)
        if (
            width is not None
        ):  # of as many standard errors as the tests need, instead of those of one
            width = width * -float(ndtri(ERROR / (2 * tests))) / -float(ndtri(ERROR / 2))
        risk = risk_of(problem.over_losses, theirs.loss, trained)
        floor = _floor(risk, _without(problem.loss, theirs))
        pair |= {"risk_less": less, "risk_margin": width, "risk_floor": floor}
    return pair


def effects(loss: Loss, mine: Judged, theirs: Judged, tests: int = 1) -> files.Record:
    """What `paired` states of the same rows under two models, but for risks by rank."""
    return counted([compared_rows(loss, mine, theirs)], tests)


class Compared(NamedTuple):
    """What two models do on the same rows, in numbers that add up over sets of rows: rows that only
    one gets right, how much lower the first one's mean loss is and the squares of this round
    their mean, and the other one's mean loss beside that without a model.
    """

    n: float
    better: float
    worse: float
    less: float
    squares: float
    loss: float
    without: float


def compared_rows(loss: Loss, mine: Judged, theirs: Judged) -> Compared:
    """Two models on the same rows."""
    saved, merit = theirs.loss - mine.loss, compared_merits(loss, mine, theirs)
    less = float(saved.mean())
    return Compared(
        n=len(saved),
        better=int((merit > 0).sum()),
        worse=int((merit < 0).sum()),
        less=less,
        squares=float(((saved - less) ** 2).sum()),
        loss=float(theirs.loss.mean()),
        without=_without(loss, theirs),
    )


def compared_merits(loss: Loss, mine: Judged, theirs: Judged) -> Array:
    """(m,) by how much the first of two models does better on every row, above 0 where it does; 0
    where the two are alike.
    """
    saved, merit = theirs.loss - mine.loss, mine.merit - theirs.merit
    if loss.targets == "real":  # nearly every row is closer to one of the models
        spread = float(np.abs(theirs.y - np.median(theirs.y)).mean())
        near = FLOOR_OF_LOSS * max(-float(theirs.merit.mean()), ROUNDING * spread)
        merit[np.abs(merit) <= near] = 0.0
    else:
        merit[np.abs(saved) <= ROUNDING * _without(loss, theirs)] = 0.0
    return merit


def counted(sets: Sequence[Compared], tests: int) -> files.Record:
    """What `paired` states of several sets of rows together."""
    n = sum(each.n for each in sets)
    better, worse = (int(sum(getattr(each, key) for each in sets)) for key in ("better", "worse"))

    def mean(key: str) -> float:
        return sum(each.n * getattr(each, key) for each in sets) / n

    less = mean("less")
    squares = sum(each.squares + each.n * (each.less - less) ** 2 for each in sets)
    quantile = -float(stdtrit(n - 1, ERROR / (2 * tests))) if n > 1 else math.inf
    return {
        "better": better,
        "worse": worse,
        "p": sign_test(better, worse),
        "less": less,
        "margin": quantile * math.sqrt(squares / (n - 1) / n) if n > 1 else math.inf,
        "tests": tests,
        "floor": _floor(mean("loss"), mean("without")),
    }


def evaluate(
    problem: Problem,
    models: Mapping[str, Array],
    tests: Mapping[str, Federation],
    trained: int | None = None,
    calibrations: Mapping[str, Sigmoid | None] | None = None,
) -> files.Record:
    """Every model on every set, the first model paired with each other one, and the verdict in
    words.

    ``trained`` is the number of rows that a risk of counted ranks was stated for; ``calibrations``
    make probabilities of the scores of a model.
    """
    main, *others = models
    measures, pairs, how = [], [], calibrations or {}
    asked = (3 if by_rank(problem.over_losses) else 2) * len(others) * len(tests)
    for name, fed in tests.items():
        for model, w in models.items():
            judged = judge(problem, w, fed, trained, how.get(model), curves=model == main)
            measures.append({"set": name, "model": model, **judged})
        for model in others:
            numbers = paired(problem, models[main], models[model], fed, trained, asked)
            pairs.append({"set": name, "model": main, "other": model, **numbers})
    return {"measures": measures, "pairs": pairs, "verdict": verdict(measures, pairs)}


def _floor(value: float, without: float) -> float:
    """What a difference from a loss has to exceed; the second term is far above a solver's
    tolerance.
    """
    return FLOOR_OF_LOSS * max(abs(value), FLOOR_OF_LOSS * without)


def _without(loss: Loss, rows: Judged) -> float:
    """The mean loss without a model: of the score 0, or of the median of y, of counts the mean."""
    middle = np.median(rows.y) if loss.targets == "real" else 0.0
    if has_log_link(loss):
        middle = math.log(max(float(rows.y.mean()), 1e-12))
    return float(loss.value(np.full_like(rows.prediction, middle), rows.y).mean())


# -------------------------------------------------------------------------------------- in words


def verdict(measures: Sequence[files.Row], pairs: Pairs) -> list[str]:
    """The answer in short, then one sentence for each set and other model."""
    headline: list[str] = []
    sentence: Callable[[files.Row, files.Row, files.Row], str] = _sentence
    by = {(row["set"], row["model"]): row for row in measures}
    compared = [Effect.of(pair, by[pair["set"], pair["other"]]) for pair in pairs]
    if any("asked" in row for row in measures):
        headline, sentence = [_headline_of_constraints(measures)], _sentence_of_constraints
    elif any("risk_less" in pair for pair in pairs):
        headline, sentence = [_headline_of_rank(pairs, compared)], _sentence_of_rank
    elif pairs:
        headline = [_headline(pairs, compared)]
    return headline + [
        f"On {pair['set']} ({by[pair['set'], pair['model']]['n']} rows), against {pair['other']}:"
        f" {sentence(pair, by[pair['set'], pair['model']], by[pair['set'], pair['other']])}"
        for pair in pairs
    ]


class Effect(NamedTuple):
    """A pair in short. For rows, mean loss and risk: whether the first model is better (1), worse
    (-1) or neither (0), and the smallest effect that would count: a share of the rows, and shares
    of the other model's loss and risk.
    """

    rows: int
    loss: int
    risk: int
    least: tuple[float, float, float]
    unit: str  # of a share of the rows, in hundredths

    @classmethod
    def of(cls, pair: files.Row, other: files.Row) -> Effect:
        """The pair, beside the other model's measures."""
        n, unit = other["n"], "points of accuracy"
        if "accuracy" not in other:
            unit = "% of the rows predicted closer"
        least = smallest_share(pair["better"] + pair["worse"], n, _level(pair))
        losses = [_least(pair, key, other) for key in ("loss", "risk")]
        return cls(*shown(pair, n), (least, losses[0], losses[1]), unit)


def shown(pair: files.Row, n: int) -> tuple[int, int, int]:
    """Whether the first model is better in a way that counts (1), worse (-1) or neither (0) in n
    rows, in mean loss and in the risk.
    """
    net = pair["better"] - pair["worse"]
    rows = 0 if pair["p"] >= _level(pair) or abs(net) <= FLOOR_OF_ROWS * n else _sign(net)
    return rows, _beyond(pair, "less"), _beyond(pair, "risk_less")


def smallest_share(single: int, n: int, level: float) -> float:
    """The smallest net share of n rows that would count, where ``single`` rows are right under one
    model only, or as many more as a test of this level needs.
    """
    needed = max(single, math.floor(1 - math.log2(level)) + 1)
    k = np.arange(needed // 2 + 1)
    fewer = int((2 * betainc(needed - k, k + 1, 0.5) < level).sum()) - 1
    return max((needed - 2 * fewer) / n, FLOOR_OF_ROWS)


def _level(pair: files.Row) -> float:
    return ERROR / pair.get("tests", 1)


def _beyond(pair: files.Row, key: str) -> int:
    less, margin, floor = _numbers(pair, key)
    return 0 if abs(less) <= max(margin, floor) else _sign(less)


def _numbers(pair: files.Row, key: str) -> tuple[float, float, float]:
    """(difference, margin, floor) of "less" or "risk_less"; no margin is an infinite one."""
    kind = key.removesuffix("less")
    margin = pair.get(f"{kind}margin")
    return (
        pair.get(key, 0.0),
        math.inf if margin is None else float(margin),
        pair.get(f"{kind}floor", 0.0),
    )


def _least(pair: files.Row, kind: str, other: files.Row) -> float:
    """The smallest difference that would count, as a share of the other model's loss or risk."""
    _, margin, floor = _numbers(pair, "less" if kind == "loss" else "risk_less")
    scale = max(abs(other.get(kind, 0.0)), floor / FLOOR_OF_LOSS)
    return max(margin, floor) / scale if scale else math.inf


def _sign(value: float) -> int:
    return 1 if value > 0 else -1


def _compared(pairs: Pairs) -> str:
    others, sets = (list(dict.fromkeys(pair[key] for pair in pairs)) for key in ("other", "set"))
    n, model = len(pairs), _name(pairs[0])
    return (
        f"In {n} comparison{'s' * (n > 1)} of {model} with {' and '.join(others)} on rows that no"
        f" model was trained on ({'; '.join(sets)}),"
    )


def _counts(signs: Sequence[int]) -> tuple[int, int]:
    """(better, worse)"""
    return signs.count(1), signs.count(-1)


def _no_difference(pairs: Pairs, effects: Sequence[Effect], kinds: Sequence[str]) -> str:
    """That nothing counts, with the smallest effects that would have."""
    units = {"rows": effects[0].unit, "loss": "% of the mean loss"}
    units["risk"] = f"% of the {_name(pairs[0])} of the losses"
    low, high = (
        " or ".join(
            f"{_hundred(pick(effect.least[_PLACES[kind]] for effect in effects))} {units[kind]}"
            for kind in kinds
        )
        for pick in (min, max)
    )
    least = low + f" (in the least sensitive comparison {high})" * (low != high)
    agree = " The models agree to rounding." * all(map(_alike, pairs))
    return (
        f"{_capital(NONE)}. {_compared(pairs)} the smallest difference that would have shown was"
        f" {least}.{agree}"
    )


def _hundred(value: float) -> str:
    return f"{100 * value:.1f}" if value <= 1 else "more than 100"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _alike(pair: files.Row) -> bool:
    less, margin, floor = _numbers(pair, "less")
    return not pair["better"] and not pair["worse"] and abs(less) + margin <= ROUNDING * floor


def _counted(pairs: Pairs, rest: Sequence[bool]) -> str:
    """What the comparisons show in which nothing counts, where there are some, and what counts."""
    tests, n = pairs[0].get("tests", 1), sum(rest)
    other = "The other comparison shows" if n == 1 else f"The other {n} comparisons show"
    text = f" {other} {NONE}." if n else ""
    return (
        f"{text} An effect counts above {100 * FLOOR_OF_ROWS:g} % of the rows or"
        f" {100 * FLOOR_OF_LOSS:g} % of the loss where its interval"
        f"{f', corrected for {tests} tests,' if tests > 1 else ''} excludes zero."
    )


# ------------------------------------------------------------------------------------ robust models


def _headline(pairs: Pairs, effects: Sequence[Effect]) -> str:
    if not any(effect.rows or effect.loss for effect in effects):
        return _no_difference(pairs, effects, ("rows", "loss"))
    up, down = _counts([effect.rows for effect in effects])
    lower, higher = _counts([effect.loss for effect in effects])
    answer = _answer((up, down), (lower, higher), len(pairs))
    start = f"{answer}. {_compared(pairs)} it was"
    close = "right" if "accuracy" in effects[0].unit else "closer"
    rest = [not (effect.rows or effect.loss) for effect in effects]
    if len(pairs) == 1:
        often = ("neither more nor less often", "more often", "less often")[effects[0].rows]
        height = ("not measurably different", "lower", "higher")[effects[0].loss]
        text = f"{close} {often} than chance would show; its mean loss was {height}."
    else:
        text = (
            f"{close} more often than chance would show in {up} and less often in {down}; its mean"
            f" loss was lower in {lower} and higher in {higher}."
        )
    return f"{start} {text}{_counted(pairs, rest)}"


def _answer(rows: tuple[int, int], loss: tuple[int, int], n: int) -> str:
    """Whether the model helped; some effect counts."""
    (up, down), (lower, higher) = rows, loss
    if up + lower and down + higher:
        return "It depends"
    if up:
        return "Yes" if up == n else "Yes, in part"
    if down:
        return "No, it hurt"
    return "Its mean loss by itself was lower" if lower else "No, its mean loss was higher"


def _sentence(pair: files.Row, main: files.Row, other: files.Row) -> str:
    return f"{_rows(pair, main, other)} {_mean_loss(pair, main, other)}."


def _rows(pair: files.Row, main: files.Row, other: files.Row) -> str:
    """Which rows only one of the models gets right, and how right both are at the worst client."""
    key, words, verb = ("accuracy", "accuracy", "right")
    if "accuracy" not in main:
        key, words, verb = ("error", "mean absolute error", "closer")
    here, there = main[f"worst_{key}"], other[f"worst_{key}"]
    return (
        f"{pair['better']} that only {_name(pair)} gets {verb}, {pair['worse']} only"
        f" {pair['other']}, {(NONE, 'helped', 'hurt')[shown(pair, main['n'])[0]]} "
        f"(sign test p = {pair['p']:.2g}); {words} {main[key]:.3f} against {other[key]:.3f}, "
        f"at the worst client {here:.3f} against {there:.3f}."
    )


def _mean_loss(pair: files.Row, main: files.Row, other: files.Row) -> str:
    return (
        f"Mean loss {main['loss']:.3f} against {other['loss']:.3f}, {LOSS[_beyond(pair, 'less')]} "
        f"({_signed(-pair['less'])} ± {float(pair['margin']):.3f} at {_confidence(pair)})"
    )


def _signed(value: float) -> str:
    return f"{round(value, 3) + 0.0:+.3f}"  # no minus before zeros


def _confidence(pair: files.Row) -> str:
    tests = pair.get("tests", 1)
    return "95 %" + (f", corrected for {tests} tests" if tests > 1 else "")


# ------------------------------------------------------------------------------------ risks by rank


def _headline_of_rank(pairs: Pairs, effects: Sequence[Effect]) -> str:
    untested = sum(pair["risk_margin"] is None for pair in pairs)
    better, worse = _counts([effect.risk for effect in effects])
    lower, higher = _counts([effect.loss for effect in effects])
    few = f" In {untested} too few rows carry the {_name(pairs[0])} for an interval."
    if not (better or worse or lower or higher):
        if untested == len(pairs):
            start = "It cannot be tested. "
            return f"{start}{_compared(pairs)} too few rows carry the {_name(pairs[0])}."
        return _no_difference(pairs, effects, ("risk", "loss")) + few * bool(untested)
    answer = "It cannot be tested" if untested == len(pairs) else _capital(NONE)
    if better and worse:
        answer = "It depends"
    elif better or worse:
        answer = "No, it rose" if worse else "Yes" if better == len(pairs) else "Yes, in part"
    text = (
        f"{answer}. {_compared(pairs)} the {_name(pairs[0])} of the losses was lower than chance"
        f" would show in {better} and higher in {worse}; the mean loss was higher in {higher} and"
        f" lower in {lower}."
    )
    rest = [not (effect.risk or effect.loss) for effect in effects]
    return text + _counted(pairs, rest) + few * bool(untested)


def _sentence_of_rank(pair: files.Row, main: files.Row, other: files.Row) -> str:
    margin = pair["risk_margin"]
    sign, width = "too few rows carry it for an interval", ""
    if margin is not None:
        sign = LOSS[_beyond(pair, "risk_less")]
        width = f" ± {float(margin):.3f} at {_confidence(pair)}, rows drawn again"
    return (
        f"{_name(pair)} of the losses {main['risk']:.3f} against {other['risk']:.3f}, {sign}"
        f" ({_signed(-pair['risk_less'])}{width}). {_cost(pair, main, other)}"
    )


def _cost(pair: files.Row, main: files.Row, other: files.Row) -> str:
    """The mean loss, as a cost where it is higher, and the rows."""
    text = _mean_loss(pair, main, other)
    if _beyond(pair, "less") < 0:
        text = f"What it costs: {text[:1].lower()}{text[1:]}"
    return f"{text}. Of the rows, {_rows(pair, main, other)}"


def _name(pair: files.Row) -> str:
    return pair["model"].replace("_", " ")


# -------------------------------------------------------------------------------------- constraints


def _headline_of_constraints(measures: Sequence[files.Row]) -> str:
    """How many constraints the first model meets on each set, and which others meet as many."""
    by: dict[str, list[files.Row]] = {}
    for row in measures:
        if "asked" in row:
            by.setdefault(row["model"], []).append(row)
    name, *others = by
    text = "; ".join(f"{_met(row)} on {row['set']}" for row in by[name])
    answer = "In part" if any(row["met"] for row in by[name]) else "No"
    answer = "Yes" if all(row["met"] == row["asked"] for row in by[name]) else answer
    met = {model: [row["met"] for row in rows] for model, rows in by.items()}
    same = [model.replace("_", " ") for model in others if met[model] == met[name]]
    also = f" {_capital(' and '.join(same))} meet{'s' * (len(same) == 1)} as many." * bool(same)
    return (
        f"{answer}. Of the constraints that can be asked there, {name.replace('_', ' ')} meets"
        f" {text}.{also} They are guaranteed for the training rows; on others chance by itself"
        " violates some whose limit is reached."
    )


def _met(row: files.Row) -> str:
    text = f"{row['met']} of {row['asked']}"
    if row["met"] == row["asked"]:
        return text
    return f"{text} (largest excess {row['excess']:.3g}, {row['excess_owner']})"


def _sentence_of_constraints(pair: files.Row, main: files.Row, other: files.Row) -> str:
    met = ""
    if "asked" in main and "asked" in other:
        met = f"{_name(pair)} meets {_met(main)} constraints, {pair['other']} {_met(other)}. "
    return met + _cost(pair, main, other)
