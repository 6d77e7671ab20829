"""What an audit with many canaries shows of a stated epsilon of 1, by mechanism and canaries.

    audit.py            20 seeds each, with the noise as planned and with half of it
    audit.py --seeds N  fewer or more

Five clients of 20 rows and 1,000 features, delta = 1e-6; what a run has no feature for goes to
further runs. Targets, for one Gaussian answer and 5,000 canaries in one run: a median of at least
0.5 for whoever takes the Gaussian trade-off for granted, and halved noise is noticed in 9 of 10
runs.
"""

from __future__ import annotations

import argparse
import time

import measure
import numpy as np

import bonafed as bf

CLIENTS, ROWS, FEATURES = 5, 20, 1000
STATED = bf.Budget(epsilon=1.0, delta=1e-6, sizes=ROWS)
REPLACE = bf.Budget(epsilon=1.0, delta=1e-6, sizes=ROWS, adjacency="replace")
ONE = "Gaussian, 1 round"
CASES = {
    ONE: (bf.PrivateADMM(max_rounds=1), STATED),
    "Gaussian, 5 rounds": (bf.PrivateADMM(max_rounds=5), STATED),
    "the same, replace": (bf.PrivateADMM(max_rounds=5), REPLACE),
    "ObjP, 5 rounds": (bf.PrivateADMM(max_rounds=5, update="prox"), STATED),
    "OutP, 5 rounds": (bf.OutputPerturbedADMM(max_rounds=5), STATED),
    "Laplace, 1 round": (bf.PrivateADMM(max_rounds=1, mechanism="laplace", clip=1.0), STATED),
    "Laplace, 5 rounds": (bf.PrivateADMM(max_rounds=5, mechanism="laplace", clip=1.0), STATED),
}
COLUMNS = ["answers", "canaries", "runs", "guesses", "epsilon at least", "if Gaussian"]
COLUMNS += ["false refutations", "halved noise noticed", "CPU s an audit"]


def federation() -> bf.Federation:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((CLIENTS, ROWS, FEATURES)) / np.sqrt(FEATURES)
    y = rng.integers(0, 2, (CLIENTS, ROWS))
    names = tuple(f"client {i}" for i in range(CLIENTS))
    return bf.Federation(names, tuple(X), tuple(y), classes=np.arange(2))


def main(seeds: int) -> None:
    fed, targets, rows = federation(), measure.Targets(), []
    for name, (algorithm, budget) in CASES.items():
        problem = bf.Problem(bf.Logistic(), privacy=budget)
        for canaries in (1000, 2000, 5000, 10_000) if name == ONE else (5000,):
            began = time.process_time()
            fair, weak = (
                [
                    bf.audit(
                        *(problem, fed),
                        algorithm=algorithm,
                        canaries=canaries,
                        weaken=weaken,
                        seed=seed,
                    )
                    for seed in range(seeds)
                ]
                for weaken in (1.0, 2.0)
            )
            spent = (time.process_time() - began) / (2 * seeds)
            least = float(np.median([each.epsilon for each in fair]))
            all_gaussian = [each.gaussian for each in fair if each.gaussian is not None]
            gaussian = float(np.median(all_gaussian)) if all_gaussian else None
            wrong, noticed = (float(np.mean([x.suspect for x in found])) for found in (fair, weak))
            counts = name, canaries, fair[0].runs, fair[0].guesses
            rows.append([*counts, least, gaussian, wrong, noticed, spent])
            if name == ONE and canaries == 5000:
                targets.need((gaussian or 0.0) >= 0.5, f"{name}: {gaussian} of a stated 1")
                targets.need(noticed >= 0.9, f"{name}: halved noise in {noticed:.0%} of the runs")
    measure.show("audit", COLUMNS, rows)
    targets.finish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    main(parser.parse_args().seeds)
