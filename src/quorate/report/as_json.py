"""The report of a run as JSON: its result.json, and what the sections keep in other files."""

from __future__ import annotations

import json

from quorate.report.sections import SECTIONS
from quorate.runs.run import Run


def as_json(run: Run) -> str:
    """The whole record of the run."""
    record = {**run.result}
    for section in SECTIONS:
        record |= section.record(run)
    return json.dumps(record, indent=1) + "\n"
