"""Superquantiles, extremiles and ESRM of the rows of ten clients, without pooling: rounds to a
proven gap of 1e-9, and the value beside the optimum of pooled rows.

Tables as in `bundle_tables.py`, standardised; logistic loss, l2 regularisation 1e-3. Tables of the
data directory are added where it is set. One thread.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace

import measure
from bundle_tables import shared_out, tables

import bonafed as bf

RISKS = {f"superquantile {tail}": bf.Superquantile(tail) for tail in (0.01, 0.05, 0.1, 0.5)}
RISKS |= {"extremile 2": bf.Extremile(2.0), "ESRM 2": bf.ExponentialSpectral(2.0)}


def main() -> None:
    warnings.simplefilter("ignore", bf.TrivialModelWarning)  # heart, where the tail is small
    targets, rounds, gaps, away = measure.Targets(), [], [], []
    lines = []
    for name, X, y in tables():
        fed = shared_out(X, y, 10)
        for what, risk in RISKS.items():
            problem = bf.Problem(bf.Logistic(), over_rows=risk, regulariser=bf.L2(1e-3))
            began = time.process_time()
            solution = bf.solve(problem, fed)
            seconds = time.process_time() - began
            inside = replace(problem, over_rows=None, over_samples=risk)
            pooled = bf.solve(inside, fed.pooled(), tol=1e-9).certificate.value
            proof = solution.certificate
            rounds.append(solution.rounds)
            gaps.append(proof.relative_gap)
            away.append(abs(proof.value / pooled - 1))
            beside = f"{proof.value / pooled - 1:+.0e}"
            lines.append((name, sum(fed.sizes), what, rounds[-1], gaps[-1], beside, seconds))
            print(*lines[-1], sep=" | ", flush=True)
    columns = ("table", "rows", "risk", "rounds", "proven gap", "beside pooled", "CPU s")
    measure.show("rounds", columns, lines)
    targets.need(max(rounds) <= 40, f"at most 40 rounds, were {max(rounds)}")
    targets.need(max(gaps) <= 1e-9, f"a gap of 1e-9 is proved, was {max(gaps):.0e}")
    targets.need(max(away) <= 1e-8, f"within 1e-8 of the pooled optimum, was {max(away):.0e}")
    targets.finish()


if __name__ == "__main__":
    main()
