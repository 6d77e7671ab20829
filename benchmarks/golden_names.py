"""Prints the public names of the bonafed that is imported, with their signatures, as JSON.

Addresses, types and the modules where a default value lives are left out: they are no part of how a
name is called.
"""

from __future__ import annotations

import inspect
import json
import re

import bonafed

PLACE = re.compile(r" at 0x[0-9a-f]+|\bbonafed(\.\w+)+\.(?=\w)")


def signature(thing: object) -> str:
    """How a thing is called, or what it is where it cannot be called."""
    if not callable(thing):
        return type(thing).__name__
    try:
        called = inspect.signature(thing)
    except ValueError:
        return "no signature"
    untyped = [one.replace(annotation=one.empty) for one in called.parameters.values()]
    by_name = [one for one in untyped if one.kind is one.KEYWORD_ONLY]
    at = untyped.index(by_name[0]) if by_name else 0
    # their order is no part of how a name is called
    untyped[at : at + len(by_name)] = sorted(by_name, key=lambda one: one.name)
    return PLACE.sub("", str(called.replace(parameters=untyped, return_annotation=called.empty)))


def described(name: str) -> dict[str, object]:
    """Kind and signature of a public name, and the signatures of a class's public methods."""
    try:
        thing = getattr(bonafed, name)
    except ImportError:
        return {"signature": "needs a package that is not installed", "methods": {}}
    if not inspect.isclass(thing):
        return {"signature": signature(thing), "methods": {}}
    own = {key: getattr(thing, key) for key in sorted(dir(thing)) if not key.startswith("_")}
    return {
        "signature": f"class{signature(thing)}",
        "methods": {k: signature(v) for k, v in own.items()},
    }


def main() -> None:
    names = {name: described(name) for name in sorted(bonafed.__all__)}
    print(json.dumps({"file": bonafed.__file__, "names": names}))


if __name__ == "__main__":
    main()
