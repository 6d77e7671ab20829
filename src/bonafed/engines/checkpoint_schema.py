"""Whether a checkpoint can be one that an engine wrote: its digest says that no bit changed on the
way, and not that the values make sense.

Every field is held to its type and its ``Form``: kinds, shapes, finite numbers, positions in range.
What is finite, of the right shape and consistent (``consistency``) cannot be told from the truth.
"""

import enum
import functools
import math
import types
from collections.abc import Mapping
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from bonafed.codec import FIELDS, Form


class Fields:
    """The fields of a checkpoint, each held to its type and its form.

    Attributes
    ----------
    axes : the lengths of the axes that are known by now
    round : finished rounds
    finite : whether numbers have to be finite, unless their fields say otherwise
    """

    def __init__(self, n_clients: int, round_: int, n_features: int | None = None) -> None:
        self.axes, self.round = {"N": n_clients}, round_
        if n_features is not None:
            self.axes["features"] = n_features
        self.finite = round_ > 0  # before the first round nothing may be known
        self.positions: list[tuple[str, NDArray[Any], str]] = []

    def check(self, value: object, hint: object, where: str) -> None:
        """Raise where the value, or one in it, is none that its type and form allow."""
        self._value(value, hint, Form(), where)
        for name, array, axis in self.positions:
            length = self.axes.get(axis, 0)
            if array.size and array.max() >= length:
                raise ValueError(f"{name} has the position {array.max()} among {length}")
        self.positions.clear()

    def _value(self, value: object, hint: object, form: Form, where: str) -> None:
        hint, form = _opened(hint, form)
        value = np.asarray(value) if isinstance(value, np.generic) else value
        kind, inside = get_origin(hint), get_args(hint)
        if kind in (Union, types.UnionType):
            # None, or a value of a type that a file can tell apart
            if value is None and type(None) in inside:
                return
            rest = [hint for hint in inside if hint is not type(None)]
            fitting = [hint for hint in rest if isinstance(hint, type) and isinstance(value, hint)]
            self._value(value, (fitting or rest)[0], form, where)
        elif type(value) in FIELDS:
            self._record(value, _class(hint), where)
        elif kind is tuple or (hint is Any and isinstance(value, tuple)):
            self._tuple(value, inside, form, where)
        elif kind in (dict, Mapping) or (hint is Any and isinstance(value, dict)):
            if not isinstance(value, dict):
                raise _other(where, dict, value)
            for key, part in value.items():
                self._value(part, inside[1] if inside else Any, form, f"{where}[{key!r}]")
        elif kind is np.ndarray:
            self._array(value, _dtype(hint), form, where)
        elif (known := _class(hint)) is not None:
            self._plain(value, known, form, where)

    def _record(self, value: object, needed: type | None, where: str) -> None:
        if needed is not None and not isinstance(value, needed):
            raise _other(where, needed, value)
        hints = hints_of(type(value))
        for name in FIELDS[type(value)]:
            self._value(getattr(value, name), hints[name], Form(), f"{where}.{name}")

    def _tuple(self, value: object, inside: tuple[Any, ...], form: Form, where: str) -> None:
        if not isinstance(value, tuple):
            raise _other(where, tuple, value)
        every = (inside[0],) * len(value) if inside[1:] == (Ellipsis,) else inside
        if inside and len(every) != len(value):
            raise ValueError(f"{where} has {len(value)} parts and needs {len(every)}")
        for k, part in enumerate(value):
            self._value(part, every[k] if inside else Any, form, f"{where}[{k}]")

    def _array(self, value: object, number: object, form: Form, where: str) -> None:
        if not isinstance(value, np.ndarray):
            raise _other(where, np.ndarray, value)
        if form.shape is not None:
            # a type only may be a loose word of the author of an algorithm
            if number is not None and value.dtype != number:
                raise ValueError(f"{where} holds {value.dtype} numbers, and must hold {number}")
            self._shape(value, [axis.strip() for axis in form.shape.split(",") if axis], where)
            self._numbers(value, form, where)
        elif value.dtype.kind in "fc":
            self._numbers(value, form, where)

    def _plain(self, value: object, kind: type, form: Form, where: str) -> None:
        """A number, a text, a truth, a member of an enumeration."""
        value = value.item() if isinstance(value, np.ndarray) and not value.ndim else value
        if kind is float and type(value) is int:
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise _other(where, kind, value)
        if kind in (int, float):
            self._numbers(np.asarray(value), form, where)

    def _numbers(self, value: NDArray[Any], form: Form, where: str) -> None:
        """Numbers in range: finite, or whole and from the least to the most."""
        if value.dtype.kind not in "iu":
            odd = ~np.isfinite(value)
            odd &= ~((form.infinite & np.isinf(value)) | (form.nan & np.isnan(value)))
            if self.finite and odd.any():
                raise ValueError(f"{where} holds {value[odd].flat[0]}")
            return
        must = self.round + (form.rounds or 0)
        if form.rounds is not None and self.round and value != must:
            raise ValueError(f"{where} is {value} after round {self.round}, and must be {must}")
        most = self.round if form.most == "rounds" else self.axes.get(form.most or "", math.inf)
        if value.size and not form.least <= value.min() <= value.max() <= most:
            given = f"{where} holds {value.min()} to {value.max()}"
            raise ValueError(f"{given}, and must be in {form.least}..{most}")
        if form.below is not None:
            self.positions.append((where, value, form.below))

    def _shape(self, value: NDArray[Any], axes: list[str], where: str) -> None:
        more, axes = axes[-1:] == ["..."], [axis for axis in axes if axis != "..."]
        fits = value.ndim >= len(axes) if more else value.ndim == len(axes)
        # before the first round a model can be empty, as its length is not known
        if fits and (self.round or value.size):
            pairs = zip(value.shape, axes, strict=False)
            fits = all(any(self._is_long(n, sum_) for sum_ in axis.split("|")) for n, axis in pairs)
        if not fits:
            known = ", ".join(f"{name} = {size}" for name, size in self.axes.items())
            must = f"({', '.join(axes)}) with {known}"
            raise ValueError(f"{where} has shape {value.shape}, and must be {must}")

    def _is_long(self, size: int, axis: str) -> bool:
        """Whether an axis, a sum of names, products of two and numbers, has this length, which is
        noted where it is not known yet.
        """
        parts = axis.replace(" - ", " + -").split(" + ")
        numbers = [part for part in parts if part.lstrip("-").isdigit()]
        names = [part for part in parts if part not in numbers]
        unknown = [part for part in names if not {*part.split(" * ")} <= {*self.axes}]
        products = (math.prod(self.axes.get(n, 0) for n in part.split(" * ")) for part in names)
        known = sum(map(int, numbers)) + sum(products)
        if len(unknown) == 1 and " * " in unknown[0]:
            return size >= known
        if len(unknown) == 1 and size >= known:
            self.axes[unknown[0]] = size - known
            return True
        return len(unknown) > 1 or size == known


@functools.cache
def hints_of(cls: type) -> dict[str, Any]:
    """The types of the fields of a record, with their annotations."""
    return get_type_hints(cls, include_extras=True)


def _opened(hint: object, form: Form) -> tuple[object, Form]:
    """A type without its annotations, and the form among them; what an alias stands for."""
    if get_origin(hint) is Annotated:
        bare, *marks = get_args(hint)
        return _opened(bare, next((mark for mark in marks if isinstance(mark, Form)), form))
    # NumPy's NDArray is such an alias from Python 3.12 on
    if (value := getattr(get_origin(hint) or hint, "__value__", None)) is not None:
        return _opened(value[get_args(hint)] if get_args(hint) else value, form)
    return hint, form


def _class(hint: object) -> type | None:
    """The class that a value of this type has; None where the type does not say one."""
    return hint if isinstance(hint, type) and hint not in (Any, object) else None


def _dtype(hint: object) -> np.dtype[Any] | None:
    """The kind of numbers in arrays of this type, if it says one."""
    parts = get_args(hint)
    numbers = get_origin(hint) is np.ndarray and len(parts) == 2
    kinds: tuple[Any, ...] = get_args(parts[1]) if numbers else ()
    known = kinds and isinstance(kinds[0], type) and kinds[0] not in (np.generic, np.number)
    return np.dtype(kinds[0]) if known else None


def _other(where: str, hint: type, value: object) -> ValueError:
    shown = value.name if isinstance(value, enum.Enum) else repr(value)[:40]
    return ValueError(f"{where} must be of type {hint.__name__}, got {shown}")
