"""The tables [data] and [report] of a configuration, and the types of single values."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeGuard, TypeVar

import pydantic
from pydantic import Field, PlainValidator

from bonafed.data.reading import KINDS, ColumnKind, Reading, is_delimiter
from bonafed.text import plain

Kept = TypeVar("Kept", bound=pydantic.BaseModel)
BLANK = "?"  # what a person has still to declare of a column

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
Probability = Annotated[float, Field(ge=0, le=1)]
Filled = Annotated[str, Field(min_length=1, pattern=r"\S")]
Merged = Annotated[dict[str, Filled], Field(min_length=1)]
Label = str | bool | int | float  # a class of the target


def _once(texts: list[str]) -> list[str]:
    if len({*texts}) < len(texts):
        raise ValueError("allowed: every text once")
    return texts


Texts = Annotated[list[str], pydantic.AfterValidator(_once)]
Paths = Annotated[  # a path, a pattern such as 'sites/*.csv', or a list of them
    list[Filled],
    pydantic.BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    Field(min_length=1),
]


def _finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _classes(value: object) -> list[str | float] | None:
    if value is None or (isinstance(value, list) and len(value) > 1 and {*value} == {BLANK}):
        return value
    if (
        isinstance(value, list)
        and len({*map(type, value)}) == 1
        and isinstance(value[0], str | int | float)
        and len({*value}) == len(value) > 1
    ):
        return sorted(value)
    raise ValueError(
        "allowed: a list of the two classes of the target (of a multinomial loss more), all text or"
        " all numbers"
    )


def _columns(value: object) -> dict[str, dict[str, Any]] | None:
    """What a file declares of its columns, one table for each."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        raise ValueError(
            "allowed: a table with one entry for each feature, such as age = { min = 0, max = 100 }"
        )
    for name, column in value.items():
        if not (isinstance(column, Mapping) and _is_column(column)):
            raise ValueError(
                f"column {name!r} has {column!r}; allowed: {{ min, max }} (made 0 to 1),"
                " { mean, scale }, {} (taken as it is), each with missing = the number that stands"
                " for none and indicator = true for a separate feature, or { categories ="
                " ['a', ...] }"
            )
    return {name: dict(column) for name, column in value.items()}


def _is_column(column: Mapping[str, Any]) -> bool:
    """Whether a table declares a column, by its categories or by its numbers."""
    if "categories" in column:
        names = column["categories"]
        texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
        return texts and len(names) > 0 and len(column) == 1
    numbers = {key: value for key, value in column.items() if key != "indicator"}
    return (
        isinstance(column.get("indicator", False), bool)
        and {*numbers} - {"missing"} in ({"min", "max"}, {"mean", "scale"}, set())
        and all(value == BLANK or _finite(value) for value in numbers.values())
        and (
            BLANK in numbers.values()
            or (column.get("min", 0) < column.get("max", 1) and column.get("scale", 1) > 0)
        )
    )


def _delimiter(value: object) -> str | None:
    if value is None or (isinstance(value, str) and is_delimiter(value)):
        return value
    raise ValueError("allowed: one character that stands between cells, such as ';'")


# ---------------------------------------------------------------------------------------- sections


class Section(pydantic.BaseModel):
    """A table of the file: no unknown keys, no guessed types."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True)

    @classmethod
    def keys(cls) -> list[str]:
        """The keys that the table may have."""
        return [field.alias or name for name, field in cls.model_fields.items()]


def kept(section: Kept, rules: Mapping[str, object]) -> Kept:
    """The section; raises ``ValueError`` with the first sentence that is true of it."""
    for sentence, true in rules.items():
        if true:
            raise ValueError(sentence)
    return section


class Drift(Section):
    """How the shifted clients' rows differ further from what was trained on, in units of the scaled
    features.
    """

    # x' = scale x + offset, an instrument out of tune
    scale: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    offset: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    noise: NonNegative = 0.0  # standard deviation of noise on every feature
    flips: Probability = 0.0  # share of labels that are flipped


class Partition(Section):
    """How the rows of a data set without owners are dealt to invented clients."""

    by: Literal["iid", "dirichlet", "label"]
    clients: Count = 10
    alpha: Positive = 1.0  # of "dirichlet": small for unlike clients
    labels: Count = 1  # of "label": classes per client


AS_THEY_STAND = ("path", "server", "name", "sites", "delimiter")


def _plain(value: Any) -> Any:
    """All texts of a value as people read them."""
    if isinstance(value, Mapping):
        return {plain(name): _plain(of) for name, of in value.items()}
    if isinstance(value, list):
        return [*map(_plain, value)]
    return plain(value) if isinstance(value, str) else value


class _Tables(Section):
    encoding: Literal["utf-8", "latin-1", "cp1252", "utf-16"] = "utf-8"
    delimiter: Annotated[str | None, PlainValidator(_delimiter)] = None
    decimal: Literal[".", ","] = "."
    missing: Texts = []  # further texts that mean a missing cell
    exclude: Texts = []  # columns that are no features
    drop_repeated_header: bool = False
    header_lines: Count = 1  # the first names the columns, others are labels or units

    @pydantic.model_validator(mode="before")
    @classmethod
    def _as_people_read(cls, raw: object) -> object:
        """Names and cells as they are read from tables, whatever form of Unicode they have here."""
        if not isinstance(raw, Mapping):
            return raw
        return {key: v if key in AS_THEY_STAND else _plain(v) for key, v in raw.items()}

    @property
    def reading(self) -> Reading:
        """How the tables are read."""
        keys = {field.name: getattr(self, field.name, None) for field in fields(Reading)}
        kept = {key: value for key, value in keys.items() if value is not None}
        return Reading(**{**kept, "kinds": {key: getattr(self, key) for key in KINDS}})


def kind_of(kind: ColumnKind) -> tuple[Any, Any]:
    """The type and the default of the key of a kind of columns."""
    plain = PlainValidator(lambda value: kind.stored(kind.declared(value)))
    return Annotated[Any, plain], Field(default_factory=list if kind.settings is None else dict)


if TYPE_CHECKING:

    class TablesSection(_Tables):
        """How tables are written that are not as a program would write them; the kinds of columns
        are those of `bonafed.data.reading`.
        """

else:
    TablesSection = pydantic.create_model(
        "TablesSection", __base__=_Tables, **{kind.key: kind_of(kind) for kind in KINDS.values()}
    )


OF_FILES = ("drop_repeated_header", "header_lines")  # keys about the lines of files
MADE = (
    "has `columns`, which say how every feature is made: set scale = 'none', and leave out"
    " features, categorical, indicators and min_count"
)


class DataSection(TablesSection):
    """Where the rows are, whose they are, and what is held out."""

    name: str | None = None
    path: Paths | None = None
    sites: Texts | None = None  # the names of the sites that keep the rows
    client: str | None = None
    partition: Partition | None = None
    target: str | None = None
    features: list[str] | None = None
    categorical: list[str] = Field(default_factory=list)
    # read for constraints on groups, and no features
    groups: list[str] = Field(default_factory=list)
    # the server's own rows: the path of a table, or a share of the training rows
    server: Filled | Annotated[float, Field(gt=0, lt=1)] | None = None
    scale: Literal["standard", "minmax", "none"] = "standard"
    # declared, the larger is predicted
    classes: Annotated[list[Any] | None, PlainValidator(_classes)] = None
    # declared features
    columns: Annotated[dict[str, dict[str, Any]] | None, PlainValidator(_columns)] = None
    indicators: bool = False
    # of a column, such as sex = { M = "male", F = "female" }
    merge: dict[str, Merged] = Field(default_factory=dict)
    min_count: Count | None = None  # rarer categories are pooled
    positive: Label | None = None
    drop_missing_target: bool = False
    drop_missing_client: bool = False
    person: str | None = None  # a column: rows of one person are on one side of every split
    test: Share = 0.3
    shifted: list[str] = Field(default_factory=list)
    drift: Drift | None = None

    # the keys that a run over sites may have beside them, of those above
    AT_SITES: ClassVar = (
        *("target", "columns", "classes", "positive", "scale", "groups", "person", "test"),
        *("features", "categorical", "indicators", "min_count"),
    )

    @pydantic.model_validator(mode="after")
    def _one_source(self) -> DataSection:
        known = map(str, self.classes or ())
        no_class = self.classes is not None and str(self.positive) not in ("None", *known)
        rules = {f"has positive = {self.positive!r}, which is none of `classes`": no_class}
        return kept(self, rules | (self._rules() if self.sites is None else self._of_sites()))

    @property
    def blanks(self) -> list[str]:
        """The columns of which something is still to be declared: it is ``"?"``."""
        columns = (self.columns or {}).items()
        return [c for c, how in columns if BLANK in (*how.values(), *how.get("categories", ()))]

    @property
    def _is_fitted(self) -> bool:
        """Whether keys say how features are made of the rows, which declared columns need not."""
        chosen = self.features or self.categorical or self.indicators or self.min_count
        return bool(chosen) or self.scale != "none"

    def _rules(self) -> dict[str, object]:
        """What the keys ask of each other: sentences, and whether they are true."""
        named, owned = self.path is None, self.client is not None
        rules: dict[str, object] = {
            "needs exactly one of `name` (a data set, see `bonafed data`), `path` (CSV or Parquet)"
            " and `sites` (who keeps the rows)": (self.name is None) is named,
            "needs `target`, the column to predict, beside `path`": (
                not named and self.target is None
            ),
            "has `partition`, which is for data sets by `name` whose rows have no client of their"
            " own": self.partition is not None and (not named or owned),
            "has `drift` but no `shifted`: drift is applied to the shifted clients; name some": (
                self.drift is not None and not self.shifted
            ),
            "has `classes`, and those of a data set by `name` are known: leave `classes` out": (
                self.classes is not None and named
            ),
            MADE: self.columns is not None and self._is_fitted,
        }
        rules |= {
            f"has `{key}`, which is for tables by `path`: leave it out": named
            for key in (*("encoding", "delimiter", "decimal", "drop_missing_client"), *OF_FILES)
            if getattr(self, key) != DataSection.model_fields[key].default
        }
        lost = "has `drop_missing_client` and no `client`, a column: leave one out, or give both"
        return rules | self._twice() | {lost: self.drop_missing_client and not owned}

    def _of_sites(self) -> dict[str, object]:
        """The same where sites keep the rows, of which nothing is read here."""
        missing = self.target is None or self.columns is None
        fields, taken = DataSection.model_fields.items(), {*self.AT_SITES, "sites"}
        others = {
            f"has `{key}` beside `sites`: where a site's rows are and how they are read stands in"
            " its site.toml; leave it out": (
                getattr(self, key) != field.get_default(call_default_factory=True)
            )
            for key, field in fields
            if key not in taken
        }
        return {
            "has `sites` without a name: give the names in the sites' site.toml": not self.sites,
            f"needs `{'target' if self.target is None else 'columns'}` beside `sites`: nothing is"
            " read off the rows, so target and columns are declared, such as columns = { age = {"
            " min = 0, max = 110 } }": missing,
            MADE: not missing and self._is_fitted,
            **others,
        }

    def _twice(self) -> dict[str, object]:
        """The columns that stand under two keys of which only one can have them."""
        roles = {"target": [self.target], "client": [self.client], "person": [self.person]}
        codes = {"categorical": self.categorical, "groups": self.groups}
        used = {"features": self.features or [], **codes}
        made = {key: [*getattr(self, key)] for key in KINDS}
        merged = {"columns": [*(self.columns or {})], "merge": [*self.merge]}
        exclusive = {"exclude": {**roles, **used, **made, **merged}}
        for k, (key, kind) in enumerate(KINDS.items()):
            earlier = {other: made[other] for other in [*KINDS][:k]}
            # merged spellings have no place among dates
            spelled = {} if kind.beside_numbers else {"merge": [*self.merge]}
            exclusive[key] = {**roles, **codes, **earlier, **spelled}
        exclusive["person"] = {"target": [self.target], "client": [self.client], **used}
        return {
            f"has {name!r} in `{key}` and in `{other}`: take it out of one": True
            for key, others in exclusive.items()
            for other, names in others.items()
            for name in ([self.person] if key == "person" else getattr(self, key))
            if name is not None and name in names
        }


class ReportSection(Section):
    """What is written, and beside which models."""

    html: bool = True
    compare_with: list[Literal["unconstrained", "erm", "afl", "drfa", "wafl"]] = []


def moved(path: str, old: Path, new: Path) -> str:
    """A path that started at ``old``, from ``new``; links to folders are followed first, since
    ``..`` leads elsewhere from behind them.
    """
    if os.path.isabs(path):
        return path
    parent, name = os.path.split(old / path)
    there = os.path.join(os.path.realpath(parent), name)
    try:
        return os.path.relpath(there, os.path.realpath(new)).replace(os.sep, "/")
    except ValueError:  # another drive
        return there
