"""The data of section 5 as this project encodes them, and who holds which rows.

The cleaned files of He, Peng, Sun, *Federated learning with convex global and local constraints*, are not public, so
that sizes and features differ from their Table 3 (rows of class 0 / class 1, features):

| | here | Table 3 |
|---|---|---|
| ``breast_cancer_wisconsin`` | 444 / 239, 19 | 455 / 240, 20 |
| ``monks_1`` | 278 / 278, 18 | 275 / 275, 21 |
| ``adult`` | 24,720 / 7,841, 20 | 24,715 / 7,840, 21 |

Every encoding ends with a column of ones, the intercept, which nothing penalises. Figures are comparable in trend only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Array, stream
from quorate.data import load, partition
from quorate.data.federation import Federation

Labels = NDArray[np.intp]
SIZES = {1: 22_654, 0: 5_659}  # rows of the fairness study: clients', server's


class Encoded(NamedTuple):
    """(n, d) features, (n,) labels 0 and 1, d names; (n,) groups, where rows have one."""

    X: Array
    y: Labels
    names: tuple[str, ...]
    group: NDArray[Any] | None = None


def breast_cancer_wisconsin() -> Encoded:
    """The 683 records without missing values: 9 standardised features, their squares minus 1, ones; 1 is malignant."""
    found = load.breast_cancer_wisconsin()
    Z = _standardised(found.X)
    names = (*found.feature_names, *(f"{name}^2" for name in found.feature_names), "ones")
    return Encoded(np.column_stack([Z, Z**2 - 1, np.ones(len(Z))]), found.y, names)


def monks_1() -> Encoded:
    """All 556 rows: an indicator of each of the 17 values of the 6 attributes, and ones.

    The indicators of an attribute add up to the ones: rank 12 of 18, so that models are not unique and predictions are.
    """
    found = load.monks(1)
    columns, names = [], []
    for values, name in zip(found.X.T, found.feature_names, strict=True):
        for value in np.unique(values):
            columns.append(values == value)
            names.append(f"{name}={value:g}")
    X = np.column_stack([*columns, np.ones(len(found.y))])
    return Encoded(X.astype(float), found.y, (*names, "ones"))


NUMBERS = ("age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week")
VALUES = {  # the most frequent ones, in that order
    "marital_status": ("Married-civ-spouse", "Never-married", "Divorced"),
    "occupation": ("Prof-specialty", "Craft-repair", "Exec-managerial", "Adm-clerical"),
    "relationship": ("Husband", "Not-in-family", "Own-child"),
    "race": ("White", "Black"),
    "sex": ("Male",),
}


def adult() -> Encoded:
    """The 32,561 training rows: 6 standardised numbers, 13 indicators of frequent values, ones; 1 is an income > 50K.

    ``group`` is the sex.
    """
    table = load.adult("train").table
    numbers = _standardised(np.column_stack([np.asarray(table[name], float) for name in NUMBERS]))
    flags = [table[name] == value for name, values in VALUES.items() for value in values]
    names = (*NUMBERS, *(f"{name}={value}" for name, values in VALUES.items() for value in values), "ones")
    X = np.column_stack([numbers, *flags, np.ones(len(numbers))]).astype(float)
    return Encoded(X, (table["income"] == ">50K").astype(np.intp), names, table["sex"].astype(str))


DATA = {"breast-cancer-wisc": breast_cancer_wisconsin, "adult-a": adult, "monks-1": monks_1}  # the paper's names


def _standardised(X: Array) -> Array:
    return (X - X.mean(0)) / X.std(0)


# -------------------------------------------------------------------- who holds which rows


def stratified(y: Labels, n_clients: int, seed: int = 0) -> Labels:
    """Rows dealt at random, each class by itself: every client has as many rows of it, up to one."""
    rng = stream(seed, "stratified", n_clients)
    owner = np.empty(len(y), np.intp)
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        owner[rows] = np.arange(len(rows)) % n_clients
    return owner


def unlike(X: Array, y: Labels, n_clients: int, seed: int = 0) -> Labels:
    """Each class cut into bands of its first principal component, blurred by one standard deviation of noise.

    Features differ between clients, and the k-th has 0.8^k times the rows of the first; each has rows of both classes.
    """
    shares = 0.8 ** np.arange(n_clients)
    spread = X.std(0)
    Z = (X - X.mean(0)) / np.where(spread > 0, spread, 1.0)
    score = Z @ np.linalg.svd(Z, full_matrices=False)[2][0]
    owner = np.empty(len(y), np.intp)
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        owner[rows] = partition.by_feature(score[rows], (shares / shares.sum()).tolist(), 1.0, seed)
    return owner


def federation(data: Encoded, owner: Labels) -> Federation:
    """Clients "0", "1", … that hold these rows."""
    columns = None if data.group is None else {"group": data.group}
    return Federation.from_arrays(data.X, data.y, owner.astype(str), feature_names=data.names, columns=columns)


def with_server(data: Encoded, n_clients: int, seed: int = 0, part: float = 1.0) -> Federation:
    """Random rows with n alike clients and others with the server: 22,654 and 5,659 of them, or a part of as many.

    Raises
    ------
    ValueError
        where the data have fewer rows, or no groups
    """
    clients, server = (int(part * SIZES[side]) for side in (1, 0))
    if data.group is None or clients + server > len(data.y):
        raise ValueError(
            f"with_server needs groups and {clients + server} rows, got {len(data.y)}: use adult(), or a smaller part."
        )
    rows = stream(seed, "server", n_clients).permutation(len(data.y))
    own, held = rows[:clients], rows[clients : clients + server]
    mine = Encoded(data.X[own], data.y[own], data.names, data.group[own])
    fed = federation(mine, np.arange(clients) % n_clients)
    columns = {"group": (data.group[held],)}
    server = Federation(("server",), (data.X[held],), (data.y[held],), feature_names=data.names, columns=columns)
    return Federation(
        fed.clients,
        fed.X,
        fed.y,
        classes=fed.classes,
        feature_names=fed.feature_names,
        columns=fed.columns,
        server=server,
    )
