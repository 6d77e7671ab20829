"""Sites as data owners have them: a folder with a table and a ``site.toml``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

import bonafed as bf
from bonafed.arrays import Array
from bonafed.certificates.duality import certify_run
from bonafed.data.schema import declared_schema
from bonafed.engines.network import Network
from bonafed.sites.rows import Roles
from bonafed.sites.session import Agreement

NAMES = ("east", "north", "south")
COLUMNS = ("age", "dose", "stay")
CLASSES = ("ill", "well")
# a policy that answers about losses which jump, however few people an answer hangs on
OPEN = "minimum_people = 1\nsmooth_losses_only = false"
# the same about models of any length and number
WIDE = f"{OPEN}\nmaximum_models = 100000\nmaximum_model_length = 1e30"
PROBLEM = bf.Problem(bf.Logistic(), over_clients=bf.LpBall(0.2, 2, "size"), regulariser=bf.L2(1e-2))


def rows_of(name: str, m: int = 120) -> dict[str, np.ndarray]:
    """The table of a site."""
    rng = np.random.default_rng(NAMES.index(name))
    X = rng.normal(size=(m, len(COLUMNS))).round(4)
    ill = X[:, 0] - X[:, 1] + rng.normal(size=m) > 0
    sex = np.where(rng.random(m) > 0.5, "f", "m")
    columns = dict(zip(COLUMNS, X.T, strict=True))
    return columns | {"state": np.where(ill, *CLASSES), "sex": sex}


def folder_of(place: Path, name: str, policy: str = "", m: int = 120) -> Path:
    """A site's folder."""
    folder, table = place / name, rows_of(name, m)
    folder.mkdir(parents=True)
    lines = [
        ",".join(table),
        *[",".join(map(str, row)) for row in zip(*table.values(), strict=True)],
    ]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    text = f'[site]\nname = "{name}"\n\n[data]\npath = "rows.csv"\n\n[policy]\n{policy}\n'
    (folder / "site.toml").write_text(text)
    return folder


def roles(test: float = 0.0, columns: Mapping[str, Mapping] | None = None) -> Roles:
    """What the columns are for."""
    declared = {name: {} for name in COLUMNS} if columns is None else columns
    schema = declared_schema([*declared], declared, "state", CLASSES)
    return Roles("state", schema.to_dict(), classes=CLASSES, test=test, seed=3)


def certify(agreement: Agreement, models: Iterable[Array]) -> None:
    """Have the sites answer the certificates of models, as those of an agreed run."""
    for w in models:
        engine = Network(agreement.session)
        certify_run(agreement.problem, agreement.metadata, w, None, engine)
