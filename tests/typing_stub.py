"""The type stub of the package, made from the list of names.

python tests/typing_stub.py      writes src/bonafed/__init__.pyi
"""

from __future__ import annotations

from pathlib import Path

import bonafed
from bonafed.names import by_module

STUB = Path(bonafed.__file__).with_suffix(".pyi")


def stub() -> str:
    """Every public name as an import, in the order that ruff asks for."""
    imports = [
        _import(module, name)
        for module, names in by_module().items()
        for name in sorted(names, key=_order)
    ]
    head = '"""Types of the public names. Made by ``python tests/typing_stub.py``."""'
    return "\n".join([head, "", *imports, "", "__version__: str", ""])


def _order(name: str) -> tuple[bool, bool, str]:
    return not name.isupper(), name[0].islower(), name.lower()


def _import(module: str, name: str) -> str:
    line = f"from {module} import {name} as {name}"
    return line if len(line) <= 100 else f"from {module} import (\n    {name} as {name},\n)"


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
