"""Fixtures that several files share."""

import functools
import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer.main
from hypothesis import settings

from bonafed.cli import main
from bonafed.data.row_errors import without_values
from bonafed.privacy import odometer
from bonafed.report import figures
from bonafed.solution import blame

# the same cases in every run; `--hypothesis-profile default` looks for new ones
settings.register_profile("same", derandomize=True, deadline=None)
settings.load_profile("same")

# files of few tests that take long: xdist would keep them for the end, when one worker has all of
# them and the other nothing
FIRST = (
    "sites/test_over_flare.py",
    "sites/test_three_hospitals.py",
    "sites/test_over_flower.py",
    "test_kills.py",
    "engines/test_flare.py",
    "fuzz/test_fuzz.py",
    "test_notebooks.py",
    "test_site.py",
    "report/test_report.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """The order below is that in which xdist hands out files; and interruptions are noticed, also
    where a shell runs the tests in the background, whose processes ignore them.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as ``nohup`` has it
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In several processes long files come first and those of most tests next, as xdist has it."""
    if not hasattr(config, "workerinput"):
        return
    tests = Counter(item.path for item in items)
    first = {Path(__file__).parent / name: place for place, name in enumerate(FIRST)}
    if missing := [str(path) for path in first if not path.is_file()]:
        raise pytest.UsageError(f"FIRST in {__file__} names {missing}, which are no files")
    items.sort(key=lambda item: (first.get(item.path, len(FIRST)), -tests[item.path]))


def pytest_collection() -> None:
    """Importing all files of tests makes millions of objects, and none of them is garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What the files hold is looked at no more, and the rest less often: looking for garbage took
    a twentieth of all time.
    """
    gc.freeze()
    gc.set_threshold(20_000, 25, 25)
    gc.enable()


@pytest.fixture
def not_private() -> Iterator[None]:
    """Errors show values of rows, as in a run that is known not to be private."""
    with without_values(private=False):
        yield


@pytest.fixture(scope="session", autouse=True)
def memory_for_a_disk() -> Iterator[None]:
    """No test of this process cuts the power, so none waits for the disk: runs here synchronise
    files some ten thousand times. A file that is not open is still an error.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_command_line() -> Iterator[None]:
    """A process has one command line, which typer makes anew for every call of it: for tests, which
    call it a thousand times, it is made once.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(autouse=True)
def no_runs_before() -> None:
    """What other tests have spent on the same rows is nothing to a test."""
    odometer.forget()


@pytest.fixture
def bonafed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Call the command line in ``tmp_path``; returns its status."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["bonafed", *map(str, arguments)])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return call


@pytest.fixture
def drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each figure of the one run of a test is drawn once, not again wherever it is verified or
    reported: a report takes most of a second, and that it comes out alike is for tests/report.
    """
    kept: dict[tuple[str, str, float], str] = {}

    def draw(name: str, plot: figures.Plot) -> str:
        key = name, plot.title, plot.height
        if key not in kept:
            kept[key] = figures.draw(name, plot)
        return kept[key]

    monkeypatch.setattr("bonafed.report.html.draw", draw)


@pytest.fixture
def without_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trivial model is told without a search for the parameter's value that would mend it, which
    takes ten solves.
    """
    monkeypatch.setattr(blame, "MOST_NUMBERS", 0)
