"""Tables of a configuration that state objects: a key names a class, the others are its fields.

In ``[problem]`` with ``loss = "huber"`` and ``threshold = 2.0`` the key ``loss`` names a class of
the list in ``bonafed.names``, and ``threshold`` is a field of that class. Which keys a table takes,
what they default to and what they allow is read off the class: no class is described here. A value
is first checked against the type of its field, then by the class itself, which is made once for it.
"""

import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from string import Formatter
from typing import Any, ClassVar

import pydantic
from pydantic import Field

from bonafed.config.schema import Section
from bonafed.config.toml_file import Refusal, near, not_among, unknown, value_refused
from bonafed.names import NAMED, load
from bonafed.parameters import Parameter, parameters


def known(kind: str, *more: str) -> pydantic.BeforeValidator:
    """The check of a key whose value is a short name of ``bonafed.names``, or one of ``more``."""

    def check(name: object) -> object:
        if name not in (allowed := [*more, *NAMED[kind]]):
            raise ValueError(Refusal(not_among(name, allowed)))
        return name

    return pydantic.BeforeValidator(check)


class Objects(Section):
    """A table that states objects. A subclass says which keys name their classes."""

    model_config = pydantic.ConfigDict(extra="allow")
    # a key that names a class, or a class variable where there is one class -> its kind in
    # bonafed.names
    STATES: ClassVar[Mapping[str, str]]
    ELSEWHERE: ClassVar[Sequence[str]] = ()  # fields that are no keys of this table
    KEYS: ClassVar[Mapping[str, str]] = {}  # field -> its key, where that has another name
    DEFAULTS: ClassVar[Mapping[str, object]] = {}  # of keys, where the class has none
    TYPES: ClassVar[Mapping[str, object]] = {}  # of keys, where a file takes more than the class
    OWNED: ClassVar[Sequence[str]] = ()  # declared keys that belong to classes with such a field

    if typing.TYPE_CHECKING:

        def __getattr__(self, key: str) -> Any:
            """The value of a key that is a field of the named classes."""

    @pydantic.model_validator(mode="after")
    def _fields_of_the_classes(self) -> typing.Self:
        extra, taken = self._extra(), self.parameters()
        keys = [*(key for key in extra if key not in taken), *self.OWNED]
        if refusals := [refusal for key in keys if (refusal := self._check_owner(key))]:
            raise ValueError(*refusals)
        for key, parameter in taken.items():
            default = self.DEFAULTS.get(key, parameter.default)
            if key in extra:
                extra[key] = self._read(key, parameter)
            elif key in self.DEFAULTS or isinstance(default, bool | int | float | str | dict):
                extra[key] = default
        for of in self.STATES:
            keys = self._parameters(of)
            lacking = [f"`{key}`" for key, p in keys.items() if p.required and key not in extra]
            if lacking:
                named = of in type(self).model_fields
                beside = f" beside {of} = {getattr(self, of)!r}" if named else ""
                raise ValueError(f"needs {' and '.join(lacking)}{beside}")
            self._try(of, keys)
        return self

    @classmethod
    def keys(cls) -> list[str]:
        """All keys that the table may have, whichever classes it names."""
        classes = ((of, name) for of, kind in cls.STATES.items() for name in NAMED[kind])
        more = chain.from_iterable(cls._of_class(*one) for one in classes)
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

    def phrase(self, of: str) -> str:
        """The object of a key in words: the ``phrase`` of its class with the fields filled in, or
        its name and fields, such as "kl ball (radius = 0.3, prior = size)".
        """
        cls = self.named_class(of)
        if hasattr(cls, "phrase"):
            values = {}
            for name, p in parameters(cls).items():
                stated = self.get(self.KEYS.get(name, name))
                values[name] = p.default if stated is None else stated
            return _Words().vformat(cls.phrase, (), values)
        fields = [f"{key} = {self.get(key)}" for key in self._parameters(of) if self.get(key)]
        name = getattr(self, of).replace("_", " ")
        return f"{name} ({', '.join(fields)})" if fields else name

    def build(self, of: str, **more: object) -> Any:
        """The object of the class that a key names; ``more`` are fields that are not keys."""
        keys = self._parameters(of).items()
        values = {p.field: as_object(p.type, self.get(key)) for key, p in keys}
        return self.named_class(of)(**{k: v for k, v in values.items() if v is not None} | more)

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
        keys = {cls.KEYS.get(p.field, p.field): p for p in fields if p.field not in skip}
        types = {key: kind for key, kind in cls.TYPES.items() if key in keys}
        return keys | {key: dataclasses.replace(keys[key], type=types[key]) for key in types}

    def _parameters(self, of: str) -> dict[str, Parameter]:
        return self._of_class(of, getattr(self, of))

    def _check_owner(self, key: str) -> Refusal | None:
        """Why a key is refused that the named classes do not take."""
        declared = type(self).model_fields.get(key)
        usual = declared and declared.get_default(call_default_factory=True) == self.get(key)
        for of, kind in self.STATES.items():
            owners = [
                name
                for name in NAMED[kind]
                for field in parameters(load(kind, name))
                if self.KEYS.get(field, field) == key and field not in self.ELSEWHERE
            ]
            if getattr(self, of) in owners or (owners and usual):
                self._extra().pop(key, None)
                return None
            if owners:
                return Refusal(
                    f"has `{key}`, which {getattr(self, of)!r} does not take: it belongs to {of} ="
                    f" {' or '.join(map(repr, owners))}"
                )
        return Refusal(unknown(key, self.keys()), key)

    def _read(self, key: str, parameter: Parameter) -> object:
        value = self._extra()[key]
        try:
            return value if value == parameter.default else read(parameter.type, value)
        except ValueError as error:
            text = str(error)
            if typing.get_origin(parameter.type) is typing.Literal:
                text = not_among(value, typing.get_args(parameter.type))
            raise ValueError(Refusal(text, key)) from None

    def _try(self, of: str, fields: Mapping[str, Parameter]) -> None:
        """Make the object, so that what its class refuses is refused with the key's line."""
        try:
            self.build(of)
        except (ValueError, TypeError) as error:
            keys, text = {p.field: key for key, p in fields.items()}, str(error)
            named = [keys[word] for word in re.findall(r"\w+", text) if word in keys]
            key = next((key for key in named if key in self._extra()), of)
            text = self._whose(of, key, fields) + text
            if isinstance(value := self.get(key), str):
                others = [word for word in re.findall(r"[\w-]+", text) if word != value]
                text += near(value, others, " Did you mean {!r}?")
            raise ValueError(Refusal(text, key)) from None

    def _whose(self, of: str, key: str, fields: Mapping[str, Parameter]) -> str:
        """The client whose entry of a table by name is refused even by itself."""
        table = self.get(key)
        for name, entry in table.items() if isinstance(table, Mapping) else ():
            try:
                self.build(of, **{fields[key].field: {name: entry}})
            except (ValueError, TypeError):
                return f"client {name!r} has {entry!r}; "
        return ""


def in_words(value: object) -> str:
    """A text, a number, or the least and the largest of those of several clients."""
    several = [*value.values()] if isinstance(value, Mapping) else value
    numbers = sorted({*several}) if isinstance(several, list) else [several]
    if not all(isinstance(one, int | float) for one in numbers):
        return str(value or "")
    ends = [f"{one:g}" for one in (numbers[0], numbers[-1])]
    return ends[0] if len(numbers) == 1 else f"{ends[0]} to {ends[1]} (by client)"


class _Words(Formatter):
    """Phrases with values in words: ``{tail:%}`` in percent, ``{c:#row}`` as a count of rows,
    ``{signs:*}`` as a list, ``{prior:given}`` as that word where it is not text.
    """

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "%":
            return f"{100 * value:g} %"
        if format_spec == "*":
            return ", ".join(map(str, value))
        if format_spec.startswith("#"):
            n = len(value) if isinstance(value, list) else value
            return f"{n:g} {format_spec[1:]}{'s' * (n != 1)}"
        return format_spec if format_spec and not isinstance(value, str) else in_words(value)


# ---------------------------------------------------------------------------------------- types


def as_table(cls: type) -> Any:
    """The type of an object that a file states as a table of the fields of its class; the class
    may say by ``named`` what it is.
    """
    return typing.Annotated[cls, "as a table"]


def read(kind: object, value: object) -> Any:
    """A value of a file as a field of some type takes it: a whole number is a number, the text
    "inf" is infinity, and nan is not a number.

    Raises
    ------
    ValueError : with what is given, and what the type allows
    """
    adapter = _adapter(kind)
    try:
        return adapter.dump_python(adapter.validate_python(value), exclude_unset=True)
    except pydantic.ValidationError as error:
        raise ValueError(value_refused(error, value)) from None


@cache
def _adapter(kind: object) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(in_file(kind), config=pydantic.ConfigDict(strict=True))


@cache
def in_file(kind: object) -> Any:
    """A type as a file states its values: arrays as lists, objects as tables of their fields; None
    where it has none that a file can state.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is float:
        return typing.Annotated[float, pydantic.BeforeValidator(_number)]
    if kind in (bool, int, str, Any) or origin is typing.Literal:
        return kind
    if origin in (typing.Union, types.UnionType):
        members = [member for each in arguments if (member := in_file(each)) is not None]
        return typing.Union[tuple(members)] if members else None  # noqa: UP007
    if origin is typing.Annotated:
        return _table_of(arguments[0])
    each = in_file(arguments[-1 if _is(origin, Mapping) else 0]) if arguments else None
    if each is None or origin is None:
        return None
    if _is(origin, Mapping):
        return typing.Annotated[dict[str, each], Field(min_length=1)]
    if origin is tuple and ... in arguments:
        return typing.Annotated[tuple[each, ...], pydantic.Strict(False)]
    n = len(arguments) if origin is tuple else None
    entries = Field(min_length=n, max_length=n)
    return typing.Annotated[list[each], entries] if _is(origin, Sequence) else None


def _number(value: object) -> object:
    return math.inf if value == "inf" else value if value == value else None


def _table_of(cls: type) -> Any:
    """The table of the fields of a class, whose name says what it has, as errors do."""
    fields = parameters(cls).values()
    some, what = any(p.required for p in fields), getattr(cls, "named", "")
    parts = [f"{'perhaps ' * (some and not p.required)}{p.field}" for p in fields]
    named = f"{{{', '.join(parts)}}}" + f" for {what}" * bool(what)
    stated: Any = {p.field: (in_file(p.type), ... if p.required else p.default) for p in fields}
    return pydantic.create_model(named, __base__=Section, **stated)


def as_object(kind: object, value: object) -> object:
    """A value as the class of its field takes it: tables of the fields of a class as objects."""
    if not isinstance(value, Mapping):
        return value
    several = typing.get_origin(kind) in (typing.Union, types.UnionType)
    for member in typing.get_args(kind) if several else (kind,):
        if typing.get_origin(member) is typing.Annotated:
            cls = typing.get_args(member)[0]
            if {*value} <= {*parameters(cls)}:
                return cls(**value)
    return value


def _is(origin: object, kind: type) -> bool:
    return isinstance(origin, type) and issubclass(origin, kind)
