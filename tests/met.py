"""What people met, before and after: a test that holds one mended example says so with `met`.

``python tests/met.py`` prints the table of all of them.
"""

import runpy
import sys
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Met:
    """kind : the kind of the fault, "A" to "F"
    example : what a person gave or did
    before, after : what was answered, and what is now
    relative_of : the beginning of the example that this one is a relative of; "" for one that was
        reported
    """

    kind: str
    example: str
    before: str
    after: str
    relative_of: str = ""


def met(
    kind: str, example: str, before: str, after: str, relative_of: str = ""
) -> Callable[[Any], Any]:
    """Marks a test as the one that holds an example; a test of several has several marks."""

    def marked(test: Any) -> Any:
        test.met = [Met(kind, example, before, after, relative_of), *getattr(test, "met", [])]
        return test

    return marked


def every() -> list[tuple[Met, str]]:
    """All examples, each with the test that holds it."""
    found = []
    for file in sorted((HERE / "people").glob("test_*.py")):
        for name, test in runpy.run_path(str(file)).items():
            if name.startswith("test_"):
                found += [(one, f"{file.stem}.{name}") for one in getattr(test, "met", [])]
    return found


def relatives(examples: list[Met]) -> dict[str, list[Met]]:
    """Of every reported example those that name the beginning of its text."""
    return {
        reported.example: [
            one
            for one in examples
            if one.relative_of and reported.example.startswith(one.relative_of)
        ]
        for reported in examples
        if not reported.relative_of
    }


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    names = [field.name.replace("_", " ") for field in fields(Met)]
    print(f"| {' | '.join([*names, 'test'])} |\n|{'---|' * (len(names) + 1)}")
    for one, test in every():
        print(f"| {' | '.join([*map(str, astuple(one)), test])} |")
