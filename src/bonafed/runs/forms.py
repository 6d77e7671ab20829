"""The form of what the files of a run hold: which keys, of which type, in which range.

A folder is checked once, when it is read: anyone who uses it later finds every key that it needs
with a value of its type. Whether keys fit each other shows where they are used
(`bonafed.runs.files.used`). A new key of a record that is written stands here, too.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeAlias

import pydantic
from pydantic import AfterValidator, Field, StringConstraints
from pydantic_core import ErrorDetails

from bonafed.data import differences
from bonafed.data.reading import ENCODINGS, KINDS, ColumnKind, is_delimiter
from bonafed.data.schema import OTHER
from bonafed.measures import figures_of
from bonafed.names import NAMED, load
from bonafed.privacy.accounting import LEAST_DELTA, MOST_ROUNDS
from bonafed.privacy.bounds import MOST
from bonafed.rounds import Stop
from bonafed.runs.files import damaged
from bonafed.solution.outcome import UNPROVED
from bonafed.solution.trivial import TRIVIAL
from bonafed.worst_client import WHY

FAR = 1e150  # squares of such numbers are finite
SHOWN = 60  # letters of a value that an error shows
WORDS = {  # pydantic's kinds of errors -> what is needed
    **{"float_type": "a number", "finite_number": "a finite number", "int_type": "a whole number"},
    **{"int_parsing_size": f"a whole number of at most {FAR:g}", "none_required": "null"},
    **{"string_type": "text", "string_unicode": "text", "bool_type": "true or false"},
    **{"string_pattern_mismatch": "text of another form", "list_type": "a list"},
    **{"dict_type": "an object", "model_type": "an object"},
}


class Form(pydantic.BaseModel):
    """The form of an object: no unknown keys, no guessed types, no infinite numbers."""

    # of which a run has few: built where one is needed
    model_config = pydantic.ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True
    )


Keys: TypeAlias = Mapping[str, Any]  # of a form, each with its type


def needs(kind: Any, *keys: str) -> dict[str, Any]:
    """The keys of a form that have one type."""
    return dict.fromkeys(keys, (kind, ...))


def perhaps(kind: Any, *keys: str) -> dict[str, Any]:
    """The same of keys that may be absent; where one stands its value is of its type."""
    return dict.fromkeys(keys, (kind, Field(default=None)))


def form(*keys: Keys, base: type[Form] = Form) -> Any:
    """The form of an object with these keys, each with its type, beside those of another form."""
    every = {key: of for part in keys for key, of in part.items()}
    return pydantic.create_model("Form", __base__=base, **every)


def check_form(file: Path, value: Keys, form: type[Form], inside: str = "") -> None:
    """Raise ``FormError`` where an object of a file is not of its form; ``inside`` is where in the
    file the object stands.
    """
    try:
        form.model_validate(value)
    except pydantic.ValidationError as error:
        raise damaged(file, _in_words(error.errors(include_url=False)[0], value, inside)) from None


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
    needed = WORDS.get(kind) or str(error.get("ctx", {}).get("error") or error["msg"])
    for words in ("Input should be ", "String should ", "List should ", "Dictionary should "):
        needed = needed.removeprefix(words)
    return f"{place or 'it'} is {shown(value)}; needed: {needed}"


def _at(place: str, part: str | int) -> str:
    """The place of a key, or of an entry of a list, as in clients[2].loss."""
    if isinstance(part, int):
        return f"{place}[{part}]"
    key = part if part.isidentifier() and len(part) <= SHOWN else shown(part)
    return f"{place}.{key}" if place else key


# -------------------------------------------------------------------------------------------- types


def such(holds: Callable[[Any], object], needed: str) -> AfterValidator:
    """The values of a type of which something holds, with what is needed in words."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise ValueError(needed)
        return value

    return AfterValidator(check)


def one_of(names: Collection[str]) -> AfterValidator:
    """The texts that are one of some names."""
    return such(lambda text: text in names, f"one of {', '.join(names)}")


def once(values: Sequence[Any]) -> bool:
    """Whether every value stands there once."""
    return len({*values}) == len(values)


def _is_number(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return abs(value) <= FAR if number else value in ("inf", "-inf")  # type: ignore[arg-type]


def _is_inside(name: str) -> bool:
    """Whether a text names a file that lies inside the folder."""
    path = PurePosixPath(name)
    plain = name.isprintable() and "\\" not in name and path.as_posix() == name
    return plain and not (path.is_absolute() or ".." in path.parts or ":" in name or name == ".")


def at_least(n: int) -> Any:
    """The length of a list or an object."""
    return Field(min_length=n)


def exactly(n: int) -> Any:
    """The same where there is no other."""
    return Field(min_length=n, max_length=n)


Number = Annotated[float, Field(ge=-FAR, le=FAR)]
NonNegative = Annotated[float, Field(ge=0, le=FAR)]
Positive = Annotated[float, Field(gt=0, le=FAR)]
Share = Annotated[float, Field(ge=0, le=1)]
# infinite ones are text in JSON
Extended = Annotated[Any, such(_is_number, 'a finite number, "inf" or "-inf"')]
Whole = Annotated[int, Field(ge=0, le=2**62)]
Count = Annotated[int, Field(ge=1, le=2**62)]
Digest = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
ShortDigest = Annotated[str, StringConstraints(pattern="^[0-9a-f]{32}$")]
FileName = Annotated[str, such(_is_inside, "the name of a file inside the folder")]
StopName = Annotated[str, one_of([stop.value for stop in Stop])]
Yes = Literal[True]  # of a key that stands there where something is so

# ------------------------------------------------------------------ an evaluation, in result.json

Interval = Annotated[list[Share], exactly(2)]
CONFUSION = form(needs(Whole, "tp", "fp", "fn", "tn"))  # by truth, prediction
# what is drawn of the main model, see `bonafed.measures.curves`
CURVES = form(
    needs(list[Interval], "roc")
    | needs(list[Annotated[list[NonNegative], exactly(3)]], "reliability")
)


class Judged(Form):
    """Of rows that a model is judged on: keys that are not named here are figures."""

    model_config = pydantic.ConfigDict(extra="allow")

    @pydantic.model_validator(mode="after")
    def _figures_are_in_their_ranges(self) -> "Judged":
        known = {figure.key: figure for figure in figures_of()}
        for key, value in (self.model_extra or {}).items():
            if key not in known:
                raise ValueError(f"no key {shown(key)}")
            low, high = max(known[key].least, -FAR), min(known[key].most, FAR)
            if value is not None and not (type(value) in (int, float) and low <= value <= high):
                raise ValueError(f"{key} from {low:g} to {high:g}, not {shown(value)}")
        return self


# the figures of `bonafed.measures` for a set of rows, or for a client's, or none of them
FIGURES = form(
    needs(Count, "n") | needs(Number, "loss") | perhaps(Number, "risk") | perhaps(bool, "small"),
    perhaps(Share, "accuracy") | perhaps(NonNegative, "error") | perhaps(Whole, "positives"),
    perhaps(list[Whole], "counts") | perhaps(list[Share | None], "recalls", "precisions"),
    perhaps(CONFUSION | list[list[Whole]], "confusion"),
    perhaps(dict[str, Interval], "interval") | perhaps(CURVES, "curves"),
    base=Judged,
)
# what is promised of new rows at every client, by figure, see `bonafed.worst_client.promise`: the
# bound, the client whose rows decide it, and for a rate what more of them would show
MORE = form(needs(Whole, "wrong", "of") | needs(Share, "bound"))
AT_EVERY = form(
    needs(str, "client") | needs(Number, "bound") | perhaps(Whole, "wrong", "of"),
    perhaps(MORE, "then"),
)
PROMISE = form(
    needs(Share, "confidence") | needs(bool, "people") | needs(dict[str, AT_EVERY], "figures")
)
# how a model does at one client; ``figures_of`` another model where a site tells only those,
# ``merged`` where it counts a class of few predictions as another one
AT_CLIENT = form(
    needs(str, "client") | perhaps(str, "figures_of") | perhaps(bool, "merged"),
    perhaps(dict[str, Number], "bounds") | perhaps(Share, "chance") | perhaps(Count, "people"),
    base=FIGURES,
)
# how often a client's rows are predicted positive, in all, rightly and wrongly; null where there
# are none to count
RATES = form(needs(Share | None, "selected", "tpr", "fpr"))
# fairness between the clients, or nothing where it has no meaning
FAIRNESS = form(
    perhaps(str, "privileged") | perhaps(dict[str, RATES], "rates"),
    perhaps(Extended | None, "SPD", "DI", "EOD", "AOD", "TI", "FNRD"),
)
# how a model does on one set of rows, see `bonafed.runs.evaluation.measure`
MEASURES = form(
    needs(str, "set", "model", "worst_loss_client") | needs(Number, "worst_loss"),
    perhaps(Share, "worst_accuracy") | perhaps(NonNegative, "worst_error"),
    perhaps(str, "worst_accuracy_client", "worst_error_client", "excess_owner"),
    needs(Annotated[list[AT_CLIENT], at_least(1)], "clients") | perhaps(FAIRNESS, "fairness"),
    perhaps(Count, "asked") | perhaps(Whole, "met") | perhaps(Extended, "excess"),
    perhaps(PROMISE, "promise") | perhaps(Annotated[str, one_of(WHY)], "unstated"),
    base=FIGURES,
)
# two models on the same rows, see `bonafed.runs.comparison.paired`
PAIR = form(
    needs(str, "set", "model", "other") | needs(Whole, "better", "worse") | needs(Share, "p"),
    needs(Number, "less") | perhaps(Number, "risk_less") | needs(Count, "tests"),
    needs(Extended, "margin") | perhaps(Extended | None, "risk_margin"),
    needs(NonNegative, "floor") | perhaps(NonNegative, "risk_floor") | perhaps(Count, "people"),
)
# every model on every set of rows, the pairs and the verdict
EVALUATION = form(
    needs(list[MEASURES], "measures") | needs(list[PAIR], "pairs") | needs(list[str], "verdict")
)

# ------------------------------------------------------------------------- result.json of every run

# whose versions are stated: what numbers and figures depend on
PACKAGES = ("python", "bonafed", "numpy", "scipy", "clarabel")
VERSION = r"^([0-9][0-9A-Za-z.+!_-]{0,63}|not installed)$"
# a certificate; arrays have an entry for each client
CERTIFICATE = form(
    needs(Number, "value", "feasibility"),
    needs(Number | None, "bound", "gap", "relative_gap", "stationarity", "complementarity"),
    needs(Number | None, "consensus", "gradient_scale", "infeasible"),
    needs(Number | None, "nearby", "separated", "offset"),
    needs(list[Number], "weights", "client_risks", "client_losses"),
    needs(list[Extended], "client_levels", "client_labels", "client_features"),
    needs(Annotated[list[Number] | None, exactly(3)], "residuals"),
    needs(list[list[Number | None]] | None, "constraint_values"),
    needs(list[Number | None] | None, "server_values", "shared_values"),
)
# a row of the table of clients, and what the public part of a private run has of it
CLIENT = form(
    needs(str, "client") | needs(Count, "n") | needs(Whole, "bytes_up", "bytes_down"),
    needs(Number, "loss", "worst_loss", "weight") | needs(NonNegative, "radius"),
    needs(Share | None, "flips", "shift"),
    needs(Literal["none", "labels", "features", "both"], "active"),
    perhaps(Number | None, "limit", "measured", "slack", "price"),
)
PUBLIC_CLIENT = form(
    needs(str, "client") | needs(Whole, "n", "bytes_up", "bytes_down") | needs(Number, "weight")
)
# how often one type of message was sent; of answers the numbers that each field held in all, and
# how the algorithm reads them
HELD = form(needs(Literal["sum", "max", "each", "parcel"], "how") | needs(Whole, "numbers"))
MESSAGE = form(
    needs(str, "message") | needs(Literal["up", "down"], "direction"),
    needs(Whole, "count", "bytes") | perhaps(dict[str, HELD], "held"),
)
# what is stated of a baseline
BASELINE = form(
    needs(Number, "value") | needs(Number | None, "bound", "gap"),
    needs(StopName, "stop") | needs(Whole, "rounds"),
)
# one start of a method with several
TRY = form(needs(Whole, "start", "iterations", "polish") | needs(Number, "objective"))
# what every result.json has, be it of a whole run or of the public part of a private one
PART = form(
    needs(int, "format") | needs(str, "title", "model", "problem"),
    needs(form(needs(StopName, "stop") | needs(str, "text")), "outcome"),
    needs(Whole, "rounds") | needs(list[MESSAGE], "messages") | needs(EVALUATION, "evaluation"),
    needs(
        dict[Annotated[str, one_of(PACKAGES)], Annotated[str, StringConstraints(pattern=VERSION)]],
        "versions",
    ),
    perhaps(Yes, "at_sites") | needs(dict[FileName, Digest], "files") | needs(Digest, "seal"),
)
# a result.json, without the keys of the sections
RUN = form(
    needs(NonNegative, "seconds") | needs(CERTIFICATE, "certificate"),
    needs(Annotated[list[CLIENT], at_least(1)], "clients"),
    needs(list[str], "notes")
    | perhaps(list[TRY], "tries")
    | needs(dict[str, BASELINE], "baselines"),
    needs(dict[str, dict[str, ShortDigest]], "data") | perhaps(ShortDigest, "book"),
    base=PART,
)
# the result.json of the public part of a private run, without the keys of the sections: what was
# computed from the rows exactly is empty
PUBLIC = form(
    needs(Annotated[list[PUBLIC_CLIENT], at_least(1)], "clients") | needs(None, "certificate"),
    needs(Annotated[list[str], exactly(0)], "notes"),
    needs(Annotated[dict[str, Any], exactly(0)], "baselines", "data"),
    base=PART,
)


class History(Form):
    """A row of the history; beside these columns it has what the method reports."""

    model_config = pydantic.ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str | bool | Extended | None]

    @pydantic.model_validator(mode="after")
    def _columns_have_names(self) -> "History":
        if odd := [key for key in self.model_extra or () if not re.fullmatch("[a-z_]{1,40}", key)]:
            raise ValueError(f"columns of small letters, not {shown(odd[0])}")
        return self


HISTORY = form(
    needs(Count, "round") | needs(Whole, "bytes_up", "bytes_down"),
    perhaps(NonNegative, "time", "seconds") | perhaps(Extended | None, "objective"),
    perhaps(Number, "exact_objective", "largest_risk"),
    perhaps(list[NonNegative | None] | None, "client_violation"),
    base=History,
)
# of a run that goes on: the objective after a round, and when that was; every client's violation
OBJECTIVE = form(
    needs(Count, "round") | needs(NonNegative, "when"),
    needs(Number, "exact_objective", "largest_risk"),
)
VIOLATION = form(needs(Count, "round") | needs(list[NonNegative | None], "client_violation"))

# ----------------------------------------------------------------------------- keys of the sections

# why a model is trivial, see `bonafed.Triviality`
TRIVIALITY = form(
    needs(Annotated[str, one_of(TRIVIAL)], "kind") | needs(str, "text"),
    needs(str | None, "parameter") | needs(Number | str | None, "value"),
    needs(Number | None, "threshold"),
)
CHECKS = ("left_out", "identifier", "copy", "duplicates", "missing_class", "tiny", "shift")
CHECKS += ("trivial", "trained_on", *differences.KINDS)
# one check: null where it does not apply or cannot be judged. ``where`` has the first names of the
# ``count`` features or clients that it is about
DATA_CHECK = form(
    needs(Annotated[str, one_of(CHECKS)], "name") | needs(bool | None, "passed"),
    needs(Number, "limit") | needs(Number | None, "seen") | needs(list[str], "where"),
    needs(Whole, "count"),
)
# the objective of one model at every evaluation, see `bonafed.runs.sections.clock.curves`
TRACE = form(
    needs(Annotated[list[Count], at_least(1)], "round") | perhaps(list[NonNegative], "time"),
    needs(list[Whole], "bytes") | needs(list[Number], "objective"),
    needs(list[NonNegative], "largest_risk"),
)
# the events of a clock: when they end, how many answers in all and by client, who crashed when
CLOCK = form(
    needs(NonNegative, "time") | needs(Whole, "answers") | needs(dict[str, NonNegative], "crashed"),
    needs(Annotated[dict[str, Whole], at_least(1)], "by_client"),
)
# one constraint of one owner at a model, and the same on the training rows with its multiplier;
# ``weight`` is that in a proof that nothing is feasible
MET = form(
    needs(str, "owner", "constraint") | needs(Number, "limit", "measured", "slack"),
    needs(bool, "met") | needs(Number | None, "rate"),
)
PRICED = form(needs(Number, "price") | perhaps(Share, "weight"), base=MET)
# the constraints at a model on one set of rows
KEPT = form(needs(str, "set", "model") | needs(list[MET], "rows"))
# the rates of one group
GROUP = form(
    needs(str, "set", "model", "column", "group") | needs(Whole, "rows"),
    needs(Share | None, "selected", "tpr", "fpr", "accuracy"),
)
# a risk in words; where the rows of all clients are ranked ``together``, what it is of their losses
RISK = form(
    needs(str, "name", "words") | needs(bool, "convex", "pooled") | perhaps(Number, "together")
)
# an owner of rows that are ranked together
OWNER = form(
    needs(str, "client") | needs(Count, "n") | needs(Share, "share"),
    needs(Number, "loss", "worst_loss", "weight"),
)
# sorted losses in groups, see `bonafed.runs.evaluation.curve`
LOSSES = form(
    needs(Annotated[list[Share], at_least(1)], "share"),
    needs(list[NonNegative], "loss") | needs(list[Number], "weight"),
)

# the guarantee of privacy. Releases are lists in JSON; the second where rows are sampled, the third
# of a search
Noise = Positive | Literal["inf"]
Answers = Annotated[int, Field(ge=0, le=MOST_ROUNDS)]
Mechanism = Literal["gaussian", "laplace"]
Law = Literal["poisson", "geometric", "logarithmic"]
One = Annotated[float, Field(ge=1, le=1)]
Rate = Annotated[float, Field(gt=0, lt=1)]
Candidates = Annotated[float, Field(gt=1, le=MOST)]
Released = (
    Annotated[tuple[Mechanism, Noise, Answers], Field(strict=False)]
    | Annotated[tuple[Mechanism, Noise, Answers, Rate], Field(strict=False)]
)
Searched = Annotated[tuple[Law, Noise, Answers, One, Candidates], Field(strict=False)]
# what one client has spent, see `bonafed.runs.sections.privacy.ledger_table`
ACCOUNT = form(
    needs(str, "client") | needs(Whole, "rows", "answers") | needs(Noise | None, "noise"),
    needs(NonNegative | Literal["inf"] | None, "scale"),
    needs(NonNegative, "epsilon", "before", "left"),
    needs(Number | None, "gaussian", "rdp", "basic"),
)
# for whom the guarantee holds, and the totals of the other view
VIEWS = form(
    needs(Literal["answers", "sum"], "view") | needs(Whole, "missing") | needs(str, "text"),
    needs(NonNegative | None, "total") | needs(dict[str, NonNegative | None], "clients"),
)
GUARANTEE = form(
    needs(NonNegative, "epsilon") | needs(Annotated[float, Field(ge=LEAST_DELTA, lt=1)], "delta"),
    needs(Positive, "allowed") | needs(str, "adjacency", "protects", "rehearsal", "source"),
    needs(bool, "book") | needs(list[str], "public") | needs(list[Positive], "sweep"),
    needs(Mechanism, "mechanism") | needs(Noise, "clip", "bound") | needs(Count, "rounds"),
    needs(Annotated[list[ACCOUNT], at_least(1)], "ledger") | needs(VIEWS, "views"),
    needs(dict[str, Annotated[list[Released], at_least(1)]], "releases"),
    needs(dict[str, list[Released | Searched]], "before"),
)
WITHHELD = form(needs(str, "what", "why"))  # what stays with the owner, and why

# --------------------------------------------------------------------------------------- sweep.json

# how the model of a point does on one set of rows; ``measured`` of the constraint whose limit is
# changed
JUDGED = form(
    needs(Number, "loss", "worst_loss") | needs(str, "worst_client"),
    perhaps(Share, "accuracy", "worst_accuracy") | perhaps(NonNegative, "error", "worst_error"),
    perhaps(Number | None, "measured", "rate"),
)
# one value of the key; where nothing is feasible the point has no objective and no price.
# ``failed`` is the error of its proof, ``alone`` epsilon of the point by itself
POINT = form(
    needs(Number, "at") | needs(Number | None, "value") | needs(dict[str, JUDGED], "sets"),
    perhaps(StopName, "outcome") | perhaps(Whole, "rounds"),
    perhaps(Annotated[str, one_of([UNPROVED])], "tried"),
    perhaps(Annotated[str, Field(pattern=r"^\w{1,60}$")], "failed"),
    perhaps(Number | None, "bound", "relative_gap", "infeasible", "price", "rate"),
    perhaps(bool, "trivial") | perhaps(Number, "violation"),
    perhaps(NonNegative, "alone") | perhaps(Positive, "noise"),
)
# ``own`` is the value of the run
SWEEP = form(
    needs(str, "parameter") | needs(Number | None, "own") | perhaps(Whole, "best"),
    perhaps(Annotated[dict[str, Count], at_least(1)], "held_out"),
    needs(Annotated[list[POINT], at_least(1)], "points"),
)
# while its points are trained: the plan, (epsilon, total) by point, and the points so far
TRAINED = form(
    needs(Positive, "at", "noise") | needs(NonNegative, "alone") | needs(list[Number], "w")
)
CHARGED = form(
    needs(list[Annotated[list[Positive], exactly(2)]], "plan") | needs(list[TRAINED], "points")
)

# ------------------------------------------------------------------------------ the file of a model


def as_declared(kind: ColumnKind) -> AfterValidator:
    """The columns of a kind as a configuration declares them."""
    needed = f"columns of `{kind.key}` as a configuration declares them"
    return such(lambda value: kind.stored(kind.declared(value)) == value, needed)


# how one column of a table becomes features
NUMERIC = form(
    needs(Literal["numeric"], "kind") | needs(str, "name") | needs(str | None, "unit"),
    needs(Number, "mean", "centre") | needs(Positive, "scale") | needs(bool, "indicator"),
)
CATEGORICAL = form(
    needs(Literal["categorical"], "kind") | needs(str, "name") | needs(str | None, "unit"),
    needs(Annotated[list[str], such(once, "every category once")], "categories"),
    needs(bool, "missing") | perhaps(Yes, "pooled"),
)
POOLED = such(
    lambda column: not getattr(column, "pooled", None) or OTHER in column.categories,
    f"pooled columns with the category {OTHER!r}",
)
COLUMN = Annotated[NUMERIC | CATEGORICAL, Field(discriminator="kind"), POOLED]
CLASSES = list[str] | list[int] | list[float] | list[bool] | None
# what is declared of untidy tables; what is not declared is absent
DELIMITER = such(is_delimiter, "one character that stands between cells")
READING = form(
    {key: (Annotated[Any, as_declared(kind)], Field(default=None)) for key, kind in KINDS.items()},
    perhaps(Annotated[str, one_of(ENCODINGS)], "encoding") | perhaps(Literal[","], "decimal"),
    perhaps(Annotated[str, DELIMITER], "delimiter") | perhaps(list[str], "missing", "exclude"),
    perhaps(dict[str, dict[str, str]], "merge"),
    perhaps(Yes, "drop_missing_target", "drop_missing_client", "drop_repeated_header"),
    perhaps(Count, "header_lines"),
)
EVERY_COLUMN_ONCE = such(lambda made: once([each.name for each in made]), "every column once")
# how all features are made
SCHEMA = form(
    needs(Literal[1], "version") | needs(str, "target") | needs(CLASSES, "classes"),
    needs(Annotated[list[COLUMN], at_least(1), EVERY_COLUMN_ONCE], "columns"),
    needs(bool, "fitted") | perhaps(READING, "reading"),
)
# how scores become probabilities: `bonafed.Sigmoid`
CALIBRATION = form(needs(NonNegative, "slope") | needs(Number, "offset"))


class Model(Form):
    """What predictions need beside the numbers of the model; further keys are fields of the class
    that ``model`` names.
    """

    model_config = pydantic.ConfigDict(extra="allow")

    loss: Annotated[str, one_of(NAMED["loss"])]
    model: Annotated[str, one_of(NAMED["model"])]
    classes: CLASSES

    @pydantic.model_validator(mode="after")
    def _parts_fit(self) -> "Model":
        names = {field.name for field in dataclasses.fields(load("model", self.model))}
        if odd := [key for key in self.model_extra or {} if key not in names]:
            raise ValueError(f"no key such as {odd[0][:60]!a}")
        known, kind = self.classes or [], load("loss", self.loss).targets
        enough = {"real": not known, "sign": len(known) == 2, "class": len(known) >= 2}
        if not enough[kind] or not once(known):
            needed = {"real": "null", "sign": "two", "class": "two or more"}[kind]
            raise ValueError(f"as classes of the {self.loss} loss {needed}")
        return self


# ``client`` is the column with the client of each row
MODEL = form(
    needs(Literal[1], "format") | needs(bool, "intercept") | needs(list[str], "feature_names"),
    perhaps(Yes, "ones", "infeasible") | perhaps(str, "client"),
    {"made_by": (SCHEMA, Field(alias="schema"))} | perhaps(CALIBRATION, "calibration"),
    base=Model,
)
