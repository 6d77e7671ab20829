"""The tutorials, executed: ``python tests/notebooks.py [NAME...]`` stores outputs that changed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

TUTORIALS = sorted((Path(__file__).parents[1] / "docs" / "tutorials").glob("*.ipynb"))
# a warning, between its file and its line of code
WARNED = re.compile(r"^\S+:\d+: (\w+Warning: .*\n)(?:  .*\n)?", re.MULTILINE)
NUMBER = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?")


@contextmanager
def kernel() -> Iterator[KernelManager]:
    """One process for all notebooks, so that imports are paid for once."""
    manager = KernelManager(kernel_name="python3", transport="ipc")
    manager.start_kernel()
    try:
        yield manager
    finally:
        manager.shutdown_kernel(now=True)


def executed(path: Path, manager: KernelManager) -> Any:
    """A notebook with the outputs of now; no name of the one before is left."""
    notebook = nbformat.read(path, as_version=4)
    forget = nbformat.v4.new_code_cell("%reset -f")
    notebook.cells.insert(0, forget)
    client = NotebookClient(notebook, km=manager, timeout=900, record_timing=False)
    try:
        client.execute()
    finally:
        if client.kc is not None:
            client.kc.stop_channels()
    notebook.cells.pop(0)
    for count, cell in enumerate(c for c in notebook.cells if c.cell_type == "code"):
        cell.execution_count = count + 1
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count + 1
            if output.get("name") == "stderr":  # not where this machine keeps the code
                output.text = WARNED.sub(r"\1", output.text)
    return notebook


def printed(notebook: Any) -> list[str]:
    """What every code cell prints or ends with, as text; its warnings are the last.

    A warning and a line that was printed before it come by two streams, and a busy machine
    delivers them in either order.
    """
    return [
        "".join(
            o.get("text", o.get("data", {}).get("text/plain", ""))
            for o in sorted(cell.outputs, key=lambda o: o.get("name") == "stderr")
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def same(now: list[str], stored: list[str]) -> bool:
    """The same words, and the same numbers but for what machines compute differently."""

    def close(new: str, old: str) -> bool:
        pairs = zip(NUMBER.findall(new), NUMBER.findall(old), strict=False)
        return NUMBER.sub("0", new) == NUMBER.sub("0", old) and all(
            abs(float(a) - float(b)) <= max(0.02, 0.05 * abs(float(b))) for a, b in pairs
        )

    return len(now) == len(stored) and all(map(close, now, stored))


if __name__ == "__main__":
    with kernel() as running:
        for tutorial in TUTORIALS:
            if not sys.argv[1:] or tutorial.stem in sys.argv[1:]:
                made = executed(tutorial, running)
                if not same(printed(made), printed(nbformat.read(tutorial, as_version=4))):
                    nbformat.write(made, tutorial)
