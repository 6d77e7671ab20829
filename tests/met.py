"""What people met, before and after: a test that holds one mended example says so with `met`.

``python tests/met.py`` prints the table of all of them.
"""

import runpy
import sys
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Met:
    """kind : the kind of the fault, "A" to "F"
    example : what a person gave or did
    before, after : what was answered, and what is now
    relative_of : the example that this one is a relative of; "" for one that was reported
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


def every() -> Iterator[tuple[Met, str]]:
    """All examples, each with the test that holds it."""
    for file in sorted((HERE / "people").glob("test_*.py")):
        for name, test in runpy.run_path(str(file)).items():
            if name.startswith("test_"):
                yield from ((one, f"{file.stem}.{name}") for one in getattr(test, "met", []))


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    names = [field.name.replace("_", " ") for field in fields(Met)]
    print(f"| {' | '.join([*names, 'test'])} |\n|{'---|' * (len(names) + 1)}")
    for one, test in every():
        print(f"| {' | '.join([*map(str, astuple(one)), test])} |")
