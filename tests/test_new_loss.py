"""A margin loss is added in two places, its class and its name, and is served everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import small_run

from bonafed.config.config import parse_config
from bonafed.names import NAMED
from bonafed.problem.rank_levels import has_rank_coordinate
from bonafed.runs.model_file import predict_table
from bonafed.runs.verification import passed, verify_run
from bonafed.solvers.rank.proxes import RAMP, Kernel


@dataclass(frozen=True)
class ShiftedHinge:
    """A smooth hinge that is 0 from the margin ``shift`` on."""

    shift: float = 0.5
    targets: ClassVar[str] = "sign"
    smooth: ClassVar[bool] = True
    lipschitz = 1.0
    pieces = None

    def __post_init__(self) -> None:
        if not 0 < self.shift < 10:
            raise ValueError(f"shift must lie in (0, 10), got {self.shift}.")

    @property
    def floor(self) -> tuple[float, float]:
        return 1.0, 0.5 - self.shift

    @property
    def rank_kernel(self) -> Kernel:
        return Kernel(RAMP, -self.shift, 1.0)

    def value(self, prediction, y):
        short = np.maximum(0.0, self.shift - y * prediction)
        return np.where(short < 1, short**2 / 2, short - 0.5)

    def gradient(self, prediction, y):
        return -y * np.clip(self.shift - y * prediction, 0.0, 1.0)

    def curvature(self, prediction, y):
        short = self.shift - y * prediction
        return ((short > 0) & (short < 1)).astype(float)


@pytest.fixture(autouse=True)
def one_line_in_the_list_of_names(monkeypatch):
    monkeypatch.setitem(NAMED["loss"], "shifted_hinge", f"{__name__}:ShiftedHinge")


STATED = '[problem]\nloss = "shifted_hinge"\nshift = 0.7\n'
TEXTS = {  # a configuration for each family of methods
    "Wasserstein balls": small_run.CONFIG.replace("[robust]", STATED + "[robust]"),
    "RankADMM": small_run.TAIL.replace('loss = "logistic"', 'loss = "shifted_hinge"').replace(
        "[algorithm]", '[algorithm]\nname = "rank_admm"'
    ),
    "AsyncDRO": small_run.MIXED.replace('loss = "logistic"', 'loss = "shifted_hinge"').replace(
        '"auto"', '"async_dro"'
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_it_trains_is_verified_reported_and_predicts_classes(tmp_path: Path, name: str):
    run = small_run.small_run(tmp_path, draw=True, text=TEXTS[name])
    assert run.result["certificate"]["relative_gap"] < 0.1
    assert passed(verify_run(run.path))
    assert "shifted hinge loss" in (run.path / "report.html").read_text("utf-8")
    rows = predict_table(run.path, tmp_path / "clinics.csv")
    assert {*rows["prediction"]} == {"no", "yes"}
    assert len(rows["score"]) == len(rows["prediction"])


def test_its_field_is_a_key_and_its_class_says_what_is_allowed():
    data = '[data]\nname = "hospitals"\n'
    config = parse_config(data + STATED)
    assert config.problem().loss == ShiftedHinge(0.7)
    assert parse_config(config.text()).model_dump() == config.model_dump()
    assert has_rank_coordinate(ShiftedHinge())
    with pytest.raises(ValueError, match=r"line 5, problem.shift: shift must lie in \(0, 10\)"):
        parse_config(data + STATED.replace("0.7", "70"))
    with pytest.raises(ValueError, match=r"`shift`.*'hinge'.*belongs to loss = 'shifted_hinge'"):
        parse_config(data + STATED.replace("shifted_hinge", "hinge"))
