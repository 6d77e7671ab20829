"""The disclosure policy of a run: what may leave the owner of the data, and what is withheld.

    config.toml  model.safetensors  history.jsonl  result.json  report.html  figures/      public
    owner/  README.txt  result.json  history.jsonl  baselines.safetensors                withheld
            curve.safetensors  report.html  figures/

Without a privacy budget a run has one part. With one, its public part is made of public numbers and
of what was noised and charged: two data sets that differ in one record and have the same answers
give the same bytes. All that is exact is withheld, in ``owner/``: objective, certificate, losses,
digests of the data, warnings, comparisons, the model without privacy, the models of the curve, and
times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quorate.config.config import Config
from quorate.runs.checks import Check
from quorate.runs.files import plain
from quorate.runs.result import KEYS
from quorate.runs.run import Run
from quorate.runs.sections.all import SECTIONS
from quorate.runs.sections.privacy import client_weights
from quorate.runs.sections.section import Disclosure

OWNER = "owner/"
# functions of public numbers and paid answers
HISTORY = ("round", "rho", "gap", "noise", "bytes_up", "bytes_down")
MESSAGES = ("Perturb", "Perturbed")
FILES = ("config.toml", "model.safetensors", "history.jsonl", "result.json", "report.html")
COPIED = ("format", "title", "model", "problem", "outcome", "rounds", "versions")
NOTHING = {"certificate": None, "notes": [], "baselines": {}, "data": {}}
PUBLIC = tuple(
    key for section in SECTIONS if section.disclosed is Disclosure.PUBLIC for key in section.keys
)
README = """\
This folder stays with the owner of the data.

Its numbers were computed from the rows exactly, without noise, and are not part of what the
privacy budget pays for: objective, certificate, losses and accuracies of clients, digests of the
data, warnings, comparisons, the model without privacy. The folder round it may travel; hand that
one on without this one.
"""


def exact_folder(config: Config, folder: Path) -> Path:
    """Where a run keeps what was computed from the rows exactly."""
    return folder if config.privacy is None else folder / OWNER


def parts_of(config: Config, result: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The result of a run as its parts may have it, by the folder of each part."""
    if config.privacy is None:
        return {"": {**result}}
    withheld = {key: value for key, value in result.items() if key not in PUBLIC}
    return {OWNER: withheld, "": public_result(config, result)}


def public_result(config: Config, result: Mapping[str, Any]) -> dict[str, Any]:
    """The result.json that may leave the owner, digests of the files excepted."""
    messages = [row for row in result["messages"] if row["message"] in MESSAGES]
    public = {key: result[key] for key in (*COPIED, *PUBLIC)} | NOTHING
    public |= {"clients": public_clients(config, messages), "messages": messages}
    return plain({**public, "evaluation": public_evaluation(config, result["evaluation"])})


def public_clients(config: Config, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row a client: rows as declared, weight, and the bytes that every client sends alike."""
    assert config.privacy is not None
    sizes, weights = config.privacy.sizes, client_weights(config)
    sent = {
        way: sum(m["bytes"] for m in messages if m["direction"] == way) for way in ("up", "down")
    }
    each = {f"bytes_{way}": total // len(weights) for way, total in sent.items()}
    return [
        {"client": name, "n": sizes[name], "weight": weight, **each}
        for name, weight in weights.items()
    ]


def public_evaluation(config: Config, evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of the private model alone, and only on rows that are declared public."""
    public = config.evaluation.public
    measures = [row for row in evaluation["measures"] if public and row["model"] == "private"]
    return {"measures": measures, "pairs": [], "verdict": []}


def public_history(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The columns of every round that may leave the owner."""
    return [{key: row[key] for key in HISTORY if key in row} for row in rows]


def check_public(run: Run) -> Check:
    """The public part has no file, key or column that a private run does not hand out."""
    odd = [*_odd_files(run.path), *(f"result.json: {key}" for key in _odd_keys(run))]
    columns = dict.fromkeys(key for row in run.history for key in row)
    odd += [f"history.jsonl: {key}" for key in columns if key not in HISTORY]
    text = "nothing but what the budget pays for"
    return Check(
        "what travels", not odd, f"does not belong there: {', '.join(odd[:5])}" if odd else text
    )


def _odd_files(path: Path) -> list[str]:
    names = (file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
    return [
        name for name in names if name not in FILES and not name.startswith((OWNER, "figures/"))
    ]


def _odd_keys(run: Run) -> list[str]:
    allowed, result = {"format", *KEYS, *PUBLIC}, run.result
    odd = [key for key in result if key not in allowed]
    odd += [key for key, nothing in NOTHING.items() if result[key] != nothing]
    hidden = not run.config.evaluation.public
    if hidden and result["evaluation"] != public_evaluation(run.config, {"measures": []}):
        odd.append("evaluation")
    return odd
