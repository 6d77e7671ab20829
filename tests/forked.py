"""Processes that have imported the command line and done nothing else, at the cost of a fork.

A script that a test runs in a process of its own would spend most of its time on imports. Here one
process imports them once and forks for every script; a fork shares nothing with this process and
may be killed as any other.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "bonafed.cli",
        "bonafed.report.pages",
        "bonafed.runs.noise_estimate",
        "bonafed.runs.pipeline",
        "bonafed.runs.verification",
    ]
)


def begin(script: Path, *arguments: str, output: Path, folder: Path) -> ForkServerProcess:
    """Start a script as ``python SCRIPT ARGUMENTS...`` would in a folder; ``output`` is the file
    for what it prints.
    """
    output.write_bytes(b"")
    process = CONTEXT.Process(target=_run, args=(str(script), arguments, str(output), str(folder)))
    process.start()
    return process


def _run(script: str, arguments: tuple[str, ...], output: str, folder: str) -> None:
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.chdir(folder)
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
