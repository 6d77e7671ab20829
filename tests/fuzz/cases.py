"""The kinds of cases: each copies a sound file, mutates it, and gives it to its reader."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from fuzz import mutate, records
from fuzz.corpus import Corpus, config_texts, copied
from fuzz.laws import Verdict, judged
from fuzz.mutate import Random, pick
from toy import AsyncToy, Toy, federation

from bonafed import cli
from bonafed.config.config import read_config
from bonafed.engines import InProcess, Replay, VirtualClock
from bonafed.engines.delays import Trace
from bonafed.engines.run_record import Log
from bonafed.privacy.ledger import Book
from bonafed.report.pages import render
from bonafed.rounds import decode, encode
from bonafed.runs.files import sealed, to_json
from bonafed.runs.pipeline import dry_run
from bonafed.runs.splits import prepare
from bonafed.runs.verification import passed, verify_run
from bonafed.sites.audit import AuditLog, head_path, read_log
from bonafed.sites.site_file import first_site
from bonafed.sites.words import in_words

Case = Callable[[Corpus, Path, Random], Verdict]


def command(*words: object) -> int:
    """The status of a command, run in this process."""
    return cli.app([str(word) for word in words], standalone_mode=False) or 0


# ---- configurations and tables


def configuration(corpus: Corpus, work: Path, rng: Random) -> Verdict:
    """A configuration: read, checked, and of private runs what they would spend."""
    texts = config_texts()
    text = mutate.of_file("x.toml", texts[pick(rng, sorted(texts))].encode(), rng)
    path = work / "clinics.toml"
    path.write_bytes(text)
    copied(corpus.table, work / "clinics.csv")

    def read() -> None:
        config = read_config(path)
        config.check()
        if config.privacy is not None:
            dry_run(config)

    return judged(read)


def table(corpus: Corpus, work: Path, rng: Random) -> Verdict:
    """A table: to train on, to predict, or to write a first configuration from."""
    data = corpus.table.read_bytes()
    kind = pick(rng, ("csv", "csv", "csv.gz", "parquet"))
    path = work / f"clinics.{kind}"
    if kind == "csv":
        path.write_bytes(mutate.of_file(path.name, data, rng))
    elif kind == "csv.gz":
        import gzip

        inside = mutate.csv_bytes(data, rng) if rng.random() < 0.3 else data
        packed = gzip.compress(inside)
        path.write_bytes(packed if inside != data else mutate.damaged(packed, rng))
    else:
        path.write_bytes(mutate.damaged(_parquet(data), rng))
    use = pick(rng, ("train", "predict", "init"))
    if use == "predict":
        return judged(lambda: command("predict", corpus.runs["plain"], path))
    if use == "init":
        out = work / "new.toml"
        return judged(lambda: command("init", path, "--out", out))
    name = pick(rng, ("plain", "private", "clock"))
    text = (corpus.folder / name / "clinics.toml").read_text("utf-8")
    (work / "clinics.toml").write_text(text.replace("clinics.csv", path.name), encoding="utf-8")

    def train() -> None:
        config = read_config(work / "clinics.toml")
        config.check()
        prepare(config)

    return judged(train)


def _parquet(data: bytes) -> bytes:
    import io

    import pyarrow.csv
    import pyarrow.parquet

    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(io.BytesIO(data)), out)
    return out.getvalue()


def trace(corpus: Corpus, work: Path, rng: Random) -> Verdict:
    """Recorded delays."""
    path = work / "delays.csv"
    path.write_bytes(mutate.of_file(path.name, (corpus.folder / path.name).read_bytes(), rng))

    def simulate() -> None:
        VirtualClock(delays=Trace(path)).run(AsyncToy(max_rounds=2), federation())

    return judged(simulate)


# ---- runs


def run_folder(corpus: Corpus, work: Path, rng: Random) -> Verdict:
    """A run's folder with one file mutated, and sometimes with digests and seal made anew."""
    source = corpus.runs[pick(rng, sorted(corpus.runs))]
    folder = copied(source, work / "runs" / "run")  # as far from its data as it was
    copied(source.parents[1] / "clinics.csv", work / "clinics.csv")
    names = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    names = [path for path in names if path.suffix != ".svg" or rng.random() < 0.1]
    file = pick(rng, names)
    before = file.read_bytes()
    file.write_bytes(mutate.of_file(file.name, before, rng))
    use = pick(rng, ("verify", "verify", "verify", "predict", "md", "json", "compare", "html"))
    if use == "verify" and rng.random() < 0.7:
        _seal(folder)
    return judged(lambda: _used(use, source, folder, corpus, rng))


def _used(use: str, source: Path, folder: Path, corpus: Corpus, rng: Random) -> Any:
    """The status of a command on a run's folder; words where it took a changed number."""
    if use == "predict":
        return command("predict", folder, corpus.table)
    if use == "compare":
        return command("compare", source, folder)
    if use in ("md", "json"):
        return command("report", folder, "--format", use)
    if use == "html":
        return command("report", folder) if rng.random() < 0.15 else command("report", folder, "-h")
    checks = verify_run(folder, render=render if rng.random() < 0.03 else None)
    if not passed(checks):
        return 1
    said = " ".join(f"{c.name} {c.text}" for c in checks if c.ok is not True)
    odd = [way for way in changed_numbers(source, folder) if not _listed(way, said)]
    return f"{len(odd)} changed numbers verify: {odd[:4]}" if odd else 0


def _listed(way: str, said: str) -> bool:
    """Whether what stands there is listed as not checked."""
    words = set(said.replace(",", " ").replace(":", " ").split())
    return any(part in words for part in way.replace("/", ".").split(".")[1:])


def _seal(folder: Path) -> None:
    """Make the digests and the seal anew, as whoever forges a run can."""
    for inside in (folder, folder / "owner"):
        try:
            result = json.loads((inside / "result.json").read_text("utf-8"))
            result.pop("seal", None)
            without = "owner" if inside == folder and (folder / "owner").is_dir() else ""
            (inside / "result.json").write_text(
                to_json(sealed(inside, result, without), indent=1), encoding="utf-8"
            )
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            continue


def changed_numbers(one: Path, other: Path) -> Iterator[str]:
    """The places of all numbers in two run folders that differ by more than rounding."""
    before, after = numbers(one), numbers(other)
    for way in dict.fromkeys((*before, *after)):
        a, b = before.get(way), after.get(way)
        if (
            a is None
            or b is None
            or not (
                math.isclose(a, b, rel_tol=1e-8, abs_tol=1e-8) or (math.isnan(a) and math.isnan(b))
            )
        ):
            yield way


def numbers(folder: Path) -> dict[str, float]:
    """All numbers in the files of a run, by file and place."""
    known: dict[str, float] = {}
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if file.suffix in (".json", ".jsonl"):
            rows = file.read_text("utf-8")
            value = json.loads(rows) if file.suffix == ".json" else _rows(rows)
            if isinstance(value, dict):
                value = {key: part for key, part in value.items() if key not in ("seal", "files")}
            known |= _numbers(value, name)
        elif file.suffix == ".toml":
            # with defaults, as a key that states one may be left out
            known |= _numbers(read_config(file).model_dump(by_alias=True), name)
        elif file.suffix == ".safetensors":
            for key, array in safetensors.numpy.load(file.read_bytes()).items():
                known |= {
                    f"{name}.{key}.{k}": float(v) for k, v in enumerate(np.ravel(array).tolist())
                }
    return known


def _rows(text: str) -> list[Any]:
    return [json.loads(row) for row in text.splitlines()]


def _numbers(value: Any, place: str) -> dict[str, float]:
    if isinstance(value, dict | list):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        known: dict[str, float] = {}
        for key, part in parts:
            known |= _numbers(part, f"{place}.{key}")
        return known
    return {place: float(value)} if isinstance(value, int | float) else {}


def work_folder(corpus: Corpus, work: Path, rng: Random) -> Verdict:
    """The folder of an interrupted run with one file mutated, which is resumed."""
    source = corpus.works[pick(rng, sorted(corpus.works))]
    copied(source.parents[1], work / "x")
    folder = work / "x" / "runs" / source.name
    file = pick(rng, [path for path in sorted(folder.iterdir()) if path.is_file()])
    data = file.read_bytes()
    if file.suffix == ".checkpoint" and rng.random() < 0.7:
        file.write_bytes(encode(records.mutated(decode(data), rng)[1]))
    else:
        file.write_bytes(mutate.of_file(file.name, data, rng))
    return judged(lambda: command("run", "--resume", folder))


def data_set(corpus: Corpus, work: Path, rng: Random) -> Verdict:
    """A file of a data set that can be named, which is another one."""
    from bonafed.data.load import SETTING, SOURCES

    name = pick(rng, [name for name, source in sorted(SOURCES.items()) if source.files])
    for file in SOURCES[name].files:
        path = work / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(mutate.damaged(rng.bytes(int(rng.integers(200))), rng))
    before = os.environ.get(SETTING)
    os.environ[SETTING] = str(work)
    try:
        return judged(lambda: command("data", name))
    finally:
        os.environ.pop(SETTING) if before is None else os.environ.update({SETTING: before})


def model(corpus: Corpus, work: Path, rng: Random) -> Verdict:
    """A model alone."""
    source = corpus.runs[pick(rng, sorted(corpus.runs))] / "model.safetensors"
    path = work / source.name
    path.write_bytes(mutate.of_file(path.name, source.read_bytes(), rng))
    return judged(lambda: command("predict", path, corpus.table))


# ---- engines


def checkpoint(corpus: Corpus, work: Path, rng: Random) -> Verdict:
    """A checkpoint, damaged or with one value that no run has and a valid digest."""
    name = pick(rng, ("toy.checkpoint", "clock.checkpoint"))
    path, data = work / name, (corpus.folder / name).read_bytes()
    intact = True
    if rng.random() < 0.4:
        new = mutate.damaged(data, rng)
        intact = new == data
    else:
        new = encode(records.mutated(decode(data), rng)[1])
    path.write_bytes(new)
    engine: Any = (VirtualClock if name.startswith("clock") else InProcess)(checkpoint=path)
    algorithm = AsyncToy() if name.startswith("clock") else Toy()
    verdict = judged(lambda: engine.run(algorithm, federation(), resume=True))
    if verdict.name == "accepted" and new[-16:] == data[-16:] and not intact:
        return Verdict("changed number", "a damaged checkpoint was resumed", verdict.seconds)
    return verdict


def log(corpus: Corpus, work: Path, rng: Random) -> Verdict:
    """A log, replayed."""
    path, data = work / "events.bft", (corpus.folder / "events.bft").read_bytes()
    damage = rng.random() < 0.4
    path.write_bytes(
        mutate.damaged(data, rng) if damage else encode(records.mutated(decode(data), rng)[1])
    )
    return judged(lambda: Replay(Log.load(path)).run(AsyncToy(), federation()))


def ledger(corpus: Corpus, work: Path, rng: Random) -> Verdict:
    """The ledger file or its lock."""
    for name in ("book.json", "book.json.lock"):
        copied(corpus.folder / name, work / name)
    path = work / pick(rng, ("book.json", "book.json", "book.json", "book.json.lock"))
    before = path.read_bytes()
    path.write_bytes(mutate.of_file(path.name, before, rng))
    spent = Book(corpus.folder / "book.json").spent(("North", "East"))

    def read() -> str | None:
        again = Book(work / "book.json").spent(("North", "East"))
        return None if again == spent else f"other releases are read: {again}"

    return judged(read)


# ---- sites


DEMAND = '[[policy.constraint]]\nkind = "loss_gap"\ncolumn = "sex"\nlevel = 0.1\n'


def site_file(corpus: Corpus, work: Path, rng: Random) -> Verdict:
    """A site's file: read, said, and held against the site's rows."""
    text = first_site("north", "clinics.csv") + DEMAND
    copied(corpus.table, work / "clinics.csv")
    (work / "site.toml").write_bytes(mutate.of_file("site.toml", text.encode(), rng))
    use = pick(rng, ("policy", "check", "log"))
    return judged(lambda: command("site", use, work))


def audit_log(corpus: Corpus, work: Path, rng: Random) -> Verdict:
    """A site's log or its head record: read in words, and gone on with."""
    path = work / "audit.jsonl"
    written = AuditLog.open(path, "north")
    for k in range(int(rng.integers(4))):
        written.write("in", "alliance", "Evaluate", seq=k, size=9)
    file = path if rng.random() < 0.8 else head_path(path)
    before = file.read_bytes()
    file.write_bytes(mutate.of_file(path.name if file == path else "head", before, rng))

    def read() -> str | None:
        entries, faults = read_log(path)
        _ = [in_words(entry) for entry in entries]
        if file.read_bytes() != before and not faults and not _is_older(file, path):
            return "a log that was changed is whole"
        written.note("and on")
        return None

    return judged(read)


def _is_older(file: Path, path: Path) -> bool:
    """Whether a changed file is one that a crash may leave: a head record that is empty beside a
    log of one line.
    """
    return file != path and not file.read_bytes() and path.read_bytes().count(b"\n") == 1


KINDS: dict[str, tuple[float, Case]] = {  # how often, and the case
    "configuration": (20, configuration),
    "table": (16, table),
    "run folder": (22, run_folder),
    "model": (10, model),
    "checkpoint": (10, checkpoint),
    "log": (6, log),
    "ledger": (10, ledger),
    "trace": (6, trace),
    "data set": (3, data_set),
    "work folder": (0.3, work_folder),
    "site file": (6, site_file),
    "audit log": (6, audit_log),
}


def case(corpus: Corpus, work: Path, seed: int, number: int, kind: str = "") -> tuple[str, Verdict]:
    """The kind of the numbered case, and how it ended."""
    rng = np.random.default_rng([seed, number])
    weights = np.array([weight for weight, _ in KINDS.values()], float)
    kind = kind or str(rng.choice(list(KINDS), p=weights / weights.sum()))
    work.mkdir()
    return kind, KINDS[kind][1](corpus, work, rng)
