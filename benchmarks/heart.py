"""The four real hospitals of the heart disease data: what training together gives each of them.

    python benchmarks/heart.py [--save]

20 splits of every hospital's patients, 60 % to train on and 40 % to judge on; every method with its
defaults. The log loss of a hospital is the mean over its patients, of each over the splits that
hold him out. How much lower that of ``RobustClassifier()`` is has two intervals, both paired, at
95 % for all hospitals at once: over the patients (would other patients of this hospital show it?)
and over the splits (is it the luck of a split?). Splits share patients, so that the second one is
too narrow for the first question. Last, hospitals that no method was trained on.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import measure
import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

import bonafed as bf
from bonafed.data import load, tables
from bonafed.data.federation import Federation
from bonafed.data.schema import Recipe, Schema

SPLITS, HELD, TARGET, PERSON = 20, 0.4, "diagnosis", "patient"
ROBUST, POOLED, OWN = "RobustClassifier()", "LogisticRegression(), rows pooled", "each its own"
WORST = "AgnosticClassifier(Simplex())"
FEDERATED: dict[str, Callable[[], Any]] = {
    ROBUST: bf.RobustClassifier,
    "AgnosticClassifier()": bf.AgnosticClassifier,
    WORST: lambda: bf.AgnosticClassifier(bf.Simplex()),
}
HOSPITALS = load.heart_disease_tables()
LARGEST = next(iter(HOSPITALS))
# standard errors of half an interval of 95 %, for all hospitals at once: the worst one is found by
# looking at all of them
NORMAL = norm.ppf(1 - 0.05 / (2 * len(HOSPITALS)))


def plain() -> Any:
    """scikit-learn's model."""
    return LogisticRegression(max_iter=2000)


def split(seed: int, away: str = "") -> tuple[Federation, Federation]:
    """Patients to train on and to judge on, standardised as the former are; or all hospitals but
    one to train on, and that one.
    """
    here = {name: table for name, table in HOSPITALS.items() if name != away}
    train, held = tables.split(here, TARGET, HELD, seed, person=PERSON)
    read = {name: table.without(PERSON) for name, table in train.items()}
    schema = Schema.fit(read, Recipe(), target=TARGET)
    parts = (train, {away: HOSPITALS[away]} if away else held)
    known: Any = {"schema": schema, "person": PERSON, "unknown": "ignore"}
    one, other = (Federation.from_tables(part, TARGET, **known) for part in parts)
    return one, other


def together(fed: Federation) -> dict[str, Any]:
    """The models that are trained on all hospitals, by name."""
    X, y, hospital = *fed.pooled().rows(0), np.repeat(fed.clients, fed.sizes)
    made = {name: make().fit(X, y, groups=hospital) for name, make in FEDERATED.items()}
    return {**made, POOLED: plain().fit(X, y)}


def losses(model: Any, X: Any, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The log loss of every row, and whether its prediction is right."""
    given = model.predict_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    return -np.log(given), model.predict(X) == y


def judged() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """By method and hospital: the log loss of every patient; that of every split; the share of
    right predictions.
    """
    patients: dict[str, Any] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    splits, right = (defaultdict(lambda: defaultdict(list)) for _ in range(2))
    for seed in range(SPLITS):
        train, held = split(seed)
        own = {n: plain().fit(X, y) for n, X, y in zip(train.names, train.X, train.y, strict=True)}
        all_of_them = together(train)
        for name, X, y, who in zip(held.names, held.X, held.y, held.persons or (), strict=True):
            models = {**all_of_them, OWN: own[name], f"{LARGEST}'s": own[LARGEST]}
            for method, model in models.items():
                loss, correct = losses(model, X, y)
                splits[method][name].append(loss.mean())
                right[method][name].append(correct.mean())
                for person, each in zip(who.tolist(), loss, strict=True):
                    patients[method][name][person].append(each)
    means: dict[str, dict[str, NDArray[Any]]] = {
        method: {n: np.array([np.mean(v) for v in found.values()]) for n, found in by.items()}
        for method, by in patients.items()
    }
    return means, splits, right


def half(differences: Any) -> float:
    """Half the 95 % interval of a mean."""
    return float(NORMAL * np.std(differences, ddof=1) / np.sqrt(len(differences)))


def beside(means: dict[str, Any], splits: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Every other method and hospital: how much lower the loss of the robust model is."""
    for method in means:
        for name in HOSPITALS if method != ROBUST else ():
            less = means[method][name] - means[ROBUST][name]
            luck = np.subtract(splits[method][name], splits[ROBUST][name])
            found = means[method][name].mean(), means[ROBUST][name].mean(), less.mean()
            yield method, name, len(less), *found, half(less), half(luck)


def main() -> None:
    """Print all tables and verdicts."""
    warnings.simplefilter("ignore")
    sizes = [len(table[TARGET]) for table in HOSPITALS.values()]
    measure.show(
        "how",
        ("hospitals", "rows", "splits", "held out %", "intervals of %"),
        [(len(sizes), sum(sizes), SPLITS, 100 * HELD, 95)],
    )
    means, splits, right = judged()
    loss = {m: [by[name].mean() for name in HOSPITALS] for m, by in means.items()}
    measure.show(
        "log loss",
        ("method", *HOSPITALS, "worst hospital"),
        [(method, *map(float, found), float(max(found))) for method, found in loss.items()],
    )
    measure.show(
        "accuracy %",
        ("method", *HOSPITALS, "worst hospital"),
        [
            (m, *found, min(found))
            for m, by in right.items()
            for found in [[100 * float(np.mean(by[name])) for name in HOSPITALS]]
        ],
    )
    columns = ("method", "hospital", "patients", "its loss", "robust", "lower by")
    rows = list(beside(means, splits))
    measure.show("robust beside", (*columns, "± of patients", "± of splits"), rows)
    worst = {m: np.max([by[name] for name in HOSPITALS], axis=0) for m, by in splits.items()}
    measure.show(
        "worst hospital of each split",
        ("method", "log loss", "robust lower by", "± of splits"),
        [
            (m, float(found.mean()), float(less.mean()), half(less))
            for m, found in worst.items()
            for less in [found - worst[ROBUST]]
        ],
    )
    unseen: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for name in HOSPITALS:
        for seed in range(SPLITS):
            train, away = split(seed, name)
            for method, model in together(train).items():
                unseen[method][name].append(float(losses(model, away.X[0], away.y[0])[0].mean()))
    measure.show(
        "hospital never trained on",
        ("method", *HOSPITALS),
        [(method, *(float(np.mean(by[n])) for n in HOSPITALS)) for method, by in unseen.items()],
    )
    targets = measure.Targets()
    place = [*HOSPITALS][int(np.argmax(loss[OWN]))]
    shown = {(method, name): (lower, most) for method, name, *_, lower, most, _ in rows}
    lower, most = shown[OWN, place]
    targets.need(lower > most, f"lower than its own at {place}, the worst, beyond the interval")
    gains = {name: shown[OWN, name][0] for name in HOSPITALS}
    targets.need(max(gains, key=gains.__getitem__) == place, "no other hospital gains more")
    lower, most = shown[POOLED, place]
    targets.need(lower > -most, "there not worse than on pooled rows, beyond the interval")
    targets.finish()


if __name__ == "__main__":
    main()
