"""The type stub of the package, made from the list of names.

python tests/typing_stub.py      writes src/bonafed/__init__.pyi
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

import bonafed
from bonafed.names import by_module

STUB = Path(bonafed.__file__).with_suffix(".pyi")
WIDEST = 100  # characters in a line


def stub() -> str:
    """Every public name as an import, as many of a module on a line as there is room for."""
    imports = [line for module, names in by_module().items() for line in _imports(module, names)]
    head = '"""Types of the public names. Made by ``python tests/typing_stub.py``."""'
    return "\n".join([head, "", *imports, "", "__version__: str", ""])


def _imports(module: str, names: Iterable[str]) -> list[str]:
    head = f"from {module} import "
    # "_" keeps the three words of an import together
    parts = ", ".join(f"{name}_as_{name}" for name in sorted(names, key=_order))
    lines = textwrap.wrap(parts, WIDEST - len(head) + 1)
    return [head + line.removesuffix(",").replace("_as_", " as ") for line in lines]


def _order(name: str) -> tuple[bool, bool, str]:
    return not name.isupper(), name[0].islower(), name.lower()


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
