"""What attacks on a private client's answers show of the true epsilon, beside the stated one.

    attacks.py                  2 x 2,000 runs of every attack of ``tests/attacks.py``
    attacks.py --source PATH    the same against the package in PATH, the ``src`` of another
                                checkout; versions that added noise in doubles are expected to fail
    attacks.py --runs N         shorter or longer
    attacks.py --only TEXT      the attacks with this in their names

Target: no lower bound at 95 % is above the stated epsilon.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import measure

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))


def main(runs: int, only: str) -> None:
    import attacks  # the package that it attacks is known only now

    import bonafed

    targets, rows = measure.Targets(), []
    chosen = {name: made for name, made in attacks.ATTACKS.items() if only in name}
    for name, made in chosen.items():
        began = time.process_time()
        try:
            found = attacks.carried_out(made(), runs)
        except attacks.NoGridError:
            rows.append([name, attacks.BUDGET.epsilon, None, None, None, None])
            continue
        shares = (found.without / found.runs, found.with_ / found.runs)
        spent = time.process_time() - began
        rows.append([name, attacks.BUDGET.epsilon, found.epsilon, *shares, spent])
    print(f"Package: bonafed {bonafed.__version__}. {runs} runs with either data set.\n")
    columns = ["attack", "stated", "epsilon at least", "event without", "with", "CPU s"]
    measure.show("attacks", columns, rows)
    for name, stated, least, *_ in rows:
        if least is None:
            targets.need(False, f"{name}: answers have no grid")
        else:
            targets.need(least <= stated, f"{name}: {least:.3g}, {stated:g} stated")
    targets.finish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--only", default="")
    parser.add_argument("--source", type=Path, help="a folder with another version of the package")
    given = parser.parse_args()
    if given.source:
        if not (given.source / "bonafed").is_dir():
            parser.error(f"{given.source} has no folder bonafed: give the src of a checkout.")
        sys.path.insert(0, str(given.source))
    main(given.runs, given.only)
