"""The report of a run as JSON: its result.json, and what the sections keep in other files."""

from __future__ import annotations

from quorate.report.sections import SECTIONS
from quorate.runs.files import to_json
from quorate.runs.run import Run


def as_json(run: Run) -> str:
    """The whole record of the run."""
    record = {**run.result}
    for section in SECTIONS:
        record |= section.record(run)
    return to_json(record, indent=1) + "\n"
