"""A model as a safetensors file, with all that predictions need in its metadata."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from quorate.arrays import Array
from quorate.config.config import Config
from quorate.data.federation import Federation
from quorate.data.schema import Schema
from quorate.names import load
from quorate.problem.prediction import predictor
from quorate.rounds import Stop
from quorate.runs.files import Record, Row, RunError, load_tensors, parsed, plain, save_arrays
from quorate.solution.solution import Solution

FORMAT = 1


def save_model(file: Path, config: Config, solution: Solution, fed: Federation) -> None:
    """Write w, and in the metadata how features are made and predictions computed."""
    problem = config.problem_
    network = {key: problem.get(key) for key in problem.keys_of("model")}
    model = {
        "format": FORMAT,
        "loss": problem.loss,
        "intercept": problem.intercept,
        "model": problem.model,
        **{key: value for key, value in network.items() if value is not None},
        **({"ones": True} if config.ones else {}),
        "classes": fed.classes,
        "feature_names": fed.feature_names,
        "schema": None if fed.schema is None else fed.schema.to_dict(),
        **({"infeasible": True} if solution.outcome.stop is Stop.INFEASIBLE else {}),
    }
    save_arrays(file, {"w": solution.w}, {"quorate": json.dumps(plain(model))})


def read_model(path: str | os.PathLike[str]) -> tuple[Array, Record, Schema]:
    """(w, model, schema) of a run's folder or of a model.safetensors file, to predict with."""
    w, model, schema = stored_model(path)
    if not np.isfinite(w).all():
        raise RunError(f"{path} is damaged: its model is not finite")
    return w, model, schema


def stored_model(path: str | os.PathLike[str]) -> tuple[Array, Record, Schema]:
    """The same as `read_model`, whether the numbers are finite or not."""
    file = Path(path)
    file = file / "model.safetensors" if file.is_dir() else file
    tensors, metadata = load_tensors(file)
    model = parsed(file, metadata.get("quorate", "{}"))
    if model.get("format") != FORMAT:
        raise RunError(
            f"{file}: the model is of format {model.get('format')!r}, this quorate reads {FORMAT}"
        )
    schema, w = Schema.from_dict(model["schema"]), tensors.get("w")
    if w is None or w.shape != (_dimension(model, len(schema.feature_names)),):
        raise RunError(f"{file} is damaged: its model does not fit its schema")
    return w, model, schema


def targets_of(model: Row) -> str:
    """The kind of targets that the loss of a saved model takes, as its class has it."""
    return load("loss", model["loss"]).targets


def _dimension(model: Row, n_features: int) -> int:
    """The size of a saved model."""
    d, several = n_features + model.get("ones", False), targets_of(model) == "class"
    return predictor(model).sized(d, len(model["classes"]) if several else None).dimension(d)
