"""The data sets of section 5 as this project encodes them, and their division among clients.

The cleaned files of He, Peng, Sun, *Federated learning with convex global and local constraints*,
were not at hand, so sizes and features differ from their Table 3 (rows of class 0 / class 1,
features):

| | here | Table 3 |
|---|---|---|
| ``breast_cancer_wisconsin`` | 444 / 239, 19 | 455 / 240, 20 |
| ``monks_1`` | 278 / 278, 18 | 275 / 275, 21 |
| ``adult`` | 24,720 / 7,841, 20 | 24,715 / 7,840, 21 |

Every encoding ends with a column of ones, the intercept, which is not penalised. Numbers compare in
trend only.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import bonafed as bf
import bonafed.extending as ext
from bonafed.data import load
from bonafed.extending import Array

Labels = NDArray[np.intp]
# rows of the fairness study, clients' and server's, of the 32,561
SIZES, ALL = (22_654, 5_659), 32_561


class Encoded(NamedTuple):
    """A data set: features (n, d), labels 0 and 1, names of the features, and groups if any."""

    X: Array
    y: Labels
    names: tuple[str, ...]
    group: NDArray[Any] | None = None


def breast_cancer_wisconsin() -> Encoded:
    """The 683 records without missing values; class 1 is malignant.

    Features are 9 standardised ones, their squares minus 1, and ones.
    """
    table = load.breast_cancer_wisconsin()
    Z = standardised(table.X)
    names = (*table.feature_names, *(f"{name}^2" for name in table.feature_names), "ones")
    return Encoded(np.column_stack([Z, Z**2 - 1, np.ones(len(Z))]), table.y, names)


def monks_1() -> Encoded:
    """All 556 rows: an indicator of each of the 17 values of the 6 attributes, and ones.

    The indicators of an attribute add up to the ones, so the rank is 12 of 18: models are not
    unique but predictions are.
    """
    table = load.monks_1()
    columns = zip(table.X.T, table.feature_names, strict=True)
    flags = {f"{name}={v:g}": values == v for values, name in columns for v in np.unique(values)}
    X = np.column_stack([*flags.values(), np.ones(len(table.y))])
    return Encoded(X.astype(float), table.y, (*flags, "ones"))


NUMBERS = ("age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week")
VALUES = {  # the most frequent ones, in that order
    "marital_status": ("Married-civ-spouse", "Never-married", "Divorced"),
    "occupation": ("Prof-specialty", "Craft-repair", "Exec-managerial", "Adm-clerical"),
    "relationship": ("Husband", "Not-in-family", "Own-child"),
    "race": ("White", "Black"),
    "sex": ("Male",),
}


def adult(every: int = 1) -> Encoded:
    """The 32,561 training rows, or every k-th; class 1 is an income > 50K, ``group`` is the sex.

    Features are 6 standardised numbers, 13 indicators of frequent values, and ones.
    """
    table = load.adult("train").table
    numbers = standardised(np.column_stack([np.asarray(table[name], float) for name in NUMBERS]))
    flags = {f"{key}={value}": table[key] == value for key in VALUES for value in VALUES[key]}
    X = np.column_stack([numbers, *flags.values(), np.ones(len(numbers))]).astype(float)
    y = (table["income"] == ">50K").astype(np.intp)
    group = table["sex"].astype(str)
    return Encoded(X[::every], y[::every], (*NUMBERS, *flags, "ones"), group[::every])


# the paper's names
DATA = {"breast-cancer-wisc": breast_cancer_wisconsin, "adult-a": adult, "monks-1": monks_1}


def standardised(X: Array) -> Array:
    """The columns with mean 0 and standard deviation 1, or 0 where they are constant."""
    spread = X.std(0)
    return (X - X.mean(0)) / np.where(spread > 0, spread, 1.0)


# -- the division among clients --------------------------------------------------------------------


def stratified(y: Labels, n_clients: int, seed: int = 0) -> Labels:
    """Deal the rows at random, each class by itself, so that clients have equal numbers of it."""
    rng = ext.stream(seed, "stratified", n_clients)
    owner = np.empty(len(y), np.intp)
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        owner[rows] = np.arange(len(rows)) % n_clients
    return owner


def federation(data: Encoded, owner: Labels) -> bf.Federation:
    """The federation of clients "0", "1", … that hold these rows."""
    columns = None if data.group is None else {"group": data.group}
    names, who = data.names, owner.astype(str)
    return bf.Federation.from_arrays(data.X, data.y, who, feature_names=names, columns=columns)


def with_server(data: Encoded, n_clients: int, seed: int = 0) -> bf.Federation:
    """22,654 rows of adult, drawn and dealt to n clients in turn, and 5,659 others at the server.

    Of fewer rows it is the same share.

    Raises
    ------
    ValueError
        where the data have no groups
    """
    if (group := data.group) is None:
        raise ValueError("with_server needs groups: use adult().")
    clients, server = (size * len(data.y) // ALL for size in SIZES)
    order = ext.stream(seed, "server", n_clients).permutation(len(data.y))

    def chosen(rows: Labels, owner: Labels) -> bf.Federation:
        return federation(Encoded(data.X[rows], data.y[rows], data.names, group[rows]), owner)

    fed = chosen(order[:clients], np.arange(clients) % n_clients)
    held = chosen(order[clients : clients + server], np.zeros(server, np.intp))
    return replace(fed, server=held)
