"""Faults planted again, one by one, and the test that finds each.

    python benchmarks/planted_faults.py                 # a row of a table for each
    python benchmarks/planted_faults.py --only 3 17     # some, by number
    python benchmarks/planted_faults.py --resume        # go on where an interrupted run ended

A fault is a piece of the source and what stands in its place, of the kinds that tests and reviews
have found since the project began; ``kind`` says which. Each is planted in a copy of the source, on
which the named files of tests run: the small tier, and where this finds nothing, all of ``--full``.
The row names the first test that fails, and its tier. A fault that no test finds ends the command
with status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
KEPT = Path(__file__).with_suffix(".json")  # what found each, kept from run to run
PACKAGE = "bonafed"
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Fault:
    """What is planted, and the tests that are to find it."""

    kind: str
    file: str  # below src/bonafed
    right: str  # stands once in the file
    wrong: str
    tests: str  # files below tests/, with spaces between them


FAULTS = (
    # -- a bound above the optimum, or a proof of nothing
    Fault(
        "negative multipliers are taken for a proof",
        "problem/lower_bounds.py",
        "multipliers = np.maximum(duals.multipliers, 0.0)",
        "multipliers = duals.multipliers",
        "certificates/test_duality.py algorithms/test_bundle.py",
    ),
    Fault(
        "multipliers of a client do not add up to its weight",
        "problem/lower_bounds.py",
        "multipliers, missing = multipliers * scale, (total <= 0) & (wanted > 0)",
        "multipliers, missing = multipliers * 1.0, (total <= 0) & (wanted > 0)",
        "certificates/test_duality.py algorithms/test_bundle.py",
    ),
    Fault(
        "the relative gap is relative to the bound only",
        "certificates/certificate.py",
        "max(abs(value), abs(bound), 1e-12)",
        "max(abs(bound), 1e-12)",
        "certificates/test_duality.py test_verdict.py test_forgeries.py",
    ),
    Fault(
        "h* of bounds takes the wrong bound",
        "problem/regularisers.py",
        "bound = np.where(v > 0, self.upper, self.lower)",
        "bound = np.where(v < 0, self.upper, self.lower)",
        "laws/test_regulariser_laws.py",
    ),
    Fault(
        "h* of the elastic net forgets the half",
        "problem/regularisers.py",
        "** 2).sum()) / (2 * self.l2)",
        "** 2).sum()) / self.l2",
        "laws/test_regulariser_laws.py",
    ),
    Fault(
        "the region of optimal ridge models is too small",
        "problem/regularisers.py",
        "return math.sqrt(2 * max(level, 0.0) / self.strength) if self.strength > 0 else math.inf",
        "return math.sqrt(max(level, 0.0) / self.strength) if self.strength > 0 else math.inf",
        "laws/test_regulariser_laws.py certificates/test_duality.py",
    ),
    Fault(
        "a limit that the model 0 breaks is called out of reach",
        "certificates/certify.py",
        "far = max(float(scale @ size), spread) * (REACH if self.objective else duality.FAR)",
        "far = float(scale @ size) * (REACH if self.objective else FAR)",
        "certificates/test_constrained.py test_constrained_faults.py",
    ),
    Fault(
        "a bound under constraints may lie above the value",
        "certificates/certify.py",
        "bound = min(constant - loose * length - of_constant * spread, self._value(first))",
        "bound = constant + loose * length",
        "certificates/test_constrained.py",
    ),
    Fault(
        "cuts of the intercept's region leave out the targets",
        "problem/lower_bounds.py",
        "offset = reach + target + (value + b) / (a * least)",
        "offset = (value + b) / (a * least)",
        "certificates/test_duality.py problem/test_counts.py algorithms/test_bundle.py",
    ),
    Fault(
        "models are turned to centred rows with the rounding of one product",
        "problem/centring.py",
        "    return high, v - high\n",
        "    return v, 0 * v\n",
        "problem/test_centring.py",
    ),
    Fault(
        "a constraint that reads the intercept is taken for one that does not",
        "problem/centring.py",
        "return part.C is None or not part.C[:, -1].any()",
        "return True",
        "problem/test_centring.py",
    ),
    # -- losses, risks, sets
    Fault(
        "the slope of the logistic loss overflows nowhere and is wrong for right margins",
        "problem/losses.py",
        "return -y * np.where(m > 0.0, tail, 1.0) / (1.0 + tail)",
        "return -y / (1.0 + tail)",
        "laws/test_loss_laws.py",
    ),
    Fault(
        "the logistic loss overflows",
        "problem/losses.py",
        "return np.maximum(-m, 0.0) + np.log1p(np.exp(-np.abs(m)))",
        "return np.log1p(np.exp(-m))",
        "laws/test_loss_laws.py",
    ),
    Fault(
        "the least of the Poisson loss is not 0 at its target",
        "problem/losses.py",
        "below = np.exp(prediction) - y * prediction - y + xlogy(y, y)",
        "below = np.exp(prediction) - y * prediction - y",
        "laws/test_loss_laws.py problem/test_counts.py",
    ),
    Fault(
        "the largest weights of a superquantile are those of the least losses",
        "problem/risks/weight_sets.py",
        "return np.clip(mass - np.arange(n, dtype=float)[::-1], 0.0, 1.0) / mass",
        "return np.clip(mass - np.arange(n, dtype=float), 0.0, 1.0) / mass",
        "laws/test_risk_laws.py problem/test_rank_risks.py",
    ),
    Fault(
        "weights by rank that do not sum to one are taken",
        "problem/risks/ranks.py",
        "if abs(sigma.sum() - 1) > 1e-9:",
        "if abs(sigma.sum() - 1) > 1e9:",
        "problem/test_rank_risks.py laws/test_risk_laws.py",
    ),
    Fault(
        "equal losses do not share the largest weights",
        "solvers/sets/projections.py",
        "d = np.where(at_top, moved.sum() / at_top.sum(), -moved)",
        "d = np.where(at_top, moved.sum(), -moved)",
        "solvers/test_projections.py laws/test_risk_laws.py",
    ),
    Fault(
        "a projection on the sphere in place of the ball",
        "solvers/sets/projections.py",
        "if lp_norm(_finite(v), p) <= 1:",
        "if lp_norm(_finite(v), p) < 0:",
        "solvers/test_projections.py",
    ),
    Fault(
        "flips of labels cost nothing",
        "problem/wasserstein/ball.py",
        "gain = np.maximum(flipped - here - label_cost * level[:, None], 0.0)",
        "gain = np.maximum(flipped - here, 0.0)",
        "problem/test_wasserstein.py",
    ),
    Fault(
        "cuts of another radius keep no price at radius 0",
        "problem/wasserstein/ball.py",
        "floor = np.where(radius > 0, loss.lipschitz * np.maximum(size, least), 0.0)",
        "floor = loss.lipschitz * np.maximum(size, least) * (radius >= 0)",
        "problem/test_wasserstein.py test_sweep.py algorithms/test_bundle.py",
    ),
    Fault(
        "moves of the targets are left out of a worst case",
        "problem/wasserstein/ball.py",
        'least = 0.0 if loss.targets == "sign" else 1 / label_cost',
        "least = 0.0",
        "problem/test_wasserstein.py",
    ),
    Fault(
        "pooled ranks take the value of the last block",
        "solvers/rank/proxes.py",
        "v = prox_at(kind, knot, width, c / (end - at), t / (end - at))",
        "v = prox_at(kind, knot, width, c, t / (end - at))",
        "solvers/test_pava.py",
    ),
    Fault(
        "-0.0 sorts before 0.0",
        "solvers/rank/proxes.py",
        "b = bits[i] if bits[i] != sign else np.uint64(0)  # -0.0 and 0.0 are equal",
        "b = bits[i]",
        "solvers/test_pava.py",
    ),
    # -- privacy
    Fault(
        "replacing a record counts as adding one",
        "privacy/accounting.py",
        "times = ADJACENCY[stated] / ADJACENCY[adjacency]",
        "times = 1.0",
        "privacy/test_accounting.py privacy/test_ledger.py privacy/test_odometer.py",
    ),
    Fault(
        "pure releases count by their square root",
        "privacy/accounting.py",
        "return _gaussian_epsilon(mu, delta) + sum(count * one for one, count in pure)",
        "return _gaussian_epsilon(mu, delta) + sum(count**0.5 * one for one, count in pure)",
        "privacy/test_accounting.py",
    ),
    Fault(
        "nearly certain losses are forgotten",
        "privacy/accounting.py",
        "return epsilon + certain if math.isfinite(epsilon)",
        "return epsilon if math.isfinite(epsilon)",
        "privacy/test_accounting.py",
    ),
    Fault(
        "sampling saves also where a record takes another's place",
        "privacy/accounting.py",
        "return replace(self, noise=times * self.noise, sampling=1.0)",
        "return replace(self, noise=times * self.noise)",
        "privacy/test_sampling.py privacy/test_accounting.py privacy/test_ledger.py",
    ),
    Fault(
        "0 has twice its probability in discrete noise",
        "privacy/discrete_noise.py",
        "if y == 0 and sign and shift:",
        "if False and y == 0 and sign and shift:",
        "privacy/test_discrete_noise.py",
    ),
    Fault(
        "a ledger that was changed by hand is believed",
        "privacy/ledger.py",
        'if chain and chain[-1] != _link(chain[-2] if len(chain) > 1 else "", runs):',
        "if False:",
        "privacy/test_charge_begin.py",
    ),
    Fault(
        "an older copy of a ledger is believed",
        "privacy/ledger.py",
        "if len(runs) < least or (last and last not in chain):",
        "if len(runs) < least:",
        "privacy/test_charge_begin.py",
    ),
    Fault(
        "a run that ends is charged for less than it released before",
        "privacy/ledger.py",
        "c: _most(least.get(c, ()), given)",
        "c: tuple(given)",
        "privacy/test_charge_resume.py privacy/test_charge_sequences.py privacy/test_ledger.py",
    ),
    Fault(
        "rows are not known again when a number is -0.0",
        "privacy/odometer.py",
        "words = (np.ascontiguousarray(values, np.float64) + 0.0).view(np.uint64)  # -0 is 0",
        "words = np.ascontiguousarray(values, np.float64).view(np.uint64)",
        "privacy/test_odometer.py",
    ),
    Fault(
        "all clients' noise counts, also that which a viewer knows",
        "privacy/budget.py",
        "return max(clients - self.missing, 1)",
        "return max(clients, 1)",
        "privacy/test_views.py privacy/test_budget.py",
    ),
    Fault(
        "what was charged for sums holds for whoever sees answers",
        "privacy/budget.py",
        'return view == "answers" or (self.view == "sum" and self.missing <= missing)',
        'return view == "answers" or self.missing <= missing',
        "privacy/test_views.py privacy/test_odometer.py",
    ),
    # -- secure sums
    Fault(
        "a round of a secure sum can be asked twice",
        "privacy/secure_sum/protocol.py",
        "if not before < number < 2**63:",
        "if not before <= number < 2**63:",
        "privacy/test_secure_sum.py",
    ),
    Fault(
        "a roster with another key for the client is taken",
        "privacy/secure_sum/protocol.py",
        "or keys[clients.index(state.client)].tobytes() != private.public_key().public_bytes_raw()",
        "or False",
        "privacy/test_secure_sum.py",
    ),
    Fault(
        "the order of p is an element of the field",
        "privacy/secure_sum/masking.py",
        "return x - _P if x >= _P else x",
        "return x - _P if x > _P else x",
        "privacy/test_secure_sum.py",
    ),
    Fault(
        "numbers beyond the bound of a secure sum are taken",
        "privacy/secure_sum/messages.py",
        "if not (inside := np.abs(given) <= self.bound).all():  # not of NaN",
        "if (inside := np.abs(given) <= self.bound).all() and False:",
        "privacy/test_secure_sum.py",
    ),
    # -- files, messages, names
    Fault(
        "damaged messages are read",
        "codec.py",
        "if hashlib.blake2b(data[:-_DIGEST], digest_size=_DIGEST).digest() != data[-_DIGEST:]:",
        "if False:",
        "test_rounds.py engines/test_checkpoint.py",
    ),
    Fault(
        "an array of a message may have a negative length",
        "codec.py",
        "if min(shape, default=0) < 0 or self.at > len(self.data) - _DIGEST:",
        "if self.at > len(self.data) - _DIGEST:",
        "test_rounds.py fuzz/test_fuzz.py",
    ),
    Fault(
        "after a crash the older of two records is read",
        "storage.py",
        "if number > last and record",
        "if (last < 0 or number < last) and record",
        "test_storage.py",
    ),
    Fault(
        "a record that was cut short is read",
        "storage.py",
        "and record[_RECORD.size : _BEFORE] == _digest(first, data):",
        "and number > 0:",
        "test_storage.py",
    ),
    Fault(
        "names of clients write to the terminal",
        "text.py",
        "if text.isprintable():\n        return text",
        "if True:\n        return text",
        "test_output.py solution/test_object.py",
    ),
    Fault(
        "a client's name is HTML in a notebook",
        "text.py",
        "return escape(short(printable(text), LINE))",
        "return short(printable(text), LINE)",
        "solution/test_object.py test_output.py",
    ),
    Fault(
        "1 and '1' are two clients",
        "client_names.py",
        "if at in by_place:",
        "if False:",
        "test_client_names.py",
    ),
    Fault(
        "a list of fewer entries than clients is taken",
        "data/validation.py",
        "if len(part) != len(clients):",
        "if len(part) > len(clients):",
        "data/test_federation.py test_data_checks.py",
    ),
    Fault(
        "the caller's sparse matrix is changed",
        "data/validation.py",
        "rows = rows.copy()  # the caller's matrix is not changed",
        "pass",
        "data/test_federation.py test_data_checks.py",
    ),
    # -- figures
    Fault(
        "equal scores count for nothing in the area under the curve",
        "measures.py",
        "below = np.cumsum(negatives) - negatives / 2",
        "below = np.cumsum(negatives) - negatives",
        "test_measures.py test_figures.py",
    ),
    Fault(
        "an interval of a rate is one-sided",
        "measures.py",
        "tail = (1 - level) / 2",
        "tail = 1 - level",
        "test_measures.py",
    ),
    Fault(
        "false and missed alarms change places",
        "measures.py",
        "zip(CELLS, confusion[::-1, ::-1].T.ravel().tolist(), strict=True)",
        "zip(CELLS, confusion[::-1, ::-1].ravel().tolist(), strict=True)",
        "test_measures.py sites/test_judging.py",
    ),
    Fault(
        "bounds of a table hold line by line only",
        "worst_client.py",
        "1 - level ** (1 / len(clients))",
        "1 - level",
        "test_worst_client.py",
    ),
    Fault(
        "chance is asked as of one client that was chosen in advance",
        "worst_client.py",
        "len(k) * np.exp(logs).sum()",
        "np.exp(logs).sum()",
        "test_worst_client.py",
    ),
    Fault(
        "every row of a person counts",
        "worst_client.py",
        "return order[np.sort(first)]",
        "return order",
        "test_worst_client.py people/test_worst_client_answered.py",
    ),
    Fault(
        "a bet knows the row that it is about",
        "worst_client.py",
        "variance = np.append(0.25, (0.25 + np.cumsum((x - mean) ** 2)) / (t + 1))[:n]",
        "variance = (0.25 + np.cumsum((x - mean) ** 2)) / (t + 1)",
        "test_worst_client.py",
    ),
    Fault(
        "rows that judge a sweep promise something",
        "config/sections.py",
        "return self.sweep is not None and not self.sweep.held",
        "return False",
        "people/test_worst_client_answered.py",
    ),
    Fault(
        "0 / 0 is an impact of infinity",
        "fairness.py",
        "return u / p if p > 0 else math.inf if u > 0 else NAN",
        "return u / p if p > 0 else math.inf",
        "test_fairness.py",
    ),
    Fault(
        "odds leave out the rate of false positives",
        "fairness.py",
        '"AOD": (u.fpr - p.fpr + u.tpr - p.tpr) / 2,',
        '"AOD": (u.tpr - p.tpr) / 2,',
        "test_fairness.py",
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Plants faults and runs the tests that find them.")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of faults")
    parser.add_argument("--resume", action="store_true", help="keep what was found before")
    given = parser.parse_args()
    known = json.loads(KEPT.read_text()) if given.resume or given.only else {}
    for number in given.only or ():
        known.pop(FAULTS[number - 1].kind, None)
    print("| | fault | file | found by | tier |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        # one copy, so that what numba has compiled is compiled once
        copy = shutil.copytree(HOME / "src", Path(folder) / "src")
        for number in given.only or range(1, len(FAULTS) + 1):
            fault = FAULTS[number - 1]
            if fault.kind not in known:
                known[fault.kind] = found(fault, copy)
                KEPT.write_text(json.dumps(known, indent=1) + "\n")
            test, tier = known[fault.kind]
            print(f"| {number} | {fault.kind} | `{fault.file}` | `{test}` | {tier} |", flush=True)
    if any(tier == "none" for _, tier in known.values()):
        sys.exit("a fault was not found")


def found(fault: Fault, copy: Path) -> tuple[str, str]:
    """The first test that fails with the fault in a copy of the source, and its tier."""
    planted = copy / PACKAGE / fault.file
    whole, times = planted.read_text(), planted.stat()
    planted.write_text(with_fault(fault, whole))
    try:
        for tier, more in (("small", []), ("full", ["--full", "--seed", "0"])):
            if test := first_failure(copy, fault.tests.split(), more):
                return test, tier
        return "", "none"
    finally:
        planted.write_text(whole)
        os.utime(planted, ns=(times.st_atime_ns, times.st_mtime_ns))


def with_fault(fault: Fault, text: str) -> str:
    """The text of the file with the fault in it."""
    if text.count(fault.right) != 1:
        raise ValueError(f"{fault.file} has {text.count(fault.right)} times: {fault.right}")
    return text.replace(fault.right, fault.wrong)


def first_failure(source: Path, files: list[str], more: list[str]) -> str:
    """The first test that fails; "" where all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider"]
    tests = [str(HOME / "tests" / file) for file in files]
    path = os.pathsep.join([str(source), str(HOME / "tests")])
    run = subprocess.run(
        [*command, "--assert=plain", *more, *tests],
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        cwd=HOME,
        capture_output=True,
        text=True,
    )
    if not run.returncode:
        return ""
    failed = FAILED.search(run.stdout)
    return failed[1] if failed else f"(status {run.returncode})"


if __name__ == "__main__":
    main()
