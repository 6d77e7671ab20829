"""What `bonafed init` proposes for tables: the keys of [data], each with its reason, and the table
that shows every column.
"""

import re
import textwrap
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bonafed.config.config import parse_config
from bonafed.config.toml_file import toml_key, toml_line, toml_value
from bonafed.data import differences, profile
from bonafed.data.differences import Found
from bonafed.data.reading import KINDS, kind_named
from bonafed.data.tables import MISSING, is_number, present
from bonafed.runs.sections.checks import between_clients
from bonafed.runs.splits import prepare
from bonafed.starters.look import Look
from bonafed.text import printable

WIDTH = 80  # columns of a terminal
USED = ("number", "comma", "code", "category", "apart")  # and the kinds of `KINDS`
NUMBERS = ("number", "comma", "apart", "index")
SHOWN = {"comma": "number", "apart": "number"}
TINY = 20  # rows of a client
# of a configuration that reads rows, by the number of classes: none, -, two, several
LOSSES = ('loss = "huber"', "", 'loss = "logistic"', 'loss = "multinomial"\nmodel = "softmax"')
FEW = 3  # rows below which a category of a small table is pooled
ANSWERED = {
    "labels": "Is the outcome coded the other way round there? Then correct the table.",
    "units": "If so, convert the column in that client's table, or add it to `exclude`.",
    "codes": "If so, write them alike in the tables, or, if each stands for this, take:",
    "sentinel": "",
    "persons": "Keep each person at one client; so that no split parts their rows, take:",
    "names": "If so, take:",
}


class Line(NamedTuple):
    """A line of the table of columns."""

    column: str
    kind: str
    missing: str
    values: str
    proposal: str


# --------------------------------------------------------------------------------- [data] as text


def data_keys(look: Look) -> str:
    """The keys of [data] that the look at the tables proposes, with their reasons."""
    written = [_stated(line, why) for line, why in _written(look)]
    for name, texts in look.odd.items():
        what = f"{name!r} has numbers or dates, but {look.places(name, texts)}: correct such a"
        written += _comment(f"{what} cell, or it counts as missing.")
    if look.accepted:
        missing = toml_line("missing", [*look.accepted])
        written.append(_stated(missing, "they stand for a missing cell"))
    return "\n".join([*_roles(look), *written, *_columns(look), *_notes(look)])


def _whose(look: Look) -> list[str]:
    """The keys of the client and the target."""
    roles = look.roles
    client = "# all rows are those of one client" if look.asked.alone else "# one file per client"
    if roles.client is not None:
        client = _stated(toml_line("client", roles.client), roles.why("client"))
    return [client, _stated(toml_line("target", roles.target), roles.why("target"))]


def _roles(look: Look) -> Iterator[str]:
    roles, sizes = look.roles, look.sizes.values()
    yield from _whose(look)
    if look.classes:
        counted = [f"{_cut(name, 20)} in {n:,} rows" for name, n in look.classes.items()]
        yield from _comment(f"{len(counted)} classes: {', '.join(counted[:12])}.")
    yield from positive(look)
    if absent := look.target.absent:
        words = "".join(f", {_cut(t, 30)} in {n:,}" for t, n in look.target.tokens.items())
        yield _stated("drop_missing_target = true", f"{absent:,} rows have none{words}")
    if look.unnamed:
        yield _stated("drop_missing_client = true", f"{look.unnamed:,} rows have none")
    yield from _merges(str(roles.client), look.client_merge)
    yield from _merges(roles.target, look.target_merge)
    if len(sizes) > 1:
        yield from _comment(f"{len(sizes):,} clients of {min(sizes):,} to {max(sizes):,} rows.")


def positive(look: Look) -> Iterator[str]:
    """The class that figures are about, of two."""
    if len(look.classes) != 2:
        return
    (larger, most), (smaller, least) = look.classes.items()
    which, why = 1, f"the rarer class: {100 * least / (most + least):.1f} % of the rows"
    answers = profile.fold(smaller) in profile.NO and profile.fold(larger) in profile.YES
    if answers or (differences.is_absence(smaller) and not differences.is_absence(larger)):
        which, why = 0, f"{_cut(smaller, 30)}, the other one, says that something is absent"
    elif most == least:
        why = f"both classes are as frequent: this one, or {_cut(larger, 30)}"
    yield _stated(toml_line("positive", look.values_of_classes[which]), why)


def _written(look: Look) -> Iterator[tuple[str, str]]:
    """How the files are written, where that is unusual, and why that is known."""
    shape = look.shape
    if shape.encoding != "utf-8":
        yield toml_line("encoding", shape.encoding), shape.reason
    if shape.delimiter not in (",", None):
        yield toml_line("delimiter", shape.delimiter), "it parts all lines alike"
    if look.shape.header_lines > 1:
        why = "the first line names the columns, the others are labels or units"
        yield f"header_lines = {look.shape.header_lines}", why
    if again := shape.others.get("with these names again"):
        yield "drop_repeated_header = true", f"in {again:,} line{'s' * (again > 1)}"
    if look.decimal == ",":
        yield 'decimal = ","', f"in {_listed(look.commas)}" if look.commas else "as asked"


def _columns(look: Look) -> Iterator[str]:
    kinds, chosen, left = look.kinds, used(look), {}
    for name, kind in kinds.items():
        if name in look.asked.exclude:
            left[name] = "as asked"
        elif kind.name == "person":
            yield _stated(toml_line("person", name), f"{kind.why}; no split parts a person's rows")
            if absent := look.columns[name].absent:
                why = f"the rows without one ({absent:,}) count as those of one person"
                yield _stated(f'merge.{toml_key(name)} = {{ "" = "nobody" }}', why)
        elif name not in chosen:
            comma = "commas stand in its numbers, which are text here"
            left[name] = comma if kind.name == "comma" else kind.why
    left |= {name: kind.why for name, kind in look.partial.items()}
    yield from _list("exclude", left)
    yield from _list("categorical", dict(_codes(look)))
    for kind in KINDS.values():
        of_kind = [name for name in chosen if kinds[name].name == kind.name]
        if kind.settings is None:
            yield from _list(kind.key, {name: kinds[name].why for name in of_kind})
            continue
        for name in of_kind:
            way = look.asked.dates.get(name) or next(iter(look.columns[name].fits[kind.key]))
            only = f"no other {next(iter(kind.stated(way)), 'way')} fits all of its {kind.key}"
            why = "as asked" if name in look.asked.dates else only
            how = ", ".join(toml_line(k, v) for k, v in kind.stated(way).items())
            why += kind.note(look.columns[name].lengths[1])
            yield _stated(f"{kind.key}.{toml_key(name)} = {{ {how} }}", why)
    for name in chosen:
        column = look.columns[name]
        if kinds[name].name in ("category", "code") and column.text:
            yield from _merges(name, profile.spellings(column.counts or {}))
    if pooled := rare(look):
        why = f"rarer categories are one: in {_listed(pooled)}"
        yield _stated(f"min_count = {_least(look)}", why)


def _codes(look: Look) -> Iterator[tuple[str, str]]:
    """The columns that would be taken for numbers, with the reason why they are none."""
    for name in used(look):
        kind, counts = look.kinds[name], look.columns[name].counts or {}
        if kind.name in ("code", "category") and any(
            is_number(cell.replace(",", ".")) for cell in counts
        ):
            yield name, kind.why if kind.name == "code" else "text, and in some cells numbers"


def used(look: Look) -> list[str]:
    """The columns that features are made of."""
    names = {*USED, *(kind.name for kind in KINDS.values())}
    names -= {"comma"} if look.decimal != "," else set()
    kinds, left = look.kinds.items(), look.asked.exclude
    return [name for name, kind in kinds if kind.name in names and name not in left]


def rare(look: Look) -> list[str]:
    """The columns some of whose categories are better pooled."""
    found = []
    for name in used(look):
        counts = look.columns[name].counts
        if look.kinds[name].name not in ("category", "code") or counts is None:
            continue
        sizes = profile.merged(counts, profile.spellings(counts)).values()
        some = len(sizes) > 2 and min(sizes) < _least(look) <= max(sizes)
        if some or len(sizes) > profile.MOST:
            found.append(name)
    return found


def _least(look: Look) -> int:
    """The rows below which a category is rare: of one that is held out a model knows nothing."""
    return profile.RARE if sum(look.sizes.values()) >= profile.LARGE else FEW


def questions(look: Look, source: str, folder: Path) -> list[Found]:
    """What a client seems to write otherwise than the others, if ``source`` are the keys of [data];
    tables that cannot be read so have none, and a run says why.
    """
    found: list[Found] = []
    for name in filter(profile.names_a_person, look.names):
        if look.kinds[name].name == "identifier":  # no run reads it
            tables = {c: present(table, name) for c, table in look.clients.items()}
            ids = {c: [*map(str, table[name].tolist())] for c, table in tables.items()}
            rows = {c: [*table.without(name).values()] for c, table in tables.items()}
            cells = {c: np.array(columns, object).T for c, columns in rows.items()}
            found += differences.of_persons(name, ids, cells)
    loss = LOSSES[min(len(look.classes), 3)]
    keys = re.sub(r"(?m)^min_count.*$", "", source)  # rare codes are compared as well
    text = f"[data]\n{keys}\ntest = 0.0\n[problem]\n{loss}\n[robust]\nradius = 0.0"
    with suppress(ValueError):
        config = parse_config(text, folder=folder)
        differing = between_clients(prepare(config), config.data.person)
        found += [one for each in differing.values() for one in each or ()]
    return found


def asked(look: Look, found: Sequence[Found]) -> list[str]:
    """Questions about what a client writes otherwise, with a key where one answers them."""
    lines: list[str] = []
    merged = {str(look.roles.client): look.client_merge, look.roles.target: look.target_merge}
    for one in found:
        answer, key = ANSWERED[one.kind], ""
        if one.kind == "codes" and not one.instead:  # one number has two meanings
            answer = "If so, write them alike in the tables."
        elif one.kind in ("codes", "names"):
            column = one.column or str(look.roles.client)
            if column not in merged:
                merged[column] = profile.spellings(look.columns[column].counts or {})
            if merged[column]:
                answer = answer.replace("take:", "take instead of the line above:")
            merged[column] = {**merged[column], **one.instead}
            key = _merge(column, merged[column])
        elif one.kind == "persons":
            kind, key = look.kinds.get(one.column), toml_line("person", one.column)
            if kind is None or kind.name == "person" or f"# {key}" in lines:  # nothing to take
                answer, key = ANSWERED["persons"].partition(";")[0] + ".", ""
            else:
                answer = answer.replace("take:", "take it out of `exclude`, and take:")
        lines += _comment(f"Question: {one} {answer}")
        lines += [f"# {key}"] * bool(key)
    codes = [text for one in found if one.kind == "sentinel" for text in one.instead]
    if codes:
        instead = " instead of the line above" * bool(look.accepted)
        lines += _comment(f"If such numbers stand for missing cells, take{instead}:")
        lines.append(f"# {toml_line('missing', [*dict.fromkeys((*look.accepted, *codes))])}")
    return lines


def _notes(look: Look) -> Iterator[str]:
    """What a person should know, and may want otherwise."""
    of_target, merge = look.parts(look.roles.target).items(), look.target_names
    one_class = [c for c, part in of_target if len(profile.merged(part.counts or {}, merge)) == 1]
    if look.classes and one_class:
        yield from _comment(f"Only one class is at {_listed(one_class)}.")
    if tiny := [client for client, n in look.sizes.items() if n < TINY]:
        yield from _comment(f"Fewer than {TINY} rows are at {_listed(tiny)}.")
    kinds, chosen = look.kinds, used(look)
    for name in chosen:
        column = look.columns[name]
        if kinds[name].name == "apart":
            yield from _comment(f"{name!r}: {kinds[name].why}. If it is made of it, exclude it.")
        few = len(look.clients) > 1 and column.distinct <= len(look.clients) + look.unnamed
        if few and all(part.distinct <= 1 for part in look.parts(name).values()):
            yield from _comment(f"{name!r} has one value at every client, and may stand for it.")
        dated = profile.DATED & {*profile.words(name)}
        if kinds[name].name == "number" and dated and 20_000 <= column.low <= column.high < 60_000:
            text = "may be days as a spreadsheet counts them: a number here."
            yield from _comment(f"{name!r} {text}")
        if column.absent > 0.5 * column.rows:
            text = "is missing in most rows: exclude it if you expected that."
            yield from _comment(f"{name!r} {text}")
    numbers = ((name, look.columns[name]) for name in chosen if kinds[name].name == "number")
    if few := [name for name, c in numbers if 2 < c.distinct <= 10 and c.whole == c.present]:
        yield from _comment("Few whole numbers: add those that are codes to `categorical`:")
        yield f"# {toml_line('categorical', few)}"
    for name in (name for name, kind in kinds.items() if kind.name == "mixed"):
        how = "write its numbers only" if look.columns[name].amounts else "correct its cells"
        first = look.places(name, look.columns[name].odd)
        where = f" ({first})" * bool(first)
        yield from _comment(f"To use {name!r}, {how}{where}, or name odd cells under `missing`.")


def _merges(name: str, merge: Mapping[str, str]) -> Iterator[str]:
    if not merge:
        return
    why = "they differ by case or spaces only"
    if any(profile.fold(one) != profile.fold(other) for one, other in merge.items()):
        why = "spellings of one answer: if they are not, delete this line"
    yield _stated(_merge(name, merge), why)


def _merge(name: str, merge: Mapping[str, str]) -> str:
    pairs = ", ".join(f"{toml_value(a)} = {toml_value(b)}" for a, b in merge.items())
    return f"merge.{toml_key(name)} = {{ {pairs} }}"


def _stated(line: str, why: str) -> str:
    """A key with its reason, beside it or, where that is too long, above it."""
    whole = f"{line}  # {_cut(why, 400)}"
    return whole if len(whole) <= WIDTH else "\n".join([*_comment(why), line])


def _comment(text: str) -> list[str]:
    return textwrap.wrap(printable(text), WIDTH, initial_indent="# ", subsequent_indent="#   ")


def _list(key: str, reasons: Mapping[str, str]) -> Iterator[str]:
    if not reasons:
        return
    yield f"{key} = ["
    for name, why in reasons.items():
        yield from (f"  {line}" for line in _stated(f"{toml_value(name)},", why).split("\n"))
    yield "]"


def _listed(names: Iterable[str], most: int = 6) -> str:
    every = [repr(_cut(name, 30)) for name in names]
    return ", ".join(every[:most]) + f" and {len(every) - most} more" * (len(every) > most)


def private_keys(look: Look) -> str:
    """The keys of [data] of a private run: how the files are written, and nothing of the cells."""
    lines = _whose(look)
    if look.classes:
        names = toml_value(["?"] * len(look.classes))
        lines.append(_stated(f"classes = {names}", "the values of the target, as you know them"))
    lines += [line for line, _ in _written(look)]
    # all texts that may stand for a missing cell, whether they do or not
    usual = (*profile.SURE, *map(str.upper, profile.SURE), "k.A.")
    every = {text for text in usual if " " not in text}
    texts = f"missing = {toml_value(sorted((every | {*look.asked.missing}) - MISSING))}"
    lines += textwrap.wrap(texts, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    lines.append("drop_missing_target = true")
    lines += ["drop_missing_client = true"] * bool(look.roles.client)
    for name in (n for n, kind in look.kinds.items() if kind.name == "person"):
        why = "no split parts a person's rows; epsilon is of one row: of n rows it is n times that"
        lines.append(_stated(toml_line("person", name), why))
    for kind in KINDS.values():
        of_kind = [name for name in used(look) if look.kinds[name].name == kind.name]
        if of_kind and kind.private is not None:
            lines.append(_stated(toml_line(kind.key, of_kind), kind.why))
    return "\n".join(lines)


def declared(look: Look) -> dict[str, str]:
    """What a private run has to declare, with a "?" for what its owner knows of each column."""
    found = {}
    for name in used(look):
        kind = kind_named(look.kinds[name].name)
        if kind is not None:
            found |= {} if kind.private is None else kind.private(name)
        elif look.kinds[name].name in ("category", "code"):
            found[name] = '{ categories = ["?"] }  # every one that is possible'
        else:
            found[name] = '{ min = "?", max = "?" }'
    return found


# -------------------------------------------------------------------------- the table of columns


def summary(look: Look, private: bool = False) -> list[str]:
    """What was read, in lines."""
    files = [f"encoding {look.shape.encoding}"]
    signs = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
    if look.shape.delimiter is not None:
        files.append(f"{signs.get(look.shape.delimiter, 'a sign')} between the cells")
    files += ["decimal commas"] * (look.decimal == ",")
    clients = f"{len(look.clients):,} client{'s' * (len(look.clients) > 1)}"
    text = f"{look.rows:,} rows of {clients}; {', '.join(files)}"
    if private:
        return textwrap.wrap(f"What the columns are ({', '.join(files)}):", 78)
    others = {what: n for what, n in look.shape.others.items() if n}
    lines = f"{look.rows + sum(others.values()):,} lines: {look.rows:,} begin a row"
    counted = [lines, *(f"{n:,} {what}" for what, n in others.items())]
    said = [text]
    for name, of in look.shape.forms.items():
        if of and name in (look.roles.client, look.roles.target):
            how = "in another form of Unicode, or with signs that nobody sees: they are read alike"
            said.append(f"{name!r} has {_listed(of)} in {sum(of.values()):,} rows {how}")
    said += [", ".join(counted)] if others else []
    return [line for each in said for line in textwrap.wrap(each, 78)]


def lines_of(look: Look, private: bool = False) -> list[Line]:
    """What every column is, and what is proposed for it; of a private run nothing of the values."""
    roles, target = look.roles, look.target
    chosen = {*(declared(look) if private else used(look))}
    keys = {"used": chosen, "categorical": {*dict(_codes(look))}, "min_count": {*rare(look)}}
    found = []
    if roles.client is not None:
        absent, values = _share(look.unnamed, look.rows), f"{len(look.clients):,} clients"
        found.append(Line(roles.client, "client", absent, values, roles.why("client")))
    classes = [f"{_cut(name, 12)} {n:,}" for name, n in look.classes.items()]
    values = ", ".join(classes) or f"{target.low:.6g} to {target.high:.6g}"
    absent = _share(target.absent, target.rows)
    found.append(Line(roles.target, "target", absent, values, roles.why("target")))
    left_out = "left out" if private else "exclude"
    found += [Line(name, kind.name, "", "", left_out) for name, kind in look.partial.items()]
    never = "never read: it has no name"
    found += [Line(name or "(no name)", "index", "", "", never) for name in look.unread]
    for name, kind in look.kinds.items():
        of, column = KINDS.get(kind.key), look.columns[name]
        shown = SHOWN.get(kind.name, kind.name) if of is None else of.shown
        proposal = _proposal(kind, name, look, private, keys)
        absent, values = _share(column.absent, column.rows), _values(column, kind)
        found.append(Line(name or "(no name)", shown, absent, values, proposal))
    return [line._replace(missing="", values="") if private else line for line in found]


def _share(absent: int, rows: int) -> str:
    return f"{100 * absent / rows:.0f} %"


def _values(column: profile.Summary, kind: profile.Kind) -> str:
    of = KINDS.get(kind.key)
    if kind.name in NUMBERS or (of is not None and of.beside_numbers):
        return f"{column.low:.6g} to {column.high:.6g}"
    if kind.name in ("category", "constant") and column.counts:
        often = sorted(column.counts, key=lambda v: (-column.counts[v], v))  # type: ignore[index]
        return ", ".join(_cut(value, 12) for value in often[:4]) + ", ..." * (len(often) > 4)
    return f"{column.distinct:,} values" if column.distinct else ""


def _proposal(
    kind: profile.Kind, name: str, look: Look, private: bool, keys: Mapping[str, Collection[str]]
) -> str:
    """The keys of the configuration that name the column; ``keys``: the columns of some of them."""
    chosen = name in keys["used"]
    if private and kind.name != "person":
        return "columns" if chosen else "left out"
    if name in look.asked.exclude:
        return "exclude, as asked"
    if kind.name == "person" or not chosen:
        return "person" if kind.name == "person" else "exclude"
    column, found = look.columns[name], []
    found += [kind.key] * (kind.name != "asked" and bool(kind.key))
    found += ["categorical"] * (name in keys["categorical"])
    found += ["decimal"] * (column.commas > 0 and look.decimal == ",")
    found += ["merge"] * bool(column.text and profile.spellings(column.counts or {}))
    found += ["missing"] * bool(column.tokens)
    found += ["min_count"] * (name in keys["min_count"])
    return ", ".join(found)


def drawn(lines: Sequence[Line], width: int = WIDTH) -> list[str]:
    """The table in lines of at most so many columns."""
    rows, sizes = [Line("column", "kind", "missing", "values", "proposal"), *lines], []
    for k, most in enumerate((20, 10, 7, 22)):
        kept = any(line[k] for line in lines)
        sizes.append(min(most, max(_wide(row[k]) for row in rows)) if kept else 0)
    found = []
    for *cells, proposal in rows:
        cut = [(_cut(cell, size), size) for cell, size in zip(cells, sizes, strict=True) if size]
        text = "".join(cell + " " * (size - _wide(cell) + 2) for cell, size in cut)
        found.append((text + _cut(proposal, width - _wide(text))).rstrip())
    return found


def _wide(text: str) -> int:
    """The columns that a text takes in a terminal."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _cut(text: str, most: int) -> str:
    """The text in at most so many columns, without what is not a letter or sign."""
    plain = printable(text)
    while _wide(plain) > most:
        plain = plain.removesuffix("…")[:-1].rstrip("…,. ") + "…"
    return plain
