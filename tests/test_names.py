"""The list of names: it agrees with the package, with its type stub and with the classes."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module
from pathlib import Path

import pytest
from typing_stub import STUB, stub

import bonafed as bf
from bonafed.names import NAMED, by_module, load, short_name

SHORT = [(kind, name) for kind, names in NAMED.items() for name in names]


def test_the_stub_is_the_one_that_the_list_gives():
    assert STUB.read_text(encoding="utf-8") == stub(), "run: python tests/typing_stub.py"


def test_all_and_dir_are_the_list():
    names = sorted(name for names in by_module().values() for name in names)
    assert len({*names}) == len(names), "one public name in two modules"
    assert sorted(bf.__all__) == sorted([*names, "__version__"])
    assert dir(bf) == names


@pytest.mark.parametrize("name", bf.__all__)
def test_a_public_name_is_defined_where_the_list_says(name: str):
    value = getattr(bf, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert name in by_module()[value.__module__]


@pytest.mark.parametrize(("kind", "name"), SHORT)
def test_a_short_name_is_of_a_public_class(kind: str, name: str):
    cls = load(kind, name)
    assert getattr(bf, cls.__name__) is cls
    assert short_name(kind, cls) == name


def test_no_public_name_hides_a_module():
    modules = {module.name for module in pkgutil.iter_modules([str(Path(bf.__file__).parent)])}
    assert not modules & set(bf.__all__)
    assert bf.audit is import_module("bonafed.auditing").audit


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="NoSuchThing"):
        _ = bf.NoSuchThing  # type: ignore[attr-defined]
    assert short_name("loss", object()) is None
