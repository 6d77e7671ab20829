"""Tables of a configuration that state objects: a key names a class, the others are its fields.

In ``[problem]`` with ``loss = "huber"`` and ``threshold = 2.0`` the key ``loss`` names a class of
the list in ``quorate.names``, and ``threshold`` is a field of that class. Which keys a table takes,
what they default to and what they allow is read off the class: no class is described here. A value
is first checked against the type of its field, then by the class itself, which is made once for it.
"""

from __future__ import annotations

import builtins
import dataclasses
import math
import re
import sys
import types
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import (
    Any,
    ClassVar,
    Literal,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import AfterValidator, ConfigDict, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError, PydanticKnownError

from quorate.config.errors import one_of
from quorate.config.schema import Section
from quorate.names import NAMED, load

MISSING = dataclasses.MISSING


def known(kind: str, *more: str) -> AfterValidator:
    """The check of a key whose value is a short name of ``quorate.names``, or one of ``more``."""

    def check(name: str) -> str:
        if name not in (allowed := [*more, *NAMED[kind]]):
            raise PydanticKnownError("literal_error", {"expected": one_of(allowed, " or ")})
        return name

    return AfterValidator(check)


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A field of a class, as a key of a configuration: its name, its type and its default."""

    field: str
    type: Any
    default: Any

    @property
    def required(self) -> bool:
        """Whether the class has no default for it."""
        return self.default is MISSING


class _Scope(dict[str, Any]):
    """Names for annotations; one that only type checkers import stands for any object."""

    def __missing__(self, name: str) -> type:
        return object


@lru_cache
def parameters(cls: type) -> dict[str, Parameter]:
    """The fields of a dataclass that its constructor takes, by name."""
    scope = _Scope(vars(builtins))
    for base in reversed(cls.__mro__):
        scope.update(vars(sys.modules[base.__module__]))
    types_ = get_type_hints(cls, localns=scope)
    return {
        field.name: Parameter(
            field.name,
            types_[field.name],
            field.default if field.default_factory is MISSING else field.default_factory(),
        )
        for field in dataclasses.fields(cls)
        if field.init
    }


class Objects(Section):
    """A table that states objects. A subclass says which keys name their classes."""

    model_config = ConfigDict(extra="allow")
    STATES: ClassVar[Mapping[str, str]]  # a key that names a class -> its kind in quorate.names
    ELSEWHERE: ClassVar[Sequence[str]] = ()  # fields that are no keys of this table
    KEYS: ClassVar[Mapping[str, str]] = {}  # field -> its key, where that has another name
    DEFAULTS: ClassVar[Mapping[str, Any]] = {}  # of keys, where the class has none
    WRITTEN: ClassVar[Sequence[str]] = ()  # keys that older runs wrote whatever the class

    @model_validator(mode="after")
    def _fields_of_the_classes(self) -> Self:
        given = self._extra()
        taken = self.parameters()
        for key in [*given]:
            if key not in taken:
                self._refuse_or_drop(key)
        for key, parameter in taken.items():
            default = self.DEFAULTS.get(key, parameter.default)
            if key in given:
                given[key] = self._read(key, parameter)
            elif isinstance(default, bool | int | float | str):
                given[key] = default
        for of in self.STATES:
            own = self._parameters(of)
            lacking = [key for key, p in own.items() if p.required and key not in given]
            if lacking:
                keys = " and ".join(f"`{key}`" for key in lacking)
                raise ValueError(f"needs {keys} beside {of} = {getattr(self, of)!r}")
            self._try(of, own)
        return self

    @classmethod
    def keys(cls) -> list[str]:
        """All keys that the table may have, whichever classes it names."""
        more = (
            key
            for of, kind in cls.STATES.items()
            for name in NAMED[kind]
            for key in cls._of_class(of, name)
        )
        return [*dict.fromkeys((*super().keys(), *more))]

    def keys_of(self, of: str) -> list[str]:
        """The keys that set fields of the class that a key names."""
        return [*self._parameters(of)]

    def get(self, key: str) -> Any:
        """The value of a key; None where the table has none."""
        return getattr(self, key) if key in type(self).model_fields else self._extra().get(key)

    def named_class(self, of: str) -> Any:
        """The class that a key names."""
        return load(self.STATES[of], getattr(self, of))

    def described(self, of: str) -> str:
        """The name of a class and its fields, such as "kl ball (radius = 0.3, prior = size)"."""
        fields = [f"{key} = {self.get(key)}" for key in self._parameters(of) if self.get(key)]
        name = getattr(self, of).replace("_", " ")
        return f"{name} ({', '.join(fields)})" if fields else name

    def build(self, of: str, **more: Any) -> Any:
        """The object of the class that a key names; ``more`` are fields that are no keys."""
        own = {p.field: key for key, p in self._parameters(of).items()}
        given = {field: self.get(key) for field, key in own.items()}
        return self.named_class(of)(**{k: v for k, v in given.items() if v is not None} | more)

    def parameters(self) -> dict[str, Parameter]:
        """The keys of the named classes, with the fields that they set."""
        return {key: p for of in self.STATES for key, p in self._parameters(of).items()}

    def _extra(self) -> dict[str, Any]:
        assert self.__pydantic_extra__ is not None
        return self.__pydantic_extra__

    @classmethod
    def _of_class(cls, of: str, name: str) -> dict[str, Parameter]:
        """The parameters of a class by their keys."""
        skip = (*cls.ELSEWHERE, *cls.model_fields)
        fields = parameters(load(cls.STATES[of], name)).values()
        return {cls.KEYS.get(p.field, p.field): p for p in fields if p.field not in skip}

    def _parameters(self, of: str) -> dict[str, Parameter]:
        return self._of_class(of, getattr(self, of))

    def _refuse_or_drop(self, key: str) -> None:
        """Refuse a key that the named classes do not take; drop one that an older run wrote."""
        for of, kind in self.STATES.items():
            others = {name: self._of_class(of, name) for name in NAMED[kind]}
            owners = {name: keys[key] for name, keys in others.items() if key in keys}
            defaults = [self.DEFAULTS.get(key, p.default) for p in owners.values()]
            if key in self.WRITTEN and self._extra()[key] in defaults:
                del self._extra()[key]
                return
            if owners:
                raise ValueError(
                    f"has `{key}`, which {getattr(self, of)!r} does not take: it belongs to {of} ="
                    f" {' or '.join(map(repr, owners))}"
                )
        raise _error(type(self), key, "extra_forbidden", self._extra()[key])

    def _read(self, key: str, parameter: Parameter) -> Any:
        value = self._extra()[key]
        try:
            return read(parameter.type, value)
        except ValueError:
            kind: Any = _refused(f"got {value!r}; allowed: {words(parameter.type)}")
            context = {}
            if get_origin(parameter.type) is Literal:
                kind = "literal_error"
                context = {"expected": one_of(get_args(parameter.type), " or ")}
            raise _error(type(self), key, kind, value, context) from None

    def _try(self, of: str, own: Mapping[str, Parameter]) -> None:
        """Make the object, so that what its class refuses is refused with the key's line."""
        try:
            self.build(of)
        except (ValueError, TypeError) as error:
            places = {
                key: found.start()
                for key, p in own.items()
                if key in self._extra() and (found := re.search(rf"\b{p.field}\b", str(error)))
            }
            key = min(places, key=places.__getitem__, default=of)
            raise _error(type(self), key, _refused(str(error)), self.get(key)) from None


def _refused(text: str) -> PydanticCustomError:
    return PydanticCustomError("refused", "{text}", {"text": text})


def _error(
    of: type, key: str, kind: Any, value: Any, context: dict[str, Any] | None = None
) -> ValidationError:
    line = InitErrorDetails(type=kind, loc=(key,), input=value, ctx=context or {})
    return ValidationError.from_exception_data(of.__name__, [line])


# ---------------------------------------------------------------------------------------- types


def read(kind: Any, value: Any) -> Any:
    """A value of a file as a field of some type takes it; raises ``ValueError`` where it is none.

    A whole number is a number, the text "inf" is infinity, and nan is no number.
    """
    if (origin := get_origin(kind)) in (Union, types.UnionType):
        for member in get_args(kind):
            try:
                return read(member, value)
            except ValueError:
                continue
        raise ValueError
    if kind is Any or (origin is Literal and value in get_args(kind)):
        return value
    if kind is float and value == "inf":
        return math.inf
    if kind is float and _is_number(value):
        return float(value)
    if kind in (bool, str, int) and type(value) is kind:
        return value
    if _is(origin, Sequence) and isinstance(value, list) and value:
        entries = [read(get_args(kind)[0], entry) for entry in value]
        return tuple(entries) if origin is tuple else entries
    if _is(origin, Mapping) and isinstance(value, Mapping) and value:
        return {name: read(get_args(kind)[1], entry) for name, entry in value.items()}
    raise ValueError


def statable(kind: Any) -> bool:
    """Whether a file can state a value of a type: an array, a function or an object it cannot."""
    return kind is Any or words(kind) != ""


def words(kind: Any) -> str:
    """What a field of some type allows, in words."""
    simple = {float: "a number", int: "an integer", bool: "true or false", str: "text"}
    said: dict[str, None] = {}
    for member in _members(kind):
        if member in simple:
            said[simple[member]] = None
        elif (origin := get_origin(member)) is Literal:
            said[one_of(get_args(member), " or ")] = None
        elif _is(origin, Sequence) and (each := words(get_args(member)[0])):
            said[f"a list, each {each}"] = None
        elif _is(origin, Mapping) and (each := words(get_args(member)[1])):
            said[f"a table by name, each {each}"] = None
    return ", or ".join(said)


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _is(origin: Any, kind: type) -> bool:
    return isinstance(origin, type) and issubclass(origin, kind)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
