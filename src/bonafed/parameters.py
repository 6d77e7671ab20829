"""What public classes and estimators take: every value is held against the type that is declared
for it, in one place, so that an error names the parameter, what was given and what is needed.
"""

import builtins
import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import MISSING, dataclass, fields, replace
from difflib import get_close_matches
from functools import cache, wraps
from numbers import Integral
from typing import Any, Self

import numpy as np

from bonafed.arrays import Array, is_number
from bonafed.names import NAMED, of_place
from bonafed.text import shown

Function = typing.TypeVar("Function", bound=Callable[..., Any])
Class = typing.TypeVar("Class", bound=type)
OWNER = ("self", "cls")  # of a method

# what people call a parameter that has another name here
MEANT = {
    "intercept": "fit_intercept",
    "intercepts": "fit_intercept",
    "verbose": "watch",
    "callback": "watch",
    "solver": "algorithm",
    "method": "algorithm",
    "group": "groups",
    "sensitive_features": "groups",
    "clients": "groups",
    "max_iter": "max_rounds",
    "random_state": "seed",
    "regularizer": "regulariser",
    "penalty": "regulariser",
}


class ParameterError(ValueError, TypeError):
    """A parameter that does not exist, or a value that it does not take."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a class: its name, its type and its default."""

    field: str
    type: Any
    default: object

    @property
    def required(self) -> bool:
        """Whether the class has no default for it."""
        return self.default is MISSING


class _Scope(dict[str, Any]):
    """Names for annotations; one that only type checkers import stands for any object."""

    def __missing__(self, name: str) -> Any:
        return object


@cache
def parameters(made_by: Any) -> dict[str, Parameter]:
    """What a function, or the constructor of a class, takes, by name."""
    scope, is_class = _Scope(vars(builtins)), isinstance(made_by, type)
    for base in reversed(made_by.__mro__ if is_class else (made_by,)):
        scope.update(vars(sys.modules[base.__module__]))
    hints, function = {}, made_by
    if is_class:
        hints = typing.get_type_hints(made_by, localns=scope, include_extras=True)
        function = made_by.__init__
    hints |= typing.get_type_hints(function, localns=scope, include_extras=True)
    made = {}
    stated = {f.name: f for f in fields(made_by)} if dataclasses.is_dataclass(made_by) else {}
    for name, each in [*inspect.signature(function).parameters.items()][is_class:]:
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            continue
        default = MISSING if each.default is each.empty else each.default
        factory = stated[name].default_factory if name in stated else MISSING
        if factory is not MISSING:
            default = factory()
        kind = hints.get(name, object)
        if typing.get_origin(kind) is typing.Annotated:  # Any, with what it is
            kind = kind.__origin__ if kind.__origin__ is not Any else kind.__metadata__[0]
        made[name] = Parameter(name, kind, default)
    return made


def setters(cls: Any) -> dict[str, str]:
    """The parameters that set the fields: a class may call one otherwise than its field."""
    return dict(zip([each.name for each in fields(cls) if each.init], parameters(cls), strict=True))


class Checked:
    """The base of public classes: what their constructor is given is checked before it runs."""

    def __new__(cls, *args: Any, **given: Any) -> Self:
        known = parameters(cls)
        check_names(cls.__name__, given, known)
        made: Any = super().__new__(cls)
        values = {**dict(zip(known, args, strict=False)), **given}
        check(values, cls, lambda: made.__init__(*args, **given))
        return made


def check_names(what: str, given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Raise ``ParameterError`` for a parameter that does not exist, with the one that is meant."""
    for name in given:
        if name not in known:
            meant = MEANT.get(name, name)
            near = [meant, *get_close_matches(meant, known, 1), *get_close_matches(name, known, 1)]
            hint = next((f" Did you mean {each!r}?" for each in near if each in known), "")
            raise ParameterError(
                f"{what} has no parameter {name!r}, it has {', '.join(known) or 'none'}.{hint}"
            )


def checking(function: Function) -> Function:
    """The function, whose arguments are checked as those of the public classes are, and where it is
    the fit of an estimator its parameters too.
    """

    @wraps(function)
    def checked(*args: Any, **given: Any) -> Any:
        values = _bound(function, args, given)
        check(values, function)
        _check_count(function, args, given, values)
        if function.__name__ == "fit":
            check(args[0].get_params(deep=False), type(args[0]))
        return function(*args, **given)

    return typing.cast("Function", checked)


def checking_methods(cls: Class) -> Class:
    """The class, of whose own public methods the arguments are checked."""
    for name, method in [*vars(cls).items()]:
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(cls, name, checking(method))
    return cls


@cache
def _kinds(function: Any) -> dict[str, Any]:
    return {name: each.kind for name, each in inspect.signature(function).parameters.items()}


def _bound(function: Any, args: Sequence[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What is given to a function, by the names of its parameters."""
    known = {name: each for name, each in parameters(function).items() if name not in OWNER}
    # further parameters by name are those of another function, which checks them
    if inspect.Parameter.VAR_KEYWORD not in _kinds(function).values():
        check_names(function.__name__, given, known)
    values = {**dict(zip(parameters(function), args, strict=False)), **given}
    return {name: values[name] for name in known if name in values}


def _check_count(
    function: Any, args: Sequence[Any], given: Mapping[str, Any], values: Mapping[str, Any]
) -> None:
    """Raise ``ParameterError`` for an argument that is missing, or has no place without a name."""
    known, kinds, name = parameters(function), _kinds(function), function.__name__
    lacking = [k for k, each in known.items() if each.required and k not in (*OWNER, *values)]
    if lacking:
        raise ParameterError(f"{name} needs {' and '.join(lacking)}, and got nothing for it.")
    by_name = [k for k in known if kinds[k] is inspect.Parameter.KEYWORD_ONLY]
    method, most = sum(k in OWNER for k in known), len(known) - len(by_name)
    if len(args) > most:
        free = [k for k in by_name if k not in given]
        do = f": name the others, as in {free[0]}=VALUE" if free else ""
        places = f"{most - method or 'no'} argument{'s' * (most - method != 1)} without a name"
        raise ParameterError(f"{name} takes {places}, got {len(args) - method}{do}.")


def check(
    given: Mapping[str, object], made_by: Any, own: Callable[[], object] = lambda: None
) -> None:
    """Raise ``ParameterError`` for a value of another type than its parameter's, in the words of
    the class, which may say what to do, where its ``own`` check names the parameter.
    """
    for name, value in given.items():
        kind = parameters(made_by)[name]
        if value is kind.default or takes(kind.type, value):
            continue
        needs, got = in_words(kind.type), shown(value)
        if isinstance(value, type):
            needs, got = "a value", written(value)
        elif isinstance(value, str):  # the short name of a class, as configurations have it
            places = [kind[value] for kind in NAMED.values() if value in kind]
            got += f": write {call(of_place(places[0]))}" if places and "such as" in needs else ""
        text = f"{name} must be {needs}, got {got}. It is given to {made_by.__name__}."
        try:
            own()
        except (ValueError, TypeError) as error:
            said = str(error)  # Python's and NumPy's texts are no whole sentences
            whole = re.search(rf"\b{name}\b", said) and said.endswith((".", "?"))
            text = said if whole and not isinstance(value, type) else text
        except Exception:  # such as AttributeError: it is not what the class expects
            pass
        raise ParameterError(text) from None


MATRIX = Sequence[Sequence[float]]
OTHERS = (bool, int, float, complex, str, bytes, list, tuple, dict, set, np.ndarray, np.generic)
OTHERS = (
    *OTHERS,
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
)  # than objects of bonafed's or of a user's classes
PLAIN: dict[Any, str] = {float: "a number", int: "a whole number", bool: "True or False"}
SUCH = {  # a value of each of the types that have values of several classes
    "Aggregation": "Krum(1)",
    "Engine": "InProcess()",
    "Federation": "Federation.from_arrays(X, y, groups)",
    "Loss": "Logistic()",
    "Measure": "Score()",
    "Method": "Bundle()",
    "PathLike": "Path('file')",
    "Penalty": "Growing()",
    "Predictor": "MLP()",
    "Regulariser": "L2(0.1)",
    "Risk": "Simplex()",
    "Stated": "NeymanPearson(label, level)",
    "Support": "BoxSupport(0, 1)",
    "generic": "np.int64(1)",
}
PLAIN |= {
    MATRIX: "rows of numbers of one length",
    str: "a text",
    None: "None",
    types.NoneType: "None",
}


def takes(kind: Any, value: object) -> bool:
    """Whether a value is of a declared type. What an object of a protocol can do is seen when it is
    used: here it is only neither a plain value, a class nor a function.
    """
    return _taker(kind)(value)


@cache
def _taker(kind: Any) -> Callable[[object], bool]:
    # NumPy's NDArray is an alias from Python 3.12 on
    kind = getattr(typing.get_origin(kind) or kind, "__value__", kind)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is float:
        return _a_number
    if kind is int:  # 1e4 rounds are a whole number, too
        return lambda value: is_number(value) and abs(value) < 2**63 and value % 1 == 0
    if kind is bool:
        return lambda value: isinstance(value, bool | np.bool_)
    if kind in (None, types.NoneType):
        return lambda value: value is None
    if origin is typing.Literal:
        return lambda value: any(type(value) is type(one) and value == one for one in inner)
    if complex in inner:  # ArrayLike, which its user reads
        return _anything
    if origin in (typing.Union, types.UnionType):
        several = [_taker(each) for each in inner]
        return lambda value: any(one(value) for one in several)
    if origin is Callable:
        return lambda value: callable(value) and not isinstance(value, type)
    if origin is np.ndarray:
        return lambda value: shape_of_numbers(value) not in (None, ())
    if isinstance(origin, type) and issubclass(origin, Mapping):
        entry = _taker(inner[-1])
        return lambda value: isinstance(value, Mapping) and all(map(entry, value.values()))
    if kind == MATRIX:
        return lambda value: len(shape_of_numbers(value) or ()) == 2
    if isinstance(origin, type) and issubclass(origin, Sequence) and inner:
        return _list_of([_taker(each) for each in inner if each is not ...])
    cls = origin or kind
    if not isinstance(cls, type) or cls in (object, Any):
        return lambda value: not isinstance(value, type)
    if getattr(cls, "_is_protocol", False):
        return lambda value: not (value is None or isinstance(value, OTHERS))
    return lambda value: isinstance(value, cls)


def shape_of_numbers(value: object) -> tuple[int, ...] | None:
    """The shape of a number, an array, or lists of numbers; None where there is anything else."""
    if is_number(value):
        return ()
    if isinstance(value, list | tuple):
        inner = {shape_of_numbers(part) for part in value}
        part = next(iter(inner), ())
        return None if part is None or len(inner) > 1 else (len(value), *part)
    array: Any = np.asarray(value) if hasattr(type(value), "__array__") else None
    if array is None or array.dtype.kind not in "fiu":
        return None
    return array.shape or (1,)


def _a_number(value: Any) -> bool:
    # none beyond 2^1023 is a number of double precision, and nor is nan
    whole = isinstance(value, Integral)
    return is_number(value) and value == value and (not whole or abs(value) < 2**1023)


def _anything(value: object) -> bool:
    return True


def _list_of(entries: list[Callable[[object], bool]]) -> Callable[[object], bool]:
    def fits(value: Any) -> bool:
        if isinstance(value, str | bytes | Mapping | set) or not isinstance(value, Sized):
            return False
        if isinstance(value, np.ndarray) and value.ndim == 0:
            return False
        if entries == [_anything]:
            return True
        if entries == [_a_number] and isinstance(value, np.ndarray) and value.dtype.kind == "f":
            return value.ndim == 1 and not np.isnan(value).any()  # at once
        each = entries * len(value) if len(entries) == 1 else entries
        several: Any = value
        return len(each) == len(value) and all(f(one) for f, one in zip(each, several, strict=True))

    return fits


def in_words(kind: Any) -> str:
    """A declared type in words."""
    *parts, last = dict.fromkeys(_words(kind))
    return f"{', '.join(parts)} or {last}" if parts else last


def _words(kind: Any) -> list[str]:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return [word for each in inner for word in _words(each)]
    if origin is typing.Literal:
        return [repr(each) for each in inner]
    if kind in PLAIN:
        return [PLAIN[kind]]
    if origin is Callable:
        return ["a function"]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return ["a mapping by name"]
    if origin is np.ndarray or (inner and inner[0] in (float, Array)):
        return ["numbers"]
    if inner and isinstance(origin, type) and issubclass(origin, Sequence):
        return [f"a list, each {in_words(inner[0])}"]
    name = getattr(kind, "__name__", str(kind))
    return [f"a value such as {SUCH.get(name, f'{name}(...)')}"]


def written(cls: type) -> str:
    """A class that stands where a value is needed, and how a value of it is written."""
    return f"the class {cls.__name__}: write {call(cls)}"


def call(cls: type) -> str:
    """How a value of a class is written."""
    ours = cls.__module__ != "builtins"
    more = "..." if ours and any(each.required for each in parameters(cls).values()) else ""
    return f"{cls.__name__}({more})"


class Parameters(Checked):
    """The base of frozen values, such as risks, that a search may vary: ``risk__tail``.

    scikit-learn's ``clone`` keeps such a value as it is, since nothing changes it.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name."""
        stated: Any = self
        return {field.name: getattr(self, field.name) for field in fields(stated) if field.init}

    def set_params(self, **params: Any) -> Self:
        """Another value with these parameters; this one stays as it is.

        Raises ``ValueError`` for a name that it does not have.
        """
        stated: Any = self
        check_names(type(self).__name__, params, self.get_params())
        return replace(stated, **params)

    def __sklearn_clone__(self) -> Self:
        return self
