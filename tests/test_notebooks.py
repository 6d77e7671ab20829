"""The tutorials run, and the outputs stored in them are those of this version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from notebooks import TUTORIALS, executed, kernel, printed, same


@pytest.fixture(scope="module")
def running() -> Iterator[KernelManager]:
    with kernel() as manager:
        yield manager


def test_there_is_a_tutorial_for_every_capability():
    assert [path.stem.partition("-")[2] for path in TUTORIALS] == [
        "robust",
        "worst-client",
        "constraints",
        "private",
        "tail-risks",
    ]


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs_and_prints_what_is_stored_in_it(path: Path, running: KernelManager):
    stored = printed(nbformat.read(path, as_version=4))
    now = printed(executed(path, running))  # raises where a cell does
    assert any(stored)
    assert same(now, stored), f"run: python tests/notebooks.py {path.stem}\n" + "\n".join(
        f"now: {new}\nstored: {old}"
        for new, old in zip(now, stored, strict=True)
        if not same([new], [old])
    )


def test_the_order_of_two_streams_is_the_machines():
    said, warned = ({"name": "stdout", "text": "a\n"}, {"name": "stderr", "text": "W: b\n"})
    cells = [
        nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("stream", **o) for o in order])
        for order in ([said, warned], [warned, said])
    ]
    assert printed(nbformat.v4.new_notebook(cells=cells)) == ["a\nW: b\n"] * 2
