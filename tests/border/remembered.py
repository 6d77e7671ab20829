"""Pure functions that remember what they returned: a forged folder asks most of them the same."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from bonafed.data.federation import Federation

KNOWN: dict[int, Federation] = {}  # kept, so that no other one gets the same number


class _Key(pickle.Pickler):
    """Arguments as bytes; a federation is known by its identity."""

    def persistent_id(self, obj: object) -> int | None:
        return id(KNOWN.setdefault(id(obj), obj)) if isinstance(obj, Federation) else None


def _key(arguments: object) -> bytes:
    file = io.BytesIO()
    pickler = _Key(file)
    pickler.fast = True  # equal arguments are equal bytes, whichever parts are the same object
    pickler.dump(arguments)
    return file.getvalue()


def remembering(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which computes nothing twice."""
    known: dict[bytes, Any] = {}

    def remembered(*given: Any, **named: Any) -> Any:
        key = _key((given, sorted(named.items())))
        if key not in known:
            known[key] = function(*given, **named)
        return known[key]

    return remembered


def remember(monkeypatch: pytest.MonkeyPatch, module: Any, *names: str) -> None:
    """Let functions of a module remember."""
    for name in names:
        monkeypatch.setattr(module, name, remembering(getattr(module, name)))
