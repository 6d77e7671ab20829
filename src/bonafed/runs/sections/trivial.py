"""Whether the model of a run is no better than a constant, and which parameter is to blame."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, get_args

from bonafed.config.config import Config
from bonafed.runs.files import Record
from bonafed.runs.form import Form, Number, one_of
from bonafed.runs.sections.section import Inputs, Section
from bonafed.solution.trivial import Kind


class TrivialityForm(Form):
    """Why a model is trivial, see `bonafed.Triviality`."""

    kind: Annotated[str, one_of(get_args(Kind))]
    parameter: str | None
    value: Number | str | None
    threshold: Number | None
    text: str


class TrivialForm(Form):
    """What a run states of it: null where the model is not trivial."""

    trivial: TrivialityForm | None


class Trivial(Section):
    """The model against the best constant one."""

    name = "trivial"
    keys = ("trivial",)
    form = TrivialForm

    def applies(self, config: Config) -> bool:
        return True

    def result(self, inputs: Inputs) -> Record:
        """The record, or None."""
        return {"trivial": None if inputs.trivial is None else asdict(inputs.trivial)}
