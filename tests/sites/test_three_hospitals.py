"""The page on three hospitals, every command of it: a run over NVIDIA FLARE with real processes."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import bonafed as bf
from bonafed.algorithms.federated.bundle.bundle import over_sites
from bonafed.config.config import Config, read_config
from bonafed.data.readers import read
from bonafed.data.schema import Schema
from bonafed.runs.folder import read_run
from bonafed.sites.audit import read_log
from bonafed.sites.rows import parted, seed_at_site
from bonafed.sites.run import roles_of
from bonafed.sites.site_file import read_site, secret_of

PAGE = Path(__file__).parents[2] / "docs" / "three-hospitals.md"
NAMES = ("north", "east", "south")
needed = ("nvflare", "cryptography")

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in needed),
    reason="needs pip install '.[flare,sign]'",
)


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """A folder to work in, and a shell that knows the command ``bonafed``."""
    command = tmp_path / "bin" / "bonafed"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m bonafed "$@"\n')
    command.chmod(0o755)
    source = Path(bf.__file__).parents[1]
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(source)}
    environment.pop("BONAFED_SITE", None)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)

    def run(text: str) -> str:
        done = subprocess.run(
            ["bash", "-e", "-c", text],
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


def together(fed: bf.Federation, parts: Sequence[bf.Federation]) -> bf.Federation:
    """Clients, each with the rows of one part."""
    X, y = (tuple(getattr(part, name)[0] for part in parts) for name in "Xy")
    names = tuple(name for part in parts for name in part.names)
    return bf.Federation(names, X, y, classes=fed.classes, feature_names=fed.feature_names)


def compile_here(config: Config) -> None:
    """Train a little in this process, which compiles what those of the sites would otherwise
    compile all at once, each for itself.
    """
    rng = np.random.default_rng(0)
    X, ill = rng.standard_normal((60, 3)), rng.integers(0, 2, 60)
    fed = bf.Federation.from_arrays(X, ill, np.repeat(NAMES, 20))
    bf.solve(config.problem(), fed, engine=bf.InProcess("each"))


def test_every_command_of_the_page(shell):
    text = PAGE.read_text(encoding="utf-8")
    printed = ""
    for language, block in re.findall(r"```(python|toml|sh)\n(.*?)```", text, re.DOTALL):
        if language == "python":
            exec(block, {})
        elif language == "toml":
            Path("trial.toml").write_text(block)
            compile_here(read_config("trial.toml"))
        else:
            printed += shell(block)
    (folder,) = (path for path in Path("runs").iterdir() if path.is_dir())
    run = read_run(folder)
    assert run.result["outcome"]["stop"] == "optimal"
    assert f"open next: {folder / 'report.html'}" in printed.replace("\n", " ")
    assert "verified" in printed
    assert "held-out rows" in printed

    # the model is that of the same method of all rows in one place
    config = read_config("trial.toml")
    order = [row["client"] for row in run.result["clients"]]
    fed = bf.Federation.from_tables(
        {name: read(Path("hospitals", name, "rows.csv"), []) for name in order},
        "ill",
        schema=Schema.from_dict(roles_of(config).schema),
        classes=["no", "yes"],
    )
    split = []
    for name in order:
        secret = secret_of(read_site(Path("hospitals", name)))
        seed = seed_at_site(config.seed, secret)
        table = read(Path("hospitals", name, "rows.csv"), [])
        split.append(parted(fed.restrict(name), table, config.data.test, seed))
    train, test = (together(fed, parts) for parts in zip(*split, strict=True))
    sizes = dict(zip(train.names, train.sizes.tolist(), strict=True))
    assert {row["client"]: row["n"] for row in run.result["clients"]} == sizes
    method = over_sites(bf.Bundle())
    here = bf.solve(config.problem(), train, algorithm=method, engine=bf.InProcess("each"))
    np.testing.assert_allclose(run.w, here.w, rtol=1e-12, atol=1e-14)
    judged = run.result["evaluation"]["measures"][0]
    assert judged["n"] == int(test.sizes.sum())
    assert judged["loss"] == pytest.approx(here.evaluate(test)[-1]["log_loss"], rel=1e-9)

    for name in NAMES:
        entries, faults = read_log(Path("hospitals", name, "audit.jsonl"))
        assert not faults
        kinds = {entry.kind for entry in entries if entry.way == "in"}
        assert {"Introduce", "Agree", "StartRun", "JudgeRows"} <= kinds

    # who changes one byte of what the sites signed is named
    (file,) = Path("runs").glob("*.signed.bft")
    assert file.stat().st_mode & 0o077 == 0
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(AssertionError, match="FAILED"):
        shell(f"bonafed verify {folder} --keys keys")
