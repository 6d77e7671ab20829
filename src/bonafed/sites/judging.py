"""Models judged on the rows that every site holds out, as one round more: figures leave a site, and
no row or score of one.

    JudgeRows -> JudgedRows     models; how each does on the site's rows

What follows from counts is computed from the counts of all sites. An AUC is about pairs of rows, of
which most have their rows at two sites, and R2 about the spread of all targets: over all sites
neither is stated. Where the figures of a model would tell of few people beside those of another
model, a site answers with the other one's, and says so (`bonafed.sites.judgements`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, softmax

from bonafed.arrays import Array, Block, Streams
from bonafed.certificates.duality import run_all
from bonafed.codec import Form
from bonafed.engines.engine import Engine
from bonafed.measures import (
    NUMBERS,
    SEVERAL,
    TWO,
    Task,
    beyond_chance,
    figures_of,
    in_cells,
    of_cells,
    small,
)
from bonafed.measures import losses as losses_of
from bonafed.measures import stated as stated_of
from bonafed.measures import told as told_of
from bonafed.problem.losses import Loss, expected
from bonafed.problem.metadata import Metadata
from bonafed.problem.problem import Problem
from bonafed.rounds import Algorithm, Done, Each, Round, Stop, record
from bonafed.runs import comparison
from bonafed.runs.comparison import Compared, counted, sign_test, verdict
from bonafed.runs.evaluation import Judged, asked, judged, worst_of
from bonafed.runs.files import Record, Row
from bonafed.runs.sections.checks import UNSURE
from bonafed.runs.splits import HELD_OUT
from bonafed.solution.predictions import decisions, figures, positive, task_of
from bonafed.worst_client import Counted, promise

Models = dict[str, Array]  # by their names
CONTRARY = (
    "The model ranks the held-out rows the wrong way, beyond chance{}, at {}: ask whether the"
    " outcome is coded the other way round there. Then no figure of this run can be believed."
)
ANOTHER = "a model that was judged earlier"
OTHER = (
    "At {} the held-out figures of {} are those of {}: the two differ there for so few people that"
    " figures of both would tell of these."
)
MERGED = (
    "At {} {} gives a class to so few held-out rows that their counts would tell of these: they are"
    " counted as the class that it gives to most."
)
EARLIER = -1  # in the place of a model's position: one that was judged by an earlier question


@record
class JudgeRows:
    """Ask how models do on the rows that a site holds out."""

    models: Array  # (M, D), the main one first


@record
class JudgedRows:
    """How the models do on a site's rows."""

    rows: Each  # (n,)
    loss: Each  # (n, M) mean losses
    confusion: Each  # (n, M, C, C) rows by truth and prediction; without classes (n, M, 0, 0)
    # (n, M, F) the figures that sites tell, `bonafed.measures.told`; nan for none
    measures: Annotated[Each, Form(nan=True)]
    compared: Each  # (n, M - 1, 7) the main model with each other one, as of `Compared`
    # (n, M) the position of the model of which the figures are, its own or another one's, `EARLIER`
    # for one of an earlier question; and whether a class of few predictions counts as another one
    figures_of: Each
    merged: Each


@dataclass(frozen=True)
class Judging(Algorithm):
    """One round in which every site judges models on the rows that it holds out."""

    models: Array
    problem: Problem | None = None
    site: Any = None  # what a site with a policy has told before, `bonafed.sites.judgements.AtSite`

    stateless: ClassVar[bool] = True
    held_out: ClassVar[bool] = True

    def for_clients(self) -> "Judging":
        """The round only: the models come with the message."""
        return Judging(np.zeros((1, 1)))

    def at_client(self, problem: Problem, data: object) -> "Judging":
        """The round with the sites' problem."""
        return replace(self, problem=problem)

    @property
    def on_client(self) -> dict:
        return {JudgeRows: self.judge}

    @property
    def on_server(self) -> dict:
        return {JudgedRows: self.end}

    def server_start(self, n_clients: int) -> tuple[None, Round]:
        return None, Round(JudgeRows(self.models))

    def judge(self, _: None, ask: JudgeRows, data: Block, rng: Streams) -> tuple[None, JudgedRows]:
        problem, y = self.problem, data.y[0]
        assert problem is not None
        loss, least = problem.loss, 0 if self.site is None else self.site.least
        predictions = [problem.predictor.forward(w, data)[0] for w in ask.models]
        figures_of = list(range(len(predictions)))
        if self.site is not None:
            predictions, figures_of = self.site.stand_ins(loss, predictions, y)
        told = [_told(loss, judged(loss, one, y), least) for one in predictions]
        each = [_numbers(loss, one) for one in told]
        # (1, M - 1, 7) the main model with each other one
        (main, *others), pairs = [one.rows for one in told], []
        for other in others:
            pair = comparison.compared_rows(loss, main, other)
            if self.site is not None and loss.targets == "real":
                signs = self.site.signs(comparison.compared_merits(loss, main, other))
                pair = pair._replace(better=int((signs > 0).sum()), worse=int((signs < 0).sum()))
            pairs.append(pair)
        losses = [float(one.rows.loss.mean()) for one in told]
        merged = [one.merged for one in told]
        confusion, measures = zip(*each, strict=True)
        compared = np.array(pairs, float).reshape(1, len(pairs), len(Compared._fields))
        figures = np.array([losses]), np.array([confusion], float), np.array([measures]), compared
        stands = np.array([figures_of], float), np.array([merged], float)
        return None, JudgedRows(np.array([float(len(y))]), *figures, *stands)

    def end(self, state: None, ids: Sequence[int], up: JudgedRows) -> tuple[JudgedRows, Done]:
        return up, Done(Stop.OPTIMAL)


def judge_at_sites(
    problem: Problem, data: Metadata, models: Models, engine: Engine, people: bool = False
) -> Record:
    """What `bonafed.runs.comparison.evaluate` states, of the rows that the sites hold out;
    ``people``: whether a person may have several of them.
    """
    rounds = Judging(np.stack([*models.values()]), problem.at(data)[0])
    up: Any = run_all(rounds, data, engine).state
    stated = evaluation(problem.loss, data.names, [*models], up, people)
    if asked(problem):  # whether the constraints hold there is not known
        stated |= {"pairs": [], "verdict": []}
    return stated


def evaluation(
    loss: Loss, clients: Sequence[str], models: Sequence[str], up: JudgedRows, people: bool = False
) -> Record:
    """The models on the rows of every site, the main one paired with each other, and the verdict;
    ``people``: whether a person may have several rows.

    Raises
    ------
    ValueError : figures that no rows have
    """
    sites = [_checked(loss, client, i, [*models], up) for i, client in enumerate(clients)]
    measures = [
        {"set": HELD_OUT, "model": model, **_measured(loss, [site[k] for site in sites])}
        for k, model in enumerate(models)
    ]
    _promise(measures[0], people)
    main, *others = models
    pairs = []
    for k, other in enumerate(others):
        pair = counted([Compared(*row.tolist()) for row in up.compared[:, k]], 2 * len(others))
        pairs.append({"set": HELD_OUT, "model": main, "other": other, **pair})
    return {"measures": measures, "pairs": pairs, "verdict": verdict(measures, pairs, people)}


def contrary(row: Record) -> list[str]:
    """At which sites the main model ranks held-out rows the wrong way, in words."""
    odd, least = [], ndtri(UNSURE / len(row["clients"]))
    for site in row["clients"]:
        n, most, area = site["n"], site.get("positives") or 0, site.get("auc")
        if area is not None and 0 < most < n and beyond_chance(area, n, most) < least:
            odd.append(f"{site['client']} (AUC {area:.2f})")
    rows = " if each is of another person" * (row.get("unstated") == "persons")
    return [CONTRARY.format(rows, ", ".join(odd))] * bool(odd)


def _promise(row: Record, people: bool) -> None:
    """Add what the counts of the sites promise of new rows, where they are exactly those of the
    model, and of one row a person.
    """
    sites = row["clients"]
    whys = {
        "numbers": "confusion" not in row,
        "persons": people,
        "other figures": any("figures_of" in site or "merged" in site for site in sites),
    }
    if any(whys.values()):
        row["unstated"] = next(why for why, so in whys.items() if so)
        return
    counted = [Counted(_cells(site["confusion"])) for site in sites]
    row |= promise(_task(counted[0].confusion), sites, counted)


def in_place_of_others(measures: Sequence[Record]) -> list[str]:
    """Where figures are those of another model, or classes were counted together, in words."""
    notes = []
    for row in measures:
        for client in row["clients"]:
            at, model = client["client"], row["model"]
            if (of := client.get("figures_of")) is not None:
                notes.append(OTHER.format(at, model, of))
            if client.get("merged"):
                notes.append(MERGED.format(at, model))
    return notes


def added_up(problem: Problem, models: Sequence[str], stated: Row, people: bool = False) -> Record:
    """An evaluation made again from what it states of every site: counts, mean losses and the
    figures that only rows tell, and of two models the rows that one of them gets right.
    """
    loss, measures = problem.loss, list[Record]()
    for model, row in zip(models if stated["measures"] else (), stated["measures"], strict=True):
        sites = [_made_again(loss, site) for site in row["clients"]]
        measures.append({"set": HELD_OUT, "model": model, **_measured(loss, sites)})
    for row in measures[:1]:
        _promise(row, people)
    judged = {row["model"]: row["loss"] for row in measures}
    main, pairs = models[0], list[Record]()
    for other, pair in zip(models[1:] if stated["pairs"] else (), stated["pairs"], strict=True):
        named = {"set": HELD_OUT, "model": main, "other": other, "tests": 2 * len(models[1:])}
        p, less = sign_test(pair["better"], pair["worse"]), judged[other] - judged[main]
        pairs.append({**pair, **named, "p": p, "less": less})
    words = [] if asked(problem) else verdict(measures, pairs, people)
    return {"measures": measures, "pairs": pairs, "verdict": words}


def _made_again(loss: Loss, site: Row) -> Record:
    """The figures of a site, from those that do not follow from others."""
    confusion = np.zeros((0, 0)) if loss.targets == "real" else _cells(site["confusion"])
    numbers = _numbered(site, _task(confusion))
    known = {key: site[key] for key in ("client", "n", "loss")}
    known |= {key: site[key] for key in ("figures_of", "merged") if key in site}
    n = site["n"] if loss.targets == "real" else int(confusion.sum())
    return known | _figures(loss, n, confusion, numbers)


def no_better_than_a_constant(row: Record, labels: Sequence[object]) -> str | None:
    """That the main model is no better than a constant on held-out rows, in words; None where it
    is. ``row`` are its figures, ``labels`` the classes in their order.
    """
    if "accuracy" not in row:
        if any(each["r2"] is None or each["r2"] > 0 for each in row["clients"]):
            return None
        return (
            "On the held-out rows of every site the model predicts no better than the mean of that"
            " site: raise max_rounds, or lower radius and strength."
        )
    counts = row.get("counts") or [row["n"] - row["positives"], row["positives"]]
    most = max(range(len(counts)), key=counts.__getitem__)
    if row["accuracy"] > counts[most] / row["n"]:
        return None
    areas = [client["auc"] for client in row["clients"] if client["auc"] is not None]
    area = f" Its AUC at the sites is {min(areas):.2f} to {max(areas):.2f}." if areas else ""
    return (
        f"On held-out rows the model is right in {100 * row['accuracy']:.1f} %, and answering"
        f" {labels[most]!r} to every row would be in {100 * counts[most] / row['n']:.1f} %.{area}"
    )


class Told(NamedTuple):
    """The rows of a site under a model as they are counted.

    ``decided`` are the classes, None of numbers; ``merged``: some count as another one.
    """

    rows: Judged
    decided: NDArray[np.intp] | None
    merged: bool


def _told(loss: Loss, rows: Judged, least: int) -> Told:
    """Rows with the classes as they are counted where fewer than ``least`` would tell of rows."""
    if loss.targets == "real":
        return Told(rows, None, False)
    decided, merged = classes_of(rows.prediction, least)
    right = decided == _truth(loss, rows.y)
    return Told(rows._replace(merit=right.astype(float)), decided, merged)


def _truth(loss: Loss, y: Array) -> NDArray[np.intp]:
    return (y.astype(np.intp) if loss.targets == "class" else y > 0).astype(np.intp)


def _numbers(loss: Loss, told: Told) -> tuple[Any, list[float]]:
    """The confusion of rows, and the figures that do not follow from it."""
    rows = told.rows
    stated, confusion = figures(loss, rows.prediction, rows.y), np.zeros((0, 0))
    if told.decided is not None:
        confusion = np.zeros_like(_cells(stated["confusion"]))
        np.add.at(confusion, (_truth(loss, rows.y), told.decided), 1.0)
    return confusion, _numbered(stated, _task(confusion))


def _numbered(stated: Row, task: Task) -> list[float]:
    """The figures that a site tells; nan for none."""
    numbers = [stated[figure.key] for figure in told_of(task)]
    return [math.nan if number is None else number for number in numbers]


def _task(confusion: Array) -> Task:
    """Of which figures there are such counts."""
    if not len(confusion):
        return NUMBERS
    return TWO if len(confusion) == 2 else SEVERAL


def _cells(confusion: Any) -> Array:
    """(C, C) rows by truth and prediction."""
    return of_cells(confusion) if isinstance(confusion, dict) else np.asarray(confusion, float)


def _checked(loss: Loss, client: str, i: int, models: list[str], up: JudgedRows) -> list[Record]:
    """The figures of each model at one site."""
    n_models, names = len(models), {EARLIER: ANOTHER} | dict(enumerate(models))
    n, confusion = float(up.rows[i]), up.confusion[i]
    shapes = len(up.loss[i]) == len(up.measures[i]) == len(confusion) == n_models
    whole = n >= 1 and n % 1 == 0 and bool((np.isfinite(up.loss[i]) & (up.loss[i] >= 0)).all())
    task = _task(confusion[0]) if shapes else NUMBERS
    told = told_of(task)
    shapes &= up.measures.shape[2:] == (len(told),)
    for figure, told_values in zip(told, up.measures[i].T if shapes else (), strict=False):
        whole &= not bool(((told_values < figure.least) | (told_values > figure.most)).any())
        whole &= bool(np.isfinite(told_values).all()) or not figure.always(task)
    if loss.targets != "real":
        cells = confusion.reshape(n_models, -1) if shapes else confusion
        whole &= bool((cells >= 0).all() and (cells % 1 == 0).all() and (cells.sum(1) == n).all())
    compared, stands, merged = up.compared[i], up.figures_of[i], up.merged[i]
    shapes &= len(stands) == len(merged) == n_models
    known = np.isin(merged, (0.0, 1.0)).all() and np.isin(stands, [EARLIER, *range(n_models)]).all()
    if not (shapes and whole and known and _adds_up(compared, n) and len(compared) == n_models - 1):
        raise ValueError(f"the site {client} answers with figures that no rows have.")
    return [
        {"client": client, "n": int(n), "loss": float(up.loss[i, k])}
        | _figures(loss, int(n), confusion[k], up.measures[i, k].tolist())
        | ({} if stands[k] == k else {"figures_of": names[int(stands[k])]})
        | ({"merged": True} if merged[k] else {})
        for k in range(n_models)
    ]


def _adds_up(compared: Array, n: float) -> bool:
    """Whether two models can be so on n rows, as `Compared` has them."""
    if compared.shape[1:] != (len(Compared._fields),) or not np.isfinite(compared).all():
        return False
    rows, better, worse, _, squares, _, _ = compared.T
    whole = (better % 1 == 0) & (worse % 1 == 0) & (better >= 0) & (worse >= 0)
    return bool((whole & (better + worse <= n) & (rows == n) & (squares >= 0)).all())


def _figures(loss: Loss, n: int, confusion: Array, measures: Sequence[float]) -> Record:
    """The figures of rows, of their confusion and of what a site tells."""
    task, values = _task(confusion), [None if math.isnan(value) else value for value in measures]
    told: Record = {figure.key: v for figure, v in zip(told_of(task), values, strict=True)}
    if task == NUMBERS:
        known = {figure.key: told.get(figure.key) for figure in figures_of(task)}
        numbers: Record = {"n": n, "error": told["mae"], **known}
        return numbers | {"small": small(numbers)}
    counts = confusion.astype(int)
    stated = stated_of(task, counts, told)
    if task == TWO:
        stated["confusion"] = in_cells(counts)
    return stated | {"small": small(stated)}


def _measured(loss: Loss, sites: Sequence[Record]) -> Record:
    """How a model does on the rows of all sites together."""
    n = sum(site["n"] for site in sites)

    def mean(key: str, power: float = 1.0) -> float:
        values = [site[key] for site in sites]
        if any(value is None for value in values):
            return math.nan
        total = sum(s["n"] * value**power for s, value in zip(sites, values, strict=True))
        return (total / n) ** (1 / power)

    cells = np.zeros((0, 0))
    if loss.targets != "real":
        cells = np.sum([_cells(site["confusion"]) for site in sites], axis=0)
    measures = [
        mean(each.key, 2.0 if each.root else 1.0) if each.of == "losses" else math.nan
        for each in told_of(_task(cells))
    ]
    whole = {"n": n, "loss": mean("loss"), **_figures(loss, n, cells, measures)}
    return whole | worst_of(loss, sites) | {"clients": [*sites]}


# Whether the figures of two models on the same rows differ by what few people contribute.
#
#     k      the people whose rows the two models decide otherwise
#     n(s)   (sum |s|)^2 / sum s^2, by how many people a difference s of their numbers is carried
#
# Two answers about the same rows tell the difference of their figures as well. Where it hangs on
# few people it tells of these: a second model that differs in one decision tells that row's class.
# So both answers are given only where k is 0 or the least number of rows of the site's policy, or
# more, and where n(s) is 0 or 3 or more for every number whose mean is a figure. A change of order,
# which moves an AUC, is carried by pairs of rows: there n is 0 or that least number, or more.
#
# Counts of several models are combined as well. Rows that all models decide alike cannot be told
# apart; where a combination of the decisions is such rows only, they are of that many people.

FEWEST = 3.0  # people by whom a difference of mean losses is carried
ROUNDING = 1e-12  # of predictions, relative to the largest


@dataclass(frozen=True)
class View:
    """What the figures of a model on m rows are made of.

    Attributes
    ----------
    decided : (m,) the class of every row, as it is counted; of numbers the predictions themselves
    orders : (q, m) ranks of the rows by score
    numbers : (p, m) whose means are figures
    classes : how many there are; 0 of numbers
    """

    decided: NDArray[Any]
    orders: Array
    numbers: Array
    classes: int


def view(loss: Loss, prediction: Array, y: Array, least: int = 0) -> View:
    """How a model does on rows; ``prediction`` and y as of `bonafed.runs.evaluation.Judged`."""
    value, task = loss.value(prediction, y), task_of(loss, prediction)
    if task == NUMBERS:
        told = expected(loss, prediction)
        numbers = np.stack([value, *losses_of(task, y, told)])
        return View(told, np.zeros((0, len(y))), numbers, 0)
    decided, _ = classes_of(prediction, least)
    if task == SEVERAL:
        p = softmax(prediction, axis=1)
        numbers = np.stack([value, *losses_of(task, y.astype(int), p)])
        return View(decided, _ranks(p.T), numbers, p.shape[1])
    numbers = np.stack([value, *losses_of(task, y > 0, positive(loss, prediction))])
    return View(decided, _ranks(decisions(prediction)[None]), numbers, 2)


def classes_of(prediction: Array, least: int = 0) -> tuple[NDArray[np.intp], bool]:
    """(m,) the classes that a model gives to rows, and whether some are counted as another one: a
    class that it gives to fewer than ``least`` rows counts as the one that it gives to most, since
    the counts of so few rows would tell the classes of these.
    """
    one = decisions(prediction)
    decided = one.argmax(1) if one.ndim == 2 else (one > 0).astype(np.intp)
    counts = np.bincount(decided, minlength=one.shape[1] if one.ndim == 2 else 2)
    few = ((counts > 0) & (counts < least))[decided]
    return np.where(few, counts.argmax(), decided), bool(few.any())


def too_close(mine: View, other: View, who: NDArray[np.intp], least: int) -> bool:
    """Whether the difference of two models' figures hangs on few people; ``who`` (m,) says whose
    each row is, from 0.
    """
    differ = mine.decided != other.decided
    if not mine.classes:
        size = np.abs(mine.decided).max(initial=0.0)
        differ = np.abs(mine.decided - other.decided) > ROUNDING * size
    # of two classes, the other decision everywhere tells nothing new
    few = [people_in(rows, who) for rows in ([differ, ~differ] if mine.classes == 2 else [differ])]
    alike = len(mine.numbers) == len(other.numbers)
    saved = mine.numbers - other.numbers if alike else ()
    moved = [*(mine.orders - other.orders), *((len(who) + 1 - mine.orders) - other.orders)]
    return (
        any(0 < k < least for k in few)
        or any(0 < carried(s, who) < FEWEST for s in saved)
        or any(0 < carried(one, who) < least for one in moved)
    )


def tell_of_few(decided: Sequence[NDArray[Any]], who: NDArray[np.intp], least: int) -> bool:
    """Whether a combination of the counts of several models is about fewer than ``least`` people:
    rows that all of them decide alike, whose indicator lies in the span of their decisions.
    """
    alike, at = np.unique(np.stack(decided), axis=1, return_inverse=True)
    pairs = np.unique(np.stack([at.ravel(), who]), axis=1)[0]
    few = np.bincount(pairs, minlength=alike.shape[1]) < least
    if not few.any():
        return False
    given = np.concatenate([alike == c for c in np.unique(alike)]).astype(float)
    _, size, basis = np.linalg.svd(given, full_matrices=False)
    inside = (basis[size > 1e-9 * size[0]] ** 2).sum(0)  # 1 where the indicator is in the span
    return bool((inside[few] > 1 - 1e-9).any())


def carried(s: Array, who: NDArray[np.intp]) -> float:
    """By how many people a difference is carried, (sum |s|)^2 / sum s^2 over the sums of each."""
    each = np.abs(np.bincount(who, s))
    largest = each.max(initial=0.0)
    if not 0 < largest < np.inf:
        return 0.0
    each = each / largest
    return float(each.sum() ** 2 / (each**2).sum())


def people_in(rows: NDArray[np.bool_], who: NDArray[np.intp]) -> int:
    """How many people these rows are of."""
    return len(np.unique(who[rows]))


def _ranks(scores: Array) -> Array:
    """(q, m) ranks from 1, of equal scores their mean: an AUC is a sum of these."""
    ranks = []
    for one in scores:
        _, at, rows = np.unique(one, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(rows) - (rows - 1) / 2)[at])
    return np.array(ranks)
