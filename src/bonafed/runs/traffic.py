"""The history and the messages of a run against what its certificate, its clients and its events
imply.

Rounds cannot be run again without training. But they leave marks: a lower bound lies below the
objective of every model, an exact objective above the certified bound, the last row is that of the
model, bytes add up over rounds, message types and clients, everybody who is asked answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from bonafed.algorithms.federated.bundle.bundle import Bundle
from bonafed.algorithms.method import Method, settings_of
from bonafed.certificates.certificate import Certificate
from bonafed.engines.event_log import Log
from bonafed.engines.secure_summed import PROTOCOL, Sealed, Work
from bonafed.rounds import Stop
from bonafed.runs.checks import Check, not_checked
from bonafed.runs.files import Row
from bonafed.runs.observers import LARGEST, OBJECTIVE, VIOLATION
from bonafed.runs.run import Run
from bonafed.solution.public_part import MESSAGES

CUTS = 1e-6  # relative: cuts hold to the tolerance of the server's solver
AT_MOST = "value"  # column of methods that rank all rows: the objective, or a little more
OF_SUMS = {kind.__name__: "down" for kind in (Work, *PROTOCOL)} | {Sealed.__name__: "up"}
WAYS, SIZES = ("up", "down"), ("count", "bytes")
# columns of the history of which every number is checked here, or against the events of a
# simulated clock
CHECKED = {"round", "bytes_up", "bytes_down", "time", "answered"}
CONCLUSION = {"Conclude": "down", "Concluded": "up"}  # after the last round
SOMETIMES = {OBJECTIVE, LARGEST, VIOLATION}  # columns that not every row needs to have


@dataclass(frozen=True)
class Marks:
    """What a run is held against.

    Attributes
    ----------
    method : as it was configured, None of a private run
    certificate : computed again
    messages : of the rounds that computed it, as ``Run.messages`` has them
    clients : their names
    """

    method: Method | None
    certificate: Certificate
    messages: Sequence[Row]
    clients: tuple[str, ...]

    @property
    def exact(self) -> tuple[str, ...]:
        return () if self.method is None else self.method.exact


def check_history(run: Run, marks: Marks) -> Iterator[Check]:
    """The rows of the history, one by one and together."""
    yield _check_rounds(run)
    odd = [*_odd_rows(run.history, marks), *_odd_end(run, marks), *_odd_cuts(run, marks)]
    text = f"differs: {'; '.join(odd[:3])}" if odd else "fits the certificate"
    yield Check("history", not odd, text)
    text = "that there were as many, with messages that add up to them"
    sums = [f"history.jsonl: {key}" for key in ("round", "bytes_up", "bytes_down")]
    yield not_checked("rounds", text, "result.json: rounds", "result.json: messages", *sums)
    columns = dict.fromkeys(key for row in run.history for key in row)
    if rest := [key for key in columns if key not in CHECKED]:
        text = "numbers on the way to the model, beyond what its certificate and its end imply"
        places = (f"history.jsonl: {key}" for key in rest)
        yield not_checked("history", f"{', '.join(rest)}: {text}", *places)


def _check_rounds(run: Run) -> Check:
    """One row of the history for every so many rounds, and perhaps one for the last."""
    rounds, keep = run.result["rounds"], run.config.engine.get("keep_rows") or 1
    rows, expected = [row["round"] for row in run.history], list(range(keep, rounds + 1, keep))
    whole = rows in (expected, [*expected, rounds])
    return Check("rounds", whole, f"{rounds} rounds, {len(rows)} in history.jsonl")


def _odd_rows(rows: Sequence[Row], marks: Marks) -> Iterator[str]:
    """What no row of the history can have."""
    proof, exact = marks.certificate, {OBJECTIVE}
    if proof.constraint_values is None:
        exact.add(AT_MOST)
    if proof.constraint_values is None and "objective" in marks.exact:
        exact.add("objective")
    slack = CUTS * max(abs(proof.value), 1e-12)
    columns = rows[-1].keys() - SOMETIMES if rows else set()
    for row in rows:
        where = f"round {row['round']}"
        if odd := (row.keys() - SOMETIMES) ^ columns:
            yield f"{where}: {', '.join(map(repr, sorted(odd)))} is not in all rows"
        if (bound := _number(row, "bound")) is not None and bound > proof.value + slack:
            yield f"{where}: a bound of {bound:.6g} is above the model's objective"
        for name in exact & row.keys():
            value = _number(row, name)
            if value is not None and proof.bound is not None and value < proof.bound - slack:
                yield f"{where}: an objective of {value:.6g} is below the proven bound"
        if _has_another_gap(row):
            yield f"{where}: the gap is not objective - bound"
        if violations := row.get(VIOLATION):
            yield from _odd_violations(where, row, violations)


def _has_another_gap(row: Row) -> bool:
    """Whether the gap of a row is not its objective minus its bound."""
    objective, bound, gap = _reached(row), _number(row, "bound"), _number(row, "gap")
    if objective is None or bound is None:
        return False
    scale = max(abs(objective), abs(bound))
    return gap is None or abs(gap - (objective - bound)) > 1e-9 * scale


def _odd_violations(where: str, row: Row, violations: Sequence[float | None]) -> Iterator[str]:
    """What the violations of the clients contradict in their row."""
    known = [v for v in violations if v is not None]
    if any(v < 0 for v in known):
        yield f"{where}: a violation is negative"
    if len(known) < len(violations):
        return
    again = {"worst_violation": max(known), "mean_violation": sum(known) / len(known)}
    for name, value in again.items():
        stated = _number(row, name)
        if stated is not None and abs(max(stated, 0.0) - value) > 1e-9 * max(1.0, value):
            yield f"{where}: {name} is not that of {VIOLATION}"


def _odd_end(run: Run, marks: Marks) -> Iterator[str]:
    """Where the last row is not that of the model."""
    if not run.history:
        return
    last, proof = run.history[-1], marks.certificate
    worst = float(proof.client_risks.max())
    again: dict[str, float] = {OBJECTIVE: proof.value, LARGEST: worst}
    again |= {"objective": proof.value, "worst_risk": worst, "violation": proof.feasibility}
    known = {OBJECTIVE, LARGEST, *(marks.exact if _to_the_end(run) else ())}
    if run.result["outcome"]["stop"] in (Stop.INFEASIBLE.value, Stop.STALLED.value):
        known -= {"violation"}  # a model that gives up may be another than the one judged last
    most = None if proof.constraint_values is not None else _number(last, AT_MOST)
    if most is not None and _to_the_end(run) and most < (1 - CUTS) * proof.value:
        yield f"the last row has {AT_MOST} = {most}, and the model's objective is above it"
    for name in known & last.keys():
        value = _number(last, name)
        close = CUTS * max(abs(again[name]), abs(proof.value), 1e-12)
        if value is None or abs(value - again[name]) > close:
            yield f"the last row has {name} = {last[name]}, the model {again[name]:.9g}"
    if "worst_risk" in known and (name := last.get("worst_client")) in marks.clients:
        risk = float(proof.client_risks[marks.clients.index(name)])
        if risk < worst - CUTS * max(abs(worst), abs(proof.value), 1e-12):
            yield f"the worst client of the last row is {name!r}, whose risk is {risk:.6g}"
    for client in (row["worst_client"] for row in run.history if row.get("worst_client")):
        if client not in marks.clients:
            yield f"no client is called {client!r}"


def _odd_cuts(run: Run, marks: Marks) -> Iterator[str]:
    """What the rows of a Bundle cannot have: its best objective rises or its bound falls, or it
    goes on with the gap that it ends with, or ends as optimal without.
    """
    bundle = marks.method
    if not isinstance(bundle, Bundle) or not _to_the_end(run):
        return
    for name, sign in (("objective", 1.0), (AT_MOST, 1.0), ("bound", -1.0)):
        column = [
            sign * number for row in run.history if (number := _number(row, name)) is not None
        ]
        if any(a < b for a, b in pairwise(column)):
            yield f"{name} is that of the best so far, and becomes worse"
    *before, _ = (_within(row, bundle.ends) for row in run.history)
    if any(before):
        yield f"round {run.history[before.index(True)]['round']} has the gap to end with"
    stop, proof = run.result["outcome"]["stop"], marks.certificate
    met = partial(bundle.ends, margin=1.0)
    last = _within(run.history[-1], met)
    proved = _within({"objective": proof.value, "bound": proof.bound}, met)
    ends = [Stop.OPTIMAL.value] if proved else [Stop.OPTIMAL.value, Stop.UNPROVEN.value]
    if (last and stop not in ends) or (not last and stop == Stop.OPTIMAL.value):
        yield f"the last row has {'the' if last else 'no'} gap of an optimum"


def _within(row: Row, test: Callable[[float, float], bool]) -> bool:
    """Whether the objective and the bound of a row pass a test."""
    objective, bound = _reached(row), _number(row, "bound")
    if objective is None or bound is None:
        return objective == 0
    return test(objective, bound)


def _to_the_end(run: Run) -> bool:
    """Whether the last row of the history is that of the last round."""
    return bool(run.history) and run.history[-1]["round"] == run.result["rounds"]


def _reached(row: Row) -> float | None:
    """The objective of a row, or what it is at most where the method knows no more."""
    return _number(row, "objective" if "objective" in row else AT_MOST)


def _number(row: Row, name: str) -> float | None:
    """A finite number of a row, None where there is none."""
    value = row.get(name)
    truth = isinstance(value, bool)
    return float(value) if isinstance(value, int | float) and not truth else None


# --------------------------------------------------------------------------------------- messages


def check_messages(run: Run, marks: Marks) -> Iterator[Check]:
    """Counts and bytes of the messages, and the bytes of every client."""
    masked = run.config.engine.get("secure_sum") and marks.method is not None
    of_run = _odd_sums(run, marks) if masked else _odd_messages(run, marks)
    odd = [*of_run, *_odd_clients(run, marks)]
    text = f"differ: {'; '.join(odd[:3])}" if odd else "add up over rounds, messages and clients"
    yield Check("bytes", not odd, text)
    text = "the size of a single message: that all of them add up is checked"
    yield not_checked("bytes", text, *(f"result.json: clients.bytes_{way}" for way in WAYS))


def _odd_sums(run: Run, marks: Marks) -> Iterator[str]:
    """The same of a run with secure sums: a message to every client and its answer, twice for keys
    and twice for each round of the method, and so for the two rounds of the certificate.
    """
    rows = run.result["messages"]
    if unknown := [row for row in rows if OF_SUMS.get(row["message"]) != row["direction"]]:
        yield f"a secure sum sends no {unknown[0]['message']} {unknown[0]['direction']}"
    needed = len(marks.clients) * (2 * run.result["rounds"] + 2 + 2 * 2 + 2)
    for way in WAYS:
        if _total(rows, way) < sum(row[f"bytes_{way}"] for row in run.history):
            yield f"there are fewer bytes {way} than in the rounds"
        count = _total(rows, way, "count")
        if count < needed or (count > needed and not run.config.engine.clocked):
            yield f"{count} messages {way} do not fit the rounds"


def _odd_messages(run: Run, marks: Marks) -> Iterator[str]:
    """Messages that nobody sends, and counts and bytes that do not add up."""
    rows = run.result["messages"]
    ways = _ways(marks)
    if unknown := [row for row in rows if ways.get(row["message"]) != row["direction"]]:
        yield f"the method sends no {unknown[0]['message']} {unknown[0]['direction']}"
    names = [row["message"] for row in rows]
    if len({*names}) < len(names):
        yield "a message stands there twice"
    yield from _odd_proof(rows, marks)
    for row in rows:
        if row["bytes"] < row["count"]:
            yield f"{row['message']} has {row['count']} messages of {row['bytes']} bytes in all"
    concluding = _concluding(rows)
    if any(row["count"] != len(marks.clients) for row in concluding):
        yield "every client concludes once, or nobody does"
    beside = [*marks.messages, *_proving(rows, marks), *concluding]
    for way in WAYS:
        sent = sum(row[f"bytes_{way}"] for row in run.history)
        more = _total(rows, way) - sent - _total(beside, way)
        if more < 0 or (more and _to_the_end(run)):
            yield f"{sent} bytes {way} of the rounds and those of the proof are not all there are"
        count = _total(rows, way, "count") - _total(beside, way, "count")
        if not _is_possible(count, way, run, marks):
            yield f"{count} messages {way} do not fit the rounds"


def _odd_proof(rows: Sequence[Row], marks: Marks) -> Iterator[str]:
    """Messages of which there are fewer than the rounds need that computed the certificate."""
    for name in {row["message"] for row in marks.messages}:
        ours, proof = ([r for r in each if r["message"] == name] for each in (rows, marks.messages))
        fewer = (sum(r[key] for r in ours) < sum(r[key] for r in proof) for key in SIZES)
        if any(fewer):
            yield f"the proof needs more of {name}"


def _is_possible(count: int, way: str, run: Run, marks: Marks) -> bool:
    """Whether the rounds of a run can have so many messages in one direction: one up for each
    event of a clock, and at least as many down; elsewhere one for each client and round, or fewer
    where not all take part or answers are still on their way.
    """
    if run.events is not None:
        answers = len(run.events.answered)
        return count == answers if way == "up" else count >= answers
    asked = len(marks.clients) * run.result["rounds"]
    fewer = run.config.engine.clocked or _some_take_part(marks)
    return count <= asked if fewer else count == asked


def _ways(marks: Marks) -> dict[str, str]:
    """The messages that a run can have, each with its direction."""
    ways = {row["message"]: row["direction"] for row in marks.messages}
    ways |= CONCLUSION
    if marks.method is None:
        return ways | MESSAGES
    for method in (marks.method, Bundle()):
        ways |= {kind.__name__: "down" for kind in method.on_client}
        ways |= {kind.__name__: "up" for kind in method.on_server}
    return ways


def _concluding(rows: Sequence[Row]) -> list[Row]:
    """The messages after the last round, with what the clients keep of the answer."""
    return [row for row in rows if row["message"] in CONCLUSION]


def _proving(rows: Sequence[Row], marks: Marks) -> list[Row]:
    """The messages of the rounds of cuts that proved a bound for a method that proves none."""
    if marks.method is None or isinstance(marks.method, Bundle):
        return []
    cuts = [row for row in rows if row["message"] in ("Evaluate", "Evaluated")]
    if not cuts:
        return []
    seen = {row["message"]: row for row in marks.messages}
    once = [seen[name] for name in ("Survey", "Surveyed") if name in seen]
    return [*cuts, *once]


def _odd_clients(run: Run, marks: Marks) -> Iterator[str]:
    """Bytes of the clients that do not add up, or are not those of a client who always answers."""
    rows = run.result["clients"]
    for way in WAYS:
        by_client = [row[f"bytes_{way}"] for row in rows]
        total = _total(run.result["messages"], way)
        if sum(by_client) != total:
            yield f"the clients' bytes {way} are not those of the messages"
        elif run.events is None and not _some_take_part(marks) and len({*by_client}) > 1:
            yield f"all clients answer in every round, and their bytes {way} differ"
    if run.events is not None and not (run.config.engine.get("keep_rows") or 1) > 1:
        again = _sent(run.history, run.result["messages"], run.events, marks)
        if [row["bytes_up"] for row in rows] != again:
            yield "the clients' bytes up are not those of their answers"


def _sent(history: Sequence[Row], rows: Sequence[Row], log: Log, marks: Marks) -> list[int]:
    """The bytes from each client by the log of who answered when, and those beside the rounds."""
    n, start = len(marks.clients), 0
    beside = [*marks.messages, *_proving(rows, marks), *_concluding(rows)]
    sent = [_total(beside, "up") // n] * n
    for row, end in zip(history, log.ends.tolist(), strict=True):
        for i in log.answered[start:end].tolist():
            sent[i] += row["bytes_up"] // (end - start)
        start = end
    return sent


def _some_take_part(marks: Marks) -> bool:
    """Whether a round may ask some of the clients only."""
    if marks.method is None:
        return False
    return settings_of(marks.method).get("participation") not in (None, 1, 1.0)


def _total(rows: Sequence[Row], way: str, what: str = "bytes") -> int:
    return sum(row[what] for row in rows if row["direction"] == way)


# ----------------------------------------------------------------------------------------- events


def odd_events(history: Sequence[Row], log: Log) -> Iterator[str]:
    """What the history of a simulated clock has otherwise than its log of events."""
    ends, before = log.ends.tolist(), 0
    for row in history:
        if row["round"] > len(ends):
            yield f"round {row['round']}: the log has {len(ends)} rounds"
            return
        end = ends[row["round"] - 1]
        if row["answered"] != end - before:
            yield f"round {row['round']}: {row['answered']} answers, the log has {end - before}"
        if not math.isclose(row["time"], float(log.times[before:end].max(initial=0.0))):
            yield f"round {row['round']}: its time is not that of its last answer"
        before = end
