"""Every command, as a process of its own, in every encoding, with every kind of stream and on every
kind of terminal, over clients and classes with hostile names:

    python benchmarks/outputs.py [--commands run verify]

A command ends well or says in one line why not; no line has a sign that a terminal does not print;
a command whose document is lost says so by its status (2, or 141 where the reader has gone), and
all others end as if somebody had read.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
from collections import Counter
from pathlib import Path

HOSTILE = (
    "Nörd\nbonafed: verified",
    "\x1b[31mred\u202e\x9b2J\u2066",
    "|<b>`\r\u2028" + "S" * 10_000,
)
CONFIG = """
title = "clinics"
[data]
path = "clinics.csv"
client = "clinic"
target = "sick"
[algorithm]
tol = 1e-4
[report]
compare_with = ["erm"]
"""
COMMANDS = {
    "init": ("init", "clinics.csv", "--out", "new.toml", "--force"),
    "run": ("run", "clinics.toml"),
    "verify": ("verify", "RUN"),
    "predict": ("predict", "RUN", "clinics.csv"),
    "predict --out": ("predict", "RUN", "clinics.csv", "--out", "p.csv", "--force"),
    "report": ("report", "RUN"),
    "report md": ("report", "RUN", "--format", "md"),
    "report json": ("report", "RUN", "--format", "json"),
    "compare": ("compare", "RUN", "RUN"),
    "data": ("data", "hospitals"),
    "help": ("--help",),
}
DOCUMENTS = ("predict", "report md", "report json", "compare", "data")
ENCODINGS = ("ascii", "latin-1", "cp1252", "utf-8")
STREAMS = {
    "stdout closed": ">&-",
    "stderr closed": "2>&-",
    "all closed": "<&- >&- 2>&-",
    "disk full": ">/dev/full",
    "reader gone": "> >(:)",
}
TERMINALS = {  # columns, and what is in the environment
    "plain": (80, {"TERM": "xterm"}),
    "dumb": (80, {"TERM": "dumb"}),
    "unknown": (80, {"TERM": ""}),
    "20 columns": (20, {"TERM": "xterm"}),
    "10 columns": (10, {"TERM": "xterm"}),
    "1 column": (1, {"TERM": "xterm"}),
    "COLUMNS=1": (80, {"TERM": "xterm", "COLUMNS": "1"}),
}


def call(words: list[str], folder: Path, shell: str = "", **more: str) -> tuple[int, str, str]:
    """The status of a command, and what it wrote."""
    command = [sys.executable, "-m", "bonafed.cli", *words]
    if shell:  # where the reader is gone, let it go first
        command = ["bash", "-c", f'exec "$@" {shell}', "bonafed", *command]
    code = more.get("PYTHONIOENCODING", "utf-8")
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **more}, capture_output=True, check=False
    )
    return done.returncode, done.stdout.decode(code), done.stderr.decode(code)


def on_terminal(
    words: list[str], folder: Path, columns: int, more: dict[str, str]
) -> tuple[int, str, str]:
    """The same on a terminal of so many columns."""
    child, file = pty.fork()
    if not child:
        os.chdir(folder)
        command = [sys.executable, "-m", "bonafed.cli", *words]
        os.execvpe(sys.executable, command, {**os.environ, **more})
    fcntl.ioctl(file, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    said = b""
    try:
        while more_said := os.read(file, 65536):
            said += more_said
    except OSError:  # the other end is closed
        pass
    _, ended = os.waitpid(child, 0)
    os.close(file)
    return os.waitstatus_to_exitcode(ended), said.decode().replace("\r", ""), ""


def fault(name: str, way: str, status: int, said: str, told: str) -> str:
    """What is wrong with an end, if anything."""
    allowed = {0}
    if name in DOCUMENTS and way in ("stdout closed", "all closed", "disk full"):
        allowed = {2}
    if name in DOCUMENTS and way == "reader gone":
        allowed = {0, 141}  # 0 where it was quicker
    if status not in allowed:
        return f"status {status}"
    if "Traceback" in said + told:
        return "a traceback"
    if way not in TERMINALS and name != "predict":  # which is exact, and no terminal's here
        odd = {c for c in said + told if not c.isprintable() and c != "\n"}
        if odd:
            return f"signs {odd}"
    if "\x1b[31m" in said or "\u202e" in said or "\x9b" in said:
        return "a terminal code of a name"
    if any(line.strip() == "bonafed: verified" for line in (said + told).split("\n")):
        return "a forged line"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    chosen = parser.parse_args().commands
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    import small_run

    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        data = small_run.table(clinics=HOSTILE).replace(",yes\n", ",=cmd()\n")
        small_run.write_config(folder, CONFIG, data)
        assert call(["run", "clinics.toml"], folder)[0] == 0
        run = next(iter((folder / "runs").iterdir()))
        for name in chosen:
            words = [str(run) if word == "RUN" else word for word in COMMANDS[name]]
            ends = {
                code: call(words, folder, PYTHONIOENCODING=code, PYTHONUTF8="0", LC_ALL="C")
                for code in ENCODINGS
            }
            ends |= {way: call(words, folder, shell) for way, shell in STREAMS.items()}
            ends |= {
                way: on_terminal(words, folder, columns, more)
                for way, (columns, more) in TERMINALS.items()
            }
            for way, end in ends.items():
                counts["processes"] += 1
                if wrong := fault(name, way, *end):
                    counts["faults"] += 1
                    print(f"{name}, {way}: {wrong}\n{end[1][-300:]}{end[2][-300:]}")
            print(f"{name}: {len(ends)} ways")
        finished = [path.name for path in (folder / "runs").iterdir()]
    print(f"{counts['processes']} processes, {counts['faults']} faults; {len(finished)} runs")
    assert not any(".partial" in name for name in finished)
    sys.exit(bool(counts["faults"]))


if __name__ == "__main__":
    main()
