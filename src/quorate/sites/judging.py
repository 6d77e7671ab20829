"""Models judged on the rows that every site holds out, as one round more: figures leave a site, and
no row or score of one.

    JudgeRows -> JudgedRows     models; how each does on the site's rows

What follows from counts is computed from the counts of all sites. An AUC is about pairs of rows, of
which most have their rows at two sites, and R2 about the spread of all targets: over all sites
neither is stated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from quorate.arrays import Array, Block, Streams
from quorate.certificates.duality import run_all
from quorate.codec import Form
from quorate.engines.engine import Engine
from quorate.measures import classes, small, two_classes
from quorate.problem.losses import Loss
from quorate.problem.metadata import Metadata
from quorate.problem.problem import Problem
from quorate.rounds import Algorithm, Done, Each, Outcome, Round, Stop, record
from quorate.runs.comparison import Compared, compared_rows, counted, verdict
from quorate.runs.constraint_metrics import asked
from quorate.runs.evaluation import Judged, judged, worst_of
from quorate.runs.files import Record
from quorate.runs.splits import HELD_OUT
from quorate.solution.figures import figures

OF_CLASSES, OF_NUMBERS = ("auc", "brier", "log_loss"), ("mae", "rmse", "r2")
CELLS = ("tn", "fp", "fn", "tp")  # of a confusion by truth and prediction, row by row


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
    # (n, M, 3) AUC, Brier score, log loss; or MAE, RMSE, R2; nan for none
    measures: Annotated[Each, Form(nan=True)]
    compared: Each  # (n, M - 1, 7) the main model with each other one, as of `Compared`


@dataclass(frozen=True)
class Judging(Algorithm):
    """One round in which every site judges models on the rows that it holds out."""

    models: Array
    problem: Problem | None = None

    stateless: ClassVar[bool] = True
    held_out: ClassVar[bool] = True

    def for_clients(self) -> Judging:
        """The round alone: the models come with the message."""
        return Judging(np.zeros((1, 1)))

    def at_client(self, problem: Problem, data: object) -> Judging:
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

    def judge(
        self, memory: None, ask: JudgeRows, data: Block, rng: Streams
    ) -> tuple[None, JudgedRows]:
        problem = self.problem
        assert problem is not None
        y = data.y[0]
        rows = [judged(problem.loss, problem.predictor.forward(w, data)[0], y) for w in ask.models]
        each = [_numbers(problem.loss, row) for row in rows]
        pairs = [compared_rows(problem.loss, rows[0], other) for other in rows[1:]]
        return memory, JudgedRows(
            rows=np.array([float(len(y))]),
            loss=np.array([[float(row.loss.mean()) for row in rows]]),
            confusion=np.array([[confusion for confusion, _ in each]], float),
            measures=np.array([[measures for _, measures in each]]),
            compared=np.array(pairs, float).reshape(1, len(pairs), len(Compared._fields)),
        )

    def end(self, state: None, ids: Sequence[int], up: JudgedRows) -> tuple[JudgedRows, Done]:
        return up, Done(Outcome(Stop.OPTIMAL, "judged."))


def judge_at_sites(
    problem: Problem, data: Metadata, models: dict[str, Array], engine: Engine
) -> Record:
    """What `quorate.runs.comparison.evaluate` states, of the rows that the sites hold out."""
    rounds = Judging(np.stack([*models.values()]), problem.at(data)[0])
    up: Any = run_all(rounds, data, engine).state
    stated = evaluation(problem.loss, data.names, [*models], up)
    if asked(problem):  # whether the constraints hold there is not known
        stated |= {"pairs": [], "verdict": []}
    return stated


def evaluation(loss: Loss, clients: Sequence[str], models: Sequence[str], up: JudgedRows) -> Record:
    """The models on the rows of every site, the main one paired with each other, and the verdict.

    Raises
    ------
    ValueError : figures that no rows have
    """
    sites = [_checked(loss, client, i, len(models), up) for i, client in enumerate(clients)]
    measures = [
        {"set": HELD_OUT, "model": model, **_measured(loss, [site[k] for site in sites])}
        for k, model in enumerate(models)
    ]
    main, *others = models
    pairs = []
    for k, other in enumerate(others):
        sets = [Compared(*row.tolist()) for row in up.compared[:, k]]
        pair = counted(sets, 2 * len(others))
        pairs.append({"set": HELD_OUT, "model": main, "other": other, **pair})
    return {"measures": measures, "pairs": pairs, "verdict": verdict(measures, pairs)}


def no_better_than_a_constant(row: Record, labels: Sequence[object]) -> str | None:
    """That the main model is no better than a constant on held-out rows, in words; None where it
    is. ``row`` are its figures, ``labels`` the classes in their order.
    """
    if "accuracy" not in row:
        explained = [client["r2"] for client in row["clients"]]
        if any(r2 is None or r2 > 0 for r2 in explained):
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


def _numbers(loss: Loss, rows: Judged) -> tuple[Any, list[float]]:
    """The confusion of rows, and the three figures that do not follow from it."""
    stated: Record = {**figures(loss, rows.prediction, rows.y)}
    if loss.targets == "real":
        confusion, names = np.zeros((0, 0)), OF_NUMBERS
    else:
        confusion, names = _cells(stated["confusion"]), OF_CLASSES
    return confusion, [math.nan if stated[name] is None else stated[name] for name in names]


def _cells(confusion: Any) -> Array:
    """(C, C) rows by truth and prediction."""
    if isinstance(confusion, dict):
        confusion = np.reshape([confusion[cell] for cell in CELLS], (2, 2))
    return np.asarray(confusion, float)


def _checked(loss: Loss, client: str, i: int, n_models: int, up: JudgedRows) -> list[Record]:
    """The figures of each model at one site."""
    n, confusion = float(up.rows[i]), up.confusion[i]
    shapes = len(up.loss[i]) == len(up.measures[i]) == len(confusion) == n_models
    whole = n >= 1 and n % 1 == 0
    whole &= bool(np.isfinite(up.loss[i]).all() and (up.loss[i] >= 0).all())
    one, two, three = up.measures[i].T if shapes else np.zeros((3, 1))
    if loss.targets == "real":
        whole &= bool((one >= 0).all() and (two >= 0).all() and not (three > 1).any())
    else:
        whole &= not bool(((one < 0) | (one > 1) | (two < 0) | (three < 0)).any())
        whole &= confusion.shape[1] == 2 or bool(np.isfinite([two, three]).all())
        cells = confusion.reshape(n_models, -1) if shapes else confusion
        whole &= bool((cells >= 0).all() and (cells % 1 == 0).all() and (cells.sum(1) == n).all())
    compared = up.compared[i]
    if not (shapes and whole and _adds_up(compared, n) and len(compared) == n_models - 1):
        raise ValueError(f"the site {client} answers with figures that no rows have.")
    return [
        {"client": client, "n": int(n), "loss": float(up.loss[i, k])}
        | _figures(loss, int(n), confusion[k], up.measures[i, k].tolist())
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
    """The figures of rows, of their confusion and of three numbers."""
    one, two, three = (None if math.isnan(value) else value for value in measures)
    if loss.targets == "real":
        named = zip(OF_NUMBERS, (one, two, three), strict=True)
        stated: Record = {"n": n, "error": one, **dict(named)}
    elif len(confusion) == 2:
        counts = confusion.ravel().astype(int).tolist()
        cells: Record = dict(zip(CELLS, counts, strict=True))
        stated = {**two_classes(cells, one, two, three)}
    else:
        assert two is not None
        assert three is not None
        stated = {**classes(confusion.astype(int), one, two, three)}
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

    if loss.targets == "real":
        cells, measures = np.zeros((0, 0)), [mean("mae"), mean("rmse", 2.0), math.nan]
    else:
        cells = np.sum([_cells(site["confusion"]) for site in sites], axis=0)
        measures = [math.nan, mean("brier"), mean("log_loss")]
    whole = {"n": n, "loss": mean("loss"), **_figures(loss, n, cells, measures)}
    return whole | worst_of(loss, sites) | {"clients": [*sites]}
