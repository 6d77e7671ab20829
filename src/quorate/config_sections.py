"""The tables of a configuration file: keys, types, ranges and defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator

LOSSES = {  # name in the file -> (class, the keys of [problem] that it takes)
    "hinge": ("Hinge", ()),
    "smooth_hinge": ("SmoothHinge", ()),
    "logistic": ("Logistic", ()),
    "exponential": ("Exponential", ()),
    "squared": ("Squared", ()),
    "absolute": ("Absolute", ()),
    "huber": ("Huber", ("threshold",)),
    "epsilon_insensitive": ("EpsilonInsensitive", ("tolerance",)),
    "quantile": ("Quantile", ("level",)),
    "multinomial": ("Multinomial", ()),
}
LossName = Literal[
    "hinge",
    "smooth_hinge",
    "logistic",
    "exponential",
    "squared",
    "absolute",
    "huber",
    "epsilon_insensitive",
    "quantile",
    "multinomial",
]
Baseline = Literal["unconstrained", "erm", "afl", "drfa", "wafl"]
Regulariser = Literal["none", "l1", "l2", "elastic_net", "mcp", "scad"]
AlgorithmName = Literal[
    "auto",
    "bundle",
    "ad_lpmm",
    "epigraph_admm",
    "double_loop",
    "rank_admm",
    "smoothed_rank_admm",
    "sgd",
    "lsvrg",
    "dca",
    "interior_point",
    "proximal_al",
    "private_admm",
    "output_perturbed_admm",
    "async_dro",
    "aspire",
    "multiplier_method",
    "afl",
    "drfa",
    "fed_avg",
]
SUPPORTS = ({"lower", "upper"}, {"C", "d"}, {"C", "d", "c_label"})


# ---------------------------------------------------------------------------------------- values


def _infinite(value: Any) -> Any:
    return math.inf if value == "inf" else value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError("allowed: a finite number >= 0")
    return float(value)


def _radius(value: Any) -> float | str | dict[str, float]:
    if value == "auto":
        return value
    if not isinstance(value, Mapping):
        try:
            return _number(value)
        except ValueError as error:
            raise ValueError(f"{error}, 'auto' (read off the rows), or a table with one number per client") from None
    for client, radius in value.items():
        try:
            _number(radius)
        except ValueError as error:
            raise ValueError(f"client {client!r} has {radius!r}; {error}") from None
    return {client: float(radius) for client, radius in value.items()}


def _radii(value: Any) -> list[float]:
    """A list of radii, or {from, to, count}: a geometric one, rounded to four digits between its ends."""
    if isinstance(value, Mapping) and set(value) == {"from", "to", "count"}:
        first, last, count = _number(value["from"]), _number(value["to"]), value["count"]
        if isinstance(count, int) and not isinstance(count, bool) and count >= 2 and 0 < first < last:
            inner = [float(f"{first * (last / first) ** (k / (count - 1)):.4g}") for k in range(1, count - 1)]
            value = [first, *inner, last]
    if not isinstance(value, list) or not value:
        raise ValueError(
            "allowed: a list of numbers >= 0, or { from = a, to = b, count = n } with 0 < a < b and n >= 2"
        )
    radii = [_number(radius) for radius in value]
    if len({*radii}) < len(radii):
        raise ValueError("allowed: every radius once")
    return radii


def _label(value: Any) -> Any:
    if value is not None and not isinstance(value, str | int | float):
        raise ValueError("allowed: a class of the target, as text or as a number")
    return value


def _server(value: Any) -> str | float | None:
    share = isinstance(value, float) and 0 < value < 1
    if value is None or share or (isinstance(value, str) and value):
        return value
    raise ValueError("allowed: the path of a table, or a share of the training rows between 0 and 1")


def _prior(value: Any) -> str | list[float] | dict[str, float]:
    if value in ("uniform", "size"):
        return value
    if isinstance(value, list) and value:
        return [_number(v) for v in value]
    if isinstance(value, Mapping) and value:
        return {client: _number(v) for client, v in value.items()}
    raise ValueError("allowed: 'uniform', 'size', a list of weights >= 0, or a table with one weight per client")


def _support(value: Any) -> dict[str, Any] | None:
    if value in (None, "none"):
        return None
    if isinstance(value, Mapping) and set(value) in SUPPORTS:
        return dict(value)
    raise ValueError("allowed: 'none', a box {lower, upper}, or a polytope {C, d} or {C, d, c_label}: C x <= d")


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Cost = Annotated[float, BeforeValidator(_infinite), Field(gt=0)]
Exponent = Annotated[float, BeforeValidator(_infinite), Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
Probability = Annotated[float, Field(ge=0, le=1)]


# ---------------------------------------------------------------------------------------- sections


class Section(BaseModel):
    """A table of the file: no unknown keys, no guessed types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Drift(Section):
    """How the shifted clients' rows differ further from what was trained on, in units of the scaled features."""

    scale: Annotated[float, Field(allow_inf_nan=False)] = 1.0  # x' = scale x + offset, an instrument out of tune
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
    classes: Annotated[Any, PlainValidator(lambda value: _classes(value))] = None  # declared, the larger is predicted
    columns: Annotated[Any, PlainValidator(lambda value: _columns(value))] = None  # declared features
    indicators: bool = False
    test: Share = 0.3
    shifted: list[str] = []
    drift: Drift | None = None

    @model_validator(mode="after")
    def _one_source(self) -> DataSection:
        if (self.name is None) == (self.path is None):
            raise ValueError("needs exactly one of `name` (a data set, see `quorate data`) and `path` (CSV or Parquet)")
        if self.path is not None and self.target is None:
            raise ValueError("needs `target`, the column to predict, beside `path`")
        if self.partition is not None and (self.path is not None or self.client is not None):
            raise ValueError("has `partition`, which is for data sets by `name` whose rows have no client of their own")
        if self.drift is not None and not self.shifted:
            raise ValueError("has `drift` but no `shifted`: drift is applied to the shifted clients; name some")
        if self.classes is not None and self.path is None:
            raise ValueError("has `classes`, and those of a data set by `name` are known: leave `classes` out")
        if self.columns is not None and (self.scale != "none" or self.features or self.categorical or self.indicators):
            raise ValueError(
                "has `columns`, which say how every feature is made: set scale = 'none', and leave out features, "
                "categorical and indicators"
            )
        return self


def _classes(value: Any) -> list[Any] | None:
    if value is None:
        return None
    several = isinstance(value, list) and len(value) > 1 and len({type(v) for v in value}) == 1
    if several and isinstance(value[0], str | int | float) and len({*value}) == len(value):
        return sorted(value)
    raise ValueError(
        "allowed: a list of the two classes of the target (of a multinomial loss more), all text or all numbers"
    )


def _columns(value: Any) -> dict[str, dict[str, Any]] | None:
    from quorate.config_privacy import columns

    return columns(value)


def _paths(value: Any) -> list[str]:
    paths = [value] if isinstance(value, str) else value
    if not isinstance(paths, list) or not paths or not all(isinstance(p, str) and p for p in paths):
        raise ValueError("allowed: a path, a pattern such as 'sites/*.csv', or a list of them")
    return paths


class ProblemSection(Section):
    """The loss of one row, the model and its regulariser."""

    loss: LossName = "hinge"
    threshold: Positive | None = None
    tolerance: NonNegative | None = None
    level: Annotated[float, Field(gt=0, lt=1)] | None = None
    label: Annotated[Any, PlainValidator(_label)] = None  # only rows of this class count in the objective
    regulariser: Regulariser = "l2"
    strength: NonNegative = 1e-3
    l1_share: Probability = 0.5
    shape: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None  # of mcp its gamma, of scad its a
    intercept: bool = True  # of "linear"; of "softmax" a feature of ones
    model: Literal["linear", "softmax", "mlp"] = "linear"
    hidden: Annotated[list[Annotated[int, Field(ge=1)]], Field()] | None = None  # of mlp: units of the hidden layers
    activation: Literal["tanh", "relu", "softplus"] | None = None
    pooled: bool = False  # all rows in one place: one client to solve for; whose rows they are stays for the report

    @model_validator(mode="after")
    def _own_parameters(self) -> ProblemSection:
        takes = LOSSES[self.loss][1]
        for key in ("threshold", "tolerance", "level"):
            if getattr(self, key) is not None and key not in takes:
                owner = next(loss for loss, (_, keys) in LOSSES.items() if key in keys)
                raise ValueError(f"has `{key}`, which {self.loss!r} does not take: it belongs to loss = {owner!r}")
        for key in ("hidden", "activation"):
            if getattr(self, key) is not None and self.model != "mlp":
                raise ValueError(f"has `{key}`, which model = {self.model!r} does not take: it belongs to 'mlp'")
        if self.shape is not None and self.regulariser not in ("mcp", "scad"):
            raise ValueError(f"has `shape`, which {self.regulariser!r} does not take: it belongs to 'mcp' or 'scad'")
        if self.regulariser == "scad" and self.shape is not None and self.shape <= 2:
            raise ValueError(f"has shape = {self.shape:g}; 'scad' needs a number > 2, such as 3.7")
        return self


class RobustSection(Section):
    """The Wasserstein ball round every client's rows."""

    radius: Annotated[Any, PlainValidator(_radius)] = 0.0
    label_cost: Cost = math.inf
    norm: Literal["l1", "l2", "linf"] = "l1"
    support: Annotated[Any, PlainValidator(_support)] = None
    clip: bool = False


class PathSection(Section):
    """Radii to try on the training rows: solved on one part of every client's rows, judged on the rest of them."""

    radii: Annotated[Any, PlainValidator(_radii)]  # of the Wasserstein balls
    client_radii: Annotated[Any, PlainValidator(_radii)] = None  # of the ball of client weights; None: as in [clients]
    test: Annotated[float, Field(gt=0, lt=1)] = 0.3  # share of every client's training rows that is judged on


class AlgorithmSection(Section):
    """How it is solved, and when to stop."""

    name: AlgorithmName = "auto"
    tol: Positive | None = None
    max_rounds: Annotated[int, Field(ge=1)] | None = None
    options: dict[str, Any] = {}


class ReportSection(Section):
    """What is written, and beside which models."""

    html: bool = True
    compare_with: list[Baseline] = []
