"""Fixtures of the tests of the account."""

from __future__ import annotations

from pathlib import Path

import pytest
from charged import Place

from bonafed.algorithms.federated import private_admm as private_client
from bonafed.algorithms.federated.private_admm import PrivateADMM


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch):
    """From the call on, every function of a client fails."""

    def now() -> None:
        def touched(*_: object) -> None:
            raise AssertionError("the data were touched")

        for name in ("client_start", "perturb"):
            monkeypatch.setattr(PrivateADMM, name, touched)
        monkeypatch.setattr(private_client, "perturb", touched)

    return now
