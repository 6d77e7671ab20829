"""Fixtures that several files share."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from quorate.cli import main
from quorate.solution import blame

# the same cases in every run; `--hypothesis-profile default` looks for new ones
settings.register_profile("same", derandomize=True, deadline=None)
settings.load_profile("same")


@pytest.fixture
def quorate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Call the command line in ``tmp_path``; returns its status."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["quorate", *map(str, arguments)])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return call


@pytest.fixture
def without_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trivial model is told without a search for the parameter's value that would mend it, which
    takes ten solves.
    """
    monkeypatch.setattr(blame, "MOST_NUMBERS", 0)
