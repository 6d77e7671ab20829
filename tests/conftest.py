"""Fixtures that several files share."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.cli import main


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
