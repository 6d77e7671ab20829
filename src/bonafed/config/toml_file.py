"""TOML files held against a schema, keys and values as TOML writes them, and the errors of a file:
the line, the key by its dotted path, the value there, and what is allowed instead.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bonafed.config.schema import Section
from bonafed.text import shown, system

Model = TypeVar("Model", bound=Section)


def text_of(path: Path, what: str, command: str) -> str:
    """The text of a file; ``what`` it is called in errors, and ``command`` writes such a file.

    Raises
    ------
    ConfigError : there is no such file, or it cannot be read as UTF-8
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no {what} {str(path)!r}: correct its path, or write one with `{command}`"
        ) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"the {what} {str(path)!r}, line {line}, is not text in UTF-8: save the file as UTF-8"
        ) from error
    except OSError as error:
        raise ConfigError(f"cannot read the {what} {str(path)!r}: {system(error)}") from error


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
        raise ConfigError(f"{where}, {_not_toml(text, str(error))}") from error
    raw |= {key: value for key, value in changes.items() if value is not None}
    return checked(model, raw, text, f"{where}, "), raw


PATHS = "'/' between the folders of a path, or single quotes round it"
# how the errors of tomllib begin, and what is needed where they arise
NEEDED = {
    "Expected": "a key, then '=', then a value, such as target = \"sick\"",
    "Expected ']' at": "']' after the name of a table, such as [data]",
    "Expected newline": "nothing more on this line after the value",
    "Invalid value": "a value: text in straight quotes, a number, true, false or a list",
    "Invalid statement": "a key, '=' and a value, or the name of a table such as [data]",
    "Invalid initial": "a key of letters, digits, '-' and '_', or one in quotes",
    "Unclosed": "a comma or the closing bracket after each entry, here or in a line above",
    "Illegal": "a closing quote on the same line",
    "Unterminated": "a closing quote on the same line",
    "Cannot": "every key and every table once: this one is in a line above too",
    "Duplicate": "every key once: this one is there already",
    "Unescaped": PATHS,
    "Invalid hex": PATHS,
}


def _not_toml(text: str, error: str) -> str:
    """A line that is not TOML, what is needed there, and what to do."""
    said, _, place = error.partition(" (at ")
    lines, at = text.splitlines() or [""], re.match(r"line (\d+)", place)
    number = min(int(at[1]) if at else len(lines), len(lines))
    begins = [start for start in NEEDED if said.startswith(start)]
    needed = NEEDED[max(begins, key=len)] if begins else said
    line = shown(lines[number - 1].strip())
    return f"line {number} is not TOML: {line}. Needed: {needed}. Correct this line"


def checked(model: type[Model], raw: Mapping[str, Any], text: str = "", where: str = "") -> Model:
    """The tables, which stand in a ``text``; errors begin with ``where``."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        lines = lines_in_words(error.errors(), raw, text, model)
        texts = [" ".join(f"{where}{line}".splitlines()) for line in dict.fromkeys(lines)]
        raise ConfigError("\n".join(texts)) from None


# ------------------------------------------------------------------------------------------- errors

Place = tuple[str | int, ...]
WORDS = {  # pydantic's kinds of errors -> what is allowed
    **{"float_type": "a number", "int_type": "an integer", "int_from_float": "an integer"},
    **{"bool_type": "true or false", "string_type": "text", "dict_type": "a table by name"},
    **{"list_type": "a list", "tuple_type": "a list"},
    **dict.fromkeys(("string_too_short", "string_pattern_mismatch"), "text that is not blank"),
    **{"too_short": "more entries", "too_long": "fewer entries"},
}


class ConfigError(ValueError):
    """A configuration that cannot be run; the text has one line for each problem."""


class Refusal(str):
    """Why a configuration cannot be run, in words; ``place`` is the key that it is about, and
    ``methods`` are methods that take the problem.
    """

    place: Place = ()
    methods: tuple[str, ...] = ()

    def __new__(cls, text: str, *place: str | int) -> "Refusal":
        refusal = super().__new__(cls, text)
        refusal.place = place
        return refusal

    @classmethod
    def at(cls, text: str) -> "Refusal":
        """A refusal about the key that the text begins with."""
        named = re.match(r"\[?([\w.]+)", text)
        return cls(text, *(named[1].split(".") if named else ()))


def lines_in_words(
    errors: Sequence[ErrorDetails], raw: object, text: str, root: type[BaseModel]
) -> Iterator[str]:
    """The problems of a file in words, each with line, key, value, allowed values; what a key with
    several types allows is one line.
    """
    for place, same in groupby(errors, key=lambda error: tuple(_walk(error["loc"], raw))):
        first, *others = alike = [*same]
        causes = [error.get("ctx", {}).get("error") for error in alike]
        stated = [cause.args if isinstance(cause, ValueError) else () for cause in causes]
        found = [(e, why) for e, all_ in zip(alike, stated, strict=True) for why in all_ or (None,)]
        if others and place and all(e["type"] not in ("extra_forbidden", "missing") for e in alike):
            allowed = ", or ".join(dict.fromkeys(map(_allowed, alike)))
            found = [(first, Refusal(f"got {first['input']!r}; allowed: {allowed}"))]
        for error, refusal in found:
            known = isinstance(refusal, Refusal)
            about = refusal.place if known else ()
            steps = tuple(_walk((*error["loc"], *about), raw)) or about
            line, path = line_of(text, steps), [part for part in steps if isinstance(part, str)]
            where = f"{'' if line is None else f'line {line}, '}{'.'.join(path) or 'the file'}"
            yield f"{where}: {refusal if known else _in_words(error, path, root)}"


def _in_words(error: ErrorDetails, path: Sequence[str], root: type[BaseModel]) -> str:
    """What is wrong with the value of one key, where pydantic says so."""
    kind, value, context = error["type"], error.get("input"), error.get("ctx", {})
    if kind == "extra_forbidden":
        return unknown(path[-1], _keys(root, path[:-1]))
    if kind == "missing":
        *above, key = error["loc"]
        return f"{f'`{key}`' if above else f'[{key}]'} is missing: it is required"
    if kind == "literal_error":
        allowed = re.split(r", | or ", context["expected"])
        return not_among(value, [part.strip("'") for part in allowed])
    text = str(context.get("error") or f"allowed: {_allowed(error)}")
    if kind == "value_error" and isinstance(value, Mapping) and not text.startswith("allowed"):
        return text
    return f"got {value!r}; {text}"


def value_refused(error: ValidationError, value: object) -> str:
    """What is given for one key, and what its type allows; of a table by client the first entry
    that is refused.
    """
    errors = error.errors(include_url=False)
    tables = value if isinstance(value, Mapping) else {}
    for one in errors:
        name = next((part for part in one["loc"] if part in tables), None)
        if name is not None and not _table_in(one):
            return f"client {name!r} has {tables[name]!r}; allowed: {_allowed(one)}"
    return f"got {value!r}; allowed: {', or '.join(dict.fromkeys(map(_allowed, errors)))}"


def _allowed(error: ErrorDetails) -> str:
    """What is allowed where pydantic refuses a value, in words."""
    if table := _table_in(error):
        return table
    kind, each = error["type"], "a list, each " * sum(isinstance(k, int) for k in error["loc"])
    context = error.get("ctx", {})
    named = context.get("expected") if kind == "literal_error" else context.get("class_name")
    limit = error["msg"].replace("Input should be ", "a number " * kind.endswith(("than", "equal")))
    return each + (named or WORDS.get(kind) or limit)


def _table_in(error: ErrorDetails) -> str:
    """The table, named by the keys that it may have, inside of which an error is."""
    parts = (part for part in error["loc"] if isinstance(part, str) and part.startswith("{"))
    return next(parts, "")


def unknown(key: str, keys: Sequence[str]) -> str:
    """That a table has no such key."""
    return f"unknown key{near(key, keys)}. Allowed: {', '.join(keys)}"


def not_among(value: object, allowed: Sequence[object]) -> str:
    """That a value is none of the allowed ones."""
    hint = near(value, [*map(str, allowed)])
    return f"got {value!r}{hint}. Allowed: {', '.join(map(repr, allowed))}"


def _walk(loc: Iterable[str | int], raw: object) -> Iterator[str | int]:
    """The location as keys of the file and positions in lists of tables: without pydantic's names
    of union members.
    """
    for part in loc:
        if isinstance(raw, Mapping) and part in raw:
            yield str(part)
            raw = raw[part]
        elif isinstance(raw, list) and isinstance(part, int) and isinstance(raw[part], Mapping):
            yield part
            raw = raw[part]


def _keys(root: type[BaseModel], path: Sequence[str]) -> list[str]:
    """The keys that the table at ``path`` may have."""
    model: Any = root
    for part in path:
        fields = model.model_fields.items()
        kinds = {field.alias or name: field.annotation for name, field in fields}
        several = (kinds.get(part), *get_args(kinds.get(part)))
        model = next((kind for kind in several if hasattr(kind, "model_fields")), None)
        if model is None:
            return []
    return model.keys()


def one_of(names: Iterable[object], last: str) -> str:
    """Names in quotes, as in "'a', 'b' or 'c'"."""
    *first, end = map(repr, names)
    return f"{', '.join(first)}{last}{end}" if first else end


def near(value: object, allowed: Sequence[str], question: str = " (did you mean {!r}?)") -> str:
    """A suggestion where one of the allowed names is close to a value, otherwise nothing."""
    close = difflib.get_close_matches(str(value), allowed, 1)
    return question.format(close[0]) if close else ""


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    """The line of the key at ``path``, or of the nearest table round it; a number says which of
    [[several]] tables.
    """
    header, best, depth = (), None, 0
    seen: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            header = here = _dotted(stripped.strip("[]").split("#")[0].rstrip(" ]"))
            if stripped.startswith("[["):
                seen[here] = seen.get(here, -1) + 1
                header = here = (*here, seen[here])
        elif "=" in stripped and not stripped.startswith("#"):
            here = (*header, *_dotted(stripped.split("=")[0]))
        else:
            continue
        if here and len(here) > depth and here == tuple(path[: len(here)]):
            best, depth = number, len(here)
    return best


def _dotted(key: str) -> tuple[str, ...]:
    """A dotted, perhaps quoted key as its parts."""
    try:
        value, parts = tomllib.loads(f"{key} = 0"), []
    except tomllib.TOMLDecodeError:
        return ()
    while isinstance(value, dict):
        (key, value), *_ = value.items()
        parts.append(key)
    return tuple(parts)


# ------------------------------------------------------------------------------------------ written


def toml_line(key: str, value: object) -> str:
    """A line of TOML."""
    return f"{key} = {toml_value(value)}"


def toml_value(value: object) -> str:
    """A value as TOML writes it."""
    import tomli_w

    if isinstance(value, list | tuple):  # on one line
        return f"[{', '.join(map(toml_value, value))}]"
    return tomli_w.dumps({"v": value}).removeprefix("v = ").strip().replace("\t", "\\t")


def toml_key(name: str) -> str:
    """A key as TOML writes it, in quotes where it needs them."""
    import tomli_w

    return tomli_w.dumps({name: 0}).removesuffix(" = 0\n")
