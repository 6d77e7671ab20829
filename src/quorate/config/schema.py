"""The tables of a configuration file: keys, types, ranges and defaults."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator

Baseline = Literal["unconstrained", "erm", "afl", "drfa", "wafl"]
SUPPORTS = ({"lower", "upper"}, {"C", "d"}, {"C", "d", "c_label"})


# ---------------------------------------------------------------------------------------- values


def _infinite(value: Any) -> Any:
    return math.inf if value == "inf" else value


def number(value: Any) -> float:
    """A finite number >= 0."""
    if not _finite(value) or value < 0:
        raise ValueError("allowed: a finite number >= 0")
    return float(value)


def _radius(value: Any) -> float | str | dict[str, float]:
    if value == "auto":
        return value
    if not isinstance(value, Mapping):
        try:
            return number(value)
        except ValueError as error:
            raise ValueError(
                f"{error}, 'auto' (read off the rows), or a table with one number per client"
            ) from None
    for client, radius in value.items():
        try:
            number(radius)
        except ValueError as error:
            raise ValueError(f"client {client!r} has {radius!r}; {error}") from None
    return {client: float(radius) for client, radius in value.items()}


def several_radii(value: Any) -> list[float]:
    """A list of radii, or {from, to, count}: a geometric one, rounded to four digits between its
    ends.
    """
    if isinstance(value, Mapping) and set(value) == {"from", "to", "count"}:
        first, last, count = number(value["from"]), number(value["to"]), value["count"]
        if (
            isinstance(count, int)
            and not isinstance(count, bool)
            and count >= 2
            and 0 < first < last
        ):
            inner = [
                float(f"{first * (last / first) ** (k / (count - 1)):.4g}")
                for k in range(1, count - 1)
            ]
            value = [first, *inner, last]
    if not isinstance(value, list) or not value:
        raise ValueError(
            "allowed: a list of numbers >= 0, or { from = a, to = b, count = n } with 0 < a < b and"
            " n >= 2"
        )
    radii = [number(radius) for radius in value]
    if len({*radii}) < len(radii):
        raise ValueError("allowed: every radius once")
    return radii


def label_of_a_class(value: Any) -> Any:
    """A class of the target, or None."""
    if value is not None and not isinstance(value, str | int | float):
        raise ValueError("allowed: a class of the target, as text or as a number")
    return value


def _server(value: Any) -> str | float | None:
    share = isinstance(value, float) and 0 < value < 1
    if value is None or share or (isinstance(value, str) and value):
        return value
    raise ValueError(
        "allowed: the path of a table, or a share of the training rows between 0 and 1"
    )


def _support(value: Any) -> dict[str, Any] | None:
    if value in (None, "none"):
        return None
    if isinstance(value, Mapping) and set(value) in SUPPORTS:
        return dict(value)
    raise ValueError(
        "allowed: 'none', a box {lower, upper}, or a polytope {C, d} or {C, d, c_label}: C x <= d"
    )


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Cost = Annotated[float, BeforeValidator(_infinite), Field(gt=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Probability = Annotated[float, Field(ge=0, le=1)]


# ---------------------------------------------------------------------------------------- sections


class Section(BaseModel):
    """A table of the file: no unknown keys, no guessed types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @classmethod
    def keys(cls) -> list[str]:
        """The keys that the table may have."""
        return [field.alias or name for name, field in cls.model_fields.items()]


class Drift(Section):
    """How the shifted clients' rows differ further from what was trained on, in units of the scaled
    features.
    """

    # x' = scale x + offset, an instrument out of tune
    scale: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    offset: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    noise: NonNegative = 0.0  # standard deviation of noise on every feature
    flips: Probability = 0.0  # share of labels that are flipped


class Partition(Section):
    """How the rows of a data set without owners are dealt to invented clients."""

    by: Literal["iid", "dirichlet", "label"]
    clients: Annotated[int, Field(ge=1)] = 10
    alpha: Positive = 1.0  # of "dirichlet": small for unlike clients
    labels: Annotated[int, Field(ge=1)] = 1  # of "label": classes per client


class DataSection(Section):
    """Where the rows are, whose they are, and what is held out."""

    name: str | None = None
    path: Annotated[Any, PlainValidator(lambda value: _paths(value))] = None
    client: str | None = None
    partition: Partition | None = None
    target: str | None = None
    features: list[str] | None = None
    categorical: list[str] = []
    groups: list[str] = []  # read for constraints on groups, and no features
    server: Annotated[Any, PlainValidator(_server)] = None  # the server's own rows
    scale: Literal["standard", "minmax", "none"] = "standard"
    # declared, the larger is predicted
    classes: Annotated[Any, PlainValidator(lambda value: _classes(value))] = None
    # declared features
    columns: Annotated[Any, PlainValidator(lambda value: _columns(value))] = None
    indicators: bool = False
    test: Share = 0.3
    shifted: list[str] = []
    drift: Drift | None = None

    @model_validator(mode="after")
    def _one_source(self) -> DataSection:
        if (self.name is None) == (self.path is None):
            raise ValueError(
                "needs exactly one of `name` (a data set, see `quorate data`) and `path` (CSV or"
                " Parquet)"
            )
        if self.path is not None and self.target is None:
            raise ValueError("needs `target`, the column to predict, beside `path`")
        if self.partition is not None and (self.path is not None or self.client is not None):
            raise ValueError(
                "has `partition`, which is for data sets by `name` whose rows have no client of"
                " their own"
            )
        if self.drift is not None and not self.shifted:
            raise ValueError(
                "has `drift` but no `shifted`: drift is applied to the shifted clients; name some"
            )
        if self.classes is not None and self.path is None:
            raise ValueError(
                "has `classes`, and those of a data set by `name` are known: leave `classes` out"
            )
        if self.columns is not None and (
            self.scale != "none" or self.features or self.categorical or self.indicators
        ):
            raise ValueError(
                "has `columns`, which say how every feature is made: set scale = 'none', and leave"
                " out features, categorical and indicators"
            )
        return self


def _classes(value: Any) -> list[Any] | None:
    if value is None:
        return None
    several = isinstance(value, list) and len(value) > 1 and len({type(v) for v in value}) == 1
    if several and isinstance(value[0], str | int | float) and len({*value}) == len(value):
        return sorted(value)
    raise ValueError(
        "allowed: a list of the two classes of the target (of a multinomial loss more), all text or"
        " all numbers"
    )


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _columns(value: Any) -> dict[str, dict[str, Any]] | None:
    """What a file declares of its columns, one table for each."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        raise ValueError(
            "allowed: a table with one entry for each feature, such as age = { min = 0, max = 100 }"
        )
    return {name: _column(name, given) for name, given in value.items()}


def _column(name: str, given: Any) -> dict[str, Any]:
    numbers = ("min", "max", "mean", "scale", "missing")
    kinds = ({"min", "max"}, {"mean", "scale"}, {"categories"}, set())
    keys = {*given} - {"missing", "indicator"} if isinstance(given, Mapping) else None
    if keys in kinds:
        finite = all(_finite(given[key]) for key in numbers if key in given)
        whole = finite and isinstance(given.get("indicator", False), bool)
        if "categories" in given:
            several, more = given["categories"], {*given} - {"categories"}
            if (
                isinstance(several, list)
                and several
                and all(isinstance(c, str) for c in several)
                and not more
            ):
                return dict(given)
        elif whole and given.get("min", 0) < given.get("max", 1) and given.get("scale", 1) > 0:
            return dict(given)
    raise ValueError(
        f"column {name!r} has {given!r}; allowed: {{ min, max }} (made 0 to 1), {{ mean, scale }},"
        " {} (taken as it is), each with missing = the number that stands for none and indicator"
        " = true for a feature of its own, or { categories = ['a', ...] }"
    )


def _paths(value: Any) -> list[str]:
    paths = [value] if isinstance(value, str) else value
    if not isinstance(paths, list) or not paths or not all(isinstance(p, str) and p for p in paths):
        raise ValueError("allowed: a path, a pattern such as 'sites/*.csv', or a list of them")
    return paths


class RobustSection(Section):
    """The Wasserstein ball round every client's rows."""

    radius: Annotated[Any, PlainValidator(_radius)] = 0.0
    label_cost: Cost = math.inf
    norm: Literal["l1", "l2", "linf"] = "l1"
    support: Annotated[Any, PlainValidator(_support)] = None
    clip: bool = False


class PathSection(Section):
    """Radii to try on the training rows: solved on one part of every client's rows, judged on the
    rest of them.
    """

    radii: Annotated[Any, PlainValidator(several_radii)]  # of the Wasserstein balls
    # of the ball of client weights; None: as in [clients]
    client_radii: Annotated[Any, PlainValidator(several_radii)] = None
    # share of every client's training rows that is judged on
    test: Annotated[float, Field(gt=0, lt=1)] = 0.3


class ReportSection(Section):
    """What is written, and beside which models."""

    html: bool = True
    compare_with: list[Baseline] = []


def moved(path: str, old: Path, new: Path) -> str:
    """A path that started at ``old``, from ``new``."""
    if os.path.isabs(path):
        return path
    try:
        return os.path.relpath(old / path, new).replace(os.sep, "/")
    except ValueError:  # another drive
        return str((old / path).absolute())
