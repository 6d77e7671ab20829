"""TOML files held against a schema; an error names the file, the line and the key."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from bonafed.config.errors import ConfigError, lines_in_words
from bonafed.config.schema import Section

Model = TypeVar("Model", bound=Section)


def text_of(path: Path, what: str, command: str) -> str:
    """The text of a file; ``what`` it is called in errors, and ``command`` writes such a file.

    Raises
    ------
    ConfigError : there is no such file, or it cannot be read as UTF-8
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no {what} {str(path)!r}: correct its path, or write one with `{command}`"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the {what} {str(path)!r}: {error}") from error


def validated(
    model: type[Model], text: str, where: str, **changes: object
) -> tuple[Model, dict[str, Any]]:
    """The tables that a text states, checked and as they stand there; top-level keys are replaced
    by ``changes`` that are not None.

    Raises
    ------
    ConfigError : the text is not TOML, or has unknown keys or wrong values, a line for each
    """
    try:
        raw = tomllib.loads(text)
    except RecursionError as error:
        raise ConfigError(f"{where} is not TOML: its lists lie too deep in each other") from error
    except ValueError as error:  # of its grammar, or of a number with thousands of digits
        raise ConfigError(f"{where} is not TOML: {error}") from error
    raw |= {key: value for key, value in changes.items() if value is not None}
    return checked(model, raw, text, f"{where}, "), raw


def checked(model: type[Model], raw: Mapping[str, Any], text: str = "", where: str = "") -> Model:
    """The tables, which stand in a ``text``; errors begin with ``where``."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        lines = lines_in_words(error.errors(), raw, text, model)
        texts = [" ".join(f"{where}{line}".splitlines()) for line in dict.fromkeys(lines)]
        raise ConfigError("\n".join(texts)) from None
