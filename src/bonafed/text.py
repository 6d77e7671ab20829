"""Text that other people wrote, such as names of clients, shown to a person: on one line, not too
long, and as HTML without a tag of theirs. And the words that several errors share.
"""

from collections.abc import Iterable, Mapping
from html import escape

Facts = Iterable[tuple[str, str]]  # what something is, and its value in words
LINE = 240  # characters of a line that describes an object


def printable(text: str) -> str:
    """The text on one line, without control characters, terminal codes, signs without a width and
    signs that turn the reading direction: the name of a client may hold anything.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)


def short(text: str, most: int) -> str:
    """The text with at most so many characters: from a longer one the middle is left out."""
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[: most - 1 - half]}…{text[len(text) - half :]}"


def shown(value: object, most: int = 100) -> str:
    """The ``repr`` of a value on one line of at most so many characters."""
    return short(printable(" ".join(repr(value).split())), most)


def listed(names: Iterable[object], count: int, most: int = 4) -> str:
    """The first of several names, each of at most 24 characters, and how many more there are."""
    first = [short(printable(str(name)), 24) for name, _ in zip(names, range(most), strict=False)]
    return ", ".join(first) + (f" and {count - most:,} more" if count > most else "")


def first_true(texts: Mapping[str, object]) -> str:
    """The first of several sentences whose condition holds; empty where none does."""
    return next((text for text, holds in texts.items() if holds), "")


def all_true(texts: Mapping[str, object]) -> list[str]:
    """The sentences whose condition holds."""
    return [text for text, holds in texts.items() if holds]


def described(title: str, facts: Facts) -> str:
    """A title and one line for each fact, each line of at most ``LINE`` characters."""
    lines = [title, *(f"  {name}: {value}" for name, value in facts)]
    return "\n".join(short(printable(line), LINE) for line in lines)


def card(title: str, facts: Facts) -> str:
    """The same as an HTML table, for notebooks; every text is escaped."""
    left = ' style="text-align: left"'
    cells = ((_cell(name), _cell(value)) for name, value in facts)
    rows = "".join(f"<tr><th{left}>{a}</th><td{left}>{b}</td></tr>" for a, b in cells)
    return f"<table><caption{left}><b>{_cell(title)}</b></caption>{rows}</table>"


def _cell(text: str) -> str:
    return escape(short(printable(text), LINE))


def install(extra: str) -> str:
    """How an optional part is installed until bonafed is released."""
    return f"pip install '.[{extra}]' in a checkout of bonafed"
