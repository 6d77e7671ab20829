"""Ordinary tables of several hospitals, with the honest differences that hospitals have; nothing in
them is wrong, and no check may say so. ``spoilt`` has what goes wrong, each at one hospital.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Table = dict[str, NDArray[Any]]
Tables = dict[str, Table]
NAMES = ("Hillcrest", "Northside", "Lakeview", "St. Anna", "Riverside", "Oakwood")


def ordinary(seed: int, rows: int = 240, clients: int = 5) -> Tables:
    """Hospitals of very different sizes, means up to .7 standard deviations apart, prevalences of
    20 to 80 %, other ranges, a category that one hospital has, a column that is constant at one,
    heavy tails, counts, shares, and measurements of a few values.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.dirichlet(np.full(clients, 3.0)) * (rows - 20 * clients) + 20
    sizes = np.maximum(sizes.astype(int), 20)
    strength, flat = rng.uniform(0.4, 1.5), seed % 10 == 0  # some tables tell nothing
    direction = rng.normal(size=8) * strength * (not flat)
    alone = NAMES[rng.integers(clients)], NAMES[rng.integers(clients)]
    tables: Tables = {}
    for name, n in zip(NAMES, sizes.tolist(), strict=False):
        z = rng.normal(size=(n, 8)) + rng.uniform(-0.7, 0.7, 8)
        z[:, 3] += 0.5 * z[:, 0]
        wide = rng.uniform(0.7, 1.4)
        table: Table = {
            "age": np.clip(np.rint(53 + 10 * wide * z[:, 0]), 18, 97),
            "pressure": np.rint(130 + 18 * z[:, 1]),
            "creatinine": np.round(np.exp(0.0 + 0.35 * z[:, 2]), 2),
            "weight": np.round(78 * np.exp(0.2 * z[:, 3]), 1),
            "height": np.round(1.72 + 0.09 * z[:, 4], 2),
            "temperature": np.round(36.9 + 0.6 * z[:, 5], 1),
            "crp": np.round(np.exp(1.5 + 1.1 * z[:, 6]), 1),  # a tail
            "score": z[:, 7] + 0.3 * rng.standard_t(2, n),  # heavy tails, also below 0
            "visits": rng.poisson(rng.uniform(0.8, 3.0), n).astype(float),
            "stage": rng.choice([1.0, 2.0, 3.0, 4.0], n, p=rng.dirichlet(np.full(4, 2.0))),
            "saturation": np.minimum(np.rint(96 + 2 * rng.normal(size=n)), 99.0),
            "sex": rng.choice(["f", "m"], n, p=[p := rng.uniform(0.2, 0.8), 1 - p]),
            "smoker": (rng.random(n) < rng.uniform(0.1, 0.5)).astype(float),
            "device": rng.choice(["A", "B", "C"][: rng.integers(1, 4)], n),
            "stay": np.rint(rng.exponential(rng.uniform(3, 9), n)),
        }
        if name == alone[0]:
            table["sex"] = np.where(rng.random(n) < 0.1, "other", table["sex"])
            table["device"] = np.where(rng.random(n) < 0.3, "D", table["device"])
        if name == alone[1]:
            table["smoker"] = np.zeros(n)
        margin = z @ direction
        prevalence = rng.uniform(0.2, 0.8)
        at = np.quantile(margin + rng.logistic(size=n), 1 - prevalence)
        sick = margin + rng.logistic(size=n) > at
        sick[:2] = [True, False]
        table["sick"] = np.where(sick, "yes", "no")
        table["patient"] = np.array([f"{name[:3]}{k:05d}" for k in rng.choice(10**5, n, False)])
        tables[name] = table
    return tables


def sites_of(tables: Tables) -> tuple[str, str]:
    """The hospital that is neither the largest nor the smallest, and the smallest."""
    order = sorted(tables, key=lambda name: len(tables[name]["age"]))
    return order[len(order) // 2], order[0]


def _with(column: str, change: Callable[[Any], Any]) -> Callable[[Table, Any], None]:
    def changed(table: Table, rng: Any) -> None:
        table[column] = change(table[column])

    return changed


def _codes(column: str, **codes: Any) -> Callable[[Table, Any], None]:
    return _with(column, lambda cells: np.array([codes.get(str(c), c) for c in cells.tolist()]))


def _some(column: str, value: float, share: float = 0.15) -> Callable[[Table, Any], None]:
    def changed(table: Table, rng: Any) -> None:
        odd = rng.random(len(table[column])) < share
        odd[:3] = True
        table[column] = np.where(odd, value, table[column])

    return changed


# what goes wrong at one hospital, by kind and column
SPOILT: dict[str, tuple[str, str, Callable[[Table, Any], None]]] = {
    "labels swapped": ("labels", "sick", _codes("sick", yes="no", no="yes")),
    "µmol/l": ("units", "creatinine", _with("creatinine", lambda x: np.rint(88.4 * x))),
    "pounds": ("units", "weight", _with("weight", lambda x: np.round(2.2046 * x, 1))),
    "cm": ("units", "height", _with("height", lambda x: np.rint(100 * x))),
    "fahrenheit": (
        "units",
        "temperature",
        _with("temperature", lambda x: np.round(1.8 * x + 32, 1)),
    ),
    "kPa": ("units", "pressure", _with("pressure", lambda x: np.round(x / 7.5006, 1))),
    "sex 0/1": ("codes", "sex", _codes("sex", f="0", m="1")),
    "sex words": ("codes", "sex", _codes("sex", f="female", m="male")),
    "smoker 1/2": ("codes", "smoker", _with("smoker", lambda x: x + 1)),
    "stage 0-3": ("codes", "stage", _with("stage", lambda x: x - 1)),
    "pos/neg": ("codes", "sick", _codes("sick", yes="pos", no="neg")),
    "age 999": ("sentinel", "age", _some("age", 999.0)),
    "age -9": ("sentinel", "age", _some("age", -9.0)),
    "age 99": ("sentinel", "age", _some("age", 99.0)),
    "crp 9999": ("sentinel", "crp", _some("crp", 9999.0)),
    "pressure 0": ("sentinel", "pressure", _some("pressure", 0.0)),
    "stage 9": ("sentinel", "stage", _some("stage", 9.0)),
}


def spoilt(seed: int, what: str, rows: int = 240, small: bool = False) -> tuple[Tables, str]:
    """Ordinary tables with one thing wrong at one hospital, which is named, too; ``small``: at the
    smallest one.
    """
    tables = ordinary(seed, rows)
    client = sites_of(tables)[small]
    SPOILT[what][2](tables[client], np.random.default_rng(seed))
    return tables, client
