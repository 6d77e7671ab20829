"""A model as a safetensors file, with all that predictions need in its metadata.

The metadata follow from configuration, data and outcome only, so that verification makes them
again and compares.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

import numpy as np
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from bonafed.arrays import Array
from bonafed.config.config import Config
from bonafed.data.reading import ENCODINGS, KINDS, ColumnKind, is_delimiter
from bonafed.data.schema import OTHER, Schema
from bonafed.names import NAMED, load
from bonafed.problem.calibration import Sigmoid
from bonafed.problem.predictors.affine import predictor
from bonafed.rounds import Stop
from bonafed.runs.files import Record, Row, RunError, load_tensors, parsed, plain, save_arrays
from bonafed.runs.form import (
    Form,
    NonNegative,
    Number,
    Positive,
    check_form,
    damaged,
    one_of,
    optional,
)
from bonafed.solution.solution import Solution

FORMAT = 1


class Column(Form):
    """How one column of a table becomes features."""

    OF: ClassVar = {
        "numeric": {"mean", "centre", "scale", "indicator"},
        "categorical": {"categories", "missing"},
    }

    kind: Literal["numeric", "categorical"]
    name: str
    unit: str | None
    mean: Number = optional()
    centre: Number = optional()
    scale: Positive = optional()
    indicator: bool = optional()
    categories: list[str] = optional()
    missing: bool = optional()
    pooled: Literal[True] = optional()

    @model_validator(mode="after")
    def _as_its_kind(self) -> Column:
        stated = self.model_fields_set - {"kind", "name", "unit"}
        if "pooled" in stated and OTHER in (self.categories or ()):
            stated -= {"pooled"}
        if stated != self.OF[self.kind]:
            needed = ", ".join(sorted(self.OF[self.kind]))
            raise ValueError(f"a {self.kind} column with {needed} only")
        if self.categories and len({*self.categories}) < len(self.categories):
            raise ValueError("every category once")
        return self


Classes = list[str] | list[int] | list[float] | list[bool] | None


class _ReadingForm(Form):
    encoding: Annotated[str, one_of(ENCODINGS)] = optional()
    delimiter: str = optional()
    decimal: Literal[","] = optional()
    missing: list[str] = optional()
    exclude: list[str] = optional()
    merge: dict[str, dict[str, str]] = optional()
    drop_missing_target: Literal[True] = optional()
    drop_missing_client: Literal[True] = optional()

    @field_validator("delimiter")
    @classmethod
    def _separates(cls, text: str) -> str:
        if not is_delimiter(text):
            raise ValueError("one character that stands between cells")
        return text


def _as_declared(kind: ColumnKind) -> AfterValidator:
    def check(value: object) -> object:
        if kind.stored(kind.declared(value)) != value:
            raise ValueError(f"columns of `{kind.key}` as a configuration declares them")
        return value

    return AfterValidator(check)


if TYPE_CHECKING:

    class ReadingForm(_ReadingForm):
        """What is declared of untidy tables; what is not declared is absent."""

else:
    ReadingForm = create_model(
        "ReadingForm",
        __base__=_ReadingForm,
        **{key: (Annotated[Any, _as_declared(kind)], optional()) for key, kind in KINDS.items()},
    )


class SchemaForm(Form):
    """How all features are made."""

    version: Literal[1]
    columns: Annotated[list[Column], Field(min_length=1)]
    target: str
    classes: Classes
    fitted: bool
    reading: ReadingForm = optional()

    @model_validator(mode="after")
    def _every_column_once(self) -> SchemaForm:
        if len({column.name for column in self.columns}) < len(self.columns):
            raise ValueError("every column once")
        return self


class CalibrationForm(Form):
    """How scores become probabilities: `bonafed.Sigmoid`."""

    slope: NonNegative
    offset: Number


class ModelForm(Form):
    """What predictions need beside the numbers of the model; further keys are fields of the class
    that ``model`` names.
    """

    model_config = ConfigDict(extra="allow")

    format: Literal[1]
    loss: str
    intercept: bool
    model: str
    ones: Literal[True] = optional()
    client: str = optional()  # the column with the client of each row
    classes: Classes
    feature_names: list[str]
    made_by: Annotated[SchemaForm, Field(alias="schema")]
    infeasible: Literal[True] = optional()
    calibration: CalibrationForm = optional()

    @field_validator("loss", "model")
    @classmethod
    def _is_known(cls, name: str, info: ValidationInfo) -> str:
        if name not in NAMED[str(info.field_name)]:
            raise ValueError(f"one of {', '.join(NAMED[str(info.field_name)])}")
        return name

    @model_validator(mode="after")
    def _parts_fit(self) -> ModelForm:
        names = {field.name for field in fields(load("model", self.model))}
        if odd := [key for key in self.model_extra or {} if key not in names]:
            raise ValueError(f"no key such as {odd[0][:60]!a}")
        known, kind = self.classes or [], load("loss", self.loss).targets
        enough = {"real": not known, "sign": len(known) == 2, "class": len(known) >= 2}
        if not enough[kind] or len({*known}) < len(known):
            needed = {"real": "null", "sign": "two", "class": "two or more"}[kind]
            raise ValueError(f"as classes of the {self.loss} loss {needed}")
        if self.classes != self.made_by.classes:
            raise ValueError("the classes of its schema")
        return self


class Described(Protocol):
    """What is known of the rows to train on: names, classes and schema."""

    @property
    def feature_names(self) -> Sequence[str]: ...

    @property
    def classes(self) -> Any: ...

    @property
    def schema(self) -> Schema | None: ...


def model_of(
    config: Config, fed: Described, infeasible: bool, calibration: Sigmoid | None
) -> Record:
    """What a model's file says beside its numbers: how features are made and predictions computed;
    ``fed`` are the rows to train on.
    """
    schema = None if fed.schema is None else fed.schema.to_dict()
    model = described(config, fed.classes, fed.feature_names, schema, infeasible)
    return model if calibration is None else model | {"calibration": asdict(calibration)}


def described(
    config: Config, classes: object, names: object, schema: Row | None, infeasible: bool
) -> Record:
    """The same, from names, classes and schema only."""
    problem = config.problem_
    network = {key: problem.get(key) for key in problem.keys_of("model")}
    model = {
        "format": FORMAT,
        "loss": problem.loss,
        "intercept": problem.intercept,
        "model": problem.model,
        **{key: value for key, value in network.items() if value is not None},
        **({"ones": True} if config.ones else {}),
        **({} if config.data.client is None else {"client": config.data.client}),
        "classes": classes,
        "feature_names": names,
        "schema": schema,
        **({"infeasible": True} if infeasible else {}),
    }
    return plain(model)


def save_model(file: Path, config: Config, solution: Solution, fed: Described) -> None:
    """Write w, and in the metadata how features are made and predictions computed."""
    infeasible = solution.outcome.stop is Stop.INFEASIBLE
    model = model_of(config, fed, infeasible, solution.calibration)
    save_arrays(file, {"w": solution.w}, {"bonafed": json.dumps(model)})


def read_model(path: str | os.PathLike[str]) -> tuple[Array, Record, Schema]:
    """(w, model, schema) of a run's folder or of a model.safetensors file, to predict with."""
    w, model, schema = stored_model(path)
    if not np.isfinite(w).all():
        raise RunError(f"{path} is damaged: its model is not finite")
    return w, model, schema


def stored_model(path: str | os.PathLike[str]) -> tuple[Array, Record, Schema]:
    """The same as `read_model`, whether the numbers are finite or not."""
    file = Path(path)
    if file.is_dir():
        file /= "model.safetensors"
        if file.is_symlink():
            raise RunError(f"{file} is a symbolic link: a run has files only")
    tensors, metadata = load_tensors(file)
    if {*tensors} != {"w"} or {*metadata} != {"bonafed"}:
        raise damaged(file, 'needed: the array "w" and the metadata "bonafed", and nothing else')
    model = parsed(file, metadata["bonafed"])
    if model.get("format") != FORMAT:
        raise RunError(
            f"{file}: the model is of format {str(model.get('format'))[:20]!r}, this bonafed reads"
            f" {FORMAT}"
        )
    check_form(file, model, ModelForm, "model")
    schema, w = Schema.from_dict(model["schema"]), tensors["w"]
    names = [*schema.feature_names, *["1"] * model.get("ones", False)]
    if model["feature_names"] != names:
        raise damaged(file, "its feature_names are not those of its schema")
    if w.shape != (_dimension(file, model, len(schema.feature_names)),):
        raise damaged(file, "its model does not fit its schema")
    return w, model, schema


def targets_of(model: Row) -> str:
    """The kind of targets that the loss of a saved model takes, as its class has it."""
    return load("loss", model["loss"]).targets


def _dimension(file: Path, model: Row, n_features: int) -> int:
    """The size of a saved model."""
    d, several = n_features + model.get("ones", False), targets_of(model) == "class"
    try:
        return predictor(model).sized(d, len(model["classes"]) if several else None).dimension(d)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise damaged(file, f"{model['model']} cannot be made of its keys: {error}") from error
