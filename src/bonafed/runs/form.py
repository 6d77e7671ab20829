"""The form of what a run's folder holds: which keys, of which type, in which range.

Every record of a folder has a `Form`, which stands with the code that makes the record. A folder is
checked once, when it is read: anyone who uses it later finds every key that it needs with a value
of its type. Whether keys fit each other shows where they are used (`bonafed.runs.files.used`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)
from pydantic_core import ErrorDetails

from bonafed.rounds import Stop
from bonafed.runs.files import FormError

FAR = 1e150  # squares of such numbers are finite
SHOWN = 60  # letters of a value that an error shows
WORDS = {  # pydantic's kinds of errors -> what is needed
    "float_type": "a number",
    "finite_number": "a finite number",
    "int_type": "a whole number",
    "int_parsing_size": f"a whole number of at most {FAR:g}",
    "string_type": "text",
    "string_unicode": "text",
    "string_pattern_mismatch": "text of another form",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "none_required": "null",
}


def _number_in_json(value: object) -> object:
    if value in ("inf", "-inf"):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= FAR:
        return value
    raise ValueError('a finite number, "inf" or "-inf"')


def one_of(names: Sequence[str]) -> AfterValidator:
    """The type of a text that is one of some names."""

    def known(value: str) -> str:
        if value not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return value

    return AfterValidator(known)


def _inside(name: str) -> str:
    """The name of a file that lies inside the folder."""
    path = PurePosixPath(name)
    plain = name.isprintable() and "\\" not in name and path.as_posix() == name
    if not plain or path.is_absolute() or ".." in path.parts or ":" in name or name == ".":
        raise ValueError("the name of a file inside the folder")
    return name


Number = Annotated[float, Field(ge=-FAR, le=FAR)]
NonNegative = Annotated[float, Field(ge=0, le=FAR)]
Positive = Annotated[float, Field(gt=0, le=FAR)]
Share = Annotated[float, Field(ge=0, le=1)]
Extended = Annotated[Any, AfterValidator(_number_in_json)]  # infinite ones are text in JSON
Whole = Annotated[int, Field(ge=0, le=2**62)]
Count = Annotated[int, Field(ge=1, le=2**62)]
Digest = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
ShortDigest = Annotated[str, StringConstraints(pattern="^[0-9a-f]{32}$")]
FileName = Annotated[str, AfterValidator(_inside)]
StopName = Annotated[str, one_of([stop.value for stop in Stop])]
Direction: TypeAlias = Literal["up", "down"]


def optional() -> Any:
    """The default of a key that may be absent; where it stands its value is of its type."""
    return Field(default=None)


def at_least(n: int) -> Any:
    """The length of a list or an object."""
    return Field(min_length=n)


class Form(BaseModel):
    """The form of an object: no unknown keys, no guessed types, no infinite numbers."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        defer_build=True,  # a run has few of them
    )


def check_form(file: Path, value: Mapping[str, Any], form: type[Form], inside: str = "") -> None:
    """Raise ``FormError`` where an object of a file is not of its form; ``inside`` is where in the
    file the object stands.
    """
    try:
        form.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise damaged(file, _in_words(first, value, inside)) from None


def damaged(file: Path, what: str) -> FormError:
    """The error of a file that is not as a run writes it."""
    return FormError(f"{file} is damaged: {what}")


def shown(value: object) -> str:
    """A value as an error names it: one line, and not long."""
    if isinstance(value, list | Mapping):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    text = ascii(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def _in_words(error: ErrorDetails, value: object, inside: str) -> str:
    """Which key is wrong, what was given and what is needed."""
    kind, place = error["type"], inside
    for part in error["loc"]:
        keys = value if isinstance(value, Mapping) else ()
        if part in (range(len(value)) if isinstance(value, list) else keys):
            place, value = _at(place, part), value[part]  # type: ignore[index]
        elif kind == "missing":
            return f"{_at(place, part)} is missing"
    if kind == "extra_forbidden":
        return f"{place} is unknown"
    cause = error.get("ctx", {}).get("error")
    needed = WORDS.get(kind) or str(cause or error["msg"])
    for words in ("Input should be ", "String should ", "List should ", "Dictionary should "):
        needed = needed.removeprefix(words)
    return f"{place or 'it'} is {shown(value)}; needed: {needed}"


def _at(place: str, part: str | int) -> str:
    """The place of a key, or of an entry of a list, as in clients[2].loss."""
    if isinstance(part, int):
        return f"{place}[{part}]"
    key = part if part.isidentifier() and len(part) <= SHOWN else shown(part)
    return f"{place}.{key}" if place else key
