"""The table of docs/combinations.md: which algorithm takes which problems, read off the classes.

``python -m quorate.solution.combinations`` prints it.
"""

from __future__ import annotations

from quorate.algorithms.alternatives import known_methods
from quorate.algorithms.requirements import Requirements

HEADINGS = {
    "over_clients": "risk over clients",
    "over_samples": "risk over samples",
    "over_rows": "risk over all rows",
    "loss": "loss",
    "predictor": "predictions",
    "regulariser": "regulariser",
    "constraint": "constraints",
    "privacy": "privacy",
    "clients": "clients",
    "rows": "weights of rows",
    "engine": "engine",
}
INTRODUCTION = """# Combinations

This page says which algorithm takes which problem. Every algorithm declares what it requires of
each slot of a problem (`requirements` on its class); `solve`, the configuration file and this table
read the same declarations. Where no algorithm is named, `solve` takes the first that is suitable
(`quorate.solution.default`).

This page is written by `python -m quorate.solution.combinations > docs/combinations.md`.
"""


def page() -> str:
    """The page in Markdown: one row per algorithm, one column per slot."""
    lines = ["| algorithm | " + " | ".join(HEADINGS.values()) + " |"]
    lines.append("|---" * (len(HEADINGS) + 1) + "|")
    for cls in known_methods():
        cells = [_label(cls.requirements, slot) for slot in HEADINGS]
        lines.append(f"| `{cls.__name__}` | " + " | ".join(cells) + " |")
    return INTRODUCTION + "\n" + "\n".join(lines) + "\n"


def _label(requirements: Requirements, slot: str) -> str:
    """What an algorithm requires in a slot, in a word or two."""
    return getattr(requirements, slot).label


if __name__ == "__main__":
    print(page(), end="")
