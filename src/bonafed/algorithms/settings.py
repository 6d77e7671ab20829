"""Checks that the algorithms share: each raises an error that says what a setting must be."""

from __future__ import annotations

import math

import numpy as np

from bonafed.arrays import is_number


def check_positive(
    method: object, *names: str, remedy: str = "Leave it out for the default."
) -> None:
    """Raise ``ValueError`` unless these settings are finite numbers > 0, or None by default."""
    for name in names:
        value = getattr(method, name)
        if not (is_number(value) and 0 < value < math.inf) and not _left_out(method, name):
            raise ValueError(f"{name} must be a positive number, got {value!r}. {remedy}".rstrip())


def check_finite(method: object, *names: str, least: float = 0.0) -> None:
    """Raise ``ValueError`` unless these settings are finite numbers >= ``least``."""
    for name in names:
        value = getattr(method, name)
        if not (is_number(value) and math.isfinite(value) and value >= least):
            bound = f" >= {least:g}" if math.isfinite(least) else ""
            raise ValueError(f"{name} must be a number{bound}, got {value!r}.")


def check_whole(method: object, *names: str, least: int = 1, meaning: str = "") -> None:
    """Raise ``ValueError`` unless these settings are whole numbers >= ``least``, or None by
    default.
    """
    for name in names:
        value = getattr(method, name)
        whole = is_number(value) and math.isfinite(value) and value == int(value)
        if not (whole and value >= least) and not _left_out(method, name):
            raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}{meaning}.")


def _left_out(method: object, name: str) -> bool:
    """Whether a setting is None, as it is by default."""
    return getattr(method, name) is None and getattr(type(method), name) is None


def check_least(method: object, *names: str, least: float = 1, meaning: str = "") -> None:
    """Raise ``ValueError`` unless these settings are numbers >= ``least``."""
    for name in names:
        if not (value := getattr(method, name)) >= least:
            raise ValueError(f"{name} must be >= {least}, got {value!r}{meaning}.")


def check_count(name: str, value: int, least: int = 1) -> None:
    """Raise ``ValueError`` unless a value is an integer >= ``least``."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}.")


def check_share(method: object, name: str, remedy: str) -> None:
    """Raise ``ValueError`` unless a setting is a number in (0, 1], or None by default."""
    value = getattr(method, name)
    if not (is_number(value) and 0 < value <= 1) and not _left_out(method, name):
        raise ValueError(f"{name} must be a share in (0, 1], got {value!r}. {remedy}")


def check_flags(method: object, *names: str) -> None:
    """Raise ``TypeError`` unless these settings are True or False."""
    for name in names:
        if not isinstance(value := getattr(method, name), bool):
            raise TypeError(f"{name} must be True or False, got {value!r}.")


def check_choice(method: object, **allowed: tuple[object, ...]) -> None:
    """Raise ``ValueError`` unless every setting is one of the values that it may have."""
    for name, values in allowed.items():
        if not isinstance(value := getattr(method, name), str | None) or value not in values:
            listed = ", ".join(map(str, values))
            raise ValueError(f"{name} must be one of {listed}, got {value!r}.")


def check_end(method: object, *tolerances: str) -> None:
    """Raise ``ValueError`` unless these tolerances are numbers >= 0 and ``max_rounds`` is >= 1."""
    numbers = [getattr(method, name) for name in (*tolerances, "max_rounds")]
    fine = all(is_number(number) and number >= 0 for number in numbers)
    if not fine or numbers[-1] < 1:
        raise ValueError(
            f"{', '.join(tolerances)} must be >= 0 and max_rounds >= 1, got"
            f" {', '.join(map(repr, numbers))}."
        )
