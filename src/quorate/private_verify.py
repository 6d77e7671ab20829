"""Check a private run: the part that travels from itself alone, the owner's part from the data.

That the noise was drawn, and the model made with it, nobody can see afterwards; what can be checked is that the ledger
adds up to what is stated, that it pays for what was sent, and that nothing else is in the folder.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate.privacy.book import Book
from quorate.private_run import FILES, HISTORY, OWNER, TRAVELS, curve_of, promise, public_of, shares, shown
from quorate.private_trial import judged, stays
from quorate.run_files import plain
from quorate.runs import Run
from quorate.verify import Check, check_data, check_files, check_numbers, compared

if TYPE_CHECKING:
    from quorate.parts import Parts


def check_travelling(run: Run) -> Iterator[Check]:
    """The part that travels, from itself alone."""
    yield from check_files(run, {"config.toml", "model.safetensors", "history.jsonl"}, "result.json")
    finite = bool(np.isfinite(run.w).all())
    yield Check("finite", finite, "the model is finite" if finite else "the model is not finite: it was changed")
    yield _nothing_else(run)
    try:
        yield from _ledger(run)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        yield Check("ledger", False, f"cannot be computed again: {error!r}")


def _nothing_else(run: Run) -> Check:
    """Files, keys and columns that a private run does not hand out."""
    files = (f.relative_to(run.path).as_posix() for f in run.path.rglob("*") if f.is_file())
    odd = [name for name in files if name not in FILES and not name.startswith((OWNER, "figures/"))]
    odd += [f"result.json: {key}" for key in run.result if key not in TRAVELS]
    empty = {"certificate": None, "notes": [], "baselines": {}, "data": {}}
    odd += [f"result.json: {key}" for key, nothing in empty.items() if run.result[key] != nothing]
    odd += [
        f"history.jsonl: {key}" for key in dict.fromkeys(k for row in run.history for k in row) if key not in HISTORY
    ]
    if not run.config.evaluation.public and run.result["evaluation"] != shown(run.config, {"measures": []}):
        odd.append("result.json: evaluation")
    said = f"does not belong there: {', '.join(odd[:5])}" if odd else "nothing but what the budget pays for"
    return Check("what travels", not odd, said)


def _ledger(run: Run) -> Iterator[Check]:
    stated, d = run.result, len(run.schema.feature_names)
    p, config = stated["privacy"], run.config
    again = promise(config, d, p["releases"], p["before"])
    yield compared("promise", p, again)
    rows, rounds = again["ledger"], len(run.history)
    within = again["epsilon"] <= config.privacy.epsilon * (1 + 1e-9) if config.privacy else False
    said = f"epsilon = {again['epsilon']:.6g} of {again['allowed']:g} at delta = {again['delta']:g}"
    yield Check("budget", within, said if within else f"{said}: more than is allowed")
    paid = all(row["answers"] == rounds == stated["rounds"] <= p["rounds"] for row in rows)
    paid &= all(len(own) == 1 and own[0][0] == p["mechanism"] for own in p["releases"].values())
    yield Check(
        "answers", bool(rows) and paid, f"{rounds} rounds, and {'' if paid else 'not '}as many answers are paid for"
    )
    public = public_of(config, d)
    found = [(row["client"], row["n"], row["weight"]) for row in stated["clients"]]
    weights = shares(config, public)
    same = [(name, n) for name, n, _ in found] == [*zip(public.clients, public.sizes, strict=True)]
    same = same and all(math.isclose(weight, weights[name]) for name, _, weight in found)
    same = same and {*p["releases"]} == {*public.clients}
    yield Check("clients", same, "as public" if same else "differ from what the configuration declares")
    for way in ("up", "down"):
        total = [sum(row["bytes"] for row in stated["messages"] if row["direction"] == way)]
        total += [sum(row[f"bytes_{way}"] for row in rows) for rows in (stated["clients"], run.history)]
        yield compared(f"bytes {way}", total[:1] * 2, total[1:])
    yield compared("problem", stated["problem"], config.sentence())
    withheld = [{"what": what, "why": why} for what, why in stays(config)]
    yield compared("withheld", stated["withheld"], withheld)


def check_owner(run: Run, parts: Parts) -> Iterator[Check]:
    """The owner's part, computed again from the data; ``run`` is that part."""
    everybody = {*(run.config.privacy.sizes if run.config.privacy else ())} == {*parts.train.clients}
    for check in (*check_data(run, parts), *check_numbers(run, parts)):
        if everybody or check.name != "bytes":  # of clients without rows there is no line, but there are messages
            yield Check(f"{OWNER}{check.name}", check.ok, check.said)
    problem = run.config.problem()
    again = [{**point, **judged(problem, w, parts)} for point, w in curve_of(run)]
    if again:
        yield compared(f"{OWNER}curve", run.result["curve"], plain(again))


def _book(run: Run) -> Iterator[Check]:
    """That the book is not older than the run."""
    p, digest = run.config.privacy, run.result.get("book")
    if p is None or p.book is None or not digest:
        return
    name, path = f"{OWNER}book", run.config.folder / p.book
    if not path.is_file():
        yield Check(name, True, f"{path.name} is not here, so it is not checked")
        return
    try:
        known = Book(path).knows(digest)
    except (OSError, ValueError) as error:
        yield Check(name, False, str(error))
        return
    yield Check(name, known, "knows of this run" if known else "is older than this run: restore its newest copy")


def check_private(run: Run, read: Any) -> Iterator[Check]:
    """Everything that can be checked; ``read`` reads the data, or raises where they are not here."""
    from quorate.config import ConfigError

    yield from check_travelling(run)
    public = run.config.evaluation.public
    if run.owner is None and not public:
        yield Check(OWNER.rstrip("/"), True, "stays with the owner: this copy has none")
        return
    if run.owner is not None:
        yield from _book(run.owner)
        yield from check_files(run.owner, {"history.jsonl", "README.txt"}, f"{OWNER}result.json")
    try:
        parts = read()
    except (ConfigError, ValueError, OSError) as error:
        said = f"the data cannot be read, so what was computed from them is not checked: {error}"
        yield Check("data", None, said)
        return
    try:
        if public:
            from quorate.trial import evaluate

            again = shown(run.config, evaluate(run.config.problem(), {"private": run.w}, parts.tests, parts.ranked))
            yield compared("evaluation", run.result["evaluation"], plain(again))
        if run.owner is not None:
            yield from check_owner(run.owner, parts)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        yield Check("numbers", False, f"cannot be computed again: {error}")
