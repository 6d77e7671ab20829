"""The disclosure policy of a run: what may leave the owner of the data, and what is withheld.

    config.toml  model.safetensors  history.jsonl  result.json  report.html  figures/      public
    owner/  README.txt  result.json  history.jsonl  baselines.safetensors                withheld
            sweep.json  sweep.safetensors  report.html  figures/

Without a privacy budget a run has one part. With one, its public part is computed from public
numbers and from noisy answers that are charged: two data sets that differ in one record and have
the same answers give the same bytes. All that is exact is withheld, in ``owner/``: objective,
certificate, losses, digests of the data, warnings, comparisons, the model without privacy, the
models of a sweep, and times.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bonafed.config.config import Config
from bonafed.runs.checks import Check
from bonafed.runs.files import Record, Row, files_in, plain
from bonafed.runs.privacy_plan import privacy_of
from bonafed.runs.run import Run
from bonafed.runs.sections.all import SECTIONS
from bonafed.runs.sections.privacy import client_weights
from bonafed.runs.sections.section import bytes_sent
from bonafed.solution.solution import HISTORY, public_messages

OWNER = "owner/"  # where the rows are at sites, a run has no such part
FILES = ("config.toml", "model.safetensors", "history.jsonl", "result.json", "report.html")
COPIED = ("format", "title", "model", "problem", "outcome", "rounds", "versions")
NOTHING = {"certificate": None, "notes": [], "baselines": {}, "data": {}}
PUBLIC = tuple(key for section in SECTIONS if section.public for key in section.keys)
README = """\
This folder stays with the owner of the data.

Its numbers were computed from the rows exactly, without noise, and are not part of what the
privacy budget pays for: objective, certificate, losses and accuracies of clients, digests of the
data, warnings, comparisons, the model without privacy. The folder round it may travel; hand that
one on without this one.
"""


def exact_folder(config: Config, folder: Path) -> Path | None:
    """Where a run keeps what was computed from the rows exactly; None where that is nowhere, as the
    rows of a private run are at sites.
    """
    if config.privacy is None:
        return folder
    return folder / OWNER if config.data.sites is None else None


def parts_of(config: Config, result: Row) -> dict[str, Record]:
    """The result of a run as its parts may have it, by the folder of each part."""
    if config.privacy is None:
        return {"": {**result}}
    public = {"": public_result(config, result)}
    if config.data.sites is not None:
        return public
    return {OWNER: {key: value for key, value in result.items() if key not in PUBLIC}} | public


def public_result(config: Config, result: Row) -> Record:
    """The result.json that may leave the owner, digests of the files excepted."""
    messages = public_messages(result["messages"])
    copied = (*COPIED, *PUBLIC, *(["at_sites"] if config.data.sites is not None else []))
    public = {key: result[key] for key in copied} | NOTHING
    public |= {"clients": public_clients(config, messages), "messages": messages}
    return plain({**public, "evaluation": public_evaluation(config, result["evaluation"])})


def public_clients(config: Config, messages: Sequence[Row]) -> list[Record]:
    """One row a client: rows as declared, weight, and the bytes that every client sends alike."""
    sizes, weights = privacy_of(config).sizes, client_weights(config)
    ways = ("up", "down")
    each = {f"bytes_{way}": bytes_sent(messages, way) // len(weights) for way in ways}
    return [
        {"client": name, "n": sizes[name], "weight": weight, **each}
        for name, weight in weights.items()
    ]


def public_evaluation(config: Config, evaluation: Row) -> Record:
    """The numbers of the private model only, and only on rows that are declared public."""
    public = config.evaluation.public
    measures = [row for row in evaluation["measures"] if public and row["model"] == "private"]
    return {"measures": measures, "pairs": [], "verdict": []}


def check_public(run: Run) -> Check:
    """The public part has no file, key or column that a private run does not hand out."""
    files = (name for name in files_in(run.path, OWNER) if not name.startswith("figures/"))
    odd = [name for name in files if name not in FILES]
    # `read_run` has refused unknown keys
    hidden, evaluation = not run.config.evaluation.public, run.result["evaluation"]
    odd += ["result.json: evaluation"] * (hidden and any(evaluation.values()))
    columns = dict.fromkeys(key for row in run.history for key in row)
    odd += [f"history.jsonl: {key}" for key in columns if key not in HISTORY]
    text = "nothing but what the budget pays for"
    if odd:
        text = f"does not belong there: {', '.join(odd[:5])}"
    return Check("public part", not odd, text)
