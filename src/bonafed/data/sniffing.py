"""In which encoding the text of a file is, and what stands between its cells."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bonafed.data.files import bytes_of

DELIMITERS = (",", ";", "\t", "|")
MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
MARKED = "it begins with a byte-order mark"
PIECE = 2**20  # bytes that are looked at together
LINES = 200  # that are looked at for the delimiter


def encoding_of(path: Path) -> tuple[str, str]:
    """(the encoding, why): "ascii" where every encoding will do.

    Text that is not UTF-8 is taken for Windows-1252 if it has signs that Latin-1 lacks.
    """
    with bytes_of(path) as file:
        piece = file.read(PIECE)
        for mark, encoding in MARKS.items():
            if piece.startswith(mark):
                return encoding, MARKED
        decoder, plain, windows = codecs.getincrementaldecoder("utf-8")(), True, False
        unicode = True
        while piece:
            plain = plain and piece.isascii()
            windows = windows or (not piece.isascii() and any(0x80 <= b < 0xA0 for b in piece))
            try:
                decoder.decode(piece)
            except UnicodeDecodeError:
                unicode = False
            piece = file.read(PIECE)
        if plain:
            return "ascii", "plain letters only"
        try:
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            unicode = False
    if unicode:
        return "utf-8", "its letters are those of UTF-8"
    if windows:
        return "cp1252", "it is not UTF-8, and has signs of Windows-1252"
    return "latin-1", "it is not UTF-8"


def delimiter_and_header(lines: Sequence[str]) -> tuple[str, list[str]]:
    """What stands between the cells of these lines, and the names in the first: that which splits
    most of them into as many cells as the first, and into the most.
    """
    kept = [line for line in lines if line.strip()]
    if kept and (stated := re.fullmatch(r"sep=(.)\s*", kept[0])):
        return stated[1], _header(kept[1:], stated[1])
    best, most = ",", (0.0, 0)
    for sign in DELIMITERS:
        with suppress(csv.Error):
            widths = [len(r) for r in csv.reader(kept, delimiter=sign, skipinitialspace=True)]
            alike = Counter(widths)[widths[0]] / len(widths) if widths else 0.0
            if widths and widths[0] > 1 and (alike, widths[0]) > most:
                best, most = sign, (alike, widths[0])
    return best, _header(kept, best)


def _header(lines: Sequence[str], sign: str) -> list[str]:
    with suppress(csv.Error):
        for cells in csv.reader(lines, delimiter=sign, skipinitialspace=True):
            return [" ".join(cell.split()) for cell in cells]
    return []
