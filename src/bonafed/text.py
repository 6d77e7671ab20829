"""Text that other people wrote, such as names of clients, shown to a person: on one line, not too
long, and as HTML without a tag of theirs. And the words that several errors share, and warnings.
"""

import errno
import re
import sys
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from html import escape

Facts = Iterable[tuple[str, str]]  # what something is, and its value in words
LINE = 240  # characters of a line that describes an object


# signs that nobody sees: soft hyphens, signs without a width or that turn the reading direction,
# variants of signs (those that Unicode lets a reader ignore)
UNSEEN = re.compile(
    "[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)


def warn(text: str, category: type[Warning]) -> None:
    """Warn at the line that called the library, or scikit-learn with an estimator of it."""
    level, frame, ours = 1, sys._getframe(), ("bonafed.", "contextlib", "sklearn.")
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(ours):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def within(module: str) -> bool:
    """Whether a function of a module is among those that called this one."""
    frame = sys._getframe()
    while frame.f_back and not frame.f_globals.get("__name__", "").startswith(module):
        frame = frame.f_back
    return frame.f_back is not None


def plain(text: str) -> str:
    r"""A name or a cell as people read it, so that two that look alike are one: in Unicode's form
    NFC, without signs that nobody sees, every kind of space a plain one, and none at the ends.

    Examples
    --------
    >>> from bonafed.text import plain
    >>> plain("Ko\u0308ln\u200b") == plain("\u00a0K\u00f6ln")
    True
    """
    if text.isascii() and text.isprintable():
        return text.strip()
    seen = unicodedata.normalize("NFC", UNSEEN.sub("", text))
    return "".join(c if c in "\r\n\t" or not c.isspace() else " " for c in seen).strip()


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


def counted(number: int, noun: str) -> str:
    """A number of things, such as "1 round" or "2 rounds"."""
    return f"{number} {noun}{'s' * (number != 1)}"


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


# what is wrong with a file or a folder where the system refuses it, and what to do
SYSTEM = {
    errno.ENOENT: "it, or a folder on the way to it, is not there: correct the path",
    errno.ENOTDIR: "the way to it leads through a file: correct the path",
    errno.EISDIR: "it is a folder: name a file in it",
    errno.EEXIST: "it is there already: name another one, or delete it",
    errno.EACCES: "this user may not read or write it: change its rights, or take another place",
    errno.ENAMETOOLONG: "the system takes no name that is so long: take a shorter one",
    errno.ENOSPC: "the disk is full: free some space",
}


def system(error: OSError) -> str:
    """What an error of the system means and what to do, in words."""
    return SYSTEM.get(error.errno or 0) or error.strerror or str(error)


@contextmanager
def in_words(path: object) -> Iterator[None]:
    """Errors of the system about a file that a user named, in words and without their number."""
    try:
        yield
    except OSError as error:
        raise type(error)(f"{str(path)!r}: {system(error)}.") from error


def install(extra: str) -> str:
    """How an optional part is installed until bonafed is released."""
    return f"pip install '.[{extra}]' in a checkout of bonafed"
