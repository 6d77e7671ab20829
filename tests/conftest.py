"""Fixtures that several files share."""

import functools
import gc
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiers
import typer.main
from hypothesis import settings

from bonafed.cli import main
from bonafed.data.row_errors import without_values
from bonafed.privacy import odometer

# the same cases in every run; with --full new ones
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", derandomize=False, deadline=None, database=None)
settings.load_profile("same")

LEFT = pytest.StashKey[int]()  # how many tests are left to --full

# files of few tests that take long: xdist would keep them for the end, when one worker has all of
# them and the other nothing
FIRST = (
    "sites/test_over_flare.py",
    "sites/test_three_hospitals.py",
    "sites/test_over_flower.py",
    "test_kills.py",
    "border/test_rows_read.py",
    "border/test_forged_folders.py",
    "engines/test_flare.py",
    "fuzz/test_fuzz.py",
    "laws/test_combination_laws.py",
    "privacy/test_audit.py",
    "test_output.py",
    "test_notebooks.py",
    "test_site.py",
    "report/test_report.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="all tests, with new drawn cases")
    parser.addoption("--seed", type=int, help="with --full: the drawn cases of an earlier run")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """The order below is that in which xdist hands out files; and interruptions are noticed, also
    where a shell runs the tests in the background, whose processes ignore them.

    With ``--full`` drawn cases have a new seed; processes of xdist are given the options as set
    here, so all have the same.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as ``nohup`` has it
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    option = config.option
    if getattr(option, "numprocesses", None):
        # each process would rewrite the asserts of all files, which is half of its start
        os.environ["PYTEST_ADDOPTS"] = f"--assert=plain {os.environ.get('PYTEST_ADDOPTS', '')}"
    if hasattr(option, "loadscopereorder"):
        option.loadscopereorder = False
    if option.full:
        option.seed = random.randrange(2**32) if option.seed is None else option.seed
        option.hypothesis_seed = option.seed
        settings.load_profile("new")
    elif option.seed is not None:
        raise pytest.UsageError("--seed is for drawn cases, which are new with --full only")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """``full`` are the tests and cases that only ``--full`` runs, and those that it draws anew."""
    for item in tiers.left_out(items):
        item.add_marker("full")
    if config.option.full:
        for item in items:
            of_hypothesis = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
            if of_hypothesis or "drawn_seed" in getattr(item, "fixturenames", ()):
                item.add_marker("full")
    else:
        left = [item for item in items if item.get_closest_marker("full")]
        items[:] = [item for item in items if not item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=left)
        config.stash[LEFT] = len(left)
    if hasattr(config, "workerinput"):
        long_files_first(items)


def long_files_first(items: list[pytest.Item]) -> None:
    """In several processes long files come first and those of most tests next, as xdist has it."""
    tests = Counter(item.path for item in items)
    first = {Path(__file__).parent / name: place for place, name in enumerate(FIRST)}
    if missing := [str(path) for path in first if not path.is_file()]:
        raise pytest.UsageError(f"FIRST in {__file__} names {missing}, which are no files")
    items.sort(key=lambda item: (first.get(item.path, len(FIRST)), -tests[item.path]))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The process that prints collects nothing itself where xdist runs the tests."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left"] = session.config.stash.get(LEFT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    node.config.stash[LEFT] = getattr(node, "workeroutput", {}).get("left", 0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The seed of drawn cases, or the number of tests that the small tier leaves out; and where
    several processes left out the values of asserts.
    """
    if getattr(config.option, "numprocesses", None) and terminalreporter.stats.get("failed"):
        terminalreporter.write_line("values of failed asserts: run the tests again with -n 0")
    if config.option.full:
        terminalreporter.write_line(f"drawn cases are those of --full --seed {config.option.seed}")
    elif left := config.stash.get(LEFT, 0):
        terminalreporter.write_line(f"{left} tests were left to --full")


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


@pytest.fixture(scope="session")
def drawn_seed(request: pytest.FixtureRequest) -> int:
    """The seed of drawn cases: 0 in the small tier."""
    return request.config.option.seed or 0


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
