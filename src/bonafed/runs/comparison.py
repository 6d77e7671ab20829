"""Two models compared on the same rows, and whether the main model helped, in words.

Rows are paired. A difference *counts* where chance does not explain it and a person would care:

- rows that only one model gets right: an exact sign test, and a net share of rows above .005;
- mean loss (and the risk, for a risk by rank): an interval that excludes zero, and a difference
  above 1 % of the other model's loss.

Where rows name their persons, one row of each person is compared: rows of one person are not
independent. With T tests in a run each has the level .05 / T (Bonferroni), intervals alike: where
no model differs, at most one run in twenty claims anything. What agrees to rounding is not a
difference: a row near the border of two classes belongs to no model, and a loss near zero is held
against that of a model without features. Where nothing counts, the verdict says so, with the
smallest effect that these rows could have shown.

A robust model helped where it is right more often; where its mean loss by itself is lower, the
verdict says that. A model of a risk by rank helped where that risk of the held-out losses is lower;
a higher mean loss is what it costs. A model under constraints is asked whether it meets them on
rows that it was not trained on, and what they cost.
"""

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
from bonafed.runs.evaluation import Judged, judge, risk_of, risk_saved, rows_of, together
from bonafed.runs.files import Record, Row
from bonafed.text import first_true
from bonafed.worst_client import WHY, once

ERROR = 0.05  # of all tests of a run together
FLOOR_OF_ROWS, FLOOR_OF_LOSS = 0.005, 0.01  # what a person would care about
ROUNDING = 1e-4  # of the loss without a model: rows whose losses differ by less belong to none
NONE = "no difference that these data could show"
LOSS = (NONE, "lower", "higher")
UNMEASURED = "not measurably different"
LOSS_IS = (
    "its mean loss is lower (better)",
    "its mean loss is higher (worse)",
    f"its mean loss is {UNMEASURED}",
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
) -> Record:
    """Rows that only one of two models gets right (regression: that it gets closer), and how their
    losses differ.

    ``less`` is how much lower the first model's mean loss is, ``margin`` half the width of its
    interval, which is corrected for the number of ``tests``; ``risk_less`` and ``risk_margin`` are
    those of a risk by rank. Below ``floor`` and ``risk_floor`` a difference does not count. Where
    rows name their ``people``, one row of each is compared.
    """
    mine, theirs = (together(rows_of(problem, model, fed)) for model in (w, other))
    _, whose = fed.whose
    one = [] if whose is None else once(len(whose), whose)
    people = {"people": len(one)} if 0 < len(one) < len(mine.loss) else {}
    if people:
        mine, theirs = (Judged(*(part[one] for part in rows)) for rows in (mine, theirs))
    pair = effects(problem.loss, mine, theirs, tests) | people
    if by_rank(problem.over_losses):
        less, width = risk_saved(problem.over_losses, mine.loss, theirs.loss, trained)
        if width is not None:  # of as many standard errors as the tests need, not of one
            width = width * -float(ndtri(ERROR / (2 * tests))) / -float(ndtri(ERROR / 2))
        risk = risk_of(problem.over_losses, theirs.loss, trained)
        floor = _floor(risk, _without(problem.loss, theirs))
        pair |= {"risk_less": less, "risk_margin": width, "risk_floor": floor}
    return pair


def effects(loss: Loss, mine: Judged, theirs: Judged, tests: int = 1) -> Record:
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
    better, worse, less = int((merit > 0).sum()), int((merit < 0).sum()), float(saved.mean())
    squares, mean = float(((saved - less) ** 2).sum()), float(theirs.loss.mean())
    return Compared(len(saved), better, worse, less, squares, mean, _without(loss, theirs))


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


def counted(sets: Sequence[Compared], tests: int) -> Record:
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
    chosen: bool = False,
) -> Record:
    """Every model on every set, the first model paired with each other one, and the verdict in
    words.

    ``trained`` is the number of rows that a risk of counted ranks was stated for; ``calibrations``
    make probabilities of the scores of a model; ``chosen``: whether these rows may have chosen the
    first one (`chose`), so that they promise nothing of it.
    """
    main, *others = models
    measures, pairs, how = [], [], calibrations or {}
    asked = (3 if by_rank(problem.over_losses) else 2) * len(others) * len(tests)
    for name, fed in tests.items():
        for model, w in models.items():
            judged = judge(problem, w, fed, trained, how.get(model), model == main, chosen)
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


class Contrast(NamedTuple):
    """A pair of models on one set of rows, with the measures of both. Its kinds are the "rows" that
    only one gets right, the mean "loss" and, for a risk by rank, the "risk".
    """

    pair: Row
    main: Row
    other: Row

    @property
    def name(self) -> str:
        """What the first model is called."""
        return self.pair["model"].replace("_", " ")

    @property
    def level(self) -> float:
        """That of each test."""
        return ERROR / self.pair.get("tests", 1)

    @property
    def n(self) -> int:
        """How many rows are compared."""
        return self.pair.get("people", self.other["n"])

    def difference(self, kind: str) -> tuple[float, float, float]:
        """(difference, margin, floor) of losses or risks; no margin is an infinite one."""
        start = "risk_" * (kind == "risk")
        less, margin, floor = (self.pair.get(start + key) for key in ("less", "margin", "floor"))
        return less or 0.0, math.inf if margin is None else float(margin), floor or 0.0

    def sign(self, kind: str) -> int:
        """Whether the first model is better in a way that counts (1), worse (-1) or neither (0)."""
        less, margin, floor = self.difference(kind)
        counts = abs(less) > max(margin, floor)
        if kind == "rows":
            less = self.pair["better"] - self.pair["worse"]
            counts = self.pair["p"] < self.level and abs(less) > FLOOR_OF_ROWS * self.n
        return (1 if less > 0 else -1) * counts

    def least(self, kind: str) -> float:
        """The smallest difference that would count, as a share of the rows, or of the other model's
        loss or risk.
        """
        if kind == "rows":
            single = self.pair["better"] + self.pair["worse"]
            return smallest_share(single, self.n, self.level)
        _, margin, floor = self.difference(kind)
        scale = max(abs(self.other.get(kind, 0.0)), floor / FLOOR_OF_LOSS)
        return max(margin, floor) / scale if scale else math.inf

    @property
    def alike(self) -> bool:
        """Whether the two models agree to rounding."""
        less, margin, floor = self.difference("loss")
        single = self.pair["better"] or self.pair["worse"]
        return not single and abs(less) + margin <= ROUNDING * floor


Contrasts: TypeAlias = Sequence[Contrast]


def verdict(measures: Sequence[Row], pairs: Sequence[Row], unknown: bool = False) -> list[str]:
    """The answer in short, then one sentence for each set and other model; ``unknown``: a person
    may have several rows, and nobody knows which.
    """
    headline: list[str] = []
    sentence: Callable[[Contrast], str] = _sentence
    by = {(row["set"], row["model"]): row for row in measures}
    several = [
        Contrast(pair, *(by[pair["set"], pair[model]] for model in ("model", "other")))
        for pair in pairs
    ]
    if any("asked" in row for row in measures):
        headline, sentence = [_headline_of_constraints(measures)], _sentence_of_constraints
    elif any("risk_less" in pair for pair in pairs):
        headline, sentence = [_headline_of_rank(several)], _sentence_of_rank
    elif pairs:
        headline = [_headline(several)]
    if unknown:
        headline = [f"{UNKNOWN} {text}" for text in headline]
    return headline + [
        f"{_capital(each.name)} against {each.pair['other']} on {each.pair['set']}"
        f" ({_compared_rows(each, unknown)}): {sentence(each)}"
        for each in several
    ]


UNKNOWN = f"Not tested: {WHY['persons']}. If every row were of another person, the answer would be:"


def _compared_rows(each: Contrast, unknown: bool) -> str:
    people = each.pair.get("people")
    text = f"; one row of each of {people} persons is compared" * (people is not None)
    text += "; tests take every row for another person's" * unknown
    return f"{each.main['n']} rows{text}"


def smallest_share(single: int, n: int, level: float) -> float:
    """The smallest net share of n rows that would count, where ``single`` rows are right under one
    model only, or as many more as a test of this level needs.
    """
    needed = max(single, math.floor(1 - math.log2(level)) + 1)
    k = np.arange(needed // 2 + 1)
    fewer = int((2 * betainc(needed - k, k + 1, 0.5) < level).sum()) - 1
    return max((needed - 2 * fewer) / n, FLOOR_OF_ROWS)


def _compared(several: Contrasts) -> str:
    others = dict.fromkeys(each.pair["other"] for each in several)
    sets = dict.fromkeys(each.pair["set"] for each in several)
    text = " One row of each person is compared." * ("people" in several[0].pair)
    return (
        f"{_capital(several[0].name)} was compared with {' and '.join(others)} on rows that no"
        f" model was trained on ({'; '.join(sets)}).{text}"
    )


def _counts(several: Contrasts, kind: str) -> tuple[int, int]:
    """(better, worse)"""
    signs = [each.sign(kind) for each in several]
    return signs.count(1), signs.count(-1)


def _no_difference(several: Contrasts, kinds: Sequence[str]) -> str:
    """That nothing counts, with the smallest effects that would have."""
    rows = "points of accuracy" if _by_class(several) else "% of the rows predicted closer"
    units = {"rows": rows, "loss": "% of the mean loss"}
    units["risk"] = f"% of the {several[0].name} of the losses"
    low, high = (
        " or ".join(
            f"{_hundred(pick(each.least(kind) for each in several))} {units[kind]}"
            for kind in kinds
        )
        for pick in (min, max)
    )
    least = low + f" (in the least sensitive comparison {high})" * (low != high)
    agree = " The models agree to rounding." * all(each.alike for each in several)
    return (
        f"{_capital(NONE)}. {_compared(several)} The smallest difference that would have shown is"
        f" {least}.{agree}"
    )


def _by_class(several: Contrasts) -> bool:
    """Whether rows are right or wrong, and not closer or farther."""
    return "accuracy" in several[0].other


def _hundred(value: float) -> str:
    return f"{100 * value:.1f}" if value <= 1 else "more than 100"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _counted(several: Contrasts, kinds: Sequence[str]) -> str:
    """The comparisons in which nothing counts, where there are some, and what counts."""
    tests = several[0].pair.get("tests", 1)
    n = sum(not any(map(each.sign, kinds)) for each in several)
    other = "The other comparison shows" if n == 1 else f"The other {n} comparisons show"
    text = f" {other} {NONE}." * bool(n)
    return (
        f"{text} A difference is only stated where chance does not explain it"
        f"{f' (corrected for {tests} tests)' * (tests > 1)} and it is above"
        f" {100 * FLOOR_OF_ROWS:g} % of the rows or {100 * FLOOR_OF_LOSS:g} % of the loss."
    )


def _in_how_many(several: Contrasts, said: Mapping[str, Sequence[str]]) -> str:
    """How a model does by the kinds of ``said``, each with its words for better, worse and for what
    does not count in any comparison.
    """
    texts, n = [], len(several)
    for kind, (up, down, neither) in said.items():
        counts = zip((up, down), _counts(several, kind), strict=True)
        found = [text + f" in {k} of {n} comparisons" * (n > 1) for text, k in counts if k]
        texts.append(" and ".join(found) or neither)
    return _capital("; ".join(texts))


# ------------------------------------------------------------------------------------ robust models


def _headline(several: Contrasts) -> str:
    kinds, n = ("rows", "loss"), len(several)
    (up, down), (lower, higher) = (_counts(several, kind) for kind in kinds)
    if not (up or down or lower or higher):
        return _no_difference(several, kinds)
    answers = {
        "It depends": (up or lower) and (down or higher),
        "Yes": up == n,
        "Yes, in part": up,
        "No, it hurt": down,
        "Only in part: its mean loss is lower": lower,
        "No, its mean loss is higher": True,
    }
    close = "right" if _by_class(several) else "closer"
    said = {
        "rows": (
            f"it is {close} more often",
            f"it is {close} less often",
            f"how often it is {close} is {UNMEASURED}",
        ),
        "loss": LOSS_IS,
    }
    text = _in_how_many(several, said)
    return f"{first_true(answers)}. {_compared(several)} {text}.{_counted(several, kinds)}"


def _sentence(each: Contrast) -> str:
    return f"{_rows(each)} {_mean_loss(each)}."


def _rows(each: Contrast) -> str:
    """Which rows only one of the models gets right, and how right both are at the worst client."""
    pair, main, other = each
    key, words, verb = ("accuracy", "accuracy", "right")
    if "accuracy" not in main:
        key, words, verb = ("error", "mean absolute error", "closer")
    here, there = main[f"worst_{key}"], other[f"worst_{key}"]
    return (
        f"only {each.name} is {verb} on {pair['better']}, only {pair['other']} on {pair['worse']}:"
        f" {(NONE, 'helped', 'hurt')[each.sign('rows')]} (sign test p = {pair['p']:.2g});"
        f" {words} {main[key]:.3f} against {other[key]:.3f}, at the worst client {here:.3f} against"
        f" {there:.3f}."
    )


def _mean_loss(each: Contrast) -> str:
    pair, main, other = each
    return (
        f"Mean loss {main['loss']:.3f} against {other['loss']:.3f}, {LOSS[each.sign('loss')]} "
        f"({_signed(-pair['less'])} ± {float(pair['margin']):.3f} at {_confidence(pair)})"
    )


def _signed(value: float) -> str:
    return f"{round(value, 3) + 0.0:+.3f}"  # no minus before zeros


def _confidence(pair: Row) -> str:
    tests, one = pair.get("tests", 1), ", one row of each person" * ("people" in pair)
    return "95 %" + f", corrected for {tests} tests" * (tests > 1) + one


# ------------------------------------------------------------------------------------ risks by rank


def _headline_of_rank(several: Contrasts) -> str:
    kinds, n, name = ("risk", "loss"), len(several), several[0].name
    (better, worse), (lower, higher) = (_counts(several, kind) for kind in kinds)
    untested = sum(each.pair["risk_margin"] is None for each in several)
    few = f" In {untested} too few rows carry the {name} for an interval." * bool(untested)
    if not (better or worse or lower or higher):
        if untested == n:
            return f"It cannot be tested. {_compared(several)} Too few rows carry the {name}."
        return _no_difference(several, kinds) + few
    answers = {
        "It depends": better and worse,
        "No, it rose": worse,
        "Yes": better == n,
        "Yes, in part": better,
        "It cannot be tested": untested == n,
        _capital(NONE): True,
    }
    risk = [f"the {name} of its losses is {how}" for how in ("lower", "higher", UNMEASURED)]
    text = _in_how_many(several, {"risk": risk, "loss": LOSS_IS})
    return f"{first_true(answers)}. {_compared(several)} {text}.{_counted(several, kinds)}{few}"


def _sentence_of_rank(each: Contrast) -> str:
    pair, main, other = each
    sign, width = "too few rows carry it for an interval", ""
    if (margin := pair["risk_margin"]) is not None:
        sign = LOSS[each.sign("risk")]
        width = f" ± {float(margin):.3f} at {_confidence(pair)}, rows drawn again"
    return (
        f"{each.name} of the losses {main['risk']:.3f} against {other['risk']:.3f}, {sign}"
        f" ({_signed(-pair['risk_less'])}{width}). {_cost(each)}"
    )


def _cost(each: Contrast) -> str:
    """The mean loss, as a cost where it is higher, and the rows."""
    text = _mean_loss(each)
    if each.sign("loss") < 0:
        text = f"What it costs: {text[:1].lower()}{text[1:]}"
    return f"{text}. {_capital(_rows(each))}"


# -------------------------------------------------------------------------------------- constraints


def _headline_of_constraints(measures: Sequence[Row]) -> str:
    """How many constraints the first model meets on each set, and which others meet as many."""
    rows = [row for row in measures if "asked" in row]
    name, *others = models = [*dict.fromkeys(row["model"] for row in rows)]
    met = {model: [row["met"] for row in rows if row["model"] == model] for model in models}
    mine = [row for row in rows if row["model"] == name]
    text = "; ".join(f"{_met(row)} on {row['set']}" for row in mine)
    every = all(row["met"] == row["asked"] for row in mine)
    answers = {"Yes": every, "In part": any(met[name]), "No": True}
    same = [model.replace("_", " ") for model in others if met[model] == met[name]]
    also = f" {_capital(' and '.join(same))} meet{'s' * (len(same) == 1)} as many." * bool(same)
    return (
        f"{first_true(answers)}. Of the constraints that can be asked there,"
        f" {name.replace('_', ' ')} meets {text}.{also} On new rows"
        " chance can exceed a limit that the training rows just meet."
    )


def _met(row: Row) -> str:
    excess = f" (largest excess {row['excess']:.3g}, {row['excess_owner']})"
    return f"{row['met']} of {row['asked']}" + excess * (row["met"] != row["asked"])


def _sentence_of_constraints(each: Contrast) -> str:
    met, (pair, main, other) = "", each
    if "asked" in main and "asked" in other:
        met = f"{each.name} meets {_met(main)} constraints, {pair['other']} {_met(other)}. "
    return met + _cost(each)
