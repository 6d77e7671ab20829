"""The report of a run as JSON: its result.json, and what the sections keep in other files.

Names are whole and exact in every encoding: what no terminal prints, or an encoding lacks, is
in_numbers.
"""

from __future__ import annotations

import codecs
import json

from bonafed.report.sections import SECTIONS
from bonafed.runs.files import to_json
from bonafed.runs.run import Run


def as_json(run: Run) -> str:
    """The whole record of the run."""
    record = {**run.result}
    for section in SECTIONS:
        record |= section.record(run)
    return exact(to_json(record, indent=1)) + "\n"


def exact(text: str) -> str:
    """The same JSON, in which signs that a terminal does not print are numbers."""
    return "".join(c if c.isprintable() or c == "\n" else in_numbers(c) for c in text)


def in_numbers(sign: str) -> str:
    """One sign of a JSON string by its numbers."""
    return json.dumps(sign)[1:-1]


def _encoded(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(map(in_numbers, error.object[error.start : error.end])), error.end


codecs.register_error("bonafed.json", _encoded)
